/* masktrie.h - the vocabulary as a trie over bytes, laid out in the order of a walk.
 *
 * Nodes come before their children, and children in the order of their bytes; so a walk is one pass over an array that
 * jumps over what it has no use for. Only text (plain and added tokens) is in it; of no bytes, or too many, none. */
#ifndef SLUICE_MASKTRIE_H
#define SLUICE_MASKTRIE_H

#include "common/base.h"
#include "model/tokbytes.h"

#define MASKTRIE_LEN_MAX 1024 /* bytes of a token; longer ones are never allowed (published ones have up to 256) */

struct masktrie_node {
	uint32_t skip;    /* node behind the last one below this */
	uint32_t tokens;  /* position in ids of the tokens that end here; they end where those of the next node begin */
	uint16_t depth;   /* bytes from the root */
	uint16_t deepest; /* depth of the deepest node at or below this */
	uint8_t byte;     /* that leads here */
};

struct masktrie {
	struct masktrie_node *nodes; /* (n + 1): nodes[0] is the root, nodes[n] ends the tokens of the last one */
	uint32_t n;
	uint32_t *ids; /* tokens in the order of their nodes */
	uint32_t n_ids, depth_max;
};

void masktrie_init(struct masktrie *t, const struct tokbytes *tokens);
void masktrie_release(struct masktrie *t);
size_t masktrie_bytes(const struct masktrie *t);

#endif
