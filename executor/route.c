/* route.c - the frontends as the core sees them: lanes, and what is sent on them.
 *
 * A lane is found by client_id >> 48 and serves one incarnation; anything of another one is dropped and counted. What a lane
 * has to hear (welcome, refusals, results, sync) is built from the requests when it is sent, and only what the lane took
 * changes them: ST_AGAIN costs nothing and pauses this lane, ST_CLOSED forgets it.
 *
 * Only lanes with something to say cost anything: requests with unsent rows are on their lane's dirty list. */
#include "executor/core_impl.h"

#include <stdio.h>

/* One results message. More than that (a resend of a long answer, thousands of accepted rows) goes into the next message. */
#define ROUTE_TOKENS_MAX 65536 /* of output and prompts; with 21 log-probabilities each 12 MB: half of LIMIT_MESSAGE_BYTES */

/* Is incarnation a newer than b? They count modulo 256. */
static bool route_is_newer(uint32_t a, uint32_t b)
{
	return (int8_t)(uint8_t)(a - b) > 0;
}

static bool route_is_open(const struct lane *l)
{
	return list_is_linked(&l->link);
}

struct lane *route_lane(const struct core *c, uint64_t client_id)
{
	uint32_t frontend = client_id_frontend(client_id);
	struct lane *l = frontend < LIMIT_FRONTENDS ? c->lanes[frontend] : NULL;

	return l && route_is_open(l) && l->incarnation == client_id_incarnation(client_id) ? l : NULL;
}

static void route_close(struct core *c, struct lane *l)
{
	while (l->seqs.len > 0) {
		core_drop(c, CONTAINER_OF(list_first(&l->seqs), struct seq, lane_link));
		c->stats.cancels++;
	}
	if (route_is_open(l)) list_remove(&c->lanes_open, &l->link);
	l->n_refusals = 0;
	l->n_dirty = l->n_clean = 0;
}

static struct lane *route_make_lane(struct core *c, uint32_t frontend, uint32_t incarnation)
{
	struct lane *l = c->lanes[frontend];

	if (l) return l;
	l = c->lanes[frontend] = mem_new(struct lane);
	l->frontend = frontend;
	l->incarnation = incarnation;
	l->rows_at = UINT64_MAX;
	list_init(&l->seqs);
	flows_init(&l->flows);
	return l;
}

void route_hello(struct core *c, const struct msg_hello *m)
{
	struct lane *l;

	if (m->epoch != c->cfg.epoch || m->version != PROTO_VERSION || m->frontend >= LIMIT_FRONTENDS) {
		c->stats.dropped_stale++;
		return;
	}
	l = route_make_lane(c, m->frontend, m->incarnation);
	if (l->incarnation != m->incarnation ? !route_is_newer(m->incarnation, l->incarnation) : l->gone) {
		c->stats.dropped_stale++;
		return;
	}
	if (l->incarnation != m->incarnation) {
		route_close(c, l);
		l->incarnation = m->incarnation;
		l->gone = false;
		l->sync_number = 0;
	}
	if (!route_is_open(l)) list_push_back(&c->lanes_open, &l->link);
	l->paused = false;
	l->welcome_due = true;
	l->sync_at = UINT64_MAX;
}

void route_gone(struct core *c, uint32_t frontend, uint32_t incarnation)
{
	struct lane *l;

	if (frontend >= LIMIT_FRONTENDS) return;
	l = route_make_lane(c, frontend, incarnation);
	if (route_is_newer(l->incarnation, incarnation)) return;
	route_close(c, l);
	l->incarnation = incarnation;
	l->gone = true;
}

void route_welcome_all(struct core *c)
{
	LIST_EACH(&c->lanes_open, it, nx) CONTAINER_OF(it, struct lane, link)->welcome_due = true;
}

void route_dirty_soon(struct core *c, struct seq *s)
{
	uint64_t at = min_u64(s->lane->rows_at, c->now + c->cfg.accept_wait_ns);

	route_dirty(s);
	s->lane->rows_at = at;
}

