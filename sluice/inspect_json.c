/* inspect_json.c - `sluice inspect --json`: one object, for scripts. Ill-formed UTF-8 of the file becomes U+FFFD,
 * numbers that JSON does not have (NaN, infinities) become null. Integers above 2^63-1 are given as text, since jansson
 * has no more. */
#include "common/strbuf.h"
#include "common/utf8.h"
#include "sluice/inspect_info.h"
#include "sluice/inspect_memory.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *inspect_json_str(struct gguf_str s)
{
	struct strbuf b;
	size_t pos = 0, ok;
	json_t *j;
	bool cut;

	if (!s.s) return json_null();
	strbuf_init(&b, 4 * s.len + 16);
	while (pos < s.len) {
		ok = utf8_valid_len(s.s + pos, s.len - pos);
		strbuf_append(&b, s.s + pos, ok);
		pos += ok;
		if (pos == s.len) break;
		strbuf_puts(&b, UTF8_REPLACEMENT);
		pos += (size_t)-utf8_next(s.s + pos, s.len - pos, &cut);
	}
	j = json_stringn_nocheck(b.data ? b.data : "", b.len);
	strbuf_release(&b);
	return j;
}

static json_t *inspect_json_u64(uint64_t n)
{
	char text[24];

	if (n <= INT64_MAX) return json_integer((json_int_t)n);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return json_string(text);
}

static json_t *inspect_json_f64(double d)
{
	return isfinite(d) ? json_real(d) : json_null();
}

/* Small objects whose sizes the reader has bounded: running out of memory here aborts like everywhere (mem.h). */
static json_t *inspect_json_must(json_t *j)
{
	CHECK(j);
	return j;
}

static void inspect_json_set(json_t *object, const char *key, json_t *value)
{
	CHECK(json_object_set_new_nocheck(object, key, inspect_json_must(value)) == 0);
}

static void inspect_json_push(json_t *array, json_t *value)
{
	CHECK(json_array_append_new(array, inspect_json_must(value)) == 0);
}

/* ---- the parts ---- */

static json_t *inspect_json_rope(const struct spec *s, const struct spec_layer *y)
{
	json_t *j = inspect_json_must(json_object());
	struct inspect_rope shown;

	if (y->rope < 0) {
		json_decref(j);
		return json_null();
	}
	shown = inspect_rope_of(&s->ropes[y->rope]);
	inspect_json_set(j, "base", inspect_json_f64(shown.base));
	inspect_json_set(j, "dims", json_integer(s->ropes[y->rope].dims));
	inspect_json_set(j, "linear_factor", inspect_json_f64(shown.linear));
	inspect_json_set(j, "frequency_factors", json_boolean(shown.scaled));
	return j;
}

static json_t *inspect_json_mixer(const struct spec *s, const struct inspect_kind *k)
{
	static const char *const names[] = {
		[SPEC_ATTENTION] = "attention", [SPEC_MLA] = "latent", [SPEC_DELTA] = "linear"};
	const struct spec_layer *y = k->y;
	json_t *j = inspect_json_must(json_object());

	inspect_json_set(j, "kind", json_string(names[y->mixer]));
	inspect_json_set(j, "layers", json_integer(k->n_layers));
	if (y->mixer == SPEC_DELTA) {
		inspect_json_set(j, "key_heads", json_integer(y->dk_heads));
		inspect_json_set(j, "value_heads", json_integer(y->dv_heads));
		inspect_json_set(j, "key_dim", json_integer(y->dk_dim));
		inspect_json_set(j, "value_dim", json_integer(y->dv_dim));
		inspect_json_set(j, "convolution", json_integer(y->conv_width));
		return j;
	}
	inspect_json_set(j, "heads", json_integer(y->heads));
	inspect_json_set(j, "kv_heads", json_integer(y->mixer == SPEC_MLA ? 1 : y->kv_heads));
	inspect_json_set(j, "key_dim", json_integer(y->k_dim));
	inspect_json_set(j, "value_dim", json_integer(y->v_dim));
	inspect_json_set(j, "window", y->window ? json_integer(y->window) : json_null());
	if (y->mixer == SPEC_MLA) inspect_json_set(j, "latent_dim", json_integer(y->kv_lora + y->k_dim - y->nope_dim));
	inspect_json_set(j, "rope", inspect_json_rope(s, y));
	return j;
}

