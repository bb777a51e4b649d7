/* dequant_k.c - the K formats: 256 values a block, scales of 16 or 32 values that are themselves quantized. */
#include "kernels/dequant.h"

void dequant_q2_k(const uint8_t *block, float *out)
{
	const uint8_t *scales = block, *qs = block + 16;
	float d = half_load(block + 80), dmin = half_load(block + 82);

	for (int part = 0; part < 16; part++) {
		/* 16 values: half a 32-byte line of quants, at one of its four bit pairs */
		const uint8_t *line = qs + part / 8 * 32 + part % 2 * 16;
		int shift = part / 2 % 4 * 2;
		float scale = d * (float)(scales[part] & 15), min = dmin * (float)(scales[part] >> 4);

		for (int i = 0; i < 16; i++) *out++ = scale * (float)(line[i] >> shift & 3) - min;
	}
}

int dequant_q3_k_scale(const uint8_t *scales, int part)
{
	int low = part < 8 ? scales[part] & 15 : scales[part - 8] >> 4;

	return (low | (scales[8 + part % 4] >> (part / 4 * 2) & 3) << 4) - 32;
}

void dequant_q3_k(const uint8_t *block, float *out)
{
	const uint8_t *high = block, *qs = block + 32, *scales = block + 96;
	float d = half_load(block + 108);

	for (int part = 0; part < 16; part++) {
		const uint8_t *line = qs + part / 8 * 32 + part % 2 * 16;
		int shift = part / 2 % 4 * 2, high_bit = part / 2;
		float scale = d * (float)dequant_q3_k_scale(scales, part);

		for (int i = 0; i < 16; i++) {
			int value = (line[i] >> shift & 3) - (high[part % 2 * 16 + i] >> high_bit & 1 ? 0 : 4);

			*out++ = scale * (float)value;
		}
	}
}

void dequant_k4_scale(const uint8_t *p, int j, int *scale, int *min)
{
	if (j < 4) {
		*scale = p[j] & 63;
		*min = p[j + 4] & 63;
	} else {
		*scale = (p[j + 4] & 15) | (p[j - 4] >> 6) << 4;
		*min = (p[j + 4] >> 4) | (p[j] >> 6) << 4;
	}
}

void dequant_q4_k(const uint8_t *block, float *out)
{
	float d = half_load(block), dmin = half_load(block + 2);
	const uint8_t *qs = block + 16;

	for (int part = 0; part < 8; part++) {
		const uint8_t *line = qs + part / 2 * 32;
		int scale, min, shift = part % 2 * 4;

		dequant_k4_scale(block + 4, part, &scale, &min);
		for (int i = 0; i < 32; i++)
			*out++ = d * (float)scale * (float)(line[i] >> shift & 15) - dmin * (float)min;
	}
}

void dequant_q5_k(const uint8_t *block, float *out)
{
	float d = half_load(block), dmin = half_load(block + 2);
	const uint8_t *high = block + 16, *qs = block + 48;

	for (int part = 0; part < 8; part++) {
		const uint8_t *line = qs + part / 2 * 32;
		int scale, min, shift = part % 2 * 4;

		dequant_k4_scale(block + 4, part, &scale, &min);
		for (int i = 0; i < 32; i++) {
			int value = (line[i] >> shift & 15) | (high[i] >> part & 1) << 4;

			*out++ = d * (float)scale * (float)value - dmin * (float)min;
		}
	}
}

void dequant_q6_k(const uint8_t *block, float *out)
{
	const uint8_t *low = block, *high = block + 128;
	const int8_t *scales = (const int8_t *)block + 192;
	float d = half_load(block + 208);

	for (int part = 0; part < 16; part++) {
		int half = part / 8, quarter = part / 2 % 4, at = part % 2 * 16;
		const uint8_t *low_line = low + half * 64 + quarter % 2 * 32 + at;
		const uint8_t *high_line = high + half * 32 + at;
		float scale = d * (float)scales[part];

		for (int i = 0; i < 16; i++) {
			int value = (low_line[i] >> (quarter / 2 * 4) & 15) | (high_line[i] >> (quarter * 2) & 3) << 4;

			*out++ = scale * (float)(value - 32);
		}
	}
}
