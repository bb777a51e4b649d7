/* tinyset.c - see tinyset.h. */
#include "tests/support/tinyset.h"

#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINYSET_TESTS_MAX 128

const struct tinyset tinysets[] = {
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
	{.name = "smollm3", .sharp = true},
	{.name = "qwen2-moe", .moe = true},
	{.name = "qwen3-fp8", .q8 = true},
	{.name = "llama-gptq", .q8 = true},
	{.name = "qwen2-awq", .q8 = true},
	{.name = "gguf-llama", .gguf = true, .q8 = true},
	{.name = "gguf-qwen2", .gguf = true, .q8 = true},
	{.name = "gguf-qwen3", .gguf = true, .q8 = true},
	{.name = "gguf-qwen3moe", .gguf = true, .q8 = true, .moe = true},
	{.name = "gguf-gemma3", .gguf = true, .q8 = true},
};

const size_t tinysets_n = ARRAY_LEN(tinysets);

bool tinyset_opts(const struct tinyset *t, struct engine_opts *o, char *path, size_t cap)
{
	char name[64];

	snprintf(name, sizeof(name), "tiny/%s", t->name);
	if (!golden_folder(name, path, cap - 16)) {
		print_message("SKIPPED: %s is not there (../shared)\n", name);
		return false;
	}
	if (t->gguf) strcat(path, "/model.gguf");
	engine_opts_init(o);
	o->model = path;
	if (getenv("SLUICE_KERNELS")) assert_true(klevel_parse(getenv("SLUICE_KERNELS"), &o->level_max));
	return true;
}

FILE *tinyset_cases(const struct tinyset *t)
{
	char name[64];
	FILE *f;

	snprintf(name, sizeof(name), "tiny/%s/golden.jsonl", t->name);
	f = golden_open(name);
	assert_non_null(f);
	return f;
}

json_t *tinyset_info(const struct tinyset *t)
{
	char name[64];
	json_t *info;

	snprintf(name, sizeof(name), "tiny/%s/info.json", t->name);
	info = golden_json(name);
	assert_non_null(info);
	return info;
}

static bool tinyset_is_wanted(const struct tinyset *t, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], t->name) == 0) return true;
	return argc < 2;
}

int tinyset_main(const char *group, tinyset_test *const *tests, const char *const *names, size_t n, int argc,
		 char **argv)
{
	static struct CMUnitTest all[TINYSET_TESTS_MAX];
	static char texts[TINYSET_TESTS_MAX][96];
	size_t n_all = 0;

	for (size_t i = 0; i < tinysets_n; i++) {
		if (!tinyset_is_wanted(&tinysets[i], argc, argv)) continue;
		for (size_t k = 0; k < n; k++, n_all++) {
			assert_true(n_all < TINYSET_TESTS_MAX);
			snprintf(texts[n_all], sizeof(texts[0]), "%s %s", tinysets[i].name, names[k]);
			all[n_all] = (struct CMUnitTest){.name = texts[n_all],
							 .test_func = tests[k],
							 .initial_state = (void *)(uintptr_t)&tinysets[i]};
		}
	}
	return _cmocka_run_group_tests(group, all, n_all, NULL, NULL);
}
