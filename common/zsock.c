/* zsock.c - see zsock.h. The only file that includes zmq.h.
 *
 * ZMQ_FD signals edges: it becomes readable once when something changed, and may then stay silent although messages wait.
 * So every wake-up is followed by a look at ZMQ_EVENTS, and reading goes on until EAGAIN. A flood is read in portions: when a
 * portion is full, an idle handle continues in the next loop pass.
 *
 * A packet costs its MAC, a handful of system calls and the wake-up of ZeroMQ's thread here and there, whatever is in it: several
 * times what a short message costs otherwise. So what is put in one pass of a loop goes as one. */
#include "common/zsock.h"

#include "common/log.h"
#include "common/mem.h"
#include "common/strbuf.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#define ZSOCK_MAC_BYTES 16
#define ZSOCK_LEN_BYTES 4         /* before each message of a packet, little-endian */
#define ZSOCK_PORTION 512        /* messages read a loop pass, about: a packet is not interrupted */
#define ZSOCK_PACKET_BYTES (64 * KIB) /* a packet that is longer than this takes no further message */
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
	bool yields; /* the rest is read in the next pass */
	struct strbuf packet; /* of PUSH: what was put and is not sent */
	uint32_t n_packet;    /* messages in it */
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

/* Gives on the messages of a packet; returns how many. Its maker had the key, so a length that does not fit is his mistake: the rest
 * is dropped and counted. */
static uint32_t zsock_unpack(struct zsock *s, const uint8_t *p, size_t len)
{
	uint32_t n = 0, n_bytes;

	while (len > 0 && !s->closing) {
		if (len >= ZSOCK_LEN_BYTES) memcpy(&n_bytes, p, ZSOCK_LEN_BYTES);
		if (len < ZSOCK_LEN_BYTES || n_bytes > len - ZSOCK_LEN_BYTES) {
			s->stats.bad_mac++;
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

/* One packet: adds its messages to *n. False when there is none. */
static bool zsock_receive(struct zsock *s, uint32_t *n)
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
		*n += zsock_unpack(s, zmq_msg_data(&body), zmq_msg_size(&body));
	} else {
		s->stats.bad_mac++;
		*n += 1;
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

static void zsock_read(struct zsock *s)
{
	uint32_t n = 0;

	while (n < ZSOCK_PORTION && !s->yields && !s->closing && zsock_receive(s, &n)) continue;
	if (s->closing) return;
	if (n >= ZSOCK_PORTION || s->yields) uv_idle_start(&s->again, on_zsock_again);
	else uv_idle_stop(&s->again);
}

/* Also quiets the descriptor of a socket that only sends. */
static void zsock_look(struct zsock *s)
{
	if (!(zsock_events(s) & ZMQ_POLLOUT) || !s->full) return;
	s->full = false;
	zsock_flush(s);
	if (!s->full && s->on_ready) s->on_ready(s->user);
}

void zsock_poll(struct zsock *s)
{
	if (s->closing) return;
	if (s->on_message) zsock_read(s);
	else if (s->full) zsock_look(s);
}

void zsock_yield(struct zsock *s)
{
	s->yields = true;
}

static void on_zsock_again(uv_idle_t *h)
{
	struct zsock *s = h->data;

	s->yields = false;
	zsock_poll(s);
}

static void on_zsock_poll(uv_poll_t *h, int status, int events)
{
	struct zsock *s = h->data;

	if (s->closing) return;
	if (s->on_message) zsock_read(s);
	else zsock_look(s);
}

/* ---- open and close ---- */

static void zsock_set_int(void *zmq, int option, int value)
{
	CHECK(zmq_setsockopt(zmq, option, &value, sizeof(value)) == 0);
}

static int zsock_new(struct zsock **out, struct zctx *z, int type, uint32_t hwm)
{
	struct zsock *s = mem_new(struct zsock);
	int64_t max = (int64_t)(ZSOCK_PACKET_BYTES + 2 * ZSOCK_LEN_BYTES + z->message_max);

	s->ctx = z;
	strbuf_init(&s->packet, (size_t)max);
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
	strbuf_release(&s->packet);
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

/* The packet as it is. What ZeroMQ does not take stays, and `full` is set. */
static int zsock_send_packet(struct zsock *s)
{
	uint8_t mac[ZSOCK_MAC_BYTES];
	int rc;

	if (zmq_send(s->zmq, s->packet.data, s->packet.len, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
		s->full = true;
		return ST_AGAIN;
	}
	zsock_mac(s->ctx, s->packet.data, s->packet.len, mac);
	/* The later parts of a message always fit where its first part went. */
	rc = zmq_send(s->zmq, mac, sizeof(mac), ZMQ_DONTWAIT) < 0 ? ST_IO : ST_OK;
	if (rc == ST_OK) s->stats.sent += s->n_packet;
	s->full = false;
	s->n_packet = 0;
	strbuf_reset(&s->packet);
	if (s->packet.cap > MIB) strbuf_release(&s->packet);
	return rc;
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
	if (s->closing || s->full || s->n_packet == 0) return;
	if (zsock_send_packet(s) == ST_IO) log_error("a packet of messages was not sent: %s", zmq_strerror(errno));
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

void zsock_stats(const struct zsock *s, struct zsock_stats *out)
{
	*out = s->stats;
}
