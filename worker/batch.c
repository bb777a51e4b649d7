/* batch.c - see batch.h.
 *
 * Good path of a take: look (batch_look.c: check the step's four parts in order against `struct batch_look`, what the slots would
 * be), then apply, then fill the input. Only the first can fail. The looks are stamped with the number of the take, so
 * that nothing has to be cleared between steps. */
#include "worker/batch_impl.h"

#include "common/mem.h"

#include <string.h>

#define BATCH_ALIGN 64 /* of each array in the input */
#define BATCH_LIST_WORDS (256 * 1024) /* of a part's lists without masks: 1 MiB */

size_t batch_input_bytes(uint32_t positions, uint32_t batched_tokens_max, uint32_t seqs_max, uint32_t n_groups)
{
	size_t seqs = min_u32(batched_tokens_max, seqs_max), tokens = batched_tokens_max;

	return 4 * align_up(tokens * sizeof(uint32_t), BATCH_ALIGN) + align_up(n_groups * tokens * sizeof(uint32_t), BATCH_ALIGN) +
	       2 * align_up((seqs + 1) * sizeof(uint32_t), BATCH_ALIGN) +
	       align_up(n_groups * seqs * batch_seq_blocks_max(positions) * sizeof(uint32_t), BATCH_ALIGN) +
	       align_up(batch_rows_max(batched_tokens_max, seqs_max) * sizeof(struct ksample), BATCH_ALIGN);
}

uint32_t batch_rows_max(uint32_t batched_tokens_max, uint32_t seqs_max)
{
	return min_u32(batched_tokens_max, seqs_max + LIMIT_PROMPT_ROWS);
}

size_t batch_extra_words(uint32_t vocab, uint32_t positions, uint32_t part_rows)
{
	const struct draw_env env = {.vocab = vocab};

	return part_rows * draw_mask_words(&env) + max_size(BATCH_LIST_WORDS, draw_words_max(&env, positions));
}

struct batch *batch_new(const struct batch_limits *limits)
{
	struct batch *b = mem_new(struct batch);

	CHECK(limits->env.vocab > 0 && limits->positions > 0 && limits->part_rows > 0 && limits->n_blocks <= UINT32_MAX / KBLOCK_LEN);
	CHECK(limits->n_groups > 0 && limits->n_groups <= LIMIT_KV_GROUPS);
	b->limits = *limits;
	b->slots = mem_array(struct batch_slot, LIMIT_SEQS);
	b->input_bytes = batch_input_bytes(limits->positions, limits->batched_tokens_max, limits->seqs_max, limits->n_groups);
	b->input = mem_zalloc(1, b->input_bytes);
	b->out_slots = mem_array(uint32_t, limits->seqs_max);
	b->scores = mem_array(struct batch_score, limits->seqs_max);
	b->pools = mem_array(struct batch_pool, limits->seqs_max);
	b->states_free = mem_array(uint32_t, limits->n_states);
	/* The lowest are given out first, so that few sequences touch little memory. */
	while (b->n_states_free < limits->n_states) {
		b->states_free[b->n_states_free] = limits->n_states - 1 - b->n_states_free;
		b->n_states_free++;
	}
	b->why = "";
	return b;
}

