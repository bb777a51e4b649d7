/* test_core_prompts.c - the core with requests that want more of their prompt than an answer: its log-probabilities, or its pooled
 * hidden state. Every row once and in order, whatever is lost; what a step and its result have room for; and the requests that the
 * workers cannot go on with. */
#include "tests/support/corebox.h"

#include "common/mem.h"
#include "proto/ids.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* n entries for each prompt token; nothing is cached, two prompt tokens a step. */
static struct core_config narrow(uint32_t n_tokens)
{
	struct core_config cfg = corebox_config();

	cfg.batched_tokens_max = n_tokens;
	cfg.steps_in_flight_max = 1;
	return cfg;
}

static void submit_prompt(struct corebox *b, uint64_t counter, uint32_t attempt, uint32_t n_prompt, uint32_t n_known)
{
	struct msg_submit m = corebox_request(b, counter, 10, n_prompt, 2);

	m.attempt = attempt;
	m.n_prompt_logprobs = 1;
	m.n_prompt_known = n_known;
	corebox_on_submit(b, &m);
}

static void rows_come_chunk_by_chunk_and_before_the_answer(void **state)
{
	const struct core_config cfg = narrow(3);
	struct corebox b;

	corebox_start(&b, &cfg, 8, 100);
	submit_prompt(&b, 1, 1, 7, 0);
	corebox_run(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 7/7] grow[0:0] run[0 0+3]\n"
			   "results 0.0 1#1@0[]\n"
			   "step 2 run[0 3+3]\n"
			   "results 0.0 1#1@0 p1{r2(11:-1),r3(12:-2),r4(13:-3)}[]\n"
			   "step 3 run[0 6+1s]\n"
			   "results 0.0 1#1@0 p4{r5(14:-4),r1(15:-5),r2(16:-6)}[]\n"
			   "step 4 run[0 7+1s]\n"
			   "results 0.0 1#1@0[516]\n"
			   "results 0.0 1#1@1[475]length\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void a_prompt_of_one_token_has_no_rows(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	submit_prompt(&b, 1, 1, 1, 0);
	corebox_run(&b);
	assert_non_null(strstr(b.log.data, "length"));
	assert_null(strstr(b.log.data, "p1{"));
	corebox_release(&b);
}

/* A full lane takes nothing; later everything comes in one message. */
static void rows_wait_in_the_request_for_a_full_lane(void **state)
{
	const struct core_config cfg = narrow(3);
	struct corebox b;

	corebox_start(&b, &cfg, 8, 100);
	submit_prompt(&b, 1, 1, 7, 0);
	corebox_step(&b);
	b.send_rc[0] = ST_AGAIN;
	corebox_answer(&b);
	corebox_step(&b); /* the lane is full only when something is sent: one more step */
	corebox_answer(&b);
	corebox_step(&b);
	b.send_rc[0] = ST_OK;
	corebox_skip(&b);
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b);
	corebox_expect(&b, "step 3 run[0 6+1s]\n"
			   "results 0.0 1#1@0 p1{r2(11:-1),r3(12:-2),r4(13:-3),r5(14:-4),r1(15:-5),r2(16:-6)}[]\n");
	corebox_release(&b);
}

static void a_replay_gives_only_what_is_missing(void **state)
{
	const struct core_config cfg = narrow(3);
	struct corebox b;

	corebox_start(&b, &cfg, 8, 100);
	submit_prompt(&b, 1, 1, 7, 0);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(col_u32(b.last_step->step.run_start, 0), 3);
	corebox_lost(&b);
	corebox_skip(&b);
	corebox_ready(&b, 8, 100);
	corebox_step(&b);
	assert_int_equal(col_u32(b.last_step->step.added_n_prompt_known, 0), 4);
	corebox_run(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 3 add[0 7/7] grow[0:0] run[0 0+3]\n"
			   "step 4 run[0 3+3]\n"
			   "step 5 run[0 6+1s]\n"
			   "results 0.0 1#1@0 p4{r5(14:-4),r1(15:-5),r2(16:-6)}[]\n"
			   "step 6 run[0 7+1s]\n"
			   "results 0.0 1#1@0[516]\n"
			   "results 0.0 1#1@1[475]length\n");
	corebox_release(&b);
}

