/* schemaputobj.c - objects as grammar: see schemac_impl.h.
 *
 * Members that the schema has names for come first, in its order, each there or not; then others, whose keys are none of these names.
 * Where the number of members matters, a state knows how many there are. */
#include "frontend/schemac_impl.h"

#include <string.h>
#include <xxhash.h>

#define SCHEMAPUTOBJ_PATTERNS_MAX 6 /* each combination of them is a kind of key of its own */
#define SCHEMAPUTOBJ_OPTIONAL_MAX 512 /* that may be missing, in a row: behind each, the worker has to try all that may follow */
#define SCHEMAPUTOBJ_LISTED_MAX 256 /* names from "propertyNames" that become members with names */

struct schemaputobj_member {
	struct schemakey key;
	struct schemanode *node;
	uint32_t layer;     /* + 1: the last layer that has it among its properties */
	bool is_required;
};

struct schemaputobj {
	struct schemac *c;
	const struct schemaobject *o;
	struct schemaputobj_member *members;
	uint32_t n, cap, n_required;
	struct map by_key; /* hash -> index + 1 */
	bool is_listed;    /* there are no other keys than the members' */
	uint32_t rest;     /* rule of one further member */
	bool has_rest;     /* there may be one */
	uint32_t min, max; /* of members; min 0 and max GRAM_NO_END where they say nothing */
};

/* ---- members with names ---- */

static struct schemaputobj_member *schemaputobj_member(struct schemaputobj *p, struct schemakey key)
{
	uint64_t h = XXH3_64bits(key.text, key.len);
	struct schemaputobj_member *m;
	uintptr_t i;

	for (; (i = (uintptr_t)map_get(&p->by_key, h)) > 0; h++) {
		m = &p->members[i - 1];
		if (m->key.len == key.len && memcmp(m->key.text, key.text, key.len) == 0) return m;
	}
	gramctx_reserve(p->c->g, p->members, p->n, p->cap);
	m = &p->members[p->n++];
	*m = (struct schemaputobj_member){.key = key, .node = p->c->any};
	map_put(&p->by_key, h, (void *)(uintptr_t)p->n);
	gramctx_work(p->c->g, 1);
	return m;
}

/* Keys from a short list of allowed names become members, which is also what keeps them from coming twice. */
static void schemaputobj_list_names(struct schemaputobj *p)
{
	struct dfa_word *words = gramctx_array(p->c->g, struct dfa_word, SCHEMAPUTOBJ_LISTED_MAX);
	size_t n, i;

	if (!p->o->names) return;
	n = dfa_list(p->c->g, p->o->names, words, SCHEMAPUTOBJ_LISTED_MAX);
	if (n > SCHEMAPUTOBJ_LISTED_MAX) return;
	for (i = 0; i < n; i++) schemaputobj_member(p, (struct schemakey){words[i].text, words[i].len});
	p->is_listed = true;
}

/* What a layer says of a member, which is among its properties or not. A key of which it is not certain whether a pattern matches gets
 * the demands of both cases. */
static void schemaputobj_apply(struct schemaputobj *p, const struct schemamembers *layer, struct schemaputobj_member *m, bool is_property)
{
	bool matches = is_property;
	uint32_t i;

	for (i = 0; i < layer->n_patterns; i++) {
		const struct schemapattern *x = &layer->patterns[i];

		if (!dfa_accepts(x->wide, m->key.text, m->key.len)) continue;
		m->node = schemasum_both(p->c, m->node, x->node);
		matches = matches || dfa_accepts(x->narrow, m->key.text, m->key.len);
	}
	if (!matches) m->node = schemasum_both(p->c, m->node, layer->rest);
}

static void schemaputobj_collect(struct schemaputobj *p)
{
	const struct schemaobject *o = p->o;
	uint32_t i, k;

	for (i = 0; i < o->n_layers; i++)
		for (k = 0; k < o->layers[i]->n_properties; k++) schemaputobj_member(p, o->layers[i]->properties[k].key);
	for (i = 0; i < o->n_required; i++) schemaputobj_member(p, o->required[i])->is_required = true;
	p->n_required = o->n_required;
	schemaputobj_list_names(p);
	for (i = 0; i < o->n_layers && gramctx_work(p->c->g, 1 + p->n); i++) {
		const struct schemamembers *layer = o->layers[i];

		for (k = 0; k < layer->n_properties; k++) {
			struct schemaputobj_member *m = schemaputobj_member(p, layer->properties[k].key);

			m->node = schemasum_both(p->c, m->node, layer->properties[k].node);
			m->layer = i + 1;
		}
		for (k = 0; k < p->n; k++) schemaputobj_apply(p, layer, &p->members[k], p->members[k].layer == i + 1);
	}
	for (i = 0; o->names && i < p->n; i++)
		if (!dfa_accepts(o->names, p->members[i].key.text, p->members[i].key.len)) p->members[i].node = p->c->never;
}

/* ---- other members ---- */

