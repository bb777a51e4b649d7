/* schemac.h - JSON schemas to grammars. */
#ifndef SLUICE_SCHEMAC_H
#define SLUICE_SCHEMAC_H

#include "frontend/gramctx.h"

/* Puts the schema's values into the rule `body`; on failure g has failed. */
void schemac_compile(struct gramctx *g, const json_t *schema, uint32_t body);

#endif
