/* test_outparse.c - reasoning and tool calls in a model's raw output: what comes out is the same however the output is cut into
 * pieces, nothing is lost, and what is no call stays text. */
#include "frontend/calljson.h"
#include "frontend/outparse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DS(word) "<\xef\xbd\x9c" word "\xef\xbd\x9c>"
#define DS_CALLS_BEGIN DS("tool\xe2\x96\x81" "calls\xe2\x96\x81" "begin")
#define DS_CALLS_END DS("tool\xe2\x96\x81" "calls\xe2\x96\x81" "end")
#define DS_CALL_BEGIN DS("tool\xe2\x96\x81" "call\xe2\x96\x81" "begin")
#define DS_CALL_END DS("tool\xe2\x96\x81" "call\xe2\x96\x81" "end")
#define DS_SEP DS("tool\xe2\x96\x81" "sep")

struct sample {
	const char *output;
	const char *expected; /* [text](reasoning){name: args}, joined neighbours */
};

/* The pieces as one readable text. Ids are checked and left out. */
static void show(const struct pieces *p, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < p->n; i++) {
		const struct piece *x = &p->list[i];
		const char *text = x->text.data ? x->text.data : "";

		switch (x->kind) {
		case PIECE_TEXT:
			strbuf_printf(out, "[%s]", text);
			break;
		case PIECE_REASONING:
			strbuf_printf(out, "(%s)", text);
			break;
		case PIECE_CALL:
			assert_int_equal(strlen(x->id), PIECES_ID_LEN);
			strbuf_printf(out, "%u%s:", x->call, text);
			break;
		case PIECE_ARGS:
			strbuf_puts(out, text);
			break;
		}
	}
}

/* Cut into parts of `step` bytes; 0: at random. */
static void parse(const struct outparse_config *cfg, const char *output, size_t step, struct strbuf *out)
{
	struct outparse *p = outparse_new(cfg);
	size_t len = strlen(output), at = 0;
	struct pieces said;

	pieces_init(&said);
	while (at < len) {
		size_t n = step ? step : 1 + (size_t)(rand() % 7);

		if (n > len - at) n = len - at;
		outparse_push(p, output + at, n, &said);
		at += n;
	}
	outparse_finish(p, &said);
	outparse_free(p);
	strbuf_reset(out);
	strbuf_puts(out, "");
	show(&said, out);
	pieces_release(&said);
}

static void check(const struct outparse_config *cfg, const struct sample *samples, size_t n)
{
	struct strbuf got;
	size_t i, step;

	strbuf_init(&got, MIB);
	for (i = 0; i < n; i++) {
		for (step = 0; step < 64; step++) {
			parse(cfg, samples[i].output, step < 24 ? step : step % 2 ? 0 : 1000, &got);
			if (strcmp(got.data ? got.data : "", samples[i].expected) != 0)
				fail_msg("sample %zu, parts of %zu bytes:\n  output   %s\n  expected %s\n  got      %s", i, step, samples[i].output,
					 samples[i].expected, got.data);
		}
	}
	strbuf_release(&got);
}

