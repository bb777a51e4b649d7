/* api_render.c - POST /v1/chat/completions/render and /v1/completions/render: what a request would start from, without starting it.
 *
 * vLLM's shape, which routers read: an object with token_ids and sampling_params for a chat, a list of them for completions; and
 * the prompt as text, for people. */
#include "frontend/api.h"
#include "frontend/jsonout.h"
#include "frontend/params.h"
#include "frontend/prompt.h"
#include "frontend/task.h"

#include <string.h>

static void put_number(struct strbuf *out, const char *name, double v)
{
	strbuf_printf(out, "\"%s\":%.9g,", name, v);
}

static void put_whole(struct strbuf *out, const char *name, bool is_given, int64_t v)
{
	if (is_given) strbuf_printf(out, "\"%s\":%lld,", name, (long long)v);
	else strbuf_printf(out, "\"%s\":null,", name);
}

static void put_bool(struct strbuf *out, const char *name, bool v)
{
	strbuf_printf(out, "\"%s\":%s,", name, v ? "true" : "false");
}

static void put_text(struct strbuf *out, const char *name, const char *s, size_t len)
{
	strbuf_printf(out, "\"%s\":", name);
	if (s) jsonout_string(out, s, len);
	else strbuf_puts(out, "null");
	strbuf_putc(out, ',');
}

static void put_ids(struct strbuf *out, const char *name, const uint32_t *ids, size_t n)
{
	size_t i;

	strbuf_printf(out, "\"%s\":[", name);
	for (i = 0; i < n; i++) {
		if (i) strbuf_putc(out, ',');
		strbuf_put_u64(out, ids[i]);
	}
	strbuf_putc(out, ']');
}

static void put_stops(struct strbuf *out, const json_t *stop)
{
	size_t i;

	strbuf_puts(out, "\"stop\":[");
	if (json_is_string(stop)) jsonout_string(out, json_string_value(stop), json_string_length(stop));
	for (i = 0; i < json_array_size(stop); i++) {
		const json_t *one = json_array_get(stop, i);

		if (i) strbuf_putc(out, ',');
		jsonout_string(out, json_string_value(one), json_string_length(one));
	}
	strbuf_puts(out, "],");
}

static void put_sampling(struct strbuf *out, const struct params *q, int64_t max_tokens)
{
	strbuf_puts(out, "\"sampling_params\":{");
	put_whole(out, "n", true, q->n);
	put_number(out, "presence_penalty", q->presence_penalty);
	put_number(out, "frequency_penalty", q->frequency_penalty);
	put_number(out, "repetition_penalty", q->repetition_penalty);
	put_number(out, "temperature", q->temperature);
	put_number(out, "top_p", q->top_p);
	put_whole(out, "top_k", true, q->top_k);
	put_number(out, "min_p", q->min_p);
	put_whole(out, "seed", q->has_seed, q->seed);
	put_whole(out, "max_tokens", max_tokens > 0 || q->echo_only, q->echo_only ? 0 : max_tokens);
	put_whole(out, "min_tokens", true, q->output_min);
	put_whole(out, "logprobs", q->n_logprobs >= 0, q->n_logprobs);
	put_whole(out, "prompt_logprobs", q->n_prompt_logprobs >= 0, q->n_prompt_logprobs);
	put_bool(out, "ignore_eos", q->ignore_eos);
	put_bool(out, "skip_special_tokens", q->skip_special);
	put_bool(out, "include_stop_str_in_output", q->keep_stop);
	put_stops(out, q->stop);
	put_ids(out, "stop_token_ids", q->stop_ids, q->n_stop_ids);
	strbuf_puts(out, "},");
}

/* Output tokens that the request would get; 0 when there is no room or none is known. */
static int64_t output_room(const struct task *t, const struct params *q, size_t n_prompt)
{
	int64_t room = (int64_t)t->len_max - (int64_t)n_prompt, wanted = q->output_max;

	if (wanted == 0 && q->endpoint == PARAMS_TEXT) wanted = PARAMS_TEXT_OUTPUT;
	if (wanted == 0 || (room > 0 && wanted > room)) wanted = room;
	if (q->output_bound && wanted > q->output_bound) wanted = q->output_bound;
	return wanted > 0 ? wanted : 0;
}

static void put_rendered(struct task *t, const struct params *q, const struct prompt *p)
{
	struct strbuf *out = &t->out;

	strbuf_putc(out, '{');
	put_text(out, "request_id", t->id, strlen(t->id));
	put_text(out, "model", t->api->names[0], strlen(t->api->names[0]));
	put_text(out, "prompt", p->text.data ? p->text.data : "", p->text.len);
	put_sampling(out, q, output_room(t, q, p->ids.len));
	put_bool(out, "stream", q->stream);
	put_whole(out, "priority", true, q->priority);
	put_text(out, "cache_salt", q->cache_salt, q->cache_salt_len);
	strbuf_puts(out, "\"features\":null,\"kv_transfer_params\":null,");
	put_ids(out, "token_ids", p->ids.ids, p->ids.len);
	strbuf_putc(out, '}');
}

/* One prompt; j NULL: the chat. */
static bool render_one(struct task *t, const struct params *q, const json_t *j, struct apierr *e)
{
	struct prompt_opts o = {.api = t->api, .ids_max = LIMIT_TOKENS, .truncate = q->truncate_prompt, .add_special = q->add_special_tokens, .keep_text = true};
	struct prompt p;
	bool ok;

	if (o.truncate < 0) o.truncate = t->len_max > 1 ? t->len_max - 1 : 1;
	prompt_init(&p, &o);
	ok = j ? prompt_read_one(&p, &o, j, "prompt", e) : prompt_read_chat(&p, &o, q, e);
	if (ok && p.ids.overflow)
		ok = apierr_set(e, 400, j ? "prompt" : "messages", "The prompt has more than %u tokens, the longest there can be.", LIMIT_TOKENS);
	if (ok) put_rendered(t, q, &p);
	prompt_release(&p);
	return ok;
}

static bool render_read(struct task *t, enum params_endpoint endpoint, struct params *q)
{
	return params_read(q, endpoint, t->body, t->api->defaults, &t->error) && api_knows_model(t->api, q->model, q->model_len, &t->error);
}

static void render_chat(struct task *t)
{
	struct params q;

	if (render_read(t, PARAMS_CHAT, &q)) (void)render_one(t, &q, NULL, &t->error);
}

static void render_texts(struct task *t)
{
	struct params q;
	size_t i, n;

	if (!render_read(t, PARAMS_TEXT, &q)) return;
	n = prompt_count(q.prompt, "prompt", &t->error);
	if (n > t->api->config->max_n)
		(void)apierr_set(&t->error, 400, "prompt", "`prompt` must hold at most %u prompts (--max-n).", t->api->config->max_n);
	strbuf_putc(&t->out, '[');
	for (i = 0; i < n && !t->error.status; i++) {
		if (i) strbuf_putc(&t->out, ',');
		if (!render_one(t, &q, prompt_get(q.prompt, i), &t->error)) return;
	}
	strbuf_putc(&t->out, ']');
}

void api_render_chat(struct api *a, struct http_request *r)
{
	task_start(a, r, render_chat);
}

void api_render_completions(struct api *a, struct http_request *r)
{
	task_start(a, r, render_texts);
}
