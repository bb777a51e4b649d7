/* msgblocks.c - see msgblocks.h.
 *
 * A user's turn may hold results of tools, which chat knows as messages of their own, between its texts; an assistant's turn is one
 * message with text, thoughts and calls. Blocks of other kinds (images, documents, tools that run on the server) are refused by
 * their type. A conversation that ends with the assistant is a beginning of the answer, to be continued. */
#include "frontend/msgblocks.h"

#include "frontend/params.h"

#include <stdio.h>
#include <string.h>

static const char *const text_types[] = {"text", NULL};

static bool is_type(const json_t *block, const char *type)
{
	const char *own = json_string_value(json_object_get(block, "type"));

	return own && strcmp(own, type) == 0;
}

static bool refuse_block(const json_t *block, const char *where, struct apierr *e)
{
	const char *type = json_string_value(json_object_get(block, "type"));

	if (!type) return apierr_set(e, 400, where, "`%s` must be an object with a `type`.", where);
	return apierr_set(e, 400, where, "`%s` of type `%.64s` is not supported here.", where, type);
}

static bool add_text(json_t *parts, const json_t *block, const char *where, struct apierr *e)
{
	json_t *text = chatbody_string(block, "text", where, e);

	if (text) json_array_append_new(parts, chatbody_part(text));
	return text != NULL;
}

/* ---- the user's turn ---- */

/* What was said up to here becomes a message; *parts is a new list. */
static void flush_texts(struct chatbody *c, json_t **parts)
{
	if (json_array_size(*parts) == 0) return;
	chatbody_say(c, "user", chatbody_join(*parts));
	*parts = json_array();
}

static bool read_result(struct chatbody *c, const json_t *block, const char *where)
{
	json_t *id = chatbody_string(block, "tool_use_id", where, c->e), *content = json_object_get(block, "content");
	char at[CHATBODY_WHERE_MAX];

	if (!id) return false;
	if (!content || json_is_null(content) || (json_is_array(content) && json_array_size(content) == 0)) {
		content = json_string(""); /* a tool that had nothing to say */
	} else {
		chatbody_at(at, where, "content");
		content = chatbody_texts(content, text_types, at, c->e);
	}
	if (content) chatbody_result(c, id, content);
	return content != NULL;
}

static bool read_user_block(struct chatbody *c, const json_t *block, const char *where, json_t **parts)
{
	if (is_type(block, "text")) return add_text(*parts, block, where, c->e);
	if (!is_type(block, "tool_result")) return refuse_block(block, where, c->e);
	flush_texts(c, parts);
	return read_result(c, block, where);
}

static bool read_user(struct chatbody *c, const json_t *content, const char *where)
{
	char at[CHATBODY_WHERE_MAX];
	json_t *parts = json_array();
	bool ok = true;
	size_t i;

	for (i = 0; ok && i < json_array_size(content); i++) {
		chatbody_at_ix(at, where, i);
		ok = read_user_block(c, json_array_get(content, i), at, &parts);
	}
	if (ok) flush_texts(c, &parts);
	json_decref(parts);
	return ok;
}

/* ---- the assistant's turn ---- */

static bool read_tool_use(struct chatbody *c, const json_t *block, const char *where)
{
	json_t *id = chatbody_string(block, "id", where, c->e), *name = chatbody_string(block, "name", where, c->e);
	json_t *input = json_object_get(block, "input");
	char at[CHATBODY_WHERE_MAX];

	if (!id || !name) return false;
	chatbody_at(at, where, "input");
	if (!json_is_object(input)) return apierr_set(c->e, 400, at, "`%s` must be an object.", at);
	chatbody_call(c, id, name, json_incref(input));
	return true;
}

static bool read_assistant_block(struct chatbody *c, const json_t *block, const char *where, json_t *parts, bool calls)
{
	if (is_type(block, "text")) return calls || add_text(parts, block, where, c->e);
	if (is_type(block, "tool_use")) return !calls || read_tool_use(c, block, where);
	if (is_type(block, "thinking")) {
		json_t *text = chatbody_string(block, "thinking", where, c->e);

		if (text && !calls) chatbody_reasoning(c, json_incref(text));
		return text != NULL;
	}
	if (is_type(block, "redacted_thinking")) return true; /* another model's */
	return refuse_block(block, where, c->e);
}

/* Twice over the blocks: a message's text comes before its calls, wherever it stood between them. */
static bool read_assistant(struct chatbody *c, const json_t *content, const char *where)
{
	char at[CHATBODY_WHERE_MAX];
	json_t *parts = json_array();
	bool calls, ok = true;
	size_t i;

	for (calls = false;; calls = true) {
		for (i = 0; ok && i < json_array_size(content); i++) {
			chatbody_at_ix(at, where, i);
			ok = read_assistant_block(c, json_array_get(content, i), at, parts, calls);
		}
		if (!ok || calls) break;
		if (json_array_size(parts) == 0) continue;
		chatbody_assistant(c, chatbody_join(parts));
		parts = json_array();
	}
	json_decref(parts);
	return ok;
}

/* ---- all of it ---- */

static bool read_turn(struct chatbody *c, const json_t *m, size_t ix)
{
	const char *role = json_string_value(json_object_get(m, "role"));
	json_t *content = json_object_get(m, "content");
	bool is_user = role && strcmp(role, "user") == 0, is_assistant = role && strcmp(role, "assistant") == 0;
	bool is_system = role && strcmp(role, "system") == 0;
	char at[CHATBODY_WHERE_MAX];

	snprintf(at, sizeof(at), "messages[%zu].role", ix);
	if (!is_user && !is_assistant && !is_system) return apierr_set(c->e, 400, at, "`%s` must be `user` or `assistant`.", at);
	snprintf(at, sizeof(at), "messages[%zu].content", ix);
	if (!params_is_text(content) && json_array_size(content) == 0)
		return apierr_set(c->e, 400, at, "`%s` must be a string or a list of blocks, not empty.", at);
	c->turn = NULL; /* two turns of the assistant in a row stay two */
	if (is_system) {
		content = chatbody_texts(content, text_types, at, c->e);
		if (content) chatbody_say(c, role, content);
		return content != NULL;
	}
	if (!params_is_text(content)) return is_user ? read_user(c, content, at) : read_assistant(c, content, at);
	if (is_user) chatbody_say(c, role, json_incref(content));
	else chatbody_assistant(c, json_incref(content));
	return true;
}

static bool read_system(struct chatbody *c, json_t *system)
{
	json_t *content;

	if (!system || json_is_null(system) || (json_is_array(system) && json_array_size(system) == 0)) return true;
	content = chatbody_texts(system, text_types, "system", c->e);
	if (content) chatbody_say(c, "system", content);
	return content != NULL;
}

/* The beginning of an answer, put into its mouth. */
static void continue_turn(struct chatbody *c)
{
	if (!c->turn || json_object_get(c->turn, "tool_calls") || json_is_null(json_object_get(c->turn, "content"))) return;
	chatbody_set(c, "continue_final_message", json_true());
	chatbody_set(c, "add_generation_prompt", json_false());
}

bool msgblocks_read(struct chatbody *c, const json_t *body)
{
	const json_t *messages = json_object_get(body, "messages");
	size_t i;

	if (json_array_size(messages) == 0)
		return apierr_set(c->e, 400, "messages", "`messages` must be a list of messages, not empty.");
	if (!read_system(c, json_object_get(body, "system"))) return false;
	for (i = 0; i < json_array_size(messages); i++)
		if (!read_turn(c, json_array_get(messages, i), i)) return false;
	continue_turn(c);
	return true;
}
