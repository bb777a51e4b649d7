/* decoder.c - see decoder.h.
 *
 * Memory of a step, all parts of the plan: x is the residual stream; h holds the norm, then what attention gives; qkv
 * holds the three projections side by side, so that one rotation does q and k together. The feed-forward goes through
 * plan.ffn_rows rows at a time. Attention and store are over all tokens in every layer, because later tokens need their
 * keys; the rest of the last layer is done for the wanted rows only, unless they are more than plan.outs (a prompt's
 * log-probabilities, a pooled prompt): then for all. A row's bits are the same either way. */
#include "worker/decoder.h"

#include "common/mem.h"

#include <math.h>

#define DECODER_BEAT_TOKENS 64 /* a layer takes well above the cost of a sync */

/* Cosine and sine are computed in double: in float the product of a large position and a frequency has no bits left. */
static int decoder_fill_rope(struct decoder *d, const struct modelshape *s)
{
	uint32_t half = s->rope_dims / 2;
	size_t n = (size_t)d->plan.positions * half;
	float *table = mem_array(float, n * 2);
	double *freqs = mem_array(double, half);
	int rc;

	for (uint32_t i = 0; i < half; i++) freqs[i] = modelshape_rope_freq(s, i);
	for (uint32_t p = 0; p < d->plan.positions; p++) {
		for (uint32_t i = 0; i < half; i++) {
			float *at = table + ((size_t)p * half + i) * 2;

			at[0] = (float)cos(p * freqs[i]);
			at[1] = (float)sin(p * freqs[i]);
		}
	}
	kdev_upload(d->dev, decoder_part(d, &d->plan.rope), table, n * 2 * sizeof(float));
	rc = kdev_sync(d->dev);
	free(freqs);
	free(table);
	return rc;
}

static void decoder_describe(struct decoder *d, const struct modelshape *s, const struct weights *w)
{
	for (uint32_t i = 0; i < s->n_layers; i++) {
		const struct weights_layer *y = &w->layers[i];

		d->layers[i] = (struct decoder_layer){
			.attn_norm = y->attn_norm,
			.q = &y->q,
			.k = &y->k,
			.v = &y->v,
			.o = &y->o,
			.heads = s->heads,
			.kv_heads = s->kv_heads,
			.head_dim = s->head_dim,
			.rope_dims = s->rope_dims,
			.rope = decoder_part(d, &d->plan.rope),
			.rope_style = s->rope_neox ? KROPE_NEOX : KROPE_NORM,
			.scale = (float)(1.0 / sqrt(s->head_dim)),
			.ffn_norm = y->ffn_norm,
			.gate = &y->gate,
			.up = &y->up,
			.down = &y->down,
			.ffn = s->ffn,
		};
	}
}

int decoder_init(struct decoder *d, struct kdev *dev, const struct modelshape *shape, const struct weights *w,
		 const struct memplan *plan, struct errbuf *err)
{
	int rc;

	*d = (struct decoder){.dev = dev,
			      .ops = kdev_ops(dev),
			      .dim = shape->dim,
			      .vocab = shape->n_tokens,
			      .eps = shape->rms_eps,
			      .embed = &w->embed,
			      .output = &w->output,
			      .output_norm = w->output_norm,
			      .n_layers = shape->n_layers,
			      .plan = *plan};
	d->arena = kdev_alloc(dev, plan->activation_bytes);
	if (!d->arena)
		return err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of activations",
			       plan->activation_bytes);
	d->layers = mem_array(struct decoder_layer, shape->n_layers);
	decoder_describe(d, shape, w);
	rc = decoder_fill_rope(d, shape);
	return rc == ST_OK ? ST_OK : err_set(err, rc, "rotation table: %s", status_text(rc));
}