static json_t *inspect_json_ffn(const struct inspect_kind *k)
{
	const struct spec_layer *y = k->y;
	json_t *j = inspect_json_must(json_object());

	inspect_json_set(j, "kind", json_string(y->n_experts ? "experts" : "dense"));
	inspect_json_set(j, "layers", json_integer(k->n_layers));
	inspect_json_set(j, "width", json_integer(y->n_experts ? y->expert_ffn : y->ffn));
	if (!y->n_experts) return j;
	inspect_json_set(j, "experts", json_integer(y->n_experts));
	inspect_json_set(j, "experts_used", json_integer(y->n_used));
	inspect_json_set(j, "shared_width", y->shared_ffn ? json_integer(y->shared_ffn) : json_null());
	return j;
}

/* The sizes of the model, and of the first kind of attention, for models that have one only. */
static json_t *inspect_json_shape(const struct inspect_info *info)
{
	const struct spec *s = &info->spec;
	json_t *j = inspect_json_must(json_object()), *mixers = inspect_json_must(json_array()),
	       *ffns = inspect_json_must(json_array());
	const struct spec_layer *att = s->layers;

	for (uint32_t i = 0; i < s->n_layers && att->mixer == SPEC_DELTA; i++) att = &s->layers[i];
	inspect_json_set(j, "layers", json_integer(s->n_layers));
	inspect_json_set(j, "width", json_integer(s->dim));
	inspect_json_set(j, "feed_forward",
			 json_integer(s->layers[0].n_experts ? s->layers[0].expert_ffn : s->layers[0].ffn));
	inspect_json_set(j, "heads", json_integer(att->heads));
	inspect_json_set(j, "kv_heads", json_integer(att->mixer == SPEC_MLA ? 1 : att->kv_heads));
	inspect_json_set(j, "head_dim", json_integer(att->k_dim));
	inspect_json_set(j, "vocab_rows", json_integer(s->vocab));
	inspect_json_set(j, "context_length", json_integer(s->context_len));
	inspect_json_set(j, "tied", json_boolean(s->tied));
	inspect_json_set(j, "rms_eps", inspect_json_f64(s->eps));
	inspect_json_set(j, "rope", inspect_json_rope(s, att));
	for (uint32_t i = 0; i < info->n_mixers; i++)
		inspect_json_push(mixers, inspect_json_mixer(s, &info->mixers[i]));
	for (uint32_t i = 0; i < info->n_ffns; i++) inspect_json_push(ffns, inspect_json_ffn(&info->ffns[i]));
	inspect_json_set(j, "attention_layers", mixers);
	inspect_json_set(j, "feed_forward_layers", ffns);
	return j;
}

static json_t *inspect_json_kv(const struct spec *s)
{
	static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_BF16, GGTYPE_F32, GGTYPE_F8_E4M3, GGTYPE_I8};
	json_t *j = inspect_json_must(json_object()), *groups = inspect_json_must(json_object());
	struct kvplan_shape shape = {0};
	char key[32];

	inspect_json_set(j, "block_tokens", json_integer(KVPLAN_BLOCK));
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (kvplan_shape(&shape, s, types[i], 1, s->context_len, NULL) != ST_OK) continue;
		snprintf(key, sizeof(key), "token_bytes_%s", kvplan_type_name(types[i]));
		inspect_json_set(j, key, inspect_json_u64(shape.bytes / KVPLAN_BLOCK));
		snprintf(key, sizeof(key), "block_bytes_%s", kvplan_type_name(types[i]));
		inspect_json_set(j, key, inspect_json_u64(shape.block_bytes));
	}
	inspect_json_set(groups, "full", json_integer(shape.groups.n_full));
	inspect_json_set(groups, "windowed", json_integer(shape.groups.n_windowed));
	inspect_json_set(groups, "layers", json_integer(shape.groups.size));
	inspect_json_set(groups, "window", shape.groups.window ? json_integer(shape.groups.window) : json_null());
	inspect_json_set(j, "groups", groups);
	inspect_json_set(j, "state_bytes", inspect_json_u64(shape.state_bytes));
	return j;
}

static json_t *inspect_json_types(const struct inspect_info *info)
{
	json_t *list = inspect_json_must(json_array());
	size_t i;

	for (i = 0; i < info->n_types; i++) {
		const struct inspect_type *t = &info->types[i];
		json_t *j = inspect_json_must(json_object());

		inspect_json_set(j, "type", json_string(ckpt_type_name(t->type)));
		inspect_json_set(j, "tensors", inspect_json_u64(t->tensors));
		inspect_json_set(j, "parameters", inspect_json_u64(t->params));
		inspect_json_set(j, "bytes", inspect_json_u64(t->bytes));
		inspect_json_set(j, "supported", json_boolean(inspect_type_supported(info, t->type)));
		inspect_json_push(list, j);
	}
	return list;
}

