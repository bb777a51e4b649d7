/* ipcdir.c - see ipcdir.h. */
#include "sluice/ipcdir.h"

#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longest name of a socket in it: "/frontend-65535-255"; what sockaddr_un takes is 107. */
#define IPCDIR_SOCKET_NAME_MAX 24
#define IPCDIR_SOCKET_PATH_MAX 107

/* Removes a flat folder: files and sockets, no subfolders are ever made in it. */
static void ipcdir_remove(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d) return;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(path);
}

/* True when `path` is a folder of ours whose supervisor is gone. */
static bool ipcdir_is_stale(const char *path)
{
	char lock[520]; /* path and "/lock" */
	struct stat st;
	bool stale;
	int fd;

	if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid()) return false;
	if (snprintf(lock, sizeof(lock), "%s/lock", path) >= (int)sizeof(lock)) return false;
	fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) return false; /* being made by another supervisor right now, or not ours */
	stale = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return stale;
}

void ipcdir_each(const char *base, void (*visit)(void *ctx, const char *path), void *ctx)
{
	DIR *d = opendir(base);
	struct dirent *e;

	if (!d) return;
	while ((e = readdir(d))) {
		char path[512];

		if (strncmp(e->d_name, IPCDIR_PREFIX, strlen(IPCDIR_PREFIX)) != 0) continue;
		if (snprintf(path, sizeof(path), "%s/%s", base, e->d_name) < (int)sizeof(path)) visit(ctx, path);
	}
	closedir(d);
}

static void ipcdir_remove_stale(void *ctx, const char *path)
{
	if (!ipcdir_is_stale(path)) return;
	log_info("removing %s, left by a supervisor that is gone", path);
	ipcdir_remove(path);
}

/* Waits for the supervisor's end in a process of its own. It keeps nothing but the pipe and the standard descriptors. */
static void janitor_run(const char *path, int fd)
{
	char byte;

	prctl(PR_SET_NAME, "sluice-janitor");
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	while (read(fd, &byte, 1) < 0 && errno == EINTR) continue;
	ipcdir_remove(path);
	_exit(0);
}

static int janitor_start(struct ipcdir *d, struct errbuf *err)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0) return err_set(err, ST_IO, "no pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return err_set(err, ST_IO, "cannot fork: %s", strerror(errno));
	}
	if (pid == 0) {
		/* Else the lock and the listening sockets would outlive the supervisor. */
		if (fds[0] > 3) close_range(3, (unsigned)fds[0] - 1, 0);
		close_range((unsigned)fds[0] + 1, UINT_MAX, 0);
		janitor_run(d->path, fds[0]);
	}
	close(fds[0]);
	d->janitor_fd = fds[1];
	d->janitor_pid = pid;
	return ST_OK;
}

static const char *ipcdir_base(const char *base)
{
	if (base[0]) return base;
	base = getenv("XDG_RUNTIME_DIR");
	if (base && base[0] && access(base, W_OK) == 0) return base;
	base = getenv("TMPDIR");
	return base && base[0] ? base : "/tmp";
}

size_t ipcdir_bases(const char *base, const char *out[IPCDIR_BASES_MAX])
{
	const char *found[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
	size_t n = 0;

	if (base[0]) {
		out[n++] = base;
		return n;
	}
	for (size_t i = 0; i < ARRAY_LEN(found); i++) {
		bool known = !found[i] || !found[i][0];

		for (size_t k = 0; k < n; k++) known = known || strcmp(out[k], found[i]) == 0;
		if (!known) out[n++] = found[i];
	}
	return n;
}

int ipcdir_open(struct ipcdir *d, const char *base, struct errbuf *err)
{
	char lock[128];
	int rc;

	d->lock_fd = d->janitor_fd = d->janitor_pid = -1;
	base = ipcdir_base(base);
	if (strlen(base) + strlen("/" IPCDIR_PREFIX "XXXXXX") + IPCDIR_SOCKET_NAME_MAX > IPCDIR_SOCKET_PATH_MAX ||
	    strlen(base) + strlen("/" IPCDIR_PREFIX "XXXXXX") >= sizeof(d->path))
		return err_set(err, ST_INVALID,
			       "folder %s has a path of %zu bytes, too long for sockets in it (%d at most); set --ipc-dir to a shorter one",
			       base, strlen(base),
			       IPCDIR_SOCKET_PATH_MAX - IPCDIR_SOCKET_NAME_MAX - (int)strlen("/" IPCDIR_PREFIX "XXXXXX"));
	ipcdir_each(base, ipcdir_remove_stale, NULL);
	snprintf(d->path, sizeof(d->path), "%s/" IPCDIR_PREFIX "XXXXXX", base);
	if (!mkdtemp(d->path))
		return err_set(err, ST_IO, "cannot make a folder for sockets in %s: %s; set --ipc-dir", base, strerror(errno));
	snprintf(lock, sizeof(lock), "%s/lock", d->path);
	d->lock_fd = open(lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0 || flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		rc = err_set(err, ST_IO, "cannot lock %s: %s", lock, strerror(errno));
		ipcdir_close(d);
		return rc;
	}
	rc = janitor_start(d, err);
	if (rc != ST_OK) ipcdir_close(d);
	return rc;
}

void ipcdir_close(struct ipcdir *d)
{
	ipcdir_remove(d->path);
	if (d->janitor_fd >= 0) close(d->janitor_fd);
	if (d->janitor_pid > 0)
		while (waitpid(d->janitor_pid, NULL, 0) < 0 && errno == EINTR) continue;
	if (d->lock_fd >= 0) close(d->lock_fd);
}
