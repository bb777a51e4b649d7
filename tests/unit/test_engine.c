/* test_engine.c - the engine's promise: a request's logits depend on the model, its tokens and nothing else, bit for
 * bit.
 *
 * One request is run alone, and then in every other way that a scheduler may choose: chunked at every size, beside
 * random neighbours, preempted, from shared blocks, in scattered blocks, with more threads; on every level of the
 * kernels that this processor has; plain, and with penalties, biases, allowed tokens and a grammar. The hashes of its logits and its
 * drawn tokens must always be the same. A tiny random model by default; `--all` does the same with the default model. */
#include "tests/support/stepper.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"
#include "proto/gram.h"
#include "worker/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL_FILE "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define PROMPT     70 /* not a whole number of blocks */
#define OUTPUT     10
#define SEQ_BLOCKS 6 /* (PROMPT + OUTPUT + 1) / KBLOCK_LEN, rounded up */
#define NEIGHBOURS 64
#define N_BLOCKS   ((NEIGHBOURS + 2) * SEQ_BLOCKS)
#define SEQS_MAX   (NEIGHBOURS + 1)
#define BATCH_MAX  264 /* the whole prompt, and three tokens of each neighbour */

#ifdef SLUICE_SAN
#define SLOW 1 /* the sanitizers' builds run a part */
#else
#define SLOW 0
#endif

static bool test_all;
static uint64_t rng = 1;

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((rng >> 33) % n);
}

/* What a request gave. */
struct outcome {
	uint32_t n;
	uint32_t tokens[OUTPUT];
	uint64_t hashes[OUTPUT];
};

/* One way to run the request. */
struct way {
	uint32_t chunk;      /* of the prompt; 0: whole */
	bool neighbours;     /* 64 of them, coming, running and going at random */
	uint32_t preempt_at; /* after so many output tokens; 0: never */
	bool shared;         /* the prompt's whole blocks are another sequence's */
	bool scattered;      /* blocks in random order */
	bool logprobs;       /* wanting them changes nothing */
};

struct rig {
	struct engine *e;
	struct stepper s;
	uint32_t prompt[PROMPT];
	uint32_t n_tokens; /* vocabulary */
	bool rich;         /* the request is drawn with everything that there is */
	uint32_t stop, bias_ids[3], *allowed;
	struct strbuf grammar;
	struct neighbour {
		uint32_t tokens[PROMPT];
		uint32_t n, at; /* tokens of the prompt; position that runs next; n == 0: no such sequence */
	} neighbours[NEIGHBOURS];
};

