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

static uint32_t workers_n_groups(const struct sim *s)
{
	return max_u32(1, s->setup.kv.n_full + s->setup.kv.n_windowed);
}

/* The first position that a token at `pos` sees in the layers of a group. */
static uint32_t workers_seen_from(const struct sim *s, uint32_t group, uint32_t pos)
{
	if (s->setup.kv.n_windowed == 0 || group < s->setup.kv.n_full || pos < s->setup.kv.window) return 0;
	return pos + 1 - s->setup.kv.window;
}

/* What lies wholly before what a token at `pos` sees is nobody's business any more: the executor may have given it to others. */
static void workers_leave_behind(struct sim *s, struct sim_slot *t, uint32_t pos)
{
	for (uint32_t g = 0; g < workers_n_groups(s); g++) {
		struct sim_table *table = &t->tables[g];

		for (uint32_t i = 0; i < table->n && (i + 1) * SIM_BLOCK <= workers_seen_from(s, g, pos); i++) {
			if (table->v[i] == SIM_NO_BLOCK) continue;
			s->workers.kv[table->v[i]].refs--;
			table->v[i] = SIM_NO_BLOCK;
		}
	}
}

static void workers_remove(struct sim *s, struct sim_slot *t)
{
	for (uint32_t g = 0; g < workers_n_groups(s); g++) {
		struct sim_table *table = &t->tables[g];

		for (uint32_t i = 0; i < table->n; i++)
			if (table->v[i] != SIM_NO_BLOCK) s->workers.kv[table->v[i]].refs--;
		table->n = 0;
	}
	t->request = NULL;
	t->n_tokens = t->n_computed = 0;
}

/* Where a row's lists begin in the joined columns. */
struct workers_at {
	uint32_t token, stop, bias, allowed, grammar;
};

static bool workers_same_u32s(struct view column, uint32_t from, struct view want)
{
	for (uint32_t i = 0; i < want.n; i++)
		if (col_u32(column, from + i) != col_u32(want, i)) return false;
	return true;
}

static bool workers_same_lists(const struct msg_step *m, const struct msg_submit *p, const struct workers_at *at)
{
	return workers_same_u32s(m->added_stop_ids, at->stop, p->stop_ids) &&
	       workers_same_u32s(m->added_bias_ids, at->bias, p->bias_ids) &&
	       workers_same_u32s(m->added_bias_values, at->bias, p->bias_values) &&
	       workers_same_u32s(m->added_allowed_ids, at->allowed, p->allowed_ids) &&
	       at->grammar + p->grammar.n <= m->added_grammars.n &&
	       (!p->grammar.n || memcmp((const char *)m->added_grammars.data + at->grammar, p->grammar.data, p->grammar.n) == 0);
}

static bool workers_same_numbers(struct sim *s, const struct msg_step *m, uint32_t row, const struct msg_submit *p)
{
	uint32_t len_max = sim_len_max(s, s->workers.n_blocks);

	return col_u32(m->added_n_prompt, row) == p->n_prompt && col_u32(m->added_n_output_min, row) == p->n_output_min &&
	       col_f32(m->added_temperature, row) == p->temperature && col_f32(m->added_top_p, row) == p->top_p &&
	       col_u32(m->added_top_k, row) == p->top_k && col_f32(m->added_min_p, row) == p->min_p &&
	       col_u32(m->added_choice, row) == p->choice && col_u32(m->added_n_logprobs, row) == p->n_logprobs &&
	       col_u32(m->added_n_stop, row) == p->stop_ids.n && col_u32(m->added_kind, row) == p->kind &&
	       col_u32(m->added_n_output_max, row) == min_u32(p->n_output_max, len_max - p->n_prompt) &&
	       col_f32(m->added_repetition, row) == (p->repetition_penalty > 0 ? p->repetition_penalty : 1) &&
	       col_f32(m->added_presence, row) == p->presence_penalty &&
	       col_f32(m->added_frequency, row) == p->frequency_penalty && col_u32(m->added_n_bias, row) == p->bias_ids.n &&
	       col_u32(m->added_n_allowed, row) == p->allowed_ids.n &&
	       col_u32(m->added_n_prompt_logprobs, row) == p->n_prompt_logprobs &&
	       col_u32(m->added_n_grammar, row) == p->grammar.n;
}

/* The row of a request has what was submitted; *at moves on behind its lists. */
static void workers_check_params(struct sim *s, const struct msg_step *m, uint32_t row, const struct sim_request *q,
				 struct workers_at *at)
{
	const struct msg_submit *p = &q->submit;

	SIM_EXPECT(s, workers_same_numbers(s, m, row, p) && workers_same_lists(m, p, at),
		   "step %llu adds request %u with other parameters", (unsigned long long)m->number, q->ix);
	at->stop += p->stop_ids.n;
	at->bias += p->bias_ids.n;
	at->allowed += p->allowed_ids.n;
	at->grammar += p->grammar.n;
}

