/* test_sched.c - what each step runs, in which order, and who waits or is preempted. The workers played by the box verify
 * that each step finds in the KV cache what it reads. */
#include "tests/support/corebox.h"

#include "common/mem.h"
#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* A box with one frontend and workers that have n_blocks. */
static void submit_at(struct corebox *b, uint64_t counter, uint32_t first, uint32_t n_prompt, uint32_t n_out, uint32_t priority)
{
	struct msg_submit m = corebox_request(b, counter, first, n_prompt, n_out);

	m.priority = priority;
	corebox_on_submit(b, &m);
}

static void submit_from(struct corebox *b, uint32_t frontend, uint64_t counter, uint32_t first, uint32_t n_prompt, uint32_t n_out)
{
	struct msg_submit m = corebox_request(b, counter, first, n_prompt, n_out);

	m.client_id = client_id_make(frontend, 0, counter);
	corebox_on_submit(b, &m);
}

static void a_prompt_runs_and_then_each_token_a_step_ahead(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 10, 15, 4);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 15/15] grow[0:0] run[0 0+15s]\n"
		       "step 2 run[0 15+1s]\n"
		       "results 0.0 1#1@0[]\n");
	corebox_step(&b); /* two are in flight */
	corebox_expect(&b, "");
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 3 grow[0:1] run[0 16+1s]\n"
		       "results 0.0 1#1@0[847]\n");
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 4 run[0 17+1s]\n"
		       "results 0.0 1#1@1[598]\n");
	corebox_answer(&b);
	corebox_step(&b); /* the fourth token is under way: nothing more to run */
	corebox_expect(&b, "results 0.0 1#1@2[680]\n");
	corebox_answer(&b);
	assert_false(core_is_idle(b.core));
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#1@3[574]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void steps_in_flight_are_as_many_as_configured(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	uint32_t n;

	for (n = 1; n <= 4; n++) {
		cfg.steps_in_flight_max = n;
		corebox_start(&b, &cfg, 8, 100);
		corebox_submit(&b, 1, 10, 5, 9);
		corebox_step(&b);
		assert_int_equal(b.n_steps, n);
		corebox_step(&b);
		assert_int_equal(b.n_steps, n);
		corebox_answer(&b);
		assert_int_equal(b.n_steps, n - 1);
		corebox_step(&b);
		assert_int_equal(b.n_steps, n);
		corebox_run(&b);
		assert_int_equal(corebox_stats(&b).generation_tokens, 9);
		assert_int_equal(corebox_stats(&b).steps, 9);
		assert_int_equal(corebox_stats(&b).tokens_discarded, 0);
		assert_true(core_is_idle(b.core));
		corebox_release(&b);
	}
}

static void decodes_go_first_and_prefill_fills_the_budget(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 30, 400);
	corebox_submit(&b, 1, 10, 10, 20);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_submit(&b, 2, 300, 150, 2); /* three chunks beside one decode a step */
	corebox_submit(&b, 3, 500, 20, 2);  /* waits until the budget has room */
	corebox_skip(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 3 add[1 150/150] grow[1:1,2,3,4,5,6,7,8,9,10] run[0 11+1s,1 0+63]\n"
		       "results 0.0 1#1@0[769] 2#1@0[] 3#1@0[]\n"
		       "step 4 run[0 12+1s,1 63+63]\n"
		       "results 0.0 1#1@1[246]\n"
		       "step 5 add[2 20/20] grow[2:11,12] run[0 13+1s,1 126+24s,2 0+20s]\n"
		       "results 0.0 1#1@2[743]\n"
		       "step 6 run[0 14+1s,1 150+1s,2 20+1s]\n"
		       "results 0.0 1#1@3[504]\n");
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void a_chunk_limit_lets_others_in(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.prefill_chunk_max = 24;
	corebox_start(&b, &cfg, 30, 400);
	corebox_submit(&b, 1, 100, 100, 2);
	corebox_submit(&b, 2, 300, 30, 2);
	corebox_submit(&b, 3, 500, 17, 2);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 100/100,1 30/30,2 17/17] grow[0:0,1,2,3,4,5,6 1:7,8 2:9,10] run[0 0+24,1 0+24,2 0+16]\n"
		       "step 2 run[2 16+1s,0 24+24,1 24+6s]\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[]\n"
		       "step 3 run[1 30+1s,2 17+1s,0 48+24]\n");
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	assert_int_equal(b.n_tokens_run, 100 + 30 + 17 + 3);
	corebox_release(&b);
}

