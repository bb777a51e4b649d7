/* tokenizer_gguf.c - reads a tokenizer's lists out of a GGUF file; see tokenizer.h.
 *
 * The lists point into the file's map and live only while the tokenizer is made. What is checked here is what needs the
 * file: kinds and presence of keys, the vocabulary against the rows of the embedding (more rows are padding and fine),
 * ids against the vocabulary. The lists themselves are checked in vocab.c and bpe.c. */
#include "frontend/tokenizer.h"

#include "model/gguf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/quote.h"
#include "frontend/textnorm.h"
#include "frontend/vocab.h"

#include <inttypes.h>

#define KEY(name) "tokenizer.ggml." name

/* The working lists of a load; what they point to is the file's map. */
struct gguf_lists {
	struct vocab_lists l;
	struct gguf_str *tokens;
	struct vocab_merge *merges;
	float *scores;
	int32_t *types;
	char *pre;
};

static void gguf_lists_release(struct gguf_lists *f)
{
	free(f->tokens);
	free(f->merges);
	free(f->scores);
	free(f->types);
	free(f->pre);
}

static int read_strings(const struct gguf *g, const char *key, struct gguf_str **out, size_t *n, struct errbuf *err)
{
	const struct gguf_kv *kv;
	uint64_t pos = 0;
	int rc = gguf_get_array(g, key, GGUF_STR, &kv, err);

	if (rc != ST_OK) return rc;
	/* Each string takes 8 bytes of the file at least: the count is bounded by its size. */
	*out = mem_array(struct gguf_str, kv->n + 1);
	*n = 0;
	while (*n < kv->n && gguf_array_next_str(kv, &pos, &(*out)[*n])) ++*n;
	return ST_OK;
}

static int read_types(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, KEY("token_type"));
	int rc;

	if (!kv) return ST_OK;
	rc = gguf_get_array(g, KEY("token_type"), kv->elem_kind == GGUF_U32 ? GGUF_U32 : GGUF_I32, &kv, err);
	if (rc != ST_OK) return rc;
	if (kv->n != f->l.n_tokens)
		return err_set(err, ST_INVALID,
			       "%s: %s has length %" PRIu64 "; expected one for each of the %zu tokens", f->l.file,
			       KEY("token_type"), kv->n, f->l.n_tokens);
	f->types = mem_array(int32_t, kv->n + 1);
	for (uint64_t i = 0; i < kv->n; i++) f->types[i] = (int32_t)gguf_array_i64(kv, i);
	f->l.types = f->types;
	return ST_OK;
}

static int read_merges(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	struct gguf_str *texts = NULL;
	size_t n;
	int rc = read_strings(g, KEY("merges"), &texts, &n, err);

	if (rc == ST_OK) {
		f->merges = mem_array(struct vocab_merge, n + 1);
		f->l.merges = f->merges;
	}
	for (; rc == ST_OK && f->l.n_merges < n; f->l.n_merges++) {
		struct gguf_str text = texts[f->l.n_merges];

		if (!vocab_split_merge(text, &f->merges[f->l.n_merges]))
			rc = err_set(err, ST_INVALID, "%s: %s: merge %zu is \"%s\"; expected two tokens with a space between",
				     f->l.file, KEY("merges"), f->l.n_merges, quote_short(text.s, text.len).text);
	}
	free(texts);
	return rc;
}

static int read_scores(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	const struct gguf_kv *kv;
	int rc = gguf_get_array(g, KEY("scores"), GGUF_F32, &kv, err);

	if (rc != ST_OK) return rc;
	if (kv->n != f->l.n_tokens)
		return err_set(err, ST_INVALID, "%s: %s has length %" PRIu64 "; expected one for each of the %zu tokens",
			       f->l.file, KEY("scores"), kv->n, f->l.n_tokens);
	f->scores = mem_array(float, kv->n + 1);
	f->l.scores = f->scores;
	for (uint64_t i = 0; i < kv->n; i++) {
		f->scores[i] = (float)gguf_array_f64(kv, i);
		if (f->scores[i] != f->scores[i])
			return err_set(err, ST_INVALID, "%s: %s: the score of token %" PRIu64 " is no number", f->l.file,
				       KEY("scores"), i);
	}
	return ST_OK;
}

/* SentencePiece ("llama"): what llama.cpp does where a key is missing. */
static int read_spaces(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	bool prefix = true, squeeze = false;
	int rc = gguf_get_bool_or(g, KEY("add_space_prefix"), true, &prefix, err);

	if (rc == ST_OK) rc = gguf_get_bool_or(g, KEY("remove_extra_whitespaces"), false, &squeeze, err);
	f->l.prefix = prefix ? VOCAB_PREFIX_ALWAYS : VOCAB_PREFIX_NONE;
	f->l.strip_first = prefix;
	if (squeeze) {
		f->l.norm = textnorm_new();
		textnorm_add(f->l.norm, TEXTNORM_SQUEEZE);
	}
	return rc;
}

