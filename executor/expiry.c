/* expiry.c - requests that wait for their first step only so long (submit.queue_ms).
 *
 * A heap by the moment at which they end. One leaves it for good when it runs for the first time, or when its frontend knows more of it than
 * we do: what is preempted or replayed later has begun, and is never ended for its waiting. */
#include "executor/core_impl.h"

#include <stdio.h>

static struct seq *expiry_seq(const struct heap_link *e)
{
	return CONTAINER_OF(e, struct seq, expiry);
}

static bool expiry_before(const struct heap_link *a, const struct heap_link *b)
{
	return expiry_seq(a)->expires_ns < expiry_seq(b)->expires_ns;
}

void expiry_init(struct core *c)
{
	heap_init(&c->expiries, expiry_before);
}

void expiry_begin(struct core *c, struct seq *s, uint32_t queue_ms)
{
	if (!queue_ms || seq_n_output(s) > 0) return;
	s->expires_ns = s->arrived_ns + queue_ms * NS_PER_MS;
	heap_push(&c->expiries, &s->expiry);
}

void expiry_sooner(struct core *c, struct seq *s, uint32_t queue_ms)
{
	uint64_t at = c->now + queue_ms * NS_PER_MS;

	if (!queue_ms || !heap_is_linked(&s->expiry) || at >= s->expires_ns) return;
	heap_remove(&c->expiries, &s->expiry);
	s->arrived_ns -= min_u64(s->arrived_ns, s->expires_ns - at); /* it has waited for longer than we have known */
	s->expires_ns = at;
	heap_push(&c->expiries, &s->expiry);
}

void expiry_end(struct core *c, struct seq *s)
{
	if (heap_is_linked(&s->expiry)) heap_remove(&c->expiries, &s->expiry);
}

void expiry_step(struct core *c, uint64_t now)
{
	struct heap_link *first;

	while ((first = heap_first(&c->expiries)) && expiry_seq(first)->expires_ns <= now) {
		struct seq *s = expiry_seq(first);
		char text[128];

		snprintf(text, sizeof(text), "The server is overloaded: the request has waited for %.3g seconds. Please try again later.",
			 (double)(now - s->arrived_ns) / 1e9);
		c->stats.expired++;
		core_refuse(c, s, REFUSAL_QUEUE_TIMEOUT, text);
	}
}

uint64_t expiry_deadline(const struct core *c)
{
	const struct heap_link *first = heap_first(&c->expiries);

	return first ? expiry_seq(first)->expires_ns : UINT64_MAX;
}
