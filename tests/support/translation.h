/* translation.h - checks an endpoint's translation of a request into one for chat. In all texts ' stands for ". */
#ifndef SLUICE_TRANSLATION_H
#define SLUICE_TRANSLATION_H

#include "common/base.h"
#include "frontend/endpoint.h"

struct translation_row {
	const char *body;
	const char *want;  /* the chat request, as JSON, whatever the order of its members; NULL: refused */
	const char *param; /* with what param, */
	const char *says;  /* and a part of the message; both in the client's words */
};

void translation_check(const struct endpoint *endpoint, const struct translation_row *rows, size_t n);

/* JSON with ' for "; ends the test when it is none. */
json_t *translation_json(const char *text);

#endif
