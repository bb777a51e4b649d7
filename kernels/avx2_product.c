/* avx2_product.c - matrix products of the AVX2 level.
 *
 * Weights lie in groups of 8 rows (pack.h), so lane r of an accumulator belongs to row r of the group and no sum ever
 * crosses lanes. For each (row, token) the order of f32 operations is the order of columns, whatever the number of
 * tokens: tiles of up to AVX2_TOKENS tokens only share the unpacking of weights.
 *
 * Quantized: in a block of 32 columns, unsigned nibbles times int8 are added in int16 (8 sums of at most 2 * 15 * 128
 * fit), widened once, and scaled once. Q8_0 moves the sign of the weight to the activation for vpmaddubsw; a pair is at
 * most 2 * 128 * 127, so each is widened at once. */
#include "kernels/avx2_product.h"

#include <string.h>

CPU_INLINE void avx2_tile_q4(const uint8_t *w, struct avx2_rows x, uint32_t n_blocks, const int nt,
			     const enum ggtype type, bool ahead, __m256 *acc)
{
	const bool has_min = type != GGTYPE_Q4_0;
	const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);

	for (uint32_t b = 0; b < n_blocks; b++, w += has_min ? 160 : 144) {
		const uint8_t *nibbles = w + (has_min ? 32 : 16);
		__m256i dot[AVX2_TOKENS];
		__m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)), m;

		if (ahead) avx2_prefetch(w, 160);
		CPU_UNROLL
		for (int i = 0; i < 4; i++) {
			__m256i v = _mm256_loadu_si256((const __m256i *)(nibbles + 32 * i));
			__m256i lo = _mm256_and_si256(v, low), hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);

			CPU_UNROLL
			for (int t = 0; t < nt; t++) {
				const int8_t *q = x.q + b * CPU_QBLOCK + t * x.stride + 4 * i;
				__m256i sum = _mm256_maddubs_epi16(lo, avx2_bytes4(q));

				dot[t] = i == 0 ? sum : _mm256_add_epi16(dot[t], sum);
				CPU_KEEP(dot[t]);
				dot[t] = _mm256_add_epi16(dot[t], _mm256_maddubs_epi16(hi, avx2_bytes4(q + 16)));
				CPU_KEEP(dot[t]);
			}
		}
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			__m256i wide = _mm256_madd_epi16(dot[t], ones);

			if (!has_min)
				wide = _mm256_sub_epi32(wide,
							_mm256_slli_epi32(avx2_int_at(x.isum, x.stride, t, b), 3));
			acc[t] = _mm256_fmadd_ps(_mm256_mul_ps(d, avx2_scale_at(x.scale, x.stride, t, b)),
						 _mm256_cvtepi32_ps(wide), acc[t]);
			CPU_KEEP(acc[t]);
		}
		if (!has_min) continue;
		m = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 16)));
		if (type == GGTYPE_Q4_Z) m = _mm256_mul_ps(m, d);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) acc[t] = _mm256_fmadd_ps(m, avx2_scale_at(x.ssum, x.stride, t, b), acc[t]);
	}
}

CPU_INLINE void avx2_tile_q8(const uint8_t *w, struct avx2_rows x, uint32_t n_blocks, const int nt, bool ahead,
			     __m256 *acc)
{
	const __m256i ones = _mm256_set1_epi16(1);

	for (uint32_t b = 0; b < n_blocks; b++, w += 272) {
		__m256 d = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w));
		__m256i dot[AVX2_TOKENS];

		if (ahead) avx2_prefetch(w, 272);
		CPU_UNROLL
		for (int i = 0; i < 8; i++) {
			__m256i v = _mm256_loadu_si256((const __m256i *)(w + 16 + 32 * i));
			__m256i magnitude = _mm256_abs_epi8(v);

			CPU_UNROLL
			for (int t = 0; t < nt; t++) {
				__m256i q = avx2_bytes4(x.q + b * CPU_QBLOCK + t * x.stride + 4 * i);
				__m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, v));
				__m256i sum = _mm256_madd_epi16(pairs, ones);

				dot[t] = i == 0 ? sum : _mm256_add_epi32(dot[t], sum);
				CPU_KEEP(dot[t]);
			}
		}
		CPU_UNROLL
		for (int t = 0; t < nt; t++)
			acc[t] = _mm256_fmadd_ps(_mm256_mul_ps(d, avx2_scale_at(x.scale, x.stride, t, b)),
						 _mm256_cvtepi32_ps(dot[t]), acc[t]);
	}
}

/* Columns c and c + 1 of 8 rows of float8, each value 2^-8 of its own: sign, exponent and mantissa move to where an f16
 * has them, whose bias is 8 more. */
CPU_INLINE __m256i avx2_f8_columns(const uint8_t *w)
{
	__m256i v = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)w)), 8);

	return _mm256_and_si256(_mm256_srai_epi16(v, 1), _mm256_set1_epi16((short)0xbf80));
}

