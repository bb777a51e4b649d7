/* sampler.c - see sampler.h. The order of steps is vLLM's; draws come from Philox, so a replay repeats them.
 *
 * top_k and top_p need a sorted row only around their cut. Tokens are counted into bins by their distance from the best
 * logit; whole bins stay or go, and only the bin that holds the cut is sorted. */
#include "kernels/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SAMPLER_BINS 4096
#define SAMPLER_BIN_SCALE 128.0f    /* bins a unit of scaled logit: the last bin begins at exp(-32) of the best */
#define SAMPLER_TEMPERATURE_MIN 1e-5f /* below it vLLM takes the argmax too */
#define SAMPLER_CHUNK 64

struct sampler_bins {
	double mass[SAMPLER_BINS];
	uint32_t count[SAMPLER_BINS];
};

struct sampler_member {
	float logit;
	uint32_t id;
};

/* The parts of s->p's workspace behind the terms. */
static struct sampler_bins *sampler_bins_of(const struct sampler *s)
{
	return (struct sampler_bins *)((char *)s->p + align_up((size_t)s->vocab * sizeof(float), 64));
}

static struct sampler_member *sampler_members_of(const struct sampler *s)
{
	return (struct sampler_member *)(sampler_bins_of(s) + 1);
}

size_t sampler_scratch_bytes(uint32_t vocab)
{
	return align_up((size_t)vocab * sizeof(float), 64) + sizeof(struct sampler_bins) +
	       align_up((size_t)vocab * sizeof(struct sampler_member), 64) + align_up((size_t)vocab * sizeof(float), 64);
}

/* Largest value, lowest index on a tie. False when there is a NaN or +infinity, or nothing finite. */
static bool sampler_best(const float *z, uint32_t n, uint32_t *best)
{
	float max = -INFINITY;
	bool bad = false;

	for (uint32_t i = 0; i < n; i++) {
		bad |= !(z[i] < INFINITY);
		if (!(z[i] > max)) continue;
		max = z[i];
		*best = i;
	}
	return !bad && max > -INFINITY;
}

static uint32_t sampler_bin(float z, float max, float inv_t)
{
	float at = (max - z) * inv_t * SAMPLER_BIN_SCALE;

	return at < SAMPLER_BINS - 1 ? (uint32_t)at : SAMPLER_BINS - 1;
}

static void sampler_fill_bins(struct sampler *s, const float *z, float max, float inv_t)
{
	struct sampler_bins *bins = sampler_bins_of(s);

	memset(bins, 0, sizeof(*bins));
	for (uint32_t i = 0; i < s->vocab; i++) {
		uint32_t b;

		if (s->p[i] == 0) continue;
		b = sampler_bin(z[i], max, inv_t);
		bins->mass[b] += s->p[i];
		bins->count[b]++;
	}
}

/* Best first; on a tie the lower id counts as better. */
static int sampler_by_logit(const void *a, const void *b)
{
	const struct sampler_member *x = a, *y = b;

	if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* Removes what lies in bins below `bin` and gives the members of `bin`, sorted best first. */
static uint32_t sampler_cut_at_bin(struct sampler *s, const float *z, float max, float inv_t, uint32_t bin)
{
	struct sampler_member *members = sampler_members_of(s);
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->vocab; i++) {
		uint32_t b;

		if (s->p[i] == 0) continue;
		b = sampler_bin(z[i], max, inv_t);
		if (b > bin)
			s->p[i] = 0;
		else if (b == bin)
			members[n++] = (struct sampler_member){z[i], i};
	}
	qsort(members, n, sizeof(*members), sampler_by_logit);
	return n;
}

static void sampler_top_k(struct sampler *s, const float *z, float max, float inv_t)
{
	struct sampler_bins *bins = sampler_bins_of(s);
	struct sampler_member *members = sampler_members_of(s);
	uint32_t left = s->params->top_k, bin = 0, n;

	sampler_fill_bins(s, z, max, inv_t);
	while (bin < SAMPLER_BINS && bins->count[bin] < left) left -= bins->count[bin++];
	if (bin == SAMPLER_BINS) return; /* fewer than k are there */
	n = sampler_cut_at_bin(s, z, max, inv_t, bin);
	for (uint32_t i = left; i < n; i++)
		if (members[i].logit < members[left - 1].logit) s->p[members[i].id] = 0;
}

static void sampler_top_p(struct sampler *s, const float *z, float max, float inv_t)
{
	struct sampler_bins *bins = sampler_bins_of(s);
	struct sampler_member *members = sampler_members_of(s);
	double total = 0, below = 0, limit;
	uint32_t bin = SAMPLER_BINS - 1, n;

	sampler_fill_bins(s, z, max, inv_t);
	for (uint32_t b = SAMPLER_BINS; b-- > 0;) total += bins->mass[b];
	limit = (1.0 - (double)s->params->top_p) * total;
	while (bin > 0 && below + bins->mass[bin] <= limit) below += bins->mass[bin--];
	n = sampler_cut_at_bin(s, z, max, inv_t, bin);
	while (n > 0) {
		uint32_t id = members[--n].id;

		below += s->p[id];
		if (below > limit || (n == 0 && bin == 0)) break; /* the best always stays */
		s->p[id] = 0;
	}
}

