/* test_ckpt.c - checkpoints as a whole: which files of a folder are the model, which are refused and with what words,
 * and that what is opened is what was written. Most folders here are made in memory; what only a file system has
 * (links, pipes) lies on the disk. */
#include "model/ckptident.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden.h"
#include "tests/support/st_writer.h"
#include "tests/support/test_file.h"

#include "common/mem.h"
#include "common/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- folders in memory ---- */

#define PARTS_MAX 16

struct folder {
	struct ckpt_part parts[PARTS_MAX];
	void *owned[PARTS_MAX];
	size_t n;
};

static void put_bytes(struct folder *f, const char *name, uint8_t *bytes, size_t len)
{
	assert_true(f->n < PARTS_MAX);
	f->owned[f->n] = bytes;
	f->parts[f->n++] = (struct ckpt_part){name, bytes, len, 0};
}

static void put_text(struct folder *f, const char *name, const char *text)
{
	put_bytes(f, name, mem_dup(text, strlen(text), 1), strlen(text));
}

/* A safetensors file of one-byte tensors: each name with the value of `value`. */
static void put_tensors(struct folder *f, const char *name, const char *tensors, char value)
{
	struct st_writer w;
	uint8_t *bytes;
	size_t len;
	char one[32];
	int n;

	st_writer_init(&w);
	for (; sscanf(tensors, " %31s%n", one, &n) == 1; tensors += n)
		st_writer_tensor(&w, one, "U8", 1, (uint64_t[]){1}, &value, 1);
	bytes = st_writer_build(&w, &len);
	st_writer_release(&w);
	put_bytes(f, name, bytes, len);
}

/* A part of a split GGUF with tensors of 8 floats; no and count as its keys say; total < 0: not said. */
static void put_gguf(struct folder *f, const char *name, const char *tensors, uint32_t no, uint32_t count,
		     int32_t total)
{
	struct gguf_writer w;
	uint8_t *bytes;
	size_t len;
	char one[32];
	int n;

	gguf_writer_init(&w);
	if (no == 0) gguf_writer_str(&w, "general.architecture", "llama");
	if (count) {
		gguf_writer_raw(&w, "split.no", 8, GGUF_U16, &no, 2);
		gguf_writer_raw(&w, "split.count", 11, GGUF_U16, &count, 2);
		if (total >= 0) gguf_writer_i32(&w, "split.tensors.count", total);
	}
	for (; sscanf(tensors, " %31s%n", one, &n) == 1; tensors += n)
		gguf_writer_tensor(&w, one, GGTYPE_F32, 2, (uint64_t[]){4, 2}, NULL, 0);
	bytes = gguf_writer_build(&w, &len);
	gguf_writer_release(&w);
	put_bytes(f, name, bytes, len);
}

static int open_folder(const struct folder *f, const char *path, struct ckpt **c, struct errbuf *err)
{
	int rc;

	err->text[0] = 0;
	rc = ckpt_open_parts(c, f->parts, f->n, path, err);
	if ((rc == ST_OK) != (*c != NULL) || (rc != ST_OK && !err->text[0])) fail_msg("status %d, %s", rc, err->text);
	return rc;
}

static void folder_release(struct folder *f)
{
	for (size_t i = 0; i < f->n; i++) free(f->owned[i]);
	*f = (struct folder){0};
}

/* "a=x b=y": the tensors and the first byte of each, in order. */
static void expect_tensors(const struct ckpt *c, const char *expected)
{
	struct strbuf got;

	strbuf_init(&got, 1000);
	for (size_t i = 0; i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(c, i);
		char *name = mem_strndup(t->name.s, t->name.len);

		assert_ptr_equal(ckpt_find(c, name), t);
		assert_true(t->file < ckpt_file_count(c));
		strbuf_printf(&got, "%s%s=%c", i ? " " : "", name, t->data[0] ? t->data[0] : '0');
		free(name);
	}
	assert_string_equal(got.data ? got.data : "", expected);
	strbuf_release(&got);
}

static void loads(struct folder *f, const char *path, const char *tensors)
{
	struct errbuf err;
	struct ckpt *c;

	if (open_folder(f, path, &c, &err) != ST_OK) fail_msg("%s", err.text);
	expect_tensors(c, tensors);
	assert_true((ckpt_gguf(c) == NULL) == (ckpt_config(c) != NULL));
	ckpt_close(c);
	folder_release(f);
}

