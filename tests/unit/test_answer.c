/* test_answer.c - the exact bytes of answers: documents and event streams of both endpoints, errors, escapes. */
#include "frontend/answer.h"

#include "common/mem.h"
#include "frontend/jsonout.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *token_bytes(void *ctx, uint32_t id, size_t *len)
{
	static const char *const texts[] = {"Hi", " you", "\xe2\x82", "\xac", "\"q\"", "\xe2\x82"};

	*len = id < ARRAY_LEN(texts) ? strlen(texts[id]) : 0;
	return id < ARRAY_LEN(texts) ? texts[id] : "";
}

static struct answer_config config(bool is_chat, bool is_stream)
{
	return (struct answer_config){
		.is_chat = is_chat,
		.is_stream = is_stream,
		.n_logprobs = -1,
		.id = "id-1",
		.model = "a \"model\"",
		.created = 17,
		.token_bytes = token_bytes,
	};
}

static void push(struct answer *a, uint32_t id, const char *text)
{
	static const uint32_t ids[] = {0, 0, 1};
	static const float lps[] = {-0.5f, -0.25f, -INFINITY};
	uint32_t own[3] = {id, ids[1], ids[2]};
	struct live_token t = {.id = id, .n_top = 3, .top_ids = view_of(own, 3), .top_logprobs = view_of(lps, 3)};

	answer_token(a, &t);
	strbuf_puts(answer_text(a), text);
}

static void expect(struct strbuf *out, const char *want)
{
	assert_string_equal(out->data ? out->data : "", want);
	strbuf_reset(out);
}

#define HEAD_(object) "{\"id\":\"id-1\",\"object\":\"" object "\",\"created\":17,\"model\":\"a \\\"model\\\"\",\"choices\":["
#define CHUNK "data: " HEAD_("chat.completion.chunk")
#define TEXT_CHUNK "data: " HEAD_("text_completion")

static const struct answer_usage usage = {.n_prompt = 10, .n_output = 3, .n_cached = 4};
#define USAGE                                                                                                  \
	"\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"total_tokens\":13,\"prompt_tokens_details\":{" \
	"\"cached_tokens\":4}}"

static void test_chat_document(void **state)
{
	struct answer_config cfg = config(true, false);
	struct answer_end end = {.finish = "stop", .stop_id = -1};
	struct strbuf out;
	struct answer a;

	strbuf_init(&out, MIB);
	answer_init(&a, &cfg);
	push(&a, 0, "Hi\n");
	push(&a, 1, "\"you\" \xf0\x9f\xa5\xb9\x01");
	answer_document(&a, &end, &usage, &out);
	expect(&out, HEAD_("chat.completion") "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\\n\\\"you\\\" \xf0\x9f\xa5\xb9\\u0001\"},"
					      "\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}]," USAGE "}");
	answer_release(&a);
	strbuf_release(&out);
}

static void test_text_document(void **state)
{
	struct answer_config cfg = config(false, false);
	struct answer_end end = {.finish = "stop", .stop_text = "E\"D", .stop_text_len = 3, .stop_id = -1};
	const uint32_t prompt[] = {7, 8};
	struct strbuf out;
	struct answer a;

	cfg.n_logprobs = 2;
	cfg.return_ids = true;
	strbuf_init(&out, MIB);
	answer_init(&a, &cfg);
	answer_prompt(&a, prompt, 2);
	push(&a, 1, "x");
	push(&a, 0, "y");
	answer_document(&a, &end, &usage, &out);
	/* The chosen token is listed once, at its place among the best or behind them. */
	expect(&out, HEAD_("text_completion") "{\"index\":0,\"text\":\"xy\",\"logprobs\":{\"tokens\":[\" you\",\"Hi\"],\"token_logprobs\":[-0.5,-0.5],"
					      "\"top_logprobs\":[{\"Hi\":-0.25,\" you\":-9999.0},{\"Hi\":-0.25,\" you\":-9999.0}],\"text_offset\":[0,4]},"
					      "\"finish_reason\":\"stop\",\"stop_reason\":\"E\\\"D\",\"prompt_token_ids\":[7,8],\"token_ids\":[1,0]}],"
			USAGE "}");
	answer_release(&a);
	strbuf_release(&out);
}

