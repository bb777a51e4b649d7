/* cpu_moe.c - mixtures of experts on the CPU: who gets which row, the experts' products, and the sum of their results.
 *
 * Routing chooses row by row (items), then one thread sorts the choices. How many rows an expert has is known only
 * while the stream runs, so an item of the products is CPU_UNIT_ROWS weight rows of one expert, and one whose expert
 * has no rows costs nothing. Experts are the fastest index of the items: each thread's share then has a part of every
 * expert, however the rows are spread. */
#include "kernels/cpu.h"
#include "kernels/pack.h"

#include <math.h>
#include <string.h>

#define CPU_ROUTE_SUM_MIN 1e-20f /* transformers' modeling_deepseek_v3.py: the sum of chosen sigmoids may be 0 */

/* A NaN is the largest, so that it is chosen and seen in the result. */
static bool cpu_route_is_better(float a, float b)
{
	return a != a ? b == b : a > b;
}

/* The best of n that is not taken, the first on a tie; takes it. */
static uint32_t cpu_route_take(const float *score, bool *taken, uint32_t n)
{
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < n; i++)
		if (!taken[i] && (best == UINT32_MAX || cpu_route_is_better(score[i], score[best]))) best = i;
	CHECK(best != UINT32_MAX);
	taken[best] = true;
	return best;
}

/* What a group of experts is worth: see struct kroute. */
static float cpu_route_group(const struct kroute *r, const float *choice, uint32_t len)
{
	float best = -INFINITY, second = -INFINITY;

	for (uint32_t i = 0; i < len; i++) {
		if (i == 0 || cpu_route_is_better(choice[i], best)) {
			second = best;
			best = choice[i];
		} else if (cpu_route_is_better(choice[i], second)) {
			second = choice[i];
		}
	}
	return r->correction && len > 1 ? best + second : best;
}

/* Marks the experts of all groups but the groups_used best ones. */
static void cpu_route_close_groups(const struct kroute *r, const float *choice, float *rank, bool *used, bool *taken)
{
	uint32_t len = r->n_experts / r->n_groups;

	for (uint32_t g = 0; g < r->n_groups; g++) {
		rank[g] = cpu_route_group(r, choice + (size_t)g * len, len);
		used[g] = false;
	}
	for (uint32_t i = 0; i < r->groups_used; i++) cpu_route_take(rank, used, r->n_groups);
	for (uint32_t e = 0; e < r->n_experts; e++) taken[e] = !used[e / len];
}

/* exp(x - the largest), and 1 / their sum. */
static float cpu_route_exps(float *x, uint32_t n)
{
	float max = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < n; i++) max = fmaxf(max, x[i]);
	for (uint32_t i = 0; i < n; i++) {
		x[i] = expf(x[i] - max);
		sum += x[i];
	}
	return 1.0f / sum;
}

static void cpu_route_scores(const struct kroute *r, const float *logits, float *score)
{
	memcpy(score, logits, r->n_experts * sizeof(*score));
	if (r->kind == KROUTE_SOFTMAX) {
		float inv = cpu_route_exps(score, r->n_experts);

		for (uint32_t e = 0; e < r->n_experts; e++) score[e] *= inv;
	} else if (r->kind == KROUTE_SIGMOID) {
		for (uint32_t e = 0; e < r->n_experts; e++) score[e] = 1.0f / (1.0f + expf(-score[e]));
	}
}

static void cpu_route_weigh(const struct kroute *r, float *weights)
{
	float inv = 1, sum = 0;

	if (r->kind == KROUTE_SOFTMAX_TOPK) inv = cpu_route_exps(weights, r->k);
	for (uint32_t j = 0; j < r->k; j++) {
		weights[j] *= inv;
		sum += weights[j];
	}
	if (r->norm) {
		inv = 1.0f / (r->kind == KROUTE_SIGMOID ? sum + CPU_ROUTE_SUM_MIN : sum);
		for (uint32_t j = 0; j < r->k; j++) weights[j] *= inv;
	}
	for (uint32_t j = 0; j < r->k; j++) weights[j] *= r->scale;
}

