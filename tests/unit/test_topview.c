/* test_topview.c - what `sluice top` makes of two samples: rates, percentiles, processes, and frames that fit every screen. */
#include "common/mem.h"
#include "sluice/topview.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define NOW (1000 * NS_PER_S)

struct box {
	struct page *page;
	struct top_sample *before, *now;
	struct strbuf out;
};

static uint64_t cpu_ns; /* of all processes */

static struct top_usage usage(uint32_t pid)
{
	return (struct top_usage){.is_known = pid != 99, .cpu_ns = cpu_ns, .rss = pid * MIB};
}

static void serve(struct page_slot *s, uint32_t pid)
{
	page_state(s, PAGE_SERVING);
	atomic_store(&s->pid, pid);
	atomic_store(&s->started_ns, NOW - 90 * NS_PER_S);
	atomic_store(&s->heartbeat_ns, NOW);
}

static void box_init(struct box *b)
{
	*b = (struct box){.before = mem_new(struct top_sample), .now = mem_new(struct top_sample)};
	/* As a memfd is: zero, and no memory where nothing is touched. */
	b->page = mmap(NULL, sizeof(*b->page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(b->page != MAP_FAILED);
	page_format(b->page, 3, 1);
	serve(&b->page->supervisor, 10);
	serve(&b->page->executor, 11);
	serve(&b->page->workers[0], 12);
	serve(&b->page->frontends[0], 13);
	serve(&b->page->frontends[2], 15); /* the one between has left */
	strbuf_init(&b->out, 1 << 20);
	cpu_ns = 5 * NS_PER_S;
	topview_take(b->before, b->page, NOW, usage);
}

static void box_release(struct box *b)
{
	munmap(b->page, sizeof(*b->page));
	free(b->before);
	free(b->now);
	strbuf_release(&b->out);
}

static const char *frame(struct box *b, const struct top_sample *before, const struct top_sample *now, uint32_t cols, uint32_t rows)
{
	const struct top_screen screen = {.at = "http://h:1", .model = "m\033[2J", .cols = cols, .rows = rows};

	strbuf_reset(&b->out);
	topview_frame(before, now, &screen, &b->out);
	return b->out.data;
}

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part)) fail_msg("no `%s` in\n%s", part, text);
}

static void rates_are_of_the_time_between(void **state)
{
	struct box b;
	const char *text;

	box_init(&b);
	page_count(&b.page->frontends[0], COUNTER_success_stop, 10);
	page_count(&b.page->frontends[2], COUNTER_success_length, 6);
	page_count(&b.page->frontends[0], COUNTER_http_2xx, 16);
	page_count(&b.page->frontends[0], COUNTER_rejected_queue, 3);
	page_count(&b.page->frontends[2], COUNTER_rejected_tenant_tokens, 1);
	page_count(&b.page->executor, COUNTER_generation_tokens, 50000);
	page_count(&b.page->executor, COUNTER_prefix_queries, 100);
	page_count(&b.page->executor, COUNTER_prefix_hits, 25);
	page_count(&b.page->supervisor, COUNTER_restarts_worker, 2);
	page_gauge(&b.page->executor, GAUGE_running, 4);
	page_gauge(&b.page->executor, GAUGE_kv_usage, 0.421);
	page_gauge(&b.page->frontends[2], GAUGE_connections, 77);
	cpu_ns += NS_PER_S / 2;
	topview_take(b.now, b.page, NOW + 2 * NS_PER_S, usage);
	text = frame(&b, b.before, b.now, 200, 0);
	expect(text, "requests  8.0/s done");
	expect(text, "8.0/s 2xx");
	expect(text, "tokens    25.0k/s out  0/s in  prefix hits 25%");
	expect(text, "running 4  waiting 0  admitted 0  KV 42.1%");
	expect(text, "refused   2.0/s  4 in all");
	expect(text, "worker 2");
	expect(text, "frontend 0    serving              13    92 s    25.0      13M        8.0       0     0\n");
	expect(text, "frontend 2    serving              15    92 s    25.0      15M          0    77.0     0\n");
	assert_null(strstr(text, "frontend 1"));
	assert_null(strchr(text, '\033')); /* a model may be called anything */
	box_release(&b);
}

