/* sched.c - chooses what the next step runs, and writes the step.
 *
 * In this order, until the token budget is spent:
 *   1. running requests with one token to compute (decode), each of which then samples;
 *   2. running requests with more (the rest of a prompt), in chunks;
 *   3. waiting requests, when a slot is free and the pool has room for all their known tokens at once: their blocks are
 *      taken at once, so a prompt that has begun never waits for blocks.
 * Within each: lower priority number, then arrival. The first waiting request that does not fit ends the step's admissions: nobody
 * overtakes it, so it starves only under higher priorities.
 *
 * A decode that needs a block when there is none preempts: first whoever does not run now anyway (its lane is paused, or it waits
 * for a trial to end), then the last in order, at the end itself. The preempted one keeps its tokens, waits in its old place
 * and is computed anew. The first in order is never preempted by others, and alone it always fits (core.len_max), so
 * the whole gets on.
 *
 * A request may be in two steps in flight: its last token is then known to the workers only, and counts as pending. */
#include "executor/core_impl.h"

#define SCHED_ADDED_TOKENS_MAX (1u << 20) /* of new sequences in one step, unless one alone has more: 4 MiB of the step ring */

static bool sched_may_run(const struct core *c, const struct seq *s)
{
	uint32_t trial = suspect_trial(c);

	/* A trial does not wait for a slow reader: one token of each member ends it. */
	return trial ? s->group == trial : !s->lane->paused;
}

static void sched_preempt(struct core *c, struct seq *s)
{
	core_evict(c, s);
	core_requeue(c, s);
	c->stats.preemptions++;
}

/* Preempts the last of those that hold a slot and blocks but do not run now. */
static bool sched_preempt_idle(struct core *c)
{
	const struct list *running = &c->seqs.in_state[SEQ_RUNNING];
	struct list_link *it;

	for (it = running->head.prev; it != &running->head; it = it->prev) {
		struct seq *s = CONTAINER_OF(it, struct seq, link);

		if (sched_may_run(c, s)) continue;
		sched_preempt(c, s);
		return true;
	}
	return false;
}

/* Makes room for s: preempts somebody who is not in this step. False when it was s itself. */
static bool sched_preempt_for(struct core *c, struct seq *s)
{
	struct seq *victim;

	if (sched_preempt_idle(c)) return true;
	/* Decodes are chosen in order, so behind s nobody is in this step yet. */
	victim = CONTAINER_OF(list_last(&c->seqs.in_state[SEQ_RUNNING]), struct seq, link);
	sched_preempt(c, victim);
	return victim != s;
}

/* Writes a row of the step: n tokens from n_sched on, and a sample when they are all that there are. */
static void sched_run(struct core *c, struct step_rec *rec, struct seq *s, uint32_t n)
{
	struct sched_cols *o = &c->cols;
	bool sample = s->n_sched + n == s->n_tokens + s->n_pending;

	vec32_push(&o->run, s->slot);
	vec32_push(&o->run_start, s->n_sched);
	vec32_push(&o->run_n, n);
	vec32_push(&o->run_sample, sample);
	s->n_sched += n;
	s->n_pending += sample;
	s->step_mark = rec->number;
	mem_reserve(rec->rows, rec->cap, (size_t)rec->n_rows + 1);
	rec->rows[rec->n_rows++] =
		(struct step_row){.stay = c->slots[s->slot].stay, .slot = s->slot, .end = s->n_sched, .sample = sample};
	rec->n_samples += sample;
}

static void sched_add_block(struct core *c, struct seq *s, uint32_t block)
{
	mem_reserve(s->blocks, s->blocks_cap, (size_t)s->n_blocks + 1);
	s->blocks[s->n_blocks++] = block;
	vec32_push(&c->cols.grown_blocks, block);
}

static void sched_grown(struct core *c, const struct seq *s, uint32_t n)
{
	vec32_push(&c->cols.grown, s->slot);
	vec32_push(&c->cols.grown_n, n);
}

/* Tokens that s can compute in the next step, 0 when it waits for results: all that it may draw is under way. */
static uint32_t sched_n_ready(const struct core *c, const struct seq *s)
{
	if (seq_n_output(s) + s->n_pending >= seq_n_output_limit(s, c->len_max)) return 0;
	return s->n_tokens + s->n_pending - s->n_sched;
}

static void sched_pick_decode(struct core *c, struct step_rec *rec, struct seq *s)
{
	uint32_t block;

	if (s->n_sched == s->n_blocks * KVPOOL_BLOCK) {
		while (kvpool_alloc(&c->pool, &block) != ST_OK)
			if (!sched_preempt_for(c, s)) return;
		sched_add_block(c, s, block);
		sched_grown(c, s, 1);
	}
	sched_run(c, rec, s, 1);
}

