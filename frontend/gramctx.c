/* gramctx.c - see gramctx.h. */
#include "frontend/gramctx.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRAMCTX_MEM_MAX ((size_t)24 * MIB) /* real schemas need some 100 KiB */
#define GRAMCTX_WORK_MAX 2000000u          /* some 50 ms; real schemas need less than a hundredth */

void gramctx_init(struct gramctx *g, const struct gramc_opts *o, struct errbuf *err)
{
	*g = (struct gramctx){.o = o, .err = err, .budget = {.bytes_max = SIZE_MAX}};
	arena_init(&g->mem, &g->budget);
	g->b = gramb_new(o->bytes_max);
}

void gramctx_release(struct gramctx *g)
{
	gramb_free(g->b);
	arena_release(&g->mem);
}

void *gramctx_alloc(struct gramctx *g, size_t n, size_t size)
{
	void *p;

	CHECK(size == 0 || n <= SIZE_MAX / 2 / size);
	p = arena_alloc(&g->mem, n * size, 16);
	CHECK(p);
	memset(p, 0, n * size);
	if (g->budget.bytes > GRAMCTX_MEM_MAX) gramctx_fail(g, ST_LIMIT, "too large: it takes more than %zu MiB to compile", GRAMCTX_MEM_MAX / MIB);
	return p;
}

void *gramctx_dup(struct gramctx *g, const void *src, size_t n, size_t size)
{
	void *p = gramctx_alloc(g, n, size);

	if (n) memcpy(p, src, n * size);
	return p;
}

int gramctx_fail(struct gramctx *g, int rc, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (g->rc) return g->rc;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	g->rc = err_set(g->err, rc, "%s", text);
	return g->rc;
}

bool gramctx_work(struct gramctx *g, uint64_t n)
{
	if (g->rc) return false;
	g->work += n;
	if (g->work > GRAMCTX_WORK_MAX) gramctx_fail(g, ST_LIMIT, "too complicated: it takes more than %u steps to compile", GRAMCTX_WORK_MAX);
	else if (gramb_is_full(g->b)) gramctx_fail(g, ST_LIMIT, "too large: its grammar takes more than %zu bytes", g->o->bytes_max);
	return g->rc == 0;
}

void gramctx_sort(struct gramctx *g, void *items, size_t n, size_t size, int (*compare)(const void *a, const void *b))
{
	const char *item = items;
	size_t i;

	for (i = 1; i < n && compare(item + (i - 1) * size, item + i * size) <= 0;) i++;
	if (i >= n) return;
	gramctx_work(g, 2 * n);
	qsort(items, n, size, compare);
}
