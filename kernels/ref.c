/* ref.c - the plain level: every operation as its formula says, sums in double. The oracle of the other levels, and
 * what runs on a processor without AVX2. Nothing here is meant to be fast. */
#include "common/half.h"
#include "kernels/ref.h"

#include <math.h>
#include <string.h>

static void ref_quantize(struct cpu_xq out, const float *x, uint32_t cols)
{
	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++, x += CPU_QBLOCK) {
		uint32_t amax_bits = 0;
		float scale, inv;
		int32_t sum[2] = {0};

		/* As integers, so that a NaN is the largest and comes out in the scale. */
		for (uint32_t i = 0; i < CPU_QBLOCK; i++)
			amax_bits = max_u32(amax_bits, half_f32_bits(x[i]) & 0x7fffffff);
		scale = half_bits_f32(amax_bits) / 127.0f;
		inv = isfinite(scale) && scale >= CPU_SCALE_MIN ? 1.0f / scale : 0.0f;
		for (uint32_t i = 0; i < CPU_QBLOCK; i++) {
			float v = inv == 0.0f ? 0.0f : rintf(x[i] * inv);

			out.q[b * CPU_QBLOCK + i] = (int8_t)v;
			sum[i / 16] += (int32_t)v;
		}
		out.scale[b] = scale;
		memcpy(&out.half[2 * b], sum, sizeof(sum));
		out.isum[b] = sum[0] + sum[1];
		out.ssum[b] = scale * (float)out.isum[b];
	}
}

/* One row of weights times one row of rounded activations. */
static float ref_dot_quantized(const float *w, struct cpu_xq x, uint32_t cols)
{
	double sum = 0;

	for (uint32_t b = 0; b < cols / CPU_QBLOCK; b++) {
		double part = 0;

		for (uint32_t i = b * CPU_QBLOCK; i < (b + 1) * CPU_QBLOCK; i++) part += (double)w[i] * x.q[i];
		sum += part * x.scale[b];
	}
	return (float)sum;
}

static float ref_dot(const float *a, const float *b, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
	return (float)sum;
}

static void ref_product(const struct cpu_product *p, uint32_t row, uint32_t row_end)
{
	const struct kmat *w = p->o->w;
	size_t row_bytes = ggtype_row_bytes(w->type, w->cols);

	for (uint32_t r = row; r < row_end; r++) {
		int rc = kdequant_row(w->type, (const uint8_t *)w->data + r * row_bytes, p->tile, w->cols);

		CHECK(rc == ST_OK);
		for (uint32_t i = 0; i < p->n; i++) {
			float *out = p->o->out + (size_t)i * p->o->ld_out + r;
			float v = p->xq ? ref_dot_quantized(p->tile, cpu_xq_at(p->xq, w->cols, i), w->cols)
					: ref_dot(p->tile, p->x + (size_t)i * p->ld_x, w->cols);

			if (p->o->bias) v += p->o->bias[r];
			*out = p->o->accumulate ? *out + v : v;
		}
	}
}

static void ref_norm(float *out, const float *x, const float *w, uint32_t dim, float eps, bool accumulate)
{
	double sum = 0;
	float scale;

	for (uint32_t i = 0; i < dim; i++) sum += (double)x[i] * x[i];
	scale = (float)(1.0 / sqrt(sum / dim + (double)eps));
	for (uint32_t i = 0; i < dim; i++) {
		float v = x[i] * scale * (w ? w[i] : 1.0f);

		out[i] = accumulate ? out[i] + v : v;
	}
}

static void ref_glu(float *out, const float *gate, const float *up, size_t len, enum kglu kind, float limit)
{
	for (size_t i = 0; i < len; i++) {
		float g = gate[i], u = up[i];

		if (kind == KGLU_SILU) {
			out[i] = g / (1.0f + expf(-g)) * u;
		} else if (kind == KGLU_GELU_TANH) {
			out[i] = 0.5f * g * (1.0f + tanhf(0.79788456f * (g + 0.044715f * g * g * g))) * u;
		} else {
			if (g > limit) g = limit; /* a NaN stays */
			if (u > limit) u = limit;
			if (u < -limit) u = -limit;
			out[i] = g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
		}
	}
}

