/* core_impl.h - what the files of the executor's core share: core.c (events), admit.c (submits), expiry.c (queue timeouts), sched.c (what
 * runs in the next step), taken.c (what its results give), hold.c (who holds which blocks), route.c (what goes to the frontends),
 * suspect.c (quarantine). Nobody else includes it. */
#ifndef SLUICE_CORE_IMPL_H
#define SLUICE_CORE_IMPL_H

#include "common/heap.h"
#include "common/list.h"
#include "common/mem.h"
#include "common/strbuf.h"
#include "executor/core.h"
#include "executor/fair.h"
#include "executor/flow.h"
#include "executor/kvpool.h"
#include "executor/seq.h"
#include "proto/ids.h"
#include "proto/messages.h"

/* Growing arrays that are emptied and filled again each step. */
struct vec32 {
	uint32_t *v;
	size_t n, cap;
};

struct vec64 {
	uint64_t *v;
	size_t n, cap;
};

static inline void vec32_push(struct vec32 *a, uint32_t x)
{
	mem_reserve(a->v, a->cap, a->n + 1);
	a->v[a->n++] = x;
}

/* n elements of 4 bytes. */
static inline void vec32_append(struct vec32 *a, const void *v, size_t n)
{
	mem_reserve(a->v, a->cap, a->n + n);
	if (n) memcpy(a->v + a->n, v, n * sizeof(*a->v));
	a->n += n;
}

static inline void vec32_push_f32(struct vec32 *a, float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	vec32_push(a, bits);
}

static inline struct view vec32_view(const struct vec32 *a)
{
	return view_of(a->v, a->n);
}

static inline void vec64_push(struct vec64 *a, uint64_t x)
{
	mem_reserve(a->v, a->cap, a->n + 1);
	a->v[a->n++] = x;
}

static inline struct view vec64_view(const struct vec64 *a)
{
	return view_of(a->v, a->n);
}

/* The columns of 4-byte elements that a step is built in, but for `removed`. */
#define SCHED_COLUMNS(C)                                                                                                        \
	C(added)                                                                                                                \
	C(added_n_tokens)                                                                                                       \
	C(added_tokens)                                                                                                         \
	C(added_n_prompt)                                                                                                       \
	C(added_n_output_min)                                                                                                   \
	C(added_n_stop)                                                                                                         \
	C(added_stop_ids)                                                                                                       \
	C(added_temperature)                                                                                                    \
	C(added_top_p)                                                                                                          \
	C(added_top_k)                                                                                                          \
	C(added_min_p)                                                                                                          \
	C(added_choice)                                                                                                         \
	C(added_n_logprobs)                                                                                                     \
	C(added_kind)                                                                                                           \
	C(added_n_output_max)                                                                                                   \
	C(added_repetition)                                                                                                     \
	C(added_presence)                                                                                                       \
	C(added_frequency)                                                                                                      \
	C(added_n_bias)                                                                                                         \
	C(added_bias_ids)                                                                                                       \
	C(added_bias_values)                                                                                                    \
	C(added_n_allowed)                                                                                                      \
	C(added_allowed_ids)                                                                                                    \
	C(added_n_prompt_logprobs)                                                                                              \
	C(added_n_prompt_known)                                                                                                 \
	C(added_n_grammar)                                                                                                      \
	C(grown_group)                                                                                                          \
	C(grown)                                                                                                                \
	C(grown_n)                                                                                                              \
	C(grown_blocks)                                                                                                         \
	C(run)                                                                                                                  \
	C(run_start)                                                                                                            \
	C(run_n)                                                                                                                \
	C(run_sample)

#define CORE_AS_VEC32(name) struct vec32 name;

/* The columns of one step. `removed` is filled all the time and emptied when a step takes it along. */
struct sched_cols {
	struct vec32 removed;
	SCHED_COLUMNS(CORE_AS_VEC32)
	struct vec64 added_seed;
	struct strbuf added_grammars;
	size_t added_bytes; /* of the added_ columns */
};

/* Who sits in a slot. Each stay has its own number: a step in flight remembers the stay, so a slot that was given on
 * meanwhile is not mistaken for the one that ran. */
struct slot {
	struct seq *seq;
	uint64_t stay;
};

/* Loops over requests fetch those that they will come to so many turns later. */
#define CORE_AHEAD 8

/* A step in flight. */
struct step_row {
	uint64_t stay;
	uint32_t slot;
	uint32_t end; /* the KV cache holds [0, end) when the step has ended */
	bool sample;     /* it draws a token */
	bool pool;       /* it gives the pooled hidden state */
	bool has_prompt; /* it gives log-probabilities of the prompt: step_rec.prompts */
};

/* Of a row: log-probabilities of n prompt tokens from position `at` on. */
struct step_prompt {
	uint32_t at, n;
};

