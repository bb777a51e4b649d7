/* governor.h - what the mesh has taken on: requests and tokens, of all and of each tenant, in shared memory (page.h), exact over all
 * frontends.
 *
 * A frontend reserves before it takes a request on, and gives back exactly that. A reservation is one compare-and-swap of a shared
 * count, so a limit is never passed, not for a moment, and nobody is refused while there is room; nobody ever waits for another process.
 * What a dead frontend held is given back by the supervisor (governor_repair()), whichever instruction it died at: each frontend
 * writes down in a row of its own what it is about to do and what it has done, and whoever replaces a count first writes down, for the
 * one who made it, that he did (`seen`), so it can always be told whether the last thing that a dead one began has happened.
 *
 * (Rows alone, added up at each reservation, would need no repair. But then two that meet at the last place both see each other and
 * both have to step back, and a process that was stopped while it tried would hold a place that nobody can have.)
 *
 * Tenants are keys of 64 bits in a table of max_tenants cells; what finds no cell shares one account. The supervisor empties the cells of
 * tenants that hold nothing when the table fills up (governor_tidy()), so random keys cannot fill it for good. */
#ifndef SLUICE_GOVERNOR_H
#define SLUICE_GOVERNOR_H

#include "common/base.h"
#include "proto/limits.h"

#include <stdatomic.h>

enum governor_what { GOVERNOR_REQUESTS, GOVERNOR_TOKENS, GOVERNOR_COUNTS };

/* Of one frontend; both words as in governor.c. */
struct governor_row {
	_Atomic uint64_t held[GOVERNOR_COUNTS];   /* after the last change that was completed */
	_Atomic uint64_t intent[GOVERNOR_COUNTS]; /* after the one that was begun last, which may not have happened */
	_Atomic uint64_t seen[GOVERNOR_COUNTS];   /* written by others: the last change that somebody has replaced */
} __attribute__((aligned(64)));

/* The rows of all frontends lie together, so an account takes memory only for the frontends that there are. */
struct governor_account {
	_Atomic uint64_t count[GOVERNOR_COUNTS];
	struct governor_row rows[LIMIT_FRONTENDS];
} __attribute__((aligned(64)));

/* Accounts that no key leads to; a tenant's is its cell's number and GOVERNOR_CELLS. */
enum { GOVERNOR_MESH, GOVERNOR_NOBODY, GOVERNOR_SHARED, GOVERNOR_CELLS };

/* All zero is a governor of which nothing is taken. */
struct governor {
	_Atomic uint32_t version;            /* of keys; odd: they are being tidied up */
	_Atomic uint8_t used[LIMIT_TENANTS]; /* the cell had a key once: its account may be looked at (memory exists where it was touched) */
	_Atomic uint64_t keys[LIMIT_TENANTS];
	struct governor_account accounts[GOVERNOR_CELLS + LIMIT_TENANTS];
};

/* 0: no limit. */
struct governor_limits {
	uint64_t requests, tokens, tenant_requests, tenant_tokens;
	uint32_t max_tenants;
};

/* A frontend's way in. */
struct governor_door {
	struct governor *g;
	uint32_t slot; /* the frontend's, < LIMIT_FRONTENDS */
	struct governor_limits limits;
	uint64_t n_shared; /* reservations that went to the shared account */
};

/* What is reserved for one request; all zero: nothing. */
struct governor_hold {
	uint32_t account; /* of the tenant; GOVERNOR_MESH: tenants have no limits */
	uint64_t requests, tokens;
};

/* Keys that name tenants are larger. */
#define GOVERNOR_TENANT_NOBODY 0
#define GOVERNOR_TENANT_GONE 1

enum governor_verdict { GOVERNOR_OK, GOVERNOR_FULL_REQUESTS, GOVERNOR_FULL_TOKENS, GOVERNOR_FULL_TENANT_REQUESTS, GOVERNOR_FULL_TENANT_TOKENS };

/* Begins a hold of so many requests, at least one. Anything but GOVERNOR_OK: nothing is held. */
enum governor_verdict governor_reserve(struct governor_door *d, uint64_t tenant, uint64_t n_requests, struct governor_hold *h);
/* Adds to a hold; anything but GOVERNOR_OK: it is as before. */
enum governor_verdict governor_extend(struct governor_door *d, struct governor_hold *h, uint64_t n_requests, uint64_t n_tokens);
/* Gives all of it back; of nothing, nothing. */
void governor_give_back(struct governor_door *d, struct governor_hold *h);
/* What governor_reserve() would say of one request; it may be wrong by the time that it is read. */
enum governor_verdict governor_peek(const struct governor_door *d, uint64_t tenant);

/* What an account counts: GOVERNOR_MESH, or one that a hold names. */
uint64_t governor_count(const struct governor *g, uint32_t account, enum governor_what what);

/* The supervisor's, after it has reaped the frontend and before the slot is used again. */
void governor_repair(struct governor *g, uint32_t slot);
/* The supervisor's, now and then: does something only when the table is nearly full. */
void governor_tidy(struct governor *g, uint32_t max_tenants);

#endif
