/* engine_impl.h - inside of the engine, for its files: engine_load.c makes it, engine.c runs steps, engine_null.c
 * stands in for a device. */
#ifndef SLUICE_ENGINE_IMPL_H
#define SLUICE_ENGINE_IMPL_H

#include "model/ckpt.h"
#include "model/tokbytes.h"
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
	uint32_t *byte_ids;       /* (256) null device: tokens that are this one byte, UINT32_MAX: none; NULL: the vocabulary cannot be read */
	uint64_t null_until, null_thread_ns; /* when its last step ended, and the thread's processor time then */
};

/* The null device: fills e->sampled and the pools of a run without any arithmetic, and sleeps until the step that began at `from` has
 * taken opts.null_step_ns. */
void engine_null_run(struct engine *e, const struct batch_run *run, uint64_t from);
/* Finds the tokens that are single bytes. */
void engine_null_init(struct engine *e, const struct tokbytes *t);

#endif
