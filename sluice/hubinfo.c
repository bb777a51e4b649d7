/* hubinfo.c - see hubinfo.h. */
#include "sluice/hubinfo.h"

#include "common/clock.h"
#include "common/jsonbound.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/hubfile.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX (32 * MIB)
#define DEPTH_MAX  64
#define POLL_MS    100

void hubinfo_release(struct hubinfo *info)
{
	json_decref(info->root);
	free(info->names);
	*info = (struct hubinfo){0};
}

int hubinfo_parse(struct hubinfo *info, const char *text, size_t len, const struct hubname *name, struct errbuf *err)
{
	const json_t *siblings;
	const char *sha, *file;

	*info = (struct hubinfo){0};
	if (jsonbound_scan(text, len, DEPTH_MAX, 64 * (size_t)HUBINFO_FILES_MAX) != JSONBOUND_FITS)
		return err_set(err, ST_LIMIT, "%s: the hub's answer is nested too deeply or holds too much",
			       name->repo);
	info->root = json_loadb(text, len, 0, NULL);
	sha = json_string_value(json_object_get(info->root, "sha"));
	siblings = json_object_get(info->root, "siblings");
	if (!sha || !hubname_is_commit(sha) || !json_is_array(siblings))
		return err_set(err, ST_CORRUPT,
			       "%s: the hub answers something else than a model's description (sha, siblings)",
			       name->repo);
	if (json_array_size(siblings) > HUBINFO_FILES_MAX)
		return err_set(err, ST_LIMIT, "%s: the repository has %zu files; expected at most %d", name->repo,
			       json_array_size(siblings), HUBINFO_FILES_MAX);
	memcpy(info->commit, sha, sizeof(info->commit));
	info->names = mem_array(const char *, json_array_size(siblings) + 1);
	for (size_t i = 0; i < json_array_size(siblings); i++) {
		file = json_string_value(json_object_get(json_array_get(siblings, i), "rfilename"));
		if (file && hubname_is_safe_path(file)) info->names[info->n++] = file;
	}
	return ST_OK;
}

/* ---- asking ---- */

struct asking {
	struct strbuf body;
	const struct hubname *name;
	struct errbuf err;
	uint32_t retry_s;
	bool ended;
	int rc;
};

static bool on_info(void *ctx, const struct hubweb_answer *a, const char *data, size_t len)
{
	struct asking *k = ctx;

	strbuf_append(&k->body, data, len);
	return !k->body.overflow;
}

static void on_info_end(void *ctx, int rc, const struct hubweb_answer *a, const char *why)
{
	struct asking *k = ctx;

	k->ended = true;
	k->retry_s = a->retry_s;
	k->err.text[0] = 0;
	k->rc = rc;
	if (rc == ST_CLOSED)
		k->rc = err_set(&k->err, ST_LIMIT, "%s: the hub's answer is longer than %zu bytes", k->name->repo,
				ANSWER_MAX);
	else if (rc != ST_OK)
		err_set(&k->err, rc, "%s: %s", k->name->repo, why);
	else if (a->status != 200)
		k->rc = hubfile_judge(a, k->name->repo, NULL, &k->err);
}

static void put_revision(struct strbuf *path, const char *revision)
{
	for (; *revision; revision++) {
		if (hubname_is_safe_word((char[]){'x', *revision, 0}))
			strbuf_putc(path, *revision);
		else
			strbuf_printf(path, "%%%02X", (unsigned char)*revision);
	}
}

int hubinfo_fetch(struct hubinfo *info, struct hubweb *w, const struct hubname *name, struct hubbar *bar,
		  struct errbuf *err)
{
	struct asking k = {.name = name};
	struct hubweb_events ev = {&k, on_info, on_info_end};
	struct strbuf path;
	uint64_t wait = 1;
	uint32_t n_failures = 0;

	*info = (struct hubinfo){0};
	strbuf_init(&path, 4 * KIB);
	strbuf_printf(&path, "/api/models/%s/revision/", name->repo);
	put_revision(&path, name->revision);
	strbuf_init(&k.body, ANSWER_MAX);
	for (;;) {
		strbuf_reset(&k.body);
		k.ended = false;
		hubweb_get(w, path.data, 0, &ev);
		while (!k.ended) hubweb_poll(w, POLL_MS);
		if (k.rc != ST_AGAIN && k.rc != ST_IO && k.rc != ST_TIMEOUT) break;
		wait = hubfile_backoff_ns(++n_failures, k.retry_s);
		if (wait == 0) break;
		hubbar_note(bar, "%s; trying again in %.1f s", k.err.text, (double)wait / 1e9);
		for (uint64_t until = clock_now_ns() + wait; clock_now_ns() < until;) hubweb_poll(w, POLL_MS);
	}
	if (k.rc == ST_OK)
		k.rc = hubinfo_parse(info, k.body.data ? k.body.data : "", k.body.len, name, &k.err);
	else if (wait == 0)
		k.rc = err_prefix(&k.err, ST_IO, "given up after %u tries", n_failures);
	strbuf_release(&k.body);
	strbuf_release(&path);
	return k.rc == ST_OK ? ST_OK : err_set(err, k.rc, "%s", k.err.text);
}
