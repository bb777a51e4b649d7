/* sim_impl.h - what the parts of the simulation share. See sim.h. */
#ifndef SLUICE_SIM_IMPL_H
#define SLUICE_SIM_IMPL_H

#include "common/map.h"
#include "executor/core.h"
#include "frontend/live.h"
#include "proto/messages.h"
#include "sluice/restart.h"
#include "tests/sim/sim.h"

#define SIM_FRONTENDS_MAX 9 /* ids; at most SIM_FRONTENDS_FIRST at the start */
#define SIM_FRONTENDS_FIRST 4
#define SIM_RANKS_MAX     3
#define SIM_PROCS_MAX     (SIM_FRONTENDS_MAX + 1 + SIM_RANKS_MAX)
#define SIM_BLOCK         16 /* tokens of a KV block, DESIGN.md */
#define SIM_VOCAB         61
#define SIM_OUTPUT_MAX    60 /* tokens of an answer */
#define SIM_DIM           3

/* Sizes and rates of one seed. */
struct sim_setup {
	uint32_t n_frontends, n_ranks, n_requests, n_faults; /* n_frontends: at the start */
	uint32_t n_reloads, n_tenants;
	uint32_t n_blocks, n_blocks_min, model_len_max;
	struct core_kv kv;
	struct core_config core;
	struct lives_config lives;
	struct restart_config restart;
	uint32_t hwm_up, hwm_down; /* messages */
	uint64_t delay_ns, jitter_ns;
	uint64_t step_ns, token_ns;
	uint64_t arrive_ns; /* requests arrive, and faults happen, within this time */
	uint64_t hang_limit_ns;
	uint64_t drain_ns; /* UINT64_MAX: never */
	bool has_poison, has_glitches, has_slow_frontend;
	bool has_queue_timeouts;
	bool has_race; /* two tenants want more than there is, and nothing goes wrong */
	bool has_frozen_frontend; /* frontend 0 reads nothing for a minute, and is not killed for it */
};

/* --- requests
 * --------------------------------------------------------------------------------------------------------- */

enum sim_request_state { SIM_ABSENT, SIM_ARRIVED, SIM_LIVE, SIM_ENDED, SIM_CANCELLED, SIM_BROKEN };

struct sim_request {
	uint32_t ix;
	enum sim_request_state state;
	struct msg_submit submit; /* views into own memory */
	uint32_t *prompt, stop_ids[2], bias_ids[3], allowed_ids[4];
	float bias_values[3];
	char *grammar;
	uint32_t salt; /* 0..2 */
	uint32_t *expected, n_expected;
	enum finish finish;
	uint32_t refusal; /* expected; 0: none */
	bool poison;
	uint32_t nan_at;       /* output position whose logits are no numbers; UINT32_MAX: none */
	uint32_t failure;      /* what the workers say there: TOKEN_NO_LOGITS, TOKEN_NOT_ALLOWED, TOKEN_BAD_GRAMMAR */
	uint32_t nan_prompt;   /* prompt position without a log-probability; UINT32_MAX: none */
	uint32_t stop_after;   /* the client's stop string is complete with so many tokens; UINT32_MAX: never */
	uint32_t cancel_after; /* the client vanishes after so many tokens; UINT32_MAX: never */
	bool cancel_wanted;
	uint32_t party; /* in a race: 0 or 1 */

	uint32_t frontend; /* where it arrived */
	uint32_t incarnation;
	struct live *live;
	uint64_t client_id;
	uint32_t n_received;
	uint32_t n_prompt_received; /* prompt positions below it have their log-probabilities; from 1 */
	bool embedded;              /* the pooled state has arrived */
	bool ran, sampled;      /* by any worker */
	bool cancel_in_prefill; /* the client vanishes when its prompt has begun to run */
	uint32_t starts;        /* bit k: it has started after 16 * k tokens from the prefix cache */
	bool cancelled_at_core; /* no later step may contain it */
	uint64_t sent_at;       /* first submit */
	uint64_t held_epoch, expires_at; /* the executor that got it, and when it ends unless it runs */
	uint64_t ran_epoch;     /* newest executor that ran it */
	bool gone_at_core;      /* for ever: its frontend is dead and the executor knows it */
};