int decoder_kv_init(struct decoder *d, uint32_t n_blocks, struct errbuf *err)
{
	char *at;

	if (d->kv) kdev_release(d->dev, d->kv, d->kv_bytes);
	d->n_blocks = 0;
	d->kv_bytes = 0;
	for (uint32_t i = 0; i < d->n_layers; i++) {
		struct decoder_layer *y = &d->layers[i];

		y->kv = (struct kkv){
			.type = d->plan.sizes.kv_type, .kv_heads = y->kv_heads, .k_dim = y->head_dim, .v_dim = y->head_dim};
		d->kv_bytes += kkv_bytes(&y->kv, n_blocks);
	}
	d->kv = kdev_alloc(d->dev, d->kv_bytes);
	if (!d->kv)
		return err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of KV cache", d->kv_bytes);
	at = d->kv;
	for (uint32_t i = 0; i < d->n_layers; i++) {
		kkv_place(&d->layers[i].kv, at, n_blocks);
		at += kkv_bytes(&d->layers[i].kv, n_blocks);
	}
	d->n_blocks = n_blocks;
	return ST_OK;
}

void decoder_release(struct decoder *d)
{
	if (!d->dev) return;
	if (d->kv) kdev_release(d->dev, d->kv, d->kv_bytes);
	if (d->arena) kdev_release(d->dev, d->arena, d->plan.activation_bytes);
	free(d->layers);
	*d = (struct decoder){0};
}

static void decoder_norm(struct decoder *d, float *out, const float *x, const float *w, uint32_t n)
{
	struct knorm a = {.out = out, .ld_out = d->dim, .x = x, .ld_x = d->dim, .w = w, .groups = 1, .dim = d->dim, .eps = d->eps};

	d->ops->norm(d->dev, &a, n);
}

/* h = what attention gives for every token; keys and values are in the cache. */
static void decoder_attend(struct decoder *d, const struct decoder_layer *y, const struct kbatch *b, float *x, float *h,
			   float *qkv, bool store_only)
{
	uint32_t n = b->n_tokens, ld = d->plan.qkv_width;
	float *q = qkv, *k = q + y->heads * y->head_dim, *v = k + y->kv_heads * y->head_dim;
	struct kmat_out outs[3] = {{.w = y->k, .out = k, .ld_out = ld},
				   {.w = y->v, .out = v, .ld_out = ld},
				   {.w = y->q, .out = q, .ld_out = ld}};
	struct kattn a = {.out = h, .ld_out = y->heads * y->head_dim, .q = q, .ld_q = ld, .kv = &y->kv, .heads = y->heads, .scale = y->scale};

	decoder_norm(d, h, x, y->attn_norm, n);
	d->ops->matmul(d->dev, h, d->dim, n, outs, store_only ? 2 : 3);
	if (store_only) /* nothing of this batch is wanted: its keys and values are all that remains to be done */
		d->ops->rope(d->dev, k, ld, b->positions, n, y->kv_heads, y->head_dim, y->rope_dims, y->rope,
			     y->rope_style);
	else /* the heads of k follow those of q */
		d->ops->rope(d->dev, q, ld, b->positions, n, y->heads + y->kv_heads, y->head_dim, y->rope_dims, y->rope,
			     y->rope_style);
	d->ops->kv_store(d->dev, &y->kv, k, ld, v, ld, b->slots, n);
	if (!store_only) d->ops->attention(d->dev, &a, b);
}

