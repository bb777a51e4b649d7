/* test_tokfile.c - tokenizer.json: each step against what Hugging Face's tokenizers does with it (recorded by
 * tests/data/tokenizer_steps.py), what is refused and with which words, and the files beside it. */
#include "common/mem.h"
#include "common/strbuf.h"
#include "frontend/gendefaults.h"
#include "frontend/tokenizer.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"
#include "tests/support/test_file.h"
#include "tests/support/tokjson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- recorded steps ---- */

static void expect_result(const struct tokenizer *t, const char *name, const json_t *result)
{
	const json_t *text = json_array_get(result, 0), *decoded = json_array_get(result, 2);
	struct token_vec v;
	struct strbuf back;
	char what[200];
	size_t n;
	uint32_t *ids = golden_u32s(json_array_get(result, 1), &n);

	snprintf(what, sizeof(what), "%s, \"%.100s\"", name, json_string_value(text));
	token_vec_init(&v, SIZE_MAX);
	tokenizer_encode(t, json_string_value(text), json_string_length(text), true, &v);
	families_expect_ids(what, &v, ids, n);
	families_decode(t, ids, n, false, &back);
	if (json_is_string(decoded) && (back.len != json_string_length(decoded) || memcmp(back.data ? back.data : "", json_string_value(decoded), back.len) != 0))
		fail_msg("%s: decoded \"%s\", expected \"%s\"", what, back.data, json_string_value(decoded));
	strbuf_release(&back);
	token_vec_release(&v);
	free(ids);
}

static void steps_do_what_tokenizers_does(void **state)
{
	FILE *f = golden_open("tokenizer/steps.jsonl");
	size_t n_cases = 0, i;
	json_t *c, *result;

	assert_non_null(f);
	for (; (c = golden_next(f)) != NULL; json_decref(c), n_cases++) {
		const char *name = json_string_value(json_object_get(c, "name"));
		char *text = json_dumps(json_object_get(c, "tokenizer"), 0);
		struct errbuf err = {0};
		struct tokenizer *t;

		if (tokjson_try(&t, text, strlen(text), NULL, &err) != ST_OK) fail_msg("%s: %s", name, err.text);
		json_array_foreach(json_object_get(c, "results"), i, result) expect_result(t, name, result);
		tokenizer_free(t);
		free(text);
	}
	fclose(f);
	assert_true(n_cases >= 45);
}

/* ---- refusals ---- */

/* A small good one, byte-level: 256 bytes, "th", "the", and an added token. */
static json_t *base_new(void)
{
	json_t *vocab = json_object(), *root;
	unsigned next = 256;
	size_t i = 0;

	for (unsigned b = 0; b < 256; b++) {
		bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
		char text[5] = "";
		unsigned cp = printable ? b : next++;

		if (cp < 0x80) text[0] = (char)cp;
		else text[0] = (char)(0xc0 | cp >> 6), text[1] = (char)(0x80 | (cp & 0x3f));
		json_object_set_new(vocab, text, json_integer((json_int_t)i++));
	}
	json_object_set_new(vocab, "th", json_integer(256));
	json_object_set_new(vocab, "the", json_integer(257));
	root = json_pack("{s:s, s:[{s:i, s:s, s:b, s:b}], s:n, s:{s:s, s:b, s:b}, s:n, s:{s:s}, s:{s:s, s:o, s:[s, [s, s]]}}", "version",
			 "1.0", "added_tokens", "id", 258, "content", "<s>", "special", 1, "normalized", 0, "normalizer",
			 "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 1, "post_processor", "decoder",
			 "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges", "t h", "th", "e");
	assert_non_null(root);
	return root;
}

/* Sets (or, for NULL, removes) what `way` names: "model.merges.0". Members that are missing are made. */
static void change(json_t *root, const char *way, const char *value)
{
	json_t *at = root, *new = value ? json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
	char key[100];

	assert_true(!value || new);
	for (;;) {
		size_t len = strcspn(way, ".");

		snprintf(key, sizeof(key), "%.*s", (int)len, way);
		way += len;
		if (!*way) break;
		way++;
		if (json_is_object(at) && !json_object_get(at, key)) json_object_set_new(at, key, json_object());
		at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10)) : json_object_get(at, key);
		assert_non_null(at);
	}
	if (!new) json_object_del(at, key);
	else if (json_is_array(at)) json_array_set_new(at, strtoul(key, NULL, 10), new);
	else json_object_set_new(at, key, new);
}

