/* pack.h - the weight layout of the vector levels: groups of rows interleaved so that a vector lane is a row.
 *
 * Rows are padded with zeros to whole groups of G (8 or 16). A group's bytes, one block of 32 columns after the other:
 *   Q4_1, Q4_Z  two f16 a row: d[G], then m[G] or the negative zero point[G]; then 4 x (G rows x 4 bytes): byte j of part i holds
 *               columns 4i + j (low) and 16 + 4i + j (high)
 *   Q4_0        d[G] (f16), then the same nibbles
 *   Q8_0        d[G] (f16), then 8 x (G rows x 4 bytes): byte j of part i is column 4i + j; signed for G = 8, with the sign bit flipped
 *               (so that it is unsigned with an offset of 128, as VNNI wants its first operand) for G = 16
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
/* out (cols) = row `row` as f32: the same bits as kdequant_row gives. */
void pack_row(const struct kmat *m, uint32_t row, float *out);

#endif
