/* hubfile.c - see hubfile.h. */
#include "sluice/hubfile.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/hubname.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAILURES_MAX  6
#define BACKOFF_NS    (500 * NS_PER_MS) /* doubled with each failure: half a minute in all */
#define FORGIVEN      MIB               /* so many new bytes make up for failures */
#define LOCK_EVERY_NS (200 * NS_PER_MS)
#define HASH_STEP     (32 * MIB)
#define HASH_BUF      (256 * KIB)

/* ---- failures ---- */

uint64_t hubfile_backoff_ns(uint32_t n_failures, uint32_t retry_s)
{
	if (n_failures >= FAILURES_MAX) return 0;
	return max_u64(BACKOFF_NS << (n_failures ? n_failures - 1 : 0), retry_s * NS_PER_S);
}

int hubfile_judge(const struct hubweb_answer *a, const char *repo, const char *file, struct errbuf *err)
{
	struct quote words = quote_short(a->message, strlen(a->message));
	char said[120], what[HUBNAME_FILE_MAX + 250];

	snprintf(said, sizeof(said), "%s%s", words.text[0] ? ": " : "", words.text);
	snprintf(what, sizeof(what), "%s%s%s", repo, file ? ": " : "", file ? file : "");
	switch (a->status) {
	case 401:
		return err_set(err, ST_DENIED,
			       "%s: the hub wants to know who asks (401)%s; there is no such repository, or it is "
			       "private or gated: set HF_TOKEN to a token that may read it",
			       repo, said);
	case 403:
		return err_set(err, ST_DENIED,
			       "%s: the hub refuses it (403)%s; a gated model's conditions must be accepted on its "
			       "page by the owner of HF_TOKEN",
			       repo, said);
	case 404:
		return err_set(err, ST_NOT_FOUND, "%s: the hub knows no such %s (404)%s", what,
			       file ? "file" : "repository or revision", said);
	case 408:
	case 425:
	case 429:
		break;
	default:
		if (a->status < 500)
			return err_set(err, ST_INVALID, "%s: the hub answers with %ld%s", what, a->status, said);
	}
	return err_set(err, ST_AGAIN, "%s: the hub answers with %ld%s", what, a->status, said);
}

static void file_close(struct hubfile *f)
{
	if (f->fd >= 0) close(f->fd);
	if (f->lock_fd >= 0) close(f->lock_fd); /* the lock goes with it */
	f->fd = f->lock_fd = -1;
	hubsum_free(f->sum);
	f->sum = NULL;
}

/* f->err says why. An empty file is no beginning. */
static void file_fail(struct hubfile *f, int rc)
{
	char path[HUBCACHE_PATH_MAX];
	struct stat st;

	hubcache_blob(f->env->cache, f->etag, ".incomplete", path);
	if (f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_size == 0) unlink(path); /* under its lock */
	file_close(f);
	f->rc = rc;
	f->state = HUBFILE_FAILED;
}

/* Back to `state` after a while, or the end. */
static void file_again(struct hubfile *f, enum hubfile_state state, uint32_t retry_s, uint64_t now)
{
	uint64_t wait = hubfile_backoff_ns(++f->n_failures, retry_s);

	if (wait == 0) {
		err_prefix(&f->err, ST_IO, "given up after %u tries", f->n_failures);
		file_fail(f, ST_IO);
		return;
	}
	hubbar_note(f->env->bar, "%s; trying again in %.1f s", f->err.text, (double)wait / 1e9);
	f->err.text[0] = 0;
	f->state = state;
	f->due_ns = now + wait;
}

/* An exchange without a whole answer. */
static void file_lost(struct hubfile *f, int rc, const char *why)
{
	err_set(&f->err, rc, "%s: %s", f->name, why);
}

