/* test_admission.c - the door of a frontend: what a request takes and gives back whichever way it ends, refusals and when to come back,
 * deadlines, tenants. */
#include "frontend/admission.h"
#include "tests/support/box.h"
#include "tests/support/tokjson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define ASK "{\"prompt\":[1,2,3],\"max_tokens\":5,\"ignore_eos\":true"

static void open_with(struct box *b, const char *const *options)
{
	struct errbuf err;

	box_open(b, true);
	for (; *options; options += 2) assert_int_equal(config_set(&b->config, options[0], options[1], &err), ST_OK);
	admission_open(&b->api, &b->page->governor, 0);
}
#define OPEN(b, ...) open_with(b, (const char *const[]){__VA_ARGS__, NULL})

static uint64_t counted(const struct box *b, enum governor_what what)
{
	return governor_count(&b->page->governor, GOVERNOR_MESH, what);
}

static void expect_counted(const struct box *b, uint64_t requests, uint64_t tokens)
{
	assert_int_equal(counted(b, GOVERNOR_REQUESTS), requests);
	assert_int_equal(counted(b, GOVERNOR_TOKENS), tokens);
	if (requests == 0) assert_int_equal(b->api.door.deadlines.n, 0);
}

/* A sibling, which holds something. */
static struct governor_door sibling(struct box *b)
{
	struct governor_door d = b->api.door.governor;

	d.slot = 1;
	return d;
}

static void expect_error(const struct box *b, int status, const char *type, const char *text)
{
	json_t *j = box_json(b), *e = json_object_get(j, "error");
	bool retries = status == 429 || status == 503;

	if (box_status(b) != status || !strstr(json_string_value(json_object_get(e, "message")), text)) fail_msg("%s", b->in.data);
	assert_string_equal(json_string_value(json_object_get(e, "type")), type);
	assert_int_equal(strstr(b->in.data, "\r\nRetry-After: ") != NULL, retries);
	assert_int_equal(strstr(b->in.data, "\r\nretry-after-ms: ") != NULL, retries);
	json_decref(j);
}

static void pass_after(struct box *b, uint64_t ms)
{
	b->now += ms * NS_PER_MS;
	conn_tick(b->conn, b->now);
	box_pass(b);
}

/* ---- taking and giving back ---- */

static void every_end_gives_back(void **state)
{
	static const char *const refused[][2] = {
		{TEXT, "{"}, {TEXT, "{}"}, {TEXT, "{\"prompt\":\"a\",\"model\":\"x\"}"}, {CHAT, "{" HELLO ",\"n\":0}"}, {"/v1/embeddings", "{}"},
		{"/v1/messages", "{}"}, {"/v1/responses", "{}"},
	};
	struct box b;

	OPEN(&b, "request-timeout", "60");
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		box_post(&b, refused[i][0], refused[i][1]);
		assert_true(box_status(&b) >= 400);
		expect_counted(&b, 0, 0);
	}
	box_post(&b, TEXT, ASK "}");
	expect_counted(&b, 1, 8);
	box_give(&b, 5, FINISH_LENGTH);
	assert_int_equal(box_status(&b), 200);
	expect_counted(&b, 0, 0);
	box_post(&b, TEXT, ASK ",\"stream\":true,\"n\":2}");
	expect_counted(&b, 2, 16);
	box_give_to(&b, 0, 5, FINISH_STOP);
	expect_counted(&b, 2, 16); /* until all of it has ended */
	box_give_to(&b, 1, 5, FINISH_STOP);
	expect_counted(&b, 0, 0);
	box_post(&b, TEXT, ASK "}");
	box_refuse(&b, REFUSAL_QUEUE_TIMEOUT, "It has waited.");
	expect_error(&b, 503, "ServiceUnavailableError", "It has waited.");
	expect_counted(&b, 0, 0);
	box_post(&b, "/v1/embeddings", "{\"input\":[[1,2],[3]]}");
	expect_counted(&b, 2, 3);
	conn_lost(b.conn);
	expect_counted(&b, 0, 0);
	box_close(&b);
}

