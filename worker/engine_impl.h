/* engine_impl.h - inside of the engine, for its files: engine_load.c makes it, engine.c runs steps, engine_null.c
 * stands in for a device. */
#ifndef SLUICE_ENGINE_IMPL_H
#define SLUICE_ENGINE_IMPL_H

#include "model/ckpt.h"
#include "worker/engine.h"
#include "worker/outcome.h"

struct engine {
	struct engine_opts opts;
	struct ckpt *ckpt; /* open while weights are views of its files */
	struct spec spec;
	struct memplan plan;
	struct kvplan_shape kv_shape;
	struct wsrc_rank rank;
	uint32_t model_len_max, n_threads, n_blocks;
	bool len_settled; /* model_len_max is no longer the longest possible, but what it will be */
	uint64_t memory_available;
	struct kdev *dev;
	struct weights weights;
	struct decoder decoder;
	struct draw_env env; /* owns env.masks */
	struct batch *batch;
	struct ksampled *sampled; /* host (batch_rows_max()) */
	float *logits;            /* host (logits_rows, vocab), with on_logits */
	float *states;            /* host (logits_rows, dim) */
	struct outcome outcome;
	const char *why;
};

/* Fills e->sampled and the pools of a run without any arithmetic: a token is a hash of what its sequence ends with. */
void engine_null_run(struct engine *e, const struct batch_run *run);

#endif
