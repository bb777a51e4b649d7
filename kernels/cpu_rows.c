/* cpu_rows.c - operations on the CPU that touch each row or element by itself: norms, gates, rotations, copies,
 * sampling.
 *
 * An item is a row, or a piece of CPU_ROWS_PIECE elements where rows do not matter. */
#include "kernels/cpu.h"

#include <string.h>

#define CPU_ROWS_PIECE 256

static void cpu_run_norm(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct knorm *a = &op->u.norm;

	for (size_t i = begin; i < end; i++)
		for (size_t g = 0; g < a->groups; g++)
			t->dev->level->norm(a->out + i * a->ld_out + g * a->dim, a->x + i * a->ld_x + g * a->dim, a->w,
					    a->dim, a->eps, a->accumulate);
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
	size_t from = (size_t)begin * CPU_ROWS_PIECE;
	size_t to = min_size((size_t)end * CPU_ROWS_PIECE, op->u.glu.len);

	t->dev->level->glu(op->u.glu.out + from, op->u.glu.gate + from, op->u.glu.up + from, to - from, op->u.glu.kind,
			   op->u.glu.limit);
}

void cpu_glu(struct kdev *base, float *out, const float *gate, const float *up, uint32_t n, uint32_t dim,
	     enum kglu kind, float limit)
{
	uint64_t len = (uint64_t)n * dim;
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_glu, div_up(len, CPU_ROWS_PIECE), false);

	op->u.glu.out = out;
	op->u.glu.gate = gate;
	op->u.glu.up = up;
	op->u.glu.len = len;
	op->u.glu.kind = kind;
	op->u.glu.limit = limit;
}

static void cpu_run_sigmoid(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct ksigmoid *a = &op->u.sigmoid;

	for (size_t i = begin; i < end; i++)
		t->dev->level->sigmoid(a->out + i * a->ld_out, a->x + i * a->ld_x, a->gate + i * a->ld_gate,
				       a->gate_dim, a->dim, a->accumulate);
}

void cpu_sigmoid(struct kdev *base, const struct ksigmoid *a, uint32_t n)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_sigmoid, n, cpu_is_solo(n, a->dim));

	CHECK(a->gate_dim == 1 || a->gate_dim == a->dim);
	op->u.sigmoid = *a;
}

static void cpu_run_softcap(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	size_t from = (size_t)begin * CPU_ROWS_PIECE;
	size_t to = min_size((size_t)end * CPU_ROWS_PIECE, op->u.softcap.len);

	t->dev->level->softcap(op->u.softcap.x + from, to - from, op->u.softcap.cap);
}

void cpu_softcap(struct kdev *base, float *x, uint32_t n, uint32_t dim, float cap)
{
	uint64_t len = (uint64_t)n * dim;
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_softcap, div_up(len, CPU_ROWS_PIECE), false);

	op->u.softcap.x = x;
	op->u.softcap.len = len;
	op->u.softcap.cap = cap;
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
