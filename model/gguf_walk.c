/* gguf_walk.c - walks the head of a mapped GGUF file once and checks everything that it claims.
 *
 * One cursor goes from the first byte to the tensor data: header, keys, tensor descriptions. What it learns goes into
 * two arrays that grow only as entries are really read, so a count of 2^60 costs nothing. The first fault ends the walk
 * with an error that names field and value; gguf_open() adds the file. */
#include "model/gguf_impl.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Real files have below 100 keys and, with one tensor for each expert, below 50,000 tensors. */
#define GGUF_KVS_MAX           65536
#define GGUF_TENSORS_MAX       (1u << 20)
#define GGUF_NAME_MAX          65535 /* bytes of a key or tensor name, from the specification */
#define GGUF_KV_BYTES_MIN      14    /* length, one byte of key, kind, one byte of value */
#define GGUF_TENSOR_BYTES_MIN  33    /* length, one byte of name, n_dims, one dimension, type, offset */
#define GGUF_ALIGNMENT_DEFAULT 32
#define GGUF_ALIGNMENT_MIN     8 /* the specification: a multiple of 8; tensors are read as arrays of at most 8 bytes */
#define GGUF_ALIGNMENT_MAX     MIB

struct gguf_walk {
	struct gguf *g;
	uint64_t pos; /* <= g->file.bytes */
	struct errbuf *err;
	const char *part; /* "key" or "tensor": what is being read, for errors */
	uint64_t ix, n;   /* its number and how many the header announces */
};

/* ---- the cursor ---- */

static PRINTF_LIKE(2, 3) int gguf_corrupt(struct gguf_walk *w, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(w->err, ST_CORRUPT, "%s", text);
}

static int gguf_cut(struct gguf_walk *w, const char *what)
{
	if (!w->part)
		return gguf_corrupt(w, "truncated: end of file inside the header (%s); the file has %llu bytes", what,
				    (unsigned long long)w->g->file.bytes);
	return gguf_corrupt(w, "truncated: end of file inside the %s of %s %llu of %llu, at byte %llu of %llu", what,
			    w->part, (unsigned long long)w->ix + 1, (unsigned long long)w->n,
			    (unsigned long long)w->pos, (unsigned long long)w->g->file.bytes);
}

static uint64_t gguf_left(const struct gguf_walk *w)
{
	return w->g->file.bytes - w->pos;
}

static bool gguf_read(struct gguf_walk *w, void *out, size_t len)
{
	if (len > gguf_left(w)) return false;
	memcpy(out, w->g->file.data + w->pos, len);
	w->pos += len;
	return true;
}

static int gguf_read_u32(struct gguf_walk *w, const char *what, uint32_t *out)
{
	*out = 0;
	return gguf_read(w, out, sizeof(*out)) ? ST_OK : gguf_cut(w, what);
}

static int gguf_read_u64(struct gguf_walk *w, const char *what, uint64_t *out)
{
	*out = 0;
	return gguf_read(w, out, sizeof(*out)) ? ST_OK : gguf_cut(w, what);
}

static int gguf_read_str(struct gguf_walk *w, const char *what, struct gguf_str *out)
{
	uint64_t len;
	int rc = gguf_read_u64(w, what, &len);

	if (rc != ST_OK) return rc;
	if (len > gguf_left(w))
		return gguf_corrupt(
			w, "the length %llu of the %s of %s %llu goes beyond the end of file (%llu bytes are left)",
			(unsigned long long)len, what, w->part, (unsigned long long)w->ix + 1,
			(unsigned long long)gguf_left(w));
	*out = (struct gguf_str){(const char *)w->g->file.data + w->pos, (size_t)len};
	w->pos += len;
	return ST_OK;
}

