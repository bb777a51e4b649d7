/* test_gramc.c - expressions, choices, EBNF, JSON objects: what their grammars take and refuse, and what is not compiled. */
#include "frontend/gramc.h"

#include "common/mem.h"
#include "tests/support/gramtry.h"
#include "tests/support/gramwalk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct row {
	enum gramtry_kind kind;
	const char *source;
	const char *yes[6], *no[6]; /* up to NULL */
} rows[] = {
	/* expressions: the whole text has to match */
	{GRAMTRY_REGEX, "abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
	{GRAMTRY_REGEX, "a|bc|", {"a", "bc", ""}, {"b", "abc"}},
	{GRAMTRY_REGEX, "(a|b)*c", {"c", "abac"}, {"ab", "cc"}},
	{GRAMTRY_REGEX, "a+b?", {"a", "aaab"}, {"", "b", "abb"}},
	{GRAMTRY_REGEX, "a{2,3}", {"aa", "aaa"}, {"a", "aaaa"}},
	{GRAMTRY_REGEX, "a{,2}", {"", "a", "aa"}, {"aaa"}},
	{GRAMTRY_REGEX, "a{2}", {"aa"}, {"a", "aaa"}},
	{GRAMTRY_REGEX, "a{2,}", {"aa", "aaaaaa"}, {"a", ""}},
	{GRAMTRY_REGEX, "(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab", "aba"}},
	{GRAMTRY_REGEX, "(a?b?){2,3}", {"", "a", "abab", "aaa", "bb"}, {"aaaa", "bbbb", "c"}},
	{GRAMTRY_REGEX, "((a*)*)*x", {"x", "aaax"}, {"", "a"}},
	{GRAMTRY_REGEX, "(|a|b{0,2}){3}", {"", "aba", "bbbbbb"}, {"bbbbbbb", "aaaa"}},
	{GRAMTRY_REGEX, "(a{0}){5}b", {"b"}, {"ab"}},
	{GRAMTRY_REGEX, "a*?b+?c??d{1,2}?", {"bd", "aabbcdd"}, {"d", "bddd"}},
	{GRAMTRY_REGEX, "[0-9]{30}", {"012345678901234567890123456789"}, {"01234567890123456789012345678"}},
	{GRAMTRY_REGEX, "[a-c_-]+", {"a-c_"}, {"d", ""}},
	{GRAMTRY_REGEX, "[]a]+", {"]a"}, {"b"}},
	{GRAMTRY_REGEX, "[^]a]", {"b", "\xc3\xa9"}, {"]", "a", "bb"}},
	{GRAMTRY_REGEX, "[\\d.]+", {"1.5"}, {"a", "\xd9\xa1"}},
	{GRAMTRY_REGEX, "[^\\d\\s]", {"a"}, {"1", " ", "\n"}},
	{GRAMTRY_REGEX, "\\w+\\W\\S\\D", {"a_1 xy"}, {"a_1x", "a  x"}},
	{GRAMTRY_REGEX, "\\t\\n\\r\\f\\v\\0\\x41\\u0042\\u{1F600}", {NULL}, {"AB"}},
	{GRAMTRY_REGEX, "\\x41\\u0042\\u{1F600}\\uD83D\\uDE00\\cA", {"AB\xf0\x9f\x98\x80\xf0\x9f\x98\x80\x01"}, {"AB"}},
	{GRAMTRY_REGEX, "\\.\\*\\\\\\/\\-\\[", {".*\\/-["}, {"a*\\/-["}},
	{GRAMTRY_REGEX, ".", {"a", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}, {"", "\n", "ab", "\xe2\x82"}},
	{GRAMTRY_REGEX, "^abc$", {"abc"}, {"", "ab", "^abc$"}},
	{GRAMTRY_REGEX, "^(a|b)$|^c", {"a", "c"}, {"ac"}},
	{GRAMTRY_REGEX, "(^a$)|(?:^b$)", {"a", "b"}, {"ab"}},
	{GRAMTRY_REGEX, "(?P<year>\\d{4})-(?<m>\\d\\d)", {"2024-07"}, {"24-07"}},
	{GRAMTRY_REGEX, "\\p{Lu}\\p{Ll}+", {"\xc3\x89t\xc3\xa9"}, {"\xc3\xa9t\xc3\xa9"}},
	{GRAMTRY_REGEX, "\\pN\\P{L}", {"1 ", "\xe2\x85\xa3!"}, {"aa", "1a"}},
	{GRAMTRY_REGEX, "\\p{Letter}\\p{gc=Nd}\\P{Uppercase_Letter}", {"a1b", "\xc3\xa9" "1\xc3\xa9"}, {"11b", "a1B"}},
	{GRAMTRY_REGEX, "a{b}{", {"a{b}{"}, {"a"}},
	{GRAMTRY_REGEX, "\xd0\x90[\xd0\x90-\xd0\xaf]", {"\xd0\x90\xd0\x91"}, {"\xd0\x90\xd0\xb0"}},
	{GRAMTRY_REGEX, "(\\d{1,3}\\.){3}\\d{1,3}", {"127.0.0.1"}, {"127.0.0", "1270.0.0.1"}},
	{GRAMTRY_REGEX, "", {""}, {"a"}},
	/* choices */
	{GRAMTRY_CHOICE, "[\"yes\",\"no\"]", {"yes", "no"}, {"", "y", "yesno", "maybe"}},
	{GRAMTRY_CHOICE, "[\"a\",\"ab\",\"abc\",\"b\"]", {"a", "ab", "abc", "b"}, {"bc", "abcd"}},
	{GRAMTRY_CHOICE, "[\"x\",\"x\",\"\\u00e9\\n\"]", {"x", "\xc3\xa9\n"}, {"\xc3\xa9", "xx"}},
	{GRAMTRY_CHOICE, "[\"\",\"a\"]", {"", "a"}, {"aa"}},
	/* EBNF */
	{GRAMTRY_EBNF, "root ::= \"hello\" \" \" \"world\"", {"hello world"}, {"hello", "helloworld"}},
	{GRAMTRY_EBNF, "# c\nroot ::= a # c\n  | b\n\na ::= \"x\" | \"y\" \"z\"\nb ::= [0-9]+ ;", {NULL}, {NULL}},
	{GRAMTRY_EBNF, "# c\nroot ::= a # c\n  | b\n\na ::= \"x\" | \"y\" \"z\"\nb ::= [0-9]+\n", {"x", "yz", "42"}, {"y", "xz", ""}},
	{GRAMTRY_EBNF, "root ::= (\"a\" | \"b\")* \"c\"{2,3} [^0-9\\n]?", {"cc", "abaccc!"}, {"c", "cccc1", "cc5"}},
	{GRAMTRY_EBNF, "root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "()"}},
	{GRAMTRY_EBNF, "root ::= ws \"x\" ws*\nws ::= [ \\t\\n]*", {"x", " x \n ", "x"}, {"", " "}},
	{GRAMTRY_EBNF, "root ::= e{2,3} \"!\"\ne ::= \"a\"? \"b\"?", {"!", "a!", "ababab!"}, {"abababab!"}},
	{GRAMTRY_EBNF, "root ::= e{2} \"!\"\ne ::= \"\"", {"!"}, {""}},
	{GRAMTRY_EBNF, "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9] | \"(\" expr \")\"", {"1", "1+(2+3)"}, {"1+", "(1", "+1"}},
	{GRAMTRY_EBNF, "root ::= \"\\\"\\\\\\n\\x41\\u0042\\U0001F600\"", {"\"\\\nAB\xf0\x9f\x98\x80"}, {"AB"}},
	{GRAMTRY_EBNF, "root ::= [\\]\\-\\^a-c]+ . '\"'", {"]-^abz\"", "a\n\""}, {"d\"", "a\""}},
	{GRAMTRY_EBNF, "root ::= item {3}\nitem::=\"a\"", {"aaa"}, {"aa", "aaaa"}},
	{GRAMTRY_EBNF, "root ::= a-b_1\na-b_1 ::=\n\t\"x\"", {"x"}, {"y"}},
	/* any JSON object */
	{GRAMTRY_JSON, "", {"{}", "{\"a\":1}", "{ \"a\" : [1, -2.5e3, null], \"b\": {\"c\": \"\\u00e9\\n\"} }", "{\n  \"a\": true\n}"},
	 {"", "[]", "1", "{\"a\":}", "{\"a\":1,}", "{a:1}"}},
	{GRAMTRY_JSON, "", {"{\"\":[]}", "{\"a\":[[],{}]}"}, {"{\"a\":01}", "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{  \"a\":1}", "{\"a\":1} ", "{\"a\":.5}"}},
};

static void check_row(const struct row *row)
{
	struct errbuf err = {{0}};
	struct gram *g;
	int rc, i;

	rc = gramtry_compile(&g, row->kind, row->source, strlen(row->source), &gramtry_opts, &err);
	if (!row->yes[0] && !row->no[0]) {
		assert_int_not_equal(rc, ST_OK);
		return;
	}
	if (rc) fail_msg("%s: %s", row->source, err.text);
	for (i = 0; i < 6 && row->yes[i]; i++)
		if (!gramwalk_accepts(g, row->yes[i], strlen(row->yes[i]))) fail_msg("%s does not take %s", row->source, row->yes[i]);
	for (i = 0; i < 6 && row->no[i]; i++)
		if (gramwalk_accepts(g, row->no[i], strlen(row->no[i]))) fail_msg("%s takes %s", row->source, row->no[i]);
	gram_free(g);
}

static void test_rows(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) check_row(&rows[i]);
}

