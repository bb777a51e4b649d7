/* answer.c - see answer.h: what an answer holds, whatever its shape. */
#include "frontend/answer.h"

#include "common/mem.h"
#include "frontend/answer_lp.h"
#include "frontend/jsonout.h"

#include <string.h>

#define ANSWER_PART_MAX (64 * MIB) /* a wall; gen.c ends a request long before */

static void choice_init(struct answer_choice *c, uint32_t index)
{
	size_t i;

	c->index = index;
	c->end.stop_id = -1;
	pieces_init(&c->said);
	strbuf_init(&c->ids, ANSWER_PART_MAX);
	strbuf_init(&c->prompt_ids, ANSWER_PART_MAX);
	strbuf_init(&c->prompt_lps, ANSWER_PART_MAX);
	for (i = 0; i < ARRAY_LEN(c->lp); i++) strbuf_init(&c->lp[i], ANSWER_PART_MAX);
}

static void choice_release(struct answer_choice *c)
{
	size_t i;

	pieces_release(&c->said);
	strbuf_release(&c->ids);
	strbuf_release(&c->prompt_ids);
	strbuf_release(&c->prompt_lps);
	for (i = 0; i < ARRAY_LEN(c->lp); i++) strbuf_release(&c->lp[i]);
}

/* Cut to what fits. */
static void copy_text(char *out, size_t cap, const char *text)
{
	size_t n = min_size(strlen(text), cap - 1);

	memcpy(out, text, n);
	out[n] = 0;
}

void answer_init(struct answer *a, const struct answer_config *cfg)
{
	uint32_t i;

	memset(a, 0, sizeof(*a));
	a->cfg = *cfg;
	copy_text(a->id, sizeof(a->id), cfg->id);
	copy_text(a->model, sizeof(a->model), cfg->model);
	a->cfg.id = a->id;
	a->cfg.model = a->model;
	strbuf_init(&a->prefix, 64 * KIB);
	a->choices = mem_array(struct answer_choice, cfg->n_choices);
	for (i = 0; i < cfg->n_choices; i++) choice_init(&a->choices[i], i);
	if (cfg->shape->init) cfg->shape->init(a);
	a->cfg.request = NULL; /* trees of megabytes are freed on a thread (prep_free()), not with the answer */
}

void answer_release(struct answer *a)
{
	uint32_t i;

	if (a->cfg.shape->release) a->cfg.shape->release(a);
	for (i = 0; i < a->cfg.n_choices; i++) choice_release(&a->choices[i]);
	free(a->choices);
	strbuf_release(&a->prefix);
}

void answer_pick(struct answer *a, const uint32_t *picked, uint32_t n)
{
	struct answer_choice *list = mem_array(struct answer_choice, n);
	bool *stays = mem_array(bool, a->cfg.n_choices);
	uint32_t i;

	for (i = 0; i < n; i++) {
		CHECK(picked[i] < a->cfg.n_choices && !stays[picked[i]]);
		stays[picked[i]] = true;
		list[i] = a->choices[picked[i]];
		list[i].index = i;
	}
	for (i = 0; i < a->cfg.n_choices; i++)
		if (!stays[i]) choice_release(&a->choices[i]);
	free(stays);
	free(a->choices);
	a->choices = list;
	a->cfg.n_choices = n;
}

static void put_id(struct strbuf *out, uint32_t id)
{
	if (out->len) strbuf_putc(out, ',');
	strbuf_put_u64(out, id);
}

void answer_prompt(struct answer *a, struct answer_choice *c, const uint32_t *ids, size_t n)
{
	size_t i;

	for (i = 0; a->cfg.return_ids && i < n; i++) put_id(&c->prompt_ids, ids[i]);
	if (n > 0) answer_lp_first(a, c, ids[0]);
}

void answer_prompt_token(struct answer *a, struct answer_choice *c, const struct live_token *t)
{
	if (t->n_top == 0 || t->top_ids.n < t->n_top || t->top_logprobs.n < t->n_top) return;
	answer_lp_prompt(a, c, t);
}

void answer_token(struct answer *a, struct answer_choice *c, const struct live_token *t)
{
	c->n_output++;
	if (a->cfg.return_ids) put_id(&c->ids, t->id);
	if (t->n_top == 0 || t->top_ids.n < t->n_top || t->top_logprobs.n < t->n_top) return;
	answer_lp_output(a, c, t);
}

bool answer_has_delta(const struct answer *a, const struct answer_choice *c)
{
	return c->said.n > 0 || c->ids.len > 0 || c->lp[0].len > 0;
}

size_t answer_held(const struct answer_choice *c)
{
	size_t i, n = pieces_bytes(&c->said) + c->ids.len + c->prompt_ids.len + c->prompt_lps.len;

	for (i = 0; i < ARRAY_LEN(c->lp); i++) n += c->lp[i].len;
	return n;
}
