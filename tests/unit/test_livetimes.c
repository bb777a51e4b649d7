/* test_livetimes.c - what the frontend's requests know of time: how long they may still wait, and how long they have waited. */
#include "common/strbuf.h"
#include "frontend/live.h"
#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MS NS_PER_MS

struct bench {
	struct lives *l;
	uint64_t now, epoch;
	uint32_t n_submits, attempt, queue_ms; /* of the last submit */
	struct strbuf out;
};

static int on_send(void *ctx, const struct msg *m)
{
	struct bench *b = ctx;

	if (m->type != MSG_submit) return ST_OK;
	b->n_submits++;
	b->attempt = m->submit.attempt;
	b->queue_ms = m->submit.queue_ms;
	return ST_OK;
}

static bool on_token(void *ctx, void *owner, const struct live_token *t)
{
	strbuf_printf(&((struct bench *)ctx)->out, "%u@%u q%u p%u ", t->id, t->position, t->queued_us, t->prefill_us);
	return false;
}

static void on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	strbuf_printf(&((struct bench *)ctx)->out, "end %d %u", finish, refusal);
}

/* A new executor: everything is submitted to it. */
static void bench_epoch(struct bench *b, uint64_t now)
{
	struct msg welcome = {.type = MSG_welcome, .welcome = {PROTO_VERSION, ++b->epoch, 2048, 9}};
	uint32_t n = b->n_submits;

	b->now = now;
	lives_on_epoch(b->l, b->epoch, now);
	lives_step(b->l, now);
	lives_on_message(b->l, &welcome, now);
	lives_step(b->l, now);
	lives_check(b->l);
	assert_int_equal(b->n_submits, n + 1);
}

static void bench_init(struct bench *b, uint32_t queue_ms)
{
	static const uint32_t prompt[] = {10, 11, 12};
	const struct lives_config cfg = {.silence_ns = 100 * NS_PER_S, .hello_ns = 100 * MS, .requests_max = 4};
	const struct lives_out out = {.ctx = b, .send = on_send, .on_token = on_token, .on_end = on_end};
	const struct msg_submit m = {.tokens = view_of(prompt, 3), .n_prompt = 3, .n_output_max = 4, .queue_ms = queue_ms};

	*b = (struct bench){0};
	strbuf_init(&b->out, 4096);
	b->l = lives_new(&cfg, &out);
	assert_non_null(lives_start(b->l, &m, b, 5 * MS));
}

static void bench_release(struct bench *b)
{
	lives_free(b->l);
	strbuf_release(&b->out);
}

/* A row of n tokens 100, 101, ... from the position on; NULL: without that column; n_times: what it claims to have. */
static void bench_row(struct bench *b, uint32_t attempt, uint32_t position, uint32_t n, const uint32_t *queued, const uint32_t *prefill,
		      uint32_t n_times)
{
	const uint64_t ids[] = {client_id_make(0, 0, 1)};
	const uint32_t zeros[4] = {0}, tokens[] = {100 + position, 101 + position};
	struct msg m = {.type = MSG_results,
			.results = {.epoch = b->epoch,
				    .client_ids = view_of(ids, 1),
				    .attempts = view_of(&attempt, 1),
				    .positions = view_of(&position, 1),
				    .n_tokens = view_of(&n, 1),
				    .finishes = view_of(zeros, 1),
				    .n_cached = view_of(zeros, 1),
				    .tokens = view_of(tokens, n),
				    .n_top = view_of(zeros, n),
				    .ranks = view_of(zeros, n),
				    .queued_us = view_of(queued, queued ? n_times : 0),
				    .prefill_us = view_of(prefill, prefill ? n_times : 0)}};

	lives_on_message(b->l, &m, b->now);
	lives_check(b->l);
}

static void bench_expect(struct bench *b, const char *want)
{
	assert_string_equal(b->out.data ? b->out.data : "", want);
	strbuf_reset(&b->out);
}

