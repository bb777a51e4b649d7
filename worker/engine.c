/* engine.c - see engine.h.
 *
 * Good path of a step: batch_take() checks it and prepares the input, one upload carries it, the decoder enqueues all
 * layers, logits and draws are enqueued in parts of at most plan.logits_rows rows, one download brings the drawn rows,
 * one sync runs it all. Then the tokens are appended to their slots and the result's columns are filled. */
#include "worker/engine.h"

#include "common/clock.h"
#include "common/cpuset.h"
#include "common/gguf.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ENGINE_KV_AUTO_MAX (4 * GIB) /* on the CPU: enough for hundreds of conversations with a small model */
#define ENGINE_TOP_MAX     (1 + KTOP_MAX)

struct engine_columns { /* of a result; (seqs_max), the top ones times ENGINE_TOP_MAX */
	uint32_t *slots, *tokens, *n_top, *ranks, *top_ids;
	float *top_logprobs;
	uint64_t *hashes;
};

struct engine {
	struct engine_opts opts;
	struct modelshape shape;
	struct memplan plan;
	uint32_t model_len_max, n_threads, n_blocks;
	uint64_t memory_available;
	struct kdev *dev;
	struct weights weights;
	struct decoder decoder;
	struct batch *batch;
	struct ksampled *sampled; /* host (seqs_max) */
	float *logits;            /* host (logits_rows, vocab), with on_logits */
	struct engine_columns cols;
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

static int engine_read_model(struct engine *e, const struct gguf *g, struct errbuf *err)
{
	const struct engine_opts *o = &e->opts;
	int rc = modelshape_read(&e->shape, g, err);

	if (rc != ST_OK) return rc;
	if (o->model_len_max > e->shape.context_len)
		return err_set(err, ST_INVALID, "--max-model-len %u is more than the model's own context length, %u",
			       o->model_len_max, e->shape.context_len);
	e->model_len_max = o->model_len_max ? o->model_len_max : min_u32(e->shape.context_len, LIMIT_TOKENS);
	return ST_OK;
}

static void engine_make_plan(struct engine *e)
{
	const struct engine_opts *o = &e->opts;
	const struct modelshape *s = &e->shape;
	struct memplan_sizes sizes = {.batched_tokens_max = o->batched_tokens_max,
				      .seqs_max = o->seqs_max,
				      .model_len_max = e->model_len_max,
				      .kv_type = o->kv_type};
	struct kdev_limits lim = {.n_tokens = o->batched_tokens_max,
				  .cols = max_u32(max_u32(s->dim, s->ffn), s->heads * s->head_dim),
				  .seqs = o->seqs_max,
				  .heads = s->heads,
				  .head_dim = s->head_dim,
				  .positions = e->model_len_max + MEMPLAN_SPARE_POSITIONS,
				  .vocab = s->n_tokens};

	memplan_init(&e->plan, s, &sizes, batch_input_bytes(lim.positions, o->batched_tokens_max, o->seqs_max));
	if (o->null_device)
		e->plan.activation_bytes = 0; /* nothing is computed, so nothing is held */
	else
		e->plan.scratch_bytes = kdev_scratch_bytes(&lim);
}

static int engine_open_device(struct engine *e, const struct gguf *g, struct errbuf *err)
{
	struct kdev_opts opts = {.level_max = e->opts.level_max,
				 .act = e->opts.act,
				 .n_threads = e->n_threads,
				 .pin_threads = e->opts.pin_threads,
				 .hash_logits = e->opts.hash_logits,
				 .spin_us = e->opts.spin_us,
				 .scratch_bytes = e->plan.scratch_bytes};
	int rc = kdev_open_cpu(&e->dev, &opts, err);

	if (rc != ST_OK) return rc;
	rc = weights_bytes(e->dev, &e->shape, g, &e->plan.weight_bytes, err);
	return rc == ST_OK ? memplan_check(&e->plan, e->memory_available, err) : rc;
}

static void engine_make_columns(struct engine *e)
{
	size_t n = e->opts.seqs_max, n_tops = n * ENGINE_TOP_MAX;

	e->cols = (struct engine_columns){.slots = mem_array(uint32_t, n),
					  .tokens = mem_array(uint32_t, n),
					  .n_top = mem_array(uint32_t, n),
					  .ranks = mem_array(uint32_t, n),
					  .top_ids = mem_array(uint32_t, n_tops),
					  .top_logprobs = mem_array(float, n_tops),
					  .hashes = mem_array(uint64_t, n)};
	e->sampled = mem_array(struct ksampled, n);
	if (e->opts.on_logits) e->logits = mem_array(float, (size_t)e->plan.logits_rows * e->shape.n_tokens);
}

int engine_load(struct engine **out, const struct engine_opts *opts, weights_progress *progress, void *ctx,
		struct errbuf *err)
{
	struct engine *e = mem_new(struct engine);
	struct gguf *g = NULL;
	int rc;

