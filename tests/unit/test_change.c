/* test_change.c - scale and reload as scripts of events: what is done next, and what is left alone when something fails.
 *
 * What the change asks for is written down as words ("start 2", "retire 0"); the test plays the processes. */
#include "sluice/change.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FAREWELL_NS (30 * NS_PER_S)

struct world {
	struct fleet fleet;
	struct change change;
	uint64_t now;
	char did[4096];   /* since the last look */
	char said[1024];  /* done's text */
	uint32_t no_start; /* this slot's process cannot be started */
};

static void did(struct world *w, const char *word, int n)
{
	size_t len = strlen(w->did);

	snprintf(w->did + len, sizeof(w->did) - len, n < 0 ? "%s%s" : "%s%s %d", len ? ", " : "", word, n);
}

static bool on_open(void *ctx, uint32_t socket)
{
	return true;
}

static void on_listener(void *ctx, uint32_t slot, uint32_t socket, bool on)
{
}

static void on_start(void *ctx, uint32_t slot)
{
	struct world *w = ctx;

	did(w, "start", (int)slot);
	if (slot != w->no_start) return;
	change_on_trial_gone(&w->change, slot, "no such program");
	change_step(&w->change, w->now); /* as the supervisor does after every event */
}

static void on_retire(void *ctx, uint32_t slot)
{
	did(ctx, "retire", (int)slot);
}

static void on_stop(void *ctx, uint32_t slot)
{
	did(ctx, "stop", (int)slot);
}

static void on_executor(void *ctx)
{
	did(ctx, "executor", -1);
}

static void on_workers(void *ctx)
{
	did(ctx, "workers", -1);
}

static void on_progress(void *ctx, const char *text)
{
}

static void on_done(void *ctx, bool good, const char *text)
{
	struct world *w = ctx;

	did(w, good ? "good" : "bad", -1);
	snprintf(w->said, sizeof(w->said), "%s", text);
}

static void begin(struct world *w, uint32_t n)
{
	memset(w, 0, sizeof(*w));
	w->no_start = FLEET_NONE;
	w->now = NS_PER_S;
	fleet_init(&w->fleet, false, &(struct fleet_out){w, on_open, on_listener});
	change_init(&w->change, &w->fleet, FAREWELL_NS,
		    &(struct change_out){w, on_start, on_retire, on_stop, on_executor, on_workers, on_progress, on_done});
	for (uint32_t i = 0; i < n; i++) fleet_on_ready(&w->fleet, fleet_add(&w->fleet, FLEET_NONE));
}

/* Steps, and what was done since the last time. */
static void expect(struct world *w, const char *want)
{
	change_step(&w->change, w->now);
	fleet_check(&w->fleet);
	assert_string_equal(w->did, want);
	w->did[0] = 0;
}

static void pass(struct world *w, uint64_t ns)
{
	w->now += ns;
}

static void ready(struct world *w, uint32_t slot)
{
	fleet_on_ready(&w->fleet, slot);
}

static void gone(struct world *w, uint32_t slot)
{
	if (w->fleet.slots[slot].state == FLEET_RETIRING) fleet_remove(&w->fleet, slot);
	else if (change_is_trial(&w->change, slot)) change_on_trial_gone(&w->change, slot, "it crashed");
	else fleet_on_gone(&w->fleet, slot);
}

static void more_are_started_at_once(void **state)
{
	struct world w;

	begin(&w, 2);
	change_scale(&w.change, 4);
	expect(&w, "start 2, start 3");
	ready(&w, 3);
	expect(&w, "");
	ready(&w, 2);
	expect(&w, "good");
	assert_string_equal(w.said, "4 frontends serve");
	assert_false(change_is_running(&w.change));
	change_scale(&w.change, 4);
	expect(&w, "good");
}

static void fewer_retire_one_by_one(void **state)
{
	struct world w;

	begin(&w, 4);
	gone(&w, 1); /* down: it goes first */
	change_scale(&w.change, 1);
	expect(&w, "retire 1");
	expect(&w, "");
	gone(&w, 1);
	expect(&w, "retire 3");
	pass(&w, CHANGE_SETTLE_NS); /* it has long answers */
	expect(&w, "retire 2");
	gone(&w, 2);
	expect(&w, "");
	gone(&w, 3);
	expect(&w, "good");
	assert_string_equal(w.said, "1 frontend serves");
}

static void who_still_has_answers_is_not_waited_for_for_ever(void **state)
{
	struct world w;

	begin(&w, 3);
	change_scale(&w.change, 1);
	expect(&w, "retire 2");
	pass(&w, CHANGE_SETTLE_NS);
	expect(&w, "retire 1");
	pass(&w, CHANGE_SETTLE_NS);
	expect(&w, "");
	gone(&w, 2);
	pass(&w, FAREWELL_NS - 1);
	expect(&w, "");
	pass(&w, 1);
	expect(&w, "good");
	assert_string_equal(w.said, "1 frontend serves; 1 that retires finishes running answers and ends then");
	change_scale(&w.change, 2); /* its slot is taken still */
	expect(&w, "start 2");
}

static void new_ones_that_fail_are_not_kept(void **state)
{
	struct world w;

	begin(&w, 1);
	change_scale(&w.change, 4);
	expect(&w, "start 1, start 2, start 3");
	ready(&w, 1);
	gone(&w, 2);
	expect(&w, "stop 3");
	expect(&w, "");
	gone(&w, 3);
	expect(&w, "bad");
	assert_string_equal(w.said, "it crashed");
	assert_int_equal(fleet_count(&w.fleet), 2);
	/* At once, while others are still to be started. */
	w.no_start = 2;
	change_scale(&w.change, 5);
	expect(&w, "start 2, bad");
	assert_string_equal(w.said, "no such program");
}

