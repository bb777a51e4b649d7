/* jinja_filters_words.c - the filters that look into texts: words, lines, tags, URLs. */
#include "common/utf8.h"
#include "frontend/jinja_filters.h"

#include <stdio.h>

#define FILTER(name) static struct jv name(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)

/* Words start behind white space and - ( { [ <, unlike in the method title(). */
FILTER(filter_title)
{
	struct jv s = jv_to_str(r, self);
	bool start = true;
	struct jbuf b;
	size_t at;
	uint32_t cp;
	int n;

	jbuf_init(&b, r);
	for (at = 0; at < s.s.len && run_step(r); at += (size_t)n) {
		n = utf8_decode(s.s.p + at, &cp);
		jbuf_case(&b, jv_sub(s, at, (size_t)n), start ? JCASE_UPPER : JCASE_LOWER);
		start = jchars_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
	}
	return jbuf_finish(&b);
}

/* Tags and comments go, runs of white space become one blank, entities their characters (the five common ones). */
FILTER(filter_striptags)
{
	static const char *const ENTITIES[] = {"&lt;", "&gt;", "&quot;", "&#34;", "&#39;", "&amp;"};
	static const char *const CHARS[] = {"<", ">", "\"", "\"", "'", "&"};
	struct jv s = jv_to_str(r, self), words, close;
	struct jbuf b;
	ptrdiff_t from = 0, open, end;
	size_t i;

	jbuf_init(&b, r);
	while (run_step(r)) {
		open = jchars_find(r, s, jv_lit("<"), (size_t)from, s.s.len);
		close = jv_lit(open >= 0 && s.s.len - (size_t)open >= 4 && memcmp(s.s.p + open, "<!--", 4) == 0 ? "-->" : ">");
		end = open < 0 ? -1 : jchars_find(r, s, close, (size_t)open, s.s.len);
		if (end < 0) break;
		jbuf_str(&b, jv_sub(s, (size_t)from, (size_t)(open - from)));
		from = end + (ptrdiff_t)close.s.len;
	}
	jbuf_str(&b, jv_sub(s, (size_t)from, s.s.len - (size_t)from));
	words = jchars_split(r, jbuf_finish(&b), jv_none(), -1, false);
	if (r->rc) return jv_none();
	jbuf_init(&b, r);
	for (i = 0; i < words.list.n; i++) {
		if (i) jbuf_puts(&b, " ", jv_has_input(s));
		jbuf_str(&b, words.list.items[i]);
	}
	s = jbuf_finish(&b);
	for (i = 0; i < ARRAY_LEN(ENTITIES); i++) {
		struct jv with = jv_lit(CHARS[i]);

		with.input = jv_has_input(s);
		s = jchars_replace(r, s, jv_lit(ENTITIES[i]), with, -1);
	}
	return s;
}

/* indent, truncate and wordwrap take strings only, unlike the filters around them. */
static struct jv need_text(struct jrun *r, struct jv v)
{
	if (v.kind == JV_STR) return v;
	if (v.kind == JV_UNDEFINED) jv_undefined_error(r, v);
	else run_error(r, "a string is needed, not %s", jv_type_name(v));
	return jv_lit("");
}

FILTER(filter_indent)
{
	struct jv s = need_text(r, self), by = a[0], lines;
	bool first = arg_bool(r, a[1], false), blank = arg_bool(r, a[2], false);
	struct jbuf b;
	size_t i;

	if (by.kind != JV_STR) by = jfilter_pad(r, jv_lit(""), arg_int(r, by, 4, 0, INT32_MAX), jv_lit(" "), JPAD_RIGHT);
	lines = jchars_splitlines(r, jv_concat(r, s, jv_lit("\n")), false);
	if (r->rc) return jv_none();
	jbuf_init(&b, r);
	for (i = 0; i < lines.list.n && run_step(r); i++) {
		if (i) jbuf_puts(&b, "\n", jv_has_input(s));
		if (i ? blank || lines.list.items[i].s.len : first) jbuf_str(&b, by);
		jbuf_str(&b, lines.list.items[i]);
	}
	return jbuf_finish(&b);
}