/* x (n, dim) += o(att), then += feed-forward(norm(x)). h is room for the norm; att may be h. */
static void decoder_mix(struct decoder *d, const struct decoder_layer *y, float *x, const float *att, float *h,
			uint32_t n)
{
	float *gate = decoder_part(d, &d->plan.gate), *up = decoder_part(d, &d->plan.up);
	struct kmat_out o = {.w = y->o, .out = x, .ld_out = d->dim, .accumulate = true};

	d->ops->matmul(d->dev, att, y->heads * y->head_dim, n, &o, 1);
	decoder_norm(d, h, x, y->ffn_norm, n);
	for (uint32_t row = 0; row < n; row += d->plan.ffn_rows) {
		uint32_t m = min_u32(n - row, d->plan.ffn_rows);
		size_t at = (size_t)row * d->dim;
		struct kmat_out outs[2] = {{.w = y->gate, .out = gate, .ld_out = y->ffn},
					   {.w = y->up, .out = up, .ld_out = y->ffn}};
		struct kmat_out down = {.w = y->down, .out = x + at, .ld_out = d->dim, .accumulate = true};

		d->ops->matmul(d->dev, h + at, d->dim, m, outs, 2);
		d->ops->glu(d->dev, gate, gate, up, m, y->ffn, KGLU_SILU, 0);
		d->ops->matmul(d->dev, gate, y->ffn, m, &down, 1);
	}
}

/* A large batch of a large model takes longer than others may wait for a sign of life. */
static int decoder_beat(struct decoder *d, uint32_t n_tokens)
{
	int rc;

	if (!d->beat || n_tokens < DECODER_BEAT_TOKENS) return ST_OK;
	rc = kdev_sync(d->dev);
	d->beat(d->beat_ctx);
	return rc;
}

int decoder_forward(struct decoder *d, const struct kbatch *b)
{
	float *x = decoder_part(d, &d->plan.x), *h = decoder_part(d, &d->plan.h), *qkv = decoder_part(d, &d->plan.qkv);
	float *x_out = decoder_part(d, &d->plan.x_out);
	const struct decoder_layer *last = &d->layers[d->n_layers - 1];
	int rc;

	CHECK(b->n_tokens > 0 && b->n_tokens <= d->plan.sizes.batched_tokens_max && b->n_out <= b->n_tokens);
	d->ops->embed(d->dev, x, d->embed, b->token_ids, b->n_tokens, 1);
	for (const struct decoder_layer *y = d->layers; y < last; y++) {
		decoder_attend(d, y, b, x, h, qkv, false);
		decoder_mix(d, y, x, h, h, b->n_tokens);
		rc = decoder_beat(d, b->n_tokens);
		if (rc != ST_OK) return rc;
	}
	decoder_attend(d, last, b, x, h, qkv, b->n_out == 0);
	if (b->n_out == 0) return ST_OK;
	d->out_rows = NULL;
	if (b->out_rows && b->n_out <= d->plan.outs) {
		/* q, k and v are done with: their room takes attention's wanted rows. */
		d->ops->gather(d->dev, qkv, h, b->out_rows, b->n_out, last->heads * last->head_dim);
		d->ops->gather(d->dev, x_out, x, b->out_rows, b->n_out, d->dim);
		decoder_mix(d, last, x_out, qkv, h, b->n_out);
		x = x_out;
		decoder_norm(d, h, x, d->output_norm, b->n_out);
	} else {
		/* All are wanted, or so many that there is no room for a copy of each: then they are picked later. */
		decoder_mix(d, last, x, h, h, b->n_tokens);
		decoder_norm(d, h, x, d->output_norm, b->n_tokens);
		d->out_rows = b->out_rows;
	}
	d->normed = h;
	return ST_OK;
}

const float *decoder_states(struct decoder *d, uint32_t row, uint32_t n)
{
	float *picked = decoder_part(d, &d->plan.x_out);

	CHECK(n <= d->plan.logits_rows);
	if (!d->out_rows) return d->normed + (size_t)row * d->dim;
	d->ops->gather(d->dev, picked, d->normed, d->out_rows + row, n, d->dim);
	return picked;
}

const float *decoder_logits(struct decoder *d, uint32_t row, uint32_t n)
{
	struct kmat_out o = {.w = d->output, .out = decoder_part(d, &d->plan.logits), .ld_out = d->vocab};

	d->ops->matmul(d->dev, decoder_states(d, row, n), d->dim, n, &o, 1);
	return o.out;
}
