/* tcp.c - see tcp.h.
 *
 * Life of a connection: accepted, then on `conns`; each event puts it on `dirty`, too; tcp_flush() empties that list. When conn.c says
 * that it is dead, its handle is closed, and the close callback frees it. One handle each, so nothing else outlives it.
 *
 * With TLS, what conn.c wants to send is sealed a piece at a time, and counts as sent when its ciphertext is: so limits and timeouts
 * see the client, not our own buffers. A handshake is bounded like the silence before a first request (conn.h). */
#include "frontend/tcp.h"

#include "common/clock.h"
#include "common/list.h"
#include "common/log.h"
#include "common/mem.h"
#include "frontend/acceptor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP_FLUSH_MAX 256 /* connections at a time: a step of thousands of streams is written with looks at the sockets in between */
/* Requests that begin between two flushes, and in one, by weight: some four hundred small ones, four milliseconds of JSON,
 * templates and tokens. What comes behind them stays with the kernel until the next pass. */
#define TCP_PARSE_MAX (384 * KIB)
#define TCP_SKIPPED_MAX 512 /* sockets whose turn has not come and that are watched on: libuv asks again at once when 1024 are readable */
#define TCP_SEAL_MAX (64 * KIB) /* plain text that is sealed at once */

/* A read at most; libuv makes up to 32 of them in a pass of the loop, which others wait for. With TLS, what an incomplete record held
 * back comes with them. */
#define TCP_READ_BYTES (16 * KIB)
_Static_assert(TCP_READ_BYTES + TLS_RECORD_MAX <= CONN_READ_BYTES, "a read and what was held back fit the connection's bound");

struct tcp {
	uv_loop_t *loop;
	struct conn_host *host;
	struct tls_context *tls_context; /* of new connections; NULL: plain */
	struct acceptor *acceptor; /* NULL once it is closed */
	uv_timer_t tick;
	uint32_t connections_max;
	uint64_t accepted, refused;
	bool is_draining, is_retiring, is_closing;
	int n_open; /* acceptor, tick */
	struct list conns, dirty;
	struct list waiting; /* dirty ones, too, whose next request has no turn in this flush */
	uint32_t n_skipped; /* since the last flush */
	void (*on_closed)(void *ctx);
	void *closed_ctx;
	tcp_give give; /* NULL: connections stay */
	void *give_ctx;
	char read_buf[TCP_READ_BYTES];  /* one for all: a read is used up before the next */
	char plain_buf[TLS_RECORD_MAX];  /* likewise */
};

struct tcp_conn {
	struct tcp *tcp;
	union {
		uv_handle_t any;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} handle;
	int fd; /* the handle's; -1: it could not be opened */
	uv_write_t write;
	struct conn *conn;
	struct tls *tls;   /* NULL: plain */
	size_t sealed;     /* plain text whose ciphertext is being sent */
	struct balance_conn balance;
	struct list_link in_conns, in_dirty;
	bool is_reading, is_writing, is_closing;
	bool is_waiting;   /* in_dirty is on tcp->waiting */
	size_t write_len;  /* of the write under way */
	uint64_t write_ns; /* when it began: the kernel had no room */
	size_t queue_seen; /* write_queue_size at the last tick, to see progress */
};

static void tcp_maybe_closed(struct tcp *t)
{
	void (*on_closed)(void *ctx) = t->on_closed;
	void *ctx = t->closed_ctx;

	if (!t->is_closing || t->n_open > 0 || t->conns.len > 0) return;
	free(t);
	if (on_closed) on_closed(ctx);
}

/* ---- connections ---- */

static void on_dirty(void *edge)
{
	struct tcp_conn *tc = edge;

	if (!list_is_linked(&tc->in_dirty) && !tc->is_closing) list_push_back(&tc->tcp->dirty, &tc->in_dirty);
}

static void on_conn_closed(uv_handle_t *h)
{
	struct tcp_conn *tc = h->data;
	struct tcp *t = tc->tcp;

	list_remove(&t->conns, &tc->in_conns);
	tls_free(tc->tls);
	conn_free(tc->conn);
	free(tc);
	tcp_maybe_closed(t);
}

