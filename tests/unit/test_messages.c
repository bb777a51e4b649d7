/* test_messages.c - every message of messages.def: packs, unpacks to the same, has the golden bytes, refuses what breaks a bound,
 * and reads as msgpack-c reads it.
 *
 * Run with UPDATE=1 after a change of messages.def that is meant: writes the golden bytes and proto/README.md anew. */
#include "common/mem.h"
#include "proto/messages.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>

#define GOLDEN_PATH "tests/data/messages.golden"
#define README_PATH "proto/README.md"

static const enum msg_type types[] = {
#define NO_FIELD(type, field, max, doc)
#define AS_TYPE(name, number, doc, fields) MSG_##name,
	MESSAGES(AS_TYPE, NO_FIELD)
#undef AS_TYPE
#undef NO_FIELD
};

static const uint32_t u32s[] = {0, 1, 0xdeadbeef, UINT32_MAX, 7};
static const uint64_t u64s[] = {0, 1, 0x0123456789abcdefull, UINT64_MAX};
static const float f32s[] = {0.0f, -1.5f, 3.25e10f};

/* A number for a field whose largest value is max; 0: any. */
static uint32_t bounded(uint32_t n, uint64_t max)
{
	return max == 0 ? n * 1000003u : min_u32(n, (uint32_t)max);
}

/* Fills every field with something of its kind; `n` varies lengths and numbers, 0 gives all empty. */
#define FILL_u32(m, field, max) (m)->field = bounded(n, max);
#define FILL_u64(m, field, max) (m)->field = n * 0x100000001ull;
#define FILL_f32(m, field, max) (m)->field = (float)n * 0.5f;
#define FILL_str(m, field, max) (m)->field = view_of("caf\xc3\xa9", min_u32(n ? 5 : 0, max));
#define FILL_bin(m, field, max) (m)->field = view_of("\0\1\2\xff", min_u32(n % 5, max));
#define FILL_u32s(m, field, max) (m)->field = view_of(u32s, min_u32(n % 6, max));
#define FILL_u64s(m, field, max) (m)->field = view_of(u64s, min_u32(n % 5, max));
#define FILL_f32s(m, field, max) (m)->field = view_of(f32s, min_u32(n % 4, max));
#define FILL_FIELD(type, field, max, doc) FILL_##type(p, field, max)
#define FILL_MSG(name, number, doc, fields)                                  \
	static void fill_##name(struct msg_##name *p, uint32_t n)            \
	{                                                                    \
		fields                                                       \
	}
MESSAGES(FILL_MSG, FILL_FIELD)

static void fill(struct msg *m, enum msg_type type, uint32_t n)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	switch (type) {
#define NO_FIELD(t, field, max, doc)
#define FILL_CASE(name, number, doc, fields) \
	case MSG_##name:                     \
		fill_##name(&m->name, n);    \
		break;
		MESSAGES(FILL_CASE, NO_FIELD)
	}
}

static struct strbuf pack(const struct msg *m)
{
	struct strbuf out;

	strbuf_init(&out, LIMIT_MESSAGE_BYTES);
	assert_int_equal(msg_pack(m, &out), ST_OK);
	return out;
}

static void test_round_trip(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		for (uint32_t n = 0; n < 7; n++) {
			struct msg a, b;
			struct strbuf bytes;
			struct msg *copy;

			fill(&a, types[i], n);
			bytes = pack(&a);
			assert_int_equal(msg_unpack(&b, bytes.data, bytes.len), ST_OK);
			assert_true(msg_equal(&a, &b));
			copy = msg_dup(&b);
			strbuf_release(&bytes);
			assert_true(msg_equal(&a, copy));
			free(copy);
		}
	}
}

static void test_unaligned(void **state)
{
	char at[4096];
	struct msg a, b;
	struct strbuf bytes;

	fill(&a, MSG_submit, 3);
	bytes = pack(&a);
	for (size_t shift = 0; shift < 8; shift++) {
		memcpy(at + shift, bytes.data, bytes.len);
		assert_int_equal(msg_unpack(&b, at + shift, bytes.len), ST_OK);
		assert_int_equal(col_u32(b.submit.tokens, 2), 0xdeadbeef);
	}
	strbuf_release(&bytes);
}