static json_t *inspect_json_tokenizer(const struct inspect_tokenizer *t)
{
	json_t *j;

	if (!t->kind.s) return json_null();
	j = inspect_json_must(json_object());
	inspect_json_set(j, "kind", inspect_json_str(t->kind));
	inspect_json_set(j, "pre", inspect_json_str(t->pre));
	inspect_json_set(j, "tokens", inspect_json_u64(t->n_tokens));
	inspect_json_set(j, "merges", inspect_json_u64(t->n_merges));
	return j;
}

static json_t *inspect_json_files(const struct ckpt *c)
{
	json_t *list = inspect_json_must(json_array());

	for (size_t i = 0; i < ckpt_file_count(c); i++) inspect_json_push(list, json_string(ckpt_file_name(c, i)));
	return list;
}

static json_t *inspect_json_quant(const struct spec *s)
{
	struct strbuf text;
	json_t *j;

	if (s->quant.kind == SPEC_QUANT_NONE) return json_null();
	strbuf_init(&text, 128);
	inspect_quant_text(&s->quant, &text);
	j = json_stringn(text.data, text.len);
	strbuf_release(&text);
	return j;
}

/* ---- the long lists ---- */

/* Element ix; *pos walks along string arrays. */
static json_t *inspect_json_element(const struct gguf_kv *kv, uint64_t ix, uint64_t *pos)
{
	enum gguf_kind kind = kv->kind == GGUF_ARR ? kv->elem_kind : kv->kind;
	struct gguf_str s = {NULL, 0};

	if (kind == GGUF_STR) {
		gguf_array_next_str(kv, pos, &s);
		return inspect_json_str(s);
	}
	if (kind == GGUF_BOOL) return json_boolean(gguf_array_u64(kv, ix) != 0);
	if (kind == GGUF_F32 || kind == GGUF_F64) return inspect_json_f64(gguf_array_f64(kv, ix));
	return kind == GGUF_U64 ? inspect_json_u64(gguf_array_u64(kv, ix)) : json_integer(gguf_array_i64(kv, ix));
}

static json_t *inspect_json_metadata(const struct gguf *g)
{
	json_t *list = inspect_json_must(json_array());
	uint64_t ix, pos;
	size_t i;

	for (i = 0; i < gguf_kv_count(g); i++) {
		const struct gguf_kv *kv = gguf_kv_at(g, i);
		json_t *j = inspect_json_must(json_object()), *first;

		inspect_json_set(j, "key", inspect_json_str(kv->key));
		inspect_json_set(j, "type", json_string(gguf_kind_name(kv->kind)));
		pos = 0;
		if (kv->kind == GGUF_ARR) {
			first = inspect_json_must(json_array());
			for (ix = 0; ix < min_u64(kv->n, INSPECT_FIRST_N); ix++)
				inspect_json_push(first, inspect_json_element(kv, ix, &pos));
			inspect_json_set(j, "element_type", json_string(gguf_kind_name(kv->elem_kind)));
			inspect_json_set(j, "length", inspect_json_u64(kv->n));
			inspect_json_set(j, "first", first);
		} else {
			inspect_json_set(j, "value", inspect_json_element(kv, 0, &pos));
		}
		inspect_json_push(list, j);
	}
	return list;
}

/* GGUF has the innermost dimension first, safetensors the outermost. */
static json_t *inspect_json_tensors(const struct ckpt *c)
{
	bool is_gguf = ckpt_gguf(c) != NULL;
	json_t *list = inspect_json_must(json_array());

	for (size_t i = 0; i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(c, i);
		json_t *j = inspect_json_must(json_object()), *shape = inspect_json_must(json_array());

		for (uint32_t d = 0; d < t->n_dims; d++)
			inspect_json_push(shape, inspect_json_u64(t->dims[is_gguf ? t->n_dims - 1 - d : d]));
		inspect_json_set(j, "name", inspect_json_str(t->name));
		inspect_json_set(j, "type", json_string(ckpt_type_name(t->type)));
		inspect_json_set(j, "shape", shape);
		inspect_json_set(j, "bytes", inspect_json_u64(t->bytes));
		inspect_json_push(list, j);
	}
	return list;
}

static int inspect_json_dump(const char *data, size_t len, void *out)
{
	strbuf_append(out, data, len);
	return 0;
}

