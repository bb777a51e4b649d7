/* schemasum.c - nodes, and the algebra of sums: see schemac_impl.h. */
#include "frontend/schemac_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SCHEMASUM_SHAPES_MAX 512 /* of one type in one sum */

enum schemasum_emptiness { EMPTINESS_UNKNOWN, EMPTINESS_BUSY, EMPTINESS_EMPTY, EMPTINESS_NOT };

static const struct schemastring any_string = {NULL, 0, GRAM_NO_END};
static const struct schemaarray any_array = {.max = GRAM_NO_END};
static const struct schemaobject any_object = {.max = GRAM_NO_END};

/* ---- nodes ---- */

static int schemasum_compare_demands(const void *a, const void *b)
{
	const struct schemademand *x = a, *y = b;

	if (x->schema != y->schema) return (uintptr_t)x->schema < (uintptr_t)y->schema ? -1 : 1;
	return (int)x->negated - (int)y->negated;
}

static bool schemasum_same_demands(const struct schemademand *a, const struct schemademand *b, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (schemasum_compare_demands(&a[i], &b[i]) != 0) return false;
	return true;
}

struct schemanode *schemasum_node(struct schemac *c, const struct schemademand *demands, size_t n)
{
	struct schemademand *d = gramctx_dup(c->g, demands, n, sizeof(*d));
	struct schemanode *node;
	uint64_t h = n;
	size_t i, k = 0;

	gramctx_work(c->g, 1 + n);
	gramctx_sort(c->g, d, n, sizeof(*d), schemasum_compare_demands);
	for (i = 0; i < n; i++)
		if (k == 0 || schemasum_compare_demands(&d[k - 1], &d[i]) != 0) d[k++] = d[i];
	for (i = 0; i < k; i++) h = XXH3_64bits_withSeed(&d[i].schema, sizeof(d[i].schema), h * 2 + d[i].negated);
	for (; (node = map_get(&c->nodes, h)); h++)
		if (node->n_demands == k && schemasum_same_demands(node->demands, d, k)) return node;
	node = gramctx_array(c->g, struct schemanode, 1);
	node->demands = d;
	node->n_demands = k;
	map_put(&c->nodes, h, node);
	return node;
}

struct schemanode *schemasum_node_of(struct schemac *c, const json_t *schema, bool negated)
{
	schema = schemaread_target(c, schema);
	if (json_is_boolean(schema)) return json_is_true(schema) != negated ? c->any : c->never;
	return schemasum_node(c, &(struct schemademand){schema, negated}, 1);
}

struct schemanode *schemasum_both(struct schemac *c, const struct schemanode *a, const struct schemanode *b)
{
	struct schemademand *d;

	if (a == b || !b->n_demands || a == c->never) return (struct schemanode *)a;
	if (!a->n_demands || b == c->never) return (struct schemanode *)b;
	d = gramctx_array(c->g, struct schemademand, a->n_demands + b->n_demands);
	memcpy(d, a->demands, a->n_demands * sizeof(*d));
	memcpy(d + a->n_demands, b->demands, b->n_demands * sizeof(*d));
	return schemasum_node(c, d, a->n_demands + b->n_demands);
}

/* ---- simple sums ---- */

static struct schemasum *schemasum_new(struct schemac *c)
{
	return gramctx_array(c->g, struct schemasum, 1);
}

const struct schemasum *schemasum_types(struct schemac *c, unsigned types)
{
	struct schemasum *s = schemasum_new(c);

	s->has_null = types & SCHEMATYPE_NULL;
	s->booleans = types & SCHEMATYPE_BOOLEAN ? 3 : 0;
	s->has_all_numbers = types & SCHEMATYPE_NUMBER;
	if (types & SCHEMATYPE_STRING) {
		s->strings = &any_string;
		s->n_strings = 1;
	}
	if (types & SCHEMATYPE_ARRAY) {
		s->arrays = gramctx_array(c->g, const struct schemaarray *, 1);
		s->arrays[0] = &any_array;
		s->n_arrays = 1;
	}
	if (types & SCHEMATYPE_OBJECT) {
		s->objects = gramctx_array(c->g, const struct schemaobject *, 1);
		s->objects[0] = &any_object;
		s->n_objects = 1;
	}
	return s;
}

