/* maskdfa.c - see maskdfa.h. */
#include "worker/maskdfa.h"

#include "common/mem.h"

#include <string.h>
#include <xxhash.h>

#define LIST_SHARE \
	64 /* tokens are kept as a list when at most every so many-th is found: it takes half the bits' memory */

static void found_free(struct maskdfa_found *f)
{
	if (!f) return;
	free(f->list);
	free(f->bits);
	free(f->exits);
	free(f);
}

static void maskdfa_begin(struct maskdfa *d)
{
	d->n_sets = 2;
	d->n_ways = 0;
	d->n_rows = 1;
	d->walk = 0;
	d->found_bytes = 0;
	mem_reserve(d->sets, d->sets_cap, 16);
	memset(d->sets, 0, d->n_sets * sizeof(*d->sets));
	mem_reserve(d->ways, d->ways_cap, 16); /* also a set of none has a place among them */
	mem_reserve(d->rows, d->rows_cap, 16);
	memset(d->rows, 0, sizeof(*d->rows));
	d->n_slots = 64;
	d->slots = mem_array(uint32_t, d->n_slots);
}

void maskdfa_init(struct maskdfa *d, const struct gram *g, const struct masktrie *trie, uint32_t vocab)
{
	*d = (struct maskdfa){.trie = trie, .vocab = vocab};
	maskframes_init(&d->frames, g);
	maskdfa_begin(d);
}

void maskdfa_release(struct maskdfa *d)
{
	for (uint32_t i = 2; i < d->n_sets; i++)
		for (int k = 0; k < MASKDFA_KINDS; k++) found_free(d->sets[i].found[k]);
	maskframes_release(&d->frames);
	maskplace_release(&d->next);
	free(d->sets);
	free(d->ways);
	free(d->rows);
	free(d->slots);
	*d = (struct maskdfa){0};
}

void maskdfa_reset(struct maskdfa *d)
{
	const struct gram *g = d->frames.g;
	const struct masktrie *trie = d->trie;
	uint64_t n_walks = d->n_walks;
	uint32_t vocab = d->vocab;

	maskdfa_release(d);
	maskdfa_init(d, g, trie, vocab);
	d->n_walks = n_walks;
}

size_t maskdfa_bytes(const struct maskdfa *d)
{
	return maskframes_bytes(&d->frames) + d->sets_cap * sizeof(*d->sets) + d->ways_cap * sizeof(*d->ways) +
	       d->rows_cap * sizeof(*d->rows) + d->n_slots * sizeof(*d->slots) + d->next.cap * sizeof(*d->next.ways) +
	       d->found_bytes;
}

/* ---- sets ---- */

static int way_compare(const void *a, const void *b)
{
	const struct maskway *x = a, *y = b;

	if (x->state != y->state) return x->state < y->state ? -1 : 1;
	return (x->frame > y->frame) - (x->frame < y->frame);
}

static void ways_sort(struct maskway *w, uint32_t n)
{
	if (n > 16) {
		qsort(w, n, sizeof(*w), way_compare);
		return;
	}
	for (uint32_t i = 1; i < n; i++) {
		struct maskway one = w[i];
		uint32_t at = i;

		for (; at > 0 && way_compare(&w[at - 1], &one) > 0; at--) w[at] = w[at - 1];
		w[at] = one;
	}
}

static uint32_t set_hash(const struct maskway *w, uint32_t n, bool ends)
{
	return (uint32_t)XXH3_64bits_withSeed(w, n * sizeof(*w), ends);
}

static uint32_t *set_slot(struct maskdfa *d, const struct maskway *w, uint32_t n, bool ends)
{
	uint32_t at = set_hash(w, n, ends) & (d->n_slots - 1);

	for (uint32_t i; (i = d->slots[at]) != 0; at = (at + 1) & (d->n_slots - 1)) {
		const struct maskdfa_set *s = &d->sets[i];

		if (s->n == n && s->ends == ends && (n == 0 || memcmp(d->ways + s->at, w, n * sizeof(*w)) == 0)) break;
	}
	return &d->slots[at];
}

static void sets_rehash(struct maskdfa *d)
{
	free(d->slots);
	d->n_slots *= 2;
	d->slots = mem_array(uint32_t, d->n_slots);
	for (uint32_t i = 2; i < d->n_sets; i++) {
		const struct maskdfa_set *s = &d->sets[i];

		*set_slot(d, d->ways + s->at, s->n, s->ends) = i;
	}
}

