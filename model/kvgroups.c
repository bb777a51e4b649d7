/* kvgroups.c - see kvgroups.h. */
#include "model/kvgroups.h"

/* A block of one layer can be the block of another one later only if their heads are alike: then all layers see
 * everything and are one group, in which no place is shared. */
static bool kvgroups_may_share(const struct spec *s)
{
	const struct spec_layer *first = NULL;

	for (uint32_t i = 0; i < s->n_layers; i++) {
		const struct spec_layer *y = &s->layers[i];

		if (SPEC_IS_DELTA(y)) continue;
		if (!first) first = y;
		if (y->mixer != first->mixer || y->kv_heads != first->kv_heads || y->k_dim != first->k_dim ||
		    y->v_dim != first->v_dim || y->kv_lora != first->kv_lora || y->nope_dim != first->nope_dim)
			return false;
	}
	return true;
}

static uint32_t kvgroups_window_of(const struct spec_layer *y, uint32_t model_len_max, bool may_share)
{
	return may_share && y->window < model_len_max ? y->window : 0;
}

/* Layers a group has: as many as the rarer kind, unless the other one is hardly more frequent (then padding the rarer
 * one wastes less than a second group), and so many that the groups are not too many. */
static uint32_t kvgroups_size(uint32_t n_full, uint32_t n_windowed)
{
	uint32_t few = min_u32(n_full, n_windowed), many = max_u32(n_full, n_windowed), size;

	if (few == 0) return many;
	size = many * 4 < few * 5 ? many : few;
	while (div_up(n_full, size) + div_up(n_windowed, size) > KVGROUPS_MAX) size++;
	return size;
}

void kvgroups_make(struct kvgroups *out, const struct spec *s, uint32_t model_len_max)
{
	bool may_share = kvgroups_may_share(s);
	uint32_t n_full = 0, n_windowed = 0;

	*out = (struct kvgroups){0};
	for (uint32_t i = 0; i < s->n_layers; i++) {
		const struct spec_layer *y = &s->layers[i];
		uint32_t window = kvgroups_window_of(y, model_len_max, may_share);

		if (SPEC_IS_DELTA(y)) continue;
		n_full += window == 0;
		n_windowed += window > 0;
		out->window = max_u32(out->window, window);
	}
	out->size = kvgroups_size(n_full, n_windowed);
	if (out->size == 0) out->size = 1;
	out->n_full = (uint32_t)div_up(n_full, out->size);
	out->n_windowed = (uint32_t)div_up(n_windowed, out->size);
	n_full = n_windowed = 0;
	for (uint32_t i = 0; i < s->n_layers; i++) {
		const struct spec_layer *y = &s->layers[i];
		bool windowed = kvgroups_window_of(y, model_len_max, may_share) > 0;
		uint32_t ix = windowed ? n_windowed : n_full;

		out->group[i] = KVGROUPS_NONE;
		if (SPEC_IS_DELTA(y)) continue;
		out->group[i] = (uint8_t)((windowed ? out->n_full : 0) + ix / out->size);
		out->place[i] = (uint16_t)(ix % out->size);
		if (windowed)
			n_windowed++;
		else
			n_full++;
	}
}

uint64_t kvgroups_seq_blocks(const struct kvgroups *g, uint64_t len, uint64_t tokens_ahead)
{
	uint64_t all = div_up(len, 16), windowed = all;

	if (g->n_windowed) windowed = min_u64(all, kvgroups_window_blocks(g->window, tokens_ahead));
	return g->n_full * all + g->n_windowed * windowed;
}