static void inspect_json_out(json_t *j, struct strbuf *out)
{
	CHECK(json_dump_callback(j, inspect_json_dump, out, JSON_INDENT(2)) == 0 || out->overflow);
	strbuf_putc(out, '\n');
	json_decref(j);
}

void inspect_json_memory(const struct inspect_memory *m, struct strbuf *out)
{
	static const char *const rules[] = {"num_gpu_blocks_override", "kv_cache_memory_bytes",
					    "gpu_memory_utilization"};
	const struct kvplan *p = &m->plan;
	json_t *j = inspect_json_must(json_object());

	inspect_json_set(j, "fits", json_boolean(m->rc == ST_OK));
	inspect_json_set(j, "reason", m->rc == ST_OK ? json_null() : json_string(m->why.text));
	inspect_json_set(j, "kv_cache_dtype", json_string(kvplan_type_name(m->shape.kv_type)));
	inspect_json_set(j, "tensor_parallel_size", json_integer(m->shape.tp));
	inspect_json_set(j, "available_bytes", inspect_json_u64(p->in.available));
	inspect_json_set(j, "weight_bytes", inspect_json_u64(p->in.weights));
	inspect_json_set(j, "activation_bytes", inspect_json_u64(p->in.activations));
	inspect_json_set(j, "workspace_bytes", inspect_json_u64(p->in.workspace));
	inspect_json_set(j, "state_bytes", inspect_json_u64(p->in.state));
	inspect_json_set(j, "left_bytes", inspect_json_u64(p->left));
	inspect_json_set(j, "rule", json_string(rules[p->rule]));
	inspect_json_set(j, "block_bytes", inspect_json_u64(m->shape.block_bytes));
	inspect_json_set(j, "num_gpu_blocks", inspect_json_u64(p->n_blocks));
	inspect_json_set(j, "kv_cache_bytes", inspect_json_u64(p->kv_bytes));
	inspect_json_set(j, "max_model_len", json_integer(p->model_len_max));
	inspect_json_set(j, "request_blocks", inspect_json_u64(p->blocks_needed));
	inspect_json_set(j, "max_model_len_that_fits", json_integer(p->len_fits));
	inspect_json_set(j, "concurrency", inspect_json_f64(p->full_seqs));
	inspect_json_out(j, out);
}

static void inspect_json_lists(const struct inspect_info *info, json_t *j)
{
	const struct gguf *g = ckpt_gguf(info->c);

	if (info->want_metadata)
		inspect_json_set(j, "metadata", g ? inspect_json_metadata(g) : json_deep_copy(ckpt_config(info->c)));
	if (info->want_tensors) inspect_json_set(j, "tensors", inspect_json_tensors(info->c));
}

void inspect_json(const struct inspect_info *info, struct strbuf *out)
{
	const char *path = ckpt_path(info->c);
	const struct gguf *g = ckpt_gguf(info->c);
	json_t *j = inspect_json_must(json_object());
	bool good = info->spec_rc == ST_OK;

	inspect_json_set(j, "file", inspect_json_str((struct gguf_str){path, strlen(path)}));
	inspect_json_set(j, "format", json_string(g ? "gguf" : "safetensors"));
	inspect_json_set(j, "files", inspect_json_files(info->c));
	inspect_json_set(j, "bytes", inspect_json_u64(ckpt_bytes(info->c)));
	inspect_json_set(j, "gguf_version", g ? json_integer(gguf_version(g)) : json_null());
	inspect_json_set(j, "name", inspect_json_str(info->name));
	inspect_json_set(j, "architecture", inspect_json_str(info->arch));
	inspect_json_set(j, "family", good ? json_string(info->spec.family) : json_null());
	inspect_json_set(j, "servable", json_boolean(good));
	inspect_json_set(j, "reason", good ? json_null() : json_string(info->reason));
	inspect_json_set(j, "parameters", inspect_json_u64(info->params));
	inspect_json_set(j, "tensor_bytes", inspect_json_u64(info->bytes));
	inspect_json_set(j, "types", inspect_json_types(info));
	inspect_json_set(j, "quantization", good ? inspect_json_quant(&info->spec) : json_null());
	inspect_json_set(j, "shape", good ? inspect_json_shape(info) : json_null());
	inspect_json_set(j, "kv_cache", good ? inspect_json_kv(&info->spec) : json_null());
	inspect_json_set(j, "tokenizer", inspect_json_tokenizer(&info->tok));
	inspect_json_set(j, "chat_template_bytes",
			 info->tok.chat_template.s ? inspect_json_u64(info->tok.chat_template.len) : json_null());
	inspect_json_lists(info, j);
	inspect_json_out(j, out);
}
