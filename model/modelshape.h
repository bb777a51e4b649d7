/* modelshape.h - what a model file says about the model's shape, checked against its tensors.
 *
 * modelshape_read() takes the sizes out of the metadata and compares them with the table of tensors that such a model must
 * have: each is there, has its shape and a type that is built, and there is none that would be ignored silently. Whoever
 * holds a filled struct modelshape may rely on that: the supervisor before it starts anything, `sluice inspect`, and the worker,
 * which fetches its weights by role (modelshape_tensor) and never by name.
 *
 * The architecture `llama` is built; another one is refused by name. */
#ifndef SLUICE_MODELSHAPE_H
#define SLUICE_MODELSHAPE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/ggtype.h"

struct gguf;
struct gguf_tensor;

struct modelshape {
	const char *arch; /* "llama"; static text */
	uint32_t n_layers;
	uint32_t dim;      /* width of the residual stream */
	uint32_t heads;    /* query heads */
	uint32_t kv_heads; /* divides heads */
	uint32_t head_dim; /* even; heads * head_dim may differ from dim */
	uint32_t ffn;
	uint32_t vocab;    /* rows of the embedding and of the output matrix */
	uint32_t n_tokens; /* of the tokenizer, <= vocab: rows beyond are padding that must not be sampled; vocab when there is none */
	uint32_t context_len; /* positions the model was trained for */
	bool tied;            /* the embedding is the output matrix too */
	float rms_eps;

	float rope_base;
	uint32_t rope_dims;        /* rotated elements of a head, even, <= head_dim */
	bool rope_neox;            /* pairs (i, i + rope_dims / 2) instead of (2i, 2i + 1) */
	float rope_linear;         /* positions are divided by this; 1: no scaling */
	const uint8_t *rope_factors; /* (rope_dims / 2) f32, unaligned, each frequency is divided by its own; NULL: none.
					A view of the file: valid until gguf_close() */

	uint64_t n_params;     /* elements of all tensors */
	uint64_t weight_bytes; /* of all tensors in the file */
};

/* T(role, name, scope, form, rows, cols, need)
 * scope  MODEL: one; LAYER: one a layer, %u is its number
 * form   MAT: (rows, cols) of a type that products are built for; VEC: (cols) F32, rows is 1
 * rows and cols are expressions over `s`, a const struct modelshape * */
#define MODELSHAPE_TENSORS(T)                                                                                    \
	T(EMBED, "token_embd.weight", MODEL, MAT, s->vocab, s->dim, true)                                        \
	T(OUTPUT_NORM, "output_norm.weight", MODEL, VEC, 1, s->dim, true)                                        \
	T(OUTPUT, "output.weight", MODEL, MAT, s->vocab, s->dim, false)                                          \
	T(ROPE_FACTORS, "rope_freqs.weight", MODEL, VEC, 1, s->rope_dims / 2, false)                             \
	T(ATTN_NORM, "blk.%u.attn_norm.weight", LAYER, VEC, 1, s->dim, true)                                     \
	T(ATTN_Q, "blk.%u.attn_q.weight", LAYER, MAT, s->heads * s->head_dim, s->dim, true)                      \
	T(ATTN_K, "blk.%u.attn_k.weight", LAYER, MAT, s->kv_heads * s->head_dim, s->dim, true)                   \
	T(ATTN_V, "blk.%u.attn_v.weight", LAYER, MAT, s->kv_heads * s->head_dim, s->dim, true)                   \
	T(ATTN_O, "blk.%u.attn_output.weight", LAYER, MAT, s->dim, s->heads * s->head_dim, true)                 \
	T(FFN_NORM, "blk.%u.ffn_norm.weight", LAYER, VEC, 1, s->dim, true)                                       \
	T(FFN_GATE, "blk.%u.ffn_gate.weight", LAYER, MAT, s->ffn, s->dim, true)                                  \
	T(FFN_UP, "blk.%u.ffn_up.weight", LAYER, MAT, s->ffn, s->dim, true)                                      \
	T(FFN_DOWN, "blk.%u.ffn_down.weight", LAYER, MAT, s->dim, s->ffn, true)

enum modelshape_role {
#define MODELSHAPE_AS_ROLE(role, name, scope, form, rows, cols, need) MODELSHAPE_##role,
	MODELSHAPE_TENSORS(MODELSHAPE_AS_ROLE)
#undef MODELSHAPE_AS_ROLE
	MODELSHAPE_ROLE_COUNT
};

/* Types of matrices that are built: what the kernels can multiply with (test_modelshape compares the two lists). */
#define MODELSHAPE_TYPES(T)                                                                             \
	T(F32) T(F16) T(BF16) T(Q8_0) T(Q4_0) T(Q4_1) T(Q5_0) T(Q5_1)                                   \
	T(Q2_K) T(Q3_K) T(Q4_K) T(Q5_K) T(Q6_K) T(IQ4_NL) T(IQ4_XS) T(IQ2_XXS) T(IQ2_XS) T(IQ2_S)       \
	T(IQ3_XXS) T(IQ3_S) T(IQ1_S) T(IQ1_M) T(TQ1_0) T(TQ2_0) T(MXFP4) T(NVFP4)

bool modelshape_type_built(enum ggtype type);

/* Fills *out and checks it against the tensors. On an error the text names file, key or tensor, what was found and what was
 * expected: ST_UNSUPPORTED (architecture, scaling, type, tensor that is not built), ST_NOT_FOUND (missing key or tensor),
 * ST_INVALID (a value or shape that cannot be). */
int modelshape_read(struct modelshape *out, const struct gguf *g, struct errbuf *err) MUST_CHECK;

/* The weights by role; `layer` is ignored for a role of the whole model. NULL only for a role that need not be there:
 * ROPE_FACTORS. OUTPUT of a tied model gives the embedding. */
const struct gguf_tensor *modelshape_tensor(const struct modelshape *s, const struct gguf *g, enum modelshape_role role,
					    uint32_t layer);

/* Angle that pair i (< rope_dims / 2) turns by for each position. */
double modelshape_rope_freq(const struct modelshape *s, uint32_t i);

/* Bytes of keys and values of one token over all layers, stored as `type` (F16 or F32). */
uint64_t modelshape_kv_token_bytes(const struct modelshape *s, enum ggtype type);

#endif
