/* decodebench.c - tokens per second straight on the worker's engine: one and eight streams, and reading a prompt.
 *
 *   decodebench MODEL [threads] [tokens] [ref|avx2|avx512]
 *
 * Prints also the time that a step spends outside the device, for eight streams. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/support/stepper.h"
#include "worker/engine.h"

#include <stdio.h>

static NORETURN void decodebench_fail(const char *what)
{
	fprintf(stderr, "decodebench: %s\n", what);
	exit(1);
}

/* A stepper whose KV groups have equal parts of the pool. */
static void decodebench_stepper(struct stepper *s, const struct engine *e)
{
	stepper_init(s);
	s->n_groups = max_u32(1, kvgroups_n(engine_kvgroups(e)));
	s->group_blocks = engine_n_blocks(e) / s->n_groups;
}

static void decodebench_step(struct engine *e, struct stepper *s)
{
	struct msg_step_result r;

	if (engine_step(e, stepper_message(s), &r) != ST_OK) decodebench_fail(engine_why(e));
}

/* Decodes n tokens on each of `streams` sequences; returns tokens a second. */
static double decodebench_decode(struct engine *e, uint32_t streams, uint32_t n, uint32_t prompt)
{
	struct stepper_params greedy = stepper_greedy();
	uint32_t blocks = (uint32_t)div_up(prompt + n + 1, KBLOCK_LEN);
	uint32_t *tokens = mem_array(uint32_t, prompt);
	struct stepper s;
	uint64_t from;

	decodebench_stepper(&s, e);
	for (uint32_t i = 0; i < streams; i++) {
		for (uint32_t j = 0; j < prompt; j++)
			tokens[j] = (i * 7919 + j * 104729 + 17) % engine_spec(e)->n_tokens;
		stepper_next(&s);
		stepper_add(&s, i, tokens, prompt, prompt, &greedy);
		stepper_grow_range(&s, i, i * blocks, blocks);
		stepper_run(&s, i, 0, prompt, true);
		decodebench_step(e, &s);
	}
	from = clock_now_ns();
	for (uint32_t t = 0; t < n; t++) {
		stepper_next(&s);
		for (uint32_t i = 0; i < streams; i++) stepper_run(&s, i, prompt + t, 1, true);
		decodebench_step(e, &s);
	}
	from = clock_now_ns() - from;
	stepper_release(&s);
	free(tokens);
	engine_reset(e);
	return (double)streams * n * 1e9 / (double)from;
}

static double decodebench_prefill(struct engine *e, uint32_t n)
{
	struct stepper_params greedy = stepper_greedy();
	uint32_t *tokens = mem_array(uint32_t, n);
	struct stepper s;
	uint64_t from, ns;

	for (uint32_t j = 0; j < n; j++) tokens[j] = (j * 104729 + 17) % engine_spec(e)->n_tokens;
	decodebench_stepper(&s, e);
	stepper_add(&s, 0, tokens, n, n, &greedy);
	stepper_grow_range(&s, 0, 0, (uint32_t)div_up(n, KBLOCK_LEN));
	stepper_run(&s, 0, 0, n, true);
	from = clock_now_ns();
	decodebench_step(e, &s);
	ns = clock_now_ns() - from;
	stepper_release(&s);
	free(tokens);
	engine_reset(e);
	return (double)n * 1e9 / (double)ns;
}

int main(int argc, char **argv)
{
	struct engine_opts o;
	struct engine *e;
	struct errbuf err = {0};
	uint32_t n = argc > 3 ? (uint32_t)atoi(argv[3]) : 128, blocks = 0;
	uint64_t from = clock_now_ns(), warm_ns;
	double one, eight;

	if (argc < 2) decodebench_fail("MODEL [threads] [tokens] [ref|avx2|avx512]");
	engine_opts_init(&o);
	o.model = argv[1];
	o.n_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
	if (argc > 4 && !klevel_parse(argv[4], &o.level_max)) decodebench_fail("no such level");
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK || engine_profile(e, &blocks, &err) != ST_OK ||
	    engine_kv_init(e, blocks, &err) != ST_OK || engine_warm_up(e, &warm_ns) != ST_OK)
		decodebench_fail(err.text);
	printf("%s, %u threads, loaded in %.2f s, %u KV blocks, weights %.1f MiB, activations %.1f MiB\n",
	       engine_device_name(e), engine_n_threads(e), (double)(clock_now_ns() - from) / 1e9, blocks,
	       (double)engine_plan(e)->weight_bytes / MIB, (double)engine_plan(e)->activation_bytes / MIB);
	printf("prefill 512   %8.1f tokens/s\n", decodebench_prefill(e, 512));
	one = decodebench_decode(e, 1, n, 64);
	printf("1 stream      %8.1f tokens/s\n", one);
	eight = decodebench_decode(e, 8, n, 64);
	printf("8 streams     %8.1f tokens/s (%.2f x)\n", eight, eight / one);
	engine_free(e);

	/* The null device leaves what is not arithmetic: checking the step, filling the input, the result. */
	o.null_device = true;
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK || engine_kv_init(e, blocks, &err) != ST_OK)
		decodebench_fail(err.text);
	printf("a step of 8 streams spends %.2f us outside the device\n", 8e6 / decodebench_decode(e, 8, min_u32(2000, engine_model_len_max(e) - 65), 64));
	engine_free(e);
	return 0;
}
