/* core.c - the executor's events, see core.h; and the life of a request between its states.
 *
 * An event only changes what is known; core_step() decides and sends. The other parts of the core are in admit.c (submits), sched.c
 * (steps), taken.c (their results), expiry.c (queue timeouts), route.c (frontends) and suspect.c (quarantine).
 *
 * Blocks and slots are given back at once, also while steps in flight use them: steps are carried out in order, each rank on its
 * own memory, so a later step that gives the block or slot to somebody else runs after the last one that reads or writes
 * it for its old owner. Only the prefix cache lets others read a block, and a block is published when the result of
 * the step that filled it has come. Results find their request by the number of its stay in the slot. */
#include "executor/core_impl.h"

/* Tokens of one request: all of them and their block numbers (a sixteenth) go into one step, which may be half of the step ring, with
 * its lists and grammar, and with what else runs: at most three MiB, four columns of LIMIT_SEQS and four for each of their tables. */
#define CORE_STEP_REST (LIMIT_GRAMMAR_BYTES + 4 * (LIMIT_STOP_IDS + 2 * LIMIT_BIAS + LIMIT_ALLOWED) + 3 * MIB)
_Static_assert(4 * (4 * LIMIT_SEQS + 4 * LIMIT_SEQS * LIMIT_KV_GROUPS) <= 3 * MIB, "as said");
#define CORE_LEN_MAX(n_groups) ((uint32_t)((LIMIT_STEP_RING_BYTES / 2 - CORE_STEP_REST) * 4 / (17 + (n_groups))))
_Static_assert(LIMIT_STEP_RING_BYTES / 2 * 4 / 17 <= LIMIT_TOKENS, "a message has room for them");

struct core *core_new(const struct core_config *cfg, const struct core_out *out)
{
	struct core *c = mem_new(struct core);
	uint32_t i;

	CHECK(cfg->seqs_max > 0 && cfg->seqs_max <= LIMIT_SEQS && cfg->requests_max > 0);
	CHECK(cfg->batched_tokens_max > 0 && cfg->batched_tokens_max <= LIMIT_BATCH && cfg->steps_in_flight_max > 0);
	c->cfg = *cfg;
	c->out = *out;
	/* Every running request must be able to decode in each step. */
	c->cfg.seqs_max = min_u32(cfg->seqs_max, cfg->batched_tokens_max);
	if (!c->cfg.prefill_chunk_max) c->cfg.prefill_chunk_max = cfg->batched_tokens_max;
	c->len_max = c->model_len_max = UINT32_MAX;
	hold_set_kv(c, &(struct core_kv){0});
	kvpool_init(&c->pool, 0, cfg->prefix_cache);
	seqs_init(&c->seqs);
	fair_init(&c->fair, cfg->fair, cfg->tenants_max);
	expiry_init(c);
	sched_init(c);
	list_init(&c->lanes_open);
	c->slots = mem_array(struct slot, c->cfg.seqs_max);
	c->slots_free = mem_array(uint32_t, c->cfg.seqs_max);
	c->order = mem_array(struct seq *, c->cfg.seqs_max);
	c->scratch = mem_array(struct seq *, c->cfg.seqs_max);
	c->recs = mem_array(struct step_rec, cfg->steps_in_flight_max);
	for (i = 0; i < cfg->steps_in_flight_max; i++) {
		c->recs[i].rows = mem_array(struct step_row, c->cfg.seqs_max);
		c->recs[i].prompts = mem_array(struct step_prompt, c->cfg.seqs_max);
	}
	for (i = 0; i < c->cfg.seqs_max; i++) c->slots_free[i] = c->cfg.seqs_max - 1 - i;
	c->n_slots_free = c->cfg.seqs_max;
	return c;
}

void core_free(struct core *c)
{
	uint32_t i;

	if (!c) return;
	for (i = 0; i < c->cfg.steps_in_flight_max; i++) {
		free(c->recs[i].rows);
		free(c->recs[i].prompts);
	}
	seqs_release(&c->seqs);
	route_release(c);
	fair_release(&c->fair);
	heap_release(&c->expiries);
	sched_release(c);
	kvpool_release(&c->pool);
	free(c->recs);
	free(c->order);
	free(c->scratch);
	free(c->slots);
	free(c->slots_free);
	free(c);
}

struct step_rec *core_oldest_step(const struct core *c)
{
	return c->n_recs ? &c->recs[c->rec_first] : NULL;
}

/* ---- requests ---- */

