/* bpe.c - see bpe.h.
 *
 * Short words (nearly all are) are merged by scanning; long ones with a list of symbols and a heap of their pairs, so
 * that one word of a million characters takes no more than O(n log n). Both give the same result. Pairs are found by a
 * hash table of 4-byte slots: the low bits hold the rank + 1, the high bits a part of the hash, so that a pair that
 * does not exist, the common case, is nearly always recognised without touching the merge itself. */
#include "frontend/bpe.h"

#include "common/mem.h"
#include "common/quote.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"

#include <string.h>

#define RANK_BITS      22u
#define RANK_MASK      ((1u << RANK_BITS) - 1)
#define RANK_NONE      UINT32_MAX
#define BPE_MERGES_MAX (RANK_MASK - 1) /* the largest published vocabularies have less than 2^19 */

#define SHORT_MAX 64 /* measured: the heap wins beyond about a hundred symbols */

static uint64_t pair_hash(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull;

	h ^= h >> 32;
	return h * 0xD6E8FEB86659FD93ull;
}

static uint32_t bpe_rank(const struct bpe *b, uint32_t left, uint32_t right)
{
	uint64_t h = pair_hash(left, right);
	uint32_t tag = (uint32_t)h & ~RANK_MASK, mask = (1u << b->slot_bits) - 1;

	for (uint32_t at = (uint32_t)(h >> (64 - b->slot_bits));; at = (at + 1) & mask) {
		uint32_t slot = b->slots[at], rank = (slot & RANK_MASK) - 1;

		if (slot == 0) return RANK_NONE;
		if ((slot & ~RANK_MASK) == tag && b->merges[rank].left == left && b->merges[rank].right == right)
			return rank;
	}
}

/* ---- loading ---- */

static int bpe_read(struct bpe_merge *m, const struct vocab_index *index, size_t ix, struct errbuf *err)
{
	static const char *const key = "tokenizer.ggml.merges";
	const struct vocab_lists *l = index->lists;
	struct gguf_str text = l->merges[ix];
	const char *sep =
		text.len > 1 ? memchr(text.s + 1, ' ', text.len - 1) : NULL; /* a token may begin with a space */
	char short_joined[256], *joined = short_joined;
	size_t left_len;

	if (!sep || sep + 1 == text.s + text.len)
		return err_set(err, ST_INVALID, "%s: %s: merge %zu is \"%s\"; expected two tokens with a space between",
			       l->file, key, ix, quote_short(text.s, text.len).text);
	left_len = (size_t)(sep - text.s);
	m->left = vocab_index_find(index, text.s, left_len);
	m->right = vocab_index_find(index, sep + 1, text.len - left_len - 1);

	if (text.len > sizeof(short_joined)) joined = mem_realloc(NULL, text.len, 1);
	memcpy(joined, text.s, left_len);
	memcpy(joined + left_len, sep + 1, text.len - left_len - 1);
	m->result = vocab_index_find(index, joined, text.len - 1);
	if (joined != short_joined) free(joined);

	if (m->left == TOKEN_NONE || m->right == TOKEN_NONE || m->result == TOKEN_NONE)
		return err_set(err, ST_INVALID,
			       "%s: %s: merge %zu is \"%s\"; expected tokens of the vocabulary, but %s is not in it",
			       l->file, key, ix, quote_short(text.s, text.len).text,
			       m->left == TOKEN_NONE    ? "the left one"
			       : m->right == TOKEN_NONE ? "the right one"
							: "the joined one");
	return ST_OK;
}

/* The first of equal pairs counts. */
static void bpe_insert(struct bpe *b, uint32_t rank)
{
	const struct bpe_merge *m = &b->merges[rank];
	uint64_t h = pair_hash(m->left, m->right);
	uint32_t mask = (1u << b->slot_bits) - 1, at = (uint32_t)(h >> (64 - b->slot_bits));

	if (bpe_rank(b, m->left, m->right) != RANK_NONE) return;
	while (b->slots[at] != 0) at = (at + 1) & mask;
	b->slots[at] = ((uint32_t)h & ~RANK_MASK) | (rank + 1);
}

int bpe_init(struct bpe *b, const struct vocab *v, const struct vocab_index *index, struct errbuf *err)
{
	const struct vocab_lists *l = index->lists;

	*b = (struct bpe){0};
	if (l->n_merges > BPE_MERGES_MAX)
		return err_set(err, ST_LIMIT, "%s: tokenizer.ggml.merges has %zu merges; expected at most %u", l->file,
			       l->n_merges, BPE_MERGES_MAX);
	b->merges = mem_array(struct bpe_merge, l->n_merges + 1);
	for (b->slot_bits = 4; ((size_t)1 << b->slot_bits) < l->n_merges * 2;) b->slot_bits++;
	b->slots = mem_array(uint32_t, (size_t)1 << b->slot_bits);
	for (size_t i = 0; i < l->n_merges; i++) {
		int rc = bpe_read(&b->merges[i], index, i, err);

		if (rc != ST_OK) return rc;
		/* A control token must never come from text, whatever the merges say. */
		if (v->kinds[b->merges[i].result] != VOCAB_SPECIAL) bpe_insert(b, (uint32_t)i);
	}
	b->n = (uint32_t)l->n_merges;
	return ST_OK;
}

