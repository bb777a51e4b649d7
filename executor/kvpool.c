/* kvpool.c - see kvpool.h. Lists and hash chains are block numbers inside the blocks: no allocation after init. */
#include "executor/kvpool.h"

#include "common/mem.h"

#include <string.h>
#include <xxhash.h>

void kvpool_init(struct kvpool *p, uint32_t n_blocks, bool cache)
{
	uint32_t i;

	*p = (struct kvpool){.cache = cache, .n_blocks = n_blocks, .n_free = n_blocks, .n_buckets = 1};
	while (p->n_buckets < n_blocks) p->n_buckets *= 2;
	p->blocks = mem_array(struct kvpool_block, n_blocks);
	p->buckets = mem_array(uint32_t, p->n_buckets);
	for (i = 0; i < p->n_buckets; i++) p->buckets[i] = KVPOOL_NONE;
	for (i = 0; i < n_blocks; i++) p->blocks[i].next = i + 1 < n_blocks ? i + 1 : KVPOOL_NONE;
	p->free_first = n_blocks ? 0 : KVPOOL_NONE;
	p->cached_first = p->cached_last = KVPOOL_NONE;
}

void kvpool_release(struct kvpool *p)
{
	free(p->blocks);
	free(p->buckets);
	*p = (struct kvpool){0};
}

uint32_t kvpool_available(const struct kvpool *p)
{
	return p->n_free + p->n_cached;
}

static struct kvpool_block *kvpool_at(const struct kvpool *p, uint32_t block)
{
	CHECK(block < p->n_blocks);
	return &p->blocks[block];
}

static void kvpool_cached_push(struct kvpool *p, uint32_t block)
{
	struct kvpool_block *b = kvpool_at(p, block);

	b->prev = p->cached_last;
	b->next = KVPOOL_NONE;
	if (p->cached_last == KVPOOL_NONE)
		p->cached_first = block;
	else
		p->blocks[p->cached_last].next = block;
	p->cached_last = block;
	p->n_cached++;
}

static void kvpool_cached_remove(struct kvpool *p, uint32_t block)
{
	struct kvpool_block *b = kvpool_at(p, block);

	if (b->prev == KVPOOL_NONE)
		p->cached_first = b->next;
	else
		p->blocks[b->prev].next = b->next;
	if (b->next == KVPOOL_NONE)
		p->cached_last = b->prev;
	else
		p->blocks[b->next].prev = b->prev;
	p->n_cached--;
}

/* Takes a block's content out of the index. */
static void kvpool_unpublish(struct kvpool *p, uint32_t block)
{
	struct kvpool_block *b = kvpool_at(p, block);
	uint32_t *at = &p->buckets[b->bucket];

	while (*at != block) at = &kvpool_at(p, *at)->bucket_next;
	*at = b->bucket_next;
	b->serial = 0;
}

int kvpool_alloc(struct kvpool *p, uint32_t *block)
{
	uint32_t b;

	if (p->n_free > 0) {
		b = p->free_first;
		p->free_first = p->blocks[b].next;
		p->n_free--;
	} else if (p->n_cached > 0) {
		b = p->cached_first;
		kvpool_cached_remove(p, b);
		kvpool_unpublish(p, b);
	} else {
		return ST_AGAIN;
	}
	p->blocks[b].refs = 1;
	p->n_used++;
	*block = b;
	return ST_OK;
}

void kvpool_ref(struct kvpool *p, uint32_t block)
{
	struct kvpool_block *b = kvpool_at(p, block);

	if (b->refs == 0) {
		CHECK(b->serial); /* a free block has no content to share */
		kvpool_cached_remove(p, block);
		p->n_used++;
	}
	b->refs++;
}

void kvpool_unref(struct kvpool *p, uint32_t block)
{
	struct kvpool_block *b = kvpool_at(p, block);

	CHECK(b->refs > 0);
	if (--b->refs > 0) return;
	p->n_used--;
	if (b->serial) {
		kvpool_cached_push(p, block);
		return;
	}
	b->next = p->free_first;
	p->free_first = block;
	p->n_free++;
}

