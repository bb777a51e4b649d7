/* urijoin.h - a reference within its base, as RFC 3986 (5.2) has it. Only texts: nothing is ever opened. */
#ifndef SLUICE_URIJOIN_H
#define SLUICE_URIJOIN_H

#include "common/strbuf.h"

/* Appends the absolute form of the reference, without its fragment. base: absolute or "". */
void urijoin(struct strbuf *out, const char *base, const char *ref);

#endif
