/* wordcache.h - the ids of words that were seen a moment ago: texts repeat most of their words.
 *
 * Inside the tokenizer only. It belongs to one call, so the tokenizer itself stays immutable, and has a fixed number of
 * entries: a newer word takes the place of an older one. */
#ifndef SLUICE_WORDCACHE_H
#define SLUICE_WORDCACHE_H

#include "common/base.h"

#define WORDCACHE_WORD_MAX 22 /* bytes; with the ids below an entry is a cache line. Longer words are rare */
#define WORDCACHE_IDS_MAX  10

struct wordcache_entry {
	uint8_t len; /* 0: free */
	uint8_t n;
	char word[WORDCACHE_WORD_MAX];
	uint32_t ids[WORDCACHE_IDS_MAX];
};

struct wordcache {
	struct wordcache_entry *entries; /* NULL: nothing is kept */
	size_t mask;
};

/* Sized for a text of text_len bytes; a short one gets none, as filling it would cost more. */
void wordcache_init(struct wordcache *c, size_t text_len);
void wordcache_release(struct wordcache *c);

/* Where the word is or may be put; NULL: it is not kept. Found when the entry's len is not 0. */
struct wordcache_entry *wordcache_find(const struct wordcache *c, const char *word, size_t len);
/* entry is wordcache_find()'s for this word. */
void wordcache_put(struct wordcache_entry *entry, const char *word, size_t len, const uint32_t *ids, size_t n);

#endif
