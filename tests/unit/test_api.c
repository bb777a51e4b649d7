/* test_api.c - the API over a connection without a socket and an executor that is played by the test: what a request becomes at the
 * executor, what the client gets back, and what happens when either goes away. */
#include "common/mem.h"
#include "frontend/api.h"
#include "frontend/chat.h"
#include "frontend/conn.h"
#include "frontend/gen.h"
#include "tests/support/box.h"
#include "tests/support/tokjson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Content and finish reason of a plain or a streamed answer. */
static void read_answer(const struct box *b, char *text, size_t cap, char *finish)
{
	const char *p = box_body(b), *end;

	*text = *finish = 0;
	if (!strstr(b->in.data, "text/event-stream")) {
		json_t *j = box_json(b), *c = json_array_get(json_object_get(j, "choices"), 0);

		snprintf(text, cap, "%s", json_string_value(json_object_get(c, "text")));
		snprintf(finish, 16, "%s", json_string_value(json_object_get(c, "finish_reason")));
		json_decref(j);
		return;
	}
	for (; (p = strstr(p, "data: {")); p = end) {
		json_t *j, *c;

		end = strstr(p, "\n\n");
		j = json_loadb(p + 6, (size_t)(end - p - 6), 0, NULL);
		c = json_array_get(json_object_get(j, "choices"), 0);
		assert_non_null(j);
		strcat(text, c ? json_string_value(json_object_get(c, "text")) : "");
		if (json_is_string(json_object_get(c, "finish_reason"))) {
			assert_int_equal(finish[0], 0); /* only once */
			strcpy(finish, json_string_value(json_object_get(c, "finish_reason")));
		}
		json_decref(j);
	}
}

/* ---- errors ---- */

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define MSG_(s) "{\"messages\":" s "}"

static const struct {
	const char *path, *body;
	int status;
	const char *message;
} errors[] = {
	{TEXT, "{", 400, "The request's body is not valid JSON (line 1, column 1): string or '}' expected near end of file"},
	{TEXT, "[]", 400, "The request's body must be a JSON object."},
	{TEXT, "{}", 400, "`prompt` is required."},
	{TEXT, "{\"prompt\":\"a\",\"priority\":-3}", 400, "Got priority -3 but Priority scheduling is not enabled."},
	{CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"priority\":1}", 400, "Got priority 1 but Priority scheduling is not enabled."},
	{TEXT, "{\"prompt\":\"\"}", 400, "`prompt` holds no tokens to start from."},
	{TEXT, "{\"prompt\":[]}", 400, "`prompt` must be a text or a list of token ids, not empty, or a list of these."},
	{TEXT, "{\"prompt\":[[]]}", 400, "`prompt` must be a text or a list of token ids, not empty, or a list of these."},
	{TEXT, "{\"prompt\":[\"\",\"a\"]}", 400, "`prompt` holds no tokens to start from."},
	{TEXT, "{\"prompt\":{}}", 400, "`prompt` must be a text or a list of token ids, not empty, or a list of these."},
	{TEXT, "{\"prompt\":[1,\"a\"]}", 400, "`prompt` must be a list of token ids."},
	{TEXT, "{\"prompt\":[1,49152]}", 400, "Token id 49152 is out of vocabulary (49152 tokens)."},
	{TEXT, "{\"prompt\":[-1]}", 400, "Token id -1 is out of vocabulary (49152 tokens)."},
	{TEXT, "{\"prompt\":\"a\",\"model\":\"x\"}", 404, "The model `x` does not exist."},
	{TEXT, "{\"prompt\":\"a\",\"max_tokens\":0}", 400, "`max_tokens` must be a whole number of at least 1."},
	{TEXT, "{\"prompt\":\"a\",\"stop_token_ids\":[49152]}", 400, "`stop_token_ids` holds 49152, which is no token of this model."},
	{CHAT, "{}", 400, "`messages` must be a list of messages, not empty."},
	{CHAT, MSG_("[]"), 400, "`messages` must be a list of messages, not empty."},
	{CHAT, MSG_("\"hi\""), 400, "`messages` must be a list of messages, not empty."},
	{CHAT, MSG_("[\"hi\"]"), 400, "`messages[0]` must be an object."},
	{CHAT, MSG_("[null]"), 400, "`messages[0]` must be an object."},
	{CHAT, MSG_("[{\"content\":\"hi\"}]"), 400, "`messages[0].role` must be `system`, `developer`, `user`, `assistant` or `tool`."},
	{CHAT, MSG_("[{\"role\":\"wizard\",\"content\":\"hi\"}]"), 400,
	 "`messages[0].role` must be `system`, `developer`, `user`, `assistant` or `tool`."},
	{CHAT, MSG_("[{\"role\":\"user\"}]"), 400, "`messages[0].content` must be a string or a list of parts, not empty."},
	{CHAT, MSG_("[{\"role\":\"user\",\"content\":5}]"), 400, "`messages[0].content` must be a string or a list of parts, not empty."},
	{CHAT, MSG_("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]"), 400, "`messages[0].content[0].text` must be a string."},
	{CHAT, MSG_("[{\"role\":\"user\",\"content\":[{\"type\":\"nosuch\"}]}]"), 400, "`messages[0].content[0].type` must be `text`."},
	{CHAT, MSG_("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]"), 400,
	 "`messages[0].content[0]` of type `image_url` is not supported."},
	{CHAT, "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 400,
	 "`tool_choice` auto needs to know how the model writes its calls, which its chat template does not tell; use `required` or a named function, "
	 "or start the server with --tool-call-parser."},
	{CHAT, MSG_("[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"user\",\"content\":\"1\"},"
		    "{\"role\":\"user\",\"content\":\"1\"}]"), 400, "Too many turns."},
	{"/detokenize", "{\"tokens\":5}", 400, "`tokens` must be a list of token ids."},
	{"/tokenize", "{\"prompt\":5}", 400, "`prompt` must be a text."},
	{"/tokenize", "{\"prompt\":\"a\",\"model\":\"x\"}", 404, "The model `x` does not exist."},
	{"/nothing", "{}", 404, "There is nothing at /nothing."},
	{"/health", "{}", 405, "This method is not allowed for this path."},
};

