/* test_core_chaos.c - the core under random events, from seeds: each request ends once with exactly its tokens, whatever is
 * lost, full, cancelled, preempted or dies. The frontends here are small stand-ins; tests/sim has the real ones. */
#include "tests/support/corebox.h"

#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { FRONTENDS = 3, REQUESTS = 40, SEEDS = 150, SEEDS_MUTATE = 40, POISON = 700 };

enum state { UNBORN, LIVE, ENDED, CANCELLED };

struct request {
	enum state state;
	uint32_t first, n_prompt, n_out, priority, n_logprobs, stop;
	bool has_stop, has_salt, poison;
	uint32_t attempt, n_received;
	uint32_t expected[64], n_expected;
	enum finish finish;
	bool listed;
};

struct chaos {
	struct corebox box; /* first: what on_send gets */
	uint64_t random;
	struct request requests[REQUESTS];
	uint32_t incarnation[FRONTENDS];
	bool full[FRONTENDS];
	bool faults;
	uint32_t n_blocks, len_max;
	uint32_t n_ended, n_lost;
};

static uint32_t draw(struct chaos *c, uint32_t n)
{
	c->random = c->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(c->random >> 33) % n;
}

static uint64_t id_of(const struct chaos *c, uint32_t ix)
{
	return client_id_make(ix % FRONTENDS, c->incarnation[ix % FRONTENDS], 1 + ix);
}

/* The whole answer, and how it ends. */
static void expect(struct chaos *c, struct request *r)
{
	uint32_t tokens[512], n, i;

	for (i = 0; i < r->n_prompt; i++) tokens[i] = r->first + i;
	for (n = r->n_prompt;; n++) {
		tokens[n] = corebox_token(tokens, n);
		r->expected[r->n_expected++] = tokens[n];
		if (r->has_stop && tokens[n] % 16 == r->stop) {
			r->finish = FINISH_STOP;
			return;
		}
		if (r->n_expected == r->n_out || n + 1 >= c->len_max || n + 1 >= c->n_blocks * 16) {
			r->finish = FINISH_LENGTH;
			return;
		}
	}
}

static void submit(struct chaos *c, uint32_t ix)
{
	uint32_t stops[(COREBOX_VOCAB + 15) / 16], i, n = 0;
	struct request *r = &c->requests[ix];
	struct msg_submit m = corebox_request(&c->box, 1, r->first, r->n_prompt, r->n_out);

	for (i = 0; i < r->n_received; i++) c->box.tokens[m.tokens.n++] = r->expected[i];
	m.client_id = id_of(c, ix);
	m.attempt = ++r->attempt;
	m.priority = r->priority;
	m.n_logprobs = r->n_logprobs;
	for (i = r->stop; i < COREBOX_VOCAB && r->has_stop; i += 16) stops[n++] = i;
	m.stop_ids = view_of(stops, n);
	if (r->has_salt) m.cache_salt = view_text("s");
	core_on_submit(c->box.core, &m, c->box.now);
}

static void begin(struct chaos *c, uint32_t ix)
{
	struct request *r = &c->requests[ix];

	r->state = LIVE;
	r->first = draw(c, 2) ? 100 : 200;
	r->n_prompt = 1 + draw(c, draw(c, 2) ? 20 : 100);
	r->n_out = 1 + draw(c, 50);
	r->priority = draw(c, 3);
	r->n_logprobs = draw(c, 3);
	r->has_stop = draw(c, 2);
	r->stop = draw(c, 16);
	r->has_salt = draw(c, 4) == 0;
	r->poison = draw(c, 30) == 0;
	if (r->poison) r->first = POISON;
	expect(c, r);
	submit(c, ix);
}

