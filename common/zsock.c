/* zsock.c - see zsock.h.
 *
 * Owns the sockets, what was read and is no whole message yet, and what waits to be written. A PULL socket has a connection (zconn) for each
 * PUSH that connected, a PUSH socket one, which it makes again until it is closed.
 *
 * A packet costs its MAC, two system calls and perhaps the wake-up of the other side, whatever is in it: several times what a short
 * message costs otherwise. So what is put in one pass of a loop goes as one. */
#include "common/zsock.h"

#include "common/list.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/strbuf.h"
#include "common/zmtp.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ZSOCK_MAC_BYTES 16
#define ZSOCK_LEN_BYTES 4             /* before each message of a packet, little-endian */
#define ZSOCK_PORTION 512             /* messages read a loop pass, about: a packet is not interrupted */
#define ZSOCK_PACKET_BYTES (64 * KIB) /* a packet that is longer than this takes no further message */
#define ZSOCK_READ_BYTES (64 * KIB)   /* room for a read, at least */
#define ZSOCK_RETRY_MS 10             /* a restarted executor binds its socket some ms after its epoch is announced */
#define ZSOCK_RETRY_MAX_MS 320        /* nobody may come any more */
#define ZSOCK_BACKLOG 512
#define ZSOCK_PEERS_MAX 1024

struct zctx {
	uint8_t key[ZSOCK_KEY_BYTES];
	size_t message_max;
};

/* A connection. It lives until the loop has closed its handle. */
struct zconn {
	struct list_link link; /* zsock.conns */
	struct zsock *sock;
	uv_poll_t poll;
	int fd, events;
	bool closing;
	bool behind; /* some of `in` is whole and has not been taken: nothing more is read, so the flood of a peer waits with the peer */
	struct zmtp proto;
	uint8_t *in; /* read, and not yet taken */
	size_t in_len, in_cap;
};

/* A packet as it is written, that waits for the other side. */
struct zpacket {
	struct list_link link; /* zsock.queue */
	size_t len, at;        /* at: written so far */
	uint8_t data[];
};

struct zsock {
	struct zctx *ctx;
	enum zmtp_role role;
	uv_loop_t *loop;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct list conns;
	uint32_t n_conns, n_handles; /* not yet closed: connections' and own */
	bool closing, warned;
	uv_timer_t retry; /* PUSH: to connect; PULL: to accept, after a want of descriptors */
	uint32_t retry_ms;
	struct zsock_stats stats;
	void *user;
	/* PULL */
	int listen_fd;
	uv_poll_t listen;
	uv_idle_t again; /* while somebody is behind, or it yields */
	bool yields;
	zsock_on_message on_message;
	/* PUSH */
	struct list queue;
	uint32_t n_queued, hwm;
	bool full;            /* a send was refused; on_ready is owed */
	struct strbuf packet; /* what was put and is not sent */
	uint32_t n_packet;    /* messages in it */
	void (*on_ready)(void *ctx);
};

struct zctx *zctx_new(const uint8_t key[ZSOCK_KEY_BYTES], size_t message_max)
{
	struct zctx *z = mem_new(struct zctx);

	CHECK(sodium_init() >= 0);
	z->message_max = message_max;
	memcpy(z->key, key, ZSOCK_KEY_BYTES);
	return z;
}

void zctx_free(struct zctx *z)
{
	if (!z) return;
	sodium_memzero(z->key, sizeof(z->key));
	free(z);
}

static void zsock_mac(const struct zctx *z, const void *data, size_t len, uint8_t mac[ZSOCK_MAC_BYTES])
{
	crypto_generichash(mac, ZSOCK_MAC_BYTES, data, len, z->key, ZSOCK_KEY_BYTES);
}

static size_t zctx_packet_max(const struct zctx *z)
{
	return ZSOCK_PACKET_BYTES + 2 * ZSOCK_LEN_BYTES + z->message_max;
}

/* Once a socket: a peer that does it again and again must not fill the log. */
#define zsock_warn(s, fmt, ...)                                                          \
	do {                                                                             \
		if (!(s)->warned) log_warning("%s: " fmt, (s)->path, __VA_ARGS__);       \
		(s)->warned = true;                                                      \
	} while (0)

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

static void zconn_watch(struct zconn *c, int events)
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
	c->sock->n_conns--;
	uv_close((uv_handle_t *)&c->poll, on_zconn_closed);
	close(c->fd);
}

/* The other side is gone, or of no use. A packet that it has a part of is lost; what waits behind it waits for the successor. */
static void zconn_lost(struct zconn *c)
{
	struct zsock *s = c->sock;
	struct list_link *first = list_first(&s->queue);

	zconn_close(c);
	if (s->role == ZMTP_PULL || s->closing) return;
	if (first && CONTAINER_OF(first, struct zpacket, link)->at > 0) {
		list_remove(&s->queue, first);
		s->n_queued--;
		free(CONTAINER_OF(first, struct zpacket, link));
	}
	zsock_retry(s);
}

