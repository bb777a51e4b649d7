/* test_kvplan.c - bytes of a KV block for published models, computed by hand; how many blocks there are, and when it is
 * refused. */
#include "common/splitmix.h"
#include "executor/core.h"
#include "kernels/kernels.h"
#include "model/kvplan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the models ---- */

/* A model by its config.json: the sizes that matter here. */
struct published {
	const char *name;
	uint32_t n_layers, heads, kv_heads, head_dim, context_len;
	uint32_t window;                          /* of the layers that have one; 0: none has */
	uint32_t full_every;                      /* every such layer sees all; 0: all have the window */
	uint32_t full_first;                      /* the first of these */
	uint32_t kv_lora, rope, nope;             /* MLA */
	uint32_t dk_heads, dv_heads, d_dim, conv; /* linear attention in the layers that are not full */
};

/* clang-format off */
static const struct published llama31_8b   = {"Llama-3.1-8B", 32, 32, 8, 128, 131072, .window = 0};
static const struct published qwen25_05b   = {"Qwen2.5-0.5B", 24, 14, 2, 64, 32768, .window = 0};
static const struct published gemma3_1b    = {"Gemma-3-1b", 26, 4, 1, 256, 32768, .window = 512, .full_every = 6, .full_first = 5};
static const struct published gemma3_270m  = {"Gemma-3-270m", 18, 4, 1, 256, 32768, .window = 512, .full_every = 6, .full_first = 5};
static const struct published gemma2_2b    = {"Gemma-2-2b", 26, 8, 4, 256, 8192, .window = 4096, .full_every = 2, .full_first = 1};
static const struct published mistral_7b   = {"Mistral-7B-v0.1", 32, 32, 8, 128, 32768, .window = 4096};
static const struct published mixtral_8x7b = {"Mixtral-8x7B", 32, 32, 8, 128, 32768, .window = 0};
static const struct published deepseek_v2l = {"DeepSeek-V2-Lite", 27, 16, 16, 0, 163840, .kv_lora = 512, .rope = 64, .nope = 128};
static const struct published deepseek_v3  = {"DeepSeek-V3", 61, 128, 128, 0, 163840, .kv_lora = 512, .rope = 64, .nope = 128};
static const struct published qwen3_30b    = {"Qwen3-30B-A3B", 48, 32, 4, 128, 40960, .window = 0};
static const struct published qwen3_next   = {"Qwen3-Next-80B", 48, 16, 2, 256, 262144, .full_every = 4, .full_first = 3,
					      .dk_heads = 16, .dv_heads = 32, .d_dim = 128, .conv = 4};
static const struct published gpt_oss_20b  = {"gpt-oss-20b", 24, 64, 8, 64, 131072, .window = 128, .full_every = 2, .full_first = 1};
static const struct published phi3_mini    = {"Phi-3-mini-4k", 32, 32, 32, 96, 4096, .window = 2047};
/* clang-format on */

static struct spec spec_of(const struct published *p)
{
	struct spec s = {.family = p->name, .n_layers = p->n_layers, .dim = 64, .context_len = p->context_len};

	s.layers = calloc(p->n_layers, sizeof(*s.layers));
	assert_non_null(s.layers);
	for (uint32_t i = 0; i < p->n_layers; i++) {
		struct spec_layer *y = &s.layers[i];
		bool full = p->full_every ? i % p->full_every == p->full_first : !p->window;

		*y = (struct spec_layer){
			.heads = p->heads, .kv_heads = p->kv_heads, .k_dim = p->head_dim, .v_dim = p->head_dim};
		if (p->kv_lora) {
			y->mixer = SPEC_MLA;
			y->kv_lora = p->kv_lora;
			y->nope_dim = p->nope;
			y->k_dim = p->nope + p->rope;
			y->v_dim = 128;
		} else if (!full && p->dv_heads) {
			*y = (struct spec_layer){.mixer = SPEC_DELTA,
						 .dk_heads = p->dk_heads,
						 .dv_heads = p->dv_heads,
						 .dk_dim = p->d_dim,
						 .dv_dim = p->d_dim,
						 .conv_width = p->conv};
		} else if (!full) {
			y->window = p->window;
		}
	}
	return s;
}

static struct kvplan_shape shape_of(const struct published *p, enum ggtype type, uint32_t tp)
{
	struct spec s = spec_of(p);
	struct kvplan_shape shape;
	struct errbuf err = {{0}};

	if (kvplan_shape(&shape, &s, type, tp, p->context_len, &err) != ST_OK) fail_msg("%s: %s", p->name, err.text);
	free(s.layers);
	return shape;
}

/* ---- bytes of 16 tokens ---- */

/* 16 tokens in all layers, in f16 at 1, 2 and 8 ranks, fp8 and int8 at one. A token of a layer takes kv_heads * (key +
 * value) elements; int8 has besides a scale of 4 bytes for each key and value. A block is 16 tokens. 0: the heads do
 * not divide. */
struct size_row {
	const struct published *model;
	uint64_t f16, f16_tp2, f16_tp8, fp8, int8;
};

static const struct size_row size_rows[] = {
	/* 32 layers * 8 heads * (128 + 128) * 2 bytes = 131072 a token, * 16. int8: 32 * 8 * (256 + 8) * 16 */
	{&llama31_8b, 2097152, 1048576, 262144, 1048576, 1081344},
	/* 24 * 2 * 128 * 2 = 12288, * 16; 14 heads have no eighth. int8: 24 * 2 * (128 + 8) * 16 */
	{&qwen25_05b, 196608, 98304, 0, 98304, 104448},
	/* 26 * 1 * 512 * 2 = 26624, * 16; one KV head is on both ranks. int8: 26 * (512 + 8) * 16 */
	{&gemma3_1b, 425984, 425984, 0, 212992, 216320},
	/* 18 * 1024 * 16. int8: 18 * 520 * 16 */
	{&gemma3_270m, 294912, 294912, 0, 147456, 149760},
	/* 26 * 4 * 512 * 2 * 16; at 8 ranks one head of the four. int8: 26 * 4 * 520 * 16 */
	{&gemma2_2b, 1703936, 851968, 425984, 851968, 865280},
	{&mistral_7b, 2097152, 1048576, 262144, 1048576, 1081344},
	{&mixtral_8x7b, 2097152, 1048576, 262144, 1048576, 1081344},
	/* 27 * (512 + 64) * 2 * 16, no values, the same on each rank. int8: 27 * (576 + 4) * 16 */
	{&deepseek_v2l, 497664, 497664, 497664, 248832, 250560},
	/* 61 * 576 * 2 * 16. int8: 61 * 580 * 16 */
	{&deepseek_v3, 1124352, 1124352, 1124352, 562176, 566080},
	/* 48 * 4 * 256 * 2 * 16; 8 ranks: one head. int8: 48 * 4 * 264 * 16 */
	{&qwen3_30b, 1572864, 786432, 393216, 786432, 811008},
	/* 12 of 48 layers: 12 * 2 * 512 * 2 * 16; 8 ranks: one head. int8: 12 * 2 * 520 * 16 */
	{&qwen3_next, 393216, 196608, 196608, 196608, 199680},
	/* 24 * 8 * 128 * 2 * 16. int8: 24 * 8 * 136 * 16 */
	{&gpt_oss_20b, 786432, 393216, 98304, 393216, 417792},
	/* 32 * 32 * 192 * 2 * 16. int8: 32 * 32 * 200 * 16 */
	{&phi3_mini, 6291456, 3145728, 786432, 3145728, 3276800},
};

