/* jinja_format.c - '...' % values, '...'.format(...) and strftime.
 *
 * Literal parts keep the origin of the format, inserted parts that of their value. Widths and precisions are bounded, and
 * padding is paid for in steps. Not supported: nested fields inside a format specification. */
#include "common/utf8.h"
#include "frontend/jinja_filters.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define FORMAT_WIDTH_MAX 1000000
#define FORMAT_PRECISION_MAX 300

struct fspec {
	struct jv fill; /* one character */
	char align;     /* < > ^ = or 0 */
	char sign;      /* + - or blank; 0: none */
	bool alternate, zero;
	char group; /* , or _; 0: none */
	int64_t width, precision; /* precision -1: none */
	char type;                /* 0: none */
};

/* Puts `text`, whose first `sign_len` bytes are its sign and prefix, padded to the width. */
static void put_padded(struct jbuf *b, struct jv text, size_t sign_len, const struct fspec *f, char align)
{
	struct jrun *r = b->run;
	struct jv fill = f->fill;
	int64_t pad = f->width - (int64_t)jchars_count(r, text), left, i;

	if (f->align) align = f->align;
	if (pad < 0) pad = 0;
	if (!fill.s.origin) fill.input |= jv_has_input(text);
	left = align == '>' || align == '=' ? pad : align == '^' ? pad / 2 : 0;
	if (align == '=') jbuf_str(b, jv_sub(text, 0, sign_len));
	for (i = 0; i < left && run_step(r); i++) jbuf_str(b, fill);
	jbuf_str(b, align == '=' ? jv_sub(text, sign_len, text.s.len - sign_len) : text);
	for (; i < pad && run_step(r); i++) jbuf_str(b, fill);
}

/* Digits with a separator every `every` ones, from the right, up to the point or the end. */
static size_t group_digits(const char *in, char sep, size_t every, char *out)
{
	size_t whole = strspn(in, "0123456789abcdefABCDEF"), i, n = 0;

	for (i = 0; i < whole; i++) {
		if (sep && i && (whole - i) % every == 0) out[n++] = sep;
		out[n++] = in[i];
	}
	strcpy(out + n, in + whole);
	return strlen(out);
}

