/* fair.c - see fair.h.
 *
 * Counters grow only, and mostly while their share is in a heap. So the heaps hold what was seen of a counter, which may be too little;
 * only the first element's is looked at, and it sinks when it has grown (fair_set_floor()). A charge costs two additions. */
#include "executor/fair.h"

#include "common/mem.h"

static bool fair_waits_before(const struct heap_link *a, const struct heap_link *b)
{
	return CONTAINER_OF(a, struct fair_share, wait_link)->seen < CONTAINER_OF(b, struct fair_share, wait_link)->seen;
}

static bool fair_idles_before(const struct heap_link *a, const struct heap_link *b)
{
	return CONTAINER_OF(a, struct fair_share, idle_link)->served < CONTAINER_OF(b, struct fair_share, idle_link)->served;
}

/* ---- those who share ---- */

static void fair_set_init(struct fair_set *set)
{
	*set = (struct fair_set){0};
	map_init(&set->by_id);
	heap_init(&set->waiting, fair_waits_before);
	heap_init(&set->idle, fair_idles_before);
}

static void fair_set_release(struct fair_set *set)
{
	map_release(&set->by_id);
	heap_release(&set->waiting);
	heap_release(&set->idle);
}

/* What somebody who begins to wait has at least. */
static uint64_t fair_set_floor(struct fair_set *set)
{
	struct heap_link *first;

	while ((first = heap_first(&set->waiting))) {
		struct fair_share *s = CONTAINER_OF(first, struct fair_share, wait_link);

		if (s->seen == s->served) return s->served;
		s->seen = s->served;
		heap_moved(&set->waiting, first);
	}
	return set->floor;
}

static void fair_share_wait(struct fair_share *s)
{
	if (s->n_waiting++) return;
	s->served = max_u64(s->served, fair_set_floor(s->set));
	s->seen = s->served;
	heap_push(&s->set->waiting, &s->wait_link);
}

static void fair_share_wait_ends(struct fair_share *s)
{
	CHECK(s->n_waiting > 0);
	if (--s->n_waiting) return;
	heap_remove(&s->set->waiting, &s->wait_link);
	s->set->floor = max_u64(s->set->floor, s->served);
}

static void fair_share_hold(struct fair_share *s)
{
	s->set->n_held++;
	if (s->n_held++ || s->stays) return;
	if (heap_is_linked(&s->idle_link)) heap_remove(&s->set->idle, &s->idle_link);
}

static void fair_share_let_go(struct fair_share *s)
{
	CHECK(s->n_held > 0);
	s->set->n_held--;
	if (--s->n_held || s->stays) return;
	heap_push(&s->set->idle, &s->idle_link);
}

/* The next one of the set that can be forgotten, or NULL. */
static struct fair_share *fair_set_forgettable(struct fair_set *set)
{
	struct heap_link *first = heap_first(&set->idle);
	struct fair_share *s = first ? CONTAINER_OF(first, struct fair_share, idle_link) : NULL;

	return s && (set->n_held == 0 || s->served <= fair_set_floor(set)) ? s : NULL;
}

static void fair_set_take(struct fair_set *set, struct fair_share *s)
{
	heap_remove(&set->idle, &s->idle_link);
	map_remove(&set->by_id, s->id);
}

/* ---- accounts and tenants ---- */

static void fair_share_init(struct fair_share *s, struct fair_set *set, struct fair_account *account, uint32_t id, bool stays)
{
	*s = (struct fair_share){.set = set, .account = account, .id = id, .stays = stays};
}

static void fair_account_init(struct fair *f, struct fair_account *a, uint32_t id, bool stays)
{
	fair_share_init(&a->share, &f->accounts, a, id, stays);
	fair_set_init(&a->tenants);
	fair_share_init(&a->nameless, &a->tenants, a, 0, true);
}

static void fair_forget_tenants(struct fair *f, struct fair_account *a)
{
	struct fair_share *s;

	while ((s = fair_set_forgettable(&a->tenants))) {
		fair_set_take(&a->tenants, s);
		f->n_tenants--;
		free(s);
	}
}

static void fair_forget_accounts(struct fair *f)
{
	struct fair_share *s;

	while ((s = fair_set_forgettable(&f->accounts))) {
		CHECK(s->account->tenants.by_id.len == 0); /* it holds nothing, so they were forgotten */
		fair_set_take(&f->accounts, s);
		fair_set_release(&s->account->tenants);
		free(s->account);
	}
}

static struct fair_account *fair_find_account(struct fair *f, uint32_t id)
{
	struct fair_share *s = id ? map_get(&f->accounts.by_id, id) : &f->zero.share;
	struct fair_account *a;

