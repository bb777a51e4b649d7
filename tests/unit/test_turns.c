/* test_turns.c - whose turn it is in the whole core: tenants, priorities, preemption, queue timeouts, and the times that frontends are told. */
#include "tests/support/corebox.h"

#include "common/mem.h"
#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS        NS_PER_MS
#define ACCOUNT(a) ((uint64_t)(a) << 32)

/* What the frontends heard: "7 " request 7 ended, "7! " its queue timeout did, "7+ " a row that says that it runs. */
static char heard[4096];
static uint32_t queued_us[100], prefill_us[100]; /* of the first token, by counter */

static void hear(uint64_t client_id, const char *what)
{
	char word[32];

	snprintf(word, sizeof(word), "%u%s ", (uint32_t)client_id_counter(client_id), what);
	strcat(heard, word);
}

static int listen_to(struct corebox *b, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	const struct msg_results *r = &m->results;

	if (b->send_rc[frontend] != ST_OK) return b->send_rc[frontend];
	if (m->type == MSG_refused) hear(m->refused.client_id, m->refused.reason == REFUSAL_QUEUE_TIMEOUT ? "!" : "?");
	for (uint32_t i = 0; m->type == MSG_results && i < r->client_ids.n; i++) {
		uint64_t id = col_u64(r->client_ids, i);
		uint32_t queued = col_u32_or_0(r->queued_us, i), prefill = col_u32_or_0(r->prefill_us, i);

		if (queued && !prefill) hear(id, "+");
		if (prefill) {
			queued_us[client_id_counter(id)] = queued;
			prefill_us[client_id_counter(id)] = prefill;
		}
		if (col_u32_or_0(r->finishes, i)) hear(id, "");
	}
	return ST_OK;
}

static void start(struct corebox *b, const struct core_config *cfg, uint32_t n_blocks)
{
	heard[0] = 0;
	memset(queued_us, 0, sizeof(queued_us));
	memset(prefill_us, 0, sizeof(prefill_us));
	corebox_start(b, cfg, n_blocks, 400);
	corebox_hello(b, 1, 0);
	b->on_send = listen_to;
}

static struct core_config one_at_a_time(void)
{
	struct core_config cfg = corebox_config();

	cfg.seqs_max = 1;
	cfg.steps_in_flight_max = 1;
	return cfg;
}

static struct msg_submit request(struct corebox *b, uint32_t frontend, uint64_t counter, uint64_t tenant, uint32_t n_prompt, uint32_t n_out)
{
	struct msg_submit m = corebox_request(b, counter, (uint32_t)counter * 1000, n_prompt, n_out);

	m.client_id = client_id_make(frontend, 0, counter);
	m.tenant = tenant;
	return m;
}

static void submit(struct corebox *b, uint32_t frontend, uint64_t counter, uint64_t tenant, uint32_t n_prompt, uint32_t n_out)
{
	struct msg_submit m = request(b, frontend, counter, tenant, n_prompt, n_out);

	corebox_on_submit(b, &m);
}

static void submit_waiting(struct corebox *b, uint64_t counter, uint32_t queue_ms, uint32_t n_out)
{
	struct msg_submit m = request(b, 0, counter, 0, 20, n_out);

	m.queue_ms = queue_ms;
	corebox_on_submit(b, &m);
}

static void expect_heard(const char *want)
{
	assert_string_equal(heard, want);
	heard[0] = 0;
}

static void a_crowd_of_one_tenant_does_not_hold_up_another(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct corebox b;

	start(&b, &cfg, 20);
	for (uint64_t i = 1; i <= 5; i++) submit(&b, 0, i, ACCOUNT(1), 20, 2);
	submit(&b, 1, 6, ACCOUNT(2), 20, 2);
	submit(&b, 1, 7, ACCOUNT(2), 20, 2);
	corebox_run(&b);
	expect_heard("1 6 2 7 3 4 5 ");
	assert_int_equal(corebox_stats(&b).n_tenants, 0);
	corebox_release(&b);
}

static void without_fairness_it_does(void **state)
{
	struct core_config cfg = one_at_a_time();
	struct corebox b;

	cfg.fair = false;
	start(&b, &cfg, 20);
	for (uint64_t i = 1; i <= 5; i++) submit(&b, 0, i, ACCOUNT(1), 20, 2);
	submit(&b, 1, 6, ACCOUNT(2), 20, 2);
	assert_int_equal(corebox_stats(&b).n_tenants, 1);
	corebox_run(&b);
	expect_heard("1 2 3 4 5 6 ");
	corebox_release(&b);
}

