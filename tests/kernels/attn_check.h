/* attn_check.h - attention over random shapes and all its variants, whole and in pieces, and what it should give: the
 * formula of struct kattn in double, on keys and values rounded by functions of this file's own.
 *
 * Everything that a query must not read is made NaN: slots that nobody has written, positions before the window;
 * numbers of blocks that lie before every window are wild. */
#ifndef SLUICE_TESTS_ATTN_CHECK_H
#define SLUICE_TESTS_ATTN_CHECK_H

#include "tests/kernels/rig.h"

#include <sys/mman.h>
#include <unistd.h>

#define ATTN_SEQS_MAX   4
#define ATTN_BLOCKS_MAX 8 /* a sequence */
#define ATTN_BLOCKS     40

/* Sequences over one pool of blocks in random order. */
struct attn_case {
	struct kkv kv; /* without memory */
	uint32_t n_seqs, lens[ATTN_SEQS_MAX], n_tokens, heads, window;
	float scale, softcap;
	bool own_tables; /* the layer's tables are not the batch's */
	uint32_t pad;    /* floats between rows */
	uint32_t tables[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX];
	float *q, *k, *v, *sinks; /* (n_tokens, ...) */
	char name[160];
};

static const enum ggtype attn_types[] = {GGTYPE_F16, GGTYPE_F32, GGTYPE_BF16, GGTYPE_F8_E4M3, GGTYPE_I8};

static inline void attn_case_dims(struct attn_case *c, struct rig_rng *r)
{
	static const uint32_t dims[] = {64, 16, 80, 32, 12, 36, 128, 96, 112, 1, 7, 256};
	static const uint32_t latent[][2] = {{40, 32}, {576, 512}, {19, 13}, {24, 24}};
	uint32_t kind = rig_u32(r) % 4;

	if (kind == 0) {
		uint32_t i = rig_u32(r) % ARRAY_LEN(latent);

		c->kv.latent = true;
		c->kv.kv_heads = 1;
		c->kv.k_dim = latent[i][0];
		c->kv.v_dim = latent[i][1];
		c->heads = rig_range(r, 1, i == 1 ? 6 : 70);
		return;
	}
	c->kv.kv_heads = rig_range(r, 1, 3);
	c->heads = c->kv.kv_heads * rig_range(r, 1, kind == 1 ? 16 : 5);
	c->kv.k_dim = dims[rig_u32(r) % ARRAY_LEN(dims)];
	c->kv.v_dim = kind == 1 ? dims[rig_u32(r) % ARRAY_LEN(dims)] : c->kv.k_dim;
}

/* Lengths, tables and data of a case whose dimensions and variants are set. */
static inline void attn_case_fill(struct attn_case *c, struct rig_rng *r, uint32_t len_max, bool sinks)
{
	uint32_t blocks[ATTN_BLOCKS];

	for (uint32_t i = 0; i < c->n_seqs; i++) c->n_tokens += c->lens[i] = rig_range(r, 1, len_max);
	for (uint32_t i = 0; i < ATTN_BLOCKS; i++) {
		uint32_t j = rig_range(r, 0, i);

		blocks[i] = blocks[j];
		blocks[j] = i;
	}
	memcpy(c->tables, blocks, sizeof(c->tables));
	c->q = rig_floats(r, (size_t)c->n_tokens * c->heads * c->kv.k_dim);
	c->k = rig_floats(r, (size_t)c->n_tokens * c->kv.kv_heads * c->kv.k_dim);
	c->v = rig_floats(r, (size_t)c->n_tokens * c->kv.kv_heads * c->kv.v_dim);
	if (sinks) c->sinks = rig_floats(r, c->heads);
	snprintf(c->name, sizeof(c->name), "%s%s %u/%u heads, dims %u/%u, window %u, softcap %g%s",
		 ggtype_info(c->kv.type)->name, c->kv.latent ? " latent" : "", c->heads, c->kv.kv_heads, c->kv.k_dim,
		 c->kv.v_dim, c->window, (double)c->softcap, c->sinks ? ", sinks" : "");
}

