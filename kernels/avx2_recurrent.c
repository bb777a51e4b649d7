/* avx2_recurrent.c - the short convolution and the gated delta rule of the AVX2 level. A lane is a channel, or a column
 * of the state; none knows of another. */
#include "kernels/avx2_math.h"

#define AVX2_DELTA_VECTORS 8 /* their sums, and what a row needs, fit the 16 registers */

void avx2_conv(float *out, const float *const *rows, const float *w, uint32_t ld_w, uint32_t width, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 8) {
		__m256 sum = _mm256_setzero_ps();

		for (uint32_t j = 0; j < width; j++)
			sum = _mm256_fmadd_ps(avx2_load(w + (size_t)j * ld_w + i, n - i), avx2_load(rows[j] + i, n - i),
					      sum);
		avx2_store(out + i, n - i, avx2_gated(sum, sum));
	}
}

/* `vectors` vectors of columns from `col` on; with `tail` the only one has the lanes of `mask`. The first pass reads
 * what the state says about k, the second one brings it up to date and reads it with q. */
CPU_INLINE void avx2_delta_columns(const struct cpu_delta *a, uint32_t col, const int vectors, const bool tail,
				   __m256i mask)
{
	const __m256 decay = _mm256_set1_ps(a->decay), beta = _mm256_set1_ps(a->beta);
	__m256 sum[AVX2_DELTA_VECTORS], d[AVX2_DELTA_VECTORS];
	float *s = a->s + col;

	CPU_UNROLL
	for (int v = 0; v < vectors; v++) sum[v] = _mm256_setzero_ps();
	for (uint32_t i = 0; i < a->k_dim; i++) {
		__m256 k = _mm256_set1_ps(a->k[i]);

		CPU_UNROLL
		for (int v = 0; v < vectors; v++) {
			const float *at = s + i * a->ld_s + 8 * v;

			sum[v] = _mm256_fmadd_ps(k, tail ? _mm256_maskload_ps(at, mask) : _mm256_loadu_ps(at), sum[v]);
		}
	}
	CPU_UNROLL
	for (int v = 0; v < vectors; v++) {
		const float *at = a->v + col + 8 * v;
		__m256 value = tail ? _mm256_maskload_ps(at, mask) : _mm256_loadu_ps(at);

		d[v] = _mm256_mul_ps(beta, _mm256_fnmadd_ps(decay, sum[v], value));
		sum[v] = _mm256_setzero_ps();
	}
	for (uint32_t i = 0; i < a->k_dim; i++) {
		__m256 k = _mm256_set1_ps(a->k[i]), q = _mm256_set1_ps(a->q[i]);

		CPU_UNROLL
		for (int v = 0; v < vectors; v++) {
			float *at = s + i * a->ld_s + 8 * v;
			__m256 was = tail ? _mm256_maskload_ps(at, mask) : _mm256_loadu_ps(at);
			__m256 now = _mm256_fmadd_ps(k, d[v], _mm256_mul_ps(decay, was));

			if (tail)
				_mm256_maskstore_ps(at, mask, now);
			else
				_mm256_storeu_ps(at, now);
			sum[v] = _mm256_fmadd_ps(q, now, sum[v]);
		}
	}
	CPU_UNROLL
	for (int v = 0; v < vectors; v++) {
		if (tail)
			_mm256_maskstore_ps(a->out + col + 8 * v, mask, sum[v]);
		else
			_mm256_storeu_ps(a->out + col + 8 * v, sum[v]);
	}
}

void avx2_delta(const struct cpu_delta *a)
{
	const __m256i all = avx2_mask(8);
	uint32_t col = 0;

	for (; col + 64 <= a->cols; col += 64) avx2_delta_columns(a, col, 8, false, all);
	for (; col + 32 <= a->cols; col += 32) avx2_delta_columns(a, col, 4, false, all);
	for (; col + 8 <= a->cols; col += 8) avx2_delta_columns(a, col, 1, false, all);
	if (col < a->cols) avx2_delta_columns(a, col, 1, true, avx2_mask(a->cols - col));
}
