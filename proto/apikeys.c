/* apikeys.c - see apikeys.h. */
#include "proto/apikeys.h"

#include "common/filetext.h"
#include "common/mem.h"

#include <sodium.h>
#include <string.h>

void apikeys_release(struct apikeys *k)
{
	free(k->digests);
	*k = (struct apikeys){0};
}

static void apikey_digest(const void *key, size_t len, uint8_t out[APIKEY_DIGEST_BYTES])
{
	crypto_generichash(out, APIKEY_DIGEST_BYTES, key, len, NULL, 0);
}

/* Visible ASCII: anything else cannot be in a header, or would be cut there. */
static bool apikey_is_sound(const char *key, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (key[i] <= 0x20 || key[i] >= 0x7f) return false;
	return true;
}

/* where: "--api-key: key 2", for the error. */
static int apikeys_add(struct apikeys *k, const char *key, size_t len, const char *where, uint32_t number, struct errbuf *err)
{
	if (len == 0) return err_set(err, ST_INVALID, "%s %u: empty", where, number);
	if (len > APIKEY_LEN_MAX)
		return err_set(err, ST_INVALID, "%s %u: %zu bytes, at most %d are allowed", where, number, len, APIKEY_LEN_MAX);
	if (!apikey_is_sound(key, len))
		return err_set(err, ST_INVALID, "%s %u: a key is visible ASCII without blanks", where, number);
	if (k->n == LIMIT_API_KEYS) return err_set(err, ST_LIMIT, "more than %d API keys", LIMIT_API_KEYS);
	k->digests = mem_realloc(k->digests, k->n + 1, sizeof(*k->digests));
	apikey_digest(key, len, k->digests[k->n++]);
	return ST_OK;
}

int apikeys_add_list(struct apikeys *k, const char *list, struct errbuf *err)
{
	uint32_t number = 1;
	int rc;

	for (;; list++, number++) {
		size_t len = strcspn(list, ",");

		rc = apikeys_add(k, list, len, "--api-key: key", number, err);
		list += len;
		if (rc != ST_OK || !*list) return rc;
	}
}

/* ---- files ---- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static int apikeys_add_lines(struct apikeys *k, const char *text, size_t len, struct errbuf *err)
{
	const char *end = text + len;
	uint32_t number = 1;
	int rc = ST_OK;

	for (; text < end && rc == ST_OK; number++) {
		const char *eol = memchr(text, '\n', (size_t)(end - text)), *stop, *hash;

		if (!eol) eol = end;
		hash = memchr(text, '#', (size_t)(eol - text));
		/* A # inside a key is part of it; a comment begins the line or follows a blank. */
		while (hash && hash > text && !is_blank(hash[-1])) hash = memchr(hash + 1, '#', (size_t)(eol - hash - 1));
		stop = hash ? hash : eol;
		while (stop > text && is_blank(stop[-1])) stop--;
		while (text < stop && is_blank(*text)) text++;
		if (text < stop) rc = apikeys_add(k, text, (size_t)(stop - text), "line", number, err);
		text = eol + 1;
	}
	return rc;
}

int apikeys_add_file(struct apikeys *k, const char *path, struct errbuf *err)
{
	uint32_t before = k->n;
	char *text;
	size_t len;
	int rc = filetext_read(&text, &len, path, APIKEYS_FILE_BYTES_MAX, err);

	if (rc == ST_OK) {
		rc = apikeys_add_lines(k, text, len, err);
		if (rc == ST_OK && k->n == before) rc = err_set(err, ST_INVALID, "it holds no key");
		sodium_memzero(text, len);
		free(text);
	}
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "--api-key-file %s", path);
}

/* ---- comparing ---- */

int apikeys_set(struct apikeys *k, const void *digests, size_t len)
{
	if (len % APIKEY_DIGEST_BYTES != 0 || len / APIKEY_DIGEST_BYTES > LIMIT_API_KEYS) return ST_CORRUPT;
	apikeys_release(k);
	k->n = (uint32_t)(len / APIKEY_DIGEST_BYTES);
	if (k->n > 0) k->digests = mem_dup(digests, k->n, sizeof(*k->digests));
	return ST_OK;
}

bool apikeys_has(const struct apikeys *k, const void *key, size_t len)
{
	uint64_t name;

	return apikeys_find(k, key, len, &name);
}

bool apikeys_find(const struct apikeys *k, const void *key, size_t len, uint64_t *name)
{
	uint8_t digest[APIKEY_DIGEST_BYTES];
	int found = 0;

	apikey_digest(key, len, digest);
	for (uint32_t i = 0; i < k->n; i++) found |= sodium_memcmp(digest, k->digests[i], sizeof(digest)) == 0;
	memcpy(name, digest, sizeof(*name)); /* nobody looks at that of a wrong key */
	sodium_memzero(digest, sizeof(digest));
	return found != 0;
}