static struct sim_slot *workers_slot(struct sim *s, const struct msg_step *m, uint32_t slot)
{
	SIM_EXPECT(s, slot < s->setup.core.seqs_max, "step %llu names slot %u", (unsigned long long)m->number, slot);
	return &s->workers.slots[slot];
}

static void workers_add(struct sim *s, const struct msg_step *m)
{
	struct workers_at at = {0};

	for (uint32_t i = 0; i < m->added.n; i++) {
		struct sim_slot *t = workers_slot(s, m, col_u32(m->added, i));
		struct sim_request *q = map_get(&s->by_seed, col_u64(m->added_seed, i));
		uint32_t n = col_u32(m->added_n_tokens, i);

		SIM_EXPECT(s, q && !t->request, "step %llu adds to a slot that is taken",
			   (unsigned long long)m->number);
		SIM_EXPECT(s, n >= q->submit.n_prompt && n <= q->submit.n_prompt + q->n_expected,
			   "request %u is added with %u tokens", q->ix, n);
		workers_check_params(s, m, i, q, &at);
		t->request = q;
		t->fresh = true;
		t->prompt_from = q->submit.n_prompt_logprobs ? col_u32(m->added_n_prompt_known, i) : q->submit.n_prompt;
		SIM_EXPECT(s, t->prompt_from >= 1 && t->prompt_from <= q->submit.n_prompt, "request %u: %u known prompt tokens", q->ix,
			   t->prompt_from);
		for (uint32_t k = 0; k < n; k++) {
			uint32_t token = col_u32(m->added_tokens, at.token++);

			SIM_EXPECT(
				s,
				token == (k < q->submit.n_prompt ? q->prompt[k] : q->expected[k - q->submit.n_prompt]),
				"request %u is added with another token at %u", q->ix, k);
			workers_set_token(t, token);
		}
	}
	SIM_EXPECT(s,
		   at.token == m->added_tokens.n && at.stop == m->added_stop_ids.n && at.bias == m->added_bias_ids.n &&
			   at.bias == m->added_bias_values.n && at.allowed == m->added_allowed_ids.n && at.grammar == m->added_grammars.n,
		   "the joined columns are longer");
}

static void workers_grow(struct sim *s, const struct msg_step *m)
{
	uint32_t ix = 0;

	for (uint32_t i = 0; i < m->grown.n; i++) {
		struct sim_slot *t = workers_slot(s, m, col_u32(m->grown, i));

		uint32_t g = col_u32(m->grown_group, i);
		struct sim_table *table = &t->tables[g];

		SIM_EXPECT(s, t->request, "step %llu grows a free slot", (unsigned long long)m->number);
		SIM_EXPECT(s, g < workers_n_groups(s), "step %llu grows table %u", (unsigned long long)m->number, g);
		for (uint32_t k = 0; k < col_u32(m->grown_n, i); k++) {
			uint32_t block = col_u32(m->grown_blocks, ix++);

			SIM_EXPECT(s, block < s->workers.n_blocks, "block %u of %u", block, s->workers.n_blocks);
			mem_reserve(table->v, table->cap, (size_t)table->n + 1);
			table->v[table->n++] = block;
			s->workers.kv[block].refs++;
		}
	}
	SIM_EXPECT(s, ix == m->grown_blocks.n, "grown_blocks is longer");
}

static void workers_check_reads(struct sim *s, const struct sim_slot *t, uint32_t group, uint32_t start)
{
	const struct sim_request *q = t->request;

	for (uint32_t p = workers_seen_from(s, group, start); p < start; p++) {
		uint32_t block = t->tables[group].v[p / SIM_BLOCK];
		const struct sim_kv *b = &s->workers.kv[block];

		SIM_EXPECT(s, block != SIM_NO_BLOCK, "request %u: reads position %u of group %u, which was given back", q->ix, p, group);
		SIM_EXPECT(s, b->hash[p % SIM_BLOCK] == t->hashes[p] + group,
			   "request %u: reads position %u in block %u, which holds something else", q->ix, p, block);
		SIM_EXPECT(s, b->salt[p % SIM_BLOCK] == q->salt, "request %u: reads position %u of another tenant",
			   q->ix, p);
	}
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
	for (uint32_t g = 0; g < workers_n_groups(s); g++)
		SIM_EXPECT(s, (uint64_t)t->tables[g].n * SIM_BLOCK >= start + n, "request %u: %u blocks for %u tokens", q->ix,
			   t->tables[g].n, start + n);
	SIM_EXPECT(s, !col_u32(m->run_sample, row) || start + n == t->n_tokens, "request %u: draws within its tokens",
		   q->ix);
	SIM_EXPECT(s, start == 0 || !t->fresh || !s->setup.kv.recurrent, "request %u: a prefix without its state", q->ix);
	for (uint32_t g = 0; g < workers_n_groups(s); g++) workers_check_reads(s, t, g, start);
	workers_leave_behind(s, t, start);
	if (t->fresh && start > 0) s->counts->prefix_hit++;
	SIM_EXPECT(s, !t->fresh || start == 0 || q->submit.kind != REQUEST_POOL_MEAN, "request %u: a mean without its beginning", q->ix);
	t->fresh = false;
}

