/* ggtype.h - the element types of GGUF tensors: one table of numbers, names and block sizes.
 *
 * Source: the GGUF specification and ggml's type list (ggml/include/ggml.h, enum ggml_type). A tensor's rows are made of
 * whole blocks: cols must be a multiple of `block_len`, and a row takes cols / block_len * block_bytes bytes. */
#ifndef SLUICE_GGTYPE_H
#define SLUICE_GGTYPE_H

#include "common/base.h"

/* T(name, number, elements a block, bytes a block) */
#define GGTYPES(T)                 \
	T(F32, 0, 1, 4)            \
	T(F16, 1, 1, 2)            \
	T(Q4_0, 2, 32, 18)         \
	T(Q4_1, 3, 32, 20)         \
	T(Q5_0, 6, 32, 22)         \
	T(Q5_1, 7, 32, 24)         \
	T(Q8_0, 8, 32, 34)         \
	T(Q8_1, 9, 32, 36)         \
	T(Q2_K, 10, 256, 84)       \
	T(Q3_K, 11, 256, 110)      \
	T(Q4_K, 12, 256, 144)      \
	T(Q5_K, 13, 256, 176)      \
	T(Q6_K, 14, 256, 210)      \
	T(Q8_K, 15, 256, 292)      \
	T(IQ2_XXS, 16, 256, 66)    \
	T(IQ2_XS, 17, 256, 74)     \
	T(IQ3_XXS, 18, 256, 98)    \
	T(IQ1_S, 19, 256, 50)      \
	T(IQ4_NL, 20, 32, 18)      \
	T(IQ3_S, 21, 256, 110)     \
	T(IQ2_S, 22, 256, 82)      \
	T(IQ4_XS, 23, 256, 136)    \
	T(I8, 24, 1, 1)            \
	T(I16, 25, 1, 2)           \
	T(I32, 26, 1, 4)           \
	T(I64, 27, 1, 8)           \
	T(F64, 28, 1, 8)           \
	T(IQ1_M, 29, 256, 56)      \
	T(BF16, 30, 1, 2)          \
	T(TQ1_0, 34, 256, 54)      \
	T(TQ2_0, 35, 256, 66)      \
	T(MXFP4, 39, 32, 17)       \
	T(NVFP4, 40, 64, 36)       \
	GGTYPES_OURS(T)

/* What no GGUF file has: numbers from GGTYPE_OURS on.
 * F8_E4M3  one OCP float8 (E4M3FN: no infinities, 0x7f and 0xff are NaN); KV caches
 * F8_B32   a block of a block-scaled float8 matrix: f32 scale, then 32 x F8_E4M3; value = scale * q
 * Q4_Z     a group of a 4-bit matrix with zero points (AWQ, GPTQ): f16 d, f16 -zero (a whole number), then 16 bytes of nibbles laid
 *          out as in Q4_0; value = d * (q - zero), exact in f32 */
#define GGTYPES_OURS(T)            \
	T(F8_E4M3, 1001, 1, 1)     \
	T(F8_B32, 1002, 32, 36)    \
	T(Q4_Z, 1003, 32, 20)

#define GGTYPE_OURS 1000

#define GGTYPE_AS_ENUM(name, number, len, bytes) GGTYPE_##name = number,
enum ggtype { GGTYPES(GGTYPE_AS_ENUM) };
#undef GGTYPE_AS_ENUM

struct ggtype_info {
	const char *name; /* "Q4_1" */
	uint32_t number;
	uint32_t block_len;
	uint32_t block_bytes;
};

/* NULL for a number that is not in the table. */
const struct ggtype_info *ggtype_info(uint32_t number);

/* Bytes of a row of `cols` elements; cols must be a multiple of block_len (CHECKed). */
size_t ggtype_row_bytes(enum ggtype type, uint64_t cols);

#endif
