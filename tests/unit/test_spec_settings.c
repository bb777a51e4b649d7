/* test_spec_settings.c - settings of config.json: which are refused and in what words, which change nothing, and what
 * those that a family has make of its layers. The cases are overrides of the project's golden checkpoints. */
#include "common/jsonbig.h"
#include "model/ckpt.h"
#include "model/spec.h"
#include "tests/support/golden.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int read_with(const char *name, const char *text, struct spec *s, struct errbuf *err)
{
	json_t *overrides = jsonbig_load(text, strlen(text), JSON_DECODE_ANY, &(json_error_t){0});
	struct spec_opts opts = {.overrides = overrides};
	struct ckpt *c = NULL;
	char folder[512];
	int rc;

	assert_non_null(overrides);
	err->text[0] = 0;
	if (!golden_folder(name, folder, sizeof(folder))) fail_msg("%s is nowhere", name);
	if (strstr(name, "gguf")) strcat(folder, "/model.gguf");
	assert_int_equal(ckpt_open(&c, folder, err), ST_OK);
	rc = spec_read(s, c, &opts, err);
	ckpt_close(c);
	json_decref(overrides);
	return rc;
}

/* clang-format off */
static const struct refusal {
	const char *folder, *overrides;
	int rc;
	const char *words;
} refusals[] = {
	/* architectures */
	{"tiny/qwen2", "{\"model_type\": \"nosuch\"}", ST_UNSUPPORTED, "config.json: model_type \"nosuch\" is not a supported architecture; supported: llama, mistral, mixtral, qwen2"},
	{"tiny/qwen2", "{\"model_type\": null}", ST_NOT_FOUND, "config.json: model_type is missing"},
	{"tiny/qwen2", "{\"model_type\": 5}", ST_INVALID, "model_type is not a string"},
	{"tiny/qwen2", "{\"model_type\": \"a\\u001bb\"}", ST_UNSUPPORTED, "model_type \"a\\x1bb\""},
	/* missing, wrong kinds, out of bounds */
	{"tiny/qwen2", "{\"hidden_size\": null}", ST_NOT_FOUND, "config.json: hidden_size is missing"},
	{"tiny/qwen2", "{\"hidden_size\": \"128\"}", ST_INVALID, "config.json: hidden_size is a string; expected an integer"},
	{"tiny/qwen2", "{\"hidden_size\": 128.5}", ST_INVALID, "hidden_size is a number; expected an integer"},
	{"tiny/qwen2", "{\"hidden_size\": [128]}", ST_INVALID, "hidden_size is a list; expected an integer"},
	{"tiny/qwen2", "{\"hidden_size\": 0}", ST_INVALID, "hidden_size is 0; expected 1 to 262144"},
	{"tiny/qwen2", "{\"vocab_size\": -1}", ST_INVALID, "vocab_size is -1; expected 1 to 16777216"},
	{"tiny/qwen2", "{\"vocab_size\": 9223372036854775807}", ST_INVALID, "vocab_size is 9.223372037e+18"},
	{"tiny/qwen2", "{\"vocab_size\": 9223372036854775808}", ST_INVALID, "vocab_size is an integer beyond 64 bits; expected an integer"},
	{"tiny/qwen2", "{\"hidden_act\": 9223372036854775808}", ST_INVALID, "hidden_act is an integer beyond 64 bits; expected a string"},
	{"tiny/gemma2", "{\"final_logit_softcapping\": 1e-320}", ST_INVALID, "final_logit_softcapping is 9.99"},
	{"tiny/gemma2", "{\"attn_logit_softcapping\": 1e-9}", ST_INVALID, "attn_logit_softcapping is 1e-09; expected 0 (none), or 0.001 to 1e+06"},
	{"tiny/gemma3", "{\"sliding_window\": 0}", ST_INVALID, "sliding_window is 0; expected the positions that a layer sees"},
	{"tiny/gpt-oss", "{\"sliding_window\": 0}", ST_INVALID, "sliding_window is 0; expected the positions that a layer sees"},
	{"tiny/qwen3-next", "{\"partial_rotary_factor\": 0}", ST_INVALID, "partial_rotary_factor is 0; expected an even number of 2 or more"},
	{"tiny/qwen2", "{\"intermediate_size\": null}", ST_NOT_FOUND, "config.json: intermediate_size is missing"},
	{"tiny/qwen2", "{\"rms_norm_eps\": null}", ST_NOT_FOUND, "rms_norm_eps is missing"},
	{"tiny/qwen2", "{\"rms_norm_eps\": 0}", ST_INVALID, "rms_norm_eps is 0"},
	{"tiny/qwen2", "{\"max_position_embeddings\": null}", ST_NOT_FOUND, "max_position_embeddings is missing"},
	{"tiny/qwen2", "{\"tie_word_embeddings\": 1}", ST_INVALID, "tie_word_embeddings is an integer; expected true or false"},
	{"tiny/qwen2", "{\"num_attention_heads\": 5}", ST_INVALID, "num_attention_heads 5 is not a multiple of num_key_value_heads 4"},
	{"tiny/qwen2", "{\"num_attention_heads\": 12}", ST_INVALID, "hidden_size 128 is not a multiple of num_attention_heads 12"},
	{"tiny/qwen2", "{\"head_dim\": 15}", ST_INVALID, "the length of a head (head_dim, or hidden_size / num_attention_heads) is 15"},
	{"tiny/qwen2", "{\"tie_word_embeddings\": false}", ST_NOT_FOUND, "tensor lm_head.weight is missing (tie_word_embeddings is false)"},
	/* contradictions with tensors: the settings that a shape comes from */
	{"tiny/qwen2", "{\"vocab_size\": 516}", ST_INVALID, "tensor model.embed_tokens.weight has the shape [515, 128]; expected [516, 128] (vocab_size, hidden_size)"},
	{"tiny/qwen2", "{\"num_hidden_layers\": 5}", ST_NOT_FOUND, "tensor model.layers.4.input_layernorm.weight is missing (num_hidden_layers is 5)"},
	{"tiny/qwen2", "{\"num_hidden_layers\": 3}", ST_UNSUPPORTED, "is not one of a qwen2 model with 3 layers (num_hidden_layers)"},
	{"tiny/deepseek-v3", "{\"kv_lora_rank\": 33}", ST_INVALID, "expected [41, 128] (kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, hidden_size)"},
	{"tiny/deepseek-v3", "{\"n_routed_experts\": 12}", ST_INVALID, "(n_routed_experts, hidden_size)"},
	{"tiny/qwen3-next", "{\"linear_num_key_heads\": 3}", ST_INVALID, "linear_num_value_heads 8 is not a multiple of linear_num_key_heads 3"},
	{"tiny/qwen3-next", "{\"linear_conv_kernel_dim\": 5}", ST_INVALID, "linear_attn.conv1d.weight has the shape [256, 1, 4]; expected [256, 5] (linear_num_key_heads, linear_key_head_dim, linear_num_value_heads, linear_value_head_dim, linear_conv_kernel_dim)"},
	/* values that are not built */
	{"tiny/qwen2", "{\"hidden_act\": \"relu\"}", ST_UNSUPPORTED, "config.json: hidden_act \"relu\" is not supported; supported: silu, swish"},
	{"tiny/gemma2", "{\"hidden_activation\": \"gelu\"}", ST_UNSUPPORTED, "hidden_activation \"gelu\" is not supported; supported: gelu_pytorch_tanh"},
	{"tiny/gemma3", "{\"use_bidirectional_attention\": true}", ST_UNSUPPORTED, "use_bidirectional_attention is 1; the family gemma3 is built for 0 alone"},
	{"tiny/gpt-oss", "{\"swiglu_alpha\": 1.5}", ST_UNSUPPORTED, "swiglu_alpha is 1.5; the family gpt_oss is built for 1.702 alone"},
	{"tiny/deepseek-v3", "{\"scoring_func\": \"softmax\"}", ST_UNSUPPORTED, "scoring_func \"softmax\" is not supported; supported: sigmoid"},
	{"tiny/deepseek-v3", "{\"topk_method\": \"greedy\"}", ST_UNSUPPORTED, "topk_method \"greedy\" is not supported; supported: noaux_tc"},
	{"tiny/deepseek-v3", "{\"qk_head_dim\": 25}", ST_UNSUPPORTED, "qk_head_dim is 25; the family deepseek_v3 is built for 24 alone"},
	{"tiny/qwen3", "{\"use_qk_norm\": false}", ST_UNSUPPORTED, "use_qk_norm is 0; the family qwen3 is built for 1 alone"},
	{"tiny/qwen2", "{\"qkv_bias\": true}", ST_UNSUPPORTED, "qkv_bias is true; the family qwen2"},
	{"tiny/qwen2", "{\"partial_rotary_factor\": 0.5}", ST_UNSUPPORTED, "partial_rotary_factor is 0.5; a whole head is rotated in the family qwen2"},
	{"tiny/deepseek-v3", "{\"attention_bias\": true}", ST_UNSUPPORTED, "attention_bias is 1"},
	{"tiny/deepseek-v3", "{\"n_group\": 3}", ST_INVALID, "n_routed_experts 8 is not a multiple of n_group 3"},
	{"tiny/deepseek-v3", "{\"topk_group\": 5}", ST_INVALID, "topk_group is 5; expected up to n_group, 4"},
	{"tiny/deepseek-v3", "{\"num_experts_per_tok\": 9}", ST_INVALID, "num_experts_per_tok is 9; expected 1 to n_routed_experts, 8"},
	{"tiny/deepseek-v3", "{\"num_experts_per_tok\": 0}", ST_INVALID, "num_experts_per_tok is 0"},
	/* another family's, and nobody's */
	{"tiny/qwen2", "{\"kv_lora_rank\": 512}", ST_UNSUPPORTED, "config.json: kv_lora_rank is 512; the family qwen2 is built without such a setting"},
	{"tiny/qwen2", "{\"final_logit_softcapping\": 30.0}", ST_UNSUPPORTED, "final_logit_softcapping is 30.0; the family qwen2"},
	{"tiny/qwen2", "{\"attention_bias\": true}", ST_UNSUPPORTED, "attention_bias is true; the family qwen2"},
	{"tiny/llama-gptq", "{\"sliding_window\": 4096}", ST_UNSUPPORTED, "sliding_window is 4096; the family llama"},
	{"tiny/qwen2", "{\"moon_phase\": \"full\"}", ST_UNSUPPORTED, "moon_phase is \"full\", a setting that is not known; if it changes nothing, leave it out with --hf-overrides '{\"moon_phase\": null}'"},
	{"tiny/qwen2", "{\"moon_phase\": {\"a\": [1, 2]}}", ST_UNSUPPORTED, "moon_phase is {\"a\":[1,2]}"},
	/* windows and kinds of layers */
	{"tiny/qwen2", "{\"layer_types\": [\"full_attention\"]}", ST_INVALID, "layer_types has 1 entries; expected num_hidden_layers, 4"},
	{"tiny/qwen2", "{\"layer_types\": [\"full_attention\", \"chunked_attention\", \"full_attention\", \"full_attention\"]}", ST_UNSUPPORTED, "layer_types[1] \"chunked_attention\" is not supported"},
	{"tiny/qwen2", "{\"layer_types\": [\"full_attention\", 5, \"full_attention\", \"full_attention\"]}", ST_UNSUPPORTED, "layer_types[1] \"\" is not supported"},
	{"tiny/qwen2", "{\"layer_types\": [\"full_attention\", \"linear_attention\", \"full_attention\", \"full_attention\"]}", ST_UNSUPPORTED, "layer_types[1] is linear_attention, which the family qwen2 does not have"},
	{"tiny/qwen2", "{\"layer_types\": \"full_attention\"}", ST_INVALID, "layer_types is a string; expected a list"},
	{"tiny/qwen2", "{\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]}", ST_INVALID, "layer_types[0] is sliding_attention, but there is no sliding_window"},
	{"tiny/qwen3-next", "{\"mlp_only_layers\": [4]}", ST_INVALID, "mlp_only_layers[0] is not the number of one of 4 layers"},
	{"tiny/qwen3-next", "{\"mlp_only_layers\": [-1]}", ST_INVALID, "mlp_only_layers[0]"},
	{"tiny/qwen3-next", "{\"mlp_only_layers\": [1]}", ST_NOT_FOUND, "tensor model.layers.1.mlp.gate_proj.weight is missing"},
	{"tiny/gemma2", "{\"sliding_window\": 0}", ST_INVALID, "sliding_window is 0; expected the positions that a layer sees"},
	{"tiny/smollm3", "{\"no_rope_layers\": [1]}", ST_INVALID, "no_rope_layers has 1 entries; expected one for each of 5 layers"},
	{"tiny/smollm3", "{\"no_rope_layers\": [1, 1, 2, 1, 1]}", ST_INVALID, "no_rope_layers[2] is not 0 or 1, for each of 5 layers"},
	{"tiny/smollm3", "{\"no_rope_layer_interval\": 0}", ST_INVALID, "no_rope_layer_interval is 0"},
	/* rotations */
	{"tiny/qwen2", "{\"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 2}}", ST_UNSUPPORTED, "rope_scaling.rope_type \"ntk\" is not supported; supported: default, dynamic, linear, llama3, yarn, longrope"},
	{"tiny/qwen2", "{\"rope_scaling\": {\"rope_type\": 5}}", ST_INVALID, "rope_scaling.rope_type is not a string"},
	{"tiny/qwen2", "{\"rope_scaling\": [1]}", ST_INVALID, "rope_scaling is a list; expected an object"},
	{"tiny/qwen2", "{\"rope_scaling\": {\"type\": \"linear\"}}", ST_NOT_FOUND, "rope_scaling.factor is missing"},
	{"tiny/qwen2", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}", ST_INVALID, "rope_scaling.factor is 0"},
	{"tiny/qwen2", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}}", ST_INVALID, "rope_scaling.factor is a string"},
	{"tiny/qwen2", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 3}}", ST_UNSUPPORTED, "rope_scaling.beta_fast is not a setting of the rope_type"},
	{"tiny/qwen2", "{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4}}", ST_INVALID, "low_freq_factor 4 is not below high_freq_factor 4"},
	{"tiny/phi3", "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [1, 1, 1, 1]}}", ST_INVALID, "rope_scaling.short_factor has 2 entries; expected 4"},
	{"tiny/phi3", "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1]}}", ST_NOT_FOUND, "rope_scaling.long_factor has 0 entries"},
	{"tiny/phi3", "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 0, 1], \"long_factor\": [1, 1, 1, 1]}}", ST_INVALID, "rope_scaling.short_factor[2] is 0"},
	{"tiny/phi3", "{\"partial_rotary_factor\": 0.45}", ST_INVALID, "the rotated part of a head by partial_rotary_factor is 7; expected an even number"},
	{"tiny/phi3", "{\"partial_rotary_factor\": 1.5}", ST_INVALID, "partial_rotary_factor is 1.5; expected 0 to 1"},
	{"tiny/qwen2", "{\"rope_theta\": 0}", ST_INVALID, "rope_theta is 0"},
	/* codes */
	{"tiny/llama-gptq", "{\"quantization_config\": null}", ST_UNSUPPORTED, "q_proj.qweight: config.json has no quantization_config of the method gptq or awq"},
	{"tiny/llama-gptq", "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", ST_UNSUPPORTED, "quantization_config.quant_method \"bitsandbytes\" is not supported; supported: fp8, gptq, awq, mxfp4"},
	{"tiny/llama-gptq", "{\"quantization_config\": {\"bits\": 8}}", ST_UNSUPPORTED, "quantization_config.bits is 8; supported with gptq: 4"},
	{"tiny/llama-gptq", "{\"quantization_config\": {\"group_size\": 64}}", ST_INVALID, "q_proj.qzeros has the shape [4, 16]; expected [2, 16]"},
	{"tiny/llama-gptq", "{\"quantization_config\": {\"group_size\": 0}}", ST_INVALID, "quantization_config.group_size is 0"},
	{"tiny/llama-gptq", "{\"quantization_config\": {\"checkpoint_format\": \"marlin\"}}", ST_UNSUPPORTED, "checkpoint_format \"marlin\" is not supported; supported: gptq, gptq_v2"},
	{"tiny/qwen2-awq", "{\"quantization_config\": {\"version\": \"gemv\"}}", ST_UNSUPPORTED, "version \"gemv\" is not supported; supported: gemm"},
	{"tiny/qwen2-awq", "{\"quantization_config\": {\"zero_point\": false}}", ST_UNSUPPORTED, "zero_point is false"},
	{"tiny/qwen2-awq", "{\"quantization_config\": {\"quant_method\": \"gptq\"}}", ST_INVALID, "q_proj.qweight has the shape [128, 16]; expected [16, 128]"},
	{"tiny/qwen3-fp8", "{\"quantization_config\": {\"weight_block_size\": [128, 64]}}", ST_INVALID, "q_proj.weight_scale_inv has the shape [2, 2]; expected [2, 4]"},
	{"tiny/qwen3-fp8", "{\"quantization_config\": {\"weight_block_size\": null}}", ST_UNSUPPORTED, "has no weight_block_size"},
	{"tiny/qwen3-fp8", "{\"quantization_config\": {\"weight_block_size\": [0, 128]}}", ST_INVALID, "weight_block_size is [0, 128]"},
	{"tiny/qwen3-fp8", "{\"quantization_config\": {\"fmt\": \"e5m2\"}}", ST_UNSUPPORTED, "fmt \"e5m2\" is not supported"},
	{"tiny/qwen3-fp8", "{\"quantization_config\": null}", ST_UNSUPPORTED, "has the type F8_E4M3, but config.json has no quantization_config of the method fp8"},
	/* the overrides themselves */
	{"tiny/qwen2", "[1]", ST_INVALID, "the overrides of config.json are not a JSON object"},
	{"tiny/gguf-llama", "{\"rope_theta\": 1}", ST_INVALID, "a GGUF file has no config.json"},
};
/* clang-format on */

