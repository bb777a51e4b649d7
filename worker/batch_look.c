/* batch_look.c - is a step possible? Its four parts in order, against what the slots would be after the parts before
 * (see batch_impl.h). */
#include "worker/batch_impl.h"

static int batch_bad(struct batch *b, const char *why)
{
	b->why = why;
	return ST_INVALID;
}

/* NULL when the number is out of range. */
static struct batch_look *batch_look(struct batch *b, uint32_t slot)
{
	struct batch_slot *s;

	if (slot >= LIMIT_SEQS) return NULL;
	s = &b->slots[slot];
	if (s->look.take != b->take) {
		s->look = (struct batch_look){.take = b->take,
					      .used = s->used,
					      .n_tokens = s->n_tokens,
					      .kind = s->kind,
					      .n_prompt = s->n_prompt,
					      .prompt_from = s->prompt_from,
					      .n_pooled = s->n_pooled,
					      .has_state = s->has_state,
					      .state_end = s->state_end};
		for (uint32_t g = 0; g < b->limits.n_groups; g++) s->look.n_blocks[g] = s->tables[g].n;
	}
	return &s->look;
}

static int batch_look_removed(struct batch *b, const struct msg_step *m)
{
	for (uint32_t i = 0; i < m->removed.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->removed, i));

		if (!k || !k->used) return batch_bad(b, "a removed slot is not in use");
		b->n_states_look += k->has_state;
		k->used = false;
	}
	return ST_OK;
}

static bool batch_columns_match(const struct msg_step *m)
{
	uint32_t n = m->added.n;

	return m->added_n_tokens.n == n && m->added_n_prompt.n == n && m->added_n_output_min.n == n &&
	       m->added_n_stop.n == n && m->added_temperature.n == n && m->added_top_p.n == n &&
	       m->added_top_k.n == n && m->added_min_p.n == n && m->added_seed.n == n && m->added_choice.n == n &&
	       m->added_n_logprobs.n == n && m->added_kind.n == n && m->added_n_output_max.n == n &&
	       m->added_repetition.n == n && m->added_presence.n == n && m->added_frequency.n == n &&
	       m->added_n_bias.n == n && m->added_bias_ids.n == m->added_bias_values.n && m->added_n_allowed.n == n &&
	       m->added_n_prompt_logprobs.n == n && m->added_n_prompt_known.n == n && m->added_n_grammar.n == n &&
	       m->grown_n.n == m->grown.n && m->grown_group.n == m->grown.n && m->run_start.n == m->run.n &&
	       m->run_n.n == m->run.n && m->run_sample.n == m->run.n;
}

static int batch_look_added(struct batch *b, const struct msg_step *m)
{
	struct draw_at at = {0};

	for (uint32_t i = 0; i < m->added.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->added, i));
		uint32_t n = col_u32(m->added_n_tokens, i), n_prompt = col_u32(m->added_n_prompt, i);
		const char *why;

		if (!k || k->used) return batch_bad(b, "an added slot is in use already, or out of range");
		if (n == 0 || n > b->limits.positions) return batch_bad(b, "an added sequence is empty or too long");
		if (n_prompt == 0 || n_prompt > n) return batch_bad(b, "an added prompt is empty or too long");
		why = draw_look(&b->limits.env, m, i, &at);
		if (why) return batch_bad(b, why);
		*k = (struct batch_look){.take = b->take,
					 .used = true,
					 .n_tokens = n,
					 .kind = col_u32(m->added_kind, i),
					 .n_prompt = n_prompt,
					 .prompt_from = batch_prompt_from(m, i)};
	}
	if (at.tokens != m->added_tokens.n || at.stop != m->added_stop_ids.n || at.bias != m->added_bias_ids.n ||
	    at.allowed != m->added_allowed_ids.n || at.grammar != m->added_grammars.n)
		return batch_bad(b, "a column has more elements than the lists in it");
	return ST_OK;
}

