/* fuzz_tokenizer.c - any bytes through the tokenizer and back.
 *
 * The first two bytes choose the vocabulary and how the rest is cut into stretches. Checked: decoding gives the
 * repaired text (less the bytes that the vocabulary has no token for; a family that normalises must not change its own
 * output); every id is in the vocabulary; without leave, no control token comes out; a bound is kept and gives the same
 * first ids. The vocabularies are small ones built here, so that the target needs no file. */
#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKENS_MAX 400

static struct tokenizer *make(const char *pre, unsigned missing)
{
	static const char *const joined[] = {"t h",
					     "h e",
					     "th e",
					     "i n",
					     "\xc4\xa0 t",
					     "\xc4\xa0t he",
					     "a a",
					     "aa aa",
					     "\xc4\xa0 \xc4\xa0",
					     "\xc4\x8a \xc4\x8a",
					     "\xc3\xa3 \xc4\xa3",
					     "1 2",
					     "< |",
					     "' s",
					     "\xc3\xaf \xc2\xbf",
					     "\xc3\xaf\xc2\xbf \xc2\xbd"};
	static char spelled[TOKENS_MAX][32];
	struct gguf_str tokens[TOKENS_MAX];
	struct vocab_merge merges[ARRAY_LEN(joined)];
	int32_t types[TOKENS_MAX];
	struct vocab_lists l = {.file = "fuzz",
				.pre = pre,
				.tokens = tokens,
				.types = types,
				.merges = merges,
				.unk = TOKEN_NONE,
				.bos = TOKEN_NONE,
				.eos = TOKEN_NONE,
				.eot = TOKEN_NONE,
				.eom = TOKEN_NONE,
				.add_bos = -1};
	struct errbuf err = {0};
	struct tokenizer *t;
	unsigned next = 256;

	for (unsigned b = 0; b < 256; b++) {
		bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

		spelled[b][utf8_encode(printable ? b : next++, spelled[b])] = 0;
		if (b == missing) strcpy(spelled[b], "unused");
		l.n_tokens++;
	}
	for (size_t i = 0; i < ARRAY_LEN(joined); i++) {
		const char *sep = strchr(joined[i], ' ');

		CHECK(vocab_split_merge((struct gguf_str){joined[i], strlen(joined[i])}, &merges[l.n_merges++]));
		snprintf(spelled[l.n_tokens++], 32, "%.*s%s", (int)(sep - joined[i]), joined[i], sep + 1);
	}
	for (size_t i = 0; i < l.n_tokens; i++) types[i] = 1;
	for (size_t i = 0; i < 4; i++) {
		types[l.n_tokens] = i < 2 ? 3 : 4;
		strcpy(spelled[l.n_tokens++], (const char *const[]){"<|im_end|>", "<|im_start|>", "<think>", "   "}[i]);
	}
	for (size_t i = 0; i < l.n_tokens; i++) tokens[i] = (struct gguf_str){spelled[i], strlen(spelled[i])};
	if (tokenizer_from_lists(&t, &l, &err) != ST_OK) fprintf(stderr, "%s\n", err.text);
	CHECK(t);
	return t;
}

/* SentencePiece: letters and a few joined pieces; every other byte is a token of its own. */
static struct tokenizer *make_spm(enum vocab_prefix prefix)
{
	static const char *const pieces[] = {"<unk>", "<s>",  "\xe2\x96\x81", "t",  "h",       "e",  "a", "i", "n", "\n",
					     "\xe2\x96\x81t", "he", "\xe2\x96\x81the", "in", "\xe2\x96\x81\xe2\x96\x81", "aa", "aaaa",
					     "a\xe2\x96\x81", "\xe4\xb8\xad", "<think>", "   "};
	static const int32_t kinds[] = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4};
	static char bytes[256][8];
	struct gguf_str tokens[256 + ARRAY_LEN(pieces)];
	int32_t types[ARRAY_LEN(tokens)];
	float scores[ARRAY_LEN(tokens)];
	struct vocab_lists l = {.file = "fuzz",
				.spelling = TOKBYTES_LLAMA,
				.tokens = tokens,
				.n_tokens = ARRAY_LEN(tokens),
				.types = types,
				.scores = scores,
				.prefix = prefix,
				.strip_first = prefix != VOCAB_PREFIX_NONE,
				.unk = 0,
				.bos = 1,
				.eos = TOKEN_NONE,
				.eot = TOKEN_NONE,
				.eom = TOKEN_NONE};
	struct errbuf err = {0};
	struct tokenizer *t;

	for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
		size_t byte = i - ARRAY_LEN(pieces);

		if (i >= ARRAY_LEN(pieces)) snprintf(bytes[byte], 8, "<0x%02X>", (unsigned)byte);
		tokens[i].s = i < ARRAY_LEN(pieces) ? pieces[i] : bytes[byte];
		tokens[i].len = strlen(tokens[i].s);
		types[i] = i < ARRAY_LEN(pieces) ? kinds[i] : 6;
		scores[i] = -(float)(i / 2); /* some equal ones */
	}
	if (tokenizer_from_lists(&t, &l, &err) != ST_OK) fprintf(stderr, "%s\n", err.text);
	CHECK(t);
	return t;
}

