/* auth.h - whether a request brings one of the server's API keys.
 *
 * `Authorization: Bearer KEY`, or `x-api-key: KEY` as Anthropic's clients send it. A header that is there twice counts as none: what
 * a proxy checked might be the other one. */
#ifndef SLUICE_AUTH_H
#define SLUICE_AUTH_H

#include "proto/apikeys.h"

struct http_request;

/* keys: borrowed; an empty set lets everybody in. *name: stands for the key; 0: none was needed. */
bool auth_allows(const struct apikeys *keys, const struct http_request *r, uint64_t *name);

#endif
