/* http.h - one HTTP request and the writing of its answer.
 *
 * A request lives in its connection (conn.h) from the moment it is whole until its answer is complete. The handler answers at
 * once with http_answer(), or later: it sets owner and on_gone, and calls http_answer() or http_stream_...() when it has
 * something. Each request is answered exactly once, or on_gone is called (client away, timeout); afterwards the pointer is dead.
 * Answers are only appended to the connection's buffer; the edge writes once a loop pass. */
#ifndef SLUICE_HTTP_H
#define SLUICE_HTTP_H

#include "common/base.h"
#include "common/status.h"
#include "common/strbuf.h"
#include "frontend/admission.h"

struct conn;
struct story;

/* A bit each, so that a route can name several. */
enum http_method {
	METHOD_OTHER = 0,
	METHOD_GET = 1,
	METHOD_HEAD = 2,
	METHOD_POST = 4,
	METHOD_OPTIONS = 8,
	METHOD_DELETE = 16
};

#define HTTP_REQUEST_ID_MAX 128

struct http_request {
	struct conn *conn;
	enum http_method method;
	bool is_http10;
	bool keep_alive;     /* as the client wants it */
	struct strbuf head;  /* target, then name, value, name, value ...; each ended by a zero byte; names in lower case */
	size_t fields_at;    /* where the names begin in head */
	uint64_t names;      /* a bit each for a name's first letter and length: most questions are for what is not there */
	uint32_t n_fields;   /* names and values, together */
	struct strbuf body;
	const char *path;    /* in head; without query */
	const char *query;   /* in head; "" when there is none */
	char id[HTTP_REQUEST_ID_MAX + 1]; /* X-Request-Id, given or made */

	/* The handler's, zero at first. */
	void *owner;
	void (*on_gone)(void *owner); /* the client went away or was given up; not called after the answer is complete */
	void (*on_room)(void *owner); /* output that was above HTTP_STREAM_HIGH has been sent */
	void (*on_late)(void *owner, const struct apierr *why); /* its time is over: end it with this; NULL: on_gone, and it is answered for you */

	/* The door's. */
	struct admission admission;

	struct story *story; /* the journal's; NULL: nobody wants to know */

	/* Answer. */
	int status; /* 0: none yet */
	bool is_streaming;
};

/* Bytes waiting on one connection above which a stream should add nothing (http_stream_has_room). */
#define HTTP_STREAM_HIGH (256 * KIB)

/* The parser: the name that begins at `from` of r->head has just been ended by its zero byte. */
void http_name_ends(struct http_request *r, size_t from);

void http_request_init(struct http_request *r, struct conn *c, size_t head_max, size_t body_max);
void http_request_release(struct http_request *r);
/* Finds path and query in the target; ST_INVALID when the target is not one we serve. */
int http_request_target(struct http_request *r) MUST_CHECK;
/* First field of that name (lower case), or NULL. n: how many there are, may be NULL. */
const char *http_header(const struct http_request *r, const char *name, uint32_t *n);
/* Sets id from the client's X-Request-Id when that is harmless, else from a and b. */
void http_request_identify(struct http_request *r, uint64_t a, uint64_t b);

const char *http_status_text(int status);

/* A whole answer. extra: more header lines, each with CRLF, or NULL. body may be NULL with len 0. */
void http_answer(struct http_request *r, int status, const char *content_type, const char *extra, const void *body, size_t len);

/* An answer in pieces: chunked, or up to the end of the connection for HTTP/1.0. */
void http_stream_begin(struct http_request *r, int status, const char *content_type);
void http_stream_write(struct http_request *r, const void *data, size_t len);
void http_stream_end(struct http_request *r);
bool http_stream_has_room(const struct http_request *r);

/* Decodes %XX in place of s[0..n); returns the new length. A bad escape stays as it is. */
size_t http_percent_decode(char *s, size_t n);

#endif
