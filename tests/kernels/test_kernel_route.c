/* test_kernel_route.c - routing against plain double-precision code; ties and groups; logits that are none. */
#include "tests/kernels/rig.h"

#define EXPERTS_MAX 64

static struct rig_level levels[KLEVEL_COUNT];
static uint32_t n_levels;

struct route_case {
	struct kroute r; /* with host memory in logits and correction, nothing in the results */
	float *logits, *correction;
};

static struct route_case route_case_new(struct rig_rng *g)
{
	static const uint32_t counts[] = {1, 4, 8, 12, 16, 60, 64};
	struct route_case c = {0};
	struct kroute *r = &c.r;

	r->n = rig_range(g, 1, 50);
	r->n_experts = counts[rig_u32(g) % ARRAY_LEN(counts)];
	r->kind = (enum kroute_kind)(rig_u32(g) % 3);
	r->n_groups = r->n_experts % 4 == 0 && rig_u32(g) & 1 ? (rig_u32(g) & 1 ? 4 : 2) : rig_u32(g) & 1;
	r->groups_used = r->n_groups > 1 ? rig_range(g, 1, r->n_groups) : r->n_groups;
	r->k = rig_range(g, 1,
			 min_u32(8, r->n_groups > 1 ? r->n_experts / r->n_groups * r->groups_used : r->n_experts));
	r->norm = rig_u32(g) & 1;
	r->scale = rig_u32(g) & 1 ? 1.0f : 2.5f;
	c.logits = rig_floats(g, (size_t)r->n * r->n_experts);
	/* equal logits are frequent */
	for (uint32_t i = 0; i < r->n * r->n_experts; i++) c.logits[i] = roundf(c.logits[i] * 8) / 8;
	if (rig_u32(g) & 1) c.correction = rig_floats(g, r->n_experts);
	return c;
}

static const double *sort_keys;

/* Best first, lowest number first on a tie. */
static int by_key(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (sort_keys[x] != sort_keys[y]) return sort_keys[x] > sort_keys[y] ? -1 : 1;
	return x < y ? -1 : 1;
}

static void sort_by(uint32_t *ix, uint32_t n, const double *keys)
{
	for (uint32_t i = 0; i < n; i++) ix[i] = i;
	sort_keys = keys;
	qsort(ix, n, sizeof(*ix), by_key);
}

static double group_rank(const struct route_case *c, const double *choice, uint32_t len)
{
	uint32_t order[EXPERTS_MAX];

	sort_by(order, len, choice);
	return choice[order[0]] + (c->correction && len > 1 ? choice[order[1]] : 0);
}

/* The experts of one row and their weights. */
static void route_plainly(const struct route_case *c, const float *logits, uint32_t *experts, double *weights)
{
	const struct kroute *r = &c->r;
	double score[EXPERTS_MAX], choice[EXPERTS_MAX], rank[EXPERTS_MAX], sum = 0;
	uint32_t order[EXPERTS_MAX], groups[EXPERTS_MAX];

	for (uint32_t e = 0; e < r->n_experts; e++) sum += exp(logits[e]);
	for (uint32_t e = 0; e < r->n_experts; e++) {
		score[e] = logits[e];
		if (r->kind == KROUTE_SOFTMAX) score[e] = exp(logits[e]) / sum;
		if (r->kind == KROUTE_SIGMOID) score[e] = 1 / (1 + exp(-logits[e]));
		choice[e] = score[e] + (c->correction ? c->correction[e] : 0);
	}
	if (r->n_groups > 1) {
		uint32_t len = r->n_experts / r->n_groups;

		for (uint32_t g = 0; g < r->n_groups; g++) rank[g] = group_rank(c, choice + g * len, len);
		sort_by(groups, r->n_groups, rank);
		for (uint32_t i = r->groups_used; i < r->n_groups; i++)
			for (uint32_t e = 0; e < len; e++) choice[groups[i] * len + e] = -INFINITY;
	}
	sort_by(order, r->n_experts, choice);
	sum = 0;
	for (uint32_t j = 0; j < r->k; j++) {
		experts[j] = order[j];
		weights[j] = r->kind == KROUTE_SOFTMAX_TOPK ? exp(score[order[j]]) : score[order[j]];
		sum += weights[j];
	}
	for (uint32_t j = 0; j < r->k; j++) {
		if (r->kind == KROUTE_SOFTMAX_TOPK || r->norm) weights[j] /= sum;
		weights[j] *= r->scale;
	}
}

