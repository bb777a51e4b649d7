/* metrics.c - see metrics.h. */
#include "proto/metrics.h"

#include <string.h>

#define METRICS_ROW(owner, id, name, label, help) {OWNER_##owner, name, label, help},
const struct metric metrics_counters[] = {METRICS_COUNTERS(METRICS_ROW)};
const struct metric metrics_gauges[] = {METRICS_GAUGES(METRICS_ROW)};
#undef METRICS_ROW

#define BOUND_VALUE(x) x,
#define BOUND_TEXT(x) #x,
#define METRICS_BOUNDS(owner, id, name, buckets, help)                                  \
	static const double bounds_##id[] = {buckets(BOUND_VALUE)};                     \
	static const char *const texts_##id[] = {buckets(BOUND_TEXT)};                  \
	_Static_assert(ARRAY_LEN(bounds_##id) + 1 <= PAGE_BUCKETS_MAX, "more buckets than a slot has room for");
METRICS_HISTOGRAMS(METRICS_BOUNDS)
#undef METRICS_BOUNDS

#define METRICS_ROW(owner, id, name, buckets, help) {OWNER_##owner, name, bounds_##id, texts_##id, ARRAY_LEN(bounds_##id), help},
const struct metric_hist metrics_hists[] = {METRICS_HISTOGRAMS(METRICS_ROW)};
#undef METRICS_ROW

/* An octave is the range from one power of two to the next. It holds few bounds, so a search that begins at a value's octave is over
 * at once. From 2^-24 on; what is below or above lies in the first or last one. */
#define OCTAVES 64
static uint8_t octave_starts[HISTOGRAM_COUNT][OCTAVES];

static uint32_t octave_of(double value)
{
	uint64_t bits;
	int exponent;

	memcpy(&bits, &value, sizeof(bits));
	if (bits >> 63) return 0;
	exponent = (int)(bits >> 52) - 1023 + 24;
	return exponent < 0 ? 0 : exponent >= OCTAVES ? OCTAVES - 1 : (uint32_t)exponent;
}

void metrics_init(void)
{
	for (uint32_t h = 0; h < HISTOGRAM_COUNT; h++) {
		const struct metric_hist *m = &metrics_hists[h];
		uint8_t n = 0;

		for (uint32_t o = 0; o < OCTAVES; o++) {
			while (n < m->n_bounds && octave_of(m->bounds[n]) < o) n++;
			octave_starts[h][o] = n;
		}
	}
}

uint32_t metrics_bucket(enum page_histogram h, double value)
{
	const struct metric_hist *m = &metrics_hists[h];
	uint32_t ix = octave_starts[h][octave_of(value)];

	while (ix < m->n_bounds && value > m->bounds[ix]) ix++;
	return ix;
}
