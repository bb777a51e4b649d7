/* test_route.c - frontends: who is let in, what is sent on a lane, full and closed lanes, syncs, bounds of messages. */
#include "tests/support/corebox.h"

#include "common/mem.h"
#include "executor/core_impl.h"
#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void submit_from(struct corebox *b, uint32_t frontend, uint32_t incarnation, uint64_t counter, uint32_t n_out)
{
	struct msg_submit m = corebox_request(b, counter, 20, 5, n_out);

	m.client_id = client_id_make(frontend, incarnation, counter);
	corebox_on_submit(b, &m);
}

static void gone(struct corebox *b, uint32_t frontend, uint32_t incarnation)
{
	core_on_frontend_gone(b->core, frontend, incarnation, b->now);
	core_check(b->core);
}

static void hello_is_answered_when_the_workers_are_there(void **state)
{
	struct corebox b;

	corebox_init(&b, NULL);
	assert_true(core_is_idle(b.core));
	corebox_hello(&b, 3, 7);
	corebox_step(&b);
	corebox_expect(&b, "");
	assert_true(core_deadline(b.core) == UINT64_MAX);
	corebox_ready(&b, 8, 100);
	corebox_step(&b);
	corebox_expect(&b, "welcome 3.7 epoch=5 len=100 blocks=8\n"
		       "sync 3.7 n=1\n");
	corebox_lost(&b);
	corebox_hello(&b, 3, 7); /* again: the first answer was lost. The sizes are known still */
	corebox_step(&b);
	corebox_expect(&b, "welcome 3.7 epoch=5 len=100 blocks=8\n"
		       "sync 3.7 n=2\n");
	corebox_step(&b);
	corebox_expect(&b, "");
	corebox_release(&b);
}

static void foreign_hellos_are_dropped(void **state)
{
	struct msg_hello m = {.version = PROTO_VERSION, .epoch = COREBOX_EPOCH};
	struct corebox b;
	uint32_t i;

	corebox_init(&b, NULL);
	corebox_ready(&b, 8, 100);
	for (i = 0; i < 6; i++) {
		struct msg_hello bad = m;

		switch (i) {
		case 0: bad.version++; break;
		case 1: bad.version--; break;
		case 2: bad.epoch++; break;
		case 3: bad.epoch--; break;
		case 4: bad.frontend = LIMIT_FRONTENDS; break;
		default: bad.frontend = UINT32_MAX; break;
		}
		core_on_hello(b.core, &bad, b.now);
		core_check(b.core);
		corebox_step(&b);
		corebox_expect(&b, "");
		assert_int_equal(corebox_stats(&b).dropped_stale, i + 1);
	}
	m.frontend = LIMIT_FRONTENDS - 1;
	core_on_hello(b.core, &m, b.now);
	corebox_step(&b);
	corebox_expect(&b, "welcome 255.0 epoch=5 len=100 blocks=8\n"
		       "sync 255.0 n=1\n");
	corebox_release(&b);
}

static void incarnations_follow_each_other(void **state)
{
	/* What is known, what says hello, whether it is let in. They count modulo 256. */
	static const struct {
		uint32_t known, hello;
		bool taken;
	} rows[] = {{0, 0, true}, {0, 1, true}, {1, 0, false}, {0, 127, true}, {0, 128, false}, {0, 129, false},
		    {255, 0, true}, {0, 255, false}, {200, 10, true}, {10, 200, false}, {5, 7, true}};
	struct corebox b;
	uint32_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		corebox_init(&b, NULL);
		corebox_ready(&b, 8, 100);
		corebox_hello(&b, 4, rows[i].known);
		corebox_step(&b);
		submit_from(&b, 4, rows[i].known, 1, 3);
		assert_int_equal(corebox_stats(&b).n_waiting, 1);
		corebox_hello(&b, 4, rows[i].hello);
		assert_int_equal(corebox_stats(&b).dropped_stale, !rows[i].taken);
		/* Requests of an older incarnation end with it. */
		assert_int_equal(corebox_stats(&b).cancels, rows[i].taken && rows[i].known != rows[i].hello);
		submit_from(&b, 4, rows[i].hello, 2, 3);
		assert_int_equal(corebox_stats(&b).submits, 1 + rows[i].taken);
		corebox_release(&b);
	}
}

