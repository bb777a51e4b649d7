/* tokbytes_json.h - the vocabulary of a tokenizer.json as lists, for the tokenizer (frontend/) and for
 * tokbytes_from_json().
 *
 * Read are model.vocab, model.byte_fallback, added_tokens, and whether a step of pre_tokenizer is ByteLevel, which is
 * how such files say that tokens are spelled as GPT-2 did. All else is the tokenizer's business. */
#ifndef SLUICE_TOKBYTES_JSON_H
#define SLUICE_TOKBYTES_JSON_H

#include "common/quote.h"
#include "model/jsonplace.h"
#include "model/tokbytes.h"

/* The texts are views of the JSON values. An id that no token has stands for nothing. */
struct tokbytes_json {
	enum tokbytes_spelling spelling;
	struct gguf_str *tokens; /* owned, (n_tokens) */
	int32_t *types;          /* owned, (n_tokens), GGUF's numbers */
	size_t n_tokens;         /* one more than the highest id */
};

/* root: the whole file. ST_INVALID, ST_LIMIT: the text names the place. Release it in any case. */
int tokbytes_json_read(struct tokbytes_json *t, const struct jsonplace *root) MUST_CHECK;
void tokbytes_json_release(struct tokbytes_json *t);

/* path: a tokenizer.json, or a folder that holds one. out: its path, of at least 4400 bytes; shown: how messages call
 * it. */
void tokbytes_json_path(const char *path, char *out, size_t cap, struct quote *shown);

/* For constrained decoding: as tokbytes_from_gguf(). ST_NOT_FOUND: no such file. */
int tokbytes_from_json(struct tokbytes **out, const char *path, struct errbuf *err) MUST_CHECK;

#endif
