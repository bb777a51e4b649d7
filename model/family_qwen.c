/* family_qwen.c - Qwen2 and 2.5, and Qwen3, dense and with experts. (family_qwenext.c has those with delta nets.)
 *
 * Sources: transformers' models/qwen2, qwen2_moe, qwen3, qwen3_moe; llama.cpp's architectures of the same names. */
#include "model/family_table.h"

/* The window of the layers from max_window_layers on, when use_sliding_window says so. */
static void family_qwen_window(struct family_reading *r)
{
	bool used = family_bool_or(r, FAMILY_use_window, false);
	uint32_t window = family_u32_or(r, FAMILY_window, 4096);

	r->window = used || r->g ? window : 0;
	if (r->g && !family_given(r, FAMILY_window)) r->window = 0;
	r->window_from = family_u32_or(r, FAMILY_window_from, 28);
	family_layer_types(r);
}

/* sliding: what the layer is when layer_types does not say. */
static void family_qwen_kind(struct family_reading *r, uint32_t i, struct spec_layer *y, bool sliding)
{
	switch (family_type_of(r, i, r->window && sliding ? FAMILY_SLIDING : FAMILY_FULL)) {
	case FAMILY_SLIDING:
		if (!r->window)
			family_fail(r, ST_INVALID,
				    "layer_types[%u] is sliding_attention, but there is no sliding_window", i);
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

static void family_qwen_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	family_qwen_kind(r, i, y, i >= r->window_from);
}

static void family_qwen2_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	r->y.qkv_bias = true;
	family_qwen_window(r);
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = true});
}

const struct family family_qwen2 = {
	.name = "qwen2",
	.model_types = "qwen2",
	.archs = "qwen2",
	.fill = family_qwen2_fill,
	.layer = family_qwen_layer,
};

static void family_qwen3_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	r->y.qkv_bias = r->y.o_bias = family_bool_or(r, FAMILY_qkv_bias, false);
	family_only(r, FAMILY_qk_norm, 1);
	r->y.qk_norm = true;
	family_qwen_window(r);
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = true});
}

static const struct family_default family_qwen3_defaults[] = {
	{FAMILY_k_dim, 128},
	{FAMILY_SETTING_COUNT, 0},
};

const struct family family_qwen3 = {
	.name = "qwen3",
	.model_types = "qwen3",
	.archs = "qwen3",
	.fill = family_qwen3_fill,
	.layer = family_qwen_layer,
	.defaults = family_qwen3_defaults,
};

/* Experts in every sparse_step-th layer that is not in mlp_only_layers. */
void family_qwen_experts(struct family_reading *r)
{
	family_experts(r, FAMILY_expert_ffn);
	r->moe_every = family_u32_or(r, FAMILY_sparse_step, 1);
	family_marks(r, FAMILY_dense_layers, false);
	r->y.router = SPEC_SOFTMAX;
	r->y.router_norm = family_bool_or(r, FAMILY_router_norm, r->g != NULL);
}

bool family_qwen_is_dense(const struct family_reading *r, uint32_t i)
{
	return (r->marks && r->marks[i]) || (i + 1) % r->moe_every;
}

static void family_qwen3_moe_fill(struct family_reading *r)
{
	family_qwen3_fill(r);
	family_qwen_experts(r);
}

static void family_qwen3_moe_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	y->window = r->window; /* max_window_layers is not looked at */
	if (family_qwen_is_dense(r, i)) family_make_dense(r, y);
}

static const struct family_default family_qwen3_moe_defaults[] = {
	{FAMILY_kv_heads, 4},
	{FAMILY_SETTING_COUNT, 0},
};

const struct family family_qwen3_moe = {
	.name = "qwen3_moe",
	.model_types = "qwen3_moe",
	.archs = "qwen3moe",
	.fill = family_qwen3_moe_fill,
	.layer = family_qwen3_moe_layer,
	.defaults = family_qwen3_moe_defaults,
};

/* ---- Qwen1.5 and 2 with experts: as Qwen2, and a shared expert with a gate ---- */

static void family_qwen2_moe_fill(struct family_reading *r)
{
	family_only(r, FAMILY_qkv_alone, 1);
	family_qwen2_fill(r);
	family_qwen_experts(r);
	r->y.router_norm = family_bool_or(r, FAMILY_router_norm, false);
	r->y.shared_ffn = family_u32(r, FAMILY_shared_ffn);
	r->y.shared_gate = r->y.shared_ffn > 0;
}

static void family_qwen2_moe_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	family_qwen_kind(r, i, y, i % 2 == 0 && i < r->window_from); /* unlike the dense ones */
	if (family_qwen_is_dense(r, i)) family_make_dense(r, y);
}

const struct family family_qwen2_moe = {
	.name = "qwen2_moe",
	.model_types = "qwen2_moe",
	.archs = "qwen2moe",
	.fill = family_qwen2_moe_fill,
	.layer = family_qwen2_moe_layer,
};