const struct schemasum *schemasum_only(struct schemac *c, const struct schemasum *sum, unsigned types)
{
	struct schemasum *s = schemasum_new(c);

	*s = *sum;
	if (!(types & SCHEMATYPE_NULL)) s->has_null = false;
	if (!(types & SCHEMATYPE_BOOLEAN)) s->booleans = 0;
	if (!(types & SCHEMATYPE_NUMBER)) {
		s->has_all_numbers = false;
		s->numbers = NULL;
	}
	if (!(types & SCHEMATYPE_STRING)) s->n_strings = 0;
	if (!(types & SCHEMATYPE_ARRAY)) s->n_arrays = 0;
	if (!(types & SCHEMATYPE_OBJECT)) s->n_objects = 0;
	s->inexact &= types;
	return s;
}

const struct schemasum *schemasum_inexact(struct schemac *c, const struct schemasum *sum, unsigned types)
{
	struct schemasum *s = schemasum_new(c);

	*s = *sum;
	s->inexact |= types;
	return s;
}

/* The types of which there are values, or might be. */
static unsigned schemasum_has(const struct schemasum *s)
{
	return s->inexact | (s->has_null ? SCHEMATYPE_NULL : 0) | (s->booleans ? SCHEMATYPE_BOOLEAN : 0) |
	       (s->has_all_numbers || s->numbers ? SCHEMATYPE_NUMBER : 0) | (s->n_strings ? SCHEMATYPE_STRING : 0) |
	       (s->n_arrays ? SCHEMATYPE_ARRAY : 0) | (s->n_objects ? SCHEMATYPE_OBJECT : 0);
}

const struct schemasum *schemasum_string(struct schemac *c, struct schemastring string)
{
	struct schemasum *s = (struct schemasum *)schemasum_types(c, SCHEMATYPE_ALL & ~SCHEMATYPE_STRING);

	if (string.min > string.max || (string.dfa && dfa_is_empty(string.dfa))) return s;
	s->strings = gramctx_dup(c->g, &string, 1, sizeof(string));
	s->n_strings = 1;
	return s;
}

const struct schemasum *schemasum_numbers(struct schemac *c, const struct dfa *numbers)
{
	struct schemasum *s = (struct schemasum *)schemasum_types(c, SCHEMATYPE_ALL & ~SCHEMATYPE_NUMBER);

	s->numbers = dfa_is_empty(numbers) ? NULL : numbers;
	return s;
}

const struct schemasum *schemasum_array(struct schemac *c, const struct schemaarray *a)
{
	struct schemasum *s = (struct schemasum *)schemasum_types(c, SCHEMATYPE_ALL & ~SCHEMATYPE_ARRAY);

	if (a->min > a->max) return s;
	s->arrays = gramctx_array(c->g, const struct schemaarray *, 1);
	s->arrays[0] = gramctx_dup(c->g, a, 1, sizeof(*a));
	s->n_arrays = 1;
	return s;
}

const struct schemasum *schemasum_object(struct schemac *c, const struct schemaobject *o)
{
	struct schemasum *s = (struct schemasum *)schemasum_types(c, SCHEMATYPE_ALL & ~SCHEMATYPE_OBJECT);

	if (o->min > o->max) return s;
	s->objects = gramctx_array(c->g, const struct schemaobject *, 1);
	s->objects[0] = gramctx_dup(c->g, o, 1, sizeof(*o));
	s->n_objects = 1;
	return s;
}

const struct schemasum *schemasum_lost(struct schemac *c, const json_t *at, const char *what, unsigned types)
{
	struct schemasum *s = schemasum_new(c);
	const char *path = schemadoc_path(&c->doc, at);
	size_t n = strlen(path) + strlen(what) + 16;
	char *text = gramctx_alloc(c->g, n, 1);

	strcpy(text, "at ");
	strcat(text, path);
	strcat(text, ": ");
	strcat(text, what);
	s->lost = text;
	s->inexact = (uint8_t)types;
	return s;
}

/* ---- or ---- */

