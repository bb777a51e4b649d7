/* gen.c - see gen.h. */
#include "frontend/gen.h"

#include "common/clock.h"
#include "common/mem.h"
#include "frontend/answer.h"
#include "frontend/stopstr.h"

#include <stdio.h>
#include <string.h>

#define GEN_COMPLETION_TOKENS 16   /* OpenAI's default of max_tokens for /v1/completions */
#define GEN_GREEDY_BELOW 1e-5      /* vLLM's _SAMPLING_EPS: colder is greedy */
#define GEN_PIECE_MAX (64 * KIB)   /* text of one token */

struct gen {
	struct list_link in_gens, in_due;
	struct api *api;
	struct http_request *req;
	struct live *live; /* NULL: it has ended */
	struct answer answer;
	struct detok detok;
	struct stopstr stop;
	bool skip_special, is_stream, return_ids;
	uint32_t n_prompt, output_min, n_output, n_cached;
	uint32_t n_model_stop; /* the first stop ids are the model's own */
	uint32_t stop_ids[LIMIT_STOP_IDS];
	uint32_t n_stop_ids;
	uint64_t started_ns, token_ns, written_ns;

	bool begun;    /* stream: headers are out */
	bool ended;    /* nothing more comes; to be written and freed */
	int stop_ix;   /* the stop string that was found, or -1 */
	int64_t stop_id; /* the client's stop id that ended it, or -1 */
	enum finish finish;
	struct apierr error; /* status 0: none */
};

static void gen_due(struct gen *g)
{
	if (!list_is_linked(&g->in_due)) list_push_back(&g->api->gens_due, &g->in_due);
}

static void gen_free(struct gen *g)
{
	if (list_is_linked(&g->in_due)) list_remove(&g->api->gens_due, &g->in_due);
	list_remove(&g->api->gens, &g->in_gens);
	answer_release(&g->answer);
	stopstr_release(&g->stop);
	free(g);
}

