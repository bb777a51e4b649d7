/* heap.c - see heap.h. */
#include "common/heap.h"

#include "common/mem.h"

void heap_init(struct heap *h, bool (*before)(const struct heap_link *a, const struct heap_link *b))
{
	*h = (struct heap){.before = before};
}

void heap_release(struct heap *h)
{
	free(h->v);
	h->v = NULL;
	h->n = h->cap = 0;
}

static void heap_put(struct heap *h, uint32_t ix, struct heap_link *e)
{
	h->v[ix] = e;
	e->place = ix + 1;
}

static void heap_up(struct heap *h, uint32_t ix)
{
	struct heap_link *e = h->v[ix];

	while (ix > 0 && h->before(e, h->v[(ix - 1) / 2])) {
		heap_put(h, ix, h->v[(ix - 1) / 2]);
		ix = (ix - 1) / 2;
	}
	heap_put(h, ix, e);
}

static void heap_down(struct heap *h, uint32_t ix)
{
	struct heap_link *e = h->v[ix];
	uint32_t child;

	for (; (child = 2 * ix + 1) < h->n; ix = child) {
		if (child + 1 < h->n && h->before(h->v[child + 1], h->v[child])) child++;
		if (!h->before(h->v[child], e)) break;
		heap_put(h, ix, h->v[child]);
	}
	heap_put(h, ix, e);
}

void heap_moved(struct heap *h, struct heap_link *e)
{
	CHECK(e->place > 0 && e->place <= h->n && h->v[e->place - 1] == e);
	heap_up(h, e->place - 1);
	heap_down(h, e->place - 1);
}

void heap_push(struct heap *h, struct heap_link *e)
{
	CHECK(!heap_is_linked(e));
	mem_reserve(h->v, h->cap, (size_t)h->n + 1);
	h->v[h->n++] = e;
	heap_up(h, h->n - 1);
}

void heap_remove(struct heap *h, struct heap_link *e)
{
	struct heap_link *last;
	uint32_t ix = e->place - 1;

	CHECK(heap_is_linked(e) && ix < h->n && h->v[ix] == e);
	last = h->v[--h->n];
	e->place = 0;
	if (last == e) return;
	heap_put(h, ix, last);
	heap_moved(h, last);
}

void heap_check(const struct heap *h)
{
	for (uint32_t i = 0; i < h->n; i++)
		CHECK(h->v[i]->place == i + 1 && (i == 0 || !h->before(h->v[i], h->v[(i - 1) / 2])));
}
