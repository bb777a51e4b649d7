/* spec.h - what a model is: sizes, and for each layer what it does. Data only.
 *
 * A checkpoint's metadata (GGUF keys, or config.json) becomes this description by the table of its family (family.h), checked
 * against its tensors. Everything behind it - decoder, memory plan, `sluice inspect` - knows descriptions and no families. Whoever
 * holds a filled struct spec may rely on: every role that spec_has() names is in the checkpoint with its shape and a type that is
 * built, there is no tensor that would be ignored silently, sizes are within the bounds below, and products of two of them fit 64 bits. */
#ifndef SLUICE_SPEC_H
#define SLUICE_SPEC_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/ggtype.h"

struct ckpt;
struct family;
struct json_t; /* jansson's */

#define SPEC_LAYERS_MAX   1024
#define SPEC_DIM_MAX      (1u << 18)
#define SPEC_HEADS_MAX    4096
#define SPEC_HEAD_DIM_MAX 1024
#define SPEC_FFN_MAX      (1u << 22)
#define SPEC_EXPERTS_MAX  4096
#define SPEC_VOCAB_MAX    (1u << 24)
#define SPEC_CONTEXT_MAX  (1u << 30)
#define SPEC_ROPES_MAX    4

enum spec_mixer {
	SPEC_ATTENTION, /* softmax attention with keys and values of its own */
	SPEC_MLA,       /* multi-head latent attention (DeepSeek-V2): one latent vector a token stands for all heads' keys and values */
	SPEC_DELTA      /* gated delta net: a state a sequence, no KV cache */
};

enum spec_glu { SPEC_SILU, SPEC_GELU_TANH, SPEC_OAI }; /* the formulas are those of enum kglu */
enum spec_router { SPEC_SOFTMAX, SPEC_SOFTMAX_TOPK, SPEC_SIGMOID }; /* those of enum kroute_kind */

/* A rotation. Pair i turns by freqs[i] for each position; cosine and sine are multiplied by mscale. */
struct spec_rope {
	uint32_t dims; /* rotated elements of a head, even */
	bool neox;     /* pairs (i, i + dims / 2); else (2i, 2i + 1) */
	double *freqs; /* (dims / 2); owned */
	double mscale;
	double base; /* for people: of the frequencies before any scaling */
};

struct spec_layer {
	enum spec_mixer mixer;
	bool post_norms; /* what attention and feed-forward give is normed before it is added (Gemma) */

	/* SPEC_ATTENTION and SPEC_MLA. k_dim and v_dim are those of a head; MLA: k_dim = nope_dim + the rotation's dims. */
	uint32_t heads, kv_heads, k_dim, v_dim; /* kv_heads divides heads; MLA: kv_heads == heads */
	int32_t rope;                           /* which of spec.ropes; -1: none */
	uint32_t window;                        /* positions a token sees, its own included; 0: all */
	double scale, softcap;                  /* of q k; softcap 0: none */
	bool qkv_bias, o_bias, qk_norm, sinks;
	bool out_gate; /* attention's output is multiplied by sigmoid of a gate that stands beside q */
	uint32_t q_lora; /* MLA: width of q's bottleneck; 0: none */
	uint32_t kv_lora, nope_dim;
	double latent_eps; /* MLA: of the norms within it, Q_A_NORM and KV_A_NORM */

	/* SPEC_DELTA */
	uint32_t dk_heads, dv_heads, dk_dim, dv_dim, conv_width; /* dk_heads divides dv_heads */
	bool dv_tiled; /* value head h goes with key head h % dk_heads; else those of a key head are neighbours */

	/* Feed-forward: dense when n_experts is 0. */
	enum spec_glu glu;
	double glu_limit; /* SPEC_OAI */
	uint32_t ffn;     /* of the dense one; 0 with experts */
	bool ffn_bias;
	uint32_t n_experts, n_used, expert_ffn;
	uint32_t n_groups, groups_used; /* 1, 1: no groups */
	enum spec_router router;
	bool router_norm, router_bias, router_correction, expert_bias;
	double router_scale;
	uint32_t shared_ffn; /* 0: no shared expert */
	bool shared_gate;    /* its output is multiplied by sigmoid of a gate */
};

/* How a folder's quantized matrices are stored: quantization_config. */
enum spec_quant_kind { SPEC_QUANT_NONE, SPEC_QUANT_FP8, SPEC_QUANT_GPTQ, SPEC_QUANT_AWQ, SPEC_QUANT_MXFP4 };

