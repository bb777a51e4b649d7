/* decoder.c - see decoder.h.
 *
 * Memory of a step, all parts of the plan: x is the residual stream; h holds the norm, then what a mixer's core gives;
 * mix holds the mixer's projections. Mixers run over all tokens in every layer, because later tokens need their keys
 * and states; the rest of the last layer is done for the wanted rows only, unless they are more than plan.outs (a
 * prompt's log-probabilities, a pooled prompt): then for all. A row's bits are the same either way. */
#include "worker/decoder_impl.h"

#include "common/mem.h"

#include <math.h>

#define DECODER_ROPE_ROWS   1024 /* positions that are made at a time: a millisecond or two */

/* ---- the rotations ---- */

/* Cosine and sine are computed in double: in float the product of a large position and a frequency has no bits left. */
static void decoder_rope_rows(const struct spec_rope *r, uint32_t from, uint32_t n, float *out)
{
	for (uint32_t p = from; p < from + n; p++) {
		for (uint32_t i = 0; i < r->dims / 2; i++) {
			double c, s;

			sincos(p * r->freqs[i], &s, &c);
			*out++ = (float)(c * r->mscale);
			*out++ = (float)(s * r->mscale);
		}
	}
}

static int decoder_fill_rope(struct decoder *d, const struct spec_rope *r, float *table, uint32_t from, uint32_t n)
{
	float *rows = mem_array(float, (size_t)n * r->dims);
	int rc;

	decoder_rope_rows(r, from, n, rows);
	kdev_upload(d->dev, table + (size_t)from * r->dims, rows, (size_t)n * r->dims * sizeof(float));
	rc = kdev_sync(d->dev);
	free(rows);
	return rc;
}

int decoder_reach(struct decoder *d, uint32_t positions)
{
	int rc = ST_OK;

	CHECK(positions <= d->plan.positions);
	while (d->n_positions < positions && rc == ST_OK) {
		uint32_t n = min_u32(DECODER_ROPE_ROWS, d->plan.positions - d->n_positions);

		for (uint32_t i = 0; i < d->spec->n_ropes && rc == ST_OK; i++)
			rc = decoder_fill_rope(d, &d->spec->ropes[i], decoder_part(d, &d->plan.rope[i]), d->n_positions, n);
		d->n_positions += n;
	}
	return rc;
}

/* ---- what it owns ---- */

static void decoder_describe(struct decoder *d)
{
	size_t state_at = 0;

	for (uint32_t i = 0; i < d->n_layers; i++) {
		struct decoder_layer *l = &d->layers[i];

		*l = (struct decoder_layer){
			.y = &d->spec->layers[i], .w = &d->weights->layers[i], .state_at = state_at};
		state_at += spec_layer_state_floats(l->y);
		if (l->y->mixer == SPEC_DELTA || l->y->rope < 0) continue;
		l->rope = decoder_part(d, &d->plan.rope[l->y->rope]);
		l->rope_dims = d->spec->ropes[l->y->rope].dims;
		l->rope_style = d->spec->ropes[l->y->rope].neox ? KROPE_NEOX : KROPE_NORM;
	}
	CHECK(state_at == spec_state_floats(d->spec));
}

int decoder_init(struct decoder *d, struct kdev *dev, const struct spec *spec, const struct weights *w,
		 const struct kvgroups *groups, const struct memplan *plan, struct errbuf *err)
{

	*d = (struct decoder){.dev = dev,
			      .ops = kdev_ops(dev),
			      .spec = spec,
			      .weights = w,
			      .groups = groups,
			      .dim = spec->dim,
			      .vocab = spec->n_tokens,
			      .eps = (float)spec->eps,
			      .n_layers = spec->n_layers,
			      .plan = *plan};
	d->arena = kdev_alloc(dev, plan->activation_bytes);
	if (!d->arena)
		return err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of activations",
			       plan->activation_bytes);
	if (plan->state_bytes) {
		d->states = kdev_alloc(dev, plan->state_bytes);
		if (!d->states)
			return err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of recurrent states",
				       plan->state_bytes);
	}
	d->layers = mem_array(struct decoder_layer, spec->n_layers);
	decoder_describe(d);
	return ST_OK;
}

