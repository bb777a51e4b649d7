/* stepper.c - see stepper.h. The columns are listed once, in STEPPER_LIST. */
#include "tests/support/stepper.h"

#include "common/mem.h"

#define STEPPER_LIST(C)                                                                                               \
	C(removed, 4) C(added, 4) C(added_n_tokens, 4) C(added_tokens, 4) C(added_n_prompt, 4) C(added_n_output_min, 4)  \
	C(added_n_stop, 4) C(added_stop_ids, 4) C(added_temperature, 4) C(added_top_p, 4) C(added_top_k, 4)              \
	C(added_min_p, 4) C(added_seed, 8) C(added_choice, 4) C(added_n_logprobs, 4) C(added_kind, 4)           \
	C(added_n_output_max, 4) C(added_repetition, 4) C(added_presence, 4) C(added_frequency, 4) C(added_n_bias, 4)    \
	C(added_bias_ids, 4) C(added_bias_values, 4) C(added_n_allowed, 4) C(added_allowed_ids, 4)                       \
	C(added_n_prompt_logprobs, 4) C(added_n_prompt_known, 4) C(added_n_grammar, 4) C(added_grammars, 1) C(grown, 4) C(grown_n, 4) C(grown_group, 4) \
	C(grown_blocks, 4) C(run, 4) C(run_start, 4) C(run_n, 4) C(run_sample, 4)

#define STEPPER_AS_ENUM(name, size) STEPPER_##name,
enum { STEPPER_LIST(STEPPER_AS_ENUM) STEPPER_COUNT };
_Static_assert((int)STEPPER_COUNT == (int)STEPPER_COLUMNS, "a column is missing");

struct stepper_params stepper_greedy(void)
{
	return (struct stepper_params){.top_p = 1};
}

void stepper_init(struct stepper *s)
{
	*s = (struct stepper){0};
#define STEPPER_AS_INIT(name, bytes) s->cols[STEPPER_##name].size = bytes;
	STEPPER_LIST(STEPPER_AS_INIT)
	s->number = 1;
}

void stepper_release(struct stepper *s)
{
	for (int i = 0; i < STEPPER_COLUMNS; i++) free(s->cols[i].data);
}

void stepper_next(struct stepper *s)
{
	for (int i = 0; i < STEPPER_COLUMNS; i++) s->cols[i].n = 0;
	s->number++;
}

static void stepper_put(struct stepper *s, int col, const void *data, uint32_t n)
{
	struct stepper_column *c = &s->cols[col];

	if (c->n + n > c->cap) {
		c->cap = 2 * (c->n + n) + 64;
		c->data = mem_realloc(c->data, c->cap, c->size);
	}
	if (n) memcpy((char *)c->data + (size_t)c->n * c->size, data, (size_t)n * c->size);
	c->n += n;
}

static void stepper_u32(struct stepper *s, int col, uint32_t v)
{
	stepper_put(s, col, &v, 1);
}

static void stepper_f32(struct stepper *s, int col, float v)
{
	stepper_put(s, col, &v, 1);
}

void stepper_remove(struct stepper *s, uint32_t slot)
{
	stepper_u32(s, STEPPER_removed, slot);
}

void stepper_add(struct stepper *s, uint32_t slot, const uint32_t *tokens, uint32_t n, uint32_t n_prompt,
		 const struct stepper_params *p)
{
	stepper_u32(s, STEPPER_added, slot);
	stepper_u32(s, STEPPER_added_n_tokens, n);
	stepper_put(s, STEPPER_added_tokens, tokens, n);
	stepper_u32(s, STEPPER_added_n_prompt, n_prompt);
	stepper_u32(s, STEPPER_added_n_output_min, p->n_output_min);
	stepper_u32(s, STEPPER_added_n_stop, p->n_stop);
	stepper_put(s, STEPPER_added_stop_ids, p->stop_ids, p->n_stop);
	stepper_put(s, STEPPER_added_temperature, &p->temperature, 1);
	stepper_put(s, STEPPER_added_top_p, &p->top_p, 1);
	stepper_u32(s, STEPPER_added_top_k, p->top_k);
	stepper_put(s, STEPPER_added_min_p, &p->min_p, 1);
	stepper_put(s, STEPPER_added_seed, &p->seed, 1);
	stepper_u32(s, STEPPER_added_choice, p->choice);
	stepper_u32(s, STEPPER_added_n_logprobs, p->n_logprobs);
	stepper_u32(s, STEPPER_added_kind, p->kind);
	stepper_u32(s, STEPPER_added_n_output_max, p->n_output_max ? p->n_output_max : 1000000);
	stepper_f32(s, STEPPER_added_repetition, p->repetition > 0 ? p->repetition : 1);
	stepper_f32(s, STEPPER_added_presence, p->presence);
	stepper_f32(s, STEPPER_added_frequency, p->frequency);
	stepper_u32(s, STEPPER_added_n_bias, p->n_bias);
	stepper_put(s, STEPPER_added_bias_ids, p->bias_ids, p->n_bias);
	stepper_put(s, STEPPER_added_bias_values, p->bias_values, p->n_bias);
	stepper_u32(s, STEPPER_added_n_allowed, p->n_allowed);
	stepper_put(s, STEPPER_added_allowed_ids, p->allowed_ids, p->n_allowed);
	stepper_u32(s, STEPPER_added_n_prompt_logprobs, p->n_prompt_logprobs);
	stepper_u32(s, STEPPER_added_n_prompt_known, p->n_prompt_known);
	stepper_u32(s, STEPPER_added_n_grammar, p->n_grammar);
	stepper_put(s, STEPPER_added_grammars, p->grammar, p->n_grammar);
}

void stepper_grow_group(struct stepper *s, uint32_t slot, uint32_t group, const uint32_t *blocks, uint32_t n)
{
	stepper_u32(s, STEPPER_grown, slot);
	stepper_u32(s, STEPPER_grown_n, n);
	stepper_u32(s, STEPPER_grown_group, group);
	stepper_put(s, STEPPER_grown_blocks, blocks, n);
}

void stepper_grow(struct stepper *s, uint32_t slot, const uint32_t *blocks, uint32_t n)
{
	uint32_t *own = mem_array(uint32_t, n);

	for (uint32_t g = 0; g < max_u32(1, s->n_groups); g++) {
		for (uint32_t i = 0; i < n; i++) own[i] = blocks[i] + g * s->group_blocks;
		stepper_grow_group(s, slot, g, own, n);
	}
	free(own);
}

void stepper_grow_range(struct stepper *s, uint32_t slot, uint32_t first, uint32_t n)
{
	uint32_t *blocks = mem_array(uint32_t, n);

	for (uint32_t i = 0; i < n; i++) blocks[i] = first + i;
	stepper_grow(s, slot, blocks, n);
	free(blocks);
}

void stepper_run(struct stepper *s, uint32_t slot, uint32_t start, uint32_t n, bool sample)
{
	stepper_u32(s, STEPPER_run, slot);
	stepper_u32(s, STEPPER_run_start, start);
	stepper_u32(s, STEPPER_run_n, n);
	stepper_u32(s, STEPPER_run_sample, sample);
}

const struct msg_step *stepper_message(struct stepper *s)
{
	s->m = (struct msg_step){.number = s->number};
#define STEPPER_AS_VIEW(name, bytes) s->m.name = view_of(s->cols[STEPPER_##name].data, s->cols[STEPPER_##name].n);
	STEPPER_LIST(STEPPER_AS_VIEW)
	return &s->m;
}
