/* bpe.c - see bpe.h.
 *
 * Short words (nearly all are) are merged by scanning; long ones with a list of symbols and a queue of their pairs, so
 * that one word of a million characters takes no more than O(n log n). Both give the same result. Pairs are found by a
 * hash table of 4-byte slots: the low bits hold the merge's index + 1, the high bits a part of the hash, so that a pair
 * that does not exist, the common case, is nearly always recognised without touching the merge itself. */
#include "frontend/bpe.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"

#include <string.h>

#define INDEX_BITS     22u
#define INDEX_MASK     ((1u << INDEX_BITS) - 1)
#define BPE_MERGES_MAX (INDEX_MASK - 1) /* the largest published vocabularies have less than 2^20 */

#define SHORT_MAX 64 /* measured: the queue wins beyond about a hundred symbols */

/* A pair as it waits to be joined: its rank above the index of its merge, so that smaller is more important. */
#define PAIR_NONE UINT64_MAX

static uint32_t pair_rank(uint64_t pair)
{
	return (uint32_t)(pair >> 32);
}

static uint64_t pair_hash(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull;

	h ^= h >> 32;
	return h * 0xD6E8FEB86659FD93ull;
}

static uint64_t bpe_find(const struct bpe *b, uint32_t left, uint32_t right)
{
	uint64_t h = pair_hash(left, right);
	uint32_t tag = (uint32_t)h & ~INDEX_MASK, mask = (1u << b->slot_bits) - 1;

	for (uint32_t at = (uint32_t)(h >> (64 - b->slot_bits));; at = (at + 1) & mask) {
		uint32_t slot = b->slots[at], ix = (slot & INDEX_MASK) - 1;

		if (slot == 0) return PAIR_NONE;
		if ((slot & ~INDEX_MASK) == tag && b->merges[ix].left == left && b->merges[ix].right == right)
			return (uint64_t)b->merges[ix].rank << 32 | ix;
	}
}

/* ---- loading ---- */

static void bpe_add(struct bpe *b, struct bpe_merge m)
{
	mem_reserve(b->merges, b->cap, (size_t)b->n + 1);
	b->merges[b->n++] = m;
}

/* Fills the table. The first of equal pairs counts. */
static void bpe_index(struct bpe *b)
{
	uint32_t mask;

	for (b->slot_bits = 4; ((size_t)1 << b->slot_bits) < (size_t)b->n * 2;) b->slot_bits++;
	b->slots = mem_array(uint32_t, (size_t)1 << b->slot_bits);
	mask = (1u << b->slot_bits) - 1;
	for (uint32_t ix = 0; ix < b->n; ix++) {
		const struct bpe_merge *m = &b->merges[ix];
		uint64_t h = pair_hash(m->left, m->right);
		uint32_t at = (uint32_t)(h >> (64 - b->slot_bits));

		if (bpe_find(b, m->left, m->right) != PAIR_NONE) continue;
		while (b->slots[at] != 0) at = (at + 1) & mask;
		b->slots[at] = ((uint32_t)h & ~INDEX_MASK) | (ix + 1);
	}
}

static int bpe_read(struct bpe_merge *m, const struct vocab_index *index, size_t ix, struct strbuf *joined, struct errbuf *err)
{
	const struct vocab_lists *l = index->lists;
	struct gguf_str left = l->merges[ix].left, right = l->merges[ix].right;

	strbuf_reset(joined);
	strbuf_append(joined, left.s, left.len);
	strbuf_append(joined, right.s, right.len);
	m->left = vocab_index_find(index, left.s, left.len);
	m->right = vocab_index_find(index, right.s, right.len);
	m->result = vocab_index_find(index, joined->data ? joined->data : "", joined->len);
	m->rank = (uint32_t)ix;
	if (m->left != TOKEN_NONE && m->right != TOKEN_NONE && m->result != TOKEN_NONE) return ST_OK;
	return err_set(err, ST_INVALID, "%s: %s: merge %zu is \"%s %s\"; expected tokens of the vocabulary, but %s is not in it",
		       l->file, l->key_merges ? l->key_merges : "tokenizer.ggml.merges", ix, quote_short(left.s, left.len).text,
		       quote_short(right.s, right.len).text,
		       m->left == TOKEN_NONE    ? "the left one"
		       : m->right == TOKEN_NONE ? "the right one"
						: "the joined one");
}

