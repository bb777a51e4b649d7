/* test_batch_states.c - recurrent states: each running sequence has one, goes on where it is or begins anew, and gives
 * it back. */
#include "tests/support/stepper.h"
#include "worker/batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB     20
#define POSITIONS 40
#define SEQS_MAX  3

static const uint32_t tokens[20] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0};

struct box {
	struct batch *b;
	struct stepper s;
	struct batch_run run;
};

static void box_open_groups(struct box *x, uint32_t n_states, uint32_t n_groups)
{
	const struct batch_limits limits = {.n_blocks = 100,
					    .positions = POSITIONS,
					    .batched_tokens_max = 64,
					    .seqs_max = SEQS_MAX,
					    .dim = 2,
					    .n_states = n_states,
					    .n_groups = n_groups,
					    .part_rows = 2,
					    .extra_words = batch_extra_words(VOCAB, POSITIONS, 2),
					    .env = {.vocab = VOCAB}};

	x->b = batch_new(&limits);
	stepper_init(&x->s);
}

static void box_open(struct box *x, uint32_t n_states)
{
	box_open_groups(x, n_states, 1);
}

static void box_close(struct box *x)
{
	batch_free(x->b);
	stepper_release(&x->s);
}

static void box_take(struct box *x)
{
	if (batch_take(x->b, stepper_message(&x->s), &x->run) != ST_OK) fail_msg("%s", batch_why(x->b));
	stepper_next(&x->s);
}

static void box_refused(struct box *x, const char *why)
{
	assert_int_equal(batch_take(x->b, stepper_message(&x->s), &x->run), ST_INVALID);
	if (!strstr(batch_why(x->b), why)) fail_msg("\"%s\" lacks \"%s\"", batch_why(x->b), why);
	stepper_next(&x->s);
}

static void box_add(struct box *x, uint32_t slot)
{
	struct stepper_params p = stepper_greedy();

	stepper_add(&x->s, slot, tokens, 20, 20, &p);
	stepper_grow_range(&x->s, slot, slot % 7 * 3, 3);
}

static uint32_t box_state(const struct box *x, uint32_t ix)
{
	return ((const uint32_t *)(const void *)(x->run.input + x->run.states))[ix];
}

static uint32_t box_start(const struct box *x, uint32_t ix)
{
	return ((const uint32_t *)(const void *)(x->run.input + x->run.seq_starts))[ix];
}

static void sequences_keep_their_states(void **state)
{
	struct box x;
	uint32_t first, second;

	box_open(&x, SEQS_MAX);
	box_add(&x, 4000); /* numbers of slots and of states have nothing to do with each other */
	box_add(&x, 1);
	stepper_run(&x.s, 4000, 0, 5, false);
	stepper_run(&x.s, 1, 0, 7, false);
	box_take(&x);
	first = box_state(&x, 0);
	second = box_state(&x, 1);
	assert_int_equal(first, 0); /* the lowest first */
	assert_int_equal(second, 1);
	assert_int_equal(box_start(&x, 0), 0);
	assert_int_equal(box_start(&x, 1), 5);
	assert_int_equal(box_start(&x, 2), 12);
	stepper_run(&x.s, 1, 7, 13, true);
	stepper_run(&x.s, 4000, 5, 1, false);
	box_take(&x);
	assert_int_equal(box_state(&x, 0), second);
	assert_int_equal(box_state(&x, 1), first);
	assert_int_equal(box_start(&x, 1), 13);
	/* What is removed gives its state to the next. */
	stepper_remove(&x.s, 4000);
	box_add(&x, 2);
	stepper_run(&x.s, 2, 0, 20, true);
	box_take(&x);
	assert_int_equal(box_state(&x, 0), first);
	box_close(&x);
}

static void runs_go_on_or_begin_anew(void **state)
{
	struct box x;

	box_open(&x, SEQS_MAX);
	box_add(&x, 1);
	stepper_run(&x.s, 1, 3, 2, false); /* as if a prefix were in the cache */
	box_refused(&x, "where the sequence's state is");
	box_add(&x, 1);
	stepper_run(&x.s, 1, 0, 5, false);
	box_take(&x);
	stepper_run(&x.s, 1, 4, 2, false);
	box_refused(&x, "where the sequence's state is");
	stepper_run(&x.s, 1, 6, 2, false);
	box_refused(&x, "where the sequence's state is");
	stepper_run(&x.s, 1, 5, 2, false); /* the refused ones changed nothing */
	box_take(&x);
	stepper_run(&x.s, 1, 0, 4, false);
	box_take(&x);
	stepper_run(&x.s, 1, 4, 4, false);
	box_take(&x);
	/* A slot that is used again has seen nothing. */
	stepper_remove(&x.s, 1);
	box_add(&x, 1);
	stepper_run(&x.s, 1, 8, 2, false);
	box_refused(&x, "where the sequence's state is");
	box_close(&x);
}

