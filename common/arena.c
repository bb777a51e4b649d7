/* arena.c - see arena.h. Chunks double up to ARENA_CHUNK_MAX; a larger piece gets a chunk of its own with half as much
 * room again, so that a text that is appended to moves only O(log n) times. */
#include "common/arena.h"

#include "common/mem.h"

#include <string.h>

#define ARENA_CHUNK_MIN ((size_t)4 * KIB)
#define ARENA_CHUNK_MAX ((size_t)1 * MIB)

struct arena_chunk {
	struct arena_chunk *older;
	size_t bytes; /* with this header */
	_Alignas(16) char data[];
};

void arena_init(struct arena *a, struct arena_budget *budget)
{
	*a = (struct arena){.budget = budget, .chunk_next = ARENA_CHUNK_MIN};
}

void arena_release(struct arena *a)
{
	struct arena_chunk *c, *older;

	for (c = a->chunks; c; c = older) {
		older = c->older;
		a->budget->bytes -= c->bytes;
		free(c);
	}
	arena_init(a, a->budget);
}

static bool arena_grow(struct arena *a, size_t n)
{
	size_t left = a->budget->bytes_max - a->budget->bytes;
	size_t bytes = sizeof(struct arena_chunk) + 16;
	struct arena_chunk *c;

	if (n > left || bytes > left - n) {
		a->budget->overflow = true;
		return false;
	}
	bytes += n;
	/* Room for what comes next, as far as the budget allows. */
	bytes = min_size(left, n + n / 2 < a->chunk_next ? max_size(bytes, a->chunk_next) : bytes + n / 2);
	c = mem_realloc(NULL, 1, bytes);
	c->older = a->chunks;
	c->bytes = bytes;
	a->chunks = c;
	a->pos = c->data;
	a->end = (char *)c + bytes;
	a->budget->bytes += bytes;
	a->chunk_next = min_size(a->chunk_next * 2, ARENA_CHUNK_MAX);
	return true;
}

void *arena_alloc(struct arena *a, size_t n, size_t align)
{
	size_t pad = (size_t)(-(uintptr_t)a->pos & (align - 1));
	char *p;

	if (!a->pos || pad > (size_t)(a->end - a->pos) || n > (size_t)(a->end - a->pos) - pad) {
		if (!arena_grow(a, n)) return NULL;
		pad = 0; /* chunks start aligned */
	}
	p = a->pos + pad;
	a->pos = p + n;
	return p;
}

bool arena_extend(struct arena *a, const void *end, size_t n)
{
	if (!a->pos || end != a->pos || n > (size_t)(a->end - a->pos)) return false;
	a->pos += n;
	return true;
}

void arena_shrink(struct arena *a, const void *end, size_t n)
{
	if (a->pos && end == a->pos) a->pos -= n;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
	char *p = arena_alloc(a, len + 1, 1);

	if (!p) return NULL;
	if (len) memcpy(p, s, len);
	p[len] = 0;
	return p;
}
