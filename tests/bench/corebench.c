/* corebench.c - what a decode step costs beside the device, by parts, in one process without sockets and rings: the executor's
 * core (scheduling, results), its messages (packing), and the worker around its device (unpacking, checks, the null device's
 * draws, packing).
 *
 *   build/bench/corebench [SEQS [STEPS]]      nanoseconds a sequence and step; also for `perf record` and callgrind
 *
 * `sluice bench --mesh` measures the same in the real processes. */
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/clock.h"
#include "common/mem.h"
#include "executor/core.h"
#include "worker/engine.h"

#include <stdio.h>
#include <string.h>

#define BENCH_PROMPT 17
#define BENCH_LANES 2

struct bench {
	struct core *core;
	struct engine *engine;
	struct strbuf step, results, reply;
	uint64_t step_ns, results_ns; /* packing */
	uint64_t n_steps_waiting, n_rows;
	struct strbuf waiting[2];
};

static int bench_send(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	struct bench *b = ctx;
	uint64_t from = clock_thread_ns();

	strbuf_reset(&b->results);
	CHECK(msg_pack(m, &b->results) == ST_OK);
	b->results_ns += clock_thread_ns() - from;
	if (m->type == MSG_results) b->n_rows += m->results.client_ids.n;
	return ST_OK;
}

static void bench_step(void *ctx, const struct msg_step *step)
{
	struct bench *b = ctx;
	struct strbuf *to = &b->waiting[b->n_steps_waiting++];
	struct msg m = {.type = MSG_step, .step = *step};
	uint64_t from = clock_thread_ns();

	strbuf_reset(to);
	CHECK(msg_pack(&m, to) == ST_OK);
	b->step_ns += clock_thread_ns() - from;
}

static void bench_engine(struct bench *b, uint32_t n)
{
	char *path = test_file_temp("bench.gguf");
	struct errbuf err = {{0}};
	struct tiny_llama t;
	struct engine_opts o;

	tiny_llama_init(&t);
	t.context = 4096;
	tiny_llama_save(&t, path);
	engine_opts_init(&o);
	o.model = path;
	o.null_device = true;
	o.seqs_max = n;
	o.batched_tokens_max = LIMIT_BATCH;
	CHECK(engine_load(&b->engine, &o, NULL, NULL, &err) == ST_OK);
	CHECK(engine_kv_init(b->engine, n * 64, &err) == ST_OK);
	free(path);
}

static void bench_core(struct bench *b, uint32_t n)
{
	const struct core_config cfg = {.epoch = 1,
					.seqs_max = n,
					.batched_tokens_max = LIMIT_BATCH,
					.requests_max = n,
					.steps_in_flight_max = 2,
					.prefix_cache = true,
					.sync_interval_ns = UINT64_MAX / 2};
	uint32_t prompt[BENCH_PROMPT];

	b->core = core_new(&cfg, &(struct core_out){.ctx = b, .send = bench_send, .step = bench_step});
	for (uint32_t i = 0; i < BENCH_LANES; i++)
		core_on_hello(b->core, &(struct msg_hello){.version = PROTO_VERSION, .frontend = i, .epoch = 1}, 0);
	core_on_workers_ready(b->core, &(struct core_workers){.n_blocks = n * 64, .model_len_max = 4096, .vocab = TINY_LLAMA_TOKENS, .dim = 64}, 0);
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < BENCH_PROMPT; k++) prompt[k] = (i * 31 + k * 7) % TINY_LLAMA_TOKENS;
		core_on_submit(b->core,
			       &(struct msg_submit){.client_id = (uint64_t)(i % BENCH_LANES) << 48 | (i + 1),
						    .attempt = 1,
						    .epoch = 1,
						    .tokens = view_of(prompt, BENCH_PROMPT),
						    .n_prompt = BENCH_PROMPT,
						    .n_output_max = 4000,
						    .top_p = 1},
			       0);
	}
	core_step(b->core, 0);
}

/* A step's result as the core gets it. */
static void bench_worker(struct bench *b)
{
	struct msg m, reply = {.type = MSG_step_result};

	CHECK(b->n_steps_waiting > 0);
	CHECK(msg_unpack(&m, b->waiting[0].data, b->waiting[0].len) == ST_OK);
	CHECK(engine_step(b->engine, &m.step, &reply.step_result) == ST_OK);
	strbuf_reset(&b->reply);
	CHECK(msg_pack(&reply, &b->reply) == ST_OK);
	struct strbuf first = b->waiting[0];
	b->waiting[0] = b->waiting[1];
	b->waiting[1] = first;
	b->n_steps_waiting--;
}

int main(int argc, char **argv)
{
	uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 2048, steps = argc > 2 ? (uint32_t)atoi(argv[2]) : 500;
	uint64_t worker_ns = 0, result_ns = 0, pass_ns = 0, at, rows;
	struct bench b = {0};
	struct msg m;

	strbuf_init(&b.results, LIMIT_STEP_RING_BYTES);
	strbuf_init(&b.reply, LIMIT_STEP_RING_BYTES);
	for (int i = 0; i < 2; i++) strbuf_init(&b.waiting[i], LIMIT_STEP_RING_BYTES);
	bench_engine(&b, n);
	bench_core(&b, n);
	for (uint32_t i = 0; i < steps + 20; i++) {
		if (i == 20) worker_ns = result_ns = pass_ns = b.step_ns = b.results_ns = b.n_rows = 0;
		at = clock_thread_ns();
		bench_worker(&b);
		worker_ns += clock_thread_ns() - at;
		CHECK(msg_unpack(&m, b.reply.data, b.reply.len) == ST_OK);
		at = clock_thread_ns();
		CHECK(core_on_step_result(b.core, &m.step_result, 0));
		result_ns += clock_thread_ns() - at;
		at = clock_thread_ns();
		core_step(b.core, 0);
		pass_ns += clock_thread_ns() - at;
	}
	rows = b.n_rows;
	pass_ns -= b.step_ns + b.results_ns;
	printf("%u sequences, %u steps, ns a row: worker %.0f, executor %.0f: taking results %.0f, deciding %.0f, packing steps %.0f, packing results %.0f\n",
	       n, steps, (double)worker_ns / (double)rows, (double)(result_ns + pass_ns + b.step_ns + b.results_ns) / (double)rows,
	       (double)result_ns / (double)rows, (double)pass_ns / (double)rows, (double)b.step_ns / (double)rows,
	       (double)b.results_ns / (double)rows);
	return 0;
}
