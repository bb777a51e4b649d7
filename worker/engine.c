/* engine.c - see engine.h.
 *
 * Good path of a step: batch_take() checks it and prepares the input, one upload carries it, the decoder enqueues all
 * layers, logits and draws are enqueued in parts of at most plan.logits_rows rows, one download brings the drawn rows,
 * one sync runs it all. Then the tokens are appended to their slots and the result's columns are filled (outcome.c).
 * A part whose rows have lists (masks, biases, penalties) has them uploaded first. Log-probabilities of prompts are more rows of the
 * same kind, whose token is given. States to be pooled are downloaded and added up on the host, in order of positions. */
#include "worker/engine.h"

#include "common/clock.h"
#include "common/cpuset.h"
#include "common/log.h"
#include "common/mem.h"
#include "model/preflight.h"
#include "model/ckpt.h"
#include "model/tokbytes.h"
#include "worker/bigstep.h"
#include "worker/outcome.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ENGINE_KV_AUTO_MAX (4 * GIB) /* on the CPU: enough for hundreds of conversations with a small model */
#define ENGINE_BEAT_PARTS  4            /* so many parts of a step are drawn with a sign of life in between */
#define ENGINE_MASK_BYTES  (128 * MIB) /* of grammars and their masks; host memory, taken when grammars come */

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

	if (rc == ST_OK) rc = engine_read_spec(e, &opts, err);
	if (rc != ST_OK) return rc;
	if (opts.model_len_max > e->spec.context_len)
		return err_set(err, ST_INVALID, "--max-model-len %u is more than the model's own context length, %u", o->model_len_max,
			       e->spec.context_len);
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
	if (o->null_device) e->plan.activation_bytes = e->plan.scratch_bytes = e->plan.state_bytes = 0; /* nothing is computed */
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
			       .model_len_max = o->model_len_max == ENGINE_LEN_AUTO && !e->len_settled ? 0 : e->model_len_max,
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
	for (char *save = NULL, *line = strtok_r(table.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) log_info("%s", line);
	strbuf_release(&table);
}

/* Makes sure that what is planned fits, and settles an automatic length: activations were planned for the longest, so they still fit. */
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
	masks_free(e->env.masks);
	outcome_release(&e->outcome);
	free(e);
}

const struct memplan *engine_plan(const struct engine *e)
{
	return &e->plan;
}

const struct spec *engine_spec(const struct engine *e)
{
	return &e->spec;
}

const struct kvgroups *engine_kvgroups(const struct engine *e)
{
	return &e->kv_shape.groups;
}

bool engine_is_recurrent(const struct engine *e)
{
	return e->plan.n_states > 0;
}

uint32_t engine_model_len_max(const struct engine *e)
{
	return e->model_len_max;
}

uint64_t engine_memory_available(const struct engine *e)
{
	return e->memory_available;
}

uint32_t engine_n_blocks(const struct engine *e)
{
	return e->n_blocks;
}

const char *engine_device_name(const struct engine *e)
{
	return e->dev ? kdev_ops(e->dev)->name : "null";
}

uint32_t engine_n_threads(const struct engine *e)
{
	return e->n_threads;
}

uint32_t engine_n_used(const struct engine *e)
{
	return e->batch ? batch_n_used(e->batch) : 0;
}

const char *engine_why(const struct engine *e)
{
	return e->why;
}

/* As before kv_init. */
static void engine_kv_drop(struct engine *e)
{
	struct errbuf unused;

	batch_free(e->batch);
	e->batch = NULL;
	e->n_blocks = 0;
	if (e->dev) CHECK(decoder_kv_init(&e->decoder, 0, &unused) == ST_OK);
}