static void refused(struct folder *f, const char *path, int expected, const char *words)
{
	struct errbuf err;
	struct ckpt *c;
	int rc = open_folder(f, path, &c, &err);

	if (rc != expected || !strstr(err.text, words))
		fail_msg("%d \"%s\"; expected %d \"%s\"", rc, err.text, expected, words);
	folder_release(f);
}

/* ---- folders of safetensors ---- */

static void a_folder_of_one_file_is_read(void **state)
{
	struct folder f = {0};
	struct errbuf err;
	struct ckpt *c;

	put_text(&f, "config.json", "{\"model_type\": \"llama\", \"n\": 3}");
	put_tensors(&f, "model.safetensors", "b a", 'x');
	assert_int_equal(open_folder(&f, NULL, &c, &err), ST_OK);
	expect_tensors(c, "b=x a=x");
	assert_null(ckpt_find(c, "c"));
	assert_null(ckpt_find(c, ""));
	assert_null(ckpt_gguf(c));
	assert_string_equal(json_string_value(json_object_get(ckpt_config(c), "model_type")), "llama");
	assert_int_equal(ckpt_file_count(c), 1);
	assert_string_equal(ckpt_file_name(c, 0), "model.safetensors");
	assert_int_equal(ckpt_bytes(c), f.parts[1].bytes);
	ckpt_close(c);
	folder_release(&f);
}

static void model_safetensors_wins_over_what_lies_beside_it(void **state)
{
	struct folder f = {0};

	put_text(&f, "config.json", "{}");
	put_tensors(&f, "model.safetensors", "a", 'x');
	put_tensors(&f, "adapter_model.safetensors", "a", 'y');
	put_tensors(&f, "consolidated.safetensors", "a", 'y');
	put_tensors(&f, "other.safetensors", "a", 'y');
	put_text(&f, "model.safetensors.index.json", "{}"); /* as transformers: nobody needs it */
	put_gguf(&f, "model.gguf", "a", 0, 0, -1);
	loads(&f, NULL, "a=x");
}

static void one_file_of_another_name_is_the_model(void **state)
{
	struct folder f = {0};

	put_text(&f, "config.json", "{}");
	put_tensors(&f, "weights.safetensors", "a", 'x');
	put_tensors(&f, "adapter_model.safetensors", "a", 'y');
	put_tensors(&f, "consolidated.safetensors", "a", 'y');
	put_tensors(&f, ".hidden.safetensors", "a", 'y');
	loads(&f, NULL, "a=x");
}

#define SHARDS                                                                                     \
	"{\"metadata\": {\"total_size\": 1}, \"weight_map\": {\"a\": \"m-1.safetensors\", \"b\": " \
	"\"m-2.safetensors\", \"c\": \"m-1.safetensors\"}}"

static void shards_are_read_as_the_index_says(void **state)
{
	struct folder f = {0};

	put_text(&f, "config.json", "{}");
	put_text(&f, "model.safetensors.index.json", SHARDS);
	put_tensors(&f, "m-2.safetensors", "b", '2');
	put_tensors(&f, "m-1.safetensors", "a c", '1');
	put_tensors(&f, "m-3.safetensors", "a", '3'); /* not named */
	put_tensors(&f, "consolidated.safetensors", "a", '4');
	loads(&f, NULL, "a=1 c=1 b=2");
}

/* Shards that are shared between checkpoints (overlays) hold tensors that this index does not take from them. */
static void a_stale_copy_does_not_take_a_tensors_place(void **state)
{
	struct folder f = {0};

	put_text(&f, "config.json", "{}");
	put_text(&f, "model.safetensors.index.json", SHARDS);
	put_tensors(&f, "m-1.safetensors", "a b c d", '1');
	put_tensors(&f, "m-2.safetensors", "a b", '2');
	loads(&f, NULL, "a=1 c=1 b=2");
}

