/* test_engine.c - the engine's promise: a request's logits depend on the model, its tokens and nothing else, bit for
 * bit.
 *
 * One request is run alone, and then in every other way that a scheduler may choose: chunked at every size, beside
 * random neighbours, preempted, from shared blocks, in scattered blocks, with more threads; on every level of the
 * kernels that this processor has; plain, and with penalties, biases, allowed tokens and a grammar. The hashes of its
 * logits and its drawn tokens must always be the same. A tiny random model by default; `--all` does the same with the
 * default model. */
#include "tests/support/enginerig.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL_FILE "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#ifdef SLUICE_SAN
#define SLOW 1 /* the sanitizers' builds run a part */
#else
#define SLOW 0
#endif

static bool test_all;

static char *tiny_path(enum ggtype type)
{
	struct tiny_llama t;
	char *path = test_file_temp("tiny.gguf");

	tiny_llama_init(&t);
	t.mat_type = type;
	t.embed_type = type == GGTYPE_F32 ? GGTYPE_F32 : GGTYPE_Q8_0;
	t.output_type = t.embed_type;
	t.layers = 3;
	t.seed = 99;
	tiny_llama_save(&t, path);
	return path;
}

static void logits_depend_on_the_request_alone(void **state)
{
	static const enum ggtype types[] = {GGTYPE_Q4_1, GGTYPE_Q4_0, GGTYPE_Q8_0, GGTYPE_F16, GGTYPE_BF16, GGTYPE_F32};

	for (enum klevel level = SLOW ? enginerig_level_max() : KLEVEL_REF; level <= enginerig_level_max(); level++) {
		for (size_t i = 0; i < (SLOW ? 1 : ARRAY_LEN(types)); i++) {
			char *path;

			if (level == KLEVEL_REF && enginerig_level_max() > level && i > 0)
				break; /* slow, and the others' oracle */
			path = tiny_path(types[i]);

			enginerig_all_ways(&(struct enginerig_setup){.path = path,
								     .level = level,
								     .act = KACT_Q8,
								     .kv_type = GGTYPE_F16,
								     .every_chunk = !SLOW && i == 0 &&
										    level == enginerig_level_max()});
			if (i == 0)
				enginerig_all_ways(&(struct enginerig_setup){
					.path = path, .level = level, .act = KACT_F32, .kv_type = GGTYPE_F32});
			if (i == 0)
				enginerig_all_ways(&(struct enginerig_setup){.path = path,
									     .level = level,
									     .act = KACT_Q8,
									     .kv_type = GGTYPE_F16,
									     .rich = true});
			free(path);
		}
		print_message("%s: the same bits\n", klevel_name(level));
	}
}

static void logits_depend_on_the_request_alone_real_model(void **state)
{
	if (!test_all) {
		print_message("SKIPPED: the default model is only run with --all\n");
		skip();
	}
	if (access(MODEL_FILE, R_OK) != 0) {
		print_message("SKIPPED: %s is not there\n", MODEL_FILE);
		skip();
	}
	for (int k = 0; k < 3; k++)
		enginerig_all_ways(&(struct enginerig_setup){.path = MODEL_FILE,
							     .level = enginerig_level_max(),
							     .act = k == 1 ? KACT_F32 : KACT_Q8,
							     .kv_type = k == 1 ? GGTYPE_F32 : GGTYPE_F16,
							     .every_chunk = k == 0,
							     .large = true,
							     .rich = k == 2});
}

/* ---- loading ---- */

