/* gramtry.h - for tests of the grammar compilers: compile, and ask whether a text is in the grammar. */
#ifndef SLUICE_GRAMTRY_H
#define SLUICE_GRAMTRY_H

#include "frontend/gramc.h"
#include "proto/gram.h"

enum gramtry_kind { GRAMTRY_REGEX, GRAMTRY_EBNF, GRAMTRY_SCHEMA, GRAMTRY_CHOICE, GRAMTRY_JSON };

/* *out: the grammar, loaded from its wire form (NULL on failure). source: JSON for a schema and for choices. */
int gramtry_compile(struct gram **out, enum gramtry_kind kind, const char *source, size_t len, const struct gramc_opts *o, struct errbuf *err);

/* The options of a usual request: the largest size, blanks allowed. */
extern const struct gramc_opts gramtry_opts;

#endif
