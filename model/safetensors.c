/* safetensors.c - see safetensors.h.
 *
 * One cursor walks the JSON and fills tensors as it meets them; there is no tree, so a header costs nothing beyond its
 * tensors and one of 90,000 takes milliseconds. When the walk is done the tensors are put in the order of their bytes,
 * which must then lie end to end. */
#include "model/safetensors.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HEADER_MAX  100000000u /* the package's limit */
#define NESTING_MAX 120        /* of fields that are not ours; the package stops at 127 of all */

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
	struct safetensors *out;
	const char *json;
	size_t len, pos;
	struct errbuf *err;
};

/* ---- errors ---- */

static PRINTF_LIKE(2, 3) int bad(struct walk *w, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(w->err, ST_CORRUPT, "%s", text);
}

static int bad_json(struct walk *w, const char *expected)
{
	if (w->pos >= w->len) return bad(w, "the header ends at byte %zu, where %s is expected", w->pos, expected);
	return bad(w, "the header is not valid JSON at byte %zu: \"%s\", where %s is expected", w->pos,
		   quote_short(w->json + w->pos, min_size(w->len - w->pos, 16)).text, expected);
}

#define SHOWN(name) (quote_short((name).s, (name).len).text)

/* ---- JSON ---- */

static void skip_space(struct walk *w)
{
	while (w->pos < w->len && (w->json[w->pos] == ' ' || w->json[w->pos] == '\n' || w->json[w->pos] == '\t' ||
				   w->json[w->pos] == '\r'))
		w->pos++;
}

/* Takes the character when it is the next one behind white space. */
static bool take(struct walk *w, char c)
{
	skip_space(w);
	if (w->pos >= w->len || w->json[w->pos] != c) return false;
	w->pos++;
	return true;
}

static int want(struct walk *w, char c)
{
	char text[] = {'\'', c, '\'', 0};

	return take(w, c) ? ST_OK : bad_json(w, text);
}

/* Between two members, or behind the last one. */
static int take_end(struct walk *w, char end, bool *more)
{
	*more = take(w, ',');
	return *more || take(w, end) ? ST_OK : bad_json(w, end == '}' ? "',' or '}'" : "',' or ']'");
}

