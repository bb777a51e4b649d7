/* api_openapi.c - GET /openapi.json: what this server takes and answers, as OpenAPI 3.1.
 *
 * Paths come from the table of routes and parameters from the table of params.c, so neither can be missing; a route without a
 * description below fails a test. Everything that HTTP itself may be answered (400, 408, 413, ...) is listed at each operation. */
#include "frontend/jsonout.h"
#include "frontend/openapi.h"
#include "frontend/params.h"
#include "frontend/routes.h"

#include <stdio.h>
#include <string.h>

enum operation_flags {
	OPERATION_STREAMS = 1, /* also text/event-stream */
	OPERATION_ID = 2,      /* a last part of the path is given */
	OPERATION_TEXT = 4,    /* the answer is plain text */
	OPERATION_NEVER = 8,  /* always 404 */
};

static const struct operation {
	enum http_method method;
	const char *path;    /* as in routes.c */
	const char *summary;
	const char *request; /* schema; NULL: no body */
	const char *answer;  /* schema; NULL: none */
	uint32_t flags;
} operations[] = {
	{METHOD_POST, "/v1/chat/completions", "Answers a conversation", "ChatRequest", "ChatCompletion", OPERATION_STREAMS},
	{METHOD_POST, "/v1/completions", "Continues a text", "CompletionRequest", "Completion", OPERATION_STREAMS},
	{METHOD_POST, "/v1/responses", "Answers, as OpenAI's Responses API", "ResponsesRequest", "Response", OPERATION_STREAMS},
	{METHOD_POST, "/v1/responses/input_tokens", "Counts the tokens of an input", "ResponsesRequest", "InputTokens", 0},
	{METHOD_GET, "/v1/responses/", "Responses are not stored", NULL, NULL, OPERATION_ID | OPERATION_NEVER},
	{METHOD_DELETE, "/v1/responses/", "Responses are not stored", NULL, NULL, OPERATION_ID | OPERATION_NEVER},
	{METHOD_POST, "/v1/responses/", "Responses are not stored", NULL, NULL, OPERATION_ID | OPERATION_NEVER},
	{METHOD_POST, "/v1/messages", "Answers, as Anthropic's Messages API", "MessagesRequest", "Message", OPERATION_STREAMS},
	{METHOD_POST, "/v1/messages/count_tokens", "Counts the tokens of a conversation", "CountTokensRequest", "InputTokens", 0},
	{METHOD_POST, "/v1/embeddings", "Embeds texts", "EmbeddingsRequest", "Embeddings", 0},
	{METHOD_POST, "/v1/chat/completions/render", "The prompt that a chat request would start from", "ChatRequest", "Rendered", 0},
	{METHOD_POST, "/v1/completions/render", "The prompts that a request would start from", "CompletionRequest", "RenderedList", 0},
	{METHOD_GET, "/v1/models", "Lists the names of the model", NULL, "Models", 0},
	{METHOD_GET, "/v1/models/", "Describes the model", NULL, "Model", OPERATION_ID},
	{METHOD_POST, "/tokenize", "The tokens of a text or of a conversation", "TokenizeRequest", "Tokens", 0},
	{METHOD_POST, "/detokenize", "The text of tokens", "DetokenizeRequest", "Text", 0},
	{METHOD_GET, "/health", "Whether requests can be served, with the progress of loading", NULL, "Health", 0},
	{METHOD_GET, "/ready", "The same", NULL, "Health", 0},
	{METHOD_GET, "/live", "Whether the server runs; also while it loads", NULL, "Health", 0},
	{METHOD_GET, "/ping", "Whether somebody answers", NULL, "Empty", 0},
	{METHOD_POST, "/ping", "The same", NULL, "Empty", 0},
	{METHOD_GET, "/version", "The version of Sluice", NULL, "Version", 0},
	{METHOD_GET, "/load", "How many requests run or wait", NULL, "Load", 0},
	{METHOD_GET, "/metrics", "Metrics of the whole mesh, for Prometheus", NULL, NULL, OPERATION_TEXT},
	{METHOD_GET, "/openapi.json", "This document", NULL, "Empty", 0},
};

static const struct operation *operation_of(const struct route *r)
{
	for (size_t i = 0; i < ARRAY_LEN(operations); i++)
		if (operations[i].method == r->method && strcmp(operations[i].path, r->path) == 0) return &operations[i];
	return NULL;
}

static void put_parameters(struct strbuf *out, const struct api *a, int where);

/* The names under which the model is served. */
static void put_names(struct strbuf *out, const struct api *a)
{
	size_t i;

	strbuf_puts(out, a->any_name ? "{\"type\":[\"string\",\"null\"],\"examples\":[" : "{\"enum\":[");
	for (i = 0; i < a->n_names; i++) {
		if (i) strbuf_putc(out, ',');
		jsonout_text(out, a->names[i]);
	}
	strbuf_puts(out, a->any_name ? "]}" : ",null]}");
}