static void a_resubmit_gets_what_its_frontend_does_not_have(void **state)
{
	static const struct {
		uint32_t n_known;
		const char *line;
	} rows[] = {
		{0, "results 0.0 1#2@0 p1{r2(11:-1),r3(12:-2),r4(13:-3)}[266]\n"},
		{1, "results 0.0 1#2@0 p1{r2(11:-1),r3(12:-2),r4(13:-3)}[266]\n"},
		{3, "results 0.0 1#2@0 p3{r4(13:-3)}[266]\n"},
		{4, "results 0.0 1#2@0[266]\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct core_config cfg = narrow(8);
		struct msg_submit m;
		struct corebox b;

		corebox_start(&b, &cfg, 8, 100);
		submit_prompt(&b, 1, 1, 4, 0);
		corebox_step(&b);
		corebox_answer(&b);
		corebox_step(&b);
		corebox_skip(&b);
		m = corebox_request(&b, 1, 10, 4, 2); /* all was lost on the way */
		m.attempt = 2;
		m.n_prompt_logprobs = 1;
		m.n_prompt_known = rows[i].n_known;
		corebox_on_submit(&b, &m);
		core_step(b.core, b.now);
		corebox_expect(&b, rows[i].line);
		corebox_release(&b);
	}
}

/* A successor goes on where the frontend is, and takes from the prefix cache what lies before that. */
static void a_successor_goes_on_where_the_frontend_is(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 10, 40, 1); /* fills the prefix cache */
	corebox_run(&b);
	corebox_skip(&b);
	submit_prompt(&b, 2, 5, 40, 0); /* uses none of it */
	corebox_step(&b);
	assert_int_equal(col_u32(b.steps[0]->step.run_start, 0), 0);
	corebox_run(&b);
	submit_prompt(&b, 3, 5, 40, 16); /* position 16 comes from token 15 */
	corebox_step(&b);
	assert_int_equal(col_u32(b.steps[0]->step.run_start, 0), 0);
	corebox_run(&b);
	corebox_skip(&b);
	submit_prompt(&b, 4, 5, 40, 36);
	corebox_step(&b);
	assert_int_equal(col_u32(b.steps[0]->step.run_start, 0), 32);
	assert_int_equal(col_u32(b.steps[0]->step.added_n_prompt_known, 0), 36);
	corebox_skip(&b);
	corebox_run(&b);
	corebox_step(&b);
	assert_non_null(strstr(b.log.data, " 4#5@0 p36{r2(46:-36),r3(47:-37),r4(48:-38),r5(49:-39)}["));
	submit_prompt(&b, 5, 5, 40, 40); /* has all of them */
	corebox_step(&b);
	assert_int_equal(col_u32(b.steps[0]->step.added_n_prompt_known, 0), 40);
	corebox_release(&b);
}

/* A frontend that claims to have more than there is gets the rest, in order. */
static void a_frontend_that_knows_more_is_believed(void **state)
{
	const struct core_config cfg = narrow(3);
	struct corebox b;

	corebox_start(&b, &cfg, 8, 100);
	submit_prompt(&b, 1, 1, 7, 0);
	corebox_step(&b);
	corebox_answer(&b);
	submit_prompt(&b, 1, 2, 7, 6);
	corebox_skip(&b);
	corebox_run(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 2 run[0 3+3]\n"
			   "results 0.0 1#2@0[]\n"
			   "step 3 run[0 6+1s]\n"
			   "results 0.0 1#2@0 p6{r2(16:-6)}[]\n"
			   "step 4 run[0 7+1s]\n"
			   "results 0.0 1#2@0[516]\n"
			   "results 0.0 1#2@1[475]length\n");
	corebox_release(&b);
}