static void test_errors(void **state)
{
	struct box b;
	size_t i;

	box_open(&b, true);
	for (i = 0; i < ARRAY_LEN(errors); i++) {
		json_t *j;
		const char *message;

		box_post(&b, errors[i].path, errors[i].body);
		j = box_json(&b);
		message = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
		if (box_status(&b) != errors[i].status || !message || strcmp(message, errors[i].message) != 0)
			fail_msg("%s %s: %s", errors[i].path, errors[i].body, b.in.data);
		json_decref(j);
	}
	assert_int_equal(b.n_submits, 0);
	box_close(&b);
}

static void test_not_ready(void **state)
{
	struct box b;

	box_open(&b, false);
	box_post(&b, TEXT, "{\"prompt\":\"a\"}");
	assert_int_equal(box_status(&b), 503);
	assert_non_null(strstr(b.in.data, "Retry-After: 1\r\n"));
	assert_non_null(strstr(b.in.data, "The model is not ready yet: "));
	box_welcome(&b);
	box_post(&b, TEXT, "{\"prompt\":\"a\",\"max_tokens\":1}");
	assert_int_equal(b.n_submits, 1);
	b.api.draining = true;
	box_give(&b, 5, FINISH_LENGTH);
	assert_int_equal(box_status(&b), 200); /* what runs is finished */
	box_post(&b, TEXT, "{\"prompt\":\"a\"}");
	assert_int_equal(box_status(&b), 503);
	box_close(&b);
}

/* The mesh is ready, but the executor's welcome is still on its way to this frontend: the request waits for it. */
static void test_ready_before_welcome(void **state)
{
	struct page_slot *slots[3];
	struct box b;

	box_open(&b, false);
	slots[0] = &b.page->workers[0];
	slots[1] = &b.page->executor;
	slots[2] = b.api.slot;
	for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
		page_state(slots[i], PAGE_SERVING);
		atomic_store(&slots[i]->heartbeat_ns, b.now);
	}
	atomic_store(&b.page->model_len_max, BOX_LEN_MAX);
	box_post(&b, TEXT, "{\"prompt\":\"a\",\"max_tokens\":1}");
	assert_int_equal(b.n_submits, 0);
	assert_int_equal(b.in.len, 0);
	box_welcome(&b);
	lives_step(b.lives, b.now);
	assert_int_equal(b.n_submits, 1);
	box_give(&b, 5, FINISH_LENGTH);
	assert_int_equal(box_status(&b), 200);
	box_close(&b);
}

