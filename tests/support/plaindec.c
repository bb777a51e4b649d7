/* plaindec.c - see plaindec.h. Formulas as in kernels.h and spec.h; nothing is shared with the code that it checks. */
#include "tests/support/plaindec.h"

#include "common/mem.h"
#include "common/splitmix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double plaindec_rand(uint64_t *state)
{
	return ((double)(splitmix_next(state) >> 11) / (double)(1ull << 53) - 0.5) * 2;
}

/* Norms around 1, matrices so that products keep the size of their input, the rest small. */
static float plaindec_value(uint64_t *state, const struct spec *s, enum spec_role role, struct spec_shape shape)
{
	double r = plaindec_rand(state);

	if (role == SPEC_D_NEG_A) return (float)(-0.5 - 0.4 * r);
	if (strstr(spec_role_name(role), "NORM")) return (float)(1 + 0.3 * r);
	if (spec_role_form(role) == SPEC_VEC || strstr(spec_role_name(role), "BIAS")) return (float)(0.3 * r);
	if (role == SPEC_D_CONV) return (float)(0.7 * r);
	if (role == SPEC_EMBED) return (float)(1.7 * r / s->embed_scale);
	return (float)(1.5 * r * sqrt(3.0 / shape.cols));
}

void plaindec_init(struct plaindec *p, const struct spec *s, uint64_t seed)
{
	*p = (struct plaindec){.spec = s, .route_gap = INFINITY};
	p->values = mem_zalloc(s->n_layers + 1, sizeof(*p->values));
	for (uint32_t i = 0; i <= s->n_layers; i++) {
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) {
			struct spec_shape shape;
			size_t n;

			if ((spec_role_scope(role) == SPEC_MODEL) != (i == s->n_layers) || !spec_has(s, role, i))
				continue;
			shape = spec_role_shape(s, role, i);
			n = (size_t)shape.n * shape.rows * shape.cols;
			p->values[i][role] = mem_array(float, n);
			for (size_t k = 0; k < n; k++) p->values[i][role][k] = plaindec_value(&seed, s, role, shape);
		}
	}
}

void plaindec_release(struct plaindec *p)
{
	for (uint32_t i = 0; i <= p->spec->n_layers; i++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) free(p->values[i][role]);
	free(p->values);
}

/* ---- small parts ---- */

static double *plaindec_new(size_t n)
{
	return mem_array(double, n);
}

/* out[rows] = w x [+ bias]. */
static void plaindec_mul(double *out, const float *w, const float *bias, const double *x, uint32_t rows, uint32_t cols)
{
	for (uint32_t r = 0; r < rows; r++) {
		out[r] = bias ? (double)bias[r] : 0;
		for (uint32_t c = 0; c < cols; c++) out[r] += (double)w[(size_t)r * cols + c] * x[c];
	}
}

static void plaindec_norm_by(double eps, double *out, const double *x, const float *w, uint32_t dim)
{
	double sum = 0;

	for (uint32_t i = 0; i < dim; i++) sum += x[i] * x[i];
	sum = sqrt(sum / dim + eps);
	for (uint32_t i = 0; i < dim; i++) out[i] = x[i] / sum * (double)w[i];
}

static void plaindec_norm(const struct spec *s, double *out, const double *x, const float *w, uint32_t dim)
{
	plaindec_norm_by(s->eps, out, x, w, dim);
}

static double plaindec_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double plaindec_cap(double x, double cap)
{
	return cap > 0 ? cap * tanh(x / cap) : x;
}

static double plaindec_glu(const struct spec_layer *y, double g, double u)
{
	if (y->glu == SPEC_SILU) return g * plaindec_sigmoid(g) * u;
	if (y->glu == SPEC_GELU_TANH) return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
	g = fmin(g, y->glu_limit);
	u = fmax(-y->glu_limit, fmin(u, y->glu_limit));
	return g * plaindec_sigmoid(1.702 * g) * (u + 1);
}

