/* handover.c - see handover.h. */
#include "frontend/handover.h"

#include "common/child.h"
#include "common/log.h"
#include "common/mem.h"
#include "proto/boot.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HANDOVER_VERSION 1
#define HANDOVER_PORTION 64 /* datagrams read a loop pass */

enum handover_kind { HANDOVER_CONNECTION = 1 };

/* Both ends are on one machine and of one build, or the version differs. Not the addressee: the supervisor passes on what is left in the
 * inbox of a frontend that is gone. */
struct handover_packet {
	uint32_t version, kind;
	uint32_t from;
	struct handover_note note;
	uint8_t mac[MAC_BYTES]; /* over all before it */
};
_Static_assert(sizeof(struct handover_packet) == 3 * 4 + 12 + MAC_BYTES, "no padding: every byte is sent, and under the MAC");

struct handover {
	struct handover_config config;
	handover_on_connection on_connection;
	void *ctx;
	uv_poll_t poll;
	int send_fd;
	uint64_t dropped;
};

static void on_inbox(uv_poll_t *p, int status, int events);

int handover_open(struct handover **out, uv_loop_t *loop, const struct handover_config *c, handover_on_connection on_connection, void *ctx,
		  struct errbuf *err)
{
	struct handover *h;
	int type = 0, fd;
	socklen_t len = sizeof(type);

	if (getsockopt(c->inbox_fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_DGRAM)
		return err_set(err, ST_INVALID, "no inbox at descriptor %d", c->inbox_fd);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) return err_set(err, ST_IO, "no socket for connections that go to siblings: %s", strerror(errno));
	h = mem_new(struct handover);
	h->config = *c;
	h->on_connection = on_connection;
	h->ctx = ctx;
	h->send_fd = fd;
	h->poll.data = h;
	CHECK(uv_poll_init(loop, &h->poll, c->inbox_fd) == 0);
	CHECK(uv_poll_start(&h->poll, UV_READABLE, on_inbox) == 0);
	*out = h;
	return ST_OK;
}

static size_t handover_signed_bytes(void)
{
	return offsetof(struct handover_packet, mac);
}

int handover_send(struct handover *h, uint32_t to, int fd, const struct handover_note *note)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
	struct handover_packet p = {.version = HANDOVER_VERSION, .kind = HANDOVER_CONNECTION, .from = h->config.self, .note = *note};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct iovec io = {&p, sizeof(p)};
	struct msghdr m = {.msg_name = &addr, .msg_namelen = sizeof(addr), .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	mac_make(p.mac, h->config.key, &p, handover_signed_bytes());
	boot_inbox_path(h->config.ipc_dir, to, addr.sun_path, sizeof(addr.sun_path));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(h->send_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(p)) return ST_OK;
	/* ETOOMANYREFS: so many descriptors are under way as this user may have open. */
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS || errno == EINTR ? ST_AGAIN : ST_CLOSED;
}

/* ---- the inbox ---- */

static bool handover_is_ours(const struct handover *h, const struct handover_packet *p, size_t len)
{
	return len == sizeof(*p) && p->version == HANDOVER_VERSION && p->kind == HANDOVER_CONNECTION &&
	       mac_is(p->mac, h->config.key, p, handover_signed_bytes());
}

/* One whose client has reset it on the way is none any more, either. */
static bool is_connected_stream(int fd)
{
	int type = 0, listens = 1;
	struct sockaddr_storage peer;
	socklen_t len = sizeof(int), peer_len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM) return false;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0 || listens) return false;
	return getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0;
}

/* Reads up to n datagrams; false: the inbox was empty before. */
static bool handover_read(struct handover *h, uint32_t n)
{
	struct handover_packet p;

	while (n-- > 0) {
		size_t len = 0;
		int fd = -1, rc = child_receive_fd(h->config.inbox_fd, &p, sizeof(p), &len, &fd);

		if (rc == ST_AGAIN || rc == ST_IO) return false;
		if (rc == ST_OK && fd >= 0 && handover_is_ours(h, &p, len) && is_connected_stream(fd)) {
			h->on_connection(h->ctx, fd, &p.note);
			continue;
		}
		if (fd >= 0) close(fd);
		h->dropped++;
	}
	return true;
}

static void on_inbox(uv_poll_t *p, int status, int events)
{
	handover_read(p->data, HANDOVER_PORTION); /* the rest makes the loop call again */
}

void handover_shut(struct handover *h)
{
	/* Who has checked that we serve before we said that we do not may send until here; after it the kernel refuses. */
	shutdown(h->config.inbox_fd, SHUT_RD);
	while (handover_read(h, HANDOVER_PORTION)) continue;
	uv_poll_stop(&h->poll);
}

static void on_handover_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void handover_close(struct handover *h)
{
	if (!h) return;
	uv_close((uv_handle_t *)&h->poll, on_handover_closed);
	close(h->config.inbox_fd);
	close(h->send_fd);
}

uint64_t handover_dropped(const struct handover *h)
{
	return h->dropped;
}