/* --- processes
 * -------------------------------------------------------------------------------------------------------- */

enum sim_kind { SIM_FRONTEND, SIM_EXECUTOR, SIM_WORKER };

struct sim_proc {
	enum sim_kind kind;
	uint32_t ix;  /* frontend id or rank */
	uint32_t num; /* in sim.procs */
	struct restart restart;
	bool exists; /* one is wanted there */
	bool retiring, planned; /* it is not started again; its next death is meant */
	bool alive, ready, reaped;
	uint32_t life;          /* spawns */
	uint64_t stopped_until; /* does nothing before; UINT64_MAX: until it is killed */
	uint64_t wake_at;       /* 0: no pass is due */
};

/* A packed message. */
struct sim_packet {
	uint64_t at; /* not delivered before */
	uint32_t to; /* process, ghosts only */
	char *data;
	size_t len;
};

struct sim_queue {
	struct sim_packet *items;
	size_t first, n, cap;
};

/* A connection: first in, first out, bounded. */
struct sim_lane {
	struct sim_queue queue;
	uint32_t to; /* process */
	uint32_t hwm;
	bool wants_room;
	uint64_t last_at;
	struct sim_packet recent; /* a copy of the message delivered last: may come again at the successor */
};

enum sim_notice_kind { SIM_NOTICE_EPOCH, SIM_NOTICE_GONE, SIM_NOTICE_LOST, SIM_NOTICE_LOADED, SIM_NOTICE_DRAIN };

/* The supervisor's word, through a pipe. */
struct sim_notice {
	uint64_t at;
	enum sim_notice_kind kind;
	uint64_t epoch;
	uint32_t frontend, incarnation;
};

struct sim_pipe {
	struct sim_notice *items;
	size_t n, cap;
	uint64_t last_at;
};

struct sim_frontend {
	struct lives *lives;
	uint32_t incarnation;
	struct sim_pipe pipe;
	struct sim_lane up, down;
	bool was_welcome;
};

struct sim_executor {
	struct core *core;
	uint64_t epoch;
	struct sim_pipe pipe;
	int32_t lane_incarnation[SIM_FRONTENDS_MAX]; /* of the open lane; -1: none */
	int32_t gone_incarnation[SIM_FRONTENDS_MAX]; /* newest that is known to be dead; -1: none */
	uint32_t dead_lane[SIM_FRONTENDS_MAX];       /* messages for a lane that nobody reads */
	bool lane_room[SIM_FRONTENDS_MAX];
	bool results_sent[SIM_FRONTENDS_MAX]; /* in this pass */
	uint64_t step_number;
	uint32_t steps_in_flight;
	struct sim_request *slots[LIMIT_SEQS]; /* as the steps say */
	bool fresh[LIMIT_SEQS];                /* no run yet */
	bool result_since_loss;
	bool draining;
};

/* --- the workers: one model for all ranks, which do the same
 * ----------------------------------------------------------- */

struct sim_slot {
	struct sim_request *request; /* NULL: free */
	uint32_t *tokens;
	uint64_t *hashes; /* of tokens[0..i] */
	size_t tokens_cap, hashes_cap;
	uint32_t n_tokens, n_computed;
	uint32_t prompt_from; /* prompt position whose log-probability comes next; n_prompt when none are wanted */
	bool fresh;           /* no run yet */
	struct sim_table {
		uint32_t *v; /* SIM_NO_BLOCK: behind the window */
		size_t cap;
		uint32_t n;
	} tables[LIMIT_KV_GROUPS];
};
#define SIM_NO_BLOCK UINT32_MAX

struct sim_kv {
	uint64_t hash[SIM_BLOCK]; /* of the tokens up to the position; 0: nothing */
	uint32_t salt[SIM_BLOCK]; /* of the request that wrote it */
	uint32_t refs;            /* block tables that name it */
	uint64_t written_step;    /* by whom in this step, see sim_workers_write() */
	uint32_t written_slot;
};

