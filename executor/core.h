/* core.h - the executor's decisions, as plain C: events and the time go in, messages come out.
 *
 * Knows no socket, ring, timer or clock. The edge (edge.c) and the simulation (tests/sim) call it the same way. It owns every
 * request, the KV pool and the prefix cache. Outputs are calls of struct core_out, made only from inside core_step(),
 * with views that are valid until the call returns; they must not call back into the core.
 *
 * One pass of the executor: feed all events that are there, then core_step(now) once. core_step() schedules at most
 * steps_in_flight_max steps ahead of the results, then sends welcomes, refusals, results (one message a frontend) and syncs.
 *
 * Always holds, see core_check(): every request is in exactly one state list; free + cached + used blocks = all blocks; a
 * block is used if and only if a request refers to it. (Steps in flight need no references: steps are carried out in
 * order, so whoever gets a block next uses it after them. See core.c.)
 *
 * Protocol (DESIGN.md, "The request protocol"):
 * - submit is idempotent. Same or lower attempt than known: ignored, counted. Higher attempt: the sequence goes on where it is and
 *   everything from the frontend's position on is sent again (from the request's own tokens, log-probabilities included); when
 *   the frontend has tokens that the core has not (the core is a successor), they are taken over and run as prompt. Prompt and
 *   parameters stay those of the first submit. One whose tokens already hold the end is answered by the row that says so.
 * - log-probabilities of the prompt are sent before the first output token, in order; a submit says how many its frontend has. They
 *   are kept like those of the output. Such a request takes from the prefix cache only what lies before the first missing one.
 * - a pooling request (submit.kind) has no output: its one row with the pooled state ends it (STOP). A mean takes nothing from
 *   the prefix cache, because every token's state counts.
 * - a request with a queue_ms that has not run for so long since its submit arrived is refused with REFUSAL_QUEUE_TIMEOUT; one that
 *   has run, or of which its frontend has output, never is. A later submit may say that less time is left.
 * - token ids of a submit are compared with the vocabulary as soon as that is known.
 * - a stop id ends a request from output position n_output_min on (counted from 0); STOP goes before LENGTH. Output ends
 *   with LENGTH at n_output_max, or when prompt and output fill the model's length or the whole KV pool.
 * - results carry epoch, attempt and absolute output position. A row that was not taken by the lane (ST_AGAIN) is built again
 *   from the request later: nothing is queued, and that frontend's sequences pause. When somebody else needs their slots or
 *   blocks they are preempted.
 * - the first row of an attempt accepts it: n_tokens = 0, unless there are tokens to send already. A request is forgotten
 *   when the lane took its last row; a refused or unknown thing is answered by `refused`, which is sent once.
 * - sync (heartbeat, every sync_interval_ns, and at once after welcome) lists all requests of a frontend.
 * - hello is answered by welcome as soon as the workers are ready for the first time; welcome is repeated when the sizes in it
 *   change. Of a hello, submit or result with another epoch, and of another incarnation, nothing but a count remains.
 * - cancel: no step scheduled after it contains the request, and its blocks are free at once.
 * - core_on_workers_lost(): KV content is gone; running requests wait again with their tokens kept (same epoch), and the
 *   prefix cache is empty. A request that was in the oldest unanswered step of two losses, without a new token between them, is a
 *   suspect: suspects run alone in halves (suspect.c); one that brings a worker down alone is refused with REFUSAL_POISON.
 *   The edge feeds all results that it has before it reports the loss. */
#ifndef SLUICE_CORE_H
#define SLUICE_CORE_H

#include "common/base.h"
#include "proto/messages.h"

struct core;

struct core_config {
	uint64_t epoch;
	uint32_t seqs_max;            /* --max-num-seqs: sequences of one step */
	uint32_t batched_tokens_max;  /* --max-num-batched-tokens: tokens of one step */
	uint32_t requests_max;        /* held at a time; beyond it REFUSAL_QUEUE_FULL */
	uint32_t steps_in_flight_max; /* 2: step n+1 is scheduled while step n runs */
	uint32_t prefill_chunk_max;   /* --long-prefill-token-threshold; 0 = the whole budget */
	uint32_t first_step_tokens; /* of the first step after the workers came; each next one may have twice as many; 0: no such limit */
	bool prefix_cache; /* unless the workers are recurrent */
	bool has_priorities;  /* --scheduling-policy priority; without it submit.priority is ignored */
	bool fair;            /* --enable-fair-scheduling: by submit.tenant, see fair.h; without it all are one tenant */
	uint32_t tenants_max; /* --max-tenants */
	uint64_t sync_interval_ns;
	uint64_t sync_idle_ns; /* the same for a lane without requests; 0: no longer */
	uint64_t accept_wait_ns; /* a submit's answer waits so long for something to go with: often the first token comes */
};

