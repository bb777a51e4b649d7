/* test_null.c - the null device: a text of bytes that are hard to pass on comes again and again among its tokens, a request's
 * tokens follow from the request alone, and a step takes the time that it is told, with signs of life. */
#include "tests/support/stepper.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/clock.h"
#include "worker/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define A_BYTE 3 /* the token of byte b is 3 + b */
#define LEN    7 /* of the prompt */
#define DRAWS  120

static const uint32_t prompt[LEN] = {70, 80, 90, 100, 110, 120, 130};

static struct engine *null_open(uint64_t step_ns)
{
	struct errbuf err = {{0}};
	struct engine_opts o;
	struct engine *e;
	struct tiny_llama t;
	char *path = test_file_temp("tiny.gguf");

	tiny_llama_init(&t);
	tiny_llama_save(&t, path);
	engine_opts_init(&o);
	o.model = path;
	o.null_device = true;
	o.null_step_ns = step_ns;
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	if (engine_kv_init(e, 16, &err) != ST_OK) fail_msg("%s", err.text);
	free(path);
	return e;
}

/* Draws tokens[from .. DRAWS) of a sequence that has those before. */
static void null_draw(struct engine *e, struct stepper *s, uint32_t *tokens, uint32_t from)
{
	struct stepper_params p = stepper_greedy();
	uint32_t known[LEN + DRAWS];
	struct msg_step_result res;

	memcpy(known, prompt, sizeof(prompt));
	memcpy(known + LEN, tokens, from * sizeof(*tokens));
	stepper_add(s, 0, known, LEN + from, LEN, &p);
	stepper_grow_range(s, 0, 0, (LEN + DRAWS + 15) / 16);
	for (uint32_t i = from; i < DRAWS; i++) {
		stepper_run(s, 0, i == from ? 0 : LEN + i - 1, i == from ? LEN + from : 1, true);
		if (engine_step(e, stepper_message(s), &res) != ST_OK) fail_msg("%s", engine_why(e));
		stepper_next(s);
		tokens[i] = col_u32(res.tokens, 0);
		assert_true(tokens[i] < TINY_LLAMA_TOKENS);
	}
	engine_reset(e);
}

static void what_is_hard_to_pass_on_is_among_its_tokens(void **state)
{
	static const char at_64[4] = "\xc3\xa9\"\\";
	struct engine *e = null_open(0);
	uint32_t tokens[DRAWS];
	struct stepper s;

	stepper_init(&s);
	null_draw(e, &s, tokens, 0);
	for (uint32_t i = 0; i < 4; i++) assert_int_equal(tokens[64 - LEN + i], A_BYTE + (uint8_t)at_64[i]);
	stepper_release(&s);
	engine_free(e);
}

static void tokens_follow_from_the_request_alone(void **state)
{
	struct engine *e = null_open(0);
	uint32_t once[DRAWS], again[DRAWS];
	struct stepper s;

	stepper_init(&s);
	null_draw(e, &s, once, 0);
	for (uint32_t from = 0; from < DRAWS; from += 13) {
		memset(again, 0, sizeof(again));
		memcpy(again, once, from * sizeof(*once));
		null_draw(e, &s, again, from);
		assert_memory_equal(once, again, sizeof(once));
	}
	stepper_release(&s);
	engine_free(e);
}

static void count_beat(void *ctx)
{
	++*(int *)ctx;
}

static void a_step_takes_its_time_and_shows_that_it_lives(void **state)
{
	const uint64_t step_ns = 250 * NS_PER_MS;
	struct engine *e = null_open(step_ns);
	uint64_t from, took = 0;
	int n_beats = 0;

	engine_set_beat(e, count_beat, &n_beats);
	from = clock_now_ns();
	assert_int_equal(engine_warm_up(e, &took), ST_OK); /* two steps, one after the other */
	assert_true(clock_now_ns() - from >= 2 * step_ns);
	assert_int_equal(n_beats, 4);
	engine_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_hard_to_pass_on_is_among_its_tokens),
		cmocka_unit_test(tokens_follow_from_the_request_alone),
		cmocka_unit_test(a_step_takes_its_time_and_shows_that_it_lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
