/* front.c - see front.h.
 *
 * Shape: callbacks of the loop take in what arrived (bytes into connections, messages into the lives) and record. Once a loop pass,
 * before the loop sleeps, front_pass() sends what is due to the executor, writes what is due to clients, and stamps the heartbeat.
 *
 * Fails to start (model file, socket): `failed` to the supervisor, with a text for the user. End of file on the control socket: the
 * supervisor is gone, exit at once. Drain: new requests get 503, idle connections end, running answers are finished, or at the end of
 * their time cut off with an error that says so. Retire, when others go on: nothing is accepted, everything is served, idle connections
 * go to siblings, and when none is left the process ends. */
#include "frontend/front.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/pace.h"
#include "frontend/api.h"
#include "frontend/conn.h"
#include "frontend/embed.h"
#include "frontend/gen.h"
#include "frontend/journal.h"
#include "frontend/lane.h"
#include "frontend/modelside.h"
#include "frontend/owner.h"
#include "frontend/siblings.h"
#include "frontend/tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define FRONT_TICK_MS 250          /* connections' timeouts; with the heartbeat, where that is rarer: one waking for both */
#define FRONT_HELLO_NS (200 * NS_PER_MS)
#define FRONT_READ_NS (2 * NS_PER_MS) /* messages, before what they say is written: at least, at most */
#define FRONT_READ_MAX_NS (50 * NS_PER_MS)
#define FRONT_CUT_NS (NS_PER_S)    /* at the end of a drain: for error events to reach their clients */
#define FRONT_FD_RESERVE 64        /* descriptors for all that is no connection */
#define FRONT_CONNECTIONS_MAX (1u << 20)

struct front {
	struct boot *boot;
	uv_loop_t loop;
	uv_poll_t control;
	uv_timer_t heartbeat, wake;
	uv_prepare_t pass;
	struct api api;
	struct conn_host host;
	struct tcp *tcp;
	struct siblings *siblings;
	struct tls_context *tls; /* NULL: plain HTTP */
	struct lane_link *lane;
	struct lives *lives;
	struct modelside model;
	uint64_t ticked_ns;
	bool flushed;     /* no connection waits for the next pass */
	uint64_t used_ns; /* processor time at the end of the last pass */
	struct pace pace;
	uint64_t arrived_ns;  /* of this pass's first message; 0: none came */
	uint64_t read_ns;     /* how long this pass reads messages */
	uint64_t n_delivered; /* tokens, up to the last pass */
	bool draining, cut, retiring;
	uint64_t drain_deadline_ns; /* or of retiring */
	int exit_code;
	struct {
		uint64_t accepted, refused, given, taken, resubmits, dropped;
	} shown; /* as last added to the status page */
};

/* ---- outputs of the lives ---- */

static int front_send(void *ctx, const struct msg *m)
{
	struct front *f = ctx;
	int rc = lane_send(f->lane, m);

	/* ST_LIMIT ends its request: it could never be sent. Anything else is lost, which the protocol repairs. */
	if (rc != ST_OK && rc != ST_AGAIN) log_error("a %s message was not sent: %s", msg_type_name(m->type), status_text(rc));
	return rc == ST_AGAIN || rc == ST_LIMIT ? rc : ST_OK;
}

/* ---- events ---- */

static void on_lane_message(void *ctx, const struct msg *m)
{
	struct front *f = ctx;

	f->api.now = clock_now_ns();
	if (!f->arrived_ns) f->arrived_ns = f->api.now;
	lives_on_message(f->lives, m, f->api.now);
	if (f->api.now - f->arrived_ns >= f->read_ns) lane_yield(f->lane);
}

static void on_lane_ready(void *ctx)
{
	(void)ctx; /* lives_step() in this pass tries again */
}

static void front_epoch(struct front *f, uint64_t epoch)
{
	struct errbuf err;

	if (lane_epoch(f->lane, epoch, &err) != ST_OK) {
		log_error("%s", err.text);
		f->exit_code = EXIT_FAILED; /* a new process may have better luck */
		uv_stop(&f->loop);
		return;
	}
	lives_on_epoch(f->lives, epoch, clock_now_ns());
}

