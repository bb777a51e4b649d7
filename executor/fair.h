/* fair.h - who has had how much: virtual token counters of accounts and of the tenants within them.
 *
 * The algorithm is the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024): whoever is
 * served pays, prompt tokens once and output tokens twice; among those who wait the one with the least counter is next; and
 * who begins to wait is raised to the least counter of those who wait already, so nobody saves up credit by being away. Two who both
 * always wait then differ by what one request's prompt, and the outputs of all that may run, cost: a bound without time in it.
 *
 * There are two levels. submit.tenant names an account in its upper 32 bits (whoever has proven to be somebody: an API key) and a tenant
 * within it in its lower ones (whatever the account says). Accounts share the mesh, tenants share their account. So a client that
 * invents tenants divides its own account only. Who may invent accounts is the frontends' affair.
 *
 * The tables are bounded: shares_max accounts, and as many tenants in all accounts together. When they are full, further accounts
 * belong to account 0, and further tenants to the share that an account has for those without a name. One that holds nothing is
 * forgotten when it owes nothing, which is when coming back would raise it anyway; or when nobody is left to whom it
 * could owe. So being forgotten is no way to get rid of a counter. */
#ifndef SLUICE_FAIR_H
#define SLUICE_FAIR_H

#include "common/base.h"
#include "common/heap.h"
#include "common/map.h"

#define FAIR_OUTPUT_WEIGHT 2 /* of an output token; a prompt token's is 1. As in the paper: a prompt's tokens share the reading of the weights */

struct fair_account;

/* Those who share something equally, each with its counter. */
struct fair_set {
	struct map by_id;
	struct heap waiting; /* shares with waiting requests, by what was last seen of their counters */
	struct heap idle;    /* shares that hold nothing, by counter; not those that are always there */
	uint64_t floor;      /* where one begins when nobody waits: the counter of the last one that did */
	uint32_t n_held;     /* requests of all of them */
};

/* One of them. */
struct fair_share {
	struct heap_link wait_link, idle_link;
	struct fair_set *set;
	struct fair_account *account; /* that it is, or belongs to */
	uint32_t id;
	bool stays;       /* embedded in something that lives on */
	uint64_t served;  /* virtual tokens; grows only */
	uint64_t seen;    /* of it, in set.waiting */
	uint32_t n_held, n_waiting; /* requests */
};

struct fair_account {
	struct fair_share share; /* of the mesh */
	struct fair_set tenants;
	struct fair_share nameless; /* tenant 0, and whoever found the table full */
};

struct fair {
	struct fair_set accounts;
	struct fair_account zero; /* account 0, and whoever found the table full */
	uint32_t shares_max, n_tenants; /* the latter: with a name */
	uint32_t n_active;              /* tenants that hold requests */
	bool on;
};

/* Off: there is one tenant. */
void fair_init(struct fair *f, bool on, uint32_t shares_max);
void fair_release(struct fair *f);

/* The tenant of a new request, which it holds from now on; fair_leave() gives it back. */
struct fair_share *fair_enter(struct fair *f, uint64_t tenant);
void fair_leave(struct fair *f, struct fair_share *tenant);

/* One more, or one less, of its requests waits. */
void fair_wait(struct fair_share *tenant);
void fair_wait_ends(struct fair_share *tenant);

/* a has had more than b: of the mesh, or as much and more of their account. */
bool fair_has_more(const struct fair_share *a, const struct fair_share *b);

/* Nobody else to share with has a name. */
static inline bool fair_is_one(const struct fair *f)
{
	return f->accounts.by_id.len == 0 && f->zero.tenants.by_id.len == 0;
}

void fair_check(const struct fair *f);

/* It has been served. */
static inline void fair_charge(struct fair_share *tenant, uint64_t virtual_tokens)
{
	tenant->served += virtual_tokens;
	tenant->account->share.served += virtual_tokens;
}

#endif
