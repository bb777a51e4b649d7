/* tokenizer.h - text to token ids and back, from a model file's own vocabulary or a tokenizer.json.
 *
 * Kinds: byte-level BPE ("gpt2" in GGUF) with the pre-tokenizer expressions named by tokenizer.ggml.pre, and SentencePiece
 * BPE ("llama"). An unknown kind or expression is refused by name. A tokenizer is immutable after it was made: any number of
 * readers.
 *
 * Control tokens ("special") are recognised only where the caller allows it, so that a user's text can never open or
 * close a turn. Tokens that are added but not special (user-defined) are recognised everywhere. */
#ifndef SLUICE_TOKENIZER_H
#define SLUICE_TOKENIZER_H

#include "common/base.h"
#include "common/errbuf.h"

#include <jansson.h>

struct gguf;
struct strbuf;
struct tokenizer;
struct vocab_lists;

#define TOKEN_NONE UINT32_MAX

/* A growing, bounded array of ids. */
struct token_vec {
	uint32_t *ids; /* owned */
	size_t len, cap;
	size_t len_max;
	bool overflow; /* more than len_max ids would be needed; ids holds the first ones, up to len_max */
};

void token_vec_init(struct token_vec *v, size_t len_max);
void token_vec_release(struct token_vec *v);
void token_vec_push(struct token_vec *v, uint32_t id);
void token_vec_append(struct token_vec *v, const uint32_t *ids, size_t n);

/* One stretch of a text to encode. Stretches are joined before pre-tokenization (a border does not split words), but a
 * control token is recognised only where it lies wholly within stretches that allow it. Ill-formed bytes are repaired
 * stretch by stretch. */
struct token_part {
	const char *text; /* UTF-8; ill-formed bytes are replaced by U+FFFD, one for each maximal subpart */
	size_t len;
	bool allow_special;
};

/* err names the file, the key and what was found. The gguf may be closed afterwards. */
int tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errbuf *err) MUST_CHECK;
/* From a tokenizer.json (Hugging Face tokenizers), or from a folder with one, where also tokenizer_config.json,
 * generation_config.json and chat_template.jinja are read if they are there. err names the file, the field and what was
 * expected. */
int tokenizer_from_json(struct tokenizer **out, const char *path, struct errbuf *err) MUST_CHECK;
/* The same from lists (frontend/vocab.h), for vocabularies that come from elsewhere. */
int tokenizer_from_lists(struct tokenizer **out, const struct vocab_lists *l, struct errbuf *err) MUST_CHECK;
void tokenizer_free(struct tokenizer *t);

/* Appends the ids of the joined parts; no BOS. Time O(n log n) also for one long word; stops early once out overflows.
 */
void tokenizer_encode_parts(const struct tokenizer *t, const struct token_part *parts, size_t n_parts,
			    struct token_vec *out);
void tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool allow_special,
		      struct token_vec *out);

/* Memory to encode in that is kept from text to text, with the words seen lately: for one tokenizer, which outlives it, and one thread. It
 * grows to what the longest text needed. */
struct tokenizer_work;
struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t);
void tokenizer_work_free(struct tokenizer_work *w);
/* w NULL: as tokenizer_encode_parts(). */
void tokenizer_encode_parts_in(const struct tokenizer *t, struct tokenizer_work *w, const struct token_part *parts, size_t n_parts,
			       struct token_vec *out);

uint32_t tokenizer_vocab_size(const struct tokenizer *t);
/* Ids below it may be in prompts and may be drawn: the model's, when tokenizer_fit() has told, else the vocabulary's. Those that the
 * vocabulary has not stand for nothing. */
uint32_t tokenizer_n_ids(const struct tokenizer *t);
uint32_t tokenizer_bos(const struct tokenizer *t); /* TOKEN_NONE when the model has none */
uint32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_add_bos(const struct tokenizer *t); /* BOS in front of a plain-text prompt */
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
/* Ids that end a generation (eos, eot, eom ... of the metadata and the usual names); n of them, at most 16. */
const uint32_t *tokenizer_stop_ids(const struct tokenizer *t, size_t *n);
/* More of them, that the model's files tell when its tokenizer is another's. */
void tokenizer_add_stops(struct tokenizer *t, const uint32_t *ids, size_t n);
/* The chat template that came with a tokenizer.json; NULL when there was none. */
const char *tokenizer_chat_template(const struct tokenizer *t);
/* The texts of the special tokens by the names that templates have for them (bos_token, pad_token ...), as tokenizer_config.json says;
 * NULL when there was none. */
const json_t *tokenizer_named(const struct tokenizer *t);
/* Whether the vocabulary goes with a model of n_rows tokens (`model` is for messages): the model knows every token, and no
 * more of its own are spare than padding explains. Added tokens that the model does not know are dropped. */
int tokenizer_fit(struct tokenizer *t, uint64_t n_rows, const char *model, struct errbuf *err) MUST_CHECK;
/* The same for the tokenizer that came with the model: any number of rows may be spare, and no token may be beyond them. */
int tokenizer_fit_own(struct tokenizer *t, uint64_t n_rows, const char *model, struct errbuf *err) MUST_CHECK;
/* TOKEN_NONE when no token has exactly these bytes as its text. */
uint32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);

/* A decoded text does not show the space that it begins with. */
bool tokenizer_strip_first(const struct tokenizer *t);
/* Bytes that a token stands for (not necessarily whole characters); for a special token its name. View, not terminated.
 * Empty for an id outside the vocabulary. */
const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *len);

/* detok: ids to text, a token at a time, without ever splitting a character. Bytes that could still become a character
 * are held back; ill-formed ones become U+FFFD, one for each maximal subpart. */
struct detok {
	char pending[4];
	uint8_t n_pending;
	bool at_start;
};

/* In the middle of a text: what a model says after its prompt. */
void detok_init(struct detok *d);
/* At the beginning of a text: the space that SentencePiece puts in front of it is left out. */
void detok_init_start(struct detok *d);
/* Appends to out the text that became whole with this id. skip_special leaves control tokens out. */
void detok_push(struct detok *d, const struct tokenizer *t, uint32_t id, bool skip_special, struct strbuf *out);
/* At the very end: a held-back incomplete character becomes one U+FFFD. */
void detok_finish(struct detok *d, struct strbuf *out);

#endif
