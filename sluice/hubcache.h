/* hubcache.h - a repository's folder in the cache that huggingface_hub, transformers and vLLM use too.
 *
 *   CACHE/models--ORG--NAME/blobs/ETAG               the bytes; ETAG.incomplete while they arrive
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/PATH    a relative link to a blob
 *   CACHE/models--ORG--NAME/refs/REVISION            a commit
 *   CACHE/.locks/models--ORG--NAME/ETAG.lock         flock()ed while a blob is being fetched, by them and by us
 * What is there is whole: blobs and links appear by rename(). Nothing is ever removed but a blob's own remains. */
#ifndef SLUICE_HUBCACHE_H
#define SLUICE_HUBCACHE_H

#include "common/base.h"
#include "common/errbuf.h"

#define HUBCACHE_PATH_MAX 5120

struct hubcache {
	char root[3072]; /* CACHE */
	char repo[256];  /* "models--ORG--NAME" */
};

/* repo: "ORG/NAME". Touches nothing. */
void hubcache_init(struct hubcache *c, const char *cache, const char *repo);

/* These write a path of at most HUBCACHE_PATH_MAX bytes. file NULL: the snapshot's folder. */
void hubcache_blob(const struct hubcache *c, const char *etag, const char *suffix, char out[HUBCACHE_PATH_MAX]);
void hubcache_snapshot(const struct hubcache *c, const char *commit, const char *file, char out[HUBCACHE_PATH_MAX]);

/* The commit that a revision was when it was last fetched; a commit is itself. ST_NOT_FOUND: not known, or not there.
 */
int hubcache_commit(const struct hubcache *c, const char *revision, char commit[41]) MUST_CHECK;
/* The files of a snapshot, sorted; those whose blob is missing are left out. Free each and the list. Bounded. */
char **hubcache_files(const struct hubcache *c, const char *commit, size_t *n);

/* Makes the folders that are needed for a download. */
int hubcache_prepare(const struct hubcache *c, const char *commit, struct errbuf *err) MUST_CHECK;
int hubcache_write_ref(const struct hubcache *c, const char *revision, const char *commit,
		       struct errbuf *err) MUST_CHECK;
/* Links the file to its blob; replaces what is there if it is another link. */
int hubcache_link(const struct hubcache *c, const char *commit, const char *file, const char *etag,
		  struct errbuf *err) MUST_CHECK;

/* The lock of a blob: a descriptor to close, in *fd. ST_AGAIN: another process has it. */
int hubcache_lock(const struct hubcache *c, const char *etag, int *fd, struct errbuf *err) MUST_CHECK;

#endif
