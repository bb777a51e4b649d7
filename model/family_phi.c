/* family_phi.c - Phi-3 and Phi-4: q, k, v and gate, up in one matrix each; part of a head may be rotated, with divisors
 * for long texts.
 *
 * Sources: transformers' models/phi3; llama.cpp's architecture phi3. */
#include "model/family_table.h"

static void family_phi3_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	family_only(r, FAMILY_qkv_bias, 0);
	family_only(r, FAMILY_ffn_bias, 0);
	r->y.window = family_u32_or(r, FAMILY_window, 0);
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = true, .part = 1});
}

static const struct names_row family_phi3_names[] = {
	{SPEC_Q, "layers.%u.self_attn.qkv_proj.weight", NAMES_QKV},
	{SPEC_K, "layers.%u.self_attn.qkv_proj.weight", NAMES_QKV},
	{SPEC_V, "layers.%u.self_attn.qkv_proj.weight", NAMES_QKV},
	{SPEC_GATE, "layers.%u.mlp.gate_up_proj.weight", NAMES_LOW},
	{SPEC_UP, "layers.%u.mlp.gate_up_proj.weight", NAMES_HIGH},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

static const struct names_row family_phi3_gguf_names[] = {
	{SPEC_Q, "blk.%u.attn_qkv.weight", NAMES_QKV}, {SPEC_K, "blk.%u.attn_qkv.weight", NAMES_QKV},
	{SPEC_V, "blk.%u.attn_qkv.weight", NAMES_QKV}, {SPEC_GATE, "blk.%u.ffn_up.weight", NAMES_LOW},
	{SPEC_UP, "blk.%u.ffn_up.weight", NAMES_HIGH}, {SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

const struct family family_phi3 = {
	.name = "phi3",
	.model_types = "phi3",
	.archs = "phi3",
	.fill = family_phi3_fill,
	.names = family_phi3_names,
	.gguf_names = family_phi3_gguf_names,
};