static void a_reaped_incarnation_does_not_come_back(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	corebox_hello(&b, 1, 3);
	submit_from(&b, 1, 3, 1, 5);
	submit_from(&b, 1, 3, 2, 5);
	submit_from(&b, 0, 0, 1, 5);
	corebox_step(&b);
	corebox_skip(&b);
	gone(&b, 1, 2); /* an older one: known already */
	assert_int_equal(corebox_stats(&b).cancels, 0);
	gone(&b, 1, 3);
	assert_int_equal(corebox_stats(&b).cancels, 2);
	assert_int_equal(corebox_stats(&b).n_running, 1);
	assert_int_equal(corebox_stats(&b).blocks_used, 1);
	submit_from(&b, 1, 3, 3, 5);
	corebox_hello(&b, 1, 3);
	corebox_hello(&b, 1, 2);
	assert_int_equal(corebox_stats(&b).dropped_stale, 3);
	corebox_run(&b);
	corebox_expect(&b, "step 3 rem[0,1] run[2 6+1s]\n"
		       "results 0.0 1#1@0[865]\n"
		       "step 4 run[2 7+1s]\n"
		       "results 0.0 1#1@1[295]\n"
		       "step 5 run[2 8+1s]\n"
		       "results 0.0 1#1@2[302]\n"
		       "results 0.0 1#1@3[255]\n"
		       "results 0.0 1#1@4[463]length\n");
	corebox_hello(&b, 1, 4);
	submit_from(&b, 1, 4, 1, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 6 rem[2] add[2 5/5] grow[2:2] run[2 0+5s]\n"
		       "welcome 1.4 epoch=5 len=100 blocks=8\n"
		       "results 1.4 1#1@0[]\n"
		       "sync 1.4 n=1 1#1@0\n"
		       "results 1.4 1#1@0[865]length\n");
	gone(&b, 1, 5); /* it never said hello, and is gone: so are the older ones */
	corebox_hello(&b, 1, 4);
	corebox_hello(&b, 1, 5);
	assert_int_equal(corebox_stats(&b).dropped_stale, 5);
	corebox_hello(&b, 1, 6);
	assert_int_equal(corebox_stats(&b).dropped_stale, 5);
	gone(&b, 9, 2); /* unknown until now */
	corebox_hello(&b, 9, 2);
	assert_int_equal(corebox_stats(&b).dropped_stale, 6);
	corebox_hello(&b, 9, 3);
	assert_int_equal(corebox_stats(&b).dropped_stale, 6);
	gone(&b, LIMIT_FRONTENDS, 0);
	gone(&b, UINT32_MAX, 0);
	corebox_step(&b);
	corebox_release(&b);
}

static void results_of_a_step_travel_as_one_message_a_frontend(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	corebox_hello(&b, 2, 0);
	corebox_step(&b);
	corebox_skip(&b);
	submit_from(&b, 0, 0, 1, 2);
	submit_from(&b, 2, 0, 1, 2);
	submit_from(&b, 0, 0, 2, 2);
	submit_from(&b, 2, 0, 2, 2);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 5/5,1 5/5,2 5/5,3 5/5] grow[0:0 1:1 2:2 3:3] run[0 0+5s,1 0+5s,2 0+5s,3 0+5s]\n"
		       "step 2 run[0 5+1s,1 5+1s,2 5+1s,3 5+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "results 2.0 1#1@0[] 2#1@0[]\n"
		       "results 0.0 1#1@0[865] 2#1@0[865]\n"
		       "results 2.0 1#1@0[865] 2#1@0[865]\n"
		       "results 0.0 1#1@1[295]length 2#1@1[295]length\n"
		       "results 2.0 1#1@1[295]length 2#1@1[295]length\n");
	corebox_release(&b);
}

