/* auth.c - see auth.h. */
#include "frontend/auth.h"

#include "frontend/http.h"

#include <string.h>
#include <strings.h>

static const char *auth_header(const struct http_request *r, const char *name)
{
	uint32_t n;
	const char *value = http_header(r, name, &n);

	return n == 1 ? value : NULL;
}

static const char *auth_bearer(const char *value)
{
	static const char scheme[] = "bearer ";

	if (!value || strncasecmp(value, scheme, sizeof(scheme) - 1) != 0) return NULL;
	value += sizeof(scheme) - 1;
	return value + strspn(value, " ");
}

static bool auth_has(const struct apikeys *keys, const char *given, uint64_t *name)
{
	size_t len = given ? strlen(given) : 0;

	/* Blanks at the end of a header's value are no part of it; llhttp leaves them. */
	while (len > 0 && (given[len - 1] == ' ' || given[len - 1] == '\t')) len--;
	return len > 0 && apikeys_find(keys, given, len, name);
}

bool auth_allows(const struct apikeys *keys, const struct http_request *r, uint64_t *name)
{
	uint64_t bearer_name = 0, plain_name = 0;
	bool bearer, plain;

	*name = 0;
	if (keys->n == 0) return true;
	bearer = auth_has(keys, auth_bearer(auth_header(r, "authorization")), &bearer_name);
	plain = auth_has(keys, auth_header(r, "x-api-key"), &plain_name);
	*name = bearer ? bearer_name : plain_name;
	return bearer || plain;
}
