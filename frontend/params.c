/* params.c - see params.h.
 *
 * Range checks are written as !(v >= lo && v <= hi), which is also true for a NaN. */
#include "frontend/params.h"

#include "frontend/stopstr.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum param_kind {
	P_BOOL,   /* bool at `at` */
	P_WHOLE,  /* int64_t at `at`, lo..hi */
	P_NUMBER, /* double at `at`, lo..hi */
	P_CUSTOM, /* read by `read` */
	P_LATER,  /* not built yet; values of `idle` ask for nothing */
};

/* Values that ask for nothing. */
enum param_idle {
	IDLE_NONE = 0,
	IDLE_FALSE = 1,
	IDLE_EMPTY = 2, /* "", [], {} */
	IDLE_ZERO = 4,
	IDLE_ONE = 8,
};

struct param {
	const char *name;
	int where; /* params_endpoint bits */
	enum param_kind kind;
	size_t at;
	double lo, hi;
	const char *what; /* "`name` must be <what>." */
	bool (*read)(struct params *p, const struct param *row, const json_t *j, struct apierr *e);
	int idle;
};

bool params_wrong(struct apierr *e, const char *name, const char *what)
{
	return apierr_set(e, 400, name, "`%s` must be %s.", name, what);
}

static bool param_later(struct apierr *e, const char *name)
{
	return apierr_set(e, 400, name, "`%s` is not supported yet.", name);
}

bool params_whole(const json_t *j, int64_t *out)
{
	double v;

	if (json_is_integer(j)) {
		*out = json_integer_value(j);
		return true;
	}
	if (!json_is_real(j)) return false;
	v = json_real_value(j);
	if (!(v >= -9007199254740992.0 && v <= 9007199254740992.0) || v != floor(v)) return false;
	*out = (int64_t)v;
	return true;
}

/* ---- the rows that need code ---- */

static bool read_model(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	if (!json_is_string(j)) return params_wrong(e, row->name, row->what);
	p->model = json_string_value(j);
	p->model_len = json_string_length(j);
	return true;
}

static bool read_salt(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	size_t n = json_string_length(j);

	if (!json_is_string(j) || n == 0 || n > LIMIT_SALT) return params_wrong(e, row->name, row->what);
	p->cache_salt = json_string_value(j);
	p->cache_salt_len = n;
	return true;
}

static bool read_seed(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	if (!params_whole(j, &p->seed)) return params_wrong(e, row->name, row->what);
	p->has_seed = true;
	return true;
}

static bool read_top_k(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	int64_t v;

	if (!params_whole(j, &v) || v < -1) return params_wrong(e, row->name, row->what);
	p->top_k = v == -1 ? 0 : v;
	return true;
}

static bool read_top_p(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	double v = json_number_value(j);

	if (!json_is_number(j) || !(v > 0 && v <= 1)) return params_wrong(e, row->name, row->what);
	p->top_p = fmax(v, FLT_MIN); /* stays above 0 as a float */
	return true;
}

static bool stop_is_sane(const json_t *j)
{
	size_t n = json_string_length(j);

	return json_is_string(j) && n > 0 && n <= STOPSTR_BYTES_MAX;
}

static bool read_stop(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	size_t i;

	if (json_is_array(j)) {
		if (json_array_size(j) > STOPSTR_MAX) return params_wrong(e, row->name, row->what);
		for (i = 0; i < json_array_size(j); i++)
			if (!stop_is_sane(json_array_get(j, i))) return params_wrong(e, row->name, row->what);
	} else if (!stop_is_sane(j)) {
		return params_wrong(e, row->name, row->what);
	}
	p->stop = j;
	return true;
}

static bool read_stop_ids(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	size_t i, n = json_array_size(j);
	int64_t v;

	if (!json_is_array(j) || n > PARAMS_STOP_IDS_MAX) return params_wrong(e, row->name, row->what);
	for (i = 0; i < n; i++) {
		if (!params_whole(json_array_get(j, i), &v) || v < 0 || v > INT32_MAX) return params_wrong(e, row->name, row->what);
		p->stop_ids[i] = (uint32_t)v;
	}
	p->n_stop_ids = n;
	return true;
}

