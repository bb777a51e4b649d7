/* gramjson.h - the pieces of JSON as grammar: blanks, strings with their escapes, numbers, and values of any kind.
 *
 * Each function puts its piece into the rule from the state `from` and returns the state behind it. Rules that every text shares
 * (blanks, a character, any value) are made once, when they are first needed.
 *
 * White space is bounded, so that a model cannot go on with it forever: between tokens nothing, one blank, or one line end
 * with up to 20 blanks or tabs. */
#ifndef SLUICE_GRAMJSON_H
#define SLUICE_GRAMJSON_H

#include "frontend/dfa.h"

enum gramjson_shared {
	GRAMJSON_SPACE, /* one or more blanks */
	GRAMJSON_COMMA, /* with its blanks */
	GRAMJSON_COLON,
	GRAMJSON_CHAR,  /* one character of a string, perhaps escaped */
	GRAMJSON_STRING,
	GRAMJSON_NUMBER,
	GRAMJSON_INTEGER,
	GRAMJSON_ARRAY,
	GRAMJSON_OBJECT,
	GRAMJSON_VALUE,
	GRAMJSON_N_SHARED
};

struct gramjson_char_rule;

struct gramjson {
	struct gramctx *g;
	uint32_t shared[GRAMJSON_N_SHARED]; /* rule + 1; 0: not made yet */
	struct gramjson_char_rule *chars;   /* one character of a set */
	size_t n_chars, cap_chars;
};

void gramjson_init(struct gramjson *j, struct gramctx *g);

/* The rule's number. */
uint32_t gramjson_rule(struct gramjson *j, enum gramjson_shared what);
uint32_t gramjson_put(struct gramjson *j, enum gramjson_shared what, uint32_t rule, uint32_t from);

/* White space, or none. */
uint32_t gramjson_space(struct gramjson *j, uint32_t rule, uint32_t from);
uint32_t gramjson_text(struct gramjson *j, uint32_t from, const char *text);

/* A string whose characters are a text of the automaton; one of min to max characters. */
uint32_t gramjson_string(struct gramjson *j, const struct dfa *a, uint32_t rule, uint32_t from);
uint32_t gramjson_string_len(struct gramjson *j, uint32_t min, uint32_t max, uint32_t rule, uint32_t from);

/* A text of the automaton as it is (numbers). */
uint32_t gramjson_plain(struct gramjson *j, const struct dfa *a, uint32_t rule, uint32_t from);

#endif
