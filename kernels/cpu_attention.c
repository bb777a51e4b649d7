/* cpu_attention.c - attention and the writing of its KV cache on the CPU: what an enqueue records, and how the work is
 * cut into items.
 *
 * An item of attention is some tokens for some heads that share a kv head. */
#include "kernels/cpu.h"

static void cpu_kv_check(const struct kkv *kv)
{
	CHECK(kkv_type_built(kv->type));
	CHECK(kv->latent ? kv->kv_heads == 1 && kv->v_dim <= kv->k_dim : kv->v != NULL);
	CHECK(kv->type != GGTYPE_I8 || (kv->k_scale && (kv->latent || kv->v_scale)));
}

static void cpu_run_kv_store(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	for (size_t i = begin; i < end; i++) {
		const float *v = op->u.kv_store.v ? op->u.kv_store.v + i * op->u.kv_store.ld_v : NULL;

		t->dev->level->kv_store(&op->u.kv_store.kv, op->u.kv_store.k + i * op->u.kv_store.ld_k, v,
					op->u.kv_store.slots[i]);
	}
}

void cpu_kv_store(struct kdev *base, const struct kkv *kv, const float *k, uint32_t ld_k, const float *v, uint32_t ld_v,
		  const uint32_t *slots, uint32_t n)
{
	struct cpu_op *op;

	cpu_kv_check(kv);
	CHECK(kv->latent == !v);
	op = cpu_stream_push(cpu_dev_of(base), cpu_run_kv_store, n,
			     cpu_is_solo(n, (uint64_t)kv->kv_heads * (kv->k_dim + (kv->latent ? 0 : kv->v_dim))));
	op->u.kv_store.kv = *kv;
	op->u.kv_store.k = k;
	op->u.kv_store.v = v;
	op->u.kv_store.slots = slots;
	op->u.kv_store.ld_k = ld_k;
	op->u.kv_store.ld_v = ld_v;
}

/* Tokens [token, token_end) of one kv head's query heads, cut where the sequence changes. */
static void cpu_attention_item(struct cpu_thread *t, const struct cpu_attention *a, uint32_t token, uint32_t token_end,
			       uint32_t head, uint32_t head_end)
{
	while (token < token_end) {
		uint32_t next = token + 1;

		while (next < token_end && a->b.seq_ix[next] == a->b.seq_ix[token]) next++;
		t->dev->level->attention(a, token, next, head, head_end, (float *)t->scratch);
		token = next;
	}
}

static void cpu_run_attention(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct cpu_attention *a = &op->u.attention.a;
	uint32_t heads = op->u.attention.heads_item, tokens = op->u.attention.tokens_item,
		 group = a->a.heads / a->kv.kv_heads;
	uint32_t pieces = (uint32_t)div_up(group, heads);

	for (uint32_t i = begin; i < end; i++) {
		uint32_t token = i / (a->kv.kv_heads * pieces) * tokens, piece = i % (a->kv.kv_heads * pieces);
		uint32_t head = piece / pieces * group + piece % pieces * heads,
			 group_end = (piece / pieces + 1) * group;

		cpu_attention_item(t, a, token, min_u32(token + tokens, a->b.n_tokens), head,
				   min_u32(head + heads, group_end));
	}
}

/* Heads of a group that an item takes: those of a pass, which share the loads of K and V, unless threads would have
 * nothing to do. A latent tile is unpacked by each item, so there the group is cut no finer than threads need. */
static uint32_t cpu_attention_heads(const struct kkv *kv, uint32_t group, uint64_t pairs, uint32_t n_threads)
{
	uint32_t passes = (uint32_t)div_up(group, CPU_ATTN_QUERIES);

	if (pairs * passes >= n_threads) return (uint32_t)div_up(group, passes);
	if (!kv->latent) return 1;
	return (uint32_t)div_up(group, min_u64(group, div_up(n_threads, max_u64(1, pairs))));
}

/* Bytes that a level needs: sums and terms of the queries of a pass, and an unpacked tile. */
static size_t cpu_attention_scratch(const struct kkv *kv)
{
	size_t queries = CPU_ATTN_QUERIES * (align_up(kv->v_dim, 16) + KBLOCK_LEN);

	return (queries + KBLOCK_LEN * (kv->k_dim + align_up(kv->v_dim, 8))) * sizeof(float);
}

void cpu_attention(struct kdev *base, const struct kattn *a, const struct kbatch *b)
{
	struct cpu_dev *d = cpu_dev_of(base);
	uint32_t kv_heads = a->kv->kv_heads, group = a->heads / kv_heads;
	uint64_t pairs = (uint64_t)b->n_tokens * kv_heads;
	/* Long prompts share the loads of K and V between tokens; few tokens are cut finer, so that all threads have
	 * work. */
	uint32_t tokens = (uint32_t)min_u64(CPU_ATTN_TOKENS, max_u64(1, pairs / (d->opts.n_threads * 8)));
	uint32_t heads = cpu_attention_heads(a->kv, group, pairs, d->opts.n_threads);
	uint64_t n_items = div_up(b->n_tokens, tokens) * kv_heads * div_up(group, heads);
	struct cpu_op *op;

	cpu_kv_check(a->kv);
	CHECK(a->heads % kv_heads == 0 && a->softcap >= 0);
	cpu_dev_need(d, cpu_attention_scratch(a->kv));
	op = cpu_stream_push(d, cpu_run_attention, n_items, false);
	op->u.attention.a = (struct cpu_attention){.a = *a, .kv = *a->kv, .b = *b};
	op->u.attention.a.a.kv = NULL; /* it may be gone by then */
	if (a->block_tables) op->u.attention.a.b.block_tables = a->block_tables;
	op->u.attention.tokens_item = tokens;
	op->u.attention.heads_item = heads;
}
