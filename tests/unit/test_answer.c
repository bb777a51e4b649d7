/* test_answer.c - the exact bytes of answers: documents and event streams of OpenAI's two shapes, with many choices, tool
 * calls, reasoning and log-probabilities; errors, escapes. */
#include "frontend/answer.h"

#include "common/mem.h"
#include "frontend/jsonout.h"
#include "tests/support/leak.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *token_bytes(void *ctx, uint32_t id, size_t *len)
{
	static const char *const texts[] = {"Hi", " you", "\xe2\x82", "\xac", "\"q\"", "\xe2\x82", "a", "b", "a", "", ""};

	*len = id < ARRAY_LEN(texts) ? strlen(texts[id]) : 0;
	return id < ARRAY_LEN(texts) ? texts[id] : "";
}

static struct answer_config config(bool is_chat, bool is_stream)
{
	return (struct answer_config){
		.shape = is_chat ? &ANSWER_CHAT : &ANSWER_TEXT,
		.is_stream = is_stream,
		.n_logprobs = -1,
		.n_prompt_logprobs = -1,
		.id = "id-1",
		.model = "a \"model\"",
		.created = 17,
		.n_choices = 1,
		.token_bytes = token_bytes,
	};
}

static struct strbuf out;

/* A token whose best ones are 0 and 1, and it is the chosen one of them. */
static struct live_token token(uint32_t *ids, uint32_t id)
{
	static const float lps[] = {-0.5f, -0.25f, -INFINITY};

	ids[0] = id;
	ids[1] = 0;
	ids[2] = 1;
	return (struct live_token){.id = id, .rank = 7, .n_top = 3, .top_ids = view_of(ids, 3), .top_logprobs = view_of(lps, 3)};
}

static void push_to(struct answer *a, uint32_t choice, uint32_t id, const char *text)
{
	uint32_t ids[3];
	struct live_token t = token(ids, id);

	answer_token(a, &a->choices[choice], &t);
	pieces_text(&a->choices[choice].said, text, strlen(text));
}

static void push(struct answer *a, uint32_t id, const char *text)
{
	push_to(a, 0, id, text);
}

static void push_prompt(struct answer *a, uint32_t choice, const uint32_t *prompt, size_t n)
{
	uint32_t ids[3];
	size_t i;

	a->choices[choice].n_prompt = n;
	answer_prompt(a, &a->choices[choice], prompt, n);
	for (i = 1; i < n; i++) {
		struct live_token t = token(ids, prompt[i]);

		t.position = (uint32_t)i;
		answer_prompt_token(a, &a->choices[choice], &t);
	}
}

static void ended(struct answer *a, uint32_t choice, const char *finish)
{
	a->choices[choice].ended = true;
	a->choices[choice].end.finish = finish;
}

/* As gen.c ends a choice. */
static void end(struct answer *a, uint32_t choice, const char *finish)
{
	struct answer_choice *c = &a->choices[choice];

	ended(a, choice, finish);
	if (c->said.n) a->cfg.shape->delta(a, c, &out);
	a->cfg.shape->end(a, c, &out);
}

static void delta(struct answer *a, uint32_t choice)
{
	assert_true(answer_has_delta(a, &a->choices[choice]));
	a->cfg.shape->delta(a, &a->choices[choice], &out);
	assert_false(answer_has_delta(a, &a->choices[choice]));
}

static void expect(const char *want)
{
	assert_string_equal(out.data ? out.data : "", want);
	strbuf_reset(&out);
}

#define HEAD_(object) "{\"id\":\"id-1\",\"object\":\"" object "\",\"created\":17,\"model\":\"a \\\"model\\\"\",\"choices\":["
#define CHUNK "data: " HEAD_("chat.completion.chunk")
#define TEXT_CHUNK "data: " HEAD_("text_completion")
#define ROLE(index) "{\"index\":" index ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]"
#define DELTA(index, what) CHUNK "{\"index\":" index ",\"delta\":{" what "},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
#define END(index, finish) CHUNK "{\"index\":" index ",\"delta\":{},\"logprobs\":null,\"finish_reason\":\"" finish "\",\"stop_reason\":null}]}\n\n"
#define DONE "data: [DONE]\n\n"