static void entries_are_carried(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	m = corebox_request(&b, 1, 10, 3, 1);
	m.n_prompt_logprobs = 3;
	m.n_logprobs = 2;
	corebox_on_submit(&b, &m);
	m = corebox_request(&b, 2, 20, 3, 1);
	m.n_prompt_logprobs = 2;
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#1@0 p1{r2(11:-1 12:-2 13:-3),r3(12:-2 13:-3 14:-4)}[721r2(721:-2 722:-3)]length "
			   "2#1@0 p1{r2(21:-1 22:-2),r3(22:-2 23:-3)}[85]length\n");
	corebox_release(&b);
}

/* ---- pooled states ---- */

static void submit_pooling(struct corebox *b, uint64_t counter, uint32_t kind, uint32_t n_prompt)
{
	struct msg_submit m = corebox_request(b, counter, 10, n_prompt, 0); /* no output at all */

	m.kind = kind;
	m.top_p = 0; /* not looked at */
	corebox_on_submit(b, &m);
}

static void a_pooling_request_ends_with_its_state(void **state)
{
	const struct core_config cfg = narrow(4);
	struct corebox b;

	corebox_start(&b, &cfg, 8, 100);
	submit_pooling(&b, 1, REQUEST_POOL_MEAN, 6);
	corebox_run(&b);
	corebox_step(&b);
	corebox_expect(&b, "step 1 add[0 6/6] grow[0:0] run[0 0+4]\n"
			   "results 0.0 1#1@0[]\n"
			   "step 2 run[0 4+2s]\n"
			   "results 0.0 1#1@0[]stop e{320.25,321.25,322.25,323.25}\n");
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).blocks_used, 0);
	assert_int_equal(corebox_stats(&b).finished, 1);
	submit_pooling(&b, 2, REQUEST_POOL_LAST, 6);
	corebox_run(&b);
	corebox_step(&b);
	assert_non_null(strstr(b.log.data, "stop e{320.5,"));
	corebox_release(&b);
}

static void a_mean_takes_nothing_from_the_prefix_cache(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 16, 200);
	corebox_submit(&b, 1, 10, 40, 1);
	corebox_run(&b);
	submit_pooling(&b, 2, REQUEST_POOL_MEAN, 40);
	corebox_step(&b);
	assert_int_equal(col_u32(b.last_step->step.run_start, 0), 0);
	corebox_run(&b);
	submit_pooling(&b, 3, REQUEST_POOL_LAST, 40);
	corebox_step(&b);
	assert_int_equal(col_u32(b.last_step->step.run_start, 0), 32);
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

/* The state is kept until the lane takes it, through a resubmit too, and computed again after a loss. */
static void a_state_that_is_lost_is_sent_or_made_again(void **state)
{
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 100);
	submit_pooling(&b, 1, REQUEST_POOL_LAST, 6);
	corebox_step(&b);
	b.send_rc[0] = ST_AGAIN;
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(corebox_stats(&b).finished, 1);
	corebox_skip(&b);
	m = corebox_request(&b, 1, 10, 6, 0);
	m.kind = REQUEST_POOL_LAST;
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b);
	corebox_expect(&b, "results 0.0 1#2@0[]stop e{320.5,321.5,322.5,323.5}\n");
	submit_pooling(&b, 2, REQUEST_POOL_MEAN, 6);
	corebox_step(&b);
	corebox_lost(&b);
	corebox_ready(&b, 8, 100);
	corebox_run(&b);
	corebox_step(&b);
	assert_non_null(strstr(b.log.data, "2#1@0[]stop e{320.25,"));
	corebox_release(&b);
}

