/* gguf_read.c - reads values out of an opened GGUF file; see gguf.h.
 *
 * gguf_open() has checked every length, so nothing here can run out of the map. What is checked here is what the caller
 * expects of a value: its kind and its range. Errors name file, key, what was found and what was expected. */
#include "model/gguf.h"

#include "model/gguf_impl.h"
#include "common/quote.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* K(name in texts, bytes an element; 0: it has a length of its own), in the order of enum gguf_kind. */
static const struct {
	const char *name;
	uint8_t bytes;
} gguf_kinds[GGUF_KIND_COUNT] = {
	[GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
	[GGUF_U32] = {"u32", 4}, [GGUF_I32] = {"i32", 4},   [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
	[GGUF_STR] = {"str", 0}, [GGUF_ARR] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
	[GGUF_F64] = {"f64", 8},
};

size_t gguf_kind_bytes(enum gguf_kind kind)
{
	CHECK(kind < GGUF_KIND_COUNT);
	return gguf_kinds[kind].bytes;
}

const char *gguf_kind_name(enum gguf_kind kind)
{
	CHECK(kind < GGUF_KIND_COUNT);
	return gguf_kinds[kind].name;
}

/* ---- the file ---- */

const char *gguf_path(const struct gguf *g)
{
	return g->path;
}

const char *gguf_shown_path(const struct gguf *g)
{
	return g->shown;
}

struct gguf_split gguf_split(const struct gguf *g)
{
	return g->split;
}

uint32_t gguf_version(const struct gguf *g)
{
	return g->version;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
	return g->file.bytes;
}

const uint8_t *gguf_data(const struct gguf *g, uint64_t *bytes)
{
	*bytes = g->file.bytes - g->data_start;
	return g->file.data + g->data_start;
}

size_t gguf_kv_count(const struct gguf *g)
{
	return g->n_kvs;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t ix)
{
	CHECK(ix < g->n_kvs);
	return &g->kvs[ix];
}

size_t gguf_tensor_count(const struct gguf *g)
{
	return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t ix)
{
	CHECK(ix < g->n_tensors);
	return &g->tensors[ix];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
	size_t ix = gguf_lookup_kv(g, key, strlen(key));

	return ix == SIZE_MAX ? NULL : &g->kvs[ix];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
	size_t ix = gguf_lookup_tensor(g, name, strlen(name));

	return ix == SIZE_MAX ? NULL : &g->tensors[ix];
}

/* ---- one element ---- */

/* An integer as sign and magnitude, which holds every kind exactly. */
struct gguf_int {
	bool negative;
	uint64_t magnitude;
};

static bool gguf_is_int(enum gguf_kind kind)
{
	return kind != GGUF_F32 && kind != GGUF_F64 && kind != GGUF_BOOL && kind != GGUF_STR && kind != GGUF_ARR;
}

/* Little-endian bits, zero-extended; the map is not aligned. */
static uint64_t gguf_bits(const uint8_t *data, size_t bytes)
{
	uint64_t bits = 0;

	memcpy(&bits, data, bytes);
	return bits;
}

static int64_t gguf_signed(enum gguf_kind kind, uint64_t bits)
{
	switch (kind) {
	case GGUF_I8:
		return (int8_t)bits;
	case GGUF_I16:
		return (int16_t)bits;
	case GGUF_I32:
		return (int32_t)bits;
	default:
		return (int64_t)bits;
	}
}

static struct gguf_int gguf_int_at(enum gguf_kind kind, const uint8_t *data)
{
	uint64_t bits = gguf_bits(data, gguf_kind_bytes(kind));
	int64_t value;

	if (kind == GGUF_U8 || kind == GGUF_U16 || kind == GGUF_U32 || kind == GGUF_U64 || kind == GGUF_BOOL)
		return (struct gguf_int){false, bits};
	value = gguf_signed(kind, bits);
	return value < 0 ? (struct gguf_int){true, -(uint64_t)value} : (struct gguf_int){false, (uint64_t)value};
}

static double gguf_f64_at(enum gguf_kind kind, const uint8_t *data)
{
	struct gguf_int i;
	float f;
	double d;

	if (kind == GGUF_F32) {
		memcpy(&f, data, sizeof(f));
		return f;
	}
	if (kind == GGUF_F64) {
		memcpy(&d, data, sizeof(d));
		return d;
	}
	i = gguf_int_at(kind, data);
	return i.negative ? -(double)i.magnitude : (double)i.magnitude;
}

static const uint8_t *gguf_element(const struct gguf_kv *kv, uint64_t ix, enum gguf_kind *kind)
{
	*kind = kv->kind == GGUF_ARR ? kv->elem_kind : kv->kind;
	CHECK(ix < kv->n && gguf_kind_bytes(*kind) > 0);
	return kv->data + ix * gguf_kind_bytes(*kind);
}

uint64_t gguf_array_u64(const struct gguf_kv *kv, uint64_t ix)
{
	return (uint64_t)gguf_array_i64(kv, ix);
}

int64_t gguf_array_i64(const struct gguf_kv *kv, uint64_t ix)
{
	enum gguf_kind kind;
	const uint8_t *data = gguf_element(kv, ix, &kind);
	struct gguf_int i;
	double d;

	if (gguf_is_int(kind) || kind == GGUF_BOOL) {
		i = gguf_int_at(kind, data);
		return (int64_t)(i.negative ? -i.magnitude : i.magnitude);
	}
	d = gguf_f64_at(kind, data); /* a float where an integer is wanted: cut, and never out of range */
	if (!(d > -0x1p63)) return isnan(d) ? 0 : INT64_MIN;
	return d < 0x1p63 ? (int64_t)d : INT64_MAX;
}

double gguf_array_f64(const struct gguf_kv *kv, uint64_t ix)
{
	enum gguf_kind kind;
	const uint8_t *data = gguf_element(kv, ix, &kind);

	return gguf_f64_at(kind, data);
}

static struct gguf_str gguf_str_at(const uint8_t *data)
{
	return (struct gguf_str){(const char *)data + sizeof(uint64_t), (size_t)gguf_bits(data, sizeof(uint64_t))};
}

bool gguf_array_next_str(const struct gguf_kv *kv, uint64_t *pos, struct gguf_str *out)
{
	enum gguf_kind kind = kv->kind == GGUF_ARR ? kv->elem_kind : kv->kind;

	CHECK(kind == GGUF_STR);
	if (*pos >= kv->bytes) return false;
	*out = gguf_str_at(kv->data + *pos);
	*pos += sizeof(uint64_t) + out->len;
	return true;
}

bool gguf_str_is(struct gguf_str s, const char *text)
{
	return s.len == strlen(text) && memcmp(s.s, text, s.len) == 0;
}

/* ---- one key ---- */

static PRINTF_LIKE(5, 6) int gguf_bad(const struct gguf *g, const char *key, struct errbuf *err, int rc,
				      const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_set(err, rc, "key %s %s", key, text);
	return g->is_open ? err_prefix(err, rc, "%s", g->shown) : rc;
}

static int gguf_missing(const struct gguf *g, const char *key, struct errbuf *err)
{
	return gguf_bad(g, key, err, ST_NOT_FOUND, "is missing");
}

static int gguf_wrong_kind(const struct gguf *g, const char *key, const struct gguf_kv *kv, const char *expected,
			   struct errbuf *err)
{
	return gguf_bad(g, key, err, ST_INVALID, "has the wrong type: %s%s, expected %s",
			kv->kind == GGUF_ARR ? "array of " : "",
			gguf_kind_name(kv->kind == GGUF_ARR ? kv->elem_kind : kv->kind), expected);
}

static int gguf_value_u64(const struct gguf *g, const char *key, const struct gguf_kv *kv, uint64_t min, uint64_t max,
			  uint64_t *out, struct errbuf *err)
{
	struct gguf_int i;

	if (!gguf_is_int(kv->kind)) return gguf_wrong_kind(g, key, kv, "an integer", err);
	i = gguf_int_at(kv->kind, kv->data);
	if (i.negative || i.magnitude < min || i.magnitude > max)
		return gguf_bad(g, key, err, ST_INVALID, "is %s%llu; expected %llu to %llu", i.negative ? "-" : "",
				(unsigned long long)i.magnitude, (unsigned long long)min, (unsigned long long)max);
	*out = i.magnitude;
	return ST_OK;
}

static int gguf_value_f64(const struct gguf *g, const char *key, const struct gguf_kv *kv, double min, double max,
			  double *out, struct errbuf *err)
{
	double d;

	if (kv->kind == GGUF_BOOL || kv->kind == GGUF_STR || kv->kind == GGUF_ARR)
		return gguf_wrong_kind(g, key, kv, "a number", err);
	d = gguf_f64_at(kv->kind, kv->data);
	if (!(d >= min && d <= max)) /* also NaN */
		return gguf_bad(g, key, err, ST_INVALID, "is %g; expected %g to %g", d, min, max);
	*out = d;
	return ST_OK;
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *out, struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	return kv ? gguf_value_u64(g, key, kv, min, max, out, err) : gguf_missing(g, key, err);
}

int gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t fallback, uint64_t *out,
		    struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	*out = fallback;
	return kv ? gguf_value_u64(g, key, kv, min, max, out, err) : ST_OK;
}

int gguf_get_f64(const struct gguf *g, const char *key, double min, double max, double *out, struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	return kv ? gguf_value_f64(g, key, kv, min, max, out, err) : gguf_missing(g, key, err);
}

int gguf_get_f64_or(const struct gguf *g, const char *key, double min, double max, double fallback, double *out,
		    struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	*out = fallback;
	return kv ? gguf_value_f64(g, key, kv, min, max, out, err) : ST_OK;
}

int gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *out, struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	*out = fallback;
	if (!kv) return ST_OK;
	if (kv->kind != GGUF_BOOL) return gguf_wrong_kind(g, key, kv, "bool", err);
	*out = kv->data[0] != 0;
	return ST_OK;
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	if (!kv) return gguf_missing(g, key, err);
	if (kv->kind != GGUF_STR) return gguf_wrong_kind(g, key, kv, "str", err);
	*out = gguf_str_at(kv->data);
	return ST_OK;
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind elem_kind, const struct gguf_kv **out,
		   struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	char expected[32];

	if (!kv) return gguf_missing(g, key, err);
	snprintf(expected, sizeof(expected), "array of %s", gguf_kind_name(elem_kind));
	if (kv->kind != GGUF_ARR || kv->elem_kind != elem_kind) return gguf_wrong_kind(g, key, kv, expected, err);
	*out = kv;
	return ST_OK;
}
