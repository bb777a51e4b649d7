/* avx512_product.h - what the products of the AVX-512 level share. Included only where AVX-512 code is compiled, or
 * emulated. */
#ifndef SLUICE_AVX512_PRODUCT_H
#define SLUICE_AVX512_PRODUCT_H

#include "kernels/avx2.h"
#include "kernels/pack.h"

#ifndef SLUICE_AVX512_EMULATED
#include <immintrin.h>
#endif
#include <string.h>

/* Products of formats that pack_k.c interleaves: 16 rows from `row` on, `lanes` of which are there. */
void avx512_k_group(const struct cpu_product *p, const uint8_t *w, uint32_t row, uint32_t lanes);

#define AVX512_TOKENS 8 /* 8 int32 and 8 f32 sums of 32 registers */

struct avx512_rows {
	const int8_t *q;
	const float *scale, *ssum;
	const int32_t *isum, *half;
	size_t stride; /* bytes to the next token's */
};

static inline struct avx512_rows avx512_rows_at(const struct cpu_product *p, uint32_t i)
{
	struct cpu_xq xq = cpu_xq_at(p->xq, p->o->w->cols, i);

	return (struct avx512_rows){xq.q, xq.scale, xq.ssum, xq.isum, xq.half, cpu_xq_stride(p->o->w->cols)};
}

CPU_INLINE __m512i avx512_bytes4(const int8_t *p)
{
	int32_t v;

	memcpy(&v, p, 4);
	return _mm512_set1_epi32(v);
}

CPU_INLINE __m512 avx512_scale_at(const float *p, size_t stride, int t, uint32_t b)
{
	return _mm512_set1_ps(*(const float *)((const char *)(p + b) + t * stride));
}

CPU_INLINE __m512 avx512_halfs(const uint8_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* For the first tokens of a group of rows, when there are many: those after them find it in the cache. */
CPU_INLINE void avx512_prefetch(const uint8_t *w, const int bytes)
{
	for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)w + CPU_AHEAD + i, _MM_HINT_T0);
}

/* factor times a sum of token t's activations. */
CPU_INLINE __m512i avx512_sum_at(const int32_t *p, size_t stride, int t, uint32_t i, const int factor)
{
	return _mm512_set1_epi32(factor * *(const int32_t *)((const char *)(p + i) + t * stride));
}

/* Lanes [0, lanes) to rows row.. of token i. */
CPU_INLINE void avx512_put(const struct kmat_out *o, uint32_t i, uint32_t row, uint32_t lanes, __m512 v)
{
	float *out = o->out + (size_t)i * o->ld_out + row;
	float tail[16];

	if (lanes == 16) {
		if (o->bias) v = _mm512_add_ps(v, _mm512_loadu_ps(o->bias + row));
		if (o->accumulate) v = _mm512_add_ps(_mm512_loadu_ps(out), v);
		_mm512_storeu_ps(out, v);
		return;
	}
	_mm512_storeu_ps(tail, v);
	for (uint32_t r = 0; r < lanes; r++) {
		if (o->bias) tail[r] += o->bias[row + r];
		out[r] = o->accumulate ? out[r] + tail[r] : tail[r];
	}
}

/* A function that gives all tokens of a group of rows to a tile (p, type, w, row, lanes, first token, tokens); the last
 * two and the type are constants where it is inlined. */
#define AVX512_GROUP(name, tile, type)                                                                \
	static void name(const struct cpu_product *p, const uint8_t *w, uint32_t row, uint32_t lanes) \
	{                                                                                             \
		uint32_t i = 0;                                                                       \
                                                                                                      \
		for (; i + 8 <= p->n; i += 8) tile(p, type, w, row, lanes, i, 8);                     \
		for (; i + 4 <= p->n; i += 4) tile(p, type, w, row, lanes, i, 4);                     \
		if (p->n - i == 3) tile(p, type, w, row, lanes, i, 3);                                \
		if (p->n - i == 2) tile(p, type, w, row, lanes, i, 2);                                \
		if (p->n - i == 1) tile(p, type, w, row, lanes, i, 1);                                \
	}

#endif
