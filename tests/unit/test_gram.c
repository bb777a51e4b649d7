/* test_gram.c - grammars: what a built one accepts, what the builder leaves out and refuses, and bytes that are no
 * grammar. */
#include "common/mem.h"
#include "common/utf8.h"
#include "proto/gram.h"
#include "proto/limits.h"
#include "tests/support/gramwalk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *letter_of(void *ctx, uint32_t rule)
{
	static const char *const names[] = {"root", "a", "b", "c", "d"};

	return rule < ARRAY_LEN(names) ? names[rule] : NULL;
}

static void pack(struct gramb *b, struct strbuf *out)
{
	struct errbuf err = {0};

	strbuf_init(out, LIMIT_GRAMMAR_BYTES);
	if (gramb_finish(b, out, letter_of, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	gramb_free(b);
}

/* Finishes, frees the builder, and loads. */
static struct gram *made(struct gramb *b)
{
	struct errbuf err = {0};
	struct strbuf wire;
	struct gram *g;

	pack(b, &wire);
	if (gram_load(&g, wire.data, wire.len, &err) != ST_OK) fail_msg("%s", err.text);
	strbuf_release(&wire);
	return g;
}

static void refused(struct gramb *b, int rc, const char *text)
{
	struct errbuf err = {0};
	struct strbuf wire;

	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	assert_int_equal(gramb_finish(b, &wire, letter_of, NULL, &err), rc);
	if (!strstr(err.text, text)) fail_msg("\"%s\" does not say \"%s\"", err.text, text);
	strbuf_release(&wire);
	gramb_free(b);
}

struct text_case {
	const char *text;
	bool is_in;
};

static void check_texts(struct gram *g, const struct text_case *cases, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (gramwalk_accepts(g, cases[i].text, strlen(cases[i].text)) != cases[i].is_in)
			fail_msg("\"%s\" is %saccepted", cases[i].text, cases[i].is_in ? "not " : "");
	gram_free(g);
}
#define CHECK_TEXTS(g, ...)                                             \
	do {                                                            \
		static const struct text_case cases_[] = {__VA_ARGS__}; \
		check_texts(g, cases_, ARRAY_LEN(cases_));              \
	} while (0)

/* A rule of one text. */
static uint32_t text_rule(struct gramb *b, const char *text)
{
	uint32_t r = gramb_rule(b);

	gramb_final(b, gramb_text(b, gramb_start(b, r), text, strlen(text)));
	return r;
}

static struct gramb *with_root(uint32_t *start, uint32_t *end)
{
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);

	*start = gramb_start(b, gramb_rule(b));
	*end = gramb_state(b, 0);
	gramb_final(b, *end);
	return b;
}

/* ---- what is accepted ---- */

static void texts_and_alternatives(void **state)
{
	uint32_t start, end;
	struct gramb *b = with_root(&start, &end);

	gramb_empty(b, gramb_text(b, start, "yes", 3), end);
	gramb_empty(b, gramb_text(b, start, "no", 2), end);
	gramb_byte(b, start, '0', '9', end);
	gramb_empty(b, gramb_text(b, start, "", 0), gramb_text(b, start, "\xff", 1));
	gramb_final(b, gramb_text(b, gramb_text(b, start, "", 0), "maybe", 5));
	CHECK_TEXTS(made(b), {"yes", true}, {"no", true}, {"7", true}, {"maybe", true}, {"", false}, {"ye", false},
		    {"yesno", false}, {"n0", false}, {"\xff", false});
}

static void counted_calls(void **state)
{
	static const struct {
		uint32_t min, max;
		const char *in[3], *out[3];
	} rows[] = {
		{0, 1, {"[]", "[ab]"}, {"[abab]", "[a]"}},
		{1, 1, {"[ab]"}, {"[]", "[abab]"}},
		{2, 3, {"[abab]", "[ababab]"}, {"[ab]", "[abababab]", "[]"}},
		{0, GRAM_NO_END, {"[]", "[ab]", "[abababababab]"}, {"[a]", "[aba]"}},
		{3, GRAM_NO_END, {"[ababab]", "[ababababab]"}, {"[abab]", "[]"}},
		{0, 2, {"[]", "[ab]", "[abab]"}, {"[ababab]"}},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint32_t start, end, inner;
		struct gramb *b = with_root(&start, &end);
		struct gram *g;

		inner = gramb_state(b, 0);
		gramb_call(b, gramb_text(b, start, "[", 1), text_rule(b, "ab"), rows[i].min, rows[i].max, inner);
		gramb_byte(b, inner, ']', ']', end);
		g = made(b);
		for (size_t k = 0; k < 3 && rows[i].in[k]; k++)
			if (!gramwalk_accepts(g, rows[i].in[k], strlen(rows[i].in[k])))
				fail_msg("row %zu: %s", i, rows[i].in[k]);
		for (size_t k = 0; k < 3 && rows[i].out[k]; k++)
			if (gramwalk_accepts(g, rows[i].out[k], strlen(rows[i].out[k])))
				fail_msg("row %zu: %s", i, rows[i].out[k]);
		assert_int_equal(g->state_min[g->rule_start[0]], 2 + 2 * rows[i].min);
		gram_free(g);
	}
}

static void nested_and_mutual_calls(void **state)
{
	uint32_t start, end, list, item, s;
	struct gramb *b = with_root(&start, &end);

	/* list: "[" item? "]"; item: "x" | list | list item */
	list = gramb_rule(b);
	item = gramb_rule(b);
	gramb_call(b, start, list, 1, 1, end);
	s = gramb_state(b, list);
	gramb_call(b, gramb_text(b, gramb_start(b, list), "[", 1), item, 0, 1, s);
	gramb_final(b, gramb_text(b, s, "]", 1));
	gramb_final(b, gramb_text(b, gramb_start(b, item), "x", 1));
	s = gramb_state(b, item);
	gramb_call(b, gramb_start(b, item), list, 1, 1, s);
	gramb_final(b, s);
	gramb_call(b, s, item, 1, 1, s);
	CHECK_TEXTS(made(b), {"[]", true}, {"[x]", true}, {"[[[x]]]", true}, {"[[][x]x]", true}, {"[", false},
		    {"[xx]", false}, {"[]]", false}, {"", false});
}

/* Every code point against membership; the automaton is also deterministic: no byte has two ways. */
static void check_chars(const struct gram_range *ranges, size_t n)
{
	uint32_t start, end;
	struct gramb *b = with_root(&start, &end);
	struct gram *g;
	char text[4];

	gramb_chars(b, start, ranges, n, end);
	g = made(b);
	for (uint32_t cp = 0; cp < 0x110000; cp++) {
		bool want = false;
		size_t len;

		if (cp >= 0xD800 && cp <= 0xDFFF) continue;
		if (cp > 0x30000 && cp % 997 && cp < 0x10FF00) continue; /* enough of the far planes */
		for (size_t i = 0; i < n; i++) want |= cp >= ranges[i].lo && cp <= ranges[i].hi;
		len = (size_t)utf8_encode(cp, text);
		if (gramwalk_accepts(g, text, len) != want) fail_msg("U+%04X is %s", cp, want ? "missing" : "too much");
	}
	assert_false(gramwalk_accepts(g, "\xed\xa0\x80", 3)); /* a surrogate */
	assert_false(gramwalk_accepts(g, "\xc0\x80", 2));     /* overlong */
	assert_false(gramwalk_accepts(g, "\xe0\x80\x80", 3));
	assert_false(gramwalk_accepts(g, "\xf4\x90\x80\x80", 4)); /* above U+10FFFF */
	for (uint32_t s = 0; s < g->n_states; s++) {
		bool seen[256] = {0};

		for (uint32_t i = g->state_edges[s]; i < g->state_edges[s + 1]; i++)
			for (unsigned byte = g->edges[i].lo; byte <= g->edges[i].hi; byte++) {
				assert_false(seen[byte]);
				seen[byte] = true;
			}
	}
	gram_free(g);
}

static void characters_become_utf8(void **state)
{
	static const struct gram_range all[] = {{0, 0x10FFFF}}, ascii[] = {{'a', 'z'}}, high[] = {{0xD7FE, 0xE001}},
				       string[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}},
				       odd[] = {{0x7F, 0x80},       {0x7BF, 0x7BF},     {0x7FF, 0x800},
						{0xFFF, 0x1000},    {0x20AC, 0x20AC},   {0xFFFF, 0x10000},
						{0x1F600, 0x1F64F}, {0x3FFFF, 0x40000}, {0x10FFFF, 0x10FFFF}},
				       touching[] = {{0x100, 0x13F}, {0x140, 0x17F}, {0x180, 0x180}};

	check_chars(all, ARRAY_LEN(all));
	check_chars(ascii, ARRAY_LEN(ascii));
	check_chars(high, ARRAY_LEN(high));
	check_chars(string, ARRAY_LEN(string));
	check_chars(odd, ARRAY_LEN(odd));
	check_chars(touching, ARRAY_LEN(touching));
}