struct core_out {
	void *ctx;
	/* To a frontend's lane. ST_OK: taken (the transport may still lose it around a death). ST_AGAIN: high-water mark; the
	 * edge calls core_on_lane_ready() when there is room. ST_CLOSED: no such lane; the core forgets the frontend. */
	int (*send)(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m);
	/* To the step ring. Never refused: the core keeps at most steps_in_flight_max there. */
	void (*step)(void *ctx, const struct msg_step *step);
	/* Once a request, at its first token or pooled state: how long it waited for its first step, and from there on. Also from inside
	 * core_on_step_result(). NULL: nobody wants to know. */
	void (*timed)(void *ctx, uint64_t queued_ns, uint64_t prefill_ns);
	/* Between a pass's steps and what it sends to lanes: for whoever measures. May be NULL. */
	void (*scheduled)(void *ctx);
};

/* Counters and gauges, copied to the status page by the edge after each pass. */
struct core_stats {
	/* n_suspects: waiting for their trial; preemptions: also of paused lanes; submits: all of this epoch and known lanes;
	 * cancels: requests ended by a cancel or with their frontend; expired: by their queue timeout; replays: requests that ran when the workers were lost. */
	uint64_t n_running, n_waiting, n_suspects;
	uint64_t n_tenants; /* that have requests here */
	uint64_t blocks_total, blocks_used, blocks_cached, blocks_free;
	uint64_t steps, preemptions, submits, submits_repeated, cancels, finished, refused, expired, dropped_stale, replays;
	/* In tokens. The prompt and prefix counts are of the first run of each request. */
	uint64_t prompt_tokens, generation_tokens, prefix_queries, prefix_hits;
	uint64_t tokens_discarded; /* sampled after a stop that was seen a step late, or after a cancel or a preemption */
	uint64_t results_bad; /* a step failed, or its result does not have its rows: the edge has the workers restarted */
};

struct core *core_new(const struct core_config *cfg, const struct core_out *out);
void core_free(struct core *c);

/* Events. `now` is nanoseconds of any monotonic clock. Messages are borrowed. */
void core_on_hello(struct core *c, const struct msg_hello *m, uint64_t now);
void core_on_submit(struct core *c, const struct msg_submit *m, uint64_t now);
void core_on_cancel(struct core *c, const struct msg_cancel *m, uint64_t now);
/* The supervisor reaped this incarnation: its requests are cancelled. Older incarnations are gone too, and none comes back. */
void core_on_frontend_gone(struct core *c, uint32_t frontend, uint32_t incarnation, uint64_t now);
/* What a sequence keeps at the workers: a block of each KV group for 16 tokens (all blocks are alike and come from one pool; a group with
 * a window needs the blocks within its window only), and perhaps a recurrent state, which no prefix cache holds. */
struct core_kv {
	uint32_t n_full, n_windowed; /* groups, full ones first; at most LIMIT_KV_GROUPS together. None: one that is full */
	uint32_t window;             /* tokens that a windowed layer sees, the newest included */
	bool recurrent;
};
/* Blocks of a windowed group that a sequence holds at most, when tokens_ahead more may be scheduled than have been computed. */
uint32_t core_kv_window_blocks(const struct core_kv *kv, uint64_t tokens_ahead);
/* Tokens of a sequence that has all of n_blocks for itself; UINT64_MAX: any number. */
uint64_t core_kv_len(const struct core_kv *kv, uint64_t tokens_ahead, uint64_t n_blocks);
/* What the workers are, once all ranks have loaded and sized. */
struct core_workers {
	uint32_t n_blocks, model_len_max;
	uint32_t vocab; /* token ids are below it */
	uint32_t dim;   /* elements of a pooled hidden state */
	struct core_kv kv;
};
/* All ranks have loaded and sized. Also after a loss, perhaps with other sizes: the pool is rebuilt empty, and requests that do not
 * fit any more are ended (LENGTH) or refused. Without a loss reported before, it counts as one. */
void core_on_workers_ready(struct core *c, const struct core_workers *w, uint64_t now);
void core_on_workers_lost(struct core *c, uint64_t now);
/* Likewise, but it was the operator who wanted it so: nobody is blamed. */
void core_on_workers_taken(struct core *c);
/* A result of an older step or epoch is dropped. One with a status, or with other rows than the step's, gives false and is only
 * counted (results_bad), and the step stays unanswered: the edge has to restart the workers. A token that is none (TOKEN_FAILED and
 * above), and a prompt or pooled state without usable numbers, end that request with a refusal. */
bool core_on_step_result(struct core *c, const struct msg_step_result *m, uint64_t now);
void core_on_lane_ready(struct core *c, uint32_t frontend, uint64_t now);
/* Nothing new is admitted (REFUSAL_DRAINING, except resubmits); what is there runs on. */
void core_drain(struct core *c);

/* Decides everything there is to decide now. */
void core_step(struct core *c, uint64_t now);

/* When core_step() has to be called again even if nothing happens (sync interval, queue timeout); UINT64_MAX: never. */
uint64_t core_deadline(const struct core *c);

/* True when no request is held, no step is in flight and no refusal waits for its lane. */
bool core_is_idle(const struct core *c);
void core_stats(const struct core *c, struct core_stats *out);
/* Verifies all invariants (CHECKs). O(everything). */
void core_check(const struct core *c);

#endif
