/* rope.c - see rope.h. */
#include "model/rope.h"

#include "common/mem.h"

#include <math.h>

#define ROPE_PI 3.14159265358979323846

static double rope_llama3(const struct rope_params *p, double freq)
{
	double wavelength = 2 * ROPE_PI / freq, smooth;

	if (wavelength < p->original / p->high_freq) return freq;
	if (wavelength > p->original / p->low_freq) return freq / p->factor;
	smooth = (p->original / wavelength - p->low_freq) / (p->high_freq - p->low_freq);
	return (1 - smooth) * freq / p->factor + smooth * freq;
}

/* The pair (a fraction) that makes so many turns in the original context. */
static double rope_yarn_pair(const struct rope_params *p, double turns)
{
	return p->dims * log(p->original / (turns * 2 * ROPE_PI)) / (2 * log(p->base));
}

static double rope_yarn(const struct rope_params *p, double freq, uint32_t i)
{
	double low = rope_yarn_pair(p, p->beta_fast), high = rope_yarn_pair(p, p->beta_slow), ramp;

	if (p->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, p->dims - 1);
	if (low == high) high += 0.001;
	ramp = fmin(fmax((i - low) / (high - low), 0), 1);
	return freq / p->factor * ramp + freq * (1 - ramp);
}

static double rope_freq(const struct rope_params *p, uint32_t i)
{
	double freq = pow(p->base, -2.0 * i / p->dims);

	switch (p->kind) {
	case ROPE_DEFAULT:
		return freq;
	case ROPE_LINEAR:
		return freq / p->factor;
	case ROPE_LLAMA3:
		return rope_llama3(p, freq);
	case ROPE_YARN:
		return rope_yarn(p, freq, i);
	case ROPE_DIVIDED:
		return freq / p->divisors[i];
	}
	CHECK(!"a kind of rotation");
}

void rope_fill(struct spec_rope *out, const struct rope_params *p)
{
	uint32_t i;

	CHECK(p->dims >= 2 && p->dims % 2 == 0);
	*out = (struct spec_rope){.dims = p->dims, .neox = p->neox, .mscale = p->mscale, .base = p->base};
	out->freqs = mem_array(double, p->dims / 2);
	for (i = 0; i < p->dims / 2; i++) out->freqs[i] = rope_freq(p, i);
}

double rope_yarn_mscale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double rope_long_mscale(double factor, double original)
{
	return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
}
