/* live.c - see live.h. What the frontend knows of its requests at the executor, and what it does when that differs.
 *
 * Owns every live request, found by its id and on one list a state:
 *
 *   DUE   a submit has to be sent (first in, first out)
 *   SENT  the newest attempt is on its way, nothing was heard of it
 *   HELD  the executor has answered the newest attempt: by a row or by listing it in a sync
 *
 * Good path: start -> DUE -> (submit) SENT -> (accepted row) HELD -> rows of tokens -> the row with a finish ends it.
 *
 * What goes wrong, and what heals it (each by submitting again with the tokens so far; that is idempotent, so a
 * needless one costs time and nothing else):
 * - the executor dies:        its successor's welcome makes everything DUE. So does the welcome after a silence.
 * - a row is lost:            the next one leaves a gap, or the next sync has a larger position. A lane is first in,
 *                             first out: what the executor sent before the sync has arrived before it.
 * - the last row is lost:     a HELD request is missing in the sync. It was held when its row was sent, which was
 *                             before.
 * - a submit is lost:         a SENT request is missing (or listed with an older attempt) in two syncs that came after
 *                             the send; the first of them may have been sent before the submit arrived.
 * - a cancel is lost:         the sync lists an id that is unknown here.
 * So a sync is also the only timer of a request: what is not done now because it was done a moment ago (hold_until) is
 * seen again at the next one. Without any message there is silence, and hello.
 *
 * Always holds, see lives_check(): a request is on the list of its state and in the table; n_output <= n_output_max;
 * started = live + ended + cancelled. */
#include "frontend/live_impl.h"

#include "common/mem.h"
#include "common/status.h"
#include "proto/ids.h"

/* A full lane says when it has room again; this is for the case that the word is lost. */
#define LIVES_RETRY_NS (20 * NS_PER_MS)
/* Of submits in one step: after a new epoch thousands are due, and the loop has other work. */
#define LIVES_STEP_BYTES MIB
/* Syncs in which a submit may be missing: the first one may have crossed it. */
#define LIVES_SYNCS_MISSED 2

struct lives *lives_new(const struct lives_config *cfg, const struct lives_out *out)
{
	struct lives *l = mem_new(struct lives);

	CHECK(cfg->requests_max > 0);
	l->cfg = *cfg;
	l->out = *out;
	map_init(&l->by_id);
	for (int s = 0; s < LIVE_N_STATES; s++) list_init(&l->in_state[s]);
	l->cancels = mem_array(uint64_t, cfg->requests_max);
	return l;
}

void live_free(struct live *r)
{
	free(r->tokens);
	free(r->asked);
	free(r);
}

void lives_free(struct lives *l)
{
	if (!l) return;
	for (int s = 0; s < LIVE_N_STATES; s++)
		LIST_EACH(&l->in_state[s], it, next) live_free(CONTAINER_OF(it, struct live, link));
	map_release(&l->by_id);
	free(l->cancels);
	free(l);
}

static void live_move(struct lives *l, struct live *r, enum live_state to)
{
	list_remove(&l->in_state[r->state], &r->link);
	r->state = to;
	list_push_back(&l->in_state[to], &r->link);
}

/* Takes it out of everything. The caller frees it. */
void live_remove(struct lives *l, struct live *r)
{
	CHECK(!r->in_callback);
	CHECK(map_remove(&l->by_id, r->submit->client_id) == r);
	list_remove(&l->in_state[r->state], &r->link);
}

/* Room for n_more tokens; doubles, and is never more than the request can have. */
void live_reserve(struct live *r, uint32_t n_more)
{
	size_t need = (size_t)r->submit->n_prompt + r->n_output + n_more;

	mem_reserve(r->tokens, r->tokens_cap, need);
}

struct live *lives_start(struct lives *l, const struct msg_submit *params, void *owner, uint64_t now)
{
	struct msg first = {.type = MSG_submit, .submit = *params};
	struct live *r;

	(void)now;
	CHECK(params->n_prompt > 0 && params->tokens.n == params->n_prompt);
	if (l->by_id.len >= l->cfg.requests_max) return NULL;

	first.submit.client_id = client_id_make(l->cfg.frontend, l->cfg.incarnation, ++l->counter);
	first.submit.attempt = 0;
	first.submit.epoch = 0;
	first.submit.tokens = view_of(NULL, 0);
	r = mem_new(struct live);
	r->owner = owner;
	r->asked = msg_dup(&first);
	r->submit = &r->asked->submit;
	r->submit_bytes = params->stop_ids.n * sizeof(uint32_t) + params->cache_salt.n + params->grammar.n +
			  (params->allowed_ids.n + params->bias_ids.n + params->bias_values.n) * sizeof(uint32_t);
	r->n_prompt_known = params->n_prompt_logprobs ? 1 : params->n_prompt;
	live_reserve(r, 0);
	memcpy(r->tokens, params->tokens.data, params->n_prompt * sizeof(uint32_t));

