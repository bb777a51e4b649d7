/* test_http.c - conn.c and tcp.c over real sockets on the loopback, with a handler that answers at once, later, or in a stream. */
#include "common/clock.h"
#include "common/mem.h"
#include "frontend/apierr.h"
#include "frontend/conn.h"
#include "frontend/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_NS (10 * NS_PER_S) /* a test that waits longer has failed */

/* ---- the server ---- */

struct server {
	uv_loop_t loop;
	struct conn_host host;
	struct tcp *tcp;
	uint16_t port;
	struct http_request *held; /* of /later and /stream */
	int n_heads, n_requests, n_gone, n_room, n_ended, n_lost;
	char last_path[64];
	size_t last_body;
};

static void on_gone(void *owner)
{
	struct server *s = owner;

	s->held = NULL;
	s->n_gone++;
}

static void on_room(void *owner)
{
	((struct server *)owner)->n_room++;
}

/* Of what on_request() has seen; others are refused before. */
static void on_ended(void *ctx, struct http_request *r, bool is_gone)
{
	struct server *s = ctx;

	if (r->owner != s) return;
	s->n_ended++;
	s->n_lost += is_gone;
}

static int on_head(void *ctx, struct http_request *r, const char **text)
{
	struct server *s = ctx;

	s->n_heads++;
	*text = "Not for you.";
	return strcmp(r->path, "/secret") == 0 ? 401 : 0;
}

static void on_request(void *ctx, struct http_request *r)
{
	struct server *s = ctx;
	char text[128];

	s->n_requests++;
	s->last_body = r->body.len;
	snprintf(s->last_path, sizeof(s->last_path), "%s", r->path);
	r->owner = s;
	r->on_gone = on_gone;
	r->on_room = on_room;
	if (strcmp(r->path, "/later") == 0) {
		s->held = r;
	} else if (strcmp(r->path, "/stream") == 0) {
		s->held = r;
		http_stream_begin(r, 200, "text/event-stream");
	} else if (strcmp(r->path, "/echo") == 0) {
		http_answer(r, 200, "text/plain", NULL, r->body.data, r->body.len);
	} else if (strcmp(r->path, "/big") == 0) {
		char *big = mem_zalloc(1, 4 * MIB);

		memset(big, 'b', 4 * MIB);
		http_answer(r, 200, "text/plain", NULL, big, 4 * MIB);
		free(big);
	} else {
		snprintf(text, sizeof(text), "[%s %s %zu]", r->path, r->query, r->body.len);
		http_answer(r, 200, "text/plain", NULL, text, strlen(text));
	}
}

static int listen_loopback(uint16_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static void server_open(struct server *s, uint32_t connections_max)
{
	struct errbuf err;

	memset(s, 0, sizeof(*s));
	uv_loop_init(&s->loop);
	s->host = (struct conn_host){
		.head_max = 4096,
		.body_max = 100000,
		.bodies_max = 250000,
		.request_ns = 300 * NS_PER_MS,
		.keep_alive_ns = 200 * NS_PER_MS,
		.write_ns = 400 * NS_PER_MS,
		.allow_origin = "*",
		.ctx = s,
		.on_head = on_head,
		.on_request = on_request,
		.on_ended = on_ended,
	};
	assert_int_equal(tcp_open(&s->tcp, &s->loop, listen_loopback(&s->port), &s->host, connections_max, 20, &err), ST_OK);
}

static void server_step(struct server *s)
{
	uv_run(&s->loop, UV_RUN_NOWAIT);
	tcp_flush(s->tcp, clock_now_ns());
}

static void server_close(struct server *s)
{
	tcp_close(s->tcp, NULL, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&s->loop), 0);
	assert_int_equal(s->host.bodies, 0);
	/* Each request ends once, and is known to be lost when its handler was told. */
	assert_int_equal(s->n_ended, s->n_requests);
	assert_int_equal(s->n_lost, s->n_gone);
}

/* ---- a client ---- */

struct client {
	int fd;
	struct strbuf in;
	bool eof, reset;
};

static void client_open(struct client *c, struct server *s, int rcvbuf)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(s->port)};

	memset(c, 0, sizeof(*c));
	strbuf_init(&c->in, 64 * MIB);
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (rcvbuf) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
	assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

static void client_close(struct client *c, bool reset)
{
	struct linger l = {.l_onoff = 1};

	if (reset) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(c->fd);
	strbuf_release(&c->in);
}

static void client_read(struct client *c)
{
	char buf[65536];
	ssize_t n;

	while ((n = recv(c->fd, buf, sizeof(buf), 0)) > 0) strbuf_append(&c->in, buf, (size_t)n);
	if (n == 0) c->eof = true;
	if (n < 0 && errno != EAGAIN) c->eof = c->reset = true;
}

