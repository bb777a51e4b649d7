/* conn.c - see conn.h.
 *
 * llhttp limits nothing, so bytes are counted: in the head by feeding at most head_max of them, in the body by size (conn_parse.c), in the
 * framing of chunks (size lines, extensions, trailers) in proportion to the body that arrived with it.
 * The handler is never called from inside llhttp: a whole request pauses the parser first. */
#include "frontend/conn_impl.h"

#include "common/mem.h"
#include "frontend/apierr.h"

#include <stdio.h>
#include <string.h>

#define CONN_KEEP_BYTES (16 * KIB) /* of a buffer that an answer's next bytes go into */

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
		conn_fail(c, 431, CONN_TEXT_HEAD);
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
