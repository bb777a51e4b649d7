/* pairqueue.c - see pairqueue.h.
 *
 * A range is all ranks with the same highest bit and the same three bits below it: fine where the ranks of common pairs
 * are. Invariant: every entry of a range behind the current one is greater than all that are sorted or in the heap. */
#include "frontend/pairqueue.h"

#include "common/mem.h"

#include <string.h>

static int range_of(uint64_t e)
{
	uint64_t rank = (e >> 32) + 1;
	unsigned high = 63 - (unsigned)__builtin_clzll(rank);

	unsigned below = (unsigned)(high >= 3 ? rank >> (high - 3) : rank << (3 - high)) & 7;

	return (int)((high << 3 | below) & (PAIRQUEUE_RANGES - 1));
}

static void list_add(struct pairqueue_list *l, uint64_t e)
{
	mem_reserve(l->e, l->cap, l->n + 1);
	l->e[l->n++] = e;
}

void pairqueue_release(struct pairqueue *q)
{
	for (size_t i = 0; i < PAIRQUEUE_RANGES; i++) free(q->ranges[i].e);
	free(q->sorted.e);
	free(q->spare.e);
	free(q->heap.e);
	*q = (struct pairqueue){0};
}

void pairqueue_reset(struct pairqueue *q)
{
	for (size_t i = 0; i < PAIRQUEUE_RANGES; i++) q->ranges[i].n = 0;
	memset(q->used, 0, sizeof(q->used));
	q->sorted.n = q->heap.n = q->at = 0;
	q->current = -1;
}

/* ---- the heap ---- */

static void heap_push(struct pairqueue_list *h, uint64_t e)
{
	size_t at = h->n;

	list_add(h, e);
	for (; at > 0 && h->e[(at - 1) / 2] > e; at = (at - 1) / 2) h->e[at] = h->e[(at - 1) / 2];
	h->e[at] = e;
}

static uint64_t heap_pop(struct pairqueue_list *h)
{
	uint64_t top = h->e[0], e = h->e[--h->n];
	size_t at = 0;

	for (size_t child; (child = at * 2 + 1) < h->n; at = child) {
		if (child + 1 < h->n && h->e[child + 1] < h->e[child]) child++;
		if (h->e[child] >= e) break;
		h->e[at] = h->e[child];
	}
	h->e[at] = e;
	return top;
}

/* ---- a range in its turn ---- */

static bool is_sorted(const struct pairqueue_list *l)
{
	for (size_t i = 1; i < l->n; i++)
		if (l->e[i - 1] > l->e[i]) return false;
	return true;
}

/* By one byte of the entries, those with equal ones in their order. */
static void sort_by_byte(struct pairqueue_list *l, struct pairqueue_list *spare, unsigned shift)
{
	size_t starts[257] = {0};
	struct pairqueue_list swap;

	for (size_t i = 0; i < l->n; i++) starts[(l->e[i] >> shift & 255) + 1]++;
	for (size_t b = 0; b < 256; b++)
		if (starts[b + 1] == l->n) return; /* all have the same */
	for (size_t b = 0; b < 256; b++) starts[b + 1] += starts[b];
	mem_reserve(spare->e, spare->cap, l->n);
	for (size_t i = 0; i < l->n; i++) spare->e[starts[l->e[i] >> shift & 255]++] = l->e[i];
	spare->n = l->n;
	swap = *l;
	*l = *spare;
	*spare = swap;
}

static void sort(struct pairqueue_list *l, struct pairqueue_list *spare)
{
	if (l->n <= 32) { /* a few: by insertion */
		for (size_t i = 1; i < l->n; i++) {
			uint64_t e = l->e[i];
			size_t at = i;

			for (; at > 0 && l->e[at - 1] > e; at--) l->e[at] = l->e[at - 1];
			l->e[at] = e;
		}
		return;
	}
	if (is_sorted(l)) return;
	for (unsigned shift = 0; shift < 64; shift += 8) sort_by_byte(l, spare, shift);
}

/* Makes the next range that has entries the current one; false when there is none. */
static bool next_range(struct pairqueue *q)
{
	struct pairqueue_list swap;

	for (unsigned word = 0; word < ARRAY_LEN(q->used); word++) {
		if (q->used[word] == 0) continue;
		q->current = (int)word * 64 + __builtin_ctzll(q->used[word]);
		q->used[word] &= q->used[word] - 1;
		swap = q->sorted;
		q->sorted = q->ranges[q->current];
		q->ranges[q->current] = swap;
		q->ranges[q->current].n = 0;
		q->at = 0;
		sort(&q->sorted, &q->spare);
		return true;
	}
	return false;
}

/* ---- pushing and popping ---- */

void pairqueue_push(struct pairqueue *q, uint64_t e)
{
	int range = range_of(e);

	if (range <= q->current) {
		heap_push(&q->heap, e);
		return;
	}
	list_add(&q->ranges[range], e);
	q->used[range / 64] |= 1ull << (range % 64);
}

bool pairqueue_pop(struct pairqueue *q, uint64_t *e)
{
	if (q->at == q->sorted.n && q->heap.n == 0 && !next_range(q)) return false;
	if (q->heap.n > 0 && (q->at == q->sorted.n || q->heap.e[0] < q->sorted.e[q->at]))
		*e = heap_pop(&q->heap);
	else
		*e = q->sorted.e[q->at++];
	return true;
}
