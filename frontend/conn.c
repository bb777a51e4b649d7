/* conn.c - see conn.h.
 *
 * llhttp keeps no copy: url, names and values arrive in pieces and are collected in the request's head. It limits nothing, so
 * bytes are counted here: in the head by feeding at most head_max of them, in the body by size, in the framing of chunks
 * (size lines, extensions, trailers) in proportion to the body that arrived with it.
 * The handler is never called from inside llhttp: a whole request pauses the parser first. */
#include "frontend/conn.h"

#include "common/mem.h"
#include "frontend/apierr.h"

#include <llhttp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define CONN_KEEP_BYTES (16 * KIB) /* of a buffer that an answer's next bytes go into */
#define CONN_HEAD_BYTES 500 /* room that is made at once: heads of API clients are smaller */
#define CONN_LARGE_BODY (256 * KIB)

enum conn_state { CONN_READING, CONN_ANSWERING, CONN_FLUSHING, CONN_LINGERING, CONN_DEAD };

/* What each token of a stream touches comes first: with thousands of streams every line is a cache miss. */
struct conn {
	struct conn_host *host;
	void *edge;
	enum conn_state state;
	bool in_request;   /* READING: some bytes of a request are here */
	bool in_head;
	bool eof;
	bool linger;       /* unread bytes may be under way when the connection ends */
	bool is_shut;
	bool was_full;     /* output was above HTTP_STREAM_HIGH: on_room is owed */
	uint64_t since_ns; /* READING: start of waiting or of the request; LINGERING: start */
	uint64_t progress_ns; /* last time that output moved, or began to wait */
	uint64_t now;
	size_t flight_pos;
	struct strbuf out;    /* being filled */
	struct strbuf flight; /* being sent, from flight_pos on */
	struct strbuf pending; /* received, not parsed yet, from pending_pos on */
	size_t pending_pos;
	struct http_request req;
	llhttp_t parser;
	uint32_t n_answered; /* requests; once there is one, waiting is keep-alive */
	size_t head_seen;
	size_t name_at;    /* in req.head: where the header name that is being read begins */
	size_t body_len;   /* as its head says; 0: it does not */
	uint64_t body_raw; /* bytes after the head, framing included */
	int fail_status;   /* set by a callback that refuses the request */
	const char *fail_text;
};

static const llhttp_settings_t *conn_settings(void);
static void conn_end(struct conn *c);

static void conn_reset_request(struct conn *c)
{
	c->host->bodies -= c->req.body.len;
	http_request_release(&c->req);
	http_request_init(&c->req, c, c->host->head_max + 1024, c->host->body_max);
	llhttp_init(&c->parser, HTTP_REQUEST, conn_settings());
	c->parser.data = c;
	c->in_request = false;
	c->in_head = true;
	c->head_seen = 0;
	c->body_raw = 0;
	c->fail_status = 0;
}

struct conn *conn_new(struct conn_host *host, void *edge, uint64_t now)
{
	struct conn *c = mem_new(struct conn);

	c->host = host;
	c->edge = edge;
	c->now = c->since_ns = now;
	strbuf_init(&c->pending, CONN_PIPELINE_MAX + CONN_INPUT_MAX);
	strbuf_init(&c->out, CONN_OUT_MAX);
	strbuf_init(&c->flight, CONN_OUT_MAX);
	conn_reset_request(c);
	return c;
}

void conn_resume(struct conn *c, uint32_t n_answered)
{
	c->n_answered = n_answered;
}

void conn_free(struct conn *c)
{
	if (!c) return;
	if (c->state != CONN_DEAD) conn_end(c);
	c->host->bodies -= c->req.body.len;
	http_request_release(&c->req);
	strbuf_release(&c->pending);
	strbuf_release(&c->out);
	strbuf_release(&c->flight);
	free(c);
}

void conn_free_body(struct conn *c)
{
	c->host->bodies -= c->req.body.len;
	strbuf_release(&c->req.body);
}

