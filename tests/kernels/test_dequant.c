/* test_dequant.c - GGUF blocks to floats and back, against gguf's own results; 16-bit floats over their whole range. */
#include "tests/kernels/golden.h"

#include "common/half.h"

static uint32_t types_seen[64];

static size_t hex_bytes(const char *hex, uint8_t **out)
{
	size_t n = strlen(hex) / 2;

	*out = malloc(n ? n : 1);
	for (size_t i = 0; i < n; i++) {
		char two[3] = {hex[2 * i], hex[2 * i + 1], 0};

		(*out)[i] = (uint8_t)strtoul(two, NULL, 16);
	}
	return n;
}

static void check_block(const json_t *o)
{
	const char *id = json_string_value(json_object_get(o, "id"));
	enum ggtype type = (enum ggtype)json_integer_value(json_object_get(o, "ggml_type"));
	const json_t *floats = json_object_get(o, "floats"), *from = json_object_get(o, "quantized_from");
	size_t n = json_array_size(floats), n_bytes;
	float *got = malloc(n * sizeof(float));
	uint8_t *bytes, *back;

	n_bytes = hex_bytes(json_string_value(json_object_get(o, "hex")), &bytes);
	back = calloc(1, n_bytes);
	assert_true(kdequant_supported(type));
	assert_int_equal(ggtype_row_bytes(type, n), n_bytes);
	assert_int_equal(kdequant_row(type, bytes, got, n), ST_OK);
	for (size_t i = 0; i < n; i++) {
		double want = json_number_value(json_array_get(floats, i));
		double limit = type == GGTYPE_F16 || type == GGTYPE_BF16 ? 0 : 2e-6 * fabs(want);

		if (!(fabs(got[i] - (double)(float)want) <= limit))
			fail_msg("%s: value %zu: %.9g, want %.9g", id, i, (double)got[i], want);
	}
	types_seen[type]++;
	if (json_array_size(from) == n) {
		for (size_t i = 0; i < n; i++) got[i] = (float)json_number_value(json_array_get(from, i));
		if (kquant_row(type, got, back, n) == ST_OK) {
			if (type == GGTYPE_Q8_0 || type == GGTYPE_F16 || type == GGTYPE_BF16)
				assert_memory_equal(back, bytes, n_bytes);
			else
				assert_memory_equal(back, bytes, 2); /* the scale; ties of values may differ */
		}
	}
	free(got);
	free(bytes);
	free(back);
}

static void blocks_are_what_gguf_makes_of_them(void **state)
{
	golden_walk("quant/blocks.jsonl", check_block);
	for (uint32_t t = 0; t < ARRAY_LEN(types_seen); t++)
		if (ggtype_info(t) && kdequant_supported((enum ggtype)t) && t != GGTYPE_F32 && !types_seen[t])
			fail_msg("no case for %s", ggtype_info(t)->name);
}

static void f16_goes_both_ways(void **state)
{
	for (uint32_t h = 0; h < 0x10000; h++) {
		float f = half_to_f32((uint16_t)h);

		if (f != f) continue;
		assert_int_equal(half_from_f32(f), h);
		/* between neighbours the nearest, on a tie the even one */
		if ((h & 0x7fff) >= 0x7bff) continue;
		{
			float next = half_to_f32((uint16_t)(h + 1)), mid = f + (next - f) / 2;

			assert_int_equal(half_from_f32(mid), h & 1 ? h + 1 : h);
			assert_int_equal(half_from_f32(nextafterf(mid, f)), h);
			assert_int_equal(half_from_f32(nextafterf(mid, next)), h + 1);
		}
	}
	assert_int_equal(half_from_f32(65519.996f), 0x7bff);
	assert_int_equal(half_from_f32(65520.0f), 0x7c00);
	assert_true(half_to_f32(half_from_f32(NAN)) != half_to_f32(half_from_f32(NAN)));
}

static void bf16_rounds_to_even(void **state)
{
	for (uint32_t h = 0; h < 0x10000; h++) {
		float f = half_bf16_to_f32((uint16_t)h);

		if (f != f) continue;
		assert_int_equal(half_bf16_from_f32(f), h);
		if ((h & 0x7fff) >= 0x7f7f) continue;
		assert_int_equal(half_bf16_from_f32(half_bits_f32(h << 16 | 0x8000)), h & 1 ? h + 1 : h);
		assert_int_equal(half_bf16_from_f32(half_bits_f32(h << 16 | 0x7fff)), h);
		assert_int_equal(half_bf16_from_f32(half_bits_f32(h << 16 | 0x8001)), h + 1);
	}
}

/* A float8 by its definition. */
static double e4m3(uint32_t byte)
{
	int exponent = byte >> 3 & 15, mantissa = byte & 7;
	double v = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);

	if ((byte & 0x7f) == 0x7f) return NAN;
	return byte & 0x80 ? -v : v;
}

