/* jinja_methods.c - methods of strings, dicts and lists.
 *
 * Values are immutable, as in Jinja2's immutable sandbox: methods that change a list or dict exist but are unsafe. So are
 * the few string methods that make no sense in a prompt (encode, translate, maketrans, format_map). */
#include "common/utf8.h"
#include "frontend/jinja_filters.h"

#include <utf8proc.h>

#define METHOD(name) static struct jv name(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)

/* ---- strings ---- */

static bool need_str(struct jrun *r, struct jv v)
{
	if (v.kind == JV_STR) return true;
	if (v.kind == JV_UNDEFINED) jv_undefined_error(r, v);
	else run_error(r, "must be str, not %s", jv_type_name(v));
	return false;
}

METHOD(str_upper)
{
	return jchars_case(r, self, JCASE_UPPER);
}

METHOD(str_lower)
{
	return jchars_case(r, self, JCASE_LOWER);
}

METHOD(str_title)
{
	return jchars_case(r, self, JCASE_TITLE);
}

METHOD(str_capitalize)
{
	return jchars_case(r, self, JCASE_CAPITALIZE);
}

METHOD(str_swapcase)
{
	return jchars_case(r, self, JCASE_SWAP);
}

METHOD(str_casefold)
{
	return jchars_case(r, self, JCASE_FOLD);
}

static struct jv strip(struct jrun *r, struct jv self, struct jv chars, bool left, bool right)
{
	if (jv_given(chars) && !jv_is_none(chars) && !need_str(r, chars)) return self;
	return jchars_strip(r, self, chars, left, right);
}

METHOD(str_strip)
{
	return strip(r, self, a[0], true, true);
}

METHOD(str_lstrip)
{
	return strip(r, self, a[0], true, false);
}

METHOD(str_rstrip)
{
	return strip(r, self, a[0], false, true);
}

METHOD(str_split)
{
	if (jv_given(a[0]) && !jv_is_none(a[0]) && !need_str(r, a[0])) return self;
	return jchars_split(r, self, a[0], arg_int(r, a[1], -1, -1, INT64_MAX), false);
}

METHOD(str_rsplit)
{
	if (jv_given(a[0]) && !jv_is_none(a[0]) && !need_str(r, a[0])) return self;
	return jchars_split(r, self, a[0], arg_int(r, a[1], -1, -1, INT64_MAX), true);
}

METHOD(str_splitlines)
{
	return jchars_splitlines(r, self, arg_bool(r, a[0], false));
}

METHOD(str_replace)
{
	if (!need_str(r, a[0]) || !need_str(r, a[1])) return self;
	return jchars_replace(r, self, a[0], a[1], arg_int(r, a[2], -1, -1, INT64_MAX));
}

/* The part of self between the optional character positions start and end, and its first byte. */
static struct jv window(struct jrun *r, struct jv self, const struct jv *a, size_t *at, bool *valid)
{
	int64_t n, start, end;

	*at = 0;
	*valid = true;
	if (!jv_given(a[1]) && !jv_given(a[2])) return self;
	n = (int64_t)jchars_count(r, self);
	start = arg_int(r, a[1], 0, -n - 1, n + 1);
	end = arg_int(r, a[2], n, -n - 1, n);
	if (start < 0) start = start + n < 0 ? 0 : start + n;
	if (end < 0) end = end + n < 0 ? 0 : end + n;
	*valid = start <= end && start <= n;
	if (!*valid) return jv_sub(self, 0, 0);
	*at = jchars_offset(r, self, (size_t)start);
	return jv_sub(self, *at, jchars_offset(r, self, (size_t)end) - *at);
}

static bool affix(struct jv s, struct jv part, bool at_end)
{
	return part.s.len <= s.s.len && memcmp(s.s.p + (at_end ? s.s.len - part.s.len : 0), part.s.p, part.s.len) == 0;
}

