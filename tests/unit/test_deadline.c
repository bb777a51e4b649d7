/* test_deadline.c - deadlines come due in order, whatever was set, moved and taken back meanwhile; compared with a plain list. */
#include "common/base.h"
#include "common/splitmix.h"
#include "frontend/deadline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define N 300

/* The earliest of a plain list. */
static uint64_t plain_next(const struct deadline *all, const uint64_t *at)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < N; i++) {
		assert_int_equal(all[i].place != 0, at[i] != UINT64_MAX);
		least = min_u64(least, at[i]);
	}
	return least;
}

static void random_order_is_kept(void **state)
{
	struct deadlines d = {0};
	struct deadline all[N] = {{0}}, *t;
	uint64_t at[N], now = 0, seed = 3;
	int round, i;

	for (i = 0; i < N; i++) at[i] = UINT64_MAX;
	for (round = 0; round < 20000; round++) {
		i = (int)(splitmix_next(&seed) % N);
		at[i] = splitmix_next(&seed) % 4 ? now + splitmix_next(&seed) % 1000 : UINT64_MAX;
		deadline_set(&d, &all[i], at[i]);
		assert_int_equal(deadlines_next(&d), plain_next(all, at));
		if (round % 10) continue;
		now += splitmix_next(&seed) % 60;
		while ((t = deadlines_due(&d, now))) {
			i = (int)(t - all);
			assert_int_equal(t->at_ns, at[i]);
			assert_true(at[i] <= now);
			at[i] = UINT64_MAX;
			assert_true(plain_next(all, at) >= t->at_ns);
		}
		assert_true(plain_next(all, at) > now);
	}
	for (i = 0; i < N; i++) deadline_set(&d, &all[i], UINT64_MAX);
	assert_int_equal(d.n, 0);
	assert_int_equal(deadlines_next(&d), UINT64_MAX);
	assert_null(deadlines_due(&d, UINT64_MAX));
	deadlines_release(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_order_is_kept)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
