/* safetensors.c - see safetensors.h.
 *
 * One cursor walks the JSON and fills tensors as it meets them; there is no tree, so a header costs nothing beyond its
 * tensors and one of 90,000 takes milliseconds. When the walk is done the tensors are put in the order of their bytes,
 * which must then lie end to end. */
#include "model/safetensors.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"
#include "model/jsonwalk.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TENSORS_MAX (1u << 20) /* in a file; the largest published models have some 220,000 in all */
#define HEADER_MAX  100000000u /* the package's limit */

/* D(name in files, number, bits an element) */
#define DTYPES(D)                             \
	D("F32", GGTYPE_F32, 32)              \
	D("BF16", GGTYPE_BF16, 16)            \
	D("F16", GGTYPE_F16, 16)              \
	D("F64", GGTYPE_F64, 64)              \
	D("F8_E4M3", GGTYPE_F8_E4M3, 8)       \
	D("F8_E5M2", CKPT_F8_E5M2, 8)         \
	D("F8_E8M0", CKPT_F8_E8M0, 8)         \
	D("I8", GGTYPE_I8, 8)                 \
	D("I16", GGTYPE_I16, 16)              \
	D("I32", GGTYPE_I32, 32)              \
	D("I64", GGTYPE_I64, 64)              \
	D("U8", CKPT_U8, 8)                   \
	D("U16", CKPT_U16, 16)                \
	D("U32", CKPT_U32, 32)                \
	D("U64", CKPT_U64, 64)                \
	D("BOOL", CKPT_BOOL, 8)               \
	D("F8_E4M3FNUZ", CKPT_F8_E4M3FNUZ, 8) \
	D("F8_E5M2FNUZ", CKPT_F8_E5M2FNUZ, 8) \
	D("C64", CKPT_C64, 64)                \
	D("F4", CKPT_F4, 4)                   \
	D("F6_E2M3", CKPT_F6_E2M3, 6)         \
	D("F6_E3M2", CKPT_F6_E3M2, 6)

struct walk {
	struct jsonwalk j;
	struct safetensors *out;
};

static PRINTF_LIKE(2, 3) int bad(struct walk *w, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(w->j.err, ST_CORRUPT, "%s", text);
}

#define SHOWN(name) (quote_short((name).s, (name).len).text)

/* ---- one tensor ---- */

struct entry {
	struct ckpt_tensor t;
	uint32_t bits; /* of an element */
	uint64_t from, to;
	bool has_dtype, has_shape, has_offsets;
};

static int read_dtype(struct walk *w, struct entry *e)
{
	static const struct {
		const char *name;
		uint32_t type, bits;
	} types[] = {
#define AS_ROW(name, type, bits) {name, type, bits},
		DTYPES(AS_ROW)
#undef AS_ROW
	};
	struct gguf_str name;
	int rc = jsonwalk_string(&w->j, &name);

	if (rc != ST_OK) return rc;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (!gguf_str_is(name, types[i].name)) continue;
		e->t.type = types[i].type;
		e->bits = types[i].bits;
		return ST_OK;
	}
	return bad(w, "\"%s\" is not known", SHOWN(name));
}

static int read_shape(struct walk *w, struct entry *e)
{
	bool more;
	int rc = jsonwalk_want(&w->j, '[');

	if (rc != ST_OK || jsonwalk_take(&w->j, ']')) return rc;
	do {
		if (e->t.n_dims == CKPT_DIMS_MAX)
			return err_set(w->j.err, ST_UNSUPPORTED, "more than %d dimensions are not supported",
				       CKPT_DIMS_MAX);
		rc = jsonwalk_u64(&w->j, &e->t.dims[e->t.n_dims++]);
		if (rc == ST_OK) rc = jsonwalk_end(&w->j, ']', &more);
	} while (rc == ST_OK && more);
	return rc;
}

static int read_offsets(struct walk *w, struct entry *e)
{
	bool more;
	int rc = jsonwalk_want(&w->j, '[');

	if (rc == ST_OK) rc = jsonwalk_u64(&w->j, &e->from);
	if (rc == ST_OK) rc = jsonwalk_want(&w->j, ',');
	if (rc == ST_OK) rc = jsonwalk_u64(&w->j, &e->to);
	if (rc == ST_OK) rc = jsonwalk_end(&w->j, ']', &more);
	return rc == ST_OK && more ? bad(w, "more than two numbers") : rc;
}