static struct jv has_affix(struct jrun *r, struct jv self, const struct jv *a, bool at_end)
{
	size_t at, i;
	bool valid;
	struct jv s = window(r, self, a, &at, &valid);

	if (a[0].kind != JV_TUPLE) return jv_bool(need_str(r, a[0]) && valid && affix(s, a[0], at_end));
	for (i = 0; i < a[0].list.n && run_step(r); i++)
		if (need_str(r, a[0].list.items[i]) && valid && affix(s, a[0].list.items[i], at_end)) return jv_bool(true);
	return jv_bool(false);
}

METHOD(str_startswith)
{
	return has_affix(r, self, a, false);
}

METHOD(str_endswith)
{
	return has_affix(r, self, a, true);
}

static struct jv find(struct jrun *r, struct jv self, const struct jv *a, bool last, bool must)
{
	size_t at;
	bool valid;
	struct jv s = window(r, self, a, &at, &valid);
	ptrdiff_t found = -1;

	if (!need_str(r, a[0])) return jv_none();
	if (valid) found = last ? jchars_rfind(r, s, a[0], 0, s.s.len) : jchars_find(r, s, a[0], 0, s.s.len);
	if (found >= 0) return jv_int((jint)jchars_count(r, jv_sub(self, 0, at + (size_t)found)));
	return must ? run_error(r, "substring not found") : jv_int(-1);
}

METHOD(str_find)
{
	return find(r, self, a, false, false);
}

METHOD(str_rfind)
{
	return find(r, self, a, true, false);
}

METHOD(str_index)
{
	return find(r, self, a, false, true);
}

METHOD(str_rindex)
{
	return find(r, self, a, true, true);
}

METHOD(str_count)
{
	size_t at, n = 0;
	bool valid;
	struct jv s = window(r, self, a, &at, &valid);
	ptrdiff_t found;

	if (!need_str(r, a[0]) || !valid) return jv_int(0);
	if (!a[0].s.len) return jv_int((jint)jchars_count(r, s) + 1);
	for (at = 0; run_step(r); at = (size_t)found + a[0].s.len, n++) {
		found = jchars_find(r, s, a[0], at, s.s.len);
		if (found < 0) break;
	}
	return jv_int((jint)n);
}

METHOD(str_join)
{
	struct jseq s = jv_iterate(r, a[0]);
	struct jbuf b;
	struct jv v;
	size_t i;

	jbuf_init(&b, r);
	for (i = 0; i < s.n && run_step(r); i++) {
		v = jseq_at(&s, i);
		if (v.kind != JV_STR) return run_error(r, "sequence item %zu: expected str instance, %s found", i, jv_type_name(v));
		if (i) jbuf_str(&b, self);
		jbuf_str(&b, v);
	}
	v = jbuf_finish(&b);
	v.markup = self.markup;
	return v;
}

METHOD(str_format)
{
	return format_braces(r, self, raw);
}

METHOD(str_partition)
{
	ptrdiff_t at;
	struct jv *parts = run_alloc(r, 3, sizeof(*parts));

	if (!parts || !need_str(r, a[0])) return jv_none();
	if (!a[0].s.len) return run_error(r, "empty separator");
	at = jchars_find(r, self, a[0], 0, self.s.len);
	parts[0] = at < 0 ? self : jv_sub(self, 0, (size_t)at);
	parts[1] = at < 0 ? jv_lit("") : jv_sub(self, (size_t)at, a[0].s.len);
	parts[2] = at < 0 ? jv_lit("") : jv_sub(self, (size_t)at + a[0].s.len, self.s.len - (size_t)at - a[0].s.len);
	return jv_list(JV_TUPLE, parts, 3, jv_has_input(self));
}

