/* family_smollm3.c - SmolLM3: a Llama whose every fourth layer does not rotate.
 *
 * Sources: transformers' models/smollm3; llama.cpp's architecture smollm3, whose files do not say which layers. */
#include "model/family_table.h"

static void family_smollm3_fill(struct family_reading *r)
{
	family_word(r, FAMILY_activation, "silu|swish");
	family_only(r, FAMILY_use_window, 0);
	family_u32_or(r, FAMILY_window_from, 0); /* of windows alone */
	family_layer_types(r);
	family_marks(r, FAMILY_rope_layers, true);
	r->every = family_u32_or(r, FAMILY_rope_every, 4);
	r->y.qkv_bias = r->y.o_bias = family_bool_or(r, FAMILY_qkv_bias, false);
	r->y.ffn_bias = family_bool_or(r, FAMILY_ffn_bias, false);
	r->y.rope = family_rope_add(r, &(struct family_rope){.neox = !r->g, .base_fallback = 2e6});
}

static void family_smollm3_layer(struct family_reading *r, uint32_t i, struct spec_layer *y)
{
	bool rotates = r->marks ? r->marks[i] : (i + 1) % r->every != 0;

	if (!rotates) y->rope = -1;
	if (family_type_of(r, i, FAMILY_FULL) != FAMILY_FULL)
		family_fail(r, ST_UNSUPPORTED, "layer_types[%u] is not full_attention, the only kind of the family %s",
			    i, r->f->name);
}

static const struct family_default family_smollm3_defaults[] = {
	{FAMILY_tied, 1},
	{FAMILY_SETTING_COUNT, 0},
};

const struct family family_smollm3 = {
	.name = "smollm3",
	.model_types = "smollm3",
	.archs = "smollm3",
	.fill = family_smollm3_fill,
	.layer = family_smollm3_layer,
	.defaults = family_smollm3_defaults,
};
