/* kid.c - see kid.h. */
#include "sluice/kid.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "sluice/program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KID_STDIO_COUNT (CHILD_FD_REPLY_EVENT + LIMIT_WORKERS)

static const char *const kid_words[] = {"frontend", "executor", "worker"};

void kid_init(struct kid *k, enum kid_kind kind, uint32_t index, struct mesh *mesh, uv_loop_t *loop, const struct kid_events *events,
	      uint64_t now)
{
	struct restart_config restart;

	*k = (struct kid){.kind = kind, .index = index, .mesh = mesh, .loop = loop, .events = events, .control_fd = -1};
	if (kind == KID_EXECUTOR) snprintf(k->name, sizeof(k->name), "executor");
	else snprintf(k->name, sizeof(k->name), "%s %u", kid_words[kind], index);
	k->slot = kind == KID_FRONTEND ? &mesh->page->frontends[index]
		  : kind == KID_WORKER ? &mesh->page->workers[index] : &mesh->page->executor;
	restart = kind == KID_FRONTEND ? restart_config_frontend : restart_config_default;
	if (kind != KID_FRONTEND) restart.deaths_max = mesh->config->max_restarts;
	restart_init(&k->restart, &restart, now);
}

void kid_renew(struct kid *k, uint64_t now)
{
	const struct restart_config cfg = k->restart.cfg;

	restart_init(&k->restart, &cfg, now);
	k->has_died = false;
	k->retire_deadline_ns = 0;
}

static int kid_program(const struct kid *k, char *out, size_t cap, struct errbuf *err)
{
	int rc = program_find(out, cap, k->kind == KID_WORKER ? program_worker(k->mesh->config->device) : kid_words[k->kind], err);

	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "cannot start %s", k->name);
}

static void kid_inherit(uv_stdio_container_t *io, int child_fd, int fd)
{
	io[child_fd].flags = UV_INHERIT_FD;
	io[child_fd].data.fd = fd;
}

static void kid_descriptors(const struct kid *k, uv_stdio_container_t *io, int control)
{
	const struct mesh *m = k->mesh;

	for (int i = 0; i < KID_STDIO_COUNT; i++) io[i].flags = UV_IGNORE;
	kid_inherit(io, 1, STDOUT_FILENO);
	kid_inherit(io, 2, STDERR_FILENO);
	kid_inherit(io, CHILD_FD_CONTROL, control);
	kid_inherit(io, CHILD_FD_PAGE, m->page_fd);
	if (k->kind == KID_FRONTEND) {
		kid_inherit(io, CHILD_FD_LISTEN, listen_fd(&m->listen, k->home));
		kid_inherit(io, CHILD_FD_INBOX, m->inbox_fds[k->index]);
		return;
	}
	kid_inherit(io, CHILD_FD_STEP_RING, m->step_fd);
	if (k->kind == KID_WORKER) {
		kid_inherit(io, CHILD_FD_REPLY_RING, m->reply_fds[k->index]);
		kid_inherit(io, CHILD_FD_REPLY_EVENT, m->event_fds[k->index]);
		return;
	}
	for (uint32_t i = 0; i < m->n_workers; i++) {
		kid_inherit(io, CHILD_FD_REPLY_RING + (int)i, m->reply_fds[i]);
		kid_inherit(io, CHILD_FD_REPLY_EVENT + (int)i, m->event_fds[i]);
	}
}

/* ---- control socket ---- */

static void on_kid_closed(uv_handle_t *h)
{
	struct kid *k = h->data;

	k->n_open--;
}

static void kid_close_control(struct kid *k)
{
	if (k->control_fd < 0) return;
	uv_poll_stop(&k->control);
	close(k->control_fd);
	k->control_fd = -1;
	uv_close((uv_handle_t *)&k->control, on_kid_closed);
}

static void kid_on_message(struct kid *k, const struct msg *m)
{
	char text[LIMIT_TEXT + 1];

	switch (m->type) {
	case MSG_ready:
		k->events->on_ready(k->events->ctx, k);
		break;
	case MSG_failed:
		memcpy(text, m->failed.text.data, m->failed.text.n);
		text[m->failed.text.n] = 0;
		k->events->on_failed(k->events->ctx, k, (int)m->failed.code, text);
		break;
	default:
		log_warning("%s sent a %s message, which is not for the supervisor", k->name, msg_type_name(m->type));
	}
}

static void on_kid_control(uv_poll_t *h, int status, int events)
{
	struct kid *k = h->data;
	uint8_t packet[LIMIT_TEXT + 64];
	struct msg m;
	size_t len;
	int rc;

	while (k->control_fd >= 0) {
		rc = child_receive(k->control_fd, packet, sizeof(packet), &len, 0);
		if (rc == ST_TIMEOUT || rc == ST_AGAIN) return;
		if (rc != ST_OK) {
			kid_close_control(k); /* its end will be reported by the process handle */
			return;
		}
		if (msg_unpack(&m, packet, len) == ST_OK) kid_on_message(k, &m);
	}
}

static int kid_try_send(struct kid *k, const struct msg *m, int fd)
{
	struct strbuf out;
	int rc = ST_CLOSED;

	if (k->control_fd < 0) return ST_CLOSED;
	strbuf_init(&out, BOOT_PACKET_MAX);
	if (msg_pack(m, &out) == ST_OK) rc = child_send_fd(k->control_fd, out.data, out.len, fd);
	strbuf_release(&out);
	return rc;
}

bool kid_send_fd(struct kid *k, const struct msg *m, int fd)
{
	int rc;

	if (k->control_fd < 0) return false;
	rc = kid_try_send(k, m, fd);
	if (rc != ST_OK) log_warning("%s did not take a %s message: %s", k->name, msg_type_name(m->type), status_text(rc));
	return rc == ST_OK;
}

