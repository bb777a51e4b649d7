/* outcome.h - what a step gave, as the columns of its step_result. */
#ifndef SLUICE_OUTCOME_H
#define SLUICE_OUTCOME_H

#include "kernels/kernels.h"
#include "proto/messages.h"
#include "worker/batch.h"

/* Token, rank and log-probabilities of rows. */
struct outcome_tokens {
	uint32_t *n_top, *ranks, *top_ids; /* (rows); the last times the most entries of a row */
	float *top_logprobs;
	uint32_t n, n_entries; /* filled */
};

struct outcome {
	uint32_t dim;
	uint32_t *slots, *tokens;                                 /* (seqs) */
	uint64_t *hashes;                                         /* (seqs) */
	uint32_t *prompt_slots, *prompt_starts, *n_prompt_tokens; /* (seqs) */
	uint32_t *pooled_slots;                                   /* (seqs) */
	float *pooled;                                            /* (LIMIT_POOLED); pages of unused ones are never touched */
	struct outcome_tokens drawn, prompt;
};

/* For steps of at most seqs sequences and n_rows drawn or scored rows. */
void outcome_init(struct outcome *o, uint32_t seqs, uint32_t n_rows, uint32_t dim);
void outcome_release(struct outcome *o);

/* Appends the drawn tokens to their slots and fills out's columns: views of o, valid until the next call. */
void outcome_fill(struct outcome *o, struct batch *b, const struct batch_run *run, const struct ksampled *sampled, bool hashes,
		  struct msg_step_result *out);

#endif
