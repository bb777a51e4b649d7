/* gramcheck.c - what must hold of a grammar beyond its numbers being in range: every state can end, no rule begins with
 * itself, repeated rules read something. Part of gram.h.
 *
 * Nothing here recurses: grammars come from outside and may be deep. */
#include "common/mem.h"
#include "common/quote.h"
#include "proto/gram_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- shortest texts ----
 *
 * Knuth's form of Dijkstra's algorithm: states become final in the order of their shortest text. A call costs min times
 * its rule's shortest text, which is never less than the text itself, so whatever a state's minimum is made of is final
 * before it. */

struct measure_item {
	uint32_t cost, state;
};

struct measure {
	struct gram *g;
	uint8_t *done;      /* a state's minimum is final */
	uint32_t *from;     /* of each edge */
	uint32_t *into_at;  /* (n_states + 1): the edges that lead to a state, ... */
	uint32_t *into;     /* (n_edges) ... in a row */
	uint32_t *calls_at; /* (n_rules + 1): the edges that call a rule, ... */
	uint32_t *calls;    /* (n_edges) ... in a row */
	struct measure_item *heap;
	size_t n_heap, heap_cap;
};

static void measure_push(struct measure *m, uint32_t cost, uint32_t state)
{
	size_t i = m->n_heap++;

	mem_reserve(m->heap, m->heap_cap, m->n_heap);
	for (; i > 0 && m->heap[(i - 1) / 2].cost > cost; i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
	m->heap[i] = (struct measure_item){cost, state};
}

static struct measure_item measure_pop(struct measure *m)
{
	struct measure_item top = m->heap[0], last = m->heap[--m->n_heap];
	size_t i = 0;

	for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
		if (child + 1 < m->n_heap && m->heap[child + 1].cost < m->heap[child].cost) child++;
		if (m->heap[child].cost >= last.cost) break;
		m->heap[i] = m->heap[child];
	}
	m->heap[i] = last;
	return top;
}

static void measure_relax(struct measure *m, uint32_t state, uint64_t cost)
{
	uint32_t c = (uint32_t)min_u64(cost, GRAM_MIN_MAX);

	if (m->done[state] || c >= m->g->state_min[state]) return;
	m->g->state_min[state] = c;
	measure_push(m, c, state);
}

/* The way over an edge whose target is final. */
static void measure_edge(struct measure *m, uint32_t i)
{
	const struct gram_edge *e = &m->g->edges[i];
	uint64_t cost = m->g->state_min[e->to];

	if (e->kind == GRAM_BYTES) {
		cost++;
	} else if (e->kind == GRAM_CALL) {
		const struct gram_call *c = &m->g->calls[e->call];
		uint32_t start = m->g->rule_start[c->rule];

		if (c->min > 0 && !m->done[start]) return; /* again when that is known */
		if (c->min > 0) cost += (uint64_t)c->min * m->g->state_min[start];
	}
	measure_relax(m, m->from[i], cost);
}

/* Counting sort of edges by a key below n; keys of n are left out. */
static void measure_group(const uint32_t *key, uint32_t n_edges, uint32_t n, uint32_t *at, uint32_t *edges)
{
	for (uint32_t i = 0; i < n_edges; i++)
		if (key[i] < n) at[key[i]]++;
	for (uint32_t k = 0, sum = 0; k <= n; k++) {
		uint32_t here = k < n ? at[k] : 0;

		at[k] = sum;
		sum += here;
	}
	for (uint32_t i = 0; i < n_edges; i++)
		if (key[i] < n) edges[at[key[i]]++] = i;
	for (uint32_t k = n; k > 0; k--) at[k] = at[k - 1];
	at[0] = 0;
}

static void measure_init(struct measure *m, struct gram *g)
{
	uint32_t *key = mem_array(uint32_t, g->n_edges);

	*m = (struct measure){.g = g,
			      .done = mem_array(uint8_t, g->n_states),
			      .from = mem_array(uint32_t, g->n_edges),
			      .into_at = mem_array(uint32_t, (size_t)g->n_states + 1),
			      .into = mem_array(uint32_t, g->n_edges),
			      .calls_at = mem_array(uint32_t, (size_t)g->n_rules + 1),
			      .calls = mem_array(uint32_t, g->n_edges)};
	for (uint32_t s = 0; s < g->n_states; s++)
		for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) m->from[i] = s;
	for (uint32_t i = 0; i < g->n_edges; i++) key[i] = g->edges[i].to;
	measure_group(key, g->n_edges, g->n_states, m->into_at, m->into);
	for (uint32_t i = 0; i < g->n_edges; i++) {
		const struct gram_edge *e = &g->edges[i];

		key[i] = e->kind == GRAM_CALL ? g->calls[e->call].rule : g->n_rules;
	}
	measure_group(key, g->n_edges, g->n_rules, m->calls_at, m->calls);
	free(key);
}

static void measure_release(struct measure *m)
{
	free(m->done);
	free(m->from);
	free(m->into_at);
	free(m->into);
	free(m->calls_at);
	free(m->calls);
	free(m->heap);
}

void gramcheck_measure(struct gram *g)
{
	struct measure m;

	measure_init(&m, g);
	for (uint32_t s = 0; s < g->n_states; s++) {
		g->state_min[s] = GRAM_NO_WAY;
		if (g->state_is_final[s]) measure_relax(&m, s, 0);
	}
	while (m.n_heap > 0) {
		uint32_t s = measure_pop(&m).state, rule = g->state_rule[s];

		if (m.done[s]) continue;
		m.done[s] = 1;
		for (uint32_t i = m.into_at[s]; i < m.into_at[s + 1]; i++) measure_edge(&m, m.into[i]);
		if (s != g->rule_start[rule]) continue;
		for (uint32_t i = m.calls_at[rule]; i < m.calls_at[rule + 1]; i++)
			if (m.done[g->edges[m.calls[i]].to]) measure_edge(&m, m.calls[i]);
	}
	measure_release(&m);
}

