/* wordcache.c - see wordcache.h. */
#include "frontend/wordcache.h"

#include "common/mem.h"

#include <string.h>
#include <xxhash.h>

#define TEXT_MIN    2048
#define ENTRIES_MAX 4096 /* 256 KiB: fits a second-level cache */

void wordcache_init(struct wordcache *c, size_t text_len)
{
	size_t n = 256;

	*c = (struct wordcache){0};
	if (text_len < TEXT_MIN) return;
	while (n < ENTRIES_MAX && n * 16 < text_len) n *= 2;
	c->entries = mem_array(struct wordcache_entry, n);
	c->mask = n - 1;
}

void wordcache_release(struct wordcache *c)
{
	free(c->entries);
	*c = (struct wordcache){0};
}

struct wordcache_entry *wordcache_find(const struct wordcache *c, const char *word, size_t len)
{
	struct wordcache_entry *e;

	if (!c->entries || len > WORDCACHE_WORD_MAX) return NULL;
	e = &c->entries[(size_t)XXH3_64bits(word, len) & c->mask];
	if (e->len != len || memcmp(e->word, word, len) != 0) e->len = 0;
	return e;
}

void wordcache_put(struct wordcache_entry *entry, const char *word, size_t len, const uint32_t *ids, size_t n)
{
	if (n > WORDCACHE_IDS_MAX) return;
	entry->len = (uint8_t)len;
	entry->n = (uint8_t)n;
	memcpy(entry->word, word, len);
	memcpy(entry->ids, ids, n * sizeof(*ids));
}
