/* family_gptoss.c - gpt-oss: attention with sinks, a window in every second layer, experts with biases and a clamped
 * activation.
 *
 * Sources: transformers' models/gpt_oss; the published files, whose experts are MXFP4 codes; llama.cpp's architecture
 * gpt-oss. Columns of gate and up alternate in folders; the converter takes them apart. */
#include "model/family_table.h"

static void family_gpt_oss_fill(struct family_reading *r)
{
	struct spec_layer *y = &r->y;

	family_word(r, FAMILY_activation, "silu|swish");
	family_only(r, FAMILY_glu_alpha, 1.702);
	y->qkv_bias = y->o_bias = family_bool_or(r, FAMILY_qkv_bias, true);
	y->sinks = true;
	y->rope = family_rope_add(r, &(struct family_rope){.neox = true, .base_fallback = 150000, .no_truncate = true});
	family_experts(r, r->g ? FAMILY_expert_ffn : FAMILY_ffn);
	y->router = SPEC_SOFTMAX_TOPK;
	y->router_bias = y->expert_bias = true;
	y->glu = SPEC_OAI;
	y->glu_limit = family_f64_or(r, FAMILY_glu_limit, 7);
	family_window(r);
	family_layer_types(r);
}

static void family_gpt_oss_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	switch (family_type_of(r, i, i % 2 == 0 ? FAMILY_SLIDING : FAMILY_FULL)) {
	case FAMILY_SLIDING:
		y->window = r->window;
		break;
	case FAMILY_FULL:
		break;
	case FAMILY_LINEAR:
		family_fail(r, ST_UNSUPPORTED, "layer_types[%u] is linear_attention, which the family %s does not have",
			    i, r->f->name);
		break;
	}
}

static const struct family_default family_gpt_oss_defaults[] = {
	{FAMILY_window, 128},
	{FAMILY_SETTING_COUNT, 0},
};

/* clang-format off */
static const struct names_row family_gpt_oss_names[] = {
	{SPEC_ROUTER, "layers.%u.mlp.router.weight", NAMES_WHOLE},
	{SPEC_ROUTER_BIAS, "layers.%u.mlp.router.bias", NAMES_WHOLE},
	{SPEC_EXP_GATE, "layers.%u.mlp.experts.gate_up_proj", NAMES_EVEN},
	{SPEC_EXP_GATE, "layers.%u.mlp.experts.gate_up_proj", NAMES_CODES_EVEN},
	{SPEC_EXP_UP, "layers.%u.mlp.experts.gate_up_proj", NAMES_ODD},
	{SPEC_EXP_UP, "layers.%u.mlp.experts.gate_up_proj", NAMES_CODES_ODD},
	{SPEC_EXP_DOWN, "layers.%u.mlp.experts.down_proj", NAMES_TURNED},
	{SPEC_EXP_DOWN, "layers.%u.mlp.experts.down_proj", NAMES_CODES},
	{SPEC_EXP_GATE_BIAS, "layers.%u.mlp.experts.gate_up_proj_bias", NAMES_EVEN},
	{SPEC_EXP_UP_BIAS, "layers.%u.mlp.experts.gate_up_proj_bias", NAMES_ODD},
	{SPEC_EXP_DOWN_BIAS, "layers.%u.mlp.experts.down_proj_bias", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

static const struct names_row family_gpt_oss_gguf_names[] = {
	{SPEC_FFN_NORM, "blk.%u.post_attention_norm.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};
/* clang-format on */

const struct family family_gpt_oss = {
	.name = "gpt_oss",
	.model_types = "gpt_oss",
	.archs = "gpt-oss",
	.fill = family_gpt_oss_fill,
	.layer = family_gpt_oss_layer,
	.defaults = family_gpt_oss_defaults,
	.names = family_gpt_oss_names,
	.gguf_names = family_gpt_oss_gguf_names,
};