static const struct answer_usage usage = {.n_prompt = 10, .n_output = 3, .n_cached = 4, .n_reasoning = 2};
#define COUNTS(p, o, t) "\"usage\":{\"prompt_tokens\":" p ",\"completion_tokens\":" o ",\"total_tokens\":" t
#define USAGE COUNTS("10", "3", "13") ",\"prompt_tokens_details\":{\"cached_tokens\":4}}"

/* ---- documents ---- */

static void test_chat_document(void **state)
{
	struct answer_config cfg = config(true, false);
	struct answer a;

	answer_init(&a, &cfg);
	push(&a, 0, "Hi\n");
	push(&a, 1, "\"you\" \xf0\x9f\xa5\xb9\x01");
	ended(&a, 0, "stop");
	ANSWER_CHAT.document(&a, &usage, &out);
	expect(HEAD_("chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\\n\\\"you\\\" \xf0\x9f\xa5\xb9\\u0001\","
					"\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}]," USAGE "}");
	answer_release(&a);
}

static void test_chat_document_of_choices(void **state)
{
	struct answer_config cfg = config(true, false);
	const uint32_t prompt[] = {0, 1};
	struct answer a;

	cfg.n_choices = 2;
	cfg.n_prompt_logprobs = 2;
	cfg.return_ids = true;
	answer_init(&a, &cfg);
	push_prompt(&a, 0, prompt, 2);
	push_to(&a, 1, 1, "b");
	push_to(&a, 0, 0, "a");
	ended(&a, 0, "stop");
	a.choices[0].end.stop_id = 5;
	ended(&a, 1, "length");
	ANSWER_CHAT.document(&a, &usage, &out);
	expect(HEAD_("chat.completion")
	       "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\","
	       "\"stop_reason\":5,\"token_ids\":[0]},"
	       "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"b\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"length\","
	       "\"stop_reason\":null,\"token_ids\":[1]}]," USAGE ","
	       "\"prompt_logprobs\":[null,{\"1\":{\"logprob\":-0.5,\"rank\":7,\"decoded_token\":\" you\"},"
	       "\"0\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\"Hi\"}}],\"prompt_token_ids\":[0,1]}");
	answer_release(&a);
}

static void test_chat_document_of_calls(void **state)
{
	struct answer_config cfg = config(true, false);
	struct pieces *said;
	struct answer a;

	cfg.has_reasoning = true;
	cfg.n_choices = 3;
	answer_init(&a, &cfg);
	said = &a.choices[0].said;
	pieces_reasoning(said, "hm", 2);
	pieces_call(said, "f", 1, 1);
	pieces_args(said, "{\"a\":", 5);
	pieces_args(said, "1}", 2);
	pieces_call(said, "g", 1, 2);
	strcpy(said->list[1].id, "call_x");
	strcpy(said->list[3].id, "call_y");
	said = &a.choices[1].said;
	pieces_text(said, "a", 1);
	pieces_call(said, "f", 1, 1);
	strcpy(said->list[1].id, "call_z");
	pieces_text(said, "b", 1);
	pieces_args(said, "{}", 2);
	pieces_reasoning(&a.choices[2].said, "only", 4);
	ended(&a, 0, "tool_calls");
	ended(&a, 1, "tool_calls");
	ended(&a, 2, "length");
	ANSWER_CHAT.document(&a, &usage, &out);
#define REST(finish) "},\"logprobs\":null,\"finish_reason\":\"" finish "\",\"stop_reason\":null}"
	expect(HEAD_("chat.completion")
	       "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"reasoning_content\":\"hm\",\"reasoning\":\"hm\","
	       "\"tool_calls\":[{\"id\":\"call_x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}},"
	       "{\"id\":\"call_y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]" REST("tool_calls") ","
	       "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"ab\",\"refusal\":null,"
	       "\"tool_calls\":[{\"id\":\"call_z\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]" REST("tool_calls") ","
	       "{\"index\":2,\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"reasoning_content\":\"only\",\"reasoning\":\"only\""
	       REST("length") "]," COUNTS("10", "3", "13")
	       ",\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":2}}}");
	answer_release(&a);
}

