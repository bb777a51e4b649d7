/* batch.h - the worker's memory of sequences: what the steps so far have said, and the arrays of the step that runs
 * now.
 *
 * A sequence lives in a slot, which the executor numbers. A step says what changed (removed, added, grown) and what to
 * run. batch_take() checks a whole step against what is known and takes all of it or nothing, because a step is bytes
 * from another process. After a take the prepared input (one host buffer, see struct batch_run) is uploaded and run by
 * the engine, and batch_append() adds each drawn token to its slot.
 *
 * Always holds: a used slot has at least one token, every token is below the vocabulary, every block below n_blocks,
 * and a token list or a block table is never longer than its limit. */
#ifndef SLUICE_BATCH_H
#define SLUICE_BATCH_H

#include "common/base.h"
#include "kernels/kernels.h"
#include "proto/messages.h"

struct batch;

struct batch_limits {
	uint32_t vocab;                        /* token ids are below it */
	uint32_t n_blocks;                     /* KV block numbers are below it */
	uint32_t positions;                    /* tokens of a sequence at most */
	uint32_t batched_tokens_max, seqs_max; /* of a step */
};

/* One run: offsets of its arrays in the input, which is `bytes` long. Token arrays have n_tokens elements. */
struct batch_run {
	uint32_t n_tokens, n_seqs, n_out, blocks_max;
	size_t token_ids, positions, seq_ix, slots, block_tables, out_rows; /* u32 arrays, struct kbatch */
	size_t params;                                                      /* (n_out) struct ksample */
	size_t banned;                                                      /* u32 */
	size_t bytes;
	const uint8_t *input;      /* host; owned by the batch, valid until the next take */
	const uint32_t *out_slots; /* host (n_out): the slot of each row that is drawn */
};

/* Bytes that the input of the largest step takes. */
size_t batch_input_bytes(uint32_t positions, uint32_t batched_tokens_max, uint32_t seqs_max);

struct batch *batch_new(const struct batch_limits *limits);
void batch_free(struct batch *b);

/* Forgets all sequences. */
void batch_reset(struct batch *b);
uint32_t batch_n_used(const struct batch *b);

/* Takes a step. ST_INVALID: nothing is changed; batch_why() says in words for the log what was wrong. */
int batch_take(struct batch *b, const struct msg_step *m, struct batch_run *run) MUST_CHECK;
const char *batch_why(const struct batch *b);

/* Appends the token that was drawn for a row of the run. UINT32_MAX (no usable logits) is kept as token 0: the step
 * behind may run it already, and its result is thrown away. */
void batch_append(struct batch *b, const struct batch_run *run, uint32_t row, uint32_t token);

/* Log-probabilities that a row wants: 0 none, 1 + k: the chosen token's and the k best. */
uint32_t batch_n_logprobs(const struct batch *b, const struct batch_run *run, uint32_t row);

/* Tokens of a slot, for tests and the null worker; NULL when it is not used. */
const uint32_t *batch_tokens(const struct batch *b, uint32_t slot, uint32_t *n);

#endif