static int read_known_field(struct walk *w, struct entry *e)
{
	static const struct {
		const char *name;
		int (*read)(struct walk *w, struct entry *e);
		size_t seen;
	} fields[] = {
		{"dtype", read_dtype, offsetof(struct entry, has_dtype)},
		{"shape", read_shape, offsetof(struct entry, has_shape)},
		{"data_offsets", read_offsets, offsetof(struct entry, has_offsets)},
	};
	struct gguf_str key;
	int rc = jsonwalk_string(&w->j, &key);

	if (rc == ST_OK) rc = jsonwalk_want(&w->j, ':');
	for (size_t i = 0; i < ARRAY_LEN(fields) && rc == ST_OK; i++) {
		bool *seen = (bool *)((char *)e + fields[i].seen);

		if (!gguf_str_is(key, fields[i].name)) continue;
		if (*seen) return bad(w, "has two fields %s", fields[i].name);
		*seen = true;
		rc = fields[i].read(w, e);
		return rc == ST_OK ? ST_OK : err_prefix(w->j.err, rc, "%s", fields[i].name);
	}
	return rc == ST_OK ? jsonwalk_skip(&w->j) : rc;
}

static int read_field(struct walk *w, struct entry *e)
{
	size_t before = w->j.n_texts;
	int rc = read_known_field(w, e);

	jsonwalk_forget(&w->j, before);
	return rc;
}

/* The bytes that dtype and shape take. */
static int check_size(struct walk *w, struct entry *e)
{
	uint64_t n = 1, bits;

	for (uint32_t i = 0; i < e->t.n_dims; i++)
		if (__builtin_mul_overflow(n, e->t.dims[i], &n))
			return bad(w, "shape: the number of elements overflows 64 bits");
	if (__builtin_mul_overflow(n, e->bits, &bits)) return bad(w, "shape: the size overflows 64 bits");
	if (bits % 8) return bad(w, "shape: ends inside a byte (%" PRIu64 " elements of %u bits)", n, e->bits);
	if (e->to < e->from || e->to - e->from != bits / 8)
		return bad(w, "data_offsets: %" PRIu64 " and %" PRIu64 ", but dtype and shape make %" PRIu64 " bytes",
			   e->from, e->to, bits / 8);
	e->t.bytes = bits / 8;
	return ST_OK;
}

static int read_fields(struct walk *w, struct entry *e)
{
	bool more;
	int rc = jsonwalk_take(&w->j, '{') ? ST_OK : bad(w, "is no JSON object");

	if (rc == ST_OK && jsonwalk_take(&w->j, '}')) return bad(w, "has no dtype");
	while (rc == ST_OK) {
		rc = read_field(w, e);
		if (rc == ST_OK) rc = jsonwalk_end(&w->j, '}', &more);
		if (rc == ST_OK && !more) break;
	}
	if (rc == ST_OK && !e->has_dtype) return bad(w, "has no dtype");
	if (rc == ST_OK && !e->has_shape) return bad(w, "has no shape");
	if (rc == ST_OK && !e->has_offsets) return bad(w, "has no data_offsets");
	return rc == ST_OK ? check_size(w, e) : rc;
}

static int read_tensor(struct walk *w, struct gguf_str name)
{
	struct safetensors *s = w->out;
	struct entry e = {.t.name = name};
	int rc = s->n < TENSORS_MAX ? read_fields(w, &e) : bad(w, "one more than %u, which is the limit", TENSORS_MAX);

	if (rc != ST_OK) return err_prefix(w->j.err, rc, "tensor %s", SHOWN(name));
	e.t.data = (const uint8_t *)(uintptr_t)e.from; /* an offset until place_all() */
	mem_reserve(s->tensors, s->cap, s->n + 1);
	s->tensors[s->n++] = e.t;
	return ST_OK;
}

/* Texts alone, as the package demands. */
static int check_metadata(struct walk *w)
{
	size_t before = w->j.n_texts;
	struct gguf_str key, value;
	bool more;
	int rc;

	jsonwalk_space(&w->j);
	if (w->j.pos < w->j.len && w->j.json[w->j.pos] == 'n') return jsonwalk_skip(&w->j);
	rc = jsonwalk_want(&w->j, '{');
	if (rc != ST_OK || jsonwalk_take(&w->j, '}')) return rc;
	do {
		rc = jsonwalk_string(&w->j, &key);
		if (rc == ST_OK) rc = jsonwalk_want(&w->j, ':');
		if (rc == ST_OK) rc = jsonwalk_string(&w->j, &value);
		if (rc == ST_OK) rc = jsonwalk_end(&w->j, '}', &more);
		jsonwalk_forget(&w->j, before);
	} while (rc == ST_OK && more);
	return rc;
}

