/* test_params.c - every parameter of both endpoints: what is taken, what is refused, and in which words. */
#include "common/jsonbig.h"
#include "frontend/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define C PARAMS_CHAT
#define T PARAMS_TEXT
#define B (PARAMS_CHAT | PARAMS_TEXT)

#define BIAS "`logit_bias` must be an object of at most 4096 token ids with a number from -100 to 100 each."
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

static const struct row {
	int where;
	const char *body;    /* without the braces */
	const char *param;   /* NULL: taken */
	const char *message;
} rows[] = {
	{B, "", NULL, NULL},
	/* null is "not given", unknown is ignored */
	{C, "\"max_tokens\":null,\"temperature\":null,\"stop\":null,\"tools\":null,\"tool_choice\":null,\"logit_bias\":null,\"n\":null,\"seed\":null,"
	    "\"response_format\":null,\"stream_options\":null,\"logprobs\":null,\"stream\":null", NULL, NULL},
	{B, "\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":false,\"parallel_tool_calls\":null,\"some_unknown_field\":{\"x\":[1,null]}", NULL, NULL},

	{B, "\"model\":\"m\"", NULL, NULL},
	{B, "\"model\":1", "model", "`model` must be a string."},
	{B, "\"max_tokens\":1", NULL, NULL},
	{B, "\"max_tokens\":9223372036854775807", NULL, NULL},
	{B, "\"max_tokens\":5.0", NULL, NULL},
	{B, "\"max_tokens\":0", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_tokens\":-1", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_tokens\":2.5", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_tokens\":\"5\"", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_tokens\":true", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_tokens\":[1]", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_tokens\":1e300", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"max_completion_tokens\":0", "max_completion_tokens", "`max_completion_tokens` must be a whole number of at least 1."},
	{B, "\"min_tokens\":0", NULL, NULL},
	{B, "\"min_tokens\":-1", "min_tokens", "`min_tokens` must be a whole number of at least 0."},
	{B, "\"min_tokens\":5,\"max_tokens\":4", "min_tokens", "`min_tokens` (5) must not be greater than `max_tokens` (4)."},
	{B, "\"temperature\":0", NULL, NULL},
	{B, "\"temperature\":1e-5", NULL, NULL},
	{B, "\"temperature\":100", NULL, NULL},
	{B, "\"temperature\":-1", "temperature", "`temperature` must be a number from 0 to 100."},
	{B, "\"temperature\":-1e-9", "temperature", "`temperature` must be a number from 0 to 100."},
	{B, "\"temperature\":101", "temperature", "`temperature` must be a number from 0 to 100."},
	{B, "\"temperature\":1e308", "temperature", "`temperature` must be a number from 0 to 100."},
	{B, "\"temperature\":\"hot\"", "temperature", "`temperature` must be a number from 0 to 100."},
	{B, "\"temperature\":true", "temperature", "`temperature` must be a number from 0 to 100."},
	{B, "\"top_p\":1", NULL, NULL},
	{B, "\"top_p\":1e-9", NULL, NULL},
	{B, "\"top_p\":0", "top_p", "`top_p` must be a number above 0 and at most 1."},
	{B, "\"top_p\":-0.1", "top_p", "`top_p` must be a number above 0 and at most 1."},
	{B, "\"top_p\":1.5", "top_p", "`top_p` must be a number above 0 and at most 1."},
	{B, "\"top_p\":\"x\"", "top_p", "`top_p` must be a number above 0 and at most 1."},
	{B, "\"top_k\":-1", NULL, NULL},
	{B, "\"top_k\":0", NULL, NULL},
	{B, "\"top_k\":1000000000", NULL, NULL},
	{B, "\"top_k\":-2", "top_k", "`top_k` must be a whole number of at least 1, or 0 or -1 to switch it off."},
	{B, "\"top_k\":1.5", "top_k", "`top_k` must be a whole number of at least 1, or 0 or -1 to switch it off."},
	{B, "\"min_p\":0.5", NULL, NULL},
	{B, "\"min_p\":2", "min_p", "`min_p` must be a number from 0 to 1."},
	{B, "\"seed\":-9223372036854775808", NULL, NULL},
	{B, "\"seed\":9223372036854775807", NULL, NULL},
	{B, "\"seed\":\"a\"", "seed", "`seed` must be a whole number of 64 bits."},
	{B, "\"seed\":1.5", "seed", "`seed` must be a whole number of 64 bits."},
	{B, "\"priority\":-7", NULL, NULL},
	{B, "\"priority\":3000000000", "priority", "`priority` must be a whole number of 32 bits."},
	{B, "\"cache_salt\":\"x\"", NULL, NULL},
	{B, "\"cache_salt\":\"\"", "cache_salt", "`cache_salt` must be a string of 1 to 256 bytes."},
	{B, "\"stop\":\"x\"", NULL, NULL},
	{B, "\"stop\":[]", NULL, NULL},
	{B, "\"stop\":[\"x\",\"yy\"]", NULL, NULL},
	{B, "\"stop\":\"\"", "stop", "`stop` must be a string or at most 64 strings, each of 1 to 1024 bytes."},
	{B, "\"stop\":[\"a\",\"\"]", "stop", "`stop` must be a string or at most 64 strings, each of 1 to 1024 bytes."},
	{B, "\"stop\":5", "stop", "`stop` must be a string or at most 64 strings, each of 1 to 1024 bytes."},
	{B, "\"stop\":[5]", "stop", "`stop` must be a string or at most 64 strings, each of 1 to 1024 bytes."},
	{B, "\"stop_token_ids\":[0,7]", NULL, NULL},
	{B, "\"stop_token_ids\":[-1]", "stop_token_ids", "`stop_token_ids` must be a list of at most 112 token ids."},
	{B, "\"stop_token_ids\":7", "stop_token_ids", "`stop_token_ids` must be a list of at most 112 token ids."},
	{B, "\"ignore_eos\":true", NULL, NULL},
	{B, "\"ignore_eos\":1", "ignore_eos", "`ignore_eos` must be true or false."},
	{B, "\"stream\":\"yes\"", "stream", "`stream` must be true or false."},
	{B, "\"stream_options\":{\"include_usage\":true},\"stream\":true", NULL, NULL},
	{B, "\"stream_options\":{},\"stream\":true", NULL, NULL},
	{B, "\"stream_options\":{\"include_usage\":true}", "stream_options", "`stream_options` is only allowed when `stream` is true."},
	{B, "\"stream_options\":{\"include_usage\":1},\"stream\":true", "stream_options.include_usage",
	 "`stream_options.include_usage` must be true or false."},
	{B, "\"stream_options\":{\"continuous_usage_stats\":true},\"stream\":true", NULL, NULL},
	{B, "\"stream_options\":{\"continuous_usage_stats\":3},\"stream\":true", "stream_options.continuous_usage_stats",
	 "`stream_options.continuous_usage_stats` must be true or false."},
	{B, "\"stream_options\":1,\"stream\":true", "stream_options", "`stream_options` must be an object."},
	{T, "\"logprobs\":0", NULL, NULL},
	{T, "\"logprobs\":20", NULL, NULL},
	{T, "\"logprobs\":21", "logprobs", "`logprobs` must be a whole number from 0 to 20."},
	{T, "\"logprobs\":-1", "logprobs", "`logprobs` must be a whole number from 0 to 20."},
	{T, "\"logprobs\":true", "logprobs", "`logprobs` must be a whole number from 0 to 20."},
	{C, "\"logprobs\":true,\"top_logprobs\":20", NULL, NULL},
	{C, "\"logprobs\":true", NULL, NULL},
	{C, "\"top_logprobs\":0", NULL, NULL},
	{C, "\"logprobs\":5", "logprobs", "`logprobs` must be true or false."},
	{C, "\"top_logprobs\":5", "top_logprobs", "`top_logprobs` needs `logprobs` to be true."},
	{C, "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "`top_logprobs` must be a whole number from 0 to 20."},
	{B, "\"return_token_ids\":true", NULL, NULL},

	{B, "\"return_tokens_as_token_ids\":true", NULL, NULL},
	{B, "\"prompt_logprobs\":0", NULL, NULL},
	{B, "\"prompt_logprobs\":20", NULL, NULL},
	{B, "\"prompt_logprobs\":false", NULL, NULL},
	{B, "\"prompt_logprobs\":21", "prompt_logprobs", "`prompt_logprobs` must be a whole number from 0 to 20."},
	{B, "\"prompt_logprobs\":-1", "prompt_logprobs", "`prompt_logprobs` must be a whole number from 0 to 20."},
	{B, "\"prompt_logprobs\":true", "prompt_logprobs", "`prompt_logprobs` must be a whole number from 0 to 20."},
	{B, "\"prompt_logprobs\":1,\"stream\":true", "prompt_logprobs", "`prompt_logprobs` are not available when `stream` is true."},
	{B, "\"echo\":true", NULL, NULL},
	{B, "\"echo\":\"x\"", "echo", "`echo` must be true or false."},
	{B, "\"truncate_prompt_tokens\":1", NULL, NULL},
	{B, "\"truncate_prompt_tokens\":-1", NULL, NULL},
	{B, "\"truncate_prompt_tokens\":0", "truncate_prompt_tokens", "`truncate_prompt_tokens` must be a whole number of at least 1, or -1 for what fits."},
	{B, "\"truncate_prompt_tokens\":-2", "truncate_prompt_tokens", "`truncate_prompt_tokens` must be a whole number of at least 1, or -1 for what fits."},
	{B, "\"add_special_tokens\":true", NULL, NULL},

	/* choices */
	{B, "\"n\":1", NULL, NULL},
	{B, "\"n\":128", NULL, NULL},
	{B, "\"n\":2.0", NULL, NULL},
	{B, "\"n\":0", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":-1", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":129", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":1000000000000", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":\"2\"", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":2,\"best_of\":3", NULL, NULL},
	{B, "\"best_of\":1000000", "best_of", "`best_of` must be a whole number from 1 to 128."},
	{B, "\"n\":3,\"best_of\":2", "best_of", "`best_of` (2) must not be less than `n` (3)."},
	{B, "\"n\":2,\"best_of\":2,\"stream\":true", NULL, NULL},
	{B, "\"n\":2,\"best_of\":3,\"stream\":true", "best_of",
	 "`best_of` greater than `n` is not possible with `stream`: the best are known at the end only."},

	/* penalties and bias */
	{B, "\"presence_penalty\":0,\"frequency_penalty\":0.0,\"repetition_penalty\":1", NULL, NULL},
	{B, "\"presence_penalty\":-2,\"frequency_penalty\":2,\"repetition_penalty\":0.5", NULL, NULL},
	{B, "\"presence_penalty\":1e30", "presence_penalty", "`presence_penalty` must be a number from -2 to 2."},
	{B, "\"presence_penalty\":\"x\"", "presence_penalty", "`presence_penalty` must be a number from -2 to 2."},
	{B, "\"frequency_penalty\":-2.001", "frequency_penalty", "`frequency_penalty` must be a number from -2 to 2."},
	{B, "\"repetition_penalty\":0", "repetition_penalty", "`repetition_penalty` must be a number above 0 (1e-6 to 1e6)."},
	{B, "\"repetition_penalty\":-1", "repetition_penalty", "`repetition_penalty` must be a number above 0 (1e-6 to 1e6)."},
	{B, "\"repeat_penalty\":0", "repeat_penalty", "`repeat_penalty` must be a number above 0 (1e-6 to 1e6)."},
	{B, "\"logit_bias\":{}", NULL, NULL},
	{B, "\"logit_bias\":{\"1\":2,\"0\":-100,\"50000\":100.0}", NULL, NULL},
	{B, "\"logit_bias\":{\"1\":101}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"1\":\"2\"}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"1\":null}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"x\":1}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"-1\":1}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"01\":1}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"\":1}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"1.5\":1}", "logit_bias", BIAS},
	{B, "\"logit_bias\":{\"99999999999999999999\":1}", "logit_bias", BIAS},
	{B, "\"logit_bias\":[1]", "logit_bias", BIAS},
	{B, "\"allowed_token_ids\":[1,2]", NULL, NULL},
	{B, "\"allowed_token_ids\":[]", "allowed_token_ids", "`allowed_token_ids` must be a list of at most 262144 token ids, not empty."},
	{B, "\"allowed_token_ids\":[\"a\"]", "allowed_token_ids", "`allowed_token_ids` must be a list of at most 262144 token ids, not empty."},
	{B, "\"allowed_token_ids\":[-1]", "allowed_token_ids", "`allowed_token_ids` must be a list of at most 262144 token ids, not empty."},
	{B, "\"allowed_token_ids\":{}", "allowed_token_ids", "`allowed_token_ids` must be a list of at most 262144 token ids, not empty."},

	/* chats */
	{C, "\"add_generation_prompt\":false", NULL, NULL},
	{C, "\"continue_final_message\":true", NULL, NULL},
	{C, "\"continue_final_message\":true,\"add_generation_prompt\":false", NULL, NULL},
	{C, "\"continue_final_message\":true,\"add_generation_prompt\":true", "continue_final_message",
	 "Cannot set both `continue_final_message` and `add_generation_prompt` to True."},
	{C, "\"include_reasoning\":false", NULL, NULL},
	{C, "\"reasoning_effort\":\"high\"", NULL, NULL},
	{C, "\"reasoning_effort\":\"huge\"", "reasoning_effort",
	 "`reasoning_effort` must be `none`, `minimal`, `low`, `medium`, `high` or `xhigh`."},
	{C, "\"reasoning_effort\":5", "reasoning_effort", "`reasoning_effort` must be `none`, `minimal`, `low`, `medium`, `high` or `xhigh`."},
	{C, "\"documents\":[{\"title\":\"a\",\"text\":\"b\"}]", NULL, NULL},
	{C, "\"documents\":[5]", "documents", "`documents` must be a list of objects."},
	{C, "\"documents\":{}", "documents", "`documents` must be a list of objects."},
	{C, "\"chat_template_kwargs\":{\"enable_thinking\":false}", NULL, NULL},
	{C, "\"chat_template_kwargs\":[]", "chat_template_kwargs", "`chat_template_kwargs` must be an object."},
	{C, "\"chat_template\":\"{{ 1 }}\"", NULL, NULL}, /* whether it is allowed is the server's option */
	{C, "\"chat_template\":5", "chat_template", "`chat_template` must be a string."},
	{C, "\"modalities\":[\"text\"]", NULL, NULL},
	{C, "\"modalities\":[\"text\",\"audio\"]", "modalities", "`modalities` other than [\"text\"] is not supported yet."},

	/* the output's form */
	{B, "\"response_format\":{\"type\":\"text\"}", NULL, NULL},
	{B, "\"response_format\":{\"type\":\"json_object\"}", NULL, NULL},
	{B, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{},\"strict\":true}}", NULL, NULL},
	{B, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}", "response_format.json_schema.schema",
	 "`response_format.json_schema.schema` must be a JSON schema."},
	{B, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":5}}", "response_format.json_schema.schema",
	 "`response_format.json_schema.schema` must be a JSON schema."},
	{B, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":5,\"schema\":{}}}", "response_format.json_schema.name",
	 "`response_format.json_schema.name` must be a string."},
	{B, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":1,\"schema\":{}}}", "response_format.json_schema.strict",
	 "`response_format.json_schema.strict` must be true or false."},
	{B, "\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema",
	 "`response_format.json_schema` must be an object with `name` and `schema`."},
	{B, "\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"object\"}}", NULL, NULL},
	{B, "\"response_format\":{\"type\":\"structural_tag\"}", "response_format", "`response_format` of type `structural_tag` is not supported."},
	{B, "\"response_format\":{\"type\":\"nosuch\"}", "response_format.type",
	 "`response_format.type` must be `text`, `json_object` or `json_schema`."},
	{B, "\"response_format\":{\"type\":5}", "response_format", "`response_format` must be an object with a `type`."},
	{B, "\"response_format\":{}", "response_format", "`response_format` must be an object with a `type`."},
	{B, "\"response_format\":\"json\"", "response_format", "`response_format` must be an object with a `type`."},
	{B, "\"guided_json\":{}", NULL, NULL},
	{B, "\"guided_json\":\"{}\"", NULL, NULL},
	{B, "\"guided_json\":[]", "guided_json", "`guided_json` must be a JSON schema."},
	{B, "\"guided_regex\":\"[\"", NULL, NULL}, /* the compiler's business */
	{B, "\"guided_regex\":\"\"", NULL, NULL}, /* nothing, as llama.cpp's clients send it */
	{B, "\"guided_regex\":{}", "guided_regex", "`guided_regex` must be a regular expression, not empty."},
	{B, "\"guided_choice\":[\"a\",\"b\"]", NULL, NULL},
	{B, "\"guided_choice\":[]", "guided_choice", "`guided_choice` must be a list of texts, not empty."},
	{B, "\"guided_choice\":[1]", "guided_choice", "`guided_choice` must be a list of texts, not empty."},
	{B, "\"guided_choice\":\"a\"", "guided_choice", "`guided_choice` must be a list of texts, not empty."},
	{B, "\"guided_grammar\":\"root ::= x\"", NULL, NULL},
	{B, "\"grammar\":\"\"", NULL, NULL},
	{B, "\"grammar\":[]", "grammar", "`grammar` must be a grammar, not empty."},
	{B, "\"json_schema\":{}", NULL, NULL},
	{B, "\"regex\":\"a\"", NULL, NULL},
	{B, "\"ebnf\":\"a\"", NULL, NULL},
	{B, "\"structured_outputs\":{}", NULL, NULL},
	{B, "\"structured_outputs\":{\"json\":{}}", NULL, NULL},
	{B, "\"structured_outputs\":{\"regex\":\"a\",\"json\":null}", NULL, NULL},
	{B, "\"structured_outputs\":{\"choice\":[\"a\"]}", NULL, NULL},
	{B, "\"structured_outputs\":{\"grammar\":\"a\"}", NULL, NULL},
	{B, "\"structured_outputs\":{\"json_object\":true}", NULL, NULL},
	{B, "\"structured_outputs\":{\"json_object\":false}", NULL, NULL},
	{B, "\"structured_outputs\":{\"json_object\":\"x\"}", "json_object", "`json_object` must be true or false."},
	{B, "\"structured_outputs\":{\"choice\":[]}", "structured_outputs.choice", "`structured_outputs.choice` must be a list of texts, not empty."},
	{B, "\"structured_outputs\":{\"structural_tag\":\"x\"}", "structured_outputs.structural_tag",
	 "`structured_outputs.structural_tag` is not supported yet."},
	{B, "\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true}", NULL, NULL},
	{B, "\"structured_outputs\":{\"whitespace_pattern\":\" \"}", "structured_outputs.whitespace_pattern",
	 "`structured_outputs.whitespace_pattern` is not supported yet."},
	{B, "\"structured_outputs\":5", "structured_outputs", "`structured_outputs` must be an object."},
	{B, "\"structured_outputs\":{\"json\":{},\"regex\":\"a\"}", "structured_outputs.regex",
	 "`structured_outputs.regex` cannot go together with `structured_outputs.json`: there is one way at most to constrain the output."},
	{B, "\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"", "guided_regex",
	 "`guided_regex` cannot go together with `response_format`: there is one way at most to constrain the output."},
	{B, "\"response_format\":{\"type\":\"text\"},\"guided_regex\":\"a\"", NULL, NULL},
	{C, "\"tools\":[" TOOL "],\"tool_choice\":\"required\",\"guided_regex\":\"a\"", "tool_choice",
	 "`tool_choice` that demands a call cannot go together with `guided_regex`."},
	{C, "\"tools\":[" TOOL "],\"guided_regex\":\"a\"", NULL, NULL},

	/* integers beyond 64 bits are no texts */
	{B, "\"model\":18446744073709551621", "model", "`model` must be a string."},
	{B, "\"stop\":18446744073709551621", "stop", "`stop` must be a string or at most 64 strings, each of 1 to 1024 bytes."},
	{B, "\"cache_salt\":18446744073709551621", "cache_salt", "`cache_salt` must be a string of 1 to 256 bytes."},
	{B, "\"max_tokens\":18446744073709551621", "max_tokens", "`max_tokens` must be a whole number of at least 1."},
	{B, "\"seed\":18446744073709551621", "seed", "`seed` must be a whole number of 64 bits."},
	{B, "\"guided_regex\":18446744073709551621", "guided_regex", "`guided_regex` must be a regular expression, not empty."},

	/* known, not built */
	{C, "\"tools\":[]", NULL, NULL},
	{C, "\"functions\":[{}]", "functions", "`functions` is not supported yet."},
	{C, "\"function_call\":\"auto\"", NULL, NULL},
	{C, "\"function_call\":{\"name\":\"f\"}", "function_call", "`function_call` is not supported yet."},
	{T, "\"suffix\":\"\"", NULL, NULL},
	{T, "\"suffix\":\"x\"", "suffix", "`suffix` is not supported yet."},
	{B, "\"prompt_embeds\":\"x\"", "prompt_embeds", "`prompt_embeds` is not supported yet."},
	{B, "\"use_beam_search\":true", "use_beam_search", "`use_beam_search` is not supported yet."},
	{B, "\"bad_words\":[\"x\"]", "bad_words", "`bad_words` is not supported yet."},
	{B, "\"guided_whitespace_pattern\":\"x\"", "guided_whitespace_pattern", "`guided_whitespace_pattern` is not supported yet."},
	{C, "\"audio\":{}", "audio", "`audio` is not supported yet."},
};

