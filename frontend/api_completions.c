/* api_completions.c - POST /v1/completions: texts, or token ids, to be continued. */
#include "frontend/answer.h"
#include "frontend/api.h"
#include "frontend/endpoint.h"
#include "frontend/gen.h"

const struct endpoint ENDPOINT_TEXT = {.params = PARAMS_TEXT, .shape = &ANSWER_TEXT};

void api_completions(struct api *a, struct http_request *r)
{
	gen_serve(a, r, &ENDPOINT_TEXT);
}
