/* bringup.h - from "the workers exist" to "they take steps", as plain C: a chain of collective calls.
 *
 *   HELLO -> all ready with the same size: RESET -> done           (a new executor finds workers with their weights)
 *         -> else: LOAD -> PROFILE -> KV_INIT (smallest rank decides) -> WARM_UP -> done
 *
 * A pool that cannot hold one request of the model's length is a failure: it would be refused when it comes, days later.
 *
 * HELLO is repeated until every rank has answered: a worker that has just been started attaches to the ring at its end and misses
 * what was said before. A death at any point starts again when all ranks exist. */
#ifndef SLUICE_BRINGUP_H
#define SLUICE_BRINGUP_H

#include "executor/collective.h"
#include "executor/core.h"

enum bringup_state {
	BRINGUP_WAIT_WORKERS, /* some rank has no process */
	BRINGUP_HELLO,
	BRINGUP_LOAD,
	BRINGUP_PROFILE,
	BRINGUP_KV_INIT,
	BRINGUP_WARM_UP,
	BRINGUP_RESET,
	BRINGUP_DONE,
	BRINGUP_FAILED
};

struct bringup {
	enum bringup_state state;
	struct collective rpc;
	uint64_t epoch, tokens_ahead;
	uint64_t alive; /* bit a rank */
	bool call_due;  /* the state's call has not been made yet */
	uint64_t n_blocks;
	uint32_t model_len_max, vocab, dim; /* model_len_max: the smallest rank's */
	struct core_kv kv;                  /* what the workers need to say about a sequence's blocks */
};

/* tokens_ahead: of a sequence, that the core schedules before they are computed; decides what layers with a window keep. */
void bringup_init(struct bringup *b, uint64_t epoch, uint32_t n_ranks, uint64_t tokens_ahead);
void bringup_on_worker(struct bringup *b, uint32_t rank, bool alive);
/* ST_OK: went on or ignored. Another code: failed for good, err says which rank and why. */
int bringup_on_reply(struct bringup *b, const struct msg_rpc_reply *m, struct errbuf *err) MUST_CHECK;
/* True when *m is to be pushed to the step ring now. */
bool bringup_step(struct bringup *b, uint64_t now, struct msg *m);
uint64_t bringup_deadline(const struct bringup *b);

#endif
