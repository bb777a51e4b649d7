/* prompt.c - see prompt.h.
 *
 * As with vLLM, control tokens that are written out in a text prompt are recognised: the caller of /v1/completions writes the whole
 * prompt himself. In a chat they are recognised in the template's own text only (chat_encode()). */
#include "frontend/prompt.h"

#include "common/clock.h"
#include "frontend/chat.h"
#include "frontend/chatmsg.h"
#include "frontend/toolnote.h"
#include "proto/limits.h"

#include <string.h>

#define PROMPT_TEXT_MAX (1 * GIB) /* no prompt comes near: bodies and rendered texts are smaller */

void prompt_init(struct prompt *p, const struct prompt_opts *o)
{
	/* What is cut to its last ids has to be encoded whole. */
	token_vec_init(&p->ids, o->truncate ? LIMIT_TOKENS : o->ids_max);
	strbuf_init(&p->text, PROMPT_TEXT_MAX);
	strbuf_init(&p->echo, PROMPT_TEXT_MAX);
}

void prompt_release(struct prompt *p)
{
	token_vec_release(&p->ids);
	strbuf_release(&p->text);
	strbuf_release(&p->echo);
}

static bool prompt_cut(struct prompt *p, const struct prompt_opts *o, const char *name, struct apierr *e)
{
	size_t keep = (size_t)o->truncate;

	if (o->truncate <= 0) return true;
	if (p->ids.overflow)
		return apierr_set(e, 400, name, "`%s` has more than %u tokens; no more can be cut down by `truncate_prompt_tokens`.", name, LIMIT_TOKENS);
	if (p->ids.len <= keep) return true;
	memmove(p->ids.ids, p->ids.ids + p->ids.len - keep, keep * sizeof(*p->ids.ids));
	p->ids.len = keep;
	return true;
}

/* A text of so many bytes has more tokens than there is room for, whatever it says; encoding it would be for nothing. Normalization
 * (NFC) makes at most three bytes one. */
static bool prompt_may_fit(struct prompt *p, const struct prompt_opts *o, size_t len)
{
	if (len / 3 / o->api->token_bytes_max <= p->ids.len_max) return true;
	p->ids.overflow = true;
	return false;
}

/* ---- texts and ids ---- */

static struct stage *prompt_tokenizing(const struct prompt_opts *o)
{
	return o->stages ? &o->stages->tokenize : NULL;
}

static void prompt_bos(struct prompt *p, const struct prompt_opts *o)
{
	const struct tokenizer *t = o->api->tokenizer;

	if (o->add_special && tokenizer_add_bos(t)) token_vec_push(&p->ids, tokenizer_bos(t));
}

static void prompt_say(struct prompt *p, const struct prompt_opts *o)
{
	struct detok d;
	size_t i;

	detok_init_start(&d);
	for (i = 0; i < p->ids.len; i++) detok_push(&d, o->api->tokenizer, p->ids.ids[i], false, &p->text);
	detok_finish(&d, &p->text);
}

bool prompt_read_one(struct prompt *p, const struct prompt_opts *o, const json_t *j, const char *name, struct apierr *e)
{
	if (json_is_string(j)) {
		const char *text = json_string_value(j);
		size_t len = json_string_length(j);
		uint64_t since;

		if (o->keep_text) strbuf_append(&p->text, text, len);
		if (!prompt_may_fit(p, o, len)) return prompt_cut(p, o, name, e);
		since = stage_begin(prompt_tokenizing(o));
		prompt_bos(p, o);
		tokenizer_encode_parts_in(o->api->tokenizer, o->work, &(struct token_part){text, len, true}, 1, &p->ids);
		stage_end(prompt_tokenizing(o), since);
		return prompt_cut(p, o, name, e);
	}
	if (!api_token_list(o->api, name, j, &p->ids, e) || !prompt_cut(p, o, name, e)) return false;
	if (o->keep_text && !p->ids.overflow) prompt_say(p, o);
	return true;
}

static bool prompt_is_one(const json_t *j)
{
	return params_is_text(j) || (json_array_size(j) > 0 && json_is_number(json_array_get(j, 0)));
}

size_t prompt_count(const json_t *j, const char *name, struct apierr *e)
{
	size_t i, n = json_array_size(j);

	if (!j || json_is_null(j)) {
		(void)apierr_set(e, 400, name, "`%s` is required.", name);
		return 0;
	}
	if (prompt_is_one(j)) return 1;
	for (i = 0; i < n && prompt_is_one(json_array_get(j, i));) i++;
	if (n > 0 && i == n) return n;
	(void)apierr_set(e, 400, name, "`%s` must be a text or a list of token ids, not empty, or a list of these.", name);
	return 0;
}

const json_t *prompt_get(const json_t *j, size_t i)
{
	return prompt_is_one(j) ? j : json_array_get(j, i);
}

/* ---- chats ---- */

/* The template's arguments; a new reference or NULL. What the client names itself wins. */
static json_t *chat_kwargs(const struct params *params)
{
	json_t *kwargs = params->chat_kwargs ? json_copy((json_t *)params->chat_kwargs) : NULL;

	if (!params->reasoning_effort) return kwargs;
	if (!kwargs) kwargs = json_object();
	if (!json_object_get(kwargs, "reasoning_effort")) json_object_set_new(kwargs, "reasoning_effort", json_string(params->reasoning_effort));
	return kwargs;
}

