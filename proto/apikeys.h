/* apikeys.h - the API keys of a server: read from text and files by the supervisor, compared by the frontends.
 *
 * Only digests (BLAKE2b-256) leave apikeys_add_...(): they are what travels over the control socket and what a process keeps, so no
 * key lies in the memory of a frontend but for the moment in which a client's is compared. */
#ifndef SLUICE_APIKEYS_H
#define SLUICE_APIKEYS_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/limits.h"

#define APIKEY_DIGEST_BYTES 32
#define APIKEY_LEN_MAX 512           /* of one key; issuers' are below 200 */
#define APIKEYS_FILE_BYTES_MAX (1024 * 1024)

struct apikeys {
	uint8_t (*digests)[APIKEY_DIGEST_BYTES]; /* owned; n of them */
	uint32_t n;
};

/* All zero is an empty set, which allows nobody: whether keys are needed at all is the caller's to know. */
void apikeys_release(struct apikeys *k);

/* Adds the keys of a comma-separated list. No error text ever repeats a key. */
int apikeys_add_list(struct apikeys *k, const char *list, struct errbuf *err) MUST_CHECK;
/* Adds the keys of a file: one a line, blanks around it and what follows a # are no part of it. A file without keys is ST_INVALID. */
int apikeys_add_file(struct apikeys *k, const char *path, struct errbuf *err) MUST_CHECK;

/* The digests as they travel: n * APIKEY_DIGEST_BYTES bytes. Replaces what k holds. */
int apikeys_set(struct apikeys *k, const void *digests, size_t len) MUST_CHECK;

/* Takes the same time whichever key it is, or none: every digest is compared. */
bool apikeys_has(const struct apikeys *k, const void *key, size_t len);
/* Likewise; *name: a number that stands for the key in all processes. */
bool apikeys_find(const struct apikeys *k, const void *key, size_t len, uint64_t *name);

#endif