static void test_text_document(void **state)
{
	struct answer_config cfg = config(false, false);
	const uint32_t prompt[] = {7, 8};
	struct answer a;

	cfg.n_logprobs = 2;
	cfg.return_ids = true;
	answer_init(&a, &cfg);
	push_prompt(&a, 0, prompt, 2);
	push(&a, 1, "x");
	push(&a, 0, "y");
	ended(&a, 0, "stop");
	a.choices[0].end.stop_text = "E\"D";
	a.choices[0].end.stop_text_len = 3;
	ANSWER_TEXT.document(&a, &usage, &out);
	/* The chosen token is listed once, at its place among the best or behind them. */
	expect(HEAD_("text_completion") "{\"index\":0,\"text\":\"xy\",\"logprobs\":{\"tokens\":[\" you\",\"Hi\"],\"token_logprobs\":[-0.5,-0.5],"
					"\"top_logprobs\":[{\"Hi\":-0.25,\" you\":-9999.0},{\"Hi\":-0.25,\" you\":-9999.0}],\"text_offset\":[0,4]},"
					"\"finish_reason\":\"stop\",\"stop_reason\":\"E\\\"D\",\"prompt_token_ids\":[7,8],\"token_ids\":[1,0]}],"
	       USAGE "}");
	answer_release(&a);
}

/* The prompt in front, with its log-probabilities; and the same in vLLM's own form, with less of the best ones. */
static void test_text_document_with_echo(void **state)
{
	struct answer_config cfg = config(false, false);
	const uint32_t prompt[] = {4, 2};
	struct answer a;
	uint32_t i;

	cfg.n_choices = 2;
	cfg.n_logprobs = 1;
	cfg.n_prompt_logprobs = 0;
	cfg.echo = true;
	answer_init(&a, &cfg);
	for (i = 0; i < 2; i++) {
		pieces_text(&a.choices[i].said, "\"q\"?", 4);
		push_prompt(&a, i, prompt, 2);
		ended(&a, i, "length");
	}
	push_to(&a, 0, 1, " you");
	ANSWER_TEXT.document(&a, &usage, &out);
#define PROMPT_LPS "\"prompt_logprobs\":[null,{\"2\":{\"logprob\":-0.5,\"rank\":7,\"decoded_token\":\"\xef\xbf\xbd\"}}]}"
	expect(HEAD_("text_completion")
	       "{\"index\":0,\"text\":\"\\\"q\\\"? you\",\"logprobs\":{\"tokens\":[\"\\\"q\\\"\",\"\xef\xbf\xbd\",\" you\"],"
	       "\"token_logprobs\":[null,-0.5,-0.5],\"top_logprobs\":[null,{\"Hi\":-0.25,\"\xef\xbf\xbd\":-0.5},{\"Hi\":-0.25,\" you\":-0.5}],"
	       "\"text_offset\":[0,3,4]},\"finish_reason\":\"length\",\"stop_reason\":null," PROMPT_LPS ","
	       "{\"index\":1,\"text\":\"\\\"q\\\"?\",\"logprobs\":{\"tokens\":[\"\\\"q\\\"\",\"\xef\xbf\xbd\"],"
	       "\"token_logprobs\":[null,-0.5],\"top_logprobs\":[null,{\"Hi\":-0.25,\"\xef\xbf\xbd\":-0.5}],"
	       "\"text_offset\":[0,3]},\"finish_reason\":\"length\",\"stop_reason\":null," PROMPT_LPS "]," USAGE "}");
	answer_release(&a);
}

