/* test_batch.c - the worker's sequences: what a step does to them, every kind of bad step, and steps with random
 * damage. */
#include "tests/support/stepper.h"

#include "common/mem.h"
#include "worker/batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB      100
#define BLOCKS     40
#define POSITIONS  66 /* 5 blocks */
#define TOKENS_MAX 48
#define SEQS_MAX   4
#define DIM        3
#define PART_ROWS  2

static const uint32_t ten[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

struct box {
	struct batch *b;
	struct stepper s;
	struct batch_run run;
};

static void box_open(struct box *x)
{
	const struct batch_limits limits = {.n_blocks = BLOCKS,
					    .positions = POSITIONS,
					    .batched_tokens_max = TOKENS_MAX,
					    .seqs_max = SEQS_MAX,
					    .dim = DIM,
					    .n_groups = 1,
					    .part_rows = PART_ROWS,
					    .extra_words = batch_extra_words(VOCAB, POSITIONS, PART_ROWS),
					    .env = {.vocab = VOCAB}};

	x->b = batch_new(&limits);
	stepper_init(&x->s);
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

static const uint32_t *run_u32s(const struct box *x, size_t at)
{
	return (const uint32_t *)(const void *)(x->run.input + at);
}

static const struct ksample *run_params(const struct box *x, uint32_t row)
{
	return (const struct ksample *)(const void *)(x->run.input + x->run.params) + row;
}

static void a_step_becomes_arrays(void **state)
{
	static const uint32_t stop[2] = {50, 51}, blocks_a[1] = {7}, blocks_b[2] = {3, 9};
	struct stepper_params p = stepper_greedy(), q = {.temperature = 0.5f,
							 .top_p = 0.9f,
							 .min_p = 0.1f,
							 .top_k = 5,
							 .seed = 1ull << 40,
							 .choice = 2,
							 .n_logprobs = 4,
							 .n_output_min = 3,
							 .n_stop = 2,
							 .stop_ids = stop};
	const uint32_t *u;
	struct box x;

	box_open(&x);
	stepper_add(&x.s, 11, ten, 10, 10, &p);
	stepper_add(&x.s, 2, ten, 10, 8, &q);
	stepper_grow(&x.s, 11, blocks_a, 1);
	stepper_grow(&x.s, 2, blocks_b, 2);
	stepper_run(&x.s, 11, 0, 4, false);
	stepper_run(&x.s, 2, 8, 2, true);
	box_take(&x);
	assert_int_equal(x.run.n_tokens, 6);
	assert_int_equal(x.run.n_seqs, 2);
	assert_int_equal(x.run.n_out, 1);
	assert_int_equal(x.run.blocks_max, 1);
	u = run_u32s(&x, x.run.token_ids);
	assert_int_equal(u[3], 4);
	assert_int_equal(u[4], 9);
	u = run_u32s(&x, x.run.positions);
	assert_int_equal(u[3], 3);
	assert_int_equal(u[5], 9);
	u = run_u32s(&x, x.run.slots);
	assert_int_equal(u[3], 7 * KBLOCK_LEN + 3);
	assert_int_equal(u[5], 3 * KBLOCK_LEN + 9);
	assert_int_equal(run_u32s(&x, x.run.seq_ix)[4], 1);
	assert_int_equal(run_u32s(&x, x.run.block_tables)[1], 3);
	assert_int_equal(run_u32s(&x, x.run.out_rows)[0], 5);
	assert_int_equal(x.run.out_slots[0], 2);
	assert_int_equal(run_params(&x, 0)->position, 10);
	assert_int_equal(run_params(&x, 0)->n_banned, 2); /* 2 tokens of output are there, 3 are wanted */
	assert_int_equal(run_params(&x, 0)->n_top, 3);
	assert_true(run_params(&x, 0)->want_logprob);
	assert_int_equal(x.run.extra[run_params(&x, 0)->banned_at + 1], 51);
	batch_append(x.b, &x.run, 0, 42);

	/* The drawn token runs next; the third output token may be a stop. */
	stepper_run(&x.s, 2, 10, 1, true);
	box_take(&x);
	assert_int_equal(run_u32s(&x, x.run.token_ids)[0], 42);
	assert_int_equal(run_params(&x, 0)->n_banned, 0);
	assert_int_equal(run_params(&x, 0)->position, 11);
	batch_append(x.b, &x.run, 0, UINT32_MAX);
	u = batch_tokens(x.b, 2, &x.run.n_tokens);
	assert_int_equal(x.run.n_tokens, 12);
	assert_int_equal(u[11], 0);

	/* A slot is taken again in the step that frees it. */
	stepper_remove(&x.s, 2);
	stepper_add(&x.s, 2, ten, 3, 1, &p);
	box_take(&x);
	batch_tokens(x.b, 2, &x.run.n_tokens);
	assert_int_equal(x.run.n_tokens, 3);
	assert_int_equal(batch_n_used(x.b), 2);
	batch_reset(x.b);
	assert_int_equal(batch_n_used(x.b), 0);
	assert_null(batch_tokens(x.b, 2, &x.run.n_tokens));
	box_close(&x);
}

/* Drawn rows first, then those of prompts' log-probabilities, then those that are pooled. */
static void wanted_rows_lie_in_groups(void **state)
{
	struct stepper_params draw = stepper_greedy(), score = stepper_greedy(), mean = stepper_greedy(), last = stepper_greedy();
	static const uint32_t want[] = {2, 4, 5, 6, 8, 9, 10, 14};
	struct box x;

	box_open(&x);
	score.n_prompt_logprobs = 3;
	score.n_prompt_known = 2;
	mean.kind = REQUEST_POOL_MEAN;
	last.kind = REQUEST_POOL_LAST;
	stepper_add(&x.s, 7, ten, 3, 3, &draw);
	stepper_add(&x.s, 5, ten, 6, 5, &score); /* five prompt tokens and an output token */
	stepper_add(&x.s, 1, ten, 4, 4, &mean);
	stepper_add(&x.s, 0, ten, 4, 4, &last);
	for (uint32_t i = 0; i < 8; i++)
		if (i == 7 || i == 5 || i <= 1) stepper_grow_range(&x.s, i, i, 1);
	stepper_run(&x.s, 7, 0, 3, true);  /* rows 0 to 2 */
	stepper_run(&x.s, 5, 0, 5, false); /* 3 to 7 */
	stepper_run(&x.s, 1, 0, 3, false); /* 8 to 10 */
	stepper_run(&x.s, 0, 0, 4, true);  /* 11 to 14 */
	box_take(&x);
	assert_int_equal(x.run.n_draw, 1);
	assert_int_equal(x.run.n_score, 3); /* of positions 2 to 4 */
	assert_int_equal(x.run.n_out, ARRAY_LEN(want));
	for (uint32_t i = 0; i < ARRAY_LEN(want); i++) assert_int_equal(run_u32s(&x, x.run.out_rows)[i], want[i]);
	assert_int_equal(x.run.n_scores, 1);
	assert_int_equal(x.run.scores[0].slot, 5);
	assert_int_equal(x.run.scores[0].start, 2);
	assert_int_equal(x.run.scores[0].n, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(run_params(&x, 1 + i)->is_given && run_params(&x, 1 + i)->want_logprob);
		assert_int_equal(run_params(&x, 1 + i)->given, ten[2 + i]);
		assert_int_equal(run_params(&x, 1 + i)->n_top, 2);
	}
	assert_int_equal(x.run.n_pools, 2);
	assert_int_equal(x.run.pools[0].row, 4);
	assert_int_equal(x.run.pools[0].n, 3);
	assert_false(x.run.pools[0].is_last);
	assert_int_equal(x.run.pools[1].row, 7);
	assert_int_equal(x.run.pools[1].n, 1);
	assert_true(x.run.pools[1].is_last);
	assert_int_equal(x.run.n_parts, 2); /* of PART_ROWS rows */
	assert_int_equal(x.run.parts[1].row, 2);
	assert_int_equal(x.run.parts[1].n, 2);

	/* What follows has nothing of the prompt to give. */
	stepper_run(&x.s, 5, 5, 1, true);
	box_take(&x);
	assert_int_equal(x.run.n_score, 0);
	assert_int_equal(x.run.n_draw, 1);
	box_close(&x);
}

static void states_are_added_up(void **state)
{
	static const float a[DIM] = {1, 2, 3}, c[DIM] = {3, 6, 4};
	struct stepper_params mean = stepper_greedy();
	float out[DIM];
	struct box x;

	box_open(&x);
	mean.kind = REQUEST_POOL_MEAN;
	stepper_add(&x.s, 1, ten, 2, 2, &mean);
	stepper_grow_range(&x.s, 1, 0, 1);
	stepper_run(&x.s, 1, 0, 1, false);
	box_take(&x);
	batch_pool_add(x.b, &x.run.pools[0], a);
	stepper_run(&x.s, 1, 1, 1, true);
	box_take(&x);
	batch_pool_add(x.b, &x.run.pools[0], c);
	batch_pool_result(x.b, &x.run.pools[0], out);
	assert_true(out[0] == 2 && out[1] == 4 && out[2] == 3.5f);
	/* A sequence in the same slot begins with nothing. */
	stepper_remove(&x.s, 1);
	stepper_add(&x.s, 1, ten, 1, 1, &mean);
	stepper_grow_range(&x.s, 1, 0, 1);
	stepper_run(&x.s, 1, 0, 1, true);
	box_take(&x);
	batch_pool_add(x.b, &x.run.pools[0], c);
	batch_pool_result(x.b, &x.run.pools[0], out);
	assert_memory_equal(out, c, sizeof(c));
	box_close(&x);
}

/* Long lists go in parts of their own; the words of a part fit what is planned for them. */
static void long_lists_make_more_parts(void **state)
{
	enum { N = LIMIT_BIAS };
	static uint32_t ids[N];
	static float values[N];
	struct stepper_params p = stepper_greedy();
	struct batch_limits limits = {.n_blocks = BLOCKS,
				      .positions = POSITIONS,
				      .batched_tokens_max = TOKENS_MAX,
				      .seqs_max = SEQS_MAX,
				      .dim = DIM,
					    .n_groups = 1,
				      .part_rows = SEQS_MAX,
				      .extra_words = 2 * 2 * N + 10,
				      .env = {.vocab = VOCAB}};
	struct box x;

	for (uint32_t i = 0; i < N; i++) values[i] = (float)(ids[i] = i % VOCAB);
	x.b = batch_new(&limits);
	stepper_init(&x.s);
	p.n_bias = N;
	p.bias_ids = ids;
	p.bias_values = values;
	for (uint32_t i = 0; i < SEQS_MAX; i++) {
		stepper_add(&x.s, i, ten, 1, 1, &p);
		stepper_grow_range(&x.s, i, i, 1);
		stepper_run(&x.s, i, 0, 1, true);
	}
	box_take(&x);
	assert_int_equal(x.run.n_parts, 2);
	for (uint32_t i = 0; i < SEQS_MAX; i++) {
		const struct batch_part *part = &x.run.parts[i / 2];

		assert_int_equal(part->n, 2);
		assert_true(part->n_extra <= limits.extra_words);
		assert_int_equal(run_params(&x, i)->bias_at, i % 2 * 2 * N);
		assert_int_equal(x.run.extra[part->extra_at + run_params(&x, i)->bias_at + 2 * 99], 99);
	}
	box_close(&x);
}

/* Before each bad step: slot 0 holds ten tokens and block 0, slot 1 the same and five blocks. */
typedef void bad_step(struct stepper *s, struct msg_step *m);

static void bad_removed(struct stepper *s, struct msg_step *m)
{
	stepper_remove(s, 5);
}

static void bad_removed_twice(struct stepper *s, struct msg_step *m)
{
	stepper_remove(s, 0);
	stepper_remove(s, 0);
}

static void bad_removed_range(struct stepper *s, struct msg_step *m)
{
	stepper_remove(s, UINT32_MAX);
}

static void add(struct stepper *s, uint32_t slot, uint32_t n, uint32_t n_prompt, struct stepper_params p)
{
	stepper_add(s, slot, ten, n, n_prompt, &p);
}

static void bad_added_used(struct stepper *s, struct msg_step *m)
{
	add(s, 0, 3, 3, stepper_greedy());
}

static void bad_added_range(struct stepper *s, struct msg_step *m)
{
	add(s, LIMIT_SEQS, 3, 3, stepper_greedy());
}

static void bad_added_empty(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 0, 0, stepper_greedy());
}

static void bad_added_long(struct stepper *s, struct msg_step *m)
{
	static const uint32_t many[POSITIONS + 1];
	struct stepper_params p = stepper_greedy();

	stepper_add(s, 5, many, POSITIONS + 1, 1, &p);
}

static void bad_prompt(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 3, 4, stepper_greedy());
}

