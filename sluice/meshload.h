/* meshload.h - a real executor and a real worker of the null device under a load of requests, without HTTP: this process plays the
 * frontends, which only take what comes. Measures what the executor makes of it. */
#ifndef SLUICE_MESHLOAD_H
#define SLUICE_MESHLOAD_H

#include "common/base.h"
#include "common/errbuf.h"

struct meshload_opts {
	const char *model;
	uint32_t n_frontends;
	uint32_t n_requests; /* that run all the time */
	uint32_t step_us;    /* --null-step-us */
	uint64_t ns;         /* to measure, after a warm-up */
};

struct meshload_result {
	uint64_t ns, n_results, n_steps; /* results: rows that came, a token each */
	uint64_t schedule_ns, encode_ns, send_ns, executor_cpu_ns, worker_cpu_ns;
};

int meshload_run(const struct meshload_opts *o, struct meshload_result *out, struct errbuf *err) MUST_CHECK;

#endif
