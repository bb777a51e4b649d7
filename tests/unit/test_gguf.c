/* test_gguf.c - the GGUF reader: good files are read as written, each kind of bad one is refused with a text that
 * helps, and no change of a byte or of the length makes it crash. */
#include "model/gguf.h"
#include "tests/support/gguf_touch.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden.h"
#include "tests/support/test_file.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"

#include <dirent.h>
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

static int open_bytes(const void *bytes, size_t len, struct gguf **g, struct errbuf *err)
{
	struct test_file_mem m;
	int rc;

	err->text[0] = 0;
	*g = NULL;
	test_file_mem_init(&m, bytes, len);
	rc = gguf_open(g, m.path, err);
	test_file_mem_release(&m); /* the map keeps the memory */
	assert_true(rc == ST_OK ? *g != NULL : *g == NULL && err->text[0]);
	return rc;
}

static int open_writer(const struct gguf_writer *w, struct gguf **g, struct errbuf *err)
{
	size_t len;
	uint8_t *bytes = gguf_writer_build(w, &len);
	int rc = open_bytes(bytes, len, g, err);

	free(bytes);
	return rc;
}

/* A small file with every kind of value and two tensors. */
static void fill(struct gguf_writer *w)
{
	static const char *const words[] = {"one", "", "drei \xe2\x82\xac"};
	static const int32_t numbers[] = {-5, 0, 70000};
	static const uint8_t bools[] = {0, 1, 1};
	float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};

	gguf_writer_init(w);
	gguf_writer_str(w, "general.architecture", "llama");
	gguf_writer_raw(w, "u8", 2, GGUF_U8, "\xc8", 1);
	gguf_writer_raw(w, "i8", 2, GGUF_I8, "\xc8", 1);
	gguf_writer_raw(w, "u16", 3, GGUF_U16, "\xff\xff", 2);
	gguf_writer_raw(w, "i16", 3, GGUF_I16, "\xff\xff", 2);
	gguf_writer_u32(w, "u32", 4000000000u);
	gguf_writer_i32(w, "i32", -7);
	gguf_writer_f32(w, "f32", 0.5f);
	gguf_writer_bool(w, "bool", 1);
	gguf_writer_u64(w, "u64", UINT64_MAX);
	gguf_writer_raw(w, "i64", 3, GGUF_I64, "\0\0\0\0\0\0\0\x80", 8);
	gguf_writer_f64(w, "f64", 1e300);
	gguf_writer_strs(w, "words", words, 3);
	gguf_writer_array(w, "numbers", GGUF_I32, numbers, 3);
	gguf_writer_array(w, "bools", GGUF_BOOL, bools, 3);
	gguf_writer_strs(w, "none", NULL, 0);
	gguf_writer_tensor(w, "a.weight", GGTYPE_F32, 2, (uint64_t[]){4, 2}, weights, sizeof(weights));
	gguf_writer_tensor(w, "b.weight", GGTYPE_Q8_0, 1, (uint64_t[]){32}, NULL, 0);
}

/* ---- good files ---- */

