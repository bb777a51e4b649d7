/* test_kernel_copy.c - copies between rows of different widths: what is copied, zeros, and nothing beside it. */
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 37, GROUPS = 3, DIM = 11, LD_X = 50, X_STEP = 14, LD_OUT = 80, OUT_STEP = 25 };

static bool is_copied(uint32_t c)
{
	return c / OUT_STEP < GROUPS && c % OUT_STEP < DIM;
}

static void check(struct kdev *d, bool zeros)
{
	size_t x_bytes = ROWS * LD_X * sizeof(float), out_bytes = ROWS * LD_OUT * sizeof(float);
	float *x = kdev_alloc(d, x_bytes), *out = kdev_alloc(d, out_bytes);
	struct kcopy a = {.out = out,
			  .ld_out = LD_OUT,
			  .out_step = OUT_STEP,
			  .x = zeros ? NULL : x,
			  .ld_x = LD_X,
			  .x_step = X_STEP,
			  .groups = GROUPS,
			  .dim = DIM};

	assert_non_null(x);
	assert_non_null(out);
	for (uint32_t i = 0; i < ROWS * LD_X; i++) x[i] = (float)i;
	for (uint32_t i = 0; i < ROWS * LD_OUT; i++) out[i] = -1;
	kdev_ops(d)->copy(d, &a, ROWS);
	assert_int_equal(kdev_sync(d), ST_OK);
	for (uint32_t i = 0; i < ROWS; i++)
		for (uint32_t c = 0; c < LD_OUT; c++) {
			float from = (float)(i * LD_X + c / OUT_STEP * X_STEP + c % OUT_STEP);

			assert_true(out[i * LD_OUT + c] == (!is_copied(c) ? -1 : zeros ? 0 : from));
		}
	kdev_release(d, x, x_bytes);
	kdev_release(d, out, out_bytes);
}

static void copies_groups_of_rows(void **state)
{
	for (uint32_t threads = 1; threads <= 3; threads++) {
		struct kdev_opts opts = {.level_max = KLEVEL_AVX512, .n_threads = threads, .scratch_bytes = 1 << 20};
		struct kdev *d;
		struct errbuf err;

		assert_int_equal(kdev_open_cpu(&d, &opts, &err), ST_OK);
		check(d, false);
		check(d, true);
		kdev_close(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(copies_groups_of_rows)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
