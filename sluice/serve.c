/* serve.c - the supervisor: starts the processes of a mesh, watches them, restarts them, and ends them.
 *
 * Decisions about restarts are made by restart.c; this file is its edge: a loop of signals, timers and children. It never
 * touches a request. A process that hangs is ended, and so started again like one that died.
 * Order of an end: frontends drain first (streams finish; the engine is still restarted for them), then the executor and
 * the workers are told to stop, then the socket folder goes. A second signal, or the drain timeout, kills what is left.
 * SIGHUP: the file of API keys and the certificate are read again; what is bad changes nothing. Nobody is restarted for it.
 *
 *   SERVING --signal--> LEAVING --drain delay over--> DRAINING --all frontends gone--> STOPPING --all gone--> end of the loop
 *   any --a child that was never ready is given up--> STOPPING (killed at once)
 *   SERVING --the executor or a worker is given up--> LEAVING (verdict.c)
 *
 * LEAVING differs from SERVING in what /ready says only: load balancers look elsewhere before anything is refused. */
#include "sluice/serve_impl.h"

#include "common/clock.h"
#include "common/cpuset.h"
#include "common/log.h"
#include "common/mem.h"
#include "sluice/notify.h"
#include "sluice/serve.h"
#include "sluice/servecheck.h"
#include "sluice/verdict.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 100             /* heartbeat, restart delays, progress */
#define TICK_CALM_MS 1000       /* while everybody serves, where --heartbeat-timeout and --hang-timeout are TICK_CALM_FACTOR times that */
#define TICK_CALM_FACTOR 8
#define STOP_GRACE_NS (2 * NS_PER_S) /* for executor and workers to end by themselves */
#define PROGRESS_WIDTH 40
/* Without --hang-timeout a process is ended after this many times the silence after which it counts as dead: a pause that ends by
 * itself costs less than a restart. */
#define HUNG_FACTOR 3

static void serve_tell(struct serve *s, enum kid_kind kind, const struct msg *m)
{
	for (uint32_t i = 0; i < s->n_kids; i++)
		if (s->kids[i].kind == kind) kid_send(&s->kids[i], m);
}

static void serve_kill_all(struct serve *s)
{
	for (uint32_t i = 0; i < s->n_kids; i++) kid_kill(&s->kids[i], SIGKILL);
}

/* ---- spawning ---- */

void serve_tell_worker_state(struct serve *s, const struct kid *w, bool alive, bool planned)
{
	kid_send(serve_executor(s), &(struct msg){.type = MSG_worker_state, .worker_state = {w->index, w->incarnation, alive, planned}});
}

/* A new executor has a new epoch: the frontends learn it before it exists, so that they address the right endpoint. */
static void before_spawn(struct serve *s, struct kid *k)
{
	if (k->kind != KID_EXECUTOR) return;
	s->mesh.epoch++;
	atomic_store(&s->mesh.page->epoch, s->mesh.epoch);
	serve_tell(s, KID_FRONTEND, &(struct msg){.type = MSG_epoch, .epoch = {s->mesh.epoch}});
}

static void after_spawn(struct serve *s, struct kid *k)
{
	static const enum page_counter counters[] = {COUNTER_restarts_frontend, COUNTER_restarts_executor, COUNTER_restarts_worker};

	s->why.text[0] = 0; /* a new life may say the same again */
	if (k->has_died) page_count(&s->mesh.page->supervisor, counters[k->kind], 1);
	log_debug("%s started, process %d", k->name, (int)k->process.pid);
	if (k->kind == KID_WORKER) serve_tell_worker_state(s, k, true, false);
	if (k->kind != KID_EXECUTOR) return;
	for (uint32_t i = 0; i < s->mesh.n_workers; i++)
		if (s->kids[i].alive) serve_tell_worker_state(s, &s->kids[i], true, false);
}

static void serve_fail(struct serve *s, int exit_code)
{
	if (s->exit_code == EXIT_OK) s->exit_code = exit_code;
	s->state = STOPPING;
	s->deadline_ns = 0;
	for (uint32_t i = 0; i < s->n_kids; i++) restart_drain(&s->kids[i].restart);
	serve_kill_all(s);
}

