/* apierr.h - errors for API clients: {"error":{"message","type","param","code"}}, as OpenAI's clients expect them, or under
 * /v1/messages {"type":"error","error":{"type","message"}}, as Anthropic's do. */
#ifndef SLUICE_APIERR_H
#define SLUICE_APIERR_H

#include "common/base.h"
#include "common/strbuf.h"

struct http_request;

#define APIERR_RETRY_MS 1000

/* What is wrong with a request: filled by whoever finds it, answered by apierr_answer(). */
struct apierr {
	int status;          /* HTTP; 0: nothing is wrong */
	char param[64];      /* "" when no single parameter is at fault */
	char message[1024];  /* UTF-8 */
	uint32_t retry_ms;   /* of 429 and 503: when to try again; 0: APIERR_RETRY_MS */
};

/* Sets the error (the first one stays) and returns false, so that a check writes `return apierr_set(...)`. param may be NULL. */
bool apierr_set(struct apierr *e, int status, const char *param, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* A parameter of another API and the one of /v1/chat/completions that it becomes. */
struct apierr_name {
	const char *chat, *own;
};

/* Lets an error speak of the client's parameters: chat's names, in param and in the message's backquotes, become the client's own ones.
 * names ends with a NULL; it may be NULL; the first that fits counts. */
void apierr_rename(struct apierr *e, const struct apierr_name *names);

/* The JSON object, in OpenAI's and in Anthropic's shape. */
void apierr_render(const struct apierr *e, struct strbuf *out);
void apierr_render_anthropic(const struct apierr *e, struct strbuf *out);
/* Answers the request with it, in the shape of its path. */
void apierr_answer(const struct apierr *e, struct http_request *r);
/* The two together, for one-line answers. extra: more header lines (short ones) or NULL. */
void apierr_send(struct http_request *r, int status, const char *extra, const char *message);

const char *apierr_type(int status);

#endif
