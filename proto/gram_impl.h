/* gram_impl.h - the inside of grammars, shared by gram.c, gramcheck.c and gramb.c only. */
#ifndef SLUICE_GRAM_IMPL_H
#define SLUICE_GRAM_IMPL_H

#include "proto/gram.h"

#define GRAM_NO_WAY  UINT32_MAX       /* state_min: the rule cannot end from here */
#define GRAM_MIN_MAX (UINT32_MAX - 1) /* state_min saturates here */

/* How errors call a rule. */
struct gram_names {
	const char *(*of)(void *ctx, uint32_t rule); /* NULL, or a result of NULL: "rule 3" */
	void *ctx;
	const uint32_t *number_of; /* of each rule the number that ctx knows; NULL: the same */
};

/* All arrays zeroed and of these sizes. */
struct gram *gram_new(uint32_t n_rules, uint32_t n_states, uint32_t n_edges, uint32_t n_calls);
void gram_pack(const struct gram *g, struct strbuf *out);

/* Fills state_min; GRAM_NO_WAY where no end can be reached. The edges of a state must be in range, nothing more is
 * assumed. */
void gramcheck_measure(struct gram *g);

/* Of a measured grammar: can every state end, does no rule begin with itself, do repeated rules read something? */
int gramcheck_rules(const struct gram *g, const struct gram_names *names, struct errbuf *err) MUST_CHECK;

/* Sets the error of a rule that has no end. */
int gramcheck_cannot_end(uint32_t rule, const struct gram_names *names, struct errbuf *err);

#endif
