/* test_apierr.c - errors in the clients' shapes and in their words. */
#include "frontend/apierr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_anthropics_types(void **state)
{
	static const struct {
		int status;
		const char *type;
	} rows[] = {
		{400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
		{405, "invalid_request_error"}, {408, "timeout_error"}, {413, "request_too_large"}, {429, "rate_limit_error"},
		{431, "invalid_request_error"}, {500, "api_error"}, {503, "overloaded_error"}, {505, "api_error"},
	};
	struct strbuf out, want;
	size_t i;

	strbuf_init(&out, KIB);
	strbuf_init(&want, KIB);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct apierr e = {0};

		(void)apierr_set(&e, rows[i].status, "x", "a \"b\"");
		strbuf_reset(&out);
		strbuf_reset(&want);
		apierr_render_anthropic(&e, &out);
		strbuf_printf(&want, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"a \\\"b\\\"\"}}", rows[i].type);
		assert_string_equal(out.data, want.data);
	}
	strbuf_release(&out);
	strbuf_release(&want);
}

static void test_rename(void **state)
{
	static const struct apierr_name names[] = {{"stop", "stop_sequences"}, {"messages", "input"}, {NULL, NULL}};
	static const struct {
		const char *param, *message, *own_param, *own_message;
	} rows[] = {
		{"stop", "`stop` must be; not stop, `stop_token_ids`, `nonstop`", "stop_sequences", "`stop_sequences` must be; not stop, `stop_token_ids`, `nonstop`"},
		{"stop_token_ids", "`stop`, `stop", "stop_token_ids", "`stop_sequences`, `stop_sequences"},
		{"messages[0].content[12]", "`messages[0].content[12]`", "input[0].content[12]", "`input[0].content[12]`"},
		{"", "", "", ""},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct apierr e = {.retry_ms = 3};

		(void)apierr_set(&e, 400, rows[i].param, "%s", rows[i].message);
		apierr_rename(&e, names);
		assert_string_equal(e.param, rows[i].own_param);
		assert_string_equal(e.message, rows[i].own_message);
		assert_int_equal(e.retry_ms, 3);
		apierr_rename(&e, NULL);
		assert_string_equal(e.message, rows[i].own_message);
	}
}

/* A longer name does not make the text longer than it may be. */
static void test_rename_of_long_texts(void **state)
{
	static const struct apierr_name names[] = {{"m", "messages_and_everything"}, {NULL, NULL}};
	char long_text[1024], param[64] = "m.";
	struct apierr e = {0};

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	memcpy(long_text, "`m` ", 4);
	memset(param + 2, 'y', 61);
	(void)apierr_set(&e, 400, param, "%s", long_text);
	apierr_rename(&e, names);
	assert_int_equal(strlen(e.message), sizeof(e.message) - 1);
	assert_int_equal(strlen(e.param), sizeof(e.param) - 1);
	assert_memory_equal(e.param, "messages_and_everything.yyy", 27);
}

static void test_no_error_stays_none(void **state)
{
	static const struct apierr_name names[] = {{"a", "b"}, {NULL, NULL}};
	struct apierr e = {0};

	apierr_rename(&e, names);
	assert_int_equal(e.status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_anthropics_types), cmocka_unit_test(test_rename),
		cmocka_unit_test(test_rename_of_long_texts), cmocka_unit_test(test_no_error_stays_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
