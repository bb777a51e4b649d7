/* dfaregex.c - an expression's tree to an automaton (dfa.h), by way of one that is not deterministic.
 *
 * Repetitions are written out, so counts cost states. "^" can be passed at the beginning only and "$" at the end only, wherever in the
 * expression they are. When a search has found its match the rest does not matter; a set of states that
 * contains that one is only that one, which keeps searches small. */
#include "frontend/dfa.h"

#include "common/map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define DFAREGEX_PARTS_MAX 120000u
#define DFAREGEX_STATES_MAX 20000u

enum dfaregex_kind { DFAREGEX_SET, DFAREGEX_SPLIT, DFAREGEX_BEGIN, DFAREGEX_END, DFAREGEX_ACCEPT, DFAREGEX_ALL };

struct dfaregex_part {
	enum dfaregex_kind kind;
	uint32_t a, b;       /* SPLIT: both; SET, BEGIN, END: a is what follows */
	struct charset set;
};

struct dfaregex_set {
	const uint32_t *parts; /* SET, END, ACCEPT, ALL; sorted */
	uint32_t n, number;
};

struct dfaregex {
	struct gramctx *g;
	struct dfaregex_part *parts;
	uint32_t n, cap;
	bool wide;
	/* determinising */
	struct dfabuild *out;
	struct map by_hash;
	struct dfaregex_set **sets; /* by number */
	uint32_t n_sets, cap_sets;
	uint32_t *mark, mark_now; /* (n) */
	uint32_t *stack, *found;  /* (n) */
};

/* ---- tree to parts, backwards: each function gets what follows and returns where to enter ---- */

static uint32_t dfaregex_part(struct dfaregex *d, enum dfaregex_kind kind, uint32_t a, uint32_t b)
{
	gramctx_reserve(d->g, d->parts, d->n, d->cap);
	d->parts[d->n] = (struct dfaregex_part){.kind = kind, .a = a, .b = b};
	gramctx_work(d->g, 1);
	if (d->n >= DFAREGEX_PARTS_MAX)
		gramctx_fail(d->g, ST_LIMIT, "too large: an expression with more than %u characters when its repetitions are written out", DFAREGEX_PARTS_MAX);
	return d->n++;
}

static uint32_t dfaregex_add(struct dfaregex *d, const struct regexc *x, uint32_t next);

static uint32_t dfaregex_repeat(struct dfaregex *d, const struct regexc *x, uint32_t next)
{
	uint32_t end = next, i, loop, body;

	if (x->max == GRAM_NO_END) {
		loop = dfaregex_part(d, DFAREGEX_SPLIT, next, next);
		body = dfaregex_add(d, x->parts[0], loop); /* which moves the parts */
		d->parts[loop].b = body;
		next = loop;
	} else {
		for (i = x->min; i < x->max && gramctx_is_ok(d->g); i++)
			next = dfaregex_part(d, DFAREGEX_SPLIT, dfaregex_add(d, x->parts[0], next), end);
	}
	for (i = 0; i < x->min && gramctx_is_ok(d->g); i++) next = dfaregex_add(d, x->parts[0], next);
	return next;
}

static uint32_t dfaregex_add(struct dfaregex *d, const struct regexc *x, uint32_t next)
{
	uint32_t at;
	size_t i;

	if (!gramctx_work(d->g, 1)) return next;
	switch (x->kind) {
	case REGEXC_SET:
		at = dfaregex_part(d, DFAREGEX_SET, next, 0);
		d->parts[at].set = x->set;
		return at;
	case REGEXC_CAT:
		for (i = x->n_parts; i-- > 0;) next = dfaregex_add(d, x->parts[i], next);
		return next;
	case REGEXC_ALT:
		at = dfaregex_add(d, x->parts[x->n_parts - 1], next);
		for (i = x->n_parts - 1; i-- > 0;) at = dfaregex_part(d, DFAREGEX_SPLIT, dfaregex_add(d, x->parts[i], next), at);
		return at;
	case REGEXC_REPEAT: return dfaregex_repeat(d, x, next);
	case REGEXC_BEGIN: return dfaregex_part(d, DFAREGEX_BEGIN, next, 0);
	default:
		at = dfaregex_part(d, DFAREGEX_END, next, 0);
		if (!d->wide) return at;
		/* Python's "$" matches before a line end at the very end too. */
		next = dfaregex_part(d, DFAREGEX_SET, at, 0);
		d->parts[next].set = charset_one(d->g, '\n', '\n');
		return dfaregex_part(d, DFAREGEX_SPLIT, at, next);
	}
}

