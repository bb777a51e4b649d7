/* nameindex.h - finds elements of somebody's array by name: a hash table of positions.
 *
 * The array and its names belong to the caller, who gives a function that says the name of an element. The seed is
 * random, so a file cannot be made whose names all collide. At most half full, so a search ends. */
#ifndef SLUICE_NAMEINDEX_H
#define SLUICE_NAMEINDEX_H

#include "common/base.h"

struct nameindex {
	uint32_t *slots; /* position + 1; 0: free; owned */
	size_t cap;      /* power of two, or 0 */
	uint64_t seed;
};

/* The name of element ix (not terminated) and its length. */
typedef const char *nameindex_name(const void *owner, size_t ix, size_t *len);

void nameindex_init(struct nameindex *x);
void nameindex_release(struct nameindex *x);

/* Enters element n; the n before it are in. False: its name is there already, and nothing was entered. n < UINT32_MAX.
 */
bool nameindex_add(struct nameindex *x, nameindex_name *name_of, const void *owner, size_t n);

/* The element of that name, or SIZE_MAX. */
size_t nameindex_find(const struct nameindex *x, nameindex_name *name_of, const void *owner, const char *name,
		      size_t len);

#endif
