/* spec_read.c - spec_read(): the family's reading of the settings, then every tensor accounted for.
 *
 * Each role that the description names is found and checked by wsrc_find(), which is what the loader will ask again;
 * what is left over must be on the list of tensors that carry nothing. */
#include "model/family_table.h"
#include "model/wsrc.h"

#include "common/mem.h"
#include "common/quote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spec_reading {
	struct family_reading *r;
	struct spec *s;
	const struct ckpt *c;
	struct errbuf *err;
	const struct ckpt_tensor **used; /* with repetitions; owned */
	size_t n_used, cap;
	uint32_t mtp_layers;
};

static void spec_use(struct spec_reading *x, const struct ckpt_tensor *t)
{
	if (!t || (x->n_used > 0 && x->used[x->n_used - 1] == t)) return;
	mem_reserve(x->used, x->cap, x->n_used + 1);
	x->used[x->n_used++] = t;
}

static int spec_check_one(struct spec_reading *x, enum spec_role role, uint32_t layer, uint32_t ix)
{
	struct wsrc w;
	int rc = wsrc_find(&w, x->s, x->c, role, layer, ix, x->err);

	if (rc != ST_OK) return rc;
	spec_use(x, w.scales);
	spec_use(x, w.zeros);
	spec_use(x, w.order);
	spec_use(x, w.t);
	return ST_OK;
}

/* Of vectors in one tensor the first and the last are enough. */
static int spec_check_role(struct spec_reading *x, enum spec_role role, uint32_t layer)
{
	struct spec_shape shape = spec_role_shape(x->s, role, layer);
	uint32_t ix, step = spec_role_form(role) == SPEC_VECS && shape.n > 1 ? shape.n - 1 : 1;
	int rc = ST_OK;

	x->s->n_params += (uint64_t)shape.n * shape.rows * shape.cols;
	for (ix = 0; rc == ST_OK && ix < shape.n; ix += step) rc = spec_check_one(x, role, layer, ix);
	return rc;
}

static int spec_check_roles(struct spec_reading *x)
{
	enum spec_role role;
	uint32_t layer;
	int rc;

	for (layer = 0; layer < x->s->n_layers; layer++) {
		for (role = 0; role < SPEC_ROLE_COUNT; role++) {
			if (layer > 0 && spec_role_scope(role) == SPEC_MODEL) continue;
			if (!spec_has(x->s, role, layer)) continue;
			rc = spec_check_role(x, role, layer);
			if (rc != ST_OK) return rc;
		}
	}
	return ST_OK;
}

static int spec_compare(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (const struct ckpt_tensor *const *)a,
		  y = (uintptr_t) * (const struct ckpt_tensor *const *)b;

	return x < y ? -1 : x > y;
}

/* Divisors of a rotation are read with the settings. */
static void spec_use_ropes(struct spec_reading *x)
{
	static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight",
					    "rope_factors_short.weight"};
	size_t i;

	for (i = 0; x->s->from_gguf && i < ARRAY_LEN(names); i++) spec_use(x, ckpt_find(x->c, names[i]));
}

static int spec_check_rest(struct spec_reading *x)
{
	size_t i;

	spec_use_ropes(x);
	qsort(x->used, x->n_used, sizeof(struct ckpt_tensor *), spec_compare);
	for (i = 0; i < ckpt_tensor_count(x->c); i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(x->c, i);

		if (bsearch(&t, x->used, x->n_used, sizeof(struct ckpt_tensor *), spec_compare)) {
			x->s->weight_bytes += t->bytes;
			continue;
		}
		if (names_harmless(x->s, t, x->mtp_layers)) continue;
		return err_set(x->err, ST_UNSUPPORTED,
			       "%s: tensor %s is not one of a %s model with %u layers (%s); leaving it out would give "
			       "wrong answers",
			       ckpt_shown_path(x->c), quote_short(t->name.s, t->name.len).text, x->s->family,
			       x->s->n_layers, names_setting(x->s, x->c, "n_layers").text);
	}
	return ST_OK;
}

/* ---- what people call it ---- */

static const char *spec_code_name(const struct ckpt_tensor *t, const struct spec_quant *q)
{
	if (t->type != GGTYPE_I32 && t->type != CKPT_U8) return ckpt_type_name(t->type);
	switch (q->kind) {
	case SPEC_QUANT_GPTQ:
		return "GPTQ";
	case SPEC_QUANT_AWQ:
		return "AWQ";
	case SPEC_QUANT_MXFP4:
		return "MXFP4";
	case SPEC_QUANT_FP8:
	case SPEC_QUANT_NONE:
		break;
	}
	return ckpt_type_name(t->type);
}

/* The type that holds more than half of the bytes. */
static const char *spec_file_types(const struct spec_reading *x)
{
	const struct ckpt_tensor *most = NULL;
	uint64_t bytes[2] = {0, 0};
	int64_t balance = 0;
	size_t i;

	/* Boyer and Moore: if there is a majority, it is what is left over. */
	for (i = 0; i < x->n_used; i++) {
		const struct ckpt_tensor *t = x->used[i];

		if (i > 0 && t == x->used[i - 1]) continue;
		if (balance == 0) most = t;
		balance += most->type == t->type ? (int64_t)t->bytes : -(int64_t)t->bytes;
		if (balance < 0) {
			most = t;
			balance = -balance;
		}
	}
	for (i = 0; i < x->n_used; i++)
		if (i == 0 || x->used[i] != x->used[i - 1]) bytes[x->used[i]->type == most->type] += x->used[i]->bytes;
	return most && bytes[1] > bytes[0] ? spec_code_name(most, &x->s->quant) : "mixed";
}

int spec_read(struct spec *out, const struct ckpt *c, const struct spec_opts *opts, struct errbuf *err)
{
	struct family_reading r = {.s = out, .c = c, .err = err};
	struct spec_reading x = {.r = &r, .s = out, .c = c, .err = err};
	int rc;

	*out = (struct spec){0};
	family_read(&r, opts);
	rc = r.rc;
	x.mtp_layers = r.mtp_layers;
	if (rc == ST_OK) rc = spec_check_roles(&x);
	if (rc == ST_OK) rc = spec_check_rest(&x);
	if (rc == ST_OK) out->file_types = spec_file_types(&x);
	free(x.used);
	family_release(&r);
	return rc;
}
