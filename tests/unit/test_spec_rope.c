/* test_spec_rope.c - frequencies of rotations against those that transformers computes (modeling_rope_utils.py's ROPE_INIT_FUNCTIONS of
 * version 5.24, in float32, recorded): the formulas with sizes of published models, and the way there from config.json's settings. */
#include "model/ckpt.h"
#include "model/rope.h"
#include "model/spec.h"
#include "tests/support/golden.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void same_freqs(const char *where, const struct spec_rope *rope, uint32_t n, const double *expected)
{
	uint32_t i;

	if (rope->dims != 2 * n) fail_msg("%s: %u elements are rotated; expected %u", where, rope->dims, 2 * n);
	for (i = 0; i < n; i++)
		if (fabs(rope->freqs[i] / expected[i] - 1) > 1e-6)
			fail_msg("%s: frequency %u is %.9g; expected %.9g", where, i, rope->freqs[i], expected[i]);
}

/* clang-format off */
static const struct {
	const char *name;
	struct rope_params params;
	uint32_t n;
	double freqs[64];
} formulas[] = {
	{"llama3.1", {.base = 500000, .dims = 128, .kind = ROPE_LLAMA3, .factor = 8, .original = 8192, .low_freq = 1, .high_freq = 4}, 64, {1.00000000e+00, 8.14617217e-01, 6.63601279e-01, 5.40580988e-01, 4.40366626e-01, 3.58730227e-01, 2.92227834e-01, 2.38053814e-01, 1.93922758e-01, 1.57972813e-01, 1.28687382e-01, 1.04830950e-01, 8.53971019e-02, 6.95659518e-02, 5.66696189e-02, 4.61640507e-02, 3.76060307e-02, 3.06345206e-02, 2.49554086e-02, 2.03291047e-02, 1.65604409e-02, 1.34904198e-02, 1.09895291e-02, 8.95225909e-03, 7.29266508e-03, 5.94073068e-03, 4.83942125e-03, 3.94227589e-03, 3.21144611e-03, 2.16657063e-03, 1.37189368e-03, 8.56751460e-04, 5.24846022e-04, 3.12693650e-04, 1.78507791e-04, 9.55621217e-05, 7.78465546e-05, 6.34151438e-05, 5.16590699e-05, 4.20823671e-05, 3.42810235e-05, 2.79259093e-05, 2.27489290e-05, 1.85316694e-05, 1.50962178e-05, 1.22976389e-05, 1.00178686e-05, 8.16072770e-06, 6.64786967e-06, 5.41546933e-06, 4.41153452e-06, 3.59371188e-06, 2.92749974e-06, 2.38479174e-06, 1.94269251e-06, 1.58255079e-06, 1.28917316e-06, 1.05018262e-06, 8.55496921e-07, 6.96902532e-07, 5.67708810e-07, 4.62465380e-07, 3.76732260e-07, 3.06892588e-07}},
	{"linear", {.base = 10000, .dims = 32, .kind = ROPE_LINEAR, .factor = 2.5}, 16, {4.00000006e-01, 2.24936530e-01, 1.26491100e-01, 7.11311772e-02, 3.99999991e-02, 2.24936511e-02, 1.26491114e-02, 7.11311772e-03, 3.99999972e-03, 2.24936521e-03, 1.26491114e-03, 7.11311761e-04, 4.00000019e-04, 2.24936521e-04, 1.26491112e-04, 7.11311732e-05}},
	{"ds3", {.base = 10000, .dims = 64, .kind = ROPE_YARN, .factor = 40, .original = 4096, .beta_fast = 32, .beta_slow = 1, .truncate = true}, 32, {1.00000000e+00, 7.49894202e-01, 5.62341332e-01, 4.21696514e-01, 3.16227764e-01, 2.37137362e-01, 1.77827939e-01, 1.33352146e-01, 1.00000001e-01, 7.49894157e-02, 5.62341288e-02, 3.90069261e-02, 2.68793609e-02, 1.83781441e-02, 1.24479560e-02, 8.33450910e-03, 5.50000044e-03, 3.56199732e-03, 2.24936521e-03, 1.37051346e-03, 7.90569407e-04, 4.14990413e-04, 1.77827940e-04, 3.33380340e-05, 2.49999994e-05, 1.87473543e-05, 1.40585325e-05, 1.05424124e-05, 7.90569447e-06, 5.92843435e-06, 4.44569832e-06, 3.33380353e-06}},
	{"gptoss", {.base = 150000, .dims = 64, .kind = ROPE_YARN, .factor = 32, .original = 4096, .beta_fast = 32, .beta_slow = 1}, 32, {1.00000000e+00, 6.89044297e-01, 4.74782050e-01, 3.27145875e-01, 2.25418001e-01, 1.55322984e-01, 1.07024424e-01, 7.37445652e-02, 5.08132726e-02, 3.17056961e-02, 1.93349998e-02, 1.15920492e-02, 6.79495931e-03, 3.86035908e-03, 2.09379266e-03, 1.05260219e-03, 4.56483918e-04, 1.29318694e-04, 3.83088118e-05, 2.63964685e-05, 1.81883370e-05, 1.25325696e-05, 8.63549576e-06, 5.95023948e-06, 4.09997847e-06, 2.82506676e-06, 1.94659629e-06, 1.34129095e-06, 9.24208962e-07, 6.36820914e-07, 4.38797855e-07, 3.02351140e-07}},
	{"qwen yarn", {.base = 1e6, .dims = 64, .kind = ROPE_YARN, .factor = 4, .original = 32768, .beta_fast = 32, .beta_slow = 1, .truncate = true}, 32, {1.00000000e+00, 6.49381638e-01, 4.21696514e-01, 2.73841977e-01, 1.77827939e-01, 1.15478203e-01, 7.49894157e-02, 4.86967526e-02, 3.16227786e-02, 2.05352511e-02, 1.33352149e-02, 8.65964312e-03, 5.15479548e-03, 3.04311770e-03, 1.77853031e-03, 1.02661771e-03, 5.83333371e-04, 3.24690831e-04, 1.75706868e-04, 9.12806499e-05, 4.44569851e-05, 2.88695483e-05, 1.87473561e-05, 1.21741887e-05, 7.90569356e-06, 5.13381246e-06, 3.33380353e-06, 2.16491094e-06, 1.40585337e-06, 9.12935320e-07, 5.92843435e-07, 3.84981632e-07}},
};

