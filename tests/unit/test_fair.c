/* test_fair.c - virtual token counters of accounts and tenants: who is charged, raised, forgotten. */
#include "executor/fair.h"

#include "common/mem.h"
#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define TENANT(account, name) ((uint64_t)(account) << 32 | (name))

/* A request of the tenant that waits. */
static struct fair_share *come(struct fair *f, uint64_t tenant)
{
	struct fair_share *s = fair_enter(f, tenant);

	fair_wait(s);
	fair_check(f);
	return s;
}

/* It starts, and is charged. */
static void start(struct fair *f, struct fair_share *s, uint64_t tokens)
{
	fair_wait_ends(s);
	fair_charge(s, tokens);
	fair_check(f);
}

static void leave(struct fair *f, struct fair_share *s)
{
	fair_leave(f, s);
	fair_check(f);
}

/* One request from its arrival to its end. */
static void serve(struct fair *f, uint64_t tenant, uint64_t tokens)
{
	struct fair_share *s = come(f, tenant);

	start(f, s, tokens);
	leave(f, s);
}

static uint64_t of_account(const struct fair_share *s)
{
	return s->account->share.served;
}

static void switched_off_there_is_one_tenant(void **state)
{
	struct fair f;
	struct fair_share *a, *b;

	fair_init(&f, false, 10);
	a = come(&f, TENANT(1, 2));
	b = come(&f, TENANT(3, 4));
	assert_ptr_equal(a, b);
	assert_true(fair_is_one(&f));
	assert_int_equal(f.n_tenants, 0);
	leave(&f, (start(&f, a, 1), a));
	leave(&f, (start(&f, b, 1), b));
	fair_release(&f);
}

static void names_are_told_apart_and_nobody_has_a_place_of_its_own(void **state)
{
	struct fair f;
	struct fair_share *a, *b, *c, *none, *zero;

	fair_init(&f, true, 10);
	zero = come(&f, 0);
	assert_true(fair_is_one(&f));
	a = come(&f, TENANT(1, 2));
	b = come(&f, TENANT(1, 3));
	c = come(&f, TENANT(2, 2));
	none = come(&f, TENANT(1, 0));
	assert_ptr_equal(come(&f, TENANT(1, 2)), a);
	assert_true(a != b && a != c && a != none && none != zero && !fair_is_one(&f));
	assert_true(a->account == b->account && a->account == none->account && a->account != c->account && a->account != zero->account);
	assert_int_equal(a->n_held, 2);
	assert_int_equal(a->account->share.n_held, 4);
	assert_int_equal(f.n_tenants, 3);
	assert_int_equal(f.n_active, 5);
	start(&f, c, 0);
	leave(&f, c);
	start(&f, a, 0);
	leave(&f, a);
	assert_int_equal(f.n_active, 4);
	fair_release(&f);
}

static void a_charge_counts_for_the_tenant_and_its_account(void **state)
{
	struct fair f;
	struct fair_share *a, *b;

	fair_init(&f, true, 10);
	a = come(&f, TENANT(1, 1));
	b = come(&f, TENANT(1, 2));
	fair_charge(a, 10);
	fair_charge(b, 5);
	assert_int_equal(a->served, 10);
	assert_int_equal(b->served, 5);
	assert_int_equal(of_account(a), 15);
	assert_true(fair_has_more(a, b) && !fair_has_more(b, a) && !fair_has_more(a, a));
	fair_release(&f);
}

/* What an account has had goes before what its tenant has had. */
static void more_is_asked_of_accounts_first(void **state)
{
	struct fair f;
	struct fair_share *a, *b, *c;

	fair_init(&f, true, 10);
	a = come(&f, TENANT(1, 1));
	b = come(&f, TENANT(1, 2));
	c = come(&f, TENANT(2, 1));
	fair_charge(a, 10);
	fair_charge(b, 10);
	fair_charge(c, 15);
	assert_true(fair_has_more(a, c) && !fair_has_more(c, a) && !fair_has_more(a, b));
	fair_release(&f);
}

