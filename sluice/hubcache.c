/* hubcache.c - see hubcache.h. */
#include "sluice/hubcache.h"

#include "common/filetext.h"
#include "common/mem.h"
#include "sluice/hubname.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 20000 /* of a snapshot */
#define REF_MAX   256   /* bytes of a file that names a commit */
#define DEPTH_MAX 8

void hubcache_init(struct hubcache *c, const char *cache, const char *repo)
{
	size_t n;

	memset(c, 0, sizeof(*c));
	snprintf(c->root, sizeof(c->root), "%s", cache);
	n = (size_t)snprintf(c->repo, sizeof(c->repo), "models--");
	for (; *repo && n + 3 < sizeof(c->repo); repo++) {
		if (*repo != '/')
			c->repo[n++] = *repo;
		else
			n += (size_t)snprintf(c->repo + n, sizeof(c->repo) - n, "--");
	}
	c->repo[n] = 0;
}

void hubcache_blob(const struct hubcache *c, const char *etag, const char *suffix, char out[HUBCACHE_PATH_MAX])
{
	snprintf(out, HUBCACHE_PATH_MAX, "%s/%s/blobs/%s%s", c->root, c->repo, etag, suffix);
}

void hubcache_snapshot(const struct hubcache *c, const char *commit, const char *file, char out[HUBCACHE_PATH_MAX])
{
	snprintf(out, HUBCACHE_PATH_MAX, "%s/%s/snapshots/%s%s%s", c->root, c->repo, commit, file ? "/" : "",
		 file ? file : "");
}

static void hubcache_ref(const struct hubcache *c, const char *revision, char out[HUBCACHE_PATH_MAX])
{
	snprintf(out, HUBCACHE_PATH_MAX, "%s/%s/refs/%s", c->root, c->repo, revision);
}

/* ---- reading ---- */

int hubcache_commit(const struct hubcache *c, const char *revision, char commit[41])
{
	char path[HUBCACHE_PATH_MAX], *text;
	struct stat st;
	size_t len;
	bool good;

	snprintf(commit, 41, "%.40s", revision);
	if (!hubname_is_commit(revision)) {
		hubcache_ref(c, revision, path);
		if (filetext_read(&text, &len, path, REF_MAX, NULL) != ST_OK) return ST_NOT_FOUND;
		text[strcspn(text, "\r\n")] = 0;
		good = hubname_is_commit(text);
		if (good) snprintf(commit, 41, "%s", text);
		free(text);
		if (!good) return ST_NOT_FOUND;
	}
	hubcache_snapshot(c, commit, NULL, path);
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? ST_OK : ST_NOT_FOUND;
}

struct listing {
	char **names;
	size_t n, cap;
};

static void list_folder(struct listing *l, const char *folder, const char *prefix, int depth)
{
	DIR *d = opendir(folder);
	struct dirent *e;

	while (d && l->n < FILES_MAX && (e = readdir(d)) != NULL) {
		char path[HUBCACHE_PATH_MAX], name[HUBNAME_FILE_MAX + 1];
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) >= sizeof(path)) continue;
		if ((size_t)snprintf(name, sizeof(name), "%s%s", prefix, e->d_name) >= sizeof(name) - 1) continue;
		if (stat(path, &st) != 0) continue;
		if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
			strcat(name, "/"); /* room was left */
			list_folder(l, path, name, depth + 1);
		} else if (S_ISREG(st.st_mode)) {
			mem_reserve(l->names, l->cap, l->n + 1);
			l->names[l->n++] = mem_strdup(name);
		}
	}
	if (d) closedir(d);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **hubcache_files(const struct hubcache *c, const char *commit, size_t *n)
{
	char path[HUBCACHE_PATH_MAX];
	struct listing l = {.names = mem_array(char *, 16), .cap = 16};

	hubcache_snapshot(c, commit, NULL, path);
	list_folder(&l, path, "", 0);
	qsort(l.names, l.n, sizeof(*l.names), compare_names);
	*n = l.n;
	return l.names;
}

/* ---- writing ---- */

static int failed(struct errbuf *err, const char *path, const char *what)
{
	int e = errno;

	return err_set(err, e == ENOSPC || e == EDQUOT ? ST_LIMIT : ST_IO, "%s: cannot be %s: %s", path, what,
		       strerror(e));
}