static void expect_size(const struct published *p, enum ggtype type, uint32_t tp, uint64_t expected)
{
	struct spec s = spec_of(p);
	struct kvplan_shape shape;
	struct errbuf err = {{0}};
	int rc = kvplan_shape(&shape, &s, type, tp, p->context_len, &err);

	free(s.layers);
	if (!expected) {
		if (rc != ST_INVALID) fail_msg("%s, %u ranks: %s", p->name, tp, status_text(rc));
	} else if (rc != ST_OK || shape.bytes != expected) {
		fail_msg("%s, %s, %u ranks: %llu bytes, expected %llu %s", p->name, kvplan_type_name(type), tp,
			 (unsigned long long)shape.bytes, (unsigned long long)expected, err.text);
	}
}

static void bytes_are_those_computed_by_hand(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(size_rows); i++) {
		const struct size_row *r = &size_rows[i];

		expect_size(r->model, GGTYPE_F16, 1, r->f16);
		expect_size(r->model, GGTYPE_BF16, 1, r->f16);
		expect_size(r->model, GGTYPE_F32, 1, 2 * r->f16);
		expect_size(r->model, GGTYPE_F16, 2, r->f16_tp2);
		expect_size(r->model, GGTYPE_F16, 8, r->f16_tp8);
		expect_size(r->model, GGTYPE_F8_E4M3, 1, r->fp8);
		expect_size(r->model, GGTYPE_F8_E4M3, 8, r->f16_tp8 / 2);
		expect_size(r->model, GGTYPE_I8, 1, r->int8);
	}
}

/* What the kernels lay out is what is planned. */
static void kernels_take_the_same_bytes(void **state)
{
	static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_BF16, GGTYPE_F32, GGTYPE_F8_E4M3, GGTYPE_I8};
	static const uint32_t sizes[] = {1, 2, 8};

	for (size_t i = 0; i < ARRAY_LEN(size_rows) * ARRAY_LEN(types) * ARRAY_LEN(sizes); i++) {
		const struct size_row *r = &size_rows[i / ARRAY_LEN(types) / ARRAY_LEN(sizes)];
		uint32_t tp = sizes[i % ARRAY_LEN(sizes)];
		struct kvplan_shape shape;
		uint64_t sum = 0;

		if (tp == 8 && !r->f16_tp8) continue;
		shape = shape_of(r->model, types[i / ARRAY_LEN(sizes) % ARRAY_LEN(types)], tp);
		for (uint32_t k = 0; k < shape.n_kinds; k++) {
			const struct kvplan_layers *g = &shape.layers[k];
			struct kkv kv = {.type = shape.kv_type,
					 .kv_heads = g->kv_heads,
					 .k_dim = g->k_dim,
					 .v_dim = g->kind == KVPLAN_LATENT ? r->model->kv_lora : g->v_dim,
					 .latent = g->kind == KVPLAN_LATENT};

			assert_int_equal(g->bytes, g->n_layers * kkv_block_bytes(&kv));
			sum += g->bytes;
		}
		assert_int_equal(shape.bytes, sum);
	}
	assert_int_equal(KVPLAN_BLOCK, KBLOCK_LEN);
}

struct kind_row {
	const struct published *model;
	uint32_t tp;
	struct kvplan_layers layers[2]; /* in f16 */
};

static const struct kind_row kind_rows[] = {
	{&llama31_8b, 2, {{KVPLAN_FULL, 32, 0, 4, 128, 128, 1048576}}},
	/* layers 5, 11, 17 and 23 see all */
	{&gemma3_1b, 1, {{KVPLAN_WINDOW, 22, 512, 1, 256, 256, 360448}, {KVPLAN_FULL, 4, 0, 1, 256, 256, 65536}}},
	{&gemma3_270m, 1, {{KVPLAN_WINDOW, 15, 512, 1, 256, 256, 245760}, {KVPLAN_FULL, 3, 0, 1, 256, 256, 49152}}},
	{&gemma2_2b, 1, {{KVPLAN_WINDOW, 13, 4096, 4, 256, 256, 851968}, {KVPLAN_FULL, 13, 0, 4, 256, 256, 851968}}},
	{&mistral_7b, 1, {{KVPLAN_WINDOW, 32, 4096, 8, 128, 128, 2097152}}},
	{&phi3_mini, 1, {{KVPLAN_WINDOW, 32, 2047, 32, 96, 96, 6291456}}},
	{&gpt_oss_20b, 8, {{KVPLAN_WINDOW, 12, 128, 1, 64, 64, 49152}, {KVPLAN_FULL, 12, 0, 1, 64, 64, 49152}}},
	{&deepseek_v2l, 8, {{KVPLAN_LATENT, 27, 0, 1, 576, 0, 497664}}},
	{&deepseek_v3, 1, {{KVPLAN_LATENT, 61, 0, 1, 576, 0, 1124352}}},
	{&qwen3_next, 1, {{KVPLAN_FULL, 12, 0, 2, 256, 256, 393216}}},
};