static void workers_write_row(struct sim *s, const struct msg_step *m, uint32_t row)
{
	uint32_t slot = col_u32(m->run, row), start = col_u32(m->run_start, row), n = col_u32(m->run_n, row);
	struct sim_slot *t = &s->workers.slots[slot];

	for (uint32_t g = 0; g < workers_n_groups(s); g++) {
		for (uint32_t p = start; p < start + n; p++) {
			uint32_t block = t->tables[g].v[p / SIM_BLOCK];
			struct sim_kv *b = &s->workers.kv[block];

			SIM_EXPECT(s, b->refs == 1, "request %u: writes position %u into block %u, which %u tables name",
				   t->request->ix, p, block, b->refs);
			b->hash[p % SIM_BLOCK] = t->hashes[p] + g;
			b->salt[p % SIM_BLOCK] = t->request->salt;
		}
	}
	t->n_computed = start + n;
	workers_leave_behind(s, t, t->n_computed);
	t->request->ran = true;
	if (t->request->cancel_in_prefill && !t->request->sampled && t->n_computed < t->n_tokens) {
		t->request->cancel_wanted = true;
		sim_wake(s, t->request->frontend, s->now);
	}
	s->workers.kills |= t->request->poison;
}

/* Token, rank and log-probabilities of rows. */
struct workers_tops {
	uint32_t *n_top, *ranks, *ids;
	float *logprobs;
	uint32_t n, n_entries;
};

/* The answer of rank 0. */
struct workers_reply {
	uint32_t *slots, *tokens, n, *prompt_slots, *prompt_starts, *n_prompt, n_prompt_rows, *pooled_slots, n_pooled;
	struct workers_tops drawn, prompt;
	float *pooled;
};

static void workers_tops_init(struct workers_tops *t, uint32_t n)
{
	*t = (struct workers_tops){.n_top = mem_array(uint32_t, n),
				   .ranks = mem_array(uint32_t, n),
				   .ids = mem_array(uint32_t, (size_t)n * (LIMIT_TOP_LOGPROBS + 1)),
				   .logprobs = mem_array(float, (size_t)n * (LIMIT_TOP_LOGPROBS + 1))};
}

static void workers_tops_release(struct workers_tops *t)
{
	free(t->n_top);
	free(t->ranks);
	free(t->ids);
	free(t->logprobs);
}

static void workers_sample_row(struct sim *s, const struct msg_step *m, uint32_t row, struct workers_reply *r)
{
	struct sim_slot *t = &s->workers.slots[col_u32(m->run, row)];
	struct sim_request *q = t->request;
	struct workers_tops *d = &r->drawn;
	uint64_t hash = t->hashes[t->n_tokens - 1];
	uint32_t position = t->n_tokens - q->submit.n_prompt, token = sim_model_token(q, hash, position);

	/* A stop id may be seen a step late; these limits are known before. */
	SIM_EXPECT(s, position < q->submit.n_output_max && t->n_tokens < s->setup.model_len_max,
		   "request %u: draws token %u of %u", q->ix, position, q->submit.n_output_max);
	SIM_EXPECT(s, t->prompt_from == q->submit.n_prompt, "request %u: draws before prompt position %u", q->ix, t->prompt_from);
	r->slots[r->n] = col_u32(m->run, row);
	r->tokens[r->n++] = token;
	d->n_top[d->n] = q->submit.n_logprobs;
	sim_model_top(q, hash, token, &d->ranks[d->n], d->ids + d->n_entries, d->logprobs + d->n_entries);
	d->n_entries += d->n_top[d->n++];
	workers_set_token(t, token >= TOKEN_FAILED ? 0 : token);
	q->sampled = true;
}

static void workers_pool_row(struct sim *s, const struct msg_step *m, uint32_t row, struct workers_reply *r)
{
	struct sim_slot *t = &s->workers.slots[col_u32(m->run, row)];

	for (uint32_t i = 0; i < SIM_DIM; i++)
		r->pooled[r->n_pooled * SIM_DIM + i] = sim_model_pooled(t->request, t->hashes[t->n_tokens - 1], i);
	r->pooled_slots[r->n_pooled++] = col_u32(m->run, row);
}

