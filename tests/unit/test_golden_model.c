/* test_golden_model.c - the engine against recorded results of reference implementations (fp32).
 *
 * Teacher forcing: each position of prompt + greedy_ids is a sequence of its own that shares the blocks of the others,
 * so that one step gives the logits of all of them. Free running is checked in f32 only. By default a few prompts;
 * `--all` runs everything. Gemma 3 only where its file has been fetched. Tolerances are those of the golden data's README. */
#include "tests/support/golden.h"
#include "tests/support/goldrun.h"
#include "tests/support/stepper.h"

#include "common/mem.h"
#include "worker/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SEQS_MAX  256
#define BATCH_MAX 512
#define BLOCKS    80 /* of a KV group */

static bool test_all;

/* A model with recorded results, model/NAME.*.jsonl. */
struct model {
	const char *name, *file;
	const char *env;     /* another path, when it is set */
	const char *missing; /* what fetches it */
	double ppl_q8;       /* relative; the README's */
};

static const struct model smollm2 = {"smollm2", "models/SmolLM2-135M-Instruct.Q4_1.gguf", "SLUICE_MODEL", "make model", 0.015};
static const struct model gemma3 = {"gemma3", "models/vocabularies/gemma3/gemma-3-270m-q4_k_m.gguf", "SLUICE_GEMMA3",
				    "tests/vocabularies.py --large", 0.035};

/* What a run is judged by. */
struct limits {
	double top8_mean, top8_worst; /* absolute error of a logit */
	double agree_min;             /* share of steps with the same argmax */
	double flip_margin;           /* a differing argmax must have less */
	double ppl;                   /* relative */
};

static const struct limits limits_q8 = {0.25, 1.8, 0.95, 0.5, 0}; /* perplexity: each model's own */
static const struct limits limits_f32 = {0.005, 0.005, 0.99, 0.05, 0.0005};

struct run {
	struct engine *e;
	struct stepper s;
	struct limits limits;
	/* What on_logits needs about the row of a slot. */
	json_t *const *top8;  /* of each slot, or NULL */
	const uint32_t *next; /* the token that follows, of each slot */
	uint32_t n_top8;
	uint32_t argmax[SEQS_MAX];
	double next_logprob[SEQS_MAX];
	/* Sums over everything. */
	double err_sum, err_worst;
	uint32_t n_err, n_steps, n_agree;
	double flip_worst;
};

static void on_logits(void *ctx, uint32_t slot, const float *logits, uint32_t vocab)
{
	struct run *r = ctx;
	uint32_t best = 0;
	double sum = 0;

	for (uint32_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best]) best = i;
	r->argmax[slot] = best;
	for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)logits[best]);
	if (r->next) r->next_logprob[slot] = (double)logits[r->next[slot]] - (double)logits[best] - log(sum);
	if (!r->top8 || slot >= r->n_top8) return;
	for (size_t i = 0; i < json_array_size(r->top8[slot]); i++) {
		const json_t *pair = json_array_get(r->top8[slot], i);
		uint64_t id = (uint64_t)json_integer_value(json_array_get(pair, 0));
		double want = json_number_value(json_array_get(pair, 1)), err;

		assert_true(id < vocab);
		err = fabs((double)logits[id] - want);
		r->err_sum += err;
		r->n_err++;
		if (!(err <= r->err_worst)) r->err_worst = err;
	}
}

static void run_opts(struct engine_opts *o, const char *path, enum kact act)
{
	engine_opts_init(o);
	o->model = path;
	o->act = act;
	if (getenv("SLUICE_KERNELS")) assert_true(klevel_parse(getenv("SLUICE_KERNELS"), &o->level_max));
	o->kv_type = act == KACT_F32 ? GGTYPE_F32 : GGTYPE_F16;
	o->model_len_max = 2048;
}