static inline struct attn_case attn_case_new(uint64_t seed)
{
	struct rig_rng r = {seed};
	struct attn_case c = {.n_seqs = rig_range(&r, 1, ATTN_SEQS_MAX)};
	uint32_t len_max;
	float spread;

	c.kv.type = attn_types[rig_u32(&r) % ARRAY_LEN(attn_types)];
	attn_case_dims(&c, &r);
	len_max = min_u32(ATTN_BLOCKS_MAX * KBLOCK_LEN,
			  max_u32(20, 400000 / (c.heads * (c.kv.k_dim + c.kv.v_dim)))); /* the oracle is slow */
	c.window = rig_u32(&r) & 1 ? rig_range(&r, 1, 50) : 0;
	c.softcap = rig_u32(&r) % 3 == 0 ? (float)rig_range(&r, 1, 50) : 0;
	c.scale = (float)rig_range(&r, 1, 3) / sqrtf((float)c.kv.k_dim);
	c.own_tables = rig_u32(&r) & 1;
	c.pad = rig_u32(&r) % 3 * 4;
	attn_case_fill(&c, &r, len_max, rig_u32(&r) % 3 == 0);
	/* magnitudes of all sorts, so that float8 sees its subnormals and its end */
	spread = rig_u32(&r) % 4 == 0 ? 300.0f : 1.0f;
	for (size_t i = 0; i < (size_t)c.n_tokens * c.kv.kv_heads * c.kv.v_dim; i += 3)
		c.v[i] *= i & 1 ? spread : 1 / spread;
	if (c.sinks && rig_u32(&r) & 1) c.sinks[0] = -INFINITY;
	snprintf(c.name + strlen(c.name), sizeof(c.name) - strlen(c.name), ", seed %llu", (unsigned long long)seed);
	return c;
}

static inline void attn_case_free(struct attn_case *c)
{
	free(c->q);
	free(c->k);
	free(c->v);
	free(c->sinks);
}

/* ---- what should come out ---- */

/* To the nearest multiple of the last place that `digits` binary digits behind the first leave; exponents end at
 * `lowest`. */
static inline double attn_round(double x, int digits, int lowest)
{
	int e;

	if (x == 0) return 0;
	frexp(x, &e); /* |x| in [2^(e - 1), 2^e) */
	e = (e - 1 < lowest ? lowest : e - 1) - digits;
	return ldexp(nearbyint(ldexp(x, -e)), e);
}

static inline double attn_round_to(enum ggtype type, double x, double scale)
{
	if (type == GGTYPE_F16) return attn_round(x, 10, -14);
	if (type == GGTYPE_BF16) return attn_round(x, 7, -126);
	if (type == GGTYPE_F8_E4M3) return fmin(448, fmax(-448, attn_round(x, 3, -6)));
	if (type == GGTYPE_I8) return scale > 0 ? scale * nearbyint((float)x * (1.0f / (float)scale)) : 0;
	return x;
}

/* n heads' vectors of `dim` as the cache holds them. */
static inline double *attn_rounded(enum ggtype type, const float *x, size_t n, uint32_t dim)
{
	double *out = malloc(n * dim * sizeof(*out));

	for (size_t i = 0; i < n; i++) {
		float amax = 0;

		for (uint32_t d = 0; d < dim; d++) amax = fmaxf(amax, fabsf(x[i * dim + d]));
		for (uint32_t d = 0; d < dim; d++)
			out[i * dim + d] = attn_round_to(type, x[i * dim + d], amax / 127.0f);
	}
	return out;
}

/* Token row `row` at position pos, head h; k and v begin at its sequence. Gives the largest sum of |p v| of a
 * dimension: what rounding errors are relative to, also where values cancel. */
