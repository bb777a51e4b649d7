/* sched.c - chooses what the next step runs, and writes the step.
 *
 * In this order, until the token budget is spent:
 *   1. running requests with one token to compute (decode), each of which then samples;
 *   2. running requests with more (the rest of a prompt), in chunks;
 *   3. waiting requests, when a slot is free and the pool has room for all their known tokens at once: their blocks are
 *      taken at once (of layers with a window: as many as they will ever hold), so a prompt that has begun never waits for blocks.
 * Within the first two: lower priority number, then arrival. Of those that wait: lower priority number, then whose tenant has had
 * the least (flow.h, fair.h), then arrival. The first waiting request that does not fit ends the step's admissions: nobody
 * overtakes it, so it starves only under higher priorities. A tenant pays for the prompt when the request starts, for outputs as they
 * come; what a preemption or a replay computes once more costs it nothing.
 *
 * A decode that needs a block when there is none preempts: first whoever does not run now anyway (its lane is paused, or it waits
 * for a trial to end), then, of those with the lowest priority behind it, the last one of the tenant that has had most; at the end itself. The preempted one keeps its tokens, waits in its old place
 * and is computed anew. The first in order is never preempted while others run, and alone it always fits (core.len_max), so
 * the whole gets on.
 *
 * A request may be in two steps in flight: its last token is then known to the workers only, and counts as pending.
 *
 * The first steps after the workers came are short (core_config.first_step_tokens).
 *
 * A step and its result have to go through rings: new sequences are added as long as their prompts, grammars and lists fit
 * SCHED_ADDED_BYTES_MAX, and at most LIMIT_PROMPT_ROWS log-probabilities of prompts and LIMIT_POOLED elements of pooled states are
 * asked for; chunks are cut there. The rest goes into the next step. */
#include "executor/core_impl.h"

#define SCHED_ADDED_BYTES_MAX (4 * MIB) /* of new sequences in one step, unless one alone has more */
#define SCHED_ADDED_ROW_BYTES 128       /* of a new sequence's columns that are no lists */

/* on_trial: who runs alone, or NULL. That does not wait for a slow reader: one token ends it. */
static bool sched_may_run_on(const struct seq *on_trial, const struct seq *s)
{
	return on_trial ? s == on_trial : !s->lane->paused;
}

