/* test_kernel_avx512.c - the AVX-512 products against the reference: the very source, compiled once more with SIMDe's
 * emulation of the instructions, so that it runs on any processor with AVX2; and natively where the processor has them.
 * Bit by bit equal to the AVX2 level too: both do the same f32 operations in the same order. */
#if defined(__has_include)
#if __has_include(<simde/x86/avx512.h>)
#define HAVE_SIMDE 1
#endif
#endif

#ifdef HAVE_SIMDE
#include <math.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

/* What SIMDe 0.7.4 lacks, from its 256-bit halves. */
static inline simde__m512 emulated_join(simde__m256 lo, simde__m256 hi)
{
	simde__m512 v;

	memcpy(&v, &lo, 32);
	memcpy((char *)&v + 32, &hi, 32);
	return v;
}

static inline simde__m512 emulated_cvtph_ps(simde__m256i h)
{
	return emulated_join(simde_mm256_cvtph_ps(simde_mm256_extracti128_si256(h, 0)),
			     simde_mm256_cvtph_ps(simde_mm256_extracti128_si256(h, 1)));
}

static inline simde__m512 emulated_cvtepi32_ps(simde__m512i x)
{
	simde__m256i part[2];

	memcpy(part, &x, 64);
	return emulated_join(simde_mm256_cvtepi32_ps(part[0]), simde_mm256_cvtepi32_ps(part[1]));
}

static inline simde__m512i emulated_join_int(simde__m256i lo, simde__m256i hi)
{
	simde__m512i v;

	memcpy(&v, &lo, 32);
	memcpy((char *)&v + 32, &hi, 32);
	return v;
}

static inline simde__m512i emulated_cvtepu16_epi32(simde__m256i x)
{
	return emulated_join_int(simde_mm256_cvtepu16_epi32(simde_mm256_extracti128_si256(x, 0)),
				 simde_mm256_cvtepu16_epi32(simde_mm256_extracti128_si256(x, 1)));
}

static inline simde__m512i emulated_cvtepu8_epi32(simde__m128i x)
{
	return emulated_join_int(simde_mm256_cvtepu8_epi32(x), simde_mm256_cvtepu8_epi32(simde_mm_srli_si128(x, 8)));
}

static inline simde__m512i emulated_cvtepi8_epi32(simde__m128i x)
{
	return emulated_join_int(simde_mm256_cvtepi8_epi32(x), simde_mm256_cvtepi8_epi32(simde_mm_srli_si128(x, 8)));
}

/* SIMDe rounds twice where the processor fuses. */
static inline simde__m512 emulated_fmadd_ps(simde__m512 a, simde__m512 b, simde__m512 c)
{
	float x[16], y[16], z[16];

	memcpy(x, &a, 64);
	memcpy(y, &b, 64);
	memcpy(z, &c, 64);
	for (int i = 0; i < 16; i++) z[i] = fmaf(x[i], y[i], z[i]);
	memcpy(&c, z, 64);
	return c;
}

#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps emulated_fmadd_ps
#undef _mm512_cvtph_ps
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtph_ps       emulated_cvtph_ps
#define _mm512_cvtepi32_ps    emulated_cvtepi32_ps
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define SLUICE_AVX512_EMULATED
#define avx512_product avx512_product_emulated
#include "kernels/cpu.h"
/* Inlined and unrolled, the emulation takes minutes to compile. */
#undef CPU_INLINE
#undef CPU_UNROLL
#define CPU_INLINE static
#define CPU_UNROLL
#define avx512_k_group avx512_k_group_emulated
#include "kernels/avx512_k_product.c"
#include "kernels/avx512_product.c"
#endif

#include "tests/kernels/ops_check.h"

static struct cpu_level emulated;
static struct rig_level levels[2];
static uint32_t n_levels;

static void levels_find(void)
{
	if (klevel_of_cpu() < KLEVEL_AVX2) {
		print_message("SKIPPED: this processor has no AVX2, which the AVX-512 level builds on\n");
		return;
	}
#ifdef HAVE_SIMDE
	emulated = cpu_level_avx2;
	emulated.layout = CPU_LAYOUT_GROUPS16;
	emulated.product = avx512_product_emulated;
	levels[n_levels++] = (struct rig_level){&emulated, KLEVEL_AVX2, "avx512 emulated"};
#else
	print_message("SKIPPED: no emulation (libsimde-dev is not installed)\n");
#endif
	if (klevel_of_cpu() >= KLEVEL_AVX512)
		levels[n_levels++] = (struct rig_level){&cpu_level_avx512, KLEVEL_AVX512, "avx512"};
	else
		print_message("SKIPPED: native AVX-512, which this processor does not have\n");
}

static void products_agree_with_ref(void **state)
{
	if (n_levels == 0) skip();
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 60; seed++) ops_check_product(&levels[l], KACT_Q8, seed, 19);
		for (uint64_t seed = 1000; seed <= 1030; seed++) ops_check_product(&levels[l], KACT_F32, seed, 9);
	}
}

static void embedding_rows_are_dequantized_rows(void **state)
{
	if (n_levels == 0) skip();
	for (uint32_t l = 0; l < n_levels; l++)
		for (uint64_t seed = 1; seed <= 60; seed++)
			ops_check_embed(&levels[l], seed & 1 ? KACT_Q8 : KACT_F32, seed);
}

static void products_have_the_bits_of_avx2(void **state)
{
	static const struct rig_level avx2 = {&cpu_level_avx2, KLEVEL_AVX2, "avx2"};

	if (n_levels == 0) skip();
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 40; seed++) {
			struct rig_rng r = {seed};
			struct ops_product p = ops_product_new(&r, 12);
			struct kdev *a = rig_open(&avx2, KACT_Q8, 1, 1 << 20),
				    *b = rig_open(&levels[l], KACT_Q8, 2, 1 << 20);
			float *want[4], *got[4];

			ops_product_run(a, &p, p.n, want);
			ops_product_run(b, &p, p.n, got);
			for (uint32_t i = 0; i < p.n_outs; i++) {
				rig_expect_same_bits(got[i], want[i], (size_t)p.n * (p.rows[i] + 3), levels[l].name);
				free(want[i]);
				free(got[i]);
			}
			ops_product_free(&p);
			kdev_close(a);
			kdev_close(b);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_agree_with_ref),
		cmocka_unit_test(embedding_rows_are_dequantized_rows),
		cmocka_unit_test(products_have_the_bits_of_avx2),
	};

	levels_find();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
