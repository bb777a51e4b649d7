/* tokbytes.h - what each token of a vocabulary stands for in bytes, from a model file or a
 * tokenizer.json.
 *
 * The tokenizer (frontend/) and constrained decoding (worker/) read it from here, so they cannot disagree. */
#ifndef SLUICE_TOKBYTES_H
#define SLUICE_TOKBYTES_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/gguf.h"

struct ckpt;

enum tokbytes_kind {
	TOKBYTES_PLAIN,   /* text */
	TOKBYTES_SPECIAL, /* control: its bytes are its name */
	TOKBYTES_ADDED,   /* user-defined: text that is one token */
	TOKBYTES_UNUSED
};

struct tokbytes {
	uint32_t n;
	uint32_t *offs; /* (n + 1) positions in bytes */
	char *bytes;
	uint8_t *kinds; /* (n) enum tokbytes_kind */
};

/* How a vocabulary's file spells bytes. */
enum tokbytes_spelling {
	TOKBYTES_GPT2, /* each byte as one printable character: "\xc4\xa0the" is " the" */
	TOKBYTES_LLAMA /* SentencePiece: U+2581 is a space, a token <0xNN> a byte */
};

/* A vocabulary as lists, whatever file it came from. */
struct tokbytes_lists {
	const char *file; /* for messages */
	enum tokbytes_spelling spelling;
	const struct gguf_str *tokens;
	size_t n_tokens;
	const int32_t *types; /* GGUF's numbers, n_tokens of them; NULL: all are normal */
};

/* By the name that tokenizer.ggml.model gives it: "gpt2", "llama". */
bool tokbytes_spelling_parse(struct gguf_str name, enum tokbytes_spelling *out);

/* ST_INVALID: no tokens, or types with unknown numbers; ST_LIMIT: more than the limits in tokbytes.c. */
int tokbytes_from_lists(struct tokbytes **out, const struct tokbytes_lists *l, struct errbuf *err) MUST_CHECK;
/* From the keys tokenizer.ggml.model, tokens and token_type. */
int tokbytes_from_gguf(struct tokbytes **out, const struct gguf *g, struct errbuf *err) MUST_CHECK;
/* What a worker's grammars need: the vocabulary of `tokenizer` (--tokenizer: a tokenizer.json or its folder) if it is given, else the
 * checkpoint's own, of the GGUF file or the tokenizer.json of the folder. Tokens beyond n_tokens, which the model cannot draw, are
 * left out; fewer are fine. */
int tokbytes_from_model(struct tokbytes **out, const struct ckpt *c, const char *tokenizer, uint32_t n_tokens, struct errbuf *err) MUST_CHECK;
void tokbytes_free(struct tokbytes *t);

static inline const char *tokbytes_of(const struct tokbytes *t, uint32_t id, size_t *len)
{
	*len = t->offs[id + 1] - t->offs[id];
	return t->bytes + t->offs[id];
}

#endif
