/* test_counts.c - the counts of a sequence's tokens against counting anew. */
#include "worker/counts.h"

#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void counts_are_those_of_a_plain_array(void **state)
{
	enum { VOCAB = 5000, N = 20000 };
	static uint32_t output[VOCAB], prompt[VOCAB];
	struct counts c = {0};
	uint32_t n_distinct = 0;

	srand(3);
	for (uint32_t i = 0; i < N; i++) {
		/* Some come often, and neighbours in the table collide. */
		uint32_t token = (uint32_t)rand() % (rand() % 2 ? 50 : VOCAB) / (1 + i % 3) * (1 + i % 3);
		bool is_prompt = i < N / 4;

		n_distinct += !output[token] && !prompt[token];
		if (is_prompt) prompt[token]++;
		else output[token]++;
		counts_add(&c, token, is_prompt);
		assert_int_equal(c.n, n_distinct);
	}
	for (uint32_t i = 0; i < c.n; i++) {
		uint32_t token = c.pairs[2 * i], count = c.pairs[2 * i + 1];

		assert_int_equal(count & ~KSEEN_PROMPT, output[token]);
		assert_int_equal(!!(count & KSEEN_PROMPT), prompt[token] > 0);
		output[token] = prompt[token] = UINT32_MAX; /* each once */
	}
	counts_release(&c);
	assert_int_equal(c.n, 0);
	counts_add(&c, 7, false); /* it goes on from nothing */
	assert_int_equal(c.pairs[0], 7);
	assert_int_equal(c.pairs[1], 1);
	counts_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_those_of_a_plain_array),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
