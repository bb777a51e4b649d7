/* seq.c - see seq.h. */
#include "executor/seq.h"

#include "common/mem.h"

bool seq_before(const struct seq *a, const struct seq *b)
{
	return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* The table. */

void seqs_init(struct seqs *t)
{
	uint32_t i;

	for (i = 0; i < SEQ_STATES; i++) list_init(&t->in_state[i]);
	map_init(&t->by_id);
	slab_init(&t->memory, sizeof(struct seq));
}

static void seq_free_logprobs(struct seq_logprobs *l)
{
	if (!l) return;
	free(l->ranks);
	free(l->ends);
	free(l->top_ids);
	free(l->top_lps);
	free(l);
}

static struct seq_logprobs *seq_new_logprobs(uint32_t base)
{
	struct seq_logprobs *l = mem_new(struct seq_logprobs);

	l->base = base;
	return l;
}

static void seq_free_memory(struct seqs *t, struct seq *s)
{
	seq_free_logprobs(s->logprobs);
	seq_free_logprobs(s->prompt_logprobs);
	free(s->pooled);
	free(s->tokens);
	free(s->asked);
	for (uint32_t g = 0; g < LIMIT_KV_GROUPS; g++) free(s->tables[g].v);
	slab_give(&t->memory, s);
}

void seqs_release(struct seqs *t)
{
	MAP_EACH(&t->by_id, e) seq_free_memory(t, e->value);
	map_release(&t->by_id);
	slab_release(&t->memory);
	seqs_init(t);
}

uint32_t seqs_len(const struct seqs *t)
{
	return (uint32_t)t->by_id.len;
}

struct seq *seqs_find(const struct seqs *t, uint64_t client_id)
{
	return map_get(&t->by_id, client_id);
}

/* Running and suspect requests are kept in order; a new one mostly belongs to the end. */
static void seq_link(struct seqs *t, struct seq *s)
{
	struct list *l = &t->in_state[s->state];
	struct list_link *at = &l->head;

	if (s->state == SEQ_WAITING) flow_wait(s->flow, s);
	t->running_changes += s->state == SEQ_RUNNING;
	if (s->state == SEQ_RUNNING || s->state == SEQ_SUSPECT) {
		while (at->prev != &l->head && seq_before(s, CONTAINER_OF(at->prev, struct seq, link))) at = at->prev;
	}
	list_insert_before(l, at, &s->link);
}

static void seq_unlink(struct seqs *t, struct seq *s)
{
	if (s->state == SEQ_WAITING) flow_wait_ends(s->flow, s);
	t->running_changes += s->state == SEQ_RUNNING;
	list_remove(&t->in_state[s->state], &s->link);
}

void seq_set_ask(struct seq *s, const struct msg_submit *ask)
{
	s->ask = ask;
	s->is_pooling = ask->kind != REQUEST_GENERATE;
	s->n_output_max = ask->n_output_max;
	s->n_output_min = ask->n_output_min;
	s->stop_filter = 0;
	for (uint32_t i = 0; i < ask->stop_ids.n; i++) s->stop_filter |= 1ull << col_u32(ask->stop_ids, i) % 64;
}

struct seq *seq_new(struct seqs *t, const struct msg_submit *m, struct lane *lane, struct flow *flow, uint64_t arrival)
{
	struct msg first = {.type = MSG_submit, .submit = *m};
	struct seq *s = slab_take(&t->memory);

	CHECK(!seqs_find(t, m->client_id));
	first.submit.tokens = view_of(NULL, 0);
	s->asked = msg_dup(&first);
	seq_set_ask(s, &s->asked->submit);
	s->lane = lane;
	s->flow = flow;
	s->client_id = m->client_id;
	s->attempt = m->attempt;
	s->priority = m->priority;
	s->arrival = arrival;
	s->tokens = mem_dup(m->tokens.data, m->tokens.n, sizeof(uint32_t));
	s->n_tokens = s->n_stored = s->tokens_cap = m->tokens.n;
	s->n_prompt = m->n_prompt;
	s->root = kvpool_root(m->cache_salt.data, m->cache_salt.n);
	if (m->n_logprobs > 0) s->logprobs = seq_new_logprobs(seq_n_output(s));
	if (m->n_prompt_logprobs > 0) {
		s->n_prompt_sent = max_u32(1, m->n_prompt_known);
		s->prompt_logprobs = seq_new_logprobs(s->n_prompt_sent);
	}
	s->n_sent = seq_n_output(s);
	s->accept_due = true;
	s->state = SEQ_WAITING;
	map_put(&t->by_id, s->client_id, s);
	seq_link(t, s);
	return s;
}

void seq_free(struct seqs *t, struct seq *s)
{
	CHECK(!list_is_linked(&s->lane_link) && !s->dirty_at && !heap_is_linked(&s->expiry) && s->tables[0].n == 0);
	seq_unlink(t, s);
	map_remove(&t->by_id, s->client_id);
	flow_leave(s->flow);
	seq_free_memory(t, s);
}

bool seq_may_move(enum seq_state from, enum seq_state to)
{
	static const uint8_t may[SEQ_STATES] = {
		[SEQ_WAITING] = 1 << SEQ_RUNNING | 1 << SEQ_SUSPECT | 1 << SEQ_DONE,
		[SEQ_SUSPECT] = 1 << SEQ_RUNNING | 1 << SEQ_DONE,
		[SEQ_RUNNING] = 1 << SEQ_WAITING | 1 << SEQ_SUSPECT | 1 << SEQ_DONE,
	};

	return may[from] >> to & 1;
}

void seq_move(struct seqs *t, struct seq *s, enum seq_state to)
{
	CHECK(seq_may_move(s->state, to));
	seq_unlink(t, s);
	s->state = to;
	seq_link(t, s);
}

/* Tokens. */

void seq_store(struct seq *s)
{
	mem_reserve(s->tokens, s->tokens_cap, s->n_tokens);
	for (; s->n_stored < s->n_tokens; s->n_stored++) s->tokens[s->n_stored] = s->late[s->n_stored % KVPOOL_BLOCK];
}

void seq_append(struct seq *s, uint32_t token)
{
	seq_store(s);
	mem_reserve(s->tokens, s->tokens_cap, (size_t)s->n_tokens + 1);
	s->tokens[s->n_tokens++] = token;
	s->n_stored = s->n_tokens;
}

void seq_append_top(struct seq_logprobs *l, uint32_t rank, uint32_t n_top, struct view ids, struct view lps, uint32_t at)
{
	uint32_t i, end;

	if (!l) return;
	end = l->n ? l->ends[l->n - 1] : 0;
	mem_reserve(l->ranks, l->ranks_cap, (size_t)l->n + 1);
	mem_reserve(l->ends, l->ends_cap, (size_t)l->n + 1);
	mem_reserve(l->top_ids, l->ids_cap, (size_t)end + n_top);
	mem_reserve(l->top_lps, l->lps_cap, (size_t)end + n_top);
	for (i = 0; i < n_top; i++) {
		l->top_ids[end + i] = col_u32(ids, at + i);
		l->top_lps[end + i] = col_u32(lps, at + i);
	}
	l->ranks[l->n] = rank;
	l->ends[l->n++] = end + n_top;
}

uint32_t seq_top(const struct seq_logprobs *l, uint32_t position, uint32_t *rank, uint32_t *at)
{
	uint32_t ix;

	*rank = *at = 0;
	if (!l || position < l->base) return 0;
	ix = position - l->base;
	CHECK(ix < l->n);
	*rank = l->ranks[ix];
	*at = ix ? l->ends[ix - 1] : 0;
	return l->ends[ix] - *at;
}

void seq_set_prompt_sent(struct seq *s, uint32_t position)
{
	const struct view none = view_of(NULL, 0);

	if (!s->prompt_logprobs) return;
	/* What the frontend has and we have not is never sent: empty entries take its place. */
	while (seq_n_prompt_known(s) < min_u32(position, s->n_prompt)) seq_append_top(s->prompt_logprobs, 0, 0, none, none, 0);
	s->n_prompt_sent = min_u32(max_u32(position, s->prompt_logprobs->base), seq_n_prompt_known(s));
}

uint32_t seq_n_output_limit(const struct seq *s, uint32_t len_max)
{
	return min_u32(s->n_output_max, len_max > s->n_prompt ? len_max - s->n_prompt : 0);
}

static bool seq_ends_with_stop(const struct seq *s)
{
	uint32_t i, last = seq_last_token(s);

	if (!(s->stop_filter >> last % 64 & 1)) return false;
	for (i = 0; i < s->ask->stop_ids.n; i++)
		if (col_u32(s->ask->stop_ids, i) == last) return true;
	return false;
}

enum finish seq_finish(const struct seq *s, uint32_t len_max)
{
	uint32_t n = seq_n_output(s);

	if (seq_is_pooling(s)) return s->pooled ? FINISH_STOP : FINISH_NONE;
	/* The token at output position n_output_min is the first that may end the request. */
	if (n > s->n_output_min && seq_ends_with_stop(s)) return FINISH_STOP;
	return n > 0 && n >= seq_n_output_limit(s, len_max) ? FINISH_LENGTH : FINISH_NONE;
}

/* With one token fewer than this a request that gets another one is at its limit. */
static uint32_t seq_n_before_last(const struct seq *s, uint32_t len_max)
{
	uint32_t n = s->n_prompt + seq_n_output_limit(s, len_max);

	return n ? n - 1 : 0;
}

void seq_set_quiet_tokens(struct seq *s, uint32_t len_max)
{
	s->quiet_tokens = 0;
	if (s->logprobs || s->prompt_logprobs || s->is_pooling || s->suspect || s->deaths) return;
	s->quiet_tokens = min_u32((s->n_published + 1) * KVPOOL_BLOCK, seq_n_before_last(s, len_max));
}

void seq_set_quiet_sched(struct seq *s, uint32_t len_max, uint32_t n_groups)
{
	s->quiet_sched = 0;
	if (s->prompt_logprobs || s->is_pooling) return;
	s->quiet_sched = seq_n_before_last(s, len_max);
	for (uint32_t g = 0; g < n_groups; g++) s->quiet_sched = min_u32(s->quiet_sched, s->tables[g].n * KVPOOL_BLOCK);
}

static void seq_check_quiet(const struct seq *s)
{
	if (!s->quiet_tokens && !s->quiet_sched) return;
	CHECK(s->state == SEQ_RUNNING && !s->prompt_logprobs && !s->is_pooling);
	CHECK(s->quiet_tokens <= (s->n_published + 1) * KVPOOL_BLOCK);
	CHECK(s->quiet_sched <= s->tables[0].n * KVPOOL_BLOCK);
	if (s->quiet_tokens) CHECK(!s->logprobs && !s->suspect && !s->deaths && seq_n_output(s) > 0);
}

static void seq_check_table(const struct seq *s, const struct seq_table *t)
{
	CHECK(t->first <= t->n && t->n <= t->cap && (t->n == 0 || (uint64_t)t->n * KVPOOL_BLOCK >= s->n_sched));
	for (uint32_t i = 0; i < t->n; i++) CHECK((t->v[i] == KVPOOL_NONE) == (i < t->first));
}

static void seq_check(const struct seqs *t, const struct seq *s, enum seq_state state)
{
	CHECK(s->state == state && seqs_find(t, s->client_id) == s);
	CHECK(s->n_prompt > 0 && s->n_prompt <= s->n_tokens && s->n_stored <= s->tokens_cap);
	CHECK(s->n_stored <= s->n_tokens && s->n_tokens - s->n_stored <= KVPOOL_BLOCK && (state == SEQ_RUNNING || s->n_stored == s->n_tokens));
	CHECK(s->n_sent <= seq_n_output(s) && (s->finish != FINISH_NONE) == (state == SEQ_DONE));
	CHECK(s->n_sched <= s->n_tokens + s->n_pending && s->n_published <= s->tables[0].n);
	for (uint32_t g = 0; g < LIMIT_KV_GROUPS; g++) seq_check_table(s, &s->tables[g]);
	seq_check_quiet(s);
	if (s->logprobs) CHECK(s->logprobs->base + s->logprobs->n == seq_n_output(s));
	if (s->prompt_logprobs) CHECK(seq_n_prompt_known(s) <= s->n_prompt && s->n_prompt_sent <= seq_n_prompt_known(s));
	CHECK(!s->pooled || (seq_is_pooling(s) && state == SEQ_DONE));
	CHECK((state == SEQ_WAITING) == heap_is_linked(&s->turn));
	CHECK(!heap_is_linked(&s->expiry) || (state == SEQ_WAITING && !s->was_run));
	if (state != SEQ_RUNNING) CHECK(s->tables[0].n == 0 && s->n_sched == 0 && s->n_pending == 0 && s->n_reserved == 0);
}

void seqs_check(const struct seqs *t)
{
	size_t n = 0, i;

	for (i = 0; i < SEQ_STATES; i++) {
		const struct list *l = &t->in_state[i];
		const struct list_link *it;

		for (it = l->head.next; it != &l->head; it = it->next, n++) {
			const struct seq *s = CONTAINER_OF(it, struct seq, link);

			seq_check(t, s, (enum seq_state)i);
			if (it->prev == &l->head || (i != SEQ_RUNNING && i != SEQ_SUSPECT)) continue;
			CHECK(seq_before(CONTAINER_OF(it->prev, struct seq, link), s));
		}
	}
	CHECK(n == t->by_id.len);
}
