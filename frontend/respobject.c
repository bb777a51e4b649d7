/* respobject.c - see respobject.h.
 *
 * A stream writes the object three times, so what it repeats of the request is bounded: a member of more than RESPOBJECT_ECHO_MAX bytes
 * is written as if the request did not have it. */
#include "frontend/respobject.h"

#include "frontend/jsonbig_dump.h"
#include "frontend/gendefaults.h"
#include "frontend/jsonout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RESPOBJECT_ECHO_MAX (256 * KIB) /* instructions and tools of agents are some tens of KiB */

/* With a fraction, as OpenAI writes it. */
static void respobject_number(char out[32], double v)
{
	snprintf(out, 32, v == floor(v) ? "%.1f" : "%.9g", v);
}

void respobject_echo(const json_t *request, const struct gendefaults *d, struct strbuf *out)
{
	struct gendefaults neutral = GENDEFAULTS_NEUTRAL;
	char temperature[32], top_p[32];
	const struct {
		const char *name, *absent;
	} members[] = {
		{"instructions", "null"},
		{"max_output_tokens", "null"},
		{"max_tool_calls", "null"},
		{"metadata", "{}"},
		{"parallel_tool_calls", "true"},
		{"prompt_cache_key", "null"},
		{"reasoning", "{\"effort\":null,\"summary\":null}"},
		{"safety_identifier", "null"},
		{"temperature", temperature},
		{"text", "{\"format\":{\"type\":\"text\"}}"},
		{"tool_choice", "\"auto\""},
		{"tools", "[]"},
		{"top_logprobs", "0"},
		{"top_p", top_p},
		{"user", "null"},
	};
	struct strbuf value;
	const json_t *j;
	size_t i;

	if (!d) d = &neutral;
	respobject_number(temperature, d->temperature);
	respobject_number(top_p, d->top_p);
	strbuf_init(&value, RESPOBJECT_ECHO_MAX);
	for (i = 0; i < ARRAY_LEN(members); i++) {
		j = json_object_get(request, members[i].name);
		strbuf_reset(&value);
		if (j && !json_is_null(j)) jsonbig_dump(j, &value);
		strbuf_printf(out, ",\"%s\":", members[i].name);
		if (value.len == 0 || value.overflow) strbuf_puts(out, members[i].absent);
		else strbuf_append(out, value.data, value.len);
	}
	strbuf_release(&value);
}

static void put_error(const struct apierr *e, struct strbuf *out)
{
	strbuf_puts(out, ",\"error\":");
	if (!e) {
		strbuf_puts(out, "null");
		return;
	}
	strbuf_puts(out, "{\"code\":");
	jsonout_text(out, e->status == 429 ? "rate_limit_exceeded" : e->status < 500 ? "invalid_prompt" : "server_error");
	strbuf_puts(out, ",\"message\":");
	jsonout_text(out, e->message);
	strbuf_putc(out, '}');
}

static void put_number(const char *name, uint64_t n, struct strbuf *out)
{
	strbuf_puts(out, name);
	strbuf_put_u64(out, n);
}

static void put_usage(const struct answer_usage *u, struct strbuf *out)
{
	strbuf_puts(out, ",\"usage\":");
	if (!u) {
		strbuf_puts(out, "null");
		return;
	}
	put_number("{\"input_tokens\":", u->n_prompt, out);
	put_number(",\"input_tokens_details\":{\"cached_tokens\":", u->n_cached, out);
	put_number(",\"cache_write_tokens\":", 0, out);
	put_number("},\"output_tokens\":", u->n_output, out);
	put_number(",\"output_tokens_details\":{\"reasoning_tokens\":", u->n_reasoning, out);
	put_number("},\"total_tokens\":", u->n_prompt + u->n_output, out);
	strbuf_putc(out, '}');
}

void respobject_put(const struct answer *a, const struct respobject *o, const struct strbuf *items, const struct strbuf *echo, struct strbuf *out)
{
	strbuf_puts(out, "{\"id\":");
	jsonout_text(out, a->id);
	put_number(",\"object\":\"response\",\"created_at\":", (uint64_t)a->cfg.created, out);
	strbuf_puts(out, ",\"status\":");
	jsonout_text(out, o->status);
	strbuf_puts(out, ",\"background\":false");
	put_error(o->error, out);
	strbuf_puts(out, o->is_cut ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}" : ",\"incomplete_details\":null");
	strbuf_puts(out, ",\"model\":");
	jsonout_text(out, a->model);
	strbuf_puts(out, ",\"output\":[");
	if (!items->overflow) strbuf_append(out, items->data, items->len);
	strbuf_puts(out, "],\"previous_response_id\":null,\"service_tier\":\"default\",\"store\":false,\"truncation\":\"disabled\"");
	strbuf_append(out, echo->data, echo->len);
	put_usage(o->usage, out);
	strbuf_putc(out, '}');
}