static void what_is_not_built_is_refused_by_name(void **state)
{
	struct errbuf err;
	struct spec s;
	size_t i;

	for (i = 0; i < ARRAY_LEN(refusals); i++) {
		int rc = read_with(refusals[i].folder, refusals[i].overrides, &s, &err);

		if (rc != refusals[i].rc || !strstr(err.text, refusals[i].words))
			fail_msg("%s %s: status %d, text \"%s\"; expected %d and \"%s\"", refusals[i].folder,
				 refusals[i].overrides, rc, err.text, refusals[i].rc, refusals[i].words);
		spec_release(&s);
	}
}

/* Keys of published files that change nothing, and settings of others that are off. */
static void harmless_settings_are_left_alone(void **state)
{
	static const char *const texts[] = {
		"{}",
		"{\"torch_dtype\": null, \"dtype\": \"bfloat16\", \"transformers_version\": \"4.57.0\", \"use_cache\": "
		"false}",
		"{\"attention_dropout\": 0.1, \"resid_pdrop\": 0.1, \"summary_first_dropout\": 0.1, "
		"\"initializer_range\": 0.006}",
		"{\"bos_token_id\": 5, \"eos_token_id\": [1, 2], \"image_token_id\": 7, \"fim_pad_token_id\": 9, "
		"\"pad_token_id\": null}",
		"{\"_name_or_path\": \"x\", \"_anything\": 5, \"auto_map\": {\"AutoModel\": \"y\"}, \"architectures\": "
		"[\"Z\"]}",
		"{\"kv_lora_rank\": null, \"final_logit_softcapping\": 0, \"attention_bias\": false, \"layer_norms\": "
		"[], \"moon\": \"\"}",
		"{\"pretraining_tp\": 2, \"output_router_logits\": true, \"router_aux_loss_coef\": 0.001, "
		"\"unsloth_version\": \"2025.1\"}",
		"{\"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [16, 24, 24]}}",
		"{\"rope_scaling\": {\"rope_type\": \"default\", \"factor\": 1.0}}",
		"{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4.0}, \"partial_rotary_factor\": 1.0}",
		/* the first Llama 2 files; SmolLM2; Qwen3-Coder; Gemma 2 9B */
		"{\"max_sequence_length\": 4096, \"rope_interleaved\": false, \"is_llama_config\": true, "
		"\"transformers.js_config\": {\"dtype\": \"q4f16\"}, \"qkv_bias\": false, "
		"\"shared_expert_intermediate_size\": 0, \"sliding_window_size\": 4096}",
		"{\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]}",
	};
	struct errbuf err;
	struct spec s;
	size_t i;

	for (i = 0; i < ARRAY_LEN(texts); i++) {
		if (read_with("tiny/qwen2", texts[i], &s, &err) != ST_OK) fail_msg("%s: %s", texts[i], err.text);
		assert_true(s.n_layers == 4 && s.layers[3].window == 0 && s.ropes[0].mscale == 1 && s.context_len == 512);
		spec_release(&s);
	}
}

