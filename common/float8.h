/* float8.h - 8-bit floats in plain C: OCP E4M3FN ("OCP 8-bit Floating Point Specification (OFP8)", 2023): sign, 4 bits of exponent
 * with bias 7, 3 of mantissa; no infinities, 0x7f and 0xff are NaN, the largest value is 448. */
#ifndef SLUICE_FLOAT8_H
#define SLUICE_FLOAT8_H

#include "common/half.h"

#define FLOAT8_MAX 448.0f
#define FLOAT8_NAN 0x7f

static inline float float8_to_f32(uint8_t x)
{
	uint32_t sign = (uint32_t)(x & 0x80) << 24, exponent = x >> 3 & 15, mantissa = x & 7;

	if ((x & 0x7f) == FLOAT8_NAN) return half_bits_f32(sign | 0x7fc00000);
	if (exponent == 0) {
		float f = (float)mantissa * 0x1p-9f;

		return sign ? -f : f;
	}
	return half_bits_f32(sign | (exponent + 120) << 23 | mantissa << 20);
}

/* Rounds to nearest even; what is larger than 448, infinity too, becomes 448; a NaN becomes 0x7f. */
static inline uint8_t float8_from_f32(float f)
{
	uint32_t bits = half_f32_bits(f), mag = bits & 0x7fffffff;
	uint8_t sign = (uint8_t)(bits >> 24 & 0x80);

	if (mag > 0x7f800000) return FLOAT8_NAN;
	if (mag >= 0x43e00000) return sign | 0x7e; /* 448 */
	if (mag < 0x3c800000) {
		/* Below 2^-6: adding 2^14 leaves the rounded multiple of 2^-9 in the low bits. */
		float shifted = half_bits_f32(mag) + 0x1p14f;

		return sign | (uint8_t)(half_f32_bits(shifted) - 0x46800000);
	}
	mag += 0x7ffff + (mag >> 20 & 1);
	return sign | (uint8_t)((mag >> 20) - (120 << 3));
}

#endif
