/* test_restart.c - the supervisor's restart policy, as scripts of events.
 *
 * A row is "TIME EVENT" and what must hold after it. Config: delays 100 ms to 1000 ms, healthy after 5000 ms, 3 start
 * failures. */
#include "sluice/restart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct restart_config cfg = {100 * NS_PER_MS, 1000 * NS_PER_MS, 5000 * NS_PER_MS, 3, 0};

enum event { STEP, READY, FAILED, EXITED, DRAIN, PLAN };

struct row {
	uint64_t ms;
	enum event event;
	int arg;                    /* FAILED: the exit code */
	enum restart_action action; /* of a restart_step() after the event */
	enum restart_state state;   /* after that */
	uint64_t deadline_ms;
};

#define NEVER UINT64_MAX
#define END                      \
	{                        \
		0, 0, 0, 0, 0, 1 \
	}

static bool row_is_end(const struct row *r)
{
	static const struct row end = END;

	return memcmp(r, &end, sizeof(end)) == 0;
}

static void run(struct restart *r, const char *name, const struct row *rows)
{
	for (const struct row *w = rows; !row_is_end(w); w++) {
		uint64_t now = w->ms * NS_PER_MS;
		enum restart_action action;
		uint64_t deadline;

		switch (w->event) {
		case STEP: break;
		case READY: restart_on_ready(r, now); break;
		case FAILED: restart_on_failed(r, w->arg); break;
		case EXITED: restart_on_exited(r, now); break;
		case DRAIN: restart_drain(r); break;
		case PLAN: restart_plan(r); break;
		}
		action = restart_step(r, now);
		deadline = restart_deadline(r);
		if (deadline != NEVER) deadline /= NS_PER_MS;
		if (action != w->action || r->state != w->state || deadline != w->deadline_ms)
			fail_msg("%s, row %d: action %d, state %d, deadline %llu", name, (int)(w - rows), action,
				 r->state, (unsigned long long)deadline);
		assert_int_equal(restart_is_alive(r), r->state == RESTART_STARTING || r->state == RESTART_RUNNING);
	}
}

/* The first step at 10 ms, in every script: a child is started at once. */
#define FIRST                                                       \
	{                                                           \
		10, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER \
	}

