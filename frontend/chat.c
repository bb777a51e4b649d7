/* chat.c - see chat.h.
 *
 * Clients send a message's content as a string, as a list of parts, or as null next to tool calls. What a template makes
 * of a list is tried once, with one text part, when the model is loaded: a template that fails or prints the list as it is
 * gets the texts joined by newlines instead, as vLLM does. Null becomes an empty text only when the template cannot
 * render null. */
#include "frontend/chat.h"

#include "common/gguf.h"
#include "common/mem.h"
#include "frontend/tokenizer.h"

#include <string.h>

struct chat {
	struct jinja *template; /* NULL: the model has none */
	json_t *tokens;         /* object; the trusted variables */
	bool takes_parts;
};

#define CHAT_PROBE "probe-of-parts"

/* Does the template understand a list of parts? */
static bool chat_probe_parts(const struct chat *c)
{
	static const struct jinja_limits LIMITS = {.steps_max = 200000, .output_max = MIB, .memory_max = 16 * MIB, .depth_max = 600};
	json_t *context = json_pack("{s:[{s:s,s:[{s:s,s:s}]}],s:n,s:n,s:b}", "messages", "role", "user", "content", "type", "text", "text",
				    CHAT_PROBE, "tools", "documents", "add_generation_prompt", 0);
	struct jinja_out out;
	bool raised, ok;

	jinja_out_init(&out);
	ok = context && jinja_render(c->template, context, c->tokens, 0, &LIMITS, &out, &raised, NULL) == ST_OK && out.text.len > 0 &&
	     strstr(out.text.data, CHAT_PROBE) && !strstr(out.text.data, "'type'") && !strstr(out.text.data, "\"type\"");
	jinja_out_release(&out);
	json_decref(context);
	return ok;
}

int chat_new(struct chat **out, const char *text, size_t len, json_t *tokens, struct errbuf *err)
{
	struct chat *c = mem_new(struct chat);
	int rc = text ? jinja_compile(&c->template, text, len, err) : ST_OK;

	*out = NULL;
	if (rc != ST_OK) {
		chat_free(c);
		return err_prefix(err, rc, "chat template");
	}
	c->tokens = tokens ? json_incref(tokens) : json_object();
	c->takes_parts = c->template && chat_probe_parts(c);
	*out = c;
	return ST_OK;
}

/* The text of the token that a metadata key names, as the template's variable. Missing or odd keys leave it undefined. */
static void chat_add_token(json_t *tokens, const char *name, const struct gguf *g, const char *key, const struct tokenizer *t)
{
	const char *text;
	uint64_t id;
	size_t len;

	if (!gguf_find(g, key) || gguf_get_u64(g, key, 0, UINT32_MAX - 1, &id, NULL) != ST_OK || id >= tokenizer_vocab_size(t)) return;
	text = tokenizer_bytes(t, (uint32_t)id, &len);
	json_object_set_new(tokens, name, json_stringn(text, len)); /* ignores a text that is not UTF-8 */
}

int chat_from_gguf(struct chat **out, const struct gguf *g, const struct tokenizer *t, struct errbuf *err)
{
	struct gguf_str text = {0};
	json_t *tokens = json_object();
	int rc = ST_OK;

	*out = NULL;
	if (gguf_find(g, "tokenizer.chat_template")) rc = gguf_get_str(g, "tokenizer.chat_template", &text, err);
	if (rc == ST_OK) {
		chat_add_token(tokens, "bos_token", g, "tokenizer.ggml.bos_token_id", t);
		chat_add_token(tokens, "eos_token", g, "tokenizer.ggml.eos_token_id", t);
		chat_add_token(tokens, "unk_token", g, "tokenizer.ggml.unknown_token_id", t);
		chat_add_token(tokens, "pad_token", g, "tokenizer.ggml.padding_token_id", t);
		rc = chat_new(out, text.s, text.len, tokens, err);
		if (rc != ST_OK) err_prefix(err, rc, "%s: tokenizer.chat_template", gguf_path(g));
	}
	json_decref(tokens);
	return rc;
}

void chat_free(struct chat *c)
{
	if (!c) return;
	jinja_free(c->template);
	json_decref(c->tokens);
	free(c);
}

bool chat_has_template(const struct chat *c)
{
	return c->template != NULL;
}

