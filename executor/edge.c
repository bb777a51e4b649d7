/* edge.c - see edge.h.
 *
 * Shape: callbacks of the loop only take in what arrived (messages go into the core, which remembers). Once per loop pass, after
 * all of them, edge_pass() reads the reply rings, lets the bring-up and the core decide, and copies the numbers to the status
 * page. Outputs of the core go straight to sockets and the step ring.
 *
 * Fails to start (socket, rings): `failed` to the supervisor. A rank that cannot load: likewise, with its reason. End of file on the control
 * socket: exit at once. */
#include "executor/edge.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/pace.h"
#include "common/ring.h"
#include "common/zsock.h"
#include "executor/bringup.h"
#include "executor/core.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define EDGE_MEASURED_SEQS 256  /* running: every pass is measured */
#define EDGE_MEASURED_PASSES 16 /* else one of so many; passes do not come in such a rhythm */
#define EDGE_FIRST_STEP_TOKENS 32 /* some streams' last tokens with what came before; nearly as long as a decode */
#define EDGE_SYNC_NS (500 * NS_PER_MS)
#define EDGE_SYNC_IDLE_NS (2 * NS_PER_S) /* but half of --heartbeat-timeout at most */
/* Less than anybody notices. A packet costs two system calls and a wake-up, and the frontend one more write to its client. */
#define EDGE_ACCEPT_WAIT_NS (5 * NS_PER_MS)
#define EDGE_LANE_HWM 10000      /* results that may queue for one frontend; at a step every few ms that is many seconds */

struct lane {
	struct edge *edge;
	uint32_t frontend, incarnation;
	struct zsock *sock; /* NULL: none */
};

/* What the executor's processor time goes to, in nanoseconds. */
struct edge_spent {
	uint64_t schedule, encode, send;
};

struct edge {
	struct boot *boot;
	uv_loop_t loop;
	uv_poll_t control;
	uv_poll_t replies[LIMIT_WORKERS];
	uv_timer_t heartbeat, wake;
	uv_prepare_t pass;
	struct zctx *zctx;
	struct zsock *requests;
	struct lane lanes[LIMIT_FRONTENDS];
	struct ring *steps;
	struct ring *reply_rings[LIMIT_WORKERS];
	uint32_t n_ranks;
	struct core *core;
	struct bringup bringup;
	struct strbuf packed; /* reused for every message */
	struct page_slot *slot;
	struct core_stats shown; /* as last copied to the page */
	uint64_t dropped, dropped_shown;
	uint64_t step_began_ns[LIMIT_STEPS_IN_FLIGHT + 1]; /* by step number modulo its length */
	uint64_t lap_ns;
	uint32_t lap_weight; /* 0: this pass is not measured */
	uint64_t n_passes;
	struct pace pace;
	struct edge_spent spent, spent_shown;
	bool serving, said_sizes;
	int exit_code;
};

static void edge_fail(struct edge *e, const char *text)
{
	boot_send_failed(EXIT_FAILED, text);
	e->exit_code = EXIT_FAILED;
	uv_stop(&e->loop);
}

/* The processor's time since the last lap went to *part. (Time alone would count others' turns on a full machine.) */
static void edge_lap(struct edge *e, uint64_t *part)
{
	uint64_t now;

	if (!e->lap_weight) return;
	now = clock_thread_ns();
	*part += (now - e->lap_ns) * e->lap_weight;
	e->lap_ns = now;
}

static void edge_lap_begin(struct edge *e)
{
	if (e->lap_weight) e->lap_ns = clock_thread_ns();
}

/* A look at this clock is a system call, a dozen of them a pass: as much as a small step takes. So of small ones a sample is measured. */
static void edge_lap_next(struct edge *e)
{
	if (e->shown.n_running >= EDGE_MEASURED_SEQS) e->lap_weight = 1;
	else e->lap_weight = ++e->n_passes % EDGE_MEASURED_PASSES ? 0 : EDGE_MEASURED_PASSES;
}

