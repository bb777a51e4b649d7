/* answer_lp.h - log-probabilities as text, in OpenAI's two forms (entries of a chat, columns of a completion) and in vLLM's form of a
 * prompt's. For answer.c and the shapes. */
#ifndef SLUICE_ANSWER_LP_H
#define SLUICE_ANSWER_LP_H

#include "frontend/answer.h"

/* Each appends to the choice what the configuration asks for. The token's entries have been checked to be there. */
void answer_lp_first(struct answer *a, struct answer_choice *c, uint32_t id); /* the prompt's first token, which nothing predicts */
void answer_lp_prompt(struct answer *a, struct answer_choice *c, const struct live_token *t);
void answer_lp_output(struct answer *a, struct answer_choice *c, const struct live_token *t);

/* The value of "logprobs": null or an object; takes what the choice holds. */
void answer_lp_take(struct answer *a, struct answer_choice *c, struct strbuf *out);

#endif