static void layers_that_are_alike_are_one_row(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(kind_rows); i++) {
		const struct kind_row *r = &kind_rows[i];
		struct kvplan_shape shape = shape_of(r->model, GGTYPE_F16, r->tp);

		assert_int_equal(shape.n_kinds, r->layers[1].n_layers ? 2 : 1);
		for (uint32_t k = 0; k < shape.n_kinds; k++) {
			const struct kvplan_layers *g = &shape.layers[k], *e = &r->layers[k];

			if (g->kind != e->kind || g->n_layers != e->n_layers || g->window != e->window ||
			    g->kv_heads != e->kv_heads || g->k_dim != e->k_dim || g->v_dim != e->v_dim ||
			    g->bytes != e->bytes)
				fail_msg("%s, row %u: kind %d, %u layers, window %u, %u heads of %u and %u, %llu "
					 "bytes",
					 r->model->name, k, g->kind, g->n_layers, g->window, g->kv_heads, g->k_dim,
					 g->v_dim, (unsigned long long)g->bytes);
		}
	}
}

/* A value head's matrix is 128 x 128; the convolution keeps 3 inputs of each of its channels (q, k: 16 * 128 each; v:
 * 32 * 128). 36 layers * (32 * 128 * 128 + 3 * 8192) * 4 bytes. */
static void linear_attention_keeps_a_state_and_no_blocks(void **state)
{
	static const struct published lone = {
		"no KV", 4, .full_every = 9, .full_first = 8, .dk_heads = 4, .dv_heads = 8, .d_dim = 16, .conv = 4};
	struct kvplan_shape shape = shape_of(&qwen3_next, GGTYPE_F16, 1);

	assert_int_equal(shape.n_state_layers, 36);
	assert_int_equal(shape.state_bytes, 79036416);
	assert_int_equal(shape_of(&qwen3_next, GGTYPE_I8, 2).state_bytes, 39518208);
	assert_int_equal(shape_of(&qwen3_next, GGTYPE_F16, 8).state_bytes, 9879552);
	assert_int_equal(shape_of(&llama31_8b, GGTYPE_F16, 1).state_bytes, 0);

	/* A model without any KV cache counts positions. 8 ranks: one value head each, and a key head that two of them
	 * have: 4 layers * (1 * 16 * 16 + 3 * (2 * 16 + 16)) * 4 bytes. */
	shape = shape_of(&lone, GGTYPE_F16, 8);
	assert_int_equal(shape.n_kinds, 0);
	assert_int_equal(shape.block_bytes, 1);
	assert_int_equal(shape.state_bytes, 6400);
}

static void head_counts_may_differ_by_layer(void **state)
{
	struct spec s = spec_of(&llama31_8b);
	struct kvplan_shape shape;
	struct errbuf err = {{0}};

	for (uint32_t i = 0; i < 10; i++) s.layers[i].kv_heads = 4; /* 10 * 4 + 22 * 8 heads */
	s.layers[31].k_dim = 192;                                   /* MiMo has keys longer than values */
	assert_int_equal(kvplan_shape(&shape, &s, GGTYPE_F16, 1, 131072, &err), ST_OK);
	assert_int_equal(shape.n_kinds, 3);
	assert_int_equal(shape.layers[0].bytes, 10 * 4 * 256 * 2 * 16);
	assert_int_equal(shape.layers[1].bytes, 21 * 8 * 256 * 2 * 16);
	assert_int_equal(shape.layers[2].bytes, 8 * 320 * 2 * 16);
	assert_int_equal(shape.bytes, 327680 + 1376256 + 81920);
	assert_int_equal(shape.block_bytes, shape.bytes); /* one group: nothing can be shared */
	assert_int_equal(kvgroups_n(&shape.groups), 1);

	s.layers[3].window = 512; /* nor can its blocks serve other layers */
	assert_int_equal(kvplan_shape(&shape, &s, GGTYPE_F16, 1, 131072, &err), ST_OK);
	assert_int_equal(shape.n_kinds, 4);
	assert_int_equal(shape.block_bytes, shape.bytes);
	assert_int_equal(shape.groups.n_full, 1);
	assert_int_equal(shape.groups.n_windowed, 0);

	for (uint32_t i = 0; i < 32; i++) s.layers[i].window = i + 1;
	assert_int_equal(kvplan_shape(&shape, &s, GGTYPE_F16, 1, 131072, &err), ST_UNSUPPORTED);
	assert_non_null(strstr(err.text, "16 different"));
	free(s.layers);
}

static void sizes_that_do_not_divide_are_refused_with_those_that_do(void **state)
{
	static const struct {
		const struct published *model;
		uint32_t tp;
		const char *text;
	} rows[] = {
		{&qwen25_05b, 8,
		 "layer 0: 14 heads and 2 KV heads cannot be shared by 8 ranks; sizes that divide: 1, 2, 14"},
		{&qwen25_05b, 7, "sizes that divide: 1, 2, 14"}, /* 7 ranks and 2 KV heads */
		{&gemma3_1b, 8, "sizes that divide: 1, 2, 4"},
		{&deepseek_v2l, 32,
		 "layer 0: 16 heads and 1 KV heads cannot be shared by 32 ranks; sizes that divide: 1, 2, 4, 8, 16"},
		{&qwen3_next, 32,
		 "layer 3: 16 heads and 2 KV heads cannot be shared by 32 ranks; sizes that divide: 1, 2, 4, 8, 16"},
		{&qwen3_next, 3, "layer 0: 32 value heads and 16 key heads cannot be shared by 3 ranks"},
		{&llama31_8b, 0, "by 0 ranks; sizes that divide: 1, 2, 4, 8, 16, 32"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct spec s = spec_of(rows[i].model);
		struct kvplan_shape shape;
		struct errbuf err = {{0}};

		assert_int_equal(kvplan_shape(&shape, &s, GGTYPE_F16, rows[i].tp, 4096, &err), ST_INVALID);
		if (!strstr(err.text, rows[i].text)) fail_msg("\"%s\" lacks \"%s\"", err.text, rows[i].text);
		free(s.layers);
	}
}

static void other_types_are_refused_by_name(void **state)
{
	struct spec s = spec_of(&llama31_8b);
	struct kvplan_shape shape;
	struct errbuf err = {{0}};

	assert_int_equal(kvplan_shape(&shape, &s, GGTYPE_Q8_0, 1, 4096, &err), ST_UNSUPPORTED);
	assert_non_null(strstr(err.text, "type Q8_0; known ones: f16, bf16, f32, fp8, int8"));
	free(s.layers);
}

/* ---- blocks of a request ---- */

/* With 1024 tokens ahead a window of w keeps (w - 1 + 1024) / 16 + 2 blocks. */
struct request_row {
	const struct published *model;
	uint32_t n_full, n_windowed, size;
	uint64_t block_bytes, blocks; /* of a block in f16; of a request of the whole context */
};

static const struct request_row request_rows[] = {
	{&llama31_8b, 1, 0, 32, 2097152, 8192},        {&qwen25_05b, 1, 0, 24, 196608, 2048},
	{&gemma3_1b, 1, 6, 4, 65536, 2048 + 6 * 97}, /* 22 windowed layers make 6 groups of 4 */
	{&gemma3_270m, 1, 5, 3, 49152, 2048 + 5 * 97}, {&gemma2_2b, 1, 1, 13, 851968, 512 + 321},
	{&mistral_7b, 0, 1, 32, 2097152, 321},         {&mixtral_8x7b, 1, 0, 32, 2097152, 2048},
	{&deepseek_v2l, 1, 0, 27, 497664, 10240},      {&deepseek_v3, 1, 0, 61, 1124352, 10240},
	{&qwen3_30b, 1, 0, 48, 1572864, 2560},         {&qwen3_next, 1, 0, 12, 393216, 16384},
	{&gpt_oss_20b, 1, 1, 12, 393216, 8192 + 73},   {&phi3_mini, 0, 1, 32, 6291456, 193},
};

static void windows_give_blocks_back(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(request_rows); i++) {
		const struct request_row *r = &request_rows[i];
		struct kvplan_shape shape = shape_of(r->model, GGTYPE_F16, 1);
		struct kvplan_in in = {.shape = &shape, .tokens_ahead = 1024};
		uint64_t blocks = kvplan_request_blocks(&in, r->model->context_len);

		if (shape.groups.n_full != r->n_full || shape.groups.n_windowed != r->n_windowed ||
		    shape.groups.size != r->size || shape.block_bytes != r->block_bytes || blocks != r->blocks)
			fail_msg("%s: %u and %u groups of %u layers, %llu bytes a block, %llu blocks", r->model->name,
				 shape.groups.n_full, shape.groups.n_windowed, shape.groups.size,
				 (unsigned long long)shape.block_bytes, (unsigned long long)blocks);
		assert_true(kvplan_request_len(&in, blocks) >= r->model->context_len);
		if (r->n_full) assert_true(kvplan_request_len(&in, blocks - 1) < r->model->context_len);
	}
}

