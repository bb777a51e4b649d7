/* test_stopstr.c - stop strings, however the text is cut. */
#include "frontend/stopstr.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
	const char *stops[4];
	const char *text;
	const char *want; /* what comes out */
	int found;        /* which, or -1 */
	bool keep;
} rows[] = {
	{{"stop"}, "one stop two", "one ", 0, false},
	{{"stop"}, "one stop two", "one stop", 0, true},
	{{"stop"}, "stop", "", 0, false},
	{{"stop"}, "no such thing", "no such thing", -1, false},
	{{"stop"}, "ends in sto", "ends in sto", -1, false},
	{{"stop"}, "", "", -1, false},
	{{"aab"}, "aaaaab", "aaa", 0, false},
	{{"abab"}, "abaabab", "aba", 0, false},
	{{"abcabd"}, "abcabcabd", "abc", 0, false},
	{{"abcd", "bc"}, "xabcd", "xa", 1, false},   /* the one that is complete first */
	{{"c", "abc"}, "xabcd", "x", 1, false},      /* at the same byte: the longest */
	{{"abc", "c"}, "xabcd", "x", 0, false},
	{{"x", "y", "z"}, "abz", "ab", 2, false},
	{{"\n\n"}, "a\nb\n\nc", "a\nb", 0, false},
	{{"\xe2\x82\xac"}, "5 \xe2\x82\xac", "5 ", 0, false},
	{{"\xe2\x82\xac!"}, "5 \xe2\x82\xac?", "5 \xe2\x82\xac?", -1, false},
	{{"aaaa"}, "aaa", "aaa", -1, false},
	{{NULL}, "anything", "anything", -1, false},
};

/* Feeds the text in pieces of n bytes. */
static void run(const struct row *row, size_t n, struct strbuf *out, int *found)
{
	size_t len = strlen(row->text), i;
	struct stopstr_set set;
	struct stopstr s;

	stopstr_set_init(&set, row->keep);
	for (i = 0; i < 4 && row->stops[i]; i++) stopstr_set_add(&set, row->stops[i], strlen(row->stops[i]));
	stopstr_init(&s, &set);
	*found = -1;
	for (i = 0; i < len && *found < 0; i += n) *found = stopstr_push(&s, row->text + i, len - i < n ? len - i : n, true, out);
	if (*found < 0) stopstr_flush(&s, out);
	stopstr_release(&s);
	stopstr_set_release(&set);
}

static void test_rows(void **state)
{
	struct strbuf out;
	size_t i, n;
	int found;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		for (n = 1; n < 15; n++) {
			strbuf_init(&out, KIB);
			run(&rows[i], n, &out, &found);
			if (found != rows[i].found || strcmp(out.data ? out.data : "", rows[i].want) != 0)
				fail_msg("row %zu, pieces of %zu: %d, %s", i, n, found, out.data);
			strbuf_release(&out);
		}
	}
}

/* Nothing that could still become a stop string leaves, and everything else leaves at once. */
static void test_held_back(void **state)
{
	static const struct {
		const char *piece, *out;
	} steps[] = {{"ab", "ab"}, {"cs", "c"}, {"t", ""}, {"o", ""}, {"x", "stox"}, {"st", ""}, {"st", "st"}, {"op", ""}};
	struct stopstr_set set;
	struct strbuf out;
	struct stopstr s;
	size_t i;
	int found;

	stopstr_set_init(&set, false);
	stopstr_set_add(&set, "stop", 4);
	stopstr_init(&s, &set);
	for (i = 0; i < ARRAY_LEN(steps); i++) {
		strbuf_init(&out, KIB);
		found = stopstr_push(&s, steps[i].piece, strlen(steps[i].piece), true, &out);
		assert_int_equal(found, i + 1 == ARRAY_LEN(steps) ? 0 : -1);
		assert_string_equal(out.data ? out.data : "", steps[i].out);
		strbuf_release(&out);
	}
	stopstr_release(&s);
	stopstr_set_release(&set);
}

