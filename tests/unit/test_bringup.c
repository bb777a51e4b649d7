/* test_bringup.c - collective calls and the chain from processes to workers that take steps, as scripts of events. */
#include "executor/bringup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define EPOCH 7
#define AHEAD 128 /* with a window of 64: 13 blocks a group of that kind */

static struct bringup b;
static struct errbuf err;
static struct msg call;

static void start(uint32_t n_ranks)
{
	memset(&err, 0, sizeof(err));
	bringup_init(&b, EPOCH, n_ranks, AHEAD);
	for (uint32_t i = 0; i < n_ranks; i++) bringup_on_worker(&b, i, true);
}

static void expect_call(const char *method)
{
	if (!bringup_step(&b, 0, &call)) fail_msg("no call, %s was expected", method);
	assert_int_equal(call.type, MSG_rpc);
	assert_int_equal(call.rpc.epoch, EPOCH);
	assert_int_equal(call.rpc.method.n, strlen(method));
	assert_memory_equal(call.rpc.method.data, method, strlen(method));
	assert_false(bringup_step(&b, 0, &call)); /* once */
}

static int reply_raw(uint32_t rank, uint64_t id, uint32_t status, const void *body, size_t len)
{
	return bringup_on_reply(&b, &(struct msg_rpc_reply){EPOCH, id, rank, status, view_text("why"), view_of(body, len)}, &err);
}

static int reply(uint32_t rank, const void *body, size_t len)
{
	return reply_raw(rank, b.rpc.id, 0, body, len);
}

static int reply_hello(uint32_t rank, enum rpc_worker_state state, uint64_t n_blocks)
{
	uint8_t buf[RPC_BODY_MAX];

	return reply(rank, buf, rpc_hello_reply_pack(&(struct rpc_hello_reply){.version = PROTO_VERSION,
								       .rank = rank,
								       .state = state,
								       .model_len_max = 512,
								       .n_blocks = n_blocks,
								       .vocab = 9,
								       .dim = 4,
								       .n_full = 1,
								       .n_windowed = 2,
								       .window = 64}, buf));
}

static int reply_load(uint32_t rank, uint32_t model_len)
{
	uint8_t buf[RPC_BODY_MAX];

	return reply(rank, buf, rpc_load_reply_pack(&(struct rpc_load_reply){.model_len_max = model_len, .vocab = 9, .dim = 4, .n_full = 1, .n_windowed = 2, .window = 64}, buf));
}

static int reply_profile(uint32_t rank, uint64_t n_blocks)
{
	uint8_t buf[RPC_BODY_MAX];

	return reply(rank, buf, rpc_profile_reply_pack(&(struct rpc_profile_reply){.n_blocks = n_blocks}, buf));
}

static void fresh_workers_are_loaded_and_the_smallest_decides(void **state)
{
	struct rpc_kv_init_args args;

	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(b.state, BRINGUP_HELLO); /* one is missing */
	assert_int_equal(reply_hello(1, RPC_WORKER_NOTHING, 0), ST_OK);
	expect_call(RPC_LOAD);
	assert_int_equal(reply_load(1, 1024), ST_OK); /* 64 blocks, and 2 * 13 of the windows */
	assert_int_equal(reply_load(0, 4096), ST_OK);
	expect_call(RPC_PROFILE);
	assert_int_equal(reply_profile(0, 100), ST_OK);
	assert_int_equal(reply_profile(1, 90), ST_OK);
	expect_call(RPC_KV_INIT);
	assert_int_equal(rpc_kv_init_args_unpack(&args, call.rpc.args.data, call.rpc.args.n), ST_OK);
	assert_int_equal(args.n_blocks, 90);
	assert_int_equal(reply(0, NULL, 0), ST_OK);
	assert_int_equal(reply(1, NULL, 0), ST_OK);
	expect_call(RPC_WARM_UP);
	assert_int_equal(reply(0, NULL, 0), ST_OK);
	assert_int_equal(reply(1, NULL, 0), ST_OK);
	assert_int_equal(b.state, BRINGUP_DONE);
	assert_int_equal(b.n_blocks, 90);
	assert_int_equal(b.model_len_max, 1024);
	assert_false(b.kv.recurrent);
	assert_int_equal(b.vocab, 9);
	assert_int_equal(b.dim, 4);
	assert_int_equal(bringup_deadline(&b), UINT64_MAX);
}

