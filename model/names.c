/* names.c - the usual names of tensors by role, in GGUF files and in folders. A family's own come before them (struct
 * family).
 *
 * Sources: gguf-py's constants.py (MODEL_TENSOR), and the checkpoints that transformers' models save. */
#include "model/names.h"

#include "model/family_impl.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct names_row names_gguf[] = {
	{SPEC_EMBED, "token_embd.weight", NAMES_WHOLE},
	{SPEC_OUTPUT, "output.weight", NAMES_WHOLE},
	{SPEC_OUTPUT_NORM, "output_norm.weight", NAMES_WHOLE},
	{SPEC_ATTN_NORM, "blk.%u.attn_norm.weight", NAMES_WHOLE},
	{SPEC_ATTN_POST_NORM, "blk.%u.post_attention_norm.weight", NAMES_WHOLE},
	{SPEC_Q, "blk.%u.attn_q.weight", NAMES_WHOLE},
	{SPEC_K, "blk.%u.attn_k.weight", NAMES_WHOLE},
	{SPEC_V, "blk.%u.attn_v.weight", NAMES_WHOLE},
	{SPEC_O, "blk.%u.attn_output.weight", NAMES_WHOLE},
	{SPEC_Q_BIAS, "blk.%u.attn_q.bias", NAMES_WHOLE},
	{SPEC_K_BIAS, "blk.%u.attn_k.bias", NAMES_WHOLE},
	{SPEC_V_BIAS, "blk.%u.attn_v.bias", NAMES_WHOLE},
	{SPEC_O_BIAS, "blk.%u.attn_output.bias", NAMES_WHOLE},
	{SPEC_Q_NORM, "blk.%u.attn_q_norm.weight", NAMES_WHOLE},
	{SPEC_K_NORM, "blk.%u.attn_k_norm.weight", NAMES_WHOLE},
	{SPEC_SINKS, "blk.%u.attn_sinks.weight", NAMES_WHOLE},
	{SPEC_Q_A, "blk.%u.attn_q_a.weight", NAMES_WHOLE},
	{SPEC_Q_A_NORM, "blk.%u.attn_q_a_norm.weight", NAMES_WHOLE},
	{SPEC_Q_B, "blk.%u.attn_q_b.weight", NAMES_WHOLE},
	{SPEC_KV_A, "blk.%u.attn_kv_a_mqa.weight", NAMES_WHOLE},
	{SPEC_KV_A_NORM, "blk.%u.attn_kv_a_norm.weight", NAMES_WHOLE},
	{SPEC_K_B, "blk.%u.attn_k_b.weight", NAMES_STACK}, /* the converter turns it */
	{SPEC_K_B, "blk.%u.attn_kv_b.weight", NAMES_KV_B},
	{SPEC_V_B, "blk.%u.attn_v_b.weight", NAMES_STACK},
	{SPEC_V_B, "blk.%u.attn_kv_b.weight", NAMES_KV_B_V},
	{SPEC_D_QKV, "blk.%u.attn_qkv.weight", NAMES_WHOLE},
	{SPEC_D_QKV, "blk.%u.ssm_in.weight", NAMES_QKVZ},
	{SPEC_D_Z, "blk.%u.attn_gate.weight", NAMES_WHOLE},
	{SPEC_D_Z, "blk.%u.ssm_in.weight", NAMES_QKVZ_Z},
	{SPEC_D_B, "blk.%u.ssm_beta.weight", NAMES_WHOLE},
	{SPEC_D_B, "blk.%u.ssm_ba.weight", NAMES_BA},
	{SPEC_D_A, "blk.%u.ssm_alpha.weight", NAMES_WHOLE},
	{SPEC_D_A, "blk.%u.ssm_ba.weight", NAMES_BA_A},
	{SPEC_D_CONV, "blk.%u.ssm_conv1d.weight", NAMES_WHOLE},
	{SPEC_D_DT_BIAS, "blk.%u.ssm_dt.bias", NAMES_WHOLE},
	{SPEC_D_NEG_A, "blk.%u.ssm_a", NAMES_WHOLE},
	{SPEC_D_NORM, "blk.%u.ssm_norm.weight", NAMES_WHOLE},
	{SPEC_D_OUT, "blk.%u.ssm_out.weight", NAMES_WHOLE},
	{SPEC_FFN_NORM, "blk.%u.ffn_norm.weight", NAMES_WHOLE},
	{SPEC_FFN_POST_NORM, "blk.%u.post_ffw_norm.weight", NAMES_WHOLE},
	{SPEC_GATE, "blk.%u.ffn_gate.weight", NAMES_WHOLE},
	{SPEC_UP, "blk.%u.ffn_up.weight", NAMES_WHOLE},
	{SPEC_DOWN, "blk.%u.ffn_down.weight", NAMES_WHOLE},
	{SPEC_GATE_BIAS, "blk.%u.ffn_gate.bias", NAMES_WHOLE},
	{SPEC_UP_BIAS, "blk.%u.ffn_up.bias", NAMES_WHOLE},
	{SPEC_DOWN_BIAS, "blk.%u.ffn_down.bias", NAMES_WHOLE},
	{SPEC_ROUTER, "blk.%u.ffn_gate_inp.weight", NAMES_WHOLE},
	{SPEC_ROUTER_BIAS, "blk.%u.ffn_gate_inp.bias", NAMES_WHOLE},
	{SPEC_ROUTER_CORRECTION, "blk.%u.exp_probs_b.bias", NAMES_WHOLE},
	{SPEC_ROUTER_CORRECTION, "blk.%u.exp_probs_b", NAMES_WHOLE},
	{SPEC_EXP_GATE, "blk.%u.ffn_gate_exps.weight", NAMES_STACK},
	{SPEC_EXP_GATE, "blk.%u.ffn_gate_up_exps.weight", NAMES_STACK_LOW},
	{SPEC_EXP_GATE, "blk.%u.ffn_gate.%u.weight", NAMES_WHOLE}, /* the first Mixtral files */
	{SPEC_EXP_UP, "blk.%u.ffn_up_exps.weight", NAMES_STACK},
	{SPEC_EXP_UP, "blk.%u.ffn_gate_up_exps.weight", NAMES_STACK_HIGH},
	{SPEC_EXP_UP, "blk.%u.ffn_up.%u.weight", NAMES_WHOLE},
	{SPEC_EXP_DOWN, "blk.%u.ffn_down_exps.weight", NAMES_STACK},
	{SPEC_EXP_DOWN, "blk.%u.ffn_down.%u.weight", NAMES_WHOLE},
	{SPEC_EXP_GATE_BIAS, "blk.%u.ffn_gate_exps.bias", NAMES_WHOLE},
	{SPEC_EXP_UP_BIAS, "blk.%u.ffn_up_exps.bias", NAMES_WHOLE},
	{SPEC_EXP_DOWN_BIAS, "blk.%u.ffn_down_exps.bias", NAMES_WHOLE},
	{SPEC_SH_GATE, "blk.%u.ffn_gate_shexp.weight", NAMES_WHOLE},
	{SPEC_SH_UP, "blk.%u.ffn_up_shexp.weight", NAMES_WHOLE},
	{SPEC_SH_DOWN, "blk.%u.ffn_down_shexp.weight", NAMES_WHOLE},
	{SPEC_SH_ROUTER, "blk.%u.ffn_gate_inp_shexp.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};

#define ATT "layers.%u.self_attn."
#define LIN "layers.%u.linear_attn."
#define MLP "layers.%u.mlp."
static const struct names_row names_folder[] = {
	{SPEC_EMBED, "embed_tokens.weight", NAMES_WHOLE},
	{SPEC_OUTPUT, "=lm_head.weight", NAMES_WHOLE},
	{SPEC_OUTPUT, "=language_model.lm_head.weight", NAMES_WHOLE},
	{SPEC_OUTPUT_NORM, "norm.weight", NAMES_WHOLE},
	{SPEC_ATTN_NORM, "layers.%u.input_layernorm.weight", NAMES_WHOLE},
	{SPEC_Q, ATT "q_proj.weight", NAMES_WHOLE},
	{SPEC_K, ATT "k_proj.weight", NAMES_WHOLE},
	{SPEC_V, ATT "v_proj.weight", NAMES_WHOLE},
	{SPEC_O, ATT "o_proj.weight", NAMES_WHOLE},
	{SPEC_Q_BIAS, ATT "q_proj.bias", NAMES_WHOLE},
	{SPEC_K_BIAS, ATT "k_proj.bias", NAMES_WHOLE},
	{SPEC_V_BIAS, ATT "v_proj.bias", NAMES_WHOLE},
	{SPEC_O_BIAS, ATT "o_proj.bias", NAMES_WHOLE},
	{SPEC_Q_NORM, ATT "q_norm.weight", NAMES_WHOLE},
	{SPEC_K_NORM, ATT "k_norm.weight", NAMES_WHOLE},
	{SPEC_SINKS, ATT "sinks", NAMES_WHOLE},
	{SPEC_Q_A, ATT "q_a_proj.weight", NAMES_WHOLE},
	{SPEC_Q_A_NORM, ATT "q_a_layernorm.weight", NAMES_WHOLE},
	{SPEC_Q_B, ATT "q_b_proj.weight", NAMES_WHOLE},
	{SPEC_KV_A, ATT "kv_a_proj_with_mqa.weight", NAMES_WHOLE},
	{SPEC_KV_A_NORM, ATT "kv_a_layernorm.weight", NAMES_WHOLE},
	{SPEC_K_B, ATT "kv_b_proj.weight", NAMES_KV_B},
	{SPEC_V_B, ATT "kv_b_proj.weight", NAMES_KV_B_V},
	{SPEC_D_QKV, LIN "in_proj_qkv.weight", NAMES_WHOLE},
	{SPEC_D_QKV, LIN "in_proj_qkvz.weight", NAMES_QKVZ},
	{SPEC_D_Z, LIN "in_proj_z.weight", NAMES_WHOLE},
	{SPEC_D_Z, LIN "in_proj_qkvz.weight", NAMES_QKVZ_Z},
	{SPEC_D_B, LIN "in_proj_b.weight", NAMES_WHOLE},
	{SPEC_D_B, LIN "in_proj_ba.weight", NAMES_BA},
	{SPEC_D_A, LIN "in_proj_a.weight", NAMES_WHOLE},
	{SPEC_D_A, LIN "in_proj_ba.weight", NAMES_BA_A},
	{SPEC_D_CONV, LIN "conv1d.weight", NAMES_WHOLE},
	{SPEC_D_DT_BIAS, LIN "dt_bias", NAMES_WHOLE},
	{SPEC_D_NEG_A, LIN "A_log", NAMES_WHOLE},
	{SPEC_D_NORM, LIN "norm.weight", NAMES_WHOLE},
	{SPEC_D_OUT, LIN "out_proj.weight", NAMES_WHOLE},
	{SPEC_FFN_NORM, "layers.%u.post_attention_layernorm.weight", NAMES_WHOLE},
	{SPEC_GATE, MLP "gate_proj.weight", NAMES_WHOLE},
	{SPEC_UP, MLP "up_proj.weight", NAMES_WHOLE},
	{SPEC_DOWN, MLP "down_proj.weight", NAMES_WHOLE},
	{SPEC_GATE_BIAS, MLP "gate_proj.bias", NAMES_WHOLE},
	{SPEC_UP_BIAS, MLP "up_proj.bias", NAMES_WHOLE},
	{SPEC_DOWN_BIAS, MLP "down_proj.bias", NAMES_WHOLE},
	{SPEC_ROUTER, MLP "gate.weight", NAMES_WHOLE},
	{SPEC_ROUTER_CORRECTION, MLP "gate.e_score_correction_bias", NAMES_WHOLE},
	{SPEC_EXP_GATE, MLP "experts.%u.gate_proj.weight", NAMES_WHOLE},
	{SPEC_EXP_GATE, MLP "experts.gate_up_proj", NAMES_STACK_LOW},
	{SPEC_EXP_UP, MLP "experts.%u.up_proj.weight", NAMES_WHOLE},
	{SPEC_EXP_UP, MLP "experts.gate_up_proj", NAMES_STACK_HIGH},
	{SPEC_EXP_DOWN, MLP "experts.%u.down_proj.weight", NAMES_WHOLE},
	{SPEC_EXP_DOWN, MLP "experts.down_proj", NAMES_STACK},
	{SPEC_SH_GATE, MLP "shared_expert.gate_proj.weight", NAMES_WHOLE},
	{SPEC_SH_UP, MLP "shared_expert.up_proj.weight", NAMES_WHOLE},
	{SPEC_SH_DOWN, MLP "shared_expert.down_proj.weight", NAMES_WHOLE},
	{SPEC_SH_ROUTER, MLP "shared_expert_gate.weight", NAMES_WHOLE},
	{SPEC_ROLE_COUNT, NULL, NAMES_WHOLE},
};
/* clang-format on */

const struct names_row *names_next(const struct spec *s, enum spec_role role, struct names_walk *walk)
{
	const struct names_row *own = s->from_gguf ? s->names->gguf_names : s->names->names;
	const struct names_row *usual = s->from_gguf ? names_gguf : names_folder;

	for (; own && !walk->usual; walk->ix++) {
		if (own[walk->ix].role == role) return &own[walk->ix++];
		if (own[walk->ix].role == SPEC_ROLE_COUNT) break;
	}
	if (!walk->usual) *walk = (struct names_walk){.usual = true};
	for (; usual[walk->ix].role != SPEC_ROLE_COUNT; walk->ix++)
		if (usual[walk->ix].role == role) return &usual[walk->ix++];
	return NULL;
}

struct names_text names_spell(const struct spec *s, const struct names_row *row, uint32_t layer, uint32_t ix)
{
	struct names_text out;
	const char *name = row->name;
	size_t at = 0;

	if (*name == '=')
		name++;
	else
		at = (size_t)snprintf(out.text, sizeof(out.text), "%s", s->prefix);
		/* The formats are the literals of the tables: at most two %u. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(out.text + at, sizeof(out.text) - at, name, layer, ix);
#pragma GCC diagnostic pop
	return out;
}

bool names_is_each(const struct names_row *row)
{
	const char *first = strstr(row->name, "%u");

	return first && strstr(first + 2, "%u");
}

const char *names_prefix(const struct ckpt *c)
{
	static const char *const prefixes[] = {"model.", "model.language_model.", "language_model.model.", ""};
	char name[64];
	size_t i;

	for (i = 0; i < ARRAY_LEN(prefixes); i++) {
		snprintf(name, sizeof(name), "%sembed_tokens.weight", prefixes[i]);
		if (ckpt_find(c, name)) return prefixes[i];
	}
	return prefixes[0];
}

/* ---- settings behind a shape ---- */

struct names_text names_setting(const struct spec *s, const struct ckpt *c, const char *field)
{
	struct family_reading r = family_naming(s, c);
	enum family_setting x = family_setting_of(field, strlen(field));
	struct names_text out = {{0}};

	if (x != FAMILY_SETTING_COUNT) snprintf(out.text, sizeof(out.text), "%s", family_key(&r, x).text);
	return out;
}

/* The shape's expressions of SPEC_ROLES, macros expanded: their "->field" are fields of the description. */
#define NAMES_TEXT(...)      NAMES_LITERALLY(__VA_ARGS__)
#define NAMES_LITERALLY(...) #__VA_ARGS__
static const char *const names_shapes[] = {
#define NAMES_AS_SHAPE(role, scope, form, n, rows, cols, has, shard) NAMES_TEXT(n, rows, cols),
	SPEC_ROLES(NAMES_AS_SHAPE)
#undef NAMES_AS_SHAPE
};

struct names_text names_settings(const struct spec *s, const struct ckpt *c, enum spec_role role)
{
	struct family_reading r = family_naming(s, c);
	bool seen[FAMILY_SETTING_COUNT] = {false};
	const char *at = names_shapes[role];
	struct names_text out = {{0}};
	size_t len = 0;

	while ((at = strstr(at, "->")) != NULL) {
		size_t n = strspn(at += 2, "abcdefghijklmnopqrstuvwxyz_");
		enum family_setting x = family_setting_of(at, n);
		struct family_key key;

		/* Folders have one setting for keys and values, but for MLA, whose keys are of two parts. */
		if (!s->from_gguf && x == FAMILY_k_dim && SPEC_IS_MLA(&s->layers[0])) x = FAMILY_rope_dims;
		if (!s->from_gguf && x == FAMILY_v_dim && !SPEC_IS_MLA(&s->layers[0])) x = FAMILY_k_dim;
		if (x == FAMILY_SETTING_COUNT || seen[x]) continue;
		seen[x] = true;
		key = family_key(&r, x);
		if (!key.text[0] || len + strlen(key.text) + 3 > sizeof(out.text)) continue;
		len += (size_t)snprintf(out.text + len, sizeof(out.text) - len, "%s%s", len ? ", " : "", key.text);
	}
	return out;
}

/* ---- what may be left out ---- */

static bool names_begins(struct gguf_str name, const char *with)
{
	size_t n = strlen(with);

	return name.len >= n && memcmp(name.s, with, n) == 0;
}

static bool names_ends(struct gguf_str name, const char *with)
{
	size_t n = strlen(with);

	return name.len >= n && memcmp(name.s + name.len - n, with, n) == 0;
}

/* Layer `*layer` of a name, when it is one's: behind `prefix`. */
static bool names_layer(struct gguf_str name, const char *prefix, uint32_t *layer)
{
	size_t at = strlen(prefix);

	if (!names_begins(name, prefix)) return false;
	for (*layer = 0; at < name.len && name.s[at] >= '0' && name.s[at] <= '9' && *layer < SPEC_LAYERS_MAX * 10; at++)
		*layer = *layer * 10 + (uint32_t)(name.s[at] - '0');
	return at > strlen(prefix) && at < name.len && name.s[at] == '.';
}

/* Biases of zeros, which old quantizers added to every matrix. */
static bool names_zeros(const struct ckpt_tensor *t)
{
	uint64_t i;

	if (!names_ends(t->name, ".bias") || t->bytes > 1u << 22) return false;
	for (i = 0; i < t->bytes; i++)
		if (t->data[i]) return false;
	return true;
}

bool names_harmless(const struct spec *s, const struct ckpt_tensor *t, uint32_t mtp_layers)
{
	static const char *const parts[] = {"mtp.",
					    "model.mtp.",
					    "visual.",
					    "model.visual.",
					    "vision_tower.",
					    "model.vision_tower.",
					    "vision_model.",
					    "multi_modal_projector.",
					    "model.multi_modal_projector.",
					    "audio_tower.",
					    "model.audio_tower."};
	static const char *const ends[] = {".rotary_emb.inv_freq", ".k_scale", ".v_scale", ".kv_scale", ".q_scale",
					   ".input_scale"};
	char prefix[64];
	uint32_t layer;
	size_t i;

	if (s->from_gguf) {
		if (!names_layer(t->name, "blk.", &layer)) return false;
		if (layer >= s->n_layers) return layer < s->n_layers + mtp_layers;
		snprintf(prefix, sizeof(prefix), "blk.%u.attn_rot_embd", layer);
		return t->name.len == strlen(prefix) && names_begins(t->name, prefix);
	}
	for (i = 0; i < ARRAY_LEN(parts); i++)
		if (names_begins(t->name, parts[i])) return true;
	for (i = 0; i < ARRAY_LEN(ends); i++)
		if (names_ends(t->name, ends[i])) return true;
	if (s->tied && names_ends(t->name, "lm_head.weight")) return true;
	snprintf(prefix, sizeof(prefix), "%slayers.", s->prefix);
	if (names_layer(t->name, prefix, &layer) && layer >= s->n_layers && layer < s->n_layers + mtp_layers)
		return true;
	return s->quant.kind != SPEC_QUANT_NONE && names_zeros(t);
}
