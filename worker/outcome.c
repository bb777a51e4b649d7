/* outcome.c - see outcome.h. */
#include "worker/outcome.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define OUTCOME_TOP_MAX (1 + KTOP_MAX)

static void outcome_tokens_init(struct outcome_tokens *t, size_t rows)
{
	*t = (struct outcome_tokens){.n_top = mem_array(uint32_t, rows),
				     .ranks = mem_array(uint32_t, rows),
				     .top_ids = mem_array(uint32_t, rows * OUTCOME_TOP_MAX),
				     .top_logprobs = mem_array(float, rows * OUTCOME_TOP_MAX)};
}

static void outcome_tokens_release(struct outcome_tokens *t)
{
	free(t->n_top);
	free(t->ranks);
	free(t->top_ids);
	free(t->top_logprobs);
}

void outcome_init(struct outcome *o, uint32_t seqs, uint32_t n_rows, uint32_t dim)
{
	*o = (struct outcome){.dim = dim,
			      .slots = mem_array(uint32_t, seqs),
			      .tokens = mem_array(uint32_t, seqs),
			      .hashes = mem_array(uint64_t, seqs),
			      .prompt_slots = mem_array(uint32_t, seqs),
			      .prompt_starts = mem_array(uint32_t, seqs),
			      .n_prompt_tokens = mem_array(uint32_t, seqs),
			      .pooled_slots = mem_array(uint32_t, seqs),
			      .pooled = mem_array(float, LIMIT_POOLED)};
	outcome_tokens_init(&o->drawn, seqs);
	outcome_tokens_init(&o->prompt, n_rows);
}

void outcome_release(struct outcome *o)
{
	free(o->slots);
	free(o->tokens);
	free(o->hashes);
	free(o->prompt_slots);
	free(o->prompt_starts);
	free(o->n_prompt_tokens);
	free(o->pooled_slots);
	free(o->pooled);
	outcome_tokens_release(&o->drawn);
	outcome_tokens_release(&o->prompt);
	*o = (struct outcome){0};
}

static void outcome_add(struct outcome_tokens *t, const struct ksampled *s, bool wanted)
{
	uint32_t n = wanted && s->token < KTOKEN_NOT_ALLOWED ? 1 + min_u32(s->n_top, KTOP_MAX) : 0;

	t->n_top[t->n] = n;
	t->ranks[t->n++] = s->rank;
	if (!n) return;
	t->top_ids[t->n_entries] = s->token;
	t->top_logprobs[t->n_entries++] = s->logprob;
	memcpy(t->top_ids + t->n_entries, s->top_ids, (n - 1) * sizeof(*t->top_ids));
	memcpy(t->top_logprobs + t->n_entries, s->top_logprobs, (n - 1) * sizeof(*t->top_logprobs));
	t->n_entries += n - 1;
}

/* What goes into the token column: the numbers above the vocabulary are those of messages.h. */
static uint32_t outcome_token(const struct ksampled *s, bool bad_grammar)
{
	if (s->token == KTOKEN_NO_LOGITS) return TOKEN_NO_LOGITS;
	if (bad_grammar) return TOKEN_BAD_GRAMMAR;
	return s->token == KTOKEN_NOT_ALLOWED ? TOKEN_NOT_ALLOWED : s->token;
}

static void outcome_fill_drawn(struct outcome *o, struct batch *b, const struct batch_run *run, const struct ksampled *sampled,
			       struct msg_step_result *out)
{
	struct outcome_tokens *t = &o->drawn;

	t->n = t->n_entries = 0;
	for (uint32_t row = 0; row < run->n_draw; row++) {
		outcome_add(t, &sampled[row], batch_n_logprobs(b, run, row) > 0);
		o->slots[row] = run->out_slots[row];
		o->tokens[row] = outcome_token(&sampled[row], batch_has_bad_grammar(b, run, row));
		o->hashes[row] = sampled[row].logits_hash;
		batch_append(b, run, row, o->tokens[row]);
	}
	out->slots = view_of(o->slots, run->n_draw);
	out->tokens = view_of(o->tokens, run->n_draw);
	out->n_top = view_of(t->n_top, t->n);
	out->ranks = view_of(t->ranks, t->n);
	out->top_ids = view_of(t->top_ids, t->n_entries);
	out->top_logprobs = view_of(t->top_logprobs, t->n_entries);
}

static void outcome_fill_prompts(struct outcome *o, const struct batch_run *run, const struct ksampled *sampled,
				 struct msg_step_result *out)
{
	struct outcome_tokens *t = &o->prompt;

	t->n = t->n_entries = 0;
	for (uint32_t i = 0; i < run->n_scores; i++) {
		o->prompt_slots[i] = run->scores[i].slot;
		o->prompt_starts[i] = run->scores[i].start;
		o->n_prompt_tokens[i] = run->scores[i].n;
	}
	for (uint32_t i = 0; i < run->n_score; i++) outcome_add(t, &sampled[i], true);
	out->prompt_slots = view_of(o->prompt_slots, run->n_scores);
	out->prompt_starts = view_of(o->prompt_starts, run->n_scores);
	out->n_prompt_tokens = view_of(o->n_prompt_tokens, run->n_scores);
	out->prompt_n_top = view_of(t->n_top, t->n);
	out->prompt_ranks = view_of(t->ranks, t->n);
	out->prompt_top_ids = view_of(t->top_ids, t->n_entries);
	out->prompt_top_logprobs = view_of(t->top_logprobs, t->n_entries);
}

static void outcome_fill_pooled(struct outcome *o, const struct batch *b, const struct batch_run *run, struct msg_step_result *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < run->n_pools; i++) {
		if (!run->pools[i].is_last) continue;
		o->pooled_slots[n] = run->pools[i].slot;
		batch_pool_result(b, &run->pools[i], o->pooled + (size_t)n++ * o->dim);
	}
	out->pooled_slots = view_of(o->pooled_slots, n);
	out->pooled = view_of(o->pooled, (size_t)n * o->dim);
}

void outcome_fill(struct outcome *o, struct batch *b, const struct batch_run *run, const struct ksampled *sampled, bool hashes,
		  struct msg_step_result *out)
{
	outcome_fill_drawn(o, b, run, sampled, out);
	outcome_fill_prompts(o, run, sampled + run->n_draw, out);
	outcome_fill_pooled(o, b, run, out);
	if (hashes) out->hashes = view_of(o->hashes, run->n_draw);
}