static void blocks_of_float8_are_scaled(void **state)
{
	static const float scales[] = {1.0f, 0.0123f, -3.5f, 1e-30f};
	uint8_t row[8 * 36];
	float got[256];

	for (size_t s = 0; s < ARRAY_LEN(scales); s++) {
		for (uint32_t b = 0; b < 8; b++) {
			memcpy(row + b * 36, &scales[s], 4);
			for (uint32_t i = 0; i < 32; i++) row[b * 36 + 4 + i] = (uint8_t)(b * 32 + i);
		}
		assert_int_equal(kdequant_row(GGTYPE_F8_B32, row, got, 256), ST_OK);
		for (uint32_t i = 0; i < 256; i++) {
			float want = (float)(e4m3(i) * scales[s]);

			assert_true(got[i] == want || (want != want && got[i] != got[i]));
		}
	}
}

static void blocks_with_zero_points_are_exact(void **state)
{
	uint8_t row[20];
	float got[32];

	for (int zero = -1; zero <= 16; zero++) {
		for (uint32_t d = 1; d < 0x7c00; d += 97) {
			uint16_t half = (uint16_t)d, offset = half_from_f32((float)-zero);

			memcpy(row, &half, 2);
			memcpy(row + 2, &offset, 2);
			for (uint32_t i = 0; i < 16; i++) row[4 + i] = (uint8_t)(i | (15 - i) << 4);
			assert_int_equal(kdequant_row(GGTYPE_Q4_Z, row, got, 32), ST_OK);
			for (int i = 0; i < 16; i++) {
				assert_true((double)got[i] == (double)half_to_f32(half) * (i - zero));
				assert_true((double)got[i + 16] == (double)half_to_f32(half) * (15 - i - zero));
			}
		}
	}
}

static void our_types_are_quantized_to_the_nearest(void **state)
{
	struct rig_rng r = {5};

	for (int round = 0; round < 200; round++) {
		float *x = rig_floats(&r, 32), max = 0, span = 0, got[32];
		uint8_t row[36];

		if (round == 0) memset(x, 0, 32 * sizeof(float));
		for (int i = 0; i < 32; i++) {
			if (round % 3 == 1) x[i] = fabsf(x[i]);
			max = fmaxf(max, fabsf(x[i]));
		}
		assert_int_equal(kquant_row(GGTYPE_F8_B32, x, row, 32), ST_OK);
		assert_int_equal(kdequant_row(GGTYPE_F8_B32, row, got, 32), ST_OK);
		for (int i = 0; i < 32; i++) assert_true(fabsf(got[i] - x[i]) <= fabsf(x[i]) / 15.9f + max * 0x1p-17f);
		assert_int_equal(kquant_row(GGTYPE_Q4_Z, x, row, 32), ST_OK);
		assert_int_equal(kdequant_row(GGTYPE_Q4_Z, row, got, 32), ST_OK);
		span = half_load(
			row); /* the distance of two values; the rounded zero point moves the ends by half of it */
		for (int i = 0; i < 32; i++) assert_true(fabsf(got[i] - x[i]) <= span * 1.02f);
		free(x);
	}
}

static void unknown_types_are_refused(void **state)
{
	float x[256] = {0};
	uint8_t row[1024] = {0};

	assert_false(kdequant_supported(GGTYPE_I32));
	assert_int_equal(kdequant_row(GGTYPE_I32, row, x, 32), ST_UNSUPPORTED);
	assert_int_equal(kdequant_row(GGTYPE_Q8_K, row, x, 256), ST_UNSUPPORTED);
	assert_int_equal(kquant_row(GGTYPE_Q6_K, x, row, 256), ST_UNSUPPORTED);
}

/* Philox4x32-10's known answers, from the Random123 distribution. */
static void philox_gives_the_known_answers(void **state)
{
	static const struct {
		uint32_t key[2], counter[4], want[4];
	} cases[] = {
		{{0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{0xffffffff, 0xffffffff},
		 {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
		 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0xa4093822, 0x299f31d0},
		 {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t out[4];

		kphilox(cases[i].key, cases[i].counter, out);
		assert_memory_equal(out, cases[i].want, sizeof(out));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_what_gguf_makes_of_them),
		cmocka_unit_test(f16_goes_both_ways),
		cmocka_unit_test(bf16_rounds_to_even),
		cmocka_unit_test(blocks_of_float8_are_scaled),
		cmocka_unit_test(blocks_with_zero_points_are_exact),
		cmocka_unit_test(our_types_are_quantized_to_the_nearest),
		cmocka_unit_test(unknown_types_are_refused),
		cmocka_unit_test(philox_gives_the_known_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