static void without_formats_all_is_text(void **state)
{
	static const struct outparse_config cfg = {0};
	static const struct sample samples[] = {
		{"", ""},
		{"Hello", "[Hello]"},
		{" <think>x</think> <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "[ <think>x</think> <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>]"},
		{"  \n", "[  \n]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void reasoning_is_taken_apart(void **state)
{
	static const struct outparse_config cfg = {.reasoning = OUTPARSE_REASONING_THINK};
	static const struct sample samples[] = {
		{"<think>\nHm.\n</think>\n\nHello", "(Hm.)[Hello]"},
		{"\n<think>a<b</thinx</think>c</think>", "(a<b</thinx)[c</think>]"},
		{"<think></think>x", "[x]"},
		{"<think>no end", "(no end)"},
		{"<think>no end</thi", "(no end</thi)"},
		{"<thin", "[<thin]"},
		{"Hello <think>x</think>", "[Hello <think>x</think>]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void reasoning_may_have_begun_in_the_prompt(void **state)
{
	static const struct outparse_config cfg = {.reasoning = OUTPARSE_REASONING_THINK, .in_reasoning = true};
	static const struct sample samples[] = {
		{"\nHm. </think>\nHello", "(Hm.)[Hello]"},
		{"only thought", "(only thought)"},
		{"</think>x", "[x]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void hermes_calls(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_HERMES, .reasoning = OUTPARSE_REASONING_THINK};
	static const struct sample samples[] = {
		{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>", "0f:{\"a\": [1, \"}\"]}"},
		{"Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"arguments\": {\"x\": \"\\\"\"}, \"name\": \"g\"}</tool_call>\n",
		 "[Let me see.]0f:{}1g:{\"x\": \"\\\"\"}"},
		{"<think>a</think><tool_call>{\"name\":\"f\"}</tool_call>", "(a)0f:{}"},
		{"<tool_call>{\"name\":\"f\",\"id\":7,\"arguments\":{\"a\":1}}", "0f:{\"a\":1}"},
		{"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1", "0f:{\"a\":1"},
		{"<tool_call>nothing</tool_call>", "[<tool_call>nothing</tool_call>]"},
		{"<tool_call>{\"name\": 7}</tool_call> x", "[<tool_call>{\"name\": 7}</tool_call> x]"},
		{"<tool_call>{\"na", "[<tool_call>{\"na]"},
		{"a < b <tool_cal", "[a < b <tool_cal]"},
		{"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "0f:{\"a\": 1}"},
		{"<tool_call>{\"name\": \"\\u0066\", \"arguments\": {}}</tool_call>and more", "0f:{}[and more]"},
		{"<tool_call>{\"name\": \"f\", \"arguments\": {}} forgot", "0f:{}[forgot]"},
		{"<tool_call>{\"name\": \"f\", \"arguments\": 3 }</tool_call>", "0f:3"},
		{"<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>", "[<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void llama3_calls(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_LLAMA3};
	static const struct sample samples[] = {
		{"{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "0f:{\"a\": 1}"},
		{"<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"b\": {}}}", "0f:{}1g:{\"b\": {}}"},
		{"\n {\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "0f:{}"},
		{"{\"name\": \"Bob\", \"age\": 3}", "[{\"name\": \"Bob\", \"age\": 3}]"},
		{"{not json}", "[{not json}]"},
		{"Text {\"name\": \"f\", \"parameters\": {}}", "[Text {\"name\": \"f\", \"parameters\": {}}]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void mistral_calls(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_MISTRAL};
	static const struct sample samples[] = {
		{"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]", "0f:{\"a\": [1]}1g:{}"},
		{"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]", "0f:{}"},
		{"Well. [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}", "[Well.]0f:{\"a\": 1}1g:{}"},
		{"[TOOL_CALLS]f{\"a\": \"}\"}", "0f:{\"a\": \"}\"}"},
		{"[TOOL_CALLS]", "[[TOOL_CALLS]]"},
		{"[TOOL", "[[TOOL]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void deepseek_calls(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_DEEPSEEK, .reasoning = OUTPARSE_REASONING_THINK};
	static const struct sample samples[] = {
		{DS_CALLS_BEGIN DS_CALL_BEGIN "function" DS_SEP "f\n```json\n{\"a\": 1}\n```" DS_CALL_END "\n" DS_CALL_BEGIN "function" DS_SEP
				"g\n```json\n{}\n```" DS_CALL_END DS_CALLS_END,
		 "0f:{\"a\": 1}1g:{}"},
		{"<think>x</think>I look." DS_CALLS_BEGIN DS_CALL_BEGIN "f" DS_SEP "{\"a\": {\"b\": \"`\"}}" DS_CALL_END DS_CALLS_END,
		 "(x)[I look.]0f:{\"a\": {\"b\": \"`\"}}"},
		{"<\xef\xbd\x9ctool", "[<\xef\xbd\x9ctool]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void a_forced_list_is_calls(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_JSON};
	static const struct sample samples[] = {
		{"[{\"name\": \"f\", \"parameters\": {\"a\": 1}}, {\"name\": \"g\", \"parameters\": {}}]", "0f:{\"a\": 1}1g:{}"},
		{" [ {\"name\": \"f\",\n \"parameters\": {}} ]\n", "0f:{}"},
		{"[{\"nam", "[[{\"nam]"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void a_named_function_gets_everything(void **state)
{
	static const struct outparse_config cfg = {.named = "f"};
	static const struct outparse_config thinking = {.named = "f", .reasoning = OUTPARSE_REASONING_THINK, .in_reasoning = true};
	static const struct sample samples[] = {{" {\"a\": 1}", "0f:{\"a\": 1}"}};
	static const struct sample thoughts[] = {{"so</think>\n{\"a\": 1}", "(so)0f:{\"a\": 1}"}};

	check(&cfg, samples, ARRAY_LEN(samples));
	check(&thinking, thoughts, ARRAY_LEN(thoughts));
}

static void calls_may_be_limited_to_one(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_HERMES, .calls_max = 1};
	static const struct sample samples[] = {
		{"<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"g\",\"arguments\":{\"a\":1}}</tool_call>", "0f:{}"},
	};

	check(&cfg, samples, ARRAY_LEN(samples));
}

static void control_tokens_count_where_they_mean_something(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_MISTRAL, .reasoning = OUTPARSE_REASONING_THINK};
	struct outparse *p = outparse_new(&cfg);
	struct strbuf got;
	struct pieces said;

	strbuf_init(&got, KIB);
	pieces_init(&said);
	assert_true(outparse_special(p, "<think>", 7, &said));
	outparse_push(p, "a", 1, &said);
	assert_true(outparse_special(p, "</think>", 8, &said));
	assert_false(outparse_special(p, "<tool_call>", 11, &said));
	assert_false(outparse_special(p, "</s>", 4, &said));
	assert_true(outparse_special(p, "[TOOL_CALLS]", 12, &said));
	outparse_push(p, "f", 1, &said);
	assert_true(outparse_special(p, "[ARGS]", 6, &said));
	outparse_push(p, "{}", 2, &said);
	outparse_finish(p, &said);
	show(&said, &got);
	assert_string_equal(got.data, "(a)0f:{}");
	outparse_free(p);
	pieces_release(&said);
	strbuf_release(&got);
}

static void a_call_is_passed_on_before_it_is_whole(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_HERMES};
	static const char part[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a";
	struct outparse *p = outparse_new(&cfg);
	struct pieces said;

	pieces_init(&said);
	outparse_push(p, part, strlen(part), &said);
	assert_int_equal(said.n, 2);
	assert_string_equal(said.list[0].text.data, "f");
	assert_string_equal(said.list[1].text.data, "{\"a");
	outparse_free(p);
	pieces_release(&said);
}

static void more_calls_than_the_limit_are_dropped(void **state)
{
	static const struct outparse_config cfg = {.tools = OUTPARSE_TOOLS_HERMES};
	static const char one[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
	struct outparse *p = outparse_new(&cfg);
	struct pieces said;
	int i;

	pieces_init(&said);
	for (i = 0; i < PIECES_CALLS_MAX + 10; i++) outparse_push(p, one, strlen(one), &said);
	outparse_finish(p, &said);
	assert_int_equal(said.n_calls, PIECES_CALLS_MAX);
	assert_int_equal(said.n, 2 * PIECES_CALLS_MAX);
	outparse_free(p);
	pieces_release(&said);
}

/* Any bytes: no crash, no loss of text outside of calls. */
static void noise_is_survived(void **state)
{
	static const char *const words[] = {"<tool_call>", "</tool_call>", "{", "}", "\"name\"", ":", "\"f\"", ",", "\"arguments\"", " ", "\n", "<think>",
					    "</think>", "[TOOL_CALLS]", "[ARGS]", "[", "]", "\\", "\"", "x", DS_CALLS_BEGIN, DS_CALL_BEGIN, DS_SEP, ";"};
	struct strbuf text, got;
	int round, i;

	strbuf_init(&text, MIB);
	strbuf_init(&got, MIB);
	for (round = 0; round < 20000; round++) {
		struct outparse_config cfg = {.tools = (enum outparse_tools)(rand() % 6),
					      .reasoning = (enum outparse_reasoning)(rand() % 2),
					      .in_reasoning = rand() % 2,
					      .calls_max = (uint32_t)(rand() % 2)};
		struct strbuf first;

		strbuf_reset(&text);
		for (i = rand() % 24; i >= 0; i--) strbuf_puts(&text, words[(size_t)rand() % ARRAY_LEN(words)]);
		strbuf_init(&first, MIB);
		parse(&cfg, text.data, 1000, &first);
		parse(&cfg, text.data, 1, &got);
		if (strcmp(first.data ? first.data : "", got.data ? got.data : "") != 0)
			fail_msg("whole and in bytes differ (tools %d):\n  %s\n  %s\n  %s", cfg.tools, text.data, first.data, got.data);
		strbuf_release(&first);
	}
	strbuf_release(&text);
	strbuf_release(&got);
}

static void templates_tell_their_formats(void **state)
{
	static const char hermes[] = "{%- if tools %}<tool_call>{% endif %}<think></think>", llama[] = "<|start_header_id|>{% if tools %}\"parameters\"",
			  plain[] = "{{ messages }}", mistral[] = "[AVAILABLE_TOOLS][TOOL_CALLS]", ds[] = DS_CALL_BEGIN;

	assert_int_equal(outparse_tools_of(hermes, strlen(hermes)), OUTPARSE_TOOLS_HERMES);
	assert_int_equal(outparse_tools_of(llama, strlen(llama)), OUTPARSE_TOOLS_LLAMA3);
	assert_int_equal(outparse_tools_of(mistral, strlen(mistral)), OUTPARSE_TOOLS_MISTRAL);
	assert_int_equal(outparse_tools_of(ds, strlen(ds)), OUTPARSE_TOOLS_DEEPSEEK);
	assert_int_equal(outparse_tools_of(plain, strlen(plain)), OUTPARSE_TOOLS_NONE);
	assert_int_equal(outparse_tools_of(NULL, 0), OUTPARSE_TOOLS_NONE);
	assert_int_equal(outparse_reasoning_of(hermes, strlen(hermes)), OUTPARSE_REASONING_THINK);
	assert_int_equal(outparse_reasoning_of(plain, strlen(plain)), OUTPARSE_REASONING_NONE);
	assert_true(outparse_ends_in_reasoning("x<think>\n", 9));
	assert_false(outparse_ends_in_reasoning("x<think>\n\n</think>\n\n", 20));
	assert_false(outparse_ends_in_reasoning("", 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_formats_all_is_text),
		cmocka_unit_test(reasoning_is_taken_apart),
		cmocka_unit_test(reasoning_may_have_begun_in_the_prompt),
		cmocka_unit_test(hermes_calls),
		cmocka_unit_test(llama3_calls),
		cmocka_unit_test(mistral_calls),
		cmocka_unit_test(deepseek_calls),
		cmocka_unit_test(a_forced_list_is_calls),
		cmocka_unit_test(a_named_function_gets_everything),
		cmocka_unit_test(calls_may_be_limited_to_one),
		cmocka_unit_test(control_tokens_count_where_they_mean_something),
		cmocka_unit_test(a_call_is_passed_on_before_it_is_whole),
		cmocka_unit_test(more_calls_than_the_limit_are_dropped),
		cmocka_unit_test(noise_is_survived),
		cmocka_unit_test(templates_tell_their_formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
