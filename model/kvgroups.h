/* kvgroups.h - which layers share a block table, so that layers with a window give back what no token will see again.
 *
 * A KV block holds 16 tokens of the layers of one group. Groups have equally many layers (the last of a kind may have
 * fewer: its places stay empty), so blocks of all groups are alike and come from one pool: a sequence takes a block a
 * group for each 16 tokens, and a windowed group gives back those that lie behind its window. Layers without a KV cache
 * (linear attention) are in no group. Layers whose heads differ cannot have each other's blocks: a model that has such
 * is one group, windows or not. This is the scheme of vLLM's hybrid KV cache manager. */
#ifndef SLUICE_KVGROUPS_H
#define SLUICE_KVGROUPS_H

#include "model/spec.h"

#define KVGROUPS_MAX  16
#define KVGROUPS_NONE UINT8_MAX

struct kvgroups {
	uint32_t n_full, n_windowed; /* groups; full ones come first. Both 0: no layer has a KV cache */
	uint32_t window;             /* of the windowed ones: the largest of their layers' */
	uint32_t size; /* places: layers that a group has at most, at least 1 unless there are no groups */
	uint8_t group[SPEC_LAYERS_MAX];  /* of each layer; KVGROUPS_NONE */
	uint16_t place[SPEC_LAYERS_MAX]; /* within its group: layers with the same place use the same memory, in
					    different blocks */
};

/* A window of model_len_max or more is none. */
void kvgroups_make(struct kvgroups *out, const struct spec *s, uint32_t model_len_max);

static inline uint32_t kvgroups_n(const struct kvgroups *g)
{
	return g->n_full + g->n_windowed;
}

/* Blocks of a windowed group that a sequence holds at most, when tokens_ahead more may be scheduled than have been
 * computed: the window before the first of them, and them. */
static inline uint64_t kvgroups_window_blocks(uint32_t window, uint64_t tokens_ahead)
{
	return (window - 1 + tokens_ahead) / 16 + 2;
}

/* Blocks that a sequence of len tokens holds at most. */
uint64_t kvgroups_seq_blocks(const struct kvgroups *g, uint64_t len, uint64_t tokens_ahead);

#endif
