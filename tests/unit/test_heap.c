/* test_heap.c - the heap against a plain search. */
#include "common/heap.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct item {
	struct heap_link link;
	uint32_t key;
};

static bool before(const struct heap_link *a, const struct heap_link *b)
{
	return CONTAINER_OF(a, struct item, link)->key < CONTAINER_OF(b, struct item, link)->key;
}

static void an_empty_heap_has_no_first(void **state)
{
	struct heap h;

	heap_init(&h, before);
	assert_null(heap_first(&h));
	heap_check(&h);
	heap_release(&h);
	assert_null(h.v);
}

static uint32_t least(const struct item *items, uint32_t n)
{
	uint32_t key = UINT32_MAX;

	for (uint32_t i = 0; i < n; i++)
		if (heap_is_linked(&items[i].link) && items[i].key < key) key = items[i].key;
	return key;
}

static void the_first_is_the_least_whatever_comes_goes_and_changes(void **state)
{
	enum { N = 200 };
	struct item items[N] = {{{0}, 0}};
	struct heap h;

	srand(3);
	heap_init(&h, before);
	for (uint32_t round = 0; round < 20000; round++) {
		struct item *it = &items[rand() % N];

		if (!heap_is_linked(&it->link)) {
			it->key = (uint32_t)rand() % 500;
			heap_push(&h, &it->link);
		} else if (rand() % 2) {
			it->key = (uint32_t)rand() % 500;
			heap_moved(&h, &it->link);
		} else {
			heap_remove(&h, &it->link);
			assert_false(heap_is_linked(&it->link));
		}
		heap_check(&h);
		if (h.n) assert_int_equal(CONTAINER_OF(heap_first(&h), struct item, link)->key, least(items, N));
		else assert_int_equal(least(items, N), UINT32_MAX);
	}
	heap_release(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_heap_has_no_first),
		cmocka_unit_test(the_first_is_the_least_whatever_comes_goes_and_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