METHOD(str_rpartition)
{
	ptrdiff_t at;
	struct jv *parts = run_alloc(r, 3, sizeof(*parts));

	if (!parts || !need_str(r, a[0])) return jv_none();
	if (!a[0].s.len) return run_error(r, "empty separator");
	at = jchars_rfind(r, self, a[0], 0, self.s.len);
	parts[0] = at < 0 ? jv_lit("") : jv_sub(self, 0, (size_t)at);
	parts[1] = at < 0 ? jv_lit("") : jv_sub(self, (size_t)at, a[0].s.len);
	parts[2] = at < 0 ? self : jv_sub(self, (size_t)at + a[0].s.len, self.s.len - (size_t)at - a[0].s.len);
	return jv_list(JV_TUPLE, parts, 3, jv_has_input(self));
}

METHOD(str_zfill)
{
	size_t sign = self.s.len && (self.s.p[0] == '-' || self.s.p[0] == '+');
	struct jv zero = jv_view("0", 1, jv_has_input(self)), digits;

	digits = jfilter_pad(r, jv_sub(self, sign, self.s.len - sign), arg_int(r, a[0], 0, 0, INT32_MAX) - (int64_t)sign, zero, JPAD_LEFT);
	return r->rc ? self : jv_concat(r, jv_sub(self, 0, sign), digits);
}

static struct jv pad(struct jrun *r, struct jv self, const struct jv *a, enum jpad where)
{
	struct jv fill = jv_given(a[1]) ? a[1] : jv_view(" ", 1, jv_has_input(self));

	return jfilter_pad(r, self, arg_int(r, a[0], 0, 0, INT32_MAX), fill, where);
}

METHOD(str_ljust)
{
	return pad(r, self, a, JPAD_RIGHT);
}

METHOD(str_rjust)
{
	return pad(r, self, a, JPAD_LEFT);
}

METHOD(str_center)
{
	return pad(r, self, a, JPAD_CENTER);
}

METHOD(str_removeprefix)
{
	if (!need_str(r, a[0]) || !affix(self, a[0], false)) return self;
	return jv_sub(self, a[0].s.len, self.s.len - a[0].s.len);
}

METHOD(str_removesuffix)
{
	if (!need_str(r, a[0]) || !affix(self, a[0], true)) return self;
	return jv_sub(self, 0, self.s.len - a[0].s.len);
}

METHOD(str_expandtabs)
{
	int64_t tab = arg_int(r, a[0], 8, 0, INT32_MAX), column = 0, k;
	size_t i;
	struct jbuf b;

	jbuf_init(&b, r);
	for (i = 0; i < self.s.len && run_step(r); i++) {
		if (self.s.p[i] != '\t') {
			jbuf_str(&b, jv_sub(self, i, 1));
			column = self.s.p[i] == '\n' || self.s.p[i] == '\r' ? 0 : column + (((unsigned char)self.s.p[i] & 0xc0) != 0x80);
			continue;
		}
		for (k = tab ? tab - column % tab : 0; k > 0 && run_step(r); k--, column++)
			jbuf_puts(&b, " ", self.s.origin ? self.s.origin[i] : self.input);
	}
	return jbuf_finish(&b);
}

/* The set of general categories as bits. */
#define CAT(c) (1u << UTF8PROC_CATEGORY_##c)
#define CAT_LETTER (CAT(LU) | CAT(LL) | CAT(LT) | CAT(LM) | CAT(LO))
#define CAT_NUMBER (CAT(ND) | CAT(NL) | CAT(NO))

/* Not empty, and every character of one of these categories. */
static struct jv all_of(struct jrun *r, struct jv s, uint32_t categories)
{
	bool all = s.s.len > 0;
	size_t at;
	uint32_t cp;

	run_work(r, s.s.len);
	for (at = 0; all && at < s.s.len;) {
		at += (size_t)utf8_decode(s.s.p + at, &cp);
		all = categories >> utf8proc_category((utf8proc_int32_t)cp) & 1;
	}
	return jv_bool(all);
}

METHOD(str_isdecimal)
{
	return all_of(r, self, CAT(ND));
}

