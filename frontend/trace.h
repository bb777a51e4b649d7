/* trace.h - a request as OTLP JSON (--trace-file): one line is one ExportTraceServiceRequest, as the file exporter of OpenTelemetry's
 * collector writes it and its otlpjsonfile receiver reads it. Pure.
 *
 * The span `llm_request` has the attributes that vLLM gives it; its children are the stages: parse, template, tokenize, queue, prefill,
 * decode, write. They lie within it and never overlap. No text of a client is in it. */
#ifndef SLUICE_TRACE_H
#define SLUICE_TRACE_H

#include "frontend/story.h"

struct trace_process {
	const char *model, *instance; /* as it is served; which frontend of which run */
	uint32_t pid;
};

/* Whether the story is a span: it is about tokens, and its caller wants it traced. */
bool trace_wants(const struct story *s);
/* Appends the line. wall_ns: what has to be added to the story's times to get nanoseconds since 1970. */
void trace_line(const struct story *s, const struct trace_process *p, uint64_t wall_ns, struct strbuf *out);

#endif