uint32_t maskdfa_set(struct maskdfa *d, struct maskplace *p)
{
	uint32_t *slot;

	if (p->too_much || (p->n == 0 && !p->ends)) return MASKDFA_DEAD;
	if (d->n_sets * 2 >= d->n_slots) sets_rehash(d);
	ways_sort(p->ways, p->n);
	slot = set_slot(d, p->ways, p->n, p->ends);
	if (*slot) return *slot;
	mem_reserve(d->sets, d->sets_cap, (size_t)d->n_sets + 1);
	mem_reserve(d->ways, d->ways_cap, (size_t)d->n_ways + p->n);
	d->sets[d->n_sets] = (struct maskdfa_set){
		.at = d->n_ways, .n = p->n, .cost = maskplace_cost(p, &d->frames), .ends = p->ends};
	if (p->n) memcpy(d->ways + d->n_ways, p->ways, p->n * sizeof(*p->ways));
	d->n_ways += p->n;
	*slot = d->n_sets;
	return d->n_sets++;
}

/* Narrows lo..hi, in which byte lies, to bytes that the set cannot tell from it. */
static void set_alike(const struct maskdfa *d, const struct maskdfa_set *s, uint8_t byte, unsigned *lo, unsigned *hi)
{
	const struct gram *g = d->frames.g;

	for (uint32_t w = s->at; w < s->at + s->n; w++)
		for (uint32_t i = g->state_edges[d->ways[w].state]; i < g->state_edges[d->ways[w].state + 1]; i++) {
			const struct gram_edge *e = &g->edges[i];

			if (e->kind != GRAM_BYTES) continue;
			if (byte < e->lo) {
				*hi = *hi < e->lo ? *hi : e->lo - 1u;
			} else if (byte > e->hi) {
				*lo = *lo > e->hi ? *lo : e->hi + 1u;
			} else {
				*lo = *lo > e->lo ? *lo : e->lo;
				*hi = *hi < e->hi ? *hi : e->hi;
			}
		}
}

/* The set behind a byte, worked out the first time; also noted for the bytes around it that lead to the same. */
static uint32_t set_read(struct maskdfa *d, struct maskscratch *x, uint32_t set, uint8_t byte)
{
	struct maskdfa_set *s = &d->sets[set];
	unsigned lo = 0, hi = 255;
	uint32_t next;

	set_alike(d, s, byte, &lo, &hi);
	maskplace_read(&d->next, d->ways + s->at, s->n, &d->frames, x, byte);
	next = maskdfa_set(d, &d->next);
	for (unsigned b = lo; b <= hi; b++) {
		uint32_t *row = &d->sets[set].rows[b / MASKDFA_ROW];

		if (!*row) {
			*row = d->n_rows;
			mem_reserve(d->rows, d->rows_cap, (size_t)d->n_rows + 1);
			d->rows[d->n_rows++] = (struct maskdfa_row){0};
		}
		d->rows[*row].next[b % MASKDFA_ROW] = next;
	}
	return next;
}

/* ---- walks ---- */

/* The inside of a walk; what is not in struct maskdfa_walk. */
struct walk {
	struct maskdfa_walk *w;
	uint32_t *list, list_max;    /* the first tokens that are found */
	uint32_t n;                  /* tokens found */
	uint32_t cost_most;          /* of them */
	uint64_t n_below, below_max; /* nodes below the exits; above this many, exits are not noted any more */
	uint32_t len_min, len_max;   /* of tokens and exits: longer than len_min, at most len_max */
};

static void walk_tokens(struct walk *k, const uint32_t *ids, const uint32_t *end, uint32_t cost)
{
	uint64_t *bits = k->w->bits;

	if (!bits || cost > k->w->cost_max) return;
	k->cost_most = max_u32(k->cost_most, cost);
	for (; ids < end; ids++) {
		bits[*ids / 64] |= 1ull << *ids % 64;
		if (k->n < k->list_max) k->list[k->n] = *ids;
		k->n++;
	}
}

static void walk_exit(struct walk *k, uint32_t node, uint32_t n_below)
{
	struct maskdfa_exits *e = k->w->exits;

	k->n_below += n_below;
	if (n_below == 0 || k->n_below > k->below_max) return;
	mem_reserve(e->nodes, e->cap, (size_t)e->n + 1);
	e->nodes[e->n++] = node;
}

/* In a set for the first time in this walk. False: too much work. */
static bool walk_meet(struct maskdfa *d, struct walk *k, struct maskdfa_set *s)
{
	s->walk = d->walk;
	k->w->work += s->n + 1;
	return k->w->work <= MASKDFA_WORK_MAX;
}

/* Goes through what is below a node, at which `set` is reached. False: too much work. This is where the time goes: a
 * vocabulary has 100,000 nodes and more. */
