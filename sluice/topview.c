/* topview.c - see topview.h. */
#include "sluice/topview.h"

#include "common/quote.h"
#include "common/utf8.h"
#include "proto/metrics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- taking ---- */

static void take_processes(struct top_sample *out, const struct page *p, enum page_owner kind, struct top_usage (*usage)(uint32_t pid))
{
	static const enum page_counter answers[] = {COUNTER_http_2xx, COUNTER_http_4xx, COUNTER_http_5xx};
	uint32_t n;
	const struct page_slot *s = page_slots(p, kind, &n);

	for (uint32_t i = 0; i < n && out->n_processes < TOPVIEW_PROCESSES_MAX; i++) {
		struct top_process *t = &out->processes[out->n_processes];

		*t = (struct top_process){.kind = kind, .index = i, .state = atomic_load(&s[i].state), .pid = atomic_load(&s[i].pid),
					  .incarnation = atomic_load(&s[i].incarnation), .progress = atomic_load(&s[i].progress),
					  .started_ns = atomic_load(&s[i].started_ns)};
		if (t->state == PAGE_EMPTY && kind == OWNER_FRONTEND) continue; /* it has left for good */
		for (size_t k = 0; k < ARRAY_LEN(answers); k++) t->n_requests += page_counter_get(&s[i], answers[k]);
		t->n_connections = (uint64_t)page_gauge_of(&s[i], GAUGE_connections);
		if (t->pid && t->state != PAGE_DEAD && t->state != PAGE_EMPTY) t->usage = usage(t->pid);
		out->n_processes++;
	}
}

void topview_take(struct top_sample *out, const struct page *p, uint64_t now, struct top_usage (*usage)(uint32_t pid))
{
	static const enum page_owner kinds[] = {OWNER_SUPERVISOR, OWNER_EXECUTOR, OWNER_WORKER, OWNER_FRONTEND};

	memset(out, 0, sizeof(*out));
	out->at_ns = now;
	out->epoch = atomic_load(&p->epoch);
	out->admitted = governor_count(&p->governor, GOVERNOR_MESH, GOVERNOR_REQUESTS);
	out->is_draining = atomic_load(&p->draining);
	if (atomic_load(&p->engine_failed)) snprintf(out->engine_failed, sizeof(out->engine_failed), "%s", p->engine_failed_text);
	page_health(p, now, 10 * NS_PER_S, &out->health);
	for (uint32_t i = 0; i < COUNTER_COUNT; i++) out->counters[i] = page_counter_total(p, (enum page_counter)i);
	for (uint32_t i = 0; i < GAUGE_COUNT; i++) out->gauges[i] = page_gauge_total(p, (enum page_gauge)i);
	for (uint32_t i = 0; i < HISTOGRAM_COUNT; i++) page_hist_total(p, (enum page_histogram)i, &out->hists[i]);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) take_processes(out, p, kinds[i], usage);
}

double topview_quantile(const struct page_hist_total *before, const struct page_hist_total *now, enum page_histogram h, double q)
{
	const struct metric_hist *m = &metrics_hists[h];
	uint64_t n = now->count - (before ? before->count : 0), seen = 0;
	double wanted = q * (double)n;

	if (n == 0) return -1;
	for (uint32_t b = 0; b < m->n_bounds; b++) {
		uint64_t here = now->buckets[b] - (before ? before->buckets[b] : 0);
		double from = b ? m->bounds[b - 1] : 0;

		if (here > 0 && (double)(seen + here) >= wanted) return from + (m->bounds[b] - from) * (wanted - (double)seen) / (double)here;
		seen += here;
	}
	return m->bounds[m->n_bounds - 1];
}

/* ---- showing ---- */

struct frame {
	const struct top_sample *before, *now;
	const struct top_screen *screen;
	struct strbuf *out;
	double seconds; /* between the samples; 0: there is one only */
	uint32_t n_lines;
};

