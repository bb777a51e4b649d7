/* conn_parse.c - llhttp's callbacks: they record, nothing else.
 *
 * llhttp keeps no copy: url, names and values arrive in pieces and are collected in the request's head. It limits nothing, so bytes of
 * bodies are counted here; those of the head and of the framing of chunks in conn.c. */
#include "frontend/conn_impl.h"

#include <string.h>
#include <strings.h>

#define CONN_HEAD_BYTES 500 /* room that is made at once: heads of API clients are smaller */
#define CONN_LARGE_BODY (256 * KIB)

static const char *const text_body = "The request's body is too large.";

static int conn_refuse(struct conn *c, int status, const char *text)
{
	if (c->fail_status == 0) {
		c->fail_status = status;
		c->fail_text = text;
	}
	return HPE_USER;
}

static int on_message_begin(llhttp_t *p)
{
	struct conn *c = p->data;

	c->since_ns = c->now;
	return 0;
}

static int conn_head_append(struct conn *c, const char *at, size_t n)
{
	strbuf_append(&c->req.head, at, n);
	return c->req.head.overflow ? conn_refuse(c, 431, CONN_TEXT_HEAD) : 0;
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
	if ((p->flags & F_CONTENT_LENGTH) && p->content_length > c->host->body_max) return conn_refuse(c, 413, text_body);
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

	return p->content_length > c->host->body_max - c->req.body.len ? conn_refuse(c, 413, text_body) : 0;
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

	if (n > c->host->body_max - c->req.body.len) return conn_refuse(c, 413, text_body);
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

const llhttp_settings_t *conn_settings(void)
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