static void priority_goes_before_arrival(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.seqs_max = 2;
	corebox_start(&b, &cfg, 30, 400);
	submit_at(&b, 1, 100, 20, 1, 7);
	submit_at(&b, 2, 200, 21, 1, 7);
	submit_at(&b, 3, 300, 22, 1, 3);
	submit_at(&b, 4, 400, 23, 1, 9);
	submit_at(&b, 5, 500, 24, 1, 3);
	submit_at(&b, 6, 600, 25, 1, 0);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 25/25,1 22/22] grow[0:0,1 1:2,3] run[0 0+25s,1 0+22s]\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[] 4#1@0[] 5#1@0[] 6#1@0[]\n"
		       "step 2 rem[0,1] add[1 24/24,0 20/20] grow[1:3,1 0:4,5] run[1 0+24s,0 0+20s]\n"
		       "results 0.0 6#1@0[190]length 3#1@0[620]length\n"
		       "step 3 rem[1,0] add[0 21/21,1 23/23] grow[0:5,1 1:6,7] run[0 0+21s,1 0+23s]\n"
		       "results 0.0 5#1@0[76]length 1#1@0[821]length\n"
		       "results 0.0 2#1@0[579]length 4#1@0[976]length\n");
	corebox_release(&b);
}

static void running_requests_are_served_in_order_too(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 30, 400);
	submit_at(&b, 1, 100, 100, 2, 7);
	submit_at(&b, 2, 300, 100, 2, 5); /* first, although later */
	corebox_step(&b);
	corebox_answer(&b);
	submit_at(&b, 3, 500, 100, 2, 6); /* between them, but who runs is served first */
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 100/100] grow[0:0,1,2,3,4,5,6] run[0 0+64]\n"
		       "step 2 add[1 100/100] grow[1:7,8,9,10,11,12,13] run[0 64+36s,1 0+28]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 3 run[0 100+1s,1 28+63]\n"
		       "results 0.0 3#1@0[]\n"
		       "step 4 add[2 100/100] grow[2:14,15,16,17,18,19,20] run[1 91+9s,2 0+55]\n"
		       "results 0.0 2#1@0[443]\n"
		       "step 5 rem[0] run[1 100+1s,2 55+45s]\n"
		       "results 0.0 2#1@1[495]length\n");
	corebox_run(&b);
	corebox_release(&b);
}

static void slots_are_never_more_than_the_budget(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.batched_tokens_max = 3;
	corebox_start(&b, &cfg, 30, 400);
	corebox_submit(&b, 1, 100, 2, 30);
	corebox_submit(&b, 2, 200, 2, 30);
	corebox_submit(&b, 3, 300, 2, 30);
	corebox_submit(&b, 4, 400, 2, 30);
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_skip(&b);
	corebox_submit(&b, 5, 100, 5, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 62 rem[0] add[0 5/5] grow[0:5] run[0 0+3]\n"
		       "step 63 run[0 3+2s]\n"
		       "results 0.0 5#1@0[]\n"
		       "results 0.0 5#1@0[781]length\n");
	corebox_release(&b);
}

