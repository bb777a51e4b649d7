/* test_fleet.c - who accepts from which listening socket, told by scripts and by random histories.
 *
 * The test keeps what each frontend has been told. A frontend accepts from its home while it serves, and from what it was told. */
#include "common/splitmix.h"
#include "sluice/fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct world {
	struct fleet fleet;
	bool told[LIMIT_FRONTENDS][LIMIT_FRONTENDS]; /* slot, socket */
	uint32_t n_open, n_told;
	bool no_more; /* sockets */
};

static bool on_open(void *ctx, uint32_t socket)
{
	struct world *w = ctx;

	assert_int_equal(socket, w->n_open);
	if (w->no_more) return false;
	w->n_open++;
	return true;
}

static void on_listener(void *ctx, uint32_t slot, uint32_t socket, bool on)
{
	struct world *w = ctx;

	assert_true(socket < w->n_open);
	assert_int_equal(w->fleet.slots[slot].state, FLEET_SERVING);
	assert_int_not_equal(w->fleet.slots[slot].home, socket);
	assert_int_not_equal(w->told[slot][socket], on);
	w->told[slot][socket] = on;
	w->n_told++;
}

static void begin(struct world *w, bool is_shared)
{
	memset(w, 0, sizeof(*w));
	fleet_init(&w->fleet, is_shared, &(struct fleet_out){w, on_open, on_listener});
}

static bool accepts(const struct world *w, uint32_t slot, uint32_t socket)
{
	const struct fleet_slot *s = &w->fleet.slots[slot];

	return s->state == FLEET_SERVING && (s->home == socket || w->told[slot][socket]);
}

/* Nobody in a queue waits while anybody serves; one accepts, and besides only those whose home it is. */
static void look(const struct world *w)
{
	const struct fleet *f = &w->fleet;

	fleet_check(f);
	for (uint32_t i = 0; i < f->n_sockets && !f->is_shared; i++) {
		uint32_t n = 0;

		for (uint32_t s = 0; s < LIMIT_FRONTENDS; s++) {
			if (!accepts(w, s, i)) continue;
			n++;
			assert_true(s == f->sockets[i].holder || f->slots[s].home == i);
		}
		assert_true(n > 0 || fleet_count_in(f, FLEET_SERVING) == 0);
	}
}

static uint32_t add(struct world *w, uint32_t replaces)
{
	uint32_t slot = fleet_add(&w->fleet, replaces);

	if (slot != FLEET_NONE) memset(w->told[slot], 0, sizeof(w->told[slot]));
	look(w);
	return slot;
}

static void ready(struct world *w, uint32_t slot)
{
	fleet_on_ready(&w->fleet, slot);
	look(w);
}

static void gone(struct world *w, uint32_t slot)
{
	memset(w->told[slot], 0, sizeof(w->told[slot]));
	fleet_on_gone(&w->fleet, slot);
	look(w);
}

static void retire(struct world *w, uint32_t slot, uint32_t successor)
{
	fleet_retire(&w->fleet, slot, successor);
	look(w);
}

static void start(struct world *w, uint32_t n)
{
	begin(w, false);
	for (uint32_t i = 0; i < n; i++) assert_int_equal(add(w, FLEET_NONE), i);
	for (uint32_t i = 0; i < n; i++) ready(w, i);
	assert_int_equal(w->n_open, n);
}

static void the_first_that_serves_accepts_for_all(void **state)
{
	struct world w;

	begin(&w, false);
	for (uint32_t i = 0; i < 3; i++) add(&w, FLEET_NONE);
	assert_int_equal(w.n_told, 0);
	ready(&w, 1);
	assert_true(accepts(&w, 1, 0) && accepts(&w, 1, 1) && accepts(&w, 1, 2));
	ready(&w, 0);
	assert_true(accepts(&w, 0, 0) && !accepts(&w, 1, 0) && accepts(&w, 1, 2));
}

static void sockets_of_the_dead_are_lent(void **state)
{
	struct world w;

	start(&w, 3);
	gone(&w, 1);
	assert_true(accepts(&w, 0, 1));
	gone(&w, 0); /* the lender and the borrower */
	assert_true(accepts(&w, 2, 0) && accepts(&w, 2, 1));
	ready(&w, 1);
	assert_true(accepts(&w, 1, 1) && !accepts(&w, 2, 1) && accepts(&w, 2, 0));
	gone(&w, 1);
	gone(&w, 2);
	assert_int_equal(w.fleet.sockets[0].holder, FLEET_NONE);
	ready(&w, 0);
	assert_true(accepts(&w, 0, 0) && accepts(&w, 0, 1) && accepts(&w, 0, 2));
}

static void siblings_inherit_and_give_back(void **state)
{
	struct world w;

	start(&w, 4);
	retire(&w, 3, FLEET_NONE);
	retire(&w, 2, FLEET_NONE);
	assert_int_equal(fleet_count(&w.fleet), 2);
	assert_int_not_equal(w.fleet.sockets[2].owner, w.fleet.sockets[3].owner);
	fleet_remove(&w.fleet, 3);
	fleet_remove(&w.fleet, 2);
	look(&w);
	/* What was inherited is told again to the next life, and what is lent meanwhile is taken back. */
	gone(&w, 0);
	ready(&w, 0);
	assert_int_equal(w.fleet.sockets[0].holder, 0);
	/* No new socket: the idle one is given to the new frontend when that serves. */
	assert_int_equal(add(&w, FLEET_NONE), 2);
	assert_int_equal(w.n_open, 4);
	assert_int_equal(w.fleet.slots[2].home, 2);
	assert_int_not_equal(w.fleet.sockets[2].holder, 2);
	ready(&w, 2);
	assert_int_equal(w.fleet.sockets[2].holder, 2);
	add(&w, FLEET_NONE);
	assert_int_equal(add(&w, FLEET_NONE), 4);
	assert_int_equal(w.n_open, 5);
}

