/* cpu_ops.c - matrices on the CPU: loading, rows of an embedding, products.
 *
 * An item of a product is CPU_UNIT_ROWS weight rows. Inputs of quantized products are rounded once: by all threads into the device's
 * workspace, or, when there are few, by each thread for itself. */
#include "kernels/cpu.h"
#include "kernels/pack.h"

#include <string.h>

#define CPU_ALONE_FLOATS 8192 /* activations that each thread quantizes for itself rather than wait for a shared copy */

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
	const struct cpu_inputs *in = &op->u.quantize;

	for (size_t i = begin; i < end; i++)
		t->dev->level->quantize(cpu_xq_at(t->dev->scratch, in->cols, i), in->x + i * in->ld_x, in->cols);
}

void cpu_inputs_plan(struct cpu_dev *d, struct cpu_inputs *in, uint32_t *chunk)
{
	size_t stride = cpu_xq_stride(in->cols);
	bool alone = (uint64_t)in->n * in->cols <= CPU_ALONE_FLOATS || d->opts.scratch_bytes < stride;

	*chunk = in->n;
	if (in->quantized) /* a batch beyond the limits that the workspace was made for goes in parts */
		*chunk = alone ? max_u32(1, CPU_ALONE_FLOATS / in->cols)
			       : (uint32_t)min_size(in->n, d->opts.scratch_bytes / stride);
	in->alone = in->quantized && alone;
	cpu_dev_need(d, stride * (in->alone ? min_u32(*chunk, in->n) : 0) + (size_t)CPU_TILE_ROWS * in->cols * sizeof(float));
}

struct cpu_inputs cpu_inputs_part(struct cpu_dev *d, const struct cpu_inputs *all, uint32_t row, uint32_t n)
{
	struct cpu_inputs in = *all;

	in.x += (size_t)row * in.ld_x;
	in.n = n;
	if (in.quantized && !in.alone) {
		struct cpu_op *op = cpu_stream_push(d, cpu_run_quantize, n, false);

		op->u.quantize = in;
	}
	return in;
}

struct cpu_product cpu_inputs_product(struct cpu_thread *t, const struct cpu_inputs *in)
{
	size_t own = in->alone ? cpu_xq_stride(in->cols) * in->n : 0;
	struct cpu_product p = {.x = in->x, .ld_x = in->ld_x, .n = in->n, .tile = (float *)(t->scratch + own)};

	if (!in->quantized) return p;
	p.xq = in->alone ? t->scratch : t->dev->scratch;
	if (in->alone && !t->prepared)
		for (uint32_t i = 0; i < in->n; i++)
			t->dev->level->quantize(cpu_xq_at(p.xq, in->cols, i), in->x + (size_t)i * in->ld_x, in->cols);
	t->prepared = true;
	return p;
}

static void cpu_run_matmul(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	struct cpu_product p = cpu_inputs_product(t, &op->u.matmul.in);
	void *xq = p.xq;
	struct kmat_out o;
	uint32_t first = 0;

	p.o = &o;
	for (uint32_t i = 0; i < op->u.matmul.n_outs && begin < end; first = op->u.matmul.item_end[i++]) {
		const struct kmat *w = &op->u.matmul.w[i];
		uint32_t stop = min_u32(end, op->u.matmul.item_end[i]);

		if (begin >= stop) continue;
		o = op->u.matmul.outs[i];
		o.w = w;
		p.xq = pack_is_quantized(w->type) ? xq : NULL;
		t->dev->level->product(&p, (begin - first) * CPU_UNIT_ROWS, min_u32((stop - first) * CPU_UNIT_ROWS, w->rows));
		begin = stop;
	}
}

static void cpu_matmul_rows(struct cpu_dev *d, const struct cpu_inputs *all, uint32_t row, uint32_t n, const struct kmat_out *outs,
			    uint32_t n_outs)
{
	struct cpu_inputs in = cpu_inputs_part(d, all, row, n);
	uint64_t n_items = 0;
	struct cpu_op *op;

	for (uint32_t i = 0; i < n_outs; i++) n_items += div_up(outs[i].w->rows, CPU_UNIT_ROWS);
	op = cpu_stream_push(d, cpu_run_matmul, n_items, false);
	op->u.matmul.in = in;
	op->u.matmul.n_outs = n_outs;
	n_items = 0;
	for (uint32_t i = 0; i < n_outs; i++) {
		op->u.matmul.w[i] = *outs[i].w;
		op->u.matmul.outs[i] = outs[i];
		op->u.matmul.outs[i].out += (size_t)row * outs[i].ld_out;
		n_items += div_up(outs[i].w->rows, CPU_UNIT_ROWS);
		op->u.matmul.item_end[i] = (uint32_t)n_items;
	}
}

void cpu_matmul(struct kdev *base, const float *x, uint32_t ld_x, uint32_t n, const struct kmat_out *outs, uint32_t n_outs)
{
	struct cpu_dev *d = cpu_dev_of(base);
	struct cpu_inputs in = {.x = x, .ld_x = ld_x, .n = n, .cols = outs[0].w->cols};
	uint32_t chunk;

	CHECK(n_outs >= 1 && n_outs <= 4);
	for (uint32_t i = 0; i < n_outs; i++) {
		CHECK(outs[i].w->cols == in.cols);
		in.quantized |= d->opts.act == KACT_Q8 && pack_is_quantized(outs[i].w->type);
	}
	if (n == 0) return;
	cpu_inputs_plan(d, &in, &chunk);
	for (uint32_t row = 0; row < n; row += chunk) cpu_matmul_rows(d, &in, row, min_u32(chunk, n - row), outs, n_outs);
}

static void cpu_run_matmul_each(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kmat *w = op->u.matmul_each.w;
	uint32_t units = (uint32_t)div_up(w->rows, CPU_UNIT_ROWS);

	for (uint32_t i = begin; i < end; i++) {
		uint32_t m = i / units, row = i % units * CPU_UNIT_ROWS;
		struct cpu_product p = cpu_inputs_product(t, &op->u.matmul_each.in);
		struct kmat_out o = {.w = &w[m],
				     .out = op->u.matmul_each.out + (size_t)m * op->u.matmul_each.out_step,
				     .ld_out = op->u.matmul_each.ld_out};

		p.x += (size_t)m * op->u.matmul_each.x_step;
		p.o = &o;
		t->dev->level->product(&p, row, min_u32(row + CPU_UNIT_ROWS, w->rows));
	}
}

void cpu_matmul_each(struct kdev *base, const float *x, uint32_t ld_x, uint32_t x_step, uint32_t n, const struct kmat *w,
		     uint32_t n_mats, float *out, uint32_t ld_out, uint32_t out_step)
{
	struct cpu_dev *d = cpu_dev_of(base);
	struct cpu_inputs in = {.x = x, .ld_x = ld_x, .n = n, .cols = w->cols};
	uint32_t unused;
	struct cpu_op *op;

	for (uint32_t i = 0; i < n_mats; i++) CHECK(w[i].rows == w->rows && w[i].cols == w->cols);
	if (n == 0) return;
	cpu_inputs_plan(d, &in, &unused);
	op = cpu_stream_push(d, cpu_run_matmul_each, n_mats * div_up(w->rows, CPU_UNIT_ROWS), false);
	op->u.matmul_each.in = in;
	op->u.matmul_each.w = w;
	op->u.matmul_each.out = out;
	op->u.matmul_each.x_step = x_step;
	op->u.matmul_each.ld_out = ld_out;
	op->u.matmul_each.out_step = out_step;
}
