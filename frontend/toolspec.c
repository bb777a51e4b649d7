/* toolspec.c - see toolspec.h.
 *
 * `functions` and `function_call`, the names of before 2024, are refused with a word about the new ones. */
#include "frontend/toolspec.h"

#include <stdio.h>
#include <string.h>

static bool name_is_sane(const json_t *j)
{
	const char *s = json_string_value(j);
	size_t n = json_string_length(j), i;

	if (!s || n == 0 || n > TOOLSPEC_NAME_MAX) return false;
	for (i = 0; i < n; i++)
		if (s[i] == 0) return false;
	return true;
}

/* One function: {"name", "description", "parameters"}. Null is "not given". */
static bool check_function(const json_t *f, const char *at, struct apierr *e)
{
	const json_t *d = json_object_get(f, "description"), *p = json_object_get(f, "parameters");

	if (!json_is_object(f)) return apierr_set(e, 400, "tools", "`%s` must be an object.", at);
	if (!name_is_sane(json_object_get(f, "name")))
		return apierr_set(e, 400, "tools", "`%s.name` must be a string of 1 to %d bytes.", at, TOOLSPEC_NAME_MAX);
	if (d && !json_is_null(d) && !json_is_string(d)) return apierr_set(e, 400, "tools", "`%s.description` must be a string.", at);
	if (p && !json_is_null(p) && !json_is_object(p))
		return apierr_set(e, 400, "tools", "`%s.parameters` must be a JSON schema, an object.", at);
	return true;
}

static bool check_tool(const json_t *tool, size_t ix, struct apierr *e)
{
	const char *type = json_string_value(json_object_get(tool, "type"));
	char at[64];

	snprintf(at, sizeof(at), "tools[%zu]", ix);
	if (!json_is_object(tool)) return apierr_set(e, 400, "tools", "`%s` must be an object.", at);
	if (!type || strcmp(type, "function") != 0)
		return apierr_set(e, 400, "tools", "`%s.type` must be `function`, but is %s%.60s%s.", at, type ? "`" : "", type ? type : "missing",
				  type ? "`" : "");
	snprintf(at, sizeof(at), "tools[%zu].function", ix);
	return check_function(json_object_get(tool, "function"), at, e);
}

static const json_t *given(const json_t *body, const char *name)
{
	const json_t *j = json_object_get(body, name);

	return json_is_null(j) ? NULL : j;
}

static bool read_tools(struct toolspec *t, const json_t *body, struct apierr *e)
{
	const json_t *j = given(body, "tools");
	size_t i;

	if (!j) return true;
	if (!json_is_array(j)) return apierr_set(e, 400, "tools", "`tools` must be a list.");
	if (json_array_size(j) > TOOLSPEC_TOOLS_MAX) return apierr_set(e, 400, "tools", "`tools` holds more than %d tools.", TOOLSPEC_TOOLS_MAX);
	for (i = 0; i < json_array_size(j); i++)
		if (!check_tool(json_array_get(j, i), i, e)) return false;
	t->tools = json_array_size(j) ? j : NULL;
	return true;
}

static const json_t *find_function(const struct toolspec *t, const char *name)
{
	size_t i;

	for (i = 0; i < json_array_size(t->tools); i++) {
		const json_t *f = json_object_get(json_array_get(t->tools, i), "function");

		if (strcmp(json_string_value(json_object_get(f, "name")), name) == 0) return f;
	}
	return NULL;
}

