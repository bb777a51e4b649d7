/* test_textnorm.c - normal forms against those of the whole text by utf8proc, and the other steps. (What tokenizers does
 * with each step is in test_tokfile.c.) */
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/textnorm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include <cmocka.h>

static const struct {
	enum textnorm_kind kind;
	const char *name;
	int options;
} forms[] = {
	{TEXTNORM_NFC, "NFC", UTF8PROC_COMPOSE},
	{TEXTNORM_NFD, "NFD", UTF8PROC_DECOMPOSE},
	{TEXTNORM_NFKC, "NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
	{TEXTNORM_NFKD, "NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static void expect_form(const struct textnorm *n, size_t form, const uint32_t *cps, size_t n_cps)
{
	utf8proc_uint8_t *want;
	utf8proc_ssize_t want_len;
	struct strbuf out;
	char text[64], shown[200] = "";
	const char *s = text;
	size_t len = 0;

	for (size_t i = 0; i < n_cps; i++) {
		len += (size_t)utf8_encode(cps[i], text + len);
		snprintf(shown + strlen(shown), 10, " %04x", cps[i]);
	}
	strbuf_init(&out, 4096);
	want_len = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len, &want,
				(utf8proc_option_t)(UTF8PROC_STABLE | forms[form].options));
	assert_true(want_len >= 0);
	assert_true(textnorm_run(n, &s, &len, &out));
	if (len != (size_t)want_len || memcmp(s, want, len) != 0) fail_msg("%s of%s", forms[form].name, shown);
	strbuf_release(&out);
	free(want);
}

/* Every character, alone and between others: what the fast path leaves out must not matter. */
static void every_character_takes_its_form(void **state)
{
	for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
		struct textnorm *n = textnorm_new();

		assert_true(textnorm_add(n, forms[f].kind));
		for (uint32_t cp = 1; cp < 0x30000; cp++) {
			if (cp >= 0xd800 && cp < 0xe000) continue;
			expect_form(n, f, (const uint32_t[]){cp}, 1);
			expect_form(n, f, (const uint32_t[]){'a', cp, 0x301, 0x4e00}, 4);
		}
		textnorm_free(n);
	}
}

static void random_texts_take_their_form(void **state)
{
	static const uint32_t ranges[][2] = {
		{0x20, 0x7e},     {0xc0, 0x2ff},    {0x300, 0x36f},   {0x370, 0x3ff},     {0x400, 0x52f},   {0x591, 0x5ea},
		{0x620, 0x670},   {0x900, 0x97f},   {0x9be, 0x9d7},   {0xb40, 0xbd7},     {0x1100, 0x11ff}, {0x1b05, 0x1b44},
		{0x1e00, 0x1fff}, {0x2000, 0x214f}, {0x2190, 0x22ff}, {0x2329, 0x232a},   {0x3001, 0x30ff}, {0x4e00, 0x4e20},
		{0xac00, 0xd7a3}, {0xf900, 0xfb4f}, {0xff01, 0xff9f}, {0x1109a, 0x110ba}, {0x1d15e, 0x1d1c0}, {0x2f800, 0x2fa1d},
	};
	uint32_t seed = 1;

	for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
		struct textnorm *n = textnorm_new();

		assert_true(textnorm_add(n, forms[f].kind));
		for (int round = 0; round < 30000; round++) {
			uint32_t cps[8];

			for (size_t i = 0; i < ARRAY_LEN(cps); i++) {
				const uint32_t *r = ranges[(seed = seed * 1664525 + 1013904223, seed >> 12) % ARRAY_LEN(ranges)];

				seed = seed * 1664525 + 1013904223;
				cps[i] = r[0] + (seed >> 8) % (r[1] - r[0] + 1);
			}
			expect_form(n, f, cps, 1 + (size_t)round % ARRAY_LEN(cps));
		}
		textnorm_free(n);
	}
}

static void spaces_are_squeezed(void **state)
{
	static const char *const cases[][2] = {
		{"", ""},          {" ", ""},         {"   ", ""},      {"a", "a"},         {" a", "a"},
		{"a ", "a"},       {"a  ", "a"},      {"  a  b  ", "a b"}, {"a b", "a b"}, {"a   b    c", "a b c"},
		{"a\t\tb", "a\t\tb"},
	};
	struct textnorm *n = textnorm_new();

	assert_true(textnorm_add(n, TEXTNORM_SQUEEZE));
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *s = cases[i][0];
		size_t len = strlen(s);
		struct strbuf out;

		strbuf_init(&out, 100);
		assert_true(textnorm_run(n, &s, &len, &out));
		if (len != strlen(cases[i][1]) || memcmp(s, cases[i][1], len) != 0)
			fail_msg("\"%s\" became \"%.*s\"", cases[i][0], (int)len, s);
		strbuf_release(&out);
	}
	textnorm_free(n);
}

static void a_text_that_grows_too_much_is_refused(void **state)
{
	struct textnorm *n = textnorm_new();
	struct strbuf out;
	const char *s = "aaaa";
	size_t len = 4;

	for (size_t i = 0; i < TEXTNORM_STEPS_MAX; i++) assert_true(textnorm_add_replace(n, "a", 1, "aaaaaaaa", 8));
	assert_false(textnorm_add(n, TEXTNORM_NFC)); /* there are no more than TEXTNORM_STEPS_MAX */
	strbuf_init(&out, 10000);
	assert_false(textnorm_run(n, &s, &len, &out));
	strbuf_release(&out);
	textnorm_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_character_takes_its_form),
		cmocka_unit_test(random_texts_take_their_form),
		cmocka_unit_test(spaces_are_squeezed),
		cmocka_unit_test(a_text_that_grows_too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