static void a_successor_takes_everything_over(void **state)
{
	struct world w;
	uint32_t next;

	start(&w, 2);
	retire(&w, 1, FLEET_NONE);
	fleet_remove(&w.fleet, 1);
	next = add(&w, 0);
	assert_int_equal(next, 1);
	assert_int_equal(w.fleet.slots[1].home, 0);
	ready(&w, next);
	assert_true(accepts(&w, 0, 0) && accepts(&w, next, 0));
	retire(&w, 0, next);
	assert_true(accepts(&w, next, 0) && accepts(&w, next, 1));
	assert_int_equal(w.fleet.sockets[1].owner, next);
}

static void a_failed_successor_changes_nothing(void **state)
{
	struct world w;
	uint32_t next;

	start(&w, 2);
	next = add(&w, 1);
	w.n_told = 0;
	fleet_remove(&w.fleet, next);
	look(&w);
	assert_int_equal(w.n_told, 0);
	next = add(&w, FLEET_NONE); /* a new socket, which siblings keep */
	fleet_remove(&w.fleet, next);
	look(&w);
	assert_int_equal(w.fleet.n_sockets, 3);
	w.no_more = true;
	assert_int_equal(add(&w, FLEET_NONE), 2); /* with the idle socket */
	assert_int_equal(add(&w, FLEET_NONE), FLEET_NONE);
	assert_int_equal(fleet_count(&w.fleet), 3);
}

static void places_are_limited(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	start(w, LIMIT_FRONTENDS);
	assert_int_equal(add(w, FLEET_NONE), FLEET_NONE);
	assert_int_equal(add(w, 0), FLEET_NONE);
	retire(w, 7, FLEET_NONE);
	assert_int_equal(add(w, 0), FLEET_NONE);
	fleet_remove(&w->fleet, 7);
	assert_int_equal(add(w, 0), 7);
	free(w);
}

static void of_a_shared_socket_nobody_is_told(void **state)
{
	struct world w;

	begin(&w, true);
	for (uint32_t i = 0; i < 3; i++) add(&w, FLEET_NONE);
	for (uint32_t i = 0; i < 3; i++) ready(&w, i);
	gone(&w, 0);
	ready(&w, 0);
	retire(&w, 1, add(&w, 1));
	retire(&w, 2, FLEET_NONE);
	assert_int_equal(w.n_told, 0);
	assert_int_equal(w.n_open, 1);
	assert_int_equal(w.fleet.slots[3].home, 0);
}

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)(splitmix_next(&seed) % n);
}

static uint32_t any_in(const struct world *w, enum fleet_state state)
{
	uint32_t first = rnd(12);

	for (uint32_t i = 0; i < 12; i++)
		if (w->fleet.slots[(first + i) % 12].state == state) return (first + i) % 12;
	return FLEET_NONE;
}

static void random_step(struct world *w)
{
	uint32_t slot = any_in(w, (enum fleet_state)(1 + rnd(4))), other = any_in(w, FLEET_SERVING);
	enum fleet_state at;

	if (slot == FLEET_NONE || rnd(4) == 0) {
		if (any_in(w, FLEET_EMPTY) == FLEET_NONE) return;
		add(w, rnd(2) || !other || other == FLEET_NONE ? FLEET_NONE : other);
		return;
	}
	at = w->fleet.slots[slot].state;
	if (at == FLEET_STARTING && rnd(4) == 0 && fleet_count(&w->fleet) > 1) {
		fleet_remove(&w->fleet, slot);
		look(w);
	} else if (at == FLEET_STARTING || at == FLEET_DOWN) {
		if (rnd(8) || fleet_count(&w->fleet) == 1) ready(w, slot);
		else retire(w, slot, FLEET_NONE);
	} else if (at == FLEET_SERVING) {
		if (rnd(2)) gone(w, slot);
		else if (fleet_count(&w->fleet) > 1) retire(w, slot, other != slot && rnd(2) ? other : FLEET_NONE);
	} else if (at == FLEET_RETIRING) {
		fleet_remove(&w->fleet, slot);
		look(w);
	}
}

static void whatever_happens_nobody_waits(void **state)
{
	struct world w;

	for (uint64_t i = 1; i <= 300; i++) {
		seed = i;
		start(&w, 1 + rnd(4));
		for (int k = 0; k < 400; k++) random_step(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_that_serves_accepts_for_all),
		cmocka_unit_test(sockets_of_the_dead_are_lent),
		cmocka_unit_test(siblings_inherit_and_give_back),
		cmocka_unit_test(a_successor_takes_everything_over),
		cmocka_unit_test(a_failed_successor_changes_nothing),
		cmocka_unit_test(places_are_limited),
		cmocka_unit_test(of_a_shared_socket_nobody_is_told),
		cmocka_unit_test(whatever_happens_nobody_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