/* All folders of the path up to its last slash. */
static int make_parents(const char *path, struct errbuf *err)
{
	char folder[HUBCACHE_PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *p = folder + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = 0;
		if (mkdir(folder, 0777) != 0 && errno != EEXIST) return failed(err, folder, "made");
		*p = '/';
	}
	return ST_OK;
}

int hubcache_prepare(const struct hubcache *c, const char *commit, struct errbuf *err)
{
	char path[HUBCACHE_PATH_MAX];
	int rc;

	hubcache_blob(c, "x", "", path);
	rc = make_parents(path, err);
	if (rc != ST_OK) return rc;
	hubcache_snapshot(c, commit, "x", path);
	rc = make_parents(path, err);
	if (rc != ST_OK) return rc;
	snprintf(path, sizeof(path), "%s/.locks/%s/x", c->root, c->repo);
	return make_parents(path, err);
}

/* A name beside path that no other process uses. */
static int temporary(const char *path, char out[HUBCACHE_PATH_MAX], struct errbuf *err)
{
	if (snprintf(out, HUBCACHE_PATH_MAX, "%s.%d.tmp", path, (int)getpid()) < HUBCACHE_PATH_MAX) return ST_OK;
	return err_set(err, ST_LIMIT, "%s: the path is too long", path);
}

int hubcache_write_ref(const struct hubcache *c, const char *revision, const char *commit, struct errbuf *err)
{
	char path[HUBCACHE_PATH_MAX], tmp[HUBCACHE_PATH_MAX];
	FILE *f;
	int rc;

	if (hubname_is_commit(revision)) return ST_OK;
	hubcache_ref(c, revision, path);
	rc = make_parents(path, err);
	if (rc == ST_OK) rc = temporary(path, tmp, err);
	if (rc != ST_OK) return rc;
	f = fopen(tmp, "we");
	if (!f) return failed(err, tmp, "written");
	if (fputs(commit, f) < 0) rc = failed(err, tmp, "written");
	if (fclose(f) != 0 && rc == ST_OK) rc = failed(err, tmp, "written");
	if (rc == ST_OK && rename(tmp, path) != 0) rc = failed(err, path, "replaced");
	if (rc != ST_OK) unlink(tmp);
	return rc;
}

int hubcache_link(const struct hubcache *c, const char *commit, const char *file, const char *etag, struct errbuf *err)
{
	char path[HUBCACHE_PATH_MAX], tmp[HUBCACHE_PATH_MAX], target[HUBCACHE_PATH_MAX], old[HUBCACHE_PATH_MAX];
	size_t at = (size_t)snprintf(target, sizeof(target), "../../");
	ssize_t n;
	int rc;

	for (const char *p = file; (p = strchr(p, '/')) != NULL; p++)
		at += (size_t)snprintf(target + at, sizeof(target) - at, "../");
	snprintf(target + at, sizeof(target) - at, "blobs/%s", etag);
	hubcache_snapshot(c, commit, file, path);
	n = readlink(path, old, sizeof(old) - 1);
	if (n >= 0) {
		old[n] = 0;
		if (strcmp(old, target) == 0) return ST_OK;
	}
	rc = make_parents(path, err);
	if (rc == ST_OK) rc = temporary(path, tmp, err);
	if (rc != ST_OK) return rc;
	unlink(tmp);
	if (symlink(target, tmp) != 0) return failed(err, path, "linked");
	if (rename(tmp, path) == 0) return ST_OK;
	rc = failed(err, path, "linked");
	unlink(tmp);
	return rc;
}

int hubcache_lock(const struct hubcache *c, const char *etag, int *fd, struct errbuf *err)
{
	char path[HUBCACHE_PATH_MAX];
	struct stat open_one, named;

	snprintf(path, sizeof(path), "%s/.locks/%s/%s.lock", c->root, c->repo, etag);
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
	if (*fd < 0) return failed(err, path, "opened");
	if (flock(*fd, LOCK_EX | LOCK_NB) == 0) {
		/* Whoever had it may have removed the file. */
		if (fstat(*fd, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_ino == named.st_ino &&
		    open_one.st_dev == named.st_dev)
			return ST_OK;
		errno = EWOULDBLOCK;
	}
	if (errno == EWOULDBLOCK || errno == EINTR) {
		close(*fd);
		*fd = -1;
		return ST_AGAIN;
	}
	failed(err, path, "locked");
	close(*fd);
	*fd = -1;
	return ST_IO;
}
