/* test_admit.c - submits: what is refused and with which words, repeats, resubmits, tokens taken over. */
#include "tests/support/corebox.h"

#include "proto/ids.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum field { N_PROMPT, N_OUT_MAX, N_STOP, N_LOGPROBS, TEMPERATURE, TOP_P, MIN_P };

static void bad_fields_are_refused_with_their_numbers(void **state)
{
	static const struct {
		enum field field;
		double value;
		const char *text; /* NULL: taken */
	} rows[] = {
		{N_PROMPT, 0, "The prompt must have between 1 and 5 tokens, but n_prompt is 0."},
		{N_PROMPT, 6, "The prompt must have between 1 and 5 tokens, but n_prompt is 6."},
		{N_PROMPT, 1, NULL},
		{N_PROMPT, 5, NULL},
		{N_OUT_MAX, 0, "At least 1 output token must be allowed."},
		{N_OUT_MAX, 1, "There are 2 output tokens already, but only 1 are allowed."},
		{N_OUT_MAX, 2, NULL},
		{N_STOP, LIMIT_STOP_IDS + 1, "There are 129 stop ids, but only 128 are allowed."},
		{N_STOP, LIMIT_STOP_IDS, NULL},
		{N_LOGPROBS, 22, "21 log-probabilities a token were requested, but only 20 are allowed."},
		{N_LOGPROBS, 21, NULL},
		{TEMPERATURE, -0.5, "temperature must be a number from 0, but is -0.5."},
		{TEMPERATURE, NAN, "temperature must be a number from 0, but is nan."},
		{TEMPERATURE, INFINITY, "temperature must be a number from 0, but is inf."},
		{TEMPERATURE, 0, NULL},
		{TOP_P, 0, "top_p must be in (0, 1], but is 0."},
		{TOP_P, 1.5, "top_p must be in (0, 1], but is 1.5."},
		{TOP_P, NAN, "top_p must be in (0, 1], but is nan."},
		{TOP_P, 1, NULL},
		{TOP_P, 0.001, NULL},
		{MIN_P, -1, "min_p must be in [0, 1], but is -1."},
		{MIN_P, 2, "min_p must be in [0, 1], but is 2."},
		{MIN_P, NAN, "min_p must be in [0, 1], but is nan."},
		{MIN_P, 0, NULL},
		{MIN_P, 1, NULL},
	};
	static const uint32_t stops[LIMIT_STOP_IDS + 1];
	struct corebox b;
	char line[300];
	uint32_t i;

	corebox_start(&b, NULL, 8, 100);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct msg_submit m = corebox_request(&b, 1 + i, 9, 3, 9);
		double v = rows[i].value;
		struct core_stats was = corebox_stats(&b), is;

		m.attempt = 4;
		m.tokens.n = 5;
		switch (rows[i].field) {
		case N_PROMPT: m.n_prompt = (uint32_t)v; break;
		case N_OUT_MAX: m.n_output_max = (uint32_t)v; break;
		case N_STOP: m.stop_ids = view_of(stops, (size_t)v); break;
		case N_LOGPROBS: m.n_logprobs = (uint32_t)v; break;
		case TEMPERATURE: m.temperature = (float)v; break;
		case TOP_P: m.top_p = (float)v; break;
		case MIN_P: m.min_p = (float)v; break;
		default: break;
		}
		corebox_on_submit(&b, &m);
		is = corebox_stats(&b);
		assert_int_equal(is.submits - was.submits, 1);
		assert_int_equal(is.refused - was.refused, rows[i].text != NULL);
		corebox_skip(&b);
		core_step(b.core, b.now);
		if (!rows[i].text) {
			assert_null(strstr(b.log.data, "refused"));
			corebox_cancel(&b, 0, 1 + i);
			continue;
		}
		snprintf(line, sizeof(line), "refused 0.0 %u#4 invalid: %s\n", 1 + i, rows[i].text);
		corebox_expect(&b, line);
	}
	corebox_release(&b);
}

