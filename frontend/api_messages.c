/* api_messages.c - Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens.
 *
 * A request is translated into one of /v1/chat/completions (messages_translate()), which then goes the common way; how the answer looks is
 * answer_messages.c. Errors below this path have Anthropic's shape (apierr.c). What is unknown is ignored, as everywhere; what asks for
 * something that runs on Anthropic's servers (mcp_servers, container) is refused by name. */
#include "frontend/answer.h"
#include "frontend/api.h"
#include "frontend/chatbody.h"
#include "frontend/gen.h"
#include "frontend/msgblocks.h"
#include "frontend/prep.h"

#include <string.h>

/* Mean the same in both APIs; those that Anthropic's does not have are vLLM's. */
static const char *const shared[] = {
	"model", "max_tokens", "temperature", "top_p", "top_k", "stream", "chat_template_kwargs",
	"min_p", "seed", "stop_token_ids", "include_stop_str_in_output", "min_tokens", "ignore_eos", "presence_penalty", "frequency_penalty",
	"repetition_penalty", "logit_bias", "allowed_token_ids", "skip_special_tokens", "priority", "cache_salt", "chat_template", "documents",
	"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", NULL,
};

static const struct apierr_name names[] = {
	{"stop", "stop_sequences"},
	{"response_format.json_schema", "output_config.format"},
	{"response_format", "output_config.format"},
	{"reasoning_effort", "output_config.effort"},
	{"required", "any"}, /* the word of tool_choice */
	{NULL, NULL},
};

static const char *type_of(const json_t *j)
{
	const char *type = json_string_value(json_object_get(j, "type"));

	return type ? type : "";
}

static bool check_refused(const json_t *body, struct apierr *e)
{
	static const char *const refused[] = {"mcp_servers", "container"};
	const json_t *j;
	size_t i;

	for (i = 0; i < ARRAY_LEN(refused); i++) {
		j = json_object_get(body, refused[i]);
		if (j && !json_is_null(j) && !(json_is_array(j) && json_array_size(j) == 0))
			return apierr_set(e, 400, refused[i], "`%s` is not supported: tools run at the client.", refused[i]);
	}
	return true;
}

static bool read_stops(struct chatbody *c, const json_t *body)
{
	json_t *list = json_object_get(body, "stop_sequences");

	if (!list || json_is_null(list)) return true;
	if (!json_is_array(list)) return apierr_set(c->e, 400, "stop_sequences", "`stop_sequences` must be a list of strings.");
	chatbody_set(c, "stop", json_incref(list));
	return true;
}

/* Whether and how long to think is a matter of the model's template. */
static bool read_thinking(struct chatbody *c, const json_t *body)
{
	const json_t *thinking = json_object_get(body, "thinking"), *config = json_object_get(body, "output_config");
	json_t *effort = json_object_get(config, "effort");
	bool thinks = strcmp(type_of(thinking), "disabled") != 0;

	if (effort && !json_is_null(effort)) {
		bool is_max = json_is_string(effort) && strcmp(json_string_value(effort), "max") == 0;

		/* chat's greatest effort has another name */
		chatbody_set(c, "reasoning_effort", is_max ? json_string("xhigh") : json_incref(effort));
	}
	if (!thinking || json_is_null(thinking)) return true;
	if (!type_of(thinking)[0]) return apierr_set(c->e, 400, "thinking", "`thinking` must be an object with a `type`.");
	chatbody_kwarg(c, "enable_thinking", json_boolean(thinks));
	chatbody_kwarg(c, "thinking", json_boolean(thinks));
	return true;
}

static bool read_format(struct chatbody *c, const json_t *body)
{
	const json_t *config = json_object_get(body, "output_config");
	json_t *format = json_object_get(config, "format"), *schema = json_object_get(format, "schema");

	if (config && !json_is_null(config) && !json_is_object(config))
		return apierr_set(c->e, 400, "output_config", "`output_config` must be an object.");
	if (!format || json_is_null(format)) return true;
	if (strcmp(type_of(format), "json_schema") != 0 || !json_is_object(schema))
		return apierr_set(c->e, 400, "output_config.format",
				  "`output_config.format` must be an object of type `json_schema` with a `schema`.");
	chatbody_set(c, "response_format", json_pack("{s:s,s:{s:s,s:b,s:O}}", "type", "json_schema", "json_schema", "name", "output", "strict", 1,
						     "schema", schema));
	return true;
}

