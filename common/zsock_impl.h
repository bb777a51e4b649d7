/* zsock_impl.h - what the files of a socket share: zsock.c (connections, opening, closing, the loop's events), zsock_in.c (what is read) and
 * zsock_out.c (what is sent). Nobody else includes it. */
#ifndef SLUICE_ZSOCK_IMPL_H
#define SLUICE_ZSOCK_IMPL_H

#include "common/list.h"
#include "common/log.h"
#include "common/strbuf.h"
#include "common/zmtp.h"
#include "common/zsock.h"

#include <sys/un.h>

#define ZSOCK_LEN_BYTES 4             /* before each message of a packet, little-endian */
#define ZSOCK_PACKET_BYTES (64 * KIB) /* a packet that is longer than this takes no further message */

struct zctx {
	uint8_t key[MAC_KEY_BYTES];
	size_t message_max;
};

/* A connection. It lives until the loop has closed its handle. */
struct zconn {
	struct list_link link; /* zsock.conns */
	struct zsock *sock;
	uv_poll_t poll;
	int fd, events;
	bool closing;
	bool behind; /* some of `in` is whole and has not been taken: nothing more is read, so the flood of a peer waits with the peer */
	struct zmtp proto;
	uint8_t *in; /* read, and not yet taken */
	size_t in_len, in_cap;
};

/* A packet as it is written, that waits for the other side. */
struct zpacket {
	struct list_link link; /* zsock.queue */
	size_t len, at;        /* at: written so far */
	uint8_t data[];
};

struct zsock {
	struct zctx *ctx;
	enum zmtp_role role;
	uv_loop_t *loop;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct list conns;
	uint32_t n_handles; /* not yet closed: connections' and own */
	bool closing, warned;
	uv_timer_t retry; /* PUSH: to connect; PULL: to accept, after a want of descriptors */
	uint32_t retry_ms;
	struct zsock_stats stats;
	void *user;
	/* PULL */
	int listen_fd;
	uv_poll_t listen;
	uv_idle_t again; /* while somebody is behind, or it yields */
	bool yields;
	zsock_on_message on_message;
	/* PUSH */
	struct list queue;
	uint32_t hwm;
	size_t queued_bytes; /* of whole packets */
	bool full;            /* a send was refused; on_ready is owed */
	struct strbuf packet; /* what was put and is not sent */
	uint32_t n_packet;    /* messages in it */
	void (*on_ready)(void *ctx);
};

static inline size_t zctx_packet_max(const struct zctx *z)
{
	return ZSOCK_PACKET_BYTES + 2 * ZSOCK_LEN_BYTES + z->message_max;
}

/* Once a socket: a peer that does it again and again must not fill the log. */
#define zsock_warn(s, fmt, ...)                                                          \
	do {                                                                             \
		if (!(s)->warned) log_warning("%s: " fmt, (s)->path, __VA_ARGS__);       \
		(s)->warned = true;                                                      \
	} while (0)

/* The events of uv_poll that it waits for. */
void zconn_watch(struct zconn *c, int events);
/* The other side is gone, or of no use. */
void zconn_lost(struct zconn *c);
/* Reads what is there, and takes it. */
void zconn_read(struct zconn *c);

/* The first packet leaves the queue. */
void zsock_drop_first(struct zsock *s);
/* Sends what is queued, as far as the connection, which is up, takes it. */
void zsock_drain(struct zconn *c);
/* A full socket says so when half of its queue has gone. */
void zsock_look(struct zsock *s);

#endif
