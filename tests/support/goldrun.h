/* goldrun.h - runs an engine over recorded prompts of golden data and judges its logits.
 *
 * Forced: prompt and recorded output are one sequence whose log-probabilities are wanted, so all its logits come from
 * prefills. Free: it draws for itself, greedily, up to the first step where it may rightly differ. Both work with every
 * model, also with those that have recurrent states. Failures name the prompt and the step; goldrun_first_wrong() names
 * the layer. */
#ifndef SLUICE_GOLDRUN_H
#define SLUICE_GOLDRUN_H

#include "tests/support/stepper.h"
#include "worker/engine.h"

#include <jansson.h>

#define GOLDRUN_BATCH     512
#define GOLDRUN_CASES_MAX 64

/* A line of a golden.jsonl. */
struct goldcase {
	json_t *json;
	const char *id;
	uint32_t *prompt, *out;
	size_t n_prompt, n_out;
	double *margins; /* (n_out) of the recorded logits: best minus second best */
};

/* What a run is judged by. */
struct goldrun_limits {
	double mean, worst; /* absolute error of a recorded logit */
	double median;      /* over prompts, of the worst of each */
	double agree_min;   /* share of steps with the same argmax */
	double flip_margin; /* a differing argmax must have less */
};

struct goldrun {
	struct engine *e;
	struct stepper s;
	const struct goldcase *c; /* being run, */
	uint32_t step;            /* and the output step that the next row of logits belongs to */
	double worst_of[GOLDRUN_CASES_MAX];
	uint32_t n_cases;
	/* Over everything: */
	double err_sum, err_worst, flip_worst;
	uint32_t n_err, n_steps, n_agree;
};

/* The next case of a stream, or false at its end. */
bool goldcase_next(struct goldcase *c, FILE *f);
void goldcase_release(struct goldcase *c);

/* opts->model may be any checkpoint; room for one sequence of about 500 tokens. Fails the test when it cannot be
 * loaded. */
void goldrun_open(struct goldrun *r, const struct engine_opts *opts);
void goldrun_close(struct goldrun *r);

/* chunk: tokens of a prefill at most; 0: as many as fit. */
void goldrun_forced(struct goldrun *r, const struct goldcase *c, uint32_t chunk);
/* Fails at a drawn token that differs where the recorded margin is flip_margin or more. */
void goldrun_free(struct goldrun *r, const struct goldcase *c, uint32_t chunk, double flip_margin);

/* Prints the figures; fails when they are beyond the limits. */
void goldrun_judge(const struct goldrun *r, const struct goldrun_limits *l, const char *what);

/* Compares hidden states with those of an info.json. Gives the first layer that is wrong by more than `limit` of the
 * state's size, as words ("layer 2 of 4: rms 1.2, recorded 1.5"), or NULL; and the largest error. */
const char *goldrun_first_wrong(const struct engine_opts *opts, const json_t *info, double limit, double *worst);

#endif
