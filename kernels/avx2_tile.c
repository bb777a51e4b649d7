/* avx2_tile.c - one tile for some queries: 16 scores each (a lane is a position, K being stored transposed), the new
 * maximum, exp, and the rescaled sum of V (a lane is a dimension).
 *
 * Queries share only loads, so what one computes is the same in any company. The loops over queries, vectors and types
 * are over constants and disappear. */
#include "kernels/avx2_tile.h"
#include "kernels/avx2_kv.h"

#include <math.h>
#include <string.h>

#define AVX2_SCORE_QUERIES 4 /* 8 sums */
#define AVX2_VALUE_QUERIES 3 /* 12 sums */

CPU_INLINE void avx2_scores(const enum ggtype type, const struct avx2_tile *t, struct avx2_query *const *qs,
			    const int n)
{
	__m256 s[AVX2_SCORE_QUERIES][2];

	CPU_UNROLL
	for (int j = 0; j < n; j++) s[j][0] = s[j][1] = _mm256_setzero_ps();
	for (uint32_t d = 0; d < t->k_dim; d++) {
		__m256 k[2];

		avx2_kv_load16(type, t->k, (size_t)d * KBLOCK_LEN, k);
		CPU_UNROLL
		for (int j = 0; j < n; j++) {
			__m256 q = _mm256_set1_ps(qs[j]->q[d]);

			s[j][0] = _mm256_fmadd_ps(q, k[0], s[j][0]);
			s[j][1] = _mm256_fmadd_ps(q, k[1], s[j][1]);
		}
	}
	CPU_UNROLL
	for (int j = 0; j < n; j++) {
		_mm256_storeu_ps(qs[j]->p, s[j][0]);
		_mm256_storeu_ps(qs[j]->p + 8, s[j][1]);
	}
}

CPU_INLINE __m256 avx2_softcap(__m256 x, float cap)
{
	return _mm256_mul_ps(avx2_tanh(_mm256_div_ps(x, _mm256_set1_ps(cap))), _mm256_set1_ps(cap));
}

/* Scores to terms; positions [first, end) count. */
CPU_INLINE void avx2_softmax(const struct avx2_tile *t, struct avx2_query *q, uint32_t first, uint32_t end)
{
	const __m256 lowest = _mm256_set1_ps(-INFINITY);
	__m256 s[2], mask[2], v;
	__m128 m;
	float max;

	CPU_UNROLL
	for (int i = 0; i < 2; i++) {
		__m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * i));
		__m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), lane),
						 _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), lane));
		__m256 scale = _mm256_set1_ps(t->scale);

		mask[i] = _mm256_castsi256_ps(in);
		if (t->k_scale) scale = _mm256_mul_ps(scale, _mm256_loadu_ps(t->k_scale + 8 * i));
		s[i] = _mm256_mul_ps(_mm256_loadu_ps(q->p + 8 * i), scale);
		if (t->softcap > 0) s[i] = avx2_softcap(s[i], t->softcap);
		s[i] = _mm256_blendv_ps(lowest, s[i], mask[i]);
	}
	v = _mm256_max_ps(s[0], s[1]);
	m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
	max = fmaxf(q->max, _mm_cvtss_f32(m));
	q->rescale = _mm256_cvtss_f32(avx2_exp(_mm256_set1_ps(q->max - max)));
	CPU_UNROLL
	for (int i = 0; i < 2; i++) s[i] = _mm256_and_ps(avx2_exp(_mm256_sub_ps(s[i], _mm256_set1_ps(max))), mask[i]);
	q->sum = q->sum * q->rescale + avx2_sum(_mm256_add_ps(s[0], s[1]));
	q->max = max;
	CPU_UNROLL
	for (int i = 0; i < 2; i++) {
		if (t->v_scale) s[i] = _mm256_mul_ps(s[i], _mm256_loadu_ps(t->v_scale + 8 * i));
		_mm256_storeu_ps(q->p + 8 * i, s[i]);
	}
}