/* ---- what settings make of layers ---- */

static void windows_of(const char *folder, const char *text, const uint32_t *expected)
{
	struct errbuf err;
	struct spec s;
	uint32_t i;

	if (read_with(folder, text, &s, &err) != ST_OK) fail_msg("%s %s: %s", folder, text, err.text);
	for (i = 0; i < s.n_layers; i++)
		if (s.layers[i].window != expected[i])
			fail_msg("%s %s: layer %u has the window %u; expected %u", folder, text, i, s.layers[i].window,
				 expected[i]);
	spec_release(&s);
}

#define WINDOWS(folder, text, ...) windows_of(folder, text, (const uint32_t[]){__VA_ARGS__})

static void windows_follow_the_settings(void **state)
{
	WINDOWS("tiny/qwen2", "{\"use_sliding_window\": false, \"sliding_window\": 9, \"max_window_layers\": 0}", 0, 0,
		0, 0);
	WINDOWS("tiny/qwen2", "{\"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 3}", 0, 0,
		0, 9);
	WINDOWS("tiny/qwen2", "{\"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": null}", 0,
		0, 0, 0);
	WINDOWS("tiny/qwen2",
		"{\"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": [\"sliding_attention\", "
		"\"full_attention\", "
		"\"sliding_attention\", \"full_attention\"]}",
		9, 0, 9, 0);
	WINDOWS("tiny/gemma2",
		"{\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\", "
		"\"full_attention\"]}",
		0, 0, 16, 0);
	WINDOWS("tiny/gemma2", "{}", 16, 0, 16, 0);
	WINDOWS("tiny/gemma3", "{\"sliding_window_pattern\": 2}", 16, 0, 16, 0, 16, 0);
	WINDOWS("tiny/gemma3", "{\"sliding_window_pattern\": null}", 16, 16, 16, 16, 16, 0);
	WINDOWS("tiny/gpt-oss", "{\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\"]}", 0,
		0, 16);
	WINDOWS("tiny/phi3", "{\"sliding_window\": 100}", 100, 100, 100, 100);
	WINDOWS("tiny/phi3", "{\"sliding_window\": 511}", 511, 511, 511, 511);
	WINDOWS("tiny/phi3", "{\"sliding_window\": 512}", 0, 0, 0, 0); /* as long as the context */
}