static bool walk_below(struct maskdfa *d, struct maskscratch *x, struct walk *k, uint32_t node, uint32_t set)
{
	const struct masktrie_node *nodes = d->trie->nodes;
	const uint32_t *ids = d->trie->ids;
	const struct maskdfa_row *rows = d->rows;
	struct maskdfa_set *sets = d->sets;
	uint32_t path[MASKTRIE_LEN_MAX + 1];
	uint32_t end = nodes[node].skip, i = node + 1, len_min = k->len_min, len_max = k->len_max;

	path[nodes[node].depth] = set;
	while (i < end) {
		const struct masktrie_node *at = &nodes[i];

		if (at->deepest <= len_min) {
			i = at->skip;
			continue;
		}
		/* Row 0 knows nothing. */
		set = rows[sets[path[at->depth - 1]].rows[at->byte / MASKDFA_ROW]].next[at->byte % MASKDFA_ROW];
		if (set == 0) {
			set = set_read(d, x, path[at->depth - 1], at->byte);
			rows = d->rows;
			sets = d->sets;
		}
		if (set == MASKDFA_DEAD) {
			i = at->skip;
			continue;
		}
		path[at->depth] = set;
		if (sets[set].walk != d->walk && !walk_meet(d, k, &sets[set])) return false;
		if (at->depth > len_min) {
			if (at[1].tokens > at->tokens)
				walk_tokens(k, ids + at->tokens, ids + at[1].tokens, sets[set].cost);
			if (sets[set].ends && k->w->exits) walk_exit(k, i, at->skip - i - 1);
		}
		i = at->depth == len_max ? at->skip : i + 1;
	}
	return true;
}

/* A new walk, in which no set was met yet. */
static void walk_begin(struct maskdfa *d, struct walk *k, struct maskdfa_walk *w, enum maskdfa_kind kind)
{
	*k = (struct walk){.w = w,
			   .len_min = kind == MASKDFA_LONG ? MASKDFA_SHORT_LEN : 0,
			   .len_max = kind == MASKDFA_SHORT ? MASKDFA_SHORT_LEN : UINT32_MAX,
			   .below_max = UINT64_MAX};
	d->n_walks++;
	if (++d->walk != 0) return;
	for (uint32_t i = 0; i < d->n_sets; i++) d->sets[i].walk = 0;
	d->walk = 1;
}

void maskdfa_filter(struct maskdfa *d, struct maskscratch *x, uint32_t set, enum maskdfa_kind kind,
		    struct maskdfa_walk *w)
{
	struct walk k;

	walk_begin(d, &k, w, kind);
	walk_below(d, x, &k, 0, set);
}

void maskdfa_go_on(struct maskdfa *d, struct maskscratch *x, uint32_t set, const struct maskdfa_exits *from,
		   struct maskdfa_walk *w)
{
	struct walk k;

	walk_begin(d, &k, w, MASKDFA_ALL);
	for (uint32_t i = 0; i < from->n; i++)
		if (!walk_below(d, x, &k, from->nodes[i], set)) return;
}

/* ---- walks that are kept ---- */

static struct maskdfa_found *found_keep(struct maskdfa *d, const struct walk *k, uint64_t *bits,
					struct maskdfa_exits *exits)
{
	struct maskdfa_found *f = mem_new(struct maskdfa_found);

	*f = (struct maskdfa_found){
		.n = k->n, .cost_max = k->cost_most, .n_below = k->n_below, .work = k->w->work, .bytes = sizeof(*f)};
	if (k->n <= k->list_max) {
		f->list = mem_dup(k->list, k->n, sizeof(*k->list));
		f->bytes += k->n * sizeof(*k->list);
	} else {
		f->bits = mem_dup(bits, ((size_t)d->vocab + 63) / 64, sizeof(*bits));
		f->bytes += d->vocab / 8;
	}
	if (k->n_below <= k->below_max) {
		f->exits = mem_dup(exits->nodes, exits->n, sizeof(*exits->nodes));
		f->n_exits = exits->n;
		f->bytes += exits->n * sizeof(*exits->nodes);
	}
	return f;
}

const struct maskdfa_found *maskdfa_find(struct maskdfa *d, struct maskscratch *x, uint32_t set, enum maskdfa_kind kind,
					 uint32_t *work)
{
	struct maskdfa_found *f = d->sets[set].found[kind];

	if (!f) {
		struct maskdfa_exits exits = {0};
		struct maskdfa_walk w = {.bits = mem_array(uint64_t, ((size_t)d->vocab + 63) / 64),
					 .cost_max = UINT32_MAX,
					 .exits = &exits};
		struct walk k;

		walk_begin(d, &k, &w, kind);
		k.below_max = d->trie->n / MASKDFA_BELOW_SHARE;
		k.list_max = d->vocab / LIST_SHARE;
		k.list = mem_array(uint32_t, k.list_max);
		if (walk_below(d, x, &k, 0, set)) {
			f = found_keep(d, &k, w.bits, &exits);
			d->found_bytes += f->bytes;
			d->sets[set].found[kind] = f;
		}
		free(exits.nodes);
		free(k.list);
		free(w.bits);
		if (!f) *work = MASKDFA_WORK_MAX + 1;
	}
	if (f) *work += f->work;
	return *work > MASKDFA_WORK_MAX ? NULL : f;
}
