/* embed.h - a request for embeddings: inputs are read, each becomes a pooling request at the executor, their states become the answer.
 *
 * READING  on a thread or at once: JSON, parameters, token ids
 * RUNNING  every input is live at the executor
 * WRITING  on a thread or at once: vectors of length 1 as numbers or base64
 *
 * Ends exactly once: with all states, with the first error, or because the client is gone; what still runs then is cancelled. The
 * callbacks of live requests only record; embeds_step() goes on, once a loop pass. */
#ifndef SLUICE_EMBED_H
#define SLUICE_EMBED_H

#include "frontend/api.h"

#define EMBED_INPUTS_MAX 2048 /* OpenAI's limit */

/* Takes the request over. */
void embed_start(struct api *a, struct http_request *r);
void embeds_step(struct api *a, uint64_t now);
/* Every one that waits for the executor ends with this error at its next step. */
void embeds_fail(struct api *a, const struct apierr *why);

#endif
