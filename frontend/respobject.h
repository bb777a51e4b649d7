/* respobject.h - the response object of the Responses API: the document, and the frame of a stream's first and last events. */
#ifndef SLUICE_RESPOBJECT_H
#define SLUICE_RESPOBJECT_H

#include "common/base.h"
#include "frontend/answer.h"

struct gendefaults;

struct respobject {
	const char *status;
	bool is_cut;                       /* by max_output_tokens */
	const struct answer_usage *usage;  /* NULL: not known yet */
	const struct apierr *error;        /* NULL: none */
};

/* items: the output's items, joined by commas. echo: from respobject_echo(). */
void respobject_put(const struct answer *a, const struct respobject *o, const struct strbuf *items, const struct strbuf *echo, struct strbuf *out);

/* The members that repeat the request, with OpenAI's defaults for what it does not say, or the model's (d; NULL: it has none). */
void respobject_echo(const json_t *request, const struct gendefaults *d, struct strbuf *out);

#endif