static void the_last_in_order_is_preempted_and_goes_on_later(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.steps_in_flight_max = 1;
	corebox_start(&b, &cfg, 4, 400);
	corebox_submit(&b, 1, 100, 30, 5);
	corebox_submit(&b, 2, 300, 31, 5);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_expect(&b, "step 1 add[0 30/30,1 31/31] grow[0:0,1 1:2,3] run[0 0+30s,1 0+31s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 2 run[0 30+1s,1 31+1s]\n"
		       "results 0.0 1#1@0[668] 2#1@0[216]\n");
	corebox_step(&b); /* 2 needs a third block, there is none, and nobody is behind it */
	corebox_expect(&b, "step 3 rem[1] run[0 31+1s]\n"
		       "results 0.0 1#1@1[211] 2#1@1[734]\n");
	assert_int_equal(corebox_stats(&b).n_waiting, 1);
	assert_int_equal(corebox_stats(&b).preemptions, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 4 grow[0:3] run[0 32+1s]\n"
		       "results 0.0 1#1@2[288]\n"
		       "step 5 run[0 33+1s]\n"
		       "results 0.0 1#1@3[900]\n"
		       "step 6 rem[0] add[0 33/31] grow[0:2,3,1] run[0 16+17s]\n"
		       "results 0.0 1#1@4[49]length\n"
		       "step 7 run[0 33+1s]\n"
		       "results 0.0 2#1@2[433]\n"
		       "step 8 run[0 34+1s]\n"
		       "results 0.0 2#1@3[731]\n"
		       "results 0.0 2#1@4[305]length\n");
	assert_int_equal(corebox_stats(&b).preemptions, 1);
	assert_int_equal(corebox_stats(&b).prompt_tokens, 61);
	assert_int_equal(corebox_stats(&b).prefix_queries, 61);
	assert_int_equal(corebox_stats(&b).prefix_hits, 0);
	corebox_release(&b);
}

static void the_lower_priority_is_preempted_even_when_it_came_first(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 4, 400);
	submit_at(&b, 1, 100, 30, 5, 9);
	submit_at(&b, 2, 300, 30, 5, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 30/30,1 30/30] grow[0:0,1 1:2,3] run[0 0+30s,1 0+30s]\n"
		       "step 2 run[0 30+1s,1 30+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 3 run[0 31+1s,1 31+1s]\n"
		       "results 0.0 2#1@0[656] 1#1@0[668]\n"
		       "step 4 rem[1] grow[0:3] run[0 32+1s]\n"
		       "results 0.0 2#1@1[611] 1#1@1[211]\n"
		       "step 5 run[0 33+1s]\n"
		       "results 0.0 2#1@2[548]\n"
		       "results 0.0 2#1@3[888]\n"
		       "step 6 rem[0] add[0 32/30] grow[0:2,3] run[0 16+16s]\n"
		       "step 7 grow[0:1] run[0 32+1s]\n"
		       "results 0.0 2#1@4[48]length\n"
		       "step 8 run[0 33+1s]\n"
		       "results 0.0 1#1@2[288]\n"
		       "results 0.0 1#1@3[900]\n"
		       "results 0.0 1#1@4[49]length\n");
	assert_int_equal(corebox_stats(&b).preemptions, 1);
	/* What was under way for it is computed again. */
	assert_int_equal(corebox_stats(&b).tokens_discarded, 1);
	corebox_release(&b);
}

static void who_is_last_preempts_itself(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.steps_in_flight_max = 1;
	corebox_start(&b, &cfg, 4, 400);
	corebox_submit(&b, 1, 100, 20, 20);
	corebox_submit(&b, 2, 300, 32, 5);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 20/20,1 32/32] grow[0:0,1 1:2,3] run[0 0+20s,1 0+32s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 2 rem[1] run[0 20+1s]\n"
		       "results 0.0 1#1@0[821] 2#1@0[86]\n");
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).preemptions, 1);
	corebox_release(&b);
}