/* One key each: what is written alike is there once, with the better value; what is not, is there. */
static void test_alike_tokens(void **state)
{
	static const struct {
		uint32_t ids[3];
		const char *want;
	} rows[] = {
		{{6, 7, 0}, "{\"b\":-1.0,\"Hi\":-2.0,\"a\":-3.0}"},
		{{6, 7, 8}, "{\"b\":-1.0,\"a\":-2.0}"},
		{{7, 7, 6}, "{\"b\":-1.0,\"a\":-2.0}"},
		{{2, 5, 0}, "{\"\xef\xbf\xbd\":-1.0,\"Hi\":-2.0}"},
		{{2, 3, 6}, "{\"\xef\xbf\xbd\":-1.0,\"a\":-2.0}"}, /* different bytes, the same text */
		{{9, 10, 6}, "{\"\":-1.0,\"a\":-2.0}"},
		{{6, 9, 2}, "{\"\":-1.0,\"\xef\xbf\xbd\":-2.0,\"a\":-3.0}"},
	};
	static const float lps[] = {-3, -1, -2};
	struct answer_config cfg = config(false, true);
	size_t i, before = leak_bytes_used();
	struct answer a;

	cfg.n_logprobs = 2;
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct live_token t = {.id = rows[i].ids[0], .n_top = 3, .top_ids = view_of(rows[i].ids, 3), .top_logprobs = view_of(lps, 3)};

		answer_init(&a, &cfg);
		answer_token(&a, a.choices, &t);
		assert_string_equal(a.choices[0].lp[ANSWER_LP_TOP].data, rows[i].want);
		answer_release(&a);
	}
	assert_int_equal(leak_bytes_used(), before);
}

static void test_tokens_as_ids(void **state)
{
	struct answer_config cfg = config(false, false);
	struct answer a;
	int is_chat;

	for (is_chat = 0; is_chat < 2; is_chat++) {
		cfg = config(is_chat, true);
		cfg.n_logprobs = 1;
		cfg.ids_as_tokens = true;
		answer_init(&a, &cfg);
		push(&a, 2, "?");
		delta(&a, 0);
		expect(is_chat ? CHUNK "{\"index\":0,\"delta\":{\"content\":\"?\"},\"logprobs\":{\"content\":[{\"token\":\"token_id:2\",\"logprob\":-0.5,"
				       "\"bytes\":[226,130],\"top_logprobs\":[{\"token\":\"token_id:0\",\"logprob\":-0.25,\"bytes\":[72,105]}]}]},"
				       "\"finish_reason\":null}]}\n\n"
			       : TEXT_CHUNK "{\"index\":0,\"text\":\"?\",\"logprobs\":{\"tokens\":[\"token_id:2\"],\"token_logprobs\":[-0.5],"
					    "\"top_logprobs\":[{\"token_id:0\":-0.25,\"token_id:2\":-0.5}],\"text_offset\":[0]},\"finish_reason\":null}]}\n\n");
		answer_release(&a);
	}
}

/* ---- streams ---- */

static void test_chat_stream(void **state)
{
	struct answer_config cfg = config(true, true);
	struct answer a;

	answer_init(&a, &cfg);
	ANSWER_CHAT.begin(&a, &out);
	expect(CHUNK ROLE("0") "}\n\n");
	assert_false(answer_has_delta(&a, a.choices));
	push(&a, 0, "");
	assert_false(answer_has_delta(&a, a.choices)); /* text that is held back makes no empty chunk */
	push(&a, 0, "Hi");
	push(&a, 1, " you");
	delta(&a, 0);
	expect(DELTA("0", "\"content\":\"Hi you\""));
	pieces_text(&a.choices[0].said, "!", 1);
	end(&a, 0, "length");
	ANSWER_CHAT.finish(&a, &usage, &out);
	expect(DELTA("0", "\"content\":\"!\"") END("0", "length") DONE);
	answer_release(&a);
}

