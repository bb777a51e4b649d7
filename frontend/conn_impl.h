/* conn_impl.h - what the files of a connection share: conn.c (its states, its time, what goes out) and conn_parse.c (what llhttp finds in
 * what comes in). Nobody else includes it. */
#ifndef SLUICE_CONN_IMPL_H
#define SLUICE_CONN_IMPL_H

#include "frontend/conn.h"

#include <llhttp.h>

#define CONN_TEXT_HEAD "The request's headers are too large." /* a 431 */

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

/* Callbacks that record what was found in the connection that is the parser's data; one that refuses the request sets fail_status. A whole
 * request pauses the parser. */
const llhttp_settings_t *conn_settings(void);

#endif
