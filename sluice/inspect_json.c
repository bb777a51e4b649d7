/* inspect_json.c - `sluice inspect --json`: one object, for scripts. Ill-formed UTF-8 of the file becomes U+FFFD,
 * numbers that JSON does not have (NaN, infinities) become null. Integers above 2^63-1 are given as text, since jansson
 * has no more. */
#include "common/strbuf.h"
#include "common/utf8.h"
#include "sluice/inspect_info.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

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

static json_t *inspect_json_shape(const struct modelshape *s)
{
	json_t *j = inspect_json_must(json_object()), *rope = inspect_json_must(json_object());

	inspect_json_set(j, "layers", json_integer(s->n_layers));
	inspect_json_set(j, "width", json_integer(s->dim));
	inspect_json_set(j, "feed_forward", json_integer(s->ffn));
	inspect_json_set(j, "heads", json_integer(s->heads));
	inspect_json_set(j, "kv_heads", json_integer(s->kv_heads));
	inspect_json_set(j, "head_dim", json_integer(s->head_dim));
	inspect_json_set(j, "vocab_rows", json_integer(s->vocab));
	inspect_json_set(j, "context_length", json_integer(s->context_len));
	inspect_json_set(j, "tied", json_boolean(s->tied));
	inspect_json_set(j, "rms_eps", inspect_json_f64((double)s->rms_eps));
	inspect_json_set(rope, "base", inspect_json_f64((double)s->rope_base));
	inspect_json_set(rope, "dims", json_integer(s->rope_dims));
	inspect_json_set(rope, "linear_factor", inspect_json_f64((double)s->rope_linear));
	inspect_json_set(rope, "frequency_factors", json_boolean(s->rope_factors != NULL));
	inspect_json_set(j, "rope", rope);
	return j;
}

static json_t *inspect_json_kv(const struct modelshape *s)
{
	json_t *j = inspect_json_must(json_object());
	uint64_t f16 = modelshape_kv_token_bytes(s, GGTYPE_F16), f32 = modelshape_kv_token_bytes(s, GGTYPE_F32);

	inspect_json_set(j, "block_tokens", json_integer(INSPECT_BLOCK_LEN));
	inspect_json_set(j, "token_bytes_f16", inspect_json_u64(f16));
	inspect_json_set(j, "block_bytes_f16", inspect_json_u64(f16 * INSPECT_BLOCK_LEN));
	inspect_json_set(j, "token_bytes_f32", inspect_json_u64(f32));
	inspect_json_set(j, "block_bytes_f32", inspect_json_u64(f32 * INSPECT_BLOCK_LEN));
	return j;
}

static json_t *inspect_json_types(const struct inspect_info *info)
{
	json_t *list = inspect_json_must(json_array());
	size_t i;

	for (i = 0; i < info->n_types; i++) {
		const struct inspect_type *t = &info->types[i];
		json_t *j = inspect_json_must(json_object());

		inspect_json_set(j, "type", json_string(ggtype_info(t->type)->name));
		inspect_json_set(j, "tensors", inspect_json_u64(t->tensors));
		inspect_json_set(j, "parameters", inspect_json_u64(t->params));
		inspect_json_set(j, "bytes", inspect_json_u64(t->bytes));
		inspect_json_set(j, "supported", json_boolean(modelshape_type_built(t->type)));
		inspect_json_push(list, j);
	}
	return list;
}

static json_t *inspect_json_tokenizer(const struct inspect_info *info)
{
	json_t *j;

	if (!info->tok_kind.s) return json_null();
	j = inspect_json_must(json_object());
	inspect_json_set(j, "kind", inspect_json_str(info->tok_kind));
	inspect_json_set(j, "pre", inspect_json_str(info->tok_pre));
	inspect_json_set(j, "tokens", inspect_json_u64(info->n_tokens));
	inspect_json_set(j, "merges", inspect_json_u64(info->n_merges));
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

static json_t *inspect_json_tensors(const struct gguf *g)
{
	json_t *list = inspect_json_must(json_array());
	uint32_t d;
	size_t i;

	for (i = 0; i < gguf_tensor_count(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		json_t *j = inspect_json_must(json_object()), *shape = inspect_json_must(json_array());

		for (d = 0; d < t->n_dims; d++) inspect_json_push(shape, inspect_json_u64(t->dims[d]));
		inspect_json_set(j, "name", inspect_json_str(t->name));
		inspect_json_set(j, "type", json_string(ggtype_info(t->type)->name));
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

void inspect_json(const struct inspect_info *info, struct strbuf *out)
{
	struct gguf_str path = {gguf_path(info->g), 0};
	json_t *j = inspect_json_must(json_object());
	bool good = info->shape_rc == ST_OK;

	while (path.s[path.len]) path.len++;
	inspect_json_set(j, "file", inspect_json_str(path));
	inspect_json_set(j, "bytes", inspect_json_u64(gguf_file_bytes(info->g)));
	inspect_json_set(j, "gguf_version", json_integer(gguf_version(info->g)));
	inspect_json_set(j, "name", inspect_json_str(info->name));
	inspect_json_set(j, "architecture", inspect_json_str(info->arch));
	inspect_json_set(j, "servable", json_boolean(good));
	inspect_json_set(j, "reason", good ? json_null() : json_string(info->reason));
	inspect_json_set(j, "parameters", inspect_json_u64(info->params));
	inspect_json_set(j, "tensor_bytes", inspect_json_u64(info->bytes));
	inspect_json_set(j, "types", inspect_json_types(info));
	inspect_json_set(j, "shape", good ? inspect_json_shape(&info->shape) : json_null());
	inspect_json_set(j, "kv_cache", good ? inspect_json_kv(&info->shape) : json_null());
	inspect_json_set(j, "tokenizer", inspect_json_tokenizer(info));
	inspect_json_set(j, "chat_template_bytes",
			 info->chat_template.s ? inspect_json_u64(info->chat_template.len) : json_null());
	if (info->want_metadata) inspect_json_set(j, "metadata", inspect_json_metadata(info->g));
	if (info->want_tensors) inspect_json_set(j, "tensors", inspect_json_tensors(info->g));
	CHECK(json_dump_callback(j, inspect_json_dump, out, JSON_INDENT(2)) == 0 || out->overflow);
	strbuf_putc(out, '\n');
	json_decref(j);
}