static int try_changed(struct tokenizer **t, const char *way, const char *value, const char *config, struct errbuf *err)
{
	json_t *root = base_new();
	char *text;
	int rc;

	if (way) change(root, way, value);
	text = json_dumps(root, 0);
	rc = tokjson_try(t, text, strlen(text), config, err);
	free(text);
	json_decref(root);
	return rc;
}

static void what_is_not_known_is_refused_by_name(void **state)
{
	static const struct {
		const char *way, *value;
		int rc;
		const char *words[3];
	} cases[] = {
		{"model", NULL, ST_INVALID, {"tokenizer.json: model.vocab", "expected an object", ""}},
		{"model.type", "\"Unigram\"", ST_UNSUPPORTED, {"model.type", "\"Unigram\"", "\"BPE\""}},
		{"model.type", "7", ST_INVALID, {"model.type", "a number", "expected a text"}},
		{"model.dropout", "0.1", ST_UNSUPPORTED, {"model.dropout", "expected null", ""}},
		{"model.end_of_word_suffix", "\"</w>\"", ST_UNSUPPORTED, {"model.end_of_word_suffix", "expected null", ""}},
		{"model.continuing_subword_prefix", "\"##\"", ST_UNSUPPORTED, {"model.continuing_subword_prefix", "", ""}},
		{"model.byte_fallback", "\"yes\"", ST_INVALID, {"model.byte_fallback", "a text", "true or false"}},
		{"model.unk_token", "\"<none>\"", ST_INVALID, {"model.unk_token", "<none>", "vocabulary"}},
		{"model.vocab", "{}", ST_INVALID, {"model.vocab", "expected an object", ""}},
		{"model.vocab.x y", "-1", ST_INVALID, {"model.vocab", "-1", "0 to"}},
		{"model.vocab.x y", "1.5", ST_INVALID, {"model.vocab", "a number", "token id"}},
		{"model.vocab.x y", "\"9\"", ST_INVALID, {"model.vocab", "a text", "token id"}},
		{"model.vocab.x y", "90000", ST_INVALID, {"model.vocab", "90000", "0 to 65"}}, /* ids may be sparse, not absurd */
		{"model.vocab.x y", "3", ST_INVALID, {"model.vocab", "id 3", "one token an id"}},
		{"model.merges", NULL, ST_INVALID, {"model.merges", "missing", "array"}},
		{"model.merges.0", "\"th\"", ST_INVALID, {"model.merges[0]", "\"th\"", "space"}},
		{"model.merges.0", "[\"t\", 1]", ST_INVALID, {"model.merges[0][1]", "a number", "a text"}},
		{"model.merges.0", "[\"t\"]", ST_INVALID, {"model.merges[0]", "an array", ""}},
		{"model.merges.1", "\"x yz\"", ST_INVALID, {"model.merges", "merge 1", "the right one"}},
		{"added_tokens", "{}", ST_INVALID, {"added_tokens", "an object", "an array"}},
		{"added_tokens.0.id", "\"1\"", ST_INVALID, {"added_tokens[0].id", "a text", "token id"}},
		{"added_tokens.0.id", "5", ST_INVALID, {"added_tokens[0]", "id 5", "\"<s>\""}},
		{"added_tokens.0.content", "null", ST_INVALID, {"added_tokens[0].content", "null", "text"}},
		{"added_tokens.0.content", "\"the\"", ST_INVALID, {"duplicate token \"the\"", "257", "258"}},
		{"added_tokens.0.lstrip", "1", ST_INVALID, {"added_tokens[0].lstrip", "a number", "true or false"}},
		{"normalizer", "{}", ST_INVALID, {"normalizer.type", "missing", ""}},
		{"normalizer", "{\"type\": \"Precompiled\"}", ST_UNSUPPORTED, {"normalizer.type", "\"Precompiled\"", "NFC"}},
		{"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"BertNormalizer\"}]}", ST_UNSUPPORTED,
		 {"normalizer.normalizers[1].type", "BertNormalizer", ""}},
		{"normalizer", "{\"type\": \"Sequence\"}", ST_INVALID, {"normalizer.normalizers", "missing", "array"}},
		{"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"x\"}", ST_INVALID, {"normalizer.pattern", "empty", ""}},
		{"normalizer", "{\"type\": \"Replace\", \"pattern\": \"x\", \"content\": \"x\"}", ST_INVALID, {"normalizer.pattern", "Regex", ""}},
		{"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(\"}, \"content\": \"x\"}", ST_INVALID, {"normalizer.pattern", "not valid", ""}},
		{"pre_tokenizer", "null", ST_UNSUPPORTED, {"pre_tokenizer", "ByteLevel", "Metaspace"}},
		{"pre_tokenizer.type", "\"BertPreTokenizer\"", ST_UNSUPPORTED, {"pre_tokenizer.type", "BertPreTokenizer", "ByteLevel, Split"}},
		{"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Sideways\"}", ST_UNSUPPORTED,
		 {"pre_tokenizer.behavior", "Sideways", "not known"}},
		{"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}, \"behavior\": \"Isolated\"}", ST_UNSUPPORTED,
		 {"pre_tokenizer.pattern", "&&", "byte 2"}},
		{"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\"}", ST_UNSUPPORTED, {"pre_tokenizer.replacement", "\"_\"", "U+2581"}},
		{"pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": \"ByteLevel\"}]}", ST_UNSUPPORTED,
		 {"pre_tokenizer.pretokenizers[1]", "add_prefix_space", "false"}},
		{"post_processor", "{\"type\": \"BertProcessing\"}", ST_UNSUPPORTED, {"post_processor.type", "BertProcessing", "TemplateProcessing"}},
		{"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"<s>\"}}]}",
		 ST_UNSUPPORTED, {"post_processor.single[1]", "behind the text", ""}},
		{"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<no>\"}}]}", ST_INVALID,
		 {"post_processor", "<no>", "vocabulary"}},
		{"decoder", "{\"type\": \"WordPiece\"}", ST_UNSUPPORTED, {"decoder.type", "WordPiece", "ByteFallback"}},
		{"decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}", ST_UNSUPPORTED, {"decoder", "one space", ""}},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errbuf err = {0};
		struct tokenizer *t;
		int rc = try_changed(&t, cases[i].way, cases[i].value, NULL, &err);

		if (rc != cases[i].rc) fail_msg("%s = %s: %d (%s), expected %d", cases[i].way, cases[i].value, rc, err.text, cases[i].rc);
		assert_null(t);
		for (size_t k = 0; k < 3; k++)
			if (!strstr(err.text, cases[i].words[k])) fail_msg("\"%s\" is not in: %s", cases[i].words[k], err.text);
	}
}

