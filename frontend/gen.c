/* gen.c - see gen.h. */
#include "frontend/gen.h"

#include "common/clock.h"
#include "common/hexout.h"
#include "common/mem.h"
#include "frontend/answer.h"
#include "frontend/choice.h"
#include "frontend/owner.h"
#include "frontend/story.h"
#include "frontend/submit.h"

#include <stdio.h>
#include <string.h>

/* One choice of one prompt. */
struct gen_choice {
	struct owner owner;
	struct list_link in_due;
	struct gen *gen;
	struct live *live;            /* NULL: it has ended */
	struct answer_choice *answer; /* in gen->answer */
	struct choice text;
	uint32_t n_prompt, n_cached;
	double logprob_sum;           /* of the tokens so far */
	uint64_t token_ns, first_ns;  /* of the last token, and the first one; before, of the start */
	uint32_t queued_us, prefill_us;
	size_t held;                  /* of gen->held */
};

struct gen {
	struct list_link in_gens, in_due, in_unsaid;
	struct api *api;
	struct http_request *req;
	struct answer answer;
	struct choice_rules rules;
	struct gen_choice *choices; /* (n_choices): prompt after prompt */
	uint32_t n_choices, n_prompts;
	uint32_t n, best_of;        /* of a prompt: answered, run */
	uint32_t n_running;
	struct list due;            /* choices of a stream that have something to write */
	size_t held;
	uint64_t started_ns, written_ns;
	bool is_stream;
	bool echo_only;             /* what is drawn (at least one token must be) is not answered */
	bool begun;                 /* stream: headers are out */
	struct apierr error;        /* status 0: none */
};

static void gen_due(struct gen *g)
{
	if (!list_is_linked(&g->in_due)) list_push_back(&g->api->gens_due, &g->in_due);
}

/* What still runs must not work for nobody. */
static void gen_cancel(struct gen *g)
{
	uint32_t i;

	for (i = 0; i < g->n_choices; i++) {
		if (!g->choices[i].live) continue;
		lives_cancel(g->api->lives, g->choices[i].live);
		g->choices[i].live = NULL;
		g->n_running--;
	}
}

static void gen_free(struct gen *g)
{
	uint32_t i;

	if (!g) return;
	gen_cancel(g);
	if (list_is_linked(&g->in_due)) list_remove(&g->api->gens_due, &g->in_due);
	if (list_is_linked(&g->in_unsaid)) list_remove(&g->api->gens_unsaid, &g->in_unsaid);
	if (list_is_linked(&g->in_gens)) list_remove(&g->api->gens, &g->in_gens);
	if (g->answer.cfg.shape) { /* it was started */
		for (i = 0; i < g->n_choices; i++) choice_release(&g->choices[i].text);
		answer_release(&g->answer);
	}
	free(g->choices);
	choice_rules_release(&g->rules);
	free(g);
}

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

/* For the request's log line and span. finish: how it ended. */
static void gen_tell(const struct gen *g, const char *finish)
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

static void on_gone(void *owner)
{
	struct gen *g = owner;

	page_count(g->api->slot, COUNTER_client_gone, 1);
	page_count(g->api->slot, COUNTER_success_abort, 1);
	gen_tell(g, "abort");
	gen_free(g);
}

static void on_late(void *owner, const struct apierr *why)
{
	struct gen *g = owner;

	if (!g->error.status) g->error = *why;
	gen_due(g);
}

static void on_room(void *owner)
{
	gen_due(owner);
}

/* ---- start ---- */

static const char *gen_token_bytes(void *ctx, uint32_t id, size_t *len)
{
	const struct api *a = ctx;

	return tokenizer_bytes(a->tokenizer, id, len);
}

static void gen_answer(struct gen *g, const struct prep *p)
{
	const struct params *q = &p->params;
	char id[64];
	struct answer_config cfg = {
		.shape = p->endpoint->shape,
		.is_stream = q->stream,
		.include_usage = q->include_usage,
		.continuous_usage = q->include_usage && q->continuous_usage,
		.return_ids = q->return_token_ids,
		.ids_as_tokens = q->ids_as_tokens,
		.echo = q->echo,
		.has_reasoning = p->parse.reasoning != OUTPARSE_REASONING_NONE,
		.n_logprobs = (int)q->n_logprobs,
		.n_prompt_logprobs = (int)q->n_prompt_logprobs,
		.id = id,
		.model = g->api->names[0],
		.created = clock_wall_s(),
		.request = p->body,
		.defaults = p->api->defaults,
		.n_choices = g->n_choices,
		.token_bytes = gen_token_bytes,
		.ctx = g->api,
	};

	/* The end of the id is that of the first live request, so it tells the frontend, too. */
	CHECK(strlen(cfg.shape->id_prefix) + 33 <= sizeof(id));
	*hexout(hexout(stpcpy(id, cfg.shape->id_prefix), g->api->run_id, 16), live_client_id(g->choices[0].live), 16) = 0;
	answer_init(&g->answer, &cfg);
}

