/* params_format.c - what a request demands of its output, in all the spellings there are: OpenAI's response_format, vLLM's
 * structured_outputs and its older guided_..., llama.cpp's grammar and json_schema, SGLang's regex and ebnf.
 *
 * All of them say one of five things (enum params_format); a request may say one of them once. Whether it can be compiled is
 * found out later (prep_grammar.c). */
#include "frontend/params.h"

#include <string.h>

static bool format_set(struct params *p, enum params_format format, const json_t *spec, const char *at, struct apierr *e)
{
	if (p->format != PARAMS_FORMAT_ANY)
		return apierr_set(e, 400, at, "`%s` cannot go together with `%s`: there is one way at most to constrain the output.", at,
				  p->format_at);
	p->format = format;
	p->format_spec = spec;
	p->format_at = at;
	return true;
}

/* ---- the specs ---- */

static bool format_schema(struct params *p, const json_t *j, const char *at, struct apierr *e)
{
	if (!json_is_object(j) && !json_is_boolean(j) && !params_is_text(j)) return params_wrong(e, at, "a JSON schema");
	return format_set(p, PARAMS_FORMAT_SCHEMA, j, at, e);
}

static bool format_text(struct params *p, enum params_format format, const json_t *j, const char *at, struct apierr *e)
{
	if (!params_is_text(j) || json_string_length(j) == 0)
		return params_wrong(e, at, format == PARAMS_FORMAT_REGEX ? "a regular expression, not empty" : "a grammar, not empty");
	return format_set(p, format, j, at, e);
}

static bool format_choice(struct params *p, const json_t *j, const char *at, struct apierr *e)
{
	size_t i, n = json_array_size(j);

	for (i = 0; i < n && params_is_text(json_array_get(j, i));) i++;
	if (n == 0 || i < n) return params_wrong(e, at, "a list of texts, not empty");
	return format_set(p, PARAMS_FORMAT_CHOICE, j, at, e);
}

static const json_t *given(const json_t *object, const char *name)
{
	const json_t *j = json_object_get(object, name);

	return j && !json_is_null(j) ? j : NULL;
}

/* ---- response_format ---- */

static bool read_json_schema(struct params *p, const json_t *format, struct apierr *e)
{
	const json_t *outer = given(format, "json_schema"), *name = given(outer, "name"), *strict = given(outer, "strict");

	/* llama.cpp takes the schema right here, too. */
	if (!outer && given(format, "schema")) return format_schema(p, given(format, "schema"), "response_format.schema", e);
	if (!json_is_object(outer)) return params_wrong(e, "response_format.json_schema", "an object with `name` and `schema`");
	if (name && !params_is_text(name)) return params_wrong(e, "response_format.json_schema.name", "a string");
	if (strict && !json_is_boolean(strict)) return params_wrong(e, "response_format.json_schema.strict", "true or false");
	return format_schema(p, json_object_get(outer, "schema"), "response_format.json_schema.schema", e);
}

static bool read_response_format(struct params *p, const json_t *j, struct apierr *e)
{
	const json_t *type = json_object_get(j, "type");
	const char *word = params_is_text(type) ? json_string_value(type) : NULL;

	if (!word) return params_wrong(e, "response_format", "an object with a `type`");
	if (strcmp(word, "text") == 0) return true;
	if (strcmp(word, "json_schema") == 0) return read_json_schema(p, j, e);
	if (strcmp(word, "json_object") == 0) {
		if (given(j, "schema")) return format_schema(p, given(j, "schema"), "response_format.schema", e);
		return format_set(p, PARAMS_FORMAT_JSON_OBJECT, NULL, "response_format", e);
	}
	if (strcmp(word, "structural_tag") == 0 || strcmp(word, "grammar") == 0 || strcmp(word, "python") == 0)
		return apierr_set(e, 400, "response_format", "`response_format` of type `%s` is not supported.", word);
	return params_wrong(e, "response_format.type", "`text`, `json_object` or `json_schema`");
}

/* ---- structured_outputs ---- */

/* What says how to do it and not what: true when it changes nothing. */
static bool read_how(struct params *p, const json_t *j, struct apierr *e)
{
	bool compact = false, closed = false;
	const json_t *backend = given(j, "whitespace_pattern");

	if (backend) return params_later(e, "structured_outputs.whitespace_pattern");
	if (!params_switch(j, "disable_any_whitespace", &compact, e) || !params_switch(j, "disable_additional_properties", &closed, e)) return false;
	if (closed) return params_later(e, "structured_outputs.disable_additional_properties");
	p->format_compact = compact;
	return true;
}

static bool read_structured(struct params *p, const json_t *j, struct apierr *e)
{
	bool any = false;
	const json_t *v;

	if (!json_is_object(j)) return params_wrong(e, "structured_outputs", "an object");
	if (given(j, "structural_tag")) return params_later(e, "structured_outputs.structural_tag");
	if (!read_how(p, j, e) || !params_switch(j, "json_object", &any, e)) return false;
	if ((v = given(j, "json")) && !format_schema(p, v, "structured_outputs.json", e)) return false;
	if ((v = given(j, "regex")) && !format_text(p, PARAMS_FORMAT_REGEX, v, "structured_outputs.regex", e)) return false;
	if ((v = given(j, "choice")) && !format_choice(p, v, "structured_outputs.choice", e)) return false;
	if ((v = given(j, "grammar")) && !format_text(p, PARAMS_FORMAT_EBNF, v, "structured_outputs.grammar", e)) return false;
	return !any || format_set(p, PARAMS_FORMAT_JSON_OBJECT, NULL, "structured_outputs.json_object", e);
}

/* ---- all of them ---- */

/* As given(), of the body. */
static const json_t *body_given(const struct jsonkeys *body, const char *name)
{
	const json_t *j = jsonkeys_get(body, name, jsonkeys_bit(name));

	return j && !json_is_null(j) ? j : NULL;
}

bool params_format_read(struct params *p, const struct jsonkeys *body, struct apierr *e)
{
	static const struct {
		const char *name;
		enum params_format format;
	} rows[] = {
		{"guided_json", PARAMS_FORMAT_SCHEMA}, {"guided_regex", PARAMS_FORMAT_REGEX},  {"guided_choice", PARAMS_FORMAT_CHOICE},
		{"guided_grammar", PARAMS_FORMAT_EBNF}, {"json_schema", PARAMS_FORMAT_SCHEMA}, {"grammar", PARAMS_FORMAT_EBNF},
		{"regex", PARAMS_FORMAT_REGEX},        {"ebnf", PARAMS_FORMAT_EBNF},
	};
	const json_t *j = body_given(body, "response_format");
	size_t i;

	if (j && !read_response_format(p, j, e)) return false;
	j = body_given(body, "structured_outputs");
	if (j && !read_structured(p, j, e)) return false;
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		j = body_given(body, rows[i].name);
		if (!j || (json_is_string(j) && json_string_length(j) == 0)) continue; /* llama.cpp's default */
		if (rows[i].format == PARAMS_FORMAT_SCHEMA && !format_schema(p, j, rows[i].name, e)) return false;
		if (rows[i].format == PARAMS_FORMAT_CHOICE && !format_choice(p, j, rows[i].name, e)) return false;
		if ((rows[i].format == PARAMS_FORMAT_REGEX || rows[i].format == PARAMS_FORMAT_EBNF) &&
		    !format_text(p, rows[i].format, j, rows[i].name, e))
			return false;
	}
	return true;
}