static void what_an_index_gets_wrong_is_named(void **state)
{
	static const struct {
		const char *index;
		int rc;
		const char *words;
	} rows[] = {
		{"{\"weight_map\": {", ST_INVALID,
		 "model.safetensors.index.json: is not valid JSON (line 1, column 16)"},
		{"[]", ST_INVALID, "model.safetensors.index.json: is no JSON object"},
		{"{}", ST_INVALID, "model.safetensors.index.json: weight_map is missing or empty"},
		{"{\"weight_map\": {}}", ST_INVALID, "weight_map is missing or empty"},
		{"{\"weight_map\": []}", ST_INVALID, "weight_map is missing or empty"},
		{"{\"weight_map\": {\"a\": 1}}", ST_INVALID, "tensor a is placed in \"(no text)\""},
		{"{\"weight_map\": {\"a\": \"\"}}", ST_INVALID,
		 "tensor a is placed in \"\"; expected the name of a file inside the folder"},
		{"{\"weight_map\": {\"a\": \"../m-1.safetensors\"}}", ST_INVALID,
		 "tensor a is placed in \"../m-1.safetensors\""},
		{"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", ST_INVALID, "placed in \"/etc/passwd\""},
		{"{\"weight_map\": {\"a\": \"sub/m-1.safetensors\"}}", ST_INVALID, "placed in \"sub/m-1.safetensors\""},
		{"{\"weight_map\": {\"a\": \"..\"}}", ST_INVALID, "placed in \"..\""},
		{"{\"weight_map\": {\"a\": \"m-1.safetensors\\u0000x\"}}", ST_INVALID,
		 "placed in \"m-1.safetensors\\x00x\""},
		{"{\"weight_map\": {\"a\": \"m-1.safetensors\", \"b\": \"m-7.safetensors\"}}", ST_NOT_FOUND,
		 "model.safetensors.index.json: of the 2 files that it names, m-7.safetensors is missing in the "
		 "folder"},
		{"{\"weight_map\": {\"a\": \"1\", \"b\": \"2\", \"c\": \"3\", \"d\": \"4\", \"e\": \"5\"}}",
		 ST_NOT_FOUND, "1, 2, 3 and 2 others are missing"},
		{"{\"weight_map\": {\"a\": \"m-1.safetensors\", \"b\": \"m-1.safetensors\"}}", ST_NOT_FOUND,
		 "model.safetensors.index.json: tensor b is missing in m-1.safetensors, where the index places it"},
		{"{\"weight_map\": {\"a\": \"config.json\"}}", ST_CORRUPT, "config.json: the file has 2 bytes"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct folder f = {0};

		put_text(&f, "config.json", "{}");
		put_text(&f, "model.safetensors.index.json", rows[i].index);
		put_tensors(&f, "m-1.safetensors", "a", '1');
		refused(&f, NULL, rows[i].rc, rows[i].words);
	}
}

static void folders_without_a_model_say_what_is_missing(void **state)
{
	struct folder f = {0};

	refused(&f, NULL, ST_NOT_FOUND, "config.json: No such file");
	put_text(&f, "config.json", "{}");
	refused(&f, NULL, ST_NOT_FOUND, "has no weights: neither model.safetensors nor model.safetensors.index.json");
	put_text(&f, "config.json", "{}");
	put_tensors(&f, "adapter_model.safetensors", "a", 'y');
	refused(&f, NULL, ST_NOT_FOUND, "has no weights");
	put_text(&f, "config.json", "{}");
	put_tensors(&f, "model-00001-of-00002.safetensors", "a", 'y');
	put_tensors(&f, "model-00002-of-00002.safetensors", "b", 'y');
	refused(&f, NULL, ST_NOT_FOUND,
		"2 files *.safetensors (model-00001-of-00002.safetensors ...) are there, but "
		"model.safetensors.index.json is missing");
	put_text(&f, "config.json", "{}"); /* an interrupted download */
	put_tensors(&f, "model-00001-of-00002.safetensors", "a", 'y');
	refused(&f, NULL, ST_NOT_FOUND,
		"1 files *.safetensors (model-00001-of-00002.safetensors ...) are there, but "
		"model.safetensors.index.json is missing");
	put_tensors(&f, "model.safetensors", "a", 'y');
	refused(&f, NULL, ST_NOT_FOUND, "config.json: No such file");
	put_text(&f, "config.json", "{\"a\": 1,\n }");
	put_tensors(&f, "model.safetensors", "a", 'y');
	refused(&f, NULL, ST_INVALID, "config.json: is not valid JSON (line 2, column 2)");
	put_text(&f, "config.json", "{\"a\": 1, \"a\": 2}");
	put_tensors(&f, "model.safetensors", "a", 'y');
	refused(&f, NULL, ST_INVALID, "config.json: is not valid JSON");
	put_text(&f, "config.json", "[]");
	put_tensors(&f, "model.safetensors", "a", 'y');
	refused(&f, NULL, ST_INVALID, "config.json: is no JSON object");
	put_text(&f, "config.json", "{\"transformers_weights\": \"x.safetensors\"}");
	put_tensors(&f, "model.safetensors", "a", 'y');
	refused(&f, NULL, ST_UNSUPPORTED, "config.json: transformers_weights is set");
	put_text(&f, "config.json", "{}");
	put_text(&f, "model.safetensors", "");
	refused(&f, NULL, ST_CORRUPT, "model.safetensors: the file is empty");
	put_text(&f, "config.json", "{}");
	put_tensors(&f, "model.safetensors", "a b a", 'y');
	refused(&f, NULL, ST_CORRUPT, "model.safetensors: duplicate tensor a (the first is in model.safetensors)");
}

/* ---- GGUF ---- */

static void shapes_have_the_outermost_dimension_first(void **state)
{
	static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct gguf_writer w;
	struct folder f = {0};
	struct errbuf err;
	struct ckpt *c;
	const struct ckpt_tensor *t;
	uint8_t *bytes;
	size_t len;

	gguf_writer_init(&w);
	gguf_writer_str(&w, "general.architecture", "llama");
	gguf_writer_tensor(&w, "a", GGTYPE_F32, 2, (uint64_t[]){4, 2}, values, sizeof(values));
	gguf_writer_tensor(&w, "b", GGTYPE_Q8_0, 3, (uint64_t[]){32, 3, 5}, NULL, 0);
	bytes = gguf_writer_build(&w, &len);
	gguf_writer_release(&w);
	put_bytes(&f, "m.gguf", bytes, len);
	assert_int_equal(open_folder(&f, "m.gguf", &c, &err), ST_OK);
	t = ckpt_find(c, "a");
	assert_int_equal(t->n_dims, 2);
	assert_int_equal(t->dims[0] * 10 + t->dims[1], 24);
	assert_int_equal(t->bytes, sizeof(values));
	assert_memory_equal(t->data, values, sizeof(values));
	t = ckpt_find(c, "b");
	assert_int_equal(t->n_dims, 3);
	assert_int_equal(t->dims[0] * 10000 + t->dims[1] * 100 + t->dims[2], 50332);
	assert_string_equal(ckpt_type_name(t->type), "Q8_0");
	assert_null(ckpt_config(c));
	assert_non_null(ckpt_gguf(c));
	assert_string_equal(ckpt_shown_path(c), "m.gguf");
	assert_string_equal(ckpt_path(c), "m.gguf");
	assert_int_equal(ckpt_bytes(c), len);
	ckpt_close(c);
	folder_release(&f);
}

static void put_three(struct folder *f)
{
	put_gguf(f, "m-00001-of-00003.gguf", "", 0, 3, 3); /* as --no-tensor-first-split */
	put_gguf(f, "m-00002-of-00003.gguf", "a b", 1, 3, 3);
	put_gguf(f, "m-00003-of-00003.gguf", "c", 2, 3, 3);
}

static void all_parts_of_a_split_model_are_read(void **state)
{
	struct folder f = {0};
	struct errbuf err;
	struct ckpt *c;

	put_three(&f);
	assert_int_equal(open_folder(&f, "m-00001-of-00003.gguf", &c, &err), ST_OK);
	assert_int_equal(ckpt_file_count(c), 3);
	assert_int_equal(ckpt_find(c, "c")->file, 2);
	assert_int_equal(ckpt_bytes(c), f.parts[0].bytes + f.parts[1].bytes + f.parts[2].bytes);
	assert_non_null(gguf_find(ckpt_gguf(c), "general.architecture"));
	ckpt_close(c);
	folder_release(&f);
	put_three(&f);
	loads(&f, NULL, "a=0 b=0 c=0"); /* the folder */
	put_gguf(&f, "m-00001-of-00001.gguf", "a", 0, 1, 1);
	loads(&f, "m-00001-of-00001.gguf", "a=0");
	put_gguf(&f, "any.gguf", "a", 0, 1, 1);
	loads(&f, "any.gguf", "a=0");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, -1); /* how many tensors is not said */
	put_gguf(&f, "m-00002-of-00002.gguf", "b", 1, 2, -1);
	loads(&f, NULL, "a=0 b=0");
}