static void an_input_may_fill_the_whole_context(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	submit_pooling(&b, 1, REQUEST_POOL_LAST, 100);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 1);
	corebox_skip(&b);
	submit_pooling(&b, 2, REQUEST_POOL_LAST, 101);
	corebox_step(&b);
	corebox_expect(&b, "refused 0.0 2#1 too_long: This server takes inputs of 100 tokens at most (the model's context length is "
			   "100). However, you sent 101 tokens. Please reduce the length of the input.\n");
	corebox_release(&b);
}

/* ---- what the workers cannot go on with ---- */

static uint32_t failure;

static void spoil_token(struct msg_step_result *m)
{
	if (m->tokens.n) memcpy((void *)m->tokens.data, &failure, sizeof(failure));
}

static void a_request_that_cannot_go_on_is_told_why(void **state)
{
	static const struct {
		uint32_t token;
		const char *line;
	} rows[] = {
		{TOKEN_NO_LOGITS, "refused 0.0 1#1 numeric: The model gave no usable logits for this request after 0 output tokens.\n"},
		{TOKEN_NOT_ALLOWED, "refused 0.0 1#1 invalid: After 0 output tokens no token may follow: the grammar, the allowed token "
				    "ids, logit_bias and min_tokens leave none together.\n"},
		{TOKEN_BAD_GRAMMAR,
		 "refused 0.0 1#1 invalid: The engine cannot follow this request's grammar after 0 output tokens.\n"},
		{TOKEN_FAILED, "refused 0.0 1#1 numeric: The model gave no usable logits for this request after 0 output tokens.\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct corebox b;

		corebox_start(&b, NULL, 8, 100);
		corebox_submit(&b, 1, 9, 4, 5);
		corebox_submit(&b, 2, 90, 4, 5);
		corebox_step(&b);
		corebox_skip(&b);
		failure = rows[i].token;
		b.on_result = spoil_token;
		corebox_answer(&b);
		b.on_result = NULL;
		assert_true(b.last_rc);
		core_step(b.core, b.now);
		assert_non_null(strstr(b.log.data, rows[i].line));
		corebox_run(&b);
		assert_int_equal(corebox_stats(&b).finished, 1); /* the other one */
		assert_int_equal(corebox_stats(&b).blocks_used, 0);
		corebox_release(&b);
	}
}

static void spoil_prompt(struct msg_step_result *m)
{
	if (m->prompt_ranks.n > 1) memset((uint32_t *)m->prompt_ranks.data + 1, 0, sizeof(uint32_t));
}

static void spoil_pooled(struct msg_step_result *m)
{
	if (m->pooled.n) ((float *)m->pooled.data)[2] = NAN;
}

static void rows_and_states_without_numbers_end_their_request(void **state)
{
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	submit_prompt(&b, 1, 1, 5, 0);
	b.on_result = spoil_prompt;
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "refused 0.0 1#1 numeric: The model gave no usable logits for this request after 0 output tokens.\n");
	corebox_run(&b); /* the step that was in flight */
	submit_pooling(&b, 2, REQUEST_POOL_MEAN, 5);
	b.on_result = spoil_pooled;
	corebox_step(&b);
	corebox_answer(&b);
	corebox_skip(&b);
	corebox_step(&b);
	corebox_expect(&b, "refused 0.0 2#1 numeric: The model gave no usable hidden state for this request.\n");
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

/* ---- results that do not have the step's rows ---- */

static uint32_t damage;

static void spoil_shape(struct msg_step_result *m)
{
	static uint32_t other[64];
	struct view *views[] = {&m->prompt_slots,	&m->prompt_starts,  &m->n_prompt_tokens, &m->prompt_n_top, &m->prompt_ranks,
				&m->prompt_top_ids, &m->prompt_top_logprobs, &m->pooled_slots,  &m->pooled};
	struct view *values[] = {&m->prompt_slots, &m->prompt_starts, &m->n_prompt_tokens, &m->pooled_slots};

	if (damage < ARRAY_LEN(views)) { /* one is missing */
		views[damage]->n--;
	} else if (damage < 2 * ARRAY_LEN(views)) { /* one is too many */
		*views[damage - ARRAY_LEN(views)] = view_of(other, views[damage - ARRAY_LEN(views)]->n + 1);
	} else if (damage < 2 * ARRAY_LEN(views) + ARRAY_LEN(values)) {
		uint32_t *value = (uint32_t *)values[damage - 2 * ARRAY_LEN(views)]->data;

		++*value;
	} else { /* more entries than any request may have */
		for (uint32_t i = 0; i < m->prompt_n_top.n; i++) ((uint32_t *)m->prompt_n_top.data)[i] = i ? 0 : 22;
		m->prompt_top_ids = view_of(other, 22);
		m->prompt_top_logprobs = view_of(other, 22);
	}
}

static void results_with_other_rows_are_not_believed(void **state)
{
	for (damage = 0; damage < 2 * 9 + 4 + 1; damage++) {
		struct corebox b;

		corebox_start(&b, NULL, 8, 100);
		submit_prompt(&b, 1, 1, 5, 0);
		submit_pooling(&b, 2, REQUEST_POOL_LAST, 5);
		corebox_step(&b);
		b.on_result = spoil_shape;
		corebox_answer(&b);
		if (b.last_rc) fail_msg("damage %u is believed", damage);
		assert_int_equal(corebox_stats(&b).results_bad, 1);
		assert_int_equal(corebox_stats(&b).finished, 0);
		corebox_release(&b);
	}
}

/* ---- what a step and its result have room for ---- */

static void a_step_takes_a_bounded_number_of_grammars(void **state)
{
	char *grammar = mem_zalloc(1, LIMIT_GRAMMAR_BYTES);
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 64, 100);
	for (i = 1; i <= 8; i++) {
		struct msg_submit m = corebox_request(&b, i, 9, 4, 5);

		m.grammar = view_of(grammar, LIMIT_GRAMMAR_BYTES);
		corebox_on_submit(&b, &m);
	}
	corebox_step(&b); /* three have room beside their other columns */
	assert_int_equal(b.steps[0]->step.added.n, 3);
	assert_int_equal(b.steps[0]->step.added_grammars.n, 3 * LIMIT_GRAMMAR_BYTES);
	assert_int_equal(b.steps[1]->step.added.n, 3);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(b.last_step->step.added.n, 2);
	free(grammar);
	corebox_release(&b);
}

