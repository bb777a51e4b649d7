/* gramwalk.c - see gramwalk.h. */
#include "tests/support/gramwalk.h"

#include "common/mem.h"

struct gramwalk_frame {
	const struct gramwalk_frame *up;
	const struct gram_edge *edge; /* the call */
	uint32_t count; /* which of its times this is, from 1; no more than matters when there is no maximum */
	struct gramwalk_frame *next_made;
};

static bool same_frames(const struct gramwalk_frame *a, const struct gramwalk_frame *b)
{
	for (; a != b; a = a->up, b = b->up)
		if (!a || !b || a->edge != b->edge || a->count != b->count) return false;
	return true;
}

static void put(struct gramwalk *w, uint32_t state, const struct gramwalk_frame *frame)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->at[i].state == state && same_frames(w->at[i].frame, frame)) return;
	mem_reserve(w->at, w->cap, w->n + 1);
	w->at[w->n++] = (struct gramwalk_at){state, frame};
}

static void enter(struct gramwalk *w, const struct gramwalk_frame *up, const struct gram_edge *e, uint32_t count)
{
	const struct gram_call *c = &w->g->calls[e->call];
	struct gramwalk_frame *f = mem_new(struct gramwalk_frame);

	*f = (struct gramwalk_frame){.up = up, .edge = e, .count = count, .next_made = w->frames};
	if (c->max == GRAM_NO_END && count > c->min && count > 1) f->count = c->min > 1 ? c->min : 1;
	w->frames = f;
	put(w, w->g->rule_start[c->rule], f);
}

/* Follows what needs no byte; the list grows while it is gone through. */
static void follow(struct gramwalk *w)
{
	const struct gram *g = w->g;

	w->is_whole = false;
	for (size_t i = 0; i < w->n; i++) {
		struct gramwalk_at at = w->at[i];

		if (w->n_max && w->n > w->n_max) {
			w->is_over = true;
			w->is_whole = false;
			w->n = 0;
			return;
		}
		if (g->state_is_final[at.state] && !at.frame) w->is_whole = true;
		if (g->state_is_final[at.state] && at.frame) {
			const struct gram_call *c = &g->calls[at.frame->edge->call];

			if (at.frame->count >= c->min) put(w, at.frame->edge->to, at.frame->up);
			if (at.frame->count < c->max) enter(w, at.frame->up, at.frame->edge, at.frame->count + 1);
		}
		for (uint32_t k = g->state_edges[at.state]; k < g->state_edges[at.state + 1]; k++) {
			const struct gram_edge *e = &g->edges[k];

			if (e->kind == GRAM_EMPTY || (e->kind == GRAM_CALL && g->calls[e->call].min == 0))
				put(w, e->to, at.frame);
			if (e->kind == GRAM_CALL) enter(w, at.frame, e, 1);
		}
	}
}

void gramwalk_init(struct gramwalk *w, const struct gram *g)
{
	*w = (struct gramwalk){.g = g};
	put(w, g->rule_start[0], NULL);
	follow(w);
}

void gramwalk_fork(struct gramwalk *copy, const struct gramwalk *w)
{
	*copy = (struct gramwalk){.g = w->g, .n = w->n, .cap = w->n, .is_whole = w->is_whole, .n_max = w->n_max};
	copy->at = mem_dup(w->at, w->n, sizeof(*w->at));
}

void gramwalk_release(struct gramwalk *w)
{
	while (w->frames) {
		struct gramwalk_frame *f = w->frames;

		w->frames = f->next_made;
		free(f);
	}
	free(w->at);
	*w = (struct gramwalk){0};
}

static void read_byte(struct gramwalk *w, uint8_t byte)
{
	struct gramwalk_at *from = w->at;
	size_t n = w->n;

	w->at = NULL;
	w->n = w->cap = 0;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = w->g->state_edges[from[i].state]; k < w->g->state_edges[from[i].state + 1]; k++) {
			const struct gram_edge *e = &w->g->edges[k];

			if (e->kind == GRAM_BYTES && byte >= e->lo && byte <= e->hi) put(w, e->to, from[i].frame);
		}
	free(from);
	follow(w);
}