static void ref_sigmoid(float *out, const float *x, const float *gate, uint32_t gate_dim, uint32_t dim, bool accumulate)
{
	for (uint32_t i = 0; i < dim; i++) {
		float v = x[i] / (1.0f + expf(-gate[gate_dim == 1 ? 0 : i]));

		out[i] = accumulate ? out[i] + v : v;
	}
}

static void ref_softcap(float *x, size_t len, float cap)
{
	for (size_t i = 0; i < len; i++) x[i] = cap * tanhf(x[i] / cap);
}

static void ref_combine(float *x, const float *y, const float *weights, const uint32_t *places, uint32_t k, uint32_t dim)
{
	for (uint32_t i = 0; i < dim; i++) {
		double sum = 0;

		for (uint32_t j = 0; j < k; j++) sum += (double)weights[j] * y[(size_t)places[j] * dim + i];
		x[i] += (float)sum;
	}
}

static void ref_conv(float *out, const float *const *rows, const float *w, uint32_t ld_w, uint32_t width, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		double sum = 0;

		for (uint32_t j = 0; j < width; j++) sum += (double)w[(size_t)j * ld_w + i] * rows[j][i];
		out[i] = (float)(sum / (1.0 + exp(-sum)));
	}
}

static void ref_delta(const struct cpu_delta *a)
{
	for (uint32_t c = 0; c < a->cols; c++) {
		double seen = 0, out = 0;
		float d;

		for (uint32_t i = 0; i < a->k_dim; i++) seen += (double)a->k[i] * (a->decay * a->s[i * a->ld_s + c]);
		d = a->beta * (float)(a->v[c] - seen);
		for (uint32_t i = 0; i < a->k_dim; i++) {
			float *s = &a->s[i * a->ld_s + c];

			*s = a->decay * *s + a->k[i] * d;
			out += (double)a->q[i] * *s;
		}
		a->out[c] = (float)out;
	}
}

static void ref_rope(float *head, const float *cos_sin, uint32_t rot_dim, enum krope style)
{
	uint32_t half = rot_dim / 2;

	for (uint32_t i = 0; i < half; i++) {
		uint32_t first = style == KROPE_NEOX ? i : 2 * i;
		uint32_t second = style == KROPE_NEOX ? i + half : 2 * i + 1;
		float a = head[first], b = head[second], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];

		head[first] = a * c - b * s;
		head[second] = a * s + b * c;
	}
}

static bool ref_best(const float *x, uint32_t n, uint32_t *best)
{
	float max = -INFINITY;
	bool bad = false;

	for (uint32_t i = 0; i < n; i++) {
		bad |= !(x[i] < INFINITY);
		if (!(x[i] > max)) continue;
		max = x[i];
		*best = i;
	}
	return !bad && max > -INFINITY;
}

static void ref_chunk_sums(double *sums, const float *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (i % SAMPLER_CHUNK == 0) sums[i / SAMPLER_CHUNK] = 0;
		sums[i / SAMPLER_CHUNK] += p[i];
	}
}

static double ref_softmax_terms(float *p, const float *x, uint32_t n, float max, float inv_t)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		p[i] = expf((x[i] - max) * inv_t);
		sum += p[i];
	}
	return sum;
}

const struct cpu_level cpu_level_ref = {
	.ops = CPU_OPS("ref"),
	.layout = CPU_LAYOUT_ROWS,
	.quantize = ref_quantize,
	.product = ref_product,
	.norm = ref_norm,
	.glu = ref_glu,
	.sigmoid = ref_sigmoid,
	.softcap = ref_softcap,
	.combine = ref_combine,
	.conv = ref_conv,
	.delta = ref_delta,
	.rope = ref_rope,
	.kv_store = ref_kv_store,
	.attention = ref_attention,
	.sampler = {ref_best, ref_softmax_terms, ref_chunk_sums},
};
