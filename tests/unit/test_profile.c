/* test_profile.c - what a step takes is what was planned: the largest step of each family runs on blocks of its own,
 * and what the process then has in memory is compared with the plan. And the plan that `--plan` prints is the one that
 * loading makes. */
#include "tests/support/golden.h"
#include "worker/bigstep.h"
#include "worker/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKENS 4096 /* so that activations outweigh everything else that a process has */
#define SEQS   64

/* Resident anonymous memory: total less what maps files. */
static uint64_t resident_bytes(void)
{
	unsigned long long size, resident, shared;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu %llu %llu", &size, &resident, &shared), 3);
	fclose(f);
	return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool tiny(const char *name, char path[512])
{
	char relative[64];

	snprintf(relative, sizeof(relative), "tiny/%s", name);
	return golden_folder(relative, path, 512);
}

static struct engine_opts options(const char *path)
{
	struct engine_opts o;

	engine_opts_init(&o);
	o.model = path;
	o.batched_tokens_max = TOKENS;
	o.seqs_max = SEQS;
	o.n_threads = 2;
	o.profile_run = true;
	return o;
}

static void expect_planned(const char *name, enum ggtype kv_type)
{
	struct engine_opts o;
	struct errbuf err = {{0}};
	struct engine *e;
	struct kvplan plan;
	uint64_t before, used, planned;
	uint32_t n_blocks;
	char path[512];

	if (!tiny(name, path)) return;
	o = options(path);
	o.kv_type = kv_type;
	before = resident_bytes();
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s: %s", name, err.text);
	assert_int_equal(engine_kvplan(e, &plan, &err), ST_OK);
	if (engine_profile(e, &n_blocks, &err) != ST_OK) fail_msg("%s: %s", name, err.text);
	assert_int_equal(n_blocks, plan.n_blocks);
	assert_int_equal(engine_n_blocks(e), 0); /* whoever asks now has to size it first */
	used = resident_bytes();
	used = used > before ? used - before : 0;
	planned = plan.in.weights + plan.in.activations + plan.in.workspace + plan.in.state;
	/* Not planned: sequences' tokens, vocabulary, threads. What is planned and hardly touched: attention's
	 * workspace for long contexts. */
	if (getenv("SHOW")) print_message("%s: %.1f MiB used, %.1f planned\n", name, (double)used / MIB, (double)planned / MIB);
	if (used > planned + planned / 10 + 8 * MIB || used + planned / 2 < planned)
		fail_msg("%s: %.1f MiB are in use, planned are %.1f", name, (double)used / MIB, (double)planned / MIB);
	engine_free(e);
}

static void the_largest_step_takes_what_was_planned(void **state)
{
#ifdef SLUICE_SAN
	skip(); /* shadows and quarantines */
#endif
	static const char *const names[] = {"llama",       "qwen2",      "mistral",    "gemma2",
					    "gemma3",      "phi3",       "qwen3-moe",  "mixtral",
					    "gpt-oss",     "qwen3-next", "qwen3.5",    "deepseek-v2",
					    "deepseek-v3", "qwen3-fp8",  "llama-gptq", "gguf-llama"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) expect_planned(names[i], GGTYPE_F16);
}

static void every_type_of_kv_cache_runs(void **state)
{
	static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_BF16, GGTYPE_F32, GGTYPE_F8_E4M3, GGTYPE_I8};
	static const char *const names[] = {"gemma3", "deepseek-v2"};

	for (size_t i = 0; i < ARRAY_LEN(types) * ARRAY_LEN(names); i++) {
		char path[512];
		struct engine_opts o;
		struct errbuf err = {{0}};
		struct engine *e;
		uint32_t n_blocks;

		if (!tiny(names[i / ARRAY_LEN(types)], path)) continue;
		o = options(path);
		o.kv_type = types[i % ARRAY_LEN(types)];
		o.batched_tokens_max = 100;
		o.kv.n_blocks = 300;
		assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
		if (engine_profile(e, &n_blocks, &err) != ST_OK) fail_msg("%s: %s", path, err.text);
		assert_int_equal(n_blocks, 300);
		assert_int_equal(engine_kv_init(e, n_blocks, &err), ST_OK);
		engine_free(e);
	}
}

