/* meshload.c - see meshload.h.
 *
 * Good path: shared objects and two children as `sluice serve` makes them; when the executor is ready, each lane says hello and
 * submits its share of requests; a request that ends is followed by another one; counters are read when all requests have been heard of for a
 * while, and again after the time that is measured. Then everything is killed: nothing of it is worth more. */
#include "sluice/meshload.h"

#include "common/clock.h"
#include "common/zsock.h"
#include "proto/ids.h"
#include "sluice/kid.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESHLOAD_PROMPT 8
#define MESHLOAD_OUTPUT_MIN 2000 /* so long that ends and beginnings are few */
#define MESHLOAD_BLOCKS (4096 / 16) /* of each request: all tokens it may have */
#define MESHLOAD_WARM_MS 500
#define MESHLOAD_START_MS 60000
#define MESHLOAD_EPOCH 1
#define MESHLOAD_LANES_MAX 16

struct meshlane {
	struct meshload *load;
	uint32_t index;
	uint64_t n_submits;
	struct zsock *requests, *results;
};

struct meshload {
	const struct meshload_opts *opts;
	struct config config;
	struct mesh mesh;
	uv_loop_t loop;
	uv_timer_t timer;
	struct kid_events events;
	struct kid worker, executor;
	struct zctx *zctx;
	struct meshlane lanes[MESHLOAD_LANES_MAX];
	struct strbuf packed;
	uint64_t n_results;
	struct meshload_result at_begin, result;
	struct errbuf *err;
	int rc;
	bool closing;
};

static void meshload_stop(struct meshload *l, int rc)
{
	if (l->rc == ST_OK) l->rc = rc;
	uv_stop(&l->loop);
}

/* ---- children ---- */

static void on_meshload_failed(void *ctx, struct kid *k, int exit_code, const char *text)
{
	struct meshload *l = ctx;

	err_set(l->err, ST_IO, "%s: %s", k->name, text);
	meshload_stop(l, ST_IO);
}

static void on_meshload_exited(void *ctx, struct kid *k, int64_t status, int sig)
{
	struct meshload *l = ctx;

	if (l->closing || l->rc != ST_OK) return;
	err_set(l->err, ST_IO, "%s ended (exit status %d, signal %d)", k->name, (int)status, sig);
	meshload_stop(l, ST_IO);
}

