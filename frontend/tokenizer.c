/* tokenizer.c - see tokenizer.h. Joins the parts: the vocabulary (vocab.c), the words (pretok.c) and the merges
 * (bpe.c); what a model file says is read in tokenizer_gguf.c.
 *
 * Encoding: the stretches are repaired and joined; special and added tokens are cut out, the leftmost and longest
 * first; what lies between is cut into words; each word becomes the tokens of its bytes, which are merged. A byte for
 * which the vocabulary has no token is left out. The tokenizer itself never changes: all working memory belongs to the
 * call. */
#include "frontend/tokenizer.h"

#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/bpe.h"
#include "frontend/pretok.h"
#include "frontend/vocab.h"

#include <string.h>
#include <utf8proc.h>

#define STOP_IDS_MAX 16

struct tokenizer {
	struct vocab vocab;
	struct bpe bpe;
	struct pretok *pretok; /* owned */
	uint32_t bos, eos;
	bool add_bos;
	uint32_t stop_ids[STOP_IDS_MAX];
	size_t n_stop_ids;
};

/* ---- token_vec ---- */

void token_vec_init(struct token_vec *v, size_t len_max)
{
	*v = (struct token_vec){.len_max = len_max};
}

void token_vec_release(struct token_vec *v)
{
	free(v->ids);
	*v = (struct token_vec){0};
}

void token_vec_push(struct token_vec *v, uint32_t id)
{
	if (v->len >= v->len_max) {
		v->overflow = true;
		return;
	}
	mem_reserve(v->ids, v->cap, v->len + 1);
	v->ids[v->len++] = id;
}

/* ---- making one ---- */

static void tokenizer_add_stop(struct tokenizer *t, uint32_t id)
{
	if (id == TOKEN_NONE || t->n_stop_ids == STOP_IDS_MAX) return;
	for (size_t i = 0; i < t->n_stop_ids; i++)
		if (t->stop_ids[i] == id) return;
	t->stop_ids[t->n_stop_ids++] = id;
}

/* Files often name only one of the tokens that end a turn; these names mean it wherever they are control tokens. */
static void tokenizer_find_stops(struct tokenizer *t, const struct vocab_lists *l)
{
	static const char *const names[] = {
		"<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>",
		"<end_of_turn>", "<|return|>", "<|call|>",   "<|end|>",
	};
	bool harmony = vocab_find_added(&t->vocab, "<|return|>", 10) !=
		       TOKEN_NONE; /* there <|end|> ends a message, not the turn */

	tokenizer_add_stop(t, l->eos);
	tokenizer_add_stop(t, l->eot);
	tokenizer_add_stop(t, l->eom);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		uint32_t id = vocab_find_added(&t->vocab, names[i], strlen(names[i]));

		if (harmony && strcmp(names[i], "<|end|>") == 0) continue;
		if (id != TOKEN_NONE && t->vocab.kinds[id] == VOCAB_SPECIAL) tokenizer_add_stop(t, id);
	}
}

static int tokenizer_check_id(const struct vocab_lists *l, const char *name, uint32_t id, struct errbuf *err)
{
	if (id == TOKEN_NONE || id < l->n_tokens) return ST_OK;
	return err_set(err, ST_INVALID,
		       "%s: tokenizer.ggml.%s_token_id is %u; expected an id of the vocabulary, 0 to %zu", l->file,
		       name, id, l->n_tokens - 1);
}

static int tokenizer_fill(struct tokenizer *t, struct vocab_index *index, const struct vocab_lists *l,
			  struct errbuf *err)
{
	int rc = pretok_new(&t->pretok, l->pre, l->file, err);

	if (rc == ST_OK) rc = vocab_init(&t->vocab, index, l, err);
	if (rc == ST_OK) rc = bpe_init(&t->bpe, &t->vocab, index, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "bos", l->bos, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "eos", l->eos, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "eot", l->eot, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "eom", l->eom, err);
	if (rc != ST_OK) return rc;

	t->bos = l->bos;
	t->eos = l->eos;
	t->add_bos = l->bos != TOKEN_NONE && (l->add_bos < 0 ? pretok_add_bos(t->pretok) : l->add_bos == 1);
	tokenizer_find_stops(t, l);
	return ST_OK;
}

int tokenizer_from_lists(struct tokenizer **out, const struct vocab_lists *l, struct errbuf *err)
{
	struct tokenizer *t = mem_new(struct tokenizer);
	struct vocab_index index = {0};
	int rc = tokenizer_fill(t, &index, l, err);

	vocab_index_release(&index);
	if (rc != ST_OK) {
		tokenizer_free(t);
		t = NULL;
	}
	*out = t;
	return rc;
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t) return;
	pretok_free(t->pretok);
	bpe_release(&t->bpe);
	vocab_release(&t->vocab);
	free(t);
}

/* ---- encoding ---- */

/* The joined, repaired text of one call, and where special tokens are allowed. */
struct encode_text {
	const char *s;
	size_t len;
	char *owned; /* free() it; NULL when s is the caller's */
	struct encode_span {
		size_t start, end;
	} * allowed; /* in order, apart from each other */
	size_t n_allowed;
};

