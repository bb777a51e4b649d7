/* zsock_out.c - what a socket sends: messages into packets, and packets to the kernel or, while it takes no more, into a queue up to the
 * high-water mark (see zsock.h).
 *
 * A packet costs its MAC, two system calls and perhaps the wake-up of the other side, whatever is in it: several times what a short
 * message costs otherwise. So what is put in one pass of a loop goes as one. */
#include "common/zsock_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define ZSOCK_QUEUE_BYTES (64 * MIB) /* and the packet that goes beyond it */

void zsock_drop_first(struct zsock *s)
{
	struct zpacket *p = CONTAINER_OF(list_pop_front(&s->queue), struct zpacket, link);

	s->queued_bytes -= p->len;
	free(p);
}

void zsock_drain(struct zconn *c)
{
	struct zsock *s = c->sock;
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
		zsock_drop_first(s);
	}
	zconn_watch(c, l ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

void zsock_look(struct zsock *s)
{
	if (!s->full || s->queue.len > s->hwm / 2 || s->queued_bytes > ZSOCK_QUEUE_BYTES / 2) return;
	s->full = false;
	zsock_flush(s);
	if (!s->full && s->on_ready) s->on_ready(s->user);
}

/* The connection, when packets may go there; else NULL. */
static struct zconn *zsock_peer(const struct zsock *s)
{
	struct list_link *first = list_first(&s->conns);
	struct zconn *c = first ? CONTAINER_OF(first, struct zconn, link) : NULL;

	return c && c->proto.up ? c : NULL;
}

/* What of it the kernel takes at once; 0 when nothing can go now. */
static size_t zsock_write(struct zsock *s, const struct iovec *parts, size_t n_parts)
{
	struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n_parts};
	struct zconn *c = zsock_peer(s);
	ssize_t n;

	if (s->queue.len > 0 || !c) return 0;
	n = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n >= 0) return (size_t)n;
	if (errno != EAGAIN && errno != EINTR) zconn_lost(c);
	return 0;
}

static void zsock_queue(struct zsock *s, const struct iovec *parts, size_t n_parts, size_t len, size_t written)
{
	struct zpacket *p = mem_realloc(NULL, sizeof(*p) + len, 1);
	uint8_t *to = p->data;
	struct zconn *c;

	*p = (struct zpacket){.len = len, .at = written};
	for (size_t i = 0; i < n_parts; i++) {
		memcpy(to, parts[i].iov_base, parts[i].iov_len);
		to += parts[i].iov_len;
	}
	list_push_back(&s->queue, &p->link);
	s->queued_bytes += len;
	c = zsock_peer(s);
	if (c) zconn_watch(c, UV_READABLE | UV_WRITABLE);
}

/* A packet of n messages, in two pieces (the second may be empty). At the high-water mark it does not go, and `full` is set. */
static int zsock_send_packet(struct zsock *s, const struct iovec body[2], uint32_t n)
{
	uint8_t heads[2][ZMTP_HEAD_BYTES], mac[MAC_BYTES];
	struct iovec parts[] = {{heads[0], zmtp_head(heads[0], body[0].iov_len + body[1].iov_len, true)}, body[0], body[1],
				{heads[1], zmtp_head(heads[1], sizeof(mac), false)}, {mac, sizeof(mac)}};
	size_t len = 0, written;

	if (s->queue.len >= s->hwm || s->queued_bytes >= ZSOCK_QUEUE_BYTES) {
		s->full = true;
		return ST_AGAIN;
	}
	mac_make_of(mac, s->ctx->key, body, 2);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) len += parts[i].iov_len;
	written = zsock_write(s, parts, ARRAY_LEN(parts));
	if (written < len) zsock_queue(s, parts, ARRAY_LEN(parts), len, written);
	s->stats.sent += n;
	return ST_OK;
}

int zsock_put(struct zsock *s, const void *data, size_t len)
{
	uint32_t n_bytes = (uint32_t)len;

	if (s->packet.len > ZSOCK_PACKET_BYTES) zsock_flush(s);
	if (s->full) {
		s->stats.refused_full++;
		return ST_AGAIN;
	}
	if (s->closing) return ST_CLOSED;
	if (len > s->ctx->message_max) return ST_LIMIT;
	strbuf_append(&s->packet, &n_bytes, ZSOCK_LEN_BYTES);
	strbuf_append(&s->packet, data, len);
	CHECK(!s->packet.overflow);
	s->n_packet++;
	return ST_OK;
}

void zsock_flush(struct zsock *s)
{
	const struct iovec body[2] = {{s->packet.data, s->packet.len}, {&s->packet, 0}};

	if (s->closing || s->full || s->n_packet == 0 || zsock_send_packet(s, body, s->n_packet) != ST_OK) return;
	s->n_packet = 0;
	strbuf_reset(&s->packet);
	if (s->packet.cap > MIB) strbuf_release(&s->packet);
}

/* Without a copy, where the kernel takes it at once. */
int zsock_send(struct zsock *s, const void *data, size_t len)
{
	uint32_t n_bytes = (uint32_t)len;
	const struct iovec body[2] = {{&n_bytes, ZSOCK_LEN_BYTES}, {(void *)(uintptr_t)data, len}};
	int rc;

	CHECK(s->n_packet == 0);
	if (s->closing) return ST_CLOSED;
	if (len > s->ctx->message_max) return ST_LIMIT;
	rc = zsock_send_packet(s, body, 1);
	s->stats.refused_full += rc == ST_AGAIN;
	return rc;
}
