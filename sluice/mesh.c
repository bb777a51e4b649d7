/* mesh.c - see mesh.h. */
#include "sluice/mesh.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MESH_INBOX_PACKET_MAX 4096 /* frontend/handover.c sends far less */

/* A memfd of `bytes`, mapped at *map. */
static int mesh_memory(const char *name, size_t bytes, int *fd, void **map, struct errbuf *err)
{
	*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)bytes) != 0)
		return err_set(err, ST_IO, "cannot make shared memory of %zu bytes: %s", bytes, strerror(errno));
	*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (*map != MAP_FAILED) return ST_OK;
	*map = NULL;
	return err_set(err, ST_IO, "cannot map shared memory: %s", strerror(errno));
}

static int mesh_ring(const char *name, size_t data_bytes, uint32_t n_readers, int *fd, void **map, struct errbuf *err)
{
	int rc = mesh_memory(name, ring_mem_bytes(data_bytes), fd, map, err);

	if (rc == ST_OK) ring_format(*map, data_bytes, n_readers);
	return rc;
}

static int mesh_reply_ring(struct mesh *m, uint32_t rank, struct errbuf *err)
{
	void *map;
	int rc = mesh_ring("sluice-replies", LIMIT_REPLY_RING_BYTES, 1, &m->reply_fds[rank], &map, err);

	if (rc != ST_OK) return rc;
	munmap(map, ring_mem_bytes(LIMIT_REPLY_RING_BYTES)); /* the supervisor never looks into it */
	m->event_fds[rank] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return m->event_fds[rank] >= 0 ? ST_OK : err_set(err, ST_IO, "no eventfd: %s", strerror(errno));
}

static int mesh_shared(struct mesh *m, struct errbuf *err)
{
	void *page;
	int rc = mesh_memory("sluice-page", sizeof(struct page), &m->page_fd, &page, err);

	if (rc != ST_OK) return rc;
	m->page = page;
	page_format(m->page, m->n_frontends, m->n_workers);
	rc = mesh_ring("sluice-steps", LIMIT_STEP_RING_BYTES, m->n_workers, &m->step_fd, &m->step_mem, err);
	if (rc == ST_OK) rc = ring_attach(&m->steps, m->step_mem, ring_mem_bytes(LIMIT_STEP_RING_BYTES), -1, err);
	for (uint32_t i = 0; i < m->n_workers && rc == ST_OK; i++) rc = mesh_reply_ring(m, i, err);
	return rc;
}

int mesh_open(struct mesh *m, const struct config *config, uint32_t n_frontends, uint32_t n_workers, struct errbuf *err)
{
	int rc;

	*m = (struct mesh){.config = config, .n_frontends = n_frontends, .n_workers = n_workers, .page_fd = -1, .step_fd = -1};
	CHECK(sodium_init() >= 0);
	randombytes_buf(m->key, sizeof(m->key));
	m->reply_fds = mem_array(int, n_workers);
	m->event_fds = mem_array(int, n_workers);
	for (uint32_t i = 0; i < n_workers; i++) m->reply_fds[i] = m->event_fds[i] = -1;
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) m->inbox_fds[i] = -1;
	m->ipc.lock_fd = m->ipc.janitor_fd = m->ipc.janitor_pid = -1;
	/* The port first: it is what fails most often, and nothing has to be undone then. */
	rc = config->uds[0] ? listen_open_unix(&m->listen, config->uds, err)
			    : listen_open(&m->listen, config->ssl_certfile[0] ? "https" : "http", config->host, (uint16_t)config->port, n_frontends, err);
	if (rc == ST_OK) rc = ipcdir_open(&m->ipc, config->ipc_dir, err);
	if (rc == ST_OK) rc = mesh_shared(m, err);
	if (rc != ST_OK) mesh_close(m);
	return rc;
}