/* clang-format off */
static const struct row good[] = {
	FIRST,
	{10, STEP, 0, RESTART_NOTHING, RESTART_STARTING, NEVER},
	{50, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{60, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{9000, STEP, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	END,
};

static const struct row doubles[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{30, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{31, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 110}, /* it is dead already */
	{31, READY, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{109, STEP, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{120, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{140, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 320}, /* dies while it starts: like any death */
	{320, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{350, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{400, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 720},
	{720, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{900, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 1520},
	{1800, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{1900, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 2800}, /* the longest delay */
	{2800, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{3000, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 3800},
	END,
};

/* Whoever lived longer than its delay is back at once. */
static const struct row at_once[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{120, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{130, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{319, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 320},
	{320, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{330, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{4000, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	END,
};

static const struct row healthy[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{30, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{130, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{140, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{5139, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER}, /* a millisecond short of healthy */
	{5149, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 5539},
	{5539, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{5600, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{10600, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER}, /* healthy: as if for the first time */
	/* Long in its start is not healthy. */
	{30000, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{30000, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 30400},
	END,
};

static const struct row never_ready[] = {
	FIRST,
	{20, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{120, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{130, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 320},
	{330, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{340, EXITED, 0, RESTART_GIVE_UP, RESTART_FAILED, NEVER},
	{9000, STEP, 0, RESTART_NOTHING, RESTART_FAILED, NEVER}, /* once */
	{9000, READY, 0, RESTART_NOTHING, RESTART_FAILED, NEVER},
	{9000, EXITED, 0, RESTART_NOTHING, RESTART_FAILED, NEVER},
	{9000, DRAIN, 0, RESTART_NOTHING, RESTART_FAILED, NEVER},
	END,
};

static const struct row says_failed[] = {
	FIRST,
	{20, FAILED, 78, RESTART_NOTHING, RESTART_STARTING, NEVER},
	{30, EXITED, 0, RESTART_GIVE_UP, RESTART_FAILED, NEVER},
	{40, FAILED, 79, RESTART_NOTHING, RESTART_FAILED, NEVER},
	END,
};

/* It was up once, so the cause may pass. */
static const struct row failed_later[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{30, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{130, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{140, FAILED, 78, RESTART_NOTHING, RESTART_STARTING, NEVER},
	{150, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 330},
	{350, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{360, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 750},
	{760, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{770, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 1560},
	END,
};

/* Three deaths are too many, unless it was healthy in between. */
static const struct row dies_often[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{1000, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{1010, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{2000, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{2010, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{7010, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER}, /* the first in a row */
	{7020, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{8000, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{8010, EXITED, 0, RESTART_GIVE_UP, RESTART_FAILED, NEVER},
	{9000, STEP, 0, RESTART_NOTHING, RESTART_FAILED, NEVER},
	END,
};

static const struct row drain_running[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{30, DRAIN, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{40, EXITED, 0, RESTART_NOTHING, RESTART_STOPPED, NEVER},
	{9000, STEP, 0, RESTART_NOTHING, RESTART_STOPPED, NEVER},
	END,
};

static const struct row drain_starting[] = {
	FIRST,
	{30, DRAIN, 0, RESTART_NOTHING, RESTART_STARTING, NEVER},
	{35, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{40, EXITED, 0, RESTART_NOTHING, RESTART_STOPPED, NEVER},
	END,
};

static const struct row drain_waiting[] = {
	FIRST,
	{20, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 110},
	{30, DRAIN, 0, RESTART_NOTHING, RESTART_STOPPED, NEVER},
	{120, STEP, 0, RESTART_NOTHING, RESTART_STOPPED, NEVER},
	END,
};

static const struct row planned[] = {
	FIRST,
	{20, READY, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{30, PLAN, 0, RESTART_NOTHING, RESTART_RUNNING, NEVER},
	{40, EXITED, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{41, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 140}, /* the plan was for one end only */
	{50, PLAN, 0, RESTART_NOTHING, RESTART_WAITING, 140},
	{140, STEP, 0, RESTART_SPAWN, RESTART_STARTING, NEVER},
	{150, EXITED, 0, RESTART_NOTHING, RESTART_WAITING, 340},
	END,
};

static const struct row planned_while_draining[] = {
	FIRST,
	{20, PLAN, 0, RESTART_NOTHING, RESTART_STARTING, NEVER},
	{30, DRAIN, 0, RESTART_NOTHING, RESTART_STARTING, NEVER},
	{40, EXITED, 0, RESTART_NOTHING, RESTART_STOPPED, NEVER},
	END,
};

/* clang-format on */
static void scripts(void **state)
{
	static const struct {
		const char *name;
		const struct row *rows;
		int exit_code;
		uint32_t deaths;
	} cases[] = {
		{"good", good, 1, 0},
		{"planned", planned, 1, 2},
		{"planned while draining", planned_while_draining, 1, 0},
		{"doubles", doubles, 1, 6},
		{"healthy", healthy, 1, 6},
		{"at once", at_once, 1, 3},
		{"never ready", never_ready, 1, 3},
		{"says failed", says_failed, 78, 1},
		{"failed later", failed_later, 78, 4},
		{"drain while running", drain_running, 1, 1},
		{"drain while starting", drain_starting, 1, 1},
		{"drain while waiting", drain_waiting, 1, 1},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct restart r;

		restart_init(&r, &cfg, 10 * NS_PER_MS);
		assert_int_equal(restart_deadline(&r), 10 * NS_PER_MS);
		assert_int_equal(restart_step(&r, 10 * NS_PER_MS - 1), RESTART_NOTHING);
		run(&r, cases[i].name, cases[i].rows);
		assert_int_equal(r.exit_code, cases[i].exit_code);
		assert_int_equal(r.deaths, cases[i].deaths);
	}
}

static void deaths_in_a_row(void **state)
{
	struct restart_config c = cfg;
	struct restart r;

	c.deaths_max = 3;
	restart_init(&r, &c, 10 * NS_PER_MS);
	run(&r, "dies often", dies_often);
	assert_int_equal(r.exit_code, RESTART_EXIT_DEFAULT);
}

/* Giving up is due at once, not when the next start would have been. */
static void give_up_is_due_at_once(void **state)
{
	struct restart r;

	restart_init(&r, &cfg, 0);
	assert_int_equal(restart_step(&r, 0), RESTART_SPAWN);
	restart_on_failed(&r, 3);
	restart_on_exited(&r, 5);
	assert_int_equal(restart_deadline(&r), 0);
	assert_int_equal(restart_step(&r, 5), RESTART_GIVE_UP);
}

/* Only what can be an exit code of a failure. */
static void exit_codes(void **state)
{
	static const struct {
		int wanted, given;
	} cases[] = {{1, 1}, {2, 2}, {255, 255}, {0, 1}, {-1, 1}, {256, 1}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct restart r;

		restart_init(&r, &cfg, 0);
		restart_on_failed(&r, 9); /* nobody lives yet */
		assert_int_equal(r.exit_code, RESTART_EXIT_DEFAULT);
		assert_int_equal(restart_step(&r, 0), RESTART_SPAWN);
		restart_on_failed(&r, cases[i].wanted);
		restart_on_exited(&r, 1);
		assert_int_equal(restart_step(&r, 1), RESTART_GIVE_UP);
		assert_int_equal(r.exit_code, cases[i].given);
	}
}

static void defaults(void **state)
{
	struct restart r;
	uint64_t now = 0, waits = 0;

	restart_init(&r, &restart_config_frontend, 0);
	for (int i = 0; i < 20; i++, now = restart_deadline(&r)) {
		assert_int_equal(restart_step(&r, now), RESTART_SPAWN);
		restart_on_ready(&r, now);
		restart_on_exited(&r, now);
		waits = restart_deadline(&r) - now;
	}
	assert_int_equal(waits, NS_PER_S);
	now = 0;
	restart_init(&r, &restart_config_default, 0);
	assert_int_equal(restart_step(&r, now), RESTART_SPAWN);
	restart_on_ready(&r, now);
	for (int i = 0; i < 20; i++) {
		restart_on_exited(&r, now);
		waits = restart_deadline(&r) - now;
		if (i == 0) assert_int_equal(waits, 100 * NS_PER_MS);
		now = restart_deadline(&r);
		assert_int_equal(restart_step(&r, now), RESTART_SPAWN);
	}
	assert_int_equal(waits, 10 * NS_PER_S);
	restart_on_ready(&r, now);
	restart_on_exited(&r, now + 30 * NS_PER_S);
	assert_int_equal(restart_deadline(&r), now + 30 * NS_PER_S); /* at once: it lived for longer than the delay */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scripts),
		cmocka_unit_test(deaths_in_a_row),
		cmocka_unit_test(give_up_is_due_at_once),
		cmocka_unit_test(exit_codes),
		cmocka_unit_test(defaults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
