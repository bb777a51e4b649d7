/* test_safetensors.c - headers of safetensors files: what the `safetensors` package (0.8.0) takes is read as written,
 * what it refuses is refused by tensor and field, and no bytes crash the reader. */
#include "model/safetensors.h"
#include "tests/support/st_writer.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmocka.h>

/* A copy that ends where memory ends, so reading behind it crashes. */
static int read_bytes(const uint8_t *bytes, size_t len, struct safetensors *s, struct filemap *m, struct errbuf *err)
{
	int rc;

	err->text[0] = 0;
	filemap_from(m, bytes, len, 0);
	rc = safetensors_read(s, m->data, m->bytes, err);
	if (rc != ST_OK && !err->text[0]) fail_msg("refused without a word");
	return rc;
}

static const struct ckpt_tensor *find(const struct safetensors *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (gguf_str_is(s->tensors[i].name, name)) return &s->tensors[i];
	fail_msg("no tensor %s", name);
	return NULL;
}

static void tensors_are_read_as_written(void **state)
{
	struct st_writer w;
	struct safetensors s;
	struct filemap m;
	struct errbuf err;
	const struct ckpt_tensor *t;
	size_t len;
	uint8_t *bytes;

	st_writer_init(&w);
	st_writer_raw(&w, "\"__metadata__\": {\"format\": \"pt\"}");
	st_writer_tensor(&w, "model.a", "BF16", 3, (uint64_t[]){2, 1, 3}, "abcdefghijkl", 12);
	st_writer_tensor(&w, "scalar", "F32", 0, NULL, "wxyz", 4);
	st_writer_tensor(&w, "nothing", "I64", 2, (uint64_t[]){0, 7}, "", 0);
	st_writer_tensor(&w, "caf\\u00e9 \\\"\\ud83d\\ude00\\n", "F8_E4M3", 1, (uint64_t[]){2}, "12", 2);
	bytes = st_writer_build(&w, &len);
	assert_int_equal(read_bytes(bytes, len, &s, &m, &err), ST_OK);
	assert_int_equal(s.n, 4);
	t = find(&s, "model.a");
	assert_int_equal(t->type, GGTYPE_BF16);
	assert_int_equal(t->n_dims, 3);
	assert_int_equal(t->dims[0] * 100 + t->dims[1] * 10 + t->dims[2], 213);
	assert_int_equal(t->bytes, 12);
	assert_memory_equal(t->data, "abcdefghijkl", 12);
	t = find(&s, "scalar");
	assert_int_equal(t->n_dims, 0);
	assert_memory_equal(t->data, "wxyz", 4);
	assert_int_equal(find(&s, "nothing")->bytes, 0);
	t = find(&s, "caf\xc3\xa9 \"\xf0\x9f\x98\x80\n");
	assert_int_equal(t->type, GGTYPE_F8_E4M3);
	assert_memory_equal(t->data, "12", 2);
	safetensors_release(&s);
	filemap_close(&m);
	st_writer_release(&w);
	free(bytes);
}

