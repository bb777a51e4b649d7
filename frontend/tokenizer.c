/* tokenizer.c - see tokenizer.h. Puts the parts together and answers questions; encoding is in tokenizer_encode.c, what
 * files say is read in tokenizer_gguf.c and tokenizer_json.c. */
#include "frontend/tokenizer.h"

#include "common/mem.h"
#include "common/quote.h"
#include "frontend/tokenizer_impl.h"

#include <inttypes.h>
#include <string.h>

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

void token_vec_append(struct token_vec *v, const uint32_t *ids, size_t n)
{
	size_t fits = min_size(n, v->len_max - v->len);

	if (fits < n) v->overflow = true;
	if (fits == 0) return;
	mem_reserve(v->ids, v->cap, v->len + fits);
	memcpy(v->ids + v->len, ids, fits * sizeof(*ids));
	v->len += fits;
}

/* ---- making one ---- */

static void tokenizer_add_stop(struct tokenizer *t, uint32_t id)
{
	if (id == TOKEN_NONE || t->n_stop_ids == TOKENIZER_STOPS_MAX) return;
	for (size_t i = 0; i < t->n_stop_ids; i++)
		if (t->stop_ids[i] == id) return;
	t->stop_ids[t->n_stop_ids++] = id;
}

static uint32_t tokenizer_find_added(const struct tokenizer *t, const char *text, size_t len)
{
	uint32_t id = addtok_lookup(&t->added, text, len);

	return id != TOKEN_NONE ? id : addtok_lookup(&t->added_normal, text, len);
}

/* Files often name only one of the tokens that end a turn; these names mean it wherever they are control tokens. */
static void tokenizer_find_stops(struct tokenizer *t, const struct vocab_lists *l)
{
	static const char *const names[] = {
		"<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>",
		"<end_of_turn>", "<|return|>", "<|call|>",   "<|end|>",
	};
	/* There <|end|> ends a message, not the turn. */
	bool harmony = tokenizer_find_added(t, "<|return|>", 10) != TOKEN_NONE;

	tokenizer_add_stop(t, l->eos);
	tokenizer_add_stop(t, l->eot);
	tokenizer_add_stop(t, l->eom);
	for (size_t i = 0; i < l->n_stops; i++) tokenizer_add_stop(t, l->stops[i]);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		uint32_t id = tokenizer_find_added(t, names[i], strlen(names[i]));

		if (harmony && strcmp(names[i], "<|end|>") == 0) continue;
		if (id != TOKEN_NONE && t->vocab.tokens->kinds[id] == TOKBYTES_SPECIAL) tokenizer_add_stop(t, id);
	}
}

static int tokenizer_check_id(const struct vocab_lists *l, const char *name, uint32_t id, struct errbuf *err)
{
	if (id == TOKEN_NONE || id < l->n_tokens) return ST_OK;
	return err_set(err, ST_INVALID,
		       "%s: tokenizer.ggml.%s_token_id is %u; expected an id of the vocabulary, 0 to %zu", l->file,
		       name, id, l->n_tokens - 1);
}

/* What tokenizer.json says of the added tokens, and all that are special or added without that. */
static void tokenizer_fill_added(struct tokenizer *t, const struct vocab_lists *l)
{
	bool *told = mem_array(bool, l->n_tokens);

	for (size_t i = 0; i < l->n_added; i++) {
		const struct vocab_added *a = &l->added[i];
		struct addtok_entry e = {.id = a->id,
					 .special = t->vocab.tokens->kinds[a->id] == TOKBYTES_SPECIAL,
					 .lstrip = a->lstrip,
					 .rstrip = a->rstrip,
					 .single_word = a->single_word};

		addtok_add(a->normalized ? &t->added_normal : &t->added, e, a->text.s, a->text.len);
		told[a->id] = true;
	}
	for (uint32_t i = 0; i < t->vocab.n; i++) {
		struct addtok_entry e = {.id = i, .special = t->vocab.tokens->kinds[i] == TOKBYTES_SPECIAL};

		if (told[i] || (!e.special && t->vocab.tokens->kinds[i] != TOKBYTES_ADDED)) continue;
		addtok_add(&t->added, e, l->tokens[i].s, l->tokens[i].len);
	}
	addtok_sort(&t->added);
	addtok_sort(&t->added_normal);
	free(told);
}

static int tokenizer_fill_words(struct tokenizer *t, const struct vocab_lists *l, struct errbuf *err)
{
	int rc;

	if (!l->pre) return ST_OK;
	rc = pretok_new(&t->words, l->pre, l->file, err);
	if (rc != ST_OK) return rc;
	t->whole_words |= pretok_whole_words(t->words);
	if (pretok_nfc(t->words)) {
		if (!t->norm) t->norm = textnorm_new();
		textnorm_add(t->norm, TEXTNORM_NFC);
	}
	return ST_OK;
}

static int tokenizer_fill(struct tokenizer *t, struct vocab_index *index, const struct vocab_lists *l,
			  struct errbuf *err)
{
	int rc = tokenizer_fill_words(t, l, err);