/* 3, 2 and 1 in order of importance; the first one's growth takes from the end, twice. */
static void many_preemptions_in_one_step(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.steps_in_flight_max = 1;
	corebox_start(&b, &cfg, 4, 400);
	submit_at(&b, 1, 100, 16, 5, 3);
	submit_at(&b, 2, 200, 16, 5, 2);
	submit_at(&b, 3, 300, 15, 25, 1);
	submit_at(&b, 4, 400, 15, 25, 0);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 15/15,1 15/15,2 16/16,3 16/16] grow[0:0 1:1 2:2 3:3] run[0 0+15s,1 0+15s,2 0+16s,3 0+16s]\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[] 4#1@0[]\n"
		       "step 2 rem[3] grow[2:3] run[0 15+1s,1 15+1s,2 16+1s]\n"
		       "results 0.0 4#1@0[171] 3#1@0[488] 2#1@0[537] 1#1@0[871]\n"
		       "step 3 rem[2] grow[0:3 1:2] run[0 16+1s,1 16+1s]\n"
		       "results 0.0 4#1@1[410] 3#1@1[903] 2#1@1[557]\n");
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void the_first_that_does_not_fit_is_not_overtaken(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 4, 400);
	corebox_submit(&b, 1, 100, 20, 13); /* two blocks, to the end */
	corebox_step(&b);
	corebox_answer(&b);
	corebox_submit(&b, 2, 300, 33, 1); /* three blocks: waits */
	corebox_submit(&b, 3, 500, 5, 1);  /* would fit, but comes later */
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	assert_int_equal(corebox_stats(&b).n_waiting, 2);
	assert_int_equal(corebox_stats(&b).n_running, 1);
	b.quiet = true;
	while (corebox_stats(&b).n_waiting == 2) {
		corebox_answer(&b);
		corebox_step(&b);
	}
	assert_int_equal(corebox_stats(&b).finished, 1);
	b.quiet = false;
	corebox_run(&b);
	corebox_expect(&b, "results 0.0 2#1@0[634]length 3#1@0[790]length\n");
	corebox_release(&b);
}

static void exactly_what_fits_is_admitted(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 5, 400);
	corebox_submit(&b, 1, 100, 32, 1);
	corebox_submit(&b, 2, 300, 33, 1);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 32/32,1 33/33] grow[0:0,1 1:2,3,4] run[0 0+32s,1 0+32]\n"
		       "step 2 run[1 32+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n");
	corebox_release(&b);
}

static void the_prefix_cache_leaves_a_token_to_compute(void **state)
{
	static const struct {
		uint32_t n_prompt, n_cached;
	} rows[] = {{15, 0}, {16, 0}, {17, 16}, {31, 16}, {32, 16}, {33, 32}, {48, 32}, {49, 48}, {64, 48}};
	struct corebox b;
	uint32_t i, k;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		corebox_start(&b, NULL, 16, 400);
		for (k = 0; k < 3; k++) {
			struct core_stats was = corebox_stats(&b), is;
			uint64_t n_run = b.n_tokens_run;

			corebox_submit(&b, 1 + k, 100, rows[i].n_prompt, 3);
			corebox_run(&b);
			is = corebox_stats(&b);
			assert_int_equal(is.prefix_queries - was.prefix_queries, rows[i].n_prompt);
			assert_int_equal(is.prefix_hits - was.prefix_hits, k ? rows[i].n_cached : 0);
			assert_int_equal(is.prompt_tokens - was.prompt_tokens, rows[i].n_prompt);
			assert_int_equal(b.n_tokens_run - n_run, rows[i].n_prompt - (k ? rows[i].n_cached : 0) + 2);
			assert_int_equal(is.blocks_used, 0);
			assert_int_equal(is.blocks_free + is.blocks_cached, 16);
			assert_int_equal(is.blocks_cached, (rows[i].n_prompt + 2) / 16);
		}
		corebox_release(&b);
	}
}

static void a_prefix_is_shared_while_it_is_used(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 16, 400);
	corebox_submit(&b, 1, 100, 40, 20);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_submit(&b, 2, 100, 37, 2); /* two blocks of 1, which is still running */
	m = corebox_request(&b, 3, 100, 37, 2);
	m.cache_salt = view_text("tenant"); /* nothing */
	core_on_submit(b.core, &m, b.now);
	corebox_step(&b);
	corebox_expect(&b, "step 3 add[1 37/37,2 37/37] grow[1:0,1,3 2:4,5,6] run[0 41+1s,1 32+5s,2 0+37s]\n"
		       "results 0.0 1#1@0[790] 2#1@0[] c32 3#1@0[]\n");
	assert_int_equal(corebox_stats(&b).blocks_used, 3 + 1 + 3);
	corebox_run(&b);
	corebox_skip(&b);
	m = corebox_request(&b, 4, 100, 20, 1);
	m.cache_salt = view_text("tenant");
	core_on_submit(b.core, &m, b.now);
	corebox_run(&b);
	corebox_expect(&b, "step 21 rem[0] add[0 20/20] grow[0:4,6] run[0 16+4s]\n"
		       "results 0.0 4#1@0[] c16\n"
		       "results 0.0 4#1@0[821]length c16\n");
	corebox_release(&b);
}

