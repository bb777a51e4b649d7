/* names_find.c - wsrc_find(): a role's tensor by its names, which of its rows it is, how it is coded; all of it
 * checked.
 *
 * The good path: the first of the role's names that the checkpoint has (names_locate), the place of the rows by the
 * row's cut (names_place), then the tensor's and its companions' shapes and types (names_check). */
#include "model/wsrc.h"

#include "model/family_impl.h"
#include "model/names.h"

#include "common/quote.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct names_finding {
	const struct spec *s;
	const struct ckpt *c;
	enum spec_role role;
	uint32_t layer, ix;
	struct errbuf *err;
	const struct names_row *row;
	struct names_text name; /* of w->t */
	uint64_t stack;         /* how many the tensor holds, each of tensor_rows */
	struct wsrc *w;
};

#define FAIL(f, rc, fmt, ...) err_set((f)->err, (rc), "%s: " fmt, ckpt_shown_path((f)->c), __VA_ARGS__)

/* ---- which tensor ---- */

/* `name` with its end replaced; false when it has another one. */
static bool names_swap_end(const struct names_text *name, const char *from, const char *to, struct names_text *out)
{
	size_t len = strlen(name->text), n = strlen(from);

	if (len < n || strcmp(name->text + len - n, from) != 0) return false;
	snprintf(out->text, sizeof(out->text), "%.*s%s", (int)(len - n), name->text, to);
	return true;
}

/* Where the row's name leads: the tensor itself, or codes in its place. */
static bool names_locate_one(struct names_finding *f)
{
	struct names_text other = f->name;
	struct wsrc *w = f->w;

	w->code = WSRC_PLAIN;
	if (f->row->cut >= NAMES_CODES) {
		snprintf(other.text, sizeof(other.text), "%.150s_blocks", f->name.text);
		w->code = WSRC_MXFP4;
	}
	w->t = ckpt_find(f->c, other.text);
	if (!w->t && w->code == WSRC_PLAIN && !f->s->from_gguf &&
	    names_swap_end(&f->name, ".weight", ".qweight", &other)) {
		w->t = ckpt_find(f->c, other.text);
		w->code = f->s->quant.kind == SPEC_QUANT_AWQ ? WSRC_AWQ : WSRC_GPTQ;
	}
	if (!w->t) return false;
	if (w->code == WSRC_PLAIN && w->t->type == GGTYPE_F8_E4M3) w->code = WSRC_FP8;
	f->name = other;
	return true;
}

static int names_locate(struct names_finding *f)
{
	struct names_walk walk = {0};
	struct names_text first = {{0}};

	while ((f->row = names_next(f->s, f->role, &walk)) != NULL) {
		f->name = names_spell(f->s, f->row, f->layer, f->ix);
		if (!first.text[0]) first = f->name;
		if (names_locate_one(f)) return ST_OK;
	}
	if (!first.text[0])
		return FAIL(f, ST_UNSUPPORTED, "the family %s has no name for the tensor %s", f->s->family,
			    spec_role_name(f->role));
	if (spec_role_scope(f->role) == SPEC_LAYER)
		return FAIL(f, ST_NOT_FOUND, "tensor %s is missing (%s is %u)", first.text,
			    names_setting(f->s, f->c, "n_layers").text, f->s->n_layers);
	return FAIL(f, ST_NOT_FOUND, "tensor %s is missing%s", first.text,
		    f->role == SPEC_OUTPUT && !f->s->from_gguf ? " (tie_word_embeddings is false)" : "");
}

/* ---- where in it ---- */

static void names_piece(struct wsrc *w, uint64_t rows, uint64_t first, uint64_t run, uint64_t step)
{
	w->pieces[w->n_pieces++] = (struct wsrc_piece){(uint32_t)rows, first, run, step};
}

/* Rows of a tensor that has rows of several roles one after the other. */
static void names_part(struct wsrc *w, uint64_t first, uint64_t all)
{
	w->tensor_rows = all;
	names_piece(w, w->rows, first, w->rows, w->rows);
}

/* The tensor holds `cols` rows of `width` columns for each; rows of the weight are its columns first, first + step, ...
 */
