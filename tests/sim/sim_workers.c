/* sim_workers.c - the workers of the simulation: they compute nothing and check everything that a step says.
 *
 * All ranks do the same, so one model stands for them. It keeps slots, tokens and block tables as a worker does from
 * the steps alone, and in each KV position the hash of the tokens that were computed there: a step that reads a
 * position whose content is not that of its own tokens would have given a wrong answer. Steps run one after the other,
 * so a token that step n draws is known when step n + 1 starts. */
#include "tests/sim/sim_impl.h"

#include "common/mem.h"

static void workers_start(struct sim *s);

static void workers_set_token(struct sim_slot *t, uint32_t token)
{
	uint64_t last = t->n_tokens ? t->hashes[t->n_tokens - 1] : SIM_HASH_FIRST;

	mem_reserve(t->tokens, t->tokens_cap, (size_t)t->n_tokens + 1);
	mem_reserve(t->hashes, t->hashes_cap, (size_t)t->n_tokens + 1);
	t->tokens[t->n_tokens] = token;
	t->hashes[t->n_tokens++] = sim_hash_next(last, token);
}

static void workers_remove(struct sim *s, struct sim_slot *t)
{
	for (uint32_t i = 0; i < t->n_table; i++) s->workers.kv[t->table[i]].refs--;
	t->request = NULL;
	t->n_tokens = t->n_computed = t->n_table = 0;
}

static void workers_check_params(struct sim *s, const struct msg_step *m, uint32_t row, const struct sim_request *q,
				 uint32_t stop_ix)
{
	const struct msg_submit *p = &q->submit;
	bool same = col_u32(m->added_n_prompt, row) == p->n_prompt &&
		    col_u32(m->added_n_output_min, row) == p->n_output_min &&
		    col_f32(m->added_temperature, row) == p->temperature && col_f32(m->added_top_p, row) == p->top_p &&
		    col_u32(m->added_top_k, row) == p->top_k && col_f32(m->added_min_p, row) == p->min_p &&
		    col_u32(m->added_choice, row) == p->choice && col_u32(m->added_n_logprobs, row) == p->n_logprobs &&
		    col_u32(m->added_n_stop, row) == p->stop_ids.n;

	for (uint32_t i = 0; same && i < p->stop_ids.n; i++)
		same = col_u32(m->added_stop_ids, stop_ix + i) == q->stop_ids[i];
	SIM_EXPECT(s, same, "step %llu adds request %u with other parameters", (unsigned long long)m->number, q->ix);
}

static struct sim_slot *workers_slot(struct sim *s, const struct msg_step *m, uint32_t slot)
{
	SIM_EXPECT(s, slot < s->setup.core.seqs_max, "step %llu names slot %u", (unsigned long long)m->number, slot);
	return &s->workers.slots[slot];
}

static void workers_add(struct sim *s, const struct msg_step *m)
{
	uint32_t token_ix = 0, stop_ix = 0;

	for (uint32_t i = 0; i < m->added.n; i++) {
		struct sim_slot *t = workers_slot(s, m, col_u32(m->added, i));
		struct sim_request *q = map_get(&s->by_seed, col_u64(m->added_seed, i));
		uint32_t n = col_u32(m->added_n_tokens, i);

		SIM_EXPECT(s, q && !t->request, "step %llu adds to a slot that is taken",
			   (unsigned long long)m->number);
		SIM_EXPECT(s, n >= q->submit.n_prompt && n <= q->submit.n_prompt + q->n_expected,
			   "request %u is added with %u tokens", q->ix, n);
		workers_check_params(s, m, i, q, stop_ix);
		t->request = q;
		t->fresh = true;
		for (uint32_t k = 0; k < n; k++) {
			uint32_t token = col_u32(m->added_tokens, token_ix++);

			SIM_EXPECT(
				s,
				token == (k < q->submit.n_prompt ? q->prompt[k] : q->expected[k - q->submit.n_prompt]),
				"request %u is added with another token at %u", q->ix, k);
			workers_set_token(t, token);
		}
		stop_ix += col_u32(m->added_n_stop, i);
	}
	SIM_EXPECT(s, token_ix == m->added_tokens.n && stop_ix == m->added_stop_ids.n, "the joined columns are longer");
}