FILTER(filter_truncate)
{
	struct jv s = self, end = jv_given(a[2]) ? jv_to_str(r, a[2]) : jv_lit("..."), cut;
	int64_t length = arg_int(r, a[0], 255, INT32_MIN, INT32_MAX), leeway = arg_int(r, a[3], 5, INT32_MIN, INT32_MAX);
	int64_t end_len = (int64_t)jchars_count(r, end);
	ptrdiff_t space;

	if (length < end_len) return run_error(r, "expected length >= %lld, got %lld", (long long)end_len, (long long)length);
	if (leeway < 0) return run_error(r, "expected leeway >= 0, got %lld", (long long)leeway);
	if ((int64_t)jv_length(r, s) <= length + leeway || r->rc) return s; /* a short list, too */
	s = need_text(r, s);
	cut = jv_sub(s, 0, jchars_offset(r, s, (size_t)(length - end_len)));
	space = arg_bool(r, a[1], false) ? -1 : jchars_rfind(r, cut, jv_lit(" "), 0, cut.s.len);
	if (space >= 0) cut = jv_sub(cut, 0, (size_t)space);
	return jv_concat(r, cut, end);
}

FILTER(filter_wordcount)
{
	struct jv s = jv_to_str(r, self);
	bool in_word = false, is_word;
	size_t at, n = 0;
	uint32_t cp;

	for (at = 0; at < s.s.len && run_work(r, 4); in_word = is_word) {
		at += (size_t)utf8_decode(s.s.p + at, &cp);
		is_word = cp == '_' || jfilter_is_alnum(cp);
		n += is_word && !in_word;
	}
	return jv_int((jint)n);
}

static void urlencode_text(struct jbuf *b, struct jv s, bool is_query)
{
	char text[8];
	size_t i;
	unsigned char c;

	for (i = 0; i < s.s.len && !b->run->rc; i++) {
		c = (unsigned char)s.s.p[i];
		if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr("_.-~", c ? c : '!') ||
		    (c == '/' && !is_query))
			snprintf(text, sizeof(text), "%c", c);
		else if (c == ' ' && is_query)
			snprintf(text, sizeof(text), "+");
		else
			snprintf(text, sizeof(text), "%%%02X", c);
		jbuf_puts(b, text, s.s.origin ? s.s.origin[i] : s.input);
	}
}

FILTER(filter_urlencode)
{
	struct jseq s, pair;
	struct jbuf b;
	size_t i;

	jbuf_init(&b, r);
	if (self.kind != JV_DICT && self.kind != JV_LIST && self.kind != JV_TUPLE) {
		urlencode_text(&b, jv_to_str(r, self), false);
		return jbuf_finish(&b);
	}
	s = jv_iterate(r, self.kind == JV_DICT ? jdict_view(r, self, JVIEW_ITEMS) : self);
	for (i = 0; i < s.n && run_step(r); i++) {
		pair = jv_iterate(r, jseq_at(&s, i));
		if (pair.n != 2) return run_error(r, "urlencode needs pairs");
		if (i) jbuf_puts(&b, "&", s.input);
		urlencode_text(&b, jv_to_str(r, jseq_at(&pair, 0)), true);
		jbuf_puts(&b, "=", s.input);
		urlencode_text(&b, jv_to_str(r, jseq_at(&pair, 1)), true);
	}
	return jbuf_finish(&b);
}


/* ---- wordwrap ---- */

struct wrap {
	struct jrun *r;
	struct jbuf b;
	struct jv eol;
	int64_t width;
	bool break_long, break_hyphens, any_line;
};

/* Length in bytes of the next piece that may stand on a line of its own: white space, a word, or its part up to a hyphen
 * between letters. */
static size_t wrap_piece(const struct wrap *w, struct jv s)
{
	uint32_t cp, before = 0;
	size_t at = 0, n;
	bool space;

	n = (size_t)utf8_decode(s.s.p, &cp);
	space = jchars_is_space(cp);
	while (at < s.s.len) {
		n = (size_t)utf8_decode(s.s.p + at, &cp);
		if (jchars_is_space(cp) != space) break;
		at += n;
		if (w->break_hyphens && cp == '-' && jchars_is_cased(before) && at < s.s.len) {
			utf8_decode(s.s.p + at, &cp);
			if (jchars_is_cased(cp)) break;
			cp = '-';
		}
		before = cp;
	}
	return at;
}

static void wrap_line(struct wrap *w, struct jv line)
{
	if (w->any_line) jbuf_str(&w->b, w->eol);
	w->any_line = true;
	jbuf_str(&w->b, jchars_strip(w->r, line, jv_none(), false, true));
}