static void what_can_never_fit_is_refused_with_the_numbers(void **state)
{
	static const struct {
		uint32_t n_blocks, len_max, n_prompt;
		const char *text;
	} rows[] = {
		{8, 100, 99, NULL},
		{8, 100, 100, "This model's maximum context length is 100 tokens. However, you requested at least 101 tokens (100 in the "
			      "prompt, 1 for the answer). Please reduce the length of the prompt."},
		{8, 100, 5000, "This model's maximum context length is 100 tokens. However, you requested at least 5001 tokens (5000 in the "
			       "prompt, 1 for the answer). Please reduce the length of the prompt."},
		{4, 100, 63, NULL},
		{4, 100, 64, "This server's KV cache holds 64 tokens (4 blocks of 16). However, you requested at least 65 tokens (64 in the "
			     "prompt, 1 for the answer). Please reduce the length of the prompt."},
		{4, 100, 99, "This server's KV cache holds 64 tokens (4 blocks of 16). However, you requested at least 100 tokens (99 in the "
			     "prompt, 1 for the answer). Please reduce the length of the prompt."},
		{4, 100, 100, "This model's maximum context length is 100 tokens. However, you requested at least 101 tokens (100 in the "
			      "prompt, 1 for the answer). Please reduce the length of the prompt."},
	};
	char line[400];
	uint32_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct corebox b;

		corebox_start(&b, NULL, rows[i].n_blocks, rows[i].len_max);
		corebox_submit(&b, 1, 9, rows[i].n_prompt, 10);
		corebox_run(&b);
		assert_int_equal(corebox_stats(&b).finished, rows[i].text == NULL);
		if (rows[i].text) {
			snprintf(line, sizeof(line), "refused 0.0 1#1 too_long: %s\n", rows[i].text);
			corebox_expect(&b, line);
			assert_true(core_is_idle(b.core));
		}
		corebox_release(&b);
	}
}

/* Before the workers are there nothing is known of sizes: the request waits and is judged later. */
static void what_came_too_early_is_judged_when_the_sizes_are_known(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_init(&b, NULL);
	corebox_hello(&b, 0, 0);
	corebox_submit(&b, 1, 9, 100, 10);
	corebox_submit(&b, 2, 9, 63, 10);
	m = corebox_request(&b, 3, 9, 50, 60); /* an older executor had a larger pool */
	corebox_request_answer(&b, &m, 20);
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#1@0[] 2#1@0[] 3#1@20[]\n");
	corebox_ready(&b, 4, 90);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 63/63] grow[0:0,1,2,3] run[0 0+63s]\n"
		       "welcome 0.0 epoch=5 len=90 blocks=4\n"
		       "refused 0.0 1#1 too_long: This model's maximum context length is 90 tokens. However, you requested at least 101 tokens (100 in the prompt, 1 for the answer). Please reduce the length of the prompt.\n"
		       "results 0.0 3#1@20[]length\n"
		       "sync 0.0 n=1 2#1@0\n"
		       "results 0.0 2#1@0[953]length\n");
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).finished, 2);
	assert_int_equal(corebox_stats(&b).refused, 1);
	corebox_release(&b);
}

static void a_full_queue_refuses(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;
	struct msg_submit m;

	cfg.requests_max = 3;
	corebox_start(&b, &cfg, 8, 100);
	corebox_submit(&b, 1, 9, 5, 1);
	corebox_submit(&b, 2, 9, 5, 1);
	corebox_submit(&b, 3, 9, 5, 1);
	corebox_submit(&b, 4, 9, 5, 1);
	corebox_submit(&b, 3, 9, 5, 1); /* a repeat needs no room */
	m = corebox_request(&b, 5, 9, 5, 1);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	core_step(b.core, b.now);
	corebox_expect(&b, "step 1 add[0 5/5,1 5/5,2 5/5] grow[0:0 1:1 2:2] run[0 0+5s,1 0+5s,2 0+5s]\n"
		       "refused 0.0 4#1 queue_full: The server is overloaded: it holds 3 requests, which is its limit. Please try again later.\n"
		       "refused 0.0 5#2 queue_full: The server is overloaded: it holds 3 requests, which is its limit. Please try again later.\n"
		       "results 0.0 1#1@0[] 2#1@0[] 3#1@0[]\n");
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).submits_repeated, 1);
	assert_int_equal(corebox_stats(&b).submits, 6);
	corebox_release(&b);
}

static void draining_takes_only_what_was_here_before(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 9, 5, 1);
	core_drain(b.core);
	corebox_submit(&b, 2, 9, 5, 1);
	m = corebox_request(&b, 3, 9, 5, 2);
	corebox_request_answer(&b, &m, 1);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 5/5,1 6/5] grow[0:0 1:1] run[0 0+5s,1 0+6s]\n"
		       "refused 0.0 2#1 draining: The server is shutting down and takes no new requests.\n"
		       "results 0.0 1#1@0[] 3#2@1[]\n"
		       "results 0.0 1#1@0[97]length 3#2@1[261]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void foreign_submits_are_dropped(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	m = corebox_request(&b, 1, 9, 5, 1);
	m.epoch = COREBOX_EPOCH - 1;
	corebox_on_submit(&b, &m);
	m.epoch = COREBOX_EPOCH + 1;
	corebox_on_submit(&b, &m);
	m.epoch = COREBOX_EPOCH;
	m.client_id = client_id_make(1, 0, 1); /* no such frontend */
	corebox_on_submit(&b, &m);
	m.client_id = client_id_make(0, 1, 1); /* another incarnation */
	corebox_on_submit(&b, &m);
	m.client_id = client_id_make(65535, 0, 1);
	corebox_on_submit(&b, &m);
	m.client_id = client_id_make(LIMIT_FRONTENDS, 0, 1);
	corebox_on_submit(&b, &m);
	corebox_run(&b);
	corebox_expect(&b, "");
	assert_int_equal(corebox_stats(&b).dropped_stale, 6);
	assert_int_equal(corebox_stats(&b).submits, 0);
	corebox_release(&b);
}

