/* embed.c - see embed.h. */
#include "frontend/embed.h"

#include "common/clock.h"
#include "common/mem.h"
#include "frontend/conn.h"
#include "frontend/embed_text.h"
#include "frontend/jsonread.h"
#include "frontend/owner.h"
#include "frontend/prompt.h"
#include "frontend/story.h"

#include <stdio.h>
#include <string.h>

#define EMBED_INLINE_BYTES (16 * KIB)  /* of a body that is read in the loop */
#define EMBED_INLINE_VALUES 2048       /* numbers that are written in the loop: well under a millisecond */
#define EMBED_BYTES_MAX (256 * MIB)    /* token ids of all inputs */

struct embed_input {
	struct owner owner;
	struct embed *embed;
	struct live *live; /* NULL: not started, or it has ended */
	struct token_vec ids;
	struct embed_vector vector;
};

struct embed {
	struct list_link in_due;
	struct list_link in_running; /* while inputs are live */
	struct api *api;
	struct http_request *req;
	struct offload_job job;
	char id[64];
	struct strbuf bytes; /* READING: the body */
	json_t *body;
	struct params params; /* borrows from body */
	struct stages stages;
	uint32_t len_max;
	bool is_base64;
	int64_t dimensions;   /* 0: not given */
	struct embed_input *inputs;
	size_t n_inputs, n_running;
	uint64_t n_tokens;
	struct strbuf out;
	struct apierr error; /* status 0: none */
};

static void embed_drop(struct offload_job *j)
{
	struct embed *e = CONTAINER_OF(j, struct embed, job);
	size_t i;

	for (i = 0; i < e->n_inputs; i++) {
		token_vec_release(&e->inputs[i].ids);
		free(e->inputs[i].vector.values);
	}
	free(e->inputs);
	strbuf_release(&e->bytes);
	strbuf_release(&e->out);
	json_decref(e->body);
	free(e);
}

static void embed_cancel(struct embed *e)
{
	size_t i;

	for (i = 0; i < e->n_inputs; i++)
		if (e->inputs[i].live) lives_cancel(e->api->lives, e->inputs[i].live);
	if (list_is_linked(&e->in_due)) list_remove(&e->api->embeds_due, &e->in_due);
	if (list_is_linked(&e->in_running)) list_remove(&e->api->embeds, &e->in_running);
}

/* Answers with what there is, an error or the document. */
static void embed_answer(struct embed *e)
{
	if (e->error.status) apierr_answer(&e->error, e->req);
	else http_answer(e->req, 200, "application/json", NULL, e->out.data, e->out.len);
	offload_drop(e->job.pool, &e->job);
}

/* ---- READING ---- */

static bool embed_format(struct embed *e, struct apierr *err)
{
	const json_t *j = json_object_get(e->body, "encoding_format"), *d = json_object_get(e->body, "dimensions");
	const char *word = json_string_value(j);

	if (j && !json_is_null(j)) {
		if (!word || (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0))
			return params_wrong(err, "encoding_format", "`float` or `base64`");
		e->is_base64 = strcmp(word, "base64") == 0;
	}
	if (d && !json_is_null(d) && (!params_whole(d, &e->dimensions) || e->dimensions < 1))
		return params_wrong(err, "dimensions", "a whole number of at least 1");
	return true;
}

/* One input: j, or the chat's messages. */
static bool embed_read_one(struct embed *e, struct embed_input *in, const struct prompt_opts *o, const json_t *j, struct apierr *err)
{
	const char *name = j ? "input" : "messages";
	struct prompt p;
	bool ok;

	prompt_init(&p, o);
	ok = j ? prompt_read_one(&p, o, j, name, err) : prompt_read_chat(&p, o, &e->params, err);
	if (ok && p.ids.len == 0) ok = apierr_set(err, 400, name, "`%s` holds no tokens.", name);
	if (ok && p.ids.overflow)
		ok = apierr_set(err, 400, name, "This model's maximum context length is %u tokens. However, your input has more tokens than that. "
						"Please reduce the length of the input, or use `truncate_prompt_tokens`.",
				e->len_max);
	if (ok) {
		in->ids = p.ids;
		p.ids = (struct token_vec){0};
		e->n_tokens += in->ids.len;
	}
	prompt_release(&p);
	return ok;
}

