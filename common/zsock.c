/* zsock.c - see zsock.h. The only file that includes zmq.h.
 *
 * ZMQ_FD signals edges: it becomes readable once when something changed, and may then stay silent although messages wait.
 * So every wake-up and every send is followed by a look at ZMQ_EVENTS, and reading goes on until EAGAIN. A flood is read in
 * portions: when a portion is full, an idle handle continues in the next loop pass. */
#include "common/zsock.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#define ZSOCK_MAC_BYTES 16
#define ZSOCK_PORTION 512        /* messages read a loop pass */
#define ZSOCK_RECONNECT_MS 10    /* a restarted executor binds its socket some ms after its epoch is announced */

struct zctx {
	void *zmq;
	uint8_t key[ZSOCK_KEY_BYTES];
	size_t message_max;
};

struct zsock {
	struct zctx *ctx;
	void *zmq;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of a bound socket; "" for PUSH */
	uv_poll_t poll;
	uv_idle_t again;
	int n_open; /* handles not yet closed */
	bool closing;
	bool full;  /* a send was refused; on_ready is owed */
	zsock_on_message on_message;
	void (*on_ready)(void *ctx);
	void *user;
	struct zsock_stats stats;
};

struct zctx *zctx_new(const uint8_t key[ZSOCK_KEY_BYTES], size_t message_max)
{
	struct zctx *z = mem_new(struct zctx);

	CHECK(sodium_init() >= 0);
	z->zmq = zmq_ctx_new();
	CHECK(z->zmq);
	memcpy(z->key, key, ZSOCK_KEY_BYTES);
	z->message_max = message_max;
	return z;
}

void zctx_free(struct zctx *z)
{
	if (!z) return;
	while (zmq_ctx_term(z->zmq) != 0 && errno == EINTR) continue;
	sodium_memzero(z->key, sizeof(z->key));
	free(z);
}

static void zsock_mac(const struct zctx *z, const void *data, size_t len, uint8_t mac[ZSOCK_MAC_BYTES])
{
	crypto_generichash(mac, ZSOCK_MAC_BYTES, data, len, z->key, ZSOCK_KEY_BYTES);
}

/* ---- receive ---- */

/* Reads the frames that follow until the message ends; they belong to nothing we know. */
static void zsock_skip_rest(struct zsock *s)
{
	zmq_msg_t f;
	int more = 1;

	while (more) {
		zmq_msg_init(&f);
		if (zmq_msg_recv(&f, s->zmq, ZMQ_DONTWAIT) < 0) more = 0;
		else more = zmq_msg_more(&f);
		zmq_msg_close(&f);
	}
}

/* One message. False when there is none. */
static bool zsock_receive(struct zsock *s)
{
	uint8_t mac[ZSOCK_MAC_BYTES];
	zmq_msg_t body, tag;
	bool good = false;

	zmq_msg_init(&body);
	zmq_msg_init(&tag);
	if (zmq_msg_recv(&body, s->zmq, ZMQ_DONTWAIT) < 0) {
		zmq_msg_close(&body);
		zmq_msg_close(&tag);
		return false;
	}
	if (zmq_msg_more(&body) && zmq_msg_recv(&tag, s->zmq, ZMQ_DONTWAIT) >= 0) {
		if (zmq_msg_more(&tag)) {
			zsock_skip_rest(s);
		} else if (zmq_msg_size(&tag) == ZSOCK_MAC_BYTES) {
			zsock_mac(s->ctx, zmq_msg_data(&body), zmq_msg_size(&body), mac);
			good = sodium_memcmp(mac, zmq_msg_data(&tag), ZSOCK_MAC_BYTES) == 0;
		}
	}
	if (good) {
		s->stats.received++;
		s->on_message(s->user, zmq_msg_data(&body), zmq_msg_size(&body));
	} else {
		s->stats.bad_mac++;
	}
	zmq_msg_close(&body);
	zmq_msg_close(&tag);
	return true;
}

static int zsock_events(struct zsock *s)
{
	int events = 0;
	size_t size = sizeof(events);

	if (zmq_getsockopt(s->zmq, ZMQ_EVENTS, &events, &size) != 0) return 0;
	return events;
}

static void on_zsock_again(uv_idle_t *h);

void zsock_poll(struct zsock *s)
{
	int n = 0;

	if (s->closing) return;
	if (s->on_message) {
		while (n < ZSOCK_PORTION && !s->closing && zsock_receive(s)) n++;
		if (s->closing) return;
		if (n == ZSOCK_PORTION) uv_idle_start(&s->again, on_zsock_again);
		else uv_idle_stop(&s->again);
		return;
	}
	if ((zsock_events(s) & ZMQ_POLLOUT) && s->full) {
		s->full = false;
		if (s->on_ready) s->on_ready(s->user);
	}
}

static void on_zsock_again(uv_idle_t *h)
{
	zsock_poll(h->data);
}

static void on_zsock_poll(uv_poll_t *h, int status, int events)
{
	zsock_poll(h->data);
}

/* ---- open and close ---- */

static void zsock_set_int(void *zmq, int option, int value)
{
	CHECK(zmq_setsockopt(zmq, option, &value, sizeof(value)) == 0);
}

