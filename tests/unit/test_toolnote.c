/* test_toolnote.c - tools told in words, for templates without a place for them. */
#include "frontend/toolnote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";

static json_t *messages_of(const char *text, enum toolnote_place place)
{
	json_t *messages = json_loads(text, 0, NULL), *tools = json_loads(tools_text, 0, NULL), *out, *before = json_deep_copy(messages);

	assert_non_null(messages);
	out = toolnote_messages(messages, tools, place);
	assert_true(json_equal(messages, before)); /* the request itself stays as it is */
	json_decref(before);
	json_decref(messages);
	json_decref(tools);
	return out;
}

static const char *content(const json_t *messages, size_t i)
{
	return json_string_value(json_object_get(json_array_get(messages, i), "content"));
}

static const char *role(const json_t *messages, size_t i)
{
	return json_string_value(json_object_get(json_array_get(messages, i), "role"));
}

static void a_system_message_is_made_or_grows(void **state)
{
	json_t *m = messages_of("[{\"role\":\"user\",\"content\":\"hi\"}]", TOOLNOTE_SYSTEM);

	assert_int_equal(json_array_size(m), 2);
	assert_string_equal(role(m, 0), "system");
	assert_non_null(strstr(content(m, 0), "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n</tools>"));
	assert_string_equal(content(m, 1), "hi");
	json_decref(m);

	m = messages_of("[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Be\"},{\"type\":\"text\",\"text\":\"kind.\"}]},{\"role\":\"user\",\"content\":\"hi\"}]",
			TOOLNOTE_SYSTEM);
	assert_int_equal(json_array_size(m), 2);
	assert_int_equal(strncmp(content(m, 0), "Be\nkind.\n\n# Tools\n", 18), 0);
	json_decref(m);
}

static void the_first_user_message_may_carry_them(void **state)
{
	json_t *m = messages_of("[{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"user\",\"content\":\"ho\"}]", TOOLNOTE_USER);

	assert_int_equal(json_array_size(m), 3);
	assert_int_equal(strncmp(content(m, 1), "# Tools", 7), 0);
	assert_string_equal(content(m, 1) + strlen(content(m, 1)) - 4, "\n\nhi");
	assert_string_equal(content(m, 2), "ho");
	json_decref(m);

	m = messages_of("[{\"role\":\"assistant\",\"content\":\"x\"}]", TOOLNOTE_USER);
	assert_int_equal(json_array_size(m), 2);
	assert_string_equal(role(m, 1), "user");
	json_decref(m);
}

static void calls_and_results_become_text(void **state)
{
	json_t *m = messages_of("[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
				"\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"g\"}}]},{\"role\":\"tool\",\"content\":\"4\"},"
				"{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"5\"}]},{\"role\":\"assistant\",\"content\":\"So.\"}]",
				TOOLNOTE_SYSTEM);

	assert_int_equal(json_array_size(m), 5);
	assert_string_equal(content(m, 2), "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
					   "{}}\n</tool_call>");
	assert_null(json_object_get(json_array_get(m, 2), "tool_calls"));
	assert_string_equal(role(m, 3), "user");
	assert_string_equal(content(m, 3), "<tool_response>\n4\n</tool_response>\n<tool_response>\n5\n</tool_response>");
	assert_string_equal(content(m, 4), "So.");
	json_decref(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_system_message_is_made_or_grows),
		cmocka_unit_test(the_first_user_message_may_carry_them),
		cmocka_unit_test(calls_and_results_become_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