static void a_repeat_is_ignored_and_counted(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	m = corebox_request(&b, 1, 9, 5, 3);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_on_submit(&b, &m);
	m.attempt = 1;
	corebox_on_submit(&b, &m);
	corebox_run(&b);
	corebox_expect(&b, "step 1 add[0 5/5] grow[0:0] run[0 0+5s]\n"
		       "step 2 run[0 5+1s]\n"
		       "results 0.0 1#2@0[]\n"
		       "step 3 run[0 6+1s]\n"
		       "results 0.0 1#2@0[97]\n"
		       "results 0.0 1#2@1[261]\n"
		       "results 0.0 1#2@2[52]length\n");
	assert_int_equal(corebox_stats(&b).submits, 3);
	assert_int_equal(corebox_stats(&b).submits_repeated, 2);
	corebox_release(&b);
}

/* Rows were lost on the way: everything from the frontend's position on comes again, log-probabilities too. */
static void a_resubmit_sends_again_from_where_the_frontend_is(void **state)
{
	struct corebox b;
	struct msg_submit m;
	uint32_t i;

	corebox_start(&b, NULL, 8, 100);
	m = corebox_request(&b, 1, 9, 5, 9);
	m.n_logprobs = 2;
	corebox_on_submit(&b, &m);
	for (i = 0; i < 5; i++) {
		corebox_step(&b);
		corebox_answer(&b);
	}
	corebox_step(&b);
	corebox_skip(&b);
	m = corebox_request(&b, 1, 9, 5, 9);
	corebox_request_answer(&b, &m, 2);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#2@2[52r3(52:-4 53:-5),445r1(445:-4.5 446:-5.5),785r2(785:-5 786:-6)]\n");
	m.attempt = 3; /* nothing arrives: from the beginning */
	m.tokens.n = 5;
	corebox_on_submit(&b, &m);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 8 run[0 11+1s]\n"
		       "results 0.0 1#3@0[97r1(97:-3 98:-4),261r2(261:-3.5 262:-4.5),52r3(52:-4 53:-5),445r1(445:-4.5 446:-5.5),785r2(785:-5 786:-6),715r3(715:-5.5 716:-6.5)]\n");
	m = corebox_request(&b, 1, 9, 5, 9); /* it has them all */
	corebox_request_answer(&b, &m, 6);
	m.attempt = 4;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#4@6[]\n");
	m.attempt = 5; /* another prompt: not this request */
	m.n_prompt = 4;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "");
	assert_int_equal(corebox_stats(&b).dropped_stale, 1);
	corebox_run(&b);
	corebox_expect(&b, "step 9 run[0 12+1s]\n"
		       "results 0.0 1#4@6[254r1(254:-6 255:-7)]\n"
		       "results 0.0 1#4@7[613r2(613:-6.5 614:-7.5)]\n"
		       "results 0.0 1#4@8[24r3(24:-7 25:-8)]length\n");
	assert_int_equal(corebox_stats(&b).submits, 5);
	corebox_release(&b);
}

/* The executor is a successor: the frontend has tokens that it has not. */
static void tokens_of_the_frontend_are_taken_over(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	m = corebox_request(&b, 1, 9, 18, 8);
	corebox_request_answer(&b, &m, 3);
	m.attempt = 2;
	m.n_logprobs = 1;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 21/18] grow[0:0,1] run[0 0+21s]\n"
		       "step 2 run[0 21+1s]\n"
		       "results 0.0 1#2@3[]\n"
		       "step 3 run[0 22+1s]\n"
		       "results 0.0 1#2@3[320r2(320:-11)]\n");
	/* While it runs, it has still more. What is in flight is of no use then. */
	m = corebox_request(&b, 1, 9, 18, 8);
	corebox_request_answer(&b, &m, 6);
	m.attempt = 3;
	corebox_on_submit(&b, &m);
	assert_int_equal(corebox_stats(&b).n_running, 0);
	assert_int_equal(corebox_stats(&b).n_waiting, 1);
	corebox_answer(&b);
	corebox_answer(&b);
	assert_int_equal(corebox_stats(&b).tokens_discarded, 2);
	corebox_step(&b);
	corebox_expect(&b, "step 4 rem[0] add[0 24/18] grow[0:0,1] run[0 16+8s]\n"
		       "step 5 run[0 24+1s]\n"
		       "results 0.0 1#3@6[]\n");
	corebox_run(&b);
	corebox_expect(&b, "results 0.0 1#3@6[979r2(979:-12.5)]\n"
		       "results 0.0 1#3@7[301r3(301:-13)]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void taken_over_while_waiting(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_init(&b, NULL);
	corebox_hello(&b, 0, 0);
	corebox_submit(&b, 1, 9, 18, 8);
	m = corebox_request(&b, 1, 9, 18, 8);
	corebox_request_answer(&b, &m, 2);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_ready(&b, 8, 100);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 20/18] grow[0:0,1] run[0 0+20s]\n"
		       "step 2 run[0 20+1s]\n"
		       "welcome 0.0 epoch=5 len=100 blocks=8\n"
		       "results 0.0 1#2@2[]\n"
		       "sync 0.0 n=1 1#2@2\n");
	corebox_release(&b);
}

