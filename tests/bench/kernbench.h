/* kernbench.h - what the benches of operations share: the device, time, random matrices and floats. For one program
 * each. */
#ifndef SLUICE_TESTS_KERNBENCH_H
#define SLUICE_TESTS_KERNBENCH_H

#include "common/clock.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kdev *dev;
static const struct kops *ops;
static uint32_t n_threads = 1;

/* With one thread its processor time, so that other work on the machine does not count; else the clock. */
static inline uint64_t bench_now_ns(void)
{
	struct timespec ts;

	if (n_threads > 1) return clock_now_ns();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static inline void *bench_alloc(size_t bytes)
{
	void *p = kdev_alloc(dev, bytes);

	if (!p) abort();
	return p;
}

static inline void bench_sync(void)
{
	if (kdev_sync(dev) != ST_OK) abort();
}

static inline struct kmat bench_mat(enum ggtype type, uint32_t rows, uint32_t cols)
{
	size_t bytes = ops->mat_bytes(dev, type, rows, cols), row_bytes = ggtype_row_bytes(type, cols);
	uint32_t block = ggtype_info(type)->block_bytes, seed = rows * 31 + cols;
	uint8_t *src = malloc(rows * row_bytes);
	struct kmat m;

	for (size_t i = 0; i < rows * row_bytes; i++) src[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
	for (size_t i = 0; i < rows * row_bytes; i += block) {
		if (type == GGTYPE_Q4_1) memcpy(src + i + 2, "\x00\x9c", 2);
		if (type == GGTYPE_Q4_Z) memcpy(src + i + 2, "\x00\xc8", 2); /* -8 */
		if (type == GGTYPE_F8_B32) memcpy(src + i + 2, "\x00\x3b", 2);
		if (block > 4) memcpy(src + i, "\x00\x14", 2); /* f16 0.001 */
		if (block == 2) src[i + 1] = 0x20;
		if (type == GGTYPE_MXFP4) src[i] = 118; /* 2^-9 */
	}
	ops->mat_init(dev, &m, bench_alloc(bytes), type, rows, cols);
	ops->mat_put(dev, &m, 0, rows, src);
	free(src);
	return m;
}

static inline float *bench_floats(size_t n)
{
	float *x = bench_alloc(n * sizeof(float));
	uint32_t seed = 7;

	for (size_t i = 0; i < n; i++) x[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1;
	return x;
}

/* Arguments: [threads] [level] [part ...] */
static inline int bench_open(int argc, char **argv, const struct kdev_limits *lim)
{
	struct kdev_opts opts = {.level_max = KLEVEL_AVX512, .scratch_bytes = kdev_scratch_bytes(lim)};
	struct errbuf err = {{0}};

	if (argc > 1) n_threads = (uint32_t)max_u64(1, strtoul(argv[1], NULL, 10));
	opts.n_threads = n_threads;
	if (argc > 2 && !klevel_parse(argv[2], &opts.level_max)) {
		fprintf(stderr, "levels: ref, avx2, avx512\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (kdev_open_cpu(&dev, &opts, &err) != ST_OK) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	ops = kdev_ops(dev);
	printf("level %s, %u threads\n", ops->name, opts.n_threads);
	return 0;
}

static inline bool bench_wants(int argc, char **argv, const char *part)
{
	for (int i = 3; i < argc; i++)
		if (strcmp(argv[i], part) == 0) return true;
	return argc <= 3;
}

#endif
