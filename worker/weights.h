/* weights.h - a model's weights in device memory, by role.
 *
 * One allocation holds all that is copied; matrices that the device can multiply with where they lie in the file's map stay there and are
 * shared with every other process that maps it. Only what this rank needs is read, by several host threads, in pieces; pages of the
 * file are given back as soon as they are copied, so the process never holds the weights twice. A tied model has one matrix for both
 * ends. Rows of the vocabulary beyond spec.n_tokens are left out: nothing may draw or send them. */
#ifndef SLUICE_WEIGHTS_H
#define SLUICE_WEIGHTS_H

#include "common/base.h"
#include "common/errbuf.h"
#include "kernels/kernels.h"
#include "model/spec.h"
#include "model/wsrc.h"

struct weights_layer {
	struct kmat mat[SPEC_ROLE_COUNT];   /* SPEC_MAT; data NULL: the layer has no such role */
	struct kmat *each[SPEC_ROLE_COUNT]; /* SPEC_EACH; NULL likewise; owned */
	float *vec[SPEC_ROLE_COUNT];        /* SPEC_VEC and SPEC_VECS, device; NULL likewise */
};

struct weights {
	struct kdev *dev;
	void *arena; /* device; all that is copied */
	size_t arena_bytes;
	uint64_t viewed_bytes; /* of matrices that stay in the files' maps: the checkpoint must stay open while there are any */
	struct weights_layer *layers; /* (n_layers), and one more for the roles of the whole model */
	uint32_t n_layers;
};

static inline const struct weights_layer *weights_model(const struct weights *w)
{
	return &w->layers[w->n_layers];
}

/* Called now and then by the loading thread, and at the end with done == total. */
typedef void weights_progress(void *ctx, uint64_t bytes_done, uint64_t bytes_total);

/* Bytes that loading will take: copied to the device, and viewed where they lie in the files' maps, which wants room in the page cache.
 * ST_UNSUPPORTED, with the tensor's name, when the device has no products for its type; wsrc_find()'s and wsrc_shard()'s errors. */
int weights_bytes(struct kdev *dev, const struct spec *s, const struct ckpt *c, struct wsrc_rank rank, size_t *copied,
		  uint64_t *viewed, struct errbuf *err) MUST_CHECK;

/* Fills a zeroed *w; the caller releases it also after an error (a NaN scale names tensor and place). progress may be NULL. */
int weights_load(struct weights *w, struct kdev *dev, const struct spec *s, const struct ckpt *c, struct wsrc_rank rank,
		 uint32_t n_threads, weights_progress *progress, void *ctx, struct errbuf *err) MUST_CHECK;
void weights_release(struct weights *w);

#endif
