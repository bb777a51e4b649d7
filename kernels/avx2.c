/* avx2.c - the AVX2 level: operations on rows, and its table. Products are in avx2_product.c, gates in avx2_gate.c, recurrent layers in
 * avx2_recurrent.c, attention in avx2_attention.c, the KV cache in avx2_kv.c. Tails of rows go through the same instructions under a
 * mask, so an element's bits do not depend on where in a row or a piece it lies. */
#include "kernels/avx2_math.h"

#include <math.h>
#include <string.h>

/* Rounds 32 floats; see ref_quantize() for the rule. A block with a NaN or infinity keeps it in the scale. */
CPU_INLINE void avx2_quantize_block(int8_t *q, const float *x, float *scale, int32_t *half)
{
	const __m256 abs_mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
	__m256 v[4];
	__m256i n[4], max = _mm256_setzero_si256(), bytes, sums;
	__m128i m;
	float inv;

	CPU_UNROLL
	for (int i = 0; i < 4; i++) {
		v[i] = _mm256_loadu_ps(x + 8 * i);
		/* As integers: for magnitudes the same order, and a NaN is the largest. */
		max = _mm256_max_epu32(max, _mm256_castps_si256(_mm256_and_ps(v[i], abs_mask)));
	}
	m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
	*scale = _mm_cvtss_f32(_mm_castsi128_ps(m)) / 127.0f;
	inv = isfinite(*scale) && *scale >= CPU_SCALE_MIN ? 1.0f / *scale : 0.0f;
	CPU_UNROLL
	for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inv)));
	bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
	bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	_mm256_storeu_si256((__m256i *)q, bytes);
	sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
	m = _mm_hadd_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
	_mm_storel_epi64((__m128i *)half, _mm_hadd_epi32(m, m));
}

void avx2_quantize(struct cpu_xq out, const float *x, uint32_t cols)
{
	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++) {
		avx2_quantize_block(out.q + b * CPU_QBLOCK, x + b * CPU_QBLOCK, &out.scale[b], &out.half[2 * b]);
		out.isum[b] = out.half[2 * b] + out.half[2 * b + 1];
		out.ssum[b] = out.scale[b] * (float)out.isum[b];
	}
}

static float avx2_square_sum(const float *x, uint32_t dim)
{
	__m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
	uint32_t i = 0;

	for (; i + 32 <= dim; i += 32) {
		CPU_UNROLL
		for (int j = 0; j < 4; j++) {
			__m256 v = _mm256_loadu_ps(x + i + 8 * j);

			sum[j] = _mm256_fmadd_ps(v, v, sum[j]);
		}
	}
	for (; i < dim; i += 8) {
		__m256 v = _mm256_maskload_ps(x + i, avx2_mask(min_u32(8, dim - i)));

		sum[0] = _mm256_fmadd_ps(v, v, sum[0]);
	}
	return avx2_sum(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

CPU_INLINE void avx2_norm_row(float *out, const float *x, const float *w, uint32_t dim, __m256 scale, const bool has_w,
			      const bool accumulate)
{
	uint32_t i = 0;

	for (; i + 8 <= dim; i += 8) {
		__m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), scale);

		if (has_w) v = _mm256_mul_ps(v, _mm256_loadu_ps(w + i));
		if (accumulate) v = _mm256_add_ps(_mm256_loadu_ps(out + i), v);
		_mm256_storeu_ps(out + i, v);
	}
	if (i < dim) {
		__m256i mask = avx2_mask(dim - i);
		__m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), scale);

		if (has_w) v = _mm256_mul_ps(v, _mm256_maskload_ps(w + i, mask));
		if (accumulate) v = _mm256_add_ps(_mm256_maskload_ps(out + i, mask), v);
		_mm256_maskstore_ps(out + i, mask, v);
	}
}

void avx2_norm(float *out, const float *x, const float *w, uint32_t dim, float eps, bool accumulate)
{
	__m256 scale = _mm256_set1_ps(1.0f / sqrtf(avx2_square_sum(x, dim) / (float)dim + eps));

	if (w && accumulate)
		avx2_norm_row(out, x, w, dim, scale, true, true);
	else if (w)
		avx2_norm_row(out, x, w, dim, scale, true, false);
	else
		avx2_norm_row(out, x, w, dim, scale, false, accumulate);
}

/* Pairs (2i, 2i + 1): 4 of them in a vector. */
static uint32_t avx2_rope_norm(float *head, const float *cos_sin, uint32_t rot_dim)
{
	uint32_t i = 0;

	for (; i + 8 <= rot_dim; i += 8) {
		__m256 x = _mm256_loadu_ps(head + i), cs = _mm256_loadu_ps(cos_sin + i);
		__m256 swapped = _mm256_mul_ps(_mm256_permute_ps(x, 0xb1), _mm256_movehdup_ps(cs));

		_mm256_storeu_ps(head + i, _mm256_addsub_ps(_mm256_mul_ps(x, _mm256_moveldup_ps(cs)), swapped));
	}
	return i / 2;
}

