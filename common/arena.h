/* arena.h - memory that is given back all at once.
 *
 * An arena hands out pieces of growing chunks; nothing is freed before arena_release(). Several arenas may share one
 * budget: when a piece would exceed it, arena_alloc() gives NULL and the budget stays marked as overflowed, so memory
 * that an outsider drives is bounded in one place. */
#ifndef SLUICE_ARENA_H
#define SLUICE_ARENA_H

#include "common/base.h"

struct arena_budget {
	size_t bytes_max;
	size_t bytes; /* in chunks that are held now */
	bool overflow;
};

struct arena_chunk;

struct arena {
	struct arena_budget *budget; /* not owned */
	struct arena_chunk *chunks;  /* newest first */
	char *pos, *end;             /* free part of the newest chunk */
	size_t chunk_next;           /* size of the next chunk */
};

void arena_init(struct arena *a, struct arena_budget *budget);
void arena_release(struct arena *a);

/* n bytes, not zeroed, aligned to `align` (a power of two, at most 16); NULL when the budget is spent. */
void *arena_alloc(struct arena *a, size_t n, size_t align);

/* When the piece that ends at `end` is the last one and its chunk has room: makes it n bytes longer and returns true.
 * This makes repeated appending cheap: only the newest owner of a text can grow it, older views keep their length. */
bool arena_extend(struct arena *a, const void *end, size_t n);

/* Gives back the last n bytes of the piece that ends at `end`, when it is the last one. */
void arena_shrink(struct arena *a, const void *end, size_t n);

/* A terminated copy of s[0..len), or NULL. */
char *arena_strndup(struct arena *a, const char *s, size_t len);

#endif