static void zconn_new(struct zsock *s, int fd)
{
	struct zconn *c = mem_new(struct zconn);
	uint8_t hello[ZMTP_HELLO_BYTES];

	c->sock = s;
	c->fd = fd;
	zmtp_init(&c->proto, s->role, zctx_packet_max(s->ctx) + ZSOCK_MAC_BYTES + 2 * ZMTP_HEAD_BYTES);
	CHECK(uv_poll_init(s->loop, &c->poll, fd) == 0);
	c->poll.data = c;
	list_push_back(&s->conns, &c->link);
	s->n_conns++;
	s->n_handles++;
	zconn_watch(c, UV_READABLE);
	zmtp_hello(s->role, hello);
	/* A new socket has room for it. */
	if (send(fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(hello)) zconn_lost(c);
}

/* ---- receive ---- */

/* Gives on the messages of a packet; returns how many. Its maker had the key, so a length that does not fit is his mistake: the rest
 * is dropped and counted. */
static uint32_t zsock_unpack(struct zsock *s, const uint8_t *p, size_t len)
{
	uint32_t n = 0, n_bytes;

	while (len > 0 && !s->closing) {
		if (len >= ZSOCK_LEN_BYTES) memcpy(&n_bytes, p, ZSOCK_LEN_BYTES);
		if (len < ZSOCK_LEN_BYTES || n_bytes > len - ZSOCK_LEN_BYTES) {
			s->stats.dropped++;
			break;
		}
		s->stats.received++;
		s->on_message(s->user, p + ZSOCK_LEN_BYTES, n_bytes);
		p += ZSOCK_LEN_BYTES + n_bytes;
		len -= ZSOCK_LEN_BYTES + n_bytes;
		n++;
	}
	return n;
}

/* Returns how many messages were in it; what is dropped counts as one. */
static uint32_t zsock_take(struct zsock *s, const struct zmtp_message *m)
{
	uint8_t mac[ZSOCK_MAC_BYTES];

	if (m->n_parts == 2 && m->parts[1].len == ZSOCK_MAC_BYTES) {
		zsock_mac(s->ctx, m->parts[0].data, m->parts[0].len, mac);
		if (sodium_memcmp(mac, m->parts[1].data, ZSOCK_MAC_BYTES) == 0) return zsock_unpack(s, m->parts[0].data, m->parts[0].len);
	}
	s->stats.dropped++;
	return 1;
}

void zsock_yield(struct zsock *s)
{
	s->yields = true;
}

static void on_zsock_again(uv_idle_t *h);

/* Takes what is whole of what was read. Returns how many bytes the next thing needs; 0 when it stopped before. */
static size_t zconn_take(struct zconn *c, uint32_t *n)
{
	struct zsock *s = c->sock;
	struct errbuf err = {{0}};
	struct zmtp_message m;
	size_t at = 0, n_bytes;
	int rc = ST_OK;

	while (*n < ZSOCK_PORTION && !s->yields) {
		rc = zmtp_read(&c->proto, c->in + at, c->in_len - at, &m, &n_bytes, &err);
		if (rc != ST_OK) break;
		at += n_bytes;
		if (s->role == ZMTP_PULL) *n += m.n_parts > 0 ? zsock_take(s, &m) : 1;
		if (c->closing) return 0;
	}
	if (rc != ST_OK && rc != ST_AGAIN) {
		zsock_warn(s, "a peer %s; its connection is closed", err.text);
		s->stats.dropped++;
		zconn_lost(c);
		return 0;
	}
	c->in_len -= at;
	if (at > 0 && c->in_len > 0) memmove(c->in, c->in + at, c->in_len);
	c->behind = rc == ST_OK && c->in_len > 0;
	if (c->behind || s->yields) uv_idle_start(&s->again, on_zsock_again);
	return rc == ST_AGAIN ? n_bytes : 0;
}

/* Memory that a long message needed is not kept. */
static void zconn_trim(struct zconn *c)
{
	if (c->in_len > 0 || c->in_cap <= MIB) return;
	free(c->in);
	c->in = NULL;
	c->in_cap = 0;
}

/* A read that brings less than there was room for has brought everything. */
static void zconn_read(struct zconn *c)
{
	size_t need = 0, room;
	uint32_t n = 0;
	ssize_t got;

	do {
		mem_reserve(c->in, c->in_cap, max_size(c->in_len + ZSOCK_READ_BYTES, need));
		room = c->in_cap - c->in_len;
		got = recv(c->fd, c->in + c->in_len, room, MSG_DONTWAIT);
		if (got <= 0) {
			if (got == 0 || (errno != EAGAIN && errno != EINTR)) zconn_lost(c);
			return;
		}
		c->in_len += (size_t)got;
		need = zconn_take(c, &n);
	} while (need > 0 && (size_t)got == room);
	if (!c->closing) zconn_trim(c);
}

/* What was read in an earlier pass. */
static void on_zsock_again(uv_idle_t *h)
{
	struct zsock *s = h->data;

	s->yields = false;
	uv_idle_stop(h);
	LIST_EACH(&s->conns, l, next) {
		struct zconn *c = CONTAINER_OF(l, struct zconn, link);
		uint32_t n = 0;

		if (!c->behind) continue;
		if (zconn_take(c, &n) > 0) zconn_trim(c);
		if (s->closing) return;
	}
}

/* ---- send ---- */

static void zsock_drain(struct zsock *s)
{
	struct zconn *c = CONTAINER_OF(list_first(&s->conns), struct zconn, link);
	struct list_link *l;

	while ((l = list_first(&s->queue))) {
		struct zpacket *p = CONTAINER_OF(l, struct zpacket, link);
		ssize_t n = send(c->fd, p->data + p->at, p->len - p->at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			zconn_lost(c);
			return;
		}
		p->at += n > 0 ? (size_t)n : 0;
		if (p->at < p->len) break;
		list_remove(&s->queue, l);
		s->n_queued--;
		free(p);
	}
	zconn_watch(c, l ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

/* A full socket says so when half of its queue has gone. */
static void zsock_look(struct zsock *s)
{
	if (!s->full || s->n_queued > s->hwm / 2) return;
	s->full = false;
	zsock_flush(s);
	if (!s->full && s->on_ready) s->on_ready(s->user);
}

/* The other side may take packets. */
static bool zsock_is_up(const struct zsock *s)
{
	struct list_link *first = list_first(&s->conns);

	return first && CONTAINER_OF(first, struct zconn, link)->proto.up;
}

/* What of it the kernel takes at once; 0 when nothing can go now. */
static size_t zsock_write(struct zsock *s, const struct iovec *parts, size_t n_parts)
{
	struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n_parts};
	struct zconn *c;
	ssize_t n;

	if (s->n_queued > 0 || !zsock_is_up(s)) return 0;
	c = CONTAINER_OF(list_first(&s->conns), struct zconn, link);
	n = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n >= 0) return (size_t)n;
	if (errno != EAGAIN && errno != EINTR) zconn_lost(c);
	return 0;
}

static void zsock_queue(struct zsock *s, const struct iovec *parts, size_t n_parts, size_t len, size_t written)
{
	struct zpacket *p = mem_realloc(NULL, sizeof(*p) + len, 1);
	uint8_t *to = p->data;

	*p = (struct zpacket){.len = len, .at = written};
	for (size_t i = 0; i < n_parts; i++) {
		memcpy(to, parts[i].iov_base, parts[i].iov_len);
		to += parts[i].iov_len;
	}
	list_push_back(&s->queue, &p->link);
	s->n_queued++;
	if (zsock_is_up(s)) zconn_watch(CONTAINER_OF(list_first(&s->conns), struct zconn, link), UV_READABLE | UV_WRITABLE);
}

/* The packet as it is. At the high-water mark it stays, and `full` is set. */
static int zsock_send_packet(struct zsock *s)
{
	uint8_t heads[2][ZMTP_HEAD_BYTES], mac[ZSOCK_MAC_BYTES];
	struct iovec parts[] = {{heads[0], zmtp_head(heads[0], s->packet.len, true)}, {s->packet.data, s->packet.len},
				{heads[1], zmtp_head(heads[1], sizeof(mac), false)}, {mac, sizeof(mac)}};
	size_t len = 0, written;

	if (s->n_queued >= s->hwm) {
		s->full = true;
		return ST_AGAIN;
	}
	zsock_mac(s->ctx, s->packet.data, s->packet.len, mac);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) len += parts[i].iov_len;
	written = zsock_write(s, parts, ARRAY_LEN(parts));
	if (written < len) zsock_queue(s, parts, ARRAY_LEN(parts), len, written);
	s->stats.sent += s->n_packet;
	s->n_packet = 0;
	strbuf_reset(&s->packet);
	if (s->packet.cap > MIB) strbuf_release(&s->packet);
	return ST_OK;
}