static void workers_grow(struct sim *s, const struct msg_step *m)
{
	uint32_t ix = 0;

	for (uint32_t i = 0; i < m->grown.n; i++) {
		struct sim_slot *t = workers_slot(s, m, col_u32(m->grown, i));

		SIM_EXPECT(s, t->request, "step %llu grows a free slot", (unsigned long long)m->number);
		for (uint32_t k = 0; k < col_u32(m->grown_n, i); k++) {
			uint32_t block = col_u32(m->grown_blocks, ix++);

			SIM_EXPECT(s, block < s->workers.n_blocks, "block %u of %u", block, s->workers.n_blocks);
			mem_reserve(t->table, t->table_cap, (size_t)t->n_table + 1);
			t->table[t->n_table++] = block;
			s->workers.kv[block].refs++;
		}
	}
	SIM_EXPECT(s, ix == m->grown_blocks.n, "grown_blocks is longer");
}

/* All rows first: what they read must have been there before this step. */
static void workers_check_row(struct sim *s, const struct msg_step *m, uint32_t row)
{
	uint32_t slot = col_u32(m->run, row), start = col_u32(m->run_start, row), n = col_u32(m->run_n, row);
	struct sim_slot *t = workers_slot(s, m, slot);
	const struct sim_request *q = t->request;

	SIM_EXPECT(s, q, "step %llu runs free slot %u", (unsigned long long)m->number, slot);
	SIM_EXPECT(s, n > 0 && start + n <= t->n_tokens, "request %u: runs [%u, +%u) of %u tokens", q->ix, start, n,
		   t->n_tokens);
	SIM_EXPECT(s, start + n <= s->setup.model_len_max, "request %u: position %u of %u", q->ix, start + n - 1,
		   s->setup.model_len_max);
	SIM_EXPECT(s, t->fresh || start == t->n_computed, "request %u: starts at %u, not %u", q->ix, start,
		   t->n_computed);
	SIM_EXPECT(s, !t->fresh || start % SIM_BLOCK == 0, "request %u: %u tokens from the prefix cache", q->ix, start);
	SIM_EXPECT(s, start == 0 || !t->fresh || s->setup.core.prefix_cache, "request %u: a prefix cache that is off",
		   q->ix);
	SIM_EXPECT(s, (uint64_t)t->n_table * SIM_BLOCK >= start + n, "request %u: %u blocks for %u tokens", q->ix,
		   t->n_table, start + n);
	SIM_EXPECT(s, !col_u32(m->run_sample, row) || start + n == t->n_tokens, "request %u: draws within its tokens",
		   q->ix);
	for (uint32_t p = 0; p < start; p++) {
		const struct sim_kv *b = &s->workers.kv[t->table[p / SIM_BLOCK]];

		SIM_EXPECT(s, b->hash[p % SIM_BLOCK] == t->hashes[p],
			   "request %u: reads position %u in block %u, which holds something else", q->ix, p,
			   t->table[p / SIM_BLOCK]);
		SIM_EXPECT(s, b->salt[p % SIM_BLOCK] == q->salt, "request %u: reads position %u of another tenant",
			   q->ix, p);
	}
	if (t->fresh && start > 0) s->counts->prefix_hit++;
	t->fresh = false;
}

static void workers_write_row(struct sim *s, const struct msg_step *m, uint32_t row)
{
	uint32_t slot = col_u32(m->run, row), start = col_u32(m->run_start, row), n = col_u32(m->run_n, row);
	struct sim_slot *t = &s->workers.slots[slot];

	for (uint32_t p = start; p < start + n; p++) {
		struct sim_kv *b = &s->workers.kv[t->table[p / SIM_BLOCK]];

		SIM_EXPECT(s, b->refs == 1, "request %u: writes position %u into block %u, which %u tables name",
			   t->request->ix, p, t->table[p / SIM_BLOCK], b->refs);
		b->hash[p % SIM_BLOCK] = t->hashes[p];
		b->salt[p % SIM_BLOCK] = t->request->salt;
	}
	t->n_computed = start + n;
	t->request->ran = true;
	if (t->request->cancel_in_prefill && !t->request->sampled && t->n_computed < t->n_tokens) {
		t->request->cancel_wanted = true;
		sim_wake(s, t->request->frontend, s->now);
	}
	s->workers.kills |= t->request->poison;
}