static void decode(const struct tokenizer *t, const struct token_vec *v, struct strbuf *out)
{
	struct detok d;

	detok_init_start(&d);
	strbuf_init(out, SIZE_MAX / 4);
	for (size_t i = 0; i < v->len; i++) {
		size_t before = out->len;

		CHECK(v->ids[i] < tokenizer_vocab_size(t));
		detok_push(&d, t, v->ids[i], false, out);
		if (out->len > before)
			CHECK(utf8_valid_len(out->data + before, out->len - before) == out->len - before);
	}
	detok_finish(&d, out);
}

/* With spm, U+2581 is a space. */
static void repair(const char *s, size_t len, int missing, bool spm, struct strbuf *out)
{
	for (size_t at = 0; at < len;) {
		bool cut;
		int n = utf8_next(s + at, len - at, &cut);

		if (n < 0)
			strbuf_append(out, UTF8_REPLACEMENT, 3);
		else if (spm && n == 3 && memcmp(s + at, VOCAB_SPACE, 3) == 0)
			strbuf_putc(out, ' ');
		else if (n > 1 || s[at] != missing)
			strbuf_append(out, s + at, (size_t)n);
		at += (size_t)(n < 0 ? -n : n);
	}
}

static bool has_added(const struct tokenizer *t, const struct token_vec *v)
{
	for (size_t i = 0; i < v->len; i++)
		if (v->ids[i] == tokenizer_find(t, "<s>", 3) || v->ids[i] == tokenizer_find(t, "<think>", 7) ||
		    v->ids[i] == tokenizer_find(t, "   ", 3) || v->ids[i] == tokenizer_find(t, "<unk>", 5))
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const pres[] = {"gpt-2",   "smollm", "llama-bpe",   "qwen2",
					   "default", "gpt-4o", "deepseek-v3", "smollm",
					   "spm",     "spm with a prefix"};
	static struct tokenizer *made[ARRAY_LEN(pres)];
	unsigned which, how;
	const char *text;
	struct token_part parts[3];
	struct token_vec v, again, bounded;
	struct strbuf want, got, second;
	int missing;
	size_t cut;

	if (size < 2) return 0;
	which = data[0] % ARRAY_LEN(pres);
	how = data[1];
	text = (const char *)data + 2;
	size -= 2;
	missing = which == 7 ? 'Q' : -1;
	if (!made[which])
		made[which] = which < 8 ? make(pres[which], which == 7 ? 'Q' : 256)
					: make_spm(which == 8 ? VOCAB_PREFIX_NONE : VOCAB_PREFIX_ALWAYS);

	cut = size ? (how >> 3) * size / 32 : 0;
	parts[0] = (struct token_part){text, cut, how & 1};
	parts[1] = (struct token_part){text + cut, (size - cut) / 2, how & 2};
	parts[2] = (struct token_part){text + cut + (size - cut) / 2, size - cut - (size - cut) / 2, how & 4};
	token_vec_init(&v, SIZE_MAX);
	tokenizer_encode_parts(made[which], parts, 3, &v);
	CHECK(!v.overflow && v.len <= size * 3 + 1);
	if (!(how & 7))
		for (size_t i = 0; i < v.len; i++) CHECK(!tokenizer_is_special(made[which], v.ids[i]));
	decode(made[which], &v, &got);
	strbuf_init(&want, SIZE_MAX / 4);
	for (size_t i = 0; i < 3; i++) repair(parts[i].text, parts[i].len, missing, which >= 8, &want);
	if (which == 3) { /* NFC: encoding what came out must give it again */
		token_vec_init(&again, SIZE_MAX);
		tokenizer_encode(made[which], got.data ? got.data : "", got.len, false, &again);
		decode(made[which], &again, &second);
		CHECK(second.len == got.len && (got.len == 0 || memcmp(second.data, got.data, got.len) == 0));
		strbuf_release(&second);
		token_vec_release(&again);
	} else if (which < 9 || !has_added(made[which], &v)) { /* with a prefix, what follows an added token gets a space, too */
		CHECK(want.len == got.len && (got.len == 0 || memcmp(want.data, got.data, got.len) == 0));
	}

	token_vec_init(&bounded, v.len / 2);
	tokenizer_encode_parts(made[which], parts, 3, &bounded);
	CHECK(bounded.overflow == (v.len > 0) && bounded.len <= v.len / 2);
	CHECK(bounded.len == 0 || memcmp(bounded.ids, v.ids, bounded.len * sizeof(*v.ids)) == 0);

	token_vec_release(&bounded);
	token_vec_release(&v);
	strbuf_release(&want);
	strbuf_release(&got);
	return 0;
}