/* From loaded ranks to the answer of the profile: ranks of these lengths and blocks. */
static int profile_two(uint32_t len_0, uint64_t blocks_0, uint32_t len_1, uint64_t blocks_1)
{
	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(reply_hello(1, RPC_WORKER_NOTHING, 0), ST_OK);
	expect_call(RPC_LOAD);
	assert_int_equal(reply_load(0, len_0), ST_OK);
	assert_int_equal(reply_load(1, len_1), ST_OK);
	expect_call(RPC_PROFILE);
	assert_int_equal(reply_profile(0, blocks_0), ST_OK);
	return reply_profile(1, blocks_1);
}

/* A request takes a block for 16 tokens in the group that sees everything, and 13 in each of the two with a window. */
static void a_pool_that_holds_no_request_of_full_length_is_refused(void **state)
{
	assert_int_equal(profile_two(1024, 90, 2048, 90), ST_OK);
	assert_int_equal(b.state, BRINGUP_KV_INIT);
	assert_int_equal(profile_two(1025, 91, 2048, 300), ST_OK);
	assert_int_equal(profile_two(1025, 300, 2048, 90), ST_NO_MEMORY);
	assert_string_equal(err.text, "worker 1 has room for 90 KV blocks, which hold one request of 1024 tokens, but --max-model-len is 1025: "
				      "the largest that fits is 1024");
	assert_int_equal(b.state, BRINGUP_FAILED);
	assert_int_equal(profile_two(1024, 0, 1024, 300), ST_NO_MEMORY);
	assert_non_null(strstr(err.text, "worker 0 has room for 0"));
	assert_int_equal(profile_two(16, 3, 16, 3), ST_OK);
	assert_int_equal(profile_two(17, 5, 17, 5), ST_NO_MEMORY);
}

static void the_length_that_fits_follows_from_the_groups(void **state)
{
	static const struct {
		struct core_kv kv;
		uint64_t n_blocks, len;
	} rows[] = {
		{{.n_full = 0}, 10, 160}, /* no groups count as one */
		{{.n_full = 1}, 10, 160},
		{{.n_full = 3}, 10, 48},
		{{.n_full = 1, .n_windowed = 2, .window = 64}, 39, 208},  /* 13 each */
		{{.n_full = 1, .n_windowed = 2, .window = 64}, 38, 192},  /* 12 each */
		{{.n_full = 1, .n_windowed = 2, .window = 64}, 126, 1600},
		{{.n_full = 2, .n_windowed = 2, .window = 64}, 127, 800},
		{{.n_windowed = 2, .window = 64}, 25, 192},
		{{.n_windowed = 2, .window = 64}, 26, UINT64_MAX},
		{{.n_full = 1, .n_windowed = 1, .window = UINT32_MAX}, 100, 800},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) assert_int_equal(core_kv_len(&rows[i].kv, AHEAD, rows[i].n_blocks), rows[i].len);
}

/* What the ranks say of their blocks, from the first hello after a restart, or after loading. */
static int hello_kv(struct core_kv first, struct core_kv second, uint32_t len)
{
	const struct core_kv *kvs[] = {&first, &second};
	uint8_t buf[RPC_BODY_MAX];
	int rc = ST_OK;

	start(2);
	expect_call(RPC_HELLO);
	for (uint32_t i = 0; i < 2; i++) {
		const struct core_kv *kv = kvs[i];
		size_t n = rpc_hello_reply_pack(&(struct rpc_hello_reply){PROTO_VERSION, i, RPC_WORKER_READY, len + i, 50, 9, 4, kv->n_full,
									  kv->n_windowed, kv->window, kv->recurrent},
						buf);

		rc = reply(i, buf, n);
	}
	return rc;
}

