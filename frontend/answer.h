/* answer.h - the text of an answer: one JSON document, or the events of a stream, of one or more choices.
 *
 * Pure: pieces, tokens and ends go in, bytes come out. What has gone in since the last event is kept in its choice as a delta, so a
 * reader who cannot keep up gets fewer, larger events instead of a growing queue of small ones. How it is written is the
 * shape's business: OpenAI's chat and text completions (answer_chat.c, answer_text.c; answer_openai.h is what they share), the
 * Responses API (answer_responses.c), Anthropic's messages (answer_messages.c). The bounds are the caller's: answer_held(). */
#ifndef SLUICE_ANSWER_H
#define SLUICE_ANSWER_H

#include "common/base.h"
#include "common/strbuf.h"
#include "frontend/apierr.h"
#include "frontend/live.h"
#include "frontend/pieces.h"

#include <jansson.h>

struct answer;
struct answer_choice;

struct answer_usage {
	uint64_t n_prompt, n_output, n_cached, n_reasoning; /* of all choices; a prompt counts once, however many choices it has */
};

struct answer_end {
	const char *finish;     /* "stop", "length", "tool_calls" */
	const char *stop_text;  /* the stop string that ended it, or NULL */
	size_t stop_text_len;
	int64_t stop_id;        /* the client's stop token that ended it, or -1 */
};

/* How an answer is written. Everything is appended to out. A stream is begin, then delta and end of its choices in any order, then
 * finish (or error at any time); a plain answer is document, after end was recorded for all choices. delta is called when
 * answer_has_delta(); before end it is called only when something was said, so ids and log-probabilities may be left for end. */
struct answer_shape {
	const char *id_prefix; /* "chatcmpl-", "cmpl-", "resp_", "msg_" */
	void (*init)(struct answer *a);    /* may set a->state; NULL */
	void (*release)(struct answer *a); /* NULL */
	void (*begin)(struct answer *a, struct strbuf *out);
	void (*delta)(struct answer *a, struct answer_choice *c, struct strbuf *out); /* takes what c holds */
	void (*end)(struct answer *a, struct answer_choice *c, struct strbuf *out);   /* c->end is set; after the last delta */
	void (*finish)(struct answer *a, const struct answer_usage *u, struct strbuf *out);
	void (*error)(struct answer *a, const struct apierr *e, struct strbuf *out);
	void (*document)(struct answer *a, const struct answer_usage *u, struct strbuf *out);
	bool lp_columns; /* log-probabilities as columns (text completions), else as entries (chat) */
};

extern const struct answer_shape ANSWER_CHAT, ANSWER_TEXT;
extern const struct answer_shape ANSWER_RESPONSES, ANSWER_MESSAGES;

struct gendefaults;

struct answer_config {
	const struct answer_shape *shape;
	bool is_stream;
	bool include_usage, continuous_usage;
	bool return_ids;
	bool ids_as_tokens;      /* log-probabilities name tokens "token_id:123" */
	bool echo;               /* the prompt's log-probabilities come in front of the output's */
	bool has_reasoning;      /* usage tells how many tokens were reasoning */
	int n_logprobs;          /* -1: none; else best tokens to list */
	int n_prompt_logprobs;   /* the same */
	const char *id, *model;  /* copied */
	int64_t created;         /* seconds since 1970 */
	json_t *request;         /* the client's body, for shapes that repeat parts of it; see answer_init() */
	const struct gendefaults *defaults; /* of the model, likewise; NULL: none */
	uint32_t n_choices;
	/* The bytes of a token, for log-probabilities. */
	const char *(*token_bytes)(void *ctx, uint32_t id, size_t *len);
	void *ctx;
};

enum answer_lp_column { ANSWER_LP_TOKENS, ANSWER_LP_LOGPROBS, ANSWER_LP_TOP, ANSWER_LP_OFFSETS };

struct answer_choice {
	uint32_t index;
	struct pieces said;         /* delta */
	struct strbuf ids;          /* delta: token ids, joined by commas */
	struct strbuf lp[4];        /* delta: entries in lp[0], or columns: enum answer_lp_column */
	struct strbuf prompt_ids;   /* until it is written */
	struct strbuf prompt_lps;   /* prompt_logprobs: rows, joined by commas */
	uint64_t offset;            /* text_offset of the next token, in characters */
	uint64_t n_prompt;           /* set by the owner */
	uint64_t n_output;           /* so far */
	bool ended;
	struct answer_end end;
};

struct answer {
	struct answer_config cfg;
	struct strbuf prefix; /* of every document or event, where the shape has one */
	struct answer_choice *choices; /* (cfg.n_choices) */
	char id[64];
	char model[256];
	void *state;          /* the shape's own */
};

/* Copies the texts of cfg; the request is borrowed for the shape's init. */
void answer_init(struct answer *a, const struct answer_config *cfg);
void answer_release(struct answer *a);
/* Of the choices, picked[0..n) stay, in this order, as 0..n-1. */
void answer_pick(struct answer *a, const uint32_t *picked, uint32_t n);

/* Into a choice. ids and log-probabilities come by these, what was said by c->said. The prompt may be told to the first of its
 * choices only. */
void answer_prompt(struct answer *a, struct answer_choice *c, const uint32_t *ids, size_t n);
void answer_prompt_token(struct answer *a, struct answer_choice *c, const struct live_token *t); /* from the second one */
void answer_token(struct answer *a, struct answer_choice *c, const struct live_token *t);

bool answer_has_delta(const struct answer *a, const struct answer_choice *c);
/* Bytes that the choice holds: its delta and what else waits to be written. */
size_t answer_held(const struct answer_choice *c);

#endif