static const struct refusal {
	enum gramtry_kind kind;
	const char *source;
	int rc;
	const char *says;
} refusals[] = {
	{GRAMTRY_REGEX, "a(?=b)", ST_UNSUPPORTED, "at byte 1 of the expression: lookahead"},
	{GRAMTRY_REGEX, "(?<!b)a", ST_UNSUPPORTED, "lookbehind"},
	{GRAMTRY_REGEX, "(a)\\1", ST_UNSUPPORTED, "at byte 3 of the expression: backreferences"},
	{GRAMTRY_REGEX, "(?P<n>a)(?P=n)", ST_UNSUPPORTED, "backreferences"},
	{GRAMTRY_REGEX, "\\k<n>", ST_UNSUPPORTED, "backreferences"},
	{GRAMTRY_REGEX, "a\\b", ST_UNSUPPORTED, "\\b"},
	{GRAMTRY_REGEX, "(?i)a", ST_UNSUPPORTED, "flags"},
	{GRAMTRY_REGEX, "(?>a)", ST_UNSUPPORTED, "atomic"},
	{GRAMTRY_REGEX, "a++", ST_UNSUPPORTED, "possessive"},
	{GRAMTRY_REGEX, "\\p{Greek}", ST_UNSUPPORTED, "\\p{Greek}"},
	{GRAMTRY_REGEX, "[[:alpha:]]", ST_UNSUPPORTED, "POSIX"},
	{GRAMTRY_REGEX, "a^b", ST_UNSUPPORTED, "at byte 1 of the expression: \"^\""},
	{GRAMTRY_REGEX, "(a$)b", ST_UNSUPPORTED, "\"$\""},
	{GRAMTRY_REGEX, "\\ud800", ST_UNSUPPORTED, "surrogate"},
	{GRAMTRY_REGEX, "(a", ST_INVALID, "\"(\" is not closed"},
	{GRAMTRY_REGEX, "a)", ST_INVALID, "at byte 1 of the expression: \")\""},
	{GRAMTRY_REGEX, "[a", ST_INVALID, "\"[\" is not closed"},
	{GRAMTRY_REGEX, "[b-a]", ST_INVALID, "backwards"},
	{GRAMTRY_REGEX, "*a", ST_INVALID, "nothing before it"},
	{GRAMTRY_REGEX, "a**", ST_INVALID, "two quantifiers"},
	{GRAMTRY_REGEX, "(($a*w*)*)*S", ST_UNSUPPORTED, "over ^ or $"},
	{GRAMTRY_REGEX, "x|(^a)?", ST_UNSUPPORTED, "over ^ or $"},
	{GRAMTRY_REGEX, "a{3,2}", ST_INVALID, "smallest count"},
	{GRAMTRY_REGEX, "a{1000000}", ST_LIMIT, "repetitions"},
	{GRAMTRY_REGEX, "\\", ST_INVALID, "backslash at the end"},
	{GRAMTRY_REGEX, "\\y", ST_INVALID, "no meaning"},
	{GRAMTRY_REGEX, "\\xg1", ST_INVALID, "two hexadecimal"},
	{GRAMTRY_REGEX, "\\u{110000}", ST_INVALID, "\\u{...}"},
	{GRAMTRY_REGEX, "\xff", ST_INVALID, "UTF-8"},
	{GRAMTRY_CHOICE, "[]", ST_INVALID, "empty"},
	{GRAMTRY_CHOICE, "[\"a\",1]", ST_INVALID, "choice 1"},
	{GRAMTRY_EBNF, "", ST_INVALID, "\"root\""},
	{GRAMTRY_EBNF, "rot ::= \"a\"", ST_INVALID, "\"root\""},
	{GRAMTRY_EBNF, "root ::= \"a\"\n  foo", ST_INVALID, "line 2: there is no rule foo"},
	{GRAMTRY_EBNF, "root ::= \"a\nb\"", ST_INVALID, "line 1: a literal is not closed"},
	{GRAMTRY_EBNF, "root ::= [a", ST_INVALID, "is not closed"},
	{GRAMTRY_EBNF, "root ::= (\"a\"", ST_INVALID, "\"(\" is not closed"},
	{GRAMTRY_EBNF, "root ::= \"a\")", ST_INVALID, "expected a rule"},
	{GRAMTRY_EBNF, "root ::= \"a\"{2,1}", ST_INVALID, "smallest count"},
	{GRAMTRY_EBNF, "root ::= \"a\"{x}", ST_INVALID, "a repetition is"},
	{GRAMTRY_EBNF, "root ::= \"\\q\"", ST_INVALID, "unknown escape"},
	{GRAMTRY_EBNF, "root ::= \"a\"\nroot ::= \"b\"", ST_INVALID, "line 2: rule root is there already, in line 1"},
	{GRAMTRY_EBNF, "root ::= root \"a\" | \"b\"", ST_INVALID, "line 1: rule root begins with itself"},
	{GRAMTRY_EBNF, "root ::= a\n\na ::= b? root2\nroot2 ::= a \"x\" | \"y\"\nb ::= \"b\"", ST_INVALID, "begins with itself"},
	{GRAMTRY_EBNF, "root ::= \"x\"\na ::= \"a\" a", ST_INVALID, "line 2: rule a never ends"},
	{GRAMTRY_EBNF, "root ::= <think>", ST_UNSUPPORTED, "tokens"},
	{GRAMTRY_EBNF, "root ::= \"a\" (?=\"b\")", ST_UNSUPPORTED, "lookahead"},
	{GRAMTRY_EBNF, "start: \"a\"", ST_UNSUPPORTED, "Lark"},
};

