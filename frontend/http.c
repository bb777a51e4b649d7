/* http.c - see http.h. */
#include "frontend/http.h"

#include "common/clock.h"
#include "common/hexout.h"
#include "common/mem.h"
#include "frontend/conn.h"
#include "frontend/jsonout.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define HTTP_ANSWER_BYTES 1000 /* room that is made at once: a head and a short answer */

void http_request_init(struct http_request *r, struct conn *c, size_t head_max, size_t body_max)
{
	*r = (struct http_request){.conn = c};
	strbuf_init(&r->head, head_max);
	strbuf_init(&r->body, body_max);
}

void http_request_release(struct http_request *r)
{
	strbuf_release(&r->head);
	strbuf_release(&r->body);
}

int http_request_target(struct http_request *r)
{
	char *target = r->head.data, *p, *q;

	if (!target) return ST_INVALID;
	if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
		/* The absolute form that proxies send: the host is ours whatever it says. */
		p = strchr(strchr(target, ':') + 3, '/');
		if (!p) return ST_INVALID;
		target = p;
	}
	if (target[0] != '/' && strcmp(target, "*") != 0) return ST_INVALID;
	r->path = target;
	r->query = "";
	q = strpbrk(target, "?#");
	if (q) {
		if (*q == '?') r->query = q + 1;
		*q = 0;
	}
	return ST_OK;
}

static uint64_t http_name_bit(const char *name, size_t len)
{
	return 1ull << (((unsigned char)name[0] * 7u + (unsigned)len) & 63);
}

void http_name_ends(struct http_request *r, size_t from)
{
	r->names |= http_name_bit(r->head.data + from, r->head.len - 1 - from);
}

const char *http_header(const struct http_request *r, const char *name, uint32_t *n)
{
	const char *p = r->head.data, *found = NULL;
	uint32_t i, count = 0;

	if (n) *n = 0;
	if (!(r->names & http_name_bit(name, strlen(name)))) return NULL;
	p += r->fields_at;
	for (i = 0; i + 1 < r->n_fields; i += 2) {
		const char *value = p + strlen(p) + 1;

		if (strcmp(p, name) == 0) {
			if (!found) found = value;
			count++;
		}
		p = value + strlen(value) + 1;
	}
	if (n) *n = count;
	return found;
}

void http_request_identify(struct http_request *r, uint64_t a, uint64_t b)
{
	const char *given = http_header(r, "x-request-id", NULL);
	size_t i, len = given ? strlen(given) : 0;

	for (i = 0; i < len && given[i] > 0x20 && given[i] < 0x7f; i++) {
	}
	if (len > 0 && i == len && len <= HTTP_REQUEST_ID_MAX) memcpy(r->id, given, len + 1);
	else *hexout(hexout(r->id, a, 16), b, b >> 32 ? 16 : 8) = 0;
}

const char *http_status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{200, "OK"},
		{204, "No Content"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{413, "Content Too Large"},
		{415, "Unsupported Media Type"},
		{417, "Expectation Failed"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].status == status) return texts[i].text;
	return "Status";
}

/* The Date header's text, made once a second. */
static const char *http_date(void)
{
	static char text[40];
	static int64_t made_s;
	int64_t now_s = clock_wall_s();
	time_t t = (time_t)now_s;
	struct tm tm;

	if (now_s == made_s) return text;
	made_s = now_s;
	gmtime_r(&t, &tm);
	strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	return text;
}

