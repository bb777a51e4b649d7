/* test_params.c - every parameter of both endpoints: what is taken, what is refused, and in which words. */
#include "frontend/params.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define C PARAMS_CHAT
#define T PARAMS_TEXT
#define B (PARAMS_CHAT | PARAMS_TEXT)

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
	{B, "\"stream_options\":{\"continuous_usage_stats\":true},\"stream\":true", "stream_options.continuous_usage_stats",
	 "`stream_options.continuous_usage_stats` is not supported yet."},
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

	/* known, not built */
	{B, "\"n\":1", NULL, NULL},
	{B, "\"n\":2", "n", "`n` greater than 1 is not supported yet."},
	{B, "\"n\":0", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":1000000000000", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"n\":\"2\"", "n", "`n` must be a whole number from 1 to 128."},
	{B, "\"best_of\":3", "best_of", "`best_of` greater than 1 is not supported yet."},
	{C, "\"tools\":[]", NULL, NULL},
	{C, "\"tools\":[{}]", "tools", "`tools` is not supported yet."},
	{C, "\"tool_choice\":\"auto\"", NULL, NULL},
	{C, "\"tool_choice\":\"none\"", NULL, NULL},
	{C, "\"tool_choice\":\"required\"", "tool_choice", "`tool_choice` other than `none` or `auto` is not supported yet."},
	{C, "\"tool_choice\":{}", "tool_choice", "`tool_choice` other than `none` or `auto` is not supported yet."},
	{B, "\"response_format\":{\"type\":\"text\"}", NULL, NULL},
	{B, "\"response_format\":{\"type\":\"json_object\"}", "response_format", "`response_format` of type `json_object` is not supported yet."},
	{B, "\"response_format\":{\"type\":\"nosuch\"}", "response_format.type",
	 "`response_format.type` must be `text`, `json_object` or `json_schema`."},
	{B, "\"response_format\":\"json\"", "response_format", "`response_format` must be an object with a `type`."},
	{C, "\"modalities\":[\"text\"]", NULL, NULL},
	{C, "\"modalities\":[\"text\",\"audio\"]", "modalities", "`modalities` other than [\"text\"] is not supported yet."},
	{B, "\"logit_bias\":{}", NULL, NULL},
	{B, "\"logit_bias\":{\"1\":2}", "logit_bias", "`logit_bias` is not supported yet."},
	{B, "\"presence_penalty\":0,\"frequency_penalty\":0.0,\"repetition_penalty\":1", NULL, NULL},
	{B, "\"presence_penalty\":1e30", "presence_penalty", "`presence_penalty` is not supported yet."},
	{B, "\"frequency_penalty\":-0.5", "frequency_penalty", "`frequency_penalty` is not supported yet."},
	{B, "\"repetition_penalty\":0", "repetition_penalty", "`repetition_penalty` is not supported yet."},
	{B, "\"echo\":false", NULL, NULL},
	{B, "\"echo\":true", "echo", "`echo` is not supported yet."},
	{T, "\"suffix\":\"\"", NULL, NULL},
	{T, "\"suffix\":\"x\"", "suffix", "`suffix` is not supported yet."},
	{B, "\"prompt_logprobs\":1", "prompt_logprobs", "`prompt_logprobs` is not supported yet."},
	{B, "\"prompt_embeds\":\"x\"", "prompt_embeds", "`prompt_embeds` is not supported yet."},
	{B, "\"guided_regex\":\"[\"", "guided_regex", "`guided_regex` is not supported yet."},
	{B, "\"guided_json\":{}", "guided_json", "`guided_json` is not supported yet."},
	{B, "\"grammar\":\"\"", "grammar", "`grammar` is not supported yet."},
	{C, "\"audio\":{}", "audio", "`audio` is not supported yet."},
	{C, "\"continue_final_message\":true", "continue_final_message", "`continue_final_message` is not supported yet."},
};

static bool read(int where, const char *body, struct params *p, struct apierr *e, json_t **root)
{
	char text[8192];

	snprintf(text, sizeof(text), "{%s}", body);
	*root = json_loads(text, 0, NULL);
	if (!*root) fail_msg("not JSON: %s", text);
	memset(e, 0, sizeof(*e));
	return params_read(p, (enum params_endpoint)where, *root, e);
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
	assert_true(p.skip_special && p.add_generation_prompt && p.add_special_tokens && !p.stream && !p.include_usage);
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
	assert_true(read(PARAMS_CHAT, "\"logprobs\":false", &p, &e, &root));
	assert_int_equal(p.n_logprobs, PARAMS_NO_LOGPROBS);
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
	assert_true(params_read(&p, PARAMS_TEXT, root, &e));
	json_array_append_new(list, json_string("one more"));
	assert_false(params_read(&p, PARAMS_TEXT, root, &e));
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_many_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