/* One line of the input as lines of at most `width` characters: a line is the text from `from`, `len` bytes so far. */
static void wrap_paragraph(struct wrap *w, struct jv s)
{
	size_t from = 0, len = 0, piece;
	int64_t used = 0, n;
	struct jv next;

	while (from + len < s.s.len && run_step(w->r)) {
		next = jv_sub(s, from + len, s.s.len - from - len);
		piece = wrap_piece(w, next);
		next = jv_sub(next, 0, piece);
		n = (int64_t)jchars_count(w->r, next);
		if (used + n <= w->width) {
			len += piece;
			used += n;
			continue;
		}
		if (n > w->width && w->break_long) { /* as much of it as fits */
			piece = jchars_offset(w->r, next, (size_t)(w->width - used));
			len += piece;
		} else if (!len) {
			len = piece;
		}
		if (jchars_strip(w->r, jv_sub(s, from, len), jv_none(), true, false).s.len) wrap_line(w, jv_sub(s, from, len));
		from += len;
		len = 0;
		used = 0;
		next = jchars_strip(w->r, jv_sub(s, from, s.s.len - from), jv_none(), true, false);
		from = s.s.len - next.s.len; /* a new line does not begin with white space */
	}
	if (len && jchars_strip(w->r, jv_sub(s, from, len), jv_none(), true, false).s.len) wrap_line(w, jv_sub(s, from, len));
}

/* Python's textwrap, but for its finer rules on dashes. */
FILTER(filter_wordwrap)
{
	struct wrap w = {.r = r, .width = arg_int(r, a[0], 79, INT32_MIN, INT32_MAX), .break_long = arg_bool(r, a[1], true),
			 .break_hyphens = arg_bool(r, a[3], true), .eol = jv_lit("\n")};
	struct jv lines = jchars_splitlines(r, need_text(r, self), false);
	size_t i;

	if (jv_given(a[2]) && !jv_is_none(a[2])) w.eol = jv_to_str(r, a[2]);
	if (w.width <= 0) return run_error(r, "invalid width %lld (must be > 0)", (long long)w.width);
	jbuf_init(&w.b, r);
	for (i = 0; !r->rc && i < lines.list.n && run_step(r); i++) {
		if (i) jbuf_str(&w.b, w.eol);
		w.any_line = false;
		wrap_paragraph(&w, lines.list.items[i]);
	}
	return jbuf_finish(&w.b);
}

FILTER(filter_xmlattr)
{
	struct jbuf b;
	struct jv key;
	size_t i, k;

	if (self.kind != JV_DICT) return run_error(r, "xmlattr needs a mapping");
	jbuf_init(&b, r);
	for (i = 0; i < self.dict->n && run_step(r); i++) {
		const struct jentry *e = &self.dict->entries[i];

		if (e->value.kind == JV_NONE || e->value.kind == JV_UNDEFINED) continue;
		key = jv_to_str(r, e->key);
		for (k = 0; k < key.s.len; k++)
			if (strchr(" \t\n\r\f\v/>=", key.s.p[k])) return run_error(r, "Invalid character in attribute name");
		if (b.len || arg_bool(r, a[0], true)) jbuf_puts(&b, " ", self.input);
		jbuf_str(&b, jchars_escape(r, key));
		jbuf_puts(&b, "=\"", self.input);
		jbuf_str(&b, jchars_escape(r, jv_to_str(r, e->value)));
		jbuf_puts(&b, "\"", self.input);
	}
	return jbuf_finish(&b);
}

static const struct jfunction FILTERS_WORDS[] = {
	{"indent", "width first blank", 0, filter_indent},
	{"striptags", "", 0, filter_striptags},
	{"title", "", 0, filter_title},
	{"truncate", "length killwords end leeway", 0, filter_truncate},
	{"urlencode", "", 0, filter_urlencode},
	{"wordcount", "", 0, filter_wordcount},
	{"wordwrap", "width break_long_words wrapstring break_on_hyphens", 0, filter_wordwrap},
	{"xmlattr", "autospace", 0, filter_xmlattr},
};

const struct jfunction *jfilter_words_table(size_t *n)
{
	*n = ARRAY_LEN(FILTERS_WORDS);
	return FILTERS_WORDS;
}
