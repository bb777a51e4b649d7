/* maskplace.h - where a text may be in a grammar: all the ways it can have been read, each a state and the calls around
 * it.
 *
 * Calls are frames, each with the frame of the rule that called; frames of one store that are alike are one, so a way
 * is two numbers. A call in last position leaves no frame. Frame 0 is the bottom: the grammar's own end, or in masks
 * that are shared (maskdfa.h) whatever lies around.
 *
 * Ways are kept only where a byte is to be read next: ends of rules, empty edges and calls have been followed. This
 * ends, because no rule begins with itself and what is repeated reads something (proto/gram.h). Exact: counts are true
 * counts. */
#ifndef SLUICE_MASKPLACE_H
#define SLUICE_MASKPLACE_H

#include "common/base.h"
#include "proto/gram.h"

#define MASKPLACE_WAYS_MAX  4096       /* of one place; a text with more is too ambiguous */
#define MASKPLACE_DEPTH_MAX 8192       /* frames under one another */
#define MASKPLACE_DEAD      UINT32_MAX /* cost where no way is left */

struct maskframe {
	uint32_t up;       /* frame */
	uint32_t edge;     /* the call's, in gram.edges */
	uint32_t min, max; /* how often the rule must and may be read again after this time; GRAM_NO_END */
	uint32_t left;  /* bytes of the shortest text from the end of this time to the bottom's; saturates at UINT32_MAX
			   - 1 */
	uint32_t depth; /* frames under it */
};

struct maskframes {
	const struct gram *g;
	struct maskframe *all; /* (n); those under a frame come before it */
	uint32_t n, cap;
	uint32_t *slots; /* open addressing: frame, 0 is free */
	uint32_t n_slots;
};

struct maskway {
	uint32_t state, frame;
};

struct maskplace {
	struct maskway *ways;
	uint32_t n, cap;
	bool ends;     /* the bottom is reached: the text may end here */
	bool too_much; /* more ways or frames than the limits: none is kept */
};

/* Memory that following needs, for all places of a thread. */
struct maskscratch {
	struct maskway *work; /* ways still to be followed */
	uint32_t n_work, work_cap;
	uint64_t *seen;    /* open addressing: state << 32 | frame of a way, plus 1 */
	uint32_t *seen_by; /* number of the round in which the slot was filled; older ones are free */
	uint32_t n_slots, n_seen, round;
};

void maskscratch_release(struct maskscratch *x);

void maskframes_init(struct maskframes *f, const struct gram *g); /* g is borrowed */
void maskframes_release(struct maskframes *f);
/* Forgets all frames and keeps the memory. */
void maskframes_reset(struct maskframes *f);
size_t maskframes_bytes(const struct maskframes *f);
/* The frame of these values; UINT32_MAX when it would be too deep. */
uint32_t maskframes_put(struct maskframes *f, uint32_t up, uint32_t edge, uint32_t min, uint32_t max);

void maskplace_release(struct maskplace *p);
/* At the start of rule 0. */
void maskplace_start(struct maskplace *p, struct maskframes *f, struct maskscratch *x);
/* Behind the end of the rule that the frame reads. */
void maskplace_return(struct maskplace *p, struct maskframes *f, struct maskscratch *x, uint32_t frame);
/* Moves from `from`, which may be p, over a byte. */
void maskplace_read(struct maskplace *p, const struct maskway *from, uint32_t n, struct maskframes *f,
		    struct maskscratch *x, uint8_t byte);

/* Bytes of the shortest text to the bottom's end (UINT32_MAX - 1: that many or more); MASKPLACE_DEAD. */
uint32_t maskplace_cost(const struct maskplace *p, const struct maskframes *f);

/* Drops the frames that p does not stand on; p's ways are renumbered. */
void maskplace_compact(struct maskplace *p, struct maskframes *f);

static inline uint32_t maskframe_rule_min(const struct gram *g, uint32_t edge)
{
	return g->state_min[g->rule_start[g->calls[g->edges[edge].call].rule]];
}

#endif
