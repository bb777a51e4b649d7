/* decoder_mixers.c - the mixers of a layer: attention, latent attention, the gated delta net (see decoder_impl.h).
 *
 * A mixer's projections are matrices of their own, (n_tokens, width), one after the other in the plan's mix. */
#include "worker/decoder_impl.h"

/* Gives out room in mix. */
struct decoder_room {
	float *at, *end;
	uint32_t n;
};

static struct decoder_room decoder_room_of(const struct decoder *d, uint32_t n)
{
	float *at = decoder_part(d, &d->plan.mix);

	return (struct decoder_room){.at = at, .end = at + d->plan.mix.bytes / sizeof(float), .n = n};
}

static float *decoder_room_take(struct decoder_room *r, uint32_t width)
{
	float *p = r->at;

	CHECK((size_t)r->n * width <= (size_t)(r->end - p));
	r->at += (size_t)r->n * width;
	return p;
}

static struct kmat_out decoder_to(const struct decoder_layer *l, enum spec_role role, float *out, uint32_t ld_out)
{
	return (struct kmat_out){.w = &l->w->mat[role], .out = out, .ld_out = ld_out};
}

static void decoder_rotate(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b, float *x,
			   uint32_t ld_x, uint32_t n_heads, uint32_t head_dim)
{
	if (l->rope)
		d->ops->rope(d->dev, x, ld_x, b->positions, b->n_tokens, n_heads, head_dim, l->rope_dims, l->rope,
			     l->rope_style);
}

/* ---- attention ---- */

static void decoder_head_norm(struct decoder *d, const float *w, float *x, uint32_t ld_x, uint32_t heads, uint32_t dim,
			      double eps, uint32_t n)
{
	struct knorm a = {
		.out = x, .ld_out = ld_x, .x = x, .ld_x = ld_x, .w = w, .groups = heads, .dim = dim, .eps = (float)eps};

	d->ops->norm(d->dev, &a, n);
}

/* q, k and v lie in one row of `ld` floats, so that one rotation does q and k: the heads of k follow those of q. */
static void decoder_attention_qk(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b, float *q,
				 uint32_t ld, bool with_q)
{
	const struct spec_layer *y = l->y;
	float *k = q + y->heads * y->k_dim;

	if (y->qk_norm) {
		if (with_q)
			decoder_head_norm(d, l->w->vec[SPEC_Q_NORM], q, ld, y->heads, y->k_dim, d->spec->eps,
					  b->n_tokens);
		decoder_head_norm(d, l->w->vec[SPEC_K_NORM], k, ld, y->kv_heads, y->k_dim, d->spec->eps, b->n_tokens);
	}
	if (with_q)
		decoder_rotate(d, l, b, q, ld, y->heads + y->kv_heads, y->k_dim);
	else
		decoder_rotate(d, l, b, k, ld, y->kv_heads, y->k_dim);
}

static struct kattn decoder_kattn(const struct decoder_layer *l, const struct kbatch *b, float *out, const float *q,
				  uint32_t ld_q)
{
	const struct spec_layer *y = l->y;

	return (struct kattn){.out = out,
			      .ld_out = y->heads * l->kv.v_dim,
			      .q = q,
			      .ld_q = ld_q,
			      .kv = &l->kv,
			      .heads = y->heads,
			      .window = y->window,
			      .scale = (float)y->scale,
			      .softcap = (float)y->softcap,
			      .sinks = l->w->vec[SPEC_SINKS],
			      .block_tables = b->block_tables + (size_t)l->group * b->n_seqs * b->blocks_max};
}

static const uint32_t *decoder_slots(const struct decoder_layer *l, const struct kbatch *b)
{
	return b->slots + (size_t)l->group * b->n_tokens;
}

