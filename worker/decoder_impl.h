/* decoder_impl.h - inside of the decoder: the mixers (decoder_mixers.c) and feed-forwards (decoder_ffn.c) that
 * decoder.c puts together. Nobody else includes it. */
#ifndef SLUICE_DECODER_IMPL_H
#define SLUICE_DECODER_IMPL_H

#include "worker/decoder.h"

/* A layer's mixer for all tokens of the batch: what goes through its output matrix, (n_tokens, cols of that), in the
 * plan's h or mix. Keys and values, or states, are brought up to date. h holds the normed input (n_tokens, dim). NULL
 * when nothing is wanted (b->n_out is 0 and `last`): then only what later tokens need was done. */
const float *decoder_mixer(struct decoder *d, const struct decoder_layer *l, const struct kbatch *b, bool last);
/* The matrix behind it, and its bias or NULL. */
const struct kmat *decoder_mixer_out(const struct decoder_layer *l, const float **bias);

/* x (n, dim) += the layer's feed-forward of h (n, dim), the normed input; what h holds is lost. */
void decoder_ffn(struct decoder *d, const struct decoder_layer *l, float *x, float *h, uint32_t n);

/* out (n, dim) = norm of x with w, or added to out. */
void decoder_norm(struct decoder *d, float *out, const float *x, const float *w, uint32_t n, bool accumulate);

#endif
