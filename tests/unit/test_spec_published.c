/* test_spec_published.c - settings and tensors as published checkpoints spell them, with the first layers alone: all of
 * it is accepted, and what the description makes of them is right. The files are of the published sizes, but hold
 * nothing. */
#include "model/ckpt.h"
#include "model/spec.h"
#include "model/wsrc.h"
#include "tests/support/test_file.h"

#include "common/mem.h"
#include "common/strbuf.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- folders ---- */

static uint32_t dtype_bytes(const char *dtype)
{
	if (strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0) return 4;
	if (strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0) return 2;
	return 1;
}

/* "NAME DTYPE DIM DIM ..." as a member of the header. "{a-b}" in a name stands for all numbers of a range. */
static void put_tensor(struct strbuf *header, const char *name, const char *rest, uint64_t *at)
{
	const char *open = strchr(name, '{');
	uint32_t from, to, i, n_dims = 0;
	uint64_t dims[4], bytes;
	char dtype[16];
	int used;

	if (open) {
		assert_int_equal(sscanf(open, "{%u-%u}", &from, &to), 2);
		for (i = from; i <= to; i++) {
			char one[256];

			snprintf(one, sizeof(one), "%.*s%u%s", (int)(open - name), name, i, strchr(open, '}') + 1);
			put_tensor(header, one, rest, at);
		}
		return;
	}
	assert_int_equal(sscanf(rest, "%15s%n", dtype, &used), 1);
	rest += used;
	bytes = dtype_bytes(dtype);
	strbuf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "", name, dtype);
	while (n_dims < 4 && sscanf(rest, "%" SCNu64 "%n", &dims[n_dims], &used) == 1) {
		strbuf_printf(header, "%s%" PRIu64, n_dims ? "," : "", dims[n_dims]);
		bytes *= dims[n_dims++];
		rest += used;
	}
	strbuf_printf(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, *at + bytes);
	*at += bytes;
}

/* A folder of config.json and one sparse file. */
static char *make_folder(const char *config, const char *const *tensors)
{
	char *folder = test_file_temp("published"), *config_path, *tensors_path;
	struct strbuf header;
	uint64_t at = 0, len;
	FILE *f;

	mkdir(folder, 0700);
	config_path = test_file_temp("published/config.json");
	tensors_path = test_file_temp("published/model.safetensors");
	test_file_write(config_path, config, strlen(config));
	strbuf_init(&header, 64 * MIB);
	strbuf_putc(&header, '{');
	for (; *tensors; tensors++) {
		size_t name = strcspn(*tensors, " ");
		char *copy = mem_strndup(*tensors, name);

		put_tensor(&header, copy, *tensors + name, &at);
		free(copy);
	}
	strbuf_putc(&header, '}');
	while (header.len % 8) strbuf_putc(&header, ' ');
	f = fopen(tensors_path, "wb");
	assert_non_null(f);
	len = header.len;
	fwrite(&len, sizeof(len), 1, f);
	fwrite(header.data, 1, header.len, f);
	fclose(f);
	assert_int_equal(truncate(tensors_path, (off_t)(8 + len + at)), 0);
	strbuf_release(&header);
	free(config_path);
	free(tensors_path);
	return folder;
}

static void read_published(const char *config, const char *const *tensors, const struct spec_opts *opts,
			   struct ckpt **c, struct spec *s)
{
	char *folder = make_folder(config, tensors), *inside;
	struct errbuf err;

	if (ckpt_open(c, folder, &err) != ST_OK) fail_msg("%s", err.text);
	if (spec_read(s, *c, opts, &err) != ST_OK) fail_msg("%s", err.text);
	inside = test_file_temp("published/config.json");
	unlink(inside);
	free(inside);
	inside = test_file_temp("published/model.safetensors");
	unlink(inside);
	free(inside);
	rmdir(folder);
	free(folder);
}

static struct wsrc find(const struct spec *s, const struct ckpt *c, enum spec_role role, uint32_t layer, uint32_t ix)
{
	struct errbuf err;
	struct wsrc w;

	if (wsrc_find(&w, s, c, role, layer, ix, &err) != ST_OK) fail_msg("%s", err.text);
	return w;
}

static void close_all(struct ckpt *c, struct spec *s)
{
	spec_release(s);
	ckpt_close(c);
}

