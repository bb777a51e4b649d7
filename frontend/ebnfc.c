/* ebnfc.c - see ebnfc.h. The text becomes trees of regexc.h, one a rule; then the rules are checked and emitted. */
#include "frontend/ebnfc.h"

#include "common/map.h"
#include "common/quote.h"
#include "common/utf8.h"
#include "frontend/ebnfc_impl.h"

#include <string.h>
#include <xxhash.h>

#define EBNFC_TEXT_MAX (256 * KIB)
#define EBNFC_COUNT_MAX 100000u

static void ebnfc_fail(struct ebnfc *p, int rc, size_t pos, const char *what)
{
	gramctx_fail(p->g, rc, "line %u: %s", ebnfc_line(p, pos), what);
}

uint32_t ebnfc_line(const struct ebnfc *p, size_t pos)
{
	uint32_t line = 1;
	size_t i;

	for (i = 0; i < pos && i < p->len; i++) line += p->s[i] == '\n';
	return line;
}

/* ---- words ---- */

static bool ebnfc_is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static size_t ebnfc_past_space(const struct ebnfc *p, size_t at)
{
	while (at < p->len) {
		char c = p->s[at];

		if (c == '#') {
			while (at < p->len && p->s[at] != '\n') at++;
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			at++;
		} else {
			break;
		}
	}
	return at;
}

static bool ebnfc_at(const struct ebnfc *p, size_t at, const char *text)
{
	size_t n = strlen(text);

	return at <= p->len && n <= p->len - at && memcmp(p->s + at, text, n) == 0;
}

static char ebnfc_peek(struct ebnfc *p)
{
	p->pos = ebnfc_past_space(p, p->pos);
	return p->pos < p->len ? p->s[p->pos] : 0;
}

/* The length of a name at p->pos, or 0. *defines: it is a rule's left side. */
static size_t ebnfc_name(struct ebnfc *p, bool *defines)
{
	size_t n = 0;

	while (p->pos + n < p->len && ebnfc_is_name(p->s[p->pos + n])) n++;
	*defines = n && ebnfc_at(p, ebnfc_past_space(p, p->pos + n), "::=");
	return n;
}

static struct ebnfc_rule *ebnfc_rule_of(struct ebnfc *p, const char *name, size_t len)
{
	uint64_t h = XXH3_64bits(name, len);
	struct ebnfc_rule *r;

	for (; (r = map_get(&p->by_name, h)); h++)
		if (r->name_len == len && memcmp(r->name, name, len) == 0) return r;
	r = gramctx_array(p->g, struct ebnfc_rule, 1);
	r->name = name;
	r->name_len = len;
	r->pos = p->pos;
	map_put(&p->by_name, h, r);
	gramctx_reserve(p->g, p->rules, p->n_rules, p->cap_rules);
	p->rules[p->n_rules++] = r;
	return r;
}

/* ---- literals and classes ---- */

static bool ebnfc_hex(struct ebnfc *p, size_t n, uint32_t *out)
{
	uint32_t v = 0;

	for (; n > 0; n--, p->pos++) {
		char c = p->pos < p->len ? p->s[p->pos] : 0;

		if (c >= '0' && c <= '9') v = v << 4 | (uint32_t)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') v = v << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
		else return false;
	}
	*out = v;
	return true;
}

/* One character of a literal or a class; there is one. */
static uint32_t ebnfc_char(struct ebnfc *p)
{
	static const char letters[] = "nrtfv0", values[] = "\n\r\t\f\v";
	size_t at = p->pos, digits;
	const char *known;
	uint32_t cp = 0;
	char c;

	if (p->s[at] != '\\' || at + 1 >= p->len) {
		p->pos += (size_t)utf8_decode(p->s + at, &cp);
		return cp;
	}
	c = p->s[at + 1];
	p->pos += 2;
	digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (digits) {
		if (!ebnfc_hex(p, digits, &cp)) ebnfc_fail(p, ST_INVALID, at, "\\x, \\u and \\U take 2, 4 and 8 hexadecimal digits");
		else if (cp > CHARSET_MAX || (cp >= 0xd800 && cp <= 0xdfff)) ebnfc_fail(p, ST_INVALID, at, "an escape that is no character");
	} else if ((known = strchr(letters, c)) && c) {
		cp = (unsigned char)values[known - letters];
	} else if (strchr("\\\"'[]-^/", c) && c) {
		cp = (unsigned char)c;
	} else {
		gramctx_fail(p->g, ST_INVALID, "line %u: an unknown escape, \\%s", ebnfc_line(p, at), quote_short(&c, 1).text);
	}
	return cp;
}

static struct regexc *ebnfc_node(struct ebnfc *p, enum regexc_kind kind)
{
	struct regexc *x = gramctx_array(p->g, struct regexc, 1);

	x->kind = kind;
	x->pos = p->pos;
	return x;
}

static void ebnfc_add(struct ebnfc *p, struct regexc *x, const struct regexc *part)
{
	gramctx_reserve(p->g, x->parts, x->n_parts, x->cap_parts);
	x->parts[x->n_parts++] = part;
}