static void edge_scheduled(void *ctx)
{
	struct edge *e = ctx;

	edge_lap(e, &e->spent.schedule);
}

/* ---- outputs of the core ---- */

static void on_lane_ready(void *ctx)
{
	struct lane *lane = ctx;

	core_on_lane_ready(lane->edge->core, lane->frontend, clock_now_ns());
}

/* The lane of this incarnation; opened at its first message. NULL when it cannot be opened. */
static struct lane *edge_lane(struct edge *e, uint32_t frontend, uint32_t incarnation)
{
	struct lane *lane = &e->lanes[frontend];
	char path[160];
	struct errbuf err;

	if (lane->sock && lane->incarnation == incarnation) return lane;
	zsock_close(lane->sock);
	lane->sock = NULL;
	lane->incarnation = incarnation;
	boot_frontend_path(e->boot->ipc_dir, frontend, incarnation, path, sizeof(path));
	if (zsock_open_push(&lane->sock, e->zctx, &e->loop, path, EDGE_LANE_HWM, on_lane_ready, lane, &err) != ST_OK) {
		log_error("no lane to frontend %u: %s", frontend, err.text);
		return NULL;
	}
	return lane;
}

static int edge_pack(struct edge *e, const struct msg *m)
{
	strbuf_reset(&e->packed);
	return msg_pack(m, &e->packed);
}

static int edge_send(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	struct edge *e = ctx;
	struct lane *lane;
	int rc;

	if (frontend >= e->boot->page->n_frontends) return ST_CLOSED;
	lane = edge_lane(e, frontend, incarnation);
	if (!lane) return ST_CLOSED;
	rc = edge_pack(e, m);
	edge_lap(e, &e->spent.encode); /* the core's columns as well */
	if (rc == ST_OK) rc = zsock_send(lane->sock, e->packed.data, e->packed.len);
	edge_lap(e, &e->spent.send);
	if (rc == ST_OK || rc == ST_AGAIN) return rc;
	log_error("a %s message for frontend %u was not sent: %s", msg_type_name(m->type), frontend, status_text(rc));
	return ST_CLOSED;
}

/* To the step ring. It has room for more than what may be in flight, unless a worker is stuck. */
static void edge_push(struct edge *e, const struct msg *m)
{
	int rc = edge_pack(e, m);

	edge_lap(e, &e->spent.encode);
	if (rc == ST_OK) rc = ring_push(e->steps, e->packed.data, e->packed.len);
	edge_lap(e, &e->spent.send);
	if (rc == ST_OK) return;
	/* It would be waited for for ever. A new epoch begins with what the frontends hold. */
	log_error("a %s message of %zu bytes did not go into the step ring: %s; starting over", msg_type_name(m->type), e->packed.len,
		  status_text(rc));
	e->exit_code = EXIT_FAILED;
	uv_stop(&e->loop);
}

static void edge_step(void *ctx, const struct msg_step *step)
{
	struct edge *e = ctx;
	uint64_t n_tokens = 0;

	for (uint32_t i = 0; i < step->run_n.n; i++) n_tokens += col_u32(step->run_n, i);
	page_observe(e->slot, HISTOGRAM_batch_tokens, (double)n_tokens);
	edge_lap(e, &e->spent.schedule);
	e->step_began_ns[step->number % ARRAY_LEN(e->step_began_ns)] = clock_now_ns();
	edge_push(e, &(struct msg){.type = MSG_step, .step = *step});
}

static void edge_timed(void *ctx, uint64_t queued_ns, uint64_t prefill_ns)
{
	struct edge *e = ctx;

	page_observe(e->slot, HISTOGRAM_queue_time, (double)queued_ns / 1e9);
	page_observe(e->slot, HISTOGRAM_prefill_time, (double)prefill_ns / 1e9);
}

/* ---- inputs ---- */