static void whole_classes_are_small(void **state)
{
	static const struct gram_range all[] = {{0, 0x10FFFF}};
	uint32_t start, end;
	struct gramb *b = with_root(&start, &end);
	struct gram *g;

	gramb_chars(b, start, all, 1, end);
	g = made(b);
	assert_true(g->n_states <= 10);
	assert_true(g->n_edges <= 16);
	gram_free(g);
}

/* ---- what is left out ---- */

static void what_no_text_passes_is_left_out(void **state)
{
	uint32_t start, end, endless, unused, s;
	struct gramb *b = with_root(&start, &end);
	struct gram *g;

	endless = gramb_rule(b); /* "x" endless */
	gramb_call(b, gramb_text(b, gramb_start(b, endless), "x", 1), endless, 1, 1, gramb_state(b, endless));
	unused = text_rule(b, "unused");
	gramb_call(b, start, endless, 1, 1, end); /* an alternative that cannot be */
	gramb_text(b, start, "nowhere", 7);       /* a way without an end */
	s = gramb_state(b, 0);
	gramb_call(b, start, endless, 0, 5, s); /* none of it is all that can be had */
	gramb_empty(b, gramb_text(b, s, "ok", 2), end);
	s = gramb_state(b, 0);
	gramb_call(b, s, unused, 1, 1, end); /* from a state that is never reached */
	g = made(b);
	assert_int_equal(g->n_rules, 1);
	assert_int_equal(g->n_calls, 0);
	assert_int_equal(g->n_states, 3); /* s, which start only passes on to, one within "ok", the end */
	CHECK_TEXTS(g, {"ok", true}, {"", false}, {"x", false}, {"nowhere", false});
}