void bpe_release(struct bpe *b)
{
	free(b->merges);
	free(b->slots);
	*b = (struct bpe){0};
}

void bpe_scratch_release(struct bpe_scratch *s)
{
	free(s->nodes);
	free(s->heap);
	*s = (struct bpe_scratch){0};
}

/* ---- short words ---- */

size_t bpe_merge_plain(const struct bpe *b, uint32_t *ids, size_t n, uint32_t *ranks)
{
	for (size_t i = 0; i + 1 < n; i++) ranks[i] = bpe_rank(b, ids[i], ids[i + 1]);
	while (n > 1) {
		size_t at = 0;
		uint32_t best = ranks[0];

		for (size_t i = 1; i + 1 < n; i++)
			if (ranks[i] < best) best = ranks[at = i];
		if (best == RANK_NONE) break;
		ids[at] = b->merges[best].result;
		memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof(*ids));
		n--;
		/* Ranks of the pairs behind move up; those that contain the new token are new. */
		if (at + 1 < n) {
			memmove(ranks + at + 1, ranks + at + 2, (n - at - 2) * sizeof(*ranks));
			ranks[at] = bpe_rank(b, ids[at], ids[at + 1]);
		}
		if (at > 0) ranks[at - 1] = bpe_rank(b, ids[at - 1], ids[at]);
	}
	return n;
}

/* ---- long words ---- */

static void heap_sift_down(uint64_t *heap, size_t len, size_t at)
{
	uint64_t e = heap[at];

	for (size_t child; (child = at * 2 + 1) < len; at = child) {
		if (child + 1 < len && heap[child + 1] < heap[child]) child++;
		if (heap[child] >= e) break;
		heap[at] = heap[child];
	}
	heap[at] = e;
}

static uint64_t heap_pop(struct bpe_scratch *s)
{
	uint64_t top = s->heap[0];

	s->heap[0] = s->heap[--s->heap_len];
	if (s->heap_len > 0) heap_sift_down(s->heap, s->heap_len, 0);
	return top;
}

static void heap_push(struct bpe_scratch *s, uint64_t e)
{
	size_t at = s->heap_len++;

	mem_reserve(s->heap, s->heap_cap, s->heap_len);
	for (; at > 0 && s->heap[(at - 1) / 2] > e; at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
	s->heap[at] = e;
}

static uint64_t heap_entry(uint32_t rank, size_t at)
{
	return (uint64_t)rank << 32 | at;
}

size_t bpe_merge_heap(const struct bpe *b, uint32_t *ids, size_t n, struct bpe_scratch *s)
{
	uint32_t *prev, *next, *ranks;
	size_t out = 0;

	CHECK(n > 0 && n < UINT32_MAX);
	mem_reserve(s->nodes, s->nodes_cap, n * 3);
	mem_reserve(s->heap, s->heap_cap, n);
	prev = s->nodes;
	next = prev + n;
	ranks = next +
		n; /* of the pair that begins here; RANK_NONE: no such merge, the last symbol, or one that was joined */
	s->heap_len = 0;
	for (size_t i = 0; i < n; i++) {
		prev[i] = (uint32_t)i - 1;
		next[i] = (uint32_t)i + 1;
		ranks[i] = i + 1 < n ? bpe_rank(b, ids[i], ids[i + 1]) : RANK_NONE;
		if (ranks[i] != RANK_NONE) s->heap[s->heap_len++] = heap_entry(ranks[i], i);
	}
	for (size_t i = s->heap_len / 2; i-- > 0;) heap_sift_down(s->heap, s->heap_len, i);

	while (s->heap_len > 0) {
		uint64_t e = heap_pop(s);
		uint32_t rank = (uint32_t)(e >> 32), at = (uint32_t)e, gone;

		if (ranks[at] != rank) continue; /* the pair changed since; its new rank has its own entry */
		gone = next[at];
		ids[at] = b->merges[rank].result;
		ranks[gone] = RANK_NONE;
		next[at] = next[gone];
		ranks[at] = RANK_NONE;
		if (next[at] < n) {
			prev[next[at]] = at;
			ranks[at] = bpe_rank(b, ids[at], ids[next[at]]);
			if (ranks[at] != RANK_NONE) heap_push(s, heap_entry(ranks[at], at));
		}
		if (at > 0) {
			uint32_t before = prev[at];

			ranks[before] = bpe_rank(b, ids[before], ids[at]);
			if (ranks[before] != RANK_NONE) heap_push(s, heap_entry(ranks[before], before));
		}
	}
	for (size_t i = 0; i < n; i = next[i])
		ids[out++] = ids[i]; /* next is ahead of out: nothing is overwritten unread */
	return out;
}

size_t bpe_merge(const struct bpe *b, uint32_t *ids, size_t n, struct bpe_scratch *s)
{
	uint32_t ranks[SHORT_MAX];

	return n <= SHORT_MAX ? bpe_merge_plain(b, ids, n, ranks) : bpe_merge_heap(b, ids, n, s);
}
