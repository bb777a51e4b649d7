/* test_chatmsg.c - messages as clients send them: what templates get to see, and what a client is told otherwise. */
#include "frontend/chatmsg.h"

#include "common/jsonbig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define USER(content) "[{'role':'user','content':" content "}]"
#define CALL(function) "[{'role':'assistant','tool_calls':[{'id':'1','type':'function','function':" function "}]}]"

static const struct row {
	const char *given;    /* ' stands for " */
	const char *expected; /* the same; NULL: unchanged; or what is wrong, with a place in front */
	const char *place;    /* NULL: taken */
} rows[] = {
	/* roles */
	{USER("'x'"), NULL, NULL},
	{"[{'role':'system','content':'x'},{'role':'tool','content':'y','tool_call_id':'1'}]", NULL, NULL},
	{"[{'role':'developer','content':'x'}]", "[{'role':'system','content':'x'}]", NULL},
	{"[{'role':'function','name':'f','content':'x'}]", "[{'role':'tool','name':'f','content':'x'}]", NULL},
	{"[{'role':'wizard','content':'x'}]", "`messages[0].role` must be `system`, `developer`, `user`, `assistant` or `tool`.", "messages[0].role"},
	{"[{'role':'User','content':'x'}]", "`messages[0].role` must be `system`, `developer`, `user`, `assistant` or `tool`.", "messages[0].role"},
	{"[{'role':5,'content':'x'}]", "`messages[0].role` must be `system`, `developer`, `user`, `assistant` or `tool`.", "messages[0].role"},
	{"[{'content':'x'}]", "`messages[0].role` must be `system`, `developer`, `user`, `assistant` or `tool`.", "messages[0].role"},
	{"[{'role':'user','content':'x'},5]", "`messages[1]` must be an object.", "messages[1]"},
	{"[[]]", "`messages[0]` must be an object.", "messages[0]"},
	{"[]", "`messages` must be a list of messages, not empty.", "messages"},
	{"{}", "`messages` must be a list of messages, not empty.", "messages"},
	{"'hi'", "`messages` must be a list of messages, not empty.", "messages"},
	{"null", "`messages` must be a list of messages, not empty.", "messages"},

	/* content */
	{USER("''"), NULL, NULL},
	{USER("[{'type':'text','text':'a'},{'type':'text','text':'b','cache_control':{}}]"), NULL, NULL},
	{USER("[{'type':'input_text','text':'a'},{'type':'output_text','text':'b'}]"), USER("[{'type':'text','text':'a'},{'type':'text','text':'b'}]"), NULL},
	{"[{'role':'assistant','content':[{'type':'refusal','refusal':'No.'}]}]", "[{'role':'assistant','content':[{'type':'text','text':'No.'}]}]", NULL},
	{"[{'role':'assistant','content':null}]", "[{'role':'assistant','content':''}]", NULL},
	{"[{'role':'assistant','content':null,'refusal':'No.'}]", "[{'role':'assistant','content':'','refusal':'No.'}]", NULL},
	{"[{'role':'assistant'}]", "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{"[{'role':'user'}]", "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{USER("null"), "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{USER("[]"), "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{USER("{'text':'x'}"), "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{USER("5"), "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{USER("18446744073709551621"), "`messages[0].content` must be a string or a list of parts, not empty.", "messages[0].content"},
	{USER("['x']"), "`messages[0].content[0]` must be an object with a `type`.", "messages[0].content[0]"},
	{USER("[null]"), "`messages[0].content[0]` must be an object with a `type`.", "messages[0].content[0]"},
	{USER("[{'text':'x'}]"), "`messages[0].content[0]` must be an object with a `type`.", "messages[0].content[0]"},
	{USER("[{'type':'text'}]"), "`messages[0].content[0].text` must be a string.", "messages[0].content[0]"},
	{USER("[{'type':'text','text':null}]"), "`messages[0].content[0].text` must be a string.", "messages[0].content[0]"},
	{USER("[{'type':'text','text':'a'},{'type':'nosuch'}]"), "`messages[0].content[1].type` must be `text`.", "messages[0].content[1]"},
	{USER("[{'type':'image_url','image_url':{'url':'http://127.0.0.1/'}}]"), "`messages[0].content[0]` of type `image_url` is not supported.",
	 "messages[0].content[0]"},
	{USER("[{'type':'input_image','image_url':'data:x'}]"), "`messages[0].content[0]` of type `input_image` is not supported.", "messages[0].content[0]"},
	{USER("[{'type':'input_audio'}]"), "`messages[0].content[0]` of type `input_audio` is not supported.", "messages[0].content[0]"},
	{USER("[{'type':'video_url'}]"), "`messages[0].content[0]` of type `video_url` is not supported.", "messages[0].content[0]"},
	{USER("[{'type':'file','file':{}}]"), "`messages[0].content[0]` of type `file` is not supported.", "messages[0].content[0]"},

	/* tool calls: a template that prints arguments as JSON needs the object */
	{CALL("{'name':'f','arguments':{'a':1}}"), "[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{'name':'f',"
						   "'arguments':{'a':1}}}]}]", NULL},
	{CALL("{'name':'f','arguments':'{\\'a\\':[1,{}]}'}"), "[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{"
							      "'name':'f','arguments':{'a':[1,{}]}}}]}]", NULL},
	{CALL("{'name':'f','arguments':''}"), "[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{'name':'f','arguments':{}}}]}]",
	 NULL},
	{CALL("{'name':'f'}"), "[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{'name':'f','arguments':{}}}]}]", NULL},
	{CALL("{'name':'f','arguments':'[1]'}"), "[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{'name':'f',"
						 "'arguments':'[1]'}}]}]", NULL},
	{CALL("{'name':'f','arguments':'{oops'}"), "[{'role':'assistant','content':'','tool_calls':[{'id':'1','type':'function','function':{'name':'f',"
						   "'arguments':'{oops'}}]}]", NULL},
	{CALL("{'name':'f','arguments':5}"), "`messages[0].tool_calls[0].function.arguments` must be a string of JSON.", "messages[0].tool_calls[0]"},
	{CALL("{'name':5}"), "`messages[0].tool_calls[0]` must be an object with a `function` that has a `name`.", "messages[0].tool_calls[0]"},
	{CALL("null"), "`messages[0].tool_calls[0]` must be an object with a `function` that has a `name`.", "messages[0].tool_calls[0]"},
	{"[{'role':'assistant','content':'x','tool_calls':[5]}]", "`messages[0].tool_calls[0]` must be an object with a `function` that has a `name`.",
	 "messages[0].tool_calls[0]"},
	{"[{'role':'assistant','content':'x','tool_calls':{}}]", "`messages[0].tool_calls` must be a list of tool calls.", "messages[0].tool_calls"},
	{"[{'role':'assistant','content':'x','tool_calls':[]}]", "[{'role':'assistant','content':'x'}]", NULL},
	{"[{'role':'assistant','content':'x','tool_calls':null}]", "[{'role':'assistant','content':'x'}]", NULL},

	/* texts beside it; null is "not given" */
	{"[{'role':'user','content':'x','name':'me'}]", NULL, NULL},
	{"[{'role':'user','content':'x','name':null}]", USER("'x'"), NULL},
	{"[{'role':'user','content':'x','name':5}]", "`messages[0].name` must be a string.", "messages[0].name"},
	{"[{'role':'tool','content':'x','tool_call_id':[]}]", "`messages[0].tool_call_id` must be a string.", "messages[0].tool_call_id"},
	{"[{'role':'assistant','content':'x','reasoning':'r'}]", "[{'role':'assistant','content':'x','reasoning':'r','reasoning_content':'r'}]", NULL},
	{"[{'role':'assistant','content':'x','reasoning_content':5}]", "`messages[0].reasoning_content` must be a string.", "messages[0].reasoning_content"},
	{"[{'role':'user','content':'x','unknown':[1,2]}]", NULL, NULL},
};

/* JSON with ' for "; \' stands for an escaped one inside a string. */
static json_t *quoted(const char *json)
{
	char *text = malloc(strlen(json) + 1), *at = text;
	json_error_t e;
	json_t *j;

	for (; *json; json++) *at++ = *json == '\'' ? '"' : *json;
	*at = 0;
	j = jsonbig_load(text, strlen(text), JSON_DECODE_ANY, &e);
	if (!j) fail_msg("%s: %s", text, e.text);
	free(text);
	return j;
}

static void test_rows(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];
		json_t *given = quoted(r->given), *before = json_deep_copy(given), *want = NULL, *got;
		struct apierr e = {0};

		got = chatmsg_read(given, &e);
		if ((got == NULL) != (r->place != NULL)) fail_msg("%s: %s", r->given, got ? "taken" : e.message);
		if (r->place) {
			if (strcmp(e.param, r->place) != 0 || strcmp(e.message, r->expected) != 0 || e.status != 400)
				fail_msg("%s: %s: %s", r->given, e.param, e.message);
		} else {
			want = quoted(r->expected ? r->expected : r->given);
			if (!json_equal(got, want)) fail_msg("%s: got %s", r->given, json_dumps(got, 0));
		}
		assert_true(json_equal(given, before)); /* the request stays as it was */
		json_decref(given);
		json_decref(before);
		json_decref(want);
		json_decref(got);
	}
}

static void test_too_many(void **state)
{
	json_t *list = json_array(), *got;
	struct apierr e = {0};
	int i;

	for (i = 0; i < CHATMSG_MAX; i++) json_array_append_new(list, json_pack("{s:s,s:s}", "role", "user", "content", "x"));
	got = chatmsg_read(list, &e);
	assert_int_equal(json_array_size(got), CHATMSG_MAX);
	json_decref(got);
	json_array_append_new(list, json_pack("{s:s,s:s}", "role", "user", "content", "x"));
	assert_null(chatmsg_read(list, &e));
	assert_string_equal(e.message, "`messages` holds more than 16384 messages.");
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