/* ---- tools ---- */

static json_t *read_tool(const json_t *tool, const char *where, struct apierr *e)
{
	if (!json_is_object(tool) || (chatbody_has(tool, "type") && strcmp(type_of(tool), "custom") != 0)) {
		(void)apierr_set(e, 400, where, "`%s` must be a tool of the client (type `custom`); `%.64s` is not supported.", where, type_of(tool));
		return NULL;
	}
	if (!chatbody_has(tool, "input_schema")) {
		(void)apierr_set(e, 400, where, "`%s.input_schema` is required.", where);
		return NULL;
	}
	return chatbody_tool(tool, "input_schema", where, e);
}

static bool read_tools(struct chatbody *c, const json_t *body)
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
		json_array_append_new(tools, tool);
	}
	return true;
}

static bool read_tool_choice(struct chatbody *c, const json_t *body)
{
	static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
	const json_t *choice = json_object_get(body, "tool_choice"), *single = json_object_get(choice, "disable_parallel_tool_use");
	json_t *name;
	size_t i;

	if (!choice || json_is_null(choice)) return true;
	if (single && !json_is_null(single) && !json_is_boolean(single))
		return apierr_set(c->e, 400, "tool_choice.disable_parallel_tool_use",
				  "`tool_choice.disable_parallel_tool_use` must be true or false.");
	if (json_is_true(single)) chatbody_set(c, "parallel_tool_calls", json_false());
	for (i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(type_of(choice), words[i][0]) != 0) continue;
		chatbody_set(c, "tool_choice", json_string(words[i][1]));
		return true;
	}
	if (strcmp(type_of(choice), "tool") != 0)
		return apierr_set(c->e, 400, "tool_choice", "`tool_choice` must be an object of type `auto`, `any`, `tool` or `none`.");
	name = chatbody_string(choice, "name", "tool_choice", c->e);
	if (!name) return false;
	chatbody_set(c, "tool_choice", json_pack("{s:s,s:{s:O}}", "type", "function", "function", "name", name));
	return true;
}

/* ---- the endpoints ---- */

static json_t *translate(const json_t *body, struct apierr *e)
{
	struct chatbody c;

	chatbody_init(&c, e);
	chatbody_copy(&c, body, shared);
	if (check_refused(body, e) && read_stops(&c, body) && read_thinking(&c, body) && read_format(&c, body) && read_tools(&c, body) &&
	    read_tool_choice(&c, body))
		(void)msgblocks_read(&c, body);
	return chatbody_finish(&c);
}

static json_t *messages_translate(const json_t *body, struct apierr *e)
{
	if (!chatbody_has(body, "max_tokens")) {
		(void)apierr_set(e, 400, "max_tokens", "`max_tokens` is required.");
		return NULL;
	}
	return translate(body, e);
}

const struct endpoint ENDPOINT_MESSAGES = {
	.params = PARAMS_CHAT,
	.translate = messages_translate,
	.names = names,
	.shape = &ANSWER_MESSAGES,
};


/* Only counts, so it needs no max_tokens. */
static const struct endpoint counting = {
	.params = PARAMS_CHAT,
	.translate = translate,
	.names = names,
};

void api_messages(struct api *a, struct http_request *r)
{
	gen_serve(a, r, &ENDPOINT_MESSAGES);
}

static void on_counted(struct api *a, struct http_request *r, struct prep *p)
{
	strbuf_printf(&a->scratch, "{\"input_tokens\":%zu}", p->prompts[0].ids.len);
	prep_free(p);
	api_answer_json(a, r);
}

void api_messages_count(struct api *a, struct http_request *r)
{
	struct apierr e = {0};

	if (api_is_ready(a, &e)) prep_start(a, r, &counting, on_counted);
	else apierr_answer(&e, r);
}
