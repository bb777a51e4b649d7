/* apikeys.c - see apikeys.h. */
#include "proto/apikeys.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Opens what is a plain file: anything else could hold the supervisor up. */
static int apikeys_open(const char *path, int *fd, size_t *len, struct errbuf *err)
{
	struct stat st;

	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0) return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s", strerror(errno));
	if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) return err_set(err, ST_INVALID, "not a plain file");
	if (st.st_size > APIKEYS_FILE_BYTES_MAX)
		return err_set(err, ST_LIMIT, "%lld bytes, at most %d are read", (long long)st.st_size, APIKEYS_FILE_BYTES_MAX);
	*len = (size_t)st.st_size;
	return ST_OK;
}

static int apikeys_read(struct apikeys *k, int fd, size_t len, struct errbuf *err)
{
	char *text = mem_zalloc(len + 1, 1);
	uint32_t before = k->n;
	size_t got = 0;
	ssize_t n = 1;
	int rc;

	while (got < len && (n = read(fd, text + got, len - got)) > 0) got += (size_t)n;
	rc = n < 0 ? err_set(err, ST_IO, "%s", strerror(errno)) : apikeys_add_lines(k, text, got, err);
	if (rc == ST_OK && k->n == before) rc = err_set(err, ST_INVALID, "it holds no key");
	sodium_memzero(text, len);
	free(text);
	return rc;
}

int apikeys_add_file(struct apikeys *k, const char *path, struct errbuf *err)
{
	size_t len = 0;
	int fd, rc;

	rc = apikeys_open(path, &fd, &len, err);
	if (rc == ST_OK) rc = apikeys_read(k, fd, len, err);
	if (fd >= 0) close(fd);
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
	uint8_t digest[APIKEY_DIGEST_BYTES];
	int found = 0;

	apikey_digest(key, len, digest);
	for (uint32_t i = 0; i < k->n; i++) found |= sodium_memcmp(digest, k->digests[i], sizeof(digest)) == 0;
	sodium_memzero(digest, sizeof(digest));
	return found != 0;
}
