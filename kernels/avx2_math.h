/* avx2_math.h - vectors of 8 floats: exp, sums, masks. Included only where AVX2 code is compiled. */
#ifndef SLUICE_AVX2_MATH_H
#define SLUICE_AVX2_MATH_H

#include "kernels/avx2.h"

#include <immintrin.h>

/* exp(x): Cephes' polynomial on [-ln2/2, ln2/2], within 2 units in the last place; exactly 1 at 0, 0 below -87.3,
 * infinity above 88.4; NaN stays. The same instructions for every lane, so the bits depend on x alone. */
CPU_INLINE __m256 avx2_exp(__m256 x)
{
	const __m256 lowest = _mm256_set1_ps(-87.33654f);
	__m256 tiny = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
	__m256 n, r, y, power;

	/* x is the second operand: what max and min return when there is a NaN. */
	x = _mm256_min_ps(_mm256_set1_ps(88.72f), _mm256_max_ps(lowest, x));
	n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
			    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
	y = _mm256_set1_ps(1.9875691500e-4f);
	y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.3981999507e-3f));
	y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(8.3334519073e-3f));
	y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(4.1665795894e-2f));
	y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.6666665459e-1f));
	y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(5.0000001201e-1f));
	y = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), y, r), _mm256_set1_ps(1.0f));
	power = _mm256_castsi256_ps(
		_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
	return _mm256_andnot_ps(tiny, _mm256_mul_ps(y, power));
}

/* tanh(x) within 3 units in the last place; NaN stays. Near 0 Cephes' polynomial, because 1 - 2 / (exp(2x) + 1) has no digits left there. */
CPU_INLINE __m256 avx2_tanh(__m256 x)
{
	const __m256 sign_mask = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f);
	__m256 mag = _mm256_andnot_ps(sign_mask, x), z = _mm256_mul_ps(x, x);
	__m256 far = _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(avx2_exp(_mm256_mul_ps(mag, two)), one)));
	__m256 near = _mm256_set1_ps(-5.70498872745e-3f);

	near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(2.06390887954e-2f));
	near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(-5.37397155531e-2f));
	near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(1.33314422036e-1f));
	near = _mm256_fmadd_ps(near, z, _mm256_set1_ps(-3.33332819422e-1f));
	near = _mm256_fmadd_ps(_mm256_mul_ps(near, z), x, x);
	far = _mm256_or_ps(far, _mm256_and_ps(sign_mask, x));
	return _mm256_blendv_ps(far, near, _mm256_cmp_ps(mag, _mm256_set1_ps(0.625f), _CMP_LT_OQ));
}

/* Sum of the lanes, always in the same tree. */
CPU_INLINE float avx2_sum(__m256 v)
{
	__m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* Mask of the first n lanes, n in 0..8. */
CPU_INLINE __m256i avx2_mask(uint32_t n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* At most 8 floats; a mask only where there are fewer: masked stores are slow on some processors. */
CPU_INLINE __m256 avx2_load(const float *p, size_t left)
{
	return left >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, avx2_mask((uint32_t)left));
}

CPU_INLINE void avx2_store(float *p, size_t left, __m256 v)
{
	if (left >= 8)
		_mm256_storeu_ps(p, v);
	else
		_mm256_maskstore_ps(p, avx2_mask((uint32_t)left), v);
}

/* x / (1 + exp(-gate)) */
CPU_INLINE __m256 avx2_gated(__m256 x, __m256 gate)
{
	__m256 e = avx2_exp(_mm256_sub_ps(_mm256_setzero_ps(), gate));

	return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

#endif
