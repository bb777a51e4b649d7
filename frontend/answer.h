/* answer.h - the text of an answer: one JSON document, or the chunks of an event stream, in OpenAI's shapes with vLLM's additions.
 *
 * Pure: text, tokens and the end go in, bytes come out. What has gone in since the last chunk is kept as a delta, so a reader who
 * cannot keep up gets fewer, larger chunks instead of a growing queue of small ones. */
#ifndef SLUICE_ANSWER_H
#define SLUICE_ANSWER_H

#include "common/base.h"
#include "common/strbuf.h"
#include "frontend/apierr.h"
#include "frontend/live.h"

struct answer_config {
	bool is_chat;
	bool is_stream;
	bool include_usage;
	bool return_ids;
	int n_logprobs;  /* -1: none; else best tokens to list */
	const char *id, *model;
	int64_t created; /* seconds since 1970 */
	/* The bytes of a token, for log-probabilities. */
	const char *(*token_bytes)(void *ctx, uint32_t id, size_t *len);
	void *ctx;
};

struct answer_usage {
	uint64_t n_prompt, n_output, n_cached;
};

struct answer_end {
	const char *finish;     /* "stop", "length" */
	const char *stop_text;  /* the stop string that ended it, or NULL */
	size_t stop_text_len;
	int64_t stop_id;        /* the client's stop token that ended it, or -1 */
};

struct answer {
	struct answer_config cfg;
	struct strbuf prefix;     /* of every document: {"id":...,"choices":[ */
	struct strbuf text;       /* delta, raw */
	struct strbuf ids;        /* delta: token ids, joined by commas */
	struct strbuf lp[4];      /* delta: chat: entries in lp[0]; text: tokens, token_logprobs, top_logprobs, text_offset */
	struct strbuf prompt_ids; /* until it is written */
	uint64_t offset;          /* text_offset of the next token, in characters */
};

void answer_init(struct answer *a, const struct answer_config *cfg); /* copies the texts */
void answer_release(struct answer *a);
/* For return_ids. */
void answer_prompt(struct answer *a, const uint32_t *ids, size_t n);

void answer_token(struct answer *a, const struct live_token *t); /* ids and log-probabilities; the text comes by answer_text */
static inline struct strbuf *answer_text(struct answer *a)
{
	return &a->text;
}
bool answer_has_delta(const struct answer *a);

/* Stream. */
void answer_begin(struct answer *a, struct strbuf *out); /* the role chunk of a chat */
void answer_delta(struct answer *a, struct strbuf *out);
void answer_finish(struct answer *a, const struct answer_end *end, const struct answer_usage *usage, struct strbuf *out); /* to [DONE] */
void answer_error(const struct apierr *e, struct strbuf *out); /* instead of answer_finish; to [DONE] */

/* Plain. */
void answer_document(struct answer *a, const struct answer_end *end, const struct answer_usage *usage, struct strbuf *out);

#endif
