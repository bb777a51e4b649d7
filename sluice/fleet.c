/* fleet.c - see fleet.h. */
#include "sluice/fleet.h"

void fleet_init(struct fleet *f, bool is_shared, const struct fleet_out *out)
{
	*f = (struct fleet){.is_shared = is_shared, .out = *out};
}

bool fleet_is_here(const struct fleet *f, uint32_t slot)
{
	enum fleet_state s = f->slots[slot].state;

	return s == FLEET_STARTING || s == FLEET_SERVING || s == FLEET_DOWN;
}

static bool serves(const struct fleet *f, uint32_t slot)
{
	return slot != FLEET_NONE && f->slots[slot].state == FLEET_SERVING;
}

uint32_t fleet_count_in(const struct fleet *f, enum fleet_state state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) n += f->slots[i].state == state;
	return n;
}

uint32_t fleet_count(const struct fleet *f)
{
	return fleet_count_in(f, FLEET_STARTING) + fleet_count_in(f, FLEET_SERVING) + fleet_count_in(f, FLEET_DOWN);
}

/* ---- who accepts ---- */

static uint32_t n_held(const struct fleet *f, uint32_t slot)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_sockets; i++) n += f->sockets[i].holder == slot;
	return n;
}

static uint32_t n_owned(const struct fleet *f, uint32_t slot)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_sockets; i++) n += f->sockets[i].owner == slot;
	return n;
}

uint32_t fleet_sibling(const struct fleet *f, uint32_t slot)
{
	uint32_t best = FLEET_NONE, best_n = 0;

	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) {
		uint32_t n;

		if (i == slot || !serves(f, i)) continue;
		n = n_held(f, i);
		if (best == FLEET_NONE || n < best_n) {
			best = i;
			best_n = n;
		}
	}
	return best;
}

static void tell(const struct fleet *f, uint32_t slot, uint32_t socket, bool on)
{
	if (f->slots[slot].home != socket) f->out.listener(f->out.ctx, slot, socket, on);
}

/* Every socket to whom it belongs now. The new holder is told before the old one. */
static void fleet_place(struct fleet *f)
{
	for (uint32_t i = 0; i < f->n_sockets && !f->is_shared; i++) {
		struct fleet_socket *s = &f->sockets[i];
		uint32_t old = s->holder;

		if (serves(f, s->owner)) s->holder = s->owner;
		else if (!serves(f, old)) s->holder = fleet_sibling(f, FLEET_NONE);
		if (s->holder == old) continue;
		if (s->holder != FLEET_NONE) tell(f, s->holder, i, true);
		if (serves(f, old)) tell(f, old, i, false); /* one that retires is told to accept nothing at all */
	}
}

/* Whoever is here and owns least, servers first. */
static uint32_t fleet_heir(const struct fleet *f)
{
	uint32_t best = FLEET_NONE;

	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) {
		if (!fleet_is_here(f, i)) continue;
		if (best == FLEET_NONE || (serves(f, i) && !serves(f, best)) ||
		    (serves(f, i) == serves(f, best) && n_owned(f, i) < n_owned(f, best)))
			best = i;
	}
	return best;
}

/* The slot has left: what it owned needs another owner. */
static void fleet_bequeath(struct fleet *f, uint32_t slot, uint32_t successor)
{
	for (uint32_t i = 0; i < f->n_sockets; i++)
		if (f->sockets[i].owner == slot) f->sockets[i].owner = successor != FLEET_NONE ? successor : fleet_heir(f);
}

/* ---- who is here ---- */

static bool is_home(const struct fleet *f, uint32_t socket)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++)
		if (fleet_is_here(f, i) && f->slots[i].home == socket) return true;
	return false;
}

static uint32_t fleet_spare_socket(const struct fleet *f)
{
	uint32_t i = 0;

	while (i < f->n_sockets && is_home(f, i)) i++;
	return i;
}

uint32_t fleet_add(struct fleet *f, uint32_t replaces)
{
	uint32_t slot = 0, home;

	while (slot < LIMIT_FRONTENDS && f->slots[slot].state != FLEET_EMPTY) slot++;
	if (slot == LIMIT_FRONTENDS) return FLEET_NONE;
	home = replaces != FLEET_NONE ? f->slots[replaces].home : f->is_shared ? 0 : fleet_spare_socket(f);
	if (home == f->n_sockets) {
		if (home == LIMIT_FRONTENDS || !f->out.open(f->out.ctx, home)) return FLEET_NONE;
		f->sockets[f->n_sockets++] = (struct fleet_socket){slot, FLEET_NONE};
	}
	if (replaces == FLEET_NONE && !f->is_shared) f->sockets[home].owner = slot; /* its holder keeps it until this one is ready */
	f->slots[slot] = (struct fleet_slot){FLEET_STARTING, home};
	fleet_place(f); /* a new socket is lent from the moment that it listens */
	return slot;
}

void fleet_on_ready(struct fleet *f, uint32_t slot)
{
	if (!fleet_is_here(f, slot) || serves(f, slot)) return;
	f->slots[slot].state = FLEET_SERVING;
	fleet_place(f);
}

void fleet_on_gone(struct fleet *f, uint32_t slot)
{
	if (!serves(f, slot)) return;
	f->slots[slot].state = FLEET_DOWN;
	fleet_place(f);
}

void fleet_retire(struct fleet *f, uint32_t slot, uint32_t successor)
{
	CHECK(fleet_is_here(f, slot));
	f->slots[slot].state = FLEET_RETIRING;
	fleet_bequeath(f, slot, successor);
	fleet_place(f);
}

void fleet_remove(struct fleet *f, uint32_t slot)
{
	f->slots[slot].state = FLEET_EMPTY;
	fleet_bequeath(f, slot, FLEET_NONE);
	fleet_place(f);
}

void fleet_check(const struct fleet *f)
{
	bool anybody = fleet_count(f) > 0, anybody_serves = fleet_count_in(f, FLEET_SERVING) > 0;

	for (uint32_t i = 0; i < f->n_sockets && !f->is_shared; i++) {
		const struct fleet_socket *s = &f->sockets[i];

		CHECK(!anybody || fleet_is_here(f, s->owner));
		CHECK(s->holder == FLEET_NONE ? !anybody_serves : serves(f, s->holder));
		CHECK(!serves(f, s->owner) || s->holder == s->owner);
	}
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++)
		if (f->slots[i].state != FLEET_EMPTY) CHECK(f->slots[i].home < f->n_sockets);
}