void route_clean(struct seq *s)
{
	if (!s->dirty_at) return;
	s->lane->dirty[s->dirty_at - 1] = NULL;
	s->lane->n_clean++;
	s->dirty_at = 0;
}

void route_refuse(struct core *c, struct lane *l, uint64_t client_id, uint32_t attempt, enum refusal reason, const char *text)
{
	struct lane_refusal *r;

	if (l->n_refusals >= LANE_REFUSALS_MAX) return;
	c->stats.refused++;
	mem_reserve(l->refusals, l->refusals_cap, l->n_refusals + 1);
	r = &l->refusals[l->n_refusals++];
	*r = (struct lane_refusal){.client_id = client_id, .attempt = attempt, .reason = reason};
	snprintf(r->text, sizeof(r->text), "%s", text);
}

/* False: nothing more can be sent on this lane now. */
static bool route_send(struct core *c, struct lane *l, const struct msg *m)
{
	int rc = c->out.send(c->out.ctx, l->frontend, l->incarnation, m);

	if (rc == ST_OK) return true;
	if (rc == ST_AGAIN)
		l->paused = true;
	else
		route_close(c, l);
	return false;
}

static bool route_send_welcome(struct core *c, struct lane *l)
{
	struct msg m = {.type = MSG_welcome,
			.welcome = {.version = PROTO_VERSION,
				    .epoch = c->cfg.epoch,
				    .model_len_max = c->model_len_max,
				    .n_blocks = c->pool.n_blocks}};

	if (!l->welcome_due || !c->was_ready) return true;
	if (!route_send(c, l, &m)) return false;
	l->welcome_due = false;
	l->sync_at = 0;
	return true;
}

static bool route_send_refusals(struct core *c, struct lane *l)
{
	size_t i;
	bool ok = true;

	for (i = 0; i < l->n_refusals; i++) {
		const struct lane_refusal *r = &l->refusals[i];
		struct msg m = {.type = MSG_refused,
				.refused = {.epoch = c->cfg.epoch,
					    .client_id = r->client_id,
					    .attempt = r->attempt,
					    .reason = r->reason,
					    .text = view_text(r->text)}};

		ok = route_send(c, l, &m);
		if (!ok) break;
	}
	if (l->n_refusals) { /* not closed meanwhile */
		l->n_refusals -= i;
		memmove(l->refusals, l->refusals + i, l->n_refusals * sizeof(*l->refusals));
	}
	return ok;
}

static void route_reset(struct route_cols *o)
{
#define ROUTE_AS_RESET(name) o->name.n = 0;
	ROUTE_COLUMNS(ROUTE_AS_RESET)
	o->client_ids.n = 0;
	o->n_rows = 0;
}

/* Tokens that still fit, those of the prompt included. */
static uint32_t route_room(const struct route_cols *o)
{
	return (uint32_t)(ROUTE_TOKENS_MAX - o->tokens.n - o->prompt_ranks.n);
}

/* Entry ix of a column that is left out as long as all its entries are 0. */
static void route_put(struct vec32 *v, size_t ix, uint32_t x)
{
	if (!x) return;
	while (v->n < ix) vec32_push(v, 0);
	vec32_push(v, x);
}

/* Such a column in the end: empty, or with all n entries. */
static void route_fill_up(struct vec32 *v, size_t n)
{
	while (v->n && v->n < n) vec32_push(v, 0);
}

static uint32_t route_add_top(const struct seq_logprobs *l, uint32_t position, uint32_t *rank, struct vec32 *ids, struct vec32 *lps)
{
	uint32_t at, n = seq_top(l, position, rank, &at);

	if (!n) return 0;
	vec32_append(ids, l->top_ids + at, n);
	vec32_append(lps, l->top_lps + at, n);
	return n;
}

