/* test_attention.c - attention of all levels that this processor has: every variant (dimensions, windows, soft caps,
 * sinks, latent, types of the cache) gives what its formula says, and the same bits whatever the batch, the chunks and
 * the threads are. */
#include "tests/kernels/attn_check.h"

/* How many cases of its kind are made at random; a fourth with sanitizers. */
#ifdef SLUICE_SAN
#define SEEDS(n) ((n) / 4)
#else
#define SEEDS(n) (n)
#endif

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

/* The AVX-512 level has the AVX2 level's functions: a few cases tell whether its table does. */
static bool is_enough(uint32_t l, uint64_t seed)
{
	return levels[l].level == KLEVEL_AVX512 && seed % 16 != 0;
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

static void expect_all_levels(const struct attn_case *c, uint64_t seed)
{
	float *sizes = malloc((size_t)c->n_tokens * c->heads * sizeof(float)), *want = attn_want(c, sizes);

	for (uint32_t l = 0; l < n_levels; l++) {
		float *got;

		if (is_enough(l, seed)) continue;
		got = attn_run(&levels[l], 1, c, ATTN_BLOCKS_MAX * KBLOCK_LEN, seed);

		expect(&levels[l], c, got, want, sizes, levels[l].level == KLEVEL_REF ? 1e-6f : 1e-5f);
		free(got);
	}
	free(want);
	free(sizes);
}

static void every_variant_gives_what_its_formula_says(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS(150); seed++) {
		struct attn_case c = attn_case_new(seed);

		expect_all_levels(&c, seed);
		attn_case_free(&c);
	}
}

static void shapes_of_published_models_agree_with_the_formula(void **state)
{
	static const struct attn_case models[] = {
		{.heads = 32, .kv = {.kv_heads = 8, .k_dim = 128, .v_dim = 128}}, /* Llama 3.1 8B */
		{.heads = 32, .kv = {.kv_heads = 32, .k_dim = 96, .v_dim = 96}},  /* Phi-3 mini */
		{.heads = 16,
		 .kv = {.kv_heads = 8, .k_dim = 256, .v_dim = 256},
		 .softcap = 50,
		 .window = 20},                                                                /* Gemma 2 9B */
		{.heads = 4, .kv = {.kv_heads = 1, .k_dim = 256, .v_dim = 256}, .window = 33}, /* Gemma 3 270M */
		{.heads = 64, .kv = {.kv_heads = 8, .k_dim = 64, .v_dim = 64}, .window = 17},  /* gpt-oss, with sinks */
		{.heads = 128, .kv = {.kv_heads = 1, .k_dim = 576, .v_dim = 512, .latent = true}}, /* DeepSeek-V3 */
		{.heads = 16, .kv = {.kv_heads = 1, .k_dim = 576, .v_dim = 512, .latent = true}}, /* DeepSeek-V2 Lite */
		{.heads = 16, .kv = {.kv_heads = 16, .k_dim = 192, .v_dim = 128}}, /* the same, not absorbed */
	};

	for (size_t i = 0; i < ARRAY_LEN(models); i++) {
		for (size_t t = 0; t < ARRAY_LEN(attn_types); t++) {
			struct rig_rng r = {i * 8 + t + 1};
			struct attn_case c = models[i];

			c.kv.type = attn_types[t];
			c.n_seqs = 1;
			c.scale = 1 / sqrtf((float)c.kv.k_dim);
			attn_case_fill(&c, &r, c.heads * c.kv.k_dim > 10000 ? 20 : 50, c.heads == 64);
			expect_all_levels(&c, i + 1);
			attn_case_free(&c);
		}
	}
}

static void bits_depend_neither_on_chunks_nor_on_company_nor_on_threads(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS(150); seed++) {
		struct attn_case c = attn_case_new(seed);

		for (uint32_t l = 0; l < n_levels; l++) {
			size_t n = (size_t)c.n_tokens * c.heads * c.kv.v_dim;
			float *whole, *ones, *pieces;

			if (is_enough(l, seed)) continue;
			whole = attn_run(&levels[l], 1, &c, ATTN_BLOCKS_MAX * KBLOCK_LEN, seed);
			ones = attn_run(&levels[l], 1 + seed % 6, &c, 1, seed + 1);
			pieces = attn_run(&levels[l], 1 + seed % 3, &c, 2 + seed % 19, seed + 2);
			rig_expect_same_bits(ones, whole, n, c.name);
			rig_expect_same_bits(pieces, whole, n, c.name);
			free(whole);
			free(ones);
			free(pieces);
		}
		attn_case_free(&c);
	}
}

/* Whether a token at `pos` sees position `at` of its sequence. */
static bool sees(const struct attn_case *c, uint32_t pos, uint32_t at)
{
	return at <= pos && (c->window == 0 || pos - at < c->window);
}

/* Dimension d of the keys (or else values) of the first sequence's position `at`, kv head 0, became NaN. */
static void expect_nan(const struct attn_case *c, const float *got, const float *clean, bool in_key, uint32_t at,
		       uint32_t d)
{
	uint32_t group = c->heads / c->kv.kv_heads, row = 0;
	bool all = in_key || c->kv.latent || c->kv.type == GGTYPE_I8; /* a score, or the scale of a vector */

	for (uint32_t s = 0; s < c->n_seqs; s++) {
		for (uint32_t pos = 0; pos < c->lens[s]; pos++, row++) {
			for (uint32_t i = 0; i < c->heads * c->kv.v_dim; i++, got++, clean++) {
				bool is_nan = s == 0 && sees(c, pos, at) && i / c->kv.v_dim < group &&
					      (all || i % c->kv.v_dim == d);

				if (is_nan ? isnan(*got) : memcmp(got, clean, 4) == 0) continue;
				fail_msg("%s: NaN in a %s at %u, dimension %u: token %u of sequence %u, element %u is "
					 "%g, was %g",
					 c->name, in_key ? "key" : "value", at, d, pos, s, i, (double)*got,
					 (double)*clean);
			}
		}
	}
}

static void a_nan_reaches_those_who_see_it_and_nobody_else(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS(60); seed++) {
		struct attn_case c = attn_case_new(seed);
		struct rig_rng r = {seed};
		uint32_t at = rig_u32(&r) % c.lens[0], d = rig_u32(&r) % (seed & 1 ? c.kv.k_dim : c.kv.v_dim),
			 chunk = seed % 5 ? 128 : 3;
		bool in_key = seed & 1 || c.kv.latent;
		float *x = in_key ? c.k + (size_t)at * c.kv.kv_heads * c.kv.k_dim + d
				  : c.v + (size_t)at * c.kv.kv_heads * c.kv.v_dim + d;
		float was = *x;

		for (uint32_t l = 0; l < n_levels; l++) {
			float *clean, *got;

			if (is_enough(l, seed)) continue;
			clean = attn_run(&levels[l], 1, &c, chunk, seed);
			*x = NAN;
			got = attn_run(&levels[l], 1, &c, chunk, seed);
			*x = was;
			expect_nan(&c, got, clean, in_key, at, d);
			free(clean);
			free(got);
		}
		attn_case_free(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_variant_gives_what_its_formula_says),
		cmocka_unit_test(shapes_of_published_models_agree_with_the_formula),
		cmocka_unit_test(a_nan_reaches_those_who_see_it_and_nobody_else),
		cmocka_unit_test(bits_depend_neither_on_chunks_nor_on_company_nor_on_threads),
	};

	levels_find();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
