/* test_seq.c - requests: their order, their states, their tokens and their end. */
#include "executor/seq.h"

#include "common/mem.h"
#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t tokens[] = {5, 6, 7, 8, 9, 10};

static struct msg_submit submit(uint64_t id, uint32_t priority)
{
	return (struct msg_submit){.client_id = id,
				   .attempt = 3,
				   .tokens = view_of(tokens, 4),
				   .n_prompt = 3,
				   .n_output_max = 10,
				   .priority = priority};
}

/* One tenant on one lane. */
struct place {
	struct fair fair;
	struct flows flows;
};

static void place_init(struct place *p)
{
	fair_init(&p->fair, false, 1);
	flows_init(&p->flows);
}

static void place_release(struct place *p)
{
	flows_release(&p->flows);
	fair_release(&p->fair);
}

static struct flow *place_flow(struct place *p)
{
	return flow_enter(&p->flows, fair_enter(&p->fair, 0));
}

static void place_free(struct place *p, struct seqs *t, struct seq *s)
{
	struct fair_share *tenant = s->flow->tenant;

	seq_free(t, s);
	fair_leave(&p->fair, tenant);
	flows_check(&p->flows);
	fair_check(&p->fair);
}

static struct seq *add(struct seqs *t, struct place *p, uint64_t id, uint32_t priority)
{
	struct msg_submit m = submit(id, priority);
	struct seq *s = seq_new(t, &m, NULL, place_flow(p), id);

	seqs_check(t);
	return s;
}

static void lower_numbers_and_earlier_arrivals_go_first(void **state)
{
	static const struct {
		uint32_t priority_a, priority_b;
		uint64_t arrival_a, arrival_b;
		bool before;
	} rows[] = {{1, 2, 9, 1, true}, {2, 1, 1, 9, false}, {1, 1, 1, 2, true}, {1, 1, 2, 1, false}, {1, 1, 2, 2, false}};
	uint32_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct seq a = {.priority = rows[i].priority_a, .arrival = rows[i].arrival_a};
		struct seq b = {.priority = rows[i].priority_b, .arrival = rows[i].arrival_b};

		assert_int_equal(seq_before(&a, &b), rows[i].before);
	}
}

static void a_new_request_has_what_the_submit_said(void **state)
{
	static const uint32_t stops[] = {1, 2};
	struct msg_submit m = submit(9, 4);
	struct place p;
	struct seqs t;
	struct seq *s;

	seqs_init(&t);
	place_init(&p);
	m.n_output_min = 2;
	m.stop_ids = view_of(stops, 2);
	m.temperature = 0.5f;
	m.top_p = 0.75f;
	m.top_k = 6;
	m.min_p = 0.25f;
	m.seed = 1ull << 40;
	m.choice = 2;
	m.n_logprobs = 5;
	m.cache_salt = view_text("x");
	s = seq_new(&t, &m, (struct lane *)&m, place_flow(&p), 77);
	seqs_check(&t);
	assert_ptr_equal(s->lane, &m);
	assert_ptr_equal(s->flow->flows, &p.flows);
	assert_int_equal(s->client_id, 9);
	assert_int_equal(s->attempt, 3);
	assert_int_equal(s->priority, 4);
	assert_int_equal(s->arrival, 77);
	assert_int_equal(s->n_tokens, 4);
	assert_memory_equal(s->tokens, tokens, 16);
	assert_int_equal(s->n_prompt, 3);
	assert_int_equal(seq_n_output(s), 1);
	assert_int_equal(s->ask->n_output_max, 10);
	assert_int_equal(s->ask->n_output_min, 2);
	assert_int_equal(s->ask->stop_ids.n, 2);
	assert_ptr_not_equal(s->ask->stop_ids.data, stops);
	assert_memory_equal(s->ask->stop_ids.data, stops, 8);
	assert_true(s->ask->temperature == 0.5f && s->ask->top_p == 0.75f && s->ask->min_p == 0.25f);
	assert_int_equal(s->ask->top_k, 6);
	assert_true(s->ask->seed == 1ull << 40);
	assert_int_equal(s->ask->choice, 2);
	assert_int_equal(s->ask->n_logprobs, 5);
	assert_int_equal(s->ask->tokens.n, 0); /* they are its own */
	assert_int_equal(s->logprobs->base, 1);
	assert_int_equal(s->n_sent, 1); /* what the frontend has needs no sending */
	assert_true(s->accept_due);
	assert_int_equal(s->state, SEQ_WAITING);
	assert_int_equal(s->finish, FINISH_NONE);
	assert_true(s->root.lo == kvpool_root("x", 1).lo && s->root.hi == kvpool_root("x", 1).hi);
	assert_ptr_equal(seqs_find(&t, 9), s);
	assert_null(seqs_find(&t, 8));
	assert_int_equal(seqs_len(&t), 1);
	assert_ptr_equal(flows_first(&p.flows), s);
	assert_null(add(&t, &p, 10, 4)->logprobs);
	assert_int_equal(seqs_len(&t), 2);
	seqs_release(&t);
	place_release(&p);
}

