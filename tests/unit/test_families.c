/* test_families.c - the tokenizers of the model families against the recorded results, one test a family.
 *
 * A family whose vocabulary is not here (tests/vocabularies.py fetches them) is skipped by name. */
#include "frontend/tokenizer.h"
#include "tests/support/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct expected {
	const char *family, *records;
	size_t n, n_decoded; /* cases at least */
	uint32_t vocab_size;
};

static const struct expected expected[] = {
	{"smollm2", "smollm2", 300, 100, 49152},
	{"spm-tiny", "spm-tiny", 300, 0, 1000},
	{"spm-tiny_in_a_model_file", "spm-tiny", 300, 0, 1000},
	{"gemma3", "gemma3", 300, 80, 262144},
	{"qwen2", "qwen2", 300, 80, 151669},
	{"qwen2_in_a_tokenizer.json", "qwen2", 300, 80, 151669},
	{"qwen35", "qwen35", 300, 80, 248077},
	{"llama3", "llama3", 300, 80, 128256},
	{"deepseek", "deepseek", 300, 80, 129280},
};

static void gives_the_recorded_results(void **state)
{
	const struct expected *e = *state;
	struct tokenizer *t = families_load(e->family);

	if (!t) skip();
	assert_int_equal(tokenizer_vocab_size(t), e->vocab_size);
	families_check(t, e->records, e->n, e->n_decoded);
	tokenizer_free(t);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_LEN(expected)];

	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		tests[i] = (struct CMUnitTest){
			expected[i].family, gives_the_recorded_results, NULL, NULL, (void *)(uintptr_t)&expected[i]};
	return _cmocka_run_group_tests("families", tests, ARRAY_LEN(tests), NULL, NULL);
}
