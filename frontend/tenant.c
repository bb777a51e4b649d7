/* tenant.c - see tenant.h. */
#include "frontend/tenant.h"

#include "frontend/http.h"
#include "proto/governor.h"

#include <string.h>
#include <xxhash.h>

/* Two spaces of names: an id that a gateway has made up must not be a key's by chance more than any other. */
#define TENANT_SEED_ID 1
#define TENANT_SEED_KEY 2

static uint64_t tenant_name(const void *data, size_t len, uint64_t seed)
{
	uint64_t h = XXH3_64bits_withSeed(data, len, seed);

	return h > GOVERNOR_TENANT_GONE ? h : h + GOVERNOR_TENANT_GONE + 1;
}

uint64_t tenant_of(const struct http_request *r, uint64_t key_name)
{
	const char *id = http_header(r, "x-gateway-inference-fairness-id", NULL);
	size_t len = id ? strlen(id) : 0;

	while (len > 0 && (id[len - 1] == ' ' || id[len - 1] == '\t')) len--;
	if (len > 0) return tenant_name(id, len, TENANT_SEED_ID);
	return key_name ? tenant_name(&key_name, sizeof(key_name), TENANT_SEED_KEY) : GOVERNOR_TENANT_NOBODY;
}