/* Output tokens count twice: 30 + 2 x 2 is less than 20 + 2 x 8. */
static void who_had_more_waits_longer(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct corebox b;

	start(&b, &cfg, 20);
	submit(&b, 0, 1, ACCOUNT(1), 20, 8);
	submit(&b, 0, 2, ACCOUNT(2), 30, 2);
	submit(&b, 0, 3, ACCOUNT(1), 20, 8);
	submit(&b, 0, 4, ACCOUNT(2), 30, 2);
	submit(&b, 0, 5, ACCOUNT(2), 30, 2);
	corebox_run(&b);
	expect_heard("1 2 4 3 5 ");
	corebox_release(&b);
}

/* Tokens from the prefix cache are free. */
static void cached_tokens_are_not_charged(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct msg_submit m;
	struct corebox b;

	start(&b, &cfg, 20);
	submit(&b, 0, 1, ACCOUNT(1), 49, 1);
	submit(&b, 0, 2, ACCOUNT(2), 40, 1);
	corebox_run(&b);
	expect_heard("1 2 ");
	/* Both wait again, behind one that keeps both of them waiting; account 1's prompt is known to the cache but for one token. */
	submit(&b, 0, 9, ACCOUNT(3), 60, 1);
	corebox_step(&b);
	for (uint64_t i = 3; i <= 4; i++) {
		m = request(&b, 0, i, ACCOUNT(1), 49, 1);
		m.tokens = view_of(b.tokens, 49);
		for (uint32_t k = 0; k < 49; k++) b.tokens[k] = 1000 + k;
		corebox_on_submit(&b, &m);
	}
	submit(&b, 0, 5, ACCOUNT(2), 10, 1);
	submit(&b, 0, 6, ACCOUNT(2), 10, 1);
	corebox_run(&b);
	/* 3 costs 1 + 2, so 4 goes before the second of account 2, whose first cost 10 + 2. */
	expect_heard("9 3 5 4 6 ");
	corebox_release(&b);
}

static void a_paused_lane_is_skipped_whoever_has_had_the_least(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct corebox b;

	start(&b, &cfg, 20);
	submit(&b, 0, 1, ACCOUNT(1), 20, 1);
	submit(&b, 1, 2, ACCOUNT(2), 20, 1);
	submit(&b, 1, 3, ACCOUNT(2), 20, 1);
	submit(&b, 0, 4, ACCOUNT(3), 20, 1);
	b.send_rc[0] = ST_AGAIN;
	corebox_run(&b);
	expect_heard("2 3 ");
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_run(&b);
	expect_heard("1 4 ");
	corebox_release(&b);
}

/* A tenant's requests come through any frontend. */
static void a_tenant_is_one_on_all_lanes(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct corebox b;

	start(&b, &cfg, 20);
	submit(&b, 0, 1, ACCOUNT(1), 20, 1);
	submit(&b, 1, 2, ACCOUNT(1), 20, 1);
	submit(&b, 1, 3, ACCOUNT(1), 20, 1);
	submit(&b, 0, 4, ACCOUNT(2), 20, 1);
	submit(&b, 0, 5, ACCOUNT(2), 20, 1);
	corebox_run(&b);
	expect_heard("1 4 2 5 3 ");
	corebox_release(&b);
}

static void priorities_count_only_under_their_policy(void **state)
{
	struct core_config cfg = one_at_a_time();

	for (int has = 0; has < 2; has++) {
		struct corebox b;

		cfg.has_priorities = has;
		start(&b, &cfg, 20);
		for (uint64_t i = 1; i <= 3; i++) {
			struct msg_submit m = request(&b, 0, i, ACCOUNT(i), 20, 1);

			m.priority = (uint32_t)(10 - i);
			corebox_on_submit(&b, &m);
		}
		corebox_run(&b);
		expect_heard(has ? "3 2 1 " : "1 2 3 ");
		corebox_release(&b);
	}
}