/* Texts that are no tokenizer.json at all. */
static void bad_files_are_refused(void **state)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{"", "not valid JSON"},
		{"[]", "no JSON object"},
		{"{\"model\": ", "not valid JSON (line 1"},
		{"{\"a\": 1, \"a\": 2}", "duplicate"},
		{"{\"a\": \"\xff\"}", "not valid JSON"},
		{"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested deeper than 32"},
	};
	struct errbuf err = {0};
	struct tokenizer *t;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		err = (struct errbuf){0};
		assert_int_not_equal(tokjson_try(&t, cases[i].text, strlen(cases[i].text), NULL, &err), ST_OK);
		assert_null(t);
		if (!strstr(err.text, cases[i].words)) fail_msg("\"%s\" is not in: %s", cases[i].words, err.text);
	}
	err = (struct errbuf){0};
	assert_int_equal(tokenizer_from_json(&t, "/no/such/folder", &err), ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "/no/such/folder"));
}

static void expressions_that_differ_between_languages_are_refused(void **state)
{
	static const char *const refused[] = {"\\h", "\\R", "[[:alpha:]]", "a{,3}", "a{1,3}+", "(?<n>a)", "(?m:.)", "\\G", "\\1", "(?#x)", "[\\S]", "(*UTF)"};
	static const char *const taken[] = {"a{1,3}?", "a++", "(?i:x)", "\\p{L}+(?!\\S)", "[^\\s\\p{N}]", "(?<!a)b", "\\u0041|\\x{42}|\\x43", "[\\]\\[-]"};
	char value[200];

	for (size_t i = 0; i < ARRAY_LEN(refused) + ARRAY_LEN(taken); i++) {
		const char *expr = i < ARRAY_LEN(refused) ? refused[i] : taken[i - ARRAY_LEN(refused)];
		json_t *split = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s, s:b}]}", "type", "Sequence", "pretokenizers", "type", "Split",
					  "pattern", "Regex", expr, "behavior", "Isolated", "type", "ByteLevel", "add_prefix_space", 0);
		struct errbuf err = {0};
		struct tokenizer *t;
		char *text = json_dumps(split, 0);
		int rc;

		snprintf(value, sizeof(value), "%s", text);
		rc = try_changed(&t, "pre_tokenizer", value, NULL, &err);
		if (i < ARRAY_LEN(refused) ? rc != ST_UNSUPPORTED : rc != ST_OK) fail_msg("%s: %d, %s", expr, rc, err.text);
		if (rc != ST_OK) assert_non_null(strstr(err.text, "pre_tokenizer.pretokenizers[0].pattern"));
		tokenizer_free(t);
		free(text);
		json_decref(split);
	}
}

