/* serve_fleet.c - the processes behind the fleet and its changes (fleet.h, change.h): translates, decides nothing.
 *
 * A planned end of the executor or of workers is a kill: they are made to be killed at any instruction, and what is gentler may hang. */
#include "sluice/serve_impl.h"

#include "common/clock.h"
#include "common/log.h"
#include "sluice/program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* For who retires. A running answer is never cut off by a change: it ends by its client, or by a timeout of its own, long before. */
#define RETIRE_NS (86400 * NS_PER_S)

static void serve_say(struct serve *s, const char *text)
{
	log_info("%s", text);
	if (s->change_peer) control_progress(&s->control, s->change_peer, text);
}

/* ---- listening sockets ---- */

static bool on_fleet_open(void *ctx, uint32_t socket)
{
	struct serve *s = ctx;
	struct errbuf err = {{0}};

	if (socket < s->mesh.listen.n || listen_add(&s->mesh.listen, &err) == ST_OK) return true;
	log_error("%s", err.text);
	return false;
}

static void on_fleet_listener(void *ctx, uint32_t slot, uint32_t socket, bool on)
{
	struct serve *s = ctx;
	struct kid *k = serve_frontend(s, slot);
	struct msg m = {.type = MSG_listener, .listener = {socket, on}};

	if (s->state >= DRAINING) return; /* nobody accepts any more */
	if (kid_send_fd(k, &m, on ? listen_fd(&s->mesh.listen, socket) : -1)) return;
	/* Connections would wait there for ever. The next one of its slot is told everything. */
	kid_kill(k, SIGKILL);
}

/* ---- frontends that come and go ---- */

static void fleet_spawn(struct serve *s, uint32_t slot, uint64_t now)
{
	struct kid *k = serve_frontend(s, slot);
	_Atomic uint32_t *n = &s->mesh.page->n_frontends;

	s->n_kids = max_u32(s->n_kids, s->mesh.n_workers + 1 + slot + 1);
	kid_renew(k, now);
	k->home = s->fleet.slots[slot].home;
	page_state(k->slot, PAGE_STARTING);
	if (atomic_load(n) <= slot) atomic_store(n, slot + 1);
}

static void on_change_start(void *ctx, uint32_t slot)
{
	struct serve *s = ctx;
	struct kid *k = serve_frontend(s, slot);
	uint64_t now = clock_now_ns();

	if (k->n_spawns == 0) k->n_spawns = 1; /* incarnation 0 is for the frontends of the mesh's start, see page_health() */
	fleet_spawn(s, slot, now);
	serve_step_kid(s, k, now);
}

/* Nobody is in the slot any more. False: its inbox cannot be emptied yet, try again. */
static bool fleet_bury(struct serve *s, struct kid *k)
{
	uint32_t sibling = fleet_sibling(&s->fleet, k->index);

	if (s->state < DRAINING && (sibling == FLEET_NONE || mesh_forward_inbox(&s->mesh, k->index, sibling) != ST_OK)) return false;
	mesh_close_inbox(&s->mesh, k->index);
	for (int i = 0; i < GAUGE_COUNT; i++) page_gauge(k->slot, (enum page_gauge)i, 0);
	page_state(k->slot, PAGE_EMPTY);
	k->retire_deadline_ns = 0;
	return true;
}

static void fleet_bury_retired(struct serve *s, struct kid *k)
{
	if (!k->alive && fleet_bury(s, k)) fleet_remove(&s->fleet, k->index);
}

static void on_change_retire(void *ctx, uint32_t slot)
{
	struct serve *s = ctx;
	struct kid *k = serve_frontend(s, slot);

	restart_drain(&k->restart);
	k->retire_deadline_ns = clock_now_ns() + RETIRE_NS + CUT_GRACE_NS;
	if (!k->alive) fleet_bury_retired(s, k);
	else if (k->restart.state != RESTART_RUNNING || !kid_send_fd(k, &(struct msg){.type = MSG_retire, .retire = {RETIRE_NS}}, -1))
		kid_kill(k, SIGKILL); /* it has nothing to finish, or does not listen */
}

/* Its inbox was never offered to anybody. */
static void fleet_trial_ended(struct serve *s, struct kid *k, const char *why)
{
	restart_drain(&k->restart);
	mesh_close_inbox(&s->mesh, k->index);
	page_state(k->slot, PAGE_EMPTY);
	change_on_trial_gone(&s->change, k->index, why);
}

static void on_change_stop(void *ctx, uint32_t slot)
{
	struct serve *s = ctx;
	struct kid *k = serve_frontend(s, slot);

	restart_drain(&k->restart);
	if (k->alive) kid_kill(k, SIGKILL);
	else fleet_trial_ended(s, k, "it was not started");
}

/* ---- executor and workers ---- */

static void serve_replace(struct serve *s, struct kid *k)
{
	s->replaced_ns = clock_now_ns();
	restart_plan(&k->restart);
	kid_kill(k, SIGKILL);
}

static void on_change_executor(void *ctx)
{
	struct serve *s = ctx;

	serve_replace(s, serve_executor(s));
}

/* The executor hears of it first, so that nobody is blamed. */
static void on_change_workers(void *ctx)
{
	struct serve *s = ctx;

	for (uint32_t i = 0; i < s->mesh.n_workers; i++) {
		if (s->kids[i].alive) serve_tell_worker_state(s, &s->kids[i], false, true);
		serve_replace(s, &s->kids[i]);
	}
}

static bool is_being_ended(const struct serve *s)
{
	for (uint32_t i = 0; i <= s->mesh.n_workers; i++)
		if (s->kids[i].restart.planned) return true;
	return false;
}

