/* spm.h - SentencePiece's side of the tokenizer: a text as characters that have tokens, and where it can be cut.
 *
 * Inside the tokenizer only. SentencePiece merges over the whole text. That is the same as merging between two places
 * where no token goes across; such places are found by the pairs of bytes that lie inside tokens. */
#ifndef SLUICE_SPM_H
#define SLUICE_SPM_H

#include "common/base.h"

struct strbuf;
struct vocab;

struct spm {
	uint32_t ascii_ids[128]; /* TOKEN_NONE: no token */
	uint64_t inside[256][4]; /* bit b of row a: the bytes a, b are neighbours in some token, or may become so */
};

/* unk: as for spm_ids(). */
void spm_init(struct spm *m, const struct vocab *v, uint32_t unk);

static inline bool spm_may_join(const struct spm *m, unsigned char a, unsigned char b)
{
	return m->inside[a][b >> 6] >> (b & 63) & 1;
}

/* Length of the stretch of s[0..len), len > 0, up to the first place that no token goes across. */
size_t spm_word(const struct spm *m, const char *s, size_t len);

/* Each character's token, else the tokens of its bytes, else unk (TOKEN_NONE: nothing). ids has room for len. With
 * fuse, neighbouring unknown characters are one. Returns the number of ids. */
size_t spm_ids(const struct spm *m, const struct vocab *v, const char *s, size_t len, uint32_t unk, bool fuse, uint32_t *ids);

/* Appends the text with U+2581 as spaces. */
void spm_spaces(const char *s, size_t len, struct strbuf *out);

#endif