#define L(n) "model.layers.{0-" #n "}."
#define DENSE(n, dim, q, kv, ffn)                                                                                    \
	L(n)                                                                                                         \
	"input_layernorm.weight BF16 " #dim, L(n) "post_attention_layernorm.weight BF16 " #dim,                      \
		L(n) "self_attn.q_proj.weight BF16 " #q " " #dim, L(n) "self_attn.k_proj.weight BF16 " #kv " " #dim, \
		L(n) "self_attn.v_proj.weight BF16 " #kv " " #dim, L(n) "self_attn.o_proj.weight BF16 " #dim " " #q, \
		L(n) "mlp.gate_proj.weight BF16 " #ffn " " #dim, L(n) "mlp.up_proj.weight BF16 " #ffn " " #dim,      \
		L(n) "mlp.down_proj.weight BF16 " #dim " " #ffn
#define ENDS(vocab, dim) "model.embed_tokens.weight BF16 " #vocab " " #dim, "model.norm.weight BF16 " #dim

/* ---- models ---- */

static void llama_3_1_8b(void **state)
{
	static const char config[] =
		"{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"attention_dropout\": 0.0, "
		"\"bos_token_id\": 128000, "
		"\"eos_token_id\": [128001, 128008, 128009], \"hidden_act\": \"silu\", \"hidden_size\": 4096, "
		"\"initializer_range\": 0.02, "
		"\"intermediate_size\": 14336, \"max_position_embeddings\": 131072, \"mlp_bias\": false, "
		"\"model_type\": \"llama\", "
		"\"num_attention_heads\": 32, \"num_hidden_layers\": 2, \"num_key_value_heads\": 8, "
		"\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, "
		"\"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
		"\"original_max_position_embeddings\": 8192, "
		"\"rope_type\": \"llama3\"}, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false, "
		"\"torch_dtype\": \"bfloat16\", "
		"\"transformers_version\": \"4.42.3\", \"use_cache\": true, \"vocab_size\": 128256}";
	static const char *const tensors[] = {ENDS(128256, 4096), "lm_head.weight BF16 128256 4096",
					      DENSE(1, 4096, 4096, 1024, 14336), NULL};
	struct ckpt *c;
	struct spec s;

	read_published(config, tensors, NULL, &c, &s);
	assert_true(s.context_len == 131072 && s.layers[1].k_dim == 128 && s.layers[1].kv_heads == 8 &&
		    s.ropes[0].dims == 128);
	assert_true(fabs(s.ropes[0].freqs[29] / 2.16657063e-03 - 1) < 1e-6); /* transformers, see test_spec_rope.c */
	close_all(c, &s);
}

static void mistral_nemo(void **state)
{
	static const char config[] = "{\"architectures\": [\"MistralForCausalLM\"], \"attention_dropout\": 0.0, "
				     "\"bos_token_id\": 1, \"eos_token_id\": 2, \"head_dim\": 128, "
				     "\"hidden_act\": \"silu\", \"hidden_size\": 5120, \"initializer_range\": 0.02, "
				     "\"intermediate_size\": 14336, "
				     "\"max_position_embeddings\": 131072, \"model_type\": \"mistral\", "
				     "\"num_attention_heads\": 32, \"num_hidden_layers\": 1, "
				     "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, "
				     "\"sliding_window\": null, "
				     "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
				     "\"transformers_version\": \"4.43.0.dev0\", \"use_cache\": true, "
				     "\"vocab_size\": 131072}";
	static const char *const tensors[] = {ENDS(131072, 5120), "lm_head.weight BF16 131072 5120",
					      DENSE(0, 5120, 4096, 1024, 14336), NULL};
	struct ckpt *c;
	struct spec s;

	read_published(config, tensors, NULL, &c, &s);
	assert_true(s.layers[0].window == 0 && s.layers[0].k_dim == 128);
	close_all(c, &s);
}

