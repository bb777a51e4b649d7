/* dfa.c - see dfa.h: products, words, and questions. What makes one of an expression is in dfaregex.c. */
#include "frontend/dfa.h"

#include "common/map.h"
#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#define DFA_DEAD UINT32_MAX
#define DFA_LENGTH_MAX 50000u /* characters of a text of limited length that has a state each */

const struct dfa *dfa_none(struct gramctx *g)
{
	struct dfa *a = gramctx_array(g, struct dfa, 1);

	a->first = gramctx_array(g, uint32_t, 1);
	return a;
}

const struct dfa *dfa_lengths(struct gramctx *g, uint32_t min, uint32_t max)
{
	struct dfabuild *b = dfabuild_new(g);
	uint32_t last = max == GRAM_NO_END ? min : max, i, s;

	if (last > DFA_LENGTH_MAX) {
		gramctx_fail(g, ST_LIMIT, "too large: an expression or a format together with a length of %u, at most %u", last, DFA_LENGTH_MAX);
		return dfa_none(g);
	}
	for (i = 0; i <= last && gramctx_is_ok(g); i++) {
		s = dfabuild_state(b, i >= min);
		if (i < last || max == GRAM_NO_END) {
			dfabuild_edge(b, s, 0, 0xd7ff, i < last ? s + 1 : s);
			dfabuild_edge(b, s, 0xe000, CHARSET_MAX, i < last ? s + 1 : s);
		}
	}
	return dfabuild_finish(b);
}

const struct dfa *dfa_all(struct gramctx *g)
{
	return dfa_lengths(g, 0, GRAM_NO_END);
}

/* ---- words ---- */

static int dfa_word_compare(const void *a, const void *b)
{
	const struct dfa_word *x = a, *y = b;
	int d = memcmp(x->text, y->text, min_size(x->len, y->len));

	return d ? d : x->len < y->len ? -1 : x->len > y->len;
}

/* Sorted words differ from their predecessor in a tail only, so the trie grows along one path. */
const struct dfa *dfa_words(struct gramctx *g, const struct dfa_word *words, size_t n)
{
	struct dfa_word *sorted = gramctx_dup(g, words, n, sizeof(*words));
	struct dfabuild *b = dfabuild_new(g);
	uint32_t *path, *chars, n_path = 0, s;
	size_t i, longest = 0;

	if (!n) return dfa_none(g);
	gramctx_sort(g, sorted, n, sizeof(*sorted), dfa_word_compare);
	for (i = 0; i < n; i++) longest = max_size(longest, sorted[i].len);
	path = gramctx_array(g, uint32_t, longest + 1); /* states of the last word */
	chars = gramctx_array(g, uint32_t, longest + 1);
	path[0] = dfabuild_state(b, false);
	for (i = 0; i < n && gramctx_work(g, 1 + sorted[i].len); i++) {
		size_t at = 0;
		uint32_t depth = 0, cp;
		bool shared = true;

		while (at < sorted[i].len) {
			at += (size_t)utf8_decode(sorted[i].text + at, &cp);
			if (shared && depth < n_path && chars[depth] == cp) {
				depth++;
				continue;
			}
			shared = false;
			s = dfabuild_state(b, false);
			dfabuild_edge(b, path[depth], cp, cp, s);
			chars[depth] = cp;
			path[++depth] = s;
		}
		n_path = depth;
		dfabuild_final(b, path[depth]);
	}
	return dfabuild_finish(b);
}

/* ---- products ---- */

enum dfa_op { DFA_AND, DFA_OR, DFA_MINUS };

struct dfa_product {
	struct gramctx *g;
	const struct dfa *a, *b;
	enum dfa_op op;
	struct dfabuild *out;
	struct map numbers; /* pair of states -> number + 1 */
	uint64_t *pairs;
	uint32_t n, cap;
};

static bool dfa_final(const struct dfa *a, uint32_t s)
{
	return s != DFA_DEAD && a->is_final[s];
}

