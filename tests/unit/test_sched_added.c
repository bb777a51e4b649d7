/* test_sched_added.c - what a step tells the workers of new sequences. */
#include "tests/support/corebox.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void lists_and_penalties_reach_the_workers(void **state)
{
	static const uint32_t ids[] = {7, 8, 9};
	static const float values[] = {1.5f, -2, 100};
	const struct msg_step *s;
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 20); /* which bounds the output too */
	m = corebox_request(&b, 1, 40, 3, 500);
	m.repetition_penalty = 1.25f;
	m.presence_penalty = 0.5f;
	m.frequency_penalty = -0.5f;
	m.bias_ids = view_of(ids, 2);
	m.bias_values = view_of(values, 2);
	m.allowed_ids = view_of(ids, 3);
	m.n_prompt_logprobs = 5;
	m.n_prompt_known = 2;
	m.grammar = view_text("abc");
	corebox_on_submit(&b, &m);
	m = corebox_request(&b, 2, 60, 2, 6); /* with nothing of it */
	corebox_on_submit(&b, &m);
	m = corebox_request(&b, 3, 80, 2, 6);
	m.bias_ids = view_of(ids + 2, 1);
	m.bias_values = view_of(values + 2, 1);
	m.grammar = view_text("de");
	corebox_on_submit(&b, &m);
	core_step(b.core, b.now);
	s = &b.steps[0]->step;
	assert_int_equal(s->added.n, 3);
	assert_true(col_f32(s->added_repetition, 0) == 1.25f && col_f32(s->added_repetition, 1) == 1);
	assert_true(col_f32(s->added_presence, 0) == 0.5f && col_f32(s->added_presence, 1) == 0);
	assert_true(col_f32(s->added_frequency, 0) == -0.5f && col_f32(s->added_frequency, 1) == 0);
	assert_int_equal(col_u32(s->added_kind, 0), REQUEST_GENERATE);
	assert_int_equal(col_u32(s->added_n_output_max, 0), 17);
	assert_int_equal(col_u32(s->added_n_output_max, 1), 6);
	assert_int_equal(col_u32(s->added_n_bias, 0), 2);
	assert_int_equal(col_u32(s->added_n_bias, 1), 0);
	assert_int_equal(col_u32(s->added_n_bias, 2), 1);
	assert_int_equal(s->added_bias_ids.n, 3);
	assert_int_equal(s->added_bias_values.n, 3);
	assert_int_equal(col_u32(s->added_bias_ids, 1), 8);
	assert_int_equal(col_u32(s->added_bias_ids, 2), 9);
	assert_true(col_f32(s->added_bias_values, 1) == -2 && col_f32(s->added_bias_values, 2) == 100);
	assert_int_equal(col_u32(s->added_n_allowed, 0), 3);
	assert_int_equal(col_u32(s->added_n_allowed, 2), 0);
	assert_int_equal(s->added_allowed_ids.n, 3);
	assert_int_equal(col_u32(s->added_allowed_ids, 2), 9);
	assert_int_equal(col_u32(s->added_n_prompt_logprobs, 0), 5);
	assert_int_equal(col_u32(s->added_n_prompt_logprobs, 1), 0);
	assert_int_equal(col_u32(s->added_n_prompt_known, 0), 2);
	assert_int_equal(col_u32(s->added_n_prompt_known, 1), 2); /* all: none were asked for */
	assert_int_equal(col_u32(s->added_n_grammar, 0), 3);
	assert_int_equal(col_u32(s->added_n_grammar, 1), 0);
	assert_int_equal(s->added_grammars.n, 5);
	assert_memory_equal(s->added_grammars.data, "abcde", 5);
	s = &b.steps[1]->step;
	assert_int_equal(s->added_kind.n + s->added_n_output_max.n + s->added_repetition.n + s->added_presence.n +
				 s->added_frequency.n + s->added_n_bias.n + s->added_bias_ids.n + s->added_bias_values.n +
				 s->added_n_allowed.n + s->added_allowed_ids.n + s->added_n_prompt_logprobs.n +
				 s->added_n_prompt_known.n + s->added_n_grammar.n + s->added_grammars.n,
			 0);
	/* A replay brings all of it again. */
	corebox_lost(&b);
	corebox_ready(&b, 8, 20);
	core_step(b.core, b.now);
	s = &b.steps[0]->step;
	assert_int_equal(s->added.n, 3);
	assert_int_equal(s->added_bias_ids.n, 3);
	assert_int_equal(s->added_allowed_ids.n, 3);
	assert_memory_equal(s->added_grammars.data, "abcde", 5);
	corebox_release(&b);
}

/* The lists of new sequences count as their tokens do. */
static void a_step_takes_a_bounded_number_of_lists(void **state)
{
	enum { N = LIMIT_ALLOWED };
	uint32_t *ids = mem_array(uint32_t, N);
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 64, 100);
	for (i = 1; i <= 5; i++) {
		struct msg_submit m = corebox_request(&b, i, 9, 4, 5);

		m.allowed_ids = view_of(ids, N);
		corebox_on_submit(&b, &m);
	}
	core_step(b.core, b.now);
	assert_int_equal(b.steps[0]->step.added.n, 3);
	assert_int_equal(b.steps[1]->step.added.n, 2);
	free(ids);
	corebox_release(&b);
}