static bool embed_read_inputs(struct embed *e, struct apierr *err)
{
	struct prompt_opts o = {.api = e->api, .ids_max = e->len_max, .truncate = e->params.truncate_prompt, .add_special = e->params.add_special_tokens, .stages = &e->stages};
	const json_t *input = json_object_get(e->body, "input");
	bool is_chat = e->params.endpoint == PARAMS_CHAT;
	size_t i, n = is_chat ? 1 : prompt_count(input, "input", err);

	if (n == 0) return false;
	if (n > EMBED_INPUTS_MAX) return apierr_set(err, 400, "input", "`input` must hold at most %d inputs.", EMBED_INPUTS_MAX);
	if (o.truncate < 0 || o.truncate > e->len_max) o.truncate = e->len_max;
	e->inputs = mem_array(struct embed_input, n);
	e->n_inputs = n;
	for (i = 0; i < n; i++) {
		if (!embed_read_one(e, &e->inputs[i], &o, is_chat ? NULL : prompt_get(input, i), err)) return false;
		if (e->n_tokens * sizeof(uint32_t) > EMBED_BYTES_MAX)
			return apierr_set(err, 400, "input", "`input` holds more than %zu tokens.", EMBED_BYTES_MAX / sizeof(uint32_t));
	}
	return true;
}

static bool embed_read(struct embed *e, struct apierr *err)
{
	const json_t *messages = json_object_get(e->body, "messages");
	enum params_endpoint endpoint = messages && !json_is_null(messages) ? PARAMS_CHAT : PARAMS_TEXT;

	if (!params_read(&e->params, endpoint, e->body, NULL, err) || !embed_format(e, err)) return false;
	/* As vLLM: a chat that is only looked at is not asked for an answer. */
	if (!json_object_get(e->body, "add_generation_prompt")) e->params.add_generation_prompt = false;
	return api_knows_model(e->api, e->params.model, e->params.model_len, err) && api_takes_priority(e->api, e->params.priority, err) &&
	       embed_read_inputs(e, err);
}

static void embed_on_read(struct offload_job *j)
{
	struct embed *e = CONTAINER_OF(j, struct embed, job);
	struct errbuf err = {{0}};
	uint64_t since = stage_begin(&e->stages.parse);
	int rc = jsonread(&e->body, e->bytes.data, e->bytes.len, &err);

	stage_end(&e->stages.parse, since);
	strbuf_release(&e->bytes);
	if (rc == ST_OK) (void)embed_read(e, &e->error);
	else (void)apierr_set(&e->error, 400, NULL, "%s", err.text);
}

/* ---- RUNNING ---- */

static void embed_due(struct embed *e)
{
	if (!list_is_linked(&e->in_due)) list_push_back(&e->api->embeds_due, &e->in_due);
}

static void on_embedding(void *owner, struct view values)
{
	struct embed_input *in = owner;
	uint32_t i;

	free(in->vector.values);
	in->vector = (struct embed_vector){.values = mem_array(float, values.n), .n = values.n};
	for (i = 0; i < values.n; i++) in->vector.values[i] = col_f32(values, i);
}

static void on_end(void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	struct embed_input *in = owner;
	struct embed *e = in->embed;

	in->live = NULL;
	e->n_running--;
	if (refusal) owner_refusal(&e->error, e->api->slot, refusal, text);
	else if (!in->vector.values) (void)apierr_set(&e->error, 500, NULL, "The engine ended the request before it was complete.");
	if (e->n_running == 0 || e->error.status) embed_due(e);
}

static const struct owner_kind embed_kind = {.on_end = on_end, .on_embedding = on_embedding};

static void embed_on_gone(void *owner)
{
	struct embed *e = owner;

	page_count(e->api->slot, COUNTER_client_gone, 1);
	page_count(e->api->slot, COUNTER_success_abort, 1);
	embed_cancel(e);
	offload_drop(e->job.pool, &e->job);
}

static void embed_on_late(void *owner, const struct apierr *why)
{
	struct embed *e = owner;

	if (!e->error.status) e->error = *why;
	embed_due(e);
}

static bool embed_submit(struct embed *e, struct apierr *err)
{
	const struct params *q = &e->params;
	size_t i;

	if (!admission_extend(e->api, e->req, e->n_inputs - 1, e->n_tokens, err)) return false;
	for (i = 0; i < e->n_inputs; i++) {
		struct embed_input *in = &e->inputs[i];
		struct msg_submit m = {
			.tokens = view_of(in->ids.ids, in->ids.len),
			.n_prompt = (uint32_t)in->ids.len,
			.kind = e->api->pooling,
			.top_p = 1,
			.priority = (uint32_t)((int64_t)(1u << 31) + q->priority),
			.cache_salt = view_of(q->cache_salt, q->cache_salt_len),
			.tenant = e->req->admission.tenant,
			.queue_ms = (uint32_t)div_up(e->api->config->queue_timeout, NS_PER_MS),
		};

		in->owner.kind = &embed_kind;
		in->embed = e;
		in->live = lives_start(e->api->lives, &m, in, e->api->now);
		if (!in->live) return apierr_set(err, 503, NULL, "The server holds as many requests as it can (%u). Please try again.", e->api->config->max_requests);
		token_vec_release(&in->ids);
		e->n_running++;
	}
	e->req->owner = e;
	e->req->on_gone = embed_on_gone;
	e->req->on_late = embed_on_late;
	list_push_back(&e->api->embeds, &e->in_running);
	return true;
}