/* Sends while the server reads. False when the server closed. */
static bool client_send(struct client *c, struct server *s, const char *data, size_t len)
{
	uint64_t end = clock_now_ns() + WAIT_NS;

	while (len > 0 && clock_now_ns() < end) {
		ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN) return false;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
		server_step(s);
	}
	return len == 0;
}

static void client_puts(struct client *c, struct server *s, const char *text)
{
	assert_true(client_send(c, s, text, strlen(text)));
}

static size_t count(const struct client *c, const char *what)
{
	const char *p = c->in.data, *end = p + c->in.len;
	size_t n = 0;

	while (p && (p = memmem(p, (size_t)(end - p), what, strlen(what)))) {
		n++;
		p += strlen(what);
	}
	return n;
}

/* Runs the loop until the text is there n times, or the end of the connection. */
static bool client_wait(struct client *c, struct server *s, const char *what, size_t n)
{
	uint64_t end = clock_now_ns() + WAIT_NS;

	while (clock_now_ns() < end) {
		server_step(s);
		client_read(c);
		if (what && count(c, what) >= n) return true;
		if (c->eof) return what == NULL;
	}
	return false;
}

static bool wait_for(struct server *s, const int *value, int at_least)
{
	uint64_t end = clock_now_ns() + WAIT_NS;

	while (*value < at_least && clock_now_ns() < end) server_step(s);
	return *value >= at_least;
}

static uint64_t n_open(const struct server *s)
{
	struct tcp_stats st;

	tcp_stats(s->tcp, &st);
	return st.n_open;
}

static bool wait_for_none(struct server *s)
{
	uint64_t end = clock_now_ns() + WAIT_NS;

	while (n_open(s) > 0 && clock_now_ns() < end) server_step(s);
	return n_open(s) == 0;
}

/* ---- table: bytes in, answers out ---- */

#define H "Host: x\r\n"
#define POST_CHUNKED "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"