bool chat_takes_parts(const struct chat *c)
{
	return c->takes_parts;
}

/* The texts of a list of parts, joined; NULL and err set when a part is no text. New reference. */
static json_t *chat_join_parts(json_t *parts, size_t message, struct errbuf *err)
{
	struct strbuf text;
	json_t *joined, *part, *piece;
	size_t i;

	strbuf_init(&text, SIZE_MAX / 2); /* no longer than the request, which is bounded */
	json_array_foreach(parts, i, part) {
		piece = json_is_string(part) ? part : json_object_get(part, "text");
		if (!json_is_string(piece)) {
			const char *type = json_string_value(json_object_get(part, "type"));

			err_set(err, ST_INVALID, "messages[%zu].content[%zu] is not a text (type \"%.60s\"); this model's chat template takes only texts",
				message, i, type ? type : "?");
			strbuf_release(&text);
			return NULL;
		}
		if (i) strbuf_putc(&text, '\n');
		strbuf_append(&text, json_string_value(piece), json_string_length(piece));
	}
	joined = json_stringn(text.data ? text.data : "", text.len);
	strbuf_release(&text);
	return joined;
}

/* A copy of the messages with lists of parts joined, and with null contents as empty texts. Sets *changed when it differs. */
static json_t *chat_plain_messages(json_t *messages, bool join, bool fill_null, bool *changed, struct errbuf *err)
{
	json_t *copy = json_array(), *message, *content, *plain;
	size_t i;

	json_array_foreach(messages, i, message) {
		content = json_object_get(message, "content");
		plain = NULL;
		if (join && json_is_array(content)) {
			plain = chat_join_parts(content, i, err);
			if (!plain) {
				json_decref(copy);
				return NULL;
			}
		} else if (fill_null && json_is_null(content)) {
			plain = json_string("");
		}
		if (!plain) {
			json_array_append(copy, message);
			continue;
		}
		message = json_copy(message);
		json_object_set_new(message, "content", plain);
		json_array_append_new(copy, message);
		*changed = true;
	}
	return copy;
}

static int chat_render_messages(const struct chat *c, const struct chat_request *rq, json_t *messages, struct jinja_out *out, bool *raised,
				struct errbuf *err)
{
	json_t *context = json_object();
	int rc;

	json_object_set(context, "messages", messages);
	json_object_set(context, "tools", rq->tools ? rq->tools : json_null());
	json_object_set(context, "documents", rq->documents ? rq->documents : json_null());
	json_object_set_new(context, "add_generation_prompt", json_boolean(rq->add_generation_prompt));
	if (json_is_object(rq->kwargs)) json_object_update(context, rq->kwargs);
	rc = jinja_render(c->template, context, c->tokens, rq->now_s, &JINJA_LIMITS_DEFAULT, out, raised, err);
	json_decref(context);
	return rc;
}

int chat_render(const struct chat *c, const struct chat_request *rq, struct jinja_out *out, bool *raised, struct errbuf *err)
{
	json_t *messages, *filled;
	bool changed = false;
	int rc;

	*raised = false;
	if (!c->template)
		return err_set(err, ST_NOT_FOUND, "this model has no chat template; use /v1/completions with a prompt instead");
	messages = chat_plain_messages(rq->messages, !c->takes_parts, false, &changed, err);
	if (!messages) return ST_INVALID;
	rc = chat_render_messages(c, rq, messages, out, raised, err);
	if (rc == ST_INVALID && !*raised) {
		changed = false;
		filled = chat_plain_messages(messages, false, true, &changed, err);
		if (changed) rc = chat_render_messages(c, rq, filled, out, raised, err);
		json_decref(filled);
	}
	json_decref(messages);
	if (rc != ST_OK && !*raised) err_prefix(err, rc, "the model's chat template cannot render these messages");
	return rc;
}

void chat_encode(const struct tokenizer *t, const struct jinja_out *o, struct token_vec *ids)
{
	struct token_part *parts = mem_array(struct token_part, o->n_spans);
	const char *text = o->text.data;
	size_t i;

	for (i = 0; i < o->n_spans; text += o->spans[i++].len)
		parts[i] = (struct token_part){.text = text, .len = o->spans[i].len, .allow_special = !o->spans[i].is_input};
	tokenizer_encode_parts(t, parts, o->n_spans, ids);
	free(parts);
}
