/* offload.h - work of requests that would hold the loop: it runs on libuv's threads, its end comes back to the loop.
 *
 * A job is embedded in what it works on. run() is called on a thread and may look only at the job and at what never changes. Then
 * done() is called in the loop's thread, unless the client went away: then drop(), on a thread again, because trees of megabytes
 * take as long to free as to build. Without a loop (tests; and after offload_release()) all of it happens at once, in the call.
 *
 * Bounded in jobs and in bytes; beyond it, offload_start() says so and nothing has happened. */
#ifndef SLUICE_OFFLOAD_H
#define SLUICE_OFFLOAD_H

#include "common/base.h"
#include "common/list.h"
#include "frontend/http.h"

#include <uv.h>

#define OFFLOAD_JOBS_MAX 1024               /* waiting or running */
#define OFFLOAD_BYTES_MAX (256 * MIB)       /* bodies that they hold; as many as the connections may */

struct offload {
	uv_loop_t *loop; /* NULL: at once */
	size_t n_jobs, bytes;
	struct list jobs; /* with a client */
};

struct offload_job {
	struct list_link in_jobs;
	struct offload *pool;
	struct http_request *request; /* NULL: the client is gone */
	size_t bytes;                 /* that it holds, about */
	void (*run)(struct offload_job *j);
	void (*done)(struct offload_job *j); /* takes the job; request's owner and on_gone are free again */
	void (*drop)(struct offload_job *j); /* frees it; any thread */
	uv_work_t work;
};

void offload_init(struct offload *o, uv_loop_t *loop);
/* The loop has ended, and with it all jobs. */
void offload_release(struct offload *o);

/* The request's owner and on_gone are the job's until done(). False: too many; nothing was taken. */
bool offload_start(struct offload *o, struct http_request *r, struct offload_job *j) MUST_CHECK;
/* Calls j->drop(j) on a thread, later. For a job that is not running. */
void offload_drop(struct offload *o, struct offload_job *j);

#endif