static void reads_every_kind_as_written(void **state)
{
	struct gguf_writer w;
	const struct gguf_kv *kv;
	struct errbuf err;
	struct gguf_str s;
	struct gguf *g;
	uint64_t u, pos = 0;
	double d;
	bool b;

	fill(&w);
	assert_int_equal(open_writer(&w, &g, &err), ST_OK);
	gguf_writer_release(&w);
	assert_int_equal(gguf_version(g), 3);
	assert_int_equal(gguf_kv_count(g), 16);
	assert_int_equal(gguf_get_u64(g, "u8", 0, 255, &u, &err), ST_OK);
	assert_int_equal(u, 200);
	assert_int_equal(gguf_array_i64(gguf_find(g, "i8"), 0), -56);
	assert_int_equal(gguf_get_u64(g, "u16", 0, 65535, &u, &err), ST_OK);
	assert_int_equal(u, 65535);
	assert_int_equal(gguf_array_i64(gguf_find(g, "i16"), 0), -1);
	assert_int_equal(gguf_get_u64(g, "u32", 0, UINT64_MAX, &u, &err), ST_OK);
	assert_true(u == 4000000000u);
	assert_int_equal(gguf_get_f64(g, "i32", -10, 10, &d, &err), ST_OK);
	assert_true(d == -7);
	assert_int_equal(gguf_get_f64(g, "f32", 0, 1, &d, &err), ST_OK);
	assert_true(d == 0.5);
	assert_int_equal(gguf_get_bool_or(g, "bool", false, &b, &err), ST_OK);
	assert_true(b);
	assert_int_equal(gguf_get_u64(g, "u64", 0, UINT64_MAX, &u, &err), ST_OK);
	assert_true(u == UINT64_MAX);
	assert_true(gguf_array_i64(gguf_find(g, "i64"), 0) == INT64_MIN);
	assert_int_equal(gguf_get_f64(g, "f64", 0, 1e308, &d, &err), ST_OK);
	assert_true(d == 1e300);
	assert_int_equal(gguf_get_str(g, "general.architecture", &s, &err), ST_OK);
	assert_true(gguf_str_is(s, "llama"));

	assert_int_equal(gguf_get_array(g, "words", GGUF_STR, &kv, &err), ST_OK);
	assert_true(gguf_array_next_str(kv, &pos, &s) && gguf_str_is(s, "one"));
	assert_true(gguf_array_next_str(kv, &pos, &s) && gguf_str_is(s, ""));
	assert_true(gguf_array_next_str(kv, &pos, &s) && gguf_str_is(s, "drei \xe2\x82\xac"));
	assert_false(gguf_array_next_str(kv, &pos, &s));
	assert_int_equal(gguf_get_array(g, "numbers", GGUF_I32, &kv, &err), ST_OK);
	assert_int_equal(gguf_array_i64(kv, 0), -5);
	assert_int_equal(gguf_array_u64(kv, 2), 70000);
	assert_true(gguf_array_f64(kv, 0) == -5);
	gguf_touch(g);
	gguf_close(g);
}

static void gives_tensors_by_name_and_number(void **state)
{
	const struct gguf_tensor *t;
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	uint64_t bytes;
	float f;

	fill(&w);
	assert_int_equal(open_writer(&w, &g, &err), ST_OK);
	gguf_writer_release(&w);
	assert_int_equal(gguf_tensor_count(g), 2);
	t = gguf_find_tensor(g, "a.weight");
	assert_ptr_equal(t, gguf_tensor_at(g, 0));
	assert_int_equal(t->n_dims, 2);
	assert_int_equal(t->dims[0] * 1000 + t->dims[1] * 100 + t->dims[2] * 10 + t->dims[3], 4211);
	assert_int_equal(t->bytes, 32);
	memcpy(&f, t->data + 7 * sizeof(f), sizeof(f));
	assert_true(f == 8);
	assert_ptr_equal(t->data, gguf_data(g, &bytes));
	assert_int_equal(gguf_find_tensor(g, "b.weight")->bytes, 34);
	assert_null(gguf_find_tensor(g, "c.weight"));
	assert_null(gguf_find(g, "a.weight"));
	gguf_close(g);
}

static void finds_each_of_many_names(void **state)
{
	enum { N = 3000 };
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	char name[32];
	uint64_t u;
	int i;

	gguf_writer_init(&w);
	for (i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "k.%d", i);
		gguf_writer_raw(&w, name, strlen(name), GGUF_U32, &i, sizeof(i));
		snprintf(name, sizeof(name), "t.%d", i);
		gguf_writer_tensor(&w, name, GGTYPE_F32, 1, (uint64_t[]){1 + (uint64_t)i % 5}, NULL, 0);
	}
	assert_int_equal(open_writer(&w, &g, &err), ST_OK);
	for (i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "k.%d", i);
		assert_int_equal(gguf_get_u64(g, name, 0, N, &u, &err), ST_OK);
		assert_int_equal(u, i);
		snprintf(name, sizeof(name), "t.%d", i);
		assert_ptr_equal(gguf_find_tensor(g, name), gguf_tensor_at(g, (size_t)i));
	}
	assert_null(gguf_find(g, "k.3000"));
	gguf_close(g);
	gguf_writer_release(&w);
}

