/* meshwake.h - how long a broadcast through the step ring takes to wake its readers, and what their waiting costs, beside a bare
 * futex between two processes. */
#ifndef SLUICE_MESHWAKE_H
#define SLUICE_MESHWAKE_H

#include "common/base.h"
#include "common/errbuf.h"

struct meshwake_side {
	double p50_us, p99_us; /* from before the push to the reader's first look at it */
	double cpu;            /* of a core, the sleeper's alone */
};

struct meshwake_result {
	uint32_t rate; /* pushes a second */
	struct meshwake_side ring, futex;
};

/* Measures for n pushes at each of the two, in turn. Forks: call it where no threads are. */
int meshwake_run(uint32_t rate, uint32_t n, struct meshwake_result *out, struct errbuf *err) MUST_CHECK;

#endif
