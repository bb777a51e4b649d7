/* test_embed_text.c - the document of embeddings: length 1, numbers that are read back as they were, base64. */
#include "frontend/embed_text.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static json_t *document(float *values, uint32_t n, bool is_base64)
{
	struct embed_vector v = {.values = values, .n = n};
	struct strbuf out;
	json_t *j;

	strbuf_init(&out, MIB);
	embed_text_begin(&out, "embd-1", "m", 5);
	embed_text_vector(&out, 0, &v, is_base64);
	embed_text_vector(&out, 1, &v, is_base64);
	embed_text_end(&out, 7);
	j = json_loadb(out.data, out.len, 0, NULL);
	if (!j) fail_msg("%s", out.data);
	strbuf_release(&out);
	return j;
}

static const json_t *embedding(const json_t *j, size_t i)
{
	return json_object_get(json_array_get(json_object_get(j, "data"), i), "embedding");
}

static void test_document(void **state)
{
	float values[] = {3, -4};
	json_t *j = document(values, 2, false);

	assert_string_equal(json_string_value(json_object_get(j, "object")), "list");
	assert_string_equal(json_string_value(json_object_get(j, "model")), "m");
	assert_int_equal(json_array_size(json_object_get(j, "data")), 2);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(j, "data"), 1), "index")), 1);
	assert_true((float)json_number_value(json_array_get(embedding(j, 0), 0)) == 0.6f);
	assert_true((float)json_number_value(json_array_get(embedding(j, 0), 1)) == -0.8f);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "usage"), "total_tokens")), 7);
	json_decref(j);
}

/* Vectors that could go wrong: nothing, huge, tiny, one number. */
static void test_lengths(void **state)
{
	float vectors[][3] = {{0, 0, 0}, {1e30f, 1e30f, -1e30f}, {1e-30f, 0, 1e-30f}, {-7, 0, 0}, {0.1f, 0.2f, 0.3f}};
	size_t i, k;

	for (i = 0; i < ARRAY_LEN(vectors); i++) {
		json_t *j = document(vectors[i], 3, false);
		double sum = 0;

		for (k = 0; k < 3; k++) {
			double x = json_number_value(json_array_get(embedding(j, 0), k));

			assert_true((float)x == vectors[i][k]); /* as it is held, bit for bit */
			sum += x * x;
		}
		assert_true(i == 0 ? sum == 0 : fabs(sum - 1) < 1e-6);
		json_decref(j);
	}
}

static void test_base64(void **state)
{
	static const struct {
		uint32_t n;
		const char *text;
	} rows[] = {{1, "AACAPw=="}, {2, "AACAPwAAAAA="}, {3, "AACAPwAAAAAAAAAA"}};
	float values[3];
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *j;

		memset(values, 0, sizeof(values));
		values[0] = 2;
		j = document(values, rows[i].n, true);
		assert_string_equal(json_string_value(embedding(j, 0)), rows[i].text);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_document),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