static int load_kv(struct core_kv first, struct core_kv second)
{
	const struct core_kv *kvs[] = {&first, &second};
	uint8_t buf[RPC_BODY_MAX];
	int rc = ST_OK;

	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(reply_hello(1, RPC_WORKER_NOTHING, 0), ST_OK);
	expect_call(RPC_LOAD);
	for (uint32_t i = 0; i < 2; i++) {
		const struct core_kv *kv = kvs[i];
		size_t n = rpc_load_reply_pack(&(struct rpc_load_reply){.model_len_max = 100,
									.vocab = 9,
									.n_full = kv->n_full,
									.n_windowed = kv->n_windowed,
									.window = kv->window,
									.recurrent = kv->recurrent},
					       buf);

		rc = reply(i, buf, n);
	}
	return rc;
}

static void expect_kv(const struct core_kv *kv)
{
	assert_int_equal(b.kv.n_full, kv->n_full);
	assert_int_equal(b.kv.n_windowed, kv->n_windowed);
	assert_int_equal(b.kv.window, kv->window);
	assert_int_equal(b.kv.recurrent, kv->recurrent);
}

static void groups_and_states_are_those_of_all_ranks(void **state)
{
	struct core_kv kv = {1, 2, 64, true}, no_window = {1, 1, 0, false}, too_many = {9, 8, 5, false};
	struct core_kv others[] = {{2, 2, 64, true}, {1, 1, 64, true}, {1, 2, 65, true}, {1, 2, 64, false}};

	assert_int_equal(hello_kv(kv, kv, 512), ST_OK);
	expect_kv(&kv);
	assert_int_equal(b.model_len_max, 512); /* the other one has 513 */
	assert_int_equal(load_kv(kv, kv), ST_OK);
	expect_kv(&kv);
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		assert_int_equal(hello_kv(kv, others[i], 512), ST_INVALID);
		assert_int_equal(load_kv(kv, others[i]), ST_INVALID);
		assert_int_equal(b.state, BRINGUP_FAILED);
	}
	assert_int_equal(load_kv(kv, others[0]), ST_INVALID);
	assert_string_equal(err.text, "worker 1 has other KV groups (2 and 2, window 64) than worker 0 (1 and 2, window 64)");
	assert_int_equal(load_kv(too_many, too_many), ST_INVALID);
	assert_int_equal(load_kv(no_window, no_window), ST_INVALID);
}

static void workers_that_outlived_an_executor_keep_their_weights(void **state)
{
	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_READY, 50), ST_OK);
	assert_int_equal(reply_hello(1, RPC_WORKER_READY, 50), ST_OK);
	expect_call(RPC_RESET);
	assert_int_equal(reply(0, NULL, 0), ST_OK);
	assert_int_equal(reply(1, NULL, 0), ST_OK);
	assert_int_equal(b.state, BRINGUP_DONE);
	assert_int_equal(b.n_blocks, 50);
	assert_int_equal(b.model_len_max, 512);
	assert_int_equal(b.vocab, 9);
	assert_int_equal(b.dim, 4);
}

static void ranks_that_disagree_are_sized_again(void **state)
{
	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_READY, 50), ST_OK);
	assert_int_equal(reply_hello(1, RPC_WORKER_READY, 49), ST_OK);
	expect_call(RPC_LOAD);
	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_READY, 50), ST_OK);
	assert_int_equal(reply_hello(1, RPC_WORKER_LOADED, 50), ST_OK);
	expect_call(RPC_LOAD);
}

