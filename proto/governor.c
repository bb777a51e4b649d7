/* governor.c - see governor.h.
 *
 * A count is one word: the amount, and who changed it last: the frontend's slot and the number of that change among its changes of
 * this count. A change by a frontend:
 *
 *   intent = what it will hold, number n + 1
 *   count: compare-and-swap to (amount + delta, slot, n + 1), after `seen` of the one who changed it last has that one's number
 *   held = intent
 *
 * Died before the swap: the count does not show number n + 1, nor does `seen`. Died after it: one of the two does, because a count is
 * replaced only when its number is in `seen`. So governor_repair() knows which it was; it reads the count first, then `seen`. Numbers
 * wrap at 16 bits: to be misled, a process would have to be stopped between two instructions for exactly a multiple of 65536 changes
 * by one other, which then dies within the same few instructions. A change that was given up takes no number.
 *
 * All accesses are sequentially consistent: it is a handful a request. */
#include "proto/governor.h"

#include <string.h>

#define AMOUNT_SHIFT 24
#define AMOUNT_MAX (UINT64_MAX >> AMOUNT_SHIFT)
#define SLOT_SHIFT 16
#define NUMBER_MASK 0xffffu
_Static_assert(LIMIT_FRONTENDS <= 256, "a slot has eight bits in a word");

static uint64_t word_make(uint64_t amount, uint32_t slot, uint32_t number)
{
	return amount << AMOUNT_SHIFT | (uint64_t)slot << SLOT_SHIFT | (number & NUMBER_MASK);
}

static uint64_t word_amount(uint64_t w)
{
	return w >> AMOUNT_SHIFT;
}

static uint32_t word_slot(uint64_t w)
{
	return (uint32_t)(w >> SLOT_SHIFT) & (LIMIT_FRONTENDS - 1);
}

static uint32_t word_number(uint64_t w)
{
	return (uint32_t)w & NUMBER_MASK;
}

/* ---- one count ---- */

/* Writes down that the change that `now` shows has happened, before somebody replaces it. The rest of `seen` counts its own
 * changes, so that one who was held up here cannot write an old number over a new one. */
static void count_witness(struct governor_account *a, enum governor_what what, uint64_t now)
{
	_Atomic uint64_t *seen = &a->rows[word_slot(now)].seen[what];
	uint64_t old = atomic_load(seen);

	if (word_number(old) == word_number(now)) return;
	if (atomic_load(&a->count[what]) != now) return; /* replaced meanwhile, by somebody who wrote it down; the swap will fail */
	(void)atomic_compare_exchange_strong(seen, &old, ((old >> SLOT_SHIFT) + 1) << SLOT_SHIFT | word_number(now));
}

static bool amount_fits(uint64_t amount, uint64_t add, uint64_t limit)
{
	return add <= limit && amount <= limit - add;
}

/* Adds and takes (one of them is 0) for a slot. False: it would be more than the limit; nothing has changed. */
static bool count_change(struct governor_account *a, enum governor_what what, uint32_t slot, uint64_t add, uint64_t take, uint64_t limit)
{
	struct governor_row *row = &a->rows[slot];
	uint64_t held = atomic_load(&row->held[what]), now = atomic_load(&a->count[what]), next;
	uint32_t number = word_number(held) + 1;
	uint64_t intent = word_make(word_amount(held) + add - take, slot, number);

	CHECK(take <= word_amount(held));
	if (!amount_fits(word_amount(now), add, limit)) return false;
	atomic_store(&row->intent[what], intent);
	do {
		if (!amount_fits(word_amount(now), add, limit)) return false; /* the intent may stay: its number will not be seen */
		count_witness(a, what, now);
		/* Others write here, too: what they spoil must not end this process. */
		next = word_amount(now) + add;
		next = word_make(next - min_u64(take, next), slot, number);
	} while (!atomic_compare_exchange_strong(&a->count[what], &now, next));
	atomic_store(&row->held[what], intent);
	return true;
}