static void a_client_that_leaves_gives_back(void **state)
{
	for (int begun = 0; begun < 2; begun++) {
		struct box b;

		OPEN(&b, "request-timeout", "60");
		box_post(&b, TEXT, ASK ",\"stream\":true,\"n\":3}");
		if (begun) box_give_to(&b, 1, 5, FINISH_NONE);
		expect_counted(&b, 3, 24);
		conn_eof(b.conn, b.now);
		expect_counted(&b, 0, 0);
		box_close(&b);
	}
}

/* What needs no engine needs no place. */
static void other_paths_take_nothing(void **state)
{
	struct governor_hold all = {0};
	struct governor_door other;
	struct box b;

	OPEN(&b, "max-requests", "3");
	other = sibling(&b);
	assert_int_equal(governor_reserve(&other, 0, 3, &all), GOVERNOR_OK);
	box_post(&b, "/tokenize", "{\"prompt\":\"a\"}");
	assert_int_equal(box_status(&b), 200);
	box_post(&b, "/v1/messages/count_tokens", "{\"model\":\"m\"," HELLO "}");
	assert_int_equal(box_status(&b), 200);
	expect_counted(&b, 3, 0);
	box_close(&b);
}

/* ---- limits ---- */

static void full_is_503_and_says_when(void **state)
{
	struct governor_hold all = {0};
	struct governor_door other;
	struct box b;

	OPEN(&b, "max-requests", "3");
	other = sibling(&b);
	assert_int_equal(governor_reserve(&other, 0, 3, &all), GOVERNOR_OK);
	box_post(&b, TEXT, "{");
	expect_error(&b, 503, "ServiceUnavailableError", "it holds 3 requests, which is its limit (--max-requests)");
	box_post(&b, "/v1/messages", "{");
	expect_error(&b, 503, "overloaded_error", "--max-requests");
	assert_int_equal(atomic_load(&b.api.slot->counters[COUNTER_rejected_requests]), 2);
	governor_give_back(&other, &all);
	assert_int_equal(governor_reserve(&other, 0, 1, &all), GOVERNOR_OK);
	box_post(&b, TEXT, ASK ",\"n\":3}");
	expect_error(&b, 503, "ServiceUnavailableError", "--max-requests");
	box_post(&b, TEXT, ASK ",\"n\":4}");
	expect_error(&b, 400, "invalid_request_error", "asks for 4 answers");
	expect_counted(&b, 1, 0);
	assert_int_equal(b.n_submits, 0);
	box_post(&b, TEXT, ASK ",\"n\":2}");
	expect_counted(&b, 3, 16);
	box_close(&b);
}

static void the_queue_has_a_limit_of_its_own(void **state)
{
	struct box b;

	OPEN(&b, "max-num-seqs", "1", "max-queued-requests", "1");
	box_post(&b, TEXT, ASK ",\"n\":2}");
	expect_counted(&b, 2, 16);
	box_close(&b);
	OPEN(&b, "max-num-seqs", "1", "max-queued-requests", "1");
	assert_int_equal(governor_reserve(&(struct governor_door){.g = &b.page->governor, .slot = 1}, 0, 2, &(struct governor_hold){0}), GOVERNOR_OK);
	box_post(&b, TEXT, ASK "}");
	expect_error(&b, 503, "ServiceUnavailableError", "2 requests run or wait, which is its limit (--max-num-seqs 1, --max-queued-requests 1)");
	assert_int_equal(atomic_load(&b.api.slot->counters[COUNTER_rejected_queue]), 1);
	box_close(&b);
}