static void versions_and_alignments_load(void **state)
{
	static const uint32_t alignments[] = {8, 16, 32, 64, 4096, 65536};
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	size_t i;

	for (i = 0; i < ARRAY_LEN(alignments); i++) {
		fill(&w);
		w.version = i % 2 ? 2 : 3;
		w.alignment = alignments[i];
		gguf_writer_u32(&w, "general.alignment", alignments[i]);
		assert_int_equal(open_writer(&w, &g, &err), ST_OK);
		assert_true(*(const float *)(const void *)gguf_find_tensor(g, "a.weight")->data == 1);
		gguf_close(g);
		gguf_writer_release(&w);
	}
}

static void a_file_without_tensors_may_end_unpadded(void **state)
{
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	uint64_t bytes;
	uint8_t *file;
	size_t len;

	gguf_writer_init(&w);
	gguf_writer_u32(&w, "k", 1);
	file = gguf_writer_build(&w, &len);
	assert_int_equal(open_bytes(file, 24 + 8 + 1 + 4 + 4, &g, &err), ST_OK);
	gguf_data(g, &bytes);
	assert_int_equal(bytes, 0);
	gguf_close(g);
	gguf_writer_release(&w);
	free(file);
}

/* ---- refusals: values ---- */

static void values_of_the_wrong_kind_or_range_are_named(void **state)
{
	const struct gguf_kv *kv;
	struct gguf_writer w;
	struct errbuf err;
	struct gguf_str s;
	struct gguf *g;
	uint64_t u;
	double d;
	bool b;

	fill(&w);
	gguf_writer_f32(&w, "nan", (float)__builtin_nan(""));
	assert_int_equal(open_writer(&w, &g, &err), ST_OK);
	gguf_writer_release(&w);
	assert_int_equal(gguf_get_u64(g, "absent", 0, 9, &u, &err), ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "absent is missing"));
	assert_non_null(strstr(err.text, gguf_shown_path(g)));
	assert_int_equal(gguf_get_u64(g, "f32", 0, 9, &u, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "key f32 has the wrong type: f32, expected an integer"));
	assert_int_equal(gguf_get_u64(g, "i32", 0, 9, &u, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "key i32 is -7; expected 0 to 9"));
	assert_int_equal(gguf_get_u64(g, "u32", 1, 100, &u, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "key u32 is 4000000000; expected 1 to 100"));
	assert_int_equal(gguf_get_u64_or(g, "u32", 1, 100, 5, &u, &err), ST_INVALID);
	assert_int_equal(gguf_get_u64_or(g, "absent", 1, 100, 5, &u, &err), ST_OK);
	assert_int_equal(u, 5);
	assert_int_equal(gguf_get_f64(g, "nan", -1, 1, &d, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "nan"));
	assert_int_equal(gguf_get_f64(g, "words", -1, 1, &d, &err), ST_INVALID);
	assert_int_equal(gguf_get_f64_or(g, "absent", -1, 1, 0.25, &d, &err), ST_OK);
	assert_true(d == 0.25);
	assert_int_equal(gguf_get_bool_or(g, "u8", true, &b, &err), ST_INVALID);
	assert_int_equal(gguf_get_bool_or(g, "absent", true, &b, &err), ST_OK);
	assert_true(b);
	assert_int_equal(gguf_get_str(g, "words", &s, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "array of str, expected str"));
	assert_int_equal(gguf_get_array(g, "words", GGUF_I32, &kv, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "array of str, expected array of i32"));
	assert_int_equal(gguf_get_array(g, "u8", GGUF_U8, &kv, &err), ST_INVALID);
	assert_int_equal(gguf_get_array(g, "absent", GGUF_U8, &kv, &err), ST_NOT_FOUND);
	gguf_close(g);
}