static const struct exchange {
	const char *name, *send, *expect;
	bool closes;
} exchanges[] = {
	{"plain get", "GET /a?b=c HTTP/1.1\r\n" H "\r\n", "[/a b=c 0]", false},
	{"lower case header names", "GET /a HTTP/1.1\r\nhOsT: x\r\n\r\n", "[/a  0]", false},
	{"absolute target", "GET http://h:1/p/q?r HTTP/1.1\r\n" H "\r\n", "[/p/q r 0]", false},
	{"absolute target without path", "GET http://h HTTP/1.1\r\n" H "\r\n", " 400 ", true},
	{"content length", "POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", "\r\n\r\nhello", false},
	{"chunked", POST_CHUNKED "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "\r\n\r\nhello world", false},
	{"chunk extensions", POST_CHUNKED "5;x=1\r\nhello\r\n0;last\r\n\r\n", "\r\n\r\nhello", false},
	{"trailers", POST_CHUNKED "5\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n", "\r\n\r\nhello", false},
	{"upper case hex", POST_CHUNKED "00A\r\n0123456789\r\n0\r\n\r\n", "\r\n\r\n0123456789", false},
	{"100-continue", "POST /echo HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", false},
	{"other expectation", "POST /echo HTTP/1.1\r\n" H "Expect: x\r\nContent-Length: 2\r\n\r\nhi", " 417 ", true},
	{"close", "GET /a HTTP/1.1\r\n" H "Connection: close\r\n\r\n", "Connection: close", true},
	{"HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", "Connection: close", true},
	{"HTTP/1.0 keep-alive", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "Connection: keep-alive", false},
	{"raw UTF-8 in the path", "GET /\xc3\xa9 HTTP/1.1\r\n" H "\r\n", " 400 ", true},
	{"bare LF", "GET /a HTTP/1.1\nHost: x\n\n", " 400 ", true},
	{"folded header", "GET /a HTTP/1.1\r\nHost: x\r\nA\r\n b\r\n\r\n", " 400 ", true},
	{"head", "HEAD /a HTTP/1.1\r\n" H "\r\n", "Content-Length: 7\r\n\r\n", false},
	{"empty lines first", "\r\n\r\nGET /a HTTP/1.1\r\n" H "\r\n", "[/a  0]", false},
	{"upgrade is ignored", "POST /echo HTTP/1.1\r\n" H "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi", "\r\n\r\nhi", false},
	{"upgrade without body", "GET /a HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "[/a  0]", false},
	{"no host", "GET /a HTTP/1.1\r\n\r\n", " 400 ", true},
	{"two hosts", "GET /a HTTP/1.1\r\n" H "Host: y\r\n\r\n", " 400 ", true},
	{"length and chunked", "POST /a HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 400 ", true},
	{"chunked and length", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", " 400 ", true},
	{"two lengths", "POST /a HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", " 400 ", true},
	{"equal lengths", "POST /a HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\na", " 400 ", true},
	{"negative length", "POST /a HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", " 400 ", true},
	{"huge length", "POST /a HTTP/1.1\r\n" H "Content-Length: 99999999999999999999999\r\n\r\n", " 400 ", true},
	{"gzip chunked", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", " 501 ", true},
	{"chunked twice", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 400 ", true},
	{"unknown coding", "POST /a HTTP/1.1\r\n" H "Transfer-Encoding: x\r\n\r\n", " 501 ", true},
	{"chunked in 1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", " 400 ", true},
	{"bad chunk size", POST_CHUNKED "xyz\r\n", " 400 ", true},
	{"huge chunk size", POST_CHUNKED "fffffffffffffffff\r\n", " 400 ", true},
	{"absurd chunk size", POST_CHUNKED "fffffffffffffff\r\n", " 413 ", true},
	{"absurd second chunk", POST_CHUNKED "5\r\nhello\r\n186a0\r\n", " 413 ", true},
	{"refused head", "GET /secret HTTP/1.1\r\n" H "\r\n", "HTTP/1.1 401 Unauthorized\r\n", false},
	{"refused head with an empty body", "POST /secret HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", "WWW-Authenticate: Bearer\r\n", false},
	{"refused before the body", "POST /secret HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\n", " 401 ", true},
	{"refused before a chunked body", "POST /secret HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", " 401 ", true},
	{"refused instead of 100-continue", "POST /secret HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 401 ", true},
	{"refused, not 413", "POST /secret HTTP/1.1\r\n" H "Content-Length: 100001\r\n\r\n", " 401 ", true},
	{"chunk longer than said", POST_CHUNKED "3\r\nhello\r\n0\r\n\r\n", " 400 ", true},
	{"chunk without CRLF", POST_CHUNKED "1\r\naXX0\r\n\r\n", " 400 ", true},
	{"space before colon", "GET /a HTTP/1.1\r\n" H "X : y\r\n\r\n", " 400 ", true},
	{"bad version", "GET /a HTTP/3.0\r\n" H "\r\n", " 505 ", true},
	{"http 2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", " 505 ", true},
	{"tls", "\x16\x03\x01\x02", " 400 ", true},
	{"no method", "/a HTTP/1.1\r\n\r\n", " 400 ", true},
	{"body too large by length", "POST /a HTTP/1.1\r\n" H "Content-Length: 100001\r\n\r\n", " 413 ", true},
	{"odd method", "BREW /a HTTP/1.1\r\n" H "\r\n", " 400 ", true},
};

static void test_exchanges(void **state)
{
	struct server s;
	struct client c;
	size_t i, step;

	server_open(&s, 100);
	for (i = 0; i < ARRAY_LEN(exchanges); i++) {
		const struct exchange *x = &exchanges[i];
		bool met;

		/* Whole, then byte by byte. */
		for (step = 0; step < 2; step++) {
			client_open(&c, &s, 0);
			if (step == 0) client_puts(&c, &s, x->send);
			for (size_t k = 0; step == 1 && k < strlen(x->send); k++)
				if (!client_send(&c, &s, x->send + k, 1)) break;
			met = client_wait(&c, &s, x->expect, 1);
			if (!met) fail_msg("%s (%zu): got %.300s", x->name, step, c.in.data ? c.in.data : "nothing");
			if (x->closes && !client_wait(&c, &s, NULL, 0)) fail_msg("%s: not closed", x->name);
			if (!x->closes && c.eof) fail_msg("%s: closed", x->name);
			if (!x->closes) {
				strbuf_reset(&c.in);
				client_puts(&c, &s, "GET /again HTTP/1.1\r\n" H "\r\n");
				if (!client_wait(&c, &s, "[/again  0]", 1)) fail_msg("%s: next request fails", x->name);
			}
			client_close(&c, false);
		}
	}
	assert_true(wait_for_none(&s));
	server_close(&s);
}

static void test_errors_are_json(void **state)
{
	struct server s;
	struct client c;

	server_open(&s, 100);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "POST /a HTTP/1.1\r\n" H "Content-Length: 100001\r\n\r\n");
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "Content-Type: application/json\r\n"));
	assert_non_null(strstr(c.in.data, "\r\n\r\n{\"error\":{\"message\":\"The request's body is too large.\",\"type\":\"invalid_request_error\","
					  "\"param\":null,\"code\":413}}"));
	client_close(&c, false);
	server_close(&s);
}

/* The body of a request that is refused by its head is never held: the client may send what it likes. */
static void test_refused_body_is_not_held(void **state)
{
	struct server s;
	struct client c;
	char *body = mem_zalloc(1, 90000);

	server_open(&s, 100);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "POST /secret HTTP/1.1\r\n" H "Content-Length: 90000\r\n\r\n");
	assert_true(client_wait(&c, &s, "HTTP/1.1 401 ", 1)); /* before the first byte */
	client_send(&c, &s, body, 90000);
	assert_int_equal(s.host.bodies, 0);
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_int_equal(count(&c, "HTTP/1.1"), 1);
	assert_int_equal(s.n_requests, 0);
	assert_int_equal(s.n_heads, 1);
	client_close(&c, false);
	assert_true(wait_for_none(&s));
	server_close(&s);
	free(body);
}

/* ---- limits ---- */

static void test_endless_head(void **state)
{
	static const char *const begins[] = {"GET /a HTTP/1.1\r\nHost: x\r\nX-A: ", "GET /", "GET /a HTTP/1.1\r\nHost: x\r\n", "\r\n", "X"};
	static const char *const fills[] = {"aaaaaaaa", "aaaaaaaa", "X-B: v\r\n", "\r\n\r\n\r\n\r\n", "XXXXXXXX"};
	struct server s;
	struct client c;
	size_t i, k;

	server_open(&s, 100);
	for (i = 0; i < ARRAY_LEN(begins); i++) {
		client_open(&c, &s, 0);
		client_puts(&c, &s, begins[i]);
		for (k = 0; k < 2000 && !c.eof; k++) {
			if (!client_send(&c, &s, fills[i], 8)) break;
			client_read(&c);
		}
		assert_true(client_wait(&c, &s, NULL, 0));
		assert_non_null(c.in.data);
		if (i < 4) assert_non_null(strstr(c.in.data, "HTTP/1.1 431 "));
		else assert_non_null(strstr(c.in.data, "HTTP/1.1 400 "));
		client_close(&c, false);
	}
	assert_int_equal(s.n_requests, 0);
	server_close(&s);
}

static void test_large_bodies(void **state)
{
	struct server s;
	struct client c;
	char *body = mem_zalloc(1, 100001);
	char head[128];
	size_t i;

	memset(body, 'x', 100001);
	server_open(&s, 100);
	/* the largest one that is allowed */
	client_open(&c, &s, 0);
	client_puts(&c, &s, "POST /a HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\n");
	assert_true(client_send(&c, &s, body, 100000));
	assert_true(client_wait(&c, &s, "[/a  100000]", 1));
	/* one byte more, in chunks */
	client_puts(&c, &s, POST_CHUNKED);
	for (i = 0; i < 100001; i += 9091) {
		snprintf(head, sizeof(head), "%x\r\n", 9091);
		if (!client_send(&c, &s, head, strlen(head)) || !client_send(&c, &s, body, 9091) || !client_send(&c, &s, "\r\n", 2)) break;
	}
	client_send(&c, &s, "1\r\nx\r\n0\r\n\r\n", 11);
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "HTTP/1.1 413 "));
	client_close(&c, false);
	/* endless chunk extension */
	client_open(&c, &s, 0);
	client_puts(&c, &s, POST_CHUNKED "1;");
	for (i = 0; i < 10 && !c.eof; i++) {
		if (!client_send(&c, &s, body, 100000)) break;
		client_read(&c);
	}
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "HTTP/1.1 400 "));
	client_close(&c, false);
	server_close(&s);
	free(body);
}

