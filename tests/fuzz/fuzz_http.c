/* fuzz_http.c - any bytes on a connection: conn.c with a handler that answers at once, later or in a stream, and a sink for the answers.
 *
 * The first byte seeds how the rest is cut, when time passes, and when the held request is answered. Whatever comes: bounds hold, a
 * request is answered or its handler told, and what leaves begins like HTTP. Seeds: corpus/http. */
#include "common/mem.h"
#include "frontend/conn.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct box {
	struct conn_host host;
	struct conn *conn;
	struct http_request *held;
	int n_requests, n_ended;
	size_t sent;
};

static void on_gone(void *owner)
{
	struct box *b = owner;

	b->held = NULL;
	b->n_ended++;
}

static int on_head(void *ctx, struct http_request *r, const char **text)
{
	*text = "no";
	return r->path[1] == 'n' || http_header(r, "content-encoding", NULL) ? 401 : 0;
}

static void on_request(void *ctx, struct http_request *r)
{
	struct box *b = ctx;

	CHECK(!b->held && r->path[0] && r->body.len <= b->host.body_max && r->head.len <= b->host.head_max + 1024);
	b->n_requests++;
	http_header(r, "host", NULL);
	if (r->path[1] == 'l' || r->path[1] == 's') {
		b->held = r;
		r->owner = b;
		r->on_gone = on_gone;
		if (r->path[1] == 's') http_stream_begin(r, 200, "text/plain");
		return;
	}
	b->n_ended++;
	http_answer(r, 200, "text/plain", NULL, r->body.data, r->body.len);
}

static void on_dirty(void *edge)
{
	(void)edge;
}

static void drain(struct box *b, uint64_t now)
{
	const char *out;
	size_t n;

	while ((n = conn_output(b->conn, &out)) > 0) {
		if (b->sent == 0 && n >= 5) CHECK(memcmp(out, "HTTP/", 5) == 0);
		b->sent += n;
		conn_sent(b->conn, n, now);
		conn_pump(b->conn, now);
	}
}

static void answer_held(struct box *b)
{
	struct http_request *r = b->held;

	if (!r) return;
	b->held = NULL;
	b->n_ended++;
	if (r->is_streaming) {
		http_stream_write(r, "abc", 3);
		http_stream_end(r);
	} else {
		http_answer(r, 200, "text/plain", NULL, "abc", 3);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct box b = {.host = {.head_max = 2048, .body_max = 4096, .bodies_max = 8192, .request_ns = 1000, .keep_alive_ns = 1000,
				 .write_ns = 1000, .allow_origin = "*", .on_head = on_head, .on_request = on_request,
				 .on_dirty = on_dirty}};
	uint32_t seed = size ? data[0] : 0;
	uint64_t now = 1;
	size_t pos = 1;

	b.host.ctx = &b;
	b.conn = conn_new(&b.host, &b, now);
	while (pos < size && !conn_is_dead(b.conn)) {
		size_t n;

		seed = seed * 1664525 + 1013904223;
		n = min_size(1 + (seed >> 24) % (seed & 1 << 20 ? 7 : 250), size - pos);
		if (conn_wants_read(b.conn)) {
			conn_input(b.conn, data + pos, n, now);
			pos += n;
		} else if (!b.held) {
			drain(&b, now);
		}
		if (seed >> 8 & 1) drain(&b, now);
		if ((seed >> 9 & 7) == 0 || !conn_wants_read(b.conn)) answer_held(&b);
		if ((seed >> 12 & 31) == 0) conn_tick(b.conn, now += 600);
		conn_pump(b.conn, now);
		conn_wants_shutdown(b.conn, now);
	}
	if (seed & 1) conn_eof(b.conn, now);
	answer_held(&b);
	conn_pump(b.conn, now);
	drain(&b, now);
	conn_free(b.conn);
	CHECK(b.n_requests == b.n_ended && b.host.bodies == 0);
	return 0;
}
