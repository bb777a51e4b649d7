/* test_flow.c - whose request is next on a lane, against a plain search. */
#include "executor/flow.h"

#include "common/mem.h"
#include "executor/seq.h"
#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Two lanes of one mesh. */
struct bench {
	struct fair fair;
	struct flows lanes[2];
	struct seqs seqs;
	uint64_t arrivals;
};

static void bench_init(struct bench *b)
{
	*b = (struct bench){0};
	fair_init(&b->fair, true, 100);
	flows_init(&b->lanes[0]);
	flows_init(&b->lanes[1]);
	seqs_init(&b->seqs);
}

static void bench_check(const struct bench *b)
{
	flows_check(&b->lanes[0]);
	flows_check(&b->lanes[1]);
	fair_check(&b->fair);
	seqs_check(&b->seqs);
}

static void bench_release(struct bench *b)
{
	bench_check(b);
	seqs_release(&b->seqs);
	flows_release(&b->lanes[0]);
	flows_release(&b->lanes[1]);
	fair_release(&b->fair);
}

static struct seq *bench_come(struct bench *b, uint32_t lane, uint64_t tenant, uint32_t priority)
{
	static const uint32_t tokens[] = {1, 2};
	const struct msg_submit m = {.client_id = b->arrivals + 1,
				     .attempt = 1,
				     .tokens = view_of(tokens, 2),
				     .n_prompt = 2,
				     .n_output_max = 5,
				     .priority = priority};

	b->arrivals++;
	return seq_new(&b->seqs, &m, NULL, flow_enter(&b->lanes[lane], fair_enter(&b->fair, tenant)), b->arrivals);
}

static void bench_leave(struct bench *b, struct seq *s)
{
	struct fair_share *tenant = s->flow->tenant;

	seq_free(&b->seqs, s);
	fair_leave(&b->fair, tenant);
}

/* The order in which the lane would serve, each being charged 10. */
static void bench_expect(struct bench *b, const char *ids)
{
	char text[40] = "";
	struct seq *s;
	size_t n = 0;

	while ((s = flows_first(&b->lanes[0]))) {
		text[n++] = (char)('0' + s->client_id);
		seq_move(&b->seqs, s, SEQ_RUNNING);
		fair_charge(s->flow->tenant, 10);
		bench_check(b);
	}
	assert_string_equal(text, ids);
}

static void one_tenant_is_served_as_it_comes(void **state)
{
	struct bench b;

	bench_init(&b);
	for (int i = 0; i < 5; i++) bench_come(&b, 0, 0, i == 3 ? 1 : 2);
	bench_expect(&b, "41235");
	bench_release(&b);
}

static void tenants_take_turns(void **state)
{
	struct bench b;

	bench_init(&b);
	for (int i = 0; i < 5; i++) bench_come(&b, 0, 1ull << 32, 2);
	bench_come(&b, 0, 2ull << 32, 2);
	bench_come(&b, 0, 2ull << 32, 2);
	bench_expect(&b, "1627345");
	bench_release(&b);
}

/* Two names of an account share what it gets with another account. */
static void names_of_an_account_share_its_turns(void **state)
{
	struct bench b;

	bench_init(&b);
	for (int i = 0; i < 2; i++) bench_come(&b, 0, 1ull << 32 | 1, 2); /* 1 2 */
	for (int i = 0; i < 2; i++) bench_come(&b, 0, 1ull << 32 | 2, 2); /* 3 4 */
	for (int i = 0; i < 5; i++) bench_come(&b, 0, 2ull << 32, 2);     /* 5 to 9 */
	bench_expect(&b, "153627489");
	bench_release(&b);
}

static void priority_goes_before_shares(void **state)
{
	struct bench b;

	bench_init(&b);
	bench_come(&b, 0, 2ull << 32, 5);
	bench_come(&b, 0, 1ull << 32, 5);
	for (int i = 0; i < 3; i++) bench_come(&b, 0, 1ull << 32, 4);
	bench_expect(&b, "34512");
	bench_release(&b);
}

/* What any lane says is what a search finds, whoever comes, goes, runs and is charged. */
static void the_first_is_the_first_of_any_crowd(void **state)
{
	enum { N = 120 };
	struct seq *all[N] = {NULL};
	struct bench b;

	srand(11);
	bench_init(&b);
	for (uint32_t round = 0; round < 20000; round++) {
		struct seq **s = &all[rand() % N], *best = NULL, *first;
		uint32_t lane = (uint32_t)rand() % 2;

		if (!*s) *s = bench_come(&b, (uint32_t)rand() % 2, (uint64_t)(rand() % 3) << 32 | (uint64_t)(rand() % 3), (uint32_t)rand() % 2);
		else if (rand() % 3 == 0) bench_leave(&b, *s), *s = NULL;
		else if ((*s)->state == SEQ_WAITING) seq_move(&b.seqs, *s, SEQ_RUNNING);
		else if (rand() % 2) seq_move(&b.seqs, *s, SEQ_WAITING);
		else fair_charge((*s)->flow->tenant, (uint64_t)rand() % 20);
		for (uint32_t i = 0; i < N; i++) {
			const struct fair_share *t, *u;

			if (!all[i] || all[i]->state != SEQ_WAITING || all[i]->flow->flows != &b.lanes[lane]) continue;
			if (!best) best = all[i];
			t = all[i]->flow->tenant;
			u = best->flow->tenant;
			if (all[i]->priority != best->priority) {
				if (all[i]->priority < best->priority) best = all[i];
			} else if (fair_has_more(t, u) != fair_has_more(u, t)) {
				if (fair_has_more(u, t)) best = all[i];
			} else if (all[i]->arrival < best->arrival) {
				best = all[i];
			}
		}
		first = flows_first(&b.lanes[lane]);
		assert_ptr_equal(first, best);
		if (round % 64 == 0) bench_check(&b);
	}
	bench_release(&b);
}

static void come_and_go(void)
{
	struct bench b;

	bench_init(&b);
	for (uint32_t i = 0; i < 100; i++) {
		struct seq *s = bench_come(&b, i % 2, (uint64_t)(i % 7) << 32, 1);

		if (i % 3) bench_leave(&b, s);
	}
	bench_release(&b);
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
		cmocka_unit_test(one_tenant_is_served_as_it_comes),
		cmocka_unit_test(tenants_take_turns),
		cmocka_unit_test(names_of_an_account_share_its_turns),
		cmocka_unit_test(priority_goes_before_shares),
		cmocka_unit_test(the_first_is_the_first_of_any_crowd),
		cmocka_unit_test(nothing_leaks),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