static int zsock_new(struct zsock **out, struct zctx *z, int type, uint32_t hwm)
{
	struct zsock *s = mem_new(struct zsock);
	int64_t max = (int64_t)z->message_max;

	s->ctx = z;
	s->zmq = zmq_socket(z->zmq, type);
	if (!s->zmq) {
		free(s);
		return ST_IO;
	}
	zsock_set_int(s->zmq, ZMQ_LINGER, 0);
	zsock_set_int(s->zmq, ZMQ_SNDHWM, (int)hwm);
	zsock_set_int(s->zmq, ZMQ_RCVHWM, (int)hwm);
	zsock_set_int(s->zmq, ZMQ_RECONNECT_IVL, ZSOCK_RECONNECT_MS);
	CHECK(zmq_setsockopt(s->zmq, ZMQ_MAXMSGSIZE, &max, sizeof(max)) == 0);
	*out = s;
	return ST_OK;
}

static int zsock_open(struct zsock *s, uv_loop_t *loop, const char *path, bool bind, struct errbuf *err)
{
	char address[sizeof(s->path) + 8];
	size_t size = sizeof(uv_os_sock_t);
	uv_os_sock_t fd;
	int rc;

	if (strlen(path) >= sizeof(s->path))
		return err_set(err, ST_INVALID, "socket path %s is %zu bytes long, %zu are allowed; choose a shorter --ipc-dir", path,
			       strlen(path), sizeof(s->path) - 1);
	snprintf(address, sizeof(address), "ipc://%s", path);
	if (bind) unlink(path);
	rc = bind ? zmq_bind(s->zmq, address) : zmq_connect(s->zmq, address);
	if (rc != 0) return err_set(err, ST_IO, "cannot %s %s: %s", bind ? "bind" : "connect to", address, zmq_strerror(errno));
	if (bind) snprintf(s->path, sizeof(s->path), "%s", path);
	if (zmq_getsockopt(s->zmq, ZMQ_FD, &fd, &size) != 0)
		return err_set(err, ST_IO, "no descriptor for %s: %s", address, zmq_strerror(errno));
	CHECK(uv_poll_init(loop, &s->poll, (int)fd) == 0);
	CHECK(uv_idle_init(loop, &s->again) == 0);
	s->n_open = 2;
	s->poll.data = s->again.data = s;
	CHECK(uv_poll_start(&s->poll, UV_READABLE, on_zsock_poll) == 0);
	zsock_poll(s); /* what arrived before the descriptor was watched gives no edge */
	return ST_OK;
}

static void zsock_discard(struct zsock *s)
{
	zmq_close(s->zmq);
	free(s);
}

int zsock_open_pull(struct zsock **out, struct zctx *z, uv_loop_t *loop, const char *path, uint32_t hwm,
		    zsock_on_message on_message, void *ctx, struct errbuf *err)
{
	struct zsock *s;
	int rc = zsock_new(&s, z, ZMQ_PULL, hwm);

	if (rc != ST_OK) return err_set(err, rc, "no ZeroMQ socket: %s", zmq_strerror(errno));
	s->on_message = on_message;
	s->user = ctx;
	rc = zsock_open(s, loop, path, true, err);
	if (rc != ST_OK) {
		zsock_discard(s);
		return rc;
	}
	*out = s;
	return ST_OK;
}

int zsock_open_push(struct zsock **out, struct zctx *z, uv_loop_t *loop, const char *path, uint32_t hwm,
		    void (*on_ready)(void *ctx), void *ctx, struct errbuf *err)
{
	struct zsock *s;
	int rc = zsock_new(&s, z, ZMQ_PUSH, hwm);

	if (rc != ST_OK) return err_set(err, rc, "no ZeroMQ socket: %s", zmq_strerror(errno));
	s->on_ready = on_ready;
	s->user = ctx;
	rc = zsock_open(s, loop, path, false, err);
	if (rc != ST_OK) {
		zsock_discard(s);
		return rc;
	}
	*out = s;
	return ST_OK;
}

static void on_zsock_handle_closed(uv_handle_t *h)
{
	struct zsock *s = h->data;

	if (--s->n_open > 0) return;
	zmq_close(s->zmq); /* only now: the loop must not watch a descriptor that ZeroMQ has closed */
	if (s->path[0]) unlink(s->path);
	free(s);
}

void zsock_close(struct zsock *s)
{
	if (!s || s->closing) return;
	s->closing = true;
	uv_close((uv_handle_t *)&s->poll, on_zsock_handle_closed);
	uv_close((uv_handle_t *)&s->again, on_zsock_handle_closed);
}

/* ---- send ---- */

int zsock_send(struct zsock *s, const void *data, size_t len)
{
	uint8_t mac[ZSOCK_MAC_BYTES];

	if (s->closing) return ST_CLOSED;
	if (len > s->ctx->message_max) return ST_LIMIT;
	if (zmq_send(s->zmq, data, len, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
		s->full = true;
		s->stats.refused_full++;
		return ST_AGAIN;
	}
	zsock_mac(s->ctx, data, len, mac);
	/* The later parts of a message always fit where its first part went. */
	if (zmq_send(s->zmq, mac, sizeof(mac), ZMQ_DONTWAIT) < 0) return ST_IO;
	s->stats.sent++;
	s->full = false;
	if (!s->on_message) (void)zsock_events(s); /* a send may swallow the edge of the descriptor */
	return ST_OK;
}

void zsock_stats(const struct zsock *s, struct zsock_stats *out)
{
	*out = s->stats;
}
