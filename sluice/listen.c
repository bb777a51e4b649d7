/* listen.c - see listen.h. */
#include "sluice/listen.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_resolve(const char *host, uint16_t port, struct sockaddr_storage *addr, socklen_t *len, struct errbuf *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host[0] ? host : NULL, service, &hints, &found);
	if (rc != 0) return err_set(err, ST_INVALID, "--host %s: %s", host, gai_strerror(rc));
	memcpy(addr, found->ai_addr, found->ai_addrlen);
	*len = found->ai_addrlen;
	freeaddrinfo(found);
	return ST_OK;
}

static void listen_set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET6) ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
	else ((struct sockaddr_in *)addr)->sin_port = htons(port);
}

static uint16_t listen_get_port(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
	return ntohs(((const struct sockaddr_in *)addr)->sin_port);
}

static int in_use(const char *host, uint16_t port, struct errbuf *err)
{
	return err_set(err, ST_EXISTS, "address %s port %u is in use by another server; stop it or choose another --port", host, port);
}

#define LISTEN_LOCK_TRIES 500
#define LISTEN_LOCK_PAUSE_US 10000 /* 5 s in all: far longer than another Sluice needs for its sockets */

/* Waits for the lock on the port; *fd is closed to give it up. */
static int listen_lock(int *fd, uint16_t port, struct errbuf *err)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "sluice-port-%u", port);
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);

	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0) return err_set(err, ST_IO, "no socket: %s", strerror(errno));
	for (int i = 0; i < LISTEN_LOCK_TRIES; i++) {
		if (bind(*fd, (struct sockaddr *)&un, len) == 0) return ST_OK;
		if (errno != EADDRINUSE) break;
		usleep(LISTEN_LOCK_PAUSE_US);
	}
	err_set(err, ST_IO, "cannot lock port %u: %s", port, strerror(errno));
	close(*fd);
	return ST_IO;
}

static int listen_socket(const struct sockaddr_storage *addr, socklen_t len, bool share, int *out, struct errbuf *err)
{
	int one = 1, zero = 0, fd;

	fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) return err_set(err, ST_IO, "no socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)); /* connections in TIME_WAIT do not count */
	if (share) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (addr->ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, (const struct sockaddr *)addr, len) != 0) {
		int rc = errno == EADDRINUSE ? ST_EXISTS : errno == EACCES ? ST_DENIED : ST_IO;

		err_set(err, rc, "%s", strerror(errno));
		close(fd);
		return rc;
	}
	*out = fd;
	return ST_OK;
}

/* A plain bind and listen: fails when any other socket listens there, with or without SO_REUSEPORT. Also finds a free port
 * when 0 was asked for. */
static int listen_probe(struct sockaddr_storage *addr, socklen_t len, struct errbuf *err)
{
	socklen_t size = len;
	int fd, rc;

	rc = listen_socket(addr, len, false, &fd, err);
	if (rc != ST_OK) return rc;
	if (listen(fd, 1) != 0) rc = errno == EADDRINUSE ? ST_EXISTS : ST_IO;
	if (rc == ST_OK && getsockname(fd, (struct sockaddr *)addr, &size) != 0) rc = ST_IO;
	if (rc != ST_OK) err_set(err, rc, "%s", strerror(errno));
	close(fd);
	return rc;
}

static void listen_describe(struct listen *l, const char *scheme, const char *host)
{
	bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || !host[0];
	bool v6 = !any && strchr(host, ':');

	snprintf(l->text, sizeof(l->text), "%s://%s%s%s:%u", scheme, v6 ? "[" : "", any ? "127.0.0.1" : host, v6 ? "]" : "", l->port);
}

int listen_add(struct listen *l, struct errbuf *err)
{
	int fd, rc = listen_socket(&l->addr, l->addr_len, true, &fd, err);

	if (rc == ST_OK && listen(fd, LISTEN_BACKLOG) != 0) {
		rc = err_set(err, ST_IO, "%s", strerror(errno));
		close(fd);
	}
	if (rc != ST_OK) return err_prefix(err, rc, "cannot listen on port %u", l->port);
	mem_reserve(l->fds, l->fds_cap, (size_t)l->n + 1);
	l->fds[l->n++] = fd;
	return ST_OK;
}

