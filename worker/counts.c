/* counts.c - see counts.h. */
#include "worker/counts.h"

#include "common/mem.h"
#include "kernels/kernels.h"

#include <stdlib.h>

#define COUNTS_PLACES_MIN 64

void counts_release(struct counts *c)
{
	free(c->pairs);
	free(c->places);
	*c = (struct counts){0};
}

/* The place of a token, or the free one where it belongs. */
static uint32_t *counts_place(const struct counts *c, uint32_t token)
{
	uint32_t at = token * 0x9e3779b1u & (c->n_places - 1);

	while (c->places[at] && c->pairs[2 * (size_t)(c->places[at] - 1)] != token) at = (at + 1) & (c->n_places - 1);
	return &c->places[at];
}

static void counts_grow(struct counts *c)
{
	c->n_places = c->n_places ? 2 * c->n_places : COUNTS_PLACES_MIN;
	free(c->places);
	c->places = mem_array(uint32_t, c->n_places);
	for (uint32_t i = 0; i < c->n; i++) *counts_place(c, c->pairs[2 * (size_t)i]) = i + 1;
}

void counts_add(struct counts *c, uint32_t token, bool is_prompt)
{
	uint32_t *place, *pair;

	if (2 * (size_t)(c->n + 1) > c->n_places) counts_grow(c);
	place = counts_place(c, token);
	if (!*place) {
		mem_reserve(c->pairs, c->pairs_cap, 2 * (size_t)(c->n + 1));
		c->pairs[2 * (size_t)c->n] = token;
		c->pairs[2 * (size_t)c->n + 1] = 0;
		*place = ++c->n;
	}
	pair = &c->pairs[2 * (size_t)(*place - 1)];
	if (is_prompt) pair[1] |= KSEEN_PROMPT;
	else pair[1]++;
}
