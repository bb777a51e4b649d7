/* avx512_product.c - matrix products of the AVX-512 level. See avx2_product.c; a group has 16 rows, and vpdpbusd adds
 * four products of an unsigned and a signed byte to an int32 at once. Q8_0 weights are stored with an offset of 128
 * (pack.h), which the sum of the block's activations takes back, exactly.
 *
 * Tests compile this file, and avx512_k_product.c, a second time with an emulation of the instructions
 * (tests/kernels/test_kernel_avx512.c), so they use nothing of avx2_math.h. */
#include "kernels/avx512.h"
#include "kernels/avx512_product.h"

CPU_INLINE void avx512_tile_q4(const uint8_t *w, struct avx512_rows x, uint32_t n_blocks, const int nt,
			       const enum ggtype type, bool ahead, __m512 *acc)
{
	const bool has_min = type != GGTYPE_Q4_0;
	const __m512i low = _mm512_set1_epi8(15);

	for (uint32_t b = 0; b < n_blocks; b++, w += has_min ? 320 : 288) {
		const uint8_t *nibbles = w + (has_min ? 64 : 32);
		__m512 d = avx512_halfs(w), m = has_min ? avx512_halfs(w + 32) : d;
		__m512i dot[AVX512_TOKENS];

		if (ahead) avx512_prefetch(w, 320);
		if (type == GGTYPE_Q4_Z) m = _mm512_mul_ps(m, d);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			const int32_t *isum = (const int32_t *)((const char *)(x.isum + b) + t * x.stride);

			dot[t] = has_min ? _mm512_setzero_si512() : _mm512_set1_epi32(-8 * *isum);
		}
		CPU_UNROLL
		for (int i = 0; i < 4; i++) {
			__m512i v = _mm512_loadu_si512(nibbles + 64 * i);
			__m512i lo = _mm512_and_si512(v, low), hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);

			CPU_UNROLL
			for (int t = 0; t < nt; t++) {
				const int8_t *q = x.q + b * CPU_QBLOCK + t * x.stride + 4 * i;

				dot[t] = _mm512_dpbusd_epi32(dot[t], lo, avx512_bytes4(q));
				dot[t] = _mm512_dpbusd_epi32(dot[t], hi, avx512_bytes4(q + 16));
			}
		}
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, avx512_scale_at(x.scale, x.stride, t, b)),
						 _mm512_cvtepi32_ps(dot[t]), acc[t]);
			if (has_min) acc[t] = _mm512_fmadd_ps(m, avx512_scale_at(x.ssum, x.stride, t, b), acc[t]);
		}
	}
}

CPU_INLINE void avx512_tile_q8(const uint8_t *w, struct avx512_rows x, uint32_t n_blocks, const int nt, bool ahead,
			       __m512 *acc)
{
	for (uint32_t b = 0; b < n_blocks; b++, w += 544) {
		__m512 d = avx512_halfs(w);
		__m512i dot[AVX512_TOKENS];

		if (ahead) avx512_prefetch(w, 544);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			const int32_t *isum = (const int32_t *)((const char *)(x.isum + b) + t * x.stride);

			dot[t] = _mm512_set1_epi32(-128 * *isum);
		}
		CPU_UNROLL
		for (int i = 0; i < 8; i++) {
			__m512i v = _mm512_loadu_si512(w + 32 + 64 * i);

			CPU_UNROLL
			for (int t = 0; t < nt; t++)
				dot[t] = _mm512_dpbusd_epi32(
					dot[t], v, avx512_bytes4(x.q + b * CPU_QBLOCK + t * x.stride + 4 * i));
		}
		CPU_UNROLL
		for (int t = 0; t < nt; t++)
			acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(d, avx512_scale_at(x.scale, x.stride, t, b)),
						 _mm512_cvtepi32_ps(dot[t]), acc[t]);
	}
}

/* See avx2_f8_columns(). */
CPU_INLINE __m512 avx512_f8_column(const uint8_t *w)
{
	__m256i v = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)w)), 8);

	return _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(v, 1), _mm256_set1_epi16((short)0xbf80)));
}

