/* avx2_k_product.c - products of the AVX2 level with the formats of pack_k.c. As in avx2_product.c a lane is a row, and
 * per (row, token) the order of f32 operations is the order of columns: a block of 32 columns adds its integer sum
 * times its scale, then its minimum.
 *
 * What fits an int16 of vpmaddubsw's sums decides when they are widened: 8 pairs of 4-bit codes (2 * 15 * 127 each), 4
 * of codes up to 31, 2 of codes up to 63, 1 of IQ4's signed values. Codes with an offset give it back with the sum of
 * the block's activations. */
#include "kernels/avx2_product.h"

/* d of 8 rows of MXFP4 (dequant_mxfp4_scale()): the larger one of (e - 1) << 23, and (e + 1) << 21, which is right for
 * e < 2 only. */
CPU_INLINE __m256 avx2_k_e8m0(const uint8_t *p)
{
	const __m256i one = _mm256_set1_epi32(1);
	__m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
	__m256i d = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23),
		tiny = _mm256_slli_epi32(_mm256_add_epi32(e, one), 21);

	return _mm256_castsi256_ps(_mm256_max_epi32(d, tiny));
}

CPU_INLINE __m256 avx2_k_unsigned(__m128i bytes)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

/* Scales and minima of piece `part` of Q4_K and Q5_K, 8 rows; p: their 12 bytes a row (dequant_k4_scale()). */
CPU_INLINE void avx2_k_scale_min(const uint8_t *p, uint32_t part, __m256 *scale, __m256 *min)
{
	const __m128i six = _mm_set1_epi8(63), low = _mm_set1_epi8(15), top = _mm_set1_epi8(0x30);
	__m128i a = _mm_loadl_epi64((const __m128i *)(p + 8 * part)),
		b = _mm_loadl_epi64((const __m128i *)(p + 8 * (part + 4)));

	if (part < 4) {
		*scale = avx2_k_unsigned(_mm_and_si128(a, six));
		*min = avx2_k_unsigned(_mm_and_si128(b, six));
	} else {
		__m128i first = _mm_loadl_epi64((const __m128i *)(p + 8 * (part - 4)));

		*scale = avx2_k_unsigned(
			_mm_or_si128(_mm_and_si128(b, low), _mm_and_si128(_mm_srli_epi16(first, 2), top)));
		*min = avx2_k_unsigned(_mm_or_si128(_mm_and_si128(_mm_srli_epi16(b, 4), low),
						    _mm_and_si128(_mm_srli_epi16(a, 2), top)));
	}
}

/* Scale of piece `part` of IQ4_XS, 8 rows: 4 bits of a byte and 2 of a word (dequant_iq4_xs_scale()). */
CPU_INLINE __m256 avx2_k_iq4_xs(const uint8_t *w, uint32_t part)
{
	__m128i high = _mm_srl_epi16(_mm_loadu_si128((const __m128i *)(w + 16)), _mm_cvtsi32_si128((int)(2 * part)));
	__m128i low = _mm_srl_epi16(_mm_loadl_epi64((const __m128i *)(w + 32 + part / 2 * 8)),
				    _mm_cvtsi32_si128((int)(part % 2 * 4)));
	__m256i scale = _mm256_cvtepu8_epi32(_mm_and_si128(low, _mm_set1_epi8(15)));

	scale = _mm256_or_si256(scale,
				_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_and_si128(high, _mm_set1_epi16(3))), 4));
	return _mm256_cvtepi32_ps(_mm256_sub_epi32(scale, _mm256_set1_epi32(32)));
}

/* Scales of the halves of piece `part` of Q3_K, 8 rows each (dequant_q3_k_scale()): 4 bits of one byte and 2 of
 * another. */
CPU_INLINE void avx2_k_q3(const uint8_t *p, uint32_t part, __m256 scale[2])
{
	const __m128i low = _mm_srl_epi16(_mm_loadu_si128((const __m128i *)(p + 16 * (part % 4))),
					  _mm_cvtsi32_si128((int)(part / 4 * 4)));
	const __m128i high = _mm_srl_epi16(_mm_loadu_si128((const __m128i *)(p + 64 + 16 * (part % 2))),
					   _mm_cvtsi32_si128((int)(part / 2 * 2)));
	__m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
				   _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4));

	six = _mm_sub_epi8(six, _mm_set1_epi8(32));
	scale[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(six));
	scale[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(six, 8)));
}

