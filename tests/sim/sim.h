/* sim.h - the whole mesh in one process, from a seed.
 *
 * K frontends (frontend/live.c), one executor (executor/core.c), a model of N workers that checks each step, and a
 * supervisor (sluice/restart.c), which also replaces them as planned (sim_reload.c), live on one virtual clock. Lanes delay, fill up, and around a death lose and misdeliver
 * as ZeroMQ does; every message on them is packed and unpacked by the real code. The seed decides everything: sizes,
 * requests, delays and faults.
 *
 * What is checked, after every pass and at the end:
 * - each request whose frontend lived ends exactly once, with exactly the tokens of the undisturbed model, or is
 *   cancelled;
 * - queue timeouts, shares of tenants and limits are as sim_turns.c says;
 * - no step contains a request whose cancel has arrived; the KV cache holds what a step reads from it; block tables
 *   fit;
 * - core_check(), lives_check(); nothing waits for ever; in the end no block is used. */
#ifndef SLUICE_SIM_H
#define SLUICE_SIM_H

#include "common/base.h"

/* Name, and how often all seeds together must see it (0: for information). */
/* clang-format off */
#define SIM_COUNTS(C)                       \
	C(preemption, 20)                   \
	C(prefix_hit, 20)                   \
	C(cancel_in_queue, 20)              \
	C(cancel_in_prefill, 20)            \
	C(cancel_in_decode, 20)             \
	C(frontend_death, 20)               \
	C(worker_death, 20)                 \
	C(executor_death, 20)               \
	C(two_deaths_at_once, 20)           \
	C(hang_then_kill, 20)               \
	C(frontend_retired, 20)             \
	C(executor_reload, 20)              \
	C(worker_reload, 20)                \
	C(queue_timeout, 20)                \
	C(queue_timeout_resubmitted, 20)    \
	C(fair_pass, 1000)                  \
	C(timed, 1000)                      \
	C(poison_refused, 20)               \
	C(prompt_row, 1000)                 \
	C(embedding, 20)                    \
	C(refused_invalid, 20)              \
	C(message_misdelivered, 20)         \
	C(message_lost, 20)                 \
	C(message_duplicated, 20)           \
	C(high_water_mark, 20)              \
	C(lane_closed, 0)                   \
	C(pause, 0)                         \
	C(start_failure, 0)                 \
	C(recurrent_model, 5)               \
	C(silence, 0)                       \
	C(resubmit, 0)                      \
	C(replay, 0)                        \
	C(stale_dropped, 0)                 \
	C(gap, 0)                           \
	C(discarded_token, 0)               \
	C(refused_too_long, 0)              \
	C(refused_queue_full, 0)            \
	C(refused_numeric, 0)               \
	C(refused_draining, 0)              \
	C(broken_by_frontend_death, 0)      \
	C(request, 0)                       \
	C(token, 0)                         \
	C(step, 0)                          \
	C(event, 0)
/* clang-format on */

#define SIM_AS_FIELD(name, at_least) uint64_t name;
struct sim_counts {
	SIM_COUNTS(SIM_AS_FIELD)
};
#undef SIM_AS_FIELD

/* Runs one seed. A broken rule prints what and how to repeat it, and ends the program. Returns the hash of all that
 * happened. */
uint64_t sim_run(uint64_t seed, bool verbose, struct sim_counts *counts);

#endif
