/* ops_check.h - every operation of a level against the reference, and against itself cut differently. Included by one
 * test program a group of levels: native ones (test_kernel_ops.c), emulated AVX-512 (test_kernel_avx512.c). */
#ifndef SLUICE_TESTS_OPS_CHECK_H
#define SLUICE_TESTS_OPS_CHECK_H

#include "kernels/pack.h"
#include "tests/kernels/rig.h"

static const enum ggtype ops_mat_types[] = {
	GGTYPE_Q4_1,
	GGTYPE_Q4_0,
	GGTYPE_Q8_0,
	GGTYPE_F16,
	GGTYPE_BF16,
	GGTYPE_F32,
	GGTYPE_Q4_Z,
	GGTYPE_F8_B32,
	GGTYPE_Q5_0,
	GGTYPE_Q5_1,
	GGTYPE_MXFP4,
	GGTYPE_IQ4_NL,
	GGTYPE_Q4_K,
	GGTYPE_Q5_K,
	GGTYPE_Q6_K,
	GGTYPE_IQ4_XS,
	GGTYPE_Q2_K,
	GGTYPE_Q3_K,
	GGTYPE_IQ2_XXS /* has no groups */,
};

/* One of them that rows of `cols` columns may have. */
static inline enum ggtype ops_mat_type(struct rig_rng *r, uint32_t cols)
{
	enum ggtype type;

	do type = ops_mat_types[rig_u32(r) % ARRAY_LEN(ops_mat_types)];
	while (cols % ggtype_info(type)->block_len != 0);
	return type;
}

/* Columns: a multiple of 32, and often of 256. */
static inline uint32_t ops_cols(struct rig_rng *r, uint32_t most)
{
	return rig_u32(r) & 1 ? 32 * rig_range(r, 1, most) : 256 * rig_range(r, 1, 2);
}

/* Random bytes make a block, but for its scales: f16 of 2^-12 to 2^-8, of either sign. */
static inline void ops_sane_block(struct rig_rng *r, enum ggtype type, uint8_t *block)
{
	uint32_t at = pack_k_of(type).halfs_at, n = type == GGTYPE_IQ2_XXS ? 1 : pack_k_of(type).halfs;

	for (uint32_t i = 0; i < n; i++)
		block[at + 2 * i + 1] = (uint8_t)((0x0c + rig_u32(r) % 16) | (rig_u32(r) & 1) << 7);
	if (type == GGTYPE_MXFP4) block[0] = (uint8_t)(rig_u32(r) % 50 ? 110 + rig_u32(r) % 20 : rig_u32(r) % 4);
}

/* Random rows of a type. */
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
		for (size_t b = 0; b < row_bytes; b += ggtype_info(type)->block_bytes) ops_sane_block(r, type, row + b);
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
	struct ops_product p = {.n_outs = rig_range(r, 1, 4), .cols = ops_cols(r, 9), .n = rig_range(r, 1, n_max)};

	p.ld_x = p.cols + rig_range(r, 0, 3) * 8;
	p.accumulate = rig_u32(r) & 1;
	p.x = rig_floats(r, (size_t)p.n * p.ld_x);
	if (rig_u32(r) % 4 == 0)
		memset(p.x, 0, 64 * sizeof(float) < p.cols * sizeof(float) ? 256 : 128); /* zero blocks */
	for (uint32_t i = 0; i < p.n_outs; i++) {
		p.types[i] = ops_mat_type(r, p.cols);
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
		m[i] = rig_mat(d, p->types[i], p->rows[i], p->cols, p->w[i]);
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
	struct kdev *ref = rig_open(&rig_ref, act, 1, scratch), *d = rig_open(level, act, rig_range(&r, 1, 4), scratch);
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
	uint32_t rows = rig_range(&r, 1, 50), cols = ops_cols(&r, 5), n = rig_range(&r, 1, 90);
	enum ggtype type = ops_mat_type(&r, cols);
	struct kdev *d = rig_open(level, act, rig_range(&r, 1, 3), 0);
	const struct kops *k = kdev_ops(d);
	uint8_t *w = ops_rows(&r, type, rows, cols);
	struct rig_buf out = rig_buf_new(d, (size_t)n * cols);
	uint32_t *ids = kdev_alloc(d, n * 4);
	float *got, *want = malloc(cols * sizeof(float)), scale = rig_u32(&r) & 1 ? 1.0f : 22.6274f;
	struct kmat m;

	m = rig_mat(d, type, rows, cols, w);
	for (uint32_t i = 0; i < n; i++) ids[i] = rig_u32(&r) % rows;
	k->embed(d, out.data, &m, ids, n, scale);
	got = rig_buf_take(&out);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(kdequant_row(type, w + ids[i] * ggtype_row_bytes(type, cols), want, cols), ST_OK);
		for (uint32_t c = 0; c < cols; c++) want[c] *= scale;
		rig_expect_same_bits(got + (size_t)i * cols, want, cols, ggtype_info(type)->name);
	}
	kdev_release(d, m.data, m.bytes);
	kdev_release(d, ids, n * 4);
	kdev_close(d);
	free(got);
	free(want);
	free(w);
}