static bool hex4(struct walk *w, uint32_t *out)
{
	*out = 0;
	for (int i = 0; i < 4; i++) {
		char c = w->pos < w->len ? w->json[w->pos++] : 0;

		if (c >= '0' && c <= '9')
			*out = *out * 16 + (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			*out = *out * 16 + (uint32_t)((c | 32) - 'a') + 10;
		else
			return false;
	}
	return true;
}

/* Behind a backslash: writes the character to out, gives its length; 0: it is none. */
static int escape(struct walk *w, char *out)
{
	static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
	char c = w->pos < w->len ? w->json[w->pos++] : 0;
	const char *at = c ? strchr(letters, c) : NULL;
	uint32_t cp, low;

	if (at) {
		*out = bytes[at - letters];
		return 1;
	}
	if (c != 'u' || !hex4(w, &cp) || (cp >= 0xDC00 && cp < 0xE000)) return 0;
	if (cp >= 0xD800 && cp < 0xDC00) {
		if (w->len - w->pos < 6 || w->json[w->pos] != '\\' || w->json[w->pos + 1] != 'u') return 0;
		w->pos += 2;
		if (!hex4(w, &low) || low < 0xDC00 || low >= 0xE000) return 0;
		cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
	}
	return utf8_encode(cp, out);
}

/* A copy of the string that begins at `from` (behind its quotation mark) with escapes resolved; the walk continues at
 * its first one. */
static int escaped_string(struct walk *w, size_t from, struct gguf_str *out)
{
	struct safetensors *s = w->out;
	size_t cap = 0, n = w->pos - from;
	char *text = NULL;
	bool good = true;

	mem_reserve(text, cap, n + 8);
	memcpy(text, w->json + from, n);
	mem_reserve(s->texts, s->cap_texts, s->n_texts + 1);
	while (good && w->pos < w->len && w->json[w->pos] != '"') {
		int got = 1;

		mem_reserve(text, cap, n + 8);
		text[n] = w->json[w->pos++];
		if (text[n] == '\\')
			got = escape(w, text + n);
		else if ((unsigned char)text[n] < 0x20)
			got = 0;
		good = got > 0;
		n += (size_t)got;
	}
	s->texts[s->n_texts++] = text;
	*out = (struct gguf_str){text, n};
	if (good && w->pos < w->len) {
		w->pos++;
		return ST_OK;
	}
	return bad(w, "the header is not valid JSON: a text that begins at byte %zu", from);
}

static int string(struct walk *w, struct gguf_str *out)
{
	size_t from;

	if (!take(w, '"')) return bad_json(w, "a text");
	from = w->pos;
	for (; w->pos < w->len; w->pos++) {
		unsigned char c = (unsigned char)w->json[w->pos];

		if (c == '"') {
			*out = (struct gguf_str){w->json + from, w->pos++ - from};
			return ST_OK;
		}
		if (c == '\\') return escaped_string(w, from, out);
		if (c < 0x20) break;
	}
	return bad_json(w, "the rest of a text");
}

static int whole_number(struct walk *w, uint64_t *out)
{
	size_t from;

	skip_space(w);
	from = w->pos;
	*out = 0;
	for (; w->pos < w->len && w->json[w->pos] >= '0' && w->json[w->pos] <= '9'; w->pos++)
		if (__builtin_mul_overflow(*out, 10u, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(w->json[w->pos] - '0'), out))
			return bad(w, "the number at byte %zu of the header does not fit 64 bits", from);
	if (w->pos == from || (w->pos - from > 1 && w->json[from] == '0') ||
	    (w->pos < w->len && w->json[w->pos] && strchr(".eE+-", w->json[w->pos]))) {
		w->pos = from;
		return bad_json(w, "a whole number from 0 on");
	}
	return ST_OK;
}

/* -12.5e+3; its value does not matter */
static int skip_number(struct walk *w)
{
	const char *s = w->json;
	size_t p = w->pos + (s[w->pos] == '-'), digits = p;
	bool good;

#define DIGITS() for (digits = p; p < w->len && s[p] >= '0' && s[p] <= '9'; p++)
	DIGITS();
	good = p > digits && (p - digits == 1 || s[digits] != '0');
	if (good && p < w->len && s[p] == '.') {
		p++;
		DIGITS();
		good = p > digits;
	}
	if (good && p < w->len && (s[p] | 32) == 'e') {
		p++;
		if (p < w->len && (s[p] == '+' || s[p] == '-')) p++;
		DIGITS();
		good = p > digits;
	}
#undef DIGITS
	if (!good) return bad_json(w, "a number");
	w->pos = p;
	return ST_OK;
}

static int skip_word(struct walk *w, const char *word)
{
	size_t n = strlen(word);

	if (w->len - w->pos < n || memcmp(w->json + w->pos, word, n) != 0) return bad_json(w, "a value");
	w->pos += n;
	return ST_OK;
}

static int skip_value(struct walk *w, int depth);

static int skip_members(struct walk *w, char end, int depth)
{
	bool more = !take(w, end);
	struct gguf_str key;
	int rc = ST_OK;

	if (depth == NESTING_MAX)
		return bad(w, "the header is nested deeper than %d levels at byte %zu", NESTING_MAX, w->pos);
	while (more && rc == ST_OK) {
		if (end == '}') rc = string(w, &key);
		if (end == '}' && rc == ST_OK) rc = want(w, ':');
		if (rc == ST_OK) rc = skip_value(w, depth + 1);
		if (rc == ST_OK) rc = take_end(w, end, &more);
	}
	return rc;
}

static int skip_value(struct walk *w, int depth)
{
	struct gguf_str text;

	skip_space(w);
	switch (w->pos < w->len ? w->json[w->pos] : 0) {
	case '{':
		w->pos++;
		return skip_members(w, '}', depth);
	case '[':
		w->pos++;
		return skip_members(w, ']', depth);
	case '"':
		return string(w, &text);
	case 't':
		return skip_word(w, "true");
	case 'f':
		return skip_word(w, "false");
	case 'n':
		return skip_word(w, "null");
	case '-':
	case '0':
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
	case '7':
	case '8':
	case '9':
		return skip_number(w);
	default:
		return bad_json(w, "a value");
	}
}

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
	int rc = string(w, &name);

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
	int rc = want(w, '[');

	if (rc != ST_OK || take(w, ']')) return rc;
	do {
		if (e->t.n_dims == CKPT_DIMS_MAX)
			return err_set(w->err, ST_UNSUPPORTED, "more than %d dimensions are not supported",
				       CKPT_DIMS_MAX);
		rc = whole_number(w, &e->t.dims[e->t.n_dims++]);
		if (rc == ST_OK) rc = take_end(w, ']', &more);
	} while (rc == ST_OK && more);
	return rc;
}