/* One line, cut to the screen; bytes count as columns, which only a name may make too many. Bold ones are heads. */
static void line(struct frame *f, bool bold, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void line(struct frame *f, bool bold, const char *fmt, ...)
{
	char buf[512];
	size_t len;
	va_list ap;
	int n;

	if (f->screen->rows && f->n_lines >= f->screen->rows) return;
	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	if (bold && f->screen->has_colors) strbuf_puts(f->out, "\033[1m");
	len = min_size(min_size(n > 0 ? (size_t)n : 0, sizeof(buf) - 1), f->screen->cols);
	strbuf_append(f->out, buf, utf8_valid_len(buf, len));
	if (bold && f->screen->has_colors) strbuf_puts(f->out, "\033[0m");
	strbuf_putc(f->out, '\n');
	f->n_lines++;
}

struct cell {
	char text[24];
};

static struct cell number(double v)
{
	struct cell c;

	if (v < 0) snprintf(c.text, sizeof(c.text), "-");
	else if (v >= 1e6) snprintf(c.text, sizeof(c.text), "%.1fM", v / 1e6);
	else if (v >= 1e4) snprintf(c.text, sizeof(c.text), "%.1fk", v / 1e3);
	else snprintf(c.text, sizeof(c.text), v > 0 && v < 100 ? "%.1f" : "%.0f", v);
	return c;
}

static struct cell duration(double s)
{
	struct cell c;

	if (s < 0) snprintf(c.text, sizeof(c.text), "-");
	else if (s < 1e-3) snprintf(c.text, sizeof(c.text), "%.0f us", s * 1e6);
	else if (s < 1) snprintf(c.text, sizeof(c.text), s < 0.01 ? "%.1f ms" : "%.0f ms", s * 1e3);
	else if (s < 120) snprintf(c.text, sizeof(c.text), s < 10 ? "%.1f s" : "%.0f s", s);
	else if (s < 7200) snprintf(c.text, sizeof(c.text), "%.0f m", s / 60);
	else if (s < 172800) snprintf(c.text, sizeof(c.text), "%.0f h", s / 3600);
	else snprintf(c.text, sizeof(c.text), "%.0f d", s / 86400);
	return c;
}

static struct cell bytes(uint64_t n)
{
	struct cell c;

	if (n >= GIB) snprintf(c.text, sizeof(c.text), "%.1fG", (double)n / (double)GIB);
	else snprintf(c.text, sizeof(c.text), "%.0fM", (double)n / (double)MIB);
	return c;
}

/* A second; -1: not known. */
static double rate(const struct frame *f, enum page_counter c)
{
	return f->seconds > 0 ? (double)(f->now->counters[c] - f->before->counters[c]) / f->seconds : -1;
}

/* All rows of the counter's name, whatever their labels. */
static uint64_t family(const struct top_sample *s, enum page_counter c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < COUNTER_COUNT; i++)
		if (strcmp(metrics_counters[i].name, metrics_counters[c].name) == 0) sum += s->counters[i];
	return sum;
}

static double family_rate(const struct frame *f, enum page_counter c)
{
	return f->seconds > 0 ? (double)(family(f->now, c) - family(f->before, c)) / f->seconds : -1;
}

static void show_head(struct frame *f)
{
	const struct top_sample *s = f->now;
	struct quote at = quote_short(f->screen->at, strlen(f->screen->at)), model = quote_short(f->screen->model, strlen(f->screen->model));

	line(f, true, "%s  %s  %s%s%s", at.text, model.text, s->engine_failed[0] ? "failed" : s->is_draining ? "draining" : s->health.phase,
	     s->health.detail[0] ? ": " : "", s->health.detail);
	if (s->engine_failed[0]) line(f, false, "%s", s->engine_failed);
	line(f, false, "%s", "");
}

static void show_work(struct frame *f)
{
	const struct top_sample *s = f->now;
	double queries = rate(f, COUNTER_prefix_queries), hits = rate(f, COUNTER_prefix_hits);
	double done = f->seconds > 0 ? rate(f, COUNTER_success_stop) + rate(f, COUNTER_success_length) : -1;
	char hit[24] = "-";

	if (queries > 0) snprintf(hit, sizeof(hit), "%.0f%%", 100 * hits / queries);
	line(f, false, "requests  %s/s done  %s/s errors  %s/s left by their client  HTTP %s/s 2xx %s/s 4xx %s/s 5xx",
	     number(done).text, number(rate(f, COUNTER_success_error)).text, number(rate(f, COUNTER_success_abort)).text, number(rate(f, COUNTER_http_2xx)).text, number(rate(f, COUNTER_http_4xx)).text,
	     number(rate(f, COUNTER_http_5xx)).text);
	line(f, false, "tokens    %s/s out  %s/s in  prefix hits %s", number(rate(f, COUNTER_generation_tokens)).text,
	     number(rate(f, COUNTER_prompt_tokens)).text, hit);
	line(f, false, "engine    running %.0f  waiting %.0f  admitted %llu  KV %.1f%%  preempted %s/s  tenants %.0f  epoch %llu",
	     s->gauges[GAUGE_running], s->gauges[GAUGE_waiting], (unsigned long long)s->admitted, 100 * s->gauges[GAUGE_kv_usage],
	     number(rate(f, COUNTER_preemptions)).text, s->gauges[GAUGE_tenants], (unsigned long long)s->epoch);
}

static void show_trouble(struct frame *f)
{
	const struct top_sample *s = f->now;

	line(f, false, "refused   %s/s  %llu in all  timeouts %llu   restarts  frontend %llu  executor %llu  worker %llu  (no memory %llu, hung %llu)",
	     number(family_rate(f, COUNTER_rejected_requests)).text, (unsigned long long)family(s, COUNTER_rejected_requests),
	     (unsigned long long)s->counters[COUNTER_request_timeouts],
	     (unsigned long long)s->counters[COUNTER_restarts_frontend], (unsigned long long)s->counters[COUNTER_restarts_executor],
	     (unsigned long long)s->counters[COUNTER_restarts_worker], (unsigned long long)family(s, COUNTER_oom_frontend),
	     (unsigned long long)family(s, COUNTER_hung_frontend));
}

