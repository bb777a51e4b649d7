/* api_chat.c - POST /v1/chat/completions: messages, rendered by the model's own template. */
#include "frontend/answer.h"
#include "frontend/api.h"
#include "frontend/endpoint.h"
#include "frontend/gen.h"

const struct endpoint ENDPOINT_CHAT = {.params = PARAMS_CHAT, .shape = &ANSWER_CHAT};

void api_chat(struct api *a, struct http_request *r)
{
	gen_serve(a, r, &ENDPOINT_CHAT);
}