static void test_bodies_together_are_bounded(void **state)
{
	struct server s;
	struct client c[3];
	char *body = mem_zalloc(1, 99999);
	size_t i;

	memset(body, 'x', 99999);
	server_open(&s, 100);
	for (i = 0; i < 3; i++) {
		client_open(&c[i], &s, 0);
		client_puts(&c[i], &s, "POST /a HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\n");
		client_send(&c[i], &s, body, 99999);
	}
	assert_true(client_wait(&c[2], &s, NULL, 0));
	assert_non_null(strstr(c[2].in.data, "HTTP/1.1 503 "));
	for (i = 0; i < 3; i++) client_close(&c[i], false);
	assert_true(wait_for_none(&s));
	server_close(&s);
	free(body);
}

static void test_connection_limit(void **state)
{
	struct server s;
	struct client a, b;

	server_open(&s, 1);
	client_open(&a, &s, 0);
	client_puts(&a, &s, "GET /a HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&a, &s, "[/a  0]", 1));
	client_open(&b, &s, 0);
	client_send(&b, &s, "GET /a HTTP/1.1\r\n" H "\r\n", 28);
	assert_true(client_wait(&b, &s, NULL, 0));
	assert_non_null(b.in.data);
	assert_non_null(strstr(b.in.data, "HTTP/1.1 503 "));
	assert_non_null(strstr(b.in.data, "\r\n\r\n{\"error\":"));
	client_close(&b, false);
	client_close(&a, false);
	assert_true(wait_for_none(&s));
	client_open(&b, &s, 0);
	client_puts(&b, &s, "GET /b HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&b, &s, "[/b  0]", 1));
	client_close(&b, false);
	server_close(&s);
}

/* The tick makes all of them due at once. */
static void test_many_connections_are_flushed_in_parts(void **state)
{
	enum { N = 300 };
	static struct client clients[N];
	uint64_t end = clock_now_ns() + WAIT_NS;
	struct server s;
	int i, n_left = 0;

	server_open(&s, N);
	for (i = 0; i < N; i++) {
		client_open(&clients[i], &s, 0);
		server_step(&s);
	}
	while (n_open(&s) < N && clock_now_ns() < end) server_step(&s);
	assert_int_equal(n_open(&s), N);
	while (n_left == 0 && clock_now_ns() < end) {
		uv_run(&s.loop, UV_RUN_NOWAIT);
		if (!tcp_flush(s.tcp, clock_now_ns())) n_left++;
	}
	assert_int_equal(n_left, 1);
	assert_true(tcp_flush(s.tcp, clock_now_ns()));
	client_puts(&clients[N - 1], &s, "GET /a HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&clients[N - 1], &s, "[/a  0]", 1));
	for (i = 0; i < N; i++) client_close(&clients[i], false);
	server_close(&s);
}

static void test_out_of_descriptors(void **state)
{
	struct rlimit old, low;
	struct server s;
	struct client c, d;
	int fds[256], n = 0, i;

	server_open(&s, 100);
	client_open(&c, &s, 0);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = 128;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	client_open(&d, &s, 0);
	while (n < 256 && (fds[n] = dup(0)) >= 0) n++;
	/* Both wait in the queue; there is room for neither. */
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "HTTP/1.1 503 "));
	assert_true(client_wait(&d, &s, NULL, 0));
	assert_non_null(strstr(d.in.data, "HTTP/1.1 503 "));
	for (i = 0; i < n; i++) close(fds[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	client_close(&c, false);
	client_close(&d, false);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /b HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&c, &s, "[/b  0]", 1));
	client_close(&c, false);
	server_close(&s);
}

/* ---- order ---- */

static void test_pipelining(void **state)
{
	struct server s;
	struct client c;
	const char *one, *two, *three;

	server_open(&s, 100);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /1 HTTP/1.1\r\n" H "\r\nPOST /later HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhiGET /3 HTTP/1.1\r\n" H
			    "Connection: close\r\n\r\n");
	assert_true(client_wait(&c, &s, "[/1  0]", 1));
	assert_true(wait_for(&s, &s.n_requests, 2));
	server_step(&s);
	assert_int_equal(s.n_requests, 2); /* the third one waits for the answer to the second */
	assert_non_null(s.held);
	http_answer(s.held, 200, "text/plain", NULL, "[two]", 5);
	assert_true(client_wait(&c, &s, NULL, 0));
	one = strstr(c.in.data, "[/1  0]");
	two = strstr(c.in.data, "[two]");
	three = strstr(c.in.data, "[/3  0]");
	assert_true(one && two && three && one < two && two < three);
	client_close(&c, false);
	server_close(&s);
}