/* A text of openapi.h, with what its signs stand for. */
static void put_text(struct strbuf *out, const struct api *a, const char *text, int where)
{
	for (; *text; text++) {
		if (*text == '\'') strbuf_putc(out, '"');
		else if (*text == '$' && text[1] == '}') put_parameters(out, a, where);
		else if (*text == '@') put_names(out, a);
		else if (*text == '~') strbuf_put_u64(out, tokenizer_n_ids(a->tokenizer) - 1);
		else strbuf_putc(out, *text);
	}
}

/* A text without signs. */
static void put(struct strbuf *out, const char *text)
{
	for (; *text; text++) strbuf_putc(out, *text == '\'' ? '"' : *text);
}

static void put_member(struct strbuf *out, const char *name, const char *value)
{
	jsonout_text(out, name);
	strbuf_putc(out, ':');
	jsonout_text(out, value);
}

/* ---- parameters ---- */

static void put_number_schema(struct strbuf *out, const struct params_row *row)
{
	put(out, row->kind == PARAMS_ROW_WHOLE ? "{'type':['integer','null']" : "{'type':['number','null']");
	strbuf_printf(out, ",\"minimum\":%.15g", row->lo);
	if (row->hi < 9e15) strbuf_printf(out, ",\"maximum\":%.15g", row->hi);
	strbuf_putc(out, '}');
}

static void put_parameter(struct strbuf *out, const struct api *a, const struct params_row *row, int where)
{
	const char *own = row->kind == PARAMS_ROW_OTHER ? openapi_parameter(row->name, where) : NULL;

	jsonout_text(out, row->name);
	strbuf_putc(out, ':');
	if (row->kind == PARAMS_ROW_BOOL) put(out, "{'type':['boolean','null']}");
	else if (row->kind != PARAMS_ROW_OTHER) put_number_schema(out, row);
	else if (own) put_text(out, a, own, where);
	else put(out, "{}");
}

static void put_parameters(struct strbuf *out, const struct api *a, int where)
{
	struct params_row row;
	bool first = true;
	size_t i;

	for (i = 0; params_row(i, &row); i++) {
		if (!(row.where & where) || row.kind == PARAMS_ROW_REFUSED) continue;
		if (!first) strbuf_putc(out, ',');
		put_parameter(out, a, &row, where);
		first = false;
	}
}

static void put_schemas(struct strbuf *out, const struct api *a)
{
	const struct openapi_schema *schemas;
	size_t i, n;

	schemas = openapi_schemas(&n);
	for (i = 0; i < n; i++) {
		if (i) strbuf_putc(out, ',');
		jsonout_text(out, schemas[i].name);
		strbuf_putc(out, ':');
		put_text(out, a, schemas[i].text, schemas[i].where);
	}
}

/* ---- errors: the same at each operation, so they are written once and referred to ---- */

static const struct {
	int status;
	const char *description;
} errors[] = {
	{400, "The request is not valid; the message says why"},
	{401, "No API key of this server came with the request"},
	{404, "There is nothing of this name"},
	{405, "Another method than those of this path"},
	{408, "The request did not arrive in time"},
	{413, "The body is too large"},
	{415, "The body has a Content-Encoding"},
	{417, "An expectation other than 100-continue"},
	{429, "A limit of this tenant; Retry-After and retry-after-ms say when to try again"},
	{431, "The headers are too large"},
	{500, "The answer could not be completed"},
	{501, "A Transfer-Encoding other than chunked"},
	{503, "The model is not ready, or there are too many requests; Retry-After and retry-after-ms say when to try again"},
	{504, "The time that the request was given is over (X-Request-Timeout, --request-timeout)"},
	{505, "Another version of HTTP"},
};

/* Errors in the shapes that there are: of OpenAI's and of Anthropic's paths, and what /health says while it is not well. */
static const struct {
	const char *prefix, *schema;
} shapes[] = {
	{"Error", "{'$ref':'#/components/schemas/Error'}"},
	{"MessagesError", "{'$ref':'#/components/schemas/MessagesError'}"},
	{"HealthError", "{'anyOf':[{'$ref':'#/components/schemas/Health'},{'$ref':'#/components/schemas/Error'}]}"},
};

static const char *error_prefix(const struct operation *o)
{
	if (strncmp(o->path, "/v1/messages", 12) == 0) return shapes[1].prefix;
	return o->answer && strcmp(o->answer, "Health") == 0 ? shapes[2].prefix : shapes[0].prefix;
}

static void put_errors(struct strbuf *out)
{
	for (size_t k = 0; k < ARRAY_LEN(shapes); k++)
		for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
			strbuf_printf(out, "%s\"%s%d\":{", i + k ? "," : "", shapes[k].prefix, errors[i].status);
			put_member(out, "description", errors[i].description);
			put(out, ",'content':{'application/json':{'schema':");
			put(out, shapes[k].schema);
			put(out, "}}}");
		}
}

