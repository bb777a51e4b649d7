/* attention_check.h - attention of a level against the reference, and against itself cut differently. */
#ifndef SLUICE_TESTS_ATTENTION_CHECK_H
#define SLUICE_TESTS_ATTENTION_CHECK_H

#include "tests/kernels/rig.h"

/* Sequences that were prefilled in one call, or in pieces of `chunk` tokens, over one pool of blocks in random order.
 */
struct ops_attention {
	uint32_t n_seqs, lens[4], heads, kv_heads, head_dim, blocks_max, n_blocks;
	uint32_t tables[4 * 16];
	float *q, *k, *v; /* (tokens, ...) */
	enum ggtype type;
};

static inline struct ops_attention ops_attention_new(struct rig_rng *r)
{
	static const uint32_t dims[] = {64, 16, 80, 32, 12, 36, 128};
	struct ops_attention a = {
		.n_seqs = rig_range(r, 1, 4), .kv_heads = rig_range(r, 1, 3), .blocks_max = 16, .n_blocks = 80};
	uint32_t tokens = 0;

	a.heads = a.kv_heads * rig_range(r, 1, 5);
	a.head_dim = dims[rig_u32(r) % ARRAY_LEN(dims)];
	a.type = rig_u32(r) & 1 ? GGTYPE_F16 : GGTYPE_F32;
	for (uint32_t i = 0; i < a.n_seqs; i++) tokens += a.lens[i] = rig_range(r, 1, 70);
	for (uint32_t i = 0; i < 64; i++) a.tables[i] = i + 8;
	for (uint32_t i = 63; i > 0; i--) {
		uint32_t j = rig_u32(r) % (i + 1), t = a.tables[i];

		a.tables[i] = a.tables[j];
		a.tables[j] = t;
	}
	a.q = rig_floats(r, (size_t)tokens * a.heads * a.head_dim);
	a.k = rig_floats(r, (size_t)tokens * a.kv_heads * a.head_dim);
	a.v = rig_floats(r, (size_t)tokens * a.kv_heads * a.head_dim);
	return a;
}

/* One call for n tokens: rows (seq, position) given in order. */
static inline void ops_attention_call(struct kdev *d, const struct ops_attention *a, const uint32_t *seq,
				      const uint32_t *pos, const uint32_t *row, uint32_t n, const struct kkv *kv,
				      float *out)
{
	const struct kops *k = kdev_ops(d);
	uint32_t q_dim = a->heads * a->head_dim, kv_dim = a->kv_heads * a->head_dim;
	struct rig_buf q = rig_buf_new(d, (size_t)n * q_dim), kb = rig_buf_new(d, (size_t)n * kv_dim);
	struct rig_buf vb = rig_buf_new(d, (size_t)n * kv_dim), o = rig_buf_new(d, (size_t)n * q_dim);
	uint32_t *ix = kdev_alloc(d, (3 * n + 64) * 4);
	struct kbatch b = {.n_tokens = n,
			   .n_seqs = a->n_seqs,
			   .positions = ix,
			   .seq_ix = ix + n,
			   .slots = ix + 2 * n,
			   .block_tables = ix + 3 * n,
			   .blocks_max = a->blocks_max};
	struct kattn attn;
	float *got;

	memcpy(ix + 3 * n, a->tables, sizeof(a->tables));
	for (uint32_t i = 0; i < n; i++) {
		ix[i] = pos[i];
		ix[n + i] = seq[i];
		ix[2 * n + i] = a->tables[seq[i] * 16 + pos[i] / KBLOCK_LEN] * KBLOCK_LEN + pos[i] % KBLOCK_LEN;
		memcpy(q.data + (size_t)i * q_dim, a->q + (size_t)row[i] * q_dim, q_dim * 4);
		memcpy(kb.data + (size_t)i * kv_dim, a->k + (size_t)row[i] * kv_dim, kv_dim * 4);
		memcpy(vb.data + (size_t)i * kv_dim, a->v + (size_t)row[i] * kv_dim, kv_dim * 4);
	}
	attn = (struct kattn){
		.out = o.data, .ld_out = q_dim, .q = q.data, .ld_q = q_dim, .kv = kv, .heads = a->heads, .scale = 0.3f};
	k->kv_store(d, kv, kb.data, kv_dim, vb.data, kv_dim, b.slots, n);
	k->attention(d, &attn, &b);
	got = rig_buf_take(&o);
	for (uint32_t i = 0; i < n; i++) memcpy(out + (size_t)row[i] * q_dim, got + (size_t)i * q_dim, q_dim * 4);
	free(got);
	free(rig_buf_take(&q));
	free(rig_buf_take(&kb));
	free(rig_buf_take(&vb));
	kdev_release(d, ix, (3 * n + 64) * 4);
}

