/* schemaread.c - a demand to a sum: the keywords that combine schemas, and the order in which all are read. See schemac_impl.h.
 *
 * A schema is the conjunction of its keywords, so what breaks it is the union of what breaks one of them. */
#include "frontend/schemac_impl.h"

#include "common/quote.h"

#include <string.h>

#define SCHEMAREAD_PAIRS_MAX 5000 /* of a oneOf's branches, which are compared with one another */

static const struct schemasum schemaread_busy; /* stands for a demand that is being read */

typedef const struct schemasum *(*schemaread_part)(struct schemac *c, const json_t *schema, bool negated);

/* ---- references ---- */

static const char *const schemaread_references[] = {"$ref", "$recursiveRef", "$dynamicRef"};

/* What the keyword leads to; NULL: it is not there, or g has failed. */
static const json_t *schemaread_follow(struct schemac *c, const json_t *schema, const char *keyword)
{
	const json_t *ref = json_object_get(schema, keyword);

	if (!ref || (strcmp(keyword, "$ref") != 0 && !schemadoc_is_2019(&c->doc))) return NULL;
	if (!json_is_string(ref)) {
		schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not a string", keyword);
		return NULL;
	}
	if (strcmp(keyword, "$ref") != 0 && c->doc.n_dynamic > 1) {
		schemadoc_fail(&c->doc, ST_UNSUPPORTED, schema, "`%s` is not supported where several schemas have a dynamic anchor", keyword);
		return NULL;
	}
	return schemadoc_follow(&c->doc, schema, keyword, json_string_value(ref));
}

static const struct schemasum *schemaread_refs(struct schemac *c, const json_t *schema, bool negated)
{
	const struct schemasum *s = negated ? c->sum_none : c->sum_any, *one;
	const json_t *to;
	size_t i;

	for (i = 0; i < ARRAY_LEN(schemaread_references); i++) {
		to = schemaread_follow(c, schema, schemaread_references[i]);
		if (!to) continue;
		one = schemaread(c, to, negated);
		s = negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
	}
	return s;
}

/* Keywords that say nothing about values. */
static bool schemaread_is_comment(const char *key)
{
	static const char *const comments[] = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly",
					       "$defs", "definitions", "$schema"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(comments); i++)
		if (strcmp(comments[i], key) == 0) return true;
	return false;
}

const json_t *schemaread_target(struct schemac *c, const json_t *schema)
{
	const char *key;
	const json_t *to;
	json_t *value;
	int hops;

	for (hops = 0; hops < GRAMCTX_DEPTH_MAX && json_is_string(json_object_get(schema, "$ref")); hops++) {
		json_object_foreach((json_t *)schema, key, value) {
			if (strcmp(key, "$ref") != 0 && !schemaread_is_comment(key)) return schema;
		}
		to = schemaread_follow(c, schema, "$ref");
		if (!to) return schema;
		schema = to;
	}
	return schema;
}

/* ---- combinations ---- */

/* The keyword's list; NULL: not there, or g has failed. */
static const json_t *schemaread_list(struct schemac *c, const json_t *schema, const char *keyword)
{
	const json_t *list = json_object_get(schema, keyword);

	if (!list) return NULL;
	if (json_is_array(list) && json_array_size(list) > 0) return list;
	schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not a list of schemas", keyword);
	return NULL;
}

static const struct schemasum *schemaread_every(struct schemac *c, const json_t *list, bool negated)
{
	const struct schemasum *s = negated ? c->sum_none : c->sum_any, *one;
	const json_t *item;
	size_t i;

	json_array_foreach((json_t *)list, i, item) {
		one = schemaread(c, item, negated);
		s = negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
	}
	return s;
}

static const struct schemasum *schemaread_all_of(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *list = schemaread_list(c, schema, "allOf"), *extends = json_object_get(schema, "extends");
	const struct schemasum *s = list ? schemaread_every(c, list, negated) : negated ? c->sum_none : c->sum_any, *one;

	if (!extends || c->doc.draft != SCHEMADOC_3) return s;
	one = json_is_array(extends) ? schemaread_every(c, extends, negated) : schemaread(c, extends, negated);
	return negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
}