static int read_offsets(struct walk *w, struct entry *e)
{
	bool more;
	int rc = want(w, '[');

	if (rc == ST_OK) rc = whole_number(w, &e->from);
	if (rc == ST_OK) rc = want(w, ',');
	if (rc == ST_OK) rc = whole_number(w, &e->to);
	if (rc == ST_OK) rc = take_end(w, ']', &more);
	return rc == ST_OK && more ? bad(w, "more than two numbers") : rc;
}

static int read_field(struct walk *w, struct entry *e)
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
	int rc = string(w, &key);

	if (rc == ST_OK) rc = want(w, ':');
	for (size_t i = 0; i < ARRAY_LEN(fields) && rc == ST_OK; i++) {
		bool *seen = (bool *)((char *)e + fields[i].seen);

		if (!gguf_str_is(key, fields[i].name)) continue;
		if (*seen) return bad(w, "has two fields %s", fields[i].name);
		*seen = true;
		rc = fields[i].read(w, e);
		return rc == ST_OK ? ST_OK : err_prefix(w->err, rc, "%s", fields[i].name);
	}
	return rc == ST_OK ? skip_value(w, 0) : rc;
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
	int rc = take(w, '{') ? ST_OK : bad(w, "is no JSON object");

	if (rc == ST_OK && take(w, '}')) return bad(w, "has no dtype");
	while (rc == ST_OK) {
		rc = read_field(w, e);
		if (rc == ST_OK) rc = take_end(w, '}', &more);
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
	int rc = read_fields(w, &e);

	if (rc != ST_OK) return err_prefix(w->err, rc, "tensor %s", SHOWN(name));
	e.t.data = (const uint8_t *)(uintptr_t)e.from; /* an offset until place_all() */
	mem_reserve(s->tensors, s->cap, s->n + 1);
	s->tensors[s->n++] = e.t;
	return ST_OK;
}

/* Texts alone, as the package demands. */
static int check_metadata(struct walk *w)
{
	struct gguf_str key, value;
	bool more;
	int rc;

	skip_space(w);
	if (w->pos < w->len && w->json[w->pos] == 'n') return skip_word(w, "null");
	rc = want(w, '{');
	if (rc != ST_OK || take(w, '}')) return rc;
	do {
		rc = string(w, &key);
		if (rc == ST_OK) rc = want(w, ':');
		if (rc == ST_OK) rc = string(w, &value);
		if (rc == ST_OK) rc = take_end(w, '}', &more);
	} while (rc == ST_OK && more);
	return rc;
}

/* ---- the whole header ---- */

static int read_header(struct walk *w)
{
	bool more = true, has_metadata = false;
	struct gguf_str name;
	int rc;

	skip_space(w);
	rc = want(w, '{');
	if (rc == ST_OK && take(w, '}')) more = false;
	while (more && rc == ST_OK) {
		rc = string(w, &name);
		if (rc == ST_OK) rc = want(w, ':');
		if (rc == ST_OK && gguf_str_is(name, "__metadata__")) {
			if (has_metadata) return bad(w, "the header has two fields __metadata__");
			has_metadata = true;
			rc = check_metadata(w);
			if (rc != ST_OK) err_prefix(w->err, rc, "__metadata__");
		} else if (rc == ST_OK) {
			rc = read_tensor(w, name);
		}
		if (rc == ST_OK) rc = take_end(w, '}', &more);
	}
	skip_space(w);
	return rc == ST_OK && w->pos < w->len ? bad_json(w, "the end of the header") : rc;
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
	struct walk w = {.out = out, .err = err};
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
	w.json = (const char *)bytes + sizeof(len);
	w.len = (size_t)len;
	if (utf8_valid_len(w.json, w.len) != w.len)
		return bad(&w, "the header is not UTF-8 at byte %zu", utf8_valid_len(w.json, w.len));
	rc = read_header(&w);
	return rc == ST_OK ? place_all(&w, bytes + sizeof(len) + len, size - sizeof(len) - len) : rc;
}

void safetensors_release(struct safetensors *s)
{
	for (size_t i = 0; i < s->n_texts; i++) free(s->texts[i]);
	free(s->texts);
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
