/* test_pretok.c - how each family's expressions cut texts into words. */
#include "common/mem.h"
#include "common/splitmix.h"
#include "frontend/onigre.h"
#include "frontend/pretok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct onigre_match *match;

struct words {
	char joined[4096]; /* the words with | between */
	size_t len, n, stop_after;
};

static bool add_word(void *ctx, const char *word, size_t len)
{
	struct words *w = ctx;

	assert_true(len > 0 && w->len + len + 2 < sizeof(w->joined));
	if (w->n++) w->joined[w->len++] = '|';
	memcpy(w->joined + w->len, word, len);
	w->joined[w->len += len] = 0;
	return w->n != w->stop_after;
}

static struct pretok *make(const char *pre)
{
	struct errbuf err = {0};
	struct pretok *p;

	if (pretok_new(&p, pre, "test", &err) != ST_OK) fail_msg("%s", err.text);
	return p;
}

static void words_are_cut_as_each_family_does(void **state)
{
	static const struct {
		const char *pre, *text, *words;
	} cases[] = {
		{"gpt-2", "Hello world, it's 2024!", "Hello| world|,| it|'s| 2024|!"},
		{"gpt-2", "a  b\n\nc \n", "a| | b|\n|\n|c| \n"},
		{"gpt-2", "IT'S", "IT|'|S"},
		{"gpt-2", "x\xe1\xa0\x8ey", "x|\xe1\xa0\x8e|y"}, /* U+180E is no white space */
		{"gpt-2", "x \xc2\xa0y", "x| |\xc2\xa0|y"},      /* U+00A0 is, but only a plain space joins a word */
		{"gpt-2", "x\xc2\x85\xc2\x85 y", "x|\xc2\x85\xc2\x85| y"}, /* U+0085 too */
		{"mpt", "we'll", "we|'ll"},
		{"smollm", "a 12 b345", "a| |1|2| b|3|4|5"},
		{"smollm", "x  7", "x|  |7"}, /* a digit ends the piece: no space is left for it */
		{"smollm", "\xc2\xbd\xe2\x85\xa7", "\xc2\xbd|\xe2\x85\xa7"}, /* numbers that are no digits */
		{"starcoder", "v10", "v|1|0"},
		{"default", "a.b 1234567", "a|.|b| |123|456|7"},
		{"falcon", "a`b 1234", "a|`|b| |123|4"},
		{"llama-bpe", "IT'S 12345 $x\n\n  y", "IT|'S| |123|45| $|x|\n\n| | y"},
		{"llama3", "(foo)bar  baz", "(foo|)bar| | baz"},
		{"llama-bpe", "a!!\r\n\r\nb", "a|!!\r\n\r\n|b"},
		{"qwen2", "IT'll 123", "IT|'ll| |1|2|3"},
		{"qwen2", "e\xcc\x81x", "e|\xcc\x81x"}, /* a mark begins a word here, */
		{"qwen35", "e\xcc\x81x", "e\xcc\x81x"}, /* and belongs to it there */
		{"gpt-4o", "HelloWorld don't a/b//\n", "Hello|World| don't| a|/b|//\n"},
		{"tekken", "HelloWorld 12", "Hello|World| |1|2"},
		{"deepseek-v3", "x=1234 \xe4\xb8\xad\xe6\x96\x87y", "x|=|123|4| |\xe4\xb8\xad\xe6\x96\x87|y"},
		{"deepseek-v3", "a.b (c", "a|.b| (|c"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct pretok *p = make(cases[i].pre);
		struct words w = {0};

		pretok_split(p, match, cases[i].text, strlen(cases[i].text), add_word, &w);
		if (strcmp(w.joined, cases[i].words) != 0)
			fail_msg("%s: \"%s\" became \"%s\", expected \"%s\"", cases[i].pre, cases[i].text, w.joined,
				 cases[i].words);
		pretok_free(p);
	}
}

static void splitting_ends_when_asked(void **state)
{
	struct pretok *p = make("smollm");
	struct words w = {.stop_after = 2};

	pretok_split(p, match, "one 2 three", 11, add_word, &w);
	assert_string_equal(w.joined, "one| ");
	pretok_free(p);
}

/* The lengths of the words of a text, which repeats itself every `period` words once that is known. */
struct lengths {
	size_t *len, cap, period, n;
};

static bool note_length(void *ctx, const char *word, size_t len)
{
	struct lengths *l = ctx;

	if (l->period) {
		assert_int_equal(len, l->len[l->n++ % l->period]);
		return true;
	}
	mem_reserve(l->len, l->cap, l->n + 1);
	l->len[l->n++] = len;
	return true;
}

static void parts_of_a_long_text_leave_no_trace(void **state)
{
	static const char unit[] = " The quick,   don't 12345 \n\nx  \n\xe4\xb8\xad a\xcc\x81 b ;;c  d";
	char names[1000], *save = NULL;
	size_t len = strlen(unit), n_short = 500, n_long = 20000; /* the short one is matched in one part */
	char *text = mem_array(char, n_long *len + 1);

	for (size_t i = 0; i < n_long; i++) memcpy(text + i * len, unit, len);
	pretok_names(names, sizeof(names));
	for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
		struct pretok *p = make(name);
		struct lengths l = {0};

		pretok_split(p, match, text, n_short * len, note_length, &l);
		l.period = l.n;
		l.n = 0;
		pretok_split(p, match, text, n_long * len, note_length, &l);
		assert_int_equal(l.n, l.period * (n_long / n_short));
		free(l.len);
		pretok_free(p);
	}
	free(text);
}

