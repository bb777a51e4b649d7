/* lane.h - a frontend's sockets to the executor: PUSH to `requests-<epoch>`, PULL on `frontend-<id>-<incarnation>`.
 *
 * A new epoch means a new executor under a new name: the old PUSH socket is closed with what it had queued (its messages are for the dead),
 * a new one connects. Messages carry a MAC; what fails it, or is no message, is dropped and counted. */
#ifndef SLUICE_LANE_H
#define SLUICE_LANE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/boot.h"
#include "proto/messages.h"

#include <uv.h>

struct lane_link;

struct lane_events {
	void *ctx;
	void (*on_message)(void *ctx, const struct msg *m); /* views are valid until it returns */
	void (*on_ready)(void *ctx);                        /* a full lane has room again */
};

/* boot: kept. Opens the PULL socket and the PUSH socket of boot->epoch. */
int lane_open(struct lane_link **out, const struct boot *boot, uv_loop_t *loop, const struct lane_events *events,
	      struct errbuf *err) MUST_CHECK;
/* The executor of this epoch is the one to talk to. */
int lane_epoch(struct lane_link *l, uint64_t epoch, struct errbuf *err) MUST_CHECK;
/* ST_OK, ST_AGAIN (full). ST_LIMIT: the message can never be sent. */
int lane_send(struct lane_link *l, const struct msg *m) MUST_CHECK;
/* What lane_send() took goes now, as one packet: once a pass. */
void lane_flush(struct lane_link *l);
/* From on_message: further messages are for the next pass. */
void lane_yield(struct lane_link *l);
/* Messages dropped so far. */
uint64_t lane_dropped(const struct lane_link *l);
/* The sockets close in the loop; afterwards lane_free(). */
void lane_close(struct lane_link *l);
void lane_free(struct lane_link *l);

#endif
