/* test_tokbytes.c - what tokens stand for, from both kinds of vocabulary. */
#include "common/mem.h"
#include "model/tokbytes_json.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden.h"
#include "tests/support/test_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct token_case {
	const char *spelled;
	int32_t type;
	enum tokbytes_kind kind;
	const char *bytes;
	size_t len;
};

#define TOKENS_MAX 32

static void check(enum tokbytes_spelling spelling, const struct token_case *cases, size_t n, bool with_types)
{
	struct gguf_str tokens[TOKENS_MAX];
	int32_t types[TOKENS_MAX];
	struct tokbytes_lists l = {.file = "test", .spelling = spelling, .tokens = tokens, .n_tokens = n};
	struct errbuf err = {0};
	struct tokbytes *t;

	for (size_t i = 0; i < n; i++) {
		tokens[i] = (struct gguf_str){cases[i].spelled, strlen(cases[i].spelled)};
		types[i] = cases[i].type;
	}
	if (with_types) l.types = types;
	if (tokbytes_from_lists(&t, &l, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(t->n, n);
	for (uint32_t i = 0; i < n; i++) {
		size_t len;
		const char *bytes = tokbytes_of(t, i, &len);

		if (t->kinds[i] != cases[i].kind) fail_msg("token %u is of kind %d", i, t->kinds[i]);
		if (len != cases[i].len || memcmp(bytes, cases[i].bytes, len) != 0)
			fail_msg("token %u: %.*s", i, (int)len, bytes);
	}
	tokbytes_free(t);
}

static void byte_level_tokens(void **state)
{
	static const struct token_case cases[] = {
		{"a", 1, TOKBYTES_PLAIN, "a", 1},
		{"\u0120the", 1, TOKBYTES_PLAIN, " the", 4},
		{"\u010a", 1, TOKBYTES_PLAIN, "\n", 1},
		{"\u0100", 1, TOKBYTES_PLAIN, "\0", 1},
		{"\u0143", 1, TOKBYTES_PLAIN, "\xad", 1}, /* the last of the table */
		{"\u00e2\u0124\u00ac", 0, TOKBYTES_PLAIN, "\xe2\x82\xac", 3},
		{"\u0144", 1, TOKBYTES_PLAIN, "\u0144", 2}, /* not in the table */
		{"\u4e2d", 1, TOKBYTES_PLAIN, "\u4e2d", 3},
		{"<0x0A>", 6, TOKBYTES_PLAIN, "<0x0A>", 6}, /* means nothing here */
		{"<unk>", 2, TOKBYTES_SPECIAL, "<unk>", 5},
		{"<|tool|>", 3, TOKBYTES_SPECIAL, "<|tool|>", 8},
		{"\u0120x", 4, TOKBYTES_ADDED, "\u0120x", 3},          /* added tokens are written as they are */
		{"<|im_end|>", 1, TOKBYTES_SPECIAL, "<|im_end|>", 10}, /* whatever the file says */
		{"<|eot_id|>", 4, TOKBYTES_SPECIAL, "<|eot_id|>", 10},
		{"\u0120gone", 5, TOKBYTES_UNUSED, " gone", 5},
		{"", 1, TOKBYTES_PLAIN, "", 0},
	};

	check(TOKBYTES_GPT2, cases, ARRAY_LEN(cases), true);
}

static void sentencepiece_tokens(void **state)
{
	static const struct token_case cases[] = {
		{"a", 1, TOKBYTES_PLAIN, "a", 1},
		{"\u2581the", 1, TOKBYTES_PLAIN, " the", 4},
		{"\u2581\u2581", 4, TOKBYTES_ADDED, "  ", 2},
		{"x\u2581y\u2580", 1, TOKBYTES_PLAIN, "x y\u2580", 6},
		{"<0x0A>", 6, TOKBYTES_PLAIN, "\n", 1},
		{"<0xFf>", 6, TOKBYTES_PLAIN, "\xff", 1},
		{"<0x0A>", 1, TOKBYTES_PLAIN, "<0x0A>", 6}, /* a normal token of that name */
		{"<unk>", 2, TOKBYTES_SPECIAL, "<unk>", 5},
		{"<s>", 3, TOKBYTES_SPECIAL, "<s>", 3},
		{"<start_of_turn>", 4, TOKBYTES_SPECIAL, "<start_of_turn>", 15},
		{"<unused0>", 5, TOKBYTES_UNUSED, "<unused0>", 9},
		{"\u0120", 1, TOKBYTES_PLAIN, "\u0120", 2},
	};
	static const struct token_case untyped[] = {
		{"<0x41>", 0, TOKBYTES_PLAIN, "A", 1},
		{"<0x4>", 0, TOKBYTES_PLAIN, "<0x4>", 5},
		{"<0x4g>", 0, TOKBYTES_PLAIN, "<0x4g>", 6},
	};

	check(TOKBYTES_LLAMA, cases, ARRAY_LEN(cases), true);
	check(TOKBYTES_LLAMA, untyped, ARRAY_LEN(untyped), false);
}

static void bad_lists_are_refused(void **state)
{
	struct gguf_str token = {"x", 1};
	int32_t type = 7;
	struct tokbytes_lists l = {.file = "test", .tokens = &token, .n_tokens = 0};
	struct errbuf err = {0};
	struct tokbytes *t;

	assert_int_equal(tokbytes_from_lists(&t, &l, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "has 0 tokens"));
	err.text[0] = 0;
	l.n_tokens = 1;
	l.types = &type;
	assert_int_equal(tokbytes_from_lists(&t, &l, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "token 0 has type 7; expected 0 to 6"));
	err.text[0] = 0;
	type = 6;
	l.spelling = TOKBYTES_LLAMA;
	assert_int_equal(tokbytes_from_lists(&t, &l, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "is a byte, but is called \"x\""));
	l.spelling = TOKBYTES_GPT2;
	assert_int_equal(tokbytes_from_lists(&t, &l, &err), ST_OK);
	tokbytes_free(t);
}

static int load_file(const struct gguf_writer *w, struct tokbytes **t, struct errbuf *err)
{
	size_t len;
	uint8_t *bytes = gguf_writer_build(w, &len);
	struct test_file_mem file;
	struct gguf *g;
	int rc;

	test_file_mem_init(&file, bytes, len);
	assert_int_equal(gguf_open(&g, file.path, err), ST_OK);
	rc = tokbytes_from_gguf(t, g, err);
	gguf_close(g);
	test_file_mem_release(&file);
	free(bytes);
	return rc;
}

static void files_are_read_and_checked(void **state)
{
	static const char *const tokens[] = {"<s>", "\u2581a", "<0x20>"};
	static const int32_t types[] = {3, 1, 6};
	struct errbuf err = {0};
	struct gguf_writer w;
	struct tokbytes *t;

	gguf_writer_init(&w);
	assert_int_equal(load_file(&w, &t, &err), ST_NOT_FOUND);
	gguf_writer_str(&w, "tokenizer.ggml.model", "t5");
	err.text[0] = 0;
	assert_int_equal(load_file(&w, &t, &err), ST_UNSUPPORTED);
	assert_non_null(strstr(err.text, "vocabulary kind \"t5\" is not supported"));
	gguf_writer_str(&w, "tokenizer.ggml.model", "llama");
	gguf_writer_strs(&w, "tokenizer.ggml.tokens", tokens, 3);
	gguf_writer_array(&w, "tokenizer.ggml.token_type", GGUF_I32, types, 2);
	err.text[0] = 0;
	assert_int_equal(load_file(&w, &t, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "has length 2; expected one for each of the 3 tokens"));
	gguf_writer_array(&w, "tokenizer.ggml.token_type", GGUF_I32, types, 3);
	assert_int_equal(load_file(&w, &t, &err), ST_OK);
	assert_int_equal(t->n, 3);
	assert_int_equal(t->offs[3], 3 + 2 + 1);
	assert_memory_equal(t->bytes, "<s> a ", 6);
	tokbytes_free(t);
	gguf_writer_release(&w);
}

/* The recorded tokens of the default model, joined, are the recorded texts. */
static void the_default_models_tokens_spell_the_recorded_texts(void **state)
{
	FILE *f = golden_open("tokenizer/smollm2.jsonl");
	struct errbuf err = {0};
	struct tokbytes *t;
	struct gguf *g;
	json_t *o;
	int n = 0;

	if (gguf_open(&g, "models/SmolLM2-135M-Instruct.Q4_1.gguf", &err) != ST_OK || !f) skip();
	if (tokbytes_from_gguf(&t, g, &err) != ST_OK) fail_msg("%s", err.text);
	gguf_close(g);
	for (; (o = golden_next(f)); json_decref(o)) {
		const char *want = json_string_value(json_object_get(o, "decoded"));
		size_t want_len = json_string_length(json_object_get(o, "decoded")), at = 0, n_ids;
		uint32_t *ids;

		if (json_object_get(o, "bytes") || !want) continue;
		ids = golden_u32s(json_object_get(o, "ids"), &n_ids);
		for (size_t i = 0; i < n_ids; i++) {
			size_t len;
			const char *bytes = tokbytes_of(t, ids[i], &len);

			if (at + len > want_len || memcmp(want + at, bytes, len) != 0)
				fail_msg("%s: token %zu", json_string_value(json_object_get(o, "id")), i);
			at += len;
		}
		assert_int_equal(at, want_len);
		free(ids);
		n++;
	}
	assert_true(n > 50);
	fclose(f);
	tokbytes_free(t);
}

/* ---- tokenizer.json ---- */

static int load_json(const char *text, struct tokbytes **t, struct errbuf *err)
{
	char *path = test_file_temp("tokenizer.json");
	int rc;

	err->text[0] = 0;
	test_file_write(path, text, strlen(text));
	rc = tokbytes_from_json(t, test_file_dir(), err); /* the folder */
	free(path);
	return rc;
}

static void expect_token(const struct tokbytes *t, uint32_t id, enum tokbytes_kind kind, const char *bytes)
{
	size_t len;
	const char *got = tokbytes_of(t, id, &len);

	if (t->kinds[id] != kind || len != strlen(bytes) || memcmp(got, bytes, len) != 0)
		fail_msg("token %u: kind %d, \"%.*s\"", id, t->kinds[id], (int)len, got);
}

static void a_tokenizer_json_is_read(void **state)
{
	struct errbuf err = {{0}};
	struct tokbytes *t;

	if (load_json("{\"model\":{\"vocab\":{\"a\":0,\"\\u0120the\":1,\"<0x41>\":3}},"
		      "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"},{\"type\":\"ByteLevel\"}]},"
		      "\"added_tokens\":[{\"id\":5,\"content\":\"\\u0120<x>\",\"special\":true},{\"id\":6,\"content\":\"<y>\"}]}",
		      &t, &err) != ST_OK)
		fail_msg("%s", err.text);
	assert_int_equal(t->n, 7);
	expect_token(t, 0, TOKBYTES_PLAIN, "a");
	expect_token(t, 1, TOKBYTES_PLAIN, " the");
	expect_token(t, 2, TOKBYTES_UNUSED, ""); /* a gap */
	expect_token(t, 3, TOKBYTES_PLAIN, "<0x41>");
	expect_token(t, 5, TOKBYTES_SPECIAL, "\u0120<x>");
	expect_token(t, 6, TOKBYTES_ADDED, "<y>");
	tokbytes_free(t);
	if (load_json("{\"model\":{\"byte_fallback\":true,\"vocab\":{\"\\u2581a\":0,\"<0x41>\":1,\"<0x4>\":2}},"
		      "\"normalizer\":{\"type\":\"Replace\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pretokenizers\":[{\"type\":\"ByteLevel\"}]}}",
		      &t, &err) != ST_OK)
		fail_msg("%s", err.text);
	expect_token(t, 0, TOKBYTES_PLAIN, " a");
	expect_token(t, 1, TOKBYTES_PLAIN, "A");
	expect_token(t, 2, TOKBYTES_PLAIN, "<0x4>");
	tokbytes_free(t);
}

static void bad_tokenizer_jsons_are_refused_by_place(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{"{}", "tokenizer.json: model.vocab: expected an object"},
		{"[]", "tokenizer.json: is no JSON object"},
		{"{\"model\":{\"vocab\":{\"a\":-1}}}", "model.vocab: is -1; expected a token id"},
		{"{\"model\":{\"vocab\":{\"a\":100000}}}", "model.vocab: is 100000; expected a token id, 0 to 65536"},
		{"{\"model\":{\"vocab\":{\"a\":0,\"b\":0}}}", "id 0 is that of \"a\" and of \"b\""},
		{"{\"model\":{\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":0,\"content\":\"b\"}]}", "added_tokens[0]: id 0 is that of"},
		{"{\"model\":{\"vocab\":{\"a\":0}},\"added_tokens\":{}}", "added_tokens: is an object; expected an array"},
		{"{\"model\":{\"vocab\":{\"a\":0}},\"added_tokens\":[{\"id\":1}]}", "added_tokens[0].content: is missing"},
	};
	struct errbuf err;
	struct tokbytes *t;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_not_equal(load_json(cases[i].text, &t, &err), ST_OK);
		assert_null(t);
		if (!strstr(err.text, cases[i].want)) fail_msg("%zu: %s", i, err.text);
	}
	assert_int_equal(tokbytes_from_json(&t, "/no/such/folder", &err), ST_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(byte_level_tokens),
		cmocka_unit_test(sentencepiece_tokens),
		cmocka_unit_test(bad_lists_are_refused),
		cmocka_unit_test(files_are_read_and_checked),
		cmocka_unit_test(the_default_models_tokens_spell_the_recorded_texts),
		cmocka_unit_test(a_tokenizer_json_is_read),
		cmocka_unit_test(bad_tokenizer_jsons_are_refused_by_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