static void embed_tell(const struct embed *e)
{
	struct story *s = e->req->story;

	if (!s) return;
	s->is_llm = true;
	s->stages = e->stages;
	s->n_prompt = e->n_tokens;
	s->submitted_ns = e->api->now;
}

static void embed_on_ready(struct offload_job *j)
{
	struct embed *e = CONTAINER_OF(j, struct embed, job);

	e->api->now = clock_now_ns();
	stages_observe(&e->stages, e->api->slot);
	embed_tell(e);
	if (!e->error.status && embed_submit(e, &e->error)) return;
	embed_cancel(e);
	embed_answer(e);
}

/* ---- WRITING ---- */

static void embed_on_write(struct offload_job *j)
{
	struct embed *e = CONTAINER_OF(j, struct embed, job);
	size_t i;

	embed_text_begin(&e->out, e->id, e->api->names[0], clock_wall_s());
	for (i = 0; i < e->n_inputs; i++) embed_text_vector(&e->out, i, &e->inputs[i].vector, e->is_base64);
	embed_text_end(&e->out, e->n_tokens);
	if (e->out.overflow) (void)apierr_set(&e->error, 400, "input", "The answer would be longer than %zu bytes.", e->out.len_max);
}

static void embed_on_written(struct offload_job *j)
{
	struct embed *e = CONTAINER_OF(j, struct embed, job);

	page_count(e->api->slot, e->error.status ? COUNTER_success_error : COUNTER_success_stop, 1);
	embed_answer(e);
}

static void embed_step(struct embed *e)
{
	size_t i, n_values = 0;

	e->req->owner = NULL;
	e->req->on_gone = NULL;
	e->req->on_late = NULL;
	embed_cancel(e);
	for (i = 0; i < e->n_inputs && !e->error.status; i++) {
		n_values += e->inputs[i].vector.n;
		if (e->dimensions && e->dimensions != e->inputs[i].vector.n)
			(void)apierr_set(&e->error, 400, "dimensions", "`dimensions` must be %u, the model's own; others are not supported.", e->inputs[i].vector.n);
	}
	e->job.run = embed_on_write;
	e->job.done = embed_on_written;
	e->job.bytes = n_values * sizeof(float);
	if (!e->error.status && n_values > EMBED_INLINE_VALUES && offload_start(&e->api->offload, e->req, &e->job)) return;
	if (!e->error.status) embed_on_write(&e->job); /* a few; or everybody writes, and this one holds the loop */
	embed_on_written(&e->job);
}

void embeds_step(struct api *a, uint64_t now)
{
	a->now = now;
	LIST_EACH(&a->embeds_due, l, next) {
		struct embed *e = CONTAINER_OF(l, struct embed, in_due);

		list_remove(&a->embeds_due, l);
		embed_step(e);
	}
}

void embeds_fail(struct api *a, const struct apierr *why)
{
	LIST_EACH(&a->embeds, l, next) {
		struct embed *e = CONTAINER_OF(l, struct embed, in_running);

		if (!e->error.status) e->error = *why;
		embed_due(e);
	}
}

/* ---- start ---- */

void embed_start(struct api *a, struct http_request *r)
{
	struct embed *e;
	struct apierr err = {0};

	if (!api_is_ready(a, &err)) {
		apierr_answer(&err, r);
		return;
	}
	e = mem_new(struct embed);
	e->api = a;
	e->req = r;
	e->len_max = api_model_len(a);
	strbuf_init(&e->out, CONN_OUT_MAX - 64 * KIB);
	conn_take_body(r->conn, &e->bytes);
	e->job = (struct offload_job){.pool = &a->offload, .bytes = e->bytes.len, .run = embed_on_read, .done = embed_on_ready, .drop = embed_drop};
	snprintf(e->id, sizeof(e->id), "embd-%016llx%016llx", (unsigned long long)a->run_id, (unsigned long long)api_random(a));
	if (e->bytes.len <= EMBED_INLINE_BYTES && !a->config->trust_request_chat_template) {
		embed_on_read(&e->job);
		embed_on_ready(&e->job);
	} else if (!offload_start(&a->offload, r, &e->job)) {
		api_refuse_preparing(a, &e->error);
		embed_answer(e);
	}
}