static void what_is_wrong_with_parts_is_named(void **state)
{
	struct folder f = {0};

	put_gguf(&f, "m-00001-of-00003.gguf", "a", 0, 3, 3);
	put_gguf(&f, "m-00003-of-00003.gguf", "c", 2, 3, 3);
	refused(&f, "m-00001-of-00003.gguf", ST_NOT_FOUND,
		"m-00001-of-00003.gguf: a split model of 3 parts, of which m-00002-of-00003.gguf is missing");
	put_gguf(&f, "m-00001-of-00007.gguf", "a", 0, 7, 3);
	refused(&f, NULL, ST_NOT_FOUND,
		"m-00002-of-00007.gguf, m-00003-of-00007.gguf, m-00004-of-00007.gguf and 3 others are missing");
	put_three(&f);
	refused(&f, "m-00002-of-00003.gguf", ST_INVALID,
		"part 2 of a split model of 3; give its first part, m-00001-of-00003.gguf");
	put_gguf(&f, "m-00002-of-00003.gguf", "a", 1, 3, 3);
	refused(&f, "m-00002-of-00003.gguf", ST_NOT_FOUND,
		"give its first part, m-00001-of-00003.gguf, which is missing");
	put_gguf(&f, "m-00002-of-00003.gguf", "a", 1, 3, 3);
	refused(&f, NULL, ST_NOT_FOUND, "give its first part, m-00001-of-00003.gguf, which is missing");
	put_gguf(&f, "m.gguf", "a", 0, 3, 3);
	refused(&f, "m.gguf", ST_CORRUPT,
		"split.count is 3 and split.no 0, but the file is not named \"...-00001-of-00003.gguf\"");
	put_gguf(&f, "m.gguf", "a", 0, 65535, 3);
	refused(&f, "m.gguf", ST_CORRUPT, "split.count is 65535");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 4, 2, 3);
	refused(&f, "m-00001-of-00002.gguf", ST_CORRUPT, "split.no is 4; expected less than split.count, 2");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 2);
	put_gguf(&f, "m-00002-of-00002.gguf", "b", 0, 2, 2);
	refused(&f, NULL, ST_CORRUPT,
		"m-00002-of-00002.gguf: split.no is 0 and split.count 2; expected 1 and 2, as its name says");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 2);
	put_gguf(&f, "m-00002-of-00002.gguf", "b", 1, 3, 2);
	refused(&f, NULL, ST_CORRUPT, "split.no is 1 and split.count 3; expected 1 and 2");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 2);
	put_gguf(&f, "m-00002-of-00002.gguf", "b", 1, 2, 3);
	refused(&f, NULL, ST_CORRUPT, "m-00002-of-00002.gguf: split.tensors.count is 3, but the first part says 2");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 3);
	put_gguf(&f, "m-00002-of-00002.gguf", "b", 1, 2, 3);
	refused(&f, NULL, ST_CORRUPT, "split.tensors.count is 3, but the 2 parts have 2 tensors");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 2);
	put_gguf(&f, "m-00002-of-00002.gguf", "a", 1, 2, 2);
	refused(&f, NULL, ST_CORRUPT,
		"m-00002-of-00002.gguf: duplicate tensor a (the first is in m-00001-of-00002.gguf)");
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 2);
	put_text(&f, "m-00002-of-00002.gguf", "GGUX");
	refused(&f, NULL, ST_CORRUPT, "m-00002-of-00002.gguf: not a GGUF file");
}

