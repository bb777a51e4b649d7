/* test_rpc.c - bodies of collective calls: there and back, golden bytes, short ones and values out of bounds. */
#include "proto/rpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define FILL_FIELD(type, field, max, doc) \
	a.field = (RPC_CTYPE_##type)((uint64_t)(max) != 0 ? (uint64_t)(max) : 0x0123456789abcdefull + sizeof(a));
#define SAME_FIELD(type, field, max, doc) assert_true(a.field == b.field);
#define NO_FIELD(type, field, max, doc)

/* A filled body, packed and unpacked; cut anywhere it is refused, with more behind it it is accepted. */
#define BODY_FILL(name, fields)                                                            \
	static struct rpc_##name name##_filled(void)                                       \
	{                                                                                  \
		struct rpc_##name a;                                                       \
                                                                                           \
		fields return a;                                                           \
	}
RPC_BODIES(BODY_FILL, FILL_FIELD)

#define BODY_TEST(name, fields)                                                            \
	static void name##_survives(void **state)                                          \
	{                                                                                  \
		struct rpc_##name a = name##_filled(), b;                                  \
		uint8_t buf[RPC_BODY_MAX + 8] = {0};                                       \
		size_t n = rpc_##name##_pack(&a, buf);                                     \
                                                                                           \
		assert_int_equal(rpc_##name##_unpack(&b, buf, n), ST_OK);                  \
		fields                                                                     \
		assert_int_equal(rpc_##name##_unpack(&b, buf, n + 8), ST_OK);              \
		for (size_t i = 0; i < n; i++)                                             \
			assert_int_equal(rpc_##name##_unpack(&b, buf, i), ST_CORRUPT);     \
	}
RPC_BODIES(BODY_TEST, SAME_FIELD)

static void values_above_their_bound_are_refused(void **state)
{
	struct rpc_hello_reply a = {.version = 1, .state = RPC_WORKER_READY + 1}, b;
	uint8_t buf[RPC_BODY_MAX];
	size_t n = rpc_hello_reply_pack(&a, buf);

	assert_int_equal(rpc_hello_reply_unpack(&b, buf, n), ST_CORRUPT);
	a.state = RPC_WORKER_READY;
	n = rpc_hello_reply_pack(&a, buf);
	assert_int_equal(rpc_hello_reply_unpack(&b, buf, n), ST_OK);
}

static void bytes_are_little_endian_without_gaps(void **state)
{
	static const uint8_t want[] = {1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 32, 0, 0, 0x39, 0x30, 0, 0, 0, 0, 0, 0,
				       0,    0xc0, 0, 0, 0x40, 2, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0};
	struct rpc_hello_reply a = {.version = 1,
				    .rank = 2,
				    .state = 1,
				    .model_len_max = 8192,
				    .n_blocks = 12345,
				    .vocab = 49152,
				    .dim = 576,
				    .n_full = 1,
				    .n_windowed = 5,
				    .window = 512,
				    .recurrent = 1};
	uint8_t buf[RPC_BODY_MAX];

	assert_int_equal(rpc_hello_reply_pack(&a, buf), sizeof(want));
	assert_memory_equal(buf, want, sizeof(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define BODY_ROW(name, fields) cmocka_unit_test(name##_survives),
		RPC_BODIES(BODY_ROW, NO_FIELD)
		cmocka_unit_test(values_above_their_bound_are_refused),
		cmocka_unit_test(bytes_are_little_endian_without_gaps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
