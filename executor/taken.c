/* taken.c - what the workers' answer to a step gives each request: tokens, log-probabilities, pooled states. An answer is checked whole
 * before anything of it is taken; thousands of tokens of quiet decodes are gone through a step, so these touch as little as they can. */
#include "executor/core_impl.h"

#include <math.h>
#include <stdio.h>

/* A request ends because of what the workers found. */
static void taken_failure(struct core *c, struct seq *s, uint32_t token)
{
	uint32_t n = seq_n_output(s);
	char text[192];

	if (token == TOKEN_NOT_ALLOWED)
		snprintf(text, sizeof(text),
			 "After %u output tokens no token may follow: the grammar, the allowed token ids, logit_bias and min_tokens "
			 "leave none together.",
			 n);
	else if (token == TOKEN_BAD_GRAMMAR)
		snprintf(text, sizeof(text), "The engine cannot follow this request's grammar after %u output tokens.", n);
	else
		snprintf(text, sizeof(text), "The model gave no usable logits for this request after %u output tokens.", n);
	core_refuse(c, s, token == TOKEN_NOT_ALLOWED || token == TOKEN_BAD_GRAMMAR ? REFUSAL_INVALID : REFUSAL_NUMERIC, text);
}

/* The first that it gives. */
static void taken_first(struct core *c, struct seq *s)
{
	s->first_token_ns = c->now;
	if (c->out.timed) c->out.timed(c->out.ctx, s->began_ns - s->arrived_ns, c->now - s->began_ns);
}

static void taken_token(struct core *c, struct seq *s, const struct msg_step_result *m, uint32_t row, uint32_t top_at)
{
	uint32_t token = col_u32(m->tokens, row);
	enum finish finish;

	if (token >= TOKEN_FAILED) {
		taken_failure(c, s, token);
		return;
	}
	if (seq_n_output(s) == 0) taken_first(c, s);
	s->n_pending--;
	seq_append(s, token);
	fair_charge(s->flow->tenant, FAIR_OUTPUT_WEIGHT);
	if (s->logprobs) seq_append_top(s->logprobs, col_u32(m->ranks, row), col_u32(m->n_top, row), m->top_ids, m->top_logprobs, top_at);
	c->stats.generation_tokens++;
	suspect_clear(c, s);
	route_dirty(s);
	finish = seq_finish(s, c->len_max);
	if (finish != FINISH_NONE) core_finish(c, s, finish);
	else if (!c->kv.n_windowed) seq_set_quiet_tokens(s, c->len_max);
}

/* A token of a quiet decode (seq.h). False: there is more to do. */
static bool taken_quiet_token(struct core *c, struct seq *s, uint32_t token)
{
	if (s->n_tokens >= s->quiet_tokens || token >= TOKEN_FAILED || s->stop_filter >> token % 64 & 1) return false;
	seq_append_quiet(s, token);
	s->n_pending--;
	fair_charge(s->flow->tenant, FAIR_OUTPUT_WEIGHT);
	c->stats.generation_tokens++;
	route_dirty(s);
	return true;
}

/* Log-probabilities of prompt tokens. False when the request is over: a row is unusable. */
static bool taken_prompt_row(struct core *c, struct seq *s, const struct msg_step_result *m, const struct step_prompt *row,
			     uint32_t at, uint32_t top_at)
{
	uint32_t i, n_top;

	for (i = 0; i < row->n; i++, top_at += n_top) {
		n_top = col_u32(m->prompt_n_top, at + i);
		if (row->at + i < seq_n_prompt_known(s)) continue; /* its frontend had it already */
		if (col_u32(m->prompt_ranks, at + i) == 0) {
			taken_failure(c, s, TOKEN_NO_LOGITS);
			return false;
		}
		seq_append_top(s->prompt_logprobs, col_u32(m->prompt_ranks, at + i), n_top, m->prompt_top_ids,
			       m->prompt_top_logprobs, top_at);
		route_dirty(s);
	}
	return true;
}