/* ---- refusals: files ---- */

/* clang-format off */
static void set_magic(struct gguf_writer *w) { memcpy(w->magic, "GGUX", 4); }
static void set_version_1(struct gguf_writer *w) { w->version = 1; }
static void set_version_4(struct gguf_writer *w) { w->version = 4; }
static void set_swapped(struct gguf_writer *w) { w->version = 0x03000000; }
static void many_keys(struct gguf_writer *w) { w->n_kvs = 1ull << 60; }
static void keys_max(struct gguf_writer *w) { w->n_kvs = UINT64_MAX - 1; }
static void one_key_too_many(struct gguf_writer *w) { w->n_kvs = w->kv_len + 1; }
static void many_tensors(struct gguf_writer *w) { w->n_tensors = 1ull << 60; }
static void one_tensor_too_many(struct gguf_writer *w) { w->n_tensors = w->tensor_len + 1; }
static void string_wraps(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, GGUF_STR, "\xf7\xff\xff\xff\xff\xff\xff\xff", 8); }
static void string_long(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, GGUF_STR, "\0\0\0\0\0\0\0\x40", 8); }
static void value_type(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, 13, "12345678", 8); }
static void element_type(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, GGUF_ARR, "\x4d\0\0\0\0\0\0\0\0\0\0\x10", 12); }
static void array_of_arrays(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, GGUF_ARR, "\x09\0\0\0\1\0\0\0\0\0\0\0", 12); }
static void array_wraps(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, GGUF_ARR, "\x04\0\0\0\0\0\0\0\0\0\0\x40", 12); }
static void strings_many(struct gguf_writer *w) { gguf_writer_raw(w, "k", 1, GGUF_ARR, "\x08\0\0\0\0\0\0\0\0\0\0\x20", 12); }
static void bool_two(struct gguf_writer *w) { gguf_writer_bool(w, "bool", 2); }
static void bools_two(struct gguf_writer *w) { gguf_writer_array(w, "bools", GGUF_BOOL, "\1\0\2", 3); }
static void key_empty(struct gguf_writer *w) { gguf_writer_raw(w, "", 0, GGUF_U8, "", 1); }
static void key_twice(struct gguf_writer *w) { gguf_writer_raw(w, "u32", 3, GGUF_U8, "", 1); }
static void key_bytes(struct gguf_writer *w) { gguf_writer_raw(w, "a\xff\xfe", 3, GGUF_U8, "", 1); }
static void key_zero(struct gguf_writer *w) { gguf_writer_raw(w, "a\0b", 3, GGUF_U8, "", 1); }
static void key_escape(struct gguf_writer *w) { gguf_writer_raw(w, "a\x1b[2J", 5, GGUF_U8, "", 1); }
static void align_zero(struct gguf_writer *w) { gguf_writer_u32(w, "general.alignment", 0); }
static void align_24(struct gguf_writer *w) { gguf_writer_u32(w, "general.alignment", 24); }
static void align_4(struct gguf_writer *w) { gguf_writer_u32(w, "general.alignment", 4); }
static void align_huge(struct gguf_writer *w) { gguf_writer_u32(w, "general.alignment", 1u << 31); }
static void align_text(struct gguf_writer *w) { gguf_writer_str(w, "general.alignment", "32"); }
static void split_keys(struct gguf_writer *w) { gguf_writer_u32(w, "split.count", 70000); }
static void split_negative(struct gguf_writer *w) { gguf_writer_i32(w, "split.count", -3); }
static void tensor_twice(struct gguf_writer *w) { gguf_writer_tensor(w, "a.weight", GGTYPE_F32, 1, (uint64_t[]){4}, NULL, 0); }
static void tensor_unnamed(struct gguf_writer *w) { gguf_writer_tensor(w, "", GGTYPE_F32, 1, (uint64_t[]){4}, NULL, 0); }
static void tensor_type(struct gguf_writer *w) { w->tensors[1].type = 4; }
static void dims_none(struct gguf_writer *w) { w->tensors[1].n_dims = 0; }
static void dims_five(struct gguf_writer *w) { w->tensors[1].n_dims = 5; }
static void dim_zero(struct gguf_writer *w) { w->tensors[0].dims[1] = 0; }
static void dims_wrap(struct gguf_writer *w) { w->tensors[0].dims[0] = w->tensors[0].dims[1] = 1ull << 40; }
static void bytes_wrap(struct gguf_writer *w) { w->tensors[0].dims[0] = 1ull << 62; w->tensors[0].dims[1] = 1; }
static void row_odd(struct gguf_writer *w) { w->tensors[1].dims[0] = 33; }
static void offset_odd(struct gguf_writer *w) { w->tensors[1].offset = 7; }
static void offset_wraps(struct gguf_writer *w) { w->tensors[1].offset = UINT64_MAX - 31; }
static void offset_beyond(struct gguf_writer *w) { w->tensors[1].offset = 4096; }
static void offset_same(struct gguf_writer *w) { w->tensors[1].offset = 0; }
static void too_large(struct gguf_writer *w) { w->tensors[1].dims[0] = 3200; }