static void http_head(struct http_request *r, int status, const char *content_type, const char *extra)
{
	struct strbuf *o = conn_out(r->conn);

	CHECK(r->status == 0);
	r->status = status;
	r->keep_alive = r->keep_alive && conn_may_keep_alive(r->conn);
	conn_answer_begins(r->conn, status);
	strbuf_reserve(o, HTTP_ANSWER_BYTES);
	strbuf_puts(o, "HTTP/1.1 ");
	strbuf_put_u64(o, (uint64_t)status);
	strbuf_putc(o, ' ');
	strbuf_puts(o, http_status_text(status));
	strbuf_puts(o, "\r\nDate: ");
	strbuf_puts(o, http_date());
	strbuf_puts(o, "\r\nServer: sluice\r\nAccess-Control-Allow-Origin: ");
	strbuf_puts(o, conn_host_of(r->conn)->allow_origin);
	strbuf_puts(o, "\r\nAccess-Control-Expose-Headers: X-Request-Id\r\n");
	if (r->id[0]) {
		strbuf_puts(o, "X-Request-Id: ");
		strbuf_puts(o, r->id);
		strbuf_puts(o, "\r\n");
	}
	if (content_type) {
		strbuf_puts(o, "Content-Type: ");
		strbuf_puts(o, content_type);
		strbuf_puts(o, "\r\n");
	}
	if (status == 401) strbuf_puts(o, "WWW-Authenticate: Bearer\r\n");
	if (status == 415) strbuf_puts(o, "Accept-Encoding: identity\r\n"); /* no other coding of a body is read */
	if (extra) strbuf_puts(o, extra);
	if (!r->keep_alive) strbuf_puts(o, "Connection: close\r\n");
	else if (r->is_http10) strbuf_puts(o, "Connection: keep-alive\r\n");
}

void http_answer(struct http_request *r, int status, const char *content_type, const char *extra, const void *body, size_t len)
{
	struct strbuf *o = conn_out(r->conn);

	http_head(r, status, content_type, extra);
	if (status != 204) {
		strbuf_puts(o, "Content-Length: ");
		strbuf_put_u64(o, len);
		strbuf_puts(o, "\r\n");
	}
	strbuf_puts(o, "\r\n");
	if (r->method != METHOD_HEAD && status != 204) strbuf_append(o, body, len);
	conn_touched(r->conn);
	conn_answered(r->conn);
}

void http_stream_begin(struct http_request *r, int status, const char *content_type)
{
	struct strbuf *o = conn_out(r->conn);

	if (r->is_http10) r->keep_alive = false; /* the end of the connection is the end of the answer */
	/* X-Accel-Buffering: nginx would hold an event stream back. */
	http_head(r, status, content_type, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
	if (!r->is_http10) strbuf_puts(o, "Transfer-Encoding: chunked\r\n");
	strbuf_puts(o, "\r\n");
	r->is_streaming = true;
	conn_touched(r->conn);
}

void http_stream_write(struct http_request *r, const void *data, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	struct strbuf *o = conn_out(r->conn);
	char buf[18];
	size_t n = sizeof(buf), left = len;

	CHECK(r->is_streaming);
	if (len == 0) return; /* an empty chunk would end the answer */
	if (!r->is_http10) {
		buf[--n] = '\n';
		buf[--n] = '\r';
		do {
			buf[--n] = hex[left & 15];
			left >>= 4;
		} while (left);
		strbuf_append(o, buf + n, sizeof(buf) - n);
	}
	strbuf_append(o, data, len);
	if (!r->is_http10) strbuf_append(o, "\r\n", 2);
	conn_touched(r->conn);
}

void http_stream_end(struct http_request *r)
{
	CHECK(r->is_streaming);
	if (!r->is_http10) strbuf_append(conn_out(r->conn), "0\r\n\r\n", 5);
	conn_touched(r->conn);
	conn_answered(r->conn);
}

bool http_stream_has_room(const struct http_request *r)
{
	return conn_unsent(r->conn) <= HTTP_STREAM_HIGH;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9') return c - '0';
	if (c >= 'a' && c <= 'f') return c - 'a' + 10;
	if (c >= 'A' && c <= 'F') return c - 'A' + 10;
	return -1;
}

size_t http_percent_decode(char *s, size_t n)
{
	size_t i, out = 0;

	for (i = 0; i < n; i++) {
		if (s[i] == '%' && i + 2 < n && hex_digit(s[i + 1]) >= 0 && hex_digit(s[i + 2]) >= 0) {
			s[out++] = (char)(hex_digit(s[i + 1]) * 16 + hex_digit(s[i + 2]));
			i += 2;
		} else {
			s[out++] = s[i];
		}
	}
	return out;
}