static void file_disk(struct hubfile *f, const char *path, const char *what)
{
	int e = errno;

	f->err.text[0] = 0;
	if (e == ENOSPC || e == EDQUOT)
		err_set(&f->err, ST_LIMIT,
			"%s: the disk is full (%s); what was fetched stays there, and the same command goes on with it",
			f->name, path);
	else
		err_set(&f->err, ST_IO, "%s: %s cannot be %s: %s", f->name, path, what, strerror(e));
	file_fail(f, e == ENOSPC || e == EDQUOT ? ST_LIMIT : ST_IO);
}

/* ---- the object ---- */

static void put_encoded(struct strbuf *out, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.~/", c))
			strbuf_putc(out, (char)c);
		else
			strbuf_printf(out, "%%%02X", c);
	}
}

void hubfile_init(struct hubfile *f, const struct hubfile_env *env, const char *name)
{
	struct strbuf path;

	*f = (struct hubfile){.env = env, .name = name, .lock_fd = -1, .fd = -1};
	strbuf_init(&path, 8 * KIB);
	strbuf_printf(&path, "/%s/resolve/%s/", env->repo, env->commit);
	put_encoded(&path, name);
	f->path = strbuf_take(&path);
}

void hubfile_release(struct hubfile *f)
{
	file_close(f);
	free(f->path);
	f->path = NULL;
}

bool hubfile_is_busy(const struct hubfile *f)
{
	return f->state == HUBFILE_ASKING || f->state == HUBFILE_HASHING || f->state == HUBFILE_WAITING ||
	       f->state == HUBFILE_FETCHING;
}

static bool blob_size(const struct hubfile *f, const char *suffix, uint64_t *size)
{
	char path[HUBCACHE_PATH_MAX];
	struct stat st;

	hubcache_blob(f->env->cache, f->etag, suffix, path);
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
	*size = (uint64_t)st.st_size;
	return true;
}

bool hubfile_is_cached(const struct hubfile *f)
{
	uint64_t size;

	return blob_size(f, "", &size) && size == f->size;
}

/* ---- asking ---- */

static void on_asked(void *ctx, int rc, const struct hubweb_answer *a, const char *why)
{
	struct hubfile *f = ctx;
	uint64_t now = clock_now_ns();
	bool is_file = a->status == 200 || (a->status >= 300 && a->status < 400); /* a redirect that leaves the hub */

	if (rc == ST_OK && !is_file)
		rc = hubfile_judge(a, f->env->repo, f->name, &f->err);
	else if (rc != ST_OK)
		file_lost(f, rc, why);
	if (rc == ST_AGAIN || rc == ST_IO || rc == ST_TIMEOUT) {
		file_again(f, HUBFILE_ASK, a->retry_s, now);
		return;
	}
	if (rc == ST_OK && a->commit[0] && strcmp(a->commit, f->env->commit) != 0)
		rc = err_set(&f->err, ST_INVALID, "%s: the hub gives it from commit %s; asked for was %s", f->name,
			     a->commit, f->env->commit);
	if (rc == ST_OK && (!a->etag[0] || !a->has_size))
		rc = err_set(&f->err, ST_INVALID, "%s: the hub does not say %s", f->name,
			     a->etag[0] ? "how long it is" : "what its content is called (etag)");
	if (rc != ST_OK) {
		file_fail(f, rc);
		return;
	}
	snprintf(f->etag, sizeof(f->etag), "%s", a->etag);
	f->size = a->size;
	f->n_failures = 0;
	f->state = HUBFILE_KNOWN;
	if (blob_size(f, ".incomplete", &f->on_disk))
		f->on_disk = min_u64(f->on_disk, f->size);
	else
		f->on_disk = 0;
}

static bool no_body(void *ctx, const struct hubweb_answer *a, const char *data, size_t len)
{
	return false;
}

bool hubfile_step_ask(struct hubfile *f, uint64_t now)
{
	struct hubweb_events ev = {f, no_body, on_asked};

	if (f->state != HUBFILE_ASK || now < f->due_ns) return false;
	f->state = HUBFILE_ASKING;
	hubweb_head(f->env->web, f->path, &ev);
	return true;
}

/* ---- the end of a download ---- */

