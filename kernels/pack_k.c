/* pack_k.c - interleaved forms of the formats whose codes have more than four bits, or scales of their own, or a table
 * of values.
 *
 * A code is what a GGUF block has for a column, as an unsigned number. A piece of 32 columns has, for each row of the
 * group, `high` words of upper bits and 16 bytes of lower nibbles: byte j of part i has columns 4i + j (low) and 16 +
 * 4i + j (high), as in pack.h. Of one word, byte j has the fifth bit of column 4i + j in its bit i, of column 16 + 4i +
 * j in bit 4 + i; of two words, byte j of word h has bits five and six of column 16h + 4i + j in its bits 2i and 2i
 * + 1. So a shift and a mask bring a part's upper bits where they belong. */
#include "kernels/pack.h"

#include "common/half.h"
#include "kernels/dequant.h"

#include <string.h>

/* The words of a piece, from the words of GGUF blocks: all work on four codes at a time. `at` is where the bytes of
 * column 0 lie. */

/* Bit `bit` of each of 32 bytes, a byte a column. */
static uint32_t pack_k_bits(const uint8_t *at, uint32_t bit)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < 8; i++) out |= (half_load_u32(at + 4 * i) >> bit & 0x01010101) << i;
	return out;
}

/* Q5_0 and Q5_1 have one word, a bit a column: each four of its bits go to the same bit of four bytes. */
static uint32_t pack_k_spread(uint32_t bits)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < 8; i++) {
		uint32_t four = bits >> (4 * i) & 15;

		out |= ((four * 0x00204081) & 0x01010101) << i; /* bit j of the four to bit 8j: 7j further */
	}
	return out;
}

/* Bits `bit` and bit + 1 of each of 16 bytes, a byte a column. */
static uint32_t pack_k_pairs(const uint8_t *at, uint32_t bit)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < 4; i++) out |= (half_load_u32(at + 4 * i) >> bit & 0x03030303) << (2 * i);
	return out;
}

