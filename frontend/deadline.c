/* deadline.c - see deadline.h. */
#include "frontend/deadline.h"

#include "common/mem.h"

#include <stdlib.h>

void deadlines_release(struct deadlines *d)
{
	free(d->heap);
	*d = (struct deadlines){0};
}

static void heap_put(struct deadlines *d, uint32_t i, struct deadline *t)
{
	d->heap[i] = t;
	t->place = i + 1;
}

static void heap_up(struct deadlines *d, uint32_t i)
{
	struct deadline *t = d->heap[i];

	for (; i > 0 && d->heap[(i - 1) / 2]->at_ns > t->at_ns; i = (i - 1) / 2) heap_put(d, i, d->heap[(i - 1) / 2]);
	heap_put(d, i, t);
}

static void heap_down(struct deadlines *d, uint32_t i)
{
	struct deadline *t = d->heap[i];

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= d->n) break;
		if (child + 1 < d->n && d->heap[child + 1]->at_ns < d->heap[child]->at_ns) child++;
		if (d->heap[child]->at_ns >= t->at_ns) break;
		heap_put(d, i, d->heap[child]);
		i = child;
	}
	heap_put(d, i, t);
}

static void heap_remove(struct deadlines *d, struct deadline *t)
{
	uint32_t i = t->place - 1;
	struct deadline *last = d->heap[--d->n];

	t->place = 0;
	if (last == t) return;
	d->heap[i] = last;
	heap_up(d, i);
	heap_down(d, last->place - 1);
}

void deadline_set(struct deadlines *d, struct deadline *t, uint64_t at_ns)
{
	if (t->place && t->at_ns == at_ns) return;
	if (t->place) heap_remove(d, t);
	t->at_ns = at_ns;
	if (at_ns == UINT64_MAX) return;
	if (d->n == d->cap) {
		d->cap = max_u32(64, 2 * d->cap);
		d->heap = mem_realloc(d->heap, d->cap, sizeof(struct deadline *));
	}
	d->heap[d->n] = t;
	heap_up(d, d->n++);
}

struct deadline *deadlines_due(struct deadlines *d, uint64_t now)
{
	struct deadline *t;

	if (d->n == 0 || d->heap[0]->at_ns > now) return NULL;
	t = d->heap[0];
	heap_remove(d, t);
	return t;
}

uint64_t deadlines_next(const struct deadlines *d)
{
	return d->n ? d->heap[0]->at_ns : UINT64_MAX;
}
