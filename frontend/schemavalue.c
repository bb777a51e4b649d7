/* schemavalue.c - a demand to a sum: the keywords about scalar values: type, enum, const, and those of numbers and strings. See
 * schemac_impl.h. */
#include "frontend/schemac_impl.h"

#include "common/quote.h"
#include "common/jsonbig.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define SCHEMAVALUE_COUNT_MAX 0x7fffffffu /* in a keyword; larger ones are the same to any output */

/* ---- type ---- */

static const struct dfa *schemavalue_whole(struct schemac *c, bool negated)
{
	if (negated) return schemanum_whole(c->g, false);
	if (!c->whole) c->whole = schemanum_whole(c->g, c->doc.draft <= SCHEMADOC_4);
	return c->whole;
}

static const struct dfa *schemavalue_all(struct schemac *c)
{
	if (!c->numbers) c->numbers = schemanum_all(c->g);
	return c->numbers;
}

/* Only numbers, and of those the set or what is not in it. */
static const struct schemasum *schemavalue_numbers(struct schemac *c, const struct dfa *numbers, bool negated)
{
	if (negated) numbers = dfa_minus(c->g, schemavalue_all(c), numbers);
	return schemasum_only(c, schemasum_numbers(c, numbers), SCHEMATYPE_NUMBER);
}

static unsigned schemavalue_type_bit(const char *name)
{
	static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(names[i], name) == 0) return 1u << i;
	return 0;
}

static const struct schemasum *schemavalue_type(struct schemac *c, const json_t *at, const json_t *type, bool negated)
{
	const char *name = json_string_value(type);
	unsigned bit;

	if (name && strcmp(name, "integer") == 0) {
		const struct schemasum *s = schemavalue_numbers(c, schemavalue_whole(c, negated), negated);

		return negated ? schemasum_or(c, s, schemasum_types(c, SCHEMATYPE_ALL & ~SCHEMATYPE_NUMBER)) : s;
	}
	if (name && strcmp(name, "any") == 0 && (c->doc.draft == SCHEMADOC_3 || !c->doc.is_declared)) return negated ? c->sum_none : c->sum_any;
	if (c->doc.draft == SCHEMADOC_3 && json_is_object(type)) return schemaread(c, type, negated);
	bit = name ? schemavalue_type_bit(name) : 0;
	if (!bit) {
		/* Draft 3 lets everything through that it does not know; a wrong word is more likely. */
		schemadoc_fail(&c->doc, ST_INVALID, at, "`type` is null, boolean, number, integer, string, array, object, or a list of those");
		return c->sum_none;
	}
	return schemasum_types(c, negated ? SCHEMATYPE_ALL & ~bit : bit);
}

/* A type or a list of types. */
static const struct schemasum *schemavalue_types(struct schemac *c, const json_t *at, const json_t *type, bool negated)
{
	const struct schemasum *s = negated ? c->sum_any : c->sum_none, *one;
	const json_t *item;
	size_t i;

	if (!json_is_array(type)) return schemavalue_type(c, at, type, negated);
	json_array_foreach((json_t *)type, i, item) {
		one = schemavalue_type(c, at, item, negated);
		s = negated ? schemasum_and(c, s, one) : schemasum_or(c, s, one);
	}
	return s;
}

const struct schemasum *schemavalue_read_types(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *type = json_object_get(schema, "type"), *disallow = json_object_get(schema, "disallow");
	const struct schemasum *s = negated ? c->sum_none : c->sum_any, *one;

	if (type) s = schemavalue_types(c, schema, type, negated);
	if (!disallow || c->doc.draft != SCHEMADOC_3) return s;
	one = schemavalue_types(c, schema, disallow, !negated);
	return negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
}

/* ---- enum and const ---- */

/* A schema of ours for "equal to the value", the same one each time. */
static struct schemanode *schemavalue_equal(struct schemac *c, const json_t *value, bool negated)
{
	json_t *schema = map_get(&c->constants, (uint64_t)(uintptr_t)value);

	if (!schema) {
		schema = json_pack("{s[O]}", "enum", value);
		CHECK(schema && json_array_append_new(c->own, schema) == 0);
		map_put(&c->constants, (uint64_t)(uintptr_t)value, schema);
		gramctx_work(c->g, 5);
	}
	return schemasum_node(c, &(struct schemademand){schema, negated}, 1);
}