struct routed {
	float *weights;
	uint32_t *tokens, *places, *starts;
};

/* Words of a guarded buffer, as what they are. */
static uint32_t *take_words(struct rig_buf *b)
{
	return (uint32_t *)rig_buf_take(b);
}

static struct routed route_run(struct kdev *d, const struct route_case *c)
{
	struct kroute r = c->r;
	size_t pairs = (size_t)r.n * r.k;
	struct rig_buf logits = rig_buf_of(d, c->logits, (size_t)r.n * r.n_experts), correction = {0};
	struct rig_buf weights = rig_buf_new(d, pairs), tokens = rig_buf_new(d, pairs), places = rig_buf_new(d, pairs);
	struct rig_buf starts = rig_buf_new(d, r.n_experts + 1);
	struct routed out;

	if (c->correction) correction = rig_buf_of(d, c->correction, r.n_experts);
	r.logits = logits.data;
	r.correction = correction.data;
	r.weights = weights.data;
	r.tokens = (uint32_t *)tokens.data;
	r.places = (uint32_t *)places.data;
	r.starts = (uint32_t *)starts.data;
	kdev_ops(d)->route(d, &r);
	assert_int_equal(kdev_sync(d), ST_OK);
	out = (struct routed){rig_buf_take(&weights), take_words(&tokens), take_words(&places), take_words(&starts)};
	free(rig_buf_take(&logits));
	if (c->correction) free(rig_buf_take(&correction));
	return out;
}

static void routed_free(struct routed *o)
{
	free(o->weights);
	free(o->tokens);
	free(o->places);
	free(o->starts);
}

static uint32_t expert_at(const struct routed *o, uint32_t place)
{
	uint32_t e = 0;

	while (place >= o->starts[e + 1]) e++;
	return e;
}

/* Places, tokens and starts are one another's inverses, and rows ascend within an expert. */
static void expect_sorted(const struct route_case *c, const struct routed *o)
{
	uint32_t pairs = c->r.n * c->r.k;
	bool seen[50 * 8] = {0};

	assert_int_equal(o->starts[0], 0);
	assert_int_equal(o->starts[c->r.n_experts], pairs);
	for (uint32_t e = 0; e < c->r.n_experts; e++) assert_true(o->starts[e] <= o->starts[e + 1]);
	for (uint32_t i = 0; i < pairs; i++) {
		assert_true(o->places[i] < pairs && !seen[o->places[i]]);
		seen[o->places[i]] = true;
		assert_int_equal(o->tokens[o->places[i]], i / c->r.k);
	}
	for (uint32_t p = 1; p < pairs; p++)
		if (expert_at(o, p) == expert_at(o, p - 1)) assert_true(o->tokens[p] > o->tokens[p - 1]);
}

static void routing_agrees_with_plain_code(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 200; seed++) {
			struct rig_rng g = {seed};
			struct route_case c = route_case_new(&g);
			struct kdev *d = rig_open(&levels[l], KACT_Q8, rig_range(&g, 1, 3), 0);
			struct routed got = route_run(d, &c);
			uint32_t experts[8];
			double weights[8];

			expect_sorted(&c, &got);
			for (uint32_t i = 0; i < c.r.n; i++) {
				route_plainly(&c, c.logits + (size_t)i * c.r.n_experts, experts, weights);
				for (uint32_t j = 0; j < c.r.k; j++) {
					uint32_t at = i * c.r.k + j, e = expert_at(&got, got.places[at]);

					if (e != experts[j] ||
					    !(fabs(got.weights[at] - weights[j]) <= 1e-5 * fabs(weights[j]) + 1e-7))
						fail_msg("%s seed %u kind %d row %u choice %u: expert %u weight %g, "
							 "want %u %g",
							 levels[l].name, (unsigned)seed, (int)c.r.kind, i, j, e,
							 (double)got.weights[at], experts[j], weights[j]);
				}
			}
			routed_free(&got);
			free(c.logits);
			free(c.correction);
			kdev_close(d);
		}
	}
}

