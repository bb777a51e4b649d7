/* pieces.h - what a choice has said since somebody last looked: text, reasoning and tool calls, in order.
 *
 * The output parser (outparse.h) appends, an answer's shape (answer.h) takes. Neighbours of one kind are one piece, so a reader who
 * cannot keep up gets few, long ones. */
#ifndef SLUICE_PIECES_H
#define SLUICE_PIECES_H

#include "common/base.h"
#include "common/strbuf.h"

#define PIECES_CALLS_MAX 128 /* tool calls of one choice; what comes after is text */
#define PIECES_ID_LEN 29     /* "call_" and 24 characters */

enum piece_kind {
	PIECE_TEXT,
	PIECE_REASONING,
	PIECE_CALL, /* a new tool call: text is the function's name; its arguments follow */
	PIECE_ARGS  /* more of the arguments of a call: JSON text */
};

struct piece {
	enum piece_kind kind;
	uint32_t call; /* CALL, ARGS: index of the call in its choice, from 0 */
	struct strbuf text;
	char id[PIECES_ID_LEN + 1]; /* CALL */
};

struct pieces {
	struct piece *list; /* those behind n, up to n_made, keep their memory for the next ones */
	size_t n, n_made, cap;
	uint32_t n_calls; /* so far, also those that were taken */
};

void pieces_init(struct pieces *p);
void pieces_release(struct pieces *p);
void pieces_reset(struct pieces *p); /* all were taken; n_calls stays */

void pieces_text(struct pieces *p, const char *s, size_t len);      /* nothing for len 0 */
void pieces_reasoning(struct pieces *p, const char *s, size_t len);
/* Begins a call; false, and nothing is appended, when there are PIECES_CALLS_MAX. random makes its id. */
bool pieces_call(struct pieces *p, const char *name, size_t len, uint64_t random);
void pieces_args(struct pieces *p, const char *s, size_t len); /* of the last call */
void pieces_drop(struct pieces *p, enum piece_kind kind);      /* nobody wants to see these */

/* Bytes held; 0: nothing to take. */
size_t pieces_bytes(const struct pieces *p);

#endif
