/* test_gen.c - generations of many choices: what is asked of the executor, how the choices come together in one answer, and that all
 * of them end with it. */
#include "frontend/gen.h"

#include "common/mem.h"
#include "frontend/conn.h"
#include "frontend/prep.h"
#include "tests/support/box.h"
#include "tests/support/leak.h"
#include "tests/support/tokjson.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]"

/* What a client makes of an answer, choice by choice. */
struct heard {
	char text[8][512], reasoning[8][256], calls[8][256]; /* calls: name(arguments) one after the other */
	char finish[8][16];
	int n_events, n_choices;
};

static void add(char *to, size_t cap, const json_t *text)
{
	if (json_is_string(text)) snprintf(to + strlen(to), cap - strlen(to), "%s", json_string_value(text));
}

static void hear_calls(struct heard *h, size_t ix, const json_t *list)
{
	size_t i;

	for (i = 0; i < json_array_size(list); i++) {
		const json_t *call = json_array_get(list, i), *f = json_object_get(call, "function");

		if (json_object_get(call, "id")) {
			assert_int_equal(json_string_length(json_object_get(call, "id")), PIECES_ID_LEN);
			assert_string_equal(json_string_value(json_object_get(call, "type")), "function");
			add(h->calls[ix], sizeof(h->calls[ix]), json_object_get(f, "name"));
			strcat(h->calls[ix], ":");
		}
		add(h->calls[ix], sizeof(h->calls[ix]), json_object_get(f, "arguments"));
	}
}

static void hear_choice(struct heard *h, const json_t *c)
{
	size_t ix = (size_t)json_integer_value(json_object_get(c, "index"));
	const json_t *said = json_object_get(c, "delta");

	assert_true(ix < 8 && json_object_get(c, "index"));
	h->n_choices = ix + 1 > (size_t)h->n_choices ? (int)ix + 1 : h->n_choices;
	assert_int_equal(h->finish[ix][0], 0); /* nothing comes behind the end */
	if (!said) said = json_object_get(c, "message");
	if (!said) said = c;
	add(h->text[ix], sizeof(h->text[ix]), json_object_get(said, "text"));
	add(h->text[ix], sizeof(h->text[ix]), json_object_get(said, "content"));
	add(h->reasoning[ix], sizeof(h->reasoning[ix]), json_object_get(said, "reasoning_content"));
	hear_calls(h, ix, json_object_get(said, "tool_calls"));
	add(h->finish[ix], sizeof(h->finish[ix]), json_object_get(c, "finish_reason"));
}

static void hear_document(struct heard *h, const char *text, size_t len)
{
	json_t *j = json_loadb(text, len, 0, NULL), *c;
	size_t i;

	assert_non_null(j);
	json_array_foreach(json_object_get(j, "choices"), i, c) hear_choice(h, c);
	h->n_events++;
	json_decref(j);
}

static struct heard hear(const struct box *b)
{
	struct heard h = {.n_events = 0};
	const char *p = box_body(b), *end;

	if (!strstr(b->in.data, "text/event-stream")) {
		hear_document(&h, p, strlen(p));
		return h;
	}
	for (; (p = strstr(p, "data: {")); p = end) {
		end = strstr(p, "\n\n");
		hear_document(&h, p + 6, (size_t)(end - p - 6));
	}
	return h;
}

static void expect_usage(const struct box *b, const char *want)
{
	if (!strstr(b->in.data, want)) fail_msg("%s", b->in.data);
}

/* ---- what is asked of the executor ---- */

static void test_orders(void **state)
{
	struct box b;
	int i, k;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[[1,2],[3]],\"n\":3,\"seed\":9,\"max_tokens\":7}");
	assert_int_equal(b.n_orders, 6);
	for (i = 0; i < 6; i++) {
		const struct box_order *o = &b.orders[i];

		assert_int_equal(o->m.choice, i % 3);
		assert_true(o->m.seed == 9 && o->m.n_output_max == 7);
		assert_int_equal(o->m.n_prompt, i < 3 ? 2 : 1);
		assert_int_equal(o->tokens[0], i < 3 ? 1 : 3);
	}
	for (i = 0; i < 6; i++) box_give_to(&b, i, 5, FINISH_LENGTH);
	assert_int_equal(box_status(&b), 200);

	/* without a seed: one for each prompt, so that equal prompts get different answers */
	box_post(&b, TEXT, "{\"prompt\":[[1],[1]],\"n\":2}");
	assert_int_equal(b.n_orders, 4);
	assert_true(b.orders[0].m.seed == b.orders[1].m.seed && b.orders[2].m.seed == b.orders[3].m.seed);
	assert_true(b.orders[0].m.seed != b.orders[2].m.seed);
	for (i = 0; i < 4; i++)
		for (k = 0; k < i; k++) assert_true(b.orders[i].m.client_id != b.orders[k].m.client_id);
	for (i = 0; i < 4; i++) box_give_to(&b, i, 5, FINISH_LENGTH);
	box_close(&b);
}

