/* topview.h - what `sluice top` shows: samples of the status page go in, a frame of text comes out. Pure.
 *
 * Rates and percentiles are of the time between two samples. Counters never go back (page.h), so nothing is ever below zero; what has
 * not happened in between is shown as "-". */
#ifndef SLUICE_TOPVIEW_H
#define SLUICE_TOPVIEW_H

#include "common/strbuf.h"
#include "proto/page.h"

#define TOPVIEW_PROCESSES_MAX (2 + LIMIT_FRONTENDS + LIMIT_WORKERS)

/* Of one process, from /proc. */
struct top_usage {
	bool is_known;
	uint64_t cpu_ns; /* used since its start */
	uint64_t rss;    /* bytes */
};

struct top_process {
	enum page_owner kind;
	uint32_t index, state, pid, incarnation, progress;
	uint64_t started_ns, n_requests, n_connections;
	struct top_usage usage;
};

struct top_sample {
	uint64_t at_ns; /* clock_now_ns() */
	uint64_t epoch;
	uint64_t admitted;
	bool is_draining;
	char engine_failed[256]; /* "": it has not */
	struct page_health health;
	uint64_t counters[COUNTER_COUNT];
	double gauges[GAUGE_COUNT];
	struct page_hist_total hists[HISTOGRAM_COUNT];
	uint32_t n_processes;
	struct top_process processes[TOPVIEW_PROCESSES_MAX];
};

/* usage(pid) tells of a process. Large: both live on the heap. */
void topview_take(struct top_sample *out, const struct page *p, uint64_t now, struct top_usage (*usage)(uint32_t pid));

struct top_screen {
	const char *at, *model; /* of the mesh */
	uint32_t cols, rows;    /* rows 0: as many as it takes */
	bool has_colors;
};

/* Lines of at most cols characters, each with its line feed; before NULL: there is no earlier sample, rates are "-". */
void topview_frame(const struct top_sample *before, const struct top_sample *now, const struct top_screen *screen, struct strbuf *out);

/* The value below which the share q of the observations lies, which came between the two; before NULL: of all. -1: there were none.
 * Linear within a bucket, as Prometheus does it; what is above the last bound counts as that bound. */
double topview_quantile(const struct page_hist_total *before, const struct page_hist_total *now, enum page_histogram h, double q);

#endif