/* The engine does not stay alive: its other processes end too, frontends say so for a while, and then the server ends. */
static void serve_give_up_engine(struct serve *s, struct kid *k, uint64_t now)
{
	verdict_give(s->mesh.page, k->name, &k->restart, s->why.text[0] ? s->why.text : k->end);
	log_error("%s (--max-restarts)", s->mesh.page->engine_failed_text);
	notify_send("STOPPING=1\nSTATUS=the engine has failed");
	s->exit_code = EXIT_FAILED;
	change_cancel(&s->change, s->mesh.page->engine_failed_text);
	for (uint32_t i = 0; i < s->n_kids; i++) {
		if (s->kids[i].kind == KID_FRONTEND) continue;
		restart_drain(&s->kids[i].restart);
		kid_kill(&s->kids[i], SIGKILL);
	}
	if (s->state != SERVING) return; /* it is about to end anyway */
	s->state = LEAVING;
	s->deadline_ns = now + verdict_grace(s->config.drain_delay);
}

void serve_step_kid(struct serve *s, struct kid *k, uint64_t now)
{
	struct errbuf err = {{0}};
	int rc;

	if (k->n_open > 0 && !k->alive) return; /* the last life's handles are closing */
	switch (restart_step(&k->restart, now)) {
	case RESTART_NOTHING:
		return;
	case RESTART_GIVE_UP:
		if (k->restart.ever_ready) {
			serve_give_up_engine(s, k, now);
			return;
		}
		if (!s->said_why)
			log_error("%s ended %u times before it was ready; the lines above say why", k->name, k->restart.deaths);
		serve_fail(s, k->restart.exit_code);
		return;
	case RESTART_SPAWN:
		before_spawn(s, k);
		rc = kid_spawn(k, &err);
		if (rc == ST_OK) {
			after_spawn(s, k);
			return;
		}
		log_error("%s", err.text);
		s->said_why = true;
		if (rc == ST_NOT_FOUND) restart_on_failed(&k->restart, EXIT_FAILED);
		k->has_died = true;
		restart_on_exited(&k->restart, now);
		serve_fleet_on_exited(s, k, err.text);
	}
}

/* ---- what children report ---- */

static void on_kid_ready(void *ctx, struct kid *k)
{
	struct serve *s = ctx;

	log_debug("%s is ready", k->name);
	restart_on_ready(&k->restart, clock_now_ns());
	serve_fleet_on_ready(s, k);
}

static void bar_clear(struct serve *s)
{
	if (s->bar_shown) fputs("\r\033[K", stderr);
	s->bar_shown = false;
}

static void on_kid_failed(void *ctx, struct kid *k, int exit_code, const char *text)
{
	struct serve *s = ctx;

	bar_clear(s);
	/* The first one is the reason, the others are consequences, or siblings that say the same. */
	if (s->state != STOPPING && strcmp(text, s->why.text) != 0) log_error("%s: %s", k->name, text);
	snprintf(s->why.text, sizeof(s->why.text), "%s", text);
	s->said_why = true;
	restart_on_failed(&k->restart, exit_code);
}

/* A process that was killed leaves the socket that it had bound. */
static void serve_remove_socket(struct serve *s, const struct kid *k)
{
	char path[160];

	if (k->kind == KID_FRONTEND) boot_frontend_path(s->mesh.ipc.path, k->index, k->incarnation, path, sizeof(path));
	else if (k->kind == KID_EXECUTOR) boot_requests_path(s->mesh.ipc.path, s->mesh.epoch, path, sizeof(path));
	else return;
	unlink(path);
}

/* A SIGKILL that nobody here has sent: was it the kernel? */
static void serve_describe_sigkill(struct serve *s, struct kid *k)
{
	static const enum page_counter counters[] = {COUNTER_oom_frontend, COUNTER_oom_executor, COUNTER_oom_worker};
	static const char *const options[] = {"--max-connections or --max-requests", "--max-requests",
					      "--gpu-memory-utilization or --kv-cache-memory-bytes"};
	struct cgroup_memory m;

	if (cgroup_memory(&m, "") && oom_claim(&s->oom, &m)) {
		oom_text(k->end, sizeof(k->end), k->name, options[k->kind], &m);
		page_count(&s->mesh.page->supervisor, counters[k->kind], 1);
	} else {
		snprintf(k->end, sizeof(k->end), "%s was ended by signal 9 (Killed) from outside%s", k->name,
			 s->oom.readable ? "" : ", perhaps for want of memory: dmesg tells");
	}
}