static void a_full_lane_loses_nothing(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	submit_from(&b, 0, 0, 1, 6);
	b.send_rc[0] = ST_AGAIN;
	corebox_step(&b); /* not even the acceptance */
	corebox_answer(&b);
	corebox_answer(&b);
	corebox_submit(&b, 9, 9, 500, 1); /* a refusal has to wait as well */
	assert_false(core_is_idle(b.core));
	b.now += 10 * NS_PER_S;
	assert_true(core_deadline(b.core) == UINT64_MAX); /* nothing is due before it has room */
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 2 run[0 5+1s]\n"
		       "results 0.0 1#1@0[] AGAIN\n");
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b); /* still full, at the first message */
	corebox_expect(&b, "step 3 run[0 6+1s]\n"
		       "step 4 run[0 7+1s]\n"
		       "refused 0.0 9#1 too_long: This model's maximum context length is 100 tokens. However, you requested at least 501 tokens (500 in the prompt, 1 for the answer). Please reduce the length of the prompt. AGAIN\n");
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 1, b.now); /* others */
	core_on_lane_ready(b.core, LIMIT_FRONTENDS, b.now);
	corebox_step(&b);
	corebox_expect(&b, "");
	core_on_lane_ready(b.core, 0, b.now);
	corebox_run(&b);
	corebox_expect(&b, "refused 0.0 9#1 too_long: This model's maximum context length is 100 tokens. However, you requested at least 501 tokens (500 in the prompt, 1 for the answer). Please reduce the length of the prompt.\n"
		       "results 0.0 1#1@0[865,295]\n"
		       "sync 0.0 n=2 1#1@2\n"
		       "step 5 run[0 8+1s]\n"
		       "results 0.0 1#1@2[302]\n"
		       "step 6 run[0 9+1s]\n"
		       "results 0.0 1#1@3[255]\n"
		       "results 0.0 1#1@4[463]\n"
		       "results 0.0 1#1@5[512]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void hello_ends_a_pause(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	submit_from(&b, 0, 0, 1, 2);
	b.send_rc[0] = ST_AGAIN;
	corebox_step(&b);
	b.send_rc[0] = ST_OK;
	corebox_skip(&b);
	corebox_hello(&b, 0, 0);
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=100 blocks=8\n"
		       "results 0.0 1#1@0[]\n"
		       "sync 0.0 n=2 1#1@0\n");
	corebox_release(&b);
}

static void a_full_lane_keeps_the_welcome_and_the_sync(void **state)
{
	struct corebox b;

	corebox_init(&b, NULL);
	corebox_ready(&b, 8, 100);
	corebox_hello(&b, 0, 0);
	b.send_rc[0] = ST_AGAIN;
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=100 blocks=8 AGAIN\n");
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=100 blocks=8\n"
		       "sync 0.0 n=1\n");
	b.now += NS_PER_S;
	b.send_rc[0] = ST_AGAIN;
	corebox_step(&b);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b);
	corebox_expect(&b, "sync 0.0 n=2 AGAIN\n"
		       "sync 0.0 n=2\n");
	/* What comes after the first that was not taken is not even tried. */
	b.now += NS_PER_S;
	submit_from(&b, 0, 0, 1, 1);
	b.send_rc[0] = ST_AGAIN;
	core_step(b.core, b.now);
	corebox_expect(&b, "step 1 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "results 0.0 1#1@0[] AGAIN\n");
	corebox_release(&b);
}