static void file_link(struct hubfile *f)
{
	int rc = hubcache_link(f->env->cache, f->env->commit, f->name, f->etag, &f->err);

	if (rc != ST_OK) {
		file_fail(f, rc);
		return;
	}
	file_close(f);
	f->have = f->size;
	f->state = HUBFILE_DONE;
}

static void file_restart(struct hubfile *f)
{
	if (ftruncate(f->fd, 0) != 0) {
		file_disk(f, f->name, "emptied");
		return;
	}
	hubsum_free(f->sum);
	f->sum = hubsum_new(f->etag, f->size);
	f->have = 0;
	f->state = HUBFILE_WAITING;
}

/* All bytes are there. */
static void file_verify(struct hubfile *f)
{
	char incomplete[HUBCACHE_PATH_MAX], blob[HUBCACHE_PATH_MAX], got[65] = "";

	hubcache_blob(f->env->cache, f->etag, ".incomplete", incomplete);
	hubcache_blob(f->env->cache, f->etag, "", blob);
	if (!f->sum)
		hubbar_note(f->env->bar,
			    "%s: the hub calls its content %s, which is no checksum: only its length was compared",
			    f->name, f->etag);
	if (f->sum && !hubsum_matches(f->sum, got)) {
		/* What an earlier run left may be the bad part: once from the beginning. */
		if (f->was_resumed && !f->was_bad) {
			hubbar_note(f->env->bar,
				    "%s: what an earlier run left there has a wrong checksum; fetching all of it",
				    f->name);
			f->was_bad = true;
			file_restart(f);
			return;
		}
		unlink(incomplete);
		err_set(&f->err, ST_CORRUPT, "%s: its checksum is %s, but the hub says %s; it was removed", f->name,
			got, f->etag);
		file_fail(f, ST_CORRUPT);
		return;
	}
	if (fdatasync(f->fd) != 0)
		file_disk(f, incomplete, "written");
	else if (rename(incomplete, blob) != 0)
		file_disk(f, blob, "made");
	else
		file_link(f);
	if (f->state == HUBFILE_DONE && !f->env->bar->has_bar)
		hubbar_note(f->env->bar, "%s: fetched, %s", f->name, hubbar_bytes(f->size, got));
}

/* ---- fetching ---- */

static bool on_bytes(void *ctx, const struct hubweb_answer *a, const char *data, size_t len)
{
	struct hubfile *f = ctx;

	if (f->have > 0 && !f->from_start && (a->status != 206 || !a->has_range || a->range_from != f->have)) {
		if (a->status == 206) {
			err_set(&f->err, ST_INVALID, "%s: the server answers with other bytes than were asked for",
				f->name);
			return false;
		}
		f->from_start = true; /* it does not do ranges */
		file_restart(f);
		if (f->state == HUBFILE_FAILED) return false;
		f->state = HUBFILE_FETCHING;
	}
	f->from_start = true;
	if (len > f->size - f->have) {
		err_set(&f->err, ST_INVALID, "%s: there are more bytes than the %" PRIu64 " that the hub told", f->name,
			f->size);
		return false;
	}
	while (len > 0) {
		ssize_t n = pwrite(f->fd, data, len, (off_t)f->have);

		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) {
			char path[HUBCACHE_PATH_MAX];

			hubcache_blob(f->env->cache, f->etag, ".incomplete", path);
			if (n == 0) errno = ENOSPC;
			file_disk(f, path, "written");
			return false;
		}
		if (f->sum) hubsum_add(f->sum, data, (size_t)n);
		data += n;
		len -= (size_t)n;
		f->have += (size_t)n;
	}
	return true;
}