static void test_refusals(void **state)
{
	struct errbuf err;
	struct gram *g;
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_LEN(refusals); i++) {
		const struct refusal *r = &refusals[i];

		err.text[0] = 0;
		rc = gramtry_compile(&g, r->kind, r->source, strlen(r->source), &gramtry_opts, &err);
		if (rc != r->rc || !strstr(err.text, r->says)) fail_msg("%s: %d, %s", r->source, rc, err.text);
	}
}

/* n times the text, as one. */
static char *times(const char *text, size_t n)
{
	size_t len = strlen(text), i;
	char *s = mem_array(char, n * len + 1);

	for (i = 0; i < n; i++) memcpy(s + i * len, text, len);
	return s;
}

/* What is too large is refused, and at once. */
static void test_limits(void **state)
{
	static const struct {
		enum gramtry_kind kind;
		const char *begin, *text;
		size_t n;
	} large[] = {
		{GRAMTRY_REGEX, "", "(", 60000},
		{GRAMTRY_REGEX, "", "abcdefgh", 40000},
		{GRAMTRY_REGEX, "", "(a?){2,9}", 30000},
		{GRAMTRY_REGEX, "", "\\p{L}\\p{N}", 2000},
		{GRAMTRY_EBNF, "root ::= ", "(", 60000},
		{GRAMTRY_EBNF, "root ::= ", "\"abc\" ", 60000},
		{GRAMTRY_EBNF, "root ::= ", "root2? ", 30000},
	};
	struct errbuf err;
	struct gram *g;
	size_t i;

	for (i = 0; i < ARRAY_LEN(large); i++) {
		char *source = times(large[i].text, large[i].n), *all = mem_array(char, strlen(source) + 32);

		strcpy(all, large[i].begin);
		strcat(all, source);
		err.text[0] = 0;
		if (gramtry_compile(&g, large[i].kind, all, strlen(all), &gramtry_opts, &err) == ST_OK) fail_msg("row %zu is compiled", i);
		assert_null(g);
		assert_true(strlen(err.text) > 10);
		free(source);
		free(all);
	}
}

