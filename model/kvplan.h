/* kvplan.h - how much memory a model's context takes, and how many KV blocks there can be: arithmetic on a description.
 *
 * One calculation for everybody: the worker plans with it, `sluice inspect --memory` prints it, `sluice serve` prints it when it does
 * not fit. */
#ifndef SLUICE_KVPLAN_H
#define SLUICE_KVPLAN_H

#include "common/errbuf.h"
#include "common/strbuf.h"
#include "model/spec.h"

#define KVPLAN_BLOCK 16 /* tokens; KBLOCK_LEN of the kernels */

/* Layers whose KV cache is alike. */
enum kvplan_kind { KVPLAN_FULL, KVPLAN_WINDOW, KVPLAN_LATENT };
struct kvplan_group {
	enum kvplan_kind kind;
	uint32_t n_layers, window;
	uint32_t kv_heads, k_dim, v_dim;  /* of this rank; latent: k_dim = kv_lora + rope, v_dim 0 */
	uint64_t block_bytes;             /* of one block over the group's layers, scales of int8 included */
};
#define KVPLAN_GROUPS_MAX 16

/* What a rank keeps of each sequence, whatever its length (linear attention). */
struct kvplan_shape {
	struct kvplan_group groups[KVPLAN_GROUPS_MAX];
	uint32_t n_groups;
	uint64_t block_bytes; /* of all groups */
	uint64_t state_bytes; /* a sequence */
};

/* tp: ranks that share the model (1: none). KV heads are replicated when there are fewer than ranks. ST_INVALID: heads that do not
 * divide; the text lists the sizes that do. ST_UNSUPPORTED: more kinds of layers than KVPLAN_GROUPS_MAX. */
int kvplan_shape(struct kvplan_shape *out, const struct spec *s, enum ggtype kv_type, uint32_t tp, struct errbuf *err) MUST_CHECK;

/* What is known before the number of blocks is. All in bytes. */
struct kvplan_in {
	uint64_t available;                        /* of the device, before anything was taken; UINT64_MAX: unknown */
	uint64_t weights, activations, workspace, state; /* state: of all sequences of a step */
	uint64_t block_bytes;
	uint32_t model_len_max; /* tokens; 0: auto, the longest that fits, at most context_len */
	uint32_t context_len, seqs_max;
	uint64_t blocks_override; /* --num-gpu-blocks-override; 0: not given; wins */
	uint64_t kv_bytes;        /* --kv-cache-memory-bytes; 0: not given; then this */
	double utilization;       /* --gpu-memory-utilization */
	uint64_t auto_max;        /* bytes of an automatic size at most; 0: no limit */
};

enum kvplan_rule { KVPLAN_BY_BLOCKS, KVPLAN_BY_BYTES, KVPLAN_BY_UTILIZATION };
struct kvplan {
	struct kvplan_in in;
	enum kvplan_rule rule;
	uint64_t n_blocks, kv_bytes, left; /* left: of the device, for KV */
	uint32_t model_len_max;            /* the given one, or what auto became */
	double full_seqs;                  /* sequences of model_len_max that fit at once */
};

/* ST_NO_MEMORY with the numbers: no room, what was asked for does not fit, or one request of model_len_max does not fit the pool.
 * ST_INVALID: block_bytes 0 (a model without a KV cache has a pool of positions only: block_bytes is then at least 1), less than one block. */
int kvplan_make(struct kvplan *out, const struct kvplan_in *in, struct errbuf *err) MUST_CHECK;

/* The whole calculation as a table for people: groups, bytes a block and a token, state, weights, activations, what is left, blocks,
 * tokens, sequences. Also when kvplan_make() failed (then it shows how far it came and what is missing). */
void kvplan_table(struct strbuf *out, const struct spec *s, const struct kvplan_shape *shape, const struct kvplan *plan);

#endif