static const struct refusal {
	const char *name;
	void (*change)(struct gguf_writer *w);
	int rc;
	const char *words;
} refusals[] = {
	{"magic", set_magic, ST_CORRUPT, "not a GGUF file: its magic is \"GGUX\""},
	{"version 1", set_version_1, ST_UNSUPPORTED, "GGUF version 1 is not supported"},
	{"version 4", set_version_4, ST_UNSUPPORTED, "GGUF version 4 is not supported"},
	{"big-endian", set_swapped, ST_UNSUPPORTED, "big-endian"},
	{"2^60 keys", many_keys, ST_CORRUPT, "key count 1152921504606846976 is impossible"},
	{"2^64-2 keys", keys_max, ST_CORRUPT, "key count"},
	{"a key too many", one_key_too_many, ST_CORRUPT, "of the name of tensor 1 goes beyond"},
	{"2^60 tensors", many_tensors, ST_CORRUPT, "tensor count 1152921504606846976 is impossible"},
	{"a tensor too many", one_tensor_too_many, ST_CORRUPT, "tensor 3"},
	{"a string that wraps", string_wraps, ST_CORRUPT, "key k: the length 18446744073709551607"},
	{"a long string", string_long, ST_CORRUPT, "beyond the end of file"},
	{"value type", value_type, ST_CORRUPT, "key k: unknown value type 13"},
	{"element type", element_type, ST_CORRUPT, "key k: unknown element type 77"},
	{"nested array", array_of_arrays, ST_CORRUPT, "key k: nested arrays"},
	{"an array that wraps", array_wraps, ST_CORRUPT, "key k: 4611686018427387904 values of 4 bytes"},
	{"many strings", strings_many, ST_CORRUPT, "key k: 2305843009213693952 strings"},
	{"bool 2", bool_two, ST_CORRUPT, "key bool: the bool value 2"},
	{"bool 2 in an array", bools_two, ST_CORRUPT, "key bools: the bool value 2"},
	{"empty key", key_empty, ST_CORRUPT, "key 17 has an empty name"},
	{"key twice", key_twice, ST_CORRUPT, "duplicate key u32"},
	{"key not UTF-8", key_bytes, ST_CORRUPT, "not UTF-8: \"a\\xff\\xfe\""},
	{"key with zero", key_zero, ST_CORRUPT, "control characters: \"a\\x00b\""},
	{"key with escape", key_escape, ST_CORRUPT, "control characters: \"a\\x1b[2J\""},
	{"alignment 0", align_zero, ST_CORRUPT, "general.alignment is 0"},
	{"alignment 24", align_24, ST_CORRUPT, "general.alignment is 24; expected a power of two"},
	{"alignment 4", align_4, ST_CORRUPT, "general.alignment is 4"},
	{"alignment 2^31", align_huge, ST_CORRUPT, "general.alignment is 2147483648"},
	{"alignment text", align_text, ST_INVALID, "general.alignment has the wrong type: str, expected an integer"},
	{"split count too large", split_keys, ST_INVALID, "split.count is 70000"},
	{"split count negative", split_negative, ST_INVALID, "split.count is -3"},
	{"tensor twice", tensor_twice, ST_CORRUPT, "duplicate tensor a.weight"},
	{"tensor without name", tensor_unnamed, ST_CORRUPT, "tensor 3 has an empty name"},
	{"tensor type", tensor_type, ST_CORRUPT, "tensor b.weight has the unknown type 4"},
	{"no dimensions", dims_none, ST_CORRUPT, "tensor b.weight has 0 dimensions"},
	{"five dimensions", dims_five, ST_CORRUPT, "tensor b.weight has 5 dimensions"},
	{"dimension 0", dim_zero, ST_CORRUPT, "tensor a.weight has no elements (shape 4 x 0)"},
	{"elements overflow", dims_wrap, ST_CORRUPT, "the size of tensor a.weight overflows"},
	{"bytes overflow", bytes_wrap, ST_CORRUPT, "the size of tensor a.weight overflows"},
	{"row not of whole blocks", row_odd, ST_CORRUPT, "tensor b.weight: rows of 33 elements"},
	{"offset misaligned", offset_odd, ST_CORRUPT, "tensor b.weight: its offset 7 is not a multiple of the alignment 32"},
	{"offset wraps", offset_wraps, ST_CORRUPT, "tensor b.weight (offset 18446744073709551584"},
	{"offset beyond the end", offset_beyond, ST_CORRUPT, "tensor b.weight (offset 4096"},
	{"overlap", offset_same, ST_CORRUPT, "a.weight and b.weight overlap"},
	{"data beyond the end", too_large, ST_CORRUPT, "tensor b.weight (offset 32, size 3400) goes beyond the end of file"},
};
/* clang-format on */

