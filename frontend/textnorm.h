/* textnorm.h - brings a text to the form that the vocabulary was made from, before it is cut into words.
 *
 * Inside the tokenizer only. A list of steps, as "normalizer" of tokenizer.json says or the family of a GGUF file asks for.
 * Immutable once made: any number of threads. */
#ifndef SLUICE_TEXTNORM_H
#define SLUICE_TEXTNORM_H

#include "common/base.h"

struct onigre;
struct strbuf;
struct textnorm;

#define TEXTNORM_STEPS_MAX 16

enum textnorm_kind {
	TEXTNORM_NFC,
	TEXTNORM_NFD,
	TEXTNORM_NFKC,
	TEXTNORM_NFKD,
	TEXTNORM_LOWER,   /* character by character */
	TEXTNORM_SQUEEZE, /* spaces at both ends are dropped, runs of them become one */
	TEXTNORM_STRIP,   /* white space at the beginning (left), at the end (right) */
	TEXTNORM_PREPEND, /* content, in front of a text that is not empty */
	TEXTNORM_REPLACE, /* each occurrence of pattern, or match of re, by content */
};

struct textnorm *textnorm_new(void);
void textnorm_free(struct textnorm *n);

/* Appends a step; false when there are TEXTNORM_STEPS_MAX. */
bool textnorm_add(struct textnorm *n, enum textnorm_kind kind);
bool textnorm_add_strip(struct textnorm *n, bool left, bool right);
bool textnorm_add_prepend(struct textnorm *n, const char *content, size_t len);
/* pattern is not empty. */
bool textnorm_add_replace(struct textnorm *n, const char *pattern, size_t pattern_len, const char *content, size_t len);
/* Takes re in any case. */
bool textnorm_add_replace_re(struct textnorm *n, struct onigre *re, const char *content, size_t len);

/* The steps done to s[0..len), well-formed UTF-8: *s and *len become the result, which lies in out, or the text itself
 * when nothing changes. out is emptied first. false: the text would become longer than out allows. */
bool textnorm_run(const struct textnorm *n, const char **s, size_t *len, struct strbuf *out);

#endif