struct step_rec {
	uint64_t number;
	struct step_row *rows;       /* (n_rows) of seqs_max */
	struct step_prompt *prompts; /* (n_rows), of rows with has_prompt */
	uint32_t n_rows, n_samples;
	uint32_t n_prompt_rows, n_prompt_tokens, n_pooled; /* rows with log-probabilities of the prompt, these, pooled rows */
};

#define LANE_REFUSALS_MAX 1024 /* unsent ones; more are dropped: the frontend asks again and is refused then */

struct lane_refusal {
	uint64_t client_id;
	uint32_t attempt;
	enum refusal reason;
	char text[256];
};

/* A frontend. Stays when it is closed, to know old incarnations. */
struct lane {
	struct list_link link; /* core.lanes_open, while open */
	uint32_t frontend, incarnation;
	bool gone;        /* this incarnation was reaped: it does not come back */
	bool paused;      /* high-water mark: nothing is sent and its requests do not run */
	bool welcome_due;
	uint64_t sync_at, sync_number;
	uint64_t rows_at; /* when what is dirty goes out; 0: at once. UINT64_MAX: nothing is due */
	struct list seqs;
	struct seq **dirty; /* (n_dirty) with something to send, in the order in which it came up; NULL: no longer */
	uint32_t n_dirty, n_clean; /* the latter: NULL ones among them */
	size_t dirty_cap;
	struct flows flows; /* what waits */
	struct lane_refusal *refusals;
	size_t n_refusals, refusals_cap;
};

/* One results message while it is built, and what it means for the requests once it was taken. */
struct route_row {
	struct seq *seq;
	uint32_t n, n_prompt;
	bool ends;
};

/* Columns of a results message with 4-byte elements. */
#define ROUTE_COLUMNS(C)                                                                                                        \
	C(attempts)                                                                                                             \
	C(positions)                                                                                                            \
	C(n_tokens)                                                                                                             \
	C(finishes)                                                                                                             \
	C(n_cached)                                                                                                             \
	C(tokens)                                                                                                               \
	C(n_top)                                                                                                                \
	C(ranks)                                                                                                                \
	C(top_ids)                                                                                                              \
	C(top_logprobs)                                                                                                         \
	C(prompt_starts)                                                                                                        \
	C(n_prompt_tokens)                                                                                                      \
	C(prompt_n_top)                                                                                                         \
	C(prompt_ranks)                                                                                                         \
	C(prompt_top_ids)                                                                                                       \
	C(prompt_top_logprobs)                                                                                                  \
	C(n_pooled)                                                                                                             \
	C(pooled)                                                                                                               \
	C(queued_us)                                                                                                            \
	C(prefill_us)

struct route_cols {
	struct vec64 client_ids;
	ROUTE_COLUMNS(CORE_AS_VEC32)
	struct route_row *rows;
	size_t n_rows, rows_cap;
};

struct core {
	struct core_config cfg;
	struct core_out out;
	bool ready;      /* the workers are there */
	bool was_ready;  /* once; from then on model_len_max and the pool's size are known */
	bool draining;
	uint32_t model_len_max, vocab, dim;
	uint32_t len_max; /* tokens of a request at most: of the model and of the pool; UINT32_MAX before the first ready */
	struct kvpool pool;
	struct core_kv kv;
	uint32_t n_kv_groups, window_blocks; /* window_blocks: of a windowed group, that a sequence holds at most */
	uint32_t n_reserved;              /* blocks that begun prompts will still take; nobody else gets them */
	uint32_t n_shared;                /* references to windowed blocks beyond the first of each */
	struct seqs seqs;
	uint64_t arrivals;
	struct fair fair;
	struct heap expiries; /* of seq.expiry */
	uint64_t now;         /* of the event or pass that is being looked at */

	struct slot *slots;    /* seqs_max */
	uint32_t *slots_free;  /* a stack */
	uint32_t n_slots_free;
	uint64_t stays;

	struct step_rec *recs; /* ring of steps_in_flight_max */
	uint32_t rec_first, n_recs;
	uint64_t step_number;
	uint32_t step_tokens; /* of the next step at most */
	struct sched_cols cols;
	struct seq **order; /* (n_order) the running requests in their order, as of seqs.running_changes == order_changes */
	uint32_t n_order;
	uint64_t order_changes;
	struct seq **scratch; /* of seqs_max */

	struct lane *lanes[LIMIT_FRONTENDS];
	struct list lanes_open;
	struct route_cols route;

	struct seq *on_trial; /* the suspect that runs alone; NULL: everybody may run */

	struct core_stats stats;
};