static uint32_t dfa_pair(struct dfa_product *p, uint32_t i, uint32_t j)
{
	uint64_t key = (uint64_t)i << 32 | j;
	void *known = map_get(&p->numbers, key);
	bool x = dfa_final(p->a, i), y = dfa_final(p->b, j);

	if (known) return (uint32_t)(uintptr_t)known - 1;
	gramctx_reserve(p->g, p->pairs, p->n, p->cap);
	p->pairs[p->n] = key;
	dfabuild_state(p->out, p->op == DFA_AND ? x && y : p->op == DFA_OR ? x || y : x && !y);
	map_put(&p->numbers, key, (void *)(uintptr_t)(p->n + 1));
	return p->n++;
}

static void dfa_join(struct dfa_product *p, uint32_t from, uint32_t lo, uint32_t hi, uint32_t i, uint32_t j)
{
	if (i == DFA_DEAD && (p->op != DFA_OR || j == DFA_DEAD)) return;
	if (j == DFA_DEAD && p->op == DFA_AND) return;
	dfabuild_edge(p->out, from, lo, hi, dfa_pair(p, i, j));
}

/* Edges of a state, cut at a position; a dead state has none. */
struct dfa_cursor {
	const struct dfa_edge *e, *end;
	uint32_t lo; /* of what is left of e */
};

static struct dfa_cursor dfa_cursor_of(const struct dfa *a, uint32_t s)
{
	struct dfa_cursor c = {NULL, NULL, 0};

	if (s == DFA_DEAD) return c;
	c.e = a->edges + a->first[s];
	c.end = a->edges + a->first[s + 1];
	if (c.e < c.end) c.lo = c.e->lo;
	return c;
}

static void dfa_cursor_pass(struct dfa_cursor *c, uint32_t hi)
{
	if (c->e == c->end || c->lo > hi) return;
	if (c->e->hi > hi) {
		c->lo = hi + 1;
		return;
	}
	c->e++;
	if (c->e < c->end) c->lo = c->e->lo;
}

static void dfa_merge(struct dfa_product *p, uint32_t number)
{
	uint32_t i = (uint32_t)(p->pairs[number] >> 32), j = (uint32_t)p->pairs[number], lo, hi;
	struct dfa_cursor x = dfa_cursor_of(p->a, i), y = dfa_cursor_of(p->b, j);

	while ((x.e < x.end || y.e < y.end) && gramctx_work(p->g, 1)) {
		bool has_x = x.e < x.end && (y.e == y.end || x.lo <= y.lo), has_y = y.e < y.end && (x.e == x.end || y.lo <= x.lo);

		lo = has_x ? x.lo : y.lo;
		hi = min_u32(has_x ? x.e->hi : UINT32_MAX, has_y ? y.e->hi : UINT32_MAX);
		if (has_x && !has_y && y.e < y.end) hi = min_u32(hi, y.lo - 1);
		if (has_y && !has_x && x.e < x.end) hi = min_u32(hi, x.lo - 1);
		dfa_join(p, number, lo, hi, has_x ? x.e->to : DFA_DEAD, has_y ? y.e->to : DFA_DEAD);
		dfa_cursor_pass(&x, hi);
		dfa_cursor_pass(&y, hi);
	}
}

static const struct dfa *dfa_product(struct gramctx *g, const struct dfa *a, const struct dfa *b, enum dfa_op op)
{
	struct dfa_product p = {.g = g, .a = a, .b = b, .op = op, .out = dfabuild_new(g)};
	uint32_t s;

	map_init(&p.numbers);
	dfa_pair(&p, a->n ? 0 : DFA_DEAD, b->n ? 0 : DFA_DEAD);
	for (s = 0; s < p.n && gramctx_is_ok(g); s++) dfa_merge(&p, s);
	map_release(&p.numbers);
	return dfabuild_finish(p.out);
}

const struct dfa *dfa_and(struct gramctx *g, const struct dfa *a, const struct dfa *b)
{
	return dfa_product(g, a, b, DFA_AND);
}

const struct dfa *dfa_or(struct gramctx *g, const struct dfa *a, const struct dfa *b)
{
	return dfa_product(g, a, b, DFA_OR);
}

const struct dfa *dfa_minus(struct gramctx *g, const struct dfa *a, const struct dfa *b)
{
	return dfa_product(g, a, b, DFA_MINUS);
}

