/* family_rope.c - the settings of a rotation, out of rope_scaling, rope_parameters or GGUF keys, to the formulas of
 * rope.h.
 *
 * Folders: transformers' old spelling has rope_theta and a rope_scaling object, the new one a rope_parameters object
 * with everything, or one such object a layer type. GGUF: keys, and tensors for divisors of single pairs. */
#include "model/family_impl.h"
#include "model/rope.h"

#include "common/half.h"
#include "common/mem.h"
#include "common/quote.h"

#include <math.h>
#include <string.h>

/* A rotation while it is read. */
struct family_rope_reading {
	const json_t *o;           /* the object, or NULL */
	enum family_setting where; /* whose value it is, or part of */
	struct rope_params p;
	double *divisors; /* owned */
};

/* ---- folders ---- */

static const json_t *family_rope_object(struct family_reading *r, const struct family_rope *a,
					enum family_setting *where)
{
	const json_t *old = family_json(r, FAMILY_rope_scaling, JSON_OBJECT);
	const json_t *now = family_json(r, FAMILY_rope_parameters, JSON_OBJECT), *part;

	*where = FAMILY_rope_parameters;
	if (a->layer_type && now) {
		part = json_object_get(now, a->layer_type);
		if (json_is_object(part)) return part;
		if (json_object_get(now, "full_attention") || json_object_get(now, "sliding_attention")) return NULL;
	}
	*where = FAMILY_rope_scaling;
	if (old && !a->unscaled) return old;
	*where = FAMILY_rope_parameters;
	return old ? NULL : now;
}

static double family_rope_member(struct family_reading *r, const struct family_rope_reading *f, const char *name,
				 double min, double max, double fallback)
{
	return f->o ? family_member(r, f->o, f->where, name, min, max, fallback) : fallback;
}

/* Members of each kind beyond those that all have. */
#define FAMILY_ROPE_ALL                                                                                         \
	"rope_theta|rope_type|type|partial_rotary_factor|original_max_position_embeddings|mrope_section|mrope_" \
	"interleaved|finetuned"
static const struct {
	const char *words;
	enum rope_kind kind;
	const char *members;
} family_rope_kinds[] = {
	{"default|mrope", ROPE_DEFAULT, ""},
	/* Its base grows with sequences longer than max_position_embeddings, which is the longest that is served. */
	{"dynamic", ROPE_DEFAULT, "factor"},
	{"linear", ROPE_LINEAR, "factor"},
	{"llama3", ROPE_LLAMA3, "factor|low_freq_factor|high_freq_factor"},
	{"yarn", ROPE_YARN, "factor|attention_factor|beta_fast|beta_slow|mscale|mscale_all_dim|truncate|attn_factor"},
	{"longrope|su", ROPE_DIVIDED, "factor|attention_factor|short_factor|long_factor"},
};

/* Which of family_rope_kinds; "no" kind is the first. */
static size_t family_rope_kind(struct family_reading *r, const struct family_rope_reading *f)
{
	const json_t *v = f->o ? json_object_get(f->o, "rope_type") : NULL;
	const char *word;
	size_t i;

	if (f->o && (!v || json_is_null(v))) v = json_object_get(f->o, "type");
	if (!v || json_is_null(v)) return 0;
	if (!json_is_string(v)) {
		family_fail(r, ST_INVALID, "%s.rope_type is not a string", family_key(r, f->where).text);
		return 0;
	}
	word = json_string_value(v);
	/* The first Phi-3 files called theirs by two other names. */
	if (strcmp(r->f->name, "phi3") == 0 && strcmp(word, "yarn") == 0) word = "longrope";
	for (i = 0; i < ARRAY_LEN(family_rope_kinds); i++)
		if (family_words_have(family_rope_kinds[i].words, word, strlen(word), NULL)) return i;
	family_fail(r, ST_UNSUPPORTED,
		    "%s.rope_type \"%s\" is not supported; supported: default, dynamic, linear, llama3, yarn, longrope",
		    family_key(r, f->where).text, quote_short(word, strlen(word)).text);
	return 0;
}