/* Pairs (i, i + half): 8 of them at a time. */
static uint32_t avx2_rope_neox(float *head, const float *cos_sin, uint32_t rot_dim)
{
	const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
	uint32_t half = rot_dim / 2, i = 0;

	for (; i + 8 <= half; i += 8) {
		/* c0 s0 c1 s1 ... to all c, all s */
		__m256 lo = _mm256_permutevar8x32_ps(_mm256_loadu_ps(cos_sin + 2 * i), order);
		__m256 hi = _mm256_permutevar8x32_ps(_mm256_loadu_ps(cos_sin + 2 * i + 8), order);
		__m256 c = _mm256_permute2f128_ps(lo, hi, 0x20), s = _mm256_permute2f128_ps(lo, hi, 0x31);
		__m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + half + i);

		_mm256_storeu_ps(head + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
		_mm256_storeu_ps(head + half + i, _mm256_add_ps(_mm256_mul_ps(a, s), _mm256_mul_ps(b, c)));
	}
	return i;
}

void avx2_rope(float *head, const float *cos_sin, uint32_t rot_dim, enum krope style)
{
	uint32_t half = rot_dim / 2;
	uint32_t i =
		style == KROPE_NEOX ? avx2_rope_neox(head, cos_sin, rot_dim) : avx2_rope_norm(head, cos_sin, rot_dim);

	for (; i < half; i++) {
		uint32_t first = style == KROPE_NEOX ? i : 2 * i;
		uint32_t second = style == KROPE_NEOX ? i + half : 2 * i + 1;
		float a = head[first], b = head[second], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];

		head[first] = a * c - b * s;
		head[second] = a * s + b * c;
	}
}

bool avx2_best(const float *x, uint32_t n, uint32_t *best)
{
	const __m256 lowest = _mm256_set1_ps(-INFINITY), limit = _mm256_set1_ps(INFINITY);
	__m256 max = lowest, good = _mm256_cmp_ps(limit, limit, _CMP_EQ_OQ);
	float lanes[8], top = -INFINITY;

	for (uint32_t i = 0; i < n; i += 8) {
		__m256i mask = avx2_mask(min_u32(8, n - i));
		__m256 v = i + 8 <= n ? _mm256_loadu_ps(x + i)
				      : _mm256_blendv_ps(lowest, _mm256_maskload_ps(x + i, mask),
							 _mm256_castsi256_ps(mask));

		good = _mm256_and_ps(good, _mm256_cmp_ps(v, limit, _CMP_LT_OQ));
		max = _mm256_max_ps(v, max);
	}
	_mm256_storeu_ps(lanes, max);
	for (int i = 0; i < 8; i++) top = fmaxf(top, lanes[i]);
	if (_mm256_movemask_ps(good) != 0xff || top == -INFINITY) return false;
	for (uint32_t i = 0; i < n; i += 8) {
		__m256i mask = avx2_mask(min_u32(8, n - i));
		__m256 v = i + 8 <= n ? _mm256_loadu_ps(x + i)
				      : _mm256_blendv_ps(lowest, _mm256_maskload_ps(x + i, mask),
							 _mm256_castsi256_ps(mask));
		int found = _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(top), _CMP_EQ_OQ));

		if (!found) continue;
		*best = i + (uint32_t)__builtin_ctz((unsigned)found);
		return true;
	}
	return false;
}

void avx2_chunk_sums(double *sums, const float *p, uint32_t n)
{
	for (uint32_t from = 0; from < n; from += SAMPLER_CHUNK) {
		uint32_t end = min_u32(n, from + SAMPLER_CHUNK);
		__m256d sum[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
		double parts[4];

		for (uint32_t i = from; i < end; i += 8) {
			__m256 v =
				i + 8 <= end ? _mm256_loadu_ps(p + i) : _mm256_maskload_ps(p + i, avx2_mask(end - i));

			sum[0] = _mm256_add_pd(sum[0], _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
			sum[1] = _mm256_add_pd(sum[1], _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
		}
		_mm256_storeu_pd(parts, _mm256_add_pd(sum[0], sum[1]));
		sums[from / SAMPLER_CHUNK] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
	}
}

double avx2_softmax_terms(float *p, const float *x, uint32_t n, float max, float inv_t)
{
	__m256d sum[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
	double parts[4];

	for (uint32_t i = 0; i < n; i += 8) {
		__m256i mask = avx2_mask(min_u32(8, n - i));
		__m256 v = i + 8 <= n ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, mask);

		v = avx2_exp(_mm256_mul_ps(_mm256_sub_ps(v, _mm256_set1_ps(max)), _mm256_set1_ps(inv_t)));
		if (i + 8 <= n) {
			_mm256_storeu_ps(p + i, v);
		} else {
			v = _mm256_and_ps(v, _mm256_castsi256_ps(mask));
			_mm256_maskstore_ps(p + i, mask, v);
		}
		sum[0] = _mm256_add_pd(sum[0], _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
		sum[1] = _mm256_add_pd(sum[1], _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
	}
	_mm256_storeu_pd(parts, _mm256_add_pd(sum[0], sum[1]));
	return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

const struct cpu_level cpu_level_avx2 = {
	.ops = CPU_OPS("avx2"),
	.layout = CPU_LAYOUT_GROUPS8,
	.quantize = avx2_quantize,
	.product = avx2_product,
	.norm = avx2_norm,
	.glu = avx2_glu,
	.sigmoid = avx2_sigmoid,
	.softcap = avx2_softcap_row,
	.combine = avx2_combine,
	.conv = avx2_conv,
	.delta = avx2_delta,
	.rope = avx2_rope,
	.kv_store = avx2_kv_store,
	.attention = avx2_attention,
	.sampler = {avx2_best, avx2_softmax_terms, avx2_chunk_sums},
};
