/* control.c - see control.h. */
#include "sluice/control.h"

#include "common/child.h"
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void on_peer_closed(uv_handle_t *h)
{
	struct control_peer *p = h->data;

	p->used = false;
}

static void peer_close(struct control_peer *p)
{
	if (p->fd < 0) return;
	uv_poll_stop(&p->poll);
	close(p->fd);
	p->fd = -1;
	uv_close((uv_handle_t *)&p->poll, on_peer_closed);
}

static struct control_peer *control_peer(struct control *c, uint64_t id)
{
	for (size_t i = 0; i < ARRAY_LEN(c->peers); i++)
		if (c->peers[i].used && c->peers[i].fd >= 0 && c->peers[i].id == id) return &c->peers[i];
	return NULL;
}

/* ---- what is said ---- */

static void peer_send(struct control_peer *p, const json_t *packet, int fd)
{
	char *text = json_dumps(packet, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0;
	int rc = ST_INVALID;

	if (text && len <= CONTROL_ANSWER_MAX) rc = child_send_fd(p->fd, text, len, fd);
	free(text);
	if (rc == ST_OK) return;
	log_warning("an operator's command did not take its answer: %s", status_text(rc));
	peer_close(p);
}

void control_progress(struct control *c, uint64_t peer, const char *text)
{
	struct control_peer *p = control_peer(c, peer);
	json_t *packet;

	if (!p) return;
	packet = json_pack("{s:s}", "progress", text);
	if (packet) peer_send(p, packet, -1);
	json_decref(packet);
}

void control_answer(struct control *c, uint64_t peer, json_t *answer, int fd)
{
	struct control_peer *p = control_peer(c, peer);

	if (p) {
		p->asks = false;
		peer_send(p, answer, fd);
	}
	json_decref(answer);
}

void control_fail(struct control *c, uint64_t peer, const char *fmt, ...)
{
	struct errbuf text;
	json_t *answer;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	answer = json_pack("{s:b, s:s}", "ok", 0, "error", text.text);
	if (!answer) answer = json_pack("{s:b, s:s}", "ok", 0, "error", "the reason is no UTF-8"); /* a path's bytes */
	control_answer(c, peer, answer, -1);
}

/* ---- what is heard ---- */

static void peer_on_packet(struct control_peer *p, const char *data, size_t len)
{
	struct control *c = p->control;
	json_t *request = json_loadb(data, len, 0, NULL);
	const char *command = json_string_value(json_object_get(request, "command"));
	uint64_t id = p->id;

	if (p->asks || !command) {
		control_fail(c, id, "%s", p->asks ? "the request before this one has not been answered" : "expected {\"command\": ...}");
		peer_close(p);
	} else {
		p->asks = true;
		c->events.on_request(c->events.ctx, id, command, request);
	}
	json_decref(request);
}

static void on_peer_packet(uv_poll_t *h, int status, int events)
{
	struct control_peer *p = h->data;
	char packet[CONTROL_REQUEST_MAX];
	size_t len;
	int rc;

	if (p->fd < 0) return;
	rc = child_receive(p->fd, packet, sizeof(packet), &len, 0);
	if (rc == ST_OK) peer_on_packet(p, packet, len);
	else if (rc != ST_AGAIN && rc != ST_TIMEOUT) peer_close(p); /* its end, or a packet that is too long */
}

static bool may_command(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && (who.uid == geteuid() || who.uid == 0);
}

static struct control_peer *free_peer(struct control *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->peers); i++)
		if (!c->peers[i].used) return &c->peers[i];
	return NULL;
}

static void on_control_connection(uv_poll_t *h, int status, int events)
{
	struct control *c = h->data;
	struct control_peer *p = free_peer(c);
	int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) return;
	if (!p || !may_command(fd)) {
		static const char text[] = "{\"ok\":false,\"error\":\"too many commands are connected to this mesh\"}";

		if (!p) (void)!send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
		return;
	}
	*p = (struct control_peer){.control = c, .fd = fd, .used = true, .id = ++c->last_id};
	p->poll.data = p;
	CHECK(uv_poll_init(h->loop, &p->poll, fd) == 0);
	CHECK(uv_poll_start(&p->poll, UV_READABLE, on_peer_packet) == 0);
}

/* ---- life ---- */

int control_open(struct control *c, uv_loop_t *loop, const char *ipc_dir, const struct control_events *events, struct errbuf *err)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};

	*c = (struct control){.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), .events = *events};
	/* ipcdir.c leaves room for longer names than this one. */
	if (c->fd >= 0 && snprintf(un.sun_path, sizeof(un.sun_path), "%s/" CONTROL_NAME, ipc_dir) < (int)sizeof(un.sun_path) &&
	    bind(c->fd, (struct sockaddr *)&un, sizeof(un)) == 0 && listen(c->fd, CONTROL_PEERS_MAX) == 0) {
		c->poll.data = c;
		CHECK(uv_poll_init(loop, &c->poll, c->fd) == 0);
		CHECK(uv_poll_start(&c->poll, UV_READABLE, on_control_connection) == 0);
		return ST_OK;
	}
	err_set(err, ST_IO, "no control socket in %s: %s", ipc_dir, strerror(errno));
	if (c->fd >= 0) close(c->fd);
	c->fd = -1;
	return ST_IO;
}

void control_close(struct control *c)
{
	if (c->fd < 0) return;
	for (size_t i = 0; i < ARRAY_LEN(c->peers); i++)
		if (c->peers[i].used) peer_close(&c->peers[i]);
	uv_poll_stop(&c->poll);
	close(c->fd);
	c->fd = -1;
	uv_close((uv_handle_t *)&c->poll, NULL);
}
