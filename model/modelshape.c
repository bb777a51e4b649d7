/* modelshape.c - see modelshape.h.
 *
 * The good path: architecture, sizes from the metadata, their relations, then the table of tensors; last a pass over
 * the file's own tensors for those that nothing would read (a bias, an expert): ignoring them would give wrong answers.
 */
#include "model/modelshape.h"

#include "model/gguf.h"
#include "common/quote.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bounds far above every published model; they keep products of two sizes within 64 bits and tables small. */
#define MODELSHAPE_LAYERS_MAX   1024
#define MODELSHAPE_DIM_MAX      (1u << 18)
#define MODELSHAPE_HEADS_MAX    4096
#define MODELSHAPE_HEAD_DIM_MAX 1024
#define MODELSHAPE_FFN_MAX      (1u << 22)
#define MODELSHAPE_VOCAB_MAX    (1u << 24)
#define MODELSHAPE_CONTEXT_MAX  (1u << 30)
#define MODELSHAPE_NAME_MAX     64

struct modelshape_reading {
	struct modelshape *s;
	const struct gguf *g;
	struct errbuf *err;
};

enum modelshape_scope { MODELSHAPE_MODEL, MODELSHAPE_LAYER };
enum modelshape_form { MODELSHAPE_MAT, MODELSHAPE_VEC };