/* Tells the workers about a new sequence. */
static void sched_added(struct core *c, const struct seq *s)
{
	struct sched_cols *o = &c->cols;

	vec32_push(&o->added, s->slot);
	vec32_push(&o->added_n_tokens, s->n_tokens);
	vec32_append(&o->added_tokens, s->tokens, s->n_tokens);
	vec32_push(&o->added_n_prompt, s->n_prompt);
	vec32_push(&o->added_n_output_min, s->n_output_min);
	vec32_push(&o->added_n_stop, s->n_stop_ids);
	vec32_append(&o->added_stop_ids, s->stop_ids, s->n_stop_ids);
	vec32_push_f32(&o->added_temperature, s->temperature);
	vec32_push_f32(&o->added_top_p, s->top_p);
	vec32_push(&o->added_top_k, s->top_k);
	vec32_push_f32(&o->added_min_p, s->min_p);
	vec64_push(&o->added_seed, s->seed);
	vec32_push(&o->added_choice, s->choice);
	vec32_push(&o->added_n_logprobs, s->n_logprobs);
}

/* Finds s's beginning in the prefix cache; at least one token is left to compute. Fills s->blocks without references.
 * Returns how many of the found blocks nobody uses: taking them makes less available. */
static uint32_t sched_find_prefix(struct core *c, struct seq *s)
{
	uint32_t n_max = (s->n_tokens - 1) / KVPOOL_BLOCK, n_unused = 0, block;

	s->chain = s->root;
	for (s->n_published = 0; s->n_published < n_max; s->n_published++) {
		block = kvpool_find(&c->pool, s->chain, s->tokens + (size_t)s->n_published * KVPOOL_BLOCK);
		if (block == KVPOOL_NONE) break;
		mem_reserve(s->blocks, s->blocks_cap, (size_t)s->n_published + 1);
		s->blocks[s->n_published] = block;
		s->chain = kvpool_chain(&c->pool, block);
		n_unused += !kvpool_is_used(&c->pool, block);
	}
	return n_unused;
}

static void sched_count_first_run(struct core *c, struct seq *s)
{
	if (s->was_run) return;
	c->stats.prefix_queries += s->n_tokens;
	c->stats.prefix_hits += s->n_sched;
	s->was_run = true;
	s->n_cached = min_u32(s->n_sched, s->n_prompt);
	c->stats.prompt_tokens += s->n_prompt;
}

/* Gives a waiting request a slot and blocks for all its known tokens. False: no room. */
static bool sched_start(struct core *c, struct seq *s)
{
	uint32_t n_all = (uint32_t)div_up(s->n_tokens, KVPOOL_BLOCK), i, block = KVPOOL_NONE;

	while (sched_find_prefix(c, s) + n_all - s->n_published > kvpool_available(&c->pool)) {
		s->n_published = 0;
		if (!sched_preempt_idle(c)) return false;
	}
	seq_move(&c->seqs, s, SEQ_RUNNING);
	s->slot = c->slots_free[--c->n_slots_free];
	c->slots[s->slot] = (struct slot){s, ++c->stays};
	/* What was found first, so that making room for the rest does not evict it. */
	for (i = 0; i < s->n_published; i++) {
		block = s->blocks[i];
		kvpool_ref(&c->pool, block);
		sched_add_block(c, s, block);
	}
	for (; i < n_all; i++) {
		CHECK(kvpool_alloc(&c->pool, &block) == ST_OK);
		sched_add_block(c, s, block);
	}
	s->n_sched = s->n_published * KVPOOL_BLOCK;
	sched_added(c, s);
	sched_grown(c, s, n_all);
	sched_count_first_run(c, s);
	return true;
}

/* The request to admit next, or NULL. */
static struct seq *sched_next(const struct core *c)
{
	struct seq *best = NULL;

	if (suspect_trial(c)) {
		LIST_EACH(&c->seqs.in_state[SEQ_SUSPECT], it, nx) {
			struct seq *s = CONTAINER_OF(it, struct seq, link);

			if (sched_may_run(c, s)) return s;
		}
		return NULL;
	}
	LIST_EACH(&c->lanes_open, it, nx) {
		const struct lane *l = CONTAINER_OF(it, struct lane, link);
		struct seq *s = l->paused ? NULL : seqheap_first(&l->waiting);

		if (s && (!best || seq_before(s, best))) best = s;
	}
	return best;
}

static void sched_reset(struct sched_cols *o)
{
	struct vec32 *v[] = {&o->added, &o->added_n_tokens, &o->added_tokens, &o->added_n_prompt, &o->added_n_output_min,
			     &o->added_n_stop, &o->added_stop_ids, &o->added_temperature, &o->added_top_p, &o->added_top_k,
			     &o->added_min_p, &o->added_choice, &o->added_n_logprobs, &o->grown, &o->grown_n,
			     &o->grown_blocks, &o->run, &o->run_start, &o->run_n, &o->run_sample};
	size_t i;

	for (i = 0; i < ARRAY_LEN(v); i++) v[i]->n = 0;
	o->added_seed.n = 0;
}

