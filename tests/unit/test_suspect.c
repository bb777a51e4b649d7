/* test_suspect.c - a request that brings the workers down is found and ended, and nobody else. */
#include "tests/support/corebox.h"

#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* Does the oldest step run a request whose prompt begins with this token? */
static bool oldest_step_has(const struct corebox *b, uint32_t first)
{
	const struct msg_step *m = &b->steps[0]->step;
	uint32_t i, k, at;

	for (i = 0; i < m->run.n; i++) {
		uint32_t slot = col_u32(m->run, i), token = b->slots[slot].tokens[0];

		for (k = at = 0; k < m->added.n; at += col_u32(m->added_n_tokens, k++))
			if (col_u32(m->added, k) == slot) token = col_u32(m->added_tokens, at);
		if (token == first) return true;
	}
	return false;
}

static void die(struct corebox *b)
{
	corebox_lost(b);
	corebox_ready(b, 40, 400);
}

/* Runs to the end; the workers die whenever a step has one of the two. Returns the number of deaths. */
static uint32_t run_poisoned(struct corebox *b, uint32_t first, uint32_t second)
{
	uint32_t deaths = 0, i;

	for (i = 0; i < 10000; i++) {
		corebox_step(b);
		if (!b->n_steps) return deaths;
		if (oldest_step_has(b, first) || oldest_step_has(b, second)) {
			die(b);
			deaths++;
			strbuf_puts(&b->log, "died\n");
		} else {
			corebox_answer(b);
		}
	}
	fail_msg("it does not end");
	return 0;
}

static void one_death_makes_no_suspect(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 40, 400);
	corebox_submit(&b, 1, 100, 5, 3);
	corebox_submit(&b, 2, 200, 5, 3);
	corebox_step(&b);
	die(&b);
	assert_int_equal(corebox_stats(&b).n_suspects, 0);
	corebox_step(&b);
	corebox_answer(&b); /* a token each */
	corebox_step(&b);
	die(&b);
	assert_int_equal(corebox_stats(&b).n_suspects, 0);
	corebox_skip(&b);
	corebox_run(&b);
	corebox_expect(&b, "step 6 add[0 6/5,1 6/5] grow[0:0 1:1] run[0 0+6s,1 0+6s]\n"
		       "step 7 run[0 6+1s,1 6+1s]\n"
		       "results 0.0 1#1@1[816] 2#1@1[640]\n"
		       "results 0.0 1#1@2[146]length 2#1@2[885]length\n");
	assert_int_equal(corebox_stats(&b).refused, 0);
	assert_int_equal(corebox_stats(&b).replays, 4);
	corebox_release(&b);
}

static void a_death_while_idle_is_nobodys(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	corebox_submit(&b, 1, 100, 5, 3);
	for (i = 0; i < 5; i++) die(&b);
	assert_int_equal(corebox_stats(&b).n_suspects, 0);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 1);
	corebox_release(&b);
}

static void nobody_is_blamed_for_what_the_operator_wanted(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	corebox_start(&b, &cfg, 40, 400);
	corebox_submit(&b, 1, 100, 16, 3);
	for (uint32_t i = 0; i < 5; i++) {
		corebox_step(&b);
		assert_true(b.n_steps > 0);
		corebox_taken(&b);
		corebox_ready(&b, 40, 400);
	}
	assert_int_equal(corebox_stats(&b).n_suspects, 0);
	assert_int_equal(corebox_stats(&b).replays, 5);
	corebox_skip(&b);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 1);
	corebox_release(&b);
}

static void only_the_oldest_step_is_blamed(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	uint32_t i;

	cfg.batched_tokens_max = 16;
	corebox_start(&b, &cfg, 40, 400);
	corebox_submit(&b, 1, 100, 16, 3);
	corebox_submit(&b, 2, 200, 12, 3); /* is in the second step only */
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		assert_int_equal(b.n_steps, 2);
		die(&b);
	}
	assert_int_equal(corebox_stats(&b).n_suspects, 1);
	assert_int_equal(corebox_stats(&b).n_waiting, 1);
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 5 add[0 16/16] grow[0:0] run[0 0+16s]\n");
	corebox_run(&b);
	corebox_expect(&b, "step 6 add[1 12/12] grow[0:1 1:2] run[0 16+1s,1 0+12s]\n"
		       "step 7 run[0 17+1s,1 12+1s]\n"
		       "results 0.0 1#1@0[871]\n"
		       "step 8 run[1 13+1s]\n"
		       "results 0.0 1#1@1[664] 2#1@0[437]\n"
		       "results 0.0 1#1@2[222]length 2#1@1[369]\n"
		       "results 0.0 2#1@2[546]length\n");
	assert_int_equal(corebox_stats(&b).finished, 2);
	corebox_release(&b);
}