static bool schemasum_is_any_array(const struct schemaarray *a)
{
	return !a->n_layers && !a->n_contains && !a->min && a->max == GRAM_NO_END && !a->unique_at;
}

static bool schemasum_is_any_object(const struct schemaobject *o)
{
	return !o->n_layers && !o->n_required && !o->names && !o->min && o->max == GRAM_NO_END;
}

static bool schemasum_is_any_string(const struct schemastring *s)
{
	return !s->dfa && s->min == 0 && s->max == GRAM_NO_END;
}

static void schemasum_check_size(struct schemac *c, size_t n)
{
	gramctx_work(c->g, 1 + n);
	if (n > SCHEMASUM_SHAPES_MAX)
		gramctx_fail(c->g, ST_LIMIT, "too complicated: combinations of its alternatives give more than %d different ones", SCHEMASUM_SHAPES_MAX);
}

/* Lists of pointers a and b in a row, without those in b that are in a. */
static const void **schemasum_join(struct schemac *c, const void **a, uint32_t n_a, const void **b, uint32_t n_b, uint32_t *n)
{
	const void **out;
	uint32_t i, k;

	if (!n_a || !n_b) {
		*n = n_a + n_b;
		return n_a ? a : b;
	}
	schemasum_check_size(c, (size_t)n_a + n_b);
	out = gramctx_array(c->g, const void *, (size_t)n_a + n_b);
	memcpy(out, a, n_a * sizeof(*out));
	*n = n_a;
	for (i = 0; i < n_b; i++) {
		for (k = 0; k < n_a && a[k] != b[i];) k++;
		if (k == n_a) out[(*n)++] = b[i];
	}
	return out;
}

static void schemasum_or_strings(struct schemac *c, struct schemasum *s, const struct schemasum *a, const struct schemasum *b)
{
	struct schemastring *out;
	uint32_t i;

	schemasum_check_size(c, (size_t)a->n_strings + b->n_strings);
	out = gramctx_array(c->g, struct schemastring, (size_t)a->n_strings + b->n_strings);
	for (i = 0; i < a->n_strings + b->n_strings; i++) {
		const struct schemastring *x = i < a->n_strings ? &a->strings[i] : &b->strings[i - a->n_strings];

		if (schemasum_is_any_string(x)) {
			s->strings = &any_string;
			s->n_strings = 1;
			return;
		}
		out[i] = *x;
	}
	s->strings = out;
	s->n_strings = i;
}

static const struct dfa *schemasum_or_numbers(struct schemac *c, const struct dfa *a, const struct dfa *b)
{
	return a == b || !b ? a : !a ? b : dfa_or(c->g, a, b);
}

const struct schemasum *schemasum_or(struct schemac *c, const struct schemasum *a, const struct schemasum *b)
{
	struct schemasum *s;
	uint32_t i;

	if (a == b || b == c->sum_none || a == c->sum_any) return a;
	if (a == c->sum_none || b == c->sum_any) return b;
	s = schemasum_new(c);
	s->has_null = a->has_null || b->has_null;
	s->booleans = a->booleans | b->booleans;
	s->has_all_numbers = a->has_all_numbers || b->has_all_numbers;
	if (!s->has_all_numbers) s->numbers = schemasum_or_numbers(c, a->numbers, b->numbers);
	schemasum_or_strings(c, s, a, b);
	s->arrays = (const struct schemaarray **)schemasum_join(c, (const void **)a->arrays, a->n_arrays, (const void **)b->arrays, b->n_arrays,
								&s->n_arrays);
	s->objects = (const struct schemaobject **)schemasum_join(c, (const void **)a->objects, a->n_objects, (const void **)b->objects,
								  b->n_objects, &s->n_objects);
	for (i = 0; i < s->n_arrays; i++) {
		if (!schemasum_is_any_array(s->arrays[i])) continue;
		s->arrays = schemasum_types(c, SCHEMATYPE_ARRAY)->arrays;
		s->n_arrays = 1;
	}
	for (i = 0; i < s->n_objects; i++) {
		if (!schemasum_is_any_object(s->objects[i])) continue;
		s->objects = schemasum_types(c, SCHEMATYPE_OBJECT)->objects;
		s->n_objects = 1;
	}
	s->inexact = a->inexact | b->inexact;
	s->lost = a->lost ? a->lost : b->lost;
	return s;
}

