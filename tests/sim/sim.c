/* sim.c - see sim.h. Time, chance, the order of events, and the sizes of a seed. */
#include "common/splitmix.h"
#include "tests/sim/sim_impl.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>

/* A seed ends within this, or something waits for ever. The longest honest wait is a few deaths with their back-off. */
#define SIM_TIME_MAX   (300 * NS_PER_S)
#define SIM_EVENTS_MAX 3000000

uint64_t sim_mix(uint64_t x)
{
	return splitmix_next(&x);
}

uint64_t sim_rand(struct sim *s, uint64_t n)
{
	s->rng += 0x9e3779b97f4a7c15ull;
	return n ? sim_mix(s->rng) % n : 0;
}

uint64_t sim_range(struct sim *s, uint64_t lo, uint64_t hi)
{
	return lo + sim_rand(s, hi - lo + 1);
}

bool sim_chance(struct sim *s, uint32_t percent)
{
	return sim_rand(s, 100) < percent;
}

void sim_note(struct sim *s, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	s->trace = sim_mix(s->trace ^ s->now);
	for (const char *c = line; *c; c++) s->trace = s->trace * 31 + (unsigned char)*c;
	if (s->verbose) printf("%12.6f ms  %s\n", (double)s->now / 1e6, line);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "FAILED at %.6f ms: ", (double)s->now / 1e6);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	abort(); /* the program says which seed it was */
}

static bool sim_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void sim_swap(struct sim *s, size_t i, size_t j)
{
	struct sim_event e = s->heap[i];

	s->heap[i] = s->heap[j];
	s->heap[j] = e;
}

void sim_push(struct sim *s, uint64_t at, enum sim_event_kind kind, uint32_t num, uint32_t life)
{
	size_t i = s->n_heap;

	mem_reserve(s->heap, s->heap_cap, s->n_heap + 1);
	s->heap[s->n_heap++] = (struct sim_event){max_u64(at, s->now), s->order++, kind, num, life};
	for (; i > 0 && sim_before(&s->heap[i], &s->heap[(i - 1) / 2]); i = (i - 1) / 2) sim_swap(s, i, (i - 1) / 2);
}

static struct sim_event sim_pop(struct sim *s)
{
	struct sim_event e = s->heap[0];
	size_t i = 0, child;

	s->heap[0] = s->heap[--s->n_heap];
	while ((child = 2 * i + 1) < s->n_heap) {
		if (child + 1 < s->n_heap && sim_before(&s->heap[child + 1], &s->heap[child])) child++;
		if (!sim_before(&s->heap[child], &s->heap[i])) break;
		sim_swap(s, i, child);
		i = child;
	}
	return e;
}

static void sim_set_up_core(struct sim *s, struct core_config *c)
{
	c->seqs_max = (uint32_t)sim_range(s, 1, 12);
	c->batched_tokens_max = (uint32_t)sim_range(s, 8, 128);
	c->has_priorities = sim_chance(s, 70);
	c->fair = sim_chance(s, 85);
	c->tenants_max = sim_chance(s, 50) ? (uint32_t)sim_range(s, 1, 4) : 1024;
	c->requests_max = sim_chance(s, 15) ? (uint32_t)sim_range(s, 4, 12) : 4096;
	c->steps_in_flight_max = sim_chance(s, 80) ? 2 : 1;
	c->prefill_chunk_max = sim_chance(s, 40) ? (uint32_t)sim_range(s, 4, 64) : 0;
	c->first_step_tokens = sim_chance(s, 50) ? (uint32_t)sim_range(s, 1, 40) : 0;
	c->prefix_cache = sim_chance(s, 85);
	c->sync_interval_ns = 100 * NS_PER_MS;
	c->sync_idle_ns = 250 * NS_PER_MS;
	c->accept_wait_ns = 5 * NS_PER_MS;
}

/* Blocks that a sequence of len tokens holds at most, as core.h says it. */
static uint32_t sim_seq_blocks(const struct sim_setup *t, uint32_t len)
{
	uint32_t all = (uint32_t)div_up(len, SIM_BLOCK);
	uint32_t ahead = t->core.steps_in_flight_max * t->core.batched_tokens_max, windowed;

	if (t->kv.n_windowed == 0) return all * max_u32(1, t->kv.n_full);
	windowed = min_u32(all, (t->kv.window - 1 + ahead) / SIM_BLOCK + 2);
	return all * t->kv.n_full + windowed * t->kv.n_windowed;
}

uint32_t sim_len_max(const struct sim *s, uint32_t n_blocks)
{
	uint32_t len = s->setup.model_len_max;

	while (sim_seq_blocks(&s->setup, len) > n_blocks) len--;
	return len;
}

/* Two tenants, one of which comes first with all that it has; nobody is ever paused. */
static void sim_set_up_race(struct sim *s, struct sim_setup *t)
{
	t->n_faults = t->n_reloads = 0;
	t->n_requests = (uint32_t)sim_range(s, 100, 160);
	t->core.seqs_max = (uint32_t)sim_range(s, 1, 3);
	t->core.has_priorities = false;
	t->core.fair = true;
	t->core.tenants_max = (uint32_t)sim_range(s, 2, 4);
	t->core.requests_max = t->lives.requests_max = t->n_requests;
	t->hwm_up = t->hwm_down = 1000;
	t->drain_ns = UINT64_MAX;
	t->has_poison = t->has_glitches = t->has_slow_frontend = t->has_frozen_frontend = t->has_queue_timeouts = false;
}