static void a_step_gives_a_bounded_number_of_rows(void **state)
{
	struct core_config cfg = corebox_config();
	const uint32_t n_prompt = 3000;
	struct corebox b;

	cfg.batched_tokens_max = 8192;
	cfg.prefix_cache = false;
	corebox_start(&b, &cfg, 1000, 8000);
	b.quiet = true;
	submit_prompt(&b, 1, 1, n_prompt, 0);
	submit_prompt(&b, 2, 1, n_prompt, 0);
	submit_prompt(&b, 3, 1, n_prompt, 0);
	corebox_submit(&b, 4, 9, 50, 3);
	corebox_step(&b);
	/* All of the first, the second as far as there is room; the third cannot begin, and nobody overtakes it. */
	assert_int_equal(b.steps[0]->step.run.n, 2);
	assert_int_equal(col_u32(b.steps[0]->step.run_n, 0), n_prompt);
	assert_int_equal(col_u32(b.steps[0]->step.run_n, 1), LIMIT_PROMPT_ROWS - (n_prompt - 1));
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 4);
	corebox_release(&b);
}

/* A replay of known output behind the prompt gives nothing and is not held back, but what it stands behind is. */
static void rows_are_cut_where_the_room_ends(void **state)
{
	struct core_config cfg = corebox_config();
	struct msg_submit m;
	struct corebox b;

	cfg.batched_tokens_max = 8192;
	corebox_start(&b, &cfg, 1000, 8100);
	b.quiet = true;
	submit_prompt(&b, 1, 1, LIMIT_PROMPT_ROWS - 9, 0); /* leaves room for ten */
	m = corebox_request(&b, 2, 5, 30, 100);
	m.n_prompt_logprobs = 1;
	m.n_prompt_known = 8;
	corebox_request_answer(&b, &m, 40);
	corebox_on_submit(&b, &m);
	corebox_step(&b);
	assert_int_equal(b.steps[0]->step.run.n, 2);
	assert_int_equal(col_u32(b.steps[0]->step.run_n, 1), 17); /* positions 8 to 17, of tokens 7 to 16 */
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 2);
	corebox_release(&b);
}

