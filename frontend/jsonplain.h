/* jsonplain.h - passes over text that is the same inside a JSON string and outside, eight bytes at a look. */
#ifndef SLUICE_JSONPLAIN_H
#define SLUICE_JSONPLAIN_H

#include "common/base.h"

#include <string.h>

#define JSONPLAIN_EACH(byte) ((byte) * 0x0101010101010101ull)

/* The top bit of each byte that is 0; of bytes above such a one perhaps too. */
static inline uint64_t jsonplain_zeros(uint64_t x)
{
	return (x - JSONPLAIN_EACH(1)) & ~x & JSONPLAIN_EACH(0x80);
}

/* Length of a beginning of s, a multiple of 8, that is printable ASCII without quotes and backslashes. What comes behind it may be
 * so too. */
static inline size_t jsonplain_len(const char *s, size_t len)
{
	size_t n;
	uint64_t x;

	for (n = 0; len - n >= sizeof(x); n += sizeof(x)) {
		memcpy(&x, s + n, sizeof(x));
		/* Below 0x20, above 0x7f, and the three that JSON writes in another way, or that we do. */
		if (((x - JSONPLAIN_EACH(0x20)) & ~x & JSONPLAIN_EACH(0x80)) | (x & JSONPLAIN_EACH(0x80)) |
		    jsonplain_zeros(x ^ JSONPLAIN_EACH('"')) | jsonplain_zeros(x ^ JSONPLAIN_EACH('\\')) | jsonplain_zeros(x ^ JSONPLAIN_EACH(0x7f)))
			break;
	}
	return n;
}

#endif
