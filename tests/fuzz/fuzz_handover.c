/* fuzz_handover.c - any datagrams in a frontend's inbox: only one of ours with a connected stream becomes a connection; whatever else
 * comes with a datagram is closed.
 *
 * An item of the input: a byte that says what comes along and whether the MAC is made right, a length, so many bytes. Seeds:
 * corpus/handover. */
#include "common/mem.h"
#include "frontend/handover.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FDS_MAX 3
#define DATAGRAM_MAX 255

enum { WITH_MAC = 1, WITH_FD = 2, WITH_MORE_FDS = 4, KIND_SHIFT = 3 };

static const uint8_t key[MAC_KEY_BYTES] = "fuzz";

struct end {
	uv_loop_t loop;
	struct handover *inbox;
	int inbox_fds[2];
	int stream[2], listening, datagram, null; /* what is sent along */
	uint32_t n_got;
};

static void on_connection(void *ctx, int fd, const struct handover_note *note)
{
	struct end *e = ctx;
	int type;
	socklen_t len = sizeof(type);

	CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM);
	close(fd);
	e->n_got++;
}

static struct end *end_open(void)
{
	static struct end e;
	struct handover_config c = {.ipc_dir = "/nowhere", .key = key};
	struct errbuf err;

	if (e.inbox) return &e;
	CHECK(uv_loop_init(&e.loop) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, e.inbox_fds) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e.stream) == 0);
	e.listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	e.datagram = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	e.null = open("/dev/null", O_RDWR | O_CLOEXEC);
	CHECK(e.listening >= 0 && e.datagram >= 0 && e.null >= 0);
	c.inbox_fd = e.inbox_fds[0];
	CHECK(handover_open(&e.inbox, &e.loop, &c, on_connection, &e, &err) == ST_OK);
	return &e;
}

/* True when it is a connection of ours. */
static bool throw_in(struct end *e, uint8_t how, const uint8_t *data, size_t len)
{
	const int kinds[] = {e->stream[0], e->listening, e->datagram, e->null};
	char control[CMSG_SPACE(FDS_MAX * sizeof(int))] __attribute__((aligned(8))) = {0};
	uint8_t bytes[DATAGRAM_MAX];
	struct iovec io = {bytes, len};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	uint32_t kind = how >> KIND_SHIFT, n = how & WITH_FD ? how & WITH_MORE_FDS ? FDS_MAX : 1 : 0;
	struct cmsghdr *c = (struct cmsghdr *)control;
	const uint32_t ours[2] = {1, 1}; /* HANDOVER_VERSION, HANDOVER_CONNECTION */

	memcpy(bytes, data, len);
	if (how & WITH_MAC && len >= MAC_BYTES) mac_make(bytes + len - MAC_BYTES, key, bytes, len - MAC_BYTES);
	if (n > 0) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		for (uint32_t i = 0; i < n; i++) memcpy(CMSG_DATA(c) + i * sizeof(int), &kinds[(kind + i) % ARRAY_LEN(kinds)], sizeof(int));
	}
	CHECK(sendmsg(e->inbox_fds[1], &m, MSG_NOSIGNAL) == (ssize_t)len);
	return how & WITH_MAC && n > 0 && kind % ARRAY_LEN(kinds) == 0 && len == 24 + MAC_BYTES && memcmp(data, ours, sizeof(ours)) == 0;
}

/* The lowest free descriptor: the same again when nothing was left open. */
static int next_fd(const struct end *e)
{
	int fd = dup(e->null);

	CHECK(fd >= 0);
	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct end *e = end_open();
	uint64_t n_dropped = handover_dropped(e->inbox);
	uint32_t n_sent = 0, n_ours = 0;
	int fd = next_fd(e);
	size_t at = 0, len;

	e->n_got = 0;
	while (at + 2 <= size && n_sent < 8) { /* net.unix.max_dgram_qlen is 10 */
		len = min_size(data[at + 1], size - at - 2);
		n_ours += throw_in(e, data[at], data + at + 2, len);
		n_sent++;
		at += 2 + len;
	}
	uv_run(&e->loop, UV_RUN_NOWAIT);
	CHECK(e->n_got == n_ours && handover_dropped(e->inbox) - n_dropped == n_sent - n_ours);
	CHECK(next_fd(e) == fd);
	return 0;
}