static void bad_token(struct stepper *s, struct msg_step *m)
{
	static const uint32_t big[1] = {VOCAB};
	struct stepper_params p = stepper_greedy();

	stepper_add(s, 5, big, 1, 1, &p);
}

static void bad_stop(struct stepper *s, struct msg_step *m)
{
	static const uint32_t big[1] = {VOCAB};

	add(s, 5, 1, 1, (struct stepper_params){.top_p = 1, .n_stop = 1, .stop_ids = big});
}

static void bad_temperature(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 1, 1, (struct stepper_params){.top_p = 1, .temperature = NAN});
}

static void bad_top_p(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 1, 1, (struct stepper_params){.top_p = 0});
}

static void bad_min_p(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 1, 1, (struct stepper_params){.top_p = 1, .min_p = -0.1f});
}

static void bad_logprobs(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 1, 1, (struct stepper_params){.top_p = 1, .n_logprobs = 22});
}

static void bad_grown(struct stepper *s, struct msg_step *m)
{
	stepper_grow_range(s, 5, 0, 1);
}

static void bad_grown_twice(struct stepper *s, struct msg_step *m)
{
	stepper_grow_range(s, 0, 0, 1);
	stepper_grow_range(s, 0, 1, 1);
}

static void bad_grown_long(struct stepper *s, struct msg_step *m)
{
	stepper_grow_range(s, 1, 0, 1);
}

