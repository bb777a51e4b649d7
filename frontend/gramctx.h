/* gramctx.h - what every part of the grammar compiler shares: memory, one error, a budget of work.
 *
 * The first failure stays (`rc`, and the caller's errbuf); from then on every part only finds its way out. So a part looks at
 * gramctx_is_ok() in its loops, and once where its result would be used. Memory never runs out in the middle: what is asked for
 * is always given, and going over the budget is a failure like any other, noticed at the next look. */
#ifndef SLUICE_GRAMCTX_H
#define SLUICE_GRAMCTX_H

#include "common/arena.h"
#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/gramc.h"
#include "proto/gram.h"

#define GRAMCTX_DEPTH_MAX 128 /* of nested groups, and of anything else that is read or written recursively */

struct charset_scanned;

struct gramctx {
	struct gramb *b;
	const struct gramc_opts *o;
	struct errbuf *err;
	int rc;
	struct arena mem;
	struct arena_budget budget;
	uint64_t work; /* steps so far: edges looked at, sets made */
	struct charset_scanned *scanned; /* charset.c's: sets of categories that were asked for */
};

void gramctx_init(struct gramctx *g, const struct gramc_opts *o, struct errbuf *err);
void gramctx_release(struct gramctx *g);

/* Zeroed, never NULL, valid until the release. */
void *gramctx_alloc(struct gramctx *g, size_t n, size_t size);
#define gramctx_array(g, type, n) ((type *)gramctx_alloc((g), (n), sizeof(type)))
void *gramctx_dup(struct gramctx *g, const void *src, size_t n, size_t size);

/* Sets the failure when there is none yet; returns the one that counts. */
int gramctx_fail(struct gramctx *g, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Counts n steps. False: there is a failure, perhaps because of these. */
bool gramctx_work(struct gramctx *g, uint64_t n);

static inline bool gramctx_is_ok(const struct gramctx *g)
{
	return g->rc == 0;
}

/* As qsort(), but what is in order already, which is most of what is sorted here, costs one look. Its steps are counted. */
void gramctx_sort(struct gramctx *g, void *items, size_t n, size_t size, int (*compare)(const void *a, const void *b));

/* Makes room for one more in an array of the arena that grows by doubling. */
#define gramctx_reserve(g, ptr, n, cap)                                                         \
	do {                                                                                    \
		if ((n) == (cap)) {                                                             \
			size_t cap_new_ = (cap) ? 2 * (size_t)(cap) : 8;                        \
			void *more_ = gramctx_alloc((g), cap_new_, sizeof(*(ptr)));             \
			if (n) memcpy(more_, (ptr), (n) * sizeof(*(ptr)));                      \
			(ptr) = more_;                                                          \
			(cap) = (__typeof__(cap))cap_new_;                                      \
		}                                                                               \
	} while (0)

#endif