/* At a quote. */
static const struct regexc *ebnfc_literal(struct ebnfc *p)
{
	struct regexc *cat = ebnfc_node(p, REGEXC_CAT);
	size_t at = p->pos;
	char quote = p->s[p->pos++];

	while (gramctx_work(p->g, 1)) {
		uint32_t cp;

		if (p->pos == p->len || p->s[p->pos] == '\n') {
			ebnfc_fail(p, ST_INVALID, at, "a literal is not closed");
			break;
		}
		if (p->s[p->pos] == quote) break;
		cp = ebnfc_char(p);
		ebnfc_add(p, cat, regexc_set(p->g, charset_one(p->g, cp, cp)));
	}
	if (p->pos < p->len) p->pos++;
	return cat;
}

/* At "[". */
static const struct regexc *ebnfc_class(struct ebnfc *p)
{
	struct gram_range *r = NULL;
	size_t n = 0, cap = 0, at = p->pos++;
	bool negated = ebnfc_at(p, p->pos, "^");
	struct charset set;

	p->pos += negated;
	while (gramctx_work(p->g, 1)) {
		struct gram_range one;

		if (p->pos == p->len || p->s[p->pos] == '\n') {
			ebnfc_fail(p, ST_INVALID, at, "a class, \"[...]\", is not closed");
			break;
		}
		if (p->s[p->pos] == ']') break;
		one.lo = one.hi = ebnfc_char(p);
		if (p->pos + 1 < p->len && p->s[p->pos] == '-' && p->s[p->pos + 1] != ']') {
			p->pos++;
			one.hi = ebnfc_char(p);
			if (one.hi < one.lo) ebnfc_fail(p, ST_INVALID, at, "a range in a class runs backwards");
		}
		gramctx_reserve(p->g, r, n, cap);
		r[n++] = one;
	}
	if (p->pos < p->len) p->pos++;
	if (!n && !negated) ebnfc_fail(p, ST_INVALID, at, "a class without characters");
	set = charset_of(p->g, r, n);
	return regexc_set(p->g, negated ? charset_not(p->g, set) : set);
}

/* ---- structure ---- */

static const struct regexc *ebnfc_alternatives(struct ebnfc *p);

static const struct regexc *ebnfc_group(struct ebnfc *p)
{
	const struct regexc *x;
	size_t at = p->pos++;

	if (ebnfc_at(p, p->pos, "?")) {
		ebnfc_fail(p, ST_UNSUPPORTED, at, "lookahead, \"(?\", is not supported");
		return NULL;
	}
	if (++p->depth > GRAMCTX_DEPTH_MAX) {
		gramctx_fail(p->g, ST_LIMIT, "line %u: parentheses are nested deeper than %d", ebnfc_line(p, at), GRAMCTX_DEPTH_MAX);
		return NULL;
	}
	x = ebnfc_alternatives(p);
	if (gramctx_is_ok(p->g) && ebnfc_peek(p) != ')') ebnfc_fail(p, ST_INVALID, at, "\"(\" is not closed");
	p->pos++;
	p->depth--;
	return x;
}

static const struct regexc *ebnfc_reference(struct ebnfc *p, size_t len)
{
	struct regexc *x = ebnfc_node(p, REGEXC_RULE);

	x->rule = &ebnfc_rule_of(p, p->s + p->pos, len)->rule;
	p->pos += len;
	return x;
}

/* NULL: nothing of a sequence stands here, or g has failed. */
static const struct regexc *ebnfc_atom(struct ebnfc *p)
{
	char c = ebnfc_peek(p);
	bool defines;
	size_t len;

	switch (c) {
	case '"':
	case '\'': return ebnfc_literal(p);
	case '[': return ebnfc_class(p);
	case '(': return ebnfc_group(p);
	case '.':
		p->pos++;
		return regexc_set(p->g, charset_not(p->g, (struct charset){NULL, 0}));
	case '<':
		ebnfc_fail(p, ST_UNSUPPORTED, p->pos, "tokens in a grammar, \"<...>\", are not supported");
		return NULL;
	default:
		len = ebnfc_name(p, &defines);
		return len && !defines ? ebnfc_reference(p, len) : NULL;
	}
}

static bool ebnfc_number(struct ebnfc *p, uint32_t *out)
{
	size_t from;

	ebnfc_peek(p);
	for (from = p->pos, *out = 0; p->pos < p->len && p->s[p->pos] >= '0' && p->s[p->pos] <= '9'; p->pos++)
		if (*out <= EBNFC_COUNT_MAX) *out = *out * 10 + (uint32_t)(p->s[p->pos] - '0');
	return p->pos > from;
}

/* At "{". */
static void ebnfc_braces(struct ebnfc *p, uint32_t *min, uint32_t *max)
{
	size_t at = p->pos++;
	bool has_min = ebnfc_number(p, min), has_max;

	*max = *min;
	if (ebnfc_peek(p) == ',') {
		p->pos++;
		has_max = ebnfc_number(p, max);
		if (!has_max) *max = GRAM_NO_END;
	} else {
		has_max = has_min;
	}
	if ((!has_min && !has_max) || ebnfc_peek(p) != '}')
		ebnfc_fail(p, ST_INVALID, at, "a repetition is {n}, {n,}, {,n} or {n,m}");
	else if (*min > *max)
		ebnfc_fail(p, ST_INVALID, at, "a repetition's smallest count is above its largest");
	else if (*min > EBNFC_COUNT_MAX || (*max > EBNFC_COUNT_MAX && *max != GRAM_NO_END))
		gramctx_fail(p->g, ST_LIMIT, "line %u: more than %u repetitions", ebnfc_line(p, at), EBNFC_COUNT_MAX);
	p->pos++;
}