/* The last to come is not the one who makes room when another tenant holds more. */
static void who_has_had_most_makes_room(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.steps_in_flight_max = 1;
	cfg.batched_tokens_max = 128; /* all start together */
	start(&b, &cfg, 6);
	submit(&b, 0, 1, ACCOUNT(1), 15, 18); /* 3 blocks in the end */
	submit(&b, 0, 2, ACCOUNT(1), 30, 18);
	submit(&b, 0, 3, ACCOUNT(2), 30, 18);
	for (int i = 0; i < 40 && corebox_stats(&b).preemptions == 0; i++) {
		corebox_step(&b);
		if (b.n_steps) corebox_answer(&b);
	}
	assert_int_equal(corebox_stats(&b).preemptions, 1);
	corebox_run(&b);
	expect_heard("1 3 2 ");
	corebox_release(&b);
}

/* ---- queue timeouts ---- */

static void who_waits_too_long_is_refused_at_that_moment(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct corebox b;
	uint64_t begin;

	start(&b, &cfg, 20);
	begin = b.now;
	submit_waiting(&b, 1, 0, 5);
	corebox_step(&b);
	submit_waiting(&b, 2, 70, 5);
	submit_waiting(&b, 3, 50, 5);
	submit_waiting(&b, 4, 0, 5);
	corebox_step(&b); /* they are accepted */
	assert_int_equal(core_deadline(b.core), begin + 50 * MS);
	b.now = begin + 50 * MS - 1;
	corebox_step(&b);
	expect_heard("");
	b.now++;
	corebox_step(&b);
	expect_heard("3! ");
	assert_int_equal(core_deadline(b.core), begin + 70 * MS);
	assert_int_equal(corebox_stats(&b).expired, 1);
	b.now = begin + 1000 * MS;
	corebox_run(&b);
	expect_heard("2! 1 4 ");
	corebox_release(&b);
}

static void time_runs_also_without_workers_and_on_a_paused_lane(void **state)
{
	struct corebox b;

	start(&b, NULL, 20);
	corebox_lost(&b);
	submit_waiting(&b, 1, 50, 5);
	b.send_rc[0] = ST_AGAIN;
	corebox_step(&b);
	b.now += 50 * MS;
	corebox_step(&b);
	assert_int_equal(corebox_stats(&b).n_waiting, 0);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b);
	expect_heard("1! ");
	corebox_release(&b);
}

static void what_has_begun_is_never_ended_by_its_waiting(void **state)
{
	struct corebox b;

	start(&b, NULL, 20);
	submit_waiting(&b, 1, 50, 5);
	corebox_step(&b);
	expect_heard("1+ "); /* its frontend hears that it runs, so that it asks nobody to end it */
	corebox_lost(&b);    /* it waits again */
	assert_int_equal(corebox_stats(&b).n_waiting, 1);
	b.now += 1000 * MS;
	corebox_step(&b);
	expect_heard("");
	corebox_ready(&b, 20, 400);
	corebox_run(&b);
	expect_heard("1 ");
	corebox_release(&b);
}

static void a_resubmit_with_tokens_has_begun(void **state)
{
	struct msg_submit m;
	struct corebox b;

	start(&b, NULL, 20);
	corebox_lost(&b);
	m = request(&b, 0, 1, 0, 20, 5);
	corebox_request_answer(&b, &m, 2);
	m.queue_ms = 50;
	corebox_on_submit(&b, &m);
	submit_waiting(&b, 2, 50, 5);
	/* The frontend has tokens of one that waits here: the executor before this one gave them. */
	m = request(&b, 0, 2, 0, 20, 5);
	corebox_request_answer(&b, &m, 2);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	b.now += 1000 * MS;
	corebox_step(&b);
	expect_heard("");
	assert_int_equal(corebox_stats(&b).n_waiting, 2);
	corebox_release(&b);
}

/* The first submit was long on its way, so the executor's clock began late; what its frontend says has been counted from the start. */
static void a_resubmit_may_shorten_the_time_but_not_lengthen_it(void **state)
{
	struct msg_submit m;
	struct corebox b;

	start(&b, NULL, 20);
	corebox_lost(&b);
	submit_waiting(&b, 1, 500, 5);
	submit_waiting(&b, 2, 500, 5);
	m = request(&b, 0, 1, 0, 20, 5);
	m.attempt = 2;
	m.queue_ms = 10;
	corebox_on_submit(&b, &m);
	m = request(&b, 0, 2, 0, 20, 5);
	m.attempt = 2;
	m.queue_ms = 9000;
	corebox_on_submit(&b, &m);
	b.now += 9 * MS;
	corebox_step(&b);
	expect_heard("");
	b.now += MS;
	corebox_step(&b);
	expect_heard("1! ");
	b.now += 490 * MS;
	corebox_step(&b);
	expect_heard("2! ");
	corebox_release(&b);
}

