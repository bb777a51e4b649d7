/* jinja_value.c - the making of values: from JSON, sub-strings, generators, and the insertion-ordered dict.
 *
 * A dict is a plain array while it has at most DICT_LINEAR entries, then it gets an index by hash. Keys come from clients,
 * so collisions can be made on purpose: every probe costs a step. */
#include "frontend/jinja_filters.h"
#include "common/jsonbig.h"

#include <math.h>

#define DICT_LINEAR 8

bool jv_is(struct jv s, const char *text)
{
	size_t n = strlen(text);

	return s.kind == JV_STR && s.s.len == n && memcmp(s.s.p, text, n) == 0;
}

bool jv_has_input(struct jv v)
{
	if (v.kind == JV_STR && v.s.origin) return v.s.len && memchr(v.s.origin, 1, v.s.len) != NULL;
	return v.input;
}

struct jv jv_sub(struct jv s, size_t from, size_t len)
{
	s.s.p += from;
	s.s.len = len;
	if (s.s.origin) s.s.origin += from;
	return s;
}

struct jv jv_generator(struct jrun *r, const struct jv *items, size_t n, bool input)
{
	struct jgen *g = run_alloc(r, 1, sizeof(*g));

	if (!g) return jv_none();
	*g = (struct jgen){items, n, 0};
	return (struct jv){.kind = JV_GENERATOR, .input = input, .gen = g};
}

/* A text, or an integer that JSON's reader could not hold. */
static struct jv from_string(struct jrun *r, struct jv s)
{
	struct jv v = jv_int(0);

	if (s.s.len <= JSONBIG_MARK_LEN || memcmp(s.s.p, JSONBIG_MARK, JSONBIG_MARK_LEN) != 0) return s;
	if (jfilter_parse_int(jv_sub(s, JSONBIG_MARK_LEN, s.s.len - JSONBIG_MARK_LEN), 10, &v.i)) return v;
	return run_fail(r, ST_LIMIT, "an integer in the request has too many digits");
}

static struct jv from_array(struct jrun *r, json_t *json, bool input)
{
	size_t n = json_array_size(json), i;
	struct jv *items = run_alloc(r, n, sizeof(*items));

	for (i = 0; items && i < n && !r->rc; i++) items[i] = jv_from_json(r, json_array_get(json, i), input);
	return jv_list(JV_LIST, items, items ? n : 0, input);
}

static struct jv from_object(struct jrun *r, json_t *json, bool input)
{
	struct jdict *d = jdict_new(r);
	const char *key;
	json_t *value;

	json_object_foreach(json, key, value)
		if (!jdict_put(r, d, jv_view(key, strlen(key), input), jv_from_json(r, value, input))) break;
	return jv_dict(d, input);
}

struct jv jv_from_json(struct jrun *r, json_t *json, bool input)
{
	struct jv v = jv_none();

	if (!run_step(r)) return v;
	switch (json_typeof(json)) {
	case JSON_OBJECT:
	case JSON_ARRAY:
		if (run_enter(r)) v = json_is_array(json) ? from_array(r, json, input) : from_object(r, json, input);
		run_leave(r);
		break;
	case JSON_STRING:
		v = from_string(r, jv_view(json_string_value(json), json_string_length(json), input));
		break;
	case JSON_INTEGER:
		v = jv_int(json_integer_value(json));
		break;
	case JSON_REAL:
		v = jv_float(json_real_value(json));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		v = jv_bool(json_is_true(json));
		break;
	case JSON_NULL:
		break;
	}
	v.input = input;
	return v;
}

/* ---- dicts ---- */

struct jv jv_dict(struct jdict *d, bool input)
{
	static struct jdict empty; /* stands in after a failure; never written */

	return (struct jv){.kind = JV_DICT, .input = input, .dict = d ? d : &empty};
}

struct jdict *jdict_new(struct jrun *r)
{
	return run_alloc(r, 1, sizeof(struct jdict));
}

static bool hash_value(struct jrun *r, struct jv v, uint64_t *h)
{
	uint64_t item, n;
	size_t i;

	switch (v.kind) {
	case JV_RANGE:
		*h = v.range.n;
		return true;
	case JV_UNDEFINED:
	case JV_NONE:
		*h = 0x9e3779b97f4a7c15ull;
		return true;
	case JV_FLOAT:
		if (v.f != floor(v.f) || fabs(v.f) > 1e18) {
			memcpy(&n, &v.f, sizeof(n));
			*h = n * 0x9e3779b97f4a7c15ull;
			return true;
		}
		v = jv_int((jint)v.f); /* 1.0 and 1 are the same key */
		/* fall through */
	case JV_BOOL:
	case JV_INT:
		*h = (uint64_t)jv_as_int(v) * 0x9e3779b97f4a7c15ull;
		return true;
	case JV_STR:
		run_work(r, v.s.len);
		*h = 0xcbf29ce484222325ull;
		for (i = 0; i < v.s.len; i++) *h = (*h ^ (unsigned char)v.s.p[i]) * 0x100000001b3ull;
		return true;
	case JV_TUPLE:
		*h = v.list.n;
		if (!run_enter(r)) {
			run_leave(r);
			return false;
		}
		for (i = 0; i < v.list.n && run_step(r); i++) {
			if (!hash_value(r, v.list.items[i], &item)) break;
			*h = (*h ^ item) * 0x100000001b3ull;
		}
		run_leave(r);
		return i == v.list.n;
	default:
		run_error(r, "unhashable type: '%s'", jv_type_name(v));
		return false;
	}
}

