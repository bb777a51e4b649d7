/* draw.c - see draw.h. */
#include "worker/draw.h"

#include "common/log.h"
#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- looking ---- */

static bool draw_ids_fit(const struct draw_env *env, struct view ids, uint32_t from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (col_u32(ids, from + i) >= env->vocab) return false;
	return true;
}

static const char *draw_look_numbers(const struct msg_step *m, uint32_t i)
{
	float temperature = col_f32(m->added_temperature, i), repetition = col_f32(m->added_repetition, i);
	float top_p = col_f32(m->added_top_p, i), min_p = col_f32(m->added_min_p, i);

	if (!(temperature >= 0) || !isfinite(temperature)) return "a temperature is not 0 or more";
	if (!(top_p > 0 && top_p <= 1)) return "a top_p is not in (0, 1]";
	if (!(min_p >= 0 && min_p <= 1)) return "a min_p is not in [0, 1]";
	if (!(repetition > 0) || !isfinite(repetition)) return "a repetition penalty is not above 0";
	if (!isfinite(col_f32(m->added_presence, i)) || !isfinite(col_f32(m->added_frequency, i)))
		return "a penalty is no number";
	if (col_u32(m->added_n_output_max, i) == 0) return "a sequence may have no output";
	return NULL;
}

/* n more elements of a joined column, of which *at are taken. */
static bool draw_take(uint32_t *at, uint32_t n, struct view column)
{
	if (n > column.n - *at) return false;
	*at += n;
	return true;
}

const char *draw_look(const struct draw_env *env, const struct msg_step *m, uint32_t i, struct draw_at *at)
{
	uint32_t n_stop = col_u32(m->added_n_stop, i), n_bias = col_u32(m->added_n_bias, i);
	uint32_t n_allowed = col_u32(m->added_n_allowed, i), kind = col_u32(m->added_kind, i);
	struct draw_at from = *at;

	if (kind > REQUEST_POOL_LAST) return "a request is of no known kind";
	if (n_stop > LIMIT_STOP_IDS) return "too many stop ids";
	if (n_bias > LIMIT_BIAS) return "too many biases";
	if (n_allowed > LIMIT_ALLOWED) return "too many allowed ids";
	if (col_u32(m->added_n_grammar, i) > LIMIT_GRAMMAR_BYTES) return "a grammar is too long";
	if (col_u32(m->added_n_logprobs, i) > 1 + KTOP_MAX || col_u32(m->added_n_prompt_logprobs, i) > 1 + KTOP_MAX)
		return "too many log-probabilities are wanted";
	if (kind != REQUEST_GENERATE && col_u32(m->added_n_prompt_logprobs, i)) return "a pooling sequence wants log-probabilities";
	if (!draw_take(&at->tokens, col_u32(m->added_n_tokens, i), m->added_tokens) ||
	    !draw_take(&at->stop, n_stop, m->added_stop_ids) || !draw_take(&at->bias, n_bias, m->added_bias_ids) ||
	    !draw_take(&at->allowed, n_allowed, m->added_allowed_ids) ||
	    !draw_take(&at->grammar, col_u32(m->added_n_grammar, i), m->added_grammars))
		return "a list has more elements than its column";
	if (!draw_ids_fit(env, m->added_tokens, from.tokens, col_u32(m->added_n_tokens, i)))
		return "an added token is not in the vocabulary";
	if (!draw_ids_fit(env, m->added_stop_ids, from.stop, n_stop)) return "a stop id is not in the vocabulary";
	if (!draw_ids_fit(env, m->added_bias_ids, from.bias, n_bias)) return "a bias is for no token of the vocabulary";
	if (!draw_ids_fit(env, m->added_allowed_ids, from.allowed, n_allowed)) return "an allowed id is not in the vocabulary";
	return kind == REQUEST_GENERATE ? draw_look_numbers(m, i) : NULL;
}

/* ---- the life of one ---- */

