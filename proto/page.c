/* page.c - the status page: writing a slot, reading the whole mesh, and the text of /metrics.
 *
 * A gateway may scrape every 50 ms from each of many frontends, so rendering avoids printf where it can: names and bucket
 * bounds are constant text, most values are whole numbers. */
#include "proto/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PAGE_MAGIC 0x736c756963655047ull
#define PAGE_LAYOUT 3

/* Bucket bounds as text and value; vLLM's lists (vllm/v1/metrics/loggers.py). */
#define B(x) {#x, x}
struct bound {
	const char *text;
	double value;
};
static const struct bound BUCKETS_TTFT[] = {B(0.001), B(0.005), B(0.01), B(0.02), B(0.04), B(0.06), B(0.08), B(0.1),
					    B(0.25), B(0.5), B(0.75), B(1.0), B(2.5), B(5.0), B(7.5), B(10.0), B(20.0),
					    B(40.0), B(80.0), B(160.0), B(640.0), B(2560.0)};
static const struct bound BUCKETS_ITL[] = {B(0.01), B(0.025), B(0.05), B(0.075), B(0.1), B(0.15), B(0.2), B(0.3), B(0.4),
					   B(0.5), B(0.75), B(1.0), B(2.5), B(5.0), B(7.5), B(10.0), B(20.0), B(40.0),
					   B(80.0)};
static const struct bound BUCKETS_E2E[] = {B(0.3), B(0.5), B(0.8), B(1.0), B(1.5), B(2.0), B(2.5), B(5.0), B(10.0), B(15.0),
					   B(20.0), B(30.0), B(40.0), B(50.0), B(60.0), B(120.0), B(240.0), B(480.0),
					   B(960.0), B(1920.0), B(7680.0)};
static const struct bound BUCKETS_TOKENS[] = {B(1.0), B(2.0), B(5.0), B(10.0), B(20.0), B(50.0), B(100.0), B(200.0),
					      B(500.0), B(1000.0), B(2000.0), B(5000.0), B(10000.0), B(20000.0),
					      B(50000.0), B(100000.0)};
static const struct bound BUCKETS_LOOP[] = {B(0.0001), B(0.0002), B(0.0005), B(0.001), B(0.002), B(0.005), B(0.01), B(0.02), B(0.05),
					    B(0.1), B(0.2), B(0.5), B(1.0)};
#undef B

struct metric {
	enum page_owner owner;
	const char *name, *label, *help;
};
#define PAGE_METRIC(owner, id, name, label, help) {OWNER_##owner, name, label, help},
static const struct metric counters[] = {METRICS_COUNTERS(PAGE_METRIC)};
static const struct metric gauges[] = {METRICS_GAUGES(PAGE_METRIC)};
#undef PAGE_METRIC

struct hist {
	enum page_owner owner;
	const char *name;
	const struct bound *bounds;
	uint32_t n_bounds;
	const char *help;
};
#define PAGE_HIST(owner, id, name, bounds, help) {OWNER_##owner, name, bounds, ARRAY_LEN(bounds), help},
static const struct hist hists[] = {METRICS_HISTOGRAMS(PAGE_HIST)};
#undef PAGE_HIST

#define PAGE_FITS(owner, id, name, bounds, help) \
	_Static_assert(ARRAY_LEN(bounds) + 1 <= PAGE_BUCKETS_MAX, "more buckets than a slot has room for");
METRICS_HISTOGRAMS(PAGE_FITS)
#undef PAGE_FITS

void page_format(struct page *p, uint32_t n_frontends, uint32_t n_workers)
{
	CHECK(n_frontends <= LIMIT_FRONTENDS && n_workers <= LIMIT_WORKERS);
	memset(p, 0, sizeof(*p));
	p->layout = PAGE_LAYOUT;
	p->n_frontends = n_frontends;
	p->n_workers = n_workers;
	p->magic = PAGE_MAGIC;
}

int page_check(const struct page *p, size_t bytes, struct errbuf *err)
{
	if (bytes != sizeof(*p) || p->magic != PAGE_MAGIC || p->layout != PAGE_LAYOUT)
		return err_set(err, ST_CORRUPT, "shared memory holds no status page of layout %d; was another version started?",
			       PAGE_LAYOUT);
	if (p->n_frontends > LIMIT_FRONTENDS || p->n_workers > LIMIT_WORKERS)
		return err_set(err, ST_CORRUPT, "status page claims %u frontends and %u workers", p->n_frontends, p->n_workers);
	return ST_OK;
}

/* ---- one slot ---- */