static const float *decoder_attention(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b,
				      bool store_only)
{
	const struct spec_layer *y = l->y;
	struct decoder_room room = decoder_room_of(d, b->n_tokens);
	float *const *vec = l->w->vec;
	uint32_t ld = y->heads * y->k_dim + y->kv_heads * (y->k_dim + y->v_dim), out_dim = y->heads * y->v_dim,
		 n = b->n_tokens;
	float *h = decoder_part(d, &d->plan.h), *q = decoder_room_take(&room, ld), *gate = NULL;
	float *k = q + y->heads * y->k_dim, *v = k + y->kv_heads * y->k_dim;
	struct kmat_out outs[4] = {decoder_to(l, SPEC_K, k, ld), decoder_to(l, SPEC_V, v, ld),
				   decoder_to(l, SPEC_Q, q, ld)};
	struct kattn a = decoder_kattn(l, b, h, q, ld);
	uint32_t n_outs = store_only ? 2 : 3;

	outs[0].bias = vec[SPEC_K_BIAS];
	outs[1].bias = vec[SPEC_V_BIAS];
	outs[2].bias = vec[SPEC_Q_BIAS];
	if (y->out_gate && !store_only) {
		gate = decoder_room_take(&room, out_dim);
		outs[n_outs++] = decoder_to(l, SPEC_ATTN_GATE, gate, out_dim);
	}
	d->ops->matmul(d->dev, h, d->dim, n, outs, n_outs);
	decoder_attention_qk(d, l, b, q, ld, !store_only);
	d->ops->kv_store(d->dev, &l->kv, k, ld, v, ld, decoder_slots(l, b), n);
	if (store_only) return NULL;
	d->ops->attention(d->dev, &a, b);
	if (gate) {
		struct ksigmoid s = {.out = h,
				     .ld_out = out_dim,
				     .x = h,
				     .ld_x = out_dim,
				     .gate = gate,
				     .ld_gate = out_dim,
				     .gate_dim = out_dim,
				     .dim = out_dim};

		d->ops->sigmoid(d->dev, &s, n);
	}
	return h;
}

/* ---- latent attention ----
 * In its absorbed form (DeepSeek-V2, 2.1.2): a query goes into the latent space through its head's part of kv_b, scores
 * and sums are over latent vectors, and the sum comes out through the head's other part. So the cache has one vector a
 * token for all heads. */

/* q (n, heads * k_dim) and the latent (n, kv_lora + rotated dims), both normed, neither rotated. */
static void decoder_mla_project(struct decoder *d, const struct decoder_layer *l, uint32_t n, float *q, float *q_low,
				float *latent, bool store_only)
{
	const struct spec_layer *y = l->y;
	uint32_t ld_q = y->heads * y->k_dim, ld_latent = l->kv.k_dim;
	const float *h = decoder_part(d, &d->plan.h);
	struct kmat_out outs[2] = {decoder_to(l, SPEC_KV_A, latent, ld_latent), decoder_to(l, SPEC_Q, q, ld_q)};

	if (y->q_lora) outs[1] = decoder_to(l, SPEC_Q_A, q_low, y->q_lora);
	d->ops->matmul(d->dev, h, d->dim, n, outs, store_only ? 1 : 2);
	decoder_head_norm(d, l->w->vec[SPEC_KV_A_NORM], latent, ld_latent, 1, y->kv_lora, y->latent_eps, n);
	if (!y->q_lora || store_only) return;
	decoder_head_norm(d, l->w->vec[SPEC_Q_A_NORM], q_low, y->q_lora, 1, y->q_lora, y->latent_eps, n);
	outs[1] = decoder_to(l, SPEC_Q_B, q, ld_q);
	d->ops->matmul(d->dev, q_low, y->q_lora, n, &outs[1], 1);
}

/* absorbed (n, heads, [latent | rotated]) from q (n, heads, [nope | rotated]). */
static void decoder_mla_absorb(struct decoder *d, const struct decoder_layer *l, uint32_t n, const float *q,
			       float *absorbed)
{
	const struct spec_layer *y = l->y;
	uint32_t ld_q = y->heads * y->k_dim, step = l->kv.k_dim;
	struct kcopy turned = {.out = absorbed + y->kv_lora,
			       .ld_out = y->heads * step,
			       .out_step = step,
			       .x = q + y->nope_dim,
			       .ld_x = ld_q,
			       .x_step = y->k_dim,
			       .groups = y->heads,
			       .dim = y->k_dim - y->nope_dim};

	d->ops->matmul_each(d->dev, q, ld_q, y->k_dim, n, l->w->each[SPEC_K_B], y->heads, absorbed, y->heads * step,
			    step);
	if (turned.dim) d->ops->copy(d->dev, &turned, n);
}

