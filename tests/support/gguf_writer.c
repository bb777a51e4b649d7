/* gguf_writer.c - see gguf_writer.h. */
#include "tests/support/gguf_writer.h"

#include "common/mem.h"
#include "common/strbuf.h"
#include "tests/support/test_file.h"

#include <string.h>

#define GGUF_WRITER_BYTES_MAX ((size_t)1 << 30)

void gguf_writer_init(struct gguf_writer *w)
{
	*w = (struct gguf_writer){
		.magic = {'G', 'G', 'U', 'F'},
		.version = 3,
		.n_kvs = GGUF_WRITER_AUTO,
		.n_tensors = GGUF_WRITER_AUTO,
		.alignment = 32,
	};
}

void gguf_writer_release(struct gguf_writer *w)
{
	size_t i;

	for (i = 0; i < w->kv_len; i++) {
		free(w->kvs[i].key);
		free(w->kvs[i].value);
	}
	for (i = 0; i < w->tensor_len; i++) {
		free(w->tensors[i].name);
		free(w->tensors[i].data);
	}
	free(w->kvs);
	free(w->tensors);
	gguf_writer_init(w);
}

/* ---- keys ---- */

static size_t gguf_writer_find(const struct gguf_writer *w, const char *key)
{
	size_t i;

	for (i = 0; i < w->kv_len; i++)
		if (w->kvs[i].key_len == strlen(key) && memcmp(w->kvs[i].key, key, strlen(key)) == 0) break;
	return i;
}

void gguf_writer_raw(struct gguf_writer *w, const void *key, size_t key_len, uint32_t kind, const void *value,
		     size_t value_len)
{
	mem_reserve(w->kvs, w->kv_cap, w->kv_len + 1);
	w->kvs[w->kv_len++] = (struct gguf_writer_kv){
		.key = mem_strndup(key, key_len),
		.key_len = key_len,
		.kind = kind,
		.value = mem_dup(value, value_len, 1),
		.value_len = value_len,
	};
}

static void gguf_writer_set(struct gguf_writer *w, const char *key, uint32_t kind, const void *value, size_t value_len)
{
	size_t at = gguf_writer_find(w, key);

	if (at == w->kv_len) {
		gguf_writer_raw(w, key, strlen(key), kind, value, value_len);
		return;
	}
	free(w->kvs[at].value);
	w->kvs[at].kind = kind;
	w->kvs[at].value = mem_dup(value, value_len, 1);
	w->kvs[at].value_len = value_len;
}

#define GGUF_WRITER_SCALAR(name, type, kind)                                        \
	void gguf_writer_##name(struct gguf_writer *w, const char *key, type value) \
	{                                                                           \
		gguf_writer_set(w, key, kind, &value, sizeof(value));               \
	}
GGUF_WRITER_SCALAR(u32, uint32_t, GGUF_U32)
GGUF_WRITER_SCALAR(u64, uint64_t, GGUF_U64)
GGUF_WRITER_SCALAR(i32, int32_t, GGUF_I32)
GGUF_WRITER_SCALAR(f32, float, GGUF_F32)
GGUF_WRITER_SCALAR(f64, double, GGUF_F64)
GGUF_WRITER_SCALAR(bool, uint8_t, GGUF_BOOL)

static void gguf_writer_put_u32(struct strbuf *b, uint32_t v)
{
	strbuf_append(b, &v, sizeof(v));
}

static void gguf_writer_put_u64(struct strbuf *b, uint64_t v)
{
	strbuf_append(b, &v, sizeof(v));
}

static void gguf_writer_put_str(struct strbuf *b, const char *s, size_t len)
{
	gguf_writer_put_u64(b, len);
	strbuf_append(b, s, len);
}

void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value)
{
	struct strbuf b;

	strbuf_init(&b, GGUF_WRITER_BYTES_MAX);
	gguf_writer_put_str(&b, value, strlen(value));
	gguf_writer_set(w, key, GGUF_STR, b.data, b.len);
	strbuf_release(&b);
}

void gguf_writer_strs(struct gguf_writer *w, const char *key, const char *const *values, size_t n)
{
	struct strbuf b;
	size_t i;

	strbuf_init(&b, GGUF_WRITER_BYTES_MAX);
	gguf_writer_put_u32(&b, GGUF_STR);
	gguf_writer_put_u64(&b, n);
	for (i = 0; i < n; i++) gguf_writer_put_str(&b, values[i], strlen(values[i]));
	gguf_writer_set(w, key, GGUF_ARR, b.data, b.len);
	strbuf_release(&b);
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_kind kind, const void *elements, size_t n)
{
	static const uint8_t bytes[GGUF_KIND_COUNT] = {
		[GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_BOOL] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4,
		[GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_U64] = 8,  [GGUF_I64] = 8, [GGUF_F64] = 8,
	};
	struct strbuf b;

	CHECK(bytes[kind]);
	strbuf_init(&b, GGUF_WRITER_BYTES_MAX);
	gguf_writer_put_u32(&b, kind);
	gguf_writer_put_u64(&b, n);
	strbuf_append(&b, elements, n * bytes[kind]);
	gguf_writer_set(w, key, GGUF_ARR, b.data, b.len);
	strbuf_release(&b);
}