static inline float attn_want_one(const struct attn_case *c, const double *k, const double *v, uint32_t row,
				  uint32_t pos, uint32_t h, float *out)
{
	uint32_t k_dim = c->kv.k_dim, ld_v = c->kv.latent ? k_dim : c->kv.v_dim,
		 first = c->window && pos >= c->window ? pos + 1 - c->window : 0;
	uint32_t kv_head = h / (c->heads / c->kv.kv_heads);
	const float *q = c->q + ((size_t)row * c->heads + h) * k_dim;
	double terms[ATTN_BLOCKS_MAX * KBLOCK_LEN], size = 0, max = c->sinks ? c->sinks[h] : -INFINITY, sum = 0;

	for (uint32_t p = first; p <= pos; p++) {
		double s = 0;

		for (uint32_t d = 0; d < k_dim; d++) s += q[d] * k[((size_t)p * c->kv.kv_heads + kv_head) * k_dim + d];
		s *= (double)c->scale;
		if (c->softcap > 0) s = c->softcap * tanh(s / c->softcap);
		terms[p] = s;
		max = fmax(max, s);
	}
	for (uint32_t p = first; p <= pos; p++) sum += terms[p] = exp(terms[p] - max);
	if (c->sinks) sum += exp(c->sinks[h] - max);
	for (uint32_t d = 0; d < c->kv.v_dim; d++) {
		double o = 0, o_size = 0;

		for (uint32_t p = first; p <= pos; p++) {
			double x = terms[p] * v[((size_t)p * c->kv.kv_heads + kv_head) * ld_v + d];

			o += x;
			o_size += fabs(x);
		}
		out[d] = (float)(o / sum);
		size = fmax(size, o_size / sum);
	}
	return (float)size;
}

/* (n_tokens, heads, v_dim); sizes (n_tokens, heads). */
static inline float *attn_want(const struct attn_case *c, float *sizes)
{
	size_t n = (size_t)c->n_tokens * c->kv.kv_heads;
	double *k = attn_rounded(c->kv.type, c->k, n, c->kv.k_dim), *v = attn_rounded(c->kv.type, c->v, n, c->kv.v_dim);
	float *out = malloc((size_t)c->n_tokens * c->heads * c->kv.v_dim * sizeof(float));
	uint32_t row = 0;

	for (uint32_t s = 0; s < c->n_seqs; s++) {
		const double *ks = k + (size_t)row * c->kv.kv_heads * c->kv.k_dim,
			     *vs = v + (size_t)row * c->kv.kv_heads * c->kv.v_dim;

		for (uint32_t pos = 0; pos < c->lens[s]; pos++, row++)
			for (uint32_t h = 0; h < c->heads; h++)
				*sizes++ = attn_want_one(c, ks, c->kv.latent ? ks : vs, row, pos, h,
							 out + ((size_t)row * c->heads + h) * c->kv.v_dim);
	}
	free(k);
	free(v);
	return out;
}

/* ---- what comes out ---- */

/* Tokens of one call: row `rows[i]` of the case at a position of a sequence. */
struct attn_call {
	uint32_t n;
	uint32_t seqs[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX * KBLOCK_LEN],
		positions[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX * KBLOCK_LEN];
	uint32_t rows[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX * KBLOCK_LEN],
		slots[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX * KBLOCK_LEN];
};

/* Rows `rows` of x (.., width), `ld` floats apart in the buffer. */
static inline struct rig_buf attn_rows(struct kdev *d, const float *x, const struct attn_call *call, uint32_t width,
				       uint32_t ld)
{
	struct rig_buf b = rig_buf_new(d, (size_t)call->n * ld);

	for (size_t i = 0; i < call->n; i++)
		memcpy(b.data + i * ld, x + (size_t)call->rows[i] * width, width * sizeof(float));
	return b;
}

static inline uint32_t *attn_ids(struct kdev *d, const uint32_t *x, size_t n)
{
	uint32_t *out = kdev_alloc(d, n * sizeof(*out));

	assert_non_null(out);
	memcpy(out, x, n * sizeof(*out));
	return out;
}

