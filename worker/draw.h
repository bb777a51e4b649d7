/* draw.h - what one sequence's tokens are drawn by: its sampling parameters, and what they need of its past.
 *
 * Made from the added_ columns of a step, fed with each drawn token, and written out for the sampler as a struct ksample with its
 * lists. What it holds follows from parameters and tokens alone, so a replay draws the same. */
#ifndef SLUICE_DRAW_H
#define SLUICE_DRAW_H

#include "kernels/kernels.h"
#include "proto/messages.h"
#include "worker/counts.h"
#include "worker/mask.h"

/* What all sequences share. */
struct draw_env {
	uint32_t vocab;
	struct masks *masks; /* NULL: no grammar can be followed */
	uint32_t mask_vocab; /* tokens that masks knows */
	void (*beat)(void *ctx); /* called after each mask, which may take milliseconds; NULL: never */
	void *beat_ctx;
};

/* Where a row's lists begin in the joined columns of a step. */
struct draw_at {
	uint32_t tokens, stop, bias, allowed, grammar;
};

struct draw {
	float temperature, top_p, min_p, repetition, frequency, presence;
	uint32_t top_k, choice, n_logprobs;
	uint64_t seed;
	uint32_t n_prompt, n_output_min, n_output_max;
	uint32_t *stop_ids;
	uint32_t n_stop;
	uint32_t *bias; /* (n_bias, 2): id, f32 bits */
	uint32_t n_bias;
	uint64_t *allowed; /* a bit a token; NULL: all */
	bool counted;      /* penalties want `counts` */
	struct counts counts;
	struct mask_seq *mask; /* NULL: no grammar */
	bool bad_grammar;
};

/* Words (of 32 bits) of a row's mask, and of the largest row's lists with its mask. */
size_t draw_mask_words(const struct draw_env *env);
size_t draw_words_max(const struct draw_env *env, uint32_t positions);

/* Is row i of the step possible? NULL, or what is wrong. *at moves on to the next row. */
const char *draw_look(const struct draw_env *env, const struct msg_step *m, uint32_t i, struct draw_at *at);

/* From row i of a step that was looked at; tokens are the row's. *at moves on. */
void draw_init(struct draw *d, const struct draw_env *env, const struct msg_step *m, uint32_t i, const uint32_t *tokens,
	       struct draw_at *at);
void draw_release(struct draw *d, const struct draw_env *env);
/* The token that was drawn. */
void draw_append(struct draw *d, const struct draw_env *env, uint32_t token);

/* Words that draw_fill() needs at most now. */
size_t draw_words(const struct draw *d, const struct draw_env *env);
/* Parameters of the draw at position n_tokens. Lists go to extra from word *at on, which moves on; *at is even. */
void draw_fill(struct draw *d, const struct draw_env *env, uint32_t n_tokens, struct ksample *p, uint32_t *extra, size_t *at);

#endif