static void the_answer_is_cached_as_well(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 16, 400);
	corebox_submit(&b, 1, 100, 20, 30);
	corebox_run(&b);
	corebox_skip(&b);
	/* The next turn of a conversation: prompt and answer and more are the prompt. */
	m = corebox_request(&b, 2, 100, 20, 2);
	corebox_request_answer(&b, &m, 30);
	m.n_prompt = m.tokens.n;
	core_on_submit(b.core, &m, b.now);
	corebox_run(&b);
	corebox_expect(&b, "step 31 rem[0] add[0 50/50] grow[0:0,1,2,3] run[0 48+2s]\n"
		       "step 32 run[0 50+1s]\n"
		       "results 0.0 2#1@0[] c48\n"
		       "results 0.0 2#1@0[578] c48\n"
		       "results 0.0 2#1@1[657]length\n");
	corebox_release(&b);
}

static void without_the_prefix_cache_all_is_computed(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.prefix_cache = false;
	corebox_start(&b, &cfg, 16, 400);
	corebox_submit(&b, 1, 100, 40, 1);
	corebox_run(&b);
	corebox_submit(&b, 2, 100, 40, 1);
	corebox_run(&b);
	assert_int_equal(b.n_tokens_run, 80);
	assert_int_equal(corebox_stats(&b).blocks_cached, 0);
	assert_int_equal(corebox_stats(&b).prefix_hits, 0);
	corebox_release(&b);
}

/* A hit may be cached blocks that nobody uses: they cannot be evicted to make room for the rest of the same prompt. */
static void a_hit_is_not_room_for_the_rest(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 4, 400);
	corebox_submit(&b, 1, 100, 33, 1);
	corebox_run(&b);
	corebox_skip(&b);
	assert_int_equal(corebox_stats(&b).blocks_cached, 2);
	corebox_submit(&b, 2, 500, 10, 10); /* one of the two that are left */
	corebox_submit(&b, 3, 100, 50, 1);  /* 2 cached, 2 more: one too many */
	corebox_step(&b);
	corebox_expect(&b, "step 2 rem[0] add[0 10/10] grow[0:2] run[0 0+10s]\n"
		       "step 3 run[0 10+1s]\n"
		       "results 0.0 2#1@0[] 3#1@0[]\n");
	corebox_run(&b);
	corebox_expect(&b, "step 4 run[0 11+1s]\n"
		       "results 0.0 2#1@0[974]\n"
		       "step 5 run[0 12+1s]\n"
		       "results 0.0 2#1@1[86]\n"
		       "step 6 run[0 13+1s]\n"
		       "results 0.0 2#1@2[951]\n"
		       "step 7 run[0 14+1s]\n"
		       "results 0.0 2#1@3[920]\n"
		       "step 8 run[0 15+1s]\n"
		       "results 0.0 2#1@4[424]\n"
		       "step 9 grow[0:3] run[0 16+1s]\n"
		       "results 0.0 2#1@5[30]\n"
		       "step 10 run[0 17+1s]\n"
		       "results 0.0 2#1@6[39]\n"
		       "step 11 run[0 18+1s]\n"
		       "results 0.0 2#1@7[508]\n"
		       "results 0.0 2#1@8[229]\n"
		       "step 12 rem[0] add[0 50/50] grow[0:0,1,3,2] run[0 32+18s]\n"
		       "results 0.0 2#1@9[420]length\n"
		       "results 0.0 3#1@0[6]length c32\n");
	corebox_release(&b);
}

