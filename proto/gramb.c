/* gramb.c - builds a grammar; see gram.h.
 *
 * Edges are collected in the order in which they come. gramb_finish() groups them by state, leaves out what cannot be
 * part of any text, goes past states that only pass on, and numbers what is left. A builder whose bound is reached
 * ignores further additions and gives numbers that exist, so that its user need not look after each call. */
#include "common/mem.h"
#include "proto/gram_impl.h"
#include "proto/limits.h"

#include <string.h>

struct gramb_edge {
	uint32_t from;
	struct gram_edge e;
};

struct gramb_rule {
	uint32_t start;
	uint32_t last_call; /* of this rule, + 1: the same call again takes no new entry; 0: none */
};

struct gramb {
	size_t bytes_max, bytes; /* of the wire form, if all of it were kept */
	bool is_full;
	struct gramb_rule *rules;
	uint32_t *state_rule;
	uint8_t *state_is_final;
	struct gramb_edge *edges;
	struct gram_call *calls;
	uint32_t n_rules, rules_cap, n_states, states_cap, finals_cap, n_edges, edges_cap, n_calls, calls_cap;
};

struct gramb *gramb_new(size_t bytes_max)
{
	struct gramb *b = mem_new(struct gramb);

	b->bytes_max = min_size(bytes_max, LIMIT_GRAMMAR_BYTES);
	b->bytes = 5 * sizeof(uint32_t);
	return b;
}

void gramb_free(struct gramb *b)
{
	if (!b) return;
	free(b->rules);
	free(b->state_rule);
	free(b->state_is_final);
	free(b->edges);
	free(b->calls);
	free(b);
}

bool gramb_is_full(const struct gramb *b)
{
	return b->is_full;
}

/* Counts some words of the wire form. */
static bool gramb_room(struct gramb *b, size_t words)
{
	if (b->is_full || b->bytes + words * sizeof(uint32_t) > b->bytes_max) {
		b->is_full = true;
		return false;
	}
	b->bytes += words * sizeof(uint32_t);
	return true;
}

static uint32_t gramb_add_state(struct gramb *b, uint32_t rule)
{
	uint32_t s = b->n_states++;

	mem_reserve(b->state_rule, b->states_cap, (size_t)s + 1);
	mem_reserve(b->state_is_final, b->finals_cap, (size_t)s + 1);
	b->state_rule[s] = rule;
	b->state_is_final[s] = 0;
	return s;
}

uint32_t gramb_rule(struct gramb *b)
{
	uint32_t r = b->n_rules;

	/* Rule 0 is always there, so that there is something to give when the rest does not fit. */
	if (!gramb_room(b, 2) && r > 0) return 0;
	b->n_rules++;
	mem_reserve(b->rules, b->rules_cap, (size_t)r + 1);
	b->rules[r] = (struct gramb_rule){.start = gramb_add_state(b, r)};
	return r;
}

uint32_t gramb_start(const struct gramb *b, uint32_t rule)
{
	CHECK(rule < b->n_rules);
	return b->rules[rule].start;
}

uint32_t gramb_state(struct gramb *b, uint32_t rule)
{
	CHECK(rule < b->n_rules);
	if (!gramb_room(b, 1)) return b->rules[rule].start;
	return gramb_add_state(b, rule);
}

void gramb_final(struct gramb *b, uint32_t state)
{
	CHECK(state < b->n_states);
	b->state_is_final[state] = 1;
}

static void gramb_edge(struct gramb *b, uint32_t from, struct gram_edge e)
{
	CHECK(from < b->n_states && e.to < b->n_states);
	if (!gramb_room(b, 2)) return;
	CHECK(b->state_rule[from] == b->state_rule[e.to]);
	mem_reserve(b->edges, b->edges_cap, (size_t)b->n_edges + 1);
	b->edges[b->n_edges++] = (struct gramb_edge){from, e};
}