static const struct schemasum *schemaread_any_of(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *list = schemaread_list(c, schema, "anyOf"), *item;
	const struct schemasum *s = c->sum_none;
	size_t i;

	if (!list) return negated ? c->sum_none : c->sum_any;
	if (negated) {
		s = c->sum_any;
		json_array_foreach((json_t *)list, i, item) s = schemasum_and(c, s, schemaread(c, item, true));
		return s;
	}
	json_array_foreach((json_t *)list, i, item) s = schemasum_or(c, s, schemaread(c, item, false));
	return s;
}

/* No value is valid for both. */
static bool schemaread_are_apart(struct schemac *c, const json_t *a, const json_t *b)
{
	return schemasum_is_empty(c, schemasum_both(c, schemasum_node_of(c, a, false), schemasum_node_of(c, b, false)));
}

/* apart[i * n + j], i < j. */
static uint8_t *schemaread_compare_all(struct schemac *c, const json_t *list)
{
	size_t n = json_array_size(list), i, j;
	uint8_t *apart;

	if (n * n / 2 > SCHEMAREAD_PAIRS_MAX) {
		gramctx_fail(c->g, ST_LIMIT, "too complicated: `oneOf` with %zu branches, of which each is compared with all others", n);
		return NULL;
	}
	apart = gramctx_array(c->g, uint8_t, n * n);
	for (i = 0; i < n; i++)
		for (j = i + 1; j < n && gramctx_is_ok(c->g); j++)
			apart[i * n + j] = apart[j * n + i] = schemaread_are_apart(c, json_array_get(list, i), json_array_get(list, j));
	return apart;
}

/* None is met, or two are. */
static const struct schemasum *schemaread_not_one_of(struct schemac *c, const json_t *list, const uint8_t *apart)
{
	const struct schemasum *s = c->sum_any;
	size_t n = json_array_size(list), i, j;

	for (i = 0; i < n; i++) s = schemasum_and(c, s, schemaread(c, json_array_get(list, i), true));
	for (i = 0; i < n; i++)
		for (j = i + 1; j < n && gramctx_is_ok(c->g); j++)
			if (!apart[i * n + j])
				s = schemasum_or(c, s, schemasum_and(c, schemaread(c, json_array_get(list, i), false),
								     schemaread(c, json_array_get(list, j), false)));
	return s;
}

static const struct schemasum *schemaread_one_of(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *list = schemaread_list(c, schema, "oneOf");
	const struct schemasum *s = c->sum_none, *one;
	bool was_silent = c->is_silent;
	const uint8_t *apart;
	size_t n, i, j;

	if (!list) return negated ? c->sum_none : c->sum_any;
	apart = schemaread_compare_all(c, list);
	if (!apart) return c->sum_none;
	if (negated) return schemaread_not_one_of(c, list, apart);
	n = json_array_size(list);
	for (i = 0; i < n; i++) {
		one = schemaread(c, json_array_get(list, i), false);
		c->is_silent = true;
		for (j = 0; j < n && gramctx_is_ok(c->g); j++)
			if (j != i && !apart[i * n + j]) one = schemasum_and(c, one, schemaread(c, json_array_get(list, j), true));
		c->is_silent = was_silent;
		s = schemasum_or(c, s, one);
	}
	return s;
}

static const struct schemasum *schemaread_not(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *inner = json_object_get(schema, "not");
	bool was_silent = c->is_silent;
	const struct schemasum *s;

	if (!inner) return negated ? c->sum_none : c->sum_any;
	c->is_silent = true;
	s = schemaread(c, inner, !negated);
	c->is_silent = was_silent;
	return s;
}

