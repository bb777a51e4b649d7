/* rig.h - what the kernel tests share: random data, guarded device buffers, devices by level, comparing rows. */
#ifndef SLUICE_TESTS_RIG_H
#define SLUICE_TESTS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/splitmix.h"
#include "kernels/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RIG_GUARD      64         /* floats before and after each buffer */
#define RIG_GUARD_BITS 0x7fc0dead /* a NaN, so that reading it shows too */

struct rig_rng {
	uint64_t s;
};

static inline uint32_t rig_u32(struct rig_rng *r)
{
	return (uint32_t)(splitmix_next(&r->s) >> 32);
}

/* In [lo, hi]. */
static inline uint32_t rig_range(struct rig_rng *r, uint32_t lo, uint32_t hi)
{
	return lo + rig_u32(r) % (hi - lo + 1);
}

/* Roughly normal. */
static inline float rig_normal(struct rig_rng *r)
{
	float sum = 0;

	for (int i = 0; i < 4; i++) sum += (float)rig_u32(r) * 0x1p-32f - 0.5f;
	return sum * 1.7f;
}

static inline float *rig_floats(struct rig_rng *r, size_t n)
{
	float *x = malloc((n ? n : 1) * sizeof(float));

	for (size_t i = 0; i < n; i++) x[i] = rig_normal(r);
	return x;
}

/* A device buffer of n floats with guards on both sides. */
struct rig_buf {
	struct kdev *d;
	float *base, *data;
	size_t n;
};

static inline struct rig_buf rig_buf_new(struct kdev *d, size_t n)
{
	struct rig_buf b = {.d = d, .n = n};
	const uint32_t bits = RIG_GUARD_BITS;

	b.base = kdev_alloc(d, (n + 2 * RIG_GUARD) * sizeof(float));
	assert_non_null(b.base);
	b.data = b.base + RIG_GUARD;
	for (size_t i = 0; i < n + 2 * RIG_GUARD; i++) memcpy(&b.base[i], &bits, 4);
	return b;
}

static inline struct rig_buf rig_buf_of(struct kdev *d, const float *x, size_t n)
{
	struct rig_buf b = rig_buf_new(d, n);

	kdev_upload(d, b.data, x, n * sizeof(float));
	assert_int_equal(kdev_sync(d), ST_OK);
	return b;
}

/* Gives the contents (free() them), checks the guards, releases. */
static inline float *rig_buf_take(struct rig_buf *b)
{
	float *out = malloc((b->n ? b->n : 1) * sizeof(float));

	kdev_download(b->d, out, b->data, b->n * sizeof(float));
	assert_int_equal(kdev_sync(b->d), ST_OK);
	for (size_t i = 0; i < RIG_GUARD; i++) {
		uint32_t lo, hi;

		memcpy(&lo, &b->base[i], 4);
		memcpy(&hi, &b->data[b->n + i], 4);
		assert_int_equal(lo, RIG_GUARD_BITS);
		assert_int_equal(hi, RIG_GUARD_BITS);
	}
	kdev_release(b->d, b->base, (b->n + 2 * RIG_GUARD) * sizeof(float));
	return out;
}

/* A level to test: its table, and how to call it in messages. */
struct rig_level {
	const struct cpu_level *table;
	enum klevel level;
	const char *name;
};

static const struct rig_level rig_ref UNUSED = {&cpu_level_ref, KLEVEL_REF, "ref"};

/* The levels of this processor; returns their number. */
static inline uint32_t rig_levels(struct rig_level out[KLEVEL_COUNT])
{
	static const struct rig_level all[KLEVEL_COUNT] = {
		{&cpu_level_ref, KLEVEL_REF, "ref"},
		{&cpu_level_avx2, KLEVEL_AVX2, "avx2"},
		{&cpu_level_avx512, KLEVEL_AVX512, "avx512"},
	};
	uint32_t n = 0;

	while (n < KLEVEL_COUNT && all[n].level <= klevel_of_cpu()) {
		out[n] = all[n];
		n++;
	}
	return n;
}

static inline struct kdev *rig_open(const struct rig_level *level, enum kact act, uint32_t n_threads, size_t scratch)
{
	struct kdev_opts opts = {
		.level_max = level->level, .act = act, .n_threads = n_threads, .scratch_bytes = scratch};
	struct errbuf err = {{0}};
	struct kdev *d = NULL;

	assert_int_equal(cpu_dev_open(&d, level->table, level->level, &opts, &err), ST_OK);
	return d;
}

/* A matrix of the given GGUF rows, filled in two parts; release m.data. */
static inline struct kmat rig_mat(struct kdev *d, enum ggtype type, uint32_t rows, uint32_t cols, const void *src)
{
	const struct kops *k = kdev_ops(d);
	size_t bytes = k->mat_bytes(d, type, rows, cols);
	uint32_t cut = rows / 2 / KMAT_PUT_ROWS * KMAT_PUT_ROWS;
	struct kmat m;
	void *data;

	assert_true(bytes > 0);
	data = kdev_alloc(d, bytes);
	assert_non_null(data);
	k->mat_init(d, &m, data, type, rows, cols);
	assert_int_equal(m.bytes, bytes);
	k->mat_put(d, &m, cut, rows - cut, (const char *)src + cut * ggtype_row_bytes(type, cols));
	k->mat_put(d, &m, 0, cut, src);
	return m;
}

/* Each of n rows of `cols` must agree within tol of the row's largest magnitude. */
static inline void rig_expect_close(const float *got, const float *want, size_t n, size_t cols, float tol,
				    const char *what)
{
	for (size_t i = 0; i < n; i++) {
		float max = 0;

		for (size_t j = 0; j < cols; j++) max = fmaxf(max, fabsf(want[i * cols + j]));
		for (size_t j = 0; j < cols; j++) {
			float a = got[i * cols + j], b = want[i * cols + j];

			if (fabsf(a - b) <= tol * max || a == b) continue;
			fail_msg("%s: row %zu, column %zu: %.9g, want %.9g (largest of the row %.9g)", what, i, j,
				 (double)a, (double)b, (double)max);
		}
	}
}

static inline void rig_expect_same_bits(const float *got, const float *want, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++) {
		if (memcmp(&got[i], &want[i], 4) == 0) continue;
		fail_msg("%s: element %zu: %.9g, want the bits of %.9g", what, i, (double)got[i], (double)want[i]);
	}
}

#endif