static void a_folder_of_one_gguf_is_that(void **state)
{
	struct folder f = {0};

	put_gguf(&f, "m.gguf", "a", 0, 0, -1);
	put_gguf(&f, "mmproj-m.gguf", "b", 0, 0, -1); /* for images */
	loads(&f, NULL, "a=0");
	put_gguf(&f, "m.gguf", "a", 0, 0, -1);
	put_text(&f, "config.json", "{}"); /* as repositories of GGUF files have */
	loads(&f, NULL, "a=0");
	put_gguf(&f, "m-Q4.gguf", "a", 0, 0, -1);
	put_gguf(&f, "m-Q8.gguf", "a", 0, 0, -1);
	refused(&f, NULL, ST_INVALID, "holds several models (m-Q4.gguf, m-Q8.gguf ...); give one of the files");
	put_three(&f);
	put_gguf(&f, "m-00001-of-00002.gguf", "a", 0, 2, 2);
	refused(&f, NULL, ST_INVALID, "holds several models");
	put_three(&f);
	put_gguf(&f, "o-00001-of-00003.gguf", "a", 0, 3, 2);
	refused(&f, NULL, ST_INVALID, "holds several models");
}

static void a_gguf_has_an_architecture(void **state)
{
	struct folder f = {0};

	put_gguf(&f, "m.gguf", "a", 1, 0, -1);
	refused(&f, "m.gguf", ST_NOT_FOUND, "m.gguf: key general.architecture is missing");
}

