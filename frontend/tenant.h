/* tenant.h - whose a request is: a number that stands for the tenant in all processes, for the limits at the door (proto/governor.h) and
 * the shares in the executor (executor/fair.h).
 *
 * The upper half is who has proven to be somebody: the API key, or 0. The lower half is what the request says of itself:
 * X-Gateway-Inference-Fairness-Id, or 0. So whoever invents ids stays within the account of its key. */
#ifndef SLUICE_TENANT_H
#define SLUICE_TENANT_H

#include "common/base.h"

struct http_request;

/* key_name: auth.h; 0: no key was needed. 0: nobody in particular. */
uint64_t tenant_of(const struct http_request *r, uint64_t key_name);

#endif
