/* tcp.h - the socket edge of a frontend: accepts connections on an inherited socket (TCP or UNIX) and moves bytes between them and
 * conn.c, through TLS when there is a certificate.
 *
 * Nothing is decided here. Reading and accepting only record; tcp_flush() does the work once a loop pass: parses what waits,
 * writes what is to be sent, closes what is over.
 * Bounds: connections_max (503 and close beyond it). Out of descriptors: a spare one is given up for a moment to accept, answer
 * 503 and close; when even that fails, accepting pauses for TCP_PAUSE_MS. Never a spin. */
#ifndef SLUICE_TCP_H
#define SLUICE_TCP_H

#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/conn.h"
#include "frontend/tls.h"

#include <uv.h>

struct tcp;

struct tcp_stats {
	uint64_t n_open;     /* now */
	uint64_t n_busy;     /* of them, those with a request or an answer under way; counted while draining only */
	uint64_t accepted;   /* served */
	uint64_t refused;    /* 503 at the limit */
};

/* listen_fd: bound, maybe listening already; taken. host: kept; its on_dirty is set here. tick_ms: how often timeouts are looked at. */
int tcp_open(struct tcp **out, uv_loop_t *loop, int listen_fd, struct conn_host *host, uint32_t connections_max, uint32_t tick_ms,
	     struct errbuf *err) MUST_CHECK;

/* Connections that are accepted from now on speak TLS. c: kept until the next call or tcp_close(); NULL: plain. */
void tcp_use_tls(struct tcp *t, struct tls_context *c);

/* Once a loop pass, after the handlers have had theirs. */
void tcp_flush(struct tcp *t, uint64_t now);

/* Idle connections end, busy ones after their answer. Whoever still connects is accepted and answered once, with what the handlers
 * say to a request that comes too late: better than a connection that nobody takes. */
void tcp_drain(struct tcp *t);

/* Closes everything at once; on_closed when all handles are closed (the struct is freed before that call). */
void tcp_close(struct tcp *t, void (*on_closed)(void *ctx), void *ctx);

void tcp_stats(const struct tcp *t, struct tcp_stats *out);

#endif