/* All tokens of all sequences in calls of random composition: up to chunk_max tokens of each live sequence a call. */
static inline float *ops_attention_run(struct kdev *d, const struct ops_attention *a, uint32_t chunk_max, uint64_t seed)
{
	struct rig_rng r = {seed};
	size_t kv_floats = (size_t)a->n_blocks * a->kv_heads * KBLOCK_LEN * a->head_dim,
	       elem = a->type == GGTYPE_F16 ? 2 : 4;
	struct kkv kv = {.k = kdev_alloc(d, kv_floats * elem),
			 .v = kdev_alloc(d, kv_floats * elem),
			 .type = a->type,
			 .kv_heads = a->kv_heads,
			 .k_dim = a->head_dim,
			 .v_dim = a->head_dim};
	uint32_t done[4] = {0}, seq[400], pos[400], row[400], tokens = 0, n;
	float *out;

	for (uint32_t i = 0; i < a->n_seqs; i++) tokens += a->lens[i];
	out = malloc((size_t)tokens * a->heads * a->head_dim * 4);
	/* slots that nobody has written hold NaN: they must not reach a sum */
	memset(kv.k, 0xff, kv_floats * elem);
	memset(kv.v, 0xff, kv_floats * elem);
	do {
		uint32_t first = 0;

		n = 0;
		for (uint32_t i = 0; i < a->n_seqs; first += a->lens[i++]) {
			uint32_t m = min_u32(rig_range(&r, chunk_max > 1 ? 0 : 1, chunk_max), a->lens[i] - done[i]);

			for (; m > 0; m--, n++) {
				seq[n] = i;
				pos[n] = done[i];
				row[n] = first + done[i]++;
			}
		}
		if (n) ops_attention_call(d, a, seq, pos, row, n, &kv, out);
		n = 0;
		for (uint32_t i = 0; i < a->n_seqs; i++) n += a->lens[i] - done[i];
	} while (n > 0);
	kdev_release(d, kv.k, kv_floats * elem);
	kdev_release(d, kv.v, kv_floats * elem);
	return out;
}

static inline void ops_check_attention(const struct rig_level *level, uint64_t seed)
{
	struct rig_rng r = {seed};
	struct ops_attention a = ops_attention_new(&r);
	struct kdev *ref = rig_open(&rig_ref, KACT_Q8, 1, 0), *d = rig_open(level, KACT_Q8, 1, 0);
	struct kdev *d3 = rig_open(level, KACT_Q8, 3, 0);
	float *want = ops_attention_run(ref, &a, 70, seed), *got = ops_attention_run(d, &a, 70, seed);
	uint32_t tokens = 0, chunk = rig_range(&r, 1, 20);
	float *ones = ops_attention_run(d, &a, 1, seed), *pieces = ops_attention_run(d3, &a, chunk, seed);
	size_t n;
	char what[128];

	for (uint32_t i = 0; i < a.n_seqs; i++) tokens += a.lens[i];
	n = (size_t)tokens * a.heads * a.head_dim;
	snprintf(what, sizeof(what), "%s attention, head_dim %u, %u/%u heads, %s, seed %llu", level->name, a.head_dim,
		 a.heads, a.kv_heads, ggtype_info(a.type)->name, (unsigned long long)seed);
	rig_expect_close(got, want, (size_t)tokens * a.heads, a.head_dim, 1e-5f, what);
	rig_expect_same_bits(ones, got, n, what);
	rig_expect_same_bits(pieces, got, n, what);
	free(want);
	free(got);
	free(ones);
	free(pieces);
	free(a.q);
	free(a.k);
	free(a.v);
	kdev_close(ref);
	kdev_close(d);
	kdev_close(d3);
}

#endif