/* For each number of blocks the length is the longest whose blocks are no more. */
static void lengths_and_blocks_are_inverse(void **state)
{
	for (uint32_t n_full = 0; n_full < 3; n_full++) {
		for (uint32_t n_windowed = 0; n_windowed < 4; n_windowed++) {
			struct kvplan_shape shape = {
				.groups = {.n_full = n_full, .n_windowed = n_windowed, .window = 40, .size = 1}};
			struct kvplan_in in = {.shape = &shape, .tokens_ahead = 50};
			struct core_kv kv = {.n_full = n_full, .n_windowed = n_windowed, .window = 40};

			for (uint64_t n = 0; n < 100; n++) {
				uint64_t len = kvplan_request_len(&in, n);

				assert_int_equal(core_kv_len(&kv, 50, n), len); /* the executor counts alike */
				if (len == UINT64_MAX) {
					assert_true(!n_full && kvplan_request_blocks(&in, 1 << 20) <= n);
					continue;
				}
				assert_true(kvplan_request_blocks(&in, len) <= n);
				assert_true(kvplan_request_blocks(&in, len + 1) > n);
			}
		}
	}
}

/* ---- the number of blocks ---- */

/* Llama-3.1-8B in f16 on a device of 24 GiB: 15 GiB of weights, 1 GiB for steps; a block is 2 MiB. A request of 8192
 * tokens needs 512 blocks, 1 GiB. */
static struct kvplan_shape llama = {.block_bytes = 2 * MIB, .groups = {.n_full = 1, .size = 32}};
/* 26 layers, 4 of which see everything: a request of 8192 tokens takes 512 + 6 * 97 blocks. */
static struct kvplan_shape gemma = {.block_bytes = 64 * KIB,
				    .groups = {.n_full = 1, .n_windowed = 6, .window = 512, .size = 4}};
static struct kvplan_shape all_windows = {.block_bytes = 2 * MIB,
					  .groups = {.n_windowed = 1, .window = 4096, .size = 32}};
static struct kvplan_shape no_kv = {.block_bytes = 1};

static const struct kvplan_in base = {.available = 24 * GIB,
				      .weights = 15 * GIB,
				      .activations = 512 * MIB,
				      .workspace = 256 * MIB,
				      .state = 256 * MIB,
				      .shape = &llama,
				      .tokens_ahead = 1024,
				      .model_len_max = 8192,
				      .context_len = 131072,
				      .seqs_max = 256,
				      .utilization = 0.92};

/* Each option given or not. 0.75 of 24 GiB leaves 2 GiB; 0.92 leaves 6.08 GiB, which is 3112.96 blocks. */
static void the_first_of_three_options_decides(void **state)
{
	static const struct {
		uint64_t blocks, bytes;
		double utilization;
		enum kvplan_rule rule;
		uint64_t n_blocks;
	} rows[] = {
		{0, 0, 0.92, KVPLAN_BY_UTILIZATION, 3112},       {0, 0, 0.75, KVPLAN_BY_UTILIZATION, 1024},
		{0, 3 * GIB + 1, 0.92, KVPLAN_BY_BYTES, 1536},   {0, 3 * GIB + 1, 0.75, KVPLAN_BY_BYTES, 1536},
		{777, 0, 0.92, KVPLAN_BY_BLOCKS, 777},           {777, 0, 0.75, KVPLAN_BY_BLOCKS, 777},
		{777, 3 * GIB + 1, 0.92, KVPLAN_BY_BLOCKS, 777}, {777, 3 * GIB + 1, 0.75, KVPLAN_BY_BLOCKS, 777},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct kvplan_in in = base;
		struct errbuf err = {{0}};
		struct kvplan p;

		in.blocks_override = rows[i].blocks;
		in.kv_bytes = rows[i].bytes;
		in.utilization = rows[i].utilization;
		if (kvplan_make(&p, &in, &err) != ST_OK) fail_msg("row %zu: %s", i, err.text);
		assert_int_equal(p.rule, rows[i].rule);
		assert_int_equal(p.n_blocks, rows[i].n_blocks);
		assert_int_equal(p.kv_bytes, rows[i].n_blocks * 2 * MIB);
		assert_int_equal(p.blocks_needed, 512);
		assert_true(p.full_seqs == (double)rows[i].n_blocks / 512);
		assert_int_equal(p.model_len_max, 8192);
	}
}

