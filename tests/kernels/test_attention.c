/* test_attention.c - attention of all levels that this processor has: every variant (dimensions, windows, soft caps,
 * sinks, latent, types of the cache) gives what its formula says, and the same bits whatever the batch, the chunks and
 * the threads are. */
#include "tests/kernels/attn_check.h"

static struct rig_level levels[KLEVEL_COUNT];
static uint32_t n_levels;

static void levels_find(void)
{
	static const struct rig_level all[] = {
		{&cpu_level_ref, KLEVEL_REF, "ref"},
		{&cpu_level_avx2, KLEVEL_AVX2, "avx2"},
		{&cpu_level_avx512, KLEVEL_AVX512, "avx512"},
	};

	for (uint32_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i].level <= klevel_of_cpu()) levels[n_levels++] = all[i];
	print_message("this processor: %s\n", klevel_name(klevel_of_cpu()));
}

static void expect(const struct rig_level *level, const struct attn_case *c, const float *got, const float *want,
		   const float *sizes, float tolerance)
{
	for (size_t row = 0; row < (size_t)c->n_tokens * c->heads; row++, got += c->kv.v_dim, want += c->kv.v_dim)
		for (uint32_t d = 0; d < c->kv.v_dim; d++)
			if (!(fabsf(got[d] - want[d]) <= tolerance * sizes[row]))
				fail_msg(
					"%s, %s: token %zu, head %zu, dimension %u: %.9g, want %.9g (of the size %.9g)",
					level->name, c->name, row / c->heads, row % c->heads, d, (double)got[d],
					(double)want[d], (double)sizes[row]);
}

static void every_variant_gives_what_its_formula_says(void **state)
{
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct attn_case c = attn_case_new(seed);
		float *sizes = malloc((size_t)c.n_tokens * c.heads * sizeof(float)), *want = attn_want(&c, sizes), *got;

		for (uint32_t l = 0; l < n_levels; l++) {
			got = attn_run(&levels[l], 1, &c, ATTN_BLOCKS_MAX * KBLOCK_LEN, seed);
			expect(&levels[l], &c, got, want, sizes, levels[l].level == KLEVEL_REF ? 1e-6f : 1e-5f);
			free(got);
		}
		free(want);
		free(sizes);
		attn_case_free(&c);
	}
}

static void bits_depend_neither_on_chunks_nor_on_company_nor_on_threads(void **state)
{
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct attn_case c = attn_case_new(seed);

		for (uint32_t l = 0; l < n_levels; l++) {
			float *whole = attn_run(&levels[l], 1, &c, ATTN_BLOCKS_MAX * KBLOCK_LEN, seed);
			float *ones = attn_run(&levels[l], 1 + seed % 6, &c, 1, seed + 1);
			float *pieces = attn_run(&levels[l], 1 + seed % 3, &c, 2 + seed % 19, seed + 2);
			size_t n = (size_t)c.n_tokens * c.heads * c.kv.v_dim;

			rig_expect_same_bits(ones, whole, n, c.name);
			rig_expect_same_bits(pieces, whole, n, c.name);
			free(whole);
			free(ones);
			free(pieces);
		}
		attn_case_free(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_variant_gives_what_its_formula_says),
		cmocka_unit_test(bits_depend_neither_on_chunks_nor_on_company_nor_on_threads),
	};

	levels_find();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
