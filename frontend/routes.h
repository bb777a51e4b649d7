/* routes.h - what is served: method, path, handler. The OpenAPI document is made from the same table. */
#ifndef SLUICE_ROUTES_H
#define SLUICE_ROUTES_H

#include "frontend/api.h"

struct route {
	enum http_method method;
	const char *path; /* ends in '/': a prefix, something must follow */
	void (*handler)(struct api *a, struct http_request *r);
};

const struct route *routes_all(size_t *n);
/* Whether the path needs no key. */
bool routes_is_open(const char *path);

#endif
