/* regexc.c - see regexc.h: the parser. */
#include "frontend/regexc.h"

#include "common/quote.h"
#include "common/utf8.h"

#include <string.h>

#define REGEXC_TEXT_MAX (256 * KIB)
#define REGEXC_COUNT_MAX 100000u /* of a quantifier */

struct regexc_parser {
	struct gramctx *g;
	const char *s;
	size_t len, pos;
	int depth;
	bool wide;
};

static struct regexc *regexc_new(struct regexc_parser *p, enum regexc_kind kind, size_t pos)
{
	struct regexc *x = gramctx_array(p->g, struct regexc, 1);

	x->kind = kind;
	x->pos = pos;
	x->has_anchor = kind == REGEXC_BEGIN || kind == REGEXC_END;
	x->may_be_empty = kind == REGEXC_CAT || x->has_anchor;
	return x;
}

static void regexc_fail(struct regexc_parser *p, int rc, size_t pos, const char *what)
{
	gramctx_fail(p->g, rc, "at byte %zu of the expression: %s", pos, what);
}

static void regexc_add(struct regexc_parser *p, struct regexc *x, const struct regexc *part)
{
	gramctx_reserve(p->g, x->parts, x->n_parts, x->cap_parts);
	x->parts[x->n_parts++] = part;
	x->has_anchor = x->has_anchor || part->has_anchor;
	if (x->kind == REGEXC_CAT) x->may_be_empty = x->may_be_empty && part->may_be_empty;
	else x->may_be_empty = x->may_be_empty || part->may_be_empty;
}

const struct regexc *regexc_set(struct gramctx *g, struct charset set)
{
	struct regexc *x = gramctx_array(g, struct regexc, 1);

	x->kind = REGEXC_SET;
	x->set = set;
	return x;
}

const struct regexc *regexc_repeat(struct gramctx *g, const struct regexc *part, uint32_t min, uint32_t max)
{
	struct regexc *x = gramctx_array(g, struct regexc, 1);

	x->kind = REGEXC_REPEAT;
	x->parts = gramctx_array(g, const struct regexc *, 1);
	x->parts[0] = part;
	x->n_parts = x->cap_parts = 1;
	x->min = min;
	x->max = max;
	x->pos = part->pos;
	x->may_be_empty = min == 0 || part->may_be_empty;
	x->has_anchor = part->has_anchor;
	return x;
}

static bool regexc_at(const struct regexc_parser *p, const char *text)
{
	size_t n = strlen(text);

	return n <= p->len - p->pos && memcmp(p->s + p->pos, text, n) == 0;
}

static bool regexc_skip(struct regexc_parser *p, const char *text)
{
	if (!regexc_at(p, text)) return false;
	p->pos += strlen(text);
	return true;
}

/* ---- characters and classes ---- */

/* What an escape or a character inside a class stands for. */
struct regexc_item {
	bool is_set;
	uint32_t cp;
	struct charset set;
};

static int regexc_hex_digit(char c)
{
	if (c >= '0' && c <= '9') return c - '0';
	if (c >= 'a' && c <= 'f') return c - 'a' + 10;
	if (c >= 'A' && c <= 'F') return c - 'A' + 10;
	return -1;
}

/* Exactly n hexadecimal digits; false without moving when they are not there. */
static bool regexc_hex(struct regexc_parser *p, size_t n, uint32_t *out)
{
	uint32_t v = 0;
	size_t i;

	if (n > p->len - p->pos) return false;
	for (i = 0; i < n; i++) {
		int d = regexc_hex_digit(p->s[p->pos + i]);

		if (d < 0) return false;
		v = v << 4 | (uint32_t)d;
	}
	p->pos += n;
	*out = v;
	return true;
}

/* Behind "\u". */
static uint32_t regexc_unicode_escape(struct regexc_parser *p, size_t at)
{
	uint32_t cp = 0, low;
	size_t n;

	if (regexc_skip(p, "{")) {
		for (n = 0; n < 6 && p->pos + n < p->len && regexc_hex_digit(p->s[p->pos + n]) >= 0;) n++;
		if (n == 0 || !regexc_hex(p, n, &cp) || !regexc_skip(p, "}") || cp > CHARSET_MAX)
			regexc_fail(p, ST_INVALID, at, "\\u{...} takes the hexadecimal number of a character");
	} else if (!regexc_hex(p, 4, &cp)) {
		regexc_fail(p, ST_INVALID, at, "\\u takes four hexadecimal digits, or some in braces");
	} else if (cp >= 0xd800 && cp <= 0xdbff && regexc_skip(p, "\\u") && regexc_hex(p, 4, &low) && low >= 0xdc00 && low <= 0xdfff) {
		cp = 0x10000 + ((cp & 0x3ff) << 10) + (low & 0x3ff);
	}
	if (cp >= 0xd800 && cp <= 0xdfff) regexc_fail(p, ST_UNSUPPORTED, at, "half of a surrogate pair is not a character");
	return cp;
}