static void hello_is_repeated_until_it_is_heard(void **state)
{
	uint64_t due;

	start(1);
	expect_call(RPC_HELLO);
	due = bringup_deadline(&b);
	assert_int_equal(due, 100 * NS_PER_MS);
	assert_false(bringup_step(&b, due - 1, &call));
	assert_true(bringup_step(&b, due, &call));
	assert_int_equal(call.rpc.id, 2);
	assert_int_equal(reply_raw(0, 1, 0, NULL, 0), ST_OK); /* to the first one: too late, ignored */
	assert_int_equal(b.state, BRINGUP_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	expect_call(RPC_LOAD);
	assert_int_equal(bringup_deadline(&b), UINT64_MAX); /* loading takes as long as it takes */
}

static void a_death_starts_over(void **state)
{
	start(2);
	expect_call(RPC_HELLO);
	bringup_on_worker(&b, 1, false);
	assert_int_equal(b.state, BRINGUP_WAIT_WORKERS);
	assert_false(bringup_step(&b, NS_PER_S, &call));
	assert_int_equal(bringup_deadline(&b), UINT64_MAX);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK); /* of the call before */
	assert_int_equal(b.state, BRINGUP_WAIT_WORKERS);
	bringup_on_worker(&b, 9, true); /* no such rank */
	assert_int_equal(b.state, BRINGUP_WAIT_WORKERS);
	bringup_on_worker(&b, 1, true);
	expect_call(RPC_HELLO);
}

/* Whichever rank it is, its answer counts, and one that cannot be read is never taken for numbers. */
static void every_rank_is_asked_and_read(void **state)
{
	uint8_t bad[1] = {0};

	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(bringup_deadline(&b), 100 * NS_PER_MS);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(reply_hello(1, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(bringup_deadline(&b), 0); /* a call is due at once */
	expect_call(RPC_LOAD);
	assert_int_equal(reply_load(0, 1024), ST_OK);
	assert_int_equal(reply_load(1, 4096), ST_OK);
	assert_int_equal(b.model_len_max, 1024);
	expect_call(RPC_PROFILE);
	assert_int_equal(call.rpc.args.n, 0);
	assert_int_equal(reply_profile(0, 91), ST_OK);
	assert_int_equal(reply_profile(1, 95), ST_OK);
	assert_int_equal(b.n_blocks, 91);
	for (int step = 0; step < 2; step++) {
		start(1);
		expect_call(RPC_HELLO);
		assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
		expect_call(RPC_LOAD);
		if (step == 1) {
			assert_int_equal(reply_load(0, 1024), ST_OK);
			expect_call(RPC_PROFILE);
		}
		assert_int_equal(reply(0, bad, sizeof(bad)), ST_CORRUPT);
		assert_string_equal(err.text, step ? "worker 0: profile: the answer could not be read"
						   : "worker 0: load: the answer could not be read");
		assert_int_equal(b.state, BRINGUP_FAILED);
	}
}

static void a_call_that_is_over_takes_no_answers(void **state)
{
	uint8_t body[RPC_BODY_MAX + 1] = {0};
	struct collective c;

	memset(&c, 0xAA, sizeof(c));
	collective_init(&c, 2);
	assert_int_equal(c.deadline_ns, UINT64_MAX);
	assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 0, 0, 0, {0}, {0}}, &err), ST_NOT_FOUND);
	collective_call(&c, EPOCH, "ping", NULL, 0, 0, 0, &call);
	assert_int_equal(c.id, 1);
	assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 1, 0, 0, {0}, view_of(body, RPC_BODY_MAX)}, &err),
			 ST_AGAIN);
	assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 1, 1, 0, {0}, view_of(body, RPC_BODY_MAX + 1)}, &err),
			 ST_CORRUPT);
	assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 1, 1, 0, {0}, {0}}, &err), ST_NOT_FOUND);
	collective_call(&c, EPOCH, "ping", NULL, 0, 0, 0, &call);
	assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 2, 0, -ST_DEVICE, {0}, {0}}, &err), ST_DEVICE);
	assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 2, 1, 0, {0}, {0}}, &err), ST_NOT_FOUND);
	collective_call(&c, EPOCH, "ping", NULL, 0, 0, 0, &call);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(collective_on_reply(&c, &(struct msg_rpc_reply){EPOCH, 3, i, 0, {0}, {0}}, &err), i ? ST_OK : ST_AGAIN);
	assert_false(c.running);
}