static void take_row(struct chaos *c, const struct msg_results *m, uint32_t row, uint32_t token_at, uint32_t top_at)
{
	uint32_t ix = (uint32_t)client_id_counter(col_u64(m->client_ids, row)) - 1, i, position;
	struct request *r = &c->requests[ix];

	assert_true(ix < REQUESTS);
	if (r->state != LIVE || col_u32(m->attempts, row) != r->attempt) return;
	assert_int_equal(col_u64(m->client_ids, row), id_of(c, ix));
	for (i = 0; i < col_u32(m->n_tokens, row); i++) {
		position = col_u32(m->positions, row) + i;
		assert_true(position < r->n_expected);
		assert_int_equal(col_u32(m->tokens, token_at + i), r->expected[position]);
		assert_int_equal(col_u32_or_0(m->n_top, token_at + i), r->n_logprobs);
		if (r->n_logprobs) assert_int_equal(col_u32(m->top_ids, top_at), r->expected[position]);
		top_at += r->n_logprobs;
		if (position == r->n_received) r->n_received++;
	}
	assert_true(col_u32_or_0(m->n_cached, row) <= r->n_prompt);
	if (col_u32_or_0(m->finishes, row) == FINISH_NONE || col_u32(m->positions, row) + i != r->n_received) return;
	assert_int_equal(col_u32_or_0(m->finishes, row), r->finish);
	assert_int_equal(r->n_received, r->n_expected);
	r->state = ENDED;
	c->n_ended++;
}

static void take_results(struct chaos *c, const struct msg_results *m)
{
	uint32_t i, k, token_at = 0, top_at = 0;

	for (i = 0; i < m->client_ids.n; i++) {
		take_row(c, m, i, token_at, top_at);
		for (k = 0; k < col_u32(m->n_tokens, i); k++) top_at += col_u32_or_0(m->n_top, token_at + k);
		token_at += col_u32(m->n_tokens, i);
	}
}

static void take_sync(struct chaos *c, uint32_t frontend, const struct msg_sync *m)
{
	uint32_t i;

	for (i = 0; i < REQUESTS; i++) c->requests[i].listed = false;
	for (i = 0; i < m->client_ids.n; i++) {
		struct request *r = &c->requests[client_id_counter(col_u64(m->client_ids, i)) - 1];

		r->listed = col_u32(m->positions, i) <= r->n_received;
	}
	/* Submitted again after this step; a flag, because nothing may call the core from here. */
	for (i = frontend; i < REQUESTS; i += FRONTENDS)
		if (c->requests[i].state == LIVE && !c->requests[i].listed) c->n_lost |= 1u << frontend;
}

static int on_send(struct corebox *b, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	struct chaos *c = (struct chaos *)b;

	assert_int_equal(incarnation, c->incarnation[frontend]);
	if (c->full[frontend]) return ST_AGAIN;
	if (c->faults && draw(c, 40) == 0) {
		c->full[frontend] = true;
		return ST_AGAIN;
	}
	if (c->faults && draw(c, 40) == 0) return ST_OK; /* lost */
	if (m->type == MSG_results) take_results(c, &m->results);
	if (m->type == MSG_sync) take_sync(c, frontend, &m->sync);
	if (m->type == MSG_refused) {
		struct request *r = &c->requests[client_id_counter(m->refused.client_id) - 1];

		if (r->state != LIVE || m->refused.attempt != r->attempt) return ST_OK;
		if (r->n_prompt >= c->len_max || r->n_prompt >= c->n_blocks * 16)
			assert_int_equal(m->refused.reason, REFUSAL_TOO_LONG);
		else
			assert_true(m->refused.reason == REFUSAL_POISON && r->poison);
		r->state = ENDED;
		c->n_ended++;
	}
	return ST_OK;
}

static void lose_workers(struct chaos *c)
{
	corebox_lost(&c->box);
	if (draw(c, 2)) corebox_step(&c->box);
	corebox_ready(&c->box, c->n_blocks, c->len_max);
}

static bool oldest_step_is_poisoned(const struct corebox *b)
{
	const struct msg_step *m = &b->steps[0]->step;
	uint32_t i, k, at;

	for (i = 0; i < m->run.n; i++) {
		uint32_t slot = col_u32(m->run, i), token = b->slots[slot].tokens[0];

		for (k = at = 0; k < m->added.n; at += col_u32(m->added_n_tokens, k++))
			if (col_u32(m->added, k) == slot) token = col_u32(m->added_tokens, at);
		if (token == POISON) return true;
	}
	return false;
}

static void frontend_dies(struct chaos *c, uint32_t f)
{
	uint32_t i;

	core_on_frontend_gone(c->box.core, f, c->incarnation[f], c->box.now);
	for (i = f; i < REQUESTS; i += FRONTENDS) {
		if (c->requests[i].state != LIVE) continue;
		c->requests[i].state = CANCELLED;
		c->n_ended++;
	}
	c->incarnation[f]++;
	c->full[f] = false;
	corebox_hello(&c->box, f, c->incarnation[f]);
}

