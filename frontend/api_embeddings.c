/* api_embeddings.c - POST /v1/embeddings: hidden states of the served model, pooled. */
#include "frontend/api.h"
#include "frontend/embed.h"

void api_embeddings(struct api *a, struct http_request *r)
{
	embed_start(a, r);
}