static void family_rope_check_members(struct family_reading *r, const struct family_rope_reading *f, size_t kind)
{
	const json_t *v;
	const char *key;

	if (!f->o) return;
	json_object_foreach((json_t *)f->o, key, v)
	{
		if (json_is_null(v) || json_is_object(v) || family_words_have(FAMILY_ROPE_ALL, key, strlen(key), NULL))
			continue;
		if (family_words_have(family_rope_kinds[kind].members, key, strlen(key), NULL)) continue;
		if (family_rope_kinds[kind].kind == ROPE_DEFAULT && strcmp(key, "factor") == 0 &&
		    json_number_value(v) == 1)
			continue;
		family_fail(r, ST_UNSUPPORTED, "%s.%s is not a setting of the rope_type that is built",
			    family_key(r, f->where).text, quote_short(key, strlen(key)).text);
	}
}

static double family_rope_original(struct family_reading *r, const struct family_rope_reading *f)
{
	double outside = family_u32_or(r, FAMILY_rope_original, 0);

	if (outside) return outside;
	return family_rope_member(r, f, "original_max_position_embeddings", 1, SPEC_CONTEXT_MAX, r->s->context_len);
}

/* (dims / 2) numbers of a list. */
static double *family_rope_list(struct family_reading *r, const struct family_rope_reading *f, const char *name)
{
	const json_t *list = json_object_get(f->o, name), *v;
	double *out = mem_array(double, f->p.dims / 2);
	size_t i;

	if (!json_is_array(list) || json_array_size(list) != f->p.dims / 2) {
		family_fail(r, list ? ST_INVALID : ST_NOT_FOUND,
			    "%s.%s has %zu entries; expected %u, half of the rotated part of a head",
			    family_key(r, f->where).text, name, json_array_size(list), f->p.dims / 2);
		return out;
	}
	json_array_foreach(list, i, v)
	{
		out[i] = json_number_value(v);
		if (!(out[i] >= 1e-6 && out[i] <= 1e6))
			family_fail(r, ST_INVALID, "%s.%s[%zu] is %g; expected 1e-06 to 1e+06",
				    family_key(r, f->where).text, name, i, out[i]);
	}
	return out;
}

static void family_rope_yarn_json(struct family_reading *r, struct family_rope_reading *f, const struct family_rope *a)
{
	double mscale = family_rope_member(r, f, "mscale", 0, 1e3, 0),
	       all = family_rope_member(r, f, "mscale_all_dim", 0, 1e3, 0);
	struct rope_params *p = &f->p;
	double usual;

	p->original = family_rope_original(r, f);
	p->factor = family_rope_member(r, f, "factor", 1e-6, 1e6, r->s->context_len / p->original);
	p->beta_fast = family_rope_member(r, f, "beta_fast", 1e-6, 1e6, 32);
	p->beta_slow = family_rope_member(r, f, "beta_slow", 1e-6, 1e6, 1);
	p->truncate = family_rope_member(r, f, "truncate", 0, 1, !a->no_truncate) != 0;
	usual = mscale != 0 && all != 0 ? rope_yarn_mscale(p->factor, mscale) / rope_yarn_mscale(p->factor, all)
					: rope_yarn_mscale(p->factor, 1);
	/* vLLM's factor on top of the formula's: DeepSeek-R1-0528-Qwen3-8B takes it back. */
	usual *= family_rope_member(r, f, "attn_factor", 1e-6, 1e6, 1);
	p->mscale = family_rope_member(r, f, "attention_factor", 1e-6, 1e6, usual);
	r->mla_mscale = rope_yarn_mscale(p->factor, all);
}

/* As vLLM: the long divisors for all positions when more positions than the original ones shall be served. */
static void family_rope_long_json(struct family_reading *r, struct family_rope_reading *f)
{
	double original = family_rope_original(r, f), usual;
	uint32_t len = r->model_len_max ? r->model_len_max : r->s->context_len;
	double *other;

	f->divisors = family_rope_list(r, f, len > original ? "long_factor" : "short_factor");
	other = family_rope_list(r, f, len > original ? "short_factor" : "long_factor");
	free(other);
	f->p.divisors = f->divisors;
	f->p.factor = family_rope_member(r, f, "factor", 1e-6, 1e6, r->s->context_len / original);
	usual = rope_long_mscale(f->p.factor, original);
	f->p.mscale = family_rope_member(r, f, "attention_factor", 1e-6, 1e6, usual);
}

