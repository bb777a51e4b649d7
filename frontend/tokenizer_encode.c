/* tokenizer_encode.c - texts to ids; see tokenizer.h.
 *
 * The stretches of a call are repaired and joined; special and added tokens are cut out, the leftmost and longest first;
 * what lies between is normalised, cut into words, and each word becomes the tokens of its bytes or characters, which are
 * merged. A byte for which the vocabulary has no token is left out. The tokenizer itself never changes: all working memory
 * belongs to the call, or to the caller, whose next texts will have most of the same words. */
#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/onigre.h"
#include "frontend/tokenizer_impl.h"
#include "frontend/wordcache.h"

#include <string.h>

#define ENCODE_GROWTH_MAX 18 /* times longer by normalising: U+FDFA, 3 bytes, becomes 33 in NFKC; twice that is a file's own doing */

/* The joined, repaired text of one call, and where special tokens are allowed. */
struct encode_text {
	const char *s;
	size_t len;
	char *owned; /* free() it; NULL when s is the caller's */
	struct addtok_span *allowed; /* in order, apart from each other */
	size_t n_allowed;
};

struct tokenizer_work {
	const struct tokenizer *t;
	uint32_t *ids; /* of the word */
	size_t ids_cap;
	struct wordcache cache;
	struct bpe_scratch scratch;
	struct strbuf normal, spaced, chars; /* the stretch, normalised; with a space in front; its spaces as such */
	struct onigre_match *match;
};

struct encode {
	const struct tokenizer *t;
	struct token_vec *out;
	bool ends_unk; /* the last word's last id is the unknown token, which may go on */
	size_t span;   /* the first of the allowed ones that does not end before the stretch */
	struct tokenizer_work *w;
};

static void text_allow(struct encode_text *x, size_t start, size_t end)
{
	if (start == end) return;
	if (x->n_allowed > 0 && x->allowed[x->n_allowed - 1].end == start)
		x->allowed[x->n_allowed - 1].end = end;
	else
		x->allowed[x->n_allowed++] = (struct addtok_span){start, end};
}

static void repair_append(struct strbuf *out, const char *s, size_t len)
{
	size_t at = 0;

	while (at < len) {
		size_t whole = utf8_valid_len(s + at, len - at);
		bool cut;

		strbuf_append(out, s + at, whole);
		at += whole;
		if (at == len) break;
		at += (size_t)-utf8_next(s + at, len - at, &cut);
		strbuf_append(out, UTF8_REPLACEMENT, 3);
	}
}

static void text_init(struct encode_text *x, const struct token_part *parts, size_t n_parts)
{
	struct strbuf joined;

	*x = (struct encode_text){.allowed = mem_array(struct addtok_span, n_parts + 1)};
	if (n_parts == 1 && utf8_valid_len(parts[0].text, parts[0].len) == parts[0].len) {
		x->s = parts[0].text;
		x->len = parts[0].len;
		if (parts[0].allow_special) text_allow(x, 0, x->len);
		return;
	}
	strbuf_init(&joined, SIZE_MAX / 4);
	for (size_t i = 0; i < n_parts; i++) {
		size_t start = joined.len;

		repair_append(&joined, parts[i].text, parts[i].len);
		if (parts[i].allow_special) text_allow(x, start, joined.len);
	}
	x->len = joined.len;
	x->owned = strbuf_take(&joined);
	x->s = x->owned;
}

static void text_release(struct encode_text *x)
{
	free(x->owned);
	free(x->allowed);
}

/* ---- words ---- */

/* The symbols of a word before merging. */
static size_t encode_symbols(struct encode *e, const char *word, size_t len)
{
	const struct tokenizer *t = e->t;
	size_t n = 0;

	mem_reserve(e->w->ids, e->w->ids_cap, len);
	if (t->spelling == TOKBYTES_LLAMA) return spm_ids(t->spm, &t->vocab, word, len, t->unk, t->unk_fused, e->w->ids);
	for (size_t i = 0; i < len; i++) {
		uint32_t id = t->vocab.byte_ids[(unsigned char)word[i]];

		if (id != TOKEN_NONE) e->w->ids[n++] = id;
	}
	return n;
}

