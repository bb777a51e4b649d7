/* pack.c - see pack.h. Plain C: runs once a matrix, and for the rows that an embedding needs. */
#include "kernels/pack.h"

#include "common/float8.h"

#include <math.h>
#include <string.h>

bool pack_is_quantized(enum ggtype type)
{
	return type == GGTYPE_Q4_0 || type == GGTYPE_Q4_1 || type == GGTYPE_Q4_Z || type == GGTYPE_Q8_0 ||
	       pack_is_k(type);
}

bool pack_has_groups(enum ggtype type)
{
	return pack_is_quantized(type) || type == GGTYPE_F8_B32 || type == GGTYPE_F32 || type == GGTYPE_F16 ||
	       type == GGTYPE_BF16;
}

uint32_t pack_group_rows(enum cpu_layout layout)
{
	return layout == CPU_LAYOUT_GROUPS16 ? 16 : layout == CPU_LAYOUT_GROUPS8 ? 8 : 1;
}

size_t pack_bytes(enum cpu_layout layout, enum ggtype type, uint32_t rows, uint32_t cols)
{
	return align_up(rows, pack_group_rows(layout)) * ggtype_row_bytes(type, cols);
}

/* Bytes of a block before its quants (f16 each), and quants. */
static uint32_t pack_block_head(enum ggtype type)
{
	return type == GGTYPE_Q4_1 || type == GGTYPE_Q4_Z ? 4 : 2;
}

/* One row's blocks to lane `lane` of its group at dst. */
static void pack_load_quantized(uint8_t *dst, uint32_t group, uint32_t lane, enum ggtype type, uint32_t cols,
				const uint8_t *src)
{
	uint32_t head = pack_block_head(type);
	uint32_t quants = ggtype_info(type)->block_bytes - head;
	uint32_t flip = type == GGTYPE_Q8_0 && group == 16 ? 0x80808080 : 0;

	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++) {
		for (uint32_t i = 0; i < head; i += 2) memcpy(dst + i * group + lane * 2, src + i, 2);
		dst += head * group;
		src += head;
		for (uint32_t i = 0; i < quants; i += 4) {
			uint32_t word = half_load_u32(src + i) ^ flip;

			memcpy(dst + i * group + lane * 4, &word, 4);
		}
		dst += quants * group;
		src += quants;
	}
}

/* Four bytes of each of four rows change places in registers. */
static void pack_turn4(uint32_t r[4])
{
	const uint32_t even = 0x00ff00ff;
	uint32_t s[4];

	for (uint32_t i = 0; i < 4; i += 2) {
		s[i] = (r[i] & even) | (r[i + 1] & even) << 8;
		s[i + 1] = (r[i] >> 8 & even) | (r[i + 1] & ~even);
	}
	for (uint32_t i = 0; i < 2; i++) {
		r[i] = (s[i] & 0xffff) | s[i + 2] << 16;
		r[i + 2] = s[i] >> 16 | (s[i + 2] & 0xffff0000);
	}
}

/* n <= 4 rows; a constant where this is inlined. */
CPU_INLINE void pack_load_f8_rows(uint8_t *dst, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src,
				  size_t row_bytes, const uint32_t n)
{
	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++, src += 36, dst += 36 * (size_t)group) {
		uint32_t nans[4] = {0};

		CPU_UNROLL
		for (uint32_t c = 4; c < 36; c += 4) {
			uint32_t r[4] = {0};

			for (uint32_t i = 0; i < n; i++) {
				r[i] = half_load_u32(src + i * row_bytes + c);
				nans[i] |= ((r[i] & 0x7f7f7f7f) + 0x01010101) & 0x80808080; /* a byte of 0x7f or 0xff */
			}
			pack_turn4(r);
			for (uint32_t i = 0; i < 4; i++) memcpy(dst + (c + i) * group + lane, &r[i], 4);
		}
		for (uint32_t i = 0; i < n; i++) {
			float d = half_bits_f32(half_load_u32(src + i * row_bytes));

			if (nans[i]) d = NAN;
			memcpy(dst + (lane + i) * 4, &d, 4);
		}
	}
}

static void pack_load_f8(uint8_t *dst, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src,
			 size_t row_bytes, uint32_t n)
{
	if (n == 4)
		pack_load_f8_rows(dst, group, lane, cols, src, row_bytes, 4);
	else
		pack_load_f8_rows(dst, group, lane, cols, src, row_bytes, n);
}

static void pack_load_f32(uint8_t *dst, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src)
{
	for (size_t c = 0; c < cols; c++) memcpy(dst + (c * group + lane) * 4, src + 4 * c, 4);
}

