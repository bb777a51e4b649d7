/* test_balance.c - who gives which connections to whom: single decisions, and meshes of clients with seeds in virtual time. */
#include "common/mem.h"
#include "common/splitmix.h"
#include "frontend/balance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- single decisions ---- */

/* A frontend that has seen n_used connections of `each` requests a second for long. */
static struct balance_load load_of(double n_used, double each)
{
	return (struct balance_load){.rate = n_used * each, .answered = n_used * each * BALANCE_MEMORY_S, .seconds = n_used * BALANCE_MEMORY_S, .n_used = n_used};
}

static void view_of_counts(struct balance_view *v, const double *counts, uint32_t n, double each)
{
	memset(v, 0, sizeof(*v));
	v->n = n;
	for (uint32_t i = 0; i < n; i++) {
		v->loads[i] = load_of(counts[i], each);
		v->serves[i] = true;
	}
}

/* How many connections of `each` frontend 0 gives; to[i]: to whom. */
static uint32_t given(const struct balance_view *v, double each, uint32_t *to)
{
	struct balance_conn c;
	struct balance_plan p;
	uint32_t n = 0;
	int target;

	memset(to, 0, v->n * sizeof(*to));
	balance_conn_init(&c);
	if (!balance_plan(&p, v)) return 0;
	while ((target = balance_pick(&p, &c, each, 0)) >= 0) {
		to[target]++;
		n++;
	}
	return n;
}

static void excess_goes_to_those_below(void **state)
{
	struct balance_view v;
	uint32_t to[4];

	view_of_counts(&v, (const double[]){22, 10, 16, 16}, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 6);
	assert_int_equal(to[1], 6);
	view_of_counts(&v, (const double[]){25, 13, 13, 13}, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 9);
	for (int i = 1; i < 4; i++) assert_int_equal(to[i], 3);
}

static void two_above_share_a_gap(void **state)
{
	struct balance_view v;
	uint32_t to[4];

	view_of_counts(&v, (const double[]){20, 20, 12, 12}, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 4);
	assert_int_equal(to[2], 2);
	assert_int_equal(to[3], 2);
}

static void nothing_moves_without_need(void **state)
{
	static const double even[] = {16, 16, 16, 16}, nearly[] = {17, 16, 16, 16}, below[] = {10, 22, 16, 16}, one[] = {1, 0, 0, 0}, alone[] = {64};
	struct balance_view v;
	uint32_t to[4];

	view_of_counts(&v, even, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 0);
	view_of_counts(&v, nearly, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 0); /* 16, 17 is no better than 17, 16 */
	view_of_counts(&v, below, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 0);
	view_of_counts(&v, one, 4, 1000);
	assert_int_equal(given(&v, 1000, to), 0);
	view_of_counts(&v, alone, 1, 1000);
	assert_int_equal(given(&v, 1000, to), 0);
	view_of_counts(&v, even, 4, 0);
	assert_int_equal(given(&v, 0, to), 0);
}

static void those_that_do_not_serve_get_nothing(void **state)
{
	struct balance_view v;
	uint32_t to[4];

	view_of_counts(&v, (const double[]){30, 2, 16, 16}, 4, 1000);
	v.serves[1] = false;
	assert_int_equal(given(&v, 1000, to), 8); /* 62 on three */
	assert_int_equal(to[1], 0);
}

static void a_slow_sibling_is_not_buried(void **state)
{
	struct balance_view v;
	uint32_t to[2];

	view_of_counts(&v, (const double[]){16, 16}, 2, 1000);
	v.loads[1].rate /= 4;
	assert_true(given(&v, 1000, to) > 0);
	v.loads[1].n_used = 60; /* it has more of the connections than it should, and answers few */
	assert_int_equal(given(&v, 1000, to), 0);
}

static void what_is_settled_or_unused_stays(void **state)
{
	struct balance_conn c;
	struct balance_view v;
	struct balance_plan p;

	view_of_counts(&v, (const double[]){22, 10, 16, 16}, 4, 1000);
	assert_true(balance_plan(&p, &v));
	balance_conn_init(&c);
	c.settled_ns = 100;
	assert_int_equal(balance_pick(&p, &c, 1000, 99), -1);
	assert_int_equal(balance_pick(&p, &c, 0, 100), -1);
	assert_int_equal(balance_pick(&p, &c, 1000, 100), 1);
	assert_int_equal(balance_pick(&p, &c, 50000, 100), -1); /* would only turn it round */
}