/* The operations on rows over one random shape, `step` rows a call; out[j] the results. */
enum {
	OPS_NORM,
	OPS_NORM_PLACE,
	OPS_NORM_GROUPS,
	OPS_NORM_ADD,
	OPS_SILU,
	OPS_GELU,
	OPS_OAI,
	OPS_SIGMOID,
	OPS_SIGMOID_ROW,
	OPS_SOFTCAP,
	OPS_GATHER,
	OPS_ROPE_NEOX,
	OPS_ROPE_NORM,
	OPS_ROW_RESULTS
};

struct ops_rows {
	uint32_t n, heads, head_dim, dim, rot;
	struct rig_buf x, u, w, cs, y[OPS_ROW_RESULTS];
	uint32_t *ix;
};

static inline struct ops_rows ops_rows_new(struct kdev *d, uint64_t seed)
{
	struct rig_rng r = {seed};
	struct ops_rows o = {
		.n = rig_range(&r, 1, 40), .heads = rig_range(&r, 1, 5), .head_dim = 2 * rig_range(&r, 1, 50)};
	float *x, *u, *w, *cs;

	o.dim = o.heads * o.head_dim;
	o.rot = 2 * rig_range(&r, 1, o.head_dim / 2);
	x = rig_floats(&r, (size_t)o.n * o.dim);
	u = rig_floats(&r, (size_t)o.n * o.dim);
	w = rig_floats(&r, o.dim);
	cs = rig_floats(&r, (size_t)64 * o.rot);
	for (uint32_t i = 0; i < o.n * o.dim; i++) u[i] *= rig_u32(&r) % 8 ? 1.0f : 40.0f; /* ends of the gates too */
	o.x = rig_buf_of(d, x, (size_t)o.n * o.dim);
	o.u = rig_buf_of(d, u, (size_t)o.n * o.dim);
	o.w = rig_buf_of(d, w, o.dim);
	o.cs = rig_buf_of(d, cs, (size_t)64 * o.rot);
	o.ix = kdev_alloc(d, o.n * 4);
	for (uint32_t i = 0; i < o.n; i++) o.ix[i] = rig_u32(&r) % o.n;
	for (int j = 0; j < OPS_ROW_RESULTS; j++) o.y[j] = rig_buf_of(d, j == OPS_SOFTCAP ? u : x, (size_t)o.n * o.dim);
	free(x);
	free(u);
	free(w);
	free(cs);
	return o;
}

static inline void ops_rows_norms(struct kdev *d, const struct ops_rows *o, size_t at, uint32_t step)
{
	const struct kops *k = kdev_ops(d);
	struct knorm norm = {
		.ld_out = o->dim, .x = o->x.data + at, .ld_x = o->dim, .groups = 1, .dim = o->dim, .eps = 1e-5f};

	norm.out = o->y[OPS_NORM].data + at;
	norm.w = o->w.data;
	k->norm(d, &norm, step);
	norm.out = o->y[OPS_NORM_ADD].data + at;
	norm.accumulate = true;
	k->norm(d, &norm, step);
	norm.accumulate = false;
	norm.x = norm.out = o->y[OPS_NORM_PLACE].data + at;
	k->norm(d, &norm, step);
	norm.x = norm.out = o->y[OPS_NORM_GROUPS].data + at;
	norm.groups = o->heads;
	norm.dim = o->head_dim;
	norm.w = o->heads & 1 ? NULL : norm.w;
	k->norm(d, &norm, step);
}