CPU_INLINE void avx512_tile_f8(const uint8_t *w, const float *x, uint32_t ld_x, uint32_t cols, const int nt, bool ahead,
			       __m512 *acc)
{
	for (uint32_t b = 0; b < cols; b += CPU_QBLOCK, w += 576) {
		__m512 d = _mm512_mul_ps(_mm512_loadu_ps(w), _mm512_set1_ps(256.0f));
		__m512 even[AVX512_TOKENS], odd[AVX512_TOKENS];

		if (ahead) avx512_prefetch(w, 576);
		CPU_UNROLL
		for (int c = 0; c < CPU_QBLOCK; c += 2) {
			__m512 w0 = avx512_f8_column(w + 64 + 16 * c), w1 = avx512_f8_column(w + 80 + 16 * c);

			CPU_UNROLL
			for (int t = 0; t < nt; t++) {
				const float *at = x + (size_t)t * ld_x + b + c;
				__m512 x0 = _mm512_set1_ps(at[0]), x1 = _mm512_set1_ps(at[1]);

				even[t] = c == 0 ? _mm512_mul_ps(w0, x0) : _mm512_fmadd_ps(w0, x0, even[t]);
				odd[t] = c == 0 ? _mm512_mul_ps(w1, x1) : _mm512_fmadd_ps(w1, x1, odd[t]);
			}
		}
		CPU_UNROLL
		for (int t = 0; t < nt; t++) acc[t] = _mm512_fmadd_ps(_mm512_add_ps(even[t], odd[t]), d, acc[t]);
	}
}

/* Column c of 16 rows. */
CPU_INLINE __m512 avx512_column(const uint8_t *w, const enum ggtype type, uint32_t c)
{
	const uint8_t *at = w + (size_t)c * (type == GGTYPE_F32 ? 64 : 32);

	if (type == GGTYPE_F32) return _mm512_loadu_ps(at);
	if (type == GGTYPE_F16) return avx512_halfs(at);
	return _mm512_castsi512_ps(
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
}

CPU_INLINE void avx512_tile_f32(const uint8_t *w, const enum ggtype type, const float *x, uint32_t ld_x, uint32_t cols,
				const int nt, bool ahead, __m512 *acc)
{
	__m512 odd[AVX512_TOKENS];
	uint32_t c = 0;

	CPU_UNROLL
	for (int t = 0; t < nt; t++) odd[t] = _mm512_setzero_ps();
	for (; c + 2 <= cols; c += 2) {
		__m512 w0 = avx512_column(w, type, c), w1 = avx512_column(w, type, c + 1);

		if (ahead)
			avx512_prefetch(w + (size_t)c * (type == GGTYPE_F32 ? 64 : 32), type == GGTYPE_F32 ? 128 : 64);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			const float *at = x + (size_t)t * ld_x + c;

			acc[t] = _mm512_fmadd_ps(w0, _mm512_set1_ps(at[0]), acc[t]);
			odd[t] = _mm512_fmadd_ps(w1, _mm512_set1_ps(at[1]), odd[t]);
		}
	}
	CPU_UNROLL
	for (int t = 0; t < nt; t++) {
		if (c < cols)
			acc[t] = _mm512_fmadd_ps(avx512_column(w, type, c), _mm512_set1_ps(x[(size_t)t * ld_x + c]),
						 acc[t]);
		acc[t] = _mm512_add_ps(acc[t], odd[t]);
	}
}

CPU_INLINE void avx512_tile(const struct cpu_product *p, const enum ggtype type, const uint8_t *w, uint32_t row,
			    uint32_t lanes, uint32_t i, const int nt)
{
	uint32_t cols = p->o->w->cols;
	const bool ahead = nt >= 4 && i == 0;
	__m512 acc[AVX512_TOKENS];

	CPU_UNROLL
	for (int t = 0; t < nt; t++) acc[t] = _mm512_setzero_ps();
	if (type == GGTYPE_Q4_0 || type == GGTYPE_Q4_1 || type == GGTYPE_Q4_Z || type == GGTYPE_Q8_0) {
		struct avx512_rows x = avx512_rows_at(p, i);

		if (type == GGTYPE_Q8_0)
			avx512_tile_q8(w, x, cols / CPU_QBLOCK, nt, ahead, acc);
		else
			avx512_tile_q4(w, x, cols / CPU_QBLOCK, nt, type, ahead, acc);
	} else if (type == GGTYPE_F8_B32) {
		avx512_tile_f8(w, p->x + (size_t)i * p->ld_x, p->ld_x, cols, nt, ahead, acc);
	} else {
		avx512_tile_f32(w, type, p->x + (size_t)i * p->ld_x, p->ld_x, cols, nt, ahead, acc);
	}
	CPU_UNROLL
	for (int t = 0; t < nt; t++) avx512_put(p->o, i + (uint32_t)t, row, lanes, acc[t]);
}