static const struct schemasum *schemavalue_list(struct schemac *c, const json_t *value)
{
	struct schemaitems *layer = gramctx_array(c->g, struct schemaitems, 1);
	struct schemaarray a = {.n_layers = 1};
	uint32_t n = (uint32_t)json_array_size(value), i;

	layer->prefix = gramctx_array(c->g, struct schemanode *, n);
	for (i = 0; i < n; i++) layer->prefix[i] = schemavalue_equal(c, json_array_get(value, i), false);
	layer->n_prefix = n;
	layer->rest = c->never;
	layer->is_silent = true;
	a.layers = gramctx_dup(c->g, &layer, 1, sizeof(layer));
	a.min = a.max = n;
	return schemasum_only(c, schemasum_array(c, &a), SCHEMATYPE_ARRAY);
}

/* Lists of another length, or with another item. */
static const struct schemasum *schemavalue_not_list(struct schemac *c, const json_t *value)
{
	uint32_t n = (uint32_t)json_array_size(value), i, k;
	const struct schemasum *s = schemasum_array(c, &(struct schemaarray){.min = n + 1, .max = GRAM_NO_END});

	if (n) s = schemasum_or(c, s, schemasum_array(c, &(struct schemaarray){.max = n - 1}));
	for (i = 0; i < n && gramctx_work(c->g, 1 + i); i++) {
		struct schemaitems *layer = gramctx_array(c->g, struct schemaitems, 1);

		layer->prefix = gramctx_array(c->g, struct schemanode *, i + 1);
		for (k = 0; k < i; k++) layer->prefix[k] = c->any;
		layer->prefix[i] = schemavalue_equal(c, json_array_get(value, i), true);
		layer->n_prefix = i + 1;
		layer->rest = c->any;
		layer->is_silent = true;
		s = schemasum_or(c, s, schemasum_array(c, &(struct schemaarray){.layers = gramctx_dup(c->g, &layer, 1, sizeof(layer)),
										.n_layers = 1, .min = i + 1, .max = GRAM_NO_END}));
	}
	return schemasum_only(c, s, SCHEMATYPE_ARRAY);
}

static struct schemakey *schemavalue_keys(struct schemac *c, const json_t *object)
{
	struct schemakey *keys = gramctx_array(c->g, struct schemakey, json_object_size(object));
	const char *key;
	json_t *value;
	size_t len, n = 0;

	json_object_keylen_foreach((json_t *)object, key, len, value) keys[n++] = (struct schemakey){key, len};
	return keys;
}

static const struct schemasum *schemavalue_object(struct schemac *c, const json_t *value)
{
	struct schemamembers *layer = gramctx_array(c->g, struct schemamembers, 1);
	struct schemaobject o = {.n_layers = 1, .max = GRAM_NO_END};
	uint32_t n = (uint32_t)json_object_size(value), i;

	o.required = schemavalue_keys(c, value);
	o.n_required = n;
	layer->properties = gramctx_array(c->g, struct schemaproperty, n);
	for (i = 0; i < n; i++) {
		struct schemakey key = o.required[i];

		layer->properties[i] = (struct schemaproperty){key, schemavalue_equal(c, json_object_getn(value, key.text, key.len), false)};
	}
	layer->n_properties = n;
	layer->rest = c->never;
	layer->is_silent = true;
	o.layers = gramctx_dup(c->g, &layer, 1, sizeof(layer));
	return schemasum_only(c, schemasum_object(c, &o), SCHEMATYPE_OBJECT);
}

