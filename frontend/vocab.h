/* vocab.h - the tokens of a vocabulary: their bytes, their kinds, and the ways to find one.
 *
 * Inside the tokenizer only; other files use tokenizer.h. */
#ifndef SLUICE_VOCAB_H
#define SLUICE_VOCAB_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/gguf.h"
#include "model/tokbytes.h"

struct pretok;
struct textnorm;

#define VOCAB_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's spelling of a space */

struct vocab_merge {
	struct gguf_str left, right; /* spelled */
};

/* An added token as tokenizer.json describes it. */
struct vocab_added {
	uint32_t id;
	struct gguf_str text; /* what stands for it in a text */
	bool normalized;      /* looked for after the text was normalised (text is normalised too), else before */
	bool lstrip, rstrip;  /* takes the white space on its left, its right, with it */
	bool single_word;     /* only where no letter, digit or underscore is next to it */
};

/* What a text in front of the first word, or of each stretch between added tokens, begins with. */
enum vocab_prefix {
	VOCAB_PREFIX_NONE,
	VOCAB_PREFIX_ALWAYS, /* a space, each stretch */
	VOCAB_PREFIX_UNLESS, /* a space, each stretch that does not begin with one */
	VOCAB_PREFIX_FIRST,  /* a space, if there is none, where the stretch begins the text */
};

/* A tokenizer as lists, whatever file it came from; all of it is borrowed until tokenizer_from_lists() returns, but for
 * norm and words, which it takes in any case. */
struct vocab_lists {
	const char *file;       /* for messages */
	const char *key_tokens; /* where the file has its tokens and merges, for messages; NULL: GGUF's keys */
	const char *key_merges;
	enum tokbytes_spelling spelling;
	const struct gguf_str *tokens; /* one without text is none: its id is never made and stands for nothing */
	size_t n_tokens;
	const int32_t *types; /* GGUF's numbers, n_tokens of them; NULL: all are normal */
	const struct vocab_merge *merges; /* the most important first */
	size_t n_merges;
	const float *scores; /* without merges: whatever makes a token is joined, the best score first */
	const struct vocab_added *added; /* NULL: special and user-defined tokens by their own texts */
	size_t n_added;
	const char *pre;       /* name of the pre-tokenizer expressions, "smollm"; NULL: words */
	struct pretok *words;  /* NULL: the text is one word */
	struct textnorm *norm; /* NULL: texts stay as they are */
	enum vocab_prefix prefix;
	bool whole_words;      /* a word that is a token is that token, whatever merges would give */
	bool strip_first;      /* the space at the beginning of a decoded text is not shown */
	bool unk_fused;        /* neighbouring unknown characters are one unknown token */
	uint32_t unk;          /* what a character becomes that has neither token nor bytes; TOKEN_NONE: nothing */
	uint32_t bos, eos;     /* TOKEN_NONE: none */
	uint32_t eot, eom;     /* further ends of a generation */
	const uint32_t *stops; /* and more of them */
	size_t n_stops;
	int add_bos; /* 1, 0, or -1: as the family of `pre` does */
};

/* Merges may be written as "left right"; false when no space stands between two tokens. */
bool vocab_split_merge(struct gguf_str text, struct vocab_merge *out);

/* Open hash table of token ids; the caller compares. */
struct vocab_table {
	uint32_t *slots; /* id + 1; 0: free */
	size_t mask;
};

struct vocab {
	uint32_t n;
	struct tokbytes *tokens;  /* their bytes and kinds */
	size_t token_len_max;     /* bytes of the longest token, at least 1 */
	struct vocab_table plain; /* plain tokens by their bytes, but not SentencePiece's tokens of single bytes */
	uint32_t byte_ids[256];   /* TOKEN_NONE: the vocabulary has no token for the byte */
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
	return tokbytes_of(v->tokens, id, len);
}

/* The plain token with exactly these bytes, or TOKEN_NONE. */
uint32_t vocab_find_plain(const struct vocab *v, const char *s, size_t len);

#endif