/* The patterns of all layers in one row. */
static uint32_t schemaputobj_patterns(struct schemaputobj *p, const struct schemapattern **patterns)
{
	uint32_t n = 0, i, k;

	for (i = 0; i < p->o->n_layers; i++) {
		for (k = 0; k < p->o->layers[i]->n_patterns; k++) {
			if (n == SCHEMAPUTOBJ_PATTERNS_MAX) {
				schemadoc_fail(&p->c->doc, ST_LIMIT, p->o->at, "`patternProperties` with more than %d expressions",
					       SCHEMAPUTOBJ_PATTERNS_MAX);
				return 0;
			}
			patterns[n++] = &p->o->layers[i]->patterns[k];
		}
	}
	return n;
}

/* What a key must meet that matches just the patterns of the mask. */
static struct schemanode *schemaputobj_rest_node(struct schemaputobj *p, uint32_t mask)
{
	struct schemanode *node = p->c->any;
	uint32_t bit = 0, i, k;

	for (i = 0; i < p->o->n_layers; i++) {
		const struct schemamembers *layer = p->o->layers[i];
		bool matches = false;

		for (k = 0; k < layer->n_patterns; k++, bit++) {
			if (!(mask >> bit & 1)) continue;
			node = schemasum_both(p->c, node, layer->patterns[k].node);
			matches = true;
		}
		if (!matches) node = schemasum_both(p->c, node, layer->rest);
	}
	return node;
}

/* One further member whose key matches just the patterns of the mask: key and value. */
static void schemaputobj_rest_kind(struct schemaputobj *p, const struct schemapattern **patterns, uint32_t n, uint32_t mask,
				   const struct dfa *keys, uint32_t end)
{
	struct schemanode *node = schemaputobj_rest_node(p, mask);
	struct gramctx *g = p->c->g;
	uint32_t i, at = gramb_start(g->b, p->rest);

	if (node == p->c->never) return;
	for (i = 0; i < n && gramctx_is_ok(g); i++) {
		if (mask >> i & 1) keys = keys ? dfa_and(g, keys, patterns[i]->narrow) : patterns[i]->narrow;
		else keys = keys ? dfa_minus(g, keys, patterns[i]->wide) : dfa_not(g, patterns[i]->wide);
	}
	if (keys && dfa_is_empty(keys)) return;
	p->has_rest = true;
	at = keys ? gramjson_string(&p->c->json, keys, p->rest, at) : gramjson_put(&p->c->json, GRAMJSON_STRING, p->rest, at);
	gramb_empty(g->b, schemaput_node(p->c, node, p->rest, gramjson_put(&p->c->json, GRAMJSON_COLON, p->rest, at)), end);
}

static void schemaputobj_rest(struct schemaputobj *p)
{
	const struct schemapattern *patterns[SCHEMAPUTOBJ_PATTERNS_MAX];
	struct gramctx *g = p->c->g;
	uint32_t n = schemaputobj_patterns(p, patterns), mask, end, i;
	struct dfa_word *words = gramctx_array(g, struct dfa_word, p->n);
	const struct dfa *keys = p->o->names;

	p->rest = gramb_rule(g->b);
	end = gramb_state(g->b, p->rest);
	gramb_final(g->b, end);
	if (p->is_listed || (!n && schemaputobj_rest_node(p, 0) == p->c->never)) return;
	for (i = 0; i < p->n; i++) words[i] = (struct dfa_word){p->members[i].key.text, p->members[i].key.len};
	if (p->n) keys = dfa_minus(g, keys ? keys : dfa_all(g), dfa_words(g, words, p->n));
	for (mask = 0; mask < 1u << n && gramctx_is_ok(g); mask++) schemaputobj_rest_kind(p, patterns, n, mask, keys, end);
}

/* ---- the whole ---- */

/* A rule with the member's key and value. */
static uint32_t schemaputobj_pair(struct schemaputobj *p, const struct schemaputobj_member *m)
{
	struct dfa_word word = {m->key.text, m->key.len};
	struct gramb *b = p->c->g->b;
	uint32_t rule = gramb_rule(b), at;

	at = gramjson_string(&p->c->json, dfa_words(p->c->g, &word, 1), rule, gramb_start(b, rule));
	gramb_final(b, schemaput_node(p->c, m->node, rule, gramjson_put(&p->c->json, GRAMJSON_COLON, rule, at)));
	return rule;
}

/* From states[k], where k members are there (the last one: or more), to next[k]. */
static void schemaputobj_step(struct schemaputobj *p, const struct schemaputobj_member *m, const uint32_t *states, const uint32_t *next,
			      uint32_t n_counts, uint32_t rule)
{
	struct gramb *b = p->c->g->b;
	uint32_t pair = schemaputobj_pair(p, m), k, at;

	for (k = 0; k < n_counts; k++) {
		/* A count that is saturated goes on, one that is full does not. */
		bool may_have = k + 1 < n_counts || p->max == GRAM_NO_END;

		if (!m->is_required) gramb_empty(b, states[k], next[k]);
		if (!may_have) continue;
		at = k ? gramjson_put(&p->c->json, GRAMJSON_COMMA, rule, states[k]) : states[k];
		gramb_call(b, at, pair, 1, 1, next[min_u32(k + 1, n_counts - 1)]);
	}
}

