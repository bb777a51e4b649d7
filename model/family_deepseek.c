/* family_deepseek.c - DeepSeek-V2 and V3: latent attention, many small experts with shared ones beside them.
 *
 * Sources: transformers' models/deepseek_v2, deepseek_v3; llama.cpp's architecture deepseek2, which is both. Pairs of a
 * rotation lie side by side, unless rope_interleave says otherwise. With yarn attention's scale grows by the square of
 * an mscale of its own. */
#include "model/family_table.h"

#include <math.h>
#include <stdio.h>

/* Sizes of a head: MLA's keys are nope_dim and the rotated part. */
static void family_deepseek_heads(struct family_reading *r)
{
	struct spec_layer *y = &r->y;
	uint32_t rope = family_u32(r, FAMILY_rope_dims);

	y->mixer = SPEC_MLA;
	y->kv_heads = y->heads; /* GGUF files say 1: the latent */
	y->q_lora = family_u32_or(r, FAMILY_q_lora, 0);
	y->kv_lora = family_u32(r, FAMILY_kv_lora);
	y->latent_eps = r->g ? r->s->eps : 1e-6; /* whatever rms_norm_eps is; llama.cpp takes the file's */
	if (!r->g) {
		y->nope_dim = family_u32(r, FAMILY_nope_dim);
		y->v_dim = family_u32(r, FAMILY_v_dim);
		y->k_dim = y->nope_dim + rope;
		family_only(r, FAMILY_qk_dim, y->k_dim); /* transformers writes the sum too */
		family_u32_or(r, FAMILY_k_dim,
			      0); /* transformers writes the rotated part's size there, or hidden_size / heads */
	} else {
		/* Since there is a cache of latents, key_length is that of the cache, and the head's sizes are under
		 * names of their own. */
		y->k_dim = family_u32_or(r, FAMILY_mla_k_dim, family_u32_or(r, FAMILY_k_dim, 0));
		y->v_dim = family_u32_or(r, FAMILY_mla_v_dim, family_u32_or(r, FAMILY_v_dim, 0));
		if (r->rc == ST_OK && (y->k_dim <= rope || !y->v_dim))
			family_fail(r, ST_INVALID, "%s is %u; expected more than %s, %u",
				    family_key(r, FAMILY_mla_k_dim).text, y->k_dim,
				    family_key(r, FAMILY_rope_dims).text, rope);
		y->nope_dim = y->k_dim > rope ? y->k_dim - rope : 1;
	}
	if (r->rc == ST_OK && y->k_dim > SPEC_HEAD_DIM_MAX)
		family_fail(r, ST_INVALID, "a head's key has %u values; expected up to %d", y->k_dim,
			    SPEC_HEAD_DIM_MAX);
	y->rope = family_rope_add(
		r, &(struct family_rope){.dims = rope, .neox = !family_bool_or(r, FAMILY_rope_interleave, true)});
	y->scale = r->mla_mscale * r->mla_mscale / sqrt(y->k_dim);
}

static void family_deepseek_groups(struct family_reading *r)
{
	struct spec_layer *y = &r->y;

	y->n_groups = family_u32_or(r, FAMILY_n_groups, 1);
	y->groups_used = family_u32_or(r, FAMILY_groups_used, 1);
	if (y->n_groups <= 1) y->n_groups = y->groups_used = 1;
	if (r->rc != ST_OK) return;
	if (y->n_experts % y->n_groups)
		family_fail(r, ST_INVALID, "%s %u is not a multiple of %s %u", family_key(r, FAMILY_n_experts).text,
			    y->n_experts, family_key(r, FAMILY_n_groups).text, y->n_groups);
	else if (y->groups_used < 1 || y->groups_used > y->n_groups ||
		 y->groups_used * (y->n_experts / y->n_groups) < y->n_used)
		family_fail(r, ST_INVALID, "%s is %u; expected up to %s, %u, with %u experts in them",
			    family_key(r, FAMILY_groups_used).text, y->groups_used, family_key(r, FAMILY_n_groups).text,
			    y->n_groups, y->n_used);
}