static bool read_choice(struct toolspec *t, const json_t *body, struct apierr *e)
{
	static const struct {
		const char *word;
		enum tool_choice choice;
	} words[] = {{"none", TOOL_CHOICE_NONE}, {"auto", TOOL_CHOICE_AUTO}, {"required", TOOL_CHOICE_REQUIRED}};
	const json_t *j = given(body, "tool_choice"), *name;
	size_t i;

	t->choice = t->tools ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
	if (!j) return true;
	for (i = 0; i < ARRAY_LEN(words); i++) {
		if (!json_is_string(j) || strcmp(json_string_value(j), words[i].word) != 0) continue;
		if (!t->tools && words[i].choice != TOOL_CHOICE_REQUIRED) return true;
		t->choice = words[i].choice;
		return t->tools || apierr_set(e, 400, "tool_choice", "`tool_choice` is `%s`, but there are no `tools`.", words[i].word);
	}
	name = json_object_get(json_object_get(j, "function"), "name");
	if (!json_is_object(j) || !json_is_string(name))
		return apierr_set(e, 400, "tool_choice",
				  "`tool_choice` must be `none`, `auto`, `required` or {\"type\": \"function\", \"function\": {\"name\": ...}}.");
	if (!find_function(t, json_string_value(name)))
		return apierr_set(e, 400, "tool_choice", "`tool_choice` names `%.100s`, which is none of the `tools`.", json_string_value(name));
	t->choice = TOOL_CHOICE_NAMED;
	t->named = json_string_value(name);
	return true;
}

bool toolspec_read(struct toolspec *t, const json_t *body, struct apierr *e)
{
	const json_t *parallel = given(body, "parallel_tool_calls"), *functions = given(body, "functions"), *call = given(body, "function_call");
	const char *word = json_string_value(call);

	memset(t, 0, sizeof(*t));
	t->parallel = true;
	if (functions && !(json_is_array(functions) && json_array_size(functions) == 0))
		return apierr_set(e, 400, "functions", "`functions` is not supported; use `tools` instead.");
	if (call && !(word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)))
		return apierr_set(e, 400, "function_call", "`function_call` is not supported; use `tool_choice` instead.");
	if (parallel) {
		if (!json_is_boolean(parallel))
			return apierr_set(e, 400, "parallel_tool_calls", "`parallel_tool_calls` must be true or false.");
		t->parallel = json_is_true(parallel);
	}
	return read_tools(t, body, e) && read_choice(t, body, e);
}

/* The schema of a function's arguments; without one, any object. */
static json_t *parameters_of(const json_t *f)
{
	json_t *p = json_object_get(f, "parameters");

	return json_is_object(p) ? json_deep_copy(p) : json_pack("{s:s}", "type", "object");
}

/* References of one function's schema ("#/$defs/x") are relative to that schema, which becomes a part of a larger one: its definitions
 * move to the top under a name of their own, and its references follow. */
static void move_references(json_t *j, const char *prefix)
{
	const char *key;
	json_t *v;
	size_t i;

	if (json_is_array(j)) json_array_foreach(j, i, v) move_references(v, prefix);
	if (!json_is_object(j)) return;
	json_object_foreach(j, key, v) {
		const char *ref = strcmp(key, "$ref") == 0 ? json_string_value(v) : NULL;

		if (strcmp(key, "const") == 0 || strcmp(key, "enum") == 0) continue; /* values, no schemas */
		if (ref && ref[0] == '#' && (ref[1] == '/' || ref[1] == 0)) json_object_set_new_nocheck(j, key, json_sprintf("%s%s", prefix, ref + 1));
		else move_references(v, prefix);
	}
}

static json_t *call_schema(const json_t *f, size_t ix)
{
	json_t *parameters = parameters_of(f);
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "#/items/anyOf/%zu/properties/parameters", ix);
	move_references(parameters, prefix);
	return json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object", "properties", "name", "const", json_object_get(f, "name"),
			 "parameters", parameters, "required", "name", "parameters", "additionalProperties", 0);
}

json_t *toolspec_schema(const struct toolspec *t)
{
	json_t *any;
	size_t i;

	if (t->choice == TOOL_CHOICE_NAMED) return parameters_of(find_function(t, t->named));
	if (t->choice != TOOL_CHOICE_REQUIRED) return NULL;
	any = json_array();
	for (i = 0; i < json_array_size(t->tools); i++)
		json_array_append_new(any, call_schema(json_object_get(json_array_get(t->tools, i), "function"), i));
	return json_pack("{s:s, s:i, s:i, s:{s:o}}", "type", "array", "minItems", 1, "maxItems", t->parallel ? 16 : 1, "items", "anyOf", any);
}