/* Dimensions d..d + 8 * nv of o = o * rescale + p V. */
CPU_INLINE void avx2_values(const enum ggtype type, const struct avx2_tile *t, struct avx2_query *const *qs,
			    const int n, const int nv, uint32_t d, uint32_t first, uint32_t end)
{
	size_t at = (size_t)first * t->ld_v + d;
	__m256 o[AVX2_VALUE_QUERIES][4];

	CPU_UNROLL
	for (int j = 0; j < n; j++) CPU_UNROLL
	for (int i = 0; i < nv; i++)
		o[j][i] = _mm256_mul_ps(_mm256_loadu_ps(qs[j]->o + d + 8 * i), _mm256_set1_ps(qs[j]->rescale));
	for (uint32_t pos = first; pos < end; pos++, at += t->ld_v) {
		__m256 row[4];

		if (nv == 1)
			row[0] = avx2_kv_load8(type, t->v, at);
		else
			CPU_UNROLL
		for (int i = 0; i + 2 <= nv; i += 2) avx2_kv_load16(type, t->v, at + 8 * i, row + i);
		CPU_UNROLL
		for (int j = 0; j < n; j++) {
			__m256 p = _mm256_set1_ps(qs[j]->p[pos]);

			CPU_UNROLL
			for (int i = 0; i < nv; i++) o[j][i] = _mm256_fmadd_ps(p, row[i], o[j][i]);
		}
	}
	CPU_UNROLL
	for (int j = 0; j < n; j++) CPU_UNROLL
	for (int i = 0; i < nv; i++) _mm256_storeu_ps(qs[j]->o + d + 8 * i, o[j][i]);
}

CPU_INLINE void avx2_values_all(const enum ggtype type, const struct avx2_tile *t, struct avx2_query *const *qs,
				const int n, uint32_t first, uint32_t end)
{
	uint32_t d = 0;

	for (; d + 32 <= t->v_dim; d += 32) avx2_values(type, t, qs, n, 4, d, first, end);
	for (; d < t->v_dim; d += 8) avx2_values(type, t, qs, n, 1, d, first, end);
}

CPU_INLINE void avx2_tile_queries(const enum ggtype type, const struct avx2_tile *t, struct avx2_query *const *qs,
				  uint32_t n, uint32_t first, uint32_t end)
{
	uint32_t i = 0;

	for (; i + 4 <= n; i += 4) avx2_scores(type, t, qs + i, 4);
	if (n - i == 3) avx2_scores(type, t, qs + i, 3);
	if (n - i == 2) avx2_scores(type, t, qs + i, 2);
	if (n - i == 1) avx2_scores(type, t, qs + i, 1);
	for (i = 0; i < n; i++) avx2_softmax(t, qs[i], first, end);
	for (i = 0; i + 3 <= n; i += 3) avx2_values_all(type, t, qs + i, 3, first, end);
	if (n - i == 2) avx2_values_all(type, t, qs + i, 2, first, end);
	if (n - i == 1) avx2_values_all(type, t, qs + i, 1, first, end);
}

#define AVX2_TYPES(T) T(F32) T(F16) T(BF16) T(F8_E4M3) T(I8)