static void names_turned(struct names_finding *f, uint64_t first, uint64_t step)
{
	struct wsrc *w = f->w;

	if (spec_role_form(f->role) == SPEC_VECS) { /* biases: a row of the tensor, every step-th value */
		w->rows = w->cols;
		w->cols = 1;
	}
	w->transposed = true;
	w->tensor_rows = w->cols;
	w->tensor_cols = w->rows * step;
	w->at = f->ix * w->tensor_rows;
	names_piece(w, w->rows, first, step == 1 ? w->rows : 1, step == 1 ? w->rows : step);
}

static void names_place_qkv(struct names_finding *f, const struct spec_layer *y)
{
	uint64_t q = (uint64_t)y->heads * y->k_dim, k = (uint64_t)y->kv_heads * y->k_dim,
		 v = (uint64_t)y->kv_heads * y->v_dim;
	bool is_k = f->role == SPEC_K || f->role == SPEC_K_BIAS, is_v = f->role == SPEC_V || f->role == SPEC_V_BIAS;

	names_part(f->w, is_k ? q : is_v ? q + k : 0, q + k + v);
}

static void names_place_delta(struct names_finding *f, const struct spec_layer *y)
{
	uint64_t r = y->dv_heads / y->dk_heads, v = r * y->dv_dim, group = 2 * (uint64_t)y->dk_dim + 2 * v;
	uint64_t k_rows = (uint64_t)y->dk_heads * y->dk_dim, v_rows = (uint64_t)y->dv_heads * y->dv_dim;
	struct wsrc *w = f->w;

	switch (f->row->cut) {
	case NAMES_QKVZ:
		names_piece(w, k_rows, 0, y->dk_dim, group);
		names_piece(w, k_rows, y->dk_dim, y->dk_dim, group);
		names_piece(w, v_rows, 2 * (uint64_t)y->dk_dim, v, group);
		w->tensor_rows = y->dk_heads * group;
		break;
	case NAMES_QKVZ_Z:
		names_piece(w, v_rows, 2 * (uint64_t)y->dk_dim + v, v, group);
		w->tensor_rows = y->dk_heads * group;
		break;
	default: /* NAMES_BA, NAMES_BA_A */
		names_piece(w, y->dv_heads, f->row->cut == NAMES_BA_A ? r : 0, r, 2 * r);
		w->tensor_rows = 2 * (uint64_t)y->dv_heads;
	}
}

/* kv_b_proj has for each head nope_dim rows for keys and v_dim for values. */
static void names_place_kv_b(struct names_finding *f, const struct spec_layer *y)
{
	uint64_t both = y->nope_dim + y->v_dim;
	struct wsrc *w = f->w;

	w->transposed = f->row->cut == NAMES_KV_B;
	w->at = f->ix * both + (w->transposed ? 0 : y->nope_dim);
	w->tensor_rows = w->code == WSRC_GPTQ || w->code == WSRC_AWQ ? y->heads * both
			 : w->transposed                             ? y->nope_dim
								     : y->v_dim;
	w->tensor_cols = y->kv_lora;
	names_piece(w, w->rows, 0, w->rows, w->rows);
}

static void names_place(struct names_finding *f, const struct spec_layer *y)
{
	struct spec_shape shape = spec_role_shape(f->s, f->role, f->layer);
	enum spec_form form = spec_role_form(f->role);
	struct wsrc *w = f->w;

	w->rows = shape.rows;
	w->cols = shape.cols;
	w->tensor_cols = w->cols;
	f->stack = form == SPEC_VECS || (form == SPEC_EACH && !names_is_each(f->row)) ? shape.n : 1;
	switch (f->row->cut) {
	case NAMES_WHOLE:
	case NAMES_STACK:
	case NAMES_CODES:
		names_part(w, 0, w->rows);
		break;
	case NAMES_LOW:
	case NAMES_STACK_LOW:
		names_part(w, 0, 2 * (uint64_t)w->rows);
		break;
	case NAMES_HIGH:
	case NAMES_STACK_HIGH:
		names_part(w, w->rows, 2 * (uint64_t)w->rows);
		break;
	case NAMES_QKV:
		names_place_qkv(f, y);
		break;
	case NAMES_BESIDE:
	case NAMES_BESIDE_2:
		w->tensor_rows = 2 * (uint64_t)w->rows;
		names_piece(w, w->rows, f->row->cut == NAMES_BESIDE_2 ? y->k_dim : 0, y->k_dim, 2 * (uint64_t)y->k_dim);
		break;
	case NAMES_QKVZ:
	case NAMES_QKVZ_Z:
	case NAMES_BA:
	case NAMES_BA_A:
		names_place_delta(f, y);
		break;
	case NAMES_KV_B:
	case NAMES_KV_B_V:
		names_place_kv_b(f, y);
		return;
	case NAMES_TURNED:
		names_turned(f, 0, 1);
		return;
	case NAMES_EVEN:
	case NAMES_ODD:
		names_turned(f, f->row->cut == NAMES_ODD, 2);
		return;
	case NAMES_CODES_EVEN:
	case NAMES_CODES_ODD:
		w->tensor_rows = 2 * (uint64_t)w->rows;
		names_piece(w, w->rows, f->row->cut == NAMES_CODES_ODD, 1, 2);
		break;
	}
	if (f->stack > 1) w->at = f->ix * w->tensor_rows;
}

