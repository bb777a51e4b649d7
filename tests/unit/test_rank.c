/* test_rank.c - a worker's rank between two rings: calls in their order, steps, other epochs, what cannot be read, a
 * new executor. The rings lie in plain memory; the executor is this test. */
#include "tests/support/stepper.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"
#include "worker/rank.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define RING_BYTES 65536
#define EPOCH      7

struct box {
	void *step_mem, *reply_mem;
	struct ring *steps_w, *steps_r, *replies_w, *replies_r;
	int event_fd;
	struct engine_opts opts;
	struct rank *rank;
	char *path;
	struct strbuf packed;
	struct stepper s;
	uint64_t id, epoch;
	struct msg reply; /* views into reply_buf */
	uint8_t reply_buf[4096];
	bool go_on;
	uint32_t n_ready;
};

/* Of the one box at a time; static, because ASan's stack keeps no alignment of 128. */
static struct page_slot box_slot;

static bool box_may_go_on(void *ctx)
{
	return ((struct box *)ctx)->go_on;
}

static void box_on_ready(void *ctx)
{
	((struct box *)ctx)->n_ready++;
}

static void box_open(struct box *x, size_t reply_bytes)
{
	struct tiny_llama t;
	struct errbuf err;
	struct rank_io io;

	memset(x, 0, sizeof(*x));
	x->path = test_file_temp("rank.gguf");
	tiny_llama_init(&t);
	tiny_llama_save(&t, x->path);
	x->step_mem = mem_zalloc(1, ring_mem_bytes(RING_BYTES));
	x->reply_mem = mem_zalloc(1, ring_mem_bytes(reply_bytes));
	ring_format(x->step_mem, RING_BYTES, 1);
	ring_format(x->reply_mem, reply_bytes, 1);
	assert_int_equal(ring_attach(&x->steps_w, x->step_mem, ring_mem_bytes(RING_BYTES), -1, &err), ST_OK);
	assert_int_equal(ring_attach(&x->steps_r, x->step_mem, ring_mem_bytes(RING_BYTES), 0, &err), ST_OK);
	assert_int_equal(ring_attach(&x->replies_w, x->reply_mem, ring_mem_bytes(reply_bytes), -1, &err), ST_OK);
	assert_int_equal(ring_attach(&x->replies_r, x->reply_mem, ring_mem_bytes(reply_bytes), 0, &err), ST_OK);
	memset(&box_slot, 0, sizeof(box_slot));
	x->epoch = EPOCH;
	ring_set_generation(x->steps_w, EPOCH);
	x->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	x->go_on = true;
	engine_opts_init(&x->opts);
	x->opts.model = x->path;
	x->opts.n_threads = 1;
	x->opts.seqs_max = 4;
	io = (struct rank_io){.steps = x->steps_r,
			      .replies = x->replies_w,
			      .event_fd = x->event_fd,
			      .slot = &box_slot,
			      .may_go_on = box_may_go_on,
			      .on_ready = box_on_ready,
			      .ctx = x};
	x->rank = rank_new(&io, &x->opts);
	strbuf_init(&x->packed, 1 << 20);
	stepper_init(&x->s);
}

static void box_close(struct box *x)
{
	rank_free(x->rank);
	ring_free(x->steps_w);
	ring_free(x->steps_r);
	ring_free(x->replies_w);
	ring_free(x->replies_r);
	close(x->event_fd);
	free(x->step_mem);
	free(x->reply_mem);
	strbuf_release(&x->packed);
	stepper_release(&x->s);
	free(x->path);
}

static void box_push(struct box *x, const struct msg *m)
{
	strbuf_reset(&x->packed);
	assert_int_equal(msg_pack(m, &x->packed), ST_OK);
	assert_int_equal(ring_push(x->steps_w, x->packed.data, x->packed.len), ST_OK);
}

/* The next answer, or none. */
static bool box_answer(struct box *x)
{
	const void *data;
	uint64_t n;
	size_t len;

	if (ring_peek(x->replies_r, &data, &len) != ST_OK) return false;
	assert_int_equal(read(x->event_fd, &n, sizeof(n)), sizeof(n)); /* every answer is signalled */
	assert_true(len <= sizeof(x->reply_buf));
	memcpy(x->reply_buf, data, len);
	ring_pop(x->replies_r);
	assert_int_equal(msg_unpack(&x->reply, x->reply_buf, len), ST_OK);
	return true;
}

