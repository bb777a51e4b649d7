/* test_inspect.c - `sluice inspect`: exit codes, what the texts hold, and that nothing of a file reaches the terminal
 * raw. */
#include "sluice/inspect.h"
#include "tests/support/golden.h"
#include "tests/support/st_writer.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"
#include "common/utf8.h"

#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

struct output {
	int code;
	char out[65536], err[4096]; /* terminated */
};

static void capture_end(FILE *stream, int saved, int memory, char *text, size_t cap)
{
	ssize_t n;

	fflush(stream);
	dup2(saved, fileno(stream));
	close(saved);
	n = pread(memory, text, cap - 1, 0);
	assert_true(n >= 0 && (size_t)n < cap - 1);
	text[n] = 0;
	close(memory);
}

/* Runs inspect with up to three words; stdout and stderr are caught. */
static struct output *run(const char *a, const char *b, const char *c)
{
	struct output *o = mem_new(struct output);
	char *argv[5] = {(char *)(uintptr_t) "inspect", (char *)(uintptr_t)a, (char *)(uintptr_t)b,
			 (char *)(uintptr_t)c, NULL};
	int argc = 1 + (a != NULL) + (b != NULL) + (c != NULL);
	int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
	int out_saved, err_saved;

	fflush(stdout);
	fflush(stderr);
	out_saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	err_saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	o->code = inspect_main(argc, argv);
	capture_end(stdout, out_saved, out, o->out, sizeof(o->out));
	capture_end(stderr, err_saved, err, o->err, sizeof(o->err));
	return o;
}

static char *tiny_path(const char *name)
{
	char *path = test_file_temp(name);
	struct tiny_llama t;

	tiny_llama_init(&t);
	tiny_llama_save(&t, path);
	return path;
}

/* A model that cannot be served, with control characters wherever the format allows some. */
static char *hostile_path(void)
{
	char *path = test_file_temp("hostile.gguf");
	struct gguf_writer w;
	struct tiny_llama t;

	tiny_llama_init(&t);
	gguf_writer_init(&w);
	tiny_llama_fill(&w, &t);
	gguf_writer_str(&w, "general.name", "\x1b[2Jname\x07\xff");
	gguf_writer_str(&w, "general.architecture", "arch\x1b[31m\nbreak");
	gguf_writer_str(&w, "tokenizer.ggml.pre",
			"\xc2\x9b"
			"1m\xe2\x80\xae");
	gguf_writer_str(&w, "tokenizer.chat_template", "line\n\x1b]0;title\x07");
	gguf_writer_str(&w, "an.\xe2\x80\xae.key", "v");
	gguf_writer_f32(&w, "a.nan", (float)__builtin_nan(""));
	gguf_writer_u64(&w, "a.max", UINT64_MAX);
	gguf_writer_save(&w, path);
	gguf_writer_release(&w);
	return path;
}

static void expect_clean(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	assert_int_equal(utf8_valid_len(text, strlen(text)), strlen(text));
	for (; *p; p++)
		if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
			fail_msg("byte %02x in: %.60s", *p, (const char *)p);
	assert_null(strstr(text, "\xc2\x9b"));
	assert_null(strstr(text, "\xe2\x80\xae"));
}

static void a_good_model_is_described(void **state)
{
	char *path = tiny_path("good.gguf");
	struct output *o = run(path, NULL, NULL);

	assert_int_equal(o->code, 0);
	assert_string_equal(o->err, "");
	assert_non_null(strstr(o->out, "architecture   llama\n"));
	assert_non_null(strstr(o->out, "attention      4 heads of 16, 2 for keys and values, rotary 16, base 10000\n"));
	assert_non_null(strstr(o->out, "f16: 256 B a token, 4.0 KiB a block, 128.0 KiB for 512 tokens\n"));
	assert_non_null(strstr(o->out, "tokenizer      gpt2, pre-tokenizer gpt-2, 265 tokens, 6 merges\n"));
	assert_non_null(strstr(o->out, "can be served  yes\n"));
	free(o);
	o = run("--tensors", "--metadata", path);
	assert_int_equal(o->code, 0);
	assert_non_null(strstr(o->out, "  blk.1.attn_k.weight F32 [64, 32] 8.0 KiB\n"));
	assert_non_null(strstr(o->out, "  llama.block_count = 2\n"));
	assert_non_null(strstr(o->out, "  tokenizer.ggml.tokens = str[265] \"<|endoftext|>\", "));
	free(o);
	o = run("--template", path, NULL);
	assert_int_equal(o->code, 0);
	assert_non_null(strstr(o->out, "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{"));
	free(o);
	o = run("--check", path, NULL);
	assert_int_equal(o->code, 0);
	assert_string_equal(o->out, "ok\n");
	free(o);
	free(path);
}

