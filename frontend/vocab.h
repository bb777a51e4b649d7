/* vocab.h - the tokens of a byte-level BPE vocabulary: their bytes, their kinds, and the ways to find one.
 *
 * Inside the tokenizer only; other files use tokenizer.h. */
#ifndef SLUICE_VOCAB_H
#define SLUICE_VOCAB_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/gguf.h"

/* A tokenizer as lists, whatever file it came from; all of it is borrowed until tokenizer_from_lists() returns.
 * Tokens and merges are spelled as in GGUF and tokenizer.json: each byte as one printable character ("\xc4\xa0the" is "
 * the"). */
struct vocab_lists {
	const char *file; /* for messages */
	const char *pre;  /* name of the pre-tokenizer expressions, "smollm" */
	const struct gguf_str *tokens;
	size_t n_tokens;
	const int32_t *types;          /* GGUF's numbers, n_tokens of them; NULL: all are normal */
	const struct gguf_str *merges; /* "left right", the most important first */
	size_t n_merges;
	uint32_t bos, eos; /* TOKEN_NONE: none */
	uint32_t eot, eom; /* further ends of a generation */
	int add_bos;       /* 1, 0, or -1: as the family of `pre` does */
};

enum vocab_kind {
	VOCAB_PLAIN,   /* made by merges */
	VOCAB_SPECIAL, /* control: recognised where the caller allows it */
	VOCAB_ADDED,   /* user-defined: recognised everywhere */
	VOCAB_UNUSED,  /* never made from text */
};

/* Open hash table of token ids; the caller compares. */
struct vocab_table {
	uint32_t *slots; /* id + 1; 0: free */
	size_t mask;
};

struct vocab {
	uint32_t n;
	char *bytes;              /* of all tokens, one after the other */
	uint32_t *offs;           /* n + 1 positions in bytes */
	uint8_t *kinds;           /* enum vocab_kind */
	size_t token_len_max;     /* bytes of the longest token, at least 1 */
	struct vocab_table plain; /* plain tokens by their bytes */
	uint32_t byte_ids[256];   /* TOKEN_NONE: the vocabulary has no token for the byte */
	uint32_t *added;          /* special and added tokens, sorted by their bytes */
	size_t n_added;
	bool added_first[256]; /* bytes that one of them begins with */
};

/* Token ids by their spelling; needed only while merges are read. */
struct vocab_index {
	struct vocab_table table;
	const struct vocab_lists *lists;
};

/* Fills v and, for reading merges, index (released with vocab_index_release() in any case). */
int vocab_init(struct vocab *v, struct vocab_index *index, const struct vocab_lists *l, struct errbuf *err) MUST_CHECK;
void vocab_release(struct vocab *v);

void vocab_index_release(struct vocab_index *index);
uint32_t vocab_index_find(const struct vocab_index *index, const char *text, size_t len);

static inline const char *vocab_bytes(const struct vocab *v, uint32_t id, size_t *len)
{
	*len = v->offs[id + 1] - v->offs[id];
	return v->bytes + v->offs[id];
}

/* The plain token with exactly these bytes, or TOKEN_NONE. */
uint32_t vocab_find_plain(const struct vocab *v, const char *s, size_t len);

/* The special or added token with exactly these bytes, or TOKEN_NONE. */
uint32_t vocab_find_added(const struct vocab *v, const char *s, size_t len);

/* The longest token that s[0..len) begins with among the added ones and, of at most special_len bytes, the special
 * ones; TOKEN_NONE when there is none. */
uint32_t vocab_match(const struct vocab *v, const char *s, size_t len, size_t special_len);

#endif
