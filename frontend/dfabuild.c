/* dfabuild.c - states and edges to an automaton (dfa.h): sorted, trimmed, merged. */
#include "frontend/dfa.h"

#include "common/map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define DFABUILD_NONE UINT32_MAX
#define DFABUILD_STATES_MAX 60000u /* more than a grammar has room for */

struct dfabuild_edge {
	uint32_t from;
	struct dfa_edge e;
};

struct dfabuild {
	struct gramctx *g;
	uint8_t *is_final;
	uint32_t n, cap;
	struct dfabuild_edge *edges;
	size_t n_edges, cap_edges;
};

struct dfabuild *dfabuild_new(struct gramctx *g)
{
	struct dfabuild *b = gramctx_array(g, struct dfabuild, 1);

	b->g = g;
	return b;
}

uint32_t dfabuild_state(struct dfabuild *b, bool is_final)
{
	gramctx_reserve(b->g, b->is_final, b->n, b->cap);
	b->is_final[b->n] = is_final;
	if (b->n == DFABUILD_STATES_MAX) gramctx_fail(b->g, ST_LIMIT, "too large: an automaton of more than %u states", DFABUILD_STATES_MAX);
	gramctx_work(b->g, 1);
	return b->n++;
}

void dfabuild_final(struct dfabuild *b, uint32_t state)
{
	b->is_final[state] = 1;
}

void dfabuild_edge(struct dfabuild *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
	if (lo > hi) return;
	gramctx_reserve(b->g, b->edges, b->n_edges, b->cap_edges);
	b->edges[b->n_edges++] = (struct dfabuild_edge){from, {lo, hi, to}};
	gramctx_work(b->g, 1);
}

static int dfabuild_compare(const void *a, const void *b)
{
	const struct dfabuild_edge *x = a, *y = b;

	if (x->from != y->from) return x->from < y->from ? -1 : 1;
	return x->e.lo < y->e.lo ? -1 : x->e.lo > y->e.lo;
}

/* first[s]: index of state s's first edge in the sorted edges. */
static uint32_t *dfabuild_index(struct dfabuild *b)
{
	uint32_t *first = gramctx_array(b->g, uint32_t, b->n + 1);
	size_t i;

	gramctx_sort(b->g, b->edges, b->n_edges, sizeof(*b->edges), dfabuild_compare);
	for (i = 0; i < b->n_edges; i++) first[b->edges[i].from + 1]++;
	for (i = 0; i < b->n; i++) first[i + 1] += first[i];
	return first;
}

/* useful[s]: an end can be reached from s. */
static uint8_t *dfabuild_useful(struct dfabuild *b)
{
	uint8_t *useful = gramctx_array(b->g, uint8_t, b->n);
	uint32_t *count = gramctx_array(b->g, uint32_t, b->n + 2), *from = gramctx_array(b->g, uint32_t, b->n_edges);
	uint32_t *todo = gramctx_array(b->g, uint32_t, b->n), n_todo = 0, s;
	size_t i;

	/* Edges by target. */
	for (i = 0; i < b->n_edges; i++) count[b->edges[i].e.to + 2]++;
	for (s = 0; s < b->n; s++) count[s + 2] += count[s + 1];
	for (i = 0; i < b->n_edges; i++) from[count[b->edges[i].e.to + 1]++] = b->edges[i].from;
	for (s = 0; s < b->n; s++)
		if ((useful[s] = b->is_final[s])) todo[n_todo++] = s;
	while (n_todo) {
		s = todo[--n_todo];
		for (i = count[s]; i < count[s + 1]; i++) {
			if (useful[from[i]]) continue;
			useful[from[i]] = 1;
			todo[n_todo++] = from[i];
		}
	}
	return useful;
}

struct dfabuild_merge {
	struct dfabuild *b;
	const uint32_t *first;
	const uint8_t *useful;
	uint32_t *same;        /* the state that stands for this one; NONE: not visited, or its own so far */
	uint8_t *done;
	struct map by_hash;    /* hash of a signature -> signature */
	struct dfa_edge **out; /* (n) edges to representatives */
	uint32_t *n_out;
};

struct dfabuild_sig {
	uint32_t state;
};

/* The edges of s to the states that stand for its targets, neighbours to the same one joined. */
static void dfabuild_signature(struct dfabuild_merge *m, uint32_t s)
{
	struct dfa_edge *out = gramctx_array(m->b->g, struct dfa_edge, m->first[s + 1] - m->first[s]);
	uint32_t i, n = 0;

	for (i = m->first[s]; i < m->first[s + 1]; i++) {
		struct dfa_edge e = m->b->edges[i].e;

		if (!m->useful[e.to]) continue;
		if (m->same[e.to] != DFABUILD_NONE) e.to = m->same[e.to];
		if (n && out[n - 1].to == e.to && out[n - 1].hi + 1 == e.lo) out[n - 1].hi = e.hi;
		else out[n++] = e;
	}
	m->out[s] = out;
	m->n_out[s] = n;
}

