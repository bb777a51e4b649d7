/* prep.c - see prep.h. Two steps: the body's JSON and its parameters; then prompts and grammar, which may take long. */
#include "frontend/prep.h"

#include "common/clock.h"
#include "common/mem.h"
#include "frontend/conn.h"
#include "frontend/chat.h"
#include "frontend/gramc.h"
#include "frontend/jsonread.h"
#include "frontend/prompt.h"
#include "frontend/story.h"

#include <stdio.h>
#include <string.h>

/* The words of --tool-call-parser and --reasoning-parser, in their order. */
enum { PARSER_AUTO, PARSER_NONE, PARSER_FIRST };

/* ---- JSON and parameters ---- */

static bool prep_check_choices(const struct prep *p, struct apierr *e)
{
	uint32_t max = p->api->config->max_n;

	if (p->params.n > max) return apierr_set(e, 400, "n", "`n` must be at most %u (--max-n).", max);
	if (p->params.best_of > max) return apierr_set(e, 400, "best_of", "`best_of` must be at most %u (--max-n).", max);
	return true;
}

static bool prep_parse(struct prep *p, struct apierr *e)
{
	struct errbuf err = {{0}};
	int rc = jsonread(&p->body, p->bytes.data, p->bytes.len, &err);

	strbuf_release(&p->bytes);
	if (rc != ST_OK) return apierr_set(e, 400, NULL, "%s", err.text);
	p->asked = p->endpoint->translate ? p->endpoint->translate(p->body, e) : json_incref(p->body);
	return p->asked && params_read(&p->params, p->endpoint->params, p->asked, p->api->defaults, e) &&
	       api_knows_model(p->api, p->params.model, p->params.model_len, e) && api_takes_priority(p->api, p->params.priority, e) &&
	       prep_check_choices(p, e);
}

/* ---- prompts ---- */

/* What the answer needs at least, when the prompt is cut down to what fits. */
static int64_t prep_truncate(const struct prep *p)
{
	int64_t room = p->len_max > 1 ? (int64_t)p->len_max - 1 : 1, wanted = p->params.output_max;

	if (p->params.truncate_prompt >= 0) return p->params.truncate_prompt;
	return wanted > 0 && wanted < room ? room + 1 - wanted : room;
}

static bool prep_check_prompt(const struct prep *p, const struct prompt *pr, struct apierr *e)
{
	const char *what = p->params.endpoint == PARAMS_CHAT ? "messages" : "prompt";

	if (pr->ids.overflow || pr->ids.len >= p->len_max)
		return apierr_set(e, 400, what,
				  "This model's maximum context length is %u tokens. However, your request has %s%zu input tokens, which leaves "
				  "no room for an answer. Please reduce the length of the %s.",
				  p->len_max, pr->ids.overflow ? "more than " : "", pr->ids.overflow ? (size_t)p->len_max : pr->ids.len, what);
	if (pr->ids.len == 0) return apierr_set(e, 400, what, "`%s` holds no tokens to start from.", what);
	return true;
}

/* Bytes of a prompt that the request's log line shows. */
static size_t prep_shown_max(const struct prep *p)
{
	return p->api->journal ? p->api->config->max_log_len : 0;
}

static bool prep_one(struct prep *p, const struct prompt_opts *o, const json_t *j, struct prep_prompt *out, struct apierr *e)
{
	bool is_chat = p->params.endpoint == PARAMS_CHAT, ok;
	struct prompt pr;

	prompt_init(&pr, o);
	ok = is_chat ? prompt_read_chat(&pr, o, &p->params, e) : prompt_read_one(&pr, o, j, "prompt", e);
	ok = ok && prep_check_prompt(p, &pr, e);
	if (ok && p->parse.reasoning != OUTPARSE_REASONING_NONE)
		p->parse.in_reasoning = outparse_ends_in_reasoning(pr.text.data ? pr.text.data : "", pr.text.len);
	if (ok && prep_shown_max(p) > 0 && p->shown.len == 0) story_text(&p->shown, prep_shown_max(p), pr.text.data, pr.text.len);
	if (ok) {
		out->ids = pr.ids;
		out->text = is_chat ? pr.echo : pr.text;
		pr.ids = (struct token_vec){0};
		if (is_chat) pr.echo = (struct strbuf){0};
		else pr.text = (struct strbuf){0};
	}
	prompt_release(&pr);
	return ok;
}