int mesh_open_inbox(struct mesh *m, uint32_t frontend, struct errbuf *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;

	if (m->inbox_fds[frontend] >= 0) return ST_OK;
	boot_inbox_path(m->ipc.path, frontend, addr.sun_path, sizeof(addr.sun_path)); /* ipcdir_open() has seen to its length */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
		m->inbox_fds[frontend] = fd;
		return ST_OK;
	}
	err_set(err, ST_IO, "no inbox for frontend %u (%s): %s", frontend, addr.sun_path, strerror(errno));
	if (fd >= 0) close(fd);
	return ST_IO;
}

/* A copy of the oldest packet, with its descriptor, to `to`; it is taken out when that was sent. */
static int forward_packet(int from, const struct sockaddr_un *to)
{
	char buf[MESH_INBOX_PACKET_MAX], control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec io = {buf, sizeof(buf)};
	struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(from, &h, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC), sent;
	struct cmsghdr *c;
	int error;

	if (n < 0) return errno == EINTR ? ST_OK : ST_NOT_FOUND;
	if (n == 0 && h.msg_controllen == 0) return ST_NOT_FOUND; /* what a socket that is shut down says when it is empty */
	c = CMSG_FIRSTHDR(&h);
	h.msg_name = (void *)(uintptr_t)to;
	h.msg_namelen = sizeof(*to);
	io.iov_len = (size_t)n;
	sent = h.msg_flags & MSG_TRUNC ? -1 : sendmsg(from, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
	error = h.msg_flags & MSG_TRUNC ? EMSGSIZE : errno;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) close(*(int *)(void *)CMSG_DATA(c));
	if (sent < 0 && (error == EAGAIN || error == EINTR || error == ENOBUFS)) return ST_AGAIN;
	if (sent < 0) log_warning("a connection could not be handed to a sibling: %s", strerror(error));
	return recv(from, buf, 0, MSG_DONTWAIT) >= 0 ? ST_OK : ST_NOT_FOUND;
}

int mesh_forward_inbox(struct mesh *m, uint32_t frontend, uint32_t sibling)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = m->inbox_fds[frontend], rc = ST_OK;

	if (fd < 0) return ST_OK;
	boot_inbox_path(m->ipc.path, sibling, to.sun_path, sizeof(to.sun_path));
	shutdown(fd, SHUT_RD); /* who sends now learns it, and can be sure that what was taken before is not lost */
	while (rc == ST_OK) rc = forward_packet(fd, &to);
	return rc == ST_NOT_FOUND ? ST_OK : rc;
}

void mesh_close_inbox(struct mesh *m, uint32_t frontend)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];

	if (m->inbox_fds[frontend] < 0) return;
	boot_inbox_path(m->ipc.path, frontend, path, sizeof(path));
	unlink(path);
	close(m->inbox_fds[frontend]);
	m->inbox_fds[frontend] = -1;
}

void mesh_close(struct mesh *m)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) mesh_close_inbox(m, i);
	listen_close(&m->listen);
	apikeys_release(&m->keys);
	if (m->ipc.janitor_pid > 0) ipcdir_close(&m->ipc);
	m->ipc.janitor_pid = -1;
	if (m->page) munmap(m->page, sizeof(struct page));
	m->page = NULL;
	ring_free(m->steps);
	m->steps = NULL;
	if (m->step_mem) munmap(m->step_mem, ring_mem_bytes(LIMIT_STEP_RING_BYTES));
	m->step_mem = NULL;
	for (uint32_t i = 0; i < m->n_workers; i++) {
		if (m->reply_fds[i] >= 0) close(m->reply_fds[i]);
		if (m->event_fds[i] >= 0) close(m->event_fds[i]);
	}
	if (m->page_fd >= 0) close(m->page_fd);
	if (m->step_fd >= 0) close(m->step_fd);
	free(m->reply_fds);
	free(m->event_fds);
	m->reply_fds = m->event_fds = NULL;
	m->n_workers = 0;
	sodium_memzero(m->key, sizeof(m->key));
}
