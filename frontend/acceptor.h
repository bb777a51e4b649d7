/* acceptor.h - the listening sockets from which a frontend accepts: the inherited one, and those that the supervisor adds and takes away.
 *
 * libuv's own accept loop closes connections without a word when descriptors run out; so the sockets are polled, and accept4() is
 * called here. Out of descriptors: a spare one is given up for a moment to accept a client that is told so and closed; when even that
 * fails, accepting pauses for ACCEPTOR_PAUSE_MS. Never a spin. */
#ifndef SLUICE_ACCEPTOR_H
#define SLUICE_ACCEPTOR_H

#include "common/base.h"
#include "common/errbuf.h"

#include <uv.h>

#define ACCEPTOR_LISTENERS_MAX 256
#define ACCEPTOR_INHERITED UINT32_MAX /* the id of the socket that a frontend begins with: no packet names it */

struct acceptor;

struct acceptor_events {
	void *ctx;
	void (*on_accepted)(void *ctx, int fd); /* takes it: non-blocking, close-on-exec */
	void (*on_no_room)(void *ctx, int fd);  /* takes it, for a last word: the process is out of descriptors */
};

struct acceptor *acceptor_open(uv_loop_t *loop, const struct acceptor_events *events);
/* Takes fd, which is bound and perhaps listening, also when that fails. ST_EXISTS: the id is there already. ST_LIMIT: too many. */
int acceptor_add(struct acceptor *a, uint32_t id, int fd, struct errbuf *err) MUST_CHECK;
/* Closes our copy: whoever else has the socket goes on, and what waits in it is theirs. ST_NOT_FOUND: there is none of that id. */
int acceptor_remove(struct acceptor *a, uint32_t id) MUST_CHECK;
void acceptor_remove_all(struct acceptor *a);
/* The struct is freed before on_closed is called. */
void acceptor_close(struct acceptor *a, void (*on_closed)(void *ctx), void *ctx);

#endif