static void the_only_one_is_ended_at_its_third_death(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 40, 400);
	corebox_submit(&b, 1, 100, 5, 3);
	assert_int_equal(run_poisoned(&b, 100, 100), 3);
	corebox_expect(&b, "step 1 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 2 run[0 5+1s]\n"
		       "results 0.0 1#1@0[]\n"
		       "died\n"
		       "step 3 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 4 run[0 5+1s]\n"
		       "died\n"
		       "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "died\n"
		       "refused 0.0 1#1 poison: This request brought a worker down when it ran alone. It is not tried again.\n");
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).refused, 1);
	corebox_release(&b);
}

/* With the third death, wherever it stands in line. */
static void the_one_is_found(uint32_t n, uint32_t poison)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.seqs_max = cfg.requests_max = 128;
	cfg.batched_tokens_max = 1024;
	corebox_start(&b, &cfg, 200, 400);
	b.quiet = true;
	for (uint32_t i = 1; i <= n; i++) corebox_submit(&b, i, 8 * i, 5, 4);
	assert_int_equal(run_poisoned(&b, 8 * poison, 8 * poison), 3);
	assert_int_equal(corebox_stats(&b).refused, 1);
	assert_int_equal(corebox_stats(&b).finished, n - 1);
	assert_int_equal(corebox_stats(&b).n_suspects, 0);
	assert_int_equal(corebox_stats(&b).generation_tokens, 4 * (n - 1));
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void trials_find_the_one(void **state)
{
	for (uint32_t n = 1; n <= 8; n++)
		for (uint32_t poison = 1; poison <= n; poison++) the_one_is_found(n, poison);
	the_one_is_found(101, 1);
	the_one_is_found(101, 50);
	the_one_is_found(101, 101);
}

static void the_whole_story_of_a_trial(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 40, 400);
	corebox_submit(&b, 1, 100, 5, 4);
	corebox_submit(&b, 2, 200, 5, 4);
	corebox_submit(&b, 3, 300, 5, 4);
	run_poisoned(&b, 200, 200);
	corebox_expect(&b, "step 1 add[0 5/5,1 5/5,2 5/5] grow[0:0 1:1 2:2] run[0 0+5s,1 0+5s,2 0+5s]\n"
		       "step 2 run[0 5+1s,1 5+1s,2 5+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[]\n"
		       "died\n"
		       "step 3 add[2 5/5,1 5/5,0 5/5] grow[2:0 1:1 0:2] run[2 0+5s,1 0+5s,0 0+5s]\n"
		       "step 4 run[2 5+1s,1 5+1s,0 5+1s]\n"
		       "died\n"
		       "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 6 add[1 5/5] grow[1:1] run[1 0+5s]\n"
		       "results 0.0 3#1@0[881]\n"
		       "died\n"
		       "step 7 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "refused 0.0 2#1 poison: This request brought a worker down when it ran alone. It is not tried again.\n"
		       "step 8 add[1 6/5] grow[1:1] run[0 5+1s,1 0+6s]\n"
		       "step 9 run[0 6+1s,1 6+1s]\n"
		       "results 0.0 1#1@0[781]\n"
		       "step 10 run[0 7+1s,1 7+1s]\n"
		       "results 0.0 1#1@1[816] 3#1@1[394]\n"
		       "results 0.0 1#1@2[146] 3#1@2[485]\n"
		       "results 0.0 1#1@3[855]length 3#1@3[927]length\n");
	corebox_release(&b);
}

