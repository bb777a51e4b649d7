/* page.c - the status page: writing a slot, and the health of the whole mesh. */
#include "proto/page.h"

#include "proto/metrics.h"

#include <stdio.h>
#include <string.h>

#define PAGE_MAGIC 0x736c756963655047ull

void page_format(struct page *p, uint32_t n_frontends, uint32_t n_workers)
{
	CHECK(n_frontends <= LIMIT_FRONTENDS && n_workers <= LIMIT_WORKERS);
	metrics_init();
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
	metrics_init();
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

double page_gauge_of(const struct page_slot *s, enum page_gauge g)
{
	return bits_double(load(&s->gauges[g]));
}

double page_gauge_sum(const struct page_slot *slots, uint32_t n, enum page_gauge g)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) sum += page_gauge_of(&slots[i], g);
	return sum;
}

void page_observe_n(struct page_slot *s, enum page_histogram h, double value, uint64_t n)
{
	struct page_hist *d = &s->hists[h];
	uint32_t ix = metrics_bucket(h, value);

	store(&d->buckets[ix], load(&d->buckets[ix]) + n);
	store(&d->sum_bits, double_bits(bits_double(load(&d->sum_bits)) + value * (double)n));
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

const struct page_slot *page_slots(const struct page *p, enum page_owner owner, uint32_t *n)
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

uint64_t page_counter_total(const struct page *p, enum page_counter c)
{
	uint64_t sum = 0;
	uint32_t n;
	const struct page_slot *s = page_slots(p, metrics_counters[c].owner, &n);

	for (uint32_t i = 0; i < n; i++) sum += load(&s[i].counters[c]);
	return sum;
}

double page_gauge_total(const struct page *p, enum page_gauge g)
{
	uint32_t n;
	const struct page_slot *s = page_slots(p, metrics_gauges[g].owner, &n);

	return page_gauge_sum(s, n, g);
}

void page_hist_total(const struct page *p, enum page_histogram h, struct page_hist_total *out)
{
	uint32_t n;
	const struct page_slot *s = page_slots(p, metrics_hists[h].owner, &n);

	*out = (struct page_hist_total){.count = 0};
	for (uint32_t i = 0; i < n; i++) {
		out->sum += bits_double(load(&s[i].hists[h].sum_bits));
		for (uint32_t b = 0; b <= metrics_hists[h].n_bounds; b++) {
			uint64_t v = load(&s[i].hists[h].buckets[b]);

			out->buckets[b] += v;
			out->count += v;
		}
	}
}

static bool slot_is_well(const struct page_slot *s, uint64_t now_ns, uint64_t heartbeat_max_ns)
{
	uint64_t beat = load(&s->heartbeat_ns);

	return atomic_load(&s->state) == PAGE_SERVING && (beat >= now_ns || now_ns - beat <= heartbeat_max_ns);
}

/* Whether the mesh cannot serve without it. A frontend that has died leaves its siblings, and the connections that the kernel
 * queues for it wait for its successor: only at the first start do all of them count (incarnation 0; slots that are used later
 * begin with 1). */
static bool slot_is_missed(const struct page_slot *s, enum page_owner owner)
{
	enum page_state state = (enum page_state)atomic_load(&s->state);

	if (owner != OWNER_FRONTEND) return true;
	return atomic_load(&s->incarnation) == 0 && (state == PAGE_STARTING || state == PAGE_LOADING);
}

static void health_of(const struct page *p, enum page_owner owner, const char *what, uint64_t now_ns,
		      uint64_t heartbeat_max_ns, struct page_health *out)
{
	uint32_t n;
	const struct page_slot *s = page_slots(p, owner, &n);

	for (uint32_t i = 0; i < n; i++) {
		enum page_state state = (enum page_state)atomic_load(&s[i].state);
		bool stale = state == PAGE_SERVING;

		if (slot_is_well(&s[i], now_ns, heartbeat_max_ns)) continue;
		if (owner == OWNER_FRONTEND && (state == PAGE_EMPTY || state == PAGE_DRAINING)) continue; /* left for good, or about to */
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
	if (atomic_load(&p->engine_failed)) {
		out->ready = out->live = false; /* only a new server helps */
		out->phase = "failed";
		snprintf(out->detail, sizeof(out->detail), "%s", p->engine_failed_text);
	} else if (atomic_load(&p->draining)) {
		out->ready = false;
		out->phase = "draining";
		snprintf(out->detail, sizeof(out->detail), "the server is shutting down");
	}
}
