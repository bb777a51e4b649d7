/* owner.h - who a live request belongs to: a choice of a generation, an input of an embedding. What lives has to tell goes to the
 * owner's kind. */
#ifndef SLUICE_OWNER_H
#define SLUICE_OWNER_H

#include "frontend/live.h"
#include "proto/page.h"

struct owner_kind {
	/* As in lives_out; NULL: dropped, and no token ends the request. */
	bool (*on_token)(void *owner, const struct live_token *t);
	void (*on_accepted)(void *owner);
	void (*on_end)(void *owner, enum finish finish, uint32_t refusal, struct view text);
	void (*on_prompt_token)(void *owner, const struct live_token *t);
	void (*on_embedding)(void *owner, struct view values);
};

/* The first member of whatever is given to lives_start() as the owner. */
struct owner {
	const struct owner_kind *kind;
};

/* For lives_out. */
bool owner_on_token(void *ctx, void *owner, const struct live_token *t);
void owner_on_accepted(void *ctx, void *owner);
void owner_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text);
void owner_on_prompt_token(void *ctx, void *owner, const struct live_token *t);
void owner_on_embedding(void *ctx, void *owner, struct view values);

struct apierr;
/* What a client is told when a request ended without its result; counted in the slot. */
void owner_refusal(struct apierr *e, struct page_slot *slot, uint32_t refusal, struct view text);

#endif
