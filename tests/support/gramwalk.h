/* gramwalk.h - reads a text by a grammar in the plainest way: all ways at once, with whole stacks and true counts.
 *
 * The oracle for worker/mask.h and for whoever compiles grammars. Slow, and it keeps all memory until it is released.
 */
#ifndef SLUICE_GRAMWALK_H
#define SLUICE_GRAMWALK_H

#include "common/strbuf.h"
#include "proto/gram.h"

struct gramwalk_frame; /* a call that is being read, and those around it */

struct gramwalk_at {
	uint32_t state;
	const struct gramwalk_frame *frame; /* NULL: in rule 0 itself */
};

struct gramwalk {
	const struct gram *g;
	struct gramwalk_at *at; /* where one may be; ends of rules are followed already */
	size_t n, cap;
	bool is_whole; /* the text so far is one of the grammar */
	size_t n_max;  /* 0: no bound; with more ways the walk is given up: dead, and is_over */
	bool is_over;
	struct gramwalk_frame *frames; /* all that were made */
};

/* At the start of the grammar, which is borrowed. */
void gramwalk_init(struct gramwalk *w, const struct gram *g);
/* A copy that is at the same place; it owes nothing to w but w's memory, so w is released last and not stepped
 * meanwhile. */
void gramwalk_fork(struct gramwalk *copy, const struct gramwalk *w);
void gramwalk_release(struct gramwalk *w);

/* Reads bytes. False: no text of the grammar goes on like this (and the walk stays dead). */
bool gramwalk_read(struct gramwalk *w, const char *s, size_t len);

/* Bytes of the shortest text that makes it whole; UINT64_MAX when dead. */
uint64_t gramwalk_left(const struct gramwalk *w);

/* Is s a whole text of the grammar? */
bool gramwalk_accepts(const struct gram *g, const char *s, size_t len);

/* Appends a random text of the grammar. After len bytes it takes the shortest way to the end. */
void gramwalk_random(const struct gram *g, uint64_t *seed, size_t len, struct strbuf *out);

/* A random number below n (n > 0). */
uint32_t gramwalk_below(uint64_t *seed, uint32_t n);

#endif