struct make_row {
	const char *what;
	struct kvplan_in change; /* fields that are not 0 replace those of base */
	int rc;
	uint64_t n_blocks;
	uint32_t model_len;
	const char *text; /* part of the error */
};

static const struct make_row make_rows[] = {
	{"an automatic size has a bound", {.auto_max = 4 * GIB}, ST_OK, 2048, 8192, NULL},
	{"but one request fits when memory allows it", {.auto_max = 100 * MIB}, ST_OK, 512, 8192, NULL},
	{"and its need is not rounded down", {.auto_max = 1, .model_len_max = 17}, ST_OK, 2, 17, NULL},
	{"no more than all sequences can use", {.seqs_max = 2, .model_len_max = 100}, ST_OK, 2 * 7, 100, NULL},
	{"auto is what fits", {.model_len_max = UINT32_MAX}, ST_OK, 3112, 3112 * 16, NULL},
	{"auto is at most the model's own",
	 {.model_len_max = UINT32_MAX, .context_len = 4096, .auto_max = 2 * GIB},
	 ST_OK,
	 1024,
	 4096,
	 NULL},
	{"auto with bytes", {.model_len_max = UINT32_MAX, .kv_bytes = 64 * MIB}, ST_OK, 32, 512, NULL},
	{"auto with blocks", {.model_len_max = UINT32_MAX, .blocks_override = 3}, ST_OK, 3, 48, NULL},
	{"auto without room",
	 {.model_len_max = UINT32_MAX, .available = 16 * GIB},
	 ST_NO_MEMORY,
	 0,
	 16,
	 "not even one token fits, which takes 1 KV blocks of 2097152 bytes"},
	{"windows: auto without room",
	 {.shape = &gemma, .blocks_override = 6, .model_len_max = UINT32_MAX},
	 ST_NO_MEMORY,
	 6,
	 16,
	 "one request of 16 tokens (auto) needs 7 KV blocks, 0.4 MiB; --num-gpu-blocks-override gives 6, 0.4 MiB: not "
	 "even one token fits, which takes 7 KV blocks"},
	{"a pool that holds no request, by blocks",
	 {.blocks_override = 511},
	 ST_NO_MEMORY,
	 511,
	 8192,
	 "one request of 8192 tokens (--max-model-len) needs 512 KV blocks, 1024.0 MiB; --num-gpu-blocks-override "
	 "gives 511, 1022.0 MiB: "
	 "the largest --max-model-len that fits is 8176"},
	{"by bytes", {.kv_bytes = GIB - 1}, ST_NO_MEMORY, 511, 8192, "--kv-cache-memory-bytes gives 511"},
	{"just enough", {.blocks_override = 512}, ST_OK, 512, 8192, NULL},
	{"by memory",
	 {.utilization = 0.7},
	 ST_NO_MEMORY,
	 409, /* 0.8 GiB */
	 8192,
	 "needs a KV cache of 1024.0 MiB; 819.2 MiB are left of --gpu-memory-utilization 0.70 of 24576 MiB after "
	 "weights (15360), "
	 "activations (512), workspace (256) and state (256): the largest --max-model-len that fits is 6544"},
	{"the weights alone are too much", {.weights = 25 * GIB}, ST_NO_MEMORY, 0, 8192, "0.0 MiB are left"},
	{"sums that overflow", {.weights = UINT64_MAX}, ST_NO_MEMORY, 0, 8192, "0.0 MiB are left"},
	{"more bytes than there are",
	 {.kv_bytes = 100 * GIB},
	 ST_NO_MEMORY,
	 4096,
	 8192,
	 "--kv-cache-memory-bytes asks for a KV cache of 102400 MiB; 8192 MiB are left of 24576"},
	{"more blocks than there is memory for",
	 {.blocks_override = 5000},
	 ST_NO_MEMORY,
	 4096,
	 8192,
	 "--num-gpu-blocks-override asks for"},
	{"as many blocks as have numbers",
	 {.blocks_override = KVPLAN_BLOCKS_MAX, .available = UINT64_MAX},
	 ST_OK,
	 KVPLAN_BLOCKS_MAX,
	 8192,
	 NULL},
	{"more blocks than have numbers",
	 {.blocks_override = 1ull << 40, .available = UINT64_MAX},
	 ST_LIMIT,
	 1ull << 40,
	 8192,
	 "134217728"},
	{"more than memory and numbers", {.blocks_override = 1ull << 40}, ST_NO_MEMORY, 4096, 8192, "MiB are left"},
	{"bytes of less than one block",
	 {.kv_bytes = 2 * MIB - 1},
	 ST_INVALID,
	 0,
	 8192,
	 "--kv-cache-memory-bytes 2097151 is less than one KV block, which takes 2097152 bytes"},
	{"windows: just enough", {.shape = &gemma, .blocks_override = 512 + 6 * 97}, ST_OK, 1094, 8192, NULL},
	{"windows: not enough",
	 {.shape = &gemma, .blocks_override = 512 + 6 * 97 - 1},
	 ST_NO_MEMORY,
	 1093,
	 8192,
	 "needs 1094 KV blocks, 68.4 MiB; --num-gpu-blocks-override gives 1093, 68.3 MiB: the largest --max-model-len "
	 "that fits is 8176"},
	{"windows: not even full ones",
	 {.shape = &gemma, .blocks_override = 7 * 97 - 1},
	 ST_NO_MEMORY,
	 678,
	 8192,
	 "that fits is 1536"},
	{"windows: auto",
	 {.shape = &gemma, .blocks_override = 7 * 97, .model_len_max = UINT32_MAX},
	 ST_OK,
	 679,
	 97 * 16,
	 NULL},
	{"windows: automatic", {.shape = &gemma, .seqs_max = 3}, ST_OK, 3 * 1094, 8192, NULL},
	{"all layers have one",
	 {.shape = &all_windows, .seqs_max = 2, .model_len_max = 131072},
	 ST_OK,
	 2 * 321,
	 131072,
	 NULL},
	{"all layers have one, auto",
	 {.shape = &all_windows, .blocks_override = 321, .model_len_max = UINT32_MAX},
	 ST_OK,
	 321,
	 131072,
	 NULL},
	{"memory that is not known", {.available = UINT64_MAX, .seqs_max = 4}, ST_OK, 2048, 8192, NULL},
	{"memory that is not known, without a bound",
	 {.available = UINT64_MAX, .shape = &no_kv, .seqs_max = UINT32_MAX},
	 ST_OK,
	 KVPLAN_BLOCKS_MAX,
	 8192,
	 NULL},
};

