/* siblings.h - a frontend among its siblings: shows them its load, reads theirs from the status page, and moves connections.
 *
 * The edge of balance.c: it asks tcp.c what the connections do, gives balance.c the numbers, and hands over (handover.c) what it picks.
 * Only siblings that serve, with a fresh heartbeat and room for connections, are given any.
 *
 * Balance (--balance-connections): a look each 100 ms, at more than SIBLINGS_LOOK_CONNS connections more rarely, none while nothing was
 * asked. Retiring: every connection goes as soon as it is idle, in turn to all siblings; the page says DRAINING first, then the inbox
 * is shut, so nothing comes any more. While no sibling serves, connections are served and kept; when those that serve are full, answers say
 * `Connection: close`. */
#ifndef SLUICE_SIBLINGS_H
#define SLUICE_SIBLINGS_H

#include "common/errbuf.h"
#include "frontend/tcp.h"
#include "proto/boot.h"

struct siblings;

struct siblings_stats {
	uint64_t given, taken, dropped;
};

/* boot, tcp: borrowed until close. inbox_fd: taken. */
int siblings_open(struct siblings **out, const struct boot *boot, uv_loop_t *loop, struct tcp *tcp, uint32_t connections_max, int inbox_fd,
		  struct errbuf *err) MUST_CHECK;
/* With each heartbeat. */
void siblings_tick(struct siblings *s, uint64_t now);
/* After page_state(DRAINING). */
void siblings_retire(struct siblings *s);
/* A sibling serves, or is about to. */
bool siblings_exist(const struct siblings *s);
void siblings_stats(const struct siblings *s, struct siblings_stats *out);
void siblings_close(struct siblings *s); /* before tcp_close(); frees itself in the loop */

#endif
