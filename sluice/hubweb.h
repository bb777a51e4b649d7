/* hubweb.h - HTTP exchanges with a hub and what it redirects to; several at a time in one thread.
 *
 * Redirects are followed here rather than by libcurl, because the token may be sent to the hub's own origin only
 * (scheme, host and port), and because HEAD must stop at the hub's answer: what a file is called stands there, not at
 * the CDN. From https no redirect leads to http. Nothing of an answer is trusted: header lines are bounded and checked,
 * bodies are handed on as they come. */
#ifndef SLUICE_HUBWEB_H
#define SLUICE_HUBWEB_H

#include "common/base.h"
#include "common/errbuf.h"
#include "sluice/hubenv.h"

struct hubweb;
struct hubweb_call;

/* Of the last answer, but for etag, size and commit: there the first one that the hub gave counts. */
struct hubweb_answer {
	long status;
	char etag[201]; /* x-linked-etag or etag, without quotes and W/; "": none, or not of letters, digits, '-', '_',
			   '.' */
	bool has_size;
	uint64_t size;   /* x-linked-size, or content-length of an answer without a redirect */
	char commit[41]; /* x-repo-commit; "": none */
	bool has_range;
	uint64_t range_from;         /* content-range of a 206 */
	uint32_t retry_s;            /* retry-after; 0: none */
	char code[64], message[300]; /* x-error-code, x-error-message: words of the hub, not shown as they are */
};

struct hubweb_events {
	void *ctx;
	/* Bytes of a 2xx answer to GET; false ends the exchange: on_end gets ST_CLOSED then. */
	bool (*on_body)(void *ctx, const struct hubweb_answer *a, const char *data, size_t len);
	/* rc ST_OK: there is an answer, whatever its status. ST_IO, ST_TIMEOUT: there is none, or it ended early; why
	 * says so. ST_INVALID: it cannot be followed. The call is gone afterwards. */
	void (*on_end)(void *ctx, int rc, const struct hubweb_answer *a, const char *why);
};

/* env is kept. */
int hubweb_open(struct hubweb **out, const struct hubenv *env, struct errbuf *err) MUST_CHECK;
void hubweb_close(struct hubweb *w);
/* Ends what runs, without a word to anybody. */
void hubweb_stop(struct hubweb *w);

/* path: behind the endpoint, with its slash, encoded. from > 0: the bytes from there on are asked for. */
struct hubweb_call *hubweb_head(struct hubweb *w, const char *path, const struct hubweb_events *ev);
struct hubweb_call *hubweb_get(struct hubweb *w, const char *path, uint64_t from, const struct hubweb_events *ev);

/* Waits up to timeout_ms for something to happen and calls what is due. */
void hubweb_poll(struct hubweb *w, int timeout_ms);

#endif