static void defaults_of_classes_count_where_files_leave_settings_out(void **state)
{
	struct errbuf err;
	struct spec s;

	assert_int_equal(read_with("tiny/gemma2",
				   "{\"final_logit_softcapping\": null, \"attn_logit_softcapping\": null}", &s, &err),
			 ST_OK);
	assert_true(s.logit_softcap == 50 - 20 && s.layers[0].softcap == 50); /* removed, so the class's */
	spec_release(&s);
	if (read_with("tiny/gemma3",
		      "{\"tie_word_embeddings\": null, \"num_attention_heads\": null, \"query_pre_attn_scalar\": null}",
		      &s, &err) != ST_OK)
		fail_msg("%s", err.text);
	assert_true(s.tied && s.layers[0].heads == 8 && s.layers[0].scale == 1.0 / 16);
	spec_release(&s);
	if (read_with("tiny/deepseek-v3", "{\"n_group\": null, \"topk_group\": null, \"norm_topk_prob\": false}", &s,
		      &err) != ST_OK)
		fail_msg("%s", err.text);
	assert_true(s.layers[1].n_groups == 1 && s.layers[1].groups_used == 1 && !s.layers[1].router_norm);
	spec_release(&s);
	assert_int_equal(read_with("tiny/smollm3", "{\"no_rope_layers\": null, \"no_rope_layer_interval\": 2}", &s, &err), ST_OK);
	assert_true(s.layers[0].rope == 0 && s.layers[1].rope == -1 && s.layers[3].rope == -1 && s.layers[4].rope == 0);
	spec_release(&s);
	/* transformers' DeepSeek-V2 never normalises, and looks at groups with one method only */
	assert_int_equal(read_with("tiny/deepseek-v2", "{\"norm_topk_prob\": true, \"n_group\": 4, \"topk_group\": 2}",
				   &s, &err),
			 ST_OK);
	assert_true(!s.layers[1].router_norm && s.layers[1].n_groups == 1);
	spec_release(&s);
	assert_int_equal(read_with("tiny/deepseek-v2",
				   "{\"topk_method\": \"group_limited_greedy\", \"n_group\": 4, \"topk_group\": 2}", &s,
				   &err),
			 ST_OK);
	assert_true(s.layers[1].n_groups == 4 && s.layers[1].groups_used == 2 && s.layers[0].n_groups == 1);
	spec_release(&s);
}

