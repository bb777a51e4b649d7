/* hub.c - see hub.h. */
#include "sluice/hub.h"

#include "common/clock.h"
#include "common/mem.h"
#include "model/jsonplace.h"
#include "sluice/hubget.h"
#include "sluice/hubinfo.h"
#include "sluice/hubpick.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hub_found_release(struct hub_found *f)
{
	free(f->path);
	free(f->repo);
	*f = (struct hub_found){0};
}

/* The folder of a snapshot, or its file. */
static void found_set(struct hub_found *out, const struct hubcache *c, const struct hubname *name, const char *commit,
		      const char *file)
{
	char path[HUBCACHE_PATH_MAX];

	hubcache_snapshot(c, commit, file, path);
	out->path = mem_strdup(path);
	out->repo = mem_strdup(name->repo);
}

/* ---- the cache ---- */

static int compare_name(const void *key, const void *element)
{
	return strcmp(key, *(char *const *)element);
}

static bool has_file(char *const *files, size_t n, const char *name)
{
	return n > 0 && bsearch(name, files, n, sizeof(*files), compare_name);
}

/* All the files that an index of shards names. */
static bool has_shards(const struct hubcache *c, const char *commit, char *const *files, size_t n)
{
	static const char index[] = "model.safetensors.index.json";
	char path[HUBCACHE_PATH_MAX];
	const char *key;
	json_t *root = NULL, *value;
	bool all = true;

	if (!has_file(files, n, index)) return true;
	hubcache_snapshot(c, commit, index, path);
	if (jsonplace_load(&root, path, index, NULL) != ST_OK) return false;
	json_object_foreach(json_object_get(root, "weight_map"), key, value) all &=
		json_is_string(value) && has_file(files, n, json_string_value(value));
	json_decref(root);
	return all;
}

/* A snapshot that has all that serving needs. Weights are fetched last, so they stand for the rest. */
static bool find_cached(struct hub_found *out, const struct hubcache *c, const struct hubname *name)
{
	struct hubpick pick = {0};
	char commit[HUBNAME_COMMIT_LEN + 1], **files;
	bool found = false;
	size_t n;

	if (hubcache_commit(c, name->revision, commit) != ST_OK) return false;
	files = hubcache_files(c, commit, &n);
	if (hubpick_files(&pick, name, (const char *const *)files, n, NULL) == ST_OK)
		found = pick.is_gguf || (has_file(files, n, "tokenizer.json") && has_shards(c, commit, files, n));
	if (found) found_set(out, c, name, commit, pick.is_gguf ? files[pick.ix[pick.n_small]] : NULL);
	hubpick_release(&pick);
	for (size_t i = 0; i < n; i++) free(files[i]);
	free(files);
	return found;
}

/* ---- the hub ---- */

static int fetch_files(struct hub_found *out, struct hubfile_env *env, const struct hubname *name,
		       const struct hubinfo *info, struct errbuf *err)
{
	struct hubpick pick;
	const char **names;
	int rc = hubpick_files(&pick, name, info->names, info->n, err);

	if (rc != ST_OK) return rc;
	names = mem_array(const char *, pick.n + 1);
	for (size_t i = 0; i < pick.n; i++) names[i] = info->names[pick.ix[i]];
	rc = hubget_run(env, names, pick.n, pick.n_small, err);
	/* Only now: until then the revision means the snapshot that it has been. */
	if (rc == ST_OK) rc = hubcache_write_ref(env->cache, name->revision, info->commit, err);
	if (rc == ST_OK) found_set(out, env->cache, name, info->commit, pick.is_gguf ? names[pick.n_small] : NULL);
	free(names);
	hubpick_release(&pick);
	return rc;
}

static int fetch(struct hub_found *out, const struct hubenv *env, const struct hubcache *cache,
		 const struct hubname *name, const struct hub_opts *o, struct errbuf *err)
{
	struct hubinfo info = {0};
	struct hubweb *web;
	struct hubbar bar;
	int rc = hubweb_open(&web, env, err);

	if (rc != ST_OK) return rc;
	hubbar_init(&bar, o->progress, o->say, clock_now_ns());
	bar.beat = o->beat;
	rc = hubinfo_fetch(&info, web, name, &bar, err);
	if (rc == ST_OK) {
		struct hubfile_env files = {
			.web = web, .cache = cache, .bar = &bar, .repo = name->repo, .commit = info.commit};

		rc = fetch_files(out, &files, name, &info, err);
	}
	hubweb_close(web);
	hubinfo_release(&info);
	return rc;
}

/* ---- both ---- */

static int find(struct hub_found *out, const struct hubname *name, const struct hub_opts *o, bool cached_is_good,
		struct errbuf *err)
{
	struct hubcache cache;
	struct hubenv env;
	int rc = hubenv_read(&env, err);

	if (rc == ST_OK) {
		hubcache_init(&cache, env.cache, name->repo);
		if ((cached_is_good || env.offline) && find_cached(out, &cache, name))
			;
		else if (env.offline)
			rc = err_set(err, ST_NOT_FOUND, "%s: %s has not all of it, and HF_HUB_OFFLINE is set",
				     name->repo, env.cache);
		else if (!o->may_fetch)
			rc = err_set(
				err, ST_NOT_FOUND,
				"%s: there is no such path, and %s has not all of it; fetch it with `sluice pull %s`",
				name->repo, env.cache, name->repo);
		else
			rc = fetch(out, &env, &cache, name, o, err);
	}
	hubenv_release(&env);
	return rc;
}

int hub_pull(struct hub_found *out, const struct hubname *name, const struct hub_opts *o, struct errbuf *err)
{
	struct hub_opts may = *o;

	*out = (struct hub_found){0};
	may.may_fetch = true;
	return find(out, name, &may, false, err);
}

int hub_resolve(struct hub_found *out, const char *model, const struct hub_opts *o, struct errbuf *err)
{
	struct hubname name;
	size_t len = strlen(model);
	int rc;

	*out = (struct hub_found){0};
	/* "models/x.gguf" is a file that is not there; nobody calls a repository so. */
	if (access(model, F_OK) == 0 || !hubname_is_likely(model) || hubname_parse(&name, model, NULL) != ST_OK ||
	    (!name.file[0] && len > 5 && strcmp(name.repo + strlen(name.repo) - 5, ".gguf") == 0)) {
		out->path = mem_strdup(model);
		return ST_OK;
	}
	rc = find(out, &name, o, true, err);
	return rc == ST_OK || !o->may_fetch
		       ? rc
		       : err_prefix(err, rc, "there is no file or folder %s, and as a model of the hub", model);
}
