/* bigstep.c - see bigstep.h. */
#include "worker/bigstep.h"

#include "common/mem.h"

#include <stdlib.h>

#define BIGSTEP_BLOCK 16 /* KBLOCK_LEN */

uint64_t bigstep_blocks(uint32_t n_seqs, uint32_t n_tokens, uint32_t n_groups)
{
	return (uint64_t)n_seqs * n_groups * div_up(n_tokens, BIGSTEP_BLOCK);
}

/* A column of n numbers from *at on: first, first + step, ... */
static struct view bigstep_column(uint32_t **at, uint32_t n, uint32_t first, uint32_t step)
{
	uint32_t *column = *at;

	for (uint32_t i = 0; i < n; i++) column[i] = first + i * step;
	*at += n;
	return view_of(column, n);
}

/* Each sequence's table of each group grows. */
static void bigstep_grow(struct msg_step *m, uint32_t **at, uint32_t n_seqs, uint32_t n_groups, uint32_t n_blocks)
{
	uint32_t n = n_seqs * n_groups, *slots = *at, *groups = slots + n;

	for (uint32_t i = 0; i < n; i++) {
		slots[i] = i / n_groups;
		groups[i] = i % n_groups;
	}
	*at += 2 * n;
	m->grown = view_of(slots, n);
	m->grown_group = view_of(groups, n);
	m->grown_n = bigstep_column(at, n, n_blocks, 0);
	m->grown_blocks = bigstep_column(at, n * n_blocks, 0, 1);
}

void bigstep_init(struct bigstep *b, uint32_t n_seqs, uint32_t n_tokens, uint32_t n_groups)
{
	uint32_t n_blocks = (uint32_t)div_up(n_tokens, BIGSTEP_BLOCK), n_grown = n_seqs * n_groups;
	struct msg_step *m = &b->step;
	struct view zero, one, len, slots;
	uint32_t *at;

	*b = (struct bigstep){
		.u32 = mem_array(uint32_t, (size_t)n_seqs * (4 + n_tokens) + (size_t)n_grown * (3 + n_blocks)),
		.zeros = mem_array(float, n_seqs),
		.ones = mem_array(float, n_seqs),
		.seeds = mem_array(uint64_t, n_seqs)};
	for (uint32_t i = 0; i < n_seqs; i++) b->ones[i] = 1;
	at = b->u32;
	zero = bigstep_column(&at, n_seqs, 0, 0);
	one = bigstep_column(&at, n_seqs, 1, 0);
	len = bigstep_column(&at, n_seqs, n_tokens, 0);
	slots = bigstep_column(&at, n_seqs, 0, 1);
	m->added = m->run = slots;
	m->added_tokens = bigstep_column(&at, n_seqs * n_tokens, 0, 0);
	m->added_n_tokens = m->added_n_prompt = m->run_n = len;
	m->added_n_output_max = m->added_n_prompt_known = m->run_sample = one;
	m->added_n_output_min = m->added_n_stop = m->added_top_k = m->added_choice = m->added_n_logprobs = zero;
	m->added_kind = m->added_n_bias = m->added_n_allowed = m->added_n_prompt_logprobs = m->added_n_grammar = zero;
	m->run_start = zero;
	m->added_temperature = m->added_min_p = m->added_presence = m->added_frequency = view_of(b->zeros, n_seqs);
	m->added_top_p = m->added_repetition = view_of(b->ones, n_seqs);
	m->added_seed = view_of(b->seeds, n_seqs);
	bigstep_grow(m, &at, n_seqs, n_groups, n_blocks);
}

void bigstep_release(struct bigstep *b)
{
	free(b->u32);
	free(b->zeros);
	free(b->ones);
	free(b->seeds);
}
