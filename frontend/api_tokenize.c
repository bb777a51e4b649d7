/* api_tokenize.c - POST /tokenize and /detokenize, in vLLM's shapes. */
#include "frontend/api.h"
#include "frontend/jsonout.h"
#include "frontend/params.h"
#include "frontend/prompt.h"
#include "frontend/task.h"

static void put_tokens(struct task *t, const struct token_vec *ids, bool strs)
{
	struct strbuf *out = &t->out;
	size_t i, n;

	strbuf_puts(out, "{\"count\":");
	strbuf_put_u64(out, ids->len);
	strbuf_puts(out, ",\"max_model_len\":");
	strbuf_put_u64(out, t->len_max);
	strbuf_puts(out, ",\"tokens\":[");
	for (i = 0; i < ids->len; i++) {
		if (i) strbuf_putc(out, ',');
		strbuf_put_u64(out, ids->ids[i]);
	}
	strbuf_puts(out, "],\"token_strs\":");
	if (strs) strbuf_putc(out, '[');
	for (i = 0; strs && i < ids->len; i++) {
		const char *s = tokenizer_bytes(t->api->tokenizer, ids->ids[i], &n);

		if (i) strbuf_putc(out, ',');
		jsonout_string(out, s, n);
	}
	strbuf_puts(out, strs ? "]}" : "null}");
}

/* A text, or the messages of a chat with all that may say how they are rendered. */
static bool read_prompt(const struct task *t, struct prompt *p, const struct prompt_opts *o, const struct params *q, struct apierr *e)
{
	if (!api_knows_model(t->api, q->model, q->model_len, e)) return false;
	if (q->endpoint == PARAMS_CHAT) return prompt_read_chat(p, o, q, e);
	if (!params_is_text(q->prompt)) return params_wrong(e, "prompt", "a text");
	return prompt_read_one(p, o, q->prompt, "prompt", e);
}

static void tokenize(struct task *t)
{
	const json_t *messages = json_object_get(t->body, "messages");
	enum params_endpoint endpoint = messages && !json_is_null(messages) ? PARAMS_CHAT : PARAMS_TEXT;
	struct prompt_opts o = {.api = t->api, .ids_max = LIMIT_TOKENS};
	struct apierr *e = &t->error;
	struct params q;
	struct prompt p;
	bool strs = false;

	if (!params_read(&q, endpoint, t->body, NULL, e) || !params_switch(t->body, "return_token_strs", &strs, e)) return;
	o.add_special = q.add_special_tokens;
	prompt_init(&p, &o);
	if (read_prompt(t, &p, &o, &q, e)) {
		if (p.ids.overflow) (void)apierr_set(e, 400, "prompt", "The prompt has more than %u tokens, the longest there can be.", LIMIT_TOKENS);
		else put_tokens(t, &p.ids, strs);
	}
	prompt_release(&p);
}

void api_tokenize(struct api *a, struct http_request *r)
{
	task_start(a, r, tokenize);
}

static void detokenize(struct task *t)
{
	struct prompt_opts o = {.api = t->api, .ids_max = LIMIT_TOKENS, .keep_text = true};
	const json_t *tokens = json_object_get(t->body, "tokens");
	struct apierr *e = &t->error;
	struct prompt p;
	struct params q;

	/* Only for the model's name. */
	if (!params_read(&q, PARAMS_TEXT, t->body, NULL, e) || !api_knows_model(t->api, q.model, q.model_len, e)) return;
	if (!json_is_array(tokens)) {
		(void)params_wrong(e, "tokens", "a list of token ids");
		return;
	}
	prompt_init(&p, &o);
	if (prompt_read_one(&p, &o, tokens, "tokens", e)) {
		strbuf_puts(&t->out, "{\"prompt\":");
		jsonout_string(&t->out, p.text.data, p.text.len);
		strbuf_putc(&t->out, '}');
	}
	prompt_release(&p);
}

void api_detokenize(struct api *a, struct http_request *r)
{
	task_start(a, r, detokenize);
}