/* Log-probabilities of the prompt. Returns how many. */
static uint32_t route_add_prompt(struct route_cols *o, const struct seq *s)
{
	uint32_t i, rank, n = seq_has_prompt_rows(s) ? min_u32(seq_n_prompt_known(s) - s->n_prompt_sent, route_room(o)) : 0;

	if (!n) return 0;
	route_put(&o->prompt_starts, o->n_rows, s->n_prompt_sent);
	route_put(&o->n_prompt_tokens, o->n_rows, n);
	for (i = 0; i < n; i++) {
		vec32_push(&o->prompt_n_top, route_add_top(s->prompt_logprobs, s->n_prompt_sent + i, &rank, &o->prompt_top_ids, &o->prompt_top_logprobs));
		vec32_push(&o->prompt_ranks, rank);
	}
	return n;
}

/* n output tokens. */
static void route_add_tokens(struct route_cols *o, struct seq *s, uint32_t n)
{
	uint32_t i, rank;

	seq_store(s);
	vec32_append(&o->tokens, s->tokens + s->n_prompt + s->n_sent, n);
	for (i = 0; s->logprobs && i < n; i++) {
		size_t ix = o->tokens.n - n + i;

		route_put(&o->n_top, ix, route_add_top(s->logprobs, s->n_sent + i, &rank, &o->top_ids, &o->top_logprobs));
		route_put(&o->ranks, ix, rank);
	}
}

static uint32_t route_us(uint64_t ns)
{
	return (uint32_t)min_u64(max_u64(ns / NS_PER_US, 1), UINT32_MAX); /* 0 says that there is none */
}

/* How long the first token of a row has taken, or the way to the first step alone. */
static void route_add_times(struct route_cols *o, const struct seq *s, uint32_t n)
{
	bool first = n > 0 && s->n_sent == 0 && s->first_token_ns > 0;

	if (!first && !s->begin_due) return;
	route_put(&o->queued_us, o->n_rows, route_us(s->began_ns - s->arrived_ns));
	route_put(&o->prefill_us, o->n_rows, first ? route_us(s->first_token_ns - s->began_ns) : 0);
}

/* The columns that every row has an entry in; there is room. */
static inline void route_put_row(struct route_cols *o, struct route_row row)
{
	size_t i = o->n_rows++;

	o->rows[i] = row;
	o->client_ids.v[i] = row.seq->client_id;
	o->attempts.v[i] = row.seq->attempt;
	o->positions.v[i] = row.seq->n_sent;
	o->n_tokens.v[i] = row.n;
}

/* The row of a request, with as many tokens as fit: first those of the prompt. */
static void route_add_row(struct route_cols *o, struct seq *s)
{
	uint32_t n_prompt = s->prompt_logprobs ? route_add_prompt(o, s) : 0;
	bool prompt_is_sent = !s->prompt_logprobs || s->n_prompt_sent + n_prompt == seq_n_prompt_known(s);
	uint32_t n = prompt_is_sent ? min_u32(seq_n_output(s) - s->n_sent, route_room(o)) : 0;
	bool ends = s->finish != FINISH_NONE && prompt_is_sent && s->n_sent + n == seq_n_output(s);

	route_put(&o->finishes, o->n_rows, ends ? s->finish : FINISH_NONE);
	route_put(&o->n_cached, o->n_rows, s->n_sent ? 0 : s->n_cached);
	route_add_tokens(o, s, n);
	route_put(&o->n_pooled, o->n_rows, s->n_pooled);
	vec32_append(&o->pooled, s->pooled, s->n_pooled);
	route_add_times(o, s, n);
	route_put_row(o, (struct route_row){s, n, n_prompt, ends});
}

/* The row of a request with one more token and nothing else to say. False: it is another one. */
static bool route_add_quiet(struct route_cols *o, struct seq *s)
{
	if (!s->quiet_tokens || !s->n_sent || s->begin_due || s->n_prompt + s->n_sent + 1 != s->n_tokens) return false;
	vec32_push(&o->tokens, seq_last_token(s));
	route_put_row(o, (struct route_row){s, 1, 0, false});
	return true;
}

