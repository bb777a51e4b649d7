/* chat.c - see chat.h.
 *
 * Clients send a message's content as a string, as a list of parts, or as null next to tool calls. What a template makes
 * of a list is tried once, with one text part, when the model is loaded: a template that fails or prints the list as it is
 * gets the texts joined by newlines instead, as vLLM does. Whether it makes anything of tools is tried in the same way, since a
 * template without a place for them would drop them without a word. Null becomes an empty text, and a tool gets the description and
 * parameters that it lacks, only when the template cannot render it otherwise. */
#include "frontend/chat.h"

#include "model/gguf.h"
#include "common/mem.h"
#include "frontend/tokenizer.h"

#include <string.h>

struct chat {
	struct jinja *template; /* NULL: the model has none */
	json_t *tokens;         /* object; the trusted variables */
	bool takes_parts, takes_tools;
	enum outparse_tools tools;
	enum outparse_reasoning reasoning;
};

#define CHAT_PROBE "probe_of_ours"

/* Renders a context, which it takes; true when the probe's word is in the prompt. */
static bool chat_probe(const struct chat *c, json_t *context, struct jinja_out *out)
{
	static const struct jinja_limits LIMITS = {.steps_max = 200000, .output_max = MIB, .memory_max = 16 * MIB, .depth_max = 600};
	bool raised, ok;

	jinja_out_init(out);
	ok = context && jinja_render(c->template, context, c->tokens, 0, &LIMITS, out, &raised, NULL) == ST_OK && out->text.len > 0 &&
	     strstr(out->text.data, CHAT_PROBE);
	json_decref(context);
	return ok;
}

/* Does the template understand a list of parts? */
static bool chat_probe_parts(const struct chat *c)
{
	json_t *context = json_pack("{s:[{s:s,s:[{s:s,s:s}]}],s:n,s:n,s:b}", "messages", "role", "user", "content", "type", "text", "text",
				    CHAT_PROBE, "tools", "documents", "add_generation_prompt", 0);
	struct jinja_out out;
	bool ok = chat_probe(c, context, &out) && !strstr(out.text.data, "'type'") && !strstr(out.text.data, "\"type\"");

	jinja_out_release(&out);
	return ok;
}

/* Does it show tools to the model? Some want a system message for it. */
static bool chat_probe_tools(const struct chat *c)
{
	json_t *user = json_pack("{s:s,s:s}", "role", "user", "content", "hi"), *messages;
	struct jinja_out out;
	bool ok = false;
	int with_system;

	for (with_system = 0; with_system < 2 && !ok; with_system++) {
		messages = with_system ? json_pack("[{s:s,s:s},O]", "role", "system", "content", "hi", user) : json_pack("[O]", user);
		ok = chat_probe(c,
				json_pack("{s:o,s:[{s:s,s:{s:s,s:s,s:{s:s,s:{}}}}],s:n,s:b}", "messages", messages, "tools", "type", "function",
					  "function", "name", CHAT_PROBE, "description", "x", "parameters", "type", "object", "properties",
					  "documents", "add_generation_prompt", 1),
				&out);
		jinja_out_release(&out);
	}
	json_decref(user);
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
	if (c->template) {
		c->takes_parts = chat_probe_parts(c);
		c->takes_tools = chat_probe_tools(c);
		/* Without a place for tools they are told in Hermes' words (toolnote.h). */
		c->tools = c->takes_tools ? outparse_tools_of(text, len) : OUTPARSE_TOOLS_HERMES;
		c->reasoning = outparse_reasoning_of(text, len);
	}
	*out = c;
	return ST_OK;
}

