/* goldrun.c - see goldrun.h. */
#include "tests/support/goldrun.h"

#include "common/mem.h"
#include "tests/support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDRUN_BLOCKS 40 /* of a KV group: 640 tokens */

bool goldcase_next(struct goldcase *c, FILE *f)
{
	const json_t *margins;

	*c = (struct goldcase){.json = golden_next(f)};
	if (!c->json) return false;
	c->id = json_string_value(json_object_get(c->json, "id"));
	c->prompt = golden_u32s(json_object_get(c->json, "prompt_ids"), &c->n_prompt);
	c->out = golden_u32s(json_object_get(c->json, "greedy_ids"), &c->n_out);
	margins = json_object_get(c->json, "margins");
	assert_int_equal(json_array_size(margins), c->n_out);
	c->margins = mem_array(double, c->n_out);
	for (size_t i = 0; i < c->n_out; i++) c->margins[i] = json_number_value(json_array_get(margins, i));
	return true;
}

void goldcase_release(struct goldcase *c)
{
	json_decref(c->json);
	free(c->prompt);
	free(c->out);
	free(c->margins);
	*c = (struct goldcase){0};
}

static void goldrun_top8(struct goldrun *r, const json_t *top8, const float *logits, uint32_t vocab)
{
	for (size_t i = 0; i < json_array_size(top8); i++) {
		const json_t *pair = json_array_get(top8, i);
		uint64_t id = (uint64_t)json_integer_value(json_array_get(pair, 0));
		double err;

		assert_true(id < vocab);
		err = fabs((double)logits[id] - json_number_value(json_array_get(pair, 1)));
		r->err_sum += err;
		r->n_err++;
		if (!(err <= r->worst_of[r->n_cases])) r->worst_of[r->n_cases] = err;
		if (!(err <= r->err_worst)) r->err_worst = err;
	}
}

static void goldrun_on_logits(void *ctx, uint32_t slot, const float *logits, uint32_t vocab)
{
	struct goldrun *r = ctx;
	uint32_t best = 0, step = r->step++;

	if (!r->c || step >= r->c->n_out) return;
	for (uint32_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best]) best = i;
	goldrun_top8(r, json_array_get(json_object_get(r->c->json, "top8"), step), logits, vocab);
	r->n_steps++;
	if (best == r->c->out[step])
		r->n_agree++;
	else if (r->c->margins[step] > r->flip_worst)
		r->flip_worst = r->c->margins[step];
}