/* Behind "\p" or "\P". */
static struct charset regexc_property(struct regexc_parser *p, size_t at, bool negated)
{
	struct charset set = {NULL, 0};
	const char *name = p->s + p->pos;
	size_t n = 0;

	if (regexc_skip(p, "{")) {
		name++;
		while (p->pos < p->len && p->s[p->pos] != '}') p->pos++, n++;
		if (p->pos == p->len) regexc_fail(p, ST_INVALID, at, "\\p{ is not closed");
		else p->pos++;
		if (n > 3 && memcmp(name, "gc=", 3) == 0) name += 3, n -= 3;
	} else if (p->pos < p->len) {
		n = 1;
		p->pos++;
	}
	if (gramctx_is_ok(p->g) && !charset_category(p->g, name, n, &set))
		gramctx_fail(p->g, ST_UNSUPPORTED, "at byte %zu of the expression: \\p{%s} is not supported (general categories are, as L or Nd)",
			     at, quote_short(name, n).text);
	return negated ? charset_not(p->g, set) : set;
}

/* A class of the escape's letter. Within a negated class "wide" is turned around by the caller. */
static struct charset regexc_class_escape(struct regexc_parser *p, char c)
{
	bool negated = c >= 'A' && c <= 'Z';
	struct charset set = charset_class(p->g, (char)(c | 0x20), negated ? !p->wide : p->wide);

	return negated ? charset_not(p->g, set) : set;
}

/* At a backslash. */
static struct regexc_item regexc_escape(struct regexc_parser *p, bool in_class)
{
	static const char letters[] = "tnrfva", values[] = "\t\n\r\f\v\a";
	struct regexc_item it = {false, 0, {NULL, 0}};
	size_t at = p->pos++;
	const char *known;
	char c;

	if (p->pos == p->len) {
		regexc_fail(p, ST_INVALID, at, "a backslash at the end");
		return it;
	}
	if ((unsigned char)p->s[p->pos] >= 0x80) {
		p->pos += (size_t)utf8_decode(p->s + p->pos, &it.cp);
		return it;
	}
	c = p->s[p->pos++];
	if (strchr("dwsDWS", c)) {
		it.is_set = true;
		it.set = regexc_class_escape(p, c);
	} else if (c == 'p' || c == 'P') {
		it.is_set = true;
		it.set = regexc_property(p, at, c == 'P');
	} else if ((known = strchr(letters, c)) && c) {
		it.cp = (unsigned char)values[known - letters];
	} else if (c == '0' && (p->pos == p->len || p->s[p->pos] < '0' || p->s[p->pos] > '9')) {
		it.cp = 0;
	} else if (c == 'x') {
		if (!regexc_hex(p, 2, &it.cp)) regexc_fail(p, ST_INVALID, at, "\\x takes two hexadecimal digits");
	} else if (c == 'u') {
		it.cp = regexc_unicode_escape(p, at);
	} else if (c == 'c' && p->pos < p->len && ((p->s[p->pos] | 0x20) >= 'a' && (p->s[p->pos] | 0x20) <= 'z')) {
		it.cp = (uint32_t)p->s[p->pos++] & 0x1f;
	} else if (c == 'b' && in_class) {
		it.cp = '\b';
	} else if (c == 'b' || c == 'B') {
		regexc_fail(p, ST_UNSUPPORTED, at, "\\b and \\B (word boundaries) are not supported");
	} else if (c == 'A' || c == 'Z' || c == 'z' || c == 'G') {
		regexc_fail(p, ST_UNSUPPORTED, at, "\\A, \\Z, \\z and \\G are not supported; use ^ and $");
	} else if ((c >= '0' && c <= '9') || c == 'k') {
		regexc_fail(p, ST_UNSUPPORTED, at, "backreferences are not supported");
	} else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') {
		regexc_fail(p, ST_INVALID, at, "a backslash before a letter that has no meaning there");
	} else {
		it.cp = (unsigned char)c;
	}
	return it;
}

static struct regexc_item regexc_class_item(struct regexc_parser *p)
{
	struct regexc_item it = {false, 0, {NULL, 0}};

	if (p->s[p->pos] == '\\') return regexc_escape(p, true);
	if (p->s[p->pos] == '[' && p->pos + 1 < p->len && strchr(":.=", p->s[p->pos + 1]))
		regexc_fail(p, ST_UNSUPPORTED, p->pos, "POSIX classes as [:alpha:] are not supported");
	p->pos += (size_t)utf8_decode(p->s + p->pos, &it.cp);
	return it;
}

