/* cpu_ops.c - the operations of kernels.h on the CPU: what an enqueue records, and how the work is cut into items.
 *
 * An item is the smallest piece that a thread takes: 16 weight rows of a product, a row of a norm, a few tokens of one
 * KV head. The cut changes nothing in the results (see cpu.h). Operations with little work are solo: sharing them would
 * cost more in waiting than it saves. */
#include "kernels/cpu.h"
#include "kernels/pack.h"
#include "kernels/sampler.h"

#include <string.h>

#define CPU_SOLO_FLOATS  8192 /* about 1 us of a light operation; a barrier costs 0.3 to 1 us */
#define CPU_ALONE_FLOATS 8192 /* activations that each thread quantizes for itself rather than wait for a shared copy \
			       */
#define CPU_GLU_ITEM 256

static bool cpu_is_solo(uint64_t n, uint64_t width)
{
	return n * width <= CPU_SOLO_FLOATS;
}

/* --- matrices --- */

static enum cpu_layout cpu_mat_layout(const struct cpu_dev *d, enum ggtype type)
{
	if (!pack_has_groups(type)) return CPU_LAYOUT_ROWS;
	if (pack_is_quantized(type) && d->opts.act == KACT_F32) return CPU_LAYOUT_ROWS;
	return d->level->layout;
}

size_t cpu_mat_bytes(struct kdev *base, enum ggtype type, uint32_t rows, uint32_t cols)
{
	if (!kdequant_supported(type)) return 0;
	return pack_bytes(cpu_mat_layout(cpu_dev_of(base), type), type, rows, cols);
}

void cpu_mat_init(struct kdev *base, struct kmat *m, void *dst, enum ggtype type, uint32_t rows, uint32_t cols)
{
	enum cpu_layout layout = cpu_mat_layout(cpu_dev_of(base), type);

	CHECK(kdequant_supported(type));
	*m = (struct kmat){.type = type, .rows = rows, .cols = cols, .data = dst, .layout = layout};
	m->bytes = pack_bytes(layout, type, rows, cols);
}

void cpu_mat_put(struct kdev *base, const struct kmat *m, uint32_t row, uint32_t n, const void *src)
{
	CHECK(row % KMAT_PUT_ROWS == 0 && n <= m->rows - row && (n % KMAT_PUT_ROWS == 0 || row + n == m->rows));
	pack_load((char *)m->data + row * ggtype_row_bytes(m->type, m->cols), (enum cpu_layout)m->layout, m->type, n, m->cols, src);
}

bool cpu_mat_view(struct kdev *base, struct kmat *m, enum ggtype type, uint32_t rows, uint32_t cols, const void *src)
{
	if (!kdequant_supported(type) || cpu_mat_layout(cpu_dev_of(base), type) != CPU_LAYOUT_ROWS) return false;
	cpu_mat_init(base, m, (void *)(uintptr_t)src, type, rows, cols);
	return true;
}

static void cpu_run_embed(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kmat *table = &op->u.embed.table;

	for (uint32_t i = begin; i < end; i++) {
		float *out = op->u.embed.out + (size_t)i * table->cols;

		CHECK(op->u.embed.ids[i] < table->rows);
		pack_row(table, op->u.embed.ids[i], out);
		if (op->u.embed.scale == 1) continue;
		for (uint32_t c = 0; c < table->cols; c++) out[c] *= op->u.embed.scale;
	}
}

void cpu_embed(struct kdev *base, float *out, const struct kmat *table, const uint32_t *ids, uint32_t n, float scale)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_embed, n, cpu_is_solo(n, table->cols));

	op->u.embed.out = out;
	op->u.embed.table = *table;
	op->u.embed.ids = ids;
	op->u.embed.scale = scale;
}

/* --- products --- */

static void cpu_run_quantize(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	for (uint32_t i = begin; i < end; i++)
		t->dev->level->quantize(cpu_xq_at(t->dev->scratch, op->u.quantize.cols, i),
					op->u.quantize.x + (size_t)i * op->u.quantize.ld_x, op->u.quantize.cols);
}

