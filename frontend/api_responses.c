/* api_responses.c - OpenAI's Responses API: everything of it that needs no storage.
 *
 * A request is translated into one of /v1/chat/completions (responses_translate()), which then goes the common way; how the answer looks is
 * answer_responses.c. What would need stored responses is refused by name: previous_response_id, conversation, background, prompt. */
#include "frontend/answer.h"
#include "frontend/api.h"
#include "frontend/chatbody.h"
#include "frontend/gen.h"
#include "frontend/prep.h"
#include "frontend/respitems.h"

#include <string.h>

/* Mean the same in both APIs; those that OpenAI's does not have are vLLM's. */
static const char *const shared[] = {
	"model", "temperature", "top_p", "stream", "parallel_tool_calls", "top_logprobs", "chat_template_kwargs",
	"top_k", "min_p", "seed", "stop", "stop_token_ids", "include_stop_str_in_output", "min_tokens", "ignore_eos",
	"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "allowed_token_ids", "skip_special_tokens",
	"priority", "cache_salt", "chat_template", "documents", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
	"structured_outputs", NULL,
};

static const struct apierr_name names[] = {
	{"messages", "input"},
	{"max_completion_tokens", "max_output_tokens"},
	{"max_tokens", "max_output_tokens"},
	{"response_format.json_schema", "text.format"},
	{"response_format", "text.format"},
	{"verbosity", "text.verbosity"},
	{"logprobs", "include"},
	{"reasoning_effort", "reasoning.effort"},
	{NULL, NULL},
};

/* ---- what is refused ---- */

static bool asks_for_nothing(const json_t *j)
{
	return !j || json_is_null(j) || json_is_false(j) || ((json_is_array(j) || json_is_object(j)) && json_array_size(j) + json_object_size(j) == 0);
}

static bool check_refused(const json_t *body, struct apierr *e)
{
	static const struct {
		const char *name, *why;
	} refused[] = {
		{"previous_response_id", "responses are not stored. Send the conversation so far in `input`"},
		{"conversation", "conversations are not stored. Send the conversation so far in `input`"},
		{"background", "responses are not stored"},
		{"prompt", "prompts are not stored"},
		{"context_management", "the conversation is taken as it is"},
		{"moderation", "there is no moderation model"},
	};
	const char *truncation = json_string_value(json_object_get(body, "truncation"));
	size_t i;

	for (i = 0; i < ARRAY_LEN(refused); i++)
		if (!asks_for_nothing(json_object_get(body, refused[i].name)))
			return apierr_set(e, 400, refused[i].name, "`%s` is not supported: %s.", refused[i].name, refused[i].why);
	if (!chatbody_has(body, "truncation") || (truncation && strcmp(truncation, "disabled") == 0)) return true;
	return apierr_set(e, 400, "truncation", "`truncation` other than `disabled` is not supported: the conversation is taken as it is.");
}

/* Parts that are only repeated in the answer, and bounded for that. */
static bool check_repeated(const json_t *body, struct apierr *e)
{
	json_t *metadata = json_object_get(body, "metadata"), *store = json_object_get(body, "store"), *value;
	const char *key;

	if (store && !json_is_null(store) && !json_is_boolean(store)) return apierr_set(e, 400, "store", "`store` must be true or false.");
	if (!metadata || json_is_null(metadata)) return true;
	if (!json_is_object(metadata) || json_object_size(metadata) > 16)
		return apierr_set(e, 400, "metadata", "`metadata` must be an object of at most 16 texts.");
	json_object_foreach(metadata, key, value)
		if (!json_is_string(value) || json_string_length(value) > 512 || strlen(key) > 64)
			return apierr_set(e, 400, "metadata", "`metadata` must hold texts of at most 512 bytes under keys of at most 64.");
	return true;
}

/* ---- parameters that look different ---- */