static void run_open(struct run *r, const char *path, enum kact act)
{
	struct engine_opts o;
	struct errbuf err = {0};

	*r = (struct run){.limits = act == KACT_F32 ? limits_f32 : limits_q8};
	stepper_init(&r->s);
	run_opts(&o, path, act);
	o.seqs_max = SEQS_MAX;
	o.batched_tokens_max = BATCH_MAX;
	o.on_logits = on_logits;
	o.ctx = r;
	if (engine_load(&r->e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	r->s.n_groups = max_u32(1, kvgroups_n(engine_kvgroups(r->e)));
	r->s.group_blocks = BLOCKS;
	if (engine_kv_init(r->e, r->s.n_groups * BLOCKS, &err) != ST_OK) fail_msg("%s", err.text);
}

static void run_close(struct run *r)
{
	engine_free(r->e);
	stepper_release(&r->s);
}

static void run_step(struct run *r, struct msg_step_result *out)
{
	if (engine_step(r->e, stepper_message(&r->s), out) != ST_OK) fail_msg("%s", engine_why(r->e));
	stepper_next(&r->s);
}

/* Fills the cache with tokens[0..n) through slot 0, in chunks, without drawing. */
static void run_prefill(struct run *r, const uint32_t *tokens, uint32_t n)
{
	struct stepper_params greedy = stepper_greedy();
	struct msg_step_result out;

	if (n == 0) return;
	stepper_add(&r->s, 0, tokens, n, n, &greedy);
	stepper_grow_range(&r->s, 0, 0, (uint32_t)div_up(n, KBLOCK_LEN));
	for (uint32_t at = 0, m; at < n; at += m) {
		m = min_u32(n - at, BATCH_MAX);
		stepper_run(&r->s, 0, at, m, false);
		run_step(r, &out);
	}
	stepper_remove(&r->s, 0);
	run_step(r, &out);
}

/* One step that gives the logits behind positions from .. from + n - 1 of tokens. */
static void run_forced(struct run *r, const uint32_t *tokens, uint32_t from, uint32_t n, struct msg_step_result *out)
{
	struct stepper_params p = stepper_greedy();

	p.n_logprobs = 9;
	assert_true(n <= SEQS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		stepper_add(&r->s, i, tokens, from + i + 1, 1, &p);
		stepper_grow_range(&r->s, i, 0, (uint32_t)div_up(from + i + 1, KBLOCK_LEN));
		stepper_run(&r->s, i, from + i, 1, true);
	}
	run_step(r, out);
	assert_int_equal(out->slots.n, n);
}

static void run_forget(struct run *r)
{
	engine_reset(r->e);
}

/* The drawn rows must say the same as the logits that on_logits saw. */
static void check_drawn(const struct run *r, const struct msg_step_result *out, const double *logprobs,
			double tolerance)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < out->slots.n; i++) {
		assert_int_equal(col_u32(out->tokens, i), r->argmax[i]);
		assert_int_equal(col_u32(out->n_top, i), 9);
		assert_int_equal(col_u32(out->ranks, i), 1);
		assert_int_equal(col_u32(out->top_ids, at), r->argmax[i]);
		assert_int_equal(col_u32(out->top_ids, at + 1), r->argmax[i]);
		if (r->argmax[i] == r->next[i] &&
		    fabs((double)col_f32(out->top_logprobs, at) - logprobs[i]) > tolerance)
			fail_msg("log-probability %g, recorded %g", (double)col_f32(out->top_logprobs, at),
				 logprobs[i]);
		at += 9;
	}
}

static double *doubles(const json_t *array, size_t want)
{
	double *v = mem_array(double, want);

	assert_int_equal(json_array_size(array), want);
	for (size_t i = 0; i < want; i++) v[i] = json_number_value(json_array_get(array, i));
	return v;
}