/* The alert or the end that TLS owes its peer, if the kernel takes it at once. */
static void say_end(struct tcp_conn *tc)
{
	const char *data;
	uv_buf_t buf;
	size_t len;

	tls_end(tc->tls);
	if (tc->is_writing || (len = tls_output(tc->tls, &data)) == 0) return;
	buf = uv_buf_init((char *)data, (unsigned)len);
	uv_try_write(&tc->handle.stream, &buf, 1);
}

static void conn_shut(struct tcp_conn *tc)
{
	if (tc->is_closing) return;
	if (tc->tls) say_end(tc);
	tc->is_closing = true;
	if (list_is_linked(&tc->in_dirty)) list_remove(tc->is_waiting ? &tc->tcp->waiting : &tc->tcp->dirty, &tc->in_dirty);
	uv_close(&tc->handle.any, on_conn_closed);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct tcp_conn *tc = h->data;
	bool has_turn = tc->tcp->host->parsed < TCP_PARSE_MAX;

	*buf = uv_buf_init(tc->tcp->read_buf, has_turn ? TCP_READ_BYTES : 0); /* 0: nothing is read, on_read() gets UV_ENOBUFS */
}

static void stop_reading(struct tcp_conn *tc)
{
	if (tc->is_reading) uv_read_stop(&tc->handle.stream);
	tc->is_reading = false;
}

/* It stays readable, and is in front of what becomes so later. */
static void skip_turn(struct tcp_conn *tc)
{
	if (++tc->tcp->n_skipped <= TCP_SKIPPED_MAX) return;
	stop_reading(tc);
	on_dirty(tc); /* which watches it again */
}

/* Somebody who does not know that this is HTTPS; he can only read a plain answer. */
static void answer_plain(struct tcp_conn *tc)
{
	static char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 43\r\n\r\n"
			       "This port speaks HTTPS: use an https:// URL";
	uv_buf_t buf = uv_buf_init(answer, sizeof(answer) - 1);

	uv_try_write(&tc->handle.stream, &buf, 1);
}

static void unseal(struct tcp_conn *tc, const char *data, size_t len, uint64_t now)
{
	enum tls_result rc;
	size_t n;

	tls_receive(tc->tls, data, len);
	while ((rc = tls_read(tc->tls, tc->tcp->plain_buf, sizeof(tc->tcp->plain_buf), &n)) == TLS_DATA)
		conn_input(tc->conn, tc->tcp->plain_buf, n, now);
	if (rc == TLS_END) conn_eof(tc->conn, now);
	if (rc != TLS_FAILED) return;
	log_debug("a TLS connection failed: %s", tls_why(tc->tls));
	if (tls_was_http(tc->tls)) answer_plain(tc);
	conn_lost(tc->conn);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct tcp_conn *tc = s->data;

	if (tc->is_closing || n == 0) return;
	if (n == UV_ENOBUFS) {
		skip_turn(tc);
		return;
	}
	if (n > 0 && tc->tls) unseal(tc, buf->base, (size_t)n, clock_now_ns());
	else if (n > 0) conn_input(tc->conn, buf->base, (size_t)n, clock_now_ns());
	else if (n == UV_EOF) conn_eof(tc->conn, clock_now_ns());
	else conn_lost(tc->conn);
	on_dirty(tc);
	/* libuv goes on reading while there is something: stop it at once when the connection is full. */
	if (!conn_wants_read(tc->conn)) stop_reading(tc);
}

/* What the kernel gets next. */
static size_t wire_output(struct tcp_conn *tc, const char **data, uint64_t now)
{
	size_t len;

	if (!tc->tls) return conn_output(tc->conn, data);
	len = tls_output(tc->tls, data);
	if (len > 0) return len;
	if (tc->sealed > 0) conn_sent(tc->conn, tc->sealed, now);
	tc->sealed = 0;
	len = min_size(conn_output(tc->conn, data), TCP_SEAL_MAX);
	if (len == 0) return 0;
	if (!tls_write(tc->tls, *data, len)) {
		conn_lost(tc->conn);
		return 0;
	}
	tc->sealed = len;
	return tls_output(tc->tls, data);
}

static void wire_sent(struct tcp_conn *tc, size_t n, uint64_t now)
{
	if (!tc->tls) {
		conn_sent(tc->conn, n, now);
		return;
	}
	tls_sent(tc->tls, n);
	conn_progress(tc->conn, now);
}

