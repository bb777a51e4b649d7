/* metrics.h - the rows of metrics.def as tables, in the order of page.h's enums. */
#ifndef SLUICE_METRICS_H
#define SLUICE_METRICS_H

#include "proto/page.h"

struct metric {
	enum page_owner owner;
	const char *name, *label, *help;
};

struct metric_hist {
	enum page_owner owner;
	const char *name;
	const double *bounds;      /* (n_bounds), rising; above the last one is +Inf */
	const char *const *texts;  /* the bounds as one writes them */
	uint32_t n_bounds;
	const char *help;
};

extern const struct metric metrics_counters[COUNTER_COUNT];
extern const struct metric metrics_gauges[GAUGE_COUNT];
extern const struct metric_hist metrics_hists[HISTOGRAM_COUNT];

/* Computes what metrics_bucket() looks up; before it, that is right, too, but slower. */
void metrics_init(void);
/* The bucket that a value belongs to. A few nanoseconds: each token is observed. */
uint32_t metrics_bucket(enum page_histogram h, double value);

#endif