static void the_heap_gives_the_first_of_any_crowd(void **state)
{
	enum { N = 300 };
	struct seq *all[N];
	struct place p;
	uint32_t i, k, n = 0, round;
	struct seqs t;

	srand(5);
	seqs_init(&t);
	place_init(&p);
	assert_null(flows_first(&p.flows));
	for (round = 0; round < 4; round++) {
		while (n < N) {
			all[n] = add(&t, &p, round * 1000 + n + 1, (uint32_t)rand() % 20);
			n++;
		}
		/* Out from anywhere: running, ended, or gone. */
		while (n > N / 3 * (round % 3)) {
			struct seq *best = all[0], *s;

			for (i = 1; i < n; i++)
				if (seq_before(all[i], best)) best = all[i];
			assert_ptr_equal(flows_first(&p.flows), best);
			assert_int_equal(p.flows.n_waiting, n);
			s = n % 3 ? best : all[(uint32_t)rand() % n];
			for (k = 0; all[k] != s; k++) {
			}
			all[k] = all[--n];
			if (n % 2) seq_move(&t, s, SEQ_RUNNING);
			place_free(&p, &t, s);
			seqs_check(&t);
			assert_int_equal(seqs_len(&t), n);
		}
	}
	seqs_release(&t);
	place_release(&p);
}

static void only_these_moves_are_allowed(void **state)
{
	static const bool may[SEQ_STATES][SEQ_STATES] = {
		[SEQ_WAITING] = {[SEQ_SUSPECT] = true, [SEQ_RUNNING] = true, [SEQ_DONE] = true},
		[SEQ_SUSPECT] = {[SEQ_RUNNING] = true, [SEQ_DONE] = true},
		[SEQ_RUNNING] = {[SEQ_WAITING] = true, [SEQ_SUSPECT] = true, [SEQ_DONE] = true},
	};
	int a, b;

	for (a = 0; a < SEQ_STATES; a++)
		for (b = 0; b < SEQ_STATES; b++)
			assert_int_equal(seq_may_move((enum seq_state)a, (enum seq_state)b), may[a][b]);
}

static void expect_list(const struct seqs *t, enum seq_state state, const char *ids)
{
	const struct list *l = &t->in_state[state];
	char text[64] = "";

	LIST_EACH(l, it, nx)
	{
		char c[2] = {(char)('0' + CONTAINER_OF(it, struct seq, link)->client_id), 0};

		strcat(text, c);
	}
	assert_string_equal(text, ids);
	assert_int_equal(l->len, strlen(ids));
	seqs_check(t);
}

