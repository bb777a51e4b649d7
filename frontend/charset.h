/* charset.h - sets of characters (code points without surrogates), as sorted, disjoint, not adjacent ranges. Immutable; the memory
 * is the grammar compiler's. */
#ifndef SLUICE_CHARSET_H
#define SLUICE_CHARSET_H

#include "frontend/gramctx.h"

#define CHARSET_MAX 0x10ffffu

struct charset {
	const struct gram_range *ranges;
	size_t n;
};

/* Any ranges, in any order. */
struct charset charset_of(struct gramctx *g, const struct gram_range *ranges, size_t n);
struct charset charset_one(struct gramctx *g, uint32_t lo, uint32_t hi);
struct charset charset_or(struct gramctx *g, struct charset a, struct charset b);
struct charset charset_not(struct gramctx *g, struct charset a);
struct charset charset_and(struct gramctx *g, struct charset a, struct charset b);
bool charset_has(struct charset a, uint32_t cp);
bool charset_equal(struct charset a, struct charset b);

/* \d \w \s, and '.' for what a dot does not match. Expression languages differ over the characters outside ASCII: the narrow set
 * has what all of them agree on (ECMAScript's, for \s less), the wide one what any of them has. */
struct charset charset_class(struct gramctx *g, char name, bool wide);

/* A general category as in \p{Lu} or \p{L}. False: there is none of that name, or it is one of the unassigned. */
bool charset_category(struct gramctx *g, const char *name, size_t len, struct charset *out);

#endif
