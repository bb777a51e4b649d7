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

/* Nibbles of 16 bytes: the low ones first. */
static void pack_k_nibbles(const uint8_t *qs, uint8_t codes[32])
{
	for (int i = 0; i < 16; i++) {
		codes[i] = qs[i] & 15;
		codes[i + 16] = qs[i] >> 4;
	}
}

/* Codes of piece `part` of a GGUF block; see dequant.c and dequant_k.c for the layouts. */
static void pack_k_codes(const uint8_t *block, enum ggtype type, uint32_t part, uint8_t codes[32])
{
	uint32_t bits = 0;

	switch ((int)type) {
	case GGTYPE_Q5_0:
	case GGTYPE_Q5_1:
		block += type == GGTYPE_Q5_0 ? 2 : 4;
		bits = half_load_u32(block);
		pack_k_nibbles(block + 4, codes);
		for (int i = 0; i < 32; i++) codes[i] |= (uint8_t)((bits >> i & 1) << 4);
		break;
	case GGTYPE_Q4_K:
	case GGTYPE_Q5_K:
		for (int i = 0; i < 32; i++) {
			const uint8_t *line = block + (type == GGTYPE_Q4_K ? 16 : 48) + part / 2 * 32;

			codes[i] = line[i] >> (part % 2 * 4) & 15;
			if (type == GGTYPE_Q5_K) codes[i] |= (uint8_t)((block[16 + i] >> part & 1) << 4);
		}
		break;
	case GGTYPE_Q6_K:
		for (int i = 0; i < 32; i++) {
			const uint8_t *low = block + part / 4 * 64 + part % 2 * 32, *high = block + 128 + part / 4 * 32;

			codes[i] =
				(uint8_t)((low[i] >> (part % 4 / 2 * 4) & 15) | (high[i] >> (part % 4 * 2) & 3) << 4);
		}
		break;
	case GGTYPE_Q2_K:
	case GGTYPE_Q3_K:
		for (int i = 0; i < 32; i++) {
			const uint8_t *line = block + (type == GGTYPE_Q2_K ? 16 : 32) + part / 4 * 32;

			codes[i] = line[i] >> (part % 4 * 2) & 3;
			if (type == GGTYPE_Q3_K) codes[i] |= (uint8_t)((block[i] >> part & 1) << 2);
		}
		break;
	case GGTYPE_IQ4_XS:
		pack_k_nibbles(block + 8 + part * 16, codes);
		break;
	default:
		pack_k_nibbles(block + (type == GGTYPE_MXFP4 ? 1 : 2), codes);
		break;
	}
}

/* Two bits of each code, `shift` up, to or from word h of row `lane`. */
static void pack_k_put_pairs(uint8_t *word, uint32_t h, uint32_t shift, const uint8_t c[32])
{
	for (uint32_t j = 0; j < 4; j++) {
		word[j] = 0;
		for (uint32_t i = 0; i < 4; i++) word[j] |= (uint8_t)((c[16 * h + 4 * i + j] >> shift & 3) << (2 * i));
	}
}

static void pack_k_get_pairs(const uint8_t *word, uint32_t h, uint32_t shift, uint8_t c[32])
{
	for (uint32_t i = 0; i < 16; i++) c[16 * h + i] |= (uint8_t)((word[i % 4] >> (i / 4 * 2) & 3) << shift);
}

static uint8_t *pack_k_put(uint8_t *dst, const struct pack_k *k, uint32_t group, uint32_t lane, const uint8_t c[32])
{
	uint32_t shift = k->low == 4 ? 4 : 2; /* of the upper bits */

	if (k->high == 1) {
		for (uint32_t j = 0; j < 4; j++) {
			dst[lane * 4 + j] = 0;
			for (uint32_t i = 0; i < 8; i++) dst[lane * 4 + j] |= (uint8_t)((c[4 * i + j] >> shift) << i);
		}
	} else {
		for (uint32_t h = 0; h < k->high; h++) pack_k_put_pairs(dst + (h * group + lane) * 4, h, shift, c);
	}
	dst += 4 * (size_t)group * k->high;
	if (k->low == 4) {
		for (uint32_t i = 0; i < 16; i++)
			dst[i / 4 * 4 * group + lane * 4 + i % 4] = (uint8_t)((c[i] & 15) | (c[16 + i] & 15) << 4);
	} else {
		for (uint32_t h = 0; h < 2; h++) pack_k_put_pairs(dst + (h * group + lane) * 4, h, 0, c);
	}
	return dst + 4 * (size_t)group * k->low;
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

void pack_k_load(uint8_t *dst, enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols, const uint8_t *src)
{
	const struct pack_k k = pack_k_of(type);
	uint8_t codes[32];

	for (uint32_t b = 0; b < cols / CPU_QBLOCK / k.parts; b++, src += ggtype_info(type)->block_bytes) {
		for (uint32_t i = 0; i < k.halfs; i++, dst += 2 * group)
			memcpy(dst + 2 * lane, src + k.halfs_at + 2 * i, 2);
		for (uint32_t i = 0; i < k.bytes; i++, dst += group) dst[lane] = src[k.bytes_at + i];
		for (uint32_t part = 0; part < k.parts; part++) {
			pack_k_codes(src, type, part, codes);
			dst = pack_k_put(dst, &k, group, lane, codes);
		}
	}
}

/* The GGUF block's head again, of this lane: the f16s, then the bytes. */
static const uint8_t *pack_k_head(const uint8_t *g, const struct pack_k *k, uint32_t group, uint32_t lane,
				  uint8_t head[20])
{
	for (uint32_t i = 0; i < k->halfs; i++, g += 2 * group) memcpy(head + 2 * i, g + 2 * lane, 2);
	for (uint32_t i = 0; i < k->bytes; i++, g += group) head[2 * k->halfs + i] = g[lane];
	return g;
}

/* value = scale[column / 16] * (table ? table[code] : code - offset) [- min[column / 16]], as kdequant_row() computes
 * it */
struct pack_k_values {
	float scale[2], min[2];
	bool has_min;
	const int8_t *table;
	int offset;
};

static struct pack_k_values pack_k_values(const uint8_t head[20], enum ggtype type, uint32_t part)
{
	struct pack_k_values v = {.has_min = type == GGTYPE_Q5_1 || type == GGTYPE_Q2_K || type == GGTYPE_Q4_K ||
					     type == GGTYPE_Q5_K};
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

void pack_k_row(const uint8_t *g, enum ggtype type, uint32_t group, uint32_t lane, uint32_t cols, float *out)
{
	const struct pack_k k = pack_k_of(type);
	uint8_t head[20], codes[32];

	for (uint32_t b = 0; b < cols / CPU_QBLOCK / k.parts; b++) {
		g = pack_k_head(g, &k, group, lane, head);
		for (uint32_t part = 0; part < k.parts; part++, out += CPU_QBLOCK) {
			struct pack_k_values v = pack_k_values(head, type, part);

			g = pack_k_get(g, &k, group, lane, codes);
			for (int i = 0; i < 32; i++) {
				int value = v.table ? v.table[codes[i]] : codes[i] - v.offset;

				out[i] = v.scale[i / 16] * (float)value;
				if (v.has_min) out[i] -= v.min[i / 16];
			}
		}
	}
}