/* tables: what the layer should use. */
static inline void attn_call_run(struct kdev *d, const struct attn_case *c, const struct kkv *kv,
				 const struct attn_call *call, const uint32_t *tables, float *out)
{
	const struct kops *ops = kdev_ops(d);
	uint32_t ld_q = c->heads * kv->k_dim + c->pad, ld_out = c->heads * kv->v_dim + c->pad,
		 ld_k = kv->kv_heads * kv->k_dim + c->pad, ld_v = kv->kv_heads * kv->v_dim + 2 * c->pad,
		 wild[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX];
	struct rig_buf q = attn_rows(d, c->q, call, c->heads * kv->k_dim, ld_q),
		       k = attn_rows(d, c->k, call, kv->kv_heads * kv->k_dim, ld_k),
		       v = attn_rows(d, c->v, call, kv->kv_heads * kv->v_dim, ld_v),
		       o = rig_buf_new(d, (size_t)call->n * ld_out), s;
	size_t n_tables = ARRAY_LEN(wild);
	uint32_t *ids[5];
	struct kbatch b = {.n_tokens = call->n, .n_seqs = c->n_seqs, .blocks_max = ATTN_BLOCKS_MAX};
	struct kattn a = {.out = o.data,
			  .ld_out = ld_out,
			  .q = q.data,
			  .ld_q = ld_q,
			  .kv = kv,
			  .heads = c->heads,
			  .window = c->window,
			  .scale = c->scale,
			  .softcap = c->softcap};
	float *got;

	memset(wild, 0xff, sizeof(wild));
	b.positions = ids[0] = attn_ids(d, call->positions, call->n);
	b.seq_ix = ids[1] = attn_ids(d, call->seqs, call->n);
	b.slots = ids[2] = attn_ids(d, call->slots, call->n);
	ids[3] = attn_ids(d, tables, n_tables);
	ids[4] = attn_ids(d, wild, n_tables);
	b.block_tables = c->own_tables ? ids[4] : ids[3];
	a.block_tables = c->own_tables ? ids[3] : NULL;
	if (c->sinks) {
		s = rig_buf_of(d, c->sinks, c->heads);
		a.sinks = s.data;
	}
	ops->kv_store(d, kv, k.data, ld_k, kv->latent ? NULL : v.data, ld_v, b.slots, call->n);
	ops->attention(d, &a, &b);
	got = rig_buf_take(&o);
	for (size_t i = 0; i < call->n; i++) {
		uint32_t bits;

		memcpy(out + (size_t)call->rows[i] * c->heads * kv->v_dim, got + i * ld_out,
		       c->heads * kv->v_dim * sizeof(float));
		for (uint32_t j = c->heads * kv->v_dim; j < ld_out; j++) {
			memcpy(&bits, &got[i * ld_out + j], 4);
			assert_int_equal(bits, RIG_GUARD_BITS);
		}
	}
	free(got);
	free(rig_buf_take(&q));
	free(rig_buf_take(&k));
	free(rig_buf_take(&v));
	if (c->sinks) free(rig_buf_take(&s));
	for (int i = 0; i < 5; i++) kdev_release(d, ids[i], (i < 3 ? call->n : n_tables) * sizeof(uint32_t));
}

/* Makes a position of the cache NaN: every byte of its elements and scales is 0xff (an int8 of -1 with a NaN scale). */
static inline void attn_poison(const struct kkv *kv, uint32_t block, uint32_t offset)
{
	size_t elem = ggtype_row_bytes(kv->type, 1);

	for (size_t h = 0; h < kv->kv_heads; h++) {
		size_t tile = (size_t)block * kv->kv_heads + h;

		for (size_t d = 0; d < kv->k_dim; d++)
			memset((char *)kv->k + ((tile * kv->k_dim + d) * KBLOCK_LEN + offset) * elem, 0xff, elem);
		if (kv->v)
			memset((char *)kv->v + (tile * KBLOCK_LEN + offset) * kv->v_dim * elem, 0xff, kv->v_dim * elem);
		if (kv->k_scale) memset(&kv->k_scale[tile * KBLOCK_LEN + offset], 0xff, 4);
		if (kv->v_scale) memset(&kv->v_scale[tile * KBLOCK_LEN + offset], 0xff, 4);
	}
}