static void test_cut_and_flipped(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct strbuf bytes;
		struct msg a, b;

		fill(&a, types[i], 5);
		bytes = pack(&a);
		for (size_t len = 0; len < bytes.len; len++) {
			char *copy = mem_dup(bytes.data, len, 1); /* its own block: ASan sees a read past the cut */

			assert_int_equal(msg_unpack(&b, copy, len), ST_CORRUPT);
			free(copy);
		}
		for (size_t at = 0; at < bytes.len; at++) {
			for (int bit = 0; bit < 8; bit++) {
				bytes.data[at] ^= (char)(1 << bit);
				if (msg_unpack(&b, bytes.data, bytes.len) == ST_OK) free(msg_dup(&b)); /* touches every view */
				bytes.data[at] ^= (char)(1 << bit);
			}
		}
		strbuf_release(&bytes);
	}
}

static void test_bounds(void **state)
{
	static uint32_t many[LIMIT_STOP_IDS + 1];
	struct strbuf out;
	struct msg m;

	strbuf_init(&out, LIMIT_MESSAGE_BYTES);
	fill(&m, MSG_submit, 1);
	m.submit.stop_ids = view_of(many, LIMIT_STOP_IDS);
	assert_int_equal(msg_pack(&m, &out), ST_OK);
	strbuf_reset(&out);
	m.submit.stop_ids = view_of(many, LIMIT_STOP_IDS + 1);
	assert_int_equal(msg_pack(&m, &out), ST_LIMIT);
	strbuf_reset(&out);
	fill(&m, MSG_hello, 1);
	m.hello.incarnation = 256;
	assert_int_equal(msg_pack(&m, &out), ST_LIMIT);
	strbuf_release(&out);
	strbuf_init(&out, 3); /* the caller's own bound */
	fill(&m, MSG_hello, 1);
	assert_int_equal(msg_pack(&m, &out), ST_LIMIT);
	strbuf_release(&out);
}

/* What somebody else may send: each a hello [1, version, frontend, incarnation, epoch] with one thing wrong. */
static void test_foreign_bytes(void **state)
{
	static const struct {
		const char *what;
		const char *bytes;
		size_t len;
		int rc;
	} cases[] = {
		{"short forms of numbers", "\x95\x01\x01\x02\x03\x04", 6, ST_OK},
		{"long array form", "\xdd\x00\x00\x00\x05\x01\x01\x02\x03\x04", 10, ST_OK},
		{"a newer sender's extra field", "\x96\x01\x01\x02\x03\x04\xc0", 7, ST_OK},
		{"a field missing", "\x94\x01\x01\x02\x03", 5, ST_CORRUPT},
		{"unknown number", "\x95\x63\x01\x02\x03\x04", 6, ST_CORRUPT},
		{"empty array", "\x90", 1, ST_CORRUPT},
		{"a map", "\x81\x01\x01", 3, ST_CORRUPT},
		{"no bytes", "", 0, ST_CORRUPT},
		{"text for a number", "\x95\x01\xa1x\x02\x03\x04", 7, ST_CORRUPT},
		{"negative number", "\x95\x01\xff\x02\x03\x04", 6, ST_CORRUPT},
		{"number above 32 bits", "\x95\x01\xcf\x00\x00\x00\x01\x00\x00\x00\x00\x02\x03\x04", 14, ST_CORRUPT},
		{"number above its bound", "\x95\x01\x01\x02\xcd\x01\x00\x04", 8, ST_CORRUPT},
		{"billions of elements", "\xdd\xff\xff\xff\xff\x01\x01\x02\x03", 9, ST_CORRUPT},
	};
	struct msg m;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int rc = msg_unpack(&m, cases[i].bytes, cases[i].len);

		if (rc != cases[i].rc) fail_msg("%s: %d instead of %d", cases[i].what, rc, cases[i].rc);
		if (rc == ST_OK) assert_int_equal(m.hello.epoch, 4);
	}
	/* A column whose bytes are no whole number of elements. */
	assert_int_equal(msg_unpack(&m, "\x97\x07\x01\x01\xc4\x03...\xc4\x00\xc4\x00", 14), ST_CORRUPT);
}