static bool read_include(struct chatbody *c, const json_t *body)
{
	const json_t *list = json_object_get(body, "include"), *top = json_object_get(body, "top_logprobs");
	bool wanted = json_is_number(top) && json_number_value(top) > 0;
	size_t i;

	if (list && !json_is_null(list) && !json_is_array(list)) return apierr_set(c->e, 400, "include", "`include` must be a list of strings.");
	for (i = 0; i < json_array_size(list); i++) {
		const char *word = json_string_value(json_array_get(list, i));

		if (!word) return apierr_set(c->e, 400, "include", "`include` must be a list of strings.");
		/* The others ask for parts of tools' answers that never come, or for what is always there. */
		if (strcmp(word, "message.output_text.logprobs") == 0) wanted = true;
	}
	if (wanted) chatbody_set(c, "logprobs", json_true());
	return true;
}

static bool read_format(struct chatbody *c, const json_t *format)
{
	static const char *const members[] = {"name", "description", "schema", "strict"};
	const char *type = json_string_value(json_object_get(format, "type"));
	json_t *chat, *schema, *j;
	size_t i;

	if (!type || (strcmp(type, "text") != 0 && strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0))
		return apierr_set(c->e, 400, "text.format", "`text.format` must be an object whose `type` is `text`, `json_object` or `json_schema`.");
	chat = json_object();
	json_object_set(chat, "type", json_object_get(format, "type"));
	if (strcmp(type, "json_schema") == 0) {
		schema = json_object();
		for (i = 0; i < ARRAY_LEN(members); i++) {
			j = json_object_get(format, members[i]);
			if (j && !json_is_null(j)) json_object_set(schema, members[i], j);
		}
		json_object_set_new(chat, "json_schema", schema);
	}
	chatbody_set(c, "response_format", chat);
	return true;
}

static bool read_text(struct chatbody *c, const json_t *body)
{
	const json_t *text = json_object_get(body, "text");
	const char *verbosity = json_string_value(json_object_get(text, "verbosity"));

	if (!text || json_is_null(text)) return true;
	if (!json_is_object(text)) return apierr_set(c->e, 400, "text", "`text` must be an object.");
	/* medium is what one gets without a word */
	if (chatbody_has(text, "verbosity") && !(verbosity && strcmp(verbosity, "medium") == 0))
		chatbody_set(c, "verbosity", json_incref(json_object_get(text, "verbosity")));
	return !chatbody_has(text, "format") || read_format(c, json_object_get(text, "format"));
}

/* Whether and how long to think is a matter of the model's template. */
static bool read_reasoning(struct chatbody *c, const json_t *body)
{
	json_t *reasoning = json_object_get(body, "reasoning"), *effort = json_object_get(reasoning, "effort");
	bool thinks;

	if (!reasoning || json_is_null(reasoning)) return true;
	if (!json_is_object(reasoning)) return apierr_set(c->e, 400, "reasoning", "`reasoning` must be an object.");
	if (!effort || json_is_null(effort)) return true;
	chatbody_set(c, "reasoning_effort", json_incref(effort));
	thinks = !json_is_string(effort) || strcmp(json_string_value(effort), "none") != 0;
	chatbody_kwarg(c, "enable_thinking", json_boolean(thinks));
	chatbody_kwarg(c, "thinking", json_boolean(thinks));
	return true;
}

/* ---- tools ---- */

static bool is_function(const json_t *j)
{
	const char *type = json_string_value(json_object_get(j, "type"));

	return type && strcmp(type, "function") == 0;
}

static json_t *read_tool(const json_t *tool, const char *where, struct apierr *e)
{
	if (!is_function(tool)) {
		(void)apierr_set(e, 400, where, "`%s` must be a tool of type `function`; tools that run on the server are not supported.", where);
		return NULL;
	}
	return chatbody_tool(tool, "parameters", where, e);
}

/* {"type": "allowed_tools"}: does its list name this function? */
static bool is_allowed(const json_t *allowed, const json_t *tool)
{
	const char *name = json_string_value(json_object_get(tool, "name")), *other;
	size_t i;

	for (i = 0; i < json_array_size(allowed); i++) {
		other = json_string_value(json_object_get(json_array_get(allowed, i), "name"));
		if (name && other && strcmp(name, other) == 0) return true;
	}
	return false;
}

