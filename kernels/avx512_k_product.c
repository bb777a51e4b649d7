/* avx512_k_product.c - products of the AVX-512 level with the formats of pack_k.c. See avx2_k_product.c: the same f32
 * operations in the same order; vpdpbusd adds products of unsigned codes to an int32, so nothing is narrow, and what
 * codes have too much goes into where the sum begins. */
#include "kernels/avx512_product.h"

CPU_INLINE __m512 avx512_k_unsigned(__m128i bytes)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

CPU_INLINE __m128i avx512_k_bytes(const uint8_t *p)
{
	return _mm_loadu_si128((const __m128i *)p);
}

CPU_INLINE __m512 avx512_k_e8m0(const uint8_t *p)
{
	const __m512i one = _mm512_set1_epi32(1);
	__m512i e = _mm512_cvtepu8_epi32(avx512_k_bytes(p));
	__m512i d = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23),
		tiny = _mm512_slli_epi32(_mm512_add_epi32(e, one), 21);

	return _mm512_castsi512_ps(_mm512_max_epi32(d, tiny));
}

CPU_INLINE void avx512_k_scale_min(const uint8_t *p, uint32_t part, __m512 *scale, __m512 *min)
{
	const __m128i six = _mm_set1_epi8(63), low = _mm_set1_epi8(15), top = _mm_set1_epi8(0x30);
	__m128i a = avx512_k_bytes(p + 16 * part), b = avx512_k_bytes(p + 16 * (part + 4));

	if (part < 4) {
		*scale = avx512_k_unsigned(_mm_and_si128(a, six));
		*min = avx512_k_unsigned(_mm_and_si128(b, six));
	} else {
		__m128i first = avx512_k_bytes(p + 16 * (part - 4));

		*scale = avx512_k_unsigned(
			_mm_or_si128(_mm_and_si128(b, low), _mm_and_si128(_mm_srli_epi16(first, 2), top)));
		*min = avx512_k_unsigned(_mm_or_si128(_mm_and_si128(_mm_srli_epi16(b, 4), low),
						      _mm_and_si128(_mm_srli_epi16(a, 2), top)));
	}
}

CPU_INLINE __m512 avx512_k_iq4_xs(const uint8_t *w, uint32_t part)
{
	__m256i high =
		_mm256_srl_epi16(_mm256_loadu_si256((const __m256i *)(w + 32)), _mm_cvtsi32_si128((int)(2 * part)));
	__m128i low = _mm_srl_epi16(avx512_k_bytes(w + 64 + part / 2 * 16), _mm_cvtsi32_si128((int)(part % 2 * 4)));
	__m512i scale = _mm512_cvtepu8_epi32(_mm_and_si128(low, _mm_set1_epi8(15)));

	high = _mm256_and_si256(high, _mm256_set1_epi16(3));
	scale = _mm512_or_si512(scale, _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 4));
	return _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32)));
}

CPU_INLINE __m512 avx512_k_signed(__m128i bytes)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* Scale of half h of piece `part` of Q3_K. */
CPU_INLINE __m128i avx512_k_q3(const uint8_t *p, uint32_t part, uint32_t h)
{
	__m128i low =
		_mm_srl_epi16(avx512_k_bytes(p + 32 * (part % 4) + 16 * h), _mm_cvtsi32_si128((int)(part / 4 * 4)));
	__m128i high = _mm_srl_epi16(avx512_k_bytes(p + 128 + 32 * (part % 2) + 16 * h),
				     _mm_cvtsi32_si128((int)(part / 2 * 2)));
	__m128i six = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)),
				   _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4));

	return _mm_sub_epi8(six, _mm_set1_epi8(32));
}

