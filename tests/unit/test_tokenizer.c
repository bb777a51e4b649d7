/* test_tokenizer.c - the tokenizer against recorded results, and its own promises: parts, limits, errors. */
#include "common/clock.h"
#include "model/gguf.h"
#include "common/mem.h"
#include "common/splitmix.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"
#include "tests/support/families.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"
#include "tests/support/tokjson.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL_FILE "models/SmolLM2-135M-Instruct.Q4_1.gguf"

static struct tokenizer *smollm2;

static int load_smollm2(void **state)
{
	smollm2 = tokjson_load("tokenizer/files/smollm2/tokenizer.json", "<|im_start|>", "<|im_end|>");
	return smollm2 ? 0 : -1;
}

static int free_smollm2(void **state)
{
	tokenizer_free(smollm2);
	return 0;
}

/* ---- recorded results (those of other families: test_families.c) ---- */

static void smollm2_gives_the_recorded_ids_and_texts(void **state)
{
	families_check(smollm2, "smollm2", 300, 100);
}

static void memory_that_is_kept_changes_no_ids(void **state)
{
	static const char *const words[] = {" the", "Hello", " world", " \xc3\xa9t\xc3\xa9", "\n\n", " 2024", "<|im_start|>", "'s", "antidisestablishmentarianism", "  ", "\xff", "=>"};
	struct tokenizer_work *kept = tokenizer_work_new(smollm2);
	uint64_t r = 3;

	for (int round = 0; round < 2000; round++) {
		struct token_vec a, b;
		char text[600] = "";

		token_vec_init(&a, 1000);
		token_vec_init(&b, 1000);
		for (size_t n = splitmix_next(&r) % 20; n > 0; n--) strcat(text, words[splitmix_next(&r) % ARRAY_LEN(words)]);
		tokenizer_encode_parts_in(smollm2, kept, &(struct token_part){text, strlen(text), round % 2}, 1, &a);
		tokenizer_encode(smollm2, text, strlen(text), round % 2, &b);
		assert_int_equal(a.len, b.len);
		if (a.len) assert_memory_equal(a.ids, b.ids, a.len * sizeof(*a.ids));
		token_vec_release(&a);
		token_vec_release(&b);
	}
	tokenizer_work_free(kept);
}

static void the_model_file_gives_the_recorded_ids(void **state)
{
	struct errbuf err = {0};
	struct gguf *g;
	struct tokenizer *t;
	uint64_t start;
	size_t heap, n_stops;
	const uint32_t *stops;

	if (access(MODEL_FILE, R_OK) != 0) {
		print_message("no %s\n", MODEL_FILE);
		skip();
	}
	if (gguf_open(&g, MODEL_FILE, &err) != ST_OK) fail_msg("%s", err.text);
	heap = mallinfo2().uordblks + mallinfo2().hblkhd;
	start = clock_now_ns();
	if (tokenizer_from_gguf(&t, g, &err) != ST_OK) fail_msg("%s", err.text);
	print_message("loaded in %.1f ms, %.2f MB\n", (double)(clock_now_ns() - start) / 1e6,
		      (double)(mallinfo2().uordblks + mallinfo2().hblkhd - heap) / 1e6);
	gguf_close(g);

	assert_int_equal(tokenizer_vocab_size(t), 49152);
	assert_int_equal(tokenizer_bos(t), 1);
	assert_int_equal(tokenizer_eos(t), 2);
	assert_false(tokenizer_add_bos(t));
	stops = tokenizer_stop_ids(t, &n_stops);
	assert_int_equal(n_stops, 2);
	assert_int_equal(stops[0], 2);
	assert_int_equal(stops[1], 0);
	families_check(t, "smollm2", 300, 100);
	tokenizer_free(t);
}

/* ---- parts ---- */