static void on_written(uv_write_t *w, int status)
{
	struct tcp_conn *tc = w->data;
	struct conn_host *host = tc->tcp->host;
	uint64_t now = clock_now_ns();

	tc->is_writing = false;
	if (tc->is_closing) return;
	if (status < 0) conn_lost(tc->conn);
	else wire_sent(tc, tc->write_len, now);
	if (status == 0 && host->on_waited) host->on_waited(host->ctx, now - tc->write_ns);
	on_dirty(tc);
}

/* Sends what the kernel takes now; the rest goes by a write that libuv finishes. */
static void conn_write(struct tcp_conn *tc, uint64_t now)
{
	const char *data;
	size_t len;
	uv_buf_t buf;
	ssize_t n;

	while (!tc->is_writing && !conn_is_dead(tc->conn) && (len = wire_output(tc, &data, now)) > 0) {
		len = min_size(len, 16 * MIB);
		/* uv_try_write() would take write(), which costs a file's position and locks. libuv has nothing of its own to send. */
		do n = send(tc->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		while (n < 0 && errno == EINTR);
		if (n > 0) {
			wire_sent(tc, (size_t)n, now);
			continue;
		}
		buf = uv_buf_init((char *)data, (unsigned)len);
		if ((errno != EAGAIN && errno != ENOBUFS) || uv_write(&tc->write, &tc->handle.stream, &buf, 1, on_written) < 0) {
			conn_lost(tc->conn);
			return;
		}
		tc->is_writing = true;
		tc->write_ns = now;
		tc->write_len = buf.len;
		tc->queue_seen = tc->handle.stream.write_queue_size;
	}
}

/* Everything is sent; the client may still be sending. */
static void conn_shutdown(struct tcp_conn *tc, uint64_t now)
{
	if (tc->tls) {
		tls_end(tc->tls);
		conn_write(tc, now);
	}
	if (!tc->is_writing) shutdown(tc->fd, SHUT_WR);
}

static bool give_away(struct tcp_conn *tc);

static void conn_flush(struct tcp_conn *tc, uint64_t now)
{
	bool wants;

	conn_pump(tc->conn, now);
	conn_write(tc, now);
	conn_pump(tc->conn, now); /* sending may have made room for the next request */
	conn_write(tc, now);
	if (conn_wants_shutdown(tc->conn, now)) conn_shutdown(tc, now);
	if (conn_is_dead(tc->conn)) {
		conn_shut(tc);
		return;
	}
	wants = conn_wants_read(tc->conn);
	if (wants && !tc->is_reading) wants = uv_read_start(&tc->handle.stream, on_alloc, on_read) == 0;
	else if (!wants && tc->is_reading) uv_read_stop(&tc->handle.stream);
	tc->is_reading = wants;
	if (tc->balance.target >= 0) give_away(tc);
}

/* Those who have waited come first, in their order. */
static void tcp_new_turns(struct tcp *t)
{
	struct list_link *l;

	t->host->parsed = 0;
	while ((l = list_last(&t->waiting))) {
		list_remove(&t->waiting, l);
		CONTAINER_OF(l, struct tcp_conn, in_dirty)->is_waiting = false;
		list_push_front(&t->dirty, l);
	}
}

bool tcp_flush(struct tcp *t, uint64_t now)
{
	struct list_link *l;
	int n;

	tcp_new_turns(t);
	/* A connection that becomes dirty again (an answer to the next pipelined request) is looked at again. */
	for (n = 0; n < TCP_FLUSH_MAX && (l = list_pop_front(&t->dirty)); n++) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_dirty);

		conn_flush(tc, now);
		if (tc->is_closing || !conn_waits_for_turn(tc->conn)) continue;
		if (list_is_linked(&tc->in_dirty)) list_remove(&t->dirty, &tc->in_dirty);
		list_push_back(&t->waiting, &tc->in_dirty);
		tc->is_waiting = true;
	}
	t->host->parsed = t->n_skipped = 0; /* for what is read until the next flush */
	return t->dirty.len == 0 && t->waiting.len == 0;
}

