/* test_admit_fields.c - submits whose penalties, lists, kinds or token ids cannot be right. */
#include "tests/support/corebox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef void change(struct msg_submit *m);

static const uint32_t two_ids[] = {5, 6};
static const float numbers[] = {1, -1}, one_nan[] = {1, NAN};

static void repetition_below_0(struct msg_submit *m) { m->repetition_penalty = -1; }
static void repetition_nan(struct msg_submit *m) { m->repetition_penalty = NAN; }
static void repetition_inf(struct msg_submit *m) { m->repetition_penalty = INFINITY; }
static void repetition_small(struct msg_submit *m) { m->repetition_penalty = 0.01f; }
static void presence_nan(struct msg_submit *m) { m->presence_penalty = NAN; }
static void frequency_inf(struct msg_submit *m) { m->frequency_penalty = INFINITY; }
static void penalties(struct msg_submit *m) { m->presence_penalty = m->frequency_penalty = -2; }
static void too_many_prompt_logprobs(struct msg_submit *m) { m->n_prompt_logprobs = 22; }
static void most_prompt_logprobs(struct msg_submit *m) { m->n_prompt_logprobs = 21; }
static void known_beyond(struct msg_submit *m) { m->n_prompt_known = 4; }
static void known_all(struct msg_submit *m) { m->n_prompt_known = 3; }

static void bias_without_values(struct msg_submit *m)
{
	m->bias_ids = view_of(two_ids, 2);
	m->bias_values = view_of(numbers, 1);
}

static void bias_nan(struct msg_submit *m)
{
	m->bias_ids = view_of(two_ids, 2);
	m->bias_values = view_of(one_nan, 2);
}

static void bias(struct msg_submit *m)
{
	m->bias_ids = view_of(two_ids, 2);
	m->bias_values = view_of(numbers, 2);
}

static void no_such_kind(struct msg_submit *m)
{
	m->kind = 3;
}

static void pooling(struct msg_submit *m)
{
	*m = (struct msg_submit){.client_id = m->client_id,
				 .attempt = m->attempt,
				 .epoch = m->epoch,
				 .tokens = view_of(m->tokens.data, 3),
				 .n_prompt = 3,
				 .temperature = -1, /* nothing of a draw is looked at */
				 .kind = REQUEST_POOL_MEAN};
}

static void pooling_with_output(struct msg_submit *m)
{
	m->kind = REQUEST_POOL_LAST;
}

static void pooling_with_logprobs(struct msg_submit *m)
{
	pooling(m);
	m->n_prompt_logprobs = 1;
}

static void fields_of_penalties_lists_and_kinds_are_checked(void **state)
{
	static const struct {
		change *change;
		const char *text; /* NULL: fine */
	} rows[] = {
		{repetition_below_0, "repetition_penalty must be a number above 0, but is -1."},
		{repetition_nan, "repetition_penalty must be a number above 0, but is nan."},
		{repetition_inf, "repetition_penalty must be a number above 0, but is inf."},
		{repetition_small, NULL},
		{presence_nan, "presence_penalty and frequency_penalty must be numbers, but are nan and 0."},
		{frequency_inf, "presence_penalty and frequency_penalty must be numbers, but are 0 and inf."},
		{penalties, NULL},
		{too_many_prompt_logprobs, "21 log-probabilities a prompt token were requested, but only 20 are allowed."},
		{most_prompt_logprobs, NULL},
		{known_beyond, "Log-probabilities of 4 prompt tokens are known, but the prompt has only 3."},
		{known_all, NULL},
		{bias_without_values, "logit_bias has 2 tokens, but 1 values."},
		{bias_nan, "logit_bias of token 6 must be a number, but is nan."},
		{bias, NULL},
		{no_such_kind, "There is no request of kind 3."},
		{pooling, NULL},
		{pooling_with_output, "A pooling request has no output tokens, but there are 2."},
		{pooling_with_logprobs, "A pooling request has no log-probabilities."},
	};
	char line[300];
	struct corebox b;
	uint32_t i;

	corebox_start(&b, NULL, 8, 100);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct msg_submit m = corebox_request(&b, 1 + i, 9, 3, 9);

		corebox_request_answer(&b, &m, 2);
		rows[i].change(&m);
		corebox_on_submit(&b, &m);
		corebox_skip(&b);
		core_step(b.core, b.now);
		if (!rows[i].text) {
			assert_null(strstr(b.log.data, "refused"));
			corebox_cancel(&b, 0, 1 + i);
			corebox_run(&b);
			continue;
		}
		snprintf(line, sizeof(line), "refused 0.0 %u#1 invalid: %s\n", 1 + i, rows[i].text);
		corebox_expect(&b, line);
	}
	corebox_release(&b);
}