/* The slot's process is dead. */
static void count_repair(struct governor_account *a, enum governor_what what, uint32_t slot)
{
	struct governor_row *row = &a->rows[slot];
	uint64_t held = atomic_load(&row->held[what]), intent = atomic_load(&row->intent[what]), now = atomic_load(&a->count[what]);
	bool has_happened;

	if (intent != held) {
		has_happened = (word_slot(now) == slot && word_number(now) == word_number(intent)) ||
			       word_number(atomic_load(&row->seen[what])) == word_number(intent);
		if (has_happened) held = intent;
		atomic_store(&row->held[what], held);
		atomic_store(&row->intent[what], held);
	}
	if (word_amount(held) > 0) CHECK(count_change(a, what, slot, 0, word_amount(held), AMOUNT_MAX));
}

void governor_repair(struct governor *g, uint32_t slot)
{
	for (uint32_t i = 0; i < GOVERNOR_CELLS + LIMIT_TENANTS; i++) {
		if (i >= GOVERNOR_CELLS && !atomic_load(&g->used[i - GOVERNOR_CELLS])) continue;
		for (int what = 0; what < GOVERNOR_COUNTS; what++) count_repair(&g->accounts[i], (enum governor_what)what, slot);
	}
}

uint64_t governor_count(const struct governor *g, uint32_t account, enum governor_what what)
{
	return word_amount(atomic_load(&g->accounts[account].count[what]));
}

/* ---- tenants ---- */

static uint32_t cell_of(uint64_t key, uint32_t n)
{
	return (uint32_t)(key % n);
}

/* The cell of a key, or a free one to claim for it (*is_free), or n: there is none. */
static uint32_t cell_find(const struct governor *g, uint64_t key, uint32_t n, bool *is_free)
{
	uint32_t at = cell_of(key, n);

	*is_free = false;
	for (uint32_t i = 0; i < n; i++, at = at + 1 == n ? 0 : at + 1) {
		uint64_t there = atomic_load(&g->keys[at]);

		if (there == key) return at;
		*is_free = there == 0;
		if (*is_free) return at;
	}
	return n;
}

/* The account of a tenant. A cell that is claimed while the supervisor tidies up may be where nobody looks for it: then it is looked
 * for again, and a later round of the supervisor finds the empty one. */
static uint32_t account_find(struct governor_door *d, uint64_t key)
{
	struct governor *g = d->g;
	uint32_t n = d->limits.max_tenants;

	if (key == GOVERNOR_TENANT_NOBODY) return GOVERNOR_NOBODY;
	/* Each try fails only because somebody else got on; in the end there is always the shared one. */
	for (int i = 0; i < 8; i++) {
		uint32_t version = atomic_load(&g->version), at;
		uint64_t none = 0;
		bool is_free;

		if (version & 1) break;
		at = cell_find(g, key, n, &is_free);
		if (at == n) break;
		if (!is_free) return GOVERNOR_CELLS + at;
		atomic_store(&g->used[at], 1);
		if (atomic_compare_exchange_strong(&g->keys[at], &none, key) && atomic_load(&g->version) == version) return GOVERNOR_CELLS + at;
	}
	return GOVERNOR_SHARED;
}

static bool account_is_of(const struct governor *g, uint32_t account, uint64_t key)
{
	return account < GOVERNOR_CELLS || atomic_load(&g->keys[account - GOVERNOR_CELLS]) == key;
}

/* ---- reservations ---- */

static uint64_t limit_of(uint64_t limit)
{
	return limit ? limit : AMOUNT_MAX;
}

static bool has_tenant_limits(const struct governor_limits *l)
{
	return l->tenant_requests || l->tenant_tokens;
}

static bool reserve_account(struct governor_door *d, uint32_t account, uint64_t n)
{
	return count_change(&d->g->accounts[account], GOVERNOR_REQUESTS, d->slot, n, 0, limit_of(d->limits.tenant_requests));
}