/* A function for each type. */
#define AVX2_TILE_OF(name)                                                                                \
	static void avx2_tile_##name(const struct avx2_tile *t, struct avx2_query *const *qs, uint32_t n, \
				     uint32_t first, uint32_t end)                                        \
	{                                                                                                 \
		avx2_tile_queries(GGTYPE_##name, t, qs, n, first, end);                                   \
	}
AVX2_TYPES(AVX2_TILE_OF)

void avx2_tile_run(const struct avx2_tile *t, struct avx2_query *const *qs, uint32_t n, uint32_t first, uint32_t end)
{
#define AVX2_TILE_CASE(name)                            \
	case GGTYPE_##name:                             \
		avx2_tile_##name(t, qs, n, first, end); \
		break;

	switch (t->type) {
		AVX2_TYPES(AVX2_TILE_CASE)
	default:
		CHECK(!"a type of KV caches");
	}
}

/* ---- unpacking ---- */

CPU_INLINE void avx2_unpack_keys(const enum ggtype type, const void *k, float *out, size_t len)
{
	for (size_t i = 0; i < len; i += KBLOCK_LEN) {
		__m256 x[2];

		avx2_kv_load16(type, k, i, x);
		_mm256_storeu_ps(out + i, x[0]);
		_mm256_storeu_ps(out + i + 8, x[1]);
	}
}

CPU_INLINE void avx2_unpack_values(const enum ggtype type, const struct avx2_tile *t, float *out, uint32_t ld_out)
{
	for (uint32_t pos = 0; pos < KBLOCK_LEN; pos++, out += ld_out) {
		size_t at = (size_t)pos * t->ld_v;
		uint32_t d = 0;

		for (; d + 8 <= t->v_dim; d += 8) _mm256_storeu_ps(out + d, avx2_kv_load8(type, t->v, at + d));
		if (d < t->v_dim) _mm256_storeu_ps(out + d, avx2_kv_load_part(type, t->v, at + d, t->v_dim - d));
	}
}

/* Rows of 8 floats that lie ld_x apart become columns. */
CPU_INLINE void avx2_transpose8(const float *x, size_t ld_x, float *out, size_t ld_out)
{
	__m256 a[8], b[8];

	CPU_UNROLL
	for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(x + (size_t)i * ld_x);
	CPU_UNROLL
	for (int i = 0; i < 8; i += 2) {
		b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
		b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
	}
	CPU_UNROLL
	for (int i = 0; i < 8; i += 4) {
		a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
		a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
		a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
		a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
	}
	CPU_UNROLL
	for (int i = 0; i < 4; i++) {
		_mm256_storeu_ps(out + (size_t)i * ld_out, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
		_mm256_storeu_ps(out + (size_t)(i + 4) * ld_out, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
	}
}

/* Values of a tile without V: the first v_dim rows of K, turned. */
static void avx2_turn_keys(const float *k, uint32_t v_dim, float *out, uint32_t ld_out)
{
	uint32_t d = 0;

	for (; d + 8 <= v_dim; d += 8) {
		avx2_transpose8(k + (size_t)d * KBLOCK_LEN, KBLOCK_LEN, out + d, ld_out);
		avx2_transpose8(k + (size_t)d * KBLOCK_LEN + 8, KBLOCK_LEN, out + (size_t)8 * ld_out + d, ld_out);
	}
	for (; d < v_dim; d++)
		for (uint32_t pos = 0; pos < KBLOCK_LEN; pos++)
			out[(size_t)pos * ld_out + d] = k[(size_t)d * KBLOCK_LEN + pos];
}

CPU_INLINE void avx2_unpack(const enum ggtype type, struct avx2_tile *t, float *room)
{
	float *k = room, *v = room + (size_t)KBLOCK_LEN * t->k_dim;
	uint32_t ld_v = (uint32_t)align_up(t->v_dim, 8);

	if (type != GGTYPE_F32) {
		avx2_unpack_keys(type, t->k, k, (size_t)KBLOCK_LEN * t->k_dim);
		t->k = k;
	}
	if (t->v)
		avx2_unpack_values(type, t, v, ld_v);
	else
		avx2_turn_keys(t->k, t->v_dim, v, ld_v);
	t->v = v;
	t->ld_v = ld_v;
	t->type = GGTYPE_F32;
}

#define AVX2_UNPACK_OF(name)                                             \
	static void avx2_unpack_##name(struct avx2_tile *t, float *room) \
	{                                                                \
		avx2_unpack(GGTYPE_##name, t, room);                     \
	}
AVX2_TYPES(AVX2_UNPACK_OF)

void avx2_tile_unpack(struct avx2_tile *t, float *room)
{
#define AVX2_UNPACK_CASE(name)               \
	case GGTYPE_##name:                  \
		avx2_unpack_##name(t, room); \
		break;

	switch (t->type) {
		AVX2_TYPES(AVX2_UNPACK_CASE)
	default:
		CHECK(!"a type of KV caches");
	}
}