static void plaindec_rotate(const struct spec *s, const struct spec_layer *y, double *head, uint32_t position)
{
	const struct spec_rope *r = y->rope < 0 ? NULL : &s->ropes[y->rope];

	for (uint32_t i = 0; r && i < r->dims / 2; i++) {
		double *a = &head[r->neox ? i : 2 * i], *b = &head[r->neox ? i + r->dims / 2 : 2 * i + 1];
		double c = cos(position * r->freqs[i]) * r->mscale, t = sin(position * r->freqs[i]) * r->mscale, x = *a;

		*a = x * c - *b * t;
		*b = x * t + *b * c;
	}
}

/* ---- mixers: out (n, width of the output matrix) from normed states (n, dim) ---- */

/* q, k (n, heads, k_dim) and v (n, heads, v_dim), with each head's own keys and values. */
static void plaindec_attend(const struct spec_layer *y, const float *sinks, const double *q, const double *k,
			    const double *v, uint32_t n, double *out)
{
	double *scores = plaindec_new(n);

	for (uint32_t t = 0; t < n; t++) {
		uint32_t from = y->window && t + 1 > y->window ? t + 1 - y->window : 0;

		for (uint32_t h = 0; h < y->heads; h++) {
			double max = sinks ? (double)sinks[h] : -INFINITY, sum,
			       *o = out + ((size_t)t * y->heads + h) * y->v_dim;

			for (uint32_t p = from; p <= t; p++) {
				scores[p] = 0;
				for (uint32_t i = 0; i < y->k_dim; i++)
					scores[p] += q[((size_t)t * y->heads + h) * y->k_dim + i] *
						     k[((size_t)p * y->heads + h) * y->k_dim + i];
				scores[p] = plaindec_cap(scores[p] * y->scale, y->softcap);
				max = fmax(max, scores[p]);
			}
			sum = sinks ? exp((double)sinks[h] - max) : 0;
			for (uint32_t p = from; p <= t; p++) sum += exp(scores[p] - max);
			memset(o, 0, y->v_dim * sizeof(*o));
			for (uint32_t p = from; p <= t; p++)
				for (uint32_t i = 0; i < y->v_dim; i++)
					o[i] += exp(scores[p] - max) / sum *
						v[((size_t)p * y->heads + h) * y->v_dim + i];
		}
	}
	free(scores);
}

/* Projects to kv heads and gives each query head its own. */
static void plaindec_spread(const struct spec_layer *y, double *out, const double *kv, uint32_t dim)
{
	for (uint32_t h = 0; h < y->heads; h++)
		memcpy(out + (size_t)h * dim, kv + (size_t)(h / (y->heads / y->kv_heads)) * dim, dim * sizeof(*out));
}

static void plaindec_attention(const struct spec *s, const struct spec_layer *y, float *const *w, const double *x,
			       uint32_t n, double *out)
{
	uint32_t kd = y->heads * y->k_dim, vd = y->heads * y->v_dim;
	double *q = plaindec_new((size_t)n * kd), *k = plaindec_new((size_t)n * kd), *v = plaindec_new((size_t)n * vd);
	double *few = plaindec_new(kd + vd), *gate = plaindec_new(vd);

	for (uint32_t t = 0; t < n; t++) {
		const double *in = x + (size_t)t * s->dim;
		double *head = q + (size_t)t * kd;

		plaindec_mul(head, w[SPEC_Q], w[SPEC_Q_BIAS], in, kd, s->dim);
		for (uint32_t h = 0; h < y->heads; h++, head += y->k_dim) {
			if (y->qk_norm) plaindec_norm(s, head, head, w[SPEC_Q_NORM], y->k_dim);
			plaindec_rotate(s, y, head, t);
		}
		plaindec_mul(few, w[SPEC_K], w[SPEC_K_BIAS], in, y->kv_heads * y->k_dim, s->dim);
		head = few;
		for (uint32_t h = 0; h < y->kv_heads; h++, head += y->k_dim) {
			if (y->qk_norm) plaindec_norm(s, head, head, w[SPEC_K_NORM], y->k_dim);
			plaindec_rotate(s, y, head, t);
		}
		plaindec_spread(y, k + (size_t)t * kd, few, y->k_dim);
		plaindec_mul(few, w[SPEC_V], w[SPEC_V_BIAS], in, y->kv_heads * y->v_dim, s->dim);
		plaindec_spread(y, v + (size_t)t * vd, few, y->v_dim);
	}
	plaindec_attend(y, w[SPEC_SINKS], q, k, v, n, out);
	for (uint32_t t = 0; y->out_gate && t < n; t++) {
		plaindec_mul(gate, w[SPEC_ATTN_GATE], NULL, x + (size_t)t * s->dim, vd, s->dim);
		for (uint32_t i = 0; i < vd; i++) out[(size_t)t * vd + i] *= plaindec_sigmoid(gate[i]);
	}
	free(q);
	free(k);
	free(v);
	free(few);
	free(gate);
}

