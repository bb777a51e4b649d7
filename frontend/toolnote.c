/* toolnote.c - see toolnote.h. */
#include "frontend/toolnote.h"

#include "common/strbuf.h"

#include <stdlib.h>
#include <string.h>

#define TOOLNOTE_MAX (256 * MIB) /* a request's body is far smaller */

static const char note_head[] =
	"# Tools\n\nYou may call one or more functions to help with the user's request.\n\n"
	"The functions are given as JSON within <tools></tools>:\n<tools>\n";
static const char note_tail[] =
	"</tools>\n\nTo call a function, answer with a JSON object that has its name and arguments, within <tool_call></tool_call>:\n"
	"<tool_call>\n{\"name\": <function-name>, \"arguments\": <arguments-as-JSON-object>}\n</tool_call>";

static void put_json(struct strbuf *out, const json_t *j)
{
	char *text = json_dumps(j, JSON_ENCODE_ANY);

	if (text) strbuf_puts(out, text);
	free(text);
}

static json_t *text_of(const struct strbuf *s)
{
	return json_stringn(s->data ? s->data : "", s->len);
}

static json_t *note_text(const json_t *tools)
{
	struct strbuf s;
	json_t *text;
	size_t i;

	strbuf_init(&s, TOOLNOTE_MAX);
	strbuf_puts(&s, note_head);
	for (i = 0; i < json_array_size(tools); i++) {
		put_json(&s, json_array_get(tools, i));
		strbuf_putc(&s, '\n');
	}
	strbuf_puts(&s, note_tail);
	text = text_of(&s);
	strbuf_release(&s);
	return text;
}

static void put_content(struct strbuf *out, const json_t *content)
{
	size_t i;

	if (json_is_string(content)) strbuf_append(out, json_string_value(content), json_string_length(content));
	for (i = 0; i < json_array_size(content); i++) {
		const json_t *part = json_object_get(json_array_get(content, i), "text");

		if (i) strbuf_putc(out, '\n');
		strbuf_append(out, json_string_value(part), json_string_length(part));
	}
}

static bool has_role(const json_t *message, const char *role)
{
	const char *r = json_string_value(json_object_get(message, "role"));

	return r && strcmp(r, role) == 0;
}

/* The assistant's calls as it would have written them. */
static json_t *calls_as_text(const json_t *message)
{
	const json_t *calls = json_object_get(message, "tool_calls");
	struct strbuf s;
	json_t *out;
	size_t i;

	strbuf_init(&s, TOOLNOTE_MAX);
	put_content(&s, json_object_get(message, "content"));
	for (i = 0; i < json_array_size(calls); i++) {
		const json_t *f = json_object_get(json_array_get(calls, i), "function"), *args = json_object_get(f, "arguments");

		strbuf_puts(&s, s.len ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
		put_json(&s, json_object_get(f, "name"));
		strbuf_puts(&s, ", \"arguments\": ");
		if (args) put_json(&s, args);
		else strbuf_puts(&s, "{}");
		strbuf_puts(&s, "}\n</tool_call>");
	}
	out = json_pack("{s:s, s:o}", "role", "assistant", "content", text_of(&s));
	strbuf_release(&s);
	return out;
}

/* Results that follow each other, from message *i on, as one message of the user: many templates want roles to alternate. */
static json_t *results_as_text(const json_t *messages, size_t *i)
{
	struct strbuf s;
	json_t *out;

	strbuf_init(&s, TOOLNOTE_MAX);
	for (; *i < json_array_size(messages) && has_role(json_array_get(messages, *i), "tool"); ++*i) {
		if (s.len) strbuf_putc(&s, '\n');
		strbuf_puts(&s, "<tool_response>\n");
		put_content(&s, json_object_get(json_array_get(messages, *i), "content"));
		strbuf_puts(&s, "\n</tool_response>");
	}
	out = json_pack("{s:s, s:o}", "role", "user", "content", text_of(&s));
	strbuf_release(&s);
	return out;
}

static json_t *joined(const json_t *first, const json_t *second)
{
	struct strbuf s;
	json_t *out;

	strbuf_init(&s, TOOLNOTE_MAX);
	put_content(&s, first);
	strbuf_puts(&s, "\n\n");
	put_content(&s, second);
	out = text_of(&s);
	strbuf_release(&s);
	return out;
}

/* Takes note. */
static void place_note(json_t *messages, json_t *note, enum toolnote_place place)
{
	json_t *m = json_array_get(messages, 0), *copy;
	size_t i = 0;

	if (place == TOOLNOTE_USER) {
		while (i < json_array_size(messages) && !has_role(json_array_get(messages, i), "user")) i++;
		m = json_array_get(messages, i);
	} else if (!has_role(m, "system")) {
		json_array_insert_new(messages, 0, json_pack("{s:s, s:o}", "role", "system", "content", note));
		return;
	}
	if (!m) { /* a conversation without a user */
		json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content", note));
		return;
	}
	copy = json_copy(m);
	if (place == TOOLNOTE_USER) json_object_set_new(copy, "content", joined(note, json_object_get(m, "content")));
	else json_object_set_new(copy, "content", joined(json_object_get(m, "content"), note));
	json_array_set_new(messages, i, copy);
	json_decref(note);
}

json_t *toolnote_messages(const json_t *messages, const json_t *tools, enum toolnote_place place)
{
	json_t *out = json_array();
	size_t i = 0;

	while (i < json_array_size(messages)) {
		json_t *m = json_array_get(messages, i);

		if (has_role(m, "tool")) {
			json_array_append_new(out, results_as_text(messages, &i));
			continue;
		}
		if (has_role(m, "assistant") && json_array_size(json_object_get(m, "tool_calls")) > 0) json_array_append_new(out, calls_as_text(m));
		else json_array_append(out, m);
		i++;
	}
	place_note(out, note_text(tools), place);
	return out;
}
