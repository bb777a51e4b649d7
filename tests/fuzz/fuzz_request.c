/* fuzz_request.c - any bytes as the body of a request: all of its preparation (prep.c), for both endpoints, and what reading its parameters
 * gives.
 *
 * What is taken lies within the bounds that gen.c and submit.c rely on; what is refused has a status, and a text in UTF-8. Seeds:
 * corpus/request. */
#include "common/utf8.h"
#include "frontend/chat.h"
#include "frontend/jsonread.h"
#include "frontend/prep.h"
#include "frontend/stopstr.h"
#include "tests/support/tokjson.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LEN_MAX 4096

static const char TEMPLATE[] =
	"{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
	"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
	"{{ c.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{{ documents or '' }}{{ reasoning_effort }}"
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static const struct api *desk(void)
{
	static char name[] = "m", *names[] = {name};
	static struct config config;
	static struct api api;
	struct errbuf err;
	json_t *tokens;

	if (api.config) return &api;
	config_init(&config);
	CHECK(config_set(&config, "trust-request-chat-template", "true", &err) == ST_OK);
	CHECK(config_set(&config, "max-grammar-bytes", "65536", &err) == ST_OK);
	tokens = json_pack("{s:s,s:s}", "bos_token", "<|im_start|>", "eos_token", "<|im_end|>");
	CHECK(chat_new(&api.chat, TEMPLATE, strlen(TEMPLATE), tokens, &err) == ST_OK);
	json_decref(tokens);
	api.tokenizer = tokjson_load("tokenizer/files/smollm2/tokenizer.json", "<|im_start|>", "<|im_end|>");
	CHECK(api.tokenizer);
	api.token_bytes_max = 128;
	api.names = names;
	api.n_names = 1;
	api.config = &config;
	return &api;
}

static void check_params(const struct params *p)
{
	CHECK(p->temperature >= 0 && p->temperature <= 100 && p->top_p > 0 && p->top_p <= 1 && p->min_p >= 0 && p->min_p <= 1);
	CHECK((float)p->top_p > 0 && p->top_k >= 0 && p->output_max >= 0 && p->output_min >= 0);
	CHECK(p->n_logprobs >= PARAMS_NO_LOGPROBS && p->n_logprobs <= LIMIT_TOP_LOGPROBS);
	CHECK(p->n_prompt_logprobs >= PARAMS_NO_LOGPROBS && p->n_prompt_logprobs <= LIMIT_TOP_LOGPROBS);
	CHECK(p->n_stop_ids <= PARAMS_STOP_IDS_MAX && p->cache_salt_len <= LIMIT_SALT);
	CHECK(!p->stop || json_is_string(p->stop) || json_array_size(p->stop) <= STOPSTR_MAX);
	CHECK(p->n >= 1 && p->best_of >= p->n && p->best_of <= LIMIT_CHOICES && !(p->stream && p->best_of > p->n));
	CHECK((float)p->repetition_penalty > 0 && p->presence_penalty >= -2 && p->presence_penalty <= 2);
	CHECK(p->frequency_penalty >= -2 && p->frequency_penalty <= 2);
	CHECK(json_object_size(p->logit_bias) <= LIMIT_BIAS && json_array_size(p->allowed_ids) <= LIMIT_ALLOWED);
	CHECK((p->format == PARAMS_FORMAT_ANY) == (p->format_at == NULL));
	CHECK(!(p->continue_final && p->add_generation_prompt));
}

static void check_error(const struct apierr *e)
{
	size_t n = strlen(e->message);

	CHECK((e->status == 400 || e->status == 404) && n > 0 && utf8_valid_len(e->message, n) == n);
}

static void prepare(const uint8_t *data, size_t size, enum params_endpoint where)
{
	static const struct endpoint text = {.params = PARAMS_TEXT}, chat = {.params = PARAMS_CHAT};
	struct prep p = {.api = desk(), .endpoint = where == PARAMS_TEXT ? &text : &chat, .len_max = LEN_MAX};
	size_t i;

	strbuf_init(&p.bytes, GIB);
	strbuf_append(&p.bytes, data, size);
	prep_run(&p);
	if (p.error.status) {
		check_error(&p.error);
	} else {
		check_params(&p.params);
		CHECK(p.n_prompts > 0 && p.n_prompts * (size_t)p.params.best_of <= LIMIT_CHOICES);
		for (i = 0; i < p.n_prompts; i++) CHECK(p.prompts[i].ids.len > 0 && p.prompts[i].ids.len < LEN_MAX);
		CHECK(p.grammar.len <= LIMIT_GRAMMAR_BYTES);
	}
	prep_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	prepare(data, size, PARAMS_TEXT);
	prepare(data, size, PARAMS_CHAT);
	return 0;
}
