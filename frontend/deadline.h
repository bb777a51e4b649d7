/* deadline.h - moments at which something has to happen unless it is taken back first: a heap, so that a pass of the loop looks at the
 * earliest one only. A deadline is embedded in what it belongs to. Pure: no timer, no clock. */
#ifndef SLUICE_DEADLINE_H
#define SLUICE_DEADLINE_H

#include "common/base.h"

/* All zero: not set. */
struct deadline {
	uint64_t at_ns;
	uint32_t place; /* in the heap, from 1; 0: not set */
};

struct deadlines {
	struct deadline **heap; /* owned; heap[i] is never earlier than heap[(i - 1) / 2] */
	uint32_t n, cap;
};

void deadlines_release(struct deadlines *d);

/* Sets it, or moves it; UINT64_MAX: takes it back. */
void deadline_set(struct deadlines *d, struct deadline *t, uint64_t at_ns);
/* The earliest of those that are due, which is taken back by this; NULL: none. */
struct deadline *deadlines_due(struct deadlines *d, uint64_t now);
/* Of the earliest one; UINT64_MAX: none. */
uint64_t deadlines_next(const struct deadlines *d);

#endif