static void specials_are_recognised_only_where_allowed(void **state)
{
	static const struct {
		const char *text[4];
		const char *allow; /* 'y' or 'n' a part */
		uint32_t ids[16];
		size_t n;
	} cases[] = {
		{{"<|im_start|>", "user\n", "<|im_end|>"}, "yny", {1, 4093, 198, 2}, 4},
		{{"<|im_start|>"}, "n", {44, 108, 306, 79, 3738, 108, 46}, 7},
		/* A special is pieced together only from stretches that all allow it. */
		{{"<|im_", "start|>"}, "yy", {1}, 1},
		{{"<|im_", "", "start|>"}, "yny", {1}, 1}, /* an empty stretch is no border */
		{{"<|im_", "start|>"}, "yn", {44, 108, 306, 79, 3738, 108, 46}, 7},
		{{"<|im_", "start|>"}, "ny", {44, 108, 306, 79, 3738, 108, 46}, 7},
		{{"<|im_start|", ">"}, "yn", {44, 108, 306, 79, 3738, 108, 46}, 7},
		{{"<", "|im_start|>"}, "ny", {44, 108, 306, 79, 3738, 108, 46}, 7},
		/* A border does not split words. */
		{{"bio", "logy"}, "yn", {21222}, 1},
		{{" accoun", "", "ting"}, "nyn", {9886}, 1},
		{{""}, "y", {0}, 0},
		{{"", ""}, "yn", {0}, 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct token_part parts[4];
		struct token_vec v;
		char name[16];
		size_t n = strlen(cases[i].allow);

		for (size_t k = 0; k < n; k++)
			parts[k] = (struct token_part){cases[i].text[k], strlen(cases[i].text[k]),
						       cases[i].allow[k] == 'y'};
		token_vec_init(&v, 100);
		tokenizer_encode_parts(smollm2, parts, n, &v);
		snprintf(name, sizeof(name), "case %zu", i);
		families_expect_ids(name, &v, cases[i].ids, cases[i].n);
		token_vec_release(&v);
	}
}

static void ill_formed_parts_are_repaired_each_on_its_own(void **state)
{
	const struct token_part parts[] = {{"a\xe2\x82", 3, false}, {"\xac", 1, false}};
	struct token_vec got, want;

	token_vec_init(&got, 100);
	token_vec_init(&want, 100);
	tokenizer_encode_parts(smollm2, parts, 2, &got);
	tokenizer_encode(smollm2, "a" UTF8_REPLACEMENT UTF8_REPLACEMENT, 7, false, &want);
	families_expect_ids("repaired", &got, want.ids, want.len);
	token_vec_release(&got);
	token_vec_release(&want);
}

static void encoding_stops_at_the_bound(void **state)
{
	struct token_vec v;

	for (size_t max = 0; max <= 5; max++) {
		token_vec_init(&v, max);
		tokenizer_encode(smollm2, "one two three four", 18, false, &v);
		assert_int_equal(v.len, min_size(max, 4));
		assert_int_equal(v.overflow, max < 4);
		token_vec_release(&v);
	}
}

/* ---- long inputs ---- */

static void run_long(const char *name, const char *unit, size_t total)
{
	size_t unit_len = strlen(unit), n = total / unit_len;
	char *text = mem_array(char, n *unit_len + 1);
	struct token_vec v;
	struct strbuf back;
	uint64_t start;

	for (size_t i = 0; i < n; i++) memcpy(text + i * unit_len, unit, unit_len);
	token_vec_init(&v, SIZE_MAX);
	start = clock_now_ns();
	tokenizer_encode(smollm2, text, n * unit_len, true, &v);
	print_message("%-22s %zu bytes, %zu ids: %.0f ms\n", name, n * unit_len, v.len,
		      (double)(clock_now_ns() - start) / 1e6);
	families_decode(smollm2, v.ids, v.len, false, &back);
	assert_int_equal(back.len, n * unit_len);
	assert_memory_equal(back.data, text, back.len);
	strbuf_release(&back);
	token_vec_release(&v);
	free(text);
}

static void long_inputs_take_no_long(void **state)
{
	run_long("one letter", "a", 1000000);
	run_long("one word", "abcdefghijklmnopqrstuvwxyz", 1000000);
	run_long("spaces", " ", 1000000);
	run_long("line ends", "\n", 1000000);
	run_long("apostrophes", "'", 1000000);
	run_long("digits", "7", 1000000);
	run_long("Chinese", "\xe4\xb8\xad\xe6\x96\x87", 1000000);
	run_long("nearly special", "<|im_start|", 1000000);
	run_long("special", "<|im_start|>", 1000000);
	run_long("mixed", "The quick brown fox, aged 12, doesn't jump over\n\tthe lazy na\xc3\xafve dog. ", 1000000);
}

/* ---- small vocabularies ---- */

/* 256 byte tokens in GPT-2's spelling, and what a case adds. */
#define TINY_MAX 300
struct tiny {
	struct gguf_str tokens[TINY_MAX];
	struct vocab_merge merges[20];
	int32_t types[TINY_MAX];
	char spelled[256][4];
	struct vocab_lists l;
};

static void tiny_init(struct tiny *y)
{
	unsigned next = 256;

	memset(y, 0, sizeof(*y));
	for (unsigned b = 0; b < 256; b++) {
		bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

		y->tokens[b] =
			(struct gguf_str){y->spelled[b], (size_t)utf8_encode(printable ? b : next++, y->spelled[b])};
		y->types[b] = 1;
	}
	y->l = (struct vocab_lists){.file = "tiny",
				    .pre = "gpt-2",
				    .tokens = y->tokens,
				    .n_tokens = 256,
				    .types = y->types,
				    .merges = y->merges,
				    .unk = TOKEN_NONE,
				    .bos = TOKEN_NONE,
				    .eos = TOKEN_NONE,
				    .eot = TOKEN_NONE,
				    .eom = TOKEN_NONE,
				    .add_bos = -1};
}

static void tiny_token(struct tiny *y, const char *text, int type)
{
	y->tokens[y->l.n_tokens] = (struct gguf_str){text, strlen(text)};
	y->types[y->l.n_tokens++] = type;
}

static void tiny_merge(struct tiny *y, const char *text)
{
	assert_true(vocab_split_merge((struct gguf_str){text, strlen(text)}, &y->merges[y->l.n_merges++]));
}

/* clang-format off: a case a line */
static void change_pre(struct tiny *y)
{
	y->l.pre = "nosuch";
}
static void change_dup(struct tiny *y)
{
	tiny_token(y, "A", 1);
}
static void change_dup_special(struct tiny *y)
{
	tiny_token(y, "<x>", 3), tiny_token(y, "<x>", 1);
}
static void change_type(struct tiny *y)
{
	y->types[7] = 77;
}
static void change_left(struct tiny *y)
{
	tiny_merge(y, "zz y");
}
static void change_right(struct tiny *y)
{
	tiny_merge(y, "z yy");
}
static void change_joined(struct tiny *y)
{
	tiny_merge(y, "z y");
}
static void change_bos(struct tiny *y)
{
	y->l.bos = 4000000000;
}
static void change_eos(struct tiny *y)
{
	y->l.eos = 256;
}
static void change_empty(struct tiny *y)
{
	y->l.n_tokens = 0;
}
/* clang-format on */

static void bad_vocabularies_are_refused_by_name(void **state)
{
	static const struct {
		void (*change)(struct tiny *y);
		int rc;
		const char *words[3];
	} cases[] = {
		{change_pre, ST_UNSUPPORTED, {"tiny: tokenizer.ggml.pre", "\"nosuch\"", "gpt-2, "}},
		{change_dup, ST_INVALID, {"tokenizer.ggml.tokens", "duplicate token \"A\"", "256"}},
		{change_dup_special, ST_INVALID, {"tokenizer.ggml.tokens", "duplicate token \"<x>\"", "257"}},
		{change_type, ST_INVALID, {"tokenizer.ggml.token_type", "77", "0 to 6"}},
		{change_left, ST_INVALID, {"tokenizer.ggml.merges", "zz y", "left"}},
		{change_right, ST_INVALID, {"tokenizer.ggml.merges", "z yy", "right"}},
		{change_joined, ST_INVALID, {"tokenizer.ggml.merges", "z y", "joined"}},
		{change_bos, ST_INVALID, {"tokenizer.ggml.bos_token_id", "4000000000", "0 to 255"}},
		{change_eos, ST_INVALID, {"tokenizer.ggml.eos_token_id", "256", "0 to 255"}},
		{change_empty, ST_INVALID, {"tokenizer.ggml.tokens", "0 tokens", "1 to"}},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tiny y;
		struct tokenizer *t;
		struct errbuf err = {0};

		tiny_init(&y);
		cases[i].change(&y);
		assert_int_equal(tokenizer_from_lists(&t, &y.l, &err), cases[i].rc);
		assert_null(t);
		for (size_t k = 0; k < 3; k++)
			if (!strstr(err.text, cases[i].words[k]))
				fail_msg("\"%s\" is not in: %s", cases[i].words[k], err.text);
	}
}

static struct tokenizer *tiny_make(struct tiny *y)
{
	struct errbuf err = {0};
	struct tokenizer *t;

	if (tokenizer_from_lists(&t, &y->l, &err) != ST_OK) fail_msg("%s", err.text);
	return t;
}

static void expect_tiny(struct tokenizer *t, const char *text, bool special, const uint32_t *ids, size_t n)
{
	struct token_vec v;

	token_vec_init(&v, 1000);
	tokenizer_encode(t, text, strlen(text), special, &v);
	families_expect_ids(text, &v, ids, n);
	token_vec_release(&v);
}
#define EXPECT_TINY(t, text, special, ...) \
	expect_tiny(t, text, special, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

static void added_tokens_are_recognised_everywhere_and_the_longest_wins(void **state)
{
	struct tiny y;
	struct tokenizer *t;

	tiny_init(&y);
	tiny_token(&y, "<x>", 3);        /* 256 */
	tiny_token(&y, "<x><y>", 3);     /* 257 */
	tiny_token(&y, "<x><", 4);       /* 258 */
	tiny_token(&y, "  ", 4);         /* 259 */
	tiny_token(&y, "<|im_end|>", 1); /* 260: control by its name */
	tiny_token(&y, "ab", 1);         /* 261 */
	tiny_token(&y, "<ab>", 3);       /* 262 */
	tiny_token(&y, "<ab", 1);        /* 263 */
	tiny_merge(&y, "a b");
	tiny_merge(&y, "< ab");
	tiny_merge(&y, "<ab >"); /* would make a control token */
	t = tiny_make(&y);
	EXPECT_TINY(t, "<x><y>", true, 257);
	EXPECT_TINY(t, "<x><z", true, 258, 'z');
	EXPECT_TINY(t, "<x>z", true, 256, 'z');
	EXPECT_TINY(t, "<x><y>", false, 258, 'y', '>');
	EXPECT_TINY(t, "<x>", false, '<', 'x', '>');
	EXPECT_TINY(t, "a  b", false, 'a', 259, 'b');
	EXPECT_TINY(t, "ab", false, 261);
	EXPECT_TINY(t, "<ab>", true, 262);
	EXPECT_TINY(t, "<|im_end|>", true, 260);
	EXPECT_TINY(t, "<|im_end|>", false, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
	assert_true(tokenizer_is_special(t, 260));
	assert_false(tokenizer_is_special(t, 258));
	assert_false(tokenizer_is_special(t, 100000));
	assert_int_equal(tokenizer_find(t, "<x>", 3), 256);
	assert_int_equal(tokenizer_find(t, " ", 1), ' ');
	assert_int_equal(tokenizer_find(t, "ab", 2), 261);
	assert_int_equal(tokenizer_find(t, "abc", 3), TOKEN_NONE);
	assert_int_equal(tokenizer_find(t, "<x", 2), TOKEN_NONE);
	tokenizer_free(t);
}

static void merges_never_make_a_control_token(void **state)
{
	struct tiny y;
	struct tokenizer *t;

	tiny_init(&y);
	tiny_token(&y, "ab", 3); /* 256 */
	tiny_merge(&y, "a b");
	t = tiny_make(&y);
	EXPECT_TINY(t, "ab", false, 'a', 'b');
	EXPECT_TINY(t, "ab", true, 256);
	tokenizer_free(t);
}

static void merges_go_by_rank_then_from_the_left(void **state)
{
	struct tiny y;
	struct tokenizer *t;

	tiny_init(&y);
	tiny_token(&y, "aa", 1);  /* 256 */
	tiny_token(&y, "ba", 1);  /* 257 */
	tiny_token(&y, "aaa", 1); /* 258 */
	tiny_merge(&y, "b a");
	tiny_merge(&y, "a a");
	tiny_merge(&y, "aa a");
	tiny_merge(&y, "a aa"); /* the same token by another way; ranks later */
	t = tiny_make(&y);
	EXPECT_TINY(t, "aaa", false, 258);
	EXPECT_TINY(t, "aaaa", false, 256, 256);
	EXPECT_TINY(t, "aaaaa", false, 256, 258);
	EXPECT_TINY(t, "baaa", false, 257, 256);
	tokenizer_free(t);
}

static void bos_and_stop_ids_follow_the_file(void **state)
{
	struct tiny y;
	struct tokenizer *t;
	const uint32_t *stops;
	size_t n;

	tiny_init(&y);
	tiny_token(&y, "<s>", 3);        /* 256 */
	tiny_token(&y, "<|end|>", 3);    /* 257 */
	tiny_token(&y, "<|eot_id|>", 3); /* 258 */
	y.l.pre = "llama-bpe";
	y.l.bos = 256;
	y.l.eos = 257;
	t = tiny_make(&y);
	assert_true(tokenizer_add_bos(t));
	assert_int_equal(tokenizer_bos(t), 256);
	stops = tokenizer_stop_ids(t, &n);
	assert_int_equal(n, 2);
	assert_int_equal(stops[0], 257);
	assert_int_equal(stops[1], 258);
	tokenizer_free(t);

	y.l.add_bos = 0;
	t = tiny_make(&y);
	assert_false(tokenizer_add_bos(t));
	tokenizer_free(t);

	/* With harmony's <|return|>, <|end|> only ends a message. */
	tiny_token(&y, "<|return|>", 3); /* 259 */
	y.l.eos = 259;
	y.l.bos = TOKEN_NONE;
	y.l.add_bos = 1;
	t = tiny_make(&y);
	assert_false(tokenizer_add_bos(t)); /* nothing to add */
	stops = tokenizer_stop_ids(t, &n);
	assert_int_equal(n, 2);
	assert_int_equal(stops[0], 259);
	assert_int_equal(stops[1], 258);
	tokenizer_free(t);
}

/* ---- GGUF files ---- */

/* clang-format off: a case a line */
static void gguf_kind(struct gguf_writer *w)
{
	gguf_writer_str(w, "tokenizer.ggml.model", "t5");
}
static void gguf_no_kind(struct gguf_writer *w)
{
	gguf_writer_drop(w, "tokenizer.ggml.model");
}
static void gguf_no_tokens(struct gguf_writer *w)
{
	gguf_writer_drop(w, "tokenizer.ggml.tokens");
}
static void gguf_no_merges(struct gguf_writer *w)
{
	gguf_writer_drop(w, "tokenizer.ggml.merges");
}
static void gguf_pre(struct gguf_writer *w)
{
	gguf_writer_str(w, "tokenizer.ggml.pre", "nosuch");
}
static void gguf_pre_kind(struct gguf_writer *w)
{
	gguf_writer_u32(w, "tokenizer.ggml.pre", 1);
}
static void gguf_tokens_scalar(struct gguf_writer *w)
{
	gguf_writer_str(w, "tokenizer.ggml.tokens", "a");
}
static void gguf_tokens_empty(struct gguf_writer *w)
{
	gguf_writer_strs(w, "tokenizer.ggml.tokens", NULL, 0);
}
static void gguf_bos(struct gguf_writer *w)
{
	gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 4000000000u);
}
static void gguf_eos(struct gguf_writer *w)
{
	gguf_writer_i32(w, "tokenizer.ggml.eos_token_id", -1);
}
static void gguf_pad(struct gguf_writer *w)
{
	gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", TINY_LLAMA_TOKENS);
}
static void gguf_add_bos(struct gguf_writer *w)
{
	gguf_writer_str(w, "tokenizer.ggml.add_bos_token", "yes");
}
/* clang-format on */

static void gguf_tokens_numbers(struct gguf_writer *w)
{
	const uint32_t numbers[] = {1, 2, 3};

	gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_U32, numbers, 3);
}

static void gguf_types_short(struct gguf_writer *w)
{
	const int32_t types[] = {1};

	gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, 1);
}

