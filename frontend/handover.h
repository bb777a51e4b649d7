/* handover.h - a connection on its way from one frontend to another: a datagram with its descriptor (SCM_RIGHTS) and what is known of it.
 *
 * Each frontend reads its inbox (common/child.h). Exactly one process owns a connection: the sender until the kernel has taken the
 * datagram, then the inbox, which the supervisor keeps open over the reader's death, then whoever reads it. The sender only closes its
 * copy. Sending never waits: a full inbox (net.unix.max_dgram_qlen datagrams, 10 by default) leaves the connection where it is.
 *
 * Nothing that arrives is trusted: a datagram of another size or version or with a wrong MAC, and a descriptor that is no
 * connected stream socket, are dropped, closed and counted. */
#ifndef SLUICE_HANDOVER_H
#define SLUICE_HANDOVER_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/mac.h"

#include <uv.h>

struct handover;

/* What travels with a connection. */
struct handover_note {
	uint32_t n_answered;     /* requests since it was accepted */
	float answered, seconds; /* of struct balance_conn */
};

struct handover_config {
	const char *ipc_dir; /* borrowed, like key */
	uint32_t self;       /* own slot */
	const uint8_t *key;  /* MAC_KEY_BYTES */
	int inbox_fd;        /* taken */
};

/* Takes fd. */
typedef void (*handover_on_connection)(void *ctx, int fd, const struct handover_note *note);

int handover_open(struct handover **out, uv_loop_t *loop, const struct handover_config *c, handover_on_connection on_connection, void *ctx,
		  struct errbuf *err) MUST_CHECK;
/* fd stays the caller's; after ST_OK the connection is the other's and the caller only closes. ST_AGAIN: his inbox is full. ST_CLOSED: he
 * takes nothing any more, or is not there. */
int handover_send(struct handover *h, uint32_t to, int fd, const struct handover_note *note) MUST_CHECK;
/* Nothing more can be put into the inbox, for good, whoever reads it; what lies in it comes before this returns. */
void handover_shut(struct handover *h);
void handover_close(struct handover *h); /* what lies in the inbox stays there; frees itself in the loop. NULL: nothing */
uint64_t handover_dropped(const struct handover *h);

#endif
