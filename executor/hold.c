/* hold.c - what sequences hold of the KV pool: tables by KV group, windows, reservations, the prefix cache.
 *
 * Full groups keep all blocks of a sequence. A windowed group gives back what lies behind the window as soon as results
 * say how far the sequence is, so it holds window_blocks at most, and a prompt of any length gets on with as many:
 * those are its own from the start. What it gives back before its end is reserved for it. A windowed block that two
 * sequences share would not be free when one of them gives it back, so the second one pays for it as if it were a new
 * one (n_shared). */
#include "executor/core_impl.h"

uint32_t hold_available(const struct core *c)
{
	uint32_t n = kvpool_available(&c->pool);

	CHECK(n >= c->n_reserved + c->n_shared);
	return n - c->n_reserved - c->n_shared;
}

static bool hold_is_windowed(const struct core *c, uint32_t group)
{
	return group >= c->kv.n_full;
}

void hold_ref(struct core *c, uint32_t group, uint32_t block)
{
	c->n_shared += hold_is_windowed(c, group) && kvpool_is_used(&c->pool, block);
	kvpool_ref(&c->pool, block);
}

static void hold_unref(struct core *c, uint32_t group, uint32_t block)
{
	kvpool_unref(&c->pool, block);
	c->n_shared -= hold_is_windowed(c, group) && kvpool_is_used(&c->pool, block);
}

uint32_t hold_first_block(const struct core *c, uint32_t group, uint32_t pos)
{
	if (!hold_is_windowed(c, group) || pos + 1 <= c->kv.window) return 0;
	return (pos + 1 - c->kv.window) / KVPOOL_BLOCK;
}

/* What the rest of its prompt will take beyond what it holds. */
void hold_reserve(struct core *c, struct seq *s)
{
	uint32_t n = 0;

	for (uint32_t g = c->kv.n_full; g < c->n_kv_groups; g++) {
		const struct seq_table *t = &s->tables[g];
		uint32_t n_live = t->n - t->first, n_left = s->n_all > t->n ? s->n_all - t->n : 0;

		n += min_u32(n_left, c->window_blocks - n_live);
	}
	c->n_reserved += n - s->n_reserved;
	s->n_reserved = n;
}

/* Everything before `end` is computed: what no later token sees is given back. */
void hold_leave_behind(struct core *c, struct seq *s, uint32_t end)
{
	for (uint32_t g = c->kv.n_full; g < c->n_kv_groups; g++) {
		struct seq_table *t = &s->tables[g];

		for (uint32_t first = hold_first_block(c, g, end); t->first < first && t->first < t->n; t->first++) {
			hold_unref(c, g, t->v[t->first]);
			t->v[t->first] = KVPOOL_NONE;
		}
	}
	hold_reserve(c, s);
}

/* Last block first: the end of a chain is evicted before what it hangs on. */
void hold_give_all(struct core *c, struct seq *s)
{
	for (uint32_t g = 0; g < c->n_kv_groups; g++) {
		struct seq_table *t = &s->tables[g];

		while (t->n > t->first) hold_unref(c, g, t->v[--t->n]);
		t->n = t->first = 0;
	}
	c->n_reserved -= s->n_reserved;
	s->n_sched = s->n_pending = s->n_published = s->n_reserved = s->n_all = s->quiet_tokens = s->quiet_sched = 0;
}

/* Tokens that may come from the prefix cache: what their own logits or states are wanted of must be computed. */
static uint32_t hold_n_cacheable(const struct seq *s)
{
	uint32_t n = s->n_tokens - 1;

	if (s->ask->kind == REQUEST_POOL_MEAN) return 0;
	/* The log-probability of a position comes from the token before it. */
	return seq_n_prompt_known(s) < s->n_prompt ? min_u32(n, seq_n_prompt_known(s) - 1) : n;
}

/* What the cache has of block i of s: its place in a group's table. The chain of group 0 must be there up to it. */
static bool hold_look_up_block(struct core *c, struct seq *s, uint32_t group, uint32_t i)
{
	struct kvpool_chain parent = i ? kvpool_chain(&c->pool, s->tables[0].v[i - 1]) : s->root;
	struct seq_table *t = &s->tables[group];

	mem_reserve(t->v, t->cap, (size_t)i + 1);
	t->v[i] = kvpool_find(&c->pool, kvpool_of_group(parent, group), s->tokens + (size_t)i * KVPOOL_BLOCK);
	return t->v[i] != KVPOOL_NONE;
}

/* The last block before n that a token behind them sees in a windowed group and that the cache has not; KVPOOL_NONE: it
 * has all. */
static uint32_t hold_find_hole(struct core *c, struct seq *s, uint32_t n)
{
	uint32_t first = hold_first_block(c, c->kv.n_full, n * KVPOOL_BLOCK);

	for (uint32_t i = n; i-- > first;)
		for (uint32_t g = max_u32(c->kv.n_full, 1); g < c->n_kv_groups; g++)
			if (!hold_look_up_block(c, s, g, i)) return i;
	return KVPOOL_NONE;
}

