/* jsonwalk.h - a cursor over JSON that the caller walks by its own knowledge of what must come: no tree, so nothing is
 * allocated for what is only claimed, and a header of megabytes takes milliseconds.
 *
 * Strict (RFC 8259). The caller has checked that the text is UTF-8. Every function skips white space first; errors are
 * ST_CORRUPT and say at which byte something else was expected. */
#ifndef SLUICE_JSONWALK_H
#define SLUICE_JSONWALK_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/gguf.h"

#define JSONWALK_NESTING_MAX 120 /* of a value that is skipped; serde_json stops at 127 of all */

struct jsonwalk {
	const char *json;
	size_t len, pos;
	const char *what; /* what messages call it: "the header" */
	struct errbuf *err;
	char **texts; /* strings that were spelled with escapes; owned */
	size_t n_texts, cap_texts;
};

/* The strings are gone afterwards; the rest is the caller's. */
void jsonwalk_release(struct jsonwalk *w);

/* Sets the error that `expected` is not what comes. */
int jsonwalk_bad(struct jsonwalk *w, const char *expected);

void jsonwalk_space(struct jsonwalk *w);
/* Takes the character when it comes. */
bool jsonwalk_take(struct jsonwalk *w, char c);
int jsonwalk_want(struct jsonwalk *w, char c) MUST_CHECK;
/* Behind a member or an element: a comma (*more), or the end. */
int jsonwalk_end(struct jsonwalk *w, char end, bool *more) MUST_CHECK;

/* A view of the JSON, or of `texts` when there are escapes. */
int jsonwalk_string(struct jsonwalk *w, struct gguf_str *out) MUST_CHECK;
/* Frees the texts behind the first n: strings that were looked at and are not needed any more. Without it memory grows
 * with escapes that nobody keeps. */
void jsonwalk_forget(struct jsonwalk *w, size_t n_texts);
/* A whole number from 0 on, spelled without a fraction or exponent. */
int jsonwalk_u64(struct jsonwalk *w, uint64_t *out) MUST_CHECK;
/* Any value. */
int jsonwalk_skip(struct jsonwalk *w) MUST_CHECK;

#endif
