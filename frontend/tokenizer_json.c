/* tokenizer_json.c - makes a tokenizer of a tokenizer.json; see tokenizer.h.
 *
 * The file becomes the same lists that a GGUF file does (vocab.h). Two families: byte-level BPE (a ByteLevel step), and
 * SentencePiece's BPE as Hugging Face converts it (spaces as U+2581, byte_fallback). The lists point into the JSON values,
 * which live until the tokenizer is made. An id that no token has stands for nothing and is never made. */
#include "frontend/tokenizer.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "frontend/tokenizer_impl.h"
#include "frontend/tokfile.h"
#include "model/tokbytes_json.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A tokenizer.json on its way to lists. */
struct json_lists {
	struct vocab_lists l;
	struct tokfile_steps steps;
	struct tokfile_folder folder;
	json_t *root;
	struct tokbytes_json vocab;
	struct vocab_merge *merges; /* owned, as the rest */
	struct vocab_added *added;
	char **added_texts; /* owned, normalised; (l.n_added) */
};

static void json_lists_release(struct json_lists *j)
{
	for (size_t i = 0; i < j->l.n_added; i++) free(j->added_texts[i]);
	free(j->added_texts);
	free(j->added);
	free(j->merges);
	tokbytes_json_release(&j->vocab);
	tokfile_steps_release(&j->steps);
	tokfile_folder_release(&j->folder);
	json_decref(j->root);
}

/* ---- model ---- */

/* "left right", or ["left", "right"]. */
static int read_merge(const struct jsonplace *p, struct vocab_merge *out)
{
	struct gguf_str text;
	int rc;

	if (json_is_array(p->value) && json_array_size(p->value) == 2) {
		struct jsonplace left = jsonplace_item(p, 0), right = jsonplace_item(p, 1);

		rc = jsonplace_str(&left, &out->left);
		return rc == ST_OK ? jsonplace_str(&right, &out->right) : rc;
	}
	rc = jsonplace_str(p, &text);
	if (rc == ST_OK && !vocab_split_merge(text, out))
		rc = jsonplace_fail(p, ST_INVALID, "is \"%s\"; expected two tokens with a space between",
				  quote_short(text.s, text.len).text);
	return rc;
}

static int read_merges(struct json_lists *j, const struct jsonplace *model)
{
	struct jsonplace merges = jsonplace_member(model, "merges");
	size_t n;
	int rc = jsonplace_array(&merges, &n);

	if (rc != ST_OK) return rc;
	j->merges = mem_array(struct vocab_merge, n + 1);
	j->l.merges = j->merges;
	for (; j->l.n_merges < n && rc == ST_OK; j->l.n_merges++) {
		json_t *m = json_array_get(merges.value, j->l.n_merges);
		struct jsonplace item;

		/* Nearly always good: no way is spelled for it. */
		if (json_is_string(m) && vocab_split_merge((struct gguf_str){json_string_value(m), json_string_length(m)},
							   &j->merges[j->l.n_merges]))
			continue;
		item = jsonplace_item(&merges, j->l.n_merges);
		rc = read_merge(&item, &j->merges[j->l.n_merges]);
	}
	return rc;
}

static uint32_t find_token(const struct json_lists *j, struct gguf_str text)
{
	for (uint32_t i = 0; i < j->l.n_tokens && text.len > 0; i++)
		if (j->vocab.tokens[i].len == text.len && memcmp(j->vocab.tokens[i].s, text.s, text.len) == 0) return i;
	return TOKEN_NONE;
}

static int read_unknown(struct json_lists *j, const struct jsonplace *model)
{
	struct jsonplace unk = jsonplace_member(model, "unk_token");
	struct gguf_str text;
	int rc;

	if (jsonplace_is_null(&unk)) return ST_OK;
	rc = jsonplace_str(&unk, &text);
	if (rc != ST_OK) return rc;
	j->l.unk = find_token(j, text);
	if (j->l.unk == TOKEN_NONE && text.len > 0)
		return jsonplace_fail(&unk, ST_INVALID, "is \"%s\"; expected a token of the vocabulary",
				    quote_short(text.s, text.len).text);
	return ST_OK;
}