/* Also the raised and lowered digits. */
METHOD(str_isdigit)
{
	bool all = self.s.len > 0;
	size_t at;
	uint32_t cp;

	for (at = 0; all && at < self.s.len && run_work(r, 4);) {
		at += (size_t)utf8_decode(self.s.p + at, &cp);
		all = utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 ||
		      cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089);
	}
	return jv_bool(all);
}

METHOD(str_isnumeric)
{
	return all_of(r, self, CAT_NUMBER);
}

METHOD(str_isalpha)
{
	return all_of(r, self, CAT_LETTER);
}

METHOD(str_isalnum)
{
	return all_of(r, self, CAT_LETTER | CAT_NUMBER);
}

METHOD(str_isspace)
{
	return jv_bool(self.s.len && !jchars_strip(r, self, jv_none(), true, false).s.len);
}

METHOD(str_isupper)
{
	return jv_bool(jchars_is_case(self, true));
}

METHOD(str_islower)
{
	return jv_bool(jchars_is_case(self, false));
}

METHOD(str_istitle)
{
	struct jv title = jchars_case(r, self, JCASE_TITLE);

	return jv_bool(jv_equal(r, title, self) && (jchars_is_case(jchars_case(r, self, JCASE_LOWER), false)));
}

METHOD(str_isascii)
{
	size_t i;

	for (i = 0; i < self.s.len; i++)
		if ((unsigned char)self.s.p[i] >= 0x80) return jv_bool(false);
	return jv_bool(true);
}

METHOD(str_isidentifier)
{
	bool is = self.s.len && !(self.s.p[0] >= '0' && self.s.p[0] <= '9');
	size_t at;
	uint32_t cp;

	for (at = 0; is && at < self.s.len;) {
		at += (size_t)utf8_decode(self.s.p + at, &cp);
		is = cp == '_' || jfilter_is_alnum(cp);
	}
	return jv_bool(is);
}

/* ---- dicts, lists, tuples ---- */

METHOD(dict_get)
{
	const struct jv *v = jdict_get(r, self.dict, a[0]);

	return v ? *v : jv_given(a[1]) ? a[1] : jv_none();
}

METHOD(dict_keys)
{
	return jdict_view(r, self, JVIEW_KEYS);
}

METHOD(dict_values)
{
	return jdict_view(r, self, JVIEW_VALUES);
}

METHOD(dict_items)
{
	return jdict_view(r, self, JVIEW_ITEMS);
}

METHOD(copy_self)
{
	return self;
}

METHOD(list_index)
{
	size_t i;

	for (i = 0; i < self.list.n && run_step(r); i++)
		if (jv_equal(r, self.list.items[i], a[0])) return jv_int((jint)i);
	return run_error(r, "the value is not in the list");
}

METHOD(list_count)
{
	size_t i, n = 0;

	for (i = 0; i < self.list.n && run_step(r); i++) n += jv_equal(r, self.list.items[i], a[0]);
	return jv_int((jint)n);
}

METHOD(cycler_next)
{
	return self.cycle->items[self.cycle->pos++ % self.cycle->n];
}

METHOD(cycler_reset)
{
	self.cycle->pos = 0;
	return jv_none();
}

