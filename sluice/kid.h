/* kid.h - one child process: its spawn, its control socket, its end. The supervisor's policy lies in serve.c and restart.c. */
#ifndef SLUICE_KID_H
#define SLUICE_KID_H

#include "sluice/mesh.h"
#include "sluice/restart.h"

#include <uv.h>

enum kid_kind { KID_FRONTEND, KID_EXECUTOR, KID_WORKER };

/* The longest honest work of a starting process without a sign of life: a large vocabulary, a piece of a file on a slow disk. */
#define KID_START_SILENCE_NS (120 * NS_PER_S)

struct kid;

struct kid_events {
	void *ctx;
	void (*on_ready)(void *ctx, struct kid *k);
	/* It cannot start and says why; it will exit by itself. */
	void (*on_failed)(void *ctx, struct kid *k, int exit_code, const char *text);
	/* Reaped. signal is 0 when it exited by itself. */
	void (*on_exited)(void *ctx, struct kid *k, int64_t status, int signal);
};

struct kid {
	enum kid_kind kind;
	uint32_t index;
	uint32_t incarnation; /* of the process that runs or ran last */
	uint32_t n_spawns;
	char name[24];        /* "worker 0" */
	struct mesh *mesh;
	struct page_slot *slot;
	struct restart restart;
	uv_loop_t *loop;
	uv_process_t process;
	uv_poll_t control;
	int control_fd;       /* -1: none */
	int n_open;           /* handles open in the loop */
	uint32_t home;        /* frontend: the listening socket that it inherits */
	uint64_t retire_deadline_ns; /* frontend that retires: it is killed then */
	bool has_died;        /* its last end was not asked for */
	bool owes_keys;       /* has not been told the newest API keys */
	bool alive;           /* a process exists and is not reaped */
	bool has_beaten;      /* this process has given a sign of life */
	bool was_killed;      /* by this supervisor: its SIGKILL is no riddle */
	char end[512];        /* how the last process ended, in words; "" before */
	uint64_t beat_ns;     /* its heartbeat as last seen, and for how long it has been that */
	uint64_t silent_ns;
	const struct kid_events *events;
};

void kid_init(struct kid *k, enum kid_kind kind, uint32_t index, struct mesh *mesh, uv_loop_t *loop, const struct kid_events *events,
	      uint64_t now);
/* Another one begins in its place: nothing of the last one's restarts counts. */
void kid_renew(struct kid *k, uint64_t now);
/* Starts the process and sends its boot message. ST_AGAIN: handles of the last life are not closed yet, try again. */
int kid_spawn(struct kid *k, struct errbuf *err) MUST_CHECK;
/* Sends a control message; a dead or full control socket is the kid's problem (its end will be noticed). */
void kid_send(struct kid *k, const struct msg *m);
/* Likewise, with a copy of a descriptor (fd < 0: without). False: it could not take it. */
bool kid_send_fd(struct kid *k, const struct msg *m, int fd);
/* Sends a frontend the mesh's API keys. One that cannot take them now owes_keys: try again, a key may have been withdrawn. */
void kid_send_keys(struct kid *k);
void kid_kill(struct kid *k, int sig);
/* Call it regularly, passed_ns after the last time: true when its heartbeat has stood still for limit_ns of such time, or for
 * KID_START_SILENCE_NS if that is longer and it is still starting. Only what this process has watched counts, so that a machine that
 * slept or was overloaded kills nobody. */
bool kid_is_hung(struct kid *k, uint64_t passed_ns, uint64_t limit_ns);

#endif
