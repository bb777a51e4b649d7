/* maskfill.h - the tokens that a place in a grammar allows, put together from walks that many places share.
 *
 * A place is cut at the frame that all its ways stand on: what is above it makes a set of maskdfa.h, and the tokens
 * that stay above it are those that the set's kept walk found. Where that walk reached the frame's end, the tokens that
 * go on are looked for from what lies below, cut in the same way, and so on down. Counts that no token can use up are
 * made equal first, so a string of at most 4,000 characters and one of any length, in any object, share one walk.
 *
 * Any cut gives the same tokens. */
#ifndef SLUICE_MASKFILL_H
#define SLUICE_MASKFILL_H

#include "worker/maskdfa.h"

/* Memory for filling, for all sequences of a thread. */
struct maskfill_scratch {
	struct maskscratch place;
	struct maskplace local, outer;
	struct maskfill_memo *memo; /* by frame of the sequence */
	uint32_t memo_cap, round;
	uint32_t *chain; /* frames between two known ones */
	uint32_t chain_cap;
	struct maskdfa_exits exits[2];
};

void maskfill_scratch_release(struct maskfill_scratch *x);

/* Adds the allowed tokens to bits. Only those after which the end of the output costs at most `cost_max` bytes;
 * UINT32_MAX: all. frames, the place's, get more. False: too ambiguous. */
bool maskfill_run(struct maskdfa *d, struct maskfill_scratch *x, struct maskframes *frames,
		  const struct maskplace *place, uint32_t cost_max, uint64_t *bits) MUST_CHECK;

#endif
