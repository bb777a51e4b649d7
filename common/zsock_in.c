/* zsock_in.c - what a socket reads: bytes into messages (zmtp.h), packets whose MAC is right into calls of on_message. A flood is taken in
 * portions: what was read and is left goes on in the loop's next pass (see zsock.h). */
#include "common/zsock_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define ZSOCK_PORTION 512             /* messages read a loop pass, about: a packet is not interrupted */
#define ZSOCK_READ_BYTES (64 * KIB)   /* room for a read, at least */

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
	if (m->n_parts == 2 && m->parts[1].len == MAC_BYTES && mac_is(m->parts[1].data, s->ctx->key, m->parts[0].data, m->parts[0].len))
		return zsock_unpack(s, m->parts[0].data, m->parts[0].len);
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
void zconn_read(struct zconn *c)
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
