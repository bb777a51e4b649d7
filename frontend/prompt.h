/* prompt.h - from what a client sent to the token ids that the model begins with.
 *
 * Runs in any thread: looks at the request and at what never changes (tokenizer, template, configuration). */
#ifndef SLUICE_PROMPT_H
#define SLUICE_PROMPT_H

#include "common/base.h"
#include "common/strbuf.h"
#include "frontend/api.h"
#include "frontend/stage.h"
#include "frontend/params.h"

struct prompt {
	struct token_vec ids;
	struct strbuf text; /* what it says: chat: as rendered; else with keep_text */
	struct strbuf echo; /* chat, with echo: the message that the answer goes on with */
};

/* How it is made. */
struct prompt_opts {
	const struct api *api;
	uint32_t ids_max;        /* the model's length: ids beyond it are not made, but ids.overflow is set */
	int64_t truncate;        /* >0: the last so many ids are kept; 0: no */
	bool add_special;        /* BOS where the model wants one */
	bool keep_text;          /* of what is not a chat */
	struct stages *stages;   /* how long it took; NULL: nobody asks */
	struct tokenizer_work *work; /* of this thread; NULL: none is kept */
};

void prompt_init(struct prompt *p, const struct prompt_opts *o);
void prompt_release(struct prompt *p);

/* A text, or a list of ids; name: the request's field, for errors. */
bool prompt_read_one(struct prompt *p, const struct prompt_opts *o, const json_t *j, const char *name, struct apierr *e) MUST_CHECK;

/* How many prompts `prompt` or `input` holds: a text, texts, ids, lists of ids. 0: e is set. */
size_t prompt_count(const json_t *j, const char *name, struct apierr *e);
/* The i-th of them. */
const json_t *prompt_get(const json_t *j, size_t i);

/* The messages of a chat request, rendered by the model's template. */
bool prompt_read_chat(struct prompt *p, const struct prompt_opts *o, const struct params *params, struct apierr *e) MUST_CHECK;

#endif