static void test_fields(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT,
		 "{\"prompt\":[1],\"repetition_penalty\":1.5,\"presence_penalty\":-1,\"frequency_penalty\":0.5,\"logit_bias\":{\"7\":-100,\"9\":2.5},"
		 "\"allowed_token_ids\":[7,8,9],\"prompt_logprobs\":2,\"temperature\":1e-6}");
	assert_true(b.order.m.repetition_penalty == 1.5f && b.order.m.presence_penalty == -1 && b.order.m.frequency_penalty == 0.5f);
	assert_true(b.order.m.bias_ids.n == 2 && b.order.m.bias_values.n == 2 && b.orders[0].bias_ids[0] + b.orders[0].bias_ids[1] == 16);
	assert_true(b.orders[0].bias_values[b.orders[0].bias_ids[1] == 7] == -100 && b.orders[0].bias_values[b.orders[0].bias_ids[1] == 9] == 2.5f);
	assert_true(b.order.m.allowed_ids.n == 3 && b.orders[0].allowed_ids[2] == 9);
	assert_true(b.order.m.n_prompt_logprobs == 3 && b.order.m.n_logprobs == 0 && b.order.m.temperature == 0 && b.order.m.grammar.n == 0);
	box_give(&b, 7, FINISH_LENGTH);
	box_post(&b, TEXT, "{\"prompt\":[1],\"logit_bias\":{\"7\":3},\"allowed_token_ids\":[8],\"stop_token_ids\":[9,11]}");
	assert_true(b.order.m.bias_ids.n == 1 && b.orders[0].bias_ids[0] == 7 && b.orders[0].bias_values[0] == 3);
	assert_true(b.order.m.allowed_ids.n == 1 && b.orders[0].allowed_ids[0] == 8);
	assert_int_equal(b.orders[0].stop_ids[b.order.m.stop_ids.n - 2], 9);
	assert_int_equal(b.orders[0].stop_ids[b.order.m.stop_ids.n - 1], 11);
	box_give(&b, 8, FINISH_LENGTH);

	/* the prompt's log-probabilities are needed for an echo with log-probabilities, and for nothing else */
	box_post(&b, TEXT, "{\"prompt\":[1,2],\"echo\":true,\"logprobs\":4}");
	assert_true(b.order.m.n_prompt_logprobs == 5 && b.order.m.n_logprobs == 5);
	box_give(&b, 7, FINISH_LENGTH);
	box_post(&b, TEXT, "{\"prompt\":[1,2],\"echo\":true,\"n\":1,\"best_of\":2}");
	assert_true(b.order.m.n_prompt_logprobs == 0 && b.order.m.n_logprobs == 1);
	box_give_to(&b, 0, 7, FINISH_LENGTH);
	box_give_to(&b, 1, 7, FINISH_LENGTH);

	/* where a grammar ends there must be an end to draw */
	box_post(&b, TEXT, "{\"prompt\":[1,2],\"ignore_eos\":true,\"guided_choice\":[\"a\"],\"stop_token_ids\":[9]}");
	assert_true(b.order.m.grammar.n > 0 && b.order.m.stop_ids.n >= 2 && b.orders[0].stop_ids[0] == 2);
	box_give(&b, 2, FINISH_STOP);
	box_post(&b, TEXT, "{\"prompt\":[1,2],\"ignore_eos\":true,\"stop_token_ids\":[9]}");
	assert_true(b.order.m.grammar.n == 0 && b.order.m.stop_ids.n == 1 && b.orders[0].stop_ids[0] == 9);
	box_give(&b, 9, FINISH_STOP);
	box_close(&b);
}

/* All or nothing. */
static void test_too_many_choices(void **state)
{
	struct lives_stats before, after;
	struct box b;

	box_open(&b, true);
	lives_stats(b.lives, &before);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":9}");
	assert_int_equal(box_status(&b), 503);
	assert_non_null(strstr(b.in.data, "Retry-After: 1\r\n"));
	lives_stats(b.lives, &after);
	assert_true(after.n_live == 0 && b.n_submits == 0 && b.n_cancels == 0);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":8}");
	assert_int_equal(b.n_orders, 8);
	conn_eof(b.conn, b.now);
	box_pass(&b);
	assert_int_equal(b.n_cancels, 8);
	box_close(&b);
}