void gramb_byte(struct gramb *b, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to)
{
	CHECK(lo <= hi);
	gramb_edge(b, from, (struct gram_edge){.kind = GRAM_BYTES, .lo = lo, .hi = hi, .to = to});
}

void gramb_empty(struct gramb *b, uint32_t from, uint32_t to)
{
	gramb_edge(b, from, (struct gram_edge){.kind = GRAM_EMPTY, .to = to});
}

void gramb_call(struct gramb *b, uint32_t from, uint32_t rule, uint32_t min, uint32_t max, uint32_t to)
{
	const struct gram_call *last;
	struct gramb_rule *r;

	CHECK(rule < b->n_rules && min <= max && max > 0 && min != GRAM_NO_END);
	r = &b->rules[rule];
	last = r->last_call ? &b->calls[r->last_call - 1] : NULL;
	if (!last || last->min != min || last->max != max) {
		if (!gramb_room(b, 3)) return;
		mem_reserve(b->calls, b->calls_cap, (size_t)b->n_calls + 1);
		b->calls[b->n_calls++] = (struct gram_call){rule, min, max};
		r->last_call = b->n_calls;
	}
	gramb_edge(b, from, (struct gram_edge){.kind = GRAM_CALL, .call = r->last_call - 1, .to = to});
}

uint32_t gramb_text(struct gramb *b, uint32_t from, const char *text, size_t len)
{
	CHECK(from < b->n_states);
	if (len == 0) {
		uint32_t to = gramb_state(b, b->state_rule[from]);

		gramb_empty(b, from, to);
		return to;
	}
	for (size_t i = 0; i < len && !b->is_full; i++) {
		uint32_t to = gramb_state(b, b->state_rule[from]);

		gramb_byte(b, from, (uint8_t)text[i], (uint8_t)text[i], to);
		from = to;
	}
	return from;
}

/* ---- characters ----
 *
 * The UTF-8 sequences of each length form a tree. Lead bytes whose whole block is asked for share one edge and the
 * states behind it; a block that is asked for in part gets a state of its own. The tree is at most four deep. */

struct chars {
	struct gramb *b;
	uint32_t to;
	uint32_t any[4]; /* states with n continuation bytes of any value to go; any[0] is `to`; UINT32_MAX: not made
			    yet */
};

static uint32_t chars_any(struct chars *c, int n)
{
	if (c->any[n] == UINT32_MAX) {
		uint32_t s = gramb_state(c->b, c->b->state_rule[c->to]);

		gramb_byte(c->b, s, 0x80, 0xBF, chars_any(c, n - 1));
		c->any[n] = s;
	}
	return c->any[n];
}

/* Edges for the values lo..hi (bits below 6 * n_more are those of the continuation bytes) of the ranges, each clipped
 * to lo..hi; lead is what the first byte has besides them. */
static void chars_block(struct chars *c, uint32_t from, const struct gram_range *r, size_t n, uint32_t lo, uint32_t hi,
			int n_more, uint8_t lead)
{
	int shift = 6 * n_more;
	uint32_t size = 1u << shift, mask = lead ? 0x3F : 0x7F;

	for (size_t i = 0; i < n && r[i].lo <= hi;) {
		uint32_t a = max_u32(r[i].lo, lo), z = min_u32(r[i].hi, hi), block, block_end, whole_end, s;
		uint8_t byte;

		if (r[i].hi < lo) {
			i++;
			continue;
		}
		block = a & ~(size - 1);
		block_end = block + (size - 1);
		byte = (uint8_t)(lead | ((block >> shift) & mask));
		if (a == block && z >= block_end) { /* as many whole blocks as there are */
			whole_end = ((z + 1) & ~(size - 1)) - 1;
			gramb_byte(c->b, from, byte, (uint8_t)(lead | ((whole_end >> shift) & mask)),
				   chars_any(c, n_more));
			lo = whole_end + 1;
		} else {
			s = gramb_state(c->b, c->b->state_rule[c->to]);
			gramb_byte(c->b, from, byte, byte, s);
			chars_block(c, s, r + i, n - i, a, min_u32(block_end, hi), n_more - 1, 0x80);
			lo = block_end + 1;
		}
		while (i < n && r[i].hi < lo) i++;
		if (c->b->is_full || lo > hi) return;
	}
}