/* Not absorbed: keys and values of all heads are made from the latent vector. K_B is (kv_lora, nope_dim) a head. */
static void plaindec_mla(const struct spec *s, const struct spec_layer *y, float *const *w, const double *x, uint32_t n,
			 double *out)
{
	uint32_t kd = y->heads * y->k_dim, vd = y->heads * y->v_dim, pe = y->k_dim - y->nope_dim;
	double *q = plaindec_new((size_t)n * kd), *k = plaindec_new((size_t)n * kd), *v = plaindec_new((size_t)n * vd);
	double *latent = plaindec_new(y->kv_lora + pe), *low = plaindec_new(y->q_lora);

	for (uint32_t t = 0; t < n; t++) {
		const double *in = x + (size_t)t * s->dim;

		plaindec_mul(latent, w[SPEC_KV_A], NULL, in, y->kv_lora + pe, s->dim);
		plaindec_norm_by(y->latent_eps, latent, latent, w[SPEC_KV_A_NORM], y->kv_lora);
		plaindec_rotate(s, y, latent + y->kv_lora, t);
		if (y->q_lora) {
			plaindec_mul(low, w[SPEC_Q_A], NULL, in, y->q_lora, s->dim);
			plaindec_norm_by(y->latent_eps, low, low, w[SPEC_Q_A_NORM], y->q_lora);
			plaindec_mul(q + (size_t)t * kd, w[SPEC_Q_B], NULL, low, kd, y->q_lora);
		} else {
			plaindec_mul(q + (size_t)t * kd, w[SPEC_Q], NULL, in, kd, s->dim);
		}
		for (uint32_t h = 0; h < y->heads; h++) {
			double *key = k + (size_t)t * kd + (size_t)h * y->k_dim;
			const float *kb = w[SPEC_K_B] + (size_t)h * y->kv_lora * y->nope_dim;

			plaindec_rotate(s, y, q + (size_t)t * kd + (size_t)h * y->k_dim + y->nope_dim, t);
			for (uint32_t i = 0; i < y->kv_lora; i++)
				for (uint32_t c = 0; c < y->nope_dim; c++)
					key[c] += (double)kb[(size_t)i * y->nope_dim + c] * latent[i];
			memcpy(key + y->nope_dim, latent + y->kv_lora, pe * sizeof(*key));
			plaindec_mul(v + (size_t)t * vd + (size_t)h * y->v_dim,
				     w[SPEC_V_B] + (size_t)h * y->v_dim * y->kv_lora, NULL, latent, y->v_dim,
				     y->kv_lora);
		}
	}
	plaindec_attend(y, NULL, q, k, v, n, out);
	free(q);
	free(k);
	free(v);
	free(latent);
	free(low);
}

/* One head's step: S (k_dim, v_dim). */
static void plaindec_delta_head(const struct spec_layer *y, double *state, const double *q, const double *k,
				const double *v, double decay, double beta, double *out)
{
	double qq = 0, kk = 0;

	for (uint32_t i = 0; i < y->dk_dim; i++) {
		qq += q[i] * q[i];
		kk += k[i] * k[i];
	}
	qq = 1 / sqrt(qq + 1e-6) / sqrt(y->dk_dim);
	kk = 1 / sqrt(kk + 1e-6);
	for (uint32_t c = 0; c < y->dv_dim; c++) {
		double seen = 0;

		for (uint32_t i = 0; i < y->dk_dim; i++) {
			state[i * y->dv_dim + c] *= decay;
			seen += k[i] * kk * state[i * y->dv_dim + c];
		}
		out[c] = 0;
		for (uint32_t i = 0; i < y->dk_dim; i++) {
			state[i * y->dv_dim + c] += k[i] * kk * beta * (v[c] - seen);
			out[c] += q[i] * qq * state[i * y->dv_dim + c];
		}
	}
}