/* ---- answers ---- */

static void test_plain(void **state)
{
	struct heard h;
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[[1,2,3],[4,5]],\"n\":2,\"max_tokens\":50,\"stop\":\"!\"}");
	box_give_text_to(&b, 3, "four");
	box_give_text_to(&b, 0, "one");
	box_give_text_to(&b, 2, "three! and more");
	assert_int_equal(b.n_cancels, 1); /* a stop string ends its choice and no other */
	box_give_text_to(&b, 1, "two");
	box_give_to(&b, 1, 2, FINISH_STOP);
	box_give_to(&b, 0, TOKEN_NONE, FINISH_LENGTH);
	assert_int_equal(b.in.len, 0);
	box_give_to(&b, 3, TOKEN_NONE, FINISH_LENGTH);
	h = hear(&b);
	assert_true(h.n_choices == 4 && h.n_events == 1);
	assert_string_equal(h.text[0], "one");
	assert_string_equal(h.text[1], "two");
	assert_string_equal(h.text[2], "three");
	assert_string_equal(h.text[3], "four");
	assert_string_equal(h.finish[0], "length");
	assert_string_equal(h.finish[1], "stop");
	assert_string_equal(h.finish[2], "stop");
	assert_string_equal(h.finish[3], "length");
	/* each prompt once, each choice's tokens */
	expect_usage(&b, "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6,\"total_tokens\":11,\"prompt_tokens_details\":{\"cached_tokens\":4}}");
	box_close(&b);
}

/* ---- in the loop, or not ---- */

/* A request with a body of so many bytes, most of them blanks, on a connection of its own. */
static struct conn *post(struct box *b, size_t len)
{
	struct conn *c = conn_new(&b->host, b, b->now);
	struct strbuf text;
	size_t i;

