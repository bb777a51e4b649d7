/* maskplace.c - see maskplace.h. */
#include "worker/maskplace.h"

#include "common/mem.h"

#include <string.h>

#define COST_MAX (UINT32_MAX - 1)
#define NO_FRAME UINT32_MAX

static uint32_t hash_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	uint64_t h = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15ull;

	h ^= h >> 29;
	h = (h ^ ((uint64_t)c << 32 | d)) * 0xBF58476D1CE4E5B9ull;
	return (uint32_t)(h >> 32);
}

/* ---- frames ---- */

void maskframes_init(struct maskframes *f, const struct gram *g)
{
	*f = (struct maskframes){.g = g};
	mem_reserve(f->all, f->cap, 16);
	f->n_slots = 32;
	f->slots = mem_array(uint32_t, f->n_slots);
	maskframes_reset(f);
}

void maskframes_release(struct maskframes *f)
{
	free(f->all);
	free(f->slots);
	*f = (struct maskframes){0};
}

void maskframes_reset(struct maskframes *f)
{
	memset(f->slots, 0, f->n_slots * sizeof(*f->slots));
	f->all[0] = (struct maskframe){0};
	f->n = 1;
}

size_t maskframes_bytes(const struct maskframes *f)
{
	return f->cap * sizeof(*f->all) + f->n_slots * sizeof(*f->slots);
}

static uint32_t *frames_slot(const struct maskframes *f, uint32_t up, uint32_t edge, uint32_t min, uint32_t max)
{
	uint32_t at = hash_words(up, edge, min, max) & (f->n_slots - 1);

	for (uint32_t i; (i = f->slots[at]) != 0; at = (at + 1) & (f->n_slots - 1)) {
		const struct maskframe *o = &f->all[i];

		if (o->up == up && o->edge == edge && o->min == min && o->max == max) break;
	}
	return &f->slots[at];
}

static void frames_rehash(struct maskframes *f)
{
	memset(f->slots, 0, f->n_slots * sizeof(*f->slots));
	for (uint32_t i = 1; i < f->n; i++) {
		const struct maskframe *o = &f->all[i];

		*frames_slot(f, o->up, o->edge, o->min, o->max) = i;
	}
}

uint32_t maskframes_put(struct maskframes *f, uint32_t up, uint32_t edge, uint32_t min, uint32_t max)
{
	uint32_t *slot = frames_slot(f, up, edge, min, max);
	uint64_t left;

	if (*slot) return *slot;
	if (f->all[up].depth >= MASKPLACE_DEPTH_MAX) return NO_FRAME;
	if (f->n * 2 >= f->n_slots) {
		f->n_slots *= 2;
		f->slots = mem_realloc(f->slots, f->n_slots, sizeof(*f->slots));
		frames_rehash(f);
		slot = frames_slot(f, up, edge, min, max);
	}
	left = (uint64_t)min * maskframe_rule_min(f->g, edge);
	left += (uint64_t)f->g->state_min[f->g->edges[edge].to] + f->all[up].left;
	mem_reserve(f->all, f->cap, (size_t)f->n + 1);
	f->all[f->n] = (struct maskframe){.up = up,
					  .edge = edge,
					  .min = min,
					  .max = max,
					  .left = (uint32_t)min_u64(left, COST_MAX),
					  .depth = f->all[up].depth + 1};
	*slot = f->n;
	return f->n++;
}

/* ---- following ---- */

void maskscratch_release(struct maskscratch *x)
{
	free(x->work);
	free(x->seen);
	free(x->seen_by);
	*x = (struct maskscratch){0};
}

static void seen_grow(struct maskscratch *x)
{
	uint64_t *old = x->seen;
	uint32_t *old_by = x->seen_by, n = x->n_slots;

	x->n_slots = n ? n * 2 : 256;
	x->seen = mem_array(uint64_t, x->n_slots);
	x->seen_by = mem_array(uint32_t, x->n_slots);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at;

		if (old_by[i] != x->round) continue;
		at = hash_words((uint32_t)(old[i] >> 32), (uint32_t)old[i], 0, 0) & (x->n_slots - 1);
		while (x->seen_by[at] == x->round) at = (at + 1) & (x->n_slots - 1);
		x->seen[at] = old[i];
		x->seen_by[at] = x->round;
	}
	free(old);
	free(old_by);
}

static void follow_begin(struct maskscratch *x)
{
	x->n_work = x->n_seen = 0;
	if (++x->round == 0) { /* after 2^32 rounds, old marks would look new */
		memset(x->seen_by, 0, x->n_slots * sizeof(*x->seen_by));
		x->round = 1;
	}
}

/* Puts a way on the list unless it was there in this round. */
static void follow_add(struct maskscratch *x, uint32_t state, uint32_t frame)
{
	uint64_t key = (uint64_t)state << 32 | frame;
	uint32_t at;

	if (x->n_seen * 2 >= x->n_slots) seen_grow(x);
	at = hash_words(state, frame, 0, 0) & (x->n_slots - 1);
	for (; x->seen_by[at] == x->round; at = (at + 1) & (x->n_slots - 1))
		if (x->seen[at] == key) return;
	x->seen[at] = key;
	x->seen_by[at] = x->round;
	x->n_seen++;
	mem_reserve(x->work, x->work_cap, (size_t)x->n_work + 1);
	x->work[x->n_work++] = (struct maskway){state, frame};
}

/* Nothing can come in the rule behind this state: whoever calls from the edge to it need not be remembered. */
static bool state_is_last(const struct gram *g, uint32_t state)
{
	return g->state_is_final[state] && g->state_edges[state] == g->state_edges[state + 1];
}

