/* ops_check.h - every operation of a level against the reference, and against itself cut differently. Included by one
 * test program a group of levels: native ones (test_kernel_ops.c), emulated AVX-512 (test_kernel_avx512.c). */
#ifndef SLUICE_TESTS_OPS_CHECK_H
#define SLUICE_TESTS_OPS_CHECK_H

#include "tests/kernels/rig.h"

static const struct rig_level ops_ref = {&cpu_level_ref, KLEVEL_REF, "ref"};

static const enum ggtype ops_mat_types[] = {
	GGTYPE_Q4_1, GGTYPE_Q4_0, GGTYPE_Q8_0, GGTYPE_F16, GGTYPE_BF16, GGTYPE_F32, GGTYPE_Q5_0, GGTYPE_Q5_1,
};

/* Random rows of a type. Formats that kquant_row() lacks get random bytes with sane scales. */
static inline uint8_t *ops_rows(struct rig_rng *r, enum ggtype type, uint32_t rows, uint32_t cols)
{
	size_t row_bytes = ggtype_row_bytes(type, cols);
	uint8_t *out = malloc(rows * row_bytes);
	float *x = rig_floats(r, cols);

	for (uint32_t i = 0; i < rows; i++) {
		uint8_t *row = out + i * row_bytes;

		for (uint32_t c = 0; c < cols; c++) x[c] = rig_normal(r);
		if (kquant_row(type, x, row, cols) == ST_OK) continue;
		for (size_t b = 0; b < row_bytes; b++) row[b] = (uint8_t)rig_u32(r);
		for (size_t b = 0; b < row_bytes; b += ggtype_info(type)->block_bytes) {
			row[b + 1] = 0x24 + rig_u32(r) % 8; /* f16 scale of about 0.02 */
			if (type == GGTYPE_Q5_1) row[b + 3] = 0xa4;
		}
	}
	free(x);
	return out;
}

/* What a product is asked. */
struct ops_product {
	enum ggtype types[4];
	uint32_t rows[4], n_outs, cols, n, ld_x;
	uint8_t *w[4];
	float *x, *bias[4], *before[4];
	bool accumulate;
};

static inline struct ops_product ops_product_new(struct rig_rng *r, uint32_t n_max)
{
	struct ops_product p = {
		.n_outs = rig_range(r, 1, 4), .cols = 32 * rig_range(r, 1, 9), .n = rig_range(r, 1, n_max)};

	p.ld_x = p.cols + rig_range(r, 0, 3) * 8;
	p.accumulate = rig_u32(r) & 1;
	p.x = rig_floats(r, (size_t)p.n * p.ld_x);
	if (rig_u32(r) % 4 == 0)
		memset(p.x, 0, 64 * sizeof(float) < p.cols * sizeof(float) ? 256 : 128); /* zero blocks */
	for (uint32_t i = 0; i < p.n_outs; i++) {
		p.types[i] = ops_mat_types[rig_u32(r) % ARRAY_LEN(ops_mat_types)];
		p.rows[i] = rig_range(r, 1, 70);
		p.w[i] = ops_rows(r, p.types[i], p.rows[i], p.cols);
		p.bias[i] = rig_u32(r) & 1 ? rig_floats(r, p.rows[i]) : NULL;
		p.before[i] = rig_floats(r, (size_t)p.n * (p.rows[i] + 3));
	}
	return p;
}

static inline void ops_product_free(struct ops_product *p)
{
	for (uint32_t i = 0; i < p->n_outs; i++) {
		free(p->w[i]);
		free(p->bias[i]);
		free(p->before[i]);
	}
	free(p->x);
}

