/* control.h - the socket `control` in the mesh's folder, on which operators' commands arrive; and what is said on it.
 *
 * SOCK_SEQPACKET; a packet is a JSON object. A request is {"command": WORD, ...}; it is answered by any number of
 * {"progress": TEXT} and then one {"ok": true, ...} or {"ok": false, "error": TEXT}. A peer may ask again after an answer.
 *
 *   mesh                  who this is: pid, at (URL), model, phase, ready
 *   page                  a read-only descriptor of the status page comes with the answer
 *   drain                 as SIGTERM; answered when the mesh has ended
 *   scale  frontends: K   answered when K frontends serve and the others are gone
 *   reload                answered when every process has been replaced
 *
 * The folder is 0700, and only its owner's processes and root's are listened to. The supervisor is never held up: what a peer does
 * not take is dropped with the peer. A peer that goes away does not stop what it has asked for. */
#ifndef SLUICE_CONTROL_H
#define SLUICE_CONTROL_H

#include "common/base.h"
#include "common/errbuf.h"

#include <jansson.h>
#include <uv.h>

#define CONTROL_NAME "control"        /* in the mesh's folder */
#define CONTROL_REQUEST_MAX 4096
#define CONTROL_ANSWER_MAX (16 * 1024) /* the longest: model's path, error texts */
#define CONTROL_PEERS_MAX 16          /* people, and `sluice top`s; more are turned away */

struct control;

struct control_peer {
	struct control *control;
	uv_poll_t poll;
	int fd;          /* -1: closing, or free */
	bool used, asks; /* asks: a request has not been answered yet */
	uint64_t id;     /* of this connection; never 0, never used again */
};

struct control_events {
	void *ctx;
	/* Answer it by control_answer(peer), now or later. request is borrowed. */
	void (*on_request)(void *ctx, uint64_t peer, const char *command, const json_t *request);
};

struct control {
	uv_poll_t poll;
	int fd; /* listening; -1: none */
	uint64_t last_id;
	struct control_events events;
	struct control_peer peers[CONTROL_PEERS_MAX];
};

int control_open(struct control *c, uv_loop_t *loop, const char *ipc_dir, const struct control_events *events, struct errbuf *err) MUST_CHECK;
/* The loop has to run until the handles are closed. */
void control_close(struct control *c);

/* A peer that is gone is no error. answer: {"ok": ...}, taken; fd: a copy goes along, unless it is < 0. */
void control_progress(struct control *c, uint64_t peer, const char *text);
void control_answer(struct control *c, uint64_t peer, json_t *answer, int fd);
void control_fail(struct control *c, uint64_t peer, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