	strbuf_init(&text, MIB);
	strbuf_printf(&text, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n{\"prompt\":\"x\"", len);
	for (i = 14; i < len; i++) strbuf_putc(&text, ' ');
	strbuf_putc(&text, '}');
	conn_input(c, text.data, text.len, b->now);
	strbuf_release(&text);
	return c;
}

/* Each of them is small enough for the loop, all of them are not. */
static void test_a_crowd_of_larger_bodies_leaves_the_loop(void **state)
{
	const size_t large = PREP_INLINE_BYTES / 4;
	struct conn *conns[8];
	uv_loop_t loop;
	struct box b;
	size_t i;

	box_open(&b, true);
	uv_loop_init(&loop);
	b.api.offload.loop = &loop;
	for (i = 0; i < 4; i++) conns[i] = post(&b, large);
	assert_int_equal(b.api.offload.n_jobs, 0);
	conns[4] = post(&b, large);
	conns[5] = post(&b, large);
	assert_int_equal(b.api.offload.n_jobs, 2);
	conns[6] = post(&b, PREP_SMALL_BYTES);
	assert_int_equal(b.api.offload.n_jobs, 2);
	box_pass(&b); /* the next pass has room again */
	conns[7] = post(&b, large);
	assert_int_equal(b.api.offload.n_jobs, 2);
	while (b.api.offload.n_jobs > 0) uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(b.api.gens.len, 8);
	for (i = 0; i < 8; i++) {
		conn_lost(conns[i]);
		conn_free(conns[i]);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_loop_close(&loop);
	box_close(&b);
}

static void test_stream(void **state)
{
	struct heard h;
	struct box b;

	box_open(&b, true);
	box_post(&b, CHAT, "{" HELLO ",\"n\":3,\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
	box_give_to(&b, 0, TOKEN_NONE, FINISH_NONE);
	box_give_to(&b, 1, TOKEN_NONE, FINISH_NONE);
	assert_int_equal(b.in.len, 0); /* the third one may still be refused */
	box_give_to(&b, 2, TOKEN_NONE, FINISH_NONE);
	assert_int_equal(hear(&b).n_events, 3); /* who speaks */
	box_give_text_to(&b, 2, "three");
	assert_int_equal(hear(&b).n_events, 4);
	box_give_text_to(&b, 0, "one");
	box_give_to(&b, 2, 2, FINISH_STOP);
	assert_string_equal(hear(&b).finish[2], "stop"); /* at once, not when all have ended */
	box_give_text_to(&b, 1, "two");
	box_give_to(&b, 0, TOKEN_NONE, FINISH_LENGTH);
	assert_null(strstr(b.in.data, "[DONE]"));
	box_give_to(&b, 1, TOKEN_NONE, FINISH_LENGTH);
	h = hear(&b);
	assert_string_equal(h.text[0], "one");
	assert_string_equal(h.text[1], "two");
	assert_string_equal(h.text[2], "three");
	assert_string_equal(h.finish[0], "length");
	assert_string_equal(h.finish[1], "length");
	expect_usage(&b, "\"choices\":[],\"usage\":{\"prompt_tokens\":");
	assert_non_null(strstr(b.in.data, "data: [DONE]\n\n"));
	assert_int_equal(b.api.gens.len, 0);
	box_close(&b);
}

/* An executor that says nothing keeps the headers back for a moment only. */
static void test_stream_begins_in_time(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"stream\":true}");
	b.now += GEN_BEGIN_NS - 1;
	box_pass(&b);
	assert_int_equal(b.in.len, 0);
	b.now++;
	box_pass(&b);
	assert_int_equal(box_status(&b), 200);
	box_give(&b, 5, FINISH_LENGTH);
	assert_non_null(strstr(b.in.data, "data: [DONE]\n\n"));
	assert_int_equal(b.api.gens_unsaid.len, 0);
	box_close(&b);
}

/* What waits for a slow reader is a chunk a choice, and its end. */
static void test_stalled_reader_of_choices(void **state)
{
	char filler[1024] = "";
	struct heard h;
	struct box b;
	int i, k;

	memset(filler, ' ', sizeof(filler));
	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":100,\"n\":3}");
	for (i = 0; i < 3; i++) box_give_to(&b, i, TOKEN_NONE, FINISH_NONE);
	b.reads = false;
	for (i = 0; i < 300; i++) strbuf_append(conn_out(b.conn), filler, sizeof(filler)); /* as if earlier chunks were still unsent */
	conn_touched(b.conn);
	for (i = 0; i < 50; i++)
		for (k = 0; k < 3; k++) box_give_to(&b, k, 26843, FINISH_NONE);
	box_give_to(&b, 1, TOKEN_NONE, FINISH_LENGTH);
	assert_int_equal(conn_unsent(b.conn), 300 * sizeof(filler));
	b.reads = true;
	box_pass(&b);
	box_pass(&b);
	h = hear(&b);
	assert_int_equal(h.n_events, 4); /* three chunks and one end */
	for (k = 0; k < 3; k++) assert_int_equal(strlen(h.text[k]), 100);
	assert_string_equal(h.finish[1], "length");
	assert_true(h.finish[0][0] == 0 && h.finish[2][0] == 0);
	box_give_to(&b, 0, TOKEN_NONE, FINISH_LENGTH);
	box_give_to(&b, 2, TOKEN_NONE, FINISH_LENGTH);
	assert_int_equal(hear(&b).n_events, 6);
	box_close(&b);
}

static void test_id_tells_the_frontend(void **state)
{
	char want[64];
	struct box b;

	box_open(&b, true);
	box_post(&b, CHAT, "{" HELLO ",\"n\":2}");
	snprintf(want, sizeof(want), "\"id\":\"chatcmpl-%016llx%016llx\"", (unsigned long long)b.api.run_id, (unsigned long long)b.orders[0].m.client_id);
	box_give_to(&b, 0, 5, FINISH_LENGTH);
	box_give_to(&b, 1, 5, FINISH_LENGTH);
	if (!strstr(b.in.data, want)) fail_msg("%s", b.in.data);
	box_close(&b);
}

/* Control tokens are left out of the text unless the client wants them. */
static void test_control_tokens(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\"}");
	box_give(&b, 1, FINISH_NONE);
	box_give(&b, 26843, FINISH_LENGTH);
	assert_string_equal(hear(&b).text[0], "Hi");
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"skip_special_tokens\":false}");
	box_give(&b, 1, FINISH_NONE);
	box_give(&b, 26843, FINISH_LENGTH);
	assert_string_equal(hear(&b).text[0], "<|im_start|>Hi");
	box_close(&b);
}

static void test_continuous_usage(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[[1,2],[3]],\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}");
	box_give_text_to(&b, 1, "one");
	box_give_to(&b, 0, TOKEN_NONE, FINISH_NONE);
	expect_usage(&b, "{\"index\":1,\"text\":\"one\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,"
			 "\"total_tokens\":2}}");
	box_give_text_to(&b, 0, "two");
	expect_usage(&b, "{\"index\":0,\"text\":\"two\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,"
			 "\"total_tokens\":3}}");
	box_give_to(&b, 0, TOKEN_NONE, FINISH_LENGTH);
	box_give_to(&b, 1, TOKEN_NONE, FINISH_LENGTH);
	box_close(&b);
}