	if (rc == ST_OK) rc = vocab_init(&t->vocab, index, l, err);
	if (rc == ST_OK) rc = bpe_init(&t->bpe, &t->vocab, index, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "bos", l->bos, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "eos", l->eos, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "eot", l->eot, err);
	if (rc == ST_OK) rc = tokenizer_check_id(l, "eom", l->eom, err);
	if (rc != ST_OK) return rc;

	t->spelling = l->spelling;
	if (t->spelling == TOKBYTES_LLAMA) {
		t->spm = mem_new(struct spm);
		spm_init(t->spm, &t->vocab, l->unk);
	}
	t->prefix = l->prefix;
	t->whole_words |= l->whole_words;
	t->strip_first = l->strip_first;
	t->unk_fused = l->unk_fused;
	t->unk = l->unk;
	t->bos = l->bos;
	t->eos = l->eos;
	t->add_bos = l->bos != TOKEN_NONE && (l->add_bos < 0 ? t->words && pretok_add_bos(t->words) : l->add_bos == 1);
	tokenizer_fill_added(t, l);
	tokenizer_find_stops(t, l);
	return ST_OK;
}

int tokenizer_from_lists(struct tokenizer **out, const struct vocab_lists *l, struct errbuf *err)
{
	struct tokenizer *t = mem_new(struct tokenizer);
	struct vocab_index index = {0};
	int rc;

	t->words = l->words;
	t->norm = l->norm;
	rc = tokenizer_fill(t, &index, l, err);
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
	pretok_free(t->words);
	textnorm_free(t->norm);
	addtok_release(&t->added);
	addtok_release(&t->added_normal);
	free(t->spm);
	free(t->chat_template);
	json_decref(t->named);
	bpe_release(&t->bpe);
	vocab_release(&t->vocab);
	free(t);
}

/* ---- questions ---- */

uint32_t tokenizer_vocab_size(const struct tokenizer *t)
{
	return t->vocab.n;
}

uint32_t tokenizer_n_ids(const struct tokenizer *t)
{
	return t->n_ids ? t->n_ids : t->vocab.n;
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
	return id < t->vocab.n && t->vocab.tokens->kinds[id] == TOKBYTES_SPECIAL;
}

const uint32_t *tokenizer_stop_ids(const struct tokenizer *t, size_t *n)
{
	*n = t->n_stop_ids;
	return t->stop_ids;
}

void tokenizer_add_stops(struct tokenizer *t, const uint32_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ids[i] < tokenizer_n_ids(t)) tokenizer_add_stop(t, ids[i]);
}

uint32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
	uint32_t id = tokenizer_find_added(t, text, len);

	return id != TOKEN_NONE ? id : vocab_find_plain(&t->vocab, text, len);
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *len)
{
	if (id < t->vocab.n) return vocab_bytes(&t->vocab, id, len);
	*len = 0;
	return "";
}

bool tokenizer_strip_first(const struct tokenizer *t)
{
	return t->strip_first;
}

const char *tokenizer_chat_template(const struct tokenizer *t)
{
	return t->chat_template;
}

const json_t *tokenizer_named(const struct tokenizer *t)
{
	return t->named;
}

#define SPARE_ROWS_MAX 2048 /* padding; published models have at most some 500 spare rows */

int tokenizer_fit(struct tokenizer *t, uint64_t n_rows, const char *model, struct errbuf *err)
{
	uint32_t n = t->vocab.n;

	while (n > n_rows && t->vocab.tokens->kinds[n - 1] != TOKBYTES_PLAIN) n--;
	if (n > n_rows || n_rows - n > SPARE_ROWS_MAX)
		return err_set(err, ST_INVALID,
			       "the tokenizer has %u tokens, but %s has a vocabulary of %" PRIu64 "; expected the same, or up to %d more "
			       "in the model",
			       t->vocab.n, model, n_rows, SPARE_ROWS_MAX);
	t->vocab.n = n;
	t->n_ids = (uint32_t)n_rows;
	addtok_limit(&t->added, n);
	addtok_limit(&t->added_normal, n);
	return ST_OK;
}

int tokenizer_fit_own(struct tokenizer *t, uint64_t n_rows, const char *model, struct errbuf *err)
{
	uint32_t n = t->vocab.n;
	const char *text;
	size_t len = 0;

	CHECK(n_rows <= UINT32_MAX);
	/* Behind the last token there may be ids without one. */
	while (n > n_rows && (text = vocab_bytes(&t->vocab, n - 1, &len), len == 0)) n--;
	if (n > n_rows)
		return err_set(err, ST_INVALID,
			       "tokenizer.json: token \"%s\" has id %u, but %s has a vocabulary of %" PRIu64 "; expected ids below it",
			       quote_short(text, len).text, n - 1, model, n_rows);
	t->vocab.n = n;
	t->n_ids = (uint32_t)n_rows;
	return ST_OK;
}
