/* wsrc_impl.h - what the files of wsrc share: places of rows and columns in tensors, and the unpacking of codes.
 * Private to model/. */
#ifndef SLUICE_WSRC_IMPL_H
#define SLUICE_WSRC_IMPL_H

#include "model/wsrc.h"

#define WSRC_ROWS_MAX                                                                                                  \
	256 /* rows that are unpacked together: codes lie column by column, so a row alone would use little of a cache \
	       line */

/* Where row `row` of the weight lies: a row of the tensor, counted over all of a stack; transposed: a column. row <
 * rows - rows_pad. */
uint64_t wsrc_row_place(const struct wsrc *w, uint32_t row);
/* The tensor's row and column that hold an element of the weight. */
void wsrc_elem_place(const struct wsrc *w, uint32_t row, uint32_t col, uint64_t *tensor_row, uint64_t *tensor_col);

/* F32, F16 and BF16: an element of a tensor as f32. */
bool wsrc_type_is_float(uint32_t type);
float wsrc_float_at(const struct ckpt_tensor *t, uint64_t ix);

/* ST_INVALID: a column of a g_idx belongs to a group that is not there. Before anything else below is called for a GPTQ
 * weight. */
int wsrc_check_order(const struct wsrc *w, struct errbuf *err) MUST_CHECK;
/* n <= WSRC_ROWS_MAX rows of a code to rows of w->type; from[i] is wsrc_row_place() of each. */
void wsrc_unpack(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out);
/* n elements of a code as f32, by their place in the tensor seen as (rows, columns). */
void wsrc_code_line(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col, uint64_t n, float *out);
/* Element of w->scales that the element at this place is multiplied by. */
uint64_t wsrc_scale_ix(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col);
/* True when every stored zero point stands for 8. */
bool wsrc_zeros_are_8(const struct wsrc *w);
bool wsrc_scales_are_halves(const struct wsrc *w); /* or of another type, but each a half's value */
/* True when column c belongs to group c / block_cols. */
bool wsrc_order_is_plain(const struct wsrc *w);

/* Finds the first block (element, when the type has none) of a row of `type` whose scale or value is not finite; false:
 * there is none. */
bool wsrc_find_bad(enum ggtype type, const void *row, uint64_t cols, uint64_t *block);
/* True when so many bytes of whole blocks hold one. */
bool wsrc_has_bad(enum ggtype type, const void *blocks, uint64_t bytes);

#endif