/* ---- tensors ---- */

struct gguf_writer_tensor *gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
					      const uint64_t *dims, const void *data, size_t bytes)
{
	struct gguf_writer_tensor t = {
		.type = type, .n_dims = n_dims, .dims = {1, 1, 1, 1}, .offset = GGUF_WRITER_AUTO};
	uint32_t i;

	for (i = 0; i < n_dims && i < GGUF_DIMS_MAX; i++) t.dims[i] = dims[i];
	if (!data) {
		bytes = ggtype_row_bytes((enum ggtype)type, t.dims[0]);
		for (i = 1; i < GGUF_DIMS_MAX; i++) bytes *= t.dims[i];
	}
	t.name = mem_strdup(name);
	t.name_len = strlen(name);
	t.data = data ? mem_dup(data, bytes, 1) : mem_zalloc(bytes, 1);
	t.bytes = bytes;
	mem_reserve(w->tensors, w->tensor_cap, w->tensor_len + 1);
	w->tensors[w->tensor_len] = t;
	return &w->tensors[w->tensor_len++];
}

struct gguf_writer_tensor *gguf_writer_find_tensor(struct gguf_writer *w, const char *name)
{
	size_t i;

	for (i = 0; i < w->tensor_len; i++)
		if (strcmp(w->tensors[i].name, name) == 0) return &w->tensors[i];
	return NULL;
}

void gguf_writer_drop(struct gguf_writer *w, const char *name)
{
	struct gguf_writer_tensor *t = gguf_writer_find_tensor(w, name);
	size_t at = gguf_writer_find(w, name);

	if (t) {
		free(t->name);
		free(t->data);
		memmove(t, t + 1, (size_t)(w->tensors + w->tensor_len - t - 1) * sizeof(*t));
		w->tensor_len--;
		return;
	}
	CHECK(at < w->kv_len);
	free(w->kvs[at].key);
	free(w->kvs[at].value);
	memmove(&w->kvs[at], &w->kvs[at + 1], (w->kv_len - at - 1) * sizeof(w->kvs[0]));
	w->kv_len--;
}

/* ---- the file ---- */

static void gguf_writer_pad(const struct gguf_writer *w, struct strbuf *b)
{
	while (b->len % w->alignment) strbuf_putc(b, 0);
}

static void gguf_writer_put_tensor(const struct gguf_writer_tensor *t, uint64_t offset, struct strbuf *b)
{
	uint32_t i;

	gguf_writer_put_str(b, t->name, t->name_len);
	gguf_writer_put_u32(b, t->n_dims);
	for (i = 0; i < t->n_dims && i < 64; i++) gguf_writer_put_u64(b, i < GGUF_DIMS_MAX ? t->dims[i] : 1);
	gguf_writer_put_u32(b, t->type);
	gguf_writer_put_u64(b, t->offset == GGUF_WRITER_AUTO ? offset : t->offset);
}

uint8_t *gguf_writer_build(const struct gguf_writer *w, size_t *len)
{
	uint64_t offset = 0;
	struct strbuf b;
	size_t i;

	strbuf_init(&b, GGUF_WRITER_BYTES_MAX);
	strbuf_append(&b, w->magic, sizeof(w->magic));
	gguf_writer_put_u32(&b, w->version);
	gguf_writer_put_u64(&b, w->n_tensors == GGUF_WRITER_AUTO ? w->tensor_len : w->n_tensors);
	gguf_writer_put_u64(&b, w->n_kvs == GGUF_WRITER_AUTO ? w->kv_len : w->n_kvs);
	for (i = 0; i < w->kv_len; i++) {
		gguf_writer_put_str(&b, w->kvs[i].key, w->kvs[i].key_len);
		gguf_writer_put_u32(&b, w->kvs[i].kind);
		strbuf_append(&b, w->kvs[i].value, w->kvs[i].value_len);
	}
	for (i = 0; i < w->tensor_len; i++) {
		gguf_writer_put_tensor(&w->tensors[i], offset, &b);
		offset = align_up(offset + w->tensors[i].bytes, w->alignment);
	}
	gguf_writer_pad(w, &b);
	for (i = 0; i < w->tensor_len; i++) {
		strbuf_append(&b, w->tensors[i].data, w->tensors[i].bytes);
		gguf_writer_pad(w, &b);
	}
	CHECK(!b.overflow);
	*len = b.len;
	return (uint8_t *)strbuf_take(&b);
}

void gguf_writer_save(const struct gguf_writer *w, const char *path)
{
	size_t len;
	uint8_t *bytes = gguf_writer_build(w, &len);

	test_file_write(path, bytes, len);
	free(bytes);
}
