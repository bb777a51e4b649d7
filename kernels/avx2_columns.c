/* avx2_columns.c - eight rows of any quantized type, interleaved, as f32 columns: for products whose inputs are never
 * rounded. Scales are read row by row; codes become floats eight at a time. Serves groups of 8 rows and either half of
 * groups of 16. */
#include "kernels/avx2_product.h"

CPU_INLINE __m256i avx2_columns_word(const uint8_t *piece, uint32_t group, uint32_t half, int word)
{
	return _mm256_loadu_si256((const __m256i *)(piece + 4 * (size_t)group * (size_t)word + 32 * half));
}

CPU_INLINE __m256i avx2_columns_shift(__m256i v, const int left)
{
	return left >= 0 ? _mm256_slli_epi32(v, left) : _mm256_srli_epi32(v, -left);
}

/* Codes of columns 16h + 4i .. of a piece: a row's four bytes in its lane (avx2_k_codes()). */
CPU_INLINE __m256i avx2_columns_codes(const enum ggtype type, const uint8_t *piece, uint32_t group, uint32_t half,
				      const int h, const int i)
{
	const struct pack_k k = pack_form_of(type);
	const int high = (int)k.high, low = (int)k.low, up = low == 4 ? 4 : 2;
	__m256i v = avx2_columns_word(piece, group, half, high + (low == 8 ? 4 * h + i : low == 4 ? i : h)), bits;

	if (low == 8) return _mm256_xor_si256(v, _mm256_set1_epi8(group == 16 ? (char)0x80 : 0)); /* signed again */
	v = _mm256_and_si256(avx2_columns_shift(v, low == 4 ? -4 * h : -2 * i), _mm256_set1_epi8(low == 4 ? 15 : 3));
	if (!high) return v;
	bits = avx2_columns_shift(avx2_columns_word(piece, group, half, high == 2 ? h : 0),
				  up - (high == 2 ? 2 * i : 4 * h + i));
	return _mm256_or_si256(v, _mm256_and_si256(bits, _mm256_set1_epi8((char)((high == 2 ? 3 : 1) << up))));
}

/* 32 columns. */
CPU_INLINE void avx2_columns_piece(float *out, const enum ggtype type, const uint8_t heads[8][PACK_HEAD_MAX],
				   const uint8_t *piece, uint32_t group, uint32_t half, uint32_t part)
{
	float scale[2][8], min[2][8];
	struct pack_values v = {0};

	for (uint32_t r = 0; r < 8; r++) {
		v = pack_values_of(heads[r], type, part);
		for (int h = 0; h < 2; h++) {
			scale[h][r] = v.scale[h];
			min[h][r] = v.min[h];
		}
	}
	CPU_UNROLL
	for (int word = 0; word < 8; word++) {
		const int h = word / 4;
		__m256i codes = avx2_columns_codes(type, piece, group, half, h, word % 4);
		__m256 s = _mm256_loadu_ps(scale[h]), m = _mm256_loadu_ps(min[h]);

		if (v.table) {
			__m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)v.table));

			codes = _mm256_shuffle_epi8(table, codes);
		}
		codes = _mm256_sub_epi8(codes, _mm256_set1_epi8((char)v.offset));
		CPU_UNROLL
		for (int j = 0; j < 4; j++) {
			__m256i value = _mm256_srai_epi32(_mm256_slli_epi32(codes, 24 - 8 * j), 24);

			_mm256_storeu_ps(out + (size_t)(4 * word + j) * group,
					 _mm256_fmsub_ps(s, _mm256_cvtepi32_ps(value), m));
		}
	}
}

CPU_INLINE void avx2_columns_type(float *out, const enum ggtype type, const uint8_t *g, uint32_t cols, uint32_t group,
				  uint32_t half)
{
	const struct pack_k k = pack_form_of(type);
	uint8_t heads[8][PACK_HEAD_MAX];

	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++, g += 4 * (size_t)group * (k.high + k.low)) {
		if (b % k.parts == 0) {
			for (uint32_t r = 0; r < 8; r++) pack_head(g, type, group, 8 * half + r, heads[r]);
			g += group * (2 * k.halfs + k.bytes);
		}
		avx2_columns_piece(out + (size_t)b * CPU_QBLOCK * group, type, heads, g, group, half, b % k.parts);
	}
}

void avx2_columns(float *columns, const struct kmat *m, uint32_t row, uint32_t group, uint32_t half)
{
	const uint8_t *g = (const uint8_t *)m->data + (size_t)row / group * group * ggtype_row_bytes(m->type, m->cols);

	columns += (size_t)half * 8;
#define AVX2_COLUMNS_CASE(name)                                                     \
	case GGTYPE_##name:                                                         \
		avx2_columns_type(columns, GGTYPE_##name, g, m->cols, group, half); \
		break;
	switch ((int)m->type) {
		AVX2_COLUMNS_CASE(Q4_0)
		AVX2_COLUMNS_CASE(Q4_1)
		AVX2_COLUMNS_CASE(Q4_Z)
		AVX2_COLUMNS_CASE(Q8_0)
		AVX2_COLUMNS_CASE(Q5_0)
		AVX2_COLUMNS_CASE(Q5_1)
		AVX2_COLUMNS_CASE(Q2_K)
		AVX2_COLUMNS_CASE(Q3_K)
		AVX2_COLUMNS_CASE(Q4_K)
		AVX2_COLUMNS_CASE(Q5_K)
		AVX2_COLUMNS_CASE(Q6_K)
		AVX2_COLUMNS_CASE(IQ4_NL)
		AVX2_COLUMNS_CASE(IQ4_XS)
		AVX2_COLUMNS_CASE(MXFP4)
	default:
		CHECK(!"a quantized type of pack.h");
	}
#undef AVX2_COLUMNS_CASE
}
