/* engine_null.c - the null device's model: everything but the arithmetic, for capacity planning and tests (see
 * engine_impl.h). */
#include "worker/engine_impl.h"

#include <xxhash.h>

static bool engine_null_may(const struct ksample *p, const uint32_t *extra, uint32_t token)
{
	if (p->has_mask && !(extra[p->mask_at + token / 32] >> token % 32 & 1)) return false;
	for (uint32_t i = 0; i < p->n_banned; i++)
		if (extra[p->banned_at + i] == token) return false;
	return true;
}

/* The next token follows from the last one and its position; where it may not be drawn, the next one that may. */
static uint32_t engine_null_token(const struct engine *e, const struct batch_run *run, const struct ksample *p,
				  const uint32_t *extra, uint32_t row)
{
	uint32_t n = 0, vocab = e->spec.n_tokens, token;
	const uint32_t *tokens;

	if (p->is_given) return p->given;
	tokens = batch_tokens(e->batch, run->out_slots[row], &n);
	token = (uint32_t)(XXH3_64bits_withSeed(&tokens[n - 1], sizeof(*tokens), n) % vocab);
	for (uint32_t tries = 0; tries < vocab; tries++, token = (token + 1) % vocab)
		if (engine_null_may(p, extra, token)) return token;
	return KTOKEN_NOT_ALLOWED;
}

/* The chosen token is the best one, and those behind it in the vocabulary come next. */
static struct ksampled engine_null_sampled(const struct engine *e, const struct ksample *p, uint32_t token)
{
	struct ksampled s = {.token = token};
	uint32_t vocab = e->spec.n_tokens;

	if (!p->want_logprob || token >= vocab) return s;
	s.rank = 1;
	for (; s.n_top < p->n_top && s.n_top < vocab; s.n_top++) {
		s.top_ids[s.n_top] = (token + s.n_top) % vocab;
		s.top_logprobs[s.n_top] = -(float)s.n_top;
	}
	return s;
}

/* Its hidden states are numbers made of token and position. */
static void engine_null_pool(struct engine *e, const struct batch_run *run, const struct batch_pool *p)
{
	const uint32_t *ids = (const void *)(run->input + run->token_ids),
		       *rows = (const void *)(run->input + run->out_rows);
	const uint32_t *positions = (const void *)(run->input + run->positions);

	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t row = rows[p->row + i];
		uint64_t h = XXH3_64bits_withSeed(&ids[row], sizeof(*ids), positions[row]);

		for (uint32_t k = 0; k < e->spec.dim; k++)
			e->states[k] = (float)((h >> k % 48 & 0xffff) + k) / 65536 - 0.5f;
		batch_pool_add(e->batch, p, e->states);
	}
}

void engine_null_run(struct engine *e, const struct batch_run *run)
{
	const struct ksample *params = (const void *)(run->input + run->params);

	for (uint32_t i = 0; i < run->n_parts; i++) {
		const struct batch_part *p = &run->parts[i];

		for (uint32_t row = p->row; row < p->row + p->n; row++)
			e->sampled[row] = engine_null_sampled(
				e, &params[row],
				engine_null_token(e, run, &params[row], run->extra + p->extra_at, row));
	}
	for (uint32_t i = 0; i < run->n_pools; i++) engine_null_pool(e, run, &run->pools[i]);
}