/* ---- what reaches the executor ---- */

static void test_submit(void **state)
{
	size_t n_end = 0;
	struct box b;

	box_open(&b, true);
	b.config.scheduling_policy = SCHEDULING_PRIORITY;
	box_post(&b, TEXT, "{\"prompt\":[1,2,3],\"model\":\"second\"}");
	assert_true(b.order.m.n_prompt == 3 && b.order.tokens[0] == 1 && b.order.tokens[2] == 3);
	assert_true(b.order.m.n_output_max == 16 && b.order.m.n_output_min == 0); /* OpenAI's default */
	assert_true(b.order.m.temperature == 1 && b.order.m.top_p == 1 && b.order.m.top_k == 0 && b.order.m.min_p == 0);
	assert_true(b.order.m.n_logprobs == 0 && b.order.m.priority == 1u << 31 && b.order.m.cache_salt.n == 0);
	assert_true(b.order.m.stop_ids.n >= 1 && b.order.stop_ids[0] == 2);
	box_give(&b, 5, FINISH_LENGTH);

	box_post(&b, TEXT,
	     "{\"prompt\":\"a<|im_end|>\",\"max_tokens\":1000000000000,\"min_tokens\":7,\"temperature\":1e-6,\"top_p\":0.5,\"top_k\":9,"
	     "\"min_p\":0.25,\"seed\":-1,\"logprobs\":3,\"priority\":-2,\"cache_salt\":\"salt\",\"ignore_eos\":true,\"stop_token_ids\":[9,11]}");
	assert_true(b.order.m.n_prompt == 2 && b.order.tokens[1] == 2); /* control tokens count in a raw prompt */
	assert_true(b.order.m.n_output_max == BOX_LEN_MAX - 2 && b.order.m.n_output_min == 7);
	assert_true(b.order.m.temperature == 0 && b.order.m.top_p == 0.5f && b.order.m.top_k == 9 && b.order.m.min_p == 0.25f);
	assert_true(b.order.m.seed == UINT64_MAX && b.order.m.n_logprobs == 4 && b.order.m.priority == (1u << 31) - 2);
	assert_true(b.order.m.cache_salt.n == 4 && b.order.m.stop_ids.n == 2 && b.order.stop_ids[0] == 9 && b.order.stop_ids[1] == 11);
	box_give(&b, 5, FINISH_LENGTH);

	/* a chat may use all that is left; its users' control tokens are text */
	box_post(&b, CHAT, MSG_("[{\"role\":\"developer\",\"content\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_end|>\"}]}]"));
	assert_int_equal(b.order.m.n_output_max, BOX_LEN_MAX - b.order.m.n_prompt);
	for (uint32_t i = 0; i < b.order.m.n_prompt; i++) n_end += b.order.tokens[i] == 2;
	assert_int_equal(n_end, 2);
	box_give(&b, 5, FINISH_LENGTH);
	assert_int_equal(b.n_cancels, 0);
	box_close(&b);
}

static void test_prompt_lengths(void **state)
{
	static const struct {
		int n_prompt, status;
		uint32_t output_max;
	} rows[] = {{BOX_LEN_MAX - 1, 200, 1}, {BOX_LEN_MAX, 400, 0}, {BOX_LEN_MAX + 1, 400, 0}, {3 * BOX_LEN_MAX, 400, 0}};
	char text[8192];
	struct box b;
	size_t i;
	int k;

	box_open(&b, true);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		strcpy(text, "{\"max_tokens\":5,\"prompt\":[5");
		for (k = 1; k < rows[i].n_prompt; k++) strcat(text, ",5");
		strcat(text, "]}");
		box_post(&b, TEXT, text);
		if (rows[i].status == 200) {
			assert_int_equal(b.order.m.n_output_max, rows[i].output_max);
			box_give(&b, 5, FINISH_LENGTH);
		}
		assert_int_equal(box_status(&b), rows[i].status);
		if (rows[i].status == 400) assert_non_null(strstr(b.in.data, "maximum context length is 256 tokens"));
	}
	box_close(&b);
}

