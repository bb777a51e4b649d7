/* test_prompt_rows.c - what the engine gives of prompts: log-probabilities of their tokens and pooled hidden states, the same bits
 * however the prompt is cut, and what they are made of. */
#include "tests/support/stepper.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"
#include "worker/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT     70
#define SEQ_BLOCKS 5
#define BATCH_MAX  128
#define TOP        4 /* entries beside the token itself */
#define DIM_MAX    1024

struct rig {
	struct engine *e;
	struct stepper s;
	uint32_t prompt[PROMPT], dim;
};

/* seqs_max decides whether the rows of a whole prompt have room of their own in the last layer. */
static void rig_open(struct rig *r, uint32_t seqs_max, bool null_device)
{
	struct errbuf err = {{0}};
	struct engine_opts o;
	struct tiny_llama t;
	char *path = test_file_temp("tiny.gguf");

	tiny_llama_init(&t);
	t.mat_type = GGTYPE_Q4_1;
	t.layers = 3;
	tiny_llama_save(&t, path);
	memset(r, 0, sizeof(*r));
	engine_opts_init(&o);
	o.model = path;
	o.n_threads = 2;
	o.batched_tokens_max = BATCH_MAX;
	o.seqs_max = seqs_max;
	o.null_device = null_device;
	if (engine_load(&r->e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	if (engine_kv_init(r->e, 4 * SEQ_BLOCKS, &err) != ST_OK) fail_msg("%s", err.text);
	stepper_init(&r->s);
	r->dim = engine_spec(r->e)->dim;
	assert_true(r->dim <= DIM_MAX);
	for (uint32_t i = 0; i < PROMPT; i++) r->prompt[i] = (i * i * 31 + 7 * i + 3) % engine_spec(r->e)->n_tokens;
	free(path);
}

static void rig_close(struct rig *r)
{
	engine_free(r->e);
	stepper_release(&r->s);
}

static void rig_step(struct rig *r, struct msg_step_result *out)
{
	if (engine_step(r->e, stepper_message(&r->s), out) != ST_OK) fail_msg("%s", engine_why(r->e));
	stepper_next(&r->s);
}

/* A neighbour in slot 1 that runs `at` of its tokens, so that rows of two sequences are in one step. */
static void rig_add_neighbour(struct rig *r, uint32_t kind)
{
	struct stepper_params p = stepper_greedy();

	p.kind = kind;
	p.n_prompt_logprobs = kind == REQUEST_GENERATE ? 3 : 0;
	stepper_add(&r->s, 1, r->prompt + 5, 40, 40, &p);
	stepper_grow_range(&r->s, 1, 2 * SEQ_BLOCKS, 3);
}

/* ---- log-probabilities ---- */

struct rows {
	uint32_t n; /* positions [1, n) are there */
	uint32_t ranks[PROMPT], ids[PROMPT][1 + TOP];
	float logprobs[PROMPT][1 + TOP];
};

/* Takes slot 0's rows: each position once, in order. */
static void rows_take(struct rows *rows, const struct msg_step_result *m)
{
	uint32_t at = 0, top_at = 0;

	for (uint32_t i = 0; i < m->prompt_slots.n; i++) {
		uint32_t start = col_u32(m->prompt_starts, i);

		for (uint32_t k = 0; k < col_u32(m->n_prompt_tokens, i); k++, at++) {
			uint32_t n_top = col_u32(m->prompt_n_top, at), p = start + k;

			if (col_u32(m->prompt_slots, i) == 0) {
				assert_int_equal(p, rows->n);
				assert_int_equal(n_top, 1 + TOP);
				rows->ranks[p] = col_u32(m->prompt_ranks, at);
				for (uint32_t t = 0; t < n_top; t++) {
					rows->ids[p][t] = col_u32(m->prompt_top_ids, top_at + t);
					rows->logprobs[p][t] = col_f32(m->prompt_top_logprobs, top_at + t);
				}
				rows->n++;
			}
			top_at += n_top;
		}
	}
	assert_int_equal(at, m->prompt_ranks.n);
	assert_int_equal(top_at, m->prompt_top_ids.n);
}

static struct stepper_params rows_params(uint32_t known)
{
	struct stepper_params p = stepper_greedy();

	p.n_prompt_logprobs = 1 + TOP;
	p.n_prompt_known = known;
	return p;
}

/* The whole prompt in chunks; rows from `known` on are wanted. */
static struct rows rows_run(struct rig *r, uint32_t chunk, uint32_t known, bool neighbour)
{
	struct stepper_params p = rows_params(known);
	struct rows rows = {.n = max_u32(1, known)};
	struct msg_step_result m;

	stepper_add(&r->s, 0, r->prompt, PROMPT, PROMPT, &p);
	stepper_grow_range(&r->s, 0, 0, SEQ_BLOCKS);
	if (neighbour) rig_add_neighbour(r, REQUEST_GENERATE);
	for (uint32_t at = 0, n; at < PROMPT; at += n) {
		n = min_u32(chunk, PROMPT - at);
		if (neighbour && at == 0) stepper_run(&r->s, 1, 0, 40, true);
		stepper_run(&r->s, 0, at, n, at + n == PROMPT);
		if (neighbour && at > 0) stepper_run(&r->s, 1, 39 + at / chunk, 1, true);
		rig_step(r, &m);
		rows_take(&rows, &m);
	}
	engine_reset(r->e);
	assert_int_equal(rows.n, PROMPT);
	return rows;
}

static void rows_expect_same(const struct rows *a, const struct rows *b, uint32_t from, const char *what, uint32_t number)
{
	for (uint32_t p = from; p < PROMPT; p++)
		if (a->ranks[p] != b->ranks[p] || memcmp(a->ids[p], b->ids[p], sizeof(a->ids[p])) != 0 ||
		    memcmp(a->logprobs[p], b->logprobs[p], sizeof(a->logprobs[p])) != 0)
			fail_msg("%s %u: position %u differs", what, number, p);
}

static void log_probabilities_of_a_prompt_are_the_same_every_way(void **state)
{
	static const uint32_t chunks[] = {1, 3, 16, 17, 69};
	struct rows want, got;
	struct rig r;

	rig_open(&r, 100, false); /* room for the rows of the whole prompt */
	want = rows_run(&r, PROMPT, 0, false);
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < ARRAY_LEN(chunks); i++) {
			got = rows_run(&r, chunks[i], 0, false);
			rows_expect_same(&want, &got, 1, "chunk", chunks[i]);
			got = rows_run(&r, chunks[i], 0, chunks[i] >= 16);
			rows_expect_same(&want, &got, 1, "beside a neighbour, chunk", chunks[i]);
			got = rows_run(&r, chunks[i], 20 + i, false);
			rows_expect_same(&want, &got, 20 + i, "from the middle, chunk", chunks[i]);
		}
		rig_close(&r);
		rig_open(&r, 2, false); /* no room: the last layer is done for all, and rows are picked */
		got = rows_run(&r, PROMPT, 0, false);
		rows_expect_same(&want, &got, 1, "picked rows", round);
	}
	rig_close(&r);
}