/* An expression that would take for ever gives up; the text is whole all the same. */
static void catastrophic_expressions_give_up(void **state)
{
	struct errbuf err = {0};
	struct tokenizer *t;
	char text[3000];
	struct token_vec v;

	if (try_changed(&t, "pre_tokenizer",
			"{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a|aa)+$b\"}, "
			"\"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}",
			NULL, &err) != ST_OK)
		fail_msg("%s", err.text);
	memset(text, 'a', sizeof(text));
	token_vec_init(&v, SIZE_MAX);
	tokenizer_encode(t, text, sizeof(text), true, &v);
	assert_int_equal(v.len, sizeof(text));
	token_vec_release(&v);
	tokenizer_free(t);
}

/* ---- the folder ---- */

static void the_folder_says_what_begins_and_ends_a_text(void **state)
{
	static const char template[] = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}]}";
	static const struct {
		const char *post, *config;
		uint32_t bos, eos;
		bool add_bos;
		const char *chat;
	} cases[] = {
		{"null", NULL, TOKEN_NONE, TOKEN_NONE, false, NULL},
		{template, NULL, 258, TOKEN_NONE, true, NULL},
		{"null", "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"the\"}}", 258, 257, false, NULL},
		{"null", "{\"bos_token\": {\"content\": \"<s>\"}, \"add_bos_token\": true}", 258, TOKEN_NONE, true, NULL},
		{template, "{\"add_bos_token\": false}", 258, TOKEN_NONE, false, NULL},
		{"null", "{\"eos_token\": \"unheard of\", \"bos_token\": null}", TOKEN_NONE, TOKEN_NONE, false, NULL},
		{"null", "{\"chat_template\": \"hi {{ 1 }}\"}", TOKEN_NONE, TOKEN_NONE, false, "hi {{ 1 }}"},
		{"null", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"no\"}, {\"name\": \"default\", \"template\": \"yes\"}]}", TOKEN_NONE,
		 TOKEN_NONE, false, "yes"},
		{"null", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"no\"}]}", TOKEN_NONE, TOKEN_NONE, false, NULL},
		{"null", "{\"model_max_length\": 1000000000000000019884624838656}", TOKEN_NONE, TOKEN_NONE, false, NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errbuf err = {0};
		struct tokenizer *t;

		if (try_changed(&t, "post_processor", cases[i].post, cases[i].config, &err) != ST_OK) fail_msg("%s", err.text);
		assert_int_equal(tokenizer_bos(t), cases[i].bos);
		assert_int_equal(tokenizer_eos(t), cases[i].eos);
		assert_int_equal(tokenizer_add_bos(t), cases[i].add_bos);
		if (cases[i].chat) assert_string_equal(tokenizer_chat_template(t), cases[i].chat);
		else assert_null(tokenizer_chat_template(t));
		tokenizer_free(t);
	}
}

static void bad_companions_are_refused(void **state)
{
	static const struct {
		const char *config, *words[2];
	} cases[] = {
		{"{", {"tokenizer_config.json", "not valid JSON"}},
		{"{\"bos_token\": 5}", {"tokenizer_config.json: bos_token", "a number"}},
		{"{\"chat_template\": {}}", {"tokenizer_config.json: chat_template", "an object"}},
		{"{\"add_bos_token\": \"no\"}", {"tokenizer_config.json: add_bos_token", "true or false"}},
		{"{\"add_eos_token\": true}", {"tokenizer_config.json: add_eos_token", "not supported"}},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errbuf err = {0};
		struct tokenizer *t;

		assert_int_not_equal(try_changed(&t, NULL, NULL, cases[i].config, &err), ST_OK);
		for (size_t k = 0; k < 2; k++)
			if (!strstr(err.text, cases[i].words[k])) fail_msg("\"%s\" is not in: %s", cases[i].words[k], err.text);
	}
}

