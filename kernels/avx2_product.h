/* avx2_product.h - what the products of the AVX2 level share. Included only where AVX2 code is compiled. */
#ifndef SLUICE_AVX2_PRODUCT_H
#define SLUICE_AVX2_PRODUCT_H

#include "kernels/avx2_math.h"
#include "kernels/pack.h"

#include <string.h>

#define AVX2_TOKENS 4 /* 4 int16 and 4 f32 sums, weights and constants fit the 16 registers */

/* Products of formats that pack_k.c interleaves: 8 rows from `row` on, `lanes` of which are there. */
void avx2_k_group(const struct cpu_product *p, const uint8_t *w, uint32_t row, uint32_t lanes);

/* What a tile of tokens reads: row 0 of the quantized activations, and the distance of the next. */
struct avx2_rows {
	const int8_t *q;
	const float *scale, *ssum;
	const int32_t *isum, *half;
	size_t stride; /* bytes */
};

static inline struct avx2_rows avx2_rows_at(const struct cpu_product *p, uint32_t i)
{
	struct cpu_xq xq = cpu_xq_at(p->xq, p->o->w->cols, i);

	return (struct avx2_rows){xq.q, xq.scale, xq.ssum, xq.isum, xq.half, cpu_xq_stride(p->o->w->cols)};
}

CPU_INLINE __m256i avx2_bytes4(const int8_t *p)
{
	int32_t v;

	memcpy(&v, p, 4);
	return _mm256_set1_epi32(v);
}

CPU_INLINE __m256 avx2_scale_at(const float *p, size_t stride, int t, uint32_t b)
{
	return _mm256_set1_ps(*(const float *)((const char *)(p + b) + t * stride));
}

/* For the first tokens of a group of rows, when there are many: those after them find it in the cache. */
CPU_INLINE void avx2_prefetch(const uint8_t *w, const int bytes)
{
	for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)w + CPU_AHEAD + i, _MM_HINT_T0);
}

CPU_INLINE __m256i avx2_int_at(const int32_t *p, size_t stride, int t, uint32_t i)
{
	return _mm256_set1_epi32(*(const int32_t *)((const char *)(p + i) + t * stride));
}

/* Lanes [0, lanes) to rows row.. of token i. */
CPU_INLINE void avx2_put(const struct kmat_out *o, uint32_t i, uint32_t row, uint32_t lanes, __m256 v)
{
	float *out = o->out + (size_t)i * o->ld_out + row;

	if (lanes == 8) {
		if (o->bias) v = _mm256_add_ps(v, _mm256_loadu_ps(o->bias + row));
		if (o->accumulate) v = _mm256_add_ps(_mm256_loadu_ps(out), v);
		_mm256_storeu_ps(out, v);
	} else {
		__m256i mask = avx2_mask(lanes);

		if (o->bias) v = _mm256_add_ps(v, _mm256_maskload_ps(o->bias + row, mask));
		if (o->accumulate) v = _mm256_add_ps(_mm256_maskload_ps(out, mask), v);
		_mm256_maskstore_ps(out, mask, v);
	}
}

/* A function that gives all tokens of a group of rows to a tile (p, type, w, row, lanes, first token, tokens); the last
 * two and the type are constants where it is inlined. */
#define AVX2_GROUP(name, tile, type)                                                                            \
	static void name(const struct cpu_product *p, const uint8_t *w, uint32_t row, uint32_t lanes)           \
	{                                                                                                       \
		uint32_t i = 0;                                                                                 \
                                                                                                                \
		for (; i + AVX2_TOKENS <= p->n; i += AVX2_TOKENS) tile(p, type, w, row, lanes, i, AVX2_TOKENS); \
		if (p->n - i == 3) tile(p, type, w, row, lanes, i, 3);                                          \
		if (p->n - i == 2) tile(p, type, w, row, lanes, i, 2);                                          \
		if (p->n - i == 1) tile(p, type, w, row, lanes, i, 1);                                          \
	}

#endif