static void gguf_types_text(struct gguf_writer *w)
{
	const char *types[] = {"a"};

	gguf_writer_strs(w, "tokenizer.ggml.token_type", types, 1);
}

static void gguf_merges_bad(struct gguf_writer *w)
{
	const char *merges[] = {"nospace", "zz yy"};

	gguf_writer_strs(w, "tokenizer.ggml.merges", merges, 2);
}

static void gguf_more_tokens_than_rows(struct gguf_writer *w)
{
	gguf_writer_find_tensor(w, "token_embd.weight")->dims[1] = TINY_LLAMA_TOKENS - 1;
}

static int open_tiny(void (*change)(struct gguf_writer *w), uint32_t rows, struct tokenizer **t, struct errbuf *err)
{
	struct tiny_llama y;
	struct gguf_writer w;
	struct test_file_mem m;
	struct gguf *g;
	uint8_t *bytes;
	size_t len;
	int rc;

	tiny_llama_init(&y);
	y.vocab = rows;
	gguf_writer_init(&w);
	tiny_llama_fill(&w, &y);
	if (change) change(&w);
	bytes = gguf_writer_build(&w, &len);
	test_file_mem_init(&m, bytes, len);
	rc = gguf_open(&g, m.path, err);
	if (rc != ST_OK) fail_msg("%s", err->text);
	rc = tokenizer_from_gguf(t, g, err);
	gguf_close(g);
	test_file_mem_release(&m);
	free(bytes);
	gguf_writer_release(&w);
	return rc;
}