static void make_row_apply(struct kvplan_in *in, const struct kvplan_in *c)
{
#define TAKE(field) \
	if (c->field) in->field = c->field
	TAKE(available);
	TAKE(weights);
	TAKE(shape);
	TAKE(model_len_max);
	TAKE(context_len);
	TAKE(seqs_max);
	TAKE(blocks_override);
	TAKE(kv_bytes);
	TAKE(utilization);
	TAKE(auto_max);
#undef TAKE
	if (c->model_len_max == UINT32_MAX) in->model_len_max = 0;
}

static void the_number_of_blocks_follows(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(make_rows); i++) {
		const struct make_row *r = &make_rows[i];
		struct kvplan_in in = base;
		struct errbuf err = {{0}};
		struct kvplan p;
		int rc;

		make_row_apply(&in, &r->change);
		rc = kvplan_make(&p, &in, &err);
		if (rc != r->rc) fail_msg("%s: %s (%s)", r->what, status_text(rc), err.text);
		if (p.n_blocks != r->n_blocks || p.model_len_max != r->model_len)
			fail_msg("%s: %llu blocks, %u tokens", r->what, (unsigned long long)p.n_blocks,
				 p.model_len_max);
		if (r->text && !strstr(err.text, r->text))
			fail_msg("%s: \"%s\" lacks \"%s\"", r->what, err.text, r->text);
	}
}

static void what_is_left_of_too_little_is_nothing(void **state)
{
	struct kvplan_in in = base;
	struct errbuf err = {{0}};
	struct kvplan p;

	in.weights = 25 * GIB;
	in.model_len_max = 0;
	assert_int_equal(kvplan_make(&p, &in, &err), ST_NO_MEMORY);
	assert_int_equal(p.left, 0);
	assert_int_equal(p.fixed, 26 * GIB);
	assert_int_equal(p.kv_bytes, 0);
	assert_int_equal(p.len_fits, 0);
	assert_true(p.full_seqs == 0);
	assert_non_null(strstr(err.text, "needs a KV cache of 2.0 MiB"));
}

static void divisors_of_zero_are_errors(void **state)
{
	static const struct kvplan_shape empty = {.block_bytes = 0};
	struct kvplan_in in = base;
	struct errbuf err = {{0}};
	struct kvplan p;

	in.shape = &empty;
	assert_int_equal(kvplan_make(&p, &in, &err), ST_INVALID);
	in.kv_bytes = GIB;
	assert_int_equal(kvplan_make(&p, &in, &err), ST_INVALID);
	in.blocks_override = 7;
	assert_int_equal(kvplan_make(&p, &in, &err), ST_INVALID);
	in = base;
	in.context_len = 0;
	assert_int_equal(kvplan_make(&p, &in, &err), ST_INVALID);
	in = base;
	in.seqs_max = 0;
	in.utilization = 0;
	assert_int_equal(kvplan_make(&p, &in, &err), ST_NO_MEMORY);
}

/* ---- any model, any memory ---- */

static uint32_t draw(uint64_t *state, uint32_t from, uint32_t to)
{
	return from + (uint32_t)(splitmix_next(state) % ((uint64_t)to - from + 1));
}

static struct spec random_spec(uint64_t *r)
{
	struct spec s = {.family = "random", .n_layers = draw(r, 1, 70), .dim = 64, .context_len = draw(r, 1, 300000)};
	struct spec_layer kinds[3];

	s.layers = calloc(s.n_layers, sizeof(*s.layers));
	assert_non_null(s.layers);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		uint32_t kv_heads = 1u << draw(r, 0, 4), dim = 8 * draw(r, 1, 32);

		kinds[i] = (struct spec_layer){.mixer = (enum spec_mixer)draw(r, 0, 2),
					       .heads = kv_heads * draw(r, 1, 8),
					       .kv_heads = kv_heads,
					       .k_dim = dim + 16,
					       .v_dim = dim,
					       .window = draw(r, 0, 1) ? draw(r, 1, 9000) : 0,
					       .kv_lora = 8 * dim,
					       .nope_dim = dim,
					       .dk_heads = kv_heads,
					       .dv_heads = 2 * kv_heads,
					       .dk_dim = dim,
					       .dv_dim = dim,
					       .conv_width = draw(r, 1, 5)};
		if (draw(r, 0, 1)) kinds[i] = kinds[0]; /* mostly alike */
		if (kinds[i].mixer == SPEC_ATTENTION) kinds[i].window = draw(r, 0, 1) ? draw(r, 1, 9000) : 0;
	}
	for (uint32_t i = 0; i < s.n_layers; i++) s.layers[i] = kinds[draw(r, 0, 2)];
	return s;
}

static struct kvplan_in random_in(uint64_t *r, const struct kvplan_shape *shape, uint32_t context_len)
{
	struct kvplan_in in = {.available = draw(r, 0, 9) ? (uint64_t)1 << draw(r, 20, 40) : UINT64_MAX,
			       .weights = (uint64_t)1 << draw(r, 10, 36),
			       .activations = draw(r, 0, 1 << 30),
			       .workspace = draw(r, 0, 1 << 20),
			       .shape = shape,
			       .tokens_ahead = draw(r, 2, 20000),
			       .model_len_max = draw(r, 0, 1) ? draw(r, 1, context_len) : 0,
			       .context_len = context_len,
			       .seqs_max = draw(r, 1, 1000),
			       .utilization = draw(r, 1, 100) / 100.0,
			       .auto_max = draw(r, 0, 1) ? 4 * GIB : 0};

	in.state = shape->state_bytes * in.seqs_max;
	if (draw(r, 0, 3) == 0) in.blocks_override = draw(r, 1, 100000);
	if (draw(r, 0, 3) == 0) in.kv_bytes = (uint64_t)1 << draw(r, 1, 42);
	return in;
}

