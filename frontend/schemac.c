/* schemac.c - see schemac.h. Being built: every schema is refused. */
#include "frontend/schemac.h"

void schemac_compile(struct gramctx *g, const json_t *schema, uint32_t body)
{
	gramctx_fail(g, ST_UNSUPPORTED, "schemas are not supported yet");
}