void kid_send(struct kid *k, const struct msg *m)
{
	kid_send_fd(k, m, -1);
}

/* Only frontends have a use for them. */
static struct view kid_keys(const struct kid *k)
{
	const struct apikeys *keys = &k->mesh->keys;

	return k->kind == KID_FRONTEND ? view_of(keys->digests, keys->n * APIKEY_DIGEST_BYTES) : view_of(NULL, 0);
}

void kid_send_keys(struct kid *k)
{
	if (k->kind != KID_FRONTEND || k->control_fd < 0) return;
	k->owes_keys = kid_try_send(k, &(struct msg){.type = MSG_keys, .keys = {kid_keys(k)}}, -1) != ST_OK;
}

/* ---- life ---- */

static void on_kid_exit(uv_process_t *p, int64_t status, int sig)
{
	struct kid *k = p->data;

	on_kid_control(&k->control, 0, 0); /* what it said last must be heard before its end */
	k->alive = false;
	kid_close_control(k);
	uv_close((uv_handle_t *)p, on_kid_closed);
	page_state(k->slot, PAGE_DEAD);
	k->events->on_exited(k->events->ctx, k, status, sig);
}

static void kid_boot(struct kid *k)
{
	struct mesh *m = k->mesh;
	struct strbuf config;

	strbuf_init(&config, 65536);
	config_pack(m->config, &config);
	kid_send(k, &(struct msg){.type = MSG_boot,
				  .boot = {.version = PROTO_VERSION,
					   .index = k->index,
					   .incarnation = k->incarnation,
					   .epoch = m->epoch,
					   .key = view_of(m->key, sizeof(m->key)),
					   .ipc_dir = view_text(m->ipc.path),
					   .config = view_of(config.data, config.len),
					   .api_keys = kid_keys(k)}});
	k->owes_keys = false;
	strbuf_release(&config);
}

static void kid_slot_reset(struct kid *k)
{
	struct page_slot *s = k->slot;

	for (int i = 0; i < GAUGE_COUNT; i++) page_gauge(s, (enum page_gauge)i, 0);
	atomic_store(&s->incarnation, k->incarnation);
	atomic_store(&s->progress, 0);
	atomic_store(&s->started_ns, clock_now_ns());
	page_state(s, PAGE_STARTING);
}

/* A frontend's has eight bits in the client id; 0 is only for the first one of the mesh's start, see page_health(). */
static uint32_t kid_next_incarnation(struct kid *k)
{
	uint32_t n = k->n_spawns++;

	if (k->kind != KID_FRONTEND) return n;
	if (n > 0 && (n & 0xFF) == 0) n = k->n_spawns++;
	return n & 0xFF;
}

int kid_spawn(struct kid *k, struct errbuf *err)
{
	uv_stdio_container_t io[KID_STDIO_COUNT];
	char program[600], *args[2] = {program, NULL};
	uv_process_options_t o = {.file = program, .args = args, .stdio = io, .stdio_count = KID_STDIO_COUNT, .exit_cb = on_kid_exit};
	int pair[2], rc;

	if (k->n_open > 0) return ST_AGAIN;
	rc = kid_program(k, program, sizeof(program), err);
	if (rc == ST_OK && k->kind == KID_FRONTEND) rc = mesh_open_inbox(k->mesh, k->index, err);
	if (rc != ST_OK) return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
		return err_set(err, ST_IO, "no control socket: %s", strerror(errno));
	k->incarnation = kid_next_incarnation(k);
	kid_slot_reset(k);
	k->beat_ns = atomic_load(&k->slot->heartbeat_ns);
	k->silent_ns = 0;
	k->has_beaten = k->was_killed = false;
	kid_descriptors(k, io, pair[1]);
	k->process.data = k->control.data = k;
	rc = uv_spawn(k->loop, &k->process, &o);
	close(pair[1]);
	if (rc != 0) {
		close(pair[0]);
		k->n_open = 1;
		uv_close((uv_handle_t *)&k->process, on_kid_closed);
		page_state(k->slot, PAGE_DEAD);
		return err_set(err, ST_IO, "cannot start %s (%s): %s", k->name, program, uv_strerror(rc));
	}
	k->alive = true;
	k->control_fd = pair[0];
	k->n_open = 2;
	atomic_store(&k->slot->pid, (uint32_t)k->process.pid);
	CHECK(uv_poll_init(k->loop, &k->control, k->control_fd) == 0);
	CHECK(uv_poll_start(&k->control, UV_READABLE, on_kid_control) == 0);
	kid_boot(k);
	return ST_OK;
}

void kid_kill(struct kid *k, int sig)
{
	if (!k->alive) return;
	k->was_killed |= sig == SIGKILL;
	uv_process_kill(&k->process, sig);
}

/* While it starts it may be busy in one piece: reading a tokenizer or a slow disk. The executor has no such work. */
static bool kid_is_starting(const struct kid *k)
{
	enum page_state state = (enum page_state)atomic_load(&k->slot->state);

	if (k->kind == KID_EXECUTOR) return !k->has_beaten;
	return state != PAGE_SERVING && state != PAGE_DRAINING;
}

bool kid_is_hung(struct kid *k, uint64_t passed_ns, uint64_t limit_ns)
{
	uint64_t beat = atomic_load(&k->slot->heartbeat_ns);

	if (!k->alive || beat != k->beat_ns) {
		k->has_beaten = k->alive;
		k->beat_ns = beat;
		k->silent_ns = 0;
		return false;
	}
	k->silent_ns += passed_ns;
	return k->silent_ns >= (kid_is_starting(k) ? max_u64(limit_ns, KID_START_SILENCE_NS) : limit_ns);
}