/* Before min_tokens nothing stops, but a string may begin there. */
static void test_unarmed(void **state)
{
	struct stopstr_set set;
	struct strbuf out;
	struct stopstr s;

	stopstr_set_init(&set, false);
	stopstr_set_add(&set, "ab", 2);
	stopstr_init(&s, &set);
	strbuf_init(&out, KIB);
	assert_int_equal(stopstr_push(&s, "xabab", 5, false, &out), -1);
	assert_int_equal(stopstr_push(&s, "a", 1, false, &out), -1);
	assert_string_equal(out.data, "xabab");
	assert_int_equal(stopstr_push(&s, "bc", 2, true, &out), 0);
	assert_string_equal(out.data, "xabab");
	strbuf_release(&out);
	stopstr_release(&s);
	stopstr_set_release(&set);
}

/* What comes between parts a stop string in two, and nothing of it is counted twice. */
static void test_flush(void **state)
{
	struct stopstr_set set;
	struct strbuf out;
	struct stopstr s;

	stopstr_set_init(&set, false);
	stopstr_set_add(&set, "abc", 3);
	stopstr_init(&s, &set);
	strbuf_init(&out, KIB);
	assert_int_equal(stopstr_push(&s, "xab", 3, true, &out), -1);
	assert_string_equal(out.data, "x");
	stopstr_flush(&s, &out);
	assert_string_equal(out.data, "xab");
	assert_int_equal(stopstr_push(&s, "c", 1, true, &out), -1);
	assert_int_equal(stopstr_push(&s, "abc", 3, true, &out), 0);
	assert_string_equal(out.data, "xabc");
	strbuf_release(&out);
	stopstr_release(&s);
	stopstr_set_release(&set);
}

/* The choices of a request share the strings, each at its own place. */
static void test_choices(void **state)
{
	struct stopstr_set set;
	struct stopstr s[2];
	struct strbuf out;

	stopstr_set_init(&set, true);
	stopstr_set_add(&set, "ab", 2);
	stopstr_init(&s[0], &set);
	stopstr_init(&s[1], &set);
	strbuf_init(&out, KIB);
	assert_int_equal(stopstr_push(&s[0], "a", 1, true, &out), -1);
	assert_int_equal(stopstr_push(&s[1], "b", 1, true, &out), -1);
	assert_string_equal(out.data, "b");
	assert_int_equal(stopstr_push(&s[0], "b", 1, true, &out), 0);
	assert_string_equal(out.data, "bab");
	strbuf_release(&out);
	stopstr_release(&s[0]);
	stopstr_release(&s[1]);
	stopstr_set_release(&set);
}

/* Against a search that looks at the whole text. */
static void test_random(void **state)
{
	uint64_t seed = 1;
	int round;

	for (round = 0; round < 20000; round++) {
		char stops[3][6], text[24], want[24];
		struct row row = {.text = text, .found = -1, .want = want};
		size_t i, k, n, end, best = 0, len;
		struct strbuf out;
		int found;

#define RANDOM(n) ((seed = seed * 6364136223846793005ull + 1442695040888963407ull) >> 33) % (n)
		n = 1 + RANDOM(3);
		for (i = 0; i < n; i++) {
			len = 1 + RANDOM(4);
			for (k = 0; k < len; k++) stops[i][k] = (char)('a' + RANDOM(2));
			stops[i][len] = 0;
			row.stops[i] = stops[i];
		}
		len = RANDOM(20);
		for (k = 0; k < len; k++) text[k] = (char)('a' + RANDOM(3));
		text[len] = 0;
		strcpy(want, text);
		for (end = 1; end <= len && row.found < 0; end++) {
			for (i = 0; i < n; i++) {
				k = strlen(stops[i]);
				if (k > end || memcmp(text + end - k, stops[i], k) != 0 || k <= best) continue;
				best = k;
				row.found = (int)i;
			}
			if (row.found >= 0) want[end - best] = 0;
		}
		strbuf_init(&out, KIB);
		run(&row, 1 + RANDOM(5), &out, &found);
		assert_int_equal(found, row.found);
		assert_string_equal(out.data ? out.data : "", want);
		strbuf_release(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_held_back),
		cmocka_unit_test(test_unarmed),
		cmocka_unit_test(test_flush),
		cmocka_unit_test(test_choices),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
