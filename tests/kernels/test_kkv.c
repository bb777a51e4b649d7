/* test_kkv.c - KV memory: its sizes and places by hand, what its types keep of a number, and that every level writes
 * the bits of the plain one, where they belong and nowhere else. */
#include "tests/kernels/rig.h"

#include "common/float8.h"

static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_F32, GGTYPE_BF16, GGTYPE_F8_E4M3, GGTYPE_I8};

static void sizes_are_what_one_counts_by_hand(void **state)
{
	static const struct {
		struct kkv kv;
		size_t block;
	} cases[] = {
		{{.type = GGTYPE_F16, .kv_heads = 8, .k_dim = 128, .v_dim = 128}, 2 * 16 * 8 * 128 * 2},
		{{.type = GGTYPE_BF16, .kv_heads = 2, .k_dim = 64, .v_dim = 64}, 2 * 16 * 2 * 64 * 2},
		{{.type = GGTYPE_F32, .kv_heads = 1, .k_dim = 24, .v_dim = 8}, 16 * (24 + 8) * 4},
		{{.type = GGTYPE_F8_E4M3, .kv_heads = 8, .k_dim = 128, .v_dim = 128}, 2 * 16 * 8 * 128},
		{{.type = GGTYPE_I8, .kv_heads = 8, .k_dim = 128, .v_dim = 128}, 2 * 16 * 8 * (128 + 4)},
		{{.type = GGTYPE_F16, .kv_heads = 1, .k_dim = 576, .v_dim = 512, .latent = true}, 16 * 576 * 2},
		{{.type = GGTYPE_I8, .kv_heads = 1, .k_dim = 576, .v_dim = 512, .latent = true}, 16 * (576 + 4)},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_true(kkv_type_built(cases[i].kv.type));
		assert_int_equal(kkv_block_bytes(&cases[i].kv), cases[i].block);
		/* parts are rounded up to 64 once, however many blocks there are */
		for (uint32_t n = 1; n < 100; n += 7) {
			size_t bytes = kkv_bytes(&cases[i].kv, n);

			assert_true(bytes >= n * cases[i].block && bytes < n * cases[i].block + 4 * 64 &&
				    bytes % 64 == 0);
		}
	}
	assert_false(kkv_type_built(GGTYPE_Q8_0));
	assert_false(kkv_type_built(GGTYPE_F64));
}

static void parts_lie_one_behind_the_other(void **state)
{
	static _Alignas(64) char memory[64 * KIB];

	for (size_t t = 0; t < ARRAY_LEN(types); t++) {
		for (int latent = 0; latent < 2; latent++) {
			struct kkv kv = {.type = types[t],
					 .kv_heads = latent ? 1 : 3,
					 .k_dim = 20,
					 .v_dim = 12,
					 .latent = latent};
			size_t elem = ggtype_row_bytes(types[t], 1), scales = (size_t)5 * kv.kv_heads * 16 * 4;
			size_t k = align_up(5 * kv.kv_heads * 16 * 20 * elem, 64),
			       v = latent ? 0 : align_up(5 * kv.kv_heads * 16 * 12 * elem, 64);
			bool scaled = types[t] == GGTYPE_I8;

			kkv_place(&kv, memory, 5);
			assert_ptr_equal(kv.k, memory);
			assert_ptr_equal(kv.v, latent ? NULL : memory + k);
			assert_ptr_equal(kv.k_scale, scaled ? memory + k + v : NULL);
			assert_ptr_equal(kv.v_scale, scaled && !latent ? memory + k + v + align_up(scales, 64) : NULL);
			assert_int_equal(kkv_bytes(&kv, 5),
					 k + v + (scaled ? (latent ? 1 : 2) * align_up(scales, 64) : 0));
		}
	}
}

/* ---- float8 ---- */

/* By the format's definition. */
static double float8_value(uint8_t x)
{
	int e = x >> 3 & 15, m = x & 7;
	double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);

	return x & 0x80 ? -v : v;
}

