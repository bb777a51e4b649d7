/* zsock.c - see zsock.h.
 *
 * Owns the sockets, what was read and is no whole message yet, and what waits to be written. A PULL socket has a connection (zconn) for each
 * PUSH that connected, a PUSH socket one, which it makes again until it is closed. */
#include "common/zsock_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ZSOCK_RETRY_MS 10             /* a restarted executor binds its socket some ms after its epoch is announced */
#define ZSOCK_RETRY_MAX_MS 320        /* nobody may come any more */
#define ZSOCK_BACKLOG 512
#define ZSOCK_PEERS_MAX 1024

struct zctx *zctx_new(const uint8_t key[MAC_KEY_BYTES], size_t message_max)
{
	struct zctx *z = mem_new(struct zctx);

	CHECK(sodium_init() >= 0);
	z->message_max = message_max;
	memcpy(z->key, key, MAC_KEY_BYTES);
	return z;
}

void zctx_free(struct zctx *z)
{
	if (!z) return;
	sodium_memzero(z->key, sizeof(z->key));
	free(z);
}

/* ---- connections ---- */

static void zsock_release(struct zsock *s)
{
	struct list_link *l;

	while ((l = list_pop_front(&s->queue))) free(CONTAINER_OF(l, struct zpacket, link));
	strbuf_release(&s->packet);
	free(s);
}

static void zsock_handle_closed(struct zsock *s)
{
	if (--s->n_handles == 0 && s->closing) zsock_release(s);
}

static void on_zsock_closed(uv_handle_t *h)
{
	zsock_handle_closed(h->data);
}

static void on_zconn_closed(uv_handle_t *h)
{
	struct zconn *c = h->data;
	struct zsock *s = c->sock;

	free(c->in);
	free(c);
	zsock_handle_closed(s);
}

static void on_zconn(uv_poll_t *h, int status, int events);
static void on_zsock_retry(uv_timer_t *t);

static void zsock_retry(struct zsock *s)
{
	uv_timer_start(&s->retry, on_zsock_retry, s->retry_ms, 0);
	s->retry_ms = min_u32(2 * s->retry_ms, ZSOCK_RETRY_MAX_MS);
}

void zconn_watch(struct zconn *c, int events)
{
	if (c->events == events) return;
	c->events = events;
	CHECK(uv_poll_start(&c->poll, events, on_zconn) == 0);
}

static void zconn_close(struct zconn *c)
{
	if (c->closing) return;
	c->closing = true;
	list_remove(&c->sock->conns, &c->link);
	uv_close((uv_handle_t *)&c->poll, on_zconn_closed);
	close(c->fd);
}

/* A packet that it has a part of is lost; what waits behind it waits for the successor. */
void zconn_lost(struct zconn *c)
{
	struct zsock *s = c->sock;
	struct list_link *first = list_first(&s->queue);

	zconn_close(c);
	if (s->role == ZMTP_PULL || s->closing) return;
	if (first && CONTAINER_OF(first, struct zpacket, link)->at > 0) zsock_drop_first(s);
	zsock_retry(s);
}

static void zconn_new(struct zsock *s, int fd)
{
	struct zconn *c = mem_new(struct zconn);
	uint8_t hello[ZMTP_HELLO_BYTES];

	c->sock = s;
	c->fd = fd;
	zmtp_init(&c->proto, s->role, zctx_packet_max(s->ctx) + MAC_BYTES + 2 * ZMTP_HEAD_BYTES);
	CHECK(uv_poll_init(s->loop, &c->poll, fd) == 0);
	c->poll.data = c;
	list_push_back(&s->conns, &c->link);
	s->n_handles++;
	zconn_watch(c, UV_READABLE);
	zmtp_hello(s->role, hello);
	/* A new socket has room for it. */
	if (send(fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(hello)) zconn_lost(c);
}

/* ---- events of the loop ---- */

static void on_zconn(uv_poll_t *h, int status, int events)
{
	struct zconn *c = h->data;
	struct zsock *s = c->sock;

	if (status < 0) zconn_lost(c);
	else if (events & UV_READABLE && !c->behind && !s->yields) zconn_read(c);
	if (c->closing || s->role == ZMTP_PULL || !c->proto.up) return;
	s->retry_ms = ZSOCK_RETRY_MS;
	if (s->queue.len > 0) zsock_drain(c);
	zsock_look(s);
}

static void on_zsock_accept(uv_poll_t *h, int status, int events)
{
	struct zsock *s = h->data;
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		zsock_warn(s, "cannot accept a connection: %s; trying again", strerror(errno));
		uv_poll_stop(h); /* else the loop would spin */
		zsock_retry(s);
	}
	if (fd < 0) return;
	s->retry_ms = ZSOCK_RETRY_MS;
	if (s->conns.len < ZSOCK_PEERS_MAX) {
		zconn_new(s, fd);
		return;
	}
	zsock_warn(s, "more than %d connections are closed", ZSOCK_PEERS_MAX);
	close(fd);
}