	CHECK(opts->seqs_max >= 1 && opts->seqs_max <= LIMIT_SEQS && opts->batched_tokens_max >= 1 &&
	      opts->batched_tokens_max <= LIMIT_BATCH && (opts->kv_type == GGTYPE_F16 || opts->kv_type == GGTYPE_F32));
	e->opts = *opts;
	e->why = "";
	e->n_threads = opts->n_threads ? opts->n_threads : cpuset_available();
	e->memory_available = opts->kv.available ? opts->kv.available : cpuset_memory_available();
	rc = gguf_open(&g, opts->model, err);
	if (rc != ST_OK) goto end;
	rc = engine_read_model(e, g, err);
	if (rc != ST_OK) goto end;
	engine_make_plan(e);
	engine_make_columns(e);
	if (opts->null_device) goto end;
	rc = engine_open_device(e, g, err);
	if (rc != ST_OK) goto end;
	rc = weights_load(&e->weights, e->dev, &e->shape, g, e->n_threads, progress, ctx, err);
	if (rc != ST_OK) goto end;
	rc = decoder_init(&e->decoder, e->dev, &e->shape, &e->weights, &e->plan, err);
end:
	gguf_close(g);
	e->shape.rope_factors = NULL; /* was a view of the file */
	e->opts.model = NULL;
	if (rc == ST_OK)
		*out = e;
	else
		engine_free(e);
	return rc;
}

void engine_free(struct engine *e)
{
	if (!e) return;
	batch_free(e->batch);
	decoder_release(&e->decoder);
	weights_release(&e->weights);
	kdev_close(e->dev);
	free(e->sampled);
	free(e->logits);
	free(e->cols.slots);
	free(e->cols.tokens);
	free(e->cols.n_top);
	free(e->cols.ranks);
	free(e->cols.top_ids);
	free(e->cols.top_logprobs);
	free(e->cols.hashes);
	free(e);
}

const struct memplan *engine_plan(const struct engine *e)
{
	return &e->plan;
}

const struct modelshape *engine_shape(const struct engine *e)
{
	return &e->shape;
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

int engine_profile(struct engine *e, uint32_t *n_blocks, struct errbuf *err)
{
	struct memplan_kv kv = e->opts.kv;

	kv.available = e->memory_available;
	return memplan_kv_blocks(&e->plan, &kv, n_blocks, err);
}

int engine_kv_init(struct engine *e, uint32_t n_blocks, struct errbuf *err)
{
	struct batch_limits limits = {.vocab = e->shape.n_tokens,
				      .n_blocks = n_blocks,
				      .positions = e->plan.positions,
				      .batched_tokens_max = e->opts.batched_tokens_max,
				      .seqs_max = e->opts.seqs_max};
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
			       .n_out = run->n_out,
			       .out_rows = (const void *)(input + run->out_rows)};
}

static int engine_show_logits(struct engine *e, const struct batch_run *run, const float *logits, uint32_t row,
			      uint32_t n)
{
	uint32_t vocab = e->shape.n_tokens;
	int rc;

	kdev_download(e->dev, e->logits, logits, (size_t)n * vocab * sizeof(float));
	rc = kdev_sync(e->dev);
	if (rc != ST_OK) return rc;
	for (uint32_t i = 0; i < n; i++)
		e->opts.on_logits(e->opts.ctx, run->out_slots[row + i], e->logits + (size_t)i * vocab, vocab);
	return ST_OK;
}

/* Enqueues logits and draws of all wanted rows, part by part. */
static int engine_draw(struct engine *e, const struct batch_run *run, const char *input)
{
	struct ksampled *sampled = decoder_part(&e->decoder, &e->plan.sampled);
	const struct ksample *params = (const void *)(input + run->params);
	const uint32_t *banned = (const void *)(input + run->banned);
	int rc;

	for (uint32_t row = 0, n; row < run->n_out; row += n) {
		const float *logits;

		n = min_u32(run->n_out - row, e->plan.logits_rows);
		logits = decoder_logits(&e->decoder, row, n);
		if (e->opts.on_logits) {
			rc = engine_show_logits(e, run, logits, row, n);
			if (rc != ST_OK) return rc;
		}
		kdev_ops(e->dev)->sample(e->dev, sampled + row, logits, n, e->shape.n_tokens, params + row, banned);
	}
	kdev_download(e->dev, e->sampled, sampled, run->n_out * sizeof(*sampled));
	return ST_OK;
}

static int engine_run(struct engine *e, const struct batch_run *run)
{
	char *input = decoder_part(&e->decoder, &e->plan.input);
	struct kbatch b = engine_kbatch(run, input);
	int rc;

	kdev_upload(e->dev, input, run->input, run->bytes);
	rc = decoder_forward(&e->decoder, &b);
	if (rc == ST_OK) rc = engine_draw(e, run, input);
	return rc == ST_OK ? kdev_sync(e->dev) : rc;
}

/* The null device's model: the next token follows from the last one and its position, and is no banned one. */
static void engine_run_null(struct engine *e, const struct batch_run *run)
{
	const struct ksample *params = (const void *)(run->input + run->params);
	const uint32_t *banned = (const void *)(run->input + run->banned);

	for (uint32_t row = 0; row < run->n_out; row++) {
		const struct ksample *p = &params[row];
		uint32_t n = 0, token;
		const uint32_t *tokens = batch_tokens(e->batch, run->out_slots[row], &n);
		bool again;

		token = (uint32_t)(XXH3_64bits_withSeed(&tokens[n - 1], sizeof(*tokens), n) % e->shape.n_tokens);
		/* At most n_banned steps, unless the whole vocabulary is banned. */
		for (uint32_t tries = 0; tries <= p->n_banned; tries++) {
			again = false;
			for (uint32_t i = 0; i < p->n_banned; i++) again |= banned[p->banned_at + i] == token;
			if (!again) break;
			token = (token + 1) % e->shape.n_tokens;
		}
		e->sampled[row] = (struct ksampled){.token = token, .rank = p->want_logprob ? 1 : 0};
	}
}

static void engine_fill_result(struct engine *e, const struct batch_run *run, struct msg_step_result *out)
{
	struct engine_columns *c = &e->cols;
	uint32_t n = run->n_out, n_tops = 0;

	for (uint32_t row = 0; row < n; row++) {
		const struct ksampled *s = &e->sampled[row];
		uint32_t n_top = s->token != UINT32_MAX && batch_n_logprobs(e->batch, run, row)
					 ? 1 + min_u32(s->n_top, KTOP_MAX)
					 : 0;

		batch_append(e->batch, run, row, s->token);
		c->slots[row] = run->out_slots[row];
		c->tokens[row] = s->token;
		c->n_top[row] = n_top;
		c->ranks[row] = s->rank;
		c->hashes[row] = s->logits_hash;
		if (!n_top) continue;
		c->top_ids[n_tops] = s->token;
		c->top_logprobs[n_tops++] = s->logprob;
		memcpy(c->top_ids + n_tops, s->top_ids, (n_top - 1) * sizeof(*c->top_ids));
		memcpy(c->top_logprobs + n_tops, s->top_logprobs, (n_top - 1) * sizeof(*c->top_logprobs));
		n_tops += n_top - 1;
	}
	out->slots = view_of(c->slots, n);
	out->tokens = view_of(c->tokens, n);
	out->n_top = view_of(c->n_top, n);
	out->ranks = view_of(c->ranks, n);
	out->top_ids = view_of(c->top_ids, n_tops);
	out->top_logprobs = view_of(c->top_logprobs, n_tops);
	if (e->opts.hash_logits) out->hashes = view_of(c->hashes, n);
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
	engine_fill_result(e, &run, out);
	return ST_OK;
}

int engine_warm_up(struct engine *e, uint64_t *step_ns)
{
	static const uint32_t zero[1] = {0}, one[1] = {1};
	static const uint64_t seed[1] = {0};
	static const float no_temperature[1] = {0}, full[1] = {1};
	struct view z = view_of(zero, 1), o = view_of(one, 1);
	struct msg_step step = {.added = z,
				.added_n_tokens = o,
				.added_tokens = z,
				.added_n_prompt = o,
				.added_n_output_min = z,
				.added_n_stop = z,
				.added_temperature = view_of(no_temperature, 1),
				.added_top_p = view_of(full, 1),
				.added_top_k = z,
				.added_min_p = view_of(no_temperature, 1),
				.added_seed = view_of(seed, 1),
				.added_choice = z,
				.added_n_logprobs = z,
				.grown = z,
				.grown_n = o,
				.grown_blocks = z,
				.run = z,
				.run_start = z,
				.run_n = o,
				.run_sample = o};
	struct msg_step_result result;
	uint64_t from;
	int rc = ST_OK;

	*step_ns = 0;
	if (!e->batch) return ST_INVALID;
	/* Twice: the first touches pages and wakes threads, the second is measured. */
	for (int i = 0; i < 2 && rc == ST_OK && batch_n_used(e->batch) == 0; i++) {
		from = clock_now_ns();
		rc = engine_step(e, &step, &result);
		*step_ns = clock_now_ns() - from;
		batch_reset(e->batch);
	}
	return rc;
}