static void each_kind_of_fault_is_refused_by_name(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(refusals); i++) {
		const struct refusal *c = &refusals[i];
		struct gguf_writer w;
		struct errbuf err;
		struct gguf *g;
		int rc;

		fill(&w);
		c->change(&w);
		rc = open_writer(&w, &g, &err);
		gguf_writer_release(&w);
		if (rc != c->rc || !strstr(err.text, c->words))
			fail_msg("%s: status %d, text \"%s\"; expected %d and \"%s\"", c->name, rc, err.text, c->rc,
				 c->words);
	}
}

static void a_file_cut_anywhere_is_refused(void **state)
{
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	size_t len, i, end;
	uint8_t *bytes;

	fill(&w);
	bytes = gguf_writer_build(&w, &len);
	gguf_writer_release(&w);
	end = len - 30; /* the last tensor has 34 bytes of its 64; its padding may be missing */
	for (i = 0; i < len; i++) {
		int rc = open_bytes(bytes, i, &g, &err);

		if ((rc == ST_OK) != (i >= end))
			fail_msg("cut to %zu of %zu bytes: status %d \"%s\"", i, len, rc, err.text);
		gguf_close(g);
	}
	free(bytes);
}

static void no_single_byte_makes_it_crash(void **state)
{
	static const uint8_t masks[] = {0x01, 0x02, 0x08, 0x40, 0x80, 0xff};
	size_t len, i, m, n_open = 0;
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	uint8_t *bytes;

	fill(&w);
	bytes = gguf_writer_build(&w, &len);
	gguf_writer_release(&w);
	for (i = 0; i < len; i++) {
		for (m = 0; m < ARRAY_LEN(masks); m++) {
			bytes[i] ^= masks[m];
			if (open_bytes(bytes, len, &g, &err) == ST_OK) {
				gguf_touch(g);
				n_open++;
			}
			gguf_close(g);
			bytes[i] ^= masks[m];
		}
	}
	assert_true(n_open > len); /* values and weights may change freely, so this is no test of refusing alone */
	free(bytes);
}