/* A token's log-probability is the one that drawing it after the tokens before it gives. */
static void log_probabilities_of_a_prompt_are_those_of_draws(void **state)
{
	static const uint32_t positions[] = {1, 2, 15, 16, 17, 40, 69};
	struct msg_step_result m;
	struct rows rows;
	struct rig r;

	rig_open(&r, 8, false);
	rows = rows_run(&r, 32, 0, false);
	for (uint32_t i = 0; i < ARRAY_LEN(positions); i++) {
		uint32_t at = positions[i];
		struct stepper_params p = stepper_greedy();

		p.n_logprobs = 1 + TOP;
		p.n_allowed = 1; /* it cannot draw another one */
		p.allowed_ids = &r.prompt[at];
		stepper_add(&r.s, 0, r.prompt, at, at, &p);
		stepper_grow_range(&r.s, 0, 0, SEQ_BLOCKS);
		stepper_run(&r.s, 0, 0, at, true);
		rig_step(&r, &m);
		assert_int_equal(col_u32(m.tokens, 0), r.prompt[at]);
		assert_int_equal(col_u32(m.ranks, 0), rows.ranks[at]);
		assert_int_equal(col_u32(m.n_top, 0), 1 + TOP);
		for (uint32_t t = 0; t <= TOP; t++) {
			assert_int_equal(col_u32(m.top_ids, t), rows.ids[at][t]);
			assert_true(col_f32(m.top_logprobs, t) == rows.logprobs[at][t]);
		}
		engine_reset(r.e);
	}
	rig_close(&r);
}

/* Behind the prompt there is nothing to give; a replay wants only what is missing. */
static void rows_end_with_the_prompt(void **state)
{
	struct stepper_params p = rows_params(PROMPT - 2);
	struct msg_step_result m;
	struct rig r;

	rig_open(&r, 8, false);
	stepper_add(&r.s, 0, r.prompt, PROMPT, PROMPT - 1, &p); /* the last token is output */
	stepper_grow_range(&r.s, 0, 0, SEQ_BLOCKS);
	stepper_run(&r.s, 0, 0, PROMPT - 4, false);
	rig_step(&r, &m);
	assert_int_equal(m.prompt_slots.n, 0);
	stepper_run(&r.s, 0, PROMPT - 4, 4, true);
	rig_step(&r, &m);
	assert_int_equal(m.prompt_slots.n, 1);
	assert_int_equal(col_u32(m.prompt_starts, 0), PROMPT - 2);
	assert_int_equal(col_u32(m.n_prompt_tokens, 0), 1);
	assert_int_equal(m.slots.n, 1);
	stepper_run(&r.s, 0, PROMPT, 1, true);
	rig_step(&r, &m);
	assert_int_equal(m.prompt_slots.n, 0);
	assert_int_equal(m.prompt_ranks.n, 0);
	rig_close(&r);
}

