/* chatbody.c - see chatbody.h. */
#include "frontend/chatbody.h"

#include "frontend/params.h"

#include <stdio.h>
#include <string.h>

void chatbody_init(struct chatbody *c, struct apierr *e)
{
	*c = (struct chatbody){.body = json_object(), .messages = json_array(), .e = e};
	json_object_set_new(c->body, "messages", c->messages);
}

json_t *chatbody_finish(struct chatbody *c)
{
	json_t *body = c->body;

	if (c->e->status) {
		json_decref(body);
		body = NULL;
	}
	json_decref(c->reasoning);
	*c = (struct chatbody){0};
	return body;
}

void chatbody_set(struct chatbody *c, const char *name, json_t *value)
{
	json_object_set_new(c->body, name, value);
}

/* ---- messages ---- */

/* Ends the assistant's turn, if there was one. */
static json_t *append_message(struct chatbody *c, const char *role)
{
	json_t *m = json_object();

	json_object_set_new(m, "role", json_string(role));
	json_array_append_new(c->messages, m);
	json_decref(c->reasoning); /* thoughts that led to nothing */
	c->reasoning = NULL;
	c->turn = NULL;
	return m;
}

void chatbody_say(struct chatbody *c, const char *role, json_t *content)
{
	json_object_set_new(append_message(c, role), "content", content);
}

/* The turn that text or a call belongs to; what was thought before it is part of it. */
static json_t *open_turn(struct chatbody *c)
{
	json_t *reasoning = c->reasoning;

	if (c->turn) return c->turn;
	c->reasoning = NULL;
	c->turn = append_message(c, "assistant");
	json_object_set_new(c->turn, "content", json_null());
	if (reasoning) json_object_set_new(c->turn, "reasoning_content", reasoning);
	return c->turn;
}

void chatbody_assistant(struct chatbody *c, json_t *content)
{
	if (c->turn && !json_is_null(json_object_get(c->turn, "content"))) c->turn = NULL; /* a second message is one of its own */
	json_object_set_new(open_turn(c), "content", content);
}

void chatbody_reasoning(struct chatbody *c, json_t *text)
{
	json_decref(c->reasoning);
	c->reasoning = text;
	c->turn = NULL;
}

void chatbody_call(struct chatbody *c, json_t *id, json_t *name, json_t *arguments)
{
	json_t *turn = open_turn(c), *calls = json_object_get(turn, "tool_calls"), *call = json_object(), *function = json_object();

	if (!calls) {
		calls = json_array();
		json_object_set_new(turn, "tool_calls", calls);
	}
	json_object_set(function, "name", name);
	json_object_set_new(function, "arguments", arguments);
	json_object_set(call, "id", id);
	json_object_set_new(call, "type", json_string("function"));
	json_object_set_new(call, "function", function);
	json_array_append_new(calls, call);
}

void chatbody_result(struct chatbody *c, json_t *id, json_t *content)
{
	json_t *m = append_message(c, "tool");

	json_object_set(m, "tool_call_id", id);
	json_object_set_new(m, "content", content);
}

/* ---- parameters ---- */

void chatbody_copy(struct chatbody *c, const json_t *from, const char *const *names)
{
	for (; *names; names++)
		if (chatbody_has(from, *names)) json_object_set(c->body, *names, json_object_get(from, *names));
}

void chatbody_kwarg(struct chatbody *c, const char *name, json_t *value)
{
	json_t *given = json_object_get(c->body, "chat_template_kwargs"), *all;

	if (given && !json_is_object(given)) { /* chat says what is wrong with it */
		json_decref(value);
		return;
	}
	all = given ? json_copy(given) : json_object(); /* the client's own object stays as it is */
	if (!json_object_get(all, name)) json_object_set(all, name, value);
	json_decref(value);
	chatbody_set(c, "chat_template_kwargs", all);
}

