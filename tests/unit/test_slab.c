/* test_slab.c - common/slab: distinct, aligned, zeroed objects; what is given is taken again before memory grows. */
#include "common/slab.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define N 5000
#define SIZE 700 /* no multiple of anything */

static void test_objects_do_not_overlap(void **state)
{
	static uint8_t *objects[N];
	struct slab s;

	slab_init(&s, SIZE);
	for (size_t i = 0; i < N; i++) {
		objects[i] = slab_take(&s);
		assert_int_equal((uintptr_t)objects[i] % SLAB_ALIGN, 0);
		memset(objects[i], (int)(i % 251) + 1, SIZE);
	}
	for (size_t i = 0; i < N; i++)
		for (size_t k = 0; k < SIZE; k++) assert_int_equal(objects[i][k], i % 251 + 1);
	assert_true(s.n_chunks > 1);
	slab_release(&s);
}

static void test_given_memory_is_taken_again_and_zeroed(void **state)
{
	static uint8_t *objects[N];
	size_t n_chunks, k;
	struct slab s;

	slab_init(&s, SIZE);
	for (size_t i = 0; i < N; i++) objects[i] = slab_take(&s);
	n_chunks = s.n_chunks;
	for (size_t round = 0; round < 3; round++) {
		for (size_t i = 0; i < N; i++) {
			memset(objects[i], 0xff, SIZE);
			slab_give(&s, objects[i]);
		}
		for (size_t i = 0; i < N; i++) {
			objects[i] = slab_take(&s);
			for (k = 0; k < SIZE && !objects[i][k]; k++) {
			}
			assert_int_equal(k, SIZE);
		}
	}
	assert_int_equal(s.n_chunks, n_chunks);
	slab_give(&s, objects[7]);
	assert_ptr_equal(slab_take(&s), objects[7]); /* still in the caches */
	slab_release(&s);
}

static void test_neighbours_lie_together(void **state)
{
	struct slab s;
	uint8_t *first, *second;

	slab_init(&s, SIZE);
	first = slab_take(&s);
	second = slab_take(&s);
	assert_int_equal(second - first, align_up(SIZE, SLAB_ALIGN));
	slab_release(&s);
	first = slab_take(&s); /* it can be used anew */
	memset(first, 1, SIZE);
	slab_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects_do_not_overlap),
		cmocka_unit_test(test_given_memory_is_taken_again_and_zeroed),
		cmocka_unit_test(test_neighbours_lie_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