/* A call and its answer; the status is the result. */
static int box_call(struct box *x, const char *method, const void *args, size_t len)
{
	struct msg m = {
		.type = MSG_rpc,
		.rpc = {.epoch = x->epoch, .id = ++x->id, .method = view_text(method), .args = view_of(args, len)}};

	box_push(x, &m);
	assert_int_equal(rank_pass(x->rank, 0), ST_OK);
	assert_true(box_answer(x));
	assert_int_equal(x->reply.type, MSG_rpc_reply);
	assert_int_equal(x->reply.rpc_reply.id, x->id);
	assert_int_equal(x->reply.rpc_reply.epoch, x->epoch);
	return -(int)x->reply.rpc_reply.status;
}

static struct rpc_hello_reply box_hello(struct box *x)
{
	struct rpc_hello_reply h;

	assert_int_equal(box_call(x, RPC_HELLO, NULL, 0), ST_OK);
	assert_int_equal(rpc_hello_reply_unpack(&h, x->reply.rpc_reply.body.data, x->reply.rpc_reply.body.n), ST_OK);
	return h;
}

static void box_bring_up(struct box *x)
{
	struct rpc_kv_init_args args = {20};
	uint8_t buf[RPC_BODY_MAX];

	assert_int_equal(box_call(x, RPC_LOAD, NULL, 0), ST_OK);
	assert_int_equal(box_call(x, RPC_PROFILE, NULL, 0), ST_OK);
	assert_int_equal(box_call(x, RPC_KV_INIT, buf, rpc_kv_init_args_pack(&args, buf)), ST_OK);
	assert_int_equal(box_call(x, RPC_WARM_UP, NULL, 0), ST_OK);
}

/* A step with one sequence that draws a token, or that only removes it. */
static void box_push_step(struct box *x, bool remove)
{
	static const uint32_t tokens[3] = {5, 6, 7};
	struct stepper_params p = stepper_greedy();
	struct msg m = {.type = MSG_step};

	stepper_next(&x->s);
	if (remove) {
		stepper_remove(&x->s, 1);
	} else {
		stepper_add(&x->s, 1, tokens, 3, 3, &p);
		stepper_grow_range(&x->s, 1, 0, 1);
		stepper_run(&x->s, 1, 0, 3, true);
	}
	m.step = *stepper_message(&x->s);
	m.step.epoch = x->epoch;
	box_push(x, &m);
}

static void calls_bring_a_rank_up(void **state)
{
	struct rpc_profile_reply profile;
	struct rpc_ping ping = {0x1122334455667788ull};
	uint8_t buf[RPC_BODY_MAX];
	struct rpc_load_reply load;
	struct rpc_hello_reply h;
	struct box x;
	size_t n;

	box_open(&x, RING_BYTES);
	h = box_hello(&x);
	assert_int_equal(h.version, PROTO_VERSION);
	assert_int_equal(h.state, RPC_WORKER_NOTHING);
	assert_int_equal(box_call(&x, RPC_PROFILE, NULL, 0), ST_INVALID);
	assert_true(x.reply.rpc_reply.text.n > 0);
	assert_int_equal(box_call(&x, "dance", NULL, 0), ST_UNSUPPORTED);
	n = rpc_ping_pack(&ping, buf);
	assert_int_equal(box_call(&x, RPC_PING, buf, n), ST_OK);
	assert_int_equal(x.reply.rpc_reply.body.n, n);
	assert_memory_equal(x.reply.rpc_reply.body.data, buf, n);
	assert_int_equal(box_call(&x, RPC_PING, buf, n - 1), ST_INVALID);

	assert_int_equal(box_call(&x, RPC_LOAD, NULL, 0), ST_OK);
	assert_int_equal(rpc_load_reply_unpack(&load, x.reply.rpc_reply.body.data, x.reply.rpc_reply.body.n), ST_OK);
	assert_int_equal(load.model_len_max, 512);
	assert_int_equal(load.vocab, TINY_LLAMA_TOKENS);
	assert_int_equal(load.dim, 64);
	assert_int_equal(box_hello(&x).state, RPC_WORKER_LOADED);
	assert_int_equal(atomic_load(&box_slot.progress), 1000);
	assert_int_equal(box_call(&x, RPC_PROFILE, NULL, 0), ST_OK);
	assert_int_equal(rpc_profile_reply_unpack(&profile, x.reply.rpc_reply.body.data, x.reply.rpc_reply.body.n),
			 ST_OK);
	assert_true(profile.n_blocks > 0 && profile.block_bytes > 0);
	assert_int_equal(box_call(&x, RPC_KV_INIT, NULL, 0), ST_INVALID);
	assert_int_equal(x.n_ready, 0);
	box_bring_up(&x);
	assert_int_equal(x.n_ready, 1);
	h = box_hello(&x);
	assert_int_equal(h.state, RPC_WORKER_READY);
	assert_int_equal(h.n_blocks, 20);
	assert_int_equal(h.model_len_max, 512);
	assert_int_equal(h.vocab, TINY_LLAMA_TOKENS);
	assert_int_equal(h.dim, 64);
	assert_int_equal(atomic_load(&box_slot.state), PAGE_SERVING);
	box_close(&x);
}