static void test_pipelining_is_bounded(void **state)
{
	char many[32 * 1024] = "";
	struct server s;
	struct client c;
	size_t i, sent = 0;
	ssize_t n = 0;

	server_open(&s, 100);
	s.host.write_ns = WAIT_NS;
	client_open(&c, &s, 0);
	for (i = 0; i < 800; i++) strcat(many + i * 28, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
	/* While one is being answered. */
	client_puts(&c, &s, "GET /later HTTP/1.1\r\n" H "\r\n");
	assert_true(wait_for(&s, &s.n_requests, 1));
	for (i = 0; i < 2000; i++) {
		n = send(c.fd, many, strlen(many), MSG_NOSIGNAL);
		if (n > 0) sent += (size_t)n;
		server_step(&s);
	}
	assert_true(sent < 16 * MIB); /* kernel buffers and CONN_PIPELINE_MAX */
	assert_int_equal(s.n_requests, 1);
	/* A reset is noticed although reading has stopped. (A FIN cannot be: it waits behind the bytes that are not read.) */
	client_close(&c, true);
	assert_true(wait_for(&s, &s.n_gone, 1));
	assert_true(wait_for_none(&s));
	server_close(&s);
}

static void on_nothing(void *edge)
{
	(void)edge;
}

/* What the edge may have read when it is told to stop fits, to the last byte; one more ends the connection. */
static void test_input_behind_a_request_fits(void **state)
{
	struct server s = {0};
	struct conn_host host = {.head_max = 4096, .body_max = 4096, .bodies_max = 4096, .request_ns = WAIT_NS, .keep_alive_ns = WAIT_NS,
				 .write_ns = WAIT_NS, .allow_origin = "*", .ctx = &s, .on_request = on_request, .on_dirty = on_nothing};
	char *junk = mem_zalloc(1, CONN_PIPELINE_MAX + CONN_INPUT_MAX);
	struct conn *c = conn_new(&host, NULL, 1);

	conn_input(c, "GET /later HTTP/1.1\r\n" H "\r\n", 32, 1);
	assert_int_equal(s.n_requests, 1);
	conn_input(c, junk, CONN_PIPELINE_MAX - 1, 1);
	assert_true(conn_wants_read(c));
	conn_input(c, junk, CONN_INPUT_MAX, 1);
	assert_false(conn_wants_read(c) || conn_is_dead(c));
	conn_input(c, junk, 2, 1);
	assert_true(conn_is_dead(c));
	conn_free(c);
	free(junk);
}

/* What is beyond the weight of a pass is kept, and begun in the next. */
static void test_requests_wait_for_their_turn(void **state)
{
	struct server s = {0};
	struct conn_host host = {.head_max = 4096, .body_max = 4096, .bodies_max = 4096, .request_ns = WAIT_NS, .keep_alive_ns = WAIT_NS,
				 .write_ns = WAIT_NS, .allow_origin = "*", .ctx = &s, .on_request = on_request, .on_dirty = on_nothing,
				 .parse_max = CONN_PARSE_WEIGHT + 1};
	struct conn *c = conn_new(&host, NULL, 1);
	int i;

	conn_input(c, "GET /1 HTTP/1.1\r\n" H "\r\nGET /2 HTTP/1.1\r\n" H "\r\nGET /3 HTTP/1.1\r\n" H "\r\n", 84, 1);
	for (i = 1; i <= 3; i++) {
		assert_int_equal(s.n_requests, i);
		assert_int_equal(conn_waits_for_turn(c), i < 3);
		conn_pump(c, 1);
		assert_int_equal(s.n_requests, i);
		host.parsed = 0;
		conn_pump(c, 1);
	}
	assert_false(conn_waits_for_turn(c));
	conn_free(c);
}

/* A pass begins a bounded number of requests, whoever they come from, and nobody is forgotten. */
static void test_a_crowd_takes_turns(void **state)
{
	enum { N_CLIENTS = 6, N = 400 };
	static const char get[] = "GET /a HTTP/1.1\r\n" H "\r\n", last[] = "GET /last HTTP/1.1\r\n" H "\r\n";
	uint64_t end = clock_now_ns() + WAIT_NS;
	struct client clients[N_CLIENTS];
	struct server s;
	int i, k, was, most = 0;

	server_open(&s, 100);
	for (i = 0; i < N_CLIENTS; i++) client_open(&clients[i], &s, 0);
	while (n_open(&s) < N_CLIENTS && clock_now_ns() < end) server_step(&s);
	for (i = 0; i < N_CLIENTS; i++) {
		for (k = 0; k < N; k++) assert_int_equal(send(clients[i].fd, get, sizeof(get) - 1, MSG_NOSIGNAL), sizeof(get) - 1);
		assert_int_equal(send(clients[i].fd, last, sizeof(last) - 1, MSG_NOSIGNAL), sizeof(last) - 1);
	}
	while (s.n_requests < N_CLIENTS * (N + 1) && clock_now_ns() < end) {
		was = s.n_requests;
		server_step(&s);
		most = s.n_requests - was > most ? s.n_requests - was : most;
	}
	assert_true(most > 0 && (size_t)most <= 2 * (s.host.parse_max / CONN_PARSE_WEIGHT + 1));
	for (i = 0; i < N_CLIENTS; i++) {
		assert_true(client_wait(&clients[i], &s, "[/last  0]", 1));
		client_close(&clients[i], false);
	}
	server_close(&s);
}

/* ---- clients that go away ---- */

static void test_client_gone(void **state)
{
	struct server s;
	struct client c;
	int i, gone = 0;

	server_open(&s, 100);
	for (i = 0; i < 4; i++) {
		client_open(&c, &s, 0);
		client_puts(&c, &s, i < 2 ? "GET /later HTTP/1.1\r\n" H "\r\n" : "GET /stream HTTP/1.1\r\n" H "\r\n");
		assert_true(wait_for(&s, &s.n_requests, i + 1));
		assert_int_equal(s.n_gone, gone);
		client_close(&c, i % 2 == 1);
		assert_true(wait_for(&s, &s.n_gone, ++gone));
		assert_true(wait_for_none(&s));
	}
	server_close(&s);
}

static void test_answer_at_once_survives_half_close(void **state)
{
	struct server s;
	struct client c;

	server_open(&s, 100);
	client_open(&c, &s, 0);
	assert_int_equal(send(c.fd, "GET /1 HTTP/1.1\r\n" H "\r\nGET /2 HTTP/1.1\r\n" H "\r\n", 56, MSG_NOSIGNAL), 56);
	shutdown(c.fd, SHUT_WR);
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "[/1  0]"));
	assert_non_null(strstr(c.in.data, "[/2  0]"));
	client_close(&c, false);
	server_close(&s);
}