static void put_file(const char *name, const char *text)
{
	char *path = test_file_temp(name);

	test_file_write(path, text, strlen(text));
	free(path);
}

static void a_folder_has_a_template_file_and_ends_of_generation(void **state)
{
	json_t *root = base_new();
	char *text = json_dumps(root, 0);
	struct errbuf err = {0};
	struct tokenizer *t;
	const uint32_t *stops;
	size_t n;

	put_file("tokenizer.json", text);
	put_file("generation_config.json", "{\"eos_token_id\": [257, 3, 900]}");
	put_file("tokenizer_config.json", "{\"chat_template\": \"old\"}");
	put_file("chat_template.jinja", "new");
	if (tokenizer_from_json(&t, test_file_dir(), &err) != ST_OK) fail_msg("%s", err.text);
	stops = tokenizer_stop_ids(t, &n);
	assert_int_equal(n, 2);
	assert_int_equal(stops[0], 257);
	assert_int_equal(stops[1], 3);
	assert_string_equal(tokenizer_chat_template(t), "new");
	tokenizer_free(t);
	free(text);
	json_decref(root);
}

static void expect_stops(const char *generation, const char *config, const uint32_t *want, size_t n_want)
{
	json_t *root = base_new();
	char *text = json_dumps(root, 0);
	struct errbuf err = {0};
	struct tokenizer *t;
	const uint32_t *stops;
	size_t n;

	put_file("tokenizer.json", text);
	put_file("tokenizer_config.json", "{}");
	put_file("generation_config.json", generation);
	put_file("config.json", config);
	if (tokenizer_from_json(&t, test_file_dir(), &err) != ST_OK) fail_msg("%s", err.text);
	stops = tokenizer_stop_ids(t, &n);
	assert_int_equal(n, n_want);
	assert_memory_equal(stops, want, n * sizeof(*stops));
	tokenizer_free(t);
	free(text);
	json_decref(root);
}

static void config_json_says_the_end_where_generation_config_does_not(void **state)
{
	expect_stops("{\"eos_token_id\": 5}", "{\"eos_token_id\": 3}", (uint32_t[]){5}, 1);
	expect_stops("{}", "{\"eos_token_id\": 3}", (uint32_t[]){3}, 1);
	expect_stops("{}", "{\"eos_token_id\": [3, 4], \"text_config\": {}}", (uint32_t[]){3, 4}, 2);
	expect_stops("{\"eos_token_id\": null}", "{\"text_config\": {\"eos_token_id\": 7}}", (uint32_t[]){7}, 1);
	put_file("config.json", "{}");
}