/* At "[". */
static struct charset regexc_class(struct regexc_parser *p)
{
	struct gram_range *r = NULL;
	size_t n = 0, cap = 0, at = p->pos++, i;
	bool negated = regexc_skip(p, "^"), first = true;
	struct charset set;

	if (negated) p->wide = !p->wide;
	while (gramctx_is_ok(p->g)) {
		struct regexc_item it, to;

		if (p->pos == p->len) {
			regexc_fail(p, ST_INVALID, at, "\"[\" is not closed");
			break;
		}
		/* "[]a]" is a class in Python and an empty one in ECMAScript; nobody means the latter. */
		if (p->s[p->pos] == ']' && !first) break;
		first = false;
		it = regexc_class_item(p);
		to = it;
		if (p->pos + 1 < p->len && p->s[p->pos] == '-' && p->s[p->pos + 1] != ']' && !it.is_set) {
			p->pos++;
			to = regexc_class_item(p);
			if (to.is_set || to.cp < it.cp) regexc_fail(p, ST_INVALID, at, "a range in \"[...]\" runs backwards or has no end");
		}
		for (i = 0; i < (it.is_set ? it.set.n : 1); i++) {
			gramctx_reserve(p->g, r, n, cap);
			r[n++] = it.is_set ? it.set.ranges[i] : (struct gram_range){it.cp, to.cp};
		}
	}
	if (p->pos < p->len) p->pos++;
	if (negated) p->wide = !p->wide;
	set = charset_of(p->g, r, n);
	return negated ? charset_not(p->g, set) : set;
}

/* ---- structure ---- */

static const struct regexc *regexc_alternatives(struct regexc_parser *p);

/* Behind "(?": true when it is a plain group, of which what makes it one has been read. */
static bool regexc_group_kind(struct regexc_parser *p, size_t at)
{
	if (regexc_skip(p, ":")) return true;
	if (regexc_at(p, "=") || regexc_at(p, "!") || regexc_at(p, "<=") || regexc_at(p, "<!")) {
		regexc_fail(p, ST_UNSUPPORTED, at, "lookahead and lookbehind are not supported");
		return false;
	}
	if (regexc_at(p, "P=")) {
		regexc_fail(p, ST_UNSUPPORTED, at, "backreferences are not supported");
		return false;
	}
	if (regexc_skip(p, "P<") || regexc_skip(p, "<")) {
		while (p->pos < p->len && p->s[p->pos] != '>') p->pos++;
		if (p->pos < p->len) {
			p->pos++;
			return true;
		}
		regexc_fail(p, ST_INVALID, at, "the group's name is not closed");
		return false;
	}
	regexc_fail(p, ST_UNSUPPORTED, at, "flags, comments, conditions and atomic groups, \"(?...\", are not supported");
	return false;
}

/* At "(". */
static const struct regexc *regexc_group(struct regexc_parser *p)
{
	size_t at = p->pos++;
	const struct regexc *x;

	if (++p->depth > GRAMCTX_DEPTH_MAX) {
		gramctx_fail(p->g, ST_LIMIT, "at byte %zu of the expression: groups are nested deeper than %d", at, GRAMCTX_DEPTH_MAX);
		return NULL;
	}
	if (regexc_skip(p, "?") && !regexc_group_kind(p, at)) return NULL;
	x = regexc_alternatives(p);
	if (gramctx_is_ok(p->g) && !regexc_skip(p, ")")) regexc_fail(p, ST_INVALID, at, "\"(\" is not closed");
	p->depth--;
	return x;
}

static bool regexc_number(struct regexc_parser *p, uint32_t *out)
{
	uint32_t v = 0;
	size_t from = p->pos;

	while (p->pos < p->len && p->s[p->pos] >= '0' && p->s[p->pos] <= '9') {
		if (v <= REGEXC_COUNT_MAX) v = v * 10 + (uint32_t)(p->s[p->pos] - '0');
		p->pos++;
	}
	*out = v;
	return p->pos > from;
}