static void a_paused_lane_gives_up_slots_and_blocks(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.seqs_max = 3;
	corebox_start(&b, &cfg, 8, 400);
	corebox_hello(&b, 1, 0);
	corebox_submit(&b, 1, 100, 20, 9);
	corebox_submit(&b, 2, 200, 20, 9);
	submit_from(&b, 1, 1, 300, 20, 25);
	corebox_step(&b);
	b.send_rc[0] = ST_AGAIN;
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_step(&b); /* sees the mark only when it sends */
	corebox_expect(&b, "step 3 run[0 21+1s,1 21+1s,2 21+1s]\n"
		       "results 0.0 1#1@0[821] 2#1@0[643] AGAIN\n"
		       "results 1.0 1#1@0[438]\n");
	corebox_answer(&b);
	corebox_step(&b); /* 1 and 2 keep their slots while nobody asks for them */
	corebox_expect(&b, "step 4 run[2 22+1s]\n"
		       "results 1.0 1#1@1[811]\n");
	corebox_answer(&b);
	submit_from(&b, 1, 2, 400, 20, 2);
	submit_from(&b, 0, 3, 500, 20, 2); /* does not run either */
	corebox_step(&b);
	corebox_expect(&b, "step 5 rem[1] add[1 20/20] grow[1:3,6] run[2 23+1s,1 0+20s]\n"
		       "results 1.0 1#1@2[618] 2#1@0[]\n");
	corebox_answer(&b);
	submit_from(&b, 1, 3, 600, 80, 2); /* five blocks: the other one has to go, too */
	b.quiet = true;
	corebox_run(&b);
	b.quiet = false;
	assert_int_equal(corebox_stats(&b).preemptions, 2);
	assert_int_equal(corebox_stats(&b).n_waiting, 3);
	assert_int_equal(corebox_stats(&b).finished, 3);
	b.send_rc[0] = ST_OK;
	corebox_step(&b);
	corebox_expect(&b, "");
	core_on_lane_ready(b.core, 1, b.now);
	corebox_step(&b);
	corebox_expect(&b, "");
	core_on_lane_ready(b.core, 0, b.now);
	corebox_run(&b);
	corebox_expect(&b, "step 26 rem[2] add[2 23/20,1 23/20,0 20/20] grow[2:3,0 1:2,7 0:1,6] run[2 0+23s,1 0+23s,0 0+18]\n"
		       "step 27 run[2 23+1s,1 23+1s,0 18+2s]\n"
		       "results 0.0 1#1@0[821,908,187] 2#1@0[643,242,356] 3#1@0[]\n"
		       "step 28 run[2 24+1s,1 24+1s,0 20+1s]\n"
		       "results 0.0 1#1@3[857] 2#1@3[95]\n"
		       "step 29 run[2 25+1s,1 25+1s]\n"
		       "results 0.0 1#1@4[99] 2#1@4[52] 3#1@0[396]\n"
		       "step 30 rem[0] run[2 26+1s,1 26+1s]\n"
		       "results 0.0 1#1@5[509] 2#1@5[60] 3#1@1[633]length\n"
		       "step 31 run[2 27+1s,1 27+1s]\n"
		       "results 0.0 1#1@6[945] 2#1@6[723]\n"
		       "results 0.0 1#1@7[638] 2#1@7[890]\n"
		       "results 0.0 1#1@8[456]length 2#1@8[344]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void a_decode_takes_from_a_paused_lane_first(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.steps_in_flight_max = 1;
	corebox_start(&b, &cfg, 4, 400);
	corebox_hello(&b, 1, 0);
	corebox_submit(&b, 1, 100, 30, 9);  /* the first in order, and paused */
	submit_from(&b, 1, 1, 200, 15, 25);
	submit_from(&b, 1, 2, 300, 10, 6);
	corebox_step(&b);
	b.send_rc[0] = ST_AGAIN;
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 3 rem[0] grow[1:1] run[1 16+1s,2 11+1s]\n"
		       "results 1.0 1#1@1[14] 2#1@1[946]\n");
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void the_best_of_all_lanes_is_next(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.seqs_max = 1;
	corebox_start(&b, &cfg, 8, 400);
	corebox_hello(&b, 2, 0);
	corebox_hello(&b, 1, 0);
	submit_from(&b, 1, 1, 100, 11, 1);
	submit_from(&b, 0, 1, 100, 12, 1);
	submit_from(&b, 2, 1, 100, 13, 1);
	submit_from(&b, 1, 2, 100, 14, 1);
	corebox_step(&b);
	corebox_skip(&b);
	corebox_run(&b);
	corebox_expect(&b, "step 2 rem[0] add[0 12/12] grow[0:0] run[0 0+12s]\n"
		       "results 1.0 1#1@0[185]length\n"
		       "step 3 rem[0] add[0 13/13] grow[0:0] run[0 0+13s]\n"
		       "results 0.0 1#1@0[850]length\n"
		       "step 4 rem[0] add[0 14/14] grow[0:0] run[0 0+14s]\n"
		       "results 2.0 1#1@0[609]length\n"
		       "results 1.0 2#1@0[689]length\n");
	corebox_release(&b);
}

static void the_pool_ends_a_request_when_it_is_full(void **state)
{
	static const struct {
		uint32_t n_blocks, len_max, n_prompt, n_out, n_expected;
	} rows[] = {
		{2, 400, 31, 50, 1}, {2, 400, 30, 50, 2}, {2, 400, 1, 50, 31}, {2, 400, 20, 3, 3}, {2, 400, 20, 12, 12},
		{2, 32, 20, 50, 12}, {2, 31, 20, 50, 11}, {9, 21, 20, 50, 1},  {9, 40, 20, 20, 20},
	};
	struct corebox b;
	uint32_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		corebox_start(&b, NULL, rows[i].n_blocks, rows[i].len_max);
		corebox_submit(&b, 1, 100, rows[i].n_prompt, rows[i].n_out);
		corebox_run(&b);
		assert_true(core_is_idle(b.core));
		assert_int_equal(corebox_stats(&b).generation_tokens, rows[i].n_expected);
		assert_int_equal(corebox_stats(&b).tokens_discarded, 0);
		assert_int_equal(corebox_stats(&b).preemptions, 0);
		assert_int_equal(col_u32(b.last_sent->results.finishes, 0), FINISH_LENGTH);
		corebox_release(&b);
	}
}

