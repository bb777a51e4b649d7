/* listen.h - the public port: K listening sockets that share it, and the proof that nobody else does.
 *
 * SO_REUSEPORT would let a second server share the port silently. So a plain bind without the option probes the address
 * first, under a lock that all Sluices of the machine respect (an abstract socket named after the port: it needs no file and
 * is gone with its process). The lock is held from the probe until the K sockets listen. */
#ifndef SLUICE_LISTEN_H
#define SLUICE_LISTEN_H

#include "common/base.h"
#include "common/errbuf.h"

#define LISTEN_BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

struct listen {
	int *fds; /* owned; n of them, non-blocking, listening */
	uint32_t n;
	uint16_t port;   /* the real one, also when 0 was asked for */
	char text[300];  /* "http://host:port" to show and to ask */
};

/* ST_EXISTS: the address is in use. */
int listen_open(struct listen *l, const char *host, uint16_t port, uint32_t n, struct errbuf *err) MUST_CHECK;
void listen_close(struct listen *l);

#endif
