/* decoder_ffn.c - the feed-forward of a layer: dense, or experts with or without a shared one (see decoder_impl.h).
 *
 * It goes through so many rows at a time as the plan has room for. A row of h is free once its products are taken, so
 * what waits for a gate or a norm is kept there. */
#include "worker/decoder_impl.h"

static enum kglu decoder_glu(const struct spec_layer *y)
{
	static const enum kglu kinds[] = {
		[SPEC_SILU] = KGLU_SILU, [SPEC_GELU_TANH] = KGLU_GELU_TANH, [SPEC_OAI] = KGLU_OAI};

	return kinds[y->glu];
}

static enum kroute_kind decoder_route_kind(const struct spec_layer *y)
{
	static const enum kroute_kind kinds[] = {[SPEC_SOFTMAX] = KROUTE_SOFTMAX,
						 [SPEC_SOFTMAX_TOPK] = KROUTE_SOFTMAX_TOPK,
						 [SPEC_SIGMOID] = KROUTE_SIGMOID};

	return kinds[y->router];
}

/* out (n, dim) [+]= down(glu(gate(h), up(h))); out may be h when it does not accumulate. */
struct decoder_glued {
	enum spec_role gate, up, down;
	enum spec_role gate_bias, up_bias, down_bias; /* SPEC_ROLE_COUNT: none */
	float *out;
	bool accumulate;
};

static const float *decoder_vec(const struct decoder_layer *l, enum spec_role role)
{
	return role == SPEC_ROLE_COUNT ? NULL : l->w->vec[role];
}

static void decoder_glued(struct decoder *d, const struct decoder_layer *l, const struct decoder_glued *g,
			  const float *h, uint32_t n)
{
	const struct kmat *mat = l->w->mat;
	uint32_t inner = mat[g->gate].rows;
	float *gate = decoder_part(d, &d->plan.gate), *up = decoder_part(d, &d->plan.up);
	struct kmat_out outs[2] = {
		{.w = &mat[g->gate], .out = gate, .ld_out = inner, .bias = decoder_vec(l, g->gate_bias)},
		{.w = &mat[g->up], .out = up, .ld_out = inner, .bias = decoder_vec(l, g->up_bias)}};
	struct kmat_out down = {.w = &mat[g->down],
				.out = g->out,
				.ld_out = d->dim,
				.bias = decoder_vec(l, g->down_bias),
				.accumulate = g->accumulate};

	d->ops->matmul(d->dev, h, d->dim, n, outs, 2);
	d->ops->glu(d->dev, gate, gate, up, n, inner, decoder_glu(l->y), (float)l->y->glu_limit);
	d->ops->matmul(d->dev, gate, inner, n, &down, 1);
}

static void decoder_dense(struct decoder *d, const struct decoder_layer *l, float *x, float *h, uint32_t n)
{
	bool post = l->y->post_norms;
	struct decoder_glued g = {.gate = SPEC_GATE,
				  .up = SPEC_UP,
				  .down = SPEC_DOWN,
				  .gate_bias = SPEC_GATE_BIAS,
				  .up_bias = SPEC_UP_BIAS,
				  .down_bias = SPEC_DOWN_BIAS,
				  .out = post ? h : x,
				  .accumulate = !post};

	decoder_glued(d, l, &g, h, n);
	if (post) decoder_norm(d, x, h, l->w->vec[SPEC_FFN_POST_NORM], n, true);
}

/* ---- experts ---- */

static struct kroute decoder_route(struct decoder *d, const struct decoder_layer *l, const float *h, uint32_t n)
{
	const struct spec_layer *y = l->y;
	const struct memplan *p = &d->plan;
	float *logits = decoder_part(d, &p->route_logits);
	struct kmat_out o = {.w = &l->w->mat[SPEC_ROUTER],
			     .out = logits,
			     .ld_out = y->n_experts,
			     .bias = l->w->vec[SPEC_ROUTER_BIAS]};
	struct kroute r = {.logits = logits,
			   .correction = l->w->vec[SPEC_ROUTER_CORRECTION],
			   .n = n,
			   .n_experts = y->n_experts,
			   .k = y->n_used,
			   .n_groups = y->n_groups,
			   .groups_used = y->groups_used,
			   .kind = decoder_route_kind(y),
			   .norm = y->router_norm,
			   .scale = (float)y->router_scale,
			   .weights = decoder_part(d, &p->route_weights),
			   .tokens = decoder_part(d, &p->route_tokens),
			   .places = decoder_part(d, &p->route_places),
			   .starts = decoder_part(d, &p->route_starts)};

