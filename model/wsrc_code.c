/* wsrc_code.c - codes of quantized checkpoints (safetensors) become rows of blocks that kernels know, or f32.
 *
 * Formats:
 *   FP8    DeepSeek-V3's block-scaled float8 (weight, weight_scale_inv); value = code * scale of its block
 *   GPTQ   AutoGPTQ's qlinear_cuda.py: word (k, r) of qweight holds columns 8k .. 8k + 7 of row r, lowest nibble first;
 * word (g, r / 8) of qzeros likewise rows; a v1 zero is stored minus 1 and wraps: (nibble + 1) & 15 AWQ    AutoAWQ's
 * packing_utils.py ("gemm"): word (c, r / 8) holds 8 rows of column c in the order 0 2 4 6 1 3 5 7 MXFP4  transformers'
 * integrations/mxfp4.py: byte i of a block holds elements 2i (low) and 2i + 1; exponent is the scale - 127 The blocks
 * that come out are described in common/ggtype.h: byte j of 32 nibbles holds elements j (low) and j + 16. Scales are
 * moved, not computed with, so nothing is rounded. */
#include "model/wsrc_impl.h"

#include "common/float8.h"
#include "common/half.h"

#include <math.h>
#include <string.h>

/* Nibble that holds row o of AWQ's eight. */
static const uint8_t wsrc_awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
/* Row that nibble i holds. */
static const uint8_t wsrc_awq_row[8] = {0, 2, 4, 6, 1, 3, 5, 7};

static uint32_t wsrc_word(const struct ckpt_tensor *t, uint64_t ix)
{
	return half_load_u32(t->data + ix * 4);
}

/* Nibble i of a word becomes byte i. */
static uint64_t wsrc_spread(uint32_t word)
{
	uint64_t x = word;

	x = (x | x << 16) & 0x0000ffff0000ffffull;
	x = (x | x << 8) & 0x00ff00ff00ff00ffull;
	return (x | x << 4) & 0x0f0f0f0f0f0f0f0full;
}

/* 32 nibbles in order to the order of blocks. */
static void wsrc_put_nibbles(uint8_t *out, const uint32_t w[4])
{
	uint64_t a = wsrc_spread(w[0]) | wsrc_spread(w[2]) << 4, b = wsrc_spread(w[1]) | wsrc_spread(w[3]) << 4;

	memcpy(out, &a, 8);
	memcpy(out + 8, &b, 8);
}

static uint64_t wsrc_group(const struct wsrc *w, uint64_t col)
{
	return w->order ? wsrc_word(w->order, col) : col / w->block_cols;
}

bool wsrc_order_is_plain(const struct wsrc *w)
{
	for (uint64_t c = 0; w->order && c < w->tensor_cols; c++)
		if (wsrc_word(w->order, c) != c / w->block_cols) return false;
	return true;
}

int wsrc_check_order(const struct wsrc *w, struct errbuf *err)
{
	for (uint64_t c = 0; w->order && c < w->tensor_cols; c++) {
		if (wsrc_word(w->order, c) < w->scales->dims[0]) continue;
		return err_set(err, ST_INVALID, "tensor %.*s: column %llu has group %d, but there are %llu",
			       (int)w->order->name.len, w->order->name.s, (unsigned long long)c,
			       (int32_t)wsrc_word(w->order, c), (unsigned long long)w->scales->dims[0]);
	}
	return ST_OK;
}

uint64_t wsrc_scale_ix(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col)
{
	uint64_t stack = 0;

	switch (w->code) {
	case WSRC_FP8:
		/* Each of a stack has its own blocks: they begin anew with it. */
		if (w->scales->n_dims > 2) {
			stack = tensor_row / w->tensor_rows * div_up(w->tensor_rows, w->block_rows);
			tensor_row %= w->tensor_rows;
		}
		return (stack + tensor_row / w->block_rows) * div_up(w->tensor_cols, w->block_cols) +
		       tensor_col / w->block_cols;
	case WSRC_MXFP4:
		return tensor_row * (w->tensor_cols / 32) + tensor_col / 32;
	case WSRC_GPTQ:
	case WSRC_AWQ:
		return wsrc_group(w, tensor_col) * w->tensor_rows + tensor_row;
	case WSRC_PLAIN:
		break;
	}
	return 0;
}

