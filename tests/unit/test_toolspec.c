/* test_toolspec.c - what a request may say about tools, and the schema that tool_choice demands. */
#include "frontend/toolspec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}"
#define G "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"description\":null}}"

static bool read(const char *text, struct toolspec *t, json_t **body, struct apierr *e)
{
	memset(e, 0, sizeof(*e));
	*body = json_loads(text, 0, NULL);
	assert_non_null(*body);
	return toolspec_read(t, *body, e);
}

static void good_ones_are_read(void **state)
{
	static const struct {
		const char *body;
		size_t n;
		enum tool_choice choice;
		const char *named;
		bool parallel;
	} rows[] = {
		{"{}", 0, TOOL_CHOICE_NONE, NULL, true},
		{"{\"tools\":null,\"tool_choice\":null,\"parallel_tool_calls\":null}", 0, TOOL_CHOICE_NONE, NULL, true},
		{"{\"tools\":[],\"tool_choice\":\"auto\"}", 0, TOOL_CHOICE_NONE, NULL, true},
		{"{\"tools\":[" F "]}", 1, TOOL_CHOICE_AUTO, NULL, true},
		{"{\"tools\":[" F "," G "],\"tool_choice\":\"none\"}", 2, TOOL_CHOICE_NONE, NULL, true},
		{"{\"tools\":[" F "],\"tool_choice\":\"required\",\"parallel_tool_calls\":false}", 1, TOOL_CHOICE_REQUIRED, NULL, false},
		{"{\"tools\":[" F "," G "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}", 2, TOOL_CHOICE_NAMED, "g", true},
		{"{\"functions\":[],\"function_call\":\"auto\"}", 0, TOOL_CHOICE_NONE, NULL, true},
	};
	struct toolspec t;
	struct apierr e;
	json_t *body;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		if (!read(rows[i].body, &t, &body, &e)) fail_msg("%s: %s", rows[i].body, e.message);
		assert_int_equal(json_array_size(t.tools), rows[i].n);
		assert_int_equal(t.choice, rows[i].choice);
		assert_int_equal(t.parallel, rows[i].parallel);
		if (rows[i].named) assert_string_equal(t.named, rows[i].named);
		json_decref(body);
	}
}

static void bad_ones_are_refused_by_name(void **state)
{
	static const struct {
		const char *body, *param, *word;
	} rows[] = {
		{"{\"tools\":{}}", "tools", "a list"},
		{"{\"tools\":[3]}", "tools", "tools[0]"},
		{"{\"tools\":[" F ",{\"type\":\"retrieval\"}]}", "tools", "tools[1].type"},
		{"{\"tools\":[{}]}", "tools", "missing"},
		{"{\"tools\":[{\"type\":\"function\"}]}", "tools", "tools[0].function"},
		{"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]}", "tools", "name"},
		{"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}", "tools", "parameters"},
		{"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":5}}]}", "tools", "description"},
		{"{\"tools\":[" F "],\"tool_choice\":\"some\"}", "tool_choice", "must be"},
		{"{\"tools\":[" F "],\"tool_choice\":7}", "tool_choice", "must be"},
		{"{\"tools\":[" F "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"h\"}}}", "tool_choice", "`h`"},
		{"{\"tool_choice\":\"required\"}", "tool_choice", "no `tools`"},
		{"{\"tools\":[" F "],\"parallel_tool_calls\":1}", "parallel_tool_calls", "true or false"},
		{"{\"functions\":[{\"name\":\"f\"}]}", "functions", "tools"},
		{"{\"function_call\":{\"name\":\"f\"}}", "function_call", "tool_choice"},
	};
	struct toolspec t;
	struct apierr e;
	json_t *body;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		if (read(rows[i].body, &t, &body, &e)) fail_msg("was taken: %s", rows[i].body);
		assert_int_equal(e.status, 400);
		assert_string_equal(e.param, rows[i].param);
		if (!strstr(e.message, rows[i].word)) fail_msg("%s: %s", rows[i].body, e.message);
		json_decref(body);
	}
}

static void choices_become_schemas(void **state)
{
	struct toolspec t;
	struct apierr e;
	json_t *body, *s, *expected;

	assert_true(read("{\"tools\":[" F "]}", &t, &body, &e));
	assert_null(toolspec_schema(&t));
	json_decref(body);

	assert_true(read("{\"tools\":[" F "," G "],\"tool_choice\":{\"function\":{\"name\":\"g\"}}}", &t, &body, &e));
	s = toolspec_schema(&t);
	expected = json_pack("{s:s}", "type", "object");
	assert_true(json_equal(s, expected));
	json_decref(s);
	json_decref(expected);
	json_decref(body);

	assert_true(read("{\"tools\":[" F "," G "],\"tool_choice\":\"required\",\"parallel_tool_calls\":false}", &t, &body, &e));
	s = toolspec_schema(&t);
	assert_int_equal(json_integer_value(json_object_get(s, "maxItems")), 1);
	assert_int_equal(json_integer_value(json_object_get(s, "minItems")), 1);
	assert_int_equal(json_array_size(json_object_get(json_object_get(s, "items"), "anyOf")), 2);
	json_decref(s);
	json_decref(body);
}

static void references_follow_their_schema(void **state)
{
	static const char text[] =
		"{\"tools\":[" G ",{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"$defs\":{\"a\":{\"const\":{\"$ref\":\"#/x\"}}},"
		"\"properties\":{\"p\":{\"$ref\":\"#/$defs/a\"},\"q\":{\"items\":[{\"$ref\":\"#\"}]}}}}}],\"tool_choice\":\"required\"}";
	struct toolspec t;
	struct apierr e;
	json_t *body, *s, *p;
	char *dump;

	assert_true(read(text, &t, &body, &e));
	s = toolspec_schema(&t);
	p = json_object_get(json_object_get(json_array_get(json_object_get(json_object_get(s, "items"), "anyOf"), 1), "properties"), "parameters");
	dump = json_dumps(p, JSON_COMPACT);
	assert_non_null(strstr(dump, "\"p\":{\"$ref\":\"#/items/anyOf/1/properties/parameters/$defs/a\"}"));
	assert_non_null(strstr(dump, "[{\"$ref\":\"#/items/anyOf/1/properties/parameters\"}]"));
	assert_non_null(strstr(dump, "{\"const\":{\"$ref\":\"#/x\"}}"));
	free(dump);
	json_decref(s);
	json_decref(body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_ones_are_read),
		cmocka_unit_test(bad_ones_are_refused_by_name),
		cmocka_unit_test(choices_become_schemas),
		cmocka_unit_test(references_follow_their_schema),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
