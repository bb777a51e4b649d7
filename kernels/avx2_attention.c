/* avx2_attention.c - attention of the AVX2 level: softmax over tiles of KBLOCK_LEN positions, anchored at position 0.
 *
 * Queries are (token, head) pairs that read the same K and V: heads of one group, tokens of one sequence. A pass goes
 * over the tiles that any of its queries sees and gives each tile to the queries (avx2_tile.c): those that see the same
 * of it together. A tile that no query sees is not touched, nor is its block's number looked at. A sink is where a
 * query's sum begins. */
#include "kernels/avx2_tile.h"
#include "kernels/avx2_kv.h"

#include <math.h>
#include <string.h>

/* From so many queries on it pays to convert a tile first, of bytes and of words. */
#define AVX2_UNPACK_BYTES 10
#define AVX2_UNPACK_WORDS 20

/* Tile `at` counts (block, kv head); `next` is the one to fetch meanwhile. */
static struct avx2_tile avx2_tile_of(const struct cpu_attention *a, size_t at, size_t next)
{
	const struct kkv *kv = &a->kv;
	size_t elem = ggtype_row_bytes(kv->type, 1);
	struct avx2_tile t = {.type = kv->type,
			      .k = (const char *)kv->k + at * KBLOCK_LEN * kv->k_dim * elem,
			      .v = kv->latent ? NULL : (const char *)kv->v + at * KBLOCK_LEN * kv->v_dim * elem,
			      .k_dim = kv->k_dim,
			      .v_dim = kv->v_dim,
			      .ld_v = kv->v_dim,
			      .ahead_k = (const char *)kv->k + next * KBLOCK_LEN * kv->k_dim * elem,
			      .ahead_elem = (uint32_t)elem,
			      .scale = a->a.scale * (kv->type == GGTYPE_F8_E4M3 ? AVX2_F8_UNIT : 1),
			      .softcap = a->a.softcap};

	t.ahead_v = kv->latent ? t.ahead_k : (const char *)kv->v + next * KBLOCK_LEN * kv->v_dim * elem;
	if (kv->type == GGTYPE_I8) {
		t.k_scale = kv->k_scale + at * KBLOCK_LEN;
		t.v_scale = kv->latent ? t.k_scale : kv->v_scale + at * KBLOCK_LEN;
	}
	return t;
}

/* What a group of queries sees of a tile. */
struct avx2_group {
	struct avx2_query *qs[CPU_ATTN_QUERIES];
	uint32_t len, first, end;
};

/* The next queries from *i on that see the same of the tile at `pos`; false: there are no more. */
static bool avx2_group_next(struct avx2_group *g, struct avx2_query *qs, uint32_t n, uint32_t pos, uint32_t *i)
{
	g->len = 0;
	for (; *i < n; ++*i) {
		struct avx2_query *q = &qs[*i];
		uint32_t first, end;

		if (q->end <= pos || q->first >= pos + KBLOCK_LEN) continue;
		first = q->first > pos ? q->first - pos : 0;
		end = min_u32(KBLOCK_LEN, q->end - pos);
		if (g->len > 0 && (first != g->first || end != g->end)) break;
		g->first = first;
		g->end = end;
		g->qs[g->len++] = q;
	}
	return g->len > 0;
}

/* All tiles for queries [0, n), which share a sequence and a kv head. */
static void avx2_attention_pass(const struct cpu_attention *a, struct avx2_query *qs, uint32_t n,
				const uint32_t *blocks, uint32_t kv_head, float *room)
{
	size_t elem = ggtype_row_bytes(a->kv.type, 1);
	uint32_t unpack = elem == 1 ? AVX2_UNPACK_BYTES : elem == 2 ? AVX2_UNPACK_WORDS : UINT32_MAX;
	uint32_t first = UINT32_MAX, end = 0;
	struct avx2_group g;

	for (uint32_t i = 0; i < n; i++) {
		first = min_u32(first, qs[i].first);
		end = max_u32(end, qs[i].end);
	}
	for (uint32_t pos = first - first % KBLOCK_LEN; pos < end; pos += KBLOCK_LEN) {
		size_t at = (size_t)blocks[pos / KBLOCK_LEN] * a->kv.kv_heads + kv_head;
		size_t next =
			pos + KBLOCK_LEN < end ? (size_t)blocks[pos / KBLOCK_LEN + 1] * a->kv.kv_heads + kv_head : at;
		struct avx2_tile tile = avx2_tile_of(a, at, next);

		if (!avx2_tile_is_plain(&tile) || n >= unpack) avx2_tile_unpack(&tile, room);
		for (uint32_t i = 0; avx2_group_next(&g, qs, n, pos, &i);)
			avx2_tile_run(&tile, g.qs, g.len, g.first, g.end);
	}
	for (uint32_t i = 0; i < n; i++) {
		float inv = (a->kv.type == GGTYPE_F8_E4M3 ? AVX2_F8_UNIT : 1.0f) / qs[i].sum;

		for (uint32_t d = 0; d < a->kv.v_dim; d++) qs[i].out[d] = qs[i].o[d] * inv;
	}
}

static void avx2_query_begin(struct avx2_query *q, const struct cpu_attention *a, uint32_t t, uint32_t h)
{
	q->q = a->a.q + (size_t)t * a->a.ld_q + (size_t)h * a->kv.k_dim;
	q->out = a->a.out + (size_t)t * a->a.ld_out + (size_t)h * a->kv.v_dim;
	q->max = a->a.sinks ? a->a.sinks[h] : -INFINITY;
	q->sum = q->max == -INFINITY ? 0 : 1;
	q->first = cpu_attention_first(a, a->b.positions[t]);
	q->end = a->b.positions[t] + 1;
}

void avx2_attention(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head, uint32_t head_end,
		    float *scratch)
{
	const uint32_t *blocks = a->b.block_tables + (size_t)a->b.seq_ix[token] * a->b.blocks_max;
	size_t o_len = align_up(a->kv.v_dim, 16);
	float *terms = scratch + CPU_ATTN_QUERIES * o_len, *room = terms + CPU_ATTN_QUERIES * KBLOCK_LEN;
	struct avx2_query qs[CPU_ATTN_QUERIES];
	uint32_t n = 0;

	for (uint32_t t = token; t < token_end; t++) {
		for (uint32_t h = head; h < head_end; h++) {
			struct avx2_query *q = &qs[n];

			avx2_query_begin(q, a, t, h);
			q->o = memset(scratch + n * o_len, 0, o_len * sizeof(float));
			q->p = terms + n * KBLOCK_LEN;
			if (++n < CPU_ATTN_QUERIES && !(t + 1 == token_end && h + 1 == head_end)) continue;
			avx2_attention_pass(a, qs, n, blocks, head / (a->a.heads / a->kv.kv_heads), room);
			n = 0;
		}
	}
}