static void bad_block(struct stepper *s, struct msg_step *m)
{
	stepper_grow_range(s, 0, BLOCKS - 1, 2);
}

static void bad_run(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 5, 0, 1, false);
}

static void bad_run_twice(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 0, 0, 1, false);
	stepper_run(s, 0, 1, 1, false);
}

static void bad_run_removed(struct stepper *s, struct msg_step *m)
{
	stepper_remove(s, 0);
	stepper_run(s, 0, 0, 1, false);
}

static void bad_run_empty(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 0, 0, 0, false);
}

static void bad_run_long(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 0, 9, 2, false);
}

static void bad_run_wraps(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 0, UINT32_MAX, 2, false);
}

static void bad_run_table(struct stepper *s, struct msg_step *m)
{
	static const uint32_t many[20];
	struct stepper_params p = stepper_greedy();

	stepper_add(s, 5, many, 20, 20, &p);
	stepper_grow_range(s, 5, 0, 1);
	stepper_run(s, 5, 0, 17, false);
}

static void bad_run_early(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 0, 0, 9, true);
}

static void bad_run_full(struct stepper *s, struct msg_step *m)
{
	static const uint32_t many[POSITIONS];
	struct stepper_params p = stepper_greedy();

	stepper_add(s, 5, many, POSITIONS, 1, &p);
	stepper_grow_range(s, 5, 0, 5);
	stepper_run(s, 5, POSITIONS - 1, 1, true);
}

