/* gen_write.c - what of a generation goes to its client, once a loop pass; and what is counted and told when it ends (see gen.h). */
#include "frontend/gen_impl.h"

#include "common/mem.h"
#include "frontend/story.h"

#include <string.h>

/* ---- what is counted and told ---- */

static struct answer_usage gen_usage(const struct gen *g)
{
	struct answer_usage u = {0};
	uint32_t i;

	for (i = 0; i < g->n_choices; i++) {
		const struct gen_choice *c = &g->choices[i];

		u.n_output += c->text.n_output;
		u.n_reasoning += c->text.n_reasoning;
		if (i % g->best_of) continue;
		u.n_prompt += c->n_prompt;
		u.n_cached += c->n_cached;
	}
	return u;
}

void gen_tell(const struct gen *g, const char *finish)
{
	struct story *s = g->req->story;
	struct answer_usage usage;
	uint32_t i;

	if (!s) return;
	usage = gen_usage(g);
	s->submitted_ns = g->started_ns;
	s->n_cached = usage.n_cached;
	s->n_output = usage.n_output;
	s->finish = finish;
	for (i = 0; i < g->n_choices; i++) {
		const struct gen_choice *c = &g->choices[i];

		if (c->text.n_output == 0) continue;
		s->last_ns = max_u64(s->last_ns, c->token_ns);
		if (s->first_ns && s->first_ns <= c->first_ns) continue;
		s->first_ns = c->first_ns;
		s->queued_us = c->queued_us;
		s->prefill_us = c->prefill_us;
	}
}

static double mean_logprob(const struct gen_choice *c)
{
	return c->text.n_output ? c->logprob_sum / c->text.n_output : 0;
}

/* The n likeliest choices of each prompt, the best first; of equal ones the earlier. */
static void gen_pick(struct gen *g)
{
	uint32_t *picked = mem_array(uint32_t, g->n_choices), i, k, at, n = 0;

	for (i = 0; i < g->n_prompts; i++) {
		uint32_t *mine = picked + n, n_mine = 0;

		for (k = i * g->best_of; k < (i + 1) * g->best_of; k++) {
			double mean = mean_logprob(&g->choices[k]);

			for (at = n_mine; at > 0 && mean > mean_logprob(&g->choices[mine[at - 1]]); at--) mine[at] = mine[at - 1];
			mine[at] = k;
			n_mine++;
		}
		n += g->n; /* the next prompt's overwrite those that are not wanted */
	}
	answer_pick(&g->answer, picked, n);
	free(picked);
}

static void gen_count_times(const struct gen_choice *c)
{
	struct page_slot *slot = c->gen->api->slot;
	uint32_t n = c->text.n_output;
	double decode = (double)(c->token_ns - c->first_ns) / 1e9;

	if (n == 0) return;
	page_observe(slot, HISTOGRAM_decode_time, decode);
	page_observe(slot, HISTOGRAM_inference_time, decode + (double)c->prefill_us / 1e6);
	if (n > 1) page_observe(slot, HISTOGRAM_tpot, decode / (n - 1));
}

static void gen_count(const struct gen *g)
{
	struct page_slot *slot = g->api->slot;
	bool cut = false;
	uint32_t i;

	if (g->error.status) {
		page_count(slot, COUNTER_success_error, 1);
		gen_tell(g, "error");
		return;
	}
	for (i = 0; i < g->n_choices; i++) {
		const struct gen_choice *c = &g->choices[i];

		cut |= c->text.finish == FINISH_LENGTH;
		page_observe(slot, HISTOGRAM_request_output, c->text.n_output);
		gen_count_times(c);
		if (i % g->best_of == 0) page_observe(slot, HISTOGRAM_request_prompt, c->n_prompt);
	}
	page_count(slot, cut ? COUNTER_success_length : COUNTER_success_stop, 1);
	page_observe(slot, HISTOGRAM_e2e, (double)(g->api->now - g->started_ns) / 1e9);
	gen_tell(g, cut ? "length" : "stop");
}

/* ---- writing ---- */

static void gen_send(struct gen *g, struct strbuf *chunk)
{
	if (chunk->len == 0) return;
	http_stream_write(g->req, chunk->data, chunk->len);
	strbuf_reset(chunk);
	g->written_ns = g->api->now;
}

static void gen_begin(struct gen *g)
{
	if (g->begun) return;
	g->begun = true;
	http_stream_begin(g->req, 200, "text/event-stream; charset=utf-8");
	g->answer.cfg.shape->begin(&g->answer, &g->api->scratch);
	gen_send(g, &g->api->scratch);
}

