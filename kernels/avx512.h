/* avx512.h - the functions of the AVX-512 level (F, BW, VL, DQ, VNNI). */
#ifndef SLUICE_AVX512_H
#define SLUICE_AVX512_H

#include "kernels/cpu.h"

void avx512_product(const struct cpu_product *p, uint32_t row, uint32_t row_end);

#endif