static void every_dtype_has_its_size_and_name(void **state)
{
	static const struct {
		const char *name;
		size_t bits;
	} types[] = {{"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
		     {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
		     {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
		     {"C64", 64},    {"F64", 64},        {"I64", 64},        {"U64", 64},    {"F4", 4},
		     {"F6_E2M3", 6}, {"F6_E3M2", 6}};

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct safetensors s;
		struct st_writer w;
		struct filemap m;
		struct errbuf err;
		uint8_t *bytes;
		size_t len;

		st_writer_init(&w);
		st_writer_tensor(&w, "a", types[i].name, 1, (uint64_t[]){8}, NULL, types[i].bits);
		bytes = st_writer_build(&w, &len);
		if (read_bytes(bytes, len, &s, &m, &err) != ST_OK) fail_msg("%s: %s", types[i].name, err.text);
		assert_int_equal(s.tensors[0].bytes, types[i].bits);
		assert_string_equal(ckpt_type_name(s.tensors[0].type), types[i].name);
		safetensors_release(&s);
		filemap_close(&m);
		st_writer_release(&w);
		free(bytes);
	}
	assert_string_equal(ckpt_type_name(GGTYPE_Q4_K), "Q4_K");
	assert_string_equal(ckpt_type_name(77), "unknown");
}

#define A_FIELDS "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
#define A        "\"a\":{" A_FIELDS "}"
#define BIG      "18446744073709551615"
#define D10(x)   x x x x x x x x x x

/* What the package says of each was tried out; 4 bytes of data follow unless n says otherwise. words NULL: read. */
static const struct {
	const char *header;
	int n;
	const char *words;
} headers[] = {
	{"{" A "}", 0, NULL},
	{" \n\t\r{ " A "\n}\n\t ", 0, NULL},
	{"{\"__metadata__\":null," A "}", 0, NULL},
	{"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}," A "}", 0, NULL},
	{"{\"a\":{" A_FIELDS ",\"x\":{\"y\":[1,-2.5e+3,{},[],true,false,null,\"\\u0041\"]}}}", 0, NULL},
	{"{\"\":{" A_FIELDS "}}", 0, NULL},
	{"{\"z\":{\"dtype\":\"F4\",\"shape\":[0,3],\"data_offsets\":[4,4]}," A "}", 0, NULL},
	{"{\"z\":{\"dtype\":\"F32\",\"shape\":[0," BIG "," BIG "],\"data_offsets\":[0,0]}," A "}", 0, NULL},
	{"{\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]},\"a\":{\"dtype\":\"F16\",\"shape\":[1],"
	 "\"data_offsets\":[0,2]}}",
	 0, NULL},
	{"{}", -4, NULL},
	{"", -4, "the header ends at byte 0, where '{' is expected"},
	{"[]", -4, "not valid JSON at byte 0: \"[]\", where '{' is expected"},
	{"{" A ",}", 0, "not valid JSON"},
	{"{" A "}x", 0, "where the end of the header is expected"},
	{"{" A, 0, "the header ends at byte 53, where ',' or '}' is expected"},
	{"{a:1}", 0, "\"a:1}\", where a text is expected"},
	{"{\"a\":null}", 0, "tensor a: is no JSON object"},
	{"{\"a\":{}}", 0, "tensor a: has no dtype"},
	{"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, "tensor a: has no dtype"},
	{"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 0, "tensor a: has no shape"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "tensor a: has no data_offsets"},
	{"{\"a\":{" A_FIELDS ",\"dtype\":\"F32\"}}", 0, "tensor a: has two fields dtype"},
	{"{\"a\":{" A_FIELDS ",\"shape\":[1]}}", 0, "tensor a: has two fields shape"},
	{"{\"a\":{" A_FIELDS ",\"data_offsets\":[0,4]}}", 0, "tensor a: has two fields data_offsets"},
	{"{\"__metadata__\":{},\"__metadata__\":{}}", -4, "two fields __metadata__"},
	{"{\"__metadata__\":{\"a\":1}," A "}", 0, "__metadata__: the header is not valid JSON at byte 21: \"1},"},
	{"{\"__metadata__\":\"a\"," A "}", 0, "__metadata__"},
	{"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: dtype: \"F99\" is not known"},
	{"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: dtype: the header is not valid JSON"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: shape: the header is not valid JSON at byte 29: \"-1],"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 0,
	 "where a whole number from 0 on is expected"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", 0, "where a whole number"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}", 0, "where a whole number"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[-0,0],\"data_offsets\":[0,0]}}", -4, "where a whole number"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 0, "where '[' is expected"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 0,
	 "tensor a: data_offsets: more than two numbers"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 0,
	 "data_offsets: the header is not valid JSON"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[18446744073709551616,4]}}", 0,
	 "does not fit 64 bits"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: data_offsets: 0 and 4, but dtype and shape make 8 bytes"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 0, "data_offsets: 4 and 0, but"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: shape: the number of elements overflows"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[" BIG "," BIG ",0],\"data_offsets\":[0,0]}}", -4,
	 "tensor a: shape: the number of elements overflows"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: shape: the size overflows"},
	{"{\"a\":{\"dtype\":\"F4\",\"shape\":[7],\"data_offsets\":[0,4]}}", 0, "tensor a: shape: ends inside a byte"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 0,
	 "tensor a: shape: more than 8 dimensions are not supported"},
	{"{" A ",\"b\":{" A_FIELDS "}}", 0, "begins at byte 0 of the data, inside another one"},
	{"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}", 0,
	 "tensor a begins at byte 2 of the data, and nothing is in front of it"},
	{"{" A "}", 1, "1 bytes at the end of the file belong to no tensor"},
	{"{" A "}", -1,
	 "truncated: tensor a (offset 0, 4 bytes) goes beyond the end of file (3 bytes of data are there)"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[" BIG "],\"data_offsets\":[0," BIG "]}}", 0, "shape: the size overflows"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2305843009213693951],\"data_offsets\":[0,2305843009213693951]}}", 0,
	 "goes beyond the end of file"},
	{"{\"a\xff\":{" A_FIELDS "}}", 0, "the header is not UTF-8 at byte 3"},
	{"{\"a\x01\":{" A_FIELDS "}}", 0, "where the rest of a text is expected"},
	{"{\"a\\ud83d\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d\\u0041\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d\\ue000\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d\\u004\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d+ude00\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d\\+de00\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d\\u", 0, "a text that begins at byte 2"},
	{"{\"a\\ud83d\\ude0", 0, "a text that begins at byte 2"},
	{"{\"__metadata__\":", -4, "__metadata__: the header ends at byte 16"},
	{"{\"a\\udc00\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\x41\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\n\x02\":{" A_FIELDS "}}", 0, "a text that begins at byte 2"},
	{"{\"a\\u12", 0, "a text that begins at byte 2"},
	{"{\"a\\", 0, "a text that begins at byte 2"},
	{"{\"a", 0, "where the rest of a text is expected"},
	{"{\"a\":{" A_FIELDS ",\"x\":01}}", 0, "not valid JSON"},
	{"{\"a\":{" A_FIELDS ",\"x\":1.}}", 0, "where a number is expected"},
	{"{\"a\":{" A_FIELDS ",\"x\":1e}}", 0, "where a number is expected"},
	{"{\"a\":{" A_FIELDS ",\"x\":-}}", 0, "where a number is expected"},
	{"{\"a\":{" A_FIELDS ",\"x\":nul}}", 0, "where a value is expected"},
	{"{\"a\":{" A_FIELDS ",\"x\":", 0, "where a value is expected"},
	{"{\"a\":{" A_FIELDS ",\"x\":" D10(D10("[[")), 0, "is nested deeper than 120 levels"},
	{"\xef\xbb\xbf{" A "}", 0, "where '{' is expected"},
};

static void headers_are_judged_as_the_package_does(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		struct safetensors s;
		struct filemap m;
		struct errbuf err;
		size_t len;
		uint8_t *bytes =
			st_writer_file(headers[i].header, strlen(headers[i].header), (size_t)(4 + headers[i].n), &len);
		int rc = read_bytes(bytes, len, &s, &m, &err);

		if ((rc == ST_OK) != !headers[i].words || (headers[i].words && !strstr(err.text, headers[i].words)))
			fail_msg("row %zu, %s: %d \"%s\"", i, headers[i].header, rc, err.text);
		safetensors_release(&s);
		filemap_close(&m);
		free(bytes);
	}
}

static void the_length_is_not_believed(void **state)
{
	static const struct {
		uint64_t claim;
		size_t len;
		const char *words;
	} rows[] = {
		{0, 0, "the file has 0 bytes"},
		{2, 7, "the file has 7 bytes"},
		{UINT64_MAX, 16, "the header's length is 18446744073709551615; expected at most 100000000"},
		{100000001, 16, "expected at most 100000000"},
		{100000000, 16, "truncated: the header's length is 100000000, but 8 bytes follow"},
		{9, 16, "but 8 bytes follow"},
		{0, 8, "the header ends at byte 0"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint8_t bytes[16] = {0};
		struct safetensors s;
		struct filemap m;
		struct errbuf err;

		memcpy(bytes, &rows[i].claim, 8);
		assert_int_equal(read_bytes(bytes, rows[i].len, &s, &m, &err), ST_CORRUPT);
		if (!strstr(err.text, rows[i].words)) fail_msg("row %zu: %s", i, err.text);
		safetensors_release(&s);
		filemap_close(&m);
	}
}

static uint8_t *good_file(size_t *len)
{
	struct st_writer w;
	uint8_t *bytes;

	st_writer_init(&w);
	st_writer_raw(&w, "\"__metadata__\": {\"for\\u006dat\": \"pt\"}");
	st_writer_tensor(&w, "model.a", "BF16", 2, (uint64_t[]){2, 3}, NULL, 12);
	st_writer_tensor(&w, "b\\n", "F32", 1, (uint64_t[]){2}, NULL, 8);
	bytes = st_writer_build(&w, len);
	st_writer_release(&w);
	return bytes;
}

static void a_file_cut_anywhere_is_refused(void **state)
{
	size_t len;
	uint8_t *bytes = good_file(&len);

	for (size_t n = 0; n < len; n++) {
		struct safetensors s;
		struct filemap m;
		struct errbuf err;

		if (read_bytes(bytes, n, &s, &m, &err) == ST_OK)
			fail_msg("the first %zu of %zu bytes are taken", n, len);
		safetensors_release(&s);
		filemap_close(&m);
	}
	free(bytes);
}

static void no_single_byte_makes_it_crash(void **state)
{
	static const uint8_t values[] = {0,   1,   0x7f, 0x80, 0xff, '"', '\\', '{', '}',
					 '[', ']', ',',  ':',  '0',  '9', '-',  'e', ' '};
	size_t len;
	uint8_t *bytes = good_file(&len);

	for (size_t at = 0; at < len; at++) {
		uint8_t old = bytes[at];

		for (size_t v = 0; v < ARRAY_LEN(values); v++) {
			struct safetensors s;
			struct filemap m;
			struct errbuf err;

			bytes[at] = values[v];
			if (read_bytes(bytes, len, &s, &m, &err) == ST_OK)
				for (size_t i = 0; i < s.n; i++)
					assert_true(s.tensors[i].data + s.tensors[i].bytes <= m.data + m.bytes);
			safetensors_release(&s);
			filemap_close(&m);
		}
		bytes[at] = old;
	}
	free(bytes);
}

/* DeepSeek-V3 has some 90,000 tensors, quantized in shared shards even more. */
static void each_of_many_tensors_is_read(void **state)
{
	struct safetensors s;
	struct st_writer w;
	struct filemap m;
	struct errbuf err;
	uint8_t *bytes;
	size_t len;

	st_writer_init(&w);
	for (int i = 0; i < 90000; i++) {
		char name[100];

		snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.down_proj.weight_scale_inv", i / 1000,
			 i % 1000);
		st_writer_tensor(&w, name, "F8_E4M3", 2, (uint64_t[]){1, 3}, NULL, 3);
	}
	bytes = st_writer_build(&w, &len);
	assert_int_equal(read_bytes(bytes, len, &s, &m, &err), ST_OK);
	assert_int_equal(s.n, 90000);
	for (size_t i = 0; i < s.n; i++) assert_ptr_equal(s.tensors[i].data, m.data + m.bytes - 3 * (s.n - i));
	safetensors_release(&s);
	filemap_close(&m);
	st_writer_release(&w);
	free(bytes);
}

/* Escapes that nobody keeps do not add up. */
static void only_names_of_tensors_are_kept(void **state)
{
	struct safetensors s;
	struct strbuf header;
	struct filemap m;
	struct errbuf err;
	uint8_t *bytes;
	size_t len;

	strbuf_init(&header, MIB);
	strbuf_puts(&header, "{\"__metadata__\":{");
	for (int i = 0; i < 1000; i++) strbuf_printf(&header, "%s\"\\n%d\":\"\\n\"", i ? "," : "", i);
	strbuf_puts(&header, "},\"\\u0061\":{\"dtyp\\u0065\":\"F\\u00332\",\"shape\":[1]");
	for (int i = 0; i < 1000; i++) strbuf_puts(&header, ",\"\\n\":{\"\\n\":[\"\\n\"]}");
	strbuf_puts(&header, ",\"data_offsets\":[0,4]}}");
	bytes = st_writer_file(header.data, header.len, 4, &len);
	if (read_bytes(bytes, len, &s, &m, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(find(&s, "a")->type, GGTYPE_F32);
	assert_int_equal(s.names.n_texts, 1);
	assert_true(s.names.cap_texts <= 16);
	safetensors_release(&s);
	filemap_close(&m);
	strbuf_release(&header);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_are_read_as_written),
		cmocka_unit_test(every_dtype_has_its_size_and_name),
		cmocka_unit_test(headers_are_judged_as_the_package_does),
		cmocka_unit_test(the_length_is_not_believed),
		cmocka_unit_test(a_file_cut_anywhere_is_refused),
		cmocka_unit_test(no_single_byte_makes_it_crash),
		cmocka_unit_test(each_of_many_tensors_is_read),
		cmocka_unit_test(only_names_of_tensors_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
