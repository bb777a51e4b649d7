/* serve_impl.h - the supervisor's state, for the files of serve.h. */
#ifndef SLUICE_SERVE_IMPL_H
#define SLUICE_SERVE_IMPL_H

#include "sluice/control.h"
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
	struct kid *kids; /* workers, executor, frontends; n_kids */
	uint32_t n_kids;
	struct kid_events events;
	enum serve_state state;
	uint64_t deadline_ns; /* of LEAVING: drain then; of DRAINING and STOPPING: kill then */
	int exit_code;
	uint64_t ticked_ns;
	bool was_ready, said_why, bar_shown;
	struct errbuf why; /* what a child said last before it gave up */
};

/* As at SIGTERM. */
void serve_end(struct serve *s);

/* ---- serve_commands.c: what operators ask for ---- */

int serve_open_control(struct serve *s, struct errbuf *err) MUST_CHECK;
/* Whoever waits for the end is told that it has come. */
void serve_close_control(struct serve *s);

#endif
