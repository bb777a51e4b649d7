/* jsonplace.c - see jsonplace.h. */
#include "model/jsonplace.h"

#include "common/jsonbound.h"
#include "common/mem.h"
#include "common/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

static int file_bytes(const char *path, const char *shown, char **out, size_t *len, struct errbuf *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = ST_OK;
	struct stat st;
	size_t got = 0;

	if (fd < 0)
		return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: cannot be opened: %s", shown, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		rc = err_set(err, ST_INVALID, "%s: is no file", shown);
	else if ((uint64_t)st.st_size > JSONPLACE_FILE_MAX)
		rc = err_set(err, ST_LIMIT, "%s: has %" PRIu64 " bytes; expected at most %zu", shown, (uint64_t)st.st_size,
			     JSONPLACE_FILE_MAX);
	*out = NULL;
	if (rc == ST_OK) *out = mem_realloc(NULL, (size_t)st.st_size + 1, 1);
	while (rc == ST_OK && got < (size_t)st.st_size) {
		ssize_t n = read(fd, *out + got, (size_t)st.st_size - got);

		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) rc = err_set(err, ST_IO, "%s: cannot be read: %s", shown, n < 0 ? strerror(errno) : "it became shorter");
		else got += (size_t)n;
	}
	close(fd);
	if (rc != ST_OK) {
		free(*out);
		*out = NULL;
		return rc;
	}
	(*out)[got] = 0;
	*len = got;
	return ST_OK;
}

static int check_bounds(const char *s, size_t len, const char *shown, struct errbuf *err)
{
	switch (jsonbound_scan(s, len, JSONPLACE_DEPTH_MAX, JSONPLACE_VALUES_MAX)) {
	case JSONBOUND_TOO_DEEP: return err_set(err, ST_LIMIT, "%s: is nested deeper than %d levels", shown, JSONPLACE_DEPTH_MAX);
	case JSONBOUND_TOO_MANY: return err_set(err, ST_LIMIT, "%s: holds more than %zu values", shown, JSONPLACE_VALUES_MAX);
	case JSONBOUND_FITS: break;
	}
	return ST_OK;
}

int jsonplace_load(json_t **out, const char *path, const char *shown, struct errbuf *err)
{
	char *text = NULL;
	size_t len = 0;
	json_error_t e;
	int rc = file_bytes(path, shown, &text, &len, err);

	*out = NULL;
	if (rc != ST_OK) return rc;
	rc = check_bounds(text, len, shown, err);
	if (rc == ST_OK) {
		*out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
		if (!*out)
			rc = err_set(err, ST_INVALID, "%s: is not valid JSON (line %d, column %d): %s", shown, e.line, e.column,
				     quote_short(e.text, strlen(e.text)).text);
	}
	free(text);
	if (rc == ST_OK && !json_is_object(*out)) {
		json_decref(*out);
		*out = NULL;
		rc = err_set(err, ST_INVALID, "%s: is no JSON object", shown);
	}
	return rc;
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
