/* ebnfc_impl.h - what ebnfc.c (syntax) and ebnfrules.c (meaning) share. */
#ifndef SLUICE_EBNFC_IMPL_H
#define SLUICE_EBNFC_IMPL_H

#include "common/map.h"
#include "frontend/regexc.h"

struct ebnfc_rule {
	struct regexc_rule rule; /* first: trees point to it */
	const char *name;        /* in the text */
	size_t name_len, pos;
	bool may_be_empty, ends;
	uint8_t visit;           /* while looking for left recursion: 1 on the path, 2 done */
};

struct ebnfc {
	struct gramctx *g;
	const char *s;
	size_t len, pos;
	int depth;
	struct map by_name; /* hash -> rule */
	struct ebnfc_rule **rules;
	size_t n_rules, cap_rules;
};

uint32_t ebnfc_line(const struct ebnfc *p, size_t pos);

/* Works out which rules may be empty; fails when one begins with itself or never ends. */
void ebnfrules_check(struct ebnfc *p);
void ebnfrules_emit(struct ebnfc *p, struct ebnfc_rule *root, uint32_t body);

#endif