static void serve_describe_end(struct serve *s, struct kid *k, int64_t status, int sig)
{
	if (sig == SIGKILL && !k->was_killed) serve_describe_sigkill(s, k);
	else if (sig) snprintf(k->end, sizeof(k->end), "%s was ended by signal %d (%s)", k->name, sig, strsignal(sig));
	else snprintf(k->end, sizeof(k->end), "%s exited with code %d", k->name, (int)status);
}

static void on_serve_tick(uv_timer_t *t);

static void on_kid_exited(void *ctx, struct kid *k, int64_t status, int sig)
{
	struct serve *s = ctx;
	uint64_t now = clock_now_ns();
	bool was_asked = k->restart.planned || k->restart.draining;
	char why[sizeof(s->why.text) + sizeof(k->name) + 2];

	serve_describe_end(s, k, status, sig);
	if (!was_asked && (sig || !k->restart.has_failed)) {
		bar_clear(s);
		log_warning("%s; it will be started again", k->end);
	}
	if (k->kind == KID_WORKER) {
		ring_set_reader_active(s->mesh.steps, k->index, false); /* else the executor would wait for it to read */
		serve_tell_worker_state(s, k, false, false);
	}
	if (k->kind == KID_FRONTEND) {
		kid_send(serve_executor(s), &(struct msg){.type = MSG_frontend_gone, .frontend_gone = {k->index, k->incarnation}});
		governor_repair(&s->mesh.page->governor, k->index);
	}
	serve_remove_socket(s, k);
	k->has_died = !was_asked;
	restart_on_exited(&k->restart, now);
	if (k->restart.has_failed) snprintf(why, sizeof(why), "%s: %s", k->name, s->why.text);
	serve_fleet_on_exited(s, k, k->restart.has_failed ? why : k->end);
	uv_timer_start(&s->tick, on_serve_tick, 0, TICK_MS); /* its successor may be due at once; its handles are closed by then */
}

/* ---- the end ---- */

static bool serve_any_alive(const struct serve *s, bool frontends_only)
{
	for (uint32_t i = 0; i < s->n_kids; i++)
		if (s->kids[i].alive && (!frontends_only || s->kids[i].kind == KID_FRONTEND)) return true;
	return false;
}

static void serve_drain(struct serve *s)
{
	uint64_t timeout = s->config.drain_timeout;
	struct msg drain = {.type = MSG_drain, .drain = {timeout}};

	log_info("stopping: running requests get %.1f s; a second signal ends at once", (double)timeout / 1e9);
	s->state = DRAINING;
	s->deadline_ns = clock_now_ns() + timeout + CUT_GRACE_NS;
	/* The engine is still started again: streams that finish need it. */
	for (uint32_t i = 0; i < s->n_kids; i++)
		if (s->kids[i].kind == KID_FRONTEND) restart_drain(&s->kids[i].restart);
	serve_tell(s, KID_FRONTEND, &drain);
}

static void serve_stop_rest(struct serve *s)
{
	struct msg drain = {.type = MSG_drain, .drain = {0}};

	s->state = STOPPING;
	s->deadline_ns = clock_now_ns() + STOP_GRACE_NS;
	for (uint32_t i = 0; i < s->n_kids; i++) restart_drain(&s->kids[i].restart);
	serve_tell(s, KID_EXECUTOR, &drain);
	serve_tell(s, KID_WORKER, &drain);
}

static void serve_leave(struct serve *s)
{
	uint64_t delay = s->config.drain_delay;

	bar_clear(s);
	change_cancel(&s->change, "the mesh is ending");
	notify_send("STOPPING=1\nSTATUS=draining");
	atomic_store(&s->mesh.page->draining, 1);
	s->state = LEAVING;
	s->deadline_ns = clock_now_ns() + delay;
	if (delay == 0) serve_drain(s);
	else log_info("/ready says 503 from now on, everything is still served for %.1f s (--drain-delay)", (double)delay / 1e9);
}

/* Frontends serve from the moment that the page says so; the tick sees it up to TICK_MS later. */
bool serve_has_been_ready(const struct serve *s)
{
	struct page_health h;

	if (s->was_ready) return true;
	page_health(s->mesh.page, clock_now_ns(), s->config.heartbeat_timeout, &h);
	return h.ready;
}