/* Few blocks: the largest step that they allow. */
static void a_small_pool_has_a_smaller_largest_step(void **state)
{
	struct engine_opts o;
	struct errbuf err = {{0}};
	struct engine *e;
	uint32_t n_blocks;
	char path[512];

	if (!tiny("gemma3", path)) fail_msg("there is no tiny/gemma3");
	o = options(path);
	o.batched_tokens_max = 64;
	for (uint32_t n = 1; n < 40; n++) {
		o.kv.n_blocks = n;
		o.model_len_max = ENGINE_LEN_AUTO;
		if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) {
			assert_true(n < 3); /* one block in each of three groups */
			continue;
		}
		if (engine_profile(e, &n_blocks, &err) != ST_OK) fail_msg("%u blocks: %s", n, err.text);
		assert_int_equal(n_blocks, n);
		engine_free(e);
	}
}

/* measure: also where it does not fit. */
static void measuring_plans_as_loading_does(void **state)
{
	static const char *const names[] = {"llama-gptq", "qwen3-next", "deepseek-v3", "gemma2"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct errbuf err = {{0}};
		struct engine *loaded, *measured;
		struct kvplan a, b;
		struct engine_opts o;
		char path[512];

		if (!tiny(names[i], path)) fail_msg("there is no tiny/%s", names[i]);
		o = options(path);
		o.kv.available = GIB;
		assert_int_equal(engine_load(&loaded, &o, NULL, NULL, &err), ST_OK);
		assert_int_equal(engine_measure(&measured, &o, &err), ST_OK);
		assert_int_equal(engine_kvplan(loaded, &a, &err), ST_OK);
		assert_int_equal(engine_kvplan(measured, &b, &err), ST_OK);
		assert_int_equal(a.in.weights, b.in.weights);
		assert_int_equal(a.fixed, b.fixed);
		assert_int_equal(a.n_blocks, b.n_blocks);
		engine_free(loaded);
		engine_free(measured);
		o.kv.available = MIB;
		assert_int_equal(engine_load(&loaded, &o, NULL, NULL, &err), ST_NO_MEMORY);
		assert_int_equal(engine_measure(&measured, &o, &err), ST_OK);
		assert_int_equal(engine_kvplan(measured, &b, &err), ST_NO_MEMORY);
		engine_free(measured);
	}
}

/* Two of a group have half of what can be divided: less weights, less of a state. */
static void a_rank_plans_its_share(void **state)
{
	struct errbuf err = {{0}};
	struct engine *one, *two;
	struct kvplan a, b;
	struct engine_opts o;
	char path[512];

	if (!tiny("qwen3-next", path)) fail_msg("there is no tiny/qwen3-next");
	o = options(path);
	assert_int_equal(engine_measure(&one, &o, &err), ST_OK);
	o.tp = 2;
	assert_int_equal(engine_measure(&two, &o, &err), ST_OK);
	assert_int_equal(engine_kvplan(one, &a, &err), ST_OK);
	assert_int_equal(engine_kvplan(two, &b, &err), ST_OK);
	assert_true(b.in.weights < a.in.weights && b.in.weights * 2 > a.in.weights);
	assert_int_equal(b.in.state * 2, a.in.state);
	assert_int_equal(b.in.shape->block_bytes * 2, a.in.shape->block_bytes);
	assert_true(b.in.activations < a.in.activations);
	assert_int_equal(b.in.state, SEQS * b.in.shape->state_bytes);
	engine_free(one);
	engine_free(two);
	o.tp = 3;
	assert_int_equal(engine_measure(&two, &o, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "sizes that divide: 1, 2, 4, 8"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_largest_step_takes_what_was_planned),
		cmocka_unit_test(every_type_of_kv_cache_runs),
		cmocka_unit_test(a_small_pool_has_a_smaller_largest_step),
		cmocka_unit_test(measuring_plans_as_loading_does),
		cmocka_unit_test(a_rank_plans_its_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