static int batch_look_grown(struct batch *b, const struct msg_step *m)
{
	size_t blocks_max = batch_seq_blocks_max(b->limits.positions);
	uint64_t n_blocks = 0;

	for (uint32_t i = 0; i < m->grown.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->grown, i));
		uint32_t n = col_u32(m->grown_n, i), g = col_u32(m->grown_group, i);

		if (g >= b->limits.n_groups) return batch_bad(b, "a KV group that the model does not have");
		if (!k || !k->used || k->grown >> g & 1)
			return batch_bad(b, "a grown slot is not in use, or grows twice");
		if (n > blocks_max - k->n_blocks[g]) return batch_bad(b, "a block table becomes too long");
		k->grown |= 1u << g;
		k->n_blocks[g] += n;
		n_blocks += n;
	}
	if (n_blocks != m->grown_blocks.n) return batch_bad(b, "the grown blocks are not as many as their counts say");
	for (uint32_t i = 0; i < m->grown_blocks.n; i++)
		if (col_u32(m->grown_blocks, i) >= b->limits.n_blocks)
			return batch_bad(b, "a block is not in the pool");
	return ST_OK;
}

/* A run of recurrent layers from `start` to `end`. */
static int batch_look_state(struct batch *b, struct batch_look *k, uint32_t start, uint32_t end)
{
	if (b->limits.n_states == 0) return ST_OK;
	if (start != 0 && !(k->has_state && start == k->state_end))
		return batch_bad(b, "a run does not go on where the sequence's state is, nor at its beginning");
	if (!k->has_state && b->n_states_look == 0)
		return batch_bad(b, "more sequences have a state than --max-num-seqs");
	b->n_states_look -= !k->has_state;
	k->has_state = true;
	k->state_end = end;
	return ST_OK;
}

static int batch_look_run(struct batch *b, const struct msg_step *m)
{
	uint64_t n_tokens = 0, n_scores = 0, n_pooled = 0;

	if (m->run.n > b->limits.seqs_max) return batch_bad(b, "more sequences run than --max-num-seqs");
	for (uint32_t i = 0; i < m->run.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->run, i));
		uint64_t n = col_u32(m->run_n, i), end = col_u32(m->run_start, i) + n;
		uint32_t sample = col_u32(m->run_sample, i), first;

		if (!k || !k->used || k->run) return batch_bad(b, "a slot that runs is not in use, or runs twice");
		if (n == 0 || end > k->n_tokens) return batch_bad(b, "a run has no tokens, or more than the slot");
		for (uint32_t g = 0; g < b->limits.n_groups; g++)
			if (end > (uint64_t)k->n_blocks[g] * KBLOCK_LEN)
				return batch_bad(b, "a run ends beyond its block table");
		if (sample > 1) return batch_bad(b, "run_sample is neither 0 nor 1");
		if (sample && end != k->n_tokens) return batch_bad(b, "a token is drawn before the last one has run");
		if (k->kind == REQUEST_POOL_MEAN && col_u32(m->run_start, i) != k->n_pooled)
			return batch_bad(b, "a mean does not go on where it was");
		if (k->kind != REQUEST_GENERATE)
			n_pooled += sample;
		else if (sample && end >= b->limits.positions)
			return batch_bad(b, "a sequence becomes too long");
		if (batch_look_state(b, k, col_u32(m->run_start, i), (uint32_t)end) != ST_OK) return ST_INVALID;
		k->run = true;
		n_tokens += n;
		n_scores += batch_scores(k->prompt_from, k->n_prompt, col_u32(m->run_start, i), (uint32_t)n, &first);
	}
	if (n_scores > LIMIT_PROMPT_ROWS) return batch_bad(b, "too many log-probabilities of prompts are wanted");
	if (n_pooled * b->limits.dim > LIMIT_POOLED) return batch_bad(b, "too many pooled states are wanted");
	if (n_tokens > b->limits.batched_tokens_max)
		return batch_bad(b, "more tokens run than --max-num-batched-tokens");
	return ST_OK;
}

int batch_look_step(struct batch *b, const struct msg_step *m)
{
	int rc;

	b->take++;
	b->n_states_look = b->n_states_free;
	if (!batch_columns_match(m)) return batch_bad(b, "columns of different lengths");
	rc = batch_look_removed(b, m);
	if (rc == ST_OK) rc = batch_look_added(b, m);
	if (rc == ST_OK) rc = batch_look_grown(b, m);
	if (rc == ST_OK) rc = batch_look_run(b, m);
	return rc;
}