static void zsock_connect(struct zsock *s)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memcpy(to.sun_path, s->path, sizeof(to.sun_path));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
		zconn_new(s, fd);
		return;
	}
	if (fd >= 0) close(fd);
	zsock_retry(s);
}

static void on_zsock_retry(uv_timer_t *t)
{
	struct zsock *s = t->data;

	if (s->role == ZMTP_PUSH) zsock_connect(s);
	else CHECK(uv_poll_start(&s->listen, UV_READABLE, on_zsock_accept) == 0);
}

/* ---- open and close ---- */

static int zsock_new(struct zsock **out, struct zctx *z, uv_loop_t *loop, enum zmtp_role role, const char *path, struct errbuf *err)
{
	struct zsock *s;

	if (strlen(path) >= sizeof(s->path))
		return err_set(err, ST_INVALID, "socket path %s is %zu bytes long, %zu are allowed; choose a shorter --ipc-dir", path,
			       strlen(path), sizeof(s->path) - 1);
	s = mem_new(struct zsock);
	s->ctx = z;
	s->loop = loop;
	s->role = role;
	memcpy(s->path, path, strlen(path));
	s->retry_ms = ZSOCK_RETRY_MS;
	list_init(&s->conns);
	list_init(&s->queue);
	strbuf_init(&s->packet, zctx_packet_max(z));
	*out = s;
	return ST_OK;
}

static int zsock_listen(struct zsock *s, struct errbuf *err)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	memcpy(at.sun_path, s->path, sizeof(at.sun_path));
	s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->listen_fd < 0) return err_set(err, ST_IO, "no socket for %s: %s", s->path, strerror(errno));
	unlink(s->path);
	if (bind(s->listen_fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(s->listen_fd, ZSOCK_BACKLOG) == 0) return ST_OK;
	err_set(err, ST_IO, "cannot bind %s: %s", s->path, strerror(errno));
	close(s->listen_fd);
	return ST_IO;
}

int zsock_open_pull(struct zsock **out, struct zctx *z, uv_loop_t *loop, const char *path, zsock_on_message on_message, void *ctx,
		    struct errbuf *err)
{
	struct zsock *s;
	int rc = zsock_new(&s, z, loop, ZMTP_PULL, path, err);

	if (rc != ST_OK) return rc;
	s->on_message = on_message;
	s->user = ctx;
	rc = zsock_listen(s, err);
	if (rc != ST_OK) {
		zsock_release(s);
		return rc;
	}
	CHECK(uv_poll_init(loop, &s->listen, s->listen_fd) == 0);
	CHECK(uv_idle_init(loop, &s->again) == 0);
	CHECK(uv_timer_init(loop, &s->retry) == 0);
	s->n_handles = 3;
	s->listen.data = s->again.data = s->retry.data = s;
	CHECK(uv_poll_start(&s->listen, UV_READABLE, on_zsock_accept) == 0);
	*out = s;
	return ST_OK;
}

int zsock_open_push(struct zsock **out, struct zctx *z, uv_loop_t *loop, const char *path, uint32_t hwm,
		    void (*on_ready)(void *ctx), void *ctx, struct errbuf *err)
{
	struct zsock *s;
	int rc = zsock_new(&s, z, loop, ZMTP_PUSH, path, err);

	if (rc != ST_OK) return rc;
	s->hwm = hwm;
	s->on_ready = on_ready;
	s->user = ctx;
	CHECK(uv_timer_init(loop, &s->retry) == 0);
	s->retry.data = s;
	s->n_handles = 1;
	zsock_connect(s);
	*out = s;
	return ST_OK;
}

void zsock_close(struct zsock *s)
{
	struct list_link *l;

	if (!s || s->closing) return;
	s->closing = true;
	while ((l = list_first(&s->conns))) zconn_close(CONTAINER_OF(l, struct zconn, link));
	uv_close((uv_handle_t *)&s->retry, on_zsock_closed);
	if (s->role == ZMTP_PUSH) return;
	unlink(s->path);
	uv_close((uv_handle_t *)&s->listen, on_zsock_closed);
	uv_close((uv_handle_t *)&s->again, on_zsock_closed);
	close(s->listen_fd);
}

void zsock_stats(const struct zsock *s, struct zsock_stats *out)
{
	*out = s->stats;
}
