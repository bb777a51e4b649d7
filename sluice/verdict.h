/* verdict.h - the end of a mesh whose engine cannot be kept alive: what is said, to whom and for how long.
 *
 * restart.c decides that a child has died too often. From then on nothing of the engine is started again; frontends refuse requests
 * at the door and end what runs, with a text that says why, for as long as load balancers need to look elsewhere. Then the server ends
 * with an exit code that makes whoever supervises it start a new one. */
#ifndef SLUICE_VERDICT_H
#define SLUICE_VERDICT_H

#include "proto/page.h"
#include "sluice/restart.h"

/* Frontends answer 503 for so long at least, before the server ends: probes come every few seconds. */
#define VERDICT_GRACE_NS (5 * NS_PER_S)

/* Writes it to the page, where frontends look. name: the child; why: what ended it last, in words; may be empty. Only the first
 * verdict counts. */
void verdict_give(struct page *p, const char *name, const struct restart *r, const char *why);
/* For how long the frontends serve it. */
uint64_t verdict_grace(uint64_t drain_delay_ns);

#endif
