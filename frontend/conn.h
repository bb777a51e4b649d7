/* conn.h - one HTTP/1.x connection as a state machine: received bytes and the time go in, requests and bytes to send come out.
 *
 * The only door to llhttp. No socket and no clock: tcp.c moves the bytes, tests and the fuzz target feed it by hand.
 *
 * READING    waits for a request or reads one. Bounds: head_max (431), body_max (413), request_ns (408), keep_alive_ns.
 * ANSWERING  one request is with its handler. Further (pipelined) bytes are kept up to CONN_PIPELINE_MAX, then reading stops; the
 *            end of the client's stream or a reset means that the client is gone: the handler's on_gone is called at once. (A client
 *            that only shuts its sending side looks the same as one that has closed. Clients that give up are common, and each
 *            would go on costing a sequence; HTTP clients that half-close are not, and no common proxy or library is one. What
 *            is answered at once still reaches them.)
 * FLUSHING   the last answer is complete and is being sent.
 * LINGERING  everything is sent, the sending side is shut; what the client still sends is thrown away for a moment, because
 *            closing with unread bytes resets the connection and the client would lose the answer (413, 431, ...).
 * DEAD       the edge closes the socket and frees the connection.
 *
 * Answers leave in the order of the requests, because the next request is parsed only when the one before is answered and
 * little of its answer is still unsent. */
#ifndef SLUICE_CONN_H
#define SLUICE_CONN_H

#include "common/base.h"
#include "frontend/http.h"

#define CONN_READ_BYTES (64 * KIB)     /* the edge gives at most so many bytes at once */
#define CONN_INPUT_MAX (40 * KIB)      /* what may come after conn_wants_read() has said yes: a read, and with TLS the record it completes */
#define CONN_PIPELINE_MAX (64 * KIB)   /* reading stops above; at most this plus CONN_INPUT_MAX is held */
#define CONN_PARSE_WEIGHT 512          /* what a request weighs besides its bytes */
#define CONN_NEXT_MAX (64 * KIB)       /* unsent bytes above which the next pipelined request waits */
#define CONN_OUT_MAX (64 * MIB)        /* of one connection; the largest plain answers (log-probabilities) stay below */
#define CONN_LINGER_NS (1000 * NS_PER_MS)

struct conn_host {
	size_t head_max, body_max;
	size_t bodies_max; /* bytes of request bodies held at a time by all connections; beyond it 503 */
	uint64_t request_ns, keep_alive_ns, write_ns;
	const char *allow_origin; /* CORS; not NULL */

	void *ctx;
	/* At the end of the head, before anything of the body is read: 0, or the status with which the request is refused and *text,
	 * which stays until the next call. May be NULL. */
	int (*on_head)(void *ctx, struct http_request *r, const char **text);
	void (*on_request)(void *ctx, struct http_request *r); /* a whole request; see http.h */
	void (*on_answered)(void *ctx, int status);            /* an answer begins; for counting; may be NULL */
	/* The request is over: its answer is complete, or the client is gone. The request is still there. May be NULL. */
	void (*on_ended)(void *ctx, struct http_request *r, bool is_gone);
	void (*on_waited)(void *ctx, uint64_t ns); /* output has waited so long for a slow reader, and is sent now. May be NULL */
	void (*on_dirty)(void *edge);                          /* look at this connection in this loop pass */

	uint64_t id_base, id_next; /* of request ids that we make */
	size_t bodies;             /* held now */
	size_t parse_max, parsed;  /* requests are begun until their weights reach parse_max, then bytes are kept until the edge sets parsed to 0 again; 0: no such limit */
	bool draining;             /* answers say `Connection: close` */
};

struct conn *conn_new(struct conn_host *host, void *edge, uint64_t now);
void conn_free(struct conn *c);
/* A new one continues a connection on which another process has answered so many requests. */
void conn_resume(struct conn *c, uint32_t n_answered);

/* Events of the edge. */
void conn_input(struct conn *c, const void *data, size_t len, uint64_t now);
void conn_eof(struct conn *c, uint64_t now); /* the client sends nothing more */
void conn_lost(struct conn *c);              /* reset, error */
void conn_tick(struct conn *c, uint64_t now); /* timeouts */
void conn_drain(struct conn *c);             /* idle connections end, busy ones after their answer, half a request gets 503 */

/* Work that waits for the loop pass: parses the next pipelined request when it may. */
void conn_pump(struct conn *c, uint64_t now);

/* Bytes to send; they stay where they are until conn_sent() has counted them all. */
size_t conn_output(struct conn *c, const char **data);
void conn_sent(struct conn *c, size_t n, uint64_t now);
/* Sending made progress that conn_sent() has not been told yet (a long write under way). */
void conn_progress(struct conn *c, uint64_t now);

bool conn_wants_read(const struct conn *c);
bool conn_is_answering(const struct conn *c);
/* What has arrived is only waiting for conn_host.parsed. */
bool conn_waits_for_turn(const struct conn *c);
bool conn_is_dead(const struct conn *c);
/* Waits for a request of which no byte has come, and everything is sent. */
bool conn_is_idle(const struct conn *c);
uint32_t conn_n_answered(const struct conn *c); /* requests since it was accepted */
/* True once: everything is sent, shut the sending side down. */
bool conn_wants_shutdown(struct conn *c, uint64_t now);

/* For http.c. */
struct strbuf *conn_out(struct conn *c);
size_t conn_unsent(const struct conn *c);
const struct conn_host *conn_host_of(const struct conn *c);
uint64_t conn_now(const struct conn *c); /* the time of the event that is being handled */
void conn_answer_begins(struct conn *c, int status);
void conn_touched(struct conn *c);  /* something was appended to conn_out() */
void conn_answered(struct conn *c); /* the answer is complete; the request is gone after this */
/* Whether the answer that begins now may leave the connection open. */
bool conn_may_keep_alive(const struct conn *c);
/* Gives the body's memory back early. */
void conn_free_body(struct conn *c);
/* Moves it to out, whose owner counts it from now on. */
void conn_take_body(struct conn *c, struct strbuf *out);

#endif