void goldrun_open(struct goldrun *r, const struct engine_opts *opts)
{
	struct engine_opts o = *opts;
	struct errbuf err = {{0}};

	*r = (struct goldrun){0};
	stepper_init(&r->s);
	o.seqs_max = 4;
	o.batched_tokens_max = GOLDRUN_BATCH;
	o.on_logits = goldrun_on_logits;
	o.ctx = r;
	if (engine_load(&r->e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	r->s.n_groups = max_u32(1, kvgroups_n(engine_kvgroups(r->e)));
	r->s.group_blocks = GOLDRUN_BLOCKS;
	if (engine_kv_init(r->e, r->s.n_groups * GOLDRUN_BLOCKS, &err) != ST_OK) fail_msg("%s", err.text);
}

void goldrun_close(struct goldrun *r)
{
	engine_free(r->e);
	stepper_release(&r->s);
}

static void goldrun_step(struct goldrun *r, struct msg_step_result *out)
{
	if (engine_step(r->e, stepper_message(&r->s), out) != ST_OK) fail_msg("%s", engine_why(r->e));
	stepper_next(&r->s);
}

static void goldrun_end(struct goldrun *r)
{
	engine_reset(r->e);
	r->c = NULL;
	r->n_cases++;
	assert_true(r->n_cases < GOLDRUN_CASES_MAX);
}

/* Positions 0 .. n - 1 of slot 0 in chunks; the last may draw. */
static void goldrun_prefill(struct goldrun *r, uint32_t n, uint32_t chunk, bool sample, struct msg_step_result *out)
{
	chunk = chunk ? chunk : GOLDRUN_BATCH;
	for (uint32_t at = 0, m; at < n; at += m) {
		m = min_u32(n - at, chunk);
		stepper_run(&r->s, 0, at, m, sample && at + m == n);
		goldrun_step(r, out);
	}
}

void goldrun_forced(struct goldrun *r, const struct goldcase *c, uint32_t chunk)
{
	struct stepper_params p = stepper_greedy();
	uint32_t n_prompt = (uint32_t)c->n_prompt, n = n_prompt + (uint32_t)c->n_out, *tokens = mem_array(uint32_t, n);
	struct msg_step_result out;

	memcpy(tokens, c->prompt, n_prompt * sizeof(*tokens));
	memcpy(tokens + n_prompt, c->out, c->n_out * sizeof(*tokens));
	p.n_prompt_logprobs = 1;
	p.n_prompt_known = n_prompt;
	stepper_add(&r->s, 0, tokens, n, n, &p);
	stepper_grow_range(&r->s, 0, 0, (uint32_t)div_up(n, KBLOCK_LEN));
	r->c = c;
	r->step = 0;
	goldrun_prefill(r, n - 1, chunk, false, &out);
	assert_int_equal(r->step, c->n_out);
	goldrun_end(r);
	free(tokens);
}

void goldrun_free(struct goldrun *r, const struct goldcase *c, uint32_t chunk, double flip_margin)
{
	struct stepper_params greedy = stepper_greedy();
	uint32_t n_prompt = (uint32_t)c->n_prompt, token;
	struct msg_step_result out;

	stepper_add(&r->s, 0, c->prompt, n_prompt, n_prompt, &greedy);
	stepper_grow_range(&r->s, 0, 0, (uint32_t)div_up(n_prompt + c->n_out, KBLOCK_LEN));
	r->c = c;
	r->step = 0;
	goldrun_prefill(r, n_prompt, chunk, true, &out);
	for (uint32_t i = 0; i < c->n_out; i++) {
		token = col_u32(out.tokens, 0);
		if (token != c->out[i]) {
			if (c->margins[i] >= flip_margin)
				fail_msg("%s: token %u is %u, recorded %u", c->id, i, token, c->out[i]);
			break;
		}
		if (i + 1 == c->n_out) break;
		stepper_run(&r->s, 0, n_prompt + i, 1, true);
		goldrun_step(r, &out);
	}
	goldrun_end(r);
}

static int goldrun_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void goldrun_judge(const struct goldrun *r, const struct goldrun_limits *l, const char *what)
{
	double worst[GOLDRUN_CASES_MAX], mean = r->err_sum / r->n_err, agree = (double)r->n_agree / r->n_steps, median;

	assert_true(r->n_cases > 0 && r->n_steps > 0);
	memcpy(worst, r->worst_of, sizeof(worst));
	qsort(worst, r->n_cases, sizeof(*worst), goldrun_compare);
	median = worst[r->n_cases / 2];
	print_message("%s (%s): %u runs, top-8 error mean %.5f, worst %.5f, median of runs %.5f; argmax %u/%u, largest "
		      "margin flipped %.3f\n",
		      what, engine_device_name(r->e), r->n_cases, mean, r->err_worst, median, r->n_agree, r->n_steps,
		      r->flip_worst);
	assert_true(mean <= l->mean);
	assert_true(r->err_worst <= l->worst);
	assert_true(median <= l->median);
	assert_true(agree >= l->agree_min);
	assert_true(r->flip_worst < l->flip_margin);
}

/* ---- the first wrong layer ---- */

struct goldrun_hidden {
	const json_t
		*layers; /* entry 0: the embedding; then each layer's output, but for the last one the last norm's */
	uint32_t n_layers;
	uint32_t dim;
	double limit, worst;
	char first[160];
};

static void goldrun_on_hidden(void *ctx, uint32_t layer, const float *state)
{
	struct goldrun_hidden *h = ctx;
	const json_t *want;
	double sum = 0, rms, size, err;

	if (layer == h->n_layers) return; /* not recorded */
	want = json_array_get(h->layers, layer > h->n_layers ? h->n_layers : layer);
	size = json_number_value(json_array_get(want, 0));
	for (uint32_t i = 0; i < h->dim; i++) sum += (double)state[i] * (double)state[i];
	rms = sqrt(sum / h->dim);
	err = fabs(rms - size) / size;
	for (uint32_t i = 0; i + 1 < json_array_size(want); i++) {
		double e = fabs((double)state[i] - json_number_value(json_array_get(want, i + 1))) / size;

		if (!(e <= err)) err = e;
	}
	if (!(err <= h->worst)) h->worst = err;
	if (err <= h->limit || h->first[0]) return;
	snprintf(h->first, sizeof(h->first), "%s %u of %u: rms %.4f, recorded %.4f; largest error %.4f of it",
		 layer == 0            ? "the embedding, layer"
		 : layer > h->n_layers ? "the last norm, behind layer"
				       : "the output of layer",
		 min_u32(layer, h->n_layers), h->n_layers, rms, size, err);
}

const char *goldrun_first_wrong(const struct engine_opts *opts, const json_t *info, double limit, double *worst)
{
	static struct goldrun_hidden h;
	const json_t *hidden = json_object_get(info, "hidden");
	struct stepper_params greedy = stepper_greedy();
	struct engine_opts o = *opts;
	struct msg_step_result out;
	struct errbuf err = {{0}};
	struct stepper s;
	struct engine *e;
	size_t n;
	uint32_t *prompt = golden_u32s(json_object_get(hidden, "prompt_ids"), &n);

	h = (struct goldrun_hidden){.layers = json_object_get(hidden, "layers"), .limit = limit};
	o.on_hidden = goldrun_on_hidden;
	o.ctx = &h;
	if (engine_load(&e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	h.dim = engine_spec(e)->dim;
	h.n_layers = engine_spec(e)->n_layers;
	assert_int_equal(json_array_size(h.layers), h.n_layers + 1);
	stepper_init(&s);
	s.n_groups = max_u32(1, kvgroups_n(engine_kvgroups(e)));
	s.group_blocks = GOLDRUN_BLOCKS;
	if (engine_kv_init(e, s.n_groups * GOLDRUN_BLOCKS, &err) != ST_OK) fail_msg("%s", err.text);
	stepper_add(&s, 0, prompt, (uint32_t)n, (uint32_t)n, &greedy);
	stepper_grow_range(&s, 0, 0, (uint32_t)div_up(n, KBLOCK_LEN));
	stepper_run(&s, 0, 0, (uint32_t)n, true);
	if (engine_step(e, stepper_message(&s), &out) != ST_OK) fail_msg("%s", engine_why(e));
	stepper_release(&s);
	engine_free(e);
	free(prompt);
	*worst = h.worst;
	return h.first[0] ? h.first : NULL;
}
