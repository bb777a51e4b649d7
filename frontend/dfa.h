/* dfa.h - deterministic automata over characters: what a string or a number's text may be. Immutable; the memory is the grammar
 * compiler's.
 *
 * Every state can be reached and can reach an end, so an automaton without states is the empty language. State 0 is the start.
 * Edges of a state are sorted and disjoint; where none leads on, the text is not in the language. Operations that become
 * larger than the budget make g fail and return something harmless. */
#ifndef SLUICE_DFA_H
#define SLUICE_DFA_H

#include "frontend/charset.h"
#include "frontend/regexc.h"

struct dfa_edge {
	uint32_t lo, hi, to;
};

struct dfa {
	uint32_t n;               /* states */
	const uint32_t *first;    /* (n + 1) of each state's edges */
	const struct dfa_edge *edges;
	const uint8_t *is_final;  /* (n) */
};

/* ---- making ---- */

struct dfabuild; /* states and edges in any order; state 0 is the start */

struct dfabuild *dfabuild_new(struct gramctx *g);
uint32_t dfabuild_state(struct dfabuild *b, bool is_final);
void dfabuild_final(struct dfabuild *b, uint32_t state);
void dfabuild_edge(struct dfabuild *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);
/* Leaves out useless states and merges those that are plainly the same. */
const struct dfa *dfabuild_finish(struct dfabuild *b);

/* Texts that x matches as a whole, or, with `search`, that have a match in them. `wide` as in regexc.h. */
const struct dfa *dfaregex(struct gramctx *g, const struct regexc *x, bool search, bool wide);
/* The same from the expression's text. NULL: g has failed. */
const struct dfa *dfaregex_pattern(struct gramctx *g, const char *text, size_t len, bool search, bool wide);

struct dfa_word {
	const char *text; /* UTF-8 */
	size_t len;
};

const struct dfa *dfa_words(struct gramctx *g, const struct dfa_word *words, size_t n);
const struct dfa *dfa_none(struct gramctx *g);
const struct dfa *dfa_all(struct gramctx *g);
/* Any text of min to max characters; max may be GRAM_NO_END. */
const struct dfa *dfa_lengths(struct gramctx *g, uint32_t min, uint32_t max);

/* ---- combining ---- */

const struct dfa *dfa_and(struct gramctx *g, const struct dfa *a, const struct dfa *b);
const struct dfa *dfa_or(struct gramctx *g, const struct dfa *a, const struct dfa *b);
const struct dfa *dfa_minus(struct gramctx *g, const struct dfa *a, const struct dfa *b);
const struct dfa *dfa_not(struct gramctx *g, const struct dfa *a);

/* ---- asking ---- */

static inline bool dfa_is_empty(const struct dfa *a)
{
	return a->n == 0;
}

bool dfa_accepts(const struct dfa *a, const char *text, size_t len);
/* Lengths in characters of the shortest and the longest text (GRAM_NO_END: without limit); a is not empty. */
void dfa_span(struct gramctx *g, const struct dfa *a, uint32_t *shortest, uint32_t *longest);
/* All texts, when there are at most n of them: returns how many, else n + 1. Shortest prefixes first. */
size_t dfa_list(struct gramctx *g, const struct dfa *a, struct dfa_word *words, size_t n);

#endif
