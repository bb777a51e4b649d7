/* test_kernel_ops.c - the levels that this processor has: each operation agrees with the reference over odd shapes,
 * writes nothing beside its output, and gives the same bits however the work is cut. */
#include "tests/kernels/ops_check.h"

static struct rig_level levels[KLEVEL_COUNT];
static uint32_t n_levels;

static void levels_find(void)
{
	n_levels = rig_levels(levels);
	print_message("this processor: %s\n", klevel_name(klevel_of_cpu()));
}

static void products_with_int8_inputs_agree_with_ref(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint64_t seed = 1; seed <= 150; seed++) ops_check_product(&levels[l], KACT_Q8, seed, 19);
}

static void products_with_f32_inputs_agree_with_ref(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint64_t seed = 1000; seed <= 1080; seed++) ops_check_product(&levels[l], KACT_F32, seed, 9);
}

static void products_of_many_rows_agree_with_ref(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint64_t seed = 2000; seed <= 2010; seed++) ops_check_product(&levels[l], KACT_Q8, seed, 150);
}

/* Products do not look for a float8 that is none; the matrix does when it is filled. */
static void a_float8_nan_reaches_its_row_alone(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		struct rig_rng r = {3};
		struct kdev *d = rig_open(&levels[l], KACT_Q8, 1, 0);
		uint8_t *w = ops_rows(&r, GGTYPE_F8_B32, 20, 64);
		float *x = rig_floats(&r, 64), *got;
		struct rig_buf xb = rig_buf_of(d, x, 64), y = rig_buf_new(d, 20);
		struct kmat m;
		struct kmat_out o = {.w = &m, .out = y.data};

		w[17 * 72 + 36 + 4 + 9] = 0xff;
		m = rig_mat(d, GGTYPE_F8_B32, 20, 64, w);
		kdev_ops(d)->matmul(d, xb.data, 64, 1, &o, 1);
		got = rig_buf_take(&y);
		for (int i = 0; i < 20; i++) assert_true((got[i] != got[i]) == (i == 17));
		kdev_release(d, m.data, m.bytes);
		free(rig_buf_take(&xb));
		free(got);
		free(x);
		free(w);
		kdev_close(d);
	}
}

static void embedding_rows_are_dequantized_rows(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint64_t seed = 1; seed <= 60; seed++)
			ops_check_embed(&levels[l], seed & 1 ? KACT_Q8 : KACT_F32, seed);
}

static void row_operations_agree_with_ref(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint64_t seed = 1; seed <= 60; seed++) ops_check_rows(&levels[l], seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_with_int8_inputs_agree_with_ref),
		cmocka_unit_test(products_with_f32_inputs_agree_with_ref),
		cmocka_unit_test(products_of_many_rows_agree_with_ref),
		cmocka_unit_test(a_float8_nan_reaches_its_row_alone),
		cmocka_unit_test(embedding_rows_are_dequantized_rows),
		cmocka_unit_test(row_operations_agree_with_ref),
	};

	levels_find();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