/* ---- errors ---- */

static struct quote rule_name(const struct gram_names *names, uint32_t rule)
{
	uint32_t number = names->number_of ? names->number_of[rule] : rule;
	const char *name = names->of ? names->of(names->ctx, number) : NULL;
	struct quote q;

	if (name) return quote_short(name, strlen(name));
	snprintf(q.text, sizeof(q.text), "rule %u", number);
	return q;
}

/* ---- rules that begin with themselves ---- */

/* For each rule the rules that it may call before it has read a byte. */
struct lefts {
	uint32_t *at; /* (n_rules + 1) */
	uint32_t *rules;
	uint32_t n, cap;
};

/* May the edge be passed without reading anything? */
static bool edge_is_nullable(const struct gram *g, const struct gram_edge *e)
{
	if (e->kind == GRAM_BYTES) return false;
	if (e->kind == GRAM_EMPTY || g->calls[e->call].min == 0) return true;
	return g->state_min[g->rule_start[g->calls[e->call].rule]] == 0;
}

/* Walks the states of a rule that are reached before a byte is read. seen: states, of all rules; work: room for them.
 */
static void lefts_of_rule(struct lefts *l, const struct gram *g, uint32_t rule, uint8_t *seen, uint32_t *work)
{
	uint32_t n = 0;

	work[n++] = g->rule_start[rule];
	seen[g->rule_start[rule]] = 1;
	while (n > 0) {
		uint32_t s = work[--n];

		for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) {
			const struct gram_edge *e = &g->edges[i];

			if (e->kind == GRAM_CALL) {
				mem_reserve(l->rules, l->cap, (size_t)l->n + 1);
				l->rules[l->n++] = g->calls[e->call].rule;
			}
			if (seen[e->to] || !edge_is_nullable(g, e)) continue;
			seen[e->to] = 1;
			work[n++] = e->to;
		}
	}
}

static void lefts_init(struct lefts *l, const struct gram *g)
{
	uint8_t *seen = mem_array(uint8_t, g->n_states);
	uint32_t *work = mem_array(uint32_t, g->n_states);

	*l = (struct lefts){.at = mem_array(uint32_t, (size_t)g->n_rules + 1)};
	for (uint32_t r = 0; r < g->n_rules; r++) {
		l->at[r] = l->n;
		lefts_of_rule(l, g, r, seen, work);
	}
	l->at[g->n_rules] = l->n;
	free(seen);
	free(work);
}

static void lefts_release(struct lefts *l)
{
	free(l->at);
	free(l->rules);
}

/* Depth-first search for a cycle from one rule. next: of each rule the call to look at; n_rules + 1 entries of path. */
static bool lefts_find_cycle(const struct lefts *l, uint32_t from, uint8_t *color, uint32_t *next, uint32_t *path,
			     uint32_t *caller, uint32_t *callee)
{
	enum { NEW, OPEN, DONE };
	uint32_t n = 0;

	if (color[from] != NEW) return false;
	color[from] = OPEN;
	next[from] = l->at[from];
	path[n++] = from;
	while (n > 0) {
		uint32_t r = path[n - 1], to;

		if (next[r] == l->at[r + 1]) {
			color[r] = DONE;
			n--;
			continue;
		}
		to = l->rules[next[r]++];
		if (color[to] == OPEN) {
			*caller = r;
			*callee = to;
			return true;
		}
		if (color[to] == DONE) continue;
		color[to] = OPEN;
		next[to] = l->at[to];
		path[n++] = to;
	}
	return false;
}

static int check_left_recursion(const struct gram *g, const struct gram_names *names, struct errbuf *err)
{
	uint8_t *color = mem_array(uint8_t, g->n_rules);
	uint32_t *next = mem_array(uint32_t, g->n_rules), *path = mem_array(uint32_t, g->n_rules);
	uint32_t caller = 0, callee = 0;
	bool found = false;
	struct lefts l;

	lefts_init(&l, g);
	for (uint32_t r = 0; r < g->n_rules && !found; r++)
		found = lefts_find_cycle(&l, r, color, next, path, &caller, &callee);
	lefts_release(&l);
	free(color);
	free(next);
	free(path);
	if (!found) return ST_OK;
	if (caller == callee)
		return err_set(err, ST_INVALID, "%s begins with itself before anything is read (left recursion)",
			       rule_name(names, callee).text);
	return err_set(err, ST_INVALID, "%s begins with itself, by way of %s, before anything is read (left recursion)",
		       rule_name(names, callee).text, rule_name(names, caller).text);
}

int gramcheck_cannot_end(uint32_t rule, const struct gram_names *names, struct errbuf *err)
{
	return err_set(err, ST_INVALID, "%s cannot end: no text is long enough", rule_name(names, rule).text);
}

int gramcheck_rules(const struct gram *g, const struct gram_names *names, struct errbuf *err)
{
	for (uint32_t s = 0; s < g->n_states; s++)
		if (g->state_min[s] == GRAM_NO_WAY) return gramcheck_cannot_end(g->state_rule[s], names, err);
	for (uint32_t i = 0; i < g->n_calls; i++) {
		const struct gram_call *c = &g->calls[i];

		if (c->max > 1 && g->state_min[g->rule_start[c->rule]] == 0)
			return err_set(err, ST_INVALID,
				       "%s is repeated, but it may be empty; expected that it reads something",
				       rule_name(names, c->rule).text);
	}
	return check_left_recursion(g, names, err);
}
