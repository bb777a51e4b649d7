/* hubfile.h - one file on its way from a hub into the cache.
 *
 *   ASK --HEAD--> KNOWN --its turn--> LOCKING --> HASHING --> FETCHING --sum is right--> DONE
 *                                     (waits while another process fetches it)
 * Whatever may pass (a lost connection, a server that is busy) is tried again after a while, from where it stopped;
 * what does not pass (no such file, a wrong sum twice, a full disk) ends it with FAILED. A file of the cache is never
 * changed: bytes go to a .incomplete, which becomes the blob when they are all there and have the sum that the hub
 * calls them by. The .incomplete of a run that was killed is gone on with; its bytes are hashed again, in parts, so
 * that others do not wait. */
#ifndef SLUICE_HUBFILE_H
#define SLUICE_HUBFILE_H

#include "sluice/hubbar.h"
#include "sluice/hubcache.h"
#include "sluice/hubsum.h"
#include "sluice/hubweb.h"

enum hubfile_state {
	HUBFILE_ASK,
	HUBFILE_ASKING,
	HUBFILE_KNOWN,
	HUBFILE_LOCKING,
	HUBFILE_HASHING,
	HUBFILE_WAITING,
	HUBFILE_FETCHING,
	HUBFILE_DONE,
	HUBFILE_FAILED
};

/* What the files of a download share. */
struct hubfile_env {
	struct hubweb *web;
	const struct hubcache *cache;
	struct hubbar *bar;
	const char *repo, *commit;
};

struct hubfile {
	const struct hubfile_env *env;
	const char *name; /* safe; borrowed */
	char *path;       /* owned: of the URL, behind the endpoint */
	enum hubfile_state state;
	char etag[201];
	uint64_t size;
	uint64_t have;    /* bytes of the .incomplete that are there, and hashed */
	uint64_t on_disk; /* that were there at the beginning */
	int lock_fd, fd;  /* -1: none */
	struct hubsum *sum;
	uint32_t n_failures; /* in a row */
	uint64_t best;       /* the most that was there when a failure was forgiven */
	uint64_t due_ns;
	bool said_waiting, was_resumed, was_bad;
	bool from_start;   /* the answer is the whole file though a part was asked for */
	struct errbuf err; /* FAILED, or of the last try */
	int rc;
};

void hubfile_init(struct hubfile *f, const struct hubfile_env *env, const char *name);
/* After hubweb_stop(): no exchange may speak to it any more. */
void hubfile_release(struct hubfile *f);

/* Asks for etag and size, when it is due. True: it is asking now. */
bool hubfile_step_ask(struct hubfile *f, uint64_t now);
/* Goes on with the download. */
void hubfile_step(struct hubfile *f, uint64_t now);
/* It holds a connection or reads the disk. */
bool hubfile_is_busy(const struct hubfile *f);
/* The blob is in the cache already. */
bool hubfile_is_cached(const struct hubfile *f);

/* What an answer that is no 2xx means; ST_AGAIN: it may pass. file NULL: the repository itself was asked for. */
int hubfile_judge(const struct hubweb_answer *a, const char *repo, const char *file, struct errbuf *err);
/* When to try again after so many failures in a row; retry_s: what the server wishes. 0: not any more. */
uint64_t hubfile_backoff_ns(uint32_t n_failures, uint32_t retry_s);

#endif