bool kvpool_is_used(const struct kvpool *p, uint32_t block)
{
	return kvpool_at(p, block)->refs > 0;
}

struct kvpool_chain kvpool_root(const void *salt, size_t len)
{
	XXH128_hash_t h = XXH3_128bits(salt, len);

	return (struct kvpool_chain){h.low64, h.high64 | 1}; /* odd: never the chain of a block */
}

static uint32_t kvpool_bucket(const struct kvpool *p, struct kvpool_chain parent, const uint32_t *tokens)
{
	uint64_t hash = XXH3_64bits_withSeed(tokens, KVPOOL_BLOCK * sizeof(*tokens), parent.lo ^ parent.hi);

	return (uint32_t)hash & (p->n_buckets - 1);
}

static uint32_t kvpool_find_in(const struct kvpool *p, uint32_t bucket, struct kvpool_chain parent, const uint32_t *tokens)
{
	uint32_t i;

	for (i = p->buckets[bucket]; i != KVPOOL_NONE; i = p->blocks[i].bucket_next) {
		const struct kvpool_block *b = &p->blocks[i];

		if (b->parent.lo == parent.lo && b->parent.hi == parent.hi && !memcmp(b->tokens, tokens, sizeof(b->tokens)))
			return i;
	}
	return KVPOOL_NONE;
}

uint32_t kvpool_find(const struct kvpool *p, struct kvpool_chain parent, const uint32_t *tokens)
{
	return kvpool_find_in(p, kvpool_bucket(p, parent, tokens), parent, tokens);
}

struct kvpool_chain kvpool_chain(const struct kvpool *p, uint32_t block)
{
	const struct kvpool_block *b = kvpool_at(p, block);

	CHECK(b->serial);
	return (struct kvpool_chain){b->serial, 0};
}

struct kvpool_chain kvpool_publish(struct kvpool *p, uint32_t block, struct kvpool_chain parent, const uint32_t *tokens)
{
	struct kvpool_block *b = kvpool_at(p, block);
	uint32_t bucket, twin;

	if (!p->cache) return parent;
	CHECK(b->refs > 0 && !b->serial);
	bucket = kvpool_bucket(p, parent, tokens);
	twin = kvpool_find_in(p, bucket, parent, tokens);
	if (twin != KVPOOL_NONE) return kvpool_chain(p, twin);
	memcpy(b->tokens, tokens, sizeof(b->tokens));
	b->parent = parent;
	b->serial = ++p->serial_last;
	b->bucket = bucket;
	b->bucket_next = p->buckets[bucket];
	p->buckets[bucket] = block;
	return kvpool_chain(p, block);
}

void kvpool_check(const struct kvpool *p)
{
	uint32_t i, n, prev, n_used = 0, n_published = 0;

	CHECK((uint64_t)p->n_free + p->n_cached + p->n_used == p->n_blocks);
	for (i = 0; i < p->n_blocks; i++) n_used += p->blocks[i].refs > 0;
	CHECK(n_used == p->n_used);
	for (i = p->free_first, n = 0; i != KVPOOL_NONE; i = p->blocks[i].next, n++) {
		CHECK(n < p->n_free && p->blocks[i].refs == 0 && !p->blocks[i].serial);
	}
	CHECK(n == p->n_free);
	for (i = p->cached_first, n = 0, prev = KVPOOL_NONE; i != KVPOOL_NONE; prev = i, i = p->blocks[i].next, n++) {
		CHECK(n < p->n_cached && p->blocks[i].refs == 0 && p->blocks[i].serial && p->blocks[i].prev == prev);
	}
	CHECK(n == p->n_cached && prev == p->cached_last);
	for (i = 0; i < p->n_blocks; i++) {
		if (!p->blocks[i].serial) continue;
		n_published++;
		CHECK(kvpool_find(p, p->blocks[i].parent, p->blocks[i].tokens) == i);
	}
	for (i = 0, n = 0; i < p->n_buckets; i++) {
		uint32_t b = p->buckets[i];

		for (; b != KVPOOL_NONE; b = p->blocks[b].bucket_next) n++;
	}
	CHECK(n == n_published);
}
