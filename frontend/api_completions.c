/* api_completions.c - POST /v1/completions: a text, or token ids, to be continued.
 *
 * As with vLLM, control tokens that are written out in a text prompt are recognised: the caller of this endpoint writes the whole
 * prompt himself. A chat's messages never get this (api_chat.c). */
#include "frontend/api.h"
#include "frontend/gen.h"
#include "frontend/params.h"

/* prompt: text, [text], [ids], [[ids]]. */
static bool read_prompt(struct api *a, const json_t *body, const struct params *p, struct token_vec *out, struct apierr *e)
{
	const json_t *j = p->prompt;

	if (!j || json_is_null(j)) return apierr_set(e, 400, "prompt", "`prompt` is required.");
	if (json_is_array(j) && json_array_size(j) > 1 && !json_is_number(json_array_get(j, 0)))
		return apierr_set(e, 400, "prompt", "`prompt` with more than one prompt is not supported yet.");
	if (json_is_array(j) && json_array_size(j) == 1 && !json_is_number(json_array_get(j, 0))) j = json_array_get(j, 0);
	if (json_is_string(j)) {
		api_text_prompt(a, json_string_value(j), json_string_length(j), p->add_special_tokens, out);
		return true;
	}
	if (!json_is_array(j) || json_array_size(j) == 0)
		return apierr_set(e, 400, "prompt", "`prompt` must be a text or a list of token ids, not empty.");
	return api_token_list(a, "prompt", j, out, e);
}

void api_completions(struct api *a, struct http_request *r)
{
	gen_serve(a, r, PARAMS_TEXT, read_prompt);
}