/* A plan that is made keeps its promises; one that is not had no way to. */
static void expect_plan(const struct kvplan *p, int rc)
{
	const struct kvplan_in *in = &p->in;
	uint64_t bytes = in->shape->block_bytes;

	if (rc != ST_OK) {
		assert_true(rc == ST_NO_MEMORY || rc == ST_INVALID || rc == ST_LIMIT);
		if (p->rule == KVPLAN_BY_UTILIZATION && in->model_len_max)
			assert_true(p->left / bytes < kvplan_request_blocks(in, in->model_len_max) ||
				    kvplan_request_blocks(in, in->model_len_max) > KVPLAN_BLOCKS_MAX);
		return;
	}
	assert_true(p->n_blocks >= p->blocks_needed && p->n_blocks <= KVPLAN_BLOCKS_MAX);
	assert_true(p->n_blocks <= p->left / bytes);
	assert_true(p->model_len_max >= 1 && p->model_len_max <= in->context_len);
	assert_int_equal(p->blocks_needed, kvplan_request_blocks(in, p->model_len_max));
	if (in->model_len_max)
		assert_int_equal(p->model_len_max, in->model_len_max);
	else if (p->model_len_max < in->context_len && p->rule != KVPLAN_BY_UTILIZATION)
		assert_true(kvplan_request_blocks(in, (uint64_t)p->model_len_max + 1) > p->n_blocks);
	else if (p->model_len_max < in->context_len)
		assert_true(kvplan_request_blocks(in, (uint64_t)p->model_len_max + 1) >
			    min_u64(p->left / bytes, KVPLAN_BLOCKS_MAX));
	if (p->rule == KVPLAN_BY_UTILIZATION && in->auto_max)
		assert_true(p->kv_bytes <= max_u64(in->auto_max, p->blocks_needed * bytes));
}

static void plans_keep_their_promises(void **state)
{
	static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_F32, GGTYPE_I8};
	uint64_t r = 7;
	uint32_t n_ok = 0, n_sized = 0;

	for (uint32_t round = 0; round < 20000; round++) {
		struct spec s = random_spec(&r);
		struct errbuf err = {{0}};
		struct kvplan_shape shape;
		struct kvplan p;
		struct strbuf table;

		if (kvplan_shape(&shape, &s, types[draw(&r, 0, 2)], 1u << draw(&r, 0, 3), s.context_len, &err) ==
		    ST_OK) {
			struct kvplan_in in = random_in(&r, &shape, s.context_len);
			int rc = kvplan_make(&p, &in, &err);

			n_sized++;
			n_ok += rc == ST_OK;
			expect_plan(&p, rc);
			assert_true((rc == ST_OK) == (err.text[0] == 0));
			strbuf_init(&table, 8 * KIB);
			kvplan_table(&table, &s, &p);
			assert_false(table.overflow);
			strbuf_release(&table);
		}
		free(s.layers);
	}
	assert_true(n_sized > 5000 && n_ok > n_sized / 4 && n_ok < n_sized * 9 / 10);
}

/* ---- the table ---- */

/* The whole table, line by line. */
static void expect_table(const struct published *model, enum ggtype type, uint32_t tp, struct kvplan_in in,
			 const char *expected)
{
	struct spec s = spec_of(model);
	struct kvplan_shape shape = shape_of(model, type, tp);
	struct errbuf err = {{0}};
	struct strbuf out;
	struct kvplan p;

	in.shape = &shape;
	strbuf_init(&out, 1 << 16);
	if (kvplan_make(&p, &in, &err) != ST_OK) strbuf_reset(&out);
	kvplan_table(&out, &s, &p);
	strbuf_putc(&out, 0);
	if (strcmp(out.data, expected) != 0) {
		fputs(out.data, stderr);
		fail_msg("the table of %s differs", model->name);
	}
	strbuf_release(&out);
	free(s.layers);
}

static void tables_of_what_fits(void **state)
{
	struct kvplan_in in = base;

	in.available = 4 * GIB;
	in.weights = 2 * GIB;
	in.auto_max = 512 * MIB;
	expect_table(&gemma3_1b, GGTYPE_F16, 1, in,
		     "KV cache: Gemma-3-1b, 26 layers, f16\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      22  window 512      1 x (256 + 256)                22528\n"
		     "       4  full            1 x (256 + 256)                 4096\n"
		     "     all                                                 26624\n"
		     "  a block is 16 tokens of 4 layers: 65536 bytes\n"
		     "  a request keeps all its tokens in 1 group of such layers, those of a window of 512 in 6\n"
		     "memory of the device\n"
		     "  available                                         4.0 GiB\n"
		     "  of it, --gpu-memory-utilization 0.92              3.7 GiB\n"
		     "  - weights                                         2.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  = left for the KV cache                         696.3 MiB\n"
		     "KV blocks, automatic: at most 512.0 MiB, or what one request needs\n"
		     "  blocks                                               8192  512.0 MiB\n"
		     "  one request of 8192 tokens                           1094  68.4 MiB\n"
		     "  such requests at once                                 7.5\n");
	in = base;
	in.available = UINT64_MAX;
	in.kv_bytes = 3 * GIB + 5;
	expect_table(&deepseek_v2l, GGTYPE_I8, 8, in,
		     "KV cache: DeepSeek-V2-Lite, 27 layers, int8; one of 8 ranks\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      27  latent          576, no values                 15660\n"
		     "  a block is 16 tokens of 27 layers: 250560 bytes\n"
		     "memory of the device\n"
		     "  available: not known\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "KV blocks, --kv-cache-memory-bytes 3221225477\n"
		     "  blocks                                              12856  3.0 GiB\n"
		     "  one request of 8192 tokens                            512  122.3 MiB\n"
		     "  such requests at once                                25.1\n");
	in = base;
	in.model_len_max = 0;
	in.blocks_override = 1000;
	in.state = 16 * 39518208ull;
	in.seqs_max = 16;
	expect_table(&qwen3_next, GGTYPE_F8_E4M3, 2, in,
		     "KV cache: Qwen3-Next-80B, 48 layers, fp8; one of 2 ranks\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      12  full            1 x (256 + 256)                 6144\n"
		     "      36  linear          no KV cache, 39518208 bytes of state a sequence\n"
		     "  a block is 16 tokens of 12 layers: 98304 bytes\n"
		     "memory of the device\n"
		     "  available                                        24.0 GiB\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  - state of linear attention                     603.0 MiB  16 sequences of 37.7 MiB\n"
		     "  = left for the KV cache                           7.7 GiB\n"
		     "KV blocks, --num-gpu-blocks-override 1000\n"
		     "  blocks                                               1000  93.8 MiB\n"
		     "  one request of 16000 tokens (auto)                   1000  93.8 MiB\n"
		     "  such requests at once                                 1.0\n");
}