/* It says so whenever the workers have become ready. */
static void fleet_executor_ready(struct serve *s)
{
	bool is_executor = s->change.phase == CHANGE_EXECUTOR;
	char text[96];

	if (!change_is_running(&s->change) || !s->change.asked || is_being_ended(s)) return;
	snprintf(text, sizeof(text), "%s replaced: no steps for %.3f s", is_executor ? "the executor was" : "the workers were",
		 (double)(clock_now_ns() - s->replaced_ns) / 1e9);
	serve_say(s, text);
	change_on_engine_ready(&s->change);
}

static void fleet_engine_exited(struct serve *s, const struct kid *k, const char *why)
{
	enum kid_kind changed = s->change.phase == CHANGE_EXECUTOR ? KID_EXECUTOR : KID_WORKER;

	if (k->has_died && k->kind == changed) change_on_engine_failed(&s->change, why);
}

/* ---- events ---- */

void serve_fleet_on_ready(struct serve *s, struct kid *k)
{
	if (k->kind == KID_FRONTEND) fleet_on_ready(&s->fleet, k->index);
	else if (k->kind == KID_EXECUTOR) fleet_executor_ready(s);
	change_step(&s->change, clock_now_ns());
}

void serve_fleet_on_exited(struct serve *s, struct kid *k, const char *why)
{
	if (k->kind != KID_FRONTEND) fleet_engine_exited(s, k, why);
	else if (s->fleet.slots[k->index].state == FLEET_RETIRING) fleet_bury_retired(s, k);
	else if (change_is_trial(&s->change, k->index)) fleet_trial_ended(s, k, why);
	else fleet_on_gone(&s->fleet, k->index);
	change_step(&s->change, clock_now_ns());
}

static void on_change_progress(void *ctx, const char *text)
{
	serve_say(ctx, text);
}

static void on_change_done(void *ctx, bool good, const char *text)
{
	struct serve *s = ctx;
	uint64_t peer = s->change_peer;

	s->change_peer = 0;
	if (good) log_info("%s", text);
	else log_error("the mesh was not changed as asked for: %s", text);
	if (!peer) return;
	if (good) control_answer(&s->control, peer, json_pack("{s:b, s:s}", "ok", 1, "text", text), -1);
	else control_fail(&s->control, peer, "%s", text);
}

void serve_step_fleet(struct serve *s, uint64_t now)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) {
		struct kid *k = serve_frontend(s, i);

		if (s->fleet.slots[i].state != FLEET_RETIRING) continue; /* an idle tick looks at no more than this */
		fleet_bury_retired(s, k);
		if (k->alive && now >= k->retire_deadline_ns) kid_kill(k, SIGKILL);
	}
	change_step(&s->change, now);
}

bool serve_fleet_is_calm(const struct serve *s)
{
	const struct fleet *f = &s->fleet;

	return !change_is_running(&s->change) && fleet_count_in(f, FLEET_SERVING) + fleet_count_in(f, FLEET_EMPTY) == LIMIT_FRONTENDS;
}

int serve_open_fleet(struct serve *s, uint32_t n_frontends, uint64_t now, struct errbuf *err)
{
	const struct fleet_out fleet_out = {s, on_fleet_open, on_fleet_listener};
	const struct change_out change_out = {.ctx = s,
					      .start = on_change_start,
					      .retire = on_change_retire,
					      .stop = on_change_stop,
					      .replace_executor = on_change_executor,
					      .replace_workers = on_change_workers,
					      .progress = on_change_progress,
					      .done = on_change_done};

	fleet_init(&s->fleet, s->config.uds[0], &fleet_out);
	change_init(&s->change, &s->fleet, s->config.drain_timeout, &change_out);
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) restart_drain(&serve_frontend(s, i)->restart); /* nobody is there */
	for (uint32_t i = 0; i < n_frontends; i++) {
		uint32_t slot = fleet_add(&s->fleet, FLEET_NONE);

		if (slot == FLEET_NONE) return err_set(err, ST_LIMIT, "no listening socket for frontend %u", i);
		fleet_spawn(s, slot, now);
	}
	return ST_OK;
}

/* ---- commands ---- */

/* False: the peer has been told why not. */
static bool may_change(struct serve *s, uint64_t peer)
{
	if (s->state != SERVING) control_fail(&s->control, peer, "the mesh is ending");
	else if (!serve_has_been_ready(s)) control_fail(&s->control, peer, "the mesh is still starting");
	else if (change_is_running(&s->change)) control_fail(&s->control, peer, "the mesh is being changed already; try again when that is done");
	else return true;
	return false;
}

void serve_scale(struct serve *s, uint64_t peer, uint32_t n_frontends)
{
	if (!may_change(s, peer)) return;
	log_info("an operator asked for %u frontend%s", n_frontends, n_frontends == 1 ? "" : "s");
	s->change_peer = peer;
	change_scale(&s->change, n_frontends);
	change_step(&s->change, clock_now_ns());
}

void serve_reload(struct serve *s, uint64_t peer)
{
	const char *const programs[] = {"frontend", "executor", program_worker(s->config.device)};
	struct errbuf err = {{0}};
	int rc = ST_OK;

	if (!may_change(s, peer)) return;
	log_info("an operator asked for a reload");
	for (size_t i = 0; i < ARRAY_LEN(programs) && rc == ST_OK; i++) rc = program_check(programs[i], &err);
	if (rc == ST_OK) rc = serve_reread(s, "reload", &err);
	if (rc != ST_OK) {
		log_error("nothing was reloaded: %s", err.text);
		control_fail(&s->control, peer, "%s; nothing was reloaded", err.text);
		return;
	}
	s->change_peer = peer;
	change_reload(&s->change);
	change_step(&s->change, clock_now_ns());
}
