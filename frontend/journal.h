/* journal.h - tells of requests: their log lines and their spans. Begins each story, ends it, and writes what the loop pass has ended.
 *
 * Nothing of it exists without --enable-log-requests or --trace-file: then a request costs one comparison. */
#ifndef SLUICE_JOURNAL_H
#define SLUICE_JOURNAL_H

#include "common/errbuf.h"
#include "frontend/api.h"
#include "frontend/story.h"

struct journal;
struct prep;

/* *out is NULL when the configuration wants none; every function below accepts that. run_id: random, of this process. */
int journal_open(struct journal **out, const struct config *c, const char *model, uint32_t frontend, uint64_t run_id, struct errbuf *err) MUST_CHECK;
void journal_close(struct journal *j);

/* SIGHUP: the trace file may have been moved away; it is opened anew. */
void journal_reopen(struct journal *j, const struct config *c);

/* A whole request is here; sets r->story. */
void journal_begin(struct journal *j, struct http_request *r, uint64_t now);
/* It is over: answered, or its client is gone. Takes r->story. */
void journal_end(struct journal *j, struct http_request *r, bool is_gone, uint64_t now);
/* At the end of a loop pass, when its answers have been written. */
void journal_pass(struct journal *j, struct page_slot *slot);

#endif