/* ---- the whole header ---- */

static int read_header(struct walk *w)
{
	bool more = true, has_metadata = false;
	struct gguf_str name;
	int rc;

	jsonwalk_space(&w->j);
	rc = jsonwalk_want(&w->j, '{');
	if (rc == ST_OK && jsonwalk_take(&w->j, '}')) more = false;
	while (more && rc == ST_OK) {
		rc = jsonwalk_string(&w->j, &name);
		if (rc == ST_OK) rc = jsonwalk_want(&w->j, ':');
		if (rc == ST_OK && gguf_str_is(name, "__metadata__")) {
			if (has_metadata) return bad(w, "the header has two fields __metadata__");
			has_metadata = true;
			rc = check_metadata(w);
			if (rc != ST_OK) err_prefix(w->j.err, rc, "__metadata__");
		} else if (rc == ST_OK) {
			rc = read_tensor(w, name);
		}
		if (rc == ST_OK) rc = jsonwalk_end(&w->j, '}', &more);
	}
	jsonwalk_space(&w->j);
	return rc == ST_OK && w->j.pos < w->j.len ? jsonwalk_bad(&w->j, "the end of the header") : rc;
}

static int by_offset(const void *a, const void *b)
{
	const struct ckpt_tensor *x = a, *y = b;

	if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Puts the tensors where their bytes are: end to end, from the header to the end of the file. */
static int place_all(struct walk *w, const uint8_t *data, uint64_t room)
{
	struct safetensors *s = w->out;
	uint64_t at = 0;

	if (s->n) qsort(s->tensors, s->n, sizeof(*s->tensors), by_offset);
	for (size_t i = 0; i < s->n; i++) {
		struct ckpt_tensor *t = &s->tensors[i];
		uint64_t from = (uintptr_t)t->data;

		if (from != at)
			return bad(w, "tensor %s begins at byte %" PRIu64 " of the data, %s", SHOWN(t->name), from,
				   from < at ? "inside another one" : "and nothing is in front of it");
		if (t->bytes > room - at)
			return bad(w,
				   "truncated: tensor %s (offset %" PRIu64 ", %" PRIu64
				   " bytes) goes beyond the end of file (%" PRIu64 " bytes of data are there)",
				   SHOWN(t->name), from, t->bytes, room);
		at += t->bytes;
		t->data = data + from;
	}
	if (at != room) return bad(w, "%" PRIu64 " bytes at the end of the file belong to no tensor", room - at);
	return ST_OK;
}

int safetensors_read(struct safetensors *out, const uint8_t *bytes, uint64_t size, struct errbuf *err)
{
	struct walk w = {.out = out, .j = {.what = "the header", .err = err}};
	uint64_t len;
	int rc;

	*out = (struct safetensors){0};
	if (size < sizeof(len))
		return bad(&w, "the file has %" PRIu64 " bytes, too short for a safetensors file", size);
	memcpy(&len, bytes, sizeof(len));
	if (len > HEADER_MAX)
		return bad(&w, "the header's length is %" PRIu64 "; expected at most %u (is it a safetensors file?)",
			   len, HEADER_MAX);
	if (len > size - sizeof(len))
		return bad(&w, "truncated: the header's length is %" PRIu64 ", but %" PRIu64 " bytes follow", len,
			   size - (uint64_t)sizeof(len));
	w.j.json = (const char *)bytes + sizeof(len);
	w.j.len = (size_t)len;
	if (utf8_valid_len(w.j.json, w.j.len) != w.j.len)
		return bad(&w, "the header is not UTF-8 at byte %zu", utf8_valid_len(w.j.json, w.j.len));
	rc = read_header(&w);
	out->names = w.j;
	return rc == ST_OK ? place_all(&w, bytes + sizeof(len) + len, size - sizeof(len) - len) : rc;
}

void safetensors_release(struct safetensors *s)
{
	jsonwalk_release(&s->names);
	free(s->tensors);
	*s = (struct safetensors){0};
}

const char *safetensors_type_name(uint32_t type)
{
#define AS_NAME(name, number, bits) \
	if (type == (number)) return name;
	DTYPES(AS_NAME)
#undef AS_NAME
	return NULL;
}