void conn_take_body(struct conn *c, struct strbuf *out)
{
	c->host->bodies -= c->req.body.len;
	*out = c->req.body;
	c->req.body = (struct strbuf){.len_max = out->len_max};
}

/* ---- llhttp's callbacks: they record, nothing else ---- */

static int conn_refuse(struct conn *c, int status, const char *text)
{
	if (c->fail_status == 0) {
		c->fail_status = status;
		c->fail_text = text;
	}
	return HPE_USER;
}

static const char *const TEXT_HEAD = "The request's headers are too large.";
static const char *const TEXT_BODY = "The request's body is too large.";

static int on_message_begin(llhttp_t *p)
{
	struct conn *c = p->data;

	c->since_ns = c->now;
	return 0;
}

static int conn_head_append(struct conn *c, const char *at, size_t n)
{
	strbuf_append(&c->req.head, at, n);
	return c->req.head.overflow ? conn_refuse(c, 431, TEXT_HEAD) : 0;
}


static int on_url(llhttp_t *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	if (c->req.head.len == 0) strbuf_reserve(&c->req.head, CONN_HEAD_BYTES);
	return conn_head_append(c, at, n);
}

static int on_url_complete(llhttp_t *p)
{
	struct conn *c = p->data;
	int rc = conn_head_append(c, "", 1);

	c->req.fields_at = c->name_at = c->req.head.len;
	return rc;
}

/* Trailers after a chunked body are read over: nobody asked for them. */
static int on_header_field(llhttp_t *p, const char *at, size_t n)
{
	struct conn *c = p->data;
	size_t from = c->req.head.len, i;

	if (!c->in_head) return 0;
	if (conn_head_append(c, at, n)) return HPE_USER;
	for (i = from; i < c->req.head.len; i++)
		if (c->req.head.data[i] >= 'A' && c->req.head.data[i] <= 'Z') c->req.head.data[i] |= 0x20;
	return 0;
}

static int on_header_value(llhttp_t *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	return c->in_head ? conn_head_append(c, at, n) : 0;
}

static int on_header_part_complete(llhttp_t *p)
{
	struct conn *c = p->data;

	if (!c->in_head) return 0;
	if (conn_head_append(c, "", 1)) return HPE_USER;
	if (c->req.n_fields++ % 2 == 0) http_name_ends(&c->req, c->name_at);
	else c->name_at = c->req.head.len;
	return 0;
}

static enum http_method conn_method(uint8_t m)
{
	switch (m) {
	case HTTP_GET: return METHOD_GET;
	case HTTP_HEAD: return METHOD_HEAD;
	case HTTP_POST: return METHOD_POST;
	case HTTP_OPTIONS: return METHOD_OPTIONS;
	case HTTP_DELETE: return METHOD_DELETE;
	default: return METHOD_OTHER;
	}
}

/* What the head alone can be refused for. */
static int conn_check_head(struct conn *c)
{
	struct http_request *r = &c->req;
	const llhttp_t *p = &c->parser;
	const char *te, *expect, *text = "";
	uint32_t n_host, n;
	int status;

	if (p->http_major != 1 || p->http_minor > 1) return conn_refuse(c, 505, "Only HTTP/1.0 and HTTP/1.1 are supported.");
	if (http_request_target(r) != ST_OK) return conn_refuse(c, 400, "The request's target is not a path.");
	http_header(r, "host", &n_host);
	if (n_host > 1 || (n_host == 0 && !r->is_http10)) return conn_refuse(c, 400, "The request needs exactly one Host header.");
	te = http_header(r, "transfer-encoding", &n);
	if (te && (n > 1 || r->is_http10)) return conn_refuse(c, 400, "Transfer-Encoding is not valid here.");
	if (te && strcasecmp(te, "chunked") != 0)
		return conn_refuse(c, 501, "The only supported Transfer-Encoding is chunked.");
	if (te && http_header(r, "content-length", NULL))
		return conn_refuse(c, 400, "Content-Length and Transfer-Encoding exclude each other.");
	status = c->host->on_head ? c->host->on_head(c->host->ctx, r, &text) : 0;
	if (status) {
		conn_refuse(c, status, text);
		return te || p->content_length > 0 ? HPE_USER : 0; /* without a body the request is whole, and the connection may stay */
	}
	if ((p->flags & F_CONTENT_LENGTH) && p->content_length > c->host->body_max) return conn_refuse(c, 413, TEXT_BODY);
	expect = r->is_http10 ? NULL : http_header(r, "expect", NULL);
	if (expect && strcasecmp(expect, "100-continue") != 0) return conn_refuse(c, 417, "The only known expectation is 100-continue.");
	if (expect && (te || p->content_length > 0)) {
		strbuf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
		conn_touched(c);
	}
	return 0;
}

