/* trace.c - see trace.h. Numbers of 64 bits are strings in OTLP JSON, ids are hexadecimal. */
#include "frontend/trace.h"

#include "common/splitmix.h"
#include "frontend/jsonout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN_INTERNAL = 1, SPAN_SERVER = 2, STATUS_ERROR = 2 };

bool trace_wants(const struct story *s)
{
	return s->is_llm && s->trace.is_sampled;
}

/* ---- attributes ---- */

static void put_key(struct strbuf *out, const char *key, const char *kind)
{
	if (out->len > 0 && out->data[out->len - 1] == '}') strbuf_putc(out, ',');
	strbuf_puts(out, "{\"key\":\"");
	strbuf_puts(out, key);
	strbuf_puts(out, "\",\"value\":{\"");
	strbuf_puts(out, kind);
	strbuf_puts(out, "\":");
}

static void put_text(struct strbuf *out, const char *key, const char *s)
{
	if (!s || !s[0]) return;
	put_key(out, key, "stringValue");
	jsonout_text(out, s);
	strbuf_puts(out, "}}");
}

static void put_int(struct strbuf *out, const char *key, uint64_t v)
{
	put_key(out, key, "intValue");
	strbuf_putc(out, '"');
	strbuf_put_u64(out, v);
	strbuf_puts(out, "\"}}");
}

static void put_double(struct strbuf *out, const char *key, double v)
{
	put_key(out, key, "doubleValue");
	strbuf_printf(out, "%.9g", isfinite(v) ? v : 0.0);
	strbuf_puts(out, "}}");
}

static void put_seconds(struct strbuf *out, const char *key, uint64_t ns)
{
	put_double(out, key, (double)ns / 1e9);
}

/* ---- spans ---- */

static void put_span(struct strbuf *out, const struct tracectx *t, const char *span_id, const char *parent_id, const char *name, int kind,
		     uint64_t from_ns, uint64_t to_ns)
{
	strbuf_puts(out, "{\"traceId\":\"");
	strbuf_puts(out, t->trace_id);
	strbuf_puts(out, "\",\"spanId\":\"");
	strbuf_puts(out, span_id);
	if (parent_id[0]) {
		strbuf_puts(out, "\",\"parentSpanId\":\"");
		strbuf_puts(out, parent_id);
	}
	strbuf_printf(out, "\",\"flags\":1,\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\"", name, kind,
		      (unsigned long long)from_ns, (unsigned long long)to_ns);
}

/* Where the stages have come to: each begins no earlier than the one before has ended. */
struct stage_writer {
	const struct story *story;
	struct strbuf *out;
	uint64_t wall_ns, at_ns, id;
};

static void put_stage(struct stage_writer *w, const char *name, uint64_t from_ns, uint64_t to_ns)
{
	char id[17];

	from_ns = min_u64(max_u64(from_ns, w->at_ns), w->story->ended_ns);
	to_ns = min_u64(max_u64(to_ns, from_ns), w->story->ended_ns);
	w->at_ns = to_ns;
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)(splitmix_next(&w->id) | 1));
	strbuf_putc(w->out, ',');
	put_span(w->out, &w->story->trace, id, w->story->trace.span_id, name, SPAN_INTERNAL, from_ns + w->wall_ns, to_ns + w->wall_ns);
	strbuf_putc(w->out, '}');
}

static void put_prepared(struct stage_writer *w, const char *name, const struct stage *s)
{
	if (s->began_ns) put_stage(w, name, s->began_ns, s->began_ns + s->ns);
}