static void cpu_run_matmul(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct cpu_level *level = t->dev->level;
	uint32_t cols = op->u.matmul.w[0].cols, n = op->u.matmul.n, first = 0;
	void *xq = op->u.matmul.alone ? t->scratch : t->dev->scratch;
	size_t own = op->u.matmul.alone ? cpu_xq_stride(cols) * n : 0;
	struct cpu_product p = {
		.x = op->u.matmul.x, .ld_x = op->u.matmul.ld_x, .n = n, .tile = (float *)(t->scratch + own)};

	if (op->u.matmul.alone && !t->prepared) {
		for (uint32_t i = 0; i < n; i++)
			level->quantize(cpu_xq_at(xq, cols, i), p.x + (size_t)i * p.ld_x, cols);
		t->prepared = true;
	}
	for (uint32_t i = 0; i < op->u.matmul.n_outs && begin < end; first = op->u.matmul.item_end[i++]) {
		const struct kmat *w = &op->u.matmul.w[i];
		uint32_t stop = min_u32(end, op->u.matmul.item_end[i]);

		if (begin >= stop) continue;
		p.o = &op->u.matmul.outs[i];
		p.xq = op->u.matmul.quantized && pack_is_quantized(w->type) ? xq : NULL;
		level->product(&p, (begin - first) * CPU_UNIT_ROWS, min_u32((stop - first) * CPU_UNIT_ROWS, w->rows));
		begin = stop;
	}
}

static void cpu_matmul_rows(struct cpu_dev *d, const float *x, uint32_t ld_x, uint32_t row, uint32_t n,
			    const struct kmat_out *outs, uint32_t n_outs, bool quantized, bool alone)
{
	uint64_t n_items = 0;
	struct cpu_op *op;

	for (uint32_t i = 0; i < n_outs; i++) n_items += div_up(outs[i].w->rows, CPU_UNIT_ROWS);
	op = cpu_stream_push(d, cpu_run_matmul, n_items, false);
	op->u.matmul.x = x + (size_t)row * ld_x;
	op->u.matmul.ld_x = ld_x;
	op->u.matmul.n = n;
	op->u.matmul.n_outs = n_outs;
	op->u.matmul.quantized = quantized;
	op->u.matmul.alone = quantized && alone;
	n_items = 0;
	for (uint32_t i = 0; i < n_outs; i++) {
		op->u.matmul.w[i] = *outs[i].w;
		op->u.matmul.outs[i] = outs[i];
		op->u.matmul.outs[i].out += (size_t)row * outs[i].ld_out;
		n_items += div_up(outs[i].w->rows, CPU_UNIT_ROWS);
		op->u.matmul.item_end[i] = (uint32_t)n_items;
	}
}

void cpu_matmul(struct kdev *base, const float *x, uint32_t ld_x, uint32_t n, const struct kmat_out *outs,
		uint32_t n_outs)
{
	struct cpu_dev *d = cpu_dev_of(base);
	uint32_t cols = outs[0].w->cols, chunk = n;
	bool quantized = false, alone;
	size_t stride;

	CHECK(n_outs >= 1 && n_outs <= 4);
	for (uint32_t i = 0; i < n_outs; i++) {
		CHECK(outs[i].w->cols == cols);
		quantized |= d->opts.act == KACT_Q8 && pack_is_quantized(outs[i].w->type);
	}
	if (n == 0) return;
	stride = cpu_xq_stride(cols);
	alone = (uint64_t)n * cols <= CPU_ALONE_FLOATS || d->opts.scratch_bytes < stride;
	if (quantized) /* a batch beyond the limits that the workspace was made for goes in parts */
		chunk = alone ? max_u32(1, CPU_ALONE_FLOATS / cols)
			      : (uint32_t)min_size(n, d->opts.scratch_bytes / stride);
	cpu_dev_need(d, stride * (alone ? chunk : 0) + (size_t)CPU_TILE_ROWS * cols * 4);
	for (uint32_t row = 0, m; row < n; row += m) {
		m = min_u32(chunk, n - row);
		if (quantized && !alone) {
			struct cpu_op *op = cpu_stream_push(d, cpu_run_quantize, m, false);

			op->u.quantize.x = x + (size_t)row * ld_x;
			op->u.quantize.ld_x = ld_x;
			op->u.quantize.cols = cols;
		}
		cpu_matmul_rows(d, x, ld_x, row, m, outs, n_outs, quantized, alone);
	}
}

