/* reqlog.c - see reqlog.h. No text of a client or of the model is in a line, unless --max-log-len asks for its beginning. */
#include "frontend/reqlog.h"

#include "common/logline.h"

#include <stdio.h>
#include <string.h>

bool reqlog_wants(const struct story *s)
{
	static const char *const quiet[] = {"/health", "/ready", "/live", "/ping", "/metrics", "/load"};

	if (s->status >= 400 && s->status != 503) return true;
	for (size_t i = 0; i < ARRAY_LEN(quiet); i++)
		if (strcmp(s->path, quiet[i]) == 0) return false;
	return true;
}

size_t reqlog_cap(size_t text_max)
{
	return LOGLINE_BYTES + 2 * 6 * text_max; /* a control character takes six bytes */
}

static void put_text(struct logline *l, const char *key, const char *s)
{
	if (s && s[0]) logline_text(l, key, s, strlen(s));
}

static void put_stage(struct logline *l, const char *key, const struct stage *s)
{
	if (s->began_ns) logline_ms(l, key, s->ns);
}

static void put_llm(struct logline *l, const struct story *s, const char *model)
{
	char tenant[17];

	put_text(l, "model", model);
	snprintf(tenant, sizeof(tenant), "%016llx", (unsigned long long)s->tenant);
	if (s->tenant) put_text(l, "tenant", tenant);
	logline_u64(l, "prompt_tokens", s->n_prompt);
	logline_u64(l, "cached_tokens", s->n_cached);
	logline_u64(l, "output_tokens", s->n_output);
	put_text(l, "finish", s->finish);
	put_stage(l, "parse_ms", &s->stages.parse);
	put_stage(l, "template_ms", &s->stages.template);
	put_stage(l, "tokenize_ms", &s->stages.tokenize);
	if (s->first_ns) {
		logline_ms(l, "queue_ms", (uint64_t)s->queued_us * 1000);
		logline_ms(l, "prefill_ms", (uint64_t)s->prefill_us * 1000);
		logline_ms(l, "ttft_ms", s->first_ns - s->began_ns);
		logline_ms(l, "decode_ms", s->last_ns - s->first_ns);
		logline_ms(l, "write_ms", s->ended_ns - s->last_ns);
	}
}

size_t reqlog_line(const struct story *s, const char *model, char *buf, size_t cap)
{
	struct logline l;

	logline_begin(&l, buf, cap, LOG_INFO, "request", strlen("request"));
	put_text(&l, "id", s->id);
	put_text(&l, "method", s->method);
	put_text(&l, "path", s->path);
	logline_u64(&l, "status", (uint64_t)s->status);
	if (s->is_gone) put_text(&l, "gone", "client");
	logline_ms(&l, "total_ms", s->ended_ns - s->began_ns);
	put_text(&l, "trace_id", s->trace.trace_id);
	if (s->is_llm) put_llm(&l, s, model);
	if (s->prompt.len) logline_text(&l, "prompt", s->prompt.data, story_text_len(&s->prompt));
	if (s->said.len) logline_text(&l, "answer", s->said.data, story_text_len(&s->said));
	return logline_end(&l);
}
