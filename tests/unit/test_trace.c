/* test_trace.c - trace context as W3C says, spans as OTLP JSON, request lines without text, and lines that never hold the loop. */
#include "common/log.h"
#include "common/mem.h"
#include "frontend/reqlog.h"
#include "frontend/sink.h"
#include "frontend/trace.h"

#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static const uint64_t RANDOM[3] = {1, 2, 3};

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static void a_valid_traceparent_is_taken_over(void **state)
{
	static const struct {
		const char *header;
		bool is_sampled;
	} good[] = {
		{"00-" TRACE "-" PARENT "-01", true},
		{"00-" TRACE "-" PARENT "-00", false},
		{"00-" TRACE "-" PARENT "-03", true},
		{"00-" TRACE "-" PARENT "-fe", false},
		{"cc-" TRACE "-" PARENT "-01", true},
		{"cc-" TRACE "-" PARENT "-01-what-comes-later", true},
	};

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct tracectx t;

		tracectx_read(&t, good[i].header, RANDOM);
		assert_string_equal(t.trace_id, TRACE);
		assert_string_equal(t.parent_id, PARENT);
		assert_string_equal(t.span_id, "0000000000000001");
		assert_int_equal(t.is_sampled, good[i].is_sampled);
	}
}

static void anything_else_begins_a_trace(void **state)
{
	static const char *const bad[] = {
		NULL,
		"",
		"00",
		"00-" TRACE "-" PARENT "-0",
		"00-" TRACE "-" PARENT "-01-more",
		"00-" TRACE "-" PARENT "-01 ",
		"cc-" TRACE "-" PARENT "-01.more",
		"ff-" TRACE "-" PARENT "-01",
		"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
		"00-00000000000000000000000000000000-" PARENT "-01",
		"00-" TRACE "-0000000000000000-01",
		"00_" TRACE "-" PARENT "-01",
		"00-" TRACE "-" PARENT "-g1",
		"00-" TRACE "-b7ad6b716920333\xff-01",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct tracectx t;

		tracectx_read(&t, bad[i], RANDOM);
		assert_string_equal(t.trace_id, "00000000000000020000000000000003");
		assert_string_equal(t.parent_id, "");
		assert_true(t.is_sampled);
	}
}

static struct story new_story(void)
{
	struct story s = {
		.id = "request-\"1\"",
		.path = "/v1/completions",
		.method = "POST",
		.status = 200,
		.began_ns = 1000,
		.ended_ns = 9000000,
		.is_llm = true,
		.stages = {.parse = {2000, 500}, .template = {3000, 500}, .tokenize = {4000, 600}},
		.submitted_ns = 5000,
		.first_ns = 4000000,
		.last_ns = 8000000,
		.queued_us = 1000,
		.prefill_us = 2000,
		.n_prompt = 11,
		.n_cached = 5,
		.n_output = 7,
		.n = 1,
		.finish = "stop",
	};

	tracectx_read(&s.trace, "00-" TRACE "-" PARENT "-01", RANDOM);
	return s;
}

static uint64_t number(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	assert_non_null(s);
	return strtoull(s, NULL, 10);
}

static void expect_text(const json_t *o, const char *key, const char *text)
{
	assert_non_null(json_string_value(json_object_get(o, key)));
	assert_string_equal(json_string_value(json_object_get(o, key)), text);
}

/* Reads the line as strictly as a collector; gives its spans. */
static json_t *spans_of(const struct story *s, json_t **root)
{
	const struct trace_process p = {.model = "m\"", .instance = "x-0", .pid = 7};
	struct strbuf out;
	json_error_t e;
	json_t *scopes, *spans;

	strbuf_init(&out, 64 * KIB);
	trace_line(s, &p, 100, &out);
	assert_ptr_equal(strchr(out.data, '\n'), out.data + out.len - 1);
	*root = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, &e);
	if (!*root) fail_msg("%s: %s", e.text, out.data);
	strbuf_release(&out);
	scopes = json_object_get(json_array_get(json_object_get(*root, "resourceSpans"), 0), "scopeSpans");
	spans = json_object_get(json_array_get(scopes, 0), "spans");
	assert_non_null(spans);
	return spans;
}