/* Objects without one of its keys, with another value there, or with more keys. */
static const struct schemasum *schemavalue_not_object(struct schemac *c, const json_t *value)
{
	uint32_t n = (uint32_t)json_object_size(value), i, k;
	const struct schemasum *s = schemasum_object(c, &(struct schemaobject){.min = n + 1, .max = GRAM_NO_END});
	const struct schemakey *keys = schemavalue_keys(c, value);

	for (i = 0; i < n && gramctx_work(c->g, 1); i++) {
		for (k = 0; k < 2; k++) {
			struct schemamembers *layer = gramctx_array(c->g, struct schemamembers, 1);
			struct schemaobject o = {.n_layers = 1, .max = GRAM_NO_END, .required = &keys[i], .n_required = k};

			layer->properties = gramctx_array(c->g, struct schemaproperty, 1);
			layer->properties[0].key = keys[i];
			layer->properties[0].node = k ? schemavalue_equal(c, json_object_getn(value, keys[i].text, keys[i].len), true) : c->never;
			layer->n_properties = 1;
			layer->rest = c->any;
			layer->is_silent = true;
			o.layers = gramctx_dup(c->g, &layer, 1, sizeof(layer));
			s = schemasum_or(c, s, schemasum_object(c, &o));
		}
	}
	return schemasum_only(c, s, SCHEMATYPE_OBJECT);
}

/* The scalars of a list, and all values' types that have no value in it. */
struct schemavalue_scalars {
	bool has_null;
	uint8_t booleans;
	struct schemanum *numbers;
	struct dfa_word *words;
	size_t n_numbers, n_words;
};

static void schemavalue_sort(struct schemac *c, const json_t *at, const json_t *value, struct schemavalue_scalars *s)
{
	gramctx_work(c->g, 2);
	if (json_is_null(value)) {
		s->has_null = true;
	} else if (json_is_boolean(value)) {
		s->booleans |= json_is_true(value) ? 2 : 1;
	} else if (json_is_number(value) || (json_is_string(value) && json_string_length(value) > JSONBIG_MARK_LEN &&
					     memcmp(json_string_value(value), JSONBIG_MARK, JSONBIG_MARK_LEN) == 0)) {
		if (!schemanum_read(c->g, value, &s->numbers[s->n_numbers++]))
			schemadoc_fail(&c->doc, ST_LIMIT, at, "a number has too many digits");
	} else if (json_is_string(value)) {
		s->words[s->n_words++] = (struct dfa_word){json_string_value(value), json_string_length(value)};
	}
}

static const struct schemasum *schemavalue_scalars(struct schemac *c, const struct schemavalue_scalars *v, bool negated)
{
	struct schemasum *s = (struct schemasum *)schemasum_only(c, c->sum_none, 0);
	struct schemastring *string;

	s->has_null = v->has_null != negated;
	s->booleans = negated ? 3 & ~v->booleans : v->booleans;
	if (v->n_numbers) s->numbers = schemavalue_numbers(c, schemanum_one_of(c->g, v->numbers, v->n_numbers), negated)->numbers;
	else s->has_all_numbers = negated;
	if (v->n_words || negated) {
		string = gramctx_array(c->g, struct schemastring, 1);
		string->max = GRAM_NO_END;
		if (v->n_words) string->dfa = dfa_words(c->g, v->words, v->n_words);
		if (v->n_words && negated) string->dfa = dfa_not(c->g, string->dfa);
		s->strings = string;
		s->n_strings = 1;
	}
	return s;
}

static const struct schemasum *schemavalue_among(struct schemac *c, const json_t *at, const json_t **values, size_t n, bool negated)
{
	const unsigned lists = SCHEMATYPE_ARRAY | SCHEMATYPE_OBJECT;
	struct schemavalue_scalars scalars = {0};
	const struct schemasum *s = negated ? schemasum_types(c, lists) : c->sum_none;
	size_t i;

	scalars.numbers = gramctx_array(c->g, struct schemanum, n);
	scalars.words = gramctx_array(c->g, struct dfa_word, n);
	for (i = 0; i < n && gramctx_is_ok(c->g); i++) {
		const json_t *v = values[i];

		if (!json_is_array(v) && !json_is_object(v)) schemavalue_sort(c, at, v, &scalars);
		else if (!negated) s = schemasum_or(c, s, json_is_array(v) ? schemavalue_list(c, v) : schemavalue_object(c, v));
		else if (json_is_array(v))
			s = schemasum_and(c, s, schemasum_or(c, schemavalue_not_list(c, v), schemasum_types(c, SCHEMATYPE_OBJECT)));
		else s = schemasum_and(c, s, schemasum_or(c, schemavalue_not_object(c, v), schemasum_types(c, SCHEMATYPE_ARRAY)));
	}
	return schemasum_or(c, schemavalue_scalars(c, &scalars, negated), s);
}

