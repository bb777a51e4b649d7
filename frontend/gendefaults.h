/* gendefaults.h - sampling parameters of requests that do not say them: a model's own, from generation_config.json, as
 * vLLM does it.
 *
 * temperature, top_p, top_k, min_p and repetition_penalty are defaults. max_new_tokens bounds the output of every
 * request, also of those that ask for more. do_sample is not looked at: `temperature: 0` in a request is greedy,
 * nothing else is. */
#ifndef SLUICE_GENDEFAULTS_H
#define SLUICE_GENDEFAULTS_H

#include "common/base.h"
#include "common/errbuf.h"

struct gendefaults {
	double temperature, top_p, min_p, repetition_penalty;
	int64_t top_k;      /* 0: off */
	int64_t output_max; /* 0: no bound */
};

/* OpenAI's, which change nothing. */
#define GENDEFAULTS_NEUTRAL ((struct gendefaults){.temperature = 1, .top_p = 1, .repetition_penalty = 1})

/* From the folder's generation_config.json; neutral when there is none. The bounds are those of requests. says: what
 * differs from the neutral ones, "temperature 0.6, top_k 20"; "": nothing. */
int gendefaults_read(struct gendefaults *d, const char *folder, char says[200], struct errbuf *err) MUST_CHECK;

#endif
