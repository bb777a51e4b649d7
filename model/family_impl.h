/* family_impl.h - what the files of a family share: the settings that exist, how they are asked for, and a reading's
 * state.
 *
 * FAMILY_SETTINGS is the one list of settings. A family asks for those that it has; at the end each setting of the
 * checkpoint that nobody asked for, and that is neither empty nor on the list of harmless ones, is refused by name
 * (family_rest.c). So a family's list of settings is its code, and nothing is ignored silently.
 *
 * Errors are sticky: the first one stays in reading.rc, and every reader called later gives the setting's lowest value;
 * so a family's code is a straight line. */
#ifndef SLUICE_FAMILY_IMPL_H
#define SLUICE_FAMILY_IMPL_H

#include "model/family.h"
#include "model/names.h"

#include <jansson.h>

/* S(field, GGUF keys behind "ARCHITECTURE.", keys of config.json, lowest, highest); "|" stands between spellings, ""
 * for none. Named like the field of struct spec or spec_layer that it fills, where there is one: so an error about a
 * shape can name the settings. */
#define FAMILY_SETTINGS(S)                                                                                         \
	S(n_layers, "block_count", "num_hidden_layers", 1, SPEC_LAYERS_MAX)                                        \
	S(dim, "embedding_length", "hidden_size", 1, SPEC_DIM_MAX)                                                 \
	S(vocab, "", "vocab_size", 1, SPEC_VOCAB_MAX)                                                              \
	S(context_len, "context_length", "max_position_embeddings|n_ctx", 1, SPEC_CONTEXT_MAX)                     \
	S(tied, "", "tie_word_embeddings", 0, 1)                                                                   \
	S(eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-12, 0.1)                                     \
	S(activation, "", "hidden_activation|hidden_act", 0, 0)                                                    \
	S(embed_scale, "embedding_scale", "embedding_multiplier", 1e-6, 1e6)                                       \
	S(residual_scale, "residual_scale", "residual_multiplier", 1e-6, 1e6)                                      \
	S(logit_scale, "logit_scale", "logits_scaling", 1e-6, 1e6)                                                 \
	S(logit_softcap, "final_logit_softcapping", "final_logit_softcapping", 0, 1e6)                             \
	/* attention */                                                                                            \
	S(heads, "attention.head_count", "num_attention_heads", 1, SPEC_HEADS_MAX)                                 \
	S(kv_heads, "attention.head_count_kv", "num_key_value_heads", 1, SPEC_HEADS_MAX)                           \
	S(k_dim, "attention.key_length", "head_dim", 1, SPEC_HEAD_DIM_MAX)                                         \
	S(v_dim, "attention.value_length", "v_head_dim", 1, SPEC_HEAD_DIM_MAX)                                     \
	S(scale, "attention.scale", "attention_multiplier", 1e-6, 1e6)                                             \
	S(query_scalar, "", "query_pre_attn_scalar", 1e-3, 1e6)                                                    \
	S(softcap, "attn_logit_softcapping", "attn_logit_softcapping", 0, 1e6)                                     \
	S(qkv_bias, "", "attention_bias", 0, 1)                                                                    \
	S(qkv_alone, "", "qkv_bias", 0, 1)                                                                         \
	S(qk_norm, "", "use_qk_norm", 0, 1)                                                                        \
	S(window, "attention.sliding_window", "sliding_window", 0, SPEC_CONTEXT_MAX)                               \
	S(use_window, "", "use_sliding_window", 0, 1)                                                              \
	S(window_from, "", "max_window_layers", 0, SPEC_LAYERS_MAX)                                                \
	S(window_pattern, "attention.sliding_window_pattern", "sliding_window_pattern|_sliding_window_pattern", 1, \
	  SPEC_LAYERS_MAX)                                                                                         \
	S(layer_types, "", "layer_types", 0, 0)                                                                    \
	S(full_every, "full_attention_interval", "full_attention_interval", 1, SPEC_LAYERS_MAX)                    \
	S(bidirectional, "", "use_bidirectional_attention", 0, 1)                                                  \
	S(out_gate, "", "attn_output_gate", 0, 1)                                                                  \
	/* MLA */                                                                                                  \
	S(q_lora, "attention.q_lora_rank", "q_lora_rank", 0, SPEC_DIM_MAX)                                         \
	S(kv_lora, "attention.kv_lora_rank", "kv_lora_rank", 1, SPEC_DIM_MAX)                                      \
	S(nope_dim, "", "qk_nope_head_dim", 1, SPEC_HEAD_DIM_MAX)                                                  \
	S(qk_dim, "", "qk_head_dim", 1, 2 * SPEC_HEAD_DIM_MAX)                                                     \
	S(mla_k_dim, "attention.key_length_mla", "", 1, SPEC_HEAD_DIM_MAX)                                         \
	S(mla_v_dim, "attention.value_length_mla", "", 1, SPEC_HEAD_DIM_MAX)                                       \
	/* rotation; the objects are taken apart in family_rope.c */                                               \
	S(rope_base, "rope.freq_base", "rope_theta", 1, 1e15)                                                      \
	S(rope_base_local, "rope.freq_base_swa", "rope_local_base_freq", 1, 1e15)                                  \
	S(rope_dims, "rope.dimension_count", "qk_rope_head_dim", 1, SPEC_HEAD_DIM_MAX)                             \
	S(rope_part, "", "partial_rotary_factor", 0, 1)                                                            \
	S(rope_scaling, "", "rope_scaling", 0, 0)                                                                  \
	S(rope_parameters, "", "rope_parameters", 0, 0)                                                            \
	S(rope_original, "rope.scaling.original_context_length", "original_max_position_embeddings", 1,            \
	  SPEC_CONTEXT_MAX)                                                                                        \
	S(rope_kind, "rope.scaling.type", "", 0, 0)                                                                \
	S(rope_factor, "rope.scaling.factor|rope.scale_linear", "", 0, 1e6)                                        \
	S(rope_attention, "rope.scaling.attn_factor|rope.scaling.yarn_attn_factor", "", 1e-6, 1e6)                 \
	S(rope_log_mul, "rope.scaling.yarn_log_multiplier", "", 0, 1e3)                                            \
	S(rope_beta_fast, "rope.scaling.yarn_beta_fast", "", 1e-6, 1e6)                                            \
	S(rope_beta_slow, "rope.scaling.yarn_beta_slow", "", 1e-6, 1e6)                                            \
	S(rope_interleave, "", "rope_interleave", 0, 1)                                                            \
	S(rope_layers, "", "no_rope_layers", 0, 0)                                                                 \
	S(rope_every, "", "no_rope_layer_interval", 1, SPEC_LAYERS_MAX)                                            \
	/* feed-forward */                                                                                         \
	S(ffn, "feed_forward_length", "intermediate_size", 1, SPEC_FFN_MAX)                                        \
	S(ffn_bias, "", "mlp_bias", 0, 1)                                                                          \
	S(n_experts, "expert_count", "num_experts|num_local_experts|n_routed_experts", 0, SPEC_EXPERTS_MAX)        \
	S(n_used, "expert_used_count", "num_experts_per_tok|experts_per_token", 0, SPEC_EXPERTS_MAX)               \
	S(expert_ffn, "expert_feed_forward_length", "moe_intermediate_size", 1, SPEC_FFN_MAX)                      \
	S(n_shared, "expert_shared_count", "n_shared_experts", 0, SPEC_EXPERTS_MAX)                                \
	S(shared_ffn, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", 0, SPEC_FFN_MAX)     \
	S(router_norm, "expert_weights_norm", "norm_topk_prob", 0, 1)                                              \
	S(router_scale, "expert_weights_scale", "routed_scaling_factor", 0, 1e6)                                   \
	S(router_kind, "expert_gating_func", "scoring_func", 0, 4)                                                 \
	S(router_method, "", "topk_method", 0, 0)                                                                  \
	S(n_groups, "expert_group_count", "n_group", 0, SPEC_EXPERTS_MAX)                                          \
	S(groups_used, "expert_group_used_count", "topk_group", 0, SPEC_EXPERTS_MAX)                               \
	S(dense_first, "leading_dense_block_count", "first_k_dense_replace", 0, SPEC_LAYERS_MAX)                   \
	S(moe_every, "", "moe_layer_freq", 1, SPEC_LAYERS_MAX)                                                     \
	S(sparse_step, "", "decoder_sparse_step", 1, SPEC_LAYERS_MAX)                                              \
	S(dense_layers, "", "mlp_only_layers", 0, 0)                                                               \
	S(glu_limit, "swiglu_limit", "swiglu_limit", 1e-3, 1e6)                                                    \
	S(glu_alpha, "", "swiglu_alpha", 1e-3, 1e6)                                                                \
	S(mtp_layers, "nextn_predict_layers", "num_nextn_predict_layers|num_mtp_layers|mtp_num_hidden_layers", 0,  \
	  SPEC_LAYERS_MAX)                                                                                         \
	/* delta net */                                                                                            \
	S(conv_width, "ssm.conv_kernel", "linear_conv_kernel_dim", 2, 8)                                           \
	S(dk_dim, "ssm.state_size", "linear_key_head_dim", 1, SPEC_HEAD_DIM_MAX)                                   \
	S(dv_dim, "", "linear_value_head_dim", 1, SPEC_HEAD_DIM_MAX)                                               \
	S(dk_heads, "ssm.group_count", "linear_num_key_heads", 1, SPEC_HEADS_MAX)                                  \
	S(dv_heads, "ssm.time_step_rank", "linear_num_value_heads", 1, SPEC_HEADS_MAX)                             \
	S(dv_width, "ssm.inner_size", "", 1, SPEC_DIM_MAX)                                                         \
	S(quantization, "", "quantization_config|compression_config", 0, 0)

enum family_setting {
#define FAMILY_AS_SETTING(field, gguf, config, min, max) FAMILY_##field,
	FAMILY_SETTINGS(FAMILY_AS_SETTING)
#undef FAMILY_AS_SETTING
		FAMILY_SETTING_COUNT
};

/* A setting that published files of a family leave out, and its value then (in folders; GGUF files have them all). */
struct family_default {
	enum family_setting setting; /* FAMILY_SETTING_COUNT ends a list */
	double value;
};

struct family_reading;

struct family {
	const char *name;        /* spec.family */
	const char *model_types; /* of config.json, "|" between */
	const char *archs;       /* of GGUF files, likewise; "": none */
	/* Settings to description: fills r->y, what all layers have in common, on top of family_common(), and what spec
	 * has beyond. */
	void (*fill)(struct family_reading *r);
	/* What sets layer i apart; y is a copy of r->y. NULL: nothing. */
	void (*layer)(struct family_reading *r, uint32_t i, struct spec_layer *y);
	const struct family_default *defaults; /* NULL: none */
	const struct names_row *names;         /* folders: where other than usual; NULL: nowhere */
	const struct names_row *gguf_names;    /* likewise */
	bool norms_minus_one;                  /* folders store norms minus 1 */
};

/* Two kinds of layer of one model, as layer_types spells them. */
enum family_layer_type { FAMILY_FULL, FAMILY_SLIDING, FAMILY_LINEAR };

struct family_reading {
	struct spec *s;
	struct spec_layer y;
	const struct family *f;
	const struct ckpt *c;
	const struct gguf *g; /* or NULL */
	char arch[64];        /* GGUF: general.architecture */
	json_t *root;         /* folder: config.json with overrides; owned */
	const json_t *config; /* the part with the text model's settings: root or its text_config */
	uint32_t model_len_max;
	struct errbuf *err;
	int rc;
	bool asked[FAMILY_SETTING_COUNT];

	uint8_t *layer_types; /* (n_layers) enum family_layer_type, from layer_types; NULL: not given; owned */
	uint8_t *marks;       /* (n_layers) 1: named by a list of layers; NULL: no list; owned */
	/* For family->layer(), filled by family->fill(): */
	uint32_t window, window_from, every, dense_first, moe_every;
	uint32_t mtp_layers; /* that predict further tokens, behind the others; left out */
	int32_t rope_local;
	double mla_mscale; /* DeepSeek: attention's scale is multiplied by its square; by family_rope_add() */
};

/* ---- family_set.c: one setting ---- */

/* Sets r->rc and the text "FILE: ..." unless there is an error already. */
void family_fail(struct family_reading *r, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A setting's name as the checkpoint spells it: "llama.block_count", "num_hidden_layers" (the spelling that is there,
 * else the first). */
struct family_key {
	char text[96];
};
struct family_key family_key(const struct family_reading *r, enum family_setting x);
/* FAMILY_SETTING_COUNT when there is none: by its field; by one of its spellings (a GGUF key without its architecture).
 */
enum family_setting family_setting_of(const char *field, size_t len);
enum family_setting family_setting_spelled(const struct family_reading *r, const char *key);

bool family_given(struct family_reading *r, enum family_setting x); /* there, and not null; counts as asked */
/* Refuse a wrong kind and a value out of the setting's bounds. Without _or a missing one without a default of the
 * family is refused. */
uint32_t family_u32(struct family_reading *r, enum family_setting x);
uint32_t family_u32_or(struct family_reading *r, enum family_setting x, uint32_t fallback);
double family_f64(struct family_reading *r, enum family_setting x);
double family_f64_or(struct family_reading *r, enum family_setting x, double fallback);
bool family_bool_or(struct family_reading *r, enum family_setting x, bool fallback);
/* A word of `allowed` ("silu|swish"): its place, 0 when the setting is missing. Another is refused with the list. */
uint32_t family_word(struct family_reading *r, enum family_setting x, const char *allowed);
/* The value itself, of a folder; NULL: missing or null. */
const json_t *family_json(struct family_reading *r, enum family_setting x, json_type type);
/* It must be missing or this; otherwise refused as not built. */
void family_only(struct family_reading *r, enum family_setting x, double value);

/* Members of an object, likewise: `where` is its setting. */
double family_member(struct family_reading *r, const json_t *o, enum family_setting where, const char *name, double min,
		     double max, double fallback);

/* True when `word` is one of the "|"-separated words; *ix: which. */
bool family_words_have(const char *words, const char *word, size_t len, uint32_t *ix);

/* ---- family_common.c ---- */

/* Sizes, attention, feed-forward as nearly all have them. */
void family_common(struct family_reading *r);
void family_check_heads(struct family_reading *r, const struct spec_layer *y);
/* The window of a family whose layers see one: r->window, never 0. */
void family_window(struct family_reading *r);
/* layer_types, for a family that has them; then layer i's kind, or `usual` when the list is not given. */
void family_layer_types(struct family_reading *r);
enum family_layer_type family_type_of(const struct family_reading *r, uint32_t i, enum family_layer_type usual);
/* Experts in all layers; ffn: the setting of their width. */
void family_experts(struct family_reading *r, enum family_setting ffn);
/* A list of layers to r->marks: of their numbers, or with a 0 or 1 for each layer. */
void family_marks(struct family_reading *r, enum family_setting list, bool each);
void family_make_dense(struct family_reading *r, struct spec_layer *y);

/* ---- family_qwen.c, for family_qwenext.c too ---- */

void family_qwen_experts(struct family_reading *r);
bool family_qwen_is_dense(const struct family_reading *r, uint32_t i);

/* ---- family_rope.c ---- */

/* A rotation as a family asks for it. */
struct family_rope {
	const char *layer_type;   /* of rope_parameters by layer type: "full_attention"; NULL: the common one */
	enum family_setting base; /* where its base stands outside of the object; 0: FAMILY_rope_base */
	double base_fallback;     /* 0: 10000 */
	uint32_t dims;            /* of a head; 0: k_dim, or what partial_rotary_factor leaves of it */
	double part;              /* partial_rotary_factor when it is not given; 0: the family has no such setting */
	bool neox;
	bool unscaled;    /* rope_scaling is not for it */
	bool no_truncate; /* yarn's truncate when it is not given is false */
};
/* Adds it to spec.ropes; gives its number. Scaled ones change spec.context_len as vLLM does. */
int32_t family_rope_add(struct family_reading *r, const struct family_rope *a);

/* ---- family.c ---- */

/* A reading that can only name settings, as the checkpoint spells them. */
struct family_reading family_naming(const struct spec *s, const struct ckpt *c);

/* ---- family_rest.c ---- */

/* Settings that nobody asked for. */
void family_rest(struct family_reading *r);

/* ---- family_quant.c ---- */

void family_quant(struct family_reading *r);

/* ---- family_config.c ---- */

/* config.json with the overrides, and its part for the text model, to r->root and r->config. */
void family_config(struct family_reading *r, const struct spec_opts *opts);

#endif
