/* kvpool.h - KV cache blocks by number, and which of them hold what content (the prefix cache).
 *
 * A block is in one of three states:
 *   free    refs == 0, content worthless
 *   cached  refs == 0, content published: it can be found again, or evicted, the least recently used first
 *   used    refs > 0; published or not
 *
 * Content is a chain: a block is what its 16 tokens say after what its parent says; the first block's parent is the root of its
 * cache salt. A parent is named by its serial number, which no other content ever gets, and the tokens are compared, so
 * a hash collision costs a comparison and never serves wrong content. (A root is 128 bits of the salt's hash.)
 * A child whose parent was evicted cannot be found any more and leaves the cache when its turn comes; blocks of one request are
 * given back last block first, so that this hardly happens.
 *
 * Running out is normal: ST_AGAIN, the caller preempts or waits. Invariant, see kvpool_check(): free + cached + used = all. */
#ifndef SLUICE_KVPOOL_H
#define SLUICE_KVPOOL_H

#include "common/base.h"
#include "common/status.h"

#define KVPOOL_BLOCK 16 /* tokens of a block */
#define KVPOOL_NONE UINT32_MAX

struct kvpool_chain {
	uint64_t lo, hi; /* root: hash of the salt, hi odd; block: serial, 0; hi grows by 2 for each KV group (kvpool_of_group) */
};

struct kvpool_block {
	uint32_t tokens[KVPOOL_BLOCK]; /* valid while published */
	struct kvpool_chain parent;    /* valid while published */
	uint64_t serial;               /* of the published content; 0: not published */
	uint32_t refs;
	uint32_t prev, next;   /* in the list of cached blocks; next also in the list of free ones */
	uint32_t bucket;       /* while published */
	uint32_t bucket_next;
};

struct kvpool {
	bool cache;
	uint32_t n_blocks, n_free, n_cached, n_used;
	uint32_t free_first;
	uint32_t cached_first, cached_last; /* first: evicted next */
	uint64_t serial_last;
	struct kvpool_block *blocks;
	uint32_t *buckets;
	uint32_t n_buckets; /* power of two */
};

void kvpool_init(struct kvpool *p, uint32_t n_blocks, bool cache);
void kvpool_release(struct kvpool *p);

/* Blocks that kvpool_alloc() can give: free and cached. */
uint32_t kvpool_available(const struct kvpool *p);

/* A block with one reference; evicts when nothing is free. ST_AGAIN: all are used. */
int kvpool_alloc(struct kvpool *p, uint32_t *block) MUST_CHECK;
void kvpool_ref(struct kvpool *p, uint32_t block);
void kvpool_unref(struct kvpool *p, uint32_t block);
bool kvpool_is_used(const struct kvpool *p, uint32_t block);

struct kvpool_chain kvpool_root(const void *salt, size_t len);

/* The block that holds tokens[16] after parent, or KVPOOL_NONE. Takes no reference. */
uint32_t kvpool_find(const struct kvpool *p, struct kvpool_chain parent, const uint32_t *tokens);

/* The same content as another KV group has it: parent with the group in its name. Group 0 is the parent itself. */
static inline struct kvpool_chain kvpool_of_group(struct kvpool_chain parent, uint32_t group)
{
	return (struct kvpool_chain){parent.lo, parent.hi + 2 * (uint64_t)group};
}

/* The chain that ends with a published block. */
struct kvpool_chain kvpool_chain(const struct kvpool *p, uint32_t block);

/* A used block now holds tokens[16] after parent, computed. Returns the chain that ends with this content: of an older
 * block when one holds the same already (then this one stays unpublished). Without a cache, nothing happens. */
struct kvpool_chain kvpool_publish(struct kvpool *p, uint32_t block, struct kvpool_chain parent, const uint32_t *tokens);

void kvpool_check(const struct kvpool *p);

#endif