/* A key or tensor name: not empty, of sane length, UTF-8 without control characters. */
static int gguf_read_name(struct gguf_walk *w, struct gguf_str *out)
{
	int rc = gguf_read_str(w, "name", out);
	size_t i;

	if (rc != ST_OK) return rc;
	if (out->len == 0) return gguf_corrupt(w, "%s %llu has an empty name", w->part, (unsigned long long)w->ix + 1);
	if (out->len > GGUF_NAME_MAX)
		return gguf_corrupt(w, "the name of %s %llu has a length of %zu bytes; the limit is %d", w->part,
				    (unsigned long long)w->ix + 1, out->len, GGUF_NAME_MAX);
	if (utf8_valid_len(out->s, out->len) != out->len)
		return gguf_corrupt(w, "the name of %s %llu is not UTF-8: \"%s\"", w->part,
				    (unsigned long long)w->ix + 1, quote_short(out->s, out->len).text);
	for (i = 0; i < out->len; i++)
		if ((unsigned char)out->s[i] < 0x20 || out->s[i] == 0x7F)
			return gguf_corrupt(w, "the name of %s %llu has control characters: \"%s\"", w->part,
					    (unsigned long long)w->ix + 1, quote_short(out->s, out->len).text);
	return ST_OK;
}

/* ---- header ---- */

static int gguf_walk_header(struct gguf_walk *w, uint64_t *n_tensors, uint64_t *n_kvs)
{
	char magic[4];
	uint32_t swapped;
	int rc;

	if (!gguf_read(w, magic, sizeof(magic)))
		return gguf_corrupt(w, "the file is too short for a GGUF file (no magic)");
	if (memcmp(magic, "GGUF", 4) != 0)
		return gguf_corrupt(w, "not a GGUF file: its magic is \"%s\"", quote_short(magic, sizeof(magic)).text);
	rc = gguf_read_u32(w, "version", &w->g->version);
	if (rc != ST_OK) return rc;
	swapped = __builtin_bswap32(w->g->version);
	if (swapped >= 1 && swapped <= 3)
		return err_set(w->err, ST_UNSUPPORTED,
			       "a big-endian GGUF file (version %u); only little-endian ones are supported", swapped);
	if (w->g->version != 2 && w->g->version != 3)
		return err_set(w->err, ST_UNSUPPORTED, "GGUF version %u is not supported; 2 and 3 are", w->g->version);
	rc = gguf_read_u64(w, "tensor count", n_tensors);
	if (rc != ST_OK) return rc;
	rc = gguf_read_u64(w, "key count", n_kvs);
	if (rc != ST_OK) return rc;
	if (*n_kvs > GGUF_KVS_MAX || *n_kvs > gguf_left(w) / GGUF_KV_BYTES_MIN)
		return gguf_corrupt(
			w,
			"the key count %llu is impossible for the size of the file (%llu bytes; the limit is %d keys)",
			(unsigned long long)*n_kvs, (unsigned long long)w->g->file.bytes, GGUF_KVS_MAX);
	if (*n_tensors > GGUF_TENSORS_MAX || *n_tensors > gguf_left(w) / GGUF_TENSOR_BYTES_MIN)
		return gguf_corrupt(w,
				    "the tensor count %llu is impossible for the size of the file (%llu bytes; the "
				    "limit is %u tensors)",
				    (unsigned long long)*n_tensors, (unsigned long long)w->g->file.bytes, GGUF_TENSORS_MAX);
	return ST_OK;
}

/* ---- keys ---- */

static int gguf_check_bools(struct gguf_walk *w, const struct gguf_kv *kv)
{
	uint64_t i;

	for (i = 0; i < kv->n; i++)
		if (kv->data[i] > 1)
			return gguf_corrupt(w, "key %s: the bool value %u is neither 0 nor 1",
					    quote_short(kv->key.s, kv->key.len).text, kv->data[i]);
	return ST_OK;
}

