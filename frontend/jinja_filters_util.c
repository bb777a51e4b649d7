/* jinja_filters_util.c - padding, and reading numbers as Python's int() and float() do. */
#include "common/utf8.h"
#include "frontend/jinja_filters.h"

#include <stdlib.h>
#include <utf8proc.h>

struct jv jfilter_pad(struct jrun *r, struct jv s, int64_t width, struct jv fill, enum jpad where)
{
	int64_t len = (int64_t)jchars_count(r, s), left, i;
	struct jbuf b;
	struct jv v;

	if (width <= len || r->rc) return s;
	if (fill.kind != JV_STR || jchars_count(r, fill) != 1)
		return run_error(r, "The fill character must be exactly one character long");
	width -= len;
	/* Python puts the odd one to the left when the width asked for is odd. */
	left = where == JPAD_LEFT ? width : where == JPAD_RIGHT ? 0 : width / 2 + (width & (width + len) & 1);
	jbuf_init(&b, r);
	for (i = 0; i < left && run_step(r); i++) jbuf_str(&b, fill);
	jbuf_str(&b, s);
	for (; i < width && run_step(r); i++) jbuf_str(&b, fill);
	v = jbuf_finish(&b);
	v.markup = s.markup;
	return v;
}

bool jfilter_is_alnum(uint32_t cp)
{
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO:
		return true;
	default:
		return false;
	}
}

/* The text without white space around it and without underscores between digits; false when it cannot be a number. */
static bool number_text(struct jv s, char *out, size_t n)
{
	size_t i, len = 0;

	while (s.s.len && strchr(" \t\n\r\f\v", s.s.p[0] ? s.s.p[0] : 'x')) s = jv_sub(s, 1, s.s.len - 1);
	while (s.s.len && strchr(" \t\n\r\f\v", s.s.p[s.s.len - 1] ? s.s.p[s.s.len - 1] : 'x')) s.s.len--;
	if (!s.s.len || s.s.len >= n) return false;
	for (i = 0; i < s.s.len; i++) {
		if (s.s.p[i] == '_' && (i == 0 || i + 1 == s.s.len || s.s.p[i - 1] == '_')) return false;
		if (s.s.p[i] != '_') out[len++] = s.s.p[i];
	}
	out[len] = 0;
	return strlen(out) == len;
}

bool jfilter_parse_int(struct jv s, int base, jint *out)
{
	char text[160];
	const char *c = text;
	bool minus;
	int prefix, d;
	jint v = 0;

	if (!number_text(s, text, sizeof(text))) return false;
	minus = *c == '-';
	if (*c == '-' || *c == '+') c++;
	prefix = c[0] != '0' ? 0 : (c[1] | 32) == 'x' ? 16 : (c[1] | 32) == 'o' ? 8 : (c[1] | 32) == 'b' ? 2 : 0;
	if (prefix && (base == prefix || base == 0)) {
		base = prefix;
		c += 2;
	}
	if (base == 0) base = 10;
	if (!*c) return false;
	for (; *c; c++) {
		d = *c >= '0' && *c <= '9' ? *c - '0' : (*c | 32) >= 'a' && (*c | 32) <= 'z' ? (*c | 32) - 'a' + 10 : 99;
		if (d >= base) return false;
		if (__builtin_mul_overflow(v, (jint)base, &v) || __builtin_add_overflow(v, (jint)d, &v)) return false;
	}
	*out = minus ? -v : v;
	return true;
}

bool jfilter_parse_float(struct jv s, double *out)
{
	char text[400], *end;
	const char *c;

	if (!number_text(s, text, sizeof(text))) return false;
	for (c = text; *c; c++)
		if (*c == 'x' || *c == 'X' || *c == '(' || *c == 'p' || *c == 'P') return false; /* strtod reads more than Python */
	*out = strtod(text, &end);
	return *end == 0;
}