static void bad_files_are_refused_by_key(void **state)
{
	static const struct {
		void (*change)(struct gguf_writer *w);
		const char *words[3];
	} cases[] = {
		{gguf_kind, {"tokenizer.ggml.model", "\"t5\"", "gpt2"}},
		{gguf_no_kind, {"tokenizer.ggml.model", "", ""}},
		{gguf_no_tokens, {"tokenizer.ggml.tokens", "", ""}},
		{gguf_no_merges, {"tokenizer.ggml.merges", "", ""}},
		{gguf_pre, {"tokenizer.ggml.pre", "nosuch", "gpt-2"}},
		{gguf_pre_kind, {"tokenizer.ggml.pre", "u32", "str"}},
		{gguf_tokens_scalar, {"tokenizer.ggml.tokens", "array", ""}},
		{gguf_tokens_numbers, {"tokenizer.ggml.tokens", "u32", "str"}},
		{gguf_tokens_empty, {"tokenizer.ggml.tokens", "empty", ""}},
		{gguf_bos, {"tokenizer.ggml.bos_token_id", "4000000000", "264"}},
		{gguf_eos, {"tokenizer.ggml.eos_token_id", "-1", "264"}},
		{gguf_pad, {"tokenizer.ggml.padding_token_id", "265", "264"}},
		{gguf_add_bos, {"tokenizer.ggml.add_bos_token", "str", "bool"}},
		{gguf_types_short, {"tokenizer.ggml.token_type", "length 1", "265"}},
		{gguf_types_text, {"tokenizer.ggml.token_type", "str", ""}},
		{gguf_merges_bad, {"tokenizer.ggml.merges", "nospace", ""}},
		{gguf_more_tokens_than_rows, {"vocabulary has 265 tokens", "token_embd.weight", "264"}},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tokenizer *t;
		struct errbuf err = {0};

		assert_int_not_equal(open_tiny(cases[i].change, TINY_LLAMA_TOKENS, &t, &err), ST_OK);
		assert_null(t);
		for (size_t k = 0; k < 3; k++)
			if (!strstr(err.text, cases[i].words[k]))
				fail_msg("\"%s\" is not in: %s", cases[i].words[k], err.text);
	}
}