/* ---- answers ---- */

static const struct {
	const char *params, *output, *text, *finish;
	enum finish end; /* by the executor, after the output; NONE: the frontend has to end it */
	uint32_t last;   /* a token after the output, or TOKEN_NONE */
} answers[] = {
	{"", "Hello there, my friend.", "Hello there, my friend.", "length", FINISH_LENGTH, TOKEN_NONE},
	{"", "Hello there", "Hello there", "stop", FINISH_STOP, 2}, /* the stop token is no text */
	{",\"stop\":\"re, m\"", "Hello there, my friend.", "Hello the", "stop", FINISH_NONE, TOKEN_NONE},
	{",\"stop\":[\"xyz\",\"friend\"]", "Hello there, my friend.", "Hello there, my ", "stop", FINISH_NONE, TOKEN_NONE},
	{",\"stop\":\"friend\",\"include_stop_str_in_output\":true", "Hello there, my friend.", "Hello there, my friend", "stop", FINISH_NONE, TOKEN_NONE},
	{",\"stop\":\"friends\"", "Hello there, my friend", "Hello there, my friend", "length", FINISH_LENGTH, TOKEN_NONE},
	{",\"stop\":\"Hello\",\"min_tokens\":2", "Hello there Hello", "Hello there ", "stop", FINISH_NONE, TOKEN_NONE},
	{"", "a \xf0\x9f\xab\xa0\xf0\x9f\xa5\xb9 \xe9\xbe\x9c", "a \xf0\x9f\xab\xa0\xf0\x9f\xa5\xb9 \xe9\xbe\x9c", "length", FINISH_LENGTH, TOKEN_NONE},
	{",\"stop\":\"\xf0\x9f\xa5\xb9\"", "a \xf0\x9f\xab\xa0\xf0\x9f\xa5\xb9 b", "a \xf0\x9f\xab\xa0", "stop", FINISH_NONE, TOKEN_NONE},
};

static void test_answers(void **state)
{
	char request[512], text[512], finish[16];
	struct box b;
	size_t i;
	int stream, cancels = 0;

	box_open(&b, true);
	for (i = 0; i < ARRAY_LEN(answers); i++) {
		for (stream = 0; stream < 2; stream++) {
			snprintf(request, sizeof(request), "{\"prompt\":\"x\",\"max_tokens\":100,\"stream\":%s%s}", stream ? "true" : "false",
				 answers[i].params);
			box_post(&b, TEXT, request);
			box_give(&b, TOKEN_NONE, FINISH_NONE);
			if (stream) assert_int_equal(box_status(&b), 200); /* headers before the first token */
			else assert_int_equal(b.in.len, 0);
			box_give_text(&b, answers[i].output);
			if (answers[i].end == FINISH_NONE) cancels++;
			else box_give(&b, answers[i].last, answers[i].end);
			box_pass(&b);
			read_answer(&b, text, sizeof(text), finish);
			if (strcmp(text, answers[i].text) != 0 || strcmp(finish, answers[i].finish) != 0)
				fail_msg("row %zu, stream %d: \"%s\" %s", i, stream, text, finish);
			if (stream) assert_non_null(strstr(b.in.data, "data: [DONE]\n\n"));
			assert_int_equal(b.n_cancels, cancels);
			assert_int_equal(b.api.gens.len, 0);
		}
	}
	box_close(&b);
}

static void test_cut_character(void **state)
{
	struct token_vec ids;
	char text[64], finish[16];
	struct box b;

	token_vec_init(&ids, 16);
	tokenizer_encode(box_tokenizer, "\xf0\x9f\xab\xa0", 4, false, &ids);
	assert_true(ids.len > 1);
	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\"}");
	box_give(&b, ids.ids[0], FINISH_LENGTH);
	read_answer(&b, text, sizeof(text), finish);
	assert_string_equal(text, "\xef\xbf\xbd");
	box_close(&b);
	token_vec_release(&ids);
}

static void test_usage(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[1,2,3],\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
	box_give(&b, 5, FINISH_NONE);
	box_give(&b, 2, FINISH_STOP);
	assert_non_null(strstr(b.in.data, "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5,"
					  "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n"));
	box_close(&b);
}

