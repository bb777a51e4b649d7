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
	case GGTYPE_IQ4_XS:
		pack_k_nibbles(block + 8 + part * 16, codes);
		break;
	default:
		pack_k_nibbles(block + (type == GGTYPE_MXFP4 ? 1 : 2), codes);
		break;
	}
}

static uint8_t *pack_k_put(uint8_t *dst, uint32_t high, uint32_t group, uint32_t lane, const uint8_t c[32])
{
	for (uint32_t h = 0; h < high; h++, dst += 4 * (size_t)group) {
		for (uint32_t j = 0; j < 4; j++) {
			uint8_t byte = 0;

			for (uint32_t i = 0; i < 4; i++)
				byte |= high == 1 ? (uint8_t)((c[4 * i + j] >> 4) << i | (c[16 + 4 * i + j] >> 4)
												 << (4 + i))
						  : (uint8_t)((c[16 * h + 4 * i + j] >> 4) << (2 * i));
			dst[lane * 4 + j] = byte;
		}
	}
	for (uint32_t i = 0; i < 16; i++)
		dst[i / 4 * 4 * group + lane * 4 + i % 4] = (uint8_t)((c[i] & 15) | (c[16 + i] & 15) << 4);
	return dst + 16 * (size_t)group;
}

static const uint8_t *pack_k_get(const uint8_t *g, uint32_t high, uint32_t group, uint32_t lane, uint8_t c[32])
{
	const uint8_t *nibbles = g + 4 * (size_t)group * high;

	for (uint32_t i = 0; i < 16; i++) {
		uint8_t byte = nibbles[i / 4 * 4 * group + lane * 4 + i % 4];

		c[i] = byte & 15;
		c[16 + i] = byte >> 4;
	}
	for (uint32_t i = 0; i < 32 && high == 1; i++)
		c[i] |= (uint8_t)((g[lane * 4 + i % 4] >> (i / 16 * 4 + i % 16 / 4) & 1) << 4);
	for (uint32_t i = 0; i < 32 && high == 2; i++)
		c[i] |= (uint8_t)((g[(i / 16 * group + lane) * 4 + i % 4] >> (i % 16 / 4 * 2) & 3) << 4);
	return nibbles + 16 * (size_t)group;
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
			dst = pack_k_put(dst, k.high, group, lane, codes);
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

/* value = scale[column / 16] * (table ? table[code] : code - offset) [- min], as kdequant_row() computes it */
struct pack_k_values {
	float scale[2], min;
	bool has_min;
	const int8_t *table;
	int offset;
};

static struct pack_k_values pack_k_values(const uint8_t head[20], enum ggtype type, uint32_t part)
{
	struct pack_k_values v = {.has_min = type == GGTYPE_Q5_1 || type == GGTYPE_Q4_K || type == GGTYPE_Q5_K};
	float d = half_load(head);
	int scale = 1, min = 0;

	if (type == GGTYPE_Q5_0) v.offset = 16;
	if (type == GGTYPE_Q5_1) v.min = -half_load(head + 2);
	if (type == GGTYPE_IQ4_NL) v.table = dequant_iq4_values;
	if (type == GGTYPE_Q4_K || type == GGTYPE_Q5_K) {
		dequant_k4_scale(head + 4, (int)part, &scale, &min);
		d *= (float)scale;
		v.min = half_load(head + 2) * (float)min;
	} else if (type == GGTYPE_IQ4_XS) {
		d *= (float)dequant_iq4_xs_scale(head, (int)part);
		v.table = dequant_iq4_values;
	} else if (type == GGTYPE_MXFP4) {
		d = dequant_mxfp4_scale(head[0]);
		v.table = dequant_fp4_values;
	}
	v.scale[0] = v.scale[1] = d;
	if (type == GGTYPE_Q6_K) {
		v.scale[0] = d * (float)(int8_t)head[2 + 2 * part];
		v.scale[1] = d * (float)(int8_t)head[3 + 2 * part];
		v.offset = 32;
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

			g = pack_k_get(g, k.high, group, lane, codes);
			for (int i = 0; i < 32; i++) {
				int value = v.table ? v.table[codes[i]] : codes[i] - v.offset;

				out[i] = v.scale[i / 16] * (float)value;
				if (v.has_min) out[i] -= v.min;
			}
		}
	}
}
