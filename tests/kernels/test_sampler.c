/* test_sampler.c - the distribution that a draw is made from, exactly; draws by frequency; log-probabilities; odd rows.
 */
#include "tests/kernels/golden.h"

#include "kernels/sampler.h"

static const struct cpu_level *level = &cpu_level_ref;
static size_t n_run;

static void sampler_of(struct sampler *s, const float *logits, uint32_t vocab, const struct ksample *params,
		       const uint32_t *extra)
{
	*s = (struct sampler){.logits = logits,
			      .vocab = vocab,
			      .params = params,
			      .extra = extra,
			      .math = &level->sampler,
			      .p = aligned_alloc(64, align_up(sampler_scratch_bytes(vocab), 64))};
}

static float number_or(const json_t *o, const char *key, float fallback)
{
	const json_t *v = json_object_get(o, key);

	return v ? (float)json_number_value(v) : fallback;
}

/* The lists of a case as words for the sampler. */
struct lists {
	uint32_t words[4096], n;
	struct ksample params;
};

static uint32_t lists_at(struct lists *l)
{
	l->n = (l->n + 1) & ~1u;
	return l->n;
}

static void lists_push(struct lists *l, uint32_t word)
{
	assert_true(l->n < ARRAY_LEN(l->words));
	l->words[l->n++] = word;
}

static void lists_allowed(struct lists *l, const json_t *ids, uint32_t vocab)
{
	if (!ids) return;
	l->params.has_mask = true;
	l->params.mask_at = lists_at(l);
	for (uint32_t i = 0; i < div_up(vocab, 32); i++) lists_push(l, 0);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i));

		l->words[l->params.mask_at + id / 32] |= 1u << id % 32;
	}
}

static void lists_bias(struct lists *l, const json_t *bias)
{
	const char *key;
	json_t *value;

	l->params.bias_at = lists_at(l);
	json_object_foreach((json_t *)bias, key, value)
	{
		float x = (float)json_number_value(value);
		uint32_t bits;

		memcpy(&bits, &x, sizeof(bits));
		lists_push(l, (uint32_t)atoi(key));
		lists_push(l, bits);
		l->params.n_bias++;
	}
}

static void lists_seen(struct lists *l, const json_t *ids, bool is_prompt)
{
	for (size_t i = 0; i < json_array_size(ids); i++) {
		uint32_t id = (uint32_t)json_integer_value(json_array_get(ids, i)), *pair = l->words + l->params.seen_at, k = 0;

		while (k < l->params.n_seen && pair[2 * k] != id) k++;
		if (k == l->params.n_seen) {
			lists_push(l, id);
			lists_push(l, 0);
			l->params.n_seen++;
		}
		if (is_prompt) pair[2 * k + 1] |= KSEEN_PROMPT;
		else pair[2 * k + 1]++;
	}
}

static void lists_of(struct lists *l, const json_t *o, uint32_t vocab)
{
	const json_t *in = json_object_get(o, "params"), *stops = json_object_get(in, "stop_token_ids");
	float top_k = number_or(in, "top_k", 0);

	*l = (struct lists){.params = {.top_p = number_or(in, "top_p", 1),
				       .temperature = number_or(in, "temperature", 1),
				       .min_p = number_or(in, "min_p", 0),
				       .top_k = top_k > 0 ? (uint32_t)top_k : 0,
				       .repetition = number_or(in, "repetition_penalty", 1),
				       .presence = number_or(in, "presence_penalty", 0),
				       .frequency = number_or(in, "frequency_penalty", 0),
				       .want_logprob = true,
				       .seed = 5}};
	lists_allowed(l, json_object_get(in, "allowed_token_ids"), vocab);
	l->params.banned_at = lists_at(l);
	if (number_or(in, "min_tokens", 0) > (float)json_array_size(json_object_get(o, "output_ids")))
		for (size_t i = 0; i < json_array_size(stops); i++, l->params.n_banned++)
			lists_push(l, (uint32_t)json_integer_value(json_array_get(stops, i)));
	lists_bias(l, json_object_get(in, "logit_bias"));
	l->params.seen_at = lists_at(l);
	lists_seen(l, json_object_get(o, "prompt_ids"), true);
	lists_seen(l, json_object_get(o, "output_ids"), false);
}