static void running_and_suspect_lists_are_in_order(void **state)
{
	struct place p;
	struct seq *s[7];
	struct seqs t;
	uint32_t i;

	seqs_init(&t);
	place_init(&p);
	for (i = 1; i <= 6; i++) s[i] = add(&t, &p, i, i == 5 ? 0 : 1);
	expect_list(&t, SEQ_WAITING, "123456");
	seq_move(&t, s[3], SEQ_RUNNING);
	seq_move(&t, s[1], SEQ_RUNNING);
	seq_move(&t, s[6], SEQ_RUNNING);
	seq_move(&t, s[5], SEQ_RUNNING);
	seq_move(&t, s[4], SEQ_RUNNING);
	expect_list(&t, SEQ_RUNNING, "51346");
	expect_list(&t, SEQ_WAITING, "2");
	assert_int_equal(p.flows.n_waiting, 1);
	seq_move(&t, s[6], SEQ_SUSPECT);
	seq_move(&t, s[5], SEQ_SUSPECT);
	seq_move(&t, s[3], SEQ_SUSPECT);
	expect_list(&t, SEQ_SUSPECT, "536");
	expect_list(&t, SEQ_RUNNING, "14");
	/* Those that wait or are done are in no order. */
	seq_move(&t, s[1], SEQ_WAITING);
	expect_list(&t, SEQ_WAITING, "21");
	assert_ptr_equal(flows_first(&p.flows), s[1]);
	s[4]->finish = s[6]->finish = s[2]->finish = FINISH_STOP;
	seq_move(&t, s[6], SEQ_DONE);
	seq_move(&t, s[4], SEQ_DONE);
	seq_move(&t, s[2], SEQ_DONE);
	expect_list(&t, SEQ_DONE, "642");
	place_free(&p, &t, s[4]);
	expect_list(&t, SEQ_DONE, "62");
	assert_null(seqs_find(&t, 4));
	seqs_release(&t);
	assert_int_equal(seqs_len(&t), 0);
	assert_int_equal(t.in_state[SEQ_DONE].len, 0);
	place_release(&p);
}

static void a_request_ends_as_its_last_token_says(void **state)
{
	static const struct {
		const char *tokens; /* prompt | output */
		uint32_t n_min, n_max, len_max;
		enum finish finish;
	} rows[] = {
		{"ab|", 0, 5, 100, FINISH_NONE},    {"abx|", 0, 5, 100, FINISH_NONE}, /* in the prompt */
		{"ab|x", 0, 5, 100, FINISH_STOP},   {"ab|y", 0, 5, 100, FINISH_STOP},
		{"ab|c", 0, 5, 100, FINISH_NONE},   {"ab|xc", 0, 5, 100, FINISH_NONE}, /* not the last */
		{"ab|x", 1, 5, 100, FINISH_NONE},   {"ab|cx", 1, 5, 100, FINISH_STOP},
		{"ab|cx", 2, 5, 100, FINISH_NONE},  {"ab|ccccc", 0, 5, 100, FINISH_LENGTH},
		{"ab|cccc", 0, 5, 100, FINISH_NONE}, {"ab|ccccx", 0, 5, 100, FINISH_STOP}, /* stop goes first */
		{"ab|ccccx", 5, 5, 100, FINISH_LENGTH}, {"ab|cc", 0, 5, 4, FINISH_LENGTH},
		{"ab|c", 0, 5, 4, FINISH_NONE},     {"ab|c", 0, 5, 2, FINISH_LENGTH},
		{"ab|", 0, 5, 2, FINISH_NONE},      {"ab|c", 0, 5, 1, FINISH_LENGTH},
	};
	uint32_t stops[] = {'x', 'y'}, i, k;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		const struct msg_submit ask = {
			.stop_ids = view_of(stops, 2), .n_output_min = rows[i].n_min, .n_output_max = rows[i].n_max};
		struct seq s = {0};

		seq_set_ask(&s, &ask);
		for (k = 0; rows[i].tokens[k]; k++) {
			if (rows[i].tokens[k] == '|')
				s.n_prompt = k;
			else
				seq_append(&s, (uint32_t)rows[i].tokens[k]);
		}
		if (seq_finish(&s, rows[i].len_max) != rows[i].finish) fail_msg("row %u: %s", i, rows[i].tokens);
		free(s.tokens);
	}
}