/* --- rows --- */

static void cpu_run_norm(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct knorm *a = &op->u.norm;

	for (size_t i = begin; i < end; i++)
		for (size_t g = 0; g < a->groups; g++)
			t->dev->level->norm(a->out + i * a->ld_out + g * a->dim, a->x + i * a->ld_x + g * a->dim, a->w, a->dim, a->eps,
					    a->accumulate);
}

void cpu_norm(struct kdev *base, const struct knorm *a, uint32_t n)
{
	struct cpu_op *op =
		cpu_stream_push(cpu_dev_of(base), cpu_run_norm, n, cpu_is_solo(n, (uint64_t)a->groups * a->dim));

	op->u.norm = *a;
}

static void cpu_run_rope(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	uint32_t rot_dim = op->u.rope.rot_dim;

	for (uint32_t i = begin; i < end; i++) {
		const float *cos_sin = op->u.rope.cos_sin + (size_t)op->u.rope.positions[i] * rot_dim;
		float *x = op->u.rope.x + (size_t)i * op->u.rope.ld_x;

		for (uint32_t h = 0; h < op->u.rope.n_heads; h++)
			t->dev->level->rope(x + (size_t)h * op->u.rope.head_dim, cos_sin, rot_dim, op->u.rope.style);
	}
}

void cpu_rope(struct kdev *base, float *x, uint32_t ld_x, const uint32_t *positions, uint32_t n, uint32_t n_heads,
	      uint32_t head_dim, uint32_t rot_dim, const float *cos_sin, enum krope style)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_rope, n, cpu_is_solo(n, n_heads * head_dim));

	CHECK(rot_dim <= head_dim && rot_dim % 2 == 0);
	op->u.rope.x = x;
	op->u.rope.ld_x = ld_x;
	op->u.rope.positions = positions;
	op->u.rope.cos_sin = cos_sin;
	op->u.rope.n_heads = n_heads;
	op->u.rope.head_dim = head_dim;
	op->u.rope.rot_dim = rot_dim;
	op->u.rope.style = style;
}

static void cpu_run_glu(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	size_t from = (size_t)begin * CPU_GLU_ITEM;
	size_t to = min_size((size_t)end * CPU_GLU_ITEM, op->u.glu.len);

	t->dev->level->glu(op->u.glu.out + from, op->u.glu.gate + from, op->u.glu.up + from, to - from, op->u.glu.kind,
			   op->u.glu.limit);
}

void cpu_glu(struct kdev *base, float *out, const float *gate, const float *up, uint32_t n, uint32_t dim, enum kglu kind, float limit)
{
	uint64_t len = (uint64_t)n * dim;
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_glu, div_up(len, CPU_GLU_ITEM), false);

	op->u.glu.out = out;
	op->u.glu.gate = gate;
	op->u.glu.up = up;
	op->u.glu.len = len;
	op->u.glu.kind = kind;
	op->u.glu.limit = limit;
}

static void cpu_run_gather(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	size_t dim = op->u.gather.dim;

	for (size_t i = begin; i < end; i++)
		memcpy(op->u.gather.out + i * dim, op->u.gather.x + op->u.gather.rows[i] * dim, dim * sizeof(float));
}

void cpu_gather(struct kdev *base, float *out, const float *x, const uint32_t *rows, uint32_t n, uint32_t dim)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_gather, n, cpu_is_solo(n, dim));

	op->u.gather.out = out;
	op->u.gather.x = x;
	op->u.gather.rows = rows;
	op->u.gather.dim = dim;
}

static void cpu_run_copy(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kcopy *a = &op->u.copy_rows;

	for (size_t i = begin; i < end; i++) {
		for (size_t g = 0; g < a->groups; g++) {
			float *out = a->out + i * a->ld_out + g * a->out_step;

			if (a->x)
				memcpy(out, a->x + i * a->ld_x + g * a->x_step, a->dim * sizeof(float));
			else
				memset(out, 0, a->dim * sizeof(float));
		}
	}
}