static void put_stages(const struct story *s, uint64_t wall_ns, struct strbuf *out)
{
	struct stage_writer w = {.story = s, .out = out, .wall_ns = wall_ns, .at_ns = s->began_ns, .id = strtoull(s->trace.span_id, NULL, 16)};
	uint64_t prefill_ns = (uint64_t)s->prefill_us * 1000, queued_ns = (uint64_t)s->queued_us * 1000;

	put_prepared(&w, "parse", &s->stages.parse);
	put_prepared(&w, "template", &s->stages.template);
	put_prepared(&w, "tokenize", &s->stages.tokenize);
	if (!s->first_ns) return;
	/* The executor measured how long they took; they end where the first token came. */
	prefill_ns = min_u64(prefill_ns, s->first_ns - s->submitted_ns);
	queued_ns = min_u64(queued_ns, s->first_ns - s->submitted_ns - prefill_ns);
	put_stage(&w, "queue", s->first_ns - prefill_ns - queued_ns, s->first_ns - prefill_ns);
	put_stage(&w, "prefill", s->first_ns - prefill_ns, s->first_ns);
	put_stage(&w, "decode", s->first_ns, s->last_ns);
	put_stage(&w, "write", s->last_ns, s->ended_ns);
}

/* vLLM's names (vllm/tracing), then those of OpenTelemetry's conventions. */
static void put_attributes(const struct story *s, const struct trace_process *p, struct strbuf *out)
{
	uint64_t prefill_ns = (uint64_t)s->prefill_us * 1000;

	put_text(out, "gen_ai.request.id", s->id);
	put_text(out, "gen_ai.response.model", p->model);
	put_int(out, "gen_ai.usage.prompt_tokens", s->n_prompt);
	put_int(out, "gen_ai.usage.completion_tokens", s->n_output);
	put_int(out, "gen_ai.usage.cache_read.input_tokens", s->n_cached);
	if (s->n_max) put_int(out, "gen_ai.request.max_tokens", s->n_max);
	if (s->n) {
		put_int(out, "gen_ai.request.n", s->n);
		put_double(out, "gen_ai.request.temperature", s->temperature);
		put_double(out, "gen_ai.request.top_p", s->top_p);
	}
	if (s->first_ns) {
		put_seconds(out, "gen_ai.latency.time_in_queue", (uint64_t)s->queued_us * 1000);
		put_seconds(out, "gen_ai.latency.time_to_first_token", s->first_ns - s->began_ns);
		put_seconds(out, "gen_ai.latency.time_in_model_prefill", prefill_ns);
		put_seconds(out, "gen_ai.latency.time_in_model_decode", s->last_ns - s->first_ns);
		put_seconds(out, "gen_ai.latency.time_in_model_inference", prefill_ns + s->last_ns - s->first_ns);
	}
	put_seconds(out, "gen_ai.latency.e2e", s->ended_ns - s->began_ns);
	if (s->finish) {
		put_key(out, "gen_ai.response.finish_reasons", "arrayValue");
		strbuf_printf(out, "{\"values\":[{\"stringValue\":\"%s\"}]}}}", s->finish);
	}
	put_text(out, "http.request.method", s->method);
	put_text(out, "url.path", s->path);
	if (s->status) put_int(out, "http.response.status_code", (uint64_t)s->status);
}

static void put_request(const struct story *s, const struct trace_process *p, uint64_t wall_ns, struct strbuf *out)
{
	put_span(out, &s->trace, s->trace.span_id, s->trace.parent_id, "llm_request", SPAN_SERVER, s->began_ns + wall_ns, s->ended_ns + wall_ns);
	strbuf_puts(out, ",\"attributes\":[");
	put_attributes(s, p, out);
	/* As conventions say of servers: a client's mistake is no error of ours. */
	if (s->status >= 500 || (s->finish && strcmp(s->finish, "error") == 0))
		strbuf_printf(out, "],\"status\":{\"code\":%d}}", STATUS_ERROR);
	else strbuf_puts(out, "],\"status\":{}}");
}

void trace_line(const struct story *s, const struct trace_process *p, uint64_t wall_ns, struct strbuf *out)
{
	strbuf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
	put_text(out, "service.name", "sluice");
	put_text(out, "service.version", SLUICE_VERSION);
	put_text(out, "service.instance.id", p->instance);
	put_int(out, "process.pid", p->pid);
	strbuf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"sluice\",\"version\":\"" SLUICE_VERSION "\"},\"spans\":[");
	put_request(s, p, wall_ns, out);
	put_stages(s, wall_ns, out);
	strbuf_puts(out, "]}]}]}\n");
}
