/* acceptor.c - see acceptor.h. */
#include "frontend/acceptor.h"

#include "common/list.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTOR_PAUSE_MS 100
#define ACCEPTOR_PORTION 64   /* a pass: existing connections are not starved by a flood */
#define ACCEPTOR_BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

struct acceptor {
	uv_loop_t *loop;
	struct acceptor_events events;
	struct list listeners;
	uv_timer_t pause; /* accepting again */
	int spare_fd;
	int n_handles;    /* of listeners and the timer, not closed yet */
	void (*on_closed)(void *ctx);
	void *closed_ctx;
};

struct acceptor_socket {
	struct acceptor *acceptor;
	uint32_t id;
	int fd;
	uv_poll_t poll;
	struct list_link in_listeners;
};

static void on_acceptable(uv_poll_t *p, int status, int events);

static void acceptor_handle_closed(struct acceptor *a)
{
	void (*on_closed)(void *ctx) = a->on_closed;
	void *ctx = a->closed_ctx;

	if (--a->n_handles > 0) return;
	if (a->spare_fd >= 0) close(a->spare_fd);
	free(a);
	if (on_closed) on_closed(ctx);
}

struct acceptor *acceptor_open(uv_loop_t *loop, const struct acceptor_events *events)
{
	struct acceptor *a = mem_new(struct acceptor);

	a->loop = loop;
	a->events = *events;
	a->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	a->n_handles = 1;
	list_init(&a->listeners);
	uv_timer_init(loop, &a->pause);
	a->pause.data = a;
	return a;
}

static struct acceptor_socket *acceptor_find(struct acceptor *a, uint32_t id)
{
	LIST_EACH(&a->listeners, l, next) {
		struct acceptor_socket *s = CONTAINER_OF(l, struct acceptor_socket, in_listeners);

		if (s->id == id) return s;
	}
	return NULL;
}

int acceptor_add(struct acceptor *a, uint32_t id, int fd, struct errbuf *err)
{
	struct acceptor_socket *s;
	int rc = ST_OK;

	if (acceptor_find(a, id)) rc = err_set(err, ST_EXISTS, "listening socket %u is there already", id);
	else if (a->listeners.len >= ACCEPTOR_LISTENERS_MAX) rc = err_set(err, ST_LIMIT, "too many listening sockets");
	else if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 || listen(fd, ACCEPTOR_BACKLOG) != 0)
		rc = err_set(err, ST_IO, "cannot listen: %s", strerror(errno));
	s = rc == ST_OK ? mem_new(struct acceptor_socket) : NULL;
	if (s && uv_poll_init(a->loop, &s->poll, fd) != 0) {
		rc = err_set(err, ST_IO, "the listening socket cannot be polled");
		free(s);
	}
	if (rc != ST_OK) {
		close(fd);
		return rc;
	}
	s->acceptor = a;
	s->id = id;
	s->fd = fd;
	s->poll.data = s;
	a->n_handles++;
	list_push_back(&a->listeners, &s->in_listeners);
	uv_poll_start(&s->poll, UV_READABLE, on_acceptable);
	return ST_OK;
}

static void on_socket_closed(uv_handle_t *h)
{
	struct acceptor_socket *s = h->data;
	struct acceptor *a = s->acceptor;

	free(s);
	acceptor_handle_closed(a);
}

static void acceptor_drop(struct acceptor_socket *s)
{
	list_remove(&s->acceptor->listeners, &s->in_listeners);
	uv_close((uv_handle_t *)&s->poll, on_socket_closed); /* the loop has forgotten the descriptor when this returns */
	close(s->fd);
}

int acceptor_remove(struct acceptor *a, uint32_t id)
{
	struct acceptor_socket *s = acceptor_find(a, id);

	if (!s) return ST_NOT_FOUND;
	acceptor_drop(s);
	return ST_OK;
}

void acceptor_remove_all(struct acceptor *a)
{
	LIST_EACH(&a->listeners, l, next) acceptor_drop(CONTAINER_OF(l, struct acceptor_socket, in_listeners));
}

static void on_pause_closed(uv_handle_t *h)
{
	acceptor_handle_closed(h->data);
}

void acceptor_close(struct acceptor *a, void (*on_closed)(void *ctx), void *ctx)
{
	a->on_closed = on_closed;
	a->closed_ctx = ctx;
	acceptor_remove_all(a);
	uv_close((uv_handle_t *)&a->pause, on_pause_closed);
}

/* ---- accepting ---- */

static void on_pause_over(uv_timer_t *timer)
{
	struct acceptor *a = timer->data;

	if (a->spare_fd < 0) a->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	LIST_EACH(&a->listeners, l, next)
		uv_poll_start(&CONTAINER_OF(l, struct acceptor_socket, in_listeners)->poll, UV_READABLE, on_acceptable);
}

/* One that is added meanwhile begins at once; it pauses when it fails, too. */
static void acceptor_pause(struct acceptor *a)
{
	LIST_EACH(&a->listeners, l, next) uv_poll_stop(&CONTAINER_OF(l, struct acceptor_socket, in_listeners)->poll);
	uv_timer_start(&a->pause, on_pause_over, ACCEPTOR_PAUSE_MS, 0);
}

/* Out of descriptors: the spare one makes room to answer one client. */
static void accept_with_spare(struct acceptor *a, int listen_fd)
{
	int fd;

	if (a->spare_fd >= 0) {
		close(a->spare_fd);
		fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) a->events.on_no_room(a->events.ctx, fd);
		a->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && a->spare_fd >= 0) return;
	}
	acceptor_pause(a);
}

static void on_acceptable(uv_poll_t *p, int status, int events)
{
	struct acceptor_socket *s = p->data;
	struct acceptor *a = s->acceptor;
	int i, fd;

	for (i = 0; i < ACCEPTOR_PORTION; i++) {
		fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			a->events.on_accepted(a->events.ctx, fd);
			continue;
		}
		if (errno == EAGAIN) return;
		if (errno == EMFILE || errno == ENFILE) accept_with_spare(a, s->fd);
		else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) acceptor_pause(a); /* out of memory, ... */
		if (!uv_is_active((uv_handle_t *)p)) return;
	}
}