static float *floats_of(const json_t *values)
{
	float *x = malloc(json_array_size(values) * sizeof(float));

	for (size_t i = 0; i < json_array_size(values); i++) {
		const json_t *v = json_array_get(values, i);

		x[i] = json_is_null(v) ? -INFINITY : (float)json_number_value(v);
	}
	return x;
}

static void check_case(const json_t *o)
{
	const char *id = json_string_value(json_object_get(o, "id"));
	const json_t *want = json_object_get(json_object_get(o, "expected"), "vllm"),
		     *top = json_object_get(o, "raw_logprobs_top5");
	uint32_t vocab = (uint32_t)json_array_size(json_object_get(o, "logits"));
	float *x = floats_of(json_object_get(o, "logits")), *z = floats_of(json_object_get(o, "penalised_logits"));
	struct sampler s;
	struct ksampled out;
	struct lists l;
	double total;
	char key[16];

	assert_true(json_array_size(json_object_get(o, "penalised_logits")) == vocab);
	lists_of(&l, o, vocab);
	l.params.n_top = (uint32_t)json_array_size(top);
	sampler_of(&s, x, vocab, &l.params, l.words);
	assert_true(sampler_keep(&s, &total));
	for (uint32_t i = 0; i < vocab; i++) {
		double p = s.p[i] / total, expected;

		if (s.z[i] != z[i] && !(fabsf(s.z[i] - z[i]) <= 1e-5f * fmaxf(1, fabsf(z[i]))))
			fail_msg("%s: token %u: penalised to %.9g, want %.9g", id, i, (double)s.z[i], (double)z[i]);
		snprintf(key, sizeof(key), "%u", i);
		expected = json_number_value(json_object_get(want, key));
		if (!(fabs(p - expected) <= 1e-5) || (json_object_get(want, key) && expected > 1e-7 && p == 0))
			fail_msg("%s: token %u: %.9g, want %.9g", id, i, p, expected);
	}
	sampler_run(&s, &out);
	assert_int_equal(out.n_top, l.params.n_top);
	for (uint32_t i = 0; i < out.n_top; i++) {
		const json_t *pair = json_array_get(top, i);

		if (out.top_ids[i] != (uint32_t)json_integer_value(json_array_get(pair, 0)) ||
		    !(fabs(out.top_logprobs[i] - json_number_value(json_array_get(pair, 1))) <= 1e-5))
			fail_msg("%s: top %u is %u with %.9g", id, i, out.top_ids[i], (double)out.top_logprobs[i]);
	}
	snprintf(key, sizeof(key), "%u", out.token);
	assert_non_null(json_object_get(want, key));
	n_run++;
	free(s.p);
	free(x);
	free(z);
}

static void distributions_are_vllms(void **state)
{
	const struct cpu_level *const levels[] = {&cpu_level_ref, &cpu_level_avx2};

	for (size_t i = 0; i < ARRAY_LEN(levels) && i <= (size_t)klevel_of_cpu(); i++) {
		level = levels[i];
		golden_walk("sampling/cases.jsonl", check_case);
	}
	level = &cpu_level_ref;
	print_message("%zu checked\n", n_run);
	assert_true(n_run >= 181);
}

/* Draws with other positions follow the distribution: chi-square at a fixed seed, with a bound that only a wrong
 * generator exceeds (k - 1 degrees, mean k - 1, deviation sqrt(2 (k - 1))). */
static void check_frequencies(struct ksample params, uint32_t vocab, uint64_t seed)
{
	enum { DRAWS = 40000 };
	struct rig_rng r = {seed};
	float *x = rig_floats(&r, vocab);
	uint32_t *count = calloc(vocab, sizeof(*count)), kinds = 0;
	double total, chi = 0, *p = malloc(vocab * sizeof(*p)), rest = 0, rest_count = 0;
	struct sampler s;
	struct ksampled out;

	sampler_of(&s, x, vocab, &params, NULL);
	assert_true(sampler_keep(&s, &total));
	for (uint32_t i = 0; i < vocab; i++) p[i] = s.p[i] / total;
	for (uint32_t n = 0; n < DRAWS; n++) {
		params.position = n % 100;
		params.choice = n / 100 % 4;
		params.seed = seed + ((uint64_t)(n / 400) << 33);
		sampler_run(&s, &out);
		assert_true(out.token < vocab && p[out.token] > 0);
		count[out.token]++;
	}
	for (uint32_t i = 0; i < vocab; i++) {
		if (p[i] * DRAWS < 8) {
			rest += p[i] * DRAWS;
			rest_count += count[i];
			continue;
		}
		chi += (count[i] - p[i] * DRAWS) * (count[i] - p[i] * DRAWS) / (p[i] * DRAWS);
		kinds++;
	}
	if (rest > 8) {
		chi += (rest_count - rest) * (rest_count - rest) / rest;
		kinds++;
	}
	assert_true(kinds > 1);
	if (!(chi < kinds - 1 + 4 * sqrt(2.0 * (kinds - 1)))) fail_msg("chi-square %.1f over %u kinds", chi, kinds);
	free(s.p);
	free(x);
	free(count);
	free(p);
}