/* The request's own template, where it may bring one. *own: to be freed. */
static bool chat_of(const struct prompt_opts *o, const struct params *params, struct chat **own, const struct chat **out, struct apierr *e)
{
	struct errbuf err = {{0}};

	*own = NULL;
	*out = o->api->chat;
	if (!params->chat_template) return true;
	if (!o->api->config->trust_request_chat_template)
		return apierr_set(e, 400, "chat_template",
				  "`chat_template` is not allowed: the server was started without --trust-request-chat-template.");
	if (chat_with_template(own, o->api->chat, params->chat_template, params->chat_template_len, CHAT_SAME_MODEL, &err) != ST_OK)
		return apierr_set(e, 400, "chat_template", "%s", err.text);
	*out = *own;
	return true;
}

/* The last message, when the answer will go on with it or have the same role: what echo puts in front. */
static void chat_echo(struct prompt *p, const struct params *params, const json_t *messages)
{
	const json_t *last = json_array_get(messages, json_array_size(messages) - 1), *content = json_object_get(last, "content"), *text;
	const char *role = json_string_value(json_object_get(last, "role"));
	size_t i;

	if (params->add_generation_prompt && strcmp(role, "assistant") != 0) return;
	if (json_is_string(content)) strbuf_append(&p->echo, json_string_value(content), json_string_length(content));
	for (i = 0; i < json_array_size(content); i++) {
		text = json_object_get(json_array_get(content, i), "text");
		strbuf_append(&p->echo, json_string_value(text), json_string_length(text));
	}
}

/* Some templates show tools next to certain messages only. */
static bool chat_has_tools(const struct strbuf *text, const json_t *tools)
{
	const json_t *name = json_object_get(json_object_get(json_array_get(tools, 0), "function"), "name");

	return !json_is_string(name) || memmem(text->data ? text->data : "", text->len, json_string_value(name), json_string_length(name));
}

/* Tools that the template has no place for are told in words: in the system message, or, where the template refuses or ignores one,
 * to the user. */
static int chat_render_told(const struct chat *chat, const struct chat_request *rq, struct jinja_out *out, bool *raised, struct errbuf *err)
{
	static const enum toolnote_place places[] = {TOOLNOTE_SYSTEM, TOOLNOTE_USER};
	int rc = ST_INVALID;
	size_t i;

	for (i = 0; i < ARRAY_LEN(places); i++) {
		struct chat_request told = *rq;

		told.tools = NULL;
		told.messages = toolnote_messages(rq->messages, rq->tools, places[i]);
		jinja_out_release(out);
		jinja_out_init(out);
		rc = chat_render(chat, &told, out, raised, err);
		json_decref(told.messages);
		if (rc == ST_OK ? chat_has_tools(&out->text, rq->tools) : !*raised) break;
	}
	return rc;
}

static bool chat_render_ids(struct prompt *p, const struct prompt_opts *o, const struct chat *chat, const struct chat_request *rq,
			    struct apierr *e)
{
	struct errbuf err = {{0}};
	struct jinja_out out;
	struct stage *rendering = o->stages ? &o->stages->template : NULL;
	uint64_t since = stage_begin(rendering);
	bool raised;
	int rc;

	jinja_out_init(&out);
	rc = chat_render(chat, rq, &out, &raised, &err);
	if (rq->tools && (!chat_takes_tools(chat) || (rc == ST_OK && !chat_has_tools(&out.text, rq->tools))))
		rc = chat_render_told(chat, rq, &out, &raised, &err);
	stage_end(rendering, since);
	if (rc != ST_OK) (void)apierr_set(e, 400, "messages", "%s", err.text);
	else if (rq->tools && !chat_has_tools(&out.text, rq->tools))
		(void)apierr_set(e, 400, "tools", "`tools` are not in the prompt that this model's chat template makes of these messages.");
	if (rc == ST_OK && prompt_may_fit(p, o, out.text.len)) {
		since = stage_begin(prompt_tokenizing(o));
		prompt_bos(p, o);
		chat_encode(o->api->tokenizer, o->work, &out, &p->ids);
		stage_end(prompt_tokenizing(o), since);
	}
	if (rc == ST_OK) strbuf_append(&p->text, out.text.data, out.text.len);
	jinja_out_release(&out);
	return !e->status;
}

bool prompt_read_chat(struct prompt *p, const struct prompt_opts *o, const struct params *params, struct apierr *e)
{
	struct chat_request rq = {
		.messages = chatmsg_read(params->messages, e),
		.tools = (json_t *)params->tools.tools,
		.documents = (json_t *)params->documents,
		.kwargs = chat_kwargs(params),
		.add_generation_prompt = params->add_generation_prompt,
		.continue_final = params->continue_final,
		.now_s = clock_wall_s(),
	};
	const struct chat *chat;
	struct chat *own = NULL;
	bool ok = rq.messages && chat_of(o, params, &own, &chat, e) && chat_render_ids(p, o, chat, &rq, e) && prompt_cut(p, o, "messages", e);

	if (ok && params->echo) chat_echo(p, params, rq.messages);
	chat_free(own);
	json_decref(rq.messages);
	json_decref(rq.kwargs);
	return ok;
}