static int zsock_append(struct zsock *s, const void *data, size_t len)
{
	uint32_t n_bytes = (uint32_t)len;

	if (s->closing) return ST_CLOSED;
	if (len > s->ctx->message_max) return ST_LIMIT;
	strbuf_append(&s->packet, &n_bytes, ZSOCK_LEN_BYTES);
	strbuf_append(&s->packet, data, len);
	CHECK(!s->packet.overflow);
	s->n_packet++;
	return ST_OK;
}

int zsock_put(struct zsock *s, const void *data, size_t len)
{
	if (s->packet.len > ZSOCK_PACKET_BYTES) zsock_flush(s);
	if (!s->full) return zsock_append(s, data, len);
	s->stats.refused_full++;
	return ST_AGAIN;
}

void zsock_flush(struct zsock *s)
{
	if (!s->closing && !s->full && s->n_packet > 0) (void)zsock_send_packet(s);
}

int zsock_send(struct zsock *s, const void *data, size_t len)
{
	int rc;

	CHECK(s->n_packet == 0);
	rc = zsock_append(s, data, len);
	if (rc == ST_OK) rc = zsock_send_packet(s);
	if (rc != ST_AGAIN) return rc;
	/* The message stays with its owner. */
	s->n_packet = 0;
	strbuf_reset(&s->packet);
	s->stats.refused_full++;
	return rc;
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
	if (s->n_queued > 0) zsock_drain(s);
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
	if (s->n_conns < ZSOCK_PEERS_MAX) {
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
