/* test_jinja.c - the template interpreter against recorded results of Jinja2, and its own promises: origins, limits, errors.
 *
 * tests/data/jinja/features.jsonl.gz holds one feature a line, recorded with Jinja2 3.1.6 in the environment of transformers
 * and the variables of golden/chat/jinja.context.json. */
#include "common/clock.h"
#include "common/strbuf.h"
#include "frontend/jinja.h"
#include "common/jsonbig.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN_NOW 1741529107 /* 2025-03-09 14:05:07, a Sunday */

struct result {
	int rc;
	bool raised;
	struct jinja_out out;
	struct errbuf err;
};

static void render(struct result *r, const char *text, size_t len, json_t *context, json_t *trusted, const struct jinja_limits *limits)
{
	struct jinja *t;

	*r = (struct result){0};
	jinja_out_init(&r->out);
	r->rc = jinja_compile(&t, text, len, &r->err);
	if (r->rc != ST_OK) return;
	r->rc = jinja_render(t, context, trusted, GOLDEN_NOW, limits, &r->out, &r->raised, &r->err);
	jinja_free(t);
}

/* JSON with integers beyond 64 bits, as requests have them. */
static json_t *next_case(FILE *f)
{
	char *line = NULL;
	size_t cap = 0;
	json_error_t e;
	json_t *j = NULL;
	ssize_t n = getline(&line, &cap, f);

	if (n > 0) {
		j = jsonbig_load(line, (size_t)n, 0, &e);
		if (!j) fail_msg("not JSON: %s", e.text);
	}
	free(line);
	return j;
}

/* What the spans say must be as long as the text; text marked as template must not contain input of its own. */
static void check_spans(const struct jinja_out *o)
{
	size_t i, len = 0;

	for (i = 0; i < o->n_spans; i++) {
		assert_true(o->spans[i].len > 0);
		if (i) assert_true(o->spans[i].is_input != o->spans[i - 1].is_input);
		len += o->spans[i].len;
	}
	assert_int_equal(len, o->text.len);
}

static bool check_case(const char *id, const struct result *r, json_t *c)
{
	json_t *expected = json_object_get(c, "expected"), *error = json_object_get(c, "error");
	const char *kind = json_string_value(json_object_get(c, "error_kind"));
	const char *got = r->out.text.data ? r->out.text.data : "", *want;

	if (error) {
		want = json_string_value(json_object_get(error, "message"));
		if (r->rc == ST_OK) {
			print_error("%s: no error, but \"%s\"\n", id, got);
			return false;
		}
		if (!kind || strcmp(kind, "raise") != 0) return r->err.text[0] != 0;
		if (r->raised && strcmp(r->err.text, want) == 0) return true;
		print_error("%s: expected \"%s\", got \"%s\"\n", id, want, r->err.text);
		return false;
	}
	check_spans(&r->out);
	if (r->rc == ST_OK && r->out.text.len == json_string_length(expected) && memcmp(got, json_string_value(expected), r->out.text.len) == 0)
		return true;
	print_error("%s: expected\n%s\ngot (%s)\n%s\n", id, json_string_value(expected), r->err.text, got);
	return false;
}

static void run_features(const char *path)
{
	FILE *f = strncmp(path, "tests/", 6) == 0 ? popen("gzip -dc tests/data/jinja/features.jsonl.gz", "r") : golden_open(path);
	json_t *context = golden_json("chat/jinja.context.json"), *c;
	int n = 0, bad = 0;

	assert_non_null(f);
	assert_non_null(context);
	for (; (c = next_case(f)); n++) {
		json_t *t = json_object_get(c, "template");
		struct result r;

		render(&r, json_string_value(t), json_string_length(t), context, NULL, &JINJA_LIMITS_DEFAULT);
		bad += !check_case(json_string_value(t), &r, c);
		jinja_out_release(&r.out);
		json_decref(c);
	}
	if (strncmp(path, "tests/", 6) == 0) pclose(f);
	else fclose(f);
	json_decref(context);
	print_message("%s: %d cases\n", path, n);
	assert_true(n > 100);
	assert_int_equal(bad, 0);
}

static void test_golden_features(void **state)
{
	run_features("chat/jinja.jsonl");
}