/* msgpack-c as the second opinion: same number of fields, same values. */
static void test_against_msgpack_c(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct msg a;
		struct strbuf bytes;
		msgpack_unpacked u;
		size_t off = 0;

		fill(&a, types[i], 4);
		bytes = pack(&a);
		msgpack_unpacked_init(&u);
		assert_int_equal(msgpack_unpack_next(&u, bytes.data, bytes.len, &off), MSGPACK_UNPACK_SUCCESS);
		assert_int_equal(off, bytes.len);
		assert_int_equal(u.data.type, MSGPACK_OBJECT_ARRAY);
		assert_int_equal(u.data.via.array.ptr[0].via.u64, types[i]);
		msgpack_unpacked_destroy(&u);
		strbuf_release(&bytes);
	}
}

static void test_print(void **state)
{
	struct strbuf out;
	struct msg m;

	strbuf_init(&out, 65536);
	fill(&m, MSG_hello, 3);
	msg_print(&m, &out);
	assert_string_equal(out.data, "hello version=3000009 frontend=3 incarnation=3 epoch=12884901891");
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		fill(&m, types[i], 5);
		msg_print(&m, &out);
	}
	assert_false(out.overflow);
	assert_string_equal(msg_type_name(MSG_rpc), "rpc");
	assert_string_equal(msg_type_name((enum msg_type)99), "unknown");
	strbuf_release(&out);
}

/* ---- files derived from the definition ---- */

static void expect_file(const char *path, const struct strbuf *want)
{
	FILE *f;
	char *have;
	size_t n;

	if (getenv("UPDATE")) {
		f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(want->data, 1, want->len, f), want->len);
		fclose(f);
	}
	f = fopen(path, "r");
	if (!f) fail_msg("%s is missing; run this test from the project's root, or with UPDATE=1", path);
	have = mem_zalloc(want->len + 2, 1);
	n = fread(have, 1, want->len + 1, f);
	fclose(f);
	if (n != want->len || memcmp(have, want->data, n) != 0)
		fail_msg("%s is not what messages.def gives; when the change is meant, run with UPDATE=1", path);
	free(have);
}

static void test_golden_bytes(void **state)
{
	struct strbuf out;

	strbuf_init(&out, 1 << 20);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		for (uint32_t n = 0; n < 3; n++) {
			struct msg m;
			struct strbuf bytes;

			fill(&m, types[i], n * 2 + 1);
			bytes = pack(&m);
			strbuf_printf(&out, "%s %u ", msg_type_name(types[i]), n * 2 + 1);
			for (size_t k = 0; k < bytes.len; k++) strbuf_printf(&out, "%02x", (unsigned char)bytes.data[k]);
			strbuf_putc(&out, '\n');
			strbuf_release(&bytes);
		}
	}
	expect_file(GOLDEN_PATH, &out);
	strbuf_release(&out);
}

static void test_readme(void **state)
{
	struct strbuf out;

	strbuf_init(&out, 1 << 20);
	strbuf_puts(&out, "# Messages\n\nMade from `messages.def` (`UPDATE=1 build/tests/test_messages` writes this file anew). A message is a\n"
			  "msgpack array `[number, fields...]`. Columns are binary, little-endian; rows of one message have equal lengths.\n"
			  "Over ZeroMQ a packet's first frame holds messages, each behind its length (u32, little-endian), the second a keyed BLAKE2b-128 MAC\nof the first.\n\n");
	msg_document(&out);
	out.data[--out.len] = 0; /* one empty line too many at the end */
	expect_file(README_PATH, &out);
	strbuf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_unaligned),
		cmocka_unit_test(test_cut_and_flipped), cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_foreign_bytes), cmocka_unit_test(test_against_msgpack_c),
		cmocka_unit_test(test_print),         cmocka_unit_test(test_golden_bytes),
		cmocka_unit_test(test_readme),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
