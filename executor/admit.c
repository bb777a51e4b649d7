/* admit.c - what a submit means: new, a repeat, a resubmit; or refused, with the numbers in the text.
 *
 * Whoever can never run is refused at once (prompt and one token must fit the model's length and the KV pool); the others wait as
 * long as it takes. Nothing here trusts the message: a frontend is another process. */
#include "executor/core_impl.h"

#include <math.h>
#include <stdio.h>

#define ADMIT_TEXT 256

/* Fields that do not go together; "" when all is well. */
static void admit_validate(const struct msg_submit *m, char text[ADMIT_TEXT])
{
	uint32_t n_output = m->tokens.n - m->n_prompt;

	text[0] = 0;
	if (m->n_prompt == 0 || m->n_prompt > m->tokens.n)
		snprintf(text, ADMIT_TEXT, "The prompt must have between 1 and %u tokens, but n_prompt is %u.", m->tokens.n,
			 m->n_prompt);
	else if (m->n_output_max == 0)
		snprintf(text, ADMIT_TEXT, "At least 1 output token must be allowed.");
	else if (n_output > m->n_output_max)
		snprintf(text, ADMIT_TEXT, "There are %u output tokens already, but only %u are allowed.", n_output,
			 m->n_output_max);
	else if (m->stop_ids.n > LIMIT_STOP_IDS)
		snprintf(text, ADMIT_TEXT, "There are %u stop ids, but only %u are allowed.", m->stop_ids.n, LIMIT_STOP_IDS);
	else if (m->n_logprobs > LIMIT_TOP_LOGPROBS + 1)
		snprintf(text, ADMIT_TEXT, "%u log-probabilities a token were requested, but only %u are allowed.",
			 m->n_logprobs - 1, LIMIT_TOP_LOGPROBS);
	else if (!isfinite(m->temperature) || !(m->temperature >= 0))
		snprintf(text, ADMIT_TEXT, "temperature must be a number from 0, but is %g.", (double)m->temperature);
	else if (!(m->top_p > 0 && m->top_p <= 1))
		snprintf(text, ADMIT_TEXT, "top_p must be in (0, 1], but is %g.", (double)m->top_p);
	else if (!(m->min_p >= 0 && m->min_p <= 1))
		snprintf(text, ADMIT_TEXT, "min_p must be in [0, 1], but is %g.", (double)m->min_p);
}

/* Prompt and one token must fit. "" when they do, or when the sizes are not known yet. */
static void admit_fit(const struct core *c, uint32_t n_prompt, char text[ADMIT_TEXT])
{
	text[0] = 0;
	if (n_prompt < c->len_max) return;
	if (n_prompt >= c->model_len_max)
		snprintf(text, ADMIT_TEXT,
			 "This model's maximum context length is %u tokens. However, you requested at least %u tokens (%u in the "
			 "prompt, 1 for the answer). Please reduce the length of the prompt.",
			 c->model_len_max, n_prompt + 1, n_prompt);
	else
		snprintf(text, ADMIT_TEXT,
			 "This server's KV cache holds %u tokens (%u blocks of %u). However, you requested at least %u tokens (%u "
			 "in the prompt, 1 for the answer). Please reduce the length of the prompt.",
			 c->len_max, c->pool.n_blocks, KVPOOL_BLOCK, n_prompt + 1, n_prompt);
}

bool admit_recheck(struct core *c, struct seq *s)
{
	char text[ADMIT_TEXT];
	enum finish finish = seq_finish(s, c->len_max);

	if (finish != FINISH_NONE) {
		core_finish(c, s, finish);
		return true;
	}
	admit_fit(c, s->n_prompt, text);
	if (!text[0]) return false;
	core_refuse(c, s, REFUSAL_TOO_LONG, text);
	return true;
}

/* A request that is here already. Prompt and parameters are those of the first submit. */
static void admit_again(struct core *c, struct seq *s, const struct msg_submit *m)
{
	uint32_t n_output = m->tokens.n - m->n_prompt;

	if (m->attempt <= s->attempt) {
		c->stats.submits_repeated++;
		return;
	}
	if (m->n_prompt != s->n_prompt) {
		c->stats.dropped_stale++;
		return;
	}
	s->attempt = m->attempt;
	s->accept_due = true;
	route_dirty(s);
	if (m->tokens.n <= s->n_tokens || s->state == SEQ_DONE) {
		s->n_sent = min_u32(n_output, seq_n_output(s));
		return;
	}
	/* The frontend knows more: these are the tokens that were sent before. They run as prompt. */
	if (s->state == SEQ_RUNNING) {
		core_evict(c, s);
		core_requeue(c, s);
	}
	while (s->n_tokens < m->tokens.n) {
		seq_append_top(s, 0, 0, m->tokens, m->tokens, 0);
		seq_append(s, col_u32(m->tokens, s->n_tokens));
	}
	s->n_sent = n_output;
	admit_recheck(c, s);
}

void admit_submit(struct core *c, const struct msg_submit *m)
{
	struct lane *l = route_lane(c, m->client_id);
	char text[ADMIT_TEXT];
	struct seq *s;

	if (!l || m->epoch != c->cfg.epoch) {
		c->stats.dropped_stale++;
		return;
	}
	c->stats.submits++;
	admit_validate(m, text);
	if (text[0]) {
		route_refuse(c, l, m->client_id, m->attempt, REFUSAL_INVALID, text);
		return;
	}
	s = seqs_find(&c->seqs, m->client_id);
	if (s) {
		admit_again(c, s, m);
		return;
	}
	/* A resubmit was admitted before, by us or by the executor before us: its client has an answer under way. */
	if (c->draining && m->attempt <= 1) {
		route_refuse(c, l, m->client_id, m->attempt, REFUSAL_DRAINING,
			     "The server is shutting down and takes no new requests.");
		return;
	}
	if (seqs_len(&c->seqs) >= c->cfg.requests_max) {
		snprintf(text, sizeof(text), "The server is overloaded: it holds %u requests, which is its limit. Please try again later.",
			 c->cfg.requests_max);
		route_refuse(c, l, m->client_id, m->attempt, REFUSAL_QUEUE_FULL, text);
		return;
	}
	s = seq_new(&c->seqs, m, l, &l->waiting, ++c->arrivals);
	list_push_back(&l->seqs, &s->lane_link);
	if (!admit_recheck(c, s)) route_dirty(s); /* not too long, and not at its end already */
}