/* Scales of the halves of piece `part`, and what is added times the sum of the activations. w: the block's head. */
CPU_INLINE void avx2_k_scales(const enum ggtype type, const uint8_t *w, uint32_t part, __m256 scale[2], __m256 min[2])
{
	__m256 d = type == GGTYPE_MXFP4 ? avx2_k_e8m0(w) : _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w)), s, m;

	scale[0] = d;
	if (type == GGTYPE_Q5_1) min[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 16)));
	if (type == GGTYPE_Q4_K || type == GGTYPE_Q5_K) {
		avx2_k_scale_min(w + 32, part, &s, &m);
		scale[0] = _mm256_mul_ps(d, s);
		min[0] = _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 16))), m);
		min[0] = _mm256_sub_ps(_mm256_setzero_ps(), min[0]);
	}
	if (type == GGTYPE_IQ4_XS) scale[0] = _mm256_mul_ps(d, avx2_k_iq4_xs(w, part));
	scale[1] = scale[0];
	if (type == GGTYPE_Q2_K) {
		__m128i both = _mm_loadu_si128((const __m128i *)(w + 32 + 16 * part)), low = _mm_set1_epi8(15);
		__m128i scales = _mm_and_si128(both, low), mins = _mm_and_si128(_mm_srli_epi16(both, 4), low);
		__m256 dmin =
			_mm256_sub_ps(_mm256_setzero_ps(), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(w + 16))));

		scale[0] = _mm256_mul_ps(d, avx2_k_unsigned(scales));
		scale[1] = _mm256_mul_ps(d, avx2_k_unsigned(_mm_srli_si128(scales, 8)));
		min[0] = _mm256_mul_ps(dmin, avx2_k_unsigned(mins));
		min[1] = _mm256_mul_ps(dmin, avx2_k_unsigned(_mm_srli_si128(mins, 8)));
	}
	if (type == GGTYPE_Q3_K) {
		avx2_k_q3(w + 16, part, scale);
		scale[0] = _mm256_mul_ps(d, scale[0]);
		scale[1] = _mm256_mul_ps(d, scale[1]);
	}
	if (type == GGTYPE_Q6_K) {
		__m128i bytes = _mm_loadu_si128((const __m128i *)(w + 16 + 16 * part));

		scale[0] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
		scale[1] = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
	}
}

CPU_INLINE __m256i avx2_k_shift(__m256i v, const int left)
{
	if (left == 0) return v;
	return left > 0 ? _mm256_slli_epi32(v, left) : _mm256_srli_epi32(v, -left);
}

/* Codes (or IQ4's values) of columns 16h + 4i .. of a piece: a row's four bytes in its lane. */
CPU_INLINE __m256i avx2_k_codes(const enum ggtype type, const uint8_t *piece, const int h, const int i)
{
	const int high = (int)pack_k_of(type).high, low = (int)pack_k_of(type).low, up = low == 4 ? 4 : 2;
	__m256i v = _mm256_loadu_si256((const __m256i *)(piece + 32 * (high + (low == 4 ? i : h))));

	v = avx2_k_shift(v, low == 4 ? -4 * h : -2 * i);
	v = _mm256_and_si256(v, _mm256_set1_epi8(low == 4 ? 15 : 3));
	if (high) {
		__m256i bits = _mm256_loadu_si256((const __m256i *)(piece + 32 * (high == 2 ? h : 0)));

		bits = avx2_k_shift(bits, up - (high == 2 ? 2 * i : 4 * h + i));
		v = _mm256_or_si256(v, _mm256_and_si256(bits, _mm256_set1_epi8((high == 2 ? 3 : 1) << up)));
	}
	if (type == GGTYPE_MXFP4) /* twice the value, and 12 */
		v = _mm256_shuffle_epi8(_mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12,
							 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0),
					v);
	if (type == GGTYPE_IQ4_NL || type == GGTYPE_IQ4_XS)
		v = _mm256_shuffle_epi8(_mm256_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53,
							 69, 89, 113, -127, -104, -83, -65, -49, -35, -22, -10, 1, 13,
							 25, 38, 53, 69, 89, 113),
					v);
	return v;
}

/* How many parts of four columns are added before their sums are widened. */
CPU_INLINE int avx2_k_narrow(const enum ggtype type)
{
	if (type == GGTYPE_IQ4_NL || type == GGTYPE_IQ4_XS) return 1;
	return type == GGTYPE_Q6_K ? 2 : type == GGTYPE_Q4_K ? 8 : 4;
}

/* Integer sums of half h of a piece, added to dot. */
CPU_INLINE void avx2_k_half(const enum ggtype type, const uint8_t *piece, struct avx2_rows x, uint32_t b, const int h,
			    const int nt, __m256i *narrow, __m256i *dot)
{
	const __m256i ones = _mm256_set1_epi16(1);
	const int every = avx2_k_narrow(type);

	CPU_UNROLL
	for (int i = 0; i < 4; i++) {
		__m256i codes = avx2_k_codes(type, piece, h, i), size = codes;

		if (every == 1) size = _mm256_abs_epi8(codes);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) {
			__m256i q = avx2_bytes4(x.q + b * CPU_QBLOCK + t * x.stride + 16 * h + 4 * i), sum;

			if (every == 1) q = _mm256_sign_epi8(q, codes);
			sum = _mm256_maddubs_epi16(size, q);
			narrow[t] = (4 * h + i) % every == 0 ? sum : _mm256_add_epi16(narrow[t], sum);
			CPU_KEEP(narrow[t]);
			if ((4 * h + i) % every == every - 1) {
				dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(narrow[t], ones));
				CPU_KEEP(dot[t]);
			}
		}
	}
}

/* True when the halves of a piece have scales of their own. */
CPU_INLINE bool avx2_k_halves(const enum ggtype type)
{
	return type == GGTYPE_Q6_K || type == GGTYPE_Q3_K || type == GGTYPE_Q2_K;
}