static void phi_4_mini(void **state)
{
	static const char config[] = "{\"architectures\": [\"Phi3ForCausalLM\"], \"attention_bias\": false, "
				     "\"attention_dropout\": 0.0, \"auto_map\": {\"AutoConfig\": "
				     "\"configuration_phi3.Phi3Config\"}, \"bos_token_id\": 199999, \"embd_pdrop\": "
				     "0.0, \"eos_token_id\": 199999, \"full_attn_mod\": 1, "
				     "\"hidden_act\": \"silu\", \"hidden_size\": 3072, \"initializer_range\": 0.02, "
				     "\"intermediate_size\": 8192, \"interpolate_factor\": 1, "
				     "\"lm_head_bias\": false, \"max_position_embeddings\": 131072, \"mlp_bias\": "
				     "false, \"model_type\": \"phi3\", "
				     "\"num_attention_heads\": 24, \"num_hidden_layers\": 1, \"num_key_value_heads\": "
				     "8, \"original_max_position_embeddings\": 4096, "
				     "\"pad_token_id\": 199999, \"partial_rotary_factor\": 0.75, \"resid_pdrop\": 0.0, "
				     "\"rms_norm_eps\": 1e-05, \"rope_scaling\": "
				     "{\"long_factor\": [%s], \"short_factor\": [%s], \"type\": \"longrope\"}, "
				     "\"rope_theta\": 10000.0, \"sliding_window\": 262144, "
				     "\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", "
				     "\"transformers_version\": \"4.45.0\", \"use_cache\": true, "
				     "\"vocab_size\": 200064}";
	static const char *const tensors[] = {ENDS(200064, 3072),
					      L(0) "input_layernorm.weight BF16 3072",
					      L(0) "post_attention_layernorm.weight BF16 3072",
					      L(0) "self_attn.qkv_proj.weight BF16 5120 3072",
					      L(0) "self_attn.o_proj.weight BF16 3072 3072",
					      L(0) "mlp.gate_up_proj.weight BF16 16384 3072",
					      L(0) "mlp.down_proj.weight BF16 3072 8192",
					      NULL};
	struct spec_opts brief = {.model_len_max = 4096};
	char lists[2][400] = {"", ""}, text[4096];
	struct ckpt *c;
	struct spec s;
	struct wsrc w;
	int i, k;

	for (i = 0; i < 48; i++)
		for (k = 0; k < 2; k++)
			snprintf(lists[k] + strlen(lists[k]), 400 - strlen(lists[k]), "%s%d", i ? ", " : "", k ? 1 : 2);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), config, lists[0], lists[1]);
#pragma GCC diagnostic pop
	read_published(text, tensors, NULL, &c, &s);
	assert_true(s.ropes[0].dims == 96 && s.ropes[0].freqs[0] == 0.5 && s.layers[0].window == 0 && s.tied);
	w = find(&s, c, SPEC_V, 0, 0);
	assert_true(w.tensor_rows == 5120 && w.rows == 1024 && w.pieces[0].first == 4096);
	w = find(&s, c, SPEC_UP, 0, 0);
	assert_true(w.rows == 8192 && w.pieces[0].first == 8192 && w.tensor_rows == 16384);
	close_all(c, &s);
	read_published(text, tensors, &brief, &c, &s);
	assert_true(s.ropes[0].freqs[0] == 1 && fabs(s.ropes[0].mscale - 1.19023807) < 1e-8);
	close_all(c, &s);
}

#define GEMMA "language_model.model.layers.{0-5}."
static void gemma_3_4b(void **state)
{
	static const char config[] = "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"boi_token_index\": "
				     "255999, \"eoi_token_index\": 256000, \"eos_token_id\": "
				     "[1, 106], \"image_token_index\": 262144, \"initializer_range\": 0.02, "
				     "\"mm_tokens_per_image\": 256, \"model_type\": \"gemma3\", "
				     "\"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, "
				     "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 6, "
				     "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
				     "\"sliding_window\": 1024}, \"torch_dtype\": \"bfloat16\", "
				     "\"transformers_version\": \"4.50.0.dev0\", \"vision_config\": {\"hidden_size\": "
				     "1152, \"image_size\": 896}}";
	static const char *const tensors[] = {
		"language_model.model.embed_tokens.weight BF16 262208 2560",
		"language_model.model.norm.weight BF16 2560",
		GEMMA "input_layernorm.weight BF16 2560",
		GEMMA "post_attention_layernorm.weight BF16 2560",
		GEMMA "pre_feedforward_layernorm.weight BF16 2560",
		GEMMA "post_feedforward_layernorm.weight BF16 2560",
		GEMMA "self_attn.q_proj.weight BF16 2048 2560",
		GEMMA "self_attn.k_proj.weight BF16 1024 2560",
		GEMMA "self_attn.v_proj.weight BF16 1024 2560",
		GEMMA "self_attn.o_proj.weight BF16 2560 2048",
		GEMMA "self_attn.q_norm.weight BF16 256",
		GEMMA "self_attn.k_norm.weight BF16 256",
		GEMMA "mlp.gate_proj.weight BF16 10240 2560",
		GEMMA "mlp.up_proj.weight BF16 10240 2560",
		GEMMA "mlp.down_proj.weight BF16 2560 10240",
		"vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight BF16 4304 1152",
		"multi_modal_projector.mm_input_projection_weight BF16 1152 2560",
		NULL};
	struct spec_opts opts = {.model_len_max = 0};
	struct ckpt *c;
	struct spec s;

	read_published(config, tensors, NULL, &c, &s);
	assert_true(s.tied && s.vocab == 262208 && s.context_len == 131072 && s.zero_centered_norms);
	assert_true(s.layers[0].window == 1024 && s.layers[5].window == 0 && s.layers[0].scale == 1.0 / 16);
	assert_true(s.ropes[s.layers[5].rope].freqs[0] == 1.0 / 8 && s.ropes[s.layers[0].rope].freqs[0] == 1);
	assert_true(find(&s, c, SPEC_Q_NORM, 3, 0).map == WSRC_PLUS_ONE);
	close_all(c, &s);
	/* An override's plain name means the text model's setting, which the file has within text_config. */
	opts.overrides = json_pack("{s:i, s:{s:i}}", "sliding_window", 512, "text_config", "query_pre_attn_scalar", 64);
	read_published(config, tensors, &opts, &c, &s);
	assert_true(s.layers[0].window == 512 && s.layers[0].scale == 1.0 / 8);
	json_decref((json_t *)opts.overrides);
	close_all(c, &s);
}