static void a_result_has_room_for_a_bounded_number_of_states(void **state)
{
	struct corebox b;
	uint32_t i;

	corebox_init(&b, NULL);
	b.quiet = true;
	b.dim = LIMIT_POOLED / 2;
	corebox_hello(&b, 0, 0);
	corebox_ready(&b, 64, 100);
	for (i = 1; i <= 5; i++) submit_pooling(&b, i, REQUEST_POOL_LAST, 9);
	corebox_step(&b);
	assert_int_equal(b.steps[0]->step.run.n, 2);
	assert_int_equal(b.steps[1]->step.run.n, 2);
	/* A lane that is full keeps them back; then each message has two. */
	b.send_rc[0] = ST_AGAIN;
	corebox_answer(&b);
	corebox_answer(&b);
	corebox_step(&b);
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	corebox_step(&b);
	assert_int_equal(b.last_sent->results.client_ids.n, 2);
	assert_int_equal(b.last_sent->results.pooled.n, LIMIT_POOLED);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 5);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

/* A chunk that would reach the end without room for the state stops one token before it. */
static void a_chunk_leaves_the_last_token_for_a_step_with_room(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.batched_tokens_max = 30;
	cfg.prefill_chunk_max = 10;
	cfg.prefix_cache = false;
	cfg.steps_in_flight_max = 1;
	corebox_init(&b, &cfg);
	b.quiet = true;
	b.dim = LIMIT_POOLED;
	corebox_hello(&b, 0, 0);
	corebox_ready(&b, 64, 100);
	submit_pooling(&b, 1, REQUEST_POOL_LAST, 20);
	submit_pooling(&b, 2, REQUEST_POOL_LAST, 20);
	corebox_step(&b);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(col_u32(b.last_step->step.run_n, 0), 10);
	assert_int_equal(col_u32(b.last_step->step.run_n, 1), 9);
	assert_int_equal(col_u32(b.last_step->step.run_sample, 1), 0);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(col_u32(b.last_step->step.run_n, 0), 1);
	assert_int_equal(col_u32(b.last_step->step.run_sample, 0), 1);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).finished, 2);
	corebox_release(&b);
}

/* The same where a single token is left of each. */
static void a_last_token_waits_for_a_step_with_room(void **state)
{
	struct core_config cfg = corebox_config();
	struct corebox b;

	cfg.prefill_chunk_max = 10;
	cfg.prefix_cache = false;
	cfg.steps_in_flight_max = 1;
	corebox_init(&b, &cfg);
	b.quiet = true;
	b.dim = LIMIT_POOLED;
	corebox_hello(&b, 0, 0);
	corebox_ready(&b, 64, 100);
	submit_pooling(&b, 1, REQUEST_POOL_LAST, 11);
	submit_pooling(&b, 2, REQUEST_POOL_LAST, 11);
	corebox_step(&b);
	assert_int_equal(b.last_step->step.run.n, 2);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(b.last_step->step.run.n, 1);
	corebox_answer(&b);
	corebox_step(&b);
	assert_int_equal(b.last_step->step.run.n, 1);
	corebox_answer(&b);
	assert_int_equal(corebox_stats(&b).finished, 2);
	corebox_release(&b);
}

