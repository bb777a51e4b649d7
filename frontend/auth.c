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

static bool auth_has(const struct apikeys *keys, const char *given)
{
	size_t len = given ? strlen(given) : 0;

	/* Blanks at the end of a header's value are no part of it; llhttp leaves them. */
	while (len > 0 && (given[len - 1] == ' ' || given[len - 1] == '\t')) len--;
	return len > 0 && apikeys_has(keys, given, len);
}

bool auth_allows(const struct apikeys *keys, const struct http_request *r)
{
	bool bearer, plain;

	if (keys->n == 0) return true;
	bearer = auth_has(keys, auth_bearer(auth_header(r, "authorization")));
	plain = auth_has(keys, auth_header(r, "x-api-key"));
	return bearer || plain;
}
