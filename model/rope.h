/* rope.h - the frequencies of rotary position embeddings, with the scalings that models are published with. Pure
 * formulas.
 *
 * Source: transformers' modeling_rope_utils.py (ROPE_INIT_FUNCTIONS), here in double. Pair i of a rotation of `dims`
 * elements turns by base^(-2 i / dims) for each position; a scaling makes this slower, so that positions beyond those
 * trained look like trained ones. */
#ifndef SLUICE_ROPE_H
#define SLUICE_ROPE_H

#include "model/spec.h"

enum rope_kind {
	ROPE_DEFAULT,
	ROPE_LINEAR, /* all by factor */
	ROPE_LLAMA3, /* slow pairs by factor, fast ones not, smoothly between */
	ROPE_YARN,   /* likewise, by the number of turns in the original context (Peng et al. 2023) */
	ROPE_DIVIDED /* each pair by its own divisor: longrope's, or a GGUF's rope_freqs */
};

struct rope_params {
	double base;
	uint32_t dims; /* even */
	bool neox;
	enum rope_kind kind;
	double factor;
	double original;             /* positions that were trained before the scaling: LLAMA3, YARN */
	double low_freq, high_freq;  /* LLAMA3 */
	double beta_fast, beta_slow; /* YARN: turns in the original context, from which on a pair is not, and below
					which it is fully scaled */
	bool truncate;               /* YARN: that range is widened to whole pairs */
	const double *divisors;      /* (dims / 2), DIVIDED */
	double mscale;               /* cosine and sine are multiplied by it */
};

/* Fills *out; its freqs are a new array. */
void rope_fill(struct spec_rope *out, const struct rope_params *p);

/* 0.1 * mscale * ln(factor) + 1; 1 for a factor up to 1. */
double rope_yarn_mscale(double factor, double mscale);
/* sqrt(1 + ln(factor) / ln(original)); 1 for a factor up to 1. */
double rope_long_mscale(double factor, double original);

#endif
