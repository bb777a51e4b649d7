/* test_golden_tiny.c - every tiny checkpoint of the golden data: all families, all mechanisms, number formats and
 * spellings.
 *
 * With f32 activations the logits must be those of the reference, whether a prompt runs whole or in chunks, forced or
 * drawn freely; hidden states name the first wrong layer. With activations and KV cache as they are by default, within
 * the tolerances of the golden data's README. Where ../shared is not, the checkpoints that the project carries.
 * Arguments: names to run alone. */
#include "tests/support/goldrun.h"
#include "tests/support/tinyset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct goldrun_limits limits_f32 = {
	.mean = 0.005, .worst = 0.005, .median = 0.005, .agree_min = 0.99, .flip_margin = 0.05};
/* Products in f32, and a KV cache of half floats. */
static const struct goldrun_limits limits_half = {
	.mean = 0.05, .worst = 1, .median = 0.1, .agree_min = 0.98, .flip_margin = 0.2};
/* Tiny models are often undecided: 4-bit weights and 8-bit inputs turn one step of twenty. */
static const struct goldrun_limits limits_q8 = {
	.mean = 0.25, .worst = 1.8, .median = 0.35, .agree_min = 0.93, .flip_margin = 0.5};
/* "Judge the median over prompts and the share of equal argmaxes." */
static const struct goldrun_limits limits_moe = {
	.mean = 0.5, .worst = 100, .median = 1, .agree_min = 0.9, .flip_margin = 100};

static void checkpoint_hidden(const struct tinyset *c, const struct engine_opts *o)
{
	const char *wrong;
	double worst;
	json_t *info = tinyset_info(c);

	wrong = goldrun_first_wrong(o, info, 0.001, &worst);
	if (wrong) fail_msg("%s: the first wrong state is %s", c->name, wrong);
	print_message("%s: hidden states differ by %.6f of their size at most\n", c->name, worst);
	json_decref(info);
}

static void logits_in_f32(void **state)
{
	const struct tinyset *c = *state;
	struct engine_opts o;
	struct goldcase k;
	struct goldrun r;
	char path[1024];
	FILE *f;

	if (!tinyset_opts(c, &o, path, sizeof(path))) skip();
	o.act = KACT_F32;
	o.kv_type = GGTYPE_F32;
	checkpoint_hidden(c, &o);
	f = tinyset_cases(c);
	goldrun_open(&r, &o);
	while (goldcase_next(&k, f)) {
		goldrun_forced(&r, &k, 0);
		goldrun_free(&r, &k, 7, limits_f32.flip_margin);
		goldcase_release(&k);
	}
	goldrun_judge(&r, &limits_f32, c->name);
	goldrun_close(&r);
	fclose(f);
}

static void logits_by_default(void **state)
{
	const struct tinyset *c = *state;
	struct engine_opts o;
	struct goldcase k;
	struct goldrun r;
	char path[1024];
	FILE *f;

	if (!tinyset_opts(c, &o, path, sizeof(path))) skip();
	f = tinyset_cases(c);
	goldrun_open(&r, &o);
	while (goldcase_next(&k, f)) {
		goldrun_forced(&r, &k, 33);
		goldcase_release(&k);
	}
	goldrun_judge(&r, c->moe ? &limits_moe : c->q8 ? &limits_q8 : &limits_half, c->name);
	goldrun_close(&r);
	fclose(f);
}

/* What a KV cache of a type costs, with everything else in f32. Measured; the mean error follows the types' mantissas: 10, 7, about 7
 * (int8 has a scale a head), 3 bits. */
static const struct kv_row {
	enum ggtype type;
	const char *name;
	struct goldrun_limits dense, touchy;
} kv_rows[] = {
	{GGTYPE_F16,
	 "f16",
	 {.mean = 0.005, .worst = 0.03, .median = 0.02, .agree_min = 0.98, .flip_margin = 0.05},
	 {.mean = 0.05, .worst = 100, .median = 0.05, .agree_min = 0.98, .flip_margin = 100}},
	{GGTYPE_BF16,
	 "bf16",
	 {.mean = 0.04, .worst = 0.3, .median = 0.1, .agree_min = 0.97, .flip_margin = 0.2},
	 {.mean = 0.15, .worst = 100, .median = 0.3, .agree_min = 0.93, .flip_margin = 100}},
	{GGTYPE_I8,
	 "int8",
	 {.mean = 0.1, .worst = 0.6, .median = 0.35, .agree_min = 0.94, .flip_margin = 0.4},
	 {.mean = 0.3, .worst = 100, .median = 1.5, .agree_min = 0.88, .flip_margin = 100}},
	{GGTYPE_F8_E4M3,
	 "fp8",
	 {.mean = 0.5, .worst = 3, .median = 1.5, .agree_min = 0.8, .flip_margin = 2},
	 {.mean = 1.5, .worst = 100, .median = 8, .agree_min = 0.5, .flip_margin = 100}},
};
#define KV_PROMPT_MAX 64 /* enough for several blocks, and beyond the windows */

static void logits_with_each_kv_type(void **state)
{
	const struct tinyset *c = *state;
	struct engine_opts o;
	char path[1024];

	if (!tinyset_opts(c, &o, path, sizeof(path))) skip();
	o.act = KACT_F32;
	for (size_t i = 0; i < ARRAY_LEN(kv_rows); i++) {
		char what[96];
		struct goldcase k;
		struct goldrun r;
		FILE *f = tinyset_cases(c);

		o.kv_type = kv_rows[i].type;
		goldrun_open(&r, &o);
		while (goldcase_next(&k, f)) {
			if (k.n_prompt <= KV_PROMPT_MAX) goldrun_forced(&r, &k, 33);
			goldcase_release(&k);
		}
		snprintf(what, sizeof(what), "%s, KV cache %s", c->name, kv_rows[i].name);
		goldrun_judge(&r, c->moe || c->sharp ? &kv_rows[i].touchy : &kv_rows[i].dense, what);
		goldrun_close(&r);
		fclose(f);
	}
}

int main(int argc, char **argv)
{
	static tinyset_test *const tests[] = {logits_in_f32, logits_by_default, logits_with_each_kv_type};
	static const char *const names[] = {"in f32", "by default", "with each KV type"};

	return tinyset_main("golden_tiny", tests, names, ARRAY_LEN(tests), argc, argv);
}