/* Two of them a line. */
static void show_latencies(struct frame *f)
{
	static const struct {
		const char *name;
		enum page_histogram h;
	} rows[] = {{"first token", HISTOGRAM_ttft}, {"parse", HISTOGRAM_parse}, {"between tokens", HISTOGRAM_itl}, {"template", HISTOGRAM_template},
		    {"whole request", HISTOGRAM_e2e}, {"tokenize", HISTOGRAM_tokenize}, {"step", HISTOGRAM_step_seconds}, {"queue", HISTOGRAM_queue_time},
		    {"frontend's loop", HISTOGRAM_loop_pass}, {"prefill", HISTOGRAM_prefill_time}, {"write", HISTOGRAM_write}};
	char text[128];
	size_t at = 0;

	line(f, true, "%-16s%10s%10s   %-16s%10s%10s", "", "p50", "p99", "", "p50", "p99");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct page_hist_total *old = f->before ? &f->before->hists[rows[i].h] : NULL, *new = &f->now->hists[rows[i].h];

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%-16s%10s%10s   ", rows[i].name, duration(topview_quantile(old, new, rows[i].h, 0.5)).text,
				       duration(topview_quantile(old, new, rows[i].h, 0.99)).text);
		if (i % 2 == 0 && i + 1 < ARRAY_LEN(rows)) continue;
		while (at > 0 && text[at - 1] == ' ') text[--at] = 0;
		line(f, false, "%s", text);
		at = 0;
	}
}

/* The same process in the earlier sample; NULL: it is another one, or new. */
static const struct top_process *earlier(const struct frame *f, const struct top_process *p)
{
	for (uint32_t i = 0; f->before && i < f->before->n_processes; i++) {
		const struct top_process *o = &f->before->processes[i];

		if (o->kind == p->kind && o->index == p->index) return o;
	}
	return NULL;
}

static void show_process(struct frame *f, const struct top_process *p)
{
	static const char *const kinds[] = {[OWNER_SUPERVISOR] = "supervisor", [OWNER_FRONTEND] = "frontend", [OWNER_EXECUTOR] = "executor", [OWNER_WORKER] = "worker"};
	const struct top_process *o = earlier(f, p);
	struct cell cpu = number(-1), rss = number(-1), requests = number(-1), connections = {""}, up = number(-1);
	char name[32], state[32];

	snprintf(name, sizeof(name), p->kind == OWNER_FRONTEND || p->kind == OWNER_WORKER ? "%s %u" : "%s", kinds[p->kind], p->index);
	if (p->state == PAGE_LOADING && p->kind == OWNER_WORKER) snprintf(state, sizeof(state), "loading %u%%", p->progress / 10);
	else snprintf(state, sizeof(state), "%s", page_state_name((enum page_state)p->state));
	if (p->usage.is_known) {
		rss = bytes(p->usage.rss);
		if (p->started_ns && p->started_ns <= f->now->at_ns) up = duration((double)(f->now->at_ns - p->started_ns) / 1e9);
	}
	if (f->seconds > 0 && o && o->pid == p->pid && o->usage.is_known && p->usage.is_known && p->usage.cpu_ns >= o->usage.cpu_ns)
		cpu = number((double)(p->usage.cpu_ns - o->usage.cpu_ns) / 1e7 / f->seconds);
	if (p->kind == OWNER_FRONTEND) {
		if (f->seconds > 0 && o) requests = number((double)(p->n_requests - o->n_requests) / f->seconds);
		connections = number((double)p->n_connections);
	} else {
		requests = (struct cell){""};
	}
	line(f, false, "%-14s%-14s%9u%8s%8s%9s%11s%8s%6u", name, state, p->pid, up.text, cpu.text, rss.text, requests.text, connections.text, p->incarnation);
}

static void show_processes(struct frame *f)
{
	uint32_t i, n = f->now->n_processes;

	line(f, true, "%-14s%-14s%9s%8s%8s%9s%11s%8s%6s", "process", "state", "pid", "up", "CPU %", "memory", "answers/s", "conns", "died");
	for (i = 0; i < n; i++) {
		if (f->screen->rows && f->n_lines + 1 >= f->screen->rows && i + 1 < n) {
			line(f, false, "... and %u more", n - i);
			return;
		}
		show_process(f, &f->now->processes[i]);
	}
}

void topview_frame(const struct top_sample *before, const struct top_sample *now, const struct top_screen *screen, struct strbuf *out)
{
	struct frame f = {.before = before, .now = now, .screen = screen, .out = out};

	if (before && now->at_ns > before->at_ns) f.seconds = (double)(now->at_ns - before->at_ns) / 1e9;
	show_head(&f);
	show_work(&f);
	show_trouble(&f);
	line(&f, false, "%s", "");
	show_latencies(&f);
	line(&f, false, "%s", "");
	show_processes(&f);
}
