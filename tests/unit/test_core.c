/* test_core.c - events and results: how requests end, cancels, lost workers, what is dropped, the statistics. */
#include "tests/support/corebox.h"
#include "tests/support/leak.h"

#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* 7 after the third output token, before that the number of output tokens. */
static uint32_t stop_after_three(const uint32_t *tokens, uint32_t n, uint32_t n_prompt)
{
	return n - n_prompt == 3 ? 7 : n - n_prompt;
}

static void a_stop_seen_a_step_late_costs_one_token(void **state)
{
	static const uint32_t stops[] = {9, 7};
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	b.token = stop_after_three;
	m = corebox_request(&b, 1, 50, 3, 50);
	m.stop_ids = view_of(stops, 2);
	corebox_on_submit(&b, &m);
	corebox_submit(&b, 2, 60, 3, 6);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 3/3,1 3/3] grow[0:0 1:1] run[0 0+3s,1 0+3s]\n"
		       "step 2 run[0 3+1s,1 3+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 3 run[0 4+1s,1 4+1s]\n"
		       "results 0.0 1#1@0[0] 2#1@0[0]\n"
		       "step 4 run[0 5+1s,1 5+1s]\n"
		       "results 0.0 1#1@1[1] 2#1@1[1]\n"
		       "step 5 run[0 6+1s,1 6+1s]\n"
		       "results 0.0 1#1@2[2] 2#1@2[2]\n"
		       "step 6 rem[0] run[1 7+1s]\n"
		       "results 0.0 1#1@3[7]stop 2#1@3[7]\n"
		       "results 0.0 2#1@4[4]\n"
		       "results 0.0 2#1@5[5]length\n");
	assert_int_equal(corebox_stats(&b).tokens_discarded, 1);
	assert_int_equal(corebox_stats(&b).generation_tokens, 10);
	assert_int_equal(corebox_stats(&b).finished, 2);
	corebox_release(&b);
}

/* The slot is taken by the next request while a step of its old owner is still in flight. */
static void a_slot_given_on_is_not_mistaken_for_its_old_owner(void **state)
{
	static const uint32_t stops[] = {7};
	struct core_config cfg = corebox_config();
	struct corebox b;
	struct msg_submit m;

	cfg.seqs_max = 1;
	cfg.steps_in_flight_max = 3;
	corebox_start(&b, &cfg, 8, 100);
	b.token = stop_after_three;
	m = corebox_request(&b, 1, 50, 3, 50);
	m.stop_ids = view_of(stops, 1);
	corebox_on_submit(&b, &m);
	corebox_submit(&b, 2, 60, 3, 6);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 3/3] grow[0:0] run[0 0+3s]\n"
		       "step 2 run[0 3+1s]\n"
		       "step 3 run[0 4+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 4 run[0 5+1s]\n"
		       "results 0.0 1#1@0[0]\n"
		       "step 5 run[0 6+1s]\n"
		       "results 0.0 1#1@1[1]\n"
		       "step 6 run[0 7+1s]\n"
		       "results 0.0 1#1@2[2]\n"
		       "step 7 rem[0] add[0 3/3] grow[0:0] run[0 0+3s]\n"
		       "results 0.0 1#1@3[7]stop\n"
		       "step 8 run[0 3+1s]\n"
		       "step 9 run[0 4+1s]\n"
		       "step 10 run[0 5+1s]\n"
		       "results 0.0 2#1@0[0]\n"
		       "step 11 run[0 6+1s]\n"
		       "results 0.0 2#1@1[1]\n"
		       "step 12 run[0 7+1s]\n"
		       "results 0.0 2#1@2[2]\n"
		       "results 0.0 2#1@3[7]\n"
		       "results 0.0 2#1@4[4]\n"
		       "results 0.0 2#1@5[5]length\n");
	assert_int_equal(corebox_stats(&b).tokens_discarded, 2);
	corebox_release(&b);
}

static uint32_t no_number(const uint32_t *tokens, uint32_t n, uint32_t n_prompt)
{
	return n - n_prompt == 2 && tokens[0] == 50 ? UINT32_MAX : 1;
}

