/* plaindec.h - the decoder once more, as its formulas say: one sequence, token by token, in double, with no cache and
 * no batch. Any description (model/spec.h) with random weights. What the real one is compared with, where no recorded
 * model has a mechanism. */
#ifndef SLUICE_PLAINDEC_H
#define SLUICE_PLAINDEC_H

#include "model/spec.h"

/* Values of each layer's roles, and in the last row those of the whole model: (n, rows, cols) of spec_role_shape();
 * NULL: no such role. */
struct plaindec {
	const struct spec *spec;
	float *(*values)[SPEC_ROLE_COUNT]; /* (n_layers + 1) */
	double route_gap; /* the smallest difference that decided about an expert so far: below some 1e-4 rounding does
			   */
};

/* Random weights, the same for the same seed. */
void plaindec_init(struct plaindec *p, const struct spec *spec, uint64_t seed);
void plaindec_release(struct plaindec *p);

/* Logits (n, spec.n_tokens) behind each of n tokens from position 0 on; free() them. */
double *plaindec_run(struct plaindec *p, const uint32_t *tokens, uint32_t n);

#endif
