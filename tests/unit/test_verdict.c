/* test_verdict.c - what is said when the engine cannot be kept alive. */
#include "sluice/verdict.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct restart dead(uint32_t deaths)
{
	struct restart r;

	restart_init(&r, &restart_config_default, 0);
	r.deaths_in_row = deaths;
	return r;
}

static void the_first_verdict_counts(void **state)
{
	struct page *p = mem_new(struct page);
	struct restart three = dead(3), four = dead(4);
	struct page_health h;

	page_format(p, 1, 1);
	verdict_give(p, "worker 0", &three, "it was ended by signal 6 (Aborted)");
	verdict_give(p, "executor", &four, "");
	assert_int_equal(atomic_load(&p->engine_failed), 1);
	assert_string_equal(p->engine_failed_text,
			    "The engine has failed: worker 0 died 3 times without serving 30 s in between; the last time: it was ended by "
			    "signal 6 (Aborted). The server is about to end.");
	page_health(p, 0, NS_PER_S, &h);
	assert_false(h.ready || h.live);
	assert_string_equal(h.phase, "failed");
	assert_string_equal(h.detail, p->engine_failed_text);
	free(p);
}

static void a_long_reason_is_cut(void **state)
{
	struct page *p = mem_new(struct page);
	struct restart r = dead(10);
	char why[600];

	memset(why, 'x', sizeof(why));
	why[sizeof(why) - 1] = 0;
	page_format(p, 1, 1);
	verdict_give(p, "executor", &r, why);
	assert_int_equal(strlen(p->engine_failed_text), sizeof(p->engine_failed_text) - 1);
	free(p);
}

static void probes_have_time_to_see_it(void **state)
{
	assert_int_equal(verdict_grace(0), 5 * NS_PER_S);
	assert_int_equal(verdict_grace(20 * NS_PER_S), 20 * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_verdict_counts),
		cmocka_unit_test(a_long_reason_is_cut),
		cmocka_unit_test(probes_have_time_to_see_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
