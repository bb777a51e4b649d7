/* page.h - the status page: counters, gauges, histograms and heartbeats of every process in one shared memory.
 *
 * A memfd that the supervisor makes and all map. Each process writes only its own slot, with relaxed atomic stores; anyone
 * reads all. Slots outlive their processes, so counters stay monotonic over restarts; gauges of a slot whose process is
 * gone are cleared by the supervisor. */
#ifndef SLUICE_PAGE_H
#define SLUICE_PAGE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"
#include "proto/governor.h"
#include "proto/limits.h"
#include "proto/metrics.def"

#include <stdatomic.h>

enum page_owner { OWNER_SUPERVISOR, OWNER_FRONTEND, OWNER_EXECUTOR, OWNER_WORKER };

#define PAGE_COUNTER_ENUM(owner, id, name, label, help) COUNTER_##id,
enum page_counter { METRICS_COUNTERS(PAGE_COUNTER_ENUM) COUNTER_COUNT };
#undef PAGE_COUNTER_ENUM
#define PAGE_GAUGE_ENUM(owner, id, name, label, help) GAUGE_##id,
enum page_gauge { METRICS_GAUGES(PAGE_GAUGE_ENUM) GAUGE_COUNT };
#undef PAGE_GAUGE_ENUM
#define PAGE_HISTOGRAM_ENUM(owner, id, name, buckets, help) HISTOGRAM_##id,
enum page_histogram { METRICS_HISTOGRAMS(PAGE_HISTOGRAM_ENUM) HISTOGRAM_COUNT };
#undef PAGE_HISTOGRAM_ENUM

#define PAGE_LAYOUT 5 /* +1 with any change of the structs, or of what their members mean */
#define PAGE_BUCKETS_MAX 32

/* What a process is doing; in words in /health. */
enum page_state {
	PAGE_EMPTY = 0,   /* no process has used the slot, or the one that did has left for good */
	PAGE_STARTING,
	PAGE_LOADING,     /* progress says how far */
	PAGE_WARMING,
	PAGE_SERVING,
	PAGE_DRAINING,
	PAGE_DEAD         /* reaped; set by the supervisor */
};

struct page_hist {
	_Atomic uint64_t buckets[PAGE_BUCKETS_MAX]; /* not cumulative; the last used one is +Inf. Their sum is the count */
	_Atomic uint64_t sum_bits; /* a double's bits */
};

/* How often an idle process shows that it lives: no need to wake oftener, and each waking costs. An eighth of --heartbeat-timeout and of
 * --hang-timeout (0: none of its own) at most. */
#define PAGE_BEAT_NS (500 * NS_PER_MS)

static inline uint64_t page_beat_ns(uint64_t heartbeat_timeout, uint64_t hang_timeout)
{
	return min_u64(PAGE_BEAT_NS, (hang_timeout ? min_u64(heartbeat_timeout, hang_timeout) : heartbeat_timeout) / 8);
}

struct page_slot {
	_Atomic uint32_t state;       /* enum page_state */
	_Atomic uint32_t pid;
	_Atomic uint32_t incarnation;
	_Atomic uint32_t progress;    /* of loading, 0..1000 */
	_Atomic uint64_t heartbeat_ns; /* clock_now_ns() of the working thread's last pass */
	_Atomic uint64_t started_ns;
	_Atomic uint64_t counters[COUNTER_COUNT];
	_Atomic uint64_t gauges[GAUGE_COUNT]; /* doubles' bits */
	struct page_hist hists[HISTOGRAM_COUNT];
	_Atomic uint64_t load[4]; /* of a frontend, for its siblings: the doubles of struct balance_load */
} __attribute__((aligned(128)));

struct page {
	uint64_t magic;
	uint32_t layout;     /* changes with any of the structs */
	/* Slots [0, n_frontends) have been used: a frontend that replaces another one, or is added, gets a slot of its own, and one that
	 * has left for good leaves its slot PAGE_EMPTY, with its counters. Grows only; written by the supervisor. */
	_Atomic uint32_t n_frontends;
	uint32_t n_workers;
	_Atomic uint64_t epoch;          /* newest executor epoch */
	_Atomic uint32_t draining;
	_Atomic uint32_t model_len_max;  /* written by the executor when the workers are ready */
	_Atomic uint64_t n_blocks;
	_Atomic uint64_t model_ident;    /* of the checkpoint, by the supervisor before any process is started; 0: any */
	/* The supervisor has given up on the engine: requests are refused and streams end, with this text. Set once; the text first. */
	_Atomic uint32_t engine_failed;
	char engine_failed_text[256];
	_Atomic uint32_t recurrent; /* 1: the model's sequences have states, so there is no prefix cache */
	struct page_slot supervisor, executor;
	struct page_slot frontends[LIMIT_FRONTENDS];
	struct page_slot workers[LIMIT_WORKERS];
	struct governor governor; /* last: it is large, and memory only where it is touched */
};

/* p: new memory, all zero. */
void page_format(struct page *p, uint32_t n_frontends, uint32_t n_workers);
/* Checks magic, layout and counts of a mapping. */
int page_check(const struct page *p, size_t bytes, struct errbuf *err) MUST_CHECK;

static inline void page_count(struct page_slot *s, enum page_counter c, uint64_t n)
{
	/* One writer a slot: a relaxed load and store is enough, and cheaper than a locked add. */
	atomic_store_explicit(&s->counters[c], atomic_load_explicit(&s->counters[c], memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline uint64_t page_counter_get(const struct page_slot *s, enum page_counter c)
{
	return atomic_load_explicit(&s->counters[c], memory_order_relaxed);
}

/* For counters kept elsewhere since the process began: adds the growth since the last call, `*last` remembers. */
static inline void page_count_to(struct page_slot *s, enum page_counter c, uint64_t value, uint64_t *last)
{
	page_count(s, c, value - *last);
	*last = value;
}

void page_gauge(struct page_slot *s, enum page_gauge g, double value);
double page_gauge_of(const struct page_slot *s, enum page_gauge g);
/* Over n slots, which lie one behind the other. */
double page_gauge_sum(const struct page_slot *slots, uint32_t n, enum page_gauge g);

/* The slots of one kind of process. */
const struct page_slot *page_slots(const struct page *p, enum page_owner owner, uint32_t *n);
/* Over all slots of the metric's owner. */
uint64_t page_counter_total(const struct page *p, enum page_counter c);
double page_gauge_total(const struct page *p, enum page_gauge g);
struct page_hist_total {
	uint64_t buckets[PAGE_BUCKETS_MAX]; /* not cumulative */
	uint64_t count;
	double sum;
};
void page_hist_total(const struct page *p, enum page_histogram h, struct page_hist_total *out);
void page_observe(struct page_slot *s, enum page_histogram h, double value);
/* The same value n times. */
void page_observe_n(struct page_slot *s, enum page_histogram h, double value, uint64_t n);
void page_state(struct page_slot *s, enum page_state state);
const char *page_state_name(enum page_state state);

struct page_health {
	bool ready;          /* every part that the mesh cannot do without serves and has a fresh heartbeat */
	bool live;           /* the supervisor and this frontend work */
	const char *phase;   /* "loading", "warming up", "serving", "draining", "worker 0 is being restarted" ... */
	double progress;     /* 0..1 */
	char detail[256];    /* names the part that is not well */
};
/* Reads the whole mesh. heartbeat_max_ns: how old a heartbeat may be. */
void page_health(const struct page *p, uint64_t now_ns, uint64_t heartbeat_max_ns, struct page_health *out);

#endif
