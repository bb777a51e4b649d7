/* charset.c - see charset.h. */
#include "frontend/charset.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static int charset_compare(const void *a, const void *b)
{
	const struct gram_range *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

struct charset charset_of(struct gramctx *g, const struct gram_range *ranges, size_t n)
{
	struct gram_range *r = gramctx_array(g, struct gram_range, 2 * n); /* twice: surrogates may cut one in two */
	size_t i, m = 0, k = 0;

	gramctx_work(g, n / 4);
	for (i = 0; i < n; i++) {
		if (ranges[i].lo > ranges[i].hi) continue;
		if (ranges[i].lo < 0xd800) r[m++] = (struct gram_range){ranges[i].lo, min_u32(ranges[i].hi, 0xd7ff)};
		if (ranges[i].hi > 0xdfff) r[m++] = (struct gram_range){max_u32(ranges[i].lo, 0xe000), ranges[i].hi};
	}
	gramctx_sort(g, r, m, sizeof(*r), charset_compare);
	for (i = 0; i < m; i++) {
		if (k && r[i].lo <= r[k - 1].hi + 1) r[k - 1].hi = max_u32(r[k - 1].hi, r[i].hi);
		else r[k++] = r[i];
	}
	return (struct charset){r, k};
}

struct charset charset_one(struct gramctx *g, uint32_t lo, uint32_t hi)
{
	return charset_of(g, &(struct gram_range){lo, hi}, 1);
}

struct charset charset_or(struct gramctx *g, struct charset a, struct charset b)
{
	struct gram_range *r = gramctx_array(g, struct gram_range, a.n + b.n);

	if (a.n) memcpy(r, a.ranges, a.n * sizeof(*r));
	if (b.n) memcpy(r + a.n, b.ranges, b.n * sizeof(*r));
	return charset_of(g, r, a.n + b.n);
}

struct charset charset_not(struct gramctx *g, struct charset a)
{
	struct gram_range *r = gramctx_array(g, struct gram_range, a.n + 1);
	uint32_t from = 0;
	size_t i, m = 0;

	for (i = 0; i < a.n; i++) {
		if (a.ranges[i].lo > from) r[m++] = (struct gram_range){from, a.ranges[i].lo - 1};
		from = a.ranges[i].hi + 1;
	}
	if (from <= CHARSET_MAX) r[m++] = (struct gram_range){from, CHARSET_MAX};
	return charset_of(g, r, m);
}

struct charset charset_and(struct gramctx *g, struct charset a, struct charset b)
{
	return charset_not(g, charset_or(g, charset_not(g, a), charset_not(g, b)));
}

bool charset_has(struct charset a, uint32_t cp)
{
	size_t lo = 0, hi = a.n, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (a.ranges[mid].hi < cp) lo = mid + 1;
		else hi = mid;
	}
	return lo < a.n && a.ranges[lo].lo <= cp;
}

bool charset_equal(struct charset a, struct charset b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.ranges, b.ranges, a.n * sizeof(*a.ranges)) == 0);
}

/* ---- categories ---- */

