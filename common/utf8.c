/* utf8.c - see utf8.h. */
#include "common/utf8.h"

#include <stdint.h>
#include <string.h>

static bool is_tail(unsigned char c)
{
	return (c & 0xC0) == 0x80;
}

/* Second-byte bounds after a lead byte, Unicode table 3-7. */
static void second_bounds(unsigned char lead, unsigned char *lo, unsigned char *hi)
{
	*lo = 0x80;
	*hi = 0xBF;
	if (lead == 0xE0) *lo = 0xA0;
	if (lead == 0xED) *hi = 0x9F;
	if (lead == 0xF0) *lo = 0x90;
	if (lead == 0xF4) *hi = 0x8F;
}

int utf8_next(const char *s, size_t len, bool *cut)
{
	const unsigned char *u = (const unsigned char *)s;
	unsigned char lo, hi;
	int need, i;

	*cut = false;
	if (u[0] < 0x80) return 1;
	if (u[0] < 0xC2 || u[0] > 0xF4) return -1;
	need = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
	second_bounds(u[0], &lo, &hi);
	for (i = 1; i < need; i++) {
		if ((size_t)i >= len) {
			*cut = true;
			return -i;
		}
		if (i == 1 ? (u[1] < lo || u[1] > hi) : !is_tail(u[i])) return -i;
	}
	return need;
}

size_t utf8_valid_len(const char *s, size_t len)
{
	size_t i = 0;
	bool cut;

	while (i < len) {
		uint64_t eight;
		int n;

		if (len - i >= sizeof(eight)) {
			memcpy(&eight, s + i, sizeof(eight));
			if ((eight & 0x8080808080808080) == 0) {
				i += sizeof(eight);
				continue;
			}
		}
		if ((unsigned char)s[i] < 0x80) {
			i++;
			continue;
		}
		n = utf8_next(s + i, len - i, &cut);
		if (n < 0) break;
		i += (size_t)n;
	}
	return i;
}

int utf8_decode(const char *s, uint32_t *cp)
{
	const unsigned char *u = (const unsigned char *)s;

	if (u[0] < 0x80) {
		*cp = u[0];
		return 1;
	}
	if (u[0] < 0xE0) {
		*cp = (uint32_t)(u[0] & 0x1F) << 6 | (u[1] & 0x3F);
		return 2;
	}
	if (u[0] < 0xF0) {
		*cp = (uint32_t)(u[0] & 0x0F) << 12 | (uint32_t)(u[1] & 0x3F) << 6 | (u[2] & 0x3F);
		return 3;
	}
	*cp = (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3F) << 12 | (uint32_t)(u[2] & 0x3F) << 6 | (u[3] & 0x3F);
	return 4;
}

int utf8_encode(uint32_t cp, char *out)
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xC0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3F));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xE0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
		out[2] = (char)(0x80 | (cp & 0x3F));
		return 3;
	}
	out[0] = (char)(0xF0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
	out[3] = (char)(0x80 | (cp & 0x3F));
	return 4;
}