static void what_cannot_be_loaded_says_why(void **state)
{
	char *path = tiny_path(GGTYPE_F32);
	struct engine_opts o;
	struct errbuf err = {{0}};
	struct engine *e;
	uint32_t n;

	engine_opts_init(&o);
	o.model = "/nonexistent/model.gguf";
	assert_int_not_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
	assert_non_null(strstr(err.text, "model.gguf"));

	o.model = path;
	o.model_len_max = 513;
	err.text[0] = 0;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "512"));

	o.model_len_max = 0;
	o.kv.available = 100000;
	err.text[0] = 0;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_NO_MEMORY);
	assert_non_null(strstr(err.text, "not enough memory"));

	o.kv.available = 0;
	o.kv.n_blocks = 9;
	err.text[0] = 0;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_NO_MEMORY);
	assert_non_null(strstr(err.text, "one request of 512 tokens"));

	o.model_len_max = ENGINE_LEN_AUTO; /* the longest that nine blocks hold */
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(engine_model_len_max(e), 9 * 16);
	assert_int_equal(engine_plan(e)->positions, 9 * 16 + MEMPLAN_SPARE_POSITIONS);
	engine_free(e);

	o.model_len_max = 144;
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(engine_profile(e, &n, &err), ST_OK);
	assert_int_equal(n, 9);
	engine_free(e);
	free(path);
}

struct seen {
	uint64_t done, total;
	uint32_t calls;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct seen *s = ctx;

	assert_true(done >= s->done && done <= total && (s->total == 0 || s->total == total));
	*s = (struct seen){done, total, s->calls + 1};
}

static void progress_reaches_the_end(void **state)
{
	char *path = tiny_path(GGTYPE_Q8_0);
	struct seen s = {0};
	struct engine_opts o;
	struct errbuf err;
	struct engine *e;

	engine_opts_init(&o);
	o.model = path;
	assert_int_equal(engine_load(&e, &o, on_progress, &s, &err), ST_OK);
	assert_true(s.calls > 0 && s.done == s.total && s.total > 0);
	engine_free(e);
	free(path);
}

/* ---- results ---- */

static void stop_ids_wait_for_the_minimum(void **state)
{
	char *path = tiny_path(GGTYPE_Q8_0);
	uint32_t stop[LIMIT_STOP_IDS], first;
	struct msg_step_result res;
	struct stepper_params p = stepper_greedy();
	struct enginerig r;

	enginerig_open(&r,
		       &(struct enginerig_setup){
			       .path = path, .level = enginerig_level_max(), .act = KACT_Q8, .kv_type = GGTYPE_F16},
		       1);
	stepper_add(&r.s, 3, r.prompt, 5, 5, &p);
	stepper_grow_range(&r.s, 3, 0, 1);
	stepper_run(&r.s, 3, 0, 5, true);
	enginerig_step(&r, &res);
	first = col_u32(res.tokens, 0);
	assert_int_equal(col_u32(res.slots, 0), 3);
	assert_int_equal(col_u32(res.n_top, 0), 0);
	assert_int_equal(res.top_ids.n, 0);
	assert_int_equal(res.hashes.n, 1);
	engine_reset(r.e);

	stop[0] = first;
	p.n_stop = 1;
	p.stop_ids = stop;
	p.n_output_min = 1;
	stepper_add(&r.s, 3, r.prompt, 5, 5, &p);
	stepper_grow_range(&r.s, 3, 0, 1);
	stepper_run(&r.s, 3, 0, 5, true);
	enginerig_step(&r, &res);
	assert_int_not_equal(col_u32(res.tokens, 0), first);
	enginerig_close(&r);
	free(path);
}

static void count_beat(void *ctx)
{
	++*(uint32_t *)ctx;
}

/* Also one of a single token: of a large model that takes seconds, too. */
static void each_layer_of_a_step_shows_that_it_gets_on(void **state)
{
	char *path = tiny_path(GGTYPE_Q8_0);

	for (uint32_t threads = 1; threads <= 2; threads++) {
		struct stepper_params p = stepper_greedy();
		struct msg_step_result res;
		struct enginerig r;
		uint32_t n_beats = 0, n_layers;

		enginerig_open(&r,
			       &(struct enginerig_setup){
				       .path = path, .level = enginerig_level_max(), .act = KACT_Q8, .kv_type = GGTYPE_F16},
			       threads);
		engine_set_beat(r.e, count_beat, &n_beats);
		n_layers = engine_spec(r.e)->n_layers;
		stepper_add(&r.s, 0, r.prompt, 5, 5, &p);
		stepper_grow_range(&r.s, 0, 0, 1);
		stepper_run(&r.s, 0, 0, 5, true);
		enginerig_step(&r, &res);
		assert_true(n_beats >= 4 * n_layers); /* products, attention, what is between */
		enginerig_close(&r);
	}
	free(path);
}