void cpu_copy(struct kdev *base, const struct kcopy *a, uint32_t n)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_copy, n, cpu_is_solo(n, (uint64_t)a->groups * a->dim));

	op->u.copy_rows = *a;
}

/* --- attention --- */

static void cpu_run_kv_store(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	for (size_t i = begin; i < end; i++) {
		const float *v = op->u.kv_store.v ? op->u.kv_store.v + i * op->u.kv_store.ld_v : NULL;

		t->dev->level->kv_store(&op->u.kv_store.kv, op->u.kv_store.k + i * op->u.kv_store.ld_k, v, op->u.kv_store.slots[i]);
	}
}

void cpu_kv_store(struct kdev *base, const struct kkv *kv, const float *k, uint32_t ld_k, const float *v, uint32_t ld_v,
		  const uint32_t *slots, uint32_t n)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_kv_store, n,
					    cpu_is_solo(n, (uint64_t)kv->kv_heads * (kv->k_dim + kv->v_dim)));

	CHECK(kkv_type_built(kv->type) && kv->latent == !v);
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
	uint32_t heads = op->u.attention.heads_item, tokens = op->u.attention.tokens_item;
	uint32_t n_heads_items = a->a.heads / heads;

	for (uint32_t i = begin; i < end; i++) {
		uint32_t token = i / n_heads_items * tokens, head = i % n_heads_items * heads;

		cpu_attention_item(t, a, token, min_u32(token + tokens, a->b.n_tokens), head, head + heads);
	}
}

void cpu_attention(struct kdev *base, const struct kattn *a, const struct kbatch *b)
{
	struct cpu_dev *d = cpu_dev_of(base);
	uint32_t kv_heads = a->kv->kv_heads, group = a->heads / kv_heads;
	uint64_t pairs = (uint64_t)b->n_tokens * kv_heads;
	/* Long prompts share the loads of K and V between tokens; few tokens are cut finer, so that all threads have
	 * work. */
	uint32_t tokens = (uint32_t)min_u64(CPU_ATTN_TOKENS, max_u64(1, pairs / (d->opts.n_threads * 8)));
	uint32_t heads_item = pairs < d->opts.n_threads ? 1 : group;
	uint64_t n_items = div_up(b->n_tokens, tokens) * (a->heads / heads_item);
	struct cpu_op *op;

	CHECK(a->heads % kv_heads == 0 && kkv_type_built(a->kv->type));
	cpu_dev_need(d, (size_t)CPU_ATTN_QUERIES * (align_up(a->kv->v_dim, 16) + 2 * KBLOCK_LEN + 16) * sizeof(float));
	op = cpu_stream_push(d, cpu_run_attention, n_items, false);
	op->u.attention.a = (struct cpu_attention){.a = *a, .kv = *a->kv, .b = *b};
	if (a->block_tables) op->u.attention.a.b.block_tables = a->block_tables;
	op->u.attention.tokens_item = tokens;
	op->u.attention.heads_item = heads_item;
}

/* --- sampling --- */

static void cpu_run_sample(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	uint32_t vocab = op->u.sample.vocab;

	for (uint32_t i = begin; i < end; i++) {
		const struct ksample *params = &op->u.sample.params[i];
		struct sampler s = {.logits = op->u.sample.logits + (size_t)i * vocab,
				    .vocab = vocab,
				    .params = params,
				    .extra = op->u.sample.extra,
				    .math = &t->dev->level->sampler,
				    .hash_logits = t->dev->opts.hash_logits,
				    .p = (float *)t->scratch};

		sampler_run(&s, &op->u.sample.out[i]);
	}
}

void cpu_sample(struct kdev *base, struct ksampled *out, const float *logits, uint32_t n, uint32_t vocab,
		const struct ksample *params, const uint32_t *extra)
{
	struct cpu_op *op;

	cpu_dev_need(cpu_dev_of(base), sampler_scratch_bytes(vocab));
	op = cpu_stream_push(cpu_dev_of(base), cpu_run_sample, n, false);
	op->u.sample.out = out;
	op->u.sample.logits = logits;
	op->u.sample.vocab = vocab;
	op->u.sample.params = params;
	op->u.sample.extra = extra;
}
