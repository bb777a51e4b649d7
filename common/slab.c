/* slab.c - see slab.h.
 *
 * What is not taken is poisoned for AddressSanitizer, so that a late use is found as it would be with malloc. */
#include "common/slab.h"

#include "common/mem.h"

#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

#define SLAB_CHUNK ((size_t)2 << 20) /* a huge page of x86-64, and of most arm64 kernels */

void slab_init(struct slab *s, size_t size)
{
	CHECK(size > 0 && size <= SLAB_OBJECT_MAX);
	*s = (struct slab){.size = align_up(size, SLAB_ALIGN)};
}

void slab_release(struct slab *s)
{
	for (size_t i = 0; i < s->n_chunks; i++) {
		ASAN_UNPOISON_MEMORY_REGION(s->chunks[i], SLAB_CHUNK);
		free(s->chunks[i]);
	}
	free(s->chunks);
	free(s->free);
	*s = (struct slab){.size = s->size};
}

/* The first objects of a chunk are taken first: those taken together lie together. */
static void slab_grow(struct slab *s)
{
	size_t n = SLAB_CHUNK / s->size;
	uint8_t *chunk = mem_huge(SLAB_CHUNK);

	mem_reserve(s->chunks, s->chunks_cap, s->n_chunks + 1);
	s->chunks[s->n_chunks++] = chunk;
	mem_reserve(s->free, s->free_cap, s->n_free + n);
	while (n-- > 0) s->free[s->n_free++] = chunk + n * s->size;
	ASAN_POISON_MEMORY_REGION(chunk, SLAB_CHUNK);
}

void *slab_take(struct slab *s)
{
	void *object;

	if (!s->n_free) slab_grow(s);
	object = s->free[--s->n_free];
	ASAN_UNPOISON_MEMORY_REGION(object, s->size);
	return memset(object, 0, s->size);
}

void slab_give(struct slab *s, void *object)
{
	ASAN_POISON_MEMORY_REGION(object, s->size);
	mem_reserve(s->free, s->free_cap, s->n_free + 1);
	s->free[s->n_free++] = object;
}
