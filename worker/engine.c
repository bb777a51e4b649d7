/* engine.c - see engine.h.
 *
 * Good path of a step: batch_take() checks it and prepares the input, one upload carries it, the decoder enqueues all
 * layers, logits and draws are enqueued in parts of at most plan.logits_rows rows, one download brings the drawn rows,
 * one sync runs it all. Then the tokens are appended to their slots and the result's columns are filled (outcome.c).
 * A part whose rows have lists (masks, biases, penalties) has them uploaded first. Log-probabilities of prompts are more rows of the
 * same kind, whose token is given. States to be pooled are downloaded and added up on the host, in order of positions. */
#include "worker/engine_impl.h"

#include "common/clock.h"
#include "worker/bigstep.h"

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
				      .no_tables = e->opts.null_device,
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
	e->env.beat = beat;
	e->env.beat_ctx = ctx;
	if (e->dev) kdev_set_beat(e->dev, beat, ctx);
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
	return ST_OK;
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
	int rc = decoder_reach(&e->decoder, run->reach);

	kdev_upload(e->dev, input, run->input, run->bytes);
	if (rc == ST_OK) rc = decoder_forward(&e->decoder, &b);
	for (uint32_t i = 0; i < run->n_parts && rc == ST_OK; i++) rc = engine_draw_part(e, run, input, &run->parts[i]);
	kdev_download(e->dev, e->sampled, sampled, ((size_t)run->n_draw + run->n_score) * sizeof(*sampled));
	for (uint32_t i = 0; i < run->n_pools && rc == ST_OK; i++) rc = engine_pool(e, &run->pools[i]);
	return rc == ST_OK ? kdev_sync(e->dev) : rc;
}

static int engine_fail(struct engine *e, struct msg_step_result *out, int rc, const char *why)
{
	e->why = why;
	out->status = (uint32_t)-rc;
	return rc;
}

int engine_step(struct engine *e, const struct msg_step *step, struct msg_step_result *out)
{
	uint64_t from = e->opts.null_device ? clock_now_ns() : 0;
	struct batch_run run;
	int rc = ST_OK;

	*out = (struct msg_step_result){.epoch = step->epoch, .number = step->number};
	if (!e->batch) return engine_fail(e, out, ST_INVALID, "a step before the KV cache is there");
	if (batch_take(e->batch, step, &run) != ST_OK) return engine_fail(e, out, ST_INVALID, batch_why(e->batch));
	if (run.n_tokens == 0) return ST_OK;
	if (e->opts.null_device)
		engine_null_run(e, &run, from);
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