static void front_drain(struct front *f, uint64_t timeout_ns)
{
	if (f->draining) return;
	f->draining = f->api.draining = true;
	f->drain_deadline_ns = clock_now_ns() + timeout_ns;
	page_state(f->api.slot, PAGE_DRAINING);
	tcp_drain(f->tcp);
}

static void front_retire(struct front *f, uint64_t timeout_ns)
{
	if (f->draining || f->retiring) return;
	f->retiring = true;
	f->drain_deadline_ns = clock_now_ns() + timeout_ns;
	page_state(f->api.slot, PAGE_DRAINING);
	siblings_retire(f->siblings);
	if (!siblings_exist(f->siblings)) front_drain(f, timeout_ns); /* nobody to whom clients could go */
}

static void front_listener(struct front *f, const struct msg_listener *m, int fd)
{
	struct errbuf err = {{0}};
	int rc = ST_OK;

	if (m->on && fd >= 0 && !f->retiring) {
		rc = acceptor_add(tcp_acceptor(f->tcp), m->id, fd, &err);
		fd = -1; /* taken */
	} else if (m->on) {
		rc = err_set(&err, ST_INVALID, "%s", fd < 0 ? "no descriptor came with it" : "this frontend retires");
	} else {
		rc = acceptor_remove(tcp_acceptor(f->tcp), m->id);
		if (rc != ST_OK) err_set(&err, rc, "it is not there");
	}
	if (fd >= 0) close(fd);
	if (rc != ST_OK) log_error("listening socket %u: %s", m->id, err.text);
}

static int front_load_tls(struct front *f, struct errbuf *err)
{
	const struct config *c = &f->boot->config;

	return c->ssl_certfile[0] ? tls_context_new(&f->tls, c->ssl_certfile, c->ssl_keyfile, err) : ST_OK;
}

/* Connections that are open keep the certificate that they have been shown. */
static void front_reload_tls(struct front *f)
{
	struct tls_context *old = f->tls;
	struct errbuf err = {{0}};

	if (!old) return;
	if (front_load_tls(f, &err) != ST_OK) {
		log_error("SIGHUP: %s; the certificate stays as it is", err.text);
		return;
	}
	tcp_use_tls(f->tcp, f->tls);
	tls_context_free(old);
	log_info("SIGHUP: %s is shown from now on", f->boot->config.ssl_certfile);
}

/* The operator has changed files. Requests that have come in already keep their answer. */
static void front_keys(struct front *f, const struct msg_keys *m)
{
	if (apikeys_set(&f->boot->keys, m->api_keys.data, m->api_keys.n) != ST_OK) log_error("the new API keys could not be read");
	front_reload_tls(f);
	journal_reopen(f->api.journal, &f->boot->config);
}

static void on_control(uv_poll_t *p, int status, int events)
{
	static uint8_t packet[BOOT_PACKET_MAX];
	struct front *f = p->data;
	struct msg m;
	int rc, fd;

	while ((rc = boot_poll_fd(&m, packet, sizeof(packet), &fd)) == ST_OK) {
		if (m.type == MSG_listener) front_listener(f, &m.listener, fd);
		else if (fd >= 0) close(fd);
		if (m.type == MSG_epoch) front_epoch(f, m.epoch.epoch);
		else if (m.type == MSG_retire) front_retire(f, m.retire.timeout_ns);
		else if (m.type == MSG_drain) front_drain(f, m.drain.timeout_ns);
		else if (m.type == MSG_keys) front_keys(f, &m.keys);
	}
	if (rc == ST_CLOSED) _exit(EXIT_ORPHAN);
}

/* ---- once a pass ---- */