const struct dfa *dfa_not(struct gramctx *g, const struct dfa *a)
{
	return dfa_minus(g, dfa_all(g), a);
}

/* ---- questions ---- */

static uint32_t dfa_step(const struct dfa *a, uint32_t s, uint32_t cp)
{
	uint32_t lo = a->first[s], hi = a->first[s + 1], mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (a->edges[mid].hi < cp) lo = mid + 1;
		else hi = mid;
	}
	return lo < a->first[s + 1] && a->edges[lo].lo <= cp ? a->edges[lo].to : DFA_DEAD;
}

bool dfa_accepts(const struct dfa *a, const char *text, size_t len)
{
	uint32_t s = a->n ? 0 : DFA_DEAD, cp;
	size_t at = 0;

	while (at < len && s != DFA_DEAD) {
		at += (size_t)utf8_decode(text + at, &cp);
		s = dfa_step(a, s, cp);
	}
	return s != DFA_DEAD && a->is_final[s];
}

void dfa_span(struct gramctx *g, const struct dfa *a, uint32_t *shortest, uint32_t *longest)
{
	uint32_t *depth = gramctx_array(g, uint32_t, a->n), *queue = gramctx_array(g, uint32_t, a->n), *pending = gramctx_array(g, uint32_t, a->n);
	uint32_t head = 0, tail = 0, i, s;
	uint8_t *seen = gramctx_array(g, uint8_t, a->n);

	*shortest = GRAM_NO_END;
	gramctx_work(g, a->first[a->n]);
	queue[tail++] = 0;
	seen[0] = 1;
	while (head < tail) {
		s = queue[head++];
		if (a->is_final[s]) *shortest = min_u32(*shortest, depth[s]);
		for (i = a->first[s]; i < a->first[s + 1]; i++) {
			uint32_t to = a->edges[i].to;

			pending[to]++;
			if (seen[to]) continue;
			seen[to] = 1;
			depth[to] = depth[s] + 1;
			queue[tail++] = to;
		}
	}
	/* In topological order; when one does not come up, there is a cycle, and every state is useful. */
	memset(depth, 0, a->n * sizeof(*depth));
	*longest = head = tail = 0;
	if (pending[0] == 0) queue[tail++] = 0;
	while (head < tail) {
		s = queue[head++];
		*longest = max_u32(*longest, depth[s]);
		for (i = a->first[s]; i < a->first[s + 1]; i++) {
			uint32_t to = a->edges[i].to;

			depth[to] = max_u32(depth[to], depth[s] + 1);
			if (--pending[to] == 0) queue[tail++] = to;
		}
	}
	if (head < a->n) *longest = GRAM_NO_END;
}

struct dfa_lister {
	struct gramctx *g;
	const struct dfa *a;
	struct dfa_word *words;
	size_t n, max;
	char *text; /* of the path */
};

/* False: too many. */
static bool dfa_list_from(struct dfa_lister *l, uint32_t s, size_t len)
{
	uint32_t i, cp;

	if (!gramctx_work(l->g, 1)) return false;
	if (l->a->is_final[s]) {
		if (l->n == l->max) return false;
		l->words[l->n].text = gramctx_dup(l->g, l->text, len, 1);
		l->words[l->n++].len = len;
	}
	for (i = l->a->first[s]; i < l->a->first[s + 1]; i++) {
		const struct dfa_edge *e = &l->a->edges[i];

		if (e->hi - e->lo > l->max) return false;
		for (cp = e->lo; cp <= e->hi; cp++)
			if (!dfa_list_from(l, e->to, len + (size_t)utf8_encode(cp, l->text + len))) return false;
	}
	return true;
}

size_t dfa_list(struct gramctx *g, const struct dfa *a, struct dfa_word *words, size_t n)
{
	struct dfa_lister l = {.g = g, .a = a, .words = words, .max = n};
	uint32_t shortest, longest;

	if (!a->n) return 0;
	dfa_span(g, a, &shortest, &longest);
	if (longest > 1000) return n + 1; /* also what bounds the recursion */
	l.text = gramctx_array(g, char, 4 * (size_t)longest + 4);
	return dfa_list_from(&l, 0, 0) ? l.n : n + 1;
}