static void new_ones_have_a_time_limit(void **state)
{
	struct world w;

	begin(&w, 1);
	change_scale(&w.change, 2);
	expect(&w, "start 1");
	pass(&w, CHANGE_START_NS - 1);
	expect(&w, "");
	pass(&w, 1);
	expect(&w, "stop 1");
	gone(&w, 1);
	expect(&w, "bad");
	assert_non_null(strstr(w.said, "was not ready in time"));
}

static void one_that_has_served_is_nobodys_trial(void **state)
{
	struct world w;

	begin(&w, 1);
	change_scale(&w.change, 3);
	expect(&w, "start 1, start 2");
	ready(&w, 1);
	gone(&w, 1);
	assert_int_equal(w.fleet.slots[1].state, FLEET_DOWN);
	ready(&w, 2);
	expect(&w, "good"); /* the restart policy brings the other one back */
}

static void a_reload_replaces_everybody_in_turn(void **state)
{
	struct world w;

	begin(&w, 2);
	change_reload(&w.change);
	expect(&w, "start 2");
	ready(&w, 2);
	expect(&w, "retire 0");
	gone(&w, 0);
	expect(&w, "start 0"); /* the lowest free slot */
	ready(&w, 0);
	expect(&w, "retire 1");
	pass(&w, CHANGE_SETTLE_NS);
	expect(&w, "executor");
	expect(&w, "");
	change_on_engine_ready(&w.change);
	expect(&w, "workers");
	expect(&w, "");
	change_on_engine_ready(&w.change);
	expect(&w, "");
	gone(&w, 1);
	expect(&w, "good");
	assert_string_equal(w.said, "reloaded");
	assert_int_equal(fleet_count(&w.fleet), 2);
}

static void a_reload_lives_with_deaths(void **state)
{
	struct world w;

	begin(&w, 3);
	change_reload(&w.change);
	expect(&w, "start 3");
	gone(&w, 0); /* the one that is being replaced */
	gone(&w, 1);
	expect(&w, "");
	ready(&w, 1);
	ready(&w, 3);
	expect(&w, "retire 0");
	gone(&w, 3); /* the successor, after it has served */
	gone(&w, 0);
	expect(&w, "start 0");
	ready(&w, 0);
	expect(&w, "retire 1");
	gone(&w, 1);
	expect(&w, "start 1");
	ready(&w, 3);
	ready(&w, 1);
	expect(&w, "retire 2");
	gone(&w, 2);
	expect(&w, "executor");
	assert_int_equal(fleet_count(&w.fleet), 3);
	assert_int_equal(fleet_count_in(&w.fleet, FLEET_SERVING), 3);
}

static void a_program_that_cannot_start_stops_the_reload(void **state)
{
	struct world w;

	begin(&w, 2);
	change_reload(&w.change);
	expect(&w, "start 2");
	gone(&w, 2);
	expect(&w, "bad");
	assert_int_equal(fleet_count_in(&w.fleet, FLEET_SERVING), 2);
	w.no_start = 2;
	change_reload(&w.change);
	expect(&w, "start 2, bad");
	assert_int_equal(fleet_count_in(&w.fleet, FLEET_SERVING), 2);
}

static void an_engine_that_fails_ends_the_reload(void **state)
{
	struct world w;

	begin(&w, 1);
	change_reload(&w.change);
	expect(&w, "start 1");
	change_on_engine_failed(&w.change, "a worker died"); /* not our doing: it is started again */
	ready(&w, 1);
	expect(&w, "retire 0");
	gone(&w, 0);
	expect(&w, "executor");
	change_on_engine_failed(&w.change, "cannot bind");
	change_on_engine_failed(&w.change, "cannot bind again");
	expect(&w, "bad");
	assert_string_equal(w.said, "cannot bind");
	change_on_engine_failed(&w.change, "still");
	change_on_engine_ready(&w.change);
	expect(&w, "");
}

static void there_is_room_for_one_more_or_none(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	begin(w, LIMIT_FRONTENDS);
	change_reload(&w->change);
	expect(w, "bad");
	assert_non_null(strstr(w->said, "no room for one more frontend"));
	assert_int_equal(fleet_count_in(&w->fleet, FLEET_SERVING), LIMIT_FRONTENDS);
	free(w);
}

static void an_end_of_the_mesh_ends_it(void **state)
{
	struct world w;

	begin(&w, 1);
	change_cancel(&w.change, "nothing runs");
	change_scale(&w.change, 2);
	expect(&w, "start 1");
	change_cancel(&w.change, "the mesh is ending");
	expect(&w, "stop 1, bad");
	assert_string_equal(w.said, "the mesh is ending");
	assert_false(change_is_trial(&w.change, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_are_started_at_once),
		cmocka_unit_test(fewer_retire_one_by_one),
		cmocka_unit_test(who_still_has_answers_is_not_waited_for_for_ever),
		cmocka_unit_test(new_ones_that_fail_are_not_kept),
		cmocka_unit_test(new_ones_have_a_time_limit),
		cmocka_unit_test(one_that_has_served_is_nobodys_trial),
		cmocka_unit_test(a_reload_replaces_everybody_in_turn),
		cmocka_unit_test(a_reload_lives_with_deaths),
		cmocka_unit_test(a_program_that_cannot_start_stops_the_reload),
		cmocka_unit_test(an_engine_that_fails_ends_the_reload),
		cmocka_unit_test(there_is_room_for_one_more_or_none),
		cmocka_unit_test(an_end_of_the_mesh_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