static void who_begins_to_wait_is_raised_to_the_least_of_those_who_wait(void **state)
{
	struct fair f;
	struct fair_share *a, *b, *c;

	fair_init(&f, true, 10);
	a = come(&f, TENANT(1, 0));
	b = come(&f, TENANT(2, 0));
	fair_charge(a, 100);
	fair_charge(b, 70);
	c = come(&f, TENANT(3, 0));
	assert_int_equal(of_account(c), 70);
	/* Who waits already is not raised by one more. */
	fair_charge(b, 100);
	fair_charge(a, 100);
	assert_ptr_equal(come(&f, TENANT(3, 0)), c);
	assert_int_equal(of_account(c), 70);
	/* Who only runs is: it does not save up. */
	start(&f, c, 1);
	start(&f, c, 1);
	assert_int_equal(of_account(c), 72);
	come(&f, TENANT(3, 0));
	assert_int_equal(of_account(c), 170);
	fair_release(&f);
}

static void when_nobody_waits_one_begins_where_the_last_one_was(void **state)
{
	struct fair f;
	struct fair_share *a, *b;

	fair_init(&f, true, 10);
	a = come(&f, TENANT(1, 0));
	fair_charge(a, 50);
	start(&f, a, 5);
	b = come(&f, TENANT(2, 0));
	assert_int_equal(of_account(b), 50);
	/* And never falls. */
	fair_charge(b, 1000);
	start(&f, b, 0);
	come(&f, TENANT(2, 0));
	assert_int_equal(of_account(b), 1050);
	fair_release(&f);
}

static void tenants_of_an_account_are_raised_among_themselves(void **state)
{
	struct fair f;
	struct fair_share *a, *b, *x;

	fair_init(&f, true, 10);
	x = come(&f, TENANT(9, 0));
	fair_charge(x, 1000);
	a = come(&f, TENANT(1, 1));
	assert_int_equal(of_account(a), 1000);
	assert_int_equal(a->served, 0);
	fair_charge(a, 40);
	b = come(&f, TENANT(1, 2));
	assert_int_equal(b->served, 40);
	assert_int_equal(of_account(a), 1040);
	fair_release(&f);
}

/* Coming back under the same name, or being forgotten, must make no difference: so it is kept as long as it does. */
static void one_that_owes_is_kept_and_one_that_does_not_is_forgotten(void **state)
{
	struct fair f;
	struct fair_share *a, *b;

	fair_init(&f, true, 10);
	a = come(&f, TENANT(1, 0)); /* holds something all the time */
	serve(&f, TENANT(2, 0), 30);
	assert_int_equal(f.accounts.by_id.len, 2);
	b = come(&f, TENANT(2, 0));
	assert_int_equal(of_account(b), 30);
	start(&f, b, 0);
	leave(&f, b);
	fair_charge(a, 29);
	serve(&f, TENANT(3, 0), 500);
	assert_non_null(map_get(&f.accounts.by_id, 2));
	fair_charge(a, 1);
	serve(&f, TENANT(4, 0), 500);
	assert_null(map_get(&f.accounts.by_id, 2));
	assert_non_null(map_get(&f.accounts.by_id, 3));
	/* When nobody is left there is nobody to owe to. */
	start(&f, a, 1);
	leave(&f, a);
	assert_int_equal(f.accounts.by_id.len, 0);
	fair_release(&f);
}

static void an_account_that_holds_nothing_forgets_its_tenants(void **state)
{
	struct fair f;
	struct fair_share *other, *a;

	fair_init(&f, true, 10);
	other = come(&f, TENANT(9, 1));
	a = come(&f, TENANT(1, 1));
	serve(&f, TENANT(1, 2), 50);
	assert_int_equal(f.n_tenants, 3);
	start(&f, a, 10);
	leave(&f, a);
	assert_int_equal(f.n_tenants, 1);
	assert_int_equal(((struct fair_share *)map_get(&f.accounts.by_id, 1))->served, 60);
	start(&f, other, 0);
	leave(&f, other);
	fair_release(&f);
}