void serve_end(struct serve *s)
{
	if (s->state == SERVING && serve_has_been_ready(s)) {
		serve_leave(s);
		return;
	}
	bar_clear(s);
	log_info("%s", s->state == SERVING ? "stopping" : "second signal: ending at once");
	s->state = STOPPING;
	s->deadline_ns = 0;
	for (uint32_t i = 0; i < s->n_kids; i++) restart_drain(&s->kids[i].restart);
	serve_kill_all(s);
}

static void on_serve_signal(uv_signal_t *h, int signum)
{
	serve_end(h->data);
}

/* ---- SIGHUP ---- */

static int serve_reread_keys(struct serve *s, const char *who, struct errbuf *err)
{
	struct apikeys fresh;
	int rc = keysource_read(&s->keysource, &fresh, err);

	if (rc != ST_OK) return rc;
	apikeys_release(&s->mesh.keys);
	s->mesh.keys = fresh;
	log_info("%s: %u API key%s from now on", who, fresh.n, fresh.n == 1 ? "" : "s");
	return ST_OK;
}

int serve_reread(struct serve *s, const char *who, struct errbuf *err)
{
	int rc = s->keysource.path ? serve_reread_keys(s, who, err) : ST_OK;

	/* Frontends read the certificate again, too. */
	for (uint32_t i = 0; i < s->n_kids; i++) kid_send_keys(&s->kids[i]);
	return rc;
}

static void on_serve_reload(uv_signal_t *h, int signum)
{
	struct serve *s = h->data;

	struct errbuf err = {{0}};

	bar_clear(s);
	if (!s->keysource.path && !s->config.ssl_certfile[0] && !s->config.trace_file[0]) log_info("SIGHUP: no file to read again (--api-key-file, --ssl-certfile, --trace-file)");
	if (serve_reread(s, "SIGHUP", &err) != ST_OK) log_error("SIGHUP: %s; the API keys stay as they are", err.text);
}

/* ---- the tick ---- */

static void serve_progress(struct serve *s, const struct page_health *h)
{
	int full = (int)(h->progress * PROGRESS_WIDTH);
	char bar[PROGRESS_WIDTH + 1];

	if (!s->config.progress || log_is_json() || !isatty(STDERR_FILENO)) return;
	for (int i = 0; i < PROGRESS_WIDTH; i++) bar[i] = i < full ? '#' : '.';
	bar[PROGRESS_WIDTH] = 0;
	fprintf(stderr, "\r\033[K[%s] %3d%%  %s", bar, (int)(h->progress * 100), h->detail);
	s->bar_shown = true;
}

static void serve_became_ready(struct serve *s)
{
	struct mesh *m = &s->mesh;

	s->was_ready = true;
	bar_clear(s);
	log_info("ready: %s serves %s (%u frontend%s, context %u tokens, %llu KV blocks of 16)", m->listen.text, s->config.model,
		 m->n_frontends, m->n_frontends == 1 ? "" : "s", atomic_load(&m->page->model_len_max),
		 (unsigned long long)atomic_load(&m->page->n_blocks));
	notify_send("READY=1\nSTATUS=serving");
}

/* As PID 1 of a container this process inherits orphans of others; libuv reaps only its own children. */
static void serve_reap_strangers(struct serve *s)
{
	siginfo_t info = {0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
		for (uint32_t i = 0; i < s->n_kids; i++)
			if (s->kids[i].alive && s->kids[i].process.pid == info.si_pid) return; /* libuv is about to */
		if (info.si_pid == s->mesh.ipc.janitor_pid) return;
		waitpid(info.si_pid, NULL, 0);
		info.si_pid = 0;
	}
}

/* Ends processes that hang, which would hold up everybody for ever; their death is then one like any other. */
static void serve_end_hung(struct serve *s, uint64_t now)
{
	static const enum page_counter hung_counters[] = {COUNTER_hung_frontend, COUNTER_hung_executor, COUNTER_hung_worker};
	uint64_t passed = min_u64(now - s->ticked_ns, 2 * TICK_CALM_MS * NS_PER_MS), limit = s->config.hang_timeout;

	if (limit == 0) limit = HUNG_FACTOR * s->config.heartbeat_timeout;
	s->ticked_ns = now;
	for (uint32_t i = 0; i < s->n_kids; i++) {
		struct kid *k = &s->kids[i];

		if (!kid_is_hung(k, passed, limit)) continue;
		page_count(&s->mesh.page->supervisor, hung_counters[k->kind], 1);
		log_error("%s has not responded for %.1f s: ending it", k->name, (double)k->silent_ns / 1e9);
		k->silent_ns = 0;
		kid_kill(k, SIGKILL);
	}
}

