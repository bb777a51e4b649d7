/* serve_impl.h - the supervisor's state, for the files of serve.h. */
#ifndef SLUICE_SERVE_IMPL_H
#define SLUICE_SERVE_IMPL_H

#include "sluice/change.h"
#include "sluice/control.h"
#include "sluice/oom.h"
#include "sluice/keysource.h"
#include "sluice/kid.h"

enum serve_state { SERVING, LEAVING, DRAINING, STOPPING };

struct serve {
	struct config config;
	uint64_t model_ident; /* ckptident() */
	struct mesh mesh;
	uv_loop_t loop;
	uv_timer_t tick;
	uv_signal_t sigint, sigterm, sighup;
	struct keysource keysource;
	struct control control;
	uint64_t drain_peer; /* of control: who waits for the end; 0: nobody */
	struct fleet fleet;
	struct change change;
	uint64_t change_peer;  /* of control: who asked for the change, 0: nobody */
	uint64_t replaced_ns;  /* when the executor or the workers were ended for the change */
	struct kid *kids; /* workers, executor, a frontend for each slot of the fleet; n_kids of them have been used */
	uint32_t n_kids;
	struct kid_events events;
	enum serve_state state;
	uint64_t deadline_ns; /* of LEAVING: drain then; of DRAINING and STOPPING: kill then */
	int exit_code;
	uint64_t ticked_ns;
	struct oom oom;
	bool was_ready, said_why, bar_shown;
	struct errbuf why; /* what a child said last before it gave up */
};

/* ---- serve.c ---- */

#define CUT_GRACE_NS (3 * NS_PER_S) /* for frontends to say so to whom they cut off, and to end */

/* As at SIGTERM. */
void serve_end(struct serve *s);
bool serve_has_been_ready(const struct serve *s);
/* Starts the process when that is due. */
void serve_step_kid(struct serve *s, struct kid *k, uint64_t now);
/* API keys and certificates, as at SIGHUP; who: for the log. */
int serve_reread(struct serve *s, const char *who, struct errbuf *err) MUST_CHECK;
void serve_tell_worker_state(struct serve *s, const struct kid *w, bool alive, bool planned);

static inline struct kid *serve_executor(struct serve *s)
{
	return &s->kids[s->mesh.n_workers];
}

static inline struct kid *serve_frontend(struct serve *s, uint32_t slot)
{
	return &s->kids[s->mesh.n_workers + 1 + slot];
}

/* ---- serve_fleet.c: frontends that come and go; scale and reload ---- */

/* The frontends of the start. */
int serve_open_fleet(struct serve *s, uint32_t n_frontends, uint64_t now, struct errbuf *err) MUST_CHECK;
void serve_step_fleet(struct serve *s, uint64_t now);
/* Nothing changes, nobody is awaited. */
bool serve_fleet_is_calm(const struct serve *s);
/* Of any child: what the fleet and a change have to know of it. After the restart policy has heard of it. */
void serve_fleet_on_ready(struct serve *s, struct kid *k);
void serve_fleet_on_exited(struct serve *s, struct kid *k, const char *why);
/* Answers the peer when it is over, or cannot begin. */
void serve_scale(struct serve *s, uint64_t peer, uint32_t n_frontends);
void serve_reload(struct serve *s, uint64_t peer);

/* ---- serve_commands.c: what operators ask for ---- */

int serve_open_control(struct serve *s, struct errbuf *err) MUST_CHECK;
/* Whoever waits for the end is told that it has come. */
void serve_close_control(struct serve *s);

#endif
