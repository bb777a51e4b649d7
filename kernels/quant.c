/* quant.c - f32 to GGUF rows, as gguf's own quantizers do it (bit-exact for Q8_0, F16, BF16; in Q4_0 and Q4_1 a tie may
 * round the other way). For tests and tools; no product uses it. */
#include "common/float8.h"
#include "kernels/kernels.h"

#include <math.h>

static void quant_put_u16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, 2);
}

static float quant_amax(const float *x, float *signed_max)
{
	float amax = 0;

	*signed_max = 0;
	for (int i = 0; i < 32; i++) {
		if (!(fabsf(x[i]) > amax)) continue;
		amax = fabsf(x[i]);
		*signed_max = x[i];
	}
	return amax;
}

static int quant_clamp(float v, int min, int max)
{
	return !(v >= (float)min) ? min : v > (float)max ? max : (int)v;
}

static void quant_q8_0(const float *x, uint8_t *out)
{
	float unused, d = quant_amax(x, &unused) / 127.0f;
	float inv = d != 0 ? 1.0f / d : 0.0f;

	quant_put_u16(out, half_from_f32(d));
	/* Away from zero on a tie, as gguf's np_roundf. */
	for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)(int8_t)quant_clamp(roundf(x[i] * inv), -127, 127);
}

static void quant_q4_0(const float *x, uint8_t *out)
{
	float max, d, inv;

	quant_amax(x, &max);
	d = max / -8.0f;
	inv = d != 0 ? 1.0f / d : 0.0f;
	quant_put_u16(out, half_from_f32(d));
	for (int i = 0; i < 16; i++) {
		int lo = quant_clamp(floorf(x[i] * inv + 8.5f), 0, 15);
		int hi = quant_clamp(floorf(x[i + 16] * inv + 8.5f), 0, 15);

		out[2 + i] = (uint8_t)(lo | hi << 4);
	}
}

static void quant_q4_1(const float *x, uint8_t *out)
{
	float min = x[0], max = x[0], d, inv;

	for (int i = 1; i < 32; i++) {
		min = fminf(min, x[i]);
		max = fmaxf(max, x[i]);
	}
	d = (max - min) / 15.0f;
	inv = d != 0 ? 1.0f / d : 0.0f;
	quant_put_u16(out, half_from_f32(d));
	quant_put_u16(out + 2, half_from_f32(min));
	for (int i = 0; i < 16; i++) {
		int lo = quant_clamp(floorf((x[i] - min) * inv + 0.5f), 0, 15);
		int hi = quant_clamp(floorf((x[i + 16] - min) * inv + 0.5f), 0, 15);

		out[4 + i] = (uint8_t)(lo | hi << 4);
	}
}

/* The grid has a whole zero point in 0..15, so 0 is always one of its values. */
static void quant_q4_z(const float *x, uint8_t *out)
{
	float min = 0, max = 0, d, inv, zero;

	for (int i = 0; i < 32; i++) {
		min = fminf(min, x[i]);
		max = fmaxf(max, x[i]);
	}
	d = (max - min) / 15.0f;
	inv = d != 0 ? 1.0f / d : 0.0f;
	zero = (float)quant_clamp(roundf(-min * inv), 0, 15);
	quant_put_u16(out, half_from_f32(d));
	quant_put_u16(out + 2, half_from_f32(-zero));
	for (int i = 0; i < 16; i++) {
		int lo = quant_clamp(floorf(x[i] * inv + zero + 0.5f), 0, 15);
		int hi = quant_clamp(floorf(x[i + 16] * inv + zero + 0.5f), 0, 15);

		out[4 + i] = (uint8_t)(lo | hi << 4);
	}
}

static void quant_f8_b32(const float *x, uint8_t *out)
{
	float unused, d = quant_amax(x, &unused) / FLOAT8_MAX;
	float inv = d != 0 ? 1.0f / d : 0.0f;

	memcpy(out, &d, 4);
	for (int i = 0; i < 32; i++) out[4 + i] = float8_from_f32(x[i] * inv);
}

int kquant_row(enum ggtype type, const float *x, void *row, uint64_t cols)
{
	uint8_t *out = row;

	if (type == GGTYPE_F32) {
		memcpy(out, x, cols * 4);
		return ST_OK;
	}
	if (type == GGTYPE_F16 || type == GGTYPE_BF16) {
		for (uint64_t i = 0; i < cols; i++)
			quant_put_u16(out + 2 * i, type == GGTYPE_F16 ? half_from_f32(x[i]) : half_bf16_from_f32(x[i]));
		return ST_OK;
	}
	for (uint64_t b = 0; b < cols / 32; b++, x += 32) {
		switch (type) {
		case GGTYPE_Q8_0:
			quant_q8_0(x, out + b * 34);
			break;
		case GGTYPE_Q4_0:
			quant_q4_0(x, out + b * 18);
			break;
		case GGTYPE_Q4_1:
			quant_q4_1(x, out + b * 20);
			break;
		case GGTYPE_Q4_Z:
			quant_q4_z(x, out + b * 20);
			break;
		case GGTYPE_F8_B32:
			quant_f8_b32(x, out + b * 36);
			break;
		default:
			return ST_UNSUPPORTED;
		}
	}
	return ST_OK;
}