static void unusable_logits_end_only_that_request(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	b.token = no_number;
	corebox_submit(&b, 1, 50, 3, 50);
	corebox_submit(&b, 2, 60, 3, 4);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 3/3,1 3/3] grow[0:0 1:1] run[0 0+3s,1 0+3s]\n"
		       "step 2 run[0 3+1s,1 3+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[]\n"
		       "step 3 run[0 4+1s,1 4+1s]\n"
		       "results 0.0 1#1@0[1] 2#1@0[1]\n"
		       "step 4 run[0 5+1s,1 5+1s]\n"
		       "results 0.0 1#1@1[1] 2#1@1[1]\n"
		       "refused 0.0 1#1 numeric: The model gave no usable logits for this request after 2 output tokens.\n"
		       "results 0.0 2#1@2[1]\n"
		       "results 0.0 2#1@3[1]length\n");
	assert_int_equal(corebox_stats(&b).refused, 1);
	assert_int_equal(corebox_stats(&b).finished, 1);
	assert_int_equal(corebox_stats(&b).generation_tokens, 6);
	corebox_release(&b);
}

static void a_cancel_ends_in_queue_prefill_and_decode(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.seqs_max = 2;
	cfg.prefill_chunk_max = 16;
	corebox_start(&b, &cfg, 16, 200);
	corebox_submit(&b, 1, 50, 3, 50);  /* decode */
	corebox_submit(&b, 2, 60, 80, 50); /* prefill */
	corebox_submit(&b, 3, 70, 3, 50);  /* queue */
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_skip(&b);
	corebox_cancel(&b, 0, 1);
	corebox_cancel(&b, 0, 2);
	corebox_cancel(&b, 0, 3);
	assert_int_equal(corebox_stats(&b).cancels, 3);
	assert_int_equal(corebox_stats(&b).blocks_used, 0);
	assert_int_equal(corebox_stats(&b).n_running + corebox_stats(&b).n_waiting, 0);
	assert_false(core_is_idle(b.core)); /* two steps are in flight */
	corebox_step(&b);
	corebox_expect(&b, "");
	corebox_answer(&b);
	assert_false(core_is_idle(b.core));
	corebox_answer(&b);
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).tokens_discarded, 2);
	/* Unknown ones are nothing. */
	corebox_cancel(&b, 0, 1);
	corebox_cancel(&b, 1, 1);
	corebox_cancel(&b, 3000, 1);
	assert_int_equal(corebox_stats(&b).cancels, 3);
	/* The slots are taken back with the next step. */
	corebox_submit(&b, 4, 70, 3, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 4 rem[0,1] add[1 3/3] grow[1:2] run[1 0+3s]\n"
		       "results 0.0 4#1@0[]\n"
		       "results 0.0 4#1@0[627]length\n");
	corebox_release(&b);
}

static void blocks_of_a_cancelled_request_serve_the_next_one(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 4, 200);
	corebox_submit(&b, 1, 50, 40, 20);
	corebox_step(&b);
	corebox_cancel(&b, 0, 1);
	corebox_submit(&b, 2, 500, 40, 3); /* needs blocks that the steps in flight still write */
	corebox_answer(&b);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 40/40] grow[0:0,1,2] run[0 0+40s]\n"
		       "step 2 run[0 40+1s]\n"
		       "results 0.0 1#1@0[]\n"
		       "step 3 rem[0] add[0 40/40] grow[0:0,1,2] run[0 0+40s]\n"
		       "results 0.0 2#1@0[]\n"
		       "step 4 run[0 40+1s]\n"
		       "step 5 run[0 41+1s]\n"
		       "results 0.0 2#1@0[440]\n"
		       "results 0.0 2#1@1[918]\n"
		       "results 0.0 2#1@2[755]length\n");
	corebox_release(&b);
}

static struct msg_step_result result_of(uint64_t number, uint32_t *slots, uint32_t *tokens, uint32_t *zeros, uint32_t n)
{
	return (struct msg_step_result){.epoch = COREBOX_EPOCH,
					.number = number,
					.slots = view_of(slots, n),
					.tokens = view_of(tokens, n),
					.n_top = view_of(zeros, n),
					.ranks = view_of(zeros, n)};
}

static void results_of_other_steps_are_dropped(void **state)
{
	uint32_t slots[] = {0}, tokens[] = {5}, zeros[] = {0};
	struct msg_step_result m = result_of(1, slots, tokens, zeros, 1);
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	core_on_step_result(b.core, &m, b.now); /* nothing is in flight */
	assert_int_equal(corebox_stats(&b).dropped_stale, 1);
	corebox_submit(&b, 1, 50, 3, 50);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	core_on_step_result(b.core, &m, b.now); /* again */
	assert_int_equal(corebox_stats(&b).dropped_stale, 2);
	m.number = 2;
	m.epoch = COREBOX_EPOCH - 1;
	core_on_step_result(b.core, &m, b.now);
	assert_int_equal(corebox_stats(&b).dropped_stale, 3);
	assert_int_equal(corebox_stats(&b).generation_tokens, 1);
	assert_int_equal(corebox_stats(&b).results_bad, 0);
	m.epoch = COREBOX_EPOCH;
	core_on_step_result(b.core, &m, b.now);
	assert_int_equal(corebox_stats(&b).generation_tokens, 2);
	corebox_release(&b);
}