static void test_stop_token(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":[1,2,3],\"stop_token_ids\":[9]}");
	box_give(&b, 5, FINISH_NONE);
	box_give(&b, 9, FINISH_STOP);
	assert_non_null(strstr(b.in.data, "\"finish_reason\":\"stop\",\"stop_reason\":9"));
	box_close(&b);
}

/* ---- ends ---- */

static void test_refusals(void **state)
{
	static const struct {
		enum refusal reason;
		int status;
	} rows[] = {{REFUSAL_TOO_LONG, 400}, {REFUSAL_QUEUE_FULL, 503}, {REFUSAL_QUEUE_TIMEOUT, 503}, {REFUSAL_DRAINING, 503}, {REFUSAL_POISON, 500}, {REFUSAL_NUMERIC, 500}};
	char request[128];
	struct box b;
	size_t i;
	int stream;

	box_open(&b, true);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		for (stream = 0; stream < 2; stream++) {
			snprintf(request, sizeof(request), "{\"prompt\":\"x\",\"stream\":%s}", stream ? "true" : "false");
			box_post(&b, TEXT, request);
			box_refuse(&b, rows[i].reason, "Because of 5 blocks.");
			assert_int_equal(box_status(&b), rows[i].status); /* a stream has not begun: a status, too */
			assert_non_null(strstr(b.in.data, "{\"error\":{\"message\":\"Because of 5 blocks.\""));
			assert_int_equal(strstr(b.in.data, "Retry-After") != NULL, rows[i].status == 503);
		}
	}
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"stream\":true}");
	box_give(&b, 5, FINISH_NONE);
	box_refuse(&b, REFUSAL_POISON, "Bad.");
	assert_int_equal(box_status(&b), 200);
	assert_non_null(strstr(b.in.data, "data: {\"error\":{\"message\":\"Bad.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\n"
					  "data: [DONE]\n\n"));
	box_post(&b, TEXT, "{\"prompt\":\"x\"}");
	box_give(&b, TOKEN_NONE, FINISH_ABORT);
	assert_int_equal(box_status(&b), 500);
	box_close(&b);
}

static void test_client_gone(void **state)
{
	static const char *const requests[] = {"{\"prompt\":\"x\"}", "{\"prompt\":\"x\",\"stream\":true}"};
	struct box b;
	int i, begun;

	for (i = 0; i < 2; i++) {
		for (begun = 0; begun < 2; begun++) {
			box_open(&b, true);
			box_post(&b, TEXT, requests[i]);
			if (begun) box_give(&b, 5, FINISH_NONE);
			conn_eof(b.conn, b.now);
			assert_true(conn_is_dead(b.conn));
			assert_int_equal(b.api.gens.len, 0);
			box_pass(&b);
			assert_int_equal(b.n_cancels, 1);
			box_give(&b, 6, FINISH_NONE); /* what is still under way finds nobody */
			box_close(&b);
		}
	}
}

static void test_too_many(void **state)
{
	struct box b;
	struct live *held[BOX_REQUESTS];
	int i;

	box_open(&b, true);
	for (i = 0; i < BOX_REQUESTS; i++) {
		uint32_t token = 1;
		struct msg_submit m = {.tokens = view_of(&token, 1), .n_prompt = 1, .n_output_max = 1};

		held[i] = lives_start(b.lives, &m, NULL, b.now);
	}
	box_post(&b, TEXT, "{\"prompt\":\"x\"}");
	assert_int_equal(box_status(&b), 503);
	assert_non_null(strstr(b.in.data, "Retry-After: 1\r\n"));
	for (i = 0; i < BOX_REQUESTS; i++) lives_cancel(b.lives, held[i]);
	box_close(&b);
}