static void test_free_text_first(void **state)
{
	struct gramc_opts o = gramtry_opts;
	struct errbuf err = {{0}};
	struct gram *g;

	o.after = "</think>";
	assert_int_equal(gramtry_compile(&g, GRAMTRY_CHOICE, "[\"yes\"]", 7, &o, &err), ST_OK);
	assert_true(gramwalk_accepts(g, "</think>yes", 11));
	assert_true(gramwalk_accepts(g, "hm <</thi</think>yes", 20));
	assert_false(gramwalk_accepts(g, "yes", 3));
	assert_false(gramwalk_accepts(g, "a</think>b</think>yes", 21));
	gram_free(g);
	o.may_skip_after = true;
	assert_int_equal(gramtry_compile(&g, GRAMTRY_JSON, "", 0, &o, &err), ST_OK);
	assert_true(gramwalk_accepts(g, "{}", 2));
	assert_true(gramwalk_accepts(g, "<think>x</think>\n\n{}", 20));
	assert_false(gramwalk_accepts(g, "x</think>{}", 11));
	gram_free(g);
	o.after = "";
	assert_int_equal(gramtry_compile(&g, GRAMTRY_JSON, "", 0, &o, &err), ST_LIMIT);
}

static void test_without_blanks(void **state)
{
	struct gramc_opts o = gramtry_opts;
	struct errbuf err = {{0}};
	struct gram *g;

	o.any_whitespace = false;
	assert_int_equal(gramtry_compile(&g, GRAMTRY_JSON, "", 0, &o, &err), ST_OK);
	assert_true(gramwalk_accepts(g, "{\"a\": [1, 2]}", 13));
	assert_true(gramwalk_accepts(g, "{\"a\":[1,2]}", 11));
	assert_false(gramwalk_accepts(g, "{ \"a\":[1,2]}", 12));
	assert_false(gramwalk_accepts(g, "{\"a\":\n[1,2]}", 12));
	assert_false(gramwalk_accepts(g, "{,\"a\":1}", 8));
	assert_false(gramwalk_accepts(g, "{\"a\":[,1]}", 10));
	assert_true(gramwalk_accepts(g, "{\"a\":[],\"b\":{}}", 15));
	gram_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_free_text_first),
		cmocka_unit_test(test_without_blanks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
