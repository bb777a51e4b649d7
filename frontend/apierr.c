/* apierr.c - see apierr.h. */
#include "frontend/apierr.h"

#include "common/utf8.h"
#include "frontend/http.h"
#include "frontend/jsonout.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool apierr_set(struct apierr *e, int status, const char *param, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (e->status) return false;
	e->status = status;
	snprintf(e->param, sizeof(e->param), "%s", param ? param : "");
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	n = strlen(e->message);
	if (n == sizeof(e->message) - 1) e->message[utf8_valid_len(e->message, n)] = 0; /* cut at a character's border */
	return false;
}

/* ---- names ---- */

/* A name ends where something else begins: `stop` is not in `stop_token_ids`, but in `stop[0]`. */
static bool name_is_at(const char *s, const char *name)
{
	size_t n = strlen(name);

	return strncmp(s, name, n) == 0 && (s[n] == 0 || s[n] == '`' || s[n] == '[' || s[n] == '.');
}

static const struct apierr_name *name_find(const struct apierr_name *names, const char *s)
{
	for (; names->chat; names++)
		if (name_is_at(s, names->chat)) return names;
	return NULL;
}

void apierr_rename(struct apierr *e, const struct apierr_name *names)
{
	const struct apierr_name *name;
	struct apierr renamed = {0};
	struct strbuf text;
	const char *p;

	if (!e->status || !names) return;
	strbuf_init(&text, 2 * sizeof(e->message));
	for (p = e->message; *p;) {
		strbuf_putc(&text, *p);
		if (*p++ != '`') continue;
		name = name_find(names, p);
		if (!name) continue;
		strbuf_puts(&text, name->own);
		p += strlen(name->chat);
	}
	name = name_find(names, e->param);
	if (name) (void)apierr_set(&renamed, e->status, name->own, "%s", text.data ? text.data : "");
	else (void)apierr_set(&renamed, e->status, e->param, "%s", text.data ? text.data : "");
	if (name) strncat(renamed.param, e->param + strlen(name->chat), sizeof(renamed.param) - 1 - strlen(renamed.param));
	renamed.retry_ms = e->retry_ms;
	*e = renamed;
	strbuf_release(&text);
}

const char *apierr_type(int status)
{
	if (status == 404) return "NotFoundError";
	if (status == 429) return "rate_limit_error";
	if (status == 504) return "timeout_error";
	if (status == 503) return "ServiceUnavailableError";
	if (status >= 500) return "InternalServerError";
	return "invalid_request_error";
}

void apierr_render(const struct apierr *e, struct strbuf *out)
{
	strbuf_puts(out, "{\"error\":{\"message\":");
	jsonout_text(out, e->message);
	strbuf_puts(out, ",\"type\":");
	jsonout_text(out, apierr_type(e->status));
	strbuf_puts(out, ",\"param\":");
	jsonout_text(out, e->param[0] ? e->param : NULL);
	strbuf_puts(out, ",\"code\":");
	strbuf_put_u64(out, (uint64_t)e->status);
	strbuf_puts(out, "}}");
}

static const char *apierr_type_anthropic(int status)
{
	switch (status) {
	case 401: return "authentication_error";
	case 403: return "permission_error";
	case 404: return "not_found_error";
	case 413: return "request_too_large";
	case 429: return "rate_limit_error";
	case 408:
	case 504: return "timeout_error";
	case 503: return "overloaded_error";
	default: return status >= 500 ? "api_error" : "invalid_request_error";
	}
}

void apierr_render_anthropic(const struct apierr *e, struct strbuf *out)
{
	strbuf_puts(out, "{\"type\":\"error\",\"error\":{\"type\":");
	jsonout_text(out, apierr_type_anthropic(e->status));
	strbuf_puts(out, ",\"message\":");
	jsonout_text(out, e->message);
	strbuf_puts(out, "}}");
}

static bool apierr_is_anthropic(const struct http_request *r)
{
	static const char path[] = "/v1/messages";

	/* No path: the head could not be read. */
	return r->path && strncmp(r->path, path, sizeof(path) - 1) == 0 && (r->path[sizeof(path) - 1] == 0 || r->path[sizeof(path) - 1] == '/');
}

/* When to try again: in seconds, as HTTP has it, and in milliseconds, which OpenAI's clients look for first. */
static void put_retry(const struct apierr *e, const struct http_request *r, char *out, size_t cap)
{
	uint32_t said = e->retry_ms ? e->retry_ms : r->admission.retry_ms, ms = said ? said : APIERR_RETRY_MS;

	*out = 0;
	if (e->status == 429 || e->status == 503) snprintf(out, cap, "Retry-After: %u\r\nretry-after-ms: %u\r\nAccess-Control-Expose-Headers: Retry-After, retry-after-ms\r\n",
							  (ms + 999) / 1000, ms);
}

static void answer_with(const struct apierr *e, struct http_request *r, const char *extra)
{
	char headers[256];
	struct strbuf body;
	size_t n;

	put_retry(e, r, headers, sizeof(headers));
	n = strlen(headers);
	snprintf(headers + n, sizeof(headers) - n, "%s", extra ? extra : "");

	strbuf_init(&body, 16 * KIB);
	if (apierr_is_anthropic(r)) apierr_render_anthropic(e, &body);
	else apierr_render(e, &body);
	http_answer(r, e->status, "application/json", headers, body.data, body.len);
	strbuf_release(&body);
}

void apierr_answer(const struct apierr *e, struct http_request *r)
{
	answer_with(e, r, NULL);
}

void apierr_send(struct http_request *r, int status, const char *extra, const char *message)
{
	struct apierr e = {0};

	(void)apierr_set(&e, status, NULL, "%s", message);
	answer_with(&e, r, extra);
}
