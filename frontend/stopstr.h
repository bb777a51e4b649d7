/* stopstr.h - finds stop strings in text that arrives in pieces, and holds back what could still become one.
 *
 * The result does not depend on how the text is cut: the stop string that is complete first wins, of several that end at the
 * same byte the longest. Each string is followed by its own Knuth-Morris-Pratt automaton, so a byte costs a step for each
 * string, however long the text. The automatons are made once for a request (stopstr_set), each of its choices has only its
 * place in them. */
#ifndef SLUICE_STOPSTR_H
#define SLUICE_STOPSTR_H

#include "common/base.h"
#include "common/strbuf.h"

#define STOPSTR_MAX 64           /* strings of one request; OpenAI takes 4 */
#define STOPSTR_BYTES_MAX 1024   /* of one string */

struct stopstr_one {
	char *text;     /* owned */
	uint32_t len;
	uint32_t *fail; /* owned: length of the longest border of each prefix */
};

struct stopstr_set {
	struct stopstr_one *list;
	size_t n;
	bool keep; /* the stop string stays in the text (include_stop_str_in_output) */
};

struct stopstr {
	const struct stopstr_set *set;
	uint32_t *states;   /* (set->n): bytes of each string that the text so far ends with */
	struct strbuf held; /* bytes held back */
};

void stopstr_set_init(struct stopstr_set *s, bool keep);
void stopstr_set_release(struct stopstr_set *s);
/* text is not empty; bounds are the caller's. Before the first stopstr_init(). */
void stopstr_set_add(struct stopstr_set *s, const char *text, size_t len);

void stopstr_init(struct stopstr *s, const struct stopstr_set *set); /* borrows the set until release */
void stopstr_release(struct stopstr *s);

/* Takes more text and appends to out what is certain. Returns the number of the stop string that was found, or -1. Once found, the
 * rest of the text is dropped. armed: false follows the text without stopping (min_tokens). */
int stopstr_push(struct stopstr *s, const char *text, size_t len, bool armed, struct strbuf *out);
/* The text ends here, or something comes between that is not text: what was held back is certain, and no string goes on. */
void stopstr_flush(struct stopstr *s, struct strbuf *out);

#endif