static void unknown_names_are_refused_by_name(void **state)
{
	static const char *const names[] = {"nosuch", "", "gpt", "gpt-2 phi-2", " ", "GPT-2", "qwen2\x1b[31m"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct errbuf err = {0};
		struct pretok *p;

		assert_int_equal(pretok_new(&p, names[i], "FILE", &err), ST_UNSUPPORTED);
		assert_null(p);
		assert_non_null(strstr(err.text, "FILE: tokenizer.ggml.pre"));
		assert_non_null(strstr(err.text, "smollm"));
		assert_null(strchr(err.text, 0x1b));
	}
}

static void every_listed_name_can_be_made(void **state)
{
	char names[1000], *save = NULL;
	size_t n = 0;

	pretok_names(names, sizeof(names));
	for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save), n++)
		pretok_free(make(name));
	assert_true(n > 10);
}

/* A row's expressions in brackets are other expressions, which nothing is known of. */
static struct pretok *twin_of(const struct pretok *p)
{
	struct pretok_stage stages[PRETOK_STAGES_MAX] = {{0}};
	static char text[PRETOK_STAGES_MAX][1000];
	struct pretok *twin;
	struct errbuf err;
	size_t n = 0;

	for (; pretok_expr(p, n); n++) {
		snprintf(text[n], sizeof(text[n]), "(?:%s)", pretok_expr(p, n));
		stages[n].expr = text[n];
	}
	if (pretok_from_stages(&twin, stages, n, &err) != ST_OK) fail_msg("%s", err.text);
	return twin;
}

static void compare_on_random_texts(struct pretok *p, struct pretok *twin, const char *name)
{
	static const char *const parts[] = {"a", "Z", "word", " ", "  ", "\n", "\r\n", "'s", "'LL", "'", "1", "23", ".", "-", "_", "[", "@", "\xc3\xa9", "\xcc\x81",
					    "\xe4\xb8\xad", "\xc2\xa0", "\t", "DON'T", " the"};
	uint64_t r = 7;

	for (int round = 0; round < 3000; round++) {
		struct words a = {0}, b = {0};
		char text[200] = "";

		for (size_t n = splitmix_next(&r) % 12; n > 0; n--) strcat(text, parts[splitmix_next(&r) % ARRAY_LEN(parts)]);
		pretok_split(p, match, text, strlen(text), add_word, &a);
		pretok_split(twin, match, text, strlen(text), add_word, &b);
		if (strcmp(a.joined, b.joined) != 0) fail_msg("%s: \"%s\" became \"%s\", expected \"%s\"", name, text, a.joined, b.joined);
	}
}

static void letters_found_without_the_expression_are_what_it_finds(void **state)
{
	char names[1000], *save = NULL;

	pretok_names(names, sizeof(names));
	for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
		struct pretok *p = make(name), *twin = twin_of(p);

		compare_on_random_texts(p, twin, name);
		pretok_free(twin);
		pretok_free(p);
	}
}

static int setup(void **state)
{
	match = onigre_match_new();
	return 0;
}

static int teardown(void **state)
{
	onigre_match_free(match);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_cut_as_each_family_does),
		cmocka_unit_test(splitting_ends_when_asked),
		cmocka_unit_test(parts_of_a_long_text_leave_no_trace),
		cmocka_unit_test(letters_found_without_the_expression_are_what_it_finds),
		cmocka_unit_test(unknown_names_are_refused_by_name),
		cmocka_unit_test(every_listed_name_can_be_made),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
