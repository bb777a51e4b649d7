/* restart.h - when to start a child again, as plain C: what happened and the time go in, "spawn now" or "give up" comes
 * out. One struct a child; no process, no timer.
 *
 *   WAITING --spawn--> STARTING --ready--> RUNNING
 *      ^                  |                  |
 *      '---- back-off ----+------ exited ----'        any --exited, too often or for good--> FAILED
 *                                                     any --drain and exited--> STOPPED
 *
 * - Starts lie apart: the next one comes at once, but not before a delay has passed since the last one, which doubles with each
 *   death from delay_min_ns to delay_max_ns; after healthy_ns of being ready it starts over. So who dies now and then is back at once,
 *   and who dies in its start does not take the machine.
 * - A child that was never ready, in any of its lives, is given up after start_failures_max deaths, or at the first
 *   death after its `failed` message (which says that a restart will not help). The exit code is the one that it
 *   wanted.
 * - A child that was ready once can work on this machine, so what stops it now may pass: it is given up only after deaths_max
 *   deaths in a row without healthy_ns of being ready in between.
 * - A planned end (restart_plan()) is no death: the next start is due at once.
 * - While draining nothing is started. */
#ifndef SLUICE_RESTART_H
#define SLUICE_RESTART_H

#include "common/base.h"

#define RESTART_EXIT_DEFAULT 1 /* given up without a `failed` message */

enum restart_state { RESTART_WAITING, RESTART_STARTING, RESTART_RUNNING, RESTART_STOPPED, RESTART_FAILED };
enum restart_action { RESTART_NOTHING, RESTART_SPAWN, RESTART_GIVE_UP };

struct restart_config {
	uint64_t delay_min_ns, delay_max_ns; /* 100 ms, 10 s */
	uint64_t healthy_ns;                 /* 30 s */
	uint32_t start_failures_max;         /* deaths before ever being ready */
	uint32_t deaths_max;                 /* in a row, after having been ready; 0: any number */
};

extern const struct restart_config restart_config_default, restart_config_frontend;

struct restart {
	struct restart_config cfg;
	enum restart_state state;
	uint64_t spawn_ns;       /* WAITING: not before; else when it was started */
	uint64_t ready_ns;       /* RUNNING: since */
	uint64_t delay_ns;       /* between the last two starts at least; 0: no death since it was healthy */
	uint32_t start_failures; /* while never ready */
	uint32_t deaths;         /* all, for the log and the metrics */
	uint32_t deaths_in_row;  /* since it was healthy */
	bool ever_ready, draining, planned;
	bool has_failed; /* has sent `failed`; ends it only when it was never ready */
	int exit_code;   /* FAILED: for the supervisor's own exit */
};

/* The first start is due at once. */
void restart_init(struct restart *r, const struct restart_config *cfg, uint64_t now);

/* What to do now. SPAWN and GIVE_UP come once: the state has moved (to STARTING, FAILED). After SPAWN the process
 * exists, or restart_on_exited() says that it could not be made. */
enum restart_action restart_step(struct restart *r, uint64_t now);
/* When restart_step() has something to do; UINT64_MAX: not before the next event. */
uint64_t restart_deadline(const struct restart *r);

void restart_on_ready(struct restart *r, uint64_t now);
/* The child's `failed` message. */
void restart_on_failed(struct restart *r, int exit_code);
/* It was reaped, whatever its status: a child has no reason to end unless it was told to. Also for a spawn that
 * failed. */
void restart_on_exited(struct restart *r, uint64_t now);
/* It is about to be ended, so that it can be started anew: that end is no death, and the start is due at once. */
void restart_plan(struct restart *r);
/* From now on nothing is started. */
void restart_drain(struct restart *r);

/* A process exists (or is being made): it has to be reaped. */
bool restart_is_alive(const struct restart *r);

#endif