/* The answer of rank 0. */
struct workers_reply {
	uint32_t *slots, *tokens, *n_top, *ranks, *top_ids;
	float *top_logprobs;
	uint32_t n, n_entries;
};

static void workers_sample_row(struct sim *s, const struct msg_step *m, uint32_t row, struct workers_reply *r)
{
	struct sim_slot *t = &s->workers.slots[col_u32(m->run, row)];
	struct sim_request *q = t->request;
	uint64_t hash = t->hashes[t->n_tokens - 1];
	uint32_t position = t->n_tokens - q->submit.n_prompt, token = sim_model_token(q, hash, position);

	/* A stop id may be seen a step late; these limits are known before. */
	SIM_EXPECT(s, position < q->submit.n_output_max && t->n_tokens < s->setup.model_len_max,
		   "request %u: draws token %u of %u", q->ix, position, q->submit.n_output_max);
	r->slots[r->n] = col_u32(m->run, row);
	r->tokens[r->n] = token;
	r->n_top[r->n] = q->submit.n_logprobs;
	sim_model_top(q, hash, token, &r->ranks[r->n], r->top_ids + r->n_entries, r->top_logprobs + r->n_entries);
	r->n_entries += r->n_top[r->n++];
	workers_set_token(t, token == UINT32_MAX ? 0 : token);
	q->sampled = true;
}

static void workers_reply(struct sim *s, const struct msg_step *m)
{
	uint32_t n = m->run.n;
	struct workers_reply r = {
		.slots = mem_array(uint32_t, n),
		.tokens = mem_array(uint32_t, n),
		.n_top = mem_array(uint32_t, n),
		.ranks = mem_array(uint32_t, n),
		.top_ids = mem_array(uint32_t, n * (LIMIT_TOP_LOGPROBS + 1)),
		.top_logprobs = mem_array(float, n *(LIMIT_TOP_LOGPROBS + 1)),
	};
	struct msg out = {.type = MSG_step_result};

	for (uint32_t i = 0; i < n; i++)
		if (col_u32(m->run_sample, i)) workers_sample_row(s, m, i, &r);
	out.step_result.epoch = m->epoch;
	out.step_result.number = m->number;
	out.step_result.slots = view_of(r.slots, r.n);
	out.step_result.tokens = view_of(r.tokens, r.n);
	out.step_result.n_top = view_of(r.n_top, r.n);
	out.step_result.ranks = view_of(r.ranks, r.n);
	out.step_result.top_ids = view_of(r.top_ids, r.n_entries);
	out.step_result.top_logprobs = view_of(r.top_logprobs, r.n_entries);
	strbuf_init(&s->workers.reply, LIMIT_REPLY_RING_BYTES);
	SIM_EXPECT(s, msg_pack(&out, &s->workers.reply) == ST_OK, "a result does not pack");
	free(r.slots);
	free(r.tokens);
	free(r.n_top);
	free(r.ranks);
	free(r.top_ids);
	free(r.top_logprobs);
}

static uint32_t workers_run(struct sim *s, const struct msg_step *m)
{
	struct sim_workers *w = &s->workers;
	uint32_t n_tokens = 0;

	w->number = m->number;
	for (uint32_t i = 0; i < m->removed.n; i++) {
		struct sim_slot *t = workers_slot(s, m, col_u32(m->removed, i));

		SIM_EXPECT(s, t->request, "step %llu removes a free slot", (unsigned long long)m->number);
		workers_remove(s, t);
	}
	workers_add(s, m);
	workers_grow(s, m);
	for (uint32_t i = 0; i < m->run.n; i++) {
		for (uint32_t k = 0; k < i; k++)
			SIM_EXPECT(s, col_u32(m->run, i) != col_u32(m->run, k), "slot %u runs twice",
				   col_u32(m->run, i));
		workers_check_row(s, m, i);
		n_tokens += col_u32(m->run_n, i);
	}
	SIM_EXPECT(s, n_tokens <= s->setup.core.batched_tokens_max, "step of %u tokens", n_tokens);
	w->kills = false;
	for (uint32_t i = 0; i < m->run.n; i++) workers_write_row(s, m, i);
	workers_reply(s, m);
	return n_tokens;
}