static int on_headers_complete(llhttp_t *p)
{
	struct conn *c = p->data;

	c->in_head = false;
	c->body_len = p->flags & F_CONTENT_LENGTH ? p->content_length : 0;
	c->req.method = conn_method(p->method);
	c->req.is_http10 = p->http_minor == 0;
	p->upgrade = 0; /* no upgrade is offered (h2c, websocket): the request is served as it is */
	if (conn_check_head(c) == 0) return 0;
	/* Without this, llhttp would take 1 and 2 as other instructions. */
	return -1;
}

/* What a chunk announces is refused before it comes: the sender of an absurd size will not send it. */
static int on_chunk_header(llhttp_t *p)
{
	struct conn *c = p->data;

	return p->content_length > c->host->body_max - c->req.body.len ? conn_refuse(c, 413, TEXT_BODY) : 0;
}

/* A large body gets all of its room once a quarter has come, and is not copied each time it has doubled. Not before: who only says that
 * he will send much must not cost much. */
static void conn_expect_body(struct conn *c, size_t n)
{
	struct strbuf *b = &c->req.body;

	if (c->body_len > b->cap && b->len + n >= max_size(CONN_LARGE_BODY, c->body_len / 4)) strbuf_reserve(b, c->body_len - b->len);
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
	struct conn *c = p->data;

	if (n > c->host->body_max - c->req.body.len) return conn_refuse(c, 413, TEXT_BODY);
	if (n > c->host->bodies_max - min_size(c->host->bodies, c->host->bodies_max))
		return conn_refuse(c, 503, "Too many large requests at once.");
	conn_expect_body(c, n);
	strbuf_append(&c->req.body, at, n);
	c->host->bodies += n;
	return 0;
}

static int on_message_complete(llhttp_t *p)
{
	struct conn *c = p->data;

	c->req.keep_alive = llhttp_should_keep_alive(p);
	return HPE_PAUSED;
}

static const llhttp_settings_t *conn_settings(void)
{
	static llhttp_settings_t s;

	if (s.on_message_begin) return &s;
	llhttp_settings_init(&s);
	s.on_message_begin = on_message_begin;
	s.on_url = on_url;
	s.on_url_complete = on_url_complete;
	s.on_header_field = on_header_field;
	s.on_header_field_complete = on_header_part_complete;
	s.on_header_value = on_header_value;
	s.on_header_value_complete = on_header_part_complete;
	s.on_headers_complete = on_headers_complete;
	s.on_chunk_header = on_chunk_header;
	s.on_body = on_body;
	s.on_message_complete = on_message_complete;
	return &s;
}

/* ---- parsing ---- */

/* Ends the connection with an error answer to whatever of the request has arrived. */
static void conn_fail(struct conn *c, int status, const char *text)
{
	c->linger = true;
	c->state = CONN_ANSWERING;
	c->req.keep_alive = false;
	if (!c->req.id[0]) http_request_identify(&c->req, c->host->id_base, c->host->id_next++);
	apierr_send(&c->req, status, NULL, text);
}