/* A connection whose reading is stopped does not report its end; ask the kernel. */
static bool peer_is_gone(struct tcp_conn *tc)
{
	struct pollfd p = {.fd = tc->fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void on_tick(uv_timer_t *timer)
{
	struct tcp *t = timer->data;
	uint64_t now = clock_now_ns();

	LIST_EACH(&t->conns, l, next) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_conns);

		if (tc->is_closing) continue;
		if (tc->is_writing && tc->handle.stream.write_queue_size != tc->queue_seen) {
			tc->queue_seen = tc->handle.stream.write_queue_size;
			conn_progress(tc->conn, now);
		}
		if (!tc->is_reading && conn_is_answering(tc->conn) && peer_is_gone(tc)) conn_lost(tc->conn);
		conn_tick(tc->conn, now);
		on_dirty(tc);
	}
}

/* ---- accepting ---- */

/* Answers without reading: there is no room for a connection's state. What has arrived is read, or closing would reset. (With TLS
 * there is no answer without a handshake: the connection just ends.) */
static void refuse(struct tcp *t, int fd)
{
	static const char body[] =
		"{\"error\":{\"message\":\"The server has no room for another connection.\",\"type\":\"ServiceUnavailableError\","
		"\"param\":null,\"code\":503}}";
	char answer[512];
	char sink[4096];
	int i, n;

	t->refused++;
	n = snprintf(answer, sizeof(answer),
		     "HTTP/1.1 503 Service Unavailable\r\nX-Request-Id: %016llx%08llx\r\nContent-Type: application/json\r\nRetry-After: 1\r\nretry-after-ms: 1000\r\n"
		     "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
		     (unsigned long long)t->host->id_base, (unsigned long long)t->host->id_next++, sizeof(body) - 1, body);
	for (i = 0; i < 16 && recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0; i++) {
	}
	if (!t->tls_context && send(fd, answer, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) shutdown(fd, SHUT_WR);
	close(fd);
}

/* Gives the descriptor to a handle of its kind. */
static int open_handle(struct tcp *t, struct tcp_conn *tc, int fd)
{
	int rc, domain = 0;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
		uv_pipe_init(t->loop, &tc->handle.pipe, 0);
		return uv_pipe_open(&tc->handle.pipe, fd);
	}
	uv_tcp_init(t->loop, &tc->handle.tcp);
	rc = uv_tcp_open(&tc->handle.tcp, fd);
	if (rc != 0) return rc;
	uv_tcp_nodelay(&tc->handle.tcp, 1);
	uv_tcp_keepalive(&tc->handle.tcp, 1, 60);
	return 0;
}

static struct tcp_conn *adopt(struct tcp *t, int fd)
{
	struct tcp_conn *tc = mem_new(struct tcp_conn);
	int rc = open_handle(t, tc, fd);

	tc->tcp = t;
	tc->fd = rc == 0 ? fd : -1;
	tc->handle.any.data = tc;
	tc->write.data = tc;
	tc->conn = conn_new(t->host, tc, clock_now_ns());
	if (t->tls_context) tc->tls = tls_new(t->tls_context);
	balance_conn_init(&tc->balance);
	list_push_back(&t->conns, &tc->in_conns);
	if (rc != 0) {
		close(fd);
		conn_lost(tc->conn);
	}
	on_dirty(tc);
	return tc;
}

static void on_accepted(void *ctx, int fd)
{
	struct tcp *t = ctx;

	if (t->conns.len >= t->connections_max) {
		refuse(t, fd);
		return;
	}
	t->accepted++;
	adopt(t, fd);
}

static void on_no_room(void *ctx, int fd)
{
	refuse(ctx, fd);
}

/* ---- moving to and from siblings ---- */

void tcp_on_give(struct tcp *t, tcp_give give, void *ctx)
{
	t->give = give;
	t->give_ctx = ctx;
}

/* Whether it is somebody else's now. Our copy of the descriptor is closed without a word to the client. (What TLS has agreed on with
 * him is in this process, so its connections stay.) */
static bool give_away(struct tcp_conn *tc)
{
	struct tcp *t = tc->tcp;
	if (!t->give || t->is_draining || tc->tls || tc->is_closing || !conn_is_idle(tc->conn)) return false;
	if (!t->give(t->give_ctx, tc->fd, &tc->balance, conn_n_answered(tc->conn))) return false;
	conn_shut(tc);
	return true;
}