static bool check_tool(const json_t *tool, const char *schema, const char *where, struct apierr *e)
{
	const json_t *name = json_object_get(tool, "name"), *description = json_object_get(tool, "description");
	const json_t *parameters = json_object_get(tool, schema);
	char at[CHATBODY_WHERE_MAX];

	chatbody_at(at, where, "name");
	if (!params_is_text(name) || json_string_length(name) == 0 || json_string_length(name) > TOOLSPEC_NAME_MAX)
		return apierr_set(e, 400, at, "`%s` must be a string of 1 to %d bytes.", at, TOOLSPEC_NAME_MAX);
	chatbody_at(at, where, "description");
	if (description && !json_is_null(description) && !params_is_text(description)) return params_wrong(e, at, "a string");
	chatbody_at(at, where, schema);
	return !parameters || json_is_null(parameters) || json_is_object(parameters) || params_wrong(e, at, "a JSON schema, an object");
}

json_t *chatbody_tool(const json_t *tool, const char *schema, const char *where, struct apierr *e)
{
	static const char *const members[] = {"name", "description", "strict"};
	json_t *chat, *function;
	size_t i;

	if (!check_tool(tool, schema, where, e)) return NULL;
	chat = json_object();
	function = json_object();
	for (i = 0; i < ARRAY_LEN(members); i++)
		if (chatbody_has(tool, members[i])) json_object_set(function, members[i], json_object_get(tool, members[i]));
	if (chatbody_has(tool, schema)) json_object_set(function, "parameters", json_object_get(tool, schema));
	json_object_set_new(chat, "type", json_string("function"));
	json_object_set_new(chat, "function", function);
	return chat;
}

/* ---- contents ---- */

json_t *chatbody_part(json_t *text)
{
	json_t *part = json_object();

	json_object_set_new(part, "type", json_string("text"));
	json_object_set(part, "text", text);
	return part;
}

json_t *chatbody_join(json_t *parts)
{
	json_t *text;

	if (json_array_size(parts) != 1) return parts;
	text = json_incref(json_object_get(json_array_get(parts, 0), "text"));
	json_decref(parts);
	return text;
}

static json_t *read_part(const json_t *part, const char *const *types, const char *where, struct apierr *e)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	json_t *text;
	size_t i;

	if (!type) {
		(void)apierr_set(e, 400, where, "`%s` must be an object with a `type`.", where);
		return NULL;
	}
	for (i = 0; types[i]; i++) {
		if (strcmp(type, types[i]) != 0) continue;
		text = chatbody_string(part, strcmp(type, "refusal") == 0 ? "refusal" : "text", where, e);
		return text ? chatbody_part(text) : NULL;
	}
	(void)apierr_set(e, 400, where, "`%s` of type `%.64s` is not supported here: `type` must be `%s`.", where, type, types[0]);
	return NULL;
}

json_t *chatbody_texts(json_t *content, const char *const *types, const char *where, struct apierr *e)
{
	char at[CHATBODY_WHERE_MAX];
	json_t *parts, *part;
	size_t i;

	if (params_is_text(content)) return json_incref(content);
	if (json_array_size(content) == 0) {
		(void)apierr_set(e, 400, where, "`%s` must be a string or a list of parts, not empty.", where);
		return NULL;
	}
	parts = json_array();
	for (i = 0; i < json_array_size(content); i++) {
		chatbody_at_ix(at, where, i);
		part = read_part(json_array_get(content, i), types, at, e);
		if (!part) {
			json_decref(parts);
			return NULL;
		}
		json_array_append_new(parts, part);
	}
	return chatbody_join(parts);
}

void chatbody_at(char out[CHATBODY_WHERE_MAX], const char *where, const char *name)
{
	snprintf(out, CHATBODY_WHERE_MAX, "%s.%s", where, name);
}

void chatbody_at_ix(char out[CHATBODY_WHERE_MAX], const char *where, size_t ix)
{
	snprintf(out, CHATBODY_WHERE_MAX, "%s[%zu]", where, ix);
}

json_t *chatbody_string(const json_t *object, const char *name, const char *where, struct apierr *e)
{
	json_t *j = json_object_get(object, name);
	char at[CHATBODY_WHERE_MAX];

	if (params_is_text(j)) return j;
	chatbody_at(at, where, name);
	(void)apierr_set(e, 400, at, "`%s` must be a string.", at);
	return NULL;
}

bool chatbody_has(const json_t *object, const char *name)
{
	const json_t *j = json_object_get(object, name);

	return j && !json_is_null(j);
}
