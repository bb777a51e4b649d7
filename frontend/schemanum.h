/* schemanum.h - sets of numbers as automata over their decimal texts.
 *
 * The texts have no exponent and no "-0", any number of digits, and zeros behind the last digit of a fraction change nothing: a set that has
 * 1 has 1.0 too. So sets of texts are sets of numbers, and may be joined, cut and taken away from one another. What is
 * written in the end has a bounded number of digits: schemanum_writable(). */
#ifndef SLUICE_SCHEMANUM_H
#define SLUICE_SCHEMANUM_H

#include "frontend/dfa.h"

/* A number of a schema: digits with a sign, the point behind the first n_int of them (perhaps 0). */
struct schemanum {
	const char *digits; /* without zeros at either end, but for those of a whole number; terminated; "" is zero */
	size_t n, n_int;    /* n_int <= n */
	bool is_negative;
	bool is_large_real; /* written as a real number beyond 2^53: other texts of whole numbers are not equal to it */
};

/* False: not a number (integers beyond 64 bits are, see jsonbig.h), or one of more digits than there may be. */
bool schemanum_read(struct gramctx *g, const json_t *value, struct schemanum *out);

const struct dfa *schemanum_all(struct gramctx *g);
/* Whole numbers; `strictly`: as drafts 3 and 4 have it, where 1.0 is none (and the set is not one of numbers but of texts). */
const struct dfa *schemanum_whole(struct gramctx *g, bool strictly);
const struct dfa *schemanum_at_least(struct gramctx *g, const struct schemanum *bound, bool exclusive);
const struct dfa *schemanum_at_most(struct gramctx *g, const struct schemanum *bound, bool exclusive);
const struct dfa *schemanum_one_of(struct gramctx *g, const struct schemanum *numbers, size_t n);
/* NULL: not a divisor whose multiples binary fractions represent exactly, or too large a one; g has not failed. */
const struct dfa *schemanum_multiples(struct gramctx *g, const struct schemanum *divisor);

/* The texts of the set to choose from: as short as they can be when there are only so many, whole numbers without a fraction, and
 * otherwise not more digits than a double keeps apart. */
const struct dfa *schemanum_writable(struct gramctx *g, const struct dfa *a);

#endif
