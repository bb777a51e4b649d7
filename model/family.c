/* family.c - the table of families, and how one reads a checkpoint's settings. See family.h. */
#include "model/family_table.h"

#include "common/mem.h"
#include "common/quote.h"

#include <stdio.h>
#include <string.h>

static const struct family *const family_table[] = {
#define FAMILY_AS_ENTRY(name) &family_##name,
	FAMILIES(FAMILY_AS_ENTRY)
#undef FAMILY_AS_ENTRY
};

static const struct family *family_by_word(const char *word, size_t len, bool gguf)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(family_table); i++)
		if (len > 0 &&
		    family_words_have(gguf ? family_table[i]->archs : family_table[i]->model_types, word, len, NULL))
			return family_table[i];
	return NULL;
}

const char *family_known(bool gguf)
{
	static char texts[2][512]; /* filled alike by whoever comes first */
	char text[512];
	size_t i, k, at = 0;

	for (i = 0; i < ARRAY_LEN(family_table); i++) {
		const char *words = gguf ? family_table[i]->archs : family_table[i]->model_types;

		if (*words && at > 0) at += (size_t)snprintf(text + at, sizeof(text) - at, ", ");
		for (k = 0; words[k] && at + 3 < sizeof(text); k++) {
			text[at++] = words[k] == '|' ? ',' : words[k];
			if (words[k] == '|') text[at++] = ' ';
		}
	}
	text[at] = 0;
	memcpy(texts[gguf], text, sizeof(text));
	return texts[gguf];
}

static void family_choose_arch(struct family_reading *r)
{
	struct gguf_str arch;

	r->rc = gguf_get_str(r->g, "general.architecture", &arch, r->err);
	if (r->rc != ST_OK) return;
	r->f = family_by_word(arch.s, arch.len, true);
	if (!r->f) {
		family_fail(r, ST_UNSUPPORTED,
			    "architecture \"%s\" (general.architecture) is not supported; supported: %s",
			    quote_short(arch.s, arch.len).text, family_known(true));
		return;
	}
	snprintf(r->arch, sizeof(r->arch), "%.*s", (int)arch.len, arch.s);
}

/* By the text model's own model_type, else by that of the whole. */
static void family_choose_type(struct family_reading *r)
{
	const json_t *inner = json_object_get(r->config, "model_type"), *outer = json_object_get(r->root, "model_type");
	const json_t *v = json_is_string(inner) ? inner : outer;
	const char *word;

	if (!v) {
		family_fail(r, ST_NOT_FOUND, "model_type is missing");
		return;
	}
	if (!json_is_string(v)) {
		family_fail(r, ST_INVALID, "model_type is not a string");
		return;
	}
	word = json_string_value(v);
	r->f = family_by_word(word, json_string_length(v), false);
	if (!r->f && json_is_string(outer))
		r->f = family_by_word(json_string_value(outer), json_string_length(outer), false);
	if (!r->f)
		family_fail(r, ST_UNSUPPORTED, "model_type \"%s\" is not a supported architecture; supported: %s",
			    quote_short(word, json_string_length(v)).text, family_known(false));
}

static void family_layers(struct family_reading *r)
{
	struct spec *s = r->s;
	uint32_t i, longest = s->context_len > r->model_len_max ? s->context_len : r->model_len_max;

	if (r->rc != ST_OK) return;
	s->layers = mem_array(struct spec_layer, s->n_layers);
	for (i = 0; i < s->n_layers; i++) {
		s->layers[i] = r->y;
		if (s->layers[i].n_experts) s->layers[i].ffn = 0;
		if (r->f->layer) r->f->layer(r, i, &s->layers[i]);
		if (s->layers[i].window >= longest) s->layers[i].window = 0; /* hides nothing */
	}
	if (r->y.n_experts == 0 && r->y.ffn == 0)
		family_fail(r, ST_NOT_FOUND, "%s%s is missing", r->g ? "key " : "", family_key(r, FAMILY_ffn).text);
}

void family_read(struct family_reading *r, const struct spec_opts *opts)
{
	family_config(r, opts);
	if (r->rc != ST_OK) return;
	if (r->g)
		family_choose_arch(r);
	else
		family_choose_type(r);
	if (r->rc != ST_OK) return;
	r->s->family = r->f->name;
	r->s->from_gguf = r->g != NULL;
	r->s->names = r->f;
	r->s->zero_centered_norms = r->f->norms_minus_one && !r->g;
	r->s->prefix = r->g ? "" : names_prefix(r->c);
	family_common(r);
	if (r->rc == ST_OK) r->f->fill(r);
	if (r->rc == ST_OK) family_quant(r);
	family_layers(r);
	family_rest(r);
}

struct family_reading family_naming(const struct spec *s, const struct ckpt *c)
{
	struct family_reading r = {.f = s->names, .c = c, .g = ckpt_gguf(c), .config = ckpt_config(c)};
	const json_t *text = json_object_get(r.config, "text_config");
	struct gguf_str arch;

	if (json_is_object(text)) r.config = text;
	if (r.g && gguf_get_str(r.g, "general.architecture", &arch, NULL) == ST_OK)
		snprintf(r.arch, sizeof(r.arch), "%.*s", (int)arch.len, arch.s);
	return r;
}

void family_release(struct family_reading *r)
{
	json_decref(r->root);
	free(r->layer_types);
	free(r->marks);
}
