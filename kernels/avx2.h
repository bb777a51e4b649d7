/* avx2.h - the functions of the AVX2 level; the AVX-512 level uses all of them but the products. */
#ifndef SLUICE_AVX2_H
#define SLUICE_AVX2_H

#include "kernels/cpu.h"

void avx2_quantize(struct cpu_xq out, const float *x, uint32_t cols);
void avx2_norm(float *out, const float *x, const float *w, uint32_t dim, float eps, bool accumulate);
void avx2_glu(float *out, const float *gate, const float *up, size_t len, enum kglu kind, float limit);
void avx2_sigmoid(float *out, const float *x, const float *gate, uint32_t gate_dim, uint32_t dim, bool accumulate);
void avx2_softcap_row(float *x, size_t len, float cap);
void avx2_combine(float *x, const float *y, const float *weights, const uint32_t *places, uint32_t k, uint32_t dim);
void avx2_conv(float *out, const float *const *rows, const float *w, uint32_t ld_w, uint32_t width, uint32_t n);
void avx2_delta(const struct cpu_delta *a);
void avx2_rope(float *head, const float *cos_sin, uint32_t rot_dim, enum krope style);
void avx2_kv_store(const struct kkv *kv, const float *k, const float *v, uint32_t slot);
void avx2_attention(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head, uint32_t head_end,
		    float *scratch);
bool avx2_best(const float *x, uint32_t n, uint32_t *best);
void avx2_chunk_sums(double *sums, const float *p, uint32_t n);
double avx2_softmax_terms(float *p, const float *x, uint32_t n, float max, float inv_t);
void avx2_product(const struct cpu_product *p, uint32_t row, uint32_t row_end);

/* Rows [8 half, 8 half + 8) of a group of `group` rows, plain f32 (8, cols), to the interleaved form (cols, group). */
void avx2_interleave(float *columns, const float *rows, uint32_t cols, uint32_t group, uint32_t half);

/* The same of quantized rows that lie interleaved: rows [row + 8 half, row + 8 half + 8) of m, row being the first of its group. */
void avx2_columns(float *columns, const struct kmat *m, uint32_t row, uint32_t group, uint32_t half);

#endif