/* However many names a client invents, it gets the share of its account. */
static void a_thousand_names_of_one_account_cost_the_others_nothing(void **state)
{
	struct fair f;
	struct fair_share *honest;
	uint64_t of_many = 0;

	fair_init(&f, true, 8);
	honest = come(&f, TENANT(1, 0));
	for (uint32_t i = 0; i < 1000; i++) {
		struct fair_share *s = come(&f, TENANT(2, 1 + i));

		/* As the flows choose: the account with the least counter. */
		if (of_account(s) <= of_account(honest)) {
			start(&f, s, 10);
			leave(&f, s);
			of_many += 10;
		} else {
			fair_wait_ends(s);
			leave(&f, s);
			fair_charge(honest, 10);
		}
		assert_true(f.n_tenants <= 8 && f.accounts.by_id.len == 2);
	}
	assert_int_equal(of_many, 5000);
	assert_int_equal(of_account(honest), 5000);
	fair_release(&f);
}

static void full_tables_put_the_rest_together(void **state)
{
	struct fair f;
	struct fair_share *s[4];

	fair_init(&f, true, 2);
	s[0] = come(&f, TENANT(1, 1));
	s[1] = come(&f, TENANT(1, 2));
	s[2] = come(&f, TENANT(1, 3));
	s[3] = come(&f, TENANT(2, 3));
	assert_ptr_equal(s[2], &s[0]->account->nameless);
	assert_ptr_equal(s[3], &s[3]->account->nameless);
	assert_ptr_not_equal(s[3]->account, s[0]->account);
	assert_ptr_equal(come(&f, TENANT(3, 3)), &f.zero.nameless);
	/* Room comes back. */
	start(&f, s[1], 0);
	leave(&f, s[1]);
	assert_int_equal(come(&f, TENANT(2, 3))->id, 3);
	fair_release(&f);
}

/* Two who both always wait, and a third who comes and goes: the two differ by the largest charge at most. */
static void two_who_always_wait_get_the_same(void **state)
{
	struct fair f;
	struct fair_share *a, *b;

	srand(7);
	fair_init(&f, true, 8);
	a = come(&f, TENANT(1, 0));
	b = come(&f, TENANT(2, 0));
	for (uint32_t i = 0; i < 20000; i++) {
		fair_charge(of_account(a) <= of_account(b) ? a : b, 1 + (uint64_t)rand() % 100);
		if (rand() % 3 == 0) serve(&f, TENANT(3, (uint32_t)rand() % 5), (uint64_t)rand() % 100);
		assert_true(llabs((long long)(of_account(a) - of_account(b))) <= 100);
	}
	fair_release(&f);
}

static void come_and_go(void)
{
	struct fair f;

	fair_init(&f, true, 100);
	for (uint32_t i = 0; i < 300; i++) come(&f, TENANT(i % 150, i));
	for (uint32_t i = 0; i < 300; i++) serve(&f, TENANT(i % 7, i), i);
	fair_release(&f);
}

static void nothing_leaks(void **state)
{
	size_t before;

	come_and_go();
	before = leak_bytes_used();
	come_and_go();
	assert_int_equal(leak_bytes_used(), before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(switched_off_there_is_one_tenant),
		cmocka_unit_test(names_are_told_apart_and_nobody_has_a_place_of_its_own),
		cmocka_unit_test(a_charge_counts_for_the_tenant_and_its_account),
		cmocka_unit_test(more_is_asked_of_accounts_first),
		cmocka_unit_test(who_begins_to_wait_is_raised_to_the_least_of_those_who_wait),
		cmocka_unit_test(when_nobody_waits_one_begins_where_the_last_one_was),
		cmocka_unit_test(tenants_of_an_account_are_raised_among_themselves),
		cmocka_unit_test(one_that_owes_is_kept_and_one_that_does_not_is_forgotten),
		cmocka_unit_test(an_account_that_holds_nothing_forgets_its_tenants),
		cmocka_unit_test(a_thousand_names_of_one_account_cost_the_others_nothing),
		cmocka_unit_test(full_tables_put_the_rest_together),
		cmocka_unit_test(two_who_always_wait_get_the_same),
		cmocka_unit_test(nothing_leaks),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