static void gen_choice_answer(struct gen *g, uint32_t ix, const struct prep *p)
{
	const struct prep_prompt *prompt = &p->prompts[ix / g->best_of];
	struct outparse_config parse = p->parse;
	bool parses = parse.tools || parse.reasoning || parse.named;
	struct gen_choice *c = &g->choices[ix];

	c->answer = &g->answer.choices[ix];
	c->answer->n_prompt = prompt->ids.len;
	/* A chat tells of its prompt once; with best_of nobody knows yet which choice will be the first. */
	if (ix == 0 || p->params.endpoint == PARAMS_TEXT || g->best_of > g->n)
		answer_prompt(&g->answer, c->answer, prompt->ids.ids, prompt->ids.len);
	if (p->params.echo) pieces_text(&c->answer->said, prompt->text.data, prompt->text.len);
	if (parses) parse.random = api_random(g->api);
	choice_init(&c->text, &g->rules, parses ? &parse : NULL, &c->answer->said);
}

static const struct owner_kind gen_kind;

/* All but the answer, which needs the first live request's name. */
static struct gen *gen_new(struct api *a, struct http_request *r, const struct prep *p)
{
	struct gen *g = mem_new(struct gen);
	uint32_t i;

	g->api = a;
	g->req = r;
	g->is_stream = p->params.stream;
	g->echo_only = p->params.echo_only;
	g->n_prompts = (uint32_t)p->n_prompts;
	g->n = (uint32_t)p->params.n;
	g->best_of = (uint32_t)p->params.best_of;
	g->n_choices = g->n_prompts * g->best_of;
	g->choices = mem_array(struct gen_choice, g->n_choices);
	g->started_ns = g->written_ns = a->now;
	list_init(&g->due);
	submit_rules(&g->rules, p);
	for (i = 0; i < g->n_choices; i++)
		g->choices[i] = (struct gen_choice){.owner.kind = &gen_kind, .gen = g, .token_ns = a->now,
						    .n_prompt = (uint32_t)p->prompts[i / g->best_of].ids.len};
	return g;
}

/* The choices of a prompt have one seed and differ by their number, so that a request with a seed can be repeated. */
static bool gen_submit(struct gen *g, const struct prep *p, struct submit *s, struct apierr *e)
{
	uint32_t i;

	for (i = 0; i < g->n_choices; i++) {
		uint32_t k = i % g->best_of;

		if (k == 0) {
			submit_prompt(s, p, &p->prompts[i / g->best_of]);
			s->m.seed = p->params.has_seed ? (uint64_t)p->params.seed : api_random(g->api);
		}
		s->m.choice = k;
		g->choices[i].live = lives_start(g->api->lives, &s->m, &g->choices[i], g->api->now);
		if (!g->choices[i].live)
			return apierr_set(e, 503, NULL, "The server holds as many requests as it can (%u). Please try again.",
					  g->api->config->max_requests);
		g->n_running++;
	}
	return true;
}

static bool gen_fits(const struct prep *p, struct apierr *e)
{
	size_t each = p->grammar.len + sizeof(uint32_t) * (json_array_size(p->params.allowed_ids) + 2 * json_object_size(p->params.logit_bias));
	size_t i, bytes = 0, n = (size_t)p->params.best_of;

	for (i = 0; i < p->n_prompts; i++) bytes += n * (each + sizeof(uint32_t) * p->prompts[i].ids.len + p->prompts[i].text.len);
	if (bytes <= GEN_CHOICES_BYTES_MAX) return true;
	return apierr_set(e, 400, n > 1 ? "n" : "prompt", "The prompts and grammars of %zu choices are together larger than %zu MiB.",
			  n * p->n_prompts, GEN_CHOICES_BYTES_MAX / MIB);
}

/* Each choice is a request, and may become as long as it may. */
static bool gen_admit(struct gen *g, const struct prep *p, struct submit *s, struct apierr *e)
{
	uint64_t n_tokens = 0;
	size_t i;

	for (i = 0; i < p->n_prompts; i++) {
		submit_prompt(s, p, &p->prompts[i]);
		n_tokens += g->best_of * ((uint64_t)s->m.n_prompt + s->m.n_output_max);
	}
	return admission_extend(g->api, g->req, g->n_choices - 1, n_tokens, e);
}

static bool gen_start_all(struct gen *g, const struct prep *p, struct apierr *e)
{
	struct submit s;
	uint32_t i;
	bool ok;

	submit_init(&s, p, &g->rules);
	s.m.tenant = g->req->admission.tenant;
	s.m.queue_ms = (uint32_t)div_up(g->api->config->queue_timeout, NS_PER_MS);
	ok = gen_admit(g, p, &s, e) && gen_submit(g, p, &s, e);
	submit_release(&s);
	if (!ok) return false;
	gen_answer(g, p);
	for (i = 0; i < g->n_choices; i++) gen_choice_answer(g, i, p);
	return true;
}

void gen_start(struct api *a, struct http_request *r, struct prep *p)
{
	struct gen *g = NULL;
	struct apierr e = {0};

	if (gen_fits(p, &e)) g = gen_new(a, r, p);
	if (g && gen_start_all(g, p, &e)) {
		list_push_back(&a->gens, &g->in_gens);
		r->owner = g;
		r->on_gone = on_gone;
		r->on_room = on_room;
		r->on_late = on_late;
		if (g->is_stream) list_push_back(&a->gens_unsaid, &g->in_unsaid);
	} else {
		gen_free(g);
		apierr_answer(&e, r);
	}
	prep_free(p);
}