static void test_best_of(void **state)
{
	static const float logprobs[] = {-3, -1, -2, -1};
	struct heard h;
	struct box b;
	int i;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[[1,2],[3]],\"n\":2,\"best_of\":4,\"max_tokens\":50}");
	assert_int_equal(b.n_orders, 8);
	for (i = 0; i < 8; i++) {
		char text[] = {(char)('a' + i), 0};

		b.logprob = logprobs[i % 4];
		box_give_text_to(&b, i, text);
		if (i == 1) { /* longer, and less likely on average than its first token */
			b.logprob = -1.5f;
			box_give_text_to(&b, i, "x");
		}
		box_give_to(&b, i, TOKEN_NONE, FINISH_LENGTH);
	}
	h = hear(&b);
	assert_int_equal(h.n_choices, 4);
	assert_string_equal(h.text[0], "d"); /* -1 */
	assert_string_equal(h.text[1], "bx"); /* -1.25 */
	assert_string_equal(h.text[2], "f"); /* equal ones: the earlier first */
	assert_string_equal(h.text[3], "h");
	assert_null(strstr(b.in.data, "\"tokens\"")); /* nobody asked for log-probabilities */
	expect_usage(&b, "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9,");
	box_close(&b);
}

static void test_echo(void **state)
{
	static const char *const requests[] = {"{\"prompt\":[[26843],\"one\"],\"echo\":true}", "{\"prompt\":[[26843],\"one\"],\"echo\":true,\"stream\":true}"};
	struct heard h;
	struct box b;
	size_t i;

	box_open(&b, true);
	for (i = 0; i < 2; i++) {
		box_post(&b, TEXT, requests[i]);
		box_give_text_to(&b, 0, " there");
		box_give_to(&b, 0, TOKEN_NONE, FINISH_LENGTH);
		box_give_to(&b, 1, 2, FINISH_STOP); /* says nothing */
		h = hear(&b);
		assert_string_equal(h.text[0], "Hi there");
		assert_string_equal(h.text[1], "one");
	}
	box_close(&b);
}

/* max_tokens 0: the prompt and nothing else. */
static void test_echo_only(void **state)
{
	static const char *const requests[] = {"{\"prompt\":[[26843],[26843,665]],\"echo\":true,\"max_tokens\":0,\"logprobs\":0}",
					       "{\"prompt\":[[26843],[26843,665]],\"echo\":true,\"max_tokens\":0,\"logprobs\":0,\"stream\":true}"};
	struct heard h;
	struct box b;
	size_t i;

	box_open(&b, true);
	for (i = 0; i < 2; i++) {
		box_post(&b, TEXT, requests[i]);
		assert_int_equal(b.order.m.n_output_max, 1);
		box_give_to(&b, 0, 5, FINISH_LENGTH);
		box_give_to(&b, 1, 2, FINISH_STOP);
		h = hear(&b);
		assert_string_equal(h.text[0], "Hi");
		assert_string_equal(h.text[1], "Hi there");
		assert_string_equal(h.finish[0], "length");
		assert_string_equal(h.finish[1], "length");
		assert_non_null(strstr(b.in.data, "{\"tokens\":[\"Hi\"],\"token_logprobs\":[null]"));
		assert_non_null(strstr(b.in.data, "{\"tokens\":[\"Hi\",\" there\"],\"token_logprobs\":[null,-0.5]"));
		if (i == 0) expect_usage(&b, "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":0,\"total_tokens\":3,");
	}
	box_close(&b);
}

/* The prompt's own values come in front of the output's, in a stream as in a document. */
static void test_echo_with_logprobs(void **state)
{
	struct box b;
	int stream;

	box_open(&b, true);
	for (stream = 0; stream < 2; stream++) {
		box_post(&b, TEXT, stream ? "{\"prompt\":[26843,665],\"echo\":true,\"logprobs\":0,\"max_tokens\":5,\"stream\":true}"
					  : "{\"prompt\":[26843,665],\"echo\":true,\"logprobs\":0,\"max_tokens\":5}");
		box_give(&b, 26843, FINISH_LENGTH);
		assert_non_null(strstr(b.in.data, "\"text\":\"Hi thereHi\",\"logprobs\":{\"tokens\":[\"Hi\",\" there\",\"Hi\"],\"token_logprobs\":"
						  "[null,-0.5,-0.5],\"top_logprobs\":[null,{\" there\":-0.5},{\"Hi\":-0.5}],\"text_offset\":[0,2,8]}"));
	}
	box_close(&b);
}