/* ---- operations ---- */

static void put_answer(struct strbuf *out, const struct operation *o)
{
	put(out, "'200':{'description':'Success','content':{");
	if (o->flags & OPERATION_TEXT) {
		put(out, "'text/plain':{'schema':{'type':'string'}}");
	} else {
		put(out, "'application/json':{'schema':{'$ref':'#/components/schemas/");
		strbuf_puts(out, o->answer);
		put(out, "'}}");
	}
	if (o->flags & OPERATION_STREAMS) put(out, ",'text/event-stream':{'schema':{'type':'string'}}");
	put(out, "}}");
}

static void put_responses(struct strbuf *out, const struct operation *o)
{
	put(out, "'responses':{");
	if (!(o->flags & OPERATION_NEVER)) put_answer(out, o);
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		if (errors[i].status == 401 && routes_is_open(o->path)) continue;
		if (i > 0 || !(o->flags & OPERATION_NEVER)) strbuf_putc(out, ',');
		strbuf_printf(out, "\"%d\":{\"$ref\":\"#/components/responses/%s%d\"}", errors[i].status, error_prefix(o), errors[i].status);
	}
	strbuf_putc(out, '}');
}

static const char *method_name(enum http_method m)
{
	return m == METHOD_GET ? "get" : m == METHOD_DELETE ? "delete" : "post";
}

/* "post /v1/chat/completions" -> post_v1_chat_completions */
static void put_operation_id(struct strbuf *out, const struct operation *o)
{
	put(out, "'operationId':'");
	strbuf_puts(out, method_name(o->method));
	for (const char *p = o->path; *p; p++)
		if (p[1] || *p != '/') strbuf_putc(out, *p == '/' || *p == '.' ? '_' : *p);
	if (o->flags & OPERATION_ID) strbuf_puts(out, "_id");
	put(out, "',");
}

static void put_operation(struct strbuf *out, const struct operation *o)
{
	jsonout_text(out, method_name(o->method));
	strbuf_puts(out, ":{");
	put_operation_id(out, o);
	put_member(out, "summary", o->summary);
	strbuf_putc(out, ',');
	if (routes_is_open(o->path)) put(out, "'security':[],");
	if (o->flags & OPERATION_ID) put(out, "'parameters':[{'name':'id','in':'path','required':true,'schema':{'type':'string','minLength':1}}],");
	if (o->request) {
		put(out, "'requestBody':{'required':true,'content':{'application/json':{'schema':{'$ref':'#/components/schemas/");
		strbuf_puts(out, o->request);
		put(out, "'}}}},");
	}
	put_responses(out, o);
	strbuf_putc(out, '}');
}

/* All methods of the path of routes[from]; nothing when an earlier route has shown it. */
static void put_path(struct strbuf *out, const struct route *routes, size_t n, size_t from, bool *first)
{
	const struct operation *o = operation_of(&routes[from]);
	bool is_first_method = true;
	size_t i;

	for (i = 0; i < from; i++)
		if (strcmp(routes[i].path, routes[from].path) == 0) return;
	if (!o) return;
	if (!*first) strbuf_putc(out, ',');
	*first = false;
	strbuf_printf(out, "\"%s%s\":{", o->path, o->flags & OPERATION_ID ? "{id}" : "");
	for (i = from; i < n; i++) {
		o = strcmp(routes[i].path, routes[from].path) == 0 ? operation_of(&routes[i]) : NULL;
		if (!o) continue;
		if (!is_first_method) strbuf_putc(out, ',');
		is_first_method = false;
		put_operation(out, o);
	}
	strbuf_putc(out, '}');
}

void api_openapi(struct api *a, struct http_request *r)
{
	struct strbuf *out = &a->scratch;
	const struct route *routes;
	bool first = true;
	size_t i, n;

	put(out, "{'openapi':'3.1.0','info':{'title':'Sluice',");
	put_member(out, "version", SLUICE_VERSION);
	put(out, "},'servers':[{");
	put_member(out, "url", a->config->root_path[0] ? a->config->root_path : "/");
	put(out, "}],");
	if (a->keys && a->keys->n > 0) put(out, "'security':[{'bearer':[]},{'apiKey':[]}],");
	put(out, "'paths':{");
	routes = routes_all(&n);
	for (i = 0; i < n; i++) put_path(out, routes, n, i, &first);
	put(out, "},'components':{'securitySchemes':{'bearer':{'type':'http','scheme':'bearer'},"
		 "'apiKey':{'type':'apiKey','in':'header','name':'x-api-key'}},'schemas':{");
	put_schemas(out, a);
	put(out, "},'responses':{");
	put_errors(out);
	put(out, "}}}");
	api_answer_json(a, r);
}