static bool read(int where, const char *body, struct params *p, struct apierr *e, json_t **root)
{
	json_error_t err;
	char text[8192];

	snprintf(text, sizeof(text), "{%s}", body);
	*root = jsonbig_load(text, strlen(text), 0, &err);
	if (!*root) fail_msg("not JSON: %s", text);
	memset(e, 0, sizeof(*e));
	return params_read(p, (enum params_endpoint)where, *root, NULL, e);
}

static void models_defaults_are_for_what_a_request_does_not_say(void **state)
{
	struct gendefaults d = {.temperature = 0.6, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.1, .top_k = 20, .output_max = 64};
	json_t *root = json_pack("{s:f,s:n,s:i,s:i}", "temperature", 0.0, "top_p", "top_k", -1, "max_tokens", 1000);
	struct params p;
	struct apierr e = {0};

	assert_true(params_read(&p, PARAMS_CHAT, root, &d, &e));
	assert_true(p.temperature == 0 && p.top_p == 0.9 && p.top_k == 0 && p.min_p == 0.1 && p.repetition_penalty == 1.1);
	assert_int_equal(p.output_max, 1000);
	assert_int_equal(p.output_bound, 64); /* of every request */
	json_decref(root);
}

static void test_rows(void **state)
{
	struct apierr e;
	struct params p;
	json_t *root;
	size_t i;
	int w;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		for (w = 1; w <= 2; w++) {
			bool taken;

			if (!(rows[i].where & w)) continue;
			taken = read(w, rows[i].body, &p, &e, &root);
			if (taken != (rows[i].param == NULL)) fail_msg("%s: %s", rows[i].body, taken ? "taken" : e.message);
			if (!taken && (strcmp(e.param, rows[i].param) != 0 || strcmp(e.message, rows[i].message) != 0 || e.status != 400))
				fail_msg("%s: %d %s %s", rows[i].body, e.status, e.param, e.message);
			json_decref(root);
		}
	}
}