static int check_model(const struct jsonplace *model)
{
	struct jsonplace type = jsonplace_member(model, "type");
	struct gguf_str name = {"BPE", 3};
	int rc = jsonplace_is_null(&type) ? ST_OK : jsonplace_str(&type, &name);

	if (rc == ST_OK && !gguf_str_is(name, "BPE"))
		rc = jsonplace_fail(&type, ST_UNSUPPORTED, "\"%s\" is not supported; expected \"BPE\"",
				  quote_short(name.s, name.len).text);
	if (rc == ST_OK) rc = jsonplace_must_be_unset(model, "dropout", "random merges are not supported");
	if (rc == ST_OK) rc = jsonplace_must_be_unset(model, "continuing_subword_prefix", "a prefix of parts is not supported");
	if (rc == ST_OK) rc = jsonplace_must_be_unset(model, "end_of_word_suffix", "a suffix of words is not supported");
	return rc;
}

static int read_model(struct json_lists *j, const struct jsonplace *root)
{
	struct jsonplace model = jsonplace_member(root, "model");
	int rc = jsonplace_bool_or(&model, "ignore_merges", false, &j->l.whole_words);

	if (rc == ST_OK) rc = jsonplace_bool_or(&model, "fuse_unk", false, &j->l.unk_fused);
	if (rc == ST_OK) rc = tokbytes_json_read(&j->vocab, root);
	if (rc != ST_OK) return rc;
	j->l.tokens = j->vocab.tokens;
	j->l.types = j->vocab.types;
	j->l.n_tokens = j->vocab.n_tokens;
	j->l.spelling = j->vocab.spelling;
	return read_merges(j, &model);
}

/* ---- added tokens ---- */

static int read_added_token(struct json_lists *j, const struct jsonplace *p, struct vocab_added *a)
{
	struct jsonplace id = jsonplace_member(p, "id"), content = jsonplace_member(p, "content");
	bool special;
	int rc = jsonplace_id(&id, j->l.n_tokens, &a->id);

	if (rc == ST_OK) rc = jsonplace_str(&content, &a->text);
	if (rc == ST_OK && a->text.len > ADDTOK_LEN_MAX)
		rc = jsonplace_fail(&content, ST_LIMIT, "has %zu bytes; expected at most %d", a->text.len, ADDTOK_LEN_MAX);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "special", false, &special);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "normalized", !special, &a->normalized);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "lstrip", false, &a->lstrip);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "rstrip", false, &a->rstrip);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "single_word", false, &a->single_word);
	return rc;
}

/* A token that is looked for in normalised text is normalised itself. */
static void normalise_added(struct json_lists *j, size_t ix)
{
	struct vocab_added *a = &j->added[ix];
	const char *s = a->text.s;
	size_t len = a->text.len;
	struct strbuf out;

	if (!a->normalized || !j->steps.norm) return;
	strbuf_init(&out, (size_t)ADDTOK_LEN_MAX * 4);
	if (textnorm_run(j->steps.norm, &s, &len, &out)) {
		j->added_texts[ix] = mem_strndup(s, len);
		a->text = (struct gguf_str){j->added_texts[ix], len};
	}
	strbuf_release(&out);
}

static int read_added(struct json_lists *j, const struct jsonplace *root)
{
	struct jsonplace added = jsonplace_member(root, "added_tokens");
	size_t n;
	int rc;

	if (jsonplace_is_null(&added)) return ST_OK;
	rc = jsonplace_array(&added, &n);
	if (rc != ST_OK) return rc;
	j->added = mem_array(struct vocab_added, n + 1);
	j->added_texts = mem_array(char *, n + 1);
	j->l.added = j->added;
	for (size_t i = 0; i < n && rc == ST_OK; i++) {
		struct jsonplace item = jsonplace_item(&added, i);

		rc = read_added_token(j, &item, &j->added[i]);
		if (rc != ST_OK) break;
		j->l.n_added++;
		normalise_added(j, i);
	}
	return rc;
}

/* ---- the rest ---- */

static int read_steps(struct json_lists *j, const struct jsonplace *root)
{
	struct jsonplace norm = jsonplace_member(root, "normalizer"), pre = jsonplace_member(root, "pre_tokenizer"),
			     post = jsonplace_member(root, "post_processor"), decoder = jsonplace_member(root, "decoder");
	struct tokfile_steps *s = &j->steps;
	int rc = tokfile_read_normalizer(&norm, s);

	if (rc == ST_OK) rc = tokfile_read_pretokenizer(&pre, s);
	if (rc == ST_OK) rc = tokfile_read_postprocessor(&post, s);
	if (rc == ST_OK) rc = tokfile_read_decoder(&decoder, s);
	if (rc != ST_OK) return rc;
	if (!s->is_byte_level && !s->has_mark_replace && !s->has_metaspace)
		return jsonplace_fail(&pre, ST_UNSUPPORTED,
				    "expected a ByteLevel step (byte-level BPE), or spaces that become U+2581 by a Metaspace step or "
				    "a Replace normalizer (SentencePiece)");
	if (s->is_byte_level && s->has_metaspace)
		return jsonplace_fail(&pre, ST_UNSUPPORTED, "ByteLevel and Metaspace together are not supported");
	j->l.prefix = s->prefix;
	j->l.strip_first = s->strip_first;
	return ST_OK;
}

