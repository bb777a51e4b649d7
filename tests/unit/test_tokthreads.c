/* test_tokthreads.c - one tokenizer used from several threads at once gives everyone the same ids. TSan watches. */
#include "common/mem.h"
#include "frontend/tokenizer.h"
#include "tests/support/families.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 4
#ifdef SLUICE_SAN
#define ROUNDS 5
#else
#define ROUNDS 30
#endif

/* Short and long ones (with and without a cache of words), words for the heap, special tokens. */
#define TEXTS 4
static char *texts[TEXTS];

struct use {
	const struct tokenizer *t;
	struct token_vec want[TEXTS];
	int wrong; /* of this thread; the main one adds up */
};

static char *repeated(const char *unit, size_t times)
{
	size_t len = strlen(unit);
	char *text = mem_array(char, len *times + 1);

	for (size_t i = 0; i < times; i++) memcpy(text + i * len, unit, len);
	return text;
}

static int make_texts(void **state)
{
	texts[0] = repeated("<|im_start|>user\nHello there<|im_end|>", 1);
	texts[1] = repeated("The quick brown fox, aged 12, isn't na\xc3\xafve \xe2\x80\x94 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80\n", 100);
	texts[2] = repeated("ab", 3000);
	texts[3] = repeated("e\xcc\x81 <s> \xe2\x96\x81x ", 500);
	return 0;
}

static int free_texts(void **state)
{
	for (size_t i = 0; i < TEXTS; i++) free(texts[i]);
	return 0;
}

static void *use_it(void *arg)
{
	struct use *u = arg;

	for (int round = 0; round < ROUNDS; round++)
		for (size_t i = 0; i < TEXTS; i++) {
			struct token_vec v;

			token_vec_init(&v, SIZE_MAX);
			tokenizer_encode(u->t, texts[i], strlen(texts[i]), true, &v);
			u->wrong += v.len != u->want[i].len || memcmp(v.ids, u->want[i].ids, v.len * sizeof(*v.ids)) != 0;
			token_vec_release(&v);
		}
	return NULL;
}

static void all_threads_get_the_same_ids(void **state)
{
	static const char *const names[] = {"smollm2", "spm-tiny"};

	for (size_t k = 0; k < ARRAY_LEN(names); k++) {
		struct tokenizer *t = families_load(names[k]);
		struct use uses[THREADS] = {{.t = t}};
		pthread_t threads[THREADS];

		assert_non_null(t);
		for (size_t i = 0; i < TEXTS; i++) {
			token_vec_init(&uses[0].want[i], SIZE_MAX);
			tokenizer_encode(t, texts[i], strlen(texts[i]), true, &uses[0].want[i]);
			assert_true(uses[0].want[i].len > 5);
		}
		for (size_t i = 1; i < THREADS; i++) uses[i] = uses[0];
		for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_it, &uses[i]), 0);
		for (size_t i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(uses[i].wrong, 0);
		}
		for (size_t i = 0; i < TEXTS; i++) token_vec_release(&uses[0].want[i]);
		tokenizer_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_threads_get_the_same_ids),
	};

	return cmocka_run_group_tests(tests, make_texts, free_texts);
}
