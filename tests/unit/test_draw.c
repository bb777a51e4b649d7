/* test_draw.c - from a step's columns to the sampler's parameters: every list, every kind of bad row, and what follows from the
 * tokens that were drawn. */
#include "tests/support/stepper.h"
#include "worker/draw.h"

#include "common/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 100

static const struct draw_env env = {.vocab = VOCAB};
static const uint32_t ten[10] = {1, 2, 3, 4, 5, 1, 2, 1, 9, 9};
static const uint32_t stops[2] = {50, 51}, bias_ids[2] = {7, 99}, allowed[3] = {0, 64, 99};
static const float bias_values[2] = {-2.5f, 100};

struct box {
	struct stepper s;
	struct draw d;
	struct draw_at at;
	struct ksample p;
	uint32_t extra[4096];
	size_t n_extra;
};

/* A sequence of ten tokens, the first n_prompt of which are the prompt. */
static void box_open(struct box *x, const struct stepper_params *p, uint32_t n_prompt)
{
	*x = (struct box){0};
	stepper_init(&x->s);
	stepper_add(&x->s, 0, ten, 10, n_prompt, p);
	assert_null(draw_look(&env, stepper_message(&x->s), 0, &x->at));
	x->at = (struct draw_at){0};
	draw_init(&x->d, &env, stepper_message(&x->s), 0, ten, &x->at);
}

static void box_fill(struct box *x, uint32_t n_tokens)
{
	x->n_extra = 0;
	draw_fill(&x->d, &env, n_tokens, &x->p, x->extra, &x->n_extra);
	assert_true(x->n_extra <= draw_words(&x->d, &env) && draw_words(&x->d, &env) <= draw_words_max(&env, 1000));
	assert_int_equal(x->n_extra % 2, 0);
}

static void box_close(struct box *x)
{
	draw_release(&x->d, &env);
	stepper_release(&x->s);
}

static uint32_t box_count(const struct box *x, uint32_t token)
{
	for (uint32_t i = 0; i < x->p.n_seen; i++)
		if (x->extra[x->p.seen_at + 2 * i] == token) return x->extra[x->p.seen_at + 2 * i + 1];
	return 0;
}

static void numbers_go_through(void **state)
{
	struct stepper_params p = {.temperature = 0.5f,
				   .top_p = 0.75f,
				   .min_p = 0.25f,
				   .top_k = 8,
				   .choice = 3,
				   .n_logprobs = 5,
				   .seed = 1ull << 50,
				   .repetition = 1.25f,
				   .presence = -1,
				   .frequency = 0.5f};
	struct box x;

	box_open(&x, &p, 4);
	box_fill(&x, 10);
	assert_true(x.p.temperature == 0.5f && x.p.top_p == 0.75f && x.p.min_p == 0.25f && x.p.repetition == 1.25f &&
		    x.p.presence == -1 && x.p.frequency == 0.5f);
	assert_int_equal(x.p.top_k, 8);
	assert_int_equal(x.p.choice, 3);
	assert_int_equal(x.p.n_top, 4);
	assert_true(x.p.want_logprob && x.p.seed == 1ull << 50 && !x.p.is_given && !x.p.has_mask);
	assert_int_equal(x.p.position, 10);
	assert_int_equal(x.p.n_bias + x.p.n_banned, 0);
	box_close(&x);

	p = stepper_greedy();
	box_open(&x, &p, 4);
	box_fill(&x, 10);
	assert_int_equal(x.p.n_top, 0);
	assert_false(x.p.want_logprob);
	assert_int_equal(x.p.n_seen, 0); /* nothing is counted when no penalty wants it */
	assert_int_equal(x.n_extra, 0);
	box_close(&x);
}