/* The client is away: the engine must not work for nobody. */
static void on_gone(void *owner)
{
	struct gen *g = owner;

	if (g->live) lives_cancel(g->api->lives, g->live);
	page_count(g->api->slot, COUNTER_client_gone, 1);
	page_count(g->api->slot, COUNTER_success_abort, 1);
	gen_free(g);
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

static void gen_stops(struct gen *g, const struct params *p)
{
	const uint32_t *ids;
	const json_t *j;
	size_t i, n;

	stopstr_init(&g->stop, p->keep_stop);
	for (i = 0; json_is_array(p->stop) && i < json_array_size(p->stop); i++) {
		j = json_array_get(p->stop, i);
		stopstr_add(&g->stop, json_string_value(j), json_string_length(j));
	}
	if (json_is_string(p->stop)) stopstr_add(&g->stop, json_string_value(p->stop), json_string_length(p->stop));

	ids = tokenizer_stop_ids(g->api->tokenizer, &n);
	for (i = 0; !p->ignore_eos && i < n && g->n_stop_ids < LIMIT_STOP_IDS - PARAMS_STOP_IDS_MAX; i++)
		g->stop_ids[g->n_stop_ids++] = ids[i];
	g->n_model_stop = g->n_stop_ids;
	for (i = 0; i < p->n_stop_ids; i++) g->stop_ids[g->n_stop_ids++] = p->stop_ids[i];
}

static void gen_submit(const struct gen *g, const struct params *p, const struct token_vec *prompt, struct msg_submit *m)
{
	uint64_t room = api_model_len(g->api) - prompt->len;
	uint64_t wanted = p->output_max > 0 ? (uint64_t)p->output_max : p->endpoint == PARAMS_CHAT ? room : GEN_COMPLETION_TOKENS;

	memset(m, 0, sizeof(*m));
	m->tokens = view_of(prompt->ids, prompt->len);
	m->n_prompt = (uint32_t)prompt->len;
	m->n_output_max = (uint32_t)min_u64(wanted, room); /* a huge limit is cut down to what fits: many clients send one */
	m->n_output_min = (uint32_t)min_u64((uint64_t)p->output_min, m->n_output_max);
	m->stop_ids = view_of(g->stop_ids, g->n_stop_ids);
	m->temperature = p->temperature < GEN_GREEDY_BELOW ? 0 : (float)p->temperature;
	m->top_p = (float)p->top_p;
	m->top_k = (uint32_t)min_u64((uint64_t)p->top_k, UINT32_MAX);
	m->min_p = (float)p->min_p;
	m->seed = p->has_seed ? (uint64_t)p->seed : api_random(g->api);
	m->n_logprobs = p->n_logprobs < 0 ? 0 : 1 + (uint32_t)p->n_logprobs;
	m->priority = (uint32_t)((int64_t)(1u << 31) + p->priority);
	m->cache_salt = view_of(p->cache_salt, p->cache_salt_len);
	m->repetition_penalty = (float)p->repetition_penalty;
	m->presence_penalty = (float)p->presence_penalty;
	m->frequency_penalty = (float)p->frequency_penalty;
}

static void gen_answer_init(struct gen *g, const struct params *p, const struct token_vec *prompt)
{
	char id[64];
	struct answer_config cfg = {
		.shape = p->endpoint == PARAMS_CHAT ? &ANSWER_CHAT : &ANSWER_TEXT,
		.is_stream = p->stream,
		.include_usage = p->include_usage,
		.return_ids = p->return_token_ids,
		.n_logprobs = (int)p->n_logprobs,
		.n_prompt_logprobs = PARAMS_NO_LOGPROBS,
		.n_choices = 1,
		.id = id,
		.model = g->api->names[0],
		.created = clock_wall_s(),
		.token_bytes = gen_token_bytes,
		.ctx = g->api,
	};

	snprintf(id, sizeof(id), "%s%016llx%016llx", cfg.shape->id_prefix, (unsigned long long)g->api->run_id,
		 (unsigned long long)live_client_id(g->live));
	answer_init(&g->answer, &cfg);
	g->answer.choices[0].n_prompt = prompt->len;
	answer_prompt(&g->answer, &g->answer.choices[0], prompt->ids, prompt->len);
}

/* Several choices are being built. */
static bool gen_check(const struct prep *p, struct apierr *e)
{
	if (p->params.best_of > 1) return params_later(e, p->params.n > 1 ? "n" : "best_of");
	return p->n_prompts == 1 || apierr_set(e, 400, "prompt", "`prompt` with more than one prompt is not supported yet.");
}

static void gen_start_one(struct api *a, struct http_request *r, const struct params *p, const struct token_vec *prompt)
{
	struct apierr e = {0};
	struct msg_submit submit;
	struct gen *g = mem_new(struct gen);

	g->api = a;
	gen_stops(g, p);
	gen_submit(g, p, prompt, &submit);
	g->live = lives_start(a->lives, &submit, g, a->now);
	if (!g->live) {
		(void)apierr_set(&e, 503, NULL, "The server holds as many requests as it can (%u). Please try again.",
				 a->config->max_requests);
		e.retry_s = 1;
		apierr_answer(&e, r);
		stopstr_release(&g->stop);
		free(g);
		return;
	}
	list_push_back(&a->gens, &g->in_gens);
	gen_answer_init(g, p, prompt);
	detok_init(&g->detok);
	g->req = r;
	g->skip_special = p->skip_special;
	g->is_stream = p->stream;
	g->return_ids = p->return_token_ids;
	g->n_prompt = submit.n_prompt;
	g->output_min = submit.n_output_min;
	g->started_ns = g->token_ns = g->written_ns = a->now;
	g->stop_ix = -1;
	g->stop_id = -1;
	r->owner = g;
	r->on_gone = on_gone;
	r->on_room = on_room;
	if (g->is_stream) gen_due(g);
}

void gen_start(struct api *a, struct http_request *r, struct prep *p)
{
	struct apierr e = {0};

	if (gen_check(p, &e)) gen_start_one(a, r, &p->params, &p->prompts[0].ids);
	else apierr_answer(&e, r);
	prep_free(p);
}

void gen_serve(struct api *a, struct http_request *r, const struct endpoint *endpoint)
{
	struct apierr e = {0};

	if (api_is_ready(a, &e)) prep_start(a, r, endpoint, gen_start);
	else apierr_answer(&e, r);
}

/* ---- events of the live request ---- */

/* Whether this token ends the request at the executor; then it stands for the end and not for text. */
static bool gen_is_stop_id(struct gen *g, const struct live_token *t)
{
	uint32_t i;

	if (t->position < g->output_min) return false;
	for (i = 0; i < g->n_stop_ids; i++) {
		if (g->stop_ids[i] != t->id) continue;
		if (i >= g->n_model_stop) g->stop_id = t->id;
		return true;
	}
	return false;
}

static void gen_observe(struct gen *g, uint64_t now)
{
	double since = (double)(now - g->token_ns) / 1e9;

	page_observe(g->api->slot, g->n_output == 0 ? HISTOGRAM_ttft : HISTOGRAM_itl, since);
	g->token_ns = now;
}

/* Text goes through the stop strings; true when one was found. */
static bool gen_push_text(struct gen *g, const struct strbuf *piece)
{
	bool armed = g->n_output > g->output_min || g->output_min == 0;
	struct strbuf sure;

	strbuf_init(&sure, GEN_PIECE_MAX);
	g->stop_ix = stopstr_push(&g->stop, piece->data, piece->len, armed, &sure);
	pieces_text(&g->answer.choices[0].said, sure.data, sure.len);
	strbuf_release(&sure);
	return g->stop_ix >= 0;
}

bool gen_on_token(void *ctx, void *owner, const struct live_token *t)
{
	struct gen *g = owner;
	struct strbuf piece;
	bool found = false;

	gen_observe(g, g->api->now);
	if (g->n_output++ == 0) g->n_cached = live_n_cached(g->live);
	answer_token(&g->answer, &g->answer.choices[0], t);
	gen_due(g);
	if (gen_is_stop_id(g, t)) return false;
	strbuf_init(&piece, GEN_PIECE_MAX);
	detok_push(&g->detok, g->api->tokenizer, t->id, g->skip_special, &piece);
	if (piece.len > 0) found = gen_push_text(g, &piece);
	strbuf_release(&piece);
	if (!found) return false;
	g->finish = FINISH_STOP;
	g->ended = true;
	g->live = NULL; /* lives cancels it */
	return true;
}

static void gen_refusal(struct gen *g, uint32_t refusal, struct view text)
{
	int status = 500;

	if (refusal == REFUSAL_TOO_LONG || refusal == REFUSAL_INVALID) status = 400;
	if (refusal == REFUSAL_QUEUE_FULL || refusal == REFUSAL_DRAINING) status = 503;
	if (text.n == 0) text = view_text("The engine refused the request.");
	(void)apierr_set(&g->error, status, NULL, "%.*s", (int)text.n, (const char *)text.data);
	if (status == 503) g->error.retry_s = 1;
}

void gen_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	struct gen *g = owner;
	struct strbuf tail;

	g->live = NULL;
	g->ended = true;
	g->finish = finish;
	gen_due(g);
	if (refusal) {
		gen_refusal(g, refusal, text);
		return;
	}
	if (finish == FINISH_ABORT) {
		(void)apierr_set(&g->error, 500, NULL, "The engine ended the request before it was complete.");
		return;
	}
	strbuf_init(&tail, GEN_PIECE_MAX);
	detok_finish(&g->detok, &tail);
	if (tail.len > 0 && gen_push_text(g, &tail)) {
		g->finish = FINISH_STOP;
	} else {
		strbuf_reset(&tail);
		stopstr_finish(&g->stop, &tail);
		pieces_text(&g->answer.choices[0].said, tail.data, tail.len);
	}
	strbuf_release(&tail);
}

