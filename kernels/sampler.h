/* sampler.h - draws one token from one row of logits. The CPU device's `sample` runs it for each row.
 *
 * Open to tests: sampler_keep() gives the exact distribution that sampler_run() draws from. */
#ifndef SLUICE_SAMPLER_H
#define SLUICE_SAMPLER_H

#include "kernels/kernels.h"

#define SAMPLER_CHUNK 64

/* Passes over a row, by level; each gives bits that depend on the row alone. */
struct sampler_math {
	/* Largest value, lowest index on a tie. False when there is a NaN or +infinity, or nothing finite. */
	bool (*best)(const float *x, uint32_t n, uint32_t *best);
	/* p[i] = exp((x[i] - max) * inv_t); returns the sum. */
	double (*softmax_terms)(float *p, const float *x, uint32_t n, float max, float inv_t);
	/* Sums of SAMPLER_CHUNK elements each, the last one of what is left. */
	void (*chunk_sums)(double *sums, const float *p, uint32_t n);
};

struct sampler {
	const float *logits; /* (vocab), not changed */
	uint32_t vocab;
	const struct ksample *params;
	const uint32_t *extra; /* lists of params */
	const struct sampler_math *math;
	bool hash_logits;
	const float *z; /* set by sampler_keep(): the logits after mask, bans, bias and penalties */
	uint32_t best;  /* set by sampler_keep(): the largest logit that may be drawn */
	float *p;      /* workspace of sampler_scratch_bytes(vocab); afterwards the kept terms, 0 for what is dropped */
};

size_t sampler_scratch_bytes(uint32_t vocab);

/* The first half of a draw: what is left after mask, bans, bias, penalties, temperature, min_p, top_k and top_p, as s->p (vocab) and its sum
 * *total > 0; the probability of a token is p / total. Temperature 0 leaves one token. False when the row has a NaN,
 * +infinity or no finite logit that may be drawn. */
bool sampler_keep(struct sampler *s, double *total);

void sampler_run(struct sampler *s, struct ksampled *out);

#endif
