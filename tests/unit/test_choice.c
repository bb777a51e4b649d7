/* test_choice.c - tokens of one choice become text, reasoning and calls: stop strings and ids, control tokens, counts, how it ends. */
#include "frontend/choice.h"

#include "common/utf8.h"
#include "frontend/vocab.h"
#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A token a byte, then control tokens. */
enum { END = 256, CALLS, THINK, THINK_END, N_TOKENS };
static struct tokenizer *tokenizer;

/* In scripts: bytes 1 to 4 are the control tokens. */
#define S_END "\x01"
#define S_CALLS "\x02"
#define S_THINK "\x03"
#define S_THINK_END "\x04"

static const struct row {
	const char *name;
	const char *script;  /* tokens */
	const char *want;    /* t:text r:reasoning c:name a:arguments, in order */
	const char *finish;
	enum finish end;     /* what the engine says after the script; NONE: a stop string ended it */
	const char *stop;    /* stop strings, separated by | */
	bool keep, show_special, hide_reasoning, as_stop;
	uint32_t output_min;
	int64_t client_stop; /* 0: none */
	enum outparse_tools tools;
	enum outparse_reasoning reasoning;
	const char *named, *stop_text;
	uint32_t n_output, n_reasoning; /* 0: not checked */
} rows[] = {
	{.name = "plain", .script = "abc", .want = "t:abc", .finish = "length", .end = FINISH_LENGTH, .n_output = 3},
	{.name = "nothing", .script = "", .want = "", .finish = "stop", .end = FINISH_STOP},
	{.name = "ended by the model", .script = "ab" S_END, .want = "t:ab", .finish = "stop", .end = FINISH_STOP, .n_output = 3},
	{.name = "its end is shown", .script = "ab" S_END, .want = "t:ab<|end|>", .finish = "stop", .end = FINISH_STOP, .keep = true, .show_special = true},
	{.name = "its end is a control token", .script = "ab" S_END, .want = "t:ab", .finish = "stop", .end = FINISH_STOP, .keep = true},
	{.name = "stop id", .script = "abx", .want = "t:ab", .finish = "stop", .end = FINISH_STOP, .client_stop = 'x'},
	{.name = "stop id is shown", .script = "abx", .want = "t:abx", .finish = "stop", .end = FINISH_STOP, .client_stop = 'x', .keep = true},
	{.name = "stop id, too early", .script = "axb", .want = "t:axb", .finish = "length", .end = FINISH_LENGTH, .client_stop = 'x', .output_min = 2},
	{.name = "stop string", .script = "one two", .want = "t:one", .finish = "stop", .end = FINISH_NONE, .stop = "x| t", .stop_text = " t"},
	{.name = "stop string is kept", .script = "one two", .want = "t:one t", .finish = "stop", .end = FINISH_NONE, .stop = " t", .keep = true, .stop_text = " t"},
	{.name = "part of a stop string", .script = "one ", .want = "t:one ", .finish = "length", .end = FINISH_LENGTH, .stop = " t"},
	{.name = "stop string, too early", .script = "abab", .want = "t:aba", .finish = "stop", .end = FINISH_NONE, .stop = "b", .output_min = 3, .stop_text = "b"},
	{.name = "half a character", .script = "a\xe2\x82", .want = "t:a\xef\xbf\xbd", .finish = "length", .end = FINISH_LENGTH},
	{.name = "half a character is a stop string", .script = "a\xe2\x82", .want = "t:a", .finish = "stop", .end = FINISH_LENGTH, .stop = "\xef\xbf\xbd",
	 .stop_text = "\xef\xbf\xbd"},
	{.name = "control tokens hide", .script = "a" S_CALLS "b", .want = "t:ab", .finish = "length", .end = FINISH_LENGTH},
	{.name = "control tokens show", .script = "a" S_CALLS "b", .want = "t:a[TOOL_CALLS]b", .finish = "length", .end = FINISH_LENGTH, .show_special = true},
	{.name = "a hidden one does not part a stop string", .script = "xa" S_CALLS "bx", .want = "t:x", .finish = "stop", .end = FINISH_NONE, .stop = "ab",
	 .stop_text = "ab"},
	{.name = "reasoning", .script = S_THINK "hm" S_THINK_END "ok", .want = "r:hm t:ok", .finish = "length", .end = FINISH_LENGTH,
	 .reasoning = OUTPARSE_REASONING_THINK, .n_output = 6, .n_reasoning = 3},
	{.name = "reasoning is hidden", .script = S_THINK "hm" S_THINK_END "ok", .want = "t:ok", .finish = "length", .end = FINISH_LENGTH,
	 .reasoning = OUTPARSE_REASONING_THINK, .hide_reasoning = true, .n_output = 6, .n_reasoning = 3},
	{.name = "reasoning that does not end is hidden", .script = S_THINK "hm", .want = "", .finish = "length", .end = FINISH_LENGTH,
	 .reasoning = OUTPARSE_REASONING_THINK, .hide_reasoning = true},
	{.name = "what was held back of it is hidden, too", .script = S_THINK "hm<", .want = "", .finish = "length", .end = FINISH_LENGTH,
	 .reasoning = OUTPARSE_REASONING_THINK, .hide_reasoning = true},
	{.name = "a stop string in reasoning", .script = S_THINK "hmx", .want = "r:h", .finish = "stop", .end = FINISH_NONE, .stop = "m",
	 .reasoning = OUTPARSE_REASONING_THINK, .stop_text = "m"},
	{.name = "a marker parts a stop string", .script = S_THINK "a" S_THINK_END "b", .want = "r:a t:b", .finish = "length", .end = FINISH_LENGTH, .stop = "ab",
	 .reasoning = OUTPARSE_REASONING_THINK},
	{.name = "call behind a control token", .script = "x" S_CALLS "[{\"name\":\"f\",\"arguments\":{\"a\":1}}]" S_END, .want = "t:x c:f a:{\"a\":1}",
	 .finish = "tool_calls", .end = FINISH_STOP, .tools = OUTPARSE_TOOLS_MISTRAL},
	{.name = "call that is cut off", .script = S_CALLS "[{\"name\":\"f\",\"arguments\":{\"a\":", .want = "c:f a:{\"a\":", .finish = "length",
	 .end = FINISH_LENGTH, .tools = OUTPARSE_TOOLS_MISTRAL},
	{.name = "required call", .script = "[{\"name\":\"f\",\"parameters\":{}}]" S_END, .want = "c:f a:{}", .finish = "tool_calls", .end = FINISH_STOP,
	 .tools = OUTPARSE_TOOLS_JSON},
	{.name = "named call", .script = "{\"a\":1}" S_END, .want = "c:f a:{\"a\":1}", .finish = "stop", .end = FINISH_STOP, .named = "f", .as_stop = true},
};

