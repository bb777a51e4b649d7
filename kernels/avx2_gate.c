/* avx2_gate.c - gates of the AVX2 level: gated linear units, sigmoids, soft caps, and the weighted sum of experts.
 * Tails of rows go through the same instructions under a mask, so an element's bits do not depend on where it lies. */
#include "kernels/avx2_math.h"

/* gelu_tanh(g) = g / 2 * (1 + tanh(u)) = g / (1 + exp(-2u)), u = sqrt(2 / pi) * (g + 0.044715 g^3) */
CPU_INLINE __m256 avx2_gelu(__m256 g)
{
	__m256 cubic = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), _mm256_mul_ps(g, g)), g, g);

	return avx2_gated(g, _mm256_mul_ps(_mm256_set1_ps(2 * 0.79788456f), cubic));
}

/* The second operand of min and max is what stays when there is a NaN. */
CPU_INLINE __m256 avx2_oai(__m256 g, __m256 u, __m256 limit)
{
	g = _mm256_min_ps(limit, g);
	u = _mm256_max_ps(_mm256_sub_ps(_mm256_setzero_ps(), limit), _mm256_min_ps(limit, u));
	return _mm256_mul_ps(avx2_gated(g, _mm256_mul_ps(_mm256_set1_ps(1.702f), g)),
			     _mm256_add_ps(u, _mm256_set1_ps(1.0f)));
}

CPU_INLINE void avx2_glu_row(float *out, const float *gate, const float *up, size_t len, const enum kglu kind,
			     __m256 limit)
{
	for (size_t i = 0; i < len; i += 8) {
		__m256 g = avx2_load(gate + i, len - i), u = avx2_load(up + i, len - i);

		avx2_store(out + i, len - i,
			   kind == KGLU_OAI ? avx2_oai(g, u, limit)
					    : _mm256_mul_ps(kind == KGLU_SILU ? avx2_gated(g, g) : avx2_gelu(g), u));
	}
}

void avx2_glu(float *out, const float *gate, const float *up, size_t len, enum kglu kind, float limit)
{
	if (kind == KGLU_SILU)
		avx2_glu_row(out, gate, up, len, KGLU_SILU, _mm256_setzero_ps());
	else if (kind == KGLU_GELU_TANH)
		avx2_glu_row(out, gate, up, len, KGLU_GELU_TANH, _mm256_setzero_ps());
	else
		avx2_glu_row(out, gate, up, len, KGLU_OAI, _mm256_set1_ps(limit));
}

void avx2_sigmoid(float *out, const float *x, const float *gate, uint32_t gate_dim, uint32_t dim, bool accumulate)
{
	__m256 g = _mm256_set1_ps(gate[0]);

	for (uint32_t i = 0; i < dim; i += 8) {
		__m256 v;

		if (gate_dim != 1) g = avx2_load(gate + i, dim - i);
		v = avx2_gated(avx2_load(x + i, dim - i), g);
		if (accumulate) v = _mm256_add_ps(avx2_load(out + i, dim - i), v);
		avx2_store(out + i, dim - i, v);
	}
}

void avx2_softcap_row(float *x, size_t len, float cap)
{
	__m256 c = _mm256_set1_ps(cap);

	for (size_t i = 0; i < len; i += 8)
		avx2_store(x + i, len - i, _mm256_mul_ps(c, avx2_tanh(_mm256_div_ps(avx2_load(x + i, len - i), c))));
}

void avx2_combine(float *x, const float *y, const float *weights, const uint32_t *places, uint32_t k, uint32_t dim)
{
	for (uint32_t i = 0; i < dim; i += 8) {
		__m256 sum = _mm256_setzero_ps();

		for (uint32_t j = 0; j < k; j++)
			sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[j]),
					      avx2_load(y + (size_t)places[j] * dim + i, dim - i), sum);
		avx2_store(x + i, dim - i, _mm256_add_ps(avx2_load(x + i, dim - i), sum));
	}
}
