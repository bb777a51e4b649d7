/* test_kernel_ops.c - the levels that this processor has: each operation agrees with the reference over odd shapes,
 * writes nothing beside its output, and gives the same bits however the work is cut. */
#include "tests/kernels/attention_check.h"
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
		cmocka_unit_test(embedding_rows_are_dequantized_rows),
		cmocka_unit_test(row_operations_agree_with_ref),
	};

	levels_find();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
