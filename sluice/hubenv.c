/* hubenv.c - see hubenv.h. Empty variables count as unset. */
#include "sluice/hubenv.h"

#include "common/filetext.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TOKEN_MAX      4096
#define TIMEOUT_S      30 /* huggingface_hub gives up after 10; a loaded mirror may take longer for the first byte */
#define TIMEOUT_MAX_S  86400
#define PATH_BYTES_MAX 3000 /* leaves room for what is put behind it */

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && v[0] ? v : NULL;
}

static char *joined(const char *a, const char *b)
{
	struct strbuf s;

	strbuf_init(&s, 2 * PATH_BYTES_MAX);
	strbuf_puts(&s, a);
	strbuf_puts(&s, b);
	return strbuf_take(&s);
}

/* "~/x" is the home folder's. */
static char *expanded(const char *path)
{
	const char *home = env("HOME");

	if (path[0] == '~' && (path[1] == '/' || !path[1]) && home) return joined(home, path + 1);
	return mem_strdup(path);
}

static char *hf_home(void)
{
	if (env("HF_HOME")) return expanded(env("HF_HOME"));
	if (env("XDG_CACHE_HOME")) return joined(env("XDG_CACHE_HOME"), "/huggingface");
	return joined(env("HOME") ? env("HOME") : "", "/.cache/huggingface");
}

static int read_endpoint(struct hubenv *e, struct errbuf *err)
{
	const char *url = env("HF_ENDPOINT") ? env("HF_ENDPOINT") : "https://huggingface.co";
	size_t len = strlen(url);

	while (len > 0 && url[len - 1] == '/') len--;
	e->endpoint = mem_strndup(url, len);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)url[i] <= 32 || url[i] == 127) len = 0;
	if (len == 0 || len > 1024 || (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0))
		return err_set(err, ST_INVALID, "HF_ENDPOINT is \"%s\"; expected http://... or https://...",
			       quote_short(url, strlen(url)).text);
	return ST_OK;
}

/* White space at its ends is no part of a token; what cannot stand in a header is none. */
static int set_token(struct hubenv *e, const char *text, const char *where, struct errbuf *err)
{
	size_t len;

	text += strspn(text, " \t\r\n");
	len = strlen(text);
	while (len > 0 && strchr(" \t\r\n", text[len - 1])) len--;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] <= 32 || (unsigned char)text[i] >= 127)
			return err_set(err, ST_INVALID, "%s holds what cannot be a token", where);
	if (len > 0) e->token = mem_strndup(text, len);
	return ST_OK;
}

static int read_token_file(struct hubenv *e, const char *path, struct errbuf *err)
{
	size_t len;
	char *text;
	int rc = filetext_read(&text, &len, path, TOKEN_MAX - 1, err);

	if (rc == ST_NOT_FOUND || rc == ST_DENIED || rc == ST_IO) return ST_OK;
	if (rc == ST_LIMIT) rc = err_set(err, ST_INVALID, "the token file is longer than %d bytes", TOKEN_MAX - 1);
	if (rc == ST_OK) {
		rc = set_token(e, text, "the token file", err);
		explicit_bzero(text, len);
		free(text);
	}
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "%s", path);
}

static int read_token(struct hubenv *e, const char *home, struct errbuf *err)
{
	char *path;
	int rc;

	if (env("HF_TOKEN")) return set_token(e, env("HF_TOKEN"), "HF_TOKEN", err);
	path = env("HF_TOKEN_PATH") ? expanded(env("HF_TOKEN_PATH")) : joined(home, "/token");
	rc = read_token_file(e, path, err);
	free(path);
	return rc;
}

static bool is_true(const char *v)
{
	return v && (strcmp(v, "1") == 0 || strcasecmp(v, "on") == 0 || strcasecmp(v, "yes") == 0 ||
		     strcasecmp(v, "true") == 0);
}

static int read_timeout(struct hubenv *e, struct errbuf *err)
{
	const char *v = env("HF_HUB_DOWNLOAD_TIMEOUT");
	char *end;

	e->timeout_s = TIMEOUT_S;
	if (!v) return ST_OK;
	e->timeout_s = strtol(v, &end, 10);
	if (*end || e->timeout_s < 1 || e->timeout_s > TIMEOUT_MAX_S)
		return err_set(err, ST_INVALID, "HF_HUB_DOWNLOAD_TIMEOUT is \"%s\"; expected seconds, 1 to %d",
			       quote_short(v, strlen(v)).text, TIMEOUT_MAX_S);
	return ST_OK;
}

int hubenv_read(struct hubenv *e, struct errbuf *err)
{
	char *home = hf_home();
	const char *cache = env("HF_HUB_CACHE") ? env("HF_HUB_CACHE") : env("HUGGINGFACE_HUB_CACHE");
	const char *cacert = env("SSL_CERT_FILE");
	int rc;

	*e = (struct hubenv){.offline = is_true(env("HF_HUB_OFFLINE"))};
	if (!cacert) cacert = env("REQUESTS_CA_BUNDLE");
	if (!cacert) cacert = env("CURL_CA_BUNDLE");
	if (cacert) e->cacert = expanded(cacert);
	e->cache = cache ? expanded(cache) : joined(home, "/hub");
	rc = read_endpoint(e, err);
	if (rc == ST_OK) rc = read_token(e, home, err);
	if (rc == ST_OK) rc = read_timeout(e, err);
	if (rc == ST_OK && strlen(e->cache) > PATH_BYTES_MAX)
		rc = err_set(err, ST_INVALID, "the cache's path has %zu bytes; expected at most %d", strlen(e->cache),
			     PATH_BYTES_MAX);
	free(home);
	return rc;
}

void hubenv_release(struct hubenv *e)
{
	if (e->token) explicit_bzero(e->token, strlen(e->token));
	free(e->token);
	free(e->endpoint);
	free(e->cacert);
	free(e->cache);
	*e = (struct hubenv){0};
}
