/* owner.c - see owner.h. */
#include "frontend/owner.h"

#include "frontend/apierr.h"

static const struct owner_kind *kind_of(const void *owner)
{
	return ((const struct owner *)owner)->kind;
}

bool owner_on_token(void *ctx, void *owner, const struct live_token *t)
{
	const struct owner_kind *k = kind_of(owner);

	return k->on_token && k->on_token(owner, t);
}

void owner_on_accepted(void *ctx, void *owner)
{
	const struct owner_kind *k = kind_of(owner);

	if (k->on_accepted) k->on_accepted(owner);
}

void owner_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	kind_of(owner)->on_end(owner, finish, refusal, text);
}

void owner_on_prompt_token(void *ctx, void *owner, const struct live_token *t)
{
	const struct owner_kind *k = kind_of(owner);

	if (k->on_prompt_token) k->on_prompt_token(owner, t);
}

void owner_on_embedding(void *ctx, void *owner, struct view values)
{
	const struct owner_kind *k = kind_of(owner);

	if (k->on_embedding) k->on_embedding(owner, values);
}

void owner_refusal(struct apierr *e, struct page_slot *slot, uint32_t refusal, struct view text)
{
	int status = 500;

	if (refusal == REFUSAL_QUEUE_FULL) page_count(slot, COUNTER_rejected_queue, 1);
	if (refusal == REFUSAL_QUEUE_TIMEOUT) page_count(slot, COUNTER_rejected_queue_timeout, 1);
	if (refusal == REFUSAL_TOO_LONG || refusal == REFUSAL_INVALID) status = 400;
	if (refusal == REFUSAL_QUEUE_FULL || refusal == REFUSAL_DRAINING || refusal == REFUSAL_QUEUE_TIMEOUT) status = 503;
	if (text.n == 0) text = view_text("The engine refused the request.");
	(void)apierr_set(e, status, NULL, "%.*s", (int)text.n, (const char *)text.data);
}