/* Weights of rows [begin, end); `places` gets the experts. */
static void cpu_run_route(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kroute *r = &op->u.route;
	float *score = (float *)t->scratch, *choice = score + r->n_experts, *rank = choice + r->n_experts;
	bool *taken = (bool *)(rank + r->n_experts), *used = taken + r->n_experts;

	for (size_t i = begin; i < end; i++) {
		cpu_route_scores(r, r->logits + i * r->n_experts, score);
		for (uint32_t e = 0; e < r->n_experts; e++)
			choice[e] = r->correction ? score[e] + r->correction[e] : score[e];
		memset(taken, 0, r->n_experts * sizeof(*taken));
		if (r->n_groups > 1) cpu_route_close_groups(r, choice, rank, used, taken);
		for (uint32_t j = 0; j < r->k; j++) {
			uint32_t e = cpu_route_take(choice, taken, r->n_experts);

			r->places[i * r->k + j] = e;
			r->weights[i * r->k + j] = score[e];
		}
		cpu_route_weigh(r, r->weights + i * r->k);
	}
}

/* Sorts all choices by expert: counts, then each choice's place in the order of the rows. */
static void cpu_run_route_sort(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kroute *r = &op->u.route;
	uint32_t *starts = r->starts, at = 0;

	memset(starts, 0, ((size_t)r->n_experts + 1) * sizeof(*starts));
	for (size_t i = 0; i < (size_t)r->n * r->k; i++) starts[r->places[i]]++;
	for (uint32_t e = 0; e <= r->n_experts; e++) {
		uint32_t count = starts[e];

		starts[e] = at;
		at += count;
	}
	for (uint32_t i = 0; i < r->n; i++) {
		for (uint32_t j = 0; j < r->k; j++) {
			uint32_t *place = &r->places[(size_t)i * r->k + j];

			*place = starts[*place]++;
			r->tokens[*place] = i;
		}
	}
	/* each start has moved to its end, which is the next one's start */
	memmove(starts + 1, starts, (size_t)r->n_experts * sizeof(*starts));
	starts[0] = 0;
}

void cpu_route(struct kdev *base, const struct kroute *r)
{
	struct cpu_dev *d = cpu_dev_of(base);
	uint32_t open = r->n_groups > 1 ? r->n_experts / r->n_groups * r->groups_used : r->n_experts;

	CHECK(r->k >= 1 && r->k <= open && (uint64_t)r->n * r->k < UINT32_MAX);
	CHECK(r->n_groups <= 1 || (r->n_experts % r->n_groups == 0 && r->groups_used <= r->n_groups));
	cpu_dev_need(d, (size_t)r->n_experts * (3 * sizeof(float) + 2 * sizeof(bool)));
	cpu_stream_push(d, cpu_run_route, r->n, cpu_is_solo(r->n, (uint64_t)r->n_experts * 8))->u.route = *r;
	cpu_stream_push(d, cpu_run_route_sort, 1, true)->u.route = *r;
}

/* Units [from, to) of 16 weight rows of expert e, for output o. */
static void cpu_experts_units(struct cpu_thread *t, const struct cpu_op *op, const struct kexpert_out *o, uint32_t e,
			      uint32_t from, uint32_t to)
{
	const struct cpu_inputs *in = &op->u.experts.in;
	uint32_t row = op->u.experts.row;
	uint32_t begin = max_u32(op->u.experts.starts[e], row), end = min_u32(op->u.experts.starts[e + 1], row + in->n);
	const struct kmat *w = &o->w[e];
	struct kmat_out out = {.w = w, .ld_out = o->ld_out, .bias = o->bias ? o->bias + (size_t)e * w->rows : NULL};
	struct cpu_product p;

	if (begin >= end || from >= to) return;
	p = cpu_inputs_product(t, in);
	out.out = o->out + (size_t)begin * o->ld_out;
	p.o = &out;
	p.n = end - begin;
	p.x += (size_t)(begin - row) * in->ld_x;
	p.xq = p.xq && pack_is_quantized(w->type) ? (char *)p.xq + (begin - row) * cpu_xq_stride(in->cols) : NULL;
	t->dev->level->product(&p, from * CPU_UNIT_ROWS, min_u32(to * CPU_UNIT_ROWS, w->rows));
}