static void draw_init_lists(struct draw *d, const struct draw_env *env, const struct msg_step *m, uint32_t n_allowed,
			    const struct draw_at *at)
{
	d->stop_ids = mem_array(uint32_t, d->n_stop);
	for (uint32_t i = 0; i < d->n_stop; i++) d->stop_ids[i] = col_u32(m->added_stop_ids, at->stop + i);
	d->bias = mem_array(uint32_t, 2 * (size_t)d->n_bias);
	for (uint32_t i = 0; i < d->n_bias; i++) {
		d->bias[2 * i] = col_u32(m->added_bias_ids, at->bias + i);
		d->bias[2 * i + 1] = col_u32(m->added_bias_values, at->bias + i);
	}
	if (!n_allowed) return;
	d->allowed = mem_array(uint64_t, mask_words(env->vocab));
	for (uint32_t i = 0; i < n_allowed; i++) {
		uint32_t id = col_u32(m->added_allowed_ids, at->allowed + i);

		d->allowed[id / 64] |= 1ull << id % 64;
	}
}

/* Penalties of the output alone do not look at the prompt. */
static void draw_init_counts(struct draw *d, const uint32_t *tokens, uint32_t n_tokens)
{
	bool all = d->repetition != 1;

	d->counted = all || d->frequency != 0 || d->presence != 0;
	if (!d->counted) return;
	for (uint32_t i = all ? 0 : d->n_prompt; i < n_tokens; i++) counts_add(&d->counts, tokens[i], i < d->n_prompt);
}

static void draw_beat(const struct draw_env *env)
{
	if (env->beat) env->beat(env->beat_ctx);
}

static void draw_init_grammar(struct draw *d, const struct draw_env *env, const char *grammar, uint32_t len, const uint32_t *tokens,
			      uint32_t n_tokens)
{
	struct errbuf err = {{0}};
	int rc = ST_UNSUPPORTED;

	if (!len) return;
	if (env->masks)
		rc = masks_start(env->masks, grammar, len, tokens + d->n_prompt, n_tokens - d->n_prompt, &d->mask, &err);
	draw_beat(env);
	if (rc == ST_OK) return;
	d->mask = NULL;
	d->bad_grammar = true;
	log_warning("a grammar of %u bytes cannot be followed: %s", len, env->masks ? err.text : "not with this model's vocabulary");
}

void draw_init(struct draw *d, const struct draw_env *env, const struct msg_step *m, uint32_t i, const uint32_t *tokens,
	       struct draw_at *at)
{
	uint32_t n_tokens = col_u32(m->added_n_tokens, i), n_allowed = col_u32(m->added_n_allowed, i);
	uint32_t n_grammar = col_u32(m->added_n_grammar, i);

	*d = (struct draw){.temperature = col_f32(m->added_temperature, i),
			   .top_p = col_f32(m->added_top_p, i),
			   .min_p = col_f32(m->added_min_p, i),
			   .repetition = col_f32(m->added_repetition, i),
			   .frequency = col_f32(m->added_frequency, i),
			   .presence = col_f32(m->added_presence, i),
			   .top_k = col_u32(m->added_top_k, i),
			   .choice = col_u32(m->added_choice, i),
			   .n_logprobs = col_u32(m->added_n_logprobs, i),
			   .seed = col_u64(m->added_seed, i),
			   .n_prompt = col_u32(m->added_n_prompt, i),
			   .n_output_min = col_u32(m->added_n_output_min, i),
			   .n_output_max = col_u32(m->added_n_output_max, i),
			   .n_stop = col_u32(m->added_n_stop, i),
			   .n_bias = col_u32(m->added_n_bias, i)};
	draw_init_lists(d, env, m, n_allowed, at);
	if (col_u32(m->added_kind, i) == REQUEST_GENERATE) {
		draw_init_counts(d, tokens, n_tokens);
		draw_init_grammar(d, env, (const char *)m->added_grammars.data + at->grammar, n_grammar, tokens, n_tokens);
	}
	at->tokens += n_tokens;
	at->stop += d->n_stop;
	at->bias += d->n_bias;
	at->allowed += n_allowed;
	at->grammar += n_grammar;
}

