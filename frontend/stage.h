/* stage.h - how long a part of a request's way took: measured where it happens, in any thread. */
#ifndef SLUICE_STAGE_H
#define SLUICE_STAGE_H

#include "common/clock.h"
#include "proto/page.h"

struct stage {
	uint64_t began_ns; /* clock_now_ns(); 0: it has not happened */
	uint64_t ns;       /* of all its parts together */
};

/* What happens to a request before it is submitted. */
struct stages {
	struct stage parse, template, tokenize;
};

/* Returns what stage_end() wants. s may be NULL: nobody asks. */
static inline uint64_t stage_begin(struct stage *s)
{
	uint64_t now;

	if (!s) return 0;
	now = clock_now_ns();
	if (!s->began_ns) s->began_ns = now;
	return now;
}

static inline void stage_end(struct stage *s, uint64_t since)
{
	if (s) s->ns += clock_now_ns() - since;
}

/* Into the status page, of those that have happened. */
void stages_observe(const struct stages *s, struct page_slot *slot);

#endif