/* ---- is it so ---- */

/* Sizes of one of several: 1 counts for nothing, so (n, 1, width) is (n, width). */
struct names_dims {
	uint64_t d[CKPT_DIMS_MAX];
	uint32_t n;
};

static struct names_dims names_dims_of(const uint64_t *d, uint32_t n)
{
	struct names_dims out = {.n = 0};
	uint32_t i;

	for (i = 0; i < n && out.n < CKPT_DIMS_MAX; i++)
		if (d[i] != 1) out.d[out.n++] = d[i];
	return out;
}

/* GGUF's own order has the innermost first, and people see that elsewhere. */
static void names_dims_text(const uint64_t *d, uint32_t n, bool turn, char out[160])
{
	size_t at = (size_t)snprintf(out, 160, "[");
	uint32_t i;

	for (i = 0; i < n && at < 120; i++)
		at += (size_t)snprintf(out + at, 160 - at, "%s%" PRIu64, i ? ", " : "", d[turn ? n - 1 - i : i]);
	snprintf(out + at, 160 - at, "]");
}

static int names_check_shape(struct names_finding *f, const char *name, const struct ckpt_tensor *t,
			     const uint64_t *want, uint32_t n)
{
	struct names_dims found = names_dims_of(t->dims, t->n_dims), expected = names_dims_of(want, n);
	char found_text[160], want_text[160];

	if (found.n == expected.n && memcmp(found.d, expected.d, found.n * sizeof(found.d[0])) == 0) return ST_OK;
	names_dims_text(t->dims, t->n_dims, f->s->from_gguf, found_text);
	names_dims_text(want, n, f->s->from_gguf, want_text);
	return FAIL(f, ST_INVALID, "tensor %s has the shape %s; expected %s (%s)", name, found_text, want_text,
		    names_settings(f->s, f->c, f->role).text);
}

/* Types that a tensor may have; the rest of the list repeats the last one. */
struct names_types {
	uint32_t may[3];
};
static const struct names_types names_ints = {{GGTYPE_I32, GGTYPE_I32, GGTYPE_I32}},
				names_bytes = {{CKPT_U8, CKPT_U8, CKPT_U8}},
				names_floats = {{GGTYPE_F32, GGTYPE_F16, GGTYPE_BF16}},
				names_fp8_scales = {{GGTYPE_F32, GGTYPE_BF16, CKPT_F8_E8M0}};

static int names_check_type(struct names_finding *f, const char *name, const struct ckpt_tensor *t,
			    const struct names_types *want)
{
	const uint32_t *may = want->may;
	bool one = may[0] == may[1];

	if (t->type == may[0] || t->type == may[1] || t->type == may[2]) return ST_OK;
	return FAIL(f, ST_UNSUPPORTED, "tensor %s has the type %s; supported: %s%s%s%s%s", name,
		    ckpt_type_name(t->type), ckpt_type_name(may[0]), one ? "" : " ", one ? "" : ckpt_type_name(may[1]),
		    one ? "" : " ", one ? "" : ckpt_type_name(may[2]));
}

/* A tensor beside the codes: its name, shape and type. */
static int names_companion(struct names_finding *f, const struct ckpt_tensor **out, const char *from, const char *to,
			   const uint64_t *want, uint32_t n, const struct names_types *types)
{
	struct names_text name;
	int rc;

	CHECK(names_swap_end(&f->name, from, to, &name));
	*out = ckpt_find(f->c, name.text);
	if (!*out) return FAIL(f, ST_NOT_FOUND, "tensor %s is missing; %s needs it", name.text, f->name.text);
	rc = names_check_shape(f, name.text, *out, want, n);
	return rc == ST_OK ? names_check_type(f, name.text, *out, types) : rc;
}

