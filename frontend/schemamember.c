/* schemamember.c - a demand to a sum: the keywords of arrays and objects, and what is unevaluated. See schemac_impl.h. */
#include "frontend/schemac_impl.h"

#include "common/quote.h"

#include <string.h>

/* ---- arrays ---- */

static const struct schemasum *schemamember_one_array(struct schemac *c, struct schemaarray a)
{
	return schemasum_only(c, schemasum_array(c, &a), SCHEMATYPE_ARRAY);
}

static struct schemaarray schemamember_layer(struct schemac *c, const struct schemaitems *layer, uint32_t min)
{
	return (struct schemaarray){.layers = gramctx_dup(c->g, &layer, 1, sizeof(layer)), .n_layers = 1, .min = min, .max = GRAM_NO_END};
}

/* Which keywords hold the items' schemas: *prefix a list or NULL, *rest a schema or NULL. */
static void schemamember_items(struct schemac *c, const json_t *schema, const json_t **prefix, const json_t **rest)
{
	const json_t *items = json_object_get(schema, "items");
	bool is_2020 = c->doc.draft >= SCHEMADOC_2020;

	*prefix = is_2020 ? json_object_get(schema, "prefixItems") : NULL;
	*rest = items;
	if (json_is_array(items)) {
		if (is_2020 && c->doc.is_declared) schemadoc_fail(&c->doc, ST_INVALID, schema, "`items` is a list; draft 2020-12 has `prefixItems` for that");
		*prefix = items;
		*rest = json_object_get(schema, "additionalItems");
	}
	if (*prefix && !json_is_array(*prefix)) {
		schemadoc_fail(&c->doc, ST_INVALID, schema, "`prefixItems` is not a list of schemas");
		*prefix = NULL;
	}
}

static struct schemaitems *schemamember_items_layer(struct schemac *c, const json_t *prefix, const json_t *rest)
{
	struct schemaitems *layer = gramctx_array(c->g, struct schemaitems, 1);
	uint32_t n = (uint32_t)json_array_size(prefix), i;

	gramctx_work(c->g, n);
	layer->prefix = gramctx_array(c->g, struct schemanode *, n);
	for (i = 0; i < n; i++) layer->prefix[i] = schemasum_node_of(c, json_array_get(prefix, i), false);
	layer->n_prefix = n;
	layer->rest = rest ? schemasum_node_of(c, rest, false) : c->any;
	layer->says_rest = rest != NULL;
	layer->is_silent = c->is_silent;
	return layer;
}

/* "contains" with its counts; false: not there, or says nothing. */
static bool schemamember_contains(struct schemac *c, const json_t *schema, struct schemacontains *out)
{
	const json_t *contains = json_object_get(schema, "contains");

	if (!contains || c->doc.draft < SCHEMADOC_6) return false;
	*out = (struct schemacontains){schemasum_node_of(c, contains, false), 1, GRAM_NO_END};
	if (schemadoc_is_2019(&c->doc)) {
		schemavalue_count(c, schema, "minContains", &out->min);
		schemavalue_count(c, schema, "maxContains", &out->max);
	}
	return out->min > 0 || out->max != GRAM_NO_END;
}

static const struct schemasum *schemamember_with_contains(struct schemac *c, struct schemacontains contains)
{
	const struct schemacontains *one = gramctx_dup(c->g, &contains, 1, sizeof(contains));

	if (contains.min > contains.max) return c->sum_none;
	return schemamember_one_array(c, (struct schemaarray){.contains = gramctx_dup(c->g, &one, 1, sizeof(one)), .n_contains = 1, .max = GRAM_NO_END});
}

