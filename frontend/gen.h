/* gen.h - a generation: the one link between a client's request, its live requests at the executor and its answer.
 *
 * A request has prompts, and each prompt choices: choice k of prompt i is number i * n + k in the answer, and a live request of its
 * own. It begins in gen_start(), all of it or nothing, and ends exactly once: when the last choice has ended (by the engine, a stop
 * string or a stop id), with the first error, or because the client is gone; what still runs then is cancelled at the executor
 * at once. With best_of > n, best_of choices run and the n whose tokens are likeliest on average are answered.
 * Callbacks only record; gens_step() writes, once a loop pass. A token that comes before the last one was written makes that one a chunk
 * in the connection's buffer.
 *
 * Back-pressure: a stream whose connection holds HTTP_STREAM_HIGH unsent bytes gets nothing more; what comes is kept in the answer
 * and becomes a few chunks when there is room. Nobody else waits. Bounded: a request whose answer holds more than GEN_HELD_MAX,
 * of a stream that is read too slowly or of a plain answer that is too large, ends with an error. */
#ifndef SLUICE_GEN_H
#define SLUICE_GEN_H

#include "frontend/api.h"
#include "frontend/prep.h"

struct gen;

#define GEN_COMMENT_NS (15 * NS_PER_S)    /* silence after which a stream gets a comment line */
#define GEN_BEGIN_NS (100 * NS_PER_MS)    /* headers go out with the executor's word, at the latest so much later */
#define GEN_HELD_MAX (24 * MIB)           /* unwritten text, ids and log-probabilities of a request; escaped and framed it fits CONN_OUT_MAX */
#define GEN_CHOICES_BYTES_MAX (256 * MIB) /* prompts and grammars of all choices: each is a request of its own, with its own copy */

/* The whole of a generating endpoint: the request is prepared (prep.h), then started, or answered with the first error. */
void gen_serve(struct api *a, struct http_request *r, const struct endpoint *endpoint);

/* Takes the request over: it is answered, now or later. Takes p, which has no error. */
void gen_start(struct api *a, struct http_request *r, struct prep *p);

/* Writes what is due. */
void gens_step(struct api *a, uint64_t now);
/* Comment lines for silent streams; about once a second. */
void gens_tick(struct api *a, uint64_t now);
/* Every one of them ends with this error at its next step: of a stream that has begun as its last event. */
void gens_fail(struct api *a, const struct apierr *why);
/* At the end of the process. */
void gens_release(struct api *a);

#endif