static void front_publish(struct front *f)
{
	struct page_slot *slot = f->api.slot;
	struct siblings_stats ss;
	struct lives_stats ls;
	struct tcp_stats ts;

	siblings_stats(f->siblings, &ss);
	lives_stats(f->lives, &ls);
	tcp_stats(f->tcp, &ts);
	page_gauge(slot, GAUGE_connections, (double)ts.n_open);
	page_gauge(slot, GAUGE_live_requests, (double)ls.n_live);
	page_count_to(slot, COUNTER_connections_accepted, ts.accepted, &f->shown.accepted);
	page_count_to(slot, COUNTER_connections_refused, ts.refused, &f->shown.refused);
	page_count_to(slot, COUNTER_handed_over, ss.given, &f->shown.given);
	page_count_to(slot, COUNTER_adopted, ss.taken, &f->shown.taken);
	page_count_to(slot, COUNTER_resubmits, ls.resubmits, &f->shown.resubmits);
	page_count_to(slot, COUNTER_dropped, ls.dropped_stale + ls.dropped_repeats + lane_dropped(f->lane) + ss.dropped, &f->shown.dropped);
}

static void on_wake(uv_timer_t *t)
{
	(void)t; /* the pass does the work */
}

static void front_set_wake(struct front *f, uint64_t now)
{
	uint64_t due = f->flushed ? min_u64(lives_deadline(f->lives), admission_next(&f->api)) : now;

	if (due == UINT64_MAX) uv_timer_stop(&f->wake);
	else uv_timer_start(&f->wake, on_wake, due <= now ? 0 : div_up(due - now, NS_PER_MS), 0);
}

/* What still runs ends with an error that says why, so that nobody takes a cut text for a whole one. */
static void front_cut(struct front *f, uint64_t now)
{
	struct apierr why = {0};

	f->cut = true;
	f->drain_deadline_ns = now + FRONT_CUT_NS;
	(void)apierr_set(&why, 503, NULL, "The server is shutting down: the time that running requests got (--drain-timeout) is over.");
	gens_fail(&f->api, &why);
	embeds_fail(&f->api, &why);
}

static void front_check_drain(struct front *f, uint64_t now)
{
	struct tcp_stats ts;

	if ((!f->draining && !f->retiring) || !f->flushed) return;
	tcp_stats(f->tcp, &ts);
	if (!f->draining) {
		if (ts.n_open == 0) uv_stop(&f->loop);
		else if (now >= f->drain_deadline_ns) front_drain(f, 0);
		return;
	}
	if (ts.n_busy == 0 || (f->cut && now >= f->drain_deadline_ns)) uv_stop(&f->loop);
	else if (!f->cut && now >= f->drain_deadline_ns) front_cut(f, now);
}

/* The supervisor has given up on the engine: nothing more will come. In each pass, because what was being prepared may still start. */
static void front_check_engine(struct front *f)
{
	struct apierr why = {0};

	if (!api_engine_failed(&f->api, &why)) return;
	gens_fail(&f->api, &why);
	embeds_fail(&f->api, &why);
}

/* What came in this pass is with the kernel now, unless its client reads too slowly (then api_on_waited() tells of the time); one look at
 * the clock for all of it. The next pass may read for as long as this one took: an engine that is faster than the writes of single
 * tokens gets several into each, and nobody waits for more than twice that. */
static void front_wrote(struct front *f, uint64_t began_ns)
{
	uint64_t now = clock_now_ns();
	struct lives_stats ls;

	lives_stats(f->lives, &ls);
	if (f->arrived_ns && ls.tokens > f->n_delivered)
		page_observe_n(f->api.slot, HISTOGRAM_write, (double)(now - f->arrived_ns) / 1e9, ls.tokens - f->n_delivered);
	f->read_ns = min_u64(max_u64(FRONT_READ_NS, now - began_ns), FRONT_READ_MAX_NS);
	f->n_delivered = ls.tokens;
	f->arrived_ns = 0;
}

static void front_pass(struct front *f)
{
	uint64_t now = clock_now_ns();
	int i;

	front_check_engine(f);
	/* Twice: writing makes room for streams that waited, and may begin pipelined requests. */
	for (i = 0; i < 2; i++) {
		lives_step(f->lives, now);
		admission_step(&f->api, now);
		gens_step(&f->api, now);
		embeds_step(&f->api, now);
		f->flushed = tcp_flush(f->tcp, now);
	}
	front_wrote(f, now);
	journal_pass(f->api.journal, f->api.slot);
	lane_flush(f->lane);
	atomic_store_explicit(&f->api.slot->heartbeat_ns, now, memory_order_relaxed);
	front_publish(f);
	front_set_wake(f, now);
	front_check_drain(f, now);
}

