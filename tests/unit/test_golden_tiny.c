/* test_golden_tiny.c - every tiny checkpoint of the golden data: all families, all mechanisms, number formats and
 * spellings.
 *
 * With f32 activations the logits must be those of the reference, whether a prompt runs whole or in chunks, forced or
 * drawn freely; hidden states name the first wrong layer. With activations and KV cache as they are by default, within
 * the tolerances of the golden data's README. Where ../shared is not, the checkpoints that the project carries.
 * Arguments: names to run alone. */
#include "tests/support/golden.h"
#include "tests/support/goldrun.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct checkpoint {
	const char *name;
	bool gguf;
	bool q8;  /* default activations round inputs of its products */
	bool moe; /* a flipped route moves single steps far */
};

static struct checkpoint checkpoints[] = {
	{.name = "llama"},
	{.name = "qwen2"},
	{.name = "qwen3"},
	{.name = "qwen3-moe", .moe = true},
	{.name = "mistral"},
	{.name = "mixtral", .moe = true},
	{.name = "gemma2"},
	{.name = "gemma3"},
	{.name = "phi3"},
	{.name = "deepseek-v2", .moe = true},
	{.name = "deepseek-v3", .moe = true},
	{.name = "qwen3-next", .moe = true},
	{.name = "qwen3.5"},
	{.name = "gpt-oss", .moe = true},
	{.name = "smollm3"},
	{.name = "qwen3-fp8", .q8 = true},
	{.name = "llama-gptq", .q8 = true},
	{.name = "qwen2-awq", .q8 = true},
	{.name = "gguf-llama", .gguf = true, .q8 = true},
	{.name = "gguf-qwen2", .gguf = true, .q8 = true},
	{.name = "gguf-qwen3", .gguf = true, .q8 = true},
	{.name = "gguf-qwen3moe", .gguf = true, .q8 = true, .moe = true},
	{.name = "gguf-gemma3", .gguf = true, .q8 = true},
};

static const struct goldrun_limits limits_f32 = {
	.mean = 0.005, .worst = 0.005, .median = 0.005, .agree_min = 0.99, .flip_margin = 0.05};
/* Products in f32, and a KV cache of half floats. */
static const struct goldrun_limits limits_half = {
	.mean = 0.05, .worst = 1, .median = 0.1, .agree_min = 0.98, .flip_margin = 0.2};
/* Tiny models are often undecided: 4-bit weights and 8-bit inputs turn one step of twenty. */
static const struct goldrun_limits limits_q8 = {
	.mean = 0.25, .worst = 1.8, .median = 0.35, .agree_min = 0.93, .flip_margin = 0.5};
/* "Judge the median over prompts and the share of equal argmaxes." */
static const struct goldrun_limits limits_moe = {
	.mean = 0.5, .worst = 100, .median = 1, .agree_min = 0.9, .flip_margin = 100};

static bool checkpoint_opts(const struct checkpoint *c, struct engine_opts *o, char *path, size_t cap)
{
	char name[64];

	snprintf(name, sizeof(name), "tiny/%s", c->name);
	if (!golden_folder(name, path, cap)) {
		print_message("SKIPPED: %s is not there (../shared)\n", name);
		return false;
	}
	if (c->gguf) strcat(path, "/model.gguf");
	engine_opts_init(o);
	o->model = path;
	if (getenv("SLUICE_KERNELS")) assert_true(klevel_parse(getenv("SLUICE_KERNELS"), &o->level_max));
	return true;
}

static FILE *checkpoint_cases(const struct checkpoint *c)
{
	char name[64];
	FILE *f;

	snprintf(name, sizeof(name), "tiny/%s/golden.jsonl", c->name);
	f = golden_open(name);
	assert_non_null(f);
	return f;
}

static void checkpoint_hidden(const struct checkpoint *c, const struct engine_opts *o)
{
	const char *wrong;
	char name[64];
	double worst;
	json_t *info;

	snprintf(name, sizeof(name), "tiny/%s/info.json", c->name);
	info = golden_json(name);
	assert_non_null(info);
	wrong = goldrun_first_wrong(o, info, 0.001, &worst);
	if (wrong) fail_msg("%s: the first wrong state is %s", c->name, wrong);
	print_message("%s: hidden states differ by %.6f of their size at most\n", c->name, worst);
	json_decref(info);
}

static void logits_in_f32(void **state)
{
	const struct checkpoint *c = *state;
	struct engine_opts o;
	struct goldcase k;
	struct goldrun r;
	char path[1024];
	FILE *f;

	if (!checkpoint_opts(c, &o, path, sizeof(path) - 16)) skip();
	o.act = KACT_F32;
	o.kv_type = GGTYPE_F32;
	checkpoint_hidden(c, &o);
	f = checkpoint_cases(c);
	goldrun_open(&r, &o);
	while (goldcase_next(&k, f)) {
		goldrun_forced(&r, &k, 0);
		goldrun_free(&r, &k, 7, limits_f32.flip_margin);
		goldcase_release(&k);
	}
	goldrun_judge(&r, &limits_f32, c->name);
	goldrun_close(&r);
	fclose(f);
}

static void logits_by_default(void **state)
{
	const struct checkpoint *c = *state;
	struct engine_opts o;
	struct goldcase k;
	struct goldrun r;
	char path[1024];
	FILE *f;

	if (!checkpoint_opts(c, &o, path, sizeof(path) - 16)) skip();
	f = checkpoint_cases(c);
	goldrun_open(&r, &o);
	while (goldcase_next(&k, f)) {
		goldrun_forced(&r, &k, 33);
		goldcase_release(&k);
	}
	goldrun_judge(&r, c->moe ? &limits_moe : c->q8 ? &limits_q8 : &limits_half, c->name);
	goldrun_close(&r);
	fclose(f);
}

int main(int argc, char **argv)
{
	static struct CMUnitTest tests[2 * ARRAY_LEN(checkpoints)];
	static char names[2 * ARRAY_LEN(checkpoints)][64];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(checkpoints); i++) {
		bool wanted = argc < 2;

		for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], checkpoints[i].name) == 0;
		if (!wanted) continue;
		for (int k = 0; k < 2; k++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s", checkpoints[i].name, k ? "by default" : "in f32");
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = k ? logits_by_default : logits_in_f32,
						       .initial_state = &checkpoints[i]};
		}
	}
	return _cmocka_run_group_tests("golden_tiny", tests, n, NULL, NULL);
}