static void a_model_that_is_not_there_is_said(void **state)
{
	struct engine_opts o;
	struct rank_io io;
	struct box x;
	char text[LIMIT_TEXT + 1];

	box_open(&x, RING_BYTES);
	rank_free(x.rank);
	o = x.opts;
	o.model = "/nonexistent/x.gguf";
	io = (struct rank_io){.steps = x.steps_r, .replies = x.replies_w, .event_fd = x.event_fd};
	x.rank = rank_new(&io, &o);
	assert_int_not_equal(box_call(&x, RPC_LOAD, NULL, 0), ST_OK);
	snprintf(text, sizeof(text), "%.*s", (int)x.reply.rpc_reply.text.n, (const char *)x.reply.rpc_reply.text.data);
	assert_non_null(strstr(text, "x.gguf"));
	assert_int_equal(box_hello(&x).state, RPC_WORKER_NOTHING);
	box_close(&x);
}

static void steps_are_answered(void **state)
{
	struct rank_stats stats;
	struct box x;

	box_open(&x, RING_BYTES);
	box_push_step(&x, false); /* before load: refused, not a crash */
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_true(box_answer(&x));
	assert_int_equal(x.reply.step_result.status, -ST_INVALID);
	box_bring_up(&x);

	box_push_step(&x, false);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_true(box_answer(&x));
	assert_int_equal(x.reply.type, MSG_step_result);
	assert_int_equal(x.reply.step_result.status, 0);
	assert_int_equal(x.reply.step_result.number, x.s.number);
	assert_int_equal(x.reply.step_result.slots.n, 1);
	assert_int_equal(col_u32(x.reply.step_result.slots, 0), 1);
	assert_true(col_u32(x.reply.step_result.tokens, 0) < TINY_LLAMA_TOKENS);

	box_push_step(&x, false); /* the slot is in use: refused, and the next one is fine */
	box_push_step(&x, true);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_true(box_answer(&x));
	assert_int_equal(x.reply.step_result.status, -ST_INVALID);
	rank_stats(x.rank, &stats);
	assert_int_equal(stats.steps, 4);
	assert_int_equal(stats.bad_steps, 2);
	assert_int_equal(engine_n_used(rank_engine(x.rank)), 0);
	assert_int_equal(rank_pass(x.rank, 0), ST_TIMEOUT);
	box_close(&x);
}

