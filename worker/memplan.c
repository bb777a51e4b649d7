/* memplan.c - see memplan.h. Sizes are bounded by modelshape.h and limits.h, so that products stay within 64 bits. */
#include "worker/memplan.h"

#include "worker/batch.h"

#define MEMPLAN_BLOCKS_MAX (1u << 27) /* slot numbers (block * KBLOCK_LEN + offset) are 32 bits */
#define MEMPLAN_TOKENS_MIN 512        /* a KV cache that holds less serves nobody; less when the model's length is */
#define MEMPLAN_ALIGN      64

static void memplan_add(struct memplan *p, struct memplan_part *part, uint64_t rows, uint64_t row_bytes)
{
	part->at = p->activation_bytes;
	part->bytes = align_up(rows * row_bytes, MEMPLAN_ALIGN);
	p->activation_bytes += part->bytes;
}

void memplan_init(struct memplan *p, const struct modelshape *s, const struct memplan_sizes *sizes)
{
	uint32_t tokens = sizes->batched_tokens_max;
	uint32_t outs = min_u32(sizes->seqs_max, tokens), seqs = sizes->seqs_max;
	uint32_t mask_vocab = max_u32(s->n_tokens, sizes->mask_vocab);

	*p = (struct memplan){.sizes = *sizes};
	p->positions = sizes->model_len_max + MEMPLAN_SPARE_POSITIONS;
	p->seq_blocks_max = (uint32_t)div_up(p->positions, KBLOCK_LEN);
	p->att_width = s->heads * s->head_dim;
	p->qkv_width = (s->heads + 2 * s->kv_heads) * s->head_dim;
	p->ffn_rows = min_u32(tokens, MEMPLAN_FFN_ROWS);
	p->outs = outs;
	p->logits_rows = min_u32(outs, MEMPLAN_LOGITS_ROWS);
	p->kv_block_bytes = modelshape_kv_token_bytes(s, sizes->kv_type) * KBLOCK_LEN;

	memplan_add(p, &p->x, tokens, s->dim * sizeof(float));
	memplan_add(p, &p->h, tokens, max_u32(s->dim, p->att_width) * sizeof(float));
	memplan_add(p, &p->qkv, tokens, p->qkv_width * sizeof(float));
	memplan_add(p, &p->gate, p->ffn_rows, s->ffn * sizeof(float));
	memplan_add(p, &p->up, p->ffn_rows, s->ffn * sizeof(float));
	memplan_add(p, &p->x_out, outs, s->dim * sizeof(float));
	memplan_add(p, &p->logits, p->logits_rows, (uint64_t)s->n_tokens * sizeof(float));
	memplan_add(p, &p->rope, p->positions, s->rope_dims * sizeof(float));
	memplan_add(p, &p->input, 1, batch_input_bytes(p->positions, tokens, seqs));
	memplan_add(p, &p->extra, batch_extra_words(mask_vocab, p->positions, p->logits_rows), sizeof(uint32_t));
	memplan_add(p, &p->sampled, batch_rows_max(tokens, seqs), sizeof(struct ksampled));
}

static double memplan_mib(uint64_t bytes)
{
	return (double)bytes / (double)MIB;
}

static uint64_t memplan_fixed(const struct memplan *p)
{
	return (uint64_t)p->weight_bytes + p->activation_bytes + p->scratch_bytes;
}

static uint32_t memplan_blocks_min(const struct memplan *p)
{
	return (uint32_t)div_up(min_u32(p->positions, MEMPLAN_TOKENS_MIN), KBLOCK_LEN);
}

int memplan_check(const struct memplan *p, uint64_t available, struct errbuf *err)
{
	uint64_t kv_min = (uint64_t)memplan_blocks_min(p) * p->kv_block_bytes;

	if (memplan_fixed(p) + kv_min <= available) return ST_OK;
	return err_set(err, ST_NO_MEMORY,
		       "not enough memory: the model needs %.0f MiB (weights %.0f, activations %.0f, workspace %.0f, "
		       "smallest KV cache %.0f), %.0f MiB are available",
		       memplan_mib(memplan_fixed(p) + kv_min), memplan_mib(p->weight_bytes),
		       memplan_mib(p->activation_bytes), memplan_mib(p->scratch_bytes), memplan_mib(kv_min),
		       memplan_mib(available));
}

/* A size that somebody asked for by an option: taken as it is, or refused. */
static int memplan_kv_given(const struct memplan *p, const struct memplan_kv *kv, const char *option, uint64_t blocks,
			    uint32_t *n_blocks, struct errbuf *err)
{
	uint64_t fixed = memplan_fixed(p);
	uint64_t left = kv->available > fixed ? kv->available - fixed : 0;

	if (blocks == 0)
		return err_set(err, ST_INVALID, "%s is less than one KV block, which takes %zu bytes", option,
			       p->kv_block_bytes);
	if (blocks > MEMPLAN_BLOCKS_MAX)
		return err_set(err, ST_LIMIT, "%s asks for %llu KV blocks; at most %u are possible", option,
			       (unsigned long long)blocks, MEMPLAN_BLOCKS_MAX);
	if (blocks > left / p->kv_block_bytes)
		return err_set(
			err, ST_NO_MEMORY,
			"%s asks for a KV cache of %.0f MiB; %.0f MiB are left of %.0f after weights and activations",
			option, memplan_mib(blocks * p->kv_block_bytes), memplan_mib(left), memplan_mib(kv->available));
	*n_blocks = (uint32_t)blocks;
	return ST_OK;
}

int memplan_kv_blocks(const struct memplan *p, const struct memplan_kv *kv, uint32_t *n_blocks, struct errbuf *err)
{
	uint64_t fixed = memplan_fixed(p), use, blocks;

	if (kv->n_blocks) return memplan_kv_given(p, kv, "--num-gpu-blocks-override", kv->n_blocks, n_blocks, err);
	if (kv->bytes)
		return memplan_kv_given(p, kv, "--kv-cache-memory-bytes", kv->bytes / p->kv_block_bytes, n_blocks, err);

	use = kv->available == UINT64_MAX ? UINT64_MAX : (uint64_t)((double)kv->available * kv->utilization);
	use = use > fixed ? use - fixed : 0;
	if (kv->auto_max) use = min_u64(use, kv->auto_max);
	blocks = min_u64(use / p->kv_block_bytes, (uint64_t)p->sizes.seqs_max * p->seq_blocks_max);
	blocks = min_u64(blocks, MEMPLAN_BLOCKS_MAX);
	if (blocks < memplan_blocks_min(p))
		return err_set(
			err, ST_NO_MEMORY,
			"not enough memory for the KV cache: %.0f MiB are available, --gpu-memory-utilization %.2f of "
			"them less weights and activations (%.0f MiB) leaves %llu blocks of %zu bytes; at least %u are "
			"needed",
			memplan_mib(kv->available), kv->utilization, memplan_mib(fixed), (unsigned long long)blocks,
			p->kv_block_bytes, memplan_blocks_min(p));
	*n_blocks = (uint32_t)blocks;
	return ST_OK;
}
