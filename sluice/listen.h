/* listen.h - the public port: K listening sockets that share it, and the proof that nobody else does.
 *
 * SO_REUSEPORT would let a second server share the port silently. So a plain bind without the option probes the address
 * first, under a lock that all Sluices of the machine respect (an abstract socket named after the port: it needs no file and
 * is gone with its process). The lock is held from the probe until the K sockets listen.
 *
 * Or a UNIX socket, which has no SO_REUSEPORT: all frontends accept from the same one. The file of a dead server is replaced, one
 * on which somebody listens is not, and what is no socket is never touched. Whoever may reach the file may connect, as on a port of
 * the loopback; its folder or API keys limit that. */
#ifndef SLUICE_LISTEN_H
#define SLUICE_LISTEN_H

#include "common/base.h"
#include "common/errbuf.h"

#include <sys/socket.h>

#define LISTEN_BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

struct listen {
	int *fds; /* owned; n of them, non-blocking, listening; a UNIX socket: one */
	uint32_t n;
	size_t fds_cap;
	struct sockaddr_storage addr; /* of a port */
	socklen_t addr_len;
	char path[108];  /* of a UNIX socket; "": none */
	uint64_t file_id[2]; /* device and inode of what lies at path: only our own is removed */
	uint16_t port;   /* the real one, also when 0 was asked for */
	char text[300];  /* "http://host:port" or "unix:PATH", to show and to ask */
};

/* ST_EXISTS: the address is in use. scheme: "http" or "https", for the text. */
int listen_open(struct listen *l, const char *scheme, const char *host, uint16_t port, uint32_t n, struct errbuf *err) MUST_CHECK;
int listen_open_unix(struct listen *l, const char *path, struct errbuf *err) MUST_CHECK;
void listen_close(struct listen *l);
/* One more socket, with the number n. No lock, no probe: nobody else can have the port while ours listen. */
int listen_add(struct listen *l, struct errbuf *err) MUST_CHECK;

/* The socket with this number. */
int listen_fd(const struct listen *l, uint32_t ix);

#endif