void tcp_take(struct tcp *t, int fd, const struct balance_conn *balance, uint32_t n_answered)
{
	struct tcp_conn *tc;

	if (t->conns.len >= t->connections_max || t->tls_context) {
		t->refused++;
		close(fd); /* an answer that nobody has asked for would be taken for that to his next request */
		return;
	}
	tc = adopt(t, fd);
	tc->balance = *balance;
	if (t->is_retiring) tc->balance.target = TCP_TO_ANY;
	conn_resume(tc->conn, n_answered);
}

void tcp_visit(struct tcp *t, void (*visit)(void *ctx, struct balance_conn *b, uint32_t n_answered), void *ctx)
{
	LIST_EACH(&t->conns, l, next) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_conns);

		if (tc->is_closing || tc->tls) continue;
		visit(ctx, &tc->balance, conn_n_answered(tc->conn));
		if (tc->balance.target >= 0) on_dirty(tc);
	}
}

void tcp_end_after_answers(struct tcp *t, bool on)
{
	if (!t->is_draining) t->host->draining = on || t->tls_context;
}

void tcp_retire(struct tcp *t)
{
	t->is_retiring = true;
	tcp_end_after_answers(t, false);
	acceptor_remove_all(t->acceptor);
	LIST_EACH(&t->conns, l, next) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_conns);

		tc->balance.target = TCP_TO_ANY;
	}
}

bool tcp_give_idle(struct tcp *t)
{
	LIST_EACH(&t->conns, l, next) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_conns);

		if (!tc->tls && !tc->is_closing && conn_is_idle(tc->conn) && !give_away(tc)) return false;
	}
	return true;
}

/* ---- the whole ---- */

int tcp_open(struct tcp **out, uv_loop_t *loop, int listen_fd, struct conn_host *host, uint32_t connections_max, uint32_t tick_ms,
	     struct errbuf *err)
{
	struct tcp *t = mem_new(struct tcp);
	struct acceptor_events events = {t, on_accepted, on_no_room};
	int rc;

	t->loop = loop;
	t->host = host;
	t->connections_max = connections_max;
	list_init(&t->conns);
	list_init(&t->dirty);
	list_init(&t->waiting);
	host->on_dirty = on_dirty;
	host->parse_max = TCP_PARSE_MAX;
	t->n_open = 2;
	t->acceptor = acceptor_open(loop, &events);
	uv_timer_init(loop, &t->tick);
	t->tick.data = t;
	uv_timer_start(&t->tick, on_tick, tick_ms, tick_ms);
	rc = acceptor_add(t->acceptor, ACCEPTOR_INHERITED, listen_fd, err);
	if (rc != ST_OK) {
		tcp_close(t, NULL, NULL);
		return rc;
	}
	*out = t;
	return ST_OK;
}

struct acceptor *tcp_acceptor(struct tcp *t)
{
	return t->acceptor;
}

void tcp_use_tls(struct tcp *t, struct tls_context *c)
{
	t->tls_context = c;
}

void tcp_drain(struct tcp *t)
{
	if (t->is_draining) return;
	t->is_draining = true;
	t->host->draining = true;
	LIST_EACH(&t->conns, l, next) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_conns);

		if (!tc->is_closing) conn_drain(tc->conn);
	}
}

static void tcp_part_closed(void *ctx)
{
	struct tcp *t = ctx;

	t->n_open--;
	tcp_maybe_closed(t);
}

static void on_tick_closed(uv_handle_t *h)
{
	tcp_part_closed(h->data);
}

void tcp_close(struct tcp *t, void (*on_closed)(void *ctx), void *ctx)
{
	if (t->is_closing) return;
	t->is_closing = t->is_draining = true;
	t->on_closed = on_closed;
	t->closed_ctx = ctx;
	LIST_EACH(&t->conns, l, next) {
		struct tcp_conn *tc = CONTAINER_OF(l, struct tcp_conn, in_conns);

		conn_lost(tc->conn);
		conn_shut(tc);
	}
	acceptor_close(t->acceptor, tcp_part_closed, t);
	uv_close((uv_handle_t *)&t->tick, on_tick_closed);
}

void tcp_stats(const struct tcp *t, struct tcp_stats *out)
{
	*out = (struct tcp_stats){.n_open = t->conns.len, .accepted = t->accepted, .refused = t->refused};
	if (!t->is_draining) return;
	LIST_EACH(&t->conns, l, next) out->n_busy += !conn_is_idle(CONTAINER_OF(l, struct tcp_conn, in_conns)->conn);
}