struct spec_quant {
	enum spec_quant_kind kind;
	uint32_t block_rows, block_cols; /* FP8: of a scale; GPTQ and AWQ: block_cols is the group */
	bool zeros_minus_one;            /* GPTQ v1 */
};

struct spec {
	const char *family; /* "llama", "qwen3_moe", ...; static text */
	bool from_gguf;
	uint32_t n_layers, dim;
	uint32_t vocab;       /* rows of embedding and output matrix */
	uint32_t n_tokens;    /* ids below it may be drawn, <= vocab: GGUF: the tokenizer's; folders: all rows, as vLLM does */
	uint32_t context_len; /* positions the model was trained for, scaling included */
	bool tied;            /* the embedding is the output matrix too */
	double eps;           /* of all norms but where a formula has its own */
	double embed_scale;   /* embeddings are multiplied by it; 1: no */
	double logit_softcap; /* 0: none */
	struct spec_rope ropes[SPEC_ROPES_MAX];
	uint32_t n_ropes;
	struct spec_layer *layers; /* (n_layers); owned */
	bool zero_centered_norms;  /* norms' weights are stored minus 1 (but delta's own norm): the loader adds it */

	uint64_t n_params;     /* elements of all tensors of the model */
	uint64_t weight_bytes; /* of these in the files */
	const char *file_types; /* "BF16", "Q4_1", "mixed": for people; static text */

	/* For wsrc_find() alone: */
	const struct family *names; /* the family, for its table of names */
	const char *prefix;         /* of a folder's tensors: "model."; static text */
	struct spec_quant quant;
};

/* T(role, scope, form, rows, cols, has, shard)
 * scope  MODEL: one; LAYER: one a layer
 * form   MAT (rows, cols): a matrix of products; VEC (cols): f32, rows is 1; EACH: n matrices (rows, cols), n in `n`; VECS: f32 (n, cols)
 * has    when it is there; n: matrices of EACH and VECS, else 1
 * shard  what a rank of a tensor-parallel group has of it: WHOLE; ROWS, COLS: its share of rows or columns; KV: its share of rows by kv
 *        head, replicated when there are fewer heads than ranks; VOCAB: rows, padded
 * expressions over s (const struct spec *) and y (const struct spec_layer *) */