static void lists_become_words(void **state)
{
	struct stepper_params p = stepper_greedy();
	struct box x;
	float value;

	p.n_stop = 2;
	p.stop_ids = stops;
	p.n_output_min = 7;
	p.n_bias = 2;
	p.bias_ids = bias_ids;
	p.bias_values = bias_values;
	p.n_allowed = 3;
	p.allowed_ids = allowed;
	box_open(&x, &p, 4);
	assert_int_equal(x.at.tokens, 10);
	assert_int_equal(x.at.stop, 2);
	assert_int_equal(x.at.bias, 2);
	assert_int_equal(x.at.allowed, 3);
	box_fill(&x, 10);
	assert_int_equal(x.p.n_banned, 2);
	assert_int_equal(x.extra[x.p.banned_at + 1], 51);
	assert_int_equal(x.p.n_bias, 2);
	assert_int_equal(x.extra[x.p.bias_at + 2], 99);
	memcpy(&value, &x.extra[x.p.bias_at + 1], sizeof(value));
	assert_true(value == -2.5f);
	assert_true(x.p.has_mask);
	for (uint32_t i = 0; i < VOCAB; i++)
		assert_int_equal(x.extra[x.p.mask_at + i / 32] >> i % 32 & 1, i == 0 || i == 64 || i == 99);
	box_fill(&x, 11); /* the seventh output token may be a stop */
	assert_int_equal(x.p.n_banned, 0);
	box_close(&x);
}

static void penalties_count_what_they_look_at(void **state)
{
	struct stepper_params p = stepper_greedy();
	struct box x;

	p.repetition = 1.5f; /* all tokens */
	box_open(&x, &p, 4);
	box_fill(&x, 10);
	assert_int_equal(x.p.n_seen, 6);
	assert_int_equal(box_count(&x, 1), 2 | KSEEN_PROMPT);
	assert_int_equal(box_count(&x, 2), 1 | KSEEN_PROMPT);
	assert_int_equal(box_count(&x, 3), 0 | KSEEN_PROMPT);
	assert_int_equal(box_count(&x, 9), 2);
	draw_append(&x.d, &env, 3);
	draw_append(&x.d, &env, 77);
	box_fill(&x, 12);
	assert_int_equal(x.p.n_seen, 7);
	assert_int_equal(box_count(&x, 3), 1 | KSEEN_PROMPT);
	assert_int_equal(box_count(&x, 77), 1);
	box_close(&x);

	for (int k = 0; k < 2; k++) { /* the output alone */
		p = stepper_greedy();
		*(k ? &p.presence : &p.frequency) = 0.5f;
		box_open(&x, &p, 4);
		box_fill(&x, 10);
		assert_int_equal(x.p.n_seen, 4);
		assert_int_equal(box_count(&x, 1), 2);
		assert_int_equal(box_count(&x, 3), 0);
		box_close(&x);
	}
}

/* The words of masks and lists of several rows follow each other. */
static void rows_share_the_words(void **state)
{
	struct stepper_params p = stepper_greedy();
	size_t first;
	struct box x;

	p.n_stop = 1; /* an odd number of words */
	p.stop_ids = stops;
	p.n_output_min = 99;
	p.n_allowed = 3;
	p.allowed_ids = allowed;
	box_open(&x, &p, 4);
	box_fill(&x, 10);
	first = x.n_extra;
	draw_fill(&x.d, &env, 10, &x.p, x.extra, &x.n_extra);
	assert_int_equal(x.n_extra, 2 * first);
	assert_int_equal(x.p.mask_at, first);
	assert_int_equal(x.p.mask_at % 2, 0);
	assert_int_equal(x.extra[x.p.banned_at], 50);
	assert_int_equal(x.extra[x.p.mask_at] & 1, 1);
	box_close(&x);
}

static void a_grammar_without_masks_is_a_bad_one(void **state)
{
	struct stepper_params p = stepper_greedy();
	struct box x;

	p.grammar = "abc";
	p.n_grammar = 3;
	box_open(&x, &p, 4);
	assert_true(x.d.bad_grammar);
	assert_int_equal(x.at.grammar, 3);
	box_fill(&x, 10);
	assert_false(x.p.has_mask);
	draw_append(&x.d, &env, 3);
	box_close(&x);
	p.n_grammar = 0;
	box_open(&x, &p, 4);
	assert_false(x.d.bad_grammar);
	box_close(&x);
}

/* ---- bad rows ---- */

static void set_f32(struct view column, float value)
{
	memcpy((void *)column.data, &value, sizeof(value));
}

static void set_u32(struct view column, uint32_t value)
{
	memcpy((void *)column.data, &value, sizeof(value));
}

enum kind { U32, F32, LIST }; /* LIST: the column has one element less than its count says */