static void a_closed_lane_is_forgotten(void **state)
{
	struct corebox b;
	uint32_t i;

	/* At the welcome, a refusal, the results, the sync. */
	for (i = 0; i < 4; i++) {
		corebox_start(&b, NULL, 8, 100);
		corebox_hello(&b, 1, 0);
		corebox_step(&b);
		submit_from(&b, 0, 0, 1, 3);
		submit_from(&b, 0, 0, 2, 3);
		corebox_step(&b);
		if (i == 0) corebox_hello(&b, 0, 0);
		if (i == 1) {
			corebox_submit(&b, 9, 9, 500, 1);
			corebox_submit(&b, 8, 9, 500, 1);
		}
		if (i == 2) corebox_answer(&b);
		if (i == 3) b.now += NS_PER_S;
		b.send_rc[0] = ST_CLOSED;
		corebox_skip(&b);
		core_step(b.core, b.now);
		core_check(b.core);
		assert_int_equal(corebox_stats(&b).n_running, 0);
		assert_int_equal(corebox_stats(&b).cancels, 2);
		assert_int_equal(corebox_stats(&b).blocks_used, 0);
		core_step(b.core, b.now);
		while (b.n_steps) corebox_answer(&b);
		assert_true(core_is_idle(b.core));
		/* Lanes behind it were served. */
		assert_int_equal(strstr(b.log.data, "sync 1.0 n=2") != NULL, i == 3);
		/* It may say hello again: it was not reaped. */
		b.send_rc[0] = ST_OK;
		corebox_skip(&b);
		corebox_hello(&b, 0, 0);
		submit_from(&b, 0, 0, 3, 1);
		corebox_run(&b);
		assert_int_equal(corebox_stats(&b).finished, 1);
		corebox_release(&b);
	}
}

static void syncs_come_on_time_and_list_everything(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	assert_int_equal(core_deadline(b.core), 2 * NS_PER_S);
	corebox_hello(&b, 1, 0);
	b.now += NS_PER_S / 2;
	corebox_step(&b);
	corebox_skip(&b);
	assert_int_equal(core_deadline(b.core), 2 * NS_PER_S);
	submit_from(&b, 0, 0, 1, 50);
	submit_from(&b, 0, 0, 2, 50);
	submit_from(&b, 1, 0, 1, 50);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_skip(&b);
	b.now = 2 * NS_PER_S - 1;
	corebox_step(&b);
	corebox_expect(&b, "");
	b.now++;
	corebox_step(&b);
	corebox_expect(&b, "sync 0.0 n=2 1#1@1 2#1@1\n");
	assert_int_equal(core_deadline(b.core), 5 * NS_PER_S / 2);
	b.now = 5 * NS_PER_S / 2 + 5;
	corebox_answer(&b);
	corebox_cancel(&b, 0, 1);
	corebox_step(&b);
	corebox_expect(&b, "step 4 rem[0] run[1 7+1s,2 7+1s]\n"
		       "results 0.0 2#1@1[295]\n"
		       "results 1.0 1#1@1[295]\n"
		       "sync 1.0 n=2 1#1@2\n");
	assert_int_equal(core_deadline(b.core), 3 * NS_PER_S);
	/* A new incarnation counts from the beginning. */
	corebox_hello(&b, 1, 1);
	corebox_step(&b);
	corebox_expect(&b, "welcome 1.1 epoch=5 len=100 blocks=8\n"
		       "sync 1.1 n=1\n");
	corebox_release(&b);
}

static void refusals_are_bounded_and_keep_their_order(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 8, 100);
	b.send_rc[0] = ST_AGAIN;
	submit_from(&b, 0, 0, 1, 6);
	corebox_step(&b);
	for (i = 0; i < LANE_REFUSALS_MAX + 10; i++) corebox_submit(&b, 100 + i, 9, 500, 1);
	assert_int_equal(corebox_stats(&b).refused, LANE_REFUSALS_MAX);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	b.quiet = true;
	corebox_step(&b);
	b.quiet = false;
	corebox_submit(&b, 5000, 9, 500, 1);
	assert_int_equal(corebox_stats(&b).refused, LANE_REFUSALS_MAX + 1);
	gone(&b, 0, 0); /* with a refusal unsent */
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "");
	corebox_release(&b);
}

static uint32_t n_refusals_left;
static struct corebox *full_box;