void gen_serve(struct api *a, struct http_request *r, const struct endpoint *endpoint)
{
	struct apierr e = {0};

	if (api_is_ready(a, &e)) prep_start(a, r, endpoint, gen_start);
	else apierr_answer(&e, r);
}

/* ---- events of the live requests ---- */

static void gen_observe(struct gen_choice *c, const struct live_token *t)
{
	struct api *a = c->gen->api;
	bool is_first = t->position == 0;

	page_observe(a->slot, is_first ? HISTOGRAM_ttft : HISTOGRAM_itl, (double)(a->now - c->token_ns) / 1e9);
	c->token_ns = a->now;
	if (!is_first) return;
	c->first_ns = a->now;
	c->queued_us = t->queued_us;
	c->prefill_us = t->prefill_us;
	c->n_cached = live_n_cached(c->live);
	admission_first_token(a, c->gen->req);
}

/* The first choice's text, as the model wrote it, for the log. */
static void gen_show(const struct gen_choice *c, const struct live_token *t)
{
	struct gen *g = c->gen;
	size_t max = g->api->config->max_log_len, len;
	const char *bytes;

	if (max == 0 || !g->req->story || c != g->choices || tokenizer_is_special(g->api->tokenizer, t->id)) return;
	bytes = gen_token_bytes(g->api, t->id, &len);
	story_text(&g->req->story->said, max, bytes, len);
}

static void gen_choice_due(struct gen_choice *c)
{
	if (c->gen->is_stream && !list_is_linked(&c->in_due)) list_push_back(&c->gen->due, &c->in_due);
	gen_due(c->gen);
}

static void gen_too_large(struct gen *g)
{
	if (g->is_stream) (void)apierr_set(&g->error, 500, NULL, "The answer was read too slowly: more than %zu MiB waited.", GEN_HELD_MAX / MIB);
	else (void)apierr_set(&g->error, 400, NULL, "The answer is larger than %zu MiB; ask for fewer tokens, choices or log-probabilities, or for a stream.",
			      GEN_HELD_MAX / MIB);
	gen_due(g);
}

/* Counts what the choice holds now. */
static void gen_hold(struct gen_choice *c)
{
	struct gen *g = c->gen;
	size_t held = answer_held(c->answer);

	g->held = g->held - c->held + held;
	c->held = held;
	if (g->held > GEN_HELD_MAX) gen_too_large(g);
}

/* The engine is done with it, or we are with the engine. */
static void gen_choice_ended(struct gen_choice *c)
{
	c->live = NULL;
	c->gen->n_running--;
	c->answer->ended = true;
	c->answer->end = choice_end(&c->text);
}

static bool on_token(void *owner, const struct live_token *t)
{
	struct gen_choice *c = owner;
	bool found = false;

	gen_observe(c, t);
	gen_show(c, t);
	if (t->n_top > 0 && t->top_logprobs.n > 0) c->logprob_sum += (double)col_f32(t->top_logprobs, 0);
	if (!c->gen->echo_only) {
		answer_token(&c->gen->answer, c->answer, t);
		found = choice_push(&c->text, t->id);
	}
	gen_hold(c);
	gen_choice_due(c);
	if (found) gen_choice_ended(c); /* lives cancels it */
	return found;
}

static void on_accepted(void *owner)
{
	struct gen_choice *c = owner;

	if (c->gen->is_stream && !c->gen->begun) gen_due(c->gen);
}

static void on_prompt_token(void *owner, const struct live_token *t)
{
	struct gen_choice *c = owner;

	answer_prompt_token(&c->gen->answer, c->answer, t);
	gen_hold(c);
	gen_due(c->gen);
}

static void on_end(void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	struct gen_choice *c = owner;
	struct gen *g = c->gen;

	if (refusal) {
		owner_refusal(&g->error, g->api->slot, refusal, text);
	} else if (finish == FINISH_ABORT) {
		(void)apierr_set(&g->error, 500, NULL, "The engine ended the request before it was complete.");
	} else {
		choice_finish(&c->text, g->echo_only ? FINISH_LENGTH : finish);
		gen_hold(c);
	}
	gen_choice_ended(c);
	gen_choice_due(c);
}

static const struct owner_kind gen_kind = {.on_token = on_token, .on_accepted = on_accepted, .on_end = on_end, .on_prompt_token = on_prompt_token};

/* ---- the end ---- */

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

/* What keeps a stream from beginning looks at it again when it is over: the executor's word, a token, an end, or gens_step(). */
static void gen_step(struct gen *g)
{
	struct list_link *l;

	if (g->error.status || g->n_running == 0) {
		gen_end(g);
		return;
	}
	if (!g->is_stream) return;
	if (!g->begun && (admission_waits_for_token(g->req) || gen_waits_in_queue(g) || !gen_may_begin(g))) return;
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
