/* engine_load.c - makes an engine: reads the model, plans its memory, loads the weights (see engine.h).
 *
 * Order: what the model is (spec), which tokens grammars know, the plan of activations, the device, what weights will
 * take; then, before anything large is taken, whether all of it fits with a useful KV cache; then the weights. */
#include "worker/engine_impl.h"

#include "common/cpuset.h"
#include "common/log.h"
#include "common/mem.h"
#include "model/ckptident.h"
#include "model/preflight.h"
#include "model/tokbytes.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define ENGINE_KV_AUTO_MAX (4 * GIB)   /* on the CPU: enough for hundreds of conversations with a small model */
#define ENGINE_MASK_BYTES  (128 * MIB) /* of grammars and their masks; host memory, taken when grammars come */

void engine_opts_init(struct engine_opts *o)
{
	*o = (struct engine_opts){.batched_tokens_max = 512,
				  .seqs_max = 256,
				  .act = KACT_Q8,
				  .level_max = KLEVEL_AVX512,
				  .kv_type = GGTYPE_F16,
				  .kv = {.utilization = 0.92, .auto_max = ENGINE_KV_AUTO_MAX}};
}

static int engine_read_spec(struct engine *e, struct spec_opts *opts, struct errbuf *err)
{
	json_t *overrides = NULL;
	int rc = preflight_overrides(&overrides, e->opts.overrides ? e->opts.overrides : "", err);

	opts->overrides = overrides;
	if (rc == ST_OK) rc = spec_read(&e->spec, e->ckpt, opts, err);
	json_decref(overrides);
	return rc;
}

static int engine_read_model(struct engine *e, struct errbuf *err)
{
	const struct engine_opts *o = &e->opts;
	bool is_auto = o->model_len_max == ENGINE_LEN_AUTO;
	struct spec_opts opts = {.model_len_max = is_auto ? 0 : o->model_len_max};
	int rc = ckpt_open(&e->ckpt, o->model, err);

	if (rc == ST_OK) rc = ckptident_check(e->ckpt, o->model_ident, err);
	if (rc == ST_OK) rc = engine_read_spec(e, &opts, err);
	if (rc != ST_OK) return rc;
	if (opts.model_len_max > e->spec.context_len)
		return err_set(err, ST_INVALID, "--max-model-len %u is more than the model's own context length, %u",
			       o->model_len_max, e->spec.context_len);
	e->model_len_max = opts.model_len_max ? opts.model_len_max : min_u32(e->spec.context_len, LIMIT_TOKENS);
	return kvplan_shape(&e->kv_shape, &e->spec, o->kv_type, e->rank.size, e->model_len_max, err);
}

static void engine_make_plan(struct engine *e)
{
	const struct engine_opts *o = &e->opts;
	struct memplan_sizes sizes = {.batched_tokens_max = o->batched_tokens_max,
				      .seqs_max = o->seqs_max,
				      .model_len_max = e->model_len_max,
				      .kv_type = o->kv_type,
				      .kv_groups = max_u32(1, kvgroups_n(&e->kv_shape.groups)),
				      .mask_vocab = e->env.mask_vocab};
	size_t weight_bytes = e->plan.weight_bytes;
	struct spec share;

	spec_share(&share, &e->spec, e->rank.size);
	memplan_init(&e->plan, &share, &sizes);
	free(share.layers);
	e->plan.weight_bytes = weight_bytes;
	e->plan.kv_block_bytes = e->kv_shape.block_bytes;
	if (o->null_device)
		e->plan.activation_bytes = e->plan.scratch_bytes = e->plan.state_bytes = 0; /* nothing is computed */
}

int engine_kvplan(const struct engine *e, struct kvplan *out, struct errbuf *err)
{
	const struct engine_opts *o = &e->opts;
	struct kvplan_in in = {.available = e->memory_available,
			       .weights = e->plan.weight_bytes,
			       .activations = e->plan.activation_bytes,
			       .workspace = e->plan.scratch_bytes,
			       .state = e->plan.state_bytes,
			       .shape = &e->kv_shape,
			       .tokens_ahead = (uint64_t)LIMIT_STEPS_IN_FLIGHT * o->batched_tokens_max,
			       .model_len_max =
				       o->model_len_max == ENGINE_LEN_AUTO && !e->len_settled ? 0 : e->model_len_max,
			       .context_len = min_u32(e->spec.context_len, LIMIT_TOKENS),
			       .seqs_max = o->seqs_max,
			       .blocks_override = o->kv.n_blocks,
			       .kv_bytes = o->kv.bytes,
			       .utilization = o->kv.utilization,
			       .auto_max = o->kv.auto_max};

	return kvplan_make(out, &in, err);
}

