/* seq.h - one request inside the executor, and the table of all of them.
 *
 * A request is in exactly one state list; seq_move() is the only way between them. A waiting one is in its flow too (flow.h: the
 * requests of a tenant on a lane), ordered by priority, then arrival; so are the lists of running and suspect ones.
 *
 *   WAITING   not with the workers: new, preempted or to be replayed; all its tokens are known
 *   SUSPECT   as WAITING, but held for a trial run (suspect.c)
 *   RUNNING   has a slot at the workers and blocks
 *   DONE      ended; only the row that says so has not been taken by the lane
 *
 * Positions: tokens [0, n_tokens) are known; n_pending more are being sampled by steps in flight; the KV cache holds
 * [0, n_sched) once the steps in flight have ended. Output tokens [0, n_sent) have been taken by the lane.
 *
 * Quiet decodes: between two events (a block fills or begins, the output reaches its limit) a step of an ordinary request only appends
 * a token. While n_tokens < quiet_tokens, a token that may not be a stop id needs nothing else, and while n_sched < quiet_sched
 * neither does a decode. What is not ordinary (log-probabilities, pooling, a suspect) is never quiet, nor is the first token. The two
 * are set where an event is dealt with, core_on_token() and sched_pick_decode(), which do the same for everybody, only slower. */
#ifndef SLUICE_SEQ_H
#define SLUICE_SEQ_H

#include "common/base.h"
#include "common/heap.h"
#include "common/list.h"
#include "common/map.h"
#include "common/slab.h"
#include "executor/flow.h"
#include "executor/kvpool.h"
#include "proto/messages.h"

enum seq_state { SEQ_WAITING, SEQ_SUSPECT, SEQ_RUNNING, SEQ_DONE, SEQ_STATES };

struct lane;
struct seq;

/* The blocks of one KV group, by position / KVPOOL_BLOCK. */
struct seq_table {
	uint32_t *v; /* KVPOOL_NONE before `first`: behind the window, given back */
	uint32_t n, first, cap;
};

/* Log-probabilities of the output tokens, or of the prompt's, from position `base` on (earlier ones are the frontend's own). Kept
 * to the end: a lost message is sent again. */
struct seq_logprobs {
	uint32_t base, n;
	uint32_t *ranks, *ends;     /* n each; ends: past a token's entries in the two below */
	uint32_t *top_ids, *top_lps; /* the latter are float bits, only carried */
	size_t ranks_cap, ends_cap, ids_cap, lps_cap;
};

struct seq {
	/* Three cache lines that each quiet step of a decode touches, and no others: thousands are gone through in a row. Choosing who runs
	 * touches the first alone, a new token the first two. */
	struct lane *lane;
	struct flow *flow;    /* of its tenant, on the lane */
	uint64_t stop_filter; /* bit id % 64 for each stop id */
	uint32_t n_tokens, n_sched, n_pending;
	uint32_t quiet_tokens, quiet_sched; /* see above; not 0 only while RUNNING */
	uint32_t slot;     /* while RUNNING */
	uint32_t n_sent;   /* output tokens that the lane has taken */
	uint32_t dirty_at; /* 1 + place in lane.dirty, while there is something to send; else 0 */
	enum seq_state state : 8;
	enum finish finish : 8;
	bool accept_due;  /* the attempt has not been answered yet */
	bool begin_due;   /* its frontend must hear that it runs: of those with a queue timeout */
	uint32_t n_prompt;

	uint32_t late[KVPOOL_BLOCK]; /* tokens from n_stored on, by position % KVPOOL_BLOCK; not in `tokens` yet */

	uint64_t client_id;
	uint32_t *tokens; /* [0, n_stored): prompt, then output; all of them unless it runs */
	uint32_t n_stored;
	uint32_t attempt;
	bool is_pooling;   /* ask->kind is not REQUEST_GENERATE */
	bool suspect;      /* waits for its trial, or is on trial (suspect.c) */
	uint32_t tokens_cap;
	uint32_t n_output_max, n_output_min; /* of ask */
	uint32_t n_published; /* blocks of each table whose content is known to the prefix cache */
	uint32_t deaths;   /* losses in a row in whose oldest step it was, without a new token since */
	uint64_t first_token_ns; /* when it had its first token or pooled state; 0: not yet */
	struct seq_logprobs *logprobs; /* of the output; NULL: not asked for */

	struct seq_logprobs *prompt_logprobs; /* of the prompt, whose first token has none */
	uint32_t n_cached; /* prompt tokens from the prefix cache, of the first run */

	struct list_link link;       /* seqs.in_state[state] */
	struct list_link lane_link;  /* lane.seqs */
	struct heap_link turn;   /* flow.waiting, while WAITING */
	struct heap_link expiry; /* core.expiries, until it runs for the first time; of requests with a queue timeout */
	uint32_t priority;
	uint64_t arrival;
	uint64_t arrived_ns, expires_ns; /* the latter: of core.expiries */
	uint64_t began_ns; /* first step; 0: not yet */
	uint32_t n_pooled, n_prompt_sent; /* the latter: prompt positions below it need no sending; of requests with prompt_logprobs */