static void test_recorded_features(void **state)
{
	run_features("tests/data/jinja/features.jsonl");
}

/* Every template of the golden data with every conversation. */
static void test_golden_templates(void **state)
{
	FILE *f = golden_open("chat/cases.jsonl");
	char path[128], *text;
	json_t *c, *context;
	int n = 0, bad = 0;
	size_t len;

	assert_non_null(f);
	for (; (c = next_case(f)); n++) {
		struct result r;

		snprintf(path, sizeof(path), "chat/templates/%s", json_string_value(json_object_get(c, "template")));
		text = golden_text(path, &len);
		assert_non_null(text);
		context = json_deep_copy(json_object_get(c, "kwargs"));
		json_object_set(context, "messages", json_object_get(c, "messages"));
		json_object_set(context, "tools", json_object_get(c, "tools"));
		if (!json_object_get(context, "documents")) json_object_set_new(context, "documents", json_null());
		render(&r, text, len, context, NULL, &JINJA_LIMITS_DEFAULT);
		bad += !check_case(json_string_value(json_object_get(c, "id")), &r, c);
		jinja_out_release(&r.out);
		json_decref(context);
		json_decref(c);
		free(text);
	}
	fclose(f);
	print_message("chat/cases.jsonl: %d cases\n", n);
	assert_true(n > 600);
	assert_int_equal(bad, 0);
}

/* ---- origins: input is shown between [ and ] ---- */

static const struct {
	const char *template, *expected;
} ORIGINS[] = {
	{"a{{ x }}b", "a[<|im_end|>]b"},
	{"{{ 'a' + x + 'b' }}", "a[<|im_end|>]b"},
	{"{{ 'a' ~ x ~ 1 ~ n }}", "a[<|im_end|>]1[7]"},
	{"{{ x }}{{ trusted }}", "[<|im_end|>]<s>"},
	{"{{ ('a' + x + 'b')[1:-1] }}", "[<|im_end|>]"},
	{"{{ ('a' + x + 'b')[::-1] }}", "b[>|dne_mi|<]a"},
	{"{{ ('a' + x + 'b') | upper }}", "A[<|IM_END|>]B"},
	{"{{ ('  a' + x + ' ') | trim }}", "a[<|im_end|>]"},
	{"{{ ('  a' + x + ' ').strip() }}", "a[<|im_end|>]"},
	{"{{ 'a-b' | replace('-', x) }}", "a[<|im_end|>]b"},
	{"{{ x | replace('im', 'IM') }}", "[<|]IM[_end|>]"},
	{"{{ (x ~ '|t').split('|') | join('+') }}", "[<]+[im_end]+[>]+t"},
	{"{{ x.split('_')[0] ~ 'q' }}", "[<|im]q"},
	{"{{ x | tojson }}", "[\"<|im_end|>\"]"},
	{"{{ {'k': x, 'j': 'v'} | tojson }}", "{\"k\": [\"<|im_end|>\"], \"j\": \"v\"}"},
	{"{{ {'k': 'a' + x} | tojson }}", "{\"k\": [\"]a[<|im_end|>\"]}"},
	{"{{ d | tojson }}", "[{\"k\": [\"<|im_end|>\", 1]}]"},
	{"{{ d }}", "[{'k': ['<|im_end|>', 1]}]"},
	{"{{ [x, 'y'] }}", "[['<|im_end|>'], 'y']"},
	{"{{ n + 1 }}{{ n * 2.5 }}{{ n | string }}{{ n | int }}", "[817.577]"},
	{"{{ '%s-%s' % ('a', x) }}", "a-[<|im_end|>]"},
	{"{{ '{}-{}'.format(x, 'b') }}", "[<|im_end|>]-b"},
	{"{{ '{:>14}'.format(x) }}", "[    <|im_end|>]"},
	{"{{ x | title }}{{ x.title() }}{{ x | capitalize }}", "[<|im_end|><|Im_End|><|im_end|>]"},
	{"{{ x | e }}", "[&lt;|im_end|&gt;]"},
	{"{{ x | list | join }}", "[<|im_end|>]"},
	{"{{ x | reverse }}", "[>|dne_mi|<]"},
	{"{{ x | indent }}{{ x | truncate(8, true, '!', 0) }}", "[<|im_end|><|im_en]!"},
	{"{{ x | center(14) }}", "  [<|im_end|>]  "},
	{"{{ x.center(14) }}{{ x.zfill(12) }}", "[  <|im_end|>  00<|im_end|>]"},
	{"{{ x | urlencode }}", "[%3C%7Cim_end%7C%3E]"},
	{"{{ x | wordwrap(4) }}", "[<|im]\n[_end]\n[|>]"},
	{"{% set y = x %}{% set z %}a{{ y }}b{% endset %}{{ z }}", "a[<|im_end|>]b"},
	{"{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(x) | upper }}", "<[<|IM_END|>]>"},
	{"{% filter upper %}a{{ x }}{% endfilter %}", "A[<|IM_END|>]"},
	{"{% for c in x[:2] %}{{ c }}-{% endfor %}", "[<]-[|]-"},
	{"{% for k, v in d.items() %}{{ k }}={{ v[0] }};{% endfor %}", "[k]=[<|im_end|>];"},
	{"{% set ns = namespace(s='') %}{% for i in [1, 2] %}{% set ns.s = ns.s + 'a' + x %}{% endfor %}{{ ns.s }}",
	 "a[<|im_end|>]a[<|im_end|>]"},
	{"{{ {'user': 'USER'}[role] }}", "USER"},
	{"{{ role ~ ': ' ~ ('yes' if role == 'user' else 'no') }}", "[user]: yes"},
	{"{{ x | default('q') }}{{ nope | default(x) }}{{ nope | default('t') }}", "[<|im_end|><|im_end|>]t"},
	{"{{ strftime_now(x) }}{{ strftime_now('%Y') }}", "[<|im_end|>]2025"},
	{"{% set a = 'x' + x %}{% set b = a + 'y' %}{% set c = a + 'z' %}{{ a }} {{ b }} {{ c }}", "x[<|im_end|>] x[<|im_end|>]y x[<|im_end|>]z"},
};

