/* families.c - see families.h.
 *
 * A vocabulary comes from a golden tokenizer.json or model file, or from what tests/vocabularies.py fetched: tokenizer.json,
 * a model file, or tiktoken's list of tokens, whose rule needs no merges: a word that is a token is that token; else
 * whatever makes a token is joined, the lowest id first. */
#include "tests/support/families.h"

#include "model/gguf.h"
#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"
#include "tests/support/golden.h"
#include "tests/support/test_file.h"
#include "tests/support/tokjson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FETCHED "models/vocabularies/"

/* ---- the families ---- */

enum source { GOLDEN_JSON, GOLDEN_GGUF, FETCHED_JSON, FETCHED_GGUF, FETCHED_RANKS };

static const struct family {
	const char *name;
	enum source source;
	const char *file;
	const char *pre;       /* FETCHED_RANKS */
	uint32_t n_ranks;      /* tokens of the list; the added ones follow */
	const char *added;     /* with a space between; those that begin with "<|" and stand before "|" are special */
} families[] = {
	{.name = "smollm2", .source = GOLDEN_JSON, .file = "tokenizer/files/smollm2/tokenizer.json"},
	{.name = "spm-tiny", .source = GOLDEN_JSON, .file = "tokenizer/files/spm-tiny/tokenizer.json"},
	{.name = "spm-tiny_in_a_model_file", .source = GOLDEN_GGUF, .file = "tokenizer/files/spm-tiny/vocab.gguf"},
	{.name = "qwen2_in_a_tokenizer.json", .source = GOLDEN_JSON, .file = "tokenizer/files/qwen2/tokenizer.json"},
	{.name = "llama3", .source = FETCHED_JSON, .file = FETCHED "llama3"},
	{.name = "deepseek", .source = FETCHED_JSON, .file = FETCHED "deepseek"},
	{.name = "gemma3", .source = FETCHED_GGUF, .file = FETCHED "gemma3/gemma-3-270m-q4_k_m.gguf"},
	{.name = "qwen2",
	 .source = FETCHED_RANKS,
	 .file = FETCHED "qwen2/qwen.tiktoken",
	 .pre = "qwen2",
	 .n_ranks = 151643,
	 .added = "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
		  "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> | "
		  "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
		  "<tool_response> </tool_response> <think> </think>"},
	{.name = "qwen35",
	 .source = FETCHED_RANKS,
	 .file = FETCHED "qwen35/qwen.tiktoken",
	 .pre = "qwen35",
	 .n_ranks = 248044,
	 .added = "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
		  "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> | "
		  "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
		  "<tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> "
		  "<tts_text_eod> <tts_text_bos_single> <|audio_pad|>"},
};

/* ---- tiktoken's lists ---- */

#define RANKS_MAX  300000u
#define RANK_LINES ((size_t)16 << 20)

struct ranks {
	struct gguf_str tokens[RANKS_MAX];
	int32_t types[RANKS_MAX];
	float scores[RANKS_MAX];
	struct strbuf texts; /* of the tokens, one after the other */
	size_t starts[RANKS_MAX + 1];
	uint32_t n;
};

