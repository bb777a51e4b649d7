/* test_recurrent.c - the short convolution and the gated delta rule against plain double-precision code over whole
 * sequences, and against themselves when sequences come in pieces, together with others, and find foreign values in
 * their states. */
#include "tests/kernels/rig.h"

#define SEQS_MAX 4

static struct rig_level levels[KLEVEL_COUNT];
static uint32_t n_levels;

/* Sequences of some tokens; row first[s] + t of every array is token t of sequence s. */
struct seqs {
	uint32_t n, len[SEQS_MAX], first[SEQS_MAX], state[SEQS_MAX], tokens;
};

static struct seqs seqs_new(struct rig_rng *g)
{
	struct seqs q = {.n = rig_range(g, 1, SEQS_MAX)};

	for (uint32_t s = 0; s < q.n; s++) {
		q.len[s] = rig_range(g, 1, 40);
		q.first[s] = q.tokens;
		q.state[s] = SEQS_MAX - s; /* state 0 is nobody's */
		q.tokens += q.len[s];
	}
	return q;
}

/* A batch of up to `most` tokens of each sequence, from done[] on, and the rows its tokens come from. False when all
 * are done. */
struct piece {
	uint32_t positions[200], starts[SEQS_MAX + 1], states[SEQS_MAX], row[200], n;
};

static bool piece_next(struct rig_rng *g, const struct seqs *q, uint32_t *done, uint32_t most, struct piece *p)
{
	bool left = false;

	p->n = 0;
	for (uint32_t s = 0; s < q->n; s++) {
		uint32_t m = min_u32(most >= 40 ? 40 : rig_range(g, 0, most), q->len[s] - done[s]);

		p->starts[s] = p->n;
		p->states[s] = q->state[s];
		for (; m > 0; m--) {
			p->row[p->n] = q->first[s] + done[s];
			p->positions[p->n++] = done[s]++;
		}
		left |= done[s] < q->len[s];
	}
	p->starts[q->n] = p->n;
	return left;
}

static struct kbatch piece_batch(const struct seqs *q, const struct piece *p)
{
	return (struct kbatch){.n_tokens = p->n,
			       .n_seqs = q->n,
			       .positions = p->positions,
			       .seq_starts = p->starts,
			       .states = p->states};
}

static float silu(double x)
{
	return (float)(x / (1 + exp(-x)));
}

/* --- convolution --- */

struct conv_case {
	struct seqs q;
	uint32_t channels, width;
	float *x, *w;
};

static void conv_plainly(const struct conv_case *c, float *out)
{
	for (uint32_t s = 0; s < c->q.n; s++) {
		for (uint32_t t = 0; t < c->q.len[s]; t++) {
			for (uint32_t ch = 0; ch < c->channels; ch++) {
				double sum = 0;

				for (uint32_t back = 0; back < c->width && back <= t; back++)
					sum += (double)c->w[ch * c->width + c->width - 1 - back] *
					       c->x[(size_t)(c->q.first[s] + t - back) * c->channels + ch];
				out[(size_t)(c->q.first[s] + t) * c->channels + ch] = silu(sum);
			}
		}
	}
}

/* In pieces of at most `most` tokens a sequence; *states gets the states at the end. */
static float *conv_run(struct kdev *d, const struct conv_case *c, uint32_t most, bool in_place, float **states,
		       uint64_t seed)
{
	struct rig_rng g = {seed};
	size_t row = c->channels, state_step = (c->width - 1) * row + 5;
	struct rig_buf state = rig_buf_new(d, (SEQS_MAX + 1) * state_step),
		       w = rig_buf_of(d, c->w, c->channels * c->width);
	float *out = malloc(c->q.tokens * row * sizeof(float));
	uint32_t done[SEQS_MAX] = {0};
	struct piece p;
	bool left;

	do {
		struct rig_buf x = rig_buf_new(d, 200 * (row + 3)), y = rig_buf_new(d, 200 * row);
		struct kconv a = {.out = y.data,
				  .ld_out = (uint32_t)row,
				  .x = x.data,
				  .ld_x = (uint32_t)row + 3,
				  .w = w.data,
				  .channels = c->channels,
				  .width = c->width,
				  .state = state.data,
				  .state_step = state_step};
		struct kbatch b;

		left = piece_next(&g, &c->q, done, most, &p);
		if (in_place) {
			a.out = x.data;
			a.ld_out = a.ld_x;
		}
		for (uint32_t i = 0; i < p.n; i++) memcpy(x.data + i * (row + 3), c->x + p.row[i] * row, row * 4);
		b = piece_batch(&c->q, &p);
		kdev_ops(d)->conv(d, &a, &b);
		assert_int_equal(kdev_sync(d), ST_OK);
		for (uint32_t i = 0; i < p.n; i++) memcpy(out + p.row[i] * row, a.out + i * (size_t)a.ld_out, row * 4);
		free(rig_buf_take(&x));
		free(rig_buf_take(&y));
	} while (left);
	free(rig_buf_take(&w));
	*states = rig_buf_take(&state);
	return out;
}

