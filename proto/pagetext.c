/* pagetext.c - see pagetext.h.
 *
 * A gateway may scrape every 50 ms from each of many frontends, so rendering avoids printf where it can: names and bucket
 * bounds are constant text, most values are whole numbers. */
#include "proto/pagetext.h"

#include "proto/metrics.h"

#include <math.h>
#include <string.h>

static void put_double(struct strbuf *out, double v)
{
	if (v >= 0 && v < 1e15 && v == floor(v)) strbuf_put_u64(out, (uint64_t)v);
	else strbuf_printf(out, "%.9g", v);
}

/* vLLM's counters end in _total while their TYPE line does not have to: the text format wants the full name. */
static void put_head(struct strbuf *out, const char *name, const char *help, const char *type)
{
	strbuf_puts(out, "# HELP ");
	strbuf_puts(out, name);
	strbuf_putc(out, ' ');
	strbuf_puts(out, help);
	strbuf_puts(out, "\n# TYPE ");
	strbuf_puts(out, name);
	strbuf_putc(out, ' ');
	strbuf_puts(out, type);
	strbuf_putc(out, '\n');
}

static void put_series(struct strbuf *out, const char *name, const char *suffix, const char *labels, const char *more,
		       const char *le)
{
	strbuf_puts(out, name);
	strbuf_puts(out, suffix);
	strbuf_putc(out, '{');
	strbuf_puts(out, labels);
	if (more[0]) strbuf_putc(out, ',');
	strbuf_puts(out, more);
	if (le) {
		strbuf_puts(out, ",le=\"");
		strbuf_puts(out, le);
		strbuf_putc(out, '"');
	}
	strbuf_puts(out, "} ");
}

static void put_line_u64(struct strbuf *out, uint64_t v)
{
	strbuf_put_u64(out, v);
	strbuf_putc(out, '\n');
}

static void render_counters(const struct page *p, const char *labels, struct strbuf *out)
{
	for (uint32_t m = 0; m < COUNTER_COUNT; m++) {
		const struct metric *c = &metrics_counters[m];

		if (m == 0 || strcmp(c[-1].name, c->name) != 0) put_head(out, c->name, c->help, "counter");
		put_series(out, c->name, "", labels, c->label, NULL);
		put_line_u64(out, page_counter_total(p, (enum page_counter)m));
	}
}

static void render_gauges(const struct page *p, const char *labels, struct strbuf *out)
{
	for (uint32_t m = 0; m < GAUGE_COUNT; m++) {
		const struct metric *g = &metrics_gauges[m];

		if (m == 0 || strcmp(g[-1].name, g->name) != 0) put_head(out, g->name, g->help, "gauge");
		put_series(out, g->name, "", labels, g->label, NULL);
		put_double(out, page_gauge_total(p, (enum page_gauge)m));
		strbuf_putc(out, '\n');
	}
}

static void render_hist(const struct page *p, uint32_t m, const char *labels, struct strbuf *out)
{
	const struct metric_hist *h = &metrics_hists[m];
	struct page_hist_total total;
	uint64_t cumulative = 0;

	page_hist_total(p, (enum page_histogram)m, &total);
	put_head(out, h->name, h->help, "histogram");
	for (uint32_t b = 0; b <= h->n_bounds; b++) {
		cumulative += total.buckets[b];
		put_series(out, h->name, "_bucket", labels, "", b < h->n_bounds ? h->texts[b] : "+Inf");
		put_line_u64(out, cumulative);
	}
	put_series(out, h->name, "_count", labels, "", NULL);
	put_line_u64(out, cumulative);
	put_series(out, h->name, "_sum", labels, "", NULL);
	put_double(out, total.sum);
	strbuf_putc(out, '\n');
}

/* `name{process="kind",index="i"} `, or without the kind. */
static void put_slot(struct strbuf *out, const char *name, const char *kind, uint32_t index)
{
	strbuf_puts(out, name);
	strbuf_putc(out, '{');
	if (kind) {
		strbuf_puts(out, "process=\"");
		strbuf_puts(out, kind);
		strbuf_puts(out, "\",");
	}
	strbuf_puts(out, "index=\"");
	strbuf_put_u64(out, index);
	strbuf_puts(out, "\"} ");
}