/* The largest step that may come, on as many blocks as it takes: what activations, workspace and states really take is touched then. */
static int engine_run_largest(struct engine *e, uint64_t n_blocks_max, struct errbuf *err)
{
	uint32_t n_groups = e->plan.sizes.kv_groups, n_seqs = min_u32(e->opts.seqs_max, e->opts.batched_tokens_max);
	uint32_t len = min_u32(e->opts.batched_tokens_max / n_seqs, e->model_len_max);
	struct msg_step_result result;
	struct bigstep largest;
	int rc;

	/* Fewer, longer sequences where there are few blocks. */
	while (n_seqs > 1 && bigstep_blocks(n_seqs, len, n_groups) > n_blocks_max) {
		n_seqs = (n_seqs + 1) / 2;
		len = min_u32(e->opts.batched_tokens_max / n_seqs, e->model_len_max);
	}
	while (len > 1 && bigstep_blocks(n_seqs, len, n_groups) > n_blocks_max) len--;
	if (bigstep_blocks(n_seqs, len, n_groups) > n_blocks_max) return ST_OK;
	rc = engine_kv_init(e, (uint32_t)bigstep_blocks(n_seqs, len, n_groups), err);
	if (rc != ST_OK) return rc;
	bigstep_init(&largest, n_seqs, len, n_groups);
	rc = engine_step(e, &largest.step, &result);
	bigstep_release(&largest);
	if (rc != ST_OK)
		err_set(err, rc, "the largest step (%u sequences of %u tokens): %s", n_seqs, len, rc == ST_INVALID ? e->why : status_text(rc));
	engine_kv_drop(e);
	return rc;
}

int engine_profile(struct engine *e, uint32_t *n_blocks, struct errbuf *err)
{
	struct kvplan plan;
	int rc = engine_kvplan(e, &plan, err);

	if (rc == ST_OK && e->opts.profile_run && !e->n_blocks) rc = engine_run_largest(e, plan.n_blocks, err);
	*n_blocks = rc == ST_OK ? (uint32_t)plan.n_blocks : 0;
	return rc;
}

int engine_kv_init(struct engine *e, uint32_t n_blocks, struct errbuf *err)
{
	struct batch_limits limits = {.n_blocks = n_blocks,
				      .positions = e->plan.positions,
				      .batched_tokens_max = e->opts.batched_tokens_max,
				      .seqs_max = e->opts.seqs_max,
				      .dim = e->spec.dim,
				      .n_states = e->plan.n_states,
				      .n_groups = e->plan.sizes.kv_groups,
				      .part_rows = e->plan.logits_rows,
				      .extra_words = e->plan.extra.bytes / sizeof(uint32_t),
				      .env = e->env};
	int rc = ST_OK;

	if (n_blocks == 0 || n_blocks > UINT32_MAX / KBLOCK_LEN)
		return err_set(err, ST_INVALID, "%u is no number of KV blocks", n_blocks);
	if (n_blocks == e->n_blocks) {
		batch_reset(e->batch);
		return ST_OK;
	}
	batch_free(e->batch);
	e->batch = NULL;
	e->n_blocks = 0;
	if (e->dev) rc = decoder_kv_init(&e->decoder, n_blocks, err);
	if (rc != ST_OK) return rc;
	e->batch = batch_new(&limits);
	e->n_blocks = n_blocks;
	return ST_OK;
}

void engine_set_beat(struct engine *e, void (*beat)(void *ctx), void *ctx)
{
	e->decoder.beat = beat;
	e->decoder.beat_ctx = ctx;
}

void engine_reset(struct engine *e)
{
	if (e->batch) batch_reset(e->batch);
}

/* ---- a step ---- */

/* The batch as the device sees it: the arrays of the uploaded input. */
static struct kbatch engine_kbatch(const struct batch_run *run, const char *input)
{
	return (struct kbatch){.n_tokens = run->n_tokens,
			       .n_seqs = run->n_seqs,
			       .token_ids = (const void *)(input + run->token_ids),
			       .positions = (const void *)(input + run->positions),
			       .seq_ix = (const void *)(input + run->seq_ix),
			       .slots = (const void *)(input + run->slots),
			       .block_tables = (const void *)(input + run->block_tables),
			       .blocks_max = run->blocks_max,
			       .seq_starts = (const void *)(input + run->seq_starts),
			       .states = (const void *)(input + run->states),
			       .n_out = run->n_out,
			       .out_rows = run->n_draw == run->n_tokens ? NULL : (const void *)(input + run->out_rows)};
}

/* The slot that a drawn or scored row belongs to. */
static uint32_t engine_row_slot(const struct batch_run *run, uint32_t row)
{
	const struct batch_score *c = run->scores;
	uint32_t end = run->n_draw;

	if (row < run->n_draw) return run->out_slots[row];
	while (row >= (end += c->n)) c++;
	return c->slot;
}