static void tokens_have_limits(void **state)
{
	struct governor_hold some = {0};
	struct governor_door other;
	struct box b;

	OPEN(&b, "max-inflight-tokens", "20", "tenant-max-tokens", "10");
	other = sibling(&b);
	box_post(&b, TEXT, "{\"prompt\":[1,2,3],\"max_tokens\":18}");
	expect_error(&b, 400, "invalid_request_error", "may have 21 tokens, prompt and answer; this server takes 20");
	box_post(&b, TEXT, "{\"prompt\":[1,2,3],\"max_tokens\":8}");
	expect_error(&b, 400, "invalid_request_error", "may have 11 tokens, prompt and answer; 10 at a time");
	assert_int_equal(governor_reserve(&other, 0, 1, &some), GOVERNOR_OK);
	assert_int_equal(governor_extend(&other, &some, 0, 3), GOVERNOR_OK);
	box_post(&b, TEXT, ASK "}");
	expect_error(&b, 429, "rate_limit_error", "may have 10 tokens, prompts and answers (--tenant-max-tokens)");
	governor_give_back(&other, &some);
	assert_int_equal(governor_reserve(&other, 77, 1, &some), GOVERNOR_OK);
	other.limits.tenant_tokens = 0;
	assert_int_equal(governor_extend(&other, &some, 0, 13), GOVERNOR_OK);
	box_post(&b, TEXT, ASK "}");
	expect_error(&b, 503, "ServiceUnavailableError", "no room for the tokens of this request");
	box_post(&b, TEXT, "{\"prompt\":[1,2,3],\"max_tokens\":4}");
	expect_counted(&b, 2, 20);
	box_close(&b);
}

static void tenants_have_limits(void **state)
{
	struct box b;
	struct governor_door other;
	struct governor_hold hold = {0};

	OPEN(&b, "tenant-max-requests", "2");
	box_post_with(&b, TEXT, "X-Gateway-Inference-Fairness-Id: a\r\n", ASK "}");
	box_give(&b, 5, FINISH_LENGTH);
	other = sibling(&b);
	assert_int_equal(governor_reserve(&other, b.order.m.tenant, 2, &hold), GOVERNOR_OK);
	box_post_with(&b, TEXT, "x-gateway-inference-fairness-id: a \r\n", "{");
	expect_error(&b, 429, "rate_limit_error", "2 requests at a time are taken from you (--tenant-max-requests)");
	box_post_with(&b, "/v1/messages", "x-gateway-inference-fairness-id: a\r\n", "{");
	expect_error(&b, 429, "rate_limit_error", "--tenant-max-requests");
	box_post_with(&b, TEXT, "x-gateway-inference-fairness-id: b\r\n", ASK "}");
	expect_counted(&b, 3, 8);
	assert_true(b.order.m.tenant != 0 && b.order.m.tenant >> 32 == 0);
	box_close(&b);
}

/* ---- before the body ---- */

static void a_large_body_is_not_waited_for(void **state)
{
	static const char head[] = "POST " TEXT " HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n";
	static const char small[] = "POST " TEXT " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
	static const char expects[] = "POST " TEXT " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
	struct governor_hold all = {0};
	struct box b;

	for (int i = 0; i < 4; i++) {
		const char *text = i == 0 ? small : i == 1 ? head : i == 2 ? expects : head;
		struct governor_door other;

		OPEN(&b, "max-requests", "3");
		other = sibling(&b);
		all = (struct governor_hold){0};
		if (i < 3) assert_int_equal(governor_reserve(&other, 0, 3, &all), GOVERNOR_OK);
		conn_input(b.conn, text, strlen(text), b.now);
		box_pass(&b);
		assert_int_equal(box_status(&b), i == 1 || i == 2 ? 503 : 0);
		if (box_status(&b)) expect_error(&b, 503, "ServiceUnavailableError", "--max-requests");
		/* Nobody holds a place by not sending. */
		expect_counted(&b, i < 3 ? 3 : 0, 0);
		box_close(&b);
	}
}

/* ---- deadlines ---- */

static void a_plain_answer_that_is_late_is_504(void **state)
{
	struct box b;

	OPEN(&b, "request-timeout", "60");
	box_post_with(&b, TEXT, "X-Request-Timeout: 0.5\r\n", ASK "}");
	pass_after(&b, 499);
	assert_int_equal(box_status(&b), 0);
	assert_int_equal(admission_next(&b.api), b.now + NS_PER_MS);
	pass_after(&b, 1);
	expect_error(&b, 504, "timeout_error", "not answered within 0.5 s");
	assert_int_equal(b.n_cancels, 1);
	assert_int_equal(atomic_load(&b.api.slot->counters[COUNTER_request_timeouts]), 1);
	expect_counted(&b, 0, 0);
	/* The option is the upper bound. */
	box_post_with(&b, TEXT, "X-Request-Timeout: 100\r\n", ASK "}");
	assert_int_equal(admission_next(&b.api), b.now + 60 * NS_PER_S);
	box_give(&b, 5, FINISH_LENGTH);
	assert_int_equal(box_status(&b), 200);
	assert_int_equal(admission_next(&b.api), UINT64_MAX);
	box_post_with(&b, "/v1/embeddings", "X-Request-Timeout: 2\r\n", "{\"input\":[[1,2],[3]]}");
	pass_after(&b, 2000);
	expect_error(&b, 504, "timeout_error", "not answered within 2 s");
	expect_counted(&b, 0, 0);
	box_close(&b);
}