static void two_of_them_are_both_found(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	b.quiet = true;
	for (i = 1; i <= 6; i++) corebox_submit(&b, i, 100 * i, 5, 4);
	run_poisoned(&b, 200, 500);
	assert_int_equal(corebox_stats(&b).refused, 2);
	assert_int_equal(corebox_stats(&b).finished, 4);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

/* Nobody else runs, one step at a time, and who has a token waits for the others. */
static void nothing_else_runs_during_a_trial(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	uint32_t i;

	cfg.prefill_chunk_max = 10;
	corebox_start(&b, &cfg, 40, 400);
	corebox_submit(&b, 1, 100, 5, 4);
	corebox_submit(&b, 2, 200, 25, 4);
	corebox_submit(&b, 3, 300, 5, 4);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	corebox_submit(&b, 4, 400, 5, 4);
	assert_int_equal(corebox_stats(&b).n_suspects, 3);
	assert_int_equal(corebox_stats(&b).n_waiting, 1);
	corebox_skip(&b);
	for (i = 0; i < 5; i++) {
		corebox_step(&b);
		assert_int_equal(b.n_steps, 1);
		corebox_answer(&b);
	}
	corebox_expect(&b, "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "results 0.0 4#1@0[]\n"
		       "step 6 add[1 25/25] grow[1:1,2] run[1 0+10]\n"
		       "results 0.0 3#1@0[881]\n"
		       "step 7 run[1 10+10]\n"
		       "step 8 run[1 20+5s]\n"
		       "step 9 add[2 5/5] grow[2:3] run[2 0+5s]\n"
		       "results 0.0 2#1@0[741]\n");
	corebox_step(&b);
	assert_int_equal(b.n_steps, 2);
	corebox_run(&b);
	corebox_expect(&b, "step 10 add[3 5/5] grow[3:4] run[2 5+1s,1 25+1s,0 5+1s,3 0+5s]\n"
		       "step 11 run[2 6+1s,1 26+1s,0 6+1s,3 5+1s]\n"
		       "results 0.0 1#1@0[781]\n"
		       "step 12 run[2 7+1s,1 27+1s,0 7+1s,3 6+1s]\n"
		       "results 0.0 1#1@1[816] 2#1@1[911] 3#1@1[394] 4#1@0[991]\n"
		       "step 13 run[3 7+1s]\n"
		       "results 0.0 1#1@2[146] 2#1@2[905] 3#1@2[485] 4#1@1[240]\n"
		       "results 0.0 1#1@3[855]length 2#1@3[62]length 3#1@3[927]length 4#1@2[589]\n"
		       "results 0.0 4#1@3[955]length\n");
	corebox_release(&b);
}

static void a_cancelled_suspect_holds_nobody_up(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	for (i = 1; i <= 4; i++) corebox_submit(&b, i, 100 * i, 5, 3);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	corebox_submit(&b, 5, 500, 5, 3);
	assert_int_equal(corebox_stats(&b).n_suspects, 4);
	corebox_cancel(&b, 0, 1); /* waits */
	corebox_cancel(&b, 0, 3);
	corebox_cancel(&b, 0, 4); /* on trial */
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "results 0.0 5#1@0[]\n");
	corebox_cancel(&b, 0, 2); /* while it runs: the trial is over */
	corebox_step(&b);
	corebox_expect(&b, "step 6 rem[0] add[0 5/5] grow[0:0] run[0 0+5s]\n");
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void a_death_while_idle_leaves_the_trial_as_it_is(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	for (i = 1; i <= 2; i++) corebox_submit(&b, i, 100 * i, 5, 3);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	for (i = 0; i < 3; i++) die(&b);
	assert_int_equal(corebox_stats(&b).n_suspects, 2);
	assert_int_equal(corebox_stats(&b).refused, 0);
	corebox_skip(&b);
	corebox_run(&b);
	corebox_expect(&b, "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 6 add[1 5/5] grow[1:1] run[1 0+5s]\n"
		       "results 0.0 2#1@0[209]\n"
		       "step 7 run[1 5+1s,0 5+1s]\n"
		       "step 8 run[1 6+1s,0 6+1s]\n"
		       "results 0.0 1#1@0[781]\n"
		       "results 0.0 1#1@1[816] 2#1@1[640]\n"
		       "results 0.0 1#1@2[146]length 2#1@2[885]length\n");
	corebox_release(&b);
}

/* A slow reader does not prolong a trial. */
static void a_paused_suspect_runs_to_its_token(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	corebox_hello(&b, 1, 0);
	corebox_submit(&b, 1, 100, 5, 3);
	corebox_submit(&b, 2, 200, 5, 3);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	b.send_rc[0] = ST_AGAIN;
	corebox_skip(&b);
	b.now += NS_PER_S;
	corebox_run(&b);
	corebox_expect(&b, "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "sync 0.0 n=2 1#1@0 2#1@0 AGAIN\n"
		       "sync 1.0 n=2\n"
		       "step 6 add[1 5/5] grow[1:1] run[1 0+5s]\n");
	assert_int_equal(corebox_stats(&b).n_suspects, 0);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 2);
	corebox_release(&b);
}

