/* family_llama.c - Llama 2 and 3, SmolLM, Mistral and Mixtral.
 *
 * Sources: transformers' models/llama, mistral, mixtral; llama.cpp's architecture "llama", which is all of them. Its
 * converter stores rows of q and k so that pairs lie side by side. */
#include "model/family_table.h"

static void family_llama_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	r->y.qkv_bias = family_bool_or(r, FAMILY_qkv_bias, r->g && ckpt_find(r->c, "blk.0.attn_q.bias"));
	r->y.o_bias = r->g ? ckpt_find(r->c, "blk.0.attn_output.bias") != NULL : r->y.qkv_bias;
	r->y.ffn_bias = family_bool_or(r, FAMILY_ffn_bias, r->g && ckpt_find(r->c, "blk.0.ffn_gate.bias"));
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = !r->g});
	if (!r->g) return;
	r->y.window = family_u32_or(r, FAMILY_window, 0);
	if (family_u32_or(r, FAMILY_n_experts, 0) == 0) {
		family_only(r, FAMILY_n_used, 0);
		return;
	}
	family_experts(r, FAMILY_ffn); /* Mixtral */
	r->y.router = SPEC_SOFTMAX;
	r->y.router_norm = true;
}

const struct family family_llama = {
	.name = "llama",
	.model_types = "llama",
	.archs = "llama",
	.fill = family_llama_fill,
};

static void family_mistral_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	r->y.window = family_u32_or(r, FAMILY_window, 0);
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = true});
}

static const struct family_default family_mistral_defaults[] = {
	{FAMILY_kv_heads, 8},
	{FAMILY_window, 4096},
	{FAMILY_SETTING_COUNT, 0},
};

const struct family family_mistral = {
	.name = "mistral",
	.model_types = "mistral",
	.archs = "",
	.fill = family_mistral_fill,
	.defaults = family_mistral_defaults,
};

static void family_mixtral_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	r->y.window = family_u32_or(r, FAMILY_window, 0);
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = true, .base_fallback = 1e6});
	family_experts(r, FAMILY_ffn);
	r->y.router = SPEC_SOFTMAX;
	r->y.router_norm = true;
}

static const struct family_default family_mixtral_defaults[] = {
	{FAMILY_kv_heads, 8},
	{FAMILY_SETTING_COUNT, 0},
};

static const struct names_row family_mixtral_names[] = {
	{SPEC_ROUTER, "layers.%u.block_sparse_moe.gate.weight", NAMES_WHOLE},
	{SPEC_EXP_GATE, "layers.%u.block_sparse_moe.experts.%u.w1.weight", NAMES_WHOLE},
	{SPEC_EXP_DOWN, "layers.%u.block_sparse_moe.experts.%u.w2.weight", NAMES_WHOLE},
	{SPEC_EXP_UP, "layers.%u.block_sparse_moe.experts.%u.w3.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

const struct family family_mixtral = {
	.name = "mixtral",
	.model_types = "mixtral",
	.archs = "",
	.fill = family_mixtral_fill,
	.defaults = family_mixtral_defaults,
	.names = family_mixtral_names,
};