/* A rule with a comma and a further member. */
static uint32_t schemaputobj_more(struct schemaputobj *p)
{
	struct gramb *b = p->c->g->b;
	uint32_t rule = gramb_rule(b), end = gramb_state(b, rule);

	gramb_call(b, gramjson_put(&p->c->json, GRAMJSON_COMMA, rule, gramb_start(b, rule)), p->rest, 1, 1, end);
	gramb_final(b, end);
	return rule;
}

/* Further members behind k that are there, then what ends the object (`none` when there was none). Two keys of them might be the same,
 * so at most one of them counts for the least number. */
static void schemaputobj_tail(struct schemaputobj *p, uint32_t state, uint32_t k, uint32_t more, const uint32_t end[2], uint32_t rule)
{
	uint32_t needed = p->min > k ? p->min - k : 0, room = p->max == GRAM_NO_END ? GRAM_NO_END : p->max - k, at = state;
	struct gramb *b = p->c->g->b;

	if (needed == 0) gramb_empty(b, state, end[k > 0]);
	if (needed > 1 || room == 0 || !p->has_rest) return;
	if (k == 0) {
		at = gramb_state(b, rule);
		gramb_call(b, state, p->rest, 1, 1, at);
		if (room != GRAM_NO_END) room--;
		needed = 0;
	}
	if (room) gramb_call(b, at, more, needed, room, end[1]);
	else gramb_empty(b, at, end[1]);
}

/* Brings min and max to what they really say of this object. */
static void schemaputobj_counts(struct schemaputobj *p)
{
	p->min = p->o->min <= p->n_required ? 0 : p->o->min;
	p->max = p->o->max;
	if (!p->has_rest && p->max >= p->n) p->max = GRAM_NO_END;
	if (p->min > p->n + 1 && p->has_rest && p->o->at)
		schemadoc_fail(&p->c->doc, ST_UNSUPPORTED, p->o->at,
			       "`minProperties` of %u is not supported where the schema has only %u names: other keys might come twice", p->min, p->n);
}

/* Refused here, by name, rather than by the worker's bounds in the middle of an answer. */
static void schemaputobj_optional(struct schemaputobj *p)
{
	uint32_t i, n = 0;

	for (i = 0; i < p->n && n <= SCHEMAPUTOBJ_OPTIONAL_MAX; i++) n = p->members[i].is_required ? 0 : n + 1;
	if (n > SCHEMAPUTOBJ_OPTIONAL_MAX)
		schemadoc_fail(&p->c->doc, ST_LIMIT, p->o->at, "more than %d `properties` in a row that are not `required`", SCHEMAPUTOBJ_OPTIONAL_MAX);
}

static void schemaputobj_all(struct schemaputobj *p, uint32_t rule, uint32_t from, const uint32_t end[2])
{
	uint32_t n_counts = 1 + (p->max == GRAM_NO_END ? max_u32(1, p->min) : p->max), i, k, more;
	uint32_t *states, *next;
	struct gramb *b = p->c->g->b;

	n_counts = min_u32(n_counts, p->n + 2); /* more than all of them and one further: the tail counts those itself */
	states = gramctx_array(p->c->g, uint32_t, n_counts);
	next = gramctx_array(p->c->g, uint32_t, n_counts);
	for (k = 0; k < n_counts; k++) states[k] = k ? gramb_state(b, rule) : from;
	for (i = 0; i < p->n && gramctx_work(p->c->g, n_counts); i++) {
		for (k = 0; k < n_counts; k++) next[k] = gramb_state(b, rule);
		schemaputobj_step(p, &p->members[i], states, next, n_counts, rule);
		memcpy(states, next, n_counts * sizeof(*states));
	}
	more = schemaputobj_more(p);
	for (k = 0; k < n_counts; k++) schemaputobj_tail(p, states[k], k, more, end, rule);
}

uint32_t schemaputobj(struct schemac *c, const struct schemaobject *o, uint32_t rule, uint32_t from)
{
	struct schemaputobj p = {.c = c, .o = o};
	struct gramb *b = c->g->b;
	uint32_t open, end[2] = {gramb_state(b, rule), gramb_state(b, rule)};

	map_init(&p.by_key);
	schemaputobj_collect(&p);
	open = gramjson_space(&c->json, rule, gramjson_text(&c->json, from, "{"));
	if (gramctx_is_ok(c->g)) {
		schemaputobj_rest(&p);
		schemaputobj_counts(&p);
		schemaputobj_optional(&p);
		schemaputobj_all(&p, rule, open, end);
	}
	map_release(&p.by_key);
	/* The blanks of an object without members are written already. */
	gramb_empty(b, gramjson_space(&c->json, rule, end[1]), end[0]);
	return gramjson_text(&c->json, end[0], "}");
}
