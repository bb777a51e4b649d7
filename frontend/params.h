/* params.h - the parameters of /v1/chat/completions and /v1/completions: one table says what each may be.
 *
 * null is "not given" for every parameter. What is known but not built yet is refused by name unless it asks for nothing (an
 * empty list, the default value); what is unknown is ignored, as OpenAI and vLLM do. */
#ifndef SLUICE_PARAMS_H
#define SLUICE_PARAMS_H

#include "common/base.h"
#include "frontend/apierr.h"
#include "frontend/gendefaults.h"
#include "frontend/jsonkeys.h"
#include "frontend/toolspec.h"
#include "proto/limits.h"

#include <jansson.h>

enum params_endpoint { PARAMS_CHAT = 1, PARAMS_TEXT = 2 };

/* The model's own stop ids share the submit message's column with the client's. */
#define PARAMS_STOP_IDS_MAX (LIMIT_STOP_IDS - 16)
#define PARAMS_NO_LOGPROBS (-1)
#define PARAMS_TEXT_OUTPUT 16 /* OpenAI's default of max_tokens for /v1/completions */

enum params_format {
	PARAMS_FORMAT_ANY,
	PARAMS_FORMAT_JSON_OBJECT,
	PARAMS_FORMAT_SCHEMA,
	PARAMS_FORMAT_REGEX,
	PARAMS_FORMAT_CHOICE,
	PARAMS_FORMAT_EBNF
};

/* Borrows from the body's JSON. */
struct params {
	enum params_endpoint endpoint;
	const json_t *body;        /* all of it */
	const json_t *messages;    /* chat */
	const json_t *prompt;      /* text */
	const char *model;         /* NULL: not given */
	size_t model_len;

	int64_t output_max;        /* 0: not given */
	int64_t output_bound;      /* the model's own; 0: none */
	bool echo_only;            /* text: max_tokens 0 with echo: the prompt alone, for its log-probabilities */
	int64_t output_min;
	double temperature, top_p, min_p;
	int64_t top_k;             /* 0: off */
	bool has_seed;
	int64_t seed;
	int64_t priority;
	int64_t n, best_of;        /* best_of >= n; 1 by default */
	double repetition_penalty, presence_penalty, frequency_penalty;
	const json_t *logit_bias;  /* object: token id as text -> number; checked but for the vocabulary; NULL: none */
	const json_t *allowed_ids; /* list of whole numbers, not empty; NULL: none */
	int64_t n_prompt_logprobs; /* PARAMS_NO_LOGPROBS, or the number of best tokens to list */
	const char *cache_salt;
	size_t cache_salt_len;

	const json_t *stop;        /* string or array of non-empty strings, or NULL */
	uint32_t stop_ids[PARAMS_STOP_IDS_MAX];
	size_t n_stop_ids;
	bool ignore_eos;
	bool keep_stop;            /* include_stop_str_in_output */
	bool skip_special;         /* skip_special_tokens */

	int64_t n_logprobs;        /* PARAMS_NO_LOGPROBS, or the number of best tokens to list */
	bool stream, include_usage, continuous_usage;
	bool return_token_ids;
	bool ids_as_tokens;        /* return_tokens_as_token_ids: log-probabilities say "token_id:123" */
	bool echo;                 /* the prompt (chat: the last message) in front of the answer */
	bool add_special_tokens;   /* BOS where the model wants one; true by default for texts, false for chats */
	int64_t truncate_prompt;   /* truncate_prompt_tokens: so many are kept, the last ones; -1: what fits; 0: not given */

	/* chat */
	struct toolspec tools;
	bool add_generation_prompt;
	bool continue_final;       /* continue_final_message; then add_generation_prompt is false */
	const char *reasoning_effort; /* for the template; NULL: not given */
	bool include_reasoning;    /* true by default; false: reasoning is left out of the answer */
	const json_t *documents;   /* list, or NULL */
	const json_t *chat_kwargs; /* object, or NULL */
	const char *chat_template; /* of the request, or NULL; allowed by --trust-request-chat-template only */
	size_t chat_template_len;

	/* What the output must be; from response_format, guided_*, structured_outputs, grammar, ... */
	enum params_format format;
	const json_t *format_spec; /* SCHEMA: the schema, or a text that holds one; CHOICE: the list; REGEX, EBNF: the text */
	const char *format_at;     /* the request's field that asked for it, for errors */
	bool format_compact;       /* JSON without whitespace between its tokens */
};

/* d: what the model says of what the request does not say; NULL: nothing. False: e says what is wrong. */
bool params_read(struct params *p, enum params_endpoint endpoint, const json_t *body, const struct gendefaults *d, struct apierr *e) MUST_CHECK;

/* Reads what constrains the output (params_format.c); part of params_read(). */
bool params_format_read(struct params *p, const struct jsonkeys *body, struct apierr *e) MUST_CHECK;

/* A row of the table, for the documentation. */
struct params_row {
	const char *name;
	int where;        /* params_endpoint bits */
	enum { PARAMS_ROW_BOOL, PARAMS_ROW_WHOLE, PARAMS_ROW_NUMBER, PARAMS_ROW_OTHER, PARAMS_ROW_REFUSED } kind;
	double lo, hi;    /* of the numbers */
	const char *what; /* it must be; NULL: nothing is said */
};
/* False: there are not so many. */
bool params_row(size_t ix, struct params_row *out);

/* A whole number: a JSON integer, or a real without a fraction. False when j is neither. */
bool params_whole(const json_t *j, int64_t *out);

/* The text of an error for a parameter of the wrong kind, for other endpoints: "`name` must be ...". */
bool params_wrong(struct apierr *e, const char *name, const char *what);
bool params_later(struct apierr *e, const char *name);
/* A text of the client; not an integer beyond 64 bits, which jsonbig.h makes look like one. */
bool params_is_text(const json_t *j);
/* A switch of a body with its default in *value. */
bool params_switch(const json_t *body, const char *name, bool *value, struct apierr *e) MUST_CHECK;

#endif