static bool key_equal(struct jrun *r, const struct jentry *e, struct jv key)
{
	if (e->key.kind == JV_STR && key.kind == JV_STR)
		return e->key.s.len == key.s.len && memcmp(e->key.s.p, key.s.p, key.s.len) == 0;
	return jv_equal(r, e->key, key);
}

/* The entry with this key, or NULL. */
static struct jentry *dict_find(struct jrun *r, const struct jdict *d, struct jv key, uint64_t hash)
{
	size_t at, i;

	if (!d->index) {
		for (i = 0; i < d->n; i++)
			if (d->entries[i].hash == hash && key_equal(r, &d->entries[i], key)) return &d->entries[i];
		return NULL;
	}
	for (at = (hash ^ hash >> 32) & (d->index_cap - 1); d->index[at]; at = (at + 1) & (d->index_cap - 1)) {
		struct jentry *e = &d->entries[d->index[at] - 1];

		if (e->hash == hash && key_equal(r, e, key)) return e;
		if (!run_step(r)) break;
	}
	return NULL;
}

static void dict_index_put(struct jrun *r, struct jdict *d, size_t entry)
{
	uint64_t hash = d->entries[entry].hash;
	size_t at = (hash ^ hash >> 32) & (d->index_cap - 1);

	while (d->index[at] && run_step(r)) at = (at + 1) & (d->index_cap - 1);
	if (!d->index[at]) d->index[at] = (uint32_t)entry + 1;
}

static bool dict_grow(struct jrun *r, struct jdict *d)
{
	size_t cap = d->cap ? d->cap * 2 : 4, i;
	struct jentry *entries = run_alloc(r, cap, sizeof(*entries));

	if (!entries) return false;
	if (d->n) memcpy(entries, d->entries, d->n * sizeof(*entries));
	d->entries = entries;
	d->cap = cap;
	if (cap <= DICT_LINEAR) return true;
	d->index_cap = cap * 2;
	d->index = run_alloc(r, d->index_cap, sizeof(*d->index));
	for (i = 0; d->index && i < d->n; i++) dict_index_put(r, d, i);
	return d->index != NULL;
}

bool jdict_put(struct jrun *r, struct jdict *d, struct jv key, struct jv value)
{
	struct jentry *e;
	uint64_t hash;

	if (!d || !run_step(r) || !hash_value(r, key, &hash)) return false;
	e = dict_find(r, d, key, hash);
	if (e) {
		e->value = value;
		return true;
	}
	if (d->n == d->cap && !dict_grow(r, d)) return false;
	d->entries[d->n] = (struct jentry){key, value, hash};
	d->n++;
	if (d->index) dict_index_put(r, d, d->n - 1);
	return !r->rc;
}

const struct jv *jdict_get(struct jrun *r, const struct jdict *d, struct jv key)
{
	struct jentry *e;
	uint64_t hash;
	size_t i;

	if (!d) return NULL;
	if (key.kind == JV_STR && !d->index) {
		for (i = 0; i < d->n; i++)
			if (key_equal(r, &d->entries[i], key)) return &d->entries[i].value;
		return NULL;
	}
	if (!hash_value(r, key, &hash)) return NULL;
	e = dict_find(r, d, key, hash);
	return e ? &e->value : NULL;
}

const struct jv *jdict_get_text(struct jrun *r, const struct jdict *d, const char *key)
{
	return jdict_get(r, d, jv_lit(key));
}

struct jv jdict_view(struct jrun *r, struct jv dict, enum jview what)
{
	const struct jdict *d = dict.dict;
	struct jv *items = run_alloc(r, d->n, sizeof(*items));
	struct jv *pairs = what == JVIEW_ITEMS ? run_alloc(r, d->n * 2, sizeof(*pairs)) : NULL;
	struct jv v;
	size_t i;

	for (i = 0; items && i < d->n && !r->rc; i++) {
		if (what == JVIEW_KEYS) items[i] = d->entries[i].key;
		if (what == JVIEW_VALUES) items[i] = d->entries[i].value;
		if (what != JVIEW_ITEMS || !pairs) continue;
		pairs[2 * i] = d->entries[i].key;
		pairs[2 * i + 1] = d->entries[i].value;
		items[i] = jv_list(JV_TUPLE, pairs + 2 * i, 2, dict.input);
	}
	v = jv_list(JV_VIEW, items, items && !r->rc ? d->n : 0, dict.input);
	v.sub = (uint8_t)what;
	return v;
}