static void plaindec_delta(const struct spec *s, const struct spec_layer *y, float *const *w, const double *x,
			   uint32_t n, double *out)
{
	uint32_t channels = SPEC_D_QKV(y), kd = y->dk_heads * y->dk_dim, vd = y->dv_heads * y->dv_dim;
	double *raw = plaindec_new((size_t)n * channels), *c = plaindec_new(channels), *z = plaindec_new(vd);
	double *a = plaindec_new(y->dv_heads), *b = plaindec_new(y->dv_heads);
	double *state = plaindec_new((size_t)y->dv_heads * y->dk_dim * y->dv_dim);

	for (uint32_t t = 0; t < n; t++) {
		const double *in = x + (size_t)t * s->dim;

		plaindec_mul(raw + (size_t)t * channels, w[SPEC_D_QKV], NULL, in, channels, s->dim);
		plaindec_mul(z, w[SPEC_D_Z], NULL, in, vd, s->dim);
		plaindec_mul(a, w[SPEC_D_A], NULL, in, y->dv_heads, s->dim);
		plaindec_mul(b, w[SPEC_D_B], NULL, in, y->dv_heads, s->dim);
		for (uint32_t i = 0; i < channels; i++) {
			c[i] = 0;
			for (uint32_t j = 0; j < y->conv_width; j++)
				if (t + j + 1 >= y->conv_width)
					c[i] += (double)w[SPEC_D_CONV][(size_t)i * y->conv_width + j] *
						raw[(size_t)(t + j + 1 - y->conv_width) * channels + i];
			c[i] *= plaindec_sigmoid(c[i]);
		}
		for (uint32_t h = 0; h < y->dv_heads; h++) {
			uint32_t g = y->dv_tiled ? h % y->dk_heads : h / (y->dv_heads / y->dk_heads);
			double soft = log1p(exp(a[h] + (double)w[SPEC_D_DT_BIAS][h])),
			       *o = out + (size_t)t * vd + (size_t)h * y->dv_dim;

			plaindec_delta_head(y, state + (size_t)h * y->dk_dim * y->dv_dim, c + (size_t)g * y->dk_dim,
					    c + kd + (size_t)g * y->dk_dim, c + 2 * kd + (size_t)h * y->dv_dim,
					    exp((double)w[SPEC_D_NEG_A][h] * soft), plaindec_sigmoid(b[h]), o);
			plaindec_norm(s, o, o, w[SPEC_D_NORM], y->dv_dim);
			for (uint32_t i = 0; i < y->dv_dim; i++)
				o[i] *= z[h * y->dv_dim + i] * plaindec_sigmoid(z[h * y->dv_dim + i]);
		}
	}
	free(raw);
	free(c);
	free(z);
	free(a);
	free(b);
	free(state);
}

/* ---- feed-forward: out (dim) += that of x (dim) ---- */

static void plaindec_mlp(const struct spec *s, const struct spec_layer *y, const float *gate, const float *up,
			 const float *down, const float *gate_bias, const float *up_bias, const float *down_bias,
			 uint32_t inner, const double *x, double weight, double *out)
{
	double *g = plaindec_new(inner), *u = plaindec_new(inner), *o = plaindec_new(s->dim);

	plaindec_mul(g, gate, gate_bias, x, inner, s->dim);
	plaindec_mul(u, up, up_bias, x, inner, s->dim);
	for (uint32_t i = 0; i < inner; i++) g[i] = plaindec_glu(y, g[i], u[i]);
	plaindec_mul(o, down, down_bias, g, s->dim, inner);
	for (uint32_t i = 0; i < s->dim; i++) out[i] += weight * o[i];
	free(g);
	free(u);
	free(o);
}