/* ---- writing ---- */

static void gen_end_of(struct gen *g)
{
	struct answer_end *end = &g->answer.choices[0].end;

	g->answer.choices[0].ended = true;
	*end = (struct answer_end){.finish = g->finish == FINISH_LENGTH ? "length" : "stop", .stop_id = -1};
	if (g->stop_ix >= 0) {
		end->stop_text = g->stop.list[g->stop_ix].text;
		end->stop_text_len = g->stop.list[g->stop_ix].len;
	} else if (g->finish == FINISH_STOP) {
		end->stop_id = g->stop_id;
	}
}

static void gen_count(const struct gen *g)
{
	struct page_slot *slot = g->api->slot;

	if (g->error.status) {
		page_count(slot, COUNTER_success_error, 1);
		return;
	}
	page_count(slot, g->finish == FINISH_LENGTH ? COUNTER_success_length : COUNTER_success_stop, 1);
	page_observe(slot, HISTOGRAM_e2e, (double)(g->api->now - g->started_ns) / 1e9);
	page_observe(slot, HISTOGRAM_request_prompt, g->n_prompt);
	page_observe(slot, HISTOGRAM_request_output, g->n_output);
}

static void gen_send(struct gen *g, struct strbuf *chunk)
{
	http_stream_write(g->req, chunk->data, chunk->len);
	strbuf_reset(chunk);
	g->written_ns = g->api->now;
}

