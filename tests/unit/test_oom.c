/* test_oom.c - which SIGKILLs were for want of memory. */
#include "sluice/oom.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct cgroup_memory kills(uint64_t n)
{
	return (struct cgroup_memory){.oom_kills = n};
}

#define LOOK(o, n, s) oom_look(o, &(struct cgroup_memory){.oom_kills = (n)}, (s) * NS_PER_S)
#define CLAIM(o, n)   oom_claim(o, &(struct cgroup_memory){.oom_kills = (n)})

static void each_kill_explains_one_death(void **state)
{
	struct cgroup_memory m = kills(7);
	struct oom o;

	oom_init(&o, &m, 0);
	assert_false(CLAIM(&o, 7)); /* those before were others */
	assert_true(CLAIM(&o, 8));
	assert_false(CLAIM(&o, 8));
	assert_true(CLAIM(&o, 10)); /* two at once */
	assert_true(CLAIM(&o, 10));
	assert_false(CLAIM(&o, 10));
}

static void a_death_may_come_after_a_look(void **state)
{
	struct cgroup_memory m = kills(0);
	struct oom o;

	oom_init(&o, &m, 0);
	assert_false(oom_is_due(&o, OOM_LOOK_NS - 1));
	assert_true(oom_is_due(&o, OOM_LOOK_NS));
	LOOK(&o, 1, 10);
	assert_false(oom_is_due(&o, 10 * NS_PER_S));
	assert_true(CLAIM(&o, 1));
	LOOK(&o, 1, 20);
	LOOK(&o, 2, 30);
	LOOK(&o, 2, 40); /* nobody of ours died: it was another program's */
	assert_false(CLAIM(&o, 2));
	assert_true(CLAIM(&o, 3));
}

static void what_is_claimed_before_a_look_stays_claimed(void **state)
{
	struct cgroup_memory m = kills(0);
	struct oom o;

	oom_init(&o, &m, 0);
	assert_true(CLAIM(&o, 1));
	LOOK(&o, 1, 10);
	assert_false(CLAIM(&o, 1));
	LOOK(&o, 1, 20);
	assert_false(CLAIM(&o, 1));
	assert_true(CLAIM(&o, 2));
}

static void without_a_group_nothing_is_known(void **state)
{
	struct oom o;

	oom_init(&o, NULL, 0);
	assert_false(oom_is_due(&o, 100 * NS_PER_S));
	assert_false(CLAIM(&o, 5));
}

static void words(void **state)
{
	struct cgroup_memory m = {.limit = 512 * MIB, .peak = 511 * MIB + 5, .path = "/pod/x"};
	char text[300];

	oom_text(text, sizeof(text), "worker 0", "--gpu-memory-utilization", &m);
	assert_string_equal(text, "worker 0 was killed by the kernel for want of memory (control group /pod/x: limit 512 MiB, at most 511 MiB were "
				  "used); raise the limit, or lower --gpu-memory-utilization");
	m = kills(1);
	oom_text(text, sizeof(text), "executor", "--max-requests", &m);
	assert_string_equal(text, "executor was killed by the kernel for want of memory: the machine had no more; lower --max-requests");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kill_explains_one_death),
		cmocka_unit_test(a_death_may_come_after_a_look),
		cmocka_unit_test(what_is_claimed_before_a_look_stays_claimed),
		cmocka_unit_test(without_a_group_nothing_is_known),
		cmocka_unit_test(words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