static void draws_follow_the_distribution(void **state)
{
	check_frequencies((struct ksample){.temperature = 1, .top_p = 1}, 40, 11);
	check_frequencies((struct ksample){.temperature = 0.7f, .top_p = 1}, 1000, 12);
	check_frequencies((struct ksample){.temperature = 1.5f, .top_p = 0.8f}, 300, 13);
	check_frequencies((struct ksample){.temperature = 1, .top_p = 0.95f, .top_k = 20}, 200, 14);
	check_frequencies((struct ksample){.temperature = 2, .top_p = 1, .min_p = 0.1f}, 150, 15);
}

/* The plain way to keep tokens: sort everything. */
struct plain_token {
	float z;
	double p;
	uint32_t id;
};

static int plain_order(const void *a, const void *b)
{
	const struct plain_token *x = a, *y = b;

	if (x->z != y->z) return x->z > y->z ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

static void plain_keep(const float *x, uint32_t vocab, const struct ksample *params, double *p)
{
	struct plain_token *t = malloc(vocab * sizeof(*t));
	uint32_t n = vocab;
	double total = 0, below = 0;

	for (uint32_t i = 0; i < vocab; i++) t[i] = (struct plain_token){x[i], 0, i};
	qsort(t, vocab, sizeof(*t), plain_order);
	for (uint32_t i = 0; i < vocab; i++) t[i].p = exp(((double)t[i].z - t[0].z) / params->temperature);
	while (n > 1 && t[n - 1].p < params->min_p) n--;
	if (params->top_k && params->top_k < n) {
		uint32_t k = params->top_k;

		while (k < n && t[k].z == t[params->top_k - 1].z) k++;
		n = k;
	}
	for (uint32_t i = 0; i < n; i++) total += t[i].p;
	while (n > 1 && params->top_p < 1) {
		below += t[n - 1].p;
		if (below > (1 - (double)params->top_p) * total) break;
		n--;
	}
	total = 0;
	for (uint32_t i = 0; i < n; i++) total += t[i].p;
	for (uint32_t i = 0; i < vocab; i++) p[t[i].id] = i < n ? t[i].p / total : 0;
	free(t);
}

/* Rows of a real vocabulary's size, with ties. One token at the cut may fall on either side by rounding. */
static void large_rows_agree_with_sorting(void **state)
{
	enum { VOCAB = 49152 };
	struct rig_rng r = {99};
	double *p = malloc(VOCAB * sizeof(*p));

	for (int round = 0; round < 24; round++) {
		float *x = rig_floats(&r, VOCAB);
		struct ksample params = {.temperature = 0.3f + (float)(rig_u32(&r) % 20) / 10, .top_p = 1};
		struct sampler s;
		double total, differ = 0;

		if (round % 2) params.top_p = (float)rig_range(&r, 1, 99) / 100;
		if (round % 3 == 0) params.top_k = rig_range(&r, 1, round % 2 ? 40000 : 100);
		if (round % 4 == 0) params.min_p = 0.001f * (float)rig_range(&r, 1, 100);
		for (int i = 0; i < VOCAB; i++)
			x[i] = round % 5 ? x[i] * 4 : roundf(x[i] * 8); /* the latter: many ties */
		sampler_of(&s, x, VOCAB, &params, NULL);
		assert_true(sampler_keep(&s, &total));
		plain_keep(x, VOCAB, &params, p);
		for (int i = 0; i < VOCAB; i++) differ = fmax(differ, fabs(s.p[i] / total - p[i]));
		if (!(differ <= 1e-5 * 30)) fail_msg("round %d: differs by %g", round, differ);
		free(s.p);
		free(x);
	}
	free(p);
}

static void odd_rows_have_defined_answers(void **state)
{
	struct ksample params = {.temperature = 1, .top_p = 1};
	struct ksampled out;
	struct sampler s;
	float x[5] = {1, NAN, 2, 0, 0}, none[5] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
	float inf[5] = {1, INFINITY, 2, 0, 0}, ties[5] = {1, 3, 2, 3, -INFINITY};
	uint32_t banned[] = {1, 3, 2, 0, 4, 77};

	sampler_of(&s, x, 5, &params, banned);
	sampler_run(&s, &out);
	assert_int_equal(out.token, UINT32_MAX);
	s.logits = none;
	sampler_run(&s, &out);
	assert_int_equal(out.token, UINT32_MAX);
	s.logits = inf;
	sampler_run(&s, &out);
	assert_int_equal(out.token, UINT32_MAX);
	s.logits = ties;
	params.temperature = 0;
	params.want_logprob = true;
	params.n_top = 20;
	sampler_run(&s, &out);
	assert_int_equal(out.token, 1);
	assert_int_equal(out.rank, 1);
	assert_int_equal(out.n_top, 5);
	assert_int_equal(out.top_ids[0], 1);
	assert_int_equal(out.top_ids[1], 3);
	assert_int_equal(out.logits_hash, 0);
	params.n_banned = 3; /* 1, 3, 2: token 0 is left, its log-probability that of the untouched row */
	s.hash_logits = true;
	sampler_run(&s, &out);
	assert_int_equal(out.token, 0);
	assert_int_equal(out.rank, 4);
	assert_true(fabsf(out.logprob - (float)(1 - log(exp(1) + 2 * exp(3) + exp(2)))) < 1e-6f);
	assert_true(out.logits_hash != 0);
	params.n_banned = 6; /* an id beyond the vocabulary is nobody's; nothing is left */
	sampler_run(&s, &out);
	assert_int_equal(out.token, KTOKEN_NOT_ALLOWED);
	s.logits = inf; /* that comes first */
	sampler_run(&s, &out);
	assert_int_equal(out.token, KTOKEN_NO_LOGITS);
	s.logits = ties;
	params = (struct ksample){.temperature = 1, .top_p = 1e-9f};
	sampler_run(&s, &out);
	assert_true(out.token == 1 || out.token == 3);
	free(s.p);
}

/* The same draw again, and a row's draw does not depend on its neighbours or on threads. */
static void draws_repeat(void **state)
{
	enum { ROWS = 9, VOCAB = 777 };
	struct rig_level ref = {&cpu_level_ref, KLEVEL_REF, "ref"};
	struct rig_rng r = {3};
	float *x = rig_floats(&r, ROWS * VOCAB);
	struct ksampled all[ROWS], one;

	for (uint32_t threads = 1; threads <= 3; threads++) {
		struct kdev *d = rig_open(&ref, KACT_Q8, threads, 0);
		const struct kops *k = kdev_ops(d);
		float *logits = kdev_alloc(d, ROWS * VOCAB * 4);
		struct ksample *params = kdev_alloc(d, ROWS * sizeof(*params));
		struct ksampled *out = kdev_alloc(d, ROWS * sizeof(*out));

		memcpy(logits, x, ROWS * VOCAB * 4);
		for (uint32_t i = 0; i < ROWS; i++)
			params[i] = (struct ksample){.temperature = 0.9f,
						     .top_p = 0.9f,
						     .top_k = 50,
						     .seed = i * 7,
						     .position = i,
						     .n_top = i};
		k->sample(d, out, logits, ROWS, VOCAB, params, NULL);
		assert_int_equal(kdev_sync(d), ST_OK);
		if (threads == 1) memcpy(all, out, sizeof(all));
		assert_memory_equal(all, out, sizeof(all));
		for (uint32_t i = 0; i < ROWS; i++) {
			k->sample(d, out, logits + i * VOCAB, 1, VOCAB, params + i, NULL);
			assert_int_equal(kdev_sync(d), ST_OK);
			one = out[0];
			assert_memory_equal(&one, &all[i], sizeof(one));
		}
		kdev_release(d, logits, ROWS * VOCAB * 4);
		kdev_release(d, params, ROWS * sizeof(*params));
		kdev_release(d, out, ROWS * sizeof(*out));
		kdev_close(d);
	}
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(distributions_are_vllms),
		cmocka_unit_test(draws_follow_the_distribution),
		cmocka_unit_test(large_rows_agree_with_sorting),
		cmocka_unit_test(odd_rows_have_defined_answers),
		cmocka_unit_test(draws_repeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