	map_put(&l->by_id, r->submit->client_id, r);
	r->state = LIVE_DUE;
	list_push_back(&l->in_state[LIVE_DUE], &r->link);
	l->stats.started++;
	return r;
}

/* A full queue drops it: the next sync lists the request, and then it is cancelled. */
static void lives_push_cancel(struct lives *l, uint64_t client_id)
{
	if (l->n_cancels == l->cfg.requests_max) return;
	l->cancels[(l->cancels_first + l->n_cancels++) % l->cfg.requests_max] = client_id;
}

void lives_cancel(struct lives *l, struct live *r)
{
	live_remove(l, r);
	/* An executor that was never told of it needs no word, nor does a new one: it gets no submit. */
	if (r->submit->attempt > 0 && r->submit->epoch == l->epoch) lives_push_cancel(l, r->submit->client_id);
	l->stats.cancelled++;
	live_free(r);
}

uint64_t live_client_id(const struct live *r)
{
	return r->submit->client_id;
}

uint32_t live_n_output(const struct live *r)
{
	return r->n_output;
}

uint32_t live_n_cached(const struct live *r)
{
	return r->n_cached;
}

bool live_is_accepted(const struct live *r)
{
	return r->accepted;
}

/* Something of it is missing: submit again, unless that was just done (the next sync shows it again). */
void live_resubmit(struct lives *l, struct live *r, uint64_t now)
{
	if (r->state == LIVE_DUE || now < r->hold_until_ns) return;
	live_move(l, r, LIVE_DUE);
}

/* The executor has answered the newest attempt. */
void live_hold(struct lives *l, struct live *r)
{
	if (!r->accepted && l->out.on_accepted) l->out.on_accepted(l->out.ctx, r->owner);
	r->accepted = true;
	if (r->state == LIVE_SENT) live_move(l, r, LIVE_HELD);
}

void live_end(struct lives *l, struct live *r, enum finish finish, uint32_t refusal, struct view text)
{
	live_remove(l, r);
	l->stats.ended++;
	l->out.on_end(l->out.ctx, r->owner, finish, refusal, text);
	live_free(r);
}

static void lives_on_refused(struct lives *l, const struct msg_refused *m, uint64_t now)
{
	struct live *r = map_get(&l->by_id, m->client_id);

	if (m->epoch == l->epoch) l->heard_ns = now;
	if (m->epoch != l->epoch || !r || m->attempt != r->submit->attempt) {
		l->stats.dropped_stale++;
		return;
	}
	/* Its client is being answered already: that a new executor's queue is full for a moment is no reason to end
	 * the stream. It is as if the submit had been lost. */
	if (m->reason == REFUSAL_QUEUE_FULL && r->accepted) {
		if (r->state == LIVE_HELD) live_move(l, r, LIVE_SENT);
		return;
	}
	live_end(l, r, FINISH_ABORT, m->reason ? m->reason : REFUSAL_INVALID, m->text);
}

static bool lives_is_mine(const struct lives *l, uint64_t client_id)
{
	return (client_id ^ client_id_make(l->cfg.frontend, l->cfg.incarnation, 0)) <= CLIENT_COUNTER_MASK;
}

static void lives_on_sync_row(struct lives *l, uint64_t client_id, uint32_t attempt, uint32_t position, bool heal,
			      uint64_t now)
{
	struct live *r = map_get(&l->by_id, client_id);

	if (!r) {
		if (heal && lives_is_mine(l, client_id)) lives_push_cancel(l, client_id);
		return;
	}
	/* An older attempt: the newer one is on its way or lost, like one that is not listed. */
	if (attempt != r->submit->attempt) return;
	r->sync_seen = l->sync_number;
	live_hold(l, r);
	if (position > r->n_output) {
		l->stats.gaps++;
		live_resubmit(l, r, now);
	}
}

