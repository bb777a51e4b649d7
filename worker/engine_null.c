/* engine_null.c - the null device: everything but the arithmetic, for capacity planning and tests (see engine_impl.h).
 *
 * Its tokens are those of a device that is never right: any of the vocabulary, stop ids included, as a hash of what the sequence ends
 * with says; so lengths follow from a request's own limits where it sets ignore_eos. A few in each ENGINE_NULL_EVERY are single bytes
 * in an order that makes what is hard for whoever turns tokens into text and text into JSON: characters in pieces, quotes, control
 * characters. A token depends on the last one and its position alone, so replays draw the same.
 *
 * A step may take a time (--null-step-us): it sleeps, as the host does while a device computes. */
#include "worker/engine_impl.h"

#include "common/clock.h"
#include "common/mem.h"

#include <xxhash.h>

#define ENGINE_NULL_EVERY 64 /* positions, of which the first have bytes of a text below */
#define ENGINE_NULL_BEAT_NS (100 * NS_PER_MS) /* of a step's sleep, between signs of life */
#define ENGINE_NULL_LATE_NS (200 * NS_PER_US) /* waking up takes less, and is no time of the device's */

/* All of ENGINE_NULL_LEN bytes. */
#define ENGINE_NULL_LEN 4
static const char engine_null_texts[][ENGINE_NULL_LEN + 1] = {"\xf0\x9f\x98\x80", "\xc3\xa9\"\\", "\xe4\xbd\xa0\n", "\t\x01\x7f/", "\"\xc2\xa0\r"};

void engine_null_init(struct engine *e, const struct tokbytes *t)
{
	e->byte_ids = mem_array(uint32_t, 256);
	for (int i = 0; i < 256; i++) e->byte_ids[i] = UINT32_MAX;
	for (uint32_t id = 0; id < t->n; id++) {
		size_t len;
		const char *s = tokbytes_of(t, id, &len);

		if (len == 1 && t->kinds[id] == TOKBYTES_PLAIN) e->byte_ids[(uint8_t)*s] = id;
	}
}

static bool engine_null_may(const struct ksample *p, const uint32_t *extra, uint32_t token)
{
	if (p->has_mask && !(extra[p->mask_at + token / 32] >> token % 32 & 1)) return false;
	for (uint32_t i = 0; i < p->n_banned; i++)
		if (extra[p->banned_at + i] == token) return false;
	return true;
}

/* What follows `last` at position n. */
static uint32_t engine_null_next(const struct engine *e, uint32_t last, uint32_t n)
{
	uint32_t vocab = e->spec.n_tokens, at = n % ENGINE_NULL_EVERY;

	if (e->byte_ids && at < ENGINE_NULL_LEN) {
		const char *text = engine_null_texts[n / ENGINE_NULL_EVERY % ARRAY_LEN(engine_null_texts)];
		uint32_t id = e->byte_ids[(uint8_t)text[at]];

		if (id < vocab) return id;
	}
	return (uint32_t)(XXH3_64bits_withSeed(&last, sizeof(last), n) % vocab);
}

/* The next token; where it may not be drawn, the next one in the vocabulary that may. */
static uint32_t engine_null_token(const struct engine *e, const struct batch_run *run, const struct ksample *p,
				  const uint32_t *extra, uint32_t row)
{
	uint32_t n = 0, vocab = e->spec.n_tokens, token;
	const uint32_t *tokens;

	if (p->is_given) return p->given;
	tokens = batch_tokens(e->batch, run->out_slots[row], &n);
	token = engine_null_next(e, tokens[n - 1], n);
	for (uint32_t tries = 0; tries < vocab; tries++, token = (token + 1) % vocab)
		if (engine_null_may(p, extra, token)) return token;
	return KTOKEN_NOT_ALLOWED;
}

/* The chosen token is the best one, and those behind it in the vocabulary come next. */
static void engine_null_sampled(const struct engine *e, const struct ksample *p, uint32_t token, struct ksampled *s)
{
	uint32_t vocab = e->spec.n_tokens;

	s->token = token;
	s->rank = s->n_top = 0;
	s->logprob = 0;
	s->logits_hash = 0;
	if (!p->want_logprob || token >= vocab) return;
	s->rank = 1;
	for (; s->n_top < p->n_top && s->n_top < vocab; s->n_top++) {
		s->top_ids[s->n_top] = (token + s->n_top) % vocab;
		s->top_logprobs[s->n_top] = -(float)s->n_top;
	}
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

/* A device that has the next step already goes on with it at once, so the time counts from the end of the last one then: when this thread
 * has not waited since, but woken up and worked, on the last step's result and on this step. That it does while the device computes. */
static void engine_null_sleep(struct engine *e, uint64_t from)
{
	uint64_t worked_ns;

	if (!e->opts.null_step_ns) return;
	worked_ns = clock_thread_ns() - e->null_thread_ns;
	if (clock_now_ns() - e->null_until < worked_ns + ENGINE_NULL_LATE_NS) from = e->null_until;
	e->null_until = from + e->opts.null_step_ns;
	for (uint64_t at = from + ENGINE_NULL_BEAT_NS; at < e->null_until; at += ENGINE_NULL_BEAT_NS) {
		clock_sleep_until(at);
		if (e->env.beat) e->env.beat(e->env.beat_ctx);
	}
	clock_sleep_until(e->null_until);
	e->null_thread_ns = clock_thread_ns();
}

void engine_null_run(struct engine *e, const struct batch_run *run, uint64_t from)
{
	const struct ksample *params = (const void *)(run->input + run->params);

	for (uint32_t i = 0; i < run->n_parts; i++) {
		const struct batch_part *p = &run->parts[i];

		for (uint32_t row = p->row; row < p->row + p->n; row++)
			engine_null_sampled(e, &params[row], engine_null_token(e, run, &params[row], run->extra + p->extra_at, row),
					    &e->sampled[row]);
	}
	for (uint32_t i = 0; i < run->n_pools; i++) engine_null_pool(e, run, &run->pools[i]);
	engine_null_sleep(e, from);
}
