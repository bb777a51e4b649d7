/* change.h - the changes of a running mesh that operators ask for, one at a time, as plain C: another number of frontends (scale), and
 * every process replaced by one of the programs on disk (reload). Works on the fleet; what is to be done comes out.
 *
 *   scale   more:   as many new frontends as are missing, at once; ready when all are
 *           fewer:  one after the other retires, those that do not serve first, then those with the highest slots
 *   reload  each frontend: a successor with the same home; when it is ready, the old one retires
 *           the executor: replaced, with a new epoch, for which frontends submit again; until the engine is ready
 *           the workers: replaced, all ranks of a group at once (a mesh has one group); their requests are replayed
 *
 * A new frontend that ends before it has served, or is not ready after CHANGE_START_NS, ends the change with an error: new ones that
 * serve stay, those that do not are ended, and nothing else has been touched. Who died for other reasons is the restart policy's: an old
 * frontend that is down when its successor is ready does not come back.
 * Who retires may have long answers to finish: the change goes on after CHANGE_SETTLE_NS, and waits for all of them at its end for
 * farewell_ns. Those that are not done by then end later, by themselves. */
#ifndef SLUICE_CHANGE_H
#define SLUICE_CHANGE_H

#include "common/errbuf.h"
#include "sluice/fleet.h"

#define CHANGE_START_NS (120 * NS_PER_S) /* for a frontend to be ready: the largest vocabularies take seconds */
#define CHANGE_SETTLE_NS (1 * NS_PER_S)  /* for idle connections to be handed over before the next frontend is changed */

enum change_kind { CHANGE_NONE, CHANGE_SCALE, CHANGE_RELOAD };
enum change_phase { CHANGE_FRONTENDS, CHANGE_EXECUTOR, CHANGE_WORKERS, CHANGE_FAREWELL };

struct change_out {
	void *ctx;
	/* The slot is STARTING: start its process. It may call change_on_trial_gone() at once. */
	void (*start)(void *ctx, uint32_t slot);
	/* The slot is RETIRING, others have its sockets: tell its process. fleet_remove() it when that is gone. */
	void (*retire)(void *ctx, uint32_t slot);
	/* End this process, which has never served; change_on_trial_gone() then. */
	void (*stop)(void *ctx, uint32_t slot);
	/* End and start anew; change_on_engine_ready() when the engine takes steps again. */
	void (*replace_executor)(void *ctx);
	void (*replace_workers)(void *ctx);
	void (*progress)(void *ctx, const char *text);
	/* It is over, the next may begin. */
	void (*done)(void *ctx, bool good, const char *text);
};

struct change {
	struct fleet *fleet;
	struct change_out out;
	uint64_t farewell_ns; /* how long the end waits for who retires */
	enum change_kind kind;
	enum change_phase phase;
	uint32_t target;            /* SCALE */
	bool todo[LIMIT_FRONTENDS]; /* RELOAD: to be replaced */
	bool mine[LIMIT_FRONTENDS]; /* started by this change */
	uint32_t old, successor;    /* RELOAD: being replaced, and by whom; FLEET_NONE: nobody */
	uint32_t leaving;           /* retires, and should have settled before the next step */
	uint32_t n_changed;
	uint64_t deadline_ns;       /* for STARTING; of FAREWELL */
	uint64_t settle_ns;         /* leaving: no longer than until then */
	bool asked, engine_ready;   /* EXECUTOR, WORKERS: has been asked for; is there */
	bool is_stepping;           /* what a step does may be an event itself */
	bool has_failed, stopped; /* stopped: trials have been told to end */
	struct errbuf why;
};

void change_init(struct change *c, struct fleet *fleet, uint64_t farewell_ns, const struct change_out *out);
static inline bool change_is_running(const struct change *c)
{
	return c->kind != CHANGE_NONE;
}

/* None may be running. Nothing happens before change_step(). */
void change_scale(struct change *c, uint32_t n_frontends);
void change_reload(struct change *c);
/* The mesh ends: so do those that have not served yet, and the change as it is. */
void change_cancel(struct change *c, const char *why);

/* Started by this change and not ready yet: when it ends, that is not for the restart policy, but for change_on_trial_gone(). */
bool change_is_trial(const struct change *c, uint32_t slot);
void change_on_trial_gone(struct change *c, uint32_t slot, const char *why);
void change_on_engine_ready(struct change *c);
/* The new executor or worker has ended before the engine was ready. */
void change_on_engine_failed(struct change *c, const char *why);

/* Does what is due. Call it after every event, and from time to time. */
void change_step(struct change *c, uint64_t now);

#endif
