/* dequant_iq.c - the IQ formats (values from a code book), the ternary ones, and the 4-bit floats with shared
 * exponents. */
#include "kernels/dequant.h"
#include "kernels/dequant_grids.h"

const int8_t dequant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t dequant_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 16 bytes of nibbles: low ones first, high ones 16 later. */
static void dequant_nibbles(const uint8_t *qs, const int8_t *values, float d, float *out)
{
	for (int i = 0; i < 16; i++) {
		out[i] = d * (float)values[qs[i] & 15];
		out[i + 16] = d * (float)values[qs[i] >> 4];
	}
}

void dequant_iq4_nl(const uint8_t *block, float *out)
{
	dequant_nibbles(block + 2, dequant_iq4_values, half_load(block), out);
}

int dequant_iq4_xs_scale(const uint8_t *block, int part)
{
	int low = block[4 + part / 2] >> (part % 2 * 4) & 15, high = half_load_u16(block + 2) >> (2 * part) & 3;

	return (low | high << 4) - 32;
}

void dequant_iq4_xs(const uint8_t *block, float *out)
{
	float d = half_load(block);

	for (int part = 0; part < 8; part++) {
		float scale = d * (float)dequant_iq4_xs_scale(block, part);

		dequant_nibbles(block + 8 + part * 16, dequant_iq4_values, scale, out + part * 32);
	}
}

/* 7 stored sign bits; the eighth makes their number even. */
static uint32_t dequant_signs(uint32_t seven)
{
	return seven | (uint32_t)__builtin_parity(seven) << 7;
}

static void dequant_iq2_point(uint16_t point, uint32_t signs, float d, float *out)
{
	static const float values[4] = {8, 25, 43, 0};

	for (int i = 0; i < 8; i++) {
		float v = d * values[point >> (2 * i) & 3];

		out[i] = signs >> i & 1 ? -v : v;
	}
}

void dequant_iq2_xxs(const uint8_t *block, float *out)
{
	float d = half_load(block);

	for (int part = 0; part < 8; part++) {
		const uint8_t *p = block + 2 + part * 8;
		uint32_t word = half_load_u32(p + 4);
		float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;

		for (int i = 0; i < 4; i++)
			dequant_iq2_point(dequant_grid_iq2xxs[p[i]], dequant_signs(word >> (7 * i) & 127), scale,
					  out + part * 32 + i * 8);
	}
}

void dequant_iq2_xs(const uint8_t *block, float *out)
{
	float d = half_load(block);

	for (int i = 0; i < 32; i++) {
		uint16_t q = half_load_u16(block + 2 + 2 * i);
		int scale = block[66 + i / 4] >> (i / 2 % 2 * 4) & 15;

		dequant_iq2_point(dequant_grid_iq2xs[q & 511], dequant_signs(q >> 9), d * (0.5f + (float)scale) * 0.25f,
				  out + i * 8);
	}
}

void dequant_iq2_s(const uint8_t *block, float *out)
{
	const uint8_t *qs = block + 2, *signs = block + 34, *high = block + 66, *scales = block + 74;
	float d = half_load(block);

	for (int i = 0; i < 32; i++) {
		int point = qs[i] | (high[i / 4] >> (i % 4 * 2) & 3) << 8;
		int scale = scales[i / 4] >> (i / 2 % 2 * 4) & 15;

		dequant_iq2_point(dequant_grid_iq2s[point], signs[i], d * (0.5f + (float)scale) * 0.25f, out + i * 8);
	}
}

static void dequant_iq3_point(uint16_t point, const float *values, uint32_t signs, float d, float *out)
{
	for (int i = 0; i < 4; i++) {
		float v = d * values[point >> (3 * i) & 7];

		out[i] = signs >> i & 1 ? -v : v;
	}
}

void dequant_iq3_xxs(const uint8_t *block, float *out)
{
	static const float values[8] = {4, 12, 20, 28, 36, 44, 52, 62};
	const uint8_t *qs = block + 2;
	float d = half_load(block);

	for (int i = 0; i < 64; i++) {
		uint32_t word = half_load_u32(block + 66 + i / 8 * 4);
		uint32_t signs = dequant_signs(word >> (i / 2 % 4 * 7) & 127);

		dequant_iq3_point(dequant_grid_iq3xxs[qs[i]], values, signs >> (i % 2 * 4),
				  d * (0.5f + (float)(word >> 28)) * 0.5f, out + i * 4);
	}
}