static void family_rope_json(struct family_reading *r, struct family_rope_reading *f, const struct family_rope *a)
{
	size_t kind = family_rope_kind(r, f);
	struct rope_params *p = &f->p;

	family_rope_check_members(r, f, kind);
	family_given(r, FAMILY_rope_original); /* Phi-3 files have it without a scaling too */
	p->kind = family_rope_kinds[kind].kind;
	switch (p->kind) {
	case ROPE_DEFAULT:
		break;
	case ROPE_LINEAR:
		p->factor = family_rope_member(r, f, "factor", 1e-6, 1e6, NAN);
		break;
	case ROPE_LLAMA3:
		p->original = family_rope_original(r, f);
		p->factor = family_rope_member(r, f, "factor", 1e-6, 1e6, NAN);
		p->low_freq = family_rope_member(r, f, "low_freq_factor", 1e-6, 1e6, NAN);
		p->high_freq = family_rope_member(r, f, "high_freq_factor", 1e-6, 1e6, NAN);
		if (r->rc == ST_OK && p->low_freq >= p->high_freq)
			family_fail(r, ST_INVALID, "%s.low_freq_factor %g is not below high_freq_factor %g",
				    family_key(r, f->where).text, p->low_freq, p->high_freq);
		break;
	case ROPE_YARN:
		family_rope_yarn_json(r, f, a);
		break;
	case ROPE_DIVIDED:
		family_rope_long_json(r, f);
		break;
	}
}

/* ---- GGUF ---- */

/* Divisors in a tensor of the file; NULL without it. */
static double *family_rope_tensor(struct family_reading *r, const char *name, uint32_t n)
{
	const struct ckpt_tensor *t = ckpt_find(r->c, name);
	double *out;
	uint32_t i;
	float v;

	if (!t || r->rc != ST_OK) return NULL;
	if (t->type != GGTYPE_F32 || t->n_dims != 1 || t->dims[0] != n) {
		if (t->type != GGTYPE_F32)
			family_fail(r, ST_UNSUPPORTED, "tensor %s has the type %s; supported: F32", name,
				    ckpt_type_name(t->type));
		else
			family_fail(r, ST_INVALID, "tensor %s has the shape [%llu]; expected [%u]", name,
				    (unsigned long long)t->dims[0], n);
		return NULL;
	}
	out = mem_array(double, n);
	for (i = 0; i < n; i++) {
		memcpy(&v, t->data + (size_t)i * sizeof(v), sizeof(v));
		out[i] = (double)v;
		if (!(v >= 1e-6f && v <= 1e6f))
			family_fail(r, ST_INVALID, "tensor %s: value %u is %g; expected 1e-06 to 1e+06", name, i,
				    out[i]);
	}
	return out;
}

static void family_rope_yarn_keys(struct family_reading *r, struct family_rope_reading *f, const struct family_rope *a)
{
	bool has_log_mul = family_given(r, FAMILY_rope_log_mul);
	double log_mul = family_f64_or(r, FAMILY_rope_log_mul, 0); /* 0.1 * mscale_all_dim, as converters write it */

	f->p.original = family_u32_or(r, FAMILY_rope_original, r->s->context_len);
	f->p.beta_fast = family_f64_or(r, FAMILY_rope_beta_fast, 32);
	f->p.beta_slow = family_f64_or(r, FAMILY_rope_beta_slow, 1);
	f->p.truncate = !a->no_truncate;
	if (!has_log_mul) f->p.mscale *= rope_yarn_mscale(f->p.factor, 1);
	r->mla_mscale = f->p.factor > 1 ? 1 + log_mul * log(f->p.factor) : 1;
}

static void family_rope_long_tensors(struct family_reading *r, struct family_rope_reading *f)
{
	uint32_t original = family_u32_or(r, FAMILY_rope_original, r->s->context_len);
	uint32_t len = r->model_len_max ? r->model_len_max : r->s->context_len;
	double *both[2] = {family_rope_tensor(r, "rope_factors_short.weight", f->p.dims / 2),
			   family_rope_tensor(r, "rope_factors_long.weight", f->p.dims / 2)};

	f->divisors = both[len > original];
	free(both[len <= original]);
	if (!f->divisors) return;
	f->p.kind = ROPE_DIVIDED;
	f->p.divisors = f->divisors;
}

/* "linear" divides positions; "none" and no key at all do nothing; a factor without a kind is linear, as converters
 * once wrote. */