/* See avx2_k_scales(). */
CPU_INLINE void avx512_k_scales(const enum ggtype type, const uint8_t *w, uint32_t part, __m512 scale[2], __m512 min[2])
{
	__m512 d = type == GGTYPE_MXFP4 ? avx512_k_e8m0(w) : avx512_halfs(w), s, m;

	scale[0] = d;
	if (type == GGTYPE_Q5_1) min[0] = avx512_halfs(w + 32);
	if (type == GGTYPE_Q4_K || type == GGTYPE_Q5_K) {
		avx512_k_scale_min(w + 64, part, &s, &m);
		scale[0] = _mm512_mul_ps(d, s);
		min[0] = _mm512_sub_ps(_mm512_setzero_ps(), _mm512_mul_ps(avx512_halfs(w + 32), m));
	}
	if (type == GGTYPE_IQ4_XS) scale[0] = _mm512_mul_ps(d, avx512_k_iq4_xs(w, part));
	scale[1] = scale[0];
	for (uint32_t h = 0; h < 2; h++) {
		if (type == GGTYPE_Q2_K) {
			__m128i both = avx512_k_bytes(w + 64 + 32 * part + 16 * h), low = _mm_set1_epi8(15);

			scale[h] = _mm512_mul_ps(d, avx512_k_unsigned(_mm_and_si128(both, low)));
			min[h] = _mm512_sub_ps(_mm512_setzero_ps(), avx512_halfs(w + 32));
			min[h] = _mm512_mul_ps(min[h], avx512_k_unsigned(_mm_and_si128(_mm_srli_epi16(both, 4), low)));
		}
		if (type == GGTYPE_Q3_K) scale[h] = _mm512_mul_ps(d, avx512_k_signed(avx512_k_q3(w + 32, part, h)));
		if (type == GGTYPE_Q6_K)
			scale[h] = _mm512_mul_ps(d, avx512_k_signed(avx512_k_bytes(w + 32 + 32 * part + 16 * h)));
	}
}

CPU_INLINE __m512i avx512_k_shift(__m512i v, const int left)
{
	if (left == 0) return v;
	return left > 0 ? _mm512_slli_epi32(v, (unsigned)left) : _mm512_srli_epi32(v, (unsigned)-left);
}

/* See avx2_k_codes(); IQ4's values come with 128. */
CPU_INLINE __m512i avx512_k_codes(const enum ggtype type, const uint8_t *piece, const int h, const int i)
{
	const int high = (int)pack_k_of(type).high, low = (int)pack_k_of(type).low, up = low == 4 ? 4 : 2;
	__m512i v = avx512_k_shift(_mm512_loadu_si512(piece + 64 * (high + (low == 4 ? i : h))),
				   low == 4 ? -4 * h : -2 * i);

	v = _mm512_and_si512(v, _mm512_set1_epi8(low == 4 ? 15 : 3));
	if (high) {
		__m512i bits = _mm512_loadu_si512(piece + 64 * (high == 2 ? h : 0));

		bits = avx512_k_shift(bits, up - (high == 2 ? 2 * i : 4 * h + i));
		v = _mm512_or_si512(v, _mm512_and_si512(bits, _mm512_set1_epi8((char)((high == 2 ? 3 : 1) << up))));
	}
	if (type == GGTYPE_MXFP4) {
		const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);

		v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v);
	}
	if (type == GGTYPE_IQ4_NL || type == GGTYPE_IQ4_XS) {
		const __m128i table = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153,
						    (char)166, (char)181, (char)197, (char)217, (char)241);

		v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v);
	}
	return v;
}

/* What the codes of a type have too much. */
CPU_INLINE int avx512_k_offset(const enum ggtype type)
{
	if (type == GGTYPE_IQ4_NL || type == GGTYPE_IQ4_XS) return 128;
	return type == GGTYPE_Q5_0    ? 16
	       : type == GGTYPE_Q6_K  ? 32
	       : type == GGTYPE_Q3_K  ? 4
	       : type == GGTYPE_MXFP4 ? 12
				      : 0;
}

CPU_INLINE void avx512_k_half(const enum ggtype type, const uint8_t *piece, struct avx512_rows x, uint32_t b,
			      const int h, const int nt, __m512i *dot)
{
	CPU_UNROLL
	for (int i = 0; i < 4; i++) {
		__m512i codes = avx512_k_codes(type, piece, h, i);

		CPU_UNROLL
		for (int t = 0; t < nt; t++)
			dot[t] = _mm512_dpbusd_epi32(
				dot[t], codes, avx512_bytes4(x.q + b * CPU_QBLOCK + t * x.stride + 16 * h + 4 * i));
	}
}

