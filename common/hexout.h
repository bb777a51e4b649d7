/* hexout.h - hexadecimal digits without a format string: ids are made for each request. */
#ifndef SLUICE_HEXOUT_H
#define SLUICE_HEXOUT_H

#include <stdint.h>

/* Writes the n lowest digits of v to out[0..n), no terminator; returns what follows them. */
static inline char *hexout(char *out, uint64_t v, unsigned n)
{
	for (unsigned i = n; i > 0; i--, v >>= 4) out[i - 1] = "0123456789abcdef"[v & 15];
	return out + n;
}

#endif
