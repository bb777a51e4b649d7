/* tcp.h - the socket edge of a frontend: takes connections (TCP or UNIX) from acceptor.c and from siblings, and moves bytes between them
 * and conn.c, through TLS when there is a certificate.
 *
 * Nothing is decided here. Reading and accepting only record; tcp_flush() does the work once a loop pass: parses what waits,
 * writes what is to be sent, closes what is over.
 * Bounds: connections_max (503 and close beyond it; also out of descriptors, see acceptor.h).
 *
 * A connection that is idle (conn_is_idle()) can go to a sibling: nothing of it is in this process then, and what its client sends
 * meanwhile waits in the socket. The moment right after an answer is the only one for a client that sends its next request at once, so
 * one that shall go goes in the pass that has sent its answer. */
#ifndef SLUICE_TCP_H
#define SLUICE_TCP_H

#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/acceptor.h"
#include "frontend/balance.h"
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

/* Hands the connection to b->target, or to whom it likes (TCP_TO_ANY). True: it is the sibling's. fd: borrowed. */
typedef bool (*tcp_give)(void *ctx, int fd, const struct balance_conn *b, uint32_t n_answered);
#define TCP_TO_ANY LIMIT_FRONTENDS

/* listen_fd: bound, maybe listening already; taken. host: kept; its on_dirty is set here. tick_ms: how often timeouts are looked at. */
int tcp_open(struct tcp **out, uv_loop_t *loop, int listen_fd, struct conn_host *host, uint32_t connections_max, uint32_t tick_ms,
	     struct errbuf *err) MUST_CHECK;

/* Connections that are accepted from now on speak TLS. c: kept until the next call or tcp_close(); NULL: plain. */
void tcp_use_tls(struct tcp *t, struct tls_context *c);

/* The listening sockets, to add some and take some away. */
struct acceptor *tcp_acceptor(struct tcp *t);

/* Before the first connection gets a target. */
void tcp_on_give(struct tcp *t, tcp_give give, void *ctx);
/* A connection of a sibling. Takes fd, a connected stream socket. */
void tcp_take(struct tcp *t, int fd, const struct balance_conn *b, uint32_t n_answered);
/* Shows all connections that could go; those that have a target afterwards go as soon as they are idle. */
void tcp_visit(struct tcp *t, void (*visit)(void *ctx, struct balance_conn *b, uint32_t n_answered), void *ctx);
/* From now on accepts nothing, and each connection goes to a sibling as soon as it is idle; until then it is served. With TLS, answers
 * say `Connection: close` instead. */
void tcp_retire(struct tcp *t);
/* While retiring: answers say `Connection: close`, since nobody has room for more. */
void tcp_end_after_answers(struct tcp *t, bool on);
/* Gives what is idle now; false: some are left that nobody takes at the moment. */
bool tcp_give_idle(struct tcp *t);

/* Once a loop pass, after the handlers have had theirs. False: some connections are left for the next pass, which must not wait. */
bool tcp_flush(struct tcp *t, uint64_t now);

/* Idle connections end, busy ones after their answer. Whoever still connects is accepted and answered once, with what the handlers
 * say to a request that comes too late: better than a connection that nobody takes. */
void tcp_drain(struct tcp *t);

/* Closes everything at once; on_closed when all handles are closed (the struct is freed before that call). */
void tcp_close(struct tcp *t, void (*on_closed)(void *ctx), void *ctx);

void tcp_stats(const struct tcp *t, struct tcp_stats *out);

#endif