/* ---- the file system ---- */

static char *write_part(const struct ckpt_part *p, const char *folder)
{
	char name[300], *path;

	snprintf(name, sizeof(name), "%s/%s", folder, p->name);
	path = test_file_temp(name);
	test_file_write(path, p->data, p->bytes);
	return path;
}

/* As in the Hugging Face cache: snapshots/REV/NAME -> ../../blobs/HASH. */
static void a_folder_may_be_made_of_links(void **state)
{
	static const char *const folders[] = {"hub", "hub/blobs", "hub/snapshots", "hub/snapshots/rev"};
	struct folder f = {0};
	struct errbuf err = {0};
	struct ckpt *c;
	char *path, *blob[4];

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		path = test_file_temp(folders[i]);
		assert_int_equal(mkdir(path, 0700), 0);
		free(path);
	}
	put_text(&f, "config.json", "{}");
	put_text(&f, "model.safetensors.index.json", SHARDS);
	put_tensors(&f, "m-1.safetensors", "a c", '1');
	put_tensors(&f, "m-2.safetensors", "b", '2');
	for (size_t i = 0; i < f.n; i++) {
		char name[100], target[100];

		blob[i] = write_part(&f.parts[i], "hub/blobs");
		snprintf(name, sizeof(name), "hub/snapshots/rev/%s", f.parts[i].name);
		snprintf(target, sizeof(target), "../../blobs/%s", f.parts[i].name);
		path = test_file_temp(name);
		assert_int_equal(symlink(target, path), 0);
		free(path);
	}
	path = test_file_temp("hub/snapshots/rev");
	if (ckpt_open(&c, path, &err) != ST_OK) fail_msg("%s", err.text);
	expect_tensors(c, "a=1 c=1 b=2");
	ckpt_close(c);
	assert_int_equal(unlink(blob[3]), 0); /* a link that leads nowhere is a missing file */
	assert_int_equal(ckpt_open(&c, path, &err), ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "m-2.safetensors is missing"));
	assert_int_equal(mkfifo(blob[3], 0600), 0); /* must not be waited for */
	assert_int_equal(ckpt_open(&c, path, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "m-2.safetensors: is not a regular file"));
	for (size_t i = 0; i < f.n; i++) {
		char name[100], *link_path;

		snprintf(name, sizeof(name), "hub/snapshots/rev/%s", f.parts[i].name);
		link_path = test_file_temp(name);
		unlink(link_path);
		unlink(blob[i]);
		free(link_path);
		free(blob[i]);
	}
	free(path);
	for (size_t i = ARRAY_LEN(folders); i-- > 0;) {
		path = test_file_temp(folders[i]);
		rmdir(path);
		free(path);
	}
	folder_release(&f);
}

static void paths_that_are_no_model_are_refused(void **state)
{
	char *absent = test_file_temp("absent"), *file = test_file_temp("model.safetensors");
	struct folder f = {0};
	struct errbuf err = {0};
	struct ckpt *c = (struct ckpt *)&err; /* becomes NULL */

	assert_int_equal(ckpt_open(&c, absent, &err), ST_NOT_FOUND);
	assert_null(c);
	assert_non_null(strstr(err.text, "absent: cannot open the file: No such file"));
	assert_int_equal(ckpt_open(&c, "/dev/null", &err), ST_INVALID);
	assert_int_equal(ckpt_open(&c, "", &err), ST_NOT_FOUND);
	put_tensors(&f, "model.safetensors", "a", 'x');
	test_file_write(file, f.parts[0].data, f.parts[0].bytes);
	assert_int_equal(ckpt_open(&c, file, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "model.safetensors: is one file of a folder; give the folder that holds it"));
	assert_null(c);
	folder_release(&f);
	unlink(file);
	free(absent);
	free(file);
}