struct encode {
	const struct tokenizer *t;
	struct token_vec *out;
	uint32_t *ids; /* of the word */
	size_t ids_cap;
	struct bpe_scratch scratch;
};

static void text_allow(struct encode_text *x, size_t start, size_t end)
{
	if (start == end) return;
	if (x->n_allowed > 0 && x->allowed[x->n_allowed - 1].end == start)
		x->allowed[x->n_allowed - 1].end = end;
	else
		x->allowed[x->n_allowed++] = (struct encode_span){start, end};
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

	*x = (struct encode_text){.allowed = mem_array(struct encode_span, n_parts + 1)};
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

/* One word: its bytes' tokens, merged. */
static bool encode_word(void *ctx, const char *word, size_t len)
{
	struct encode *e = ctx;
	const struct tokenizer *t = e->t;
	size_t n = 0;

	if (pretok_whole_words(t->pretok)) {
		uint32_t id = vocab_find_plain(&t->vocab, word, len);

		if (id != TOKEN_NONE) {
			token_vec_push(e->out, id);
			return !e->out->overflow;
		}
	}
	mem_reserve(e->ids, e->ids_cap, len);
	for (size_t i = 0; i < len; i++) {
		uint32_t id = t->vocab.byte_ids[(unsigned char)word[i]];

		if (id != TOKEN_NONE) e->ids[n++] = id;
	}
	/* So long that it cannot fit: do not spend the time to know how much too long. */
	if (n / t->vocab.token_len_max > e->out->len_max - e->out->len) {
		e->out->overflow = true;
		return false;
	}
	if (n > 1) n = bpe_merge(&t->bpe, e->ids, n, &e->scratch);
	for (size_t i = 0; i < n && !e->out->overflow; i++) token_vec_push(e->out, e->ids[i]);
	return !e->out->overflow;
}

/* Text without special or added tokens. */
static void encode_stretch(struct encode *e, const char *s, size_t len)
{
	utf8proc_uint8_t *nfc = NULL;
	utf8proc_ssize_t nfc_len;
	size_t i = 0;

	if (pretok_nfc(e->t->pretok)) {
		while (i < len && (unsigned char)s[i] < 0x80) i++; /* ASCII is NFC */
		if (i < len) {
			nfc_len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)len, &nfc,
					       UTF8PROC_STABLE | UTF8PROC_COMPOSE);
			if (nfc_len >= 0) {
				s = (const char *)nfc;
				len = (size_t)nfc_len;
			}
		}
	}
	pretok_split(e->t->pretok, s, len, encode_word, e);
	free(nfc);
}

static void encode_text(struct encode *e, const struct encode_text *x)
{
	const struct vocab *v = &e->t->vocab;
	size_t done = 0, at = 0, span = 0;

	while (at < x->len && !e->out->overflow) {
		size_t special_len = 0, len;
		uint32_t id;

		if (!v->added_first[(unsigned char)x->s[at]]) {
			at++;
			continue;
		}
		while (span < x->n_allowed && x->allowed[span].end <= at) span++;
		if (span < x->n_allowed && x->allowed[span].start <= at) special_len = x->allowed[span].end - at;
		id = vocab_match(v, x->s + at, x->len - at, special_len);
		if (id == TOKEN_NONE) {
			at++;
			continue;
		}
		if (at > done) encode_stretch(e, x->s + done, at - done);
		if (!e->out->overflow) token_vec_push(e->out, id);
		vocab_bytes(v, id, &len);
		at += len;
		done = at;
	}
	if (done < x->len && !e->out->overflow) encode_stretch(e, x->s + done, x->len - done);
}

void tokenizer_encode_parts(const struct tokenizer *t, const struct token_part *parts, size_t n_parts,
			    struct token_vec *out)
{
	struct encode e = {.t = t, .out = out};
	struct encode_text x;

	text_init(&x, parts, n_parts);
	encode_text(&e, &x);
	text_release(&x);
	free(e.ids);
	bpe_scratch_release(&e.scratch);
}

void tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool allow_special,
		      struct token_vec *out)
{
	struct token_part part = {.text = text, .len = len, .allow_special = allow_special};

	tokenizer_encode_parts(t, &part, 1, out);
}

/* ---- questions ---- */

uint32_t tokenizer_vocab_size(const struct tokenizer *t)
{
	return t->vocab.n;
}

uint32_t tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

uint32_t tokenizer_eos(const struct tokenizer *t)
{
	return t->eos;
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
	return t->add_bos;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
	return id < t->vocab.n && t->vocab.kinds[id] == VOCAB_SPECIAL;
}

const uint32_t *tokenizer_stop_ids(const struct tokenizer *t, size_t *n)
{
	*n = t->n_stop_ids;
	return t->stop_ids;
}

uint32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
	uint32_t id = vocab_find_added(&t->vocab, text, len);

	return id != TOKEN_NONE ? id : vocab_find_plain(&t->vocab, text, len);
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *len)
{
	if (id < t->vocab.n) return vocab_bytes(&t->vocab, id, len);
	*len = 0;
	return "";
}