/* The lane fills up after so many messages. */
static int send_until_full(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	if (m->type == MSG_refused && n_refusals_left-- == 0) return ST_AGAIN;
	if (m->type == MSG_refused) strbuf_printf(&full_box->log, "%u ", (uint32_t)client_id_counter(m->refused.client_id));
	return ST_OK;
}

static void refusals_go_on_where_the_lane_was_full(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	struct core_out out = {.ctx = &b, .send = send_until_full};
	uint32_t i;

	corebox_init(&b, &cfg);
	full_box = &b;
	core_free(b.core);
	b.core = core_new(&cfg, &out);
	corebox_hello(&b, 0, 0);
	core_on_workers_ready(b.core, &(struct core_workers){8, 100, COREBOX_IDS, COREBOX_DIM, {0}}, b.now);
	for (i = 1; i <= 7; i++) corebox_submit(&b, i, 9, 500, 1);
	n_refusals_left = 3;
	core_step(b.core, b.now);
	corebox_expect(&b, "1 2 3 ");
	n_refusals_left = 0;
	core_on_lane_ready(b.core, 0, b.now);
	core_step(b.core, b.now);
	corebox_expect(&b, "");
	n_refusals_left = 9;
	core_on_lane_ready(b.core, 0, b.now);
	core_step(b.core, b.now);
	corebox_expect(&b, "4 5 6 7 ");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

struct messages {
	uint32_t n, rows[8], tokens[8], finish[8], position[8];
};

static int record_results(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	struct messages *r = ctx;

	if (m->type != MSG_results) return ST_OK;
	assert_true(r->n < 8);
	r->rows[r->n] = m->results.client_ids.n;
	r->tokens[r->n] = m->results.tokens.n;
	r->finish[r->n] = col_u32_or_0(m->results.finishes, m->results.client_ids.n - 1);
	r->position[r->n++] = col_u32(m->results.positions, m->results.positions.n - 1);
	return ST_OK;
}

/* Not sent in vain: often the first token goes with it. */
static void an_acceptance_waits_for_company(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	uint64_t from;

	cfg.accept_wait_ns = 5 * NS_PER_MS;
	corebox_start(&b, &cfg, 32, 100);
	corebox_hello(&b, 1, 0);
	corebox_step(&b);
	corebox_skip(&b);
	from = b.now;
	b.quiet = true;
	corebox_submit(&b, 1, 9, 5, 1);
	corebox_step(&b); /* runs at once */
	assert_int_equal(b.n_steps, 1);
	b.quiet = false;
	assert_int_equal(core_deadline(b.core), from + cfg.accept_wait_ns);
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_step(&b);
	assert_int_equal(b.last_sent->type, MSG_results);
	assert_int_equal(b.last_sent->results.client_ids.n, 1);
	assert_int_equal(b.last_sent->results.tokens.n, 1);
	assert_true(core_deadline(b.core) > from + cfg.accept_wait_ns); /* nothing is owed any more */
	/* No token comes: its time alone sends it, once. */
	corebox_skip(&b);
	from = b.now;
	corebox_submit(&b, 2, 9, 5, 1);
	b.now = from + cfg.accept_wait_ns - 1;
	corebox_step(&b);
	b.quiet = true;
	corebox_submit(&b, 3, 9, 5, 1); /* goes with it */
	corebox_step(&b);
	b.quiet = false;
	corebox_skip(&b);
	b.now = from + cfg.accept_wait_ns;
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 2#1@0[] 3#1@0[]\n");
	corebox_step(&b);
	corebox_expect(&b, "");
	corebox_release(&b);
}

/* Beyond one message's bounds the rest follows in the next. */
static void many_rows_are_cut_into_messages(void **state)
{
	struct core_config cfg = corebox_config();
	struct messages r = {0};
	struct core_out out = {.ctx = &r, .send = record_results};
	struct corebox b;
	uint32_t i;

	cfg.requests_max = 20000;
	corebox_init(&b, &cfg);
	core_free(b.core);
	b.core = core_new(&cfg, &out);
	corebox_hello(&b, 0, 0);
	for (i = 0; i < LIMIT_SEQS * 2 + 1; i++) {
		struct msg_submit m = corebox_request(&b, 1 + i, 9, 5, 1);

		core_on_submit(b.core, &m, b.now);
	}
	core_step(b.core, b.now);
	core_check(b.core);
	assert_int_equal(r.n, 3);
	assert_int_equal(r.rows[0], LIMIT_SEQS);
	assert_int_equal(r.rows[1], LIMIT_SEQS);
	assert_int_equal(r.rows[2], 1);
	corebox_release(&b);
}

static void a_long_answer_is_sent_again_in_pieces(void **state)
{
	enum { N = 150000 };
	struct core_config cfg = corebox_config();
	struct messages r = {0};
	struct core_out out = {.ctx = &r, .send = record_results};
	uint32_t *tokens = mem_array(uint32_t, N);
	struct msg_submit m;
	struct corebox b;

	corebox_init(&b, &cfg);
	core_free(b.core);
	b.core = core_new(&cfg, &out);
	corebox_hello(&b, 0, 0);
	m = corebox_request(&b, 1, 9, 5, N - 5);
	m.tokens = view_of(tokens, N);
	core_on_submit(b.core, &m, b.now); /* all it may have: ended */
	m.attempt = 2;
	m.tokens.n = 6; /* and the frontend has one of them */
	core_on_submit(b.core, &m, b.now);
	core_check(b.core);
	core_step(b.core, b.now);
	core_check(b.core);
	assert_int_equal(r.n, 3);
	assert_int_equal(r.tokens[0], 65536);
	assert_int_equal(r.tokens[1], 65536);
	assert_int_equal(r.tokens[2], N - 6 - 2 * 65536);
	assert_int_equal(r.position[0], 1);
	assert_int_equal(r.position[1], 65537);
	assert_int_equal(r.position[2], 131073);
	assert_int_equal(r.finish[0], FINISH_NONE);
	assert_int_equal(r.finish[1], FINISH_NONE);
	assert_int_equal(r.finish[2], FINISH_LENGTH);
	assert_true(core_is_idle(b.core));
	/* A row that fills the message to the brim leaves none behind, and the next waits for its turn. */
	r.n = 0;
	m = corebox_request(&b, 2, 9, 5, 65536);
	m.tokens = view_of(tokens, 5 + 65536);
	core_on_submit(b.core, &m, b.now);
	m.attempt = 2;
	m.tokens.n = 5;
	core_on_submit(b.core, &m, b.now);
	corebox_submit(&b, 3, 9, 5, 1);
	core_step(b.core, b.now);
	core_check(b.core);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.rows[0], 1);
	assert_int_equal(r.tokens[0], 65536);
	assert_int_equal(r.finish[0], FINISH_LENGTH);
	assert_int_equal(r.rows[1], 1);
	assert_int_equal(r.tokens[1], 0);
	corebox_release(&b);
	free(tokens);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_is_answered_when_the_workers_are_there),
		cmocka_unit_test(foreign_hellos_are_dropped),
		cmocka_unit_test(incarnations_follow_each_other),
		cmocka_unit_test(a_reaped_incarnation_does_not_come_back),
		cmocka_unit_test(results_of_a_step_travel_as_one_message_a_frontend),
		cmocka_unit_test(a_full_lane_loses_nothing),
		cmocka_unit_test(hello_ends_a_pause),
		cmocka_unit_test(a_full_lane_keeps_the_welcome_and_the_sync),
		cmocka_unit_test(a_closed_lane_is_forgotten),
		cmocka_unit_test(syncs_come_on_time_and_list_everything),
		cmocka_unit_test(refusals_are_bounded_and_keep_their_order),
		cmocka_unit_test(refusals_go_on_where_the_lane_was_full),
		cmocka_unit_test(an_acceptance_waits_for_company),
		cmocka_unit_test(many_rows_are_cut_into_messages),
		cmocka_unit_test(a_long_answer_is_sent_again_in_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
