/* avx2_attention.c - attention of the AVX2 level: softmax over tiles of KBLOCK_LEN positions, anchored at position 0.
 *
 * Queries are (token, head) pairs that read the same K and V: heads of one group, tokens of one sequence. For each
 * tile: 16 scores a query (a lane is a position, K being stored transposed), the new maximum, exp, and the rescaled sum
 * of V (a lane is a dimension). Queries share only loads: what one computes is the same in any company. So pairs are
 * put into one pass of the loops below only when they see the same number of positions of the tile; what lies behind
 * that is never read into a sum (it may be anything, NaN included). */
#include "kernels/avx2_math.h"

#include <math.h>
#include <string.h>

#define AVX2_SCORE_QUERIES 4 /* 8 sums */
#define AVX2_VALUE_QUERIES 3 /* 12 sums */

struct avx2_query {
	const float *q;
	float *out;
	float *o; /* running sum of p V, (head_dim) */
	float *p; /* scores, then terms, of the current tile (KBLOCK_LEN) */
	float max, sum, rescale;
	uint32_t n_positions;
};

CPU_INLINE __m256 avx2_kv_load(const void *p, size_t at, const bool f16)
{
	if (f16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)p + at)));
	return _mm256_loadu_ps((const float *)p + at);
}

CPU_INLINE void avx2_scores(struct avx2_query *const *qs, const int n, const void *k, size_t at, uint32_t head_dim,
			    const bool f16)
{
	__m256 s[AVX2_SCORE_QUERIES][2];

	CPU_UNROLL
	for (int j = 0; j < n; j++) s[j][0] = s[j][1] = _mm256_setzero_ps();
	for (uint32_t d = 0; d < head_dim; d++, at += KBLOCK_LEN) {
		__m256 k0 = avx2_kv_load(k, at, f16), k1 = avx2_kv_load(k, at + 8, f16);

		CPU_UNROLL
		for (int j = 0; j < n; j++) {
			__m256 q = _mm256_set1_ps(qs[j]->q[d]);

			s[j][0] = _mm256_fmadd_ps(q, k0, s[j][0]);
			s[j][1] = _mm256_fmadd_ps(q, k1, s[j][1]);
		}
	}
	CPU_UNROLL
	for (int j = 0; j < n; j++) {
		_mm256_storeu_ps(qs[j]->p, s[j][0]);
		_mm256_storeu_ps(qs[j]->p + 8, s[j][1]);
	}
}

/* Scores to terms; n_valid of the tile's positions count. */
static void avx2_softmax_tile(struct avx2_query *q, uint32_t n_valid, float scale)
{
	const __m256 lowest = _mm256_set1_ps(-INFINITY);
	__m256 m0 = _mm256_castsi256_ps(avx2_mask(min_u32(8, n_valid)));
	__m256 m1 = _mm256_castsi256_ps(avx2_mask(n_valid > 8 ? n_valid - 8 : 0));
	__m256 s0 = _mm256_blendv_ps(lowest, _mm256_mul_ps(_mm256_loadu_ps(q->p), _mm256_set1_ps(scale)), m0);
	__m256 s1 = _mm256_blendv_ps(lowest, _mm256_mul_ps(_mm256_loadu_ps(q->p + 8), _mm256_set1_ps(scale)), m1);
	__m256 v = _mm256_max_ps(s0, s1);
	__m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	float max;

	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
	max = fmaxf(q->max, _mm_cvtss_f32(m));
	q->rescale = _mm256_cvtss_f32(avx2_exp(_mm256_set1_ps(q->max - max)));
	s0 = _mm256_and_ps(avx2_exp(_mm256_sub_ps(s0, _mm256_set1_ps(max))), m0);
	s1 = _mm256_and_ps(avx2_exp(_mm256_sub_ps(s1, _mm256_set1_ps(max))), m1);
	q->sum = q->sum * q->rescale + avx2_sum(_mm256_add_ps(s0, s1));
	q->max = max;
	_mm256_storeu_ps(q->p, s0);
	_mm256_storeu_ps(q->p + 8, s1);
}