/* The tokens of new sequences in one step are bounded: the step ring is. */
static void a_step_takes_a_bounded_number_of_new_tokens(void **state)
{
	struct core_config cfg = corebox_config();
	const uint32_t n_prompt = COREBOX_TOKENS / 2;
	struct corebox b;
	uint32_t i, n_first;

	cfg.seqs_max = 400;
	cfg.requests_max = 1000;
	cfg.batched_tokens_max = 8192;
	cfg.steps_in_flight_max = 2;
	corebox_start(&b, &cfg, 2000, n_prompt + 100);
	b.quiet = true;
	corebox_submit(&b, 1, 100, n_prompt, 1);
	corebox_run(&b);
	for (i = 0; i < 300; i++) corebox_submit(&b, 2 + i, 100, n_prompt, 1); /* 16 tokens each are left to compute */
	corebox_step(&b);
	assert_int_equal(b.n_steps, 2);
	/* Each has 128 bytes, its tokens and a sixteenth of them in block numbers. */
	n_first = (uint32_t)(4 * MIB / (128 + 4 * (n_prompt + n_prompt / 16)));
	assert_int_equal(b.steps[0]->step.added.n, n_first);
	assert_int_equal(b.steps[1]->step.added.n, 300 - n_first);
	corebox_release(&b);
}