static void test_chat_stream(void **state)
{
	struct answer_config cfg = config(true, true);
	struct answer_end end = {.finish = "length", .stop_id = -1};
	struct strbuf out;
	struct answer a;

	strbuf_init(&out, MIB);
	answer_init(&a, &cfg);
	answer_begin(&a, &out);
	expect(&out, CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
	assert_false(answer_has_delta(&a));
	push(&a, 0, "");
	assert_false(answer_has_delta(&a)); /* text that is held back makes no empty chunk */
	push(&a, 0, "Hi");
	push(&a, 1, " you");
	assert_true(answer_has_delta(&a));
	answer_delta(&a, &out);
	expect(&out, CHUNK "{\"index\":0,\"delta\":{\"content\":\"Hi you\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
	assert_false(answer_has_delta(&a));
	strbuf_puts(answer_text(&a), "!");
	answer_finish(&a, &end, &usage, &out);
	expect(&out, CHUNK "{\"index\":0,\"delta\":{\"content\":\"!\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK
			   "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\ndata: [DONE]\n\n");
	answer_release(&a);
	strbuf_release(&out);
}

static void test_chat_stream_with_everything(void **state)
{
	struct answer_config cfg = config(true, true);
	struct answer_end end = {.finish = "stop", .stop_id = 1};
	const uint32_t prompt[] = {7};
	struct strbuf out;
	struct answer a;

	cfg.n_logprobs = 1;
	cfg.return_ids = cfg.include_usage = true;
	strbuf_init(&out, MIB);
	answer_init(&a, &cfg);
	answer_prompt(&a, prompt, 1);
	answer_begin(&a, &out);
	expect(&out, CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],"
			   "\"prompt_token_ids\":[7],\"usage\":null}\n\n");
	push(&a, 4, "\"q\"");
	answer_delta(&a, &out);
	expect(&out, CHUNK "{\"index\":0,\"delta\":{\"content\":\"\\\"q\\\"\"},\"logprobs\":{\"content\":[{\"token\":\"\\\"q\\\"\",\"logprob\":-0.5,"
			   "\"bytes\":[34,113,34],\"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.25,\"bytes\":[72,105]}]}]},"
			   "\"finish_reason\":null,\"token_ids\":[4]}],\"usage\":null}\n\n");
	push(&a, 2, ""); /* the last token has no text: its entries go with the end */
	answer_finish(&a, &end, &usage, &out);
	expect(&out, CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.5,\"bytes\":[226,130],"
			   "\"top_logprobs\":[{\"token\":\"Hi\",\"logprob\":-0.25,\"bytes\":[72,105]}]}]},\"finish_reason\":\"stop\","
			   "\"stop_reason\":1,\"token_ids\":[2]}],\"usage\":null}\n\n" CHUNK "]," USAGE "}\n\ndata: [DONE]\n\n");
	answer_release(&a);
	strbuf_release(&out);
}

static void test_text_stream(void **state)
{
	struct answer_config cfg = config(false, true);
	struct answer_end end = {.finish = "stop", .stop_id = -1};
	const uint32_t prompt[] = {7};
	struct strbuf out;
	struct answer a;

	cfg.return_ids = true;
	strbuf_init(&out, MIB);
	answer_init(&a, &cfg);
	answer_prompt(&a, prompt, 1);
	answer_begin(&a, &out);
	expect(&out, "");
	push(&a, 0, "Hi");
	answer_delta(&a, &out);
	expect(&out, TEXT_CHUNK "{\"index\":0,\"text\":\"Hi\",\"logprobs\":null,\"finish_reason\":null,\"prompt_token_ids\":[7],\"token_ids\":[0]}]}\n\n");
	answer_finish(&a, &end, &usage, &out);
	expect(&out, TEXT_CHUNK "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":[]}]}\n\n"
				"data: [DONE]\n\n");
	answer_release(&a);
	strbuf_release(&out);
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
	char want[512];
	struct strbuf out;
	size_t i;

	strbuf_init(&out, KIB);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct apierr e = {0};

		assert_false(apierr_set(&e, rows[i].status, rows[i].param, "a \"%s\"", "b"));
		assert_false(apierr_set(&e, 499, "x", "a later one")); /* the first stays */
		apierr_render(&e, &out);
		expect(&out, rows[i].want);
		answer_error(&e, &out);
		snprintf(want, sizeof(want), "data: %s\n\ndata: [DONE]\n\n", rows[i].want);
		expect(&out, want);
	}
	strbuf_release(&out);
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
	struct strbuf out;
	int round;

	strbuf_init(&out, KIB);
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
	strbuf_release(&out);
}

static void test_numbers(void **state)
{
	static const struct {
		float v;
		const char *want;
	} rows[] = {{0, "0.0"}, {-1, "-1.0"}, {-0.5f, "-0.5"}, {-INFINITY, "-9999.0"}, {NAN, "-9999.0"}, {-1e-9f, "-9.99999972e-10"}};
	struct strbuf out;
	size_t i;

	strbuf_init(&out, KIB);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		jsonout_f32(&out, rows[i].v);
		expect(&out, rows[i].want);
	}
	jsonout_u64(&out, UINT64_MAX);
	expect(&out, "18446744073709551615");
	jsonout_text(&out, NULL);
	expect(&out, "null");
	strbuf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chat_document),
		cmocka_unit_test(test_text_document),
		cmocka_unit_test(test_chat_stream),
		cmocka_unit_test(test_chat_stream_with_everything),
		cmocka_unit_test(test_text_stream),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_long_error_is_cut_at_a_character),
		cmocka_unit_test(test_escape_random),
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
