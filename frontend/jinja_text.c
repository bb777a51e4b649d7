/* jinja_text.c - values as text: Python's str() and repr(), JSON, and the text builder that keeps origins.
 *
 * What belongs to a container (brackets, commas, indentation) has the container's origin: a list out of the context prints
 * as input altogether. */
#include "common/utf8.h"
#include "frontend/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* ---- the builder ---- */

void jbuf_init(struct jbuf *b, struct jrun *r)
{
	*b = (struct jbuf){.run = r};
}

/* A piece of an arena made longer, in place when it is the newest one. NULL when memory is out. */
static void *grow(struct jrun *r, struct arena *a, void *p, size_t len, size_t cap, size_t new_cap)
{
	void *q;

	if (p && arena_extend(a, (char *)p + cap, new_cap - cap)) return p;
	q = arena_alloc(a, new_cap, 1);
	if (!q) run_fail(r, ST_LIMIT, "the template needs more than %zu bytes of memory", r->limits->memory_max);
	else if (len) memcpy(q, p, len);
	return q;
}

static bool jbuf_room(struct jbuf *b, size_t more)
{
	size_t cap;
	char *p;
	uint8_t *o;

	if (!run_work(b->run, more)) return false;
	if (more <= b->cap - b->len) return true;
	cap = max_size(b->len + more, max_size(b->cap * 2, 32));
	p = grow(b->run, &b->run->text, b->p, b->len, b->cap, cap);
	if (!p) return false;
	b->p = p;
	if (b->origin) {
		o = grow(b->run, &b->run->origins, b->origin, b->len, b->cap, cap);
		if (!o) return false;
		b->origin = o;
	}
	b->cap = cap;
	return true;
}

/* From here on the bytes have more than one origin. */
static bool jbuf_mix(struct jbuf *b)
{
	if (b->origin) return true;
	b->origin = grow(b->run, &b->run->origins, NULL, 0, 0, b->cap);
	if (!b->origin) return false;
	memset(b->origin, b->input, b->len);
	return true;
}

void jbuf_put(struct jbuf *b, const char *p, size_t len, bool input)
{
	if (!len || !jbuf_room(b, len)) return;
	if (!b->len) b->input = input;
	if (b->input != input && !jbuf_mix(b)) return;
	if (b->origin) memset(b->origin + b->len, input, len);
	memcpy(b->p + b->len, p, len);
	b->len += len;
}

void jbuf_puts(struct jbuf *b, const char *text, bool input)
{
	jbuf_put(b, text, strlen(text), input);
}

void jbuf_str(struct jbuf *b, struct jv s)
{
	if (!s.s.origin) {
		jbuf_put(b, s.s.p, s.s.len, s.input);
		return;
	}
	if (!s.s.len || !jbuf_room(b, s.s.len) || !jbuf_mix(b)) return;
	memcpy(b->origin + b->len, s.s.origin, s.s.len);
	memcpy(b->p + b->len, s.s.p, s.s.len);
	b->len += s.s.len;
}

struct jv jbuf_finish(struct jbuf *b)
{
	struct jv s = jv_view(b->p ? b->p : "", b->len, b->input);

	if (b->p) arena_shrink(&b->run->text, b->p + b->cap, b->cap - b->len);
	if (b->origin) arena_shrink(&b->run->origins, b->origin + b->cap, b->cap - b->len);
	s.s.origin = b->origin;
	b->cap = b->len;
	return s;
}

struct jv jv_concat(struct jrun *r, struct jv a, struct jv b)
{
	size_t len = a.s.len + b.s.len;
	bool mixed = a.s.origin || b.s.origin || a.input != b.input;
	char *p = (char *)a.s.p;
	uint8_t *o = (uint8_t *)a.s.origin;

	if (!b.s.len) return a;
	if (!a.s.len) return b;
	if (!run_work(r, b.s.len)) return a;
	/* A text at the end of the arena grows in place: a chain of "+" costs what it appends. */
	if (!arena_extend(&r->text, p + a.s.len, b.s.len)) {
		run_work(r, a.s.len);
		p = grow(r, &r->text, NULL, 0, 0, len);
		if (!p) return a;
		memcpy(p, a.s.p, a.s.len);
	}
	memcpy(p + a.s.len, b.s.p, b.s.len);
	if (!mixed) return jv_view(p, len, a.input);
	if (!o || !arena_extend(&r->origins, o + a.s.len, b.s.len)) {
		o = grow(r, &r->origins, NULL, 0, 0, len);
		if (!o) return a;
		if (a.s.origin) memcpy(o, a.s.origin, a.s.len);
		else memset(o, a.input, a.s.len);
	}
	if (b.s.origin) memcpy(o + a.s.len, b.s.origin, b.s.len);
	else memset(o + a.s.len, b.input, b.s.len);
	a = jv_view(p, len, true);
	a.s.origin = o;
	return a;
}