static void conn_fail_parse(struct conn *c, llhttp_errno_t rc)
{
	char text[160];

	if (c->fail_status) {
		conn_fail(c, c->fail_status, c->fail_text);
		return;
	}
	if (rc == HPE_INVALID_VERSION || rc == HPE_PAUSED_H2_UPGRADE) {
		conn_fail(c, 505, "Only HTTP/1.0 and HTTP/1.1 are supported.");
		return;
	}
	snprintf(text, sizeof(text), "The request is not valid HTTP: %s", llhttp_get_error_reason(&c->parser));
	conn_fail(c, 400, text);
}

static void conn_dispatch(struct conn *c)
{
	c->host->parsed += CONN_PARSE_WEIGHT + c->req.head.len + c->req.body.len;
	c->state = CONN_ANSWERING;
	http_request_identify(&c->req, c->host->id_base, c->host->id_next++);
	if (c->fail_status) apierr_send(&c->req, c->fail_status, NULL, c->fail_text);
	else c->host->on_request(c->host->ctx, &c->req);
}

/* Chunk sizes, extensions and trailers may cost 64 KiB and eight bytes a byte of body. */
static bool conn_framing_is_sane(const struct conn *c)
{
	return c->body_raw <= 64 * KIB + 9 * (uint64_t)c->req.body.len;
}

/* Parses up to the end of a request or of the bytes; returns how many were used. */
static size_t conn_feed(struct conn *c, const char *data, size_t len)
{
	bool was_in_head = c->in_head;
	llhttp_errno_t rc;
	size_t used = len;

	if (was_in_head) used = min_size(used, c->host->head_max - c->head_seen);
	if (used == 0) {
		conn_fail(c, 431, TEXT_HEAD);
		return len;
	}
	if (!c->in_request) c->since_ns = c->now;
	c->in_request = true;
	rc = llhttp_execute(&c->parser, data, used);
	if (rc == HPE_PAUSED) used = (size_t)(llhttp_get_error_pos(&c->parser) - data);
	if (was_in_head) c->head_seen += used;
	else c->body_raw += used;
	if (rc == HPE_PAUSED) {
		conn_dispatch(c);
		return used;
	}
	if (rc != HPE_OK) {
		conn_fail_parse(c, rc);
		return len;
	}
	if (!c->in_head && !was_in_head && !conn_framing_is_sane(c)) {
		conn_fail(c, 400, "The framing of the chunked body is larger than its content.");
		return len;
	}
	return used;
}

static bool conn_may_go_on(const struct conn *c)
{
	return c->state == CONN_READING && conn_unsent(c) <= CONN_NEXT_MAX;
}

static bool conn_has_turn(const struct conn *c)
{
	return !c->host->parse_max || c->host->parsed < c->host->parse_max;
}

static bool conn_may_parse(const struct conn *c)
{
	return conn_may_go_on(c) && conn_has_turn(c);
}

bool conn_waits_for_turn(const struct conn *c)
{
	return conn_may_go_on(c) && !conn_has_turn(c) && c->pending.len > c->pending_pos;
}

void conn_pump(struct conn *c, uint64_t now)
{
	c->now = now;
	while (conn_may_parse(c) && c->pending_pos < c->pending.len)
		c->pending_pos += conn_feed(c, c->pending.data + c->pending_pos, c->pending.len - c->pending_pos);
	if (c->pending_pos >= c->pending.len) {
		c->pending_pos = 0;
		strbuf_release(&c->pending);
	}
	if (c->eof && c->state == CONN_ANSWERING) conn_lost(c);
	if (c->eof && c->state == CONN_READING && c->pending.len == 0) c->state = CONN_FLUSHING;
	if (c->out.overflow) conn_lost(c);
}