void gramb_chars(struct gramb *b, uint32_t from, const struct gram_range *ranges, size_t n, uint32_t to)
{
	/* The sequences of each length, without the surrogates. */
	static const struct {
		uint32_t lo, hi;
		int n_more;
		uint8_t lead;
	} parts[] = {{0, 0x7F, 0, 0},
		     {0x80, 0x7FF, 1, 0xC0},
		     {0x800, 0xD7FF, 2, 0xE0},
		     {0xE000, 0xFFFF, 2, 0xE0},
		     {0x10000, 0x10FFFF, 3, 0xF0}};
	struct chars c = {.b = b, .to = to, .any = {to, UINT32_MAX, UINT32_MAX, UINT32_MAX}};

	CHECK(from < b->n_states && to < b->n_states);
	for (size_t i = 0; i < n; i++)
		CHECK(ranges[i].lo <= ranges[i].hi && (i == 0 || ranges[i - 1].hi < ranges[i].lo));
	for (size_t p = 0; p < ARRAY_LEN(parts); p++)
		chars_block(&c, from, ranges, n, parts[p].lo, parts[p].hi, parts[p].n_more, parts[p].lead);
}

/* ---- finishing ---- */

#define NO_STATE UINT32_MAX

struct finish {
	struct gramb *b;
	struct gram *raw;  /* everything, with the builder's numbers */
	uint32_t *pass;    /* of each raw state the one that it only passes on to, or itself */
	uint8_t *reached;  /* raw states */
	uint32_t *state;   /* raw state -> number in the result, NO_STATE: left out */
	uint32_t *rule;    /* raw rule -> number in the result */
	uint32_t *rule_of; /* and back */
	uint32_t *call;    /* raw call -> number in the result */
	uint32_t n_rules, n_states, n_edges, n_calls;
};

static struct gram *finish_raw(const struct gramb *b)
{
	struct gram *g = gram_new(b->n_rules, b->n_states, b->n_edges, b->n_calls);

	for (uint32_t r = 0; r < b->n_rules; r++) g->rule_start[r] = b->rules[r].start;
	memcpy(g->state_rule, b->state_rule, b->n_states * sizeof(*g->state_rule));
	memcpy(g->state_is_final, b->state_is_final, b->n_states);
	if (b->n_calls) memcpy(g->calls, b->calls, b->n_calls * sizeof(*g->calls));
	/* Group the edges by state, those of a state in the order in which they came. */
	for (uint32_t i = 0; i < b->n_edges; i++) g->state_edges[b->edges[i].from]++;
	for (uint32_t s = 0, sum = 0; s <= b->n_states; s++) {
		uint32_t n = g->state_edges[s];

		g->state_edges[s] = sum;
		sum += n;
	}
	for (uint32_t i = 0; i < b->n_edges; i++) g->edges[g->state_edges[b->edges[i].from]++] = b->edges[i].e;
	for (uint32_t s = b->n_states; s > 0; s--) g->state_edges[s] = g->state_edges[s - 1];
	g->state_edges[0] = 0;
	gramcheck_measure(g);
	return g;
}

static bool rule_can_end(const struct gram *g, uint32_t rule)
{
	return g->state_min[g->rule_start[rule]] != GRAM_NO_WAY;
}

/* Is the edge part of some text? One whose rule cannot be read, and need not be, becomes an empty one. */
static bool edge_is_useful(const struct gram *g, const struct gram_edge *e, struct gram_edge *as)
{
	*as = *e;
	if (g->state_min[e->to] == GRAM_NO_WAY) return false;
	if (e->kind != GRAM_CALL || rule_can_end(g, g->calls[e->call].rule)) return true;
	*as = (struct gram_edge){.kind = GRAM_EMPTY, .to = e->to};
	return g->calls[e->call].min == 0;
}