/* core.c */
/* Takes a running request away from the workers; the caller moves it to another state. */
void core_evict(struct core *c, struct seq *s);
/* Back to the queue it waits in. */
void core_requeue(struct core *c, struct seq *s);
/* Ends a request: what is left to send goes out, then it is forgotten. */
void core_finish(struct core *c, struct seq *s, enum finish finish);
/* Forgets a request at once. */
void core_drop(struct core *c, struct seq *s);
/* Forgets it and tells the frontend why. */
void core_refuse(struct core *c, struct seq *s, enum refusal reason, const char *text);
struct step_rec *core_oldest_step(const struct core *c);
/* The request of a row, or NULL when it has left the slot. */
static inline struct seq *core_row_seq(const struct core *c, const struct step_row *row)
{
	const struct slot *slot = &c->slots[row->slot];

	return slot->stay == row->stay ? slot->seq : NULL;
}

/* hold.c */
/* What the workers say that a sequence keeps; nobody runs. */
void hold_set_kv(struct core *c, const struct core_kv *kv);
/* Tokens that are scheduled before a step has computed them, at most. */
uint64_t hold_tokens_ahead(const struct core *c);
/* An empty pool; nobody runs. */
void hold_new_pool(struct core *c, uint32_t n_blocks);
/* Blocks that may be given to somebody who has none reserved. */
uint32_t hold_available(const struct core *c);
/* Blocks of a group before this one lie behind its window when `pos` is the next token to be computed. */
uint32_t hold_first_block(const struct core *c, uint32_t group, uint32_t pos);
/* One more owner of a published block. */
void hold_ref(struct core *c, uint32_t group, uint32_t block);
/* Reserves what the rest of s's prompt will take; to be called when its tables have changed. */
void hold_reserve(struct core *c, struct seq *s);
/* Makes what the prefix cache has of s the beginning of its tables, without references. Returns how much less is available when s takes
 * it; or forgets it again. */
uint32_t hold_find_prefix(struct core *c, struct seq *s);
void hold_forget_prefix(struct core *c, struct seq *s);
/* Everything before `end` is computed: full blocks can be found by others; and what no later token sees is given back. */
void hold_publish(struct core *c, struct seq *s, uint32_t end);
void hold_leave_behind(struct core *c, struct seq *s, uint32_t end);
void hold_give_all(struct core *c, struct seq *s);
void hold_check(const struct core *c);

/* admit.c */
void admit_submit(struct core *c, const struct msg_submit *m);
/* Ends or refuses a request that cannot go on with the sizes that hold now. True when it is over. */
bool admit_recheck(struct core *c, struct seq *s);

/* expiry.c */
void expiry_init(struct core *c);
/* A new request ends in so many milliseconds unless it runs before; 0: never. */
void expiry_begin(struct core *c, struct seq *s, uint32_t queue_ms);
/* Its frontend says that it has less time left: the message before may have been long on its way. */
void expiry_sooner(struct core *c, struct seq *s, uint32_t queue_ms);
void expiry_end(struct core *c, struct seq *s);
void expiry_step(struct core *c, uint64_t now);
uint64_t expiry_deadline(const struct core *c);

/* sched.c */
/* Sends one step when there is something to run. */
bool sched_step(struct core *c);
void sched_init(struct core *c);
void sched_release(struct core *c);

/* route.c */
struct lane *route_lane(const struct core *c, uint64_t client_id); /* NULL: unknown, gone or another incarnation */
void route_hello(struct core *c, const struct msg_hello *m);
void route_gone(struct core *c, uint32_t frontend, uint32_t incarnation);
void route_welcome_all(struct core *c); /* the sizes have changed */
void route_clean(struct seq *s); /* nothing is to be sent of it any more */
void route_refuse(struct core *c, struct lane *l, uint64_t client_id, uint32_t attempt, enum refusal reason, const char *text);
void route_step(struct core *c, uint64_t now);
uint64_t route_deadline(const struct core *c);
bool route_has_refusals(const struct core *c);
void route_release(struct core *c);
void route_check(const struct core *c);

/* There is something to send of s; now, or within core_config.accept_wait_ns. */
void route_dirty_soon(struct core *c, struct seq *s);
static inline void route_dirty(struct seq *s)
{
	struct lane *l = s->lane;

	l->rows_at = 0;
	if (s->dirty_at) return;
	mem_reserve(l->dirty, l->dirty_cap, (size_t)l->n_dirty + 1);
	l->dirty[l->n_dirty++] = s;
	s->dirty_at = l->n_dirty;
}

/* suspect.c */
void suspect_forgive(struct core *c, struct seq *s);
/* A new token speaks for s, or it is gone. */
static inline void suspect_clear(struct core *c, struct seq *s)
{
	if (s->deaths || s->suspect) suspect_forgive(c, s);
}
/* The workers are lost, nothing runs any more: blamed are the n requests of the oldest unanswered step. */
void suspect_on_loss(struct core *c, struct seq **blamed, uint32_t n);
void suspect_check(const struct core *c);

#endif
