/* test_zmtp.c - the bytes of ZMTP: what we say, what we understand however it is cut, and what we refuse. */
#include "common/mem.h"
#include "common/zmtp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define MESSAGE_MAX 1000

/* As rfc.zeromq.org/spec/23 gives it: signature, version, mechanism, as-server, filler; then the command READY. */
static const uint8_t push_hello[ZMTP_HELLO_BYTES] = "\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
						    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
						    "\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PUSH";

static void we_say_what_the_specification_says(void **state)
{
	uint8_t hello[ZMTP_HELLO_BYTES], head[ZMTP_HEAD_BYTES];

	zmtp_hello(ZMTP_PUSH, hello);
	assert_memory_equal(hello, push_hello, sizeof(hello));
	assert_int_equal(zmtp_head(head, 255, true), 2);
	assert_memory_equal(head, "\x01\xff", 2);
	assert_int_equal(zmtp_head(head, 256, false), 9);
	assert_memory_equal(head, "\x02\0\0\0\0\0\0\x01\0", 9);
}

/* A PULL socket that has heard a PUSH socket's hello. */
static struct zmtp greeted(void)
{
	struct zmtp_message m;
	struct errbuf err;
	struct zmtp z;
	size_t n;

	zmtp_init(&z, ZMTP_PULL, MESSAGE_MAX);
	assert_int_equal(zmtp_read(&z, push_hello, sizeof(push_hello), &m, &n, &err), ST_OK);
	assert_int_equal(n, 64);
	assert_false(z.up);
	assert_int_equal(zmtp_read(&z, push_hello + n, sizeof(push_hello) - n, &m, &n, &err), ST_OK);
	assert_int_equal(n, ZMTP_HELLO_BYTES - 64);
	assert_true(z.up);
	return z;
}

/* Every shorter piece is ST_AGAIN, needs more than there is, and takes nothing. */
static void messages_are_read_however_they_are_cut(void **state)
{
	static const uint8_t bytes[] = "\x01\x03one\x03\0\0\0\0\0\0\0\x03two\0\0\0\x04last";
	struct zmtp z = greeted();
	struct zmtp_message m;
	struct errbuf err;
	size_t n;

	for (size_t len = 0; len < 19; len++) {
		uint8_t *piece = mem_dup(bytes, len, 1); /* its end is the sanitizer's */

		assert_int_equal(zmtp_read(&z, piece, len, &m, &n, &err), ST_AGAIN);
		assert_in_range(n, len + 1, 19);
		free(piece);
	}
	assert_int_equal(zmtp_read(&z, bytes, sizeof(bytes) - 1, &m, &n, &err), ST_OK);
	assert_int_equal(n, 19);
	assert_int_equal(m.n_parts, 3);
	assert_int_equal(m.parts[1].len, 3);
	assert_memory_equal(m.parts[1].data, "two", 3);
	assert_int_equal(m.parts[2].len, 0);
	assert_int_equal(zmtp_read(&z, bytes + n, sizeof(bytes) - 1 - n, &m, &n, &err), ST_OK);
	assert_int_equal(m.n_parts, 1);
	assert_memory_equal(m.parts[0].data, "last", 4);
}

static void a_hello_is_read_however_it_is_cut(void **state)
{
	for (size_t cut = 0; cut < ZMTP_HELLO_BYTES; cut++) {
		struct zmtp_message m;
		struct errbuf err;
		struct zmtp z;
		size_t n, at = 0;
		int rc;

		zmtp_init(&z, ZMTP_PULL, MESSAGE_MAX);
		while ((rc = zmtp_read(&z, push_hello + at, cut - at, &m, &n, &err)) == ST_OK) at += n;
		assert_int_equal(rc, ST_AGAIN);
		assert_false(z.up);
		while (!z.up) {
			assert_int_equal(zmtp_read(&z, push_hello + at, ZMTP_HELLO_BYTES - at, &m, &n, &err), ST_OK);
			at += n;
		}
		assert_int_equal(at, ZMTP_HELLO_BYTES);
	}
}