static void on_request(void *ctx, const void *data, size_t len)
{
	struct edge *e = ctx;
	uint64_t now = clock_now_ns();
	struct msg m;

	if (msg_unpack(&m, data, len) != ST_OK) {
		e->dropped++;
		return;
	}
	switch (m.type) {
	case MSG_hello:
		core_on_hello(e->core, &m.hello, now);
		break;
	case MSG_submit:
		core_on_submit(e->core, &m.submit, now);
		break;
	case MSG_cancel:
		core_on_cancel(e->core, &m.cancel, now);
		break;
	default:
		e->dropped++;
	}
}

static void edge_on_worker_state(struct edge *e, const struct msg_worker_state *m);

/* Its lane is closed: else it would look for its socket for ever. */
static void edge_on_frontend_gone(struct edge *e, const struct msg_frontend_gone *m)
{
	struct lane *lane = &e->lanes[min_u32(m->frontend, LIMIT_FRONTENDS - 1)];

	core_on_frontend_gone(e->core, m->frontend, m->incarnation, clock_now_ns());
	if (!lane->sock || lane->frontend != m->frontend || lane->incarnation != m->incarnation) return;
	zsock_close(lane->sock);
	lane->sock = NULL;
}

static void on_edge_control(uv_poll_t *h, int status, int events)
{
	static uint8_t packet[BOOT_PACKET_MAX];
	struct edge *e = h->data;
	struct msg m;

	for (;;) {
		int rc = boot_poll(&m, packet, sizeof(packet));

		if (rc == ST_AGAIN) return;
		if (rc != ST_OK) _exit(EXIT_ORPHAN);
		if (m.type == MSG_worker_state) {
			edge_on_worker_state(e, &m.worker_state);
		} else if (m.type == MSG_frontend_gone) {
			edge_on_frontend_gone(e, &m.frontend_gone);
		} else if (m.type == MSG_drain) {
			uv_stop(&e->loop); /* the supervisor stops the executor after the last frontend */
			return;
		}
	}
}

static void edge_on_step_result(struct edge *e, const struct msg_step_result *r)
{
	uint64_t now = clock_now_ns();
	bool good;

	if (r->epoch != e->boot->epoch || !e->serving) return;
	page_observe(e->slot, HISTOGRAM_step_seconds, (double)(now - e->step_began_ns[r->number % ARRAY_LEN(e->step_began_ns)]) / 1e9);
	edge_lap_begin(e);
	good = core_on_step_result(e->core, r, now);
	edge_lap(e, &e->spent.schedule);
	/* After a device error the worker ends itself; its loss, which is on its way, has the step replayed. */
	if (good || r->status == (uint32_t)-ST_DEVICE) return;
	/* The step stays unanswered, and everything would wait for it. A new epoch has the workers forget it, and the
	 * frontends submit again. */
	log_error("the workers refused step %llu (status %u) or answered it with other rows; starting over",
		  (unsigned long long)r->number, r->status);
	e->exit_code = EXIT_FAILED;
	uv_stop(&e->loop);
}

static void edge_read_ring(struct edge *e, uint32_t rank)
{
	struct errbuf err;
	const void *data;
	struct msg m;
	size_t len;
	int rc;

	while ((rc = ring_peek(e->reply_rings[rank], &data, &len)) == ST_OK) {
		if (msg_unpack(&m, data, len) != ST_OK) e->dropped++;
		else if (m.type == MSG_step_result && rank == 0) edge_on_step_result(e, &m.step_result);
		else if (m.type == MSG_rpc_reply && bringup_on_reply(&e->bringup, &m.rpc_reply, &err) != ST_OK) edge_fail(e, err.text);
		ring_pop(e->reply_rings[rank]);
	}
	if (rc == ST_CORRUPT) {
		log_error("the reply ring of worker %u is damaged; starting over", rank);
		e->exit_code = EXIT_FAILED;
		uv_stop(&e->loop);
	}
}

