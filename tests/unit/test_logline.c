/* test_logline.c - log lines are one line each, and JSON when they should be, whatever is in them. */
#include "common/logline.h"
#include "common/splitmix.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static json_t *parse(const char *line, size_t len)
{
	json_error_t e;
	json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);

	if (!root) fail_msg("%s: %.*s", e.text, (int)len, line);
	return root;
}

static void expect(const json_t *root, const char *key, const char *text)
{
	const char *is = json_string_value(json_object_get(root, key));

	if (!is || strcmp(is, text) != 0) fail_msg("%s is `%s`, not `%s`", key, is ? is : "missing", text);
}

static void a_json_line_has_time_level_process_and_its_keys(void **state)
{
	char line[1024];
	struct logline l;
	json_t *root;
	size_t len;

	log_init("frontend 3", LOG_INFO);
	log_use_json(true);
	logline_begin(&l, line, sizeof(line), LOG_WARNING, "it \"is\"\n\x01\xff", 10);
	logline_text(&l, "who", "a\tb\xc3\xa4", 5);
	logline_u64(&l, "n", 42);
	logline_ms(&l, "took_ms", 1234567);
	len = logline_end(&l);
	assert_int_equal(line[len - 1], '\n');
	assert_null(memchr(line, '\n', len - 1));
	root = parse(line, len);
	expect(root, "level", "warning");
	expect(root, "process", "frontend 3");
	expect(root, "msg", "it \"is\"\n\x01\xef\xbf\xbd");
	expect(root, "who", "a\tb\xc3\xa4");
	assert_int_equal(json_integer_value(json_object_get(root, "n")), 42);
	assert_true(json_real_value(json_object_get(root, "took_ms")) == 1.234);
	assert_int_equal(strlen(json_string_value(json_object_get(root, "ts"))), strlen("2026-11-30T18:30:26.123Z"));
	assert_true(json_integer_value(json_object_get(root, "pid")) > 0);
	json_decref(root);
}

/* Lengths around the end of the buffer, bytes of all kinds: always one JSON object, never beyond the buffer. */
static void what_does_not_fit_is_cut_and_the_line_stays_whole(void **state)
{
	uint64_t seed = 7;

	for (int round = 0; round < 20000; round++) {
		char line[520], text[700];
		size_t cap = 512, n = splitmix_next(&seed) % sizeof(text), len;
		struct logline l;

		memset(line, 'X', sizeof(line));
		for (size_t i = 0; i < n; i++) text[i] = (char)(round % 3 ? 'a' + i % 26 : (int)(splitmix_next(&seed) & 0xff));
		log_use_json(round % 2);
		logline_begin(&l, line, cap, LOG_INFO, text, n / (1 + splitmix_next(&seed) % 4));
		logline_u64(&l, "one", splitmix_next(&seed) >> 1);
		logline_text(&l, "two", text, n);
		logline_text(&l, "three", "short", 5);
		logline_ms(&l, "four", splitmix_next(&seed));
		len = logline_end(&l);
		assert_true(len <= cap);
		assert_int_equal(line[cap], 'X');
		assert_int_equal(line[len - 1], '\n');
		if (round % 2) json_decref(parse(line, len));
	}
	log_use_json(false);
}

static void expect_end(const char *line, size_t len, const char *end)
{
	assert_true(len > strlen(end));
	if (memcmp(line + len - strlen(end), end, strlen(end)) != 0) fail_msg("%.*s does not end with %s", (int)len, line, end);
}

static void a_text_line_quotes_what_is_not_plain(void **state)
{
	char line[1024];
	struct logline l;
	size_t len;

	log_init("executor", LOG_INFO);
	log_use_json(false);
	logline_begin(&l, line, sizeof(line), LOG_INFO, "request", 7);
	logline_text(&l, "path", "/v1/x", 5);
	logline_text(&l, "said", "two words\n", 10);
	logline_text(&l, "none", "", 0);
	logline_text(&l, "evil", "\033[2J\xc2\x9b\xe2\x80\xae\xe2\x82\xac", 12);
	len = logline_end(&l);
	expect_end(line, len, "[executor] request path=/v1/x said=\"two words\\n\" none=\"\" evil=\"\\u001b[2J\\u009b\\u202e\xe2\x82\xac\"\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_json_line_has_time_level_process_and_its_keys),
		cmocka_unit_test(what_does_not_fit_is_cut_and_the_line_stays_whole),
		cmocka_unit_test(a_text_line_quotes_what_is_not_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
