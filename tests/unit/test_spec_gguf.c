/* test_spec_gguf.c - the description of GGUF files: read as written, and every value, relation or tensor that cannot be
 * is refused by name. */
#include "model/spec.h"
#include "model/ckpt.h"
#include "model/preflight.h"
#include "model/wsrc.h"
#include "tests/support/golden.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Opens what the writer holds and reads what it is; *c is open afterwards. */
static int read_writer(const struct gguf_writer *w, struct spec *s, struct ckpt **c, struct errbuf *err)
{
	struct test_file_mem m;
	size_t len;
	uint8_t *bytes = gguf_writer_build(w, &len);
	int rc;

	*c = NULL;
	err->text[0] = 0;
	test_file_mem_init(&m, bytes, len);
	free(bytes);
	rc = ckpt_open(c, m.path, err);
	test_file_mem_release(&m);
	*s = (struct spec){0};
	return rc == ST_OK ? spec_read(s, *c, NULL, err)
			   : rc; /* a missing architecture is noticed when the file is opened */
}

static int read_tiny(const struct tiny_llama *t, struct spec *s, struct ckpt **c, struct errbuf *err)
{
	struct gguf_writer w;
	int rc;

	gguf_writer_init(&w);
	tiny_llama_fill(&w, t);
	rc = read_writer(&w, s, c, err);
	gguf_writer_release(&w);
	return rc;
}

/* ---- good models ---- */

static void a_model_is_read_as_written(void **state)
{
	const struct spec_layer *y;
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct wsrc w;
	struct spec s;

	tiny_llama_init(&t);
	assert_int_equal(read_tiny(&t, &s, &c, &err), ST_OK);
	y = &s.layers[1];
	assert_string_equal(s.family, "llama");
	assert_string_equal(s.file_types, "F32");
	assert_int_equal(s.n_layers, 2);
	assert_int_equal(s.dim, 64);
	assert_int_equal(y->heads, 4);
	assert_int_equal(y->kv_heads, 2);
	assert_int_equal(y->k_dim, 16);
	assert_int_equal(y->v_dim, 16);
	assert_int_equal(y->ffn, 128);
	assert_true(y->scale == 0.25 && y->window == 0 && y->rope == 0);
	assert_int_equal(s.vocab, TINY_LLAMA_TOKENS);
	assert_int_equal(s.n_tokens, TINY_LLAMA_TOKENS);
	assert_int_equal(s.context_len, 512);
	assert_false(s.tied);
	assert_true(s.eps == 1e-5f);
	assert_int_equal(s.n_ropes, 1);
	assert_true(s.ropes[0].dims == 16 && !s.ropes[0].neox && s.ropes[0].mscale == 1);
	/* embedding and output, the last norm; a layer: two norms, Q and O, K and V, three of the feed-forward part */
	assert_int_equal(s.n_params, 2 * 265 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64));
	assert_int_equal(s.weight_bytes, 4 * s.n_params);
	assert_int_equal(wsrc_find(&w, &s, c, SPEC_K, 1, 0, &err), ST_OK);
	assert_ptr_equal(w.t, ckpt_find(c, "blk.1.attn_k.weight"));
	assert_true(w.rows == 32 && w.cols == 64 && w.type == GGTYPE_F32 && w.n_pieces == 1 && w.pieces[0].rows == 32);
	spec_release(&s);
	ckpt_close(c);
}

static void every_built_type_and_padding_load(void **state)
{
	static const enum ggtype types[] = {GGTYPE_F32, GGTYPE_F16, GGTYPE_BF16, GGTYPE_Q8_0, GGTYPE_Q4_0, GGTYPE_Q4_1};
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	size_t i;

	for (i = 0; i < ARRAY_LEN(types); i++) {
		tiny_llama_init(&t);
		t.mat_type = t.embed_type = t.output_type = types[i];
		t.tied = i % 2;
		t.vocab = 288; /* more rows than tokens: padding */
		t.head_dim = 24;
		if (read_tiny(&t, &s, &c, &err) != ST_OK) fail_msg("%s: %s", ggtype_info(types[i])->name, err.text);
		assert_string_equal(s.file_types, ggtype_info(types[i])->name);
		assert_int_equal(s.vocab, 288);
		assert_int_equal(s.n_tokens, TINY_LLAMA_TOKENS);
		assert_int_equal(s.layers[0].k_dim, 24);
		assert_int_equal(s.tied, t.tied);
		assert_int_equal(spec_has(&s, SPEC_OUTPUT, 0), !t.tied);
		assert_int_equal(spec_role_shape(&s, SPEC_Q, 0).rows, 96);
		spec_release(&s);
		ckpt_close(c);
	}
}

