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

#define SAMPLER_BINS            4096
#define SAMPLER_BIN_SCALE       128.0f /* bins a unit of scaled logit: the last bin begins at exp(-32) of the best */
#define SAMPLER_TEMPERATURE_MIN 1e-5f  /* below it vLLM takes the argmax too */

struct sampler_bins {
	double mass[SAMPLER_BINS];
	uint32_t count[SAMPLER_BINS];
};

struct sampler_member {
	float logit;
	uint32_t id;
};

/* The parts of s->p's workspace: terms; bins, later chunk sums; members of a bin; the row as mask, bias and penalties make it. */
static size_t sampler_terms_bytes(uint32_t vocab)
{
	return align_up((size_t)vocab * sizeof(float), 64);
}

static size_t sampler_bins_bytes(uint32_t vocab)
{
	return align_up(max_size(sizeof(struct sampler_bins), div_up(vocab, SAMPLER_CHUNK) * sizeof(double)), 64);
}

static struct sampler_bins *sampler_bins_of(const struct sampler *s)
{
	return (struct sampler_bins *)((char *)s->p + sampler_terms_bytes(s->vocab));
}

static struct sampler_member *sampler_members_of(const struct sampler *s)
{
	return (struct sampler_member *)((char *)sampler_bins_of(s) + sampler_bins_bytes(s->vocab));
}

static float *sampler_copy_of(const struct sampler *s)
{
	return (float *)(sampler_members_of(s) + s->vocab);
}

