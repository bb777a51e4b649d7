/* program.c - see program.h. */
#include "sluice/program.h"

#include "common/clock.h"
#include "proto/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int program_find(char *out, size_t cap, const char *name, struct errbuf *err)
{
	const char *dir = getenv("SLUICE_BIN_DIR");
	char self[512], *slash;
	ssize_t n;

	if (!dir || !dir[0]) {
		n = readlink("/proc/self/exe", self, sizeof(self) - 1);
		if (n <= 0)
			return err_set(err, ST_IO, "cannot find this program's folder: %s; set SLUICE_BIN_DIR",
				       strerror(errno));
		self[n] = 0;
		slash = strrchr(self, '/');
		if (slash) *slash = 0;
		dir = self;
	}
	if (snprintf(out, cap, "%s/sluice-%s", dir, name) >= (int)cap)
		return err_set(err, ST_INVALID, "the program's path is too long");
	if (access(out, X_OK) != 0) return err_set(err, ST_NOT_FOUND, "%s is missing or not executable", out);
	return ST_OK;
}

/* All that the process writes, up to its end or the deadline. */
static int read_line(int fd, char *out, size_t cap)
{
	uint64_t deadline = clock_now_ns() + PROGRAM_FIT_MS * NS_PER_MS;
	size_t len = 0;

	for (;;) {
		uint64_t now = clock_now_ns();
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (now >= deadline) return ST_TIMEOUT;
		if (poll(&p, 1, (int)div_up(deadline - now, NS_PER_MS)) <= 0) continue;
		n = read(fd, out + len, cap - 1 - len);
		if (n < 0 && errno == EINTR) continue;
		if (n > 0) len += (size_t)n;
		out[len] = 0;
		if (n <= 0 || len == cap - 1) return ST_OK;
	}
}

int program_start(const char *path, char *const *argv, pid_t *pid, int *out, struct errbuf *err)
{
	posix_spawn_file_actions_t actions;
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC) != 0) return err_set(err, ST_IO, "no pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	rc = posix_spawn(pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	*out = fds[0];
	if (rc == 0) return ST_OK;
	close(fds[0]);
	return err_set(err, ST_IO, "cannot start %s: %s", path, strerror(rc));
}

static int run_fit(char *path, char *out, size_t cap, int *status, struct errbuf *err)
{
	char *argv[] = {path, (char[]){BOOT_FIT_FLAG}, NULL};
	pid_t pid;
	int fd, rc = program_start(path, argv, &pid, &fd, err);

	if (rc != ST_OK) return rc;
	rc = read_line(fd, out, cap);
	close(fd);
	if (rc != ST_OK) kill(pid, SIGKILL);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR) continue;
	return rc == ST_OK ? ST_OK : err_set(err, rc, "%s did not say within %d s which version it is", path, PROGRAM_FIT_MS / 1000);
}

int program_check(const char *name, struct errbuf *err)
{
	char path[600], said[BOOT_FIT_MAX + 1], ours[BOOT_FIT_MAX];
	int status, rc = program_find(path, sizeof(path), name, err);

	if (rc == ST_OK) rc = run_fit(path, said, sizeof(said), &status, err);
	if (rc != ST_OK) return rc;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		if (WIFEXITED(status)) return err_set(err, ST_UNSUPPORTED, "%s ended with code %d when it was asked for its version", path, WEXITSTATUS(status));
		return err_set(err, ST_UNSUPPORTED, "%s was ended by signal %d when it was asked for its version", path, WTERMSIG(status));
	}
	said[strcspn(said, "\n")] = 0;
	boot_fit(ours);
	if (strcmp(said, ours) == 0) return ST_OK;
	return err_set(err, ST_UNSUPPORTED, "%s is of another version (it has %s; the mesh runs with %s): start a new mesh instead", path, said, ours);
}

const char *program_worker(uint32_t device)
{
	static const char *const names[] = {[DEVICE_AUTO] = "worker-cpu",
					    [DEVICE_CPU] = "worker-cpu",
					    [DEVICE_CUDA] = "worker-cuda",
					    [DEVICE_NULL] = "worker-null"};

	return names[device];
}