/* The beginning of s as the prefix cache has it: fills the tables with what is found, without references. Returns with
 * how many blocks s can begin: full groups have them all, and windowed ones what its next token sees. The latter are
 * looked for from the end, because mostly the whole prefix is there, and a window is short. (A windowed group 0 is the
 * chain itself, so it must be there from the start.) */
static uint32_t hold_look_up(struct core *c, struct seq *s)
{
	uint32_t n_max = hold_n_cacheable(s) / KVPOOL_BLOCK, n = 0, hole;
	bool found = true;

	while (n < n_max && found) {
		for (uint32_t g = 0; found && g < max_u32(c->kv.n_full, 1); g++) found = hold_look_up_block(c, s, g, n);
		n += found;
	}
	if (c->kv.n_windowed)
		while (n > 0 && (hole = hold_find_hole(c, s, n)) != KVPOOL_NONE) n = hole;
	s->chain = n ? kvpool_chain(&c->pool, s->tables[0].v[n - 1]) : s->root;
	return n;
}

/* Makes what was looked up the beginning of the tables, without references. Returns how much less is available when s
 * takes it. */
uint32_t hold_find_prefix(struct core *c, struct seq *s)
{
	uint32_t cost = 0;

	s->n_published = hold_look_up(c, s);
	for (uint32_t g = 0; g < c->n_kv_groups; g++) {
		struct seq_table *t = &s->tables[g];

		t->n = s->n_published;
		t->first = hold_first_block(c, g, s->n_published * KVPOOL_BLOCK);
		mem_reserve(t->v, t->cap, t->n);
		for (uint32_t i = 0; i < t->first; i++) t->v[i] = KVPOOL_NONE;
		for (uint32_t i = t->first; i < t->n; i++)
			cost += hold_is_windowed(c, g) || !kvpool_is_used(&c->pool, t->v[i]);
	}
	return cost;
}

void hold_forget_prefix(struct core *c, struct seq *s)
{
	for (uint32_t g = 0; g < c->n_kv_groups; g++) s->tables[g].n = s->tables[g].first = 0;
	s->n_published = 0;
}

/* The blocks that are full and computed up to `end` can be found by others from now on. */
void hold_publish(struct core *c, struct seq *s, uint32_t end)
{
	CHECK(end <= s->n_tokens);
	seq_store(s);
	for (; (s->n_published + 1) * KVPOOL_BLOCK <= end; s->n_published++) {
		const uint32_t *tokens = s->tokens + (size_t)s->n_published * KVPOOL_BLOCK;
		struct kvpool_chain parent = s->chain;

		for (uint32_t g = 0; g < c->n_kv_groups; g++) {
			struct kvpool_chain chain = kvpool_publish(&c->pool, s->tables[g].v[s->n_published],
								   kvpool_of_group(parent, g), tokens);

			if (g == 0) s->chain = chain; /* names what lies before, for all groups */
		}
	}
}

/* Nobody runs. */
void hold_new_pool(struct core *c, uint32_t n_blocks)
{
	kvpool_release(&c->pool);
	kvpool_init(&c->pool, n_blocks, c->cfg.prefix_cache && !c->kv.recurrent);
	CHECK(c->n_reserved == 0);
	c->n_shared = 0;
}

uint64_t hold_tokens_ahead(const struct core *c)
{
	return (uint64_t)c->cfg.steps_in_flight_max * c->cfg.batched_tokens_max;
}

void hold_set_kv(struct core *c, const struct core_kv *kv)
{
	c->kv = *kv;
	if (kv->n_full + kv->n_windowed == 0) c->kv.n_full = 1;
	c->n_kv_groups = c->kv.n_full + c->kv.n_windowed;
	CHECK(c->n_kv_groups <= LIMIT_KV_GROUPS && (kv->n_windowed == 0 || kv->window > 0));
	c->window_blocks = core_kv_window_blocks(kv, hold_tokens_ahead(c));
}

void hold_check(const struct core *c)
{
	uint32_t *refs = mem_array(uint32_t, c->pool.n_blocks);
	uint32_t i, n_reserved = 0, n_shared = 0;

	LIST_EACH(&c->seqs.in_state[SEQ_RUNNING], it, nx)
	{
		const struct seq *s = CONTAINER_OF(it, struct seq, link);

		n_reserved += s->n_reserved;
		for (uint32_t g = 0; g < LIMIT_KV_GROUPS; g++) {
			const struct seq_table *t = &s->tables[g];

			CHECK(g < c->n_kv_groups || t->n == 0);
			if (g < c->n_kv_groups && hold_is_windowed(c, g)) CHECK(t->n - t->first <= c->window_blocks);
			for (i = t->first; i < t->n; i++) {
				CHECK(t->v[i] < c->pool.n_blocks);
				if (hold_is_windowed(c, g)) n_shared += refs[t->v[i]] > 0;
				refs[t->v[i]]++;
			}
		}
	}
	for (i = 0; i < c->pool.n_blocks; i++) CHECK(refs[i] == c->pool.blocks[i].refs);
	free(refs);
	CHECK(n_reserved == c->n_reserved && n_shared == c->n_shared);
	hold_available(c);
}