static void taken_pooled(struct core *c, struct seq *s, const struct msg_step_result *m, uint32_t at)
{
	uint32_t i;

	for (i = 0; i < c->dim; i++) {
		if (isfinite(col_f32(m->pooled, at + i))) continue;
		core_refuse(c, s, REFUSAL_NUMERIC, "The model gave no usable hidden state for this request.");
		return;
	}
	taken_first(c, s);
	s->n_pooled = c->dim;
	s->pooled = mem_dup((const char *)m->pooled.data + at * sizeof(float), c->dim, sizeof(float));
	core_finish(c, s, FINISH_STOP);
}

/* The drawn rows of the result are those of the step: shapes and slots. */
static bool taken_has_samples(const struct msg_step_result *m, const struct step_rec *rec)
{
	uint64_t n_top = 0;
	uint32_t i, row = 0;

	if (m->slots.n != rec->n_samples || m->tokens.n != rec->n_samples || m->n_top.n != rec->n_samples ||
	    m->ranks.n != rec->n_samples)
		return false;
	for (i = 0; row < rec->n_samples; i++) {
		uint32_t n = col_u32(m->n_top, row);

		if (!rec->rows[i].sample) continue;
		if (col_u32(m->slots, row) != rec->rows[i].slot || n > LIMIT_TOP_LOGPROBS + 1) return false;
		n_top += n;
		row++;
	}
	return n_top == m->top_ids.n && n_top == m->top_logprobs.n;
}

/* All that the step gives is a token a row: a decode as nearly all are. */
static bool taken_is_plain(const struct msg_step_result *m, const struct step_rec *rec)
{
	return rec->n_samples == rec->n_rows && rec->n_prompt_rows == 0 && rec->n_pooled == 0 && m->top_ids.n == 0;
}

/* taken_has_samples() of such a one. */
static bool taken_has_plain_samples(const struct msg_step_result *m, const struct step_rec *rec)
{
	uint32_t i, wrong = 0;

	if (m->slots.n != rec->n_rows || m->tokens.n != rec->n_rows || m->n_top.n != rec->n_rows || m->ranks.n != rec->n_rows ||
	    m->top_logprobs.n != 0)
		return false;
	for (i = 0; i < rec->n_rows; i++) wrong |= (col_u32(m->slots, i) ^ rec->rows[i].slot) | col_u32(m->n_top, i);
	return wrong == 0;
}

/* Likewise those of prompts. */
static bool taken_has_prompt_rows(const struct msg_step_result *m, const struct step_rec *rec)
{
	uint32_t i, row = 0, n = rec->n_prompt_tokens;
	uint64_t n_top = 0;

	if (m->prompt_slots.n != rec->n_prompt_rows || m->prompt_starts.n != rec->n_prompt_rows ||
	    m->n_prompt_tokens.n != rec->n_prompt_rows || m->prompt_n_top.n != n || m->prompt_ranks.n != n)
		return false;
	for (i = 0; row < rec->n_prompt_rows; i++) {
		const struct step_prompt *p = &rec->prompts[i];

		if (!rec->rows[i].has_prompt) continue;
		if (col_u32(m->prompt_slots, row) != rec->rows[i].slot || col_u32(m->prompt_starts, row) != p->at ||
		    col_u32(m->n_prompt_tokens, row) != p->n)
			return false;
		row++;
	}
	for (i = 0; i < n; i++) {
		if (col_u32(m->prompt_n_top, i) > LIMIT_TOP_LOGPROBS + 1) return false;
		n_top += col_u32(m->prompt_n_top, i);
	}
	return n_top == m->prompt_top_ids.n && n_top == m->prompt_top_logprobs.n;
}