CPU_INLINE void avx2_tile_f8(const uint8_t *w, const float *x, uint32_t ld_x, uint32_t cols, const int nt, bool ahead,
			     __m256 *acc)
{
	for (uint32_t b = 0; b < cols; b += CPU_QBLOCK, w += 288) {
		__m256 d = _mm256_mul_ps(_mm256_loadu_ps((const float *)w), _mm256_set1_ps(256.0f));
		__m256 even[AVX2_TOKENS], odd[AVX2_TOKENS];

		if (ahead) avx2_prefetch(w, 288);
		CPU_UNROLL
		for (int c = 0; c < CPU_QBLOCK; c += 2) {
			__m256i v = avx2_f8_columns(w + 32 + 8 * c);
			__m256 w0 = _mm256_cvtph_ps(_mm256_castsi256_si128(v)),
			       w1 = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));

			CPU_UNROLL
			for (int t = 0; t < nt; t++) {
				const float *at = x + (size_t)t * ld_x + b + c;
				__m256 x0 = _mm256_set1_ps(at[0]), x1 = _mm256_set1_ps(at[1]);

				even[t] = c == 0 ? _mm256_mul_ps(w0, x0) : _mm256_fmadd_ps(w0, x0, even[t]);
				odd[t] = c == 0 ? _mm256_mul_ps(w1, x1) : _mm256_fmadd_ps(w1, x1, odd[t]);
			}
		}
		CPU_UNROLL
		for (int t = 0; t < nt; t++) acc[t] = _mm256_fmadd_ps(_mm256_add_ps(even[t], odd[t]), d, acc[t]);
	}
}

/* Column c of 8 rows. */
CPU_INLINE __m256 avx2_column(const uint8_t *w, const enum ggtype type, uint32_t c)
{
	if (type == GGTYPE_F32) return _mm256_loadu_ps((const float *)w + (size_t)c * 8);
	if (type == GGTYPE_F16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w + c));
	return _mm256_castsi256_ps(
		_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)w + c)), 16));
}

/* Even and odd columns are summed apart: two chains hide the latency of the additions. */
CPU_INLINE void avx2_tile_f32(const uint8_t *w, const enum ggtype type, const float *x, uint32_t ld_x, uint32_t cols,
			      const int nt, bool ahead, __m256 *acc)
{
	__m256 odd[AVX2_TOKENS];
	uint32_t c = 0;

	CPU_UNROLL
	for (int t = 0; t < nt; t++) odd[t] = _mm256_setzero_ps();
	for (; c + 2 <= cols; c += 2) {
		__m256 w0 = avx2_column(w, type, c), w1 = avx2_column(w, type, c + 1);

		if (ahead) avx2_prefetch(w + (size_t)c * (type == GGTYPE_F32 ? 32 : 16), 64);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			const float *at = x + (size_t)t * ld_x + c;

			acc[t] = _mm256_fmadd_ps(w0, _mm256_set1_ps(at[0]), acc[t]);
			odd[t] = _mm256_fmadd_ps(w1, _mm256_set1_ps(at[1]), odd[t]);
		}
	}
	CPU_UNROLL
	for (int t = 0; t < nt; t++) {
		if (c < cols)
			acc[t] = _mm256_fmadd_ps(avx2_column(w, type, c), _mm256_set1_ps(x[(size_t)t * ld_x + c]),
						 acc[t]);
		acc[t] = _mm256_add_ps(acc[t], odd[t]);
	}
}

/* One group of rows, nt tokens from token i. `type` is constant where this is inlined. */
CPU_INLINE void avx2_tile(const struct cpu_product *p, const enum ggtype type, const uint8_t *w, uint32_t row,
			  uint32_t lanes, uint32_t i, const int nt)
{
	uint32_t cols = p->o->w->cols;
	const bool ahead = nt >= 4 && i == 0;
	__m256 acc[AVX2_TOKENS];

	CPU_UNROLL
	for (int t = 0; t < nt; t++) acc[t] = _mm256_setzero_ps();
	if (type == GGTYPE_Q4_0 || type == GGTYPE_Q4_1 || type == GGTYPE_Q4_Z || type == GGTYPE_Q8_0) {
		struct avx2_rows x = avx2_rows_at(p, i);

		if (type == GGTYPE_Q8_0)
			avx2_tile_q8(w, x, cols / CPU_QBLOCK, nt, ahead, acc);
		else
			avx2_tile_q4(w, x, cols / CPU_QBLOCK, nt, type, ahead, acc);
	} else if (type == GGTYPE_F8_B32) {
		avx2_tile_f8(w, p->x + (size_t)i * p->ld_x, p->ld_x, cols, nt, ahead, acc);
	} else {
		avx2_tile_f32(w, type, p->x + (size_t)i * p->ld_x, p->ld_x, cols, nt, ahead, acc);
	}
	CPU_UNROLL
	for (int t = 0; t < nt; t++) avx2_put(p->o, i + (uint32_t)t, row, lanes, acc[t]);
}