/* Two tokens that come together, each with its two best ones. */
static void test_chat_stream_with_logprobs(void **state)
{
	struct answer_config cfg = config(true, true);
	struct answer a;

	cfg.n_logprobs = 2;
	answer_init(&a, &cfg);
	push(&a, 6, "a");
	push(&a, 7, "b");
	delta(&a, 0);
#define BEST "\"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.25,\"bytes\":[72,105]},{\"token\":\" you\",\"logprob\":-9999.0,\"bytes\":[32,121,111,117]}]}"
	expect(CHUNK "{\"index\":0,\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]," BEST
		     ",{\"token\":\"b\",\"logprob\":-0.5,\"bytes\":[98]," BEST "]},\"finish_reason\":null}]}\n\n");
	answer_release(&a);
}

static void test_chat_stream_of_choices(void **state)
{
	struct answer_config cfg = config(true, true);
	struct answer a;

	cfg.n_choices = 3;
	answer_init(&a, &cfg);
	ANSWER_CHAT.begin(&a, &out);
	expect(CHUNK ROLE("0") "}\n\n" CHUNK ROLE("1") "}\n\n" CHUNK ROLE("2") "}\n\n");
	push_to(&a, 2, 0, "c");
	push_to(&a, 1, 0, "b");
	push_to(&a, 2, 0, "C");
	delta(&a, 2);
	delta(&a, 1);
	end(&a, 1, "stop");
	push_to(&a, 0, 0, "a");
	end(&a, 0, "length");
	end(&a, 2, "stop");
	ANSWER_CHAT.finish(&a, &usage, &out);
	expect(DELTA("2", "\"content\":\"cC\"") DELTA("1", "\"content\":\"b\"") END("1", "stop") DELTA("0", "\"content\":\"a\"") END("0", "length")
	       END("2", "stop") DONE);
	answer_release(&a);
}

static void test_chat_stream_of_calls(void **state)
{
	struct answer_config cfg = config(true, true);
	struct pieces *said;
	struct answer a;

	answer_init(&a, &cfg);
	said = &a.choices[0].said;
	pieces_reasoning(said, "h", 1);
	pieces_reasoning(said, "m", 1);
	pieces_text(said, "ok", 2);
	pieces_call(said, "f", 1, 1);
	strcpy(said->list[2].id, "call_x");
	pieces_args(said, "{\"a\"", 4);
	delta(&a, 0);
	expect(DELTA("0", "\"reasoning_content\":\"hm\",\"reasoning\":\"hm\"") DELTA("0", "\"content\":\"ok\"")
	       DELTA("0", "\"tool_calls\":[{\"index\":0,\"id\":\"call_x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]")
	       DELTA("0", "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\"\"}}]"));
	pieces_args(said, ":1", 2);
	pieces_args(said, "}", 1);
	pieces_call(said, "g", 1, 1);
	strcpy(said->list[1].id, "call_y");
	pieces_args(said, "{}", 2);
	end(&a, 0, "tool_calls");
	expect(DELTA("0", "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]")
	       DELTA("0", "\"tool_calls\":[{\"index\":1,\"id\":\"call_y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]")
	       DELTA("0", "\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]") END("0", "tool_calls"));
	answer_release(&a);
}