static void random_event(struct chaos *c)
{
	uint32_t ix = draw(c, REQUESTS), f = draw(c, FRONTENDS);
	struct request *r = &c->requests[ix];
	struct msg_cancel cancel = {.client_id = id_of(c, ix)};

	switch (draw(c, 40)) {
	case 0:
		if (r->state != LIVE) break;
		core_on_cancel(c->box.core, &cancel, c->box.now);
		r->state = CANCELLED;
		c->n_ended++;
		break;
	case 1:
		if (r->state == LIVE) submit(c, ix); /* for no reason */
		break;
	case 2:
		/* Not while one runs alone: it could be on trial, and nobody could tell its guilt from bad luck. */
		if (draw(c, 4) == 0 && (!c->box.n_steps || c->box.steps[0]->step.run.n > 1)) lose_workers(c);
		break;
	case 3:
		if (draw(c, 8) == 0) frontend_dies(c, f);
		break;
	case 4:
		c->box.now += NS_PER_S / 3;
		break;
	default:
		if (r->state == UNBORN) begin(c, ix);
		break;
	}
	if (c->full[f] && draw(c, 4) == 0) {
		c->full[f] = false;
		core_on_lane_ready(c->box.core, f, c->box.now);
	}
}

static void heal(struct chaos *c)
{
	uint32_t f, i;

	for (f = 0; f < FRONTENDS; f++) {
		if (!(c->n_lost >> f & 1)) continue;
		for (i = f; i < REQUESTS; i += FRONTENDS)
			if (c->requests[i].state == LIVE) submit(c, i);
	}
	c->n_lost = 0;
}

static void run(uint64_t seed)
{
	struct core_config cfg = corebox_config();
	struct chaos *c = calloc(1, sizeof(*c));
	uint32_t i, k;

	c->random = seed;
	draw(c, 2);
	cfg.seqs_max = 1 + draw(c, 12);
	cfg.batched_tokens_max = 4 + draw(c, 100);
	cfg.steps_in_flight_max = 1 + draw(c, 3);
	cfg.prefill_chunk_max = draw(c, 3) * 10;
	cfg.first_step_tokens = draw(c, 3) * 2;
	cfg.prefix_cache = draw(c, 5) > 0;
	corebox_init(&c->box, &cfg);
	c->box.on_send = on_send;
	c->box.quiet = true;
	c->faults = true;
	c->n_blocks = 4 + draw(c, 20);
	c->len_max = 40 + draw(c, 120);
	for (i = 0; i < FRONTENDS; i++) corebox_hello(&c->box, i, 0);
	corebox_ready(&c->box, c->n_blocks, c->len_max);
	for (i = 0; c->n_ended < REQUESTS; i++) {
		if (i > 20000) fail_msg("seed %llu does not end", (unsigned long long)seed);
		if (i == 1500) {
			c->faults = false;
			for (k = 0; k < REQUESTS; k++)
				if (c->requests[k].state == UNBORN) begin(c, k);
		}
		if (i >= 1500) {
			for (k = 0; k < FRONTENDS; k++) {
				c->full[k] = false;
				core_on_lane_ready(c->box.core, k, c->box.now);
			}
			c->box.now += NS_PER_S / 10;
		} else {
			random_event(c);
		}
		heal(c);
		if (draw(c, 2)) corebox_step(&c->box);
		if (!c->box.n_steps || draw(c, 3) == 0) continue;
		if (oldest_step_is_poisoned(&c->box))
			lose_workers(c);
		else
			corebox_answer(&c->box);
	}
	corebox_step(&c->box);
	while (c->box.n_steps) corebox_answer(&c->box);
	corebox_step(&c->box);
	assert_int_equal(corebox_stats(&c->box).blocks_used, 0);
	assert_int_equal(corebox_stats(&c->box).results_bad, 0);
	assert_true(core_is_idle(c->box.core));
	corebox_release(&c->box);
	free(c);
}

static void each_request_ends_once_with_its_tokens(void **state)
{
	const char *one = getenv("SEED");
	uint32_t seed;

	if (one) {
		run(strtoull(one, NULL, 0));
		return;
	}
	/* tests/mutate.py runs this hundreds of times. */
	for (seed = 1; seed <= (getenv("MUTATE") ? SEEDS_MUTATE : SEEDS); seed++) {
		print_message("%s%u", seed % 20 == 1 ? "\nseed " : " ", seed);
		run(seed);
	}
	print_message("\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_request_ends_once_with_its_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