/* Runs rows [from, from + n) of the product, `chunk` rows a call. out[i] (p->n, rows + 3) gets all of buffer i. */
static inline void ops_product_run(struct kdev *d, const struct ops_product *p, uint32_t chunk, float **out)
{
	const struct kops *k = kdev_ops(d);
	struct rig_buf x = rig_buf_of(d, p->x, (size_t)p->n * p->ld_x), y[4], bias[4];
	struct kmat m[4];
	struct kmat_out o[4];
	float *unused;

	memset(bias, 0, sizeof(bias));
	for (uint32_t i = 0; i < p->n_outs; i++) {
		void *data = kdev_alloc(d, k->mat_bytes(d, p->types[i], p->rows[i], p->cols));

		assert_non_null(data);
		k->mat_load(d, &m[i], data, p->types[i], p->rows[i], p->cols, p->w[i]);
		y[i] = rig_buf_of(d, p->before[i], (size_t)p->n * (p->rows[i] + 3));
		if (p->bias[i]) bias[i] = rig_buf_of(d, p->bias[i], p->rows[i]);
	}
	for (uint32_t row = 0; row < p->n; row += chunk) {
		for (uint32_t i = 0; i < p->n_outs; i++)
			o[i] = (struct kmat_out){.w = &m[i],
						 .out = y[i].data + (size_t)row * (p->rows[i] + 3),
						 .ld_out = p->rows[i] + 3,
						 .bias = bias[i].data,
						 .accumulate = p->accumulate};
		k->matmul(d, x.data + (size_t)row * p->ld_x, p->ld_x, min_u32(chunk, p->n - row), o, p->n_outs);
	}
	assert_int_equal(kdev_sync(d), ST_OK);
	for (uint32_t i = 0; i < p->n_outs; i++) {
		out[i] = rig_buf_take(&y[i]);
		if (p->bias[i]) free(rig_buf_take(&bias[i]));
		kdev_release(d, m[i].data, m[i].bytes);
	}
	unused = rig_buf_take(&x);
	free(unused);
}

static inline void ops_check_product(const struct rig_level *level, enum kact act, uint64_t seed, uint32_t n_max)
{
	struct rig_rng r = {seed};
	struct ops_product p = ops_product_new(&r, n_max);
	size_t scratch = rig_u32(&r) % 3 ? (size_t)p.n * cpu_xq_stride(p.cols) : rig_u32(&r) % 8192;
	struct kdev *ref = rig_open(&ops_ref, act, 1, scratch), *d = rig_open(level, act, rig_range(&r, 1, 4), scratch);
	float *want[4], *got[4], *again[4];
	char what[128];

	ops_product_run(ref, &p, p.n, want);
	ops_product_run(d, &p, p.n, got);
	ops_product_run(d, &p, rig_range(&r, 1, p.n), again);
	for (uint32_t i = 0; i < p.n_outs; i++) {
		uint32_t ld = p.rows[i] + 3;

		snprintf(what, sizeof(what), "%s %s %ux%u n=%u seed %llu", level->name, ggtype_info(p.types[i])->name,
			 p.rows[i], p.cols, p.n, (unsigned long long)seed);
		/* a row of one or two weights has nothing to be relative to: a common floor */
		for (uint32_t row = 0; row < p.n; row++) {
			for (uint32_t c = 0; c < ld; c++) {
				float a = got[i][row * ld + c], b = want[i][row * ld + c];

				if (c >= p.rows[i] ? a != b || a != p.before[i][row * ld + c]
						   : !(fabsf(a - b) <= 1e-5f * fmaxf(fabsf(b), sqrtf((float)p.cols))))
					fail_msg("%s: (%u, %u): %.9g, want %.9g", what, row, c, (double)a, (double)b);
			}
		}
		rig_expect_same_bits(again[i], got[i], (size_t)p.n * ld, what);
		free(want[i]);
		free(got[i]);
		free(again[i]);
	}
	ops_product_free(&p);
	kdev_close(ref);
	kdev_close(d);
}

/* A matrix's rows come back from any layout with the bits of kdequant_row(). */
static inline void ops_check_embed(const struct rig_level *level, enum kact act, uint64_t seed)
{
	struct rig_rng r = {seed};
	enum ggtype type = ops_mat_types[rig_u32(&r) % ARRAY_LEN(ops_mat_types)];
	uint32_t rows = rig_range(&r, 1, 50), cols = 32 * rig_range(&r, 1, 5), n = rig_range(&r, 1, 90);
	struct kdev *d = rig_open(level, act, rig_range(&r, 1, 3), 0);
	const struct kops *k = kdev_ops(d);
	uint8_t *w = ops_rows(&r, type, rows, cols);
	struct rig_buf out = rig_buf_new(d, (size_t)n * cols);
	uint32_t *ids = kdev_alloc(d, n * 4);
	float *got, *want = malloc(cols * sizeof(float));
	struct kmat m;

	k->mat_load(d, &m, kdev_alloc(d, k->mat_bytes(d, type, rows, cols)), type, rows, cols, w);
	for (uint32_t i = 0; i < n; i++) ids[i] = rig_u32(&r) % rows;
	k->embed(d, out.data, &m, ids, n);
	got = rig_buf_take(&out);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(kdequant_row(type, w + ids[i] * ggtype_row_bytes(type, cols), want, cols), ST_OK);
		rig_expect_same_bits(got + (size_t)i * cols, want, cols, ggtype_info(type)->name);
	}
	kdev_release(d, m.data, m.bytes);
	kdev_release(d, ids, n * 4);
	kdev_close(d);
	free(got);
	free(want);
	free(w);
}

