/* test_sched_window.c - layers with a window: their blocks are given back behind it, found again in the prefix cache,
 * and never missed. The box checks that each step finds what it reads; the numbers here say that nothing is kept too
 * long. */
#include "tests/support/corebox.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* 8 sequences, 16 tokens a step, two steps in flight: a windowed group holds (window - 1 + 32) / 16 + 2 blocks. */
static void start(struct corebox *b, struct core_kv kv, uint32_t n_blocks, uint32_t model_len_max)
{
	struct core_config cfg = corebox_config();

	cfg.batched_tokens_max = 16;
	corebox_init(b, &cfg);
	b->groups = kv;
	corebox_hello(b, 0, 0);
	corebox_ready(b, n_blocks, model_len_max);
	corebox_step(b);
	corebox_skip(b);
}

static void each_group_has_a_table_and_a_window_gives_back(void **state)
{
	struct corebox b;

	start(&b, (struct core_kv){.n_full = 1, .n_windowed = 1, .window = 16}, 20, 200);
	corebox_submit(&b, 1, 10, 100, 2);
	corebox_step(&b);
	/* 7 blocks of the full group; (15 + 32) / 16 + 2 = 4 of the windowed one, which will do for ever. */
	corebox_expect(&b, "step 1 add[0 100/100] grow[0.0:0,1,2,3,4,5,6 0.1:7,8,9,10] run[0 0+16]\n"
			   "step 2 run[0 16+16]\n"
			   "results 0.0 1#1@0[]\n");
	assert_int_equal(corebox_stats(&b).blocks_used, 11);
	corebox_answer(&b); /* position 16 sees from 1 on: nothing is behind yet */
	assert_int_equal(corebox_stats(&b).blocks_used, 11);
	corebox_step(&b);
	corebox_answer(&b); /* position 32 sees from 17 on */
	assert_int_equal(corebox_stats(&b).blocks_used, 10);
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void a_long_prompt_needs_no_more_than_its_windows(void **state)
{
	struct corebox b;
	uint64_t most = 0;

	start(&b, (struct core_kv){.n_windowed = 2, .window = 20}, 10, 4000);
	corebox_submit(&b, 1, 10, 3000, 20); /* 188 blocks a group if nothing were given back; (19 + 32) / 16 + 2 = 5 */
	for (int i = 0; i < 300 && !core_is_idle(b.core); i++) {
		corebox_step(&b);
		if (corebox_stats(&b).blocks_used > most) most = corebox_stats(&b).blocks_used;
		if (b.n_steps) corebox_answer(&b);
	}
	assert_true(core_is_idle(b.core));
	assert_int_equal(most, 10);
	assert_int_equal(corebox_stats(&b).generation_tokens, 20);
	assert_int_equal(corebox_stats(&b).preemptions, 0);
	corebox_release(&b);
}

static void nobody_else_gets_what_a_begun_prompt_will_need(void **state)
{
	struct corebox b;

	start(&b, (struct core_kv){.n_windowed = 1, .window = 16}, 6, 1000);
	corebox_submit(&b, 1, 10, 400, 2);
	corebox_step(&b);
	assert_int_equal(corebox_stats(&b).blocks_used, 4);
	corebox_submit(&b, 2, 2000, 60, 2); /* wants 4 */
	for (int i = 0; i < 20; i++) {
		corebox_answer(&b);
		corebox_step(&b);
		assert_int_equal(corebox_stats(&b).n_running, 1); /* also while the first holds less than it will */
	}
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).preemptions, 0);
	corebox_release(&b);
}

