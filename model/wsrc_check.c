/* wsrc_check.c - see wsrc.h: no scale and no value of a weight is NaN or infinite.
 *
 * One such number makes every logit NaN, and nothing behind the loader would say why. A table says where the blocks of
 * each type have their scales. The search is in two steps: whether there is one at all, in a loop without branches over
 * the piece that is in the cache anyway; and where, when there is. */
#include "model/wsrc_impl.h"

#include "common/float8.h"
#include "common/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum wsrc_scale_kind {
	WSRC_NO_SCALE,
	WSRC_HALF,   /* f16 at `at` */
	WSRC_HALF2,  /* two of them */
	WSRC_E8M0,   /* 0xff is NaN */
	WSRC_E4M3X4, /* four unsigned E4M3: 0x7f is NaN */
	WSRC_SPLIT,  /* IQ1_M: an f16 in the high nibbles of four words */
	WSRC_F32_F8, /* F8_B32: an f32 with which the largest code stays finite; and each of the 32 codes may be NaN */
	WSRC_LANES   /* no blocks: each element is a number */
};

struct wsrc_scale_at {
	enum wsrc_scale_kind kind;
	uint32_t at; /* of a block */
};

/* Offsets: ggml's block structs (ggml/src/ggml-common.h); ours: common/ggtype.h. */
static struct wsrc_scale_at wsrc_scale_at(enum ggtype type)
{
	switch ((int)type) {
	case GGTYPE_F32:
	case GGTYPE_F16:
	case GGTYPE_BF16:
		return (struct wsrc_scale_at){WSRC_LANES, 0};
	case GGTYPE_Q4_0:
	case GGTYPE_Q5_0:
	case GGTYPE_Q8_0:
	case GGTYPE_IQ2_XXS:
	case GGTYPE_IQ2_XS:
	case GGTYPE_IQ2_S:
	case GGTYPE_IQ3_XXS:
	case GGTYPE_IQ3_S:
	case GGTYPE_IQ1_S:
	case GGTYPE_IQ4_NL:
	case GGTYPE_IQ4_XS:
		return (struct wsrc_scale_at){WSRC_HALF, 0};
	case GGTYPE_Q4_1:
	case GGTYPE_Q5_1:
	case GGTYPE_Q4_K:
	case GGTYPE_Q5_K:
	case GGTYPE_Q4_Z:
		return (struct wsrc_scale_at){WSRC_HALF2, 0};
	case GGTYPE_Q2_K:
		return (struct wsrc_scale_at){WSRC_HALF2, 80};
	case GGTYPE_Q3_K:
		return (struct wsrc_scale_at){WSRC_HALF, 108};
	case GGTYPE_Q6_K:
		return (struct wsrc_scale_at){WSRC_HALF, 208};
	case GGTYPE_TQ1_0:
		return (struct wsrc_scale_at){WSRC_HALF, 52};
	case GGTYPE_TQ2_0:
		return (struct wsrc_scale_at){WSRC_HALF, 64};
	case GGTYPE_IQ1_M:
		return (struct wsrc_scale_at){WSRC_SPLIT, 48};
	case GGTYPE_MXFP4:
		return (struct wsrc_scale_at){WSRC_E8M0, 0};
	case GGTYPE_NVFP4:
		return (struct wsrc_scale_at){WSRC_E4M3X4, 0};
	case GGTYPE_F8_B32:
		return (struct wsrc_scale_at){WSRC_F32_F8, 0};
	default:
		return (struct wsrc_scale_at){WSRC_NO_SCALE, 0};
	}
}

/* Lanes of 16 or 32 bits: all bits of the exponent are set exactly when adding its lowest one carries into the sign's
 * place. */
struct wsrc_lanes {
	uint64_t exponent, low, top;
};

static struct wsrc_lanes wsrc_lanes(enum ggtype type)
{
	switch ((int)type) {
	case GGTYPE_F16:
		return (struct wsrc_lanes){0x7c007c007c007c00ull, 0x0400040004000400ull, 0x8000800080008000ull};
	case GGTYPE_BF16:
		return (struct wsrc_lanes){0x7f807f807f807f80ull, 0x0080008000800080ull, 0x8000800080008000ull};
	default:
		return (struct wsrc_lanes){0x7f8000007f800000ull, 0x0080000000800000ull, 0x8000000080000000ull};
	}
}

/* Float8 codes: magnitude 0x7f alone carries. */
static const struct wsrc_lanes wsrc_lanes_f8 = {0x7f7f7f7f7f7f7f7full, 0x0101010101010101ull, 0x8080808080808080ull};

static bool wsrc_lanes_bad(struct wsrc_lanes l, const uint8_t *p, uint64_t bytes)
{
	uint64_t bad = 0, x;

	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&x, p, 8);
		bad |= ((x & l.exponent) + l.low) & l.top;
	}
	x = 0;
	memcpy(&x, p, bytes);
	return ((bad | (((x & l.exponent) + l.low) & l.top))) != 0;
}

static bool wsrc_halves_bad(const uint8_t *p, uint64_t bytes, uint32_t step, uint32_t exponent)
{
	uint32_t low = exponent & 0x04000400, top = low << 5, bad = 0;

	for (uint64_t i = 0; i < bytes; i += step) bad |= ((half_load_u32(p + i) & exponent) + low) & top;
	return bad != 0;
}

static uint16_t wsrc_split_half(const uint8_t *p)
{
	return (uint16_t)(half_load_u16(p) >> 12 | (half_load_u16(p + 2) >> 8 & 0xf0) |
			  (half_load_u16(p + 4) >> 4 & 0xf00) | (half_load_u16(p + 6) & 0xf000));
}