static void looks_fade(void **state)
{
	struct balance_load l = {0};
	struct balance_conn c;

	balance_conn_init(&c);
	balance_look(&c, 0, 0.1, 5, &l);
	assert_true(l.n_used == 0 && l.rate == 0);
	for (int i = 1; i <= 600; i++) balance_look(&c, (uint32_t)i * 2, 0.1, 5, &l); /* 20/s for a minute */
	assert_float_equal(balance_rate(&c, 5), 20, 2);
	memset(&l, 0, sizeof(l));
	for (int i = 0; i < 1000; i++) balance_look(&c, 1200, 0.1, 5, &l);
	memset(&l, 0, sizeof(l));
	balance_look(&c, 1200, 0.1, 5, &l); /* silent for long: it counts as one that has not begun */
	assert_true(l.n_used == 0 && l.rate == 0 && c.seconds == 0);
	balance_look(&c, 1201, 0.1, 5, &l);
	assert_true(l.n_used == 1 && l.rate > 0 && l.rate < 10);
}

/* ---- meshes ---- */

#define SIM_CONNS 1024
#define SIM_TICK_NS (100 * NS_PER_MS)

struct sim {
	uint64_t seed, now;
	uint32_t n_frontends, n_conns;
	struct balance_conn conns[SIM_CONNS];
	uint32_t at[SIM_CONNS];         /* frontend */
	double demand[SIM_CONNS];       /* requests a second */
	double answered[SIM_CONNS];     /* of it, whole and parts */
	double slow;                    /* what frontend 0 can do at most, requests a second; 0: anything */
	uint64_t moves, moves_in_second, moves_in_second_max;
	double served[LIMIT_FRONTENDS]; /* since sim_count() */
	struct balance_view view;
};

static double sim_random(struct sim *s)
{
	return (double)(splitmix_next(&s->seed) >> 11) / 9007199254740992.0;
}

static void sim_init(struct sim *s, uint64_t seed, uint32_t n_frontends, uint32_t n_conns)
{
	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->n_frontends = s->view.n = n_frontends;
	s->n_conns = n_conns;
	for (uint32_t i = 0; i < n_frontends; i++) s->view.serves[i] = true;
	for (uint32_t i = 0; i < n_conns; i++) {
		balance_conn_init(&s->conns[i]);
		s->at[i] = (uint32_t)(sim_random(s) * n_frontends); /* as SO_REUSEPORT does */
	}
}

/* Requests come as clients that wait for their answer send them: evenly, but for a part that is chance. */
static void sim_serve(struct sim *s, double seconds)
{
	double asked = 0;

	for (uint32_t i = 0; i < s->n_conns; i++)
		if (s->at[i] == 0) asked += s->demand[i];
	for (uint32_t i = 0; i < s->n_conns; i++) {
		double n = s->demand[i] * seconds * (0.5 + sim_random(s));

		if (s->at[i] == 0 && s->slow > 0 && asked > s->slow) n *= s->slow / asked;
		s->answered[i] += n;
		s->served[s->at[i]] += n;
	}
}

static void sim_tick_frontend(struct sim *s, uint32_t self)
{
	struct balance_view *v = &s->view;
	double usual = balance_usual(v);
	struct balance_plan p;

	v->self = self;
	v->loads[self] = (struct balance_load){0};
	for (uint32_t i = 0; i < s->n_conns; i++)
		if (s->at[i] == self) balance_look(&s->conns[i], (uint32_t)s->answered[i], 0.1, usual, &v->loads[self]);
	if (!balance_plan(&p, v)) return;
	for (uint32_t i = 0; i < s->n_conns; i++) {
		int target = s->at[i] == self ? balance_pick(&p, &s->conns[i], balance_rate(&s->conns[i], usual), s->now) : -1;

		if (target < 0 || sim_random(s) < 0.2) continue; /* some do not become idle in time */
		assert_int_not_equal(target, self);
		assert_true(s->now >= s->conns[i].settled_ns);
		s->at[i] = (uint32_t)target;
		balance_moved(&v->loads[self], &s->conns[i], usual, -1);
		balance_moved(&v->loads[target], &s->conns[i], usual, 1);
		s->conns[i].settled_ns = s->now + BALANCE_SETTLE_NS;
		s->moves++;
		s->moves_in_second++;
	}
}