static float wsrc_scale(const struct wsrc *w, uint64_t ix)
{
	if (w->scales->type == CKPT_F8_E8M0)
		return w->scales->data[ix] == 0xff ? NAN : ldexpf(1, w->scales->data[ix] - 127);
	return wsrc_float_at(w->scales, ix);
}

static uint32_t wsrc_zero(const struct wsrc *w, uint64_t group, uint64_t row)
{
	uint64_t words = div_up(w->tensor_rows, 8);
	uint32_t nibble = w->code == WSRC_AWQ ? wsrc_awq_nibble[row % 8] : (uint32_t)(row % 8), z;

	if (!w->zeros) return 8;
	z = wsrc_word(w->zeros, group * words + row / 8) >> (4 * nibble) & 15;
	return w->zeros_minus_one ? (z + 1) & 15 : z;
}

bool wsrc_scales_are_halves(const struct wsrc *w)
{
	uint64_t n = w->scales->dims[0] * w->scales->dims[1];

	if (w->scales->type == GGTYPE_F16) return true;
	for (uint64_t i = 0; i < n; i++) {
		float scale = wsrc_scale(w, i);

		if (half_to_f32(half_from_f32(scale)) != scale) return false;
	}
	return true;
}

bool wsrc_zeros_are_8(const struct wsrc *w)
{
	uint64_t words = w->zeros ? w->zeros->bytes / 4 : 0, per_group = div_up(w->tensor_rows, 8);
	uint32_t all = w->zeros_minus_one ? 0x77777777 : 0x88888888;

	for (uint64_t i = 0; i < words; i++) {
		if (wsrc_word(w->zeros, i) == all) continue;
		/* Nibbles behind the last row may be anything. */
		for (uint64_t row = i % per_group * 8; row < i % per_group * 8 + 8 && row < w->tensor_rows; row++)
			if (wsrc_zero(w, i / per_group, row) != 8) return false;
	}
	return true;
}

/* ---- single values ---- */

static uint32_t wsrc_code_at(const struct wsrc *w, uint64_t row, uint64_t col)
{
	uint8_t byte;

	switch (w->code) {
	case WSRC_GPTQ:
		return wsrc_word(w->t, col / 8 * w->tensor_rows + row) >> (4 * (col % 8)) & 15;
	case WSRC_AWQ:
		return wsrc_word(w->t, col * div_up(w->tensor_rows, 8) + row / 8) >> (4 * wsrc_awq_nibble[row % 8]) &
		       15;
	case WSRC_MXFP4:
		byte = w->t->data[(row * w->tensor_cols + col) / 2];
		return col % 2 ? byte >> 4 : byte & 15;
	case WSRC_FP8:
	case WSRC_PLAIN:
		break;
	}
	return 0;
}

/* FP8 has a loop of its own: heads of MLA are made of whole tensors of it. */
static float wsrc_code_value(const struct wsrc *w, uint64_t row, uint64_t col)
{
	static const float fp4[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6}; /* E2M1 */
	uint32_t code = wsrc_code_at(w, row, col);
	uint64_t scale_ix = wsrc_scale_ix(w, row, col);

	switch (w->code) {
	case WSRC_MXFP4:
		return w->scales->data[scale_ix] == 0xff ? NAN : ldexpf(fp4[code], w->scales->data[scale_ix] - 127);
	case WSRC_GPTQ:
	case WSRC_AWQ:
		return wsrc_scale(w, scale_ix) * ((float)code - (float)wsrc_zero(w, wsrc_group(w, col), row));
	case WSRC_FP8:
	case WSRC_PLAIN:
		break;
	}
	return NAN;
}

static void wsrc_fp8_line(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col, uint64_t n, float *out)
{
	const uint8_t *codes = w->t->data + tensor_row * w->tensor_cols + tensor_col;

	for (uint64_t i = 0, end; i < n; i = end) {
		float scale = wsrc_scale(w, wsrc_scale_ix(w, tensor_row, tensor_col + i));

		end = min_u64(n, i + w->block_cols - (tensor_col + i) % w->block_cols);
		for (uint64_t k = i; k < end; k++) out[k] = float8_to_f32(codes[k]) * scale;
	}
}