static const float *decoder_mla(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b,
				bool store_only)
{
	const struct spec_layer *y = l->y;
	struct decoder_room room = decoder_room_of(d, b->n_tokens);
	uint32_t n = b->n_tokens, ld_q = y->heads * y->k_dim, ld_latent = l->kv.k_dim, pe_dim = y->k_dim - y->nope_dim;
	float *h = decoder_part(d, &d->plan.h), *q = decoder_room_take(&room, ld_q),
	      *latent = decoder_room_take(&room, ld_latent);
	float *q_low = decoder_room_take(&room, y->q_lora);
	float *absorbed = decoder_room_take(&room, y->heads * max_u32(ld_latent, y->v_dim)), *values = absorbed;
	struct kattn a = decoder_kattn(l, b, h, absorbed, y->heads * ld_latent);

	decoder_mla_project(d, l, n, q, q_low, latent, store_only);
	decoder_rotate(d, l, b, latent + y->kv_lora, ld_latent, 1, pe_dim);
	d->ops->kv_store(d->dev, &l->kv, latent, ld_latent, NULL, 0, decoder_slots(l, b), n);
	if (store_only) return NULL;
	decoder_rotate(d, l, b, q + y->nope_dim, ld_q, y->heads, y->k_dim);
	decoder_mla_absorb(d, l, n, q, absorbed);
	d->ops->attention(d->dev, &a, b);
	d->ops->matmul_each(d->dev, h, y->heads * y->kv_lora, y->kv_lora, n, l->w->each[SPEC_V_B], y->heads, values,
			    y->heads * y->v_dim, y->v_dim);
	return values;
}

/* ---- the gated delta net ---- */

static void decoder_delta_run(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b, float *qkv,
			      const float *ba)
{
	const struct spec_layer *y = l->y;
	uint32_t channels = SPEC_D_QKV(y);
	size_t step = spec_state_floats(d->spec), tail = (size_t)(y->conv_width - 1) * channels;
	struct kconv c = {.out = qkv,
			  .ld_out = channels,
			  .x = qkv,
			  .ld_x = channels,
			  .w = l->w->vec[SPEC_D_CONV],
			  .channels = channels,
			  .width = y->conv_width,
			  .state = d->states + l->state_at,
			  .state_step = step};
	struct kdelta a = {.out = decoder_part(d, &d->plan.h),
			   .ld_out = y->dv_heads * y->dv_dim,
			   .qkv = qkv,
			   .ld_qkv = channels,
			   .b = ba,
			   .a = ba + y->dv_heads,
			   .ld_a = 2 * y->dv_heads,
			   .ld_b = 2 * y->dv_heads,
			   .neg_a = l->w->vec[SPEC_D_NEG_A],
			   .dt_bias = l->w->vec[SPEC_D_DT_BIAS],
			   .k_heads = y->dk_heads,
			   .v_heads = y->dv_heads,
			   .k_dim = y->dk_dim,
			   .v_dim = y->dv_dim,
			   .tiled = y->dv_tiled,
			   .state = d->states + l->state_at + tail,
			   .state_step = step};

	d->ops->conv(d->dev, &c, b);
	d->ops->delta(d->dev, &a, b);
}

static const float *decoder_delta(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b)
{
	const struct spec_layer *y = l->y;
	struct decoder_room room = decoder_room_of(d, b->n_tokens);
	uint32_t n = b->n_tokens, channels = SPEC_D_QKV(y), out_dim = y->dv_heads * y->dv_dim;
	float *h = decoder_part(d, &d->plan.h), *qkv = decoder_room_take(&room, channels);
	float *z = decoder_room_take(&room, out_dim), *ba = decoder_room_take(&room, 2 * y->dv_heads);
	struct kmat_out outs[4] = {decoder_to(l, SPEC_D_QKV, qkv, channels), decoder_to(l, SPEC_D_Z, z, out_dim),
				   decoder_to(l, SPEC_D_B, ba, 2 * y->dv_heads),
				   decoder_to(l, SPEC_D_A, ba + y->dv_heads, 2 * y->dv_heads)};

	d->ops->matmul(d->dev, h, d->dim, n, outs, 4);
	decoder_delta_run(d, l, b, qkv, ba);
	decoder_head_norm(d, l->w->vec[SPEC_D_NORM], h, out_dim, y->dv_heads, y->dv_dim, d->spec->eps, n);
	d->ops->glu(d->dev, z, z, h, n, out_dim, KGLU_SILU, 0);
	return z;
}

/* ---- which it is ---- */

const float *decoder_mixer(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b, bool last)
{
	bool store_only = last && b->n_out == 0;

	switch (l->y->mixer) {
	case SPEC_ATTENTION:
		return decoder_attention(d, l, b, store_only);
	case SPEC_MLA:
		return decoder_mla(d, l, b, store_only);
	case SPEC_DELTA: {
		const float *core = decoder_delta(d, l, b);

		return store_only ? NULL : core;
	}
	}
	CHECK(!"a mixer that is built");
	return NULL;
}

const struct kmat *decoder_mixer_out(const struct decoder_layer *l, const float **bias)
{
	*bias = l->w->vec[SPEC_O_BIAS];
	return &l->w->mat[l->y->mixer == SPEC_DELTA ? SPEC_D_OUT : SPEC_O];
}
