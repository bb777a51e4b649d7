/* test_page.c - the status page: sums over slots, health of the mesh, and a /metrics text that Prometheus can read. */
#include "common/mem.h"
#include "proto/metrics.h"
#include "proto/pagetext.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define NOW (1000 * NS_PER_S)

static struct page *new_page(uint32_t n_frontends, uint32_t n_workers)
{
	struct page *p;

	/* As a memfd is: zero, and no memory where nothing is touched. */
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	page_format(p, n_frontends, n_workers);
	return p;
}

static void serve(struct page_slot *s)
{
	page_state(s, PAGE_SERVING);
	atomic_store(&s->heartbeat_ns, NOW);
}

static struct strbuf render(const struct page *p)
{
	struct strbuf out;

	strbuf_init(&out, 1 << 20);
	pagetext_render(p, "model_name=\"m\",engine=\"0\"", "block_size=\"16\"", &out);
	return out;
}

static void expect_line(const struct strbuf *text, const char *line)
{
	const char *at = strstr(text->data, line);

	if (!at || (at != text->data && at[-1] != '\n') || at[strlen(line)] != '\n') fail_msg("no line `%s` in\n%s", line, text->data);
}

static void counters_are_sums_over_all_frontends(void **state)
{
	struct page *p = new_page(3, 1);
	struct strbuf out;
	uint64_t last = 0;

	page_count(&p->frontends[0], COUNTER_success_stop, 5);
	page_count(&p->frontends[2], COUNTER_success_stop, 7);
	page_count(&p->frontends[3], COUNTER_success_stop, 100); /* beyond the configured ones */
	page_count_to(&p->executor, COUNTER_prompt_tokens, 10, &last);
	page_count_to(&p->executor, COUNTER_prompt_tokens, 12, &last);
	last = 0; /* a successor starts from nothing, the slot does not */
	page_count_to(&p->executor, COUNTER_prompt_tokens, 3, &last);
	page_gauge(&p->executor, GAUGE_kv_usage, 0.25);
	out = render(p);
	expect_line(&out, "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"stop\"} 12");
	expect_line(&out, "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"length\"} 0");
	expect_line(&out, "vllm:prompt_tokens_total{model_name=\"m\",engine=\"0\"} 15");
	expect_line(&out, "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.25");
	expect_line(&out, "vllm:cache_config_info{block_size=\"16\"} 1");
	expect_line(&out, "# TYPE vllm:num_requests_running gauge");
	strbuf_release(&out);
	munmap(p, sizeof(*p));
}

static void histograms_are_cumulative(void **state)
{
	struct page *p = new_page(2, 1);
	struct strbuf out;

	page_observe(&p->frontends[0], HISTOGRAM_ttft, 0.001); /* on the bound: inside */
	page_observe(&p->frontends[1], HISTOGRAM_ttft, 0.0011);
	page_observe_n(&p->frontends[1], HISTOGRAM_ttft, 1e9, 2);
	out = render(p);
	expect_line(&out, "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.001\"} 1");
	expect_line(&out, "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"0.005\"} 2");
	expect_line(&out, "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"2560.0\"} 2");
	expect_line(&out, "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"+Inf\"} 4");
	expect_line(&out, "vllm:time_to_first_token_seconds_count{model_name=\"m\",engine=\"0\"} 4");
	strbuf_release(&out);
	munmap(p, sizeof(*p));
}

/* The fast search against the plain one, at and beside each bound, and where there is none. */
static void a_value_goes_into_the_first_bucket_that_holds_it(void **state)
{
	static const double odd[] = {0, -0.0, -1, -1e300, 1e-300, 1e300};

	metrics_init();
	for (uint32_t h = 0; h < HISTOGRAM_COUNT; h++) {
		const struct metric_hist *m = &metrics_hists[h];

		for (uint32_t b = 0; b < m->n_bounds; b++) {
			assert_true(b == 0 || m->bounds[b] > m->bounds[b - 1]);
			assert_int_equal(metrics_bucket((enum page_histogram)h, m->bounds[b]), b);
			assert_int_equal(metrics_bucket((enum page_histogram)h, m->bounds[b] * (1 - 1e-12)), b);
			assert_int_equal(metrics_bucket((enum page_histogram)h, m->bounds[b] * (1 + 1e-12)), b + 1);
		}
		for (size_t i = 0; i < ARRAY_LEN(odd); i++)
			assert_int_equal(metrics_bucket((enum page_histogram)h, odd[i]), odd[i] > 1 ? m->n_bounds : 0);
	}
}

static void frontends_are_told_apart_until_they_have_left(void **state)
{
	struct page *p = new_page(3, 1);
	struct strbuf out;

	serve(&p->frontends[0]);
	page_state(&p->frontends[2], PAGE_DEAD);
	for (uint32_t i = 0; i < 3; i++) page_count(&p->frontends[i], COUNTER_http_2xx, 10 + i);
	page_count(&p->frontends[0], COUNTER_http_5xx, 5);
	page_gauge(&p->frontends[0], GAUGE_connections, 7);
	out = render(p);
	expect_line(&out, "sluice:process_up{process=\"frontend\",index=\"0\"} 1");
	expect_line(&out, "sluice:process_up{process=\"frontend\",index=\"2\"} 0");
	expect_line(&out, "sluice:process_up{process=\"executor\",index=\"0\"} 0");
	expect_line(&out, "sluice:frontend_http_requests_total{index=\"0\"} 15");
	expect_line(&out, "sluice:frontend_http_requests_total{index=\"2\"} 12");
	expect_line(&out, "sluice:frontend_connections{index=\"0\"} 7");
	expect_line(&out, "sluice:http_responses_total{model_name=\"m\",engine=\"0\",code=\"2xx\"} 33"); /* with what has left */
	assert_null(strstr(out.data, "index=\"1\"}"));
	strbuf_release(&out);
	munmap(p, sizeof(*p));
}