/* 8 MiB of claims must not become more than a few times that: the arrays grow with what was read. */
static void memory_stays_in_proportion_to_the_file(void **state)
{
	enum { N = 1 << 16 };
	struct rusage before, after;
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;
	size_t i, len;
	uint8_t *bytes;
	char name[16];

	gguf_writer_init(&w);
	for (i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%zx", i);
		gguf_writer_raw(&w, name, strlen(name), GGUF_U8, "", 1);
	}
	bytes = gguf_writer_build(&w, &len);
	gguf_writer_release(&w);
	getrusage(RUSAGE_SELF, &before);
	assert_int_equal(open_bytes(bytes, len, &g, &err), ST_OK);
	getrusage(RUSAGE_SELF, &after);
	gguf_close(g);
	free(bytes);
	assert_true((size_t)(after.ru_maxrss - before.ru_maxrss) * KIB < 16 * len + 4 * MIB);
}

static void what_is_not_a_plain_file_is_refused(void **state)
{
	char *pipe_path = test_file_temp("pipe"), *absent = test_file_temp("absent.gguf"),
	     *empty = test_file_temp("empty.gguf");
	struct errbuf err;
	struct gguf *g;

	assert_int_equal(gguf_open(&g, absent, &err), ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "absent.gguf: cannot open the file: No such file"));
	assert_int_equal(gguf_open(&g, test_file_dir(), &err), ST_INVALID);
	assert_non_null(strstr(err.text, "is a folder"));
	assert_int_equal(mkfifo(pipe_path, 0600), 0);
	assert_int_equal(gguf_open(&g, pipe_path, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "not a regular file"));
	test_file_write(empty, "", 0);
	assert_int_equal(gguf_open(&g, empty, &err), ST_CORRUPT);
	assert_non_null(strstr(err.text, "the file is empty"));
	gguf_close(NULL);
	free(pipe_path);
	free(absent);
	free(empty);
}

static void a_part_of_a_split_model_says_which(void **state)
{
	struct gguf_writer w;
	struct errbuf err;
	struct gguf *g;

	fill(&w);
	assert_int_equal(open_writer(&w, &g, &err), ST_OK);
	assert_int_equal(gguf_split(g).no, 0);
	assert_int_equal(gguf_split(g).count, 1);
	assert_int_equal(gguf_split(g).tensors, 0);
	gguf_close(g);
	gguf_writer_raw(&w, "split.no", 8, GGUF_U16, "\2", 2);
	gguf_writer_raw(&w, "split.count", 11, GGUF_U16, "\3", 2);
	gguf_writer_i32(&w, "split.tensors.count", 70);
	assert_int_equal(open_writer(&w, &g, &err), ST_OK);
	assert_int_equal(gguf_split(g).no, 2);
	assert_int_equal(gguf_split(g).count, 3);
	assert_int_equal(gguf_split(g).tensors, 70);
	gguf_close(g);
	gguf_writer_release(&w);
}

static void long_paths_do_not_push_the_reason_out(void **state)
{
	char name[251], *path;
	struct errbuf err;
	struct gguf *g;

	memset(name, 'x', 250);
	name[250] = 0;
	path = test_file_temp(name);
	test_file_write(path, "GGUX", 4);
	assert_int_equal(gguf_open(&g, path, &err), ST_CORRUPT);
	assert_non_null(strstr(err.text, "...: not a GGUF file"));
	free(path);
}

