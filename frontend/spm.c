/* spm.c - see spm.h. */
#include "frontend/spm.h"

#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"

#include <string.h>

void spm_init(struct spm *m, const struct vocab *v, uint32_t unk)
{
	bool drops = false;

	/* Where an unknown character is dropped, its neighbours may be joined: no place is known to be one to cut. */
	for (unsigned b = 0; b < 256 && unk == TOKEN_NONE; b++) drops |= v->byte_ids[b] == TOKEN_NONE;
	memset(m->inside, drops ? 0xff : 0, sizeof(m->inside));
	for (unsigned c = 0; c < 128; c++) m->ascii_ids[c] = vocab_find_plain(v, &(char){(char)c}, 1);
	for (uint32_t i = 0; i < v->n; i++) {
		size_t len;
		const unsigned char *s = (const unsigned char *)vocab_bytes(v, i, &len);

		/* Merges may make a token that is added, too. */
		if (v->tokens->kinds[i] == TOKBYTES_SPECIAL) continue;
		for (size_t k = 1; k < len; k++) m->inside[s[k - 1]][s[k] >> 6] |= 1ull << (s[k] & 63);
	}
}

size_t spm_word(const struct spm *m, const char *s, size_t len)
{
	size_t i = 1;

	/* A byte inside a character never is a place to cut, whether or not a token has the character. */
	while (i < len && (spm_may_join(m, (unsigned char)s[i - 1], (unsigned char)s[i]) || ((unsigned char)s[i] & 0xc0) == 0x80)) i++;
	return i;
}

size_t spm_ids(const struct spm *m, const struct vocab *v, const char *s, size_t len, uint32_t unk, bool fuse, uint32_t *ids)
{
	bool was_unk = false;
	size_t n = 0;

	for (size_t i = 0, step; i < len; i += step) {
		uint32_t cp, id;
		size_t have = 0;

		step = (unsigned char)s[i] < 0x80 ? 1 : (size_t)utf8_decode(s + i, &cp);
		id = step == 1 ? m->ascii_ids[(unsigned char)s[i]] : vocab_find_plain(v, s + i, step);
		if (id != TOKEN_NONE) {
			ids[n++] = id;
			was_unk = false;
			continue;
		}
		while (have < step && v->byte_ids[(unsigned char)s[i + have]] != TOKEN_NONE) have++;
		if (have == step) {
			for (size_t k = 0; k < step; k++) ids[n++] = v->byte_ids[(unsigned char)s[i + k]];
			was_unk = false;
		} else if (unk != TOKEN_NONE) {
			if (!was_unk || !fuse) ids[n++] = unk;
			was_unk = true;
		}
	}
	return n;
}

void spm_spaces(const char *s, size_t len, struct strbuf *out)
{
	const char *mark;

	while (len > 0 && (mark = memmem(s, len, VOCAB_SPACE, 3)) != NULL) {
		strbuf_append(out, s, (size_t)(mark - s));
		strbuf_putc(out, ' ');
		len -= (size_t)(mark - s) + 3;
		s = mark + 3;
	}
	strbuf_append(out, s, len);
}
