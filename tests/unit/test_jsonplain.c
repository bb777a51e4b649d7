/* test_jsonplain.c - eight bytes at a look against one at a time. */
#include "frontend/jsonplain.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void every_byte_at_every_place(void **state)
{
	char text[24];

	for (size_t at = 0; at < sizeof(text); at++) {
		for (int c = 0; c < 256; c++) {
			size_t want = is_plain((unsigned char)c) ? sizeof(text) : at / 8 * 8;

			memset(text, 'x', sizeof(text));
			text[at] = (char)c;
			assert_int_equal(jsonplain_len(text, sizeof(text)), want);
		}
	}
}

/* What borrows from the byte below must not make another one plain. */
static void neighbours_of_every_kind(void **state)
{
	for (int a = 0; a < 256; a++) {
		for (int b = 0; b < 256; b++) {
			char text[8] = {'a', (char)a, (char)b, ' ', '~', '!', '[', ']'};

			assert_int_equal(jsonplain_len(text, 8), is_plain((unsigned char)a) && is_plain((unsigned char)b) ? 8 : 0);
		}
	}
}

static void what_is_shorter_than_a_look_is_left(void **state)
{
	assert_int_equal(jsonplain_len(NULL, 0), 0);
	for (size_t n = 0; n < 32; n++) assert_int_equal(jsonplain_len("abcdefghabcdefghabcdefghabcdefgh", n), n / 8 * 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_at_every_place),
		cmocka_unit_test(neighbours_of_every_kind),
		cmocka_unit_test(what_is_shorter_than_a_look_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