static void cpu_run_experts(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	uint32_t n = op->u.experts.n_experts, first = 0;

	for (uint32_t i = 0; i < op->u.experts.n_outs && begin < end; first = op->u.experts.item_end[i++]) {
		uint32_t stop = min_u32(end, op->u.experts.item_end[i]);

		if (begin >= stop) continue;
		/* item = unit * n + expert: of expert e those units u with begin <= u * n + e < stop */
		for (uint32_t e = 0; e < n; e++) {
			uint32_t from, to;

			if (op->u.experts.starts[e] == op->u.experts.starts[e + 1]) continue; /* most of many experts */
			from = (begin - first + n - 1 - e) / n;
			to = (stop - first + n - 1 - e) / n;
			cpu_experts_units(t, op, &op->u.experts.outs[i], e, from, to);
		}
		begin = stop;
	}
}

static void cpu_experts_rows(struct cpu_dev *d, const struct cpu_inputs *all, uint32_t row, uint32_t n,
			     const uint32_t *starts, uint32_t n_experts, const struct kexpert_out *outs,
			     uint32_t n_outs)
{
	struct cpu_inputs in = cpu_inputs_part(d, all, row, n);
	uint64_t n_items = 0;
	struct cpu_op *op;

	for (uint32_t i = 0; i < n_outs; i++) n_items += div_up(outs[i].w->rows, CPU_UNIT_ROWS) * n_experts;
	op = cpu_stream_push(d, cpu_run_experts, n_items, false);
	op->u.experts.in = in;
	op->u.experts.row = row;
	op->u.experts.n_experts = n_experts;
	op->u.experts.n_outs = n_outs;
	op->u.experts.starts = starts;
	n_items = 0;
	for (uint32_t i = 0; i < n_outs; i++) {
		op->u.experts.outs[i] = outs[i];
		n_items += div_up(outs[i].w->rows, CPU_UNIT_ROWS) * n_experts;
		op->u.experts.item_end[i] = (uint32_t)n_items;
	}
}

void cpu_matmul_experts(struct kdev *base, const float *x, uint32_t ld_x, uint32_t n_rows, const uint32_t *starts,
			uint32_t n_experts, const struct kexpert_out *outs, uint32_t n_outs)
{
	struct cpu_dev *d = cpu_dev_of(base);
	struct cpu_inputs in = {.x = x, .ld_x = ld_x, .n = n_rows, .cols = outs[0].w->cols};
	uint32_t chunk;

	CHECK(n_outs >= 1 && n_outs <= 4);
	for (uint32_t i = 0; i < n_outs; i++) {
		for (uint32_t e = 0; e < n_experts; e++) {
			CHECK(outs[i].w[e].cols == in.cols && outs[i].w[e].rows == outs[i].w->rows);
			in.quantized |= d->opts.act == KACT_Q8 && pack_is_quantized(outs[i].w[e].type);
		}
	}
	if (n_rows == 0) return;
	cpu_inputs_plan(d, &in, &chunk);
	for (uint32_t row = 0; row < n_rows; row += chunk)
		cpu_experts_rows(d, &in, row, min_u32(chunk, n_rows - row), starts, n_experts, outs, n_outs);
}

static void cpu_run_combine(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	size_t k = op->u.combine.k, dim = op->u.combine.dim;

	for (size_t i = begin; i < end; i++)
		t->dev->level->combine(op->u.combine.x + i * dim, op->u.combine.y, op->u.combine.weights + i * k,
				       op->u.combine.places + i * k, (uint32_t)k, (uint32_t)dim);
}

void cpu_combine(struct kdev *base, float *x, const float *y, const float *weights, const uint32_t *places, uint32_t n,
		 uint32_t k, uint32_t dim)
{
	struct cpu_op *op = cpu_stream_push(cpu_dev_of(base), cpu_run_combine, n, cpu_is_solo(n, (uint64_t)k * dim));

	op->u.combine.x = x;
	op->u.combine.y = y;
	op->u.combine.weights = weights;
	op->u.combine.places = places;
	op->u.combine.k = k;
	op->u.combine.dim = dim;
}