void wsrc_code_line(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col, uint64_t n, float *out)
{
	if (w->code == WSRC_FP8) {
		wsrc_fp8_line(w, tensor_row, tensor_col, n, out);
		return;
	}
	for (uint64_t i = 0; i < n; i++) out[i] = wsrc_code_value(w, tensor_row, tensor_col + i);
}

/* ---- rows of blocks ---- */

static void wsrc_unpack_fp8(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *codes = w->t->data + from[i] * w->tensor_cols + w->col_first;

		for (uint32_t c = 0; c < w->cols; c += 32, out += 36) {
			float scale = wsrc_scale(w, wsrc_scale_ix(w, from[i], w->col_first + c));

			memcpy(out, &scale, 4);
			memcpy(out + 4, codes + c, 32);
		}
	}
}

static void wsrc_unpack_mxfp4(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t block = wsrc_scale_ix(w, from[i], w->col_first);

		for (uint32_t c = 0; c < w->cols; c += 32, block++, out += 17) {
			uint32_t words[4];

			memcpy(words, w->t->data + block * 16, 16);
			out[0] = w->scales->data[block];
			wsrc_put_nibbles(out + 1, words);
		}
	}
}

/* What stands before the nibbles of a GPTQ or AWQ block: f16 scale, and f16 -zero. The bytes it takes. */
static uint32_t wsrc_put_head(const struct wsrc *w, uint64_t row, uint64_t col, uint8_t *out)
{
	uint64_t ix = wsrc_scale_ix(w, row, col);
	uint16_t zero, scale;

	if (w->scales->type == GGTYPE_F16)
		memcpy(&scale, w->scales->data + ix * 2, 2);
	else
		scale = half_from_f32(wsrc_scale(w, ix));
	memcpy(out, &scale, 2);
	if (w->type == GGTYPE_Q4_0) return 2;
	zero = half_from_f32(-(float)wsrc_zero(w, wsrc_group(w, col), row));
	memcpy(out + 2, &zero, 2);
	return 4;
}

/* Block by block over all rows: rows that are neighbours have their words side by side. */
static void wsrc_unpack_gptq(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out)
{
	size_t block_bytes = ggtype_info(w->type)->block_bytes, row_bytes = ggtype_row_bytes(w->type, w->cols);

	for (uint32_t c = 0; c < w->cols; c += 32, out += block_bytes) {
		const uint8_t *words_at = w->t->data + (w->col_first + c) / 8 * w->tensor_rows * 4;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t words[4];

			for (int k = 0; k < 4; k++)
				words[k] = half_load_u32(words_at + (k * w->tensor_rows + from[i]) * 4);
			wsrc_put_nibbles(out + i * row_bytes +
						 wsrc_put_head(w, from[i], w->col_first + c, out + i * row_bytes),
					 words);
		}
	}
}

/* Columns whose groups are in no order, to f32, by square tiles: a column's codes, scales and zeros lie side by side
 * for rows that are neighbours, but a row's lie far apart. */
#define WSRC_CODE_TILE 32

static void wsrc_gptq_tile(const struct wsrc *w, uint32_t n, const uint64_t *from, uint32_t col, uint32_t n_cols,
			   float *out)
{
	float tile[WSRC_CODE_TILE][WSRC_CODE_TILE];

	for (uint32_t c = 0; c < n_cols; c++) {
		uint64_t tensor_col = w->col_first + col + c, group = wsrc_group(w, tensor_col);
		const uint8_t *words_at = w->t->data + tensor_col / 8 * w->tensor_rows * 4;
		uint32_t shift = 4 * (tensor_col % 8);

		for (uint32_t i = 0; i < n; i++) {
			uint32_t code = half_load_u32(words_at + from[i] * 4) >> shift & 15;

			tile[i][c] = wsrc_scale(w, group * w->tensor_rows + from[i]) *
				     (float)((int)code - (int)wsrc_zero(w, group, from[i]));
		}
	}
	for (uint32_t i = 0; i < n; i++) memcpy(out + (size_t)i * w->cols + col, tile[i], n_cols * sizeof(float));
}