/* One prompt, teacher-forced. */
static void run_case(struct run *r, json_t *c)
{
	size_t n_prompt, n_out, n_top8 = json_array_size(json_object_get(c, "top8"));
	uint32_t *prompt = golden_u32s(json_object_get(c, "prompt_ids"), &n_prompt);
	uint32_t *out_ids = golden_u32s(json_object_get(c, "greedy_ids"), &n_out);
	uint32_t *tokens = mem_array(uint32_t, n_prompt + n_out);
	double *margins = doubles(json_object_get(c, "margins"), n_out);
	double *logprobs = doubles(json_object_get(c, "logprobs"), n_out);
	json_t **top8 = mem_array(json_t *, n_top8);
	struct msg_step_result out;

	memcpy(tokens, prompt, n_prompt * sizeof(*tokens));
	memcpy(tokens + n_prompt, out_ids, n_out * sizeof(*tokens));
	for (size_t i = 0; i < n_top8; i++) top8[i] = json_array_get(json_object_get(c, "top8"), i);
	run_prefill(r, tokens, (uint32_t)n_prompt - 1);
	r->top8 = top8;
	r->n_top8 = (uint32_t)n_top8;
	r->next = out_ids;
	run_forced(r, tokens, (uint32_t)n_prompt - 1, (uint32_t)n_out, &out);
	check_drawn(r, &out, logprobs, r->limits.top8_worst);
	for (size_t i = 0; i < n_out; i++) {
		r->n_steps++;
		if (r->argmax[i] == out_ids[i])
			r->n_agree++;
		else if (margins[i] > r->flip_worst)
			r->flip_worst = margins[i];
	}
	run_forget(r);
	r->top8 = NULL;
	r->next = NULL;
	free(prompt);
	free(out_ids);
	free(tokens);
	free(margins);
	free(logprobs);
	free(top8);
}

/* One prompt, running freely: equal up to the first step with a low margin. */
static void run_free(struct run *r, json_t *c)
{
	size_t n_prompt, n_out;
	uint32_t *prompt = golden_u32s(json_object_get(c, "prompt_ids"), &n_prompt);
	uint32_t *want = golden_u32s(json_object_get(c, "greedy_ids"), &n_out);
	double *margins = doubles(json_object_get(c, "margins"), n_out);
	struct stepper_params greedy = stepper_greedy();
	struct msg_step_result out;

	stepper_add(&r->s, 0, prompt, (uint32_t)n_prompt, (uint32_t)n_prompt, &greedy);
	stepper_grow_range(&r->s, 0, 0, (uint32_t)div_up(n_prompt + n_out, KBLOCK_LEN));
	for (uint32_t at = 0, m; at < n_prompt; at += m) {
		m = min_u32((uint32_t)n_prompt - at, 100);
		stepper_run(&r->s, 0, at, m, at + m == n_prompt);
		run_step(r, &out);
	}
	for (uint32_t i = 0; i < n_out; i++) {
		if (col_u32(out.tokens, 0) != want[i]) {
			if (margins[i] >= 0.05)
				fail_msg("%s: token %u is %u, recorded %u", json_string_value(json_object_get(c, "id")),
					 i, col_u32(out.tokens, 0), want[i]);
			break;
		}
		if (i + 1 == n_out) break;
		stepper_run(&r->s, 0, (uint32_t)n_prompt + i, 1, true);
		run_step(r, &out);
	}
	run_forget(r);
	free(prompt);
	free(want);
	free(margins);
}

static void run_judge(const struct run *r, const char *what)
{
	double mean = r->err_sum / r->n_err, agree = (double)r->n_agree / r->n_steps;

	print_message("%s (%s): top-8 error mean %.5f worst %.5f, argmax %u/%u, largest margin flipped %.3f\n", what,
		      engine_device_name(r->e), mean, r->err_worst, r->n_agree, r->n_steps, r->flip_worst);
	assert_true(mean <= r->limits.top8_mean);
	assert_true(r->err_worst <= r->limits.top8_worst);
	assert_true(agree >= r->limits.agree_min);
	assert_true(r->flip_worst < r->limits.flip_margin);
}

/* All cases of a file, or those with at most so many tokens of prompt. */
static void run_file(struct run *r, const char *file, size_t prompt_max, bool free_too)
{
	FILE *f = golden_open(file);
	uint32_t n = 0;
	json_t *c;

	assert_non_null(f);
	while ((c = golden_next(f))) {
		if (json_array_size(json_object_get(c, "prompt_ids")) <= prompt_max) {
			run_case(r, c);
			if (free_too) run_free(r, c);
			n++;
		}
		json_decref(c);
	}
	fclose(f);
	assert_true(n > 0);
	run_judge(r, file);
}