static const struct {
	const char *folder, *overrides;
	uint32_t model_len, rope; /* which of the description's */
	double mscale;
	uint32_t n;
	double freqs[8];
} settings[] = {
	{"tiny/llama-gptq", "{}", 0, 0, 1, 8, {1.00000000e+00, 1.93922758e-01, 3.76060307e-02, 7.29266508e-03, 1.41421345e-03, 2.74248188e-04, 5.31829573e-05, 1.03133852e-05}},
	{"tiny/llama-gptq", "{\"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64, \"rope_type\": \"llama3\"}}", 0, 0, 1, 8, {1.00000000e+00, 7.94030130e-02, 4.70075384e-03, 9.11583134e-04, 1.76776681e-04, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
	{"tiny/llama-gptq", "{\"rope_theta\": null, \"rope_parameters\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64, \"rope_type\": \"llama3\", \"rope_theta\": 500000.0}}", 0, 0, 1, 8, {1.00000000e+00, 7.94030130e-02, 4.70075384e-03, 9.11583134e-04, 1.76776681e-04, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
	{"tiny/llama-gptq", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", 0, 0, 1, 8, {4.00000006e-01, 7.75691047e-02, 1.50424121e-02, 2.91706598e-03, 5.65685390e-04, 1.09699278e-04, 2.12731829e-05, 4.12535428e-06}},
	{"tiny/llama-gptq", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 128}}", 0, 0, 1.13862944, 8, {1.00000000e+00, 1.21201724e-01, 9.40150768e-03, 1.82316627e-03, 3.53553361e-04, 6.85620471e-05, 1.32957393e-05, 2.57834631e-06}},
	{"tiny/qwen2", "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 128, \"beta_fast\": 16, \"beta_slow\": 2, \"attention_factor\": 1.25}}", 0, 0, 1.25, 8, {1.00000000e+00, 1.11142464e-01, 7.90569466e-03, 1.40585331e-03, 2.50000012e-04, 4.44569851e-05, 7.90569356e-06, 1.40585337e-06}},
	{"tiny/phi3", "{}", 0, 0, 1, 4, {1.00000000e+00, 1.00000001e-01, 9.99999978e-03, 1.00000005e-03}},
	{"tiny/phi3", "{\"original_max_position_embeddings\": 128, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1.0, 1.1, 1.2, 1.5], \"long_factor\": [1.0, 2.0, 4.0, 8.5]}}", 128, 0, 1.13389342, 4, {1.00000000e+00, 9.09090936e-02, 8.33333284e-03, 6.66666660e-04}},
	{"tiny/phi3", "{\"original_max_position_embeddings\": 128, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1.0, 1.1, 1.2, 1.5], \"long_factor\": [1.0, 2.0, 4.0, 8.5]}}", 129, 0, 1.13389342, 4, {1.00000000e+00, 5.00000007e-02, 2.49999994e-03, 1.17647061e-04}},
	{"tiny/deepseek-v2", "{}", 0, 0, 1, 4, {1.00000000e+00, 1.00000001e-01, 9.99999978e-03, 1.00000005e-03}},
	{"tiny/deepseek-v3", "{}", 0, 0, 1, 4, {1.00000000e+00, 6.25000000e-02, 2.49999994e-03, 2.50000012e-04}},
	{"tiny/deepseek-v3", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 128, \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 0.707, \"mscale_all_dim\": 1.0}}", 0, 0, 0.964326915, 4, {1.00000000e+00, 6.25000000e-02, 2.49999994e-03, 2.50000012e-04}},
	{"tiny/gpt-oss", "{}", 0, 0, 1.13862944, 8, {1.00000000e+00, 1.41855359e-01, 1.31402258e-02, 2.86355661e-03, 6.45497232e-04, 1.45506696e-04, 3.27998277e-05, 7.39367169e-06}},
	{"tiny/qwen3-next", "{}", 0, 0, 1, 4, {1.00000000e+00, 1.77827943e-02, 3.16227786e-04, 5.62341347e-06}},
	{"tiny/gemma3", "{}", 0, 0, 1, 8, {1.00000000e+00, 1.77827939e-01, 3.16227786e-02, 5.62341325e-03, 1.00000005e-03, 1.77827940e-04, 3.16227743e-05, 5.62341347e-06}},
	{"tiny/gemma3", "{}", 0, 1, 1, 8, {1.00000000e+00, 3.16227764e-01, 1.00000001e-01, 3.16227786e-02, 9.99999978e-03, 3.16227786e-03, 1.00000005e-03, 3.16227786e-04}},
	{"tiny/gemma3", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}}", 0, 0, 1, 8, {1.25000000e-01, 2.22284924e-02, 3.95284733e-03, 7.02926656e-04, 1.25000006e-04, 2.22284925e-05, 3.95284678e-06, 7.02926684e-07}},
	{"tiny/gemma3", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}}", 0, 1, 1, 8, {1.00000000e+00, 3.16227764e-01, 1.00000001e-01, 3.16227786e-02, 9.99999978e-03, 3.16227786e-03, 1.00000005e-03, 3.16227786e-04}},
	{"tiny/gemma3", "{\"rope_theta\": null, \"rope_local_base_freq\": null, \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, \"rope_theta\": 1000000.0}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 20000.0}}}", 0, 0, 1, 8, {1.25000000e-01, 2.22284924e-02, 3.95284733e-03, 7.02926656e-04, 1.25000006e-04, 2.22284925e-05, 3.95284678e-06, 7.02926684e-07}},
	{"tiny/gemma3", "{\"rope_theta\": null, \"rope_local_base_freq\": null, \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, \"rope_theta\": 1000000.0}, \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 20000.0}}}", 0, 1, 1, 8, {1.00000000e+00, 2.89982140e-01, 8.40896443e-02, 2.43844949e-02, 7.07106804e-03, 2.05048337e-03, 5.94603538e-04, 1.72424421e-04}},
};
/* clang-format on */

static void formulas_give_the_recorded_frequencies(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(formulas); i++) {
		struct spec_rope rope;

		rope_fill(&rope, &formulas[i].params);
		same_freqs(formulas[i].name, &rope, formulas[i].n, formulas[i].freqs);
		free(rope.freqs);
	}
	assert_true(fabs(rope_yarn_mscale(32, 1) - 1.34657359) < 1e-8 && rope_yarn_mscale(1, 1) == 1);
	assert_true(fabs(rope_yarn_mscale(40, 0.707) / rope_yarn_mscale(40, 1) - 0.921042355) < 1e-8);
	assert_true(fabs(rope_long_mscale(32, 4096) - 1.19023807) < 1e-8 && rope_long_mscale(0.5, 4096) == 1);
}

static void settings_lead_to_the_recorded_frequencies(void **state)
{
	size_t i, n_seen = 0;

	for (i = 0; i < ARRAY_LEN(settings); i++) {
		json_t *overrides = json_loads(settings[i].overrides, 0, NULL);
		struct spec_opts opts = {.model_len_max = settings[i].model_len, .overrides = overrides};
		struct ckpt *c = NULL;
		struct errbuf err;
		char folder[512];
		struct spec s;

		if (golden_folder(settings[i].folder, folder, sizeof(folder))) {
			if (ckpt_open(&c, folder, &err) != ST_OK) fail_msg("%s", err.text);
			if (spec_read(&s, c, &opts, &err) != ST_OK) fail_msg("case %zu: %s", i, err.text);
			assert_true(settings[i].rope < s.n_ropes);
			same_freqs(settings[i].folder, &s.ropes[settings[i].rope], settings[i].n, settings[i].freqs);
			if (fabs(s.ropes[settings[i].rope].mscale - settings[i].mscale) > 1e-8)
				fail_msg("case %zu: mscale is %.9g; expected %.9g", i, s.ropes[settings[i].rope].mscale, settings[i].mscale);
			spec_release(&s);
			ckpt_close(c);
			n_seen++;
		}
		json_decref(overrides);
	}
	assert_int_equal(n_seen, ARRAY_LEN(settings)); /* the project carries these folders */
}

static uint32_t context_of(const char *name, const char *text)
{
	json_t *overrides = json_loads(text, 0, NULL);
	struct spec_opts opts = {.overrides = overrides};
	struct ckpt *c = NULL;
	struct errbuf err;
	char folder[512];
	struct spec s;
	uint32_t len;

	assert_true(golden_folder(name, folder, sizeof(folder)));
	assert_int_equal(ckpt_open(&c, folder, &err), ST_OK);
	if (spec_read(&s, c, &opts, &err) != ST_OK) fail_msg("%s", err.text);
	len = s.context_len;
	spec_release(&s);
	ckpt_close(c);
	json_decref(overrides);
	return len;
}

/* vLLM's rule for --max-model-len when it is not given. */
static void scalings_stretch_the_context(void **state)
{
	assert_int_equal(context_of("tiny/qwen2", "{}"), 512);
	assert_int_equal(context_of("tiny/qwen2", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}"), 2048);
	assert_int_equal(context_of("tiny/qwen2", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}"), 2048);
	assert_int_equal(context_of("tiny/qwen2", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 100}}"),
			 400);
	assert_int_equal(context_of("tiny/deepseek-v3", "{}"), 512);
	assert_int_equal(context_of("tiny/gemma3", "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}}"), 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formulas_give_the_recorded_frequencies),
		cmocka_unit_test(settings_lead_to_the_recorded_frequencies),
		cmocka_unit_test(scalings_stretch_the_context),
	};

	return cmocka_run_group_tests_name("spec_rope", tests, NULL, NULL);
}