static const char category_names[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
					 "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

/* Planes 4 to 13 have no character; a range that ends here is not looked at one by one. */
static const struct gram_range assigned[] = {{0, 0x3ffff}, {0xe0000, 0xe0fff}, {0xf0000, 0xf0000}, {0x100000, 0x100000}};

struct charset_scanned {
	uint32_t categories;
	struct charset set;
	struct charset_scanned *next;
};

/* Looks at every character once for each combination of categories; some milliseconds. */
static struct charset charset_scan(struct gramctx *g, uint32_t categories)
{
	struct charset_scanned *known;
	struct gram_range *r = NULL;
	size_t n = 0, cap = 0, i;
	uint32_t cp;

	for (known = g->scanned; known; known = known->next)
		if (known->categories == categories) return known->set;
	if (!gramctx_work(g, 50000)) return (struct charset){NULL, 0};
	for (i = 0; i < ARRAY_LEN(assigned); i++) {
		for (cp = assigned[i].lo; cp <= assigned[i].hi; cp++) {
			if (!(categories >> utf8proc_category((utf8proc_int32_t)cp) & 1)) continue;
			if (n && r[n - 1].hi + 1 == cp) {
				r[n - 1].hi = cp;
				continue;
			}
			gramctx_reserve(g, r, n, cap);
			r[n++] = (struct gram_range){cp, cp};
		}
	}
	/* The private planes are one category from end to end. */
	for (i = 0; i < n; i++)
		if (r[i].lo == 0xf0000 || r[i].lo == 0x100000) r[i].hi += 0xfffd;
	known = gramctx_array(g, struct charset_scanned, 1);
	*known = (struct charset_scanned){categories, charset_of(g, r, n), g->scanned};
	g->scanned = known;
	return known->set;
}

/* The long names that people use. */
static const struct {
	const char *name, *category;
} category_aliases[] = {
	{"Letter", "L"},          {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"}, {"Mark", "M"},        {"Number", "N"},
	{"Decimal_Number", "Nd"}, {"digit", "Nd"},            {"Punctuation", "P"},       {"punct", "P"},       {"Symbol", "S"},
	{"Math_Symbol", "Sm"},    {"Currency_Symbol", "Sc"},  {"Separator", "Z"},         {"Space_Separator", "Zs"},
};

bool charset_category(struct gramctx *g, const char *name, size_t len, struct charset *out)
{
	uint32_t set = 0;
	size_t i;
	int c;

	for (i = 0; i < ARRAY_LEN(category_aliases); i++)
		if (strlen(category_aliases[i].name) == len && memcmp(category_aliases[i].name, name, len) == 0)
			return charset_category(g, category_aliases[i].category, strlen(category_aliases[i].category), out);
	if (len == 0 || len > 2) return false;
	for (c = UTF8PROC_CATEGORY_LU; c <= UTF8PROC_CATEGORY_CO; c++) {
		if (c == UTF8PROC_CATEGORY_CS) continue;
		if (strncmp(category_names[c], name, len) == 0) set |= 1u << c;
	}
	/* C as a whole would have to include Cn, the characters of the future. */
	if (!set || (len == 1 && name[0] == 'C')) return false;
	*out = charset_scan(g, set);
	return true;
}

/* ---- \d, \w, \s and the dot ---- */

static const struct gram_range ascii_digit[] = {{'0', '9'}};
static const struct gram_range ascii_word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct gram_range ascii_space[] = {{'\t', '\r'}, {' ', ' '}};
/* ECMAScript's, Unicode's White_Space, and Python's \x1c to \x1f. */
static const struct gram_range any_space[] = {{'\t', '\r'},     {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
					      {0x1680, 0x1680}, {0x180e, 0x180e}, {0x2000, 0x200a}, {0x2028, 0x2029},
					      {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct gram_range line_end[] = {{'\n', '\n'}};
static const struct gram_range any_line_end[] = {{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}};

struct charset charset_class(struct gramctx *g, char name, bool wide)
{
	const uint32_t word = 1u << UTF8PROC_CATEGORY_LU | 1u << UTF8PROC_CATEGORY_LL | 1u << UTF8PROC_CATEGORY_LT | 1u << UTF8PROC_CATEGORY_LM |
			      1u << UTF8PROC_CATEGORY_LO | 1u << UTF8PROC_CATEGORY_MN | 1u << UTF8PROC_CATEGORY_MC | 1u << UTF8PROC_CATEGORY_ME |
			      1u << UTF8PROC_CATEGORY_ND | 1u << UTF8PROC_CATEGORY_NL | 1u << UTF8PROC_CATEGORY_NO | 1u << UTF8PROC_CATEGORY_PC;

	switch (name) {
	case 'd': return wide ? charset_scan(g, 1u << UTF8PROC_CATEGORY_ND) : (struct charset){ascii_digit, ARRAY_LEN(ascii_digit)};
	case 'w': return wide ? charset_scan(g, word) : (struct charset){ascii_word, ARRAY_LEN(ascii_word)};
	case 's':
		return wide ? (struct charset){any_space, ARRAY_LEN(any_space)} : (struct charset){ascii_space, ARRAY_LEN(ascii_space)};
	default:
		return wide ? (struct charset){any_line_end, ARRAY_LEN(any_line_end)} : (struct charset){line_end, ARRAY_LEN(line_end)};
	}
}