static uint64_t double_bits(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static double bits_double(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

static uint64_t load(const _Atomic uint64_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static void store(_Atomic uint64_t *p, uint64_t v)
{
	atomic_store_explicit(p, v, memory_order_relaxed);
}

void page_gauge(struct page_slot *s, enum page_gauge g, double value)
{
	store(&s->gauges[g], double_bits(value));
}

double page_gauge_sum(const struct page_slot *slots, uint32_t n, enum page_gauge g)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) sum += bits_double(load(&slots[i].gauges[g]));
	return sum;
}

void page_observe_n(struct page_slot *s, enum page_histogram h, double value, uint64_t n)
{
	const struct hist *info = &hists[h];
	struct page_hist *d = &s->hists[h];
	uint32_t ix = 0;

	while (ix < info->n_bounds && value > info->bounds[ix].value) ix++;
	store(&d->buckets[ix], load(&d->buckets[ix]) + n);
	store(&d->sum_bits, double_bits(bits_double(load(&d->sum_bits)) + value * (double)n));
	store(&d->count, load(&d->count) + n);
}

void page_observe(struct page_slot *s, enum page_histogram h, double value)
{
	page_observe_n(s, h, value, 1);
}

void page_state(struct page_slot *s, enum page_state state)
{
	atomic_store(&s->state, (uint32_t)state);
}

const char *page_state_name(enum page_state state)
{
	static const char *const names[] = {"not started", "starting", "loading", "warming up", "serving", "draining", "dead"};

	return (size_t)state < ARRAY_LEN(names) ? names[state] : "unknown";
}

/* ---- the whole mesh ---- */

/* The slots of one kind of process. */
static const struct page_slot *slots_of(const struct page *p, enum page_owner owner, uint32_t *n)
{
	*n = 1;
	switch (owner) {
	case OWNER_FRONTEND:
		*n = min_u32(atomic_load(&p->n_frontends), LIMIT_FRONTENDS);
		return p->frontends;
	case OWNER_WORKER:
		*n = min_u32(p->n_workers, LIMIT_WORKERS);
		return p->workers;
	case OWNER_EXECUTOR:
		return &p->executor;
	default:
		return &p->supervisor;
	}
}

static bool slot_is_well(const struct page_slot *s, uint64_t now_ns, uint64_t heartbeat_max_ns)
{
	uint64_t beat = load(&s->heartbeat_ns);

	return atomic_load(&s->state) == PAGE_SERVING && (beat >= now_ns || now_ns - beat <= heartbeat_max_ns);
}

/* Whether the mesh cannot serve without it. A frontend that has died leaves its siblings, and the connections that the kernel
 * queues for it wait for its successor: only at the first start do all of them count. */
static bool slot_is_missed(const struct page_slot *s, enum page_owner owner)
{
	enum page_state state = (enum page_state)atomic_load(&s->state);

	if (owner != OWNER_FRONTEND) return true;
	return atomic_load(&s->incarnation) == 0 && (state == PAGE_EMPTY || state == PAGE_STARTING || state == PAGE_LOADING);
}

static void health_of(const struct page *p, enum page_owner owner, const char *what, uint64_t now_ns,
		      uint64_t heartbeat_max_ns, struct page_health *out)
{
	uint32_t n;
	const struct page_slot *s = slots_of(p, owner, &n);

	for (uint32_t i = 0; i < n; i++) {
		enum page_state state = (enum page_state)atomic_load(&s[i].state);
		bool stale = state == PAGE_SERVING;

		if (slot_is_well(&s[i], now_ns, heartbeat_max_ns)) continue;
		if (out->detail[0]) continue; /* the first one found is named */
		if (!slot_is_missed(&s[i], owner)) {
			snprintf(out->detail, sizeof(out->detail), "%s %u is being restarted", what, i);
			continue;
		}
		out->ready = false;
		out->phase = stale ? "not responding" : page_state_name(state);
		/* Only workers take long; when all of them are well, what is left is a moment. It never goes back. */
		out->progress = owner == OWNER_WORKER ? (double)atomic_load(&s[i].progress) / 1000.0 : 1;
		snprintf(out->detail, sizeof(out->detail), "%s %u is %s", what, i, out->phase);
	}
}

void page_health(const struct page *p, uint64_t now_ns, uint64_t heartbeat_max_ns, struct page_health *out)
{
	uint64_t beat = load(&p->supervisor.heartbeat_ns);

	*out = (struct page_health){.ready = true, .phase = "serving", .progress = 1};
	out->live = beat >= now_ns || now_ns - beat <= heartbeat_max_ns;
	health_of(p, OWNER_WORKER, "worker", now_ns, heartbeat_max_ns, out);
	health_of(p, OWNER_EXECUTOR, "executor", now_ns, heartbeat_max_ns, out);
	health_of(p, OWNER_FRONTEND, "frontend", now_ns, heartbeat_max_ns, out);
	out->up = out->ready;
	if (atomic_load(&p->draining)) {
		out->ready = false;
		out->phase = "draining";
		snprintf(out->detail, sizeof(out->detail), "the server is shutting down");
	}
}

/* ---- /metrics ---- */

static void put_u64(struct strbuf *out, uint64_t v)
{
	char buf[20];
	size_t at = sizeof(buf);

	do {
		buf[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	strbuf_append(out, buf + at, sizeof(buf) - at);
}

static void put_double(struct strbuf *out, double v)
{
	if (v >= 0 && v < 1e15 && v == floor(v)) put_u64(out, (uint64_t)v);
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

static void render_counters(const struct page *p, const char *labels, struct strbuf *out)
{
	for (uint32_t m = 0; m < ARRAY_LEN(counters); m++) {
		const struct metric *c = &counters[m];
		uint64_t sum = 0;
		uint32_t n;
		const struct page_slot *s = slots_of(p, c->owner, &n);

		for (uint32_t i = 0; i < n; i++) sum += load(&s[i].counters[m]);
		if (m == 0 || strcmp(counters[m - 1].name, c->name) != 0) put_head(out, c->name, c->help, "counter");
		put_series(out, c->name, "", labels, c->label, NULL);
		put_u64(out, sum);
		strbuf_putc(out, '\n');
	}
}

static void render_gauges(const struct page *p, const char *labels, struct strbuf *out)
{
	for (uint32_t m = 0; m < ARRAY_LEN(gauges); m++) {
		const struct metric *g = &gauges[m];
		double sum = 0;
		uint32_t n;
		const struct page_slot *s = slots_of(p, g->owner, &n);

		sum = page_gauge_sum(s, n, (enum page_gauge)m);
		if (m == 0 || strcmp(gauges[m - 1].name, g->name) != 0) put_head(out, g->name, g->help, "gauge");
		put_series(out, g->name, "", labels, g->label, NULL);
		put_double(out, sum);
		strbuf_putc(out, '\n');
	}
}

static void render_hist(const struct page *p, uint32_t m, const char *labels, struct strbuf *out)
{
	const struct hist *h = &hists[m];
	uint64_t cumulative = 0;
	double sum = 0;
	uint32_t n;
	const struct page_slot *s = slots_of(p, h->owner, &n);

	put_head(out, h->name, h->help, "histogram");
	for (uint32_t b = 0; b <= h->n_bounds; b++) {
		for (uint32_t i = 0; i < n; i++) cumulative += load(&s[i].hists[m].buckets[b]);
		put_series(out, h->name, "_bucket", labels, "", b < h->n_bounds ? h->bounds[b].text : "+Inf");
		put_u64(out, cumulative);
		strbuf_putc(out, '\n');
	}
	for (uint32_t i = 0; i < n; i++) sum += bits_double(load(&s[i].hists[m].sum_bits));
	put_series(out, h->name, "_count", labels, "", NULL);
	put_u64(out, cumulative); /* from the buckets, so that the two never disagree in one scrape */
	strbuf_putc(out, '\n');
	put_series(out, h->name, "_sum", labels, "", NULL);
	put_double(out, sum);
	strbuf_putc(out, '\n');
}

static void render_processes(const struct page *p, struct strbuf *out)
{
	static const struct {
		enum page_owner owner;
		const char *name;
	} kinds[] = {{OWNER_SUPERVISOR, "supervisor"}, {OWNER_FRONTEND, "frontend"}, {OWNER_EXECUTOR, "executor"}, {OWNER_WORKER, "worker"}};

	put_head(out, "sluice:process_up", "1 when the process serves, by kind and number.", "gauge");
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		uint32_t n;
		const struct page_slot *s = slots_of(p, kinds[k].owner, &n);

		for (uint32_t i = 0; i < n; i++) {
			strbuf_puts(out, "sluice:process_up{process=\"");
			strbuf_puts(out, kinds[k].name);
			strbuf_puts(out, "\",index=\"");
			put_u64(out, i);
			strbuf_puts(out, "\"} ");
			strbuf_putc(out, atomic_load(&s[i].state) == PAGE_SERVING ? '1' : '0');
			strbuf_putc(out, '\n');
		}
	}
}

void page_render(const struct page *p, const char *labels, const char *cache_config, struct strbuf *out)
{
	render_counters(p, labels, out);
	render_gauges(p, labels, out);
	for (uint32_t m = 0; m < ARRAY_LEN(hists); m++) render_hist(p, m, labels, out);
	put_head(out, "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
	strbuf_puts(out, "vllm:cache_config_info{");
	strbuf_puts(out, cache_config);
	strbuf_puts(out, "} 1\n");
	put_head(out, "sluice:executor_epoch", "How often an executor was started.", "gauge");
	put_series(out, "sluice:executor_epoch", "", labels, "", NULL);
	put_u64(out, load(&p->epoch));
	strbuf_putc(out, '\n');
	render_processes(p, out);
}