void core_evict(struct core *c, struct seq *s)
{
	CHECK(s->state == SEQ_RUNNING && c->slots[s->slot].seq == s);
	seq_store(s);
	hold_give_all(c, s);
	c->slots[s->slot] = (struct slot){0};
	c->slots_free[c->n_slots_free++] = s->slot;
	vec32_push(&c->cols.removed, s->slot);
}

void core_requeue(struct core *c, struct seq *s)
{
	seq_move(&c->seqs, s, s->suspect ? SEQ_SUSPECT : SEQ_WAITING);
}

void core_finish(struct core *c, struct seq *s, enum finish finish)
{
	if (s->state == SEQ_RUNNING) core_evict(c, s);
	expiry_end(c, s);
	suspect_clear(c, s);
	s->finish = finish;
	seq_move(&c->seqs, s, SEQ_DONE);
	c->stats.finished++;
	route_dirty(s);
}

void core_drop(struct core *c, struct seq *s)
{
	struct fair_share *tenant = s->flow->tenant;

	if (s->state == SEQ_RUNNING) core_evict(c, s);
	expiry_end(c, s);
	suspect_clear(c, s);
	list_remove(&s->lane->seqs, &s->lane_link);
	route_clean(s);
	seq_free(&c->seqs, s);
	fair_leave(&c->fair, tenant);
}

void core_refuse(struct core *c, struct seq *s, enum refusal reason, const char *text)
{
	route_refuse(c, s->lane, s->client_id, s->attempt, reason, text);
	core_drop(c, s);
}

uint32_t core_kv_window_blocks(const struct core_kv *kv, uint64_t tokens_ahead)
{
	if (kv->n_windowed == 0) return 0;
	return (uint32_t)min_u64(UINT32_MAX, ((uint64_t)kv->window - 1 + tokens_ahead) / KVPOOL_BLOCK + 2);
}

uint64_t core_kv_len(const struct core_kv *kv, uint64_t tokens_ahead, uint64_t n_blocks)
{
	uint64_t window_blocks = core_kv_window_blocks(kv, tokens_ahead), n_groups = max_u64((uint64_t)kv->n_full + kv->n_windowed, 1);

	/* As long as the windowed groups hold everything, all groups are alike. */
	if (kv->n_windowed == 0 || n_blocks / n_groups < window_blocks) return n_blocks / n_groups * KVPOOL_BLOCK;
	if (kv->n_full == 0) return UINT64_MAX;
	return (n_blocks - kv->n_windowed * window_blocks) / kv->n_full * KVPOOL_BLOCK;
}

/* Events. */

void core_on_hello(struct core *c, const struct msg_hello *m, uint64_t now)
{
	route_hello(c, m);
}

void core_on_submit(struct core *c, const struct msg_submit *m, uint64_t now)
{
	c->now = now;
	admit_submit(c, m);
}

void core_on_cancel(struct core *c, const struct msg_cancel *m, uint64_t now)
{
	struct seq *s = seqs_find(&c->seqs, m->client_id);

	if (!s) return; /* over already, or of an incarnation that is gone: nothing to remember */
	c->stats.cancels++;
	core_drop(c, s);
}

void core_on_frontend_gone(struct core *c, uint32_t frontend, uint32_t incarnation, uint64_t now)
{
	route_gone(c, frontend, incarnation);
}

void core_on_lane_ready(struct core *c, uint32_t frontend, uint64_t now)
{
	if (frontend < LIMIT_FRONTENDS && c->lanes[frontend]) c->lanes[frontend]->paused = false;
}

void core_drain(struct core *c)
{
	c->draining = true;
}

void core_on_workers_ready(struct core *c, const struct core_workers *w, uint64_t now)
{
	uint32_t model_len_max;
	size_t state;

	if (c->ready) core_on_workers_lost(c, now); /* they started anew, so what they held is gone */
	hold_set_kv(c, &w->kv);
	model_len_max = min_u32(w->model_len_max, CORE_LEN_MAX(c->n_kv_groups));
	if (c->model_len_max != model_len_max || c->pool.n_blocks != w->n_blocks) route_welcome_all(c);
	hold_new_pool(c, w->n_blocks);
	c->vocab = w->vocab;
	c->dim = w->dim;
	c->model_len_max = model_len_max;
	c->len_max = (uint32_t)min_u64(model_len_max, core_kv_len(&c->kv, hold_tokens_ahead(c), w->n_blocks));
	c->ready = c->was_ready = true;
	c->step_tokens = c->cfg.batched_tokens_max;
	if (c->cfg.first_step_tokens) c->step_tokens = min_u32(c->cfg.first_step_tokens, c->step_tokens);
	for (state = SEQ_WAITING; state < SEQ_DONE; state++) {
		LIST_EACH(&c->seqs.in_state[state], it, nx) admit_recheck(c, CONTAINER_OF(it, struct seq, link));
	}
}