static const struct schemasum *schemaread_if(struct schemac *c, const json_t *schema, bool negated)
{
	const json_t *cond = json_object_get(schema, "if"), *then = json_object_get(schema, "then"), *other = json_object_get(schema, "else");
	const struct schemasum *yes, *no;
	bool was_silent = c->is_silent;

	if (!cond || (!then && !other) || c->doc.draft < SCHEMADOC_7) return negated ? c->sum_none : c->sum_any;
	yes = schemaread(c, cond, false);
	c->is_silent = true;
	no = schemaread(c, cond, true);
	c->is_silent = was_silent;
	yes = then ? schemasum_and(c, yes, schemaread(c, then, negated)) : negated ? c->sum_none : yes;
	no = other ? schemasum_and(c, no, schemaread(c, other, negated)) : negated ? c->sum_none : no;
	return schemasum_or(c, yes, no);
}

/* ---- a whole schema ---- */

static const schemaread_part schemaread_parts[] = {
	schemavalue_read_types, schemavalue_read_constants, schemavalue_read_numbers, schemavalue_read_strings, schemamember_read_arrays, schemamember_read_objects,
	schemaread_refs,  schemaread_all_of,    schemaread_any_of,  schemaread_one_of,  schemaread_not,    schemaread_if,
	schemamember_read_dependencies,
};

static bool schemaread_is_nullable(const struct schemac *c, const json_t *schema)
{
	/* OpenAPI 3.0's; a document that says which draft it is of does not mean it. */
	return !c->doc.is_declared && json_is_true(json_object_get(schema, "nullable"));
}

static const struct schemasum *schemaread_keywords(struct schemac *c, const json_t *schema, bool negated)
{
	const struct schemasum *s = negated ? c->sum_none : c->sum_any, *one;
	size_t i;

	if (c->doc.draft <= SCHEMADOC_7 && c->doc.is_declared && json_object_get(schema, "$ref")) return schemaread_refs(c, schema, negated);
	for (i = 0; i < ARRAY_LEN(schemaread_parts) && gramctx_work(c->g, 1); i++) {
		one = schemaread_parts[i](c, schema, negated);
		s = negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
	}
	if (json_object_get(schema, "unevaluatedItems") || json_object_get(schema, "unevaluatedProperties")) {
		if (!negated) s = schemamember_unevaluated(c, schema, s);
		else if (schemadoc_is_2019(&c->doc))
			s = schemasum_or(c, s, schemasum_lost(c, schema, "`unevaluatedItems` and `unevaluatedProperties` are not supported within `not`",
							      SCHEMATYPE_ARRAY | SCHEMATYPE_OBJECT));
	}
	if (!schemaread_is_nullable(c, schema)) return s;
	return negated ? schemasum_only(c, s, SCHEMATYPE_ALL & ~SCHEMATYPE_NULL) : schemasum_or(c, s, schemasum_types(c, SCHEMATYPE_NULL));
}

const struct schemasum *schemaread(struct schemac *c, const json_t *schema, bool negated)
{
	const struct schemasum *s;
	uint64_t key = (uint64_t)(uintptr_t)schema << 2 | (negated ? 2 : 0) | c->is_silent;

	if (!gramctx_work(c->g, 5)) return c->sum_none;
	if (json_is_boolean(schema)) return json_is_true(schema) != negated ? c->sum_any : c->sum_none;
	if (!json_is_object(schema)) {
		gramctx_fail(c->g, ST_INVALID, "a schema is an object, true or false; something else is in the place of one");
		return c->sum_none;
	}
	s = map_get(&c->sums, key);
	if (s && s != &schemaread_busy) return s;
	if (s && c->proving) {
		c->is_unknown = true;
		return c->sum_any;
	}
	if (s || c->depth > GRAMCTX_DEPTH_MAX) {
		schemadoc_fail(&c->doc, s ? ST_INVALID : ST_LIMIT, schema, s ? "the schema refers to itself in a circle" : "schemas are nested too deeply");
		return c->sum_none;
	}
	map_put(&c->sums, key, (void *)&schemaread_busy);
	c->depth++;
	s = schemaread_keywords(c, schema, negated);
	c->depth--;
	if (c->is_unknown) map_remove(&c->sums, key);
	else map_put(&c->sums, key, (void *)s);
	return s;
}
