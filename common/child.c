/* child.c - see child.h. */
#include "common/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void *child_map(int fd, size_t *bytes, struct errbuf *err)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) != 0 || st.st_size <= 0) {
		err_set(err, ST_IO, "descriptor %d is no shared memory of the supervisor; start Sluice with `sluice serve`", fd);
		return NULL;
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		err_set(err, ST_IO, "cannot map descriptor %d: %s", fd, strerror(errno));
		return NULL;
	}
	*bytes = (size_t)st.st_size;
	return p;
}

void child_die_with_parent(void)
{
	struct pollfd p = {.fd = CHILD_FD_CONTROL, .events = POLLIN};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have died before the request: then the control socket has hung up. */
	if (poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) && !(p.revents & POLLIN)) _exit(EXIT_ORPHAN);
}

/* The first descriptor of the ancillary data, or -1; the others are closed. */
static int child_take_fd(struct msghdr *h)
{
	int first = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (first < 0) first = fd;
			else close(fd);
		}
	}
	return first;
}

static int child_receive_how(int fd, void *buf, size_t cap, size_t *len, int *passed, int how)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec io = {buf, cap};
	struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n;

	*passed = -1;
	do {
		n = recvmsg(fd, &h, how | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ST_AGAIN;
	if (n < 0) return errno == ECONNRESET ? ST_CLOSED : ST_IO;
	*passed = child_take_fd(&h);
	*len = (size_t)n;
	if (n > 0 && !(h.msg_flags & MSG_TRUNC)) return ST_OK;
	if (*passed >= 0) close(*passed); /* empty datagrams can carry one, too */
	*passed = -1;
	return n > 0 ? ST_LIMIT : ST_CLOSED;
}

int child_receive_fd(int fd, void *buf, size_t cap, size_t *len, int *passed)
{
	return child_receive_how(fd, buf, cap, len, passed, MSG_DONTWAIT);
}

int child_await_fd(int fd, void *buf, size_t cap, size_t *len, int *passed)
{
	return child_receive_how(fd, buf, cap, len, passed, 0);
}

int child_receive(int fd, void *buf, size_t cap, size_t *len, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n;
	int rc;

	do {
		rc = poll(&p, 1, timeout_ms);
	} while (rc < 0 && errno == EINTR);
	if (rc == 0) return ST_TIMEOUT;
	do {
		n = recv(fd, buf, cap, MSG_TRUNC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ST_AGAIN;
	if (n < 0 && errno != ECONNRESET) return ST_IO;
	if (n <= 0) return ST_CLOSED;
	if ((size_t)n > cap) return ST_LIMIT;
	*len = (size_t)n;
	return ST_OK;
}

int child_send(int fd, const void *data, size_t len)
{
	return child_send_fd(fd, data, len, -1);
}

int child_send_fd(int fd, const void *data, size_t len, int passed)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
	struct iovec io = {(void *)data, len};
	struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};
	ssize_t n;

	if (passed >= 0) {
		struct cmsghdr *c;

		h.msg_control = control;
		h.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &passed, sizeof(passed));
	}
	do {
		n = sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)len) return ST_OK;
	if (errno == EAGAIN || errno == EWOULDBLOCK) return ST_AGAIN;
	return errno == EPIPE || errno == ECONNRESET ? ST_CLOSED : ST_IO;
}
