/* batch.c - see batch.h.
 *
 * Good path of a take: look (check the step's four parts in order against `struct batch_look`, what the slots would
 * be), then apply, then fill the input. Only the first can fail. The looks are stamped with the number of the take, so
 * that nothing has to be cleared between steps. */
#include "worker/batch.h"

#include "common/mem.h"

#include <math.h>
#include <string.h>

#define BATCH_ALIGN 64 /* of each array in the input */

/* A slot as it would be after the part of the step that was checked so far. */
struct batch_look {
	uint64_t take; /* valid when equal to batch.take */
	bool used, grown, run;
	uint32_t n_tokens, n_blocks;
};

struct batch_slot {
	bool used;
	uint32_t *tokens; /* prompt, then output */
	uint32_t n_tokens, tokens_cap;
	uint32_t *blocks; /* by position / KBLOCK_LEN */
	uint32_t n_blocks, blocks_cap;
	uint32_t *stop_ids;
	uint32_t n_stop, n_prompt, n_output_min, n_logprobs;
	float temperature, top_p, min_p;
	uint32_t top_k, choice;
	uint64_t seed;
	struct batch_look look;
};

struct batch {
	struct batch_limits limits;
	struct batch_slot *slots; /* (LIMIT_SEQS); pages of unused ones are never touched */
	uint32_t n_used;
	uint64_t take;
	const char *why;
	uint8_t *input;
	size_t input_bytes;
	uint32_t *out_slots; /* (seqs_max) */
};

static size_t batch_seq_blocks_max(uint32_t positions)
{
	return div_up(positions, KBLOCK_LEN);
}

size_t batch_input_bytes(uint32_t positions, uint32_t batched_tokens_max, uint32_t seqs_max)
{
	size_t seqs = min_u32(batched_tokens_max, seqs_max);

	return 4 * align_up(batched_tokens_max * sizeof(uint32_t), BATCH_ALIGN) +
	       align_up(seqs * batch_seq_blocks_max(positions) * sizeof(uint32_t), BATCH_ALIGN) +
	       align_up(seqs * sizeof(uint32_t), BATCH_ALIGN) + align_up(seqs * sizeof(struct ksample), BATCH_ALIGN) +
	       align_up(seqs * LIMIT_STOP_IDS * sizeof(uint32_t), BATCH_ALIGN);
}

struct batch *batch_new(const struct batch_limits *limits)
{
	struct batch *b = mem_new(struct batch);

	CHECK(limits->vocab > 0 && limits->positions > 0 && limits->n_blocks <= UINT32_MAX / KBLOCK_LEN);
	b->limits = *limits;
	b->slots = mem_array(struct batch_slot, LIMIT_SEQS);
	b->input_bytes = batch_input_bytes(limits->positions, limits->batched_tokens_max, limits->seqs_max);
	b->input = mem_zalloc(1, b->input_bytes);
	b->out_slots = mem_array(uint32_t, limits->seqs_max);
	b->why = "";
	return b;
}

static void batch_drop(struct batch *b, struct batch_slot *s)
{
	free(s->tokens);
	free(s->blocks);
	free(s->stop_ids);
	*s = (struct batch_slot){.look = s->look};
	b->n_used--;
}

void batch_reset(struct batch *b)
{
	for (uint32_t i = 0; i < LIMIT_SEQS && b->n_used > 0; i++)
		if (b->slots[i].used) batch_drop(b, &b->slots[i]);
}

void batch_free(struct batch *b)
{
	if (!b) return;
	batch_reset(b);
	free(b->slots);
	free(b->input);
	free(b->out_slots);
	free(b);
}

uint32_t batch_n_used(const struct batch *b)
{
	return b->n_used;
}

const char *batch_why(const struct batch *b)
{
	return b->why;
}

const uint32_t *batch_tokens(const struct batch *b, uint32_t slot, uint32_t *n)
{
	if (slot >= LIMIT_SEQS || !b->slots[slot].used) return NULL;
	*n = b->slots[slot].n_tokens;
	return b->slots[slot].tokens;
}

/* ---- looking: is the step possible? ---- */

static int batch_bad(struct batch *b, const char *why)
{
	b->why = why;
	return ST_INVALID;
}

/* NULL when the number is out of range. */
static struct batch_look *batch_look(struct batch *b, uint32_t slot)
{
	struct batch_slot *s;

	if (slot >= LIMIT_SEQS) return NULL;
	s = &b->slots[slot];
	if (s->look.take != b->take)
		s->look = (struct batch_look){
			.take = b->take, .used = s->used, .n_tokens = s->n_tokens, .n_blocks = s->n_blocks};
	return &s->look;
}

