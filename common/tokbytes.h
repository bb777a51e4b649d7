/* tokbytes.h - what each token of a vocabulary stands for in bytes, from a model file.
 *
 * The tokenizer (frontend/) and constrained decoding (worker/) read it from here, so they cannot disagree. */
#ifndef SLUICE_TOKBYTES_H
#define SLUICE_TOKBYTES_H

#include "common/base.h"
#include "common/errbuf.h"

struct gguf;

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

/* Kinds of vocabulary: "gpt2" (byte-level BPE) and "llama" (SentencePiece: U+2581 is a space, <0xNN> a byte). */
int tokbytes_from_gguf(struct tokbytes **out, const struct gguf *g, struct errbuf *err) MUST_CHECK;
void tokbytes_free(struct tokbytes *t);

static inline const char *tokbytes_of(const struct tokbytes *t, uint32_t id, size_t *len)
{
	*len = t->offs[id + 1] - t->offs[id];
	return t->bytes + t->offs[id];
}

#endif
