/* keysource.c - see keysource.h. */
#include "sluice/keysource.h"

#include "common/mem.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {"SLUICE_API_KEY", "VLLM_API_KEY"};

static void wipe(char *text)
{
	memset(text, '*', strlen(text));
}

/* The value that belongs to argv[i] when that is --api-key, in any of its spellings; else NULL. */
static char *key_argument(int argc, char **argv, int i)
{
	char *p = argv[i] + strspn(argv[i], "-");

	if (p == argv[i] || (strncmp(p, "api-key", 7) != 0 && strncmp(p, "api_key", 7) != 0)) return NULL;
	if (p[7] == '=') return p + 8;
	return p[7] == 0 && i + 1 < argc ? argv[i + 1] : NULL;
}

static void wipe_traces(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		char *value = key_argument(argc, argv, i);

		if (value) wipe(value);
	}
	for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
		char *value = getenv(variables[i]);

		if (value) wipe(value);
		unsetenv(variables[i]);
	}
}

int keysource_open(struct keysource *s, struct config *c, int argc, char **argv, struct errbuf *err)
{
	const char *vllm = getenv("VLLM_API_KEY");
	struct apikeys now = {0};
	int rc = ST_OK;

	*s = (struct keysource){0};
	CHECK(sodium_init() >= 0);
	if (!c->api_key[0] && !c->api_key_file[0] && vllm) rc = config_set(c, "api-key", vllm, err);
	if (rc == ST_OK && c->api_key[0]) rc = apikeys_add_list(&s->given, c->api_key, err);
	wipe_traces(argc, argv);
	sodium_memzero(c->api_key, strlen(c->api_key));
	if (c->api_key_file[0]) s->path = mem_strdup(c->api_key_file);
	if (rc == ST_OK) rc = keysource_read(s, &now, err);
	apikeys_release(&now);
	if (rc != ST_OK) keysource_release(s);
	return rc;
}

void keysource_release(struct keysource *s)
{
	apikeys_release(&s->given);
	free(s->path);
	s->path = NULL;
}

int keysource_read(const struct keysource *s, struct apikeys *out, struct errbuf *err)
{
	int rc;

	*out = (struct apikeys){0};
	rc = apikeys_set(out, s->given.digests, (size_t)s->given.n * APIKEY_DIGEST_BYTES);
	if (rc == ST_OK && s->path) rc = apikeys_add_file(out, s->path, err);
	if (rc != ST_OK) apikeys_release(out);
	return rc;
}
