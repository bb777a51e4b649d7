/* test_bringup.c - collective calls and the chain from processes to workers that take steps, as scripts of events. */
#include "executor/bringup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define EPOCH 7

static struct bringup b;
static struct errbuf err;
static struct msg call;

static void start(uint32_t n_ranks)
{
	memset(&err, 0, sizeof(err));
	bringup_init(&b, EPOCH, n_ranks);
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
	assert_int_equal(reply_load(1, 2048), ST_OK);
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
	assert_int_equal(b.model_len_max, 2048);
	assert_int_equal(b.vocab, 9);
	assert_int_equal(b.dim, 4);
	assert_int_equal(bringup_deadline(&b), UINT64_MAX);
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
	assert_int_equal(reply_profile(0, 80), ST_OK);
	assert_int_equal(reply_profile(1, 90), ST_OK);
	assert_int_equal(b.n_blocks, 80);
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