/* ---- and ---- */

static struct schemastring schemasum_and_string(struct schemac *c, const struct schemastring *a, const struct schemastring *b)
{
	struct schemastring s = {a->dfa ? a->dfa : b->dfa, max_u32(a->min, b->min), min_u32(a->max, b->max)};

	if (a->dfa && b->dfa && a->dfa != b->dfa) s.dfa = dfa_and(c->g, a->dfa, b->dfa);
	return s;
}

static const struct schemaarray *schemasum_and_array(struct schemac *c, const struct schemaarray *a, const struct schemaarray *b)
{
	struct schemaarray *s;

	if (a == b || schemasum_is_any_array(b)) return a;
	if (schemasum_is_any_array(a)) return b;
	s = gramctx_dup(c->g, a, 1, sizeof(*a));
	s->layers = (const struct schemaitems **)schemasum_join(c, (const void **)a->layers, a->n_layers, (const void **)b->layers, b->n_layers,
								&s->n_layers);
	s->contains = (const struct schemacontains **)schemasum_join(c, (const void **)a->contains, a->n_contains, (const void **)b->contains,
								     b->n_contains, &s->n_contains);
	s->min = max_u32(a->min, b->min);
	s->max = min_u32(a->max, b->max);
	if (!s->unique_at) s->unique_at = b->unique_at;
	if (!s->at) s->at = b->at;
	return s;
}

static void schemasum_and_required(struct schemac *c, struct schemaobject *s, const struct schemaobject *a, const struct schemaobject *b)
{
	struct schemakey *out;
	uint32_t i, k, n = a->n_required;

	if (!b->n_required) return;
	if (!gramctx_work(c->g, 1 + (uint64_t)a->n_required * b->n_required / 4)) return;
	out = gramctx_array(c->g, struct schemakey, (size_t)a->n_required + b->n_required);
	if (n) memcpy(out, a->required, n * sizeof(*out));
	for (i = 0; i < b->n_required; i++) {
		for (k = 0; k < a->n_required; k++)
			if (out[k].len == b->required[i].len && memcmp(out[k].text, b->required[i].text, out[k].len) == 0) break;
		if (k == a->n_required) out[n++] = b->required[i];
	}
	s->required = out;
	s->n_required = n;
}

static const struct schemaobject *schemasum_and_object(struct schemac *c, const struct schemaobject *a, const struct schemaobject *b)
{
	struct schemaobject *s;

	if (a == b || schemasum_is_any_object(b)) return a;
	if (schemasum_is_any_object(a)) return b;
	s = gramctx_dup(c->g, a, 1, sizeof(*a));
	s->layers = (const struct schemamembers **)schemasum_join(c, (const void **)a->layers, a->n_layers, (const void **)b->layers, b->n_layers,
								  &s->n_layers);
	schemasum_and_required(c, s, a, b);
	s->names = !a->names ? b->names : !b->names || a->names == b->names ? a->names : dfa_and(c->g, a->names, b->names);
	s->min = max_u32(a->min, b->min);
	s->max = min_u32(a->max, b->max);
	if (!s->at) s->at = b->at;
	return s;
}

static void schemasum_and_strings(struct schemac *c, struct schemasum *s, const struct schemasum *a, const struct schemasum *b)
{
	struct schemastring *out, both;
	uint32_t i, k;

	s->strings = a->strings;
	s->n_strings = a->n_strings;
	if (b->n_strings == 1 && schemasum_is_any_string(&b->strings[0])) return;
	s->strings = b->strings;
	s->n_strings = b->n_strings;
	if (a->n_strings == 1 && schemasum_is_any_string(&a->strings[0])) return;
	schemasum_check_size(c, (size_t)a->n_strings * b->n_strings);
	out = gramctx_array(c->g, struct schemastring, (size_t)a->n_strings * b->n_strings);
	s->strings = out;
	s->n_strings = 0;
	for (i = 0; i < a->n_strings; i++) {
		for (k = 0; k < b->n_strings && gramctx_is_ok(c->g); k++) {
			both = schemasum_and_string(c, &a->strings[i], &b->strings[k]);
			if (both.min <= both.max && (!both.dfa || !dfa_is_empty(both.dfa))) out[s->n_strings++] = both;
		}
	}
}

