/* gram.h - what a constrained request's output may be: a byte-level automaton with rules, and its wire form.
 *
 * The frontend compiles a JSON schema, an expression or a grammar into it (frontend/gramc.h); submit and step carry it as bytes;
 * the worker walks it (worker/mask.h) and lets only tokens be drawn whose bytes it allows.
 *
 * A grammar is a recursive transition network: rules are small automata over bytes; an edge reads a byte of a range, reads
 * nothing, or is another rule's text, min to max times in a row. Rule 0 is the whole output. Characters are UTF-8 sequences of
 * byte edges, made by gramb_chars().
 *
 * Always holds after gram_load(), which trusts nothing: numbers are in range, every state can end (a shortest text exists), no
 * rule can begin with itself before a byte was read (no left recursion, so a walk never loops), and a rule that is
 * repeated (max > 1) reads at least one byte. */
#ifndef SLUICE_GRAM_H
#define SLUICE_GRAM_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"

#define GRAM_NO_END UINT32_MAX /* max of a repetition without one */

enum gram_edge_kind {
	GRAM_BYTES = 0, /* one byte of lo..hi */
	GRAM_EMPTY = 1, /* nothing */
	GRAM_CALL = 2   /* a rule's text, calls[call].min to .max times */
};

struct gram_edge {
	uint8_t kind, lo, hi, zero;
	uint32_t to;   /* state of the same rule */
	uint32_t call; /* GRAM_CALL: index into calls */
};

struct gram_call {
	uint32_t rule;
	uint32_t min, max; /* 0 <= min <= max, max >= 1 */
};

struct gram {
	uint32_t n_rules, n_states, n_edges, n_calls;
	uint32_t *rule_start;    /* (n_rules) state */
	uint32_t *state_rule;    /* (n_states) */
	uint32_t *state_edges;   /* (n_states + 1): first edge of each state */
	uint8_t *state_is_final; /* (n_states) the rule may end here */
	struct gram_edge *edges; /* (n_edges) */
	struct gram_call *calls; /* (n_calls) */
	/* Worked out by gram_load(). Bytes, saturating at UINT32_MAX - 1. */
	uint32_t *state_min; /* (n_states) of the shortest way from here to the end of the rule */
};

/* From wire bytes (not kept). err: what is wrong with them, in terms of rules and states. */
int gram_load(struct gram **out, const void *data, size_t len, struct errbuf *err) MUST_CHECK;
void gram_free(struct gram *g);

/* ---- building ---- */

struct gramb; /* a grammar under construction; every call is cheap, limits are looked at by gramb_finish() */

struct gram_range {
	uint32_t lo, hi; /* code points */
};

struct gramb *gramb_new(size_t bytes_max); /* of the wire form */
void gramb_free(struct gramb *b);
uint32_t gramb_rule(struct gramb *b);                  /* a rule with its start state; the first one is rule 0 */
uint32_t gramb_start(const struct gramb *b, uint32_t rule);
uint32_t gramb_state(struct gramb *b, uint32_t rule);  /* one more state of the rule */
void gramb_final(struct gramb *b, uint32_t state);
void gramb_byte(struct gramb *b, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to);
void gramb_empty(struct gramb *b, uint32_t from, uint32_t to);
void gramb_call(struct gramb *b, uint32_t from, uint32_t rule, uint32_t min, uint32_t max, uint32_t to);
/* One character of the sorted, disjoint ranges; surrogates are left out. */
void gramb_chars(struct gramb *b, uint32_t from, const struct gram_range *ranges, size_t n, uint32_t to);
/* The bytes of a text; returns the state behind them, a new one. */
uint32_t gramb_text(struct gramb *b, uint32_t from, const char *text, size_t len);
/* True when more was added than bytes_max allows: stop building, the result is ST_LIMIT. */
bool gramb_is_full(const struct gramb *b);
/* Appends the wire form and checks it as gram_load() does. What no text can pass through (unreachable rules, states and rules that
 * cannot end) is left out. ST_LIMIT, ST_INVALID: rule 0 cannot end, a rule begins with itself, or one that may be empty is repeated
 * (max > 1); err names rules by name_of(ctx, rule), which may be NULL. */
int gramb_finish(struct gramb *b, struct strbuf *out, const char *(*name_of)(void *ctx, uint32_t rule), void *ctx, struct errbuf *err) MUST_CHECK;

#endif
