/* jinja_chars.c - the work on texts that filters and methods share: counting, stripping, case, finding, splitting.
 *
 * Positions that templates see count characters; inside, everything is bytes. Results are views where they can be, else
 * they are built through struct jbuf, so every byte keeps its origin. */
#include "common/utf8.h"
#include "frontend/jinja_value.h"

#include <utf8proc.h>

size_t jchars_count(struct jrun *r, struct jv s)
{
	size_t i, n = 0;

	run_work(r, s.s.len);
	for (i = 0; i < s.s.len; i++) n += ((unsigned char)s.s.p[i] & 0xc0) != 0x80;
	return n;
}

size_t jchars_offset(struct jrun *r, struct jv s, size_t ix)
{
	size_t i;

	for (i = 0; i < s.s.len; i++) {
		if (((unsigned char)s.s.p[i] & 0xc0) == 0x80) continue;
		if (!ix--) break;
	}
	run_work(r, i);
	return i;
}

bool jchars_is_space(uint32_t cp)
{
	return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
	       (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Is this character one of `chars`; of white space when that is not a string? */
static bool in_set(struct jrun *r, uint32_t cp, struct jv chars)
{
	size_t at = 0;
	uint32_t c;

	if (chars.kind != JV_STR) return jchars_is_space(cp);
	while (at < chars.s.len && run_work(r, 4)) {
		at += (size_t)utf8_decode(chars.s.p + at, &c);
		if (c == cp) return true;
	}
	return false;
}

struct jv jchars_strip(struct jrun *r, struct jv s, struct jv chars, bool left, bool right)
{
	size_t from = 0, to = s.s.len, at;
	uint32_t cp;
	int n;

	while (left && from < to && run_work(r, 8)) {
		n = utf8_decode(s.s.p + from, &cp);
		if (!in_set(r, cp, chars)) break;
		from += (size_t)n;
	}
	while (right && to > from && run_work(r, 8)) {
		for (at = to - 1; at > from && ((unsigned char)s.s.p[at] & 0xc0) == 0x80;) at--;
		utf8_decode(s.s.p + at, &cp);
		if (!in_set(r, cp, chars)) break;
		to = at;
	}
	return jv_sub(s, from, to - from);
}

bool jchars_is_cased(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

	return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static void put_case(struct jbuf *b, uint32_t cp, bool upper, bool input)
{
	char out[4];

	if (upper && cp == 0xdf) { /* the one full mapping that texts contain */
		jbuf_puts(b, "SS", input);
		return;
	}
	cp = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_tolower((utf8proc_int32_t)cp));
	jbuf_put(b, out, (size_t)utf8_encode(cp, out), input);
}

void jbuf_case(struct jbuf *b, struct jv s, enum jcase how)
{
	bool in_word = false, upper;
	size_t at;
	uint32_t cp;
	int n;

	for (at = 0; at < s.s.len && run_work(b->run, 4); at += (size_t)n) {
		n = utf8_decode(s.s.p + at, &cp);
		upper = how == JCASE_UPPER || (how == JCASE_TITLE && !in_word) || (how == JCASE_CAPITALIZE && at == 0) ||
			(how == JCASE_SWAP && utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LL);
		in_word = jchars_is_cased(cp);
		if (how == JCASE_FOLD && cp == 0xdf) jbuf_puts(b, "ss", s.s.origin ? s.s.origin[at] : s.input);
		else put_case(b, cp, upper, s.s.origin ? s.s.origin[at] : s.input);
	}
}

struct jv jchars_case(struct jrun *r, struct jv s, enum jcase how)
{
	struct jbuf b;
	struct jv v;

	jbuf_init(&b, r);
	jbuf_case(&b, s, how);
	v = jbuf_finish(&b);
	v.markup = s.markup;
	return v;
}

ptrdiff_t jchars_find(struct jrun *r, struct jv s, struct jv what, size_t from, size_t to)
{
	const char *p;

	if (from > to || what.s.len > to - from) return -1;
	p = memmem(s.s.p + from, to - from, what.s.p, what.s.len);
	run_work(r, p ? (size_t)(p - s.s.p) - from + what.s.len : to - from);
	return p ? p - s.s.p : -1;
}

ptrdiff_t jchars_rfind(struct jrun *r, struct jv s, struct jv what, size_t from, size_t to)
{
	size_t at;

	if (from > to || what.s.len > to - from) return -1;
	for (at = to - what.s.len;; at--) {
		if (memcmp(s.s.p + at, what.s.p, what.s.len) == 0) return (ptrdiff_t)at;
		if (at == from || !run_work(r, 1 + what.s.len / 8)) return -1;
	}
}

/* With an empty `old`, `with` goes in front of every character and to the end, as in Python. */
static struct jv replace_empty(struct jrun *r, struct jv s, struct jv with, jint count)
{
	struct jbuf b;
	size_t at = 0;
	uint32_t cp;
	int n;

	jbuf_init(&b, r);
	while (run_step(r)) {
		if (count != 0) jbuf_str(&b, with);
		if (count > 0) count--;
		if (at >= s.s.len) break;
		n = utf8_decode(s.s.p + at, &cp);
		jbuf_str(&b, jv_sub(s, at, (size_t)n));
		at += (size_t)n;
	}
	return jbuf_finish(&b);
}

struct jv jchars_replace(struct jrun *r, struct jv s, struct jv old, struct jv with, jint count)
{
	struct jbuf b;
	size_t from = 0;
	ptrdiff_t at;

	if (!old.s.len) return replace_empty(r, s, with, count);
	at = count == 0 ? -1 : jchars_find(r, s, old, 0, s.s.len);
	if (at < 0) return s;
	jbuf_init(&b, r);
	while (at >= 0 && run_step(r)) {
		jbuf_str(&b, jv_sub(s, from, (size_t)at - from));
		jbuf_str(&b, with);
		from = (size_t)at + old.s.len;
		if (count > 0) count--;
		at = count == 0 ? -1 : jchars_find(r, s, old, from, s.s.len);
	}
	jbuf_str(&b, jv_sub(s, from, s.s.len - from));
	return jbuf_finish(&b);
}

/* ---- splitting ---- */

static struct jv vec_list(const struct jvec *v, struct jv s)
{
	return jv_list(JV_LIST, v->items, v->n, jv_has_input(s));
}

/* Splits at runs of white space, from the left. */
static struct jv split_space(struct jrun *r, struct jv s, jint max)
{
	struct jvec v = {0};
	size_t at = 0, from;
	uint32_t cp;
	int n;

	for (;;) {
		s = jchars_strip(r, jv_sub(s, at, s.s.len - at), jv_none(), true, false);
		if (!s.s.len || !run_step(r)) break;
		if (max >= 0 && v.n == (size_t)max) {
			jvec_push(r, &v, s); /* the rest, with the white space at its end */
			break;
		}
		for (from = 0; from < s.s.len && run_work(r, 8); from += (size_t)n) {
			n = utf8_decode(s.s.p + from, &cp);
			if (jchars_is_space(cp)) break;
		}
		if (!jvec_push(r, &v, jv_sub(s, 0, from))) break;
		at = from;
	}
	return vec_list(&v, s);
}

static void reverse(struct jvec *v)
{
	size_t i;

	for (i = 0; i < v->n / 2; i++) {
		struct jv t = v->items[i];

		v->items[i] = v->items[v->n - 1 - i];
		v->items[v->n - 1 - i] = t;
	}
}

static struct jv rsplit_space(struct jrun *r, struct jv s, jint max)
{
	struct jvec v = {0};
	size_t at, end;
	uint32_t cp;

	for (;;) {
		s = jchars_strip(r, s, jv_none(), false, true);
		if (!s.s.len || !run_step(r)) break;
		if (max >= 0 && v.n == (size_t)max) {
			jvec_push(r, &v, s);
			break;
		}
		for (end = s.s.len; end > 0 && run_work(r, 8); end = at) {
			for (at = end - 1; at > 0 && ((unsigned char)s.s.p[at] & 0xc0) == 0x80;) at--;
			utf8_decode(s.s.p + at, &cp);
			if (jchars_is_space(cp)) break;
		}
		if (!jvec_push(r, &v, jv_sub(s, end, s.s.len - end))) break;
		s = jv_sub(s, 0, end);
	}
	reverse(&v);
	return vec_list(&v, s);
}

struct jv jchars_split(struct jrun *r, struct jv s, struct jv sep, jint max, bool from_right)
{
	struct jvec v = {0};
	size_t from = 0, to = s.s.len;
	ptrdiff_t at;

	if (max > INT32_MAX) max = -1;
	if (sep.kind != JV_STR) return from_right ? rsplit_space(r, s, max) : split_space(r, s, max);
	if (!sep.s.len) return run_error(r, "empty separator");
	while (run_step(r)) {
		at = max >= 0 && v.n == (size_t)max ? -1
		     : from_right                   ? jchars_rfind(r, s, sep, 0, to)
						    : jchars_find(r, s, sep, from, to);
		if (at < 0) break;
		if (from_right) {
			jvec_push(r, &v, jv_sub(s, (size_t)at + sep.s.len, to - (size_t)at - sep.s.len));
			to = (size_t)at;
		} else {
			jvec_push(r, &v, jv_sub(s, from, (size_t)at - from));
			from = (size_t)at + sep.s.len;
		}
	}
	jvec_push(r, &v, jv_sub(s, from, to - from));
	if (from_right) reverse(&v);
	return vec_list(&v, s);
}

/* Length of the line end at s[at], or 0. */
static size_t line_end(struct jv s, size_t at)
{
	uint32_t cp;
	int n = utf8_decode(s.s.p + at, &cp);

	if (cp == '\r' && at + 1 < s.s.len && s.s.p[at + 1] == '\n') return 2;
	if ((cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029) return (size_t)n;
	return 0;
}

struct jv jchars_splitlines(struct jrun *r, struct jv s, bool keep_ends)
{
	struct jvec v = {0};
	size_t from = 0, at = 0, end;
	uint32_t cp;

	while (at < s.s.len && run_work(r, 8)) {
		end = line_end(s, at);
		if (!end) {
			at += (size_t)utf8_decode(s.s.p + at, &cp);
			continue;
		}
		if (!jvec_push(r, &v, jv_sub(s, from, at - from + (keep_ends ? end : 0)))) break;
		from = at += end;
	}
	if (from < s.s.len) jvec_push(r, &v, jv_sub(s, from, s.s.len - from));
	return vec_list(&v, s);
}

struct jv jchars_escape(struct jrun *r, struct jv s)
{
	static const char FROM[] = "&<>\"'";
	static const char *const TO[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
	struct jbuf b;
	const char *c;
	size_t i, plain = 0;
	struct jv v;

	jbuf_init(&b, r);
	for (i = 0; i < s.s.len && !r->rc; i++) {
		c = s.s.p[i] ? strchr(FROM, s.s.p[i]) : NULL;
		if (!c) continue;
		jbuf_str(&b, jv_sub(s, plain, i - plain));
		jbuf_puts(&b, TO[c - FROM], s.s.origin ? s.s.origin[i] : s.input);
		plain = i + 1;
	}
	jbuf_str(&b, jv_sub(s, plain, s.s.len - plain));
	v = jbuf_finish(&b);
	v.markup = true;
	return v;
}

bool jchars_is_case(struct jv s, bool upper)
{
	bool any = false;
	utf8proc_category_t c;
	size_t at;
	uint32_t cp;

	for (at = 0; at < s.s.len;) {
		at += (size_t)utf8_decode(s.s.p + at, &cp);
		c = utf8proc_category((utf8proc_int32_t)cp);
		if (c == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) || c == UTF8PROC_CATEGORY_LT) return false;
		any |= c == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
	}
	return any;
}