/* One row of 8 experts, 3 chosen: the choices in order must be `want`. */
static void expect_choice(struct kroute r, const float *logits, const float *correction, const uint32_t want[3])
{
	uint32_t tokens[3], places[3], starts[9];
	float weights[3];
	struct routed o = {weights, tokens, places, starts};

	for (uint32_t l = 0; l < n_levels; l++) {
		struct kdev *d = rig_open(&levels[l], KACT_Q8, 1, 0);

		r.logits = logits;
		r.correction = correction;
		r.n = 1;
		r.n_experts = 8;
		r.k = 3;
		r.scale = 1;
		r.weights = weights;
		r.tokens = tokens;
		r.places = places;
		r.starts = starts;
		kdev_ops(d)->route(d, &r);
		assert_int_equal(kdev_sync(d), ST_OK);
		for (uint32_t j = 0; j < 3; j++) assert_int_equal(expert_at(&o, places[j]), want[j]);
		kdev_close(d);
	}
}

static void ties_go_to_the_lowest_number(void **state)
{
	/* four groups of two: 0 1 | 2 3 | 4 5 | 6 7 */
	static const float equal[8] = {0}, mixed[8] = {-1, 1, 0, 1, 1, 0, 2, 0}, none[8] = {0};
	static const float lifted[8] = {0, 0, 0, 0, 0, 9, 0, 0};

	for (int kind = 0; kind < 3; kind++) {
		struct kroute r = {.kind = (enum kroute_kind)kind},
			      groups = {.kind = r.kind, .n_groups = 4, .groups_used = 2};

		expect_choice(r, equal, NULL, (uint32_t[]){0, 1, 2});
		expect_choice(r, mixed, NULL, (uint32_t[]){6, 1, 3});
		expect_choice(r, mixed, lifted, (uint32_t[]){5, 6, 1});
		/* the best of each: group 3, then 0 on a tie with 1 and 2 */
		expect_choice(groups, mixed, NULL, (uint32_t[]){6, 1, 7});
		/* the two best of each: group 3, then 1 on a tie with 2 */
		expect_choice(groups, mixed, none, (uint32_t[]){6, 3, 2});
		expect_choice(groups, equal, none, (uint32_t[]){0, 1, 2});
	}
}

/* Whatever the logits are, k different experts come out, and a NaN is seen. */
static void bad_logits_reach_the_weights(void **state)
{
	static const float bad[] = {NAN, INFINITY, -INFINITY};

	for (uint32_t l = 0; l < n_levels; l++) {
		for (int kind = 0; kind < 3; kind++) {
			for (uint32_t b = 0; b < ARRAY_LEN(bad); b++) {
				struct rig_rng g = {(uint64_t)kind};
				struct route_case c = {.r = {.n = 3, .n_experts = 8, .k = 4, .scale = 1, .norm = true}};
				struct kdev *d = rig_open(&levels[l], KACT_Q8, 1, 0);
				struct routed got;
				float sum = 0;

				c.r.kind = (enum kroute_kind)kind;
				c.r.n_groups = 2 * b;
				c.r.groups_used = b;
				c.logits = rig_floats(&g, 24);
				c.logits[8 + 5] = bad[b];
				if (b == 2)
					for (int i = 8; i < 16; i++) c.logits[i] = bad[b];
				got = route_run(d, &c);
				expect_sorted(&c, &got);
				for (uint32_t j = 4; j < 8; j++) sum += got.weights[j];
				assert_true(b == 0 ? sum != sum : true);
				assert_true(isfinite(got.weights[0]) && isfinite(got.weights[8]));
				routed_free(&got);
				free(c.logits);
				kdev_close(d);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(routing_agrees_with_plain_code),
		cmocka_unit_test(ties_go_to_the_lowest_number),
		cmocka_unit_test(bad_logits_reach_the_weights),
	};

	n_levels = rig_levels(levels);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