static const struct regexc *ebnfc_repeats(struct ebnfc *p, const struct regexc *x)
{
	int n;

	for (n = 0; x && gramctx_is_ok(p->g); n++) {
		char c = ebnfc_peek(p);
		uint32_t min = c == '+', max = c == '?' ? 1 : GRAM_NO_END;

		if (c == '{') ebnfc_braces(p, &min, &max);
		else if (c && strchr("*+?", c)) p->pos++;
		else break;
		if (n == 8) ebnfc_fail(p, ST_INVALID, p->pos, "too many repetitions in a row");
		x = regexc_repeat(p->g, x, min, max);
	}
	return x;
}

static const struct regexc *ebnfc_sequence(struct ebnfc *p)
{
	struct regexc *cat = ebnfc_node(p, REGEXC_CAT);
	const struct regexc *x;

	while (gramctx_work(p->g, 1) && (x = ebnfc_repeats(p, ebnfc_atom(p)))) ebnfc_add(p, cat, x);
	return cat->n_parts == 1 ? cat->parts[0] : cat;
}

static const struct regexc *ebnfc_alternatives(struct ebnfc *p)
{
	const struct regexc *first = ebnfc_sequence(p);
	struct regexc *alt;

	if (ebnfc_peek(p) != '|') return first;
	alt = ebnfc_node(p, REGEXC_ALT);
	ebnfc_add(p, alt, first);
	while (gramctx_work(p->g, 1) && ebnfc_peek(p) == '|') {
		p->pos++;
		ebnfc_add(p, alt, ebnfc_sequence(p));
	}
	return alt;
}

static void ebnfc_definition(struct ebnfc *p)
{
	struct ebnfc_rule *r;
	bool defines;
	size_t len = ebnfc_name(p, &defines);

	if (!len || !defines) {
		size_t behind = ebnfc_past_space(p, p->pos + len);

		if (len && ebnfc_at(p, behind, ":"))
			ebnfc_fail(p, ST_UNSUPPORTED, p->pos, "expected \"name ::= ...\"; Lark grammars are not supported, write GBNF");
		else
			gramctx_fail(p->g, ST_INVALID, "line %u: expected a rule, \"name ::= ...\", got %s", ebnfc_line(p, p->pos),
				     quote_short(p->s + p->pos, min_size(p->len - p->pos, 20)).text);
		return;
	}
	r = ebnfc_rule_of(p, p->s + p->pos, len);
	if (r->rule.body) {
		gramctx_fail(p->g, ST_INVALID, "line %u: rule %s is there already, in line %u", ebnfc_line(p, p->pos),
			     quote_short(r->name, len).text, ebnfc_line(p, r->pos));
		return;
	}
	r->pos = p->pos;
	p->pos = ebnfc_past_space(p, p->pos + len) + 3;
	r->rule.body = ebnfc_alternatives(p);
}

static void ebnfc_parse(struct ebnfc *p)
{
	size_t i;

	while (gramctx_is_ok(p->g) && ebnfc_peek(p)) ebnfc_definition(p);
	if (gramctx_is_ok(p->g) && p->pos < p->len) ebnfc_fail(p, ST_INVALID, p->pos, "a zero byte");
	for (i = 0; i < p->n_rules && gramctx_is_ok(p->g); i++)
		if (!p->rules[i]->rule.body)
			gramctx_fail(p->g, ST_INVALID, "line %u: there is no rule %s", ebnfc_line(p, p->rules[i]->pos),
				     quote_short(p->rules[i]->name, p->rules[i]->name_len).text);
}

void ebnfc_compile(struct gramctx *g, const char *text, size_t len, uint32_t body)
{
	struct ebnfc p = {.g = g, .s = text, .len = len};
	struct ebnfc_rule *root = NULL;
	size_t i;

	if (len > EBNFC_TEXT_MAX) {
		gramctx_fail(g, ST_LIMIT, "the grammar is longer than %zu bytes", EBNFC_TEXT_MAX);
		return;
	}
	if (utf8_valid_len(text, len) != len) {
		gramctx_fail(g, ST_INVALID, "the grammar is not UTF-8");
		return;
	}
	map_init(&p.by_name);
	ebnfc_parse(&p);
	for (i = 0; i < p.n_rules; i++)
		if (p.rules[i]->name_len == 4 && memcmp(p.rules[i]->name, "root", 4) == 0) root = p.rules[i];
	if (!root) gramctx_fail(g, ST_INVALID, "there is no rule \"root\", with which a grammar begins");
	ebnfrules_check(&p);
	ebnfrules_emit(&p, root, body);
	map_release(&p.by_name);
}