static void states_that_only_pass_on_are_left_out(void **state)
{
	uint32_t start, end, at;
	struct gramb *b = with_root(&start, &end);
	struct gram *g;

	at = start;
	for (int i = 0; i < 1000; i++) {
		uint32_t to = gramb_state(b, 0);

		gramb_empty(b, at, to);
		at = to;
	}
	gramb_byte(b, at, 'a', 'a', end);
	g = made(b);
	assert_int_equal(g->n_states, 2);
	assert_int_equal(g->n_edges, 1);
	CHECK_TEXTS(g, {"a", true}, {"", false}, {"aa", false});
}

/* ---- shortest texts ---- */

static void shortest_texts(void **state)
{
	uint32_t start, end, s, opt, big;
	struct gramb *b = with_root(&start, &end);
	struct gram *g;

	opt = gramb_rule(b); /* "" or "123456" */
	gramb_final(b, gramb_start(b, opt));
	gramb_final(b, gramb_text(b, gramb_start(b, opt), "123456", 6));
	big = gramb_rule(b); /* 4 billion times "abc" at least */
	s = gramb_state(b, big);
	gramb_call(b, gramb_start(b, big), text_rule(b, "abc"), 4000000000u, GRAM_NO_END, s);
	gramb_final(b, s);
	gramb_call(b, start, big, 1, 1, end);
	s = gramb_state(b, 0);
	gramb_call(b, gramb_text(b, start, "ab", 2), opt, 1, 1, s);
	gramb_call(b, s, text_rule(b, "xyz"), 7, 9, end);
	g = made(b);
	assert_int_equal(g->state_min[g->rule_start[0]], 2 + 7 * 3);
	assert_int_equal(g->n_rules, 5);
	assert_int_equal(g->state_min[g->rule_start[1]], 0);
	assert_int_equal(g->state_min[g->rule_start[2]], UINT32_MAX - 1); /* the sum is saturated */
	gram_free(g);
}

/* ---- what is refused ---- */

