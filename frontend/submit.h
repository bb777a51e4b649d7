/* submit.h - what a prepared request asks for: the fields of msg_submit for the executor, and the rules by which its choices are read,
 * which have to agree about where an output ends. */
#ifndef SLUICE_SUBMIT_H
#define SLUICE_SUBMIT_H

#include "common/base.h"
#include "frontend/choice.h"
#include "frontend/prep.h"
#include "proto/messages.h"

struct submit {
	struct msg_submit m; /* views into this struct, the prep and the rules */
	uint32_t *bias_ids, *allowed_ids; /* owned */
	float *bias_values;               /* owned */
	uint64_t wanted;                  /* output tokens that the client asked for; 0: as many as there is room for */
	uint64_t output_min;
};

/* Released by choice_rules_release(). */
void submit_rules(struct choice_rules *r, const struct prep *p);

/* What all prompts and choices have in common. Borrows p and rules until release. */
void submit_init(struct submit *s, const struct prep *p, const struct choice_rules *rules);
void submit_release(struct submit *s);
/* The prompt, and what depends on its length; shorter than p->len_max. */
void submit_prompt(struct submit *s, const struct prep *p, const struct prep_prompt *prompt);

#endif