static void text_for_people_is_escaped(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"plain \xe2\x82\xac", "plain \xe2\x82\xac"},
		{"a\nb\tc\\", "a\\nb\\tc\\\\"},
		{"\x1b[31m\x7f", "\\x1b[31m\\x7f"},
		{"\xc2\x9b"
		 "2J",
		 "\\u{9b}2J"},
		{"\xe2\x80\xae", "\\u{202e}"},
		{"\xff\xc3", "\\xff\\xc3"},
	};
	struct strbuf b;
	struct quote q;
	char longer[300];
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		q = quote_short(cases[i].in, strlen(cases[i].in));
		assert_string_equal(q.text, cases[i].out);
	}
	memset(longer, 'y', sizeof(longer));
	q = quote_short(longer, sizeof(longer));
	assert_true(strlen(q.text) < sizeof(q.text) && strstr(q.text, "yyy..."));
	strbuf_init(&b, 100);
	quote_append(&b, "{% if %}\n\t\x1b\\", 12, true);
	assert_string_equal(b.data, "{% if %}\n\t\\x1b\\");
	strbuf_release(&b);
}

/* ---- golden files ---- */

static void golden_files_are_judged_as_recorded(void **state)
{
	FILE *index = golden_open("malformed/index.jsonl");
	size_t n = 0;
	json_t *j;

	if (!index) skip();
	for (; (j = golden_next(index)); json_decref(j)) {
		const char *file = json_string_value(json_object_get(j, "file"));
		const char *expect = json_string_value(json_object_get(j, "expect"));
		bool of_shape = strstr(file, "architecture") ||
				strstr(file, "arch-"); /* the family's part; test_spec_gguf has it */
		struct errbuf err = {""};
		char path[256], *bytes;
		struct gguf *g;
		size_t len;
		int rc;

		if (strcmp(json_string_value(json_object_get(j, "kind")), "gguf") != 0) continue;
		snprintf(path, sizeof(path), "malformed/%s", file);
		bytes = golden_text(path, &len);
		if (!bytes) fail_msg("%s is in the index but nowhere to be found", file);
		rc = open_bytes(bytes, len, &g, &err);
		if (rc == ST_OK) gguf_touch(g);
		if (strcmp(expect, "either") != 0 && !of_shape && (rc == ST_OK) != (strcmp(expect, "accept") == 0))
			fail_msg("%s: status %d \"%s\"; expected %s", file, rc, err.text, expect);
		gguf_close(g);
		free(bytes);
		n++;
	}
	fclose(index);
	assert_true(n >= 20);
}

/* What the fuzzer starts from (and what it has found) is also a plain test. */
static void seeds_of_the_fuzzer_are_safe(void **state)
{
	const char *dir = "tests/fuzz/corpus/gguf";
	DIR *d = opendir(dir);
	struct dirent *e;
	size_t n = 0;

	if (!d) skip();
	while ((e = readdir(d))) {
		char path[512];
		struct errbuf err;
		struct gguf *g;

		if (e->d_name[0] == '.') continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (gguf_open(&g, path, &err) == ST_OK) {
			gguf_touch(g);
			gguf_close(g);
		}
		n++;
	}
	closedir(d);
	assert_true(n >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_kind_as_written),
		cmocka_unit_test(gives_tensors_by_name_and_number),
		cmocka_unit_test(finds_each_of_many_names),
		cmocka_unit_test(versions_and_alignments_load),
		cmocka_unit_test(a_file_without_tensors_may_end_unpadded),
		cmocka_unit_test(values_of_the_wrong_kind_or_range_are_named),
		cmocka_unit_test(each_kind_of_fault_is_refused_by_name),
		cmocka_unit_test(a_file_cut_anywhere_is_refused),
		cmocka_unit_test(no_single_byte_makes_it_crash),
		cmocka_unit_test(memory_stays_in_proportion_to_the_file),
		cmocka_unit_test(what_is_not_a_plain_file_is_refused),
		cmocka_unit_test(a_part_of_a_split_model_says_which),
		cmocka_unit_test(long_paths_do_not_push_the_reason_out),
		cmocka_unit_test(text_for_people_is_escaped),
		cmocka_unit_test(golden_files_are_judged_as_recorded),
		cmocka_unit_test(seeds_of_the_fuzzer_are_safe),
	};

	return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
