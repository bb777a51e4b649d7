/* gramc.h - compiles what a request may ask of its output into a grammar (proto/gram.h): JSON schemas, expressions, choices,
 * EBNF. Pure, bounded, and safe in any thread.
 *
 * ST_OK: out has the wire form appended. ST_INVALID: it is not what it claims to be. ST_UNSUPPORTED: right, but with something that is
 * not built; the text names the keyword and where ("at /properties/a: `unevaluatedItems` is not supported"). ST_LIMIT: the
 * automaton is larger than bytes_max. All are a 400. Nothing is ever silently left out: every text that the grammar allows is
 * valid for the schema. */
#ifndef SLUICE_GRAMC_H
#define SLUICE_GRAMC_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"

#include <jansson.h>

struct gramc_opts {
	size_t bytes_max;      /* of the wire form; at most LIMIT_GRAMMAR_BYTES */
	bool any_whitespace;   /* JSON: a little whitespace is allowed between tokens; else none but ", " and ": " */
	bool exact_types;      /* schemas: one that describes members and has no "type" allows other values too, as the standard has it;
				* otherwise it means an object, as its author does */
	/* The output begins with free text up to and with this marker, then comes the grammar (reasoning, "</think>"); NULL: no. */
	const char *after;
	bool may_skip_after;   /* the free text may be missing when the output does not begin with `<think>` */
};

int gramc_json_object(struct strbuf *out, const struct gramc_opts *o, struct errbuf *err) MUST_CHECK;
int gramc_schema(struct strbuf *out, const json_t *schema, const struct gramc_opts *o, struct errbuf *err) MUST_CHECK;
int gramc_regex(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err) MUST_CHECK;
/* list: array of strings, not empty. */
int gramc_choice(struct strbuf *out, const json_t *list, const struct gramc_opts *o, struct errbuf *err) MUST_CHECK;
/* GBNF (llama.cpp) and the EBNF of vLLM/xgrammar, which agree: root ::= ... */
int gramc_ebnf(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err) MUST_CHECK;

#endif
