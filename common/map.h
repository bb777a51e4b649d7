/* map.h - hash map from a 64-bit key to a pointer; linear probing, never shrinks, keeps no values alive. */
#ifndef SLUICE_MAP_H
#define SLUICE_MAP_H

#include "common/base.h"

struct map {
	struct map_entry {
		uint64_t key;
		void *value; /* NULL: the entry is free */
	} *entries;
	size_t cap; /* power of two, or 0 */
	size_t len;
};

void map_init(struct map *m);
void map_release(struct map *m);
void *map_get(const struct map *m, uint64_t key);

/* value is not NULL; replaces an earlier value of the key. */
void map_put(struct map *m, uint64_t key, void *value);

/* Returns the value taken out, or NULL. */
void *map_remove(struct map *m, uint64_t key);

/* Walks all entries in table order. The map must not change inside the loop. */
#define MAP_EACH(m, e)                                                                      \
	for (struct map_entry *e = (m)->entries, *e##_end = (m)->cap ? e + (m)->cap : e;    \
	     e < e##_end; e++)                                                              \
		if (e->value)

#endif