static void serve_look_for_oom(struct serve *s, uint64_t now)
{
	struct cgroup_memory m;

	if (oom_is_due(&s->oom, now) && cgroup_memory(&m, "")) oom_look(&s->oom, &m, now);
}

static void serve_finish(struct serve *s)
{
	bar_clear(s);
	uv_stop(&s->loop);
}

/* An idle mesh should cost next to nothing. */
static void serve_pace(struct serve *s, bool is_calm)
{
	uint64_t limit = s->config.hang_timeout ? min_u64(s->config.heartbeat_timeout, s->config.hang_timeout) : s->config.heartbeat_timeout;
	uint64_t ms = is_calm && limit >= TICK_CALM_FACTOR * TICK_CALM_MS * NS_PER_MS ? TICK_CALM_MS : TICK_MS;

	if (uv_timer_get_repeat(&s->tick) != ms) uv_timer_start(&s->tick, on_serve_tick, ms, ms);
}

static void on_serve_tick(uv_timer_t *t)
{
	struct serve *s = t->data;
	uint64_t now = clock_now_ns();
	struct page_health h;

	atomic_store(&s->mesh.page->supervisor.heartbeat_ns, now);
	for (uint32_t i = 0; i < s->n_kids; i++) {
		serve_step_kid(s, &s->kids[i], now);
		if (s->kids[i].owes_keys) kid_send_keys(&s->kids[i]);
	}
	governor_tidy(&s->mesh.page->governor, s->config.max_tenants);
	serve_step_fleet(s, now);
	if (getpid() == 1) serve_reap_strangers(s);
	serve_look_for_oom(s, now);
	if (s->state != SERVING) serve_pace(s, false);
	switch (s->state) {
	case SERVING:
		serve_end_hung(s, now);
		page_health(s->mesh.page, now, s->config.heartbeat_timeout, &h);
		if (!s->was_ready && h.ready) serve_became_ready(s);
		else if (!s->was_ready) serve_progress(s, &h);
		serve_pace(s, s->was_ready && h.ready && serve_fleet_is_calm(s));
		return;
	case LEAVING:
		serve_end_hung(s, now);
		if (now >= s->deadline_ns) serve_drain(s);
		return;
	case DRAINING:
		serve_end_hung(s, now);
		if (!serve_any_alive(s, true)) serve_stop_rest(s);
		else if (now >= s->deadline_ns) {
			log_warning("frontends that have not ended after the drain timeout are killed");
			for (uint32_t i = 0; i < s->n_kids; i++)
				if (s->kids[i].kind == KID_FRONTEND) kid_kill(&s->kids[i], SIGKILL);
		}
		return;
	case STOPPING:
		if (!serve_any_alive(s, false)) serve_finish(s);
		else if (now >= s->deadline_ns) serve_kill_all(s);
	}
}

/* ---- start ---- */

static int serve_start(struct serve *s, struct errbuf *err)
{
	uint32_t n_frontends = s->config.num_frontends, n = 0;
	uint64_t now = clock_now_ns();
	struct cgroup_memory m;
	int rc;

	/* auto: HTTP work is a small part beside the worker's; one frontend for each four cores. */
	if (n_frontends == 0) n_frontends = max_u32(1, cpuset_available() / 4);
	rc = mesh_open(&s->mesh, &s->config, n_frontends, 1, err);
	if (rc != ST_OK) return rc;
	rc = keysource_read(&s->keysource, &s->mesh.keys, err);
	if (rc == ST_OK) rc = serve_open_control(s, err);
	if (rc != ST_OK) {
		mesh_close(&s->mesh);
		return rc;
	}
	s->events = (struct kid_events){s, on_kid_ready, on_kid_failed, on_kid_exited};
	s->kids = mem_array(struct kid, s->mesh.n_workers + 1 + LIMIT_FRONTENDS);
	for (uint32_t i = 0; i < s->mesh.n_workers; i++) kid_init(&s->kids[n++], KID_WORKER, i, &s->mesh, &s->loop, &s->events, now);
	kid_init(&s->kids[n++], KID_EXECUTOR, 0, &s->mesh, &s->loop, &s->events, now);
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) kid_init(&s->kids[n++], KID_FRONTEND, i, &s->mesh, &s->loop, &s->events, now);
	s->n_kids = s->mesh.n_workers + 1; /* and the frontends of serve_open_fleet() */
	atomic_store(&s->mesh.page->model_ident, s->model_ident);
	page_state(&s->mesh.page->supervisor, PAGE_SERVING);
	oom_init(&s->oom, cgroup_memory(&m, "") ? &m : NULL, now);
	atomic_store(&s->mesh.page->supervisor.pid, (uint32_t)getpid());
	atomic_store(&s->mesh.page->supervisor.started_ns, clock_now_ns());
	return serve_open_fleet(s, n_frontends, now, err);
}