static void one_sample_has_no_rates(void **state)
{
	struct box b;
	const char *text;

	box_init(&b);
	text = frame(&b, NULL, b.before, 200, 0);
	expect(text, "requests  -/s done");
	expect(text, "refused   -/s  0 in all");
	box_release(&b);
}

static void percentiles_are_of_what_came_between(void **state)
{
	struct box b;
	struct page_hist_total *old, *new;

	box_init(&b);
	for (int i = 0; i < 1000; i++) page_observe(&b.page->frontends[0], HISTOGRAM_ttft, 100); /* long ago */
	topview_take(b.before, b.page, NOW, usage);
	old = &b.before->hists[HISTOGRAM_ttft];
	assert_true(topview_quantile(old, old, HISTOGRAM_ttft, 0.5) == -1);
	for (int i = 0; i < 98; i++) page_observe(&b.page->frontends[0], HISTOGRAM_ttft, 0.015);
	for (int i = 0; i < 2; i++) page_observe(&b.page->frontends[2], HISTOGRAM_ttft, 1e6);
	topview_take(b.now, b.page, NOW + NS_PER_S, usage);
	new = &b.now->hists[HISTOGRAM_ttft];
	assert_true(topview_quantile(old, new, HISTOGRAM_ttft, 0.5) > 0.01 && topview_quantile(old, new, HISTOGRAM_ttft, 0.5) < 0.02);
	assert_true(topview_quantile(old, new, HISTOGRAM_ttft, 0.98) == 0.02);
	assert_true(topview_quantile(old, new, HISTOGRAM_ttft, 0.99) == 2560.0);
	assert_true(topview_quantile(NULL, new, HISTOGRAM_ttft, 0.5) > 80);
	expect(frame(&b, b.before, b.now, 200, 0), "first token          15 ms      43 m");
	box_release(&b);
}

static void trouble_is_named(void **state)
{
	struct box b;
	const char *text;

	box_init(&b);
	page_state(&b.page->workers[0], PAGE_LOADING);
	atomic_store(&b.page->workers[0].progress, 421);
	page_state(&b.page->frontends[0], PAGE_DEAD);
	atomic_store(&b.page->frontends[2].pid, 99); /* it has just ended */
	topview_take(b.now, b.page, NOW + NS_PER_S, usage);
	text = frame(&b, b.before, b.now, 200, 0);
	expect(text, "loading: worker 0 is loading");
	expect(text, "worker 0      loading 42%");
	expect(text, "frontend 0    dead                 13       -       -        -");
	expect(text, "frontend 2    serving              99       -       -        -");
	snprintf(b.page->engine_failed_text, sizeof(b.page->engine_failed_text), "no more of this");
	atomic_store(&b.page->engine_failed, 1);
	topview_take(b.now, b.page, NOW + NS_PER_S, usage);
	text = frame(&b, b.before, b.now, 200, 0);
	expect(text, "failed");
	expect(text, "no more of this\n");
	box_release(&b);
}

static void frames_fit_every_screen(void **state)
{
	struct box b;

	box_init(&b);
	for (uint32_t cols = 1; cols < 140; cols += 7) {
		for (uint32_t rows = 1; rows < 40; rows++) {
			const char *text = frame(&b, NULL, b.before, cols, rows);
			uint32_t n = 0;

			for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
				assert_true((size_t)(end - at) <= cols);
				n++;
			}
			assert_true(n <= rows);
		}
	}
	expect(frame(&b, NULL, b.before, 100, 18), "... and ");
	box_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_are_of_the_time_between),
		cmocka_unit_test(one_sample_has_no_rates),
		cmocka_unit_test(percentiles_are_of_what_came_between),
		cmocka_unit_test(trouble_is_named),
		cmocka_unit_test(frames_fit_every_screen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