static void json_is_one_object(void **state)
{
	char *path = tiny_path("json.gguf"), *hostile = hostile_path();
	struct output *o = run("--json", path, NULL);
	json_t *j = json_loads(o->out, 0, NULL);

	assert_non_null(j);
	assert_true(json_is_true(json_object_get(j, "servable")));
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "shape"), "kv_heads")), 2);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "kv_cache"), "block_bytes_f16")), 4096);
	assert_null(json_object_get(j, "tensors"));
	json_decref(j);
	free(o);
	o = run("--json", "--metadata", hostile);
	assert_int_equal(o->code, 1);
	j = json_loads(o->out, 0, NULL);
	assert_non_null(j);
	assert_string_equal(json_string_value(json_object_get(j, "name")),
			    "\x1b[2Jname\x07\xef\xbf\xbd"); /* escaped by JSON itself */
	assert_true(json_is_false(json_object_get(j, "servable")));
	assert_non_null(strstr(json_string_value(json_object_get(j, "reason")), "architecture"));
	assert_non_null(strstr(o->out, "\"value\": \"18446744073709551615\""));
	json_decref(j);
	expect_clean(o->err);
	free(o);
	o = run("--json", "--tensors", path);
	j = json_loads(o->out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(j, "tensors")), 21);
	json_decref(j);
	free(o);
	free(path);
	free(hostile);
}

static void control_characters_of_a_file_never_reach_the_terminal(void **state)
{
	static const char *const options[] = {"--metadata", "--template", "--tensors", "--check"};
	char *path = hostile_path();
	size_t i;

	for (i = 0; i < ARRAY_LEN(options); i++) {
		struct output *o = run(options[i], path, NULL);

		assert_int_equal(o->code, i == 1 ? 0 : 1);
		expect_clean(o->out);
		expect_clean(o->err);
		free(o);
	}
	free(path);
}

/* A folder whose files say odd things, also of a tokenizer that is none. */
static void nor_do_those_of_a_folder(void **state)
{
	static const char config[] = "{\"model_type\": \"llama\\u001b[31m\", \"architectures\": [\"A\\u009b1m\"], "
				     "\"_name_or_path\": \"\\u202ename\", "
				     "\"odd\\u0007key\": \"v\\u001b[2J\"}";
	static const char tokenizer[] =
		"{\"model\": {\"type\": \"BPE\\u001b]0;t\\u0007\", \"vocab\": {\"a\": 0}, \"merges\": []}, "
		"\"pre_tokenizer\": {\"type\": \"\\u009b\"}, \"added_tokens\": [{\"content\": \"b\"}, 5]}";
	static const char *const bad[] = {"", "[]", "{\"model\": 3}", "{\"added_tokens\": {}}"};
	static const char *const options[] = {"--metadata", "--template", "--tensors", "--check", "--json", "--memory"};
	char *paths[] = {test_file_temp("config.json"), test_file_temp("model.safetensors"),
			 test_file_temp("tokenizer.json"), test_file_temp("chat_template.jinja")};
	struct st_writer w;
	uint8_t *bytes;
	size_t len;

	st_writer_init(&w);
	st_writer_tensor(&w, "x\\u001b[2Jy", "F32", 1, (uint64_t[]){4}, NULL, 16);
	bytes = st_writer_build(&w, &len);
	test_file_write(paths[1], bytes, len);
	free(bytes);
	st_writer_release(&w);
	test_file_write(paths[0], config, sizeof(config) - 1);
	test_file_write(paths[2], tokenizer, sizeof(tokenizer) - 1);
	test_file_write(paths[3], "\x1b]0;t\x07{{ x }}", 13);
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		struct output *o = run(options[i], test_file_dir(), NULL);

		assert_int_equal(o->code, i == 1 ? 0 : 1);
		if (i != 4) expect_clean(o->out);
		expect_clean(o->err);
		if (i == 0 && !strstr(o->out, "2 tokens, 0 merges")) fail_msg("%s", o->out);
		free(o);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct output *o;

		test_file_write(paths[2], bad[i], strlen(bad[i]));
		o = run(test_file_dir(), NULL, NULL);
		assert_int_equal(o->code, 1);
		assert_non_null(strstr(o->out, "tokenizer      none"));
		free(o);
	}
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		unlink(paths[i]);
		free(paths[i]);
	}
}

