/* pretok.h - cuts a text into the words in which merges happen.
 *
 * Inside the tokenizer only. The expressions of each model family are a row of a table in pretok.c, found by the name
 * that GGUF gives in tokenizer.ggml.pre. */
#ifndef SLUICE_PRETOK_H
#define SLUICE_PRETOK_H

#include "common/base.h"
#include "common/errbuf.h"

struct pretok;

/* file is for messages. An unknown name is refused with ST_UNSUPPORTED. */
int pretok_new(struct pretok **out, const char *pre, const char *file, struct errbuf *err) MUST_CHECK;
void pretok_free(struct pretok *p);

bool pretok_add_bos(
	const struct pretok *p); /* the family begins a plain text with BOS unless the file says otherwise */
bool pretok_whole_words(const struct pretok *p); /* a word that is a token is that token, whatever merges would give */
bool pretok_nfc(const struct pretok *p);         /* texts are brought to Unicode's NFC first */

/* Receives one word; false ends the splitting. */
typedef bool pretok_fn(void *ctx, const char *word, size_t len);

/* Calls fn for each word of text[0..len) in order; the words together are the text. The text is well-formed UTF-8. */
void pretok_split(const struct pretok *p, const char *text, size_t len, pretok_fn *fn, void *ctx);

/* The known names, "gpt-2, smollm, ..." */
const char *pretok_names(char *buf, size_t cap);

#endif