static void what_is_no_zmtp_is_refused_with_a_reason(void **state)
{
	static const struct {
		size_t at;
		uint8_t byte;
		int rc;
		const char *text;
	} cases[] = {
		{0, 'G', ST_CORRUPT, "does not begin as ZeroMQ does"},
		{9, 0x7e, ST_CORRUPT, "speaks a ZMTP before 3.0"},
		{10, 1, ST_CORRUPT, "speaks a ZMTP before 3.0"},
		{12, 'P', ST_CORRUPT, "wants another security mechanism than NULL"},
		{16, 'x', ST_CORRUPT, "wants another security mechanism than NULL"},
		{64, 0, ST_CORRUPT, "sent a message before READY"},
		{64, 0x0c, ST_CORRUPT, "unknown flags 0x0c"},
		{64, 0x05, ST_CORRUPT, "sent a command within a message"},
		{67, 'X', ST_CORRUPT, "sent another command than READY first"},
		{72, 3, ST_CORRUPT, "is cut short"},
		{72, 200, ST_CORRUPT, "is cut short"},
		{73, 's', ST_CORRUPT, "does not say its socket's type"},
		{84, 1, ST_CORRUPT, "is cut short"},
		{87, 3, ST_CORRUPT, "is no PUSH socket"},
		{88, 'R', ST_CORRUPT, "is no PUSH socket"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t hello[ZMTP_HELLO_BYTES];
		struct errbuf err = {{0}};
		struct zmtp_message m;
		struct zmtp z;
		size_t n, at = 0;
		int rc;

		memcpy(hello, push_hello, sizeof(hello));
		hello[cases[i].at] = cases[i].byte;
		zmtp_init(&z, ZMTP_PULL, MESSAGE_MAX);
		while (!z.up && (rc = zmtp_read(&z, hello + at, sizeof(hello) - at, &m, &n, &err)) == ST_OK) at += n;
		if (rc != cases[i].rc || !strstr(err.text, cases[i].text)) fail_msg("byte %zu: %d, %s", cases[i].at, rc, err.text);
		assert_false(z.up);
	}
}

static void a_length_is_refused_before_its_bytes_have_come(void **state)
{
	static const uint8_t huge[] = "\x02\xff\xff\xff\xff\xff\xff\xff\xff", second[] = "\x01\x01x\x02\0\0\0\0\0\0\x03\xe0";
	static const uint8_t command[] = "\x06\0\0\0\0\0\0\x20\0", parts[] = "\x01\0\x01\0\x01\0\x01\0\x01\0\0\0";
	static const struct zmtp_bytes all[] = {
		{huge, sizeof(huge) - 1}, {second, sizeof(second) - 1}, {command, sizeof(command) - 1}, {parts, sizeof(parts) - 1}};
	uint8_t largest[MESSAGE_MAX] = {0};
	struct zmtp z = greeted();
	struct zmtp_message m;
	struct errbuf err;
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(all); i++) assert_int_equal(zmtp_read(&z, all[i].data, all[i].len, &m, &n, &err), ST_LIMIT);
	n = zmtp_head(largest, MESSAGE_MAX - ZMTP_HEAD_BYTES, false);
	assert_int_equal(zmtp_read(&z, largest, sizeof(largest), &m, &n, &err), ST_OK);
	assert_int_equal(m.parts[0].len, MESSAGE_MAX - ZMTP_HEAD_BYTES);
	zmtp_head(largest, MESSAGE_MAX - ZMTP_HEAD_BYTES + 1, false);
	assert_int_equal(zmtp_read(&z, largest, sizeof(largest), &m, &n, &err), ST_LIMIT);
}

static void later_commands_are_read_over(void **state)
{
	static const uint8_t ping[] = "\x04\x07\x04PING\0\x0a\0\x02hi";
	struct zmtp z = greeted();
	struct zmtp_message m;
	struct errbuf err;
	size_t n, at;

	assert_int_equal(zmtp_read(&z, ping, sizeof(ping) - 1, &m, &at, &err), ST_OK);
	assert_int_equal(m.n_parts, 0);
	assert_int_equal(zmtp_read(&z, ping + at, sizeof(ping) - 1 - at, &m, &n, &err), ST_OK);
	assert_int_equal(m.n_parts, 1);
	assert_int_equal(zmtp_read(&z, (const uint8_t *)"\x05\0", 2, &m, &n, &err), ST_CORRUPT);
	assert_int_equal(zmtp_read(&z, (const uint8_t *)"\x01\0\x04\0", 4, &m, &n, &err), ST_CORRUPT); /* in the middle of a message */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(we_say_what_the_specification_says),
		cmocka_unit_test(messages_are_read_however_they_are_cut),
		cmocka_unit_test(a_hello_is_read_however_it_is_cut),
		cmocka_unit_test(what_is_no_zmtp_is_refused_with_a_reason),
		cmocka_unit_test(a_length_is_refused_before_its_bytes_have_come),
		cmocka_unit_test(later_commands_are_read_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