static void show(const struct pieces *p, char *out, size_t cap)
{
	size_t i, n = 0;

	*out = 0;
	for (i = 0; i < p->n && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%c:%.*s", i ? " " : "", "trca"[p->list[i].kind], (int)p->list[i].text.len, p->list[i].text.data);
}

static void rules_init(struct choice_rules *r, const struct row *row)
{
	const char *s = row->stop;

	*r = (struct choice_rules){.tokenizer = tokenizer, .stop_ids = {END, (uint32_t)row->client_stop}, .n_model_stop = 1,
				   .n_stop_ids = row->client_stop ? 2 : 1, .output_min = row->output_min, .skip_special = !row->show_special,
				   .hide_reasoning = row->hide_reasoning, .calls_end_as_stop = row->as_stop};
	stopstr_set_init(&r->stops, row->keep);
	for (; s && *s; s += *s == '|') {
		size_t n = strcspn(s, "|");

		stopstr_set_add(&r->stops, s, n);
		s += n;
	}
}

static uint32_t token_of(char c)
{
	return c >= 1 && c <= 4 ? END + (uint32_t)c - 1 : (uint32_t)(unsigned char)c;
}

static void take(struct pieces *said, struct pieces *all)
{
	size_t i;

	for (i = 0; i < said->n; i++) {
		struct strbuf *t = &said->list[i].text;

		switch (said->list[i].kind) {
		case PIECE_TEXT: pieces_text(all, t->data, t->len); break;
		case PIECE_REASONING: pieces_reasoning(all, t->data, t->len); break;
		case PIECE_CALL: (void)pieces_call(all, t->data, t->len, 1); break;
		case PIECE_ARGS: pieces_args(all, t->data, t->len); break;
		}
	}
	pieces_reset(said);
}

/* taken: the pieces are taken after every token, as by a fast reader. */
static void run(const struct row *row, bool taken, char *got, size_t cap)
{
	struct outparse_config parse = {.tools = row->tools, .reasoning = row->reasoning, .named = row->named, .random = 5};
	bool parses = row->tools || row->reasoning || row->named, found = false;
	struct choice_rules rules;
	struct pieces said, all;
	struct answer_end end;
	struct choice c;
	size_t i;

	rules_init(&rules, row);
	pieces_init(&said);
	pieces_init(&all);
	choice_init(&c, &rules, parses ? &parse : NULL, &said);
	for (i = 0; row->script[i] && !found; i++) {
		found = choice_push(&c, token_of(row->script[i]));
		if (taken) take(&said, &all);
	}
	if (!found) choice_finish(&c, row->end);
	take(&said, &all);
	show(&all, got, cap);
	end = choice_end(&c);
	if (found != (row->end == FINISH_NONE) || strcmp(end.finish, row->finish) != 0) fail_msg("%s: %s", row->name, end.finish);
	assert_int_equal(end.stop_text_len, row->stop_text ? strlen(row->stop_text) : 0);
	if (row->stop_text) assert_memory_equal(end.stop_text, row->stop_text, end.stop_text_len);
	else assert_null(end.stop_text);
	assert_int_equal(end.stop_id, row->client_stop && row->end == FINISH_STOP ? row->client_stop : -1);
	if (row->n_output) assert_int_equal(c.n_output, row->n_output);
	if (row->n_reasoning) assert_int_equal(c.n_reasoning, row->n_reasoning);
	choice_release(&c);
	pieces_release(&said);
	pieces_release(&all);
	choice_rules_release(&rules);
}

static void test_rows(void **state)
{
	char got[512];
	size_t i;
	int taken;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		for (taken = 0; taken < 2; taken++) {
			run(&rows[i], taken, got, sizeof(got));
			if (strcmp(got, rows[i].want) != 0) fail_msg("%s, taken %d: \"%s\"", rows[i].name, taken, got);
		}
	}
}