static int engine_show_logits(struct engine *e, const struct batch_run *run, const float *logits, uint32_t row,
			      uint32_t n)
{
	uint32_t vocab = e->spec.n_tokens;
	int rc;

	kdev_download(e->dev, e->logits, logits, (size_t)n * vocab * sizeof(float));
	rc = kdev_sync(e->dev);
	if (rc != ST_OK) return rc;
	for (uint32_t i = 0; i < n; i++)
		e->opts.on_logits(e->opts.ctx, engine_row_slot(run, row + i), e->logits + (size_t)i * vocab, vocab);
	return ST_OK;
}

/* Many rows take longer than others may wait for a sign of life. */
static int engine_beat(struct engine *e, uint32_t n_parts)
{
	int rc;

	if (!e->decoder.beat || n_parts < ENGINE_BEAT_PARTS) return ST_OK;
	rc = kdev_sync(e->dev);
	e->decoder.beat(e->decoder.beat_ctx);
	return rc;
}

/* Enqueues logits and draws of a part of the wanted rows. */
static int engine_draw_part(struct engine *e, const struct batch_run *run, const char *input, const struct batch_part *p)
{
	struct ksampled *sampled = decoder_part(&e->decoder, &e->plan.sampled);
	const struct ksample *params = (const void *)(input + run->params);
	uint32_t *extra = decoder_part(&e->decoder, &e->plan.extra);
	const float *logits = decoder_logits(&e->decoder, p->row, p->n);
	int rc;

	if (e->opts.on_logits) {
		rc = engine_show_logits(e, run, logits, p->row, p->n);
		if (rc != ST_OK) return rc;
	}
	if (p->n_extra) kdev_upload(e->dev, extra, run->extra + p->extra_at, p->n_extra * sizeof(*extra));
	kdev_ops(e->dev)->sample(e->dev, sampled + p->row, logits, p->n, e->spec.n_tokens, params + p->row, extra);
	return engine_beat(e, run->n_parts);
}

/* Downloads the states of a pooling sequence and adds them up. */
static int engine_pool(struct engine *e, const struct batch_pool *p)
{
	uint32_t dim = e->spec.dim;
	int rc;

	for (uint32_t from = 0, n; from < p->n; from += n) {
		n = min_u32(p->n - from, e->plan.logits_rows);
		kdev_download(e->dev, e->states, decoder_states(&e->decoder, p->row + from, n), (size_t)n * dim * sizeof(float));
		rc = kdev_sync(e->dev);
		if (rc != ST_OK) return rc;
		for (uint32_t i = 0; i < n; i++) batch_pool_add(e->batch, p, e->states + (size_t)i * dim);
	}
	return ST_OK;
}

static int engine_run(struct engine *e, const struct batch_run *run)
{
	char *input = decoder_part(&e->decoder, &e->plan.input);
	struct ksampled *sampled = decoder_part(&e->decoder, &e->plan.sampled);
	struct kbatch b = engine_kbatch(run, input);
	int rc;

	kdev_upload(e->dev, input, run->input, run->bytes);
	rc = decoder_forward(&e->decoder, &b);
	for (uint32_t i = 0; i < run->n_parts && rc == ST_OK; i++) rc = engine_draw_part(e, run, input, &run->parts[i]);
	kdev_download(e->dev, e->sampled, sampled, ((size_t)run->n_draw + run->n_score) * sizeof(*sampled));
	for (uint32_t i = 0; i < run->n_pools && rc == ST_OK; i++) rc = engine_pool(e, &run->pools[i]);
	return rc == ST_OK ? kdev_sync(e->dev) : rc;
}

/* ---- the null device's model ---- */

static bool engine_null_may(const struct ksample *p, const uint32_t *extra, uint32_t token)
{
	if (p->has_mask && !(extra[p->mask_at + token / 32] >> token % 32 & 1)) return false;
	for (uint32_t i = 0; i < p->n_banned; i++)
		if (extra[p->banned_at + i] == token) return false;
	return true;
}