static int base64_value(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* A byte in the spelling of model files. */
static void put_spelled(struct strbuf *out, unsigned byte)
{
	static uint32_t spelled[256];
	char text[4];

	for (unsigned b = 0, next = 256; spelled[255] == 0 && b < 256; b++)
		spelled[b] = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : next++;
	strbuf_append(out, text, (size_t)utf8_encode(spelled[byte], text));
}

/* "dGhl 1820": the token's bytes in base64, and its rank, which is the number of the line. */
static void put_rank(struct ranks *r, const char *line)
{
	unsigned bits = 0, n_bits = 0;

	for (; *line && *line != ' ' && *line != '='; line++) {
		int value = base64_value(*line);

		assert_true(value >= 0);
		bits = bits << 6 | (unsigned)value;
		n_bits += 6;
		if (n_bits < 8) continue;
		n_bits -= 8;
		put_spelled(&r->texts, bits >> n_bits & 255);
	}
	line += strspn(line, "= ");
	assert_int_equal(strtoul(line, NULL, 10), r->n);
	assert_true(r->n + 1 < RANKS_MAX);
	r->types[r->n] = 1;
	r->starts[++r->n] = r->texts.len;
}

static void put_added(struct ranks *r, const char *names)
{
	bool special = true;

	while (*names) {
		size_t len = strcspn(names, " ");

		if (len == 1) {
			special = false;
		} else {
			strbuf_append(&r->texts, names, len);
			r->types[r->n] = special ? 3 : 4;
			r->starts[++r->n] = r->texts.len;
		}
		names += len + (names[len] == ' ');
	}
}

static struct tokenizer *load_ranks(const struct family *f)
{
	struct ranks *r = mem_new(struct ranks);
	struct vocab_lists l = {.file = f->file,
				.pre = f->pre,
				.tokens = r->tokens,
				.types = r->types,
				.scores = r->scores,
				.whole_words = true,
				.unk = TOKEN_NONE,
				.bos = TOKEN_NONE,
				.eos = TOKEN_NONE,
				.eot = TOKEN_NONE,
				.eom = TOKEN_NONE};
	struct errbuf err = {0};
	struct tokenizer *t;
	char line[4096];
	FILE *in = fopen(f->file, "re");

	assert_non_null(in);
	strbuf_init(&r->texts, RANK_LINES);
	while (fgets(line, sizeof(line), in)) put_rank(r, line);
	fclose(in);
	assert_int_equal(r->n, f->n_ranks);
	put_added(r, f->added);
	assert_false(r->texts.overflow);
	for (uint32_t i = 0; i < r->n; i++) {
		r->tokens[i] = (struct gguf_str){r->texts.data + r->starts[i], r->starts[i + 1] - r->starts[i]};
		r->scores[i] = -(float)i;
	}
	l.n_tokens = r->n;
	if (tokenizer_from_lists(&t, &l, &err) != ST_OK) fail_msg("%s", err.text);
	strbuf_release(&r->texts);
	free(r);
	return t;
}

/* ---- loading ---- */

static struct tokenizer *load_gguf(const char *path)
{
	struct errbuf err = {0};
	struct tokenizer *t = NULL;
	struct gguf *g;

	if (gguf_open(&g, path, &err) != ST_OK || tokenizer_from_gguf(&t, g, &err) != ST_OK) fail_msg("%s", err.text);
	gguf_close(g);
	return t;
}

static struct tokenizer *load_golden_gguf(const char *relpath)
{
	struct test_file_mem m;
	struct tokenizer *t;
	size_t len;
	char *bytes = golden_text(relpath, &len);

	if (!bytes) return NULL;
	test_file_mem_init(&m, bytes, len);
	t = load_gguf(m.path);
	test_file_mem_release(&m);
	free(bytes);
	return t;
}

static struct tokenizer *load_fetched(const struct family *f)
{
	struct errbuf err = {0};
	struct tokenizer *t;

	if (access(f->file, R_OK) != 0) return NULL;
	if (f->source == FETCHED_RANKS) return load_ranks(f);
	if (f->source == FETCHED_GGUF) return load_gguf(f->file);
	if (tokenizer_from_json(&t, f->file, &err) != ST_OK) fail_msg("%s", err.text);
	return t;
}

struct tokenizer *families_load(const char *name)
{
	const struct family *f = families;
	struct tokenizer *t;

	while (strcmp(f->name, name) != 0) CHECK(++f < families + ARRAY_LEN(families));
	t = f->source == GOLDEN_JSON   ? tokjson_load(f->file, NULL, NULL)
	    : f->source == GOLDEN_GGUF ? load_golden_gguf(f->file)
				       : load_fetched(f);
	if (!t) print_message("%s: there is no %s\n", name, f->file);
	return t;
}

/* ---- comparing ---- */

void families_expect_ids(const char *id, const struct token_vec *got, const uint32_t *ids, size_t n)
{
	size_t i = 0;

	while (i < n && i < got->len && got->ids[i] == ids[i]) i++;
	if (i == n && got->len == n) return;
	fail_msg("%s: %zu ids, expected %zu; differ at %zu: %u, expected %u", id, got->len, n, i,
		 i < got->len ? got->ids[i] : 0, i < n ? ids[i] : 0);
}

static void expect_encoded(const struct tokenizer *t, const char *id, const char *text, size_t len, bool special,
			   const json_t *ids)
{
	struct token_vec v;
	size_t n;
	uint32_t *want = golden_u32s(ids, &n);

	token_vec_init(&v, SIZE_MAX);
	tokenizer_encode(t, text, len, special, &v);
	families_expect_ids(id, &v, want, n);
	token_vec_release(&v);
	free(want);
}

void families_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, struct strbuf *out)
{
	struct detok d;

	strbuf_init(out, SIZE_MAX / 4);
	detok_init_start(&d);
	for (size_t i = 0; i < n; i++) {
		size_t before = out->len;

		detok_push(&d, t, ids[i], skip_special, out);
		/* Never a part of a character. */
		if (out->len > before)
			assert_int_equal(utf8_valid_len(out->data + before, out->len - before), out->len - before);
	}
	detok_finish(&d, out);
}

