/* memplan.h - one plan of all memory that a worker takes on its device, made before anything is taken.
 *
 * Four parts: weights, activations (one arena for the largest step, cut below), the workspace of the operations, the KV
 * cache. The plan is arithmetic on sizes; whoever owns a part allocates it (weights.c, decoder.c, kdev). */
#ifndef SLUICE_MEMPLAN_H
#define SLUICE_MEMPLAN_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/modelshape.h"
#include "kernels/kernels.h"

/* Rows that the widest parts of a step are done in at a time: their arena stays small, and every row has the same bits
 * whatever the cut. */
#define MEMPLAN_FFN_ROWS    128
#define MEMPLAN_LOGITS_ROWS 64

/* Positions beyond the model's length that are planned for: a sampled token may be seen one step too late. */
#define MEMPLAN_SPARE_POSITIONS 2

struct memplan_sizes {
	uint32_t batched_tokens_max, seqs_max; /* of a step */
	uint32_t model_len_max;
	enum ggtype kv_type;
	uint32_t mask_vocab; /* tokens that grammars know, when more than the model has */
};

/* A part of the activations arena. */
struct memplan_part {
	size_t at, bytes;
};

struct memplan {
	struct memplan_sizes sizes;
	uint32_t positions;      /* rows of the rotation table */
	uint32_t seq_blocks_max; /* length of a block table */
	uint32_t qkv_width;      /* floats of a row of q, k and v together */
	uint32_t att_width;      /* floats of a row of q */
	uint32_t ffn_rows, logits_rows;
	uint32_t outs; /* rows of x_out: one a sequence */

	struct memplan_part x;       /* (tokens, dim) residual stream */
	struct memplan_part h;       /* (tokens, max(dim, att_width)) norm, or attention's output */
	struct memplan_part qkv;     /* (tokens, qkv_width); the rows of attention that are wanted, in the last layer */
	struct memplan_part gate;    /* (ffn_rows, ffn) */
	struct memplan_part up;      /* (ffn_rows, ffn) */
	struct memplan_part x_out;   /* (outs, dim) */
	struct memplan_part logits;  /* (logits_rows, vocab) */
	struct memplan_part rope;    /* (positions, rope_dims / 2, 2) */
	struct memplan_part input;   /* what batch.c uploads for a step */
	struct memplan_part extra;   /* lists of a part of the rows: masks, biases, counts */
	struct memplan_part sampled; /* (rows) struct ksampled */

	size_t weight_bytes;     /* set by the caller: weights_bytes() */
	size_t activation_bytes; /* all parts above */
	size_t scratch_bytes;    /* of the operations */
	size_t kv_block_bytes;   /* of one block over all layers */
};

void memplan_init(struct memplan *p, const struct modelshape *shape, const struct memplan_sizes *sizes);

/* ST_NO_MEMORY with the numbers when what is planned, with the smallest useful KV cache, is more than `available`. */
int memplan_check(const struct memplan *p, uint64_t available, struct errbuf *err) MUST_CHECK;

struct memplan_kv {
	uint64_t n_blocks;  /* wins; 0: not given */
	uint64_t bytes;     /* then this; 0: not given */
	double utilization; /* else this share of `available`, less weights and activations ... */
	uint64_t auto_max;  /* ... and at most this; 0: no such limit */
	uint64_t available; /* measured before anything was taken */
};

/* How many KV blocks to have. An automatic size is never more than seqs_max sequences of full length need. ST_NO_MEMORY
 * with the numbers when there is no room, or when what was asked for does not fit. */
int memplan_kv_blocks(const struct memplan *p, const struct memplan_kv *kv, uint32_t *n_blocks,
		      struct errbuf *err) MUST_CHECK;

#endif