/* How long the loop was not looking at its sockets; what others took of the processor does not count. */
static void front_measure(struct front *f)
{
	uint64_t used = clock_thread_ns();

	page_observe(f->api.slot, HISTOGRAM_loop_pass, (double)(used - f->used_ns) / 1e9);
	f->used_ns = used;
}

static void on_pass(uv_prepare_t *p)
{
	struct front *f = p->data;

	front_pass(f);
	front_measure(f);
	pace_hold(&f->pace, PACE_FRONTEND_NS);
}

static void on_heartbeat(uv_timer_t *t)
{
	struct front *f = t->data;
	uint64_t now = clock_now_ns();

	siblings_tick(f->siblings, now);
	if (now - f->ticked_ns < NS_PER_S) return;
	f->ticked_ns = now;
	gens_tick(&f->api, now);
}

/* ---- start ---- */

static int front_load(struct front *f, struct errbuf *err)
{
	int rc;

	page_state(f->api.slot, PAGE_LOADING);
	rc = front_load_tls(f, err); /* first: it is checked in no time */
	return rc == ST_OK ? modelside_read(&f->model, f->boot, err) : rc;
}

/* As many connections as descriptors allow, unless the user says less. */
static uint32_t front_connections(const struct config *c)
{
	struct rlimit lim;
	uint64_t n;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0) return 1024 - FRONT_FD_RESERVE;
	if (lim.rlim_cur != lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &lim) != 0) getrlimit(RLIMIT_NOFILE, &lim);
	}
	n = min_u64(lim.rlim_cur > 2 * FRONT_FD_RESERVE ? lim.rlim_cur - FRONT_FD_RESERVE : FRONT_FD_RESERVE, FRONT_CONNECTIONS_MAX);
	return (uint32_t)(c->max_connections ? min_u64(c->max_connections, n) : n);
}

static void front_host(struct front *f)
{
	const struct config *c = &f->boot->config;

	f->host = (struct conn_host){
		.head_max = c->max_head_bytes ? c->max_head_bytes : 16 * KIB,
		.body_max = c->max_body_bytes ? c->max_body_bytes : 32 * MIB,
		.bodies_max = max_size(256 * MIB, 2 * c->max_body_bytes), /* of all connections together */
		.request_ns = c->timeout_request,
		.keep_alive_ns = c->timeout_keep_alive,
		.write_ns = c->timeout_write,
		.allow_origin = c->allowed_origins,
		.ctx = &f->api,
		.on_head = api_on_head,
		.on_request = api_on_request,
		.on_answered = api_on_answered,
		.on_ended = api_on_ended,
		.on_waited = api_on_waited,
		.id_base = api_random(&f->api),
	};
}

static uint32_t front_beat_ms(const struct front *f)
{
	const struct config *c = &f->boot->config;

	return (uint32_t)(page_beat_ns(c->heartbeat_timeout, c->hang_timeout) / NS_PER_MS);
}

static void front_lives(struct front *f)
{
	struct lives_config cfg = {
		.frontend = f->boot->index,
		.incarnation = f->boot->incarnation,
		.silence_ns = f->boot->config.heartbeat_timeout,
		.hello_ns = FRONT_HELLO_NS,
		.requests_max = f->boot->config.max_requests,
	};
	struct lives_out out = {.ctx = f, .send = front_send, .on_token = owner_on_token, .on_accepted = owner_on_accepted, .on_end = owner_on_end,
				.on_prompt_token = owner_on_prompt_token, .on_embedding = owner_on_embedding};

	f->lives = lives_new(&cfg, &out);
}