/* Room for n rows in the columns that every row has an entry in. */
static void route_reserve(struct route_cols *o, size_t n)
{
	mem_reserve(o->rows, o->rows_cap, n);
	mem_reserve(o->client_ids.v, o->client_ids.cap, n);
	mem_reserve(o->attempts.v, o->attempts.cap, n);
	mem_reserve(o->positions.v, o->positions.cap, n);
	mem_reserve(o->n_tokens.v, o->n_tokens.cap, n);
}

/* One more row, with a part of it at least. */
static bool route_has_room(const struct route_cols *o, const struct seq *s)
{
	return o->n_rows < LIMIT_SEQS && route_room(o) > 0 && o->pooled.n + s->n_pooled <= LIMIT_POOLED;
}

/* Rows of what is dirty, in order, as many as fit. */
static void route_add_rows(struct route_cols *o, const struct lane *l)
{
	uint32_t i;

	route_reset(o);
	route_reserve(o, min_u32(l->n_dirty, LIMIT_SEQS));
	for (i = 0; i < l->n_dirty; i++) {
		struct seq *s = l->dirty[i];

		if (i + CORE_AHEAD < l->n_dirty) seq_prefetch(l->dirty[i + CORE_AHEAD], 3);
		if (!s) continue;
		if (!route_has_room(o, s)) break;
		if (!route_add_quiet(o, s)) route_add_row(o, s);
	}
	o->client_ids.n = o->attempts.n = o->positions.n = o->n_tokens.n = o->n_rows;
	route_fill_up(&o->finishes, o->n_rows);
	route_fill_up(&o->n_cached, o->n_rows);
	route_fill_up(&o->prompt_starts, o->n_rows);
	route_fill_up(&o->n_prompt_tokens, o->n_rows);
	route_fill_up(&o->n_pooled, o->n_rows);
	route_fill_up(&o->queued_us, o->n_rows);
	route_fill_up(&o->prefill_us, o->n_rows);
	route_fill_up(&o->n_top, o->tokens.n);
	route_fill_up(&o->ranks, o->tokens.n);
}

/* Takes what is clean out of the lane's list. */
static void route_sweep(struct lane *l)
{
	uint32_t i, n = 0;

	for (i = 0; l->n_clean > 0 && l->n_clean < l->n_dirty && i < l->n_dirty; i++) {
		struct seq *s = l->dirty[i];

		if (!s) continue;
		l->dirty[n++] = s;
		s->dirty_at = n;
	}
	l->n_dirty -= l->n_clean;
	l->n_clean = 0;
}

/* The lane took the message. */
static void route_commit(struct core *c, struct lane *l)
{
	size_t i;

	for (i = 0; i < c->route.n_rows; i++) {
		const struct route_row *r = &c->route.rows[i];
		struct seq *s = r->seq;

		if (i + CORE_AHEAD < c->route.n_rows) seq_prefetch(c->route.rows[i + CORE_AHEAD].seq, 1);
		s->n_sent += r->n;
		if (r->n_prompt) s->n_prompt_sent += r->n_prompt;
		s->accept_due = s->begin_due = false;
		if (r->ends)
			core_drop(c, s);
		else if (s->n_sent == seq_n_output(s) && !seq_has_prompt_rows(s))
			route_clean(s);
	}
	route_sweep(l);
}

static bool route_send_results(struct core *c, struct lane *l, uint64_t now)
{
	struct route_cols *o = &c->route;

	if (now < l->rows_at) return true;
	for (route_sweep(l); l->n_dirty > 0;) {
		struct msg m = {.type = MSG_results};

		route_add_rows(o, l);
#define ROUTE_AS_VIEW(name) .name = vec32_view(&o->name),
		m.results = (struct msg_results){
			.epoch = c->cfg.epoch, .client_ids = vec64_view(&o->client_ids), ROUTE_COLUMNS(ROUTE_AS_VIEW)};
		if (!route_send(c, l, &m)) return false;
		route_commit(c, l);
	}
	l->rows_at = UINT64_MAX;
	return true;
}