static void run_ppl(struct run *r, const char *file, size_t texts_max, size_t tokens_max)
{
	FILE *f = golden_open(file);
	json_t *c;

	assert_non_null(f);
	for (size_t i = 0; i < texts_max && (c = golden_next(f)); i++) {
		size_t n;
		uint32_t *ids = golden_u32s(json_object_get(c, "ids"), &n);
		double *nll = doubles(json_object_get(c, "nll"), n - 1), ours = 0, want = 0;
		struct msg_step_result out;

		n = min_size(n, tokens_max);
		for (uint32_t at = 0, m; at + 1 < n; at += m) {
			m = min_u32((uint32_t)n - 1 - at, SEQS_MAX);
			r->next = ids + at + 1;
			run_forced(r, ids, at, m, &out);
			for (uint32_t k = 0; k < m; k++) {
				ours -= r->next_logprob[k];
				want += nll[at + k];
			}
			run_forget(r);
		}
		r->next = NULL;
		ours = exp(ours / (double)(n - 1));
		want = exp(want / (double)(n - 1));
		print_message("%s: perplexity %.4f over %zu tokens, recorded %.4f, ratio %.5f\n", file, ours, n - 1,
			      want, ours / want);
		assert_true(fabs(ours / want - 1) <= r->limits.ppl);
		free(ids);
		free(nll);
		json_decref(c);
	}
	fclose(f);
}

static const char *model_or_skip(const struct model *m)
{
	const char *path = getenv(m->env);

#ifdef SLUICE_SAN
	print_message("SKIPPED: whole models are too slow with sanitizers; the tiny ones run the same code\n");
	skip();
#endif
	if (!path || !*path) path = m->file;
	if (access(path, R_OK) == 0) return path;
	print_message("SKIPPED: %s is not there (%s)\n", path, m->missing);
	skip();
	return NULL;
}

static const char *model_data(const struct model *m, const char *what)
{
	static char name[64];

	snprintf(name, sizeof(name), "model/%s.%s", m->name, what);
	return name;
}

/* Names the first wrong layer of the recorded prompts. */
static void model_hidden(const struct model *m, const char *path)
{
	FILE *f = golden_open(model_data(m, "hidden.jsonl"));
	struct engine_opts o;
	json_t *line;
	double worst;

	assert_non_null(f);
	run_opts(&o, path, KACT_F32);
	while ((line = golden_next(f))) {
		json_t *info = json_pack("{s:o}", "hidden", line);
		const char *wrong = goldrun_first_wrong(&o, info, 0.001, &worst);

		if (wrong) fail_msg("%s: the first wrong state is %s", json_string_value(json_object_get(line, "id")), wrong);
		json_decref(info);
		if (!test_all) break;
	}
	fclose(f);
}

static void model_q8(void **state)
{
	const struct model *m = *state;
	struct run r;

	run_open(&r, model_or_skip(m), KACT_Q8);
	r.limits.ppl = m->ppl_q8;
	run_file(&r, model_data(m, "jsonl"), test_all ? SIZE_MAX : 35, false);
	run_ppl(&r, model_data(m, "ppl.jsonl"), test_all ? SIZE_MAX : 1, test_all ? SIZE_MAX : 200);
	run_close(&r);
}

static void model_f32(void **state)
{
	const struct model *m = *state;
	const char *path = model_or_skip(m);
	struct run r;

	model_hidden(m, path);
	run_open(&r, path, KACT_F32);
	run_file(&r, model_data(m, "jsonl"), test_all ? SIZE_MAX : 3, true);
	run_ppl(&r, model_data(m, "ppl.jsonl"), test_all ? SIZE_MAX : 1, test_all ? SIZE_MAX : 50);
	run_close(&r);
}

#define MODEL_TEST(f, m) \
	{                \
		.name = #m " " #f, .test_func = f, .initial_state = (void *)(uintptr_t)&m}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		MODEL_TEST(model_q8, smollm2),
		MODEL_TEST(model_f32, smollm2),
		MODEL_TEST(model_q8, gemma3),
		MODEL_TEST(model_f32, gemma3),
	};

	test_all = argc > 1 && strcmp(argv[1], "--all") == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