static void results_that_do_not_fit_their_step_are_not_believed(void **state)
{
	uint32_t slots[] = {0, 1, 2}, swapped[] = {1, 0}, tokens[] = {5, 6, 7}, zeros[30] = {0}, ones[] = {1, 1}, many[] = {22, 0};
	float lps[30] = {0};
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 50, 3, 50);
	corebox_submit(&b, 2, 60, 3, 50);
	corebox_step(&b);
	for (i = 0; i < 13; i++) {
		struct msg_step_result m = result_of(1, slots, tokens, zeros, 2);

		switch (i) {
		case 0: m.status = 1; break;
		case 1: m.number = 2; break; /* not the oldest */
		case 2: m.number = 3; break; /* not even sent */
		case 3: m.slots.n = 1; break;
		case 4: m.tokens.n = 1; break;
		case 5: m.n_top.n = 1; break;
		case 6: m.ranks.n = 1; break;
		case 7: m.slots = view_of(swapped, 2); break;
		case 8: m = result_of(1, slots, tokens, zeros, 3); break;
		case 9: m.n_top = view_of(ones, 2); break; /* entries are missing */
		case 10:
			m.n_top = view_of(ones, 2);
			m.top_ids = view_of(zeros, 2);
			break;
		case 11:
			m.n_top = view_of(ones, 2);
			m.top_logprobs = view_of(lps, 2);
			break;
		default: /* more than any request may have */
			m.n_top = view_of(many, 2);
			m.top_ids = view_of(zeros, 22);
			m.top_logprobs = view_of(lps, 22);
			break;
		}
		core_on_step_result(b.core, &m, b.now);
		core_check(b.core);
		assert_int_equal(corebox_stats(&b).results_bad, i + 1);
		assert_int_equal(corebox_stats(&b).generation_tokens, 0);
	}
	/* 21 entries of one row are in order; nobody asked for them here. */
	many[0] = 21;
	{
		struct msg_step_result m = result_of(1, slots, tokens, zeros, 2);

		m.n_top = view_of(many, 2);
		m.top_ids = view_of(zeros, 21);
		m.top_logprobs = view_of(lps, 21);
		core_on_step_result(b.core, &m, b.now);
	}
	assert_int_equal(corebox_stats(&b).generation_tokens, 2);
	assert_int_equal(corebox_stats(&b).dropped_stale, 0);
	corebox_skip(&b);
	core_step(b.core, b.now);
	corebox_expect(&b, "step 3 run[0 4+1s,1 4+1s]\n"
		       "results 0.0 1#1@0[5] 2#1@0[6]\n");
	corebox_release(&b);
}

/* Log-probabilities are cut out of the joined columns row by row, past rows whose request has gone. */
static void log_probabilities_find_their_request(void **state)
{
	struct corebox b;
	struct msg_submit m;
	uint32_t i;

	corebox_start(&b, NULL, 8, 100);
	for (i = 1; i <= 3; i++) {
		m = corebox_request(&b, i, 50 * i, 3, 4);
		m.n_logprobs = i;
		corebox_on_submit(&b, &m);
	}
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 3/3,1 3/3,2 3/3] grow[0:0 1:1 2:2] run[0 0+3s,1 0+3s,2 0+3s]\n"
		       "step 2 run[0 3+1s,1 3+1s,2 3+1s]\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[]\n"
		       "step 3 run[0 4+1s,1 4+1s,2 4+1s]\n"
		       "results 0.0 1#1@0[624r2(624:-2)] 2#1@0[674r2(674:-2 675:-3)] 3#1@0[536r2(536:-2 537:-3 538:-4)]\n");
	corebox_cancel(&b, 0, 2);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 4 rem[1] run[0 5+1s,2 5+1s]\n"
		       "results 0.0 1#1@1[891r3(891:-2.5)] 3#1@1[634r3(634:-2.5 635:-3.5 636:-4.5)]\n");
	corebox_release(&b);
}

