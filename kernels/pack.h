/* pack.h - the weight layout of the vector levels: groups of rows interleaved so that a vector lane is a row.
 *
 * Rows are padded with zeros to whole groups of G (8 or 16). A group's bytes, one block of 32 columns after the other:
 *   Q4_1, Q4_Z  two f16 a row: d[G], then m[G] or the negative zero point[G]; then 4 x (G rows x 4 bytes): byte j of part i holds
 *               columns 4i + j (low) and 16 + 4i + j (high)
 *   Q4_0        d[G] (f16), then the same nibbles
 *   Q8_0        d[G] (f16), then 8 x (G rows x 4 bytes): byte j of part i is column 4i + j; signed for G = 8, with the sign bit flipped
 *               (so that it is unsigned with an offset of 128, as VNNI wants its first operand) for G = 16
 *   pack_k.c's  Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4: the head of each GGUF block (its f16 one by one, then its bytes), G of
 *               each; then for every 32 columns the upper bits of codes, words[G], and the same nibbles. See pack_k.c
 *   F8_B32      d[G] (f32), then column by column: G bytes. The d of a block with a NaN is NaN: products do not look for them
 *   F32, F16, BF16  column by column: G elements
 * A matrix takes exactly the bytes of its GGUF rows (when rows is a multiple of G), so streaming costs nothing extra. */
#ifndef SLUICE_PACK_H
#define SLUICE_PACK_H

#include "kernels/cpu.h"

/* True for the types listed above. */
bool pack_has_groups(enum ggtype type);
/* True for the types whose products take int8 activations. */
bool pack_is_quantized(enum ggtype type);
uint32_t pack_group_rows(enum cpu_layout layout);
size_t pack_bytes(enum cpu_layout layout, enum ggtype type, uint32_t rows, uint32_t cols);
void pack_load(void *dst, enum cpu_layout layout, enum ggtype type, uint32_t rows, uint32_t cols, const void *src);
/* The types of pack_k.c: F(name, type). */
#define PACK_K_TYPES(F)          \
	F(q5_0, GGTYPE_Q5_0)     \
	F(q5_1, GGTYPE_Q5_1)     \
	F(q2_k, GGTYPE_Q2_K)     \
	F(q3_k, GGTYPE_Q3_K)     \
	F(q4_k, GGTYPE_Q4_K)     \
	F(q5_k, GGTYPE_Q5_K)     \
	F(q6_k, GGTYPE_Q6_K)     \
	F(iq4_nl, GGTYPE_IQ4_NL) \
	F(iq4_xs, GGTYPE_IQ4_XS) \
	F(mxfp4, GGTYPE_MXFP4)

/* How one of them lies in memory. */
struct pack_k {
	uint32_t halfs, bytes;       /* of a block's head: f16s (or other 16-bit words), then bytes */
	uint32_t halfs_at, bytes_at; /* where a GGUF block has them */
	uint32_t parts;              /* pieces of 32 columns that a block has; 0: the type is none of them */
	uint32_t high;               /* words of upper bits that a piece has: a bit a code, or two */
	uint32_t low;                /* words of lower bits: 4 of nibbles, or 2 of pairs of bits */
};

/* Inline, so that products of a known type know its numbers. */
static inline struct pack_k pack_k_of(enum ggtype type)
{
	switch ((int)type) {
	case GGTYPE_Q5_0:
		return (struct pack_k){.halfs = 1, .parts = 1, .high = 1, .low = 4};
	case GGTYPE_Q5_1:
		return (struct pack_k){.halfs = 2, .parts = 1, .high = 1, .low = 4};
	case GGTYPE_Q2_K:
		return (struct pack_k){.halfs = 2, .bytes = 16, .halfs_at = 80, .parts = 8, .low = 2};
	case GGTYPE_Q3_K:
		return (struct pack_k){.halfs = 1, .bytes = 12, .halfs_at = 108, .bytes_at = 96, .parts = 8, .high = 1, .low = 2};
	case GGTYPE_Q4_K:
		return (struct pack_k){.halfs = 2, .bytes = 12, .bytes_at = 4, .parts = 8, .low = 4};
	case GGTYPE_Q5_K:
		return (struct pack_k){.halfs = 2, .bytes = 12, .bytes_at = 4, .parts = 8, .high = 1, .low = 4};
	case GGTYPE_Q6_K:
		return (struct pack_k){.halfs = 1, .bytes = 16, .halfs_at = 208, .bytes_at = 192, .parts = 8, .high = 2, .low = 4};
	case GGTYPE_IQ4_NL:
		return (struct pack_k){.halfs = 1, .parts = 1, .low = 4};
	case GGTYPE_IQ4_XS:
		return (struct pack_k){.halfs = 2, .bytes = 4, .bytes_at = 4, .parts = 8, .low = 4};
	case GGTYPE_MXFP4:
		return (struct pack_k){.bytes = 1, .parts = 1, .low = 4};
	default:
		return (struct pack_k){0};
	}
}

static inline bool pack_is_k(enum ggtype type)
{
	return pack_k_of(type).parts > 0;
}

/* One row's blocks to lane `lane` of its group, and back to floats. */
void pack_k_load(uint8_t *dst, enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src);
void pack_k_row(const uint8_t *g, enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols, float *out);

/* What makes values of the codes of 32 columns of a quantized row: scale[column / 16] * (table ? table[code] : code - offset)
 * - min[column / 16]. */
struct pack_values {
	float scale[2], min[2];
	const int8_t *table; /* (16) */
	int offset;
};

/* The form of every quantized type, the four of pack.c too (low: 8 words of whole bytes). */
static inline struct pack_k pack_form_of(enum ggtype type)
{
	if (type == GGTYPE_Q4_0) return (struct pack_k){.halfs = 1, .parts = 1, .low = 4};
	if (type == GGTYPE_Q4_1 || type == GGTYPE_Q4_Z) return (struct pack_k){.halfs = 2, .parts = 1, .low = 4};
	if (type == GGTYPE_Q8_0) return (struct pack_k){.halfs = 1, .parts = 1, .low = 8};
	return pack_k_of(type);
}

#define PACK_HEAD_MAX 20

/* Head of a GGUF block again, f16s first, of row `lane` of the group whose block is at g; returns where the pieces begin. */
const uint8_t *pack_head(const uint8_t *g, enum ggtype type, uint32_t group, uint32_t lane, uint8_t head[PACK_HEAD_MAX]);
struct pack_values pack_values_of(const uint8_t head[PACK_HEAD_MAX], enum ggtype type, uint32_t part);

/* out (cols) = row `row` as f32: the same bits as kdequant_row gives. */
void pack_row(const struct kmat *m, uint32_t row, float *out);

#endif