static inline void ops_rows_call(struct kdev *d, const struct ops_rows *o, uint32_t row, uint32_t step)
{
	const struct kops *k = kdev_ops(d);
	size_t at = (size_t)row * o->dim;
	const float *x = o->x.data + at, *u = o->u.data + at;
	struct ksigmoid s = {.ld_out = o->dim, .x = x, .ld_x = o->dim, .gate = u, .ld_gate = o->dim, .dim = o->dim};

	ops_rows_norms(d, o, at, step);
	k->glu(d, o->y[OPS_SILU].data + at, u, x, step, o->dim, KGLU_SILU, 0);
	k->glu(d, o->y[OPS_GELU].data + at, u, x, step, o->dim, KGLU_GELU_TANH, 0);
	k->glu(d, o->y[OPS_OAI].data + at, u, x, step, o->dim, KGLU_OAI, 1.5f);
	s.out = o->y[OPS_SIGMOID].data + at;
	s.gate_dim = o->dim;
	k->sigmoid(d, &s, step);
	s.out = o->y[OPS_SIGMOID_ROW].data + at;
	s.gate_dim = 1;
	s.accumulate = true;
	k->sigmoid(d, &s, step);
	k->softcap(d, o->y[OPS_SOFTCAP].data + at, step, o->dim, 30.0f);
	k->gather(d, o->y[OPS_GATHER].data + at, o->x.data, o->ix + row, step, o->dim);
	k->rope(d, o->y[OPS_ROPE_NEOX].data + at, o->dim, o->ix + row, step, o->heads, o->head_dim, o->rot, o->cs.data,
		KROPE_NEOX);
	k->rope(d, o->y[OPS_ROPE_NORM].data + at, o->dim, o->ix + row, step, o->heads, o->head_dim, o->rot, o->cs.data,
		KROPE_NORM);
}

static inline void ops_rows_run(struct kdev *d, uint64_t seed, bool one_by_one, float **out, uint32_t *n, uint32_t *dim)
{
	struct ops_rows o = ops_rows_new(d, seed);
	uint32_t step = one_by_one ? 1 : o.n;

	for (uint32_t row = 0; row < o.n; row += step) ops_rows_call(d, &o, row, step);
	assert_int_equal(kdev_sync(d), ST_OK);
	for (int j = 0; j < OPS_ROW_RESULTS; j++) out[j] = rig_buf_take(&o.y[j]);
	kdev_release(d, o.ix, o.n * 4);
	free(rig_buf_take(&o.x));
	free(rig_buf_take(&o.u));
	free(rig_buf_take(&o.w));
	free(rig_buf_take(&o.cs));
	*n = o.n;
	*dim = o.dim;
}

static inline void ops_check_rows(const struct rig_level *level, uint64_t seed)
{
	static const char *const names[OPS_ROW_RESULTS] = {
		"norm",    "norm in place",   "norm of groups", "norm added", "silu",      "gelu",     "oai",
		"sigmoid", "sigmoid of rows", "softcap",        "gather",     "rope neox", "rope norm"};
	struct kdev *ref = rig_open(&rig_ref, KACT_Q8, 1, 0), *d = rig_open(level, KACT_Q8, 1 + seed % 4, 0);
	float *want[OPS_ROW_RESULTS], *got[OPS_ROW_RESULTS], *again[OPS_ROW_RESULTS];
	uint32_t n, dim;

	ops_rows_run(ref, seed, false, want, &n, &dim);
	ops_rows_run(d, seed, false, got, &n, &dim);
	ops_rows_run(d, seed, true, again, &n, &dim);
	for (int j = 0; j < OPS_ROW_RESULTS; j++) {
		rig_expect_close(got[j], want[j], n, dim, j == OPS_GATHER ? 0 : 1e-5f, names[j]);
		rig_expect_same_bits(again[j], got[j], (size_t)n * dim, names[j]);
		free(want[j]);
		free(got[j]);
		free(again[j]);
	}
	kdev_close(ref);
	kdev_close(d);
}

#endif