/* ---- sets of parts ---- */

static int dfaregex_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void dfaregex_push(struct dfaregex *d, uint32_t *n_stack, uint32_t part)
{
	if (d->mark[part] == d->mark_now) return;
	d->mark[part] = d->mark_now;
	d->stack[(*n_stack)++] = part;
}

/* What can be reached from the parts without reading; *accepts: with an end among it. Returns the number in d->found. */
static uint32_t dfaregex_reach(struct dfaregex *d, const uint32_t *from, uint32_t n_from, bool at_begin, bool at_end, bool *accepts)
{
	uint32_t n_stack = 0, n = 0, i;

	d->mark_now++;
	*accepts = false;
	for (i = 0; i < n_from; i++) dfaregex_push(d, &n_stack, from[i]);
	while (n_stack && gramctx_work(d->g, 1)) {
		uint32_t at = d->stack[--n_stack];
		const struct dfaregex_part *p = &d->parts[at];

		switch (p->kind) {
		case DFAREGEX_SPLIT:
			dfaregex_push(d, &n_stack, p->a);
			dfaregex_push(d, &n_stack, p->b);
			continue;
		case DFAREGEX_BEGIN:
			if (at_begin) dfaregex_push(d, &n_stack, p->a);
			continue;
		case DFAREGEX_END:
			if (at_end) dfaregex_push(d, &n_stack, p->a);
			break;
		case DFAREGEX_ALL:
			*accepts = true;
			d->found[0] = at;
			return 1;
		case DFAREGEX_ACCEPT: *accepts = true; break;
		default: break;
		}
		d->found[n++] = at;
	}
	gramctx_sort(d->g, d->found, n, sizeof(*d->found), dfaregex_compare);
	return n;
}

/* The number of the set that is reached from the parts. */
static uint32_t dfaregex_number(struct dfaregex *d, const uint32_t *from, uint32_t n_from, bool at_begin)
{
	bool accepts, accepts_at_end;
	struct dfaregex_set *set;
	uint32_t n;
	uint64_t h;

	gramctx_work(d->g, 2 * n_from);
	dfaregex_reach(d, from, n_from, at_begin, true, &accepts_at_end);
	n = dfaregex_reach(d, from, n_from, at_begin, false, &accepts);
	h = XXH3_64bits_withSeed(d->found, n * sizeof(*d->found), accepts_at_end);
	/* Probing: another set of the same hash moves on. */
	for (; (set = map_get(&d->by_hash, h)); h++)
		if (set->n == n && memcmp(set->parts, d->found, n * sizeof(*d->found)) == 0) return set->number;
	set = gramctx_array(d->g, struct dfaregex_set, 1);
	set->parts = gramctx_dup(d->g, d->found, n, sizeof(*d->found));
	set->n = n;
	set->number = dfabuild_state(d->out, accepts || accepts_at_end);
	map_put(&d->by_hash, h, set);
	gramctx_reserve(d->g, d->sets, d->n_sets, d->cap_sets);
	d->sets[d->n_sets++] = set;
	if (d->n_sets > DFAREGEX_STATES_MAX)
		gramctx_fail(d->g, ST_LIMIT, "too complicated: the expression's automaton has more than %u states", DFAREGEX_STATES_MAX);
	return set->number;
}

/* Where one of the sets of characters begins or has ended. */
struct dfaregex_event {
	uint32_t cp, part;
	bool begins;
};

static int dfaregex_event_compare(const void *a, const void *b)
{
	const struct dfaregex_event *x = a, *y = b;

	return x->cp < y->cp ? -1 : x->cp > y->cp;
}