static void batch_drop(struct batch *b, struct batch_slot *s)
{
	if (s->has_state) b->states_free[b->n_states_free++] = s->state;
	free(s->tokens);
	for (uint32_t g = 0; g < b->limits.n_groups; g++) free(s->tables[g].blocks);
	free(s->pooled);
	draw_release(&s->draw, &b->limits.env);
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
	free(b->extra);
	free(b->parts);
	free(b->scores);
	free(b->pools);
	free(b->states_free);
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

/* ---- applying: cannot fail any more ---- */

static void batch_copy(uint32_t *dst, struct view column, uint32_t from, uint32_t n)
{
	if (n) memcpy(dst, (const uint8_t *)column.data + (size_t)from * sizeof(*dst), (size_t)n * sizeof(*dst));
}

static void batch_add(struct batch *b, const struct msg_step *m, uint32_t i, struct draw_at *at)
{
	struct batch_slot *s = &b->slots[col_u32(m->added, i)];

	s->used = true;
	b->n_used++;
	s->n_tokens = col_u32(m->added_n_tokens, i);
	mem_reserve(s->tokens, s->tokens_cap, s->n_tokens);
	batch_copy(s->tokens, m->added_tokens, at->tokens, s->n_tokens);
	s->kind = col_u32(m->added_kind, i);
	s->n_prompt = col_u32(m->added_n_prompt, i);
	s->n_prompt_logprobs = col_u32(m->added_n_prompt_logprobs, i);
	s->prompt_from = batch_prompt_from(m, i);
	if (s->kind != REQUEST_GENERATE) s->pooled = mem_array(double, b->limits.dim);
	draw_init(&s->draw, &b->limits.env, m, i, s->tokens, at);
}

static void batch_apply_state(struct batch *b, struct batch_slot *s, uint32_t end)
{
	if (b->limits.n_states == 0) return;
	if (!s->has_state) {
		CHECK(b->n_states_free > 0);
		s->state = b->states_free[--b->n_states_free];
		s->has_state = true;
	}
	s->state_end = end;
}

static void batch_apply(struct batch *b, const struct msg_step *m)
{
	struct draw_at at = {0};
	uint32_t blocks_at = 0;

	for (uint32_t i = 0; i < m->removed.n; i++) batch_drop(b, &b->slots[col_u32(m->removed, i)]);
	for (uint32_t i = 0; i < m->added.n; i++) batch_add(b, m, i, &at);
	for (uint32_t i = 0; i < m->grown.n; i++) {
		struct batch_table *t = &b->slots[col_u32(m->grown, i)].tables[col_u32(m->grown_group, i)];
		uint32_t n = col_u32(m->grown_n, i);

		mem_reserve(t->blocks, t->cap, t->n + n);
		batch_copy(t->blocks + t->n, m->grown_blocks, blocks_at, n);
		t->n += n;
		blocks_at += n;
	}
	for (uint32_t i = 0; i < m->run.n; i++)
		batch_apply_state(b, &b->slots[col_u32(m->run, i)], col_u32(m->run_start, i) + col_u32(m->run_n, i));
}

/* ---- filling the input ---- */

static size_t batch_place(struct batch_run *run, size_t n, size_t size)
{
	size_t at = run->bytes;

	run->bytes += align_up(n * size, BATCH_ALIGN);
	return at;
}

/* Hidden states of a run that are pooled. */
static uint32_t batch_n_pool(const struct batch_slot *s, uint32_t n, bool sample)
{
	return s->kind == REQUEST_POOL_MEAN ? n : s->kind == REQUEST_POOL_LAST && sample ? 1 : 0;
}

/* Which rows are wanted, and how large everything is. */
static void batch_measure(struct batch *b, const struct msg_step *m, struct batch_run *run)
{
	*run = (struct batch_run){.n_seqs = m->run.n,
				  .input = b->input,
				  .out_slots = b->out_slots,
				  .scores = b->scores,
				  .pools = b->pools};
	for (uint32_t i = 0; i < m->run.n; i++) {
		uint32_t slot = col_u32(m->run, i), start = col_u32(m->run_start, i), n = col_u32(m->run_n, i), first;
		const struct batch_slot *s = &b->slots[slot];
		bool sample = col_u32(m->run_sample, i);
		uint32_t n_pool = batch_n_pool(s, n, sample), n_score = batch_scores(s->prompt_from, s->n_prompt, start, n, &first);

		run->n_tokens += n;
		run->reach = max_u32(run->reach, start + n);
		run->blocks_max = max_u32(run->blocks_max, (uint32_t)div_up(start + n, KBLOCK_LEN));
		if (sample && s->kind == REQUEST_GENERATE) b->out_slots[run->n_draw++] = slot;
		if (n_score) b->scores[run->n_scores++] = (struct batch_score){slot, first, n_score};
		if (n_pool) b->pools[run->n_pools++] = (struct batch_pool){slot, run->n_out, n_pool, sample};
		run->n_score += n_score;
		run->n_out += n_pool; /* so far of pools alone */
	}
	for (uint32_t i = 0; i < run->n_pools; i++) b->pools[i].row += run->n_draw + run->n_score;
	run->n_out += run->n_draw + run->n_score;
	run->token_ids = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->positions = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->seq_ix = batch_place(run, run->n_tokens, sizeof(uint32_t));
	run->slots = batch_place(run, (size_t)b->limits.n_groups * run->n_tokens, sizeof(uint32_t));
	run->block_tables = batch_place(run, (size_t)b->limits.n_groups * run->n_seqs * run->blocks_max, sizeof(uint32_t));
	run->out_rows = batch_place(run, run->n_out, sizeof(uint32_t));
	run->seq_starts = batch_place(run, run->n_seqs + 1, sizeof(uint32_t));
	run->states = batch_place(run, run->n_seqs, sizeof(uint32_t));
	run->params = batch_place(run, (size_t)run->n_draw + run->n_score, sizeof(struct ksample));
	CHECK(run->bytes <= b->input_bytes);
}

static uint32_t *batch_u32s(struct batch *b, size_t at)
{
	return (uint32_t *)(void *)(b->input + at);
}

/* The part that takes one more row, with lists of at most n_words. */
static struct batch_part *batch_part_for(struct batch *b, uint32_t row, size_t n_words)
{
	struct batch_part *p = b->n_parts ? &b->parts[b->n_parts - 1] : NULL;
	size_t extra_at = p ? p->extra_at + p->n_extra : 0;

	if (!p || p->n == b->limits.part_rows || p->n_extra + n_words > b->limits.extra_words) {
		mem_reserve(b->parts, b->parts_cap, b->n_parts + 1);
		p = &b->parts[b->n_parts++];
		*p = (struct batch_part){.row = row, .extra_at = extra_at};
	}
	mem_reserve(b->extra, b->extra_cap, p->extra_at + p->n_extra + n_words);
	p->n++;
	return p;
}

static void batch_fill_draws(struct batch *b, const struct batch_run *run)
{
	struct ksample *params = (struct ksample *)(void *)(b->input + run->params);

	for (uint32_t row = 0; row < run->n_draw; row++) {
		struct batch_slot *s = &b->slots[run->out_slots[row]];
		struct batch_part *p = batch_part_for(b, row, draw_words(&s->draw, &b->limits.env));

		draw_fill(&s->draw, &b->limits.env, s->n_tokens, &params[row], b->extra + p->extra_at, &p->n_extra);
	}
}

static void batch_fill_scores(struct batch *b, const struct batch_run *run)
{
	struct ksample *params = (struct ksample *)(void *)(b->input + run->params);
	uint32_t row = run->n_draw;

	for (uint32_t i = 0; i < run->n_scores; i++) {
		const struct batch_score *c = &run->scores[i];
		const struct batch_slot *s = &b->slots[c->slot];

		for (uint32_t k = 0; k < c->n; k++, row++) {
			batch_part_for(b, row, 0);
			params[row] = (struct ksample){.is_given = true,
						       .given = s->tokens[c->start + k],
						       .want_logprob = true,
						       .n_top = s->n_prompt_logprobs - 1};
		}
	}
}

/* The token rows of what is wanted: of drawn, scored and pooled ones in their places. */
struct batch_rows {
	uint32_t *draw, *score, *pool;
};

static void batch_fill_rows(const struct batch_slot *s, uint32_t row, uint32_t start, uint32_t n, bool sample, struct batch_rows *to)
{
	uint32_t n_pool = batch_n_pool(s, n, sample), first, n_score = batch_scores(s->prompt_from, s->n_prompt, start, n, &first);

	if (sample && s->kind == REQUEST_GENERATE) *to->draw++ = row + n - 1;
	/* A position's log-probability comes from the token before it. */
	for (uint32_t k = 0; k < n_score; k++) *to->score++ = row + first + k - 1 - start;
	for (uint32_t k = 0; k < n_pool; k++) *to->pool++ = row + n - n_pool + k;
}

/* Sequence i's table in a group, and the slots of its n tokens from `start` on, which lie at token row `row`. */
static void batch_fill_blocks(struct batch *b, const struct batch_run *run, const struct batch_table *t, uint32_t group, uint32_t i,
			      uint32_t row, uint32_t start, uint32_t n)
{
	uint32_t *table = batch_u32s(b, run->block_tables) + ((size_t)group * run->n_seqs + i) * run->blocks_max;
	uint32_t *slots = batch_u32s(b, run->slots) + (size_t)group * run->n_tokens + row;
	uint32_t n_blocks = (uint32_t)div_up(start + n, KBLOCK_LEN);

	memcpy(table, t->blocks, n_blocks * sizeof(*table));
	/* The rest of the row is never read; zero is a block that exists. */
	memset(table + n_blocks, 0, (run->blocks_max - n_blocks) * sizeof(*table));
	for (uint32_t p = start; p < start + n; p++) *slots++ = table[p / KBLOCK_LEN] * KBLOCK_LEN + p % KBLOCK_LEN;
}

static void batch_fill_tokens(struct batch *b, const struct msg_step *m, const struct batch_run *run)
{
	uint32_t *ids = batch_u32s(b, run->token_ids), *positions = batch_u32s(b, run->positions);
	uint32_t *seq_ix = batch_u32s(b, run->seq_ix), row = 0;
	uint32_t *seq_starts = batch_u32s(b, run->seq_starts), *states = batch_u32s(b, run->states);
	struct batch_rows to = {.draw = batch_u32s(b, run->out_rows)};

	to.score = to.draw + run->n_draw;
	to.pool = to.score + run->n_score;
	for (uint32_t i = 0; i < m->run.n; i++) {
		uint32_t start = col_u32(m->run_start, i), n = col_u32(m->run_n, i);
		const struct batch_slot *s = &b->slots[col_u32(m->run, i)];

		for (uint32_t g = 0; g < b->limits.n_groups && !b->limits.no_tables; g++) batch_fill_blocks(b, run, &s->tables[g], g, i, row, start, n);
		batch_fill_rows(s, row, start, n, col_u32(m->run_sample, i), &to);
		seq_starts[i] = row;
		states[i] = s->state;
		for (uint32_t p = start; p < start + n; p++, row++) {
			ids[row] = s->tokens[p];
			positions[row] = p;
			seq_ix[row] = i;
		}
	}
	seq_starts[m->run.n] = row;
}

static void batch_fill(struct batch *b, const struct msg_step *m, struct batch_run *run)
{
	batch_measure(b, m, run);
	batch_fill_tokens(b, m, run);
	b->n_parts = 0;
	batch_fill_draws(b, run);
	batch_fill_scores(b, run);
	run->extra = b->extra;
	run->parts = b->parts;
	run->n_parts = (uint32_t)b->n_parts;
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

	CHECK(row < run->n_draw && s->used && s->n_tokens < b->limits.positions);
	if (token >= b->limits.env.vocab) token = 0;
	mem_reserve(s->tokens, s->tokens_cap, s->n_tokens + 1);
	s->tokens[s->n_tokens++] = token;
	draw_append(&s->draw, &b->limits.env, token);
}

uint32_t batch_n_logprobs(const struct batch *b, const struct batch_run *run, uint32_t row)
{
	CHECK(row < run->n_draw);
	return b->slots[run->out_slots[row]].draw.n_logprobs;
}

bool batch_has_bad_grammar(const struct batch *b, const struct batch_run *run, uint32_t row)
{
	CHECK(row < run->n_draw);
	return b->slots[run->out_slots[row]].draw.bad_grammar;
}

void batch_pool_add(struct batch *b, const struct batch_pool *p, const float *state)
{
	struct batch_slot *s = &b->slots[p->slot];

	for (uint32_t i = 0; i < b->limits.dim; i++) s->pooled[i] += (double)state[i];
	s->n_pooled++;
}

void batch_pool_result(const struct batch *b, const struct batch_pool *p, float *out)
{
	const struct batch_slot *s = &b->slots[p->slot];

	CHECK(p->is_last && s->n_pooled > 0);
	for (uint32_t i = 0; i < b->limits.dim; i++) out[i] = (float)(s->pooled[i] / s->n_pooled);
}
