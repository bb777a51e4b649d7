/* family_qwenext.c - Qwen3-Next and Qwen3.5: most layers are gated delta nets, every fourth one is attention with a
 * gate.
 *
 * Sources: transformers' models/qwen3_next, qwen3_5, qwen3_5_moe; llama.cpp's architectures qwen3next, qwen35,
 * qwen35moe. Norms multiply by 1 + w (but the delta net's own): folders store w, the converter adds the 1, and it has
 * -exp(A_log) in place of A_log. In qwen35 and qwen35moe it also brings value heads into another order
 * (spec_layer.dv_tiled). A quarter of a head rotates. */
#include "model/family_table.h"

static void family_qwenext_delta(struct family_reading *r)
{
	struct spec_layer *y = &r->y;
	uint32_t width;

	y->conv_width = family_u32(r, FAMILY_conv_width);
	y->dk_dim = family_u32(r, FAMILY_dk_dim);
	y->dk_heads = family_u32(r, FAMILY_dk_heads);
	y->dv_heads = family_u32(r, FAMILY_dv_heads);
	if (r->rc != ST_OK) return;
	if (y->dv_heads % y->dk_heads)
		family_fail(r, ST_INVALID, "%s %u is not a multiple of %s %u", family_key(r, FAMILY_dv_heads).text,
			    y->dv_heads, family_key(r, FAMILY_dk_heads).text, y->dk_heads);
	if (!r->g) {
		y->dv_dim = family_u32(r, FAMILY_dv_dim);
		return;
	}
	width = family_u32(r, FAMILY_dv_width);
	y->dv_dim = width / y->dv_heads;
	if (r->rc == ST_OK && (width % y->dv_heads || y->dv_dim == 0 || y->dv_dim > SPEC_HEAD_DIM_MAX))
		family_fail(r, ST_INVALID, "%s %u is not up to %d times %s, %u", family_key(r, FAMILY_dv_width).text,
			    width, SPEC_HEAD_DIM_MAX, family_key(r, FAMILY_dv_heads).text, y->dv_heads);
}

/* In folders their tensors have a prefix of their own; in GGUF files they are the last blocks. */
static void family_qwenext_mtp(struct family_reading *r)
{
	uint32_t n = family_u32_or(r, FAMILY_mtp_layers, 0);

	if (!r->g || r->rc != ST_OK) return;
	if (n >= r->s->n_layers) {
		family_fail(r, ST_INVALID, "%s is %u; expected less than %s, %u", family_key(r, FAMILY_mtp_layers).text,
			    n, family_key(r, FAMILY_n_layers).text, r->s->n_layers);
		return;
	}
	r->s->n_layers -= n;
	r->mtp_layers = n;
}

static void family_qwenext_fill(struct family_reading *r)
{
	struct spec_layer *y = &r->y;

	family_word(r, FAMILY_activation, "silu|swish");
	family_only(r, FAMILY_qkv_bias, 0);
	family_only(r, FAMILY_out_gate, 1);
	family_qwenext_mtp(r);
	y->qk_norm = true;
	y->out_gate = true;
	r->every = family_u32_or(r, FAMILY_full_every, 4);
	family_layer_types(r);
	y->rope = family_rope_add(r, &(struct family_rope){.neox = true, .part = 0.25});
	family_qwenext_delta(r);
}

static void family_qwenext_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	struct spec_layer of = *y;

	switch (family_type_of(r, i, (i + 1) % r->every ? FAMILY_LINEAR : FAMILY_FULL)) {
	case FAMILY_LINEAR:
		y->mixer = SPEC_DELTA;
		y->heads = y->kv_heads = y->k_dim = y->v_dim = 0;
		y->rope = -1;
		y->scale = 0;
		y->qk_norm = y->out_gate = false;
		break;
	case FAMILY_FULL:
		*y = of;
		y->dk_heads = y->dv_heads = y->dk_dim = y->dv_dim = y->conv_width = 0;
		y->dv_tiled = false;
		break;
	case FAMILY_SLIDING:
		family_fail(r, ST_UNSUPPORTED,
			    "layer_types[%u] is sliding_attention, which the family %s does not have", i, r->f->name);
		break;
	}
}

/* q of a head and its gate alternate. */
static const struct names_row family_qwenext_names[] = {
	{SPEC_Q, "layers.%u.self_attn.q_proj.weight", NAMES_BESIDE},
	{SPEC_ATTN_GATE, "layers.%u.self_attn.q_proj.weight", NAMES_BESIDE_2},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

static const struct names_row family_qwenext_gguf_names[] = {
	{SPEC_Q, "blk.%u.attn_q.weight", NAMES_BESIDE},
	{SPEC_ATTN_GATE, "blk.%u.attn_q.weight", NAMES_BESIDE_2},
	{SPEC_FFN_NORM, "blk.%u.post_attention_norm.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

/* ---- with experts ---- */

static void family_qwenext_experts(struct family_reading *r)
{
	family_qwen_experts(r);
	r->y.shared_ffn = family_u32_or(r, FAMILY_shared_ffn, 0);
	r->y.shared_gate = r->y.shared_ffn > 0;
}

static void family_qwen3_next_fill(struct family_reading *r)
{
	family_qwenext_fill(r);
	family_qwenext_experts(r);
	/* The class's own default is true, unlike that of qwen3_moe. */
	r->y.router_norm = family_bool_or(r, FAMILY_router_norm, true);
}

static void family_qwen3_next_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	family_qwenext_layer(r, i, y);
	if (family_qwen_is_dense(r, i)) family_make_dense(r, y);
}

const struct family family_qwen3_next = {
	.name = "qwen3_next",
	.model_types = "qwen3_next",
	.archs = "qwen3next",
	.fill = family_qwen3_next_fill,
	.layer = family_qwen3_next_layer,
	.names = family_qwenext_names,
	.gguf_names = family_qwenext_gguf_names,
	.norms_minus_one = true,
};

static void family_qwen3_5_fill(struct family_reading *r)
{
	family_qwenext_fill(r);
	r->y.dv_tiled = r->g != NULL;
}

const struct family family_qwen3_5 = {
	.name = "qwen3_5",
	.model_types = "qwen3_5_text|qwen3_5",
	.archs = "qwen35",
	.fill = family_qwen3_5_fill,
	.layer = family_qwenext_layer,
	.names = family_qwenext_names,
	.gguf_names = family_qwenext_gguf_names,
	.norms_minus_one = true,
};

static void family_qwen3_5_moe_fill(struct family_reading *r)
{
	family_qwen3_5_fill(r);
	family_qwenext_experts(r);
	r->y.router_norm = true;
}

const struct family family_qwen3_5_moe = {
	.name = "qwen3_5_moe",
	.model_types = "qwen3_5_moe_text|qwen3_5_moe",
	.archs = "qwen35moe",
	.fill = family_qwen3_5_moe_fill,
	.layer = family_qwen3_next_layer,
	.names = family_qwenext_names,
	.gguf_names = family_qwenext_gguf_names,
	.norms_minus_one = true,
};