static void test_chat_stream_with_everything(void **state)
{
	struct answer_config cfg = config(true, true);
	const uint32_t prompt[] = {7};
	struct answer a;

	cfg.n_logprobs = 1;
	cfg.return_ids = cfg.include_usage = true;
	answer_init(&a, &cfg);
	push_prompt(&a, 0, prompt, 1);
	ANSWER_CHAT.begin(&a, &out);
	expect(CHUNK ROLE("0") ",\"prompt_token_ids\":[7],\"usage\":null}\n\n");
	push(&a, 4, "\"q\"");
	pieces_reasoning(&a.choices[0].said, "r", 1);
	delta(&a, 0); /* ids and log-probabilities come once, with the first piece */
	expect(CHUNK "{\"index\":0,\"delta\":{\"content\":\"\\\"q\\\"\"},\"logprobs\":{\"content\":[{\"token\":\"\\\"q\\\"\",\"logprob\":-0.5,"
		     "\"bytes\":[34,113,34],\"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.25,\"bytes\":[72,105]}]}]},"
		     "\"finish_reason\":null,\"token_ids\":[4]}],\"usage\":null}\n\n"
	       CHUNK "{\"index\":0,\"delta\":{\"reasoning_content\":\"r\",\"reasoning\":\"r\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":[]}],"
		     "\"usage\":null}\n\n");
	push(&a, 2, ""); /* a token without text */
	delta(&a, 0);
	expect(CHUNK "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.5,\"bytes\":[226,130],"
		     "\"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.25,\"bytes\":[72,105]}]}]},\"finish_reason\":null,\"token_ids\":[2]}],"
		     "\"usage\":null}\n\n");
	push(&a, 2, ""); /* the last token has no text: its entries go with the end */
	a.choices[0].end.stop_id = 1;
	end(&a, 0, "stop");
	ANSWER_CHAT.finish(&a, &usage, &out);
	expect(CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.5,\"bytes\":[226,130],"
		     "\"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.25,\"bytes\":[72,105]}]}]},\"finish_reason\":\"stop\","
		     "\"stop_reason\":1,\"token_ids\":[2]}],\"usage\":null}\n\n" CHUNK "]," USAGE "}\n\n" DONE);
	answer_release(&a);
}

static void test_text_stream(void **state)
{
	struct answer_config cfg = config(false, true);
	const uint32_t prompt[] = {7};
	struct answer a;

	cfg.return_ids = true;
	answer_init(&a, &cfg);
	push_prompt(&a, 0, prompt, 1);
	ANSWER_TEXT.begin(&a, &out);
	expect("");
	push(&a, 0, "Hi");
	delta(&a, 0);
	expect(TEXT_CHUNK "{\"index\":0,\"text\":\"Hi\",\"logprobs\":null,\"finish_reason\":null,\"prompt_token_ids\":[7],\"token_ids\":[0]}]}\n\n");
	end(&a, 0, "stop");
	ANSWER_TEXT.finish(&a, &usage, &out);
	expect(TEXT_CHUNK "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":[]}]}\n\n" DONE);
	answer_release(&a);
}

static void test_text_stream_of_choices(void **state)
{
	struct answer_config cfg = config(false, true);
	struct answer a;

	cfg.n_choices = 2;
	answer_init(&a, &cfg);
	push_to(&a, 1, 0, "b");
	delta(&a, 1);
	push_to(&a, 0, 0, "a");
	end(&a, 0, "stop");
	end(&a, 1, "length");
#define T(index, text, finish) TEXT_CHUNK "{\"index\":" index ",\"text\":\"" text "\",\"logprobs\":null,\"finish_reason\":" finish "}]}\n\n"
	expect(T("1", "b", "null") T("0", "a", "null") T("0", "", "\"stop\",\"stop_reason\":null") T("1", "", "\"length\",\"stop_reason\":null"));
	answer_release(&a);
}

/* Each chunk counts its choice so far; the last one counts everything. */
static void test_continuous_usage(void **state)
{
	struct answer_config cfg = config(false, true);
	const uint32_t prompt[] = {7, 8};
	struct answer a;

	cfg.n_choices = 2;
	cfg.include_usage = cfg.continuous_usage = true;
	answer_init(&a, &cfg);
	push_prompt(&a, 0, prompt, 2);
	push_prompt(&a, 1, prompt, 2);
	push_to(&a, 0, 0, "a");
	push_to(&a, 0, 0, "b");
	push_to(&a, 1, 0, "c");
	delta(&a, 0);
	delta(&a, 1);
	end(&a, 0, "stop");
	ANSWER_TEXT.finish(&a, &usage, &out);
#define U(index, text, finish, counts) TEXT_CHUNK "{\"index\":" index ",\"text\":\"" text "\",\"logprobs\":null,\"finish_reason\":" finish "}]," counts "}}\n\n"
	expect(U("0", "ab", "null", COUNTS("2", "2", "4")) U("1", "c", "null", COUNTS("2", "1", "3"))
	       U("0", "", "\"stop\",\"stop_reason\":null", COUNTS("2", "2", "4")) TEXT_CHUNK "]," USAGE "}\n\n" DONE);
	answer_release(&a);
}

