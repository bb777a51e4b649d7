/* test_memplan.c - the plan of a worker's memory: parts that do not overlap, and how the KV cache gets its size. */
#include "worker/memplan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct memplan plan_of(uint32_t tokens, uint32_t seqs, uint32_t model_len, enum ggtype kv_type)
{
	struct modelshape s = {.n_layers = 30,
			       .dim = 576,
			       .heads = 9,
			       .kv_heads = 3,
			       .head_dim = 64,
			       .ffn = 1536,
			       .vocab = 49152,
			       .n_tokens = 49152,
			       .rope_dims = 64};
	struct memplan_sizes sizes = {
		.batched_tokens_max = tokens, .seqs_max = seqs, .model_len_max = model_len, .kv_type = kv_type};
	struct memplan p;

	memplan_init(&p, &s, &sizes);
	p.weight_bytes = 90 * MIB;
	p.scratch_bytes = MIB;
	return p;
}

static void parts_lie_behind_each_other(void **state)
{
	struct memplan p = plan_of(512, 256, 8192, GGTYPE_F16);
	const struct memplan_part *parts[] = {&p.x,     &p.h,      &p.qkv,  &p.gate,  &p.up,
					      &p.x_out, &p.logits, &p.rope, &p.input, &p.extra, &p.sampled};
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		assert_int_equal(parts[i]->at, at);
		assert_int_equal(parts[i]->at % 64, 0);
		at += parts[i]->bytes;
	}
	assert_int_equal(p.activation_bytes, at);
	assert_int_equal(p.kv_block_bytes, 30 * 2 * 3 * 64 * 2 * 16);
	assert_true(p.logits.bytes >= (size_t)64 * 49152 * 4);
	assert_true(p.activation_bytes < 32 * MIB);
}

static void small_steps_take_little(void **state)
{
	struct memplan p = plan_of(1, 256, 64, GGTYPE_F32);

	assert_int_equal(p.ffn_rows, 1);
	assert_int_equal(p.logits_rows, 1);
	assert_int_equal(p.kv_block_bytes, 2 * 30 * 2 * 3 * 64 * 2 * 16);
	assert_int_equal(p.seq_blocks_max, 5); /* 64 tokens and the spare ones */
}

struct kv_row {
	const char *what;
	struct memplan_kv kv;
	int rc;
	uint32_t n_blocks;
	const char *text; /* part of the error */
};

/* A block has 368640 bytes; weights, activations and workspace take 91 MiB and 20 to 25. */
static const struct kv_row kv_rows[] = {
	{"the override wins", {.n_blocks = 77, .bytes = 1, .utilization = 0.1, .available = 8 * GIB}, ST_OK, 77, NULL},
	{"bytes win over the share",
	 {.bytes = 368640 * 5 + 7, .utilization = 0.1, .available = 8 * GIB},
	 ST_OK,
	 5,
	 NULL},
	{"too few bytes", {.bytes = 368639, .available = 8 * GIB}, ST_INVALID, 0, "368640"},
	{"too many blocks", {.n_blocks = 1u << 20, .available = 8 * GIB}, ST_NO_MEMORY, 0, "--num-gpu-blocks-override"},
	{"more than slots can number", {.n_blocks = 1ull << 40, .available = UINT64_MAX}, ST_LIMIT, 0, "134217728"},
	{"automatic, at most 4 GiB",
	 {.utilization = 0.92, .auto_max = 4 * GIB, .available = 64 * GIB},
	 ST_OK,
	 11650,
	 NULL},
	{"nothing left", {.utilization = 0.5, .available = 200 * MIB}, ST_NO_MEMORY, 0, "200 MiB"},
};

static void kv_cache_is_sized_by_precedence(void **state)
{
	struct memplan p = plan_of(512, 256, 8192, GGTYPE_F16);

	for (size_t i = 0; i < ARRAY_LEN(kv_rows); i++) {
		const struct kv_row *r = &kv_rows[i];
		struct errbuf err = {{0}};
		uint32_t n = 0;
		int rc = memplan_kv_blocks(&p, &r->kv, &n, &err);

		if (rc != r->rc) fail_msg("%s: %s (%s)", r->what, status_text(rc), err.text);
		if (rc == ST_OK && n != r->n_blocks) fail_msg("%s: %u blocks, expected %u", r->what, n, r->n_blocks);
		if (r->text && !strstr(err.text, r->text))
			fail_msg("%s: \"%s\" lacks \"%s\"", r->what, err.text, r->text);
	}
}

static void automatic_size_follows_memory_and_need(void **state)
{
	struct memplan p = plan_of(512, 2, 100, GGTYPE_F16);
	struct memplan_kv kv = {.utilization = 0.5, .available = 64 * GIB};
	struct errbuf err;
	uint32_t n;

	assert_int_equal(memplan_kv_blocks(&p, &kv, &n, &err), ST_OK);
	assert_int_equal(n, 2 * 7); /* no more than two sequences of 102 positions */
	p = plan_of(512, 256, 8192, GGTYPE_F16);
	kv.available = GIB;
	assert_int_equal(memplan_kv_blocks(&p, &kv, &n, &err), ST_OK);
	assert_int_equal(n, (GIB / 2 - p.weight_bytes - p.activation_bytes - p.scratch_bytes) / p.kv_block_bytes);
}

static void too_little_memory_is_said_with_numbers(void **state)
{
	struct memplan p = plan_of(512, 256, 8192, GGTYPE_F16);
	struct errbuf err = {{0}};

	assert_int_equal(memplan_check(&p, GIB, &err), ST_OK);
	assert_int_equal(memplan_check(&p, 100 * MIB, &err), ST_NO_MEMORY);
	assert_non_null(strstr(err.text, "weights 90"));
	assert_non_null(strstr(err.text, "100 MiB are available"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_lie_behind_each_other),
		cmocka_unit_test(small_steps_take_little),
		cmocka_unit_test(kv_cache_is_sized_by_precedence),
		cmocka_unit_test(automatic_size_follows_memory_and_need),
		cmocka_unit_test(too_little_memory_is_said_with_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