static void lost_workers_mean_a_replay(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.prefill_chunk_max = 32;
	corebox_start(&b, &cfg, 16, 200);
	corebox_submit(&b, 1, 50, 20, 5);
	corebox_submit(&b, 2, 300, 60, 3);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_skip(&b);
	corebox_cancel(&b, 0, 2); /* its slot need not be taken back: nobody has it any more */
	corebox_lost(&b);
	assert_int_equal(corebox_stats(&b).replays, 1);
	assert_int_equal(corebox_stats(&b).blocks_used, 0);
	assert_int_equal(corebox_stats(&b).blocks_cached, 0); /* the content is gone */
	assert_int_equal(corebox_stats(&b).blocks_free, 16);
	assert_int_equal(corebox_stats(&b).n_waiting, 1);
	corebox_submit(&b, 3, 50, 20, 1);
	corebox_step(&b); /* no step before they are back */
	corebox_expect(&b, "results 0.0 3#1@0[]\n");
	corebox_lost(&b); /* once more, while loading */
	corebox_ready(&b, 16, 200);
	corebox_run(&b);
	corebox_expect(&b, "step 5 add[0 22/20,1 20/20] grow[0:0,1 1:2,3] run[0 0+22s,1 0+20s]\n"
		       "step 6 run[0 22+1s]\n"
		       "step 7 rem[1] run[0 23+1s]\n"
		       "results 0.0 1#1@2[182] 3#1@0[691]length\n"
		       "results 0.0 1#1@3[712]\n"
		       "results 0.0 1#1@4[879]length\n");
	assert_int_equal(corebox_stats(&b).replays, 1);
	corebox_release(&b);
}

static void results_of_lost_workers_are_stale(void **state)
{
	uint32_t slots[] = {0}, tokens[] = {5}, zeros[] = {0};
	struct msg_step_result m = result_of(1, slots, tokens, zeros, 1);
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 50, 20, 5);
	corebox_step(&b);
	corebox_lost(&b);
	core_on_step_result(b.core, &m, b.now);
	corebox_ready(&b, 8, 100);
	corebox_step(&b);
	core_on_step_result(b.core, &m, b.now);
	assert_int_equal(corebox_stats(&b).dropped_stale, 2);
	assert_int_equal(corebox_stats(&b).generation_tokens, 0);
	corebox_release(&b);
}

static void workers_may_come_back_with_other_sizes(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 16, 200);
	corebox_submit(&b, 1, 50, 30, 100);
	corebox_submit(&b, 2, 300, 60, 100);
	m = corebox_request(&b, 3, 400, 10, 50);
	corebox_request_answer(&b, &m, 20);
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_skip(&b);
	corebox_ready(&b, 2, 150); /* without a word of their loss */
	assert_int_equal(corebox_stats(&b).blocks_total, 2);
	assert_int_equal(corebox_stats(&b).replays, 3);
	assert_int_equal(corebox_stats(&b).n_waiting, 2);
	corebox_step(&b);
	corebox_expect(&b, "step 3 add[2 30/30] grow[2:0,1] run[2 0+30s]\n"
		       "step 4 run[2 30+1s]\n"
		       "welcome 0.0 epoch=5 len=150 blocks=2\n"
		       "refused 0.0 2#1 too_long: This server's KV cache holds 32 tokens (2 blocks of 16). However, you requested at least 61 tokens (60 in the prompt, 1 for the answer). Please reduce the length of the prompt.\n"
		       "sync 0.0 n=2 1#1@0 3#1@20\n");
	corebox_run(&b);
	corebox_skip(&b);
	corebox_ready(&b, 2, 150); /* the same: no new welcome */
	corebox_step(&b);
	corebox_expect(&b, "");
	corebox_ready(&b, 3, 150);
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=150 blocks=3\n"
		       "sync 0.0 n=3\n");
	corebox_ready(&b, 3, 151);
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=151 blocks=3\n"
		       "sync 0.0 n=4\n");
	corebox_ready(&b, 3, UINT32_MAX); /* no message may say more */
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=2555790 blocks=3\n"
		       "sync 0.0 n=5\n");
	corebox_release(&b);
}

static void a_request_in_the_middle_of_its_answer_may_not_fit_any_more(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 16, 200);
	corebox_submit(&b, 1, 50, 30, 100);
	for (i = 0; i < 5; i++) {
		corebox_step(&b);
		corebox_answer(&b);
	}
	corebox_lost(&b);
	corebox_step(&b);
	corebox_skip(&b);
	corebox_ready(&b, 2, 200);
	corebox_step(&b);
	corebox_expect(&b, "welcome 0.0 epoch=5 len=200 blocks=2\n"
		       "results 0.0 1#1@5[]length\n"
		       "sync 0.0 n=2\n");
	corebox_release(&b);
}