static void a_resubmit_that_has_the_end_is_answered_at_once(void **state)
{
	uint32_t stop;
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 30);
	m = corebox_request(&b, 1, 9, 5, 3); /* all it may have */
	corebox_request_answer(&b, &m, 3);
	m.attempt = 7;
	corebox_on_submit(&b, &m);
	corebox_run(&b);
	corebox_expect(&b, "results 0.0 1#7@3[]length\n");
	m = corebox_request(&b, 2, 9, 5, 30); /* a stop id */
	corebox_request_answer(&b, &m, 3);
	stop = b.tokens[7];
	m.stop_ids = view_of(&stop, 1);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_run(&b);
	corebox_expect(&b, "results 0.0 2#2@3[]stop\n");
	m.client_id++; /* too early to count */
	m.n_output_min = 3;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 8/5] grow[0:0] run[0 0+8s]\n"
		       "step 2 run[0 8+1s]\n"
		       "results 0.0 3#2@3[]\n");
	corebox_cancel(&b, 0, 3);
	m = corebox_request(&b, 4, 9, 5, 50); /* the model's length */
	corebox_request_answer(&b, &m, 25);
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 4#1@25[]length\n");
	/* Taken over while it is here: the end as well. */
	corebox_submit(&b, 5, 9, 5, 9);
	corebox_step(&b);
	corebox_skip(&b);
	m = corebox_request(&b, 5, 9, 5, 9);
	corebox_request_answer(&b, &m, 9);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	assert_int_equal(corebox_stats(&b).n_running, 0);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 5#2@9[]length\n");
	assert_int_equal(corebox_stats(&b).finished, 4);
	corebox_release(&b);
}

/* The end waits for a full lane, and the frontend asks again. */
static void a_resubmit_of_what_has_ended_gets_the_end_again(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 9, 5, 2);
	corebox_step(&b);
	b.send_rc[0] = ST_AGAIN;
	corebox_answer(&b);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	corebox_skip(&b);
	assert_int_equal(corebox_stats(&b).finished, 1);
	m = corebox_request(&b, 1, 9, 5, 2);
	corebox_request_answer(&b, &m, 1);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	m = corebox_request(&b, 1, 9, 5, 9); /* more than there is: cut down */
	corebox_request_answer(&b, &m, 5);
	m.attempt = 3;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#3@2[]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void tokens_are_sent_with_the_acceptance_when_there_are_some(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 9, 5, 5);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	m = corebox_request(&b, 1, 9, 5, 5);
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_expect(&b, "step 3 run[0 6+1s]\n"
		       "results 0.0 1#2@0[97]\n");
	corebox_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_fields_are_refused_with_their_numbers),
		cmocka_unit_test(what_can_never_fit_is_refused_with_the_numbers),
		cmocka_unit_test(what_came_too_early_is_judged_when_the_sizes_are_known),
		cmocka_unit_test(a_full_queue_refuses),
		cmocka_unit_test(draining_takes_only_what_was_here_before),
		cmocka_unit_test(foreign_submits_are_dropped),
		cmocka_unit_test(a_repeat_is_ignored_and_counted),
		cmocka_unit_test(a_resubmit_sends_again_from_where_the_frontend_is),
		cmocka_unit_test(tokens_of_the_frontend_are_taken_over),
		cmocka_unit_test(taken_over_while_waiting),
		cmocka_unit_test(a_resubmit_that_has_the_end_is_answered_at_once),
		cmocka_unit_test(a_resubmit_of_what_has_ended_gets_the_end_again),
		cmocka_unit_test(tokens_are_sent_with_the_acceptance_when_there_are_some),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
