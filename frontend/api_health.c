/* api_health.c - what load balancers, gateways and people ask: /health, /ready, /live, /ping, /version, /load, /metrics.
 *
 * All come from the status page, so every frontend answers for the whole mesh, the same. */
#include "frontend/api.h"
#include "frontend/jsonout.h"
#include "proto/pagetext.h"

#include <stdio.h>
#include <string.h>

#define HEALTH_METRICS_MAX (4 * MIB)

static void put_health(const struct page_health *h, bool ready, const char *phase, struct strbuf *out)
{
	char progress[32];

	strbuf_puts(out, ready ? "{\"status\":\"ok\"" : "{\"status\":\"unavailable\"");
	strbuf_puts(out, ",\"phase\":");
	jsonout_text(out, phase);
	snprintf(progress, sizeof(progress), ",\"progress\":%.3f", h->progress);
	strbuf_puts(out, progress);
	strbuf_puts(out, ",\"detail\":");
	jsonout_text(out, h->detail[0] ? h->detail : NULL);
	strbuf_putc(out, '}');
}

/* 200 when requests can be served, else 503 with phase and percentage. */
void api_health(struct api *a, struct http_request *r)
{
	struct page_health h;
	const char *phase;
	bool ready;

	page_health(a->page, a->now, a->heartbeat_max_ns, &h);
	ready = h.ready && lives_is_welcome(a->lives) && !a->draining;
	phase = h.ready && !ready ? (a->draining ? "draining" : "connecting to the executor") : h.phase;
	put_health(&h, ready, phase, &a->scratch);
	http_answer(r, ready ? 200 : 503, "application/json", ready ? NULL : "Retry-After: 1\r\n", a->scratch.data, a->scratch.len);
	strbuf_reset(&a->scratch);
}

/* Whether a restart of the whole server would help: not while it loads or a part is being restarted; but when the supervisor has given
 * up on the engine. */
void api_live(struct api *a, struct http_request *r)
{
	struct page_health h;

	page_health(a->page, a->now, a->heartbeat_max_ns, &h);
	if (h.live) http_answer(r, 200, "application/json", NULL, "{\"status\":\"ok\"}", 15);
	else apierr_send(r, 503, NULL, atomic_load(&a->page->engine_failed) ? h.detail : "The supervisor does not respond.");
}

void api_ping(struct api *a, struct http_request *r)
{
	http_answer(r, 200, "application/json", NULL, "{}", 2);
}

void api_version(struct api *a, struct http_request *r)
{
	strbuf_puts(&a->scratch, "{\"version\":");
	jsonout_text(&a->scratch, SLUICE_VERSION);
	strbuf_putc(&a->scratch, '}');
	api_answer_json(a, r);
}

/* Requests that run or wait, in vLLM's shape. */
void api_load(struct api *a, struct http_request *r)
{
	double n = page_gauge_total(a->page, GAUGE_live_requests);

	strbuf_puts(&a->scratch, "{\"server_load\":");
	strbuf_put_u64(&a->scratch, (uint64_t)n);
	strbuf_putc(&a->scratch, '}');
	api_answer_json(a, r);
}

void api_metrics(struct api *a, struct http_request *r)
{
	char cache[512];
	uint64_t n_blocks = atomic_load_explicit(&a->page->n_blocks, memory_order_relaxed);
	bool caching = a->config->enable_prefix_caching && !atomic_load_explicit(&a->page->recurrent, memory_order_relaxed);
	struct strbuf out;

	strbuf_init(&out, HEALTH_METRICS_MAX);
	config_print(a->config, "kv-cache-dtype", &out);
	snprintf(cache, sizeof(cache),
		 "%s,block_size=\"16\",cache_dtype=\"%s\",enable_prefix_caching=\"%s\",gpu_memory_utilization=\"%g\",num_gpu_blocks=\"%llu\"",
		 "engine=\"0\"", out.data,
		 caching ? "True" : "False", a->config->gpu_memory_utilization, (unsigned long long)n_blocks);
	strbuf_reset(&out);
	pagetext_render(a->page, a->metric_labels, cache, &out);
	http_answer(r, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, out.data, out.len);
	strbuf_release(&out);
}