/* vLLM's form: of a chat once, of a text with each choice; ranks from 1. */
static void test_prompt_logprobs(void **state)
{
	static const char row[] = "\"prompt_logprobs\":[null,{\"665\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\" there\"},"
				  "\"10\":{\"logprob\":-1.0,\"rank\":1,\"decoded_token\":";
	const char *p;
	struct box b;
	int i, n = 0;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[26843,665],\"prompt_logprobs\":1,\"n\":2}");
	for (i = 0; i < 2; i++) box_give_to(&b, i, 5, FINISH_LENGTH);
	for (p = b.in.data; (p = strstr(p, row)); p++) n++;
	assert_int_equal(n, 2);
	box_post(&b, CHAT, "{" HELLO ",\"prompt_logprobs\":0,\"n\":2}");
	for (i = 0; i < 2; i++) box_give_to(&b, i, 5, FINISH_LENGTH);
	p = strstr(b.in.data, "\"prompt_logprobs\":[null,{");
	assert_true(p && !strstr(p + 2, "prompt_logprobs") && strstr(b.in.data, "\"usage\":{") < p);
	box_close(&b);
}

/* ---- reasoning and calls ---- */

static void test_calls(void **state)
{
	static const char *const requests[] = {"{" HELLO "," TOOLS ",\"n\":2}", "{" HELLO "," TOOLS ",\"n\":2,\"stream\":true}"};
	struct errbuf err;
	struct heard h;
	struct box b;
	size_t i;

	box_open(&b, true);
	assert_int_equal(config_set(&b.config, "tool-call-parser", "hermes", &err), ST_OK);
	for (i = 0; i < 2; i++) {
		box_post(&b, CHAT, requests[i]);
		if (box_status(&b) == 400) fail_msg("%s", b.in.data);
		box_give_text_to(&b, 1, "Just text.");
		box_give_text_to(&b, 0, "Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>");
		box_give_to(&b, 0, 2, FINISH_STOP);
		box_give_to(&b, 1, 2, FINISH_STOP);
		h = hear(&b);
		assert_string_equal(h.text[0], "Well.");
		assert_string_equal(h.calls[0], "f:{\"a\": 1}g:{}");
		assert_string_equal(h.finish[0], "tool_calls");
		assert_string_equal(h.text[1], "Just text.");
		assert_string_equal(h.finish[1], "stop");
	}
	box_close(&b);
}

static void test_reasoning(void **state)
{
	static const char *const more[] = {"", ",\"stream\":true,\"stream_options\":{\"include_usage\":true}", ",\"include_reasoning\":false"};
	char request[256];
	struct errbuf err;
	struct heard h;
	struct box b;
	size_t i;

	box_open(&b, true);
	assert_int_equal(config_set(&b.config, "reasoning-parser", "deepseek_r1", &err), ST_OK);
	for (i = 0; i < 3; i++) {
		snprintf(request, sizeof(request), "{" HELLO "%s}", more[i]);
		box_post(&b, CHAT, request);
		box_give_text(&b, "<think>Two and two.</think>Four.");
		box_give(&b, 2, FINISH_STOP);
		h = hear(&b);
		assert_string_equal(h.reasoning[0], i < 2 ? "Two and two." : "");
		assert_string_equal(h.text[0], "Four.");
		assert_string_equal(h.finish[0], "stop");
		assert_non_null(strstr(b.in.data, "\"completion_tokens_details\":{\"reasoning_tokens\":"));
		assert_null(strstr(b.in.data, "\"reasoning_tokens\":0"));
	}
	box_close(&b);
}

/* ---- ends ---- */

/* A stream that was accepted still gets a status when it waits in vain, but not one that has begun. */
static void test_queue_timeout(void **state)
{
	for (int has_begun = 0; has_begun < 2; has_begun++) {
		struct box b;

		box_open(&b, true);
		b.config.queue_timeout = NS_PER_S;
		box_post(&b, TEXT, "{\"prompt\":\"x\",\"stream\":true}");
		box_give(&b, TOKEN_NONE, FINISH_NONE);
		assert_int_equal(b.in.len, 0);
		if (has_begun) box_give(&b, 5, FINISH_NONE);
		box_refuse(&b, REFUSAL_QUEUE_TIMEOUT, "Too late.");
		assert_int_equal(box_status(&b), has_begun ? 200 : 503);
		assert_int_equal(strstr(b.in.data, "Retry-After") != NULL, !has_begun);
		assert_non_null(strstr(b.in.data, "Too late."));
		box_close(&b);
	}
}