static void templates_get_all_special_tokens_by_name(void **state)
{
	json_t *root = base_new();
	char *text = json_dumps(root, 0);
	struct errbuf err = {0};
	struct tokenizer *t;

	put_file("tokenizer.json", text);
	put_file("tokenizer_config.json", "{\"pad_token\": \"<s>\", \"unk_token\": {\"content\": \"u\"}, \"sep_token\": null, \"cls_token\": 7}");
	if (tokenizer_from_json(&t, test_file_dir(), &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(json_object_size(tokenizer_named(t)), 2);
	assert_string_equal(json_string_value(json_object_get(tokenizer_named(t), "pad_token")), "<s>");
	assert_string_equal(json_string_value(json_object_get(tokenizer_named(t), "unk_token")), "u");
	tokenizer_free(t);
	free(text);
	json_decref(root);
}

/* ---- sampling ---- */

static void generation_config_gives_defaults_of_sampling(void **state)
{
	static const struct {
		const char *text, *want; /* NULL: good */
	} bad[] = {
		{"{\"temperature\": \"hot\"}", "temperature"}, {"{\"top_p\": 0}", "top_p"},   {"{\"top_k\": 1.5}", "top_k"},
		{"{\"max_new_tokens\": 0}", "max_new_tokens"},   {"{\"min_p\": 2}", "min_p"},   {"{\"repetition_penalty\": 0}", "repetition_penalty"},
		{"{\"temperature\": -1}", "temperature"},        {"{", "is not valid JSON"},
	};
	struct gendefaults d;
	struct errbuf err = {0};
	char says[200];

	assert_int_equal(gendefaults_read(&d, "/no/such", says, &err), ST_OK);
	assert_true(d.temperature == 1 && d.top_p == 1 && d.top_k == 0 && d.min_p == 0 && d.repetition_penalty == 1 && d.output_max == 0);
	assert_string_equal(says, "");
	put_file("generation_config.json", "{\"do_sample\": false, \"eos_token_id\": 1, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": null, "
					   "\"repetition_penalty\": 1.05, \"max_new_tokens\": 64, \"min_p\": 0.1, \"typical_p\": \"x\"}");
	if (gendefaults_read(&d, test_file_dir(), says, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(d.temperature == 0.6 && d.top_p == 1 && d.top_k == 20 && d.min_p == 0.1 && d.repetition_penalty == 1.05 && d.output_max == 64);
	assert_string_equal(says, "temperature 0.6, top_k 20, min_p 0.1, repetition_penalty 1.05, max_new_tokens 64");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		put_file("generation_config.json", bad[i].text);
		assert_int_not_equal(gendefaults_read(&d, test_file_dir(), says, &err), ST_OK);
		if (!strstr(err.text, bad[i].want) || !strstr(err.text, "generation_config.json: ")) fail_msg("%s", err.text);
	}
	put_file("generation_config.json", "{}");
}

/* ---- with a model ---- */

static void a_tokenizer_must_go_with_the_model(void **state)
{
	static const struct {
		uint64_t rows;
		bool good;
		uint32_t size; /* afterwards */
	} cases[] = {
		{259, true, 259},
		{259 + 2048, true, 259}, /* padding */
		{259 + 2049, false, 259},
		{258, true, 258}, /* an added token that the model has not seen */
		{257, false, 259},
		{1, false, 259},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errbuf err = {0};
		struct tokenizer *t;
		struct token_vec v;

		assert_int_equal(try_changed(&t, NULL, NULL, NULL, &err), ST_OK);
		assert_int_equal(tokenizer_fit(t, cases[i].rows, "model.gguf", &err) == ST_OK, cases[i].good);
		assert_int_equal(tokenizer_vocab_size(t), cases[i].size);
		if (!cases[i].good) assert_non_null(strstr(err.text, "259 tokens, but model.gguf has"));
		token_vec_init(&v, 100);
		tokenizer_encode(t, "<s>", 3, true, &v);
		assert_int_equal(v.len, cases[i].size == 259 ? 1 : 3);
		token_vec_release(&v);
		tokenizer_free(t);
	}
}

static void a_models_own_tokenizer_must_not_exceed_it(void **state)
{
	static const struct {
		uint64_t rows;
		bool good;
	} cases[] = {{259, true}, {100000, true}, {258, false}, {1, false}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errbuf err = {0};
		struct tokenizer *t;
		size_t len;

		assert_int_equal(try_changed(&t, NULL, NULL, NULL, &err), ST_OK);
		assert_int_equal(tokenizer_n_ids(t), 259);
		assert_int_equal(tokenizer_fit_own(t, cases[i].rows, "folder", &err) == ST_OK, cases[i].good);
		assert_int_equal(tokenizer_vocab_size(t), 259);
		assert_int_equal(tokenizer_n_ids(t), cases[i].good ? cases[i].rows : 259);
		if (!cases[i].good && !strstr(err.text, "has id 258, but folder has a vocabulary of")) fail_msg("%s", err.text);
		/* An id that the model may draw and the vocabulary has not. */
		assert_string_equal(tokenizer_bytes(t, (uint32_t)cases[i].rows + 1000, &len), "");
		assert_false(tokenizer_is_special(t, (uint32_t)cases[i].rows + 1000));
		tokenizer_free(t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_do_what_tokenizers_does),
		cmocka_unit_test(what_is_not_known_is_refused_by_name),
		cmocka_unit_test(bad_files_are_refused),
		cmocka_unit_test(expressions_that_differ_between_languages_are_refused),
		cmocka_unit_test(catastrophic_expressions_give_up),
		cmocka_unit_test(the_folder_says_what_begins_and_ends_a_text),
		cmocka_unit_test(bad_companions_are_refused),
		cmocka_unit_test(a_folder_has_a_template_file_and_ends_of_generation),
		cmocka_unit_test(config_json_says_the_end_where_generation_config_does_not),
		cmocka_unit_test(templates_get_all_special_tokens_by_name),
		cmocka_unit_test(generation_config_gives_defaults_of_sampling),
		cmocka_unit_test(a_tokenizer_must_go_with_the_model),
		cmocka_unit_test(a_models_own_tokenizer_must_not_exceed_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