/* Likewise the pooled ones. */
static bool taken_has_pooled(const struct core *c, const struct msg_step_result *m, const struct step_rec *rec)
{
	uint32_t i, row = 0;

	if (m->pooled_slots.n != rec->n_pooled || m->pooled.n != (uint64_t)rec->n_pooled * c->dim) return false;
	for (i = 0; row < rec->n_pooled; i++)
		if (rec->rows[i].pool && col_u32(m->pooled_slots, row++) != rec->rows[i].slot) return false;
	return true;
}

/* Where a row's parts begin in the columns of a result. */
struct taken_cursor {
	uint32_t sample, top, prompt, prompt_top, pooled;
};

/* What row i of the step gave. s is NULL when the request has left the slot. */
static void taken_row(struct core *c, struct seq *s, const struct msg_step_result *m, const struct step_rec *rec, uint32_t i,
		      const struct taken_cursor *at)
{
	const struct step_row *row = &rec->rows[i];

	if (!s) {
		c->stats.tokens_discarded += row->sample;
		return;
	}
	if (row->end / KVPOOL_BLOCK > s->n_published) hold_publish(c, s, row->end);
	if (c->kv.n_windowed) hold_leave_behind(c, s, row->end);
	if (row->has_prompt && !taken_prompt_row(c, s, m, &rec->prompts[i], at->prompt, at->prompt_top)) return;
	if (row->sample) taken_token(c, s, m, at->sample, at->top);
	if (row->pool) taken_pooled(c, s, m, at->pooled);
}

static void taken_prefetch(const struct core *c, const struct step_rec *rec, uint32_t i)
{
	if (i + CORE_AHEAD < rec->n_rows) seq_prefetch(c->slots[rec->rows[i + CORE_AHEAD].slot].seq, 2);
}

static void taken_plain_rows(struct core *c, const struct msg_step_result *m, const struct step_rec *rec)
{
	uint32_t i;

	for (i = 0; i < rec->n_rows; i++) {
		struct seq *s = core_row_seq(c, &rec->rows[i]);

		taken_prefetch(c, rec, i);
		if (!s || !taken_quiet_token(c, s, col_u32(m->tokens, i))) taken_row(c, s, m, rec, i, &(struct taken_cursor){.sample = i});
	}
}

static void taken_rows(struct core *c, const struct msg_step_result *m, const struct step_rec *rec)
{
	struct taken_cursor at = {0};
	uint32_t i, k;

	for (i = 0; i < rec->n_rows; i++) {
		const struct step_row *row = &rec->rows[i];
		struct seq *s = core_row_seq(c, row);

		taken_prefetch(c, rec, i);
		if (!s || !row->sample || !taken_quiet_token(c, s, col_u32(m->tokens, at.sample))) taken_row(c, s, m, rec, i, &at);
		if (row->sample) at.top += col_u32(m->n_top, at.sample++);
		for (k = 0; row->has_prompt && k < rec->prompts[i].n; k++) at.prompt_top += col_u32(m->prompt_n_top, at.prompt++);
		if (row->pool) at.pooled += c->dim;
	}
}

bool core_on_step_result(struct core *c, const struct msg_step_result *m, uint64_t now)
{
	const struct step_rec *rec = core_oldest_step(c);
	bool is_plain;

	c->now = now;
	if (m->epoch != c->cfg.epoch || !rec || m->number < rec->number) {
		c->stats.dropped_stale++;
		return true;
	}
	is_plain = taken_is_plain(m, rec);
	if (m->number > rec->number || m->status || !(is_plain ? taken_has_plain_samples(m, rec) : taken_has_samples(m, rec)) ||
	    !taken_has_prompt_rows(m, rec) || !taken_has_pooled(c, m, rec)) {
		c->stats.results_bad++;
		return false;
	}
	if (is_plain) taken_plain_rows(c, m, rec);
	else taken_rows(c, m, rec);
	c->rec_first = (c->rec_first + 1) % c->cfg.steps_in_flight_max;
	c->n_recs--;
	return true;
}
