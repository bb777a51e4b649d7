/* test_cpu_stream.c - operations run in order, each item once, whatever the number of threads; made for TSan too. */
#include "tests/kernels/rig.h"

enum { LEN = 3000 };

/* A chain in which every operation needs the one before, on other items than its thread had: a lost or torn barrier
 * shows as a wrong number (and as a race in TSan). Item i of step s: out[i] = in[(i * 7 + s) % n] + 1. */
static void run_chain(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const float *in = op->u.gather.x;
	float *out = op->u.gather.out;

	for (uint32_t i = begin; i < end; i++) out[i] = in[(i * 7 + op->u.gather.dim) % op->n_items] + 1;
}

static void push_chain(struct cpu_dev *d, float *out, const float *in, uint32_t step, uint32_t n, bool solo)
{
	struct cpu_op *op = cpu_stream_push(d, run_chain, n, solo);

	op->u.gather.out = out;
	op->u.gather.x = in;
	op->u.gather.dim = step;
}

static struct cpu_dev *stream_open(uint32_t n_threads, uint32_t spin_us, bool pin)
{
	struct kdev_opts opts = {.n_threads = n_threads, .spin_us = spin_us, .pin_threads = pin};
	struct errbuf err;
	struct kdev *d;

	assert_int_equal(kdev_open_cpu(&d, &opts, &err), ST_OK);
	return cpu_dev_of(d);
}

static void check_chain(uint32_t n_threads, uint32_t spin_us, uint32_t n_ops, uint32_t n_syncs, int solo_every,
			uint64_t seed)
{
	struct cpu_dev *d = stream_open(n_threads, spin_us, seed & 1);
	struct rig_rng r = {seed};
	float *a = calloc(LEN, sizeof(float)), *b = calloc(LEN, sizeof(float)), *want = calloc(LEN, sizeof(float));
	float *next = calloc(LEN, sizeof(float)), *swap;

	for (uint32_t sync = 0; sync < n_syncs; sync++) {
		for (uint32_t i = 0; i < n_ops; i++) {
			uint32_t step = rig_u32(&r) % LEN;

			push_chain(d, b, a, step, LEN, solo_every && rig_u32(&r) % (uint32_t)solo_every == 0);
			for (uint32_t j = 0; j < LEN; j++) next[j] = want[(j * 7 + step) % LEN] + 1;
			swap = a, a = b, b = swap;
			swap = want, want = next, next = swap;
		}
		assert_int_equal(kdev_sync(&d->base), ST_OK);
		assert_memory_equal(a, want, LEN * sizeof(float));
	}
	kdev_close(&d->base);
	free(a);
	free(b);
	free(want);
	free(next);
}

static void operations_run_in_order(void **state)
{
	for (uint32_t threads = 1; threads <= 6; threads++) check_chain(threads, 0, 40, 10, 0, threads);
}

static void solo_operations_keep_their_place(void **state)
{
	for (uint32_t threads = 2; threads <= 4; threads++) {
		check_chain(threads, 0, 40, 10, 2, threads);
		check_chain(threads, 0, 10, 20, 1, threads);
	}
}

/* With a spin of almost nothing every wait ends in the futex. */
static void sleeping_threads_are_woken(void **state)
{
	for (uint32_t threads = 2; threads <= 5; threads++) check_chain(threads, 1, 10, 60, 4, threads);
}

static void every_item_runs_once(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 5, 16, 17, 100, 2999};

	for (uint32_t threads = 1; threads <= 5; threads += 2) {
		struct cpu_dev *d = stream_open(threads, 0, false);
		float *count = malloc(LEN * sizeof(float)), *zero = calloc(LEN, sizeof(float));

		for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
			memset(count, 0, LEN * sizeof(float));
			push_chain(d, count, zero, 0, sizes[s], false);
			assert_int_equal(kdev_sync(&d->base), ST_OK);
			for (uint32_t i = 0; i < LEN; i++) assert_true(count[i] == (i < sizes[s] ? 1.0f : 0.0f));
		}
		free(zero);
		free(count);
		kdev_close(&d->base);
	}
}

static void copies_are_exact_and_ordered(void **state)
{
	enum { BYTES = 1000003 };
	struct cpu_dev *d = stream_open(3, 0, false);
	uint8_t *host = malloc(BYTES), *back = malloc(BYTES), *a, *b;

	for (size_t i = 0; i < BYTES; i++) host[i] = (uint8_t)(i * 31 + i / 251);
	a = kdev_alloc(&d->base, BYTES);
	b = kdev_alloc(&d->base, BYTES);
	assert_true((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
	kdev_upload(&d->base, a, host, BYTES);
	kdev_upload(&d->base, b, a, BYTES);
	kdev_download(&d->base, back, b, BYTES);
	assert_int_equal(kdev_sync(&d->base), ST_OK);
	assert_memory_equal(host, back, BYTES);
	kdev_release(&d->base, a, BYTES);
	kdev_release(&d->base, b, BYTES);
	kdev_close(&d->base);
	free(host);
	free(back);
}

static void memory_is_zeroed_lazily_and_refused_when_absurd(void **state)
{
	struct cpu_dev *d = stream_open(1, 0, false);
	size_t bytes = 256 * MIB + 12345;
	uint8_t *p = kdev_alloc(&d->base, bytes);

	assert_non_null(p);
	assert_int_equal(p[0] | p[bytes / 2] | p[bytes - 1], 0);
	p[bytes - 1] = 1;
	kdev_release(&d->base, p, bytes);
	assert_null(kdev_alloc(&d->base, SIZE_MAX / 2 + 1));
	assert_null(kdev_alloc(&d->base, (size_t)1 << 60));
	kdev_close(&d->base);
}

static void devices_open_and_close_at_once(void **state)
{
	for (int i = 0; i < 50; i++) {
		struct cpu_dev *d = stream_open(4, i % 2 ? 1 : 0, false);

		if (i % 3 == 0) assert_int_equal(kdev_sync(&d->base), ST_OK); /* nothing enqueued */
		kdev_close(&d->base);
	}
	kdev_close(NULL);
}

static void levels_have_names(void **state)
{
	enum klevel level;

	for (int i = 0; i < KLEVEL_COUNT; i++) {
		assert_true(klevel_parse(klevel_name((enum klevel)i), &level));
		assert_int_equal(level, i);
	}
	assert_false(klevel_parse("sse9", &level));
	for (int i = 0; i < KLEVEL_COUNT; i++) {
		struct kdev_opts opts = {.n_threads = 1, .level_max = (enum klevel)i};
		struct errbuf err;
		struct kdev *d;

		assert_int_equal(kdev_open_cpu(&d, &opts, &err), ST_OK);
		assert_true(kdev_level(d) <= opts.level_max && kdev_level(d) <= klevel_of_cpu());
		assert_string_equal(kdev_ops(d)->name, klevel_name(kdev_level(d)));
		kdev_close(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_run_in_order),
		cmocka_unit_test(solo_operations_keep_their_place),
		cmocka_unit_test(sleeping_threads_are_woken),
		cmocka_unit_test(every_item_runs_once),
		cmocka_unit_test(copies_are_exact_and_ordered),
		cmocka_unit_test(memory_is_zeroed_lazily_and_refused_when_absurd),
		cmocka_unit_test(devices_open_and_close_at_once),
		cmocka_unit_test(levels_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