/* Any text of five bytes or more. */
static void rig_make_grammar(struct strbuf *out)
{
	struct gramb *b = gramb_new(MIB);
	uint32_t rule = gramb_rule(b), state = gramb_start(b, rule), next;
	struct errbuf err;

	for (int i = 0; i < 5; i++, state = next) {
		next = gramb_state(b, rule);
		gramb_byte(b, state, 0, 255, next);
	}
	gramb_byte(b, state, 0, 255, state);
	gramb_final(b, state);
	strbuf_init(out, MIB);
	if (gramb_finish(b, out, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	gramb_free(b);
}

static void rig_make_lists(struct rig *r)
{
	rig_make_grammar(&r->grammar);
	r->allowed = mem_array(uint32_t, r->n_tokens);
	for (uint32_t i = 0; i < r->n_tokens; i++) r->allowed[i] = i;
	r->stop = 2;
	for (uint32_t i = 0; i < 3; i++) r->bias_ids[i] = 40 * i + 3;
}

static void rig_open(struct rig *r, const char *path, uint32_t threads, enum klevel level, enum kact act)
{
	struct errbuf err = {{0}};
	struct engine_opts o;

	memset(r, 0, sizeof(*r));
	engine_opts_init(&o);
	o.model = path;
	o.n_threads = threads;
	o.level_max = level;
	o.act = act;
	o.kv_type = act == KACT_F32 ? GGTYPE_F32 : GGTYPE_F16;
	o.batched_tokens_max = BATCH_MAX;
	o.seqs_max = SEQS_MAX;
	o.hash_logits = true;
	if (engine_load(&r->e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	if (engine_kv_init(r->e, N_BLOCKS, &err) != ST_OK) fail_msg("%s", err.text);
	stepper_init(&r->s);
	r->n_tokens = engine_shape(r->e)->n_tokens;
	rng = 7;
	for (uint32_t i = 0; i < PROMPT; i++) r->prompt[i] = rnd(r->n_tokens);
	rig_make_lists(r);
}

static void rig_close(struct rig *r)
{
	engine_free(r->e);
	stepper_release(&r->s);
	strbuf_release(&r->grammar);
	free(r->allowed);
}

static void rig_step(struct rig *r, struct msg_step_result *out)
{
	if (engine_step(r->e, stepper_message(&r->s), out) != ST_OK) fail_msg("%s", engine_why(r->e));
	stepper_next(&r->s);
}

static void rig_enrich(const struct rig *r, struct stepper_params *p)
{
	static const float bias[] = {3, -4, 2.5f};

	p->repetition = 1.3f;
	p->presence = 0.4f;
	p->frequency = 0.7f;
	p->n_bias = ARRAY_LEN(bias);
	p->bias_ids = r->bias_ids;
	p->bias_values = bias;
	p->n_allowed = r->n_tokens * 3 / 4;
	p->allowed_ids = r->allowed;
	p->n_output_min = 4;
	p->n_stop = 1;
	p->stop_ids = &r->stop;
	p->n_output_max = PROMPT + OUTPUT; /* a neighbour's output is never at its end */
	p->grammar = r->grammar.data;
	p->n_grammar = (uint32_t)r->grammar.len;
}

/* Neighbours in slots 1..: some begin, all run a part of their prompt or draw a token, some end. */
static void rig_stir(struct rig *r)
{
	struct stepper_params p = {.temperature = 1, .top_p = 1, .seed = 5};

	if (r->rich) rig_enrich(r, &p);
	for (uint32_t i = 0; i < NEIGHBOURS; i++) {
		struct neighbour *nb = &r->neighbours[i];
		uint32_t n;

		if (nb->n && (nb->at >= nb->n + OUTPUT || rnd(20) == 0)) {
			stepper_remove(&r->s, 1 + i);
			nb->n = 0;
		}
		if (!nb->n) {
			*nb = (struct neighbour){.n = 1 + rnd(PROMPT)};
			p.temperature = (float)rnd(2);
			for (uint32_t k = 0; k < nb->n; k++) nb->tokens[k] = rnd(r->n_tokens);
			stepper_add(&r->s, 1 + i, nb->tokens, nb->n, nb->n, &p);
			stepper_grow_range(&r->s, 1 + i, (2 + i) * SEQ_BLOCKS, SEQ_BLOCKS);
		}
		n = nb->at < nb->n ? 1 + rnd(min_u32(nb->n - nb->at, 3)) : 1;
		stepper_run(&r->s, 1 + i, nb->at, n, nb->at + n >= nb->n);
		nb->at += n;
	}
}

static void rig_shuffle(uint32_t blocks[SEQ_BLOCKS], bool scattered)
{
	for (uint32_t i = 0; i < SEQ_BLOCKS; i++) blocks[i] = i;
	for (uint32_t i = SEQ_BLOCKS - 1; scattered && i > 0; i--) {
		uint32_t k = rnd(i + 1), b = blocks[i];

		blocks[i] = blocks[k];
		blocks[k] = b;
	}
}

static struct stepper_params rig_params(const struct rig *r, const struct way *w)
{
	struct stepper_params p = {.temperature = 0.8f, .top_p = 0.95f, .seed = 42, .n_logprobs = w->logprobs ? 6 : 0};

	if (r->rich) rig_enrich(r, &p);
	p.n_prompt_logprobs = w->logprobs && r->rich ? 3 : 0;
	return p;
}

/* Runs positions [from, to) of slot 0, the last with a draw, in chunks. */
static void rig_run(struct rig *r, const struct way *w, uint32_t from, uint32_t to, struct msg_step_result *out)
{
	for (uint32_t at = from, n; at < to; at += n) {
		n = w->chunk ? min_u32(w->chunk, to - at) : to - at;
		if (w->neighbours) rig_stir(r);
		stepper_run(&r->s, 0, at, n, at + n == to);
		rig_step(r, out);
	}
}

/* Row 0 of slot 0 in a result. */
static void rig_record(const struct msg_step_result *res, struct outcome *o)
{
	for (uint32_t i = 0; i < res->slots.n; i++) {
		if (col_u32(res->slots, i) != 0) continue;
		assert_true(col_u32(res->tokens, i) < TOKEN_FAILED);
		o->tokens[o->n] = col_u32(res->tokens, i);
		o->hashes[o->n++] = col_u64(res->hashes, i);
		return;
	}
	fail_msg("the request has no row");
}

/* Fills blocks 0.. of the prompt by a sequence that is gone again, as a prefix cache would have it. */
static void rig_fill_shared(struct rig *r, const uint32_t blocks[SEQ_BLOCKS], const struct stepper_params *p)
{
	struct msg_step_result res;

	stepper_add(&r->s, 0, r->prompt, PROMPT, PROMPT, p);
	stepper_grow(&r->s, 0, blocks, SEQ_BLOCKS);
	stepper_run(&r->s, 0, 0, PROMPT, false);
	rig_step(r, &res);
	stepper_remove(&r->s, 0);
}

static struct outcome rig_request(struct rig *r, const struct way *w)
{
	struct stepper_params p = rig_params(r, w);
	uint32_t blocks[SEQ_BLOCKS], cached = w->shared ? PROMPT / KBLOCK_LEN * KBLOCK_LEN : 0;
	uint32_t tokens[PROMPT + OUTPUT];
	struct msg_step_result res;
	struct outcome o = {0};

	memset(r->neighbours, 0, sizeof(r->neighbours));
	rig_shuffle(blocks, w->scattered);
	if (w->shared) rig_fill_shared(r, blocks, &p);
	/* Behind the shared part, blocks of its own. */
	for (uint32_t i = cached / KBLOCK_LEN; w->shared && i < SEQ_BLOCKS; i++) blocks[i] = SEQ_BLOCKS + i;
	stepper_add(&r->s, 0, r->prompt, PROMPT, PROMPT, &p);
	stepper_grow(&r->s, 0, blocks, SEQ_BLOCKS);
	rig_run(r, w, cached, PROMPT, &res);
	rig_record(&res, &o);
	while (o.n < OUTPUT) {
		uint32_t known = PROMPT + o.n;

		if (w->preempt_at == o.n) {
			memcpy(tokens, r->prompt, sizeof(r->prompt));
			memcpy(tokens + PROMPT, o.tokens, o.n * sizeof(*tokens));
			rig_shuffle(blocks, true);
			stepper_remove(&r->s, 0);
			stepper_add(&r->s, 0, tokens, known, PROMPT, &p);
			stepper_grow(&r->s, 0, blocks, SEQ_BLOCKS);
			rig_run(r, w, 0, known, &res);
		} else {
			rig_run(r, w, known - 1, known, &res);
		}
		rig_record(&res, &o);
	}
	engine_reset(r->e);
	return o;
}

static void expect_same(const struct outcome *want, const struct outcome *got, const char *what, uint32_t number)
{
	for (uint32_t i = 0; i < OUTPUT; i++)
		if (want->hashes[i] != got->hashes[i] || want->tokens[i] != got->tokens[i])
			fail_msg("%s %u: output token %u is %u with logits %016llx, expected %u with %016llx", what,
				 number, i, got->tokens[i], (unsigned long long)got->hashes[i], want->tokens[i],
				 (unsigned long long)want->hashes[i]);
}

/* large: a model that makes tokens of neighbours dear. */
static void all_ways(const char *path, enum klevel level, enum kact act, bool every_chunk, bool large, bool rich)
{
	static const uint32_t chunks[] = {17, 1, 3, 8, 15, 33, 69};
	uint32_t n_chunks = every_chunk ? PROMPT : SLOW ? 2 : ARRAY_LEN(chunks);
	struct outcome want, got;
	struct rig r;

	rig_open(&r, path, 1, level, act);
	want = rig_request(&r, &(struct way){0});
	if (rich) {
		struct outcome plain = want;

		r.rich = true;
		want = rig_request(&r, &(struct way){0});
		assert_memory_not_equal(plain.tokens, want.tokens, sizeof(want.tokens)); /* it makes a difference */
		assert_int_equal(plain.hashes[0], want.hashes[0]);                       /* but not to the logits */
	}
	for (uint32_t threads = 1; threads <= 2; threads++) {
		uint32_t i = 0;

		if (threads == 2) {
			rig_close(&r);
			rig_open(&r, path, 2, level, act);
			r.rich = rich;
			got = rig_request(&r, &(struct way){0});
			expect_same(&want, &got, "threads", 2);
		}
		for (i = 0; i < n_chunks; i++) {
			uint32_t chunk = every_chunk ? i + 1 : chunks[i];

			got = rig_request(&r, &(struct way){.chunk = chunk});
			expect_same(&want, &got, "chunk", chunk);
		}
		got = rig_request(&r, &(struct way){.neighbours = true});
		expect_same(&want, &got, "neighbours, chunk", 0);
		for (i = 0; i < (large ? 0 : SLOW ? 1 : 3); i++) {
			got = rig_request(&r, &(struct way){.neighbours = true,
							    .chunk = 1 + rnd(40),
							    .scattered = true,
							    .logprobs = true});
			expect_same(&want, &got, "neighbours, run", i);
		}
		for (i = 1; i < OUTPUT; i += 4) {
			got = rig_request(&r, &(struct way){.preempt_at = i, .chunk = 11});
			expect_same(&want, &got, "preempted after", i);
		}
		got = rig_request(&r, &(struct way){.shared = true});
		expect_same(&want, &got, "shared blocks", 0);
		got = rig_request(
			&r,
			&(struct way){.shared = true, .neighbours = true, .preempt_at = 5, .chunk = large ? 40 : 13});
		expect_same(&want, &got, "all together", 0);
	}
	rig_close(&r);
}

static char *tiny_path(enum ggtype type)
{
	struct tiny_llama t;
	char *path = test_file_temp("tiny.gguf");

	tiny_llama_init(&t);
	t.mat_type = type;
	t.embed_type = type == GGTYPE_F32 ? GGTYPE_F32 : GGTYPE_Q8_0;
	t.output_type = t.embed_type;
	t.layers = 3;
	t.seed = 99;
	tiny_llama_save(&t, path);
	return path;
}

/* Levels that this processor has, or that SLUICE_KERNELS allows. */
static enum klevel level_max(void)
{
	enum klevel level = klevel_of_cpu();
	const char *env = getenv("SLUICE_KERNELS");

	if (env) assert_true(klevel_parse(env, &level));
	return level;
}

static void logits_depend_on_the_request_alone(void **state)
{
	static const enum ggtype types[] = {GGTYPE_Q4_1, GGTYPE_Q4_0, GGTYPE_Q8_0, GGTYPE_F16, GGTYPE_BF16, GGTYPE_F32};

	for (enum klevel level = SLOW ? level_max() : KLEVEL_REF; level <= level_max(); level++) {
		for (size_t i = 0; i < (SLOW ? 1 : ARRAY_LEN(types)); i++) {
			char *path;

			if (level == KLEVEL_REF && level_max() > level && i > 0)
				break; /* slow, and the others' oracle */
			path = tiny_path(types[i]);

			all_ways(path, level, KACT_Q8, !SLOW && i == 0 && level == level_max(), false, false);
			if (i == 0) all_ways(path, level, KACT_F32, false, false, false);
			if (i == 0) all_ways(path, level, KACT_Q8, false, false, true);
			free(path);
		}
		print_message("%s: the same bits\n", klevel_name(level));
	}
}

static void logits_depend_on_the_request_alone_real_model(void **state)
{
	if (!test_all) {
		print_message("SKIPPED: the default model is only run with --all\n");
		skip();
	}
	if (access(MODEL_FILE, R_OK) != 0) {
		print_message("SKIPPED: %s is not there\n", MODEL_FILE);
		skip();
	}
	all_ways(MODEL_FILE, level_max(), KACT_Q8, true, true, false);
	all_ways(MODEL_FILE, level_max(), KACT_F32, false, true, false);
	all_ways(MODEL_FILE, level_max(), KACT_Q8, false, true, true);
}

/* ---- loading ---- */

static void what_cannot_be_loaded_says_why(void **state)
{
	char *path = tiny_path(GGTYPE_F32);
	struct engine_opts o;
	struct errbuf err = {{0}};
	struct engine *e;
	uint32_t n;

	engine_opts_init(&o);
	o.model = "/nonexistent/model.gguf";
	assert_int_not_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
	assert_non_null(strstr(err.text, "model.gguf"));

	o.model = path;
	o.model_len_max = 513;
	err.text[0] = 0;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "512"));

	o.model_len_max = 0;
	o.kv.available = 100000;
	err.text[0] = 0;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_NO_MEMORY);
	assert_non_null(strstr(err.text, "are available"));

	o.kv.available = 0;
	o.kv.n_blocks = 9;
	err.text[0] = 0;
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(engine_profile(e, &n, &err), ST_OK);
	assert_int_equal(n, 9);
	engine_free(e);
	free(path);
}

struct seen {
	uint64_t done, total;
	uint32_t calls;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct seen *s = ctx;

	assert_true(done >= s->done && done <= total && (s->total == 0 || s->total == total));
	*s = (struct seen){done, total, s->calls + 1};
}

static void progress_reaches_the_end(void **state)
{
	char *path = tiny_path(GGTYPE_Q8_0);
	struct seen s = {0};
	struct engine_opts o;
	struct errbuf err;
	struct engine *e;

	engine_opts_init(&o);
	o.model = path;
	assert_int_equal(engine_load(&e, &o, on_progress, &s, &err), ST_OK);
	assert_true(s.calls > 0 && s.done == s.total && s.total > 0);
	engine_free(e);
	free(path);
}

/* ---- results ---- */

static void stop_ids_wait_for_the_minimum(void **state)
{
	char *path = tiny_path(GGTYPE_Q8_0);
	uint32_t stop[LIMIT_STOP_IDS], first;
	struct msg_step_result res;
	struct stepper_params p = stepper_greedy();
	struct rig r;

	rig_open(&r, path, 1, level_max(), KACT_Q8);
	stepper_add(&r.s, 3, r.prompt, 5, 5, &p);
	stepper_grow_range(&r.s, 3, 0, 1);
	stepper_run(&r.s, 3, 0, 5, true);
	rig_step(&r, &res);
	first = col_u32(res.tokens, 0);
	assert_int_equal(col_u32(res.slots, 0), 3);
	assert_int_equal(col_u32(res.n_top, 0), 0);
	assert_int_equal(res.top_ids.n, 0);
	assert_int_equal(res.hashes.n, 1);
	engine_reset(r.e);

	stop[0] = first;
	p.n_stop = 1;
	p.stop_ids = stop;
	p.n_output_min = 1;
	stepper_add(&r.s, 3, r.prompt, 5, 5, &p);
	stepper_grow_range(&r.s, 3, 0, 1);
	stepper_run(&r.s, 3, 0, 5, true);
	rig_step(&r, &res);
	assert_int_not_equal(col_u32(res.tokens, 0), first);
	rig_close(&r);
	free(path);
}

static void a_step_before_the_cache_is_refused(void **state)
{
	char *path = tiny_path(GGTYPE_F32);
	struct engine_opts o;
	struct msg_step_result res;
	struct errbuf err;
	struct engine *e;
	uint64_t ns;

	engine_opts_init(&o);
	o.model = path;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
	assert_int_equal(engine_step(e, &(struct msg_step){.number = 4}, &res), ST_INVALID);
	assert_int_equal(res.status, -ST_INVALID);
	assert_int_equal(res.number, 4);
	assert_int_equal(engine_warm_up(e, &ns), ST_INVALID);
	assert_int_equal(engine_kv_init(e, 0, &err), ST_INVALID);
	assert_int_equal(engine_kv_init(e, 3, &err), ST_OK);
	assert_int_equal(engine_warm_up(e, &ns), ST_OK);
	assert_true(ns > 0);
	assert_int_equal(engine_n_used(e), 0);
	assert_int_equal(engine_step(e, &(struct msg_step){.number = 5}, &res), ST_OK); /* nothing to do is fine */
	assert_int_equal(engine_kv_init(e, 7, &err), ST_OK);
	assert_int_equal(engine_n_blocks(e), 7);
	engine_free(e);
	free(path);
}

/* The null device draws the same tokens for the same request, and never a banned one. */
static void the_null_device_is_deterministic(void **state)
{
	char *path = tiny_path(GGTYPE_F32);
	uint32_t tokens[2][8], stop[LIMIT_STOP_IDS];
	struct stepper_params p = stepper_greedy();
	struct msg_step_result res;
	struct engine_opts o;
	struct errbuf err;
	struct stepper s;
	struct engine *e;

	engine_opts_init(&o);
	o.model = path;
	o.null_device = true;
	assert_int_equal(engine_load(&e, &o, NULL, NULL, &err), ST_OK);
	assert_int_equal(engine_kv_init(e, 10, &err), ST_OK);
	stepper_init(&s);
	for (uint32_t i = 0; i < LIMIT_STOP_IDS; i++) stop[i] = i;
	p.n_stop = LIMIT_STOP_IDS;
	p.stop_ids = stop;
	p.n_output_min = 100;
	for (int round = 0; round < 2; round++) {
		stepper_add(&s, 0, stop, 7, 7, &p);
		stepper_grow_range(&s, 0, 0, 1);
		for (uint32_t i = 0; i < 8; i++) {
			stepper_run(&s, 0, i ? 6 + i : 0, i ? 1 : 7, true);
			assert_int_equal(engine_step(e, stepper_message(&s), &res), ST_OK);
			stepper_next(&s);
			tokens[round][i] = col_u32(res.tokens, 0);
			assert_in_range(tokens[round][i], LIMIT_STOP_IDS, TINY_LLAMA_TOKENS - 1);
		}
		engine_reset(e);
	}
	assert_memory_equal(tokens[0], tokens[1], sizeof(tokens[0]));
	stepper_release(&s);
	engine_free(e);
	free(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_loaded_says_why),
		cmocka_unit_test(progress_reaches_the_end),
		cmocka_unit_test(stop_ids_wait_for_the_minimum),
		cmocka_unit_test(a_step_before_the_cache_is_refused),
		cmocka_unit_test(the_null_device_is_deterministic),
		cmocka_unit_test(logits_depend_on_the_request_alone),
		cmocka_unit_test(logits_depend_on_the_request_alone_real_model),
	};

	test_all = argc > 1 && strcmp(argv[1], "--all") == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