/* Integer sums without the codes' offset, times the scale; dot is zero again. */
CPU_INLINE void avx2_k_add(const enum ggtype type, struct avx2_rows x, uint32_t b, const int h, const int nt,
			   __m256 scale, __m256i *dot, __m256 *acc)
{
	CPU_UNROLL
	for (int t = 0; t < nt; t++) {
		__m256i sum = dot[t];

		if (type == GGTYPE_Q6_K || type == GGTYPE_Q3_K) {
			__m256i half = avx2_int_at(x.half, x.stride, t, 2 * b + (uint32_t)h);

			sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(half, type == GGTYPE_Q6_K ? 5 : 2));
		}
		if (type == GGTYPE_Q5_0)
			sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(avx2_int_at(x.isum, x.stride, t, b), 4));
		if (type == GGTYPE_MXFP4) {
			__m256i isum = avx2_int_at(x.isum, x.stride, t, b);

			sum = _mm256_sub_epi32(
				sum, _mm256_add_epi32(_mm256_slli_epi32(isum, 3), _mm256_slli_epi32(isum, 2)));
		}
		acc[t] = _mm256_fmadd_ps(_mm256_mul_ps(scale, avx2_scale_at(x.scale, x.stride, t, b)),
					 _mm256_cvtepi32_ps(sum), acc[t]);
		CPU_KEEP(acc[t]);
		dot[t] = _mm256_setzero_si256();
	}
}

/* Q2_K: each half's minimum, times the sum of its activations. */
CPU_INLINE void avx2_k_minima(struct avx2_rows x, uint32_t b, const int nt, const __m256 min[2], __m256 *acc)
{
	CPU_UNROLL
	for (int t = 0; t < nt; t++) {
		__m256 scale = avx2_scale_at(x.scale, x.stride, t, b);

		for (uint32_t h = 0; h < 2; h++) {
			__m256 sum = _mm256_cvtepi32_ps(avx2_int_at(x.half, x.stride, t, 2 * b + h));

			acc[t] = _mm256_fmadd_ps(min[h], _mm256_mul_ps(scale, sum), acc[t]);
		}
	}
}

CPU_INLINE void avx2_k_tile(const struct cpu_product *p, const enum ggtype type, const uint8_t *w, uint32_t row,
			    uint32_t lanes, uint32_t i, const int nt)
{
	const struct pack_k k = pack_k_of(type);
	const bool has_min = type == GGTYPE_Q5_1 || type == GGTYPE_Q4_K || type == GGTYPE_Q5_K,
		   halves = avx2_k_halves(type);
	const bool ahead = nt >= 4 && i == 0;
	const uint8_t *piece = w;
	struct avx2_rows x = avx2_rows_at(p, i);
	__m256 acc[AVX2_TOKENS];

	CPU_UNROLL
	for (int t = 0; t < nt; t++) acc[t] = _mm256_setzero_ps();
	for (uint32_t b = 0; b < p->o->w->cols / CPU_QBLOCK; b++, piece += 32 * (k.high + k.low)) {
		__m256i narrow[AVX2_TOKENS], dot[AVX2_TOKENS];
		__m256 scale[2], min[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

		if (b % k.parts == 0) {
			w = piece;
			piece += 8 * (2 * k.halfs + k.bytes);
		}
		if (ahead) avx2_prefetch(piece, (int)(32 * (k.high + k.low)));
		avx2_k_scales(type, w, b % k.parts, scale, min);
		CPU_UNROLL
		for (int t = 0; t < nt; t++) dot[t] = _mm256_setzero_si256();
		avx2_k_half(type, piece, x, b, 0, nt, narrow, dot);
		if (halves) avx2_k_add(type, x, b, 0, nt, scale[0], dot, acc);
		avx2_k_half(type, piece, x, b, 1, nt, narrow, dot);
		avx2_k_add(type, x, b, 1, nt, scale[1], dot, acc);
		if (type == GGTYPE_Q2_K) avx2_k_minima(x, b, nt, min, acc);
		if (!has_min) continue;
		CPU_UNROLL
		for (int t = 0; t < nt; t++)
			acc[t] = _mm256_fmadd_ps(min[0], avx2_scale_at(x.ssum, x.stride, t, b), acc[t]);
	}
	CPU_UNROLL
	for (int t = 0; t < nt; t++) avx2_put(p->o, i + (uint32_t)t, row, lanes, acc[t]);
}

#define AVX2_K_GROUP(name, type) AVX2_GROUP(avx2_k_group_##name, avx2_k_tile, type)
PACK_K_TYPES(AVX2_K_GROUP)

void avx2_k_group(const struct cpu_product *p, const uint8_t *w, uint32_t row, uint32_t lanes)
{
#define AVX2_K_CASE(name, type)                        \
	case type:                                     \
		avx2_k_group_##name(p, w, row, lanes); \
		break;
	switch ((int)p->o->w->type) {
		PACK_K_TYPES(AVX2_K_CASE)
	default:
		CHECK(!"a type of pack_k.c");
	}
#undef AVX2_K_CASE
}