const struct schemasum *schemavalue_read_constants(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *list = json_object_get(schema, "enum"), *value = json_object_get(schema, "const"), **values;
	const struct schemasum *s = negated ? c->sum_none : c->sum_any, *one;
	size_t n = json_array_size(list), i;

	if (list && (!json_is_array(list) || !n)) {
		schemadoc_fail(&c->doc, ST_INVALID, schema, "`enum` is not a list of values");
		return s;
	}
	if (list) {
		values = gramctx_array(c->g, const json_t *, n);
		for (i = 0; i < n; i++) values[i] = json_array_get(list, i);
		s = schemavalue_among(c, schema, values, n, negated);
	}
	if (!value || (c->doc.draft < SCHEMADOC_6)) return s;
	one = schemavalue_among(c, schema, &value, 1, negated);
	return negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
}

/* ---- numbers ---- */

static bool schemavalue_number(struct schemac *c, const json_t *schema, const char *keyword, struct schemanum *out)
{
	const json_t *value = json_object_get(schema, keyword);

	if (!value) return false;
	if (schemanum_read(c->g, value, out)) return true;
	schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not a number, or one with too many digits", keyword);
	return false;
}

/* "minimum" or "maximum" with what makes it exclusive: `true` in the old drafts, a number of its own in the newer. */
static const struct dfa *schemavalue_bound(struct schemac *c, const json_t *schema, const char *keyword, const char *exclusive, bool at_least)
{
	const struct dfa *a = NULL, *b;
	const json_t *flag = json_object_get(schema, exclusive);
	bool is_flag = json_is_boolean(flag) && (c->doc.draft <= SCHEMADOC_4 || !c->doc.is_declared);
	struct schemanum bound;

	if (schemavalue_number(c, schema, keyword, &bound))
		a = at_least ? schemanum_at_least(c->g, &bound, is_flag && json_is_true(flag))
			     : schemanum_at_most(c->g, &bound, is_flag && json_is_true(flag));
	if (is_flag || (c->doc.draft <= SCHEMADOC_4) || !schemavalue_number(c, schema, exclusive, &bound)) return a;
	b = at_least ? schemanum_at_least(c->g, &bound, true) : schemanum_at_most(c->g, &bound, true);
	return a ? dfa_and(c->g, a, b) : b;
}

static const struct schemasum *schemavalue_multiples(struct schemac *c, const json_t *schema, const char *keyword, bool negated)
{
	const struct dfa *numbers;
	struct schemanum divisor;
	char text[160];

	if (!schemavalue_number(c, schema, keyword, &divisor)) return negated ? c->sum_none : c->sum_any;
	if (divisor.is_negative || divisor.n == 0) {
		schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not above 0", keyword);
		return c->sum_none;
	}
	numbers = schemanum_multiples(c->g, &divisor);
	if (numbers) return negated ? schemavalue_numbers(c, numbers, true) : schemasum_numbers(c, numbers);
	snprintf(text, sizeof(text), "`%s` is supported for whole numbers up to some thousands and for halves, quarters and the like", keyword);
	if (negated) return schemasum_lost(c, schema, text, SCHEMATYPE_NUMBER);
	schemadoc_fail(&c->doc, ST_UNSUPPORTED, schema, "%s", text);
	return c->sum_none;
}

const struct schemasum *schemavalue_read_numbers(struct schemac *c, const json_t *schema, bool negated)
{
	const struct dfa *low = schemavalue_bound(c, schema, "minimum", "exclusiveMinimum", true);
	const struct dfa *high = schemavalue_bound(c, schema, "maximum", "exclusiveMaximum", false);
	const struct schemasum *s = schemavalue_multiples(c, schema, c->doc.draft == SCHEMADOC_3 ? "divisibleBy" : "multipleOf", negated);

	if (low && high) low = dfa_and(c->g, low, high);
	else if (high) low = high;
	if (!low) return s;
	return negated ? schemasum_or(c, s, schemavalue_numbers(c, low, true)) : schemasum_and(c, s, schemasum_numbers(c, low));
}

/* ---- strings ---- */