static void a_stream_that_is_late_ends_with_an_error(void **state)
{
	static const struct {
		const char *path, *body, *has;
	} rows[] = {
		{TEXT, ASK ",\"stream\":true}", "data: {\"error\":{\"message\":\"The request was not answered within 1 s"},
		{CHAT, "{" HELLO ",\"stream\":true}", "\"type\":\"timeout_error\""},
		{"/v1/messages", "{\"model\":\"m\",\"max_tokens\":5," HELLO ",\"stream\":true}", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"timeout_error\""},
		{"/v1/responses", "{\"input\":\"hi\",\"stream\":true}", "response.failed"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct box b;

		OPEN(&b, "request-timeout", "1");
		box_post(&b, rows[i].path, rows[i].body);
		box_give(&b, 5, FINISH_NONE);
		assert_int_equal(box_status(&b), 200);
		pass_after(&b, 1000);
		if (!strstr(b.in.data, rows[i].has)) fail_msg("%s", b.in.data);
		assert_string_equal(b.in.data + b.in.len - 5, "0\r\n\r\n");
		assert_int_equal(b.n_cancels, 1);
		expect_counted(&b, 0, 0);
		box_close(&b);
	}
}

static void bad_times_are_400(void **state)
{
	static const char *const bad[] = {"X-Request-Timeout: 0\r\n", "X-Request-Timeout: -1\r\n", "X-Request-Timeout: abc\r\n", "X-Request-Timeout: 1s\r\n",
					  "X-Request-Timeout: \r\n", "X-Request-Timeout: inf\r\n", "X-Request-Timeout: 1e3\r\n", "X-Request-Timeout: 0x10\r\n",
					  "X-Request-Timeout: 1 2\r\n", "X-Request-Timeout: 1.2.3\r\n", "X-Request-Timeout: .\r\n",
					  "X-Request-Timeout: 99999999999999999999\r\n", "X-Request-Timeout: 1\r\nX-Request-Timeout: 1\r\n",
					  "x-slo-ttft-ms: x\r\n", "x-slo-ttft-ms: 0\r\n"};
	struct box b;

	OPEN(&b, "request-timeout", "60");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		box_post_with(&b, TEXT, bad[i], ASK "}");
		expect_error(&b, 400, "invalid_request_error", i < 13 ? "The header x-request-timeout must be one positive number of seconds." : "one positive number of milliseconds");
		expect_counted(&b, 0, 0);
	}
	box_post_with(&b, TEXT, "X-Request-Timeout: 1.5 \r\n", ASK "}");
	assert_int_equal(admission_next(&b.api), b.now + 1500 * NS_PER_MS);
	box_close(&b);
}

/* ---- the first token ---- */

/* The status waits for the first token, so a late one is a 503 with a stream, too. */
static void a_late_first_token_is_503(void **state)
{
	for (int is_stream = 0; is_stream < 2; is_stream++) {
		const char *body = is_stream ? ASK ",\"stream\":true}" : ASK "}";
		struct box b;

		OPEN(&b, "request-timeout", "60");
		box_post_with(&b, TEXT, "x-slo-ttft-ms: 250\r\n", body);
		box_give(&b, TOKEN_NONE, FINISH_NONE); /* accepted */
		pass_after(&b, 200);
		assert_int_equal(box_status(&b), 0);
		pass_after(&b, 50);
		expect_error(&b, 503, "ServiceUnavailableError", "a first token within 250 ms (x-slo-ttft-ms) has not come");
		assert_int_equal(b.n_cancels, 1);
		expect_counted(&b, 0, 0);
		box_post_with(&b, TEXT, "x-slo-ttft-ms: 250\r\n", body);
		pass_after(&b, 200);
		box_give(&b, 5, FINISH_NONE);
		assert_int_equal(box_status(&b), is_stream ? 200 : 0);
		assert_int_equal(admission_next(&b.api), b.now - 200 * NS_PER_MS - NS_PER_MS + 60 * NS_PER_S);
		pass_after(&b, 1000);
		box_give(&b, 5, FINISH_LENGTH);
		assert_int_equal(box_status(&b), 200);
		expect_counted(&b, 0, 0);
		box_close(&b);
	}
}