	if (s) return s->account;
	fair_forget_accounts(f);
	if (f->accounts.by_id.len >= f->shares_max) return NULL;
	a = mem_new(struct fair_account);
	fair_account_init(f, a, id, false);
	map_put(&f->accounts.by_id, id, &a->share);
	heap_push(&f->accounts.idle, &a->share.idle_link);
	return a;
}

static struct fair_share *fair_find_tenant(struct fair *f, struct fair_account *a, uint32_t id)
{
	struct fair_share *s = id ? map_get(&a->tenants.by_id, id) : &a->nameless;

	if (s) return s;
	fair_forget_tenants(f, a);
	if (f->n_tenants >= f->shares_max) return &a->nameless;
	s = mem_new(struct fair_share);
	fair_share_init(s, &a->tenants, a, id, false);
	map_put(&a->tenants.by_id, id, s);
	heap_push(&a->tenants.idle, &s->idle_link);
	f->n_tenants++;
	return s;
}

void fair_init(struct fair *f, bool on, uint32_t shares_max)
{
	*f = (struct fair){.on = on, .shares_max = shares_max};
	fair_set_init(&f->accounts);
	fair_account_init(f, &f->zero, 0, true);
}

void fair_release(struct fair *f)
{
	MAP_EACH(&f->accounts.by_id, e)
	{
		struct fair_account *a = ((struct fair_share *)e->value)->account;

		MAP_EACH(&a->tenants.by_id, t) free(t->value);
		fair_set_release(&a->tenants);
		free(a);
	}
	MAP_EACH(&f->zero.tenants.by_id, t) free(t->value);
	fair_set_release(&f->zero.tenants);
	fair_set_release(&f->accounts);
}

struct fair_share *fair_enter(struct fair *f, uint64_t tenant)
{
	struct fair_account *a = f->on ? fair_find_account(f, (uint32_t)(tenant >> 32)) : &f->zero;
	struct fair_share *s = a && f->on ? fair_find_tenant(f, a, (uint32_t)tenant) : &f->zero.nameless;

	f->n_active += s->n_held == 0;
	fair_share_hold(&s->account->share);
	fair_share_hold(s);
	return s;
}

void fair_leave(struct fair *f, struct fair_share *tenant)
{
	struct fair_account *a = tenant->account;

	fair_share_let_go(tenant);
	f->n_active -= tenant->n_held == 0;
	fair_share_let_go(&a->share);
	fair_forget_tenants(f, a);
	fair_forget_accounts(f);
}

void fair_wait(struct fair_share *tenant)
{
	fair_share_wait(tenant);
	fair_share_wait(&tenant->account->share);
}

void fair_wait_ends(struct fair_share *tenant)
{
	fair_share_wait_ends(tenant);
	fair_share_wait_ends(&tenant->account->share);
}

bool fair_has_more(const struct fair_share *a, const struct fair_share *b)
{
	uint64_t of_a = a->account->share.served, of_b = b->account->share.served;

	return of_a != of_b ? of_a > of_b : a->served > b->served;
}

/* ---- invariants ---- */

static void fair_check_share(const struct fair_share *s, const struct fair_set *set)
{
	CHECK(s->set == set && s->n_waiting <= s->n_held && (s->n_waiting > 0) == heap_is_linked(&s->wait_link));
	CHECK(heap_is_linked(&s->idle_link) == (s->n_held == 0 && !s->stays));
	CHECK(s->n_waiting == 0 || s->seen <= s->served);
}

static void fair_check_set(const struct fair_set *set, const struct fair_share *stays)
{
	uint32_t n_held = stays->n_held;

	heap_check(&set->waiting);
	heap_check(&set->idle);
	fair_check_share(stays, set);
	MAP_EACH(&set->by_id, e)
	{
		const struct fair_share *s = e->value;

		fair_check_share(s, set);
		CHECK(s->id == e->key && !s->stays);
		n_held += s->n_held;
	}
	CHECK(n_held == set->n_held);
}

void fair_check(const struct fair *f)
{
	uint32_t n_tenants = (uint32_t)f->zero.tenants.by_id.len;

	fair_check_set(&f->accounts, &f->zero.share);
	fair_check_set(&f->zero.tenants, &f->zero.nameless);
	CHECK(f->zero.share.n_held == f->zero.tenants.n_held);
	MAP_EACH(&f->accounts.by_id, e)
	{
		const struct fair_account *a = ((const struct fair_share *)e->value)->account;

		fair_check_set(&a->tenants, &a->nameless);
		CHECK(a->share.n_held == a->tenants.n_held);
		n_tenants += (uint32_t)a->tenants.by_id.len;
	}
	CHECK(n_tenants == f->n_tenants && n_tenants <= f->shares_max && f->accounts.by_id.len <= f->shares_max);
}