static bool read_stream_options(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	const json_t *v;

	if (!json_is_object(j)) return params_wrong(e, row->name, row->what);
	if (!p->stream) return apierr_set(e, 400, row->name, "`stream_options` is only allowed when `stream` is true.");
	v = json_object_get(j, "include_usage");
	if (v && !json_is_null(v) && !json_is_boolean(v)) return params_wrong(e, "stream_options.include_usage", "true or false");
	p->include_usage = json_is_true(v);
	v = json_object_get(j, "continuous_usage_stats");
	if (v && !json_is_null(v) && !json_is_false(v)) return param_later(e, "stream_options.continuous_usage_stats");
	return true;
}

/* Chat: a switch and a number. */
static bool read_chat_logprobs(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	if (!json_is_boolean(j)) return params_wrong(e, row->name, row->what);
	if (json_is_true(j)) p->n_logprobs = 0;
	return true;
}

static bool read_top_logprobs(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	int64_t v;

	if (!params_whole(j, &v) || v < 0 || v > LIMIT_TOP_LOGPROBS) return params_wrong(e, row->name, row->what);
	if (p->n_logprobs == PARAMS_NO_LOGPROBS) {
		if (v == 0) return true;
		return apierr_set(e, 400, row->name, "`top_logprobs` needs `logprobs` to be true.");
	}
	p->n_logprobs = v;
	return true;
}

static bool read_n(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	int64_t v;

	if (!params_whole(j, &v) || v < 1 || v > 128) return params_wrong(e, row->name, row->what);
	if (v > 1) return apierr_set(e, 400, row->name, "`%s` greater than 1 is not supported yet.", row->name);
	return true;
}

static bool read_response_format(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	const char *type = json_string_value(json_object_get(j, "type"));

	if (!json_is_object(j) || !type) return params_wrong(e, row->name, row->what);
	if (strcmp(type, "text") == 0) return true;
	if (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0 && strcmp(type, "structural_tag") != 0)
		return params_wrong(e, "response_format.type", "`text`, `json_object` or `json_schema`");
	return apierr_set(e, 400, "response_format", "`response_format` of type `%s` is not supported yet.", type);
}

static bool read_tool_choice(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	const char *word = json_string_value(j);

	if (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0)) return true;
	return apierr_set(e, 400, row->name, "`%s` other than `none` or `auto` is not supported yet.", row->name);
}

static bool read_modalities(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	const char *word = json_string_value(json_array_get(j, 0));

	if (json_array_size(j) == 1 && word && strcmp(word, "text") == 0) return true;
	return apierr_set(e, 400, row->name, "`modalities` other than [\"text\"] is not supported yet.");
}

/* ---- the table ---- */

#define CHAT PARAMS_CHAT
#define TEXT PARAMS_TEXT
#define BOTH (PARAMS_CHAT | PARAMS_TEXT)
#define AT(field) offsetof(struct params, field)
#define BOOL(name, where, field) {name, where, P_BOOL, AT(field), 0, 0, "true or false", NULL, 0}
#define WHOLE(name, where, field, lo, hi, what) {name, where, P_WHOLE, AT(field), lo, hi, what, NULL, 0}
#define NUMBER(name, where, field, lo, hi, what) {name, where, P_NUMBER, AT(field), lo, hi, what, NULL, 0}
#define CUSTOM(name, where, fn, what) {name, where, P_CUSTOM, 0, 0, 0, what, fn, 0}
#define LATER(name, where, idle) {name, where, P_LATER, 0, 0, 0, NULL, NULL, idle}

/* Order matters where one row looks at another: stream before stream_options, logprobs before top_logprobs, and
 * max_completion_tokens, which wins, after max_tokens. */
