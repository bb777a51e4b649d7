/* weights.h - a model's weights in device memory.
 *
 * One allocation holds all of them. The file is read once, tensor by tensor, by several host threads, and each tensor's
 * pages of the file are given back as soon as it is loaded: the process never holds the weights twice. A tied model has
 * one matrix for both ends. Rows of the vocabulary beyond the tokenizer's are left out: nothing may draw or send them.
 */
#ifndef SLUICE_WEIGHTS_H
#define SLUICE_WEIGHTS_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/modelshape.h"
#include "kernels/kernels.h"

struct gguf;

struct weights_layer {
	float *attn_norm, *ffn_norm; /* (dim), device */
	struct kmat q, k, v, o, gate, up, down;
};

struct weights {
	struct kdev *dev;
	void *arena; /* device; all matrices and vectors lie in it */
	size_t arena_bytes;
	struct kmat embed;
	struct kmat output; /* the same memory as embed when the model is tied */
	float *output_norm; /* (dim), device */
	struct weights_layer *layers;
	uint32_t n_layers;
};

/* Called now and then by the loading thread, and at the end with done == total. */
typedef void weights_progress(void *ctx, uint64_t bytes_done, uint64_t bytes_total);

/* Device bytes that loading will take. ST_UNSUPPORTED, with the tensor's name, when the device has no products for its
 * type. */
int weights_bytes(struct kdev *dev, const struct modelshape *shape, const struct gguf *g, size_t *out,
		  struct errbuf *err) MUST_CHECK;

/* Fills a zeroed *w; the caller releases it also after an error. Borrows shape and g. progress may be NULL. */
int weights_load(struct weights *w, struct kdev *dev, const struct modelshape *shape, const struct gguf *g,
		 uint32_t n_threads, weights_progress *progress, void *ctx, struct errbuf *err) MUST_CHECK;
void weights_release(struct weights *w);

#endif
