/* test_liverows.c - rows of results with log-probabilities of prompts and pooled states: once, in order, or not at all. Tokens of the
 * output are tested with the life of requests, in test_live.c. */
#include "frontend/live.h"

#include "common/strbuf.h"
#include "proto/ids.h"
#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MS NS_PER_MS

struct bench {
	struct lives *l;
	struct live *r;
	struct strbuf out;
	uint64_t now;
	uint32_t n_accepted;
	uint32_t n_submits, attempt, n_known, n_grammar; /* of the last submit */
};

static int on_send(void *ctx, const struct msg *m)
{
	struct bench *b = ctx;

	if (m->type != MSG_submit) return ST_OK;
	b->n_submits++;
	b->attempt = m->submit.attempt;
	b->n_known = m->submit.n_prompt_known;
	b->n_grammar = m->submit.grammar.n;
	return ST_OK;
}

static bool on_token(void *ctx, void *owner, const struct live_token *t)
{
	strbuf_printf(&((struct bench *)ctx)->out, "%u@%u ", t->id, t->position);
	return false;
}

static void on_prompt_token(void *ctx, void *owner, const struct live_token *t)
{
	struct bench *b = ctx;

	strbuf_printf(&b->out, "p%u=%u r%u", t->position, t->id, t->rank);
	for (uint32_t i = 0; i < t->n_top; i++)
		strbuf_printf(&b->out, "%c%u:%g", i ? ',' : '(', col_u32(t->top_ids, i), (double)col_f32(t->top_logprobs, i));
	strbuf_puts(&b->out, t->n_top ? ") " : " ");
}

static void on_embedding(void *ctx, void *owner, struct view values)
{
	struct bench *b = ctx;

	for (uint32_t i = 0; i < values.n; i++) strbuf_printf(&b->out, "%se%g", i ? "," : "", (double)col_f32(values, i));
	strbuf_putc(&b->out, ' ');
}

static void on_accepted(void *ctx, void *owner)
{
	((struct bench *)ctx)->n_accepted++;
}

static void on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	struct bench *b = ctx;

	strbuf_printf(&b->out, "end %d", finish);
	b->r = NULL;
}

/* A request with prompt 10, 11, 12, 13, 14, submitted. */
static void bench_init(struct bench *b, uint32_t kind, uint32_t n_prompt_logprobs, bool deaf)
{
	static const uint32_t prompt[] = {10, 11, 12, 13, 14};
	const struct lives_config cfg = {.silence_ns = NS_PER_S, .hello_ns = 100 * MS, .requests_max = 4};
	const struct lives_out out = {.ctx = b, .send = on_send, .on_token = on_token, .on_end = on_end,
				      .on_prompt_token = deaf ? NULL : on_prompt_token, .on_embedding = deaf ? NULL : on_embedding,
				      .on_accepted = on_accepted};
	const struct msg_submit m = {.tokens = view_of(prompt, 5),
				     .n_prompt = 5,
				     .n_output_max = kind == REQUEST_GENERATE ? 4 : 0,
				     .kind = kind,
				     .n_prompt_logprobs = n_prompt_logprobs,
				     .grammar = view_text("grammar")};
	const struct msg welcome = {.type = MSG_welcome, .welcome = {PROTO_VERSION, 1, 2048, 9}};

	*b = (struct bench){.now = 1};
	strbuf_init(&b->out, 4096);
	b->l = lives_new(&cfg, &out);
	b->r = lives_start(b->l, &m, b, b->now);
	lives_on_epoch(b->l, 1, b->now);
	lives_step(b->l, b->now);
	lives_on_message(b->l, &welcome, b->now);
	lives_step(b->l, b->now);
	assert_int_equal(b->n_submits, 1);
	assert_int_equal(b->n_grammar, 7);
}

static void bench_release(struct bench *b)
{
	lives_free(b->l);
	strbuf_release(&b->out);
}

/* A row: n_prompt prompt tokens from `start` on, n output tokens (100, 101, ...) from `position` on, n_pooled elements. */
struct row {
	uint32_t start, n_prompt, position, n, finish, n_pooled;
};

