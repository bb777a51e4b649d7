/* batch.h - the worker's memory of sequences: what the steps so far have said, and the arrays of the step that runs
 * now.
 *
 * A sequence lives in a slot, which the executor numbers. A step says what changed (removed, added, grown) and what to
 * run. batch_take() checks a whole step against what is known and takes all of it or nothing, because a step is bytes
 * from another process. After a take the prepared input (one host buffer, see struct batch_run) is uploaded and run by
 * the engine, and batch_append() adds each drawn token to its slot.
 *
 * A model with recurrent layers keeps a state for each sequence that runs. A slot gets one at its first run and gives it back when it is
 * removed; a run goes on where the state is, or begins at position 0, where every state begins anew.
 *
 * Always holds: a used slot has at least one token, every token is below the vocabulary, every block below n_blocks,
 * and a token list or a block table is never longer than its limit. A
 * table of a group with a window may hold any blocks before the window. */
#ifndef SLUICE_BATCH_H
#define SLUICE_BATCH_H

#include "common/base.h"
#include "kernels/kernels.h"
#include "proto/messages.h"
#include "worker/draw.h"

struct batch;

struct batch_limits {
	uint32_t n_blocks;                     /* KV block numbers are below it */
	uint32_t positions;                    /* tokens of a sequence at most */
	uint32_t batched_tokens_max, seqs_max; /* of a step */
	uint32_t dim;                          /* of a hidden state */
	uint32_t n_states;                     /* recurrent states; 0: the model has none */
	uint32_t n_groups;                     /* block tables of a sequence (model/kvgroups.h), >= 1 */
	bool no_tables;                        /* nobody reads tables and slots of the input (null device): they are not filled */
	uint32_t part_rows;                    /* rows of a part, and ... */
	size_t extra_words;                    /* ... words of its lists at most, at least batch_extra_words() */
	struct draw_env env;                   /* with the vocabulary: token ids are below it */
};

/* Rows of logits that are drawn from, or scored, together. */
struct batch_part {
	uint32_t row, n;
	size_t extra_at, n_extra; /* words of batch_run.extra */
};

/* A sequence that gives log-probabilities of n prompt tokens from position `start` on. */
struct batch_score {
	uint32_t slot, start, n;
};

/* A pooling sequence: its hidden states are n wanted rows from `row` on. */
struct batch_pool {
	uint32_t slot, row, n;
	bool is_last; /* its result is wanted */
};

/* One run: offsets of its arrays in the input, which is `bytes` long. Token arrays have n_tokens elements. The wanted rows are first
 * those that are drawn, then those that give a prompt's log-probabilities, then those that are pooled. */
struct batch_run {
	uint32_t n_tokens, n_seqs, blocks_max;
	uint32_t reach; /* all positions are below it */
	uint32_t n_draw, n_score, n_out;                                    /* n_out: all wanted rows */
	/* u32 arrays, struct kbatch; slots and block_tables of all groups */
	size_t token_ids, positions, seq_ix, slots, block_tables, out_rows, seq_starts, states;
	size_t params;                                                      /* (n_draw + n_score) struct ksample */
	size_t bytes;
	const uint8_t *input;      /* host; owned by the batch, valid until the next take, as all that follows */
	const uint32_t *out_slots; /* (n_draw): the slot of each row that is drawn */
	const uint32_t *extra;     /* lists of params, by part */
	const struct batch_part *parts;
	const struct batch_score *scores;
	const struct batch_pool *pools;
	uint32_t n_parts, n_scores, n_pools;
};

/* Bytes that the input of the largest step takes. */
size_t batch_input_bytes(uint32_t positions, uint32_t batched_tokens_max, uint32_t seqs_max, uint32_t n_groups);
/* Rows of a step that are drawn or scored, at most. */
uint32_t batch_rows_max(uint32_t batched_tokens_max, uint32_t seqs_max);
/* Words of a part's lists: part_rows masks, and the longest lists of a row, or a MiB. More rows with long lists go in more parts. */
size_t batch_extra_words(uint32_t vocab, uint32_t positions, uint32_t part_rows);

struct batch *batch_new(const struct batch_limits *limits);
void batch_free(struct batch *b);

/* Forgets all sequences. */
void batch_reset(struct batch *b);
uint32_t batch_n_used(const struct batch *b);

/* Takes a step. ST_INVALID: nothing is changed; batch_why() says in words for the log what was wrong. */
int batch_take(struct batch *b, const struct msg_step *m, struct batch_run *run) MUST_CHECK;
const char *batch_why(const struct batch *b);

/* Appends the token that was drawn for a row of the run. One that is none (TOKEN_FAILED and above) is kept as token 0: the step
 * behind may run it already, and its result is thrown away. */
void batch_append(struct batch *b, const struct batch_run *run, uint32_t row, uint32_t token);

/* Log-probabilities that a row wants: 0 none, 1 + k: the chosen token's and the k best. */
uint32_t batch_n_logprobs(const struct batch *b, const struct batch_run *run, uint32_t row);

/* True when the row's grammar could not be taken: its draw means nothing. */
bool batch_has_bad_grammar(const struct batch *b, const struct batch_run *run, uint32_t row);
/* Adds the next of a pool's hidden states (dim), in the order of positions; and gives what they all are together (dim). */
void batch_pool_add(struct batch *b, const struct batch_pool *p, const float *state);
void batch_pool_result(const struct batch *b, const struct batch_pool *p, float *out);

/* Tokens of a slot, for tests and the null worker; NULL when it is not used. */
const uint32_t *batch_tokens(const struct batch *b, uint32_t slot, uint32_t *n);

#endif
