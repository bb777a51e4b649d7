/* nameindex.c - see nameindex.h: open addressing, linear probing. */
#include "common/nameindex.h"

#include "common/mem.h"

#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

void nameindex_init(struct nameindex *x)
{
	*x = (struct nameindex){0};
	if (getrandom(&x->seed, sizeof(x->seed), GRND_NONBLOCK) < 0) x->seed = (uintptr_t)x;
}

void nameindex_release(struct nameindex *x)
{
	free(x->slots);
	*x = (struct nameindex){0};
}

/* The slot that holds the name, or the free slot where it would go. */
static size_t slot_of(const struct nameindex *x, nameindex_name *name_of, const void *owner, const char *s, size_t len)
{
	size_t i = (size_t)XXH3_64bits_withSeed(s, len, x->seed) & (x->cap - 1);

	for (; x->slots[i]; i = (i + 1) & (x->cap - 1)) {
		size_t n;
		const char *name = name_of(owner, x->slots[i] - 1, &n);

		if (n == len && memcmp(name, s, len) == 0) break;
	}
	return i;
}

static void grow(struct nameindex *x, nameindex_name *name_of, const void *owner, size_t n)
{
	free(x->slots);
	x->cap = x->cap ? x->cap * 2 : 64;
	x->slots = mem_array(uint32_t, x->cap);
	for (size_t i = 0; i < n; i++) {
		size_t len;
		const char *name = name_of(owner, i, &len);

		x->slots[slot_of(x, name_of, owner, name, len)] = (uint32_t)i + 1;
	}
}

bool nameindex_add(struct nameindex *x, nameindex_name *name_of, const void *owner, size_t n)
{
	size_t len, slot;
	const char *name = name_of(owner, n, &len);

	CHECK(n < UINT32_MAX);
	if ((n + 1) * 2 > x->cap) grow(x, name_of, owner, n);
	slot = slot_of(x, name_of, owner, name, len);
	if (x->slots[slot]) return false;
	x->slots[slot] = (uint32_t)n + 1;
	return true;
}

size_t nameindex_find(const struct nameindex *x, nameindex_name *name_of, const void *owner, const char *name,
		      size_t len)
{
	return x->cap ? (size_t)x->slots[slot_of(x, name_of, owner, name, len)] - 1 : SIZE_MAX;
}