static const struct param params_table[] = {
	CUSTOM("model", BOTH, read_model, "a string"),
	WHOLE("max_tokens", BOTH, output_max, 1, 9.3e18, "a whole number of at least 1"),
	WHOLE("max_completion_tokens", BOTH, output_max, 1, 9.3e18, "a whole number of at least 1"),
	WHOLE("min_tokens", BOTH, output_min, 0, 9.3e18, "a whole number of at least 0"),
	NUMBER("temperature", BOTH, temperature, 0, 100, "a number from 0 to 100"),
	CUSTOM("top_p", BOTH, read_top_p, "a number above 0 and at most 1"),
	CUSTOM("top_k", BOTH, read_top_k, "a whole number of at least 1, or 0 or -1 to switch it off"),
	NUMBER("min_p", BOTH, min_p, 0, 1, "a number from 0 to 1"),
	CUSTOM("seed", BOTH, read_seed, "a whole number of 64 bits"),
	WHOLE("priority", BOTH, priority, INT32_MIN, INT32_MAX, "a whole number of 32 bits"),
	CUSTOM("cache_salt", BOTH, read_salt, "a string of 1 to 256 bytes"),
	CUSTOM("stop", BOTH, read_stop, "a string or at most 64 strings, each of 1 to 1024 bytes"),
	CUSTOM("stop_token_ids", BOTH, read_stop_ids, "a list of at most 112 token ids"),
	BOOL("ignore_eos", BOTH, ignore_eos),
	BOOL("include_stop_str_in_output", BOTH, keep_stop),
	BOOL("skip_special_tokens", BOTH, skip_special),
	BOOL("stream", BOTH, stream),
	CUSTOM("stream_options", BOTH, read_stream_options, "an object"),
	BOOL("return_token_ids", BOTH, return_token_ids),
	WHOLE("logprobs", TEXT, n_logprobs, 0, LIMIT_TOP_LOGPROBS, "a whole number from 0 to 20"),
	CUSTOM("logprobs", CHAT, read_chat_logprobs, "true or false"),
	CUSTOM("top_logprobs", CHAT, read_top_logprobs, "a whole number from 0 to 20"),
	BOOL("add_special_tokens", TEXT, add_special_tokens),
	BOOL("add_generation_prompt", CHAT, add_generation_prompt),

	CUSTOM("n", BOTH, read_n, "a whole number from 1 to 128"),
	CUSTOM("best_of", BOTH, read_n, "a whole number from 1 to 128"),
	CUSTOM("response_format", BOTH, read_response_format, "an object with a `type`"),
	CUSTOM("tool_choice", CHAT, read_tool_choice, NULL),
	CUSTOM("function_call", CHAT, read_tool_choice, NULL),
	CUSTOM("modalities", CHAT, read_modalities, NULL),

	LATER("tools", CHAT, IDLE_EMPTY),
	LATER("functions", CHAT, IDLE_EMPTY),
	LATER("audio", CHAT, IDLE_NONE),
	LATER("prediction", CHAT, IDLE_NONE),
	LATER("web_search_options", CHAT, IDLE_NONE),
	LATER("reasoning_effort", CHAT, IDLE_NONE),
	LATER("verbosity", CHAT, IDLE_NONE),
	LATER("documents", CHAT, IDLE_EMPTY),
	LATER("chat_template", CHAT, IDLE_NONE),
	LATER("chat_template_kwargs", CHAT, IDLE_EMPTY),
	LATER("continue_final_message", CHAT, IDLE_FALSE),
	LATER("add_special_tokens", CHAT, IDLE_FALSE),
	LATER("echo", BOTH, IDLE_FALSE),
	LATER("suffix", TEXT, IDLE_EMPTY),
	LATER("images", BOTH, IDLE_EMPTY),
	LATER("prompt_embeds", BOTH, IDLE_NONE),
	LATER("prompt_logprobs", BOTH, IDLE_FALSE),
	LATER("truncate_prompt_tokens", BOTH, IDLE_NONE),
	LATER("logit_bias", BOTH, IDLE_EMPTY),
	LATER("presence_penalty", BOTH, IDLE_ZERO),
	LATER("frequency_penalty", BOTH, IDLE_ZERO),
	LATER("repetition_penalty", BOTH, IDLE_ONE),
	LATER("repeat_penalty", BOTH, IDLE_ONE),
	LATER("length_penalty", BOTH, IDLE_ONE),
	LATER("use_beam_search", BOTH, IDLE_FALSE),
	LATER("bad_words", BOTH, IDLE_EMPTY),
	LATER("allowed_token_ids", BOTH, IDLE_NONE),
	LATER("logits_processors", BOTH, IDLE_EMPTY),
	LATER("return_tokens_as_token_ids", BOTH, IDLE_FALSE),
	LATER("typical_p", BOTH, IDLE_ONE),
	LATER("mirostat", BOTH, IDLE_ZERO),
	LATER("dry_multiplier", BOTH, IDLE_ZERO),
	LATER("xtc_probability", BOTH, IDLE_ZERO),
	LATER("dynatemp_range", BOTH, IDLE_ZERO),
	LATER("guided_json", BOTH, IDLE_NONE),
	LATER("guided_regex", BOTH, IDLE_NONE),
	LATER("guided_choice", BOTH, IDLE_NONE),
	LATER("guided_grammar", BOTH, IDLE_NONE),
	LATER("guided_decoding_backend", BOTH, IDLE_NONE),
	LATER("guided_whitespace_pattern", BOTH, IDLE_NONE),
	LATER("structured_outputs", BOTH, IDLE_EMPTY),
	LATER("structural_tag", BOTH, IDLE_NONE),
	LATER("grammar", BOTH, IDLE_NONE),
	LATER("json_schema", BOTH, IDLE_NONE),
	LATER("regex", BOTH, IDLE_NONE),
	LATER("ebnf", BOTH, IDLE_NONE),
	LATER("mm_processor_kwargs", BOTH, IDLE_EMPTY),
	LATER("kv_transfer_params", BOTH, IDLE_EMPTY),
	LATER("vllm_xargs", BOTH, IDLE_EMPTY),
	LATER("lora_path", BOTH, IDLE_NONE),
};