/* ---- numbers ---- */

size_t jint_text(jint i, char *out)
{
	unsigned __int128 u = i < 0 ? -(unsigned __int128)i : (unsigned __int128)i;
	char digits[48];
	size_t n = 0, len = 0;

	do digits[n++] = (char)('0' + (int)(u % 10));
	while (u /= 10);
	if (i < 0) out[len++] = '-';
	while (n) out[len++] = digits[--n];
	out[len] = 0;
	return len;
}

/* Python writes an exponent below 1e-4 and from 1e16 on. */
size_t jfloat_repr(double f, char *out)
{
	char e[40], digits[24];
	int precision, n = 0, exponent, i;
	size_t len = 0;
	const char *c;

	if (isnan(f)) return (size_t)sprintf(out, "nan");
	if (isinf(f)) return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
	for (precision = 0; precision < 17; precision++) {
		snprintf(e, sizeof(e), "%.*e", precision, f);
		if (strtod(e, NULL) == f) break;
	}
	for (c = e; *c != 'e'; c++)
		if (*c >= '0' && *c <= '9') digits[n++] = *c;
	exponent = atoi(c + 1);
	while (n > 1 && digits[n - 1] == '0') n--;
	if (signbit(f)) out[len++] = '-';
	if (exponent < -4 || exponent >= 16) {
		out[len++] = digits[0];
		if (n > 1) out[len++] = '.';
		for (i = 1; i < n; i++) out[len++] = digits[i];
		return len + (size_t)sprintf(out + len, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
	}
	for (i = exponent < 0 ? exponent : 0; i < n || i <= exponent + 1; i++) {
		if (i == exponent + 1) out[len++] = '.';
		out[len++] = i < 0 || i >= n ? '0' : digits[i];
	}
	out[len] = 0;
	return len;
}

/* ---- str and repr ---- */

const char *jv_type_name(struct jv v)
{
	static const char *const NAMES[] = {
		[JV_MISSING] = "missing", [JV_UNDEFINED] = "Undefined", [JV_NONE] = "NoneType", [JV_BOOL] = "bool",
		[JV_INT] = "int", [JV_FLOAT] = "float", [JV_STR] = "str", [JV_LIST] = "list", [JV_TUPLE] = "tuple",
		[JV_DICT] = "dict", [JV_RANGE] = "range", [JV_VIEW] = "dict_items", [JV_GENERATOR] = "generator",
		[JV_NAMESPACE] = "Namespace", [JV_MACRO] = "Macro", [JV_FUNCTION] = "function",
		[JV_METHOD] = "builtin_function_or_method", [JV_LOOP] = "LoopContext", [JV_CYCLER] = "Cycler",
		[JV_JOINER] = "Joiner",
	};

	if (v.kind == JV_STR && v.markup) return "Markup";
	if (v.kind == JV_VIEW && v.sub != JVIEW_ITEMS) return v.sub == JVIEW_KEYS ? "dict_keys" : "dict_values";
	return NAMES[v.kind];
}

static bool is_printable(uint32_t cp)
{
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
		return false;
	case UTF8PROC_CATEGORY_ZS:
		return cp == ' ';
	default:
		return true;
	}
}