#define AVX512_TYPE_GROUP(name, type) AVX512_GROUP(name, avx512_tile, type)
AVX512_TYPE_GROUP(avx512_group_q4_0, GGTYPE_Q4_0)
AVX512_TYPE_GROUP(avx512_group_q4_1, GGTYPE_Q4_1)
AVX512_TYPE_GROUP(avx512_group_q4_z, GGTYPE_Q4_Z)
AVX512_TYPE_GROUP(avx512_group_q8_0, GGTYPE_Q8_0)
AVX512_TYPE_GROUP(avx512_group_f8_b32, GGTYPE_F8_B32)
AVX512_TYPE_GROUP(avx512_group_f32, GGTYPE_F32)
AVX512_TYPE_GROUP(avx512_group_f16, GGTYPE_F16)
AVX512_TYPE_GROUP(avx512_group_bf16, GGTYPE_BF16)

/* Rows that have no interleaved form, or quantized ones with f32 inputs: dequantized once for all tokens of the call,
 * then as f32. */
static void avx512_group_rows(const struct cpu_product *p, uint32_t row, uint32_t lanes)
{
	uint32_t cols = p->o->w->cols;
	float *rows = p->tile, *columns = p->tile + (size_t)8 * cols;

	for (uint32_t half = 0; half < 2; half++) {
		if (p->o->w->layout != CPU_LAYOUT_ROWS) {
			avx2_columns(columns, p->o->w, row, 16, half);
			continue;
		}
		for (uint32_t r = 0; r < 8; r++) {
			float *at = rows + (size_t)r * cols;

			if (half * 8 + r >= lanes)
				memset(at, 0, cols * sizeof(float));
			else
				pack_row(p->o->w, row + half * 8 + r, at);
		}
		avx2_interleave(columns, rows, cols, 16, half);
	}
	avx512_group_f32(p, (const uint8_t *)columns, row, lanes);
}

void avx512_product(const struct cpu_product *p, uint32_t row, uint32_t row_end)
{
	const struct kmat *m = p->o->w;
	size_t group_bytes = 16 * ggtype_row_bytes(m->type, m->cols);

	for (; row < row_end; row += 16) {
		const uint8_t *w = (const uint8_t *)m->data + row / 16 * group_bytes;
		uint32_t lanes = min_u32(16, row_end - row);

		if (m->layout == CPU_LAYOUT_ROWS || (pack_is_quantized(m->type) && !p->xq)) {
			avx512_group_rows(p, row, lanes);
			continue;
		}
		switch ((int)m->type) {
		case GGTYPE_Q4_0:
			avx512_group_q4_0(p, w, row, lanes);
			break;
		case GGTYPE_Q4_1:
			avx512_group_q4_1(p, w, row, lanes);
			break;
		case GGTYPE_Q4_Z:
			avx512_group_q4_z(p, w, row, lanes);
			break;
		case GGTYPE_Q8_0:
			avx512_group_q8_0(p, w, row, lanes);
			break;
		case GGTYPE_F8_B32:
			avx512_group_f8_b32(p, w, row, lanes);
			break;
		case GGTYPE_F16:
			avx512_group_f16(p, w, row, lanes);
			break;
		case GGTYPE_BF16:
			avx512_group_bf16(p, w, row, lanes);
			break;
		default:
			if (pack_is_k(m->type))
				avx512_k_group(p, w, row, lanes);
			else
				avx512_group_f32(p, w, row, lanes);
			break;
		}
	}
}