static void stages_lie_in_the_request_one_after_the_other(void **state)
{
	static const char *const names[] = {"llm_request", "parse", "template", "tokenize", "queue", "prefill", "decode", "write"};
	struct story s = new_story();
	uint64_t at = 0, end;
	json_t *root, *spans = spans_of(&s, &root), *span;
	size_t i;

	assert_int_equal(json_array_size(spans), ARRAY_LEN(names));
	span = json_array_get(spans, 0);
	expect_text(span, "parentSpanId", PARENT);
	assert_int_equal(json_integer_value(json_object_get(span, "kind")), 2);
	end = number(span, "endTimeUnixNano");
	at = number(span, "startTimeUnixNano");
	assert_int_equal(at, 1100);
	json_array_foreach(spans, i, span) {
		expect_text(span, "traceId", TRACE);
		expect_text(span, "name", names[i]);
		if (i == 0) continue;
		expect_text(span, "parentSpanId", "0000000000000001");
		assert_true(number(span, "startTimeUnixNano") >= at);
		at = number(span, "endTimeUnixNano");
		assert_true(at >= number(span, "startTimeUnixNano") && at <= end);
	}
	span = json_array_get(spans, 5);
	assert_int_equal(number(span, "endTimeUnixNano") - number(span, "startTimeUnixNano"), 2000000);
	json_decref(root);
}

/* A clock of another process, a resubmit, an answer that never came: nothing leaves the request's time. */
static void times_that_cannot_be_are_bounded(void **state)
{
	struct story s = new_story();
	json_t *root, *spans, *span;
	size_t i;

	s.queued_us = s.prefill_us = UINT32_MAX;
	s.stages.parse.ns = UINT64_MAX / 2;
	s.stages.tokenize.began_ns = 1;
	spans = spans_of(&s, &root);
	json_array_foreach(spans, i, span) {
		assert_true(number(span, "startTimeUnixNano") >= 1100 && number(span, "endTimeUnixNano") <= 9000100);
		assert_true(number(span, "startTimeUnixNano") <= number(span, "endTimeUnixNano"));
	}
	json_decref(root);
	s = new_story();
	s.first_ns = s.last_ns = 0;
	s.status = 503;
	s.stages = (struct stages){.parse = {0, 0}};
	spans = spans_of(&s, &root);
	assert_int_equal(json_array_size(spans), 1);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(json_array_get(spans, 0), "status"), "code")), 2);
	json_decref(root);
}

static void what_is_not_sampled_or_has_no_tokens_is_no_span(void **state)
{
	struct story s = new_story();

	assert_true(trace_wants(&s));
	s.is_llm = false;
	assert_false(trace_wants(&s));
	s.is_llm = true;
	s.trace.is_sampled = false;
	assert_false(trace_wants(&s));
}

static void a_request_line_has_its_numbers_and_cut_text(void **state)
{
	struct story s = new_story();
	size_t cap = reqlog_cap(4), len;
	char *line = mem_array(char, cap);
	json_t *root;

	log_use_json(true);
	story_text(&s.prompt, 4, "ab\n\xc3\xa4" "c", 6); /* cut within a character */
	story_text(&s.said, 4, "x", 1);
	story_text(&s.said, 4, "\x01\x02\x03\x04", 4);
	len = reqlog_line(&s, "m", line, cap);
	root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	expect_text(root, "id", "request-\"1\"");
	expect_text(root, "trace_id", TRACE);
	expect_text(root, "prompt", "ab\n");
	expect_text(root, "answer", "x\x01\x02\x03");
	expect_text(root, "finish", "stop");
	assert_int_equal(json_integer_value(json_object_get(root, "cached_tokens")), 5);
	assert_true(json_real_value(json_object_get(root, "queue_ms")) == 1.0);
	assert_true(json_real_value(json_object_get(root, "write_ms")) == 1.0);
	json_decref(root);
	log_use_json(false);
	strbuf_release(&s.prompt);
	strbuf_release(&s.said);
	free(line);
}

static void probes_are_told_of_only_when_they_fail(void **state)
{
	struct story s = {.path = "/metrics", .status = 200};

	assert_false(reqlog_wants(&s));
	s.status = 401;
	assert_true(reqlog_wants(&s));
	snprintf(s.path, sizeof(s.path), "/ready");
	s.status = 503;
	assert_false(reqlog_wants(&s));
	snprintf(s.path, sizeof(s.path), "/v1/chat/completions");
	assert_true(reqlog_wants(&s));
}

