/* story.h - what is remembered of one request for its log line and its span: when its stages were, what it asked for and got.
 *
 * Exists only while somebody wants to know (--enable-log-requests, --trace-file). Hangs on the http_request; whoever works on the request
 * writes what he knows; journal.c begins it and ends it. Times are of clock_now_ns(). */
#ifndef SLUICE_STORY_H
#define SLUICE_STORY_H

#include "common/list.h"
#include "common/strbuf.h"
#include "frontend/http.h"
#include "frontend/stage.h"
#include "frontend/tracectx.h"

#define STORY_PATH_MAX 128

struct story {
	struct list_link in_ended;
	char id[HTTP_REQUEST_ID_MAX + 1];
	char path[STORY_PATH_MAX]; /* longer ones are cut */
	const char *method;        /* constant */
	struct tracectx trace;
	int status;                /* 0: none was sent */
	bool is_gone;              /* the client left before the answer was complete */
	uint64_t began_ns;         /* the whole request was here */
	uint64_t ended_ns;         /* the answer was complete, and handed to the kernel as far as it took it */

	/* Of generations and embeddings. */
	bool is_llm;
	bool is_stream;
	struct stages stages;
	uint64_t submitted_ns;
	uint64_t first_ns, last_ns; /* arrival of the first token and the last; 0: none came */
	uint32_t queued_us, prefill_us;
	uint64_t n_prompt, n_cached, n_output;
	uint64_t n_max;             /* output tokens that were allowed; 0: as many as fit */
	uint32_t n;                 /* choices */
	double temperature, top_p;
	const char *finish;         /* constant; NULL: it did not end by itself */
	uint64_t tenant;            /* hash of whose it is; 0: nobody in particular */
	struct strbuf prompt, said; /* with --max-log-len: their beginnings */
};

/* Appends to prompt or said, up to max bytes in all. */
void story_text(struct strbuf *b, size_t max, const void *text, size_t len);
/* Its length up to the last whole character. */
size_t story_text_len(const struct strbuf *b);

#endif
