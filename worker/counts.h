/* counts.h - which tokens a sequence holds and how often, for the penalties. Kept up token by token.
 *
 * The list of distinct tokens is what the sampler takes (struct ksample, `seen`); a hash table finds a token's place in it. */
#ifndef SLUICE_COUNTS_H
#define SLUICE_COUNTS_H

#include "common/base.h"

struct counts {
	uint32_t *pairs; /* (n, 2): token, output count | KSEEN_PROMPT */
	uint32_t n, pairs_cap; /* pairs; elements */
	uint32_t *places;      /* (n_places): 1 + index of a pair, 0: free; open addressing */
	uint32_t n_places;     /* power of two, at least twice n */
};

void counts_release(struct counts *c);
void counts_add(struct counts *c, uint32_t token, bool is_prompt);

#endif
