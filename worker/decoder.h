/* decoder.h - the transformer decoder: enqueues the operations of one ragged batch, driven by the description of each
 * layer.
 *
 * There is one decoder, not one a model family: what differs between layers is data in struct spec_layer
 * (model/spec.h), and which weights a layer has is data in struct weights_layer. Only the rows whose logits are wanted
 * go through the last layer's output matrix and feed-forward, and through the model's output matrix. Enqueues only; the
 * caller uploads the batch before and synchronises after. */
#ifndef SLUICE_DECODER_H
#define SLUICE_DECODER_H

#include "common/base.h"
#include "kernels/kernels.h"
#include "model/kvgroups.h"
#include "model/spec.h"
#include "worker/memplan.h"
#include "worker/weights.h"

struct decoder_layer {
	const struct spec_layer *y;    /* what it does; borrowed */
	const struct weights_layer *w; /* with which weights; borrowed */
	const float *rope; /* (positions, rope_dims / 2, 2) cosine and sine, device; NULL: nothing is rotated */
	uint32_t rope_dims;
	enum krope rope_style;
	struct kkv kv;   /* of attention; a DELTA layer has none */
	uint32_t group;  /* which of a sequence's block tables */
	size_t state_at; /* of DELTA: floats from the beginning of a sequence's state */
};

struct decoder {
	struct kdev *dev;
	const struct kops *ops;
	const struct spec *spec;       /* borrowed */
	const struct weights *weights; /* borrowed */
	const struct kvgroups *groups; /* borrowed */
	uint32_t dim, vocab;
	float eps;
	uint32_t n_layers;
	struct decoder_layer *layers;
	struct memplan plan;
	char *arena;   /* device, plan.activation_bytes; owned */
	float *states; /* device, (plan.n_states, spec_state_floats()); owned; NULL: no layer is recurrent */
	void *kv;      /* device, kv_bytes; owned */
	size_t kv_bytes;
	uint32_t n_blocks;
	uint32_t n_positions;     /* rows of the rotation tables that are filled */
	float *normed; /* states of the batch enqueued last after the last norm: (n_out, dim) of the wanted rows, or ...
			*/
	const uint32_t *out_rows; /* ... (n_tokens, dim) of all, and which are wanted; NULL: the former */
	/* Tests: the last row's hidden state (dim) after the embedding (0), after each layer (1 .. n_layers) and after
	 * the last norm (n_layers + 1); NULL: never. Each call costs a sync. */
	void (*on_hidden)(void *ctx, uint32_t layer, const float *state);
	void *hidden_ctx;
};

/* Takes arena and states. Borrows spec, weights and groups until the release.
 * ST_NO_MEMORY. */
int decoder_init(struct decoder *d, struct kdev *dev, const struct spec *spec, const struct weights *w,
		 const struct kvgroups *groups, const struct memplan *plan, struct errbuf *err) MUST_CHECK;
/* Takes (or takes again, with another size) the KV cache; its pages are touched only when blocks are used. */
int decoder_kv_init(struct decoder *d, uint32_t n_blocks, struct errbuf *err) MUST_CHECK;
/* After the first steps, which touch a little of every layer's: the rest comes in large pages. */
void decoder_kv_warm(struct decoder *d);
void decoder_release(struct decoder *d);

/* A part of the plan as device memory. */
static inline void *decoder_part(const struct decoder *d, const struct memplan_part *part)
{
	return d->arena + part->at;
}

/* Makes the rotation tables reach `positions`. They grow with the longest sequence: those of a long context would take a second and
 * many pages at the start, and few sequences become so long. ST_DEVICE. */
int decoder_reach(struct decoder *d, uint32_t positions) MUST_CHECK;
/* Enqueues all layers for the batch, whose positions decoder_reach() has been told. */
int decoder_forward(struct decoder *d, const struct kbatch *b) MUST_CHECK;

/* Enqueues what brings n wanted rows' states after the last norm together, n <= plan.logits_rows, and returns where
 * they will be: (n, dim), until the next call's operations run. */
const float *decoder_states(struct decoder *d, uint32_t row, uint32_t n);
/* Enqueues the logits of n wanted rows from `row` on, likewise: (n, vocab). */
const float *decoder_logits(struct decoder *d, uint32_t row, uint32_t n);

#endif