/* Without their handles these would end the process at once. */
static void serve_hold_signals(void)
{
	sigset_t held;

	sigemptyset(&held);
	sigaddset(&held, SIGINT);
	sigaddset(&held, SIGTERM);
	sigaddset(&held, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &held, NULL);
}

static void serve_run(struct serve *s)
{
	s->tick.data = s->sigint.data = s->sigterm.data = s->sighup.data = s;
	uv_timer_init(&s->loop, &s->tick);
	uv_timer_start(&s->tick, on_serve_tick, 0, TICK_MS);
	uv_signal_init(&s->loop, &s->sigint);
	uv_signal_init(&s->loop, &s->sigterm);
	uv_signal_init(&s->loop, &s->sighup);
	uv_signal_start(&s->sighup, on_serve_reload, SIGHUP);
	uv_signal_start(&s->sigint, on_serve_signal, SIGINT);
	uv_signal_start(&s->sigterm, on_serve_signal, SIGTERM);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&s->tick, NULL);
	serve_hold_signals(); /* whoever signals now is late: the end is under way, and its exit code is its own */
	uv_close((uv_handle_t *)&s->sigint, NULL);
	uv_close((uv_handle_t *)&s->sigterm, NULL);
	uv_close((uv_handle_t *)&s->sighup, NULL);
	serve_close_control(s);
	uv_run(&s->loop, UV_RUN_DEFAULT); /* the handles' close callbacks */
	uv_loop_close(&s->loop);
}

int serve_main(int argc, char **argv)
{
	struct serve s = {.exit_code = EXIT_OK};
	struct errbuf err = {{0}};
	bool help = false;
	int rc;

	config_init(&s.config);
	rc = config_from_env(&s.config, &err);
	if (rc == ST_OK) rc = config_from_args(&s.config, argc - 1, argv + 1, &help, &err);
	if (rc == ST_OK && help) {
		servecheck_help();
		config_release(&s.config);
		return EXIT_OK;
	}
	if (rc == ST_OK) rc = servecheck_config(&s.config, &err);
	if (rc == ST_OK) rc = keysource_open(&s.keysource, &s.config, argc, argv, &err);
	if (rc != ST_OK) {
		fprintf(stderr, "sluice: error: %s\n", err.text);
		config_release(&s.config);
		return EXIT_USAGE;
	}
	log_init("supervisor", (enum log_level)s.config.log_level);
	log_use_json(s.config.log_format == LOG_FORMAT_JSON);
	signal(SIGPIPE, SIG_IGN);
	/* Before the loop and the model, which take descriptors and perhaps an hour of fetching. */
	rc = servecheck_descriptors(&err);
	if (rc == ST_OK && uv_loop_init(&s.loop) != 0) rc = err_set(&err, ST_IO, "the event loop cannot be made");
	if (rc == ST_OK) {
		rc = servecheck_model(&s.config, &s.model_ident, &err);
		if (rc == ST_OK) rc = serve_start(&s, &err);
		if (rc != ST_OK) uv_loop_close(&s.loop);
	}
	if (rc != ST_OK) {
		log_error("%s", err.text);
		keysource_release(&s.keysource);
		config_release(&s.config);
		return EXIT_FAILED;
	}
	log_info("loading %s; %s answers /health meanwhile", s.config.model, s.mesh.listen.text);
	serve_run(&s);
	mesh_close(&s.mesh);
	free(s.kids);
	keysource_release(&s.keysource);
	config_release(&s.config);
	if (s.exit_code == EXIT_OK) log_info("stopped");
	return s.exit_code;
}