/* Takes the best of `rank` (n): its index; the gap to the next is noted. Taken and barred ones are -INFINITY. */
static uint32_t plaindec_best(struct plaindec *p, const double *rank, uint32_t n, bool note)
{
	uint32_t best = 0;
	double next = -INFINITY;

	for (uint32_t i = 1; i < n; i++)
		if (rank[i] > rank[best]) best = i;
	for (uint32_t i = 0; i < n; i++)
		if (i != best) next = fmax(next, rank[i]);
	if (note && isfinite(next)) p->route_gap = fmin(p->route_gap, rank[best] - next);
	return best;
}

/* Bars the experts of groups that are not among the best. */
static void plaindec_groups(struct plaindec *p, const struct spec_layer *y, double *rank)
{
	uint32_t size = y->n_experts / y->n_groups;
	double *groups = plaindec_new(y->n_groups);
	bool *used = mem_array(bool, y->n_groups);

	for (uint32_t g = 0; g < y->n_groups; g++) {
		double first = -INFINITY, second = -INFINITY;

		for (uint32_t i = g * size; i < (g + 1) * size; i++) {
			if (rank[i] > first) {
				second = first;
				first = rank[i];
			} else if (rank[i] > second) {
				second = rank[i];
			}
		}
		groups[g] = y->router_correction ? first + second : first;
	}
	for (uint32_t k = 0; k < y->groups_used; k++) {
		uint32_t g = plaindec_best(p, groups, y->n_groups, k + 1 == y->groups_used);

		used[g] = true;
		groups[g] = -INFINITY;
	}
	for (uint32_t i = 0; i < y->n_experts; i++)
		if (!used[i / size]) rank[i] = -INFINITY;
	free(groups);
	free(used);
}

static void plaindec_experts(struct plaindec *p, const struct spec_layer *y, float *const *w, const double *x,
			     double *out)
{
	const struct spec *s = p->spec;
	double *score = plaindec_new(y->n_experts), *rank = plaindec_new(y->n_experts),
	       *weight = plaindec_new(y->n_used), sum = 0, max = -INFINITY;
	uint32_t *chosen = mem_array(uint32_t, y->n_used), inner = y->expert_ffn;
	size_t in = (size_t)inner * s->dim;

	plaindec_mul(score, w[SPEC_ROUTER], w[SPEC_ROUTER_BIAS], x, y->n_experts, s->dim);
	for (uint32_t i = 0; i < y->n_experts; i++) max = fmax(max, score[i]);
	for (uint32_t i = 0; i < y->n_experts; i++) sum += exp(score[i] - max);
	for (uint32_t i = 0; i < y->n_experts; i++) {
		if (y->router == SPEC_SIGMOID) score[i] = plaindec_sigmoid(score[i]);
		if (y->router == SPEC_SOFTMAX) score[i] = exp(score[i] - max) / sum;
		rank[i] = score[i] + (y->router_correction ? (double)w[SPEC_ROUTER_CORRECTION][i] : 0);
	}
	if (y->n_groups > 1) plaindec_groups(p, y, rank);
	sum = 0;
	for (uint32_t k = 0; k < y->n_used; k++) {
		chosen[k] = plaindec_best(p, rank, y->n_experts, k + 1 == y->n_used);
		rank[chosen[k]] = -INFINITY;
		weight[k] = y->router == SPEC_SOFTMAX_TOPK ? exp(score[chosen[k]] - max) : score[chosen[k]];
		sum += weight[k];
	}
	for (uint32_t k = 0; k < y->n_used; k++) {
		size_t e = chosen[k];

		if (y->router_norm || y->router == SPEC_SOFTMAX_TOPK) weight[k] /= sum;
		plaindec_mlp(s, y, w[SPEC_EXP_GATE] + e * in, w[SPEC_EXP_UP] + e * in, w[SPEC_EXP_DOWN] + e * in,
			     y->expert_bias ? w[SPEC_EXP_GATE_BIAS] + e * inner : NULL,
			     y->expert_bias ? w[SPEC_EXP_UP_BIAS] + e * inner : NULL,
			     y->expert_bias ? w[SPEC_EXP_DOWN_BIAS] + e * s->dim : NULL, inner, x,
			     weight[k] * y->router_scale, out);
	}
	if (y->shared_ffn) {
		double gate = 0;

		if (y->shared_gate) plaindec_mul(&gate, w[SPEC_SH_ROUTER], NULL, x, 1, s->dim);
		plaindec_mlp(s, y, w[SPEC_SH_GATE], w[SPEC_SH_UP], w[SPEC_SH_DOWN], NULL, NULL, NULL, y->shared_ffn, x,
			     y->shared_gate ? plaindec_sigmoid(gate) : 1, out);
	}
	free(score);
	free(rank);
	free(weight);
	free(chosen);
}