static int bpe_from_merges(struct bpe *b, const struct vocab *v, const struct vocab_index *index, struct errbuf *err)
{
	const struct vocab_lists *l = index->lists;
	struct strbuf joined;
	int rc = ST_OK;

	strbuf_init(&joined, SIZE_MAX / 4);
	for (size_t i = 0; i < l->n_merges && rc == ST_OK; i++) {
		struct bpe_merge m;

		rc = bpe_read(&m, index, i, &joined, err);
		/* A control token must never come from text, whatever the merges say. */
		if (rc == ST_OK && v->tokens->kinds[m.result] != TOKBYTES_SPECIAL) bpe_add(b, m);
	}
	strbuf_release(&joined);
	return rc;
}

/* ---- merges from scores ---- */

#define SCORED_LEN_MAX 256 /* bytes; longer tokens do not come from text (the longest published one has 93) */

struct scored {
	float score;
	uint32_t id;
};

static int scored_compare(const void *a, const void *b)
{
	const struct scored *x = a, *y = b;

	if (x->score != y->score) return x->score > y->score ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Every way to make the token of two others. */
static void bpe_split_token(struct bpe *b, const struct vocab *v, bool chars, uint32_t id, uint32_t rank)
{
	size_t len;
	const char *s = vocab_bytes(v, id, &len);

	for (size_t cut = 1; cut < len; cut++) {
		struct bpe_merge m = {.result = id, .rank = rank};

		if (chars && ((unsigned char)s[cut] & 0xc0) == 0x80) continue; /* inside a character */
		m.left = vocab_find_plain(v, s, cut);
		if (m.left == TOKEN_NONE) continue;
		m.right = vocab_find_plain(v, s + cut, len - cut);
		if (m.right != TOKEN_NONE && b->n < BPE_MERGES_MAX) bpe_add(b, m);
	}
}

/* SentencePiece's rule; with a byte-level vocabulary and scores that fall with the ids, tiktoken's. Equal scores are equal
 * ranks: the leftmost is joined first. A token that cannot be made of two others cannot come from text. */
static int bpe_from_scores(struct bpe *b, const struct vocab *v, const struct vocab_lists *l, struct errbuf *err)
{
	struct scored *order = mem_array(struct scored, v->n);
	uint32_t n = 0, rank = 0;

	for (uint32_t i = 0; i < v->n; i++)
		if (v->tokens->kinds[i] == TOKBYTES_PLAIN && v->tokens->offs[i + 1] - v->tokens->offs[i] <= SCORED_LEN_MAX)
			order[n++] = (struct scored){l->scores[i], i};
	qsort(order, n, sizeof(*order), scored_compare);
	for (uint32_t i = 0; i < n; i++) {
		if (i > 0 && order[i].score != order[i - 1].score) rank = i;
		bpe_split_token(b, v, l->spelling == TOKBYTES_LLAMA, order[i].id, rank);
	}
	free(order);
	if (b->n < BPE_MERGES_MAX) return ST_OK;
	return err_set(err, ST_LIMIT, "%s: the tokens can be joined in more than %u ways", l->file, BPE_MERGES_MAX - 1);
}

int bpe_init(struct bpe *b, const struct vocab *v, const struct vocab_index *index, struct errbuf *err)
{
	const struct vocab_lists *l = index->lists;
	int rc;

	*b = (struct bpe){0};
	if (l->n_merges > BPE_MERGES_MAX)
		return err_set(err, ST_LIMIT, "%s: tokenizer.ggml.merges has %zu merges; expected at most %u", l->file,
			       l->n_merges, BPE_MERGES_MAX);
	rc = l->merges || !l->scores ? bpe_from_merges(b, v, index, err) : bpe_from_scores(b, v, l, err);
	if (rc == ST_OK) bpe_index(b);
	return rc;
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
	pairqueue_release(&s->queue);
	*s = (struct bpe_scratch){0};
}

/* ---- short words ---- */

size_t bpe_merge_plain(const struct bpe *b, uint32_t *ids, size_t n, uint64_t *pairs)
{
	for (size_t i = 0; i + 1 < n; i++) pairs[i] = bpe_find(b, ids[i], ids[i + 1]);
	while (n > 1) {
		size_t at = 0;
		uint64_t best = pairs[0];

		for (size_t i = 1; i + 1 < n; i++)
			if (pair_rank(pairs[i]) < pair_rank(best)) best = pairs[at = i];
		if (best == PAIR_NONE) break;
		ids[at] = b->merges[(uint32_t)best].result;
		memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof(*ids));
		n--;
		/* The pairs behind move up; those that contain the new token are new. */
		if (at + 1 < n) {
			memmove(pairs + at + 1, pairs + at + 2, (n - at - 2) * sizeof(*pairs));
			pairs[at] = bpe_find(b, ids[at], ids[at + 1]);
		}
		if (at > 0) pairs[at - 1] = bpe_find(b, ids[at - 1], ids[at]);
	}
	return n;
}

