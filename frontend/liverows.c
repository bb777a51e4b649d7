/* liverows.c - what a results message means for the live requests: row by row, what is new goes to the owner, once and in order.
 *
 * A row answers an attempt and says where its tokens belong: the prompt's by their position in it, the output's by theirs. Repeats are
 * skipped; a gap (also a token before the last one of the prompt's log-probabilities) has the request submitted again. A message
 * whose columns do not describe the same rows is dropped as a whole; a row that cannot be an answer to its request, by itself. */
#include "frontend/live_impl.h"

#include "common/mem.h"
#include "proto/ids.h"

#define LIVEROWS_AHEAD 4 /* rows: about what a miss takes */

/* One row of a results message. */
struct liverow {
	uint64_t client_id;
	uint32_t attempt, position, n_tokens, finish, n_cached;
	uint32_t prompt_start, n_prompt, n_pooled;
	uint32_t queued_us, prefill_us;
	uint32_t token_ix, top_ix, prompt_ix, prompt_top_ix, pooled_ix; /* where it begins in the joined columns */
};

static struct view liverows_column(struct view c, uint32_t ix, uint32_t n)
{
	/* An empty column may have no memory at all. */
	return n ? view_of((const char *)c.data + (size_t)ix * sizeof(uint32_t), n) : view_of(NULL, 0);
}

/* A column that may be left out: nothing but zeros then. */
static bool liverows_may_be(struct view column, uint32_t n_rows)
{
	return column.n == n_rows || column.n == 0;
}

/* A token of a row: number ix of its columns, whose entries begin at top_ix. */
static struct live_token liverow_token(struct view ranks, struct view n_top, struct view ids, struct view logprobs, uint32_t ix,
				     uint32_t top_ix)
{
	uint32_t n = col_u32_or_0(n_top, ix);

	return (struct live_token){.rank = col_u32_or_0(ranks, ix),
				   .n_top = n,
				   .top_ids = liverows_column(ids, top_ix, n),
				   .top_logprobs = liverows_column(logprobs, top_ix, n)};
}