static void bad_rows_are_named(void **state)
{
	struct stepper s;
	struct msg_step m;
	struct stepper_params p = {.top_p = 1,
				   .n_stop = 2,
				   .stop_ids = stops,
				   .n_bias = 2,
				   .bias_ids = bias_ids,
				   .bias_values = bias_values,
				   .n_allowed = 3,
				   .allowed_ids = allowed,
				   .grammar = "abc",
				   .n_grammar = 3};
#define COLUMN(name) offsetof(struct msg_step, name)
	const struct {
		size_t column;
		enum kind kind;
		double value;
		const char *why;
	} rows[] = {
		{COLUMN(added_kind), U32, 3, "no known kind"},
		{COLUMN(added_n_stop), U32, LIMIT_STOP_IDS + 1, "too many stop ids"},
		{COLUMN(added_n_bias), U32, LIMIT_BIAS + 1, "too many biases"},
		{COLUMN(added_n_allowed), U32, LIMIT_ALLOWED + 1, "too many allowed ids"},
		{COLUMN(added_n_grammar), U32, LIMIT_GRAMMAR_BYTES + 1, "a grammar is too long"},
		{COLUMN(added_n_logprobs), U32, KTOP_MAX + 2, "too many log-probabilities"},
		{COLUMN(added_n_prompt_logprobs), U32, KTOP_MAX + 2, "too many log-probabilities"},
		{COLUMN(added_tokens), LIST, 0, "more elements than its column"},
		{COLUMN(added_stop_ids), LIST, 0, "more elements than its column"},
		{COLUMN(added_bias_ids), LIST, 0, "more elements than its column"},
		{COLUMN(added_allowed_ids), LIST, 0, "more elements than its column"},
		{COLUMN(added_grammars), LIST, 0, "more elements than its column"},
		{COLUMN(added_tokens), U32, VOCAB, "an added token"},
		{COLUMN(added_stop_ids), U32, VOCAB, "a stop id"},
		{COLUMN(added_bias_ids), U32, VOCAB, "a bias"},
		{COLUMN(added_allowed_ids), U32, VOCAB, "an allowed id"},
		{COLUMN(added_temperature), F32, -1, "a temperature"},
		{COLUMN(added_temperature), F32, INFINITY, "a temperature"},
		{COLUMN(added_top_p), F32, 0, "a top_p"},
		{COLUMN(added_top_p), F32, 1.5, "a top_p"},
		{COLUMN(added_min_p), F32, -0.5, "a min_p"},
		{COLUMN(added_min_p), F32, 1.5, "a min_p"},
		{COLUMN(added_repetition), F32, 0, "a repetition penalty"},
		{COLUMN(added_repetition), F32, INFINITY, "a repetition penalty"},
		{COLUMN(added_presence), F32, NAN, "a penalty is no number"},
		{COLUMN(added_frequency), F32, INFINITY, "a penalty is no number"},
		{COLUMN(added_n_output_max), U32, 0, "no output"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct draw_at at = {0};
		struct view *column;
		const char *why;

		stepper_init(&s);
		stepper_add(&s, 0, ten, 10, 4, &p);
		m = *stepper_message(&s);
		assert_null(draw_look(&env, &m, 0, &at));
		column = (struct view *)(void *)((char *)&m + rows[i].column);
		if (rows[i].kind == U32) set_u32(*column, (uint32_t)rows[i].value);
		if (rows[i].kind == F32) set_f32(*column, (float)rows[i].value);
		if (rows[i].kind == LIST) column->n--;
		at = (struct draw_at){0};
		why = draw_look(&env, &m, 0, &at);
		if (!why || !strstr(why, rows[i].why)) fail_msg("row %zu: %s, expected %s", i, why ? why : "accepted", rows[i].why);
		/* Of a pooling request the numbers of a draw are not looked at. */
		if (rows[i].kind == F32) {
			set_u32(m.added_kind, REQUEST_POOL_LAST);
			at = (struct draw_at){0};
			assert_null(draw_look(&env, &m, 0, &at));
		}
		stepper_release(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_go_through),
		cmocka_unit_test(lists_become_words),
		cmocka_unit_test(penalties_count_what_they_look_at),
		cmocka_unit_test(rows_share_the_words),
		cmocka_unit_test(a_grammar_without_masks_is_a_bad_one),
		cmocka_unit_test(bad_rows_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