static void sim_run(struct sim *s, double seconds)
{
	int ticks = (int)(seconds * 10);

	memset(s->served, 0, sizeof(s->served));
	for (int t = 0; t < ticks; t++) {
		s->now += SIM_TICK_NS;
		/* Between two of the frontends time passes, too. */
		for (uint32_t f = 0; f < s->n_frontends; f++) {
			sim_serve(s, 0.1 / s->n_frontends);
			sim_tick_frontend(s, f);
		}
		if (t % 10 != 9) continue;
		if (s->moves_in_second > s->moves_in_second_max) s->moves_in_second_max = s->moves_in_second;
		s->moves_in_second = 0;
	}
}

/* How far the frontend that is farthest from the mean is from it, as a part. */
static double sim_worst(const struct sim *s)
{
	double sum = 0, worst = 0;

	for (uint32_t f = 0; f < s->n_frontends; f++) sum += s->served[f];
	for (uint32_t f = 0; f < s->n_frontends; f++) worst = fmax(worst, fabs(s->served[f] * s->n_frontends / sum - 1));
	return worst;
}

static void check(struct sim *s, const char *name, uint64_t seed, double start_s, double within, uint64_t moves_max)
{
	uint64_t moves;

	sim_run(s, start_s);
	moves = s->moves;
	sim_run(s, 30);
	if (sim_worst(s) > within) fail_msg("%s, seed %llu: %.1f%% from the mean", name, (unsigned long long)seed, 100 * sim_worst(s));
	if (s->moves - moves > moves_max)
		fail_msg("%s, seed %llu: %llu moves after the start (%llu in it)", name, (unsigned long long)seed, (unsigned long long)(s->moves - moves),
			 (unsigned long long)moves);
	assert_true(s->moves_in_second_max <= 10 * BALANCE_MOVES_MIN * s->n_frontends);
}

static void equal_clients_become_even_at_once(void **state)
{
	static struct sim s;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		sim_init(&s, seed, 4, 64);
		for (uint32_t i = 0; i < s.n_conns; i++) s.demand[i] = 300;
		check(&s, "equal", seed, 0.5, 0.04, 2);
	}
}

static void large_and_small_requests_become_even(void **state)
{
	static struct sim s;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		sim_init(&s, seed, 4, 64);
		for (uint32_t i = 0; i < s.n_conns; i++) s.demand[i] = 600 / (1 + 200 * sim_random(&s) * (i % 2));
		check(&s, "mixed", seed, 3, 0.10, 30);
	}
}

static void slow_clients_become_even(void **state)
{
	static struct sim s;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		sim_init(&s, seed, 4, 64);
		for (uint32_t i = 0; i < s.n_conns; i++) s.demand[i] = 1;
		check(&s, "slow", seed, 10, 0.15, 8);
	}
}

static void many_clients_and_added_frontends(void **state)
{
	static struct sim s;

	for (uint64_t seed = 1; seed <= 10; seed++) {
		sim_init(&s, seed, 8, SIM_CONNS);
		for (uint32_t i = 0; i < s.n_conns; i++) {
			s.demand[i] = 1 + 40 * sim_random(&s);
			s.at[i] %= 2; /* six are new */
		}
		check(&s, "many", seed, 12, 0.06, 40);
	}
}

static void a_slow_frontend_is_not_buried(void **state)
{
	static struct sim s;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		sim_init(&s, seed, 4, 64);
		for (uint32_t i = 0; i < s.n_conns; i++) s.demand[i] = 300;
		s.slow = 2000; /* of 4800 */
		sim_run(&s, 60);
		assert_true(s.view.loads[0].n_used <= 16 * BALANCE_COUNT_MAX + 3);
		assert_true(s.moves < 400);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(excess_goes_to_those_below), cmocka_unit_test(two_above_share_a_gap),
		cmocka_unit_test(nothing_moves_without_need), cmocka_unit_test(those_that_do_not_serve_get_nothing),
		cmocka_unit_test(a_slow_sibling_is_not_buried), cmocka_unit_test(what_is_settled_or_unused_stays),
		cmocka_unit_test(looks_fade), cmocka_unit_test(equal_clients_become_even_at_once),
		cmocka_unit_test(large_and_small_requests_become_even), cmocka_unit_test(slow_clients_become_even),
		cmocka_unit_test(many_clients_and_added_frontends), cmocka_unit_test(a_slow_frontend_is_not_buried),
	};

	return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