	d->ops->matmul(d->dev, h, d->dim, n, &o, 1);
	d->ops->route(d->dev, &r);
	return r;
}

/* sum (n, dim) += what the chosen experts give. */
static void decoder_chosen(struct decoder *d, const struct decoder_layer *l, float *sum, const float *h, uint32_t n)
{
	const struct spec_layer *y = l->y;
	struct kroute r = decoder_route(d, l, h, n);
	float *rows = decoder_part(d, &d->plan.experts_x), *gate = decoder_part(d, &d->plan.gate),
	      *up = decoder_part(d, &d->plan.up);
	uint32_t n_rows = n * y->n_used, inner = y->expert_ffn;
	struct kexpert_out outs[2] = {
		{.w = l->w->each[SPEC_EXP_GATE], .out = gate, .ld_out = inner, .bias = l->w->vec[SPEC_EXP_GATE_BIAS]},
		{.w = l->w->each[SPEC_EXP_UP], .out = up, .ld_out = inner, .bias = l->w->vec[SPEC_EXP_UP_BIAS]}};
	struct kexpert_out down = {
		.w = l->w->each[SPEC_EXP_DOWN], .out = rows, .ld_out = d->dim, .bias = l->w->vec[SPEC_EXP_DOWN_BIAS]};

	d->ops->gather(d->dev, rows, h, r.tokens, n_rows, d->dim);
	d->ops->matmul_experts(d->dev, rows, d->dim, n_rows, r.starts, y->n_experts, outs, 2);
	d->ops->glu(d->dev, gate, gate, up, n_rows, inner, decoder_glu(y), (float)y->glu_limit);
	d->ops->matmul_experts(d->dev, gate, inner, n_rows, r.starts, y->n_experts, &down, 1);
	d->ops->combine(d->dev, sum, rows, r.weights, r.places, n, y->n_used, d->dim);
}

/* sum (n, dim) += what the shared expert gives; h is lost. */
static void decoder_shared(struct decoder *d, const struct decoder_layer *l, float *sum, float *h, uint32_t n)
{
	float *gate = decoder_part(d, &d->plan.shared_gate);
	struct kmat_out o = {.w = &l->w->mat[SPEC_SH_ROUTER], .out = gate, .ld_out = 1};
	struct ksigmoid s = {.out = sum,
			     .ld_out = d->dim,
			     .x = h,
			     .ld_x = d->dim,
			     .gate = gate,
			     .ld_gate = 1,
			     .gate_dim = 1,
			     .dim = d->dim,
			     .accumulate = true};
	struct decoder_glued g = {.gate = SPEC_SH_GATE,
				  .up = SPEC_SH_UP,
				  .down = SPEC_SH_DOWN,
				  .gate_bias = SPEC_ROLE_COUNT,
				  .up_bias = SPEC_ROLE_COUNT,
				  .down_bias = SPEC_ROLE_COUNT,
				  .out = l->y->shared_gate ? h : sum,
				  .accumulate = !l->y->shared_gate};

	if (l->y->shared_gate) d->ops->matmul(d->dev, h, d->dim, n, &o, 1);
	decoder_glued(d, l, &g, h, n);
	if (l->y->shared_gate) d->ops->sigmoid(d->dev, &s, n);
}

static void decoder_experts(struct decoder *d, const struct decoder_layer *l, float *x, float *h, uint32_t n)
{
	float *sum = l->y->post_norms ? decoder_part(d, &d->plan.experts_sum) : x;
	struct kcopy zero = {.out = sum, .ld_out = d->dim, .groups = 1, .dim = d->dim};

	if (l->y->post_norms) d->ops->copy(d->dev, &zero, n);
	decoder_chosen(d, l, sum, h, n);
	if (l->y->shared_ffn) decoder_shared(d, l, sum, h, n);
	if (l->y->post_norms) decoder_norm(d, x, sum, l->w->vec[SPEC_FFN_POST_NORM], n, true);
}

void decoder_ffn(struct decoder *d, const struct decoder_layer *l, float *x, float *h, uint32_t n)
{
	uint32_t rows_max = l->y->n_experts ? d->plan.expert_rows : d->plan.ffn_rows;

	for (uint32_t row = 0, m; row < n; row += m) {
		size_t at = (size_t)row * d->dim;

		m = min_u32(n - row, rows_max);
		if (l->y->n_experts)
			decoder_experts(d, l, x + at, h + at, m);
		else
			decoder_dense(d, l, x + at, h + at, m);
	}
}
