/* kvplan.h - how much memory a model's context takes, and how many KV blocks there can be: arithmetic on a description.
 *
 * One calculation for everybody: the worker plans with it, `sluice inspect --memory` prints it, `sluice serve` prints
 * it when it does not fit. Nothing here looks at a machine or a file: what is available, and what weights and a step
 * take, is told by the caller. */
#ifndef SLUICE_KVPLAN_H
#define SLUICE_KVPLAN_H

#include "common/errbuf.h"
#include "common/strbuf.h"
#include "model/kvgroups.h"
#include "model/spec.h"

#define KVPLAN_BLOCK      16         /* tokens; KBLOCK_LEN of the kernels */
#define KVPLAN_BLOCKS_MAX (1u << 27) /* numbers of slots (block * 16 + offset) are 32 bits */

/* Layers whose KV cache is alike. */
enum kvplan_kind { KVPLAN_FULL, KVPLAN_WINDOW, KVPLAN_LATENT };
struct kvplan_layers {
	enum kvplan_kind kind;
	uint32_t n_layers, window;
	uint32_t kv_heads, k_dim, v_dim; /* of this rank; latent: one head, k_dim = kv_lora + rope, v_dim 0 */
	uint64_t bytes;                  /* of 16 tokens over all of them, scales of int8 included */
};
#define KVPLAN_KINDS_MAX 16

struct kvplan_shape {
	enum ggtype kv_type;
	uint32_t tp, model_len_max;                    /* as given */
	struct kvplan_layers layers[KVPLAN_KINDS_MAX]; /* in the order of their first layers */
	uint32_t n_kinds;
	uint64_t bytes;          /* of 16 tokens over all layers */
	struct kvgroups groups;  /* which layers share blocks */
	uint64_t block_bytes;    /* of a block: 16 tokens of the layers of one group; 1 when the model has no KV cache:
				  * then blocks    are numbers of positions only */
	uint32_t n_state_layers; /* linear attention: */
	uint64_t state_bytes;    /* what they keep of a sequence, whatever its length, on this rank */
};

/* tp: ranks that share the model (1: none). Heads are divided; KV heads are replicated when there are fewer than ranks,
 * and so are the key heads of linear attention; a latent vector is on every rank. model_len_max: as kvgroups_make()
 * takes it; the longest possible when it is not known yet (a length that becomes shorter leaves the groups as they
 * are). ST_INVALID: heads that do not divide; the text lists the sizes that do. ST_UNSUPPORTED: more kinds of layers
 * than KVPLAN_KINDS_MAX, or a type that no KV cache has. */
int kvplan_shape(struct kvplan_shape *out, const struct spec *s, enum ggtype kv_type, uint32_t tp,
		 uint32_t model_len_max, struct errbuf *err) MUST_CHECK;

/* What is known before the number of blocks is. All in bytes. */
struct kvplan_in {
	uint64_t available; /* of the device, before anything was taken; UINT64_MAX: unknown */
	uint64_t weights, activations, workspace, state; /* state: of all sequences of a step */
	const struct kvplan_shape *shape;                /* borrowed as long as the plan is used */
	uint64_t tokens_ahead;  /* of a sequence, that may be scheduled before they are computed: steps in flight times
				   their tokens */
	uint32_t model_len_max; /* tokens; 0: auto, the longest that fits, at most context_len */
	uint32_t context_len, seqs_max;
	uint64_t blocks_override; /* --num-gpu-blocks-override; 0: not given; wins */
	uint64_t kv_bytes;        /* --kv-cache-memory-bytes; 0: not given; then this */
	double utilization;       /* --gpu-memory-utilization: of `available`, everything included */
	uint64_t auto_max; /* bytes of an automatic size at most, but never less than one request needs; 0: no limit */
};

enum kvplan_rule { KVPLAN_BY_BLOCKS, KVPLAN_BY_BYTES, KVPLAN_BY_UTILIZATION };
struct kvplan {
	struct kvplan_in in;
	enum kvplan_rule rule;
	uint64_t fixed;         /* weights, activations, workspace and state */
	uint64_t allowed;       /* of the device, for everything: `available`, or utilization's share of it */
	uint64_t left;          /* of these, for KV; UINT64_MAX: unknown */
	uint64_t n_blocks;      /* when it failed: as many as there could be */
	uint64_t kv_bytes;      /* of these */
	uint32_t model_len_max; /* the given one, or what auto became: one block when that is too much */
	uint64_t blocks_needed; /* of one request of model_len_max */
	uint32_t len_fits;      /* the longest request that n_blocks hold, at most context_len */
	double full_seqs;       /* sequences of model_len_max that fit at once */
};

/* An automatic size is never more than seqs_max requests of full length need.
 * ST_NO_MEMORY with the numbers: no room, what was asked for does not fit, or one request of model_len_max does not fit
 * the pool. ST_INVALID: block_bytes is 0, less than one block, no context. ST_LIMIT: more than KVPLAN_BLOCKS_MAX are
 * asked for. *out is filled as far as the calculation came, also then. */
int kvplan_make(struct kvplan *out, const struct kvplan_in *in, struct errbuf *err) MUST_CHECK;

/* Blocks that one request of so many tokens takes at most. */
uint64_t kvplan_request_blocks(const struct kvplan_in *in, uint64_t tokens);
/* The longest request that so many blocks hold; UINT64_MAX: any. */
uint64_t kvplan_request_len(const struct kvplan_in *in, uint64_t n_blocks);

/* "f16", "int8"; as --kv-cache-dtype spells them. */
const char *kvplan_type_name(enum ggtype kv_type);

/* The whole calculation as a table for people: groups, bytes a block and a token, state, weights, activations, what is
 * left, blocks, tokens, sequences. Also when kvplan_make() failed: then it shows how far it came, what is missing, and
 * what would fit. */
void kvplan_table(struct strbuf *out, const struct spec *s, const struct kvplan *plan);

#endif