/* Why it does not fit, before the line that says so. */
static void engine_log_plan(const struct engine *e, const struct kvplan *plan)
{
	struct strbuf table;

	strbuf_init(&table, 16 * KIB);
	kvplan_table(&table, &e->spec, plan);
	strbuf_putc(&table, 0);
	for (char *save = NULL, *line = strtok_r(table.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		log_info("%s", line);
	strbuf_release(&table);
}

/* Makes sure that what is planned fits, and settles an automatic length: activations were planned for the longest, so
 * they still fit. */
static int engine_settle(struct engine *e, struct errbuf *err)
{
	struct kvplan plan;
	int rc = engine_kvplan(e, &plan, err);

	if (rc != ST_OK) engine_log_plan(e, &plan);
	if (rc == ST_OK && e->opts.model_len_max == ENGINE_LEN_AUTO) {
		e->model_len_max = plan.model_len_max;
		engine_make_plan(e);
	}
	e->len_settled = true;
	return rc;
}

static int engine_open_device(struct engine *e, struct errbuf *err)
{
	struct kdev_opts opts = {.level_max = e->opts.level_max,
				 .act = e->opts.act,
				 .n_threads = e->n_threads,
				 .pin_threads = e->opts.pin_threads,
				 .hash_logits = e->opts.hash_logits,
				 .spin_us = e->opts.spin_us,
				 .scratch_bytes = e->plan.scratch_bytes};
	uint64_t viewed = 0;
	int rc = kdev_open_cpu(&e->dev, &opts, err);

	if (rc != ST_OK) return rc;
	rc = weights_bytes(e->dev, &e->spec, e->ckpt, e->rank, &e->plan.weight_bytes, &viewed, err);
	e->plan.weight_bytes += viewed;
	return rc;
}

static void engine_make_columns(struct engine *e)
{
	uint32_t n_rows = batch_rows_max(e->opts.batched_tokens_max, e->opts.seqs_max);

	outcome_init(&e->outcome, e->opts.seqs_max, n_rows, e->spec.dim);
	e->sampled = mem_array(struct ksampled, n_rows);
	e->states = mem_array(float, (size_t)e->plan.logits_rows * e->spec.dim);
	if (e->opts.on_logits) e->logits = mem_array(float, (size_t)e->plan.logits_rows * e->spec.n_tokens);
}

/* A vocabulary that cannot be read as bytes only means that no grammar can be followed. */
static void engine_make_masks(struct engine *e)
{
	struct tokbytes *t;
	struct errbuf err;

	e->env.vocab = e->spec.n_tokens;
	if (tokbytes_from_model(&t, e->ckpt, e->opts.tokenizer, e->spec.n_tokens, &err) != ST_OK) {
		log_info("grammars cannot be followed with this model: %s", err.text);
		return;
	}
	if (e->opts.null_device) engine_null_init(e, t);
	e->env.mask_vocab = t->n;
	e->env.masks = masks_new(t, ENGINE_MASK_BYTES);
}

static int engine_prepare(struct engine *e, struct errbuf *err)
{
	int rc = engine_read_model(e, err);

	if (rc != ST_OK) return rc;
	engine_make_masks(e);
	engine_make_plan(e);
	engine_make_columns(e);
	return ST_OK;
}

static int engine_load_device(struct engine *e, weights_progress *progress, void *ctx, struct errbuf *err)
{
	int rc = weights_load(&e->weights, e->dev, &e->spec, e->ckpt, e->rank, e->n_threads, progress, ctx, err);
	if (rc != ST_OK) return rc;
	rc = decoder_init(&e->decoder, e->dev, &e->spec, &e->weights, &e->kv_shape.groups, &e->plan, err);
	e->decoder.on_hidden = e->opts.on_hidden;
	e->decoder.hidden_ctx = e->opts.ctx;
	return rc;
}

static struct engine *engine_new(const struct engine_opts *opts)
{
	struct engine *e = mem_new(struct engine);

	CHECK(opts->seqs_max >= 1 && opts->seqs_max <= LIMIT_SEQS && opts->batched_tokens_max >= 1 &&
	      opts->batched_tokens_max <= LIMIT_BATCH && kkv_type_built(opts->kv_type));
	e->opts = *opts;
	e->why = "";
	e->rank = (struct wsrc_rank){0, max_u32(opts->tp, 1)};
	e->n_threads = opts->n_threads ? opts->n_threads : cpuset_available();
	e->memory_available = opts->kv.available ? opts->kv.available : cpuset_memory_available();
	return e;
}

/* What is borrowed is borrowed no longer. */
static int engine_finish(struct engine *e, int rc, struct engine **out)
{
	if (e->weights.viewed_bytes == 0) {
		ckpt_close(e->ckpt);
		e->ckpt = NULL;
	}
	e->opts.model = e->opts.tokenizer = e->opts.overrides = NULL;
	if (rc == ST_OK)
		*out = e;
	else
		engine_free(e);
	return rc;
}

int engine_load(struct engine **out, const struct engine_opts *opts, weights_progress *progress, void *ctx,
		struct errbuf *err)
{
	struct engine *e = engine_new(opts);
	int rc = engine_prepare(e, err);

	CHECK(e->rank.size == 1);
	if (rc == ST_OK && !opts->null_device) rc = engine_open_device(e, err);
	if (rc == ST_OK) rc = engine_settle(e, err);
	if (rc == ST_OK && !opts->null_device) rc = engine_load_device(e, progress, ctx, err);
	return engine_finish(e, rc, out);
}

int engine_measure(struct engine **out, const struct engine_opts *opts, struct errbuf *err)
{
	struct engine *e = engine_new(opts);
	int rc;

	e->n_threads = 1;
	rc = engine_prepare(e, err);
	if (rc == ST_OK && !opts->null_device) rc = engine_open_device(e, err);
	return engine_finish(e, rc, out);
}

void engine_free(struct engine *e)
{
	if (!e) return;
	batch_free(e->batch);
	decoder_release(&e->decoder);
	weights_release(&e->weights);
	kdev_close(e->dev);
	spec_release(&e->spec);
	ckpt_close(e->ckpt);
	free(e->sampled);
	free(e->logits);
	free(e->states);
	free(e->byte_ids);
	masks_free(e->env.masks);
	outcome_release(&e->outcome);
	free(e);
}