/* The word's ids into e->w->ids; false: there are more than can be taken. */
static bool encode_ids(struct encode *e, const char *word, size_t len, size_t *n)
{
	const struct tokenizer *t = e->t;
	uint32_t id = t->whole_words ? vocab_find_plain(&t->vocab, word, len) : TOKEN_NONE;

	if (id != TOKEN_NONE) {
		mem_reserve(e->w->ids, e->w->ids_cap, 1);
		e->w->ids[0] = id;
		*n = 1;
		return true;
	}
	*n = encode_symbols(e, word, len);
	/* So long that it cannot fit: do not spend the time to know how much too long. */
	if (*n / t->vocab.token_len_max > e->out->len_max - e->out->len) return false;
	if (*n > 1) *n = bpe_merge(&t->bpe, e->w->ids, *n, &e->w->scratch);
	return true;
}

static bool encode_word(void *ctx, const char *word, size_t len)
{
	struct encode *e = ctx;
	const struct tokenizer *t = e->t;
	struct wordcache_entry *entry = wordcache_find(&e->w->cache, word, len);
	size_t n, skip;

	if (entry && entry->len > 0) {
		e->ends_unk = false;
		token_vec_append(e->out, entry->ids, entry->n);
		return !e->out->overflow;
	}
	if (!encode_ids(e, word, len, &n)) {
		e->out->overflow = true;
		return false;
	}
	/* Unknown characters on both sides of a cut between words are one: such words are not kept. */
	skip = n > 0 && e->ends_unk && e->w->ids[0] == t->unk;
	token_vec_append(e->out, e->w->ids + skip, n - skip);
	e->ends_unk = t->unk_fused && (n > 0 ? e->w->ids[n - 1] == t->unk : e->ends_unk);
	if (entry && n > 0 && e->w->ids[0] != t->unk && !e->ends_unk) wordcache_put(entry, word, len, e->w->ids, n);
	return !e->out->overflow;
}

/* SentencePiece: the places that no token goes across are borders of words. */
static bool encode_chars(void *ctx, const char *s, size_t len)
{
	struct encode *e = ctx;

	if (memmem(s, len, VOCAB_SPACE, 3)) {
		strbuf_reset(&e->w->chars);
		spm_spaces(s, len, &e->w->chars);
		s = e->w->chars.data;
		len = e->w->chars.len;
	}
	if (e->t->whole_words) return encode_word(ctx, s, len);
	while (len > 0) {
		size_t n = spm_word(e->t->spm, s, len);

		if (!encode_word(ctx, s, n)) return false;
		s += n;
		len -= n;
	}
	return true;
}

/* ---- stretches ---- */

/* Text without special or added tokens, normalised. */
static void encode_plain(struct encode *e, const char *s, size_t len, bool first)
{
	const struct tokenizer *t = e->t;
	bool chars = t->spelling == TOKBYTES_LLAMA, prefix = t->prefix == VOCAB_PREFIX_ALWAYS;
	pretok_fn *fn = chars ? encode_chars : encode_word;

	if (t->prefix == VOCAB_PREFIX_UNLESS || (t->prefix == VOCAB_PREFIX_FIRST && first))
		prefix = s[0] != ' ' && (!chars || len < 3 || memcmp(s, VOCAB_SPACE, 3) != 0);
	if (prefix) {
		strbuf_reset(&e->w->spaced);
		strbuf_putc(&e->w->spaced, ' ');
		strbuf_append(&e->w->spaced, s, len);
		s = e->w->spaced.data;
		len = e->w->spaced.len;
	}
	e->ends_unk = false;
	if (t->words)
		pretok_split(t->words, e->w->match, s, len, fn, e);
	else if (len > 0)
		fn(e, s, len);
}