static int names_check_plain(struct names_finding *f)
{
	bool is_vector = spec_role_form(f->role) == SPEC_VEC || spec_role_form(f->role) == SPEC_VECS;
	uint32_t type = f->w->t->type;

	if (type == GGTYPE_F32 || type == GGTYPE_F16 || type == GGTYPE_BF16) return ST_OK;
	if (is_vector)
		return FAIL(f, ST_UNSUPPORTED, "tensor %s has the type %s; supported: F32 F16 BF16", f->name.text,
			    ckpt_type_name(type));
	if (f->s->from_gguf && type < GGTYPE_OURS && spec_type_built((enum ggtype)type)) return ST_OK;
	return FAIL(f, ST_UNSUPPORTED, "tensor %s has the type %s, which is not supported; supported: %s", f->name.text,
		    ckpt_type_name(type), f->s->from_gguf ? spec_type_words() : "F32 F16 BF16");
}

static uint64_t names_ceil(uint64_t n, uint64_t d)
{
	return (n + d - 1) / d;
}

static int names_check_fp8(struct names_finding *f)
{
	const struct spec_quant *q = &f->s->quant;
	struct wsrc *w = f->w;
	uint64_t want[3], rows;

	if (q->kind != SPEC_QUANT_FP8)
		return FAIL(
			f, ST_UNSUPPORTED,
			"tensor %s has the type F8_E4M3, but config.json has no quantization_config of the method fp8",
			f->name.text);
	w->block_rows = q->block_rows;
	w->block_cols = q->block_cols;
	rows = f->row->cut == NAMES_KV_B || f->row->cut == NAMES_KV_B_V ? f->w->t->dims[0] : w->tensor_rows;
	if (f->stack > 1 && rows == w->tensor_rows && rows % w->block_rows)
		return FAIL(f, ST_UNSUPPORTED,
			    "tensor %s: a stack of matrices of %" PRIu64
			    " rows with scales for %u rows is not supported",
			    f->name.text, rows, w->block_rows);
	want[0] = rows == w->tensor_rows ? f->stack : 1;
	want[1] = names_ceil(rows, w->block_rows);
	want[2] = names_ceil(w->tensor_cols, w->block_cols);
	return names_companion(f, &w->scales, "", "_scale_inv", want + (want[0] == 1), want[0] == 1 ? 2 : 3,
			       &names_fp8_scales);
}

/* GPTQ: codes (cols / 8, rows). AWQ: (cols, rows / 8). Both: zeros (groups, rows / 8), scales (groups, rows). */
static int names_check_packed(struct names_finding *f)
{
	const struct spec_quant *q = &f->s->quant;
	struct wsrc *w = f->w;
	uint64_t groups, want[2];
	struct names_text name;
	int rc;

	if (q->kind != SPEC_QUANT_GPTQ && q->kind != SPEC_QUANT_AWQ)
		return FAIL(f, ST_UNSUPPORTED,
			    "tensor %s: config.json has no quantization_config of the method gptq or awq",
			    f->name.text);
	w->block_cols = q->block_cols ? q->block_cols : (uint32_t)w->tensor_cols;
	w->zeros_minus_one = q->kind == SPEC_QUANT_GPTQ && q->zeros_minus_one;
	groups = names_ceil(w->tensor_cols, w->block_cols);
	if (w->tensor_cols % 32 || w->tensor_rows % 8 || w->block_cols % 32 || w->tensor_cols % w->block_cols)
		return FAIL(f, ST_UNSUPPORTED,
			    "tensor %s: %" PRIu64 " x %" PRIu64
			    " values in groups of %u are not supported; expected groups of a multiple of 32",
			    f->name.text, w->tensor_rows, w->tensor_cols, w->block_cols);
	want[0] = q->kind == SPEC_QUANT_AWQ ? w->tensor_cols : w->tensor_cols / 8;
	want[1] = q->kind == SPEC_QUANT_AWQ ? w->tensor_rows / 8 : w->tensor_rows;
	rc = names_check_shape(f, f->name.text, w->t, want, 2);
	if (rc == ST_OK) rc = names_check_type(f, f->name.text, w->t, &names_ints);
	want[0] = groups;
	want[1] = w->tensor_rows / 8;
	if (rc == ST_OK) rc = names_companion(f, &w->zeros, ".qweight", ".qzeros", want, 2, &names_ints);
	want[1] = w->tensor_rows;
	if (rc == ST_OK) rc = names_companion(f, &w->scales, ".qweight", ".scales", want, 2, &names_floats);
	names_swap_end(&f->name, ".qweight", ".g_idx", &name);
	if (rc != ST_OK || !ckpt_find(f->c, name.text)) return rc;
	want[0] = w->tensor_cols;
	return names_companion(f, &w->order, ".qweight", ".g_idx", want, 1, &names_ints);
}