/* ---- the sink ---- */

static void lines_reach_the_file_behind_what_is_there(void **state)
{
	char path[] = "/tmp/test-trace-XXXXXX", text[64] = {0};
	struct errbuf err;
	struct sink *s;
	int fd = mkstemp(path);

	assert_int_equal(write(fd, "old\n", 4), 4);
	assert_int_equal(sink_open(&s, path, &err), ST_OK);
	sink_put(s, "one\n", 4);
	sink_put(s, "two\n", 4);
	sink_wake(s);
	sink_put(s, "three\n", 6);
	sink_close(s);
	assert_int_equal(pread(fd, text, sizeof(text), 0), 18);
	assert_string_equal(text, "old\none\ntwo\nthree\n");
	close(fd);
	unlink(path);
}

static void a_file_that_was_moved_away_is_made_anew(void **state)
{
	char dir[] = "/tmp/test-trace-XXXXXX", path[64], old[64], text[64] = {0};
	struct errbuf err;
	struct sink *s;
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/spans", dir);
	snprintf(old, sizeof(old), "%s/spans.1", dir);
	assert_int_equal(sink_open(&s, path, &err), ST_OK);
	assert_int_equal(rename(path, old), 0);
	assert_int_equal(sink_reopen(s, "/nonexistent/x", &err), ST_IO);
	assert_int_equal(sink_reopen(s, path, &err), ST_OK);
	sink_put(s, "new\n", 4);
	sink_close(s);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	close(fd);
	unlink(path);
	unlink(old);
	rmdir(dir);
}

static void what_cannot_be_written_is_dropped_and_counted(void **state)
{
	struct errbuf err;
	struct sink *s;

	assert_int_equal(sink_open(&s, "/nonexistent/x", &err), ST_IO);
	assert_string_equal(err.text, "/nonexistent/x: No such file or directory");
	assert_int_equal(sink_open(&s, "/dev/full", &err), ST_OK);
	for (int i = 0; i < 3; i++) sink_put(s, "line\n", 5);
	sink_wake(s);
	for (int i = 0; i < 2000 && sink_dropped(s) < 3; i++) usleep(1000);
	assert_int_equal(sink_dropped(s), 3);
	sink_close(s);
}

/* A pipe whose reader sleeps: nothing waits for it, and when it wakes up the lines that it gets are whole. */
static void a_stuck_reader_holds_nobody(void **state)
{
	enum { LINE = 1000, N = 10000 };
	static char line[LINE], got[LINE];
	size_t n = 0, have = 0;
	struct sink *s;
	ssize_t rc;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	memset(line, 'x', sizeof(line));
	line[LINE - 1] = '\n';
	s = sink_on(fds[1]);
	for (int i = 0; i < N; i++) {
		sink_put(s, line, sizeof(line));
		sink_wake(s);
	}
	assert_true(sink_dropped(s) > 0);
	assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
	for (int quiet = 0; quiet < 200;) {
		rc = read(fds[0], got + have, sizeof(got) - have);
		if (rc <= 0) {
			quiet++;
			usleep(1000);
			continue;
		}
		quiet = 0;
		have += (size_t)rc;
		if (have < sizeof(got)) continue;
		assert_memory_equal(got, line, sizeof(line));
		have = 0;
		n++;
	}
	assert_int_equal(have, 0);
	assert_int_equal(n + sink_dropped(s), N);
	sink_close(s);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_valid_traceparent_is_taken_over),
		cmocka_unit_test(anything_else_begins_a_trace),
		cmocka_unit_test(stages_lie_in_the_request_one_after_the_other),
		cmocka_unit_test(times_that_cannot_be_are_bounded),
		cmocka_unit_test(what_is_not_sampled_or_has_no_tokens_is_no_span),
		cmocka_unit_test(a_request_line_has_its_numbers_and_cut_text),
		cmocka_unit_test(probes_are_told_of_only_when_they_fail),
		cmocka_unit_test(lines_reach_the_file_behind_what_is_there),
		cmocka_unit_test(a_file_that_was_moved_away_is_made_anew),
		cmocka_unit_test(what_cannot_be_written_is_dropped_and_counted),
		cmocka_unit_test(a_stuck_reader_holds_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