/* ---- streams ---- */

static void test_stream(void **state)
{
	struct server s;
	struct client c;

	server_open(&s, 100);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /stream HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&c, &s, "Transfer-Encoding: chunked\r\n\r\n", 1)); /* headers at once */
	http_stream_write(s.held, "data: 1\n\n", 9);
	assert_true(client_wait(&c, &s, "9\r\ndata: 1\n\n\r\n", 1));
	http_stream_write(s.held, "", 0);
	http_stream_end(s.held);
	assert_true(client_wait(&c, &s, "0\r\n\r\n", 1));
	strbuf_reset(&c.in);
	client_puts(&c, &s, "GET /2 HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&c, &s, "[/2  0]", 1));
	client_close(&c, false);
	/* HTTP/1.0 has no chunks */
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	assert_true(client_wait(&c, &s, "Connection: close\r\n\r\n", 1));
	http_stream_write(s.held, "data: 1\n\n", 9);
	http_stream_end(s.held);
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "\r\n\r\ndata: 1\n\n"));
	assert_null(strstr(c.in.data, "chunked"));
	client_close(&c, false);
	server_close(&s);
}

static void test_slow_reader(void **state)
{
	static char piece[8192];
	struct server s;
	struct client c, other;
	size_t i, sent = 0;

	memset(piece, 'p', sizeof(piece));
	server_open(&s, 100);
	s.host.write_ns = WAIT_NS;
	client_open(&c, &s, 4096);
	client_puts(&c, &s, "GET /stream HTTP/1.1\r\n" H "\r\n");
	assert_true(wait_for(&s, &s.n_requests, 1));
	for (i = 0; i < 100000 && http_stream_has_room(s.held); i++) {
		http_stream_write(s.held, piece, sizeof(piece));
		sent += sizeof(piece);
		server_step(&s);
	}
	assert_false(http_stream_has_room(s.held));
	assert_int_equal(s.n_room, 0);
	/* Nobody else waits. */
	client_open(&other, &s, 0);
	client_puts(&other, &s, "GET /2 HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&other, &s, "[/2  0]", 1));
	client_close(&other, false);
	/* One that resumes gets everything. */
	while (s.n_room == 0) {
		client_read(&c);
		server_step(&s);
	}
	assert_true(http_stream_has_room(s.held));
	http_stream_end(s.held);
	assert_true(client_wait(&c, &s, "\r\n0\r\n\r\n", 1));
	assert_int_equal(count(&c, "pppppppppppppppppppppppppppppppp") * 32, sent);
	client_close(&c, false);
	server_close(&s);
}

/* ---- time ---- */

static void test_timeouts(void **state)
{
	static char piece[65536];
	struct server s;
	struct client c;
	size_t i;

	memset(piece, 'p', sizeof(piece));
	server_open(&s, 100);
	/* never says anything; begins and stops in the head; in the body */
	client_open(&c, &s, 0);
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_int_equal(c.in.len, 0);
	client_close(&c, false);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /a HT");
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "HTTP/1.1 408 "));
	client_close(&c, false);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "POST /a HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\nabc");
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_non_null(strstr(c.in.data, "HTTP/1.1 408 "));
	client_close(&c, false);
	/* keep-alive runs out */
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /a HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&c, &s, "[/a  0]", 1));
	assert_true(client_wait(&c, &s, NULL, 0));
	assert_null(strstr(c.in.data, "408"));
	client_close(&c, false);
	/* a handler may take longer than all of these */
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /later HTTP/1.1\r\n" H "\r\n");
	assert_true(wait_for(&s, &s.n_requests, 2));
	for (uint64_t end = clock_now_ns() + 600 * NS_PER_MS; clock_now_ns() < end;) server_step(&s);
	assert_int_equal(s.n_gone, 0);
	http_answer(s.held, 200, NULL, NULL, "[late]", 6);
	assert_true(client_wait(&c, &s, "[late]", 1));
	client_close(&c, false);
	/* one that never reads is given up */
	client_open(&c, &s, 4096);
	client_puts(&c, &s, "GET /stream HTTP/1.1\r\n" H "\r\n");
	assert_true(wait_for(&s, &s.n_requests, 3));
	for (i = 0; i < 1000 && http_stream_has_room(s.held); i++) {
		http_stream_write(s.held, piece, sizeof(piece));
		server_step(&s);
	}
	assert_true(wait_for(&s, &s.n_gone, 1));
	assert_true(wait_for_none(&s));
	client_close(&c, false);
	server_close(&s);
}