/* The state that s does nothing but pass on to, or s. */
static uint32_t finish_next(const struct gram *g, uint32_t s)
{
	struct gram_edge e, only = {0};
	uint32_t n = 0;

	if (g->state_is_final[s] || g->state_min[s] == GRAM_NO_WAY) return s;
	for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) {
		if (!edge_is_useful(g, &g->edges[i], &e)) continue;
		only = e;
		if (++n > 1) return s;
	}
	return n == 1 && only.kind == GRAM_EMPTY ? only.to : s;
}

/* Chains of such states end: every state in one can end, and a circle of them could not. Each is gone along once. */
static void finish_pass(struct finish *f)
{
	const struct gram *g = f->raw;

	f->pass = mem_array(uint32_t, g->n_states);
	for (uint32_t s = 0; s < g->n_states; s++) f->pass[s] = finish_next(g, s);
	for (uint32_t s = 0; s < g->n_states; s++) {
		uint32_t end = s, at = s;

		while (f->pass[end] != end) end = f->pass[end];
		while (f->pass[at] != end) {
			uint32_t next = f->pass[at];

			f->pass[at] = end;
			at = next;
		}
	}
}

static void finish_reach(struct finish *f)
{
	const struct gram *g = f->raw;
	uint32_t *work = mem_array(uint32_t, g->n_states), n = 0;
	struct gram_edge e;

	f->reached = mem_array(uint8_t, g->n_states);
	work[n++] = f->pass[g->rule_start[0]];
	f->reached[work[0]] = 1;
	while (n > 0) {
		uint32_t s = work[--n];

		for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) {
			uint32_t to[2];

			if (!edge_is_useful(g, &g->edges[i], &e)) continue;
			to[0] = f->pass[e.to];
			to[1] = e.kind == GRAM_CALL ? f->pass[g->rule_start[g->calls[e.call].rule]] : to[0];
			for (int k = 0; k < 2; k++) {
				if (f->reached[to[k]]) continue;
				f->reached[to[k]] = 1;
				work[n++] = to[k];
			}
		}
	}
	free(work);
}

/* Numbers rules, states (a rule's in a row, its start first) and calls, and counts the edges. */
static void finish_number(struct finish *f)
{
	const struct gram *g = f->raw;
	uint32_t *n_states = mem_array(uint32_t, (size_t)g->n_rules + 1);
	struct gram_edge e;

	f->state = mem_array(uint32_t, g->n_states);
	f->rule = mem_array(uint32_t, g->n_rules);
	f->rule_of = mem_array(uint32_t, g->n_rules);
	f->call = mem_array(uint32_t, g->n_calls);
	memset(f->call, 0xff, g->n_calls * sizeof(*f->call));
	for (uint32_t s = 0; s < g->n_states; s++)
		if (f->reached[s]) n_states[g->state_rule[s]]++;
	for (uint32_t r = 0; r < g->n_rules; r++) {
		uint32_t n = n_states[r];

		if (n == 0) continue;
		f->rule[r] = f->n_rules;
		f->rule_of[f->n_rules++] = r;
		f->state[f->pass[g->rule_start[r]]] = f->n_states;
		n_states[r] = f->n_states + 1; /* of the next one */
		f->n_states += n;
	}
	for (uint32_t s = 0; s < g->n_states; s++) {
		uint32_t r = g->state_rule[s];

		if (!f->reached[s]) continue;
		if (s != f->pass[g->rule_start[r]]) f->state[s] = n_states[r]++;
		for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) {
			if (!edge_is_useful(g, &g->edges[i], &e)) continue;
			f->n_edges++;
			if (e.kind == GRAM_CALL && f->call[e.call] == UINT32_MAX) f->call[e.call] = f->n_calls++;
		}
	}
	free(n_states);
}