static void lives_on_sync(struct lives *l, const struct msg_sync *m, uint64_t now)
{
	/* Cancels that still wait here may be for these very rows. */
	bool heal = l->n_cancels == 0;

	if (m->epoch != l->epoch || m->attempts.n != m->client_ids.n || m->positions.n != m->client_ids.n) {
		l->stats.dropped_stale++;
		return;
	}
	l->heard_ns = now;
	l->sync_number++;
	for (uint32_t i = 0; i < m->client_ids.n; i++)
		lives_on_sync_row(l, col_u64(m->client_ids, i), col_u32(m->attempts, i), col_u32(m->positions, i), heal,
				  now);

	LIST_EACH(&l->in_state[LIVE_HELD], it, next) {
		struct live *r = CONTAINER_OF(it, struct live, link);

		if (r->sync_seen != l->sync_number) live_resubmit(l, r, now);
	}
	LIST_EACH(&l->in_state[LIVE_SENT], it, next) {
		struct live *r = CONTAINER_OF(it, struct live, link);

		if (++r->syncs_missed >= LIVES_SYNCS_MISSED) live_resubmit(l, r, now);
	}
}

/* Everything has to be submitted (again): first what was running, then what was on its way, then what waited. */
static void lives_all_due(struct lives *l)
{
	static const enum live_state order[] = {LIVE_SENT, LIVE_HELD};
	struct list_link *e;

	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		while ((e = list_last(&l->in_state[order[i]])) != NULL) {
			list_remove(&l->in_state[order[i]], e);
			CONTAINER_OF(e, struct live, link)->state = LIVE_DUE;
			list_push_front(&l->in_state[LIVE_DUE], e);
		}
	}
}

void lives_on_epoch(struct lives *l, uint64_t epoch, uint64_t now)
{
	if (l->has_epoch && epoch <= l->epoch) return;
	l->has_epoch = true;
	l->epoch = epoch;
	l->welcome = l->hello_sent = false;
	l->hello_due_ns = now;
	l->n_cancels = 0; /* they were for the executor that is gone */
}

static void lives_on_welcome(struct lives *l, const struct msg_welcome *m, uint64_t now)
{
	if (!l->has_epoch || m->epoch > l->epoch) {
		/* Faster than the supervisor's word. It has not seen a hello for this epoch: that comes first. */
		lives_on_epoch(l, m->epoch, now);
		return;
	}
	/* Without a hello it was meant for an earlier incarnation. */
	if (m->epoch != l->epoch || !l->hello_sent || m->version != PROTO_VERSION) {
		l->stats.dropped_stale++;
		return;
	}
	l->heard_ns = now;
	l->model_len_max = m->model_len_max;
	if (l->welcome) return; /* the answer to a repeated hello */
	l->welcome = true;
	lives_all_due(l);
}

void lives_on_message(struct lives *l, const struct msg *m, uint64_t now)
{
	switch (m->type) {
	case MSG_welcome: lives_on_welcome(l, &m->welcome, now); break;
	case MSG_results: liverows_on_results(l, &m->results, now); break;
	case MSG_refused: lives_on_refused(l, &m->refused, now); break;
	case MSG_sync: lives_on_sync(l, &m->sync, now); break;
	default: l->stats.dropped_stale++; break;
	}
}

/* ST_OK: the lane took it; else it stays where it is. */
static int lives_send(struct lives *l, const struct msg *m, uint64_t now)
{
	int rc = l->out.send(l->out.ctx, m);

	if (rc != ST_OK) l->retry_ns = now + LIVES_RETRY_NS;
	return rc;
}

static void lives_send_hello(struct lives *l, uint64_t now)
{
	struct msg m = {.type = MSG_hello, .hello = {PROTO_VERSION, l->cfg.frontend, l->cfg.incarnation, l->epoch}};

	if (now < l->hello_due_ns || lives_send(l, &m, now) != ST_OK) return;
	l->hello_sent = true;
	l->hello_due_ns = now + l->cfg.hello_ns;
}

static bool lives_send_cancels(struct lives *l, uint64_t now)
{
	while (l->n_cancels > 0) {
		struct msg m = {.type = MSG_cancel, .cancel = {l->cancels[l->cancels_first]}};

		if (lives_send(l, &m, now) != ST_OK) return false;
		l->cancels_first = (l->cancels_first + 1) % l->cfg.requests_max;
		l->n_cancels--;
	}
	return true;
}

/* How long it may wait for its first step: for ever once it has had one. */
static uint32_t live_queue_ms(const struct live *r, uint64_t now)
{
	uint64_t waited_ms = r->submit->attempt > 0 ? (now - r->sent_ns) / NS_PER_MS : 0;

	if (!r->submit->queue_ms || r->has_begun) return 0;
	return waited_ms < r->submit->queue_ms ? r->submit->queue_ms - (uint32_t)waited_ms : 1;
}