/* Text without those tokens that are looked for as it came. Special ones are recognised all over it or nowhere. */
static void encode_stretch(struct encode *e, const char *s, size_t len, bool first, bool special)
{
	const struct tokenizer *t = e->t;
	struct addtok_span all;
	struct addtok_scan scan = {.spans = &all, .n_spans = special};
	struct addtok_match m;
	size_t done = 0;

	if (t->norm && !textnorm_run(t->norm, &s, &len, &e->w->normal)) {
		e->out->overflow = true;
		return;
	}
	all = (struct addtok_span){0, len};
	scan.s = s;
	scan.len = len;
	while (!e->out->overflow && addtok_next(&t->added_normal, &scan, &m)) {
		if (m.from > done) encode_plain(e, s + done, m.from - done, first && done == 0);
		if (!e->out->overflow) token_vec_push(e->out, m.id);
		done = m.to;
	}
	if (done < len && !e->out->overflow) encode_plain(e, s + done, len - done, first && done == 0);
}

/* In a normalised text places are others, so special tokens are recognised there where the whole stretch allows them. */
static void encode_between(struct encode *e, const struct encode_text *x, size_t from, size_t to)
{
	bool special;

	while (e->span < x->n_allowed && x->allowed[e->span].end <= from) e->span++;
	special = e->span < x->n_allowed && x->allowed[e->span].start <= from && to <= x->allowed[e->span].end;
	encode_stretch(e, x->s + from, to - from, from == 0, special);
}

static void encode_text(struct encode *e, const struct encode_text *x)
{
	struct addtok_scan scan = {.s = x->s, .len = x->len, .spans = x->allowed, .n_spans = x->n_allowed};
	struct addtok_match m;
	size_t done = 0;

	while (!e->out->overflow && addtok_next(&e->t->added, &scan, &m)) {
		if (m.from > done) encode_between(e, x, done, m.from);
		if (!e->out->overflow) token_vec_push(e->out, m.id);
		done = m.to;
	}
	if (done < x->len && !e->out->overflow) encode_between(e, x, done, x->len);
}

/* ---- working memory ---- */

/* text_len: of all that it will be used for. */
static void work_init(struct tokenizer_work *w, const struct tokenizer *t, size_t text_len)
{
	*w = (struct tokenizer_work){.t = t};
	strbuf_init(&w->normal, 0);
	strbuf_init(&w->spaced, SIZE_MAX / 4);
	strbuf_init(&w->chars, SIZE_MAX / 4);
	wordcache_init(&w->cache, text_len);
	w->match = onigre_match_new();
}

static void work_release(struct tokenizer_work *w)
{
	wordcache_release(&w->cache);
	strbuf_release(&w->normal);
	strbuf_release(&w->spaced);
	strbuf_release(&w->chars);
	free(w->ids);
	bpe_scratch_release(&w->scratch);
	onigre_match_free(w->match);
}

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t)
{
	struct tokenizer_work *w = mem_new(struct tokenizer_work);

	work_init(w, t, SIZE_MAX);
	return w;
}

void tokenizer_work_free(struct tokenizer_work *w)
{
	if (!w) return;
	work_release(w);
	free(w);
}

/* ---- the whole ---- */

void tokenizer_encode_parts_in(const struct tokenizer *t, struct tokenizer_work *w, const struct token_part *parts, size_t n_parts,
			       struct token_vec *out)
{
	struct encode e = {.t = t, .out = out};
	struct tokenizer_work own;
	struct encode_text x;

	CHECK(!w || w->t == t);
	text_init(&x, parts, n_parts);
	if (!w) work_init(&own, t, x.len);
	e.w = w ? w : &own;
	e.w->normal.len_max = x.len > SIZE_MAX / 64 ? x.len : x.len * ENCODE_GROWTH_MAX + 4096;
	encode_text(&e, &x);
	if (!w) work_release(&own);
	text_release(&x);
}

void tokenizer_encode_parts(const struct tokenizer *t, const struct token_part *parts, size_t n_parts, struct token_vec *out)
{
	tokenizer_encode_parts_in(t, NULL, parts, n_parts, out);
}

void tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool allow_special,
		      struct token_vec *out)
{
	struct token_part part = {.text = text, .len = len, .allow_special = allow_special};

	tokenizer_encode_parts_in(t, NULL, &part, 1, out);
}