/* Dimensions d..d + 8 * nv of o = o * rescale + p V. */
CPU_INLINE void avx2_values(struct avx2_query *const *qs, const int n, const int nv, const void *v, size_t at,
			    uint32_t d, uint32_t head_dim, uint32_t n_valid, const bool f16)
{
	__m256 o[AVX2_VALUE_QUERIES][4];

	CPU_UNROLL
	for (int j = 0; j < n; j++) CPU_UNROLL
	for (int i = 0; i < nv; i++)
		o[j][i] = _mm256_mul_ps(_mm256_loadu_ps(qs[j]->o + d + 8 * i), _mm256_set1_ps(qs[j]->rescale));
	at += d;
	for (uint32_t pos = 0; pos < n_valid; pos++, at += head_dim) {
		__m256 row[4];

		CPU_UNROLL
		for (int i = 0; i < nv; i++) row[i] = avx2_kv_load(v, at + 8 * i, f16);
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

CPU_INLINE void avx2_values_all(struct avx2_query *const *qs, const int n, const void *v, size_t at, uint32_t head_dim,
				uint32_t n_valid, const bool f16)
{
	uint32_t d = 0;

	for (; d + 32 <= head_dim; d += 32) avx2_values(qs, n, 4, v, at, d, head_dim, n_valid, f16);
	for (; d + 8 <= head_dim; d += 8) avx2_values(qs, n, 1, v, at, d, head_dim, n_valid, f16);
	for (; d < head_dim; d++) {
		for (int j = 0; j < n; j++) {
			float o = qs[j]->o[d] * qs[j]->rescale;

			for (uint32_t pos = 0; pos < n_valid; pos++) {
				size_t ix = at + (size_t)pos * head_dim + d;
				float x = f16 ? _cvtsh_ss(((const uint16_t *)v)[ix]) : ((const float *)v)[ix];

				o = fmaf(qs[j]->p[pos], x, o);
			}
			qs[j]->o[d] = o;
		}
	}
}

/* One tile for n queries that all see n_valid of its positions. at: where (block, kv head) begins in K and V. */
CPU_INLINE void avx2_tile_queries(const struct cpu_attention *a, struct avx2_query *const *qs, uint32_t n, size_t at,
				  uint32_t n_valid, const bool f16)
{
	const void *k = a->kv.k, *v = a->kv.v;
	uint32_t i = 0;

	for (; i + 4 <= n; i += 4) avx2_scores(qs + i, 4, k, at, a->kv.k_dim, f16);
	if (n - i == 3) avx2_scores(qs + i, 3, k, at, a->kv.k_dim, f16);
	if (n - i == 2) avx2_scores(qs + i, 2, k, at, a->kv.k_dim, f16);
	if (n - i == 1) avx2_scores(qs + i, 1, k, at, a->kv.k_dim, f16);
	for (i = 0; i < n; i++) avx2_softmax_tile(qs[i], n_valid, a->a.scale);
	for (i = 0; i + 3 <= n; i += 3) avx2_values_all(qs + i, 3, v, at, a->kv.k_dim, n_valid, f16);
	if (n - i == 2) avx2_values_all(qs + i, 2, v, at, a->kv.k_dim, n_valid, f16);
	if (n - i == 1) avx2_values_all(qs + i, 1, v, at, a->kv.k_dim, n_valid, f16);
}

static void avx2_tile_f16(const struct cpu_attention *a, struct avx2_query *const *qs, uint32_t n, size_t at,
			  uint32_t n_valid)
{
	avx2_tile_queries(a, qs, n, at, n_valid, true);
}

static void avx2_tile_kv32(const struct cpu_attention *a, struct avx2_query *const *qs, uint32_t n, size_t at,
			   uint32_t n_valid)
{
	avx2_tile_queries(a, qs, n, at, n_valid, false);
}

/* A tile's 2 KiB pieces lie far from each other: the processor's own prefetching would see every one too late. */
static void avx2_prefetch_tile(const struct cpu_attention *a, size_t at)
{
	size_t elem = a->kv.type == GGTYPE_F16 ? 2 : 4, bytes = elem * KBLOCK_LEN * a->kv.k_dim;
	const char *k = (const char *)a->kv.k + at * elem, *v = (const char *)a->kv.v + at * elem;

	for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(k + i, _MM_HINT_T0);
	for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(v + i, _MM_HINT_T0);
}

static size_t avx2_tile_at(const struct cpu_attention *a, const uint32_t *blocks, uint32_t kv_head, uint32_t pos)
{
	return ((size_t)blocks[pos / KBLOCK_LEN] * a->kv.kv_heads + kv_head) * KBLOCK_LEN * a->kv.k_dim;
}

/* All tiles for queries [0, n), which share a sequence and a kv head. */
static void avx2_attention_pass(const struct cpu_attention *a, struct avx2_query *qs, uint32_t n,
				const uint32_t *blocks, uint32_t kv_head)
{
	struct avx2_query *group[CPU_ATTN_QUERIES];
	uint32_t n_positions = 0;

	for (uint32_t i = 0; i < n; i++) n_positions = max_u32(n_positions, qs[i].n_positions);
	for (uint32_t pos = 0; pos < n_positions; pos += KBLOCK_LEN) {
		size_t at = avx2_tile_at(a, blocks, kv_head, pos);

		if (pos + KBLOCK_LEN < n_positions)
			avx2_prefetch_tile(a, avx2_tile_at(a, blocks, kv_head, pos + KBLOCK_LEN));
		for (uint32_t i = 0; i < n;) {
			uint32_t valid = 0, len = 0;

			for (; i < n; i++) {
				uint32_t mine =
					qs[i].n_positions > pos ? min_u32(KBLOCK_LEN, qs[i].n_positions - pos) : 0;

				if (mine == 0) continue;
				if (len > 0 && mine != valid) break;
				valid = mine;
				group[len++] = &qs[i];
			}
			if (len == 0) continue;
			if (a->kv.type == GGTYPE_F16)
				avx2_tile_f16(a, group, len, at, valid);
			else
				avx2_tile_kv32(a, group, len, at, valid);
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		float inv = 1.0f / qs[i].sum;

		for (uint32_t d = 0; d < a->kv.k_dim; d++) qs[i].out[d] = qs[i].o[d] * inv;
	}
}

void avx2_attention(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head, uint32_t head_end,
		    float *scratch)
{
	const uint32_t *blocks = a->b.block_tables + (size_t)a->b.seq_ix[token] * a->b.blocks_max;
	uint32_t o_len = (uint32_t)align_up(a->kv.k_dim, 16), n = 0;
	struct avx2_query qs[CPU_ATTN_QUERIES];
	float *terms = scratch + (size_t)CPU_ATTN_QUERIES * o_len;

	for (uint32_t t = token; t < token_end; t++) {
		for (uint32_t h = head; h < head_end; h++) {
			struct avx2_query *q = &qs[n];

			q->q = a->a.q + (size_t)t * a->a.ld_q + (size_t)h * a->kv.k_dim;
			q->out = a->a.out + (size_t)t * a->a.ld_out + (size_t)h * a->kv.v_dim;
			q->o = memset(scratch + (size_t)n * o_len, 0, o_len * sizeof(float));
			q->p = terms + (size_t)n * KBLOCK_LEN;
			q->max = -INFINITY;
			q->sum = 0;
			q->n_positions = a->b.positions[t] + 1;
			if (++n < CPU_ATTN_QUERIES && !(t + 1 == token_end && h + 1 == head_end)) continue;
			avx2_attention_pass(a, qs, n, blocks, head / (a->a.heads / a->kv.kv_heads));
			n = 0;
		}
	}
}