void draw_release(struct draw *d, const struct draw_env *env)
{
	if (d->mask) masks_end(env->masks, d->mask);
	counts_release(&d->counts);
	free(d->stop_ids);
	free(d->bias);
	free(d->allowed);
	*d = (struct draw){0};
}

void draw_append(struct draw *d, const struct draw_env *env, uint32_t token)
{
	if (d->counted) counts_add(&d->counts, token, false);
	if (d->mask) mask_append(env->masks, d->mask, token);
}

/* ---- writing it out ---- */

size_t draw_mask_words(const struct draw_env *env)
{
	return 2 * mask_words(max_u32(env->vocab, env->mask_vocab));
}

size_t draw_words_max(const struct draw_env *env, uint32_t positions)
{
	return draw_mask_words(env) + align_up(LIMIT_STOP_IDS, 2) + 2 * ((size_t)LIMIT_BIAS + min_u32(env->vocab, positions));
}

size_t draw_words(const struct draw *d, const struct draw_env *env)
{
	return (d->mask || d->allowed ? draw_mask_words(env) : 0) + align_up(d->n_stop, 2) +
	       2 * ((size_t)d->n_bias + d->counts.n);
}

/* Appends n words; *at stays even. Returns where they begin. */
static uint32_t draw_put(uint32_t *extra, size_t *at, const uint32_t *words, size_t n)
{
	uint32_t from = (uint32_t)*at;

	if (n) memcpy(extra + from, words, n * sizeof(*words));
	*at += align_up(n, 2);
	return from;
}

/* What grammar and allowed ids leave. Returns whether more than the stop ids may be drawn. */
static bool draw_fill_mask(struct draw *d, const struct draw_env *env, uint32_t n_output, struct ksample *p, uint32_t *extra,
			   size_t *at)
{
	uint64_t *bits = (uint64_t *)(void *)(extra + *at);
	uint32_t n_left = d->n_output_max > n_output ? d->n_output_max - n_output : 1;
	bool may_go_on = true;

	if (!d->mask && !d->allowed) return true;
	p->has_mask = true;
	p->mask_at = (uint32_t)*at;
	if (d->mask) {
		memset(bits, 0, draw_mask_words(env) * sizeof(*extra));
		mask_fill(env->masks, d->mask, d->stop_ids, d->n_stop, n_left, bits, &may_go_on);
		draw_beat(env);
		for (uint32_t i = 0; d->allowed && i < mask_words(env->vocab); i++) bits[i] &= d->allowed[i];
	} else {
		memcpy(bits, d->allowed, mask_words(env->vocab) * sizeof(*bits));
	}
	*at += draw_mask_words(env);
	return may_go_on;
}

void draw_fill(struct draw *d, const struct draw_env *env, uint32_t n_tokens, struct ksample *p, uint32_t *extra, size_t *at)
{
	uint32_t n_output = n_tokens - d->n_prompt;
	bool may_go_on;

	*p = (struct ksample){.temperature = d->temperature,
			      .top_p = d->top_p,
			      .min_p = d->min_p,
			      .top_k = d->top_k,
			      .seed = d->seed,
			      .choice = d->choice,
			      .position = n_tokens,
			      .n_top = d->n_logprobs ? d->n_logprobs - 1 : 0,
			      .want_logprob = d->n_logprobs > 0,
			      .repetition = d->repetition,
			      .frequency = d->frequency,
			      .presence = d->presence,
			      .n_bias = d->n_bias,
			      .n_seen = d->counts.n};
	may_go_on = draw_fill_mask(d, env, n_output, p, extra, at);
	/* Where the grammar wants the end, min_tokens cannot have more. */
	if (n_output < d->n_output_min && may_go_on) p->n_banned = d->n_stop;
	p->banned_at = draw_put(extra, at, d->stop_ids, p->n_banned);
	p->bias_at = draw_put(extra, at, d->bias, 2 * (size_t)d->n_bias);
	p->seen_at = draw_put(extra, at, d->counts.pairs, 2 * (size_t)d->counts.n);
}