/* Keeps bytes for later; conn_wants_read() makes sure that they fit. */
static void conn_keep(struct conn *c, const char *data, size_t len)
{
	size_t left = c->pending.len - c->pending_pos;

	if (c->pending_pos > 0) {
		memmove(c->pending.data, c->pending.data + c->pending_pos, left);
		c->pending.len = left;
		c->pending_pos = 0;
	}
	strbuf_append(&c->pending, data, len);
	if (c->pending.overflow) conn_lost(c); /* the edge read although it was told not to */
}

void conn_input(struct conn *c, const void *data, size_t len, uint64_t now)
{
	const char *p = data;
	size_t used = 0;

	c->now = now;
	if (c->state != CONN_READING && c->state != CONN_ANSWERING) return;
	/* Straight from the edge's buffer as long as nothing waits: a large body is never copied twice. */
	while (used < len && c->pending.len == c->pending_pos && conn_may_parse(c)) used += conn_feed(c, p + used, len - used);
	if (used < len && (c->state == CONN_READING || c->state == CONN_ANSWERING)) conn_keep(c, p + used, len - used);
	if (c->out.overflow) conn_lost(c);
}

void conn_eof(struct conn *c, uint64_t now)
{
	c->now = now;
	if (c->state == CONN_LINGERING) c->state = CONN_DEAD;
	if (c->eof || c->state == CONN_DEAD) return;
	c->eof = true;
	c->linger = false;
	if (c->state == CONN_ANSWERING) conn_lost(c);
	else conn_pump(c, now);
	c->host->on_dirty(c->edge);
}

/* Dead from now on; whoever answers is told. */
static void conn_end(struct conn *c)
{
	struct http_request *r = &c->req;
	bool was_answering = c->state == CONN_ANSWERING;

	c->state = CONN_DEAD;
	if (was_answering && r->on_gone) r->on_gone(r->owner);
	r->on_gone = r->on_room = NULL;
	if (was_answering && c->host->on_ended) c->host->on_ended(c->host->ctx, r, true);
}

void conn_lost(struct conn *c)
{
	if (c->state == CONN_DEAD) return;
	conn_end(c);
	c->host->on_dirty(c->edge);
}

void conn_drain(struct conn *c)
{
	if (c->state != CONN_READING || c->pending.len > 0) return;
	/* A request that is still arriving would be refused when it is whole: nobody waits for its slow sender. */
	if (c->in_request && c->req.head.len > 0) conn_fail(c, 503, "The server is shutting down.");
	else c->state = CONN_FLUSHING;
	c->host->on_dirty(c->edge);
}

/* ---- time ---- */

static void conn_tick_reading(struct conn *c, uint64_t now)
{
	uint64_t idle_ns = c->n_answered ? c->host->keep_alive_ns : min_u64(c->host->keep_alive_ns, c->host->request_ns);

	if (c->in_request) {
		if (now - c->since_ns > c->host->request_ns) conn_fail(c, 408, "The request did not arrive in time.");
	} else if (now - c->since_ns > idle_ns) {
		conn_lost(c);
	}
}

void conn_tick(struct conn *c, uint64_t now)
{
	c->now = now;
	if (c->state == CONN_DEAD) return;
	if (conn_unsent(c) > 0) {
		if (now - c->progress_ns > c->host->write_ns) conn_lost(c);
		return;
	}
	if (c->state == CONN_READING) conn_tick_reading(c, now);
	if (c->state == CONN_LINGERING && now - c->since_ns > CONN_LINGER_NS) conn_lost(c);
}

/* ---- output ---- */

struct strbuf *conn_out(struct conn *c)
{
	return &c->out;
}

size_t conn_unsent(const struct conn *c)
{
	return c->out.len + c->flight.len - c->flight_pos;
}

const struct conn_host *conn_host_of(const struct conn *c)
{
	return c->host;
}

uint64_t conn_now(const struct conn *c)
{
	return c->now;
}

