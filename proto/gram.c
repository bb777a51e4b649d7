/* gram.c - see gram.h. The wire form of a grammar, and reading it from bytes that nobody vouches for.
 *
 *   magic, n_rules, n_states, n_edges, n_calls        5 words (all words are 32 bits, little-endian)
 *   rules    n_rules:  states of the rule; a rule's states are numbered in a row, the first one is its start
 *   states   n_states: edges << 1 | the rule may end here; a state's edges are in a row
 *   edges    n_edges:  kind | lo << 8 | hi << 16 (a byte), kind (nothing), kind | call << 8; then the state it leads to
 *   calls    n_calls:  rule, min, max
 *
 * The counts must account for every byte before anything is allocated, so memory is at most about three times the
 * bytes. */
#include "proto/gram.h"

#include "common/mem.h"
#include "proto/gram_impl.h"
#include "proto/limits.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are copied as they are");

#define GRAM_MAGIC      0x314d5247u /* "GRM1" */
#define GRAM_HEAD_WORDS 5

struct gram *gram_new(uint32_t n_rules, uint32_t n_states, uint32_t n_edges, uint32_t n_calls)
{
	struct gram *g = mem_new(struct gram);

	g->n_rules = n_rules;
	g->n_states = n_states;
	g->n_edges = n_edges;
	g->n_calls = n_calls;
	g->rule_start = mem_array(uint32_t, n_rules);
	g->state_rule = mem_array(uint32_t, n_states);
	g->state_edges = mem_array(uint32_t, (size_t)n_states + 1);
	g->state_is_final = mem_array(uint8_t, n_states);
	g->state_min = mem_array(uint32_t, n_states);
	g->edges = mem_array(struct gram_edge, n_edges);
	g->calls = mem_array(struct gram_call, n_calls);
	return g;
}

void gram_free(struct gram *g)
{
	if (!g) return;
	free(g->rule_start);
	free(g->state_rule);
	free(g->state_edges);
	free(g->state_is_final);
	free(g->state_min);
	free(g->edges);
	free(g->calls);
	free(g);
}

/* ---- packing ---- */

static void gram_put(struct strbuf *out, uint32_t word)
{
	strbuf_append(out, &word, sizeof(word));
}

void gram_pack(const struct gram *g, struct strbuf *out)
{
	gram_put(out, GRAM_MAGIC);
	gram_put(out, g->n_rules);
	gram_put(out, g->n_states);
	gram_put(out, g->n_edges);
	gram_put(out, g->n_calls);
	for (uint32_t r = 0; r < g->n_rules; r++)
		gram_put(out, (r + 1 < g->n_rules ? g->rule_start[r + 1] : g->n_states) - g->rule_start[r]);
	for (uint32_t s = 0; s < g->n_states; s++)
		gram_put(out, (g->state_edges[s + 1] - g->state_edges[s]) << 1 | g->state_is_final[s]);
	for (uint32_t i = 0; i < g->n_edges; i++) {
		const struct gram_edge *e = &g->edges[i];

		gram_put(out, e->kind == GRAM_CALL ? GRAM_CALL | e->call << 8
						   : e->kind | (uint32_t)e->lo << 8 | (uint32_t)e->hi << 16);
		gram_put(out, e->to);
	}
	for (uint32_t i = 0; i < g->n_calls; i++) {
		gram_put(out, g->calls[i].rule);
		gram_put(out, g->calls[i].min);
		gram_put(out, g->calls[i].max);
	}
}

/* ---- loading ---- */

/* The words not read yet; gram_open() has seen that they are exactly as many as the counts ask for. */
struct gram_words {
	const uint8_t *at;
};

static uint32_t gram_take(struct gram_words *w)
{
	uint32_t word;

	memcpy(&word, w->at, sizeof(word));
	w->at += sizeof(word);
	return word;
}

static int gram_open(struct gram **out, struct gram_words *w, const void *data, size_t len, struct errbuf *err)
{
	uint32_t n_rules, n_states, n_edges, n_calls;
	uint64_t want;

	if (len > LIMIT_GRAMMAR_BYTES)
		return err_set(err, ST_LIMIT, "a grammar of %zu bytes; expected %u at most", len, LIMIT_GRAMMAR_BYTES);
	if (len < GRAM_HEAD_WORDS * sizeof(uint32_t))
		return err_set(err, ST_CORRUPT, "a grammar of only %zu bytes", len);
	w->at = data;
	if (gram_take(w) != GRAM_MAGIC) return err_set(err, ST_CORRUPT, "not a grammar");
	n_rules = gram_take(w);
	n_states = gram_take(w);
	n_edges = gram_take(w);
	n_calls = gram_take(w);
	want = (uint64_t)GRAM_HEAD_WORDS + n_rules + n_states + 2ull * n_edges + 3ull * n_calls;
	if (want * sizeof(uint32_t) != len)
		return err_set(err, ST_CORRUPT, "a grammar of %zu bytes whose counts ask for %llu", len,
			       (unsigned long long)want * sizeof(uint32_t));
	if (n_rules == 0) return err_set(err, ST_CORRUPT, "a grammar without rules");
	*out = gram_new(n_rules, n_states, n_edges, n_calls);
	return ST_OK;
}