/* ---- long words ---- */

/* A symbol of a long word; places are positions of its first symbols. */
struct node {
	uint32_t prev, next; /* place of its neighbours; next is n at the end */
	uint64_t pair;       /* with the next one; PAIR_NONE also where a symbol was joined to the one before */
};

static uint64_t queue_entry(uint64_t pair, size_t at)
{
	return (uint64_t)pair_rank(pair) << 32 | at;
}

static void node_set(const struct bpe *b, struct bpe_scratch *s, struct node *nodes, const uint32_t *ids, size_t at)
{
	nodes[at].pair = bpe_find(b, ids[at], ids[nodes[at].next]);
	if (nodes[at].pair != PAIR_NONE) pairqueue_push(&s->queue, queue_entry(nodes[at].pair, at));
}

size_t bpe_merge_queue(const struct bpe *b, uint32_t *ids, size_t n, struct bpe_scratch *s)
{
	struct node *nodes;
	size_t out = 0;
	uint64_t e;

	CHECK(n > 0 && n < UINT32_MAX);
	mem_reserve(s->nodes, s->nodes_cap, n * (sizeof(*nodes) / sizeof(*s->nodes)));
	nodes = (struct node *)s->nodes;
	pairqueue_reset(&s->queue);
	for (size_t i = 0; i < n; i++) {
		nodes[i] = (struct node){(uint32_t)i - 1, (uint32_t)i + 1, PAIR_NONE};
		if (i + 1 < n) node_set(b, s, nodes, ids, i);
	}
	while (pairqueue_pop(&s->queue, &e)) {
		uint32_t at = (uint32_t)e, gone;
		struct node *node = &nodes[at];

		/* The pair changed since; its new rank has its own entry. */
		if (node->pair == PAIR_NONE || pair_rank(node->pair) != pair_rank(e)) continue;
		gone = node->next;
		ids[at] = b->merges[(uint32_t)node->pair].result;
		node->pair = nodes[gone].pair = PAIR_NONE;
		node->next = nodes[gone].next;
		if (node->next < n) {
			nodes[node->next].prev = at;
			node_set(b, s, nodes, ids, at);
		}
		if (at > 0) node_set(b, s, nodes, ids, node->prev);
	}
	for (size_t i = 0; i < n; i = nodes[i].next)
		ids[out++] = ids[i]; /* next is ahead of out: nothing is overwritten unread */
	return out;
}

size_t bpe_merge(const struct bpe *b, uint32_t *ids, size_t n, struct bpe_scratch *s)
{
	uint64_t pairs[SHORT_MAX];

	return n <= SHORT_MAX ? bpe_merge_plain(b, ids, n, pairs) : bpe_merge_queue(b, ids, n, s);
}