static void wsrc_unpack_gptq_f32(const struct wsrc *w, uint32_t n, const uint64_t *from, float *out)
{
	for (uint32_t c = 0; c < w->cols; c += WSRC_CODE_TILE)
		for (uint32_t i = 0; i < n; i += WSRC_CODE_TILE)
			wsrc_gptq_tile(w, min_u32(WSRC_CODE_TILE, n - i), from + i, c,
				       min_u32(WSRC_CODE_TILE, w->cols - c), out + (size_t)i * w->cols);
}

/* Byte j of a block of eight rows at once: columns j and j + 16. */
static void wsrc_unpack_awq_rows(const uint8_t *words_at, size_t col_bytes, size_t row_bytes, uint8_t *out)
{
	for (int j = 0; j < 16; j++) {
		uint64_t both = wsrc_spread(half_load_u32(words_at + j * col_bytes)) |
				wsrc_spread(half_load_u32(words_at + (j + 16) * col_bytes)) << 4;

		for (int k = 0; k < 8; k++) out[wsrc_awq_row[k] * row_bytes + j] = (uint8_t)(both >> (8 * k));
	}
}

static void wsrc_unpack_awq_row(const uint8_t *words_at, size_t col_bytes, uint32_t nibble, uint8_t *out)
{
	for (int j = 0; j < 16; j++)
		out[j] = (uint8_t)((half_load_u32(words_at + j * col_bytes) >> (4 * nibble) & 15) |
				   (half_load_u32(words_at + (j + 16) * col_bytes) >> (4 * nibble) & 15) << 4);
}

static bool wsrc_is_eight(uint32_t i, uint32_t n, const uint64_t *from)
{
	return i + 8 <= n && from[i] % 8 == 0 && from[i + 7] == from[i] + 7;
}

static void wsrc_unpack_awq(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out)
{
	size_t row_bytes = ggtype_row_bytes(w->type, w->cols), col_bytes = div_up(w->tensor_rows, 8) * 4;
	uint32_t block_bytes = ggtype_info(w->type)->block_bytes, head = block_bytes - 16;

	for (uint32_t c = 0; c < w->cols; c += 32, out += block_bytes) {
		for (uint32_t i = 0; i < n; i++) wsrc_put_head(w, from[i], w->col_first + c, out + i * row_bytes);
		for (uint32_t i = 0; i < n;) {
			const uint8_t *words_at = w->t->data + (w->col_first + c) * col_bytes + from[i] / 8 * 4;
			uint8_t *nibbles = out + i * row_bytes + head;

			if (wsrc_is_eight(i, n, from)) {
				wsrc_unpack_awq_rows(words_at, col_bytes, row_bytes, nibbles);
				i += 8;
			} else {
				wsrc_unpack_awq_row(words_at, col_bytes, wsrc_awq_nibble[from[i] % 8], nibbles);
				i++;
			}
		}
	}
}

void wsrc_unpack(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out)
{
	if (w->type == GGTYPE_F32 && w->code == WSRC_GPTQ) {
		wsrc_unpack_gptq_f32(w, n, from, (float *)(void *)out);
		return;
	}
	if (w->type == GGTYPE_F32) {
		for (uint32_t i = 0; i < n; i++)
			wsrc_code_line(w, from[i], w->col_first, w->cols, (float *)(void *)out + (size_t)i * w->cols);
		return;
	}
	switch (w->code) {
	case WSRC_FP8:
		wsrc_unpack_fp8(w, n, from, out);
		break;
	case WSRC_GPTQ:
		wsrc_unpack_gptq(w, n, from, out);
		break;
	case WSRC_AWQ:
		wsrc_unpack_awq(w, n, from, out);
		break;
	case WSRC_MXFP4:
		wsrc_unpack_mxfp4(w, n, from, out);
		break;
	case WSRC_PLAIN:
		break;
	}
}