/* clang-format off: a case a line */
static void gguf_no_types(struct gguf_writer *w)
{
	gguf_writer_drop(w, "tokenizer.ggml.token_type");
}
static void gguf_no_pre(struct gguf_writer *w)
{
	gguf_writer_drop(w, "tokenizer.ggml.pre");
}
/* clang-format on */

static void gguf_no_ids(struct gguf_writer *w)
{
	gguf_writer_drop(w, "tokenizer.ggml.bos_token_id");
	gguf_writer_drop(w, "tokenizer.ggml.eos_token_id");
}

static void good_files_load(void **state)
{
	static void (*const changes[])(struct gguf_writer * w) = {NULL, gguf_no_types, gguf_no_pre, gguf_no_ids};

	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		struct tokenizer *t;
		struct errbuf err = {0};
		size_t n;

		if (open_tiny(changes[i], TINY_LLAMA_TOKENS + 7, &t, &err) != ST_OK)
			fail_msg("%s", err.text); /* padded rows */
		assert_int_equal(tokenizer_vocab_size(t), TINY_LLAMA_TOKENS);
		assert_int_equal(tokenizer_eos(t), changes[i] == gguf_no_ids ? TOKEN_NONE : 2);
		tokenizer_stop_ids(t, &n);
		assert_int_equal(n, 2); /* <|im_end|>, <|endoftext|>: control tokens by their names alone, too */
		assert_true(tokenizer_is_special(t, 1));
		EXPECT_TINY(t, "a<|im_end|>", true, 3 + 'a', 2);
		tokenizer_free(t);
	}
}

