/* half.h - 16-bit floats in plain C: IEEE binary16 and bfloat16, rounding to nearest even, as F16C and gguf do. */
#ifndef SLUICE_HALF_H
#define SLUICE_HALF_H

#include "common/base.h"

#include <string.h>

static inline float half_bits_f32(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static inline uint32_t half_f32_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return bits;
}

static inline float half_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exponent = h >> 10 & 0x1f;
	uint32_t mantissa = h & 0x3ff;

	if (exponent == 0) {
		float f = (float)mantissa * 0x1p-24f; /* zero or subnormal: exact in f32 */

		return sign ? -f : f;
	}
	if (exponent == 31) return half_bits_f32(sign | 0x7f800000 | mantissa << 13);
	return half_bits_f32(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t half_from_f32(float f)
{
	uint32_t bits = half_f32_bits(f);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t mag = bits & 0x7fffffff;

	if (mag > 0x7f800000) return sign | 0x7e00 | (mag >> 13 & 0x3ff); /* NaN stays one, quiet */
	if (mag >= 0x477ff000) return sign | 0x7c00;                      /* rounds to 65536 or more */
	if (mag < 0x38800000) {
		/* Below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits. */
		float shifted = half_bits_f32(mag) + 0.5f;

		return sign | (uint16_t)(half_f32_bits(shifted) - 0x3f000000);
	}
	mag += 0xfff + (mag >> 13 & 1);
	return sign | (uint16_t)((mag - 0x38000000) >> 13);
}

static inline float half_bf16_to_f32(uint16_t h)
{
	return half_bits_f32((uint32_t)h << 16);
}

static inline uint16_t half_bf16_from_f32(float f)
{
	uint32_t bits = half_f32_bits(f);

	if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 64);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Unaligned little-endian reads of GGUF rows (this code runs on little-endian machines only). */
static inline uint16_t half_load_u16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, 2);
	return v;
}

static inline uint32_t half_load_u32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

static inline float half_load(const void *p)
{
	return half_to_f32(half_load_u16(p));
}

#endif