static bool wsrc_block_bad(enum wsrc_scale_kind kind, const uint8_t *p)
{
	float scale;

	switch (kind) {
	case WSRC_E8M0:
		return *p == 0xff;
	case WSRC_E4M3X4:
		return wsrc_lanes_bad(wsrc_lanes_f8, p, 4);
	case WSRC_SPLIT:
		return (wsrc_split_half(p) & 0x7c00) == 0x7c00;
	case WSRC_F32_F8:
		memcpy(&scale, p, 4);
		return !(fabsf(scale) <= FLT_MAX / FLOAT8_MAX) || wsrc_lanes_bad(wsrc_lanes_f8, p + 4, 32);
	default:
		return false;
	}
}

bool wsrc_has_bad(enum ggtype type, const void *blocks, uint64_t bytes)
{
	struct wsrc_scale_at s = wsrc_scale_at(type);
	const uint8_t *p = (const uint8_t *)blocks + s.at;
	uint32_t step = ggtype_info(type)->block_bytes;
	bool bad = false;

	switch (s.kind) {
	case WSRC_NO_SCALE:
		return false;
	case WSRC_LANES:
		return wsrc_lanes_bad(wsrc_lanes(type), p, bytes);
	case WSRC_HALF:
		/* One f16 is read as the low half of 32 bits: a last block that ends with it is looked at from 2 bytes
		 * before. */
		if (s.at + 4 > step) return wsrc_halves_bad(p - 2, bytes, step, 0x7c000000);
		return wsrc_halves_bad(p, bytes, step, 0x00007c00);
	case WSRC_HALF2:
		return wsrc_halves_bad(p, bytes, step, 0x7c007c00);
	case WSRC_E8M0:
	case WSRC_E4M3X4:
	case WSRC_SPLIT:
	case WSRC_F32_F8:
		for (uint64_t i = 0; i < bytes; i += step) bad |= wsrc_block_bad(s.kind, p + i);
		return bad;
	}
	return bad;
}

bool wsrc_find_bad(enum ggtype type, const void *row, uint64_t cols, uint64_t *block)
{
	const struct ggtype_info *info = ggtype_info(type);

	if (!wsrc_has_bad(type, row, ggtype_row_bytes(type, cols))) return false;
	*block = 0;
	while (!wsrc_has_bad(type, (const uint8_t *)row + *block * info->block_bytes, info->block_bytes)) ++*block;
	return true;
}

/* ---- the place for people ---- */

static int wsrc_refuse_plain(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col, uint32_t block_len,
			     struct errbuf *err)
{
	if (block_len == 1)
		return err_set(err, ST_INVALID, "tensor %.*s: row %llu, column %llu is not finite", (int)w->t->name.len,
			       w->t->name.s, (unsigned long long)tensor_row, (unsigned long long)tensor_col);
	return err_set(err, ST_INVALID,
		       "tensor %.*s: a scale of row %llu, block %llu (columns from %llu on) is not finite",
		       (int)w->t->name.len, w->t->name.s, (unsigned long long)tensor_row,
		       (unsigned long long)(tensor_col / block_len), (unsigned long long)tensor_col);
}

/* Of codes with scales beside them: whether it is the scale. */
static bool wsrc_scale_bad(const struct wsrc *w, uint64_t ix)
{
	if (w->scales->type == CKPT_U8 || w->scales->type == CKPT_F8_E8M0) return w->scales->data[ix] == 0xff;
	return !isfinite(wsrc_float_at(w->scales, ix));
}

static int wsrc_refuse_code(const struct wsrc *w, uint64_t tensor_row, uint64_t tensor_col, uint64_t n_cols,
			    struct errbuf *err)
{
	uint64_t ix = wsrc_scale_ix(w, tensor_row, tensor_col), width = w->scales->dims[w->scales->n_dims - 1];

	if (wsrc_scale_bad(w, ix))
		return err_set(err, ST_INVALID, "tensor %.*s: the scale at row %llu, column %llu is not finite",
			       (int)w->scales->name.len, w->scales->name.s, (unsigned long long)(ix / width),
			       (unsigned long long)(ix % width));
	for (uint64_t c = tensor_col; w->code == WSRC_FP8 && c < tensor_col + n_cols; c++)
		if ((w->t->data[tensor_row * w->tensor_cols + c] & 0x7f) == 0x7f)
			return wsrc_refuse_plain(w, tensor_row, c, 1, err);
	return err_set(err, ST_INVALID, "tensor %.*s: row %llu, columns from %llu on: a value is too large",
		       (int)w->t->name.len, w->t->name.s, (unsigned long long)tensor_row,
		       (unsigned long long)tensor_col);
}

int wsrc_check(const struct wsrc *w, uint32_t row, uint32_t n, const void *rows, struct errbuf *err)
{
	size_t bytes = ggtype_row_bytes(w->type, w->cols);
	uint32_t block_len = ggtype_info(w->type)->block_len;
	uint64_t block, tensor_row, tensor_col;

	if (!wsrc_has_bad(w->type, rows, n * bytes)) return ST_OK;
	for (uint32_t i = 0; i < n; i++) {
		if (!wsrc_find_bad(w->type, (const uint8_t *)rows + i * bytes, w->cols, &block)) continue;
		wsrc_elem_place(w, row + i, (uint32_t)(block * block_len), &tensor_row, &tensor_col);
		if (w->code != WSRC_PLAIN) return wsrc_refuse_code(w, tensor_row, tensor_col, block_len, err);
		return wsrc_refuse_plain(w, tensor_row, tensor_col, block_len, err);
	}
	CHECK(false);
}
