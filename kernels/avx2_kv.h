/* avx2_kv.h - KV elements as vectors of f32, for the AVX2 level: what lies behind struct kkv's types.
 *
 * Every conversion is exact, so it does not matter where it happens. F8_E4M3 comes out divided by AVX2_F8_UNIT (its
 * bits are shifted to where f16 has them, whose exponents are biased by 8 more), I8 without its scale: both factors are
 * put on sums, see avx2_tile.h. `type` is a constant wherever these are inlined. */
#ifndef SLUICE_AVX2_KV_H
#define SLUICE_AVX2_KV_H

#include "kernels/avx2_math.h"

#include <string.h>

#define AVX2_F8_UNIT 256.0f

/* Sign, 4 bits of exponent, 3 of mantissa, sign-extended to 16 bits: to f16. */
CPU_INLINE __m256i avx2_f8_half(__m256i x)
{
	return _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16((short)0xbf80));
}

/* Elements [at, at + 16). A float8's NaN, 0x7f, comes out as a number: `largest`, the largest of the bytes that came by
 * here, tells where there was one. (Minding it at each element would take as long as all the rest of the conversion.)
 */
CPU_INLINE void avx2_kv_load16(const enum ggtype type, const void *base, size_t at, __m256 out[2], __m128i *largest)
{
	const uint8_t *bytes = (const uint8_t *)base + at, *words = (const uint8_t *)base + 2 * at;
	__m128i b;
	__m256i h;

	switch (type) {
	case GGTYPE_F16:
		out[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)words));
		out[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(words + 16)));
		break;
	case GGTYPE_BF16:
		h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)words));
		out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
		h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(words + 16)));
		out[1] = _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
		break;
	case GGTYPE_F8_E4M3:
		b = _mm_loadu_si128((const __m128i *)bytes);
		*largest = _mm_max_epi8(*largest, b);
		h = avx2_f8_half(_mm256_cvtepi8_epi16(b));
		out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
		out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
		break;
	case GGTYPE_I8:
		out[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes)));
		out[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(bytes + 8))));
		break;
	default:
		out[0] = _mm256_loadu_ps((const float *)base + at);
		out[1] = _mm256_loadu_ps((const float *)base + at + 8);
	}
}

/* Elements [at, at + 8); those of `largest` are the first 8. */
CPU_INLINE __m256 avx2_kv_load8(const enum ggtype type, const void *base, size_t at, __m128i *largest)
{
	const uint8_t *bytes = (const uint8_t *)base + at, *words = (const uint8_t *)base + 2 * at;
	__m128i b;
	__m256i h;

	switch (type) {
	case GGTYPE_F16:
		return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)words));
	case GGTYPE_BF16:
		h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)words));
		return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
	case GGTYPE_F8_E4M3:
		b = _mm_loadl_epi64((const __m128i *)bytes);
		*largest = _mm_max_epi8(*largest, b);
		h = avx2_f8_half(_mm256_cvtepi8_epi16(b));
		return _mm256_cvtph_ps(_mm256_castsi256_si128(h));
	case GGTYPE_I8:
		return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes)));
	default:
		return _mm256_loadu_ps((const float *)base + at);
	}
}

/* What `largest` begins with. */
CPU_INLINE __m128i avx2_kv_no_nan(void)
{
	return _mm_set1_epi8(-128);
}

/* x, with NaN where the first 8 elements of `largest` say so. */
CPU_INLINE __m256 avx2_kv_with_nan(const enum ggtype type, __m256 x, __m128i largest)
{
	__m256i nan = _mm256_cmpeq_epi32(_mm256_cvtepi8_epi32(largest), _mm256_set1_epi32(0x7f));

	return type == GGTYPE_F8_E4M3 ? _mm256_or_ps(x, _mm256_castsi256_ps(nan)) : x;
}

/* n elements from `at` on, 1 <= n <= 8; the other lanes are 0. */
CPU_INLINE __m256 avx2_kv_load_part(const enum ggtype type, const void *base, size_t at, uint32_t n, __m128i *largest)
{
	const size_t elem = type == GGTYPE_F32 ? 4 : type == GGTYPE_F16 || type == GGTYPE_BF16 ? 2 : 1;
	uint8_t part[32] = {0};

	memcpy(part, (const uint8_t *)base + at * elem, n * elem);
	return avx2_kv_load8(type, part, 0, largest);
}

#endif