static void a_step_takes_a_bounded_number_of_biases(void **state)
{
	static const uint32_t ids[LIMIT_BIAS];
	static const float values[LIMIT_BIAS];
	struct core_config cfg = corebox_config();
	const uint32_t n_first = (uint32_t)(4 * MIB / (128 + 4 * (4 + 1 + 2 * LIMIT_BIAS)));
	struct corebox b;
	uint32_t i;

	cfg.seqs_max = 300;
	cfg.batched_tokens_max = 8192;
	cfg.requests_max = 300;
	corebox_start(&b, &cfg, 400, 100);
	b.quiet = true;
	for (i = 1; i <= 2 * n_first - 9; i++) {
		struct msg_submit m = corebox_request(&b, i, 9, 4, 5);

		m.bias_ids = view_of(ids, LIMIT_BIAS);
		m.bias_values = view_of(values, LIMIT_BIAS);
		corebox_on_submit(&b, &m);
	}
	core_step(b.core, b.now);
	assert_int_equal(b.steps[0]->step.added.n, n_first);
	assert_int_equal(b.steps[1]->step.added.n, n_first - 9);
	corebox_release(&b);
}

static void all_parameters_reach_the_workers(void **state)
{
	static const uint32_t stops[] = {7, 8, 9};
	const struct msg_step *s;
	struct corebox b;
	struct msg_submit m;

	corebox_start(&b, NULL, 8, 400);
	m = corebox_request(&b, 1, 40, 3, 5);
	m.n_output_min = 2;
	m.stop_ids = view_of(stops, 2);
	m.temperature = 0.5f;
	m.top_p = 0.25f;
	m.top_k = 11;
	m.min_p = 0.125f;
	m.seed = 0x123456789abcdef0ull;
	m.choice = 3;
	m.n_logprobs = 4;
	core_on_submit(b.core, &m, b.now);
	m = corebox_request(&b, 2, 60, 2, 6);
	m.stop_ids = view_of(stops + 2, 1);
	m.seed = 77;
	m.temperature = 0;
	core_on_submit(b.core, &m, b.now);
	core_step(b.core, b.now);
	assert_int_equal(b.n_steps, 2);
	s = &b.steps[0]->step;
	assert_int_equal(s->epoch, COREBOX_EPOCH);
	assert_int_equal(s->number, 1);
	assert_int_equal(s->added.n, 2);
	assert_int_equal(s->removed.n, 0);
	assert_int_equal(s->added_tokens.n, 5);
	assert_int_equal(col_u32(s->added_tokens, 0), 40);
	assert_int_equal(col_u32(s->added_tokens, 2), 42);
	assert_int_equal(col_u32(s->added_tokens, 3), 60);
	assert_int_equal(col_u32(s->added_tokens, 4), 61);
	assert_int_equal(col_u32(s->added_n_prompt, 0), 3);
	assert_int_equal(col_u32(s->added_n_prompt, 1), 2);
	assert_int_equal(col_u32(s->added_n_output_min, 0), 2);
	assert_int_equal(col_u32(s->added_n_output_min, 1), 0);
	assert_int_equal(col_u32(s->added_n_stop, 0), 2);
	assert_int_equal(col_u32(s->added_n_stop, 1), 1);
	assert_int_equal(s->added_stop_ids.n, 3);
	assert_int_equal(col_u32(s->added_stop_ids, 0), 7);
	assert_int_equal(col_u32(s->added_stop_ids, 1), 8);
	assert_int_equal(col_u32(s->added_stop_ids, 2), 9);
	assert_true(col_f32(s->added_temperature, 0) == 0.5f && col_f32(s->added_temperature, 1) == 0);
	assert_true(col_f32(s->added_top_p, 0) == 0.25f && col_f32(s->added_top_p, 1) == 1);
	assert_true(col_f32(s->added_min_p, 0) == 0.125f && col_f32(s->added_min_p, 1) == 0);
	assert_int_equal(col_u32(s->added_top_k, 0), 11);
	assert_int_equal(col_u32(s->added_top_k, 1), 0);
	assert_true(col_u64(s->added_seed, 0) == 0x123456789abcdef0ull);
	assert_true(col_u64(s->added_seed, 1) == 77);
	assert_int_equal(col_u32(s->added_choice, 0), 3);
	assert_int_equal(col_u32(s->added_choice, 1), 0);
	assert_int_equal(col_u32(s->added_n_logprobs, 0), 4);
	assert_int_equal(col_u32(s->added_n_logprobs, 1), 0);
	/* The second step repeats nothing of it. */
	s = &b.steps[1]->step;
	assert_int_equal(s->added.n + s->added_n_tokens.n + s->added_tokens.n + s->added_n_prompt.n + s->added_n_output_min.n +
				 s->added_n_stop.n + s->added_stop_ids.n + s->added_temperature.n + s->added_top_p.n +
				 s->added_top_k.n + s->added_min_p.n + s->added_seed.n + s->added_choice.n + s->added_n_logprobs.n +
				 s->grown.n + s->grown_n.n + s->grown_blocks.n + s->removed.n,
			 0);
	assert_int_equal(s->run.n, 2);
	assert_int_equal(s->run_start.n, 2);
	assert_int_equal(s->run_n.n, 2);
	assert_int_equal(s->run_sample.n, 2);
	corebox_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_parameters_reach_the_workers),
		cmocka_unit_test(lists_and_penalties_reach_the_workers),
		cmocka_unit_test(a_step_takes_a_bounded_number_of_lists),
		cmocka_unit_test(a_step_takes_a_bounded_number_of_biases),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