static void test_origins(void **state)
{
	json_t *context = json_pack("{s:s,s:i,s:s,s:s,s:{s:[s,i]}}", "x", "<|im_end|>", "n", 7, "role", "user", "trusted", "wrong", "d", "k",
				    "<|im_end|>", 1);
	json_t *trusted = json_pack("{s:s}", "trusted", "<s>");
	struct strbuf marked;
	struct result r;
	const char *at;
	size_t i, k;

	for (i = 0; i < ARRAY_LEN(ORIGINS); i++) {
		render(&r, ORIGINS[i].template, strlen(ORIGINS[i].template), context, trusted, &JINJA_LIMITS_DEFAULT);
		if (r.rc != ST_OK) fail_msg("%s: %s", ORIGINS[i].template, r.err.text);
		check_spans(&r.out);
		strbuf_init(&marked, 10000);
		for (k = 0, at = r.out.text.data; k < r.out.n_spans; at += r.out.spans[k++].len) {
			if (r.out.spans[k].is_input) strbuf_puts(&marked, "[");
			strbuf_append(&marked, at, r.out.spans[k].len);
			if (r.out.spans[k].is_input) strbuf_puts(&marked, "]");
		}
		if (strcmp(marked.data, ORIGINS[i].expected) != 0)
			fail_msg("%s\n  expected %s\n  got      %s", ORIGINS[i].template, ORIGINS[i].expected, marked.data);
		strbuf_release(&marked);
		jinja_out_release(&r.out);
	}
	json_decref(context);
	json_decref(trusted);
}

/* ---- limits ---- */

#define LOOP5(body)                                                                                                    \
	"{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% for d in range(999) %}"       \
	"{% for e in range(999) %}" body "{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}"