static void test_values(void **state)
{
	struct apierr e;
	struct params p;
	json_t *root;

	assert_true(read(PARAMS_CHAT, "", &p, &e, &root));
	assert_true(p.temperature == 1 && p.top_p == 1 && p.min_p == 0 && p.top_k == 0);
	assert_true(p.output_max == 0 && p.output_min == 0 && !p.has_seed && p.n_logprobs == PARAMS_NO_LOGPROBS);
	assert_true(p.skip_special && p.add_generation_prompt && !p.add_special_tokens && !p.stream && !p.include_usage);
	assert_true(p.n == 1 && p.best_of == 1 && p.repetition_penalty == 1 && p.presence_penalty == 0 && p.frequency_penalty == 0);
	assert_true(!p.logit_bias && !p.allowed_ids && p.n_prompt_logprobs == PARAMS_NO_LOGPROBS && p.include_reasoning && !p.continue_final);
	assert_true(p.format == PARAMS_FORMAT_ANY && !p.tools.tools && !p.documents && !p.chat_kwargs && !p.chat_template && !p.echo);
	assert_true(!p.messages && !p.prompt && !p.stop && !p.model && !p.cache_salt);
	json_decref(root);

	assert_true(read(PARAMS_CHAT, "\"max_completion_tokens\":7,\"max_tokens\":9,\"seed\":-1,\"top_k\":-1,\"stop\":[\"a\"],"
				      "\"stop_token_ids\":[3,4],\"logprobs\":true,\"top_logprobs\":5,\"stream_options\":{\"include_usage\":true},"
				      "\"stream\":true,\"messages\":[1],\"model\":\"m\",\"cache_salt\":\"s\",\"ignore_eos\":true,\"priority\":-2",
			 &p, &e, &root));
	assert_int_equal(p.output_max, 7); /* the newer name wins */
	assert_true(p.has_seed && p.seed == -1 && p.top_k == 0 && p.n_logprobs == 5 && p.stream && p.include_usage && p.ignore_eos);
	assert_true(p.n_stop_ids == 2 && p.stop_ids[0] == 3 && p.stop_ids[1] == 4 && p.priority == -2);
	assert_true(json_array_size(p.stop) == 1 && json_array_size(p.messages) == 1);
	assert_true(p.model_len == 1 && p.cache_salt_len == 1);
	json_decref(root);

	assert_true(read(PARAMS_TEXT, "\"logprobs\":0,\"prompt\":\"x\"", &p, &e, &root));
	assert_true(p.n_logprobs == 0 && json_is_string(p.prompt));
	json_decref(root);
	assert_true(p.add_special_tokens);
	assert_true(read(PARAMS_CHAT, "\"logprobs\":false", &p, &e, &root));
	assert_int_equal(p.n_logprobs, PARAMS_NO_LOGPROBS);
	json_decref(root);
}

