/* hubget.c - see hubget.h. */
#include "sluice/hubget.h"

#include "common/clock.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define ASK_AT_ONCE   8
#define FETCH_AT_ONCE 4 /* more does not make them faster, and each writes to the same disk */
#define POLL_MS       50

struct hubget {
	const struct hubfile_env *env;
	struct hubfile *files;
	size_t *twins; /* (n): the first file with the same content; itself when it is the first */
	size_t n, n_small;
};

/* ST_AGAIN: not all of them are so far; else what the first failed one says. */
static int get_check(const struct hubget *g, size_t n, enum hubfile_state until, struct errbuf *err)
{
	bool all = true;

	for (size_t i = 0; i < n; i++) {
		const struct hubfile *f = &g->files[i];

		if (f->state == HUBFILE_FAILED) return err_set(err, f->rc, "%s", f->err.text);
		all &= f->state >= until;
	}
	return all ? ST_OK : ST_AGAIN;
}

static int get_ask(struct hubget *g, struct errbuf *err)
{
	int rc;

	while ((rc = get_check(g, g->n, HUBFILE_KNOWN, err)) == ST_AGAIN) {
		uint64_t now = clock_now_ns();
		size_t n_busy = 0;

		for (size_t i = 0; i < g->n; i++) n_busy += g->files[i].state == HUBFILE_ASKING;
		for (size_t i = 0; i < g->n && n_busy < ASK_AT_ONCE; i++) n_busy += hubfile_step_ask(&g->files[i], now);
		hubweb_poll(g->env->web, POLL_MS);
	}
	return rc;
}

static void get_find_twins(struct hubget *g)
{
	for (size_t i = 0; i < g->n; i++) {
		g->twins[i] = 0;
		while (strcmp(g->files[g->twins[i]].etag, g->files[i].etag) != 0) g->twins[i]++;
	}
}

/* Says what is to come, unless all is there. */
static int get_check_room(const struct hubget *g, struct errbuf *err)
{
	uint64_t need = 0, room;
	struct statvfs v;
	char a[16], b[16];
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct hubfile *f = &g->files[i];

		if (g->twins[i] != i || hubfile_is_cached(f)) continue;
		n++;
		if (f->size > INT64_MAX / 2 || need > INT64_MAX / 2)
			return err_set(err, ST_LIMIT, "%s: has %" PRIu64 " bytes; no disk has as much", f->name,
				       f->size);
		need += f->size - f->on_disk;
	}
	if (n > 0)
		hubbar_note(g->env->bar, "fetching %s, commit %s, into %s: %zu files, %s", g->env->repo, g->env->commit,
			    g->env->cache->root, n, hubbar_bytes(need, a));
	if (statvfs(g->env->cache->root, &v) != 0) return ST_OK; /* the writes will tell */
	room = (uint64_t)v.f_bavail * v.f_frsize;
	if (need <= room) return ST_OK;
	return err_set(err, ST_LIMIT,
		       "%s: %s are needed in %s, but the disk has only %s left; HF_HUB_CACHE names another place",
		       g->env->repo, hubbar_bytes(need, a), g->env->cache->root, hubbar_bytes(room, b));
}

static void get_show(const struct hubget *g, uint64_t now)
{
	struct hubbar_state s = {.n = g->n};

	for (size_t i = 0; i < g->n; i++) {
		const struct hubfile *f = &g->files[i];

		s.n_done += f->state == HUBFILE_DONE;
		if (g->twins[i] != i) continue;
		s.total += f->size;
		s.done += f->state == HUBFILE_KNOWN || f->state == HUBFILE_LOCKING ? f->on_disk : f->have;
	}
	hubbar_show(g->env->bar, &s, now);
}

/* The first n of them. */
static int get_fetch(struct hubget *g, size_t n, struct errbuf *err)
{
	int rc;

	while ((rc = get_check(g, n, HUBFILE_DONE, err)) == ST_AGAIN) {
		uint64_t now = clock_now_ns();
		size_t n_busy = 0;
		bool hashes = false;

		for (size_t i = 0; i < n; i++) n_busy += hubfile_is_busy(&g->files[i]);
		for (size_t i = 0; i < n; i++) {
			struct hubfile *f = &g->files[i];
			bool was_busy = hubfile_is_busy(f);

			if (!was_busy && (n_busy >= FETCH_AT_ONCE ||
					  (g->twins[i] != i && g->files[g->twins[i]].state != HUBFILE_DONE)))
				continue;
			hubfile_step(f, now);
			n_busy += (size_t)(hubfile_is_busy(f) && !was_busy);
			hashes |= f->state == HUBFILE_HASHING;
		}
		get_show(g, now);
		hubweb_poll(g->env->web, hashes ? 0 : POLL_MS);
	}
	return rc;
}

int hubget_run(const struct hubfile_env *env, const char *const *names, size_t n, size_t n_small, struct errbuf *err)
{
	struct hubget g = {.env = env,
			   .files = mem_array(struct hubfile, n + 1),
			   .twins = mem_array(size_t, n + 1),
			   .n = n,
			   .n_small = n_small};
	int rc;

	for (size_t i = 0; i < n; i++) hubfile_init(&g.files[i], env, names[i]);
	rc = get_ask(&g, err);
	if (rc == ST_OK) rc = hubcache_prepare(env->cache, env->commit, err);
	if (rc == ST_OK) {
		get_find_twins(&g);
		rc = get_check_room(&g, err);
	}
	if (rc == ST_OK) {
		for (size_t i = 0; i < n; i++) env->bar->began_bytes += g.files[i].on_disk;
		rc = get_fetch(&g, n_small, err);
	}
	if (rc == ST_OK) rc = get_fetch(&g, n, err);
	hubbar_clear(env->bar);
	hubweb_stop(env->web);
	for (size_t i = 0; i < n; i++) hubfile_release(&g.files[i]);
	free(g.files);
	free(g.twins);
	return rc;
}