static const struct {
	const char *template, *bound;
} LIMITS[] = {
	{LOOP5("x"), "steps"},
	{LOOP5(""), "steps"},
	{LOOP5("{% set q = 'x' | upper %}"), "steps"},
	{"{% set y = 'y' * 1000 %}{% for i in range(99999) %}{{ y }}{% endfor %}", "longer than"},
	{"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "memory"},
	{"{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "memory"},
	{"{{ [0] * 10000000000 }}", "memory"},
	{"{{ 'x' * 10000000000 }}", "steps"},
	{"{{ 'x'.center(1000000000) }}", "steps"},
	{"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "nested deeper"},
	{"{% macro f(x) %}{% if x %}{% for i in [1] %}{{ f(x) | upper }}{% endfor %}{% endif %}{% endmacro %}{{ f(1) }}", "nested deeper"},
	{"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested deeper"},
	{"{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", "nested deeper"},
	{"{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}", "nested deeper"},
	{"{{ range(1000000) | list }}", "Range too big"},
	{"{{ 2 ** 128 }}", "too large"},
	{"{% set s = 'a ' * 100000 %}{% for i in range(9999) %}{% set x = s.split() %}{% endfor %}", "steps"},
	{"{% set s = ' ' * 100000 %}{% for i in range(99999) %}{% set x = s | trim %}{% endfor %}", "steps"},
	{"{% set s = 'ab' * 100000 %}{% for i in range(99999) %}{{ s[199999 - i] }}{% endfor %}", "steps"},
};

static void test_limits(void **state)
{
	uint64_t start;
	struct result r;
	size_t i;

	for (i = 0; i < ARRAY_LEN(LIMITS); i++) {
		start = clock_now_ns();
		render(&r, LIMITS[i].template, strlen(LIMITS[i].template), NULL, NULL, &JINJA_LIMITS_DEFAULT);
		if (r.rc != ST_LIMIT || !strstr(r.err.text, LIMITS[i].bound))
			fail_msg("%s: %d \"%s\", expected \"%s\"", LIMITS[i].template, r.rc, r.err.text, LIMITS[i].bound);
		assert_int_equal(r.out.text.len, 0);
#ifndef SLUICE_SAN
		/* A generous bound: the machine may be busy. Alone it is a few tenths of a second. */
		if (clock_now_ns() - start > 5 * NS_PER_S) fail_msg("%s: took too long", LIMITS[i].template);
#else
		(void)start;
#endif
		jinja_out_release(&r.out);
	}
}

/* Source that nests or repeats without end must neither overflow the stack nor take long. */
static void test_hostile_sources(void **state)
{
	static const struct {
		const char *before, *repeated, *middle, *closing, *after;
	} SOURCES[] = {
		{"{{ ", "(", "1", ")", " }}"},	      {"{{ ", "[", "", "]", " }}"},	      {"{{ ", "{1:", "1", "}", " }}"},
		{"{{ ", "not ", "1", "", " }}"},      {"{{ ", "- ", "1", "", " }}"},	      {"{{ 1", " + 1", "", "", " }}"},
		{"{{ x", ".a", "", "", " }}"},	      {"{{ x", "[0]", "", "", " }}"},	      {"{{ x", "()", "", "", " }}"},
		{"{{ 'x'", " | trim", "", "", " }}"}, {"{{ 1", " if 1 else 2", "", "", " }}"}, {"{{ 1", " is none", "", "", " }}"},
		{"{{ f(", "f(", "", ")", ") }}"},     {"", "{% if true %}", "", "{% endif %}", ""}, {"", "{% for a in b %}", "", "{% endfor %}", ""},
		{"", "{% macro a() %}", "", "{% endmacro %}", ""}, {"{{ 1", " and 1", "", "", " }}"}, {"{{ 1", " < 1", "", "", " }}"},
		{"{{ x[", "::", "", "", "] }}"},      {"", "{% set a %}", "", "{% endset %}", ""}, {"{{ 1", " ** 1", "", "", " }}"},
		{"{% if 0 %}", "{% elif 0 %}", "", "", "{% endif %}"},
	};
	struct strbuf s;
	struct result r;
	size_t i, k;

	for (i = 0; i < ARRAY_LEN(SOURCES); i++) {
		strbuf_init(&s, MIB);
		strbuf_puts(&s, SOURCES[i].before);
		for (k = 0; k < 20000; k++) strbuf_puts(&s, SOURCES[i].repeated);
		strbuf_puts(&s, SOURCES[i].middle);
		for (k = 0; k < 20000; k++) strbuf_puts(&s, SOURCES[i].closing);
		strbuf_puts(&s, SOURCES[i].after);
		render(&r, s.data, s.len, NULL, NULL, &JINJA_LIMITS_DEFAULT);
		if (r.rc != ST_OK) assert_true(r.err.text[0] != 0);
		jinja_out_release(&r.out);
		strbuf_release(&s);
	}
}

/* With tiny limits every step of a render fails once. */
static void test_limits_anywhere(void **state)
{
	static const char TEMPLATE[] = "{% macro m(a, b=[1]) %}{{ a ~ b | tojson(indent=2) }}{% endmacro %}{% for x in l | sort | map('string') %}"
				       "{% set s = x.split('a') | join('-') | upper %}{{ m(s) }}{% filter upper %}{{ d }}{% endfilter %}"
				       "{{ '%05d %s' % (3, x) }}{{ '{:>9}'.format(s) }}{{ l[::-1] | tojson }}{% endfor %}";
	json_t *context = json_pack("{s:[s,s,s],s:{s:[i,n,s]}}", "l", "bab", "a", "cc", "d", "k", 1, "x");
	struct jinja_limits limits = {.output_max = MIB, .memory_max = MIB, .depth_max = 100};
	struct result r;
	int n_limit = 0;

	for (limits.steps_max = 0;; limits.steps_max += 7) {
		render(&r, TEMPLATE, strlen(TEMPLATE), context, NULL, &limits);
		jinja_out_release(&r.out);
		if (r.rc == ST_OK) break;
		assert_int_equal(r.rc, ST_LIMIT);
		n_limit++;
	}
	assert_true(n_limit > 20);
	limits.steps_max = 1000000;
	for (limits.memory_max = 0; limits.memory_max < 100000; limits.memory_max += 256) {
		render(&r, TEMPLATE, strlen(TEMPLATE), context, NULL, &limits);
		jinja_out_release(&r.out);
		if (r.rc == ST_OK) break;
		assert_int_equal(r.rc, ST_LIMIT);
	}
	limits.memory_max = MIB;
	for (limits.depth_max = 0; limits.depth_max < 50; limits.depth_max++) {
		render(&r, TEMPLATE, strlen(TEMPLATE), context, NULL, &limits);
		jinja_out_release(&r.out);
	}
	for (limits.output_max = 0; limits.output_max < 300; limits.output_max++) {
		render(&r, TEMPLATE, strlen(TEMPLATE), context, NULL, &limits);
		jinja_out_release(&r.out);
	}
	json_decref(context);
}

/* ---- errors ---- */

static const struct {
	const char *template;
	int rc;
	const char *text;
} ERRORS[] = {
	{"a\nb\n{% if %}", ST_INVALID, "line 3: expected an expression, got %}"},
	{"a\n{{ x", ST_INVALID, "line 2: expected \"}}\", got end of template"},
	{"\n\n{% for x in l %}no end", ST_INVALID, "line 3: the template ended inside the block \"for\": \"endfor\" is missing"},
	{"{% nope %}", ST_INVALID, "line 1: unknown tag \"nope\""},
	{"{% if 1 %}\n{% endfor %}", ST_INVALID, "line 2: unknown tag \"endfor\"; the innermost block that is open is \"if\""},
	{"{{ 1 | nope }}", ST_INVALID, "line 1: no filter named \"nope\""},
	{"{{ 1 is nope }}", ST_INVALID, "line 1: no test named \"nope\""},
	{"{% include 'x' %}", ST_UNSUPPORTED, "line 1: the tag \"include\" is not supported"},
	{"{{ (1 }}", ST_INVALID, "line 1: unexpected \"}\""},
	{"{{ 'abc }}", ST_INVALID, "line 1: a string is not closed: ' is missing"},
	{"{# abc", ST_INVALID, "line 1: a comment is not closed: \"#}\" is missing"},
	{"{% break %}", ST_INVALID, "line 1: \"break\" outside of a loop"},
	{"\n{{ $ }}", ST_INVALID, "line 2: unexpected character \"$\""},
	{"ok \xff", ST_INVALID, "line 1: the text is not valid UTF-8"},
	{"a\n\n{{ nope.x }}", ST_INVALID, "line 3: 'nope' is undefined"},
	{"{{ {}.a.b }}", ST_INVALID, "line 1: 'dict object' has no attribute 'a'"},
	{"{{ [].append(1) }}", ST_INVALID, "line 1: access to attribute 'append' of 'list' object is unsafe"},
	{"\n{{ raise_exception('Roles must alternate') }}", ST_INVALID, "Roles must alternate"},
};

static void test_errors(void **state)
{
	struct result r;
	size_t i;

	for (i = 0; i < ARRAY_LEN(ERRORS); i++) {
		render(&r, ERRORS[i].template, strlen(ERRORS[i].template), NULL, NULL, &JINJA_LIMITS_DEFAULT);
		if (r.rc != ERRORS[i].rc || strcmp(r.err.text, ERRORS[i].text) != 0)
			fail_msg("%s: %d \"%s\", expected %d \"%s\"", ERRORS[i].template, r.rc, r.err.text, ERRORS[i].rc, ERRORS[i].text);
		assert_int_equal(r.raised, strstr(ERRORS[i].template, "raise_exception") != NULL);
		jinja_out_release(&r.out);
	}
}

static void test_large_template_is_refused(void **state)
{
	char *text = calloc(1, MIB);
	struct result r;

	memset(text, 'a', MIB);
	render(&r, text, MIB, NULL, NULL, &JINJA_LIMITS_DEFAULT);
	assert_int_equal(r.rc, ST_LIMIT);
	free(text);
}

/* A template is immutable: renders do not see each other. */
static void test_renders_are_independent(void **state)
{
	static const char TEMPLATE[] = "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x }}";
	json_t *context = json_pack("{s:s}", "x", "v");
	struct errbuf err;
	struct jinja_out out;
	struct jinja *t;
	bool raised;
	int i;

	assert_int_equal(jinja_compile(&t, TEMPLATE, strlen(TEMPLATE), &err), ST_OK);
	jinja_out_init(&out);
	for (i = 0; i < 3; i++) {
		assert_int_equal(jinja_render(t, context, NULL, 0, &JINJA_LIMITS_DEFAULT, &out, &raised, &err), ST_OK);
		assert_string_equal(out.text.data, "1v");
	}
	jinja_out_release(&out);
	jinja_free(t);
	json_decref(context);
}

static void test_jsonbig(void **state)
{
	static const struct {
		const char *json, *expected;
	} CASES[] = {
		{"{\"a\": 12345678901234567890, \"s\": \"12345678901234567890\"}", "12345678901234567890 12345678901234567890"},
		{"{\"a\": -9223372036854775808, \"s\": \"\\\"\"}", "-9223372036854775808 \""},
		{"{\"a\": 9223372036854775808, \"s\": 1e3}", "9223372036854775808 1000.0"},
		{"{\"a\": [1, 170141183460469231731687303715884105727], \"s\": 1234567890123456789.5}",
		 "[1, 170141183460469231731687303715884105727] 1.2345678901234568e+18"},
	};
	static const char TEMPLATE[] = "{{ a }} {{ s }}";
	struct result r;
	json_error_t e;
	json_t *j;
	size_t i;

	for (i = 0; i < ARRAY_LEN(CASES); i++) {
		j = jsonbig_load(CASES[i].json, strlen(CASES[i].json), 0, &e);
		assert_non_null(j);
		render(&r, TEMPLATE, strlen(TEMPLATE), j, NULL, &JINJA_LIMITS_DEFAULT);
		assert_string_equal(r.out.text.data, CASES[i].expected);
		jinja_out_release(&r.out);
		json_decref(j);
	}
	assert_null(jsonbig_load("{\"a\": 1e999}", 12, 0, &e));
	assert_null(jsonbig_load("{\"a\": 99999999999999999999", 26, 0, &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_features),
		cmocka_unit_test(test_recorded_features),
		cmocka_unit_test(test_golden_templates),
		cmocka_unit_test(test_origins),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_hostile_sources),
		cmocka_unit_test(test_limits_anywhere),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_large_template_is_refused),
		cmocka_unit_test(test_renders_are_independent),
		cmocka_unit_test(test_jsonbig),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
