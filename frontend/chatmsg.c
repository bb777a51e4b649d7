/* chatmsg.c - see chatmsg.h. */
#include "frontend/chatmsg.h"

#include "frontend/jsonread.h"
#include "frontend/params.h"

#include <stdio.h>
#include <string.h>

/* Where something is wrong: "messages[3].content[1]". */
struct place {
	char text[64];
};

static struct place place_of(size_t message, const char *field)
{
	struct place p;

	snprintf(p.text, sizeof(p.text), "messages[%zu]%s", message, field);
	return p;
}

static struct place place_in(size_t message, const char *list, size_t ix)
{
	struct place p;

	snprintf(p.text, sizeof(p.text), "messages[%zu].%s[%zu]", message, list, ix);
	return p;
}

/* ---- content ---- */

/* The texts' kinds, and the field that holds them. */
static const char *part_text_field(const char *type)
{
	static const char *const texts[] = {"text", "input_text", "output_text"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(texts); i++)
		if (strcmp(type, texts[i]) == 0) return "text";
	return strcmp(type, "refusal") == 0 ? "refusal" : NULL;
}

/* Kinds that other servers fetch or decode. Nothing of ours ever does. */
static bool part_is_media(const char *type)
{
	return strstr(type, "image") || strstr(type, "audio") || strstr(type, "video") || strstr(type, "file") || strstr(type, "embed");
}

/* A part as {"type":"text","text":...}; a new reference, or NULL and e set. */
static json_t *read_part(json_t *part, size_t message, size_t ix, struct apierr *e)
{
	const struct place at = place_in(message, "content", ix);
	const char *type = json_string_value(json_object_get(part, "type")), *field;
	json_t *text;

	if (!json_is_object(part) || !type) {
		(void)apierr_set(e, 400, at.text, "`%s` must be an object with a `type`.", at.text);
		return NULL;
	}
	field = part_text_field(type);
	if (!field) {
		if (part_is_media(type)) (void)apierr_set(e, 400, at.text, "`%s` of type `%.60s` is not supported.", at.text, type);
		else (void)apierr_set(e, 400, at.text, "`%s.type` must be `text`.", at.text);
		return NULL;
	}
	text = json_object_get(part, field);
	if (!params_is_text(text)) {
		(void)apierr_set(e, 400, at.text, "`%s.%s` must be a string.", at.text, field);
		return NULL;
	}
	if (strcmp(type, "text") == 0) return json_incref(part);
	return json_pack("{s:s,s:O}", "type", "text", "text", text);
}

static bool read_parts(json_t *m, const json_t *parts, size_t ix, struct apierr *e)
{
	json_t *list = json_array(), *part;
	size_t i;

	for (i = 0; i < json_array_size(parts); i++) {
		part = read_part(json_array_get(parts, i), ix, i, e);
		if (part && json_array_append_new(list, part) == 0) continue;
		json_decref(list);
		return false;
	}
	return json_object_set_new(m, "content", list) == 0;
}

/* null, and nothing at all, are allowed where the assistant called tools instead of speaking, or said nothing. */
static bool read_content(json_t *m, const char *role, size_t ix, struct apierr *e)
{
	const struct place at = place_of(ix, ".content");
	json_t *content = json_object_get(m, "content");
	bool is_assistant = strcmp(role, "assistant") == 0;

	if (params_is_text(content)) return true;
	if (is_assistant && (json_is_null(content) || (!content && json_is_array(json_object_get(m, "tool_calls")))))
		return json_object_set_new(m, "content", json_string("")) == 0;
	if (json_array_size(content) > 0) return read_parts(m, content, ix, e);
	return apierr_set(e, 400, at.text, "`%s` must be a string or a list of parts, not empty.", at.text);
}

/* ---- tool calls ---- */

/* What a template prints as JSON has to be a value, not a text with JSON in it. What is no JSON object stays a text. */
static json_t *read_arguments(json_t *given)
{
	struct errbuf err;
	json_t *parsed;

	if (!given || json_is_null(given) || (json_is_string(given) && json_string_length(given) == 0)) return json_object();
	if (json_is_string(given) && jsonread(&parsed, json_string_value(given), json_string_length(given), &err) == ST_OK) return parsed;
	return json_incref(given);
}

