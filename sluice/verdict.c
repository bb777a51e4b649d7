/* verdict.c - see verdict.h. */
#include "sluice/verdict.h"

#include <stdio.h>

void verdict_give(struct page *p, const char *name, const struct restart *r, const char *why)
{
	if (atomic_load(&p->engine_failed)) return;
	snprintf(p->engine_failed_text, sizeof(p->engine_failed_text),
		 "The engine has failed: %s died %u times without serving %.0f s in between%s%s. The server is about to end.", name,
		 r->deaths_in_row, (double)r->cfg.healthy_ns / 1e9, why[0] ? "; the last time: " : "", why);
	atomic_store(&p->engine_failed, 1); /* after the text, which never changes again */
}

uint64_t verdict_grace(uint64_t drain_delay_ns)
{
	return max_u64(drain_delay_ns, VERDICT_GRACE_NS);
}