/* ---- what it holds ---- */

static void test_pick(void **state)
{
	struct answer_config cfg = config(false, false);
	const uint32_t picked[] = {2, 0};
	struct answer a;
	size_t before;
	uint32_t i;

	for (i = 0; i < 1000; i++) strbuf_puts(&out, "room "); /* what follows asks for none */
	strbuf_reset(&out);
	before = leak_bytes_used();

	cfg.n_choices = 4;
	answer_init(&a, &cfg);
	for (i = 0; i < 4; i++) {
		char text[2] = {(char)('a' + i), 0};

		push_to(&a, i, 0, text);
		ended(&a, i, "stop");
	}
	answer_pick(&a, picked, 2);
	ANSWER_TEXT.document(&a, &usage, &out);
#define D(index, text) "{\"index\":" index ",\"text\":\"" text "\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}"
	answer_release(&a);
	assert_int_equal(leak_bytes_used(), before);
	expect(HEAD_("text_completion") D("0", "c") "," D("1", "a") "]," USAGE "}");
}

/* Nothing that it holds is forgotten, neither in the count nor at the end. */
static void test_held(void **state)
{
	static const uint32_t prompt[] = {0, 1};
	struct answer_config cfg = config(false, true);
	size_t i, before = leak_bytes_used(), want;
	struct answer_choice *c;
	struct answer a;

	cfg.n_choices = 2;
	cfg.n_logprobs = cfg.n_prompt_logprobs = 1;
	cfg.return_ids = true;
	cfg.request = json_object();
	answer_init(&a, &cfg);
	json_decref(cfg.request);
	c = &a.choices[1];
	assert_int_equal(answer_held(c), 0);
	push_prompt(&a, 1, prompt, 2);
	push_to(&a, 1, 0, "Hi");
	pieces_reasoning(&c->said, "hm", 2);
	want = 4 + c->ids.len + c->prompt_ids.len + c->prompt_lps.len;
	for (i = 0; i < ARRAY_LEN(c->lp); i++) want += c->lp[i].len;
	assert_true(c->ids.len && c->prompt_ids.len && c->prompt_lps.len && c->lp[0].len && c->lp[3].len);
	assert_int_equal(answer_held(c), want);
	push_prompt(&a, 0, prompt, 2);
	answer_release(&a);
	assert_int_equal(leak_bytes_used(), before);
}

static void test_held_until_it_is_written(void **state)
{
	struct answer_config cfg = config(false, true);
	size_t before;
	struct answer a;

	cfg.n_logprobs = 1;
	answer_init(&a, &cfg);
	assert_int_equal(answer_held(a.choices), 0);
	push(&a, 0, "Hi");
	before = answer_held(a.choices);
	assert_true(before > 2);
	push(&a, 0, "Hi");
	assert_true(answer_held(a.choices) > 2 * before - 2);
	delta(&a, 0);
	assert_int_equal(answer_held(a.choices), 0);
	strbuf_reset(&out);
	answer_release(&a);
}

/* Entries that are not there are not read. */
static void test_bad_entries(void **state)
{
	struct answer_config cfg = config(true, true);
	struct live_token t = {.id = 1, .n_top = 2};
	struct answer a;

	cfg.n_logprobs = cfg.n_prompt_logprobs = 1;
	answer_init(&a, &cfg);
	answer_token(&a, a.choices, &t);
	answer_prompt_token(&a, a.choices, &t);
	assert_int_equal(answer_held(a.choices), 0);
	answer_release(&a);
}