/* ---- pages ---- */

static void dropped_pages_come_back(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 8 * page, len;
	uint8_t *values = mem_zalloc(n, 1), *bytes;
	struct folder f = {0};
	struct st_writer w;
	struct errbuf err;
	struct ckpt *c;
	const struct ckpt_tensor *t;

	for (size_t i = 0; i < n; i++) values[i] = (uint8_t)(i * 7 / 3);
	st_writer_init(&w);
	st_writer_tensor(&w, "a", "U8", 1, (uint64_t[]){n}, values, n);
	bytes = st_writer_build(&w, &len);
	st_writer_release(&w);
	put_text(&f, "config.json", "{}");
	put_bytes(&f, "model.safetensors", bytes, len);
	assert_int_equal(open_folder(&f, NULL, &c, &err), ST_OK);
	t = ckpt_find(c, "a");
	ckpt_will_need(t);
	assert_memory_equal(t->data, values, n);
	for (size_t from = 0; from <= n; from += page / 2) ckpt_drop(t, from, n - from);
	ckpt_drop(t, 0, 0);
	assert_memory_equal(t->data, values, n);
	ckpt_close(c);
	folder_release(&f);
	free(values);
}

/* ---- the same model, or another ---- */

static uint64_t ident_of(const char *config, const char *tensors, char value)
{
	struct folder f = {0};
	struct errbuf err;
	struct ckpt *c;
	uint64_t ident;

	put_text(&f, "config.json", config);
	put_tensors(&f, "model.safetensors", tensors, value);
	if (open_folder(&f, NULL, &c, &err) != ST_OK) fail_msg("%s", err.text);
	ident = ckptident(c);
	assert_true(ident != 0);
	assert_int_equal(ckptident_check(c, 0, &err), ST_OK);
	assert_int_equal(ckptident_check(c, ident, &err), ST_OK);
	assert_int_equal(ckptident_check(c, ident + 1, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "another model"));
	ckpt_close(c);
	folder_release(&f);
	return ident;
}

static void another_model_is_told_from_a_copy(void **state)
{
	uint64_t ident = ident_of("{\"a\": 1, \"b\": 2}", "x y", 'v');

	assert_true(ident_of("{\"b\": 2,  \"a\": 1}", "x y", 'v') == ident);
	assert_true(ident_of("{\"a\": 1, \"b\": 3}", "x y", 'v') != ident);
	assert_true(ident_of("{\"a\": 1, \"b\": 2}", "x z", 'v') != ident);
	assert_true(ident_of("{\"a\": 1, \"b\": 2}", "x", 'v') != ident);
	assert_true(ident_of("{\"a\": 1, \"b\": 2}", "x y", 'w') != ident);
}

/* ---- many tensors, recorded files ---- */