static void bad_run_batch(struct stepper *s, struct msg_step *m)
{
	static const uint32_t many[POSITIONS];
	struct stepper_params p = stepper_greedy();

	stepper_add(s, 5, many, 60, 60, &p);
	stepper_grow_range(s, 5, 0, 5);
	stepper_run(s, 5, 0, TOKENS_MAX + 1, false);
}

static void bad_run_seqs(struct stepper *s, struct msg_step *m)
{
	for (uint32_t i = 10; i < 11 + SEQS_MAX; i++) {
		add(s, i, 1, 1, stepper_greedy());
		stepper_grow_range(s, i, 0, 1);
		stepper_run(s, i, 0, 1, true);
	}
}

static void bad_columns(struct stepper *s, struct msg_step *m)
{
	stepper_run(s, 0, 0, 1, false);
	*m = *stepper_message(s);
	m->run_n.n = 0;
}

static void bad_counts(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 3, 3, stepper_greedy());
	*m = *stepper_message(s);
	m->added_tokens.n--;
}

static void bad_sample(struct stepper *s, struct msg_step *m)
{
	static const uint32_t two[1] = {2};

	stepper_run(s, 0, 9, 1, true);
	*m = *stepper_message(s);
	m->run_sample = view_of(two, 1);
}

static void bad_mean(struct stepper *s, struct msg_step *m)
{
	struct stepper_params p = stepper_greedy();

	p.kind = REQUEST_POOL_MEAN;
	add(s, 5, 3, 3, p);
	stepper_grow_range(s, 5, 0, 1);
	stepper_run(s, 5, 1, 2, true);
}