static int batch_look_removed(struct batch *b, const struct msg_step *m)
{
	for (uint32_t i = 0; i < m->removed.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->removed, i));

		if (!k || !k->used) return batch_bad(b, "a removed slot is not in use");
		k->used = false;
	}
	return ST_OK;
}

static bool batch_columns_match(const struct msg_step *m)
{
	uint32_t n = m->added.n;

	return m->added_n_tokens.n == n && m->added_n_prompt.n == n && m->added_n_output_min.n == n &&
	       m->added_n_stop.n == n && m->added_temperature.n == n && m->added_top_p.n == n &&
	       m->added_top_k.n == n && m->added_min_p.n == n && m->added_seed.n == n && m->added_choice.n == n &&
	       m->added_n_logprobs.n == n && m->grown_n.n == m->grown.n && m->run_start.n == m->run.n &&
	       m->run_n.n == m->run.n && m->run_sample.n == m->run.n;
}

static int batch_look_params(struct batch *b, const struct msg_step *m, uint32_t i)
{
	float temperature = col_f32(m->added_temperature, i);
	float top_p = col_f32(m->added_top_p, i), min_p = col_f32(m->added_min_p, i);

	if (!(temperature >= 0) || !isfinite(temperature)) return batch_bad(b, "a temperature is not 0 or more");
	if (!(top_p > 0 && top_p <= 1)) return batch_bad(b, "a top_p is not in (0, 1]");
	if (!(min_p >= 0 && min_p <= 1)) return batch_bad(b, "a min_p is not in [0, 1]");
	if (col_u32(m->added_n_logprobs, i) > 1 + KTOP_MAX)
		return batch_bad(b, "too many log-probabilities are wanted");
	return ST_OK;
}

static int batch_look_added(struct batch *b, const struct msg_step *m)
{
	uint64_t n_tokens = 0, n_stop = 0;

	for (uint32_t i = 0; i < m->added.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->added, i));
		uint32_t n = col_u32(m->added_n_tokens, i), n_prompt = col_u32(m->added_n_prompt, i);
		int rc;

		if (!k || k->used) return batch_bad(b, "an added slot is in use already, or out of range");
		if (n == 0 || n > b->limits.positions) return batch_bad(b, "an added sequence is empty or too long");
		if (n_prompt == 0 || n_prompt > n) return batch_bad(b, "an added prompt is empty or too long");
		if (col_u32(m->added_n_stop, i) > LIMIT_STOP_IDS) return batch_bad(b, "too many stop ids");
		rc = batch_look_params(b, m, i);
		if (rc != ST_OK) return rc;
		*k = (struct batch_look){.take = b->take, .used = true, .n_tokens = n};
		n_tokens += n;
		n_stop += col_u32(m->added_n_stop, i);
	}
	if (n_tokens != m->added_tokens.n) return batch_bad(b, "the added tokens are not as many as their counts say");
	if (n_stop != m->added_stop_ids.n) return batch_bad(b, "the stop ids are not as many as their counts say");
	for (uint32_t i = 0; i < m->added_tokens.n; i++)
		if (col_u32(m->added_tokens, i) >= b->limits.vocab)
			return batch_bad(b, "an added token is not in the vocabulary");
	for (uint32_t i = 0; i < m->added_stop_ids.n; i++)
		if (col_u32(m->added_stop_ids, i) >= b->limits.vocab)
			return batch_bad(b, "a stop id is not in the vocabulary");
	return ST_OK;
}

static int batch_look_grown(struct batch *b, const struct msg_step *m)
{
	size_t blocks_max = batch_seq_blocks_max(b->limits.positions);
	uint64_t n_blocks = 0;

	for (uint32_t i = 0; i < m->grown.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->grown, i));
		uint32_t n = col_u32(m->grown_n, i);

		if (!k || !k->used || k->grown) return batch_bad(b, "a grown slot is not in use, or grows twice");
		if (n > blocks_max - k->n_blocks) return batch_bad(b, "a block table becomes too long");
		k->grown = true;
		k->n_blocks += n;
		n_blocks += n;
	}
	if (n_blocks != m->grown_blocks.n) return batch_bad(b, "the grown blocks are not as many as their counts say");
	for (uint32_t i = 0; i < m->grown_blocks.n; i++)
		if (col_u32(m->grown_blocks, i) >= b->limits.n_blocks)
			return batch_bad(b, "a block is not in the pool");
	return ST_OK;
}

