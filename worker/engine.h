/* engine.h - one rank's engine: device, weights, KV cache and sequences; a step goes in, its drawn tokens come out.
 *
 * Knows no ring and no process: serve.c puts it behind the step ring, tests call it directly. Order of calls: load,
 * profile (how many KV blocks), kv_init, then steps. One thread at a time. A step that does not fit what is known (it
 * is bytes from another process) gives a status in its result and changes nothing. Only a failed device is fatal:
 * ST_DEVICE. */
#ifndef SLUICE_ENGINE_H
#define SLUICE_ENGINE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "kernels/kernels.h"
#include "model/kvgroups.h"
#include "model/kvplan.h"
#include "model/spec.h"
#include "proto/messages.h"
#include "worker/batch.h"
#include "worker/decoder.h"
#include "worker/memplan.h"
#include "worker/weights.h"

/* Given to model_len_max: the longest that fits into memory. */
#define ENGINE_LEN_AUTO UINT32_MAX

/* How many KV blocks there shall be; options of the same meaning in model/kvplan.h. */
struct engine_kv {
	uint64_t n_blocks, bytes; /* 0: not given */
	double utilization;
	uint64_t auto_max;
	uint64_t available; /* 0: measured by load */
};

struct engine_opts {
	const char *model;      /* path of a checkpoint, as ckpt_open() takes it; borrowed until loaded */
	const char *tokenizer;  /* --tokenizer, for grammars; NULL: the checkpoint's own; likewise */
	const char *overrides;  /* --hf-overrides, a JSON object; NULL: none; likewise */
	uint64_t model_ident;   /* ckptident() that it must have; 0: any */
	uint32_t model_len_max; /* 0: the model's own; or ENGINE_LEN_AUTO */
	uint32_t batched_tokens_max, seqs_max;
	uint32_t n_threads; /* 0: cpuset_available() */
	bool pin_threads;
	enum kact act;
	enum klevel level_max;
	enum ggtype kv_type; /* kkv_type_built() */
	uint32_t tp;         /* ranks that share the model; 0, 1: none. More: for engine_measure() alone */
	struct engine_kv kv;
	bool hash_logits;
	/* engine_profile() runs the largest step. Off on the CPU, where all that a step takes is planned to the byte before anything is
	 * taken (test_profile runs it for each family and compares): it costs as long as reading a prompt of that size. */
	bool profile_run;
	bool null_device; /* all but the arithmetic; engine_null.c says which tokens are "drawn" */
	uint64_t null_step_ns; /* that such a step takes at least */
	uint32_t spin_us; /* kdev_opts */
	/* Tests and tools: called with each row's logits before it is drawn; and with those that give a prompt's log-probabilities, in
	 * order of positions. Costs a copy and a sync. */
	void (*on_logits)(void *ctx, uint32_t slot, const float *logits, uint32_t vocab);
	/* Likewise: with the hidden state of the step's last token, as decoder.h says. */
	void (*on_hidden)(void *ctx, uint32_t layer, const float *state);
	void *ctx;
};

/* Defaults for everything but the model. */
void engine_opts_init(struct engine_opts *o);

struct engine;

/* Reads the model, checks that memory suffices (if not, the plan is logged as a table), loads the weights. progress may be NULL. */
int engine_load(struct engine **out, const struct engine_opts *opts, weights_progress *progress, void *ctx,
		struct errbuf *err) MUST_CHECK;
void engine_free(struct engine *e);

/* Reads the model and plans as engine_load() does, but loads nothing and refuses nothing for want of memory: good for engine_kvplan() only. */
int engine_measure(struct engine **out, const struct engine_opts *opts, struct errbuf *err) MUST_CHECK;
/* The plan of the KV cache; errors as kvplan_make(). It points into the engine. */
int engine_kvplan(const struct engine *e, struct kvplan *out, struct errbuf *err) MUST_CHECK;

const struct memplan *engine_plan(const struct engine *e);
const struct spec *engine_spec(const struct engine *e);
/* Which layers share a block table. */
const struct kvgroups *engine_kvgroups(const struct engine *e);
/* True when sequences have recurrent states: their runs go on where the last one ended, or begin at 0. */
bool engine_is_recurrent(const struct engine *e);
uint32_t engine_model_len_max(const struct engine *e);
uint64_t engine_memory_available(const struct engine *e); /* measured before loading */
uint32_t engine_n_blocks(const struct engine *e);         /* 0 before kv_init */
const char *engine_device_name(const struct engine *e);
uint32_t engine_n_threads(const struct engine *e);
uint32_t engine_n_used(const struct engine *e); /* sequences that are held */

/* How many KV blocks this rank can have. */
int engine_profile(struct engine *e, uint32_t *n_blocks, struct errbuf *err) MUST_CHECK;
/* Takes the KV cache and forgets all sequences. The same size again keeps the memory. */
int engine_kv_init(struct engine *e, uint32_t n_blocks, struct errbuf *err) MUST_CHECK;
/* Runs a step of one token, so that threads are awake and pages touched. No-op while sequences are held. */
int engine_warm_up(struct engine *e, uint64_t *step_ns) MUST_CHECK;

/* Runs a step. out's columns are the engine's, valid until the next call. The return value is that of out->status:
 * ST_OK, ST_INVALID (a bad step), ST_DEVICE. */
int engine_step(struct engine *e, const struct msg_step *step, struct msg_step_result *out);
/* What was wrong with the last bad step. */
const char *engine_why(const struct engine *e);

/* beat(ctx) is called while a step gets on, which may take longer than a heartbeat: after each mask, and each operation of a layer. To be
 * set before kv_init. */
void engine_set_beat(struct engine *e, void (*beat)(void *ctx), void *ctx);

/* Forgets all sequences; weights and KV memory stay. */
void engine_reset(struct engine *e);

#endif