static void bad_extra_columns(struct stepper *s, struct msg_step *m)
{
	add(s, 5, 3, 3, stepper_greedy());
	*m = *stepper_message(s);
	m->added_n_grammar.n = 0;
}

static void bad_joined(struct stepper *s, struct msg_step *m)
{
	static const uint32_t more[1] = {1};

	add(s, 5, 3, 3, stepper_greedy());
	*m = *stepper_message(s);
	m->added_allowed_ids = view_of(more, 1);
}

static void bad_pooling(struct stepper *s, struct msg_step *m)
{
	struct stepper_params p = stepper_greedy();

	p.kind = REQUEST_POOL_MEAN;
	p.n_prompt_logprobs = 1; /* its rows would be wanted twice */
	add(s, 5, 3, 3, p);
}

static void bad_kind(struct stepper *s, struct msg_step *m)
{
	struct stepper_params p = stepper_greedy();

	p.kind = 3;
	add(s, 5, 3, 3, p);
}

static const struct {
	bad_step *make;
	const char *why; /* part of batch_why() */
} bad_rows[] = {
	{bad_removed, "removed slot"},
	{bad_removed_twice, "removed slot"},
	{bad_removed_range, "removed slot"},
	{bad_added_used, "in use already"},
	{bad_added_range, "out of range"},
	{bad_added_empty, "empty or too long"},
	{bad_added_long, "empty or too long"},
	{bad_prompt, "prompt"},
	{bad_token, "token is not in the vocabulary"},
	{bad_stop, "stop id"},
	{bad_temperature, "temperature"},
	{bad_top_p, "top_p"},
	{bad_min_p, "min_p"},
	{bad_logprobs, "log-probabilities"},
	{bad_grown, "grown slot"},
	{bad_grown_twice, "grows twice"},
	{bad_grown_long, "table becomes too long"},
	{bad_block, "not in the pool"},
	{bad_run, "not in use"},
	{bad_run_twice, "runs twice"},
	{bad_run_removed, "not in use"},
	{bad_run_empty, "no tokens"},
	{bad_run_long, "more than the slot"},
	{bad_run_wraps, "more than the slot"},
	{bad_run_table, "beyond its block table"},
	{bad_run_early, "before the last one"},
	{bad_run_full, "too long"},
	{bad_run_batch, "--max-num-batched-tokens"},
	{bad_run_seqs, "--max-num-seqs"},
	{bad_columns, "different lengths"},
	{bad_counts, "more elements than its column"},
	{bad_sample, "run_sample"},
	{bad_mean, "a mean does not go on"},
	{bad_extra_columns, "different lengths"},
	{bad_joined, "more elements than the lists"},
	{bad_kind, "no known kind"},
	{bad_pooling, "wants log-probabilities"},
};