static void float8_codes_are_their_values(void **state)
{
	for (unsigned x = 0; x < 256; x++) {
		float f = float8_to_f32((uint8_t)x);

		if ((x & 0x7f) == 0x7f) {
			assert_true(isnan(f));
			continue;
		}
		assert_true((double)f == float8_value((uint8_t)x) && !signbit(f) == !(x & 0x80));
		assert_int_equal(float8_from_f32(f), x);
	}
	assert_int_equal(float8_from_f32(NAN), 0x7f);
	assert_int_equal(float8_from_f32(-NAN), 0x7f);
	assert_int_equal(float8_from_f32(INFINITY), 0x7e);
	assert_int_equal(float8_from_f32(-1e30f), 0xfe);
}

/* The nearest code, the even one of two, found by looking at all. */
static uint8_t float8_nearest(float f)
{
	uint8_t best = 0;

	for (unsigned x = 1; x < 0x7f; x++) {
		double d = fabs(float8_value((uint8_t)x) - fabs((double)f)),
		       than = fabs(float8_value(best) - fabs((double)f));

		if (d < than || (d == than && x % 2 == 0)) best = (uint8_t)x;
	}
	return best | (signbit(f) ? 0x80 : 0);
}

static void float8_rounds_to_nearest_even(void **state)
{
	struct rig_rng r = {7};

	for (int i = 0; i < 200000; i++) {
		float f = ldexpf(rig_normal(&r), (int)rig_range(&r, 0, 24) - 14);

		assert_int_equal(float8_from_f32(f), float8_nearest(f));
	}
	/* all that lie in the middle of two, and their neighbours */
	for (unsigned x = 0; x < 0x7e; x++) {
		float mid = (float)((float8_value((uint8_t)x) + float8_value((uint8_t)(x + 1))) / 2);

		assert_int_equal(float8_from_f32(mid), float8_nearest(mid));
		assert_int_equal(float8_from_f32(-mid), float8_nearest(-mid));
		assert_int_equal(float8_from_f32(nextafterf(mid, 0)), x);
		assert_int_equal(float8_from_f32(nextafterf(mid, 1000)), x + 1);
	}
}

/* ---- writing ---- */

struct store {
	struct kkv kv;
	uint32_t n, n_blocks, slots[40];
	float *k, *v;
};

static float store_number(struct rig_rng *r)
{
	static const uint32_t odd[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
				       0xffc12345, 0x7f800001, 0x00000001, 0x807fffff, 0x7f7fffff,
				       0x477fefff, 0x43e80000, 0x3a800000, 0x387fffff};

	if (rig_u32(r) % 40 == 0) {
		float f;

		memcpy(&f, &odd[rig_u32(r) % ARRAY_LEN(odd)], 4);
		return f;
	}
	if (rig_u32(r) % 8 == 0)
		return ldexpf((float)rig_range(r, 0, 4096) / 4096, (int)rig_range(r, 0, 30) - 20); /* ties */
	return ldexpf(rig_normal(r), (int)rig_range(r, 0, 20) - 12);
}

static struct store store_new(uint64_t seed)
{
	struct rig_rng r = {seed};
	struct store s = {.n_blocks = 5, .n = rig_range(&r, 1, 40)};
	size_t n_k, n_v;

