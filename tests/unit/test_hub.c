/* test_hub.c - the pure parts of fetching models: names, which files, what a hub says, checksums, the cache's layout.
 */
#include "common/mem.h"
#include "sluice/hubcache.h"
#include "sluice/hubfile.h"
#include "sluice/hubinfo.h"
#include "sluice/hubpick.h"
#include "tests/support/test_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- names ---- */

static void names_are_read(void **state)
{
	static const struct {
		const char *text, *repo, *quant, *file, *revision;
	} cases[] = {
		{"Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", "", "", "main"},
		{"a/b_c.d:Q4_K_M", "a/b_c.d", "Q4_K_M", "", "main"},
		{"a/b:IQ2_XXS@v1.0", "a/b", "IQ2_XXS", "", "v1.0"},
		{"a/b@refs/pr/1", "a/b", "", "", "refs/pr/1"},
		{"a/b/x.gguf", "a/b", "", "x.gguf", "main"},
		{"a/b/dir/x-00001-of-00002.GGUF@0123", "a/b", "", "dir/x-00001-of-00002.GGUF", "0123"},
	};
	static const char *const bad[] = {
		"",        "a",         "/a/b",          "a/",    "a//b",     ".a/b",       "a/.b",
		"a/b:",    "a/b:x/y",   "a/b:Q 4",       "a/b@",  "a/b@../x", "a/b@x/../y", "a/b/c.bin",
		"a/b/",    "a/b/.gguf", "a/b/../x.gguf", "a/b c", "a/b\n",    "~/a",        "a\\b/c",
		"a/b:.Q4", "a/b@.",     "a/b/x.gguf:Q4", "@a/b"};
	struct hubname n;
	struct errbuf err;
	char longest[400];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (hubname_parse(&n, cases[i].text, &err) != ST_OK) fail_msg("%s: %s", cases[i].text, err.text);
		assert_string_equal(n.repo, cases[i].repo);
		assert_string_equal(n.quant, cases[i].quant);
		assert_string_equal(n.file, cases[i].file);
		assert_string_equal(n.revision, cases[i].revision);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (hubname_parse(&n, bad[i], &err) == ST_OK) fail_msg("\"%s\" was taken for a name", bad[i]);
		assert_non_null(strstr(err.text, "expected"));
	}
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	longest[1] = '/';
	assert_int_equal(hubname_parse(&n, longest, &err), ST_INVALID);
}

static void words_that_may_be_names(void **state)
{
	assert_true(hubname_is_likely("a/b"));
	assert_false(hubname_is_likely("a"));
	assert_false(hubname_is_likely("/a/b"));
	assert_false(hubname_is_likely("./a/b"));
	assert_false(hubname_is_likely("~/a/b"));
	assert_false(hubname_is_likely(""));
}