/* Before sequence s goes on at position `done`: what its window has left behind. */
static inline void attn_forget(const struct attn_case *c, const struct kkv *kv, uint32_t *tables, uint32_t s,
			       uint32_t done)
{
	uint32_t first = c->window && done >= c->window ? done + 1 - c->window : 0,
		 *table = tables + s * ATTN_BLOCKS_MAX;

	for (uint32_t pos = 0; pos < first; pos++)
		if (table[pos / KBLOCK_LEN] != UINT32_MAX) attn_poison(kv, table[pos / KBLOCK_LEN], pos % KBLOCK_LEN);
	for (uint32_t i = 0; i < first / KBLOCK_LEN; i++) table[i] = UINT32_MAX;
}

/* Up to chunk_max tokens of each sequence that is not done. */
static inline void attn_call_make(struct attn_call *call, const struct attn_case *c, const struct kkv *kv,
				  uint32_t *tables, uint32_t *done, uint32_t chunk_max, struct rig_rng *r)
{
	uint32_t first = 0;

	call->n = 0;
	for (uint32_t s = 0; s < c->n_seqs; first += c->lens[s++]) {
		uint32_t n = min_u32(rig_range(r, chunk_max > 1 ? 0 : 1, chunk_max), c->lens[s] - done[s]);

		if (n) attn_forget(c, kv, tables, s, done[s]);
		for (; n > 0; n--, call->n++) {
			uint32_t pos = done[s]++;

			call->seqs[call->n] = s;
			call->positions[call->n] = pos;
			call->rows[call->n] = first + pos;
			call->slots[call->n] =
				tables[s * ATTN_BLOCKS_MAX + pos / KBLOCK_LEN] * KBLOCK_LEN + pos % KBLOCK_LEN;
		}
	}
}

/* Memory for the cache between two pages that cannot be read, and right before the second. */
static inline char *attn_memory_new(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = align_up(bytes, page);
	char *base = mmap(NULL, len + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(base != MAP_FAILED);
	assert_int_equal(mprotect(base + page, len, PROT_READ | PROT_WRITE), 0);
	return base + page + len - bytes;
}

static inline void attn_memory_free(char *memory, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = align_up(bytes, page);

	assert_int_equal(munmap(memory + bytes - len - page, len + 2 * page), 0);
}

/* All tokens of all sequences, in calls of random composition. */
static inline float *attn_run(const struct rig_level *level, uint32_t n_threads, const struct attn_case *c,
			      uint32_t chunk_max, uint64_t seed)
{
	struct kdev *d = rig_open(level, KACT_Q8, n_threads, 0);
	struct rig_rng r = {seed};
	struct kkv kv = c->kv;
	size_t bytes = kkv_bytes(&kv, ATTN_BLOCKS), width = (size_t)c->heads * kv.v_dim;
	char *memory = attn_memory_new(bytes);
	uint32_t done[ATTN_SEQS_MAX] = {0}, tables[ATTN_SEQS_MAX * ATTN_BLOCKS_MAX], left;
	float *out = malloc(c->n_tokens * width * sizeof(float));
	struct attn_call *call = malloc(sizeof(*call));

	memset(memory, 0xff, bytes);
	kkv_place(&kv, memory, ATTN_BLOCKS);
	memcpy(tables, c->tables, sizeof(tables));
	do {
		attn_call_make(call, c, &kv, tables, done, chunk_max, &r);
		if (call->n) attn_call_run(d, c, &kv, call, tables, out);
		left = 0;
		for (uint32_t s = 0; s < c->n_seqs; s++) left += c->lens[s] - done[s];
	} while (left > 0);
	free(call);
	attn_memory_free(memory, bytes);
	kdev_close(d);
	return out;
}

#endif
