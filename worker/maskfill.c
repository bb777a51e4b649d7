/* maskfill.c - see maskfill.h. */
#include "worker/maskfill.h"

#include "common/mem.h"

#include <string.h>

/* A cut is moved down when more than one in so many of the trie's nodes lie below the exits: those are walked each
 * time. */
#define MASKDFA_BELOW_SHARE 16

struct maskfill_memo {
	uint32_t round;  /* of the cut for which the rest holds */
	uint32_t local;  /* the frame in the shared walks' store */
	uint64_t offset; /* bytes that equal counts hide, of this frame and those under it down to the cut */
};

struct fill {
	struct maskdfa *d;
	struct maskfill_scratch *x;
	struct maskframes *frames; /* the sequence's */
	uint32_t cost_max;         /* UINT32_MAX: any */
	uint64_t *bits;
	uint32_t work;
};

void maskfill_scratch_release(struct maskfill_scratch *x)
{
	maskscratch_release(&x->place);
	maskplace_release(&x->local);
	maskplace_release(&x->outer);
	free(x->memo);
	free(x->chain);
	free(x->exits[0].nodes);
	free(x->exits[1].nodes);
	*x = (struct maskfill_scratch){0};
}

/* ---- cutting ---- */

/* The highest frame that all ways stand on. */
static uint32_t fill_common(const struct maskframes *f, const struct maskplace *p)
{
	uint32_t a = p->ends || p->n == 0 ? 0 : p->ways[0].frame;

	for (uint32_t i = 1; i < p->n && a != 0; i++) {
		uint32_t b = p->ways[i].frame;

		while (a != b) {
			if (f->all[a].depth >= f->all[b].depth)
				a = f->all[a].up;
			else
				b = f->all[b].up;
		}
	}
	return a;
}

struct cut {
	uint32_t base; /* frame that is the bottom */
	uint32_t clip; /* bytes that can be read at most: counts above it are equal */
	bool keep_min; /* but not minima: the ways would hide different costs */
	uint32_t set;
	uint64_t offset; /* to be added to the set's costs to reach the bottom */
};

static void memo_reserve(struct maskfill_scratch *x, uint32_t n)
{
	uint32_t cap = x->memo_cap;

	mem_reserve(x->memo, x->memo_cap, (size_t)n);
	if (x->memo_cap > cap) memset(x->memo + cap, 0, (x->memo_cap - cap) * sizeof(*x->memo));
	if (++x->round != 0) return;
	memset(x->memo, 0, x->memo_cap * sizeof(*x->memo));
	x->round = 1;
}

/* The frame as the shared walks know it, and those under it; NULL: too deep. */
static const struct maskfill_memo *cut_frame(struct fill *f, const struct cut *c, uint32_t frame)
{
	struct maskfill_scratch *x = f->x;
	struct maskfill_memo *memo = x->memo;
	uint32_t under = frame, n = 0;

	memo[c->base] = (struct maskfill_memo){.round = x->round};
	/* Down to what is known, and up again from there. */
	for (; memo[under].round != x->round; under = f->frames->all[under].up) {
		mem_reserve(x->chain, x->chain_cap, (size_t)n + 1);
		x->chain[n++] = under;
	}
	while (n > 0) {
		uint32_t at = x->chain[--n];
		const struct maskframe *frame_at = &f->frames->all[at];
		uint32_t min = frame_at->min > c->clip && !c->keep_min ? c->clip + 1 : frame_at->min;
		uint32_t max = frame_at->max > c->clip ? GRAM_NO_END : frame_at->max;
		uint64_t hidden = (uint64_t)(frame_at->min - min) * maskframe_rule_min(f->frames->g, frame_at->edge);

		memo[at] = (struct maskfill_memo){
			.round = x->round,
			.local = maskframes_put(&f->d->frames, memo[under].local, frame_at->edge, min, max),
			.offset = memo[under].offset + hidden};
		if (memo[at].local == UINT32_MAX) return NULL;
		under = at;
	}
	return &memo[frame];
}

/* Fills c->set and c->offset. */
static void cut_try(struct fill *f, const struct maskplace *p, struct cut *c, bool *differ)
{
	struct maskplace *local = &f->x->local;

	memo_reserve(f->x, f->frames->n);
	local->n = 0;
	local->ends = p->ends;
	local->too_much = *differ = false;
	mem_reserve(local->ways, local->cap, p->n);
	for (uint32_t i = 0; i < p->n && !local->too_much; i++) {
		const struct maskfill_memo *m = cut_frame(f, c, p->ways[i].frame);

		if (!m) {
			local->too_much = true;
			break;
		}
		if (i == 0) c->offset = m->offset;
		*differ |= m->offset != c->offset;
		local->ways[local->n++] = (struct maskway){p->ways[i].state, m->local};
	}
	c->set = *differ ? MASKDFA_DEAD : maskdfa_set(f->d, local);
}

static struct cut fill_cut(struct fill *f, const struct maskplace *p, uint32_t base, uint32_t clip)
{
	struct cut c = {.base = base, .clip = clip};
	bool differ;

	cut_try(f, p, &c, &differ);
	if (!differ) return c;
	c.keep_min = true;
	cut_try(f, p, &c, &differ);
	CHECK(!differ);
	return c;
}

/* What a token may cost down to the cut, so that it costs at most cost_max in all. False: none may. */
static bool fill_cost_max(const struct fill *f, const struct cut *c, uint32_t *cost_max)
{
	uint64_t rest = c->offset + f->frames->all[c->base].left;

	*cost_max = f->cost_max == UINT32_MAX ? UINT32_MAX : (uint32_t)(f->cost_max - rest);
	return f->cost_max == UINT32_MAX || rest <= f->cost_max;
}

