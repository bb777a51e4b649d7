/* benchrun.h - a load run: requests with random prompts, sent in a closed or an open loop, and when their tokens came. */
#ifndef SLUICE_BENCHRUN_H
#define SLUICE_BENCHRUN_H

#include "common/base.h"
#include "sluice/cmdopts.h"

struct bench_opts {
	struct cmdserver server;
	const char *endpoint;    /* path */
	int64_t n_prompts;
	int64_t concurrency;     /* requests at a time; 0: all of them */
	double rate;             /* requests a second; infinite: as fast as concurrency allows */
	double burstiness;       /* 1: Poisson; below: burstier; above: more regular */
	int64_t input_len, output_len, prefix_len;
	double temperature;
	int64_t seed;
	bool no_ignore_eos, quiet;
	const char *json;        /* result file, "-" for stdout */
	const char *percentiles; /* "50,90,99" */
};

struct bench_request {
	double due_s, start_s; /* since the beginning; open loop: the clock of a request starts when it is due */
	double first_s, last_s, end_s;
	uint32_t n_events;     /* with text */
	uint64_t n_in, n_out;  /* tokens, as the server counted them */
	bool ok;
};

struct bench_result {
	struct bench_request *requests; /* (n) */
	size_t n;
	double *itl_s; /* between events of a stream */
	size_t n_itl, itl_cap;
	double duration_s;
	bool ids_prompts;  /* prompts were token ids, of exactly input_len */
	char error[256];   /* the first one, "" when all went well */
};

/* EXIT_OK, or EXIT_FAILED after a line on stderr when nothing could be run. */
int benchrun(const struct bench_opts *o, struct client *c, struct bench_result *out);
void benchrun_release(struct bench_result *r);

/* benchreport.c: the table on stdout, and the JSON where --json says. */
bool benchreport_may(const struct bench_opts *o); /* --percentiles is sane */
int benchreport(const struct bench_opts *o, const struct bench_result *r);

#endif