static void settings_that_only_some_files_have_count(void **state)
{
	struct errbuf err;
	struct spec s;

	assert_int_equal(read_with("tiny/deepseek-v3", "{\"rope_interleave\": false, \"qk_head_dim\": 24}", &s, &err),
			 ST_OK);
	assert_true(s.ropes[0].neox);
	spec_release(&s);
	assert_int_equal(read_with("tiny/deepseek-v3", "{}", &s, &err), ST_OK);
	assert_true(!s.ropes[0].neox);
	spec_release(&s);
	assert_int_equal(read_with("tiny/qwen3", "{\"use_qk_norm\": true}", &s, &err), ST_OK);
	assert_true(s.layers[0].qk_norm);
	spec_release(&s);
	/* DeepSeek-R1-0528-Qwen3-8B: what yarn would multiply by is taken back */
	assert_int_equal(read_with("tiny/qwen3",
				   "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
				   "\"original_max_position_embeddings\": 128, \"attn_factor\": 0.8782488562869419}}",
				   &s, &err),
			 ST_OK);
	assert_true(fabs(s.ropes[0].mscale - 1) < 1e-12);
	spec_release(&s);
	/* No other program caps Gemma 3's attention, though its class has the setting. */
	assert_int_equal(read_with("tiny/gemma3", "{\"attn_logit_softcapping\": 8.0}", &s, &err), ST_OK);
	assert_true(s.layers[0].softcap == 0);
	spec_release(&s);
}