static const struct schemasum *schemamember_not_contains(struct schemac *c, const json_t *schema)
{
	const struct schemasum *s = c->sum_none;
	struct schemacontains all;
	struct schemaitems *layer;

	if (!schemamember_contains(c, schema, &all)) return s;
	if (all.min == 1) {
		layer = schemamember_items_layer(c, NULL, NULL);
		layer->rest = schemasum_node_of(c, json_object_get(schema, "contains"), true);
		layer->is_silent = true;
		s = schemamember_one_array(c, schemamember_layer(c, layer, 0));
	} else if (all.min > 1) {
		s = schemamember_with_contains(c, (struct schemacontains){all.node, 0, all.min - 1});
	}
	if (all.max == GRAM_NO_END) return s;
	return schemasum_or(c, s, schemamember_with_contains(c, (struct schemacontains){all.node, all.max + 1, GRAM_NO_END}));
}

/* An item at a place of the prefix, or one behind it, is not valid. */
static const struct schemasum *schemamember_not_items(struct schemac *c, const json_t *schema)
{
	const json_t *prefix, *rest;
	const struct schemasum *s = c->sum_none;
	uint32_t n, i, k;

	schemamember_items(c, schema, &prefix, &rest);
	n = (uint32_t)json_array_size(prefix);
	for (i = 0; i < n && gramctx_work(c->g, 1 + i); i++) {
		struct schemaitems *layer = gramctx_array(c->g, struct schemaitems, 1);

		layer->prefix = gramctx_array(c->g, struct schemanode *, i + 1);
		for (k = 0; k < i; k++) layer->prefix[k] = c->any;
		layer->prefix[i] = schemasum_node_of(c, json_array_get(prefix, i), true);
		layer->n_prefix = i + 1;
		layer->rest = c->any;
		layer->is_silent = true;
		if (layer->prefix[i] != c->never) s = schemasum_or(c, s, schemamember_one_array(c, schemamember_layer(c, layer, i + 1)));
	}
	if (!rest) return s;
	if (schemasum_node_of(c, rest, true) == c->any) /* "items": false */
		return schemasum_or(c, s, schemamember_one_array(c, (struct schemaarray){.min = n + 1, .max = GRAM_NO_END}));
	if (schemasum_node_of(c, rest, true) == c->never) return s;
	if (n) return schemasum_or(c, s, schemasum_lost(c, schema, "`items` behind a list of items is not supported within `not`", SCHEMATYPE_ARRAY));
	return schemasum_or(c, s, schemamember_with_contains(c, (struct schemacontains){schemasum_node_of(c, rest, true), 1, GRAM_NO_END}));
}

static const struct schemasum *schemamember_not_array(struct schemac *c, const json_t *schema)
{
	const struct schemasum *s = schemasum_or(c, schemamember_not_items(c, schema), schemamember_not_contains(c, schema));
	uint32_t n;

	if (schemavalue_count(c, schema, "minItems", &n) && n) s = schemasum_or(c, s, schemamember_one_array(c, (struct schemaarray){.max = n - 1}));
	if (schemavalue_count(c, schema, "maxItems", &n))
		s = schemasum_or(c, s, schemamember_one_array(c, (struct schemaarray){.min = n + 1, .max = GRAM_NO_END}));
	if (json_is_true(json_object_get(schema, "uniqueItems")))
		s = schemasum_or(c, s, schemasum_lost(c, schema, "`uniqueItems` is not supported within `not`", SCHEMATYPE_ARRAY));
	return s;
}

const struct schemasum *schemamember_read_arrays(struct schemac *c, const json_t *schema, bool negated)
{
	struct schemaarray a = {.max = GRAM_NO_END, .at = schema};
	struct schemacontains contains;
	const struct schemasum *s;
	const struct schemaitems *layer;
	const json_t *prefix, *rest;

	if (negated) return schemamember_not_array(c, schema);
	schemamember_items(c, schema, &prefix, &rest);
	if (prefix || rest) {
		layer = schemamember_items_layer(c, prefix, rest);
		a.layers = gramctx_dup(c->g, &layer, 1, sizeof(layer));
		a.n_layers = 1;
	}
	schemavalue_count(c, schema, "minItems", &a.min);
	schemavalue_count(c, schema, "maxItems", &a.max);
	if (json_is_true(json_object_get(schema, "uniqueItems"))) a.unique_at = schema;
	s = a.n_layers || a.min || a.max != GRAM_NO_END || a.unique_at ? schemasum_array(c, &a) : c->sum_any;
	if (!schemamember_contains(c, schema, &contains)) return s;
	return schemasum_and(c, s, schemasum_or(c, schemamember_with_contains(c, contains), schemasum_types(c, SCHEMATYPE_ALL & ~SCHEMATYPE_ARRAY)));
}

