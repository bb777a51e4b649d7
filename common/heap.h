/* heap.h - intrusive binary heap: the first of many by an order that the owner gives. The heap owns nothing; the element embeds
 * its link, which knows its place, so an element can leave from anywhere.
 *
 * An order may change while an element is in the heap, if heap_moved() is told at once. */
#ifndef SLUICE_HEAP_H
#define SLUICE_HEAP_H

#include "common/base.h"

struct heap_link {
	uint32_t place; /* in heap.v, from 1; 0: in no heap */
};

struct heap {
	struct heap_link **v;
	uint32_t n, cap;
	bool (*before)(const struct heap_link *a, const struct heap_link *b);
};

void heap_init(struct heap *h, bool (*before)(const struct heap_link *a, const struct heap_link *b));
void heap_release(struct heap *h); /* forgets the elements */
void heap_push(struct heap *h, struct heap_link *e);
void heap_remove(struct heap *h, struct heap_link *e);
/* e goes before or behind others than until now. */
void heap_moved(struct heap *h, struct heap_link *e);
void heap_check(const struct heap *h);

static inline struct heap_link *heap_first(const struct heap *h)
{
	return h->n ? h->v[0] : NULL;
}

static inline bool heap_is_linked(const struct heap_link *e)
{
	return e->place != 0;
}

#endif
