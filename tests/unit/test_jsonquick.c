/* test_jsonquick.c - what the quick reader takes is what jansson reads: its plain twin. */
#include "frontend/jsonquick.h"

#include "common/mem.h"
#include "common/splitmix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FLAGS (JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL)
#define DEPTH 16

static const char *const taken[] = {
	"{}", "[]", "\"\"", "0", "-0", "1", "-12", "123456789012345678", "1.5", "-0.0", "1e5", "2E-3", "0.1e+7", "1e-400", "true", "false", "null",
	" \r\n\t{ \"a\" : [ 1 , 2 ,\n3 ] , \"b\" : { } }\n",
	"{\"model\":\"m\",\"prompt\":\"one two three\",\"max_tokens\":1,\"temperature\":0,\"stream\":true,\"ignore_eos\":true}",
	"{\"messages\":[{\"role\":\"user\",\"content\":\"Gr\xc3\xbc\xc3\x9f Gott \xf0\x9f\x99\x82\"}],\"stop\":[\"\\n\",\"\\\"\"],\"top_p\":0.95}",
	"\"\\u00fc\\u20ac\\ud83d\\ude42 \\\\ \\/ \\b\\f\\n\\r\\t\\\" end\\\\\"",
	"[\"\\\\\",\"\\\\\",\"x\\\\\\\"\"]",
	"[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]",
	"{\"\":{\"a\":null}}",
	"\"\x7f\"",
};

static const char *const left[] = {
	"", " ", "{", "[", "\"", "\"\\", "\"\\u", "\"\\u12\"", "\"\\u0000\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\x41\"", "\"\n\"",
	"01", "-", "1.", ".5", "1e", "+1", "1234567890123456789", "1e400", "NaN", "tru", "nulls", "{}x", "[1,]", "[1 2]", "{\"a\":1,}", "{\"a\" 1}",
	"{a:1}", "{\"a\":1,\"a\":2}", "\"\xff\"", "\"\xc3\\u00bc\"", "\"\xed\xa0\x80\"", "[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", "{}{}",
};

/* Both readers' values, written out. */
static bool same(const json_t *a, const json_t *b)
{
	char *x = json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT), *y = json_dumps(b, JSON_ENCODE_ANY | JSON_COMPACT);
	bool equal = x && y && strcmp(x, y) == 0;

	free(x);
	free(y);
	return equal;
}

/* A copy without a terminator, so that the sanitizer sees a byte read too much. */
static json_t *quick(const char *text, size_t len)
{
	char *exact = len ? mem_dup(text, len, 1) : NULL;
	json_t *j = jsonquick(exact ? exact : "", len, DEPTH);

	free(exact);
	return j;
}

/* True when the quick reader takes it. */
static bool agree(const char *text, size_t len)
{
	json_t *j = quick(text, len), *twin = json_loadb(text, len, FLAGS, NULL);
	bool took = j != NULL;

	if (took && (!twin || !same(j, twin))) fail_msg("read differently: %.*s", (int)len, text);
	json_decref(j);
	json_decref(twin);
	return took;
}

static void what_clients_send_is_taken(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(taken); i++)
		if (!agree(taken[i], strlen(taken[i]))) fail_msg("not taken: %s", taken[i]);
}

static void what_is_rare_or_wrong_is_left_to_jansson(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(left); i++)
		if (agree(left[i], strlen(left[i]))) fail_msg("taken: %s", left[i]);
	assert_false(agree("\"a\0b\"", 5));
}

/* Each text cut short, and with bytes replaced, doubled and taken out. */
static void changed_texts_are_read_alike_or_left(void **state)
{
	static const char bytes[] = "{}[]\":,\\u0123456789abcdefn\xc3\xbc\xff -+.eE\n\t\0";
	uint64_t r = 1;
	size_t n_taken = 0;
	char text[400];

	for (int round = 0; round < 40000; round++) {
		const char *from = taken[splitmix_next(&r) % ARRAY_LEN(taken)];
		size_t len = strlen(from), at, n = 1 + splitmix_next(&r) % 3;

		memcpy(text, from, len);
		for (size_t i = 0; i < n && len > 0; i++) {
			at = splitmix_next(&r) % len;
			switch (splitmix_next(&r) % 4) {
			case 0: text[at] = bytes[splitmix_next(&r) % (sizeof(bytes) - 1)]; break;
			case 1: memmove(text + at + 1, text + at, len - at), len++; break;
			case 2: memmove(text + at, text + at + 1, len - at - 1), len--; break;
			default: len = at; break;
			}
		}
		n_taken += agree(text, len);
	}
	assert_true(n_taken > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_clients_send_is_taken),
		cmocka_unit_test(what_is_rare_or_wrong_is_left_to_jansson),
		cmocka_unit_test(changed_texts_are_read_alike_or_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