static void test_values_of_the_output(void **state)
{
	static const struct {
		const char *body;
		enum params_format format;
		json_type type; /* of the spec */
	} cases[] = {
		{"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{}}}", PARAMS_FORMAT_SCHEMA, JSON_OBJECT},
		{"\"response_format\":{\"type\":\"json_object\",\"schema\":{}}", PARAMS_FORMAT_SCHEMA, JSON_OBJECT},
		{"\"guided_json\":\"{}\"", PARAMS_FORMAT_SCHEMA, JSON_STRING},
		{"\"json_schema\":true", PARAMS_FORMAT_SCHEMA, JSON_TRUE},
		{"\"guided_choice\":[\"a\"]", PARAMS_FORMAT_CHOICE, JSON_ARRAY},
		{"\"structured_outputs\":{\"regex\":\"a\"}", PARAMS_FORMAT_REGEX, JSON_STRING},
		{"\"grammar\":\"root ::= x\"", PARAMS_FORMAT_EBNF, JSON_STRING},
	};
	struct apierr e;
	struct params p;
	json_t *root;
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		assert_true(read(PARAMS_TEXT, cases[i].body, &p, &e, &root));
		if (p.format != cases[i].format || json_typeof(p.format_spec) != cases[i].type || !p.format_at) fail_msg("%s", cases[i].body);
		json_decref(root);
	}
	assert_true(read(PARAMS_TEXT, "\"structured_outputs\":{\"json_object\":true,\"disable_any_whitespace\":true}", &p, &e, &root));
	assert_true(p.format == PARAMS_FORMAT_JSON_OBJECT && p.format_compact);
	json_decref(root);

	assert_true(read(PARAMS_CHAT, "\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}", &p, &e, &root));
	assert_true(!p.include_usage && !p.continuous_usage); /* as vLLM: only together with include_usage */
	json_decref(root);
	assert_true(read(PARAMS_CHAT, "\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true,\"include_usage\":true},\"n\":3,"
				      "\"repeat_penalty\":1.5,\"continue_final_message\":true,\"reasoning_effort\":\"low\"",
			 &p, &e, &root));
	assert_true(p.include_usage && p.continuous_usage && p.n == 3 && p.best_of == 3 && p.repetition_penalty == 1.5);
	assert_true(p.continue_final && !p.add_generation_prompt);
	assert_string_equal(p.reasoning_effort, "low");
	json_decref(root);
}

static void test_many_stops(void **state)
{
	json_t *root = json_object(), *list = json_array();
	struct apierr e = {0};
	struct params p;
	int i;

	json_object_set_new(root, "stop", list);
	for (i = 0; i < 64; i++) json_array_append_new(list, json_sprintf("s%d", i));
	assert_true(params_read(&p, PARAMS_TEXT, root, NULL, &e));
	json_array_append_new(list, json_string("one more"));
	assert_false(params_read(&p, PARAMS_TEXT, root, NULL, &e));
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(models_defaults_are_for_what_a_request_does_not_say),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_values_of_the_output),
		cmocka_unit_test(test_many_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