#define FP8(name, rows, cols, r, c) name ".weight F8_E4M3 " #rows " " #cols, name ".weight_scale_inv F32 " #r " " #c
#define DS_ATT(l)                                                                                                      \
	l "input_layernorm.weight BF16 7168", l "post_attention_layernorm.weight BF16 7168",                           \
		FP8(l "self_attn.q_a_proj", 1536, 7168, 12, 56), l "self_attn.q_a_layernorm.weight BF16 1536",         \
		FP8(l "self_attn.q_b_proj", 24576, 1536, 192, 12),                                                     \
		FP8(l "self_attn.kv_a_proj_with_mqa", 576, 7168, 5, 56), l "self_attn.kv_a_layernorm.weight BF16 512", \
		FP8(l "self_attn.kv_b_proj", 32768, 512, 256, 4), FP8(l "self_attn.o_proj", 7168, 16384, 56, 128)
#define DS_EXPERTS(l)                                                                    \
	l "mlp.gate.weight BF16 256 7168", l "mlp.gate.e_score_correction_bias F32 256", \
		FP8(l "mlp.experts.{0-255}.gate_proj", 2048, 7168, 16, 56),              \
		FP8(l "mlp.experts.{0-255}.up_proj", 2048, 7168, 16, 56),                \
		FP8(l "mlp.experts.{0-255}.down_proj", 7168, 2048, 56, 16),              \
		FP8(l "mlp.shared_experts.gate_proj", 2048, 7168, 16, 56),               \
		FP8(l "mlp.shared_experts.up_proj", 2048, 7168, 16, 56),                 \
		FP8(l "mlp.shared_experts.down_proj", 7168, 2048, 56, 16)
