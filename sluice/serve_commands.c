/* serve_commands.c - what operators ask the supervisor for (control.h). */
#include "sluice/serve_impl.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void command_mesh(struct serve *s, uint64_t peer)
{
	const struct config *c = &s->config;
	struct page_health h;
	json_t *answer;

	page_health(s->mesh.page, clock_now_ns(), c->heartbeat_timeout, &h);
	answer = json_pack("{s:b, s:i, s:s, s:s, s:s, s:b}", "ok", 1, "pid", (int)getpid(), "at", s->mesh.listen.text, "model",
			   c->served_model_name[0] ? c->served_model_name : c->model, "phase", h.phase, "ready", (int)h.ready);
	if (!answer) /* a path that is no UTF-8 */
		answer = json_pack("{s:b, s:i, s:s}", "ok", 1, "pid", (int)getpid(), "at", s->mesh.listen.text);
	if (!answer) answer = json_pack("{s:b, s:i}", "ok", 1, "pid", (int)getpid()); /* that of a socket, too */
	control_answer(&s->control, peer, answer, -1);
}

/* Opened anew, so that it cannot be written through, not by mistake either. */
static void command_page(struct serve *s, uint64_t peer)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->mesh.page_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		control_fail(&s->control, peer, "the status page cannot be opened: %s", strerror(errno));
		return;
	}
	control_answer(&s->control, peer, json_pack("{s:b}", "ok", 1), fd);
	close(fd);
}

static void command_drain(struct serve *s, uint64_t peer)
{
	if (s->state != SERVING || s->drain_peer) {
		control_fail(&s->control, peer, "the mesh is ending already");
		return;
	}
	s->drain_peer = peer;
	log_info("an operator asked for the end");
	serve_end(s);
}

static void command_scale(struct serve *s, uint64_t peer, const json_t *request)
{
	const json_t *n = json_object_get(request, "frontends");

	if (json_is_integer(n) && json_integer_value(n) >= 1 && json_integer_value(n) <= LIMIT_FRONTENDS)
		serve_scale(s, peer, (uint32_t)json_integer_value(n));
	else control_fail(&s->control, peer, "the number of frontends must be from 1 to %d", LIMIT_FRONTENDS);
}

static void on_command(void *ctx, uint64_t peer, const char *command, const json_t *request)
{
	struct serve *s = ctx;

	if (strcmp(command, "mesh") == 0) command_mesh(s, peer);
	else if (strcmp(command, "page") == 0) command_page(s, peer);
	else if (strcmp(command, "drain") == 0) command_drain(s, peer);
	else if (strcmp(command, "scale") == 0) command_scale(s, peer, request);
	else if (strcmp(command, "reload") == 0) serve_reload(s, peer);
	else control_fail(&s->control, peer, "the mesh knows no command %s; was another version started?", command);
}

int serve_open_control(struct serve *s, struct errbuf *err)
{
	return control_open(&s->control, &s->loop, s->mesh.ipc.path, &(struct control_events){s, on_command}, err);
}

void serve_close_control(struct serve *s)
{
	change_cancel(&s->change, "the mesh has ended");
	if (s->drain_peer) control_answer(&s->control, s->drain_peer, json_pack("{s:b, s:s}", "ok", 1, "text", "the mesh has ended"), -1);
	control_close(&s->control);
}