static bool prep_prompts(struct prep *p, struct apierr *e)
{
	struct prompt_opts o = {
		.api = p->api,
		.ids_max = p->len_max,
		.truncate = prep_truncate(p),
		.add_special = p->params.add_special_tokens,
		.keep_text = p->params.echo || prep_shown_max(p) > 0,
		.stages = &p->stages,
		.work = p->work,
	};
	bool is_chat = p->params.endpoint == PARAMS_CHAT;
	size_t i, n = is_chat ? 1 : prompt_count(p->params.prompt, "prompt", e);

	if (n == 0) return false;
	if (n * (size_t)p->params.best_of > p->api->config->max_n)
		return apierr_set(e, 400, is_chat ? "n" : "prompt", "%zu prompts with %lld choices each are more than %u (--max-n).", n,
				  (long long)p->params.best_of, p->api->config->max_n);
	p->prompts = mem_array(struct prep_prompt, n);
	p->n_prompts = n;
	for (i = 0; i < n; i++)
		if (!prep_one(p, &o, is_chat ? NULL : prompt_get(p->params.prompt, i), &p->prompts[i], e)) return false;
	return true;
}

/* ---- ids of the parameters ---- */

static bool prep_check_ids(const struct prep *p, struct apierr *e)
{
	uint32_t vocab = tokenizer_n_ids(p->api->tokenizer);
	const struct params *q = &p->params;
	const char *key;
	json_t *value;
	int64_t id;
	size_t i;

	for (i = 0; i < q->n_stop_ids; i++)
		if (q->stop_ids[i] >= vocab)
			return apierr_set(e, 400, "stop_token_ids", "`stop_token_ids` holds %u, which is no token of this model.", q->stop_ids[i]);
	for (i = 0; i < json_array_size(q->allowed_ids); i++)
		if (params_whole(json_array_get(q->allowed_ids, i), &id) && id >= vocab)
			return apierr_set(e, 400, "allowed_token_ids", "`allowed_token_ids` holds %lld, which is no token of this model.", (long long)id);
	json_object_foreach((json_t *)q->logit_bias, key, value)
		if (strtoull(key, NULL, 10) >= vocab)
			return apierr_set(e, 400, "logit_bias", "`logit_bias` holds %s, which is no token of this model.", key);
	return true;
}

/* ---- what the output is and how it is read ---- */

static bool prep_parser(struct prep *p, struct apierr *e)
{
	const struct config *c = p->api->config;
	const struct toolspec *t = &p->params.tools;

	if (p->params.endpoint != PARAMS_CHAT) return true;
	p->parse.random = p->random;
	p->parse.calls_max = t->parallel ? 0 : 1;
	if (c->reasoning_parser == PARSER_AUTO) p->parse.reasoning = chat_reasoning(p->api->chat);
	else if (c->reasoning_parser >= PARSER_FIRST) p->parse.reasoning = OUTPARSE_REASONING_THINK;
	if (!t->tools || t->choice == TOOL_CHOICE_NONE) return true;
	if (t->choice == TOOL_CHOICE_NAMED) {
		p->parse.named = t->named;
	} else if (t->choice == TOOL_CHOICE_REQUIRED) {
		p->parse.tools = OUTPARSE_TOOLS_JSON;
	} else if (!c->enable_auto_tool_choice) {
		return apierr_set(e, 400, "tool_choice", "`tool_choice` auto is not allowed: the server was started with --no-enable-auto-tool-choice.");
	} else if (c->tool_call_parser == PARSER_AUTO) {
		p->parse.tools = chat_tools(p->api->chat);
		if (p->parse.tools == OUTPARSE_TOOLS_NONE)
			return apierr_set(e, 400, "tool_choice",
					  "`tool_choice` auto needs to know how the model writes its calls, which its chat template does not tell; "
					  "use `required` or a named function, or start the server with --tool-call-parser.");
	} else {
		p->parse.tools = (enum outparse_tools)(c->tool_call_parser - PARSER_NONE);
	}
	return true;
}