static int make_words(struct json_lists *j, const struct jsonplace *root)
{
	struct jsonplace pre = jsonplace_member(root, "pre_tokenizer");
	struct errbuf why = {0};
	int rc;

	if (j->steps.n_stages == 0) return ST_OK;
	rc = pretok_from_stages(&j->l.words, j->steps.stages, j->steps.n_stages, &why);
	return rc == ST_OK ? ST_OK : jsonplace_fail(&pre, rc, "%s", why.text);
}

static struct gguf_str str_of(const char *text)
{
	return (struct gguf_str){text, text ? strlen(text) : 0};
}

/* The template of the post_processor says what is put in front of a text, unless add_bos_token says yes or no. */
static int read_ends(struct json_lists *j, const struct jsonplace *root)
{
	struct jsonplace post = jsonplace_member(root, "post_processor");
	struct gguf_str bos = j->steps.bos.len > 0 ? j->steps.bos : str_of(j->folder.bos);

	j->l.bos = find_token(j, bos);
	j->l.eos = find_token(j, str_of(j->folder.eos));
	if (j->steps.bos.len > 0 && j->l.bos == TOKEN_NONE)
		return jsonplace_fail(&post, ST_INVALID, "puts \"%s\" in front of a text; expected a token of the vocabulary",
				    quote_short(bos.s, bos.len).text);
	j->l.add_bos = j->folder.add_bos >= 0 ? j->folder.add_bos : j->steps.bos.len > 0;
	for (size_t i = 0; i < j->folder.stops.n; i++)
		if (j->folder.stops.ids[i] < j->l.n_tokens) j->folder.stops.ids[j->l.n_stops++] = j->folder.stops.ids[i];
	j->l.stops = j->folder.stops.ids;
	return ST_OK;
}

static int read_all(struct json_lists *j, struct errbuf *err)
{
	struct jsonplace root = {.file = j->l.file, .value = j->root, .err = err},
			     model = jsonplace_member(&root, "model");
	int rc = check_model(&model); /* first: the other parts go with the kind of model */

	if (rc == ST_OK) rc = read_steps(j, &root);
	if (rc == ST_OK) rc = read_model(j, &root);
	if (rc == ST_OK) rc = read_added(j, &root);
	if (rc == ST_OK) rc = read_unknown(j, &model);
	if (rc == ST_OK) rc = read_ends(j, &root);
	if (rc == ST_OK) rc = make_words(j, &root);
	return rc;
}

static int make(struct tokenizer **out, struct json_lists *j, struct errbuf *err)
{
	int rc;

	j->l.norm = j->steps.norm; /* taken */
	j->steps.norm = NULL;
	rc = tokenizer_from_lists(out, &j->l, err);
	if (rc != ST_OK) return rc;
	(*out)->chat_template = j->folder.chat_template;
	(*out)->named = j->folder.named;
	j->folder.chat_template = NULL;
	j->folder.named = NULL;
	return ST_OK;
}

int tokenizer_from_json(struct tokenizer **out, const char *path, struct errbuf *err)
{
	struct json_lists j = {.l = {.key_tokens = "model.vocab",
				     .key_merges = "model.merges",
				     .bos = TOKEN_NONE,
				     .eos = TOKEN_NONE,
				     .eot = TOKEN_NONE,
				     .eom = TOKEN_NONE,
				     .unk = TOKEN_NONE}};
	struct quote shown;
	char file[4400];
	struct stat st;
	bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	int rc = ST_OK;

	*out = NULL;
	j.folder.add_bos = -1;
	tokbytes_json_path(path, file, sizeof(file), &shown);
	j.l.file = shown.text;
	if (is_folder) rc = tokfile_folder_read(&j.folder, path, err);
	if (rc == ST_OK) rc = jsonplace_load(&j.root, file, shown.text, err);
	if (rc == ST_OK) rc = read_all(&j, err);
	if (rc == ST_OK) rc = make(out, &j, err);
	json_lists_release(&j);
	return rc;
}