static void each_of_many_tensors_is_found(void **state)
{
	struct folder f = {0};
	struct strbuf index;
	struct st_writer w[2];
	struct errbuf err;
	struct ckpt *c;
	char name[64];

	strbuf_init(&index, 64 * MIB);
	for (int i = 0; i < 2; i++) st_writer_init(&w[i]);
	for (int i = 0; i < 90000; i++) {
		snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.weight", i / 1000, i % 1000);
		st_writer_tensor(&w[i % 2], name, "U8", 1, (uint64_t[]){1}, NULL, 1);
		strbuf_printf(&index, "%s\"%s\":\"%d.safetensors\"", i ? "," : "{\"weight_map\":{", name, i % 2);
	}
	strbuf_puts(&index, "}}");
	put_text(&f, "config.json", "{}");
	put_text(&f, "model.safetensors.index.json", index.data);
	for (int i = 0; i < 2; i++) {
		size_t len;
		uint8_t *bytes = st_writer_build(&w[i], &len);

		put_bytes(&f, i ? "1.safetensors" : "0.safetensors", bytes, len);
		st_writer_release(&w[i]);
	}
	if (open_folder(&f, NULL, &c, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(ckpt_tensor_count(c), 90000);
	for (int i = 0; i < 90000; i++) {
		snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.weight", i / 1000, i % 1000);
		assert_non_null(ckpt_find(c, name));
		assert_int_equal(ckpt_find(c, name)->file, i % 2);
	}
	ckpt_close(c);
	folder_release(&f);
	strbuf_release(&index);
}

static void recorded_files_are_judged_as_recorded(void **state)
{
	FILE *index = golden_open("malformed/index.jsonl");
	size_t n = 0;
	json_t *j;

	if (!index) skip();
	for (; (j = golden_next(index)); json_decref(j)) {
		const char *file = json_string_value(json_object_get(j, "file"));
		const char *expect = json_string_value(json_object_get(j, "expect"));
		bool is_gguf = strcmp(json_string_value(json_object_get(j, "kind")), "gguf") == 0;
		struct folder f = {0};
		struct errbuf err;
		struct ckpt *c;
		char path[256], *bytes;
		size_t len;
		int rc;

		snprintf(path, sizeof(path), "malformed/%s", file);
		bytes = golden_text(path, &len);
		if (!bytes) fail_msg("%s is in the index but nowhere to be found", file);
		put_bytes(&f, is_gguf ? "m.gguf" : "model.safetensors", (uint8_t *)bytes, len);
		put_text(&f, "config.json", "{}");
		rc = open_folder(&f, is_gguf ? "m.gguf" : NULL, &c, &err);
		if (strcmp(expect, "either") != 0 && (rc == ST_OK) != (strcmp(expect, "accept") == 0))
			fail_msg("%s: status %d \"%s\"; expected %s", file, rc, err.text, expect);
		ckpt_close(c);
		folder_release(&f);
		n++;
	}
	fclose(index);
	assert_true(n >= 50);
}

/* Names the limit by which an allocation of what a header claims would be noticed. */
static void claims_cost_no_memory(void **state)
{
	static const char *const headers[] = {
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[288230376151711744],\"data_offsets\":[0,288230376151711744]}}",
		"{\"a\":{\"dtype\":\"F32\",\"shape\":[1000000000000],\"data_offsets\":[0,4000000000000]}}",
	};
	struct rlimit old, low = {512 * MIB, 0};

#ifdef SLUICE_SAN
	skip(); /* sanitizers reserve terabytes */
#endif
	getrlimit(RLIMIT_AS, &old);
	low.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_AS, &low);
	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		struct folder f = {0};
		size_t len;
		uint8_t *bytes = st_writer_file(headers[i], strlen(headers[i]), 16, &len);

		put_text(&f, "config.json", "{}");
		put_bytes(&f, "model.safetensors", bytes, len);
		refused(&f, NULL, ST_CORRUPT, "model.safetensors: truncated: tensor a");
	}
	setrlimit(RLIMIT_AS, &old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_folder_of_one_file_is_read),
		cmocka_unit_test(model_safetensors_wins_over_what_lies_beside_it),
		cmocka_unit_test(one_file_of_another_name_is_the_model),
		cmocka_unit_test(shards_are_read_as_the_index_says),
		cmocka_unit_test(a_stale_copy_does_not_take_a_tensors_place),
		cmocka_unit_test(what_an_index_gets_wrong_is_named),
		cmocka_unit_test(folders_without_a_model_say_what_is_missing),
		cmocka_unit_test(shapes_have_the_outermost_dimension_first),
		cmocka_unit_test(all_parts_of_a_split_model_are_read),
		cmocka_unit_test(what_is_wrong_with_parts_is_named),
		cmocka_unit_test(a_folder_of_one_gguf_is_that),
		cmocka_unit_test(a_gguf_has_an_architecture),
		cmocka_unit_test(a_folder_may_be_made_of_links),
		cmocka_unit_test(paths_that_are_no_model_are_refused),
		cmocka_unit_test(dropped_pages_come_back),
		cmocka_unit_test(another_model_is_told_from_a_copy),
		cmocka_unit_test(each_of_many_tensors_is_found),
		cmocka_unit_test(recorded_files_are_judged_as_recorded),
		cmocka_unit_test(claims_cost_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
