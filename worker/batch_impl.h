/* batch_impl.h - inside of the worker's memory of sequences, for batch.c and batch_look.c. */
#ifndef SLUICE_BATCH_IMPL_H
#define SLUICE_BATCH_IMPL_H

#include "worker/batch.h"

/* A slot as it would be after the part of the step that was checked so far. */
struct batch_look {
	uint64_t take; /* valid when equal to batch.take */
	bool used, run;
	uint32_t n_tokens;
	uint32_t grown; /* a bit a group */
	uint32_t n_blocks[LIMIT_KV_GROUPS];
	uint32_t kind, n_prompt, prompt_from, n_pooled;
	bool has_state;
	uint32_t state_end;
};

/* Of a sequence in a KV group, by position / KBLOCK_LEN. */
struct batch_table {
	uint32_t *blocks;
	uint32_t n, cap;
};

struct batch_slot {
	bool used;
	uint32_t *tokens; /* prompt, then output */
	uint32_t n_tokens, tokens_cap;
	struct batch_table tables[LIMIT_KV_GROUPS];
	uint32_t kind; /* enum request_kind */
	uint32_t n_prompt, n_prompt_logprobs;
	uint32_t prompt_from; /* first position whose log-probabilities are wanted; n_prompt when none are */
	struct draw draw;
	double *pooled; /* (dim) sum of n_pooled hidden states, of pooling sequences */
	uint32_t n_pooled;
	bool has_state; /* one of the recurrent states is this slot's: number `state`, which has seen the tokens before
			   state_end */
	uint32_t state, state_end;
	struct batch_look look;
};

struct batch {
	struct batch_limits limits;
	struct batch_slot *slots; /* (LIMIT_SEQS); pages of unused ones are never touched */
	uint32_t n_used;
	uint64_t take;
	const char *why;
	uint8_t *input;
	size_t input_bytes;
	uint32_t *out_slots; /* (seqs_max) */
	uint32_t *extra;     /* of the run; grows */
	size_t extra_cap;
	struct batch_part *parts;
	size_t n_parts, parts_cap;
	struct batch_score *scores; /* (seqs_max) */
	struct batch_pool *pools;   /* (seqs_max) */
	uint32_t *states_free;      /* (n_states): the first n_states_free are numbers of states that no slot has */
	uint32_t n_states_free;
	uint32_t n_states_look; /* how many would be free after the part of the step that was checked so far */
};

/* Whether a step is possible: ST_INVALID, with b->why, when it is not. Changes nothing but the looks. */
int batch_look_step(struct batch *b, const struct msg_step *m) MUST_CHECK;

static inline size_t batch_seq_blocks_max(uint32_t positions)
{
	return div_up(positions, KBLOCK_LEN);
}

/* The first prompt position of added row i whose log-probabilities are wanted. */
static inline uint32_t batch_prompt_from(const struct msg_step *m, uint32_t i)
{
	return col_u32(m->added_n_prompt_logprobs, i) ? max_u32(1, col_u32(m->added_n_prompt_known, i))
						      : col_u32(m->added_n_prompt, i);
}

/* Prompt positions whose log-probabilities a run of n tokens from `start` on gives: the number, and the first. */
static inline uint32_t batch_scores(uint32_t prompt_from, uint32_t n_prompt, uint32_t start, uint32_t n,
				    uint32_t *first)
{
	uint32_t end = min_u32(start + n + 1, n_prompt);

	*first = max_u32(start + 1, prompt_from);
	return *first < end ? end - *first : 0;
}

#endif
