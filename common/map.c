/* map.c - see map.h. Removal shifts entries back, so there are no tombstones and no rehash under churn. */
#include "common/map.h"

#include "common/mem.h"
#include "common/splitmix.h"

void map_init(struct map *m)
{
	*m = (struct map){0};
}

void map_release(struct map *m)
{
	free(m->entries);
	*m = (struct map){0};
}

/* The slot of the key, or the free slot where it would go. cap > 0. */
static size_t map_slot(const struct map *m, uint64_t key)
{
	size_t i = splitmix_mix(key) & (m->cap - 1);

	while (m->entries[i].value && m->entries[i].key != key) i = (i + 1) & (m->cap - 1);
	return i;
}

void *map_get(const struct map *m, uint64_t key)
{
	return m->cap ? m->entries[map_slot(m, key)].value : NULL;
}

static void map_grow(struct map *m)
{
	struct map old = *m;

	m->cap = old.cap ? old.cap * 2 : 16;
	m->entries = mem_array(struct map_entry, m->cap);
	if (old.cap) MAP_EACH(&old, e) m->entries[map_slot(m, e->key)] = *e;
	free(old.entries);
}

void map_put(struct map *m, uint64_t key, void *value)
{
	size_t i;

	CHECK(value);
	if ((m->len + 1) * 4 > m->cap * 3) map_grow(m);
	i = map_slot(m, key);
	if (!m->entries[i].value) m->len++;
	m->entries[i] = (struct map_entry){key, value};
}

void *map_remove(struct map *m, uint64_t key)
{
	size_t i, j, home, mask = m->cap - 1;
	void *value;

	if (!m->cap) return NULL;
	i = map_slot(m, key);
	value = m->entries[i].value;
	if (!value) return NULL;
	for (j = (i + 1) & mask; m->entries[j].value; j = (j + 1) & mask) {
		home = splitmix_mix(m->entries[j].key) & mask;
		if (((j - home) & mask) < ((j - i) & mask)) continue; /* its home lies behind the hole */
		m->entries[i] = m->entries[j];
		i = j;
	}
	m->entries[i] = (struct map_entry){0};
	m->len--;
	return value;
}