static void a_rank_that_fails_is_named(void **state)
{
	uint8_t big[RPC_BODY_MAX + 1] = {0};

	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_raw(1, b.rpc.id, -ST_NO_MEMORY, NULL, 0), ST_NO_MEMORY);
	assert_string_equal(err.text, "worker 1: hello: why");
	assert_int_equal(b.state, BRINGUP_FAILED);
	assert_false(bringup_step(&b, NS_PER_S, &call));
	start(1);
	expect_call(RPC_HELLO);
	assert_int_equal(reply(0, big, sizeof(big)), ST_CORRUPT);
	start(1);
	expect_call(RPC_HELLO);
	assert_int_equal(reply(0, big, 3), ST_CORRUPT);
	assert_string_equal(err.text, "worker 0: hello: the answer could not be read");
	start(1);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_raw(0, b.rpc.id, 12345678, NULL, 0), -12345678); /* a code that we do not know is an error too */
	/* A rank's own "not found" and "again" are failures, and not the words for an answer to no call. */
	for (int k = 0; k < 2; k++) {
		start(1);
		expect_call(RPC_HELLO);
		assert_int_equal(reply_raw(0, b.rpc.id, (uint32_t)(k ? -ST_AGAIN : -ST_NOT_FOUND), NULL, 0), ST_INVALID);
		assert_int_equal(b.state, BRINGUP_FAILED);
	}
}

static void answers_count_once_and_only_in_their_epoch(void **state)
{
	start(2);
	expect_call(RPC_HELLO);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(reply_hello(0, RPC_WORKER_NOTHING, 0), ST_OK);
	assert_int_equal(b.state, BRINGUP_HELLO);
	assert_int_equal(bringup_on_reply(&b, &(struct msg_rpc_reply){EPOCH - 1, b.rpc.id, 1, 0, {0}, {0}}, &err), ST_OK);
	assert_int_equal(b.state, BRINGUP_HELLO);
	assert_int_equal(reply_raw(2, b.rpc.id, 0, NULL, 0), ST_OK); /* no such rank */
	assert_int_equal(b.state, BRINGUP_HELLO);
}

static void a_version_or_rank_that_does_not_fit_is_refused(void **state)
{
	uint8_t buf[RPC_BODY_MAX];
	size_t len = rpc_hello_reply_pack(&(struct rpc_hello_reply){.version = PROTO_VERSION + 1}, buf);

	start(1);
	expect_call(RPC_HELLO);
	assert_int_equal(reply(0, buf, len), ST_UNSUPPORTED);
	assert_string_equal(err.text, "worker 0 answers as rank 0 with protocol 3, expected protocol 2");
	len = rpc_hello_reply_pack(&(struct rpc_hello_reply){.version = PROTO_VERSION, .rank = 1}, buf);
	start(1);
	expect_call(RPC_HELLO);
	assert_int_equal(reply(0, buf, len), ST_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fresh_workers_are_loaded_and_the_smallest_decides),
		cmocka_unit_test(a_pool_that_holds_no_request_of_full_length_is_refused),
		cmocka_unit_test(the_length_that_fits_follows_from_the_groups),
		cmocka_unit_test(groups_and_states_are_those_of_all_ranks),
		cmocka_unit_test(workers_that_outlived_an_executor_keep_their_weights),
		cmocka_unit_test(ranks_that_disagree_are_sized_again),
		cmocka_unit_test(hello_is_repeated_until_it_is_heard),
		cmocka_unit_test(a_death_starts_over),
		cmocka_unit_test(every_rank_is_asked_and_read),
		cmocka_unit_test(a_call_that_is_over_takes_no_answers),
		cmocka_unit_test(a_rank_that_fails_is_named),
		cmocka_unit_test(answers_count_once_and_only_in_their_epoch),
		cmocka_unit_test(a_version_or_rank_that_does_not_fit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