static json_t *read_call(const json_t *call, size_t message, size_t ix, struct apierr *e)
{
	const struct place at = place_in(message, "tool_calls", ix);
	json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments"), *copy;

	if (!json_is_object(call) || !json_is_object(function) || !params_is_text(json_object_get(function, "name"))) {
		(void)apierr_set(e, 400, at.text, "`%s` must be an object with a `function` that has a `name`.", at.text);
		return NULL;
	}
	if (arguments && !json_is_null(arguments) && !params_is_text(arguments) && !json_is_object(arguments)) {
		(void)apierr_set(e, 400, at.text, "`%s.function.arguments` must be a string of JSON.", at.text);
		return NULL;
	}
	function = json_copy(function);
	json_object_set_new(function, "arguments", read_arguments(arguments));
	copy = json_copy((json_t *)call);
	json_object_set_new(copy, "function", function);
	return copy;
}

/* No calls are no field: templates ask whether there is one. */
static bool read_calls(json_t *m, size_t ix, struct apierr *e)
{
	json_t *calls = json_object_get(m, "tool_calls"), *list, *call;
	const struct place at = place_of(ix, ".tool_calls");
	size_t i, n = json_array_size(calls);

	if (!calls) return true;
	if (json_is_null(calls) || (json_is_array(calls) && n == 0)) return json_object_del(m, "tool_calls") == 0;
	if (!json_is_array(calls)) return params_wrong(e, at.text, "a list of tool calls");
	list = json_array();
	for (i = 0; i < n; i++) {
		call = read_call(json_array_get(calls, i), ix, i, e);
		if (call && json_array_append_new(list, call) == 0) continue;
		json_decref(list);
		return false;
	}
	return json_object_set_new(m, "tool_calls", list) == 0;
}

/* ---- messages ---- */

/* The role as templates know it, or NULL. */
static const char *read_role(json_t *m)
{
	static const struct {
		const char *name, *means;
	} roles[] = {{"system", NULL}, {"developer", "system"}, {"user", NULL}, {"assistant", NULL}, {"tool", NULL}, {"function", "tool"}};
	const char *role = json_string_value(json_object_get(m, "role"));
	size_t i;

	for (i = 0; role && i < ARRAY_LEN(roles); i++) {
		if (strcmp(role, roles[i].name) != 0) continue;
		if (!roles[i].means) return roles[i].name;
		return json_object_set_new(m, "role", json_string(roles[i].means)) == 0 ? roles[i].means : NULL;
	}
	return NULL;
}

/* Texts that a template may print; null is "not given". */
static bool read_texts(json_t *m, size_t ix, struct apierr *e)
{
	static const char *const fields[] = {"name", "tool_call_id", "reasoning_content", "reasoning"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(fields); i++) {
		json_t *j = json_object_get(m, fields[i]);

		if (!j || params_is_text(j)) continue;
		if (!json_is_null(j)) {
			char field[32];

			snprintf(field, sizeof(field), ".%s", fields[i]);
			return params_wrong(e, place_of(ix, field).text, "a string");
		}
		json_object_del(m, fields[i]);
	}
	/* vLLM's newer name; templates know the older one. */
	if (json_object_get(m, "reasoning") && !json_object_get(m, "reasoning_content"))
		return json_object_set(m, "reasoning_content", json_object_get(m, "reasoning")) == 0;
	return true;
}

static bool read_message(json_t *m, size_t ix, struct apierr *e)
{
	const struct place at = place_of(ix, ""), at_role = place_of(ix, ".role");
	const char *role;

	if (!json_is_object(m)) return apierr_set(e, 400, at.text, "`%s` must be an object.", at.text);
	role = read_role(m);
	if (!role)
		return apierr_set(e, 400, at_role.text, "`%s` must be `system`, `developer`, `user`, `assistant` or `tool`.", at_role.text);
	return read_content(m, role, ix, e) && read_calls(m, ix, e) && read_texts(m, ix, e);
}

json_t *chatmsg_read(const json_t *messages, struct apierr *e)
{
	size_t i, n = json_array_size(messages);
	json_t *list;

	if (!json_is_array(messages) || n == 0) {
		(void)apierr_set(e, 400, "messages", "`messages` must be a list of messages, not empty.");
		return NULL;
	}
	if (n > CHATMSG_MAX) {
		(void)apierr_set(e, 400, "messages", "`messages` holds more than %d messages.", CHATMSG_MAX);
		return NULL;
	}
	list = json_array();
	for (i = 0; i < n; i++) {
		json_t *given = json_array_get(messages, i);
		json_t *m = json_is_object(given) ? json_copy(given) : json_incref(given);

		if (json_array_append_new(list, m) == 0 && read_message(m, i, e)) continue;
		json_decref(list);
		return NULL;
	}
	return list;
}