static void the_statistics_add_up(void **state)
{
	struct corebox b;
	struct core_stats s;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 50, 20, 30);
	corebox_submit(&b, 2, 300, 60, 30);
	corebox_submit(&b, 3, 300, 60, 30);
	corebox_step(&b);
	s = corebox_stats(&b);
	assert_int_equal(s.n_running, 2);
	assert_int_equal(s.n_waiting, 1);
	assert_int_equal(s.n_suspects, 0);
	assert_int_equal(s.blocks_total, 8);
	assert_int_equal(s.blocks_used, 6);
	assert_int_equal(s.blocks_free, 2);
	assert_int_equal(s.blocks_cached, 0);
	assert_int_equal(s.steps, 2);
	assert_int_equal(s.submits, 3);
	assert_int_equal(s.prompt_tokens, 80);
	assert_int_equal(s.prefix_queries, 80);
	corebox_run(&b);
	s = corebox_stats(&b);
	assert_int_equal(s.n_running, 0);
	assert_int_equal(s.blocks_used, 0);
	assert_int_equal(s.finished, 3);
	assert_int_equal(s.generation_tokens, 90);
	assert_int_equal(s.prompt_tokens, 140);
	assert_int_equal(s.prefix_queries, 140);
	assert_int_equal(s.prefix_hits, 32); /* the third block was evicted before 3 began */
	corebox_release(&b);
}

/* Recurrent workers have states beside the blocks: what another request left in these cannot be used. It may change with the workers. */
static void recurrent_workers_have_no_prefix_cache(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	for (int round = 0; round < 3; round++) {
		b.groups.recurrent = round < 2;
		if (round) corebox_lost(&b);
		corebox_ready(&b, 8, 100);
		for (uint32_t i = 0; i < 2; i++) {
			corebox_submit(&b, 1 + i + 2 * (uint32_t)round, 300, 60, 5);
			corebox_run(&b);
		}
		assert_int_equal(corebox_stats(&b).blocks_cached, round < 2 ? 0 : 4);
		assert_int_equal(corebox_stats(&b).prefix_hits, round < 2 ? 0 : 48);
	}
	assert_int_equal(corebox_stats(&b).finished, 6);
	corebox_release(&b);
}

static void live_and_die(void)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	struct msg_submit m;
	uint32_t i;

	cfg.steps_in_flight_max = 3;
	corebox_start(&b, &cfg, 16, 200);
	corebox_submit(&b, 9, 9, 500, 1); /* refused */
	for (i = 0; i < 12; i++) {
		m = corebox_request(&b, 1 + i, 50, 20, 5);
		m.n_logprobs = 2;
		m.stop_ids = view_of(b.tokens, 1);
		corebox_on_submit(&b, &m);
		corebox_step(&b);
	}
	corebox_hello(&b, 1, 0);
	corebox_cancel(&b, 0, 1);
	corebox_step(&b);
	corebox_lost(&b);
	corebox_cancel(&b, 0, 2);
	corebox_ready(&b, 16, 200);
	corebox_step(&b);
	corebox_cancel(&b, 0, 3);
	core_free(NULL);
	corebox_release(&b);
}

static void core_free_leaves_nothing(void **state)
{
	size_t before;

	live_and_die(); /* cmocka's and stdio's own buffers */
	before = leak_bytes_used();
	live_and_die();
	assert_int_equal(leak_bytes_used(), before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stop_seen_a_step_late_costs_one_token),
		cmocka_unit_test(a_slot_given_on_is_not_mistaken_for_its_old_owner),
		cmocka_unit_test(unusable_logits_end_only_that_request),
		cmocka_unit_test(a_cancel_ends_in_queue_prefill_and_decode),
		cmocka_unit_test(blocks_of_a_cancelled_request_serve_the_next_one),
		cmocka_unit_test(results_of_other_steps_are_dropped),
		cmocka_unit_test(results_that_do_not_fit_their_step_are_not_believed),
		cmocka_unit_test(log_probabilities_find_their_request),
		cmocka_unit_test(lost_workers_mean_a_replay),
		cmocka_unit_test(results_of_lost_workers_are_stale),
		cmocka_unit_test(workers_may_come_back_with_other_sizes),
		cmocka_unit_test(a_request_in_the_middle_of_its_answer_may_not_fit_any_more),
		cmocka_unit_test(the_statistics_add_up),
		cmocka_unit_test(recurrent_workers_have_no_prefix_cache),
		cmocka_unit_test(core_free_leaves_nothing),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
