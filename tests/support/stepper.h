/* stepper.h - builds step messages for tests of the worker: what changed and what to run, column by column. */
#ifndef SLUICE_STEPPER_H
#define SLUICE_STEPPER_H

#include "proto/messages.h"

struct stepper_params {
	float temperature, top_p, min_p;
	uint32_t top_k, choice, n_logprobs, n_output_min, n_stop;
	const uint32_t *stop_ids;
	uint64_t seed;
	uint32_t kind, n_output_max; /* 0: a million */
	float repetition, presence, frequency; /* 0: off */
	uint32_t n_bias, n_allowed;
	const uint32_t *bias_ids, *allowed_ids;
	const float *bias_values;
	uint32_t n_prompt_logprobs, n_prompt_known;
	const void *grammar;
	uint32_t n_grammar;
};

/* Greedy, nothing else. */
struct stepper_params stepper_greedy(void);

struct stepper_column {
	void *data;
	uint32_t n, cap; /* elements of `size` bytes */
	uint32_t size;
};

enum { STEPPER_COLUMNS = 37 };

struct stepper {
	uint64_t number;
	uint32_t n_groups, group_blocks; /* KV groups (0: one), and how far apart their parts of the pool lie; set by the test */
	struct stepper_column cols[STEPPER_COLUMNS];
	struct msg_step m;
};

void stepper_init(struct stepper *s);
void stepper_release(struct stepper *s);
/* Begins the next step: empty, number + 1. */
void stepper_next(struct stepper *s);

void stepper_remove(struct stepper *s, uint32_t slot);
void stepper_add(struct stepper *s, uint32_t slot, const uint32_t *tokens, uint32_t n, uint32_t n_prompt,
		 const struct stepper_params *p);
/* The tables of all groups: group g takes block + g * group_blocks. */
void stepper_grow(struct stepper *s, uint32_t slot, const uint32_t *blocks, uint32_t n);
/* One group's alone. */
void stepper_grow_group(struct stepper *s, uint32_t slot, uint32_t group, const uint32_t *blocks, uint32_t n);
/* Blocks first, first + 1, ... */
void stepper_grow_range(struct stepper *s, uint32_t slot, uint32_t first, uint32_t n);
void stepper_run(struct stepper *s, uint32_t slot, uint32_t start, uint32_t n, bool sample);

/* The message; views of the stepper, valid until it changes. */
const struct msg_step *stepper_message(struct stepper *s);

#endif
