/* offload.c - see offload.h. */
#include "frontend/offload.h"

#include "common/mem.h"

void offload_init(struct offload *o, uv_loop_t *loop)
{
	*o = (struct offload){.loop = loop};
	list_init(&o->jobs);
}

/* ---- dropping ---- */

/* libuv looks at its request after the thread is through with it, so it lies outside of the job that the thread frees. */
struct offload_dropper {
	uv_work_t work;
	struct offload_job *job;
};

static void on_thread_drop(uv_work_t *w)
{
	struct offload_dropper *d = CONTAINER_OF(w, struct offload_dropper, work);

	d->job->drop(d->job);
}

static void on_dropped(uv_work_t *w, int status)
{
	(void)status;
	free(CONTAINER_OF(w, struct offload_dropper, work));
}

void offload_drop(struct offload *o, struct offload_job *j)
{
	struct offload_dropper *d;

	if (!o->loop) {
		j->drop(j);
		return;
	}
	d = mem_new(struct offload_dropper);
	d->job = j;
	CHECK(uv_queue_work(o->loop, &d->work, on_thread_drop, on_dropped) == 0);
}

/* ---- working ---- */

static void offload_on_gone(void *owner)
{
	struct offload_job *j = owner;

	j->request = NULL;
	list_remove(&j->pool->jobs, &j->in_jobs);
	(void)uv_cancel((uv_req_t *)&j->work); /* when it has not begun; its end comes to the loop all the same */
}

static void on_thread_run(uv_work_t *w)
{
	struct offload_job *j = CONTAINER_OF(w, struct offload_job, work);

	j->run(j);
}

static void offload_finish(struct offload_job *j)
{
	struct http_request *r = j->request;

	if (!r) {
		offload_drop(j->pool, j);
		return;
	}
	r->owner = NULL;
	r->on_gone = NULL;
	j->done(j);
}

static void on_worked(uv_work_t *w, int status)
{
	struct offload_job *j = CONTAINER_OF(w, struct offload_job, work);
	struct offload *o = j->pool;

	o->n_jobs--;
	o->bytes -= j->bytes;
	if (j->request) list_remove(&o->jobs, &j->in_jobs);
	CHECK(status == 0 || !j->request); /* only what nobody waits for is cancelled */
	offload_finish(j);
}

bool offload_start(struct offload *o, struct http_request *r, struct offload_job *j)
{
	j->pool = o;
	j->request = r;
	if (!o->loop) {
		j->run(j);
		offload_finish(j);
		return true;
	}
	if (o->n_jobs >= OFFLOAD_JOBS_MAX || j->bytes > OFFLOAD_BYTES_MAX - min_size(o->bytes, OFFLOAD_BYTES_MAX)) return false;
	CHECK(uv_queue_work(o->loop, &j->work, on_thread_run, on_worked) == 0);
	o->n_jobs++;
	o->bytes += j->bytes;
	list_push_back(&o->jobs, &j->in_jobs);
	r->owner = j;
	r->on_gone = offload_on_gone;
	return true;
}

void offload_release(struct offload *o)
{
	CHECK(o->n_jobs == 0);
	o->loop = NULL;
}
