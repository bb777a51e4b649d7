/* addtok.h - finds special and added tokens in a text.
 *
 * Inside the tokenizer only. Tokens that are looked for in the text as it came and those looked for in the normalised
 * text are two of these. */
#ifndef SLUICE_ADDTOK_H
#define SLUICE_ADDTOK_H

#include "common/base.h"
#include "common/errbuf.h"

#define ADDTOK_LEN_MAX 1024 /* bytes of a token's text; real ones have less than 100 */

struct addtok_entry {
	uint32_t id;
	uint32_t at, len; /* of its text in addtok.text */
	bool special;     /* else added: recognised everywhere */
	bool lstrip, rstrip, single_word;
};

struct addtok {
	struct addtok_entry *entries; /* sorted by text once addtok_sort() was called */
	size_t n, cap;
	char *text; /* of all entries */
	size_t text_len, text_cap;
	bool first[256]; /* bytes that one of them begins with */
};

/* Drops those whose ids are not below n_ids. */
void addtok_limit(struct addtok *a, uint32_t n_ids);

/* What was found: text[from..to) is the token. */
struct addtok_match {
	uint32_t id;
	size_t from, to;
};

void addtok_init(struct addtok *a);
void addtok_release(struct addtok *a);
/* A copy of text is kept; an empty or ill-formed one is left out. entry: flags and id. The first of equal texts counts. */
void addtok_add(struct addtok *a, struct addtok_entry entry, const char *text, size_t len);
void addtok_sort(struct addtok *a);

/* The longest token that s[0..len) begins with among the added ones and, of at most special_len bytes, the special
 * ones; NULL when there is none. */
const struct addtok_entry *addtok_match(const struct addtok *a, const char *s, size_t len, size_t special_len);

/* A walk over the matches in s[0..len), from left to right; zero it, then set the first five. */
struct addtok_scan {
	const char *s;
	size_t len;
	const struct addtok_span {
		size_t start, end;
	} * spans; /* where special tokens are recognised: in order, apart from each other */
	size_t n_spans;
	size_t at;   /* the end of the last match */
	size_t span; /* the first one that does not end before `at` */
};

/* The next match, the longest at its place; false at the end. White space that it takes with it goes not beyond the last
 * match. */
bool addtok_next(const struct addtok *a, struct addtok_scan *scan, struct addtok_match *out);

/* The token with exactly this text, or TOKEN_NONE. */
uint32_t addtok_lookup(const struct addtok *a, const char *s, size_t len);

#endif