/* Experts but in the first layers. v3: weights are a sigmoid's, with corrections that only choosing looks at. */
static void family_deepseek_experts(struct family_reading *r, bool v3)
{
	struct spec_layer *y = &r->y;
	uint64_t shared;

	r->dense_first = family_u32_or(r, FAMILY_dense_first, 0);
	r->moe_every = family_u32_or(r, FAMILY_moe_every, 1);
	r->mtp_layers = family_u32_or(r, FAMILY_mtp_layers, 0);
	family_experts(r, FAMILY_expert_ffn);
	shared = (uint64_t)y->expert_ffn * family_u32_or(r, FAMILY_n_shared, 0);
	if (shared > SPEC_FFN_MAX)
		family_fail(r, ST_INVALID, "%s times %s is %llu; expected up to %u",
			    family_key(r, FAMILY_n_shared).text, family_key(r, FAMILY_expert_ffn).text,
			    (unsigned long long)shared, SPEC_FFN_MAX);
	else
		y->shared_ffn = (uint32_t)shared;
	y->router = v3 ? SPEC_SIGMOID : SPEC_SOFTMAX;
	y->router_correction = v3;
	y->router_norm = family_bool_or(r, FAMILY_router_norm, v3 && !r->g);
	y->router_scale = family_f64_or(r, FAMILY_router_scale, 1);
	family_deepseek_groups(r);
}

static void family_deepseek_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	if (i < r->dense_first || i % r->moe_every) family_make_dense(r, y);
}

static void family_deepseek_common(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	family_only(r, FAMILY_qkv_bias, 0);
	family_only(r, FAMILY_ffn_bias, 0);
	family_deepseek_heads(r);
}

/* Several files of llama.cpp's one architecture: what the router is decides. */
static void family_deepseek_v2_gguf(struct family_reading *r)
{
	struct names_text name;
	bool corrected;
	uint32_t kind;

	/* The first layer with experts tells whether there are corrections, and without the key what the router is. */
	snprintf(name.text, sizeof(name.text), "blk.%u.exp_probs_b.bias", family_u32_or(r, FAMILY_dense_first, 0));
	corrected = ckpt_find(r->c, name.text) != NULL;
	kind = family_u32_or(r, FAMILY_router_kind, corrected ? 2 : 1);
	if (kind != 1 && kind != 2)
		family_fail(r, ST_UNSUPPORTED, "key %s is %u; supported: 1 (softmax), 2 (sigmoid)",
			    family_key(r, FAMILY_router_kind).text, kind);
	family_deepseek_experts(r, kind == 2);
	r->y.router_correction = corrected;
}

static void family_deepseek_v2_fill(struct family_reading *r)
{
	uint32_t method;

	family_deepseek_common(r);
	if (r->g) {
		family_deepseek_v2_gguf(r);
		return;
	}
	method = family_word(r, FAMILY_router_method, "greedy|group_limited_greedy");
	family_word(r, FAMILY_router_kind, "softmax");
	family_deepseek_experts(r, false);
	r->y.router_norm = false; /* transformers has no such setting here, whatever the file says */
	if (method == 0) r->y.n_groups = r->y.groups_used = 1;
}

static const struct names_row family_deepseek_names[] = {
	{SPEC_SH_GATE, "layers.%u.mlp.shared_experts.gate_proj.weight", NAMES_WHOLE},
	{SPEC_SH_UP, "layers.%u.mlp.shared_experts.up_proj.weight", NAMES_WHOLE},
	{SPEC_SH_DOWN, "layers.%u.mlp.shared_experts.down_proj.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

const struct family family_deepseek_v2 = {
	.name = "deepseek_v2",
	.model_types = "deepseek_v2",
	.archs = "deepseek2",
	.fill = family_deepseek_v2_fill,
	.layer = family_deepseek_layer,
	.names = family_deepseek_names,
};

static void family_deepseek_v3_fill(struct family_reading *r)
{
	family_deepseek_common(r);
	family_word(r, FAMILY_router_method, "noaux_tc");
	family_word(r, FAMILY_router_kind, "sigmoid");
	family_deepseek_experts(r, true);
}

static const struct family_default family_deepseek_v3_defaults[] = {
	{FAMILY_mtp_layers, 1},
	{FAMILY_SETTING_COUNT, 0},
};

const struct family family_deepseek_v3 = {
	.name = "deepseek_v3",
	.model_types = "deepseek_v3",
	.archs = "",
	.fill = family_deepseek_v3_fill,
	.layer = family_deepseek_layer,
	.defaults = family_deepseek_v3_defaults,
	.names = family_deepseek_names,
};
