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
#include "frontend/live.h"

#include "common/list.h"
#include "common/map.h"
#include "common/mem.h"
#include "common/status.h"
#include "proto/ids.h"

/* A full lane says when it has room again; this is for the case that the word is lost. */
#define LIVES_RETRY_NS (20 * NS_PER_MS)
/* Of submits in one step: after a new epoch thousands are due, and the loop has other work. */
#define LIVES_STEP_BYTES MIB
/* Syncs in which a submit may be missing: the first one may have crossed it. */
#define LIVES_SYNCS_MISSED 2

enum live_state { LIVE_DUE, LIVE_SENT, LIVE_HELD, LIVE_N_STATES };

struct live {
	struct list_link link; /* on lives.in_state[state] */
	enum live_state state;
	void *owner;
	struct msg *asked;        /* owned: the message around `submit` */
	struct msg_submit *submit; /* as sent last: attempt 0 before the first time; its tokens are left out */
	size_t submit_bytes;       /* of its other lists */
	uint32_t *tokens;          /* owned: prompt, then output */
	size_t tokens_cap;
	uint32_t n_output; /* received */
	uint32_t n_prompt_known; /* prompt positions below it need no log-probabilities any more; n_prompt when none are wanted */
	uint32_t n_cached;
	uint64_t hold_until_ns; /* no repeated submit before, within an epoch */
	uint64_t backoff_ns;    /* doubles with each submit that brought no token */
	uint64_t sync_seen;     /* the last sync that listed the newest attempt */
	uint32_t syncs_missed;  /* that did not list it, since it was sent */
	bool accepted;          /* once, by any executor */
	bool in_callback;
};

struct lives {
	struct lives_config cfg;
	struct lives_out out;
	struct map by_id;
	struct list in_state[LIVE_N_STATES];
	uint64_t counter; /* of client ids */

	uint64_t epoch;
	bool has_epoch;
	bool hello_sent; /* in this epoch */
	bool welcome;
	uint64_t hello_due_ns;
	uint64_t heard_ns; /* last message of this epoch, of any kind: a sync may wait behind many others */
	uint64_t retry_ns; /* a send was not taken: again at the latest then; 0: at once */
	uint64_t sync_number;
	uint32_t model_len_max;

	uint64_t *cancels; /* ids, a ring of cfg.requests_max */
	uint32_t cancels_first, n_cancels;
	struct lives_stats stats;
};

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

static void live_free(struct live *r)
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
static void live_remove(struct lives *l, struct live *r)
{
	CHECK(!r->in_callback);
	CHECK(map_remove(&l->by_id, r->submit->client_id) == r);
	list_remove(&l->in_state[r->state], &r->link);
}

/* Room for n_more tokens; doubles, and is never more than the request can have. */
static void live_reserve(struct live *r, uint32_t n_more)
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
static void live_resubmit(struct lives *l, struct live *r, uint64_t now)
{
	if (r->state == LIVE_DUE || now < r->hold_until_ns) return;
	live_move(l, r, LIVE_DUE);
}

/* The executor has answered the newest attempt. */
static void live_hold(struct lives *l, struct live *r)
{
	r->accepted = true;
	if (r->state == LIVE_SENT) live_move(l, r, LIVE_HELD);
}

static void live_end(struct lives *l, struct live *r, enum finish finish, uint32_t refusal, struct view text)
{
	live_remove(l, r);
	l->stats.ended++;
	l->out.on_end(l->out.ctx, r->owner, finish, refusal, text);
	live_free(r);
}

/* One row of a results message. */
struct live_row {
	uint64_t client_id;
	uint32_t attempt, position, n_tokens, finish, n_cached;
	uint32_t prompt_start, n_prompt, n_pooled;
	uint32_t token_ix, top_ix, prompt_ix, prompt_top_ix, pooled_ix; /* where it begins in the joined columns */
};

static struct view lives_column(struct view c, uint32_t ix, uint32_t n)
{
	/* An empty column may have no memory at all. */
	return n ? view_of((const char *)c.data + (size_t)ix * sizeof(uint32_t), n) : view_of(NULL, 0);
}

/* A token of a row: number ix of its columns, whose entries begin at top_ix. */
static struct live_token lives_token(struct view ranks, struct view n_top, struct view ids, struct view logprobs, uint32_t ix,
				     uint32_t top_ix)
{
	uint32_t n = col_u32(n_top, ix);

	return (struct live_token){.rank = col_u32(ranks, ix),
				   .n_top = n,
				   .top_ids = lives_column(ids, top_ix, n),
				   .top_logprobs = lives_column(logprobs, top_ix, n)};
}