static void convolution_agrees_with_plain_code(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 60; seed++) {
			struct rig_rng g = {seed};
			struct conv_case c = {.q = seqs_new(&g),
					      .channels = rig_range(&g, 1, 600),
					      .width = rig_range(&g, 1, KCONV_WIDTH_MAX)};
			struct kdev *d = rig_open(&levels[l], KACT_Q8, rig_range(&g, 1, 3), 0);
			size_t n = (size_t)c.q.tokens * c.channels,
			       n_states = (SEQS_MAX + 1) * ((c.width - 1) * (size_t)c.channels + 5);
			float *want = malloc(n * sizeof(float)), *got, *pieces, *states[2];

			c.x = rig_floats(&g, n);
			c.w = rig_floats(&g, (size_t)c.channels * c.width);
			conv_plainly(&c, want);
			got = conv_run(d, &c, 40, false, &states[0], seed);
			pieces = conv_run(d, &c, rig_range(&g, 1, 7), seed & 1, &states[1], seed);
			rig_expect_close(got, want, c.q.tokens, c.channels, 1e-5f, levels[l].name);
			rig_expect_same_bits(pieces, got, n, levels[l].name);
			rig_expect_same_bits(states[1], states[0], n_states, levels[l].name);
			free(got);
			free(pieces);
			free(want);
			free(states[0]);
			free(states[1]);
			free(c.x);
			free(c.w);
			kdev_close(d);
		}
	}
}

/* --- the delta rule --- */

struct delta_case {
	struct seqs q;
	uint32_t k_heads, v_heads, k_dim, v_dim, ld_qkv;
	bool tiled;
	float *qkv, *a, *b, *neg_a, *dt_bias;
};

static struct delta_case delta_case_new(struct rig_rng *g)
{
	static const uint32_t dims[] = {16, 8, 12, 20, 64, 128, 100};
	struct delta_case c = {.q = seqs_new(g), .k_heads = rig_range(g, 1, 3)};

	c.v_heads = c.k_heads * rig_range(g, 1, 3);
	c.tiled = c.q.n % 2;
	c.k_dim = dims[rig_u32(g) % ARRAY_LEN(dims)];
	c.v_dim = dims[rig_u32(g) % ARRAY_LEN(dims)];
	c.ld_qkv = 2 * c.k_heads * c.k_dim + c.v_heads * c.v_dim;
	c.qkv = rig_floats(g, (size_t)c.q.tokens * c.ld_qkv);
	c.a = rig_floats(g, (size_t)c.q.tokens * c.v_heads);
	c.b = rig_floats(g, (size_t)c.q.tokens * c.v_heads);
	c.neg_a = rig_floats(g, c.v_heads);
	c.dt_bias = rig_floats(g, c.v_heads);
	for (uint32_t h = 0; h < c.v_heads; h++) c.neg_a[h] = -fabsf(c.neg_a[h]);
	if (rig_u32(g) & 1) c.dt_bias[0] = 30; /* beyond where softplus is the identity */
	if (rig_u32(g) & 1) memset(c.qkv, 0, (size_t)c.ld_qkv * sizeof(float));
	return c;
}

static void delta_case_free(struct delta_case *c)
{
	free(c->qkv);
	free(c->a);
	free(c->b);
	free(c->neg_a);
	free(c->dt_bias);
}

static void unit(double *out, const float *x, uint32_t n, double scale)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
	for (uint32_t i = 0; i < n; i++) out[i] = x[i] / sqrt(sum + 1e-6) * scale;
}

/* The recurrence as it is written in the paper, one value head of one sequence. */
static void delta_plainly(const struct delta_case *c, uint32_t s, uint32_t h, float *out)
{
	static double state[128][128];
	double q[128], k[128], d[128];
	uint32_t kh = c->tiled ? h % c->k_heads : h / (c->v_heads / c->k_heads);

	memset(state, 0, sizeof(state));
	for (uint32_t t = c->q.first[s]; t < c->q.first[s] + c->q.len[s]; t++) {
		const float *row = c->qkv + (size_t)t * c->ld_qkv, *v = row + 2 * c->k_heads * c->k_dim + h * c->v_dim;
		double decay = exp(c->neg_a[h] * log1p(exp((double)c->a[t * c->v_heads + h] + c->dt_bias[h])));
		double beta = 1 / (1 + exp(-(double)c->b[t * c->v_heads + h]));

		unit(q, row + kh * c->k_dim, c->k_dim, 1 / sqrt(c->k_dim));
		unit(k, row + (c->k_heads + kh) * c->k_dim, c->k_dim, 1);
		for (uint32_t j = 0; j < c->v_dim; j++) {
			double seen = 0, o = 0;

			for (uint32_t i = 0; i < c->k_dim; i++) seen += k[i] * (state[i][j] *= decay);
			d[j] = beta * (v[j] - seen);
			for (uint32_t i = 0; i < c->k_dim; i++) o += q[i] * (state[i][j] += k[i] * d[j]);
			out[((size_t)t * c->v_heads + h) * c->v_dim + j] = (float)o;
		}
	}
}