static void suspects_are_taken_in_order_and_give_way_to_each_other(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	uint32_t i;

	cfg.seqs_max = 2;
	corebox_start(&b, &cfg, 40, 400);
	corebox_submit(&b, 1, 100, 5, 3);
	corebox_submit(&b, 2, 200, 5, 3);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	corebox_submit(&b, 3, 300, 5, 3);
	corebox_skip(&b);
	corebox_run(&b);
	corebox_expect(&b, "step 5 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "results 0.0 3#1@0[]\n"
		       "step 6 add[1 5/5] grow[1:1] run[1 0+5s]\n"
		       "results 0.0 2#1@0[209]\n"
		       "step 7 run[1 5+1s,0 5+1s]\n"
		       "step 8 run[1 6+1s,0 6+1s]\n"
		       "results 0.0 1#1@0[781]\n"
		       "results 0.0 1#1@1[816] 2#1@1[640]\n"
		       "step 9 rem[1,0] add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 10 run[0 5+1s]\n"
		       "results 0.0 1#1@2[146]length 2#1@2[885]length\n"
		       "step 11 run[0 6+1s]\n"
		       "results 0.0 3#1@0[881]\n"
		       "results 0.0 3#1@1[394]\n"
		       "results 0.0 3#1@2[485]length\n");
	corebox_release(&b);
}

/* A suspect taken over from the frontend, and one that does not fit after the loss. */
static void suspects_end_in_other_ways_too(void **state)
{
	struct msg_submit m;
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	for (i = 1; i <= 3; i++) corebox_submit(&b, i, 100 * i, i == 1 ? 40 : 5, 3);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	m = corebox_request(&b, 2, 200, 5, 3);
	corebox_request_answer(&b, &m, 1);
	m.attempt = 2;
	core_on_submit(b.core, &m, b.now);
	m = corebox_request(&b, 3, 300, 5, 3);
	corebox_request_answer(&b, &m, 3);
	m.attempt = 2;
	core_on_submit(b.core, &m, b.now);
	core_check(b.core);
	assert_int_equal(corebox_stats(&b).n_suspects, 2);
	corebox_skip(&b);
	corebox_ready(&b, 2, 400);
	assert_int_equal(corebox_stats(&b).n_suspects, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 5 add[0 6/5] grow[0:0] run[0 0+6s]\n"
		       "welcome 0.0 epoch=5 len=400 blocks=2\n"
		       "refused 0.0 1#1 too_long: This server's KV cache holds 32 tokens (2 blocks of 16). However, you requested at least 41 tokens (40 in the prompt, 1 for the answer). Please reduce the length of the prompt.\n"
		       "results 0.0 2#2@1[] 3#2@3[]length\n"
		       "sync 0.0 n=2 2#2@1\n"
		       "step 6 run[0 6+1s]\n"
		       "results 0.0 2#2@1[640]\n"
		       "results 0.0 2#2@2[885]length\n");
	corebox_release(&b);
}

/* Taken over while it is on trial in a slot: it goes back to its trial. */
static void a_suspect_on_trial_is_taken_over(void **state)
{
	struct msg_submit m;
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 40, 400);
	corebox_submit(&b, 1, 100, 5, 3);
	for (i = 0; i < 2; i++) {
		corebox_step(&b);
		die(&b);
	}
	corebox_step(&b);
	assert_int_equal(corebox_stats(&b).n_running, 1);
	m = corebox_request(&b, 1, 100, 5, 3);
	corebox_request_answer(&b, &m, 1);
	m.attempt = 2;
	core_on_submit(b.core, &m, b.now);
	core_check(b.core);
	assert_int_equal(corebox_stats(&b).n_suspects, 1);
	corebox_skip(&b);
	corebox_answer(&b);
	corebox_run(&b);
	corebox_expect(&b, "step 6 rem[0] add[0 6/5] grow[0:0] run[0 0+6s]\n"
		       "results 0.0 1#2@1[]\n"
		       "step 7 run[0 6+1s]\n"
		       "results 0.0 1#2@1[816]\n"
		       "results 0.0 1#2@2[146]length\n");
	corebox_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_death_makes_no_suspect),
		cmocka_unit_test(a_death_while_idle_is_nobodys),
		cmocka_unit_test(nobody_is_blamed_for_what_the_operator_wanted),
		cmocka_unit_test(only_the_oldest_step_is_blamed),
		cmocka_unit_test(the_only_one_is_ended_at_its_third_death),
		cmocka_unit_test(trials_find_the_one),
		cmocka_unit_test(the_whole_story_of_a_trial),
		cmocka_unit_test(two_of_them_are_both_found),
		cmocka_unit_test(nothing_else_runs_during_a_trial),
		cmocka_unit_test(a_cancelled_suspect_holds_nobody_up),
		cmocka_unit_test(a_death_while_idle_leaves_the_trial_as_it_is),
		cmocka_unit_test(a_paused_suspect_runs_to_its_token),
		cmocka_unit_test(suspects_are_taken_in_order_and_give_way_to_each_other),
		cmocka_unit_test(suspects_end_in_other_ways_too),
		cmocka_unit_test(a_suspect_on_trial_is_taken_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
