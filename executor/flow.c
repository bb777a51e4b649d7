/* flow.c - see flow.h. */
#include "executor/flow.h"

#include "common/mem.h"
#include "executor/seq.h"

static bool flow_turn_before(const struct heap_link *a, const struct heap_link *b)
{
	return seq_before(CONTAINER_OF(a, struct seq, turn), CONTAINER_OF(b, struct seq, turn));
}

static struct seq *flow_first(const struct flow *f)
{
	return CONTAINER_OF(heap_first(&f->waiting), struct seq, turn);
}

static bool flow_before(const struct flow *a, const struct flow *b)
{
	const struct seq *of_a = flow_first(a), *of_b = flow_first(b);

	if (of_a->priority != of_b->priority) return of_a->priority < of_b->priority;
	if (a->seen_account != b->seen_account) return a->seen_account < b->seen_account;
	if (a->seen_tenant != b->seen_tenant) return a->seen_tenant < b->seen_tenant;
	return of_a->arrival < of_b->arrival;
}

static bool flow_link_before(const struct heap_link *a, const struct heap_link *b)
{
	return flow_before(CONTAINER_OF(a, struct flow, link), CONTAINER_OF(b, struct flow, link));
}

/* Its place is by the counters as they are now. True when they were others. */
static bool flow_look(struct flow *f)
{
	uint64_t of_account = f->tenant->account->share.served, of_tenant = f->tenant->served;

	if (f->seen_account == of_account && f->seen_tenant == of_tenant) return false;
	f->seen_account = of_account;
	f->seen_tenant = of_tenant;
	return true;
}

void flows_init(struct flows *q)
{
	*q = (struct flows){0};
	heap_init(&q->waiting, flow_link_before);
	map_init(&q->by_tenant);
}

static void flow_free(struct flow *f)
{
	heap_release(&f->waiting);
	free(f);
}

void flows_release(struct flows *q)
{
	MAP_EACH(&q->by_tenant, e) flow_free(e->value);
	map_release(&q->by_tenant);
	heap_release(&q->waiting);
}

struct flow *flow_enter(struct flows *q, struct fair_share *tenant)
{
	struct flow *f = map_get(&q->by_tenant, (uintptr_t)tenant);

	if (!f) {
		f = mem_new(struct flow);
		f->flows = q;
		f->tenant = tenant;
		heap_init(&f->waiting, flow_turn_before);
		map_put(&q->by_tenant, (uintptr_t)tenant, f);
	}
	f->n_held++;
	return f;
}

void flow_leave(struct flow *f)
{
	CHECK(f->n_held > 0);
	if (--f->n_held) return;
	CHECK(f->waiting.n == 0);
	map_remove(&f->flows->by_tenant, (uintptr_t)f->tenant);
	flow_free(f);
}

void flow_wait(struct flow *f, struct seq *s)
{
	struct flows *q = f->flows;

	fair_wait(f->tenant);
	heap_push(&f->waiting, &s->turn);
	q->n_waiting++;
	flow_look(f);
	if (heap_is_linked(&f->link)) heap_moved(&q->waiting, &f->link);
	else heap_push(&q->waiting, &f->link);
}

void flow_wait_ends(struct flow *f, struct seq *s)
{
	struct flows *q = f->flows;
	bool last = f->waiting.n == 1;

	/* Without a first request a flow has no place. */
	if (last) heap_remove(&q->waiting, &f->link);
	heap_remove(&f->waiting, &s->turn);
	q->n_waiting--;
	flow_look(f);
	if (!last) heap_moved(&q->waiting, &f->link);
	fair_wait_ends(f->tenant);
}

struct seq *flows_first(struct flows *q)
{
	struct heap_link *first;

	while ((first = heap_first(&q->waiting)) && flow_look(CONTAINER_OF(first, struct flow, link))) heap_moved(&q->waiting, first);
	return first ? flow_first(CONTAINER_OF(first, struct flow, link)) : NULL;
}

bool flow_goes_before(const struct seq *a, const struct seq *b)
{
	return flow_before(a->flow, b->flow);
}

void flows_check(const struct flows *q)
{
	uint32_t n_waiting = 0;

	heap_check(&q->waiting);
	MAP_EACH(&q->by_tenant, e)
	{
		const struct flow *f = e->value;

		heap_check(&f->waiting);
		CHECK(f->flows == q && f->n_held >= f->waiting.n && f->n_held > 0);
		CHECK(heap_is_linked(&f->link) == (f->waiting.n > 0));
		n_waiting += f->waiting.n;
	}
	CHECK(n_waiting == q->n_waiting);
}
