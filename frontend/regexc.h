/* regexc.h - regular expressions in the syntax that ECMAScript and Python share, to a tree, and the tree to a grammar.
 *
 * Understood: alternatives, groups of every kind (capturing, (?:...), (?<n>...), (?P<n>...)), the quantifiers * + ? {m} {m,} {m,n}
 * with or without a lazy "?", classes, \d \w \s \D \W \S, \t \n \r \f \v \0 \cX, \xHH, \uHHHH (pairs too), \u{...}, general
 * categories as \p{Lu} or \PL, the dot (no line end), ^ and $. Characters are code points. Not understood, and refused by name with
 * their position: lookaround, backreferences, \b, flags, possessive quantifiers, atomic groups and scripts.
 *
 * Languages differ over characters outside ASCII (is é a \w?). The narrow reading takes what all of them match, and is for texts
 * that have to match; the wide one what any of them matches, for texts that must not. */
#ifndef SLUICE_REGEXC_H
#define SLUICE_REGEXC_H

#include "frontend/charset.h"

enum regexc_kind {
	REGEXC_SET,    /* one character of a set; an empty set matches nothing */
	REGEXC_CAT,    /* all parts in a row; none of them is the empty text */
	REGEXC_ALT,    /* one of the parts */
	REGEXC_REPEAT, /* parts[0], min to max times */
	REGEXC_BEGIN,  /* ^ */
	REGEXC_END,    /* $ */
	REGEXC_RULE    /* a named rule's text; only in grammars, which ebnfc.c makes */
};

/* A rule that trees refer to. Whoever makes it emits `body` into the rule `number`, and, when it is not 0 after that,
 * `body` without the empty text into the rule `number_not_empty`. */
struct regexc_rule {
	const struct regexc *body;
	uint32_t number, number_not_empty;
};

struct regexc {
	enum regexc_kind kind;
	struct charset set;
	const struct regexc **parts;
	size_t n_parts, cap_parts;
	uint32_t min, max; /* GRAM_NO_END: no limit */
	size_t pos;        /* byte in the expression */
	bool may_be_empty;
	bool has_anchor;   /* ^ or $ somewhere in it */
	bool not_empty;    /* REGEXC_RULE: the rule's text but not the empty one */
	struct regexc_rule *rule;
};

/* NULL: g has failed. */
const struct regexc *regexc_parse(struct gramctx *g, const char *text, size_t len, bool wide);

/* One node; for those who build expressions themselves. */
const struct regexc *regexc_set(struct gramctx *g, struct charset set);
const struct regexc *regexc_repeat(struct gramctx *g, const struct regexc *x, uint32_t min, uint32_t max);

/* x without the empty text; NULL when nothing else matches x. */
const struct regexc *regexemit_not_empty(struct gramctx *g, const struct regexc *x);

/* Puts what matches x as a whole into the rule, from the state `from`; returns the state behind it. "^" and "$" are allowed where
 * they say nothing. */
uint32_t regexemit_into(struct gramctx *g, const struct regexc *x, uint32_t rule, uint32_t from);

#endif