static struct gram *finish_result(const struct finish *f)
{
	const struct gram *raw = f->raw;
	struct gram *g = gram_new(f->n_rules, f->n_states, f->n_edges, f->n_calls);
	uint32_t *from = mem_array(uint32_t, f->n_states), edge = 0;
	struct gram_edge e;

	for (uint32_t r = 0; r < f->n_rules; r++) g->rule_start[r] = f->state[f->pass[raw->rule_start[f->rule_of[r]]]];
	for (uint32_t s = 0; s < raw->n_states; s++)
		if (f->reached[s]) from[f->state[s]] = s;
	for (uint32_t s = 0; s < f->n_states; s++) {
		g->state_rule[s] = f->rule[raw->state_rule[from[s]]];
		g->state_is_final[s] = raw->state_is_final[from[s]];
		g->state_edges[s] = edge;
		for (uint32_t i = raw->state_edges[from[s]]; i < raw->state_edges[from[s] + 1]; i++) {
			if (!edge_is_useful(raw, &raw->edges[i], &e)) continue;
			e.to = f->state[f->pass[e.to]];
			if (e.kind == GRAM_CALL) e.call = f->call[e.call];
			g->edges[edge++] = e;
		}
	}
	g->state_edges[f->n_states] = edge;
	for (uint32_t i = 0; i < raw->n_calls; i++) {
		const struct gram_call *c = &raw->calls[i];

		if (f->call[i] != UINT32_MAX)
			g->calls[f->call[i]] = (struct gram_call){f->rule[c->rule], c->min, c->max};
	}
	free(from);
	gramcheck_measure(g);
	return g;
}

#define CULPRIT_STEPS_MAX 64 /* each looks at all states */

/* Of a root that cannot end: a rule that it is the fault of, found by following rules that cannot end. */
static uint32_t finish_culprit(const struct gram *g)
{
	uint8_t *seen = mem_array(uint8_t, g->n_rules);
	uint32_t rule = 0, next;

	for (int steps = 0; steps < CULPRIT_STEPS_MAX && !seen[rule]; steps++) {
		seen[rule] = 1;
		next = rule;
		for (uint32_t s = 0; s < g->n_states; s++) {
			if (g->state_rule[s] != rule) continue;
			for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) {
				const struct gram_edge *e = &g->edges[i];

				if (e->kind == GRAM_CALL && !rule_can_end(g, g->calls[e->call].rule))
					next = g->calls[e->call].rule;
			}
		}
		rule = next;
	}
	free(seen);
	return rule;
}

static int finish_pack(const struct gramb *b, struct finish *f, struct strbuf *out, struct gram_names *names,
		       struct errbuf *err)
{
	struct gram *g;
	int rc;

	finish_pass(f);
	finish_reach(f);
	finish_number(f);
	g = finish_result(f);
	names->number_of = f->rule_of;
	rc = gramcheck_rules(g, names, err);
	if (rc == ST_OK) gram_pack(g, out);
	if (rc == ST_OK && out->overflow)
		rc = err_set(err, ST_LIMIT, "the grammar takes more than %zu bytes", out->len_max);
	gram_free(g);
	return rc;
}

int gramb_finish(struct gramb *b, struct strbuf *out, const char *(*name_of)(void *ctx, uint32_t rule), void *ctx,
		 struct errbuf *err)
{
	struct gram_names names = {.of = name_of, .ctx = ctx};
	struct finish f = {.b = b};
	int rc;

	CHECK(b->n_rules > 0);
	if (b->is_full) return err_set(err, ST_LIMIT, "the grammar takes more than %zu bytes", b->bytes_max);
	f.raw = finish_raw(b);
	if (rule_can_end(f.raw, 0))
		rc = finish_pack(b, &f, out, &names, err);
	else
		rc = gramcheck_cannot_end(finish_culprit(f.raw), &names, err);
	gram_free(f.raw);
	free(f.pass);
	free(f.reached);
	free(f.state);
	free(f.rule);
	free(f.rule_of);
	free(f.call);
	return rc;
}
