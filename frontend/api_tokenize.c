/* api_tokenize.c - POST /tokenize and /detokenize, in vLLM's shapes. */
#include "frontend/api.h"
#include "frontend/jsonout.h"
#include "frontend/params.h"

#define TOKENIZE_IDS_MAX (4u << 20)      /* LIMIT_TOKENS: the longest prompt there can be */
#define TOKENIZE_TEXT_MAX (2 * MIB)      /* some 0.2 s of the loop; in slices it could be more */

/* A switch of the request with its default. */
static bool read_switch(const json_t *body, const char *name, bool *value, struct apierr *e)
{
	const json_t *j = json_object_get(body, name);

	if (!j || json_is_null(j)) return true;
	if (!json_is_boolean(j)) return params_wrong(e, name, "true or false");
	*value = json_is_true(j);
	return true;
}

static bool check_model(struct api *a, const json_t *body, struct apierr *e)
{
	const json_t *j = json_object_get(body, "model");

	if (!j || json_is_null(j)) return true;
	if (!json_is_string(j)) return params_wrong(e, "model", "a string");
	return api_knows_model(a, json_string_value(j), json_string_length(j), e);
}

static bool read_text(struct api *a, const json_t *body, bool *strs, struct token_vec *out, struct apierr *e)
{
	const json_t *prompt = json_object_get(body, "prompt"), *messages = json_object_get(body, "messages");
	bool add_special = !messages, add_generation = true;

	if (!check_model(a, body, e) || !read_switch(body, "add_special_tokens", &add_special, e) ||
	    !read_switch(body, "add_generation_prompt", &add_generation, e) || !read_switch(body, "return_token_strs", strs, e))
		return false;
	if (messages && !json_is_null(messages)) return api_chat_prompt(a, body, add_generation, TOKENIZE_TEXT_MAX, out, e);
	if (!json_is_string(prompt) || json_string_length(prompt) > TOKENIZE_TEXT_MAX)
		return params_wrong(e, "prompt", "a text of at most 2097152 bytes");
	api_text_prompt(a, json_string_value(prompt), json_string_length(prompt), add_special, out);
	return true;
}

static void put_tokens(struct api *a, const struct token_vec *ids, bool strs)
{
	struct strbuf *out = &a->scratch;
	size_t i, n;

	strbuf_puts(out, "{\"count\":");
	jsonout_u64(out, ids->len);
	strbuf_puts(out, ",\"max_model_len\":");
	jsonout_u64(out, api_model_len(a));
	strbuf_puts(out, ",\"tokens\":[");
	for (i = 0; i < ids->len; i++) {
		if (i) strbuf_putc(out, ',');
		jsonout_u64(out, ids->ids[i]);
	}
	strbuf_puts(out, "],\"token_strs\":");
	if (strs) strbuf_putc(out, '[');
	for (i = 0; strs && i < ids->len; i++) {
		const char *s = tokenizer_bytes(a->tokenizer, ids->ids[i], &n);

		if (i) strbuf_putc(out, ',');
		jsonout_string(out, s, n);
	}
	strbuf_puts(out, strs ? "]}" : "null}");
}

void api_tokenize(struct api *a, struct http_request *r)
{
	struct apierr e = {0};
	struct token_vec ids;
	bool strs = false;
	json_t *body;

	if (!api_body(r, &body)) return;
	token_vec_init(&ids, TOKENIZE_IDS_MAX);
	if (read_text(a, body, &strs, &ids, &e)) {
		put_tokens(a, &ids, strs);
		api_answer_json(a, r);
	} else {
		apierr_answer(&e, r);
	}
	token_vec_release(&ids);
	json_decref(body);
}

static void put_prompt(struct api *a, const struct token_vec *ids)
{
	struct strbuf text;
	struct detok d;
	size_t i;

	strbuf_init(&text, SIZE_MAX / 2); /* as long as the body's ids make it */
	detok_init(&d);
	for (i = 0; i < ids->len; i++) detok_push(&d, a->tokenizer, ids->ids[i], false, &text);
	detok_finish(&d, &text);
	strbuf_puts(&a->scratch, "{\"prompt\":");
	jsonout_string(&a->scratch, text.data, text.len);
	strbuf_putc(&a->scratch, '}');
	strbuf_release(&text);
}

void api_detokenize(struct api *a, struct http_request *r)
{
	struct apierr e = {0};
	const json_t *tokens;
	struct token_vec ids;
	json_t *body;

	if (!api_body(r, &body)) return;
	token_vec_init(&ids, TOKENIZE_IDS_MAX);
	tokens = json_object_get(body, "tokens");
	if (!json_is_array(tokens)) (void)params_wrong(&e, "tokens", "a list of token ids");
	if (!e.status && check_model(a, body, &e) && api_token_list(a, "tokens", tokens, &ids, &e)) {
		put_prompt(a, &ids);
		api_answer_json(a, r);
	} else {
		apierr_answer(&e, r);
	}
	token_vec_release(&ids);
	json_decref(body);
}
