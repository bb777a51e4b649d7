/* tenant.c - see tenant.h. */
#include "frontend/tenant.h"

#include "frontend/http.h"
#include "proto/governor.h"

#include <string.h>
#include <xxhash.h>

/* Of half a word; never one that means something else. */
static uint32_t tenant_half(uint64_t h)
{
	return max_u32((uint32_t)(h >> 32), GOVERNOR_TENANT_GONE + 1);
}

uint64_t tenant_of(const struct http_request *r, uint64_t key_name)
{
	const char *id = http_header(r, "x-gateway-inference-fairness-id", NULL);
	size_t len = id ? strlen(id) : 0;
	uint32_t account = key_name ? tenant_half(key_name) : 0;

	while (len > 0 && (id[len - 1] == ' ' || id[len - 1] == '\t')) len--;
	return (uint64_t)account << 32 | (len > 0 ? tenant_half(XXH3_64bits(id, len)) : 0);
}