bool schemavalue_count(struct schemac *c, const json_t *schema, const char *keyword, uint32_t *out)
{
	const json_t *value = json_object_get(schema, keyword);
	double v = json_number_value(value);

	if (!value) return false;
	if (!json_is_number(value) || v < 0 || v != (double)(int64_t)v) {
		schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not a count", keyword);
		return false;
	}
	*out = v > SCHEMAVALUE_COUNT_MAX ? SCHEMAVALUE_COUNT_MAX : (uint32_t)v;
	return true;
}

const struct dfa *schemavalue_pattern(struct schemac *c, const json_t *at, const char *keyword, const char *text, size_t len, bool wide)
{
	const struct dfa *a;

	if (!gramctx_is_ok(c->g)) return dfa_none(c->g);
	a = dfaregex_pattern(c->g, text, len, true, wide);
	if (!gramctx_is_ok(c->g)) err_prefix(c->g->err, c->g->rc, "at %s: `%s`", schemadoc_path(&c->doc, at), keyword);
	return a ? a : dfa_none(c->g);
}

/* What breaks a string's limits one by one. What breaks a format nobody can say: not everyone checks them. */
static const struct schemasum *schemavalue_not_string(struct schemac *c, const json_t *schema)
{
	const struct schemasum *s = c->sum_none;
	const json_t *pattern = json_object_get(schema, "pattern");
	uint32_t n;

	if (schemavalue_count(c, schema, "minLength", &n) && n)
		s = schemasum_only(c, schemasum_string(c, (struct schemastring){.max = n - 1}), SCHEMATYPE_STRING);
	if (schemavalue_count(c, schema, "maxLength", &n))
		s = schemasum_or(c, s, schemasum_only(c, schemasum_string(c, (struct schemastring){.min = n + 1, .max = GRAM_NO_END}),
						      SCHEMATYPE_STRING));
	if (json_is_string(pattern)) {
		const struct dfa *a = schemavalue_pattern(c, schema, "pattern", json_string_value(pattern), json_string_length(pattern), true);
		struct schemastring other = {dfa_not(c->g, a), 0, GRAM_NO_END};

		s = schemasum_or(c, s, schemasum_inexact(c, schemasum_only(c, schemasum_string(c, other), SCHEMATYPE_STRING), SCHEMATYPE_STRING));
	}
	if (!json_object_get(schema, "format") && !json_object_get(schema, "contentEncoding")) return s;
	return schemasum_or(c, s, schemasum_lost(c, schema, "`format` within `not` is not supported: not everyone checks it", SCHEMATYPE_STRING));
}

static bool schemavalue_says(const json_t *schema, const char *keyword, const char *text)
{
	const char *value = json_string_value(json_object_get(schema, keyword));

	return value && strcmp(value, text) == 0;
}

const struct schemasum *schemavalue_read_strings(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
	struct schemastring s = {NULL, 0, GRAM_NO_END};
	const struct dfa *of_format = json_is_string(format) ? schemaformat(c, json_string_value(format)) : NULL, *of_encoding = NULL;
	const struct schemasum *sum;

	if (pattern && !json_is_string(pattern)) schemadoc_fail(&c->doc, ST_INVALID, schema, "`pattern` is not a string");
	if (negated) return schemavalue_not_string(c, schema);
	schemavalue_count(c, schema, "minLength", &s.min);
	schemavalue_count(c, schema, "maxLength", &s.max);
	if (json_is_string(pattern))
		s.dfa = schemavalue_pattern(c, schema, "pattern", json_string_value(pattern), json_string_length(pattern), false);
	if (schemavalue_says(schema, "contentEncoding", "base64")) of_encoding = schemaformat(c, "\001base64");
	if (of_encoding) s.dfa = s.dfa ? dfa_and(c->g, s.dfa, of_encoding) : of_encoding;
	if (of_format) s.dfa = s.dfa ? dfa_and(c->g, s.dfa, of_format) : of_format;
	if (!s.dfa && s.min == 0 && s.max == GRAM_NO_END) return c->sum_any;
	sum = schemasum_string(c, s);
	return s.dfa ? schemasum_inexact(c, sum, SCHEMATYPE_STRING) : sum;
}
