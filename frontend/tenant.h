/* tenant.h - whose a request is: a number that stands for the tenant in all processes. */
#ifndef SLUICE_TENANT_H
#define SLUICE_TENANT_H

#include "common/base.h"

struct http_request;

/* By X-Gateway-Inference-Fairness-Id if that is there (an empty one is not), else key_name (auth.h), else 0: nobody in particular. */
uint64_t tenant_of(const struct http_request *r, uint64_t key_name);

#endif