/* All targets of s have been looked at, or s can be reached from them again. */
static void dfabuild_leave(struct dfabuild_merge *m, uint32_t s)
{
	struct dfabuild_sig *sig;
	uint64_t h;

	dfabuild_signature(m, s);
	h = XXH3_64bits_withSeed(m->out[s], m->n_out[s] * sizeof(struct dfa_edge), m->b->is_final[s]);
	sig = map_get(&m->by_hash, h);
	if (sig && m->b->is_final[sig->state] == m->b->is_final[s] && m->n_out[sig->state] == m->n_out[s] &&
	    memcmp(m->out[sig->state], m->out[s], m->n_out[s] * sizeof(struct dfa_edge)) == 0) {
		m->same[s] = sig->state;
		return;
	}
	m->same[s] = s;
	if (sig) return; /* another signature of the same hash: not merged, no harm */
	sig = gramctx_array(m->b->g, struct dfabuild_sig, 1);
	sig->state = s;
	map_put(&m->by_hash, h, sig);
}

/* Depth first, so that targets come before those that lead to them; what lies on a cycle may stay apart. */
static void dfabuild_walk(struct dfabuild_merge *m)
{
	struct dfabuild *b = m->b;
	uint32_t *stack = gramctx_array(b->g, uint32_t, b->n), *next = gramctx_array(b->g, uint32_t, b->n), n = 0, s, to;

	stack[n++] = 0;
	m->done[0] = 1;
	next[0] = m->first[0];
	while (n && gramctx_work(b->g, 1)) {
		s = stack[n - 1];
		if (next[s] == m->first[s + 1]) {
			dfabuild_leave(m, s);
			n--;
			continue;
		}
		to = b->edges[next[s]++].e.to;
		if (!m->useful[to] || m->done[to]) continue;
		m->done[to] = 1;
		next[to] = m->first[to];
		stack[n++] = to;
	}
}

/* Numbers the states that are left from the start on, and copies them. */
static const struct dfa *dfabuild_copy(struct dfabuild_merge *m)
{
	struct gramctx *g = m->b->g;
	struct dfa *a = gramctx_array(g, struct dfa, 1);
	uint32_t *number = gramctx_array(g, uint32_t, m->b->n), *order = gramctx_array(g, uint32_t, m->b->n), *first, n = 0, i, k;
	struct dfa_edge *edges;
	uint8_t *is_final;
	size_t n_edges = 0;

	order[n++] = m->same[0];
	number[m->same[0]] = n;
	for (i = 0; i < n; i++) {
		uint32_t s = order[i];

		for (k = 0; k < m->n_out[s]; k++) {
			uint32_t to = m->same[m->out[s][k].to];

			m->out[s][k].to = to;
			if (number[to]) continue;
			order[n++] = to;
			number[to] = n;
		}
		n_edges += m->n_out[s];
	}
	first = gramctx_array(g, uint32_t, n + 1);
	edges = gramctx_array(g, struct dfa_edge, n_edges);
	is_final = gramctx_array(g, uint8_t, n);
	for (i = 0; i < n; i++) {
		uint32_t s = order[i];

		is_final[i] = m->b->is_final[s];
		first[i + 1] = first[i];
		for (k = 0; k < m->n_out[s]; k++) {
			struct dfa_edge e = m->out[s][k], *last = &edges[first[i + 1] - 1];

			e.to = number[e.to] - 1;
			if (first[i + 1] > first[i] && last->to == e.to && last->hi + 1 == e.lo) last->hi = e.hi;
			else edges[first[i + 1]++] = e;
		}
	}
	*a = (struct dfa){n, first, edges, is_final};
	return a;
}

const struct dfa *dfabuild_finish(struct dfabuild *b)
{
	struct dfabuild_merge m = {.b = b};
	const struct dfa *a;
	uint32_t s;

	if (!b->n || !gramctx_work(b->g, b->n_edges)) return dfa_none(b->g);
	m.first = dfabuild_index(b);
	m.useful = dfabuild_useful(b);
	if (!m.useful[0]) return dfa_none(b->g);
	m.same = gramctx_array(b->g, uint32_t, b->n);
	for (s = 0; s < b->n; s++) m.same[s] = DFABUILD_NONE;
	m.done = gramctx_array(b->g, uint8_t, b->n);
	m.out = gramctx_array(b->g, struct dfa_edge *, b->n);
	m.n_out = gramctx_array(b->g, uint32_t, b->n);
	map_init(&m.by_hash);
	dfabuild_walk(&m);
	map_release(&m.by_hash);
	a = gramctx_is_ok(b->g) ? dfabuild_copy(&m) : dfa_none(b->g);
	return a;
}
