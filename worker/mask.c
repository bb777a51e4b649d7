/* mask.c - see mask.h. Being built: everything is allowed. */
#include "worker/mask.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct masks {
	struct tokbytes *tokens;
};

struct mask_seq {
	uint32_t n_output;
};

struct masks *masks_new(struct tokbytes *t, size_t bytes_max)
{
	struct masks *m = mem_new(struct masks);

	m->tokens = t;
	return m;
}

void masks_free(struct masks *m)
{
	if (!m) return;
	tokbytes_free(m->tokens);
	free(m);
}

void masks_stats(const struct masks *m, struct mask_stats *out)
{
	memset(out, 0, sizeof(*out));
}

int masks_start(struct masks *m, const void *grammar, size_t len, const uint32_t *output, uint32_t n_output, struct mask_seq **out,
		struct errbuf *err)
{
	*out = mem_new(struct mask_seq);
	return ST_OK;
}

void masks_end(struct masks *m, struct mask_seq *s)
{
	free(s);
}

void mask_append(struct masks *m, struct mask_seq *s, uint32_t token)
{
	s->n_output++;
}

uint32_t mask_fill(struct masks *m, struct mask_seq *s, const uint32_t *stop_ids, uint32_t n_stop, uint32_t n_left, uint64_t *bits,
		   bool *may_go_on)
{
	memset(bits, 0xff, mask_words(m->tokens->n) * sizeof(*bits));
	*may_go_on = true;
	return m->tokens->n;
}