/* One choice that cannot be served ends all of them. */
static void test_refusal_of_one(void **state)
{
	struct box b;
	int stream;

	for (stream = 0; stream < 2; stream++) {
		box_open(&b, true);
		box_post(&b, TEXT, stream ? "{\"prompt\":\"x\",\"n\":3,\"stream\":true}" : "{\"prompt\":\"x\",\"n\":3}");
		box_give_to(&b, 0, 5, FINISH_NONE);
		box_refuse(&b, REFUSAL_QUEUE_FULL, "The queue is full.");
		assert_int_equal(box_status(&b), 503);
		assert_non_null(strstr(b.in.data, "{\"error\":{\"message\":\"The queue is full.\""));
		box_pass(&b);
		assert_int_equal(b.n_cancels, 2);
		assert_int_equal(b.api.gens.len, 0);
		box_close(&b);
	}
}

static void test_error_inside_a_stream(void **state)
{
	struct box b;
	int i;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":3,\"stream\":true}");
	for (i = 0; i < 3; i++) box_give_to(&b, i, 5, FINISH_NONE);
	box_give_to(&b, 0, TOKEN_NONE, FINISH_ABORT);
	assert_int_equal(box_status(&b), 200);
	assert_non_null(strstr(b.in.data, "data: {\"error\":{\"message\":\"The engine ended the request before it was complete.\""));
	assert_non_null(strstr(b.in.data, "data: [DONE]\n\n"));
	box_pass(&b);
	assert_int_equal(b.n_cancels, 2);
	box_close(&b);
}

static void test_client_gone(void **state)
{
	static const char *const requests[] = {"{\"prompt\":[[1],[2]],\"n\":2}", "{\"prompt\":[[1],[2]],\"n\":2,\"stream\":true}"};
	struct lives_stats s;
	struct box b;
	int i;

	for (i = 0; i < 2; i++) {
		box_open(&b, true);
		box_post(&b, TEXT, requests[i]);
		box_give_to(&b, 2, 5, FINISH_NONE);
		box_give_to(&b, 0, 5, FINISH_LENGTH);
		conn_eof(b.conn, b.now);
		box_pass(&b);
		assert_int_equal(b.n_cancels, 3); /* one had ended */
		lives_stats(b.lives, &s);
		assert_true(s.n_live == 0 && b.api.gens.len == 0);
		box_give_to(&b, 2, 6, FINISH_NONE); /* what is still under way finds nobody */
		box_close(&b);
	}
}

/* ---- counts ---- */

static void expect_counts(const struct box *b, uint64_t stop, uint64_t length, uint64_t abort, uint64_t error)
{
	const _Atomic uint64_t *c = b->api.slot->counters;

	if (c[COUNTER_success_stop] != stop || c[COUNTER_success_length] != length || c[COUNTER_success_abort] != abort ||
	    c[COUNTER_success_error] != error)
		fail_msg("stop %d length %d abort %d error %d", (int)c[COUNTER_success_stop], (int)c[COUNTER_success_length],
			 (int)c[COUNTER_success_abort], (int)c[COUNTER_success_error]);
}

static void expect_histogram(const struct box *b, enum page_histogram h, uint64_t count, double sum)
{
	const struct page_hist *hist = &b->api.slot->hists[h];
	uint64_t bits = atomic_load(&hist->sum_bits), n = 0;
	double got;

	memcpy(&got, &bits, sizeof(got));
	for (size_t i = 0; i < PAGE_BUCKETS_MAX; i++) n += atomic_load(&hist->buckets[i]);
	assert_int_equal(n, count);
	if (got < sum - 1e-9 || got > sum + 1e-9) fail_msg("%g instead of %g", got, sum);
}