static float *delta_run(struct kdev *d, const struct delta_case *c, uint32_t most, float **states, uint64_t seed)
{
	struct rig_rng g = {seed};
	size_t out_row = (size_t)c->v_heads * c->v_dim, state_step = out_row * c->k_dim + 7;
	struct rig_buf state = rig_buf_new(d, (SEQS_MAX + 1) * state_step), neg_a = rig_buf_of(d, c->neg_a, c->v_heads);
	struct rig_buf dt_bias = rig_buf_of(d, c->dt_bias, c->v_heads);
	float *out = malloc(c->q.tokens * out_row * sizeof(float));
	uint32_t done[SEQS_MAX] = {0};
	struct piece p;
	bool left;

	do {
		struct rig_buf qkv = rig_buf_new(d, (size_t)200 * c->ld_qkv), y = rig_buf_new(d, 200 * out_row);
		struct rig_buf ab = rig_buf_new(d, (size_t)200 * 2 * c->v_heads);
		struct kdelta a = {.out = y.data,
				   .ld_out = (uint32_t)out_row,
				   .qkv = qkv.data,
				   .ld_qkv = c->ld_qkv,
				   .a = ab.data,
				   .b = ab.data + c->v_heads,
				   .ld_a = 2 * c->v_heads,
				   .ld_b = 2 * c->v_heads,
				   .neg_a = neg_a.data,
				   .dt_bias = dt_bias.data,
				   .k_heads = c->k_heads,
				   .v_heads = c->v_heads,
				   .k_dim = c->k_dim,
				   .v_dim = c->v_dim,
				   .tiled = c->tiled,
				   .state = state.data,
				   .state_step = state_step};
		struct kbatch b;

		left = piece_next(&g, &c->q, done, most, &p);
		for (uint32_t i = 0; i < p.n; i++) {
			size_t row = p.row[i], pair = 2 * (size_t)i * c->v_heads;

			memcpy(qkv.data + (size_t)i * c->ld_qkv, c->qkv + row * c->ld_qkv, c->ld_qkv * 4);
			memcpy(ab.data + pair, c->a + row * c->v_heads, c->v_heads * 4);
			memcpy(ab.data + pair + c->v_heads, c->b + row * c->v_heads, c->v_heads * 4);
		}
		b = piece_batch(&c->q, &p);
		kdev_ops(d)->delta(d, &a, &b);
		assert_int_equal(kdev_sync(d), ST_OK);
		for (uint32_t i = 0; i < p.n; i++) memcpy(out + p.row[i] * out_row, y.data + i * out_row, out_row * 4);
		free(rig_buf_take(&qkv));
		free(rig_buf_take(&ab));
		free(rig_buf_take(&y));
	} while (left);
	free(rig_buf_take(&neg_a));
	free(rig_buf_take(&dt_bias));
	*states = rig_buf_take(&state);
	return out;
}

static void delta_rule_agrees_with_plain_code(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 40; seed++) {
			struct rig_rng g = {seed};
			struct delta_case c = delta_case_new(&g);
			struct kdev *d = rig_open(&levels[l], KACT_Q8, rig_range(&g, 1, 3), 0);
			size_t row = (size_t)c.v_heads * c.v_dim, n = c.q.tokens * row;
			float *want = malloc(n * sizeof(float)), *got, *pieces, *states[2];

			for (uint32_t s = 0; s < c.q.n; s++)
				for (uint32_t h = 0; h < c.v_heads; h++) delta_plainly(&c, s, h, want);
			got = delta_run(d, &c, 40, &states[0], seed);
			pieces = delta_run(d, &c, rig_range(&g, 1, 7), &states[1], seed);
			rig_expect_close(got, want, c.q.tokens, row, 1e-5f, levels[l].name);
			rig_expect_same_bits(pieces, got, n, levels[l].name);
			rig_expect_same_bits(states[1], states[0], (SEQS_MAX + 1) * (row * c.k_dim + 7),
					     levels[l].name);
			free(got);
			free(pieces);
			free(want);
			free(states[0]);
			free(states[1]);
			delta_case_free(&c);
			kdev_close(d);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolution_agrees_with_plain_code),
		cmocka_unit_test(delta_rule_agrees_with_plain_code),
	};

	n_levels = rig_levels(levels);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