int listen_open(struct listen *l, const char *scheme, const char *host, uint16_t port, uint32_t n, struct errbuf *err)
{
	int rc, lock_fd;

	*l = (struct listen){0};
	rc = listen_resolve(host, port, &l->addr, &l->addr_len, err);
	if (rc != ST_OK) return rc;
	rc = listen_lock(&lock_fd, port, err);
	if (rc != ST_OK) return rc;
	rc = listen_probe(&l->addr, l->addr_len, err);
	if (rc == ST_EXISTS) rc = in_use(host, port, err);
	else if (rc != ST_OK) err_prefix(err, rc, "cannot listen on %s port %u", host, port);
	if (rc != ST_OK) goto fail;
	l->port = listen_get_port(&l->addr);
	listen_set_port(&l->addr, l->port);
	while (l->n < n && rc == ST_OK) rc = listen_add(l, err);
	if (rc != ST_OK) goto fail;
	listen_describe(l, scheme, host);
	close(lock_fd);
	return ST_OK;
fail:
	close(lock_fd);
	listen_close(l);
	return rc;
}

int listen_fd(const struct listen *l, uint32_t ix)
{
	return l->fds[ix];
}

/* ---- UNIX sockets ---- */

/* Two servers that start at once must not take the same file for stale: the folder is locked from the look at it until we listen. */
static int unix_lock(const char *path, int *fd, struct errbuf *err)
{
	const char *slash = strrchr(path, '/');
	char folder[108] = ".";

	if (slash) snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	*fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0) return err_set(err, ST_IO, "--uds %s: its folder: %s", path, strerror(errno));
	for (int i = 0; i < LISTEN_LOCK_TRIES; i++) {
		if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return ST_OK;
		if (errno != EWOULDBLOCK) break;
		usleep(LISTEN_LOCK_PAUSE_US);
	}
	err_set(err, ST_IO, "--uds %s: cannot lock its folder: %s", path, strerror(errno));
	close(*fd);
	return ST_IO;
}

/* Makes way when what is there is the file of a dead server. */
static int unix_clear(const char *path, const struct sockaddr_un *un, int fd, struct errbuf *err)
{
	struct stat st;

	if (lstat(path, &st) != 0) return errno == ENOENT ? ST_OK : err_set(err, ST_IO, "--uds %s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode)) return err_set(err, ST_EXISTS, "--uds %s: there is something that is no socket", path);
	if (connect(fd, (const struct sockaddr *)un, sizeof(*un)) == 0 || errno == EAGAIN)
		return err_set(err, ST_EXISTS, "--uds %s: another server listens there; stop it or choose another path", path);
	if (errno != ECONNREFUSED) return err_set(err, ST_IO, "--uds %s: %s", path, strerror(errno));
	if (unlink(path) != 0) return err_set(err, ST_IO, "--uds %s: cannot remove the file of a dead server: %s", path, strerror(errno));
	return ST_OK;
}

static int unix_socket(struct listen *l, const char *path, struct errbuf *err)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), probe, rc;
	struct stat st;

	if (fd < 0) return err_set(err, ST_IO, "no socket: %s", strerror(errno));
	l->fds[l->n++] = fd;
	if (strlen(path) >= sizeof(un.sun_path)) return err_set(err, ST_INVALID, "--uds %s: longer than %zu bytes", path, sizeof(un.sun_path) - 1);
	memcpy(un.sun_path, path, strlen(path) + 1);
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = unix_clear(path, &un, probe, err);
	if (probe >= 0) close(probe);
	if (rc != ST_OK) return rc;
	if (bind(fd, (struct sockaddr *)&un, sizeof(un)) != 0) return err_set(err, ST_IO, "--uds %s: %s", path, strerror(errno));
	memcpy(l->path, path, strlen(path) + 1); /* ours from here on: listen_close() removes it */
	if (stat(path, &st) != 0) return err_set(err, ST_IO, "--uds %s: %s", path, strerror(errno));
	l->file_id[0] = st.st_dev;
	l->file_id[1] = st.st_ino;
	if (chmod(path, 0666) != 0 || listen(fd, LISTEN_BACKLOG) != 0) return err_set(err, ST_IO, "--uds %s: %s", path, strerror(errno));
	return ST_OK;
}

int listen_open_unix(struct listen *l, const char *path, struct errbuf *err)
{
	int rc, lock_fd;

	*l = (struct listen){0};
	rc = unix_lock(path, &lock_fd, err);
	if (rc != ST_OK) return rc;
	l->fds = mem_array(int, 1);
	rc = unix_socket(l, path, err);
	close(lock_fd);
	snprintf(l->text, sizeof(l->text), "unix:%s", path);
	if (rc != ST_OK) listen_close(l);
	return rc;
}

static void unix_remove(const struct listen *l)
{
	struct stat st;

	if (lstat(l->path, &st) == 0 && st.st_dev == l->file_id[0] && st.st_ino == l->file_id[1]) unlink(l->path);
}

void listen_close(struct listen *l)
{
	if (l->path[0]) unix_remove(l); /* before it is closed: a successor that finds it dead would take its place */
	for (uint32_t i = 0; i < l->n; i++) close(l->fds[i]);
	free(l->fds);
	*l = (struct listen){0};
}