static void bad_steps_change_nothing(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(bad_rows); i++) {
		struct stepper_params p = stepper_greedy();
		struct msg_step m = {0};
		struct box x;
		uint32_t n;

		box_open(&x);
		for (uint32_t slot = 0; slot < 2; slot++) {
			stepper_add(&x.s, slot, ten, 10, 10, &p);
			stepper_grow_range(&x.s, slot, 0, slot ? 5 : 1);
		}
		box_take(&x);
		bad_rows[i].make(&x.s, &m);
		if (m.run.n + m.added.n == 0) m = *stepper_message(&x.s);
		if (batch_take(x.b, &m, &x.run) != ST_INVALID) fail_msg("row %zu (%s) is accepted", i, bad_rows[i].why);
		if (!strstr(batch_why(x.b), bad_rows[i].why))
			fail_msg("row %zu: \"%s\" lacks \"%s\"", i, batch_why(x.b), bad_rows[i].why);
		assert_int_equal(batch_n_used(x.b), 2);
		batch_tokens(x.b, 0, &n);
		assert_int_equal(n, 10);

		/* And the batch works on. */
		stepper_next(&x.s);
		stepper_run(&x.s, 0, 0, 10, true);
		stepper_run(&x.s, 1, 0, 10, true);
		box_take(&x);
		assert_int_equal(x.run.n_out, 2);
		box_close(&x);
	}
}

/* ---- random damage ---- */

static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((rng >> 33) % n);
}

/* A step that is mostly right. */
static void random_step(struct stepper *s)
{
	static const uint32_t stop[3] = {1, 2, 3};
	static const float bias[3] = {1, -1, 50};
	static uint32_t tokens[POSITIONS];

	for (uint32_t i = 0; i < 1 + rnd(3); i++) {
		struct stepper_params p = {.temperature = (float)rnd(3) / 2,
					   .top_p = (float)(1 + rnd(4)) / 4,
					   .n_logprobs = rnd(23),
					   .n_stop = rnd(4),
					   .stop_ids = stop,
					   .n_output_min = rnd(9),
					   .kind = rnd(4) ? REQUEST_GENERATE : rnd(3),
					   .repetition = (float)rnd(3) / 2,
					   .presence = (float)rnd(3) - 1,
					   .n_bias = rnd(4),
					   .bias_ids = stop,
					   .bias_values = bias,
					   .n_allowed = rnd(4),
					   .allowed_ids = stop,
					   .n_prompt_logprobs = rnd(2) ? rnd(22) : 0,
					   .n_prompt_known = rnd(9)};
		uint32_t slot = rnd(6), n = rnd(POSITIONS);

		for (uint32_t k = 0; k < n; k++) tokens[k] = rnd(VOCAB);
		if (rnd(2)) stepper_remove(s, slot);
		if (rnd(2)) stepper_add(s, slot, tokens, n, 1 + rnd(n + 1), &p);
		if (rnd(2)) stepper_grow_range(s, slot, rnd(BLOCKS - 4), rnd(5));
		if (rnd(3)) stepper_run(s, slot, rnd(2) ? 0 : rnd(20), 1 + rnd(20), rnd(2));
	}
}

static void damage(struct stepper *s)
{
	static const uint32_t edges[] = {0,          1,     2,      0x7FFFFFFF, 0x80000000,
					 UINT32_MAX, VOCAB, BLOCKS, LIMIT_SEQS, 0x7FC00000};
	struct stepper_column *c = &s->cols[rnd(STEPPER_COLUMNS)];

	if (c->n == 0) return;
	switch (rnd(3)) {
	case 0:
		memcpy((char *)c->data + (size_t)rnd(c->n) * c->size, &edges[rnd(ARRAY_LEN(edges))], 4);
		break;
	case 1:
		c->n -= 1 + rnd(c->n);
		break;
	default:
		((uint8_t *)c->data)[rnd(c->n * c->size)] ^= (uint8_t)(1 << rnd(8));
	}
}