static void core_forget_kv(struct core *c)
{
	struct list *running = &c->seqs.in_state[SEQ_RUNNING];

	while (running->len > 0) {
		struct seq *s = CONTAINER_OF(list_first(running), struct seq, link);

		core_evict(c, s);
		core_requeue(c, s);
		c->stats.replays++;
	}
	c->ready = false;
	c->n_recs = 0;
	c->cols.removed.n = 0; /* whoever comes next has no slots taken */
	hold_new_pool(c, c->pool.n_blocks);
}

void core_on_workers_lost(struct core *c, uint64_t now)
{
	const struct step_rec *rec = core_oldest_step(c);
	uint32_t i, n_blamed = 0;
	struct seq **blamed;

	blamed = mem_array(struct seq *, rec ? rec->n_rows : 0);
	for (i = 0; rec && i < rec->n_rows; i++) {
		struct seq *s = core_row_seq(c, &rec->rows[i]);

		if (s) blamed[n_blamed++] = s;
	}
	core_forget_kv(c);
	suspect_on_loss(c, blamed, n_blamed);
	free(blamed);
}

void core_on_workers_taken(struct core *c)
{
	core_forget_kv(c);
}

/* Decisions. */

void core_step(struct core *c, uint64_t now)
{
	c->now = now;
	expiry_step(c, now);
	/* Steps first: the workers wait for nobody who reads. */
	while (c->ready && c->n_recs < (c->on_trial ? 1 : c->cfg.steps_in_flight_max) && sched_step(c)) {
	}
	if (c->out.scheduled) c->out.scheduled(c->out.ctx);
	route_step(c, now);
}

uint64_t core_deadline(const struct core *c)
{
	return min_u64(route_deadline(c), expiry_deadline(c));
}

bool core_is_idle(const struct core *c)
{
	return seqs_len(&c->seqs) == 0 && c->n_recs == 0 && !route_has_refusals(c);
}

void core_stats(const struct core *c, struct core_stats *out)
{
	*out = c->stats;
	out->n_running = c->seqs.in_state[SEQ_RUNNING].len;
	out->n_waiting = c->seqs.in_state[SEQ_WAITING].len;
	out->n_suspects = c->seqs.in_state[SEQ_SUSPECT].len;
	out->n_tenants = c->fair.n_active;
	out->blocks_total = c->pool.n_blocks;
	out->blocks_used = c->pool.n_used;
	out->blocks_cached = c->pool.n_cached;
	out->blocks_free = c->pool.n_free;
}

static void core_check_slots(const struct core *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < c->cfg.seqs_max; i++) {
		const struct seq *s = c->slots[i].seq;

		if (!s) continue;
		CHECK(s->state == SEQ_RUNNING && s->slot == i && c->slots[i].stay > 0);
		n++;
	}
	CHECK(n == c->seqs.in_state[SEQ_RUNNING].len && n + c->n_slots_free == c->cfg.seqs_max);
	for (i = 0; i < c->n_slots_free; i++) CHECK(!c->slots[c->slots_free[i]].seq);
}

void core_check(const struct core *c)
{
	uint64_t n_pending = 0, n_samples = 0;
	uint32_t i, k;

	kvpool_check(&c->pool);
	seqs_check(&c->seqs);
	hold_check(c);
	core_check_slots(c);
	route_check(c);
	suspect_check(c);
	fair_check(&c->fair);
	heap_check(&c->expiries);
	CHECK(seqs_len(&c->seqs) <= c->cfg.requests_max && c->n_recs <= c->cfg.steps_in_flight_max);
	LIST_EACH(&c->seqs.in_state[SEQ_RUNNING], it, nx) n_pending += CONTAINER_OF(it, struct seq, link)->n_pending;
	for (i = 0; i < c->n_recs; i++) {
		const struct step_rec *rec = &c->recs[(c->rec_first + i) % c->cfg.steps_in_flight_max];

		for (k = 0; k < rec->n_rows; k++) n_samples += rec->rows[k].sample && core_row_seq(c, &rec->rows[k]);
	}
	CHECK(n_pending == n_samples);
}
