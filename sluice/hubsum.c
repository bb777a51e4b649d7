/* hubsum.c - see hubsum.h. */
#include "sluice/hubsum.h"

#include "common/mem.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

struct hubsum {
	EVP_MD_CTX *ctx;
	char want[65];
};

struct hubsum *hubsum_new(const char *etag, uint64_t size)
{
	size_t len = strlen(etag);
	struct hubsum *s;
	char head[40];

	if ((len != 40 && len != 64) || strspn(etag, "0123456789abcdef") != len) return NULL;
	s = mem_new(struct hubsum);
	memcpy(s->want, etag, len);
	s->ctx = EVP_MD_CTX_new();
	CHECK(s->ctx && EVP_DigestInit_ex(s->ctx, len == 64 ? EVP_sha256() : EVP_sha1(), NULL) == 1);
	if (len == 40) hubsum_add(s, head, (size_t)snprintf(head, sizeof(head), "blob %" PRIu64, size) + 1);
	return s;
}

void hubsum_add(struct hubsum *s, const void *data, size_t len)
{
	CHECK(EVP_DigestUpdate(s->ctx, data, len) == 1);
}

bool hubsum_matches(struct hubsum *s, char got[65])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	CHECK(EVP_DigestFinal_ex(s->ctx, digest, &n) == 1 && n <= 32);
	for (unsigned i = 0; i < n; i++) snprintf(got + (size_t)2 * i, 3, "%02x", digest[i]);
	return strcmp(got, s->want) == 0;
}

void hubsum_free(struct hubsum *s)
{
	if (!s) return;
	EVP_MD_CTX_free(s->ctx);
	free(s);
}
