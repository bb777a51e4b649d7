/* gen.c - see gen.h. */
#include "frontend/gen_impl.h"

#include "common/clock.h"
#include "common/hexout.h"
#include "common/mem.h"
#include "frontend/story.h"
#include "frontend/submit.h"

#include <string.h>

void gen_due(struct gen *g)
{
	if (!list_is_linked(&g->in_due)) list_push_back(&g->api->gens_due, &g->in_due);
}

void gen_cancel(struct gen *g)
{
	uint32_t i;

	for (i = 0; i < g->n_choices; i++) {
		if (!g->choices[i].live) continue;
		lives_cancel(g->api->lives, g->choices[i].live);
		g->choices[i].live = NULL;
		g->n_running--;
	}
}

void gen_free(struct gen *g)
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

void gen_too_large(struct gen *g)
{
	if (g->is_stream) (void)apierr_set(&g->error, 500, NULL, "The answer was read too slowly: more than %zu MiB waited.", GEN_HELD_MAX / MIB);
	else (void)apierr_set(&g->error, 400, NULL, "The answer is larger than %zu MiB; ask for fewer tokens, choices or log-probabilities, or for a stream.",
			      GEN_HELD_MAX / MIB);
	gen_due(g);
}

void gen_hold(struct gen_choice *c)
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

	gen_write_earlier(c);
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
