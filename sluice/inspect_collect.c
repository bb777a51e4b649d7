/* inspect_collect.c - what `sluice inspect` finds out about a checkpoint: sums over its tensors, kinds of layers, and
 * what the tokenizer's files say of themselves. Reads no weights. */
#include "common/mem.h"
#include "model/foldertmpl.h"
#include "model/jsonplace.h"
#include "sluice/inspect_info.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLLECT_PATH_MAX 4352

/* ---- tensors ---- */

static struct inspect_type *collect_type(struct inspect_info *info, uint32_t type)
{
	for (size_t i = 0; i < info->n_types; i++)
		if (info->types[i].type == type) return &info->types[i];
	mem_reserve(info->types, info->cap_types, info->n_types + 1);
	info->types[info->n_types] = (struct inspect_type){.type = type};
	return &info->types[info->n_types++];
}

static int collect_compare_types(const void *a, const void *b)
{
	const struct inspect_type *x = a, *y = b;

	return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

static void collect_tensors(struct inspect_info *info)
{
	for (size_t i = 0; i < ckpt_tensor_count(info->c); i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(info->c, i);
		struct inspect_type *sum = collect_type(info, t->type);
		uint64_t n = 1;

		for (uint32_t d = 0; d < t->n_dims; d++) n *= t->dims[d];
		sum->tensors++;
		sum->params += n;
		sum->bytes += t->bytes;
		info->params += n;
		info->bytes += t->bytes;
	}
	if (info->n_types) qsort(info->types, info->n_types, sizeof(info->types[0]), collect_compare_types);
}

/* ---- layers ---- */

#define SAME(field) (a->field == b->field)

static bool collect_same_mixer(const struct spec_layer *a, const struct spec_layer *b)
{
	return SAME(mixer) && SAME(heads) && SAME(kv_heads) && SAME(k_dim) && SAME(v_dim) && SAME(rope) &&
	       SAME(window) && SAME(softcap) && SAME(scale) && SAME(qkv_bias) && SAME(o_bias) && SAME(qk_norm) &&
	       SAME(sinks) && SAME(out_gate) && SAME(q_lora) && SAME(kv_lora) && SAME(nope_dim) && SAME(dk_heads) &&
	       SAME(dv_heads) && SAME(dk_dim) && SAME(dv_dim) && SAME(conv_width);
}

static bool collect_same_ffn(const struct spec_layer *a, const struct spec_layer *b)
{
	return SAME(glu) && SAME(glu_limit) && SAME(ffn) && SAME(n_experts) && SAME(n_used) && SAME(expert_ffn) &&
	       SAME(n_groups) && SAME(groups_used) && SAME(router) && SAME(shared_ffn);
}

#undef SAME

static struct inspect_kind *
collect_kinds(const struct spec *s, bool (*same)(const struct spec_layer *a, const struct spec_layer *b), uint32_t *n)
{
	struct inspect_kind *kinds = mem_array(struct inspect_kind, s->n_layers);

	*n = 0;
	for (uint32_t i = 0; i < s->n_layers; i++) {
		uint32_t k = 0;

		while (k < *n && !same(kinds[k].y, &s->layers[i])) k++;
		if (k == *n) kinds[(*n)++] = (struct inspect_kind){&s->layers[i], 0};
		kinds[k].n_layers++;
	}
	return kinds;
}

/* ---- GGUF ---- */

static struct gguf_str collect_str(const struct gguf *g, const char *key)
{
	struct gguf_str s = {NULL, 0};

	return gguf_get_str(g, key, &s, NULL) == ST_OK ? s : (struct gguf_str){NULL, 0};
}

static uint64_t collect_array_len(const struct gguf *g, const char *key)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	return kv && kv->kind == GGUF_ARR ? kv->n : 0;
}

static void collect_gguf(struct inspect_info *info, const struct gguf *g)
{
	info->arch = collect_str(g, "general.architecture");
	info->name = collect_str(g, "general.name");
	info->tok.kind = collect_str(g, "tokenizer.ggml.model");
	info->tok.pre = collect_str(g, "tokenizer.ggml.pre");
	info->tok.chat_template = collect_str(g, "tokenizer.chat_template");
	info->tok.n_tokens = collect_array_len(g, "tokenizer.ggml.tokens");
	info->tok.n_merges = collect_array_len(g, "tokenizer.ggml.merges");
}

/* ---- folders ---- */

static struct gguf_str collect_json_str(const json_t *j)
{
	if (!json_is_string(j)) return (struct gguf_str){NULL, 0};
	return (struct gguf_str){json_string_value(j), json_string_length(j)};
}

static struct gguf_str collect_copy(struct gguf_str s, char **owned)
{
	if (!s.s) return s;
	*owned = mem_strndup(s.s, s.len);
	return (struct gguf_str){*owned, s.len};
}

/* "ByteLevel", or the types of a sequence: "Split, ByteLevel". */
static void collect_pre(struct inspect_tokenizer *t, const json_t *pre)
{
	const json_t *list = json_object_get(pre, "pretokenizers");
	struct strbuf text;

	t->pre = collect_copy(collect_json_str(json_object_get(pre, "type")), &t->owned_pre);
	if (!json_is_array(list)) return;
	strbuf_init(&text, KIB);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct gguf_str type = collect_json_str(json_object_get(json_array_get(list, i), "type"));

		if (!type.s) continue;
		if (text.len) strbuf_puts(&text, ", ");
		strbuf_append(&text, type.s, type.len);
	}
	free(t->owned_pre);
	t->pre.len = text.len;
	t->pre.s = t->owned_pre = strbuf_take(&text);
}