static size_t dfaregex_events(struct dfaregex *d, const struct dfaregex_set *set, struct dfaregex_event **out)
{
	size_t n = 0, k, count = 0;
	uint32_t i;

	for (i = 0; i < set->n; i++) count += 2 * d->parts[set->parts[i]].set.n;
	*out = gramctx_array(d->g, struct dfaregex_event, count);
	for (i = 0; i < set->n; i++) {
		const struct charset *s = &d->parts[set->parts[i]].set;

		for (k = 0; k < s->n; k++) {
			(*out)[n++] = (struct dfaregex_event){s->ranges[k].lo, i, true};
			(*out)[n++] = (struct dfaregex_event){s->ranges[k].hi + 1, i, false};
		}
	}
	gramctx_sort(d->g, *out, n, sizeof(**out), dfaregex_event_compare);
	gramctx_work(d->g, n / 4);
	return n;
}

/* The edges of a set: between two events the same parts can read. Intervals with the same parts share one look-up. */
static void dfaregex_edges(struct dfaregex *d, const struct dfaregex_set *set)
{
	struct dfaregex_event *events;
	size_t n = dfaregex_events(d, set, &events), i = 0;
	uint8_t *reads = gramctx_array(d->g, uint8_t, set->n);
	uint32_t *next = gramctx_array(d->g, uint32_t, set->n), n_next, k;
	struct map known; /* hash of the parts' next -> number + 1 */
	uint32_t number;

	map_init(&known);
	while (i < n && gramctx_work(d->g, 1 + set->n / 8)) {
		uint32_t lo = events[i].cp;
		uint64_t h;

		for (; i < n && events[i].cp == lo; i++) reads[events[i].part] = events[i].begins;
		for (n_next = k = 0; k < set->n; k++)
			if (reads[k]) next[n_next++] = d->parts[set->parts[k]].a;
		if (!n_next) continue;
		h = XXH3_64bits(reads, set->n);
		number = (uint32_t)(uintptr_t)map_get(&known, h);
		if (!number) {
			number = dfaregex_number(d, next, n_next, false) + 1;
			map_put(&known, h, (void *)(uintptr_t)number);
		}
		dfabuild_edge(d->out, set->number, lo, events[i].cp - 1, number - 1);
	}
	map_release(&known);
}

const struct dfa *dfaregex(struct gramctx *g, const struct regexc *x, bool search, bool wide)
{
	struct dfaregex d = {.g = g, .wide = wide, .out = dfabuild_new(g)};
	uint32_t start, i, loop, skip;

	d.mark = NULL;
	start = dfaregex_part(&d, search ? DFAREGEX_ALL : DFAREGEX_ACCEPT, 0, 0);
	if (search) {
		d.parts[start].set = charset_not(g, (struct charset){NULL, 0});
		d.parts[start].a = start;
	}
	start = dfaregex_add(&d, x, start);
	if (search) {
		loop = dfaregex_part(&d, DFAREGEX_SPLIT, start, 0);
		skip = dfaregex_part(&d, DFAREGEX_SET, loop, 0);
		d.parts[skip].set = charset_not(g, (struct charset){NULL, 0});
		d.parts[loop].b = skip;
		start = loop;
	}
	if (!gramctx_is_ok(g)) return dfa_none(g);
	d.mark = gramctx_array(g, uint32_t, d.n);
	d.stack = gramctx_array(g, uint32_t, d.n);
	d.found = gramctx_array(g, uint32_t, d.n);
	map_init(&d.by_hash);
	dfaregex_number(&d, &start, 1, true);
	for (i = 0; i < d.n_sets && gramctx_is_ok(g); i++) dfaregex_edges(&d, d.sets[i]);
	map_release(&d.by_hash);
	return dfabuild_finish(d.out);
}

const struct dfa *dfaregex_pattern(struct gramctx *g, const char *text, size_t len, bool search, bool wide)
{
	const struct regexc *x = regexc_parse(g, text, len, wide);

	return x ? dfaregex(g, x, search, wide) : NULL;
}