static const struct jmethod METHODS[] = {
	{JV_STR, {"upper", "", 0, str_upper}},
	{JV_STR, {"lower", "", 0, str_lower}},
	{JV_STR, {"title", "", 0, str_title}},
	{JV_STR, {"capitalize", "", 0, str_capitalize}},
	{JV_STR, {"swapcase", "", 0, str_swapcase}},
	{JV_STR, {"casefold", "", 0, str_casefold}},
	{JV_STR, {"strip", "chars", 0, str_strip}},
	{JV_STR, {"lstrip", "chars", 0, str_lstrip}},
	{JV_STR, {"rstrip", "chars", 0, str_rstrip}},
	{JV_STR, {"split", "sep maxsplit", 0, str_split}},
	{JV_STR, {"rsplit", "sep maxsplit", 0, str_rsplit}},
	{JV_STR, {"splitlines", "keepends", 0, str_splitlines}},
	{JV_STR, {"replace", "old new count", 2, str_replace}},
	{JV_STR, {"startswith", "prefix start end", 1, str_startswith}},
	{JV_STR, {"endswith", "suffix start end", 1, str_endswith}},
	{JV_STR, {"find", "sub start end", 1, str_find}},
	{JV_STR, {"rfind", "sub start end", 1, str_rfind}},
	{JV_STR, {"index", "sub start end", 1, str_index}},
	{JV_STR, {"rindex", "sub start end", 1, str_rindex}},
	{JV_STR, {"count", "sub start end", 1, str_count}},
	{JV_STR, {"join", "iterable", 1, str_join}},
	{JV_STR, {"format", "*", 0, str_format}},
	{JV_STR, {"partition", "sep", 1, str_partition}},
	{JV_STR, {"rpartition", "sep", 1, str_rpartition}},
	{JV_STR, {"zfill", "width", 1, str_zfill}},
	{JV_STR, {"ljust", "width fillchar", 1, str_ljust}},
	{JV_STR, {"rjust", "width fillchar", 1, str_rjust}},
	{JV_STR, {"center", "width fillchar", 1, str_center}},
	{JV_STR, {"removeprefix", "prefix", 1, str_removeprefix}},
	{JV_STR, {"removesuffix", "suffix", 1, str_removesuffix}},
	{JV_STR, {"expandtabs", "tabsize", 0, str_expandtabs}},
	{JV_STR, {"isdigit", "", 0, str_isdigit}},
	{JV_STR, {"isdecimal", "", 0, str_isdecimal}},
	{JV_STR, {"isnumeric", "", 0, str_isnumeric}},
	{JV_STR, {"isalpha", "", 0, str_isalpha}},
	{JV_STR, {"isalnum", "", 0, str_isalnum}},
	{JV_STR, {"isspace", "", 0, str_isspace}},
	{JV_STR, {"isupper", "", 0, str_isupper}},
	{JV_STR, {"islower", "", 0, str_islower}},
	{JV_STR, {"istitle", "", 0, str_istitle}},
	{JV_STR, {"isascii", "", 0, str_isascii}},
	{JV_STR, {"isidentifier", "", 0, str_isidentifier}},
	{JV_DICT, {"get", "key default", 1, dict_get}},
	{JV_DICT, {"keys", "", 0, dict_keys}},
	{JV_DICT, {"values", "", 0, dict_values}},
	{JV_DICT, {"items", "", 0, dict_items}},
	{JV_DICT, {"copy", "", 0, copy_self}},
	{JV_LIST, {"index", "value", 1, list_index}},
	{JV_LIST, {"count", "value", 1, list_count}},
	{JV_LIST, {"copy", "", 0, copy_self}},
	{JV_TUPLE, {"index", "value", 1, list_index}},
	{JV_TUPLE, {"count", "value", 1, list_count}},
	{JV_CYCLER, {"next", "", 0, cycler_next}},
	{JV_CYCLER, {"reset", "", 0, cycler_reset}},
};

const struct jmethod *method_find(enum jkind kind, struct jv name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(METHODS); i++)
		if (METHODS[i].kind == kind && jv_is(name, METHODS[i].f.name)) return &METHODS[i];
	return NULL;
}

bool method_is_hidden(enum jkind kind, struct jv name)
{
	static const char *const STR[] = {"encode", "translate", "maketrans", "format_map", "isprintable", NULL};
	static const char *const DICT[] = {"clear", "pop", "popitem", "setdefault", "update", "fromkeys", NULL};
	static const char *const LIST[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL};
	const char *const *names = kind == JV_STR ? STR : kind == JV_DICT ? DICT : kind == JV_LIST ? LIST : NULL;

	for (; names && *names; names++)
		if (jv_is(name, *names)) return true;
	return false;
}