static void deepseek_v3(void **state)
{
	static const char config[] = "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"attention_bias\": false, "
				     "\"attention_dropout\": 0.0, \"auto_map\": {\"AutoConfig\": "
				     "\"configuration_deepseek.DeepseekV3Config\"}, \"aux_loss_alpha\": 0.001, "
				     "\"bos_token_id\": 0, \"eos_token_id\": 1, \"ep_size\": 1, "
				     "\"first_k_dense_replace\": 3, \"hidden_act\": \"silu\", \"hidden_size\": 7168, "
				     "\"initializer_range\": 0.02, \"intermediate_size\": "
				     "18432, \"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, "
				     "\"model_type\": \"deepseek_v3\", \"moe_intermediate_size\": 2048, "
				     "\"moe_layer_freq\": 1, \"n_group\": 8, \"n_routed_experts\": 256, "
				     "\"n_shared_experts\": 1, \"norm_topk_prob\": true, "
				     "\"num_attention_heads\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": "
				     "4, \"num_key_value_heads\": 128, "
				     "\"num_nextn_predict_layers\": 1, \"pretraining_tp\": 1, \"q_lora_rank\": 1536, "
				     "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "
				     "\"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "
				     "\"quant_method\": \"fp8\", \"weight_block_size\": "
				     "[128, 128]}, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"beta_fast\": 32, "
				     "\"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, "
				     "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"type\": "
				     "\"yarn\"}, \"rope_theta\": 10000, "
				     "\"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", \"seq_aux\": "
				     "true, \"tie_word_embeddings\": false, \"topk_group\": 4, "
				     "\"topk_method\": \"noaux_tc\", \"torch_dtype\": \"bfloat16\", "
				     "\"transformers_version\": \"4.33.1\", \"use_cache\": true, "
				     "\"v_head_dim\": 128, \"vocab_size\": 129280}";
	static const char *const tensors[] = {
		ENDS(129280, 7168), "lm_head.weight BF16 129280 7168", DS_ATT("model.layers.{0-3}."),
		FP8("model.layers.{0-2}.mlp.gate_proj", 18432, 7168, 144, 56),
		FP8("model.layers.{0-2}.mlp.up_proj", 18432, 7168, 144, 56),
		FP8("model.layers.{0-2}.mlp.down_proj", 7168, 18432, 56, 144), DS_EXPERTS("model.layers.3."),
		/* the layer that predicts one token more */
		DS_ATT("model.layers.4."), "model.layers.4.eh_proj.weight BF16 7168 14336",
		"model.layers.4.embed_tokens.weight BF16 129280 7168",
		"model.layers.4.shared_head.norm.weight BF16 7168", NULL};
	const struct spec_layer *y;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	read_published(config, tensors, NULL, &c, &s);
	y = &s.layers[3];
	assert_true(s.context_len == 163840 && y->n_experts == 256 && y->k_dim == 192 && y->shared_ffn == 2048 &&
		    !s.layers[2].n_experts);
	assert_true(fabs(y->scale * sqrt(192) / pow(0.1 * log(40) + 1, 2) - 1) < 1e-12);
	assert_true(fabs(s.ropes[0].freqs[20] / 7.90569407e-04 - 1) < 1e-6); /* transformers */
	assert_string_equal(s.file_types, "F8_E4M3");
	w = find(&s, c, SPEC_K_B, 1, 5);
	assert_true(w.code == WSRC_FP8 && w.transposed && w.at == 5 * 256 && w.rows == 512 && w.cols == 128 &&
		    w.scales);
	w = find(&s, c, SPEC_V_B, 1, 5);
	assert_true(!w.transposed && w.at == 5 * 256 + 128 && w.rows == 128 && w.cols == 512);
	w = find(&s, c, SPEC_EXP_DOWN, 3, 255);
	assert_true(w.rows == 7168 && w.cols == 2048 && w.block_rows == 128 && w.at == 0 && w.type == GGTYPE_F8_B32);
	close_all(c, &s);
}

static void gpt_oss_20b(void **state)
{
	static const char config[] =
		"{\"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": true, \"attention_dropout\": 0.0, "
		"\"eos_token_id\": 200002, "
		"\"experts_per_token\": 4, \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2880, "
		"\"initial_context_length\": 4096, "
		"\"initializer_range\": 0.02, \"intermediate_size\": 2880, \"layer_types\": [\"sliding_attention\", "
		"\"full_attention\"], "
		"\"max_position_embeddings\": 131072, \"model_type\": \"gpt_oss\", \"num_attention_heads\": 64, "
		"\"num_experts_per_tok\": 4, "
		"\"num_hidden_layers\": 2, \"num_key_value_heads\": 8, \"num_local_experts\": 32, "
		"\"output_router_logits\": false, \"pad_token_id\": "
		"199999, \"quantization_config\": {\"modules_to_not_convert\": [\"model.layers.*.self_attn\", "
		"\"lm_head\"], \"quant_method\": "
		"\"mxfp4\"}, \"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, "
		"\"factor\": 32.0, "
		"\"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\", \"truncate\": false}, "
		"\"rope_theta\": 150000, "
		"\"router_aux_loss_coef\": 0.9, \"sliding_window\": 128, \"swiglu_limit\": 7.0, "
		"\"tie_word_embeddings\": false, "
		"\"transformers_version\": \"4.55.0.dev0\", \"use_cache\": true, \"vocab_size\": 201088}";
	static const char *const tensors[] = {ENDS(201088, 2880),
					      "lm_head.weight BF16 201088 2880",
					      L(1) "input_layernorm.weight BF16 2880",
					      L(1) "post_attention_layernorm.weight BF16 2880",
					      L(1) "self_attn.q_proj.weight BF16 4096 2880",
					      L(1) "self_attn.k_proj.weight BF16 512 2880",
					      L(1) "self_attn.v_proj.weight BF16 512 2880",
					      L(1) "self_attn.o_proj.weight BF16 2880 4096",
					      L(1) "self_attn.q_proj.bias BF16 4096",
					      L(1) "self_attn.k_proj.bias BF16 512",
					      L(1) "self_attn.v_proj.bias BF16 512",
					      L(1) "self_attn.o_proj.bias BF16 2880",
					      L(1) "self_attn.sinks BF16 64",
					      L(1) "mlp.router.weight BF16 32 2880",
					      L(1) "mlp.router.bias BF16 32",
					      L(1) "mlp.experts.gate_up_proj_blocks U8 32 5760 90 16",
					      L(1) "mlp.experts.gate_up_proj_scales U8 32 5760 90",
					      L(1) "mlp.experts.gate_up_proj_bias BF16 32 5760",
					      L(1) "mlp.experts.down_proj_blocks U8 32 2880 90 16",
					      L(1) "mlp.experts.down_proj_scales U8 32 2880 90",
					      L(1) "mlp.experts.down_proj_bias BF16 32 2880",
					      NULL};
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	read_published(config, tensors, NULL, &c, &s);
	assert_true(s.context_len == 131072 && s.layers[0].window == 128 && s.layers[1].window == 0 &&
		    s.layers[0].n_used == 4);
	assert_true(fabs(s.ropes[0].mscale - 1.34657359) < 1e-8 &&
		    fabs(s.ropes[0].freqs[9] / 3.17056961e-02 - 1) < 1e-6);
	w = find(&s, c, SPEC_EXP_UP, 1, 31);
	assert_true(w.code == WSRC_MXFP4 && w.type == GGTYPE_MXFP4 && w.at == 31 * 5760 && w.rows == 2880 &&
		    w.cols == 2880);
	assert_true(w.pieces[0].first == 1 && w.pieces[0].run == 1 && w.pieces[0].step == 2 && !w.transposed);
	w = find(&s, c, SPEC_EXP_DOWN, 0, 3);
	assert_true(w.at == 3 * 2880 && w.pieces[0].first == 0 && w.rows == 2880);
	w = find(&s, c, SPEC_EXP_GATE_BIAS, 0, 7);
	assert_true(w.transposed && w.rows == 2880 && w.cols == 1 && w.at == 7 && w.pieces[0].first == 0 &&
		    w.pieces[0].step == 2);
	close_all(c, &s);
}

