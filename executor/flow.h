/* flow.h - what waits on a lane: a flow for each tenant that has requests there, in it its waiting requests by priority, then arrival.
 *
 * Next on a lane is, of the requests that are first in their flows, the one with the lowest priority number; then that of
 * the account with the least counter; then of the tenant with the least; then the one that came first. With one tenant a
 * lane has one flow, and the order is priority and arrival.
 *
 * A lane's flows are a lane's own, so that a lane that is not served is skipped as a whole. */
#ifndef SLUICE_FLOW_H
#define SLUICE_FLOW_H

#include "common/heap.h"
#include "common/map.h"
#include "executor/fair.h"

struct seq;
struct flows;

/* Lives as long as the tenant holds requests of the lane. */
struct flow {
	struct heap_link link; /* flows.waiting, while anybody waits */
	struct flows *flows;
	struct fair_share *tenant;
	struct heap waiting;   /* of seq.turn */
	uint32_t n_held;       /* requests */
	uint64_t seen_account, seen_tenant; /* of the counters, in flows.waiting */
};

struct flows {
	struct heap waiting;  /* flows, by what was seen of their counters; these grow only (fair.c) */
	struct map by_tenant; /* by the address of the share */
	uint32_t n_waiting;   /* requests */
};

void flows_init(struct flows *q);
void flows_release(struct flows *q); /* frees all flows */

/* The flow of a new request of this tenant; flow_leave() when the request is over. */
struct flow *flow_enter(struct flows *q, struct fair_share *tenant);
void flow_leave(struct flow *f);

/* A request begins to wait, or no longer does. */
void flow_wait(struct flow *f, struct seq *s);
void flow_wait_ends(struct flow *f, struct seq *s);

/* The request that is next, or NULL; of two lanes' ones, the one that goes first. */
struct seq *flows_first(struct flows *q);
bool flow_goes_before(const struct seq *a, const struct seq *b);

void flows_check(const struct flows *q);

#endif
