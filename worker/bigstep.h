/* bigstep.h - a step made up for measuring: so many new sequences with so many tokens each, which is run once and forgotten.
 *
 * Tokens are 0, blocks are numbered through from 0, nothing is asked of the draw but its token. */
#ifndef SLUICE_BIGSTEP_H
#define SLUICE_BIGSTEP_H

#include "common/base.h"
#include "proto/messages.h"

struct bigstep {
	struct msg_step step; /* views of the arrays below */
	uint32_t *u32;        /* owned */
	float *zeros, *ones;
	uint64_t *seeds;
};

/* KV blocks that it names. */
uint64_t bigstep_blocks(uint32_t n_seqs, uint32_t n_tokens, uint32_t n_groups);

void bigstep_init(struct bigstep *b, uint32_t n_seqs, uint32_t n_tokens, uint32_t n_groups);
void bigstep_release(struct bigstep *b);

#endif
