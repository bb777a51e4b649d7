/* answer_openai.h - what OpenAI's chat and text completions share: the frame of a document or chunk, ends, usage, errors.
 *
 * A document is answer.prefix (id, object, created, model, "choices":[), choices, `]` and what follows; a chunk is the same after
 * `data: `. */
#ifndef SLUICE_ANSWER_OPENAI_H
#define SLUICE_ANSWER_OPENAI_H

#include "frontend/answer.h"

/* The prefix does not change, so it is written once. */
void answer_openai_init(struct answer *a, const char *object);

void answer_openai_open(const struct answer *a, struct strbuf *out);
/* Ends a chunk of this choice, after the list of choices. */
void answer_openai_close(const struct answer *a, const struct answer_choice *c, struct strbuf *out);

/* Members of a choice, each with a comma in front. */
void answer_openai_end(const struct answer_choice *c, struct strbuf *out); /* finish_reason, stop_reason */
void answer_openai_ids(struct answer *a, struct answer_choice *c, struct strbuf *out);
void answer_openai_list(struct strbuf *out, const char *name, struct strbuf *list); /* takes list */
void answer_openai_usage(const struct answer *a, const struct answer_usage *u, struct strbuf *out); /* of a document */

/* The shapes' finish and error. */
void answer_openai_finish(struct answer *a, const struct answer_usage *u, struct strbuf *out);
void answer_openai_error(struct answer *a, const struct apierr *e, struct strbuf *out);

#endif