#define AVX2_TYPE_GROUP(name, type) AVX2_GROUP(name, avx2_tile, type)
AVX2_TYPE_GROUP(avx2_group_q4_0, GGTYPE_Q4_0)
AVX2_TYPE_GROUP(avx2_group_q4_1, GGTYPE_Q4_1)
AVX2_TYPE_GROUP(avx2_group_q4_z, GGTYPE_Q4_Z)
AVX2_TYPE_GROUP(avx2_group_q8_0, GGTYPE_Q8_0)
AVX2_TYPE_GROUP(avx2_group_f8_b32, GGTYPE_F8_B32)
AVX2_TYPE_GROUP(avx2_group_f32, GGTYPE_F32)
AVX2_TYPE_GROUP(avx2_group_f16, GGTYPE_F16)
AVX2_TYPE_GROUP(avx2_group_bf16, GGTYPE_BF16)

static void avx2_transpose8(float *dst, size_t ld_dst, const float *src, size_t ld)
{
	__m256 r[8], s[8];

	for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + i * ld);
	for (int i = 0; i < 4; i++) {
		s[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		s[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
	for (int i = 0; i < 2; i++) {
		r[4 * i] = _mm256_shuffle_ps(s[4 * i], s[4 * i + 2], 0x44);
		r[4 * i + 1] = _mm256_shuffle_ps(s[4 * i], s[4 * i + 2], 0xee);
		r[4 * i + 2] = _mm256_shuffle_ps(s[4 * i + 1], s[4 * i + 3], 0x44);
		r[4 * i + 3] = _mm256_shuffle_ps(s[4 * i + 1], s[4 * i + 3], 0xee);
	}
	for (int i = 0; i < 4; i++) {
		_mm256_storeu_ps(dst + i * ld_dst, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
		_mm256_storeu_ps(dst + (i + 4) * ld_dst, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
	}
}

void avx2_interleave(float *columns, const float *rows, uint32_t cols, uint32_t group, uint32_t half)
{
	uint32_t c = 0;

	columns += (size_t)half * 8;
	for (; c + 8 <= cols; c += 8) avx2_transpose8(columns + (size_t)c * group, group, rows + c, cols);
	for (; c < cols; c++)
		for (uint32_t r = 0; r < 8; r++) columns[(size_t)c * group + r] = rows[(size_t)r * cols + c];
}

/* Rows that have no interleaved form, or quantized ones with f32 inputs: dequantized once for all tokens of the call,
 * then as f32. */
static void avx2_group_rows(const struct cpu_product *p, uint32_t row, uint32_t lanes)
{
	uint32_t cols = p->o->w->cols;
	float *rows = p->tile, *columns = p->tile + (size_t)8 * cols;

	if (p->o->w->layout != CPU_LAYOUT_ROWS) {
		avx2_columns(columns, p->o->w, row, 8, 0);
		avx2_group_f32(p, (const uint8_t *)columns, row, lanes);
		return;
	}
	for (uint32_t r = 0; r < lanes; r++) pack_row(p->o->w, row + r, rows + (size_t)r * cols);
	if (lanes < 8) memset(rows + (size_t)lanes * cols, 0, (size_t)(8 - lanes) * cols * sizeof(float));
	avx2_interleave(columns, rows, cols, 8, 0);
	avx2_group_f32(p, (const uint8_t *)columns, row, lanes);
}

void avx2_product(const struct cpu_product *p, uint32_t row, uint32_t row_end)
{
	const struct kmat *m = p->o->w;
	size_t group_bytes = 8 * ggtype_row_bytes(m->type, m->cols);

	for (; row < row_end; row += 8) {
		const uint8_t *w = (const uint8_t *)m->data + row / 8 * group_bytes;
		uint32_t lanes = min_u32(8, row_end - row);

		if (m->layout == CPU_LAYOUT_ROWS || (pack_is_quantized(m->type) && !p->xq)) {
			avx2_group_rows(p, row, lanes);
			continue;
		}
		switch ((int)m->type) {
		case GGTYPE_Q4_0:
			avx2_group_q4_0(p, w, row, lanes);
			break;
		case GGTYPE_Q4_1:
			avx2_group_q4_1(p, w, row, lanes);
			break;
		case GGTYPE_Q4_Z:
			avx2_group_q4_z(p, w, row, lanes);
			break;
		case GGTYPE_Q8_0:
			avx2_group_q8_0(p, w, row, lanes);
			break;
		case GGTYPE_F8_B32:
			avx2_group_f8_b32(p, w, row, lanes);
			break;
		case GGTYPE_F16:
			avx2_group_f16(p, w, row, lanes);
			break;
		case GGTYPE_BF16:
			avx2_group_bf16(p, w, row, lanes);
			break;
		default:
			if (pack_is_k(m->type))
				avx2_k_group(p, w, row, lanes);
			else
				avx2_group_f32(p, w, row, lanes);
			break;
		}
	}
}