static void test_errors(void **state)
{
	static const struct {
		int status;
		const char *param, *want;
	} rows[] = {
		{400, "stop", "{\"error\":{\"message\":\"a \\\"b\\\"\",\"type\":\"invalid_request_error\",\"param\":\"stop\",\"code\":400}}"},
		{404, "model", "{\"error\":{\"message\":\"a \\\"b\\\"\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"},
		{500, NULL, "{\"error\":{\"message\":\"a \\\"b\\\"\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}"},
		{503, NULL, "{\"error\":{\"message\":\"a \\\"b\\\"\",\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}"},
	};
	struct answer_config cfg = config(true, true);
	char want[512];
	struct answer a;
	size_t i;

	answer_init(&a, &cfg);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct apierr e = {0};

		assert_false(apierr_set(&e, rows[i].status, rows[i].param, "a \"%s\"", "b"));
		assert_false(apierr_set(&e, 499, "x", "a later one")); /* the first stays */
		apierr_render(&e, &out);
		expect(rows[i].want);
		ANSWER_CHAT.error(&a, &e, &out);
		snprintf(want, sizeof(want), "data: %s\n\ndata: [DONE]\n\n", rows[i].want);
		expect(want);
	}
	answer_release(&a);
}

static void test_long_error_is_cut_at_a_character(void **state)
{
	char text[3000] = "";
	struct apierr e = {0};
	size_t i;

	for (i = 0; i < 900; i++) memcpy(text + 3 * i, "\xe2\x82\xac", 3);
	(void)apierr_set(&e, 400, NULL, "%s", text);
	assert_int_equal(strlen(e.message), sizeof(e.message) - 1 - (sizeof(e.message) - 1) % 3);
}

/* Whatever the bytes are, what comes out is JSON with the repaired text. */
static void test_escape_random(void **state)
{
	uint64_t seed = 5;
	int round;

	for (round = 0; round < 20000; round++) {
		char text[12];
		size_t i, n;
		json_t *j;

		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		n = (seed >> 60) % sizeof(text);
		for (i = 0; i < n; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			text[i] = (char)(seed >> 40);
		}
		strbuf_reset(&out);
		jsonout_string(&out, text, n);
		j = json_loadb(out.data, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		if (!j) fail_msg("%s", out.data);
		json_decref(j);
	}
	strbuf_reset(&out);
}

static void test_numbers(void **state)
{
	static const struct {
		float v;
		const char *want;
	} rows[] = {{0, "0.0"}, {-1, "-1.0"}, {-0.5f, "-0.5"}, {-INFINITY, "-9999.0"}, {NAN, "-9999.0"}, {-1e-9f, "-9.99999972e-10"}};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		jsonout_f32(&out, rows[i].v);
		expect(rows[i].want);
	}
	strbuf_put_u64(&out, UINT64_MAX);
	expect("18446744073709551615");
	jsonout_text(&out, NULL);
	expect("null");
}

static int setup(void **state)
{
	strbuf_init(&out, MIB);
	return 0;
}

static int teardown(void **state)
{
	strbuf_release(&out);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_held_until_it_is_written),
		cmocka_unit_test(test_chat_document),
		cmocka_unit_test(test_chat_document_of_choices),
		cmocka_unit_test(test_chat_document_of_calls),
		cmocka_unit_test(test_text_document),
		cmocka_unit_test(test_text_document_with_echo),
		cmocka_unit_test(test_alike_tokens),
		cmocka_unit_test(test_tokens_as_ids),
		cmocka_unit_test(test_chat_stream),
		cmocka_unit_test(test_chat_stream_with_logprobs),
		cmocka_unit_test(test_chat_stream_of_choices),
		cmocka_unit_test(test_chat_stream_of_calls),
		cmocka_unit_test(test_chat_stream_with_everything),
		cmocka_unit_test(test_text_stream),
		cmocka_unit_test(test_text_stream_of_choices),
		cmocka_unit_test(test_continuous_usage),
		cmocka_unit_test(test_pick),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_bad_entries),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_long_error_is_cut_at_a_character),
		cmocka_unit_test(test_escape_random),
		cmocka_unit_test(test_numbers),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
