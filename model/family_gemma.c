/* family_gemma.c - Gemma 2 and the text part of Gemma 3.
 *
 * Sources: transformers' models/gemma2, gemma3; llama.cpp's architectures of the same names. Norms multiply by 1 + w:
 * folders store w, the converter adds the 1. Embeddings are multiplied by the root of their width. Some layers see a
 * window; in Gemma 3 these rotate with a base of their own, which no scaling changes. */
#include "model/family_table.h"

#include <math.h>

/* A cap that a float cannot divide by would make NaN of all it caps. */
static double family_gemma_cap(struct family_reading *r, enum family_setting x)
{
	double cap = family_f64_or(r, x, 0);

	if (r->rc == ST_OK && cap != 0 && cap < 1e-3)
		family_fail(r, ST_INVALID, "%s%s is %.10g; expected 0 (none), or 0.001 to 1e+06", r->g ? "key " : "",
			    family_key(r, x).text, cap);
	return cap;
}

static void family_gemma_common(struct family_reading *r)
{
	struct spec_layer *y = &r->y;

	family_word(r, FAMILY_activation, "gelu_pytorch_tanh|gelu_tanh|gelu_new");
	family_only(r, FAMILY_bidirectional, 0);
	family_only(r, FAMILY_qkv_bias, 0);
	y->glu = SPEC_GELU_TANH;
	y->post_norms = true;
	r->s->logit_softcap = family_gemma_cap(r, FAMILY_logit_softcap);
	r->s->embed_scale = sqrt(r->s->dim);
	family_window(r);
	family_layer_types(r);
}

/* Queries are divided by the root of query_pre_attn_scalar, which GGUF files do not have: llama.cpp's rules instead. */
static void family_gemma_scale(struct family_reading *r, double gguf_scalar)
{
	double scalar = r->g ? gguf_scalar : family_f64(r, FAMILY_query_scalar);

	r->y.scale = 1 / sqrt(scalar);
}

static void family_gemma_window(struct family_reading *r, uint32_t i, struct spec_layer *y, bool sliding)
{
	switch (family_type_of(r, i, sliding ? FAMILY_SLIDING : FAMILY_FULL)) {
	case FAMILY_SLIDING:
		y->window = r->window;
		y->rope = r->rope_local;
		break;
	case FAMILY_FULL:
		break;
	case FAMILY_LINEAR:
		family_fail(r, ST_UNSUPPORTED, "layer_types[%u] is linear_attention, which the family %s does not have",
			    i, r->f->name);
		break;
	}
}

static void family_gemma2_fill(struct family_reading *r)
{
	family_gemma_common(r);
	r->y.softcap = family_gemma_cap(r, FAMILY_softcap);
	/* The 27B model, the one with 46 layers, divides by hidden_size / heads. */
	family_gemma_scale(r, r->s->n_layers == 46 ? (double)r->s->dim / r->y.heads : r->y.k_dim);
	r->y.rope = r->rope_local = family_rope_add(r, &(struct family_rope){.neox = true});
}

static void family_gemma2_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	family_gemma_window(r, i, y, i % 2 == 0);
}

static const struct family_default family_gemma2_defaults[] = {
	{FAMILY_vocab, 256000},     {FAMILY_heads, 8},    {FAMILY_kv_heads, 4},       {FAMILY_k_dim, 256},
	{FAMILY_context_len, 8192}, {FAMILY_eps, 1e-6},   {FAMILY_tied, 1},           {FAMILY_query_scalar, 256},
	{FAMILY_window, 4096},      {FAMILY_softcap, 50}, {FAMILY_logit_softcap, 30}, {FAMILY_SETTING_COUNT, 0},
};

static const struct names_row family_gemma_names[] = {
	{SPEC_ATTN_POST_NORM, "layers.%u.post_attention_layernorm.weight", NAMES_WHOLE},
	{SPEC_FFN_NORM, "layers.%u.pre_feedforward_layernorm.weight", NAMES_WHOLE},
	{SPEC_FFN_POST_NORM, "layers.%u.post_feedforward_layernorm.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

const struct family family_gemma2 = {
	.name = "gemma2",
	.model_types = "gemma2",
	.archs = "gemma2",
	.fill = family_gemma2_fill,
	.layer = family_gemma2_layer,
	.defaults = family_gemma2_defaults,
	.names = family_gemma_names,
	.norms_minus_one = true,
};

static void family_gemma3_fill(struct family_reading *r)
{
	family_gemma_common(r);
	/* The 27B model, the one with 62 layers, divides by hidden_size / heads. */
	family_gemma_scale(r, r->s->n_layers == 62 ? (double)r->s->dim / r->y.heads : r->y.k_dim);
	family_f64_or(r, FAMILY_softcap,
		      0); /* transformers, vLLM and llama.cpp read past it: no published file sets it */
	r->y.qk_norm = true;
	r->every = family_u32_or(r, FAMILY_window_pattern, 6);
	r->y.rope = family_rope_add(
		r, &(struct family_rope){.layer_type = "full_attention", .base_fallback = 1e6, .neox = true});
	r->rope_local = family_rope_add(r, &(struct family_rope){.layer_type = "sliding_attention",
								 .base = FAMILY_rope_base_local,
								 .neox = true,
								 .unscaled = true});
}

static void family_gemma3_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	family_gemma_window(r, i, y, (i + 1) % r->every != 0);
}

static const struct family_default family_gemma3_defaults[] = {
	{FAMILY_vocab, 262208},       {FAMILY_heads, 8},         {FAMILY_kv_heads, 4}, {FAMILY_k_dim, 256},
	{FAMILY_context_len, 131072}, {FAMILY_eps, 1e-6},        {FAMILY_tied, 1},     {FAMILY_query_scalar, 256},
	{FAMILY_window, 4096},        {FAMILY_SETTING_COUNT, 0},
};

const struct family family_gemma3 = {
	.name = "gemma3",
	.model_types = "gemma3_text|gemma3",
	.archs = "gemma3",
	.fill = family_gemma3_fill,
	.layer = family_gemma3_layer,
	.defaults = family_gemma3_defaults,
	.names = family_gemma_names,
	.norms_minus_one = true,
};