/* ---- objects ---- */

static const struct schemasum *schemamember_one_object(struct schemac *c, struct schemaobject o)
{
	return schemasum_only(c, schemasum_object(c, &o), SCHEMATYPE_OBJECT);
}

/* Objects with the key and a value of the node there; with never: without the key. */
static const struct schemasum *schemamember_with_key(struct schemac *c, struct schemakey key, struct schemanode *node)
{
	struct schemamembers *layer = gramctx_array(c->g, struct schemamembers, 1);
	struct schemaobject o = {.n_layers = 1, .max = GRAM_NO_END};

	layer->properties = gramctx_array(c->g, struct schemaproperty, 1);
	layer->properties[0] = (struct schemaproperty){key, node};
	layer->n_properties = 1;
	layer->rest = c->any;
	layer->is_silent = true;
	o.layers = gramctx_dup(c->g, &layer, 1, sizeof(*o.layers));
	if (node != c->never) {
		o.required = gramctx_dup(c->g, &key, 1, sizeof(key));
		o.n_required = 1;
	}
	return schemamember_one_object(c, o);
}

/* The keyword's object; NULL: not there, or g has failed. */
static const json_t *schemamember_map(struct schemac *c, const json_t *schema, const char *keyword)
{
	const json_t *map = json_object_get(schema, keyword);

	if (map && !json_is_object(map)) schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not an object", keyword);
	return json_is_object(map) ? map : NULL;
}

static struct schemamembers *schemamember_members(struct schemac *c, const json_t *schema)
{
	const json_t *properties = schemamember_map(c, schema, "properties"), *patterns = schemamember_map(c, schema, "patternProperties");
	const json_t *rest = json_object_get(schema, "additionalProperties");
	struct schemamembers *m = gramctx_array(c->g, struct schemamembers, 1);
	const char *key;
	json_t *value;
	size_t len;

	m->properties = gramctx_array(c->g, struct schemaproperty, json_object_size(properties));
	json_object_keylen_foreach((json_t *)properties, key, len, value) {
		gramctx_work(c->g, 2);
		m->properties[m->n_properties++] = (struct schemaproperty){{key, len}, schemasum_node_of(c, value, false)};
	}
	m->patterns = gramctx_array(c->g, struct schemapattern, json_object_size(patterns));
	json_object_keylen_foreach((json_t *)patterns, key, len, value) {
		struct schemapattern *p = &m->patterns[m->n_patterns++];

		p->source = (struct schemakey){key, len};
		p->narrow = schemavalue_pattern(c, schema, "patternProperties", key, len, false);
		p->wide = schemavalue_pattern(c, schema, "patternProperties", key, len, true);
		p->node = schemasum_node_of(c, value, false);
	}
	m->rest = rest ? schemasum_node_of(c, rest, false) : c->any;
	m->says_rest = rest != NULL;
	m->is_silent = c->is_silent;
	return m;
}