CPU_INLINE void avx512_k_add(struct avx512_rows x, uint32_t b, const int nt, __m512 scale, const __m512i *dot,
			     __m512 *acc)
{
	CPU_UNROLL
	for (int t = 0; t < nt; t++)
		acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(scale, avx512_scale_at(x.scale, x.stride, t, b)),
					 _mm512_cvtepi32_ps(dot[t]), acc[t]);
}

/* Q2_K: each half's minimum, times the sum of its activations. */
CPU_INLINE void avx512_k_minima(struct avx512_rows x, uint32_t b, const int nt, const __m512 min[2], __m512 *acc)
{
	CPU_UNROLL
	for (int t = 0; t < nt; t++) {
		__m512 scale = avx512_scale_at(x.scale, x.stride, t, b);

		for (uint32_t h = 0; h < 2; h++) {
			__m512 sum = _mm512_cvtepi32_ps(avx512_sum_at(x.half, x.stride, t, 2 * b + h, 1));

			acc[t] = _mm512_fmadd_ps(min[h], _mm512_mul_ps(scale, sum), acc[t]);
		}
	}
}

CPU_INLINE void avx512_k_tile(const struct cpu_product *p, const enum ggtype type, const uint8_t *w, uint32_t row,
			      uint32_t lanes, uint32_t i, const int nt)
{
	const struct pack_k k = pack_k_of(type);
	const bool has_min = type == GGTYPE_Q5_1 || type == GGTYPE_Q4_K || type == GGTYPE_Q5_K,
		   halves = type == GGTYPE_Q6_K || type == GGTYPE_Q3_K || type == GGTYPE_Q2_K;
	const int offset = avx512_k_offset(type);
	const bool ahead = nt >= 4 && i == 0;
	const uint8_t *piece = w;
	struct avx512_rows x = avx512_rows_at(p, i);
	__m512 acc[AVX512_TOKENS];

	CPU_UNROLL
	for (int t = 0; t < nt; t++) acc[t] = _mm512_setzero_ps();
	for (uint32_t b = 0; b < p->o->w->cols / CPU_QBLOCK; b++, piece += 64 * (k.high + k.low)) {
		__m512i dot[AVX512_TOKENS];
		__m512 scale[2], min[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};

		if (b % k.parts == 0) {
			w = piece;
			piece += 16 * (2 * k.halfs + k.bytes);
		}
		if (ahead) avx512_prefetch(piece, (int)(64 * (k.high + k.low)));
		avx512_k_scales(type, w, b % k.parts, scale, min);
		CPU_UNROLL
		for (int t = 0; t < nt; t++)
			dot[t] = halves ? avx512_sum_at(x.half, x.stride, t, 2 * b, -offset)
					: avx512_sum_at(x.isum, x.stride, t, b, -offset);
		avx512_k_half(type, piece, x, b, 0, nt, dot);
		if (halves) {
			avx512_k_add(x, b, nt, scale[0], dot, acc);
			CPU_UNROLL
			for (int t = 0; t < nt; t++) dot[t] = avx512_sum_at(x.half, x.stride, t, 2 * b + 1, -offset);
		}
		avx512_k_half(type, piece, x, b, 1, nt, dot);
		avx512_k_add(x, b, nt, scale[1], dot, acc);
		if (type == GGTYPE_Q2_K) avx512_k_minima(x, b, nt, min, acc);
		if (!has_min) continue;
		CPU_UNROLL
		for (int t = 0; t < nt; t++)
			acc[t] = _mm512_fmadd_ps(min[0], avx512_scale_at(x.ssum, x.stride, t, b), acc[t]);
	}
	CPU_UNROLL
	for (int t = 0; t < nt; t++) avx512_put(p->o, i + (uint32_t)t, row, lanes, acc[t]);
}

#define AVX512_K_GROUP(name, type) AVX512_GROUP(avx512_k_group_##name, avx512_k_tile, type)
PACK_K_TYPES(AVX512_K_GROUP)

void avx512_k_group(const struct cpu_product *p, const uint8_t *w, uint32_t row, uint32_t lanes)
{
#define AVX512_K_CASE(name, type)                        \
	case type:                                       \
		avx512_k_group_##name(p, w, row, lanes); \
		break;
	switch ((int)p->o->w->type) {
		PACK_K_TYPES(AVX512_K_CASE)
	default:
		CHECK(!"a type of pack_k.c");
	}
#undef AVX512_K_CASE
}
