/* avx2_kv.c - writes a token's keys and values into the cache at the AVX2 level: vectors are converted as the plain
 * level does, bit by bit, and their elements put where they belong, which for keys is one element in each row of the
 * tile. */
#include "kernels/avx2_kv.h"

#include <math.h>
#include <string.h>

/* Rounds to nearest even; a NaN stays one. See half_bf16_from_f32(). */
CPU_INLINE __m256i avx2_to_bf16(__m256 x)
{
	__m256i bits = _mm256_castps_si256(x),
		lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
	__m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(64 << 16));
	__m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);

	return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(is_nan)), 16);
}

/* See float8_from_f32(). */
CPU_INLINE __m256i avx2_to_f8(__m256 x)
{
	const __m256 sign_mask = _mm256_set1_ps(-0.0f), unit = _mm256_set1_ps(0x1p14f);
	__m256 mag = _mm256_min_ps(_mm256_andnot_ps(sign_mask, x), _mm256_set1_ps(448.0f));
	__m256i bits = _mm256_castps_si256(mag),
		lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
	__m256i big = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7ffff)));
	__m256i small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(mag, unit)), _mm256_castps_si256(unit));
	__m256i sign = _mm256_srli_epi32(_mm256_castps_si256(_mm256_and_ps(x, sign_mask)), 24);
	__m256i is_small = _mm256_castps_si256(_mm256_cmp_ps(mag, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ));
	__m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
	__m256i q = _mm256_sub_epi32(_mm256_srli_epi32(big, 20), _mm256_set1_epi32(120 << 3));

	q = _mm256_or_si256(_mm256_blendv_epi8(q, small, is_small), sign);
	return _mm256_blendv_epi8(q, _mm256_set1_epi32(0x7f), is_nan);
}

/* 8 elements to out, F32 excepted. inv: what int8 values are multiplied with; 0: they become 0. */
CPU_INLINE void avx2_kv_pack(const enum ggtype type, __m256 x, float inv, uint8_t out[16])
{
	__m256i lanes;
	__m128i words;

	switch (type) {
	case GGTYPE_F16:
		_mm_storeu_si128((__m128i *)out, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
		return;
	case GGTYPE_BF16:
		lanes = avx2_to_bf16(x);
		words = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
		_mm_storeu_si128((__m128i *)out, words);
		return;
	case GGTYPE_F8_E4M3:
		lanes = avx2_to_f8(x);
		words = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
		_mm_storel_epi64((__m128i *)out, _mm_packus_epi16(words, words));
		return;
	case GGTYPE_I8:
		if (inv == 0) x = _mm256_setzero_ps(); /* what may be infinite */
		lanes = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(inv)));
		words = _mm_packs_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
		_mm_storel_epi64((__m128i *)out, _mm_packs_epi16(words, words));
		return;
	default:
		return;
	}
}

/* n values to base, `step` elements apart from `at` on. */
CPU_INLINE void avx2_kv_row(const enum ggtype type, const size_t elem, void *base, size_t at, const size_t step,
			    const float *x, uint32_t n, float inv)
{
	if (type == GGTYPE_F32) {
		for (size_t i = 0; i < n; i++) ((float *)base)[at + i * step] = x[i];
		return;
	}
	for (uint32_t i = 0; i < n; i += 8) {
		uint32_t left = min_u32(8, n - i);
		char *to = (char *)base + (at + i * step) * elem;
		uint8_t out[16];

		avx2_kv_pack(type, left == 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, avx2_mask(left)), inv,
			     out);
		if (left < 8) {
			for (size_t j = 0; j < left; j++) memcpy(to + j * step * elem, out + j * elem, elem);
		} else if (step == 1) {
			memcpy(to, out, 8 * elem);
		} else {
			CPU_UNROLL
			for (size_t j = 0; j < 8; j++) memcpy(to + j * step * elem, out + j * elem, elem);
		}
	}
}

/* The scale of n int8 values; as integers, so that a NaN or an infinity comes out in it. */
static float avx2_kv_scale(const float *x, uint32_t n)
{
	const __m256i abs_mask = _mm256_set1_epi32(0x7fffffff);
	__m256i max = _mm256_setzero_si256();
	__m128i m;

	for (uint32_t i = 0; i < n; i += 8) {
		__m256 v = _mm256_maskload_ps(x + i, avx2_mask(min_u32(8, n - i)));

		max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(v), abs_mask));
	}
	m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
	return _mm_cvtss_f32(_mm_castsi128_ps(m)) / 127.0f;
}

/* Writes the scale and gives what the values are multiplied with; 0 when the scale is none. */
static float avx2_kv_inverse(const float *x, uint32_t n, float *scale)
{
	*scale = avx2_kv_scale(x, n);
	return isfinite(*scale) && *scale >= CPU_SCALE_MIN ? 1.0f / *scale : 0.0f;
}

CPU_INLINE void avx2_kv_put_token(const enum ggtype type, const size_t elem, const struct kkv *kv, const float *k,
				  const float *v, uint32_t slot)
{
	size_t offset = slot % KBLOCK_LEN;
	float inv = 1;

	for (uint32_t h = 0; h < kv->kv_heads; h++, k += kv->k_dim) {
		size_t tile = (size_t)(slot / KBLOCK_LEN) * kv->kv_heads + h, at = tile * KBLOCK_LEN + offset;

		if (type == GGTYPE_I8) inv = avx2_kv_inverse(k, kv->k_dim, &kv->k_scale[at]);
		avx2_kv_row(type, elem, kv->k, tile * KBLOCK_LEN * kv->k_dim + offset, KBLOCK_LEN, k, kv->k_dim, inv);
		if (kv->latent) continue;
		if (type == GGTYPE_I8) inv = avx2_kv_inverse(v, kv->v_dim, &kv->v_scale[at]);
		avx2_kv_row(type, elem, kv->v, at * kv->v_dim, 1, v, kv->v_dim, inv);
		v += kv->v_dim;
	}
}

void avx2_kv_store(const struct kkv *kv, const float *k, const float *v, uint32_t slot)
{
	switch (kv->type) {
	case GGTYPE_F16:
		avx2_kv_put_token(GGTYPE_F16, 2, kv, k, v, slot);
		break;
	case GGTYPE_BF16:
		avx2_kv_put_token(GGTYPE_BF16, 2, kv, k, v, slot);
		break;
	case GGTYPE_F8_E4M3:
		avx2_kv_put_token(GGTYPE_F8_E4M3, 1, kv, k, v, slot);
		break;
	case GGTYPE_I8:
		avx2_kv_put_token(GGTYPE_I8, 1, kv, k, v, slot);
		break;
	default:
		avx2_kv_put_token(GGTYPE_F32, 4, kv, k, v, slot);
	}
}