/* Each TYPE once, before its series; every series once. */
static void the_text_is_well_formed(void **state)
{
	struct page *p = new_page(2, 1);
	struct strbuf out = render(p);
	char *copy = mem_strdup(out.data), *save = NULL;

	assert_int_equal(out.data[out.len - 1], '\n');
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *again = strstr(out.data, line);
		size_t key = strcspn(line, "}") + 1;

		if (strncmp(line, "# HELP", 6) == 0) continue;
		if (strncmp(line, "# TYPE", 6) == 0) key = strlen(line);
		again = strstr(again + 1, "\n");
		while (again && (again = strstr(again, "\n"))) {
			again++;
			if (strncmp(again, line, key) == 0 && (line[0] == '#' ? again[key] == '\n' : 1)) fail_msg("twice: %s", line);
		}
	}
	free(copy);
	strbuf_release(&out);
	munmap(p, sizeof(*p));
}

static void health_names_the_part_that_is_not_well(void **state)
{
	struct page *p = new_page(2, 1);
	struct page_health h;

	atomic_store(&p->supervisor.heartbeat_ns, NOW);
	page_state(&p->workers[0], PAGE_LOADING);
	atomic_store(&p->workers[0].progress, 420);
	page_health(p, NOW, NS_PER_S, &h);
	assert_false(h.ready);
	assert_true(h.live);
	assert_string_equal(h.phase, "loading");
	assert_string_equal(h.detail, "worker 0 is loading");
	assert_true(h.progress > 0.4199 && h.progress < 0.4201);
	serve(&p->workers[0]);
	serve(&p->frontends[0]);
	serve(&p->frontends[1]);
	page_health(p, NOW, NS_PER_S, &h);
	assert_string_equal(h.detail, "executor 0 is not started");
	serve(&p->executor);
	page_health(p, NOW, NS_PER_S, &h);
	assert_true(h.ready);
	page_health(p, NOW + NS_PER_S, NS_PER_S, &h); /* just young enough */
	assert_true(h.ready);
	page_health(p, NOW + NS_PER_S + 1, NS_PER_S, &h);
	assert_false(h.ready);
	assert_false(h.live);
	assert_string_equal(h.detail, "worker 0 is not responding");
	page_state(&p->frontends[1], PAGE_DEAD); /* its sibling serves */
	page_health(p, NOW, NS_PER_S, &h);
	assert_true(h.ready);
	assert_string_equal(h.detail, "frontend 1 is being restarted");
	page_state(&p->executor, PAGE_DEAD);
	memset(&h, 0, sizeof(h));
	page_health(p, NOW, NS_PER_S, &h);
	assert_false(h.ready);
	assert_string_equal(h.detail, "executor 0 is dead");
	serve(&p->executor);
	page_state(&p->frontends[1], PAGE_STARTING);
	page_health(p, NOW, NS_PER_S, &h);
	assert_false(h.ready); /* never yet ready */
	atomic_store(&p->frontends[1].incarnation, 1);
	page_health(p, NOW, NS_PER_S, &h);
	assert_true(h.ready);
	/* Who retires, or has left for good, is not waited for. */
	page_state(&p->frontends[1], PAGE_DRAINING);
	page_health(p, NOW, NS_PER_S, &h);
	assert_true(h.ready && !h.detail[0]);
	page_state(&p->frontends[1], PAGE_EMPTY);
	atomic_store(&p->frontends[1].incarnation, 0);
	page_health(p, NOW, NS_PER_S, &h);
	assert_true(h.ready && !h.detail[0]);
	atomic_store(&p->draining, 1);
	page_health(p, NOW, NS_PER_S, &h);
	assert_string_equal(h.phase, "draining");
	munmap(p, sizeof(*p));
}

static void another_layout_is_refused(void **state)
{
	struct page *p = new_page(1, 1);
	struct errbuf err;

	assert_int_equal(page_check(p, sizeof(*p), &err), ST_OK);
	assert_int_equal(page_check(p, sizeof(*p) - 1, &err), ST_CORRUPT);
	p->n_workers = LIMIT_WORKERS + 1;
	assert_int_equal(page_check(p, sizeof(*p), &err), ST_CORRUPT);
	p->n_workers = 1;
	p->layout++;
	assert_int_equal(page_check(p, sizeof(*p), &err), ST_CORRUPT);
	assert_string_equal(err.text, "shared memory holds no status page of layout 5; was another version started?");
	munmap(p, sizeof(*p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters_are_sums_over_all_frontends),
		cmocka_unit_test(histograms_are_cumulative),
		cmocka_unit_test(a_value_goes_into_the_first_bucket_that_holds_it),
		cmocka_unit_test(frontends_are_told_apart_until_they_have_left),
		cmocka_unit_test(the_text_is_well_formed),
		cmocka_unit_test(health_names_the_part_that_is_not_well),
		cmocka_unit_test(another_layout_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