size_t sampler_scratch_bytes(uint32_t vocab)
{
	return 2 * sampler_terms_bytes(vocab) + sampler_bins_bytes(vocab) +
	       (size_t)vocab * sizeof(struct sampler_member);
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

/* Sums in chunks, which the draw skips whole; they take the place of the bins, which nobody needs any more. */
static double sampler_total(struct sampler *s)
{
	double *sums = (double *)sampler_bins_of(s), total = 0;

	s->math->chunk_sums(sums, s->p, s->vocab);
	for (uint32_t i = 0; i < div_up(s->vocab, SAMPLER_CHUNK); i++) total += sums[i];
	return total;
}

static uint32_t sampler_draw(const struct sampler *s, double target)
{
	const double *sums = (const double *)sampler_bins_of(s);
	uint32_t n_chunks = (uint32_t)div_up(s->vocab, SAMPLER_CHUNK), chunk = 0, last = 0, end;
	double at = 0;

	while (chunk + 1 < n_chunks && at + sums[chunk] <= target) at += sums[chunk++];
	end = min_u32((chunk + 1) * SAMPLER_CHUNK, s->vocab);
	for (uint32_t i = chunk * SAMPLER_CHUNK; i < end; i++) {
		if (s->p[i] == 0) continue;
		last = i + 1;
		at += s->p[i];
		if (at > target) break;
	}
	if (last) return last - 1;
	/* The target was rounded up to the total, and the last chunk has nothing: the last token that was kept. */
	for (last = s->vocab; last > 1 && s->p[last - 1] == 0;) last--;
	return last - 1;
}

static bool sampler_is_greedy(const struct ksample *params)
{
	return !(params->temperature >= SAMPLER_TEMPERATURE_MIN); /* a NaN too */
}

/* Not over a NaN or infinity: a bad row is found by them. */
static void sampler_ban(float *z)
{
	if (*z < INFINITY) *z = -INFINITY;
}

static void sampler_mask(const struct sampler *s, float *z)
{
	const uint32_t *mask = s->extra + s->params->mask_at;

	for (uint32_t from = 0; from < s->vocab; from += 32) {
		uint32_t word = mask[from / 32], n = min_u32(32, s->vocab - from);

		if (word == UINT32_MAX) continue;
		for (uint32_t i = 0; i < n; i++)
			if (!(word >> i & 1)) sampler_ban(&z[from + i]);
	}
}

static void sampler_bias(const struct sampler *s, float *z)
{
	const uint32_t *pair = s->extra + s->params->bias_at;

	for (uint32_t i = 0; i < s->params->n_bias; i++, pair += 2) {
		float value;

		memcpy(&value, &pair[1], sizeof(value));
		if (pair[0] < s->vocab) z[pair[0]] += value;
	}
}

static void sampler_penalties(const struct sampler *s, float *z)
{
	const struct ksample *params = s->params;
	const uint32_t *pair = s->extra + params->seen_at;
	float repetition = params->repetition > 0 ? params->repetition : 1;

	for (uint32_t i = 0; i < params->n_seen; i++, pair += 2) {
		uint32_t n_output = pair[1] & ~KSEEN_PROMPT;
		float x;

		if (pair[0] >= s->vocab) continue;
		x = z[pair[0]];
		x = x > 0 ? x / repetition : x * repetition;
		if (n_output) {
			x -= params->frequency * (float)n_output;
			x -= params->presence;
		}
		z[pair[0]] = x;
	}
}

/* The logits that the draw begins with: a copy where they differ from the row. */
static const float *sampler_edit(const struct sampler *s)
{
	const struct ksample *params = s->params;
	float *z = sampler_copy_of(s);

	if (!params->has_mask && !params->n_banned && !params->n_bias && !params->n_seen) return s->logits;
	memcpy(z, s->logits, s->vocab * sizeof(float));
	if (params->has_mask) sampler_mask(s, z);
	for (uint32_t i = 0; i < params->n_banned; i++)
		if (s->extra[params->banned_at + i] < s->vocab) sampler_ban(&z[s->extra[params->banned_at + i]]);
	if (params->n_bias) sampler_bias(s, z);
	if (params->n_seen) sampler_penalties(s, z);
	return z;
}

bool sampler_keep(struct sampler *s, double *total)
{
	const struct ksample *params = s->params;
	const float *z = sampler_edit(s);
	uint32_t best = 0;
	float inv_t;

	s->z = z;
	if (!s->math->best(z, s->vocab, &best)) return false;
	s->best = best;
	if (sampler_is_greedy(params)) {
		memset(s->p, 0, s->vocab * sizeof(float));
		s->p[best] = 1;
		*total = 1;
		return true;
	}
	inv_t = 1.0f / params->temperature;
	s->math->softmax_terms(s->p, z, s->vocab, z[best], inv_t);
	if (params->min_p > 0)
		for (uint32_t i = 0; i < s->vocab; i++)
			if (s->p[i] < params->min_p && i != best) s->p[i] = 0;
	if (params->top_k > 0 && params->top_k < s->vocab) sampler_top_k(s, z, z[best], inv_t);
	if (params->top_p < 1) sampler_top_p(s, z, z[best], inv_t);
	*total = sampler_total(s);
	return true;
}

/* log-softmax of the untouched logits for the chosen token and the n_top best. */
static void sampler_logprobs(struct sampler *s, struct ksampled *out)
{
	const float *x = s->logits;
	uint32_t n = 0, n_top = min_u32(min_u32(s->params->n_top, KTOP_MAX), s->vocab), best = 0;
	float top[KTOP_MAX];
	double lse;

	if (!s->math->best(x, s->vocab, &best)) return;
	lse = (double)x[best] + log(s->math->softmax_terms(s->p, x, s->vocab, x[best], 1));
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

/* In [0, 1), 53 bits. */
static double sampler_uniform(const struct ksample *params)
{
	const uint32_t key[2] = {(uint32_t)params->seed, (uint32_t)(params->seed >> 32)};
	const uint32_t counter[4] = {params->choice, params->position, 0, 0};
	uint32_t r[4];

	kphilox(key, counter, r);
	return (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
}

/* A row from which nothing can be drawn: is it the model's fault? */
static uint32_t sampler_failure(const struct sampler *s)
{
	uint32_t best;
	bool finite = false;

	if (!s->math->best(s->logits, s->vocab, &best)) return KTOKEN_NO_LOGITS;
	for (uint32_t i = 0; i < s->vocab; i++) finite |= !(s->z[i] == -INFINITY);
	return finite ? KTOKEN_NO_LOGITS : KTOKEN_NOT_ALLOWED;
}

/* The log-probability of a token that is known. */
static void sampler_score(struct sampler *s, struct ksampled *out)
{
	uint32_t best;

	out->token = s->params->given;
	if (out->token < s->vocab && s->math->best(s->logits, s->vocab, &best))
		sampler_logprobs(s, out);
	else
		out->token = KTOKEN_NO_LOGITS;
}

void sampler_run(struct sampler *s, struct ksampled *out)
{
	const struct ksample *params = s->params;
	double total;

	memset(out, 0, sizeof(*out));
	if (s->hash_logits) out->logits_hash = XXH3_64bits(s->logits, s->vocab * sizeof(float));
	if (params->is_given) {
		sampler_score(s, out);
		return;
	}
	if (!sampler_keep(s, &total)) {
		out->token = sampler_failure(s);
		return;
	}
	out->token = sampler_is_greedy(params) ? s->best : sampler_draw(s, sampler_uniform(params) * total);
	if (params->want_logprob || params->n_top) sampler_logprobs(s, out);
}