static int collect_tokenizer(struct inspect_tokenizer *t, const char *folder)
{
	char path[COLLECT_PATH_MAX];
	const json_t *model, *vocab;
	json_t *root = NULL;
	int rc;

	snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
	rc = jsonplace_load(&root, path, "tokenizer.json", &t->why);
	if (rc != ST_OK) return rc;
	model = json_object_get(root, "model");
	vocab = json_object_get(model, "vocab");
	t->kind = collect_copy(collect_json_str(json_object_get(model, "type")), &t->owned_kind);
	collect_pre(t, json_object_get(root, "pre_tokenizer"));
	t->n_tokens = json_is_object(vocab) ? json_object_size(vocab) : json_array_size(vocab);
	t->n_merges = json_array_size(json_object_get(model, "merges"));
	/* Added tokens may stand in the vocabulary too. */
	for (size_t i = 0; i < json_array_size(json_object_get(root, "added_tokens")); i++) {
		const json_t *text =
			json_object_get(json_array_get(json_object_get(root, "added_tokens"), i), "content");

		if (json_is_string(text) && json_is_object(vocab) && !json_object_get(vocab, json_string_value(text)))
			t->n_tokens++;
	}
	json_decref(root);
	return ST_OK;
}

static int collect_template(struct inspect_tokenizer *t, const char *folder)
{
	static const char name[] = "tokenizer_config.json";
	struct jsonplace config = {.file = name, .err = &t->why};
	char path[COLLECT_PATH_MAX];
	json_t *root = NULL;
	int rc;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	rc = jsonplace_load(&root, path, name, &t->why);
	config.value = root;
	if (rc == ST_OK || rc == ST_NOT_FOUND) rc = foldertmpl_read(&t->owned_template, folder, &config);
	json_decref(root);
	if (t->owned_template) t->chat_template = (struct gguf_str){t->owned_template, strlen(t->owned_template)};
	return rc;
}

static void collect_folder(struct inspect_info *info, const json_t *config)
{
	const json_t *archs = json_object_get(config, "architectures");
	int rc = collect_tokenizer(&info->tok, ckpt_path(info->c));

	info->arch = collect_json_str(json_array_get(archs, 0));
	if (!info->arch.s) info->arch = collect_json_str(json_object_get(config, "model_type"));
	info->name = collect_json_str(json_object_get(config, "_name_or_path"));
	if (info->name.len == 0) info->name.s = NULL;
	if (rc == ST_OK || rc == ST_NOT_FOUND) {
		info->tok.why.text[0] = 0;
		rc = collect_template(&info->tok, ckpt_path(info->c));
	}
	if (rc == ST_OK) info->tok.why.text[0] = 0;
}

/* ---- all of it ---- */

void inspect_collect(struct inspect_info *info, const struct ckpt *c, const struct spec_opts *opts, struct errbuf *err)
{
	info->c = c;
	collect_tensors(info);
	if (ckpt_gguf(c))
		collect_gguf(info, ckpt_gguf(c));
	else
		collect_folder(info, ckpt_config(c));
	info->spec_rc = spec_read(&info->spec, c, opts, err);
	info->reason = info->spec_rc == ST_OK ? "" : err->text;
	if (info->spec_rc != ST_OK) return;
	info->params = info->spec.n_params; /* codes hold several each */
	info->mixers = collect_kinds(&info->spec, collect_same_mixer, &info->n_mixers);
	info->ffns = collect_kinds(&info->spec, collect_same_ffn, &info->n_ffns);
}

void inspect_release(struct inspect_info *info)
{
	spec_release(&info->spec);
	free(info->types);
	free(info->mixers);
	free(info->ffns);
	free(info->tok.owned_kind);
	free(info->tok.owned_pre);
	free(info->tok.owned_template);
}

bool inspect_type_supported(const struct inspect_info *info, uint32_t type)
{
	return info->spec_rc == ST_OK || (ggtype_info(type) && spec_type_built((enum ggtype)type));
}

struct inspect_rope inspect_rope_of(const struct spec_rope *r)
{
	struct inspect_rope out = {.base = r->base, .linear = 1 / r->freqs[0]};

	for (uint32_t i = 0; i < r->dims / 2; i++) {
		double plain = pow(r->base, -2.0 * i / r->dims) * r->freqs[0];

		out.scaled = out.scaled || fabs(r->freqs[i] / plain - 1) > 1e-6;
	}
	return out;
}

void inspect_quant_text(const struct spec_quant *q, struct strbuf *out)
{
	switch (q->kind) {
	case SPEC_QUANT_NONE:
		strbuf_puts(out, "none");
		break;
	case SPEC_QUANT_FP8:
		strbuf_printf(out, "FP8 in blocks of %u x %u", q->block_rows, q->block_cols);
		break;
	case SPEC_QUANT_GPTQ:
		strbuf_printf(out, "GPTQ, 4 bits in groups of %u", q->block_cols);
		break;
	case SPEC_QUANT_AWQ:
		strbuf_printf(out, "AWQ, 4 bits in groups of %u", q->block_cols);
		break;
	case SPEC_QUANT_MXFP4:
		strbuf_puts(out, "MXFP4");
		break;
	}
}