static void schemasum_and_arrays(struct schemac *c, struct schemasum *s, const struct schemasum *a, const struct schemasum *b)
{
	uint32_t i, k;

	schemasum_check_size(c, (size_t)a->n_arrays * b->n_arrays);
	s->arrays = gramctx_array(c->g, const struct schemaarray *, (size_t)a->n_arrays * b->n_arrays);
	for (i = 0; i < a->n_arrays; i++) {
		for (k = 0; k < b->n_arrays && gramctx_is_ok(c->g); k++) {
			const struct schemaarray *both = schemasum_and_array(c, a->arrays[i], b->arrays[k]);

			if (both->min <= both->max) s->arrays[s->n_arrays++] = both;
		}
	}
}

static void schemasum_and_objects(struct schemac *c, struct schemasum *s, const struct schemasum *a, const struct schemasum *b)
{
	uint32_t i, k;

	schemasum_check_size(c, (size_t)a->n_objects * b->n_objects);
	s->objects = gramctx_array(c->g, const struct schemaobject *, (size_t)a->n_objects * b->n_objects);
	for (i = 0; i < a->n_objects; i++) {
		for (k = 0; k < b->n_objects && gramctx_is_ok(c->g); k++) {
			const struct schemaobject *both = schemasum_and_object(c, a->objects[i], b->objects[k]);

			if (both->min <= both->max) s->objects[s->n_objects++] = both;
		}
	}
}

const struct schemasum *schemasum_and(struct schemac *c, const struct schemasum *a, const struct schemasum *b)
{
	struct schemasum *s;

	if (!gramctx_is_ok(c->g) || a == b || b == c->sum_any) return a;
	if (a == c->sum_any) return b;
	s = schemasum_new(c);
	s->has_null = a->has_null && b->has_null;
	s->booleans = a->booleans & b->booleans;
	s->has_all_numbers = a->has_all_numbers && b->has_all_numbers;
	if (a->has_all_numbers) s->numbers = b->numbers;
	else if (b->has_all_numbers) s->numbers = a->numbers;
	else if (a->numbers && b->numbers) s->numbers = a->numbers == b->numbers ? a->numbers : dfa_and(c->g, a->numbers, b->numbers);
	if (s->numbers && dfa_is_empty(s->numbers)) s->numbers = NULL;
	schemasum_and_strings(c, s, a, b);
	schemasum_and_arrays(c, s, a, b);
	schemasum_and_objects(c, s, a, b);
	s->inexact = (uint8_t)((a->inexact & schemasum_has(b)) | (b->inexact & schemasum_has(a)));
	s->lost = a->lost ? a->lost : b->lost;
	return s;
}

/* ---- of nodes ---- */

void schemasum_init(struct schemac *c)
{
	c->sum_none = schemasum_types(c, 0);
	c->sum_any = schemasum_types(c, SCHEMATYPE_ALL);
	c->any = schemasum_node(c, NULL, 0);
	c->any->sum = c->sum_any;
	c->never = schemasum_node(c, &(struct schemademand){json_false(), false}, 1);
	c->never->sum = c->sum_none;
}

const struct schemasum *schemasum_of(struct schemac *c, struct schemanode *n)
{
	const struct schemasum *s = c->sum_any;
	bool was_silent = c->is_silent;
	size_t i;

	if (n->sum) return n->sum;
	c->is_silent = false;
	for (i = 0; i < n->n_demands && gramctx_is_ok(c->g); i++)
		s = schemasum_and(c, s, schemaread(c, n->demands[i].schema, n->demands[i].negated));
	c->is_silent = was_silent;
	if (!c->is_unknown) n->sum = s;
	return s;
}