static bool decoder_kv_shape(struct decoder_layer *l, enum ggtype type)
{
	const struct spec_layer *y = l->y;

	if (y->mixer == SPEC_DELTA) return false;
	l->kv = (struct kkv){.type = type, .kv_heads = y->kv_heads, .k_dim = y->k_dim, .v_dim = y->v_dim};
	if (y->mixer == SPEC_MLA)
		l->kv = (struct kkv){.type = type,
				     .kv_heads = 1,
				     .k_dim = y->kv_lora + y->k_dim - y->nope_dim,
				     .v_dim = y->kv_lora,
				     .latent = true};
	return true;
}

/* Layers of one place have caches of one shape, so a block of either fills the same bytes (kvgroups.h). */
static const struct decoder_layer *decoder_place_owner(const struct decoder *d, uint32_t layer)
{
	for (uint32_t i = 0; i < layer; i++)
		if (d->groups->group[i] != KVGROUPS_NONE && d->groups->place[i] == d->groups->place[layer])
			return &d->layers[i];
	return NULL;
}

static size_t decoder_kv_measure(struct decoder *d, uint32_t n_blocks)
{
	size_t bytes = 0, block_bytes = 0;

	for (uint32_t i = 0; i < d->n_layers; i++) {
		struct decoder_layer *l = &d->layers[i];
		const struct decoder_layer *owner = decoder_place_owner(d, i);

		if (!decoder_kv_shape(l, d->plan.sizes.kv_type)) continue;
		l->group = d->groups->group[i];
		if (owner) {
			CHECK(l->kv.kv_heads == owner->kv.kv_heads && l->kv.k_dim == owner->kv.k_dim &&
			      l->kv.v_dim == owner->kv.v_dim);
			continue;
		}
		bytes += kkv_bytes(&l->kv, n_blocks);
		block_bytes += kkv_block_bytes(&l->kv);
	}
	CHECK(max_size(block_bytes, 1) == d->plan.kv_block_bytes); /* what was planned, and said to others */
	return bytes;
}

static void decoder_kv_place(struct decoder *d, uint32_t n_blocks)
{
	char *at = d->kv;

	for (uint32_t i = 0; i < d->n_layers; i++) {
		struct decoder_layer *l = &d->layers[i];
		const struct decoder_layer *owner = decoder_place_owner(d, i);

		if (l->y->mixer == SPEC_DELTA) continue;
		kkv_place(&l->kv, owner ? owner->kv.k : at, n_blocks);
		if (!owner) at += kkv_bytes(&l->kv, n_blocks);
	}
}

int decoder_kv_init(struct decoder *d, uint32_t n_blocks, struct errbuf *err)
{
	if (d->kv) kdev_release(d->dev, d->kv, d->kv_bytes);
	d->kv = NULL;
	d->n_blocks = 0;
	d->kv_bytes = decoder_kv_measure(d, n_blocks);
	if (d->kv_bytes) {
		d->kv = kdev_alloc_small(d->dev, d->kv_bytes);
		if (!d->kv)
			return err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of KV cache",
				       d->kv_bytes);
		decoder_kv_place(d, n_blocks);
	}
	d->n_blocks = n_blocks;
	return ST_OK;
}

void decoder_kv_warm(struct decoder *d)
{
	if (d->kv) kdev_large_pages(d->dev, d->kv, d->kv_bytes);
}

void decoder_release(struct decoder *d)
{
	if (!d->dev) return;
	if (d->kv) kdev_release(d->dev, d->kv, d->kv_bytes);
	if (d->states) kdev_release(d->dev, d->states, d->plan.state_bytes);
	if (d->arena) kdev_release(d->dev, d->arena, d->plan.activation_bytes);
	free(d->layers);
	*d = (struct decoder){0};
}

/* ---- a batch ---- */

void decoder_norm(struct decoder *d, float *out, const float *x, const float *w, uint32_t n, bool accumulate)
{
	struct knorm a = {.out = out,
			  .ld_out = d->dim,
			  .x = x,
			  .ld_x = d->dim,
			  .w = w,
			  .groups = 1,
			  .dim = d->dim,
			  .eps = d->eps,
			  .accumulate = accumulate};

	d->ops->norm(d->dev, &a, n);
}