static void family_rope_keys(struct family_reading *r, struct family_rope_reading *f, const struct family_rope *a)
{
	uint32_t kind = family_word(r, FAMILY_rope_kind, "linear|none|yarn|longrope");
	double factor = family_f64_or(r, FAMILY_rope_factor, 0);

	f->p.mscale = family_f64_or(r, FAMILY_rope_attention, 1);
	family_given(r, FAMILY_rope_original); /* written without a scaling too */
	if (kind == 3 || ckpt_find(r->c, "rope_factors_long.weight")) {
		family_rope_long_tensors(r, f);
		return;
	}
	f->divisors = family_rope_tensor(r, "rope_freqs.weight", f->p.dims / 2);
	if (f->divisors) {
		f->p.kind = ROPE_DIVIDED;
		f->p.divisors = f->divisors;
	}
	if (kind == 1 || factor == 0 || a->unscaled) return; /* 0: converters write it for "no scaling" */
	if (factor < 1e-6) {
		family_fail(r, ST_INVALID, "key %s is %g; expected 0 (none) or 1e-06 to 1e+06",
			    family_key(r, FAMILY_rope_factor).text, factor);
		return;
	}
	f->p.factor = factor;
	if (kind == 2) {
		f->p.kind = ROPE_YARN;
		family_rope_yarn_keys(r, f, a);
	} else if (f->divisors) {
		uint32_t i;

		for (i = 0; i < f->p.dims / 2; i++) f->divisors[i] *= factor;
	} else {
		f->p.kind = ROPE_LINEAR;
	}
}

/* ---- both ---- */

/* Rotated elements of a head. */
static uint32_t family_rope_dims(struct family_reading *r, const struct family_rope_reading *f,
				 const struct family_rope *a)
{
	uint32_t dims = a->dims ? a->dims : r->y.k_dim;
	double part;

	if (r->g) {
		dims = family_u32_or(r, FAMILY_rope_dims, dims);
		if (r->rc == ST_OK && dims > r->y.k_dim)
			family_fail(r, ST_INVALID, "key %s is %u; expected 1 to %u",
				    family_key(r, FAMILY_rope_dims).text, dims, r->y.k_dim);
	} else if (!a->dims) {
		part = family_f64_or(r, FAMILY_rope_part, a->part != 0 ? a->part : 1);
		part = family_rope_member(r, f, "partial_rotary_factor", 0, 1, part);
		if (r->rc == ST_OK && part != 1 && a->part == 0)
			family_fail(r, ST_UNSUPPORTED, "%s is %g; a whole head is rotated in the family %s",
				    family_key(r, FAMILY_rope_part).text, part, r->f->name);
		dims = (uint32_t)(dims * part);
	}
	if (r->rc == ST_OK && (dims % 2 || dims == 0))
		family_fail(r, ST_INVALID, "%s%s is %u; expected an even number of 2 or more",
			    r->g ? "" : "the rotated part of a head by ",
			    family_key(r, r->g || a->dims ? FAMILY_rope_dims : FAMILY_rope_part).text, dims);
	return r->rc == ST_OK ? dims : 2;
}

/* vLLM's rule for the longest context: config.json's max_position_embeddings is the trained one when it is scaled
 * linearly or by yarn. */
static void family_rope_stretch(struct family_reading *r, const struct rope_params *p)
{
	double len = r->s->context_len;

	if (r->g || p->factor <= 1) return;
	if (p->kind == ROPE_YARN) len = p->original * p->factor;
	if (p->kind == ROPE_LINEAR) len *= p->factor;
	r->s->context_len = len < SPEC_CONTEXT_MAX ? (uint32_t)len : SPEC_CONTEXT_MAX;
}

int32_t family_rope_add(struct family_reading *r, const struct family_rope *a)
{
	struct family_rope_reading f = {.o = NULL};
	double base = a->base_fallback != 0 ? a->base_fallback : 10000;

	if (!r->g) f.o = family_rope_object(r, a, &f.where);
	base = family_f64_or(r, a->base != FAMILY_n_layers ? a->base : FAMILY_rope_base, base);
	base = family_rope_member(r, &f, "rope_theta", 1, 1e15, base);
	f.p = (struct rope_params){.base = base, .neox = a->neox, .mscale = 1, .factor = 1};
	f.p.dims = family_rope_dims(r, &f, a);
	if (r->g)
		family_rope_keys(r, &f, a);
	else
		family_rope_json(r, &f, a);
	CHECK(r->s->n_ropes < SPEC_ROPES_MAX);
	if (r->rc == ST_OK) rope_fill(&r->s->ropes[r->s->n_ropes++], &f.p);
	if (r->rc == ST_OK && !a->layer_type) family_rope_stretch(r, &f.p);
	free(f.divisors);
	return (int32_t)r->s->n_ropes - 1;
}