/* 16-bit elements of n <= 4 rows: four columns of four rows change places in registers. */
static void pack_load_f16(uint8_t *dst, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src,
			  size_t row_bytes, uint32_t n)
{
	const uint64_t even = 0x0000ffff0000ffff, low = 0x00000000ffffffff;
	uint32_t c = 0;

	for (; n == 4 && c + 4 <= cols; c += 4) {
		uint64_t r[4], s[4];

		for (uint32_t i = 0; i < 4; i++) memcpy(&r[i], src + i * row_bytes + 2 * (size_t)c, 8);
		for (uint32_t i = 0; i < 4; i += 2) {
			s[i] = (r[i] & even) | (r[i + 1] & even) << 16;
			s[i + 1] = (r[i] >> 16 & even) | (r[i + 1] & ~even);
		}
		for (uint32_t i = 0; i < 2; i++) {
			r[i] = (s[i] & low) | s[i + 2] << 32;
			r[i + 2] = s[i] >> 32 | (s[i + 2] & ~low);
		}
		for (uint32_t i = 0; i < 4; i++) memcpy(dst + ((size_t)(c + i) * group + lane) * 2, &r[i], 8);
	}
	for (; c < cols; c++)
		for (uint32_t i = 0; i < n; i++)
			memcpy(dst + ((size_t)c * group + lane + i) * 2, src + i * row_bytes + 2 * (size_t)c, 2);
}

void pack_load(void *dst, enum cpu_layout layout, enum ggtype type, uint32_t rows, uint32_t cols, const void *src)
{
	uint32_t group = pack_group_rows(layout);
	size_t row_bytes = ggtype_row_bytes(type, cols);

	if (group == 1) {
		memcpy(dst, src, rows * row_bytes);
		return;
	}
	memset((char *)dst + rows / group * group * row_bytes, 0,
	       (align_up(rows, group) - rows / group * group) * row_bytes);
	for (uint32_t r = 0; r < rows; r++) {
		uint8_t *g = (uint8_t *)dst + r / group * group * row_bytes;
		const uint8_t *row = (const uint8_t *)src + r * row_bytes;

		if (pack_is_k(type)) {
			pack_k_load(g, type, group, r % group, cols, row);
			continue;
		}
		if (pack_is_quantized(type)) {
			pack_load_quantized(g, group, r % group, type, cols, row);
			continue;
		}
		if (type == GGTYPE_F8_B32) {
			if (r % 4 == 0) pack_load_f8(g, group, r % group, cols, row, row_bytes, min_u32(4, rows - r));
			continue;
		}
		if (type == GGTYPE_F32)
			pack_load_f32(g, group, r % group, cols, row);
		else if (r % 4 == 0)
			pack_load_f16(g, group, r % group, cols, row, row_bytes, min_u32(4, rows - r));
	}
}

static void pack_row_quantized(const uint8_t *g, uint32_t group, uint32_t lane, enum ggtype type, uint32_t cols,
			       float *out)
{
	uint32_t head = pack_block_head(type);
	uint32_t quants = ggtype_info(type)->block_bytes - head;
	uint8_t flip = group == 16 ? 0x80 : 0;

	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++, out += CPU_QBLOCK) {
		float d = half_load(g + lane * 2);
		float m = head == 4 ? half_load(g + 2 * group + lane * 2) : 0;

		g += head * group;
		for (uint32_t i = 0; i < quants; i++) {
			uint8_t q = g[i / 4 * 4 * group + lane * 4 + i % 4];

			if (type == GGTYPE_Q8_0) {
				out[i] = (float)(int8_t)(q ^ flip) * d;
			} else if (type == GGTYPE_Q4_0) {
				out[i] = (float)((q & 15) - 8) * d;
				out[i + 16] = (float)((q >> 4) - 8) * d;
			} else if (type == GGTYPE_Q4_Z) {
				out[i] = ((float)(q & 15) + m) * d;
				out[i + 16] = ((float)(q >> 4) + m) * d;
			} else {
				out[i] = (float)(q & 15) * d + m;
				out[i + 16] = (float)(q >> 4) * d + m;
			}
		}
		g += quants * group;
	}
}

static void pack_row_f8(const uint8_t *g, uint32_t group, uint32_t lane, uint32_t cols, float *out)
{
	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++, out += CPU_QBLOCK, g += 36 * (size_t)group) {
		float d = half_bits_f32(half_load_u32(g + lane * 4));

		for (uint32_t i = 0; i < CPU_QBLOCK; i++) out[i] = float8_to_f32(g[(4 + i) * group + lane]) * d;
	}
}

void pack_row(const struct kmat *m, uint32_t row, float *out)
{
	uint32_t group = pack_group_rows(m->layout);
	size_t row_bytes = ggtype_row_bytes(m->type, m->cols);
	const uint8_t *g = (const uint8_t *)m->data + row / group * group * row_bytes;
	uint32_t lane = row % group;

	if (group == 1) {
		int rc = kdequant_row(m->type, g, out, m->cols);

		CHECK(rc == ST_OK); /* mat_bytes has refused the others */
	} else if (pack_is_k(m->type)) {
		pack_k_row(g, m->type, group, lane, m->cols, out);
	} else if (pack_is_quantized(m->type)) {
		pack_row_quantized(g, group, lane, m->type, m->cols, out);
	} else if (m->type == GGTYPE_F8_B32) {
		pack_row_f8(g, group, lane, m->cols, out);
	} else if (m->type == GGTYPE_F32) {
		for (uint32_t c = 0; c < m->cols; c++) memcpy(&out[c], g + ((size_t)c * group + lane) * 4, 4);
	} else {
		for (uint32_t c = 0; c < m->cols; c++) {
			uint16_t h = half_load_u16(g + ((size_t)c * group + lane) * 2);

			out[c] = m->type == GGTYPE_F16 ? half_to_f32(h) : half_bf16_to_f32(h);
		}
	}
}