static void tables_of_what_does_not_fit(void **state)
{
	struct kvplan_in in = base;

	in.state = 256 * 79036416ull; /* 22.08 GiB less 15.75 and 192 MiB have room for 83 sequences */
	expect_table(&qwen3_next, GGTYPE_F16, 1, in,
		     "KV cache: Qwen3-Next-80B, 48 layers, f16\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      12  full            2 x (256 + 256)                24576\n"
		     "      36  linear          no KV cache, 79036416 bytes of state a sequence\n"
		     "  a block is 16 tokens of 12 layers: 393216 bytes\n"
		     "memory of the device\n"
		     "  available                                        24.0 GiB\n"
		     "  of it, --gpu-memory-utilization 0.92             22.1 GiB\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  - state of linear attention                      18.8 GiB  256 sequences of 75.4 MiB\n"
		     "  = left for the KV cache                               0 B\n"
		     "    missing for weights and steps                  12.5 GiB\n"
		     "KV blocks, automatic\n"
		     "  blocks                                                  0  0 B\n"
		     "  one request of 8192 tokens                            512  192.0 MiB\n"
		     "does not fit: 512 blocks more are needed\n"
		     "  fits: --max-num-seqs 83\n");
	in = base;
	in.utilization = 0.7;
	expect_table(&llama31_8b, GGTYPE_F16, 1, in,
		     "KV cache: Llama-3.1-8B, 32 layers, f16\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      32  full            8 x (128 + 128)               131072\n"
		     "  a block is 16 tokens of 32 layers: 2097152 bytes\n"
		     "memory of the device\n"
		     "  available                                        24.0 GiB\n"
		     "  of it, --gpu-memory-utilization 0.7              16.8 GiB\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  = left for the KV cache                         819.2 MiB\n"
		     "KV blocks, automatic\n"
		     "  blocks                                                409  818.0 MiB\n"
		     "  one request of 8192 tokens                            512  1.0 GiB\n"
		     "does not fit: 103 blocks more are needed\n"
		     "  fits: --max-model-len 6544 (or auto)\n"
		     "  fits: --kv-cache-dtype int8 with --max-model-len 12704\n"
		     "  fits: --kv-cache-dtype fp8 with --max-model-len 13104\n"
		     "  fits: --gpu-memory-utilization 0.709\n");
	in = base;
	in.blocks_override = 10;
	expect_table(&llama31_8b, GGTYPE_F16, 1, in,
		     "KV cache: Llama-3.1-8B, 32 layers, f16\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      32  full            8 x (128 + 128)               131072\n"
		     "  a block is 16 tokens of 32 layers: 2097152 bytes\n"
		     "memory of the device\n"
		     "  available                                        24.0 GiB\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  = left for the KV cache                           8.0 GiB\n"
		     "KV blocks, --num-gpu-blocks-override 10\n"
		     "  blocks                                                 10  20.0 MiB\n"
		     "  one request of 8192 tokens                            512  1.0 GiB\n"
		     "does not fit: 502 blocks more are needed\n"
		     "  fits: --max-model-len 160 (or auto)\n"
		     "  fits: there is memory for 512 blocks, 1.0 GiB\n");
	in = base;
	in.kv_bytes = 100 * MIB;
	expect_table(&llama31_8b, GGTYPE_F16, 1, in,
		     "KV cache: Llama-3.1-8B, 32 layers, f16\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      32  full            8 x (128 + 128)               131072\n"
		     "  a block is 16 tokens of 32 layers: 2097152 bytes\n"
		     "memory of the device\n"
		     "  available                                        24.0 GiB\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  = left for the KV cache                           8.0 GiB\n"
		     "KV blocks, --kv-cache-memory-bytes 104857600\n"
		     "  blocks                                                 50  100.0 MiB\n"
		     "  one request of 8192 tokens                            512  1.0 GiB\n"
		     "does not fit: 462 blocks more are needed\n"
		     "  fits: --max-model-len 800 (or auto)\n"
		     "  fits: --kv-cache-dtype int8 with --max-model-len 1536\n"
		     "  fits: --kv-cache-dtype fp8 with --max-model-len 1600\n"
		     "  fits: there is memory for 512 blocks, 1.0 GiB\n");
	in = base;
	in.kv_bytes = 5;
	expect_table(&mistral_7b, GGTYPE_F8_E4M3, 1, in,
		     "KV cache: Mistral-7B-v0.1, 32 layers, fp8\n"
		     "  layers  kind            heads x (key + value)   bytes a token\n"
		     "      32  window 4096     8 x (128 + 128)                65536\n"
		     "  a block is 16 tokens of 32 layers: 1048576 bytes\n"
		     "  a request keeps the tokens of a window of 4096 in 1 group of such layers\n"
		     "memory of the device\n"
		     "  available                                        24.0 GiB\n"
		     "  - weights                                        15.0 GiB\n"
		     "  - activations                                   512.0 MiB\n"
		     "  - workspace                                     256.0 MiB\n"
		     "  = left for the KV cache                           8.0 GiB\n"
		     "KV blocks, --kv-cache-memory-bytes 5\n"
		     "  blocks                                                  0  0 B\n"
		     "  one request of 8192 tokens                            321  321.0 MiB\n"
		     "does not fit: 321 blocks more are needed\n"
		     "  fits: there is memory for 321 blocks, 321.0 MiB\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_those_computed_by_hand),
		cmocka_unit_test(kernels_take_the_same_bytes),
		cmocka_unit_test(layers_that_are_alike_are_one_row),
		cmocka_unit_test(linear_attention_keeps_a_state_and_no_blocks),
		cmocka_unit_test(head_counts_may_differ_by_layer),
		cmocka_unit_test(sizes_that_do_not_divide_are_refused_with_those_that_do),
		cmocka_unit_test(other_types_are_refused_by_name),
		cmocka_unit_test(windows_give_blocks_back),
		cmocka_unit_test(lengths_and_blocks_are_inverse),
		cmocka_unit_test(the_first_of_three_options_decides),
		cmocka_unit_test(the_number_of_blocks_follows),
		cmocka_unit_test(what_is_left_of_too_little_is_nothing),
		cmocka_unit_test(divisors_of_zero_are_errors),
		cmocka_unit_test(plans_keep_their_promises),
		cmocka_unit_test(tables_of_what_fits),
		cmocka_unit_test(tables_of_what_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