/* n values of `kind`, without a length in front; n == 1 for a scalar. */
static int gguf_walk_values(struct gguf_walk *w, struct gguf_kv *kv, enum gguf_kind kind)
{
	size_t each = gguf_kind_bytes(kind);
	struct gguf_str s;
	uint64_t i;
	int rc;

	kv->data = w->g->file.data + w->pos;
	if (kind == GGUF_STR) {
		for (i = 0; i < kv->n; i++) {
			rc = gguf_read_str(w, "value", &s);
			if (rc != ST_OK)
				return err_prefix(w->err, rc, "key %s", quote_short(kv->key.s, kv->key.len).text);
		}
		return ST_OK;
	}
	if (kv->n > gguf_left(w) / each)
		return gguf_corrupt(
			w,
			"truncated: key %s: %llu values of %zu bytes go beyond the end of file (%llu bytes are left)",
			quote_short(kv->key.s, kv->key.len).text, (unsigned long long)kv->n, each,
			(unsigned long long)gguf_left(w));
	w->pos += kv->n * each;
	return kind == GGUF_BOOL ? gguf_check_bools(w, kv) : ST_OK;
}

static int gguf_walk_array(struct gguf_walk *w, struct gguf_kv *kv)
{
	uint32_t kind;
	int rc = gguf_read_u32(w, "element type", &kind);

	if (rc != ST_OK) return rc;
	if (kind == GGUF_ARR)
		return gguf_corrupt(w, "key %s: nested arrays (an array of arrays) are not supported",
				    quote_short(kv->key.s, kv->key.len).text);
	if (kind >= GGUF_KIND_COUNT)
		return gguf_corrupt(w, "key %s: unknown element type %u of an array",
				    quote_short(kv->key.s, kv->key.len).text, kind);
	rc = gguf_read_u64(w, "array length", &kv->n);
	if (rc != ST_OK) return rc;
	/* A string takes at least its length, so the walk over a string array ends with the file at the latest. */
	kv->elem_kind = (enum gguf_kind)kind;
	if (kind == GGUF_STR && kv->n > gguf_left(w) / sizeof(uint64_t))
		return gguf_corrupt(w,
				    "truncated: key %s: %llu strings go beyond the end of file (%llu bytes are left)",
				    quote_short(kv->key.s, kv->key.len).text, (unsigned long long)kv->n,
				    (unsigned long long)gguf_left(w));
	return gguf_walk_values(w, kv, kv->elem_kind);
}

static int gguf_walk_kv(struct gguf_walk *w)
{
	struct gguf *g = w->g;
	struct gguf_kv kv = {.n = 1};
	uint32_t kind;
	int rc;

	rc = gguf_read_name(w, &kv.key);
	if (rc != ST_OK) return rc;
	rc = gguf_read_u32(w, "value type", &kind);
	if (rc != ST_OK) return rc;
	if (kind >= GGUF_KIND_COUNT)
		return gguf_corrupt(w, "key %s: unknown value type %u", quote_short(kv.key.s, kv.key.len).text, kind);
	kv.kind = (enum gguf_kind)kind;
	rc = kv.kind == GGUF_ARR ? gguf_walk_array(w, &kv) : gguf_walk_values(w, &kv, kv.kind);
	if (rc != ST_OK) return rc;
	kv.bytes = (uint64_t)(g->file.data + w->pos - kv.data);

	mem_reserve(g->kvs, g->cap_kvs, g->n_kvs + 1);
	g->kvs[g->n_kvs] = kv;
	if (!gguf_index_kv(g, g->n_kvs))
		return gguf_corrupt(w, "duplicate key %s", quote_short(kv.key.s, kv.key.len).text);
	g->n_kvs++;
	return ST_OK;
}