	const struct msg_submit *ask; /* the first submit without its tokens; its views are in `asked` */
	struct msg *asked;            /* owned */
	uint32_t vocab;               /* that its token ids were compared with; 0: not yet */
	struct kvpool_chain root;     /* of the cache salt */
	float *pooled;     /* (n_pooled) of a pooling request that is done */

	struct seq_table tables[LIMIT_KV_GROUPS]; /* while RUNNING */
	uint32_t n_all;      /* blocks that each table needs for the tokens that were known when it started to run */
	uint32_t n_reserved; /* blocks that the rest of the prompt will take: core.n_reserved has them too */
	uint32_t prompt_from; /* while RUNNING: the first prompt position whose log-probabilities the workers give */
	struct kvpool_chain chain; /* that ends with the published blocks */
	bool was_run;         /* counted in the statistics of prompts */
};

_Static_assert(offsetof(struct seq, late) == 64 && offsetof(struct seq, client_id) == 128, "as said at its beginning");

/* Fetches what a step needs of a request that it comes to soon: the first n_lines of those above. */
static inline void seq_prefetch(const struct seq *s, uint32_t n_lines)
{
	for (uint32_t i = 0; i < n_lines; i++) __builtin_prefetch((const char *)s + (size_t)64 * i, 1);
}

struct seqs {
	struct list in_state[SEQ_STATES];
	uint64_t running_changes; /* +1 whenever a request enters or leaves SEQ_RUNNING */
	struct map by_id;
	struct slab memory; /* of requests */
};

/* Lower priority number first, then the earlier arrival. */
bool seq_before(const struct seq *a, const struct seq *b);

void seqs_init(struct seqs *t);
void seqs_release(struct seqs *t); /* frees all requests */
uint32_t seqs_len(const struct seqs *t);
struct seq *seqs_find(const struct seqs *t, uint64_t client_id);

/* What s asks for, and its copies of what each step wants to know of it. */
void seq_set_ask(struct seq *s, const struct msg_submit *ask);
/* A WAITING request from a checked submit: copies what it needs. It holds its place in the flow until seq_free(). */
struct seq *seq_new(struct seqs *t, const struct msg_submit *m, struct lane *lane, struct flow *flow, uint64_t arrival);
/* The caller has given its blocks back and taken it off the lane's lists. */
void seq_free(struct seqs *t, struct seq *s);

bool seq_may_move(enum seq_state from, enum seq_state to);
void seq_move(struct seqs *t, struct seq *s, enum seq_state to);

static inline uint32_t seq_n_output(const struct seq *s)
{
	return s->n_tokens - s->n_prompt;
}

static inline bool seq_is_pooling(const struct seq *s)
{
	return s->is_pooling;
}

/* Prompt positions below it have their log-probabilities; n_prompt when none are missing or none were asked for. */
static inline uint32_t seq_n_prompt_known(const struct seq *s)
{
	return s->prompt_logprobs ? s->prompt_logprobs->base + s->prompt_logprobs->n : s->n_prompt;
}

/* Something is to be sent: log-probabilities of the prompt. */
static inline bool seq_has_prompt_rows(const struct seq *s)
{
	return s->prompt_logprobs && s->n_prompt_sent < seq_n_prompt_known(s);
}

/* Appends a known token. */
void seq_append(struct seq *s, uint32_t token);
/* Likewise in a quiet step. */
static inline void seq_append_quiet(struct seq *s, uint32_t token)
{
	s->late[s->n_tokens++ % KVPOOL_BLOCK] = token;
}
/* The newest token. */
static inline uint32_t seq_last_token(const struct seq *s)
{
	return s->n_stored < s->n_tokens ? s->late[(s->n_tokens - 1) % KVPOOL_BLOCK] : s->tokens[s->n_tokens - 1];
}
/* Puts the tokens of quiet steps where all are. */
void seq_store(struct seq *s);
/* The next position's log-probabilities, where they are kept (l may be NULL): n_top entries of the two columns from `at` on. */
void seq_append_top(struct seq_logprobs *l, uint32_t rank, uint32_t n_top, struct view ids, struct view lps, uint32_t at);
/* The entries of a position: returns n_top; *rank and *at (index into l->top_ids). 0 when none are kept. */
uint32_t seq_top(const struct seq_logprobs *l, uint32_t position, uint32_t *rank, uint32_t *at);
/* The frontend has the log-probabilities of the prompt positions below `position`; what is known is sent from there. */
void seq_set_prompt_sent(struct seq *s, uint32_t position);

/* How the request ends with the tokens it has, when prompt and output may have len_max tokens together. */
enum finish seq_finish(const struct seq *s, uint32_t len_max);
/* Output tokens at most, known and pending together. */
uint32_t seq_n_output_limit(const struct seq *s, uint32_t len_max);

/* An event of a running request is dealt with: sets up to where it is quiet. */
void seq_set_quiet_tokens(struct seq *s, uint32_t len_max);
void seq_set_quiet_sched(struct seq *s, uint32_t len_max, uint32_t n_groups);

void seqs_check(const struct seqs *t);

#endif