static const struct schemakey *schemamember_strings(struct schemac *c, const json_t *schema, const char *keyword, const json_t *list, uint32_t *n)
{
	struct schemakey *keys = gramctx_array(c->g, struct schemakey, json_array_size(list));
	const json_t *item;
	size_t i;

	*n = 0;
	if (!json_is_array(list)) schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` is not a list of names", keyword);
	json_array_foreach((json_t *)list, i, item) {
		gramctx_work(c->g, 1);
		if (json_is_string(item)) keys[(*n)++] = (struct schemakey){json_string_value(item), json_string_length(item)};
		else schemadoc_fail(&c->doc, ST_INVALID, schema, "`%s` has something else than a name in it", keyword);
	}
	return keys;
}

/* "required", or in draft 3 the members that say so of themselves. */
static const struct schemakey *schemamember_required(struct schemac *c, const json_t *schema, uint32_t *n)
{
	const json_t *required = json_object_get(schema, "required"), *properties = json_object_get(schema, "properties");
	struct schemakey *keys;
	const char *key;
	json_t *value;
	size_t len;

	*n = 0;
	if (c->doc.draft > SCHEMADOC_3) return required ? schemamember_strings(c, schema, "required", required, n) : NULL;
	keys = gramctx_array(c->g, struct schemakey, json_object_size(properties));
	json_object_keylen_foreach((json_t *)properties, key, len, value) {
		if (json_is_true(json_object_get(value, "required"))) keys[(*n)++] = (struct schemakey){key, len};
	}
	return keys;
}

/* The names that are valid for a schema. */
static const struct dfa *schemamember_names(struct schemac *c, const json_t *names)
{
	const struct schemasum *s = schemasum_of(c, schemasum_node_of(c, names, false));
	const struct dfa *a = dfa_none(c->g);
	uint32_t i;

	for (i = 0; i < s->n_strings && gramctx_is_ok(c->g); i++) {
		if (!s->strings[i].dfa && !s->strings[i].min && s->strings[i].max == GRAM_NO_END) return NULL;
		a = dfa_or(c->g, a, schemasum_string_dfa(c, &s->strings[i]));
	}
	return a;
}

/* A member that is not valid. */
static const struct schemasum *schemamember_not_members(struct schemac *c, const json_t *schema)
{
	const json_t *properties = schemamember_map(c, schema, "properties"), *rest = json_object_get(schema, "additionalProperties");
	const json_t *names = json_object_get(schema, "propertyNames"), *patterns = schemamember_map(c, schema, "patternProperties");
	const struct schemasum *s = c->sum_none;
	struct schemanode *node;
	const char *key;
	json_t *value;
	size_t len;

	json_object_keylen_foreach((json_t *)properties, key, len, value) {
		node = schemasum_node_of(c, value, true);
		if (node != c->never) s = schemasum_or(c, s, schemamember_with_key(c, (struct schemakey){key, len}, node));
	}
	if (json_object_size(patterns))
		s = schemasum_or(c, s, schemasum_lost(c, schema, "`patternProperties` is not supported within `not`", SCHEMATYPE_OBJECT));
	if (rest && schemasum_node_of(c, rest, true) == c->any && !json_object_size(properties) && !json_object_size(patterns))
		s = schemasum_or(c, s, schemamember_one_object(c, (struct schemaobject){.min = 1, .max = GRAM_NO_END}));
	else if (rest && schemasum_node_of(c, rest, true) != c->never)
		s = schemasum_or(c, s, schemasum_lost(c, schema, "`additionalProperties` is not supported within `not`", SCHEMATYPE_OBJECT));
	if (names && c->doc.draft >= SCHEMADOC_6 && json_is_false(names))
		s = schemasum_or(c, s, schemamember_one_object(c, (struct schemaobject){.min = 1, .max = GRAM_NO_END}));
	else if (names && c->doc.draft >= SCHEMADOC_6 && !json_is_true(names))
		s = schemasum_or(c, s, schemasum_lost(c, schema, "`propertyNames` is not supported within `not`", SCHEMATYPE_OBJECT));
	return s;
}

static const struct schemasum *schemamember_not_object(struct schemac *c, const json_t *schema)
{
	const struct schemasum *s = schemamember_not_members(c, schema);
	const struct schemakey *required;
	uint32_t n, i;

	required = schemamember_required(c, schema, &n);
	for (i = 0; i < n; i++) s = schemasum_or(c, s, schemamember_with_key(c, required[i], c->never));
	if (schemavalue_count(c, schema, "minProperties", &n) && n)
		s = schemasum_or(c, s, schemamember_one_object(c, (struct schemaobject){.max = n - 1}));
	if (schemavalue_count(c, schema, "maxProperties", &n))
		s = schemasum_or(c, s, schemamember_one_object(c, (struct schemaobject){.min = n + 1, .max = GRAM_NO_END}));
	return s;
}

const struct schemasum *schemamember_read_objects(struct schemac *c, const json_t *schema, bool negated)
{
	struct schemaobject o = {.max = GRAM_NO_END, .at = schema};
	const json_t *names = json_object_get(schema, "propertyNames");
	const struct schemamembers *m;
	const struct schemasum *s;

	if (negated) return schemamember_not_object(c, schema);
	m = schemamember_members(c, schema);
	if (m->n_properties || m->n_patterns || m->says_rest) {
		o.layers = gramctx_dup(c->g, &m, 1, sizeof(m));
		o.n_layers = 1;
	}
	o.required = schemamember_required(c, schema, &o.n_required);
	if (names && c->doc.draft >= SCHEMADOC_6) o.names = schemamember_names(c, names);
	schemavalue_count(c, schema, "minProperties", &o.min);
	schemavalue_count(c, schema, "maxProperties", &o.max);
	if (!o.n_layers && !o.n_required && !o.names && !o.min && o.max == GRAM_NO_END) return c->sum_any;
	s = schemasum_object(c, &o);
	return o.names || m->n_patterns ? schemasum_inexact(c, s, SCHEMATYPE_OBJECT) : s;
}

/* ---- dependencies ---- */

/* When the key is there, so are the others (or the whole meets a schema). */
static const struct schemasum *schemamember_dependency(struct schemac *c, const json_t *schema, const char *keyword, struct schemakey key,
						       const json_t *value, bool negated)
{
	const unsigned others = SCHEMATYPE_ALL & ~SCHEMATYPE_OBJECT;
	const struct schemasum *there = schemamember_with_key(c, key, c->any), *s = c->sum_none;
	const struct schemakey *needs;
	uint32_t n = 1, i;

	if (json_is_array(value) || json_is_string(value)) {
		needs = json_is_array(value) ? schemamember_strings(c, schema, keyword, value, &n)
					     : gramctx_dup(c->g, &(struct schemakey){json_string_value(value), json_string_length(value)}, 1,
							   sizeof(*needs));
		if (negated) {
			for (i = 0; i < n; i++) s = schemasum_or(c, s, schemasum_and(c, there, schemamember_with_key(c, needs[i], c->never)));
			return s;
		}
		for (i = 0; i < n; i++) there = schemasum_and(c, there, schemamember_with_key(c, needs[i], c->any));
	} else {
		there = schemasum_and(c, there, schemaread(c, value, negated));
		if (negated) return there;
	}
	s = schemasum_or(c, schemamember_with_key(c, key, c->never), there);
	return schemasum_or(c, schemasum_types(c, others), s);
}

const struct schemasum *schemamember_read_dependencies(struct schemac *c, const json_t *schema, bool negated)
{
	static const char *const keywords[] = {"dependencies", "dependentRequired", "dependentSchemas"};
	const struct schemasum *s = negated ? c->sum_none : c->sum_any, *one;
	const char *key;
	json_t *value;
	size_t i, len;

	for (i = 0; i < ARRAY_LEN(keywords); i++) {
		const json_t *map = schemamember_map(c, schema, keywords[i]);

		/* The first one was split into the others; whoever still writes it means it. */
		if (i == 0 && negated && c->doc.draft >= SCHEMADOC_2019) continue;
		if (i > 0 && c->doc.draft < SCHEMADOC_2019) continue;
		json_object_keylen_foreach((json_t *)map, key, len, value) {
			one = schemamember_dependency(c, schema, keywords[i], (struct schemakey){key, len}, value, negated);
			s = negated ? schemasum_or(c, s, one) : schemasum_and(c, s, one);
		}
	}
	return s;
}

/* ---- unevaluated ---- */

static const struct schemaarray *schemamember_unevaluated_items(struct schemac *c, const struct schemaarray *a, struct schemanode *rest)
{
	struct schemaitems *layer = gramctx_array(c->g, struct schemaitems, 1);
	struct schemaarray *with = gramctx_dup(c->g, a, 1, sizeof(*a));
	uint32_t i;

	for (i = 0; i < a->n_layers; i++) {
		if (a->layers[i]->is_silent) continue;
		if (a->layers[i]->says_rest) return a;
		layer->n_prefix = max_u32(layer->n_prefix, a->layers[i]->n_prefix);
	}
	layer->prefix = gramctx_array(c->g, struct schemanode *, layer->n_prefix);
	for (i = 0; i < layer->n_prefix; i++) layer->prefix[i] = c->any;
	layer->rest = rest;
	layer->says_rest = true;
	layer->is_silent = c->is_silent;
	with->layers = gramctx_array(c->g, const struct schemaitems *, a->n_layers + 1);
	if (a->n_layers) memcpy(with->layers, a->layers, a->n_layers * sizeof(*a->layers));
	with->layers[with->n_layers++] = layer;
	return with;
}

static const struct schemaobject *schemamember_unevaluated_members(struct schemac *c, const struct schemaobject *o, struct schemanode *rest)
{
	struct schemamembers *layer = gramctx_array(c->g, struct schemamembers, 1);
	struct schemaobject *with = gramctx_dup(c->g, o, 1, sizeof(*o));
	uint32_t i, k, n = 0, n_patterns = 0;

	for (i = 0; i < o->n_layers; i++) {
		if (o->layers[i]->is_silent) continue;
		if (o->layers[i]->says_rest) return o;
		n += o->layers[i]->n_properties;
		n_patterns += o->layers[i]->n_patterns;
	}
	gramctx_work(c->g, n);
	layer->properties = gramctx_array(c->g, struct schemaproperty, n);
	layer->patterns = gramctx_array(c->g, struct schemapattern, n_patterns);
	for (i = 0; i < o->n_layers; i++) {
		const struct schemamembers *m = o->layers[i];

		if (m->is_silent) continue;
		for (k = 0; k < m->n_properties; k++) layer->properties[layer->n_properties++] = (struct schemaproperty){m->properties[k].key, c->any};
		for (k = 0; k < m->n_patterns; k++) {
			layer->patterns[layer->n_patterns] = m->patterns[k];
			layer->patterns[layer->n_patterns++].node = c->any;
		}
	}
	layer->rest = rest;
	layer->says_rest = true;
	layer->is_silent = c->is_silent;
	with->layers = gramctx_array(c->g, const struct schemamembers *, o->n_layers + 1);
	if (o->n_layers) memcpy(with->layers, o->layers, o->n_layers * sizeof(*o->layers));
	with->layers[with->n_layers++] = layer;
	return with;
}

/* A value may be valid for more branches than the one that its shape comes from; then more of it would be evaluated. So the sum is a
 * part of what is valid. */
const struct schemasum *schemamember_unevaluated(struct schemac *c, const json_t *schema, const struct schemasum *sum)
{
	const json_t *items = json_object_get(schema, "unevaluatedItems"), *members = json_object_get(schema, "unevaluatedProperties");
	struct schemasum *s = gramctx_dup(c->g, sum, 1, sizeof(*sum));
	uint32_t i;

	if (!schemadoc_is_2019(&c->doc)) return sum;
	if (items) {
		s->arrays = gramctx_dup(c->g, sum->arrays, sum->n_arrays, sizeof(*sum->arrays));
		for (i = 0; i < s->n_arrays; i++) s->arrays[i] = schemamember_unevaluated_items(c, s->arrays[i], schemasum_node_of(c, items, false));
		s->inexact |= SCHEMATYPE_ARRAY;
	}
	if (members) {
		s->objects = gramctx_dup(c->g, sum->objects, sum->n_objects, sizeof(*sum->objects));
		for (i = 0; i < s->n_objects; i++)
			s->objects[i] = schemamember_unevaluated_members(c, s->objects[i], schemasum_node_of(c, members, false));
		s->inexact |= SCHEMATYPE_OBJECT;
	}
	return s;
}
