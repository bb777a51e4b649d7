/* family_set.c - one setting out of GGUF metadata or config.json: found by either spelling, its kind and bounds
 * checked.
 *
 * See family_impl.h for the list and for how errors stick. */
#include "model/family_impl.h"

#include "common/jsonbig.h"
#include "common/quote.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct family_set_row {
	const char *field, *gguf, *config;
	double min, max;
} family_set_rows[] = {
#define FAMILY_AS_ROW(field, gguf, config, min, max) {#field, gguf, config, min, max},
	FAMILY_SETTINGS(FAMILY_AS_ROW)
#undef FAMILY_AS_ROW
};

bool family_words_have(const char *words, const char *word, size_t len, uint32_t *ix)
{
	uint32_t i;

	for (i = 0; *words; i++) {
		size_t n = strcspn(words, "|");

		if (n == len && memcmp(words, word, len) == 0) {
			if (ix) *ix = i;
			return true;
		}
		words += n + (words[n] == '|');
	}
	return false;
}

void family_fail(struct family_reading *r, int rc, const char *fmt, ...)
{
	char text[700];
	va_list args;

	if (r->rc != ST_OK) return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	r->rc = err_set(r->err, rc, "%s: %s%s", ckpt_shown_path(r->c), r->g ? "" : "config.json: ", text);
}

/* The n-th spelling of a setting in this checkpoint; false behind the last one. */
static bool family_set_spelling(const struct family_reading *r, enum family_setting x, uint32_t n,
				struct family_key *out)
{
	const char *words = r->g ? family_set_rows[x].gguf : family_set_rows[x].config;

	while (n-- > 0) {
		words += strcspn(words, "|");
		words += *words == '|';
	}
	if (!*words) return false;
	snprintf(out->text, sizeof(out->text), "%s%s%.*s", r->g ? r->arch : "", r->g ? "." : "",
		 (int)strcspn(words, "|"), words);
	return true;
}

static bool family_set_find(struct family_reading *r, enum family_setting x, struct family_key *key)
{
	struct family_key first = {{0}};
	uint32_t n;

	for (n = 0; family_set_spelling(r, x, n, key); n++) {
		if (r->g ? gguf_find(r->g, key->text) != NULL : json_object_get(r->config, key->text) != NULL)
			return true;
		if (n == 0) first = *key;
	}
	*key = first;
	return false;
}

struct family_key family_key(const struct family_reading *r, enum family_setting x)
{
	struct family_reading copy = *r;
	struct family_key key;

	family_set_find(&copy, x, &key);
	return key;
}

enum family_setting family_setting_of(const char *field, size_t len)
{
	enum family_setting x;

	for (x = 0; x < FAMILY_SETTING_COUNT; x++)
		if (strlen(family_set_rows[x].field) == len && memcmp(family_set_rows[x].field, field, len) == 0)
			return x;
	return FAMILY_SETTING_COUNT;
}

enum family_setting family_setting_spelled(const struct family_reading *r, const char *key)
{
	enum family_setting x;

	for (x = 0; x < FAMILY_SETTING_COUNT; x++)
		if (family_words_have(r->g ? family_set_rows[x].gguf : family_set_rows[x].config, key, strlen(key),
				      NULL))
			return x;
	return FAMILY_SETTING_COUNT;
}

static const char *family_set_kind(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return jsonbig_is(v) ? "an integer beyond 64 bits" : "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	case JSON_NULL:
		return "null";
	}
	return "something else";
}

/* A setting's value, found or not. */
struct family_value {
	struct family_key key;
	const json_t *json; /* NULL in a GGUF file, or when missing; never null */
	bool found;         /* there, and not null */
	bool is_null;
};

static struct family_value family_set_get(struct family_reading *r, enum family_setting x)
{
	struct family_value v = {.found = false};

	r->asked[x] = true;
	v.found = family_set_find(r, x, &v.key);
	if (r->g || !v.found) return v;
	v.json = json_object_get(r->config, v.key.text);
	v.is_null = json_is_null(v.json);
	v.found = !v.is_null;
	return v;
}

bool family_given(struct family_reading *r, enum family_setting x)
{
	return family_set_get(r, x).found;
}

/* What counts for a setting that is not there: false when it is required. */
static bool family_set_default(const struct family_reading *r, enum family_setting x, bool is_null, double *value)
{
	const struct family_default *d = r->g || is_null ? NULL : r->f->defaults;

	for (; d && d->setting != FAMILY_SETTING_COUNT; d++) {
		if (d->setting != x) continue;
		*value = d->value;
		return true;
	}
	return false;
}

static void family_set_range(struct family_reading *r, enum family_setting x, const char *key, double value)
{
	const struct family_set_row *row = &family_set_rows[x];

	if (!(value >= row->min && value <= row->max))
		family_fail(r, ST_INVALID, "%s is %.10g; expected %.10g to %.10g", key, value, row->min, row->max);
}

/* A number, NAN when it is missing. */
static double family_set_number(struct family_reading *r, enum family_setting x, bool whole)
{
	const struct family_set_row *row = &family_set_rows[x];
	struct family_value v = family_set_get(r, x);
	double value = NAN;

	if (r->rc != ST_OK) return row->min;
	if (!v.found) return family_set_default(r, x, v.is_null, &value) ? value : NAN;
	if (r->g) {
		uint64_t n = 0;

		r->rc = whole ? gguf_get_u64(r->g, v.key.text, (uint64_t)row->min, (uint64_t)row->max, &n, r->err)
			      : gguf_get_f64(r->g, v.key.text, row->min, row->max, &value, r->err);
		return r->rc != ST_OK ? row->min : whole ? (double)n : value;
	}
	if (whole ? !json_is_integer(v.json) : !json_is_number(v.json))
		family_fail(r, ST_INVALID, "%s is %s; expected %s", v.key.text, family_set_kind(v.json),
			    whole ? "an integer" : "a number");
	else
		family_set_range(r, x, v.key.text, value = json_number_value(v.json));
	return r->rc == ST_OK ? value : row->min;
}