static void the_first_steps_are_short(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.first_step_tokens = 4;
	corebox_start(&b, &cfg, 8, 100);
	for (uint32_t i = 1; i <= 3; i++) corebox_submit(&b, i, 100 * i, 10, 2);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 10/10] grow[0:0] run[0 0+4]\n"
		       "step 2 add[1 10/10] grow[1:1] run[0 4+6s,1 0+2]\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[]\n"
		       "step 3 add[2 10/10] grow[2:2] run[0 10+1s,1 2+8s,2 0+7]\n"
		       "step 4 run[1 10+1s,2 7+3s]\n"
		       "results 0.0 1#1@0[266]\n"
		       "step 5 rem[0] run[2 10+1s]\n"
		       "results 0.0 1#1@1[415]length 2#1@0[170]\n"
		       "results 0.0 2#1@1[95]length 3#1@0[121]\n"
		       "results 0.0 3#1@1[946]length\n");
	corebox_release(&b);
}

static void a_budget_of_one_token_gets_on(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.batched_tokens_max = 1;
	corebox_start(&b, &cfg, 8, 100);
	corebox_submit(&b, 1, 9, 3, 2);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 1);
	assert_int_equal(b.n_tokens_run, 4);
	corebox_release(&b);
}

/* One alone may have more. */
static void a_longer_request_is_added_alone(void **state)
{
	struct core_config cfg = corebox_config();
	const uint32_t n_prompt = (1u << 20) + 1;
	uint32_t *tokens = mem_array(uint32_t, n_prompt);
	struct msg_submit m;
	struct corebox b;

	cfg.prefill_chunk_max = 32; /* it leaves budget for others */
	corebox_start(&b, &cfg, n_prompt / 16 + 100, n_prompt + 100);
	b.quiet = true;
	m = corebox_request(&b, 1, 0, 1, 1);
	m.tokens = view_of(tokens, n_prompt);
	m.n_prompt = n_prompt;
	core_on_submit(b.core, &m, b.now);
	corebox_submit(&b, 2, 9, 1, 1);
	core_step(b.core, b.now);
	assert_int_equal(b.steps[0]->step.added.n, 1);
	assert_int_equal(b.steps[0]->step.added_tokens.n, n_prompt);
	assert_int_equal(col_u32(b.steps[0]->step.run_n, 0), 32);
	assert_int_equal(b.steps[1]->step.added.n, 1);
	assert_int_equal(b.steps[1]->step.added_tokens.n, 1);
	corebox_release(&b);
	free(tokens);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prompt_runs_and_then_each_token_a_step_ahead),
		cmocka_unit_test(steps_in_flight_are_as_many_as_configured),
		cmocka_unit_test(decodes_go_first_and_prefill_fills_the_budget),
		cmocka_unit_test(a_chunk_limit_lets_others_in),
		cmocka_unit_test(priority_goes_before_arrival),
		cmocka_unit_test(running_requests_are_served_in_order_too),
		cmocka_unit_test(slots_are_never_more_than_the_budget),
		cmocka_unit_test(the_last_in_order_is_preempted_and_goes_on_later),
		cmocka_unit_test(the_lower_priority_is_preempted_even_when_it_came_first),
		cmocka_unit_test(who_is_last_preempts_itself),
		cmocka_unit_test(many_preemptions_in_one_step),
		cmocka_unit_test(the_first_that_does_not_fit_is_not_overtaken),
		cmocka_unit_test(exactly_what_fits_is_admitted),
		cmocka_unit_test(the_prefix_cache_leaves_a_token_to_compute),
		cmocka_unit_test(a_prefix_is_shared_while_it_is_used),
		cmocka_unit_test(the_answer_is_cached_as_well),
		cmocka_unit_test(without_the_prefix_cache_all_is_computed),
		cmocka_unit_test(a_hit_is_not_room_for_the_rest),
		cmocka_unit_test(a_paused_lane_gives_up_slots_and_blocks),
		cmocka_unit_test(a_decode_takes_from_a_paused_lane_first),
		cmocka_unit_test(the_best_of_all_lanes_is_next),
		cmocka_unit_test(the_pool_ends_a_request_when_it_is_full),
		cmocka_unit_test(a_step_takes_a_bounded_number_of_new_tokens),
		cmocka_unit_test(the_first_steps_are_short),
		cmocka_unit_test(a_budget_of_one_token_gets_on),
		cmocka_unit_test(a_longer_request_is_added_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