/* Frontends are other processes: an id that the model does not have would end the step. */
static void ids_are_compared_with_the_vocabulary(void **state)
{
	static const uint32_t last[] = {1, 49}, beyond[] = {1, 50};
	static const char *const texts[] = {
		"refused 0.0 2#1 invalid: Prompt position 1 is token 50, but the model's vocabulary has 50 tokens.\n",
		"refused 0.0 3#1 invalid: Stop id 1 is token 50, but the model's vocabulary has 50 tokens.\n",
		"refused 0.0 4#1 invalid: Entry of logit_bias 1 is token 50, but the model's vocabulary has 50 tokens.\n",
		"refused 0.0 5#1 invalid: Entry of allowed_token_ids 1 is token 50, but the model's vocabulary has 50 tokens.\n",
	};

	for (int early = 0; early < 2; early++) { /* judged when the vocabulary is known */
		struct corebox b;
		uint32_t i;

		corebox_init(&b, NULL);
		b.vocab = 50;
		corebox_hello(&b, 0, 0);
		if (!early) corebox_ready(&b, 8, 100);
		corebox_step(&b);
		corebox_skip(&b);
		for (i = 0; i < 5; i++) {
			struct msg_submit m = corebox_request(&b, 1 + i, 9, 2, 3);

			m.tokens = view_of(i == 1 ? beyond : last, 2);
			m.stop_ids = view_of(i == 2 ? beyond : last, 2);
			m.bias_ids = view_of(i == 3 ? beyond : last, 2);
			m.bias_values = view_of(numbers, 2);
			m.allowed_ids = view_of(i == 4 ? beyond : last, 2);
			corebox_on_submit(&b, &m);
		}
		if (early) {
			corebox_step(&b);
			assert_null(strstr(b.log.data, "refused"));
			corebox_ready(&b, 8, 100);
		}
		corebox_step(&b);
		for (i = 0; i < ARRAY_LEN(texts); i++) assert_non_null(strstr(b.log.data, texts[i]));
		assert_int_equal(corebox_stats(&b).n_running, 1);
		corebox_release(&b);
	}
}

/* Workers with another model come back, or a resubmit brings more tokens: they are looked at again. */
static void ids_are_compared_again_when_something_is_new(void **state)
{
	struct msg_submit m;
	struct corebox b;

	corebox_init(&b, NULL);
	b.vocab = 2000;
	corebox_hello(&b, 0, 0);
	corebox_ready(&b, 8, 100);
	corebox_submit(&b, 1, 400, 2, 9);
	corebox_step(&b);
	corebox_lost(&b);
	b.vocab = 400;
	corebox_skip(&b);
	corebox_ready(&b, 8, 100);
	core_step(b.core, b.now);
	assert_non_null(strstr(b.log.data, "refused 0.0 1#1 invalid: Prompt position 0 is token 400"));
	corebox_submit(&b, 2, 10, 2, 9);
	m = corebox_request(&b, 2, 10, 2, 9);
	b.tokens[2] = 400; /* an answer that cannot have been given */
	m.tokens.n = 3;
	m.attempt = 2;
	corebox_on_submit(&b, &m);
	corebox_skip(&b);
	core_step(b.core, b.now);
	assert_non_null(strstr(b.log.data, "refused 0.0 2#2 invalid: Prompt position 2 is token 400"));
	corebox_release(&b);
}

static void a_resubmit_of_another_kind_is_dropped(void **state)
{
	struct msg_submit m;
	struct corebox b;

	corebox_start(&b, NULL, 8, 100);
	corebox_submit(&b, 1, 10, 3, 9);
	m = corebox_request(&b, 1, 10, 3, 9);
	m.attempt = 2;
	m.kind = REQUEST_POOL_LAST;
	corebox_on_submit(&b, &m);
	assert_int_equal(corebox_stats(&b).dropped_stale, 1);
	corebox_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_of_penalties_lists_and_kinds_are_checked),
		cmocka_unit_test(ids_are_compared_with_the_vocabulary),
		cmocka_unit_test(ids_are_compared_again_when_something_is_new),
		cmocka_unit_test(a_resubmit_of_another_kind_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
