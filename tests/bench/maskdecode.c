/* maskdecode.c - tokens per second on the worker's engine without a grammar, with one, and with one that was never
 * seen, in turns.
 *
 *   maskdecode MODEL [threads] [tokens] [rounds]
 *
 * The grammar asks for a long array of records, so that no output ends early. The last line of each is the median over
 * the rounds: what a grammar costs. With one thread its own time is taken, so that a busy machine does not blur it. */
#include "model/gguf.h"
#include "common/mem.h"
#include "frontend/gramc.h"
#include "frontend/tokenizer.h"
#include "tests/support/stepper.h"
#include "worker/engine.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define STREAMS_MAX 8

enum maskdecode_way { WAY_NONE, WAY_WARM, WAY_COLD, WAYS };

static NORETURN void maskdecode_fail(const char *what)
{
	fprintf(stderr, "maskdecode: %s\n", what);
	exit(1);
}

static uint64_t maskdecode_now_ns(const struct engine *e)
{
	struct timespec t;

	clock_gettime(engine_n_threads(e) == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* A grammar whose bytes depend on the number, as another client's would. */
static void maskdecode_grammar(struct strbuf *wire, int number)
{
	static const char format[] = "{\"type\":\"array\",\"minItems\":100,\"items\":{\"type\":\"object\","
				     "\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":"
				     "40},\"age%d\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"role\":{"
				     "\"enum\":[\"admin\",\"editor\",\"viewer\"]},\"score\":"
				     "{\"type\":\"number\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":"
				     "\"string\"},\"maxItems\":4},\"note\":{\"type\":\"string\","
				     "\"maxLength\":200}},\"required\":[\"name\",\"age%d\",\"role\",\"score\",\"tags\","
				     "\"note\"],\"additionalProperties\":false}}";
	struct gramc_opts o = {.bytes_max = LIMIT_GRAMMAR_BYTES};
	struct errbuf err = {0};
	char text[1024];
	json_t *schema;

	snprintf(text, sizeof(text), format, number, number);
	schema = json_loads(text, 0, NULL);
	strbuf_init(wire, LIMIT_GRAMMAR_BYTES);
	if (!schema || gramc_schema(wire, schema, &o, &err) != ST_OK) maskdecode_fail(err.text);
	json_decref(schema);
}

static void maskdecode_step(struct engine *e, struct stepper *s)
{
	struct msg_step_result r;

	if (engine_step(e, stepper_message(s), &r) != ST_OK) maskdecode_fail(engine_why(e));
	for (uint32_t i = 0; i < r.tokens.n; i++)
		if (col_u32(r.tokens, i) == UINT32_MAX) maskdecode_fail("no token is allowed");
}

/* Tokens a second of n steps. */
static double maskdecode_run(struct engine *e, const struct token_vec *prompt, uint32_t streams, uint32_t n,
			     enum maskdecode_way way, int round)
{
	struct stepper_params p = stepper_greedy();
	uint32_t n_prompt = (uint32_t)prompt->len, blocks = (uint32_t)div_up(n_prompt + n + 1, KBLOCK_LEN);
	struct strbuf wires[STREAMS_MAX];
	struct stepper s;
	uint64_t from;

	p.temperature = 0.8f;
	p.top_p = 0.95f;
	p.n_output_max = 1 << 20;
	stepper_init(&s);
	for (uint32_t i = 0; i < streams; i++) {
		maskdecode_grammar(&wires[i],
				   way == WAY_COLD ? 1000 + (round * 2 + (streams > 1)) * STREAMS_MAX + (int)i : 0);
		p.seed = (uint64_t)round * STREAMS_MAX + i;
		p.grammar = wires[i].data;
		p.n_grammar = way == WAY_NONE ? 0 : (uint32_t)wires[i].len;
		stepper_next(&s);
		stepper_add(&s, i, prompt->ids, n_prompt, n_prompt, &p);
		stepper_grow_range(&s, i, i * blocks, blocks);
		stepper_run(&s, i, 0, n_prompt, true);
		maskdecode_step(e, &s);
	}
	from = maskdecode_now_ns(e);
	for (uint32_t t = 0; t < n; t++) {
		stepper_next(&s);
		for (uint32_t i = 0; i < streams; i++) stepper_run(&s, i, n_prompt + t, 1, true);
		maskdecode_step(e, &s);
	}
	from = maskdecode_now_ns(e) - from;
	for (uint32_t i = 0; i < streams; i++) strbuf_release(&wires[i]);
	stepper_release(&s);
	engine_reset(e);
	return (double)streams * n * 1e9 / (double)from;
}

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), double_compare);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void maskdecode_streams(struct engine *e, const struct token_vec *prompt, uint32_t streams, uint32_t n,
			       int rounds)
{
	double *warm = mem_array(double, (size_t)rounds), *cold = mem_array(double, (size_t)rounds);

	maskdecode_run(e, prompt, streams, 8, WAY_WARM, 0);
	for (int r = 0; r < rounds; r++) {
		double speed[WAYS];

		for (int i = 0; i < WAYS; i++) { /* each way goes first, second and third in turn */
			int way = (i + r) % WAYS;

			speed[way] = maskdecode_run(e, prompt, streams, n, way, r);
		}
		warm[r] = speed[WAY_WARM] / speed[WAY_NONE];
		cold[r] = speed[WAY_COLD] / speed[WAY_NONE];
		printf("%u streams   without %7.1f tokens/s   with a grammar %7.1f (%.3f)   with a new one %7.1f "
		       "(%.3f)\n",
		       streams, speed[WAY_NONE], speed[WAY_WARM], warm[r], speed[WAY_COLD], cold[r]);
	}
	printf("%u streams   median: %.3f of the speed with a grammar, %.3f with a new one\n", streams,
	       median(warm, rounds), median(cold, rounds));
	free(warm);
	free(cold);
}

static void maskdecode_prompt(const char *model, struct token_vec *v)
{
	static const char text[] = "<|im_start|>user\nList some people who work at a hospital, as "
				   "JSON.<|im_end|>\n<|im_start|>assistant\n";
	struct errbuf err = {0};
	struct tokenizer *t;
	struct gguf *g;

	if (gguf_open(&g, model, &err) != ST_OK || tokenizer_from_gguf(&t, g, &err) != ST_OK) maskdecode_fail(err.text);
	token_vec_init(v, SIZE_MAX);
	tokenizer_encode(t, text, strlen(text), true, v);
	tokenizer_free(t);
	gguf_close(g);
}

int main(int argc, char **argv)
{
	uint32_t n = argc > 3 ? (uint32_t)atoi(argv[3]) : 128, blocks = 0;
	int rounds = argc > 4 ? atoi(argv[4]) : 5;
	struct engine_opts o;
	struct token_vec prompt;
	struct errbuf err = {0};
	struct engine *e;
	uint64_t warm_ns;

	if (argc < 2) maskdecode_fail("MODEL [threads] [tokens] [rounds]");
	setvbuf(stdout, NULL, _IOLBF, 0);
	maskdecode_prompt(argv[1], &prompt);
	engine_opts_init(&o);
	o.model = argv[1];
	o.n_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK || engine_profile(e, &blocks, &err) != ST_OK ||
	    engine_kv_init(e, blocks, &err) != ST_OK || engine_warm_up(e, &warm_ns) != ST_OK)
		maskdecode_fail(err.text);
	maskdecode_streams(e, &prompt, 1, n, rounds);
	maskdecode_streams(e, &prompt, STREAMS_MAX, n, rounds);
	engine_free(e);
	token_vec_release(&prompt);
	return 0;
}