static void rotary_frequencies_follow_base_factor_and_scaling(void **state)
{
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	uint32_t i;
	float f;

	tiny_llama_init(&t);
	t.rope_base = 500000;
	t.rope_linear = 4;
	t.rope_factors = true;
	assert_int_equal(read_tiny(&t, &s, &c, &err), ST_OK);
	for (i = 0; i < 8; i++) {
		memcpy(&f, ckpt_find(c, "rope_freqs.weight")->data + i * sizeof(f), sizeof(f));
		assert_true(f > 0.9f && f < 7.1f);
		assert_true(fabs(s.ropes[0].freqs[i] * pow(500000, i / 8.0) * 4 * (double)f - 1) < 1e-12);
	}
	spec_release(&s);
	ckpt_close(c);
}

static void keys_with_a_default_may_be_missing(void **state)
{
	static const char *const keys[] = {"llama.attention.head_count_kv", "llama.rope.dimension_count",
					   "llama.rope.freq_base", "llama.vocab_size", "tokenizer.ggml.tokens"};
	struct gguf_writer w;
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	size_t i;

	tiny_llama_init(&t);
	t.kv_heads = t.heads;
	gguf_writer_init(&w);
	tiny_llama_fill(&w, &t);
	for (i = 0; i < ARRAY_LEN(keys); i++) gguf_writer_drop(&w, keys[i]);
	gguf_writer_tensor(&w, "blk.0.attn_rot_embd", GGTYPE_F32, 1, (uint64_t[]){8}, NULL,
			   0); /* an old converter's buffer */
	if (read_writer(&w, &s, &c, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(s.layers[0].kv_heads, 4);
	assert_int_equal(s.ropes[0].dims, 16);
	assert_true(fabs(s.ropes[0].freqs[1] - pow(10000, -1 / 8.0)) < 1e-12);
	assert_int_equal(s.n_tokens, s.vocab);
	spec_release(&s);
	ckpt_close(c);
	gguf_writer_release(&w);
}

/* Keys that other converters or later versions write. */
static void more_keys_of_llama_files_are_known(void **state)
{
	struct gguf_writer w;
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;

	tiny_llama_init(&t);
	gguf_writer_init(&w);
	tiny_llama_fill(&w, &t);
	gguf_writer_u32(&w, "llama.attention.sliding_window", 100);
	gguf_writer_u32(&w, "llama.expert_count", 0);
	gguf_writer_str(&w, "llama.tensor_data_layout", "Meta AI original pth");
	gguf_writer_str(&w, "llama.rope.scaling.type", "yarn");
	gguf_writer_f32(&w, "llama.rope.scaling.factor", 4);
	gguf_writer_u32(&w, "llama.rope.scaling.original_context_length", 128);
	if (read_writer(&w, &s, &c, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(s.layers[1].window, 100);
	assert_true(fabs(s.ropes[0].mscale - (0.1 * log(4) + 1)) < 1e-12);
	assert_true(fabs(s.ropes[0].freqs[7] * 4 * pow(10000, 7 / 8.0) - 1) < 1e-12);
	spec_release(&s);
	ckpt_close(c);
	gguf_writer_release(&w);
}

/* ---- refusals ---- */

enum change { DROP, U32, I32, F32, STR, DIMS, TYPE, EXTRA, LIST };

/* clang-format off */
static const struct refusal {
	enum change change;
	const char *name;
	double number; /* of U32, I32, F32; DIMS: rows * 1000 + cols; TYPE: the type */
	const char *text;
	int rc;
	const char *words;
} refusals[] = {
	{DROP, "general.architecture", 0, "", ST_NOT_FOUND, "key general.architecture is missing"},
	{STR, "general.architecture", 0, "nosuch", ST_UNSUPPORTED, "architecture \"nosuch\" (general.architecture) is not supported; supported: llama, qwen2"},
	{STR, "general.architecture", 0, "a\x1b[0mb", ST_UNSUPPORTED, "architecture \"a\\x1b[0mb\""},
	{STR, "general.architecture", 0, "", ST_UNSUPPORTED, "architecture \"\""},
	{U32, "general.architecture", 5, "", ST_INVALID, "general.architecture has the wrong type"},
	{DROP, "llama.block_count", 0, "", ST_NOT_FOUND, "llama.block_count is missing"},
	{U32, "llama.block_count", 0, "", ST_INVALID, "llama.block_count is 0; expected 1 to"},
	{U32, "llama.block_count", 100000, "", ST_INVALID, "llama.block_count is 100000"},
	{U32, "llama.block_count", 3, "", ST_NOT_FOUND, "tensor blk.2.attn_norm.weight is missing (llama.block_count is 3)"},
	{U32, "llama.block_count", 1, "", ST_UNSUPPORTED, "tensor blk.1.attn_norm.weight is not one of a llama model with 1 layers (llama.block_count)"},
	{STR, "llama.block_count", 0, "2", ST_INVALID, "llama.block_count has the wrong type: str, expected an integer"},
	{DROP, "llama.embedding_length", 0, "", ST_NOT_FOUND, "llama.embedding_length is missing"},
	{U32, "llama.embedding_length", 0, "", ST_INVALID, "llama.embedding_length is 0"},
	{U32, "llama.embedding_length", 128, "", ST_INVALID, "has the shape"},
	{I32, "llama.embedding_length", -64, "", ST_INVALID, "llama.embedding_length is -64"},
	{DROP, "llama.feed_forward_length", 0, "", ST_NOT_FOUND, "key llama.feed_forward_length is missing"},
	{U32, "llama.feed_forward_length", 64, "", ST_INVALID, "tensor blk.0.ffn_gate.weight has the shape [64, 128]; expected [64, 64] (llama.feed_forward_length, llama.embedding_length)"},
	{LIST, "llama.feed_forward_length", 0, "", ST_INVALID, "array of i32"},
	{U32, "llama.context_length", 0, "", ST_INVALID, "llama.context_length is 0"},
	{DROP, "llama.context_length", 0, "", ST_NOT_FOUND, "llama.context_length is missing"},
	{U32, "llama.attention.head_count", 0, "", ST_INVALID, "llama.attention.head_count is 0"},
	{DROP, "llama.attention.head_count", 0, "", ST_NOT_FOUND, "llama.attention.head_count is missing"},
	{U32, "llama.attention.head_count", 6, "", ST_INVALID, "llama.embedding_length 64 is not a multiple of llama.attention.head_count 6"},
	{U32, "llama.attention.head_count_kv", 3, "", ST_INVALID, "head_count 4 is not a multiple of llama.attention.head_count_kv 3"},
	{U32, "llama.attention.head_count_kv", 0, "", ST_INVALID, "head_count_kv is 0"},
	{U32, "llama.attention.head_count_kv", 4, "", ST_INVALID, "tensor blk.0.attn_k.weight has the shape [64, 32]; expected [64, 64] (llama.attention.head_count_kv, llama.attention.key_length, llama.embedding_length)"},
	{LIST, "llama.attention.head_count_kv", 0, "", ST_INVALID, "head_count_kv has the wrong type: array of i32"},
	{U32, "llama.attention.key_length", 15, "", ST_INVALID, "the length of a head (llama.attention.key_length, or llama.embedding_length / llama.attention.head_count) is 15; expected an even number"},
	{U32, "llama.attention.key_length", 0, "", ST_INVALID, "key_length is 0"},
	{U32, "llama.attention.key_length", 5000, "", ST_INVALID, "key_length is 5000"},
	{U32, "llama.attention.value_length", 32, "", ST_INVALID, "tensor blk.0.attn_v.weight has the shape [64, 32]; expected [64, 64] (llama.attention.head_count_kv, llama.attention.value_length, llama.embedding_length)"},
	{F32, "llama.attention.layer_norm_rms_epsilon", NAN, "", ST_INVALID, "layer_norm_rms_epsilon is nan"},
	{F32, "llama.attention.layer_norm_rms_epsilon", -1, "", ST_INVALID, "layer_norm_rms_epsilon is -1"},
	{F32, "llama.attention.layer_norm_rms_epsilon", 0, "", ST_INVALID, "layer_norm_rms_epsilon is 0"},
	{DROP, "llama.attention.layer_norm_rms_epsilon", 0, "", ST_NOT_FOUND, "layer_norm_rms_epsilon is missing"},
	{U32, "llama.rope.dimension_count", 18, "", ST_INVALID, "dimension_count is 18; expected 1 to 16"},
	{U32, "llama.rope.dimension_count", 7, "", ST_INVALID, "dimension_count is 7; expected an even number"},
	{F32, "llama.rope.freq_base", INFINITY, "", ST_INVALID, "freq_base is inf"},
	{F32, "llama.rope.freq_base", 0, "", ST_INVALID, "freq_base is 0"},
	{STR, "llama.rope.scaling.type", 0, "ntk", ST_UNSUPPORTED, "llama.rope.scaling.type \"ntk\" is not supported; supported: linear, none, yarn, longrope"},
	{U32, "llama.rope.scaling.type", 1, "", ST_INVALID, "llama.rope.scaling.type has the wrong type"},
	{F32, "llama.rope.scaling.factor", NAN, "", ST_INVALID, "llama.rope.scaling.factor is nan"},
	{F32, "llama.rope.scaling.factor", 1e-9, "", ST_INVALID, "llama.rope.scaling.factor is 1e-09"},
	{F32, "llama.rope.scale_linear", -2, "", ST_INVALID, "llama.rope.scale_linear is -2"},
	{U32, "llama.expert_count", 8, "", ST_NOT_FOUND, "llama.expert_used_count is missing"},
	{U32, "llama.expert_used_count", 2, "", ST_UNSUPPORTED, "llama.expert_used_count is 2; the family llama is built for 0 alone"},
	{F32, "llama.logit_scale", 0.5, "", ST_UNSUPPORTED, "llama.logit_scale is a setting that is not built for the family llama"},
	{U32, "llama.attention.new_thing", 1, "", ST_UNSUPPORTED, "llama.attention.new_thing is a setting that is not built"},
	{F32, "llama.attention.scale", 0.125f, "", ST_UNSUPPORTED, "llama.attention.scale is a setting"},
	{U32, "llama.attention.sliding_window", UINT32_MAX, "", ST_INVALID, "llama.attention.sliding_window is 4294967295"},
	{LIST, "tokenizer.ggml.tokens", 0, "", ST_INVALID, "tokenizer.ggml.tokens) has 300 tokens, but token_embd.weight only 265 rows"},
	{DROP, "token_embd.weight", 0, "", ST_NOT_FOUND, "tensor token_embd.weight is missing"},
	{DROP, "output_norm.weight", 0, "", ST_NOT_FOUND, "tensor output_norm.weight is missing"},
	{DROP, "blk.1.ffn_down.weight", 0, "", ST_NOT_FOUND, "tensor blk.1.ffn_down.weight is missing"},
	{DIMS, "blk.0.attn_k.weight", 64032, "", ST_INVALID, "tensor blk.0.attn_k.weight has the shape [32, 64]; expected [64, 32]"},
	{DIMS, "output.weight", 64265, "", ST_INVALID, "tensor output.weight has the shape [265, 64]; expected [64, 265] (llama.embedding_length)"},
	{DIMS, "output_norm.weight", 2032, "", ST_INVALID, "tensor output_norm.weight has the shape [32, 2]; expected [64]"},
	{TYPE, "blk.1.attn_q.weight", GGTYPE_I8, "", ST_UNSUPPORTED, "tensor blk.1.attn_q.weight has the type I8, which is not supported; supported: F32 F16"},
	{TYPE, "blk.1.attn_norm.weight", GGTYPE_I8, "", ST_UNSUPPORTED, "tensor blk.1.attn_norm.weight has the type I8; supported: F32 F16 BF16"},
	{EXTRA, "blk.0.attn_q.bias", 64, "", ST_NOT_FOUND, "tensor blk.0.attn_k.bias is missing"},
	{EXTRA, "blk.1.attn_q.bias", 64, "", ST_UNSUPPORTED, "tensor blk.1.attn_q.bias is not one of a llama model"},
	{EXTRA, "blk.2.attn_norm.weight", 64, "", ST_UNSUPPORTED, "tensor blk.2.attn_norm.weight"},
	{EXTRA, "blk.00.attn_norm.weight", 64, "", ST_UNSUPPORTED, "tensor blk.00.attn_norm.weight"},
	{EXTRA, "rope_freqs.weight", 16, "", ST_INVALID, "tensor rope_freqs.weight has the shape [16]; expected [8]"},
	{EXTRA, "rope_freqs.weight", 8, "", ST_INVALID, "tensor rope_freqs.weight: value 0 is 0"},
	{EXTRA, "v.patch_embd.weight", 8, "", ST_UNSUPPORTED, "tensor v.patch_embd.weight"},
};
/* clang-format on */

static void refusal_apply(const struct refusal *c, struct gguf_writer *w)
{
	struct gguf_writer_tensor *t = gguf_writer_find_tensor(w, c->name);
	const char *words[300];
	size_t i;

	switch (c->change) {
	case DROP:
		gguf_writer_drop(w, c->name);
		break;
	case U32:
		gguf_writer_u32(w, c->name, (uint32_t)c->number);
		if (strstr(c->name, "key_length")) gguf_writer_u32(w, "llama.attention.value_length", 16);
		break;
	case I32:
		gguf_writer_i32(w, c->name, (int32_t)c->number);
		break;
	case F32:
		gguf_writer_f32(w, c->name, (float)c->number);
		break;
	case STR:
		gguf_writer_str(w, c->name, c->text);
		break;
	case DIMS:
		t->n_dims = 2;
		t->dims[0] = (uint64_t)c->number % 1000;
		t->dims[1] = (uint64_t)c->number / 1000;
		break;
	case TYPE: /* smaller than what was there, so that the file itself stays right */
		t->type = (uint32_t)c->number;
		break;
	case EXTRA:
		gguf_writer_tensor(w, c->name, GGTYPE_F32, 1, (uint64_t[]){(uint64_t)c->number}, NULL, 0);
		break;
	case LIST:
		for (i = 0; i < ARRAY_LEN(words); i++) words[i] = "w";
		if (strstr(c->name, "tokens"))
			gguf_writer_strs(w, c->name, words, ARRAY_LEN(words));
		else
			gguf_writer_array(w, c->name, GGUF_I32, (int32_t[]){2, 2}, 2);
		break;
	}
}

static void what_cannot_be_is_refused_by_name(void **state)
{
	struct gguf_writer w;
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	size_t i;

	tiny_llama_init(&t);
	for (i = 0; i < ARRAY_LEN(refusals); i++) {
		const struct refusal *x = &refusals[i];
		int rc;

		gguf_writer_init(&w);
		tiny_llama_fill(&w, &t);
		refusal_apply(x, &w);
		rc = read_writer(&w, &s, &c, &err);
		if (rc != x->rc || !strstr(err.text, x->words))
			fail_msg("case %zu (%s): status %d, text \"%s\"; expected %d and \"%s\"", i, x->name, rc,
				 err.text, x->rc, x->words);
		if (c && !strstr(err.text, ckpt_shown_path(c))) fail_msg("no path: %s", err.text);
		spec_release(&s);
		ckpt_close(c);
		gguf_writer_release(&w);
	}
}

static void preflight_checks_file_and_model(void **state)
{
	char *path = test_file_temp("tiny.gguf");
	struct tiny_llama t;
	struct errbuf err;

	tiny_llama_init(&t);
	tiny_llama_save(&t, path);
	assert_int_equal(preflight_check(path, NULL, NULL, &err), ST_OK);
	test_file_write(path, "GGUF", 4);
	assert_int_equal(preflight_check(path, NULL, NULL, &err), ST_CORRUPT);
	assert_non_null(strstr(err.text, "tiny.gguf"));
	free(path);
}

/* A whole model's metadata and descriptions under flipped bytes: whatever still opens must be refused or be read as
 * something. */
static void no_single_byte_makes_it_crash(void **state)
{
	size_t len, head, i, n_ok = 0, n_read = 0;
	struct test_file_mem m;
	struct gguf_writer w;
	struct tiny_llama t;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	uint8_t *bytes;

	tiny_llama_init(&t);
	t.layers = 1;
	t.dim = 32;
	t.ffn = 32;
	t.mat_type = t.embed_type = t.output_type = GGTYPE_Q4_0;
	gguf_writer_init(&w);
	tiny_llama_fill(&w, &t);
	gguf_writer_drop(&w, "tokenizer.ggml.tokens"); /* the text of tokens changes nothing here */
	gguf_writer_drop(&w, "tokenizer.ggml.token_type");
	bytes = gguf_writer_build(&w, &len);
	gguf_writer_release(&w);
	for (head = 0; head < len && memcmp(bytes + head, "output.weight", 13) != 0;) head++;
	for (i = 0; i < head; i++) {
		uint8_t was = bytes[i];

		bytes[i] = i % 2 ? 0xff : (uint8_t)(was ^ 1u << i % 8);
		test_file_mem_init(&m, bytes, len);
		c = NULL;
		if (ckpt_open(&c, m.path, &err) == ST_OK) {
			n_ok++;
			n_read += spec_read(&s, c, NULL, &err) == ST_OK;
			spec_release(&s);
		}
		ckpt_close(c);
		test_file_mem_release(&m);
		bytes[i] = was;
	}
	assert_true(n_ok > 0 && n_ok < head && n_read > 0 && n_read < n_ok);
	free(bytes);
}

/* ---- recorded and real files ---- */

static int check_bytes(const char *bytes, size_t len, struct spec *s, struct errbuf *err)
{
	struct test_file_mem m;
	struct ckpt *c = NULL;
	int rc;

	*s = (struct spec){0};
	test_file_mem_init(&m, bytes, len);
	rc = ckpt_open(&c, m.path, err);
	if (rc == ST_OK) rc = spec_read(s, c, NULL, err);
	ckpt_close(c);
	test_file_mem_release(&m);
	return rc;
}

static void golden_files_without_a_usable_architecture_are_refused(void **state)
{
	static const struct {
		const char *file, *words;
	} cases[] = {
		{"malformed/gguf/no-architecture.gguf", "key general.architecture is missing"},
		{"malformed/gguf/arch-wrong-type.gguf", "key general.architecture has the wrong type"},
	};
	struct errbuf err;
	struct spec s;
	size_t i, len;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		char *bytes = golden_text(cases[i].file, &len);

		if (!bytes) skip();
		assert_true(check_bytes(bytes, len, &s, &err) != ST_OK);
		assert_non_null(strstr(err.text, cases[i].words));
		spec_release(&s);
		free(bytes);
	}
}

static void the_default_model_is_known(void **state)
{
	const char *path = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
	const struct spec_layer *y;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	FILE *f = fopen(path, "rb");

	if (!f) skip(); /* `make run` fetches it */
	fclose(f);
	if (ckpt_open(&c, path, &err) != ST_OK) fail_msg("%s", err.text);
	if (spec_read(&s, c, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	y = &s.layers[29];
	assert_int_equal(s.n_layers, 30);
	assert_int_equal(s.dim, 576);
	assert_int_equal(y->heads, 9);
	assert_int_equal(y->kv_heads, 3);
	assert_int_equal(y->k_dim, 64);
	assert_int_equal(y->ffn, 1536);
	assert_int_equal(s.vocab, 49152);
	assert_int_equal(s.context_len, 8192);
	assert_true(s.tied && fabs(s.ropes[0].freqs[1] - pow(100000, -1 / 32.0)) < 1e-12);
	assert_int_equal(s.n_params, 134515008);
	assert_string_equal(s.file_types, "Q4_1");
	spec_release(&s);
	ckpt_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_is_read_as_written),
		cmocka_unit_test(every_built_type_and_padding_load),
		cmocka_unit_test(rotary_frequencies_follow_base_factor_and_scaling),
		cmocka_unit_test(keys_with_a_default_may_be_missing),
		cmocka_unit_test(more_keys_of_llama_files_are_known),
		cmocka_unit_test(what_cannot_be_is_refused_by_name),
		cmocka_unit_test(preflight_checks_file_and_model),
		cmocka_unit_test(no_single_byte_makes_it_crash),
		cmocka_unit_test(golden_files_without_a_usable_architecture_are_refused),
		cmocka_unit_test(the_default_model_is_known),
	};

	return cmocka_run_group_tests_name("spec_gguf", tests, NULL, NULL);
}
