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
	const char *ahead = t->ahead_k;
	__m256 s[AVX2_SCORE_QUERIES][2];
	const float *q[AVX2_SCORE_QUERIES];
	__m128i largest = avx2_kv_no_nan();

	CPU_UNROLL
	for (int j = 0; j < n; j++) {
		s[j][0] = s[j][1] = _mm256_setzero_ps();
		q[j] = qs[j]->q;
	}
	for (size_t d = 0; d < t->k_dim; d++, ahead += KBLOCK_LEN * t->ahead_elem) {
		__m256 k[2];

		avx2_kv_load16(type, t->k, d * KBLOCK_LEN, k, &largest);
		_mm_prefetch(ahead, _MM_HINT_T0);
		CPU_UNROLL
		for (int j = 0; j < n; j++) {
			__m256 x = _mm256_set1_ps(q[j][d]);

			s[j][0] = _mm256_fmadd_ps(x, k[0], s[j][0]);
			s[j][1] = _mm256_fmadd_ps(x, k[1], s[j][1]);
		}
	}
	CPU_UNROLL
	for (int j = 0; j < n; j++) {
		_mm256_storeu_ps(qs[j]->p, avx2_kv_with_nan(type, s[j][0], largest));
		_mm256_storeu_ps(qs[j]->p + 8, avx2_kv_with_nan(type, s[j][1], _mm_srli_si128(largest, 8)));
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

/* Dimensions d..d + 8 * nv of o = o * rescale + p V; nv is 1 or 4. */
CPU_INLINE void avx2_values(const enum ggtype type, const struct avx2_tile *t, struct avx2_query *const *qs,
			    const int n, const int nv, uint32_t d, uint32_t first, uint32_t end)
{
	size_t at = (size_t)first * t->ld_v + d;
	const char *ahead = t->ahead_v + at * t->ahead_elem;
	__m256 o[AVX2_VALUE_QUERIES][4];
	const float *p[AVX2_VALUE_QUERIES];
	__m128i largest[2] = {avx2_kv_no_nan(), avx2_kv_no_nan()};

	CPU_UNROLL
	for (int j = 0; j < n; j++) {
		p[j] = qs[j]->p;
		CPU_UNROLL
		for (int i = 0; i < nv; i++)
			o[j][i] = _mm256_mul_ps(_mm256_loadu_ps(qs[j]->o + d + 8 * i), _mm256_set1_ps(qs[j]->rescale));
	}
	for (uint32_t pos = first; pos < end; pos++, at += t->ld_v, ahead += t->ld_v * t->ahead_elem) {
		__m256 v[4];

		if (nv == 4) {
			avx2_kv_load16(type, t->v, at, v, &largest[0]);
			avx2_kv_load16(type, t->v, at + 16, v + 2, &largest[1]);
		} else {
			v[0] = avx2_kv_load8(type, t->v, at, &largest[0]);
		}
		_mm_prefetch(ahead, _MM_HINT_T0);
		if (type == GGTYPE_F32) _mm_prefetch(ahead + 64, _MM_HINT_T0);
		CPU_UNROLL
		for (int j = 0; j < n; j++) {
			__m256 x = _mm256_set1_ps(p[j][pos]);

			CPU_UNROLL
			for (int i = 0; i < nv; i++) o[j][i] = _mm256_fmadd_ps(x, v[i], o[j][i]);
		}
	}
	CPU_UNROLL
	for (int j = 0; j < n; j++) CPU_UNROLL
	for (int i = 0; i < nv; i++) {
		__m128i seen = i % 2 ? _mm_srli_si128(largest[i / 2], 8) : largest[i / 2];

		_mm256_storeu_ps(qs[j]->o + d + 8 * i, avx2_kv_with_nan(type, o[j][i], seen));
	}
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
	/* Four are better taken as two and two: one alone waits for its own sums. */
	for (i = 0; n - i == 3 || n - i > 4; i += 3) avx2_values_all(type, t, qs + i, 3, first, end);
	for (; i + 2 <= n; i += 2) avx2_values_all(type, t, qs + i, 2, first, end);
	if (n - i == 1) avx2_values_all(type, t, qs + i, 1, first, end);
}

#define AVX2_TYPES(T) T(F32) T(F16) T(BF16) T(F8_E4M3) T(I8)

/* A function for each type. */
#define AVX2_RUN_OF(type)                                                                                \
	static void avx2_run_##type(const struct avx2_tile *t, struct avx2_query *const *qs, uint32_t n, \
				    uint32_t first, uint32_t end)                                        \
	{                                                                                                \
		avx2_tile_queries(GGTYPE_##type, t, qs, n, first, end);                                  \
	}
AVX2_TYPES(AVX2_RUN_OF)

void avx2_tile_run(const struct avx2_tile *t, struct avx2_query *const *qs, uint32_t n, uint32_t first, uint32_t end)
{
#define AVX2_RUN_CASE(type)                            \
	case GGTYPE_##type:                            \
		avx2_run_##type(t, qs, n, first, end); \
		break;

	switch (t->type) {
		AVX2_TYPES(AVX2_RUN_CASE)
	default:
		CHECK(!"a type of KV caches");
	}
}

/* ---- unpacking ---- */

/* n elements; with room for a whole vector more. */
CPU_INLINE void avx2_unpack_row(const enum ggtype type, const void *base, size_t at, size_t n, float *out)
{
	size_t i = 0;

	for (; i + 16 <= n; i += 16) {
		__m128i largest = avx2_kv_no_nan();
		__m256 x[2];

		avx2_kv_load16(type, base, at + i, x, &largest);
		_mm256_storeu_ps(out + i, avx2_kv_with_nan(type, x[0], largest));
		_mm256_storeu_ps(out + i + 8, avx2_kv_with_nan(type, x[1], _mm_srli_si128(largest, 8)));
	}
	for (; i < n; i += 8) {
		__m128i largest = avx2_kv_no_nan();
		__m256 x = n - i < 8 ? avx2_kv_load_part(type, base, at + i, (uint32_t)(n - i), &largest)
				     : avx2_kv_load8(type, base, at + i, &largest);

		_mm256_storeu_ps(out + i, avx2_kv_with_nan(type, x, largest));
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
		avx2_unpack_row(type, t->k, 0, (size_t)KBLOCK_LEN * t->k_dim, k);
		t->k = k;
	}
	if (!t->v) avx2_turn_keys(t->k, t->v_dim, v, ld_v);
	for (size_t pos = 0; t->v && pos < KBLOCK_LEN; pos++)
		avx2_unpack_row(type, t->v, pos * t->ld_v, t->v_dim, v + pos * ld_v);
	t->v = v;
	t->ld_v = ld_v;
	t->type = GGTYPE_F32;
}

#define AVX2_UNPACK_OF(type)                                             \
	static void avx2_unpack_##type(struct avx2_tile *t, float *room) \
	{                                                                \
		avx2_unpack(GGTYPE_##type, t, room);                     \
	}
AVX2_TYPES(AVX2_UNPACK_OF)

void avx2_tile_unpack(struct avx2_tile *t, float *room)
{
#define AVX2_UNPACK_CASE(type)               \
	case GGTYPE_##type:                  \
		avx2_unpack_##type(t, room); \
		break;

	switch (t->type) {
		AVX2_TYPES(AVX2_UNPACK_CASE)
	default:
		CHECK(!"a type of KV caches");
	}
}