static double family_set_required(struct family_reading *r, enum family_setting x, bool whole)
{
	double value = family_set_number(r, x, whole);

	if (!isnan(value)) return value;
	family_fail(r, ST_NOT_FOUND, "%s%s is missing", r->g ? "key " : "", family_key(r, x).text);
	return family_set_rows[x].min;
}

uint32_t family_u32(struct family_reading *r, enum family_setting x)
{
	return (uint32_t)family_set_required(r, x, true);
}

uint32_t family_u32_or(struct family_reading *r, enum family_setting x, uint32_t fallback)
{
	double value = family_set_number(r, x, true);

	return isnan(value) ? fallback : (uint32_t)value;
}

double family_f64(struct family_reading *r, enum family_setting x)
{
	return family_set_required(r, x, false);
}

double family_f64_or(struct family_reading *r, enum family_setting x, double fallback)
{
	double value = family_set_number(r, x, false);

	return isnan(value) ? fallback : value;
}

bool family_bool_or(struct family_reading *r, enum family_setting x, bool fallback)
{
	struct family_value v = family_set_get(r, x);
	bool value = fallback;
	double number;

	if (r->rc != ST_OK) return false;
	if (!v.found) return family_set_default(r, x, v.is_null, &number) ? number != 0 : fallback;
	if (r->g)
		r->rc = gguf_get_bool_or(r->g, v.key.text, fallback, &value, r->err);
	else if (!json_is_boolean(v.json))
		family_fail(r, ST_INVALID, "%s is %s; expected true or false", v.key.text, family_set_kind(v.json));
	else
		value = json_is_true(v.json);
	return value;
}

/* "a|b" as "a, b". */
static struct family_key family_set_list(const char *words)
{
	struct family_key list;
	size_t at = 0;

	for (; *words && at + 3 < sizeof(list.text); words++) {
		list.text[at++] = *words == '|' ? ',' : *words;
		if (*words == '|') list.text[at++] = ' ';
	}
	list.text[at] = 0;
	return list;
}

uint32_t family_word(struct family_reading *r, enum family_setting x, const char *allowed)
{
	struct family_value v = family_set_get(r, x);
	struct gguf_str word = {"", 0};
	uint32_t ix = 0;

	if (r->rc != ST_OK || !v.found) return 0;
	if (r->g) {
		r->rc = gguf_get_str(r->g, v.key.text, &word, r->err);
		if (r->rc != ST_OK) return 0;
	} else if (json_is_string(v.json) && !jsonbig_is(v.json)) {
		word = (struct gguf_str){json_string_value(v.json), json_string_length(v.json)};
	} else {
		family_fail(r, ST_INVALID, "%s is %s; expected a string", v.key.text, family_set_kind(v.json));
		return 0;
	}
	if (!family_words_have(allowed, word.s, word.len, &ix))
		family_fail(r, ST_UNSUPPORTED, "%s \"%s\" is not supported; supported: %s", v.key.text,
			    quote_short(word.s, word.len).text, family_set_list(allowed).text);
	return ix;
}

const json_t *family_json(struct family_reading *r, enum family_setting x, json_type type)
{
	struct family_value v = family_set_get(r, x);

	if (r->rc != ST_OK || r->g || !v.found) return NULL;
	if (json_typeof(v.json) == type) return v.json;
	family_fail(r, ST_INVALID, "%s is %s; expected %s", v.key.text, family_set_kind(v.json),
		    type == JSON_ARRAY ? "a list" : "an object");
	return NULL;
}

void family_only(struct family_reading *r, enum family_setting x, double value)
{
	struct family_value v = family_set_get(r, x);
	double found = value;

	if (r->rc != ST_OK || !v.found) return;
	if (v.json && json_is_boolean(v.json))
		found = json_is_true(v.json);
	else
		found = family_set_number(r, x, false);
	if (r->rc == ST_OK && found != value)
		family_fail(r, ST_UNSUPPORTED, "%s is %.10g; the family %s is built for %.10g alone", v.key.text, found,
			    r->f->name, value);
}

double family_member(struct family_reading *r, const json_t *o, enum family_setting where, const char *name, double min,
		     double max, double fallback)
{
	const json_t *v = json_object_get(o, name);
	double value = fallback;

	if (r->rc != ST_OK) return min;
	if (!v || json_is_null(v)) {
		if (isnan(fallback)) family_fail(r, ST_NOT_FOUND, "%s.%s is missing", family_key(r, where).text, name);
		return isnan(fallback) ? min : fallback;
	}
	if (json_is_boolean(v) && min == 0 && max == 1) return json_is_true(v);
	if (!json_is_number(v))
		family_fail(r, ST_INVALID, "%s.%s is %s; expected a number", family_key(r, where).text, name,
			    family_set_kind(v));
	else if (value = json_number_value(v), !(value >= min && value <= max))
		family_fail(r, ST_INVALID, "%s.%s is %.10g; expected %.10g to %.10g", family_key(r, where).text, name,
			    value, min, max);
	return r->rc == ST_OK ? value : min;
}