static double sampler_sum(const float *p, uint32_t n)
{
	double sum[4] = {0};
	uint32_t i = 0;

	for (; i + 4 <= n; i += 4)
		for (uint32_t j = 0; j < 4; j++) sum[j] += p[i + j];
	for (; i < n; i++) sum[0] += p[i];
	return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Sums in pieces, so that the draw can skip whole pieces: both must add in the same order. */
static double sampler_total(const float *p, uint32_t n)
{
	double total = 0;

	for (uint32_t i = 0; i < n; i += SAMPLER_CHUNK) total += sampler_sum(p + i, min_u32(SAMPLER_CHUNK, n - i));
	return total;
}

static uint32_t sampler_draw(const float *p, uint32_t n, double target)
{
	uint32_t last = 0, i = 0;
	double at = 0;

	for (; i < n; i += SAMPLER_CHUNK) {
		double chunk = sampler_sum(p + i, min_u32(SAMPLER_CHUNK, n - i));

		if (at + chunk > target) break;
		at += chunk;
	}
	if (i >= n) i = (n - 1) / SAMPLER_CHUNK * SAMPLER_CHUNK; /* the target was rounded up to the total */
	for (; i < n; i++) {
		if (p[i] == 0) continue;
		last = i;
		at += p[i];
		if (at > target) return i;
	}
	if (p[last] != 0) return last;
	for (i = n; i-- > 0;)
		if (p[i] != 0) return i;
	return 0;
}

bool sampler_keep(struct sampler *s, double *total)
{
	const struct ksample *params = s->params;
	const float *z = s->logits;
	uint32_t best = 0;
	float inv_t;

	if (params->n_banned) {
		float *copy = (float *)((char *)sampler_members_of(s) +
					align_up((size_t)s->vocab * sizeof(struct sampler_member), 64));

		memcpy(copy, z, s->vocab * sizeof(float));
		for (uint32_t i = 0; i < params->n_banned; i++)
			if (s->banned[i] < s->vocab && copy[s->banned[i]] < INFINITY) copy[s->banned[i]] = -INFINITY;
		z = copy;
	}
	if (!sampler_best(z, s->vocab, &best)) return false;
	if (!(params->temperature >= SAMPLER_TEMPERATURE_MIN)) {
		memset(s->p, 0, s->vocab * sizeof(float));
		s->p[best] = 1;
		*total = 1;
		return true;
	}
	inv_t = 1.0f / params->temperature;
	s->softmax_terms(s->p, z, s->vocab, z[best], inv_t);
	if (params->min_p > 0)
		for (uint32_t i = 0; i < s->vocab; i++)
			if (s->p[i] < params->min_p && i != best) s->p[i] = 0;
	if (params->top_k > 0 && params->top_k < s->vocab) sampler_top_k(s, z, z[best], inv_t);
	if (params->top_p < 1) sampler_top_p(s, z, z[best], inv_t);
	*total = sampler_total(s->p, s->vocab);
	return true;
}

/* log-softmax of the untouched logits for the chosen token and the n_top best. */
static void sampler_logprobs(struct sampler *s, struct ksampled *out)
{
	const float *x = s->logits;
	uint32_t n = 0, n_top = min_u32(min_u32(s->params->n_top, KTOP_MAX), s->vocab), best = 0;
	float top[KTOP_MAX];
	double lse;

	if (!sampler_best(x, s->vocab, &best)) return;
	lse = (double)x[best] + log(s->softmax_terms(s->p, x, s->vocab, x[best], 1));
	out->logprob = (float)((double)x[out->token] - lse);
	out->rank = 1;
	for (uint32_t i = 0; i < s->vocab; i++) {
		uint32_t at;

		out->rank += x[i] > x[out->token];
		if (n_top == 0 || (n == n_top && !(x[i] > top[n - 1]))) continue;
		if (n < n_top) n++;
		for (at = n - 1; at > 0 && x[i] > top[at - 1]; at--) {
			top[at] = top[at - 1];
			out->top_ids[at] = out->top_ids[at - 1];
		}
		top[at] = x[i];
		out->top_ids[at] = i;
	}
	out->n_top = n;
	for (uint32_t i = 0; i < n; i++) out->top_logprobs[i] = (float)((double)top[i] - lse);
}

void sampler_run(struct sampler *s, struct ksampled *out)
{
	const struct ksample *params = s->params;
	double total, u;

	memset(out, 0, sizeof(*out));
	if (s->hash_logits) out->logits_hash = XXH3_64bits(s->logits, s->vocab * sizeof(float));
	if (!sampler_keep(s, &total)) {
		out->token = UINT32_MAX;
		return;
	}
	{
		const uint32_t key[2] = {(uint32_t)params->seed, (uint32_t)(params->seed >> 32)};
		const uint32_t counter[4] = {params->choice, params->position, 0, 0};
		uint32_t r[4];

		kphilox(key, counter, r);
		u = (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
	}
	out->token = sampler_draw(s->p, s->vocab, u * total);
	if (params->want_logprob || params->n_top) sampler_logprobs(s, out);
}
