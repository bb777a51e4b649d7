/* test_jsonfile.c - an operator's small files: only plain ones, only so large, and JSON that is told by line and column
 * what is wrong. */
#include "common/filetext.h"
#include "common/jsonbig.h"
#include "common/jsonfile.h"
#include "tests/support/test_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct jsonfile_bounds small = {.bytes_max = 40, .depth_max = 3, .values_max = 8};

static void plain_files_up_to_the_bound_are_read(void **state)
{
	char *path = test_file_temp("plain"), *text;
	struct errbuf err = {0};
	size_t len;

	test_file_write(path, "ab\0c", 4);
	assert_int_equal(filetext_read(&text, &len, path, 4, &err), ST_OK);
	assert_int_equal(len, 4);
	assert_memory_equal(text, "ab\0c", 5); /* with the zero byte behind */
	free(text);
	assert_int_equal(filetext_read(&text, &len, path, 3, &err), ST_LIMIT);
	assert_null(text);
	assert_string_equal(err.text, "has 4 bytes; expected at most 3");
	test_file_write(path, "", 0);
	assert_int_equal(filetext_read(&text, &len, path, 0, &err), ST_OK);
	assert_int_equal(len, 0);
	free(text);
	free(path);
}

static void what_is_no_plain_file_is_refused_at_once(void **state)
{
	char *fifo = test_file_temp("fifo"), *link_path = test_file_temp("link"), *absent = test_file_temp("absent"),
	     *text;
	struct errbuf err = {0};
	size_t len;

	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(filetext_read(&text, &len, fifo, 100, &err), ST_INVALID);
	assert_string_equal(err.text, "not a plain file");
	assert_int_equal(filetext_read(&text, &len, test_file_dir(), 100, &err), ST_INVALID);
	assert_int_equal(filetext_read(&text, &len, "/dev/zero", 100, &err), ST_INVALID);
	assert_int_equal(symlink(absent, link_path), 0);
	assert_int_equal(filetext_read(&text, &len, link_path, 100, &err), ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "No such file"));
	test_file_write(absent, "x", 1); /* now the link leads somewhere */
	assert_int_equal(filetext_read(&text, &len, link_path, 100, &err), ST_OK);
	free(text);
	free(fifo);
	free(link_path);
	free(absent);
}

static void json_is_refused_with_what_is_wrong(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *words;
	} rows[] = {
		{"{}", ST_OK, ""},
		{"{\"a\": {\"b\": [1, 2]}}", ST_OK, ""},
		{"{\"a\": {\"b\": [[1]]}}", ST_LIMIT, "is nested deeper than 3 levels"},
		{"{\"a\":[1,2,3,4,5,6]}", ST_LIMIT, "holds more than 8 values"},
		{"{\"a\": \"01234567890123456789012345678901\"}", ST_LIMIT, "has 41 bytes; expected at most 40"},
		{"", ST_INVALID, "is not valid JSON (line 1, column 0)"},
		{"{\"a\": 1,\n\"b\" 2}", ST_INVALID, "is not valid JSON (line 2, column 5): ':' expected near '2'"},
		{"{\"a\": 1, \"a\": 2}", ST_INVALID, "duplicate"},
		{"{\"a\": \"\xff\"}", ST_INVALID, "is not valid JSON"},
		{"{\"a\": NaN}", ST_INVALID, "is not valid JSON"},
		{"{} {}", ST_INVALID, "is not valid JSON"},
		{"[1]", ST_INVALID, "is no JSON object"},
		{"\"a\"", ST_INVALID, "is no JSON object"},
	};
	char *path = test_file_temp("some.json");

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct errbuf err = {0};
		json_t *j;
		int rc = jsonfile_parse(&j, rows[i].text, strlen(rows[i].text), &small, &err);

		if (rc != rows[i].rc || !strstr(err.text, rows[i].words))
			fail_msg("row %zu: %d \"%s\"", i, rc, err.text);
		assert_true((rc == ST_OK) == (j != NULL));
		json_decref(j);
		test_file_write(path, rows[i].text, strlen(rows[i].text));
		assert_int_equal(jsonfile_load(&j, path, "the file", &small, &err), rows[i].rc);
		json_decref(j);
		if (rc != ST_OK && strncmp(err.text, "the file: ", 10) != 0) fail_msg("row %zu: \"%s\"", i, err.text);
	}
	free(path);
}

/* transformers writes int(1e30) where a tokenizer knows no length. */
static void integers_beyond_64_bits_do_not_spoil_a_file(void **state)
{
	static const char text[] = "{\"model_max_length\": 1000000000000000019884624838656, \"b\": -3}";
	struct jsonfile_bounds wide = {.bytes_max = 100, .depth_max = 3, .values_max = 8};
	struct errbuf err = {0};
	json_t *j;

	assert_int_equal(jsonfile_parse(&j, text, sizeof(text) - 1, &wide, &err), ST_OK);
	assert_true(jsonbig_is(json_object_get(j, "model_max_length")));
	assert_string_equal(jsonbig_digits(json_object_get(j, "model_max_length")), "1000000000000000019884624838656");
	assert_int_equal(json_integer_value(json_object_get(j, "b")), -3);
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_files_up_to_the_bound_are_read),
		cmocka_unit_test(what_is_no_plain_file_is_refused_at_once),
		cmocka_unit_test(json_is_refused_with_what_is_wrong),
		cmocka_unit_test(integers_beyond_64_bits_do_not_spoil_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