#define Q35 "model.language_model.layers."
static void qwen_3_5_35b_a3b(void **state)
{
	static const char config[] =
		"{\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"], \"image_token_id\": 248056, "
		"\"model_type\": \"qwen3_5_moe\", "
		"\"text_config\": {\"attention_bias\": false, \"attention_dropout\": 0.0, \"attn_output_gate\": true, "
		"\"dtype\": \"bfloat16\", "
		"\"eos_token_id\": 248044, \"full_attention_interval\": 4, \"head_dim\": 256, \"hidden_act\": "
		"\"silu\", \"hidden_size\": 2048, "
		"\"initializer_range\": 0.02, \"layer_types\": [\"linear_attention\", \"linear_attention\", "
		"\"linear_attention\", "
		"\"full_attention\"], \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128, "
		"\"linear_num_key_heads\": 16, "
		"\"linear_num_value_heads\": 32, \"linear_value_head_dim\": 128, \"max_position_embeddings\": 262144, "
		"\"mlp_only_layers\": [], "
		"\"model_type\": \"qwen3_5_moe_text\", \"moe_intermediate_size\": 512, \"mtp_num_hidden_layers\": 1, "
		"\"mtp_use_dedicated_embeddings\": false, \"num_attention_heads\": 16, \"num_experts\": 256, "
		"\"num_experts_per_tok\": 8, "
		"\"num_hidden_layers\": 4, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, "
		"\"router_aux_loss_coef\": 0.001, "
		"\"shared_expert_intermediate_size\": 512, \"use_cache\": true, \"vocab_size\": 248320, "
		"\"mamba_ssm_dtype\": \"float32\", "
		"\"rope_parameters\": {\"mrope_interleaved\": true, \"mrope_section\": [11, 11, 10], \"rope_type\": "
		"\"default\", \"rope_theta\": "
		"10000000, \"partial_rotary_factor\": 0.25}}, \"tie_word_embeddings\": false, "
		"\"transformers_version\": \"4.57.0.dev0\", "
		"\"video_token_id\": 248057, \"vision_config\": {\"depth\": 27}, \"vision_end_token_id\": 248054, "
		"\"vision_start_token_id\": 248053}";
	static const char *const tensors[] = {"model.language_model.embed_tokens.weight BF16 248320 2048",
					      "model.language_model.norm.weight BF16 2048",
					      "lm_head.weight BF16 248320 2048",
					      Q35 "{0-3}.input_layernorm.weight BF16 2048",
					      Q35 "{0-3}.post_attention_layernorm.weight BF16 2048",
					      Q35 "{0-2}.linear_attn.in_proj_qkv.weight BF16 8192 2048",
					      Q35 "{0-2}.linear_attn.in_proj_z.weight BF16 4096 2048",
					      Q35 "{0-2}.linear_attn.in_proj_b.weight BF16 32 2048",
					      Q35 "{0-2}.linear_attn.in_proj_a.weight BF16 32 2048",
					      Q35 "{0-2}.linear_attn.conv1d.weight BF16 8192 1 4",
					      Q35 "{0-2}.linear_attn.dt_bias BF16 32",
					      Q35 "{0-2}.linear_attn.A_log F32 32",
					      Q35 "{0-2}.linear_attn.norm.weight F32 128",
					      Q35 "{0-2}.linear_attn.out_proj.weight BF16 2048 4096",
					      Q35 "3.self_attn.q_proj.weight BF16 8192 2048",
					      Q35 "3.self_attn.k_proj.weight BF16 512 2048",
					      Q35 "3.self_attn.v_proj.weight BF16 512 2048",
					      Q35 "3.self_attn.o_proj.weight BF16 2048 4096",
					      Q35 "3.self_attn.q_norm.weight BF16 256",
					      Q35 "3.self_attn.k_norm.weight BF16 256",
					      Q35 "{0-3}.mlp.gate.weight BF16 256 2048",
					      Q35 "{0-3}.mlp.experts.gate_up_proj BF16 256 1024 2048",
					      Q35 "{0-3}.mlp.experts.down_proj BF16 256 2048 512",
					      Q35 "{0-3}.mlp.shared_expert.gate_proj.weight BF16 512 2048",
					      Q35 "{0-3}.mlp.shared_expert.up_proj.weight BF16 512 2048",
					      Q35 "{0-3}.mlp.shared_expert.down_proj.weight BF16 2048 512",
					      Q35 "{0-3}.mlp.shared_expert_gate.weight BF16 1 2048",
					      "model.visual.blocks.0.attn.qkv.weight BF16 3456 1152",
					      "mtp.fc.weight BF16 2048 4096",
					      NULL};
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	read_published(config, tensors, NULL, &c, &s);
	assert_string_equal(s.family, "qwen3_5_moe");
	assert_true(s.layers[2].mixer == SPEC_DELTA && s.layers[3].mixer == SPEC_ATTENTION && s.ropes[0].dims == 64 &&
		    s.layers[3].out_gate);
	assert_true(s.layers[0].router_norm && s.layers[0].shared_gate && s.layers[0].shared_ffn == 512);
	w = find(&s, c, SPEC_EXP_UP, 0, 9);
	assert_true(w.at == 9 * 1024 && w.pieces[0].first == 512 && w.rows == 512 && w.cols == 2048 && !w.transposed);
	w = find(&s, c, SPEC_ATTN_GATE, 3, 0);
	assert_true(w.rows == 4096 && w.pieces[0].first == 256 && w.pieces[0].run == 256 && w.pieces[0].step == 512);
	assert_true(find(&s, c, SPEC_D_NORM, 0, 0).map == WSRC_AS_IS &&
		    find(&s, c, SPEC_D_NEG_A, 0, 0).map == WSRC_NEG_EXP);
	close_all(c, &s);
}