/* Rows, parts and lists lie within what was made for them. */
static void check_wanted(const struct box *x)
{
	static const float state[DIM] = {1, 2, 3};
	uint32_t row = 0;

	for (uint32_t k = 0; k < x->run.n_out; k++) assert_true(run_u32s(x, x->run.out_rows)[k] < x->run.n_tokens);
	for (uint32_t k = 0; k < x->run.n_parts; k++) {
		const struct batch_part *p = &x->run.parts[k];

		assert_int_equal(p->row, row);
		assert_true(p->n > 0 && p->n <= PART_ROWS && p->n_extra <= batch_extra_words(VOCAB, POSITIONS, PART_ROWS));
		for (; row < p->row + p->n; row++) {
			const struct ksample *s = run_params(x, row);

			assert_true(!s->has_mask || s->mask_at + (VOCAB + 31) / 32 <= p->n_extra);
			assert_true(!s->n_seen || s->seen_at + 2 * s->n_seen <= p->n_extra);
			assert_true(!s->n_bias || s->bias_at + 2 * s->n_bias <= p->n_extra);
			assert_true(!s->n_banned || s->banned_at + s->n_banned <= p->n_extra);
			assert_true(!s->is_given || s->given < VOCAB);
		}
	}
	assert_int_equal(row, x->run.n_draw + x->run.n_score);
	for (uint32_t k = 0; k < x->run.n_pools; k++) {
		const struct batch_pool *p = &x->run.pools[k];

		assert_true(p->row >= row && p->row + p->n <= x->run.n_out);
		for (uint32_t i = 0; i < p->n; i++) batch_pool_add(x->b, p, state);
	}
}

static void damaged_steps_never_break_it(void **state)
{
	uint32_t n_ok = 0, n_bad = 0;
	struct box x;

	rng = 20250101;
	box_open(&x);
	for (int i = 0; i < 200000; i++) {
		stepper_next(&x.s);
		random_step(&x.s);
		if (rnd(2)) damage(&x.s);
		if (batch_take(x.b, stepper_message(&x.s), &x.run) != ST_OK) {
			n_bad++;
			continue;
		}
		n_ok++;
		assert_true(x.run.n_tokens <= TOKENS_MAX && x.run.n_seqs <= SEQS_MAX && x.run.n_draw <= x.run.n_seqs &&
			    x.run.n_out <= x.run.n_tokens);
		for (uint32_t k = 0; k < x.run.n_tokens; k++) {
			assert_true(run_u32s(&x, x.run.token_ids)[k] < VOCAB);
			assert_true(run_u32s(&x, x.run.positions)[k] < POSITIONS);
			assert_true(run_u32s(&x, x.run.slots)[k] < BLOCKS * KBLOCK_LEN);
			assert_true(run_u32s(&x, x.run.seq_ix)[k] < x.run.n_seqs);
		}
		for (uint32_t k = 0; k < x.run.n_seqs * x.run.blocks_max; k++)
			assert_true(run_u32s(&x, x.run.block_tables)[k] < BLOCKS);
		for (uint32_t k = 0; k < x.run.n_draw; k++)
			batch_append(x.b, &x.run, k, rnd(2) ? rnd(2 * VOCAB) : UINT32_MAX);
		check_wanted(&x);
	}
	box_close(&x);
	assert_true(n_ok > 2000 && n_bad > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_becomes_arrays),
		cmocka_unit_test(wanted_rows_lie_in_groups),
		cmocka_unit_test(states_are_added_up),
		cmocka_unit_test(long_lists_make_more_parts),
		cmocka_unit_test(bad_steps_change_nothing),
		cmocka_unit_test(damaged_steps_never_break_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
