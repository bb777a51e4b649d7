/* operator.c - see operator.h. */
#include "sluice/operator.h"

#include "common/child.h"
#include "sluice/control.h"
#include "sluice/ipcdir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define OPERATOR_MESHES_MAX 64
#define OPERATOR_KNOCK_S 3 /* for a mesh to say who it is; its supervisor does nothing else for long */

/* ---- flags ---- */

static const char *flag_value(const char *name, int argc, char **argv, int *i)
{
	size_t len = strlen(name);

	if (argv[*i][len] == '=') return argv[*i] + len + 1;
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static bool is_flag(const char *arg, const char *name)
{
	size_t len = strlen(name);

	return strncmp(arg, name, len) == 0 && (!arg[len] || arg[len] == '=');
}

int operator_flag(struct operator_where *w, int argc, char **argv, int *i, struct errbuf *err)
{
	const char *value;
	char *end;
	long pid;

	if (is_flag(argv[*i], "--ipc-dir")) {
		w->ipc_dir = flag_value("--ipc-dir", argc, argv, i);
		return w->ipc_dir && w->ipc_dir[0] ? ST_OK : err_set(err, ST_INVALID, "--ipc-dir needs a value (DIR)");
	}
	if (!is_flag(argv[*i], "--mesh")) return ST_NOT_FOUND;
	value = flag_value("--mesh", argc, argv, i);
	if (!value) return err_set(err, ST_INVALID, "--mesh needs a value (PID)");
	pid = strtol(value, &end, 10);
	if (end == value || *end || pid <= 0 || pid > INT_MAX) return err_set(err, ST_INVALID, "--mesh must be a process id, but is %s", value);
	w->pid = (uint32_t)pid;
	return ST_OK;
}

/* ---- one packet each way ---- */

/* fd: a descriptor that came along, or -1. */
static int receive_packet(int fd, json_t **packet, int *passed, struct errbuf *err)
{
	char buf[CONTROL_ANSWER_MAX];
	size_t n;
	int rc = child_await_fd(fd, buf, sizeof(buf), &n, passed);

	if (rc == ST_CLOSED) return err_set(err, rc, "the mesh has ended");
	if (rc == ST_AGAIN) return err_set(err, ST_TIMEOUT, "the mesh does not answer");
	if (rc == ST_IO) return err_set(err, rc, "the mesh does not answer: %s", strerror(errno));
	*packet = rc == ST_OK ? json_loadb(buf, n, 0, NULL) : NULL;
	if (json_is_object(*packet)) return ST_OK;
	json_decref(*packet);
	*packet = NULL;
	if (*passed >= 0) close(*passed);
	*passed = -1;
	return err_set(err, ST_CORRUPT, "the mesh's answer is not what this program expects; installed from two versions?");
}

/* The answer that follows what is told meanwhile. */
static int receive_answer(int fd, const struct operator_events *events, json_t **answer, int *passed, struct errbuf *err)
{
	for (;;) {
		const char *text, *error;
		json_t *packet;
		int rc = receive_packet(fd, &packet, passed, err);

		if (rc != ST_OK) return rc;
		text = json_string_value(json_object_get(packet, "progress"));
		if (text) {
			if (events) events->on_progress(events->ctx, text);
			json_decref(packet);
			continue;
		}
		if (json_is_true(json_object_get(packet, "ok"))) {
			*answer = packet;
			return ST_OK;
		}
		error = json_string_value(json_object_get(packet, "error"));
		err_set(err, ST_DENIED, "%s", error ? error : "the mesh refused");
		json_decref(packet);
		return ST_DENIED;
	}
}

static int ask(int fd, const char *command, const json_t *fields, const struct operator_events *events, json_t **answer, int *passed,
	       struct errbuf *err)
{
	json_t *request = json_pack("{s:s}", "command", command);
	char *text;
	ssize_t n;

	*passed = -1;
	if (request && fields) json_object_update(request, (json_t *)(uintptr_t)fields); /* it is only read */
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	if (!text || strlen(text) > CONTROL_REQUEST_MAX) {
		free(text);
		return err_set(err, ST_INVALID, "the request is no text of at most %d bytes", CONTROL_REQUEST_MAX);
	}
	do n = send(fd, text, strlen(text), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	free(text);
	/* When it could not be sent, what can still be read says more. */
	return receive_answer(fd, events, answer, passed, err);
}

/* ---- which mesh ---- */

static int knock(struct operator *o, const char *folder)
{
	const struct timeval patience = {.tv_sec = OPERATOR_KNOCK_S}, for_ever = {0};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	json_t *answer;
	int passed, rc = ST_IO;

	if (snprintf(un.sun_path, sizeof(un.sun_path), "%s/" CONTROL_NAME, folder) >= (int)sizeof(un.sun_path)) return ST_LIMIT;
	o->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (o->fd < 0) return ST_IO;
	setsockopt(o->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(o->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(o->fd, (struct sockaddr *)&un, sizeof(un)) == 0) rc = ask(o->fd, "mesh", NULL, NULL, &answer, &passed, NULL);
	if (rc != ST_OK) {
		close(o->fd);
		o->fd = -1;
		return rc;
	}
	if (passed >= 0) close(passed);
	o->pid = (uint32_t)json_integer_value(json_object_get(answer, "pid"));
	snprintf(o->at, sizeof(o->at), "%s", json_string_value(json_object_get(answer, "at")) ?: "?");
	snprintf(o->model, sizeof(o->model), "%s", json_string_value(json_object_get(answer, "model")) ?: "?");
	setsockopt(o->fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
	json_decref(answer);
	return ST_OK;
}

struct found {
	struct operator meshes[OPERATOR_MESHES_MAX];
	size_t n;
	uint32_t n_silent; /* folders of this user whose mesh does not say who it is */
};

static void look_at(void *ctx, const char *folder)
{
	struct found *f = ctx;
	struct stat st;
	int rc;

	if (f->n == OPERATOR_MESHES_MAX || lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) return;
	if (st.st_uid != geteuid() && geteuid() != 0) return;
	rc = knock(&f->meshes[f->n], folder);
	if (rc == ST_TIMEOUT) f->n_silent++;
	if (rc != ST_OK) return;
	for (size_t i = 0; i < f->n; i++) {
		if (f->meshes[i].pid != f->meshes[f->n].pid) continue;
		close(f->meshes[f->n].fd); /* two ways to the same folder */
		return;
	}
	f->n++;
}

static int none_found(const struct found *f, const char *ipc_dir, struct errbuf *err)
{
	if (f->n_silent) return err_set(err, ST_TIMEOUT, "a mesh is there, but its supervisor does not answer");
	if (ipc_dir[0]) return err_set(err, ST_NOT_FOUND, "no mesh runs with its sockets in %s", ipc_dir);
	return err_set(err, ST_NOT_FOUND, "no running mesh was found; was it started with --ipc-dir, or by another user?");
}

static int which_one(const struct found *f, const char *say, struct errbuf *err)
{
	size_t len;

	err_set(err, ST_INVALID, "%s:", say);
	for (size_t i = 0; i < f->n; i++) {
		const struct operator *m = &f->meshes[i];

		len = strlen(err->text);
		snprintf(err->text + len, sizeof(err->text) - len, "\n  --mesh %-8u %s  %s", m->pid, m->at, m->model);
	}
	return ST_INVALID;
}

int operator_open(struct operator *o, const struct operator_where *w, struct errbuf *err)
{
	struct found f = {.n = 0};
	const char *bases[IPCDIR_BASES_MAX], *env = getenv("SLUICE_IPC_DIR"), *ipc_dir = w->ipc_dir ? w->ipc_dir : env ? env : "";
	size_t n_bases = ipcdir_bases(ipc_dir, bases), chosen;
	char say[64];
	int rc = ST_OK;

	for (size_t i = 0; i < n_bases; i++) ipcdir_each(bases[i], look_at, &f);
	for (chosen = 0; w->pid && chosen < f.n && f.meshes[chosen].pid != w->pid; chosen++) continue;
	if (f.n == 0) {
		rc = none_found(&f, ipc_dir, err);
	} else if (chosen == f.n) {
		snprintf(say, sizeof(say), "no mesh has process %u; these run", w->pid);
		rc = which_one(&f, say, err);
	} else if (!w->pid && f.n > 1) {
		rc = which_one(&f, "several meshes run; say which one is meant", err);
	}
	if (rc == ST_OK) *o = f.meshes[chosen];
	else o->fd = -1;
	for (size_t i = 0; i < f.n; i++)
		if (rc != ST_OK || i != chosen) close(f.meshes[i].fd);
	return rc;
}

void operator_close(struct operator *o)
{
	if (o->fd >= 0) close(o->fd);
	o->fd = -1;
}

int operator_ask(struct operator *o, const char *command, const json_t *fields, const struct operator_events *events, json_t **answer,
		 struct errbuf *err)
{
	json_t *packet;
	int passed, rc = ask(o->fd, command, fields, events, &packet, &passed, err);

	if (rc != ST_OK) return rc;
	if (passed >= 0) close(passed);
	if (answer) *answer = packet;
	else json_decref(packet);
	return ST_OK;
}

/* ---- the status page ---- */

int operator_page(const struct page **out, struct operator *o, struct errbuf *err)
{
	struct stat st;
	json_t *answer;
	void *map;
	int fd, rc = ask(o->fd, "page", NULL, NULL, &answer, &fd, err);

	if (rc != ST_OK) return rc;
	json_decref(answer);
	if (fd < 0) return err_set(err, ST_CORRUPT, "the mesh's answer brought no status page");
	/* Smaller than a page of this version, it must not be looked at: reading behind its end is fatal. */
	if (fstat(fd, &st) != 0 || (size_t)st.st_size < sizeof(struct page)) {
		close(fd);
		return err_set(err, ST_UNSUPPORTED, "the mesh has a status page of another version");
	}
	map = mmap(NULL, sizeof(struct page), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED) return err_set(err, ST_IO, "cannot map the status page: %s", strerror(errno));
	rc = page_check(map, (size_t)st.st_size, err);
	if (rc == ST_OK) *out = map;
	else munmap(map, sizeof(struct page));
	return rc;
}

void operator_page_close(const struct page *p)
{
	if (p) munmap((void *)(uintptr_t)p, sizeof(*p));
}
