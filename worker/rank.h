/* rank.h - one rank between the rings and its engine: takes steps and calls from the step ring, answers into its reply
 * ring.
 *
 * Everything that comes out of the ring is checked; what cannot be read or belongs to another epoch is skipped and
 * counted. A new generation of the ring is a new executor, which knows nothing of our sequences: they are dropped.
 * Weights and KV memory stay, so the new executor goes on at once. Only rank 0 answers steps; all ranks answer calls.
 * Not for several threads. */
#ifndef SLUICE_RANK_H
#define SLUICE_RANK_H

#include "common/ring.h"
#include "proto/page.h"
#include "proto/rpc.h"
#include "worker/engine.h"

struct rank_io {
	struct ring *steps;   /* attached as reader number `rank` */
	struct ring *replies; /* attached as writer */
	int event_fd;         /* eventfd of the reply ring; -1: none */
	uint32_t rank;
	uint64_t calm_look_ns;        /* how often it shows that it lives after a time without work; 0: as ever */
	struct page_slot *slot;       /* NULL: none */
	bool (*may_go_on)(void *ctx); /* asked now and then; false ends rank_run(). NULL: always */
	void (*on_ready)(void *ctx);  /* the first time that steps can be taken; may be NULL */
	void *ctx;
};

struct rank_stats {
	uint64_t steps, bad_steps, calls, skipped, unreadable;
	uint64_t busy_ns; /* in steps */
};

struct rank;

/* opts and what it points to are borrowed until rank_free(). */
struct rank *rank_new(const struct rank_io *io, const struct engine_opts *opts);
void rank_free(struct rank *r);

/* Handles one record, waiting for it up to timeout_ns. ST_TIMEOUT: there was none. ST_DEVICE, ST_CORRUPT (the ring's
 * memory is damaged): the process must end. */
int rank_pass(struct rank *r, uint64_t timeout_ns) MUST_CHECK;

/* Passes until may_go_on says no: ST_OK; or until a pass fails. */
int rank_run(struct rank *r) MUST_CHECK;

void rank_stats(const struct rank *r, struct rank_stats *out);
struct engine *rank_engine(struct rank *r); /* NULL before load */

#endif