static int batch_look_run(struct batch *b, const struct msg_step *m)
{
	uint64_t n_tokens = 0;

	if (m->run.n > b->limits.seqs_max) return batch_bad(b, "more sequences run than --max-num-seqs");
	for (uint32_t i = 0; i < m->run.n; i++) {
		struct batch_look *k = batch_look(b, col_u32(m->run, i));
		uint64_t n = col_u32(m->run_n, i), end = col_u32(m->run_start, i) + n;
		uint32_t sample = col_u32(m->run_sample, i);

		if (!k || !k->used || k->run) return batch_bad(b, "a slot that runs is not in use, or runs twice");
		if (n == 0 || end > k->n_tokens) return batch_bad(b, "a run has no tokens, or more than the slot");
		if (end > (uint64_t)k->n_blocks * KBLOCK_LEN) return batch_bad(b, "a run ends beyond its block table");
		if (sample > 1) return batch_bad(b, "run_sample is neither 0 nor 1");
		if (sample && end != k->n_tokens) return batch_bad(b, "a token is drawn before the last one has run");
		if (sample && end >= b->limits.positions) return batch_bad(b, "a sequence becomes too long");
		k->run = true;
		n_tokens += n;
	}
	if (n_tokens > b->limits.batched_tokens_max)
		return batch_bad(b, "more tokens run than --max-num-batched-tokens");
	return ST_OK;
}

static int batch_look_step(struct batch *b, const struct msg_step *m)
{
	int rc;

	b->take++;
	if (!batch_columns_match(m)) return batch_bad(b, "columns of different lengths");
	rc = batch_look_removed(b, m);
	if (rc == ST_OK) rc = batch_look_added(b, m);
	if (rc == ST_OK) rc = batch_look_grown(b, m);
	if (rc == ST_OK) rc = batch_look_run(b, m);
	return rc;
}

/* ---- applying: cannot fail any more ---- */

static void batch_copy(uint32_t *dst, struct view column, uint32_t from, uint32_t n)
{
	if (n) memcpy(dst, (const uint8_t *)column.data + (size_t)from * sizeof(*dst), (size_t)n * sizeof(*dst));
}

static void batch_add(struct batch *b, const struct msg_step *m, uint32_t i, uint32_t *tokens_at, uint32_t *stop_at)
{
	struct batch_slot *s = &b->slots[col_u32(m->added, i)];

	s->used = true;
	b->n_used++;
	s->n_tokens = col_u32(m->added_n_tokens, i);
	mem_reserve(s->tokens, s->tokens_cap, s->n_tokens);
	batch_copy(s->tokens, m->added_tokens, *tokens_at, s->n_tokens);
	*tokens_at += s->n_tokens;
	s->n_stop = col_u32(m->added_n_stop, i);
	s->stop_ids = mem_array(uint32_t, s->n_stop);
	batch_copy(s->stop_ids, m->added_stop_ids, *stop_at, s->n_stop);
	*stop_at += s->n_stop;
	s->n_prompt = col_u32(m->added_n_prompt, i);
	s->n_output_min = col_u32(m->added_n_output_min, i);
	s->n_logprobs = col_u32(m->added_n_logprobs, i);
	s->temperature = col_f32(m->added_temperature, i);
	s->top_p = col_f32(m->added_top_p, i);
	s->min_p = col_f32(m->added_min_p, i);
	s->top_k = col_u32(m->added_top_k, i);
	s->seed = col_u64(m->added_seed, i);
	s->choice = col_u32(m->added_choice, i);
}

static void batch_apply(struct batch *b, const struct msg_step *m)
{
	uint32_t tokens_at = 0, stop_at = 0, blocks_at = 0;

	for (uint32_t i = 0; i < m->removed.n; i++) batch_drop(b, &b->slots[col_u32(m->removed, i)]);
	for (uint32_t i = 0; i < m->added.n; i++) batch_add(b, m, i, &tokens_at, &stop_at);
	for (uint32_t i = 0; i < m->grown.n; i++) {
		struct batch_slot *s = &b->slots[col_u32(m->grown, i)];
		uint32_t n = col_u32(m->grown_n, i);

		mem_reserve(s->blocks, s->blocks_cap, s->n_blocks + n);
		batch_copy(s->blocks + s->n_blocks, m->grown_blocks, blocks_at, n);
		s->n_blocks += n;
		blocks_at += n;
	}
}

/* ---- filling the input ---- */

static size_t batch_place(struct batch_run *run, size_t n, size_t size)
{
	size_t at = run->bytes;

	run->bytes += align_up(n * size, BATCH_ALIGN);
	return at;
}

