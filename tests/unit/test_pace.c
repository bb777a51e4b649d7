/* test_pace.c - which passes are held back, and for how long. */
#include "common/pace.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GAP_NS 200000u

/* Runs passes that take `busy` ns and whose next cause comes `gap` ns after each began; returns how many ended until `until`. */
static uint32_t passes(struct pace *p, uint64_t from, uint64_t until, uint64_t gap, uint64_t busy, uint64_t *held)
{
	uint64_t cause = from, began = from, next;
	uint32_t n = 0;

	*held = 0;
	while (began < until) {
		next = pace_pass(p, began + busy, GAP_NS);
		assert_true(next >= began + busy);
		assert_true(next - (began + busy) <= GAP_NS);
		*held += next - (began + busy);
		while (cause <= began) cause += gap; /* what came meanwhile is in this pass */
		began = max_u64(next, cause);
		n++;
	}
	return n;
}

static void a_loop_with_little_to_do_is_never_held(void **state)
{
	struct pace p = {0};
	uint64_t held;

	assert_int_equal(passes(&p, NS_PER_S, 2 * NS_PER_S, NS_PER_S / PACE_FREE_PER_S, 10000, &held), PACE_FREE_PER_S);
	assert_int_equal(held, 0);
}

static void a_burst_is_not_held(void **state)
{
	struct pace p = {0};
	uint64_t now = NS_PER_S;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < PACE_BURST; i++) assert_int_equal(pace_pass(&p, now + (uint64_t)i, GAP_NS), now + (uint64_t)i);
		assert_true(pace_pass(&p, now + PACE_BURST, GAP_NS) > now + PACE_BURST);
		now += NS_PER_S; /* a second later all is forgotten */
	}
}

static void many_small_passes_come_a_gap_apart(void **state)
{
	struct pace p = {0};
	uint64_t held;
	uint32_t n = passes(&p, NS_PER_S, 2 * NS_PER_S, 20000, 5000, &held);

	assert_in_range(n, NS_PER_S / GAP_NS * 9 / 10, NS_PER_S / GAP_NS + PACE_BURST);
}

static void passes_longer_than_the_gap_are_never_held(void **state)
{
	struct pace p = {0};
	uint64_t held;

	(void)passes(&p, NS_PER_S, 2 * NS_PER_S, 1000, GAP_NS, &held);
	assert_int_equal(held, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_loop_with_little_to_do_is_never_held),
		cmocka_unit_test(a_burst_is_not_held),
		cmocka_unit_test(many_small_passes_come_a_gap_apart),
		cmocka_unit_test(passes_longer_than_the_gap_are_never_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