static void change_back(struct governor_door *d, uint32_t account, enum governor_what what, uint64_t n)
{
	if (n > 0) CHECK(count_change(&d->g->accounts[account], what, d->slot, 0, n, AMOUNT_MAX));
}

/* A request in the tenant's account keeps the supervisor from giving the cell to somebody else; which may have happened just before. */
static bool reserve_tenant(struct governor_door *d, uint64_t tenant, uint64_t n, uint32_t *account)
{
	*account = account_find(d, tenant);
	if (!reserve_account(d, *account, n)) return false;
	if (account_is_of(d->g, *account, tenant)) return true;
	change_back(d, *account, GOVERNOR_REQUESTS, n);
	*account = GOVERNOR_SHARED;
	return reserve_account(d, *account, n);
}

/* The tenant first: a request that its tenant's limit keeps out takes no room from others, not for a moment. */
enum governor_verdict governor_reserve(struct governor_door *d, uint64_t tenant, uint64_t n_requests, struct governor_hold *h)
{
	uint32_t account = GOVERNOR_MESH;

	CHECK(h->requests == 0 && n_requests > 0);
	if (has_tenant_limits(&d->limits) && !reserve_tenant(d, tenant, n_requests, &account)) return GOVERNOR_FULL_TENANT_REQUESTS;
	if (!count_change(&d->g->accounts[GOVERNOR_MESH], GOVERNOR_REQUESTS, d->slot, n_requests, 0, limit_of(d->limits.requests))) {
		if (account != GOVERNOR_MESH) change_back(d, account, GOVERNOR_REQUESTS, n_requests);
		return GOVERNOR_FULL_REQUESTS;
	}
	d->n_shared += account == GOVERNOR_SHARED;
	*h = (struct governor_hold){.account = account, .requests = n_requests};
	return GOVERNOR_OK;
}

/* Both counts of an account, or neither. */
static enum governor_verdict extend_account(struct governor_door *d, uint32_t account, uint64_t n_requests, uint64_t n_tokens)
{
	bool is_mesh = account == GOVERNOR_MESH;
	const struct governor_limits *l = &d->limits;
	struct governor_account *a = &d->g->accounts[account];

	if (n_requests > 0 && !count_change(a, GOVERNOR_REQUESTS, d->slot, n_requests, 0, limit_of(is_mesh ? l->requests : l->tenant_requests)))
		return is_mesh ? GOVERNOR_FULL_REQUESTS : GOVERNOR_FULL_TENANT_REQUESTS;
	if (n_tokens == 0 || count_change(a, GOVERNOR_TOKENS, d->slot, n_tokens, 0, limit_of(is_mesh ? l->tokens : l->tenant_tokens))) return GOVERNOR_OK;
	change_back(d, account, GOVERNOR_REQUESTS, n_requests);
	return is_mesh ? GOVERNOR_FULL_TOKENS : GOVERNOR_FULL_TENANT_TOKENS;
}

enum governor_verdict governor_extend(struct governor_door *d, struct governor_hold *h, uint64_t n_requests, uint64_t n_tokens)
{
	enum governor_verdict v = GOVERNOR_OK;

	CHECK(h->requests > 0);
	if (h->account != GOVERNOR_MESH) v = extend_account(d, h->account, n_requests, n_tokens);
	if (v != GOVERNOR_OK) return v;
	v = extend_account(d, GOVERNOR_MESH, n_requests, n_tokens);
	if (v == GOVERNOR_OK) {
		h->requests += n_requests;
		h->tokens += n_tokens;
	} else if (h->account != GOVERNOR_MESH) {
		change_back(d, h->account, GOVERNOR_REQUESTS, n_requests);
		change_back(d, h->account, GOVERNOR_TOKENS, n_tokens);
	}
	return v;
}