static int gguf_read_alignment(struct gguf_walk *w)
{
	struct gguf *g = w->g;
	int rc = gguf_get_u64_or(g, "general.alignment", 0, UINT64_MAX, GGUF_ALIGNMENT_DEFAULT, &g->alignment, w->err);

	if (rc != ST_OK) return rc;
	if (g->alignment < GGUF_ALIGNMENT_MIN || g->alignment > GGUF_ALIGNMENT_MAX ||
	    (g->alignment & (g->alignment - 1)))
		return gguf_corrupt(w, "general.alignment is %llu; expected a power of two from %d to %zu",
				    (unsigned long long)g->alignment, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
	return ST_OK;
}

/* Which part of a model in several files this is. */
static int gguf_read_split(struct gguf_walk *w)
{
	struct gguf *g = w->g;
	uint64_t no, count, tensors;
	int rc = gguf_get_u64_or(g, "split.count", 0, UINT16_MAX, 0, &count, w->err);

	if (rc == ST_OK) rc = gguf_get_u64_or(g, "split.no", 0, UINT16_MAX, 0, &no, w->err);
	if (rc == ST_OK) rc = gguf_get_u64_or(g, "split.tensors.count", 0, INT32_MAX, 0, &tensors, w->err);
	if (rc == ST_OK) g->split = (struct gguf_split){(uint32_t)no, (uint32_t)max_u64(count, 1), tensors};
	return rc;
}

/* ---- tensors ---- */

static void gguf_shape_text(const struct gguf_tensor *t, char out[128])
{
	int n = 0;
	uint32_t i;

	for (i = 0; i < t->n_dims; i++)
		n += snprintf(out + n, 128 - (size_t)n, "%s%llu", i ? " x " : "", (unsigned long long)t->dims[i]);
}

/* Bytes of the tensor from its type and shape. */
static int gguf_size_tensor(struct gguf_walk *w, struct gguf_tensor *t, uint32_t type)
{
	const struct ggtype_info *info = type < GGTYPE_OURS ? ggtype_info(type) : NULL;
	struct quote name = quote_short(t->name.s, t->name.len);
	uint64_t elements = 1, blocks;
	char shape[128];
	uint32_t i;

	if (!info) return gguf_corrupt(w, "tensor %s has the unknown type %u", name.text, type);
	t->type = (enum ggtype)type;
	gguf_shape_text(t, shape);
	for (i = 0; i < t->n_dims; i++) {
		if (t->dims[i] == 0) return gguf_corrupt(w, "tensor %s has no elements (shape %s)", name.text, shape);
		if (__builtin_mul_overflow(elements, t->dims[i], &elements) || elements > INT64_MAX)
			return gguf_corrupt(w, "the size of tensor %s overflows (shape %s)", name.text, shape);
	}
	if (t->dims[0] % info->block_len)
		return gguf_corrupt(w, "tensor %s: rows of %llu elements are not a multiple of the block of %s (%u)",
				    name.text, (unsigned long long)t->dims[0], info->name, info->block_len);
	blocks = elements / info->block_len;
	if (__builtin_mul_overflow(blocks, info->block_bytes, &t->bytes))
		return gguf_corrupt(w, "the size of tensor %s overflows (shape %s)", name.text, shape);
	return ST_OK;
}

/* Reads one description; data still holds the offset, since the data's start is known only after the last one. */
static int gguf_walk_tensor(struct gguf_walk *w, uint64_t *offset)
{
	struct gguf *g = w->g;
	struct gguf_tensor t = {.dims = {1, 1, 1, 1}};
	uint32_t type, i;
	int rc;

	rc = gguf_read_name(w, &t.name);
	if (rc != ST_OK) return rc;
	rc = gguf_read_u32(w, "number of dimensions", &t.n_dims);
	if (rc != ST_OK) return rc;
	if (t.n_dims < 1 || t.n_dims > GGUF_DIMS_MAX)
		return gguf_corrupt(w, "tensor %s has %u dimensions; expected 1 to %d",
				    quote_short(t.name.s, t.name.len).text, t.n_dims, GGUF_DIMS_MAX);
	for (i = 0; i < t.n_dims; i++) {
		rc = gguf_read_u64(w, "shape", &t.dims[i]);
		if (rc != ST_OK) return rc;
	}
	rc = gguf_read_u32(w, "type", &type);
	if (rc != ST_OK) return rc;
	rc = gguf_read_u64(w, "offset", offset);
	if (rc != ST_OK) return rc;
	rc = gguf_size_tensor(w, &t, type);
	if (rc != ST_OK) return rc;

	mem_reserve(g->tensors, g->cap_tensors, g->n_tensors + 1);
	g->tensors[g->n_tensors] = t;
	if (!gguf_index_tensor(g, g->n_tensors))
		return gguf_corrupt(w, "duplicate tensor %s", quote_short(t.name.s, t.name.len).text);
	g->n_tensors++;
	return ST_OK;
}

static int gguf_place_tensor(struct gguf_walk *w, struct gguf_tensor *t, uint64_t offset)
{
	struct gguf *g = w->g;
	uint64_t room = g->file.bytes - g->data_start;
	struct quote name = quote_short(t->name.s, t->name.len);

	if (offset % g->alignment)
		return gguf_corrupt(w, "tensor %s: its offset %llu is not a multiple of the alignment %llu", name.text,
				    (unsigned long long)offset, (unsigned long long)g->alignment);
	if (offset > room || t->bytes > room - offset)
		return gguf_corrupt(w,
				    "truncated: tensor %s (offset %llu, size %llu) goes beyond the end of file "
				    "(%llu bytes of tensor data are there)",
				    name.text, (unsigned long long)offset, (unsigned long long)t->bytes,
				    (unsigned long long)room);
	t->data = g->file.data + g->data_start + offset;
	return ST_OK;
}

static int gguf_compare_data(const void *a, const void *b)
{
	const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;

	return x->data < y->data ? -1 : x->data > y->data;
}

static int gguf_check_overlap(struct gguf_walk *w)
{
	struct gguf *g = w->g;
	const struct gguf_tensor **order = mem_array(const struct gguf_tensor *, g->n_tensors);
	int rc = ST_OK;
	size_t i;

	for (i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
	qsort(order, g->n_tensors, sizeof(*order), gguf_compare_data);
	for (i = 1; i < g->n_tensors && rc == ST_OK; i++)
		if (order[i]->data < order[i - 1]->data + order[i - 1]->bytes)
			rc = gguf_corrupt(w, "the data of tensors %s and %s overlap",
					  quote_short(order[i - 1]->name.s, order[i - 1]->name.len).text,
					  quote_short(order[i]->name.s, order[i]->name.len).text);
	free(order);
	return rc;
}

static int gguf_walk_tensors(struct gguf_walk *w, uint64_t n)
{
	struct gguf *g = w->g;
	uint64_t *offsets = NULL;
	size_t cap = 0, i;
	int rc = ST_OK;

	for (w->ix = 0; w->ix < n && rc == ST_OK; w->ix++) {
		mem_reserve(offsets, cap, (size_t)w->ix + 1);
		rc = gguf_walk_tensor(w, &offsets[w->ix]);
	}
	/* A file without tensors may end before the padding. */
	g->data_start = min_u64(align_up(w->pos, g->alignment), g->file.bytes);
	for (i = 0; i < g->n_tensors && rc == ST_OK; i++) rc = gguf_place_tensor(w, &g->tensors[i], offsets[i]);
	free(offsets);
	return rc == ST_OK ? gguf_check_overlap(w) : rc;
}

/* ---- the whole head ---- */

int gguf_walk(struct gguf *g, struct errbuf *err)
{
	struct gguf_walk w = {.g = g, .err = err};
	uint64_t n_tensors, n_kvs;
	int rc;

	rc = gguf_walk_header(&w, &n_tensors, &n_kvs);
	if (rc != ST_OK) return rc;
	w.part = "key";
	w.n = n_kvs;
	for (w.ix = 0; w.ix < n_kvs; w.ix++) {
		rc = gguf_walk_kv(&w);
		if (rc != ST_OK) return rc;
	}
	rc = gguf_read_alignment(&w);
	if (rc != ST_OK) return rc;
	rc = gguf_read_split(&w);
	if (rc != ST_OK) return rc;
	w.part = "tensor";
	w.n = n_tensors;
	return gguf_walk_tensors(&w, n_tensors);
}