static void expect_decoded(const struct tokenizer *t, const char *id, const json_t *ids, bool skip_special,
			   const json_t *want)
{
	size_t n;
	uint32_t *v = golden_u32s(ids, &n);
	struct strbuf out;

	families_decode(t, v, n, skip_special, &out);
	if (out.len != json_string_length(want) ||
	    memcmp(out.data ? out.data : "", json_string_value(want), out.len) != 0)
		fail_msg("%s: decoded \"%s\", expected \"%s\"", id, out.data, json_string_value(want));
	strbuf_release(&out);
	free(v);
}

/* Whether two id lists in JSON are the same ids. */
static bool ids_are(const struct token_vec *v, const json_t *ids)
{
	if (v->len != json_array_size(ids)) return false;
	for (size_t i = 0; i < v->len; i++)
		if (json_integer_value(json_array_get(ids, i)) != v->ids[i]) return false;
	return true;
}

/* Where SentencePiece and its conversion to Hugging Face's BPE differ, both are right. */
static bool is_as_converted(const struct tokenizer *t, const char *text, size_t len, const json_t *ids_hf)
{
	struct token_vec v;
	bool same;

	if (!ids_hf) return false;
	token_vec_init(&v, SIZE_MAX);
	tokenizer_encode(t, text, len, true, &v);
	same = ids_are(&v, ids_hf);
	token_vec_release(&v);
	return same;
}

static void check_encoded(const struct tokenizer *t, const char *relpath, size_t n_min)
{
	FILE *f = golden_open(relpath);
	size_t n = 0;
	json_t *c;

	if (!f) fail_msg("no %s", relpath);
	for (; (c = golden_next(f)) != NULL; json_decref(c), n++) {
		const char *id = json_string_value(json_object_get(c, "id"));
		json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
		       *plain = json_object_get(c, "ids_plain");
		json_t *bytes = json_object_get(c, "bytes"), *encoded = ids;

		if (is_as_converted(t, json_string_value(text), json_string_length(text), json_object_get(c, "ids_hf")))
			encoded = json_object_get(c, "ids_hf");
		expect_encoded(t, id, json_string_value(text), json_string_length(text), true, encoded);
		/* Names that steer a conversation are special here, whatever the vocabulary says of them. */
		if (plain || !json_object_get(c, "ids_hf"))
			expect_encoded(t, id, json_string_value(text), json_string_length(text), false, plain ? plain : ids);
		expect_decoded(t, id, ids, false, json_object_get(c, "decoded"));
		if (plain) expect_decoded(t, id, plain, true, text);
		if (bytes) {
			char raw[256];
			size_t len;
			uint32_t *b = golden_u32s(bytes, &len);

			assert_true(len <= sizeof(raw));
			for (size_t i = 0; i < len; i++) raw[i] = (char)b[i];
			expect_encoded(t, id, raw, len, true, ids);
			free(b);
		}
	}
	fclose(f);
	assert_true(n >= n_min);
}

static void check_decoded(const struct tokenizer *t, const char *relpath, size_t n_min)
{
	FILE *f = golden_open(relpath);
	size_t n = 0;
	json_t *c;

	if (!f) fail_msg("no %s", relpath);
	for (; (c = golden_next(f)) != NULL; json_decref(c), n++) {
		const char *id = json_string_value(json_object_get(c, "id"));
		json_t *ids = json_object_get(c, "ids"), *skipped = json_object_get(c, "decoded_skip_special");

		expect_decoded(t, id, ids, false, json_object_get(c, "decoded"));
		if (skipped) expect_decoded(t, id, ids, true, skipped);
	}
	fclose(f);
	assert_true(n >= n_min);
}

void families_check(const struct tokenizer *t, const char *records, size_t n_min, size_t n_decode_min)
{
	char path[100];

	snprintf(path, sizeof(path), "tokenizer/%s.jsonl", records);
	check_encoded(t, path, n_min);
	snprintf(path, sizeof(path), "tokenizer/%s.decode.jsonl", records);
	if (n_decode_min > 0) check_decoded(t, path, n_decode_min);
}
