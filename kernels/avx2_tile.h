/* avx2_tile.h - one tile of attention at the AVX2 level: the keys and values of KBLOCK_LEN positions of one kv head,
 * and queries. */
#ifndef SLUICE_AVX2_TILE_H
#define SLUICE_AVX2_TILE_H

#include "kernels/cpu.h"

/* A (token, head) pair and what it has seen so far. */
struct avx2_query {
	const float *q;
	float *out;
	float *o; /* running sum of p V: (v_dim), with room up to a multiple of 8 */
	float *p; /* scores, then terms, of the current tile (KBLOCK_LEN) */
	float max, sum, rescale;
	uint32_t first, end; /* positions that it sees */
};

struct avx2_tile {
	enum ggtype type;               /* of k and v; F32 when they have been unpacked */
	const void *k;                  /* (k_dim, KBLOCK_LEN) */
	const void *v;                  /* (KBLOCK_LEN, ld_v), ld_v >= v_dim; NULL: the first v_dim rows of k */
	const float *k_scale, *v_scale; /* (KBLOCK_LEN) or NULL */
	uint32_t k_dim, v_dim, ld_v;
	/* The tile that comes next, whose bytes are fetched meanwhile: blocks lie far from each other, so the
	 * processor's own prefetching sees each too late, and fetching all at once would hold up the work. elem: bytes
	 * an element has. */
	const char *ahead_k, *ahead_v;
	uint32_t ahead_elem;
	float scale;   /* of scores, the type's unit included */
	float softcap; /* 0: none */
};

/* Floats that unpacking a tile needs. */
static inline size_t avx2_tile_room(uint32_t k_dim, uint32_t v_dim)
{
	return (size_t)KBLOCK_LEN * (k_dim + align_up(v_dim, 8));
}

/* Whether avx2_tile_run() can take the tile as it lies in the cache: values of their own, in whole vectors. */
static inline bool avx2_tile_is_plain(const struct avx2_tile *t)
{
	return t->v && t->v_dim % 8 == 0;
}

/* Converts K and V to f32 in room, and makes V of a tile that has none. Changes no result. */
void avx2_tile_unpack(struct avx2_tile *t, float *room);

/* Takes positions [first, end) of the tile into n queries that see just these of it. What the other positions hold is
 * read into no sum: it may be anything, NaN included. What a query computes is the same in any company. The tile must
 * be plain or unpacked. */
void avx2_tile_run(const struct avx2_tile *t, struct avx2_query *const *qs, uint32_t n, uint32_t first, uint32_t end);

#endif