static void names_of_a_server_are_not_trusted(void **state)
{
	static const char *const good[] = {"a", "a/b", "..a", "a..", ".hidden", "a b/\u00e9.json", "..."};
	static const char *const bad[] = {"",  "/a",    "a/",   "..",   "a/..", "../a",  "a/../b",
					  ".", "a/./b", "a//b", "a\\b", "a\nb", "a\x7f", "\x01"};
	char longest[HUBNAME_FILE_MAX + 2];

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (!hubname_is_safe_path(good[i])) fail_msg("%s", good[i]);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (hubname_is_safe_path(bad[i])) fail_msg("\"%s\"", bad[i]);
	for (size_t i = 0; i < sizeof(longest); i++) longest[i] = i % 10 == 9 ? '/' : 'x';
	longest[HUBNAME_FILE_MAX + 1] = 0;
	assert_false(hubname_is_safe_path(longest));
	longest[HUBNAME_FILE_MAX] = 0;
	assert_true(hubname_is_safe_path(longest));
	memset(longest, 'x', 256);
	longest[256] = 0;
	assert_false(hubname_is_safe_path(longest));
	assert_true(hubname_is_safe_word("0123abc-_.x"));
	assert_false(hubname_is_safe_word(".x"));
	assert_false(hubname_is_safe_word("a/b"));
	assert_false(hubname_is_safe_word(""));
	assert_true(hubname_is_commit("0123456789abcdef0123456789abcdef01234567"));
	assert_false(hubname_is_commit("0123456789abcdef0123456789abcdef0123456"));
	assert_false(hubname_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
}

/* ---- which files ---- */

/* names and what is wanted of them, separated by blanks, in order. */
static void expect_pick(const char *want, const char *const *names, size_t n, const char *picked, bool is_gguf)
{
	struct hubname name;
	struct hubpick p;
	struct errbuf err;
	char got[1000] = "";

	assert_int_equal(hubname_parse(&name, want, NULL), ST_OK);
	if (hubpick_files(&p, &name, names, n, &err) != ST_OK) fail_msg("%s: %s", want, err.text);
	for (size_t i = 0; i < p.n; i++) {
		if (i == p.n_small) strcat(got, "| ");
		strcat(got, names[p.ix[i]]);
		strcat(got, " ");
	}
	assert_string_equal(got, picked);
	assert_int_equal(p.is_gguf, is_gguf);
	hubpick_release(&p);
}

static void expect_no_pick(const char *want, const char *const *names, size_t n, const char *said)
{
	struct hubname name;
	struct hubpick p;
	struct errbuf err = {{0}};

	assert_int_equal(hubname_parse(&name, want, NULL), ST_OK);
	assert_int_equal(hubpick_files(&p, &name, names, n, &err), ST_NOT_FOUND);
	if (!strstr(err.text, said)) fail_msg("%s", err.text);
}

static void a_folder_is_chosen(void **state)
{
	static const char *const names[] = {".gitattributes",
					    "README.md",
					    "model-00001-of-00002.safetensors",
					    "config.json",
					    "original/params.json",
					    "onnx/model.onnx",
					    "model-00002-of-00002.safetensors",
					    "model.safetensors.index.json",
					    "tokenizer.json",
					    "chat_template.jinja",
					    "tokenizer.model",
					    "consolidated.safetensors",
					    "original/x.safetensors",
					    "pytorch_model.bin",
					    "consolidated.00.json"};

	expect_pick("a/b", names, ARRAY_LEN(names),
		    "config.json model.safetensors.index.json tokenizer.json chat_template.jinja tokenizer.model "
		    "| model-00001-of-00002.safetensors model-00002-of-00002.safetensors ",
		    false);
	expect_no_pick("a/b:Q4_0", names, ARRAY_LEN(names), "no quantization Q4_0; of 15 files none is");
	expect_no_pick("a/b", names, 2,
		       "nothing that can be served; of 2 files none is config.json with *.safetensors, or *.gguf");
}

static void a_quantization_is_chosen(void **state)
{
	static const char *const names[] = {"README.md",
					    "mmproj-Q4_K_M.gguf",
					    "x-Q4_K.gguf",
					    "x-Q8_0.gguf",
					    "x-Q4_K_M-old.gguf",
					    "x-Q4_K_M.gguf",
					    "config.json",
					    "x-IQ2_XXS.gguf",
					    "Q6_K/x-Q6_K-00002-of-00002.gguf",
					    "Q6_K/x-Q6_K-00001-of-00002.gguf"};
	static const char *const others[] = {"mmproj-F16.gguf", "b-Q5_0.gguf", "a-Q8_0.gguf"},
				 *const torn[] = {"x-00001-of-00003.gguf", "x-00003-of-00003.gguf"};

	expect_pick("a/b", names, ARRAY_LEN(names), "| x-Q4_K_M.gguf ", true);
	expect_pick("a/b:q8_0", names, ARRAY_LEN(names), "| x-Q8_0.gguf ", true);
	expect_pick("a/b:Q4_K", names, ARRAY_LEN(names), "| x-Q4_K.gguf ", true);
	expect_pick("a/b:Q6_K", names, ARRAY_LEN(names),
		    "| Q6_K/x-Q6_K-00001-of-00002.gguf Q6_K/x-Q6_K-00002-of-00002.gguf ", true);
	expect_pick("a/b/Q6_K/x-Q6_K-00002-of-00002.gguf", names, ARRAY_LEN(names),
		    "| Q6_K/x-Q6_K-00001-of-00002.gguf Q6_K/x-Q6_K-00002-of-00002.gguf ", true);
	expect_pick("a/b/x-Q4_K_M-old.gguf", names, ARRAY_LEN(names), "| x-Q4_K_M-old.gguf ", true);
	expect_pick("a/b", others, ARRAY_LEN(others), "| b-Q5_0.gguf ", true);
	expect_no_pick("a/b:Q4_1", names, ARRAY_LEN(names),
		       "no quantization Q4_1; its GGUF files are x-Q4_K.gguf, x-Q8_0.gguf");
	expect_no_pick("a/b:Q4", names, ARRAY_LEN(names), "no quantization Q4;");
	expect_no_pick("a/b/y.gguf", names, ARRAY_LEN(names), "no file y.gguf");
	expect_no_pick("a/b", torn, 2, "has 3 parts, but the repository only 2 files");
}

/* ---- what a hub says ---- */

static int parse_info(struct hubinfo *info, const char *text, struct errbuf *err)
{
	struct hubname name;
	int rc;

	err->text[0] = 0;
	assert_int_equal(hubname_parse(&name, "a/b", NULL), ST_OK);
	rc = hubinfo_parse(info, text, strlen(text), &name, err);
	if (rc != ST_OK) hubinfo_release(info);
	return rc;
}

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static void a_description_is_read(void **state)
{
	static const char *const bad[] = {"",
					  "[]",
					  "{}",
					  "{\"sha\":\"" COMMIT "\"}",
					  "{\"sha\":\"main\",\"siblings\":[]}",
					  "{\"sha\":\"../../../../../../../../../../../../../x\",\"siblings\":[]}",
					  "{\"sha\":\"" COMMIT "\",\"siblings\":{}}"};
	struct hubinfo info;
	struct errbuf err;
	char deep[400];

	if (parse_info(&info,
		       "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\"},{\"rfilename\":\"../"
		       "b\"},{},7,{\"rfilename\":\"c/d\"},{\"rfilename\":\"/e\"}]}",
		       &err) != ST_OK)
		fail_msg("%s", err.text);
	assert_string_equal(info.commit, COMMIT);
	assert_int_equal(info.n, 2); /* what could leave the folder is not there */
	assert_string_equal(info.names[0], "a");
	assert_string_equal(info.names[1], "c/d");
	hubinfo_release(&info);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(parse_info(&info, bad[i], &err), ST_CORRUPT);
		assert_non_null(strstr(err.text, "a/b: "));
	}
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = 0;
	assert_int_equal(parse_info(&info, deep, &err), ST_LIMIT);
}