/* x (n, dim) += the mixer's output matrix times core, then += feed-forward of its norm. core lies in h or in mix. */
static void decoder_finish(struct decoder *d, const struct decoder_layer *l, float *x, const float *core, uint32_t n)
{
	float *h = decoder_part(d, &d->plan.h), *mix = decoder_part(d, &d->plan.mix);
	float *waits = core == h ? mix : h; /* what core leaves free */
	struct kmat_out o = {.out = x, .ld_out = d->dim, .accumulate = true};

	o.w = decoder_mixer_out(l, &o.bias);
	if (l->y->post_norms) {
		o.out = waits;
		o.accumulate = false;
	}
	d->ops->matmul(d->dev, core, o.w->cols, n, &o, 1);
	if (l->y->post_norms) decoder_norm(d, x, waits, l->w->vec[SPEC_ATTN_POST_NORM], n, true);
	decoder_norm(d, h, x, l->w->vec[SPEC_FFN_NORM], n, false);
	decoder_ffn(d, l, x, h, n);
}

/* Shows row `row` of x (.., dim) to whoever looks for the first wrong layer. */
static int decoder_show(struct decoder *d, uint32_t layer, const float *x, uint32_t row)
{
	float *state;
	int rc;

	if (!d->on_hidden) return ST_OK;
	state = mem_array(float, d->dim);
	kdev_download(d->dev, state, x + (size_t)row * d->dim, d->dim * sizeof(*state));
	rc = kdev_sync(d->dev);
	if (rc == ST_OK) d->on_hidden(d->hidden_ctx, layer, state);
	free(state);
	return rc;
}

/* The last layer: its mixer for all tokens, what is behind it for the wanted ones. */
static int decoder_last(struct decoder *d, const struct kbatch *b, float *x, const float *core)
{
	const struct decoder_layer *last = &d->layers[d->n_layers - 1];
	float *h = decoder_part(d, &d->plan.h), *mix = decoder_part(d, &d->plan.mix);
	uint32_t n = b->n_tokens;
	int rc;

	d->out_rows = NULL;
	if (b->out_rows && b->n_out <= d->plan.outs) {
		float *few = core == h ? mix : h, *x_out = decoder_part(d, &d->plan.x_out);
		const float *bias;

		n = b->n_out;
		d->ops->gather(d->dev, few, core, b->out_rows, n, decoder_mixer_out(last, &bias)->cols);
		d->ops->gather(d->dev, x_out, x, b->out_rows, n, d->dim);
		core = few;
		x = x_out;
	} else {
		d->out_rows = b->out_rows; /* there is no room for a copy of each: they are picked later */
	}
	decoder_finish(d, last, x, core, n);
	rc = decoder_show(d, d->n_layers, x, n - 1);
	decoder_norm(d, h, x, weights_model(d->weights)->vec[SPEC_OUTPUT_NORM], n, false);
	d->normed = h;
	return rc == ST_OK ? decoder_show(d, d->n_layers + 1, h, n - 1) : rc;
}

int decoder_forward(struct decoder *d, const struct kbatch *b)
{
	float *x = decoder_part(d, &d->plan.x), *h = decoder_part(d, &d->plan.h);
	int rc;

	CHECK(b->n_tokens > 0 && b->n_tokens <= d->plan.sizes.batched_tokens_max && b->n_out <= b->n_tokens);
	d->ops->embed(d->dev, x, &weights_model(d->weights)->mat[SPEC_EMBED], b->token_ids, b->n_tokens,
		      (float)d->spec->embed_scale);
	rc = decoder_show(d, 0, x, b->n_tokens - 1);
	for (uint32_t i = 0; i < d->n_layers && rc == ST_OK; i++) {
		const struct decoder_layer *l = &d->layers[i];
		bool last = i + 1 == d->n_layers;
		const float *core;

		decoder_norm(d, h, x, l->w->vec[SPEC_ATTN_NORM], b->n_tokens, false);
		core = decoder_mixer(d, l, b, last);
		if (last) return core ? decoder_last(d, b, x, core) : ST_OK;
		decoder_finish(d, l, x, core, b->n_tokens);
		rc = decoder_show(d, i + 1, x, b->n_tokens - 1);
	}
	return rc;
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
	const struct weights_layer *model = weights_model(d->weights);
	struct kmat_out o = {.w = &model->mat[d->spec->tied ? SPEC_EMBED : SPEC_OUTPUT],
			     .out = decoder_part(d, &d->plan.logits),
			     .ld_out = d->vocab};

	CHECK(o.w->rows == d->vocab);
	d->ops->matmul(d->dev, decoder_states(d, row, n), d->dim, n, &o, 1);
	if (d->spec->logit_softcap > 0) d->ops->softcap(d->dev, o.out, n, d->vocab, (float)d->spec->logit_softcap);
	return o.out;
}
