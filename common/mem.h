/* mem.h - small allocations, which abort in one place when memory is out.
 *
 * For memory whose size a client decides, bound it first (and answer ST_LIMIT); then these are safe to use. */
#ifndef SLUICE_MEM_H
#define SLUICE_MEM_H

#include "common/base.h"

#include <stdlib.h>

/* Zeroed memory for n * size bytes; aborts when out of memory or when the product overflows. Free with free(). */
void *mem_zalloc(size_t n, size_t size);

/* Memory, not zeroed, whose address is a multiple of n, the size of a huge page: where the kernel has them it is one. Aborts as above. */
void *mem_huge(size_t n);

/* Grows or shrinks ptr (or NULL) to n * size bytes, contents kept, new bytes not zeroed; aborts as above. */
void *mem_realloc(void *ptr, size_t n, size_t size);

/* A terminated copy of s[0..len). */
char *mem_strndup(const char *s, size_t len);
char *mem_strdup(const char *s);

/* A copy of n * size bytes (n may be 0). */
void *mem_dup(const void *src, size_t n, size_t size);

#define mem_new(type) ((type *)mem_zalloc(1, sizeof(type)))
#define mem_array(type, n) ((type *)mem_zalloc((n), sizeof(type)))

/* Makes room for `need` elements in an array that grows by doubling: `ptr` is reassigned, `cap` updated. */
#define mem_reserve(ptr, cap, need)                                                        \
	do {                                                                               \
		size_t mem_need_ = (need);                                                 \
		if (mem_need_ > (cap)) {                                                   \
			size_t mem_cap_ = (cap) ? (cap) : 16;                              \
			while (mem_cap_ < mem_need_) mem_cap_ *= 2;                        \
			(ptr) = mem_realloc((ptr), mem_cap_, sizeof(*(ptr)));              \
			(cap) = (__typeof__(cap))mem_cap_;                                 \
		}                                                                          \
	} while (0)

#endif