/* False when the lane is full. */
static bool live_send(struct lives *l, struct live *r, uint64_t now)
{
	static const char too_long[] = "the request is longer than a message may be";
	struct msg m = {.type = MSG_submit, .submit = *r->submit};
	bool same_epoch = r->submit->epoch == l->epoch;

	m.submit.attempt++;
	m.submit.epoch = l->epoch;
	m.submit.n_prompt_known = r->submit->n_prompt_logprobs ? r->n_prompt_known : 0;
	m.submit.queue_ms = live_queue_ms(r, now);
	m.submit.tokens = view_of(r->tokens, (size_t)r->submit->n_prompt + r->n_output);
	switch (lives_send(l, &m, now)) {
	case ST_OK: break;
	case ST_LIMIT:
		/* It will never go, and would stop all those behind it. */
		live_end(l, r, FINISH_ABORT, REFUSAL_TOO_LONG, view_text(too_long));
		return true;
	default: return false;
	}

	l->stats.resubmits += r->submit->attempt > 0;
	if (r->submit->attempt == 0) r->sent_ns = now;
	r->submit->attempt = m.submit.attempt;
	r->submit->epoch = l->epoch;
	r->syncs_missed = 0;
	r->backoff_ns = same_epoch && r->backoff_ns ? min_u64(2 * r->backoff_ns, l->cfg.silence_ns) : l->cfg.hello_ns;
	r->hold_until_ns = now + r->backoff_ns;
	live_move(l, r, LIVE_SENT);
	return true;
}

static void lives_send_submits(struct lives *l, uint64_t now)
{
	struct list_link *e;
	size_t n_bytes = 0;

	while (n_bytes < LIVES_STEP_BYTES && (e = list_first(&l->in_state[LIVE_DUE])) != NULL) {
		struct live *r = CONTAINER_OF(e, struct live, link);

		n_bytes += ((size_t)r->submit->n_prompt + r->n_output) * sizeof(uint32_t) + r->submit_bytes;
		if (!live_send(l, r, now)) return;
	}
}

void lives_step(struct lives *l, uint64_t now)
{
	if (!l->has_epoch) return;
	l->retry_ns = 0;
	if (now >= l->heard_ns + l->cfg.silence_ns) l->welcome = false; /* the last hello is long ago, so one is due */
	if (!l->welcome) {
		lives_send_hello(l, now);
		return;
	}
	/* Cancels first: they are short and give the executor room. They never overtake their own submit, which was
	 * sent. */
	if (lives_send_cancels(l, now)) lives_send_submits(l, now);
}

uint64_t lives_deadline(const struct lives *l)
{
	if (!l->has_epoch) return UINT64_MAX;
	if (!l->welcome) return max_u64(l->hello_due_ns, l->retry_ns);
	if (l->n_cancels > 0 || l->in_state[LIVE_DUE].len > 0)
		return min_u64(l->retry_ns, l->heard_ns + l->cfg.silence_ns); /* 0: at once */
	return l->heard_ns + l->cfg.silence_ns;
}

bool lives_is_welcome(const struct lives *l)
{
	return l->welcome;
}

uint32_t lives_model_len_max(const struct lives *l)
{
	return l->model_len_max;
}

void lives_stats(const struct lives *l, struct lives_stats *out)
{
	*out = l->stats;
	out->n_live = l->by_id.len;
}

void lives_check(const struct lives *l)
{
	size_t n = 0;

	for (int s = 0; s < LIVE_N_STATES; s++) {
		size_t n_state = 0;

		LIST_EACH(&l->in_state[s], it, next) {
			const struct live *r = CONTAINER_OF(it, struct live, link);

			CHECK(r->state == (enum live_state)s && map_get(&l->by_id, r->submit->client_id) == r);
			CHECK(lives_is_mine(l, r->submit->client_id) && !r->in_callback);
			CHECK(r->n_output <= r->submit->n_output_max);
			CHECK(r->submit->n_prompt + (size_t)r->n_output <= r->tokens_cap);
			CHECK(r->state == LIVE_DUE || r->submit->attempt > 0);
			CHECK(r->submit->attempt == 0 || r->submit->epoch <= l->epoch);
			n_state++;
		}
		CHECK(n_state == l->in_state[s].len);
		n += n_state;
	}
	CHECK(n == l->by_id.len && n <= l->cfg.requests_max);
	CHECK(l->stats.started == n + l->stats.ended + l->stats.cancelled);
	CHECK(l->n_cancels <= l->cfg.requests_max && l->cancels_first < l->cfg.requests_max);
	CHECK(!l->welcome || (l->has_epoch && l->hello_sent));
}