/* As the files of models that also see have it. */
static void a_text_part_within_a_config_is_found(void **state)
{
	static const char text[] =
		"{\"text_config\": {\"model_type\": \"gemma3_text\", \"vocab_size\": 512, \"hidden_size\": 128, "
		"\"head_dim\": 16, "
		"\"intermediate_size\": 256, \"num_hidden_layers\": 6, \"query_pre_attn_scalar\": 24, "
		"\"sliding_window\": 16, "
		"\"_sliding_window_pattern\": 3, \"max_position_embeddings\": 300}, \"model_type\": \"gemma3\", "
		"\"vision_config\": {\"hidden_size\": 1152}, \"mm_tokens_per_image\": 256}";
	struct errbuf err;
	struct spec s;

	if (read_with("tiny/gemma3", text, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.context_len == 300 && s.layers[2].window == 0 && s.layers[0].window == 16 && s.tied);
	spec_release(&s);
	assert_int_equal(read_with("tiny/gemma3", "{\"text_config\": {\"model_type\": \"gemma3_text\"}}", &s, &err),
			 ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "num_hidden_layers is missing"));
	spec_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_built_is_refused_by_name),
		cmocka_unit_test(harmless_settings_are_left_alone),
		cmocka_unit_test(windows_follow_the_settings),
		cmocka_unit_test(defaults_of_classes_count_where_files_leave_settings_out),
		cmocka_unit_test(settings_that_only_some_files_have_count),
		cmocka_unit_test(a_text_part_within_a_config_is_found),
	};

	return cmocka_run_group_tests_name("spec_settings", tests, NULL, NULL);
}