/* Part i of the nibbles: low (or high) ones of 32 bytes, a byte a column. */
static uint32_t pack_k_nibbles(const uint8_t *at, uint32_t i, bool high)
{
	uint32_t first = half_load_u32(at + 4 * i), second = half_load_u32(at + 16 + 4 * i);

	return high ? (first >> 4 & 0x0f0f0f0f) | (second & 0xf0f0f0f0)
		    : (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4;
}

/* Words of piece `part` of a GGUF block; see dequant.c, dequant_k.c and dequant_iq.c for the layouts. */
static void pack_k_words(const uint8_t *block, enum ggtype type, uint32_t part, uint32_t *w)
{
	const uint8_t *quarter = block + part / 4 * 32; /* of formats with 2 bits a column: 32 bytes for 4 pieces */
	uint32_t bit = part % 4 * 2;

	switch ((int)type) {
	case GGTYPE_Q2_K:
		for (uint32_t h = 0; h < 2; h++) w[h] = pack_k_pairs(quarter + 16 + 16 * h, bit);
		break;
	case GGTYPE_Q3_K:
		w[0] = pack_k_bits(block, part);
		for (uint32_t h = 0; h < 2; h++) w[1 + h] = pack_k_pairs(quarter + 32 + 16 * h, bit);
		break;
	case GGTYPE_Q4_K:
		for (uint32_t i = 0; i < 4; i++) w[i] = pack_k_nibbles(block + 16 + part / 2 * 32, i, part % 2);
		break;
	case GGTYPE_Q5_K:
		w[0] = pack_k_bits(block + 16, part);
		for (uint32_t i = 0; i < 4; i++) w[1 + i] = pack_k_nibbles(block + 48 + part / 2 * 32, i, part % 2);
		break;
	case GGTYPE_Q6_K:
		for (uint32_t h = 0; h < 2; h++) w[h] = pack_k_pairs(quarter + 128 + 16 * h, bit);
		for (uint32_t i = 0; i < 4; i++)
			w[2 + i] = pack_k_nibbles(block + part / 4 * 64 + part % 2 * 32, i, part % 4 / 2);
		break;
	case GGTYPE_Q5_0:
	case GGTYPE_Q5_1:
		block += type == GGTYPE_Q5_0 ? 2 : 4;
		w[0] = pack_k_spread(half_load_u32(block));
		memcpy(w + 1, block + 4, 16);
		break;
	case GGTYPE_IQ4_XS:
		memcpy(w, block + 8 + part * 16, 16);
		break;
	default:
		memcpy(w, block + (type == GGTYPE_MXFP4 ? 1 : 2), 16);
		break;
	}
}

/* Two bits of each of 16 codes, `shift` up, from word h of a row. */
static void pack_k_get_pairs(const uint8_t *word, uint32_t h, uint32_t shift, uint8_t c[32])
{
	for (uint32_t i = 0; i < 16; i++) c[16 * h + i] |= (uint8_t)((word[i % 4] >> (i / 4 * 2) & 3) << shift);
}

static const uint8_t *pack_k_get(const uint8_t *g, const struct pack_k *k, uint32_t group, uint32_t lane, uint8_t c[32])
{
	const uint8_t *low = g + 4 * (size_t)group * k->high;
	uint32_t shift = k->low == 4 ? 4 : 2;

	memset(c, 0, 32);
	for (uint32_t i = 0; i < 16 && k->low == 4; i++) {
		uint8_t byte = low[i / 4 * 4 * group + lane * 4 + i % 4];

		c[i] = byte & 15;
		c[16 + i] = byte >> 4;
	}
	for (uint32_t h = 0; h < 2 && k->low == 2; h++) pack_k_get_pairs(low + (h * group + lane) * 4, h, 0, c);
	for (uint32_t i = 0; i < 32 && k->high == 1; i++)
		c[i] |= (uint8_t)((g[lane * 4 + i % 4] >> (i / 4) & 1) << shift);
	for (uint32_t h = 0; h < 2 && k->high == 2; h++) pack_k_get_pairs(g + (h * group + lane) * 4, h, shift, c);
	return low + 4 * (size_t)group * k->low;
}

/* `type` is a constant where this is inlined, so all loops over it unroll. */
CPU_INLINE void pack_k_load_type(uint8_t *dst, const enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols,
				 const uint8_t *src)
{
	const struct pack_k k = pack_k_of(type);
	const uint32_t block_bytes = ggtype_info(type)->block_bytes;

	for (uint32_t b = 0; b < cols / CPU_QBLOCK / k.parts; b++, src += block_bytes) {
		for (uint32_t i = 0; i < k.halfs; i++, dst += 2 * group)
			memcpy(dst + 2 * lane, src + k.halfs_at + 2 * i, 2);
		for (uint32_t i = 0; i < k.bytes; i++, dst += group) dst[lane] = src[k.bytes_at + i];
		for (uint32_t part = 0; part < k.parts; part++) {
			uint32_t w[6];

			pack_k_words(src, type, part, w);
			for (uint32_t i = 0; i < k.high + k.low; i++, dst += 4 * group)
				memcpy(dst + 4 * lane, &w[i], 4);
		}
	}
}

void pack_k_load(uint8_t *dst, enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src)
{
#define PACK_K_CASE(name)                                                     \
	case GGTYPE_##name:                                                   \
		pack_k_load_type(dst, GGTYPE_##name, group, lane, cols, src); \
		break;
	switch ((int)type) {
		PACK_K_CASE(Q5_0)
		PACK_K_CASE(Q5_1)
		PACK_K_CASE(Q2_K)
		PACK_K_CASE(Q3_K)
		PACK_K_CASE(Q4_K)
		PACK_K_CASE(Q5_K)
		PACK_K_CASE(Q6_K)
		PACK_K_CASE(IQ4_NL)
		PACK_K_CASE(IQ4_XS)
		PACK_K_CASE(MXFP4)
	default:
		CHECK(!"a type of pack_k.c");
	}
#undef PACK_K_CASE
}

const uint8_t *pack_head(const uint8_t *g, enum ggtype type, uint32_t group, uint32_t lane, uint8_t head[PACK_HEAD_MAX])
{
	const struct pack_k k = pack_form_of(type);

	for (uint32_t i = 0; i < k.halfs; i++, g += 2 * group) memcpy(head + 2 * i, g + 2 * lane, 2);
	for (uint32_t i = 0; i < k.bytes; i++, g += group) head[2 * k.halfs + i] = g[lane];
	return g;
}

static struct pack_values pack_k_values(const uint8_t head[PACK_HEAD_MAX], enum ggtype type, uint32_t part)
{
	struct pack_values v = {0};
	float d = half_load(head);
	int scale = 1, min = 0;

	if (type == GGTYPE_Q5_0) v.offset = 16;
	if (type == GGTYPE_Q5_1) v.min[0] = -half_load(head + 2);
	if (type == GGTYPE_IQ4_NL) v.table = dequant_iq4_values;
	if (type == GGTYPE_Q4_K || type == GGTYPE_Q5_K) {
		dequant_k4_scale(head + 4, (int)part, &scale, &min);
		d *= (float)scale;
		v.min[0] = half_load(head + 2) * (float)min;
	} else if (type == GGTYPE_IQ4_XS) {
		d *= (float)dequant_iq4_xs_scale(head, (int)part);
		v.table = dequant_iq4_values;
	} else if (type == GGTYPE_MXFP4) {
		d = dequant_mxfp4_scale(head[0]);
		v.table = dequant_fp4_values;
	}
	v.scale[0] = v.scale[1] = d;
	v.min[1] = v.min[0];
	if (type == GGTYPE_Q6_K) {
		v.scale[0] = d * (float)(int8_t)head[2 + 2 * part];
		v.scale[1] = d * (float)(int8_t)head[3 + 2 * part];
		v.offset = 32;
	}
	for (int h = 0; h < 2 && type == GGTYPE_Q2_K; h++) {
		uint8_t both = head[4 + 2 * part + (uint32_t)h];

		v.scale[h] = d * (float)(both & 15);
		v.min[h] = half_load(head + 2) * (float)(both >> 4);
	}
	for (int h = 0; h < 2 && type == GGTYPE_Q3_K; h++) {
		v.scale[h] = d * (float)dequant_q3_k_scale(head + 2, 2 * (int)part + h);
		v.offset = 4;
	}
	return v;
}

struct pack_values pack_values_of(const uint8_t head[PACK_HEAD_MAX], enum ggtype type, uint32_t part)
{
	struct pack_values v = {{0}, {0}, NULL, 0};

	if (pack_is_k(type)) return pack_k_values(head, type, part);
	v.scale[0] = v.scale[1] = half_load(head);
	if (type == GGTYPE_Q4_0) v.offset = 8;
	if (type == GGTYPE_Q4_1) v.min[0] = v.min[1] = -half_load(head + 2);
	if (type == GGTYPE_Q4_Z) v.min[0] = v.min[1] = -half_load(head + 2) * v.scale[0];
	return v;
}

void pack_k_row(const uint8_t *g, enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols, float *out)
{
	const struct pack_k k = pack_k_of(type);
	const bool has_min = type == GGTYPE_Q5_1 || type == GGTYPE_Q2_K || type == GGTYPE_Q4_K || type == GGTYPE_Q5_K;
	uint8_t head[PACK_HEAD_MAX], codes[32];

	for (uint32_t b = 0; b < cols / CPU_QBLOCK / k.parts; b++) {
		g = pack_head(g, type, group, lane, head);
		for (uint32_t part = 0; part < k.parts; part++, out += CPU_QBLOCK) {
			struct pack_values v = pack_k_values(head, type, part);

			g = pack_k_get(g, &k, group, lane, codes);
			for (int i = 0; i < 32; i++) {
				int value = v.table ? v.table[codes[i]] : codes[i] - v.offset;

				out[i] = v.scale[i / 16] * (float)value;
				if (has_min) out[i] -= v.min[i / 16];
			}
		}
	}
}