static void a_successor_is_told_what_remains_of_the_queue_timeout(void **state)
{
	struct bench b;

	bench_init(&b, 500);
	bench_epoch(&b, 100 * MS);
	assert_int_equal(b.queue_ms, 500); /* the executor counts from when it gets it */
	bench_epoch(&b, 300 * MS + MS / 2);
	assert_int_equal(b.queue_ms, 300);
	bench_row(&b, b.attempt, 0, 0, NULL, NULL, 0); /* accepted: it waits */
	bench_epoch(&b, 599 * MS);
	assert_int_equal(b.queue_ms, 1);
	bench_epoch(&b, 5000 * MS);
	assert_int_equal(b.queue_ms, 1); /* 0 would be for ever */
	bench_release(&b);
}

static void without_a_queue_timeout_nothing_is_said(void **state)
{
	struct bench b;

	bench_init(&b, 0);
	bench_epoch(&b, 100 * MS);
	assert_int_equal(b.queue_ms, 0);
	bench_epoch(&b, 300 * MS);
	assert_int_equal(b.queue_ms, 0);
	bench_release(&b);
}

/* Whatever says that it runs: a row with its time in the queue, or a token; of an older attempt too. */
static void what_has_run_waits_for_ever(void **state)
{
	static const struct {
		uint32_t attempt, n, queued;
		uint32_t queue_ms; /* afterwards */
	} rows[] = {{1, 0, 7, 0}, {1, 1, 0, 0}, {0, 0, 7, 0}, {0, 1, 0, 0}, {1, 0, 0, 400}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct bench b;

		bench_init(&b, 500);
		bench_epoch(&b, 100 * MS);
		bench_row(&b, rows[i].attempt, 0, rows[i].n, &rows[i].queued, NULL, 1);
		bench_epoch(&b, 200 * MS);
		if (b.queue_ms != rows[i].queue_ms) fail_msg("row %zu: %u", i, b.queue_ms);
		bench_release(&b);
	}
}

static void the_first_token_says_how_long_it_took(void **state)
{
	const uint32_t queued = 12, prefill = 34;
	struct bench b;

	bench_init(&b, 0);
	bench_epoch(&b, 100 * MS);
	bench_row(&b, 1, 0, 2, &queued, &prefill, 1);
	bench_expect(&b, "100@0 q12 p34 101@1 q0 p0 ");
	bench_row(&b, 1, 2, 1, &queued, &prefill, 1); /* there is one first token */
	bench_expect(&b, "102@2 q0 p0 ");
	bench_release(&b);
	bench_init(&b, 0);
	bench_epoch(&b, 100 * MS);
	bench_row(&b, 1, 0, 1, NULL, NULL, 0);
	bench_expect(&b, "100@0 q0 p0 ");
	bench_release(&b);
}

static void columns_of_other_lengths_are_dropped(void **state)
{
	const uint32_t times[2] = {1, 2};
	struct lives_stats st;
	struct bench b;

	bench_init(&b, 0);
	bench_epoch(&b, 100 * MS);
	bench_row(&b, 1, 0, 1, times, NULL, 2);
	bench_row(&b, 1, 0, 1, NULL, times, 2);
	bench_expect(&b, "");
	lives_stats(b.l, &st);
	assert_int_equal(st.dropped_stale, 2);
	bench_release(&b);
}

static void a_queue_timeout_ends_what_was_accepted(void **state)
{
	struct msg m = {.type = MSG_refused,
			.refused = {.epoch = 1, .client_id = client_id_make(0, 0, 1), .attempt = 1, .reason = REFUSAL_QUEUE_TIMEOUT, .text = view_text("late")}};
	struct bench b;

	bench_init(&b, 500);
	bench_epoch(&b, 100 * MS);
	bench_row(&b, 1, 0, 0, NULL, NULL, 0);
	lives_on_message(b.l, &m, b.now);
	bench_expect(&b, "end 3 7");
	bench_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_successor_is_told_what_remains_of_the_queue_timeout),
		cmocka_unit_test(without_a_queue_timeout_nothing_is_said),
		cmocka_unit_test(what_has_run_waits_for_ever),
		cmocka_unit_test(the_first_token_says_how_long_it_took),
		cmocka_unit_test(columns_of_other_lengths_are_dropped),
		cmocka_unit_test(a_queue_timeout_ends_what_was_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