static void a_step_before_the_cache_is_refused(void **state)
{
	char *path = tiny_path(GGTYPE_F32);
	struct engine_opts o;
	struct msg_step_result res;
	struct errbuf err;
	struct engine *e;
	uint64_t ns;

	engine_opts_init(&o);
	o.model = path;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
	assert_int_equal(engine_step(e, &(struct msg_step){.number = 4}, &res), ST_INVALID);
	assert_int_equal(res.status, -ST_INVALID);
	assert_int_equal(res.number, 4);
	assert_int_equal(engine_warm_up(e, &ns), ST_INVALID);
	assert_int_equal(engine_kv_init(e, 0, &err), ST_INVALID);
	assert_int_equal(engine_kv_init(e, 3, &err), ST_OK);
	assert_int_equal(engine_warm_up(e, &ns), ST_OK);
	assert_true(ns > 0);
	assert_int_equal(engine_n_used(e), 0);
	assert_int_equal(engine_step(e, &(struct msg_step){.number = 5}, &res), ST_OK); /* nothing to do is fine */
	assert_int_equal(engine_kv_init(e, 7, &err), ST_OK);
	assert_int_equal(engine_n_blocks(e), 7);
	engine_free(e);
	free(path);
}

/* The null device draws the same tokens for the same request, and never a banned one. */
static void the_null_device_is_deterministic(void **state)
{
	char *path = tiny_path(GGTYPE_F32);
	uint32_t tokens[2][8], stop[LIMIT_STOP_IDS];
	struct stepper_params p = stepper_greedy();
	struct msg_step_result res;
	struct engine_opts o;
	struct errbuf err;
	struct stepper s;
	struct engine *e;

	engine_opts_init(&o);
	o.model = path;
	o.null_device = true;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
	assert_int_equal(engine_kv_init(e, 10, &err), ST_OK);
	stepper_init(&s);
	for (uint32_t i = 0; i < LIMIT_STOP_IDS; i++) stop[i] = i;
	p.n_stop = LIMIT_STOP_IDS;
	p.stop_ids = stop;
	p.n_output_min = 100;
	for (int round = 0; round < 2; round++) {
		stepper_add(&s, 0, stop, 7, 7, &p);
		stepper_grow_range(&s, 0, 0, 1);
		for (uint32_t i = 0; i < 8; i++) {
			stepper_run(&s, 0, i ? 6 + i : 0, i ? 1 : 7, true);
			assert_int_equal(engine_step(e, stepper_message(&s), &res), ST_OK);
			stepper_next(&s);
			tokens[round][i] = col_u32(res.tokens, 0);
			assert_in_range(tokens[round][i], LIMIT_STOP_IDS, TINY_LLAMA_TOKENS - 1);
		}
		engine_reset(e);
	}
	assert_memory_equal(tokens[0], tokens[1], sizeof(tokens[0]));
	stepper_release(&s);
	engine_free(e);
	free(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_loaded_says_why),
		cmocka_unit_test(progress_reaches_the_end),
		cmocka_unit_test(stop_ids_wait_for_the_minimum),
		cmocka_unit_test(each_layer_of_a_step_shows_that_it_gets_on),
		cmocka_unit_test(a_step_before_the_cache_is_refused),
		cmocka_unit_test(the_null_device_is_deterministic),
		cmocka_unit_test(logits_depend_on_the_request_alone),
		cmocka_unit_test(logits_depend_on_the_request_alone_real_model),
	};

	test_all = argc > 1 && strcmp(argv[1], "--all") == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