static uint64_t meshload_cpu_ns(const struct kid *k)
{
	struct timespec ts = {0};
	clockid_t clock;

	if (clock_getcpuclockid((pid_t)k->process.pid, &clock) != 0) return 0;
	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- frontends ---- */

static void meshlane_send(struct meshlane *a, const struct msg *m)
{
	struct meshload *l = a->load;

	strbuf_reset(&l->packed);
	CHECK(msg_pack(m, &l->packed) == ST_OK);
	if (zsock_put(a->requests, l->packed.data, l->packed.len) == ST_OK) return;
	err_set(l->err, ST_IO, "the executor does not take requests");
	meshload_stop(l, ST_IO);
}

static void meshlane_submit(struct meshlane *a)
{
	uint32_t prompt[MESHLOAD_PROMPT];
	uint64_t n = ++a->n_submits;
	struct msg m = {.type = MSG_submit,
			.submit = {.client_id = client_id_make(a->index, 0, n),
				   .attempt = 1,
				   .epoch = MESHLOAD_EPOCH,
				   .tokens = view_of(prompt, MESHLOAD_PROMPT),
				   .n_prompt = MESHLOAD_PROMPT,
				   .n_output_max = MESHLOAD_OUTPUT_MIN + (uint32_t)(n * 37 % MESHLOAD_OUTPUT_MIN),
				   .top_p = 1,
				   .seed = n}};

	for (uint32_t i = 0; i < MESHLOAD_PROMPT; i++) prompt[i] = (uint32_t)(n * 13 + i) % 256;
	meshlane_send(a, &m);
}

static void on_meshlane_message(void *ctx, const void *data, size_t len)
{
	struct meshlane *a = ctx;
	struct meshload *l = a->load;
	struct msg m;

	if (msg_unpack(&m, data, len) != ST_OK) return;
	if (m.type == MSG_refused) {
		err_set(l->err, ST_INVALID, "a request was refused: %.*s", (int)m.refused.text.n, (const char *)m.refused.text.data);
		meshload_stop(l, ST_INVALID);
	}
	if (m.type != MSG_results) return;
	l->n_results += m.results.tokens.n;
	for (uint32_t i = 0; i < m.results.finishes.n; i++)
		if (col_u32(m.results.finishes, i) != FINISH_NONE) meshlane_submit(a);
	zsock_flush(a->requests);
}

static int meshlane_open(struct meshload *l, uint32_t index)
{
	struct meshlane *a = &l->lanes[index];
	const char *dir = l->mesh.ipc.path;
	char path[160];
	int rc;

	a->load = l;
	a->index = index;
	boot_frontend_path(dir, index, 0, path, sizeof(path));
	rc = zsock_open_pull(&a->results, l->zctx, &l->loop, path, on_meshlane_message, a, l->err);
	if (rc != ST_OK) return rc;
	boot_requests_path(dir, MESHLOAD_EPOCH, path, sizeof(path));
	rc = zsock_open_push(&a->requests, l->zctx, &l->loop, path, LIMIT_REQUESTS, NULL, a, l->err);
	if (rc != ST_OK) return rc;
	meshlane_send(a, &(struct msg){.type = MSG_hello, .hello = {PROTO_VERSION, index, 0, MESHLOAD_EPOCH}});
	for (uint32_t i = index; i < l->opts->n_requests; i += l->opts->n_frontends) meshlane_submit(a);
	zsock_flush(a->requests);
	return ST_OK;
}

/* ---- measuring ---- */

static void meshload_read(const struct meshload *l, struct meshload_result *r)
{
	const struct page_slot *p = &l->mesh.page->executor;

	*r = (struct meshload_result){.ns = clock_now_ns(),
				      .n_results = l->n_results,
				      .n_steps = page_counter_get(p, COUNTER_steps),
				      .schedule_ns = page_counter_get(p, COUNTER_executor_schedule_ns),
				      .encode_ns = page_counter_get(p, COUNTER_executor_encode_ns),
				      .send_ns = page_counter_get(p, COUNTER_executor_send_ns),
				      .executor_cpu_ns = meshload_cpu_ns(&l->executor),
				      .worker_cpu_ns = meshload_cpu_ns(&l->worker)};
}

static void on_meshload_end(uv_timer_t *t)
{
	struct meshload *l = t->data;
	struct meshload_result *r = &l->result, *from = &l->at_begin;

	meshload_read(l, r);
	r->ns -= from->ns;
	r->n_results -= from->n_results;
	r->n_steps -= from->n_steps;
	r->schedule_ns -= from->schedule_ns;
	r->encode_ns -= from->encode_ns;
	r->send_ns -= from->send_ns;
	r->executor_cpu_ns -= from->executor_cpu_ns;
	r->worker_cpu_ns -= from->worker_cpu_ns;
	uv_stop(&l->loop);
}

static void on_meshload_warm(uv_timer_t *t)
{
	struct meshload *l = t->data;

	/* All of them run: a request that waits would make the others look cheap. */
	if (page_gauge_of(&l->mesh.page->executor, GAUGE_running) < l->opts->n_requests) return;
	meshload_read(l, &l->at_begin);
	uv_timer_start(t, on_meshload_end, l->opts->ns / NS_PER_MS, 0);
}

static void on_meshload_late(uv_timer_t *t)
{
	struct meshload *l = t->data;

	err_set(l->err, ST_TIMEOUT, "executor and worker are not ready after %d s", MESHLOAD_START_MS / 1000);
	meshload_stop(l, ST_TIMEOUT);
}

static void on_meshload_ready(void *ctx, struct kid *k)
{
	struct meshload *l = ctx;
	int rc = ST_OK;

	if (k->kind != KID_EXECUTOR) return;
	for (uint32_t i = 0; i < l->opts->n_frontends && rc == ST_OK; i++) rc = meshlane_open(l, i);
	if (rc != ST_OK) meshload_stop(l, rc);
	uv_timer_start(&l->timer, on_meshload_warm, MESHLOAD_WARM_MS, MESHLOAD_WARM_MS);
}

/* ---- start and end ---- */

static int meshload_set(struct meshload *l, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return config_set(&l->config, name, text, l->err);
}

static int meshload_configure(struct meshload *l)
{
	const struct meshload_opts *o = l->opts;
	int rc = config_set(&l->config, "model", o->model, l->err);

	if (rc == ST_OK) rc = config_set(&l->config, "device", "null", l->err);
	if (rc == ST_OK) rc = config_set(&l->config, "host", "127.0.0.1", l->err);
	if (rc == ST_OK) rc = config_set(&l->config, "max-model-len", "4096", l->err);
	if (rc == ST_OK) rc = config_set(&l->config, "log-level", "warning", l->err);
	if (rc == ST_OK) rc = meshload_set(l, "port", 0);
	if (rc == ST_OK) rc = meshload_set(l, "max-num-seqs", o->n_requests);
	if (rc == ST_OK) rc = meshload_set(l, "max-num-batched-tokens", o->n_requests + (uint64_t)MESHLOAD_PROMPT * 512);
	if (rc == ST_OK) rc = meshload_set(l, "max-requests", 2 * (uint64_t)o->n_requests);
	if (rc == ST_OK) rc = meshload_set(l, "num-gpu-blocks-override", (uint64_t)o->n_requests * MESHLOAD_BLOCKS);
	if (rc == ST_OK) rc = meshload_set(l, "null-step-us", o->step_us);
	return rc;
}

static int meshload_start(struct meshload *l)
{
	uint64_t now = clock_now_ns();
	int rc = meshload_configure(l);

	if (rc == ST_OK) rc = mesh_open(&l->mesh, &l->config, l->opts->n_frontends, 1, l->err);
	if (rc != ST_OK) return rc;
	l->mesh.epoch = MESHLOAD_EPOCH;
	atomic_store(&l->mesh.page->epoch, MESHLOAD_EPOCH);
	l->zctx = zctx_new(l->mesh.key, LIMIT_MESSAGE_BYTES);
	kid_init(&l->worker, KID_WORKER, 0, &l->mesh, &l->loop, &l->events, now);
	kid_init(&l->executor, KID_EXECUTOR, 0, &l->mesh, &l->loop, &l->events, now);
	rc = kid_spawn(&l->worker, l->err);
	if (rc == ST_OK) rc = kid_spawn(&l->executor, l->err);
	if (rc == ST_OK) kid_send(&l->executor, &(struct msg){.type = MSG_worker_state, .worker_state = {.rank = 0, .alive = 1}});
	return rc;
}

static void meshload_close(struct meshload *l)
{
	l->closing = true;
	for (uint32_t i = 0; i < l->opts->n_frontends; i++) {
		zsock_close(l->lanes[i].requests);
		zsock_close(l->lanes[i].results);
	}
	if (l->executor.alive) kid_kill(&l->executor, SIGKILL);
	if (l->worker.alive) kid_kill(&l->worker, SIGKILL);
	uv_close((uv_handle_t *)&l->timer, NULL);
	uv_run(&l->loop, UV_RUN_DEFAULT); /* until they are reaped and all is closed */
	uv_loop_close(&l->loop);
	zctx_free(l->zctx);
	if (l->mesh.config) mesh_close(&l->mesh);
	strbuf_release(&l->packed);
	config_release(&l->config);
}

int meshload_run(const struct meshload_opts *o, struct meshload_result *out, struct errbuf *err)
{
	struct meshload l = {.opts = o, .err = err};
	int rc;

	CHECK(o->n_frontends >= 1 && o->n_frontends <= MESHLOAD_LANES_MAX);
	l.events = (struct kid_events){&l, on_meshload_ready, on_meshload_failed, on_meshload_exited};
	config_init(&l.config);
	strbuf_init(&l.packed, LIMIT_MESSAGE_BYTES);
	uv_loop_init(&l.loop);
	uv_timer_init(&l.loop, &l.timer);
	l.timer.data = &l;
	uv_timer_start(&l.timer, on_meshload_late, MESHLOAD_START_MS, 0);
	rc = meshload_start(&l);
	if (rc == ST_OK) uv_run(&l.loop, UV_RUN_DEFAULT);
	if (rc == ST_OK) rc = l.rc;
	meshload_close(&l);
	*out = l.result;
	return rc;
}
