/* dequant.c - GGUF rows to f32: the table of formats, and the formats with blocks of 32 and one or two scales.
 *
 * Sources of the layouts: ggml's block structs (ggml/src/ggml-common.h) and gguf-py's quants.py; our own in ggtype.h. */
#include "kernels/dequant.h"

#include "common/float8.h"

static dequant_block_fn *dequant_function(enum ggtype type)
{
#define DEQUANT_CASE(type_name, function) \
	case GGTYPE_##type_name:          \
		return function;
	switch ((int)type) {
		DEQUANT_FUNCTIONS(DEQUANT_CASE)
	default:
		return NULL;
	}
#undef DEQUANT_CASE
}

bool kdequant_supported(enum ggtype type)
{
	return type == GGTYPE_F32 || type == GGTYPE_F16 || type == GGTYPE_BF16 || dequant_function(type) != NULL;
}

int kdequant_row(enum ggtype type, const void *row, float *out, uint64_t cols)
{
	const uint8_t *in = row;
	const struct ggtype_info *info;
	dequant_block_fn *function;

	switch ((int)type) {
	case GGTYPE_F32:
		memcpy(out, row, cols * 4);
		return ST_OK;
	case GGTYPE_F16:
		for (uint64_t i = 0; i < cols; i++) out[i] = half_load(in + 2 * i);
		return ST_OK;
	case GGTYPE_BF16:
		for (uint64_t i = 0; i < cols; i++) out[i] = half_bf16_to_f32(half_load_u16(in + 2 * i));
		return ST_OK;
	default:
		break;
	}
	function = dequant_function(type);
	if (!function) return ST_UNSUPPORTED;
	info = ggtype_info(type);
	for (uint64_t b = 0; b < cols / info->block_len; b++)
		function(in + b * info->block_bytes, out + b * info->block_len);
	return ST_OK;
}

void dequant_q4_0(const uint8_t *block, float *out)
{
	float d = half_load(block);

	for (int i = 0; i < 16; i++) {
		out[i] = (float)((block[2 + i] & 15) - 8) * d;
		out[i + 16] = (float)((block[2 + i] >> 4) - 8) * d;
	}
}

void dequant_q4_1(const uint8_t *block, float *out)
{
	float d = half_load(block), m = half_load(block + 2);

	for (int i = 0; i < 16; i++) {
		out[i] = (float)(block[4 + i] & 15) * d + m;
		out[i + 16] = (float)(block[4 + i] >> 4) * d + m;
	}
}

void dequant_q5_0(const uint8_t *block, float *out)
{
	float d = half_load(block);
	uint32_t high = half_load_u32(block + 2);

	for (int i = 0; i < 16; i++) {
		int lo = (block[6 + i] & 15) | (int)(high >> i & 1) << 4;
		int hi = (block[6 + i] >> 4) | (int)(high >> (i + 16) & 1) << 4;

		out[i] = (float)(lo - 16) * d;
		out[i + 16] = (float)(hi - 16) * d;
	}
}

void dequant_q5_1(const uint8_t *block, float *out)
{
	float d = half_load(block), m = half_load(block + 2);
	uint32_t high = half_load_u32(block + 4);

	for (int i = 0; i < 16; i++) {
		int lo = (block[8 + i] & 15) | (int)(high >> i & 1) << 4;
		int hi = (block[8 + i] >> 4) | (int)(high >> (i + 16) & 1) << 4;

		out[i] = (float)lo * d + m;
		out[i + 16] = (float)hi * d + m;
	}
}

void dequant_q8_0(const uint8_t *block, float *out)
{
	float d = half_load(block);

	for (int i = 0; i < 32; i++) out[i] = (float)(int8_t)block[2 + i] * d;
}

void dequant_f8_b32(const uint8_t *block, float *out)
{
	float d = half_bits_f32(half_load_u32(block));

	for (int i = 0; i < 32; i++) out[i] = float8_to_f32(block[4 + i]) * d;
}

void dequant_q4_z(const uint8_t *block, float *out)
{
	float d = half_load(block), offset = half_load(block + 2);

	for (int i = 0; i < 16; i++) {
		out[i] = ((float)(block[4 + i] & 15) + offset) * d;
		out[i + 16] = ((float)(block[4 + i] >> 4) + offset) * d;
	}
}