static void on_fetched(void *ctx, int rc, const struct hubweb_answer *a, const char *why)
{
	struct hubfile *f = ctx;

	if (f->state == HUBFILE_FAILED) return;
	if (f->have >= f->best + FORGIVEN) {
		f->best = f->have;
		f->n_failures = 0;
	}
	if (rc == ST_CLOSED) { /* by us; the text is there */
		file_fail(f, ST_INVALID);
		return;
	}
	if (rc == ST_OK && a->status / 100 != 2) {
		if (a->status == 416) { /* what is there is longer, or another file's */
			file_restart(f);
			if (f->state == HUBFILE_FAILED) return;
			rc = err_set(&f->err, ST_AGAIN, "%s: the server has no such range (416)", f->name);
		} else {
			rc = hubfile_judge(a, f->env->repo, f->name, &f->err);
		}
	} else if (rc == ST_OK && f->have == f->size) {
		file_verify(f);
		return;
	} else if (rc == ST_OK) {
		rc = err_set(&f->err, ST_AGAIN, "%s: the answer ends after %" PRIu64 " of %" PRIu64 " bytes", f->name,
			     f->have, f->size);
	} else {
		file_lost(f, rc, why);
	}
	if (rc == ST_AGAIN || rc == ST_IO || rc == ST_TIMEOUT)
		file_again(f, HUBFILE_WAITING, a->retry_s, clock_now_ns());
	else
		file_fail(f, rc);
}

static void file_fetch(struct hubfile *f)
{
	struct hubweb_events ev = {f, on_bytes, on_fetched};

	if (f->have == f->size) {
		file_verify(f);
		return;
	}
	f->from_start = false;
	f->state = HUBFILE_FETCHING;
	hubweb_get(f->env->web, f->path, f->have, &ev);
}

/* A part of what an earlier run has left. */
static void file_hash(struct hubfile *f)
{
	uint64_t until = min_u64(f->on_disk, f->have + HASH_STEP);
	char *buf = mem_realloc(NULL, HASH_BUF, 1);

	while (f->have < until) {
		ssize_t n = pread(f->fd, buf, (size_t)min_u64(HASH_BUF, until - f->have), (off_t)f->have);

		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) {
			file_restart(f); /* unreadable: as if it were not there */
			break;
		}
		if (f->sum) hubsum_add(f->sum, buf, (size_t)n);
		f->have += (uint64_t)n;
	}
	free(buf);
	if (f->state == HUBFILE_HASHING && f->have == f->on_disk) f->state = HUBFILE_WAITING;
}

static void file_open(struct hubfile *f)
{
	char path[HUBCACHE_PATH_MAX];
	struct stat st;

	hubcache_blob(f->env->cache, f->etag, ".incomplete", path);
	f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (f->fd < 0 || fstat(f->fd, &st) != 0) {
		file_disk(f, path, "opened");
		return;
	}
	f->on_disk = (uint64_t)st.st_size <= f->size ? (uint64_t)st.st_size : 0;
	f->sum = hubsum_new(f->etag, f->size);
	f->have = 0;
	f->was_resumed = f->on_disk > 0;
	f->state = HUBFILE_HASHING;
	if (f->was_resumed) {
		char there[16], all[16];

		hubbar_note(f->env->bar, "%s: going on after %s of %s", f->name, hubbar_bytes(f->on_disk, there),
			    hubbar_bytes(f->size, all));
	} else if (st.st_size > 0) {
		file_restart(f);
	}
}

static void file_lock(struct hubfile *f, uint64_t now)
{
	int rc = hubcache_lock(f->env->cache, f->etag, &f->lock_fd, &f->err);

	if (rc == ST_AGAIN) {
		if (!f->said_waiting) hubbar_note(f->env->bar, "%s: another process is fetching it; waiting", f->name);
		f->said_waiting = true;
		f->due_ns = now + LOCK_EVERY_NS;
		return;
	}
	if (rc != ST_OK)
		file_fail(f, rc);
	else if (hubfile_is_cached(f))
		file_link(f);
	else
		file_open(f);
}

void hubfile_step(struct hubfile *f, uint64_t now)
{
	if (now < f->due_ns) return;
	if (f->state == HUBFILE_KNOWN) f->state = HUBFILE_LOCKING;
	if (f->state == HUBFILE_LOCKING) file_lock(f, now);
	if (f->state == HUBFILE_HASHING)
		file_hash(f);
	else if (f->state == HUBFILE_WAITING)
		file_fetch(f);
}
