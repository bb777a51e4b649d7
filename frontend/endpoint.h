/* endpoint.h - what tells the generating endpoints apart: how a request is read and how its answer looks. */
#ifndef SLUICE_ENDPOINT_H
#define SLUICE_ENDPOINT_H

#include "frontend/apierr.h"
#include "frontend/params.h"

#include <jansson.h>

struct answer_shape;
struct api;

struct endpoint {
	enum params_endpoint params;
	/* Turns a body into the one of /v1/chat/completions that asks the same; NULL: it is one. A new reference, or NULL and e set.
	 * Runs in any thread. */
	json_t *(*translate)(const json_t *body, struct apierr *e);
	const struct apierr_name *names;  /* with translate: what the client calls chat's parameters, for errors; NULL: the same */
	const struct answer_shape *shape; /* answer.h */
};

extern const struct endpoint ENDPOINT_CHAT, ENDPOINT_TEXT;          /* api_chat.c, api_completions.c */
extern const struct endpoint ENDPOINT_RESPONSES, ENDPOINT_MESSAGES; /* api_responses.c, api_messages.c */

#endif
