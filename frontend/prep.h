/* prep.h - what happens to a generating request before it can start: JSON, parameters, prompts, grammar.
 *
 * prep_run() looks only at the request's bytes and at what does not change while the process serves (names, tokenizer, template,
 * configuration, the model's length), so it runs in any thread: small requests at once, in the loop; large ones, and those
 * with a grammar to compile, on libuv's thread pool (prep_start()), so that neither a body of megabytes nor one word of a million
 * characters holds the loop. Everything else of the frontend stays in the loop's thread. */
#ifndef SLUICE_PREP_H
#define SLUICE_PREP_H

#include "common/base.h"
#include "frontend/api.h"
#include "frontend/endpoint.h"
#include "frontend/offload.h"
#include "frontend/outparse.h"
#include "frontend/params.h"
#include "frontend/stage.h"

#define PREP_INLINE_BYTES (16 * KIB) /* bodies up to this are prepared in the loop: the worst of them (chats of hundreds of messages) take 2 ms */
#define PREP_SMALL_BYTES  (1 * KIB)  /* so many of them as come; of larger ones PREP_INLINE_BYTES together in a pass, or a crowd would hold the loop */

struct prep_prompt {
	struct token_vec ids;
	struct strbuf text; /* with echo: what goes in front of the answer: the prompt as text; chat: the last message */
};

struct prep {
	/* In. */
	const struct api *api;
	const struct endpoint *endpoint;
	uint32_t len_max; /* the model's length, prompt and output */
	uint64_t random;
	struct strbuf bytes; /* the request's body; released when it is parsed */
	struct tokenizer_work *work; /* of the loop's thread, there; else NULL */
	/* Out. */
	json_t *body;        /* as the client sent it */
	json_t *asked;       /* what params reads and borrows from: endpoint->translate(body), or body */
	struct params params;
	struct prep_prompt *prompts;
	size_t n_prompts;
	struct strbuf grammar; /* wire form; len 0: none */
	struct outparse_config parse;
	struct stages stages;  /* how long it took */
	struct strbuf shown;   /* with --max-log-len: the beginning of the first prompt */
	struct apierr error; /* status 0: all is well */

	/* prep.c's own. */
	bool is_parsed, is_large;
	struct offload_job job;
	void (*done)(struct api *a, struct http_request *r, struct prep *p);
};

/* Fills what is "out" from what is "in", or error. */
void prep_run(struct prep *p);
void prep_release(struct prep *p);

/* Takes the request's body, prepares it here or on a thread, then calls done(p) in the loop's thread, which takes p (prep_free()),
 * or never, when the client went away first or there was an error, which is answered. r's owner and on_gone are prep's until done is
 * called. */
void prep_start(struct api *a, struct http_request *r, const struct endpoint *endpoint, void (*done)(struct api *a, struct http_request *r, struct prep *p));
void prep_free(struct prep *p);

#endif
