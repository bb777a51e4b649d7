/* corebox.c - see corebox.h. */
#include "tests/support/corebox.h"

#include "common/mem.h"
#include "proto/ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const char *const corebox_finishes[] = {"", "stop", "length", "abort"};
static const char *const corebox_refusals[] = {"?", "too_long", "queue_full", "draining", "poison", "invalid", "numeric"};

static uint64_t corebox_mix(uint64_t h, uint32_t token)
{
	h = (h ^ token) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static uint64_t corebox_hash(const uint32_t *tokens, uint32_t n)
{
	uint64_t h = 1;
	uint32_t i;

	for (i = 0; i < n; i++) h = corebox_mix(h, tokens[i]);
	return h;
}

uint32_t corebox_token(const uint32_t *tokens, uint32_t n)
{
	return (uint32_t)(corebox_hash(tokens, n) % COREBOX_VOCAB);
}

static void corebox_id(struct corebox *b, uint64_t id, uint32_t frontend, uint32_t incarnation)
{
	if (client_id_frontend(id) != frontend || client_id_incarnation(id) != incarnation)
		strbuf_printf(&b->log, "%u.%u/", client_id_frontend(id), client_id_incarnation(id));
	strbuf_printf(&b->log, "%llu", (unsigned long long)client_id_counter(id));
}

/* Where a row begins in the columns of a results message. */
struct corebox_at {
	uint32_t token, top, prompt, prompt_top, pooled;
};

/* Of a column that is left out when all is 0. */
static uint32_t corebox_entry(struct view column, uint32_t n, uint32_t ix)
{
	assert_true(column.n == 0 || column.n == n);
	return column.n ? col_u32(column, ix) : 0;
}

static void corebox_log_top(struct corebox *b, uint32_t rank, uint32_t n_top, struct view ids, struct view lps, uint32_t at)
{
	if (n_top) strbuf_printf(&b->log, "r%u", rank);
	for (uint32_t t = 0; t < n_top; t++)
		strbuf_printf(&b->log, "%c%u:%g", t ? ' ' : '(', col_u32(ids, at + t), (double)col_f32(lps, at + t));
	if (n_top) strbuf_putc(&b->log, ')');
}

static void corebox_log_prompt(struct corebox *b, const struct msg_results *m, uint32_t row, struct corebox_at *at)
{
	uint32_t n = corebox_entry(m->n_prompt_tokens, m->client_ids.n, row);

	if (!n) return;
	strbuf_printf(&b->log, " p%u{", col_u32(m->prompt_starts, row));
	for (uint32_t k = 0; k < n; k++, at->prompt++) {
		uint32_t n_top = col_u32(m->prompt_n_top, at->prompt);

		if (k) strbuf_putc(&b->log, ',');
		corebox_log_top(b, col_u32(m->prompt_ranks, at->prompt), n_top, m->prompt_top_ids, m->prompt_top_logprobs,
				at->prompt_top);
		at->prompt_top += n_top;
	}
	strbuf_putc(&b->log, '}');
}

static void corebox_log_pooled(struct corebox *b, const struct msg_results *m, uint32_t row, struct corebox_at *at)
{
	uint32_t n = corebox_entry(m->n_pooled, m->client_ids.n, row);

	if (!n) return;
	for (uint32_t k = 0; k < n; k++)
		strbuf_printf(&b->log, "%s%g", k ? "," : " e{", (double)col_f32(m->pooled, at->pooled++));
	strbuf_putc(&b->log, '}');
}

static void corebox_log_results(struct corebox *b, const struct msg_results *m, uint32_t frontend, uint32_t incarnation)
{
	struct corebox_at at = {0};
	uint32_t i, k;

	assert_int_equal(m->epoch, COREBOX_EPOCH);
	assert_true(m->n_top.n == 0 || m->n_top.n == m->tokens.n);
	assert_true(m->ranks.n == 0 || m->ranks.n == m->tokens.n);
	for (i = 0; i < m->client_ids.n; i++) {
		strbuf_putc(&b->log, ' ');
		corebox_id(b, col_u64(m->client_ids, i), frontend, incarnation);
		strbuf_printf(&b->log, "#%u@%u", col_u32(m->attempts, i), col_u32(m->positions, i));
		corebox_log_prompt(b, m, i, &at);
		strbuf_putc(&b->log, '[');
		for (k = 0; k < col_u32(m->n_tokens, i); k++, at.token++) {
			uint32_t n_top = corebox_entry(m->n_top, m->tokens.n, at.token);

			strbuf_printf(&b->log, "%s%u", k ? "," : "", col_u32(m->tokens, at.token));
			corebox_log_top(b, corebox_entry(m->ranks, m->tokens.n, at.token), n_top, m->top_ids, m->top_logprobs, at.top);
			at.top += n_top;
		}
		strbuf_printf(&b->log, "]%s", corebox_finishes[corebox_entry(m->finishes, m->client_ids.n, i)]);
		corebox_log_pooled(b, m, i, &at);
		k = corebox_entry(m->n_cached, m->client_ids.n, i);
		if (k) strbuf_printf(&b->log, " c%u", k);
	}
	assert_int_equal(at.token, m->tokens.n);
	assert_int_equal(at.top, m->top_ids.n);
	assert_int_equal(at.top, m->top_logprobs.n);
	assert_int_equal(at.prompt, m->prompt_ranks.n);
	assert_int_equal(at.prompt_top, m->prompt_top_ids.n);
	assert_int_equal(at.prompt_top, m->prompt_top_logprobs.n);
	assert_int_equal(at.pooled, m->pooled.n);
}

static void corebox_log_message(struct corebox *b, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	uint32_t i;

	strbuf_printf(&b->log, "%s %u.%u", msg_type_name(m->type), frontend, incarnation);
	switch ((int)m->type) {
	case MSG_welcome:
		assert_int_equal(m->welcome.version, PROTO_VERSION);
		strbuf_printf(&b->log, " epoch=%llu len=%u blocks=%llu", (unsigned long long)m->welcome.epoch,
			      m->welcome.model_len_max, (unsigned long long)m->welcome.n_blocks);
		break;
	case MSG_results:
		corebox_log_results(b, &m->results, frontend, incarnation);
		break;
	case MSG_refused:
		assert_int_equal(m->refused.epoch, COREBOX_EPOCH);
		strbuf_putc(&b->log, ' ');
		corebox_id(b, m->refused.client_id, frontend, incarnation);
		strbuf_printf(&b->log, "#%u %s: %.*s", m->refused.attempt, corebox_refusals[m->refused.reason],
			      (int)m->refused.text.n, (const char *)m->refused.text.data);
		break;
	case MSG_sync:
		assert_int_equal(m->sync.epoch, COREBOX_EPOCH);
		strbuf_printf(&b->log, " n=%llu", (unsigned long long)m->sync.number);
		for (i = 0; i < m->sync.client_ids.n; i++) {
			strbuf_putc(&b->log, ' ');
			corebox_id(b, col_u64(m->sync.client_ids, i), frontend, incarnation);
			strbuf_printf(&b->log, "#%u@%u", col_u32(m->sync.attempts, i), col_u32(m->sync.positions, i));
		}
		break;
	default:
		fail_msg("a message of type %d was sent", m->type);
	}
}

static int corebox_on_send(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	static const char *const codes[] = {[0] = "", [-ST_AGAIN] = " AGAIN", [-ST_CLOSED] = " CLOSED"};
	struct corebox *b = ctx;
	struct strbuf packed;

	strbuf_init(&packed, LIMIT_MESSAGE_BYTES);
	assert_int_equal(msg_pack(m, &packed), ST_OK); /* within all bounds */
	strbuf_release(&packed);
	if (b->on_send) return b->on_send(b, frontend, incarnation, m);
	free(b->last_sent);
	b->last_sent = msg_dup(m);
	if (!b->quiet) {
		corebox_log_message(b, frontend, incarnation, m);
		strbuf_printf(&b->log, "%s\n", codes[-b->send_rc[frontend]]);
	}
	return b->send_rc[frontend];
}

static void corebox_log_step(struct corebox *b, const struct msg_step *m)
{
	uint32_t i, k, at = 0;

	strbuf_printf(&b->log, "step %llu", (unsigned long long)m->number);
	for (i = 0; i < m->removed.n; i++) strbuf_printf(&b->log, "%s%u", i ? "," : " rem[", col_u32(m->removed, i));
	if (m->removed.n) strbuf_putc(&b->log, ']');
	for (i = 0; i < m->added.n; i++)
		strbuf_printf(&b->log, "%s%u %u/%u", i ? "," : " add[", col_u32(m->added, i), col_u32(m->added_n_tokens, i),
			      col_u32(m->added_n_prompt, i));
	if (m->added.n) strbuf_putc(&b->log, ']');
	for (i = 0; i < m->grown.n; i++) {
		strbuf_printf(&b->log, "%s%u", i ? " " : " grow[", col_u32(m->grown, i));
		if (b->groups.n_full + b->groups.n_windowed > 1) strbuf_printf(&b->log, ".%u", col_u32(m->grown_group, i));
		strbuf_putc(&b->log, ':');
		for (k = 0; k < col_u32(m->grown_n, i); k++)
			strbuf_printf(&b->log, "%s%u", k ? "," : "", col_u32(m->grown_blocks, at++));
	}
	if (m->grown.n) strbuf_putc(&b->log, ']');
	assert_int_equal(at, m->grown_blocks.n);
	strbuf_puts(&b->log, " run[");
	for (i = 0; i < m->run.n; i++)
		strbuf_printf(&b->log, "%s%u %u+%u%s", i ? "," : "", col_u32(m->run, i), col_u32(m->run_start, i),
			      col_u32(m->run_n, i), col_u32(m->run_sample, i) ? "s" : "");
	strbuf_puts(&b->log, "]\n");
}

static void corebox_on_step(void *ctx, const struct msg_step *step)
{
	struct corebox *b = ctx;
	struct msg m = {.type = MSG_step, .step = *step};
	struct strbuf packed;

	strbuf_init(&packed, LIMIT_STEP_RING_BYTES / 2);
	assert_int_equal(msg_pack(&m, &packed), ST_OK);
	strbuf_release(&packed);
	assert_true(b->n_steps < COREBOX_STEPS);
	assert_int_equal(step->epoch, COREBOX_EPOCH);
	b->steps[b->n_steps++] = msg_dup(&m);
	free(b->last_step);
	b->last_step = msg_dup(&m);
	if (!b->quiet) corebox_log_step(b, step);
}

static void corebox_on_timed(void *ctx, uint64_t queued_ns, uint64_t prefill_ns)
{
	struct corebox *b = ctx;

	b->n_timed++;
	b->queued_ns = queued_ns;
	b->prefill_ns = prefill_ns;
}

struct core_config corebox_config(void)
{
	return (struct core_config){.epoch = COREBOX_EPOCH,
				    .seqs_max = 8,
				    .batched_tokens_max = 64,
				    .requests_max = 100,
				    .steps_in_flight_max = 2,
				    .prefix_cache = true,
				    .has_priorities = true,
				    .fair = true,
				    .tenants_max = 16,
				    .sync_interval_ns = NS_PER_S};
}

void corebox_init(struct corebox *b, const struct core_config *cfg)
{
	struct core_config c = cfg ? *cfg : corebox_config();
	struct core_out out = {.ctx = b, .send = corebox_on_send, .step = corebox_on_step, .timed = corebox_on_timed};

	*b = (struct corebox){.now = NS_PER_S, .vocab = COREBOX_IDS, .dim = COREBOX_DIM};
	strbuf_init(&b->log, 16 * MIB);
	b->slots = mem_array(struct corebox_slot, COREBOX_SLOTS);
	b->core = core_new(&c, &out);
}

static void corebox_forget_steps(struct corebox *b)
{
	while (b->n_steps) free(b->steps[--b->n_steps]);
}

void corebox_release(struct corebox *b)
{
	corebox_forget_steps(b);
	core_free(b->core);
	strbuf_release(&b->log);
	free(b->last_step);
	free(b->last_sent);
	free(b->slots);
	free(b->kv);
}

void corebox_start(struct corebox *b, const struct core_config *cfg, uint32_t n_blocks, uint32_t model_len_max)
{
	corebox_init(b, cfg);
	corebox_hello(b, 0, 0);
	corebox_ready(b, n_blocks, model_len_max);
	corebox_step(b);
	corebox_skip(b);
}

void corebox_hello(struct corebox *b, uint32_t frontend, uint32_t incarnation)
{
	struct msg_hello m = {.version = PROTO_VERSION, .frontend = frontend, .incarnation = incarnation, .epoch = COREBOX_EPOCH};

	core_on_hello(b->core, &m, b->now);
	core_check(b->core);
}

void corebox_ready(struct corebox *b, uint32_t n_blocks, uint32_t model_len_max)
{
	uint32_t i;

	corebox_forget_steps(b);
	for (i = 0; i < COREBOX_SLOTS; i++) b->slots[i].taken = false;
	b->n_blocks = n_blocks;
	free(b->kv);
	b->kv = mem_array(uint64_t, (size_t)n_blocks * 16);
	core_on_workers_ready(b->core, &(struct core_workers){n_blocks, model_len_max, b->vocab, b->dim, b->groups}, b->now);
	core_check(b->core);
}

void corebox_taken(struct corebox *b)
{
	core_on_workers_taken(b->core);
	corebox_forget_steps(b);
	core_check(b->core);
}

void corebox_lost(struct corebox *b)
{
	core_on_workers_lost(b->core, b->now);
	corebox_forget_steps(b);
	core_check(b->core);
}

void corebox_cancel(struct corebox *b, uint32_t frontend, uint64_t counter)
{
	struct msg_cancel m = {.client_id = client_id_make(frontend, 0, counter)};

	core_on_cancel(b->core, &m, b->now);
	core_check(b->core);
}

struct msg_submit corebox_request(struct corebox *b, uint64_t counter, uint32_t first, uint32_t n_prompt, uint32_t n_output_max)
{
	uint32_t i;

	assert_true(n_prompt < COREBOX_TOKENS);
	for (i = 0; i < n_prompt; i++) b->tokens[i] = first + i;
	return (struct msg_submit){.client_id = client_id_make(0, 0, counter),
				   .attempt = 1,
				   .epoch = COREBOX_EPOCH,
				   .tokens = view_of(b->tokens, n_prompt),
				   .n_prompt = n_prompt,
				   .n_output_max = n_output_max,
				   .temperature = 1,
				   .top_p = 1,
				   .priority = 1u << 31};
}

void corebox_request_answer(struct corebox *b, struct msg_submit *m, uint32_t n_output)
{
	uint32_t i;

	for (i = 0; i < n_output; i++) b->tokens[m->tokens.n + i] = corebox_token(b->tokens, m->tokens.n + i);
	m->tokens.n += n_output;
}

void corebox_on_submit(struct corebox *b, const struct msg_submit *m)
{
	core_on_submit(b->core, m, b->now);
	core_check(b->core);
}

void corebox_submit(struct corebox *b, uint64_t counter, uint32_t first, uint32_t n_prompt, uint32_t n_output_max)
{
	struct msg_submit m = corebox_request(b, counter, first, n_prompt, n_output_max);

	corebox_on_submit(b, &m);
}

void corebox_step(struct corebox *b)
{
	core_step(b->core, b->now);
	core_check(b->core);
}

static struct corebox_slot *corebox_slot(struct corebox *b, uint32_t slot, bool taken)
{
	assert_true(slot < COREBOX_SLOTS);
	assert_int_equal(b->slots[slot].taken, taken);
	return &b->slots[slot];
}

static uint32_t corebox_n_groups(const struct corebox *b)
{
	return max_u32(1, b->groups.n_full + b->groups.n_windowed);
}

/* What changed with the step. */
static void corebox_apply(struct corebox *b, const struct msg_step *m)
{
	uint32_t i, k, at = 0;

	for (i = 0; i < m->removed.n; i++) corebox_slot(b, col_u32(m->removed, i), true)->taken = false;
	for (i = 0; i < m->added.n; i++) {
		struct corebox_slot *s = corebox_slot(b, col_u32(m->added, i), false);

		s->taken = true;
		memset(s->n_blocks, 0, sizeof(s->n_blocks));
		s->n_prompt = col_u32(m->added_n_prompt, i);
		s->n_logprobs = col_u32(m->added_n_logprobs, i);
		s->kind = col_u32(m->added_kind, i);
		s->n_prompt_logprobs = col_u32(m->added_n_prompt_logprobs, i);
		s->prompt_from = s->n_prompt_logprobs ? col_u32(m->added_n_prompt_known, i) : s->n_prompt;
		s->n_tokens = col_u32(m->added_n_tokens, i);
		for (k = 0; k < s->n_tokens; k++) s->tokens[k] = col_u32(m->added_tokens, at++);
	}
	assert_int_equal(at, m->added_tokens.n);
	for (i = at = 0; i < m->grown.n; i++) {
		struct corebox_slot *s = corebox_slot(b, col_u32(m->grown, i), true);
		uint32_t g = col_u32(m->grown_group, i);

		assert_true(g < corebox_n_groups(b));
		for (k = 0; k < col_u32(m->grown_n, i); k++) {
			s->blocks[g][s->n_blocks[g]] = col_u32(m->grown_blocks, at++);
			assert_true(s->blocks[g][s->n_blocks[g]++] < b->n_blocks);
		}
	}
}

static uint64_t *corebox_cell(struct corebox *b, struct corebox_slot *s, uint32_t group, uint32_t position)
{
	assert_true(position / 16 < s->n_blocks[group]);
	return &b->kv[(size_t)s->blocks[group][position / 16] * 16 + position % 16];
}

/* Whether a token at `reader` sees the position in the layers of a group. */
static bool corebox_sees(const struct corebox *b, uint32_t group, uint32_t reader, uint32_t position)
{
	return group < b->groups.n_full || b->groups.n_windowed == 0 || position + b->groups.window > reader;
}

/* Computes [start, start + n): what lies before must be in the cache, as this very sequence has it. */
static void corebox_compute(struct corebox *b, struct corebox_slot *s, uint32_t start, uint32_t n)
{
	uint64_t h = 1;
	uint32_t i, g;

	assert_true(n > 0 && start + n <= s->n_tokens);
	for (i = 0; i < start + n; i++) {
		h = corebox_mix(h, s->tokens[i]);
		for (g = 0; g < corebox_n_groups(b); g++) {
			if (i >= start)
				*corebox_cell(b, s, g, i) = h + g;
			else if (corebox_sees(b, g, start, i))
				assert_int_equal(*corebox_cell(b, s, g, i), h + g);
		}
	}
	b->n_tokens_run += n;
}

/* Token, rank and log-probabilities of rows. */
struct corebox_tops {
	uint32_t n_top[COREBOX_TOKENS], ranks[COREBOX_TOKENS], ids[COREBOX_TOKENS * 21], n, n_entries;
	float lps[COREBOX_TOKENS * 21];
};

/* A result while it is made. */
struct corebox_result {
	uint32_t slots[COREBOX_SLOTS], tokens[COREBOX_SLOTS], n;
	uint32_t prompt_slots[COREBOX_SLOTS], prompt_starts[COREBOX_SLOTS], n_prompt[COREBOX_SLOTS], n_prompt_rows;
	uint32_t pooled_slots[COREBOX_SLOTS], n_pooled;
	float *pooled;
	struct corebox_tops drawn, prompt;
};

/* n entries: the token and those behind it. */
static void corebox_top(struct corebox_tops *t, uint32_t token, uint32_t n, uint32_t rank, float lp)
{
	t->n_top[t->n] = n;
	t->ranks[t->n++] = rank;
	for (uint32_t k = 0; k < n; k++) {
		t->ids[t->n_entries] = token + k;
		t->lps[t->n_entries++] = lp - (float)k;
	}
}

static void corebox_draw(struct corebox *b, struct corebox_slot *s, uint32_t slot, struct corebox_result *r)
{
	uint32_t token = b->token ? b->token(s->tokens, s->n_tokens, s->n_prompt) : corebox_token(s->tokens, s->n_tokens);

	r->slots[r->n] = slot;
	r->tokens[r->n++] = token;
	s->tokens[s->n_tokens++] = token;
	corebox_top(&r->drawn, token, s->n_logprobs, s->n_logprobs ? 1 + s->n_tokens % 3 : 0, -(float)s->n_tokens / 2);
}

static void corebox_pool(const struct corebox *b, const struct corebox_slot *s, uint32_t slot, struct corebox_result *r)
{
	r->pooled = mem_realloc(r->pooled, (size_t)(r->n_pooled + 1) * b->dim, sizeof(float));
	for (uint32_t k = 0; k < b->dim; k++)
		r->pooled[(size_t)r->n_pooled * b->dim + k] = (float)(corebox_token(s->tokens, s->n_tokens) + k) + (float)s->kind / 4;
	r->pooled_slots[r->n_pooled++] = slot;
}

/* Log-probabilities of the prompt positions that follow the tokens [start, end), each once and in order. */
static void corebox_score(struct corebox_slot *s, uint32_t slot, uint32_t start, uint32_t end, struct corebox_result *r)
{
	uint32_t last = min_u32(end + 1, s->n_prompt);

	if (s->prompt_from >= last) return;
	assert_true(s->prompt_from > start);
	r->prompt_slots[r->n_prompt_rows] = slot;
	r->prompt_starts[r->n_prompt_rows] = s->prompt_from;
	r->n_prompt[r->n_prompt_rows++] = last - s->prompt_from;
	for (; s->prompt_from < last; s->prompt_from++)
		corebox_top(&r->prompt, s->tokens[s->prompt_from], s->n_prompt_logprobs, 1 + s->prompt_from % 5,
			    -(float)s->prompt_from);
}

static struct msg_step_result corebox_result_of(const struct corebox *b, const struct msg_step *m, const struct corebox_result *r)
{
	return (struct msg_step_result){.epoch = COREBOX_EPOCH,
					.number = m->number,
					.slots = view_of(r->slots, r->n),
					.tokens = view_of(r->tokens, r->n),
					.n_top = view_of(r->drawn.n_top, r->drawn.n),
					.ranks = view_of(r->drawn.ranks, r->drawn.n),
					.top_ids = view_of(r->drawn.ids, r->drawn.n_entries),
					.top_logprobs = view_of(r->drawn.lps, r->drawn.n_entries),
					.prompt_slots = view_of(r->prompt_slots, r->n_prompt_rows),
					.prompt_starts = view_of(r->prompt_starts, r->n_prompt_rows),
					.n_prompt_tokens = view_of(r->n_prompt, r->n_prompt_rows),
					.prompt_n_top = view_of(r->prompt.n_top, r->prompt.n),
					.prompt_ranks = view_of(r->prompt.ranks, r->prompt.n),
					.prompt_top_ids = view_of(r->prompt.ids, r->prompt.n_entries),
					.prompt_top_logprobs = view_of(r->prompt.lps, r->prompt.n_entries),
					.pooled_slots = view_of(r->pooled_slots, r->n_pooled),
					.pooled = view_of(r->pooled, (size_t)r->n_pooled * b->dim)};
}

void corebox_answer(struct corebox *b)
{
	struct corebox_result *r = mem_new(struct corebox_result);
	struct msg *step = b->steps[0];
	const struct msg_step *m;
	struct msg_step_result out;
	uint32_t i;

	assert_true(b->n_steps > 0);
	m = &step->step;
	corebox_apply(b, m);
	for (i = 0; i < m->run.n; i++) {
		uint32_t slot = col_u32(m->run, i), start = col_u32(m->run_start, i), end = start + col_u32(m->run_n, i);
		struct corebox_slot *s = corebox_slot(b, slot, true);

		corebox_compute(b, s, start, end - start);
		corebox_score(s, slot, start, end, r);
		if (!col_u32(m->run_sample, i)) continue;
		assert_int_equal(end, s->n_tokens);
		if (s->kind == REQUEST_GENERATE) corebox_draw(b, s, slot, r);
		else corebox_pool(b, s, slot, r);
	}
	out = corebox_result_of(b, m, r);
	if (b->on_result) b->on_result(&out);
	b->n_steps--;
	memmove(b->steps, b->steps + 1, b->n_steps * sizeof(b->steps[0]));
	b->last_rc = core_on_step_result(b->core, &out, b->now);
	b->n_steps_answered++;
	free(step);
	free(r->pooled);
	free(r);
	core_check(b->core);
}

void corebox_run(struct corebox *b)
{
	uint32_t i;

	for (i = 0; i < 100000; i++) {
		corebox_step(b);
		if (!b->n_steps) return;
		corebox_answer(b);
	}
	fail_msg("the core does not come to rest");
}

void corebox_expect_at(struct corebox *b, const char *text, const char *file, int line)
{
	const char *got = b->log.data ? b->log.data : "";

	if (strcmp(got, text) != 0) {
		print_error("expected:\n%s\ngot:\n%s\n", text, got);
		_fail(file, line);
	}
	strbuf_reset(&b->log);
}

void corebox_skip(struct corebox *b)
{
	strbuf_reset(&b->log);
}

struct core_stats corebox_stats(const struct corebox *b)
{
	struct core_stats s;

	core_stats(b->core, &s);
	return s;
}