/* The next token follows from the last one and its position; where it may not be drawn, the next one that may. */
static uint32_t engine_null_token(const struct engine *e, const struct batch_run *run, const struct ksample *p,
				  const uint32_t *extra, uint32_t row)
{
	uint32_t n = 0, vocab = e->spec.n_tokens, token;
	const uint32_t *tokens;

	if (p->is_given) return p->given;
	tokens = batch_tokens(e->batch, run->out_slots[row], &n);
	token = (uint32_t)(XXH3_64bits_withSeed(&tokens[n - 1], sizeof(*tokens), n) % vocab);
	for (uint32_t tries = 0; tries < vocab; tries++, token = (token + 1) % vocab)
		if (engine_null_may(p, extra, token)) return token;
	return KTOKEN_NOT_ALLOWED;
}

/* The chosen token is the best one, and those behind it in the vocabulary come next. */
static struct ksampled engine_null_sampled(const struct engine *e, const struct ksample *p, uint32_t token)
{
	struct ksampled s = {.token = token};
	uint32_t vocab = e->spec.n_tokens;

	if (!p->want_logprob || token >= vocab) return s;
	s.rank = 1;
	for (; s.n_top < p->n_top && s.n_top < vocab; s.n_top++) {
		s.top_ids[s.n_top] = (token + s.n_top) % vocab;
		s.top_logprobs[s.n_top] = -(float)s.n_top;
	}
	return s;
}

/* Its hidden states are numbers made of token and position. */
static void engine_null_pool(struct engine *e, const struct batch_run *run, const struct batch_pool *p)
{
	const uint32_t *ids = (const void *)(run->input + run->token_ids), *rows = (const void *)(run->input + run->out_rows);
	const uint32_t *positions = (const void *)(run->input + run->positions);

	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t row = rows[p->row + i];
		uint64_t h = XXH3_64bits_withSeed(&ids[row], sizeof(*ids), positions[row]);

		for (uint32_t k = 0; k < e->spec.dim; k++)
			e->states[k] = (float)((h >> k % 48 & 0xffff) + k) / 65536 - 0.5f;
		batch_pool_add(e->batch, p, e->states);
	}
}

static void engine_run_null(struct engine *e, const struct batch_run *run)
{
	const struct ksample *params = (const void *)(run->input + run->params);

	for (uint32_t i = 0; i < run->n_parts; i++) {
		const struct batch_part *p = &run->parts[i];

		for (uint32_t row = p->row; row < p->row + p->n; row++)
			e->sampled[row] = engine_null_sampled(
				e, &params[row], engine_null_token(e, run, &params[row], run->extra + p->extra_at, row));
	}
	for (uint32_t i = 0; i < run->n_pools; i++) engine_null_pool(e, run, &run->pools[i]);
}

static int engine_fail(struct engine *e, struct msg_step_result *out, int rc, const char *why)
{
	e->why = why;
	out->status = (uint32_t)-rc;
	return rc;
}

int engine_step(struct engine *e, const struct msg_step *step, struct msg_step_result *out)
{
	struct batch_run run;
	int rc = ST_OK;

	*out = (struct msg_step_result){.epoch = step->epoch, .number = step->number};
	if (!e->batch) return engine_fail(e, out, ST_INVALID, "a step before the KV cache is there");
	if (batch_take(e->batch, step, &run) != ST_OK) return engine_fail(e, out, ST_INVALID, batch_why(e->batch));
	if (run.n_tokens == 0) return ST_OK;
	if (e->opts.null_device)
		engine_run_null(e, &run);
	else
		rc = engine_run(e, &run);
	if (rc != ST_OK) return engine_fail(e, out, rc, "the device failed");
	outcome_fill(&e->outcome, e->batch, &run, e->sampled, e->opts.hash_logits, out);
	return ST_OK;
}

int engine_warm_up(struct engine *e, uint64_t *step_ns)
{
	struct msg_step_result result;
	struct bigstep one;
	uint64_t from;
	int rc = ST_OK;

	*step_ns = 0;
	if (!e->batch || e->n_blocks < e->plan.sizes.kv_groups) return ST_INVALID;
	bigstep_init(&one, 1, 1, e->plan.sizes.kv_groups);
	/* Twice: the first touches pages and wakes threads, the second is measured. */
	for (int i = 0; i < 2 && rc == ST_OK && batch_n_used(e->batch) == 0; i++) {
		from = clock_now_ns();
		rc = engine_step(e, &one.step, &result);
		*step_ns = clock_now_ns() - from;
		batch_reset(e->batch);
	}
	bigstep_release(&one);
	if (e->dev) decoder_kv_warm(&e->decoder);
	return rc;
}
