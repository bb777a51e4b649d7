/* bpe.h - merges: joins neighbouring tokens, the most important pair first.
 *
 * Inside the tokenizer only. The same for byte-level BPE, whose merges are a list, and for SentencePiece, whose merges are
 * all ways to make a token of two others, the best score first. */
#ifndef SLUICE_BPE_H
#define SLUICE_BPE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/pairqueue.h"

struct vocab;
struct vocab_index;

struct bpe_merge {
	uint32_t left, right, result; /* token ids */
	uint32_t rank;                /* the lowest is joined first; of equal ones the leftmost in the word */
};

struct bpe {
	struct bpe_merge *merges;
	uint32_t n, cap;
	uint32_t *slots; /* hash of (left, right): index of the merge and a few bits of the hash, see bpe.c */
	unsigned slot_bits;
};

/* Memory for words that are long; reused from word to word. Zero it before the first use. */
struct bpe_scratch {
	uint64_t *nodes; /* each symbol's links and merge, see bpe.c */
	size_t nodes_cap;
	struct pairqueue queue;
};

/* Reads the merges of index->lists, or for a vocabulary without any makes them from its scores. Refused: a token that
 * is not in the vocabulary. */
int bpe_init(struct bpe *b, const struct vocab *v, const struct vocab_index *index, struct errbuf *err) MUST_CHECK;
void bpe_release(struct bpe *b);
void bpe_scratch_release(struct bpe_scratch *s);

/* Joins what can be joined among ids[0..n), in place: again and again the pair of the lowest rank, the leftmost of
 * equals. Returns the new number. Time O(n log n). */
size_t bpe_merge(const struct bpe *b, uint32_t *ids, size_t n, struct bpe_scratch *s);

/* The same by scanning for the lowest rank each time, O(n * n): for short words, and as the plain twin of the above. */
size_t bpe_merge_plain(const struct bpe *b, uint32_t *ids, size_t n, uint64_t *pairs);

/* The same with linked symbols and a queue of their pairs. */
size_t bpe_merge_queue(const struct bpe *b, uint32_t *ids, size_t n, struct bpe_scratch *s);

#endif
