/* tracectx.c - see tracectx.h. */
#include "frontend/tracectx.h"

#include <stdio.h>
#include <string.h>

#define TRACEPARENT_LEN 55 /* 00-(32)-(16)-(2) */

static bool is_hex(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f'))) return false;
	return true;
}

static bool is_zero(const char *s, size_t n)
{
	return strspn(s, "0") >= n;
}

/* A later version may add fields behind what this one knows. */
static bool is_valid(const char *h)
{
	size_t n = strlen(h);

	if (n < TRACEPARENT_LEN || h[2] != '-' || h[35] != '-' || h[52] != '-') return false;
	if (!is_hex(h, 2) || !is_hex(h + 3, 32) || !is_hex(h + 36, 16) || !is_hex(h + 53, 2)) return false;
	if (memcmp(h, "ff", 2) == 0 || is_zero(h + 3, 32) || is_zero(h + 36, 16)) return false;
	return n == TRACEPARENT_LEN || (memcmp(h, "00", 2) != 0 && h[TRACEPARENT_LEN] == '-');
}

void tracectx_read(struct tracectx *t, const char *header, const uint64_t random[3])
{
	static const char digits[] = "0123456789abcdef";

	*t = (struct tracectx){.is_sampled = true};
	snprintf(t->span_id, sizeof(t->span_id), "%016llx", (unsigned long long)(random[0] | 1)); /* never all zero */
	snprintf(t->trace_id, sizeof(t->trace_id), "%016llx%016llx", (unsigned long long)random[1], (unsigned long long)(random[2] | 1));
	if (!header || !is_valid(header)) return;
	memcpy(t->trace_id, header + 3, 32);
	memcpy(t->parent_id, header + 36, 16);
	t->is_sampled = (strchr(digits, header[54]) - digits) & 1;
}