static void edge_on_worker_state(struct edge *e, const struct msg_worker_state *m)
{
	edge_read_ring(e, 0); /* a step that it answered before its death is not to blame */
	if (e->serving) {
		if (m->planned) core_on_workers_taken(e->core);
		else core_on_workers_lost(e->core, clock_now_ns());
		e->serving = false;
		page_state(e->slot, PAGE_STARTING);
	}
	bringup_on_worker(&e->bringup, m->rank, m->alive != 0);
}

static void on_edge_reply(uv_poll_t *h, int status, int events)
{
	struct edge *e = h->data;
	uint32_t rank = (uint32_t)(h - e->replies);
	uint64_t n;

	if (read(CHILD_FD_REPLY_EVENT + (int)rank, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_warning("eventfd of worker %u: %s", rank, strerror(errno));
	edge_read_ring(e, rank);
}

/* ---- the pass ---- */

static void edge_log_ready(struct edge *e)
{
	const struct config *cfg = &e->boot->config;
	const struct bringup *b = &e->bringup;

	log_info("epoch %llu: workers are ready with %llu KV blocks; requests of up to %u tokens", (unsigned long long)e->boot->epoch,
		 (unsigned long long)b->n_blocks, b->model_len_max);
	if (e->said_sizes) return;
	e->said_sizes = true;
	if (cfg->max_model_len == CONFIG_LEN_AUTO)
		log_info("--max-model-len auto: %u tokens is the longest that fits", b->model_len_max);
	if (b->kv.recurrent && cfg->enable_prefix_caching)
		log_info("prefix caching is off: %s has linear-attention layers, whose state is not in KV blocks", cfg->model);
}

static void edge_bringup(struct edge *e, uint64_t now)
{
	struct page *page = e->boot->page;
	struct msg m;

	if (bringup_step(&e->bringup, now, &m)) edge_push(e, &m);
	if (e->serving || e->bringup.state != BRINGUP_DONE) return;
	e->serving = true;
	core_on_workers_ready(e->core,
			      &(struct core_workers){.n_blocks = (uint32_t)e->bringup.n_blocks,
						     .model_len_max = e->bringup.model_len_max,
						     .vocab = e->bringup.vocab,
						     .dim = e->bringup.dim,
						     .kv = e->bringup.kv},
			      now);
	atomic_store(&page->model_len_max, e->bringup.model_len_max);
	atomic_store(&page->n_blocks, e->bringup.n_blocks);
	atomic_store(&page->recurrent, e->bringup.kv.recurrent);
	page_state(e->slot, PAGE_SERVING);
	boot_send_ready();
	edge_log_ready(e);
}

static void edge_show(struct edge *e)
{
	struct core_stats s, *last = &e->shown;
	struct page_slot *p = e->slot;

	core_stats(e->core, &s);
	last->n_running = s.n_running;
	page_gauge(p, GAUGE_running, (double)s.n_running);
	page_gauge(p, GAUGE_waiting, (double)(s.n_waiting + s.n_suspects));
	page_gauge(p, GAUGE_tenants, (double)s.n_tenants);
	page_gauge(p, GAUGE_kv_usage, s.blocks_total ? (double)s.blocks_used / (double)s.blocks_total : 0);
	page_gauge(p, GAUGE_blocks_total, (double)s.blocks_total);
	page_gauge(p, GAUGE_blocks_used, (double)s.blocks_used);
	page_gauge(p, GAUGE_blocks_cached, (double)s.blocks_cached);
	page_gauge(p, GAUGE_blocks_free, (double)s.blocks_free);
	page_count_to(p, COUNTER_prompt_tokens, s.prompt_tokens, &last->prompt_tokens);
	page_count_to(p, COUNTER_generation_tokens, s.generation_tokens, &last->generation_tokens);
	page_count_to(p, COUNTER_preemptions, s.preemptions, &last->preemptions);
	page_count_to(p, COUNTER_prefix_queries, s.prefix_queries, &last->prefix_queries);
	page_count_to(p, COUNTER_prefix_hits, s.prefix_hits, &last->prefix_hits);
	page_count_to(p, COUNTER_steps, s.steps, &last->steps);
	page_count_to(p, COUNTER_replays, s.replays, &last->replays);
	page_count_to(p, COUNTER_executor_schedule_ns, e->spent.schedule, &e->spent_shown.schedule);
	page_count_to(p, COUNTER_executor_encode_ns, e->spent.encode, &e->spent_shown.encode);
	page_count_to(p, COUNTER_executor_send_ns, e->spent.send, &e->spent_shown.send);
	page_count_to(p, COUNTER_cancels, s.cancels, &last->cancels);
	page_count_to(p, COUNTER_tokens_discarded, s.tokens_discarded, &last->tokens_discarded);
	page_count_to(p, COUNTER_executor_dropped, s.dropped_stale + e->dropped, &e->dropped_shown);
}

static void on_edge_wake(uv_timer_t *t)
{
	(void)t; /* the pass does the work */
}

static void edge_arm(struct edge *e, uint64_t now)
{
	uint64_t due = min_u64(core_deadline(e->core), bringup_deadline(&e->bringup));

	if (due == UINT64_MAX) uv_timer_stop(&e->wake);
	else uv_timer_start(&e->wake, on_edge_wake, due > now ? div_up(due - now, NS_PER_MS) : 0, 0);
}

static void edge_pass(struct edge *e)
{
	uint64_t now = clock_now_ns();

	edge_bringup(e, now);
	edge_lap_begin(e);
	core_step(e->core, now);
	edge_lap(e, &e->spent.encode); /* what the lanes took is taken note of */
	edge_show(e);
	edge_lap_next(e);
	atomic_store_explicit(&e->slot->heartbeat_ns, now, memory_order_relaxed);
	edge_arm(e, now);
}

/* Before the loop sleeps: after timers, sockets, and what was read of them before. */
static void on_edge_pass(uv_prepare_t *h)
{
	struct edge *e = h->data;

	edge_pass(e);
	pace_hold(&e->pace, PACE_EXECUTOR_NS);
}

/* ---- start and end ---- */

static int edge_attach_rings(struct edge *e, struct errbuf *err)
{
	size_t bytes;
	void *mem = child_map(CHILD_FD_STEP_RING, &bytes, err);
	int rc;

	if (!mem) return ST_IO;
	rc = ring_attach(&e->steps, mem, bytes, -1, err);
	if (rc != ST_OK) return rc;
	ring_set_generation(e->steps, e->boot->epoch); /* from here on, workers skip steps of the epoch before */
	for (uint32_t i = 0; i < e->n_ranks; i++) {
		mem = child_map(CHILD_FD_REPLY_RING + (int)i, &bytes, err);
		if (!mem) return ST_IO;
		rc = ring_attach(&e->reply_rings[i], mem, bytes, 0, err);
		if (rc != ST_OK) return rc;
		e->replies[i].data = e;
		CHECK(uv_poll_init(&e->loop, &e->replies[i], CHILD_FD_REPLY_EVENT + (int)i) == 0);
		CHECK(uv_poll_start(&e->replies[i], UV_READABLE, on_edge_reply) == 0);
	}
	return ST_OK;
}

/* The frontends' governor keeps to these limits; this is for the case that one of them does not. */
static uint32_t edge_requests_max(const struct config *cfg)
{
	return cfg->max_queued_requests ? min_u32(cfg->max_requests, cfg->max_num_seqs + cfg->max_queued_requests) : cfg->max_requests;
}

static int edge_open(struct edge *e, struct errbuf *err)
{
	const struct config *cfg = &e->boot->config;
	const struct core_out out = {e, edge_send, edge_step, edge_timed, edge_scheduled};
	char path[160];
	int rc;

	e->core = core_new(&(struct core_config){.epoch = e->boot->epoch,
						 .seqs_max = cfg->max_num_seqs,
						 .batched_tokens_max = cfg->max_num_batched_tokens,
						 .requests_max = edge_requests_max(cfg),
						 .steps_in_flight_max = LIMIT_STEPS_IN_FLIGHT,
						 .prefill_chunk_max = cfg->long_prefill_token_threshold,
						 .first_step_tokens = EDGE_FIRST_STEP_TOKENS,
						 .prefix_cache = cfg->enable_prefix_caching,
						 .has_priorities = cfg->scheduling_policy == SCHEDULING_PRIORITY,
						 .fair = cfg->enable_fair_scheduling,
						 .tenants_max = cfg->max_tenants,
						 .sync_interval_ns = EDGE_SYNC_NS,
						 .accept_wait_ns = EDGE_ACCEPT_WAIT_NS,
						 .sync_idle_ns = max_u64(EDGE_SYNC_NS, min_u64(EDGE_SYNC_IDLE_NS, cfg->heartbeat_timeout / 2))},
			   &out);
	bringup_init(&e->bringup, e->boot->epoch, e->n_ranks, (uint64_t)LIMIT_STEPS_IN_FLIGHT * cfg->max_num_batched_tokens);
	rc = edge_attach_rings(e, err);
	if (rc != ST_OK) return rc;
	e->zctx = zctx_new(e->boot->key, LIMIT_MESSAGE_BYTES);
	boot_requests_path(e->boot->ipc_dir, e->boot->epoch, path, sizeof(path));
	return zsock_open_pull(&e->requests, e->zctx, &e->loop, path, on_request, e, err);
}

static void edge_close(struct edge *e)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) zsock_close(e->lanes[i].sock);
	zsock_close(e->requests);
	uv_close((uv_handle_t *)&e->control, NULL);
	uv_close((uv_handle_t *)&e->heartbeat, NULL);
	uv_close((uv_handle_t *)&e->wake, NULL);
	uv_close((uv_handle_t *)&e->pass, NULL);
	for (uint32_t i = 0; i < e->n_ranks; i++) uv_close((uv_handle_t *)&e->replies[i], NULL);
	uv_run(&e->loop, UV_RUN_DEFAULT); /* the handles' close callbacks */
	uv_loop_close(&e->loop);
	zctx_free(e->zctx);
	for (uint32_t i = 0; i < e->n_ranks; i++) ring_free(e->reply_rings[i]);
	ring_free(e->steps);
	core_free(e->core);
	strbuf_release(&e->packed);
	free(e);
}