/* More rows than a message takes go in several, the answer behind the last of them. */
static void many_rows_make_more_messages(void **state)
{
	struct core_config cfg = corebox_config();
	const uint32_t n_prompt = 8000;
	uint32_t i, n_messages = 0;
	struct corebox b;

	cfg.batched_tokens_max = 4096;
	cfg.prefix_cache = false;
	cfg.seqs_max = 16;
	corebox_start(&b, &cfg, 6000, 8100);
	b.quiet = true;
	for (i = 1; i <= 10; i++) submit_prompt(&b, i, 1, n_prompt, 0);
	for (i = 0; i < 100 && corebox_stats(&b).finished < 10; i++) {
		corebox_step(&b);
		while (b.n_steps) corebox_answer(&b);
	}
	assert_int_equal(corebox_stats(&b).finished, 10);
	/* All was sent meanwhile; now all of it again, at once. */
	corebox_release(&b);
	corebox_start(&b, &cfg, 6000, 8100);
	b.quiet = true;
	for (i = 1; i <= 10; i++) submit_prompt(&b, i, 1, n_prompt, 0);
	b.send_rc[0] = ST_AGAIN;
	for (i = 0; i < 100 && corebox_stats(&b).n_running + corebox_stats(&b).n_waiting > 0; i++) {
		core_on_lane_ready(b.core, 0, b.now); /* room for a moment, so that its requests run */
		corebox_step(&b);
		while (b.n_steps) corebox_answer(&b);
	}
	b.send_rc[0] = ST_OK;
	core_on_lane_ready(b.core, 0, b.now);
	b.quiet = false;
	corebox_skip(&b);
	corebox_step(&b);
	for (const char *at = b.log.data; (at = strstr(at, "results ")); at++) n_messages++;
	assert_int_equal(n_messages, 2); /* 79990 rows; 65536 fit one */
	assert_int_equal(b.last_sent->results.n_prompt_tokens.n, 2);
	assert_int_equal(col_u32(b.last_sent->results.prompt_starts, 0), 1 + 65536 - 8 * (n_prompt - 1) - 8 * 2);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_come_chunk_by_chunk_and_before_the_answer),
		cmocka_unit_test(a_prompt_of_one_token_has_no_rows),
		cmocka_unit_test(rows_wait_in_the_request_for_a_full_lane),
		cmocka_unit_test(a_replay_gives_only_what_is_missing),
		cmocka_unit_test(a_resubmit_gets_what_its_frontend_does_not_have),
		cmocka_unit_test(a_successor_goes_on_where_the_frontend_is),
		cmocka_unit_test(a_frontend_that_knows_more_is_believed),
		cmocka_unit_test(entries_are_carried),
		cmocka_unit_test(a_pooling_request_ends_with_its_state),
		cmocka_unit_test(a_mean_takes_nothing_from_the_prefix_cache),
		cmocka_unit_test(a_state_that_is_lost_is_sent_or_made_again),
		cmocka_unit_test(an_input_may_fill_the_whole_context),
		cmocka_unit_test(a_request_that_cannot_go_on_is_told_why),
		cmocka_unit_test(rows_and_states_without_numbers_end_their_request),
		cmocka_unit_test(results_with_other_rows_are_not_believed),
		cmocka_unit_test(a_step_takes_a_bounded_number_of_grammars),
		cmocka_unit_test(a_step_gives_a_bounded_number_of_rows),
		cmocka_unit_test(rows_are_cut_where_the_room_ends),
		cmocka_unit_test(a_result_has_room_for_a_bounded_number_of_states),
		cmocka_unit_test(a_chunk_leaves_the_last_token_for_a_step_with_room),
		cmocka_unit_test(a_last_token_waits_for_a_step_with_room),
		cmocka_unit_test(many_rows_make_more_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