/* ---- detok ---- */

/* However bytes are cut into tokens, the text is that of one repair. */
static void detok_is_the_same_for_every_cut(void **state)
{
	static const unsigned char pool[] = {'a',  0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f,
					     0x98, 0x80, 0xed, 0xa0, 0xf4, 0x90, 0xff, 0xc0};
	struct tiny y;
	struct tokenizer *t;
	char pieces[4][16];
	uint32_t seed = 1;

	tiny_init(&y);
	t = tiny_make(&y);
	for (int round = 0; round < 20000; round++) {
		unsigned char raw[8];
		uint32_t ids[8];
		size_t n;
		struct strbuf got, want;

		seed = seed * 1664525 + 1013904223;
		n = 1 + (seed >> 16) % sizeof(raw);
		for (size_t i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			ids[i] = raw[i] = pool[(seed >> 16) % sizeof(pool)];
		}
		strbuf_init(&want, 100);
		for (size_t at = 0; at < n;) {
			bool cut;
			int len = utf8_next((char *)raw + at, n - at, &cut);

			strbuf_append(&want, len > 0 ? (char *)raw + at : UTF8_REPLACEMENT, len > 0 ? (size_t)len : 3);
			at += (size_t)(len > 0 ? len : -len);
		}
		families_decode(t, ids, n, false, &got);
		assert_int_equal(got.len, want.len);
		assert_memory_equal(got.data, want.data, got.len);
		strbuf_release(&got);
		strbuf_release(&want);
	}
	tokenizer_free(t);

	/* The same with tokens of several bytes: a cut character in front of and inside longer tokens. */
	tiny_init(&y);
	snprintf(pieces[0], 16, "%s%s", y.spelled[0x9f], y.spelled[0x98]); /* 256: the middle of an emoji */
	snprintf(pieces[1], 16, "%s%s", y.spelled[0x80], y.spelled['!']);  /* 257: its end, and more */
	snprintf(pieces[2], 16, "%s%s", y.spelled['x'], y.spelled[0xf0]);  /* 258: its beginning, after more */
	tiny_token(&y, pieces[0], 1);
	tiny_token(&y, pieces[1], 1);
	tiny_token(&y, pieces[2], 1);
	tiny_token(&y, "<s>", 3); /* 259 */
	t = tiny_make(&y);
	static const struct {
		uint32_t ids[4];
		size_t n;
		bool skip;
		const char *text;
	} cases[] = {
		{{258, 256, 257}, 3, false, "x\xf0\x9f\x98\x80!"},
		{{258, 259, 256, 257}, 4, true, "x\xf0\x9f\x98\x80!"},
		{{258, 259, 257}, 3, false, "x" UTF8_REPLACEMENT "<s>" UTF8_REPLACEMENT "!"},
		{{258, 256}, 2, false, "x" UTF8_REPLACEMENT},
		{{258, 258}, 2, false, "x" UTF8_REPLACEMENT "x" UTF8_REPLACEMENT},
		{{256, 5000}, 2, false, UTF8_REPLACEMENT UTF8_REPLACEMENT},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct strbuf got;

		families_decode(t, cases[i].ids, cases[i].n, cases[i].skip, &got);
		assert_string_equal(got.data, cases[i].text);
		strbuf_release(&got);
	}
	tokenizer_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smollm2_gives_the_recorded_ids_and_texts),
		cmocka_unit_test(memory_that_is_kept_changes_no_ids),
		cmocka_unit_test(the_model_file_gives_the_recorded_ids),
		cmocka_unit_test(specials_are_recognised_only_where_allowed),
		cmocka_unit_test(ill_formed_parts_are_repaired_each_on_its_own),
		cmocka_unit_test(encoding_stops_at_the_bound),
		cmocka_unit_test(long_inputs_take_no_long),
		cmocka_unit_test(bad_vocabularies_are_refused_by_name),
		cmocka_unit_test(added_tokens_are_recognised_everywhere_and_the_longest_wins),
		cmocka_unit_test(merges_never_make_a_control_token),
		cmocka_unit_test(merges_go_by_rank_then_from_the_left),
		cmocka_unit_test(bos_and_stop_ids_follow_the_file),
		cmocka_unit_test(bad_files_are_refused_by_key),
		cmocka_unit_test(good_files_load),
		cmocka_unit_test(detok_is_the_same_for_every_cut),
	};

	return cmocka_run_group_tests(tests, load_smollm2, free_smollm2);
}
