/* decoder.h - the transformer decoder: enqueues the operations of one ragged batch, driven by a description of each
 * layer.
 *
 * There is one decoder, not one a model family: what differs between layers (heads, rotation, norms, the kind of
 * attention and of feed-forward) is data in struct decoder_layer, filled from the model's shape. Only the rows whose
 * logits are wanted go through the last feed-forward and the output matrix.
 * Enqueues only; the caller uploads the batch before and synchronises after. */
#ifndef SLUICE_DECODER_H
#define SLUICE_DECODER_H

#include "common/base.h"
#include "model/modelshape.h"
#include "kernels/kernels.h"
#include "worker/memplan.h"
#include "worker/weights.h"

struct decoder_layer {
	/* Attention: norm, q k v, rotation, store, attend, output. */
	const float *attn_norm;
	const struct kmat *q, *k, *v, *o;
	uint32_t heads, kv_heads, head_dim;
	uint32_t rope_dims;
	const float *rope; /* (positions, rope_dims / 2, 2) cosine and sine, device */
	enum krope rope_style;
	float scale; /* of the products of q and k */
	struct kkv kv;
	/* Feed-forward: norm, gate and up, silu(gate) * up, down. */
	const float *ffn_norm;
	const struct kmat *gate, *up, *down;
	uint32_t ffn;
};

struct decoder {
	struct kdev *dev;
	const struct kops *ops;
	uint32_t dim, vocab;
	float eps;
	const struct kmat *embed, *output;
	const float *output_norm;
	uint32_t n_layers;
	struct decoder_layer *layers;
	struct memplan plan;
	char *arena; /* device, plan.activation_bytes; owned */
	void *kv;    /* device, kv_bytes; owned */
	size_t kv_bytes;
	uint32_t n_blocks;
	float *normed;            /* states of the batch enqueued last after the last norm: (n_out, dim) of the wanted rows, or ... */
	const uint32_t *out_rows; /* ... (n_tokens, dim) of all, and which are wanted; NULL: the former */
	void (*beat)(void *ctx); /* called between the layers of a large batch; NULL: never */
	void *beat_ctx;
};

/* Takes the activations arena and fills the rotation table. Borrows weights. ST_NO_MEMORY. */
int decoder_init(struct decoder *d, struct kdev *dev, const struct modelshape *shape, const struct weights *w,
		 const struct memplan *plan, struct errbuf *err) MUST_CHECK;
/* Takes (or takes again, with another size) the KV cache; its pages are touched only when blocks are used. */
int decoder_kv_init(struct decoder *d, uint32_t n_blocks, struct errbuf *err) MUST_CHECK;
void decoder_release(struct decoder *d);

/* A part of the plan as device memory. */
static inline void *decoder_part(const struct decoder *d, const struct memplan_part *part)
{
	return d->arena + part->at;
}

/* Enqueues all layers for the batch. With `beat`, a large batch is synchronised after each layer: ST_DEVICE. */
int decoder_forward(struct decoder *d, const struct kbatch *b) MUST_CHECK;

/* Enqueues what brings n wanted rows' states after the last norm together, n <= plan.logits_rows, and returns where they will be: (n,
 * dim), until the next call's operations run. */
const float *decoder_states(struct decoder *d, uint32_t row, uint32_t n);
/* Enqueues the logits of n wanted rows from `row` on, likewise: (n, vocab). */
const float *decoder_logits(struct decoder *d, uint32_t row, uint32_t n);

#endif
