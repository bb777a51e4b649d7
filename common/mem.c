/* mem.c - see mem.h. The one place that aborts when memory is out. */
#include "common/mem.h"

#include "common/log.h"

#include <string.h>
#include <sys/mman.h>

static NORETURN void mem_out(size_t n, size_t size)
{
	log_fatal("out of memory: %zu x %zu bytes could not be allocated", n, size);
}

void *mem_zalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (!p) mem_out(n, size);
	return p;
}

void *mem_huge(size_t n)
{
	void *p = aligned_alloc(n, n);

	if (!p) mem_out(n, 1);
	madvise(p, n, MADV_HUGEPAGE); /* in vain where there are none */
	return p;
}

void *mem_realloc(void *ptr, size_t n, size_t size)
{
	void *p = reallocarray(ptr, n ? n : 1, size ? size : 1);

	if (!p) mem_out(n, size);
	return p;
}

char *mem_strndup(const char *s, size_t len)
{
	char *p = mem_zalloc(len + 1, 1);

	if (len) memcpy(p, s, len);
	return p;
}

char *mem_strdup(const char *s)
{
	return mem_strndup(s, strlen(s));
}

void *mem_dup(const void *src, size_t n, size_t size)
{
	void *p = mem_realloc(NULL, n, size);

	if (n && size) memcpy(p, src, n * size);
	return p;
}