/* A request counts once, its prompts and choices each; a box's token takes a millisecond. */
static void test_metrics(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[[1,2],[3]],\"n\":2}");
	box_give_to(&b, 0, 5, FINISH_NONE);   /* at 1 ms */
	box_give_to(&b, 1, 5, FINISH_NONE);   /* at 2 ms */
	box_give_to(&b, 0, 5, FINISH_NONE);   /* 2 ms after its first */
	box_give_to(&b, 0, 2, FINISH_STOP);   /* 1 ms after that */
	box_give_to(&b, 1, 2, FINISH_STOP);   /* 3 ms after its first */
	box_give_to(&b, 2, 5, FINISH_LENGTH); /* at 6 ms */
	expect_counts(&b, 0, 0, 0, 0);
	box_give_to(&b, 3, 2, FINISH_STOP);   /* at 7 ms */
	expect_counts(&b, 0, 1, 0, 0); /* one of them was cut off */
	expect_histogram(&b, HISTOGRAM_ttft, 4, 0.016);
	expect_histogram(&b, HISTOGRAM_itl, 3, 0.006);
	expect_histogram(&b, HISTOGRAM_e2e, 1, 0.007);
	expect_histogram(&b, HISTOGRAM_request_prompt, 2, 3);
	expect_histogram(&b, HISTOGRAM_request_output, 4, 7);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":2}");
	box_give_to(&b, 0, 2, FINISH_STOP);
	box_give_to(&b, 1, 2, FINISH_STOP);
	expect_counts(&b, 1, 1, 0, 0);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":2}");
	box_give_to(&b, 0, 2, FINISH_STOP);
	box_give_to(&b, 1, TOKEN_NONE, FINISH_ABORT);
	expect_counts(&b, 1, 1, 0, 1);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":2}");
	conn_eof(b.conn, b.now);
	expect_counts(&b, 1, 1, 1, 1);
	assert_true(b.api.slot->counters[COUNTER_client_gone] == 1);
	expect_histogram(&b, HISTOGRAM_request_output, 6, 9);
	box_close(&b);
}

/* Every kind of request gives back what it took. */
static void test_nothing_is_left(void **state)
{
	static const char *const requests[] = {
		"{\"prompt\":[[1,2],[3]],\"n\":2,\"best_of\":3,\"stop\":[\"a\",\"b\"],\"logprobs\":2,\"echo\":true,\"prompt_logprobs\":1,\"return_token_ids\":true}",
		"{\"prompt\":[1,2],\"n\":3,\"stream\":true,\"logit_bias\":{\"7\":3},\"allowed_token_ids\":[8],\"logprobs\":1}",
		"{\"prompt\":[1,2],\"guided_choice\":[\"a\"]}",
		"{\"prompt\":[1,2],\"n\":9}",
	};
	size_t before = 0;
	int round, i, k, n;
	struct box b;

	for (round = 0; round < 3; round++) {
		before = leak_bytes_used();
		for (i = 0; i < (int)ARRAY_LEN(requests); i++) {
			box_open(&b, true);
			box_post(&b, TEXT, requests[i]);
			n = b.n_orders;
			for (k = 0; k < n; k++) box_give_to(&b, k, 26843, FINISH_NONE);
			for (k = 0; k < n && round != 1; k++) box_give_to(&b, k, TOKEN_NONE, FINISH_LENGTH);
			if (round == 1) conn_eof(b.conn, b.now);
			box_close(&b);
		}
		if (round > 0) assert_int_equal(leak_bytes_used(), before);
	}
}

static void test_end_of_the_process(void **state)
{
	struct lives_stats s;
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"n\":3,\"stream\":true}");
	box_give_to(&b, 1, 5, FINISH_NONE);
	gens_release(&b.api);
	lives_stats(b.lives, &s);
	assert_int_equal(s.n_live, 0);
	box_close(&b);
}

static int setup(void **state)
{
	box_tokenizer = tokjson_load("tokenizer/files/smollm2/tokenizer.json", "<|im_start|>", "<|im_end|>");
	return box_tokenizer ? 0 : -1;
}

static int teardown(void **state)
{
	tokenizer_free(box_tokenizer);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_too_many_choices),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_a_crowd_of_larger_bodies_leaves_the_loop),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_stream_begins_in_time),
		cmocka_unit_test(test_stalled_reader_of_choices),
		cmocka_unit_test(test_id_tells_the_frontend),
		cmocka_unit_test(test_control_tokens),
		cmocka_unit_test(test_continuous_usage),
		cmocka_unit_test(test_best_of),
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_echo_only),
		cmocka_unit_test(test_echo_with_logprobs),
		cmocka_unit_test(test_prompt_logprobs),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_reasoning),
		cmocka_unit_test(test_queue_timeout),
		cmocka_unit_test(test_refusal_of_one),
		cmocka_unit_test(test_error_inside_a_stream),
		cmocka_unit_test(test_client_gone),
		cmocka_unit_test(test_end_of_the_process),
		cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_nothing_is_left),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
