/* params.c - see params.h.
 *
 * Range checks are written as !(v >= lo && v <= hi), which is also true for a NaN. */
#include "frontend/params.h"

#include "common/jsonbig.h"
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
	IDLE_WORD = 16, /* "none", "auto" */
};

struct param {
	const char *name;
	unsigned char bit; /* of the name (jsonkeys.h) */
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

bool params_later(struct apierr *e, const char *name)
{
	return apierr_set(e, 400, name, "`%s` is not supported yet.", name);
}

bool params_is_text(const json_t *j)
{
	return json_is_string(j) && !jsonbig_is(j);
}

bool params_switch(const json_t *body, const char *name, bool *value, struct apierr *e)
{
	const json_t *j = json_object_get(body, name);

	if (!j || json_is_null(j)) return true;
	if (!json_is_boolean(j)) return params_wrong(e, name, "true or false");
	*value = json_is_true(j);
	return true;
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
	if (!params_is_text(j)) return params_wrong(e, row->name, row->what);
	p->model = json_string_value(j);
	p->model_len = json_string_length(j);
	return true;
}

static bool read_salt(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	size_t n = json_string_length(j);

	if (!params_is_text(j) || n == 0 || n > LIMIT_SALT) return params_wrong(e, row->name, row->what);
	p->cache_salt = json_string_value(j);
	p->cache_salt_len = n;
	return true;
}

static bool read_output_max(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	int64_t v;

	/* 0 makes sense only where something else is answered than what is drawn. */
	if (!params_whole(j, &v) || v < 0) return params_wrong(e, row->name, row->what);
	if (v == 0 && (p->endpoint != PARAMS_TEXT || !json_is_true(json_object_get(p->body, "echo")))) return params_wrong(e, row->name, row->what);
	p->output_max = v;
	p->echo_only = v == 0;
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

	return params_is_text(j) && n > 0 && n <= STOPSTR_BYTES_MAX;
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
	if (v && !json_is_null(v) && !json_is_boolean(v)) return params_wrong(e, "stream_options.continuous_usage_stats", "true or false");
	p->continuous_usage = p->include_usage && json_is_true(v);
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

/* The number of a key of logit_bias, written as vLLM's clients write it: digits. */
static bool bias_key(const char *key)
{
	size_t n = strspn(key, "0123456789");

	return n > 0 && n <= 9 && key[n] == 0 && (key[0] != '0' || n == 1);
}

static bool read_logit_bias(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(j) || json_object_size(j) > LIMIT_BIAS) return params_wrong(e, row->name, row->what);
	json_object_foreach((json_t *)j, key, value) {
		double v = json_number_value(value);

		if (!bias_key(key) || !json_is_number(value) || !(v >= -100 && v <= 100)) return params_wrong(e, row->name, row->what);
	}
	p->logit_bias = json_object_size(j) > 0 ? j : NULL;
	return true;
}

static bool read_allowed_ids(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	size_t i, n = json_array_size(j);
	int64_t v;

	if (n == 0 || n > LIMIT_ALLOWED) return params_wrong(e, row->name, row->what);
	for (i = 0; i < n; i++)
		if (!params_whole(json_array_get(j, i), &v) || v < 0 || v > INT32_MAX) return params_wrong(e, row->name, row->what);
	p->allowed_ids = j;
	return true;
}

/* vLLM: not with stream, since they come before the first token of the answer. */
static bool read_prompt_logprobs(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	int64_t v;

	if (json_is_false(j)) return true;
	if (!params_whole(j, &v) || v < 0 || v > LIMIT_TOP_LOGPROBS) return params_wrong(e, row->name, row->what);
	if (p->stream) return apierr_set(e, 400, row->name, "`%s` are not available when `stream` is true.", row->name);
	p->n_prompt_logprobs = v;
	return true;
}

static bool read_truncate(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	int64_t v;

	if (!params_whole(j, &v) || v < -1 || v == 0 || v > LIMIT_TOKENS) return params_wrong(e, row->name, row->what);
	p->truncate_prompt = v;
	return true;
}

static bool read_effort(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
	size_t i;

	for (i = 0; json_is_string(j) && i < ARRAY_LEN(words); i++) {
		if (strcmp(json_string_value(j), words[i]) != 0) continue;
		p->reasoning_effort = words[i];
		return true;
	}
	return params_wrong(e, row->name, row->what);
}

static bool read_documents(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	size_t i;

	if (!json_is_array(j)) return params_wrong(e, row->name, row->what);
	for (i = 0; i < json_array_size(j); i++)
		if (!json_is_object(json_array_get(j, i))) return params_wrong(e, row->name, row->what);
	p->documents = i > 0 ? j : NULL;
	return true;
}

static bool read_kwargs(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	if (!json_is_object(j)) return params_wrong(e, row->name, row->what);
	p->chat_kwargs = json_object_size(j) > 0 ? j : NULL;
	return true;
}

static bool read_template(struct params *p, const struct param *row, const json_t *j, struct apierr *e)
{
	if (!params_is_text(j)) return params_wrong(e, row->name, row->what);
	p->chat_template = json_string_value(j);
	p->chat_template_len = json_string_length(j);
	return true;
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
#define BOOL(name, where, field) {name, JSONKEYS_BIT(name), where, P_BOOL, AT(field), 0, 0, "true or false", NULL, 0}
#define WHOLE(name, where, field, lo, hi, what) {name, JSONKEYS_BIT(name), where, P_WHOLE, AT(field), lo, hi, what, NULL, 0}
#define NUMBER(name, where, field, lo, hi, what) {name, JSONKEYS_BIT(name), where, P_NUMBER, AT(field), lo, hi, what, NULL, 0}
#define CUSTOM(name, where, fn, what) {name, JSONKEYS_BIT(name), where, P_CUSTOM, 0, 0, 0, what, fn, 0}
#define LATER(name, where, idle) {name, JSONKEYS_BIT(name), where, P_LATER, 0, 0, 0, NULL, NULL, idle}

/* Order matters where one row looks at another: stream before stream_options and prompt_logprobs, logprobs before top_logprobs,
 * and max_completion_tokens, which wins, after max_tokens. What constrains the output is in params_format.c, tools in toolspec.c. */
static const struct param params_table[] = {
	CUSTOM("model", BOTH, read_model, "a string"),
	CUSTOM("max_tokens", BOTH, read_output_max, "a whole number of at least 1"),
	CUSTOM("max_completion_tokens", BOTH, read_output_max, "a whole number of at least 1"),
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
	BOOL("return_tokens_as_token_ids", BOTH, ids_as_tokens),
	WHOLE("logprobs", TEXT, n_logprobs, 0, LIMIT_TOP_LOGPROBS, "a whole number from 0 to 20"),
	CUSTOM("logprobs", CHAT, read_chat_logprobs, "true or false"),
	CUSTOM("top_logprobs", CHAT, read_top_logprobs, "a whole number from 0 to 20"),
	CUSTOM("prompt_logprobs", BOTH, read_prompt_logprobs, "a whole number from 0 to 20"),
	BOOL("echo", BOTH, echo),
	CUSTOM("truncate_prompt_tokens", BOTH, read_truncate, "a whole number of at least 1, or -1 for what fits"),
	BOOL("add_special_tokens", BOTH, add_special_tokens),

	WHOLE("n", BOTH, n, 1, LIMIT_CHOICES, "a whole number from 1 to 128"),
	WHOLE("best_of", BOTH, best_of, 1, LIMIT_CHOICES, "a whole number from 1 to 128"),
	NUMBER("presence_penalty", BOTH, presence_penalty, -2, 2, "a number from -2 to 2"),
	NUMBER("frequency_penalty", BOTH, frequency_penalty, -2, 2, "a number from -2 to 2"),
	NUMBER("repeat_penalty", BOTH, repetition_penalty, 1e-6, 1e6, "a number above 0 (1e-6 to 1e6)"),
	NUMBER("repetition_penalty", BOTH, repetition_penalty, 1e-6, 1e6, "a number above 0 (1e-6 to 1e6)"),
	CUSTOM("logit_bias", BOTH, read_logit_bias, "an object of at most 4096 token ids with a number from -100 to 100 each"),
	CUSTOM("allowed_token_ids", BOTH, read_allowed_ids, "a list of at most 262144 token ids, not empty"),

	BOOL("add_generation_prompt", CHAT, add_generation_prompt),
	BOOL("continue_final_message", CHAT, continue_final),
	BOOL("include_reasoning", CHAT, include_reasoning),
	CUSTOM("reasoning_effort", CHAT, read_effort, "`none`, `minimal`, `low`, `medium`, `high` or `xhigh`"),
	CUSTOM("documents", CHAT, read_documents, "a list of objects"),
	CUSTOM("chat_template_kwargs", CHAT, read_kwargs, "an object"),
	CUSTOM("chat_template", CHAT, read_template, "a string"),
	CUSTOM("modalities", CHAT, read_modalities, NULL),

	LATER("functions", CHAT, IDLE_EMPTY),
	LATER("function_call", CHAT, IDLE_WORD),
	LATER("audio", CHAT, IDLE_NONE),
	LATER("prediction", CHAT, IDLE_NONE),
	LATER("web_search_options", CHAT, IDLE_NONE),
	LATER("verbosity", CHAT, IDLE_NONE),
	LATER("suffix", TEXT, IDLE_EMPTY),
	LATER("images", BOTH, IDLE_EMPTY),
	LATER("prompt_embeds", BOTH, IDLE_NONE),
	LATER("length_penalty", BOTH, IDLE_ONE),
	LATER("use_beam_search", BOTH, IDLE_FALSE),
	LATER("bad_words", BOTH, IDLE_EMPTY),
	LATER("logits_processors", BOTH, IDLE_EMPTY),
	LATER("typical_p", BOTH, IDLE_ONE),
	LATER("mirostat", BOTH, IDLE_ZERO),
	LATER("dry_multiplier", BOTH, IDLE_ZERO),
	LATER("xtc_probability", BOTH, IDLE_ZERO),
	LATER("dynatemp_range", BOTH, IDLE_ZERO),
	LATER("guided_whitespace_pattern", BOTH, IDLE_NONE),
	LATER("structural_tag", BOTH, IDLE_NONE),
	LATER("mm_processor_kwargs", BOTH, IDLE_EMPTY),
	LATER("kv_transfer_params", BOTH, IDLE_EMPTY),
	LATER("vllm_xargs", BOTH, IDLE_EMPTY),
	LATER("lora_path", BOTH, IDLE_NONE),
};

bool params_row(size_t ix, struct params_row *out)
{
	const struct param *row = &params_table[ix];

	if (ix >= ARRAY_LEN(params_table)) return false;
	*out = (struct params_row){.name = row->name, .where = row->where, .lo = row->lo, .hi = row->hi, .what = row->what};
	out->kind = row->kind == P_BOOL ? PARAMS_ROW_BOOL
		    : row->kind == P_WHOLE ? PARAMS_ROW_WHOLE
		    : row->kind == P_NUMBER ? PARAMS_ROW_NUMBER
		    : row->kind == P_CUSTOM ? PARAMS_ROW_OTHER : PARAMS_ROW_REFUSED;
	return true;
}

static bool param_is_idle(const json_t *j, int idle)
{
	if (idle & IDLE_FALSE && json_is_false(j)) return true;
	if (idle & IDLE_ZERO && json_is_number(j) && json_number_value(j) == 0) return true;
	if (idle & IDLE_ONE && json_is_number(j) && json_number_value(j) == 1) return true;
	if (idle & IDLE_WORD && json_is_string(j))
		return strcmp(json_string_value(j), "none") == 0 || strcmp(json_string_value(j), "auto") == 0;
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
	case P_LATER: return param_is_idle(j, row->idle) || params_later(e, row->name);
	}
	return true;
}

static void params_defaults(struct params *p, enum params_endpoint endpoint, const struct gendefaults *d)
{
	memset(p, 0, sizeof(*p));
	p->endpoint = endpoint;
	p->temperature = d->temperature;
	p->top_p = d->top_p;
	p->top_k = d->top_k;
	p->min_p = d->min_p;
	p->output_bound = d->output_max;
	p->n_logprobs = PARAMS_NO_LOGPROBS;
	p->n_prompt_logprobs = PARAMS_NO_LOGPROBS;
	p->skip_special = true;
	p->add_special_tokens = endpoint == PARAMS_TEXT; /* a chat's template writes what it wants */
	p->add_generation_prompt = true;
	p->include_reasoning = true;
	p->n = 1;
	p->repetition_penalty = d->repetition_penalty;
}

static bool params_check_choices(struct params *p, struct apierr *e)
{
	if (p->best_of == 0) p->best_of = p->n;
	if (p->best_of < p->n)
		return apierr_set(e, 400, "best_of", "`best_of` (%lld) must not be less than `n` (%lld).", (long long)p->best_of, (long long)p->n);
	if (p->best_of > p->n && p->stream)
		return apierr_set(e, 400, "best_of", "`best_of` greater than `n` is not possible with `stream`: the best are known at the end only.");
	return true;
}

static bool params_check_chat(struct params *p, const json_t *body, struct apierr *e)
{
	if (p->continue_final && json_is_true(json_object_get(body, "add_generation_prompt")))
		return apierr_set(e, 400, "continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
	if (p->continue_final) p->add_generation_prompt = false;
	if (!toolspec_read(&p->tools, body, e)) return false;
	if (p->format != PARAMS_FORMAT_ANY && (p->tools.choice == TOOL_CHOICE_REQUIRED || p->tools.choice == TOOL_CHOICE_NAMED))
		return apierr_set(e, 400, "tool_choice", "`tool_choice` that demands a call cannot go together with `%s`.", p->format_at);
	return true;
}

bool params_read(struct params *p, enum params_endpoint endpoint, const json_t *body, const struct gendefaults *d, struct apierr *e)
{
	struct jsonkeys keys;
	const json_t *j;
	size_t i;

	params_defaults(p, endpoint, d ? d : &GENDEFAULTS_NEUTRAL);
	p->body = body;
	jsonkeys_init(&keys, body);
	for (i = 0; i < ARRAY_LEN(params_table); i++) {
		const struct param *row = &params_table[i];

		if (!(row->where & (int)endpoint)) continue;
		j = jsonkeys_get(&keys, row->name, row->bit);
		if (!j || json_is_null(j)) continue;
		if (!param_read(p, row, j, e)) return false;
	}
	if (p->output_max && p->output_min > p->output_max)
		return apierr_set(e, 400, "min_tokens", "`min_tokens` (%lld) must not be greater than `max_tokens` (%lld).",
				  (long long)p->output_min, (long long)p->output_max);
	p->messages = json_object_get(body, "messages");
	p->prompt = json_object_get(body, "prompt");
	return params_check_choices(p, e) && params_format_read(p, &keys, e) && (endpoint != PARAMS_CHAT || params_check_chat(p, body, e));
}
