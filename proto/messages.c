/* messages.c - packing and unpacking of every message; the only door to msgpack.
 *
 * Packing goes through msgpack-c. Unpacking reads the few msgpack forms that a message can have by hand: msgpack-c's
 * unpacker allocates for a count that it has only been told, before anyone can compare it with a limit; here
 * nothing is allocated and every length meets its bound first. tests/unit/test_messages.c checks the two against each other. */
#include "proto/messages.h"

#include "common/mem.h"

#include <msgpack.h>
#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "columns are little-endian in memory and on the wire");

enum field_kind { KIND_u32, KIND_u64, KIND_f32, KIND_str, KIND_bin, KIND_u32s, KIND_u64s, KIND_f32s };

struct field_info {
	const char *name, *doc;
	enum field_kind kind;
	uint16_t offset; /* in the message's struct */
	uint64_t max;
};

struct msg_info {
	enum msg_type type;
	const char *name, *doc;
	const struct field_info *fields;
	uint32_t n_fields;
	size_t size; /* of the struct */
};

/* One table of fields a message. The rows cannot name their struct, so offsets are filled in once, by messages_layout(). */
#define FIELD_ROW(type, field, max, doc) {#field, doc, KIND_##type, 0, max},
#define MSG_ROWS(name, number, doc, fields) static struct field_info fields_##name[] = {fields};
MESSAGES(MSG_ROWS, FIELD_ROW)
#undef MSG_ROWS