bool gramwalk_read(struct gramwalk *w, const char *s, size_t len)
{
	for (size_t i = 0; i < len && w->n > 0; i++) read_byte(w, (uint8_t)s[i]);
	return w->n > 0;
}

uint64_t gramwalk_left(const struct gramwalk *w)
{
	const struct gram *g = w->g;
	uint64_t best = UINT64_MAX;

	for (size_t i = 0; i < w->n; i++) {
		uint64_t left = g->state_min[w->at[i].state];

		for (const struct gramwalk_frame *f = w->at[i].frame; f; f = f->up) {
			const struct gram_call *c = &g->calls[f->edge->call];

			if (c->min > f->count)
				left += (uint64_t)(c->min - f->count) * g->state_min[g->rule_start[c->rule]];
			left += g->state_min[f->edge->to];
		}
		best = min_u64(best, left);
	}
	return best;
}

bool gramwalk_accepts(const struct gram *g, const char *s, size_t len)
{
	struct gramwalk w;
	bool whole;

	gramwalk_init(&w, g);
	whole = gramwalk_read(&w, s, len) && w.is_whole;
	gramwalk_release(&w);
	return whole;
}

/* ---- random texts ---- */

uint32_t gramwalk_below(uint64_t *seed, uint32_t n)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((*seed >> 33) % n);
}

/* The number of byte edges that lead on; the pick-th of them goes to *edge. */
static uint32_t byte_edges(const struct gramwalk *w, uint32_t pick, const struct gram_edge **edge)
{
	uint32_t n = 0;

	for (size_t i = 0; i < w->n; i++)
		for (uint32_t k = w->g->state_edges[w->at[i].state]; k < w->g->state_edges[w->at[i].state + 1]; k++) {
			if (w->g->edges[k].kind != GRAM_BYTES) continue;
			if (n++ == pick) *edge = &w->g->edges[k];
		}
	return n;
}

static uint64_t left_after(const struct gramwalk *w, uint8_t byte)
{
	struct gramwalk next;
	uint64_t left;

	gramwalk_fork(&next, w);
	left = gramwalk_read(&next, (const char *)&byte, 1) ? gramwalk_left(&next) : UINT64_MAX;
	gramwalk_release(&next);
	return left;
}

static uint8_t shortest_byte(const struct gramwalk *w, uint32_t n, uint64_t *seed)
{
	uint64_t best = UINT64_MAX;
	uint32_t from = gramwalk_below(seed, n);
	uint8_t byte = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct gram_edge *e = NULL;
		uint64_t left;

		byte_edges(w, (from + i) % n, &e);
		left = left_after(w, e->lo);
		if (left >= best) continue;
		best = left;
		byte = e->lo;
	}
	return byte;
}

void gramwalk_random(const struct gram *g, uint64_t *seed, size_t len, struct strbuf *out)
{
	struct gramwalk w;
	size_t read = 0;

	gramwalk_init(&w, g);
	for (;;) {
		const struct gram_edge *e = NULL;
		uint32_t n = byte_edges(&w, 0, &e);
		uint8_t byte;

		if (w.is_whole && (n == 0 || read >= len || gramwalk_below(seed, 8) == 0)) break;
		CHECK(n > 0); /* every state can end */
		byte_edges(&w, gramwalk_below(seed, n), &e);
		byte = (uint8_t)(e->lo + gramwalk_below(seed, (uint32_t)e->hi - e->lo + 1));
		if (read >= len) byte = shortest_byte(&w, n, seed);
		CHECK(gramwalk_read(&w, (const char *)&byte, 1));
		strbuf_append(out, &byte, 1);
		read++;
	}
	gramwalk_release(&w);
}
