/* amount.c - see amount.h. */
#include "common/amount.h"

#include <stdio.h>

static struct amount amount_in(uint64_t n, double base, const char *const *units, size_t n_units)
{
	struct amount a;
	double value = (double)n;
	size_t unit = 0;

	for (; value >= base && unit + 1 < n_units; unit++) value /= base;
	snprintf(a.text, sizeof(a.text), unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
	return a;
}

struct amount amount_bytes(uint64_t n)
{
	static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};

	return amount_in(n, 1024, units, ARRAY_LEN(units));
}

struct amount amount_count(uint64_t n)
{
	static const char *const units[] = {"", " K", " M", " B", " T"};

	return amount_in(n, 1000, units, ARRAY_LEN(units));
}