struct sim_workers {
	bool up;          /* loaded, attached, and nobody is dead */
	uint64_t epoch;   /* attached to */
	uint64_t number;  /* last step */
	uint32_t run_id;  /* of the step that runs; a death or an attach makes it invalid */
	bool busy, kills; /* kills: the step that runs contains poison */
	struct sim_slot slots[LIMIT_SEQS];
	struct sim_kv *kv;
	uint32_t n_blocks;
	uint64_t n_steps;
	struct sim_queue steps, replies;
	struct strbuf reply; /* of the step that runs */
};

enum sim_event_kind {
	SIM_EV_PASS,
	SIM_EV_STEP_DONE,
	SIM_EV_SPAWN,
	SIM_EV_READY,
	SIM_EV_REAP,
	SIM_EV_KILL,
	SIM_EV_RESUME,
	SIM_EV_FAULT,
	SIM_EV_RELOAD,
	SIM_EV_ARRIVE,
	SIM_EV_VANISH,
	SIM_EV_FREEZE,
	SIM_EV_THAW,
	SIM_EV_DRAIN
};

struct sim_event {
	uint64_t at, order;
	enum sim_event_kind kind;
	uint32_t num;  /* process or request */
	uint32_t life; /* of the process, or the step's run_id */
};

/* What two tenants have been given; see sim_turns.c. */
struct sim_race {
	int64_t served[2], lead; /* virtual tokens; lead: of the first, when both began to wait */
	int64_t n_waiting[2];    /* requests that have never run */
	bool is_on;
};

struct sim {
	uint64_t seed, rng, now, order, trace;
	bool verbose;
	struct sim_setup setup;
	struct sim_counts *counts;
	struct sim_event *heap;
	size_t n_heap, heap_cap;

	uint32_t n_procs, n_frontends; /* n_frontends: ids that have been used */
	struct sim_proc procs[SIM_PROCS_MAX]; /* frontends, the executor, workers */
	struct sim_race race;
	struct sim_frontend frontends[SIM_FRONTENDS_MAX];
	struct sim_executor executor;
	struct sim_workers workers;
	struct sim_queue ghosts; /* survivors of dead connections, in no order with anything else */

	struct sim_request *requests;
	struct map by_seed, by_id;
	uint32_t n_open; /* neither ended nor cancelled nor broken */
	uint32_t faults_left;
};

/* sim.c: time, chance, the trace, failing */
uint32_t sim_len_max(const struct sim *s, uint32_t n_blocks); /* tokens of a request that a pool of so many blocks takes */
uint64_t sim_rand(struct sim *s, uint64_t n);                /* [0, n) */
uint64_t sim_range(struct sim *s, uint64_t lo, uint64_t hi); /* [lo, hi] */
bool sim_chance(struct sim *s, uint32_t percent);
uint64_t sim_mix(uint64_t x);
void sim_push(struct sim *s, uint64_t at, enum sim_event_kind kind, uint32_t num, uint32_t life);
void sim_note(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3); /* one line of the trace; the hash takes it in */
NORETURN void sim_fail(struct sim *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define SIM_EXPECT(s, cond, ...)                         \
	do {                                             \
		if (!(cond)) sim_fail((s), __VA_ARGS__); \
	} while (0)

/* sim_load.c: requests, clients, the undisturbed model */
void sim_load_init(struct sim *s);
void sim_load_release(struct sim *s);
void sim_load_arrive(struct sim *s, struct sim_request *q);
uint64_t sim_hash_next(uint64_t hash, uint32_t token);
#define SIM_HASH_FIRST 0x5eed5eed5eed5eedull
/* The token after those with this hash; UINT32_MAX: no number. */
uint32_t sim_model_token(const struct sim_request *q, uint64_t hash, uint32_t position);
/* Its log-probability at a prompt position, which has the hash of all tokens before it. Rank 0: no number. */
void sim_model_prompt_top(const struct sim_request *q, uint64_t hash, uint32_t position, uint32_t *rank, uint32_t *ids,
			  float *logprobs);
/* Element i of the pooled state of tokens with this hash. */
float sim_model_pooled(const struct sim_request *q, uint64_t hash, uint32_t i);
void sim_model_top(const struct sim_request *q, uint64_t hash, uint32_t chosen, uint32_t *rank, uint32_t *ids,
		   float *logprobs);
/* Called by the frontends. */
void sim_client_pass(struct sim *s, uint32_t frontend); /* arrivals and cancels */
void sim_client_on_prompt_token(void *ctx, void *owner, const struct live_token *t);
void sim_client_on_embedding(void *ctx, void *owner, struct view values);
bool sim_client_on_token(void *ctx, void *owner, const struct live_token *t);
void sim_client_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text);
void sim_client_frontend_died(struct sim *s, uint32_t frontend);