/* Log-probabilities of the prompt positions behind the tokens that have run, without a hole. */
static void workers_prompt_row(struct sim *s, const struct msg_step *m, uint32_t row, struct workers_reply *r)
{
	struct sim_slot *t = &s->workers.slots[col_u32(m->run, row)];
	struct sim_request *q = t->request;
	uint32_t start = col_u32(m->run_start, row), end = min_u32(start + col_u32(m->run_n, row) + 1, q->submit.n_prompt);
	uint32_t from = t->prompt_from;
	struct workers_tops *d = &r->prompt;

	if (from >= end) return;
	SIM_EXPECT(s, from > start, "request %u: prompt position %u was not computed", q->ix, from);
	r->prompt_slots[r->n_prompt_rows] = col_u32(m->run, row);
	r->prompt_starts[r->n_prompt_rows] = from;
	r->n_prompt[r->n_prompt_rows++] = end - from;
	for (; t->prompt_from < end; t->prompt_from++, d->n++) {
		d->n_top[d->n] = q->submit.n_prompt_logprobs;
		sim_model_prompt_top(q, t->hashes[t->prompt_from - 1], t->prompt_from, &d->ranks[d->n], d->ids + d->n_entries,
				     d->logprobs + d->n_entries);
		d->n_entries += d->n_top[d->n];
	}
}

static void workers_reply_pack(struct sim *s, const struct msg_step *m, const struct workers_reply *r)
{
	struct msg out = {.type = MSG_step_result};

	out.step_result = (struct msg_step_result){.epoch = m->epoch,
						   .number = m->number,
						   .slots = view_of(r->slots, r->n),
						   .tokens = view_of(r->tokens, r->n),
						   .n_top = view_of(r->drawn.n_top, r->drawn.n),
						   .ranks = view_of(r->drawn.ranks, r->drawn.n),
						   .top_ids = view_of(r->drawn.ids, r->drawn.n_entries),
						   .top_logprobs = view_of(r->drawn.logprobs, r->drawn.n_entries),
						   .prompt_slots = view_of(r->prompt_slots, r->n_prompt_rows),
						   .prompt_starts = view_of(r->prompt_starts, r->n_prompt_rows),
						   .n_prompt_tokens = view_of(r->n_prompt, r->n_prompt_rows),
						   .prompt_n_top = view_of(r->prompt.n_top, r->prompt.n),
						   .prompt_ranks = view_of(r->prompt.ranks, r->prompt.n),
						   .prompt_top_ids = view_of(r->prompt.ids, r->prompt.n_entries),
						   .prompt_top_logprobs = view_of(r->prompt.logprobs, r->prompt.n_entries),
						   .pooled_slots = view_of(r->pooled_slots, r->n_pooled),
						   .pooled = view_of(r->pooled, (size_t)r->n_pooled * SIM_DIM)};
	strbuf_init(&s->workers.reply, LIMIT_REPLY_RING_BYTES);
	SIM_EXPECT(s, msg_pack(&out, &s->workers.reply) == ST_OK, "a result does not pack");
}

static void workers_reply(struct sim *s, const struct msg_step *m)
{
	uint32_t n = m->run.n;
	struct workers_reply r = {.slots = mem_array(uint32_t, n),
				  .tokens = mem_array(uint32_t, n),
				  .prompt_slots = mem_array(uint32_t, n),
				  .prompt_starts = mem_array(uint32_t, n),
				  .n_prompt = mem_array(uint32_t, n),
				  .pooled_slots = mem_array(uint32_t, n),
				  .pooled = mem_array(float, (size_t)n * SIM_DIM)};

	workers_tops_init(&r.drawn, n);
	workers_tops_init(&r.prompt, s->setup.core.batched_tokens_max);
	for (uint32_t i = 0; i < n; i++) {
		workers_prompt_row(s, m, i, &r);
		if (!col_u32(m->run_sample, i)) continue;
		if (s->workers.slots[col_u32(m->run, i)].request->submit.kind == REQUEST_GENERATE)
			workers_sample_row(s, m, i, &r);
		else
			workers_pool_row(s, m, i, &r);
	}
	workers_reply_pack(s, m, &r);
	free(r.slots);
	free(r.tokens);
	free(r.prompt_slots);
	free(r.prompt_starts);
	free(r.n_prompt);
	free(r.pooled_slots);
	free(r.pooled);
	workers_tops_release(&r.drawn);
	workers_tops_release(&r.prompt);
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
		for (uint32_t g = 0; g < LIMIT_KV_GROUPS; g++) free(w->slots[i].tables[g].v);
	}
	free(w->kv);
	strbuf_release(&w->reply);
	sim_queue_release(&w->steps);
	sim_queue_release(&w->replies);
}
