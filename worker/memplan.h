/* memplan.h - one plan of the memory that a step takes on a worker's device, made before anything is taken.
 *
 * Activations are one arena for the largest step, cut below; the workspace of the operations and the recurrent states
 * of all running sequences stand beside it. Weights and the KV cache are planned elsewhere (weights.h, model/kvplan.h);
 * their numbers are kept here so that one struct says what a worker has. The plan is arithmetic on sizes; whoever owns
 * a part allocates it (decoder.c, kdev). */
#ifndef SLUICE_MEMPLAN_H
#define SLUICE_MEMPLAN_H

#include "common/base.h"
#include "kernels/kernels.h"
#include "model/spec.h"

/* Rows that the widest parts of a step are done in at a time: their arena stays small, and every row has the same bits
 * whatever the cut. Experts take more: each of them is read once for all its rows of a cut. */
#define MEMPLAN_FFN_ROWS    128
#define MEMPLAN_EXPERT_ROWS 512
#define MEMPLAN_LOGITS_ROWS 64

/* Positions beyond the model's length that are planned for: a sampled token may be seen one step too late. */
#define MEMPLAN_SPARE_POSITIONS 2

struct memplan_sizes {
	uint32_t batched_tokens_max, seqs_max; /* of a step */
	uint32_t model_len_max;
	enum ggtype kv_type;
	uint32_t kv_groups;  /* block tables of a sequence, >= 1 */
	uint32_t mask_vocab; /* tokens that grammars know, when more than the model has */
};

/* A part of the activations arena. */
struct memplan_part {
	size_t at, bytes;
};

struct memplan {
	struct memplan_sizes sizes;
	uint32_t positions;      /* rows of the rotation tables */
	uint32_t seq_blocks_max; /* length of a block table */
	uint32_t mix_width;      /* floats a token of the mixer that takes most: its projections side by side */
	uint32_t core_width; /* floats a token of what a mixer's core gives, or of the residual stream, whatever is more
			      */
	uint32_t ffn_rows, expert_rows, logits_rows;
	uint32_t outs;     /* rows of x_out: one a sequence */
	uint32_t n_states; /* recurrent states, one a running sequence; 0: the model has none */

	struct memplan_part x;   /* (tokens, dim) residual stream */
	struct memplan_part h;   /* (tokens, core_width) norm, or a core's output */
	struct memplan_part mix; /* (tokens, mix_width); also what is brought together or waits for a norm before it is
				    added to x */
	struct memplan_part
		gate;           /* (ffn_rows, ffn); experts: (expert_rows * n_used, expert_ffn), or the shared one's */
	struct memplan_part up; /* likewise */
	struct memplan_part experts_x;     /* (expert_rows * n_used, dim) inputs of experts, then their outputs */
	struct memplan_part experts_sum;   /* (expert_rows, dim) when that is normed before it is added */
	struct memplan_part route_logits;  /* (expert_rows, n_experts) */
	struct memplan_part route_weights; /* (expert_rows, n_used) */
	struct memplan_part route_tokens;  /* (expert_rows * n_used) u32 */
	struct memplan_part route_places;  /* (expert_rows, n_used) u32 */
	struct memplan_part route_starts;  /* (n_experts + 1) u32 */
	struct memplan_part shared_gate;   /* (expert_rows) */
	struct memplan_part x_out;         /* (outs, dim) */
	struct memplan_part logits;        /* (logits_rows, vocab) */
	struct memplan_part rope[SPEC_ROPES_MAX]; /* (positions, dims / 2, 2) */
	struct memplan_part input;                /* what batch.c uploads for a step */
	struct memplan_part extra;                /* lists of a part of the rows: masks, biases, counts */
	struct memplan_part sampled;              /* (rows) struct ksampled */

	struct kdev_limits limits; /* what the operations will see */
	size_t activation_bytes;   /* all parts above */
	size_t scratch_bytes;      /* workspace of the operations */
	size_t state_bytes;        /* (n_states, spec_state_floats()) f32 */
	size_t weight_bytes;       /* set by the caller: weights_bytes() */
	size_t kv_block_bytes;     /* set by the caller: kvplan_shape() */
};

void memplan_init(struct memplan *p, const struct spec *spec, const struct memplan_sizes *sizes);

/* Floats a token that a layer's mixer needs of mix, and of h for what its core gives. */
uint32_t memplan_mix_width(const struct spec_layer *y);
uint32_t memplan_core_width(const struct spec_layer *y);

#endif
