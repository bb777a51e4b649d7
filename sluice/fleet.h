/* fleet.h - which frontends there are, and who accepts from which listening socket, as plain C: what happened goes in, "accept from
 * this one" and "no longer" come out. No process, no socket.
 *
 * A frontend has a *slot*: its number, its place on the status page, its lane, its inbox. One that dies is started again in its slot; one
 * that is added, or replaces another, gets an empty one, so that old and new can run at the same time.
 *
 *   EMPTY --add--> STARTING --ready--> SERVING --gone--> DOWN --ready--> SERVING
 *                  STARTING, SERVING, DOWN --retire--> RETIRING --remove--> EMPTY
 *
 * A listening socket is never closed while the mesh serves: the connections in its queue would be reset. Each has an *owner*, for good,
 * and a *holder*, who accepts from it now: the owner while it serves; else a sibling, to whom it is lent at once, so that nobody in the
 * queue waits for a restart. Each frontend has a socket as its *home*, which it inherits and is never told about; it owns others, too,
 * when there have been more frontends before. A successor has its predecessor's home: both accept from it until the old one retires.
 *
 * Invariants, see fleet_check(): a socket is held by its owner when that serves; by somebody who serves when anybody does. */
#ifndef SLUICE_FLEET_H
#define SLUICE_FLEET_H

#include "common/base.h"
#include "proto/limits.h"

#define FLEET_NONE UINT32_MAX

enum fleet_state {
	FLEET_EMPTY,
	FLEET_STARTING, /* has never served */
	FLEET_SERVING,
	FLEET_DOWN,     /* has served and died */
	FLEET_RETIRING  /* accepts nothing, ends by itself */
};

struct fleet_slot {
	enum fleet_state state;
	uint32_t home; /* not EMPTY: the socket that it inherits */
};

struct fleet_socket {
	uint32_t owner;  /* neither EMPTY nor RETIRING, as long as there is one such */
	uint32_t holder; /* SERVING; FLEET_NONE: nobody accepts, nobody serves */
};

struct fleet_out {
	void *ctx;
	/* The socket with this number is needed, the first that does not exist. False: it cannot be had. */
	bool (*open)(void *ctx, uint32_t socket);
	/* `slot` is to accept from the socket from now on, or no longer. */
	void (*listener)(void *ctx, uint32_t slot, uint32_t socket, bool on);
};

struct fleet {
	struct fleet_slot slots[LIMIT_FRONTENDS];
	struct fleet_socket sockets[LIMIT_FRONTENDS];
	uint32_t n_sockets; /* grows only */
	bool is_shared;     /* a UNIX socket: everybody's home, nobody is told anything */
	struct fleet_out out;
};

void fleet_init(struct fleet *f, bool is_shared, const struct fleet_out *out);

/* A slot for one more frontend, STARTING; FLEET_NONE: none is free, or no socket can be had. Its home is the one of `replaces`; when
 * that is FLEET_NONE, a socket that is nobody's home, or a new one. */
uint32_t fleet_add(struct fleet *f, uint32_t replaces);
void fleet_on_ready(struct fleet *f, uint32_t slot);
/* Its process is gone, and will be started again in this slot. */
void fleet_on_gone(struct fleet *f, uint32_t slot);
/* What it owns goes to the successor; FLEET_NONE: to whoever has least. They are told before this returns: tell it afterwards. */
void fleet_retire(struct fleet *f, uint32_t slot, uint32_t successor);
/* It is gone for good. */
void fleet_remove(struct fleet *f, uint32_t slot);

/* It serves, or will: STARTING, SERVING or DOWN. */
bool fleet_is_here(const struct fleet *f, uint32_t slot);
/* How many are. */
uint32_t fleet_count(const struct fleet *f);
uint32_t fleet_count_in(const struct fleet *f, enum fleet_state state);
/* Of the others that serve the one with the fewest sockets, or FLEET_NONE. */
uint32_t fleet_sibling(const struct fleet *f, uint32_t slot);
void fleet_check(const struct fleet *f);

#endif