static int names_check_codes(struct names_finding *f)
{
	struct wsrc *w = f->w;
	uint64_t want[4] = {f->stack, w->tensor_rows, w->tensor_cols / 32, 16};
	int rc;

	if (w->tensor_cols % 32)
		return FAIL(f, ST_INVALID, "tensor %s: rows of %" PRIu64 " values are not a multiple of 32",
			    f->name.text, w->tensor_cols);
	rc = names_check_shape(f, f->name.text, w->t, want, 4);
	if (rc == ST_OK) rc = names_check_type(f, f->name.text, w->t, &names_bytes);
	if (rc == ST_OK) rc = names_companion(f, &w->scales, "_blocks", "_scales", want, 3, &names_bytes);
	return rc;
}

static int names_check(struct names_finding *f, const struct spec_layer *y)
{
	struct wsrc *w = f->w;
	uint64_t want[3] = {f->stack, w->tensor_rows, w->tensor_cols};
	bool one = f->stack == 1;
	int rc = ST_OK;

	if (f->row->cut == NAMES_KV_B || f->row->cut == NAMES_KV_B_V) {
		want[1] = (uint64_t)y->heads * (y->nope_dim + y->v_dim);
		one = true;
	}
	if (w->code == WSRC_PLAIN || w->code == WSRC_FP8) {
		/* A vector's one row is not shown. */
		one = one || w->tensor_rows == 1;
		if (w->tensor_rows == 1) want[1] = f->stack;
		rc = spec_role_form(f->role) == SPEC_VEC
			     ? names_check_shape(f, f->name.text, w->t, want + 2, 1)
			     : names_check_shape(f, f->name.text, w->t, want + one, one ? 2 : 3);
	}
	if (rc != ST_OK) return rc;
	switch (w->code) {
	case WSRC_PLAIN:
		return names_check_plain(f);
	case WSRC_FP8:
		return names_check_fp8(f);
	case WSRC_GPTQ:
	case WSRC_AWQ:
		return names_check_packed(f);
	case WSRC_MXFP4:
		return names_check_codes(f);
	}
	CHECK(!"a code");
}

static enum wsrc_map names_map(const struct spec *s, enum spec_role role)
{
	switch (role) {
	case SPEC_OUTPUT_NORM:
	case SPEC_ATTN_NORM:
	case SPEC_ATTN_POST_NORM:
	case SPEC_Q_NORM:
	case SPEC_K_NORM:
	case SPEC_Q_A_NORM:
	case SPEC_KV_A_NORM:
	case SPEC_FFN_NORM:
	case SPEC_FFN_POST_NORM:
		return s->zero_centered_norms ? WSRC_PLUS_ONE : WSRC_AS_IS;
	case SPEC_D_NEG_A:
		return s->from_gguf ? WSRC_AS_IS : WSRC_NEG_EXP; /* converters have done it */
	default:
		return WSRC_AS_IS;
	}
}

int wsrc_find(struct wsrc *out, const struct spec *s, const struct ckpt *c, enum spec_role role, uint32_t layer,
	      uint32_t ix, struct errbuf *err)
{
	struct names_finding f = {.s = s, .c = c, .role = role, .layer = layer, .ix = ix, .err = err, .w = out};
	const struct spec_layer *y = &s->layers[spec_role_scope(role) == SPEC_LAYER ? layer : 0];
	int rc;

	*out = (struct wsrc){0};
	CHECK(spec_has(s, role, layer) && ix < spec_role_shape(s, role, layer).n);
	rc = names_locate(&f);
	if (rc != ST_OK) return rc;
	names_place(&f, y);
	rc = names_check(&f, y);
	if (rc != ST_OK) return rc;
	out->map = names_map(s, role);
	wsrc_settle(out);
	return ST_OK;
}