/* The schema of a format: as given, or out of the text that holds it. A new reference, or NULL and e set. */
static json_t *prep_schema(const struct params *q, struct apierr *e)
{
	struct errbuf err = {{0}};
	json_t *schema;

	if (!json_is_string(q->format_spec)) return json_incref((json_t *)q->format_spec);
	if (jsonread(&schema, json_string_value(q->format_spec), json_string_length(q->format_spec), &err) == ST_OK) return schema;
	(void)apierr_set(e, 400, q->format_at, "`%s` must be a JSON schema, or a text that holds one.", q->format_at);
	return NULL;
}

static int prep_compile(struct prep *p, const json_t *schema, const struct gramc_opts *o, struct errbuf *err)
{
	const struct params *q = &p->params;
	const json_t *spec = q->format_spec;

	if (schema) return gramc_schema(&p->grammar, schema, o, err);
	switch (q->format) {
	case PARAMS_FORMAT_JSON_OBJECT: return gramc_json_object(&p->grammar, o, err);
	case PARAMS_FORMAT_REGEX: return gramc_regex(&p->grammar, json_string_value(spec), json_string_length(spec), o, err);
	case PARAMS_FORMAT_CHOICE: return gramc_choice(&p->grammar, spec, o, err);
	case PARAMS_FORMAT_EBNF: return gramc_ebnf(&p->grammar, json_string_value(spec), json_string_length(spec), o, err);
	case PARAMS_FORMAT_SCHEMA:
	case PARAMS_FORMAT_ANY: break;
	}
	return ST_OK;
}

static bool prep_has_grammar(const struct prep *p)
{
	return p->params.format != PARAMS_FORMAT_ANY || p->params.tools.choice >= TOOL_CHOICE_REQUIRED;
}

/* Tools become one schema (toolspec_schema()): a place in it, told as one in the request. */
static bool prep_bad_tool(const struct toolspec *t, const char *why, struct apierr *e)
{
	unsigned ix = 0;
	int len = 0;

	if (t->choice == TOOL_CHOICE_NAMED)
		return apierr_set(e, 400, "tools", "The `parameters` of the function `%.100s` cannot be used: %s", t->named, why);
	if (sscanf(why, "at /items/anyOf/%u/properties/parameters%n", &ix, &len) == 1 && len > 0)
		return apierr_set(e, 400, "tools", "`tools[%u].function.parameters` cannot be used: at %s%s", ix, why[len] == '/' ? "" : "/", why + len);
	return apierr_set(e, 400, "tools", "`tools` cannot be used: %s", why);
}

static bool prep_grammar(struct prep *p, struct apierr *e)
{
	struct gramc_opts o = {.bytes_max = p->api->config->max_grammar_bytes, .any_whitespace = !p->params.format_compact};
	const char *at = p->params.format_at ? p->params.format_at : "tools";
	struct errbuf err = {{0}};
	json_t *schema = NULL;
	int rc;

	if (!prep_has_grammar(p)) return true;
	if (p->parse.reasoning != OUTPARSE_REASONING_NONE) {
		o.after = "</think>";
		o.may_skip_after = !p->parse.in_reasoning;
	}
	if (p->params.format == PARAMS_FORMAT_SCHEMA) {
		schema = prep_schema(&p->params, e);
		if (!schema) return false;
	} else if (p->params.format == PARAMS_FORMAT_ANY) {
		schema = toolspec_schema(&p->params.tools);
	}
	rc = prep_compile(p, schema, &o, &err);
	json_decref(schema);
	if (rc == ST_OK) return true;
	if (p->params.format == PARAMS_FORMAT_ANY) return prep_bad_tool(&p->params.tools, err.text, e);
	return apierr_set(e, 400, at, "`%s` cannot be used: %s", at, err.text);
}

/* ---- all of it ---- */