static void rules_that_begin_with_themselves(void **state)
{
	uint32_t start, end, a, c, s, empty;
	struct gramb *b = with_root(&start, &end);

	/* a: a "x" | "y" */
	a = text_rule(b, "y");
	gramb_call(b, start, a, 1, 1, end);
	s = gramb_state(b, a);
	gramb_call(b, gramb_start(b, a), a, 1, 1, s);
	gramb_final(b, gramb_text(b, s, "x", 1));
	refused(b, ST_INVALID, "a begins with itself before");

	/* a: b "x" | "y"; b: optional c, empty*, then a */
	b = with_root(&start, &end);
	a = text_rule(b, "y");
	c = text_rule(b, "z");
	gramb_call(b, start, a, 1, 1, end);
	empty = gramb_rule(b);
	gramb_final(b, gramb_start(b, empty));
	s = gramb_state(b, a);
	gramb_call(b, gramb_start(b, a), c, 0, 3, s);
	gramb_call(b, s, empty, 1, 1, s);
	gramb_call(b, s, c, 1, 1, end = gramb_state(b, a));
	gramb_final(b, end);
	s = gramb_state(b, c);
	gramb_call(b, gramb_start(b, c), a, 1, 1, s);
	gramb_final(b, s);
	refused(b, ST_INVALID, "begins with itself, by way of");

	/* The same with a byte in front is right recursion, and fine. */
	b = with_root(&start, &end);
	gramb_call(b, gramb_text(b, start, "(", 1), 0, 0, 1, end);
	CHECK_TEXTS(made(b), {"(((", true}, {"(", true}, {"", false});
}

static void repetition_of_what_may_be_empty(void **state)
{
	uint32_t start, end, empty;
	struct gramb *b = with_root(&start, &end);

	empty = gramb_rule(b);
	gramb_final(b, gramb_start(b, empty));
	gramb_final(b, gramb_text(b, gramb_start(b, empty), "a", 1));
	gramb_call(b, start, empty, 0, 2, end);
	refused(b, ST_INVALID, "a is repeated, but it may be empty");
}

static void a_root_that_cannot_end(void **state)
{
	uint32_t start, end, a, c;
	struct gramb *b = with_root(&start, &end);

	a = gramb_rule(b);
	c = gramb_rule(b);
	gramb_call(b, start, a, 1, 1, end);
	gramb_call(b, gramb_text(b, gramb_start(b, a), "x", 1), c, 1, 1, gramb_state(b, a));
	gramb_text(b, gramb_start(b, c), "y", 1);
	refused(b, ST_INVALID, "b cannot end");
}

static void a_full_builder_goes_on_and_is_refused(void **state)
{
	for (size_t max = 0; max < 400; max += 4) {
		static const struct gram_range some[] = {{0x7F, 0x80}, {0x800, 0x10FFFF}};
		struct gramb *b = gramb_new(max);
		uint32_t r = gramb_rule(b), s = gramb_state(b, r), other = gramb_rule(b);

		s = gramb_text(b, s, "text", 4);
		gramb_call(b, s, other, 1, 2, s);
		gramb_chars(b, s, some, 2, s);
		gramb_text(b, gramb_start(b, gramb_rule(b)), "more text than fits", 19);
		assert_true(gramb_is_full(b));
		refused(b, ST_LIMIT, "the grammar takes more than");
	}
}

/* No depth of rules may cost stack: a chain of calls that ends in a circle, and one that does not. */
static void deep_chains_of_rules(void **state)
{
	for (int circle = 0; circle < 2; circle++) {
		struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
		uint32_t n = 20000, r, s;

		for (uint32_t i = 0; i < n; i++) {
			r = gramb_rule(b);
			s = gramb_state(b, r);
			gramb_final(b, s);
			if (i > 0) gramb_call(b, gramb_start(b, r - 1), r, 1, 1, s - 2);
		}
		gramb_byte(b, gramb_start(b, n - 1), 'a', 'a', 2 * n - 1);
		if (circle) {
			gramb_call(b, gramb_start(b, n - 1), 1, 1, 1, 2 * n - 1);
			refused(b, ST_INVALID, "a begins with itself, by way of rule 19999");
		} else {
			CHECK_TEXTS(made(b), {"a", true}, {"aa", false});
		}
	}
}

/* ---- bytes that are no grammar ---- */

#define WORDS_MAX 32

/* "a" or "b", or two to three of rule 1, which is "c". */
static const uint32_t good[] = {
	0x314d5247,
	2,
	4,
	3,
	1,
	2,
	2, /* states of the rules */
	2 << 1,
	1,
	1 << 1,
	1, /* edges and ends of the states */
	0 | 'a' << 8 | 'b' << 16,
	1,
	2 | 0 << 8,
	1, /* edges */
	0 | 'c' << 8 | 'c' << 16,
	3,
	1,
	2,
	3, /* the call */
};