/* What a quantizer of 2023 wrote: biases of zeros beside every matrix, all columns in one group. */
static void gptq_with_biases_of_zeros(void **state)
{
	static const char config[] =
		"{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": "
		"1, \"num_attention_heads\": 4, "
		"\"vocab_size\": 100, \"max_position_embeddings\": 100, \"rms_norm_eps\": 1e-6, "
		"\"quantization_config\": {\"bits\": 4, \"group_size\": "
		"-1, \"desc_act\": false, \"sym\": true, \"quant_method\": \"gptq\", \"dataset\": \"c4\"}}";
	static const char *const tensors[] = {"model.embed_tokens.weight F16 100 64",
					      "model.norm.weight F16 64",
					      "lm_head.weight F16 100 64",
					      L(0) "input_layernorm.weight F16 64",
					      L(0) "post_attention_layernorm.weight F16 64",
					      L(0) "self_attn.q_proj.qweight I32 8 64",
					      L(0) "self_attn.q_proj.qzeros I32 1 8",
					      L(0) "self_attn.q_proj.scales F16 1 64",
					      L(0) "self_attn.q_proj.bias F16 64",
					      L(0) "self_attn.k_proj.qweight I32 8 64",
					      L(0) "self_attn.k_proj.qzeros I32 1 8",
					      L(0) "self_attn.k_proj.scales F16 1 64",
					      L(0) "self_attn.k_proj.bias F16 64",
					      L(0) "self_attn.v_proj.qweight I32 8 64",
					      L(0) "self_attn.v_proj.qzeros I32 1 8",
					      L(0) "self_attn.v_proj.scales F16 1 64",
					      L(0) "self_attn.o_proj.qweight I32 8 64",
					      L(0) "self_attn.o_proj.qzeros I32 1 8",
					      L(0) "self_attn.o_proj.scales F16 1 64",
					      L(0) "mlp.gate_proj.qweight I32 8 128",
					      L(0) "mlp.gate_proj.qzeros I32 1 16",
					      L(0) "mlp.gate_proj.scales F16 1 128",
					      L(0) "mlp.up_proj.qweight I32 8 128",
					      L(0) "mlp.up_proj.qzeros I32 1 16",
					      L(0) "mlp.up_proj.scales F16 1 128",
					      L(0) "mlp.down_proj.qweight I32 16 64",
					      L(0) "mlp.down_proj.qzeros I32 1 8",
					      L(0) "mlp.down_proj.scales F16 1 64",
					      L(0) "self_attn.rotary_emb.inv_freq F16 8",
					      NULL};
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	read_published(config, tensors, NULL, &c, &s);
	w = find(&s, c, SPEC_DOWN, 0, 0);
	assert_true(w.code == WSRC_GPTQ && w.block_cols == 128 && w.zeros_minus_one && w.rows == 64 && w.cols == 128 &&
		    !w.order);
	assert_int_equal(s.layers[0].kv_heads, 4);
	assert_false(s.layers[0].qkv_bias);
	close_all(c, &s);
}