/* ---- a layer, and all ---- */

/* x (dim) += y (dim), normed before where the layer says so. */
static void plaindec_add(const struct spec *s, const struct spec_layer *y, double *x, double *o, const float *post)
{
	if (y->post_norms) plaindec_norm(s, o, o, post, s->dim);
	for (uint32_t i = 0; i < s->dim; i++) x[i] += o[i];
}

static void plaindec_layer(struct plaindec *p, uint32_t layer, double *x, uint32_t n)
{
	const struct spec *s = p->spec;
	const struct spec_layer *y = &s->layers[layer];
	float *const *w = p->values[layer];
	bool delta = y->mixer == SPEC_DELTA;
	uint32_t width = delta ? y->dv_heads * y->dv_dim : y->heads * y->v_dim;
	double *h = plaindec_new((size_t)n * s->dim), *core = plaindec_new((size_t)n * width),
	       *o = plaindec_new(s->dim);

	for (uint32_t t = 0; t < n; t++)
		plaindec_norm(s, h + (size_t)t * s->dim, x + (size_t)t * s->dim, w[SPEC_ATTN_NORM], s->dim);
	if (delta)
		plaindec_delta(s, y, w, h, n, core);
	else if (y->mixer == SPEC_MLA)
		plaindec_mla(s, y, w, h, n, core);
	else
		plaindec_attention(s, y, w, h, n, core);
	for (uint32_t t = 0; t < n; t++, x += s->dim) {
		plaindec_mul(o, w[delta ? SPEC_D_OUT : SPEC_O], w[SPEC_O_BIAS], core + (size_t)t * width, s->dim,
			     width);
		plaindec_add(s, y, x, o, w[SPEC_ATTN_POST_NORM]);
		plaindec_norm(s, h, x, w[SPEC_FFN_NORM], s->dim);
		memset(o, 0, s->dim * sizeof(*o));
		if (y->n_experts)
			plaindec_experts(p, y, w, h, o);
		else
			plaindec_mlp(s, y, w[SPEC_GATE], w[SPEC_UP], w[SPEC_DOWN], w[SPEC_GATE_BIAS], w[SPEC_UP_BIAS],
				     w[SPEC_DOWN_BIAS], y->ffn, h, 1, o);
		plaindec_add(s, y, x, o, w[SPEC_FFN_POST_NORM]);
	}
	free(h);
	free(core);
	free(o);
}

double *plaindec_run(struct plaindec *p, const uint32_t *tokens, uint32_t n)
{
	const struct spec *s = p->spec;
	float *const *w = p->values[s->n_layers];
	double *x = plaindec_new((size_t)n * s->dim), *logits = plaindec_new((size_t)n * s->n_tokens),
	       *h = plaindec_new(s->dim);

	for (uint32_t t = 0; t < n; t++)
		for (uint32_t i = 0; i < s->dim; i++)
			x[(size_t)t * s->dim + i] =
				(double)w[SPEC_EMBED][(size_t)tokens[t] * s->dim + i] * s->embed_scale;
	for (uint32_t i = 0; i < s->n_layers; i++) plaindec_layer(p, i, x, n);
	for (uint32_t t = 0; t < n; t++) {
		double *out = logits + (size_t)t * s->n_tokens;

		plaindec_norm(s, h, x + (size_t)t * s->dim, w[SPEC_OUTPUT_NORM], s->dim);
		plaindec_mul(out, w[s->tied ? SPEC_EMBED : SPEC_OUTPUT], NULL, h, s->n_tokens, s->dim);
		for (uint32_t i = 0; i < s->n_tokens; i++) out[i] = plaindec_cap(out[i], s->logit_softcap);
	}
	free(x);
	free(h);
	return logits;
}