static void answers_are_judged(void **state)
{
	static const struct {
		long status;
		int rc;
		const char *word;
	} cases[] = {{401, ST_DENIED, "HF_TOKEN"},
		     {403, ST_DENIED, "conditions"},
		     {404, ST_NOT_FOUND, "a/b: x: the hub knows no such file (404)"},
		     {429, ST_AGAIN, "429"},
		     {500, ST_AGAIN, "500"},
		     {503, ST_AGAIN, "503"},
		     {418, ST_INVALID, "418"},
		     {408, ST_AGAIN, "408"}};
	struct hubweb_answer a = {.message = "words\x1b[1m of it"};
	struct errbuf err;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		a.status = cases[i].status;
		assert_int_equal(hubfile_judge(&a, "a/b", "x", &err), cases[i].rc);
		if (!strstr(err.text, cases[i].word) || !strstr(err.text, "words\\x1b[1m of it"))
			fail_msg("%s", err.text);
	}
	assert_int_equal(hubfile_backoff_ns(1, 0), 500 * NS_PER_MS);
	assert_int_equal(hubfile_backoff_ns(3, 0), 2 * NS_PER_S);
	assert_int_equal(hubfile_backoff_ns(1, 7), 7 * NS_PER_S);
	assert_int_equal(hubfile_backoff_ns(6, 0), 0);
}

/* ---- sums and sizes ---- */

static bool sum_is(const char *etag, const char *data, char got[65])
{
	struct hubsum *s = hubsum_new(etag, strlen(data));
	bool is;

	assert_non_null(s);
	for (const char *p = data; *p; p++) hubsum_add(s, p, 1);
	is = hubsum_matches(s, got);
	hubsum_free(s);
	return is;
}