#define AWQ(name, rows, cols, by_8, groups)                                               \
	L(0)                                                                              \
	name ".qweight I32 " #cols " " #by_8, L(0) name ".qzeros I32 " #groups " " #by_8, \
		L(0) name ".scales F16 " #groups " " #rows

/* As DeepSeek-R1-AWQ: kv_b_proj is coded too. */
static void latent_attention_in_awq(void **state)
{
	static const char config[] =
		"{\"model_type\": \"deepseek_v2\", \"hidden_size\": 64, \"intermediate_size\": 128, "
		"\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 100, "
		"\"max_position_embeddings\": 100, \"rms_norm_eps\": 1e-6, \"q_lora_rank\": null, \"kv_lora_rank\": "
		"64, "
		"\"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 24, \"first_k_dense_replace\": 1, "
		"\"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
		"\"topk_method\": \"greedy\", \"quantization_config\": {\"bits\": 4, \"group_size\": 32, "
		"\"quant_method\": \"awq\", \"version\": \"gemm\", \"zero_point\": true, "
		"\"modules_to_not_convert\": null}}";
	static const char *const tensors[] = {"model.embed_tokens.weight F16 100 64",
					      "model.norm.weight F16 64",
					      "lm_head.weight F16 100 64",
					      L(0) "input_layernorm.weight F16 64",
					      L(0) "post_attention_layernorm.weight F16 64",
					      L(0) "self_attn.kv_a_layernorm.weight F16 64",
					      AWQ("self_attn.q_proj", 96, 64, 12, 2),
					      AWQ("self_attn.kv_a_proj_with_mqa", 72, 64, 9, 2),
					      AWQ("self_attn.kv_b_proj", 160, 64, 20, 2),
					      AWQ("self_attn.o_proj", 64, 96, 8, 3),
					      AWQ("mlp.gate_proj", 128, 64, 16, 2),
					      AWQ("mlp.up_proj", 128, 64, 16, 2),
					      AWQ("mlp.down_proj", 64, 128, 8, 4),
					      NULL};
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	read_published(config, tensors, NULL, &c, &s);
	w = find(&s, c, SPEC_K_B, 0, 3);
	assert_true(w.code == WSRC_AWQ && w.transposed && w.at == 120 && w.rows == 64 && w.cols == 16 &&
		    w.tensor_rows == 160 && w.type == GGTYPE_F32);
	w = find(&s, c, SPEC_V_B, 0, 3);
	assert_true(!w.transposed && w.at == 136 && w.rows == 24 && w.cols == 64 && w.tensor_rows == 160 &&
		    w.type == GGTYPE_Q4_Z);
	close_all(c, &s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(llama_3_1_8b),
		cmocka_unit_test(mistral_nemo),
		cmocka_unit_test(phi_4_mini),
		cmocka_unit_test(gemma_3_4b),
		cmocka_unit_test(deepseek_v3),
		cmocka_unit_test(gpt_oss_20b),
		cmocka_unit_test(qwen_3_5_35b_a3b),
		cmocka_unit_test(gptq_with_biases_of_zeros),
		cmocka_unit_test(latent_attention_in_awq),
	};

	return cmocka_run_group_tests_name("spec_published", tests, NULL, NULL);
}