static int gram_load_rules(struct gram *g, struct gram_words *w, struct errbuf *err)
{
	uint32_t state = 0;

	for (uint32_t r = 0; r < g->n_rules; r++) {
		uint32_t n = gram_take(w);

		if (n == 0 || n > g->n_states - state)
			return err_set(err, ST_CORRUPT, "rule %u has %u states; expected 1 to %u", r, n,
				       g->n_states - state);
		g->rule_start[r] = state;
		while (n-- > 0) g->state_rule[state++] = r;
	}
	if (state != g->n_states) return err_set(err, ST_CORRUPT, "states %u and on belong to no rule", state);
	return ST_OK;
}

static int gram_load_states(struct gram *g, struct gram_words *w, struct errbuf *err)
{
	uint32_t edge = 0;

	for (uint32_t s = 0; s < g->n_states; s++) {
		uint32_t word = gram_take(w), n = word >> 1;

		if (n > g->n_edges - edge)
			return err_set(err, ST_CORRUPT, "state %u has %u edges; expected %u at most", s, n,
				       g->n_edges - edge);
		g->state_is_final[s] = word & 1;
		g->state_edges[s] = edge;
		edge += n;
	}
	g->state_edges[g->n_states] = edge;
	if (edge != g->n_edges) return err_set(err, ST_CORRUPT, "edges %u and on belong to no state", edge);
	return ST_OK;
}

static int gram_load_edge(struct gram *g, uint32_t from, uint32_t i, struct gram_words *w, struct errbuf *err)
{
	uint32_t word = gram_take(w);
	struct gram_edge e = {.kind = (uint8_t)word, .to = gram_take(w)};

	if (e.to >= g->n_states || g->state_rule[e.to] != g->state_rule[from])
		return err_set(err, ST_CORRUPT, "an edge of state %u leads to %u, which is not of its rule", from,
			       e.to);
	if (e.kind == GRAM_CALL) {
		e.call = word >> 8;
		if (e.call >= g->n_calls)
			return err_set(err, ST_CORRUPT, "an edge of state %u makes call %u of %u", from, e.call,
				       g->n_calls);
	} else {
		e.lo = (uint8_t)(word >> 8);
		e.hi = (uint8_t)(word >> 16);
		if (word >> 24 || e.kind > GRAM_CALL || e.lo > e.hi || (e.kind == GRAM_EMPTY && e.hi != 0))
			return err_set(err, ST_CORRUPT, "state %u has an edge 0x%08x, which is of no kind", from, word);
	}
	g->edges[i] = e;
	return ST_OK;
}

static int gram_load_edges(struct gram *g, struct gram_words *w, struct errbuf *err)
{
	for (uint32_t s = 0; s < g->n_states; s++)
		for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++) {
			int rc = gram_load_edge(g, s, i, w, err);

			if (rc != ST_OK) return rc;
		}
	return ST_OK;
}

static int gram_load_calls(struct gram *g, struct gram_words *w, struct errbuf *err)
{
	for (uint32_t i = 0; i < g->n_calls; i++) {
		struct gram_call c;

		c.rule = gram_take(w);
		c.min = gram_take(w);
		c.max = gram_take(w);
		if (c.rule >= g->n_rules || c.min > c.max || c.max == 0 || c.min == GRAM_NO_END)
			return err_set(err, ST_CORRUPT, "call %u is of rule %u, %u to %u times", i, c.rule, c.min,
				       c.max);
		g->calls[i] = c;
	}
	return ST_OK;
}

int gram_load(struct gram **out, const void *data, size_t len, struct errbuf *err)
{
	struct gram_names names = {0};
	struct gram_words w;
	struct gram *g = NULL;
	int rc;

	*out = NULL;
	rc = gram_open(&g, &w, data, len, err);
	if (rc == ST_OK) rc = gram_load_rules(g, &w, err);
	if (rc == ST_OK) rc = gram_load_states(g, &w, err);
	if (rc == ST_OK) rc = gram_load_edges(g, &w, err);
	if (rc == ST_OK) rc = gram_load_calls(g, &w, err);
	if (rc == ST_OK) {
		gramcheck_measure(g);
		rc = gramcheck_rules(g, &names, err);
	}
	if (rc != ST_OK) {
		gram_free(g);
		return rc == ST_LIMIT ? rc : ST_CORRUPT;
	}
	*out = g;
	return ST_OK;
}