static void batch_measure(const struct batch *b, const struct msg_step *m, struct batch_run *run)
{
	size_t n_banned = 0;

	*run = (struct batch_run){.n_seqs = m->run.n, .input = b->input, .out_slots = b->out_slots};
	for (uint32_t i = 0; i < m->run.n; i++) {
		uint32_t end = col_u32(m->run_start, i) + col_u32(m->run_n, i);

		run->n_tokens += col_u32(m->run_n, i);
		run->blocks_max = max_u32(run->blocks_max, (uint32_t)div_up(end, KBLOCK_LEN));
		if (!col_u32(m->run_sample, i)) continue;
		run->n_out++;
		n_banned += b->slots[col_u32(m->run, i)].n_stop;
	}
	run->token_ids = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->positions = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->seq_ix = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->slots = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->block_tables = batch_place(run, (size_t)run->n_seqs * run->blocks_max, sizeof(uint32_t));
	run->out_rows = batch_place(run, run->n_out, sizeof(uint32_t));
	run->params = batch_place(run, run->n_out, sizeof(struct ksample));
	run->banned = batch_place(run, n_banned, sizeof(uint32_t));
	CHECK(run->bytes <= b->input_bytes);
}

static uint32_t *batch_u32s(struct batch *b, size_t at)
{
	return (uint32_t *)(void *)(b->input + at);
}

/* The sampling parameters of one row; banned ids go to *n_banned of the banned array. */
static void batch_fill_params(struct batch *b, const struct batch_run *run, const struct batch_slot *s, uint32_t row,
			      uint32_t *n_banned)
{
	struct ksample *p = (struct ksample *)(void *)(b->input + run->params) + row;

	*p = (struct ksample){.temperature = s->temperature,
			      .top_p = s->top_p,
			      .min_p = s->min_p,
			      .top_k = s->top_k,
			      .seed = s->seed,
			      .choice = s->choice,
			      .position = s->n_tokens,
			      .n_top = s->n_logprobs ? s->n_logprobs - 1 : 0,
			      .want_logprob = s->n_logprobs > 0,
			      .banned_at = *n_banned};
	if (s->n_tokens - s->n_prompt >= s->n_output_min) return;
	p->n_banned = s->n_stop;
	if (s->n_stop) memcpy(batch_u32s(b, run->banned) + *n_banned, s->stop_ids, s->n_stop * sizeof(*s->stop_ids));
	*n_banned += s->n_stop;
}

static void batch_fill(struct batch *b, const struct msg_step *m, struct batch_run *run)
{
	uint32_t *ids, *positions, *seq_ix, *slots, *out_rows, *table;
	uint32_t row = 0, out = 0, n_banned = 0;

	batch_measure(b, m, run);
	ids = batch_u32s(b, run->token_ids);
	positions = batch_u32s(b, run->positions);
	seq_ix = batch_u32s(b, run->seq_ix);
	slots = batch_u32s(b, run->slots);
	out_rows = batch_u32s(b, run->out_rows);
	for (uint32_t i = 0; i < m->run.n; i++) {
		uint32_t slot = col_u32(m->run, i), start = col_u32(m->run_start, i), n = col_u32(m->run_n, i);
		const struct batch_slot *s = &b->slots[slot];
		uint32_t n_blocks = (uint32_t)div_up(start + n, KBLOCK_LEN);

		table = batch_u32s(b, run->block_tables) + (size_t)i * run->blocks_max;
		memcpy(table, s->blocks, n_blocks * sizeof(*table));
		/* The rest of the row is never read; zero is a block that exists. */
		memset(table + n_blocks, 0, (run->blocks_max - n_blocks) * sizeof(*table));
		for (uint32_t p = start; p < start + n; p++, row++) {
			ids[row] = s->tokens[p];
			positions[row] = p;
			seq_ix[row] = i;
			slots[row] = table[p / KBLOCK_LEN] * KBLOCK_LEN + p % KBLOCK_LEN;
		}
		if (!col_u32(m->run_sample, i)) continue;
		out_rows[out] = row - 1;
		b->out_slots[out] = slot;
		batch_fill_params(b, run, s, out++, &n_banned);
	}
}

int batch_take(struct batch *b, const struct msg_step *m, struct batch_run *run)
{
	int rc = batch_look_step(b, m);

	if (rc != ST_OK) return rc;
	batch_apply(b, m);
	batch_fill(b, m, run);
	return ST_OK;
}

void batch_append(struct batch *b, const struct batch_run *run, uint32_t row, uint32_t token)
{
	struct batch_slot *s = &b->slots[run->out_slots[row]];

	CHECK(row < run->n_out && s->used && s->n_tokens < b->limits.positions);
	mem_reserve(s->tokens, s->tokens_cap, s->n_tokens + 1);
	s->tokens[s->n_tokens++] = token < b->limits.vocab ? token : 0;
}

uint32_t batch_n_logprobs(const struct batch *b, const struct batch_run *run, uint32_t row)
{
	CHECK(row < run->n_out);
	return b->slots[run->out_slots[row]].n_logprobs;
}