/* Python's quotes and escapes; each escape has the origin of its character. */
static void repr_string(struct jbuf *b, struct jv s)
{
	bool in = jv_has_input(s);
	char quote = memchr(s.s.p, '\'', s.s.len) && !memchr(s.s.p, '"', s.s.len) ? '"' : '\'';
	char text[16];
	size_t at;
	uint32_t cp;
	int n;

	if (s.markup) jbuf_puts(b, "Markup(", in);
	jbuf_put(b, &quote, 1, in);
	for (at = 0; at < s.s.len && !b->run->rc; at += (size_t)n) {
		bool input = s.s.origin ? s.s.origin[at] : s.input;

		n = utf8_decode(s.s.p + at, &cp);
		if (cp == (unsigned char)quote || cp == '\\') snprintf(text, sizeof(text), "\\%c", (int)cp);
		else if (cp == '\n') snprintf(text, sizeof(text), "\\n");
		else if (cp == '\r') snprintf(text, sizeof(text), "\\r");
		else if (cp == '\t') snprintf(text, sizeof(text), "\\t");
		else if (is_printable(cp)) snprintf(text, sizeof(text), "%.*s", n, s.s.p + at);
		else if (cp < 0x100) snprintf(text, sizeof(text), "\\x%02x", cp);
		else snprintf(text, sizeof(text), cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
		jbuf_puts(b, text, input);
	}
	jbuf_put(b, &quote, 1, in);
	if (s.markup) jbuf_puts(b, ")", in);
}

static void repr_items(struct jbuf *b, struct jv v, const char *open, const char *close)
{
	size_t i;

	jbuf_puts(b, open, v.input);
	for (i = 0; i < v.list.n && run_step(b->run); i++) {
		if (i) jbuf_puts(b, ", ", v.input);
		jbuf_repr(b, v.list.items[i]);
	}
	if (v.kind == JV_TUPLE && v.list.n == 1) jbuf_puts(b, ",", v.input);
	jbuf_puts(b, close, v.input);
}

static void repr_dict(struct jbuf *b, struct jv v)
{
	size_t i;

	jbuf_puts(b, "{", v.input);
	for (i = 0; i < v.dict->n && run_step(b->run); i++) {
		if (i) jbuf_puts(b, ", ", v.input);
		jbuf_repr(b, v.dict->entries[i].key);
		jbuf_puts(b, ": ", v.input);
		jbuf_repr(b, v.dict->entries[i].value);
	}
	jbuf_puts(b, "}", v.input);
}

static void repr_range(struct jbuf *b, struct jv v)
{
	char text[100];

	if (v.range.step == 1) snprintf(text, sizeof(text), "range(%d, %d)", v.range.start, v.range.stop);
	else snprintf(text, sizeof(text), "range(%d, %d, %d)", v.range.start, v.range.stop, v.range.step);
	jbuf_puts(b, text, v.input);
}

static void repr_plain(struct jbuf *b, struct jv v)
{
	char text[64];

	switch (v.kind) {
	case JV_UNDEFINED:
		jbuf_puts(b, "Undefined", false);
		break;
	case JV_NONE:
		jbuf_puts(b, "None", v.input);
		break;
	case JV_BOOL:
		jbuf_puts(b, v.b ? "True" : "False", v.input);
		break;
	case JV_INT:
		jbuf_put(b, text, jint_text(v.i, text), v.input);
		break;
	case JV_FLOAT:
		jbuf_put(b, text, jfloat_repr(v.f, text), v.input);
		break;
	default: /* things that only a mistaken template prints */
		snprintf(text, sizeof(text), "<%s object>", jv_type_name(v));
		jbuf_puts(b, text, v.input);
	}
}

void jbuf_repr(struct jbuf *b, struct jv v)
{
	struct jrun *r = b->run;

	if (!run_enter(r)) {
		run_leave(r);
		return;
	}
	switch (v.kind) {
	case JV_STR:
		repr_string(b, v);
		break;
	case JV_LIST:
		repr_items(b, v, "[", "]");
		break;
	case JV_TUPLE:
		repr_items(b, v, "(", ")");
		break;
	case JV_VIEW:
		jbuf_puts(b, jv_type_name(v), v.input);
		repr_items(b, v, "([", "])");
		break;
	case JV_DICT:
		repr_dict(b, v);
		break;
	case JV_NAMESPACE:
		jbuf_puts(b, "<Namespace ", false);
		repr_dict(b, v);
		jbuf_puts(b, ">", false);
		break;
	case JV_RANGE:
		repr_range(b, v);
		break;
	default:
		repr_plain(b, v);
	}
	run_leave(r);
}

struct jv jv_repr(struct jrun *r, struct jv v)
{
	struct jbuf b;

	jbuf_init(&b, r);
	jbuf_repr(&b, v);
	return jbuf_finish(&b);
}

struct jv jv_to_str(struct jrun *r, struct jv v)
{
	if (v.kind == JV_STR) return v;
	if (v.kind == JV_UNDEFINED) return jv_lit("");
	return jv_repr(r, v);
}