static void sched_send(struct core *c, const struct step_rec *rec)
{
	struct sched_cols *o = &c->cols;
	struct msg_step m = {
		.epoch = c->cfg.epoch,
		.number = rec->number,
		.removed = vec32_view(&o->removed),
		.added = vec32_view(&o->added),
		.added_n_tokens = vec32_view(&o->added_n_tokens),
		.added_tokens = vec32_view(&o->added_tokens),
		.added_n_prompt = vec32_view(&o->added_n_prompt),
		.added_n_output_min = vec32_view(&o->added_n_output_min),
		.added_n_stop = vec32_view(&o->added_n_stop),
		.added_stop_ids = vec32_view(&o->added_stop_ids),
		.added_temperature = vec32_view(&o->added_temperature),
		.added_top_p = vec32_view(&o->added_top_p),
		.added_top_k = vec32_view(&o->added_top_k),
		.added_min_p = vec32_view(&o->added_min_p),
		.added_seed = vec64_view(&o->added_seed),
		.added_choice = vec32_view(&o->added_choice),
		.added_n_logprobs = vec32_view(&o->added_n_logprobs),
		.grown = vec32_view(&o->grown),
		.grown_n = vec32_view(&o->grown_n),
		.grown_blocks = vec32_view(&o->grown_blocks),
		.run = vec32_view(&o->run),
		.run_start = vec32_view(&o->run_start),
		.run_n = vec32_view(&o->run_n),
		.run_sample = vec32_view(&o->run_sample),
	};

	c->out.step(c->out.ctx, &m);
	o->removed.n = 0;
}

static uint32_t sched_chunk(const struct core *c, uint32_t n_ready, uint32_t budget)
{
	return min_u32(n_ready, min_u32(budget, c->cfg.prefill_chunk_max));
}

static void sched_pick_running(struct core *c, struct step_rec *rec, uint32_t *budget)
{
	uint32_t i, n, n_order = 0;

	/* A copy, because preemption changes the list. */
	LIST_EACH(&c->seqs.in_state[SEQ_RUNNING], it, nx) c->order[n_order++] = CONTAINER_OF(it, struct seq, link);
	for (i = 0; i < n_order; i++) {
		struct seq *s = c->order[i];

		if (s->state != SEQ_RUNNING || !sched_may_run(c, s) || sched_n_ready(c, s) != 1) continue;
		sched_pick_decode(c, rec, s);
	}
	*budget -= rec->n_rows;
	for (i = 0; i < n_order && *budget > 0; i++) {
		struct seq *s = c->order[i];

		if (s->state != SEQ_RUNNING || !sched_may_run(c, s) || s->step_mark == rec->number) continue;
		n = sched_chunk(c, sched_n_ready(c, s), *budget);
		if (!n) continue;
		sched_run(c, rec, s, n);
		*budget -= n;
	}
}

static void sched_pick_waiting(struct core *c, struct step_rec *rec, uint32_t budget)
{
	struct seq *s;
	uint32_t n;

	while (budget > 0 && (s = sched_next(c))) {
		if (c->cols.added.n > 0 && c->cols.added_tokens.n + s->n_tokens > SCHED_ADDED_TOKENS_MAX) break;
		if (c->n_slots_free == 0 && !sched_preempt_idle(c)) break;
		if (!sched_start(c, s)) break;
		n = sched_chunk(c, s->n_tokens - s->n_sched, budget);
		sched_run(c, rec, s, n);
		budget -= n;
	}
}

bool sched_step(struct core *c)
{
	struct step_rec *rec = &c->recs[(c->rec_first + c->n_recs) % c->cfg.steps_in_flight_max];
	uint32_t budget = c->cfg.batched_tokens_max;

	rec->number = c->step_number + 1;
	rec->n_rows = rec->n_samples = 0;
	sched_reset(&c->cols);
	sched_pick_running(c, rec, &budget);
	sched_pick_waiting(c, rec, budget);
	if (!rec->n_rows) return false;
	c->step_number++;
	c->n_recs++;
	c->stats.steps++;
	sched_send(c, rec);
	return true;
}

void sched_release(struct core *c)
{
	struct sched_cols *o = &c->cols;
	struct vec32 *v[] = {&o->removed, &o->added, &o->added_n_tokens, &o->added_tokens, &o->added_n_prompt,
			     &o->added_n_output_min, &o->added_n_stop, &o->added_stop_ids, &o->added_temperature,
			     &o->added_top_p, &o->added_top_k, &o->added_min_p, &o->added_choice, &o->added_n_logprobs,
			     &o->grown, &o->grown_n, &o->grown_blocks, &o->run, &o->run_start, &o->run_n, &o->run_sample};
	size_t i;

	for (i = 0; i < ARRAY_LEN(v); i++) free(v[i]->v);
	free(o->added_seed.v);
}
