/* pretok.h - cuts a text into the words in which merges happen.
 *
 * Inside the tokenizer only. What cuts is a list of stages: those of each model family are a row of a table in pretok.c,
 * found by the name that GGUF gives in tokenizer.ggml.pre; those of a tokenizer.json are its own. */
#ifndef SLUICE_PRETOK_H
#define SLUICE_PRETOK_H

#include "common/base.h"
#include "common/errbuf.h"

struct onigre_match;
struct pretok;

#define PRETOK_STAGES_MAX 8

/* What becomes of the matches of an expression and of what lies between them. */
enum pretok_behavior {
	PRETOK_ISOLATED,    /* each is a word */
	PRETOK_REMOVED,     /* matches are dropped */
	PRETOK_WITH_BEFORE, /* a match ends the word before it */
	PRETOK_WITH_AFTER,  /* a match begins the word after it */
	PRETOK_CONTIGUOUS,  /* neighbouring matches are one word */
};

struct pretok_stage {
	const char *expr; /* PCRE2's spelling, see onigre.h; terminated */
	enum pretok_behavior behavior;
	bool invert; /* what lies between the matches takes their part */
};

/* file is for messages. An unknown name is refused with ST_UNSUPPORTED. */
int pretok_new(struct pretok **out, const char *pre, const char *file, struct errbuf *err) MUST_CHECK;
/* From stages, at most PRETOK_STAGES_MAX; an invalid expression is refused. */
int pretok_from_stages(struct pretok **out, const struct pretok_stage *stages, size_t n, struct errbuf *err) MUST_CHECK;
void pretok_free(struct pretok *p);

/* The i-th expression of a row; NULL: it has none. */
const char *pretok_expr(const struct pretok *p, size_t i);

/* GPT-2's expression, a stage of its own in tokenizer.json. */
const char *pretok_gpt2(void);

/* What the family of a row does besides, unless the file says otherwise. */
bool pretok_add_bos(const struct pretok *p);     /* begins a plain text with BOS */
bool pretok_whole_words(const struct pretok *p); /* a word that is a token is that token, whatever merges would give */
bool pretok_nfc(const struct pretok *p);         /* brings texts to Unicode's NFC first */

/* Receives one word; false ends the splitting. */
typedef bool pretok_fn(void *ctx, const char *word, size_t len);

/* Calls fn for each word of text[0..len) in order; the words together are the text, less what PRETOK_REMOVED drops. The
 * text is well-formed UTF-8. match: working memory. */
void pretok_split(const struct pretok *p, struct onigre_match *match, const char *text, size_t len, pretok_fn *fn, void *ctx);

/* The known names, "gpt-2, smollm, ..." */
const char *pretok_names(char *buf, size_t cap);

#endif