static const struct modelshape_row {
	const char *name;
	enum modelshape_scope scope;
	enum modelshape_form form;
	bool need;
} modelshape_rows[] = {
#define MODELSHAPE_AS_ROW(role, name, scope, form, rows, cols, need) \
	{name, MODELSHAPE_##scope, MODELSHAPE_##form, need},
	MODELSHAPE_TENSORS(MODELSHAPE_AS_ROW)
#undef MODELSHAPE_AS_ROW
};

static void modelshape_sizes(const struct modelshape *s, enum modelshape_role role, uint64_t *rows, uint64_t *cols)
{
	switch (role) {
#define MODELSHAPE_AS_SIZES(role, name, scope, form, n_rows, n_cols, need) \
	case MODELSHAPE_##role:                                            \
		*rows = n_rows;                                            \
		*cols = n_cols;                                            \
		return;
		MODELSHAPE_TENSORS(MODELSHAPE_AS_SIZES)
#undef MODELSHAPE_AS_SIZES
	case MODELSHAPE_ROLE_COUNT:
		break;
	}
	CHECK(!"a role");
}

bool modelshape_type_built(enum ggtype type)
{
#define MODELSHAPE_AS_TEST(name) || type == GGTYPE_##name
	return false MODELSHAPE_TYPES(MODELSHAPE_AS_TEST);
#undef MODELSHAPE_AS_TEST
}

#define MODELSHAPE_AS_WORD(name) " " #name
#define MODELSHAPE_TYPE_WORDS    MODELSHAPE_TYPES(MODELSHAPE_AS_WORD)

#define FAIL(r, rc, fmt, ...) err_set((r)->err, (rc), "%s: " fmt, gguf_shown_path((r)->g), __VA_ARGS__)

/* ---- metadata ---- */

static int modelshape_get(struct modelshape_reading *r, const char *key, uint64_t max, uint32_t *out)
{
	uint64_t value = 0;
	int rc = gguf_get_u64(r->g, key, 1, max, &value, r->err);

	*out = (uint32_t)value;
	return rc;
}

static int modelshape_get_or(struct modelshape_reading *r, const char *key, uint64_t max, uint32_t fallback,
			     uint32_t *out)
{
	uint64_t value;
	int rc = gguf_get_u64_or(r->g, key, 1, max, fallback, &value, r->err);

	*out = (uint32_t)value;
	return rc;
}

static int modelshape_read_arch(struct modelshape_reading *r)
{
	struct gguf_str arch;
	int rc = gguf_get_str(r->g, "general.architecture", &arch, r->err);

	if (rc != ST_OK) return rc;
	if (!gguf_str_is(arch, "llama"))
		return FAIL(r, ST_UNSUPPORTED,
			    "architecture \"%s\" (general.architecture) is not supported; supported: llama",
			    quote_short(arch.s, arch.len).text);
	r->s->arch = "llama";
	return ST_OK;
}

static int modelshape_read_heads(struct modelshape_reading *r)
{
	struct modelshape *s = r->s;
	uint32_t value_len;
	int rc;

	rc = modelshape_get(r, "llama.attention.head_count", MODELSHAPE_HEADS_MAX, &s->heads);
	if (rc != ST_OK) return rc;
	rc = modelshape_get_or(r, "llama.attention.head_count_kv", MODELSHAPE_HEADS_MAX, s->heads, &s->kv_heads);
	if (rc != ST_OK) return rc;
	if (s->heads % s->kv_heads)
		return FAIL(r, ST_INVALID,
			    "llama.attention.head_count %u is not a multiple of llama.attention.head_count_kv %u",
			    s->heads, s->kv_heads);
	if (!gguf_find(r->g, "llama.attention.key_length") && s->dim % s->heads)
		return FAIL(r, ST_INVALID,
			    "llama.embedding_length %u is not a multiple of llama.attention.head_count %u", s->dim,
			    s->heads);
	rc = modelshape_get_or(r, "llama.attention.key_length", MODELSHAPE_HEAD_DIM_MAX, s->dim / s->heads,
			       &s->head_dim);
	if (rc != ST_OK) return rc;
	rc = modelshape_get_or(r, "llama.attention.value_length", MODELSHAPE_HEAD_DIM_MAX, s->head_dim, &value_len);
	if (rc != ST_OK) return rc;
	if (value_len != s->head_dim)
		return FAIL(
			r, ST_UNSUPPORTED,
			"llama.attention.value_length %u differs from the length of a key, %u; that is not supported",
			value_len, s->head_dim);
	if (s->head_dim % 2 || s->head_dim > MODELSHAPE_HEAD_DIM_MAX)
		return FAIL(r, ST_INVALID, "the length of a head is %u; expected an even number up to %d", s->head_dim,
			    MODELSHAPE_HEAD_DIM_MAX);
	return ST_OK;
}

/* "linear" divides positions; "none" and no key at all do nothing; a factor without a kind is linear, as converters
 * once wrote. */
static int modelshape_read_scaling(struct modelshape_reading *r)
{
	const char *factor_key = "llama.rope.scaling.factor";
	struct gguf_str kind = {"linear", 6};
	double factor;
	int rc;

	if (gguf_find(r->g, "llama.rope.scaling.type")) {
		rc = gguf_get_str(r->g, "llama.rope.scaling.type", &kind, r->err);
		if (rc != ST_OK) return rc;
	}
	r->s->rope_linear = 1;
	if (gguf_str_is(kind, "none")) return ST_OK;
	if (!gguf_str_is(kind, "linear"))
		return FAIL(r, ST_UNSUPPORTED,
			    "llama.rope.scaling.type \"%s\" is not supported; supported: none, linear",
			    quote_short(kind.s, kind.len).text);
	if (!gguf_find(r->g, factor_key)) factor_key = "llama.rope.scale_linear";
	rc = gguf_get_f64_or(r->g, factor_key, 0, 1e6, 1, &factor, r->err);
	if (rc != ST_OK) return rc;
	if (factor != 0) r->s->rope_linear = (float)factor; /* 0: converters write it for "no scaling" */
	if (!(r->s->rope_linear >= 1e-6f))
		return FAIL(r, ST_INVALID, "key %s is %g; expected 0 (none) or 1e-06 to 1e+06", factor_key, factor);
	return ST_OK;
}

static int modelshape_read_rope(struct modelshape_reading *r)
{
	struct modelshape *s = r->s;
	double base;
	int rc;

	rc = gguf_get_f64_or(r->g, "llama.rope.freq_base", 1, 1e15, 10000, &base, r->err);
	if (rc != ST_OK) return rc;
	s->rope_base = (float)base;
	rc = modelshape_get_or(r, "llama.rope.dimension_count", s->head_dim, s->head_dim, &s->rope_dims);
	if (rc != ST_OK) return rc;
	if (s->rope_dims % 2)
		return FAIL(r, ST_INVALID, "llama.rope.dimension_count is %u; expected an even number", s->rope_dims);
	return modelshape_read_scaling(r);
}

static int modelshape_read_vocab(struct modelshape_reading *r)
{
	const struct gguf_tensor *embed = gguf_find_tensor(r->g, modelshape_rows[MODELSHAPE_EMBED].name);
	const struct gguf_kv *tokens = gguf_find(r->g, "tokenizer.ggml.tokens");
	struct modelshape *s = r->s;

	if (!embed) return FAIL(r, ST_NOT_FOUND, "tensor %s is missing", modelshape_rows[MODELSHAPE_EMBED].name);
	if (embed->dims[1] > MODELSHAPE_VOCAB_MAX)
		return FAIL(r, ST_INVALID, "tensor token_embd.weight has %" PRIu64 " rows; expected 1 to %u",
			    embed->dims[1], MODELSHAPE_VOCAB_MAX);
	s->vocab = (uint32_t)embed->dims[1];
	s->n_tokens = s->vocab;
	s->tied = !gguf_find_tensor(r->g, modelshape_rows[MODELSHAPE_OUTPUT].name);
	if (!tokens || tokens->kind != GGUF_ARR) return ST_OK; /* the tokenizer says what is wrong with it */
	if (tokens->n > s->vocab)
		return FAIL(r, ST_INVALID,
			    "the vocabulary (tokenizer.ggml.tokens) has %" PRIu64
			    " tokens, but token_embd.weight only %u rows",
			    tokens->n, s->vocab);
	if (tokens->n == 0) return FAIL(r, ST_INVALID, "the vocabulary (%s) has no tokens", "tokenizer.ggml.tokens");
	s->n_tokens = (uint32_t)tokens->n;
	return ST_OK;
}

static int modelshape_read_sizes(struct modelshape_reading *r)
{
	struct modelshape *s = r->s;
	uint64_t experts;
	double eps;
	int rc;

	rc = modelshape_get(r, "llama.block_count", MODELSHAPE_LAYERS_MAX, &s->n_layers);
	if (rc != ST_OK) return rc;
	rc = modelshape_get(r, "llama.embedding_length", MODELSHAPE_DIM_MAX, &s->dim);
	if (rc != ST_OK) return rc;
	rc = modelshape_get(r, "llama.feed_forward_length", MODELSHAPE_FFN_MAX, &s->ffn);
	if (rc != ST_OK) return rc;
	rc = modelshape_get(r, "llama.context_length", MODELSHAPE_CONTEXT_MAX, &s->context_len);
	if (rc != ST_OK) return rc;
	rc = gguf_get_f64(r->g, "llama.attention.layer_norm_rms_epsilon", 1e-12, 0.1, &eps, r->err);
	if (rc != ST_OK) return rc;
	s->rms_eps = (float)eps;
	rc = gguf_get_u64_or(r->g, "llama.expert_count", 0, UINT32_MAX, 0, &experts, r->err);
	if (rc != ST_OK) return rc;
	if (experts > 0)
		return FAIL(r, ST_UNSUPPORTED, "a mixture of experts (llama.expert_count %" PRIu64 ") is not supported",
			    experts);
	rc = modelshape_read_heads(r);
	if (rc != ST_OK) return rc;
	rc = modelshape_read_rope(r);
	if (rc != ST_OK) return rc;
	return modelshape_read_vocab(r);
}

/* ---- tensors ---- */

static void modelshape_name(enum modelshape_role role, uint32_t layer, char out[MODELSHAPE_NAME_MAX])
{
	/* The formats are the literals of the table: at most one %u. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(out, MODELSHAPE_NAME_MAX, modelshape_rows[role].name, layer);
#pragma GCC diagnostic pop
}

static void modelshape_dims_text(const uint64_t dims[GGUF_DIMS_MAX], uint32_t n, char out[112])
{
	int at = 0;
	uint32_t i;

	for (i = 0; i < n; i++) at += snprintf(out + at, 112 - (size_t)at, "%s%" PRIu64, i ? ", " : "[", dims[i]);
	snprintf(out + at, 112 - (size_t)at, "]");
}

static int modelshape_check_tensor(struct modelshape_reading *r, enum modelshape_role role, const char *name)
{
	const struct modelshape_row *row = &modelshape_rows[role];
	const struct gguf_tensor *t = gguf_find_tensor(r->g, name);
	uint64_t want[GGUF_DIMS_MAX] = {1, 1, 1, 1};
	char found_text[112], want_text[112];

	if (!t) return row->need ? FAIL(r, ST_NOT_FOUND, "tensor %s is missing", name) : ST_OK;
	modelshape_sizes(r->s, role, &want[1], &want[0]);
	if (memcmp(t->dims, want, sizeof(want)) != 0) {
		modelshape_dims_text(t->dims, t->n_dims, found_text);
		modelshape_dims_text(want, row->form == MODELSHAPE_VEC ? 1 : 2, want_text);
		return FAIL(r, ST_INVALID, "tensor %s has the shape %s; expected %s", name, found_text, want_text);
	}
	if (row->form == MODELSHAPE_VEC && t->type != GGTYPE_F32)
		return FAIL(r, ST_UNSUPPORTED, "tensor %s has the type %s; supported: F32", name,
			    ggtype_info(t->type)->name);
	if (row->form == MODELSHAPE_MAT && !modelshape_type_built(t->type))
		return FAIL(r, ST_UNSUPPORTED, "tensor %s has the type %s, which is not supported; supported:%s", name,
			    ggtype_info(t->type)->name, MODELSHAPE_TYPE_WORDS);
	return ST_OK;
}

static float modelshape_factor(const uint8_t *factors, uint32_t i)
{
	float f;

	memcpy(&f, factors + (size_t)i * sizeof(f), sizeof(f));
	return f;
}

static int modelshape_check_factors(struct modelshape_reading *r)
{
	const struct gguf_tensor *t = modelshape_tensor(r->s, r->g, MODELSHAPE_ROPE_FACTORS, 0);
	uint32_t i;

	if (!t) return ST_OK;
	for (i = 0; i < r->s->rope_dims / 2; i++) {
		float f = modelshape_factor(t->data, i);

		if (!(f >= 1e-6f && f <= 1e6f))
			return FAIL(r, ST_INVALID, "tensor rope_freqs.weight: value %u is %g; expected 1e-06 to 1e+06",
				    i, (double)f);
	}
	r->s->rope_factors = t->data;
	return ST_OK;
}

/* True for a tensor that the table has, or that carries nothing (a buffer that old converters wrote). */
static bool modelshape_is_known(const struct modelshape *s, const struct gguf_tensor *t)
{
	char own[MODELSHAPE_NAME_MAX], name[MODELSHAPE_NAME_MAX], rest[2];
	enum modelshape_role role;
	uint32_t layer = 0;
	bool in_layer;

	if (t->name.len >= sizeof(own)) return false;
	memcpy(own, t->name.s, t->name.len);
	own[t->name.len] = 0;
	in_layer = sscanf(own, "blk.%9u.%1s", &layer, rest) == 2;
	if (in_layer && layer >= s->n_layers) return false;
	for (role = 0; role < MODELSHAPE_ROLE_COUNT; role++) {
		if ((modelshape_rows[role].scope == MODELSHAPE_LAYER) != in_layer) continue;
		modelshape_name(role, layer, name);
		if (strcmp(own, name) == 0) return true;
	}
	snprintf(name, sizeof(name), "blk.%u.attn_rot_embd", layer);
	return in_layer && strcmp(own, name) == 0;
}

static int modelshape_check_extra(struct modelshape_reading *r)
{
	size_t i;

	for (i = 0; i < gguf_tensor_count(r->g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(r->g, i);
		uint64_t elements = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];

		if (!modelshape_is_known(r->s, t))
			return FAIL(r, ST_UNSUPPORTED,
				    "tensor %s is not one of a %s model with %u layers; leaving it out would give "
				    "wrong answers",
				    quote_short(t->name.s, t->name.len).text, r->s->arch, r->s->n_layers);
		r->s->n_params += elements;
		r->s->weight_bytes += t->bytes;
	}
	return ST_OK;
}

static int modelshape_check_tensors(struct modelshape_reading *r)
{
	char name[MODELSHAPE_NAME_MAX];
	enum modelshape_role role;
	uint32_t layer;
	int rc;

	for (layer = 0; layer < r->s->n_layers; layer++) {
		for (role = 0; role < MODELSHAPE_ROLE_COUNT; role++) {
			if (layer > 0 && modelshape_rows[role].scope == MODELSHAPE_MODEL) continue;
			modelshape_name(role, layer, name);
			rc = modelshape_check_tensor(r, role, name);
			if (rc != ST_OK) return rc;
		}
	}
	rc = modelshape_check_factors(r);
	return rc == ST_OK ? modelshape_check_extra(r) : rc;
}

/* ---- what others call ---- */

int modelshape_read(struct modelshape *out, const struct gguf *g, struct errbuf *err)
{
	struct modelshape_reading r = {.s = out, .g = g, .err = err};
	int rc;

	*out = (struct modelshape){0};
	rc = modelshape_read_arch(&r);
	if (rc == ST_OK) rc = modelshape_read_sizes(&r);
	if (rc == ST_OK) rc = modelshape_check_tensors(&r);
	return rc;
}

const struct gguf_tensor *modelshape_tensor(const struct modelshape *s, const struct gguf *g, enum modelshape_role role,
					    uint32_t layer)
{
	char name[MODELSHAPE_NAME_MAX];

	CHECK(role < MODELSHAPE_ROLE_COUNT && (layer < s->n_layers || modelshape_rows[role].scope == MODELSHAPE_MODEL));
	if (role == MODELSHAPE_OUTPUT && s->tied) role = MODELSHAPE_EMBED;
	modelshape_name(role, layer, name);
	return gguf_find_tensor(g, name);
}

double modelshape_rope_freq(const struct modelshape *s, uint32_t i)
{
	double freq;

	CHECK(i < s->rope_dims / 2);
	freq = pow((double)s->rope_base, -2.0 * i / s->rope_dims) / (double)s->rope_linear;
	return s->rope_factors ? freq / (double)modelshape_factor(s->rope_factors, i) : freq;
}

uint64_t modelshape_kv_token_bytes(const struct modelshape *s, enum ggtype type)
{
	uint64_t row = (uint64_t)s->kv_heads * s->head_dim;

	return 2 * s->n_layers * row * ggtype_row_bytes(type, 1);
}