static void exit_codes_tell_bad_files_from_bad_usage(void **state)
{
	char *bad = test_file_temp("bad.gguf"), *good = tiny_path("codes.gguf"),
	     *absent = test_file_temp("absent.gguf");
	const struct {
		const char *a, *b, *c;
		int code;
		const char *words;
	} cases[] = {
		{bad, NULL, NULL, 1, "bad.gguf: not a GGUF file"},
		{"--check", bad, NULL, 1, "bad.gguf: not a GGUF file"},
		{"--template", bad, NULL, 1, "bad.gguf: not a GGUF file"},
		{absent, NULL, NULL, 1, "absent.gguf: cannot open the file"},
		{NULL, NULL, NULL, 2, "no model is given"},
		{good, good, NULL, 2, "more than one model"},
		{"--nosuch", good, NULL, 2, "unknown option: --nosuch"},
		{"-x", good, NULL, 2, "unknown option"},
		{"--json=1", good, NULL, 2, "unknown option"},
		{"--check", "--json", good, 2, "go alone"},
	};
	struct output *o;
	size_t i;

	test_file_write(bad, "GGUX....", 8);
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		o = run(cases[i].a, cases[i].b, cases[i].c);
		if (o->code != cases[i].code || !strstr(o->err, cases[i].words))
			fail_msg("case %zu: code %d, stderr \"%s\"", i, o->code, o->err);
		assert_string_equal(o->out, "");
		free(o);
	}
	o = run("--help", NULL, NULL);
	assert_int_equal(o->code, 0);
	assert_non_null(strstr(o->out, "Examples:"));
	free(o);
	free(bad);
	free(good);
	free(absent);
}

