/* respitems.c - see respitems.h.
 *
 * One row an item's type. What needs storage (item_reference) or a tool that runs on the server is refused by its type. */
#include "frontend/respitems.h"

#include "common/strbuf.h"
#include "frontend/params.h"

#include <string.h>

#define RESPITEMS_REASONING_MAX (32 * MIB) /* as long as a request's body may make it */

static void read_message(struct chatbody *c, const json_t *item, const char *where)
{
	static const char *const roles[] = {"user", "assistant", "system", "developer"};
	static const char *const types[] = {"input_text", "output_text", "text", "refusal", NULL};
	const char *role = json_string_value(json_object_get(item, "role"));
	char at[CHATBODY_WHERE_MAX];
	json_t *content;
	size_t i;

	for (i = 0; role && i < ARRAY_LEN(roles) && strcmp(role, roles[i]) != 0; i++) {
	}
	if (!role || i == ARRAY_LEN(roles)) {
		chatbody_at(at, where, "role");
		(void)apierr_set(c->e, 400, at, "`%s` must be `user`, `assistant`, `system` or `developer`.", at);
		return;
	}
	chatbody_at(at, where, "content");
	content = chatbody_texts(json_object_get(item, "content"), types, at, c->e);
	if (!content) return;
	if (strcmp(role, "assistant") == 0) chatbody_assistant(c, content);
	else chatbody_say(c, role, content);
}

static void read_call(struct chatbody *c, const json_t *item, const char *where)
{
	json_t *id = chatbody_string(item, "call_id", where, c->e);
	json_t *name = chatbody_string(item, "name", where, c->e);
	json_t *arguments = chatbody_string(item, "arguments", where, c->e);

	if (id && name && arguments) chatbody_call(c, id, name, json_incref(arguments));
}

static void read_call_output(struct chatbody *c, const json_t *item, const char *where)
{
	static const char *const types[] = {"input_text", "output_text", "text", NULL};
	json_t *id = chatbody_string(item, "call_id", where, c->e), *content;
	char at[CHATBODY_WHERE_MAX];

	if (!id) return;
	chatbody_at(at, where, "output");
	content = chatbody_texts(json_object_get(item, "output"), types, at, c->e);
	if (content) chatbody_result(c, id, content);
}

/* What a model of ours thought comes back in `content`. Summaries and encrypted thoughts are another model's: left out. */
static void read_reasoning(struct chatbody *c, const json_t *item, const char *where)
{
	const json_t *content = json_object_get(item, "content"), *text;
	struct strbuf all;
	size_t i;

	strbuf_init(&all, RESPITEMS_REASONING_MAX);
	for (i = 0; i < json_array_size(content); i++) {
		text = json_object_get(json_array_get(content, i), "text");
		if (params_is_text(text)) strbuf_append(&all, json_string_value(text), json_string_length(text));
	}
	if (all.len) chatbody_reasoning(c, json_stringn(all.data, all.len));
	strbuf_release(&all);
}

static const struct item {
	const char *type;
	void (*read)(struct chatbody *c, const json_t *item, const char *where);
} items[] = {
	{"message", read_message},
	{"function_call", read_call},
	{"function_call_output", read_call_output},
	{"reasoning", read_reasoning},
};

static void read_item(struct chatbody *c, const json_t *item, const char *where)
{
	const char *type = json_string_value(json_object_get(item, "type"));
	size_t i;

	if (!json_is_object(item)) {
		(void)apierr_set(c->e, 400, where, "`%s` must be an object.", where);
		return;
	}
	if (!type && !chatbody_has(item, "type")) type = "message"; /* the short form of a message */
	for (i = 0; type && i < ARRAY_LEN(items); i++) {
		if (strcmp(type, items[i].type) != 0) continue;
		items[i].read(c, item, where);
		return;
	}
	(void)apierr_set(c->e, 400, where,
			 "`%s` of type `%.64s` is not supported; supported are `message`, `function_call`, `function_call_output` and `reasoning`.",
			 where, type ? type : "");
}

bool respitems_read(struct chatbody *c, json_t *input)
{
	char where[CHATBODY_WHERE_MAX];
	size_t i;

	if (params_is_text(input)) {
		chatbody_say(c, "user", json_incref(input));
		return true;
	}
	if (json_array_size(input) == 0) return apierr_set(c->e, 400, "input", "`input` must be a text or a list of items, not empty.");
	for (i = 0; i < json_array_size(input) && !c->e->status; i++) {
		chatbody_at_ix(where, "input", i);
		read_item(c, json_array_get(input, i), where);
	}
	if (c->e->status == 0 && json_array_size(c->messages) == 0) /* reasoning without a word, say */
		return apierr_set(c->e, 400, "input", "`input` must hold a message: what it has says nothing.");
	return c->e->status == 0;
}