static bool sched_may_run(const struct core *c, const struct seq *s)
{
	return sched_may_run_on(c->on_trial, s);
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

/* Who makes room for s. Decodes are chosen in order, so behind s nobody is in this step yet. */
static struct seq *sched_victim(const struct core *c, const struct seq *s)
{
	const struct list *running = &c->seqs.in_state[SEQ_RUNNING];
	struct seq *victim = CONTAINER_OF(list_last(running), struct seq, link), *it = victim;

	if (fair_is_one(&c->fair)) return victim;
	while (it != s) {
		it = CONTAINER_OF(it->link.prev, struct seq, link);
		if (it->priority != victim->priority || &it->link == list_first(running)) break;
		if (fair_has_more(it->flow->tenant, victim->flow->tenant)) victim = it;
	}
	return victim;
}

/* Makes room for s: preempts somebody who is not in this step. False when it was s itself. */
static bool sched_preempt_for(struct core *c, struct seq *s)
{
	struct seq *victim;

	if (sched_preempt_idle(c)) return true;
	victim = sched_victim(c, s);
	sched_preempt(c, victim);
	return victim != s;
}

/* Prompt positions whose log-probabilities the next n tokens of s give: the number, and the first. */
static uint32_t sched_prompt_rows(const struct seq *s, uint32_t n, uint32_t *first)
{
	uint32_t end = min_u32(s->n_sched + n + 1, s->n_prompt);

	*first = max_u32(s->n_sched + 1, s->prompt_from);
	return s->prompt_logprobs && *first < end ? end - *first : 0;
}

/* Room for one more pooled state in the step's result. */
static bool sched_may_pool(const struct core *c, const struct step_rec *rec)
{
	return (uint64_t)(rec->n_pooled + 1) * c->dim <= LIMIT_POOLED;
}

/* How many of the next n tokens of s may run, as far as the step's result has room. */
static uint32_t sched_fit_result(const struct core *c, const struct step_rec *rec, const struct seq *s, uint32_t n)
{
	uint32_t first, n_rows = sched_prompt_rows(s, n, &first), room = LIMIT_PROMPT_ROWS - rec->n_prompt_tokens;

	if (n_rows > room) n = first + room - 1 - s->n_sched; /* up to the token before the first one without room */
	if (seq_is_pooling(s) && s->n_sched + n == s->n_tokens && !sched_may_pool(c, rec)) n--;
	return n;
}

/* Writes a row of the step; its columns have room for all that may run. */
static inline void sched_add_row(struct core *c, struct step_rec *rec, struct seq *s, uint32_t n, bool sample, bool pool)
{
	struct sched_cols *o = &c->cols;
	struct step_row *row = &rec->rows[rec->n_rows];
	uint32_t i = rec->n_rows++, at = s->n_sched;

	row->stay = c->slots[s->slot].stay;
	row->slot = o->run.v[i] = s->slot;
	row->end = s->n_sched = at + n;
	row->sample = sample;
	row->pool = pool;
	row->has_prompt = false;
	o->run_start.v[i] = at;
	o->run_n.v[i] = n;
	o->run_sample.v[i] = sample | pool;
	s->n_pending += sample;
	rec->n_samples += sample;
}

/* Runs n tokens from n_sched on; with a sample, or the pooled state, when they are all that there are. */
static void sched_run(struct core *c, struct step_rec *rec, struct seq *s, uint32_t n)
{
	bool last = s->n_sched + n == s->n_tokens + s->n_pending;
	uint32_t i = rec->n_rows;
	struct step_prompt *p = &rec->prompts[i];

	p->n = sched_prompt_rows(s, n, &p->at);
	sched_add_row(c, rec, s, n, last && !seq_is_pooling(s), last && seq_is_pooling(s));
	rec->rows[i].has_prompt = p->n > 0;
	rec->n_pooled += rec->rows[i].pool;
	rec->n_prompt_rows += p->n > 0;
	rec->n_prompt_tokens += p->n;
}

/* Writes down that a table has grown, from its block `from` on. */
static void sched_grown(struct core *c, const struct seq *s, uint32_t group, uint32_t from)
{
	const struct seq_table *t = &s->tables[group];

	if (from == t->n) return;
	vec32_push(&c->cols.grown, s->slot);
	vec32_push(&c->cols.grown_group, group);
	vec32_push(&c->cols.grown_n, t->n - from);
	for (uint32_t i = from; i < t->n; i++) vec32_push(&c->cols.grown_blocks, i < t->first ? 0 : t->v[i]);
}

/* Appends new blocks to a table until it has n; there is room. */
static void sched_fill(struct core *c, struct seq *s, uint32_t group, uint32_t n)
{
	struct seq_table *t = &s->tables[group];

	mem_reserve(t->v, t->cap, n);
	for (; t->n < n; t->n++) CHECK(kvpool_alloc(&c->pool, &t->v[t->n]) == ST_OK);
}

/* Blocks that the tables of s lack for its next n tokens. */
static uint32_t sched_n_lacking(const struct core *c, const struct seq *s, uint32_t n)
{
	uint32_t n_blocks = (uint32_t)div_up(s->n_sched + n, KVPOOL_BLOCK), lacking = 0;

	for (uint32_t g = 0; g < c->n_kv_groups; g++)
		if (s->tables[g].n < n_blocks) lacking += n_blocks - s->tables[g].n;
	return lacking;
}

/* Blocks for the next n tokens. False when s itself was preempted; a prompt that has begun never is, here. */
static bool sched_grow(struct core *c, struct seq *s, uint32_t n)
{
	uint32_t n_blocks = (uint32_t)div_up(s->n_sched + n, KVPOOL_BLOCK), lacking = sched_n_lacking(c, s, n);

	if (!lacking) return true;
	while (lacking > s->n_reserved && lacking - s->n_reserved > hold_available(c))
		if (!sched_preempt_for(c, s)) return false;
	for (uint32_t g = 0; g < c->n_kv_groups; g++) {
		uint32_t from = s->tables[g].n;

		if (from >= n_blocks) continue;
		sched_fill(c, s, g, n_blocks);
		sched_grown(c, s, g, from);
	}
	hold_reserve(c, s);
	return true;
}

/* Tokens that s can compute in the next step, 0 when it waits for results: all that it may draw is under way. */
static uint32_t sched_n_ready(const struct core *c, const struct seq *s)
{
	if (!seq_is_pooling(s) && seq_n_output(s) + s->n_pending >= seq_n_output_limit(s, c->len_max)) return 0;
	return s->n_tokens + s->n_pending - s->n_sched;
}

/* One more token of s. */
static void sched_pick_decode(struct core *c, struct step_rec *rec, struct seq *s)
{
	if (!sched_fit_result(c, rec, s, 1) || !sched_grow(c, s, 1)) return;
	sched_run(c, rec, s, 1);
	seq_set_quiet_sched(s, c->len_max, c->n_kv_groups);
}

/* The same of a quiet decode (seq.h). False: there is more to do, or nothing. */
static bool sched_pick_quiet(struct core *c, struct step_rec *rec, struct seq *s)
{
	if (s->n_sched >= s->quiet_sched || s->n_sched + 1 != s->n_tokens + s->n_pending || s->lane->paused) return false;
	sched_add_row(c, rec, s, 1, true, false);
	return true;
}

/* A column of 4-byte elements, appended. */
static void sched_append(struct vec32 *to, struct view column)
{
	vec32_append(to, column.data, column.n);
}

/* Bytes of s in the added_ columns of a step. */
static size_t sched_added_bytes(const struct core *c, const struct seq *s)
{
	const struct msg_submit *m = s->ask;
	size_t n_u32 = (size_t)s->n_tokens + c->n_kv_groups * div_up(s->n_tokens, KVPOOL_BLOCK) + m->stop_ids.n + 2 * (size_t)m->bias_ids.n +
		       m->allowed_ids.n;

	return SCHED_ADDED_ROW_BYTES + n_u32 * sizeof(uint32_t) + m->grammar.n;
}

/* Tells the workers about a new sequence. */
static void sched_added(struct core *c, const struct seq *s)
{
	struct sched_cols *o = &c->cols;
	const struct msg_submit *m = s->ask;

	o->added_bytes += sched_added_bytes(c, s);
	vec32_push(&o->added, s->slot);
	vec32_push(&o->added_n_tokens, s->n_tokens);
	vec32_append(&o->added_tokens, s->tokens, s->n_tokens);
	vec32_push(&o->added_n_prompt, s->n_prompt);
	vec32_push(&o->added_n_output_min, m->n_output_min);
	vec32_push(&o->added_n_output_max, seq_n_output_limit(s, c->len_max));
	vec32_push(&o->added_n_stop, m->stop_ids.n);
	sched_append(&o->added_stop_ids, m->stop_ids);
	vec32_push_f32(&o->added_temperature, m->temperature);
	vec32_push_f32(&o->added_top_p, m->top_p);
	vec32_push(&o->added_top_k, m->top_k);
	vec32_push_f32(&o->added_min_p, m->min_p);
	vec64_push(&o->added_seed, m->seed);
	vec32_push(&o->added_choice, m->choice);
	vec32_push(&o->added_n_logprobs, m->n_logprobs);
	vec32_push(&o->added_kind, m->kind);
	vec32_push_f32(&o->added_repetition, m->repetition_penalty > 0 ? m->repetition_penalty : 1);
	vec32_push_f32(&o->added_presence, m->presence_penalty);
	vec32_push_f32(&o->added_frequency, m->frequency_penalty);
	vec32_push(&o->added_n_bias, m->bias_ids.n);
	sched_append(&o->added_bias_ids, m->bias_ids);
	sched_append(&o->added_bias_values, m->bias_values);
	vec32_push(&o->added_n_allowed, m->allowed_ids.n);
	sched_append(&o->added_allowed_ids, m->allowed_ids);
	vec32_push(&o->added_n_prompt_logprobs, m->n_prompt_logprobs);
	vec32_push(&o->added_n_prompt_known, s->prompt_from);
	vec32_push(&o->added_n_grammar, m->grammar.n);
	strbuf_append(&o->added_grammars, m->grammar.data, m->grammar.n);
}

/* Blocks that the table of a group gets when s starts. */
static uint32_t sched_n_at_start(const struct core *c, const struct seq *s, uint32_t group)
{
	uint32_t n_all = (uint32_t)div_up(s->n_tokens, KVPOOL_BLOCK);

	return group < c->kv.n_full ? n_all : (uint32_t)min_u64(n_all, (uint64_t)s->tables[group].first + c->window_blocks);
}

/* How much less is available when s starts with the prefix that it has. */
static uint32_t sched_start_cost(struct core *c, struct seq *s)
{
	uint32_t cost = hold_find_prefix(c, s);

	for (uint32_t g = 0; g < c->n_kv_groups; g++) cost += sched_n_at_start(c, s, g) - s->n_published;
	return cost;
}

static void sched_count_first_run(struct core *c, struct seq *s)
{
	if (s->was_run) return;
	c->stats.prefix_queries += s->n_tokens;
	c->stats.prefix_hits += s->n_sched;
	s->was_run = true;
	s->began_ns = c->now;
	s->begin_due = heap_is_linked(&s->expiry);
	if (s->begin_due) route_dirty(s);
	expiry_end(c, s);
	s->n_cached = min_u32(s->n_sched, s->n_prompt);
	fair_charge(s->flow->tenant, s->n_prompt - s->n_cached);
	c->stats.prompt_tokens += s->n_prompt;
}

/* Gives a waiting request a slot and blocks for all its known tokens, or for as many as its windows will ever need. False: no room. */
static bool sched_start(struct core *c, struct seq *s)
{
	while (sched_start_cost(c, s) > hold_available(c)) {
		hold_forget_prefix(c, s);
		if (!sched_preempt_idle(c)) return false;
	}
	seq_move(&c->seqs, s, SEQ_RUNNING);
	s->slot = c->slots_free[--c->n_slots_free];
	c->slots[s->slot] = (struct slot){s, ++c->stays};
	s->n_all = (uint32_t)div_up(s->n_tokens, KVPOOL_BLOCK);
	s->n_sched = s->n_published * KVPOOL_BLOCK;
	s->prompt_from = seq_n_prompt_known(s);
	sched_added(c, s);
	/* What was found first, so that making room for the rest does not evict it. */
	for (uint32_t g = 0; g < c->n_kv_groups; g++)
		for (uint32_t i = s->tables[g].first; i < s->tables[g].n; i++) hold_ref(c, g, s->tables[g].v[i]);
	for (uint32_t g = 0; g < c->n_kv_groups; g++) {
		sched_fill(c, s, g, sched_n_at_start(c, s, g));
		sched_grown(c, s, g, 0);
	}
	hold_reserve(c, s);
	sched_count_first_run(c, s);
	return true;
}

/* The request to admit next, or NULL. */
static struct seq *sched_next(struct core *c)
{
	struct seq *best = NULL;

	if (c->on_trial) return c->on_trial->state == SEQ_SUSPECT ? c->on_trial : NULL;
	LIST_EACH(&c->lanes_open, it, nx) {
		struct lane *l = CONTAINER_OF(it, struct lane, link);
		struct seq *s = l->paused ? NULL : flows_first(&l->flows);

		if (s && (!best || flow_goes_before(s, best))) best = s;
	}
	return best;
}

static void sched_reset(struct sched_cols *o)
{
#define SCHED_AS_RESET(name) o->name.n = 0;
	SCHED_COLUMNS(SCHED_AS_RESET)
	o->added_seed.n = 0;
	strbuf_reset(&o->added_grammars);
	o->added_bytes = 0;
}

static void sched_send(struct core *c, const struct step_rec *rec)
{
	struct sched_cols *o = &c->cols;
#define SCHED_AS_VIEW(name) .name = vec32_view(&o->name),
	struct msg_step m = {
		.epoch = c->cfg.epoch,
		.number = rec->number,
		.removed = vec32_view(&o->removed),
		.added_seed = vec64_view(&o->added_seed),
		.added_grammars = view_of(o->added_grammars.data, o->added_grammars.len),
		SCHED_COLUMNS(SCHED_AS_VIEW)
	};

	CHECK(!o->added_grammars.overflow);
	c->out.step(c->out.ctx, &m);
	o->removed.n = 0;
}

static uint32_t sched_chunk(const struct core *c, const struct step_rec *rec, const struct seq *s, uint32_t n_ready, uint32_t budget)
{
	uint32_t n = min_u32(n_ready, min_u32(budget, c->cfg.prefill_chunk_max));

	return n ? sched_fit_result(c, rec, s, n) : 0;
}

/* c->order as it is now: gone through by steps in which nobody came or went. */
static void sched_order(struct core *c)
{
	if (c->order_changes == c->seqs.running_changes) return;
	c->n_order = 0;
	LIST_EACH(&c->seqs.in_state[SEQ_RUNNING], it, nx) c->order[c->n_order++] = CONTAINER_OF(it, struct seq, link);
	c->order_changes = c->seqs.running_changes;
}

/* Those who decode. Leaves the others that may run in c->scratch and returns how many. */
static uint32_t sched_pick_decodes(struct core *c, struct step_rec *rec)
{
	const struct seq *on_trial = c->on_trial;
	uint32_t i, n_ready, n_more = 0;

	/* Preemption takes requests off the list, but not out of its copy. */
	for (i = 0; i < c->n_order; i++) {
		struct seq *s = c->order[i];

		if (i + CORE_AHEAD < c->n_order) seq_prefetch(c->order[i + CORE_AHEAD], 1);
		if (!on_trial && sched_pick_quiet(c, rec, s)) continue;
		if (s->state != SEQ_RUNNING || !sched_may_run_on(on_trial, s)) continue;
		n_ready = sched_n_ready(c, s);
		if (n_ready == 1) sched_pick_decode(c, rec, s);
		else if (n_ready) c->scratch[n_more++] = s;
	}
	return n_more;
}

static void sched_pick_running(struct core *c, struct step_rec *rec, uint32_t *budget)
{
	uint32_t i, n, n_more;

	sched_order(c);
	n_more = sched_pick_decodes(c, rec);
	*budget -= rec->n_rows;
	for (i = 0; i < n_more && *budget > 0; i++) {
		struct seq *s = c->scratch[i];

		if (s->state != SEQ_RUNNING) continue;
		n = sched_chunk(c, rec, s, sched_n_ready(c, s), *budget);
		if (!n) continue;
		/* Nobody may be preempted here: others are in this step. A prompt's blocks are its own, or reserved. */
		CHECK(sched_n_lacking(c, s, n) <= s->n_reserved && sched_grow(c, s, n));
		sched_run(c, rec, s, n);
		*budget -= n;
	}
}

static void sched_pick_waiting(struct core *c, struct step_rec *rec, uint32_t budget)
{
	struct seq *s;
	uint32_t n;

	while (budget > 0 && (s = sched_next(c))) {
		if (c->cols.added.n > 0 && c->cols.added_bytes + sched_added_bytes(c, s) > SCHED_ADDED_BYTES_MAX) break;
		/* Whoever starts runs in the same step: the result must have room for a token of it. */
		if (s->prompt_logprobs && rec->n_prompt_tokens == LIMIT_PROMPT_ROWS) break;
		if (seq_is_pooling(s) && !sched_may_pool(c, rec)) break;
		if (c->n_slots_free == 0 && !sched_preempt_idle(c)) break;
		if (!sched_start(c, s)) break;
		n = sched_chunk(c, rec, s, s->n_tokens - s->n_sched, budget);
		sched_run(c, rec, s, n);
		budget -= n;
	}
}

/* All streams wait when the workers come back. A first step that is full gives the first of them their token as late as all others; a
 * short one costs little. Whoever runs can always decode. */
static uint32_t sched_budget(const struct core *c)
{
	return max_u32(c->step_tokens, c->seqs.in_state[SEQ_RUNNING].len);
}

bool sched_step(struct core *c)
{
	struct step_rec *rec = &c->recs[(c->rec_first + c->n_recs) % c->cfg.steps_in_flight_max];
	uint32_t budget = sched_budget(c);

	rec->number = c->step_number + 1;
	rec->n_rows = rec->n_samples = rec->n_prompt_rows = rec->n_prompt_tokens = rec->n_pooled = 0;
	sched_reset(&c->cols);
	sched_pick_running(c, rec, &budget);
	sched_pick_waiting(c, rec, budget);
	if (!rec->n_rows) return false;
	c->cols.run.n = c->cols.run_start.n = c->cols.run_n.n = c->cols.run_sample.n = rec->n_rows;
	c->step_number++;
	c->n_recs++;
	c->stats.steps++;
	c->step_tokens = (uint32_t)min_u64(2 * (uint64_t)c->step_tokens, c->cfg.batched_tokens_max);
	sched_send(c, rec);
	return true;
}

void sched_init(struct core *c)
{
	struct sched_cols *o = &c->cols;

	strbuf_init(&o->added_grammars, LIMIT_STEP_RING_BYTES / 2);
	/* A request runs once a step at most. */
	mem_reserve(o->run.v, o->run.cap, c->cfg.seqs_max);
	mem_reserve(o->run_start.v, o->run_start.cap, c->cfg.seqs_max);
	mem_reserve(o->run_n.v, o->run_n.cap, c->cfg.seqs_max);
	mem_reserve(o->run_sample.v, o->run_sample.cap, c->cfg.seqs_max);
}

void sched_release(struct core *c)
{
	struct sched_cols *o = &c->cols;

#define SCHED_AS_FREE(name) free(o->name.v);
	SCHED_COLUMNS(SCHED_AS_FREE)
	free(o->removed.v);
	free(o->added_seed.v);
	strbuf_release(&o->added_grammars);
}
