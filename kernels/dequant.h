/* dequant.h - inside of kdequant_row(): one function a block format, spread over files by family. Private to kernels/.
 */
#ifndef SLUICE_DEQUANT_H
#define SLUICE_DEQUANT_H

#include "common/half.h"
#include "kernels/kernels.h"

/* Writes the block's block_len values. */
typedef void dequant_block_fn(const uint8_t *block, float *out);

#define DEQUANT_FUNCTIONS(F)        \
	F(Q4_0, dequant_q4_0)       \
	F(Q4_1, dequant_q4_1)       \
	F(Q5_0, dequant_q5_0)       \
	F(Q5_1, dequant_q5_1)       \
	F(Q8_0, dequant_q8_0)       \
	F(Q2_K, dequant_q2_k)       \
	F(Q3_K, dequant_q3_k)       \
	F(Q4_K, dequant_q4_k)       \
	F(Q5_K, dequant_q5_k)       \
	F(Q6_K, dequant_q6_k)       \
	F(IQ4_NL, dequant_iq4_nl)   \
	F(IQ4_XS, dequant_iq4_xs)   \
	F(IQ2_XXS, dequant_iq2_xxs) \
	F(IQ2_XS, dequant_iq2_xs)   \
	F(IQ2_S, dequant_iq2_s)     \
	F(IQ3_XXS, dequant_iq3_xxs) \
	F(IQ3_S, dequant_iq3_s)     \
	F(IQ1_S, dequant_iq1_s)     \
	F(IQ1_M, dequant_iq1_m)     \
	F(TQ1_0, dequant_tq1_0)     \
	F(TQ2_0, dequant_tq2_0)     \
	F(MXFP4, dequant_mxfp4)     \
	F(NVFP4, dequant_nvfp4)     \
	F(F8_B32, dequant_f8_b32)   \
	F(Q4_Z, dequant_q4_z)

#define DEQUANT_DECLARE(type, name) void name(const uint8_t *block, float *out);
DEQUANT_FUNCTIONS(DEQUANT_DECLARE)
#undef DEQUANT_DECLARE

/* Parts of formats that pack_k.c reads too. */
extern const int8_t dequant_iq4_values[16];
extern const int8_t dequant_fp4_values[16]; /* twice E2M1 */
/* Scale of 16 values, -32..31, in 12 bytes (Q3_K). */
int dequant_q3_k_scale(const uint8_t *scales, int part);
/* Scale and minimum j of 8, 6 bits each, in 12 bytes (Q4_K, Q5_K). */
void dequant_k4_scale(const uint8_t *p, int j, int *scale, int *min);
/* Scale of 32 values, -32..31, from a block's first 8 bytes. */
int dequant_iq4_xs_scale(const uint8_t *block, int part);
/* 2^(e - 127), halved because the values are doubled; subnormal for e < 2. */
float dequant_mxfp4_scale(uint32_t e);

#endif
