/* inspect_memory.h - `sluice inspect --memory`: the plan of a worker's memory before anything is loaded. */
#ifndef SLUICE_INSPECT_MEMORY_H
#define SLUICE_INSPECT_MEMORY_H

#include "common/errbuf.h"
#include "model/kvplan.h"
#include "proto/config.h"

struct inspect_memory {
	struct kvplan_shape shape;
	struct kvplan plan; /* points to shape */
	int rc;             /* kvplan_make()'s */
	struct errbuf why;  /* its text; "" when it fits */
};

/* Fills *out with what the worker of these options would plan for the model at `path`: it is asked (`sluice-worker-...
 * --plan`), since it alone knows what its device needs. tp: ranks that share the model. Another code than ST_OK: there
 * is no plan, err says why. */
int inspect_memory_plan(struct inspect_memory *out, const struct config *c, const char *path, const struct spec *spec,
			uint32_t tp, struct errbuf *err) MUST_CHECK;

#endif