static void workers_start(struct sim *s)
{
	struct sim_workers *w = &s->workers;
	struct sim_packet p;
	struct msg m;
	uint32_t n_tokens;
	uint64_t ns;

	while (w->up && !w->busy && w->steps.n > 0) {
		p = sim_queue_pop(&w->steps);
		sim_unpack(s, &p, &m);
		if (m.step.epoch == w->epoch) {
			n_tokens = workers_run(s, &m.step);
			w->busy = true;
			s->counts->step++;
			ns = s->setup.step_ns + s->setup.token_ns * n_tokens;
			sim_push(s, s->now + ns + sim_rand(s, ns), SIM_EV_STEP_DONE, 0, w->run_id);
		}
		free(p.data);
	}
}

void sim_workers_push(struct sim *s, const struct msg_step *step)
{
	struct msg m = {.type = MSG_step, .step = *step};
	struct sim_packet p = {0};
	struct strbuf buf;

	strbuf_init(&buf, LIMIT_STEP_RING_BYTES);
	SIM_EXPECT(s, msg_pack(&m, &buf) == ST_OK, "a step does not pack");
	p.len = buf.len;
	p.data = strbuf_take(&buf);
	if (!s->workers.up) {
		free(p.data); /* nobody reads the ring */
		return;
	}
	sim_queue_push(&s->workers.steps, p);
	workers_start(s);
}

void sim_workers_done(struct sim *s, uint32_t run_id)
{
	struct sim_workers *w = &s->workers;
	struct sim_packet p = {.at = s->now + sim_rand(s, s->setup.delay_ns)};
	uint64_t until;

	if (run_id != w->run_id || !w->busy) return;
	if (sim_workers_stopped(s, &until)) {
		/* One rank stands still, so all wait for it; killing it ends that. */
		if (until != UINT64_MAX) sim_push(s, until, SIM_EV_STEP_DONE, 0, run_id);
		return;
	}
	if (w->kills) {
		sim_note(s, "poison in step %llu", (unsigned long long)w->number);
		sim_kill(s, sim_proc_rank(s, (uint32_t)sim_rand(s, s->setup.n_ranks)));
		return;
	}
	w->busy = false;
	p.len = w->reply.len;
	p.data = strbuf_take(&w->reply);
	sim_queue_push(&w->replies, p);
	sim_wake(s, sim_proc_executor(s)->num, p.at);
	workers_start(s);
}

/* The executor attaches: everybody starts with free slots and an empty KV cache. */
void sim_workers_reset(struct sim *s, uint64_t epoch, uint32_t n_blocks)
{
	struct sim_workers *w = &s->workers;

	for (uint32_t i = 0; i < s->setup.core.seqs_max; i++)
		if (w->slots[i].request) workers_remove(s, &w->slots[i]);
	free(w->kv);
	w->kv = mem_array(struct sim_kv, n_blocks);
	w->n_blocks = n_blocks;
	w->epoch = epoch;
	w->number = 0;
	w->up = true;
	w->busy = false;
	w->run_id++;
	strbuf_release(&w->reply);
	sim_queue_clear(&w->steps);
}

void sim_workers_died(struct sim *s)
{
	struct sim_workers *w = &s->workers;

	w->up = w->busy = false;
	w->run_id++;
	strbuf_release(&w->reply);
	sim_queue_clear(&w->steps);
}

bool sim_workers_stopped(const struct sim *s, uint64_t *until)
{
	*until = 0;
	for (uint32_t i = 0; i < s->n_procs; i++)
		if (s->procs[i].kind == SIM_WORKER) *until = max_u64(*until, s->procs[i].stopped_until);
	return *until > s->now;
}

void sim_workers_release(struct sim *s)
{
	struct sim_workers *w = &s->workers;

	for (uint32_t i = 0; i < LIMIT_SEQS; i++) {
		free(w->slots[i].tokens);
		free(w->slots[i].hashes);
		free(w->slots[i].table);
	}
	free(w->kv);
	strbuf_release(&w->reply);
	sim_queue_release(&w->steps);
	sim_queue_release(&w->replies);
}
