/* stopstr.h - finds stop strings in text that arrives in pieces, and holds back what could still become one.
 *
 * The result does not depend on how the text is cut: the stop string that is complete first wins, of several that end at the
 * same byte the longest. Each string is followed by its own Knuth-Morris-Pratt automaton, so a byte costs a step for each
 * string, however long the text. */
#ifndef SLUICE_STOPSTR_H
#define SLUICE_STOPSTR_H

#include "common/base.h"
#include "common/strbuf.h"

#define STOPSTR_MAX 64           /* strings of one request; OpenAI takes 4 */
#define STOPSTR_BYTES_MAX 1024   /* of one string */

struct stopstr_one {
	char *text;     /* owned */
	uint32_t len;
	uint32_t state; /* bytes of it that the text so far ends with */
	uint32_t *fail; /* owned: length of the longest border of each prefix */
};

struct stopstr {
	struct stopstr_one *list;
	size_t n;
	bool keep;          /* the stop string stays in the text (include_stop_str_in_output) */
	struct strbuf held; /* bytes held back */
};

void stopstr_init(struct stopstr *s, bool keep);
void stopstr_release(struct stopstr *s);
/* text is not empty; bounds are the caller's. */
void stopstr_add(struct stopstr *s, const char *text, size_t len);

/* Takes more text and appends to out what is certain. Returns the number of the stop string that was found, or -1. Once found, the
 * rest of the text is dropped. armed: false follows the text without stopping (min_tokens). */
int stopstr_push(struct stopstr *s, const char *text, size_t len, bool armed, struct strbuf *out);
/* The end came otherwise: what was held back is text. */
void stopstr_finish(struct stopstr *s, struct strbuf *out);

#endif