static void damaged_bytes_are_refused(void **state)
{
	static const struct {
		uint32_t at, word;
		const char *text;
	} rows[] = {
		{0, 0x314d5248, "not a grammar"},
		{1, 3, "counts ask for"},
		{2, 0xFFFFFFFF, "counts ask for"},
		{3, 0xFFFFFFFF, "counts ask for"},
		{4, 0x55555555, "counts ask for"},
		{5, 0, "rule 0 has 0 states"},
		{5, 1, "belong to no rule"},
		{5, 5, "rule 0 has 5 states; expected 1 to 4"},
		{6, 3, "rule 1 has 3 states; expected 1 to 2"},
		{7, 4 << 1, "state 0 has 4 edges; expected 3 at most"},
		{7, 0xFFFFFFFF, "expected 3 at most"},
		{7, 1 << 1, "belong to no state"},
		{8, 0, "rule 0 cannot end"},
		{10, 0, "rule 1 cannot end"},
		{11, 0 | 'b' << 8 | 'a' << 16, "of no kind"},
		{11, 0 | 'a' << 8 | 'b' << 16 | 1u << 24, "of no kind"},
		{11, 1 | 'a' << 8 | 'b' << 16, "of no kind"},
		{11, 3, "of no kind"},
		{12, 2, "leads to 2, which is not of its rule"},
		{12, 4, "leads to 4, which is not of its rule"},
		{13, 2 | 1 << 8, "makes call 1 of 1"},
		{17, 2, "call 0 is of rule 2"},
		{17, 0, "rule 0 begins with itself"},
		{18, 4, "4 to 3 times"},
		{19, 0, "2 to 0 times"},
	};
	uint32_t words[ARRAY_LEN(good)];
	struct errbuf err = {0};
	struct gram *g;

	assert_int_equal(gram_load(&g, good, sizeof(good), &err), ST_OK);
	assert_int_equal(g->state_min[0], 1);
	CHECK_TEXTS(g, {"a", true}, {"b", true}, {"cc", true}, {"ccc", true}, {"c", false}, {"cccc", false});
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		memcpy(words, good, sizeof(words));
		words[rows[i].at] = rows[i].word;
		err.text[0] = 0;
		if (gram_load(&g, words, sizeof(words), &err) != ST_CORRUPT) fail_msg("row %zu is taken", i);
		assert_null(g);
		if (!strstr(err.text, rows[i].text)) fail_msg("row %zu: \"%s\"", i, err.text);
	}
	for (size_t len = 0; len < sizeof(good); len++) {
		uint8_t *cut = mem_dup(good, len, 1);

		assert_int_equal(gram_load(&g, cut, len, NULL), ST_CORRUPT);
		free(cut);
	}
	assert_int_equal(gram_load(&g, good, LIMIT_GRAMMAR_BYTES + 1, NULL),
			 ST_LIMIT); /* the bytes are not looked at */
}

/* Random changes give a refusal or a grammar that holds what gram.h promises: walks of it end. */
static void changed_bytes_are_refused_or_walkable(void **state)
{
	uint64_t seed = 1;
	int n_taken = 0;

	for (int round = 0; round < 20000; round++) {
		uint8_t bytes[sizeof(good)];
		struct strbuf text;
		struct gram *g;

		memcpy(bytes, good, sizeof(good));
		for (uint32_t n = 1 + gramwalk_below(&seed, 3); n > 0; n--)
			bytes[20 + gramwalk_below(&seed, sizeof(bytes) - 20)] = (uint8_t)gramwalk_below(&seed, 8);
		if (gram_load(&g, bytes, sizeof(bytes), NULL) != ST_OK) continue;
		n_taken++;
		if (g->calls[0].min < 100) { /* a count may ask for millions of bytes */
			strbuf_init(&text, 4096);
			gramwalk_random(g, &seed, 20, &text);
			assert_true(gramwalk_accepts(g, text.data ? text.data : "", text.len));
			strbuf_release(&text);
		}
		gram_free(g);
	}
	assert_true(n_taken > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_and_alternatives),
		cmocka_unit_test(counted_calls),
		cmocka_unit_test(nested_and_mutual_calls),
		cmocka_unit_test(characters_become_utf8),
		cmocka_unit_test(whole_classes_are_small),
		cmocka_unit_test(what_no_text_passes_is_left_out),
		cmocka_unit_test(states_that_only_pass_on_are_left_out),
		cmocka_unit_test(shortest_texts),
		cmocka_unit_test(rules_that_begin_with_themselves),
		cmocka_unit_test(repetition_of_what_may_be_empty),
		cmocka_unit_test(a_root_that_cannot_end),
		cmocka_unit_test(a_full_builder_goes_on_and_is_refused),
		cmocka_unit_test(deep_chains_of_rules),
		cmocka_unit_test(damaged_bytes_are_refused),
		cmocka_unit_test(changed_bytes_are_refused_or_walkable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