static void bench_rows(struct bench *b, const struct row *rows, uint32_t n_rows)
{
	static uint32_t attempts[4], positions[4], n_tokens[4], finishes[4], cached[4], starts[4], n_prompt[4], n_pooled[4];
	static uint32_t tokens[64], zeros[64], ranks[64], n_top[64], ids[64];
	static float lps[64], pooled[64];
	uint32_t at = 0, prompt_at = 0, pooled_at = 0;
	uint64_t client_ids[4];
	struct msg m = {.type = MSG_results};

	for (uint32_t i = 0; i < n_rows; i++) {
		const struct row *r = &rows[i];

		client_ids[i] = client_id_make(0, 0, 1);
		attempts[i] = b->attempt;
		positions[i] = r->position;
		n_tokens[i] = r->n;
		finishes[i] = r->finish;
		starts[i] = r->start;
		n_prompt[i] = r->n_prompt;
		n_pooled[i] = r->n_pooled;
		for (uint32_t k = 0; k < r->n; k++) tokens[at++] = 100 + r->position + k;
		for (uint32_t k = 0; k < r->n_prompt; k++, prompt_at++) {
			ranks[prompt_at] = r->start + k + 1;
			n_top[prompt_at] = 1;
			ids[prompt_at] = 10 + r->start + k;
			lps[prompt_at] = -(float)(r->start + k);
		}
		for (uint32_t k = 0; k < r->n_pooled; k++) pooled[pooled_at++] = (float)k;
	}
	m.results = (struct msg_results){.epoch = 1,
					 .client_ids = view_of(client_ids, n_rows),
					 .attempts = view_of(attempts, n_rows),
					 .positions = view_of(positions, n_rows),
					 .n_tokens = view_of(n_tokens, n_rows),
					 .finishes = view_of(finishes, n_rows),
					 .n_cached = view_of(cached, n_rows),
					 .tokens = view_of(tokens, at),
					 .n_top = view_of(zeros, at),
					 .ranks = view_of(zeros, at),
					 .prompt_starts = view_of(starts, n_rows),
					 .n_prompt_tokens = view_of(n_prompt, n_rows),
					 .prompt_n_top = view_of(n_top, prompt_at),
					 .prompt_ranks = view_of(ranks, prompt_at),
					 .prompt_top_ids = view_of(ids, prompt_at),
					 .prompt_top_logprobs = view_of(lps, prompt_at),
					 .n_pooled = view_of(n_pooled, n_rows),
					 .pooled = view_of(pooled, pooled_at)};
	lives_on_message(b->l, &m, b->now);
	lives_check(b->l);
}

static void bench_expect(struct bench *b, const char *want)
{
	const char *got = b->out.data ? b->out.data : "";

	if (strcmp(got, want) != 0) fail_msg("\"%s\", expected \"%s\"", got, want);
	strbuf_reset(&b->out);
}

static struct lives_stats bench_stats(const struct bench *b)
{
	struct lives_stats st;

	lives_stats(b->l, &st);
	return st;
}

static void prompt_tokens_come_once_and_in_order(void **state)
{
	struct bench b;

	bench_init(&b, REQUEST_GENERATE, 1, false);
	assert_int_equal(b.n_accepted, 0);
	bench_rows(&b, (struct row[]){{0}}, 1);
	assert_int_equal(b.n_accepted, 1);
	bench_rows(&b, (struct row[]){{1, 2, 0, 0, 0, 0}}, 1);
	bench_expect(&b, "p1=11 r2(11:-1) p2=12 r3(12:-2) ");
	bench_rows(&b, (struct row[]){{2, 2, 0, 0, 0, 0}}, 1); /* one of them again */
	bench_expect(&b, "p3=13 r4(13:-3) ");
	assert_int_equal(bench_stats(&b).dropped_repeats, 1);
	assert_int_equal(b.n_accepted, 1); /* is told once */
	bench_rows(&b, (struct row[]){{1, 1, 0, 0, 0, 0}, {4, 1, 0, 2, 0, 0}}, 2); /* the rest, and the answer */
	bench_expect(&b, "p4=14 r5(14:-4) 100@0 101@1 ");
	bench_rows(&b, (struct row[]){{0, 0, 2, 1, FINISH_STOP, 0}}, 1);
	bench_expect(&b, "102@2 end 1");
	bench_release(&b);
}