/* From the governor itself: sums of what frontends publish at different moments could show more than there ever was. */
static void render_admitted(const struct page *p, const char *labels, struct strbuf *out)
{
	static const struct {
		enum governor_what what;
		const char *name, *help;
	} rows[] = {{GOVERNOR_REQUESTS, "sluice:admitted_requests", "Requests that were taken on and have not ended, each choice counted."},
		    {GOVERNOR_TOKENS, "sluice:admitted_tokens", "Their prompt tokens and allowed output tokens."}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		put_head(out, rows[i].name, rows[i].help, "gauge");
		put_series(out, rows[i].name, "", labels, "", NULL);
		put_line_u64(out, governor_count(&p->governor, GOVERNOR_MESH, rows[i].what));
	}
}

/* Of those that are there: a frontend that has left for good is no process that is down. */
static void render_processes(const struct page *p, struct strbuf *out)
{
	static const struct {
		enum page_owner owner;
		const char *name;
	} kinds[] = {{OWNER_SUPERVISOR, "supervisor"}, {OWNER_FRONTEND, "frontend"}, {OWNER_EXECUTOR, "executor"}, {OWNER_WORKER, "worker"}};

	put_head(out, "sluice:process_up", "1 when the process serves, by kind and number.", "gauge");
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		uint32_t n;
		const struct page_slot *s = page_slots(p, kinds[k].owner, &n);

		for (uint32_t i = 0; i < n; i++) {
			uint32_t state = atomic_load(&s[i].state);

			if (state == PAGE_EMPTY && kinds[k].owner == OWNER_FRONTEND) continue;
			put_slot(out, "sluice:process_up", kinds[k].name, i);
			put_line_u64(out, state == PAGE_SERVING);
		}
	}
}

/* How evenly the frontends share the work. A frontend that has left keeps its counters in the sums only. */
static void render_frontends(const struct page *p, struct strbuf *out)
{
	static const enum page_counter answers[] = {COUNTER_http_2xx, COUNTER_http_4xx, COUNTER_http_5xx};
	uint32_t n, i;
	const struct page_slot *s = page_slots(p, OWNER_FRONTEND, &n);

	put_head(out, "sluice:frontend_http_requests_total", "HTTP answers of each frontend.", "counter");
	for (i = 0; i < n; i++) {
		uint64_t sum = 0;

		if (atomic_load(&s[i].state) == PAGE_EMPTY) continue;
		for (size_t k = 0; k < ARRAY_LEN(answers); k++) sum += page_counter_get(&s[i], answers[k]);
		put_slot(out, "sluice:frontend_http_requests_total", NULL, i);
		put_line_u64(out, sum);
	}
	put_head(out, "sluice:frontend_connections", "Open connections of each frontend.", "gauge");
	for (i = 0; i < n; i++) {
		if (atomic_load(&s[i].state) == PAGE_EMPTY) continue;
		put_slot(out, "sluice:frontend_connections", NULL, i);
		put_line_u64(out, (uint64_t)page_gauge_of(&s[i], GAUGE_connections));
	}
}

void pagetext_render(const struct page *p, const char *labels, const char *cache_config, struct strbuf *out)
{
	render_counters(p, labels, out);
	render_gauges(p, labels, out);
	for (uint32_t m = 0; m < HISTOGRAM_COUNT; m++) render_hist(p, m, labels, out);
	put_head(out, "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
	strbuf_puts(out, "vllm:cache_config_info{");
	strbuf_puts(out, cache_config);
	strbuf_puts(out, "} 1\n");
	put_head(out, "sluice:executor_epoch", "How often an executor was started.", "gauge");
	put_series(out, "sluice:executor_epoch", "", labels, "", NULL);
	put_line_u64(out, atomic_load_explicit(&p->epoch, memory_order_relaxed));
	render_admitted(p, labels, out);
	render_processes(p, out);
	render_frontends(p, out);
}
