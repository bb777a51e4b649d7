/* dequant.h - inside of kdequant_row(): one function a block format, spread over files by family. Private to kernels/. */
#ifndef SLUICE_DEQUANT_H
#define SLUICE_DEQUANT_H

#include "kernels/half.h"
#include "kernels/kernels.h"

/* Writes the block's block_len values. */
typedef void dequant_block_fn(const uint8_t *block, float *out);

#define DEQUANT_FUNCTIONS(F)                                                                                          \
	F(Q4_0, dequant_q4_0) F(Q4_1, dequant_q4_1) F(Q5_0, dequant_q5_0) F(Q5_1, dequant_q5_1) F(Q8_0, dequant_q8_0)

#define DEQUANT_DECLARE(type, name) void name(const uint8_t *block, float *out);
DEQUANT_FUNCTIONS(DEQUANT_DECLARE)
#undef DEQUANT_DECLARE

#endif