static void a_prefix_needs_its_window_only(void **state)
{
	struct corebox b;

	start(&b, (struct core_kv){.n_full = 1, .n_windowed = 1, .window = 16}, 40, 400);
	corebox_submit(&b, 1, 10, 97, 1);
	corebox_run(&b);
	corebox_skip(&b);
	corebox_submit(&b, 2, 10, 97, 1); /* 96 tokens of 6 blocks; the next one sees from 81 on: one windowed block */
	corebox_step(&b);
	assert_int_equal(corebox_stats(&b).prefix_hits, 96);
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void a_prefix_ends_where_its_window_was_evicted(void **state)
{
	struct corebox b;

	/* 6 + 4 blocks for the first; the second one's 9 + 4 take the free ones, and then the oldest cached: the
	 * first's windowed ones. */
	start(&b, (struct core_kv){.n_full = 1, .n_windowed = 1, .window = 16}, 14, 200);
	corebox_submit(&b, 1, 10, 96, 1);
	corebox_run(&b);
	corebox_submit(&b, 2, 1000, 110, 1);
	corebox_run(&b);
	assert_int_equal(corebox_stats(&b).prefix_hits, 0);
	corebox_submit(&b, 3, 10, 97, 1);
	corebox_run(&b); /* the box would have seen a read of something else */
	assert_true(corebox_stats(&b).prefix_hits < 96);
	assert_true(core_is_idle(b.core));
	corebox_release(&b);
}

static void two_readers_of_a_window_leave_enough_for_both(void **state)
{
	struct corebox b;

	start(&b, (struct core_kv){.n_full = 1, .n_windowed = 2, .window = 30}, 60, 600);
	corebox_submit(&b, 1, 10, 100, 1);
	corebox_run(&b);
	for (uint64_t i = 2; i <= 5; i++) corebox_submit(&b, i, 10, 150, 8);
	corebox_run(&b);
	assert_true(core_is_idle(b.core));
	assert_int_equal(corebox_stats(&b).generation_tokens, 1 + 4 * 8);
	assert_true(corebox_stats(&b).prefix_hits > 0);
	corebox_release(&b);
}

static void state_beside_the_blocks_means_no_prefix_cache(void **state)
{
	struct corebox b;

	start(&b, (struct core_kv){.n_full = 1, .recurrent = true}, 40, 400);
	for (uint64_t i = 1; i <= 2; i++) {
		corebox_submit(&b, i, 10, 97, 1);
		corebox_run(&b);
	}
	assert_int_equal(corebox_stats(&b).prefix_hits, 0);
	assert_int_equal(corebox_stats(&b).blocks_cached, 0);
	corebox_release(&b);
}

/* Tokens of one request at most, by the size of the pool. */
static void the_pool_says_how_long_a_request_may_be(void **state)
{
	static const struct {
		struct core_kv kv;
		uint32_t n_blocks, len;
	} rows[] = {
		{{.n_full = 1}, 10, 160},
		{{.n_full = 2}, 11, 80},
		{{.n_full = 1, .n_windowed = 1, .window = 16},
		 7,
		 48}, /* less than the 4 that a window takes: two alike */
		{{.n_full = 1, .n_windowed = 1, .window = 16}, 8, 64},
		{{.n_full = 1, .n_windowed = 1, .window = 16}, 10, 96}, /* 4 and 6 */
		{{.n_full = 1, .n_windowed = 3, .window = 16}, 20, 128},
		{{.n_windowed = 1, .window = 16}, 3, 48},
		{{.n_windowed = 1, .window = 16}, 4, 1000}, /* the model's own length */
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct corebox b;

		start(&b, rows[i].kv, rows[i].n_blocks, 1000);
		corebox_submit(&b, 1, 10, rows[i].len - 1, 5); /* one more token fits */
		corebox_submit(&b, 2, 10, rows[i].len, 5);
		corebox_run(&b);
		assert_int_equal(corebox_stats(&b).finished, 1);
		assert_int_equal(corebox_stats(&b).refused, 1);
		assert_int_equal(corebox_stats(&b).generation_tokens, 1);
		corebox_release(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_group_has_a_table_and_a_window_gives_back),
		cmocka_unit_test(a_long_prompt_needs_no_more_than_its_windows),
		cmocka_unit_test(nobody_else_gets_what_a_begun_prompt_will_need),
		cmocka_unit_test(a_prefix_needs_its_window_only),
		cmocka_unit_test(a_prefix_ends_where_its_window_was_evicted),
		cmocka_unit_test(two_readers_of_a_window_leave_enough_for_both),
		cmocka_unit_test(state_beside_the_blocks_means_no_prefix_cache),
		cmocka_unit_test(the_pool_says_how_long_a_request_may_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