/* Gives the owner what is new of the prompt's log-probabilities. */
static void liverow_take_prompt(struct lives *l, struct live *r, const struct msg_results *m, const struct liverow *row)
{
	uint32_t top_ix = row->prompt_top_ix;

	r->in_callback = true;
	for (uint32_t i = 0; i < row->n_prompt; i++) {
		struct live_token t = liverow_token(m->prompt_ranks, m->prompt_n_top, m->prompt_top_ids, m->prompt_top_logprobs,
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
static bool liverow_take(struct lives *l, struct live *r, const struct msg_results *m, const struct liverow *row,
		      bool *last)
{
	uint32_t top_ix = row->top_ix;

	live_reserve(r, row->n_tokens);
	for (uint32_t i = 0; i < row->n_tokens; i++) {
		struct live_token t = liverow_token(m->ranks, m->n_top, m->top_ids, m->top_logprobs, row->token_ix + i, top_ix);
		bool end;

		top_ix += t.n_top;
		t.id = col_u32(m->tokens, row->token_ix + i);
		t.position = row->position + i;
		t.queued_us = t.position == 0 ? row->queued_us : 0;
		t.prefill_us = t.position == 0 ? row->prefill_us : 0;
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
static bool liverow_is_foreign(const struct live *r, const struct liverow *row)
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
static bool liverow_has_gap(const struct live *r, const struct liverow *row)
{
	uint32_t prompt_end = r->n_prompt_known;

	if (row->n_prompt) {
		if (row->prompt_start > prompt_end) return true;
		prompt_end = max_u32(prompt_end, row->prompt_start + row->n_prompt);
	}
	if (prompt_end < r->submit->n_prompt && (row->n_tokens || row->finish != FINISH_NONE)) return true;
	return row->position > r->n_output;
}

static void liverows_on_row(struct lives *l, const struct msg_results *m, const struct liverow *row, uint64_t now)
{
	struct live *r = map_get(&l->by_id, row->client_id);
	bool last = false;

	if (r) r->has_begun |= row->queued_us > 0 || row->n_tokens > 0; /* whichever attempt it was */
	if (!r || liverow_is_foreign(r, row)) {
		l->stats.dropped_stale++;
		return;
	}
	live_hold(l, r);
	if (liverow_has_gap(r, row)) {
		l->stats.gaps++;
		live_resubmit(l, r, now);
		return;
	}
	if (r->n_output == 0) r->n_cached = min_u32(row->n_cached, r->submit->n_prompt);
	liverow_take_prompt(l, r, m, row);
	if (liverow_take(l, r, m, row, &last)) {
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
		l->out.on_embedding(l->out.ctx, r->owner, liverows_column(m->pooled, row->pooled_ix, row->n_pooled));
		r->in_callback = false;
	}
	live_end(l, r, (enum finish)row->finish, 0, view_of(NULL, 0));
}

static uint64_t liverows_sum(struct view column)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < column.n; i++) sum += col_u32(column, i);
	return sum;
}

/* All columns describe the same rows, tokens and entries. */
static bool liverows_fit(const struct msg_results *m)
{
	uint32_t n_rows = m->client_ids.n, n_tokens = m->tokens.n, n_prompt = m->prompt_ranks.n;

	if (m->attempts.n != n_rows || m->positions.n != n_rows || m->n_tokens.n != n_rows) return false;
	if (!liverows_may_be(m->finishes, n_rows) || !liverows_may_be(m->n_cached, n_rows)) return false;
	if (!liverows_may_be(m->prompt_starts, n_rows) || !liverows_may_be(m->n_prompt_tokens, n_rows) || !liverows_may_be(m->n_pooled, n_rows))
		return false;
	if (!liverows_may_be(m->queued_us, n_rows) || !liverows_may_be(m->prefill_us, n_rows)) return false;
	if (!liverows_may_be(m->n_top, n_tokens) || !liverows_may_be(m->ranks, n_tokens) || m->top_ids.n != m->top_logprobs.n) return false;
	if (m->prompt_n_top.n != n_prompt || m->prompt_top_ids.n != m->prompt_top_logprobs.n) return false;
	return liverows_sum(m->n_tokens) == n_tokens && liverows_sum(m->n_top) == m->top_ids.n &&
	       liverows_sum(m->n_prompt_tokens) == n_prompt && liverows_sum(m->prompt_n_top) == m->prompt_top_ids.n &&
	       liverows_sum(m->n_pooled) == m->pooled.n;
}

/* A step of thousands of rows touches as many requests, none of which is in a cache: what the next rows need is fetched meanwhile. */
static void liverows_prefetch(const struct lives *l, struct view client_ids, uint32_t i)
{
	const struct live *r;

	if (i + 2 * LIVEROWS_AHEAD < client_ids.n) __builtin_prefetch(map_get(&l->by_id, col_u64(client_ids, i + 2 * LIVEROWS_AHEAD)));
	if (i + LIVEROWS_AHEAD >= client_ids.n) return;
	r = map_get(&l->by_id, col_u64(client_ids, i + LIVEROWS_AHEAD));
	if (!r) return;
	__builtin_prefetch(r->submit);
	/* The first lines of a choice (gen.c). Whatever it is: a prefetch of anything is harmless. */
	for (uintptr_t at = 0; at < 192; at += 64) __builtin_prefetch((const void *)((uintptr_t)r->owner + at));
}

void liverows_on_results(struct lives *l, const struct msg_results *m, uint64_t now)
{
	struct liverow row = {0};

	if (m->epoch != l->epoch || !liverows_fit(m)) {
		l->stats.dropped_stale++;
		return;
	}
	l->heard_ns = now;
	for (uint32_t i = 0; i < m->client_ids.n; i++) {
		liverows_prefetch(l, m->client_ids, i);
		row.client_id = col_u64(m->client_ids, i);
		row.attempt = col_u32(m->attempts, i);
		row.position = col_u32(m->positions, i);
		row.n_tokens = col_u32(m->n_tokens, i);
		row.finish = col_u32_or_0(m->finishes, i);
		row.n_cached = col_u32_or_0(m->n_cached, i);
		row.prompt_start = col_u32_or_0(m->prompt_starts, i);
		row.n_prompt = col_u32_or_0(m->n_prompt_tokens, i);
		row.n_pooled = col_u32_or_0(m->n_pooled, i);
		row.queued_us = col_u32_or_0(m->queued_us, i);
		row.prefill_us = col_u32_or_0(m->prefill_us, i);
		liverows_on_row(l, m, &row, now);
		for (uint32_t k = 0; k < row.n_tokens; k++) row.top_ix += col_u32_or_0(m->n_top, row.token_ix + k);
		for (uint32_t k = 0; k < row.n_prompt; k++) row.prompt_top_ix += col_u32(m->prompt_n_top, row.prompt_ix + k);
		row.token_ix += row.n_tokens;
		row.prompt_ix += row.n_prompt;
		row.pooled_ix += row.n_pooled;
	}
}
