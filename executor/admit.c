/* admit.c - what a submit means: new, a repeat, a resubmit; or refused, with the numbers in the text.
 *
 * Whoever can never run is refused at once (prompt and one token must fit the model's length and the KV pool); the others wait as
 * long as it takes. Nothing here trusts the message: a frontend is another process. */
#include "executor/core_impl.h"

#include <math.h>
#include <stdio.h>

#define ADMIT_TEXT 256
#define ADMIT_PRIORITY (1u << 31) /* of everybody, unless the policy is by priority */

/* Fields of one that generates. */
static void admit_validate_generate(const struct msg_submit *m, char text[ADMIT_TEXT])
{
	uint32_t n_output = m->tokens.n - m->n_prompt;

	if (m->n_output_max == 0)
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
	else if (!isfinite(m->repetition_penalty) || !(m->repetition_penalty >= 0))
		snprintf(text, ADMIT_TEXT, "repetition_penalty must be a number above 0, but is %g.", (double)m->repetition_penalty);
	else if (!isfinite(m->presence_penalty) || !isfinite(m->frequency_penalty))
		snprintf(text, ADMIT_TEXT, "presence_penalty and frequency_penalty must be numbers, but are %g and %g.",
			 (double)m->presence_penalty, (double)m->frequency_penalty);
	else if (m->bias_ids.n != m->bias_values.n)
		snprintf(text, ADMIT_TEXT, "logit_bias has %u tokens, but %u values.", m->bias_ids.n, m->bias_values.n);
	else if (m->n_prompt_logprobs > LIMIT_TOP_LOGPROBS + 1)
		snprintf(text, ADMIT_TEXT, "%u log-probabilities a prompt token were requested, but only %u are allowed.",
			 m->n_prompt_logprobs - 1, LIMIT_TOP_LOGPROBS);
	for (uint32_t i = 0; !text[0] && i < m->bias_values.n; i++)
		if (!isfinite(col_f32(m->bias_values, i)))
			snprintf(text, ADMIT_TEXT, "logit_bias of token %u must be a number, but is %g.", col_u32(m->bias_ids, i),
				 (double)col_f32(m->bias_values, i));
}

/* Fields that do not go together; "" when all is well. */
static void admit_validate(const struct msg_submit *m, char text[ADMIT_TEXT])
{
	text[0] = 0;
	if (m->n_prompt == 0 || m->n_prompt > m->tokens.n)
		snprintf(text, ADMIT_TEXT, "The prompt must have between 1 and %u tokens, but n_prompt is %u.", m->tokens.n,
			 m->n_prompt);
	else if (m->n_prompt_known > m->n_prompt)
		snprintf(text, ADMIT_TEXT, "Log-probabilities of %u prompt tokens are known, but the prompt has only %u.",
			 m->n_prompt_known, m->n_prompt);
	else if (m->kind == REQUEST_GENERATE)
		admit_validate_generate(m, text);
	else if (m->kind != REQUEST_POOL_MEAN && m->kind != REQUEST_POOL_LAST)
		snprintf(text, ADMIT_TEXT, "There is no request of kind %u.", m->kind);
	else if (m->tokens.n != m->n_prompt)
		snprintf(text, ADMIT_TEXT, "A pooling request has no output tokens, but there are %u.", m->tokens.n - m->n_prompt);
	else if (m->n_prompt_logprobs)
		snprintf(text, ADMIT_TEXT, "A pooling request has no log-probabilities.");
}

/* A column of token ids against the vocabulary. */
static void admit_ids(uint32_t vocab, const char *what, struct view ids, char text[ADMIT_TEXT])
{
	for (uint32_t i = 0; !text[0] && i < ids.n; i++)
		if (col_u32(ids, i) >= vocab)
			snprintf(text, ADMIT_TEXT, "%s %u is token %u, but the model's vocabulary has %u tokens.", what, i,
				 col_u32(ids, i), vocab);
}

static void admit_all_ids(uint32_t vocab, struct view tokens, const struct msg_submit *m, char text[ADMIT_TEXT])
{
	text[0] = 0;
	admit_ids(vocab, "Prompt position", tokens, text);
	admit_ids(vocab, "Stop id", m->stop_ids, text);
	admit_ids(vocab, "Entry of logit_bias", m->bias_ids, text);
	admit_ids(vocab, "Entry of allowed_token_ids", m->allowed_ids, text);
}

/* Prompt and one token must fit; the prompt alone when nothing is generated. "" when they do, or when the sizes are not known yet. */
static void admit_fit(const struct core *c, const struct seq *s, char text[ADMIT_TEXT])
{
	uint32_t n_prompt = s->n_prompt;

	text[0] = 0;
	if (n_prompt < c->len_max || (n_prompt == c->len_max && seq_is_pooling(s))) return;
	if (seq_is_pooling(s))
		snprintf(text, ADMIT_TEXT,
			 "This server takes inputs of %u tokens at most (the model's context length is %u). However, you sent %u tokens. "
			 "Please reduce the length of the input.",
			 c->len_max, c->model_len_max, n_prompt);
	else if (n_prompt >= c->model_len_max)
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
	if (c->was_ready && s->vocab != c->vocab) {
		admit_all_ids(c->vocab, view_of(s->tokens, s->n_tokens), s->ask, text);
		if (text[0]) {
			core_refuse(c, s, REFUSAL_INVALID, text);
			return true;
		}
		s->vocab = c->vocab;
	}
	admit_fit(c, s, text);
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
	if (m->n_prompt != s->n_prompt || m->kind != s->ask->kind) {
		c->stats.dropped_stale++;
		return;
	}
	s->attempt = m->attempt;
	s->accept_due = true;
	seq_set_prompt_sent(s, m->n_prompt_known);
	route_dirty(s);
	if (m->tokens.n <= s->n_tokens || s->state == SEQ_DONE) {
		s->n_sent = min_u32(n_output, seq_n_output(s));
		expiry_sooner(c, s, m->queue_ms);
		return;
	}
	/* The frontend knows more: these are the tokens that were sent before. They run as prompt. */
	expiry_end(c, s);
	if (s->state == SEQ_RUNNING) {
		core_evict(c, s);
		core_requeue(c, s);
	}
	while (s->n_tokens < m->tokens.n) {
		seq_append_top(s->logprobs, 0, 0, m->tokens, m->tokens, 0);
		seq_append(s, col_u32(m->tokens, s->n_tokens));
	}
	s->vocab = 0; /* the new ones have not been looked at */
	s->n_sent = n_output;
	admit_recheck(c, s);
}

/* The request's place among those that wait; arrival comes behind all of it. */
static struct seq *admit_new(struct core *c, struct lane *l, const struct msg_submit *m)
{
	struct msg_submit ask = *m;
	struct seq *s;

	if (!c->cfg.has_priorities) ask.priority = ADMIT_PRIORITY;
	s = seq_new(&c->seqs, &ask, l, flow_enter(&l->flows, fair_enter(&c->fair, m->tenant)), ++c->arrivals);
	s->arrived_ns = c->now;
	list_push_back(&l->seqs, &s->lane_link);
	expiry_begin(c, s, m->queue_ms);
	return s;
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
	s = admit_new(c, l, m);
	if (!admit_recheck(c, s)) route_dirty_soon(c, s); /* not too long, and not at its end already */
}