static void test_drain(void **state)
{
	struct server s;
	struct client idle, busy, slow, stray;

	server_open(&s, 100);
	client_open(&idle, &s, 0);
	client_open(&busy, &s, 0);
	client_open(&slow, &s, 0);
	client_open(&stray, &s, 0);
	client_puts(&slow, &s, "POST /a HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\nabc");
	client_puts(&stray, &s, "\r\n");
	client_puts(&idle, &s, "GET /a HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&idle, &s, "[/a  0]", 1));
	client_puts(&busy, &s, "GET /later HTTP/1.1\r\n" H "\r\n");
	assert_true(wait_for(&s, &s.n_requests, 2));
	tcp_drain(s.tcp);
	assert_true(client_wait(&idle, &s, NULL, 0));
	assert_true(client_wait(&slow, &s, NULL, 0)); /* nobody waits for what would be refused */
	assert_non_null(strstr(slow.in.data, "HTTP/1.1 503 "));
	assert_true(client_wait(&stray, &s, NULL, 0));
	assert_int_equal(stray.in.len, 0);
	assert_int_equal(s.n_gone, 0);
	http_answer(s.held, 200, NULL, NULL, "[end]", 5);
	assert_true(client_wait(&busy, &s, NULL, 0));
	assert_non_null(strstr(busy.in.data, "Connection: close"));
	assert_non_null(strstr(busy.in.data, "[end]"));
	assert_true(wait_for_none(&s));
	client_close(&idle, false);
	client_close(&busy, false);
	client_close(&slow, false);
	client_close(&stray, false);
	server_close(&s);
}

static void test_large_answer(void **state)
{
	struct server s;
	struct client c;

	server_open(&s, 100);
	client_open(&c, &s, 4096);
	client_puts(&c, &s, "GET /big HTTP/1.1\r\n" H "\r\nGET /2 HTTP/1.1\r\n" H "\r\n");
	assert_true(client_wait(&c, &s, "[/2  0]", 1));
	assert_true(c.in.len > 4 * MIB);
	client_close(&c, false);
	server_close(&s);
}

static void test_request_ids(void **state)
{
	struct server s;
	struct client c;

	server_open(&s, 100);
	client_open(&c, &s, 0);
	client_puts(&c, &s, "GET /a HTTP/1.1\r\n" H "X-Request-Id: my-id.1\r\n\r\n");
	assert_true(client_wait(&c, &s, "X-Request-Id: my-id.1\r\n", 1));
	client_puts(&c, &s, "GET /a HTTP/1.1\r\n" H "X-Request-Id: has space\r\n\r\n");
	assert_true(client_wait(&c, &s, "[/a  0]", 2));
	assert_int_equal(count(&c, "has space"), 0);
	assert_int_equal(count(&c, "X-Request-Id: "), 2);
	client_close(&c, false);
	server_close(&s);
}

static void test_percent_decode(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {{"a%2Fb", "a/b"}, {"%41%", "A%"}, {"%zz", "%zz"}, {"%4", "%4"}, {"", ""}, {"%e2%82%ac", "\xe2\x82\xac"}};
	char buf[32];
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		strcpy(buf, rows[i].in);
		buf[http_percent_decode(buf, strlen(buf))] = 0;
		assert_string_equal(buf, rows[i].out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchanges),
		cmocka_unit_test(test_errors_are_json),
		cmocka_unit_test(test_refused_body_is_not_held),
		cmocka_unit_test(test_endless_head),
		cmocka_unit_test(test_large_bodies),
		cmocka_unit_test(test_bodies_together_are_bounded),
		cmocka_unit_test(test_connection_limit),
		cmocka_unit_test(test_many_connections_are_flushed_in_parts),
		cmocka_unit_test(test_out_of_descriptors),
		cmocka_unit_test(test_pipelining),
		cmocka_unit_test(test_pipelining_is_bounded),
		cmocka_unit_test(test_input_behind_a_request_fits),
		cmocka_unit_test(test_requests_wait_for_their_turn),
		cmocka_unit_test(test_a_crowd_takes_turns),
		cmocka_unit_test(test_client_gone),
		cmocka_unit_test(test_answer_at_once_survives_half_close),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_timeouts),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_large_answer),
		cmocka_unit_test(test_request_ids),
		cmocka_unit_test(test_percent_decode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
