/* collective.h - collective_rpc: one call to all ranks over the step ring, and what each answered. Plain C, no ring, no clock.
 *
 * One call at a time. Every rank's answer is kept, or the rank that failed is named with its reason. Answers to older calls are ignored. */
#ifndef SLUICE_COLLECTIVE_H
#define SLUICE_COLLECTIVE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/limits.h"
#include "proto/messages.h"
#include "proto/rpc.h"

struct collective_answer {
	bool arrived;
	uint32_t body_len;
	uint8_t body[RPC_BODY_MAX];
};

struct collective {
	uint32_t n_ranks;
	uint64_t id;          /* of the running or last call; 0: none yet */
	uint32_t n_arrived;
	bool running;
	uint64_t deadline_ns; /* UINT64_MAX: none */
	const char *method;   /* static text */
	uint8_t args[RPC_BODY_MAX];
	struct collective_answer answers[LIMIT_WORKERS];
};

void collective_init(struct collective *c, uint32_t n_ranks);

/* Starts a call and fills *m (views into c) for the step ring. timeout_ns 0: no limit; else the caller looks at deadline_ns. An earlier call is forgotten. */
void collective_call(struct collective *c, uint64_t epoch, const char *method, const void *args, size_t args_len, uint64_t now,
		     uint64_t timeout_ns, struct msg *m);

/* ST_AGAIN: more answers are to come. ST_OK: all are there. Another code: a rank failed; err names it, the method and the
 * reason. ST_NOT_FOUND: an answer to no call of ours, ignored. */
int collective_on_reply(struct collective *c, const struct msg_rpc_reply *m, struct errbuf *err) MUST_CHECK;

#endif