/* A reader who stops gets no more than HTTP_STREAM_HIGH, and everything when he goes on: what had waited comes as one chunk. */
static void test_stalled_reader(void **state)
{
	char *filler = mem_zalloc(1, 300 * KIB);
	size_t n = 0;
	struct box b;
	int i;

	memset(filler, ' ', 300 * KIB);
	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":250}");
	box_give(&b, TOKEN_NONE, FINISH_NONE);
	b.reads = false;
	strbuf_append(conn_out(b.conn), filler, 300 * KIB); /* as if earlier chunks were still unsent */
	conn_touched(b.conn);
	for (i = 0; i < 200; i++) box_give(&b, 26843, FINISH_NONE);
	assert_int_equal(conn_unsent(b.conn), 300 * KIB);
	b.reads = true;
	strbuf_reset(&b.in);
	box_pass(&b);
	box_pass(&b);
	box_give(&b, 26843, FINISH_LENGTH);
	assert_int_equal(b.api.gens.len, 0);
	for (const char *p = b.in.data; (p = strstr(p, "data: {")); p++) n++;
	if (n != 3) fail_msg("%zu chunks: %s", n, b.in.data + 300 * KIB);
	free(filler);
	box_close(&b);
}

static void test_comments(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, TEXT, "{\"prompt\":\"x\",\"stream\":true}");
	b.now += 200 * NS_PER_MS; /* no word from the executor: the headers go out all the same */
	box_pass(&b);
	assert_int_equal(box_status(&b), 200);
	b.now += 14 * NS_PER_S;
	gens_tick(&b.api, b.now);
	box_pass(&b);
	assert_null(strstr(box_body(&b), ": \n\n"));
	b.now += 2 * NS_PER_S;
	gens_tick(&b.api, b.now);
	box_pass(&b);
	assert_string_equal(box_body(&b), "4\r\n: \n\n\r\n");
	box_give(&b, 5, FINISH_LENGTH);
	box_close(&b);
}

/* ---- small endpoints ---- */

static void test_tokens(void **state)
{
	struct box b;

	box_open(&b, true);
	box_post(&b, "/tokenize", "{\"prompt\":\"Hi there\",\"return_token_strs\":true}");
	assert_string_equal(box_body(&b), "{\"count\":2,\"max_model_len\":256,\"tokens\":[26843,665],\"token_strs\":[\"Hi\",\" there\"]}");
	box_post(&b, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"add_generation_prompt\":false}");
	assert_string_equal(box_body(&b), "{\"count\":6,\"max_model_len\":256,\"tokens\":[1,4093,198,26843,2,198],\"token_strs\":null}");
	box_post(&b, "/detokenize", "{\"tokens\":[26843,665,2]}");
	assert_string_equal(box_body(&b), "{\"prompt\":\"Hi there<|im_end|>\"}");
	box_close(&b);
}

static void test_get(void **state)
{
	static const struct {
		const char *request;
		int status;
		const char *part;
	} rows[] = {
		{"GET /v1/models", 200, "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\","},
		{"GET /v1/models/second", 200, "{\"id\":\"second\",\"object\":\"model\","},
		{"GET /v1/models/%6D", 200, "{\"id\":\"m\""},
		{"GET /v1/models/x%2Fy", 404, "The model `x/y` does not exist."},
		{"GET /v1/models/", 404, "There is nothing at /v1/models/."},
		{"GET /ping", 200, "{}"},
		{"GET /version", 200, "{\"version\":\""},
		{"GET /metrics", 200, "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 0"},
		{"GET /health", 503, "\"status\":\"unavailable\""},
		{"GET /v1/completions", 405, "Allow: POST, OPTIONS\r\n"},
		{"PUT /health", 405, "Allow: GET, HEAD, OPTIONS\r\n"},
		{"OPTIONS /v1/completions", 204, "Access-Control-Allow-Headers: authorization,content-type\r\n"},
		{"OPTIONS *", 204, "Access-Control-Allow-Methods: "},
	};
	char text[256];
	struct box b;
	size_t i;

	box_open(&b, true);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		strbuf_reset(&b.in);
		snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: x\r\nAccess-Control-Request-Headers: authorization,content-type\r\n\r\n", rows[i].request);
		conn_input(b.conn, text, strlen(text), b.now);
		box_pass(&b);
		if (box_status(&b) != rows[i].status || !strstr(b.in.data, rows[i].part)) fail_msg("%s: %s", rows[i].request, b.in.data);
	}
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
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_not_ready),
		cmocka_unit_test(test_ready_before_welcome),
		cmocka_unit_test(test_submit),
		cmocka_unit_test(test_prompt_lengths),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_cut_character),
		cmocka_unit_test(test_usage),
		cmocka_unit_test(test_stop_token),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_client_gone),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_stalled_reader),
		cmocka_unit_test(test_comments),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_get),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