/* Begins to read the rule that the edge calls; min and max are what remains after this time. */
static void follow_enter(struct maskplace *p, struct maskframes *f, struct maskscratch *x, uint32_t up, uint32_t edge,
			 uint32_t min, uint32_t max)
{
	const struct gram *g = f->g;
	uint32_t frame = up;

	if (min > 0 || max > 0 || !state_is_last(g, g->edges[edge].to)) frame = maskframes_put(f, up, edge, min, max);
	if (frame == NO_FRAME)
		p->too_much = true;
	else
		follow_add(x, g->rule_start[g->calls[g->edges[edge].call].rule], frame);
}

/* One time less; no end stays no end. */
static uint32_t times_less(uint32_t n)
{
	return n == 0 || n == GRAM_NO_END ? n : n - 1;
}

/* Goes on behind a rule's end. */
static void follow_return(struct maskplace *p, struct maskframes *f, struct maskscratch *x, uint32_t frame)
{
	struct maskframe at = f->all[frame];

	if (frame == 0) {
		p->ends = true;
		return;
	}
	if (at.min == 0) follow_add(x, f->g->edges[at.edge].to, at.up);
	if (at.max > 0) follow_enter(p, f, x, at.up, at.edge, times_less(at.min), times_less(at.max));
}

static void follow_edges(struct maskplace *p, struct maskframes *f, struct maskscratch *x, struct maskway way,
			 bool *reads)
{
	const struct gram *g = f->g;

	for (uint32_t i = g->state_edges[way.state]; i < g->state_edges[way.state + 1]; i++) {
		const struct gram_edge *e = &g->edges[i];

		if (e->kind == GRAM_BYTES) {
			*reads = true;
		} else if (e->kind == GRAM_EMPTY) {
			follow_add(x, e->to, way.frame);
		} else {
			const struct gram_call *c = &g->calls[e->call];

			if (c->min == 0) follow_add(x, e->to, way.frame);
			follow_enter(p, f, x, way.frame, i, times_less(c->min), times_less(c->max));
		}
	}
}

/* Turns the ways on the list, and what they lead to without a byte, into p's. The list grows meanwhile. */
static void follow_all(struct maskplace *p, struct maskframes *f, struct maskscratch *x)
{
	for (uint32_t i = 0; i < x->n_work && !p->too_much; i++) {
		struct maskway way = x->work[i];
		bool reads = false;

		if (f->g->state_is_final[way.state]) follow_return(p, f, x, way.frame);
		follow_edges(p, f, x, way, &reads);
		if (!reads) continue;
		if (p->n == MASKPLACE_WAYS_MAX || x->n_work > 16 * MASKPLACE_WAYS_MAX) p->too_much = true;
		mem_reserve(p->ways, p->cap, (size_t)p->n + 1);
		p->ways[p->n++] = way;
	}
	if (!p->too_much) return;
	p->n = 0;
	p->ends = false;
}

/* ---- places ---- */

void maskplace_release(struct maskplace *p)
{
	free(p->ways);
	*p = (struct maskplace){0};
}

static void place_clear(struct maskplace *p)
{
	p->n = 0;
	p->ends = p->too_much = false;
}

void maskplace_start(struct maskplace *p, struct maskframes *f, struct maskscratch *x)
{
	place_clear(p);
	follow_begin(x);
	follow_add(x, f->g->rule_start[0], 0);
	follow_all(p, f, x);
}

void maskplace_return(struct maskplace *p, struct maskframes *f, struct maskscratch *x, uint32_t frame)
{
	place_clear(p);
	follow_begin(x);
	follow_return(p, f, x, frame);
	follow_all(p, f, x);
}

void maskplace_read(struct maskplace *p, const struct maskway *from, uint32_t n, struct maskframes *f,
		    struct maskscratch *x, uint8_t byte)
{
	const struct gram *g = f->g;

	follow_begin(x);
	for (uint32_t w = 0; w < n; w++)
		for (uint32_t i = g->state_edges[from[w].state]; i < g->state_edges[from[w].state + 1]; i++) {
			const struct gram_edge *e = &g->edges[i];

			if (e->kind == GRAM_BYTES && byte >= e->lo && byte <= e->hi)
				follow_add(x, e->to, from[w].frame);
		}
	place_clear(p); /* from may be its ways, which were all looked at */
	follow_all(p, f, x);
}

uint32_t maskplace_cost(const struct maskplace *p, const struct maskframes *f)
{
	uint64_t best = p->ends ? 0 : MASKPLACE_DEAD;

	for (uint32_t i = 0; i < p->n; i++) {
		uint64_t cost = (uint64_t)f->g->state_min[p->ways[i].state] + f->all[p->ways[i].frame].left;

		best = min_u64(best, min_u64(cost, COST_MAX));
	}
	return (uint32_t)best;
}

void maskplace_compact(struct maskplace *p, struct maskframes *f)
{
	uint32_t *to = mem_array(uint32_t, f->n), n = 1;

	for (uint32_t i = 0; i < p->n; i++) to[p->ways[i].frame] = 1;
	for (uint32_t i = f->n; i-- > 1;)
		if (to[i]) to[f->all[i].up] = 1;
	to[0] = 0;
	for (uint32_t i = 1; i < f->n; i++) {
		if (!to[i]) continue;
		to[i] = n;
		f->all[n] = f->all[i];
		f->all[n++].up = to[f->all[i].up];
	}
	for (uint32_t i = 0; i < p->n; i++) p->ways[i].frame = to[p->ways[i].frame];
	f->n = n;
	frames_rehash(f);
	free(to);
}