static void prep_rest(struct prep *p)
{
	struct apierr *e = &p->error;

	/* In the order of what is cheap to find out. */
	if (!prep_check_ids(p, e) || !prep_parser(p, e) || !prep_prompts(p, e) || !prep_grammar(p, e)) return;
	CHECK(p->n_prompts > 0);
}

static void prep_first(struct prep *p)
{
	uint64_t since = stage_begin(&p->stages.parse);

	p->is_parsed = true;
	strbuf_init(&p->grammar, LIMIT_GRAMMAR_BYTES);
	(void)prep_parse(p, &p->error);
	stage_end(&p->stages.parse, since);
}

void prep_run(struct prep *p)
{
	if (!p->is_parsed) prep_first(p);
	if (!p->error.status) prep_rest(p);
}

void prep_release(struct prep *p)
{
	size_t i;

	for (i = 0; i < p->n_prompts; i++) {
		token_vec_release(&p->prompts[i].ids);
		strbuf_release(&p->prompts[i].text);
	}
	free(p->prompts);
	strbuf_release(&p->grammar);
	strbuf_release(&p->shown);
	strbuf_release(&p->bytes);
	json_decref(p->asked);
	json_decref(p->body);
}

/* ---- in the loop ---- */

static void on_run(struct offload_job *j)
{
	prep_run(CONTAINER_OF(j, struct prep, job));
}

static void on_drop(struct offload_job *j)
{
	struct prep *p = CONTAINER_OF(j, struct prep, job);

	prep_release(p);
	free(p);
}

void prep_free(struct prep *p)
{
	if (!p) return;
	if (p->is_large) offload_drop(p->job.pool, &p->job);
	else on_drop(&p->job);
}

/* What is known of the request by now. */
static void prep_tell(struct prep *p, struct story *s)
{
	const struct params *q = &p->params;

	if (!s) return;
	s->is_llm = true;
	s->stages = p->stages;
	for (size_t i = 0; i < p->n_prompts; i++) s->n_prompt += p->prompts[i].ids.len;
	s->prompt = p->shown;
	p->shown = (struct strbuf){0};
	if (p->error.status) return; /* the parameters are not complete */
	s->is_stream = q->stream;
	s->n = (uint32_t)q->n;
	s->n_max = q->output_max > 0 ? (uint64_t)q->output_max : 0;
	s->temperature = q->temperature;
	s->top_p = q->top_p;
}

static void prep_finish(struct prep *p, struct http_request *r)
{
	struct api *a = (struct api *)p->api;

	stages_observe(&p->stages, a->slot);
	prep_tell(p, r->story);
	if (p->error.status) {
		apierr_rename(&p->error, p->endpoint->names);
		apierr_answer(&p->error, r);
		prep_free(p);
		return;
	}
	p->done(a, r, p);
}

static void on_done(struct offload_job *j)
{
	struct prep *p = CONTAINER_OF(j, struct prep, job);

	((struct api *)p->api)->now = clock_now_ns();
	prep_finish(p, j->request);
}

static bool prep_is_large(struct api *a, size_t len)
{
	if (len <= PREP_SMALL_BYTES) return false;
	if (a->inline_bytes + len > PREP_INLINE_BYTES) return true;
	a->inline_bytes += len;
	return false;
}

void prep_start(struct api *a, struct http_request *r, const struct endpoint *endpoint, void (*done)(struct api *a, struct http_request *r, struct prep *p))
{
	struct prep *p = mem_new(struct prep);

	p->api = a;
	p->endpoint = endpoint;
	p->len_max = api_model_len(a);
	p->random = api_random(a);
	p->done = done;
	conn_take_body(r->conn, &p->bytes);
	p->is_large = prep_is_large(a, p->bytes.len);
	p->job = (struct offload_job){.bytes = p->bytes.len, .pool = &a->offload, .run = on_run, .done = on_done, .drop = on_drop};
	if (!p->is_large) {
		prep_first(p);
		if (p->error.status || (!prep_has_grammar(p) && !p->params.chat_template)) {
			p->work = a->work;
			prep_run(p);
			prep_finish(p, r);
			return;
		}
	}
	if (offload_start(&a->offload, r, &p->job)) return;
	api_refuse_preparing(a, &p->error);
	prep_finish(p, r);
}