int edge_run(struct boot *boot)
{
	struct edge *e = mem_new(struct edge);
	struct errbuf err = {{0}};
	int exit_code;
	uint64_t heartbeat_ms = page_beat_ns(boot->config.heartbeat_timeout, boot->config.hang_timeout) / NS_PER_MS;

	e->boot = boot;
	e->n_ranks = boot->page->n_workers;
	e->slot = &boot->page->executor;
	strbuf_init(&e->packed, LIMIT_STEP_RING_BYTES);
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) e->lanes[i] = (struct lane){.edge = e, .frontend = i};
	uv_loop_init(&e->loop);
	e->control.data = e->pass.data = e;
	CHECK(uv_poll_init(&e->loop, &e->control, CHILD_FD_CONTROL) == 0);
	CHECK(uv_poll_start(&e->control, UV_READABLE, on_edge_control) == 0);
	uv_timer_init(&e->loop, &e->heartbeat);
	uv_timer_init(&e->loop, &e->wake);
	uv_timer_start(&e->heartbeat, on_edge_wake, heartbeat_ms, heartbeat_ms);
	uv_prepare_init(&e->loop, &e->pass);
	uv_prepare_start(&e->pass, on_edge_pass);
	if (edge_open(e, &err) != ST_OK) {
		boot_send_failed(EXIT_FAILED, err.text);
		return EXIT_FAILED; /* the process ends: the system frees what is half open */
	}
	edge_pass(e);
	uv_run(&e->loop, UV_RUN_DEFAULT);
	exit_code = e->exit_code;
	edge_close(e);
	return exit_code;
}