/* rms_norm, silu_mul, gather, rope over one random shape; out[j] the results. */
#define OPS_ROW_RESULTS 6

static inline void ops_rows_run(struct kdev *d, uint64_t seed, bool one_by_one, float **out, uint32_t *n_out,
				uint32_t *dim_out)
{
	struct rig_rng r = {seed};
	uint32_t n = rig_range(&r, 1, 40), heads = rig_range(&r, 1, 5), head_dim = 2 * rig_range(&r, 1, 50);
	uint32_t dim = heads * head_dim, rot = 2 * rig_range(&r, 1, head_dim / 2), step = one_by_one ? 1 : n;
	const struct kops *k = kdev_ops(d);
	float *hx = rig_floats(&r, (size_t)n * dim), *hw = rig_floats(&r, dim), *hu = rig_floats(&r, (size_t)n * dim);
	float *hcs = rig_floats(&r, (size_t)64 * rot);
	struct rig_buf x = rig_buf_of(d, hx, (size_t)n * dim), w = rig_buf_of(d, hw, dim);
	struct rig_buf u = rig_buf_of(d, hu, (size_t)n * dim), cs = rig_buf_of(d, hcs, (size_t)64 * rot);
	struct rig_buf y[OPS_ROW_RESULTS];
	uint32_t *ix = kdev_alloc(d, n * 4);

	for (uint32_t i = 0; i < n; i++) ix[i] = rig_u32(&r) % n;
	for (int j = 0; j < OPS_ROW_RESULTS; j++) y[j] = rig_buf_of(d, hx, (size_t)n * dim);
	for (uint32_t i = 0; i < n; i += step) {
		size_t at = (size_t)i * dim;

		k->rms_norm(d, y[0].data + at, x.data + at, w.data, step, dim, 1e-5f);
		k->rms_norm(d, y[1].data + at, y[1].data + at, w.data, step, dim, 1e-6f);
		k->silu_mul(d, y[2].data + at, x.data + at, u.data + at, step, dim);
		k->gather(d, y[3].data + at, x.data, ix + i, step, dim);
		k->rope(d, y[4].data + at, dim, ix + i, step, heads, head_dim, rot, cs.data, KROPE_NEOX);
		k->rope(d, y[5].data + at, dim, ix + i, step, heads, head_dim, rot, cs.data, KROPE_NORM);
	}
	assert_int_equal(kdev_sync(d), ST_OK);
	for (int j = 0; j < OPS_ROW_RESULTS; j++) out[j] = rig_buf_take(&y[j]);
	kdev_release(d, ix, n * 4);
	free(rig_buf_take(&x));
	free(rig_buf_take(&w));
	free(rig_buf_take(&u));
	free(rig_buf_take(&cs));
	free(hx);
	free(hw);
	free(hu);
	free(hcs);
	*n_out = n;
	*dim_out = dim;
}

static inline void ops_check_rows(const struct rig_level *level, uint64_t seed)
{
	static const char *const names[OPS_ROW_RESULTS] = {"rms_norm", "rms_norm in place", "silu_mul",
							   "gather",   "rope neox",         "rope norm"};
	struct kdev *ref = rig_open(&ops_ref, KACT_Q8, 1, 0), *d = rig_open(level, KACT_Q8, 1 + seed % 4, 0);
	float *want[OPS_ROW_RESULTS], *got[OPS_ROW_RESULTS], *again[OPS_ROW_RESULTS];
	uint32_t n, dim;

	ops_rows_run(ref, seed, false, want, &n, &dim);
	ops_rows_run(d, seed, false, got, &n, &dim);
	ops_rows_run(d, seed, true, again, &n, &dim);
	for (int j = 0; j < OPS_ROW_RESULTS; j++) {
		rig_expect_close(got[j], want[j], n, dim, 1e-5f, names[j]);
		rig_expect_same_bits(again[j], got[j], (size_t)n * dim, names[j]);
		free(want[j]);
		free(got[j]);
		free(again[j]);
	}
	kdev_close(ref);
	kdev_close(d);
}

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
	k->kv_store(d, kv, kb.data, vb.data, kv_dim, b.slots, n, a->kv_heads, a->head_dim);
	k->attention(d, o.data, q.data, q_dim, kv, &b, a->heads, a->kv_heads, a->head_dim, 0.3f);
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
	struct kkv kv = {kdev_alloc(d, kv_floats * elem), kdev_alloc(d, kv_floats * elem), a->type};
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
	struct kdev *ref = rig_open(&ops_ref, KACT_Q8, 1, 0), *d = rig_open(level, KACT_Q8, 1, 0);
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