static bool read_tools(struct chatbody *c, const json_t *body, const json_t *allowed)
{
	const json_t *list = json_object_get(body, "tools");
	char where[CHATBODY_WHERE_MAX];
	json_t *tools, *tool;
	size_t i;

	if (!list || json_is_null(list)) return true;
	if (!json_is_array(list)) return apierr_set(c->e, 400, "tools", "`tools` must be a list of tools.");
	tools = json_array();
	chatbody_set(c, "tools", tools);
	for (i = 0; i < json_array_size(list); i++) {
		chatbody_at_ix(where, "tools", i);
		tool = read_tool(json_array_get(list, i), where, c->e);
		if (!tool) return false;
		if (!allowed || is_allowed(allowed, json_array_get(list, i))) json_array_append_new(tools, tool);
		else json_decref(tool);
	}
	return true;
}

static bool read_tool_choice(struct chatbody *c, const json_t *body)
{
	json_t *choice = json_object_get(body, "tool_choice"), *allowed = NULL, *name;
	const char *type = json_string_value(json_object_get(choice, "type"));

	if (!choice || json_is_null(choice)) return read_tools(c, body, NULL);
	if (json_is_string(choice)) {
		chatbody_set(c, "tool_choice", json_incref(choice));
	} else if (is_function(choice)) {
		name = chatbody_string(choice, "name", "tool_choice", c->e);
		if (!name) return false;
		chatbody_set(c, "tool_choice", json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name));
	} else if (type && strcmp(type, "allowed_tools") == 0) {
		allowed = json_object_get(choice, "tools");
		name = chatbody_string(choice, "mode", "tool_choice", c->e);
		if (!name) return false;
		if (!json_is_array(allowed)) return apierr_set(c->e, 400, "tool_choice.tools", "`tool_choice.tools` must be a list of tools.");
		chatbody_set(c, "tool_choice", json_incref(name));
	} else {
		return apierr_set(c->e, 400, "tool_choice",
				  "`tool_choice` must be `none`, `auto`, `required`, or an object of type `function` or `allowed_tools`.");
	}
	return read_tools(c, body, allowed);
}

/* ---- the endpoint ---- */

static bool read_instructions(struct chatbody *c, const json_t *body)
{
	json_t *text = json_object_get(body, "instructions");

	if (!text || json_is_null(text)) return true;
	if (!params_is_text(text)) return params_wrong(c->e, "instructions", "a string");
	chatbody_say(c, "system", json_incref(text));
	return true;
}

static json_t *responses_translate(const json_t *body, struct apierr *e)
{
	struct chatbody c;

	chatbody_init(&c, e);
	chatbody_copy(&c, body, shared);
	if (chatbody_has(body, "max_output_tokens"))
		chatbody_set(&c, "max_completion_tokens", json_incref(json_object_get(body, "max_output_tokens")));
	if (check_refused(body, e) && check_repeated(body, e) && read_include(&c, body) && read_text(&c, body) && read_reasoning(&c, body) &&
	    read_tool_choice(&c, body) && read_instructions(&c, body))
		(void)respitems_read(&c, json_object_get(body, "input"));
	return chatbody_finish(&c);
}

const struct endpoint ENDPOINT_RESPONSES = {
	.params = PARAMS_CHAT,
	.translate = responses_translate,
	.names = names,
	.shape = &ANSWER_RESPONSES,
};

void api_responses(struct api *a, struct http_request *r)
{
	gen_serve(a, r, &ENDPOINT_RESPONSES);
}

static void on_counted(struct api *a, struct http_request *r, struct prep *p)
{
	strbuf_printf(&a->scratch, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", p->prompts[0].ids.len);
	prep_free(p);
	api_answer_json(a, r);
}

void api_responses_count(struct api *a, struct http_request *r)
{
	struct apierr e = {0};

	if (api_is_ready(a, &e)) prep_start(a, r, &ENDPOINT_RESPONSES, on_counted);
	else apierr_answer(&e, r);
}

void api_responses_stored(struct api *a, struct http_request *r)
{
	apierr_send(r, 404, NULL, "There is no such response: responses are not stored here.");
}