/* sha256sum, and git hash-object */
static void sums_are_those_of_sha256_and_git(void **state)
{
	char got[65];

	assert_true(sum_is("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "hello\n", got));
	assert_true(sum_is("ce013625030ba8dba906f756967f9e9ca394464a", "hello\n", got));
	assert_true(sum_is("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "", got));
	assert_false(sum_is("ce013625030ba8dba906f756967f9e9ca394464a", "hellp\n", got));
	assert_int_equal(strlen(got), 40);
	assert_null(hubsum_new("ce013625030ba8dba906f756967f9e9ca394464A", 1));
	assert_null(hubsum_new("abc", 1));
	assert_null(hubsum_new("", 1));
}

static void sizes_are_short(void **state)
{
	char out[16];

	assert_string_equal(hubbar_bytes(0, out), "0 B");
	assert_string_equal(hubbar_bytes(999, out), "999 B");
	assert_string_equal(hubbar_bytes(1000, out), "1.0 kB");
	assert_string_equal(hubbar_bytes(9949999, out), "9.9 MB");
	assert_string_equal(hubbar_bytes(999600, out), "1.0 MB");
	assert_string_equal(hubbar_bytes(4890000000ull, out), "4.9 GB");
	assert_string_equal(hubbar_bytes(UINT64_MAX, out), "18 EB");
}

/* ---- the cache ---- */

static void the_cache_is_laid_out_as_huggingface_hubs(void **state)
{
	struct hubcache c;
	char cache[64], path[HUBCACHE_PATH_MAX], target[200], commit[41];
	struct errbuf err = {{0}};
	char **files;
	size_t n;
	int fd, fd2;

	snprintf(cache, sizeof(cache), "/tmp/sluice-test-hub-XXXXXX");
	assert_non_null(mkdtemp(cache));
	hubcache_init(&c, cache, "org/na--me");
	assert_string_equal(c.repo, "models--org--na--me");
	assert_int_equal(hubcache_commit(&c, "main", commit), ST_NOT_FOUND);
	if (hubcache_prepare(&c, COMMIT, &err) != ST_OK) fail_msg("%s", err.text);
	hubcache_blob(&c, "ee", "", path);
	test_file_write(path, "x", 1);
	assert_int_equal(hubcache_link(&c, COMMIT, "a.json", "ee", &err), ST_OK);
	assert_int_equal(hubcache_link(&c, COMMIT, "d/e/b.json", "ff", &err), ST_OK);
	assert_int_equal(hubcache_link(&c, COMMIT, "d/e/b.json", "ee", &err), ST_OK); /* another now */
	assert_int_equal(hubcache_link(&c, COMMIT, "gone", "ff", &err), ST_OK);
	hubcache_snapshot(&c, COMMIT, "d/e/b.json", path);
	n = (size_t)readlink(path, target, sizeof(target) - 1);
	target[n] = 0;
	assert_string_equal(target, "../../../../blobs/ee");
	files = hubcache_files(&c, COMMIT, &n);
	assert_int_equal(n, 2); /* "gone" has no blob */
	assert_string_equal(files[0], "a.json");
	assert_string_equal(files[1], "d/e/b.json");
	for (size_t i = 0; i < n; i++) free(files[i]);
	free(files);
	assert_int_equal(hubcache_write_ref(&c, "refs/pr/1", COMMIT, &err), ST_OK);
	assert_int_equal(hubcache_commit(&c, "refs/pr/1", commit), ST_OK);
	assert_string_equal(commit, COMMIT);
	assert_int_equal(hubcache_commit(&c, COMMIT, commit), ST_OK);
	assert_int_equal(hubcache_commit(&c, "1123456789abcdef0123456789abcdef01234567", commit), ST_NOT_FOUND);
	assert_int_equal(hubcache_lock(&c, "ee", &fd, &err), ST_OK);
	assert_int_equal(hubcache_lock(&c, "ee", &fd2, &err), ST_AGAIN);
	close(fd);
	assert_int_equal(hubcache_lock(&c, "ee", &fd2, &err), ST_OK);
	close(fd2);
	snprintf(path, sizeof(path), "rm -r %s", cache);
	assert_int_equal(system(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_read),
		cmocka_unit_test(words_that_may_be_names),
		cmocka_unit_test(names_of_a_server_are_not_trusted),
		cmocka_unit_test(a_folder_is_chosen),
		cmocka_unit_test(a_quantization_is_chosen),
		cmocka_unit_test(a_description_is_read),
		cmocka_unit_test(answers_are_judged),
		cmocka_unit_test(sums_are_those_of_sha256_and_git),
		cmocka_unit_test(sizes_are_short),
		cmocka_unit_test(the_cache_is_laid_out_as_huggingface_hubs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
