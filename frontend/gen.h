/* gen.h - a generation: the one link between a client's request, its live request at the executor and its answer.
 *
 * Begins in gen_start() and ends exactly once: by the engine (on_end), by a stop string or stop id, or because the client is gone
 * (cancelled at the executor at once). Callbacks only record; gens_step() writes, once a loop pass.
 *
 * Back-pressure: a stream whose connection holds HTTP_STREAM_HIGH unsent bytes gets nothing more; its text is kept raw in the answer
 * (a few bytes a token, bounded by max_tokens) and becomes one chunk when there is room. Nobody else waits. */
#ifndef SLUICE_GEN_H
#define SLUICE_GEN_H

#include "frontend/api.h"
#include "frontend/prep.h"

struct gen;

#define GEN_COMMENT_NS (15 * NS_PER_S)    /* silence after which a stream gets a comment line */
#define GEN_BEGIN_NS (100 * NS_PER_MS)    /* headers go out with the executor's word, at the latest so much later */

/* The whole of a generating endpoint: the request is prepared (prep.h), then started, or answered with the first error. */
void gen_serve(struct api *a, struct http_request *r, const struct endpoint *endpoint);

/* Takes the request over: it is answered, now or later. Takes p. */
void gen_start(struct api *a, struct http_request *r, struct prep *p);

/* For lives_out. */
bool gen_on_token(void *ctx, void *owner, const struct live_token *t);
void gen_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text);

/* Writes what is due. */
void gens_step(struct api *a, uint64_t now);
/* Comment lines for silent streams; about once a second. */
void gens_tick(struct api *a, uint64_t now);
/* At the end of the process. */
void gens_release(struct api *a);

#endif