	s.kv.type = types[rig_u32(&r) % ARRAY_LEN(types)];
	s.kv.latent = rig_u32(&r) % 3 == 0;
	s.kv.kv_heads = s.kv.latent ? 1 : rig_range(&r, 1, 4);
	s.kv.k_dim = rig_range(&r, 1, 70);
	s.kv.v_dim = rig_range(&r, 1, s.kv.latent ? s.kv.k_dim : 70);
	for (uint32_t i = 0; i < s.n; i++) s.slots[i] = (i * 37 + (uint32_t)seed) % (s.n_blocks * KBLOCK_LEN);
	n_k = (size_t)s.n * s.kv.kv_heads * s.kv.k_dim;
	n_v = (size_t)s.n * s.kv.kv_heads * s.kv.v_dim;
	s.k = malloc(n_k * sizeof(float));
	s.v = malloc(n_v * sizeof(float));
	for (size_t i = 0; i < n_k; i++) s.k[i] = store_number(&r);
	for (size_t i = 0; i < n_v; i++) s.v[i] = store_number(&r);
	if (rig_u32(&r) % 4 == 0) memset(s.k, 0, s.kv.k_dim * sizeof(float));
	if (rig_u32(&r) % 4 == 0)
		for (uint32_t i = 0; i < s.kv.v_dim; i++) s.v[i] = 1e-35f; /* too small for an int8 scale */
	return s;
}

static void store_free(struct store *s)
{
	free(s->k);
	free(s->v);
}

/* The whole memory after writing, which was all 0xa5 before. */
static uint8_t *store_run(const struct rig_level *level, uint32_t n_threads, const struct store *s, size_t *len)
{
	struct kdev *d = rig_open(level, KACT_Q8, n_threads, 0);
	struct kkv kv = s->kv;
	size_t bytes = kkv_bytes(&kv, s->n_blocks) + 64;
	uint32_t ld_k = kv.kv_heads * kv.k_dim, ld_v = kv.kv_heads * kv.v_dim;
	struct rig_buf k = rig_buf_of(d, s->k, (size_t)s->n * ld_k), v = rig_buf_of(d, s->v, (size_t)s->n * ld_v);
	uint8_t *memory = kdev_alloc(d, bytes), *out = malloc(bytes);
	uint32_t *slots = kdev_alloc(d, sizeof(s->slots));

	assert_true(memory && slots);
	memset(memory, 0xa5, bytes);
	memcpy(slots, s->slots, sizeof(s->slots));
	kkv_place(&kv, memory, s->n_blocks);
	kdev_ops(d)->kv_store(d, &kv, k.data, ld_k, kv.latent ? NULL : v.data, ld_v, slots, s->n);
	kdev_download(d, out, memory, bytes);
	assert_int_equal(kdev_sync(d), ST_OK);
	free(rig_buf_take(&k));
	free(rig_buf_take(&v));
	kdev_release(d, memory, bytes);
	kdev_release(d, slots, sizeof(s->slots));
	kdev_close(d);
	*len = bytes;
	return out;
}

static const struct rig_level store_ref = {&cpu_level_ref, KLEVEL_REF, "ref"};

static void every_level_writes_the_bits_of_ref(void **state)
{
	static const struct rig_level avx2 = {&cpu_level_avx2, KLEVEL_AVX2, "avx2"};

	if (klevel_of_cpu() < KLEVEL_AVX2) skip();
	for (uint64_t seed = 1; seed <= 600; seed++) {
		struct store s = store_new(seed);
		size_t len;
		uint8_t *want = store_run(&store_ref, 1, &s, &len), *got = store_run(&avx2, 1 + seed % 3, &s, &len);

		for (size_t i = 0; i < len; i++)
			if (got[i] != want[i])
				fail_msg("%s, dims %u/%u, seed %llu: byte %zu is %02x, want %02x",
					 ggtype_info(s.kv.type)->name, s.kv.k_dim, s.kv.v_dim, (unsigned long long)seed,
					 i, got[i], want[i]);
		free(want);
		free(got);
		store_free(&s);
	}
}

