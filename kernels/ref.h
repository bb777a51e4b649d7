/* ref.h - the functions of the plain level that other files use. */
#ifndef SLUICE_REF_H
#define SLUICE_REF_H

#include "kernels/cpu.h"

void ref_kv_store(const struct kkv *kv, const float *k, const float *v, uint32_t slot);
void ref_attention(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head, uint32_t head_end,
		   float *scratch);
void ref_sigmoid(float *out, const float *x, const float *gate, uint32_t gate_dim, uint32_t dim, bool accumulate);
void ref_softcap(float *x, size_t len, float cap);
void ref_combine(float *x, const float *y, const float *weights, const uint32_t *places, uint32_t k, uint32_t dim);
void ref_conv(float *out, const float *const *rows, const float *w, uint32_t width, uint32_t n);
void ref_delta(const struct cpu_delta *a);

#endif