static void a_hopeless_wish_is_refused_at_once(void **state)
{
	struct box b;

	OPEN(&b, "request-timeout", "60");
	b.api.door.token_ns = 300 * NS_PER_MS;
	page_gauge(&b.page->executor, GAUGE_waiting, 4);
	box_post_with(&b, TEXT, "x-slo-ttft-ms: 299\r\n", "{");
	expect_error(&b, 503, "ServiceUnavailableError", "is not to be expected");
	assert_int_equal(atomic_load(&b.api.slot->counters[COUNTER_rejected_ttft]), 1);
	box_post_with(&b, TEXT, "x-slo-ttft-ms: 300\r\n", "{");
	assert_int_equal(box_status(&b), 400);
	page_gauge(&b.page->executor, GAUGE_waiting, 0);
	box_post_with(&b, TEXT, "x-slo-ttft-ms: 299\r\n", "{");
	assert_int_equal(box_status(&b), 400);
	box_close(&b);
}

/* ---- what submits say ---- */

static void submits_name_the_tenant_and_the_time_in_the_queue(void **state)
{
	struct apikeys keys = {0};
	struct errbuf err;
	uint64_t a, with_id, other;
	struct box b;

	OPEN(&b, "queue-timeout", "1.5");
	box_post(&b, TEXT, ASK "}");
	assert_int_equal(b.order.m.tenant, 0);
	assert_int_equal(b.order.m.queue_ms, 1500);
	box_give(&b, 5, FINISH_LENGTH);
	assert_int_equal(apikeys_add_list(&keys, "one,two", &err), ST_OK);
	b.api.keys = &keys;
	box_post_with(&b, TEXT, "Authorization: Bearer one\r\n", ASK "}");
	a = b.order.m.tenant;
	box_give(&b, 5, FINISH_LENGTH);
	assert_true(a >> 32 != 0 && (uint32_t)a == 0);
	box_post_with(&b, TEXT, "x-api-key: one\r\nX-Gateway-Inference-Fairness-Id: t\r\n", ASK "}");
	with_id = b.order.m.tenant;
	box_give(&b, 5, FINISH_LENGTH);
	assert_true(with_id >> 32 == a >> 32 && (uint32_t)with_id != 0);
	box_post_with(&b, "/v1/embeddings", "x-api-key: two\r\nX-Gateway-Inference-Fairness-Id: t\r\n", "{\"input\":[1]}");
	other = b.order.m.tenant;
	assert_true(other >> 32 != 0 && other >> 32 != a >> 32 && (uint32_t)other == (uint32_t)with_id);
	assert_int_equal(b.order.m.queue_ms, 1500);
	conn_lost(b.conn);
	apikeys_release(&keys);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_end_gives_back),
		cmocka_unit_test(a_client_that_leaves_gives_back),
		cmocka_unit_test(other_paths_take_nothing),
		cmocka_unit_test(full_is_503_and_says_when),
		cmocka_unit_test(the_queue_has_a_limit_of_its_own),
		cmocka_unit_test(tokens_have_limits),
		cmocka_unit_test(tenants_have_limits),
		cmocka_unit_test(a_large_body_is_not_waited_for),
		cmocka_unit_test(a_plain_answer_that_is_late_is_504),
		cmocka_unit_test(a_stream_that_is_late_ends_with_an_error),
		cmocka_unit_test(bad_times_are_400),
		cmocka_unit_test(a_late_first_token_is_503),
		cmocka_unit_test(a_hopeless_wish_is_refused_at_once),
		cmocka_unit_test(submits_name_the_tenant_and_the_time_in_the_queue),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