static void a_new_executor_finds_weights_and_no_sequences(void **state)
{
	struct rank_stats stats;
	struct rpc_hello_reply h;
	struct box x;

	box_open(&x, RING_BYTES);
	box_bring_up(&x);
	box_push_step(&x, false);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_true(box_answer(&x));
	assert_int_equal(engine_n_used(rank_engine(x.rank)), 1);

	box_push_step(&x, true); /* of the dead executor: skipped, the new one is there already */
	ring_set_generation(x.steps_w, EPOCH + 1);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_false(box_answer(&x));
	assert_int_equal(engine_n_used(rank_engine(x.rank)), 0);
	x.epoch = EPOCH + 1;
	h = box_hello(&x);
	assert_int_equal(h.state, RPC_WORKER_READY);
	assert_int_equal(h.n_blocks, 20);
	assert_int_equal(box_call(&x, RPC_RESET, NULL, 0), ST_OK);
	box_push_step(&x, false);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_true(box_answer(&x));
	assert_int_equal(x.reply.step_result.status, 0);
	assert_int_equal(x.reply.step_result.epoch, EPOCH + 1);
	rank_stats(x.rank, &stats);
	assert_int_equal(stats.skipped, 1);
	assert_int_equal(x.n_ready, 1);
	box_close(&x);
}

static void what_cannot_be_read_is_skipped(void **state)
{
	struct msg m = {.type = MSG_cancel, .cancel = {77}};
	struct rank_stats stats;
	struct box x;

	box_open(&x, RING_BYTES);
	assert_int_equal(ring_push(x.steps_w, "\xff\xff\xff", 3), ST_OK);
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	box_push(&x, &m); /* a message, but not for a worker */
	assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_int_equal(rank_pass(x.rank, 1000), ST_TIMEOUT);
	assert_false(box_answer(&x));
	rank_stats(x.rank, &stats);
	assert_int_equal(stats.unreadable, 2);
	assert_int_equal(box_hello(&x).state, RPC_WORKER_NOTHING);
	box_close(&x);
}

/* Steps whose bytes are flipped somewhere: whatever comes of it, the rank lives. */
static void damaged_records_never_break_it(void **state)
{
	int log = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	uint64_t seed = 3;
	struct box x;

	box_open(&x, RING_BYTES);
	box_bring_up(&x);
	dup2(nowhere, STDERR_FILENO); /* a line for each refused step is right, and too much here */
	for (int i = 0; i < 3000; i++) {
		struct msg m = {.type = MSG_step};
		static const uint32_t tokens[3] = {5, 6, 7};
		struct stepper_params p = stepper_greedy();

		stepper_next(&x.s);
		stepper_add(&x.s, (uint32_t)i % 5, tokens, 3, 3, &p);
		stepper_grow_range(&x.s, (uint32_t)i % 5, 0, 1);
		stepper_run(&x.s, (uint32_t)i % 5, 0, 3, true);
		if (i % 3) stepper_remove(&x.s, (uint32_t)i % 5);
		m.step = *stepper_message(&x.s);
		m.step.epoch = x.epoch;
		strbuf_reset(&x.packed);
		assert_int_equal(msg_pack(&m, &x.packed), ST_OK);
		for (int k = 0; k < 2; k++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			x.packed.data[(seed >> 33) % x.packed.len] ^= (char)(1 << (seed >> 60 & 7));
		}
		assert_int_equal(ring_push(x.steps_w, x.packed.data, x.packed.len), ST_OK);
		assert_int_equal(rank_pass(x.rank, 0), ST_OK);
		while (box_answer(&x))
			;
	}
	dup2(log, STDERR_FILENO);
	close(log);
	close(nowhere);
	box_hello(&x);
	box_close(&x);
}

static void a_full_reply_ring_ends_with_the_process(void **state)
{
	struct box x;

	box_open(&x, 128);
	for (int i = 0; i < 5; i++) {
		struct msg m = {.type = MSG_rpc, .rpc = {.epoch = EPOCH, .id = 1, .method = view_text(RPC_HELLO)}};

		box_push(&x, &m);
	}
	x.go_on = false; /* nobody reads: the rank waits, until it is told to end */
	for (int i = 0; i < 5; i++) assert_int_equal(rank_pass(x.rank, 0), ST_OK);
	assert_int_equal(rank_run(x.rank), ST_OK);
	box_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_bring_a_rank_up),
		cmocka_unit_test(a_model_that_is_not_there_is_said),
		cmocka_unit_test(steps_are_answered),
		cmocka_unit_test(a_new_executor_finds_weights_and_no_sequences),
		cmocka_unit_test(what_cannot_be_read_is_skipped),
		cmocka_unit_test(damaged_records_never_break_it),
		cmocka_unit_test(a_full_reply_ring_ends_with_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