static int read_id(const struct gguf *g, const char *key, size_t n_tokens, uint32_t *out, struct errbuf *err)
{
	uint64_t id;
	int rc = gguf_get_u64_or(g, key, 0, n_tokens - 1, TOKEN_NONE, &id, err);

	*out = rc == ST_OK ? (uint32_t)id : TOKEN_NONE;
	return rc;
}

static int read_ids(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	struct {
		const char *key;
		uint32_t *out; /* NULL: only checked */
	} ids[] = {
		{KEY("bos_token_id"), &f->l.bos},
		{KEY("eos_token_id"), &f->l.eos},
		{KEY("eot_token_id"), &f->l.eot},
		{KEY("eom_token_id"), &f->l.eom},
		{KEY("unknown_token_id"), f->l.spelling == TOKBYTES_LLAMA ? &f->l.unk : NULL},
		{KEY("padding_token_id"), NULL},
		{KEY("seperator_token_id"), NULL} /* GGUF's own spelling */,
		{KEY("mask_token_id"), NULL},
	};
	bool add_bos;
	uint32_t unused;
	int rc = ST_OK;

	for (size_t i = 0; i < ARRAY_LEN(ids) && rc == ST_OK; i++)
		rc = read_id(g, ids[i].key, f->l.n_tokens, ids[i].out ? ids[i].out : &unused, err);
	if (rc == ST_OK) rc = gguf_get_bool_or(g, KEY("add_bos_token"), false, &add_bos, err);
	if (rc == ST_OK) f->l.add_bos = gguf_find(g, KEY("add_bos_token")) ? add_bos : f->l.spelling == TOKBYTES_LLAMA ? 1 : -1;
	return rc;
}

static int read_pre(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	struct gguf_str pre = {"default", 7};

	if (gguf_find(g, KEY("pre"))) {
		int rc = gguf_get_str(g, KEY("pre"), &pre, err);

		if (rc != ST_OK) return rc;
	} else {
		log_warning("%s: %s is missing: assuming \"default\"; the text may be cut into other tokens than the "
			    "model was trained with",
			    f->l.file, KEY("pre"));
	}
	f->pre = mem_strndup(pre.s, pre.len);
	f->l.pre = f->pre;
	return ST_OK;
}

static int read_lists(const struct gguf *g, struct gguf_lists *f, struct errbuf *err)
{
	const struct gguf_tensor *embed = gguf_find_tensor(g, "token_embd.weight");
	struct gguf_str kind;
	int rc = gguf_get_str(g, KEY("model"), &kind, err);

	if (rc != ST_OK) return rc;
	if (!tokbytes_spelling_parse(kind, &f->l.spelling))
		return err_set(err, ST_UNSUPPORTED,
			       "%s: %s: tokenizer kind \"%s\" is not supported; expected \"gpt2\" (byte-level BPE) or \"llama\" "
			       "(SentencePiece)",
			       f->l.file, KEY("model"), quote_short(kind.s, kind.len).text);
	rc = read_strings(g, KEY("tokens"), &f->tokens, &f->l.n_tokens, err);
	if (rc != ST_OK) return rc;
	f->l.tokens = f->tokens;
	if (f->l.n_tokens == 0)
		return err_set(err, ST_INVALID, "%s: %s is empty; expected tokens", f->l.file, KEY("tokens"));
	if (embed && f->l.n_tokens > embed->dims[1])
		return err_set(err, ST_INVALID,
			       "%s: %s: the vocabulary has %zu tokens, but tensor token_embd.weight only %" PRIu64
			       " rows; expected at least one row a token",
			       f->l.file, KEY("tokens"), f->l.n_tokens, embed->dims[1]);
	rc = read_types(g, f, err);
	if (rc == ST_OK) rc = f->l.spelling == TOKBYTES_GPT2 ? read_merges(g, f, err) : read_scores(g, f, err);
	if (rc == ST_OK) rc = read_ids(g, f, err);
	if (rc == ST_OK) rc = f->l.spelling == TOKBYTES_GPT2 ? read_pre(g, f, err) : read_spaces(g, f, err);
	return rc;
}

int tokenizer_from_gguf(struct tokenizer **out, const struct gguf *g, struct errbuf *err)
{
	struct gguf_lists f = {0};
	int rc;

	*out = NULL;
	f.l.file = gguf_shown_path(g);
	f.l.unk = TOKEN_NONE;
	f.l.unk_fused = true;
	rc = read_lists(g, &f, err);
	if (rc == ST_OK) rc = tokenizer_from_lists(out, &f.l, err);
	gguf_lists_release(&f);
	return rc;
}
