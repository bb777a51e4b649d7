/* cpu_recurrent.c - what layers with a state do on the CPU: the short convolution and the gated delta rule.
 *
 * Tokens of a sequence go one after the other whatever their number in the batch, so a state's bits do not depend on
 * how a prompt was cut. Channels of the convolution, and columns of a head's state, know nothing of each other: an item
 * has some of one sequence. */
#include "kernels/cpu.h"

#include <math.h>
#include <string.h>

#define CPU_CONV_CHANNELS 256   /* an item's; its window and weights take 16 KiB */
#define CPU_DELTA_EPS     1e-6f /* transformers' l2norm() in modeling_qwen3_next.py */

/* Tokens of sequence s; false when it has none. *is_new: they begin at position 0. */
static bool cpu_recurrent_tokens(const struct kbatch *b, uint32_t s, uint32_t *begin, uint32_t *end, bool *is_new)
{
	*begin = b->seq_starts[s];
	*end = b->seq_starts[s + 1];
	if (*begin >= *end) return false;
	*is_new = b->positions[*begin] == 0;
	return true;
}

/* (n, width) to (width, n). */
static void cpu_conv_turn(float *out, const float *w, uint32_t width, uint32_t n)
{
	if (width == 4) { /* what models have; known, it takes a third of the time */
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = 0; j < 4; j++) out[j * CPU_CONV_CHANNELS + i] = w[4 * i + j];
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < width; j++) out[j * CPU_CONV_CHANNELS + i] = w[i * width + j];
}

/* Channels [c, c + n) of one sequence's tokens. `window` keeps the last `width` inputs, oldest first: in rows that take
 * turns. */
static void cpu_conv_item(const struct cpu_level *level, const struct kconv *a, const struct kbatch *b, uint32_t s,
			  uint32_t c, uint32_t n)
{
	float window[KCONV_WIDTH_MAX][CPU_CONV_CHANNELS], w[KCONV_WIDTH_MAX * CPU_CONV_CHANNELS];
	const float *rows[KCONV_WIDTH_MAX];
	float *state = a->state + b->states[s] * a->state_step + c;
	uint32_t begin, end, width = a->width, oldest = 0;
	bool is_new;

	if (!cpu_recurrent_tokens(b, s, &begin, &end, &is_new)) return;
	cpu_conv_turn(w, a->w + (size_t)c * width, width, n);
	if (is_new) memset(window, 0, sizeof(window));
	for (uint32_t j = 0; j + 1 < width && !is_new; j++)
		memcpy(window[j + 1], state + (size_t)j * a->channels, n * sizeof(float));
	for (uint32_t t = begin; t < end; t++) {
		memcpy(window[oldest], a->x + (size_t)t * a->ld_x + c, n * sizeof(float));
		oldest = (oldest + 1) % width;
		for (uint32_t j = 0; j < width; j++) rows[j] = window[(oldest + j) % width];
		level->conv(a->out + (size_t)t * a->ld_out + c, rows, w, CPU_CONV_CHANNELS, width, n);
	}
	for (uint32_t j = 0; j + 1 < width; j++)
		memcpy(state + (size_t)j * a->channels, window[(oldest + 1 + j) % width], n * sizeof(float));
}

static void cpu_run_conv(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kconv *a = &op->u.conv.a;
	uint32_t pieces = (uint32_t)div_up(a->channels, CPU_CONV_CHANNELS);

	for (uint32_t i = begin; i < end; i++) {
		uint32_t c = i % pieces * CPU_CONV_CHANNELS;

		cpu_conv_item(t->dev->level, a, &op->u.conv.b, i / pieces, c,
			      min_u32(CPU_CONV_CHANNELS, a->channels - c));
	}
}

void cpu_conv(struct kdev *base, const struct kconv *a, const struct kbatch *b)
{
	struct cpu_op *op =
		cpu_stream_push(cpu_dev_of(base), cpu_run_conv, b->n_seqs * div_up(a->channels, CPU_CONV_CHANNELS),
				cpu_is_solo(b->n_tokens, a->channels));

	CHECK(a->width >= 1 && a->width <= KCONV_WIDTH_MAX);
	op->u.conv.a = *a;
	op->u.conv.b = *b;
}