static void route_send_sync(struct core *c, struct lane *l, uint64_t now)
{
	struct route_cols *o = &c->route;
	struct msg m = {.type = MSG_sync};

	/* It was idle, and is no longer. */
	if (l->seqs.len && l->sync_at != UINT64_MAX) l->sync_at = min_u64(l->sync_at, now + c->cfg.sync_interval_ns);
	if (now < l->sync_at) return;
	route_reset(o);
	LIST_EACH(&l->seqs, it, nx) {
		const struct seq *s = CONTAINER_OF(it, struct seq, lane_link);

		vec64_push(&o->client_ids, s->client_id);
		vec32_push(&o->attempts, s->attempt);
		vec32_push(&o->positions, s->n_sent);
	}
	m.sync = (struct msg_sync){.epoch = c->cfg.epoch,
				   .number = l->sync_number + 1,
				   .client_ids = vec64_view(&o->client_ids),
				   .attempts = vec32_view(&o->attempts),
				   .positions = vec32_view(&o->positions)};
	if (!route_send(c, l, &m)) return;
	l->sync_number++;
	l->sync_at = now + (l->seqs.len || !c->cfg.sync_idle_ns ? c->cfg.sync_interval_ns : c->cfg.sync_idle_ns);
}

void route_step(struct core *c, uint64_t now)
{
	LIST_EACH(&c->lanes_open, it, nx) {
		struct lane *l = CONTAINER_OF(it, struct lane, link);

		if (!l->paused && route_send_welcome(c, l) && route_send_refusals(c, l) && route_send_results(c, l, now))
			route_send_sync(c, l, now);
	}
}

uint64_t route_deadline(const struct core *c)
{
	uint64_t at = UINT64_MAX;

	LIST_EACH(&c->lanes_open, it, nx) {
		const struct lane *l = CONTAINER_OF(it, struct lane, link);

		if (!l->paused) at = min_u64(at, min_u64(l->sync_at, l->rows_at));
	}
	return at;
}

bool route_has_refusals(const struct core *c)
{
	LIST_EACH(&c->lanes_open, it, nx)
		if (CONTAINER_OF(it, struct lane, link)->n_refusals) return true;
	return false;
}

void route_release(struct core *c)
{
	struct route_cols *o = &c->route;
	size_t i;

#define ROUTE_AS_FREE(name) free(o->name.v);
	ROUTE_COLUMNS(ROUTE_AS_FREE)
	for (i = 0; i < LIMIT_FRONTENDS; i++) {
		if (!c->lanes[i]) continue;
		flows_release(&c->lanes[i]->flows);
		free(c->lanes[i]->refusals);
		free(c->lanes[i]->dirty);
		free(c->lanes[i]);
	}
	free(o->client_ids.v);
	free(o->rows);
}

void route_check(const struct core *c)
{
	size_t i, n_seqs = 0, n_waiting = 0;

	for (i = 0; i < LIMIT_FRONTENDS; i++) {
		const struct lane *l = c->lanes[i];
		size_t n_dirty = 0;

		if (!l) continue;
		CHECK(l->frontend == i && (route_is_open(l) || (l->seqs.len == 0 && l->n_refusals == 0)));
		CHECK(!(l->gone && route_is_open(l)) && l->n_refusals <= LANE_REFUSALS_MAX);
		n_seqs += l->seqs.len;
		flows_check(&l->flows);
		n_waiting += l->flows.n_waiting;
		LIST_EACH(&l->seqs, it, nx) {
			const struct seq *s = CONTAINER_OF(it, struct seq, lane_link);
			bool dirty = s->accept_due || s->begin_due || s->n_sent < seq_n_output(s) || seq_has_prompt_rows(s) ||
				     s->finish != FINISH_NONE;

			CHECK(s->lane == l && route_lane(c, s->client_id) == l);
			CHECK(dirty == (s->dirty_at > 0));
			if (dirty) CHECK(s->dirty_at <= l->n_dirty && l->dirty[s->dirty_at - 1] == s);
			n_dirty += dirty;
		}
		CHECK(n_dirty + l->n_clean == l->n_dirty);
	}
	CHECK(n_seqs == seqs_len(&c->seqs) && n_waiting == c->seqs.in_state[SEQ_WAITING].len);
}
