/* test_jsonread.c - what is JSON for us, and what a client is told otherwise. */
#include "frontend/jsonread.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BOM "\xef\xbb\xbf"

static const struct row {
	const char *text;
	const char *error; /* NULL: an object; else how the text begins */
} rows[] = {
	{"{}", NULL},
	{" \r\n\t{\"a\":1} \n\t", NULL},
	{BOM "{\"a\":1}", NULL},
	{"{\"a\":\"\\u0000\"}", NULL},
	{"{\"a\":\"[[[[{{{{\\\"[[\"}", NULL},
	{"{\"a\":\"\xf0\x9f\xa5\xb9\"}", NULL},
	{"", "The request's body is empty; a JSON object is needed."},
	{BOM, "The request's body is empty; a JSON object is needed."},
	{"{", "The request's body is not valid JSON (line 1, column 1): string or '}' expected near end of file"},
	{"[]", "The request's body must be a JSON object."},
	{"null", "The request's body must be a JSON object."},
	{"\"x\"", "The request's body must be a JSON object."},
	{"1", "The request's body must be a JSON object."},
	{"{}x", "The request's body is not valid JSON (line 1, column 3): end of file expected near 'x'"},
	{"{}{}", "The request's body is not valid JSON (line 1, column 3): end of file expected near '{'"},
	{"{\"a\":\"\xff\"}", "The request's body is not valid JSON (line 1, column 6): unable to decode byte 0xff"},
	{"{\"a\":\"\xe2\x82\"}", "The request's body is not valid JSON (line 1, column 6): unable to decode byte 0xe2"},
	{"{\"a\":\"\xed\xa0\x80\"}", "The request's body is not valid JSON (line 1, column 6): unable to decode byte 0xed"},
	{"{\"a\":\"\\ud800\"}", "The request's body is not valid JSON"},
	{"{\"a\":\"\n\"}", "The request's body is not valid JSON (line 1, column 6): unexpected newline"},
	{"{\"a\":NaN}", "The request's body is not valid JSON (line 1, column 8): invalid token near 'NaN'"},
	{"{\"a\":-Infinity}", "The request's body is not valid JSON"},
	{"{\"a\":1e400}", "The request's body is not valid JSON (line 1, column 10): real number overflow near '1e400'"},
	{"{\"a\":18446744073709551621}", NULL}, /* a schema may say so */
	{"{\"a\":-9223372036854775809,\"b\":[1e5,99999999999999999999999999]}", NULL},
	{"{\"a\":18446744073709551621,\"a\":1}", "The request's body is not valid JSON (line 1, column "},
	{"{'a':1}", "The request's body is not valid JSON"},
	{"{\"a\":1,}", "The request's body is not valid JSON"},
	{"{\"a\":01}", "The request's body is not valid JSON"},
	{"{\"a\":\"\\x41\"}", "The request's body is not valid JSON (line 1, column 8): invalid escape"},
	{"{\"a\":\"\\u12\"}", "The request's body is not valid JSON (line 1, column 11): invalid escape"},
	{"{\"a\":1,\"a\":2}", "The request's body is not valid JSON (line 1, column 10): duplicate object key near '\"a\"'"},
	{"/* c */{}", "The request's body is not valid JSON"},
	{"]]]]]]]", "The request's body is not valid JSON"},
};

static void test_rows(void **state)
{
	struct errbuf err;
	json_t *j;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		int rc = jsonread(&j, rows[i].text, strlen(rows[i].text), &err);

		if (!rows[i].error) {
			if (rc != ST_OK) fail_msg("%s: %s", rows[i].text, err.text);
			assert_true(json_is_object(j));
			json_decref(j);
			continue;
		}
		if (rc == ST_OK) fail_msg("%s: taken", rows[i].text);
		if (strncmp(err.text, rows[i].error, strlen(rows[i].error)) != 0) fail_msg("%s: %s", rows[i].text, err.text);
		assert_null(j);
	}
}

static void test_raw_nul(void **state)
{
	static const char text[] = "{\"a\":\"x\0y\"}";
	struct errbuf err;
	json_t *j;

	assert_int_equal(jsonread(&j, text, sizeof(text) - 1, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "control character 0x0"));
}

/* {"a":[[[...]]]} */
static int nested(size_t depth, char open, bool close, struct errbuf *err)
{
	size_t n = 2 * depth + 16, len = 0, i;
	char *s = mem_zalloc(1, n);
	json_t *j;
	int rc;

	len += (size_t)sprintf(s, "{\"a\":");
	for (i = 0; i < depth; i++) s[len++] = open;
	for (i = 0; close && i < depth; i++) s[len++] = ']';
	if (close) s[len++] = '}';
	rc = jsonread(&j, s, len, err);
	json_decref(j);
	free(s);
	return rc;
}

static void test_depth(void **state)
{
	struct errbuf err;

	assert_int_equal(nested(JSONREAD_DEPTH_MAX - 1, '[', true, &err), ST_OK);
	assert_int_equal(nested(JSONREAD_DEPTH_MAX, '[', true, &err), ST_LIMIT);
	assert_string_equal(err.text, "The request's body is nested deeper than 128 levels.");
	assert_int_equal(nested(1000000, '[', true, &err), ST_LIMIT);
	assert_int_equal(nested(1000000, '[', false, &err), ST_LIMIT);
	assert_int_equal(nested(1000000, '{', false, &err), ST_LIMIT);
}

static void test_values(void **state)
{
	size_t n = JSONREAD_VALUES_MAX + 8, i;
	char *s = mem_zalloc(2, n);
	struct errbuf err;
	json_t *j;

	strcpy(s, "{\"a\":[1");
	for (i = strlen(s); i < 2 * n - 2; i += 2) memcpy(s + i, ",1", 2);
	memcpy(s + i - 2, "]}", 2);
	assert_int_equal(jsonread(&j, s, i, &err), ST_LIMIT);
	assert_string_equal(err.text, "The request's body holds more than 1048576 values.");
	memcpy(s + 100001, "]}", 2);
	assert_int_equal(jsonread(&j, s, 100003, &err), ST_OK);
	json_decref(j);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_raw_nul),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