static int front_open(struct front *f, struct errbuf *err)
{
	struct lane_events events = {.ctx = f, .on_message = on_lane_message, .on_ready = on_lane_ready};
	uint32_t connections_max = front_connections(&f->boot->config);
	int rc;

	front_lives(f);
	f->api.tokenizer = f->model.tokenizer;
	f->api.chat = f->model.chat;
	f->api.defaults = &f->model.defaults;
	f->api.pooling = f->model.pooling;
	f->api.lives = f->lives;
	f->api.loop = &f->loop;
	api_init(&f->api, clock_now_ns());
	admission_open(&f->api, &f->boot->page->governor, f->boot->index);
	front_host(f);
	rc = journal_open(&f->api.journal, &f->boot->config, f->api.names[0], f->boot->index, api_random(&f->api), err);
	if (rc != ST_OK) return rc;
	rc = lane_open(&f->lane, f->boot, &f->loop, &events, err);
	if (rc != ST_OK) return rc;
	lives_on_epoch(f->lives, f->boot->epoch, clock_now_ns());
	rc = tcp_open(&f->tcp, &f->loop, CHILD_FD_LISTEN, &f->host, connections_max, max_u32(FRONT_TICK_MS, front_beat_ms(f)), err);
	if (rc != ST_OK) return rc;
	tcp_use_tls(f->tcp, f->tls);
	return siblings_open(&f->siblings, f->boot, &f->loop, f->tcp, connections_max, CHILD_FD_INBOX, err);
}

static void front_handles(struct front *f)
{
	CHECK(uv_loop_init(&f->loop) == 0);
	f->control.data = f->heartbeat.data = f->wake.data = f->pass.data = f;
	CHECK(uv_poll_init(&f->loop, &f->control, CHILD_FD_CONTROL) == 0);
	uv_timer_init(&f->loop, &f->heartbeat);
	uv_timer_init(&f->loop, &f->wake);
	uv_prepare_init(&f->loop, &f->pass);
}

static void front_close(struct front *f)
{
	siblings_close(f->siblings);
	tcp_close(f->tcp, NULL, NULL);
	lane_close(f->lane);
	uv_close((uv_handle_t *)&f->control, NULL);
	uv_close((uv_handle_t *)&f->heartbeat, NULL);
	uv_close((uv_handle_t *)&f->wake, NULL);
	uv_close((uv_handle_t *)&f->pass, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	uv_loop_close(&f->loop);
	journal_pass(f->api.journal, f->api.slot);
	journal_close(f->api.journal);
	api_release(&f->api);
	lives_free(f->lives);
	lane_free(f->lane);
	tls_context_free(f->tls);
	modelside_release(&f->model);
}

int front_run(struct boot *boot)
{
	struct front *f = mem_new(struct front);
	struct errbuf err = {{0}};
	int exit_code;

	f->boot = boot;
	f->api.config = &boot->config;
	f->api.keys = &boot->keys;
	f->api.page = boot->page;
	f->api.slot = &boot->page->frontends[min_u32(boot->index, LIMIT_FRONTENDS - 1)];
	f->api.heartbeat_max_ns = boot->config.heartbeat_timeout;
	if (front_load(f, &err) != ST_OK) {
		boot_send_failed(EXIT_FAILED, err.text);
		modelside_release(&f->model);
		tls_context_free(f->tls);
		free(f);
		return EXIT_FAILED;
	}
	front_handles(f);
	if (front_open(f, &err) != ST_OK) {
		boot_send_failed(EXIT_FAILED, err.text); /* the supervisor says it */
		return EXIT_FAILED; /* the process ends: the system frees what is half open */
	}
	CHECK(uv_poll_start(&f->control, UV_READABLE, on_control) == 0);
	uv_timer_start(&f->heartbeat, on_heartbeat, front_beat_ms(f), front_beat_ms(f));
	uv_prepare_start(&f->pass, on_pass);
	f->used_ns = clock_thread_ns();
	atomic_store_explicit(&f->api.slot->heartbeat_ns, clock_now_ns(), memory_order_relaxed);
	page_state(f->api.slot, PAGE_SERVING);
	boot_send_ready();
	uv_run(&f->loop, UV_RUN_DEFAULT);
	exit_code = f->exit_code;
	front_close(f);
	free(f);
	return exit_code;
}