static void gen_write_plain(struct gen *g, const struct answer_usage *usage)
{
	struct api *a = g->api;

	if (g->error.status) {
		apierr_answer(&g->error, g->req);
		return;
	}
	g->answer.cfg.shape->document(&g->answer, usage, &a->scratch);
	api_answer_json(a, g->req);
}

static void gen_begin(struct gen *g)
{
	if (g->begun) return;
	g->begun = true;
	http_stream_begin(g->req, 200, "text/event-stream; charset=utf-8");
	g->answer.cfg.shape->begin(&g->answer, &g->api->scratch);
	if (g->api->scratch.len) gen_send(g, &g->api->scratch);
}

/* The end of a stream: all that is left, whether there is room or not; it is bounded, and the connection times out by itself. */
static void gen_write_end(struct gen *g)
{
	struct answer_usage usage = {g->n_prompt, g->n_output, g->n_cached, 0};
	const struct answer_shape *shape = g->answer.cfg.shape;
	struct answer_choice *c = &g->answer.choices[0];
	struct strbuf *out = &g->api->scratch;

	gen_end_of(g);
	gen_count(g);
	if (!g->is_stream || (!g->begun && g->error.status)) {
		gen_write_plain(g, &usage);
	} else {
		gen_begin(g);
		if (g->error.status) {
			shape->error(&g->answer, &g->error, out);
		} else {
			if (c->said.n > 0) shape->delta(&g->answer, c, out);
			shape->end(&g->answer, c, out);
			shape->finish(&g->answer, &usage, out);
		}
		gen_send(g, out);
		http_stream_end(g->req);
	}
	gen_free(g);
}

/* Returns false when it has to be looked at again in the next pass. */
static bool gen_step(struct gen *g)
{
	struct api *a = g->api;

	if (g->ended) {
		gen_write_end(g);
		return true;
	}
	if (!g->is_stream) return true;
	/* A refusal should be a status, not an event inside a 200: wait a moment for the executor's word. */
	if (!g->begun && !live_is_accepted(g->live) && g->n_output == 0 && a->now - g->started_ns < GEN_BEGIN_NS) return false;
	gen_begin(g);
	if (!answer_has_delta(&g->answer, &g->answer.choices[0]) || !http_stream_has_room(g->req)) return true;
	g->answer.cfg.shape->delta(&g->answer, &g->answer.choices[0], &a->scratch);
	gen_send(g, &a->scratch);
	return true;
}

void gens_step(struct api *a, uint64_t now)
{
	a->now = now;
	LIST_EACH(&a->gens_due, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_due);

		/* Off the list first: a generation that ends is freed by its step. */
		list_remove(&a->gens_due, l);
		if (!gen_step(g)) list_push_front(&a->gens_due, l);
	}
}

void gens_tick(struct api *a, uint64_t now)
{
	static const char comment[] = ": \n\n";

	a->now = now;
	LIST_EACH(&a->gens, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_gens);

		if (!g->begun || g->ended || now - g->written_ns < GEN_COMMENT_NS || !http_stream_has_room(g->req)) continue;
		http_stream_write(g->req, comment, sizeof(comment) - 1);
		g->written_ns = now;
	}
}

void gens_release(struct api *a)
{
	LIST_EACH(&a->gens, l, next) {
		struct gen *g = CONTAINER_OF(l, struct gen, in_gens);

		if (g->live) lives_cancel(a->lives, g->live);
		g->req->on_gone = g->req->on_room = NULL;
		gen_free(g);
	}
}