#define SPEC_ROLES(T)                                                                                                                    \
	T(EMBED, MODEL, MAT, 1, s->vocab, s->dim, true, VOCAB)                                                                           \
	T(OUTPUT, MODEL, MAT, 1, s->vocab, s->dim, !s->tied, VOCAB)                                                                      \
	T(OUTPUT_NORM, MODEL, VEC, 1, 1, s->dim, true, WHOLE)                                                                            \
	T(ATTN_NORM, LAYER, VEC, 1, 1, s->dim, true, WHOLE)                                                                              \
	T(ATTN_POST_NORM, LAYER, VEC, 1, 1, s->dim, y->post_norms, WHOLE)                                                                \
	T(Q, LAYER, MAT, 1, y->heads * y->k_dim, s->dim, SPEC_IS_ATT(y) || (SPEC_IS_MLA(y) && !y->q_lora), ROWS)                         \
	T(K, LAYER, MAT, 1, y->kv_heads * y->k_dim, s->dim, SPEC_IS_ATT(y), KV)                                                          \
	T(V, LAYER, MAT, 1, y->kv_heads * y->v_dim, s->dim, SPEC_IS_ATT(y), KV)                                                          \
	T(O, LAYER, MAT, 1, s->dim, y->heads * y->v_dim, !SPEC_IS_DELTA(y), COLS)                                                        \
	T(Q_BIAS, LAYER, VEC, 1, 1, y->heads * y->k_dim, SPEC_IS_ATT(y) && y->qkv_bias, ROWS)                                            \
	T(K_BIAS, LAYER, VEC, 1, 1, y->kv_heads * y->k_dim, SPEC_IS_ATT(y) && y->qkv_bias, KV)                                           \
	T(V_BIAS, LAYER, VEC, 1, 1, y->kv_heads * y->v_dim, SPEC_IS_ATT(y) && y->qkv_bias, KV)                                           \
	T(O_BIAS, LAYER, VEC, 1, 1, s->dim, !SPEC_IS_DELTA(y) && y->o_bias, WHOLE)                                                       \
	T(ATTN_GATE, LAYER, MAT, 1, y->heads * y->v_dim, s->dim, SPEC_IS_ATT(y) && y->out_gate, ROWS)                                    \
	T(Q_NORM, LAYER, VEC, 1, 1, y->k_dim, SPEC_IS_ATT(y) && y->qk_norm, WHOLE)                                                       \
	T(K_NORM, LAYER, VEC, 1, 1, y->k_dim, SPEC_IS_ATT(y) && y->qk_norm, WHOLE)                                                       \
	T(SINKS, LAYER, VEC, 1, 1, y->heads, SPEC_IS_ATT(y) && y->sinks, ROWS)                                                           \
	T(Q_A, LAYER, MAT, 1, y->q_lora, s->dim, SPEC_IS_MLA(y) && y->q_lora, WHOLE)                                                     \
	T(Q_A_NORM, LAYER, VEC, 1, 1, y->q_lora, SPEC_IS_MLA(y) && y->q_lora, WHOLE)                                                     \
	T(Q_B, LAYER, MAT, 1, y->heads * y->k_dim, y->q_lora, SPEC_IS_MLA(y) && y->q_lora, ROWS)                                         \
	T(KV_A, LAYER, MAT, 1, y->kv_lora + y->k_dim - y->nope_dim, s->dim, SPEC_IS_MLA(y), WHOLE)                                       \
	T(KV_A_NORM, LAYER, VEC, 1, 1, y->kv_lora, SPEC_IS_MLA(y), WHOLE)                                                                \
	T(K_B, LAYER, EACH, y->heads, y->kv_lora, y->nope_dim, SPEC_IS_MLA(y), ROWS) /* a head: its part of kv_b_proj, transposed */     \
	T(V_B, LAYER, EACH, y->heads, y->v_dim, y->kv_lora, SPEC_IS_MLA(y), ROWS)                                                        \
	T(D_QKV, LAYER, MAT, 1, SPEC_D_QKV(y), s->dim, SPEC_IS_DELTA(y), ROWS) /* q of all heads, k, v */                                \
	T(D_Z, LAYER, MAT, 1, y->dv_heads * y->dv_dim, s->dim, SPEC_IS_DELTA(y), ROWS)                                                   \
	T(D_B, LAYER, MAT, 1, y->dv_heads, s->dim, SPEC_IS_DELTA(y), ROWS)                                                               \
	T(D_A, LAYER, MAT, 1, y->dv_heads, s->dim, SPEC_IS_DELTA(y), ROWS)                                                               \
	T(D_CONV, LAYER, VECS, SPEC_D_QKV(y), 1, y->conv_width, SPEC_IS_DELTA(y), ROWS)                                                  \
	T(D_DT_BIAS, LAYER, VEC, 1, 1, y->dv_heads, SPEC_IS_DELTA(y), ROWS)                                                              \
	T(D_NEG_A, LAYER, VEC, 1, 1, y->dv_heads, SPEC_IS_DELTA(y), ROWS) /* -exp(A_log) */                                              \
	T(D_NORM, LAYER, VEC, 1, 1, y->dv_dim, SPEC_IS_DELTA(y), WHOLE)                                                                  \
	T(D_OUT, LAYER, MAT, 1, s->dim, y->dv_heads * y->dv_dim, SPEC_IS_DELTA(y), COLS)                                                 \
	T(FFN_NORM, LAYER, VEC, 1, 1, s->dim, true, WHOLE)                                                                               \
	T(FFN_POST_NORM, LAYER, VEC, 1, 1, s->dim, y->post_norms, WHOLE)                                                                 \
	T(GATE, LAYER, MAT, 1, y->ffn, s->dim, !y->n_experts, ROWS)                                                                      \
	T(UP, LAYER, MAT, 1, y->ffn, s->dim, !y->n_experts, ROWS)                                                                        \
	T(DOWN, LAYER, MAT, 1, s->dim, y->ffn, !y->n_experts, COLS)                                                                      \
	T(GATE_BIAS, LAYER, VEC, 1, 1, y->ffn, !y->n_experts && y->ffn_bias, ROWS)                                                       \
	T(UP_BIAS, LAYER, VEC, 1, 1, y->ffn, !y->n_experts && y->ffn_bias, ROWS)                                                         \
	T(DOWN_BIAS, LAYER, VEC, 1, 1, s->dim, !y->n_experts && y->ffn_bias, WHOLE)                                                      \
	T(ROUTER, LAYER, MAT, 1, y->n_experts, s->dim, y->n_experts, WHOLE)                                                              \
	T(ROUTER_BIAS, LAYER, VEC, 1, 1, y->n_experts, y->n_experts && y->router_bias, WHOLE)                                            \
	T(ROUTER_CORRECTION, LAYER, VEC, 1, 1, y->n_experts, y->n_experts && y->router_correction, WHOLE)                                \
	T(EXP_GATE, LAYER, EACH, y->n_experts, y->expert_ffn, s->dim, y->n_experts, ROWS)                                                \
	T(EXP_UP, LAYER, EACH, y->n_experts, y->expert_ffn, s->dim, y->n_experts, ROWS)                                                  \
	T(EXP_DOWN, LAYER, EACH, y->n_experts, s->dim, y->expert_ffn, y->n_experts, COLS)                                                \
	T(EXP_GATE_BIAS, LAYER, VECS, y->n_experts, 1, y->expert_ffn, y->n_experts && y->expert_bias, ROWS)                              \
	T(EXP_UP_BIAS, LAYER, VECS, y->n_experts, 1, y->expert_ffn, y->n_experts && y->expert_bias, ROWS)                                \
	T(EXP_DOWN_BIAS, LAYER, VECS, y->n_experts, 1, s->dim, y->n_experts && y->expert_bias, WHOLE)                                    \
	T(SH_GATE, LAYER, MAT, 1, y->shared_ffn, s->dim, y->n_experts && y->shared_ffn, ROWS)                                            \
	T(SH_UP, LAYER, MAT, 1, y->shared_ffn, s->dim, y->n_experts && y->shared_ffn, ROWS)                                              \
	T(SH_DOWN, LAYER, MAT, 1, s->dim, y->shared_ffn, y->n_experts && y->shared_ffn, COLS)                                            \
	T(SH_ROUTER, LAYER, MAT, 1, 1, s->dim, y->n_experts && y->shared_ffn && y->shared_gate, WHOLE)