/* ---- pooled states ---- */

static void pool_run(struct rig *r, uint32_t kind, uint32_t n_prompt, uint32_t chunk, bool neighbour, float out[DIM_MAX])
{
	struct stepper_params p = stepper_greedy();
	struct msg_step_result m = {0};

	p.kind = kind;
	p.top_p = 0; /* it is not looked at */
	stepper_add(&r->s, 0, r->prompt, n_prompt, n_prompt, &p);
	stepper_grow_range(&r->s, 0, 0, SEQ_BLOCKS);
	if (neighbour) rig_add_neighbour(r, REQUEST_POOL_MEAN);
	for (uint32_t at = 0, n; at < n_prompt; at += n) {
		bool last;

		n = min_u32(chunk, n_prompt - at);
		last = at + n == n_prompt;
		if (neighbour && at == 0) stepper_run(&r->s, 1, 0, 39, false);
		stepper_run(&r->s, 0, at, n, last);
		if (neighbour && last) stepper_run(&r->s, 1, 39, 1, true);
		rig_step(r, &m);
		assert_int_equal(m.slots.n, 0);
		if (!last) assert_int_equal(m.pooled_slots.n, 0);
	}
	assert_int_equal(m.pooled_slots.n, neighbour ? 2 : 1);
	assert_int_equal(col_u32(m.pooled_slots, 0), 0);
	assert_int_equal(m.pooled.n, m.pooled_slots.n * r->dim);
	memcpy(out, m.pooled.data, r->dim * sizeof(float));
	engine_reset(r->e);
}

static void pooled_states_are_the_same_every_way(void **state)
{
	static const uint32_t kinds[] = {REQUEST_POOL_MEAN, REQUEST_POOL_LAST}, chunks[] = {1, 5, 16, 33, 69};
	static float want[DIM_MAX], got[DIM_MAX];
	struct rig r;

	for (uint32_t k = 0; k < 4; k++) {
		rig_open(&r, k % 2 ? 2 : 100, false);
		pool_run(&r, kinds[k / 2], PROMPT, PROMPT, false, want);
		for (uint32_t i = 0; i < ARRAY_LEN(chunks); i++) {
			pool_run(&r, kinds[k / 2], PROMPT, chunks[i], chunks[i] > 5, got);
			if (memcmp(want, got, r.dim * sizeof(float)) != 0) fail_msg("kind %u, chunk %u differs", kinds[k / 2], chunks[i]);
		}
		rig_close(&r);
	}
}

/* The mean of a prompt is the mean of the last states of its beginnings. */
static void a_mean_is_made_of_the_states_of_all_tokens(void **state)
{
	enum { N = 20 };
	static float mean[DIM_MAX], last[DIM_MAX];
	double sum[DIM_MAX] = {0}, size = 0;
	struct rig r;

	rig_open(&r, 8, false);
	pool_run(&r, REQUEST_POOL_MEAN, N, 7, false, mean);
	for (uint32_t n = 1; n <= N; n++) {
		pool_run(&r, REQUEST_POOL_LAST, n, N, false, last);
		for (uint32_t i = 0; i < r.dim; i++) sum[i] += (double)last[i];
	}
	for (uint32_t i = 0; i < r.dim; i++) {
		size += fabs(sum[i] / N);
		assert_true(mean[i] == (float)(sum[i] / N));
	}
	assert_true(size / r.dim > 0.01); /* a normed state: not nothing */
	rig_close(&r);
}

static void the_null_device_gives_rows_and_states(void **state)
{
	static float a[DIM_MAX], b[DIM_MAX];
	struct rows want, got;
	struct rig r;

	rig_open(&r, 8, true);
	want = rows_run(&r, PROMPT, 0, false);
	got = rows_run(&r, 16, 0, true);
	rows_expect_same(&want, &got, 1, "chunk", 16);
	assert_int_equal(want.ids[3][0], r.prompt[3]);
	pool_run(&r, REQUEST_POOL_MEAN, PROMPT, PROMPT, false, a);
	pool_run(&r, REQUEST_POOL_MEAN, PROMPT, 9, true, b);
	assert_memory_equal(a, b, r.dim * sizeof(float));
	pool_run(&r, REQUEST_POOL_LAST, PROMPT, 9, true, b);
	assert_memory_not_equal(a, b, r.dim * sizeof(float));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_probabilities_of_a_prompt_are_the_same_every_way),
		cmocka_unit_test(log_probabilities_of_a_prompt_are_those_of_draws),
		cmocka_unit_test(rows_end_with_the_prompt),
		cmocka_unit_test(pooled_states_are_the_same_every_way),
		cmocka_unit_test(a_mean_is_made_of_the_states_of_all_tokens),
		cmocka_unit_test(the_null_device_gives_rows_and_states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