static void the_output_limit_is_the_smaller_one(void **state)
{
	const struct msg_submit ask = {.n_output_max = 5};
	struct seq s = {.n_prompt = 10};

	seq_set_ask(&s, &ask);
	assert_int_equal(seq_n_output_limit(&s, 100), 5);
	assert_int_equal(seq_n_output_limit(&s, 15), 5);
	assert_int_equal(seq_n_output_limit(&s, 14), 4);
	assert_int_equal(seq_n_output_limit(&s, 11), 1);
	assert_int_equal(seq_n_output_limit(&s, 10), 0);
	assert_int_equal(seq_n_output_limit(&s, 9), 0);
	assert_int_equal(seq_n_output_limit(&s, UINT32_MAX), 5);
}

static void log_probabilities_are_kept_a_token(void **state)
{
	uint32_t ids[100], i, n_top, rank, at, k;
	float lps[100];
	struct place p;
	struct msg_submit m = submit(1, 1);
	struct seqs t;
	struct seq *s;

	for (i = 0; i < 100; i++) {
		ids[i] = 1000 + i;
		lps[i] = -(float)i;
	}
	seqs_init(&t);
	place_init(&p);
	m.n_logprobs = 3;
	s = seq_new(&t, &m, NULL, place_flow(&p), 1); /* one output token is known, without any */
	for (i = 0; i < 40; i++) {
		seq_append(s, i);
		seq_append_top(s->logprobs, i + 1, i % 4, view_of(ids, 100), view_of(lps, 100), i);
		seqs_check(&t);
	}
	assert_int_equal(seq_top(s->logprobs, 0, &rank, &at), 0);
	assert_int_equal(rank, 0);
	assert_int_equal(at, 0);
	for (i = 0; i < 40; i++) {
		n_top = seq_top(s->logprobs, 1 + i, &rank, &at);
		assert_int_equal(n_top, i % 4);
		assert_int_equal(rank, i + 1);
		assert_int_equal(at, i / 4 * 6 + (i % 4) * (i % 4 - 1) / 2 * (i % 4 > 0));
		for (k = 0; k < n_top; k++) {
			float lp;

			memcpy(&lp, &s->logprobs->top_lps[at + k], sizeof(lp));
			assert_int_equal(s->logprobs->top_ids[at + k], 1000 + i + k);
			assert_true(lp == -(float)(i + k));
		}
	}
	/* Without the wish nothing is kept. */
	s = add(&t, &p, 2, 1);
	seq_append(s, 1);
	seq_append_top(s->logprobs, 7, 2, view_of(ids, 100), view_of(lps, 100), 0);
	rank = at = 9;
	assert_int_equal(seq_top(s->logprobs, 1, &rank, &at), 0);
	assert_int_equal(rank, 0);
	assert_int_equal(at, 0);
	seqs_release(&t);
	place_release(&p);
}

/* Positions of the prompt: from where the frontend is; what it has and we have not is never sent. */
static void rows_of_the_prompt_begin_where_the_frontend_is(void **state)
{
	static const struct {
		uint32_t submitted, n_rows, resubmitted, n_known, n_sent;
	} rows[] = {
		/* The prompt has 3 tokens, positions 1 and 2. */
		{0, 0, 0, 1, 1}, {1, 0, 1, 1, 1}, {0, 1, 0, 2, 1}, {0, 1, 1, 2, 1}, {0, 1, 2, 2, 2}, {0, 2, 1, 3, 1},
		{2, 1, 1, 3, 2}, /* before its own beginning there is nothing to send */
		{0, 0, 2, 2, 2}, {0, 1, 3, 3, 3}, {3, 0, 3, 3, 3}, {0, 0, 9, 3, 3},
	};
	const struct view none = view_of(NULL, 0);

	for (uint32_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct msg_submit m = submit(1, 1);
		struct place p;
		struct seqs t;
		struct seq *s;

		seqs_init(&t);
		place_init(&p);
		m.n_prompt_logprobs = 1;
		m.n_prompt_known = rows[i].submitted;
		s = seq_new(&t, &m, NULL, place_flow(&p), 1);
		assert_int_equal(seq_n_prompt_known(s), max_u32(1, rows[i].submitted));
		assert_false(seq_has_prompt_rows(s));
		for (uint32_t k = 0; k < rows[i].n_rows; k++) seq_append_top(s->prompt_logprobs, 1, 0, none, none, 0);
		assert_int_equal(seq_has_prompt_rows(s), rows[i].n_rows > 0);
		seq_set_prompt_sent(s, rows[i].resubmitted);
		seqs_check(&t);
		assert_int_equal(seq_n_prompt_known(s), rows[i].n_known);
		assert_int_equal(s->n_prompt_sent, rows[i].n_sent);
		seqs_release(&t);
		place_release(&p);
	}
}