/* The first of them, or all of them, are missing. */
static void a_gap_in_the_prompt_is_asked_for_again(void **state)
{
	static const struct {
		struct row row;
		const char *what;
	} rows[] = {
		{{3, 1, 0, 0, 0, 0}, "a hole"},
		{{0, 0, 0, 1, 0, 0}, "output before the prompt"},
		{{2, 2, 0, 1, 0, 0}, "output before the last of the prompt"},
		{{0, 0, 0, 0, FINISH_LENGTH, 0}, "an end before the prompt"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct bench b;

		bench_init(&b, REQUEST_GENERATE, 1, false);
		bench_rows(&b, (struct row[]){{1, 1, 0, 0, 0, 0}}, 1);
		bench_expect(&b, "p1=11 r2(11:-1) ");
		bench_rows(&b, &rows[i].row, 1);
		if (b.out.len) fail_msg("%s: %s", rows[i].what, b.out.data);
		assert_int_equal(bench_stats(&b).gaps, 1);
		b.now += 200 * MS;
		lives_step(b.l, b.now);
		assert_int_equal(b.n_submits, 2);
		assert_int_equal(b.n_known, 2);
		assert_int_equal(b.n_grammar, 7); /* it brings all that the first one did */
		bench_rows(&b, (struct row[]){{2, 3, 0, 1, FINISH_LENGTH, 0}}, 1);
		bench_expect(&b, "p2=12 r3(12:-2) p3=13 r4(13:-3) p4=14 r5(14:-4) 100@0 end 2");
		bench_release(&b);
	}
}

static void a_request_without_the_wish_says_nothing_of_it(void **state)
{
	struct bench b;

	bench_init(&b, REQUEST_GENERATE, 0, false);
	assert_int_equal(b.n_known, 0);
	bench_rows(&b, (struct row[]){{0, 0, 0, 1, 0, 0}}, 1);
	bench_expect(&b, "100@0 ");
	bench_release(&b);
}

static void a_pooled_state_ends_its_request(void **state)
{
	for (int deaf = 0; deaf < 2; deaf++) {
		struct bench b;

		bench_init(&b, REQUEST_POOL_MEAN, 0, deaf);
		bench_rows(&b, (struct row[]){{0}}, 1);
		bench_rows(&b, (struct row[]){{0, 0, 0, 0, FINISH_STOP, 3}}, 1);
		bench_expect(&b, deaf ? "end 1" : "e0,e1,e2 end 1");
		assert_int_equal(bench_stats(&b).ended, 1);
		bench_release(&b);
	}
}

static void an_owner_may_be_deaf(void **state)
{
	struct bench b;

	bench_init(&b, REQUEST_GENERATE, 1, true);
	bench_rows(&b, (struct row[]){{1, 4, 0, 1, FINISH_STOP, 0}}, 1);
	bench_expect(&b, "100@0 end 1");
	bench_release(&b);
}

/* Rows that cannot be an answer to this request change nothing. */
static void foreign_rows_are_dropped(void **state)
{
	static const struct {
		uint32_t kind, n_prompt_logprobs;
		struct row row;
	} rows[] = {
		{REQUEST_GENERATE, 0, {1, 1, 0, 0, 0, 0}},                  /* nobody wants them */
		{REQUEST_GENERATE, 1, {0, 1, 0, 0, 0, 0}},                  /* the first token has none */
		{REQUEST_GENERATE, 1, {1, 5, 0, 0, 0, 0}},                  /* the prompt is shorter */
		{REQUEST_GENERATE, 1, {UINT32_MAX, 1, 0, 0, 0, 0}},
		{REQUEST_GENERATE, 0, {0, 0, 0, 0, FINISH_STOP, 3}},        /* no pooling request */
		{REQUEST_GENERATE, 0, {0, 0, 3, 2, 0, 0}},                  /* beyond its limit */
		{REQUEST_GENERATE, 0, {0, 0, 0, 1, FINISH_ABORT + 1, 0}},
		{REQUEST_POOL_LAST, 0, {0, 0, 0, 1, 0, 0}},                 /* no output */
		{REQUEST_POOL_LAST, 0, {0, 0, 0, 0, FINISH_STOP, 0}},       /* an end without the state */
		{REQUEST_POOL_LAST, 0, {0, 0, 0, 0, FINISH_NONE, 3}},       /* a state without the end */
		{REQUEST_POOL_LAST, 0, {0, 0, 0, 0, FINISH_LENGTH, 3}},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct bench b;

		bench_init(&b, rows[i].kind, rows[i].n_prompt_logprobs, false);
		bench_rows(&b, &rows[i].row, 1);
		if (b.out.len) fail_msg("row %zu: %s", i, b.out.data);
		assert_int_equal(bench_stats(&b).dropped_stale, 1);
		assert_false(live_is_accepted(b.r));
		bench_release(&b);
	}
}

/* The columns must describe the same rows; those of prompts and pooled states may be left out together. */
static void columns_that_do_not_fit_are_dropped(void **state)
{
	static const uint32_t one[2] = {1, 1}, two[2] = {2, 2}, zero[2];
	static const float lps[4];
	const uint64_t id = client_id_make(0, 0, 1);
	const struct msg good = {
		.type = MSG_results,
		.results = {.epoch = 1,
			    .client_ids = view_of(&id, 1),
			    .attempts = view_of(one, 1),
			    .positions = view_of(zero, 1),
			    .n_tokens = view_of(zero, 1),
			    .finishes = view_of(zero, 1),
			    .n_cached = view_of(zero, 1),
			    .prompt_starts = view_of(one, 1),
			    .n_prompt_tokens = view_of(two, 1),
			    .prompt_n_top = view_of(one, 2),
			    .prompt_ranks = view_of(one, 2),
			    .prompt_top_ids = view_of(one, 2),
			    .prompt_top_logprobs = view_of(lps, 2),
			    .n_pooled = view_of(zero, 1)}};

	for (int k = -1; k < 8 * 2; k++) {
		struct msg m = good;
		struct view *columns[] = {&m.results.prompt_starts,   &m.results.n_prompt_tokens, &m.results.prompt_n_top,
					  &m.results.prompt_ranks,    &m.results.prompt_top_ids,  &m.results.prompt_top_logprobs,
					  &m.results.n_pooled,        &m.results.pooled};
		bool may_be_missing = k == 0 || k == 12; /* a start that is 0 by default is foreign; no state is none */
		struct bench b;

		if (k == 15) continue; /* it is empty already */
		bench_init(&b, REQUEST_GENERATE, 1, false);
		if (k >= 0) columns[k / 2]->n += k % 2 ? 1u : (uint32_t)-1;
		if (k == 14) m.results.pooled = view_of(lps, 1);
		lives_on_message(b.l, &m, b.now);
		if (k < 0 || k == 12) bench_expect(&b, "p1=11 r1(1:0) p2=12 r1(1:0) ");
		else if (!may_be_missing && (b.out.len || bench_stats(&b).dropped_stale != 1)) fail_msg("case %d", k);
		bench_release(&b);
	}
}

static void live_and_die(void)
{
	struct bench b;

	bench_init(&b, REQUEST_GENERATE, 1, false);
	bench_rows(&b, (struct row[]){{1, 2, 0, 0, 0, 0}}, 1);
	bench_release(&b);
	bench_init(&b, REQUEST_POOL_MEAN, 0, false);
	bench_rows(&b, (struct row[]){{0, 0, 0, 0, FINISH_STOP, 3}}, 1);
	bench_release(&b);
}

static void nothing_leaks(void **state)
{
	size_t before;

	live_and_die();
	before = leak_bytes_used();
	live_and_die();
	assert_int_equal(leak_bytes_used(), before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prompt_tokens_come_once_and_in_order),
		cmocka_unit_test(a_gap_in_the_prompt_is_asked_for_again),
		cmocka_unit_test(a_request_without_the_wish_says_nothing_of_it),
		cmocka_unit_test(a_pooled_state_ends_its_request),
		cmocka_unit_test(an_owner_may_be_deaf),
		cmocka_unit_test(foreign_rows_are_dropped),
		cmocka_unit_test(columns_that_do_not_fit_are_dropped),
		cmocka_unit_test(nothing_leaks),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