int chat_with_template(struct chat **out, const struct chat *c, const char *text, size_t len, enum chat_whose whose, struct errbuf *err)
{
	int rc = chat_new(out, text, len, c->tokens, err);

	if (rc != ST_OK || whose == CHAT_NEW_MODEL) return rc;
	(*out)->tools = c->tools;
	(*out)->reasoning = c->reasoning;
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

static void chat_add_id(json_t *tokens, const char *name, const struct tokenizer *t, uint32_t id)
{
	const char *text;
	size_t len;

	if (id == TOKEN_NONE) return;
	text = tokenizer_bytes(t, id, &len);
	json_object_set_new(tokens, name, json_stringn(text, len)); /* ignores a text that is not UTF-8 */
}

int chat_from_tokenizer(struct chat **out, const struct tokenizer *t, struct errbuf *err)
{
	const char *text = tokenizer_chat_template(t);
	json_t *tokens = json_object();
	int rc;

	chat_add_id(tokens, "bos_token", t, tokenizer_bos(t));
	chat_add_id(tokens, "eos_token", t, tokenizer_eos(t));
	if (tokenizer_named(t)) json_object_update(tokens, (json_t *)(uintptr_t)tokenizer_named(t));
	rc = chat_new(out, text, text ? strlen(text) : 0, tokens, err);
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

bool chat_takes_tools(const struct chat *c)
{
	return c->takes_tools;
}

enum outparse_tools chat_tools(const struct chat *c)
{
	return c->tools;
}

enum outparse_reasoning chat_reasoning(const struct chat *c)
{
	return c->reasoning;
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

/* Functions with a description and parameters, which clients may leave out and some templates cannot do without. */
static json_t *chat_filled_tools(const json_t *tools, bool *changed)
{
	json_t *copy = json_array(), *function, *tool;
	size_t i;

	for (i = 0; i < json_array_size(tools); i++) {
		tool = json_copy(json_array_get(tools, i));
		function = json_copy(json_object_get(tool, "function"));
		json_array_append_new(copy, tool);
		if (!function) continue;
		if (!json_is_string(json_object_get(function, "description"))) {
			json_object_set_new(function, "description", json_string(""));
			*changed = true;
		}
		if (!json_is_object(json_object_get(function, "parameters"))) {
			json_object_set_new(function, "parameters", json_pack("{s:s,s:{}}", "type", "object", "properties"));
			*changed = true;
		}
		json_object_set_new(tool, "function", function);
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

/* Once more for a template that cannot do with what is optional: null as an empty text, tools with all their fields. */
static int chat_render_filled(const struct chat *c, const struct chat_request *rq, json_t *messages, int rc, struct jinja_out *out, bool *raised,
			      struct errbuf *err)
{
	struct chat_request again = *rq;
	bool changed = false;
	json_t *filled = chat_plain_messages(messages, false, true, &changed, err);

	if (json_is_array(rq->tools)) again.tools = chat_filled_tools(rq->tools, &changed);
	if (changed) rc = chat_render_messages(c, &again, filled, out, raised, err);
	if (again.tools != rq->tools) json_decref(again.tools);
	json_decref(filled);
	return rc;
}

/* Messages as the template takes them, with lists joined. */
static int chat_render_plain(const struct chat *c, const struct chat_request *rq, json_t *given, struct jinja_out *out, bool *raised,
			     struct errbuf *err)
{
	bool changed = false;
	json_t *messages = chat_plain_messages(given, !c->takes_parts, false, &changed, err);
	int rc;

	if (!messages) return ST_INVALID;
	rc = chat_render_messages(c, rq, messages, out, raised, err);
	if (rc == ST_INVALID && !*raised) rc = chat_render_filled(c, rq, messages, rc, out, raised, err);
	json_decref(messages);
	return rc;
}

/* ---- continue_final_message ---- */

/* As transformers does it: a mark behind the last message's text shows where the prompt has to end, whatever the template puts
 * behind a message. Its last space tells whether the template strips texts. */
#define CHAT_MARK "CONTINUE_FINAL_MESSAGE_TAG "

static json_t *chat_marked_text(const json_t *given)
{
	struct strbuf text;
	json_t *marked;

	strbuf_init(&text, SIZE_MAX / 2); /* no longer than the request, which is bounded */
	strbuf_append(&text, json_string_value(given), json_string_length(given));
	strbuf_puts(&text, CHAT_MARK);
	marked = json_stringn(text.data, text.len);
	strbuf_release(&text);
	return marked;
}

/* A copy of the messages with the mark; NULL and err set when there is no text to continue. */
static json_t *chat_marked(json_t *messages, struct errbuf *err)
{
	size_t last = json_array_size(messages) - 1, i;
	json_t *message = json_copy(json_array_get(messages, last)), *content = json_object_get(message, "content"), *copy, *part;

	if (json_is_string(content)) {
		json_object_set_new(message, "content", chat_marked_text(content));
	} else {
		content = json_copy(content);
		for (i = json_array_size(content); i > 0 && !json_is_string(json_object_get(json_array_get(content, i - 1), "text"));) i--;
		if (i == 0) {
			json_decref(content);
			json_decref(message);
			err_set(err, ST_INVALID, "`continue_final_message` is set but the last message holds no text to continue");
			return NULL;
		}
		part = json_copy(json_array_get(content, i - 1));
		json_object_set_new(part, "text", chat_marked_text(json_object_get(part, "text")));
		json_array_set_new(content, i - 1, part);
		json_object_set_new(message, "content", content);
	}
	copy = json_copy(messages);
	json_array_set_new(copy, last, message);
	return copy;
}

static void chat_cut(struct jinja_out *o, size_t len)
{
	size_t left = len, i;

	for (i = 0; i < o->n_spans && o->spans[i].len < left; i++) left -= o->spans[i].len;
	if (i < o->n_spans) o->spans[i++].len = left;
	o->n_spans = i;
	o->text.len = len;
	o->text.data[len] = 0;
}

static size_t chat_find_last(const struct strbuf *text, const char *what, size_t n)
{
	size_t at;

	for (at = text->len >= n ? text->len - n + 1 : 0; at > 0; at--)
		if (memcmp(text->data + at - 1, what, n) == 0) return at - 1;
	return SIZE_MAX;
}

static int chat_cut_at_mark(struct jinja_out *o, struct errbuf *err)
{
	size_t n = strlen(CHAT_MARK), at = chat_find_last(&o->text, CHAT_MARK, n);

	if (at == SIZE_MAX) {
		at = chat_find_last(&o->text, CHAT_MARK, n - 1);
		if (at == SIZE_MAX)
			return err_set(err, ST_INVALID,
				       "`continue_final_message` is set but the last message is not in the prompt that the template makes");
		while (at > 0 && strchr(" \t\r\n\v\f", o->text.data[at - 1])) at--;
	}
	chat_cut(o, at);
	return ST_OK;
}

static int chat_render_continued(const struct chat *c, const struct chat_request *rq, struct jinja_out *out, bool *raised, struct errbuf *err)
{
	json_t *messages = chat_marked(rq->messages, err);
	int rc;

	if (!messages) return ST_INVALID;
	rc = chat_render_plain(c, rq, messages, out, raised, err);
	json_decref(messages);
	return rc == ST_OK ? chat_cut_at_mark(out, err) : rc;
}

/* ---- */

int chat_render(const struct chat *c, const struct chat_request *rq, struct jinja_out *out, bool *raised, struct errbuf *err)
{
	int rc;

	*raised = false;
	if (!c->template)
		return err_set(err, ST_NOT_FOUND, "this model has no chat template; use /v1/completions with a prompt instead");
	rc = rq->continue_final && json_array_size(rq->messages) > 0 ? chat_render_continued(c, rq, out, raised, err)
								     : chat_render_plain(c, rq, rq->messages, out, raised, err);
	if (rc != ST_OK && !*raised) err_prefix(err, rc, "the model's chat template cannot render these messages");
	return rc;
}

void chat_encode(const struct tokenizer *t, struct tokenizer_work *w, const struct jinja_out *o, struct token_vec *ids)
{
	struct token_part *parts = mem_array(struct token_part, o->n_spans);
	const char *text = o->text.data;
	size_t i;

	for (i = 0; i < o->n_spans; text += o->spans[i++].len)
		parts[i] = (struct token_part){.text = text, .len = o->spans[i].len, .allow_special = !o->spans[i].is_input};
	tokenizer_encode_parts_in(t, w, parts, o->n_spans, ids);
	free(parts);
}