void dequant_iq3_s(const uint8_t *block, float *out)
{
	static const float values[8] = {1, 3, 5, 7, 9, 11, 13, 15};
	const uint8_t *qs = block + 2, *high = block + 66, *signs = block + 74, *scales = block + 106;
	float d = half_load(block);

	for (int i = 0; i < 64; i++) {
		int point = qs[i] | (high[i / 8] >> (i % 8) & 1) << 8;
		int scale = scales[i / 16] >> (i / 8 % 2 * 4) & 15;

		dequant_iq3_point(dequant_grid_iq3s[point], values, (uint32_t)signs[i / 2] >> (i % 2 * 4),
				  d * (float)(1 + 2 * scale), out + i * 4);
	}
}

static void dequant_iq1_point(uint16_t point, float delta, float d, float *out)
{
	for (int i = 0; i < 8; i++) out[i] = d * ((float)((point >> (2 * i) & 3) - 1) + delta);
}

void dequant_iq1_s(const uint8_t *block, float *out)
{
	const uint8_t *qs = block + 2;
	float d = half_load(block);

	for (int i = 0; i < 32; i++) {
		uint32_t high = half_load_u16(block + 34 + i / 4 * 2);
		uint32_t point = qs[i] | (high >> (i % 4 * 3) & 7) << 8;

		dequant_iq1_point(dequant_grid_iq1s[point], high & 0x8000 ? -0.125f : 0.125f,
				  d * (float)(2 * (high >> 12 & 7) + 1), out + i * 8);
	}
}

void dequant_iq1_m(const uint8_t *block, float *out)
{
	const uint8_t *qs = block, *high = block + 32, *scales = block + 48;
	uint32_t d_bits = 0;
	float d;

	/* The f16 scale lies in the top nibbles of the four words of scales. */
	for (int i = 0; i < 4; i++) d_bits |= (uint32_t)(half_load_u16(scales + 2 * i) >> 12) << (4 * i);
	d = half_to_f32((uint16_t)d_bits);
	for (int i = 0; i < 32; i++) {
		uint32_t nibble = high[i / 2] >> (i % 2 * 4) & 15;
		uint32_t scale = (uint32_t)half_load_u16(scales + i / 8 * 2) >> (i / 2 % 4 * 3) & 7;

		dequant_iq1_point(dequant_grid_iq1s[qs[i] | (nibble & 7) << 8], nibble & 8 ? -0.125f : 0.125f,
				  d * (float)(2 * scale + 1), out + i * 8);
	}
}

/* Digit `digit` of 5 (or 4) ternary digits in a byte, stored as a fraction of 256: times 3^digit, the carry is the
 * digit. */
static float dequant_trit(uint8_t byte, int digit)
{
	static const uint8_t power[5] = {1, 3, 9, 27, 81};
	uint8_t q = (uint8_t)(byte * power[digit]);

	return (float)((q * 3) >> 8) - 1.0f;
}

void dequant_tq1_0(const uint8_t *block, float *out)
{
	float d = half_load(block + 52);

	for (int digit = 0; digit < 5; digit++)
		for (int i = 0; i < 32; i++) *out++ = dequant_trit(block[i], digit) * d;
	for (int digit = 0; digit < 5; digit++)
		for (int i = 0; i < 16; i++) *out++ = dequant_trit(block[32 + i], digit) * d;
	for (int digit = 0; digit < 4; digit++)
		for (int i = 0; i < 4; i++) *out++ = dequant_trit(block[48 + i], digit) * d;
}

void dequant_tq2_0(const uint8_t *block, float *out)
{
	float d = half_load(block + 64);

	for (int half = 0; half < 2; half++)
		for (int pair = 0; pair < 4; pair++)
			for (int i = 0; i < 32; i++) *out++ = (float)((block[half * 32 + i] >> (2 * pair) & 3) - 1) * d;
}

float dequant_mxfp4_scale(uint32_t e)
{
	return half_bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

void dequant_mxfp4(const uint8_t *block, float *out)
{
	dequant_nibbles(block + 1, dequant_fp4_values, dequant_mxfp4_scale(block[0]), out);
}

/* Unsigned E4M3, halved likewise. */
static float dequant_e4m3(uint8_t x)
{
	int exponent = x >> 3 & 15, mantissa = x & 7;

	if (x == 0x7f) return 0; /* NaN: ggml reads it as 0 */
	if (exponent == 0) return (float)mantissa * 0x1p-10f;
	return (float)(8 + mantissa) * half_bits_f32((uint32_t)(exponent - 11 + 127) << 23);
}

void dequant_nvfp4(const uint8_t *block, float *out)
{
	for (int part = 0; part < 4; part++, out += 16) {
		float d = dequant_e4m3(block[part]);
		const uint8_t *qs = block + 4 + part * 8;

		for (int i = 0; i < 8; i++) {
			out[i] = d * (float)dequant_fp4_values[qs[i] & 15];
			out[i + 8] = d * (float)dequant_fp4_values[qs[i] >> 4];
		}
	}
}