/* Folders: the words that tell the families' layers apart. */
static void each_family_shows_its_layers(void **state)
{
	static const struct {
		const char *folder, *lines[3];
	} rows[] = {
		{"llama",
		 {"attention      8 heads of 16, 4 for keys and values, rotary 16, base 500000, scaled by "
		  "frequency\n"}},
		{"mistral", {", window 24, rotary 16, base 10000\n"}},
		{"gemma2", {"window ", "soft cap 8", "logits with a soft cap\n"}},
		{"gemma3",
		 {"attention      4 layers: 8 heads of 16, 4 for keys and values, window 16, rotary 16, base 10000, "
		  "normed queries and keys\n",
		  "               2 layers: 8 heads of 16, 4 for keys and values, rotary 16, base 1e+06",
		  "KV cache       f16: 1.5 KiB a token, 8.0 KiB a block, 768.0 KiB for 512 tokens\n"}},
		{"mixtral", {"feed-forward   "}},
		{"phi3", {"rotary 8 of 16"}},
		{"deepseek-v2",
		 {"latent, 8 heads of 24 and 16, latent vector of 32 and 8, rotary 8", "feed-forward   1 layer: "}},
		{"deepseek-v3",
		 {"               2 layers: 8 experts of 64, 2 at a time from 2 of 4 groups, a shared one of 64, "
		  "silu\n",
		  "f16: 240 B a token, 3.8 KiB a block"}},
		{"qwen3-next",
		 {"attention      3 layers: gated delta net, 8 value heads of 16, 4 key heads of 16, convolution over "
		  "4\n",
		  "gated output\n", "state          33.0 KiB a sequence\n"}},
		{"qwen3.5", {"layers: gated delta net"}},
		{"gpt-oss", {"window 16, ", "sinks\n", "clamped silu\n"}},
		{"qwen3-fp8", {"quantization   FP8 in blocks of 128 x 128\n"}},
		{"llama-gptq", {"quantization   GPTQ, 4 bits in groups of 32\n"}},
		{"qwen2-awq", {"quantization   AWQ, 4 bits in groups of 32\n", "biases\n"}},
		{"gguf-llama", {"format         GGUF version 3, 26 keys, 21 tensors\n"}},
		{"gguf-gemma3", {"window "}},
	};
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char path[512], relative[64];
		struct output *o;
		json_t *j;

		snprintf(relative, sizeof(relative), "tiny/%s", rows[i].folder);
		if (!golden_folder(relative, path, sizeof(path))) continue;
		n++;
		o = run(path, NULL, NULL);
		if (o->code != 0) fail_msg("%s: %s", rows[i].folder, o->err);
		for (size_t k = 0; k < ARRAY_LEN(rows[i].lines) && rows[i].lines[k]; k++)
			if (!strstr(o->out, rows[i].lines[k]))
				fail_msg("%s lacks \"%s\":\n%s", rows[i].folder, rows[i].lines[k], o->out);
		assert_non_null(strstr(o->out, "512 tokens, 253 merges\nchat template  "));
		free(o);
		o = run("--json", "--tensors", path);
		j = json_loads(o->out, 0, NULL);
		assert_true(json_is_true(json_object_get(j, "servable")));
		assert_true(json_array_size(json_object_get(j, "tensors")) > 10);
		json_decref(j);
		free(o);
		o = run("--template", path, NULL);
		assert_int_equal(o->code, 0);
		assert_non_null(strstr(o->out, "<|im_start|>"));
		free(o);
		o = run("--check", path, NULL);
		assert_string_equal(o->out, "ok\n");
		free(o);
	}
	assert_true(n >= 8); /* the project carries these itself */
}

static void options_of_serve_are_taken_here_too(void **state)
{
	char path[512];
	struct output *o;

	if (!golden_folder("tiny/llama-gptq", path, sizeof(path))) fail_msg("there is no tiny/llama-gptq");
	o = run("--hf-overrides={\"rope_theta\": 1234}", path, NULL);
	assert_int_equal(o->code, 0);
	assert_non_null(strstr(o->out, ", base 1234\n"));
	free(o);
	o = run("--hf-overrides=[]", path, NULL);
	assert_int_equal(o->code, 2);
	assert_non_null(strstr(o->err, "--hf-overrides: is no JSON object"));
	free(o);
	o = run("--max-model-len=0", path, NULL);
	assert_int_equal(o->code, 2);
	assert_non_null(strstr(o->err, "--max-model-len 0: expected a whole number"));
	free(o);
	o = run("--max-model-len", NULL, NULL);
	assert_int_equal(o->code, 2);
	assert_non_null(strstr(o->err, "needs a value"));
	free(o);
	o = run("--metadata", path, NULL);
	assert_non_null(strstr(o->out, "\n  model_type = \"llama\"\n"));
	free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_model_is_described),
		cmocka_unit_test(json_is_one_object),
		cmocka_unit_test(control_characters_of_a_file_never_reach_the_terminal),
		cmocka_unit_test(nor_do_those_of_a_folder),
		cmocka_unit_test(each_family_shows_its_layers),
		cmocka_unit_test(options_of_serve_are_taken_here_too),
		cmocka_unit_test(exit_codes_tell_bad_files_from_bad_usage),
	};

	return cmocka_run_group_tests_name("inspect", tests, NULL, NULL);
}