/* Little memory makes preemption; sometimes not even one of the longest fits. */
static void sim_set_up_kv(struct sim *s, struct sim_setup *t)
{
	uint32_t n_groups;

	if (sim_chance(s, 40)) {
		t->kv.n_full = (uint32_t)sim_range(s, 0, 2);
		t->kv.n_windowed = (uint32_t)sim_range(s, 1, 3);
		t->kv.window = (uint32_t)sim_range(s, 1, 100);
	}
	t->kv.recurrent = sim_chance(s, 10);
	n_groups = max_u32(1, t->kv.n_full + t->kv.n_windowed);
	t->n_blocks_min = sim_seq_blocks(t, t->model_len_max) + (uint32_t)sim_rand(s, 30 * n_groups);
	t->n_blocks = t->n_blocks_min;
	if (sim_chance(s, 30)) t->n_blocks += (uint32_t)sim_rand(s, 10);
	if (sim_chance(s, 10)) t->n_blocks = t->n_blocks_min = (uint32_t)sim_range(s, 4, 7) * n_groups;
}

static void sim_set_up(struct sim *s)
{
	struct sim_setup *t = &s->setup;

	t->n_frontends = (uint32_t)sim_range(s, 1, SIM_FRONTENDS_FIRST);
	t->n_ranks = (uint32_t)sim_range(s, 1, SIM_RANKS_MAX);
	t->n_requests = (uint32_t)(sim_chance(s, 10) ? sim_range(s, 80, 200) : sim_range(s, 10, 60));
	t->n_faults = sim_chance(s, 25) ? 0 : (uint32_t)sim_range(s, 1, 9);
	t->model_len_max = (uint32_t)sim_range(s, 100, 250);
	sim_set_up_core(s, &t->core);
	sim_set_up_kv(s, t);
	t->lives = (struct lives_config){
		.silence_ns = 500 * NS_PER_MS, .hello_ns = 50 * NS_PER_MS, .requests_max = t->n_requests};
	t->restart = (struct restart_config){50 * NS_PER_MS, 400 * NS_PER_MS, 1000 * NS_PER_MS, 5, 0};
	t->hwm_up = sim_chance(s, 50) ? (uint32_t)sim_range(s, 1, 6) : 1000;
	t->hwm_down = sim_chance(s, 50) ? (uint32_t)sim_range(s, 1, 8) : 1000;
	t->delay_ns = sim_range(s, 20, 300) * NS_PER_US;
	t->jitter_ns = sim_chance(s, 70) ? sim_range(s, 0, 500) * NS_PER_US : 20 * NS_PER_MS;
	t->step_ns = sim_range(s, 500, 3000) * NS_PER_US;
	t->token_ns = sim_range(s, 5, 50) * NS_PER_US;
	t->arrive_ns = sim_range(s, 200, 1500) * NS_PER_MS;
	t->hang_limit_ns = 1000 * NS_PER_MS;
	t->drain_ns = sim_chance(s, 10) ? sim_rand(s, t->arrive_ns) : UINT64_MAX;
	t->has_poison = sim_chance(s, 20);
	t->has_glitches = sim_chance(s, 30);
	t->has_slow_frontend = sim_chance(s, 40);
	t->has_frozen_frontend = t->n_frontends > 1 && sim_chance(s, 8);
	if (t->has_frozen_frontend) {
		/* Its lane fills while its requests hold most slots and blocks. */
		t->n_faults = 0;
		t->hwm_down = (uint32_t)sim_range(s, 1, 4);
		t->core.seqs_max = (uint32_t)sim_range(s, 1, 4);
	}
	t->n_tenants = (uint32_t)sim_range(s, 1, 8);
	t->has_queue_timeouts = sim_chance(s, 30);
	t->n_reloads = t->has_frozen_frontend || sim_chance(s, 50) ? 0 : (uint32_t)sim_range(s, 1, 8);
	t->has_race = sim_chance(s, 8);
	if (t->has_race) sim_set_up_race(s, t);
	s->counts->recurrent_model += t->kv.recurrent;
}

uint64_t sim_run(uint64_t seed, bool verbose, struct sim_counts *counts)
{
	struct sim *s = mem_new(struct sim);
	struct sim_event e;
	uint64_t n_events = 0, trace;

	s->seed = seed;
	s->rng = sim_mix(seed);
	s->verbose = verbose;
	s->counts = counts;
	sim_set_up(s);
	sim_mesh_init(s);
	sim_load_init(s);
	while (!sim_mesh_is_quiet(s)) {
		SIM_EXPECT(s, s->n_heap > 0, "nothing happens any more");
		e = sim_pop(s);
		s->now = e.at;
		SIM_EXPECT(s, s->now < SIM_TIME_MAX && n_events++ < SIM_EVENTS_MAX, "%u requests wait for ever",
			   s->n_open);
		sim_mesh_event(s, &e);
	}
	counts->event += n_events;
	sim_mesh_check_end(s);
	trace = sim_mix(s->trace ^ s->now);
	sim_workers_release(s);
	sim_mesh_release(s);
	sim_load_release(s);
	free(s->heap);
	free(s);
	return trace;
}
