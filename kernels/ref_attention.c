/* ref_attention.c - the KV cache and attention of the plain level: the formulas of struct kkv and struct kattn, sums in
 * double.
 *
 * Each query goes over its positions twice: for the largest score, then for the sums. */
#include "common/float8.h"
#include "kernels/ref.h"

#include <math.h>
#include <string.h>

static void ref_kv_put(enum ggtype type, void *base, size_t at, float v)
{
	switch (type) {
	case GGTYPE_F16:
		((uint16_t *)base)[at] = half_from_f32(v);
		break;
	case GGTYPE_BF16:
		((uint16_t *)base)[at] = half_bf16_from_f32(v);
		break;
	case GGTYPE_F8_E4M3:
		((uint8_t *)base)[at] = float8_from_f32(v);
		break;
	case GGTYPE_I8:
		((int8_t *)base)[at] = (int8_t)v;
		break;
	default:
		((float *)base)[at] = v;
	}
}

static float ref_kv_get(enum ggtype type, const void *base, size_t at)
{
	switch (type) {
	case GGTYPE_F16:
		return half_to_f32(((const uint16_t *)base)[at]);
	case GGTYPE_BF16:
		return half_bf16_to_f32(((const uint16_t *)base)[at]);
	case GGTYPE_F8_E4M3:
		return float8_to_f32(((const uint8_t *)base)[at]);
	case GGTYPE_I8:
		return ((const int8_t *)base)[at];
	default:
		return ((const float *)base)[at];
	}
}

/* The scale of n int8 values. As integers, so that a NaN is the largest and comes out in the scale; so does an
 * infinity. */
static float ref_kv_scale(const float *x, uint32_t n)
{
	uint32_t amax_bits = 0;

	for (uint32_t i = 0; i < n; i++) amax_bits = max_u32(amax_bits, half_f32_bits(x[i]) & 0x7fffffff);
	return half_bits_f32(amax_bits) / 127.0f;
}

/* Writes n values to base, `step` elements apart from `at` on. */
static void ref_kv_row(enum ggtype type, void *base, size_t at, size_t step, const float *x, uint32_t n, float *scale)
{
	float inv = 0;

	if (type == GGTYPE_I8) {
		*scale = ref_kv_scale(x, n);
		if (isfinite(*scale) && *scale >= CPU_SCALE_MIN) inv = 1.0f / *scale;
	}
	for (size_t i = 0; i < n; i++) {
		float v = x[i];

		if (type == GGTYPE_I8) v = inv == 0 ? 0 : rintf(v * inv);
		ref_kv_put(type, base, at + i * step, v);
	}
}

void ref_kv_store(const struct kkv *kv, const float *k, const float *v, uint32_t slot)
{
	size_t block = slot / KBLOCK_LEN, offset = slot % KBLOCK_LEN;

	for (uint32_t h = 0; h < kv->kv_heads; h++) {
		size_t tile = block * kv->kv_heads + h, scale_at = tile * KBLOCK_LEN + offset;
		bool scaled = kv->type == GGTYPE_I8;

		ref_kv_row(kv->type, kv->k, tile * KBLOCK_LEN * kv->k_dim + offset, KBLOCK_LEN,
			   k + (size_t)h * kv->k_dim, kv->k_dim, scaled ? &kv->k_scale[scale_at] : NULL);
		if (kv->latent) continue;
		ref_kv_row(kv->type, kv->v, scale_at * kv->v_dim, 1, v + (size_t)h * kv->v_dim, kv->v_dim,
			   scaled ? &kv->v_scale[scale_at] : NULL);
	}
}

/* Where a position of a kv head lies. */
struct ref_place {
	size_t tile, offset;
};

static double ref_key(const struct kkv *kv, struct ref_place p, uint32_t d)
{
	double x = ref_kv_get(kv->type, kv->k, (p.tile * kv->k_dim + d) * KBLOCK_LEN + p.offset);

	return kv->type == GGTYPE_I8 ? x * kv->k_scale[p.tile * KBLOCK_LEN + p.offset] : x;
}

static double ref_value(const struct kkv *kv, struct ref_place p, uint32_t d)
{
	size_t at = p.tile * KBLOCK_LEN + p.offset;
	double x;

	if (kv->latent) return ref_key(kv, p, d);
	x = ref_kv_get(kv->type, kv->v, at * kv->v_dim + d);
	return kv->type == GGTYPE_I8 ? x * kv->v_scale[at] : x;
}

static double ref_score(const struct kattn *a, const struct kkv *kv, const float *q, struct ref_place p)
{
	double score = 0;

	for (uint32_t d = 0; d < kv->k_dim; d++) score += q[d] * ref_key(kv, p, d);
	score *= (double)a->scale;
	return a->softcap > 0 ? a->softcap * tanh(score / a->softcap) : score;
}

/* One query of head h over positions [first, end). acc: (v_dim). */
static void ref_attention_one(const struct cpu_attention *a, const float *q, uint32_t h, uint32_t first, uint32_t end,
			      const uint32_t *blocks, float *out, double *acc)
{
	const struct kkv *kv = &a->kv;
	uint32_t kv_head = h / (a->a.heads / kv->kv_heads);
	double max = a->a.sinks ? a->a.sinks[h] : -INFINITY, sum;

	memset(acc, 0, kv->v_dim * sizeof(*acc));
	for (uint32_t pos = first; pos < end; pos++) {
		struct ref_place p = {(size_t)blocks[pos / KBLOCK_LEN] * kv->kv_heads + kv_head, pos % KBLOCK_LEN};
		double score = ref_score(&a->a, kv, q, p);

		if (!(score <= max)) max = score; /* lets a NaN through */
	}
	sum = a->a.sinks ? exp(a->a.sinks[h] - max) : 0;
	for (uint32_t pos = first; pos < end; pos++) {
		struct ref_place p = {(size_t)blocks[pos / KBLOCK_LEN] * kv->kv_heads + kv_head, pos % KBLOCK_LEN};
		double e = exp(ref_score(&a->a, kv, q, p) - max);

		sum += e;
		for (uint32_t d = 0; d < kv->v_dim; d++) acc[d] += e * ref_value(kv, p, d);
	}
	for (uint32_t d = 0; d < kv->v_dim; d++) out[d] = (float)(acc[d] / sum);
}

void ref_attention(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head, uint32_t head_end,
		   float *scratch)
{
	for (uint32_t t = token; t < token_end; t++) {
		const uint32_t *blocks = a->b.block_tables + (size_t)a->b.seq_ix[t] * a->b.blocks_max;
		uint32_t end = a->b.positions[t] + 1;

		for (uint32_t h = head; h < head_end; h++)
			ref_attention_one(a, a->a.q + (size_t)t * a->a.ld_q + (size_t)h * a->kv.k_dim, h,
					  cpu_attention_first(a, a->b.positions[t]), end, blocks,
					  a->a.out + (size_t)t * a->a.ld_out + (size_t)h * a->kv.v_dim,
					  (double *)scratch);
	}
}