#define NO_FIELD(type, field, max, doc)
#define MSG_INFO(name, number, doc, fields) \
	{MSG_##name, #name, doc, fields_##name, ARRAY_LEN(fields_##name), sizeof(struct msg_##name)},
static const struct msg_info infos[] = {MESSAGES(MSG_INFO, NO_FIELD)};
#undef MSG_INFO
#undef NO_FIELD

static size_t kind_size(enum field_kind k)
{
	switch (k) {
	case KIND_u32:
	case KIND_f32:
		return 4;
	case KIND_u64:
		return 8;
	default:
		return sizeof(struct view);
	}
}

static size_t kind_elem(enum field_kind k)
{
	return k == KIND_u64s ? 8 : k == KIND_u32s || k == KIND_f32s ? 4 : 1;
}

static bool kind_is_view(enum field_kind k)
{
	return k >= KIND_str;
}

/* Offsets follow from the order and the natural alignment of the kinds, which is what the compiler does with the structs;
 * the sizes are compared as a proof. Runs before main, so that threads never see half a table. */
__attribute__((constructor)) static void messages_layout(void)
{
	for (size_t i = 0; i < ARRAY_LEN(infos); i++) {
		struct field_info *f = (struct field_info *)infos[i].fields;
		size_t at = 0, widest = 4;

		for (uint32_t k = 0; k < infos[i].n_fields; k++) {
			size_t size = kind_size(f[k].kind);
			size_t align = size == 16 ? 8 : size;

			at = align_up(at, align);
			widest = max_size(widest, align);
			f[k].offset = (uint16_t)at;
			at += size;
		}
		CHECK(align_up(at, widest) == infos[i].size);
	}
}

static const struct msg_info *info_of(uint64_t type)
{
	for (size_t i = 0; i < ARRAY_LEN(infos); i++)
		if ((uint64_t)infos[i].type == type) return &infos[i];
	return NULL;
}

static void *field_at(const struct msg *m, const struct field_info *f)
{
	/* All members of the union start at the same address. */
	return (char *)&m->hello + f->offset;
}

const char *msg_type_name(enum msg_type type)
{
	const struct msg_info *info = info_of(type);

	return info ? info->name : "unknown";
}

/* ---- pack ---- */

static int pack_write(void *ctx, const char *data, size_t len)
{
	strbuf_append(ctx, data, len);
	return 0;
}

static int pack_field(msgpack_packer *pk, const struct msg *m, const struct field_info *f)
{
	const void *p = field_at(m, f);
	struct view v;
	uint64_t n = 0;
	float x;

	if (kind_is_view(f->kind)) {
		memcpy(&v, p, sizeof(v));
		if (v.n > f->max) return ST_LIMIT;
		n = (uint64_t)v.n * kind_elem(f->kind);
		if (f->kind == KIND_str) {
			msgpack_pack_str(pk, n);
			msgpack_pack_str_body(pk, v.data, n);
		} else {
			msgpack_pack_bin(pk, n);
			msgpack_pack_bin_body(pk, v.data, n);
		}
		return ST_OK;
	}
	if (f->kind == KIND_f32) {
		memcpy(&x, p, sizeof(x));
		msgpack_pack_float(pk, x);
		return ST_OK;
	}
	memcpy(&n, p, kind_size(f->kind));
	if (f->max && n > f->max) return ST_LIMIT;
	msgpack_pack_uint64(pk, n);
	return ST_OK;
}

int msg_pack(const struct msg *m, struct strbuf *out)
{
	const struct msg_info *info = info_of(m->type);
	msgpack_packer pk;
	int rc = ST_OK;

	CHECK(info);
	msgpack_packer_init(&pk, out, pack_write);
	msgpack_pack_array(&pk, info->n_fields + 1);
	msgpack_pack_uint32(&pk, (uint32_t)info->type);
	for (uint32_t i = 0; i < info->n_fields && rc == ST_OK; i++) rc = pack_field(&pk, m, &info->fields[i]);
	if (rc != ST_OK) return rc;
	return out->overflow ? ST_LIMIT : ST_OK;
}

/* ---- unpack ---- */

struct reader {
	const uint8_t *at, *end;
};

static int read_be(struct reader *r, size_t bytes, uint64_t *out)
{
	uint64_t v = 0;

	if ((size_t)(r->end - r->at) < bytes) return ST_CORRUPT;
	for (size_t i = 0; i < bytes; i++) v = v << 8 | *r->at++;
	*out = v;
	return ST_OK;
}

/* A length or number whose width (1 << shift bytes) is told by how far the tag is from `first`. */
static int read_sized(struct reader *r, uint8_t tag, uint8_t first, uint64_t *out)
{
	return read_be(r, (size_t)1 << (tag - first), out);
}

static int read_uint(struct reader *r, uint64_t *out)
{
	uint8_t tag;

	if (r->at == r->end) return ST_CORRUPT;
	tag = *r->at++;
	if (tag < 0x80) {
		*out = tag;
		return ST_OK;
	}
	if (tag < 0xcc || tag > 0xcf) return ST_CORRUPT;
	return read_sized(r, tag, 0xcc, out);
}

static int read_array(struct reader *r, uint64_t *n)
{
	uint8_t tag;

	if (r->at == r->end) return ST_CORRUPT;
	tag = *r->at++;
	if ((tag & 0xf0) == 0x90) {
		*n = tag & 0x0f;
		return ST_OK;
	}
	if (tag != 0xdc && tag != 0xdd) return ST_CORRUPT;
	return read_be(r, tag == 0xdc ? 2 : 4, n);
}

static int read_float(struct reader *r, float *out)
{
	uint64_t bits;
	uint32_t b;

	if (r->at == r->end || *r->at++ != 0xca) return ST_CORRUPT;
	if (read_be(r, 4, &bits) != ST_OK) return ST_CORRUPT;
	b = (uint32_t)bits;
	memcpy(out, &b, sizeof(b));
	return ST_OK;
}

static int read_view(struct reader *r, const struct field_info *f, struct view *out)
{
	uint64_t bytes, elem = kind_elem(f->kind);
	uint8_t tag;
	int rc;

	if (r->at == r->end) return ST_CORRUPT;
	tag = *r->at++;
	if (f->kind == KIND_str && (tag & 0xe0) == 0xa0) {
		bytes = tag & 0x1f;
	} else {
		uint8_t first = f->kind == KIND_str ? 0xd9 : 0xc4;

		if (tag < first || tag > first + 2) return ST_CORRUPT;
		rc = read_sized(r, tag, first, &bytes);
		if (rc != ST_OK) return rc;
	}
	if (bytes > (uint64_t)(r->end - r->at) || bytes % elem != 0 || bytes / elem > f->max) return ST_CORRUPT;
	*out = (struct view){r->at, (uint32_t)(bytes / elem)};
	r->at += bytes;
	return ST_OK;
}

/* Most numbers are below 128, which is a byte of its own. */
static inline int read_number(struct reader *r, uint64_t *out)
{
	if (r->at == r->end || *r->at >= 0x80) return read_uint(r, out);
	*out = *r->at++;
	return ST_OK;
}

static int read_field(struct reader *r, struct msg *m, const struct field_info *f)
{
	void *p = field_at(m, f);
	struct view v;
	uint32_t narrow;
	uint64_t n;
	float x;
	int rc;

	if (kind_is_view(f->kind)) {
		rc = read_view(r, f, &v);
		if (rc == ST_OK) memcpy(p, &v, sizeof(v));
		return rc;
	}
	if (f->kind == KIND_f32) {
		rc = read_float(r, &x);
		if (rc == ST_OK) memcpy(p, &x, sizeof(x));
		return rc;
	}
	rc = read_number(r, &n);
	if (rc != ST_OK) return rc;
	if (f->max && n > f->max) return ST_CORRUPT;
	if (f->kind == KIND_u64) {
		memcpy(p, &n, sizeof(n));
		return ST_OK;
	}
	if (n > UINT32_MAX) return ST_CORRUPT;
	narrow = (uint32_t)n;
	memcpy(p, &narrow, sizeof(narrow));
	return ST_OK;
}

int msg_unpack(struct msg *m, const void *data, size_t len)
{
	struct reader r = {data, (const uint8_t *)data + len};
	const struct msg_info *info;
	uint64_t n, type;

	if (len > LIMIT_MESSAGE_BYTES * 2ull) return ST_CORRUPT;
	if (read_array(&r, &n) != ST_OK || n < 1 || read_uint(&r, &type) != ST_OK) return ST_CORRUPT;
	info = info_of(type);
	if (!info || n < 1 + (uint64_t)info->n_fields) return ST_CORRUPT;
	memset(m, 0, sizeof(*m));
	m->type = info->type;
	for (uint32_t i = 0; i < info->n_fields; i++)
		if (read_field(&r, m, &info->fields[i]) != ST_OK) return ST_CORRUPT;
	return ST_OK; /* unknown trailing fields of a newer sender are not looked at */
}

/* ---- compare, copy, print ---- */

static struct view field_view(const struct msg *m, const struct field_info *f)
{
	struct view v;

	memcpy(&v, field_at(m, f), sizeof(v));
	return v;
}

bool msg_equal(const struct msg *a, const struct msg *b)
{
	const struct msg_info *info = info_of(a->type);

	if (a->type != b->type || !info) return false;
	for (uint32_t i = 0; i < info->n_fields; i++) {
		const struct field_info *f = &info->fields[i];

		if (kind_is_view(f->kind)) {
			struct view va = field_view(a, f), vb = field_view(b, f);

			if (va.n != vb.n) return false;
			if (va.n && memcmp(va.data, vb.data, va.n * kind_elem(f->kind)) != 0) return false;
		} else if (memcmp(field_at(a, f), field_at(b, f), kind_size(f->kind)) != 0) {
			return false;
		}
	}
	return true;
}

struct msg *msg_dup(const struct msg *m)
{
	const struct msg_info *info = info_of(m->type);
	size_t bytes = sizeof(*m), at = sizeof(*m);
	struct msg *copy;

	CHECK(info);
	for (uint32_t i = 0; i < info->n_fields; i++)
		if (kind_is_view(info->fields[i].kind))
			bytes += align_up(field_view(m, &info->fields[i]).n * kind_elem(info->fields[i].kind), 8);
	copy = mem_zalloc(bytes, 1);
	*copy = *m;
	for (uint32_t i = 0; i < info->n_fields; i++) {
		const struct field_info *f = &info->fields[i];
		struct view v;
		size_t n;

		if (!kind_is_view(f->kind)) continue;
		v = field_view(m, f);
		n = v.n * kind_elem(f->kind);
		if (n) memcpy((char *)copy + at, v.data, n);
		v.data = (char *)copy + at;
		memcpy(field_at(copy, f), &v, sizeof(v));
		at += align_up(n, 8);
	}
	return copy;
}

#define PRINT_ELEMS_MAX 12

static void print_view(const struct field_info *f, struct view v, struct strbuf *out)
{
	uint32_t n = min_u32(v.n, f->kind == KIND_str ? 80 : PRINT_ELEMS_MAX);

	if (f->kind == KIND_str || f->kind == KIND_bin) {
		strbuf_putc(out, '"');
		for (uint32_t i = 0; i < n; i++) {
			unsigned char c = ((const unsigned char *)v.data)[i];

			if (c >= ' ' && c < 0x7f) strbuf_putc(out, (char)c);
			else strbuf_printf(out, "\\x%02x", c);
		}
		strbuf_putc(out, '"');
	} else {
		strbuf_putc(out, '[');
		for (uint32_t i = 0; i < n; i++) {
			if (i) strbuf_putc(out, ' ');
			if (f->kind == KIND_u32s) strbuf_printf(out, "%u", col_u32(v, i));
			if (f->kind == KIND_u64s) strbuf_printf(out, "%llx", (unsigned long long)col_u64(v, i));
			if (f->kind == KIND_f32s) strbuf_printf(out, "%g", (double)col_f32(v, i));
		}
		strbuf_putc(out, ']');
	}
	if (n < v.n) strbuf_printf(out, "..(%u)", v.n);
}

void msg_print(const struct msg *m, struct strbuf *out)
{
	const struct msg_info *info = info_of(m->type);

	if (!info) {
		strbuf_printf(out, "message %d?", (int)m->type);
		return;
	}
	strbuf_puts(out, info->name);
	for (uint32_t i = 0; i < info->n_fields; i++) {
		const struct field_info *f = &info->fields[i];
		uint64_t n = 0;
		float x;

		strbuf_printf(out, " %s=", f->name);
		if (kind_is_view(f->kind)) {
			print_view(f, field_view(m, f), out);
		} else if (f->kind == KIND_f32) {
			memcpy(&x, field_at(m, f), sizeof(x));
			strbuf_printf(out, "%g", (double)x);
		} else {
			memcpy(&n, field_at(m, f), kind_size(f->kind));
			strbuf_printf(out, "%llu", (unsigned long long)n);
		}
	}
}

static const char *kind_name(enum field_kind k)
{
	static const char *const names[] = {"u32", "u64", "f32", "str", "bin", "u32 column", "u64 column", "f32 column"};

	return names[k];
}

void msg_document(struct strbuf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(infos); i++) {
		strbuf_printf(out, "### %u `%s`\n\n%s.\n\n| field | type | bound | meaning |\n| --- | --- | --- | --- |\n",
			      (unsigned)infos[i].type, infos[i].name, infos[i].doc);
		for (uint32_t k = 0; k < infos[i].n_fields; k++) {
			const struct field_info *f = &infos[i].fields[k];

			strbuf_printf(out, "| `%s` | %s | ", f->name, kind_name(f->kind));
			if (f->max) strbuf_printf(out, "%llu", (unsigned long long)f->max);
			strbuf_printf(out, " | %s |\n", f->doc);
		}
		strbuf_putc(out, '\n');
	}
}
