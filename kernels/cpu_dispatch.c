/* cpu_dispatch.c - what this processor can do, and the CPU device's life.
 *
 * A level counts only when the processor has its instructions (CPUID) and the system saves its registers (XGETBV). */
#include "kernels/cpu.h"

#include "common/mem.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

#define XCR0_AVX    0x06u /* SSE and AVX registers */
#define XCR0_AVX512 0xe6u /* and mask registers, upper halves, 16 more */

static uint64_t cpu_xcr0(void)
{
	uint32_t lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

enum klevel klevel_of_cpu(void)
{
	const uint32_t need_1c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
	const uint32_t need_7b = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
	uint32_t a, b, c, d;
	uint64_t xcr0;

	if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need_1c) != need_1c) return KLEVEL_REF;
	xcr0 = cpu_xcr0();
	if ((xcr0 & XCR0_AVX) != XCR0_AVX) return KLEVEL_REF;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return KLEVEL_REF;
	if ((b & need_7b) != need_7b || !(c & bit_AVX512VNNI)) return KLEVEL_AVX2;
	return (xcr0 & XCR0_AVX512) == XCR0_AVX512 ? KLEVEL_AVX512 : KLEVEL_AVX2;
}

static const struct cpu_level *cpu_level_at(enum klevel level)
{
	static const struct cpu_level *const levels[KLEVEL_COUNT] = {&cpu_level_ref, &cpu_level_avx2,
								     &cpu_level_avx512};

	return levels[level];
}
#else
enum klevel klevel_of_cpu(void)
{
	return KLEVEL_REF;
}

static const struct cpu_level *cpu_level_at(enum klevel level)
{
	return &cpu_level_ref;
}
#endif

static void cpu_dev_close(struct kdev *base)
{
	struct cpu_dev *d = cpu_dev_of(base);

	cpu_stream_release(d);
	cpu_pages_free(d->scratch, d->opts.scratch_bytes);
	free(d);
}

static void *cpu_dev_alloc(struct kdev *base, size_t bytes, bool large_pages)
{
	return cpu_pages_alloc(bytes, large_pages);
}

static void cpu_dev_large_pages(struct kdev *base, void *ptr, size_t bytes)
{
	cpu_pages_large(ptr, bytes);
}

static void cpu_dev_release(struct kdev *base, void *ptr, size_t bytes)
{
	cpu_pages_free(ptr, bytes);
}

#define CPU_COPY_ITEM (64 * KIB)

static void cpu_run_copy(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	size_t from = begin * CPU_COPY_ITEM;
	size_t to = min_size(end * CPU_COPY_ITEM, op->u.copy.bytes);

	memcpy((char *)op->u.copy.dst + from, (const char *)op->u.copy.src + from, to - from);
}

static void cpu_dev_copy(struct kdev *base, void *dst, const void *src, size_t bytes)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_copy, div_up(bytes, CPU_COPY_ITEM), false);

	op->u.copy.dst = dst;
	op->u.copy.src = src;
	op->u.copy.bytes = bytes;
}

static int cpu_dev_sync(struct kdev *base)
{
	cpu_stream_walk(cpu_dev_of(base));
	return ST_OK;
}

static const struct kdev_driver cpu_driver = {
	.close = cpu_dev_close,
	.alloc = cpu_dev_alloc,
	.large_pages = cpu_dev_large_pages,
	.release = cpu_dev_release,
	.upload = cpu_dev_copy,
	.download = cpu_dev_copy,
	.sync = cpu_dev_sync,
};

size_t kdev_scratch_bytes(const struct kdev_limits *lim)
{
	/* The only workspace that grows with the batch: activations as int8, shared by all threads. */
	return cpu_xq_stride((uint32_t)align_up(lim->cols, CPU_QBLOCK)) * max_u32(1, lim->n_tokens);
}

int kdev_open_cpu(struct kdev **out, const struct kdev_opts *opts, struct errbuf *err)
{
	enum klevel level = klevel_of_cpu();

	if (opts->level_max < level) level = opts->level_max;
	return cpu_dev_open(out, cpu_level_at(level), level, opts, err);
}

int cpu_dev_open(struct kdev **out, const struct cpu_level *table, enum klevel level, const struct kdev_opts *opts,
		 struct errbuf *err)
{
	struct cpu_dev *d;
	int rc;

	CHECK(opts->n_threads >= 1);
	d = aligned_alloc(64, align_up(sizeof(*d), 64));
	if (!d) return err_set(err, ST_NO_MEMORY, "no memory for the device");
	memset(d, 0, sizeof(*d));
	d->opts = *opts;
	d->level = table;
	d->base.ops = &d->level->ops;
	d->base.driver = &cpu_driver;
	d->base.level = level;
	rc = cpu_stream_init(d, err);
	if (rc != ST_OK) goto fail;
	d->scratch = cpu_pages_alloc(opts->scratch_bytes, true);
	if (!d->scratch) {
		rc = err_set(err, ST_NO_MEMORY, "no memory for %zu bytes of workspace", opts->scratch_bytes);
		goto fail;
	}
	*out = &d->base;
	return ST_OK;
fail:
	cpu_dev_close(&d->base);
	return rc;
}