/* True when a quantifier was read. A "{" that begins none is a plain character, as everywhere. */
static bool regexc_quantifier(struct regexc_parser *p, uint32_t *min, uint32_t *max)
{
	size_t at = p->pos;

	*min = 0;
	*max = GRAM_NO_END;
	if (regexc_skip(p, "*")) return true;
	if (regexc_skip(p, "+")) {
		*min = 1;
		return true;
	}
	if (regexc_skip(p, "?")) {
		*max = 1;
		return true;
	}
	if (!regexc_skip(p, "{")) return false;
	if (regexc_number(p, min)) {
		if (!regexc_skip(p, ",")) *max = *min;
		else if (!regexc_number(p, max)) *max = GRAM_NO_END;
		if (regexc_skip(p, "}")) {
			if (*min > REGEXC_COUNT_MAX || (*max > REGEXC_COUNT_MAX && *max != GRAM_NO_END))
				gramctx_fail(p->g, ST_LIMIT, "at byte %zu of the expression: more than %u repetitions", at, REGEXC_COUNT_MAX);
			else if (*min > *max)
				regexc_fail(p, ST_INVALID, at, "the quantifier's smallest count is above its largest");
			return true;
		}
	} else if (regexc_skip(p, ",") && regexc_number(p, max) && regexc_skip(p, "}")) {
		return true; /* {,n}, Python's */
	}
	p->pos = at;
	return false;
}

static const struct regexc *regexc_atom(struct regexc_parser *p)
{
	size_t at = p->pos;
	struct regexc *x;

	switch (p->s[at]) {
	case '(': return regexc_group(p);
	case '^':
	case '$':
		p->pos++;
		return regexc_new(p, p->s[at] == '^' ? REGEXC_BEGIN : REGEXC_END, at);
	case '*':
	case '+':
	case '?':
		regexc_fail(p, ST_INVALID, at, "a quantifier with nothing before it");
		return NULL;
	default: break;
	}
	x = regexc_new(p, REGEXC_SET, at);
	if (p->s[at] == '[') {
		x->set = regexc_class(p);
	} else if (p->s[at] == '.') {
		p->pos++;
		x->set = charset_not(p->g, charset_class(p->g, '.', !p->wide));
	} else if (p->s[at] == '\\') {
		struct regexc_item it = regexc_escape(p, false);

		x->set = it.is_set ? it.set : charset_one(p->g, it.cp, it.cp);
	} else {
		uint32_t cp;

		p->pos += (size_t)utf8_decode(p->s + at, &cp);
		x->set = charset_one(p->g, cp, cp);
	}
	return x;
}

static const struct regexc *regexc_sequence(struct regexc_parser *p)
{
	struct regexc *cat = regexc_new(p, REGEXC_CAT, p->pos);

	while (gramctx_work(p->g, 1) && p->pos < p->len && p->s[p->pos] != '|' && p->s[p->pos] != ')') {
		size_t at = p->pos;
		const struct regexc *x = regexc_atom(p);
		uint32_t min, max;

		if (!x) return NULL;
		if (regexc_quantifier(p, &min, &max)) {
			if (x->kind == REGEXC_BEGIN || x->kind == REGEXC_END) regexc_fail(p, ST_INVALID, at, "a quantifier behind ^ or $");
			/* Only the round at an end could match: nobody writes that, and it is easily got wrong. */
			else if (x->has_anchor) regexc_fail(p, ST_UNSUPPORTED, at, "a quantifier over ^ or $ is not supported");
			x = regexc_repeat(p->g, x, min, max);
			if (!regexc_skip(p, "?") && regexc_at(p, "+")) regexc_fail(p, ST_UNSUPPORTED, p->pos, "possessive quantifiers are not supported");
			if (regexc_quantifier(p, &min, &max)) regexc_fail(p, ST_INVALID, at, "two quantifiers in a row");
		}
		regexc_add(p, cat, x);
	}
	return cat->n_parts == 1 ? cat->parts[0] : cat;
}

static const struct regexc *regexc_alternatives(struct regexc_parser *p)
{
	const struct regexc *first = regexc_sequence(p);
	struct regexc *alt;

	if (!first || !regexc_at(p, "|")) return first;
	alt = regexc_new(p, REGEXC_ALT, first->pos);
	regexc_add(p, alt, first);
	while (regexc_skip(p, "|")) {
		const struct regexc *x = regexc_sequence(p);

		if (!x) return NULL;
		regexc_add(p, alt, x);
	}
	return alt;
}

const struct regexc *regexc_parse(struct gramctx *g, const char *text, size_t len, bool wide)
{
	struct regexc_parser p = {.g = g, .s = text, .len = len, .wide = wide};
	const struct regexc *x;

	if (len > REGEXC_TEXT_MAX) {
		gramctx_fail(g, ST_LIMIT, "the expression is longer than %zu bytes", REGEXC_TEXT_MAX);
		return NULL;
	}
	if (utf8_valid_len(text, len) != len) {
		gramctx_fail(g, ST_INVALID, "the expression is not UTF-8");
		return NULL;
	}
	x = regexc_alternatives(&p);
	if (x && gramctx_is_ok(g) && p.pos < len) regexc_fail(&p, ST_INVALID, p.pos, "\")\" closes nothing");
	return gramctx_is_ok(g) ? x : NULL;
}