/* What a type keeps of x; scale is int8's. Independent of the code under test. */
static double store_value(enum ggtype type, const uint8_t *p, float scale)
{
	uint16_t h;
	float f;

	memcpy(&h, p, type == GGTYPE_F16 || type == GGTYPE_BF16 ? 2 : 1);
	if (type == GGTYPE_I8) return (double)scale * (int8_t)*p;
	if (type == GGTYPE_F8_E4M3) return float8_value(*p);
	if (type == GGTYPE_F16) {
		double v = h >> 10 & 31 ? ldexp(1024 + (h & 1023), (h >> 10 & 31) - 25) : ldexp(h & 1023, -24);

		return h & 0x8000 ? -v : v;
	}
	memcpy((char *)&f + 2, &h, 2);
	memset(&f, 0, 2);
	if (type == GGTYPE_F32) memcpy(&f, p, 4);
	return f;
}

/* Half of the last place, relative, and below the smallest normal number. */
static double store_error(enum ggtype type, double x, float scale)
{
	switch (type) {
	case GGTYPE_F16:
		return fmax(fabs(x) * 0x1p-11, 0x1p-25);
	case GGTYPE_BF16:
		return fabs(x) * 0x1p-8;
	case GGTYPE_F8_E4M3:
		return fmax(fabs(x) * 0x1p-4, 0x1p-10);
	case GGTYPE_I8:
		return scale * 0.50001;
	default:
		return 0;
	}
}

static void a_row_check(const struct kkv *kv, const float *x, const uint8_t *base, size_t at, size_t step, uint32_t n,
			const float *scale)
{
	float amax = 0;

	for (uint32_t i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
	if (kv->type == GGTYPE_I8) assert_true(*scale == amax / 127.0f);
	for (uint32_t i = 0; i < n; i++) {
		double got = store_value(kv->type, base + (at + i * step) * ggtype_row_bytes(kv->type, 1),
					 scale ? *scale : 0);

		if (!(fabs(got - x[i]) <= store_error(kv->type, x[i], scale ? *scale : 0)))
			fail_msg("%s keeps %.9g of %.9g", ggtype_info(kv->type)->name, got, (double)x[i]);
	}
}

static void numbers_are_kept_within_half_of_their_last_place(void **state)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct store s = store_new(seed);
		struct rig_rng r = {seed};
		size_t len;
		uint8_t *memory;
		struct kkv kv = s.kv;

		for (size_t i = 0; i < (size_t)s.n * kv.kv_heads * kv.k_dim; i++)
			s.k[i] = ldexpf(rig_normal(&r), (int)rig_range(&r, 0, 8) - 7);
		for (size_t i = 0; i < (size_t)s.n * kv.kv_heads * kv.v_dim; i++)
			s.v[i] = ldexpf(rig_normal(&r), (int)rig_range(&r, 0, 8) - 7);
		memory = store_run(&store_ref, 1, &s, &len);
		kkv_place(&kv, memory, s.n_blocks);
		for (uint32_t t = 0; t < s.n; t++) {
			for (uint32_t h = 0; h < kv.kv_heads; h++) {
				size_t tile = (size_t)(s.slots[t] / KBLOCK_LEN) * kv.kv_heads + h,
				       offset = s.slots[t] % KBLOCK_LEN;
				size_t at = tile * KBLOCK_LEN + offset, row = (size_t)t * kv.kv_heads + h;

				a_row_check(&kv, s.k + row * kv.k_dim, kv.k, tile * KBLOCK_LEN * kv.k_dim + offset,
					    KBLOCK_LEN, kv.k_dim, kv.k_scale ? &kv.k_scale[at] : NULL);
				if (kv.latent) continue;
				a_row_check(&kv, s.v + row * kv.v_dim, kv.v, at * kv.v_dim, 1, kv.v_dim,
					    kv.v_scale ? &kv.v_scale[at] : NULL);
			}
		}
		free(memory);
		store_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_what_one_counts_by_hand),
		cmocka_unit_test(parts_lie_one_behind_the_other),
		cmocka_unit_test(float8_codes_are_their_values),
		cmocka_unit_test(float8_rounds_to_nearest_even),
		cmocka_unit_test(every_level_writes_the_bits_of_ref),
		cmocka_unit_test(numbers_are_kept_within_half_of_their_last_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