static size_t int_digits(jint v, unsigned base, bool upper, char *out)
{
	unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
	char digits[130];
	size_t n = 0, len = 0;

	do digits[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
	while (u /= base);
	while (n) out[len++] = digits[--n];
	out[len] = 0;
	return len;
}

/* A number's sign, prefix and digits as text: `digits` has no sign. */
static void put_number(struct jbuf *b, bool negative, const char *prefix, const char *digits, bool input, const struct fspec *f)
{
	char grouped[1800], text[2400];
	size_t every = f->type && strchr("xXob", f->type) ? 4 : 3, sign_len, n;

	if (f->group) group_digits(digits, f->group, every, grouped);
	sign_len = (size_t)snprintf(text, sizeof(text), "%s%s", negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "", prefix);
	n = (size_t)snprintf(text + sign_len, sizeof(text) - sign_len, "%s", f->group ? grouped : digits);
	put_padded(b, jv_view(text, sign_len + n, input), sign_len, f, f->zero && !f->align ? '=' : '>');
}

static void put_int(struct jbuf *b, jint v, bool input, const struct fspec *f)
{
	char digits[160], padded[FORMAT_PRECISION_MAX + 200];
	unsigned base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
	const char *prefix = !f->alternate ? "" : base == 16 ? (f->type == 'X' ? "0X" : "0x") : base == 8 ? "0o" : base == 2 ? "0b" : "";
	size_t n = int_digits(v, base, f->type == 'X', digits), zeros = 0;

	if (f->precision > (int64_t)n) zeros = (size_t)f->precision - n;
	memset(padded, '0', zeros);
	memcpy(padded + zeros, digits, n + 1);
	put_number(b, v < 0, prefix, padded, input, f);
}

static void put_float(struct jbuf *b, double v, bool input, const struct fspec *f)
{
	char text[FORMAT_PRECISION_MAX + 400], pattern[16];
	char type = f->type ? f->type : 'g';
	int precision = f->precision < 0 ? 6 : (int)f->precision;
	bool upper = type == 'E' || type == 'F' || type == 'G';
	double size = fabs(v);

	if (type == '%') size *= 100;
	if (!isfinite(v)) {
		snprintf(text, sizeof(text), "%s", isnan(v) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
	} else if (!f->type && f->precision < 0) {
		text[jfloat_repr(size, text)] = 0;
	} else {
		snprintf(pattern, sizeof(pattern), "%%%s.*%c", f->alternate ? "#" : "", type == '%' ? 'f' : type);
		snprintf(text, sizeof(text) - 2, pattern, precision, size);
	}
	if (type == '%') strcat(text, "%");
	put_number(b, !isnan(v) && signbit(v), "", text, input, f);
}

static void put_text(struct jbuf *b, struct jv s, const struct fspec *f, char align)
{
	if (f->precision >= 0) s = jv_sub(s, 0, jchars_offset(b->run, s, (size_t)f->precision));
	put_padded(b, s, 0, f, align);
}

/* ---- percent ---- */

struct percent {
	struct jv fmt;
	size_t at;
	struct jv args; /* tuple, dict or one value */
	size_t used;
	bool by_key;
};

static struct jv percent_next(struct jrun *r, struct percent *p)
{
	if (p->args.kind == JV_TUPLE && p->used < p->args.list.n) return p->args.list.items[p->used++];
	if (p->args.kind != JV_TUPLE && !p->used) {
		p->used++;
		return p->args;
	}
	return run_error(r, "not enough arguments for format string");
}

static char percent_char(struct percent *p)
{
	return p->at < p->fmt.s.len ? p->fmt.s.p[p->at] : 0;
}

/* Digits or "*". */
static int64_t percent_number(struct jrun *r, struct percent *p, int64_t max)
{
	int64_t n = 0;

	if (percent_char(p) == '*') {
		p->at++;
		return arg_int(r, percent_next(r, p), 0, -max, max);
	}
	while (percent_char(p) >= '0' && percent_char(p) <= '9') {
		n = n * 10 + (p->fmt.s.p[p->at++] - '0');
		if (n > max) n = max;
	}
	return n;
}

static void percent_spec(struct jrun *r, struct percent *p, struct fspec *f)
{
	*f = (struct fspec){.fill = jv_lit(" "), .precision = -1};
	for (;; p->at++) {
		char c = percent_char(p);

		if (c == '-') f->align = '<';
		else if (c == '+') f->sign = '+';
		else if (c == ' ') f->sign = f->sign ? f->sign : ' ';
		else if (c == '#') f->alternate = true;
		else if (c == '0') f->zero = true;
		else break;
	}
	f->width = percent_number(r, p, FORMAT_WIDTH_MAX);
	if (f->width < 0) {
		f->align = '<';
		f->width = -f->width;
	}
	if (percent_char(p) == '.') {
		p->at++;
		f->precision = percent_number(r, p, FORMAT_WIDTH_MAX);
		if (f->precision < 0) f->precision = 0;
	}
	while (percent_char(p) && strchr("hlL", percent_char(p))) p->at++;
	f->type = percent_char(p);
	p->at += f->type != 0;
	if (f->zero && !f->align) f->fill = jv_lit("0");
	if (f->align == '<') f->zero = false;
}

static void percent_value(struct jbuf *b, struct jv v, struct fspec *f)
{
	struct jrun *r = b->run;
	struct jv s;
	char c[4];

	if (f->type && strchr("diu", f->type)) f->type = 'd';
	if (f->type && strchr("sra", f->type)) {
		f->zero = false;
		f->fill = jv_lit(" ");
		put_text(b, f->type == 's' ? jv_to_str(r, v) : jv_repr(r, v), f, '>');
		return;
	}
	if (f->precision > FORMAT_PRECISION_MAX) f->precision = FORMAT_PRECISION_MAX;
	if (f->type == 'c') {
		s = v;
		if (jv_is_integral(v) && jv_as_int(v) >= 0 && jv_as_int(v) <= 0x10ffff && (jv_as_int(v) < 0xd800 || jv_as_int(v) > 0xdfff))
			s = jv_view(c, (size_t)utf8_encode((uint32_t)jv_as_int(v), c), v.input);
		if (s.kind == JV_STR && jchars_count(r, s) == 1) put_text(b, s, f, '>');
		else run_error(r, "%%c requires int or char");
	} else if (v.kind == JV_UNDEFINED) {
		jv_undefined_error(r, v);
	} else if (!jv_is_number(v)) {
		run_error(r, "%%%c format: a real number is required, not %s", f->type ? f->type : '?', jv_type_name(v));
	} else if (f->type && strchr("dxXo", f->type)) {
		if (v.kind == JV_FLOAT && (f->type != 'd' || !isfinite(v.f) || fabs(v.f) > 1e37))
			run_error(r, "%%%c format: an integer is required, not float", f->type);
		else put_int(b, v.kind == JV_FLOAT ? (jint)v.f : jv_as_int(v), v.input, f);
	} else if (f->type && strchr("eEfFgG", f->type)) {
		put_float(b, jv_as_float(v), v.input, f);
	} else {
		run_error(r, "unsupported format character '%c'", f->type >= ' ' && f->type < 127 ? f->type : '?');
	}
}

static void percent_field(struct jbuf *b, struct percent *p)
{
	struct jrun *r = b->run;
	struct fspec f;
	struct jv v = {.kind = JV_MISSING}, key;
	const struct jv *item;
	ptrdiff_t end;

	if (percent_char(p) == '(') {
		end = jchars_find(r, p->fmt, jv_lit(")"), p->at, p->fmt.s.len);
		if (p->args.kind != JV_DICT || end < 0) {
			run_error(r, end < 0 ? "incomplete format key" : "format requires a mapping");
			return;
		}
		key = jv_sub(p->fmt, p->at + 1, (size_t)end - p->at - 1);
		item = jdict_get(r, p->args.dict, key);
		if (item) v = *item;
		else run_error(r, "the format key is missing in the mapping");
		p->by_key = true;
		p->at = (size_t)end + 1;
	}
	percent_spec(r, p, &f);
	if (f.type == '%') {
		jbuf_puts(b, "%", jv_has_input(p->fmt));
		return;
	}
	if (!f.type) run_error(r, "incomplete format");
	else if (!jv_given(v)) v = percent_next(r, p);
	if (!r->rc) percent_value(b, v, &f);
}

struct jv format_percent(struct jrun *r, struct jv fmt, struct jv args)
{
	struct percent p = {.fmt = fmt, .args = args};
	ptrdiff_t at;
	struct jbuf b;
	struct jv v;

	jbuf_init(&b, r);
	while (run_step(r)) {
		at = jchars_find(r, fmt, jv_lit("%"), p.at, fmt.s.len);
		if (at < 0) break;
		jbuf_str(&b, jv_sub(fmt, p.at, (size_t)at - p.at));
		p.at = (size_t)at + 1;
		percent_field(&b, &p);
	}
	if (r->rc) return jv_none();
	jbuf_str(&b, jv_sub(fmt, p.at, fmt.s.len - p.at));
	if (!p.by_key && args.kind != JV_DICT && (args.kind == JV_TUPLE ? p.used < args.list.n : !p.used))
		return run_error(r, "not all arguments converted during string formatting");
	v = jbuf_finish(&b);
	v.markup = fmt.markup;
	return v;
}

/* ---- braces ---- */

/* "[[fill]align][sign][#][0][width][group][.precision][type]" */
static bool brace_spec(struct jv s, struct fspec *f)
{
	uint32_t cp;
	size_t at = 0, n = s.s.len ? (size_t)utf8_decode(s.s.p, &cp) : 0;
	const char *p = s.s.p;

	*f = (struct fspec){.fill = jv_lit(" "), .precision = -1};
	if (n < s.s.len && strchr("<>^=", p[n]) && p[n]) {
		f->fill = jv_sub(s, 0, n);
		f->align = p[n];
		at = n + 1;
	} else if (s.s.len && p[0] && strchr("<>^=", p[0])) {
		f->align = p[at++];
	}
	if (at < s.s.len && p[at] && strchr("+- ", p[at])) f->sign = p[at++];
	if (at < s.s.len && p[at] == '#') f->alternate = p[at++] == '#';
	if (at < s.s.len && p[at] == '0') {
		f->zero = p[at++] == '0';
		if (!f->align) f->fill = jv_lit("0");
	}
	for (; at < s.s.len && p[at] >= '0' && p[at] <= '9'; at++) f->width = (int64_t)min_u64((uint64_t)f->width * 10 + (uint64_t)(p[at] - '0'), FORMAT_WIDTH_MAX);
	if (at < s.s.len && (p[at] == ',' || p[at] == '_')) f->group = p[at++];
	if (at < s.s.len && p[at] == '.') {
		f->precision = 0;
		for (at++; at < s.s.len && p[at] >= '0' && p[at] <= '9'; at++)
			f->precision = (int64_t)min_u64((uint64_t)f->precision * 10 + (uint64_t)(p[at] - '0'), FORMAT_WIDTH_MAX);
	}
	if (at < s.s.len) f->type = p[at++];
	return at == s.s.len;
}

static void brace_value(struct jbuf *b, struct jv v, struct jv spec)
{
	struct jrun *r = b->run;
	struct fspec f;

	if (!brace_spec(spec, &f)) {
		run_error(r, "Invalid format specifier");
		return;
	}
	if (v.kind == JV_STR && (!f.type || f.type == 's') && f.align != '=') {
		put_text(b, v, &f, '<');
	} else if (jv_is_number(v)) {
		if (v.kind == JV_BOOL && !spec.s.len) {
			put_text(b, jv_to_str(r, v), &f, '<');
			return;
		}
		if (f.precision > FORMAT_PRECISION_MAX) f.precision = FORMAT_PRECISION_MAX;
		if (v.kind != JV_FLOAT && f.precision >= 0 && (!f.type || strchr("dxXobn", f.type)))
			run_error(r, "Precision not allowed in integer format specifier");
		else if (v.kind != JV_FLOAT && (!f.type || strchr("dxXobn", f.type))) put_int(b, jv_as_int(v), v.input, &f);
		else if (!f.type || strchr("eEfFgG%", f.type)) put_float(b, jv_as_float(v), v.input, &f);
		else run_error(r, "Unknown format code for object of type '%s'", jv_type_name(v));
	} else if (!spec.s.len) {
		jbuf_str(b, jv_to_str(r, v));
	} else {
		run_error(r, "unsupported format string passed to %s.__format__", jv_type_name(v));
	}
}

/* The argument that "0", "name" or "" (the next one) means. */
static struct jv brace_argument(struct jrun *r, struct jv name, const struct jargs *args, size_t *next)
{
	jint ix = -1;
	size_t i;

	if (!name.s.len) ix = (jint)(*next)++;
	else if (name.s.p[0] >= '0' && name.s.p[0] <= '9' && !jfilter_parse_int(name, 10, &ix)) ix = INT32_MAX;
	if (ix >= 0) return ix < (jint)args->n_pos ? args->pos[ix] : run_error(r, "Replacement index out of range for positional args tuple");
	for (i = 0; i < args->n_kw; i++)
		if (jv_equal(r, args->kw[i].name, name)) return args->kw[i].value;
	return run_error(r, "the format names an argument that was not given");
}

/* "name.attr[key]" */
static struct jv brace_lookup(struct jrun *r, struct jv field, const struct jargs *args, size_t *next)
{
	size_t at = 0, from;
	struct jv v, key;
	jint number;

	while (at < field.s.len && field.s.p[at] != '.' && field.s.p[at] != '[') at++;
	v = brace_argument(r, jv_sub(field, 0, at), args, next);
	while (at < field.s.len && run_step(r)) {
		bool is_key = field.s.p[at++] == '[';

		for (from = at; at < field.s.len && (is_key ? field.s.p[at] != ']' : field.s.p[at] != '.' && field.s.p[at] != '[');) at++;
		key = jv_sub(field, from, at - from);
		if (is_key && at++ == field.s.len) return run_error(r, "Missing ']' in format string");
		if (!is_key) v = jv_getattr(r, v, key);
		else v = jv_getitem(r, v, jfilter_parse_int(key, 10, &number) ? jv_int(number) : key);
	}
	return v;
}

/* One "{...}"; inner has no braces around it. */
static void brace_field(struct jbuf *b, struct jv inner, const struct jargs *args, size_t *next)
{
	struct jrun *r = b->run;
	struct jv spec = jv_sub(inner, inner.s.len, 0), v;
	ptrdiff_t colon = jchars_find(r, inner, jv_lit(":"), 0, inner.s.len);
	char conversion = 0;

	if (colon >= 0) {
		spec = jv_sub(inner, (size_t)colon + 1, inner.s.len - (size_t)colon - 1);
		inner = jv_sub(inner, 0, (size_t)colon);
	}
	if (inner.s.len >= 2 && inner.s.p[inner.s.len - 2] == '!') {
		conversion = inner.s.p[inner.s.len - 1];
		inner.s.len -= 2;
	}
	v = brace_lookup(r, inner, args, next);
	if (conversion == 's') v = jv_to_str(r, v);
	else if (conversion == 'r' || conversion == 'a') v = jv_repr(r, v);
	if (!r->rc) brace_value(b, v, spec);
}

struct jv format_braces(struct jrun *r, struct jv fmt, const struct jargs *args)
{
	size_t at = 0, plain = 0, next = 0, end;
	struct jbuf b;
	struct jv v;

	jbuf_init(&b, r);
	for (; at < fmt.s.len && run_work(r, 4); at++) {
		char c = fmt.s.p[at];

		if (c != '{' && c != '}') continue;
		jbuf_str(&b, jv_sub(fmt, plain, at - plain));
		if (at + 1 < fmt.s.len && fmt.s.p[at + 1] == c) { /* doubled: itself */
			plain = ++at;
			continue;
		}
		for (end = at + 1; end < fmt.s.len && fmt.s.p[end] != '}' && fmt.s.p[end] != '{';) end++;
		if (c == '}' || end == fmt.s.len) return run_error(r, "Single '%c' encountered in format string", c);
		if (fmt.s.p[end] == '{') return run_error(r, "nested fields in a format string are not supported");
		brace_field(&b, jv_sub(fmt, at + 1, end - at - 1), args, &next);
		at = end;
		plain = end + 1;
	}
	if (r->rc) return jv_none();
	jbuf_str(&b, jv_sub(fmt, plain, fmt.s.len - plain));
	v = jbuf_finish(&b);
	v.markup = fmt.markup;
	return v;
}

/* ---- time ---- */

struct jv format_time(struct jrun *r, struct jv fmt, int64_t now_s)
{
	time_t t = (time_t)now_s;
	struct tm tm;
	struct jbuf b;
	char pattern[5], text[128];
	size_t i, n;
	bool input = jv_has_input(fmt);

	if (!gmtime_r(&t, &tm)) return run_error(r, "the time is out of range");
	jbuf_init(&b, r);
	for (i = 0; i < fmt.s.len && run_step(r); i++) {
		if (fmt.s.p[i] != '%' || i + 1 == fmt.s.len) {
			jbuf_str(&b, jv_sub(fmt, i, 1));
			continue;
		}
		n = 0;
		pattern[n++] = '%';
		i++;
		if (i + 1 < fmt.s.len && strchr("-_0^#", fmt.s.p[i]) && fmt.s.p[i]) pattern[n++] = fmt.s.p[i++]; /* as glibc */
		pattern[n++] = fmt.s.p[i];
		pattern[n] = 0;
		if (fmt.s.p[i] == 'f') strcpy(text, "000000");
		else if (fmt.s.p[i] == 'Z' || fmt.s.p[i] == 'z') text[0] = 0; /* a local time without a zone */
		else if (!strchr("aAbBcdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%C", fmt.s.p[i])) strcpy(text, pattern);
		else text[strftime(text, sizeof(text), pattern, &tm)] = 0;
		jbuf_puts(&b, text, input);
	}
	return jbuf_finish(&b);
}