/* Gives the owner what is new of the prompt's log-probabilities. */
static void live_take_prompt(struct lives *l, struct live *r, const struct msg_results *m, const struct live_row *row)
{
	uint32_t top_ix = row->prompt_top_ix;

	r->in_callback = true;
	for (uint32_t i = 0; i < row->n_prompt; i++) {
		struct live_token t = lives_token(m->prompt_ranks, m->prompt_n_top, m->prompt_top_ids, m->prompt_top_logprobs,
						  row->prompt_ix + i, top_ix);

		top_ix += t.n_top;
		t.position = row->prompt_start + i;
		if (t.position < r->n_prompt_known) {
			l->stats.dropped_repeats++;
			continue;
		}
		t.id = r->tokens[t.position];
		r->n_prompt_known++;
		r->hold_until_ns = r->backoff_ns = 0;
		if (l->out.on_prompt_token) l->out.on_prompt_token(l->out.ctx, r->owner, &t);
	}
	r->in_callback = false;
}

/* Gives the owner what is new of the row. True when the owner ends the request; *last: that token was the row's
 * last. */
static bool live_take(struct lives *l, struct live *r, const struct msg_results *m, const struct live_row *row,
		      bool *last)
{
	uint32_t top_ix = row->top_ix;

	live_reserve(r, row->n_tokens);
	for (uint32_t i = 0; i < row->n_tokens; i++) {
		struct live_token t = lives_token(m->ranks, m->n_top, m->top_ids, m->top_logprobs, row->token_ix + i, top_ix);
		bool end;

		top_ix += t.n_top;
		t.id = col_u32(m->tokens, row->token_ix + i);
		t.position = row->position + i;
		if (t.position < r->n_output) {
			l->stats.dropped_repeats++;
			continue;
		}
		r->tokens[r->submit->n_prompt + r->n_output++] = t.id;
		r->hold_until_ns = r->backoff_ns = 0;
		l->stats.tokens++;
		r->in_callback = true;
		end = l->out.on_token(l->out.ctx, r->owner, &t);
		r->in_callback = false;
		*last = i + 1 == row->n_tokens;
		if (end) return true;
	}
	return false;
}

/* A row that is no answer to this request. */
static bool live_is_foreign(const struct live *r, const struct live_row *row)
{
	bool is_pooling = r->submit->kind != REQUEST_GENERATE;

	if (row->attempt != r->submit->attempt || row->finish > FINISH_ABORT) return true;
	if ((uint64_t)row->position + row->n_tokens > (is_pooling ? 0 : r->submit->n_output_max)) return true;
	if (row->n_prompt && (!r->submit->n_prompt_logprobs || row->prompt_start == 0 ||
			      (uint64_t)row->prompt_start + row->n_prompt > r->submit->n_prompt))
		return true;
	return is_pooling ? (row->finish == FINISH_STOP) != (row->n_pooled > 0) : row->n_pooled > 0;
}

/* Something that comes before the row's content has not arrived. */
static bool live_has_gap(const struct live *r, const struct live_row *row)
{
	uint32_t prompt_end = r->n_prompt_known;

	if (row->n_prompt) {
		if (row->prompt_start > prompt_end) return true;
		prompt_end = max_u32(prompt_end, row->prompt_start + row->n_prompt);
	}
	if (prompt_end < r->submit->n_prompt && (row->n_tokens || row->finish != FINISH_NONE)) return true;
	return row->position > r->n_output;
}