#define SPEC_IS_ATT(y)   ((y)->mixer == SPEC_ATTENTION)
#define SPEC_IS_MLA(y)   ((y)->mixer == SPEC_MLA)
#define SPEC_IS_DELTA(y) ((y)->mixer == SPEC_DELTA)
#define SPEC_D_QKV(y)    (2 * (y)->dk_heads * (y)->dk_dim + (y)->dv_heads * (y)->dv_dim)

enum spec_role {
#define SPEC_AS_ROLE(role, scope, form, n, rows, cols, has, shard) SPEC_##role,
	SPEC_ROLES(SPEC_AS_ROLE)
#undef SPEC_AS_ROLE
	SPEC_ROLE_COUNT
};

enum spec_scope { SPEC_MODEL, SPEC_LAYER };
enum spec_form { SPEC_MAT, SPEC_VEC, SPEC_EACH, SPEC_VECS };
enum spec_shard { SPEC_WHOLE, SPEC_ROWS, SPEC_COLS, SPEC_KV, SPEC_VOCAB };

struct spec_shape {
	uint32_t n, rows, cols;
};

const char *spec_role_name(enum spec_role role); /* "Q_BIAS" */
enum spec_scope spec_role_scope(enum spec_role role);
enum spec_form spec_role_form(enum spec_role role);
enum spec_shard spec_role_shard(enum spec_role role);
/* layer is ignored for a role of the whole model. */
bool spec_has(const struct spec *s, enum spec_role role, uint32_t layer);
struct spec_shape spec_role_shape(const struct spec *s, enum spec_role role, uint32_t layer);

/* Types that products are built for, ours included (test_spec compares it with the kernels'). */
bool spec_type_built(enum ggtype type);
const char *spec_type_words(void); /* those of files, "F32 F16 ..." */

/* f32 elements of one sequence's recurrent state over all layers; 0: the model has none. */
uint64_t spec_state_floats(const struct spec *s);
uint64_t spec_layer_state_floats(const struct spec_layer *y);

/* What one of `ranks` ranks has of the layers: heads and widths divided (rounded up), KV heads and delta's key heads at least one. layers is
 * a new array, to be freed; all else is shared with s. */
void spec_share(struct spec *out, const struct spec *s, uint32_t ranks);

struct spec_opts {
	uint32_t model_len_max; /* 0: the model's own; decides between a long and a short rotation where a family has both */
	/* A JSON object that is merged into config.json as RFC 7396 says (null removes; objects within merge likewise): what vLLM calls
	 * --hf-overrides. NULL: none. Refused with a GGUF file. */
	const struct json_t *overrides;
};

/* Fills *out from an open checkpoint and checks it against its tensors; the caller releases it also after an error. ST_UNSUPPORTED
 * (architecture, setting, type, a tensor that is not built), ST_NOT_FOUND (missing setting or tensor), ST_INVALID (a value or shape
 * that cannot be): the text names file, key or tensor, what was found and what was expected. */
int spec_read(struct spec *out, const struct ckpt *c, const struct spec_opts *opts, struct errbuf *err) MUST_CHECK;
void spec_release(struct spec *s);

#endif