/* ---- from the root ---- */

/* The kept walks that cover all tokens: one, or one for the short and one for the long tokens when their sets differ.
 */
struct roots {
	struct cut cuts[2];
	enum maskdfa_kind kinds[2];
	const struct maskdfa_found *found[2];
	int n;
};

static bool roots_find(struct fill *f, const struct maskplace *p, uint32_t base, struct roots *r)
{
	uint32_t depth_max = f->d->trie->depth_max;

	r->n = 1;
	r->kinds[0] = MASKDFA_ALL;
	r->cuts[0] = fill_cut(f, p, base, min_u32(depth_max, MASKDFA_SHORT_LEN));
	if (depth_max > MASKDFA_SHORT_LEN) {
		r->cuts[1] = fill_cut(f, p, base, depth_max);
		if (r->cuts[1].set != r->cuts[0].set) {
			r->n = 2;
			r->kinds[0] = MASKDFA_SHORT;
			r->kinds[1] = MASKDFA_LONG;
		}
	}
	for (int i = 0; i < r->n; i++) {
		if (r->cuts[i].set == MASKDFA_DEAD) return false;
		r->found[i] = maskdfa_find(f->d, &f->x->place, r->cuts[i].set, r->kinds[i], &f->work);
		if (!r->found[i]) return false;
	}
	return true;
}

static uint64_t roots_below(const struct roots *r)
{
	return r->found[0]->n_below + (r->n > 1 ? r->found[1]->n_below : 0);
}

static void found_add(const struct maskdfa_found *found, uint32_t vocab, uint64_t *bits)
{
	for (uint32_t i = 0; found->list && i < found->n; i++) bits[found->list[i] / 64] |= 1ull << found->list[i] % 64;
	for (uint32_t i = 0; found->bits && i < (vocab + 63) / 64; i++) bits[i] |= found->bits[i];
}

static void roots_add(struct fill *f, const struct roots *r)
{
	for (int i = 0; i < r->n; i++) {
		struct maskdfa_walk w = {.bits = f->bits};

		if (!fill_cost_max(f, &r->cuts[i], &w.cost_max)) continue;
		if (r->found[i]->cost_max <= w.cost_max)
			found_add(r->found[i], f->d->vocab, f->bits);
		else
			maskdfa_filter(f->d, &f->x->place, r->cuts[i].set, r->kinds[i], &w);
	}
}

static int node_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Each node once: what is below it is the same whichever way it was reached. */
static void exits_unite(struct maskdfa_exits *e)
{
	uint32_t n = 0;
	bool sorted = true;

	for (uint32_t i = 1; i < e->n && sorted; i++) sorted = e->nodes[i - 1] < e->nodes[i];
	if (sorted) return;
	qsort(e->nodes, e->n, sizeof(*e->nodes), node_compare);
	for (uint32_t i = 0; i < e->n; i++)
		if (n == 0 || e->nodes[n - 1] != e->nodes[i]) e->nodes[n++] = e->nodes[i];
	e->n = n;
}

static void roots_exits(const struct roots *r, struct maskdfa_exits *e)
{
	e->n = 0;
	for (int i = 0; i < r->n; i++) {
		mem_reserve(e->nodes, e->cap, (size_t)e->n + r->found[i]->n_exits);
		if (r->found[i]->n_exits)
			memcpy(e->nodes + e->n, r->found[i]->exits, r->found[i]->n_exits * sizeof(*e->nodes));
		e->n += r->found[i]->n_exits;
	}
	exits_unite(e);
}

/* ---- and on below the cut ---- */

/* Goes on from the exits with what follows the frame *base; then *base is the next cut, and e its exits. */
static bool fill_go_on(struct fill *f, uint32_t *base, struct maskdfa_exits *e, struct maskdfa_exits *next)
{
	struct maskplace *outer = &f->x->outer;
	struct maskdfa_walk w = {.bits = f->bits, .work = f->work};
	struct cut c;

	maskplace_return(outer, f->frames, &f->x->place, *base);
	if (outer->too_much) return false;
	next->n = 0;
	*base = fill_common(f->frames, outer);
	/* What is repeated would be left at every turn. */
	while (*base != 0 && f->frames->all[*base].max > 0) *base = f->frames->all[*base].up;
	if (outer->n == 0) return true;
	c = fill_cut(f, outer, *base, f->d->trie->depth_max);
	if (c.set == MASKDFA_DEAD) return false;
	if (*base != 0) w.exits = next;
	/* Where no token may end any more, one that goes through may still end further down. */
	if (!fill_cost_max(f, &c, &w.cost_max)) w.bits = NULL;
	maskdfa_go_on(f->d, &f->x->place, c.set, e, &w);
	exits_unite(next);
	f->work = w.work;
	return f->work <= MASKDFA_WORK_MAX;
}

bool maskfill_run(struct maskdfa *d, struct maskfill_scratch *x, struct maskframes *frames,
		  const struct maskplace *place, uint32_t cost_max, uint64_t *bits)
{
	struct fill f = {.d = d, .x = x, .frames = frames, .cost_max = cost_max, .bits = bits};
	uint32_t base = fill_common(frames, place);
	struct roots r;
	int turn = 0;

	if (place->n == 0) return true;
	for (;; base = frames->all[base].up) {
		if (!roots_find(&f, place, base, &r)) return false;
		if (base == 0 || roots_below(&r) <= d->trie->n / MASKDFA_BELOW_SHARE) break;
	}
	roots_add(&f, &r);
	if (base != 0) roots_exits(&r, &x->exits[turn]);
	for (; base != 0 && x->exits[turn].n > 0; turn ^= 1)
		if (!fill_go_on(&f, &base, &x->exits[turn], &x->exits[turn ^ 1])) return false;
	return true;
}