/* sim_lane.c: lanes and queues */
void sim_queue_push(struct sim_queue *q, struct sim_packet p);
struct sim_packet sim_queue_pop(struct sim_queue *q);
struct sim_packet *sim_queue_at(const struct sim_queue *q, size_t ix);
void sim_queue_clear(struct sim_queue *q);
void sim_queue_release(struct sim_queue *q);
int sim_lane_send(struct sim *s, struct sim_lane *lane, const struct msg *m);
bool sim_lane_pop(struct sim *s, struct sim_lane *lane, struct sim_packet *out);
/* The receiver died: what it had got is lost, what was queued may reach the successor. */
void sim_lane_receiver_died(struct sim *s, struct sim_lane *lane);
/* The sender died: a part arrives, late. */
void sim_lane_sender_died(struct sim *s, struct sim_lane *lane);
void sim_lane_glitch(struct sim *s, struct sim_lane *lane);
void sim_lane_release(struct sim_lane *lane);
void sim_unpack(struct sim *s, const struct sim_packet *p, struct msg *m);
bool sim_ghost_pop(struct sim *s, uint32_t to, struct sim_packet *out);

/* sim_workers.c */
void sim_workers_push(struct sim *s, const struct msg_step *step); /* from the executor */
void sim_workers_done(struct sim *s, uint32_t run_id);
void sim_workers_reset(struct sim *s, uint64_t epoch, uint32_t n_blocks);
void sim_workers_died(struct sim *s);
bool sim_workers_stopped(const struct sim *s, uint64_t *until);
void sim_workers_release(struct sim *s);

/* sim_mesh.c: processes and their edges, the supervisor, faults */
void sim_mesh_init(struct sim *s);
void sim_mesh_release(struct sim *s);
void sim_mesh_event(struct sim *s, const struct sim_event *e);
void sim_wake(struct sim *s, uint32_t num, uint64_t at);
void sim_kill(struct sim *s, struct sim_proc *p);
bool sim_mesh_may_strike(struct sim *s, const struct sim_proc *p);
void sim_mesh_add_frontend(struct sim *s); /* with the next id */
struct sim_proc *sim_proc_frontend(struct sim *s, uint32_t f);
struct sim_proc *sim_proc_executor(struct sim *s);
struct sim_proc *sim_proc_rank(struct sim *s, uint32_t rank);
bool sim_mesh_is_quiet(const struct sim *s);
void sim_mesh_check_end(struct sim *s);


/* sim_reload.c: planned changes */
void sim_reload_frontend(struct sim *s);
void sim_reload_executor(struct sim *s);
void sim_reload_workers(struct sim *s);
bool sim_reload_frontend_is_done(const struct sim *s, uint32_t frontend);

/* sim_turns.c: who is next; called at the executor's edge, but for the first */
void sim_turns_on_send(struct sim *s, const struct msg_submit *m); /* by a frontend */
void sim_turns_on_submit(struct sim *s, const struct msg_submit *m);
void sim_turns_on_start(struct sim *s, struct sim_request *q, uint32_t start); /* with so many cached tokens */
void sim_turns_on_executors_word(struct sim *s, const struct msg *m);
void sim_turns_lane_closed(struct sim *s, uint32_t frontend);
void sim_turns_check(struct sim *s);

#endif
