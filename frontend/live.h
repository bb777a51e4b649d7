/* live.h - a frontend's bookkeeping of its live requests, as plain C: messages and the time go in, submits, tokens and
 * ends come out. The other half of the request protocol of executor/core.h; no socket, no clock.
 *
 * A request holds its prompt tokens and the output tokens received, so that it can be submitted again at any time: on a
 * new epoch, on a gap in the positions, when a sync does not list it or lists it further than what has arrived, and
 * after silence (nothing of this epoch for silence_ns). Tokens reach the owner exactly once and in order.
 *
 * A request that is submitted again before it has run waits for the rest of its queue_ms only; afterwards for ever.
 *
 * A request ends exactly once: on_end() is called, or lives_cancel() was called by the owner. Afterwards the struct is
 * gone. Sync rows that name a request unknown here are answered by a cancel (a lost cancel heals). */
#ifndef SLUICE_LIVE_H
#define SLUICE_LIVE_H

#include "common/base.h"
#include "proto/messages.h"

struct lives; /* all live requests of one frontend process */
struct live;  /* one of them */

struct lives_config {
	uint32_t frontend, incarnation;
	uint64_t silence_ns; /* heartbeat limit: --heartbeat-timeout */
	uint64_t hello_ns;   /* how often hello is repeated while not welcome */
	uint32_t requests_max;
};

struct live_token {
	uint32_t id;
	uint32_t position;                 /* output position, from 0 */
	uint32_t rank;                     /* 0: not asked for */
	uint32_t n_top;                    /* entries; the first is the chosen token itself */
	struct view top_ids, top_logprobs; /* columns of n_top, valid during the call */
	/* Of the first output token: microseconds from submit to first step, and from there on; 0 where nothing was said. */
	uint32_t queued_us, prefill_us;
};

struct lives_out {
	void *ctx;
	/* To the executor. ST_OK, ST_AGAIN (also while there is no lane: tried again at the next lives_step), or
	 * ST_LIMIT: the message is too long for any lane, which ends its request. */
	int (*send)(void *ctx, const struct msg *m);
	/* One token, in order, exactly once. Must not call lives_cancel
	 * for this request; set a flag and cancel after lives_on_...() has returned, or return true to end the request
	 * here (stop string found): it is then cancelled at the executor and gone, without on_end. */
	bool (*on_token)(void *ctx, void *owner, const struct live_token *t);
	/* The executor has acknowledged it: live_is_accepted(). Once. NULL: nobody wants to know. */
	void (*on_accepted)(void *ctx, void *owner);
	/* The request is over: finish (STOP, LENGTH, ABORT), or refusal != 0 with a text. */
	void (*on_end)(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text);
	/* Log-probabilities of a prompt token (position: in the prompt, from 1), in order, exactly once, before the first output token.
	 * NULL: dropped. */
	void (*on_prompt_token)(void *ctx, void *owner, const struct live_token *t);
	/* The pooled hidden state of a pooling request, f32s; then on_end(STOP). NULL: dropped. */
	void (*on_embedding)(void *ctx, void *owner, struct view values);
};

struct lives *lives_new(const struct lives_config *cfg, const struct lives_out *out);
void lives_free(struct lives *l);

/* Starts a request from a filled-in submit (client_id, attempt, epoch are set here; views are copied; tokens is the
 * prompt: tokens.n == n_prompt > 0). NULL when requests_max are live. The message goes out in the next lives_step(). */
struct live *lives_start(struct lives *l, const struct msg_submit *params, void *owner, uint64_t now);
void lives_cancel(struct lives *l, struct live *r);

uint64_t live_client_id(const struct live *r);
uint32_t live_n_output(const struct live *r);
uint32_t live_n_cached(const struct live *r);
/* True once the executor has acknowledged it. */
bool live_is_accepted(const struct live *r);

/* Events. Anything that does not fit (older epoch or attempt, unknown id) is dropped and counted. */
void lives_on_message(struct lives *l, const struct msg *m, uint64_t now); /* welcome, results, refused, sync */
void lives_on_epoch(struct lives *l, uint64_t epoch, uint64_t now);        /* supervisor: a new executor is coming */

/* Sends what is due: hello, submits, cancels, resubmits. Once a pass of the loop, after the messages that are there
 * were given to lives_on_message(). At most about a mebibyte a call. */
void lives_step(struct lives *l, uint64_t now);
/* When lives_step() has to be called again even if nothing happens: UINT64_MAX never, 0 in the next pass. After
 * ST_AGAIN call it as soon as the lane has room; the deadline is only a fallback. */
uint64_t lives_deadline(const struct lives *l);

/* The executor has answered hello in the current epoch and is not silent. */
bool lives_is_welcome(const struct lives *l);
uint32_t lives_model_len_max(const struct lives *l); /* 0 before the first welcome */

struct lives_stats {
	uint64_t n_live, started, ended, cancelled, resubmits, dropped_stale, dropped_repeats, gaps, tokens;
};
void lives_stats(const struct lives *l, struct lives_stats *out);
void lives_check(const struct lives *l);

#endif