/* What cannot be anything else is there at once. */
static void test_nothing_waits(void **state)
{
	static const struct row row = {.script = ""};
	struct choice_rules rules;
	struct pieces said;
	struct choice c;

	rules_init(&rules, &row);
	pieces_init(&said);
	choice_init(&c, &rules, NULL, &said);
	assert_false(choice_push(&c, 'a'));
	assert_int_equal(pieces_bytes(&said), 1);
	assert_false(choice_push(&c, 0xe2));
	assert_int_equal(pieces_bytes(&said), 1);
	assert_false(choice_push(&c, 0x82));
	assert_false(choice_push(&c, 0xac));
	assert_int_equal(pieces_bytes(&said), 4);
	choice_release(&c);
	pieces_release(&said);
	choice_rules_release(&rules);
}

static void test_nothing_is_left(void **state)
{
	char got[512];
	size_t i, before = 0;
	int round;

	for (round = 0; round < 2; round++) { /* the first one fills what the C library keeps */
		before = leak_bytes_used();
		for (i = 0; i < ARRAY_LEN(rows); i++) run(&rows[i], false, got, sizeof(got));
	}
	assert_int_equal(leak_bytes_used(), before);
}

static int setup(void **state)
{
	static const char *const special[] = {"<|end|>", "[TOOL_CALLS]", "<think>", "</think>"};
	struct gguf_str tokens[N_TOKENS];
	int32_t types[N_TOKENS];
	char spelled[256][4];
	unsigned next = 256, b;
	struct errbuf err;
	struct vocab_lists l = {.file = "test", .pre = "gpt-2", .tokens = tokens, .n_tokens = N_TOKENS, .types = types, .bos = TOKEN_NONE,
				.eos = END, .eot = TOKEN_NONE, .eom = TOKEN_NONE, .add_bos = 0};

	for (b = 0; b < 256; b++) {
		bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

		tokens[b] = (struct gguf_str){spelled[b], (size_t)utf8_encode(printable ? b : next++, spelled[b])};
		types[b] = 1;
	}
	for (b = 0; b < ARRAY_LEN(special); b++) {
		tokens[END + b] = (struct gguf_str){special[b], strlen(special[b])};
		types[END + b] = 3;
	}
	return tokenizer_from_lists(&tokenizer, &l, &err) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
	tokenizer_free(tokenizer);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_nothing_waits),
		cmocka_unit_test(test_nothing_is_left),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