/* The tenant's requests last: they keep its cell. */
void governor_give_back(struct governor_door *d, struct governor_hold *h)
{
	if (h->requests == 0) return;
	change_back(d, GOVERNOR_MESH, GOVERNOR_TOKENS, h->tokens);
	change_back(d, GOVERNOR_MESH, GOVERNOR_REQUESTS, h->requests);
	if (h->account != GOVERNOR_MESH) {
		change_back(d, h->account, GOVERNOR_TOKENS, h->tokens);
		change_back(d, h->account, GOVERNOR_REQUESTS, h->requests);
	}
	*h = (struct governor_hold){0};
}

enum governor_verdict governor_peek(const struct governor_door *d, uint64_t tenant)
{
	const struct governor_limits *l = &d->limits;
	uint32_t account = GOVERNOR_NOBODY;
	bool is_free;

	if (has_tenant_limits(l)) {
		if (tenant != GOVERNOR_TENANT_NOBODY) account = GOVERNOR_CELLS + cell_find(d->g, tenant, l->max_tenants, &is_free);
		if (account == GOVERNOR_CELLS + l->max_tenants) account = GOVERNOR_SHARED;
		if (governor_count(d->g, account, GOVERNOR_REQUESTS) >= limit_of(l->tenant_requests)) return GOVERNOR_FULL_TENANT_REQUESTS;
		if (governor_count(d->g, account, GOVERNOR_TOKENS) >= limit_of(l->tenant_tokens)) return GOVERNOR_FULL_TENANT_TOKENS;
	}
	if (governor_count(d->g, GOVERNOR_MESH, GOVERNOR_REQUESTS) >= limit_of(l->requests)) return GOVERNOR_FULL_REQUESTS;
	if (governor_count(d->g, GOVERNOR_MESH, GOVERNOR_TOKENS) >= limit_of(l->tokens)) return GOVERNOR_FULL_TOKENS;
	return GOVERNOR_OK;
}

/* ---- tidying up ---- */

/* Takes the key out of a cell whose account holds nothing. Who reserves there looks at the key again afterwards, and here the count is
 * looked at again after the key is gone: one of the two sees the other. */
static void cell_retire(struct governor *g, uint32_t at)
{
	uint64_t key = atomic_load(&g->keys[at]);

	if (key <= GOVERNOR_TENANT_GONE || governor_count(g, GOVERNOR_CELLS + at, GOVERNOR_REQUESTS) > 0) return;
	atomic_store(&g->keys[at], GOVERNOR_TENANT_GONE);
	if (governor_count(g, GOVERNOR_CELLS + at, GOVERNOR_REQUESTS) > 0) atomic_store(&g->keys[at], key);
}

/* A cell without a key may be empty only when no key that stays is looked for across it. */
static void cells_empty(struct governor *g, uint32_t n)
{
	uint8_t crossed[LIMIT_TENANTS] = {0};

	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = atomic_load(&g->keys[i]);

		if (key <= GOVERNOR_TENANT_GONE) continue;
		for (uint32_t at = cell_of(key, n); at != i; at = at + 1 == n ? 0 : at + 1) crossed[at] = 1;
	}
	for (uint32_t i = 0; i < n; i++)
		if (!crossed[i] && atomic_load(&g->keys[i]) == GOVERNOR_TENANT_GONE) atomic_store(&g->keys[i], 0);
}

void governor_tidy(struct governor *g, uint32_t max_tenants)
{
	uint32_t n_taken = 0;

	for (uint32_t i = 0; i < max_tenants; i++) n_taken += atomic_load(&g->keys[i]) != 0;
	if (n_taken * 4 < max_tenants * 3) return;
	atomic_fetch_add(&g->version, 1);
	for (uint32_t i = 0; i < max_tenants; i++) cell_retire(g, i);
	cells_empty(g, max_tenants);
	atomic_fetch_add(&g->version, 1);
}