void conn_touched(struct conn *c)
{
	if (c->flight_pos == c->flight.len && c->out.len > 0) c->progress_ns = c->now;
	if (conn_unsent(c) > HTTP_STREAM_HIGH) c->was_full = true;
	c->host->on_dirty(c->edge);
}

bool conn_may_keep_alive(const struct conn *c)
{
	return !c->host->draining && !c->eof;
}

void conn_answer_begins(struct conn *c, int status)
{
	if (c->host->on_answered) c->host->on_answered(c->host->ctx, status);
}

void conn_answered(struct conn *c)
{
	bool stay = c->req.keep_alive;

	CHECK(c->state == CONN_ANSWERING);
	c->req.on_gone = c->req.on_room = NULL;
	if (c->host->on_ended) c->host->on_ended(c->host->ctx, &c->req, false);
	conn_reset_request(c);
	c->n_answered++;
	c->since_ns = c->now;
	c->state = stay ? CONN_READING : CONN_FLUSHING;
	if (!stay && c->pending.len > c->pending_pos) c->linger = true;
}

size_t conn_output(struct conn *c, const char **data)
{
	if (c->flight_pos == c->flight.len) {
		struct strbuf empty = c->flight;

		if (c->out.len == 0) return 0;
		c->flight = c->out;
		c->out = empty;
		c->flight_pos = 0;
		strbuf_reset(&c->out);
		if (c->out.cap > CONN_KEEP_BYTES) strbuf_release(&c->out);
	}
	*data = c->flight.data + c->flight_pos;
	return c->flight.len - c->flight_pos;
}

void conn_progress(struct conn *c, uint64_t now)
{
	c->progress_ns = now;
}

/* All is sent. A stream goes on in the same memory; an idle connection keeps none. */
static void conn_shrink(struct conn *c)
{
	bool idle = c->state == CONN_READING && !c->in_request;

	if (idle || c->flight.cap > CONN_KEEP_BYTES) strbuf_release(&c->flight);
	if (idle && c->out.len == 0) strbuf_release(&c->out);
}

void conn_sent(struct conn *c, size_t n, uint64_t now)
{
	struct http_request *r = &c->req;

	CHECK(n <= c->flight.len - c->flight_pos);
	c->flight_pos += n;
	c->now = now;
	if (n > 0) c->progress_ns = now;
	if (c->flight_pos == c->flight.len) {
		strbuf_reset(&c->flight);
		c->flight_pos = 0;
		conn_shrink(c);
	}
	if (c->was_full && conn_unsent(c) <= HTTP_STREAM_HIGH / 2) {
		c->was_full = false;
		if (c->state == CONN_ANSWERING && r->on_room) r->on_room(r->owner);
	}
	if (c->state == CONN_READING && c->since_ns < now && !c->in_request) c->since_ns = now; /* idle begins when all is sent */
}

/* ---- questions of the edge ---- */

bool conn_wants_read(const struct conn *c)
{
	if (c->state == CONN_DEAD || c->eof) return false;
	if (c->state == CONN_FLUSHING || c->state == CONN_LINGERING) return true; /* thrown away; a reset is noticed */
	return c->pending.len - c->pending_pos < CONN_PIPELINE_MAX;
}

bool conn_is_answering(const struct conn *c)
{
	return c->state == CONN_ANSWERING;
}

bool conn_is_dead(const struct conn *c)
{
	return c->state == CONN_DEAD;
}

bool conn_is_idle(const struct conn *c)
{
	return c->state == CONN_READING && !c->in_request && !c->eof && c->pending.len == c->pending_pos && conn_unsent(c) == 0;
}

uint32_t conn_n_answered(const struct conn *c)
{
	return c->n_answered;
}

bool conn_wants_shutdown(struct conn *c, uint64_t now)
{
	if (c->state != CONN_FLUSHING || conn_unsent(c) > 0) return false;
	if (!c->linger) {
		c->state = CONN_DEAD;
		return false;
	}
	c->state = CONN_LINGERING;
	c->since_ns = now;
	return true;
}