static void gen_write_choice(struct gen *g, struct gen_choice *c)
{
	const struct answer_shape *shape = g->answer.cfg.shape;
	struct strbuf *out = &g->api->scratch;

	list_remove(&g->due, &c->in_due);
	if (c->answer->ended ? c->answer->said.n > 0 : answer_has_delta(&g->answer, c->answer)) shape->delta(&g->answer, c->answer, out);
	if (c->answer->ended) shape->end(&g->answer, c->answer, out);
	gen_hold(c);
	if (out->overflow) { /* all of it was control characters, six bytes each */
		strbuf_reset(out);
		gen_too_large(g);
	}
	gen_send(g, out);
}

static void gen_write_document(struct gen *g)
{
	struct answer_usage usage = gen_usage(g);
	struct api *a = g->api;

	if (g->best_of > g->n) gen_pick(g);
	g->answer.cfg.shape->document(&g->answer, &usage, &a->scratch);
	api_answer_json(a, g->req);
}

/* The end of a stream: all that is left, whether there is room or not; it is bounded, and the connection times out by itself. */
static void gen_write_rest(struct gen *g)
{
	struct answer_usage usage = gen_usage(g);
	struct strbuf *out = &g->api->scratch;
	struct list_link *l;

	gen_begin(g);
	while (!g->error.status && (l = list_first(&g->due))) gen_write_choice(g, CONTAINER_OF(l, struct gen_choice, in_due));
	if (g->error.status) g->answer.cfg.shape->error(&g->answer, &g->error, out);
	else g->answer.cfg.shape->finish(&g->answer, &usage, out);
	gen_send(g, out);
	http_stream_end(g->req);
}

static void gen_end(struct gen *g)
{
	gen_cancel(g);
	gen_count(g);
	if (g->error.status && !g->begun) apierr_answer(&g->error, g->req);
	else if (g->is_stream) gen_write_rest(g);
	else gen_write_document(g);
	gen_free(g);
}

/* A refusal should be a status, not an event inside a 200: the headers wait a moment for the executor's word on every choice. */
static bool gen_may_begin(const struct gen *g)
{
	uint32_t i;

	if (g->begun || g->api->now - g->started_ns >= GEN_BEGIN_NS) return true;
	for (i = 0; i < g->n_choices; i++)
		if (g->choices[i].live && !live_is_accepted(g->choices[i].live)) return false;
	return true;
}

/* Nothing of it has begun, and its queue timeout may still end it: that is a status, too. */
static bool gen_waits_in_queue(const struct gen *g)
{
	if (!g->api->config->queue_timeout) return false;
	for (uint32_t i = 0; i < g->n_choices; i++)
		if (!g->choices[i].live || live_n_output(g->choices[i].live) > 0) return false;
	return true;
}

static bool gen_may_write(const struct gen *g)
{
	return g->begun || (!admission_waits_for_token(g->req) && !gen_waits_in_queue(g) && gen_may_begin(g));
}

void gen_write_earlier(struct gen_choice *c)
{
	struct gen *g = c->gen;

	if (!list_is_linked(&c->in_due) || g->error.status || !gen_may_write(g) || !http_stream_has_room(g->req)) return;
	gen_begin(g);
	gen_write_choice(g, c);
}

/* What keeps a stream from beginning looks at it again when it is over: the executor's word, a token, an end, or gens_step(). */
static void gen_step(struct gen *g)
{
	struct list_link *l;

	if (g->error.status || g->n_running == 0) {
		gen_end(g);
		return;
	}
	if (!g->is_stream || !gen_may_write(g)) return;
	gen_begin(g);
	while (http_stream_has_room(g->req) && (l = list_first(&g->due))) gen_write_choice(g, CONTAINER_OF(l, struct gen_choice, in_due));
}

/* Streams that have not been accepted in time. */
static void gens_late(struct api *a)
{
	struct list_link *l;

	while ((l = list_first(&a->gens_unsaid))) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_unsaid);

		if (a->now - g->started_ns < GEN_BEGIN_NS) return;
		list_remove(&a->gens_unsaid, l);
		if (!g->begun) gen_due(g);
	}
}

void gens_step(struct api *a, uint64_t now)
{
	a->now = now;
	a->inline_bytes = 0;
	gens_late(a);
	LIST_EACH(&a->gens_due, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_due);

		/* Off the list first: a generation that ends is freed by its step. */
		list_remove(&a->gens_due, l);
		gen_step(g);
	}
}

void gens_tick(struct api *a, uint64_t now)
{
	static const char comment[] = ": \n\n";

	a->now = now;
	LIST_EACH(&a->gens, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_gens);

		if (!g->begun || now - g->written_ns < GEN_COMMENT_NS || !http_stream_has_room(g->req)) continue;
		http_stream_write(g->req, comment, sizeof(comment) - 1);
		g->written_ns = now;
	}
}

void gens_fail(struct api *a, const struct apierr *why)
{
	LIST_EACH(&a->gens, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_gens);

		if (!g->error.status) g->error = *why;
		gen_due(g);
	}
}

void gens_release(struct api *a)
{
	LIST_EACH(&a->gens, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_gens);

		g->req->on_gone = g->req->on_room = NULL;
		gen_free(g);
	}
}
