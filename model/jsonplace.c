/* jsonplace.c - see jsonplace.h. */
#include "model/jsonplace.h"

#include "common/jsonfile.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- files ---- */

int jsonplace_load(json_t **out, const char *path, const char *shown, struct errbuf *err)
{
	static const struct jsonfile_bounds bounds = {JSONPLACE_FILE_MAX, JSONPLACE_DEPTH_MAX, JSONPLACE_VALUES_MAX};

	return jsonfile_load(out, path, shown, &bounds, err);
}

/* ---- places ---- */

struct jsonplace jsonplace_member(const struct jsonplace *p, const char *key)
{
	struct jsonplace m = *p;
	size_t len = strlen(m.way);

	m.value = json_object_get(p->value, key);
	snprintf(m.way + len, sizeof(m.way) - len, "%s%s", len ? "." : "", key);
	return m;
}

struct jsonplace jsonplace_item(const struct jsonplace *p, size_t ix)
{
	struct jsonplace m = *p;
	size_t len = strlen(m.way);

	m.value = json_array_get(p->value, ix);
	snprintf(m.way + len, sizeof(m.way) - len, "[%zu]", ix);
	return m;
}

bool jsonplace_is_null(const struct jsonplace *p)
{
	return !p->value || json_is_null(p->value);
}

int jsonplace_fail(const struct jsonplace *p, int rc, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(p->err, rc, "%s: %s: %s", p->file, p->way, text);
}

static const char *kind_name(const json_t *j)
{
	if (!j) return "missing";
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a text";
	case JSON_INTEGER:
	case JSON_REAL:
		return "a number";
	case JSON_NULL:
		return "null";
	default:
		return "true or false";
	}
}

int jsonplace_str(const struct jsonplace *p, struct gguf_str *out)
{
	if (!json_is_string(p->value)) return jsonplace_fail(p, ST_INVALID, "is %s; expected a text", kind_name(p->value));
	*out = (struct gguf_str){json_string_value(p->value), json_string_length(p->value)};
	return ST_OK;
}

int jsonplace_bool_or(const struct jsonplace *p, const char *key, bool fallback, bool *out)
{
	struct jsonplace m = jsonplace_member(p, key);

	*out = fallback;
	if (jsonplace_is_null(&m)) return ST_OK;
	if (!json_is_boolean(m.value)) return jsonplace_fail(&m, ST_INVALID, "is %s; expected true or false", kind_name(m.value));
	*out = json_is_true(m.value);
	return ST_OK;
}

int jsonplace_array(const struct jsonplace *p, size_t *n)
{
	if (!json_is_array(p->value)) return jsonplace_fail(p, ST_INVALID, "is %s; expected an array", kind_name(p->value));
	*n = json_array_size(p->value);
	return ST_OK;
}

int jsonplace_id(const struct jsonplace *p, size_t n_ids, uint32_t *out)
{
	json_int_t id = json_integer_value(p->value);

	if (!json_is_integer(p->value)) return jsonplace_fail(p, ST_INVALID, "is %s; expected a token id", kind_name(p->value));
	if (id < 0 || (uint64_t)id >= n_ids)
		return jsonplace_fail(p, ST_INVALID, "is %" JSON_INTEGER_FORMAT "; expected a token id, 0 to %zu", id, n_ids - 1);
	*out = (uint32_t)id;
	return ST_OK;
}

int jsonplace_must_be_unset(const struct jsonplace *p, const char *key, const char *why)
{
	struct jsonplace m = jsonplace_member(p, key);

	if (jsonplace_is_null(&m) || json_is_false(m.value)) return ST_OK;
	if (json_is_string(m.value) && json_string_length(m.value) == 0) return ST_OK;
	if (json_is_number(m.value) && json_number_value(m.value) == 0) return ST_OK;
	return jsonplace_fail(&m, ST_UNSUPPORTED, "%s; expected null", why);
}