/* out (dim) = scale * x / sqrt(sum of x^2 + eps), by way of the level's norm, whose mean is the sum / dim. */
static void cpu_delta_norm(const struct cpu_level *level, float *out, const float *x, uint32_t dim, float scale)
{
	level->norm(out, x, NULL, dim, CPU_DELTA_EPS / (float)dim, false);
	scale /= sqrtf((float)dim);
	for (uint32_t i = 0; i < dim; i++) out[i] *= scale;
}

static float cpu_delta_softplus(float x)
{
	return x > 20 ? x : log1pf(expf(x)); /* beyond, e^-x is less than half a unit in the last place */
}

/* Columns [col, col + n) of value head h for all tokens of sequence s. qk: room for 2 * k_dim floats. */
static void cpu_delta_item(const struct cpu_level *level, const struct kdelta *a, const struct kbatch *b, uint32_t s,
			   uint32_t h, uint32_t col, uint32_t n, float *qk)
{
	uint32_t k_head = a->tiled ? h % a->k_heads : h / (a->v_heads / a->k_heads);
	uint32_t begin, end, k_all = a->k_heads * a->k_dim;
	struct cpu_delta d = {.ld_s = a->v_dim, .k_dim = a->k_dim, .cols = n, .q = qk, .k = qk + a->k_dim};
	bool is_new;

	if (!cpu_recurrent_tokens(b, s, &begin, &end, &is_new)) return;
	d.s = a->state + b->states[s] * a->state_step + (size_t)h * a->k_dim * a->v_dim + col;
	for (uint32_t i = 0; i < a->k_dim && is_new; i++) memset(d.s + i * d.ld_s, 0, n * sizeof(float));
	for (size_t t = begin; t < end; t++) {
		const float *row = a->qkv + t * a->ld_qkv, *q = row + (size_t)k_head * a->k_dim;

		cpu_delta_norm(level, qk, q, a->k_dim, 1.0f / sqrtf((float)a->k_dim));
		cpu_delta_norm(level, qk + a->k_dim, q + k_all, a->k_dim, 1);
		d.v = row + 2 * (size_t)k_all + (size_t)h * a->v_dim + col;
		d.decay = expf(a->neg_a[h] * cpu_delta_softplus(a->a[t * a->ld_a + h] + a->dt_bias[h]));
		d.beta = 1.0f / (1.0f + expf(-a->b[t * a->ld_b + h]));
		d.out = a->out + t * a->ld_out + (size_t)h * a->v_dim + col;
		level->delta(&d);
	}
}

static void cpu_run_delta(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kdelta *a = &op->u.delta.a;
	uint32_t pieces = (uint32_t)div_up(a->v_dim, CPU_DELTA_COLS), seq_items = a->v_heads * pieces;

	for (uint32_t i = begin; i < end; i++) {
		uint32_t h = i % seq_items / pieces, col = i % pieces * CPU_DELTA_COLS;

		cpu_delta_item(t->dev->level, a, &op->u.delta.b, i / seq_items, h, col,
			       min_u32(CPU_DELTA_COLS, a->v_dim - col), (float *)t->scratch);
	}
}

void cpu_delta(struct kdev *base, const struct kdelta *a, const struct kbatch *b)
{
	struct cpu_dev *d = cpu_dev_of(base);
	struct cpu_op *op;

	CHECK(a->k_heads >= 1 && a->v_heads % a->k_heads == 0 && a->k_dim >= 1);
	cpu_dev_need(d, 2 * (size_t)a->k_dim * sizeof(float));
	op = cpu_stream_push(d, cpu_run_delta, (uint64_t)b->n_seqs * a->v_heads * div_up(a->v_dim, CPU_DELTA_COLS),
			     false);
	op->u.delta.a = *a;
	op->u.delta.b = *b;
}