const struct dfa *schemasum_string_dfa(struct schemac *c, const struct schemastring *s)
{
	uint32_t shortest, longest;

	if (!s->dfa) return dfa_lengths(c->g, s->min, s->max);
	if (dfa_is_empty(s->dfa)) return s->dfa;
	dfa_span(c->g, s->dfa, &shortest, &longest);
	if (shortest >= s->min && longest <= s->max) return s->dfa;
	if (shortest > s->max || longest < s->min) return dfa_none(c->g);
	return dfa_and(c->g, s->dfa, dfa_lengths(c->g, s->min, longest <= s->max ? GRAM_NO_END : s->max));
}

static bool schemasum_array_is_empty(struct schemac *c, const struct schemaarray *a)
{
	struct schemanode *n;
	uint32_t i, k;

	for (i = 0; i < a->min && i < 64; i++) {
		for (n = c->any, k = 0; k < a->n_layers; k++)
			n = schemasum_both(c, n, i < a->layers[k]->n_prefix ? a->layers[k]->prefix[i] : a->layers[k]->rest);
		if (schemasum_is_empty(c, n)) return true;
	}
	return a->min > a->max;
}

/* What the layers say of a key when only the narrow reading of their patterns counts: fewer demands than there are. */
static struct schemanode *schemasum_member(struct schemac *c, const struct schemaobject *o, struct schemakey key)
{
	struct schemanode *n = c->any;
	uint32_t i, k;

	for (i = 0; i < o->n_layers; i++) {
		const struct schemamembers *m = o->layers[i];
		bool found = false;

		gramctx_work(c->g, 1 + m->n_properties / 8);
		for (k = 0; k < m->n_properties; k++) {
			const struct schemaproperty *p = &m->properties[k];

			if (p->key.len != key.len || memcmp(p->key.text, key.text, key.len) != 0) continue;
			n = schemasum_both(c, n, p->node);
			found = true;
		}
		for (k = 0; k < m->n_patterns; k++) {
			if (dfa_accepts(m->patterns[k].narrow, key.text, key.len)) n = schemasum_both(c, n, m->patterns[k].node);
			found = found || dfa_accepts(m->patterns[k].wide, key.text, key.len);
		}
		if (!found) n = schemasum_both(c, n, m->rest);
	}
	return n;
}

bool schemasum_object_is_empty(struct schemac *c, const struct schemaobject *o)
{
	uint32_t i;

	if (o->min > o->max || o->n_required > o->max) return true;
	for (i = 0; i < o->n_required; i++) {
		if (schemasum_is_empty(c, schemasum_member(c, o, o->required[i]))) return true;
	}
	return false;
}

/* A node that is being looked at further up counts as one with values, so "empty" is always proved. */
bool schemasum_is_empty(struct schemac *c, struct schemanode *n)
{
	const struct schemasum *s;
	bool empty = true;
	uint32_t i;

	if (n->emptiness == EMPTINESS_EMPTY) return true;
	if (n->emptiness != EMPTINESS_UNKNOWN || c->depth > GRAMCTX_DEPTH_MAX / 2 || !gramctx_is_ok(c->g)) return false;
	n->emptiness = EMPTINESS_BUSY;
	c->depth++;
	c->proving++;
	s = schemasum_of(c, n);
	if (c->is_unknown) { /* not proved; another time, from elsewhere, it may be */
		c->is_unknown = false;
		c->depth--;
		c->proving--;
		n->emptiness = EMPTINESS_UNKNOWN;
		return false;
	}
	if (s->has_null || s->booleans || s->has_all_numbers || s->numbers || s->inexact) empty = false;
	for (i = 0; i < s->n_strings && empty; i++)
		empty = s->strings[i].dfa && dfa_is_empty(schemasum_string_dfa(c, &s->strings[i]));
	for (i = 0; i < s->n_arrays && empty; i++) empty = schemasum_array_is_empty(c, s->arrays[i]);
	for (i = 0; i < s->n_objects && empty; i++) empty = schemasum_object_is_empty(c, s->objects[i]);
	c->depth--;
	c->proving--;
	n->emptiness = empty && gramctx_is_ok(c->g) ? EMPTINESS_EMPTY : EMPTINESS_NOT;
	return n->emptiness == EMPTINESS_EMPTY;
}
