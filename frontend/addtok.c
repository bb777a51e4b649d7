/* addtok.c - see addtok.h.
 *
 * The entries lie sorted by their texts, so those that share a prefix are neighbours and each byte of the text narrows a
 * range: no automaton, and time O(longest token) a place, only at places whose byte begins some token. */
#include "frontend/addtok.h"

#include "common/mem.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"

#include <string.h>
#include <utf8proc.h>

void addtok_init(struct addtok *a)
{
	*a = (struct addtok){0};
}

void addtok_release(struct addtok *a)
{
	free(a->entries);
	free(a->text);
	*a = (struct addtok){0};
}

void addtok_add(struct addtok *a, struct addtok_entry entry, const char *text, size_t len)
{
	if (len == 0 || utf8_valid_len(text, len) != len) return;
	mem_reserve(a->entries, a->cap, a->n + 1);
	mem_reserve(a->text, a->text_cap, a->text_len + len);
	memcpy(a->text + a->text_len, text, len);
	entry.at = (uint32_t)a->text_len;
	entry.len = (uint32_t)len;
	a->text_len += len;
	a->entries[a->n++] = entry;
	a->first[(unsigned char)text[0]] = true;
}

static int addtok_compare(const void *left, const void *right, void *ctx)
{
	const struct addtok *a = ctx;
	const struct addtok_entry *l = left, *r = right;
	int c = memcmp(a->text + l->at, a->text + r->at, min_size(l->len, r->len));

	if (c != 0) return c;
	if (l->len != r->len) return l->len < r->len ? -1 : 1;
	return l->at < r->at ? -1 : l->at > r->at;
}

void addtok_sort(struct addtok *a)
{
	size_t n = 0;

	if (a->n == 0) return;
	qsort_r(a->entries, a->n, sizeof(*a->entries), addtok_compare, a);
	for (size_t i = 0; i < a->n; i++) {
		const struct addtok_entry *last = n > 0 ? &a->entries[n - 1] : NULL, *e = &a->entries[i];

		if (last && last->len == e->len && memcmp(a->text + last->at, a->text + e->at, e->len) == 0) continue;
		a->entries[n++] = *e;
	}
	a->n = n;
}

void addtok_limit(struct addtok *a, uint32_t n_ids)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n; i++)
		if (a->entries[i].id < n_ids) a->entries[n++] = a->entries[i];
	a->n = n;
}

/* ---- matching at one place ---- */

/* Byte `at` of the i-th entry as an ordered number; -1 past its end. */
static int entry_byte(const struct addtok *a, size_t i, size_t at)
{
	const struct addtok_entry *e = &a->entries[i];

	return at < e->len ? (unsigned char)a->text[e->at + at] : -1;
}

/* First position in [lo, hi) whose byte `at` is at least `byte`; the range agrees on all bytes before. */
static size_t entry_bound(const struct addtok *a, size_t lo, size_t hi, size_t at, int byte)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (entry_byte(a, mid, at) < byte)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct addtok_entry *addtok_match(const struct addtok *a, const char *s, size_t len, size_t special_len)
{
	size_t lo = 0, hi = a->n;
	const struct addtok_entry *best = NULL;

	for (size_t at = 0; at < len && lo < hi; at++) {
		int byte = (unsigned char)s[at];

		if (at == 0 && !a->first[byte]) return NULL;
		lo = entry_bound(a, lo, hi, at, byte);
		hi = entry_bound(a, lo, hi, at, byte + 1);
		/* One that ends here is the first of its range: no text is there twice. */
		if (lo < hi && a->entries[lo].len == at + 1 && (!a->entries[lo].special || at + 1 <= special_len))
			best = &a->entries[lo];
	}
	return best;
}

uint32_t addtok_lookup(const struct addtok *a, const char *s, size_t len)
{
	const struct addtok_entry *e = addtok_match(a, s, len, len);

	return e && e->len == len ? e->id : TOKEN_NONE;
}

/* ---- neighbours ---- */

static bool is_space(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
	c = utf8proc_category((utf8proc_int32_t)cp);
	return cp == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

static bool is_word(uint32_t cp)
{
	switch (utf8proc_category((utf8proc_int32_t)cp)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC:
		return true;
	default:
		return false;
	}
}

/* The character that ends at `end`, where one does; its length. */
static size_t char_before(const char *s, size_t end, uint32_t *cp)
{
	size_t at = end - 1;

	while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
	utf8_decode(s + at, cp);
	return end - at;
}

static bool has_word_beside(const char *s, size_t len, size_t from, size_t to)
{
	uint32_t cp;

	if (from > 0) {
		char_before(s, from, &cp);
		if (is_word(cp)) return true;
	}
	if (to == len) return false;
	utf8_decode(s + to, &cp);
	return is_word(cp);
}

static void take_spaces(const struct addtok_entry *e, const char *s, size_t len, size_t at, struct addtok_match *m)
{
	uint32_t cp;
	size_t n;

	while (e->lstrip && m->from > at) {
		n = char_before(s, m->from, &cp);
		if (!is_space(cp) || n > m->from - at) break;
		m->from -= n;
	}
	while (e->rstrip && m->to < len) {
		n = (size_t)utf8_decode(s + m->to, &cp);
		if (!is_space(cp)) break;
		m->to += n;
	}
}

/* ---- searching ---- */

bool addtok_next(const struct addtok *a, struct addtok_scan *scan, struct addtok_match *out)
{
	const char *s = scan->s;

	if (a->n == 0) return false;
	for (size_t i = scan->at; i < scan->len; i++) {
		const struct addtok_entry *e;
		size_t special_len = 0;

		if (!a->first[(unsigned char)s[i]]) continue;
		while (scan->span < scan->n_spans && scan->spans[scan->span].end <= i) scan->span++;
		if (scan->span < scan->n_spans && scan->spans[scan->span].start <= i)
			special_len = scan->spans[scan->span].end - i;
		e = addtok_match(a, s + i, scan->len - i, special_len);
		if (!e || (e->single_word && has_word_beside(s, scan->len, i, i + e->len))) continue;
		*out = (struct addtok_match){e->id, i, i + e->len};
		take_spaces(e, s, scan->len, scan->at, out);
		scan->at = out->to;
		return true;
	}
	scan->at = scan->len;
	return false;
}