static void a_request_without_rows_has_none_missing(void **state)
{
	struct place p;
	struct seqs t;
	struct seq *s;

	seqs_init(&t);
	place_init(&p);
	s = add(&t, &p, 1, 1);
	assert_int_equal(seq_n_prompt_known(s), 3);
	assert_false(seq_has_prompt_rows(s) || seq_is_pooling(s));
	seq_set_prompt_sent(s, 2);
	assert_int_equal(s->n_prompt_sent, 0);
	seqs_release(&t);
	place_release(&p);
}

static void a_pooling_request_ends_with_its_state(void **state)
{
	const struct msg_submit ask = {.kind = REQUEST_POOL_LAST};
	float pooled[1] = {1};
	struct seq s = {.n_prompt = 4, .n_tokens = 4};

	seq_set_ask(&s, &ask);
	assert_true(seq_is_pooling(&s));
	assert_int_equal(seq_finish(&s, 4), FINISH_NONE);
	s.pooled = pooled;
	assert_int_equal(seq_finish(&s, 4), FINISH_STOP);
}

static void live_and_die(void)
{
	struct msg_submit m = submit(1, 1);
	struct place p;
	struct seqs t;
	uint32_t i;

	seqs_init(&t);
	place_init(&p);
	m.n_logprobs = 2;
	m.n_prompt_logprobs = 2;
	m.grammar = view_text("grammar");
	for (i = 0; i < 20; i++) {
		struct seq *s;

		m.client_id = i;
		s = seq_new(&t, &m, NULL, place_flow(&p), i);
		seq_append(s, 1);
		seq_append_top(s->logprobs, 1, 1, view_of(tokens, 1), view_of(tokens, 1), 0);
		seq_append_top(s->prompt_logprobs, 1, 1, view_of(tokens, 1), view_of(tokens, 1), 0);
		s->pooled = mem_array(float, 3);
		mem_reserve(s->tables[1].v, s->tables[1].cap, 1);
		if (i % 2) place_free(&p, &t, s);
	}
	seqs_release(&t);
	place_release(&p);
}

static void nothing_leaks(void **state)
{
	size_t before;

	live_and_die(); /* cmocka's and stdio's own buffers */
	before = leak_bytes_used();
	live_and_die();
	assert_int_equal(leak_bytes_used(), before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lower_numbers_and_earlier_arrivals_go_first),
		cmocka_unit_test(a_new_request_has_what_the_submit_said),
		cmocka_unit_test(the_heap_gives_the_first_of_any_crowd),
		cmocka_unit_test(only_these_moves_are_allowed),
		cmocka_unit_test(running_and_suspect_lists_are_in_order),
		cmocka_unit_test(a_request_ends_as_its_last_token_says),
		cmocka_unit_test(the_output_limit_is_the_smaller_one),
		cmocka_unit_test(log_probabilities_are_kept_a_token),
		cmocka_unit_test(rows_of_the_prompt_begin_where_the_frontend_is),
		cmocka_unit_test(a_request_without_rows_has_none_missing),
		cmocka_unit_test(a_pooling_request_ends_with_its_state),
		cmocka_unit_test(nothing_leaks),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