static void cancelled_and_refused_ones_leave_no_timeout_behind(void **state)
{
	struct corebox b;

	start(&b, NULL, 20);
	corebox_lost(&b);
	submit_waiting(&b, 1, 50, 5);
	submit_waiting(&b, 2, 60, 5);
	corebox_cancel(&b, 0, 1);
	corebox_ready(&b, 1, 10); /* now it is too long */
	b.now += 1000 * MS;
	corebox_step(&b);
	expect_heard("2? ");
	corebox_release(&b);
}

/* ---- times ---- */

static void the_first_token_tells_how_long_it_took(void **state)
{
	const struct core_config cfg = one_at_a_time();
	struct corebox b;

	start(&b, &cfg, 20);
	submit(&b, 0, 1, 0, 20, 2);
	submit(&b, 0, 2, 0, 20, 1);
	b.now += 3 * MS;
	corebox_step(&b); /* 1 runs */
	b.now += 4 * MS;
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(queued_us[1], 3000);
	assert_int_equal(prefill_us[1], 4000);
	b.now += 5 * MS;
	corebox_answer(&b);
	queued_us[1] = 0;
	corebox_step(&b); /* its second token says nothing; 2 runs */
	assert_int_equal(queued_us[1], 0);
	b.now += 6 * MS;
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(queued_us[2], 12000);
	assert_int_equal(prefill_us[2], 6000);
	expect_heard("1 2 ");
	corebox_release(&b);
}

/* A first token that is sent again, beside one that is not first. */
static void a_row_that_is_sent_again_says_it_again(void **state)
{
	struct msg_submit m;
	struct corebox b;

	start(&b, NULL, 20);
	submit(&b, 0, 1, 0, 20, 5);
	submit(&b, 0, 2, 0, 20, 5);
	b.now += 7 * MS;
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(queued_us[1], 7000);
	assert_int_equal(prefill_us[1], 1);
	queued_us[1] = queued_us[2] = 0;
	m = request(&b, 0, 1, 0, 20, 5);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(queued_us[1], 7000);
	assert_int_equal(queued_us[2], 0);
	corebox_release(&b);
}

static void each_request_is_timed_once(void **state)
{
	struct corebox b;

	start(&b, NULL, 20);
	submit(&b, 0, 1, 0, 20, 3);
	b.now += 2 * MS;
	corebox_step(&b);
	b.now += 5 * MS;
	corebox_answer(&b);
	assert_int_equal(b.n_timed, 1);
	assert_int_equal(b.queued_ns, 2 * MS);
	assert_int_equal(b.prefill_ns, 5 * MS);
	corebox_run(&b);
	assert_int_equal(b.n_timed, 1);
	corebox_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_crowd_of_one_tenant_does_not_hold_up_another),
		cmocka_unit_test(without_fairness_it_does),
		cmocka_unit_test(who_had_more_waits_longer),
		cmocka_unit_test(cached_tokens_are_not_charged),
		cmocka_unit_test(a_paused_lane_is_skipped_whoever_has_had_the_least),
		cmocka_unit_test(a_tenant_is_one_on_all_lanes),
		cmocka_unit_test(priorities_count_only_under_their_policy),
		cmocka_unit_test(who_has_had_most_makes_room),
		cmocka_unit_test(who_waits_too_long_is_refused_at_that_moment),
		cmocka_unit_test(time_runs_also_without_workers_and_on_a_paused_lane),
		cmocka_unit_test(what_has_begun_is_never_ended_by_its_waiting),
		cmocka_unit_test(a_resubmit_with_tokens_has_begun),
		cmocka_unit_test(a_resubmit_may_shorten_the_time_but_not_lengthen_it),
		cmocka_unit_test(cancelled_and_refused_ones_leave_no_timeout_behind),
		cmocka_unit_test(the_first_token_tells_how_long_it_took),
		cmocka_unit_test(a_row_that_is_sent_again_says_it_again),
		cmocka_unit_test(each_request_is_timed_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