static bool param_is_idle(const json_t *j, int idle)
{
	if (idle & IDLE_FALSE && json_is_false(j)) return true;
	if (idle & IDLE_ZERO && json_is_number(j) && json_number_value(j) == 0) return true;
	if (idle & IDLE_ONE && json_is_number(j) && json_number_value(j) == 1) return true;
	if (!(idle & IDLE_EMPTY)) return false;
	return (json_is_array(j) && json_array_size(j) == 0) || (json_is_object(j) && json_object_size(j) == 0) ||
	       (json_is_string(j) && json_string_length(j) == 0);
}

static bool param_read(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	char *field = (char *)p + row->at;
	int64_t whole;
	double number;

	switch (row->kind) {
	case P_BOOL:
		if (!json_is_boolean(j)) return params_wrong(e, row->name, row->what);
		*(bool *)field = json_is_true(j);
		return true;
	case P_WHOLE:
		if (!params_whole(j, &whole) || !((double)whole >= row->lo && (double)whole <= row->hi))
			return params_wrong(e, row->name, row->what);
		*(int64_t *)field = whole;
		return true;
	case P_NUMBER:
		number = json_number_value(j);
		if (!json_is_number(j) || !(number >= row->lo && number <= row->hi)) return params_wrong(e, row->name, row->what);
		*(double *)field = number;
		return true;
	case P_CUSTOM: return row->read(p, row, j, e);
	case P_LATER: return param_is_idle(j, row->idle) || param_later(e, row->name);
	}
	return true;
}

static void params_defaults(struct params *p, enum params_endpoint endpoint)
{
	memset(p, 0, sizeof(*p));
	p->endpoint = endpoint;
	p->temperature = 1;
	p->top_p = 1;
	p->n_logprobs = PARAMS_NO_LOGPROBS;
	p->skip_special = true;
	p->add_special_tokens = true;
	p->add_generation_prompt = true;
}

bool params_read(struct params *p, enum params_endpoint endpoint, const json_t *body, struct apierr *e)
{
	const json_t *j;
	size_t i;

	params_defaults(p, endpoint);
	for (i = 0; i < ARRAY_LEN(params_table); i++) {
		const struct param *row = &params_table[i];

		if (!(row->where & (int)endpoint)) continue;
		j = json_object_get(body, row->name);
		if (!j || json_is_null(j)) continue;
		if (!param_read(p, row, j, e)) return false;
	}
	if (p->output_max && p->output_min > p->output_max)
		return apierr_set(e, 400, "min_tokens", "`min_tokens` (%lld) must not be greater than `max_tokens` (%lld).",
				  (long long)p->output_min, (long long)p->output_max);
	p->messages = json_object_get(body, "messages");
	p->prompt = json_object_get(body, "prompt");
	return true;
}