static void there_are_no_more_states_than_planned(void **state)
{
	struct box x;

	box_open(&x, SEQS_MAX);
	for (uint32_t i = 0; i < SEQS_MAX + 1; i++) box_add(&x, i);
	box_take(&x);
	for (uint32_t i = 0; i < SEQS_MAX; i++) stepper_run(&x.s, i, 0, 1, false);
	box_take(&x);
	stepper_run(&x.s, SEQS_MAX, 0, 1, false);
	box_refused(&x, "more sequences have a state");
	stepper_remove(&x.s, 1);
	stepper_run(&x.s, SEQS_MAX, 0, 1, false);
	box_take(&x);
	assert_int_equal(box_state(&x, 0), 1);
	batch_reset(x.b);
	for (uint32_t i = 0; i < SEQS_MAX; i++) {
		box_add(&x, i);
		stepper_run(&x.s, i, 0, 1, false);
	}
	box_take(&x);
	assert_int_not_equal(box_state(&x, 0), box_state(&x, 1));
	assert_int_not_equal(box_state(&x, 1), box_state(&x, 2));
	assert_int_not_equal(box_state(&x, 2), box_state(&x, 0));
	box_close(&x);
}

static void other_models_begin_where_they_like(void **state)
{
	struct box x;

	box_open(&x, 0);
	box_add(&x, 1);
	stepper_run(&x.s, 1, 3, 2, false);
	box_take(&x);
	stepper_run(&x.s, 1, 3, 2, false);
	box_take(&x);
	assert_int_equal(box_state(&x, 0), 0);
	box_close(&x);
}

static const uint32_t *box_u32s(const struct box *x, size_t at)
{
	return (const void *)(x->run.input + at);
}

static void groups_have_tables_of_their_own(void **state)
{
	static const uint32_t full[] = {5, 6}, windowed[] = {7, 8, 9};
	struct stepper_params p = stepper_greedy();
	const uint32_t *tables, *slots;
	struct box x;

	box_open_groups(&x, 0, 2);
	stepper_add(&x.s, 3, tokens, 20, 20, &p);
	stepper_grow_group(&x.s, 3, 0, full, 2);
	stepper_run(&x.s, 3, 0, 20, false);
	box_refused(&x, "beyond its block table"); /* of the second group */
	stepper_add(&x.s, 3, tokens, 20, 20, &p);
	stepper_grow_group(&x.s, 3, 2, full, 2);
	box_refused(&x, "a KV group");
	stepper_add(&x.s, 3, tokens, 20, 20, &p);
	stepper_grow_group(&x.s, 3, 1, full, 1);
	stepper_grow_group(&x.s, 3, 1, full, 1);
	box_refused(&x, "grows twice");

	stepper_add(&x.s, 3, tokens, 20, 20, &p);
	stepper_grow_group(&x.s, 3, 1, windowed, 3);
	stepper_grow_group(&x.s, 3, 0, full, 2);
	stepper_add(&x.s, 4, tokens, 2, 2, &p);
	stepper_grow_group(&x.s, 4, 0, full + 1, 1);
	stepper_grow_group(&x.s, 4, 1, windowed + 2, 1);
	stepper_run(&x.s, 4, 1, 1, false);
	stepper_run(&x.s, 3, 15, 3, false);
	box_take(&x);
	tables = box_u32s(&x, x.run.block_tables);
	slots = box_u32s(&x, x.run.slots);
	assert_int_equal(x.run.blocks_max, 2);
	assert_memory_equal(tables, ((uint32_t[]){6, 0, 5, 6, 9, 0, 7, 8}), 8 * sizeof(*tables));
	assert_memory_equal(slots,
			    ((uint32_t[]){6 * 16 + 1, 5 * 16 + 15, 6 * 16, 6 * 16 + 1, 9 * 16 + 1, 7 * 16 + 15, 8 * 16,
					  8 * 16 + 1}),
			    8 * sizeof(*slots));
	box_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sequences_keep_their_states),
		cmocka_unit_test(runs_go_on_or_begin_anew),
		cmocka_unit_test(there_are_no_more_states_than_planned),
		cmocka_unit_test(other_models_begin_where_they_like),
		cmocka_unit_test(groups_have_tables_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