static void lives_on_row(struct lives *l, const struct msg_results *m, const struct live_row *row, uint64_t now)
{
	struct live *r = map_get(&l->by_id, row->client_id);
	bool last = false;

	if (!r || live_is_foreign(r, row)) {
		l->stats.dropped_stale++;
		return;
	}
	live_hold(l, r);
	if (live_has_gap(r, row)) {
		l->stats.gaps++;
		live_resubmit(l, r, now);
		return;
	}
	if (r->n_output == 0) r->n_cached = min_u32(row->n_cached, r->submit->n_prompt);
	live_take_prompt(l, r, m, row);
	if (live_take(l, r, m, row, &last)) {
		if (row->finish != FINISH_NONE && last) {
			/* The executor has ended it as well. */
			live_remove(l, r);
			l->stats.cancelled++;
			live_free(r);
		} else {
			lives_cancel(l, r);
		}
		return;
	}
	if (row->finish == FINISH_NONE) return;
	if (row->position + row->n_tokens < r->n_output) {
		/* It ends before what it has already given: not an end of this request. A sync will tell. */
		l->stats.dropped_stale++;
		return;
	}
	if (row->n_pooled && l->out.on_embedding) {
		r->in_callback = true;
		l->out.on_embedding(l->out.ctx, r->owner, lives_column(m->pooled, row->pooled_ix, row->n_pooled));
		r->in_callback = false;
	}
	live_end(l, r, (enum finish)row->finish, 0, view_of(NULL, 0));
}

static uint64_t lives_sum(struct view column)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < column.n; i++) sum += col_u32(column, i);
	return sum;
}

/* A column that may be left out: nothing but zeros then. */
static bool lives_may_be(struct view column, uint32_t n_rows)
{
	return column.n == n_rows || column.n == 0;
}

static uint32_t lives_at(struct view column, uint32_t ix)
{
	return ix < column.n ? col_u32(column, ix) : 0;
}

/* All columns describe the same rows, tokens and entries. */
static bool lives_results_fit(const struct msg_results *m)
{
	uint32_t n_rows = m->client_ids.n, n_tokens = m->tokens.n, n_prompt = m->prompt_ranks.n;

	if (m->attempts.n != n_rows || m->positions.n != n_rows || m->n_tokens.n != n_rows || m->finishes.n != n_rows ||
	    m->n_cached.n != n_rows)
		return false;
	if (!lives_may_be(m->prompt_starts, n_rows) || !lives_may_be(m->n_prompt_tokens, n_rows) || !lives_may_be(m->n_pooled, n_rows))
		return false;
	if (m->n_top.n != n_tokens || m->ranks.n != n_tokens || m->top_ids.n != m->top_logprobs.n) return false;
	if (m->prompt_n_top.n != n_prompt || m->prompt_top_ids.n != m->prompt_top_logprobs.n) return false;
	return lives_sum(m->n_tokens) == n_tokens && lives_sum(m->n_top) == m->top_ids.n &&
	       lives_sum(m->n_prompt_tokens) == n_prompt && lives_sum(m->prompt_n_top) == m->prompt_top_ids.n &&
	       lives_sum(m->n_pooled) == m->pooled.n;
}

static void lives_on_results(struct lives *l, const struct msg_results *m, uint64_t now)
{
	struct live_row row = {0};

	if (m->epoch != l->epoch || !lives_results_fit(m)) {
		l->stats.dropped_stale++;
		return;
	}
	l->heard_ns = now;
	for (uint32_t i = 0; i < m->client_ids.n; i++) {
		row.client_id = col_u64(m->client_ids, i);
		row.attempt = col_u32(m->attempts, i);
		row.position = col_u32(m->positions, i);
		row.n_tokens = col_u32(m->n_tokens, i);
		row.finish = col_u32(m->finishes, i);
		row.n_cached = col_u32(m->n_cached, i);
		row.prompt_start = lives_at(m->prompt_starts, i);
		row.n_prompt = lives_at(m->n_prompt_tokens, i);
		row.n_pooled = lives_at(m->n_pooled, i);
		lives_on_row(l, m, &row, now);
		for (uint32_t k = 0; k < row.n_tokens; k++) row.top_ix += col_u32(m->n_top, row.token_ix + k);
		for (uint32_t k = 0; k < row.n_prompt; k++) row.prompt_top_ix += col_u32(m->prompt_n_top, row.prompt_ix + k);
		row.token_ix += row.n_tokens;
		row.prompt_ix += row.n_prompt;
		row.pooled_ix += row.n_pooled;
	}
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
	case MSG_results: lives_on_results(l, &m->results, now); break;
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

/* False when the lane is full. */
static bool live_send(struct lives *l, struct live *r, uint64_t now)
{
	static const char too_long[] = "the request is longer than a message may be";
	struct msg m = {.type = MSG_submit, .submit = *r->submit};
	bool same_epoch = r->submit->epoch == l->epoch;

	m.submit.attempt++;
	m.submit.epoch = l->epoch;
	m.submit.n_prompt_known = r->submit->n_prompt_logprobs ? r->n_prompt_known : 0;
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
