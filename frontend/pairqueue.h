/* pairqueue.h - the pairs of a long word that wait to be joined, smallest first.
 *
 * Inside the tokenizer only. Entries are numbers: rank above, place in the word below. Merging pushes pairs mostly of
 * higher ranks than the one that it just popped, so a heap of all of them would be deep for nothing: ranks are cut into
 * ranges, and a range is sorted when its turn comes. Only what is pushed into the range that is being popped, or below it,
 * goes through a heap. */
#ifndef SLUICE_PAIRQUEUE_H
#define SLUICE_PAIRQUEUE_H

#include "common/base.h"

#define PAIRQUEUE_RANGES 256

struct pairqueue_list {
	uint64_t *e;
	size_t n, cap;
};

/* Zero it before the first use; it keeps its memory from word to word. */
struct pairqueue {
	struct pairqueue_list ranges[PAIRQUEUE_RANGES]; /* those behind the current one, in any order */
	uint64_t used[PAIRQUEUE_RANGES / 64];           /* bit: the range is not empty */
	struct pairqueue_list sorted, spare;            /* the current range; memory to sort it with */
	size_t at;                                      /* next of sorted */
	struct pairqueue_list heap;                     /* pushed since into the current range, or below it */
	int current; /* -1: none had its turn yet */
};

void pairqueue_release(struct pairqueue *q);
/* An empty queue; before the first push of a word. */
void pairqueue_reset(struct pairqueue *q);
void pairqueue_push(struct pairqueue *q, uint64_t e);
/* The smallest; false when it is empty. */
bool pairqueue_pop(struct pairqueue *q, uint64_t *e);

#endif
