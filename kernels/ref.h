/* ref.h - the functions of the plain level that other files use. */
#ifndef SLUICE_REF_H
#define SLUICE_REF_H

#include "kernels/cpu.h"

void ref_kv_store(const struct kkv *kv, const float *k, const float *v, uint32_t slot);
void ref_attention(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head, uint32_t head_end,
		   float *scratch);

#endif
