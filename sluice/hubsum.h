/* hubsum.h - what a blob is called on a hub, computed from its bytes.
 *
 * LFS files: SHA-256 (64 digits). Others: git's object id, SHA-1 over "blob SIZE\0" and the bytes (40 digits). SHA-1 is
 * what the hub and the cache use as names; it guards against accidents, and TLS against others. From OpenSSL, which is
 * linked for TLS anyway: libsodium has no SHA-1. */
#ifndef SLUICE_HUBSUM_H
#define SLUICE_HUBSUM_H

#include "common/base.h"

struct hubsum;

/* NULL: etag is no such name, so nothing can be said of the bytes. size: of all bytes. */
struct hubsum *hubsum_new(const char *etag, uint64_t size);
void hubsum_add(struct hubsum *s, const void *data, size_t len);
/* Ends it: whether the bytes have that name. got: what they have, of at least 65 bytes. */
bool hubsum_matches(struct hubsum *s, char got[65]);
void hubsum_free(struct hubsum *s);

#endif
